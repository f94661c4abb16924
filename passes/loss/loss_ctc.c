/* loss_ctc.c: connectionist temporal classification, the loss of sequences that are not aligned.
 *
 *   p: [T, N, C], log softmax of the predictions        labels: [N, S], their count by row: n
 *   path: blank, label 0, blank, label 1, ... blank     2 S + 1 places, of which row r ends at 2 n
 *
 *   a_0[i] = p_0[path i] for i = 0, 1                    a: [1, N, 2 S + 1], log of how likely the
 *   a_t[i] = log sum (e^a[i], e^a[i-1], e^a[i-2])        first t + 1 steps are to end at place i
 *            + p_t[path i]                               i-2: to a label that differs from the one before
 *   loss   = -log sum (e^a[2n], e^a[2n-1])               at the row's last step
 *
 * Each step of time is nodes of its own, six forward and about ten backward: the same operators that
 * unroll leaves of a Scan, so gradients, parts of the batch and other runtimes need nothing new. What
 * cannot be has the logarithm -1e30, which is finite: no difference of infinities.
 *
 * Paper: Graves et al., "Connectionist temporal classification", ICML 2006.
 */
#include "passes/loss/loss.h"

#include <math.h>

#define NEVER (-1e30)

enum { MOST_STEPS = 4096, FAN = EBB_BUILD_OUTPUTS };

typedef struct path {
    ebb_loss_site *s;
    ebb_build *b;
    int64_t steps, places; /* T, 2 S + 1 */
    ebb_value label;       /* [1, N, places] */
    ebb_value count;       /* [1, N, 1]: labels of a row */
    ebb_value from;        /* [3, places]: the place itself, one before, two before */
    ebb_value barred;      /* [1, N, 3, places]: 0, or -1e30 where that is no way */
    ebb_value length;      /* [1, N, 1]: steps of a row; none: all */
    ebb_dtype dtype;
} path;

static ebb_value emit_1(path *p, ebb_op op, ebb_value a)
{
    return ebb_emit(p->b, op, a);
}

static ebb_value emit_2(path *p, ebb_op op, ebb_value a, ebb_value b)
{
    return ebb_emit(p->b, op, a, b);
}

static ebb_value number(path *p, double x)
{
    return ebb_const_scalar(p->b, p->dtype, x);
}

static ebb_value whole(path *p, int64_t x)
{
    return ebb_const_scalar(p->b, EBB_I64, (double)x);
}

static ebb_value unsqueeze(path *p, ebb_value x, int64_t axis)
{
    return emit_2(p, EBB_OP_UNSQUEEZE, x, ebb_const_ints(p->b, &axis, 1));
}

static ebb_value gather(path *p, ebb_value x, ebb_value at)
{
    ebb_with_int(p->b, "axis", 2);
    return emit_2(p, EBB_OP_GATHER, x, at);
}

static ebb_value log_sum(path *p, ebb_value x)
{
    const int64_t axis[1] = {2};
    return ebb_emit_reduce(p->b, EBB_OP_REDUCE_LOG_SUM_EXP, x, axis, 1, false);
}

/* ---- constants of the path ---- */

/* [1, 1, rows, places] where `is` holds; with rows 0: [1, 1, places]. */
static ebb_value places_where(path *p, int rows, bool (*is)(int row, int64_t place))
{
    const int64_t dims[4] = {1, 1, rows > 0 ? rows : p->places, p->places};
    const ebb_type type = ebb_type_tensor(EBB_BOOL, rows > 0 ? 4 : 3, dims);
    const int count = rows > 0 ? rows : 1;
    uint8_t *list = EBB_SCRATCH(p->s->e, uint8_t, (size_t)(count * p->places));
    if (!ebb_build_got(p->b, list))
        return EBB_NO_VALUE;
    for (int64_t i = 0; i < count * p->places; i++)
        list[i] = is((int)(i / p->places), i % p->places);
    return ebb_const_tensor(p->b, &type, list);
}

static bool is_label(int row, int64_t place)
{
    (void)row;
    return place % 2 == 1;
}

static bool is_first(int row, int64_t place)
{
    (void)row;
    return place < 2;
}

static bool is_open(int row, int64_t place) /* to itself, and from the place before */
{
    return row < 2 && place >= row;
}

static bool is_leap(int row, int64_t place) /* over a blank, between labels that differ */
{
    return row == 2 && place >= 3 && place % 2 == 1;
}

/* `rows` lists of places, each a function of the place: int64[rows, places], or [places]. */
static ebb_value places(path *p, int rows, int64_t (*at)(int row, int64_t place))
{
    const int64_t dims[2] = {rows > 1 ? rows : p->places, p->places};
    const ebb_type type = ebb_type_tensor(EBB_I64, rows > 1 ? 2 : 1, dims);
    int64_t *list = EBB_SCRATCH(p->s->e, int64_t, (size_t)(rows * p->places));
    if (!ebb_build_got(p->b, list))
        return EBB_NO_VALUE;
    for (int64_t i = 0; i < rows * p->places; i++) {
        const int64_t x = at((int)(i / p->places), i % p->places);
        list[i] = x > 0 ? x : 0;
    }
    return ebb_const_tensor(p->b, &type, list);
}

static int64_t label_of(int row, int64_t place)
{
    (void)row;
    return (place - 1) / 2;
}

static int64_t before(int row, int64_t place)
{
    return place - row;
}

static int64_t two_before(int row, int64_t place)
{
    (void)row;
    return place - 2;
}

/* ---- the path ---- */

static void make_path(path *p)
{
    ebb_edit *e = p->s->e;
    ebb_value target = p->s->target, zero = number(p, 0);
    const int64_t last[1] = {1};
    ebb_value pad = ebb_const_like(p->b, target, (double)ebb_option_int(e, "ignore_index"));
    ebb_value blank = ebb_const_like(p->b, target, (double)ebb_option_int(e, "blank"));
    ebb_value out = emit_2(p, EBB_OP_EQUAL, target, pad);
    ebb_value counts = ebb_emit_cast(p->b, emit_1(p, EBB_OP_NOT, out), EBB_I64);
    p->count = unsqueeze(p, ebb_emit_reduce(p->b, EBB_OP_REDUCE_SUM, counts, last, 1, true), 0);
    ebb_value known = ebb_loss_known_labels(p->s, target, p->s->type.dims[2]);
    ebb_value labels = unsqueeze(p, ebb_emit(p->b, EBB_OP_WHERE, out, blank, known), 0);
    p->label = ebb_emit(p->b, EBB_OP_WHERE, places_where(p, 0, is_label),
                        gather(p, labels, places(p, 1, label_of)), blank);
    p->from = places(p, 3, before);
    ebb_value same =
        emit_2(p, EBB_OP_EQUAL, p->label, gather(p, p->label, places(p, 1, two_before)));
    ebb_value other = unsqueeze(p, emit_1(p, EBB_OP_NOT, same), 2);
    ebb_value leap = emit_2(p, EBB_OP_AND, places_where(p, 3, is_leap), other);
    ebb_value open = emit_2(p, EBB_OP_OR, places_where(p, 3, is_open), leap);
    p->barred = ebb_emit(p->b, EBB_OP_WHERE, open, zero, number(p, NEVER));
}

/* p_t of each step, [1, N, C]: by splits of splits. */
static void part(path *p, ebb_value x, int64_t count, ebb_value *steps)
{
    int64_t sizes[FAN] = {0};
    ebb_value parts[FAN];
    const int64_t groups = count < FAN ? count : FAN;
    if (count == 1 || p->b->status != NULL) {
        steps[0] = x;
        return;
    }
    for (int64_t g = 0; g < groups; g++)
        sizes[g] = count * (g + 1) / groups - count * g / groups;
    const ebb_value in[2] = {x, ebb_const_ints(p->b, sizes, (uint32_t)groups)};
    ebb_with_int(p->b, "axis", 0);
    ebb_emit_node(p->b, EBB_OP_SPLIT, in, 2, parts, (uint32_t)groups, ~0u);
    for (int64_t g = 0; g < groups && p->b->status == NULL; steps += sizes[g++])
        part(p, parts[g], sizes[g], steps);
}

/* How likely the labels of the path are at one step: [1, N, places]. */
static ebb_value heard(path *p, ebb_value step)
{
    ebb_with_int(p->b, "axis", 2);
    return emit_2(p, EBB_OP_GATHER_ELEMENTS, step, p->label);
}

static ebb_value walk(path *p, const ebb_value *steps)
{
    ebb_value a = ebb_emit(p->b, EBB_OP_WHERE, places_where(p, 0, is_first), heard(p, steps[0]),
                           number(p, NEVER));
    for (int64_t t = 1; t < p->steps && p->b->status == NULL; t++) {
        ebb_value ways = emit_2(p, EBB_OP_ADD, gather(p, a, p->from), p->barred);
        ebb_value now = heard(p, steps[t]);
        ebb_value next = emit_2(p, EBB_OP_ADD, log_sum(p, ways), now);
        if (p->length.i != 0)
            next = ebb_emit(p->b, EBB_OP_WHERE, emit_2(p, EBB_OP_GREATER, p->length, whole(p, t)),
                            next, a);
        a = next;
    }
    return a;
}

/* Of the last two places; a row without labels has one. */
static ebb_value end_of(path *p, ebb_value a)
{
    static const uint8_t first[2] = {1, 0};
    static const int64_t back[2] = {0, 1}, dims[3] = {1, 1, 2};
    const ebb_type bools = ebb_type_tensor(EBB_BOOL, 3, dims);
    const ebb_type ints = ebb_type_tensor(EBB_I64, 3, dims);
    ebb_value zero = whole(p, 0);
    ebb_value last = ebb_const_tensor(p->b, &ints, back);
    ebb_value at = emit_2(p, EBB_OP_SUB, emit_2(p, EBB_OP_MUL, p->count, whole(p, 2)), last);
    at = ebb_emit(p->b, EBB_OP_WHERE, emit_2(p, EBB_OP_LESS, at, zero), zero, at);
    ebb_with_int(p->b, "axis", 2);
    ebb_value two = emit_2(p, EBB_OP_GATHER_ELEMENTS, a, at);
    ebb_value labelled = emit_2(p, EBB_OP_GREATER, p->count, zero);
    ebb_value is = emit_2(p, EBB_OP_OR, ebb_const_tensor(p->b, &bools, first), labelled);
    two = ebb_emit(p->b, EBB_OP_WHERE, is, two, number(p, NEVER));
    return emit_1(p, EBB_OP_NEG, log_sum(p, two));
}

/* ---- the loss ---- */

static ebb_status find_lengths(path *p)
{
    ebb_graph *g = p->s->e->g;
    const char *name = ebb_option_string(p->s->e, "input-lengths");
    ebb_value made;
    if (name == NULL)
        return NULL;
    ebb_type type = *ebb_value_of(g, p->s->target)->type;
    type.rank = 1;
    EBB_TRY(ebb_value_add(g, &made, name, &type));
    if (strcmp(ebb_value_name(g, made), name) != 0)
        return ebb_error(EBB_USAGE, "loss: ctc: input-lengths=%s names something that is there",
                         name);
    EBB_TRY(ebb_graph_add_input(g, made));
    p->length = unsqueeze(p, unsqueeze(p, made, 0), 2);
    return p->b->status;
}

ebb_status ebb_loss_ctc(ebb_loss_site *s, ebb_value *loss)
{
    static const int64_t batch_second[3] = {1, 0, 2};
    const int time = (int)ebb_option_int(s->e, "time-axis");
    const ebb_type target = *ebb_value_of(s->e->g, s->target)->type;
    path p = {.s = s, .b = s->b, .steps = s->type.dims[time]};
    const int64_t blank = ebb_option_int(s->e, "blank");
    if (p.steps < 1 || p.steps > MOST_STEPS || s->type.dims[2] < 1 || target.dims[1] < 1)
        return ebb_error(EBB_USAGE,
                         "loss: ctc needs sizes that are known, and 1 to %d steps of time on axis "
                         "%d: output '%s' has %lld steps and %lld classes, its target %lld labels",
                         MOST_STEPS, time, ebb_value_name(s->e->g, s->x), (long long)p.steps,
                         (long long)s->type.dims[2], (long long)target.dims[1]);
    if (blank >= s->type.dims[2])
        return ebb_error(EBB_USAGE, "loss: ctc: blank=%lld is none of the %lld classes of '%s'",
                         (long long)blank, (long long)s->type.dims[2],
                         ebb_value_name(s->e->g, s->x));
    p.places = 2 * target.dims[1] + 1;
    p.dtype = ebb_is_narrow(&s->type) ? EBB_F32 : (ebb_dtype)s->type.dtype;
    EBB_TRY(find_lengths(&p));
    ebb_value x = ebb_emit_cast(s->b, s->x, p.dtype);
    ebb_with_int(s->b, "axis", 2);
    x = emit_1(&p, EBB_OP_LOG_SOFTMAX, x);
    if (time == 1)
        x = ebb_emit_transpose(s->b, x, batch_second, 3);
    ebb_value *steps = EBB_SCRATCH(s->e, ebb_value, (size_t)p.steps);
    EBB_GOT(steps);
    make_path(&p);
    part(&p, x, p.steps, steps);
    ebb_value each = end_of(&p, walk(&p, steps));
    const bool hides = ebb_option_int(s->e, "zero-infinity") != 0;
    ebb_value never = emit_2(&p, EBB_OP_GREATER, each, number(&p, -NEVER / 10));
    each = ebb_emit(s->b, EBB_OP_WHERE, never, number(&p, hides ? 0 : (double)INFINITY), each);
    const bool sum = strcmp(ebb_option_string(s->e, "reduction"), "sum") == 0;
    if (!sum) { // each by its labels, as PyTorch has it
        ebb_value empty = emit_2(&p, EBB_OP_LESS, p.count, whole(&p, 1));
        ebb_value by = ebb_emit(s->b, EBB_OP_WHERE, empty, whole(&p, 1), p.count);
        const int64_t last[1] = {2};
        by = emit_2(&p, EBB_OP_SQUEEZE, by, ebb_const_ints(s->b, last, 1));
        each = emit_2(&p, EBB_OP_DIV, each, ebb_emit_cast(s->b, by, p.dtype));
    }
    return ebb_loss_reduced(s, each, loss);
}
