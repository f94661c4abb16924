/* counted.c: see counted.h. */
#include "passes/flatten/counted.h"

#include "onnx/graph/infer.h"
#include "onnx/graph/scan.h"

enum { DEPTH = 32 };

typedef struct counted {
    ebb_unroll *u;
    ebb_edit *inner;
    ebb_node scan;
    ebb_scan s;
} counted;

typedef struct place { /* in step t: first + by * t */
    int64_t first, by;
} place;

/* ---- numbers that count ---- */

static bool is_one_integer(const ebb_graph *g, ebb_value v)
{
    const ebb_type *type = ebb_value_of(g, v)->type;
    int64_t count;
    return (type->dtype == EBB_I64 || type->dtype == EBB_I32) && ebb_type_elements(type, &count) &&
           count == 1;
}

/* So that no step of the computation is beyond 32 bits. */
static bool is_small(const counted *c, place p)
{
    return p.first > -INT32_MAX && p.first < INT32_MAX && p.by > -INT32_MAX && p.by < INT32_MAX &&
           (p.by < 0 ? -p.by : p.by) * c->s.trips < INT32_MAX;
}

/* What is walked through is a list that rises evenly. */
static bool scanned_place(const counted *c, uint32_t k, place *p)
{
    ebb_slices slices;
    const ebb_value list = ebb_in(c->u->g, c->scan, c->s.states + k);
    const ebb_tensor *t = ebb_value_constant(c->u->g, list);
    const int64_t trips = c->s.trips;
    int64_t count;
    if (t == NULL || t->data == NULL || t->type.dtype != EBB_I64 || trips < 2 ||
        !ebb_type_elements(&t->type, &count) || count != trips ||
        ebb_scan_slices(&slices, c->u->g, c->scan, false, k) != NULL)
        return false;
    const place ends = {ebb_tensor_int(t, 0), ebb_tensor_int(t, 1)};
    if (!is_small(c, ends))
        return false;
    const place rises = {ends.first, ends.by - ends.first};
    for (int64_t i = 0; i < trips; i++)
        if (ebb_tensor_int(t, i) != rises.first + rises.by * i)
            return false;
    *p = rises;
    if (slices.backwards)
        *p = (place){rises.first + rises.by * (trips - 1), -rises.by};
    return true;
}

/* A state that begins with a number, to which each step adds one. */
static bool state_place(const counted *c, uint32_t k, place *p)
{
    const ebb_graph *body = c->s.body;
    ebb_value next = body->outputs[k];
    while (ebb_producer_op(body, next) == EBB_OP_IDENTITY)
        next = ebb_in(body, ebb_value_of(body, next)->producer, 0);
    const ebb_op op = ebb_producer_op(body, next);
    if (op != EBB_OP_ADD && op != EBB_OP_SUB)
        return false;
    const ebb_node n = ebb_value_of(body, next)->producer;
    const bool left = ebb_same_value(ebb_in(body, n, 0), body->inputs[k]);
    if (!(left || (op == EBB_OP_ADD && ebb_same_value(ebb_in(body, n, 1), body->inputs[k]))) ||
        !ebb_unroll_number(c->u->g, ebb_in(c->u->g, c->scan, k), &p->first) ||
        !ebb_unroll_number(body, ebb_in(body, n, left), &p->by))
        return false;
    p->by = op == EBB_OP_SUB && p->by != INT64_MIN ? -p->by : p->by;
    return true;
}

static bool find_place(const counted *c, ebb_value v, int depth, place *p);

static bool computed_place(const counted *c, ebb_node n, int depth, place *p)
{
    const ebb_graph *body = c->s.body;
    const ebb_op op = ebb_node_of(body, n)->op;
    place q = {0, 0};
    switch (op) {
    case EBB_OP_IDENTITY:
    case EBB_OP_CAST:
    case EBB_OP_RESHAPE:
    case EBB_OP_SQUEEZE:
    case EBB_OP_UNSQUEEZE:
        return find_place(c, ebb_in(body, n, 0), depth, p);
    case EBB_OP_ADD:
    case EBB_OP_SUB:
    case EBB_OP_MUL:
        if (!find_place(c, ebb_in(body, n, 0), depth, p) ||
            !find_place(c, ebb_in(body, n, 1), depth, &q) ||
            (op == EBB_OP_MUL && p->by != 0 && q.by != 0))
            return false;
        if (op == EBB_OP_MUL)
            *p = (place){p->first * q.first, p->first * q.by + p->by * q.first};
        else if (op == EBB_OP_ADD)
            *p = (place){p->first + q.first, p->by + q.by};
        else
            *p = (place){p->first - q.first, p->by - q.by};
        return true;
    default:
        return false;
    }
}

static bool find_place(const counted *c, ebb_value v, int depth, place *p)
{
    const ebb_graph *body = c->s.body;
    if (v.i == 0 || depth == 0 || !is_one_integer(body, v))
        return false;
    bool found = false;
    *p = (place){0, 0};
    if (ebb_value_of(body, v)->producer.i != 0) {
        found = ebb_unroll_number(body, v, &p->first) ||
                computed_place(c, ebb_value_of(body, v)->producer, depth - 1, p);
    } else if ((ebb_value_of(body, v)->flags & EBB_IS_INPUT) != 0) {
        for (uint32_t k = 0; k < c->s.states + c->s.inputs && !found; k++)
            if (ebb_same_value(v, body->inputs[k]))
                found =
                    k < c->s.states ? state_place(c, k, p) : scanned_place(c, k - c->s.states, p);
    } else {
        const ebb_graph *at = body;
        v = ebb_value_meant(&at, v);
        found = ebb_unroll_number(at, v, &p->first);
    }
    return found && is_small(c, *p);
}

/* ---- what is read there ---- */

/* Some slices beside each other, along an axis, of what comes from outside. */
typedef struct reading {
    ebb_value x; /* of the graph around */
    int axis, parts;
    place at;
    bool one; /* the axis goes */
} reading;

static bool axis_in(const ebb_type *type, int64_t axis, int *found)
{
    axis += axis < 0 ? type->rank : 0;
    *found = (int)axis;
    return axis >= 0 && axis < type->rank;
}

static bool find_gathered(const counted *c, ebb_node n, reading *r)
{
    const ebb_graph *body = c->s.body;
    const ebb_type *type = ebb_value_of(body, ebb_in(body, n, 0))->type,
                   *places = ebb_value_of(body, ebb_in(body, n, 1))->type;
    const ebb_attrs attrs = ebb_node_attrs(body, n);
    if (!axis_in(type, ebb_attr_int(&attrs, "axis", 0), &r->axis) ||
        !find_place(c, ebb_in(body, n, 1), DEPTH, &r->at) || places->rank > 1)
        return false;
    r->parts = 1;
    r->one = places->rank == 0;
    if (r->at.first < 0 && r->at.first + r->at.by * (c->s.trips - 1) < 0) // counted from the end
        r->at.first += type->dims[r->axis];
    return true;
}

static bool find_sliced(const counted *c, ebb_node n, reading *r)
{
    const ebb_graph *body = c->s.body;
    const ebb_value axes = ebb_in(body, n, 3), steps = ebb_in(body, n, 4);
    int64_t axis = 0, step = 1;
    place end;
    if (ebb_in(body, n, 1).i == 0 || (axes.i != 0 && !ebb_unroll_number(body, axes, &axis)) ||
        (steps.i != 0 && !ebb_unroll_number(body, steps, &step)) || step != 1 ||
        !axis_in(ebb_value_of(body, ebb_in(body, n, 0))->type, axis, &r->axis) ||
        !find_place(c, ebb_in(body, n, 1), DEPTH, &r->at) ||
        !find_place(c, ebb_in(body, n, 2), DEPTH, &end) || end.by != r->at.by ||
        end.first <= r->at.first || end.first > r->at.first + EBB_COUNTED_PARTS)
        return false;
    r->parts = (int)(end.first - r->at.first);
    r->one = false;
    return true;
}

static bool is_within(const counted *c, const reading *r, int64_t size)
{
    const int64_t last = r->at.first + r->at.by * (c->s.trips - 1), more = r->parts - 1;
    return r->at.by != 0 && r->at.first >= 0 && last >= 0 && r->at.first + more < size &&
           last + more < size;
}

static bool find_reading(const counted *c, ebb_node n, reading *r)
{
    const ebb_graph *body = c->s.body, *g = c->u->g;
    const ebb_op op = ebb_node_of(body, n)->op;
    const ebb_value x = ebb_in(body, n, 0);
    if (op != EBB_OP_GATHER && op != EBB_OP_SLICE)
        return false;
    r->x = ebb_body_outside(g, body, x);
    if (r->x.i == 0 || !ebb_type_is_static(ebb_value_of(g, r->x)->type) ||
        !ebb_type_is_static(ebb_value_of(body, x)->type) ||
        ebb_dtype_bits((ebb_dtype)ebb_value_of(g, r->x)->type->dtype) < 8)
        return false;
    return (op == EBB_OP_GATHER ? find_gathered(c, n, r) : find_sliced(c, n, r)) &&
           is_within(c, r, ebb_value_of(g, r->x)->type->dims[r->axis]);
}

/* ---- the change ---- */

/* The places from `first` on, in the order in which they lie. */
static ebb_value part_of(ebb_build *b, const counted *c, const reading *r, int64_t first)
{
    const int64_t last = first + r->at.by * (c->s.trips - 1), axis = r->axis;
    const int64_t from = r->at.by > 0 ? first : last, to = (r->at.by > 0 ? last : first) + 1;
    const int64_t by = r->at.by > 0 ? r->at.by : -r->at.by;
    if (from == 0 && by == 1 && to == ebb_build_type(b, r->x)->dims[axis])
        return r->x;
    return ebb_emit(b, EBB_OP_SLICE, r->x, ebb_const_ints(b, &from, 1), ebb_const_ints(b, &to, 1),
                    ebb_const_ints(b, &axis, 1),
                    by == 1 ? EBB_NO_VALUE : ebb_const_ints(b, &by, 1));
}

/* The body takes the slices of `whole`. */
static ebb_status walk_through(counted *c, const reading *r, ebb_value whole, ebb_value *slice)
{
    ebb_graph *g = c->u->g;
    ebb_type type = *ebb_value_of(g, whole)->type;
    for (int i = r->axis; i + 1 < type.rank; i++) {
        type.dims[i] = type.dims[i + 1];
        type.symbols[i] = type.symbols[i + 1];
    }
    type.rank--;
    EBB_TRY(ebb_value_add(c->s.body, slice, NULL, &type));
    EBB_TRY(ebb_graph_add_input(c->s.body, *slice));
    EBB_TRY(ebb_node_set_input(g, c->scan, c->s.states + c->s.inputs, whole));
    EBB_TRY(ebb_scan_lengthen(g, c->scan, "scan_input_axes", c->s.inputs, 1, r->axis));
    EBB_TRY(ebb_scan_lengthen(g, c->scan, "scan_input_directions", c->s.inputs, 1, r->at.by < 0));
    EBB_TRY(ebb_node_set_int(g, c->scan, "num_scan_inputs", c->s.inputs + (int64_t)1));
    c->s.inputs++;
    return NULL;
}

static ebb_status take(counted *c, ebb_node n, const reading *r)
{
    ebb_value parts[EBB_COUNTED_PARTS];
    ebb_build around = ebb_unroll_build(c->u, c->scan, ebb_unroll_place(c->u, c->scan));
    ebb_build b = ebb_edit_build(c->inner, n, EBB_PHASE_NONE);
    for (int k = 0; k < r->parts; k++) {
        const ebb_value whole = part_of(&around, c, r, r->at.first + k);
        EBB_TRY(around.status);
        EBB_TRY(walk_through(c, r, whole, &parts[k]));
        if (!r->one)
            parts[k] = ebb_unroll_one_axis(&b, EBB_OP_UNSQUEEZE, parts[k], r->axis);
    }
    if (r->parts > 1) {
        ebb_with_int(&b, "axis", r->axis);
        parts[0] = ebb_emit_list(&b, EBB_OP_CONCAT, parts, (uint32_t)r->parts);
    }
    EBB_TRY(b.status);
    EBB_TRY(ebb_edit_swap(c->inner, n, parts[0]));
    ebb_applied(c->inner);
    return NULL;
}

ebb_status ebb_counted_walk(ebb_unroll *u, ebb_edit *inner, ebb_node scan)
{
    counted c = {.u = u, .inner = inner, .scan = scan};
    bool any = false;
    if (ebb_model_opset(u->g->model, EBB_DOMAIN_ONNX) < 10 ||
        ebb_scan_read(&c.s, u->g, scan) != NULL ||
        c.s.body->input_count != c.s.states + (size_t)c.s.inputs)
        return NULL;
    for (ebb_node n = ebb_first(c.s.body), next; n.i != 0; n = next) {
        reading r;
        next = ebb_next(c.s.body, n);
        if (!find_reading(&c, n, &r))
            continue;
        EBB_TRY(take(&c, n, &r));
        any = true;
    }
    if (!any)
        return NULL;
    (void)ebb_graph_sweep(c.s.body);
    return ebb_infer_graph(c.s.body);
}
