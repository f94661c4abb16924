/* gradient: reverse mode over the operator table.
 *
 *   before   y = f(x, w) ... loss
 *   after    y = f(x, w) ... loss,  loss_grad = 1, ..., y_grad, w_grad (an output), x_grad ...
 *
 * Each node on a way from a parameter to the loss is visited once, last first, when the gradients
 * of all its outputs are complete; its rule (ebb_grad_*) emits what its inputs get. Where a value
 * is read several times, contributions are added as they come, so that only one sum is alive. Names
 * and marks are those of ONNX Runtime's training graphs: x_grad, x_grad_0 ..., doc "Backward pass".
 *
 * With metadata ebb.loss_scale (pass precision, float16) loss_grad is a state of that name instead
 * of 1, and the gradients of parameters are divided by it, in float32, before they are outputs.
 * Where precision left a norm in float32 the backward reads a copy of its input in 16 bits, which
 * is what is kept.
 *
 * All operators without a rule are named in one error. Shapes must be static.
 */
#include <stdio.h>
#include <stdlib.h>

#include "onnx/graph/infer.h"
#include "onnx/words/print.h"
#include "passes/common.h"
#include "passes/gradient/chosen.h"
#include "passes/parameters/noted.h"
#include "passes/parameters/weights.h"

/* ---- what is trained ---- */

typedef struct choice { /* context of the reverse */
    ebb_value unscale;  /* 1 / ebb.loss_scale; none: the loss is not scaled */
    ebb_dtype narrow;   /* the 16 bits that pass precision chose, or EBB_NONE */
    ebb_chosen chosen;
} choice;

static ebb_status no_weights(const ebb_graph *g)
{
    ebb_value input = ebb_input_as_weight(g);
    if (input.i != 0)
        return ebb_hint(ebb_error(EBB_USAGE,
                                  "gradient: the model has no weights to train: its input '%.200s' "
                                  "stands where a weight does",
                                  ebb_value_name(g, input)),
                        EBB_INPUT_AS_WEIGHT_HELP);
    return ebb_hint(
        ebb_error(EBB_USAGE, "gradient: the model has no weights to train"),
        "name them with --train 'PATTERN', or put adapters beside products with --pass lora");
}

static ebb_status choose_parameters(ebb_reverse *r, bool again)
{
    const ebb_chosen *chosen = &((const choice *)r->context)->chosen;
    size_t count;
    EBB_TRY(ebb_chosen_take(chosen, r, &count));
    if (count == 0)
        EBB_TRY(ebb_chosen_tell(chosen, r)); // refuses where what was made of weights is there
    if (count == 0 && chosen->freeze != NULL)
        return ebb_error(EBB_USAGE, "gradient: freeze=%s leaves no weight to train",
                         chosen->freeze);
    if (count == 0)
        return no_weights(r->g);
    if (again)
        return NULL;
    size_t lost = ebb_chosen_lost(chosen, r);
    const char *how =
        chosen->train != NULL ? "matching train=" : ebb_trainable_words(chosen->source);
    return lost == 0 ? ebb_note(r->e, "%zu parameters are trained, %s", count, how)
                     : ebb_note(r->e,
                                "%zu parameters are trained, %s; %zu of them had lost their "
                                "names, and stand where operators expect weights",
                                count, how, lost);
}

/* ---- contributions ---- */

static ebb_value unscale_of(const ebb_reverse *r)
{
    return ((const choice *)r->context)->unscale;
}

/* The loss was scaled, and so is every gradient; the parameter's own shall be what it is. */
static ebb_status undo_scale(ebb_reverse *r, ebb_value *grad, ebb_value x, const char *name)
{
    char scaled[520];
    (void)snprintf(scaled, sizeof scaled, "%s.scaled", name);
    if (strcmp(ebb_value_name(r->g, *grad), name) == 0)
        EBB_TRY(ebb_value_step_aside(r->g, *grad, scaled));
    r->b.name = ebb_value_name(r->g, x);
    ebb_with_name(&r->b, name);
    *grad = ebb_emit(&r->b, EBB_OP_MUL, *grad, unscale_of(r));
    r->b.name = NULL;
    r->grad[x.i] = *grad;
    return r->b.status;
}

/* All contributions are in: a parameter's gradient becomes an output. */
static ebb_status finish(ebb_reverse *r, ebb_value x)
{
    ebb_value grad = r->grad[x.i];
    if (grad.i == 0)
        return NULL;
    EBB_TRY(ebb_reverse_name(r, grad, x, -1));
    if (!r->trains[x.i])
        return NULL;
    char name[512];
    (void)snprintf(name, sizeof name, "%.500s_grad", ebb_value_name(r->g, x));
    if (unscale_of(r).i != 0)
        EBB_TRY(undo_scale(r, &grad, x, name));
    if (strcmp(ebb_value_name(r->g, grad), name) != 0) { // it is another value's gradient too
        ebb_with_name(&r->b, name);
        grad = ebb_emit(&r->b, EBB_OP_IDENTITY, grad);
        EBB_TRY(r->b.status);
        r->grad[x.i] = grad;
    }
    ebb_applied(r->e);
    return ebb_graph_add_output(r->g, grad);
}

/* ---- padding ---- */

/* The one row of zeros in an embedding, or -1. PyTorch's padding_idx makes such a row and never
 * trains it; ONNX has no word for it, so the zeros tell, where the exporter does not. So are those around a table of
 * places that folding looked up and padded, along whatever axis it is read. */
static int64_t padding_row(const ebb_graph *g, ebb_value w, int axis)
{
    const ebb_value_info *info = ebb_value_of(g, w);
    const ebb_tensor *t = info->tensor;
    const bool table = ebb_props_get(g, &info->props, EBB_LOOKED_UP) != NULL;
    if (t == NULL || t->data == NULL || t->type.dtype != EBB_F32 || axis >= t->type.rank ||
        (!table && (t->type.rank != 2 || axis != 0)))
        return -1;
    const int64_t rows = t->type.dims[axis];
    size_t line = sizeof(float), lines = 1;
    for (int k = 0; k < t->type.rank; k++)
        *(k < axis ? &lines : &line) *= k == axis ? 1 : (size_t)t->type.dims[k];
    int64_t found = -1;
    for (int64_t i = 0; i < rows && lines * line > 0; i++) {
        bool zero = true;
        for (size_t k = 0; k < lines && zero; k++) {
            const unsigned char *row =
                (const unsigned char *)t->data + (k * (size_t)rows + (size_t)i) * line;
            zero = row[0] == 0 && memcmp(row, row + 1, line - 1) == 0;
        }
        if (zero && found >= 0)
            return -1; // several: weights that start at zero, not padding
        found = zero ? i : found;
    }
    return rows > 1 ? found : -1;
}

/* The one that the dynamo exporter notes at n: "aten.embedding.default](args = (%p_w, %x, 0)"; -1: none. */
static int64_t noted_row(const ebb_graph *g, ebb_node n)
{
    const char *at = ebb_props_get(g, &ebb_node_of(g, n)->props, EBB_NOTED_CALL);
    at = at != NULL ? strstr(at, "aten.embedding.default](args = (") : NULL;
    at = at != NULL ? strchr(at, ',') : NULL;
    at = at != NULL ? strchr(at + 1, ',') : NULL;
    return at != NULL && at[-1] != ')' ? strtoll(at + 1, NULL, 10) : -1;
}

/* Zeroes that row of a Gather's contribution. */
static ebb_status leave_padding(ebb_reverse *r, ebb_node n, uint32_t i, ebb_value *dw)
{
    ebb_graph *g = r->g;
    ebb_value w = ebb_in(g, n, i);
    if (i != 0 || ebb_node_of(g, n)->op != EBB_OP_GATHER)
        return NULL;
    const ebb_type *of = ebb_value_of(g, w)->type;
    ebb_attrs attrs = ebb_node_attrs(g, n);
    const int64_t named = ebb_attr_int(&attrs, "axis", 0);
    const int axis = (int)(named < 0 ? named + of->rank : named);
    const int64_t noted_at = noted_row(g, n);
    const int64_t row =
        noted_at >= 0 && noted_at < of->dims[axis] ? noted_at : padding_row(g, w, axis);
    if (row < 0 || !r->trains[w.i] || strcmp(ebb_option_string(r->e, "padding"), "keep") != 0)
        return NULL;
    const int64_t count = of->dims[axis];
    int64_t dims[EBB_MAX_RANK] = {count};
    for (int k = 1; k < of->rank - axis; k++)
        dims[k] = 1;
    double *ones = EBB_SCRATCH(r->e, double, (size_t)count);
    EBB_GOT(ones);
    for (int64_t k = 0; k < count; k++)
        ones[k] = k == row ? 0 : 1;
    const ebb_dtype dtype = (ebb_dtype)ebb_value_of(g, *dw)->type->dtype;
    *dw = ebb_emit(&r->b, EBB_OP_MUL, *dw,
                   ebb_const_floats(&r->b, dtype, of->rank - axis, dims, ones));
    EBB_TRY(r->b.status);
    return ebb_note(r->e, "row %lld of '%s' is one of padding, and stays as it is", (long long)row,
                    ebb_value_name(g, w));
}

/* ---- 16 bits ---- */

/* The backward of a norm scales what comes by its input's place in the row: rounding that is an error
 * of each gradient by itself, where in the forward it would stay in all layers behind. */
static ebb_status read_in_16_bits(ebb_reverse *r, ebb_node n, ebb_value *x)
{
    ebb_graph *g = r->g;
    const choice *c = r->context;
    if (c->narrow == EBB_NONE || !ebb_op_has(ebb_node_of(g, n)->op, EBB_NORM) ||
        ebb_value_of(g, x[0])->type->dtype != EBB_F32)
        return NULL;
    ebb_node maker = ebb_value_of(g, x[0])->producer;
    ebb_value kept = EBB_NO_VALUE;
    if (maker.i != 0 && ebb_node_of(g, maker)->op == EBB_OP_CAST &&
        ebb_value_of(g, ebb_in(g, maker, 0))->type->dtype == c->narrow) {
        kept = ebb_in(g, maker, 0); // it came from there
    } else {
        ebb_build forward = ebb_edit_build(r->e, n, EBB_FORWARD);
        forward.name = ebb_value_name(g, x[0]);
        kept = ebb_emit_cast(&forward, x[0], c->narrow);
        EBB_TRY(forward.status);
    }
    r->b.name = ebb_value_name(g, kept);
    x[0] = ebb_emit_cast(&r->b, kept, EBB_F32);
    r->b.name = NULL;
    return r->b.status;
}

static ebb_dtype precision_of(const ebb_graph *g)
{
    const char *text = ebb_props_get(g, &g->model->props, "ebb.precision");
    return text == NULL                    ? EBB_NONE
           : strcmp(text, "bfloat16") == 0 ? EBB_BF16
           : strcmp(text, "float16") == 0  ? EBB_F16
                                           : EBB_NONE;
}

/* What pass precision asks for in float16, as a state that the optimizer replaces. */
static ebb_status loss_scale(ebb_reverse *r, ebb_value *scale)
{
    ebb_graph *g = r->g;
    const char *text = ebb_props_get(g, &g->model->props, "ebb.loss_scale");
    float start = text != NULL ? ebb_strtof(text, NULL) : 0;
    ebb_type type = ebb_type_tensor(EBB_F32, 0, NULL);
    if (text == NULL)
        return NULL;
    if (!(start >= 1 && start <= 0x1p24f)) // a file may say anything
        return ebb_error(EBB_REJECTED, "gradient: the model's ebb.loss_scale is '%.40s'", text);
    return ebb_graph_add_initializer(g, scale, "ebb.loss_scale", &type, &start, EBB_ROLE_OPTIMIZER);
}

static ebb_status seed(ebb_reverse *r)
{
    ebb_graph *g = r->g;
    const ebb_type *type = ebb_value_of(g, g->loss)->type;
    ebb_value one = EBB_NO_VALUE;
    EBB_TRY(loss_scale(r, &one));
    if (one.i != 0) {
        r->b.name = "ebb.loss_scale";
        ((choice *)r->context)->unscale = ebb_emit(&r->b, EBB_OP_RECIPROCAL, one);
        r->b.name = NULL;
    } else {
        one = ebb_const_like(&r->b, g->loss, 1.0);
    }
    if (type->rank > 0)
        one = ebb_emit_reshape(&r->b, one, type->dims, type->rank);
    EBB_TRY(r->b.status);
    r->grad[g->loss.i] = one;
    return NULL;
}

/* ---- the pass ---- */

static void set_roles(ebb_reverse *r)
{
    for (size_t i = 0; i < r->g->initializer_count; i++) {
        ebb_value v = r->g->initializers[i];
        if (v.i >= r->value_count || !ebb_trainable_candidate(r->g, v))
            continue;
        bool weight = r->trains[v.i] || !ebb_name_is_anonymous(ebb_value_name(r->g, v));
        if (weight && ebb_value_of(r->g, v)->type->rank > 0)
            ebb_value_of(r->g, v)->role =
                (uint8_t)(r->trains[v.i] ? EBB_ROLE_PARAMETER : EBB_ROLE_FROZEN);
        else if (r->trains[v.i])
            ebb_value_of(r->g, v)->role = EBB_ROLE_PARAMETER;
    }
}

/* Steps between parameters and the loss stop their gradients: that is worth a word. */
static ebb_status count_steps(ebb_reverse *r, size_t *steps)
{
    *steps = 0;
    for (size_t k = 0; k < r->node_count && !r->straight; k++) {
        const ebb_node_info *info = ebb_node_of(r->g, r->order[k]);
        *steps += ebb_op_has(info->op, EBB_STEPS) && info->in_count > 0 && r->wants[info->in[0].i];
    }
    if (*steps == 0)
        return NULL;
    return ebb_note(r->e,
                    "%zu step%s (Round, Sign ...) stop%s the gradient of what comes "
                    "before: straight-through=on lets it pass",
                    *steps, *steps == 1 ? "" : "s", *steps == 1 ? "s" : "");
}

/* Opens r, until nothing on the way has to give way to its body. */
static ebb_status open(ebb_reverse *r)
{
    const ebb_reverse empty = *r;
    bool again = false;
    do {
        bool before = again;
        *r = empty;
        EBB_TRY(ebb_reverse_open(r, EBB_NO_NODE));
        r->y = r->g->loss;
        EBB_TRY(choose_parameters(r, before));
        ebb_reverse_mark(r);
        EBB_TRY(ebb_reverse_expand(r, &again));
    } while (again);
    return NULL;
}

static ebb_status run(ebb_edit *e)
{
    ebb_graph *g = e->g;
    size_t steps;
    choice c = {.narrow = precision_of(g)};
    ebb_reverse r = {.e = e,
                     .g = g,
                     .reads = read_in_16_bits,
                     .adjust = leave_padding,
                     .finish = finish,
                     .context = &c};
    r.straight = strcmp(ebb_option_string(e, "straight-through"), "on") == 0;
    r.again = strcmp(ebb_option_string(e, "loops"), "again") == 0;
    if (g->loss.i == 0)
        return ebb_hint(ebb_error(EBB_USAGE, "gradient: the graph has no loss"),
                        "append one with --loss cross-entropy (a language model's: "
                        "cross-entropy:axis=-1), or say which output it is: --loss name=OUTPUT");
    EBB_EACH_NODE(g, n)
        if (ebb_node_of(g, n)->phase == EBB_BACKWARD)
            return ebb_declined(e, n, "the graph has a backward already");
    EBB_TRY(ebb_require_static(g));
    EBB_EACH_NODE(g, n)
        if (ebb_node_of(g, n)->phase == EBB_PHASE_NONE)
            ebb_node_of(g, n)->phase = EBB_FORWARD;
    EBB_TRY(ebb_chosen_open(&c.chosen, e));
    EBB_TRY(open(&r));
    EBB_TRY(count_steps(&r, &steps));
    if (!r.counts[g->loss.i]) {
        ebb_status none = ebb_error(EBB_USAGE, "gradient: loss '%s' depends on no parameter",
                                    ebb_value_name(g, g->loss));
        return steps == 0
                   ? none
                   : ebb_hint(none, "--straight-through lets gradients pass Round, Sign ...");
    }
    for (size_t i = 0; i < g->initializer_count; i++) {
        ebb_value v = g->initializers[i];
        if (!r.trains[v.i])
            continue;
        ebb_found(e);
        if (!r.counts[v.i]) {
            r.trains[v.i] = false;
            EBB_TRY(ebb_note(e, "'%s' is not trained: the loss does not depend on it",
                             ebb_value_name(g, v)));
        }
    }
    EBB_TRY(ebb_reverse_find_unsupported(&r));
    EBB_TRY(ebb_reverse_say_unsupported(&r));
    EBB_TRY(ebb_chosen_tell(&c.chosen, &r));
    set_roles(&r); // from here on a weight is no constant, whatever rule asks
    r.b = ebb_edit_build(e, ebb_first_update(g), EBB_BACKWARD);
    r.b.phase = EBB_BACKWARD;
    EBB_TRY(seed(&r));
    return ebb_reverse_run(&r);
}

// clang-format off
static const ebb_option options[] = {
    {"train",  EBB_OPTION_STRING, NULL, NULL, "patterns of the weights to train, separated by ; or space; the word lost: those that an export took the names of"},
    {"freeze", EBB_OPTION_STRING, NULL, NULL, "patterns of the weights not to train, and the same word"},
    {"partial", EBB_OPTION_CHOICE, "refuse", "refuse|allow", "where less than half of what looks like a weight would be trained, or the file has lost some for good, and neither of those is given"},
    {"padding", EBB_OPTION_CHOICE, "keep", "keep|train", "an embedding's one row of zeros: keep it zero, or train it"},
    {"straight-through", EBB_OPTION_CHOICE, "off", "off|on", "pass gradients straight through Round, Floor, Ceil and Sign, whose derivative is 0, as through QuantizeLinear"},
    {"loops", EBB_OPTION_CHOICE, "keep", "keep|again", "of each step of a kept loop: keep what its backward reads, or its states alone and compute the step again"},
    {0},
};
// clang-format on

const ebb_pass ebb_pass_gradient = {
    .name = "gradient",
    .doc = "append the backward: the gradient of the loss for each parameter",
    .exactness = EBB_MAKES,
    .options = options,
    .run = run,
};
