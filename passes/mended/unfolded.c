/* unfolded.c: a token that the exporter has already repeated for each row of the batch.
 *
 *   before   y = Concat(expand: [4, 1, 48], x)         the batch of the export is in the file, and
 *            four times the same row in expand         training would give each row its own token
 *
 *   after    e = Expand(token: [1, 1, 48], {4, 1, 48})         by the name that the exporter notes
 *            y = Concat(e, x)                                   where nothing else was done to it
 *
 * So are rows of an embedding that is read at a place known before the run (the kind of a token). A
 * constant that was repeated becomes one that is not, and what is left of it tells whether it is a
 * weight.
 */
#include "passes/mended/unfolded.h"

#include "onnx/graph/build.h"
#include "passes/parameters/noted.h"
#include "passes/parameters/trainable.h"
#include "passes/parameters/weights.h"

enum { LEAST = 8 }; // elements that are left: fewer say nothing, unless the exporter does

/* The same bytes again along this axis. */
static bool repeats(const ebb_tensor *t, int axis)
{
    const unsigned char *bytes = t->data;
    size_t inner = ebb_dtype_bits((ebb_dtype)t->type.dtype) / 8, outer = 1;
    for (int k = axis + 1; k < t->type.rank; k++)
        inner *= (size_t)t->type.dims[k];
    for (int k = 0; k < axis; k++)
        outer *= (size_t)t->type.dims[k];
    const size_t times = (size_t)t->type.dims[axis];
    for (size_t i = 0; i < outer; i++) {
        const unsigned char *line = bytes + i * times * inner;
        if (memcmp(line, line + inner, (times - 1) * inner) != 0)
            return false;
    }
    return true;
}

bool ebb_initializer_is_folded(const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    const char *kind = ebb_props_get(g, &info->props, EBB_NOTED_KIND);
    return ebb_trainable_candidate(g, v) && info->tensor->data != NULL && info->use_count > 0 &&
           kind == NULL &&
           (!g->model->torchscript || ebb_name_is_anonymous(ebb_value_name(g, v))) &&
           (info->flags & (EBB_IS_INPUT | EBB_IS_OUTPUT | EBB_IS_STATE | EBB_IS_CAPTURED)) == 0;
}

/* Which axes of v shrink to one; 0: none. noted: the exporter says that it was repeated. */
static unsigned repeated_axes(const ebb_graph *g, ebb_value v, bool noted)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    const ebb_tensor *t = info->tensor;
    const size_t element = ebb_dtype_bits((ebb_dtype)info->type->dtype) / 8;
    const int64_t least = noted ? 2 : LEAST;
    unsigned axes = 0;
    int64_t left;
    const bool looked_up =
        t->type.rank > 2 && ebb_name_is_after(ebb_value_name(g, v), "embedding index index_select");
    bool alone = false;
    if (!ebb_initializer_is_folded(g, v) || t->type.rank < 2 || t->type.rank > 8 ||
        !ebb_type_elements(&t->type, &left) || left < least || element == 0 ||
        t->bytes / element != (size_t)left || t->bytes % element != 0)
        return 0;
    for (size_t i = 0; i < info->use_count && !noted; i++)
        alone |= ebb_use_is_alone(g, info->uses[i]);
    if (alone && !looked_up)
        return 0; // a fresh weight with equal rows: what is repeated is repeated for the batch
    for (int k = 0; k < t->type.rank; k++) {
        if (t->type.dims[k] < 2 || !repeats(t, k))
            continue;
        axes |= 1U << k;
        left /= t->type.dims[k];
    }
    if (alone && left == t->type.dims[t->type.rank - 1])
        return 0; // rows of a table that are all equal: the table's, or one of its rows
    return left < least ? 0 : axes;
}

/* The first element along each of those axes. */
static void gather_first(unsigned char *to, const ebb_tensor *t, unsigned axes)
{
    const size_t element = ebb_dtype_bits((ebb_dtype)t->type.dtype) / 8;
    const unsigned char *from = t->data;
    const size_t count = t->bytes / element;
    for (size_t i = 0; i < count; i++) {
        bool first = true;
        size_t rest = i;
        for (int k = t->type.rank - 1; k >= 0; k--) {
            first = first && ((axes >> k & 1) == 0 || rest % (size_t)t->type.dims[k] == 0);
            rest /= (size_t)t->type.dims[k];
        }
        if (!first)
            continue;
        memcpy(to, from + i * element, element);
        to += element;
    }
}

ebb_status ebb_initializer_restate(ebb_graph *g, ebb_value *made, ebb_value v, const ebb_type *type,
                                   const void *bytes, const char *mark)
{
    EBB_TRY(ebb_graph_add_initializer(g, made, "mended", type, bytes, EBB_ROLE_NONE));
    EBB_TRY(ebb_props_set_all(g, &ebb_value_of(g, *made)->props, g, &ebb_value_of(g, v)->props));
    return ebb_props_set(g, &ebb_value_of(g, *made)->props, mark, "1");
}

ebb_status ebb_initializer_give_way(ebb_graph *g, ebb_value v, ebb_value made, ebb_value y,
                                    ebb_arena *scratch)
{
    const char *name = ebb_arena_strdup(scratch, ebb_value_name(g, v));
    EBB_GOT(name);
    EBB_TRY(ebb_value_replace(g, v, y));
    ebb_graph_remove_initializer(g, v);
    return ebb_value_rename(g, made, name);
}

/* Of one parameter that nothing else was done to the exporter's note has the name. */
static ebb_status take_name(ebb_graph *g, ebb_value small, const ebb_noted_losses *losses,
                            ebb_arena *scratch)
{
    const char *name = ebb_noted_repeated(losses, g, small, scratch);
    if (name == NULL || ebb_value_find(g, name).i != 0)
        return NULL;
    EBB_TRY(ebb_props_set(g, &ebb_value_of(g, small)->props, EBB_NOTED_KIND, "PARAMETER"));
    return ebb_value_rename(g, small, name);
}

static ebb_status shrink(ebb_graph *g, ebb_value v, unsigned axes, const ebb_noted_losses *losses,
                         ebb_arena *scratch)
{
    const ebb_tensor *t = ebb_value_of(g, v)->tensor;
    ebb_type type = t->type, whole = t->type;
    ebb_value small;
    unsigned char *bytes = EBB_NEW(scratch, unsigned char, t->bytes);
    EBB_GOT(bytes);
    for (int k = 0; k < type.rank; k++)
        if ((axes >> k & 1) != 0)
            type.dims[k] = 1;
    gather_first(bytes, t, axes);
    EBB_TRY(ebb_initializer_restate(g, &small, v, &type, bytes, EBB_REPEATED));
    ebb_build b = ebb_build_at(g, ebb_first(g), EBB_PHASE_NONE, NULL);
    ebb_value expanded =
        ebb_emit(&b, EBB_OP_EXPAND, small, ebb_const_ints(&b, whole.dims, (uint32_t)whole.rank));
    EBB_TRY(b.status);
    EBB_TRY(ebb_initializer_give_way(g, v, small, expanded, scratch));
    return take_name(g, small, losses, scratch);
}

ebb_status ebb_repeated_shrink(ebb_graph *g)
{
    EBB_LOCAL_ARENA(kept);
    ebb_noted_losses losses;
    if (!ebb_is_from_pytorch(g))
        return NULL;
    EBB_TRY(ebb_noted_losses_find(&losses, g, kept));
    for (size_t i = 0, count = g->initializer_count; i < count; i++) {
        ebb_value v = g->initializers[i];
        EBB_LOCAL_ARENA(scratch);
        const bool noted = ebb_noted_repeated(&losses, g, v, scratch) != NULL;
        const unsigned axes = repeated_axes(g, v, noted);
        if (axes == 0)
            continue;
        EBB_TRY(shrink(g, v, axes, &losses, scratch));
        i--, count--; // the list moved up by one, and the new one stands last
    }
    return NULL;
}
