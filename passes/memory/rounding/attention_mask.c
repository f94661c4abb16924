/* attention_mask.c: reads the masks of attention.
 *
 *   x + Where(c, 0, -3.4e38)     c is the mask, one byte an element, and -3.4e38 its fill
 *   x + m                        m constant, 0 on and below the diagonal and f above: causal
 *   x + m                        any other m: a bias
 *   Where(c, x, f)               c is the mask, f replaces
 *
 * A condition that is And of a constant lower triangle and of something else is causal and that
 * something, which is smaller: [batch, 1, 1, t] where the And is [batch, 1, s, t]. All layers read
 * the same condition, and it is kept once.
 */
#include "passes/memory/rounding/attention_mask.h"

#include <math.h>

typedef enum truth { MIXED, ALL, TRIANGLE } truth;

static bool is_true(const ebb_tensor *t, int64_t i)
{
    return t->type.dtype == EBB_BOOL && ebb_tensor_int(t, i) != 0;
}

/* Whether constant c, or its contrary, is true everywhere or exactly where j <= i in each of its
 * matrices. */
static truth truth_of(const ebb_tensor *t, bool inverted)
{
    int64_t n = 0;
    if (t->type.dtype != EBB_BOOL || !ebb_type_elements(&t->type, &n))
        return MIXED;
    bool all = true, triangle = t->type.rank >= 2;
    int64_t rows = triangle ? t->type.dims[t->type.rank - 2] : 1;
    int64_t columns = triangle ? t->type.dims[t->type.rank - 1] : 1;
    for (int64_t i = 0; i < n && (all || triangle); i++) {
        bool on = is_true(t, i) != inverted;
        bool below = triangle && i % columns <= i / columns % rows;
        all = all && on;
        triangle = triangle && on == below;
    }
    return all ? ALL : triangle && rows > 1 && columns > 1 ? TRIANGLE : MIXED;
}

/* The same for a constant that is added: 0 where kept, one negative number elsewhere. */
static truth truth_of_added(const ebb_tensor *t, double *fill)
{
    int64_t n = 0;
    if (!ebb_dtype_is_float((ebb_dtype)t->type.dtype) || !ebb_type_elements(&t->type, &n))
        return MIXED;
    bool all = true, triangle = t->type.rank >= 2;
    int64_t rows = triangle ? t->type.dims[t->type.rank - 2] : 1;
    int64_t columns = triangle ? t->type.dims[t->type.rank - 1] : 1;
    *fill = triangle && columns > 1 ? ebb_tensor_double(t, 1) : 0.0;
    triangle = triangle && rows > 1 && columns > 1 && *fill < 0.0;
    for (int64_t i = 0; i < n && (all || triangle); i++) {
        double x = ebb_tensor_double(t, i);
        bool below = triangle && i % columns <= i / columns % rows;
        all = all && x == 0.0;
        triangle = triangle && x == (below ? 0.0 : *fill);
    }
    return all ? ALL : triangle ? TRIANGLE : MIXED;
}

/* One fill serves all parts of a mask. Two that are added are twice as low where both say no, which
 * is the same only for -inf. */
static const char *set_fill(ebb_masking *mask, double fill, bool replace)
{
    if ((double)(float)fill != fill || isnan(fill))
        return "what its mask fills in is no float32 number";
    if (mask->fills && (fill != mask->fill || replace != mask->replace || !isinf(fill)))
        return "its mask has several parts, which one fill does not serve";
    mask->fills = true;
    mask->fill = fill;
    mask->replace = replace;
    return NULL;
}

/* Leaves of a tree of Ands that are neither true everywhere nor the triangle. */
static bool split(ebb_masking *mask, const ebb_graph *g, ebb_value c, int depth)
{
    const ebb_tensor *t = ebb_value_constant(g, c);
    truth known = t != NULL && t->data != NULL ? truth_of(t, false) : MIXED;
    if (known != MIXED) {
        mask->causal = mask->causal || known == TRIANGLE;
        mask->split = true;
        return true;
    }
    if (ebb_producer_op(g, c) == EBB_OP_AND && depth > 0) {
        ebb_node n = ebb_value_of(g, c)->producer;
        return split(mask, g, ebb_in(g, n, 0), depth - 1) &&
               split(mask, g, ebb_in(g, n, 1), depth - 1);
    }
    if (mask->rest_count == sizeof mask->rest / sizeof mask->rest[0])
        return false;
    mask->rest[mask->rest_count++] = c;
    return true;
}

static const char *take_condition(ebb_masking *mask, const ebb_graph *g, ebb_value c, bool inverted)
{
    while (ebb_producer_op(g, c) == EBB_OP_NOT) {
        c = ebb_in(g, ebb_value_of(g, c)->producer, 0);
        inverted = !inverted;
    }
    const ebb_tensor *t = ebb_value_constant(g, c);
    truth known = t != NULL && t->data != NULL ? truth_of(t, inverted) : MIXED;
    if (known != MIXED) {
        mask->causal = mask->causal || known == TRIANGLE;
        return NULL;
    }
    if (mask->condition.i != 0)
        return "it has several masks";
    mask->condition = c;
    mask->inverted = inverted;
    ebb_masking parts = *mask;
    if (!inverted && split(&parts, g, c, 4) && parts.split)
        *mask = parts;
    return NULL;
}

const char *ebb_masking_add(ebb_masking *mask, const ebb_graph *g, ebb_value m)
{
    ebb_node maker = ebb_value_of(g, m)->producer;
    double on, off, fill;
    if (ebb_producer_op(g, m) == EBB_OP_WHERE && ebb_scalar_of(g, ebb_in(g, maker, 1), &on) &&
        ebb_scalar_of(g, ebb_in(g, maker, 2), &off) && (on == 0.0) != (off == 0.0)) {
        bool inverted = off == 0.0;
        const char *why = set_fill(mask, inverted ? on : off, false);
        return why != NULL ? why : take_condition(mask, g, ebb_in(g, maker, 0), inverted);
    }
    const ebb_tensor *t = ebb_value_constant(g, m);
    truth known = t != NULL && t->data != NULL ? truth_of_added(t, &fill) : MIXED;
    if (known == ALL)
        return NULL;
    if (known == TRIANGLE) {
        mask->causal = true;
        return set_fill(mask, fill, false);
    }
    if (mask->bias.i != 0)
        return "two masks are added to its scores";
    mask->bias = m;
    return NULL;
}

const char *ebb_masking_where(ebb_masking *mask, const ebb_graph *g, ebb_value condition,
                              bool scores_first, ebb_value fill)
{
    double f;
    if (!ebb_scalar_of(g, fill, &f))
        return "what replaces masked scores is no constant";
    if (mask->bias.i != 0 && !isinf(f))
        return "its scores are replaced after a bias was added";
    const char *why = set_fill(mask, f, true);
    return why != NULL ? why : take_condition(mask, g, condition, !scores_first);
}

ebb_status ebb_masking_keep(ebb_value *keep, const ebb_masking *mask, ebb_edit *e, ebb_node before,
                            ebb_value *made)
{
    ebb_graph *g = e->g;
    ebb_value c = mask->condition;
    ebb_build b = ebb_edit_build(e, before, EBB_PHASE_NONE);
    *keep = c;
    if (c.i == 0 || (mask->split && mask->rest_count == 0)) {
        *keep = ebb_const_scalar(&b, EBB_BOOL, 1.0);
        return b.status;
    }
    if (mask->split && mask->rest_count == 1)
        *keep = mask->rest[0];
    if (!mask->inverted && (!mask->split || mask->rest_count == 1))
        return NULL;
    if (made[c.i].i == 0) { // right after the condition, so that it comes before any of its readers
        ebb_node maker = ebb_value_of(g, c)->producer;
        b = ebb_edit_build(e, maker.i != 0 ? ebb_next(g, maker) : ebb_first(g), EBB_PHASE_NONE);
        b.phase = (ebb_phase)ebb_node_of(g, before)->phase;
        b.name = ebb_value_name(g, c);
        if (mask->inverted) {
            made[c.i] = ebb_emit(&b, EBB_OP_NOT, c);
        } else {
            made[c.i] = mask->rest[0];
            for (uint32_t i = 1; i < mask->rest_count; i++)
                made[c.i] = ebb_emit(&b, EBB_OP_AND, made[c.i], mask->rest[i]);
        }
    }
    *keep = made[c.i];
    return b.status;
}
