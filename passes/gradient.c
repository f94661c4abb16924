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
 *
 * All operators without a rule are named in one error. Shapes must be static.
 */
#include <stdio.h>
#include <stdlib.h>

#include "onnx/infer.h"
#include "passes/common.h"
#include "passes/passes.h"
#include "passes/trainable.h"

typedef struct reverse {
    ebb_edit *e;
    ebb_graph *g;
    ebb_build b;
    size_t value_count; /* before the backward */
    bool *trains;       /* by value id: a parameter */
    bool *wants;        /* depends on a parameter */
    bool *counts;       /* the loss depends on it */
    ebb_value *grad;    /* the sum so far */
    uint32_t *parts;    /* contributions so far */
    ebb_value unscale;  /* 1 / ebb.loss_scale; none: the loss is not scaled */
    uint32_t *left;     /* uses on the way whose nodes have not been visited yet */
    ebb_node *order;    /* the forward's nodes, as they were */
    size_t node_count;
    char *unsupported; /* sentences so far, or NULL */
    size_t unsupported_count;
} reverse;

/* ---- what is trained ---- */

/* Patterns come separated by ';' where commas separate options. */
static bool matches(const char *patterns, const char *name)
{
    char one[256];
    while (*patterns != '\0') {
        size_t length = strcspn(patterns, "; ,");
        if (length > 0 && length < sizeof one) {
            memcpy(one, patterns, length);
            one[length] = '\0';
            if (ebb_glob(one, name))
                return true;
        }
        patterns += length + (patterns[length] != '\0');
    }
    return false;
}

static ebb_status choose_parameters(reverse *r)
{
    ebb_edit *e = r->e;
    ebb_graph *g = r->g;
    const char *train = ebb_option_string(e, "train"), *freeze = ebb_option_string(e, "freeze");
    ebb_trainable_source source;
    size_t matched = 0, frozen = 0, count = 0;
    EBB_TRY(ebb_trainable_find(r->trains, &source, g));
    for (size_t i = 0; i < g->initializer_count; i++) {
        ebb_value v = g->initializers[i];
        const char *name = ebb_value_name(g, v);
        if (!ebb_trainable_candidate(g, v))
            continue;
        if (train != NULL) {
            r->trains[v.i] = matches(train, name);
            matched += r->trains[v.i];
        }
        if (freeze != NULL && matches(freeze, name)) {
            r->trains[v.i] = false;
            frozen++;
        }
        count += r->trains[v.i];
    }
    if (train != NULL && matched == 0)
        return ebb_error(EBB_USAGE, "gradient: no weight's name matches train=%s", train);
    if (freeze != NULL && frozen == 0)
        return ebb_error(EBB_USAGE, "gradient: no weight's name matches freeze=%s", freeze);
    if (count == 0)
        return ebb_hint(ebb_error(EBB_USAGE, "gradient: the model has no weights to train"),
                        "name them with --train 'PATTERN'");
    static const char *const how[] = {
        "by the file's update bindings",
        "marked PARAMETER by the exporter",
        "found where operators expect weights",
    };
    return ebb_note(e, "%zu parameters are trained, %s", count,
                    train != NULL ? "matching train=" : how[source]);
}

/* ---- what lies between a parameter and the loss ---- */

static bool is_float(const ebb_graph *g, ebb_value v)
{
    const ebb_type *type = &ebb_value_of(g, v)->type;
    return type->dtype == EBB_NONE || ebb_dtype_is_float((ebb_dtype)type->dtype);
}

static bool node_wants(const reverse *r, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(r->g, n);
    for (uint32_t i = 0; i < info->in_count; i++)
        if (info->in[i].i != 0 && r->wants[info->in[i].i])
            return true;
    return false;
}

static void mark_forwards(reverse *r)
{
    for (size_t k = 0; k < r->node_count; k++) {
        ebb_node n = r->order[k];
        const ebb_node_info *info = ebb_node_of(r->g, n);
        if (ebb_op_stops_grad(info->op) || !node_wants(r, n))
            continue;
        for (uint32_t o = 0; o < info->out_count; o++)
            if (info->out[o].i != 0 && is_float(r->g, info->out[o]))
                r->wants[info->out[o].i] = true;
    }
}

static void mark_backwards(reverse *r)
{
    r->counts[r->g->loss.i] = r->wants[r->g->loss.i];
    for (size_t k = r->node_count; k-- > 0;) {
        const ebb_node_info *info = ebb_node_of(r->g, r->order[k]);
        bool reached = false;
        for (uint32_t o = 0; o < info->out_count; o++)
            reached = reached || (info->out[o].i != 0 && r->counts[info->out[o].i]);
        if (!reached)
            continue;
        for (uint32_t i = 0; i < info->in_count; i++) {
            if (info->in[i].i == 0 || !r->wants[info->in[i].i])
                continue;
            r->counts[info->in[i].i] = true;
            r->left[info->in[i].i]++;
        }
    }
}

static bool is_on_the_way(const reverse *r, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(r->g, n);
    for (uint32_t o = 0; o < info->out_count; o++)
        if (info->out[o].i != 0 && info->out[o].i < r->value_count && r->counts[info->out[o].i])
            return node_wants(r, n);
    return false;
}

/* ---- what has no rule ---- */

static ebb_status add_unsupported(reverse *r, const char *sentence)
{
    enum { NAMED = 40 }; // a message for people
    r->unsupported_count++;
    if (r->unsupported_count > NAMED)
        return NULL;
    char *longer =
        ebb_arena_printf(r->e->scratch, "%s%s%s", r->unsupported != NULL ? r->unsupported : "",
                         r->unsupported != NULL ? "; " : "", sentence);
    if (longer == NULL)
        return ebb_error_memory();
    r->unsupported = longer;
    return NULL;
}

static ebb_status find_unsupported(reverse *r)
{
    for (size_t k = 0; k < r->node_count; k++) {
        ebb_node n = r->order[k];
        if (is_on_the_way(r, n) && !ebb_op_has_grad(ebb_node_of(r->g, n)->op))
            EBB_TRY(add_unsupported(r, ebb_node_label(r->g, n)));
    }
    return NULL;
}

static ebb_status say_unsupported(const reverse *r)
{
    if (r->unsupported_count == 0)
        return NULL;
    return ebb_hint(ebb_error(EBB_UNSUPPORTED, "no gradient for %zu node%s: %s",
                              r->unsupported_count, r->unsupported_count == 1 ? "" : "s",
                              r->unsupported),
                    "--freeze what lies before them, or normalise first (inline,fold,unroll,fuse)");
}

/* ---- contributions ---- */

static ebb_status rename_grad(reverse *r, ebb_value grad, ebb_value of, int part)
{
    char name[512];
    if (part < 0)
        (void)snprintf(name, sizeof name, "%.500s_grad", ebb_value_name(r->g, of));
    else
        (void)snprintf(name, sizeof name, "%.480s_grad_%d", ebb_value_name(r->g, of), part);
    // A gradient that is passed on unchanged is one value with one name, that of the later tensor.
    const char *old = ebb_value_name(r->g, grad);
    size_t length = strlen(old);
    bool final = length > 5 && strcmp(old + length - 5, "_grad") == 0;
    if (final || ebb_value_find(r->g, name).i != 0)
        return NULL;
    return ebb_value_rename(r->g, grad, name);
}

static ebb_status check_shape(reverse *r, ebb_node n, ebb_value x, ebb_value dx)
{
    const ebb_type *want = &ebb_value_of(r->g, x)->type, *have = &ebb_value_of(r->g, dx)->type;
    if (ebb_type_same_shape(want, have) && want->dtype == have->dtype)
        return NULL;
    char a[256], b[256];
    ebb_type_print(a, sizeof a, want, &r->g->model->names);
    ebb_type_print(b, sizeof b, have, &r->g->model->names);
    return ebb_error(EBB_VERIFY, "%s: '%s' is %s and its gradient %s", ebb_node_label(r->g, n),
                     ebb_value_name(r->g, x), a, b);
}

static ebb_status contribute(reverse *r, ebb_value x, ebb_value dx)
{
    if (r->grad[x.i].i == 0) {
        r->grad[x.i] = dx;
        r->parts[x.i] = 1;
        return NULL;
    }
    if (r->parts[x.i] == 1)
        EBB_TRY(rename_grad(r, r->grad[x.i], x, 0));
    EBB_TRY(rename_grad(r, dx, x, (int)r->parts[x.i]));
    char name[512];
    (void)snprintf(name, sizeof name, "AccumulateGrad_%.480s_grad", ebb_value_name(r->g, x));
    r->b.name = name;
    r->grad[x.i] = ebb_emit(&r->b, EBB_OP_ADD, r->grad[x.i], dx);
    r->b.name = NULL;
    r->parts[x.i]++;
    return r->b.status;
}

/* The loss was scaled, and so is every gradient; the parameter's own shall be what it is. */
static ebb_status undo_scale(reverse *r, ebb_value *grad, ebb_value x, const char *name)
{
    char scaled[520];
    (void)snprintf(scaled, sizeof scaled, "%s.scaled", name);
    if (strcmp(ebb_value_name(r->g, *grad), name) == 0)
        EBB_TRY(ebb_value_rename(r->g, *grad, ebb_text(r->g, ebb_graph_fresh(r->g, scaled))));
    r->b.name = ebb_value_name(r->g, x);
    ebb_with_name(&r->b, name);
    *grad = ebb_emit(&r->b, EBB_OP_MUL, *grad, r->unscale);
    r->b.name = NULL;
    r->grad[x.i] = *grad;
    return r->b.status;
}

/* All contributions are in: a parameter's gradient becomes an output. */
static ebb_status finish(reverse *r, ebb_value x)
{
    ebb_value grad = r->grad[x.i];
    if (grad.i == 0)
        return NULL;
    EBB_TRY(rename_grad(r, grad, x, -1));
    if (!r->trains[x.i])
        return NULL;
    char name[512];
    (void)snprintf(name, sizeof name, "%.500s_grad", ebb_value_name(r->g, x));
    if (r->unscale.i != 0)
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
 * trains it; ONNX has no word for it, so the zeros are all that tells. */
static int64_t padding_row(const ebb_graph *g, ebb_value w)
{
    const ebb_tensor *t = ebb_value_of(g, w)->tensor;
    if (t == NULL || t->data == NULL || t->type.rank != 2 || t->type.dtype != EBB_F32)
        return -1;
    size_t columns = (size_t)t->type.dims[1] * sizeof(float);
    const unsigned char *rows = t->data;
    int64_t found = -1;
    for (int64_t i = 0; i < t->type.dims[0] && columns > 0; i++) {
        const unsigned char *row = rows + (size_t)i * columns;
        if (row[0] != 0 || memcmp(row, row + 1, columns - 1) != 0)
            continue;
        if (found >= 0)
            return -1; // several: weights that start at zero, not padding
        found = i;
    }
    return t->type.dims[0] > 1 ? found : -1;
}

/* Zeroes that row of a Gather's contribution. */
static ebb_status leave_padding(reverse *r, ebb_node n, ebb_value w, ebb_value *dw)
{
    ebb_graph *g = r->g;
    ebb_attrs attrs = ebb_node_attrs(g, n);
    int64_t row = ebb_attr_int(&attrs, "axis", 0) == 0 ? padding_row(g, w) : -1;
    if (row < 0 || !r->trains[w.i] || strcmp(ebb_option_string(r->e, "padding"), "keep") != 0)
        return NULL;
    int64_t dims[2] = {ebb_value_of(g, w)->type.dims[0], 1};
    ebb_type type = ebb_type_tensor(EBB_F32, 2, dims);
    float *ones = EBB_SCRATCH(r->e, float, (size_t)dims[0]);
    if (ones == NULL)
        return ebb_error_memory();
    for (int64_t i = 0; i < dims[0]; i++)
        ones[i] = i == row ? 0.0f : 1.0f;
    *dw = ebb_emit(&r->b, EBB_OP_MUL, *dw, ebb_const_tensor(&r->b, &type, ones));
    EBB_TRY(r->b.status);
    return ebb_note(r->e, "row %lld of '%s' is zero as a padding row is, and stays so",
                    (long long)row, ebb_value_name(g, w));
}

/* ---- one node ---- */

static ebb_status visit(reverse *r, ebb_node n)
{
    ebb_graph *g = r->g;
    const ebb_node_info *info = ebb_node_of(g, n);
    uint32_t in_count = info->in_count, out_count = info->out_count;
    ebb_value *x = EBB_SCRATCH(r->e, ebb_value, in_count + 1u);
    ebb_value *dx = EBB_SCRATCH(r->e, ebb_value, in_count + 1u);
    bool *wants = EBB_SCRATCH(r->e, bool, in_count + 1u);
    ebb_value *y = EBB_SCRATCH(r->e, ebb_value, out_count + 8u);
    ebb_value *dy = EBB_SCRATCH(r->e, ebb_value, out_count + 8u);
    if (x == NULL || dx == NULL || wants == NULL || y == NULL || dy == NULL)
        return ebb_error_memory();
    bool any = false;
    for (uint32_t i = 0; i < in_count; i++) {
        x[i] = info->in[i];
        wants[i] = x[i].i != 0 && r->wants[x[i].i];
    }
    for (uint32_t o = 0; o < out_count; o++) {
        y[o] = info->out[o];
        dy[o] = y[o].i != 0 ? r->grad[y[o].i] : EBB_NO_VALUE;
        any = any || dy[o].i != 0;
    }
    if (any) {
        const char *own = ebb_text(g, info->name);
        char *name = ebb_arena_printf(r->e->scratch, "%s_Grad",
                                      own[0] != '\0' ? own : ebb_value_name(g, y[0]));
        if (name == NULL)
            return ebb_error_memory();
        ebb_grad c = {n, in_count, out_count, x, y, dy, wants, dx, ebb_node_attrs(g, n)};
        r->b.name = name;
        ebb_op_row_of(info->op)->grad(&r->b, &c);
        r->b.name = NULL;
        if (ebb_status_code(r->b.status) == EBB_UNSUPPORTED) { // go on, to name the others too
            EBB_TRY(add_unsupported(r, ebb_status_text(r->b.status)));
            r->b.status = NULL;
            memset(dx, 0, in_count * sizeof *dx);
        }
        EBB_TRY(ebb_while(r->b.status, "making the gradient of %s", ebb_node_label(g, n)));
    }
    for (uint32_t i = 0; i < in_count; i++) {
        if (!wants[i] || dx[i].i == 0)
            continue;
        EBB_TRY(check_shape(r, n, x[i], dx[i]));
        if (i == 0 && ebb_node_of(r->g, n)->op == EBB_OP_GATHER)
            EBB_TRY(leave_padding(r, n, x[i], &dx[i]));
        EBB_TRY(contribute(r, x[i], dx[i]));
    }
    for (uint32_t i = 0; i < in_count; i++) // twice in one node counts twice
        if (wants[i] && --r->left[x[i].i] == 0)
            EBB_TRY(finish(r, x[i]));
    return NULL;
}

/* What pass precision asks for in float16, as a state that the optimizer replaces. */
static ebb_status loss_scale(reverse *r, ebb_value *scale)
{
    ebb_graph *g = r->g;
    const char *text = ebb_props_get(g, &g->model->props, "ebb.loss_scale");
    float start = text != NULL ? strtof(text, NULL) : 0;
    ebb_type type = ebb_type_tensor(EBB_F32, 0, NULL);
    if (text == NULL)
        return NULL;
    if (!(start >= 1 && start <= 0x1p24f)) // a file may say anything
        return ebb_error(EBB_REJECTED, "gradient: the model's ebb.loss_scale is '%.40s'", text);
    return ebb_graph_add_initializer(g, scale, "ebb.loss_scale", &type, &start, EBB_ROLE_OPTIMIZER);
}

static ebb_status seed(reverse *r)
{
    ebb_graph *g = r->g;
    const ebb_type *type = &ebb_value_of(g, g->loss)->type;
    ebb_value one = EBB_NO_VALUE;
    EBB_TRY(loss_scale(r, &one));
    if (one.i != 0) {
        r->b.name = "ebb.loss_scale";
        r->unscale = ebb_emit(&r->b, EBB_OP_RECIPROCAL, one);
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

static ebb_status prepare(reverse *r)
{
    ebb_graph *g = r->g;
    ebb_arena *scratch = r->e->scratch;
    r->value_count = g->value_count;
    r->trains = EBB_NEW(scratch, bool, g->value_count);
    r->wants = EBB_NEW(scratch, bool, g->value_count);
    r->counts = EBB_NEW(scratch, bool, g->value_count);
    r->grad = EBB_NEW(scratch, ebb_value, g->value_count);
    r->parts = EBB_NEW(scratch, uint32_t, g->value_count);
    r->left = EBB_NEW(scratch, uint32_t, g->value_count);
    r->order = EBB_NEW(scratch, ebb_node, g->node_count);
    if (r->trains == NULL || r->wants == NULL || r->counts == NULL || r->grad == NULL ||
        r->parts == NULL || r->left == NULL || r->order == NULL)
        return ebb_error_memory();
    EBB_EACH_NODE(g, n)
    {
        ebb_node_info *info = ebb_node_of(g, n);
        if (info->phase == EBB_PHASE_NONE)
            info->phase = EBB_FORWARD;
        if (info->phase != EBB_UPDATE)
            r->order[r->node_count++] = n;
    }
    return NULL;
}

static void set_roles(reverse *r)
{
    for (size_t i = 0; i < r->g->initializer_count; i++) {
        ebb_value v = r->g->initializers[i];
        if (v.i >= r->value_count || !ebb_trainable_candidate(r->g, v))
            continue;
        bool weight = r->trains[v.i] || !ebb_name_is_anonymous(ebb_value_name(r->g, v));
        if (weight && ebb_value_of(r->g, v)->type.rank > 0)
            ebb_value_of(r->g, v)->role =
                (uint8_t)(r->trains[v.i] ? EBB_ROLE_PARAMETER : EBB_ROLE_FROZEN);
        else if (r->trains[v.i])
            ebb_value_of(r->g, v)->role = EBB_ROLE_PARAMETER;
    }
}

static ebb_status run(ebb_edit *e)
{
    ebb_graph *g = e->g;
    reverse r = {.e = e, .g = g};
    if (g->loss.i == 0)
        return ebb_hint(ebb_error(EBB_USAGE, "gradient: the graph has no loss"),
                        "append one with --loss cross-entropy, or name an output: loss:name=NAME");
    EBB_EACH_NODE(g, n)
    if (ebb_node_of(g, n)->phase == EBB_BACKWARD)
        return ebb_declined(e, n, "the graph has a backward already");
    EBB_TRY(ebb_require_static(g));
    EBB_TRY(prepare(&r));
    EBB_TRY(choose_parameters(&r));
    memcpy(r.wants, r.trains, g->value_count * sizeof *r.wants);
    mark_forwards(&r);
    mark_backwards(&r);
    if (!r.counts[g->loss.i])
        return ebb_error(EBB_USAGE, "gradient: loss '%s' depends on no parameter",
                         ebb_value_name(g, g->loss));
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
    EBB_TRY(find_unsupported(&r));
    EBB_TRY(say_unsupported(&r));
    set_roles(&r); // from here on a weight is no constant, whatever rule asks
    r.b = ebb_edit_build(e, ebb_first_update(g), EBB_BACKWARD);
    r.b.phase = EBB_BACKWARD;
    EBB_TRY(seed(&r));
    for (size_t k = r.node_count; k-- > 0;)
        if (is_on_the_way(&r, r.order[k]))
            EBB_TRY(visit(&r, r.order[k]));
    return say_unsupported(&r);
}

// clang-format off
static const ebb_option options[] = {
    {"train",  EBB_OPTION_STRING, NULL, NULL, "patterns of the weights to train, separated by ; or space"},
    {"freeze", EBB_OPTION_STRING, NULL, NULL, "patterns of the weights not to train"},
    {"padding", EBB_OPTION_CHOICE, "keep", "keep|train", "an embedding's one row of zeros: keep it zero, or train it"},
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
