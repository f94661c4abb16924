/* split.c: a product of float32 as one of bfloat16, of three times as many terms.
 *
 * A float32 number is the sum of its nearest bfloat16, what that leaves as another one, and a rest:
 *
 *     a = a0 + a1 + r     |a1| <= 2^-9 |a|, |r| <= 2^-18 |a|
 *
 * a b = a1 b0 + a0 b1 + a0 b0, but for at most 3.1 * 2^-18 |a b|: a1 b1 and the rests are left out.
 * The three lie one behind the other along the axis that is summed over, so they are one product:
 *
 *     A  [M, K]  ->  | a1 | a0 | a0 |  [M, 3 K]         workspace, 16 bits: one and a half times
 *     B  [K, N]  ->  | b0 ; b1 ; b0 |  [3 K, N]         the bytes of A and of B
 *     Y  [M, N]   =  their product, summed in float32 by the kernel that the back ends have for it
 *
 * What |a b| of 2^-118 and below add may be lost. An infinite factor gives NaN.
 *
 * This is the CPU's TF32, with 16 bits of the fraction instead of 10: where bfloat16 is multiplied
 * more than three times as fast as float32, as by AMX, it is faster. Elsewhere it is slower.
 */
#include "kernels/nested/split.h"

#include "kernels/nested/nested.h"
#include "kernels/operand.h"
#include "kernels/parallel.h"
#include "kernels/plain/halves.h"

enum { PARTS = 3, FACTORS = 2, INPUTS = 3, PIECE = 1 << 12 };

typedef struct split {
    ebb_call call; /* on 16 bits */
    ebb_operand in[INPUTS], out[1];
    size_t at[FACTORS], scratch_at, bytes; /* in the workspace */
} split;

/* The axis of factor i that is summed over. */
static int axis_of(const ebb_call *c, uint32_t i)
{
    const int rank = c->in[i].type.rank;
    const bool turned = ebb_attr_int(&c->attrs, i == 0 ? "transA" : "transB", 0) != 0;
    return rank < 2 ? 0 : rank - ((i == 0) != turned ? 1 : 2);
}

static const char *dtypes(const ebb_call *c)
{
    EBB_ASK(ebb_call_any(c));
    if (c->input_count < FACTORS || c->input_count > INPUTS || c->in[0].type.dtype != EBB_F32)
        return "splits float32 only";
    return ebb_call_one_float(c, EBB_F32);
}

static const char *fits(const ebb_call *c)
{
    if (ebb_attr_int(&c->attrs, "transBatchA", 0) != 0 ||
        ebb_attr_int(&c->attrs, "transBatchB", 0) != 0)
        return "no transposed batches";
    for (uint32_t i = 0; i < FACTORS; i++) {
        if (c->in[i].type.rank == 0 || ebb_elements(&c->in[i].type) == 0)
            return "a factor that is a scalar, or empty";
        if (ebb_elements(&c->in[i].type) > INT64_MAX / (PARTS * (int64_t)sizeof(uint16_t)))
            return "a factor is too large";
    }
    return NULL;
}

static ebb_status build(split *s, const ebb_call *c)
{
    const size_t align = (*c->backends)->device->align;
    bool there = true;
    size_t room = 0;
    s->call = ebb_nested_make(c);
    s->call.in = s->in;
    s->call.out = s->out;
    s->out[0] = c->out[0];
    s->out[0].over = 0;
    for (uint32_t i = 0; i < c->input_count; i++)
        s->in[i] = c->in[i];
    for (uint32_t i = 0; i < FACTORS; i++) {
        ebb_operand *o = &s->in[i];
        o->type.dims[axis_of(c, i)] *= PARTS;
        o->type.dtype = EBB_BF16;
        o->bytes = (size_t)ebb_elements(&o->type) * sizeof(uint16_t);
        o->constant = NULL;
        there = there && ebb_size_room(&s->at[i], &s->bytes, o->bytes, align);
    }
    EBB_TRY(ebb_nested_room(&s->call, c->backends, &room));
    there = there && ebb_size_room(&s->scratch_at, &s->bytes, room, align);
    return there ? NULL : ebb_call_error(c, "its factors in parts pass what memory can be");
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    split s = {.bytes = 0};
    ebb_status status = build(&s, c);
    *bytes = s.bytes;
    return status;
}

static ebb_status prepare(ebb_call *c)
{
    split *s = ebb_alloc(sizeof *s);
    EBB_GOT(s);
    *s = (split){.bytes = 0};
    c->state = s;
    EBB_TRY(build(s, c));
    EBB_TRY(ebb_nested_fits(c, s->bytes));
    return ebb_nested_prepare(&s->call);
}

/* ---- parts ---- */

/* To nearest, but to no infinity. */
static uint16_t first_of(float x)
{
    const uint16_t bits = ebb_round_bf16(x);
    const bool past =
        (bits & 0x7FFFu) == 0x7F80u && (ebb_float_bits(x) & 0x7FFFFFFFu) < 0x7F800000u;
    return past ? (uint16_t)(bits - 1) : bits;
}

static void split_piece(uint16_t *first, uint16_t *rest, uint16_t *again, const float *from,
                        int64_t count)
{
    EBB_SIMD
    for (int64_t i = 0; i < count; i++) {
        first[i] = again[i] = first_of(from[i]);
        rest[i] = ebb_round_bf16(from[i] - ebb_wide_bf16(first[i]));
    }
}

/* [outer, K, inner] -> [outer, 3 K, inner]; the part that is left comes first in A, second in B. */
static void split_factor(uint16_t *to, const ebb_operand *from, int axis, bool left)
{
    const ebb_span span = ebb_span_of(&from->type, axis);
    const int64_t block = span.n * span.inner, pieces = (block + PIECE - 1) / PIECE;
    EBB_PARALLEL_FOR(span.outer * block)
    for (int64_t job = 0; job < span.outer * pieces; job++) {
        const int64_t i = job % pieces * PIECE, outer = job / pieces;
        uint16_t *part = to + outer * PARTS * block + i;
        split_piece(left ? part + block : part, left ? part : part + block, part + 2 * block,
                    (const float *)from->data + outer * block + i, ebb_least(block - i, PIECE));
    }
}

static ebb_status run(const ebb_call *c)
{
    split *s = c->state;
    for (uint32_t i = 0; i < FACTORS; i++) {
        s->in[i].data = (char *)c->workspace + s->at[i];
        split_factor(s->in[i].data, &c->in[i], axis_of(c, i), i == 0);
    }
    if (c->input_count > FACTORS)
        s->in[FACTORS].data = c->in[FACTORS].data;
    s->out[0].data = c->out[0].data;
    ebb_nested_point(&s->call, c, s->scratch_at);
    return s->call.kernel->run(&s->call);
}

static void release(ebb_call *c)
{
    split *s = c->state;
    ebb_nested_release(&s->call);
    ebb_free(s);
    c->state = NULL;
}

// clang-format off
static const ebb_kernel kernels[] = {
    {.name = "bf16x3.matmul",       .op = EBB_OP_MATMUL,       .dtypes = dtypes, .fits = fits, .workspace = workspace, .prepare = prepare, .run = run, .release = release},
    {.name = "bf16x3.gemm",         .op = EBB_OP_GEMM,         .dtypes = dtypes, .fits = fits, .workspace = workspace, .prepare = prepare, .run = run, .release = release},
    {.name = "bf16x3.fused_matmul", .op = EBB_OP_FUSED_MATMUL, .dtypes = dtypes, .fits = fits, .workspace = workspace, .prepare = prepare, .run = run, .release = release},
};
// clang-format on

const ebb_backend ebb_backend_bf16x3 = {.name = "bf16x3",
                                        .kernels = kernels,
                                        .count = sizeof kernels / sizeof kernels[0],
                                        .device = &ebb_device_host};
