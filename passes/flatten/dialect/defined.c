/* defined: operators that ONNX defines by others: FlexAttention with graphs that change scores and
 * probabilities, and Bernoulli; and optionals of tensors, which are there or not.
 *
 *   y = FlexAttention <score_mod = {s -> t}, prob_mod = {p -> q}> (Q, K, V)
 *   ──> s = scale Q K^T,  t,  p = Softmax (t),  q,  y = q V
 */
#include <math.h>

#include "passes/flatten/body.h"
#include "passes/flatten/dialect/heads.h"

/* What the graph in attribute `name` makes of x; x where there is none. */
static ebb_value modified(ebb_build *b, ebb_foreign *f, const char *name, ebb_value x)
{
    const ebb_graph *graph = ebb_node_body(b->g, f->node, name);
    size_t nodes = 0;
    ebb_body body;
    if (ebb_attr_find(&f->attrs, name) == NULL || b->status != NULL)
        return x;
    if (graph == NULL || graph->input_count != 1 || graph->output_count != 1) {
        f->declines = "a graph in its attributes has not one input and one output";
        return EBB_NO_VALUE;
    }
    const char *place = ebb_arena_printf(f->scratch, "%s/%s",
                                         ebb_value_name(b->g, ebb_out(b->g, f->node, 0)), name);
    ebb_build_fail(b, place == NULL ? ebb_error_memory() : ebb_body_open(f->edit, &body, graph));
    if (b->status != NULL)
        return EBB_NO_VALUE;
    ebb_build_fail(b, ebb_body_put(f->edit, &body, f->node, place, &x, 1, &nodes));
    ebb_value y = b->status == NULL ? ebb_body_output(&body, 0) : EBB_NO_VALUE;
    if (b->status == NULL && y.i == 0)
        f->declines = "a graph in its attributes makes nothing";
    return y;
}

/* FlexAttention(Q, K, V), [B, N, S, h]. Without graphs it has a kernel. */
void ebb_dialect_flex_attention(ebb_build *b, ebb_foreign *f)
{
    static const int64_t perm[4] = {0, 1, 3, 2};
    ebb_type q, k;
    f->native = ebb_attr_find(&f->attrs, "score_mod") == NULL &&
                ebb_attr_find(&f->attrs, "prob_mod") == NULL;
    if (f->native || !ebb_foreign_ranked(b, f, 0, &q) || !ebb_foreign_ranked(b, f, 1, &k) ||
        !ebb_foreign_ranked(b, f, 2, &(ebb_type){0}))
        return;
    if (q.rank != 4 || k.rank != 4 || q.dims[3] <= 0 || q.dims[1] <= 0 || k.dims[1] <= 0 ||
        q.dims[1] % k.dims[1] != 0) {
        f->declines = "the number and the size of its heads are not known, or do not fit";
        return;
    }
    ebb_heads h = {.q = f->x[0], .count = q.dims[1], .of_keys = k.dims[1]};
    double scale = ebb_attr_float(&f->attrs, "scale", 1 / sqrt((double)q.dims[3]));
    ebb_dtype inside = (ebb_dtype)ebb_attr_int(&f->attrs, "softmax_precision",
                                               q.dtype == EBB_F64 ? EBB_F64 : EBB_F32);
    ebb_value keys = ebb_emit_transpose(b, ebb_heads_shared(b, &h, f->x[1]), perm, 4);
    ebb_value s = ebb_emit_scaled(b, ebb_emit(b, EBB_OP_MATMUL, h.q, keys), scale);
    s = modified(b, f, "score_mod", ebb_emit_cast(b, s, inside));
    if (f->declines != NULL)
        return;
    ebb_with_int(b, "axis", -1);
    ebb_value p = modified(b, f, "prob_mod", ebb_emit(b, EBB_OP_SOFTMAX, s));
    if (f->declines != NULL)
        return;
    p = ebb_emit_cast(b, p, (ebb_dtype)q.dtype);
    f->y[0] = ebb_emit(b, EBB_OP_MATMUL, p, ebb_heads_shared(b, &h, f->x[2]));
}

/* Bernoulli(X) -> Y: 1 where a number from [0, 1) is below X, else 0. */
void ebb_dialect_bernoulli(ebb_build *b, ebb_foreign *f)
{
    ebb_type x;
    if (!ebb_foreign_ranked(b, f, 0, &x))
        return;
    ebb_with_int(b, "dtype", x.dtype);
    ebb_with_foreign(b, f, "seed");
    ebb_value drawn = ebb_emit(b, EBB_OP_RANDOM_UNIFORM_LIKE, f->x[0]);
    ebb_value below = ebb_emit(b, EBB_OP_LESS, drawn, f->x[0]);
    f->y[0] = ebb_emit_cast(b, below, (ebb_dtype)ebb_attr_int(&f->attrs, "dtype", x.dtype));
}

/* ---- optionals ---- */

/* Whether input 0 is an optional that nothing was put into. */
static bool is_empty(const ebb_graph *g, const ebb_foreign *f)
{
    if (f->x[0].i == 0)
        return true;
    ebb_node n = ebb_value_of(g, f->x[0])->producer;
    return n.i != 0 && ebb_node_of(g, n)->in_count == 0 &&
           strcmp(ebb_text(g, ebb_node_of(g, n)->op_name), "Optional") == 0;
}

static bool is_tensor(const ebb_graph *g, ebb_value v)
{
    return ebb_value_of(g, v)->type->kind == EBB_KIND_TENSOR;
}

/* Optional(X) -> X; an empty one stays, until nothing asks for it. OptionalGetElement(X) -> X. */
void ebb_dialect_optional(ebb_build *b, ebb_foreign *f)
{
    if (is_empty(b->g, f))
        f->declines = "it is empty, and something that is not known here reads it";
    else if (!is_tensor(b->g, f->x[0]))
        f->declines = "what it holds is no tensor, or given by the caller";
    else
        f->y[0] = ebb_emit(b, EBB_OP_IDENTITY, f->x[0]);
}

/* OptionalHasElement(X?) -> bool */
void ebb_dialect_optional_has_element(ebb_build *b, ebb_foreign *f)
{
    ebb_type type = ebb_type_tensor(EBB_BOOL, 0, NULL);
    bool has = !is_empty(b->g, f);
    if (ebb_foreign_declines(f, has && !is_tensor(b->g, f->x[0]),
                             "what it holds is no tensor, or given by the caller"))
        return;
    f->y[0] = ebb_const_tensor(b, &type, &has);
}
