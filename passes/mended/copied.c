/* copied.c: parameters that an exporter stored twice.
 *
 *   before   h = Gather(wte, ids) ... y = MatMul(x, onnx::MatMul_9)     that is wte, transposed: the head
 *   after    h = Gather(wte, ids) ... t = Transpose(wte)                of a language model is tied to
 *                                     y = MatMul(x, t)                  its embedding
 *
 * Constant folding makes the second of the first. Trained as they are the two would part. Both of
 * PyTorch's exporters write a shared parameter once, under its name; so what has no name of its own, or the note
 * that it was folded, and holds the numbers of one that has is a copy.
 */
#include "passes/mended/copied.h"

#include "onnx/graph/build.h"
#include "passes/mended/merged.h"
#include "passes/parameters/noted.h"
#include "passes/parameters/trainable.h"

bool ebb_has_content(const ebb_graph *g, ebb_value v)
{
    const ebb_tensor *t = ebb_value_of(g, v)->tensor;
    const size_t element = ebb_dtype_bits((ebb_dtype)t->type.dtype) / 8;
    return t->data != NULL && element > 0 && t->bytes > 16 * element && !ebb_tensor_is_uniform(t);
}

/* Axes of one element may stand before the two, as a weight has one that is standardised as a batch. */
static bool is_transposed(const ebb_tensor *a, const ebb_tensor *b)
{
    const size_t element = ebb_dtype_bits((ebb_dtype)a->type.dtype) / 8;
    const int rank = a->type.rank, last = rank - 1;
    if (rank < 2 || b->type.rank != rank || a->type.dims[last - 1] != b->type.dims[last] ||
        a->type.dims[last] != b->type.dims[last - 1])
        return false;
    for (int i = 0; i < last - 1; i++)
        if (a->type.dims[i] != 1 || b->type.dims[i] != 1)
            return false;
    const size_t rows = (size_t)a->type.dims[last - 1], columns = (size_t)a->type.dims[last];
    const unsigned char *x = a->data, *y = b->data;
    if (a->bytes != rows * columns * element)
        return false;
    for (size_t i = 0; i < rows; i++)
        for (size_t k = 0; k < columns; k++)
            if (memcmp(x + (i * columns + k) * element, y + (k * rows + i) * element, element) != 0)
                return false;
    return true;
}

bool ebb_is_copy(const ebb_graph *g, ebb_value a, ebb_value b, bool *turned)
{
    const ebb_tensor *x = ebb_value_of(g, a)->tensor, *y = ebb_value_of(g, b)->tensor;
    *turned = false;
    if (x->type.dtype != y->type.dtype || x->bytes != y->bytes || !ebb_has_content(g, a) ||
        !ebb_has_content(g, b))
        return false;
    if (ebb_type_same_shape(&x->type, &y->type) &&
        (x->data == y->data || memcmp(x->data, y->data, x->bytes) == 0))
        return true;
    *turned = is_transposed(x, y);
    return *turned;
}

/* The same numbers in another shape, as spectral norm takes a convolution's weight for a matrix. */
static bool is_reshaped(const ebb_graph *g, ebb_value a, ebb_value b)
{
    const ebb_tensor *x = ebb_value_of(g, a)->tensor, *y = ebb_value_of(g, b)->tensor;
    return x->type.dtype == y->type.dtype && x->bytes == y->bytes && ebb_has_content(g, a) &&
           ebb_has_content(g, b) && memcmp(x->data, y->data, x->bytes) == 0;
}

static bool is_matrix(const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    return ebb_trainable_candidate(g, v) && info->type->rank >= 2 && info->use_count > 0 &&
           (info->flags & (EBB_IS_INPUT | EBB_IS_OUTPUT | EBB_IS_STATE | EBB_IS_CAPTURED)) == 0;
}

static ebb_status join(ebb_graph *g, ebb_value copy, ebb_value parameter, bool turned)
{
    const char *name = ebb_value_name(g, copy);
    EBB_TRY(ebb_props_set(g, &ebb_value_of(g, parameter)->props, EBB_COPIED_AS, name));
    if (turned) {
        const int rank = ebb_value_of(g, copy)->type->rank;
        int64_t swapped[EBB_MAX_RANK];
        for (int i = 0; i < rank; i++)
            swapped[i] = i < rank - 2 ? i : 2 * rank - 3 - i;
        ebb_build b = ebb_build_at(g, ebb_first(g), EBB_PHASE_NONE, NULL);
        ebb_with_ints(&b, "perm", swapped, (uint32_t)rank);
        parameter = ebb_emit(&b, EBB_OP_TRANSPOSE, parameter);
        EBB_TRY(b.status);
    } else if (!ebb_type_same_shape(ebb_value_of(g, copy)->type,
                                    ebb_value_of(g, parameter)->type)) {
        const ebb_type type = *ebb_value_of(g, copy)->type;
        ebb_build b = ebb_build_at(g, ebb_first(g), EBB_PHASE_NONE, NULL);
        parameter = ebb_emit_reshape(&b, parameter, type.dims, type.rank);
        EBB_TRY(b.status);
    }
    EBB_TRY(ebb_value_replace(g, copy, parameter));
    ebb_graph_remove_initializer(g, copy);
    return NULL;
}

/* Whether the exporter notes at a reader of the copy that this is what it reads. */
static bool is_noted(const ebb_graph *g, ebb_value copy, ebb_value parameter, ebb_noted *sources)
{
    const char *own = ebb_props_get(g, &ebb_value_of(g, parameter)->props, EBB_NOTED_NAME);
    ebb_noted_sources(sources, g, ebb_value_of(g, copy)->uses[0].node, "p_");
    for (int i = 0; own != NULL && i < sources->count; i++)
        if (strcmp(sources->name[i], own) == 0)
            return true;
    return false;
}

/* Of layers that were copied before they were trained several hold the same numbers. */
static bool is_parted(const ebb_graph *g, ebb_value v)
{
    return ebb_props_get(g, &ebb_value_of(g, v)->props, EBB_MERGED_WITH) != NULL;
}

/* ---- those that a copy may be of ---- */

/* Copies have the first and the last element of what they are copied from, whole, turned or in another
 * shape: who has others is not looked at. */
typedef struct originals {
    ebb_value *list;        /* in the order in which they were added */
    uint32_t *next;         /* by place: the next one of its slot, plus 1 */
    uint32_t *first, *last; /* by slot: places plus 1; 0: none */
    size_t count, slots;
} originals;

static ebb_status make_originals(originals *o, size_t most, ebb_arena *scratch)
{
    *o = (originals){.slots = most + 1};
    o->list = EBB_NEW(scratch, ebb_value, most + 1);
    o->next = EBB_NEW(scratch, uint32_t, most + 1);
    o->first = EBB_NEW(scratch, uint32_t, o->slots);
    o->last = EBB_NEW(scratch, uint32_t, o->slots);
    EBB_GOT(o->list && o->next && o->first && o->last);
    return NULL;
}

/* Of one with content. */
static size_t slot_of(const originals *o, const ebb_graph *g, ebb_value v)
{
    const ebb_tensor *t = ebb_value_of(g, v)->tensor;
    const size_t element = ebb_dtype_bits((ebb_dtype)t->type.dtype) / 8;
    const unsigned char *first = t->data, *last = first + t->bytes - element;
    uint64_t hash = t->bytes;
    for (size_t i = 0; i < element; i++)
        hash = (hash ^ first[i] ^ (uint64_t)last[i] << 8) * UINT64_C(0x100000001b3); // FNV's prime
    return (hash ^ hash >> 32) % o->slots;
}

static void add_original(originals *o, const ebb_graph *g, ebb_value v)
{
    const size_t slot = slot_of(o, g, v);
    o->list[o->count++] = v;
    if (o->first[slot] == 0)
        o->first[slot] = (uint32_t)o->count;
    else
        o->next[o->last[slot] - 1] = (uint32_t)o->count;
    o->last[slot] = (uint32_t)o->count;
}

/* The one that it is a copy of; none: EBB_NO_VALUE. */
static ebb_value parameter_of(const ebb_graph *g, ebb_value copy, const originals *named,
                              ebb_noted *sources, bool *turned)
{
    enum { MOST = 256 }; // so many have one slot only where somebody wants it so
    ebb_value found = EBB_NO_VALUE;
    uint32_t at = named->first[slot_of(named, g, copy)];
    for (int k = 0; at != 0 && k < MOST; k++, at = named->next[at - 1]) {
        const ebb_value of = named->list[at - 1];
        bool turns;
        if (!ebb_is_copy(g, copy, of, &turns) && !is_reshaped(g, copy, of))
            continue;
        const bool noted = is_noted(g, copy, of, sources);
        if (!noted && (found.i != 0 || is_parted(g, of)))
            continue;
        found = of;
        *turned = turns;
        if (noted)
            break;
    }
    return found;
}

ebb_status ebb_copied_join(ebb_graph *g, ebb_arena *scratch)
{
    const size_t all = g->initializer_count;
    if (!ebb_is_from_pytorch(g))
        return NULL;
    ebb_value *copies = EBB_NEW(scratch, ebb_value, all + 1);
    size_t copy_count = 0;
    originals named;
    EBB_TRY(make_originals(&named, all, scratch));
    ebb_noted *sources = EBB_NEW(scratch, ebb_noted, 1);
    EBB_GOT(copies && sources);
    for (size_t i = 0; i < all; i++) {
        ebb_value v = g->initializers[i];
        if (!is_matrix(g, v) || !ebb_has_content(g, v))
            continue;
        if (!is_parted(g, v) &&
            (ebb_name_is_anonymous(ebb_value_name(g, v)) || ebb_noted_is_folded(g, v)))
            copies[copy_count++] = v;
        else
            add_original(&named, g, v);
    }
    for (size_t i = 0; i < copy_count; i++) {
        bool turned = false;
        ebb_value of = parameter_of(g, copies[i], &named, sources, &turned);
        if (of.i != 0)
            EBB_TRY(join(g, copies[i], of, turned));
        else
            add_original(&named, g, copies[i]); // a layer that is run twice was folded twice
    }
    return NULL;
}

/* ---- the other way ---- */

static void put_transposed(unsigned char *to, const ebb_tensor *from)
{
    const size_t element = ebb_dtype_bits((ebb_dtype)from->type.dtype) / 8;
    const size_t rows = (size_t)from->type.dims[0], columns = (size_t)from->type.dims[1];
    const unsigned char *x = from->data;
    for (size_t i = 0; i < rows; i++)
        for (size_t k = 0; k < columns; k++)
            memcpy(to + (k * rows + i) * element, x + (i * columns + k) * element, element);
}

static ebb_status add_copy(ebb_graph *g, ebb_value of, ebb_value *copy)
{
    const ebb_value_info *info = ebb_value_of(g, of);
    const char *name = ebb_props_get(g, &info->props, EBB_COPIED_AS);
    const ebb_role role = (ebb_role)info->role;
    ebb_type type = *info->type;
    EBB_LOCAL_ARENA(scratch);
    unsigned char *data = ebb_arena_alloc(scratch, info->tensor->bytes + 1);
    EBB_GOT(data);
    type.dims[0] = info->type->dims[1];
    type.dims[1] = info->type->dims[0];
    put_transposed(data, info->tensor);
    EBB_TRY(ebb_graph_add_initializer(g, copy, name, &type, data, role));
    return ebb_props_set(g, &ebb_value_of(g, *copy)->props, EBB_MERGED_WITH, ebb_value_name(g, of));
}

ebb_status ebb_copied_part(ebb_graph *g)
{
    for (size_t i = 0, count = g->initializer_count; i < count; i++) {
        const ebb_value v = g->initializers[i];
        const ebb_value_info *info = ebb_value_of(g, v);
        ebb_value copy = EBB_NO_VALUE;
        if (ebb_props_get(g, &info->props, EBB_COPIED_AS) == NULL || info->type->rank != 2)
            continue;
        for (size_t u = ebb_value_of(g, v)->use_count; u-- > 0;) {
            const ebb_node n = ebb_value_of(g, v)->uses[u].node;
            if (ebb_node_of(g, n)->op != EBB_OP_TRANSPOSE)
                continue;
            if (copy.i == 0)
                EBB_TRY(add_copy(g, v, &copy));
            EBB_TRY(ebb_value_replace(g, ebb_out(g, n, 0), copy));
            ebb_node_remove(g, n);
        }
        if (copy.i != 0)
            ebb_props_drop(g, &ebb_value_of(g, v)->props, EBB_COPIED_AS);
    }
    return NULL;
}
