/* cost: writes on every node the time that it was measured to take, for planners and `ebb plan`.
 *
 *   before   y = Conv(x, w)
 *   after    y = Conv(x, w)      # ebb.cost_ns = 1834520
 *
 * What moves to disk and back take it writes on the model (exec/weigh/move_time.h), and how its processes reach each
 * other, where nobody said so (exec/weigh/link.h): then they are this machine's, and a node takes as long as it does beside
 * the others' where that was measured of so many.
 *
 * The file is what `ebb bench --calibrate` wrote. A node whose signature (operator, operand types,
 * attributes) was measured gets that time, another of a family that was measured a time by the
 * family's rates; for the rest ebb_node_ns goes on to estimate from operations and bytes.
 *
 * Exact: only metadata changes. What is there is overwritten, since a pass may have changed what
 * the node computes; passes that come later add nodes without it, so run it again at the end.
 *
 * Declines where the file knows neither signature nor family.
 */
#include "passes/common.h"

#include <stdio.h>

#include "exec/weigh/costs.h"
#include "exec/weigh/estimate.h"
#include "onnx/words/print.h"

static const ebb_option options[] = {
    {"file", EBB_OPTION_STRING, NULL, NULL, "what `ebb bench --calibrate -o FILE` wrote"},
    {0},
};

static ebb_status stamp(ebb_edit *e, ebb_node n, double ns)
{
    char text[32];
    ebb_props *props = &ebb_node_of(e->g, n)->props;
    const char *known = ebb_props_get(e->g, props, "ebb.cost_ns");
    (void)ebb_snprintf(text, sizeof text, "%.0f", ns);
    if (known != NULL && strcmp(known, text) == 0)
        return NULL;
    ebb_found(e);
    ebb_applied(e);
    return ebb_props_set(e->g, props, "ebb.cost_ns", text);
}

static ebb_status describe(ebb_edit *e, const ebb_costs *costs, const size_t *from)
{
    char here[128];
    EBB_TRY(ebb_note(e, "nodes: %zu as measured, %zu by the rates of their operator, %zu estimated",
                     from[EBB_COST_MEASURED], from[EBB_COST_RATE], from[EBB_COST_UNKNOWN]));
    if (strcmp(costs->processor, ebb_processor_name(here)) == 0)
        return ebb_note(e, "measured with %d threads, back end %s", costs->threads, costs->backend);
    return ebb_note(e, "measured on another machine: %s with %d threads, back end %s; this is %s",
                    costs->processor, costs->threads, costs->backend, here);
}

/* *crowd: by how many times what is computed takes longer than alone. */
static ebb_status take_link(double *crowd, ebb_edit *e, const ebb_costs *costs)
{
    const int64_t ranks = ebb_traffic_of(e->g).ranks;
    ebb_link link = costs->link, known = {0};
    *crowd = 1;
    if (!costs->linked || ranks < 2 || (ebb_link_of(&known, e->g) && known.crowd == 0))
        return NULL;
    link.crowd = *crowd = ebb_costs_crowd(costs, ranks);
    EBB_TRY(ebb_link_set(e->g, &link));
    return *crowd == 1 ? NULL
                       : ebb_note(e, "beside %lld others each computes %.3g times as long",
                                  (long long)ranks - 1, *crowd);
}

static ebb_status stamp_all(ebb_edit *e, const ebb_costs *costs)
{
    size_t from[3] = {0};
    double crowd;
    EBB_TRY(take_link(&crowd, e, costs));
    EBB_EACH_NODE(e->g, n) {
        double ns = 0;
        if (ebb_op_moves(ebb_node_of(e->g, n)->op))
            continue; // by the model's rates
        ebb_cost_source source = ebb_costs_of(costs, e->g, n, &ns);
        from[source]++;
        if (source == EBB_COST_UNKNOWN)
            EBB_TRY(ebb_declined(e, n, "the file has no measurement of its operator"));
        else
            EBB_TRY(stamp(e, n, ns * crowd));
    }
    if (costs->moves) {
        char text[EBB_WAYS_BYTES];
        ebb_ways_print(text, costs->ways);
        EBB_TRY(ebb_props_set(e->g, &e->g->model->props, ebb_ways_key, text));
    }
    return describe(e, costs, from);
}

static ebb_status run(ebb_edit *e)
{
    const char *path = ebb_option_string(e, "file");
    if (path == NULL)
        return ebb_hint(ebb_error(EBB_USAGE, "pass cost: say which measurements: cost:file=FILE"),
                        "`ebb bench --calibrate -o costs.json` makes them");
    ebb_costs *costs = NULL;
    EBB_TRY(ebb_while(ebb_costs_read(&costs, path), "reading the costs of operators"));
    ebb_status status = stamp_all(e, costs);
    ebb_costs_free(costs);
    return status;
}

const ebb_pass ebb_pass_cost = {
    .name = "cost",
    .doc = "write on every node the time that a calibration file says it takes",
    .exactness = EBB_EXACT,
    .options = options,
    .run = run,
};
