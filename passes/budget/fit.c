/* fit: the joint planner. Keeps a step within a budget, at the least time it can find.
 *
 *   before   every value that the backward reads waits in the arena
 *   after    some wait, some are made again, some wait in a smaller form that another pass offers
 *
 * 1. Variants. Passes make offers (ebb_offered): here are so many bytes less, for so much time. The
 *    step as it is, the step with the offers that cost next to nothing, and the step with all of
 *    them, are variants; so is, where rounding is allowed, the step in parts of its batch, and,
 *    where loss is, the step with the offers of small error. `allow` and `error` say how exact an
 *    offer must be.
 * 2. Frontiers. A variant as it is, each operator once in the best order known, is the cheapest
 *    that it can be. Beyond that the search planner finds what each budget costs, in recomputation
 *    (planners/search.h), on the list as it stands and on a list in a better order.
 * 3. Choice. Of all points, the cheapest whose arena, tried on a copy as the executor would lay it
 *    out, keeps to the budget. The points do not depend on the budget: so a smaller one never gives
 *    a larger arena, and a larger one never a slower step. A variant that is dearer as it is than a
 *    choice that fits is never searched: that takes most of the time.
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
#include "passes/passes.h"
#include "passes/budget/planners/search.h"
#include "passes/budget/trial.h"

enum { VARIANTS = 8, PINNED = 4 };

typedef struct wish { /* how a variant is made */
    int parts;
    double most_ns_per_byte, most_error;
    size_t heard, taken;
    uint64_t saved_bytes;
    ebb_exactness exactness; /* of the least exact that was taken */
} wish;

typedef struct variant {
    wish wish;
    ebb_model *model;
    ebb_trial trial;
    ebb_remat_point whole; /* every operator once */
    bool searched;         /* its frontier is found, and among the choices */
    ebb_remat_frontier frontier;
    ebb_remat_point optimum; /* for the budget at hand, where the variant is small enough */
    bool proven;             /* and whether that was decided */
} variant;

typedef struct choice {
    const variant *v;
    const ebb_remat_point *point;
    bool tried;
    uint64_t bytes; /* of the arena, once tried */
    double ns;
} choice;

typedef struct joint {
    ebb_edit *e;
    const char *backend;
    ebb_exactness allowed;
    double most_error;
    const char *costs; /* measured times, for nodes that the offers make; NULL: none */
    uint64_t steps;
    variant variants[VARIANTS];
    size_t variant_count;
    choice *choices;
    size_t choice_count, choice_capacity;
} joint;

/* ---- variants ---- */

/* The offers that a variant takes, and in how many parts it computes the batch. */
static const struct recipe {
    int parts;
    double most_ns_per_byte;
    double most_error; /* of the gradient; of the bound that `error` gives where that is less */
} recipes[] = {
    {1, -INFINITY, 0},       {1, 0.2 /* copying a byte twice */, 0},
    {1, INFINITY, 0},        {1, INFINITY, 0.01},
    {1, INFINITY, INFINITY}, {2, INFINITY, INFINITY},
    {4, INFINITY, INFINITY}, {8, INFINITY, INFINITY},
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
    w->saved_bytes += (uint64_t)offer->saved_bytes;
    return NULL;
}

/* Makes g as the wish says: in parts, then every pass that makes offers. *fits: false where the
 * batch cannot be divided so. */
static ebb_status take_offers(joint *j, ebb_graph *g, wish *w, bool *made)
{
    size_t count;
    const ebb_pass *const *roll = ebb_passes(&count);
    ebb_report report;
    char parts[16];
    (void)snprintf(parts, sizeof parts, "%d", w->parts);
    const struct ebb_option_value in_parts[] = {{"parts", parts}, {NULL, NULL}};
    w->heard = w->taken = 0;
    w->saved_bytes = 0;
    w->exactness = w->parts > 1 ? EBB_ROUNDING : EBB_EXACT;
    *made = true;
    if (w->parts > 1) {
        EBB_TRY(ebb_pipeline_one(g, &ebb_pass_micro_batch, in_parts, NULL, NULL, j->e->scratch,
                                 &report));
        *made = report.applied > 0;
    }
    for (size_t i = 0; i < count && *made; i++)
        if (roll[i]->offers && roll[i]->exactness <= j->allowed)
            EBB_TRY(ebb_pipeline_one(g, roll[i], NULL, decide, w, j->e->scratch, &report));
    EBB_TRY(ebb_pipeline_one(g, &ebb_pass_drop_saves, NULL, NULL, NULL, j->e->scratch, &report));
    const struct ebb_option_value from[] = {{"file", j->costs}, {NULL, NULL}};
    if (j->costs == NULL)
        return NULL;
    return ebb_pipeline_one(g, &ebb_pass_cost, from, NULL, NULL, j->e->scratch, &report);
}

static bool is_new(const joint *j, const variant *v)
{
    for (const variant *other = j->variants; other != v; other++)
        if (other->wish.taken == v->wish.taken && other->wish.parts == v->wish.parts)
            return false; // the same decisions, the same graph
    return true;
}

static ebb_status make_variant(joint *j, const struct recipe *r)
{
    variant *v = &j->variants[j->variant_count];
    bool made;
    *v = (variant){.wish = {.parts = r->parts,
                            .most_ns_per_byte = r->most_ns_per_byte,
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

static ebb_status add_choice(joint *j, const variant *v, const ebb_remat_point *point)
{
    if (!ebb_arena_grow(j->e->scratch, &j->choices, j->choice_count, &j->choice_capacity,
                        sizeof *j->choices))
        return ebb_error_memory();
    j->choices[j->choice_count++] = (choice){.v = v, .point = point};
    return NULL;
}

/* What planning a variant may take. */
static uint64_t steps_of(const joint *j, const variant *v)
{
    return j->steps / j->variant_count / (v->wish.parts > 1 ? 2 : 1);
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
    return add_choice(j, v, &v->whole);
}

static ebb_status make_variants(joint *j)
{
    size_t count = sizeof recipes / sizeof *recipes;
    for (size_t i = 0; i < count; i++)
        if (recipes[i].parts == 1 || j->allowed >= EBB_ROUNDING)
            EBB_TRY(make_variant(j, &recipes[i]));
    for (size_t i = 0; i < j->variant_count; i++)
        EBB_TRY(add_whole(j, &j->variants[i]));
    return NULL;
}

/* Where a variant is small, the very optimum for this budget; and whether none exists. */
static ebb_status add_optimum(joint *j, variant *v, uint64_t budget)
{
    ebb_remat_schedule schedule;
    ebb_remat_weight weight;
    const ebb_remat_problem *p = &v->trial.source.problem;
    EBB_TRY(ebb_remat_exact(&schedule, &v->proven, p, budget, j->steps, j->e->scratch));
    if (schedule.ops == NULL)
        return NULL;
    EBB_TRY(ebb_remat_weigh(&weight, NULL, p, &schedule, j->e->scratch));
    v->optimum = (ebb_remat_point){weight.peak_bytes, weight.cost_ns, schedule};
    return add_choice(j, v, &v->optimum);
}

static ebb_status search(joint *j, variant *v, uint64_t budget)
{
    v->searched = true;
    EBB_TRY(ebb_remat_frontier_find(&v->frontier, &v->trial.source.problem, steps_of(j, v),
                                    j->e->scratch));
    for (size_t k = 0; k < v->frontier.count; k++)
        EBB_TRY(add_choice(j, v, &v->frontier.points[k]));
    return add_optimum(j, v, budget);
}

static ebb_status try_choice(const joint *j, choice *c)
{
    if (c->tried)
        return NULL;
    c->tried = true;
    return ebb_trial_schedule(&c->bytes, &c->ns, &c->v->trial, c->v->model->graph,
                              &c->point->schedule, j->backend);
}

/* The cheapest that may keep to the budget and has not been tried. */
static choice *next_choice(const joint *j, uint64_t budget)
{
    choice *best = NULL;
    for (choice *c = j->choices; c != j->choices + j->choice_count; c++)
        if (!c->tried && c->point->peak_bytes <= budget &&
            (best == NULL || cheapest_first(c, best) < 0))
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
    *chosen = NULL;
    while (*chosen == NULL) {
        choice *c = next_choice(j, budget);
        variant *v = next_variant(j);
        if (c == NULL && v == NULL)
            return NULL;
        if (c == NULL || (v != NULL && v->whole.cost_ns < c->point->cost_ns * (1 - 1e-12))) {
            EBB_TRY(search(j, v, budget));
            continue;
        }
        EBB_TRY(try_choice(j, c));
        if (c->bytes <= budget)
            *chosen = c;
    }
    return NULL;
}

/* The smallest arena among the lowest points of each variant; NULL: there are none. What is alive
 * in the numbers can be more than the arena takes, so this may keep to a budget below its peak. */
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

/* ---- a budget that cannot be met ---- */

/* The largest tensors alive where the lowest schedule is fullest, as text. */
static const char *what_pins(joint *j, const choice *c)
{
    const ebb_remat_problem *p = &c->v->trial.source.problem;
    const ebb_remat_schedule *s = &c->point->schedule;
    ebb_arena *scratch = j->e->scratch;
    ebb_remat_weight w;
    if (ebb_remat_weigh(&w, NULL, p, s, scratch) != NULL || s->count == 0)
        return "";
    const ebb_remat_op *op = &p->ops[s->ops[w.peak_at]];
    const char *text = ebb_arena_printf(
        scratch, "; it is fullest at %s",
        ebb_node_label(c->v->model->graph, c->v->trial.source.node[s->ops[w.peak_at]]));
    for (int pass = 0; pass < 2; pass++) { // inputs, then outputs, of the operator there
        const uint32_t *list = pass == 0 ? op->in : op->out;
        uint32_t count = pass == 0 ? op->in_count : op->out_count;
        for (uint32_t k = 0; k < count && k < PINNED && text != NULL; k++)
            text = ebb_arena_printf(
                scratch, "%s%s'%s' (%llu)", text, pass == 0 && k == 0 ? ", with " : ", ",
                ebb_value_name(c->v->model->graph, c->v->trial.source.value[list[k]]),
                (unsigned long long)p->values[list[k]].bytes);
    }
    return text != NULL ? text : "";
}

/* The least budget for which there is a schedule, by bisection between what cannot be and `high`,
 * which can; *proven: every answer on the way was decided. */
static ebb_status find_least(joint *j, const variant *v, uint64_t *high, bool *proven)
{
    uint64_t low = ebb_remat_floor(&v->trial.source.problem);
    *proven = true;
    while (low < *high && *proven) {
        ebb_remat_schedule schedule;
        ebb_remat_weight weight;
        uint64_t middle = low + (*high - low) / 2;
        EBB_TRY(ebb_remat_exact(&schedule, proven, &v->trial.source.problem, middle, j->steps,
                                j->e->scratch));
        if (schedule.ops == NULL) {
            low = middle + 1;
            continue;
        }
        EBB_TRY(ebb_remat_weigh(&weight, NULL, &v->trial.source.problem, &schedule, j->e->scratch));
        *high = weight.peak_bytes;
    }
    return NULL;
}

static ebb_status refuse(joint *j, const ebb_trial *before, uint64_t budget, const choice *least)
{
    if (least == NULL)
        return ebb_error(EBB_NO_PLAN, "nothing in this step can be made smaller");
    uint64_t floor = UINT64_MAX;
    for (size_t i = 0; i < j->variant_count; i++) {
        uint64_t f = ebb_remat_floor(&j->variants[i].trial.source.problem);
        floor = f < floor ? f : floor;
    }
    uint64_t true_least = least->bytes;
    bool proven = least->v->proven && j->variant_count == 1 && !before->estimate.runs;
    if (proven)
        EBB_TRY(find_least(j, least->v, &true_least, &proven));
    if (proven)
        return ebb_hint(
            ebb_error(EBB_NO_PLAN,
                      "no plan keeps to %llu bytes, and none exists: the least that any "
                      "order and any recomputation can reach is %llu bytes%s",
                      (unsigned long long)budget, (unsigned long long)true_least,
                      what_pins(j, least)),
            "give a budget of at least %llu", (unsigned long long)true_least);
    double slower = before->estimate.ns > 0 ? least->ns / before->estimate.ns : 1;
    return ebb_hint(
        ebb_error(EBB_NO_PLAN,
                  "no plan keeps to %llu bytes: the least reached is %llu bytes, at %.2f times the "
                  "step time%s; no plan at all can be below %llu",
                  (unsigned long long)budget, (unsigned long long)least->bytes, slower,
                  what_pins(j, least), (unsigned long long)floor),
        "give a budget of at least %llu%s", (unsigned long long)least->bytes,
        j->allowed == EBB_EXACT ? ", or allow=rounding" : "");
}

/* ---- the change ---- */

/* How far above what no plan of these variants can undercut: each runs its operators once. */
static double gap_to_bound(const joint *j, const choice *c)
{
    double bound = INFINITY;
    if (c->point == &c->v->optimum && c->v->proven && j->variant_count == 1)
        return 0;
    for (size_t i = 0; i < j->variant_count; i++) {
        const ebb_remat_problem *p = &j->variants[i].trial.source.problem;
        double once = 0;
        for (uint32_t u = 0; u < p->op_count; u++)
            once += p->ops[u].cost_ns;
        bound = once < bound ? once : bound;
    }
    return bound > 0 ? c->point->cost_ns / bound - 1 : 0;
}

static ebb_status apply(joint *j, const choice *c, const ebb_trial *before)
{
    ebb_edit *e = j->e;
    wish w = c->v->wish;
    ebb_trial now;
    size_t copies;
    bool made;
    EBB_TRY(take_offers(j, e->g, &w, &made));
    EBB_TRY(ebb_trial_weigh(&now, e->scratch, e->g, j->backend));
    if (now.source.problem.op_count != c->v->trial.source.problem.op_count)
        return ebb_error(EBB_VERIFY, "the offers taken on the graph are not those on its copy");
    EBB_TRY(ebb_remat_apply(e, &now.source, &c->point->schedule, &copies));
    e->report->exactness = w.exactness;
    for (size_t i = 0; i < copies + w.taken; i++) {
        ebb_found(e);
        ebb_applied(e);
    }
    if (w.parts > 1)
        EBB_TRY(ebb_note(e, "the batch is computed in %d parts", w.parts));
    EBB_TRY(
        ebb_note(e,
                 "%llu -> %llu bytes, estimated time %.3f times (at most %.1f %% above the best "
                 "plan): %zu nodes run again, %zu of %zu offers taken",
                 (unsigned long long)before->bytes, (unsigned long long)c->bytes,
                 before->estimate.ns > 0 ? c->ns / before->estimate.ns : 1.0,
                 100 * gap_to_bound(j, c), copies, w.taken, w.heard));
    return NULL;
}

static void release(joint *j)
{
    for (size_t i = 0; i < j->variant_count; i++)
        ebb_model_free(j->variants[i].model);
}

static ebb_status plan_and_apply(joint *j, const ebb_trial *before, uint64_t budget)
{
    choice *chosen;
    EBB_TRY(make_variants(j));
    EBB_TRY(choose(j, budget, &chosen));
    if (chosen == NULL) {
        EBB_TRY(find_lowest(j, &chosen));
        if (chosen == NULL || chosen->bytes > budget)
            return refuse(j, before, budget, chosen);
    }
    return apply(j, chosen, before);
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
    ebb_trial before;
    uint64_t budget;
    EBB_TRY(ebb_trial_weigh(&before, e->scratch, e->g, j.backend));
    EBB_TRY(ebb_option_bytes(e, "budget", before.bytes, &budget));
    if (budget == 0)
        return ebb_hint(ebb_error(EBB_USAGE, "pass fit needs a budget of more than zero bytes"),
                        "say budget=6GiB or budget=80%%");
    e->report->holds = true; // or the run fails
    EBB_TRY(ebb_remember_budget(e, budget, before.estimate.threads));
    if (budget >= before.bytes)
        return ebb_note(e, "nothing to do: the step takes %llu bytes, within the budget of %llu",
                        (unsigned long long)before.bytes, (unsigned long long)budget);
    ebb_status status = plan_and_apply(&j, &before, budget);
    release(&j);
    return status;
}

static const ebb_option options[] = {
    {"budget", EBB_OPTION_BYTES, NULL, NULL, "bytes that the step may take: 6GiB, 512MB, 80%"},
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
