/* scan.c: see scan.h. */
#include "onnx/graph/scan.h"

#include "onnx/graph/infer.h"

ebb_value ebb_value_meant(const ebb_graph **g, ebb_value v)
{
    while (v.i != 0 && (ebb_value_of(*g, v)->flags & EBB_IS_OUTER) != 0 && (*g)->outer != NULL) {
        ebb_value outside = ebb_value_find((*g)->outer, ebb_value_name(*g, v));
        if (outside.i == 0)
            return v;
        *g = (*g)->outer;
        v = outside;
    }
    return v;
}

static int64_t list_item(const ebb_graph *g, ebb_node n, const char *name, uint32_t i)
{
    ebb_attrs attrs = ebb_node_attrs(g, n);
    uint32_t count;
    const int64_t *list = ebb_attr_ints(&attrs, name, &count);
    return list != NULL && i < count ? list[i] : 0;
}

/* Of a tensor of `rank` axes; -1: there is no such axis. */
static int axis_of(const ebb_graph *g, ebb_node n, bool output, uint32_t k, int rank)
{
    int64_t axis = list_item(g, n, output ? "scan_output_axes" : "scan_input_axes", k);
    axis = axis < 0 ? axis + rank : axis;
    return axis >= 0 && axis < rank ? (int)axis : -1;
}

const char *ebb_scan_read(ebb_scan *s, const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    ebb_attrs attrs = ebb_node_attrs(g, n);
    const ebb_attr *body = ebb_attr_find(&attrs, "body");
    const int64_t inputs = ebb_attr_int(&attrs, "num_scan_inputs", 0);
    if (info->op != EBB_OP_SCAN || ebb_model_opset(g->model, EBB_DOMAIN_ONNX) < 9)
        return "it goes over the sequences of a batch, as Scan of opset 8 does";
    if (body == NULL || body->type != EBB_ATTR_GRAPH || body->graphs == NULL || inputs < 1 ||
        inputs > info->in_count)
        return "it has no body, or nothing to walk through";
    *s = (ebb_scan){.body = body->graphs[0], .inputs = (uint32_t)inputs, .trips = -1};
    s->states = info->in_count - s->inputs;
    if (s->body->input_count < info->in_count || s->body->output_count < s->states ||
        s->body->output_count < info->out_count)
        return "its body takes or makes other values than it has";
    s->outputs = (uint32_t)s->body->output_count - s->states;
    for (uint32_t k = 0; k < s->inputs; k++) {
        const ebb_type *type = ebb_value_of(g, info->in[s->states + k])->type;
        int axis = type->rank < 0 ? -1 : axis_of(g, n, false, k, type->rank);
        if (axis < 0 || type->dims[axis] < 0)
            return "how long its inputs are is not known: bind their sizes (--dim)";
        if (s->trips >= 0 && s->trips != type->dims[axis])
            return "its inputs are of unlike length";
        s->trips = type->dims[axis];
    }
    return NULL;
}

const char *ebb_scan_slices(ebb_slices *slices, const ebb_graph *g, ebb_node n, bool output,
                            uint32_t k)
{
    ebb_scan s;
    const char *why = ebb_scan_read(&s, g, n);
    if (why != NULL)
        return why;
    ebb_value whole = output ? ebb_out(g, n, s.states + k) : ebb_in(g, n, s.states + k);
    ebb_type type = *ebb_value_of(g, whole)->type;
    size_t bytes;
    int axis = axis_of(g, n, output, k, type.rank);
    if (type.kind != EBB_KIND_TENSOR || !ebb_type_bytes(&type, &bytes) ||
        ebb_dtype_bits((ebb_dtype)type.dtype) < 8 || axis < 0)
        return "it is put together of slices of no known size";
    if (type.dims[axis] != s.trips)
        return "what it puts together has another length than what it walks through";
    *slices = (ebb_slices){.axis = axis, .parts = 1};
    slices->backwards =
        list_item(g, n, output ? "scan_output_directions" : "scan_input_directions", k) == 1;
    for (int i = 0; i < axis; i++)
        slices->parts *= (size_t)type.dims[i];
    slices->stride = slices->parts == 0 ? 0 : bytes / slices->parts;
    slices->bytes = s.trips == 0 ? 0 : slices->stride / (size_t)s.trips;
    for (int i = axis; i + 1 < type.rank; i++) {
        type.dims[i] = type.dims[i + 1];
        type.symbols[i] = type.symbols[i + 1];
    }
    type.rank--;
    slices->type = type;
    return NULL;
}

ebb_status ebb_scan_lengthen(ebb_graph *g, ebb_node n, const char *name, uint32_t count,
                             uint32_t more, int64_t with)
{
    const ebb_attrs attrs = ebb_node_attrs(g, n);
    uint32_t old = 0;
    const int64_t *from = ebb_attr_ints(&attrs, name, &old);
    if ((from == NULL && with == 0) || more == 0)
        return NULL;
    EBB_LOCAL_ARENA(scratch);
    int64_t *list = EBB_NEW(scratch, int64_t, (size_t)count + more);
    EBB_GOT(list);
    for (uint32_t k = 0; k < count + more; k++)
        list[k] = k >= count ? with : from != NULL && k < old ? from[k] : 0;
    return ebb_node_set_ints(g, n, name, list, count + more);
}

bool ebb_scan_is_kept(const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    return info->op == EBB_OP_SCAN && ebb_props_get(g, &info->props, EBB_KEPT_LOOP) != NULL;
}

bool ebb_draws_by_name(const ebb_node_info *node)
{
    if (ebb_op_has(node->op, EBB_RANDOM) && !ebb_op_has(node->op, EBB_KEYED))
        return true;
    EBB_EACH_BODY(node, body)
        EBB_EACH_NODE(*body, n)
            if (ebb_draws_by_name(ebb_node_of(*body, n)))
                return true;
    return false;
}

/* ---- outputs that nobody reads ---- */

static ebb_status shorten(ebb_graph *g, ebb_node n, const char *name, uint32_t count)
{
    ebb_attrs attrs = ebb_node_attrs(g, n);
    uint32_t old;
    const int64_t *list = ebb_attr_ints(&attrs, name, &old);
    return list != NULL && old > count ? ebb_node_set_ints(g, n, name, list, count) : NULL;
}

static ebb_status trim(ebb_graph *g, ebb_node n)
{
    ebb_scan s;
    if (ebb_scan_read(&s, g, n) != NULL)
        return NULL;
    while (s.outputs > 0 && !ebb_value_is_read(g, ebb_out(g, n, s.states + s.outputs - 1))) {
        ebb_graph_remove_output(s.body, s.body->outputs[s.states + --s.outputs]);
        if (ebb_node_of(g, n)->out_count > s.states + s.outputs)
            EBB_TRY(ebb_node_set_output(g, n, s.states + s.outputs, EBB_NO_VALUE));
    }
    EBB_TRY(shorten(g, n, "scan_output_axes", s.outputs));
    EBB_TRY(shorten(g, n, "scan_output_directions", s.outputs));
    (void)ebb_graph_sweep(s.body);
    return ebb_scans_trim(s.body);
}

ebb_status ebb_scans_trim(ebb_graph *g)
{
    EBB_EACH_NODE(g, n)
        if (ebb_node_of(g, n)->op == EBB_OP_SCAN)
            EBB_TRY(trim(g, n));
    return NULL;
}

/* ---- types ---- */

static ebb_status set_type(ebb_graph *body, ebb_value v, const ebb_type *type)
{
    const ebb_type *old = ebb_value_of(body, v)->type;
    if (old->dtype != EBB_NONE && type->dtype != old->dtype)
        return ebb_error(EBB_REJECTED, "'%s' is declared %s in a body, and it is %s outside",
                         ebb_value_name(body, v), ebb_dtype_name((ebb_dtype)old->dtype),
                         ebb_dtype_name((ebb_dtype)type->dtype));
    return ebb_value_set_type(body, v, type);
}

static ebb_status types_go_in(const ebb_graph *g, ebb_node n, const ebb_scan *s)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    for (uint32_t i = 0; i < s->states; i++)
        EBB_TRY(set_type(s->body, s->body->inputs[i], ebb_value_of(g, info->in[i])->type));
    for (uint32_t k = 0; k < s->inputs; k++) {
        ebb_slices slices;
        if (ebb_scan_slices(&slices, g, n, false, k) == NULL)
            EBB_TRY(set_type(s->body, s->body->inputs[s->states + k], &slices.type));
    }
    EBB_EACH_VALUE(s->body, v) {
        const ebb_value_info *inner = ebb_value_of(s->body, v);
        const ebb_graph *at = s->body;
        ebb_value meant = inner->dead ? v : ebb_value_meant(&at, v);
        if (at != s->body && ebb_value_of(at, meant)->type->kind == EBB_KIND_TENSOR)
            EBB_TRY(ebb_value_set_type(s->body, v, ebb_value_of(at, meant)->type));
    }
    return NULL;
}

/* [d, e] in slices along an axis: [trips, d, e]. */
static bool whole_type(const ebb_graph *g, ebb_node n, const ebb_scan *s, uint32_t k,
                       ebb_type *whole)
{
    *whole = *ebb_value_of(s->body, s->body->outputs[s->states + k])->type;
    if (whole->kind != EBB_KIND_TENSOR || whole->rank < 0 || whole->rank >= EBB_MAX_RANK)
        return false;
    int axis = axis_of(g, n, true, k, whole->rank + 1);
    if (axis < 0)
        return false;
    for (int i = whole->rank; i > axis; i--) {
        whole->dims[i] = whole->dims[i - 1];
        whole->symbols[i] = whole->symbols[i - 1];
    }
    whole->rank++;
    whole->dims[axis] = s->trips;
    whole->symbols[axis] = (ebb_str){0};
    return true;
}

/* What the specification asks: a state is of one type in all steps. */
static ebb_status states_stay(const ebb_graph *g, ebb_node n, const ebb_scan *s)
{
    for (uint32_t i = 0; i < s->states; i++) {
        const ebb_type *first = ebb_value_of(g, ebb_in(g, n, i))->type;
        const ebb_type *next = ebb_value_of(s->body, s->body->outputs[i])->type;
        char a[128], b[128];
        if (ebb_type_is_static(next) && !ebb_type_same_shape(first, next))
            return ebb_error(EBB_REJECTED, "%s: state %u is %s, and its body makes %s of it",
                             ebb_node_label(g, n), i, ebb_type_print(a, sizeof a, first, NULL),
                             ebb_type_print(b, sizeof b, next, NULL));
    }
    return NULL;
}

ebb_status ebb_scan_infer(const ebb_graph *g, ebb_node n, ebb_type *out)
{
    ebb_scan s;
    const ebb_node_info *info = ebb_node_of(g, n);
    if (ebb_scan_read(&s, g, n) != NULL)
        return NULL;
    for (uint32_t i = 0; i < info->in_count; i++)
        if (!ebb_type_is_static(ebb_value_of(g, info->in[i])->type))
            return NULL;
    EBB_TRY(ebb_while(types_go_in(g, n, &s), "going into the body of %s", ebb_node_label(g, n)));
    EBB_TRY(ebb_while(ebb_infer_graph(s.body), "in the body of %s", ebb_node_label(g, n)));
    EBB_TRY(states_stay(g, n, &s));
    for (uint32_t k = 0; k < info->out_count; k++) {
        ebb_type whole;
        if (k < s.states)
            out[k] = *ebb_value_of(g, info->in[k])->type;
        else if (whole_type(g, n, &s, k - s.states, &whole))
            out[k] = whole;
    }
    return NULL;
}

double ebb_scan_flops(const ebb_graph *g, ebb_node n)
{
    ebb_scan s;
    double flops = 0;
    if (ebb_scan_read(&s, g, n) != NULL)
        return 0;
    EBB_EACH_NODE(s.body, k)
        flops += ebb_node_flops(s.body, k);
    return flops * (double)s.trips;
}
