/* group.c: what processes compute together on the host (pieces.h), now or beside the step; and who one is among
 * them.
 */
#include "kernels/away/mover.h"
#include "kernels/away/pieces.h"
#include "kernels/plain/halves.h"
#include "kernels/plain/plain.h"

/* ---- adding ---- */

#define ADD(suffix, type)                                                \
    static void add_##suffix(void *sum, const void *from, int64_t count) \
    {                                                                    \
        type *s = sum;                                                   \
        const type *x = from;                                            \
        for (int64_t i = 0; i < count; i++)                              \
            s[i] = (type)(s[i] + x[i]);                                  \
    }
ADD(f32, float)
ADD(f64, double)
ADD(u32, uint32_t) // whose sums wrap around
ADD(u64, uint64_t)

static void add_halves(void *sum, const void *from, ebb_dtype dtype, int64_t count)
{
    enum { AT_ONCE = 256 };
    float s[AT_ONCE], x[AT_ONCE];
    for (int64_t i = 0, n; i < count; i += n) {
        n = count - i < AT_ONCE ? count - i : AT_ONCE;
        ebb_widen_here(s, (uint16_t *)sum + i, dtype, n);
        ebb_widen_here(x, (const uint16_t *)from + i, dtype, n);
        add_f32(s, x, n);
        ebb_narrow_here((uint16_t *)sum + i, s, dtype, n);
    }
}

static void add(void *sum, const void *from, ebb_dtype dtype, int64_t count)
{
    if (dtype == EBB_F32)
        add_f32(sum, from, count);
    else if (dtype == EBB_F64)
        add_f64(sum, from, count);
    else if (dtype == EBB_I32)
        add_u32(sum, from, count);
    else if (dtype == EBB_I64)
        add_u64(sum, from, count);
    else
        add_halves(sum, from, dtype, count);
}

/* ---- hands ---- */

static ebb_status bring(const ebb_hands *h, const ebb_call *c, ebb_group_verb verb,
                        const void *from, void *to, size_t block)
{
    (void)h;
    return verb == EBB_ALL_TO_ALL ? ebb_group_all_to_all(c->group, from, to, block, c->node)
                                  : ebb_group_all_gather(c->group, from, to, block, c->node);
}

static ebb_status sum(const ebb_hands *h, const ebb_call *c, const void *from, void *to, int64_t n,
                      bool *done)
{
    (void)h;
    return ebb_group_sum(c->group, from, to, (size_t)n, c->in[0].type.dtype, c->node, done);
}

static ebb_status add_blocks(const ebb_hands *h, const ebb_call *c, void *blocks, int64_t block)
{
    const ebb_dtype dtype = (ebb_dtype)c->in[0].type.dtype;
    const int64_t bytes = block * (int64_t)ebb_dtype_bits(dtype) / 8;
    (void)h;
    for (int64_t r = 1; r < ebb_pieces_ranks(c); r++)
        add(blocks, (char *)blocks + r * bytes, dtype, block);
    return NULL;
}

static ebb_status copy(const ebb_hands *h, void *to, const void *from, size_t bytes)
{
    (void)h;
    if (bytes > EBB_GROUP_PIECE || to == from)
        ebb_plain_memcpy(to, from, bytes);
    else
        memcpy(to, from, bytes);
    return NULL;
}

static ebb_status clear(const ebb_hands *h, void *to, size_t bytes)
{
    (void)h;
    memset(to, 0, bytes);
    return NULL;
}

static ebb_status run(const ebb_call *c)
{
    static const ebb_hands hands = {bring, add_blocks, sum, copy, clear, NULL};
    return ebb_pieces_run(c, &hands);
}

/* ---- now, or beside the step ---- */

/* Behind all exchanges that the step has started: all processes have them in one order. */
static ebb_status now(const ebb_call *c)
{
    if (c->mover != NULL)
        EBB_TRY(ebb_mover_quiet(c->mover));
    return run(c);
}

static ebb_status start(const ebb_call *c)
{
    return c->mover == NULL ? run(c) : ebb_mover_exchange(c->mover, run, c, c->out[0].data);
}

/* ---- who this process is ---- */

static ebb_status run_rank(const ebb_call *c)
{
    const int64_t rank = ebb_group_rank_of(c);
    memcpy(c->out[0].data, &rank, sizeof rank);
    return NULL;
}

// clang-format off
const ebb_kernel ebb_plain_group[] = {
    {.name = "plain.all_reduce",     .op = EBB_OP_ALL_REDUCE,     .dtypes = ebb_pieces_misfit_sum, .workspace = ebb_pieces_workspace, .run = now},
    {.name = "plain.reduce_scatter", .op = EBB_OP_REDUCE_SCATTER, .dtypes = ebb_pieces_misfit_sum, .workspace = ebb_pieces_workspace, .run = now},
    {.name = "plain.start_all_reduce",     .op = EBB_OP_START_ALL_REDUCE,     .dtypes = ebb_pieces_misfit_sum, .workspace = ebb_pieces_workspace, .run = start},
    {.name = "plain.start_reduce_scatter", .op = EBB_OP_START_REDUCE_SCATTER, .dtypes = ebb_pieces_misfit_sum, .workspace = ebb_pieces_workspace, .run = start},
    {.name = "plain.all_gather",     .op = EBB_OP_ALL_GATHER,     .dtypes = ebb_call_any, .fits = ebb_pieces_misfit, .workspace = ebb_pieces_workspace, .run = now},
    {.name = "plain.start_unshard",  .op = EBB_OP_START_UNSHARD,  .dtypes = ebb_call_any, .fits = ebb_pieces_misfit, .workspace = ebb_pieces_workspace, .run = start},
    {.name = "plain.unshard",        .op = EBB_OP_UNSHARD,        .dtypes = ebb_call_any, .fits = ebb_pieces_misfit, .workspace = ebb_pieces_workspace, .run = now},
    {.name = "plain.shard",          .op = EBB_OP_SHARD,          .dtypes = ebb_call_any, .fits = ebb_pieces_misfit, .run = run},
    {.name = "plain.rank",           .op = EBB_OP_RANK,           .dtypes = ebb_call_any, .fits = ebb_pieces_misfit, .run = run_rank},
};
// clang-format on
EBB_PLAIN_COUNT(group)
