/* allowance.c: see allowance.h. */
#include "exec/weigh/allowance.h"

#include "exec/weigh/node_time.h"
#include "onnx/graph/infer.h"
#include "onnx/graph/scan.h"

#include <math.h>

/* What a node may do in any file: some minutes, and memory that a workstation has. */
static const double OPERATIONS = 1e12, BYTES = 0x1p34;

/* And for each byte that is given. The most that is known: 1,270 operations a byte (the last product
 * of GPT-2 on 8 x 1024 tokens) and 6.5 bytes a byte (a LayerNorm and the product there; a small CNN's
 * first convolution 3). Operations are weights times positions, so the first number grows with the
 * batch: at 4 bytes a weight this is room for 20 million positions in a step. */
static const double OPERATIONS_A_BYTE = 1e7, BYTES_A_BYTE = 1e5;

/* Of a node that is computed while a graph is changed: some tenths of a second. Large results are
 * kept while a model has no more memory than this, and than twice what is given. */
static const double EVALUATED_OPERATIONS = 1e8, KEPT_BYTES = 0x1p28;
static const size_t SMALL_BYTES = (size_t)1 << 20;

static double bytes_of(const ebb_graph *g, ebb_value v)
{
    size_t bytes;
    return ebb_type_bytes(ebb_value_of(g, v)->type, &bytes) ? (double)bytes : 0;
}

ebb_allowance ebb_allowance_of(const ebb_model *model)
{
    const ebb_graph *g = model->graph;
    ebb_allowance a = {0, (double)INFINITY, (double)INFINITY};
    for (size_t i = 0; i < g->input_count; i++)
        a.given += bytes_of(g, g->inputs[i]);
    for (size_t i = 0; i < g->initializer_count; i++)
        if (ebb_value_of(g, g->initializers[i])->role != EBB_ROLE_CONSTANT) // may be computed
            a.given += bytes_of(g, g->initializers[i]);
    if (!model->trusted) {
        a.operations = OPERATIONS + OPERATIONS_A_BYTE * a.given;
        a.bytes = BYTES + BYTES_A_BYTE * a.given;
    }
    return a;
}

bool ebb_allowance_evaluates(const ebb_graph *g, ebb_node n, size_t result_bytes)
{
    if (g->model->trusted)
        return true;
    if (ebb_node_flops(g, n) > EVALUATED_OPERATIONS)
        return false;
    if (result_bytes <= SMALL_BYTES) // what holds so little takes as much of the file
        return true;
    return (double)g->model->arena.used_bytes + (double)result_bytes <=
           KEPT_BYTES + 2 * ebb_allowance_of(g->model).given;
}

/* A loop takes its time though its nodes do nothing, and so does one within. */
static double steps_of(const ebb_graph *g, ebb_node n)
{
    static const double OPERATIONS_A_CALL = 1e3;
    ebb_scan s;
    double steps = 1;
    if (ebb_node_of(g, n)->op != EBB_OP_SCAN || ebb_scan_read(&s, g, n) != NULL)
        return 0;
    EBB_EACH_NODE(s.body, k)
        steps += 1 + steps_of(s.body, k) / OPERATIONS_A_CALL;
    return (double)s.trips * steps * OPERATIONS_A_CALL;
}

ebb_status ebb_allowance_check(const ebb_allowance *a, const ebb_graph *g, ebb_node n,
                               size_t workspace_bytes)
{
    double operations = ebb_node_flops(g, n) + steps_of(g, n);
    double bytes = ebb_node_bytes(g, n) + (double)workspace_bytes;
    bool is_slow = operations > a->operations;
    if (!is_slow && !(bytes > a->bytes))
        return NULL;
    return ebb_hint(
        ebb_error(EBB_REJECTED,
                  "%s: takes %.3g %s, and the %.3g bytes of weights and inputs allow %.3g",
                  ebb_node_label(g, n), is_slow ? operations : bytes,
                  is_slow ? "operations" : "bytes of memory", a->given,
                  is_slow ? a->operations : a->bytes),
        "--trust, where the file is from someone whom you trust, plans whatever it asks for");
}
