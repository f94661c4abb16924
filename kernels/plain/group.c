/* group.c: sums over the processes of a group, and who one is among them.
 *
 * A tensor goes piece by piece. Rank r gets block r of the piece from all, adds them in the order of ranks
 * and gives the sum to all:
 *
 *     workspace |-- piece: one block from each rank --|-- end: a last piece that blocks do not divide --|
 *
 * Each number is added as operator Add does, in its own dtype: so the sum of what N ranks have has the bits
 * that adding N parts one after another has in one process.
 */
#include "kernels/group.h"
#include "kernels/halves.h"
#include "kernels/plain/plain.h"

static int64_t ranks_of(const ebb_call *c)
{
    return ebb_attr_int(&c->attrs, "ranks", 1);
}

static size_t size_of(const ebb_call *c)
{
    return ebb_dtype_bits((ebb_dtype)c->in[0].type.dtype) / 8;
}

/* Elements of a block of a whole piece: what a rank adds at once. */
static int64_t block_of(const ebb_call *c)
{
    const int64_t ranks = ranks_of(c), n = ebb_elements(&c->in[0].type);
    const int64_t size = (int64_t)size_of(c);
    const int64_t most = EBB_GROUP_PIECE / ranks / size, need = (n + ranks - 1) / ranks;
    return need < most ? need : most;
}

static const char *misfit(const ebb_call *c)
{
    const int64_t ranks = ranks_of(c);
    return ranks < 1 || ranks > EBB_GROUP_MOST ? "a group has 1 to 64 processes" : NULL;
}

static const char *misfit_sum(const ebb_call *c)
{
    const ebb_dtype dtype = (ebb_dtype)c->in[0].type.dtype;
    const char *why = ebb_call_any(c);
    if (why == NULL && !ebb_dtype_is_float(dtype) && dtype != EBB_I32 && dtype != EBB_I64)
        return "it sums floats, int32 and int64";
    return why != NULL ? why : misfit(c);
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    const size_t size = size_of(c);
    *bytes = ranks_of(c) > 1 ? 2 * (size_t)block_of(c) * (size_t)ranks_of(c) * size : 0;
    return NULL;
}

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

/* ---- running ---- */

/* Elements at .. at + block * ranks, where the last piece may end before. */
static ebb_status reduce_piece(const ebb_call *c, int64_t at, int64_t block)
{
    const ebb_dtype dtype = (ebb_dtype)c->in[0].type.dtype;
    const size_t size = size_of(c), bytes = (size_t)block * size;
    const int64_t ranks = ranks_of(c), left = ebb_elements(&c->in[0].type) - at;
    const bool is_whole = left >= block * ranks;
    const size_t here = (size_t)(is_whole ? block * ranks : left) * size;
    char *piece = c->workspace, *end = piece + (size_t)ranks * bytes;
    const char *from = (const char *)c->in[0].data + (size_t)at * size;
    char *to = (char *)c->out[0].data + (size_t)at * size;
    if (!is_whole) {
        memset(end, 0, (size_t)ranks * bytes);
        memcpy(end, from, here);
    }
    EBB_TRY(ebb_group_all_to_all(c->group, is_whole ? from : end, piece, bytes, c->node));
    for (int64_t r = 1; r < ranks; r++)
        add(piece, piece + (size_t)r * bytes, dtype, block);
    EBB_TRY(ebb_group_all_gather(c->group, piece, is_whole ? to : end, bytes, c->node));
    if (!is_whole)
        memcpy(to, end, here);
    return NULL;
}

static ebb_status run_all_reduce(const ebb_call *c)
{
    const int64_t ranks = ranks_of(c), n = ebb_elements(&c->in[0].type), block = block_of(c);
    if (ebb_group_ranks(c->group) != ranks)
        return ebb_call_error(c, "it is for %lld processes, and %d are here", (long long)ranks,
                              ebb_group_ranks(c->group));
    if (ranks == 1) {
        if (c->out[0].data != c->in[0].data)
            ebb_plain_memcpy(c->out[0].data, c->in[0].data, c->in[0].bytes);
        return NULL;
    }
    for (int64_t at = 0; at < n; at += block * ranks) {
        const int64_t rest = (n - at + ranks - 1) / ranks;
        EBB_TRY(reduce_piece(c, at, rest < block ? rest : block));
    }
    return NULL;
}

static ebb_status run_rank(const ebb_call *c)
{
    const int64_t rank = ebb_group_rank(c->group);
    memcpy(c->out[0].data, &rank, sizeof rank);
    return NULL;
}

// clang-format off
const ebb_kernel ebb_plain_group[] = {
    {.name = "plain.all_reduce", .op = EBB_OP_ALL_REDUCE, .dtypes = misfit_sum,   .workspace = workspace, .run = run_all_reduce},
    {.name = "plain.rank",       .op = EBB_OP_RANK,       .dtypes = ebb_call_any, .fits = misfit, .run = run_rank},
};
// clang-format on
EBB_PLAIN_COUNT(group)
