/* pieces.c: see pieces.h. */
#include "kernels/away/pieces.h"

#include "kernels/operand.h"

int64_t ebb_pieces_ranks(const ebb_call *c)
{
    return ebb_attr_int(&c->attrs, "ranks", 1);
}

int ebb_group_rank_of(const ebb_call *c)
{
    return c->group != NULL ? c->group->rank : 0;
}

static size_t size_of(const ebb_call *c)
{
    return ebb_dtype_bits((ebb_dtype)c->in[0].type.dtype) / 8;
}

static bool sums_parts(const ebb_call *c)
{
    return c->op == EBB_OP_REDUCE_SCATTER || c->op == EBB_OP_START_REDUCE_SCATTER;
}

static bool sums_wholes(const ebb_call *c)
{
    return c->op == EBB_OP_ALL_REDUCE || c->op == EBB_OP_START_ALL_REDUCE;
}

/* The tensor that parts are of: what is cut, or what is put together. */
static int64_t whole_of(const ebb_call *c)
{
    const bool cuts = c->op == EBB_OP_SHARD || sums_parts(c);
    return ebb_elements(!cuts ? &c->out[0].type : &c->in[0].type);
}

/* Elements that each rank has of it. */
static int64_t part_of(const ebb_call *c)
{
    const int64_t ranks = ebb_pieces_ranks(c), n = whole_of(c);
    return n / ranks + (n % ranks != 0);
}

/* Elements of a block of a whole piece: what a rank adds at once. */
static int64_t block_of(const ebb_call *c)
{
    return ebb_least(part_of(c), EBB_GROUP_PIECE / ebb_pieces_ranks(c) / (int64_t)size_of(c));
}

const char *ebb_pieces_misfit(const ebb_call *c)
{
    const int64_t ranks = ebb_pieces_ranks(c);
    return ranks < 1 || ranks > 4096 ? "a group has 1 to 4096 processes" : NULL;
}

const char *ebb_pieces_misfit_sum(const ebb_call *c)
{
    const ebb_dtype dtype = (ebb_dtype)c->in[0].type.dtype;
    EBB_ASK(ebb_call_any(c));
    if (!ebb_dtype_is_float(dtype) && dtype != EBB_I32 && dtype != EBB_I64)
        return "it sums floats, int32 and int64";
    return ebb_pieces_misfit(c);
}

ebb_status ebb_pieces_workspace(const ebb_call *c, size_t *bytes)
{
    const int64_t ranks = ebb_pieces_ranks(c);
    const size_t pieces = sums_wholes(c) || sums_parts(c) ? 2 : c->op == EBB_OP_SHARD ? 0 : 1;
    *bytes = ranks > 1 ? pieces * (size_t)(block_of(c) * ranks) * size_of(c) : 0;
    return NULL;
}

/* ---- sums for all ---- */

/* Of 16 bits no MPI has sums, and ours are rounded as Add rounds. */
static bool asks_library(const ebb_call *c)
{
    return c->in[0].type.dtype != EBB_F16 && c->in[0].type.dtype != EBB_BF16 &&
           ebb_attr_int(&c->attrs, "library", 0) != 0;
}

/* Elements at .. at + block * ranks, where the last piece may end before. */
static ebb_status reduce_piece(const ebb_call *c, const ebb_hands *h, int64_t at, int64_t block)
{
    const size_t size = size_of(c), bytes = (size_t)block * size;
    const int64_t ranks = ebb_pieces_ranks(c), left = ebb_elements(&c->in[0].type) - at;
    const bool is_whole = left >= block * ranks;
    const size_t here = (size_t)(is_whole ? block * ranks : left) * size;
    char *piece = (char *)c->workspace, *end = piece + (size_t)ranks * bytes;
    const char *from = (const char *)c->in[0].data + (size_t)at * size;
    char *to = (char *)c->out[0].data + (size_t)at * size;
    bool done = false;
    if (asks_library(c))
        EBB_TRY(h->sum(h, c, from, to, (int64_t)(here / size), &done));
    if (done)
        return NULL;
    if (!is_whole) {
        EBB_TRY(h->copy(h, end, from, here));
        EBB_TRY(h->clear(h, end + here, (size_t)ranks * bytes - here));
    }
    EBB_TRY(h->exchange(h, c, EBB_ALL_TO_ALL, is_whole ? from : end, piece, bytes));
    EBB_TRY(h->add(h, c, piece, block));
    EBB_TRY(h->exchange(h, c, EBB_ALL_GATHER, piece, is_whole ? to : end, bytes));
    return is_whole ? NULL : h->copy(h, to, end, here);
}

static ebb_status all_reduce(const ebb_call *c, const ebb_hands *h)
{
    const int64_t ranks = ebb_pieces_ranks(c), n = ebb_elements(&c->in[0].type),
                  block = block_of(c);
    for (int64_t at = 0; at < n; at += block * ranks)
        EBB_TRY(reduce_piece(c, h, at, ebb_least(block, (n - at + ranks - 1) / ranks)));
    return NULL;
}

/* ---- parts ---- */

/* How many of `count` elements from `at` on the whole tensor has, in bytes. */
static size_t there(const ebb_call *c, int64_t at, int64_t count)
{
    const int64_t n = whole_of(c);
    return at >= n ? 0 : (size_t)ebb_least(count, n - at) * size_of(c);
}

static ebb_status take(const ebb_call *c, const ebb_hands *h, char *to, int64_t at, int64_t count)
{
    const size_t bytes = there(c, at, count), left = (size_t)count * size_of(c) - bytes;
    if (bytes > 0)
        EBB_TRY(h->copy(h, to, (const char *)c->in[0].data + (size_t)at * size_of(c), bytes));
    return left > 0 ? h->clear(h, to + bytes, left) : NULL;
}

static ebb_status reduce_scatter(const ebb_call *c, const ebb_hands *h)
{
    const int64_t ranks = ebb_pieces_ranks(c), part = part_of(c), block = block_of(c);
    const size_t size = size_of(c);
    char *piece = (char *)c->workspace, *own = piece + (size_t)(ranks * block) * size;
    for (int64_t at = 0, n; at < part; at += n) {
        n = ebb_least(block, part - at);
        for (int64_t r = 0; r < ranks; r++)
            EBB_TRY(take(c, h, own + (size_t)(r * n) * size, r * part + at, n));
        EBB_TRY(h->exchange(h, c, EBB_ALL_TO_ALL, own, piece, (size_t)n * size));
        EBB_TRY(h->add(h, c, piece, n));
        EBB_TRY(h->copy(h, (char *)c->out[0].data + (size_t)at * size, piece, (size_t)n * size));
    }
    return NULL;
}

static ebb_status all_gather(const ebb_call *c, const ebb_hands *h)
{
    const int64_t ranks = ebb_pieces_ranks(c), part = part_of(c), block = block_of(c);
    const size_t size = size_of(c);
    char *piece = (char *)c->workspace;
    for (int64_t at = 0, n; at < part; at += n) {
        n = ebb_least(block, part - at);
        EBB_TRY(h->exchange(h, c, EBB_ALL_GATHER, (const char *)c->in[0].data + (size_t)at * size,
                            piece, (size_t)n * size));
        for (int64_t r = 0; r < ranks; r++)
            if (there(c, r * part + at, n) > 0)
                EBB_TRY(h->copy(h, (char *)c->out[0].data + (size_t)(r * part + at) * size,
                                piece + (size_t)(r * n) * size, there(c, r * part + at, n)));
    }
    return NULL;
}

ebb_status ebb_pieces_run(const ebb_call *c, const ebb_hands *h)
{
    const int64_t ranks = ebb_pieces_ranks(c);
    const int here = c->group != NULL ? c->group->ranks : 1;
    if (here != ranks)
        return ebb_call_error(c, "it is for %lld processes, and %d are here", (long long)ranks,
                              here);
    if (ranks == 1)
        return h->copy(h, c->out[0].data, c->in[0].data, c->in[0].bytes);
    if (c->op == EBB_OP_SHARD)
        return take(c, h, (char *)c->out[0].data, ebb_group_rank_of(c) * part_of(c), part_of(c));
    if (sums_parts(c))
        return reduce_scatter(c, h);
    return sums_wholes(c) ? all_reduce(c, h) : all_gather(c, h);
}
