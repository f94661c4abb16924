/* precision: compute in bfloat16 or float16, with parameters and what is delicate in float32.
 *
 *   before   y = MatMul(x, w)
 *   after    x.bfloat16 = Cast(x), w.bfloat16 = Cast(w), y = MatMul(x.bfloat16, w.bfloat16)
 *
 * Works on the forward, before the gradient: the gradient of a Cast is a Cast, so gradients have
 * the dtype of what they are the gradients of, those of parameters float32. Parameters, optimizer
 * states and running statistics stay float32. A value is cast once, for all its readers, those of
 * the backward too. Inside every operator sums are float32 (kernels/nested/widen.c), and so is what it
 * keeps of a row: means, deviations.
 *
 *   products, convolutions, norms,        16 bits
 *   activations, softmax, pools, RNN,
 *   GRU, LSTM
 *   arithmetic                            16 bits where an operand comes from the above, or where
 *                                         only such nodes read it (a mask)
 *   residual sums: of activations, on     float32, as autocast has them, with those norms and dropout
 *   the way to LayerNormalization or      between: a rounding there stays in all layers behind. What
 *   RMSNormalization                      the backward keeps of a norm's rows has 16 bits (gradient.c)
 *   views, Gather, Concat, Slice ...      as their data is; a table of embeddings stays float32
 *   what makes the loss from the          float32
 *   last of these, sums over axes, Exp,
 *   Log, Pow, Sin, Cos, the rest
 *
 * Numbers beyond the range of 16 bits, as masks have them, become its ends where they are
 * constants.
 *
 * float16 has a narrow range: the gradient then starts from the state ebb.loss_scale instead of 1,
 * and the optimizer leaves out the steps that overflow (see gradient.c, optimizer.c). bfloat16 has
 * the range of float32 and needs none of that.
 *
 * fp32 is the other way, for a file in 16 bits: widened.c.
 */
#include "passes/common.h"
#include "passes/parameters/trainable.h"
#include "passes/primal/halved.h"
#include "passes/primal/widened.h"

typedef struct lowering {
    ebb_edit *e;
    ebb_graph *g;
    ebb_dtype dtype;
    const char *suffix;
    ebb_halved halved;
    bool *lowered;            /* by value */
    ebb_value *narrow, *wide; /* by value: its cast; none: not yet */
    size_t casts;
} lowering;

/* ---- casts ---- */

static double largest_of(ebb_dtype dtype)
{
    return dtype == EBB_F16 ? 65504.0 : (double)0x1.FEp127f;
}

/* A constant that nobody trains, in 16 bits: what lies beyond becomes the last number. */
static ebb_status fold(lowering *l, ebb_build *b, ebb_value v, ebb_value *made)
{
    ebb_graph *g = l->g;
    const ebb_tensor *t = ebb_value_constant(g, v);
    int64_t count = 0;
    *made = EBB_NO_VALUE;
    if (t == NULL || t->data == NULL || l->halved.trains[v.i] ||
        !ebb_type_elements(&t->type, &count) ||
        (count != 1 && !ebb_name_is_anonymous(ebb_value_name(g, v))))
        return NULL;
    uint16_t *bits = EBB_SCRATCH(l->e, uint16_t, (size_t)count + 1);
    EBB_GOT(bits);
    double most = largest_of(l->dtype);
    for (int64_t i = 0; i < count; i++) {
        double x = ebb_tensor_double(t, i);
        bool finite = x - x == 0;
        float near = (float)(finite && x > most ? most : finite && x < -most ? -most : x);
        bits[i] = l->dtype == EBB_F16 ? ebb_float_to_half(near) : ebb_float_to_bf16(near);
    }
    ebb_type type = t->type;
    type.dtype = (uint8_t)l->dtype;
    *made = ebb_const_tensor(b, &type, bits);
    return b->status;
}

static ebb_status cast(lowering *l, ebb_node before, ebb_value v, bool down, ebb_value *made)
{
    ebb_graph *g = l->g;
    ebb_value *known = down ? &l->narrow[v.i] : &l->wide[v.i];
    if (known->i == 0) {
        ebb_build b = ebb_edit_build(l->e, before, EBB_PHASE_NONE);
        if (down)
            EBB_TRY(fold(l, &b, v, known));
        if (known->i == 0) {
            char *name = ebb_arena_printf(l->e->scratch, "%s.%s", ebb_value_name(g, v),
                                          down ? l->suffix : "float32");
            EBB_GOT(name);
            b.name = ebb_value_name(g, v);
            ebb_with_int(&b, "to", down ? (int64_t)l->dtype : EBB_F32);
            ebb_with_name(&b, name);
            *known = ebb_emit(&b, EBB_OP_CAST, v);
            EBB_TRY(b.status);
            l->casts++;
        }
    }
    *made = *known;
    return NULL;
}

static ebb_status lower(lowering *l, ebb_node n)
{
    ebb_graph *g = l->g;
    ebb_op op = ebb_node_of(g, n)->op;
    for (uint32_t i = 0; i < ebb_node_of(g, n)->in_count; i++) {
        ebb_value v = ebb_in(g, n, i), made;
        if (!ebb_is_f32(g, v) || ebb_halved_takes_float32(op, i))
            continue;
        EBB_TRY(cast(l, n, v, true, &made));
        EBB_TRY(ebb_node_set_input(g, n, i, made));
    }
    if (op == EBB_OP_CAST)
        EBB_TRY(ebb_node_set_int(g, n, "to", (int64_t)l->dtype));
    for (uint32_t o = 0; o < ebb_node_of(g, n)->out_count; o++) {
        ebb_value v = ebb_out(g, n, o);
        if (!ebb_is_f32(g, v) || ebb_halved_gives_float32(op, o))
            continue;
        ebb_type lower = *ebb_value_of(g, v)->type;
        lower.dtype = (uint8_t)l->dtype;
        EBB_TRY(ebb_value_set_type(g, v, &lower));
        ebb_value_of(g, v)->origin = NULL; // the file says otherwise
        l->lowered[v.i] = true;
    }
    if (ebb_halved_counts(op))
        ebb_applied(l->e);
    return NULL;
}

static ebb_status keep(lowering *l, ebb_node n)
{
    ebb_graph *g = l->g;
    ebb_op op = ebb_node_of(g, n)->op;
    for (uint32_t i = 0; i < ebb_node_of(g, n)->in_count; i++) {
        ebb_value v = ebb_in(g, n, i), made;
        bool any = op == EBB_OP_CAST || op == EBB_OP_IS_NAN || // which ask the same of any dtype
                   (i == 0 && ebb_op_has(op, EBB_SHAPE_OF_0));
        if (v.i == 0 || v.i >= l->halved.value_count || !l->lowered[v.i] || any)
            continue;
        EBB_TRY(cast(l, n, v, false, &made));
        EBB_TRY(ebb_node_set_input(g, n, i, made));
    }
    return NULL;
}

/* A move of activations is as its data: in 16 bits as soon as one of them is. */
static bool is_low(const lowering *l, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(l->g, n);
    if (!ebb_halved_moves(info->op) || !l->halved.active[n.i])
        return l->halved.low[n.i];
    for (uint32_t i = 0; i < info->in_count; i++)
        if (info->in[i].i < l->halved.value_count && l->lowered[info->in[i].i])
            return true;
    return false;
}

/* Outputs of the graph keep name, place and dtype. */
static ebb_status widen_outputs(lowering *l)
{
    ebb_graph *g = l->g;
    for (size_t i = 0; i < g->output_count; i++) {
        ebb_value v = g->outputs[i], made;
        if (v.i >= l->halved.value_count || !l->lowered[v.i])
            continue;
        EBB_TRY(cast(l, ebb_next(g, ebb_value_of(g, v)->producer), v, false, &made));
        EBB_TRY(ebb_output_becomes(g, i, made, l->suffix));
    }
    return NULL;
}

/* ---- the pass ---- */

/* float16: what the gradient is to start from. */
static ebb_status ask_for_loss_scale(ebb_edit *e)
{
    double scale = ebb_option_float(e, "scale");
    char *text = ebb_arena_printf(e->scratch, "%.9g", scale);
    EBB_GOT(text);
    return ebb_props_set(e->g, &e->g->model->props, "ebb.loss_scale", text);
}

static ebb_status prepare(lowering *l)
{
    ebb_edit *e = l->e;
    l->lowered = EBB_SCRATCH(e, bool, l->g->value_count);
    l->narrow = EBB_SCRATCH(e, ebb_value, l->g->value_count);
    l->wide = EBB_SCRATCH(e, ebb_value, l->g->value_count);
    EBB_GOT(l->lowered && l->narrow && l->wide);
    return ebb_halved_choose(&l->halved, e);
}

static ebb_status run(ebb_edit *e)
{
    ebb_graph *g = e->g;
    bool half = strcmp(ebb_option_string(e, "dtype"), "fp16") == 0;
    lowering l = {.e = e,
                  .g = g,
                  .dtype = half ? EBB_F16 : EBB_BF16,
                  .suffix = half ? "float16" : "bfloat16"};
    if (ebb_props_get(g, &g->model->props, "ebb.precision") != NULL)
        return ebb_declined(e, EBB_NO_NODE, "the precision was chosen already");
    EBB_EACH_NODE(g, n)
        if (ebb_node_of(g, n)->phase == EBB_BACKWARD)
            return ebb_hint(ebb_error(EBB_USAGE, "precision: the graph has a backward already"),
                            "name the pass where the step is made: ebb grad --pass precision:bf16");
    if (strcmp(ebb_option_string(e, "dtype"), "fp32") == 0)
        return ebb_widened(e);
    EBB_TRY(prepare(&l));
    for (size_t k = 0; k < l.halved.count; k++) {
        ebb_node n = l.halved.order[k];
        EBB_TRY(is_low(&l, n) ? lower(&l, n) : keep(&l, n));
    }
    EBB_TRY(widen_outputs(&l));
    if (e->report->applied == 0)
        return NULL;
    if (half)
        EBB_TRY(ask_for_loss_scale(e));
    EBB_TRY(ebb_props_set(g, &g->model->props, "ebb.precision", l.suffix));
    return ebb_note(e, "%zu nodes compute in %s, between %zu casts", e->report->applied, l.suffix,
                    l.casts);
}

// clang-format off
static const ebb_option options[] = {
    {"dtype", EBB_OPTION_CHOICE, "bf16",  "bf16|fp16|fp32", "bf16: bfloat16; fp16: float16, with a loss scale that follows overflows; fp32: what the file has in 16 bits"},
    {"keep",  EBB_OPTION_STRING, NULL,    NULL,            "patterns of names of nodes or operators that stay in float32, separated by ; or space"},
    {"scale", EBB_OPTION_FLOAT,  "65536", "[1, 16777216]", "fp16: the loss scale to begin with"},
    {0},
};
// clang-format on

const ebb_pass ebb_pass_precision = {
    .name = "precision",
    .doc =
        "compute in bfloat16 or float16, with parameters in float32; or a file of these in float32",
    .paper = "Micikevicius et al., Mixed precision training, ICLR 2018",
    .exactness = EBB_LOSSY,
    .options = options,
    .run = run,
};
