/* heads.c: Attention, LinearAttention, CausalConvWithState and RotaryEmbedding of ONNX.
 *
 * Sums are in double. An attention whose every key is masked gives NaN, as softmax of nothing does.
 */
#include "kernels/call/heads.h"
#include "kernels/plain/plain.h"
#include "kernels/plain/vmath.h"

/* A row of scores for each head of each of the batch. */
static ebb_status attention_workspace(const ebb_call *c, size_t *bytes)
{
    ebb_heads a = ebb_heads_read(c);
    size_t rows = (size_t)a.batch * (size_t)a.q.heads;
    return ebb_size_mul(bytes, rows, (size_t)a.total) && ebb_size_mul(bytes, *bytes, sizeof(double))
               ? NULL
               : ebb_call_error(c, "its scores pass what memory can be");
}

/* Sums along the value of each head, and the state. */
static ebb_status linear_workspace(const ebb_call *c, size_t *bytes)
{
    ebb_linear_attention r = ebb_linear_read(c);
    const int64_t dims[4] = {r.batch, r.heads, r.key, r.value};
    ebb_type state = ebb_type_tensor((ebb_dtype)c->in[0].type.dtype, 4, dims);
    ebb_type sums = ebb_type_tensor(EBB_F64, 4, (const int64_t[]){r.batch, r.heads, 1, r.value});
    size_t held;
    return ebb_type_bytes(&state, bytes) && ebb_type_bytes(&sums, &held) &&
                   ebb_size_add(bytes, *bytes, held)
               ? NULL
               : ebb_call_error(c, "its state is too large");
}

/* The row of the caches for each token; checked, since positions are values. */
static ebb_status check_positions(const ebb_call *c)
{
    if (!ebb_call_has(c, 3))
        return NULL;
    int64_t rows = c->in[1].type.dims[0];
    for (int64_t i = 0, n = ebb_elements(&c->in[3].type); i < n; i++) {
        int64_t at = ebb_plain_int(&c->in[3], i);
        if (at < 0 || at >= rows)
            return ebb_call_error(c, "position %lld is outside 0..%lld", (long long)at,
                                  (long long)rows - 1);
    }
    return NULL;
}

#define LOOPS "kernels/plain/scores/heads_loops.inc"
#include "kernels/plain/both_floats.inc"

static ebb_status run_attention(const ebb_call *c)
{
    ebb_heads a = ebb_heads_read(c);
    EBB_BY_FLOAT(c->in[0], attend, c, &a);
    return NULL;
}

static ebb_status run_linear(const ebb_call *c)
{
    ebb_linear_attention r = ebb_linear_read(c);
    EBB_BY_FLOAT(c->in[0], linear, c, &r);
    return NULL;
}

static ebb_status run_causal(const ebb_call *c)
{
    const ebb_causal k = ebb_causal_read(c);
    EBB_BY_FLOAT(c->in[0], causal, &k);
    return NULL;
}

static ebb_status run_rotary(const ebb_call *c)
{
    ebb_rotation r = ebb_rotation_read(c);
    EBB_TRY(check_positions(c));
    EBB_BY_FLOAT(c->in[0], rotate, c, &r);
    return NULL;
}

// clang-format off
const ebb_kernel ebb_plain_heads[] = {
    {.name = "plain.onnx_attention",   .op = EBB_OP_ATTENTION,              .dtypes = ebb_plain_floats, .fits = ebb_any_heads_misfit, .workspace = attention_workspace, .run = run_attention},
    {.name = "plain.flex_attention",   .op = EBB_OP_FLEX_ATTENTION,         .dtypes = ebb_plain_floats, .fits = ebb_any_heads_misfit, .workspace = attention_workspace, .run = run_attention},
    {.name = "plain.linear_attention", .op = EBB_OP_LINEAR_ATTENTION,       .dtypes = ebb_plain_floats, .fits = ebb_any_heads_misfit, .workspace = linear_workspace, .run = run_linear},
    {.name = "plain.causal_conv",      .op = EBB_OP_CAUSAL_CONV_WITH_STATE, .dtypes = ebb_plain_floats, .fits = ebb_any_heads_misfit, .run = run_causal},
    {.name = "plain.rotary_embedding", .op = EBB_OP_ROTARY_EMBEDDING,       .dtypes = ebb_plain_floats, .fits = ebb_any_heads_misfit, .run = run_rotary},
};
// clang-format on
EBB_PLAIN_COUNT(heads)
