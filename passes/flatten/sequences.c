/* sequences.c: sequences of tensors are gone before a step is made: each is a list that is known.
 *
 *   before   s0 = SequenceEmpty ()   s1 = SequenceInsert (s0, a)   s2 = SequenceInsert (s1, b)
 *            y = ConcatFromSequence <new_axis = 1> (s2)            z = SequenceAt (s2, 0)
 *   after    y = Concat (Unsqueeze (a), Unsqueeze (b))             z is a
 *
 * Exporters write them for torch.split, and for lists that a loop appends to, once the loop is
 * unrolled. A list is made of what its operators read, and nothing is emitted for it until a reader
 * needs it; a SplitToSequence then becomes Split, in groups of eight where there are more parts.
 * SequenceMap (torch.hstack) puts its body once for each tensor. Positions must be constant.
 */
#include <stdio.h>

#include "passes/common.h"
#include "passes/flatten/body.h"
#include "passes/flatten/sequences.h"

typedef struct ebb_sequence {
    const ebb_value *items; /* NULL with a split: not emitted yet */
    size_t count;
    bool known;
    ebb_node split;
} list;

enum {
    MOST = 1 << 16,       /* tensors of a sequence */
    MOST_COPIED = 1 << 24 /* of all that are changed */
};

static const ebb_type *type_of(const ebb_graph *g, ebb_value v)
{
    return ebb_value_of(g, v)->type;
}

static list *list_of(ebb_sequences *r, ebb_value v)
{
    static _Thread_local list none;
    none = (list){0};
    return v.i != 0 && v.i < r->value_count ? &r->lists[v.i] : &none;
}

/* ---- splits ---- */

/* How many parts a SplitToSequence has, and their sizes; 0: not known. */
static ebb_status part_sizes(ebb_sequences *r, ebb_node n, int axis, int64_t **sizes, size_t *count)
{
    const ebb_graph *g = r->g;
    int64_t whole = type_of(g, ebb_in(g, n, 0))->dims[axis], given = 0, each = 1;
    const ebb_tensor *t = NULL;
    *count = 0;
    if (ebb_in(g, n, 1).i != 0) {
        t = ebb_value_constant(g, ebb_in(g, n, 1));
        if (t == NULL || t->data == NULL || !ebb_type_elements(&t->type, &given) || given < 1)
            return NULL;
        each = ebb_tensor_int(t, 0);
    }
    bool listed = t != NULL && t->type.rank == 1;
    if (whole < 1 || (!listed && each < 1))
        return NULL;
    int64_t parts = listed ? given : (whole - 1) / each + 1;
    if (parts > MOST)
        return NULL;
    *sizes = EBB_SCRATCH(r->e, int64_t, (size_t)parts);
    EBB_GOT(*sizes);
    for (int64_t i = 0; i < parts; i++) {
        int64_t left = whole - i * each;
        (*sizes)[i] = listed ? ebb_tensor_int(t, i) : left < each ? left : each;
    }
    *count = (size_t)parts;
    return NULL;
}

/* Split(x, sizes) into out[]; more parts than a builder emits at once are split in two steps. */
static void emit_split(ebb_build *b, ebb_value x, int64_t axis, const int64_t *sizes, size_t count,
                       ebb_value *out)
{
    bool as_input = ebb_model_opset(b->g->model, EBB_DOMAIN_ONNX) >= 13;
    int64_t sums[EBB_BUILD_OUTPUTS] = {0};
    ebb_value groups[EBB_BUILD_OUTPUTS] = {0};
    size_t each = (count + EBB_BUILD_OUTPUTS - 1) / EBB_BUILD_OUTPUTS, width = 1;
    while (width < each) // whole subtrees, so that the depth stays small
        width *= EBB_BUILD_OUTPUTS;
    uint32_t n = (uint32_t)((count + width - 1) / width);
    for (size_t i = 0; i < count; i++)
        sums[i / width] += sizes[i];
    ebb_value in[2] = {x, as_input ? ebb_const_ints(b, sums, n) : EBB_NO_VALUE};
    ebb_with_int(b, "axis", axis);
    if (!as_input)
        ebb_with_ints(b, "split", sums, n);
    ebb_emit_node(b, EBB_OP_SPLIT, in, 2, groups, n, (UINT32_C(1) << n) - 1);
    for (uint32_t k = 0; k < n && b->status == NULL; k++) {
        size_t first = k * width, rest = count - first < width ? count - first : width;
        if (rest == 1)
            out[first] = groups[k];
        else
            emit_split(b, groups[k], axis, sizes + first, rest, out + first);
    }
}

static ebb_build build_at(ebb_sequences *r, ebb_node n)
{
    ebb_build b = ebb_edit_build(r->e, n, EBB_PHASE_NONE);
    b.name = ebb_node_of(r->g, n)->name.i != 0 ? ebb_text(r->g, ebb_node_of(r->g, n)->name)
                                               : ebb_value_name(r->g, ebb_out(r->g, n, 0));
    return b;
}

static ebb_status learn_split(ebb_sequences *r, ebb_node n, list *made)
{
    const ebb_graph *g = r->g;
    const ebb_type *x = type_of(g, ebb_in(g, n, 0));
    ebb_attrs attrs = ebb_node_attrs(g, n);
    int64_t axis = ebb_attr_int(&attrs, "axis", 0), *sizes;
    axis = axis < 0 ? axis + x->rank : axis;
    if (x->rank < 1 || axis < 0 || axis >= x->rank)
        return ebb_declined(r->e, n, "the rank of its input is not known");
    EBB_TRY(part_sizes(r, n, (int)axis, &sizes, &made->count));
    if (made->count == 0)
        return ebb_declined(r->e, n, "the sizes of its parts are not known, or too many");
    made->known = true;
    made->split = n;
    return NULL;
}

/* The tensors of a list; a split is emitted now. */
static ebb_status open_list(ebb_sequences *r, list *l)
{
    if (l->items != NULL || l->count == 0)
        return NULL;
    ebb_graph *g = r->g;
    ebb_node n = l->split;
    ebb_attrs attrs = ebb_node_attrs(g, n);
    int rank = type_of(g, ebb_in(g, n, 0))->rank;
    int64_t axis = ebb_attr_int(&attrs, "axis", 0), *sizes = NULL;
    axis = axis < 0 ? axis + rank : axis;
    bool squeeze = ebb_in(g, n, 1).i == 0 && ebb_attr_int(&attrs, "keepdims", 1) == 0;
    ebb_value *out = EBB_SCRATCH(r->e, ebb_value, l->count);
    EBB_GOT(out);
    EBB_TRY(part_sizes(r, n, (int)axis, &sizes, &l->count));
    ebb_build b = build_at(r, n);
    emit_split(&b, ebb_in(g, n, 0), axis, sizes, l->count, out);
    for (size_t k = 0; squeeze && k < l->count && b.status == NULL; k++) {
        ebb_type t = *type_of(g, out[k]);
        for (int i = (int)axis; i + 1 < t.rank; i++)
            t.dims[i] = t.dims[i + 1];
        out[k] = ebb_emit_reshape(&b, out[k], t.dims, t.rank - 1);
    }
    l->items = out;
    return b.status;
}

/* ---- lists ---- */

/* The constant position in input `slot`, or `otherwise` where there is none; false: not constant,
 * or beyond 0..last. */
static bool position(const ebb_graph *g, ebb_node n, uint32_t slot, int64_t otherwise, int64_t last,
                     int64_t size, size_t *place)
{
    int64_t at = otherwise;
    if (ebb_in(g, n, slot).i != 0) {
        const ebb_tensor *t = ebb_value_constant(g, ebb_in(g, n, slot));
        if (t == NULL || t->data == NULL)
            return false;
        at = ebb_tensor_int(t, 0);
    }
    at = at < 0 ? at + size : at;
    *place = (size_t)at;
    return at >= 0 && at <= last;
}

static const char *const not_constant = "its position is not constant, or outside the sequence";

/* `from` with `more` put in at `place`, or with that place left out (more none). */
static ebb_status changed(ebb_sequences *r, ebb_node n, list *from, size_t place, ebb_value more,
                          list *made)
{
    EBB_TRY(open_list(r, from));
    size_t count = more.i != 0 ? from->count + 1 : from->count - 1;
    r->copied += count;
    if (r->copied > MOST_COPIED)
        return ebb_declined(r->e, n, "sequences are changed too often");
    ebb_value *items = EBB_SCRATCH(r->e, ebb_value, count + 1);
    EBB_GOT(items);
    for (size_t i = 0, k = 0; i < count; i++) {
        if (i == place && more.i != 0) {
            items[i] = more;
            continue;
        }
        k += i == place; // the one that is left out
        items[i] = from->items[k++];
    }
    *made = (list){.items = items, .count = count, .known = true};
    return NULL;
}

/* The body of n, a SequenceMap over sequences of one length, for each of their tensors; its outputs are
 * lists. Inputs behind the first may be tensors, the same for all. */
static ebb_status learn_map(ebb_sequences *r, ebb_node n)
{
    ebb_graph *g = r->g;
    const ebb_node_info info = *ebb_node_of(g, n);
    const size_t count = list_of(r, info.in[0])->count;
    const ebb_graph *graph = ebb_node_body(g, n, "body");
    ebb_body body;
    size_t nodes = 0;
    if (graph == NULL || graph->input_count != info.in_count ||
        graph->output_count != info.out_count)
        return ebb_declined(r->e, n, "its body has other inputs or outputs");
    for (uint32_t i = 0; i < info.in_count; i++) {
        list *l = list_of(r, info.in[i]);
        if (i > 0 && !l->known && type_of(g, info.in[i])->kind != EBB_KIND_SEQUENCE)
            continue; // a tensor
        if (!l->known || l->count != count)
            return ebb_declined(r->e, n, "its sequences are not known, or of several lengths");
        EBB_TRY(open_list(r, l));
    }
    ebb_value *in = EBB_SCRATCH(r->e, ebb_value, info.in_count);
    ebb_value *items = EBB_SCRATCH(r->e, ebb_value, count * info.out_count + 1);
    EBB_GOT(in && items);
    EBB_TRY(ebb_body_open(r->e, &body, graph));
    for (size_t k = 0; k < count; k++) {
        char place[256];
        (void)snprintf(place, sizeof place, "%.200s/%zu", ebb_value_name(g, info.out[0]), k);
        for (uint32_t i = 0; i < info.in_count; i++) {
            const list *l = list_of(r, info.in[i]);
            in[i] = l->known ? l->items[k] : info.in[i];
        }
        EBB_TRY(ebb_body_put(r->e, &body, n, place, in, info.in_count, &nodes));
        for (uint32_t o = 0; o < info.out_count; o++)
            items[o * count + k] = ebb_body_output(&body, o);
    }
    for (uint32_t o = 0; o < info.out_count; o++)
        if (info.out[o].i != 0)
            *list_of(r, info.out[o]) =
                (list){.items = items + o * count, .count = count, .known = true};
    return NULL;
}

static ebb_status learn(ebb_sequences *r, ebb_node n, list *made)
{
    const ebb_graph *g = r->g;
    const ebb_node_info *info = ebb_node_of(g, n);
    list *from = list_of(r, ebb_in(g, n, 0));
    size_t place;
    switch (info->op) {
    case EBB_OP_SPLIT_TO_SEQUENCE:
        return learn_split(r, n, made);
    case EBB_OP_SEQUENCE_EMPTY:
        made->known = true;
        return NULL;
    case EBB_OP_SEQUENCE_CONSTRUCT:
        *made = (list){.items = info->in, .count = info->in_count, .known = true};
        return NULL;
    case EBB_OP_IDENTITY:
        *made = *from;
        return NULL;
    case EBB_OP_SEQUENCE_INSERT:
        if (!from->known)
            return NULL;
        if (!position(g, n, 2, (int64_t)from->count, (int64_t)from->count, (int64_t)from->count,
                      &place) ||
            from->count >= MOST)
            return ebb_declined(r->e, n, not_constant);
        return changed(r, n, from, place, ebb_in(g, n, 1), made);
    case EBB_OP_SEQUENCE_ERASE:
        if (!from->known)
            return NULL;
        if (!position(g, n, 1, (int64_t)from->count - 1, (int64_t)from->count - 1,
                      (int64_t)from->count, &place))
            return ebb_declined(r->e, n, not_constant);
        return changed(r, n, from, place, EBB_NO_VALUE, made);
    default:
        return NULL;
    }
}

/* ---- readers ---- */

static ebb_status concatenate(ebb_sequences *r, ebb_node n, list *from, ebb_value *y)
{
    const ebb_graph *g = r->g;
    ebb_attrs attrs = ebb_node_attrs(g, n);
    bool adds = ebb_attr_int(&attrs, "new_axis", 0) != 0;
    int64_t axis = ebb_attr_int(&attrs, "axis", 0);
    int rank = from->count > 0 ? type_of(g, from->items[0])->rank + adds : -1;
    axis = axis < 0 ? axis + rank : axis;
    if (from->count == 0 || rank < 1 || axis < 0 || axis >= rank)
        return ebb_declined(r->e, n, "its sequence is empty, or of tensors of unknown rank");
    ebb_value *in = EBB_SCRATCH(r->e, ebb_value, from->count);
    EBB_GOT(in);
    ebb_build b = build_at(r, n);
    bool as_input = ebb_model_opset(g->model, EBB_DOMAIN_ONNX) >= 13;
    ebb_value axes = adds && as_input ? ebb_const_ints(&b, &axis, 1) : EBB_NO_VALUE;
    for (size_t i = 0; i < from->count; i++) {
        in[i] = from->items[i];
        if (!adds)
            continue;
        if (!as_input)
            ebb_with_ints(&b, "axes", &axis, 1);
        in[i] = as_input ? ebb_emit(&b, EBB_OP_UNSQUEEZE, in[i], axes)
                         : ebb_emit(&b, EBB_OP_UNSQUEEZE, in[i]);
    }
    ebb_with_int(&b, "axis", axis);
    *y = ebb_emit_list(&b, EBB_OP_CONCAT, in, (uint32_t)from->count);
    return b.status;
}

/* What stands for the output of a reader; none: it stays. */
static ebb_status read(ebb_sequences *r, ebb_node n, list *from, ebb_value *y)
{
    const ebb_graph *g = r->g;
    size_t place;
    ebb_build b = build_at(r, n);
    *y = EBB_NO_VALUE;
    switch (ebb_node_of(g, n)->op) {
    case EBB_OP_SEQUENCE_AT:
        if (!position(g, n, 1, 0, (int64_t)from->count - 1, (int64_t)from->count, &place))
            return ebb_declined(r->e, n, not_constant);
        EBB_TRY(open_list(r, from));
        *y = from->items[place];
        if ((ebb_value_of(g, ebb_out(g, n, 0))->flags & EBB_IS_OUTPUT) != 0)
            *y = ebb_emit(&b, EBB_OP_IDENTITY, *y); // it may be wanted under two names
        return b.status;
    case EBB_OP_SEQUENCE_LENGTH: {
        const ebb_type number = ebb_type_tensor(EBB_I64, 0, NULL);
        const int64_t length = (int64_t)from->count;
        *y = ebb_const_tensor(&b, &number, &length);
        return b.status;
    }
    case EBB_OP_CONCAT_FROM_SEQUENCE:
        EBB_TRY(open_list(r, from));
        return concatenate(r, n, from, y);
    default:
        return NULL;
    }
}

static bool has_sequences(const ebb_graph *g)
{
    EBB_EACH_NODE(g, n) {
        const ebb_op op = ebb_node_of(g, n)->op;
        if (op == EBB_OP_SPLIT_TO_SEQUENCE || op == EBB_OP_SEQUENCE_EMPTY ||
            op == EBB_OP_SEQUENCE_CONSTRUCT)
            return true;
    }
    return false;
}

ebb_status ebb_sequences_init(ebb_sequences *r, ebb_edit *e)
{
    *r = (ebb_sequences){.e = e, .g = e->g};
    if (!has_sequences(e->g))
        return NULL;
    r->value_count = e->g->value_count;
    r->lists = ebb_arena_zeroed(e->scratch, r->value_count + 1, sizeof *r->lists);
    EBB_GOT(r->lists);
    return NULL;
}

ebb_status ebb_sequences_visit(ebb_sequences *r, ebb_node n)
{
    if (r->lists == NULL)
        return NULL;
    ebb_value out = ebb_out(r->g, n, 0), y;
    list made = {0}, *from = list_of(r, ebb_in(r->g, n, 0));
    if (ebb_node_of(r->g, n)->op == EBB_OP_SEQUENCE_MAP)
        return learn_map(r, n);
    EBB_TRY(learn(r, n, &made));
    if (out.i != 0 && out.i < r->value_count)
        r->lists[out.i] = made;
    if (!from->known || made.known)
        return NULL;
    EBB_TRY(read(r, n, from, &y));
    if (y.i == 0)
        return NULL;
    EBB_TRY(ebb_edit_swap(r->e, n, y));
    ebb_found(r->e);
    ebb_applied(r->e);
    return NULL;
}
