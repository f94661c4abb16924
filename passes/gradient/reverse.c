/* reverse.c: reverse mode over the operator table, for whoever wants gradients.
 *
 * Each node on a way from what is differentiated by to what is differentiated is visited once, last
 * first, when the gradients of all its outputs are complete; its rule (ebb_grad_*) emits what its
 * inputs get. Where a value is read several times, contributions are added as they come, so that
 * only one sum is alive.
 */
#include "passes/gradient/reverse.h"

#include <stdio.h>

#include "onnx/graph/infer.h"
#include "passes/common.h"
#include "passes/gradient/loop.h"
#include "passes/parameters/noted.h"

/* ---- what lies between a parameter and the loss ---- */

static bool is_float(const ebb_graph *g, ebb_value v)
{
    const ebb_type *type = ebb_value_of(g, v)->type;
    return type->dtype == EBB_NONE || ebb_dtype_is_float((ebb_dtype)type->dtype);
}

/* The value that a body of If, Loop or Scan reads from outside as v; none: v is its own. */
static ebb_value captured(const ebb_reverse *r, const ebb_graph *body, ebb_value v)
{
    ebb_value found = ebb_body_outside(r->g, body, v);
    return found.i < r->value_count ? found : EBB_NO_VALUE;
}

/* Whether a body of n reads what is wanted: no input of n shows it. mark: note that y depends on
 * that, and that n is one more way there. */
static bool body_wants(const ebb_reverse *r, ebb_node n, bool mark)
{
    bool any = false;
    EBB_EACH_BODY(ebb_node_of(r->g, n), body)
        EBB_EACH_VALUE(*body, v) {
            ebb_value outside = captured(r, *body, v);
            if (outside.i == 0 || !r->wants[outside.i])
                continue;
            any = true;
            if (!mark)
                continue;
            r->counts[outside.i] = true;
            r->left[outside.i]++;
        }
    return any;
}

static bool node_wants(const ebb_reverse *r, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(r->g, n);
    for (uint32_t i = 0; i < info->in_count; i++)
        if (info->in[i].i != 0 && r->wants[info->in[i].i])
            return true;
    return body_wants(r, n, false);
}

/* PyTorch's fake_quantize is QuantizeLinear and DequantizeLinear in a file, and its gradient goes straight
 * through; Round and the like stop theirs unless it is asked for. */
static bool is_passed(const ebb_reverse *r, ebb_op op)
{
    return op == EBB_OP_QUANTIZE_LINEAR || op == EBB_OP_DYNAMIC_QUANTIZE_LINEAR ||
           (r->straight && ebb_op_has(op, EBB_STEPS));
}

/* Straight through a step, to its first output. What has another dtype than x is a code: its
 * gradient is that of a number, in the float of its readers. */
static void mark_step(ebb_reverse *r, const ebb_node_info *info)
{
    ebb_value x = info->in[0], y = info->out[0];
    if (y.i == 0 || x.i == 0 || !r->wants[x.i])
        return;
    r->wants[y.i] = true;
    r->codes[y.i] = ebb_value_of(r->g, x)->type->dtype != ebb_value_of(r->g, y)->type->dtype;
}

/* Codes that are moved or clipped are codes still; the rules of these read no float of them. */
static bool moves_codes(const ebb_reverse *r, const ebb_node_info *info)
{
    bool moves = ebb_op_has(info->op, EBB_VIEW) || info->op == EBB_OP_TRANSPOSE ||
                 info->op == EBB_OP_SLICE || info->op == EBB_OP_GATHER ||
                 info->op == EBB_OP_CONCAT || info->op == EBB_OP_CLIP;
    for (uint32_t i = 0; moves && i < info->in_count; i++)
        if (info->in[i].i != 0 && r->codes[info->in[i].i])
            return true;
    return false;
}

static void mark_forwards(ebb_reverse *r)
{
    for (size_t k = 0; k < r->node_count; k++) {
        ebb_node n = r->order[k];
        const ebb_node_info *info = ebb_node_of(r->g, n);
        if (is_passed(r, info->op))
            mark_step(r, info);
        if (ebb_stops_gradient(r->g, n) || !node_wants(r, n))
            continue;
        bool codes = moves_codes(r, info);
        for (uint32_t o = 0; o < info->out_count; o++) {
            ebb_value y = info->out[o];
            if (y.i == 0 || !(is_float(r->g, y) || codes) || (r->leaf != NULL && r->leaf[y.i]))
                continue;
            r->wants[y.i] = true;
            r->codes[y.i] = codes;
        }
    }
}

static void mark_backwards(ebb_reverse *r)
{
    if (r->ys == NULL)
        r->counts[r->y.i] = r->wants[r->y.i];
    for (size_t v = 0; r->ys != NULL && v < r->value_count; v++)
        r->counts[v] = r->ys[v] && r->wants[v];
    for (size_t k = r->node_count; k-- > 0;) {
        const ebb_node_info *info = ebb_node_of(r->g, r->order[k]);
        bool reached = false;
        for (uint32_t o = 0; o < info->out_count; o++)
            reached = reached || (info->out[o].i != 0 && r->counts[info->out[o].i]);
        if (!reached)
            continue;
        (void)body_wants(r, r->order[k], true);
        for (uint32_t i = 0; i < info->in_count; i++) {
            if (info->in[i].i == 0 || !r->wants[info->in[i].i])
                continue;
            r->counts[info->in[i].i] = true;
            r->left[info->in[i].i]++;
        }
    }
}

bool ebb_reverse_passes(const ebb_reverse *r, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(r->g, n);
    for (uint32_t o = 0; o < info->out_count; o++)
        if (info->out[o].i != 0 && info->out[o].i < r->value_count && r->counts[info->out[o].i])
            return node_wants(r, n);
    return false;
}

/* ---- what has no rule ---- */

static ebb_status add_unsupported(ebb_reverse *r, ebb_node n, const char *sentence)
{
    char *kept = ebb_arena_strdup(r->e->scratch, sentence);
    EBB_GOT(kept && ebb_arena_grow(r->e->scratch, &r->unsupported, r->unsupported_count,
                                   &r->unsupported_capacity, sizeof *r->unsupported));
    r->unsupported[r->unsupported_count++] = (ebb_no_gradient){n, kept};
    return NULL;
}

ebb_status ebb_reverse_find_unsupported(ebb_reverse *r)
{
    for (size_t k = 0; k < r->node_count; k++) {
        ebb_node n = r->order[k];
        const ebb_op op = ebb_node_of(r->g, n)->op;
        if (ebb_reverse_passes(r, n) && !ebb_op_has_grad(op) && op != EBB_OP_SCAN)
            EBB_TRY(add_unsupported(r, n, ebb_node_label(r->g, n)));
    }
    return NULL;
}

/* PyTorch's exporter writes a bag that leaves a row out as a loop over a sequence, and its other one refuses it. */
static bool is_of_bag(const ebb_reverse *r)
{
    for (size_t i = 0; i < r->unsupported_count; i++) {
        const ebb_node_info *info = ebb_node_of(r->g, r->unsupported[i].node);
        const char *call = ebb_props_get(r->g, &info->props, EBB_NOTED_CALL);
        if (call != NULL && strstr(call, "aten.embedding_bag.padding_idx]") != NULL)
            return true;
    }
    return false;
}

ebb_status ebb_reverse_say_unsupported(const ebb_reverse *r)
{
    static const char any[] =
        "--freeze what lies before them, or normalise first (inline,fold,unroll,fuse)";
    static const char bag[] =
        "PyTorch exports nn.EmbeddingBag with padding_idx as a loop that has no gradient: export "
        "it without padding_idx, or, where it sums, nn.Embedding(..., padding_idx=...)(x).sum(1)";
    enum { NAMED = 40 }; // a message for people
    const char *all = "";
    if (r->unsupported_count == 0)
        return NULL;
    for (size_t i = 0; i < r->unsupported_count && i < NAMED && all != NULL; i++)
        all = ebb_arena_printf(r->e->scratch, "%s%s%s", all, i > 0 ? "; " : "",
                               r->unsupported[i].sentence);
    EBB_GOT(all);
    return ebb_hint(ebb_error(EBB_UNSUPPORTED, "no gradient for %zu node%s: %s",
                              r->unsupported_count, r->unsupported_count == 1 ? "" : "s", all),
                    "%s", is_of_bag(r) ? bag : any);
}

/* ---- contributions ---- */

ebb_status ebb_reverse_name(ebb_reverse *r, ebb_value grad, ebb_value of, int part)
{
    char name[512];
    if (r->nameless || ebb_value_of(r->g, grad)->role == EBB_ROLE_OPTIMIZER)
        return NULL; // ebb.loss_scale is looked for by its name
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

/* What x is made of had sizes up to a node that chooses by values, as NonZero does: that is named.
 */
static ebb_status no_size(const ebb_graph *g, ebb_node n, ebb_value x, const char *type)
{
    char by[200] = "";
    ebb_node first = EBB_NO_NODE;
    for (ebb_node k = ebb_first(g); k.i != 0 && first.i == 0; k = ebb_next(g, k)) {
        const ebb_node_info *info = ebb_node_of(g, k);
        if (ebb_values_have_sizes(g, info->in, info->in_count) &&
            !ebb_values_have_sizes(g, info->out, info->out_count))
            first = k;
    }
    if (first.i != 0)
        (void)snprintf(by, sizeof by, " (it begins with %.170s)", ebb_node_label(g, first));
    return ebb_hint(ebb_error(EBB_UNSUPPORTED, "%s: '%s' is %s, a size that hangs on values%s",
                              ebb_node_label(g, n), ebb_value_name(g, x), type, by),
                    ebb_help_of_sizes(g, first));
}

static ebb_status check_shape(ebb_reverse *r, ebb_node n, ebb_value x, ebb_value dx)
{
    const ebb_type *want = ebb_value_of(r->g, x)->type, *have = ebb_value_of(r->g, dx)->type;
    bool fits =
        r->codes[x.i] ? ebb_dtype_is_float((ebb_dtype)have->dtype) : want->dtype == have->dtype;
    if (ebb_type_same_shape(want, have) && fits)
        return NULL;
    char a[256], b[256];
    ebb_type_print(a, sizeof a, want, &r->g->model->names);
    ebb_type_print(b, sizeof b, have, &r->g->model->names);
    if (!ebb_type_is_static(want))
        return no_size(r->g, n, x, a);
    return ebb_error(EBB_VERIFY, "%s: '%s' is %s and its gradient %s", ebb_node_label(r->g, n),
                     ebb_value_name(r->g, x), a, b);
}

static ebb_status contribute(ebb_reverse *r, ebb_value x, ebb_value dx)
{
    if (r->grad[x.i].i == 0) {
        r->grad[x.i] = dx;
        r->parts[x.i] = 1;
        return NULL;
    }
    if (r->parts[x.i] == 1)
        EBB_TRY(ebb_reverse_name(r, r->grad[x.i], x, 0));
    EBB_TRY(ebb_reverse_name(r, dx, x, (int)r->parts[x.i]));
    char name[512];
    (void)snprintf(name, sizeof name, "AccumulateGrad_%.480s_grad", ebb_value_name(r->g, x));
    r->b.name = name;
    r->grad[x.i] = ebb_emit(&r->b, EBB_OP_ADD, r->grad[x.i], dx);
    r->b.name = NULL;
    r->parts[x.i]++;
    return r->b.status;
}

/* ---- one node ---- */

/* What the body of n reads by its name, and is wanted. */
static ebb_status list_captured(ebb_reverse *r, ebb_node n, ebb_captured_grad **list, size_t *count)
{
    const ebb_graph *body = ebb_node_body(r->g, n, "body");
    *list = EBB_SCRATCH(r->e, ebb_captured_grad, body->value_count);
    *count = 0;
    EBB_GOT(*list);
    EBB_EACH_VALUE(body, v) {
        ebb_value outside = captured(r, body, v);
        if (outside.i != 0 && r->wants[outside.i])
            (*list)[(*count)++] = (ebb_captured_grad){outside, EBB_NO_VALUE};
    }
    return NULL;
}

static ebb_status visit(ebb_reverse *r, ebb_node n)
{
    ebb_graph *g = r->g;
    const ebb_node_info *info = ebb_node_of(g, n);
    uint32_t in_count = info->in_count, out_count = info->out_count;
    ebb_value *x = EBB_SCRATCH(r->e, ebb_value, in_count + 1u);
    ebb_value *read = EBB_SCRATCH(r->e, ebb_value, in_count + 1u);
    ebb_value *dx = EBB_SCRATCH(r->e, ebb_value, in_count + 1u);
    bool *wants = EBB_SCRATCH(r->e, bool, in_count + 1u);
    ebb_value *y = EBB_SCRATCH(r->e, ebb_value, out_count + 8u);
    ebb_value *dy = EBB_SCRATCH(r->e, ebb_value, out_count + 8u);
    EBB_GOT(x && read && dx && wants && y && dy);
    bool any = false;
    ebb_captured_grad *names = NULL;
    size_t name_count = 0;
    if (info->op == EBB_OP_SCAN)
        EBB_TRY(list_captured(r, n, &names, &name_count));
    for (size_t i = 0; i < name_count; i++)
        names[i].dx = r->grad[names[i].x.i];
    for (uint32_t i = 0; i < in_count; i++) {
        x[i] = read[i] = info->in[i];
        wants[i] = x[i].i != 0 && r->wants[x[i].i];
    }
    for (uint32_t o = 0; o < out_count; o++) {
        y[o] = info->out[o];
        dy[o] = y[o].i != 0 ? r->grad[y[o].i] : EBB_NO_VALUE;
        any = any || dy[o].i != 0;
    }
    if (any && info->op == EBB_OP_UNKNOWN) { // told of before; a caller may want to hear the others
        EBB_TRY(add_unsupported(r, n, ebb_node_label(g, n)));
    } else if (any) {
        char *name = ebb_arena_printf(r->e->scratch, "%s_Grad", ebb_node_name(g, n));
        EBB_GOT(name);
        if (r->reads != NULL)
            EBB_TRY(r->reads(r, n, read));
        ebb_grad c = {n, in_count, out_count, read, y, dy, wants, dx, ebb_node_attrs(g, n)};
        r->b.name = name;
        if (info->op == EBB_OP_SCAN)
            ebb_build_fail(&r->b, ebb_loop_grad(r, n, dy, wants, dx, names, name_count));
        else
            ebb_grad_rule(&r->b, info->op, &c);
        r->b.name = NULL;
        if (ebb_status_code(r->b.status) == EBB_UNSUPPORTED) { // go on, to name the others too
            EBB_TRY(add_unsupported(r, n, ebb_status_text(r->b.status)));
            r->b.status = NULL;
            memset(dx, 0, in_count * sizeof *dx);
        }
        EBB_TRY(ebb_while(r->b.status, "making the gradient of %s", ebb_node_label(g, n)));
    }
    for (size_t i = 0; i < name_count; i++)
        if (!ebb_same_value(names[i].dx, r->grad[names[i].x.i])) {
            EBB_TRY(check_shape(r, n, names[i].x, names[i].dx));
            r->grad[names[i].x.i] = names[i].dx; // its sum so far is in it
            r->parts[names[i].x.i]++;
        }
    for (uint32_t i = 0; i < in_count; i++) {
        if (!wants[i] || dx[i].i == 0)
            continue;
        EBB_TRY(check_shape(r, n, x[i], dx[i]));
        if (r->adjust != NULL)
            EBB_TRY(r->adjust(r, n, i, &dx[i]));
        EBB_TRY(contribute(r, x[i], dx[i]));
    }
    for (size_t i = 0; i < name_count; i++)
        if (--r->left[names[i].x.i] == 0 && r->finish != NULL)
            EBB_TRY(r->finish(r, names[i].x));
    for (uint32_t i = 0; i < in_count; i++) // twice in one node counts twice
        if (wants[i] && --r->left[x[i].i] == 0 && r->finish != NULL)
            EBB_TRY(r->finish(r, x[i]));
    return NULL;
}

/* ---- all ---- */

ebb_status ebb_reverse_open(ebb_reverse *r, ebb_node end)
{
    const ebb_graph *g = r->g;
    ebb_arena *scratch = r->e->scratch;
    r->value_count = g->value_count;
    r->trains = EBB_NEW(scratch, bool, g->value_count);
    r->wants = EBB_NEW(scratch, bool, g->value_count);
    r->counts = EBB_NEW(scratch, bool, g->value_count);
    r->codes = EBB_NEW(scratch, bool, g->value_count);
    r->grad = EBB_NEW(scratch, ebb_value, g->value_count);
    r->parts = EBB_NEW(scratch, uint32_t, g->value_count);
    r->left = EBB_NEW(scratch, uint32_t, g->value_count);
    r->order = EBB_NEW(scratch, ebb_node, g->node_count);
    EBB_GOT(r->trains && r->wants && r->counts && r->codes && r->grad && r->parts && r->left &&
            r->order);
    for (ebb_node n = ebb_first(g); n.i != 0 && !ebb_same_node(n, end); n = ebb_next(g, n))
        if (ebb_node_of(g, n)->phase != EBB_UPDATE)
            r->order[r->node_count++] = n;
    return NULL;
}

void ebb_reverse_mark(ebb_reverse *r)
{
    memcpy(r->wants, r->trains, r->value_count * sizeof *r->wants);
    mark_forwards(r);
    mark_backwards(r);
}

ebb_status ebb_reverse_run(ebb_reverse *r)
{
    for (size_t k = r->node_count; k-- > 0;)
        if (ebb_reverse_passes(r, r->order[k]))
            EBB_TRY(visit(r, r->order[k]));
    return ebb_reverse_say_unsupported(r);
}
