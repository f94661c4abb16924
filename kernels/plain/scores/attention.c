/* attention.c: attention row by row, forward and backward: one row of scores at a time.
 *
 * Heads are dealt out to slots, each with rows of its own in the workspace; a head is computed by
 * one thread, so results do not depend on their number.
 */
#include "kernels/call/attention.h"
#include "kernels/plain/plain.h"
#include "kernels/plain/vmath.h"

enum { SLOTS = 16, ROWS = 3 }; /* heads at a time; rows of scores each */

typedef struct masks { /* of one row */
    const uint8_t *keep;
    int64_t keep_step, bias_at;
} masks;

static size_t slot_bytes(const ebb_attention *a, size_t size)
{
    return ((size_t)a->t * (ROWS * size + 1) + 63) / 64 * 64;
}

static int64_t slots_of(const ebb_attention *a)
{
    return a->heads < SLOTS ? a->heads : SLOTS;
}

static masks masks_of(const ebb_attention *a, const ebb_call *c, int64_t head, int64_t i)
{
    uint32_t first = ebb_attention_first(c->op);
    return (masks){(const uint8_t *)c->in[first + 3].data + ebb_attention_row(a, &a->keep, head, i),
                   a->keep.stride[a->rank - 1], ebb_attention_row(a, &a->bias, head, i)};
}

static inline bool is_on(const ebb_attention *a, const masks *m, int64_t i, int64_t j)
{
    return m->keep[j * m->keep_step] != 0 && (!a->causal || j <= i);
}

#define LOOPS "kernels/plain/scores/attention_loops.inc"
#include "kernels/plain/both_floats.inc"

static const char *declines(const ebb_call *c)
{
    ebb_attention a;
    EBB_ASK(ebb_attention_read(&a, c));
    uint8_t dtype = c->in[ebb_attention_first(c->op)].type.dtype;
    return dtype == EBB_F32 || dtype == EBB_F64 ? NULL : "computes in float32 and float64 only";
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    ebb_attention a;
    EBB_MUST_FIT(c, ebb_attention_read(&a, c));
    size_t size = ebb_element_bytes(&c->in[ebb_attention_first(c->op)].type);
    if (!ebb_size_mul(bytes, slot_bytes(&a, size), (size_t)slots_of(&a)))
        return ebb_call_error(c, "the rows are too long");
    return NULL;
}

static ebb_status run(const ebb_call *c)
{
    ebb_attention a;
    EBB_MUST_FIT(c, ebb_attention_read(&a, c));
    bool wide = c->in[0].type.dtype == EBB_F64;
    int64_t slots = slots_of(&a);
    EBB_PARALLEL_FOR(a.heads * a.s * a.t)
    for (int64_t slot = 0; slot < slots; slot++) {
        size_t at = (size_t)slot * slot_bytes(&a, wide ? sizeof(double) : sizeof(float));
        void *rows = (unsigned char *)c->workspace + at;
        for (int64_t head = slot; head < a.heads; head += slots)
            EBB_BY_FLOAT(c->in[0], head, &a, c, head, rows);
    }
    return NULL;
}

// clang-format off
const ebb_kernel ebb_plain_attention[] = {
    {.name = "plain.attention",              .op = EBB_OP_EBB_ATTENTION,              .fits = declines, .workspace = workspace, .run = run},
    {.name = "plain.attention_grad",         .op = EBB_OP_EBB_ATTENTION_GRAD,         .fits = declines, .workspace = workspace, .run = run},
    {.name = "plain.attention_dropout",      .op = EBB_OP_EBB_ATTENTION_DROPOUT,      .fits = declines, .workspace = workspace, .run = run},
    {.name = "plain.attention_dropout_grad", .op = EBB_OP_EBB_ATTENTION_DROPOUT_GRAD, .fits = declines, .workspace = workspace, .run = run},
};
// clang-format on
EBB_PLAIN_COUNT(attention)
