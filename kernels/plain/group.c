/* group.c: sums over the processes of a group, parts of tensors of which each has its own, and who one is
 * among them.
 *
 * A tensor goes piece by piece. In an AllReduce rank r gets block r of the piece from all, adds them in the
 * order of ranks and gives the sum to all:
 *
 *     workspace |-- piece: one block from each rank --|-- end: a last piece that blocks do not divide --|
 *
 * In a ReduceScatter and an AllGather a piece has a block from the part of each rank, and the part is
 * what a rank has of the whole tensor: elements r * len .. of it, zeros behind its end.
 *
 * Each number is added as operator Add does, in its own dtype: so the sum of what N ranks have has the bits
 * that adding N parts one after another has in one process.
 */
#include "kernels/away/group.h"
#include "kernels/plain/halves.h"
#include "kernels/away/mover.h"
#include "kernels/plain/plain.h"

static int64_t ranks_of(const ebb_call *c)
{
    return ebb_attr_int(&c->attrs, "ranks", 1);
}

static size_t size_of(const ebb_call *c)
{
    return ebb_dtype_bits((ebb_dtype)c->in[0].type.dtype) / 8;
}

/* The tensor that parts are of: what is cut, or what is put together. */
static int64_t whole_of(const ebb_call *c)
{
    const bool cuts = c->op == EBB_OP_SHARD || c->op == EBB_OP_REDUCE_SCATTER ||
                      c->op == EBB_OP_START_REDUCE_SCATTER;
    return ebb_elements(!cuts ? &c->out[0].type : &c->in[0].type);
}

/* Elements that each rank has of it. */
static int64_t part_of(const ebb_call *c)
{
    const int64_t ranks = ranks_of(c), n = whole_of(c);
    return n / ranks + (n % ranks != 0);
}

/* Elements of a block of a whole piece: what a rank adds at once. */
static int64_t block_of(const ebb_call *c)
{
    return ebb_least(part_of(c), EBB_GROUP_PIECE / ranks_of(c) / (int64_t)size_of(c));
}

static const char *misfit(const ebb_call *c)
{
    const int64_t ranks = ranks_of(c);
    return ranks < 1 || ranks > 4096 ? "a group has 1 to 4096 processes" : NULL;
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

static ebb_status workspace_of_parts(const ebb_call *c, size_t *bytes)
{
    *bytes = ranks_of(c) > 1 ? (size_t)block_of(c) * (size_t)ranks_of(c) * size_of(c) : 0;
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

/* The sum of `ranks` blocks, in the first. */
static void add_blocks(char *piece, const ebb_call *c, int64_t block)
{
    const ebb_dtype dtype = (ebb_dtype)c->in[0].type.dtype;
    for (int64_t r = 1; r < ranks_of(c); r++)
        add(piece, piece + (size_t)(r * block) * size_of(c), dtype, block);
}

/* ---- sums for all ---- */

/* Elements at .. at + block * ranks, where the last piece may end before. */
static ebb_status reduce_piece(const ebb_call *c, int64_t at, int64_t block)
{
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
    add_blocks(piece, c, block);
    EBB_TRY(ebb_group_all_gather(c->group, piece, is_whole ? to : end, bytes, c->node));
    if (!is_whole)
        memcpy(to, end, here);
    return NULL;
}

/* *alone: the group is this process, and its part the whole, which is copied. */
static ebb_status begin(const ebb_call *c, bool *alone)
{
    const int64_t ranks = ranks_of(c);
    if (ebb_group_ranks(c->group) != ranks)
        return ebb_call_error(c, "it is for %lld processes, and %d are here", (long long)ranks,
                              ebb_group_ranks(c->group));
    *alone = ranks == 1;
    if (*alone)
        ebb_plain_memcpy(c->out[0].data, c->in[0].data, c->in[0].bytes);
    return NULL;
}

static ebb_status all_reduce(const ebb_call *c)
{
    const int64_t ranks = ranks_of(c), n = ebb_elements(&c->in[0].type), block = block_of(c);
    bool alone;
    EBB_TRY(begin(c, &alone));
    for (int64_t at = 0; !alone && at < n; at += block * ranks)
        EBB_TRY(reduce_piece(c, at, ebb_least(block, (n - at + ranks - 1) / ranks)));
    return NULL;
}

/* ---- parts ---- */

/* How many of `count` elements from `at` on the whole tensor has. */
static size_t there(const ebb_call *c, int64_t at, int64_t count)
{
    const int64_t n = whole_of(c);
    return at >= n ? 0 : (size_t)ebb_least(count, n - at) * size_of(c);
}

static void take(char *to, const ebb_call *c, int64_t at, int64_t count)
{
    const size_t bytes = there(c, at, count);
    if (bytes > 0)
        memcpy(to, (const char *)c->in[0].data + (size_t)at * size_of(c), bytes);
    memset(to + bytes, 0, (size_t)count * size_of(c) - bytes);
}

static ebb_status reduce_scatter(const ebb_call *c)
{
    const int64_t ranks = ranks_of(c), part = part_of(c), block = block_of(c);
    const size_t size = size_of(c);
    char *piece = c->workspace, *own = piece + (size_t)(ranks * block) * size;
    bool alone;
    EBB_TRY(begin(c, &alone));
    for (int64_t at = 0, n; !alone && at < part; at += n) {
        n = ebb_least(block, part - at);
        for (int64_t r = 0; r < ranks; r++)
            take(own + (size_t)(r * n) * size, c, r * part + at, n);
        EBB_TRY(ebb_group_all_to_all(c->group, own, piece, (size_t)n * size, c->node));
        add_blocks(piece, c, n);
        memcpy((char *)c->out[0].data + (size_t)at * size, piece, (size_t)n * size);
    }
    return NULL;
}

static ebb_status all_gather(const ebb_call *c)
{
    const int64_t ranks = ranks_of(c), part = part_of(c), block = block_of(c);
    const size_t size = size_of(c);
    char *piece = c->workspace;
    bool alone;
    EBB_TRY(begin(c, &alone));
    for (int64_t at = 0, n; !alone && at < part; at += n) {
        n = ebb_least(block, part - at);
        EBB_TRY(ebb_group_all_gather(c->group, (const char *)c->in[0].data + (size_t)at * size,
                                     piece, (size_t)n * size, c->node));
        for (int64_t r = 0; r < ranks; r++)
            if (there(c, r * part + at, n) > 0)
                memcpy((char *)c->out[0].data + (size_t)(r * part + at) * size,
                       piece + (size_t)(r * n) * size, there(c, r * part + at, n));
    }
    return NULL;
}

/* ---- now, or beside the step ---- */

/* Behind all exchanges that the step has started: all processes have them in one order. */
static ebb_status now(const ebb_call *c, ebb_status (*run)(const ebb_call *))
{
    if (c->mover != NULL)
        EBB_TRY(ebb_mover_quiet(c->mover));
    return run(c);
}

static ebb_status beside(const ebb_call *c, ebb_status (*run)(const ebb_call *))
{
    return c->mover == NULL ? run(c) : ebb_mover_exchange(c->mover, run, c, c->out[0].data);
}

static ebb_status run_all_reduce(const ebb_call *c)
{
    return now(c, all_reduce);
}

static ebb_status run_reduce_scatter(const ebb_call *c)
{
    return now(c, reduce_scatter);
}

static ebb_status run_all_gather(const ebb_call *c)
{
    return now(c, all_gather);
}

static ebb_status start_all_gather(const ebb_call *c)
{
    return beside(c, all_gather);
}

static ebb_status start_all_reduce(const ebb_call *c)
{
    return beside(c, all_reduce);
}

static ebb_status start_reduce_scatter(const ebb_call *c)
{
    return beside(c, reduce_scatter);
}

/* ---- who this process is ---- */

static ebb_status run_shard(const ebb_call *c)
{
    const int64_t part = part_of(c);
    bool alone;
    EBB_TRY(begin(c, &alone));
    if (!alone)
        take(c->out[0].data, c, ebb_group_rank(c->group) * part, part);
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
    {.name = "plain.all_reduce",     .op = EBB_OP_ALL_REDUCE,     .dtypes = misfit_sum,   .workspace = workspace,          .run = run_all_reduce},
    {.name = "plain.reduce_scatter", .op = EBB_OP_REDUCE_SCATTER, .dtypes = misfit_sum,   .workspace = workspace,          .run = run_reduce_scatter},
    {.name = "plain.start_all_reduce",     .op = EBB_OP_START_ALL_REDUCE,     .dtypes = misfit_sum, .workspace = workspace, .run = start_all_reduce},
    {.name = "plain.start_reduce_scatter", .op = EBB_OP_START_REDUCE_SCATTER, .dtypes = misfit_sum, .workspace = workspace, .run = start_reduce_scatter},
    {.name = "plain.all_gather",     .op = EBB_OP_ALL_GATHER,     .dtypes = ebb_call_any, .fits = misfit, .workspace = workspace_of_parts, .run = run_all_gather},
    {.name = "plain.start_unshard",  .op = EBB_OP_START_UNSHARD,  .dtypes = ebb_call_any, .fits = misfit, .workspace = workspace_of_parts, .run = start_all_gather},
    {.name = "plain.unshard",        .op = EBB_OP_UNSHARD,        .dtypes = ebb_call_any, .fits = misfit, .workspace = workspace_of_parts, .run = run_all_gather},
    {.name = "plain.shard",          .op = EBB_OP_SHARD,          .dtypes = ebb_call_any, .fits = misfit, .run = run_shard},
    {.name = "plain.rank",           .op = EBB_OP_RANK,           .dtypes = ebb_call_any, .fits = misfit, .run = run_rank},
};
// clang-format on
EBB_PLAIN_COUNT(group)
