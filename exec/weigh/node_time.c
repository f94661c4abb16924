/* node_time.c: roofline or measured time of a node. */
#include "exec/weigh/node_time.h"

#include "exec/weigh/link.h"
#include "exec/weigh/traffic.h"
#include "kernels/kernels.h"
#include "onnx/graph/infer.h"
#include "onnx/graph/scan.h"
#include "onnx/words/print.h"

#include <math.h>
#include <stdlib.h>

static const ebb_rates *rates_of(const ebb_graph *g)
{
    return g->model->rates != NULL ? g->model->rates : ebb_device_host.rates();
}

/* A node takes the longer of its arithmetic and its traffic, and a fixed cost. An estimate to
 * compare plans by, not a promise. */
static double roofline(const ebb_rates *rates, double operations, double flops, double bytes)
{
    double arithmetic = flops / operations, traffic = bytes / rates->bytes;
    return (arithmetic > traffic ? arithmetic : traffic) + rates->node_ns;
}

double ebb_roofline_ns(const ebb_graph *g, double flops, double bytes)
{
    const ebb_rates *rates = rates_of(g);
    return roofline(rates, rates->operations, flops, bytes);
}

static double of_products(const ebb_rates *rates, ebb_dtype dtype)
{
    bool is_narrow = dtype == EBB_F16 || dtype == EBB_BF16;
    return is_narrow ? rates->products16 : rates->products32;
}

double ebb_product_ns(const ebb_graph *g, ebb_dtype dtype, double flops, double bytes)
{
    const ebb_rates *rates = rates_of(g);
    return roofline(rates, of_products(rates, dtype), flops, bytes);
}

double ebb_copy_ns(const ebb_graph *g)
{
    return 2 / rates_of(g)->bytes;
}

ebb_status ebb_estimate_for(ebb_model *model, const char *backend)
{
    const ebb_backend *const *backends;
    EBB_TRY(ebb_backends(backend, &backends));
    model->rates = backends[0]->device->rates();
    return NULL;
}

static double bytes_of(const ebb_graph *g, ebb_value v)
{
    size_t bytes = 0;
    if (v.i == 0 || !ebb_type_bytes(ebb_value_of(g, v)->type, &bytes))
        return 0;
    return (double)bytes;
}

/* Of its first operand, and of what is written over that, the bytes that it leaves alone. */
static double left_alone(const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *node = ebb_node_of(g, n);
    if (!ebb_op_has(node->op, EBB_PARTLY) || node->in_count == 0 || node->out_count == 0)
        return 0;
    const double whole = bytes_of(g, node->in[0]), made = bytes_of(g, node->out[0]);
    if (!ebb_op_may_alias(node->op, 0, 0))
        return fmax(0, whole - made);
    const double put = bytes_of(g, node->in[node->in_count - 1]);
    return ebb_node_over(g, n, 0) == 1 ? fmax(0, whole + made - 2 * put) : 0;
}

double ebb_node_bytes(const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *node = ebb_node_of(g, n);
    double bytes = -left_alone(g, n);
    for (uint32_t i = 0; i < node->in_count; i++)
        bytes += bytes_of(g, node->in[i]);
    for (uint32_t k = 0; k < node->out_count; k++)
        bytes += bytes_of(g, node->out[k]);
    return bytes;
}

static double loop_ns(const ebb_rates *rates, const ebb_graph *g, ebb_node n)
{
    ebb_scan s;
    double ns = 0;
    if (ebb_scan_read(&s, g, n) != NULL)
        return 0;
    EBB_EACH_NODE(s.body, k)
        ns += ebb_node_ns_by(rates, s.body, k);
    return ns * (double)s.trips;
}

double ebb_node_ns_by(const ebb_rates *rates, const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *node = ebb_node_of(g, n);
    if (node->op == EBB_OP_WAIT)
        return rates->node_ns; // for how long it stands still its neighbours tell
    const bool starts = ebb_op_has(node->op, EBB_STARTS);
    if (starts && !ebb_op_has(node->op, EBB_TOGETHER)) // the move goes on beside the step
        return rates->node_ns + ebb_move_time_by(rates, g, n).taken;
    const double exchange = starts ? 0 : ebb_exchange_ns(g, n); // the sum does not
    const char *measured = ebb_props_get(g, &node->props, "ebb.cost_ns");
    if (measured != NULL) {
        double ns = ebb_strtod(measured, NULL);
        return exchange + (ns >= 0 && ns < 1e18 ? ns : 0); // a file may say anything
    }
    if (ebb_op_has(node->op, EBB_VIEW) || ebb_node_rests(g, n))
        return 0;
    if (node->op == EBB_OP_SCAN)
        return loop_ns(rates, g, n);
    double operations = rates->operations;
    if (ebb_op_has(node->op, EBB_PRODUCTS) && node->in_count > 0)
        operations = of_products(rates, ebb_value_of(g, node->in[0])->type->dtype);
    return exchange + ebb_link_crowd(g) *
                          roofline(rates, operations, ebb_node_flops(g, n), ebb_node_bytes(g, n));
}

double ebb_node_ns(const ebb_graph *g, ebb_node n)
{
    return ebb_node_ns_by(rates_of(g), g, n);
}
