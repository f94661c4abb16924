/* recompute: drop stored values and make them again, as a planner of your choice decides.
 *
 *   before   a = F(x)  b = G(a)  ...  db = G'(a)          a waits from the forward to its backward
 *   after    a = F(x)  b = G(a)  ...  a' = F(x)  db = G'(a')
 *
 * Some planners put values on disk, too, and fetch them back: Store, Fetch and Wait as of pass
 * offload, at the places of a published schedule.
 *
 * The planner sees numbers alone (planners/planner.h). What it returns is put into the list,
 * weighed as the executor would, and taken only if the arena keeps to the budget; where packing
 * needs more than the peak, the planner is asked again with less. A budget that cannot be met
 * changes nothing.
 *
 * Exact: copies run the same kernels on the same bytes; our dropout draws the same bits, and what
 * draws otherwise or updates a state is never repeated, nor is a loop that holds such a node.
 *
 * `fit` is this with the best of all planners and the offers of other passes.
 */

#include "passes/common.h"
#include "passes/budget/trial.h"
#include "onnx/words/amount.h"

enum { TRIES = 8 };
static const uint64_t work = 3u * 1000 * 1000; // a few seconds; `fit` spends more

static ebb_status unknown_planner(const char *name)
{
    size_t count;
    const ebb_planner *const *list = ebb_planners(&count);
    const char *names[32];
    for (size_t i = 0; i < count && i < 32; i++)
        names[i] = list[i]->name;
    const char *near = ebb_nearest(name, names, count < 32 ? count : 32);
    ebb_status status = ebb_error(EBB_USAGE, "there is no planner '%s'", name);
    return near != NULL ? ebb_hint(status, "did you mean '%s'?", near) : status;
}

static ebb_status does_not_fit(const ebb_planner *planner, uint64_t budget, uint64_t reached,
                               double slower)
{
    return ebb_hint(ebb_error(EBB_NO_PLAN,
                              "planner %s finds no plan within %s: the least that it "
                              "reaches is %s, at %.2f times the step time",
                              planner->name, ebb_bytes(budget).text, ebb_bytes(reached).text,
                              slower),
                    "give a budget of at least %llu (%s), or let `fit` choose",
                    (unsigned long long)reached, ebb_bytes(reached).text);
}

static ebb_status apply(ebb_edit *e, const ebb_trial *before, const ebb_remat_schedule *schedule,
                        uint64_t bytes, double ns)
{
    size_t copies;
    EBB_TRY(ebb_remat_apply(e, &before->source, schedule, &copies));
    for (size_t i = 0; i < copies; i++) {
        ebb_found(e);
        ebb_applied(e);
    }
    return ebb_note(e, "%zu nodes run again; %s -> %s, estimated time %.3f times", copies,
                    ebb_bytes(before->bytes).text, ebb_bytes(bytes).text,
                    before->estimate.ns > 0 ? ns / before->estimate.ns : 1.0);
}

static ebb_status run(ebb_edit *e)
{
    const char *name = ebb_option_string(e, "planner"), *backend = ebb_option_string(e, "backend");
    const ebb_planner *planner = ebb_planner_find(name);
    ebb_trial before;
    uint64_t budget;
    if (planner == NULL)
        return unknown_planner(name);
    EBB_TRY(ebb_trial_weigh(&before, e->scratch, e->g, backend));
    EBB_TRY(ebb_option_bytes(e, "budget", before.bytes, &budget));
    if (budget == 0)
        return ebb_hint(
            ebb_error(EBB_USAGE, "pass recompute needs a budget of more than zero bytes"),
            "say budget=6GiB or budget=80%%");
    e->report->holds = true; // or the run fails
    EBB_TRY(ebb_remember_budget(e, budget, before.estimate.threads));
    if (budget >= before.bytes)
        return ebb_note(e, "nothing to do: the step takes %s, within the budget of %s",
                        ebb_bytes(before.bytes).text, ebb_bytes(budget).text);
    uint64_t aim = budget, least = before.bytes;
    double slower = 1;
    for (int i = 0; i < TRIES; i++) {
        ebb_remat_schedule schedule;
        ebb_remat_weight weight;
        uint64_t bytes;
        double ns;
        EBB_TRY(
            ebb_planner_plan(planner, &schedule, &before.source.problem, aim, work, e->scratch));
        EBB_TRY(ebb_remat_weigh(&weight, NULL, &before.source.problem, &schedule, e->scratch));
        EBB_TRY(ebb_trial_schedule(&bytes, &ns, &before, e->g, &schedule, backend));
        if (bytes <= budget)
            return apply(e, &before, &schedule, bytes, ns);
        if (bytes < least) {
            least = bytes;
            slower = before.estimate.ns > 0 ? ns / before.estimate.ns : 1;
        }
        if (weight.peak_bytes > aim) // the planner is at its end
            break;
        uint64_t less = bytes - budget;
        if (less >= aim)
            break;
        aim -= less;
    }
    return does_not_fit(planner, budget, least, slower);
}

static const ebb_option options[] = {
    {"planner", EBB_OPTION_STRING, "search", NULL,
     "which planner decides: search, sqrt, uniform, chain-dp, chain-linear, revolve, join, rotor, "
     "dtr, lower-set, ilp; with values on disk, too: disk-revolve, periodic-disk-revolve, "
     "hrevolve, "
     "multistage, double-checkpoint, pofo"},
    {"budget", EBB_OPTION_BYTES, NULL, NULL, "bytes that the step may take: 6GiB, 512MB, 80%"},
    {"backend", EBB_OPTION_STRING, "cpu", NULL,
     "whose kernels' scratch counts: cpu, plain, cuda, cuda:h100"},
    {NULL, EBB_OPTION_INT, NULL, NULL, NULL},
};

const ebb_pass ebb_pass_recompute = {
    .name = "recompute",
    .doc = "drop stored values and run their nodes again, to keep to a budget",
    .paper = "Chen et al., \"Training deep nets with sublinear memory cost\", 2016",
    .exactness = EBB_EXACT,
    .options = options,
    .run = run,
};
