/* low-bit-state: the optimizer's states as codes of 8 or 4 bits, with a scale for each block.
 *
 *   before   w', m', v' = AdamW(lr, t, w, g, m, v)                 64 bits a parameter
 *   after    w', m', ms', v', vs' = AdamWLowBit(lr, t, w, g, m, ms, v, vs, maps)
 *                    16 bits + 2 scales of 32 bits for 256 parameters; 4 bits: 8 + 2 for 128
 *
 *   m_i = map[code_i] * scale of its block: the largest magnitude there
 *
 * The operator decodes, updates and encodes one block after the other, in place. Maps of b bits:
 *
 *   first moment, momentum   0 and +-10^-d (0.1 + 0.9 j / c), j = 1 .. c, with c = 2^(b-2-d) steps
 *                            in decade d: the dynamic map of 8-bit Adam, but by the upper ends of
 *                            its steps, so that both signs reach 1 (as published +1 is a level
 *                            and -1 is not, and what lies beyond the last level is cut off)
 *   second moment, 8 bits    the same without sign, twice as fine, two decades deeper: 1e-8 .. 1
 *   second moment, 4 bits    (j / 16)^2, j = 1 .. 16: even steps of the root, by which one divides
 *
 * The second moment has no zero among its levels: one that is decoded as zero would turn the step
 * into m / epsilon. What is below its least level is rounded up to that: the step gets shorter.
 *
 * rounding=dynamic: the nearest level. rounding=stochastic: the level below or the next, drawn such
 * that the mean is the state (within 2^-17 of a step; of the second moment from its least level
 * on), so small changes are not lost step after step.
 *
 * Lossy: the weight itself is updated by the state before it is coded, so a single step from exact
 * states is exact, and the error is that of the history: at most half a step of the map, stochastic
 * a whole one, relative to the largest state of the block.
 *
 * Declines for small tensors (option `least`), where scales and code would be most of it, for
 * states that something else reads, and for dtypes other than float32 and float64.
 *
 * Paper: Dettmers, Lewis, Shleifer, Zettlemoyer, "8-bit optimizers via block-wise quantization",
 * ICLR 2022; Li, Chen, Zhu, "Memory efficient optimizers with 4-bit states", NeurIPS 2023.
 */
#include <math.h>
#include <string.h>

#include "exec/weigh/estimate.h"
#include "passes/common.h"

enum { MOST_CODES = 256 };

typedef struct coder {
    ebb_edit *e;
    int64_t bits, block, least;
    bool draws;
    double level[2][MOST_CODES]; /* with a sign; without */
    ebb_value map[2][2];         /* in float32, in float64; none: not yet made */
    ebb_value key;
} coder;

typedef struct state { /* one that becomes codes */
    ebb_value old, codes, scale;
    bool positive; /* which map */
} state;

/* ---- maps ---- */

/* The levels of one sign, downwards from 1: `count` of them in decades of first, first / 2 .. 1, 1.
 */
static void fill_decades(double *level, int count, int first)
{
    double power = 1;
    for (int at = 0; at < count; power /= 10) {
        for (int j = first; j >= 1 && at < count; j--)
            level[at++] = power * (0.1 + 0.9 * j / first);
        first = first > 1 ? first / 2 : 1;
    }
}

static void make_levels(coder *c)
{
    const int codes = 1 << c->bits, half = codes / 2;
    double down[MOST_CODES];
    fill_decades(down, half - 1, half / 2);
    c->level[0][0] = -1; // as many on both sides, so one code is left over
    c->level[0][half] = 0;
    for (int i = 0; i < half - 1; i++) {
        c->level[0][1 + i] = -down[i];
        c->level[0][codes - 1 - i] = down[i];
    }
    fill_decades(down, codes, half);
    for (int i = 0; i < codes; i++) {
        double root = (double)(i + 1) / codes;
        c->level[1][i] = c->bits == 8 ? down[codes - 1 - i] : root * root;
    }
}

/* The map as a constant of the graph; one for all states of a dtype. */
static ebb_status map_of(coder *c, bool positive, ebb_dtype dtype, ebb_value *map)
{
    ebb_value *known = &c->map[dtype == EBB_F64][positive];
    if (known->i == 0) {
        ebb_build b = ebb_edit_build(c->e, EBB_NO_NODE, EBB_UPDATE);
        int64_t dims[1] = {(int64_t)1 << c->bits};
        ebb_type type = ebb_type_tensor(dtype, 1, dims);
        float narrow[MOST_CODES];
        for (int i = 0; i < (int)dims[0]; i++)
            narrow[i] = (float)c->level[positive][i];
        *known =
            ebb_const_tensor(&b, &type, dtype == EBB_F64 ? (void *)c->level[positive] : narrow);
        EBB_TRY(b.status);
    }
    *map = *known;
    return NULL;
}

/* The widest step of the map, relative to the largest state of the block. */
static double widest_step(const coder *c)
{
    double widest = 0;
    for (int k = 0; k < 2; k++)
        for (int i = 1; i < 1 << c->bits; i++)
            widest = fmax(widest, c->level[k][i] - c->level[k][i - 1]);
    return widest;
}

/* ---- states ---- */

static double element_of(const ebb_tensor *t, int64_t i)
{
    double wide;
    float narrow;
    if (t->type.dtype == EBB_F64) {
        memcpy(&wide, (const char *)t->data + (size_t)i * sizeof wide, sizeof wide);
        return wide;
    }
    memcpy(&narrow, (const char *)t->data + (size_t)i * sizeof narrow, sizeof narrow);
    return (double)narrow;
}

static int nearest(const double *level, int codes, double x)
{
    int low = 0;
    for (int step = codes / 2; step > 0; step /= 2)
        if (x > (level[low + step - 1] + level[low + step]) / 2)
            low += step;
    return low;
}

/* Bytes of n codes. */
static int64_t bytes_of(const coder *c, int64_t n)
{
    return c->bits == 8 ? n : n / 2 + n % 2;
}

/* The codes of what an old state holds: zeros become zeros. False: no memory. */
static bool encode(const coder *c, const state *s, const ebb_tensor *from, int64_t n,
                   uint8_t **codes, void **scales)
{
    const int64_t blocks = n / c->block + (n % c->block != 0);
    const bool wide = from->type.dtype == EBB_F64;
    ebb_arena *arena = &c->e->g->model->arena;
    *codes = ebb_arena_zeroed(arena, (size_t)bytes_of(c, n) + 1, 1);
    *scales = ebb_arena_zeroed(arena, (size_t)blocks + 1, wide ? sizeof(double) : sizeof(float));
    if (*codes == NULL || *scales == NULL)
        return false;
    for (int64_t k = 0; k < blocks; k++) {
        const int64_t first = k * c->block, end = first + c->block < n ? first + c->block : n;
        double peak = 0;
        for (int64_t i = first; i < end; i++)
            peak = fmax(peak, fabs(element_of(from, i)));
        if (peak == 0 || !isfinite(peak))
            continue;
        if (wide)
            ((double *)*scales)[k] = peak;
        else
            ((float *)*scales)[k] = (float)peak;
        for (int64_t i = first; i < end; i++) {
            int code = nearest(c->level[s->positive], 1 << c->bits, element_of(from, i) / peak);
            (*codes)[i * c->bits / 8] |= (uint8_t)(code << (i * c->bits % 8));
        }
    }
    return true;
}

/* A skeleton's states have no bytes: its initialization graph, which made zeros of floats, makes
 * zeros of codes. */
static ebb_status draw_codes(const coder *c, const state *s)
{
    ebb_graph *g = c->e->g;
    ebb_model *m = g->model;
    struct ebb_init_binding *drawn = NULL;
    for (size_t i = 0; i < m->init_binding_count; i++)
        if (m->init_bindings[i].state.i == ebb_value_of(g, s->old)->name.i)
            drawn = &m->init_bindings[i];
    if (drawn == NULL)
        return NULL;
    const ebb_value before = drawn->value, parts[2] = {s->codes, s->scale};
    ebb_value zeros[2];
    for (int k = 0; k < 2; k++) {
        const ebb_value_info *info = ebb_value_of(g, parts[k]);
        ebb_build b = ebb_build_at(m->initialization, EBB_NO_NODE, EBB_PHASE_NONE, NULL);
        b.name = ebb_value_name(g, parts[k]);
        ebb_value shape = ebb_const_ints(&b, info->type->dims, 1);
        ebb_value blank = ebb_emit(&b, EBB_OP_CONSTANT_OF_SHAPE, shape);
        ebb_with_int(&b, "to", info->type->dtype);
        ebb_with_name(&b, b.name);
        zeros[k] = ebb_emit(&b, EBB_OP_CAST, blank);
        EBB_TRY(b.status);
        EBB_TRY(ebb_graph_add_output(m->initialization, zeros[k]));
    }
    ebb_graph_remove_output(m->initialization, before);
    drawn->state = ebb_value_of(g, s->codes)->name;
    drawn->value = zeros[0];
    EBB_TRY(ebb_draw_also(m, ebb_value_of(g, s->scale)->name, zeros[1]));
    (void)ebb_graph_sweep(m->initialization);
    return NULL;
}

/* Initializers for the codes and scales of s->old. */
static ebb_status make_codes(const coder *c, state *s)
{
    ebb_graph *g = c->e->g;
    const ebb_tensor *from = ebb_value_of(g, s->old)->tensor;
    const char *name = ebb_value_name(g, s->old);
    char *codes_name = ebb_arena_printf(c->e->scratch, "%s.codes", name);
    char *scale_name = ebb_arena_printf(c->e->scratch, "%s.scale", name);
    int64_t n = 0, dims[1];
    uint8_t *codes = NULL;
    void *scales = NULL;
    EBB_GOT(codes_name && scale_name);
    EBB_GOT(ebb_type_elements(&from->type, &n));
    if (from->data != NULL && !encode(c, s, from, n, &codes, &scales))
        return ebb_error_memory();
    dims[0] = bytes_of(c, n);
    ebb_type type = ebb_type_tensor(EBB_U8, 1, dims);
    EBB_TRY(ebb_graph_add_initializer(g, &s->codes, codes_name, &type, NULL, EBB_ROLE_OPTIMIZER));
    EBB_TRY(ebb_value_point(g, s->codes, codes));
    dims[0] = n / c->block + (n % c->block != 0);
    type = ebb_type_tensor((ebb_dtype)from->type.dtype, 1, dims);
    EBB_TRY(ebb_graph_add_initializer(g, &s->scale, scale_name, &type, NULL, EBB_ROLE_OPTIMIZER));
    EBB_TRY(ebb_value_point(g, s->scale, scales));
    return from->data == NULL ? draw_codes(c, s) : NULL;
}

static ebb_status bind(const coder *c, ebb_value good, ebb_value v, ebb_value next)
{
    if (good.i != 0) {
        ebb_node made = ebb_value_of(c->e->g, next)->producer;
        ebb_build b = ebb_edit_build(c->e, ebb_next(c->e->g, made), EBB_UPDATE);
        b.name = ebb_value_name(c->e->g, v);
        next = ebb_emit(&b, EBB_OP_WHERE, good, next, v);
        EBB_TRY(b.status);
    }
    return ebb_bind_next(c->e->g, v, next);
}

/* ---- sites ---- */

static uint32_t states_of(const ebb_graph *g, ebb_node n)
{
    ebb_op op = ebb_node_of(g, n)->op;
    return op == EBB_OP_ADAMW ? 2 : op == EBB_OP_MOMENTUM ? 1 : 0;
}

/* What the step replaces v by: the update's output, or with a scaled loss Where(good, that, v),
 * which leaves v as it was where a gradient is not finite. *good: none where it is not asked. */
static bool is_replaced(const ebb_graph *g, ebb_value v, ebb_value made, ebb_value *good)
{
    ebb_value next = ebb_graph_bound(g, v);
    ebb_node n = next.i != 0 ? ebb_value_of(g, next)->producer : EBB_NO_NODE;
    *good = EBB_NO_VALUE;
    if (next.i == 0 || ebb_same_value(next, made))
        return next.i != 0;
    if (n.i == 0 || ebb_node_of(g, n)->op != EBB_OP_WHERE ||
        !ebb_same_value(ebb_in(g, n, 1), made) || !ebb_same_value(ebb_in(g, n, 2), v) ||
        ebb_value_of(g, next)->use_count != 0)
        return false;
    *good = ebb_in(g, n, 0);
    return true;
}

/* Why node n stays, or NULL. */
static const char *refused(const coder *c, ebb_node n, uint32_t states)
{
    const ebb_graph *g = c->e->g;
    const ebb_node_info *info = ebb_node_of(g, n);
    ebb_attrs attrs = ebb_node_attrs(g, n);
    const ebb_type *w = ebb_value_of(g, ebb_in(g, n, 2))->type;
    int64_t elements;
    if (info->op == EBB_OP_MOMENTUM &&
        (info->in_count != 5 ||
         strcmp(ebb_attr_string(&attrs, "mode", "standard"), "standard") != 0))
        return "it is Nesterov's momentum, or updates several tensors at once";
    if (w->dtype != EBB_F32 && w->dtype != EBB_F64)
        return "its states are neither float32 nor float64";
    if (!ebb_type_elements(w, &elements))
        return "its size is not known";
    for (uint32_t k = 0; k < states; k++) {
        const ebb_value v = ebb_in(g, n, 4 + k), next = ebb_out(g, n, 1 + k);
        const ebb_value_info *old = ebb_value_of(g, v), *made = ebb_value_of(g, next);
        ebb_value good;
        if (v.i == 0 || next.i == 0 || (old->flags & EBB_IS_INITIALIZER) == 0 ||
            !is_replaced(g, v, next, &good))
            return "the step does not replace its states";
        if (old->use_count != (good.i != 0 ? 2u : 1u) ||
            made->use_count != (good.i != 0 ? 1u : 0) ||
            ((old->flags | made->flags) & (EBB_IS_INPUT | EBB_IS_OUTPUT | EBB_IS_CAPTURED)) != 0)
            return "something else reads its states";
    }
    if (elements < c->least)
        return "the tensor is small, so that scales would be much of what its codes save";
    return NULL;
}

/* What a step of the operators takes in operations for each element beyond those of AdamW: 1.4 ns
 * on one core, measured. */
static const double flops_per_code = 70;

static ebb_offer offer_of(const coder *c, ebb_node n, uint32_t states)
{
    const ebb_graph *g = c->e->g;
    int64_t elements = 0, whole = ebb_stored_bytes(g, ebb_in(g, n, 4));
    if (!ebb_type_elements(ebb_value_of(g, ebb_in(g, n, 4))->type, &elements))
        return (ebb_offer){0};
    int64_t blocks = elements / c->block + (elements % c->block != 0);
    int64_t coded = bytes_of(c, elements) + blocks * (whole / elements);
    double work = flops_per_code * states + (c->draws ? EBB_FLOPS_PER_DRAW : 0);
    return (ebb_offer){.value = ebb_in(g, n, 4),
                       .saved_bytes = states * (whole - coded),
                       .added_ns = ebb_roofline_ns(g, work * (double)elements,
                                                   3 * (double)whole + 2 * (double)coded) -
                                   ebb_node_ns(g, n),
                       .error = widest_step(c) / (c->draws ? 1 : 2)};
}

static ebb_op coded_op(ebb_op op, bool draws)
{
    if (op == EBB_OP_ADAMW)
        return draws ? EBB_OP_ADAMW_LOW_BIT_STOCHASTIC : EBB_OP_ADAMW_LOW_BIT;
    return draws ? EBB_OP_MOMENTUM_LOW_BIT_STOCHASTIC : EBB_OP_MOMENTUM_LOW_BIT;
}

static void options_of(const coder *c, ebb_build *b, ebb_node n)
{
    static const char *const names[] = {"alpha", "beta", "epsilon", "weight_decay",
                                        "norm_coefficient"};
    ebb_attrs attrs = ebb_node_attrs(c->e->g, n);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (ebb_attr_find(&attrs, names[i]) != NULL)
            ebb_with_float(b, names[i], ebb_attr_float(&attrs, names[i], 0));
    ebb_with_int(b, "bits", c->bits);
    ebb_with_int(b, "block", c->block);
    if (c->draws)
        ebb_with_int(b, "stream",
                     ebb_random_stream(c->e->g, ebb_value_name(c->e->g, ebb_in(c->e->g, n, 4))));
}

static ebb_status rewrite(coder *c, ebb_node n, uint32_t states)
{
    ebb_graph *g = c->e->g;
    ebb_dtype dtype = (ebb_dtype)ebb_value_of(g, ebb_in(g, n, 2))->type->dtype;
    state list[2];
    ebb_value in[11], out[5];
    uint32_t count = 4;
    for (uint32_t i = 0; i < 4; i++)
        in[i] = ebb_in(g, n, i);
    for (uint32_t k = 0; k < states; k++) {
        list[k] = (state){.old = ebb_in(g, n, 4 + k), .positive = k == 1};
        EBB_TRY(make_codes(c, &list[k]));
        in[count++] = list[k].codes;
        in[count++] = list[k].scale;
    }
    for (uint32_t k = 0; k < states; k++)
        EBB_TRY(map_of(c, k == 1, dtype, &in[count++]));
    if (c->draws) {
        if (c->key.i == 0)
            EBB_TRY(ebb_random_key(c->e, &c->key));
        in[count++] = c->key;
    }
    ebb_build b = ebb_edit_build(c->e, n, EBB_PHASE_NONE);
    b.name = ebb_value_name(g, in[2]);
    options_of(c, &b, n);
    ebb_emit_node(&b, coded_op(ebb_node_of(g, n)->op, c->draws), in, count, out, 1 + 2 * states,
                  (1u << (1 + 2 * states)) - 1);
    EBB_TRY(b.status);
    EBB_TRY(ebb_edit_replace(c->e, ebb_out(g, n, 0), out[0]));
    for (uint32_t k = 0; k < states; k++) {
        ebb_value good;
        ebb_node keeps = ebb_value_of(g, ebb_graph_bound(g, list[k].old))->producer;
        (void)is_replaced(g, list[k].old, ebb_out(g, n, 1 + k), &good);
        ebb_graph_unbind(g, list[k].old);
        EBB_TRY(bind(c, good, list[k].codes, out[1 + 2 * k]));
        EBB_TRY(bind(c, good, list[k].scale, out[2 + 2 * k]));
        if (good.i != 0)
            ebb_edit_remove(c->e, keeps);
    }
    ebb_edit_remove(c->e, n);
    for (uint32_t k = 0; k < states; k++)
        ebb_graph_remove_initializer(g, list[k].old);
    ebb_applied(c->e);
    return NULL;
}

static ebb_status read_options(coder *c)
{
    ebb_edit *e = c->e;
    c->bits = strcmp(ebb_option_string(e, "bits"), "4") == 0 ? 4 : 8;
    c->draws = strcmp(ebb_option_string(e, "rounding"), "stochastic") == 0;
    c->block = ebb_option_given(e, "block") ? ebb_option_int(e, "block") : c->bits == 8 ? 256 : 128;
    c->least = ebb_option_int(e, "least");
    make_levels(c);
    return NULL;
}

static ebb_status run(ebb_edit *e)
{
    coder *c = EBB_SCRATCH(e, coder, 1);
    EBB_GOT(c);
    c->e = e;
    EBB_TRY(read_options(c));
    for (ebb_node n = ebb_first(e->g), next; n.i != 0; n = next) {
        next = ebb_next(e->g, n);
        uint32_t states = states_of(e->g, n);
        if (states == 0)
            continue;
        const char *reason = refused(c, n, states);
        if (reason != NULL) {
            EBB_TRY(ebb_declined(e, n, reason));
            continue;
        }
        ebb_found(e);
        ebb_offer offer = offer_of(c, n, states);
        if (ebb_offered(e, n, &offer))
            EBB_TRY(rewrite(c, n, states));
    }
    return NULL;
}

// clang-format off
static const ebb_option options[] = {
    {"bits",     EBB_OPTION_CHOICE, "8",       "8|4",                "of a state's code"},
    {"block",    EBB_OPTION_INT,    NULL,      "[32, 4096] by 32",   "elements that share a scale; default 256, with 4 bits 128"},
    {"rounding", EBB_OPTION_CHOICE, "dynamic", "dynamic|stochastic", "to the nearest level, or up or down at random, right on average"},
    {"least",    EBB_OPTION_INT,    "4096",    "elements [1, inf)",  "elements of the smallest tensor whose states become codes"},
    {0},
};
// clang-format on

const ebb_pass ebb_pass_low_bit_state = {
    .name = "low-bit-state",
    .doc = "keep the optimizer's states as codes of 8 or 4 bits with a scale for each block",
    .paper = "Dettmers et al., 8-bit optimizers via block-wise quantization, ICLR 2022; Li et al., "
             "Memory efficient optimizers with 4-bit states, NeurIPS 2023",
    .exactness = EBB_LOSSY,
    .options = options,
    .run = run,
};
