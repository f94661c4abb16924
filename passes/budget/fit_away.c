/* fit_away.c: values that wait in another place, beside values that are made again.
 *
 * What a budget takes beyond a point of a frontier is moved by pass offload, on a copy. A point that makes
 * less again has more to move: of several, spread over the frontiers, the fastest is taken. */
#include <stdio.h>
#include <stdlib.h>

#include "passes/budget/fit.h"
#include "passes/common.h"

enum { TRIED = 12 };

/* The model of the point, what is too much moved to `place`. EBB_NO_PLAN where it cannot be. Budget 0: all
 * that can be moved is. */
static ebb_status move(joint *j, ebb_model *m, const choice *c, const char *place, const char *room,
                       uint64_t budget, ebb_fit_away *made)
{
    static const ebb_pass nobody = {.name = "fit"};
    ebb_arena *scratch = j->e->scratch;
    ebb_report report = {.pass = nobody.name};
    ebb_edit e = {
        .g = m->graph, .pass = &nobody, .scratch = scratch, .keep = scratch, .report = &report};
    ebb_remat_source source;
    ebb_trial after;
    char bytes[32];
    (void)snprintf(bytes, sizeof bytes, "%llu", (unsigned long long)budget);
    const struct ebb_option_value options[] = {
        {"place", place},
        {"room", room},
        {"backend", j->backend},
        {budget > 0 ? "budget" : "values", budget > 0 ? bytes : "*"},
        {NULL, NULL}};
    EBB_TRY(ebb_remat_source_make(&source, scratch, m->graph, &c->v->trial.estimate));
    EBB_TRY(ebb_remat_apply(&e, &source, &c->point->schedule, &made->copies));
    (void)ebb_graph_sweep(m->graph);
    EBB_TRY(ebb_pipeline_one(m->graph, ebb_pass_find("offload"), options, NULL, NULL, scratch,
                             &report));
    EBB_TRY(ebb_trial_weigh(&after, scratch, m->graph, j->backend));
    made->bytes = after.bytes;
    made->ns = after.estimate.ns;
    made->note = report.note_count > 0 ? report.notes[0] : "";
    return NULL;
}

/* On a copy, which lives no longer than what it was made of. */
static ebb_status try_point(joint *j, const choice *c, const char *place, const char *room,
                            uint64_t budget, ebb_fit_away *best)
{
    ebb_fit_away made = {.chosen = c, .place = place, .room = room};
    ebb_model *copy = NULL;
    EBB_TRY(ebb_model_copy(&copy, c->v->model));
    ebb_status status = move(j, copy, c, place, room, budget, &made);
    ebb_model_free(copy);
    if (status != NULL)
        return ebb_status_code(status) != EBB_NO_PLAN ? status : NULL;
    if (budget == 0 && made.bytes < best->bytes)
        best->bytes = made.bytes;
    if (made.bytes <= budget && made.ns < best->ns)
        *best = made;
    return NULL;
}

ebb_status ebb_fit_move(joint *j, uint64_t budget, const choice *chosen, ebb_fit_away *best)
{
    static const char *const places[] = {"host", "disk"};
    size_t count = 0;
    *best = (ebb_fit_away){.bytes = UINT64_MAX, .ns = chosen != NULL ? chosen->ns : INFINITY};
    const choice **list =
        (const choice **)ebb_arena_zeroed(j->e->scratch, j->choice_count + 1, sizeof *list);
    if (list == NULL)
        return ebb_error_memory();
    for (size_t i = 0; i < j->choice_count; i++) {
        const choice *c = &j->choices[i];
        if (c->v != NULL && (chosen == NULL || c->point->cost_ns < chosen->point->cost_ns))
            list[count++] = c;
    }
    const size_t tried = count < TRIED ? count : TRIED;
    for (size_t p = 0; p < sizeof places / sizeof places[0]; p++) {
        const char *room = ebb_option_string(j->e, places[p]);
        const bool searches = room != NULL && chosen == NULL; // for the least, where nothing fits
        for (size_t k = 0; room != NULL && k < (searches ? 2 : 1) * tried; k++) {
            const size_t at =
                tried > 1 ? k % tried * (count - 1) / (tried - 1) : 0; // first, last, too
            if (k < tried || best->chosen == NULL)
                EBB_TRY(try_point(j, list[at], places[p], room, k < tried ? budget : 0, best));
        }
    }
    const ebb_fit_away b = *best;
    return b.chosen == NULL ? NULL
                            : move(j, b.chosen->v->model, b.chosen, b.place, b.room, budget, best);
}
