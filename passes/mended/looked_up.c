/* looked_up.c: a table of places that was looked up in before the run.
 *
 *   before   y = Add(scores, unsqueeze: [1, heads, 49, 49])      a bias for how far two places are apart:
 *            the same numbers again and again                    training would part what is one parameter
 *
 *   after    b = Gather<axis = 2>(unsqueeze: [1, heads, 169], places: [49, 49])
 *            y = Add(scores, b)
 *
 * Two places that hold the same numbers, in all heads at once, hold one row of the table: numbers that
 * were drawn and trained do not come again. So the table is the parameter, but for the order of its rows,
 * and without those that nobody reads. What a rule or arithmetic made is left alone: it comes again as
 * well, and a table of it would be trained in the place of what it was made of.
 */
#include "passes/mended/looked_up.h"

#include <stdlib.h>

#include "onnx/graph/build.h"
#include "passes/mended/unfolded.h"
#include "passes/parameters/noted.h"
#include "passes/parameters/slots.h"
#include "passes/parameters/trainable.h"
#include "passes/parameters/values.h"
#include "passes/parameters/weights.h"

enum { MOST = 1 << 26, LEAST_WIDTH = 2 };

/* Axes from .. to - 1 are places; the others, row by row, are what a place holds. */
typedef struct split {
    int from, to;
    int64_t outer, places, inner;
} split;

typedef struct place {
    const unsigned char *row; /* what it holds */
    size_t bytes;
    int64_t at;
} place;

static split split_of(const ebb_type *type, int from, int to)
{
    split s = {.from = from, .to = to, .outer = 1, .places = 1, .inner = 1};
    for (int k = 0; k < type->rank; k++)
        *(k < from ? &s.outer : k < to ? &s.places : &s.inner) *= type->dims[k];
    return s;
}

static int by_row(const void *a, const void *b)
{
    const place *x = a, *y = b;
    int order = memcmp(x->row, y->row, x->bytes);
    return order != 0 ? order : (x->at > y->at) - (x->at < y->at);
}

static int by_place(const void *a, const void *b)
{
    const place *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

/* Places in order, each with the row of the first that holds the same. */
static place *places_of(const ebb_tensor *t, const split *s, size_t element, ebb_arena *scratch)
{
    const size_t width = (size_t)(s->outer * s->inner) * element, line = (size_t)s->inner * element;
    const unsigned char *bytes = t->data;
    place *list = EBB_NEW(scratch, place, (size_t)s->places);
    unsigned char *rows = EBB_NEW(scratch, unsigned char, t->bytes);
    if (list == NULL || rows == NULL)
        return NULL;
    for (int64_t p = 0; p < s->places; p++) {
        unsigned char *row = rows + (size_t)p * width;
        for (int64_t o = 0; o < s->outer; o++)
            memcpy(row + (size_t)o * line, bytes + (size_t)(o * s->places + p) * line, line);
        list[p] = (place){row, width, p};
    }
    qsort(list, (size_t)s->places, sizeof *list, by_row);
    for (int64_t p = 1; p < s->places; p++)
        if (memcmp(list[p].row, list[p - 1].row, width) == 0)
            list[p].row = list[p - 1].row;
    qsort(list, (size_t)s->places, sizeof *list, by_place);
    return list;
}

/* Rows get their numbers in the order in which they are met. */
static int64_t number_rows(int64_t *index, const place *list, const split *s)
{
    int64_t count = 0;
    const unsigned char *first = list[0].row; // of the row of place 0: rows lie in order of places
    for (int64_t p = 0; p < s->places; p++) {
        int64_t of = (list[p].row - first) / (int64_t)list[p].bytes;
        index[p] = of == p ? count++ : index[of];
    }
    return count;
}

typedef struct table {
    split s;
    ebb_type type;
    unsigned char *bytes;
    int64_t *index; /* of each place */
} table;

/* Rows that are multiples of one are distances times the slope of a head, which nobody trains. */
static bool is_of_multiples(const ebb_tensor *t, const split *s, int64_t rows)
{
    int64_t heads = s->outer;
    for (int64_t h = 1; h < heads; h++) {
        double dot = 0, a = 0, b = 0;
        for (int64_t k = 0; k < rows * s->inner; k++) {
            double x = ebb_tensor_double(t, k);
            double y = ebb_tensor_double(t, h * rows * s->inner + k);
            dot += x * y, a += x * x, b += y * y;
        }
        if (dot * dot < (1 - 1e-6) * a * b)
            return false;
    }
    return heads > 1;
}

/* Numbers of both signs that do not come again, and follow no rule. */
static ebb_status is_drawn(bool *drawn, const table *made, int64_t rows, ebb_arena *scratch)
{
    enum { FEWEST = 12 };
    const ebb_tensor t = {.type = made->type,
                          .data = made->bytes,
                          .bytes = (size_t)(made->s.outer * rows * made->s.inner) *
                                   (ebb_dtype_bits((ebb_dtype)made->type.dtype) / 8)};
    bool above = false, below = false;
    ebb_look look;
    int64_t count;
    *drawn = false;
    if (!ebb_type_elements(&made->type, &count) || count < FEWEST)
        return NULL;
    for (int64_t i = 0; i < count && !(above && below); i++) {
        double x = ebb_tensor_double(&t, i);
        above |= x > 0;
        below |= x < 0;
    }
    EBB_TRY(ebb_values_look(&look, NULL, &t, scratch));
    *drawn = above && below && look == EBB_LOOK_DRAWN && !is_of_multiples(&t, &made->s, rows);
    return NULL;
}

/* *found: the table that t was looked up in, with places along these axes. */
static ebb_status find(table *made, bool *found, const ebb_tensor *t, split s, ebb_arena *scratch)
{
    const size_t element = ebb_dtype_bits((ebb_dtype)t->type.dtype) / 8;
    const size_t line = (size_t)s.inner * element;
    *found = false;
    place *list = places_of(t, &s, element, scratch);
    *made = (table){.s = s, .type = t->type, .index = EBB_NEW(scratch, int64_t, (size_t)s.places)};
    EBB_GOT(list && made->index);
    int64_t rows = number_rows(made->index, list, &s);
    if (rows * 20 > s.places * 19)
        return NULL;
    made->bytes = EBB_NEW(scratch, unsigned char, (size_t)(s.outer * rows) * line);
    EBB_GOT(made->bytes);
    for (int64_t p = 0; p < s.places; p++)
        for (int64_t o = 0; o < s.outer; o++)
            memcpy(made->bytes + (size_t)(o * rows + made->index[p]) * line,
                   list[p].row + (size_t)o * line, line);
    made->type.rank = 0;
    for (int k = 0; k < t->type.rank; k++)
        if (k <= s.from || k >= s.to)
            made->type.dims[made->type.rank++] = k == s.from ? rows : t->type.dims[k];
    return is_drawn(found, made, rows, scratch);
}

/* Each way from v, through what only moves it, ends in a sum. */
static bool is_added(const ebb_graph *g, ebb_value v, int far)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    if (info->use_count == 0 || far == 0 || ebb_value_is_held(g, v))
        return false;
    for (size_t i = 0; i < info->use_count; i++) {
        ebb_node n = info->uses[i].node;
        bool moved = ebb_use_of(g, info->uses[i]) == EBB_SLOT_MOVED && ebb_out(g, n, 0).i != 0;
        if (ebb_node_of(g, n)->op != EBB_OP_ADD &&
            !(moved && is_added(g, ebb_out(g, n, 0), far - 1)))
            return false;
    }
    return true;
}

static bool may_be_looked_up(const ebb_graph *g, ebb_value v)
{
    enum { FAR = 4 }; // Reshape, Transpose, Unsqueeze
    const ebb_value_info *info = ebb_value_of(g, v);
    int64_t count;
    return ebb_initializer_is_folded(g, v) && !ebb_name_is_of_arithmetic(ebb_value_name(g, v)) &&
           info->type->rank >= 2 && info->type->rank <= 8 &&
           ebb_type_elements(info->type, &count) && count <= MOST &&
           info->tensor->bytes / (ebb_dtype_bits((ebb_dtype)info->type->dtype) / 8) ==
               (size_t)count &&
           is_added(g, v, FAR);
}

static ebb_status find_any(table *made, bool *found, const ebb_tensor *t, ebb_arena *scratch)
{
    const int rank = t->type.rank;
    ebb_look look;
    *found = false;
    EBB_TRY(ebb_values_look(&look, NULL, t, scratch));
    if (look != EBB_LOOK_LOOKED_UP)
        return NULL;
    split s = split_of(&t->type, rank - 2, rank); // from one place to another
    if (rank > 2 && s.outer >= LEAST_WIDTH)
        EBB_TRY(find(made, found, t, s, scratch));
    for (int k = 0; k < rank && !*found; k++) {
        s = split_of(&t->type, k, k + 1);
        if (t->type.dims[k] > 1 && s.outer * s.inner >= LEAST_WIDTH)
            EBB_TRY(find(made, found, t, s, scratch));
    }
    return NULL;
}

static ebb_status restore(ebb_graph *g, ebb_value v, const table *made, ebb_arena *scratch)
{
    const ebb_type whole = ebb_value_of(g, v)->tensor->type;
    ebb_value small;
    const ebb_type places =
        ebb_type_tensor(EBB_I64, made->s.to - made->s.from, whole.dims + made->s.from);
    EBB_TRY(ebb_initializer_restate(g, &small, v, &made->type, made->bytes, EBB_LOOKED_UP));
    ebb_build b = ebb_build_at(g, ebb_first(g), EBB_PHASE_NONE, NULL);
    ebb_value index = ebb_const_tensor(&b, &places, made->index);
    ebb_with_int(&b, "axis", made->s.from);
    ebb_value y = ebb_emit(&b, EBB_OP_GATHER, small, index);
    EBB_TRY(b.status);
    return ebb_initializer_give_way(g, v, small, y, scratch);
}

static ebb_status restore_one(ebb_graph *g, ebb_value v, bool *done)
{
    EBB_LOCAL_ARENA(scratch);
    table made;
    ebb_status status = find_any(&made, done, ebb_value_of(g, v)->tensor, scratch);
    if (status == NULL && *done)
        status = restore(g, v, &made, scratch);
    return status;
}

ebb_status ebb_looked_up_restore(ebb_graph *g)
{
    if (!ebb_is_from_pytorch(g))
        return NULL;
    for (size_t i = 0, count = g->initializer_count; i < count; i++) {
        bool done = false;
        if (may_be_looked_up(g, g->initializers[i]))
            EBB_TRY(restore_one(g, g->initializers[i], &done));
        if (done)
            i--, count--; // the list moved up by one, and the new one stands last
    }
    return NULL;
}
