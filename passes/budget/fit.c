/* fit: the joint planner. Keeps a step within a budget, at the least time it can find.
 *
 *   before   every value that the backward reads waits in the arena
 *   after    some wait, some are made again, some wait in a smaller form that another pass offers
 *
 * 1. Variants, each on a copy of its own. Passes make offers (ebb_offered): here are so many bytes
 *    less, for so much time. The step as it is, the step with the offers that cost next to nothing,
 *    and the step with all of them, are variants; so are, where rounding is allowed, the step in
 *    parts of its batch and of its sequence, and, where loss is, the step with the offers of small error. `allow` and
 *    `error` say how exact an offer must be.
 * 2. Frontiers. A variant as it is, each operator once in the best order known, is the cheapest
 *    that it can be. Beyond that the search planner finds what each budget costs, in recomputation
 *    (planners/search.h), on the list as it stands and on a list in a better order.
 * 3. Choice. Of all points, the cheapest whose arena, tried on a copy as the executor would lay it
 *    out, keeps to the budget. Neither the points nor their order depend on the budget: so a smaller
 *    one never gives a larger arena, and a larger one never a slower step. A variant that is dearer
 *    as it is than a choice that fits is never searched: that takes most of the time.
 * 4. The graph becomes that of the chosen variant, in the order of the chosen point. A step within
 *    the budget is left as it is unless another is faster.
 *
 * A budget that no point meets changes nothing: the error names the least that was reached, its
 * price, and the tensors that pin it.
 *
 * Exact as long as `allow` is exact; else the report says how exact the passes were whose offers
 * were taken.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "passes/common.h"
#include "passes/budget/fit.h"
#include "onnx/words/amount.h"

/* ---- variants ---- */

/* The offers that a variant takes, and in how many parts it computes the batch, and the sequence. */
static const struct recipe {
    int parts, tokens;
    double most_copies; /* what an offer may cost: so many copies of the bytes that it saves */
    double most_error;  /* of the gradient; of the bound that `error` gives where that is less */
} recipes[] = {
    {1, 1, -INFINITY, 0},
    {1, 1, 1, 0},
    {1, 1, INFINITY, 0},
    {1, 1, INFINITY, 0.01},
    {1, 1, INFINITY, INFINITY},
    {2, 1, INFINITY, INFINITY},
    {4, 1, INFINITY, INFINITY},
    {8, 1, INFINITY, INFINITY},
    {1, 8, 1, 0},
};

static const char *decide(void *context, const ebb_pass *pass, ebb_node site,
                          const ebb_offer *offer)
{
    wish *w = context;
    (void)site;
    w->heard++;
    if (!(offer->error <= w->most_error))
        return "its error is above what the plan allows";
    if (offer->saved_bytes <= 0 ||
        offer->added_ns > w->most_ns_per_byte * (double)offer->saved_bytes)
        return "the plan does without it";
    w->taken++;
    w->exactness = pass->exactness > w->exactness ? pass->exactness : w->exactness;
    return NULL;
}

static ebb_status run_named(joint *j, ebb_graph *g, const char *pass, const char *option,
                            const char *value, ebb_report *report)
{
    const struct ebb_option_value options[] = {{option, value}, {NULL, NULL}};
    return ebb_pipeline_one(g, ebb_pass_find(pass), options, NULL, NULL, j->e->scratch, report);
}

/* Makes g as the wish says: the batch in parts, then every pass that makes offers, then the sequence in parts, whose
 * pass leaves whole what it does not know. *made: false where these cannot be divided so. */
static ebb_status take_offers(joint *j, ebb_graph *g, wish *w, bool *made)
{
    ebb_report report;
    char parts[16];
    (void)snprintf(parts, sizeof parts, "%d", w->tokens > 1 ? w->tokens : w->parts);
    w->exactness = w->parts > 1 || w->tokens > 1 ? EBB_ROUNDING : EBB_EXACT;
    *made = true;
    if (w->parts > 1) {
        EBB_TRY(run_named(j, g, "micro-batch", "parts", parts, &report));
        *made = report.applied > 0;
    }
    const ebb_pass *pass;
    for (int i = 1; *made && (pass = ebb_pass_offering(i)) != NULL; i++)
        if (pass->exactness <= j->allowed)
            EBB_TRY(ebb_pipeline_one(g, pass, NULL, decide, w, j->e->scratch, &report));
    if (*made && w->tokens > 1) {
        EBB_TRY(run_named(j, g, "stream-bp", "parts", parts, &report));
        *made = report.applied > 0;
    }
    EBB_TRY(run_named(j, g, "drop-saves", NULL, NULL, &report));
    return j->costs == NULL ? NULL : run_named(j, g, "cost", "file", j->costs, &report);
}

static bool is_new(const joint *j, const variant *v)
{
    for (const variant *other = j->variants; other != v; other++)
        if (other->wish.taken == v->wish.taken && other->wish.parts == v->wish.parts &&
            other->wish.tokens == v->wish.tokens)
            return false; // the same decisions, the same graph
    return true;
}

static ebb_status make_variant(joint *j, const struct recipe *r)
{
    variant *v = &j->variants[j->variant_count];
    bool made;
    *v = (variant){.wish = {.parts = r->parts,
                            .tokens = r->tokens,
                            .most_ns_per_byte = r->most_copies * ebb_copy_ns(j->e->g),
                            .most_error = fmin(r->most_error, j->most_error)}};
    EBB_TRY(ebb_model_copy(&v->model, j->e->g->model));
    ebb_status status = take_offers(j, v->model->graph, &v->wish, &made);
    if (status != NULL || !made || !is_new(j, v)) {
        ebb_model_free(v->model);
        return status;
    }
    j->variant_count++;
    return ebb_trial_weigh(&v->trial, j->e->scratch, v->model->graph, j->backend);
}

/* ---- choices ---- */

static int cheapest_first(const void *a, const void *b)
{
    const choice *x = a, *y = b;
    if (x->point->cost_ns != y->point->cost_ns)
        return x->point->cost_ns < y->point->cost_ns ? -1 : 1;
    return (x->point->peak_bytes > y->point->peak_bytes) -
           (x->point->peak_bytes < y->point->peak_bytes);
}

static ebb_status add_choice(joint *j, const choice *c)
{
    EBB_GOT(ebb_arena_grow(j->e->scratch, &j->choices, j->choice_count, &j->choice_capacity,
                           sizeof *j->choices));
    j->choices[j->choice_count++] = *c;
    return NULL;
}

static ebb_status add_point(joint *j, variant *v, const ebb_remat_point *point)
{
    uint64_t spare = v->trial.source.spare_bytes, peak = point->peak_bytes;
    return add_choice(
        j, &(choice){.v = v, .point = point, .bytes = peak - (spare < peak ? spare : peak)});
}

static ebb_status add_frontier(joint *j, variant *v, const ebb_remat_frontier *f)
{
    for (size_t k = 0; k < f->count; k++)
        EBB_TRY(add_point(j, v, &f->points[k]));
    return NULL;
}

/* Before all others that are no cheaper: sums of the same times in another order differ a little. */
static ebb_status add_as_it_is(joint *j)
{
    ebb_remat_weight weight;
    ebb_remat_schedule list;
    const ebb_remat_problem *p = &j->before.source.problem;
    EBB_TRY(ebb_remat_keep_all(&list, p, j->e->scratch));
    EBB_TRY(ebb_remat_weigh(&weight, NULL, p, &list, j->e->scratch));
    j->as_it_is = (ebb_remat_point){weight.peak_bytes, weight.cost_ns * (1 - 1e-9), list};
    return add_choice(j, &(choice){.point = &j->as_it_is, .tried = true, .bytes = j->before.bytes});
}

/* What planning a variant may take: an equal share; one in parts of the sequence takes nothing from the others. */
static uint64_t steps_of(const joint *j, const variant *v)
{
    size_t sharing = j->variant_count;
    for (size_t i = 0; i < j->variant_count; i++)
        sharing -= j->variants[i].wish.tokens > 1 && sharing > 1;
    return j->steps / sharing / (v->wish.parts > 1 || v->wish.tokens > 1 ? 2 : 1);
}

/* The variant as it is, as a point. */
static ebb_status add_whole(joint *j, variant *v)
{
    ebb_remat_schedule order;
    ebb_remat_weight weight;
    const ebb_remat_problem *p = &v->trial.source.problem;
    EBB_TRY(ebb_remat_order(&order, p, steps_of(j, v) / 8, j->e->scratch));
    EBB_TRY(ebb_remat_prune(&order, p, &order, j->e->scratch));
    EBB_TRY(ebb_remat_weigh(&weight, NULL, p, &order, j->e->scratch));
    v->whole = (ebb_remat_point){weight.peak_bytes, weight.cost_ns, order};
    return add_point(j, v, &v->whole);
}

static ebb_status make_variants(joint *j)
{
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        if ((recipes[i].parts == 1 && recipes[i].tokens == 1) || j->allowed >= EBB_ROUNDING)
            EBB_TRY(make_variant(j, &recipes[i]));
    for (size_t i = 0; i < j->variant_count; i++)
        EBB_TRY(add_whole(j, &j->variants[i]));
    return add_as_it_is(j);
}

static ebb_status search(joint *j, variant *v)
{
    const ebb_remat_problem *p = &v->trial.source.problem;
    v->searched = true;
    EBB_TRY(ebb_remat_frontier_find(&v->frontier, p, steps_of(j, v), j->e->scratch));
    EBB_TRY(ebb_remat_exact_frontier(&v->optima, &v->proven, p, j->steps, j->e->scratch));
    EBB_TRY(add_frontier(j, v, &v->frontier));
    return add_frontier(j, v, &v->optima);
}

static ebb_status try_choice(const joint *j, choice *c)
{
    if (c->tried)
        return NULL;
    c->tried = true;
    return ebb_trial_schedule(&c->bytes, &c->ns, &c->v->trial, c->v->model->graph,
                              &c->point->schedule, j->backend);
}

/* The cheapest that keeps to the budget, as far as it is known. */
static choice *next_choice(const joint *j, uint64_t budget)
{
    choice *best = NULL;
    for (choice *c = j->choices; c != j->choices + j->choice_count; c++)
        if (c->bytes <= budget && (best == NULL || cheapest_first(c, best) < 0))
            best = c;
    return best;
}

/* The cheapest that has not been searched. */
static variant *next_variant(joint *j)
{
    variant *best = NULL;
    for (variant *v = j->variants; v != j->variants + j->variant_count; v++)
        if (!v->searched && (best == NULL || v->whole.cost_ns < best->whole.cost_ns))
            best = v;
    return best;
}

/* The cheapest point whose arena keeps to the budget; NULL: none does, and all are searched. */
static ebb_status choose(joint *j, uint64_t budget, choice **chosen)
{
    for (;;) {
        choice *c = *chosen = next_choice(j, budget);
        variant *v = next_variant(j);
        if (v != NULL && (c == NULL || v->whole.cost_ns < c->point->cost_ns * (1 - 1e-12)))
            EBB_TRY(search(j, v));
        else if (c == NULL || c->tried)
            return NULL;
        else
            EBB_TRY(try_choice(j, c));
    }
}

/* The smallest arena among the lowest points of each variant; NULL: there are none. */
static ebb_status find_lowest(joint *j, choice **lowest)
{
    choice *least = NULL;
    qsort(j->choices, j->choice_count, sizeof *j->choices, cheapest_first);
    for (size_t i = 0; i < j->variant_count; i++) { // the lowest points of each variant
        size_t tried = 0;
        for (size_t k = j->choice_count; k-- > 0 && tried < 3;) {
            choice *c = &j->choices[k];
            if (c->v != &j->variants[i])
                continue;
            tried++;
            EBB_TRY(try_choice(j, c));
            if (least == NULL || c->bytes < least->bytes)
                least = c;
        }
    }
    *lowest = least;
    return NULL;
}

double ebb_fit_slower(const joint *j, double ns)
{
    return j->before.estimate.ns > 0 ? ns / j->before.estimate.ns : 1;
}

/* ---- the change ---- */

/* How far above what no plan of these variants can undercut: each runs its operators once. */
static double gap_to_bound(const joint *j, const choice *c)
{
    double bound = INFINITY;
    const ebb_remat_frontier *optima = &c->v->optima;
    if (j->variant_count == 1 && c->point >= optima->points &&
        c->point < optima->points + optima->count)
        return 0;
    for (size_t i = 0; i < j->variant_count; i++) {
        const ebb_remat_problem *p = &j->variants[i].trial.source.problem;
        double once = 0;
        for (uint32_t u = 0; u < p->op_count; u++)
            once += p->ops[u].cost_ns;
        bound = once < bound ? once : bound;
    }
    return bound > 0 && c->point->cost_ns > bound ? c->point->cost_ns / bound - 1 : 0;
}

static ebb_status apply(joint *j, const choice *c)
{
    ebb_edit *e = j->e;
    const wish *w = &c->v->wish;
    size_t copies;
    ebb_model_adopt(e->g->model, c->v->model);
    c->v->model = NULL;
    EBB_TRY(ebb_remat_apply(e, &c->v->trial.source, &c->point->schedule, &copies));
    e->report->exactness = w->exactness;
    for (size_t i = 0; i < copies + w->taken; i++) {
        ebb_found(e);
        ebb_applied(e);
    }
    if (w->parts > 1)
        EBB_TRY(ebb_note(e, "the batch is computed in %d parts", w->parts));
    if (w->tokens > 1)
        EBB_TRY(ebb_note(e, "the sequence is computed in %d parts", w->tokens));
    return ebb_note(e,
                    "%s -> %s, estimated time %.3f times (at most %.1f %% above the best "
                    "plan): %zu nodes run again, %zu of %zu offers taken",
                    ebb_bytes(j->before.bytes).text, ebb_bytes(c->bytes).text,
                    ebb_fit_slower(j, c->ns), 100 * gap_to_bound(j, c), copies, w->taken, w->heard);
}

static ebb_status apply_away(joint *j, ebb_fit_away *away)
{
    variant *v = away->chosen->v;
    const wish *w = &v->wish;
    ebb_model_adopt(j->e->g->model, v->model);
    v->model = NULL;
    j->e->report->exactness = w->exactness;
    for (size_t i = 0; i < away->copies + w->taken; i++) {
        ebb_found(j->e);
        ebb_applied(j->e);
    }
    return ebb_note(j->e,
                    "%s -> %s, estimated time %.3f times: %zu nodes run again, %zu of %zu offers "
                    "taken, %s",
                    ebb_bytes(j->before.bytes).text, ebb_bytes(away->bytes).text,
                    ebb_fit_slower(j, away->ns), away->copies, w->taken, w->heard, away->note);
}

static ebb_status plan_and_apply(joint *j, uint64_t budget)
{
    choice *chosen;
    ebb_fit_away away;
    EBB_TRY(make_variants(j));
    EBB_TRY(choose(j, budget, &chosen));
    EBB_TRY(ebb_fit_move(j, budget, chosen, &away));
    if (away.chosen != NULL)
        return apply_away(j, &away);
    if (chosen == NULL) {
        EBB_TRY(find_lowest(j, &chosen));
        return ebb_fit_refuse(j, budget, chosen, &away);
    }
    if (chosen->v == NULL)
        return ebb_note(j->e, "nothing to do: the step takes %s, within the budget of %s",
                        ebb_bytes(j->before.bytes).text, ebb_bytes(budget).text);
    return apply(j, chosen);
}

static ebb_status run(ebb_edit *e)
{
    joint j = {.e = e,
               .backend = ebb_option_string(e, "backend"),
               .costs = ebb_option_string(e, "costs"),
               .most_error = ebb_option_float(e, "error"),
               .steps = (uint64_t)(fmax(0.01, ebb_option_float(e, "time")) * 1e6)};
    const char *allow = ebb_option_string(e, "allow");
    j.allowed = strcmp(allow, "lossy") == 0      ? EBB_LOSSY
                : strcmp(allow, "rounding") == 0 ? EBB_ROUNDING
                                                 : EBB_EXACT;
    uint64_t budget;
    EBB_TRY(ebb_trial_weigh(&j.before, e->scratch, e->g, j.backend));
    EBB_TRY(ebb_option_bytes(e, "budget", j.before.bytes, &budget));
    if (budget == 0)
        return ebb_hint(ebb_error(EBB_USAGE, "pass fit needs a budget of more than zero bytes"),
                        "say budget=6GiB or budget=80%%");
    e->report->holds = true; // or the run fails
    EBB_TRY(ebb_remember_budget(e, budget, j.before.estimate.threads));
    ebb_status status = plan_and_apply(&j, budget);
    for (size_t i = 0; i < j.variant_count; i++)
        ebb_model_free(j.variants[i].model);
    return status;
}

static const ebb_option options[] = {
    {"budget", EBB_OPTION_BYTES, NULL, NULL, "bytes that the step may take: 6GiB, 512MB, 80%"},
    {"disk", EBB_OPTION_BYTES, NULL, NULL,
     "bytes that may wait on disk, where that is faster than to make them again: 20GiB"},
    {"host", EBB_OPTION_BYTES, NULL, NULL, "the same, in the host's memory, of a step on a GPU"},
    {"allow", EBB_OPTION_CHOICE, "exact", "exact|rounding|lossy",
     "how exact the passes must be whose offers are taken"},
    {"error", EBB_OPTION_FLOAT, "0.2", "[0, inf)",
     "allow=lossy: the largest error that an offer may state, relative to the gradient"},
    {"costs", EBB_OPTION_STRING, NULL, NULL,
     "measured times (`ebb bench --calibrate`), for what offers add"},
    {"time", EBB_OPTION_FLOAT, "10", "seconds (0, 1e6]",
     "work to spend on planning, in seconds of one core"},
    {"backend", EBB_OPTION_STRING, "cpu", NULL,
     "whose kernels' scratch counts: cpu, plain, cuda, cuda:h100"},
    {NULL, EBB_OPTION_INT, NULL, NULL, NULL},
};

const ebb_pass ebb_pass_fit = {
    .name = "fit",
    .doc = "keep the step within a budget of bytes, at the least time",
    .exactness = EBB_EXACT,
    .options = options,
    .run = run,
};
