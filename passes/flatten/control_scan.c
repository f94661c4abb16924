/* control_scan.c: Scan becomes as many copies of its body as its inputs are long.
 *
 *   before   h, all = Scan (h0, x [2, N]) <body = b (h, slice) => (h2, out)>
 *   after    x0, x1 = Split (x)                   once, so that its gradient is put together once
 *            x/0/h2 = b(h0, x0)  h = b(x/0/h2, x1)  all = Concat (Unsqueeze (x/0/out), ...)
 */
#include "passes/flatten/control.h"

/* x in `count` slices along an axis, which goes. */
static ebb_status slices(ebb_unroll *u, ebb_build *b, ebb_value x, int64_t axis, int64_t count,
                         ebb_value *out)
{
    if (count == 1) {
        out[0] = ebb_unroll_one_axis(b, EBB_OP_SQUEEZE, x, axis);
        return b->status;
    }
    int64_t *ones = EBB_SCRATCH(u->e, int64_t, (size_t)count);
    EBB_GOT(ones);
    for (int64_t i = 0; i < count; i++)
        ones[i] = 1;
    bool as_input = ebb_model_opset(u->g->model, EBB_DOMAIN_ONNX) >= 13;
    ebb_value in[2] = {x, as_input ? ebb_const_ints(b, ones, (uint32_t)count) : EBB_NO_VALUE};
    ebb_with_int(b, "axis", axis);
    if (!as_input)
        ebb_with_ints(b, "split", ones, (uint32_t)count);
    ebb_emit_node(b, EBB_OP_SPLIT, in, 2, out, (uint32_t)count, UINT32_MAX);
    for (int64_t i = 0; i < count; i++)
        out[i] = ebb_unroll_one_axis(b, EBB_OP_SQUEEZE, out[i], axis);
    return b->status;
}

/* ---- Scan ---- */

typedef struct scan {
    const ebb_graph *graph;
    const char *place;
    size_t given, states, inputs; /* given: states and inputs, which the node gives the body */
    size_t outputs;               /* those that are put together */
    bool batched;                 /* opset 8: a batch is the first axis of everything */
    uint32_t first;               /* the node's first operand: opset 8 has lengths before */
    int64_t batch, length;
    ebb_body body;
} scan;

static int64_t list_item(const ebb_unroll *u, ebb_node n, const char *name, size_t i)
{
    ebb_attrs attrs = ebb_node_attrs(u->g, n);
    uint32_t count;
    const int64_t *list = ebb_attr_ints(&attrs, name, &count);
    return list != NULL && i < count ? list[i] : 0;
}

/* Its axis counted from the start, and how long it is; -1: not known. */
static int64_t axis_of(const ebb_unroll *u, ebb_value x, int64_t axis, int64_t *length)
{
    const ebb_type *type = ebb_value_of(u->g, x)->type;
    *length = -1;
    if (type->rank < 0)
        return -1;
    axis = axis < 0 ? axis + type->rank : axis;
    if (axis >= 0 && axis < type->rank)
        *length = type->dims[axis];
    return *length < 0 ? -1 : axis;
}

static ebb_status open_scan(ebb_unroll *u, scan *s, ebb_node n, const char **why)
{
    const ebb_node_info *info = ebb_node_of(u->g, n);
    ebb_attrs attrs = ebb_node_attrs(u->g, n);
    s->graph = ebb_node_body(u->g, n, "body");
    s->batched = ebb_model_opset(u->g->model, EBB_DOMAIN_ONNX) < 9;
    s->first = s->batched ? 1 : 0;
    s->place = ebb_unroll_place(u, n);
    s->inputs = (size_t)ebb_attr_int(&attrs, "num_scan_inputs", 0);
    s->given = info->in_count - s->first;
    s->states = s->given - s->inputs;
    s->outputs = s->graph->output_count - s->states;
    s->batch = 1;
    s->length = -1;
    for (size_t i = 0; i < s->inputs && *why == NULL; i++) {
        ebb_value x = ebb_in(u->g, n, (uint32_t)(s->first + s->states + i));
        int64_t length, axis = s->batched ? 1 : list_item(u, n, "scan_input_axes", i);
        if (axis_of(u, x, axis, &length) < 0)
            *why = "how long its inputs are is not known: bind their sizes (--dim)";
        else if (s->length >= 0 && s->length != length)
            return ebb_error(EBB_REJECTED, "%s: its inputs are of %lld and of %lld steps",
                             ebb_node_label(u->g, n), (long long)s->length, (long long)length);
        else
            s->length = length;
        if (*why == NULL && s->batched && axis_of(u, x, 0, &s->batch) < 0)
            *why = "its batch has no known size: bind it (--dim)";
    }
    if (*why == NULL && s->batched && ebb_in(u->g, n, 0).i != 0)
        *why = "its sequences have lengths of their own";
    if (*why == NULL && (s->length > u->most || s->batch > u->most / (s->length + 1) + 1))
        *why = "it would become more copies of its body than option `most` allows";
    const size_t room = EBB_BODY_NODES - (u->nodes < EBB_BODY_NODES ? u->nodes : EBB_BODY_NODES);
    if (*why == NULL &&
        (double)s->length * (double)s->batch * (double)s->graph->node_count > (double)room)
        *why = "its copies would be too many nodes";
    if (*why == NULL && (s->length < 1 || s->batch < 1))
        *why = "it has no steps";
    return ebb_body_open(u->e, &s->body, s->graph);
}

/* One sequence: its slices already taken. state: first and last. made: by output, one value a step.
 */
static ebb_status steps(ebb_unroll *u, scan *s, ebb_node n, const char *place, ebb_value *state,
                        ebb_value *const *sliced, ebb_value *const *made)
{
    ebb_value *in = EBB_SCRATCH(u->e, ebb_value, s->given);
    ebb_value *out = EBB_SCRATCH(u->e, ebb_value, s->graph->output_count + 1);
    const char *back = s->batched ? "directions" : "scan_input_directions";
    EBB_GOT(in && out);
    for (int64_t t = 0; t < s->length; t++) {
        memcpy(in, state, s->states * sizeof *in);
        for (size_t i = 0; i < s->inputs; i++)
            in[s->states + i] = sliced[i][list_item(u, n, back, i) == 1 ? s->length - 1 - t : t];
        const char *at = ebb_arena_printf(u->e->scratch, "%s/%lld", place, (long long)t);
        EBB_GOT(at);
        EBB_TRY(ebb_unroll_copy(u, &s->body, n, at, in, s->given, out));
        memcpy(state, out, s->states * sizeof *out);
        for (size_t k = 0; k < s->outputs; k++) {
            bool last_first = !s->batched && list_item(u, n, "scan_output_directions", k) == 1;
            made[k][last_first ? s->length - 1 - t : t] = out[s->states + k];
        }
    }
    return NULL;
}

static ebb_value **table(const ebb_unroll *u, size_t rows, int64_t columns)
{
    ebb_value **list = EBB_SCRATCH(u->e, ebb_value *, rows + 1);
    for (size_t i = 0; list != NULL && i < rows; i++) {
        list[i] = EBB_SCRATCH(u->e, ebb_value, (size_t)columns);
        if (list[i] == NULL)
            return NULL;
    }
    return list;
}

/* What the operands of one sequence are. in: of the node, or of one element of the batch. */
static ebb_status one_scan(ebb_unroll *u, scan *s, ebb_node n, const char *place,
                           const ebb_value *in, ebb_value *out)
{
    ebb_value **sliced = table(u, s->inputs, s->length), **made = table(u, s->outputs, s->length);
    EBB_GOT(sliced && made);
    ebb_build b = ebb_unroll_build(u, n, place);
    for (size_t i = 0; i < s->inputs; i++) {
        int64_t length, axis = s->batched ? 0 : list_item(u, n, "scan_input_axes", i);
        ebb_value x = in[s->states + i];
        EBB_TRY(slices(u, &b, x, axis_of(u, x, axis, &length), s->length, sliced[i]));
    }
    memcpy(out, in, s->states * sizeof *out);
    EBB_TRY(steps(u, s, n, place, out, sliced, made));
    for (size_t k = 0; k < s->outputs; k++) {
        int64_t axis = s->batched ? 0 : list_item(u, n, "scan_output_axes", k);
        int rank = ebb_value_of(u->g, made[k][0])->type->rank;
        if (axis < 0)
            axis += rank + 1;
        if (rank < 0 || axis < 0 || axis > rank)
            return ebb_error(EBB_REJECTED, "%s: output %zu has no axis %lld",
                             ebb_node_label(u->g, n), s->states + k, (long long)axis);
        out[s->states + k] = ebb_unroll_stack(&b, u->e->scratch, made[k], (size_t)s->length, axis);
    }
    return b.status;
}

/* Opset 8: each element of the batch by itself. */
static ebb_status scan_batch(ebb_unroll *u, scan *s, ebb_node n, const ebb_value *in,
                             ebb_value *out)
{
    ebb_value **parts = table(u, s->given, s->batch);
    ebb_value **made = table(u, s->graph->output_count, s->batch);
    ebb_value *one = EBB_SCRATCH(u->e, ebb_value, s->given);
    ebb_value *got = EBB_SCRATCH(u->e, ebb_value, s->graph->output_count + 1);
    EBB_GOT(parts && made && one && got);
    ebb_build b = ebb_unroll_build(u, n, s->place);
    for (size_t i = 0; i < s->given; i++)
        EBB_TRY(slices(u, &b, in[i], 0, s->batch, parts[i]));
    for (int64_t r = 0; r < s->batch; r++) {
        const char *place = ebb_arena_printf(u->e->scratch, "%s/row%lld", s->place, (long long)r);
        EBB_GOT(place);
        for (size_t i = 0; i < s->given; i++)
            one[i] = parts[i][r];
        EBB_TRY(one_scan(u, s, n, place, one, got));
        for (size_t k = 0; k < s->graph->output_count; k++)
            made[k][r] = got[k];
    }
    for (size_t k = 0; k < s->graph->output_count; k++)
        out[k] = ebb_unroll_stack(&b, u->e->scratch, made[k], (size_t)s->batch, 0);
    return b.status;
}

ebb_status ebb_unroll_scan(ebb_unroll *u, ebb_node n, const char **why)
{
    scan s = {0};
    EBB_TRY(open_scan(u, &s, n, why));
    if (*why != NULL)
        return NULL;
    ebb_value *in = EBB_SCRATCH(u->e, ebb_value, s.given);
    ebb_value *out = EBB_SCRATCH(u->e, ebb_value, s.graph->output_count + 1);
    EBB_GOT(in && out);
    for (size_t i = 0; i < s.given; i++)
        in[i] = ebb_in(u->g, n, (uint32_t)(s.first + i));
    if (s.batched)
        EBB_TRY(scan_batch(u, &s, n, in, out));
    else
        EBB_TRY(one_scan(u, &s, n, s.place, in, out));
    return ebb_body_stand_in(u->e, n, out, ebb_node_of(u->g, n)->out_count, u->start);
}
