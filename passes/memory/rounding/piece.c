/* piece.c: the gradient of a piece of the forward, emitted anew and found in the backward.
 *
 *   1. emit    the piece's rules run at the end of the graph, from a value that stands for dy
 *   2. anchor  an emitted node that reads a value of the forward has its like among the readers of
 *              that value; from there upwards, operand by operand, to what dy then is
 *   3. match   from dy downwards every emitted node that counts has its like
 *   4. sum     the parts that x gets are followed through additions to one sum
 *   5. remove  what was emitted goes again
 */
#include "passes/memory/rounding/piece.h"

enum { MOST_STEPS = 20000 }; /* of a search for dy: a hostile graph is given up */

typedef struct finder {
    ebb_edit *e;
    ebb_graph *g;
    const ebb_piece *p;
    ebb_build b;
    ebb_value dy;    /* stands for it while the rules run */
    ebb_value bound; /* what it is in the backward */
    bool *inside;    /* by value id: made by the piece */
    ebb_value *grad; /* by value id: what it gets, so far */
    ebb_value *part; /* what x gets, in the order of the rules */
    ebb_value *real; /* the same in the backward */
    size_t part_count;
    size_t old_values, old_nodes;
    ebb_node *made; /* emitted, in order */
    size_t made_count;
    bool *needed;     /* by index of made */
    bool *used;       /* by node id: is somebody's like */
    ebb_value *value; /* by value id of what was emitted: its like */
    int steps;
} finder;

/* ---- 1. emit ---- */

static ebb_status contribute(finder *f, ebb_value v, ebb_value dv)
{
    if (ebb_same_value(v, f->p->x)) {
        f->part[f->part_count++] = dv;
        return NULL;
    }
    f->grad[v.i] = f->grad[v.i].i == 0 ? dv : ebb_emit(&f->b, EBB_OP_ADD, f->grad[v.i], dv);
    return f->b.status;
}

static ebb_status emit_rule(finder *f, ebb_node n)
{
    ebb_graph *g = f->g;
    const uint32_t ins = ebb_node_of(g, n)->in_count, outs = ebb_node_of(g, n)->out_count;
    ebb_value *x = EBB_SCRATCH(f->e, ebb_value, ins + 1u),
              *dx = EBB_SCRATCH(f->e, ebb_value, ins + 1u);
    ebb_value *y = EBB_SCRATCH(f->e, ebb_value, outs + 8u);
    ebb_value *dy = EBB_SCRATCH(f->e, ebb_value, outs + 8u);
    bool *wants = EBB_SCRATCH(f->e, bool, ins + 1u), any = false;
    EBB_GOT(x && dx && y && dy && wants);
    for (uint32_t i = 0; i < ins; i++) {
        x[i] = ebb_node_of(g, n)->in[i];
        wants[i] = x[i].i != 0 && (f->inside[x[i].i] || ebb_same_value(x[i], f->p->x));
    }
    for (uint32_t o = 0; o < outs; o++) {
        y[o] = ebb_node_of(g, n)->out[o];
        dy[o] = y[o].i != 0 ? f->grad[y[o].i] : EBB_NO_VALUE;
        any = any || dy[o].i != 0;
    }
    ebb_op op = ebb_node_of(g, n)->op;
    if (!any || ebb_stops_gradient(g, n))
        return NULL;
    ebb_grad c = {n, ins, outs, x, y, dy, wants, dx, ebb_node_attrs(g, n)};
    ebb_grad_rule(&f->b, op, &c);
    EBB_TRY(f->b.status);
    for (uint32_t i = 0; i < ins; i++)
        if (wants[i] && dx[i].i != 0)
            EBB_TRY(contribute(f, x[i], dx[i]));
    return NULL;
}

static ebb_status emit(finder *f)
{
    ebb_graph *g = f->g;
    const ebb_piece *p = f->p;
    size_t slots = 1;
    for (size_t k = 0; k < p->count; k++)
        slots += ebb_node_of(g, p->nodes[k])->in_count;
    f->old_values = g->value_count;
    f->old_nodes = g->node_count;
    f->inside = EBB_SCRATCH(f->e, bool, f->old_values);
    f->grad = EBB_SCRATCH(f->e, ebb_value, f->old_values);
    f->part = EBB_SCRATCH(f->e, ebb_value, slots);
    EBB_GOT(f->inside && f->grad && f->part);
    for (size_t k = 0; k < p->count; k++)
        for (uint32_t o = 0; o < ebb_node_of(g, p->nodes[k])->out_count; o++)
            f->inside[ebb_node_of(g, p->nodes[k])->out[o].i] = true;
    f->inside[0] = false;
    ebb_type type = *ebb_value_of(g, p->y)->type;
    EBB_TRY(ebb_value_add(g, &f->dy, "piece/dy", &type));
    f->b = ebb_build_at(g, EBB_NO_NODE, EBB_BACKWARD, NULL);
    f->b.name = "piece";
    f->grad[p->y.i] = f->dy;
    for (size_t k = p->count; k-- > 0;)
        EBB_TRY(emit_rule(f, p->nodes[k]));
    return NULL;
}

/* ---- what is alike ---- */

static bool same_constant(const ebb_graph *g, ebb_value a, ebb_value b)
{
    const ebb_tensor *s = ebb_value_constant(g, a), *t = ebb_value_constant(g, b);
    return s != NULL && t != NULL && s->data != NULL && t->data != NULL &&
           s->type.dtype == t->type.dtype && ebb_type_same_shape(&s->type, &t->type) &&
           s->bytes == t->bytes && memcmp(s->data, t->data, s->bytes) == 0;
}

/* Both have the same operator, attributes and numbers of operands, and b is the backward's. */
static bool same_kind(const ebb_graph *g, ebb_node a, ebb_node b)
{
    const ebb_node_info *s = ebb_node_of(g, a), *t = ebb_node_of(g, b);
    if (s->op != t->op || s->in_count != t->in_count || s->out_count != t->out_count ||
        s->attr_count != t->attr_count || !ebb_is_backward(g, b))
        return false;
    ebb_attrs attrs = ebb_node_attrs(g, b);
    for (uint32_t i = 0; i < s->attr_count; i++) {
        const ebb_attr *other = ebb_attr_find(&attrs, s->attr[i].name);
        if (other == NULL || other->ref != NULL || !ebb_attr_is_equal(&s->attr[i], other))
            return false;
    }
    return true;
}

/* ---- 2. anchor ---- */

static bool is_made(const finder *f, ebb_value v)
{
    return v.i >= f->old_values && ebb_value_of(f->g, v)->producer.i != 0;
}

/* Whether real is what emitted would be, dy being what it then must be. */
static bool unify(finder *f, ebb_value emitted, ebb_value real);

static bool unify_operands(finder *f, ebb_node a, ebb_node b, bool swapped)
{
    uint32_t count = ebb_node_of(f->g, a)->in_count;
    ebb_value before = f->bound;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t j = swapped && i < 2 ? 1 - i : i;
        if (!unify(f, ebb_in(f->g, a, i), ebb_in(f->g, b, j))) {
            f->bound = before;
            return false;
        }
    }
    return true;
}

static bool unify_nodes(finder *f, ebb_node a, ebb_node b)
{
    if (b.i == 0 || b.i >= f->old_nodes || !same_kind(f->g, a, b))
        return false;
    return unify_operands(f, a, b, false) ||
           (ebb_node_of(f->g, a)->in_count == 2 &&
            ebb_op_has(ebb_node_of(f->g, a)->op, EBB_COMMUTES) && unify_operands(f, a, b, true));
}

static bool unify(finder *f, ebb_value emitted, ebb_value real)
{
    if (f->steps++ >= MOST_STEPS)
        return false;
    if (ebb_same_value(emitted, f->dy)) {
        const ebb_type *want = ebb_value_of(f->g, f->dy)->type;
        const ebb_type *have = ebb_value_of(f->g, real)->type;
        if (f->bound.i != 0)
            return ebb_same_value(f->bound, real);
        if (real.i == 0 || want->dtype != have->dtype || !ebb_type_same_shape(want, have))
            return false;
        f->bound = real;
        return true;
    }
    if (!is_made(f, emitted))
        return ebb_same_value(emitted, real) || same_constant(f->g, emitted, real);
    ebb_node maker = ebb_value_of(f->g, real)->producer;
    return real.i != 0 &&
           ebb_value_of(f->g, real)->producer_slot == ebb_value_of(f->g, emitted)->producer_slot &&
           unify_nodes(f, ebb_value_of(f->g, emitted)->producer, maker);
}

/* Which values come of dy: by value id of what was emitted. */
static bool *follow_dy(const finder *f)
{
    bool *follows = EBB_SCRATCH(f->e, bool, f->g->value_count);
    if (follows == NULL)
        return NULL;
    follows[f->dy.i] = true;
    for (size_t k = 0; k < f->made_count; k++) {
        const ebb_node_info *info = ebb_node_of(f->g, f->made[k]);
        bool any = false;
        for (uint32_t i = 0; i < info->in_count; i++)
            any = any || follows[info->in[i].i];
        for (uint32_t o = 0; o < info->out_count; o++)
            follows[info->out[o].i] = any && info->out[o].i != 0;
    }
    return follows;
}

/* ---- 3. match ---- */

static ebb_status mark_needed(finder *f)
{
    bool *wanted = EBB_SCRATCH(f->e, bool, f->g->value_count);
    EBB_GOT(wanted);
    for (size_t k = 0; k < f->part_count; k++)
        wanted[f->part[k].i] = true;
    for (size_t k = f->made_count; k-- > 0;) {
        const ebb_node_info *info = ebb_node_of(f->g, f->made[k]);
        for (uint32_t o = 0; o < info->out_count; o++)
            f->needed[k] = f->needed[k] || (info->out[o].i != 0 && wanted[info->out[o].i]);
        for (uint32_t i = 0; f->needed[k] && i < info->in_count; i++)
            wanted[info->in[i].i] = true;
    }
    return NULL;
}

/* What an operand of an emitted node is in the backward. */
static ebb_value like_of(const finder *f, ebb_value v)
{
    return v.i >= f->old_values ? f->value[v.i] : v;
}

static bool same_operands(const finder *f, ebb_node a, ebb_node b, bool swapped)
{
    for (uint32_t i = 0; i < ebb_node_of(f->g, a)->in_count; i++) {
        ebb_value v = ebb_in(f->g, a, i);
        ebb_value w = ebb_in(f->g, b, swapped && i < 2 ? 1 - i : i);
        if ((v.i == 0) != (w.i == 0) ||
            (!ebb_same_value(like_of(f, v), w) && !same_constant(f->g, v, w)))
            return false;
    }
    return true;
}

static bool is_like(const finder *f, ebb_node a, ebb_node b)
{
    if (b.i >= f->old_nodes || f->used[b.i] || !same_kind(f->g, a, b))
        return false;
    bool commutes =
        ebb_node_of(f->g, a)->in_count == 2 && ebb_op_has(ebb_node_of(f->g, a)->op, EBB_COMMUTES);
    return same_operands(f, a, b, false) || (commutes && same_operands(f, a, b, true));
}

static ebb_node find_like(const finder *f, ebb_node a)
{
    for (uint32_t i = 0; i < ebb_node_of(f->g, a)->in_count; i++) {
        ebb_value v = ebb_in(f->g, a, i), real = like_of(f, v);
        if (real.i == 0 || ebb_value_constant(f->g, real) != NULL)
            continue;
        const ebb_value_info *info = ebb_value_of(f->g, real);
        for (size_t k = 0; k < info->use_count; k++)
            if (is_like(f, a, info->uses[k].node))
                return info->uses[k].node;
        return EBB_NO_NODE; // it would be among these
    }
    return EBB_NO_NODE;
}

/* Emitted node k has its like, which is then taken. */
static bool match_node(finder *f, size_t k)
{
    ebb_node real = find_like(f, f->made[k]);
    if (real.i == 0)
        return false;
    f->used[real.i] = true;
    for (uint32_t o = 0; o < ebb_node_of(f->g, real)->out_count; o++)
        f->value[ebb_out(f->g, f->made[k], o).i] = ebb_out(f->g, real, o);
    return true;
}

/* With dy as it is bound: whether all of it is there. */
static bool match(finder *f)
{
    memset(f->used, 0, f->old_nodes * sizeof *f->used);
    f->value[f->dy.i] = f->bound;
    for (size_t k = 0; k < f->made_count; k++)
        if (f->needed[k] && !match_node(f, k))
            return false;
    for (size_t k = 0; k < f->part_count; k++) {
        f->real[k] = like_of(f, f->part[k]);
        if (f->real[k].i == 0)
            return false;
    }
    return f->part_count > 0;
}

/* The readers of v in the backward may be like emitted node a, which reads v's like. */
static bool match_at(finder *f, ebb_node a, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(f->g, v);
    for (size_t i = 0; i < info->use_count; i++) {
        f->bound = EBB_NO_VALUE;
        if (unify_nodes(f, a, info->uses[i].node) && f->bound.i != 0 && match(f))
            return true;
    }
    return false;
}

/* First what is made of the forward alone; then from the first emitted node that comes of dy and
 * reads something known: where that one has no like, there is none of the whole. */
static ebb_status match_all(finder *f, bool *found)
{
    const bool *follows = follow_dy(f);
    *found = false;
    EBB_GOT(follows);
    for (size_t k = 0; k < f->made_count; k++)
        if (f->needed[k] && !follows[ebb_out(f->g, f->made[k], 0).i] && !match_node(f, k))
            return NULL;
    for (size_t k = 0; k < f->made_count; k++) {
        ebb_node a = f->made[k];
        if (!f->needed[k] || !follows[ebb_out(f->g, a, 0).i])
            continue;
        for (uint32_t i = 0; i < ebb_node_of(f->g, a)->in_count; i++) {
            ebb_value v = ebb_in(f->g, a, i), real = like_of(f, v);
            if (follows[v.i] || real.i == 0 || ebb_value_constant(f->g, real) != NULL)
                continue;
            *found = match_at(f, a, real);
            return NULL;
        }
    }
    return NULL;
}

/* ---- 4. sum ---- */

/* Takes v out of the parts that are left to find; false where it is none of them. */
static bool take_part(finder *f, size_t *left, ebb_value v)
{
    for (size_t k = 0; k < *left; k++)
        if (ebb_same_value(f->real[k], v)) {
            f->real[k] = f->real[--*left];
            return true;
        }
    return false;
}

/* The one reader of v that is not part of the piece's gradient, or none. */
static ebb_node reader_outside(const finder *f, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(f->g, v);
    ebb_node found = EBB_NO_NODE;
    for (size_t i = 0; i < info->use_count; i++) {
        ebb_node n = info->uses[i].node;
        if (n.i >= f->old_nodes || f->used[n.i])
            continue;
        if (found.i != 0)
            return EBB_NO_NODE;
        found = n;
    }
    return ebb_value_is_held(f->g, v) ? EBB_NO_NODE : found;
}

static bool is_sum(const finder *f, ebb_node n)
{
    return n.i != 0 && !f->used[n.i] && ebb_node_of(f->g, n)->op == EBB_OP_ADD &&
           ebb_node_of(f->g, n)->in_count == 2 && ebb_is_backward(f->g, n);
}

/* Operand `slot` of sum n is a part, or was summed up from what others give x and parts. False
 * where both operands of such a sum are parts, which leaves it nothing to be. */
static bool descend(finder *f, ebb_piece_grad *grad, size_t *left, ebb_node n, uint32_t slot)
{
    bool taken = false;
    while (*left > 0) {
        ebb_value v = ebb_in(f->g, n, slot);
        if (take_part(f, left, v)) {
            grad->sums[grad->sum_count++] = (ebb_use){n, 1 - slot};
            return !taken;
        }
        n = ebb_value_of(f->g, v)->producer;
        if (!is_sum(f, n) || ebb_only_user(f->g, v).i == 0)
            return true;
        taken = take_part(f, left, ebb_in(f->g, n, 1));
        if (taken)
            grad->sums[grad->sum_count++] = (ebb_use){n, 0};
        slot = 0; // the sum so far stands first
    }
    return true;
}

static bool follow_sums(finder *f, ebb_piece_grad *grad)
{
    size_t left = f->part_count, first = 0;
    while (first < left && ebb_same_value(f->real[first], f->bound))
        first++; // dy itself has other readers
    if (first == left)
        return false;
    ebb_value at = f->real[first];
    grad->part = at;
    (void)take_part(f, &left, at);
    while (left > 0) {
        ebb_node n = reader_outside(f, at);
        if (!is_sum(f, n))
            return false;
        if (!descend(f, grad, &left, n, ebb_same_value(ebb_in(f->g, n, 0), at) ? 1 : 0))
            return false;
        at = ebb_out(f->g, n, 0);
    }
    return true;
}

/* Whether nobody needs n once the part is replaced and these nodes are dead. */
static bool dies(const finder *f, const ebb_piece_grad *grad, ebb_node n, const bool *dead)
{
    const ebb_graph *g = f->g;
    for (uint32_t o = 0; o < ebb_node_of(g, n)->out_count; o++) {
        ebb_value v = ebb_out(g, n, o);
        if (v.i == 0 || ebb_same_value(v, grad->part))
            continue;
        const ebb_value_info *info = ebb_value_of(g, v);
        if (ebb_value_is_held(g, v))
            return false;
        for (size_t i = 0; i < info->use_count; i++)
            if (info->uses[i].node.i < f->old_nodes && !dead[info->uses[i].node.i])
                return false;
    }
    return true;
}

static bool find_dead(finder *f, ebb_piece_grad *grad)
{
    bool *dead = EBB_SCRATCH(f->e, bool, f->g->node_count);
    grad->dead = EBB_SCRATCH(f->e, ebb_node, f->made_count + grad->sum_count + 1);
    if (dead == NULL || grad->dead == NULL)
        return false;
    for (size_t k = 0; k < grad->sum_count; k++)
        dead[grad->sums[k].node.i] = f->used[grad->sums[k].node.i] = true;
    for (ebb_node n = ebb_last(f->g); n.i != 0; n = ebb_prev(f->g, n)) {
        if (n.i >= f->old_nodes || !f->used[n.i])
            continue;
        dead[n.i] = dead[n.i] || dies(f, grad, n, dead);
        if (dead[n.i])
            grad->dead[grad->dead_count++] = n;
    }
    return true;
}

/* ---- all of it ---- */

static ebb_status search(finder *f, ebb_piece_grad *grad)
{
    ebb_graph *g = f->g;
    bool found;
    f->made = EBB_SCRATCH(f->e, ebb_node, g->node_count - f->old_nodes + 1);
    f->needed = EBB_SCRATCH(f->e, bool, g->node_count - f->old_nodes + 1);
    f->real = EBB_SCRATCH(f->e, ebb_value, f->part_count + 1);
    f->used = EBB_SCRATCH(f->e, bool, g->node_count);
    f->value = EBB_SCRATCH(f->e, ebb_value, g->value_count);
    grad->sums = EBB_SCRATCH(f->e, ebb_use, f->part_count + 1);
    EBB_GOT(f->made && f->needed && f->real && f->used && f->value && grad->sums);
    for (size_t i = f->old_nodes; i < g->node_count; i++)
        f->made[f->made_count++] = (ebb_node){(uint32_t)i};
    EBB_TRY(mark_needed(f));
    EBB_TRY(match_all(f, &found));
    grad->dy = f->bound;
    grad->found = found && follow_sums(f, grad) && find_dead(f, grad);
    return NULL;
}

ebb_status ebb_piece_grad_find(ebb_piece_grad *grad, ebb_edit *e, const ebb_piece *piece)
{
    finder f = {.e = e, .g = e->g, .p = piece};
    *grad = (ebb_piece_grad){.found = false};
    ebb_status status = emit(&f);
    bool no_rule = ebb_status_code(status) == EBB_UNSUPPORTED;
    if (status == NULL)
        status = search(&f, grad);
    for (size_t i = e->g->node_count; i-- > f.old_nodes && f.old_nodes > 0;)
        ebb_edit_remove(e, (ebb_node){(uint32_t)i});
    if (f.dy.i != 0)
        ebb_value_of(e->g, f.dy)->dead = true;
    return no_rule ? NULL : status;
}

ebb_status ebb_piece_grad_saves(ebb_piece_saves *result, const ebb_piece_grad *grad, ebb_edit *e,
                                const ebb_saves *saves, ebb_value like, ebb_value read_again)
{
    const ebb_graph *g = e->g;
    uint32_t *reads = EBB_SCRATCH(e, uint32_t, saves->value_count);
    *result = (ebb_piece_saves){.bytes = 0};
    EBB_GOT(reads);
    for (size_t k = 0; k < grad->dead_count; k++) {
        const ebb_node_info *info = ebb_node_of(g, grad->dead[k]);
        for (uint32_t i = 0; i < info->in_count; i++) {
            bool unread =
                i == 0 && (ebb_op_has(info->op, EBB_VIEW) || ebb_op_has(info->op, EBB_SHAPE_OF_0));
            if (info->in[i].i != 0 && info->in[i].i < saves->value_count && !unread)
                reads[ebb_saves_root(saves, info->in[i]).i]++;
        }
    }
    const ebb_type *type = ebb_value_of(g, like)->type;
    int64_t most = 0;
    for (uint32_t i = 1; i < saves->value_count; i++) {
        const ebb_value_info *info = ebb_value_of(g, (ebb_value){i});
        if (reads[i] == 0 || !saves->forward[i] || info->producer.i == 0)
            continue;
        result->full += info->type->dtype == type->dtype && ebb_type_same_shape(info->type, type);
        bool again = read_again.i != 0 && ebb_saves_root(saves, read_again).i == i;
        if (reads[i] != saves->reads[i] || saves->kept[i] || again)
            continue;
        int64_t bytes = ebb_stored_bytes(g, (ebb_value){(uint32_t)i});
        result->bytes += bytes;
        if (bytes > most)
            result->largest = (ebb_value){(uint32_t)i};
        most = bytes > most ? bytes : most;
    }
    ebb_value root = ebb_saves_root(saves, read_again);
    if (read_again.i != 0 && saves->reads[root.i] == 0 && !saves->kept[root.i])
        result->bytes -= ebb_stored_bytes(g, root);
    return NULL;
}

ebb_build ebb_piece_grad_build(ebb_edit *e, const ebb_piece_grad *grad)
{
    ebb_node maker = ebb_value_of(e->g, grad->part)->producer;
    ebb_build b = ebb_edit_build(e, maker, EBB_PHASE_NONE);
    const char *name = ebb_text(e->g, ebb_node_of(e->g, maker)->name);
    b.name = name[0] != '\0' ? name : NULL;
    return b;
}

ebb_status ebb_piece_grad_replace(ebb_edit *e, const ebb_piece_grad *grad, ebb_value dx)
{
    ebb_graph *g = e->g;
    EBB_TRY(ebb_edit_replace(e, grad->part, dx));
    for (size_t k = 0; k < grad->sum_count; k++) {
        ebb_node n = grad->sums[k].node;
        EBB_TRY(ebb_edit_replace(e, ebb_out(g, n, 0), ebb_in(g, n, grad->sums[k].slot)));
    }
    for (size_t k = 0; k < grad->dead_count; k++) // the readers stand first
        ebb_edit_remove(e, grad->dead[k]);
    return NULL;
}
