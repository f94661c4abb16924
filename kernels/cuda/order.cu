/* order.cu: order.h's sort and sums. */
#include "kernels/cuda/order.h"

enum {
    DIGITS = 256,
    WARPS = EBB_CUDA_BLOCK / EBB_WARP,
    ROUNDS = 8,
    TILE = ROUNDS * EBB_CUDA_BLOCK
};

typedef struct pass_args {
    uint32_t *to_key, *to_position, *counts; /* counts: of digit d in tile t at d * tiles + t */
    const uint32_t *key, *position;          /* position NULL: they are in their first order */
    int64_t n, tiles;
    uint32_t shift;
} pass_args;

EBB_GLOBAL(count_digits, pass_args)
{
    EBB_SHARED(uint32_t, count);
    for (int64_t tile = EBB_BLOCK; tile < a.tiles; tile += EBB_BLOCKS) {
        count[EBB_THREAD] = 0;
        ebb_barrier();
        int64_t end = (tile + 1) * TILE < a.n ? (tile + 1) * TILE : a.n;
        for (int64_t i = tile * TILE + EBB_THREAD; i < end; i += EBB_CUDA_BLOCK)
            (void)ebb_atomic_add_u32(&count[a.key[i] >> a.shift & (DIGITS - 1)], 1);
        ebb_barrier();
        a.counts[EBB_THREAD * a.tiles + tile] = count[EBB_THREAD];
    }
}

/* The lanes of this warp whose digit is mine. */
EBB_GPU_INLINE uint32_t peers(uint32_t digit, bool there)
{
    uint32_t mine = ebb_ballot(there);
    for (uint32_t bit = 1; bit < DIGITS; bit *= 2) {
        uint32_t set = ebb_ballot((digit & bit) != 0);
        mine &= (digit & bit) != 0 ? set : ~set;
    }
    return mine;
}

/* Round by round: each warp counts its digits, each key goes behind those of the rounds, the warps
 * and the lanes before it. Thread d keeps the place of the next digit d. */
EBB_GLOBAL(move_digits, pass_args)
{
    EBB_SHARED(uint32_t, next);
    uint32_t *count = next + DIGITS; /* [WARPS][DIGITS] */
    uint32_t lane = EBB_THREAD % EBB_WARP, warp = EBB_THREAD / EBB_WARP;
    for (int64_t tile = EBB_BLOCK; tile < a.tiles; tile += EBB_BLOCKS) {
        next[EBB_THREAD] = a.counts[EBB_THREAD * a.tiles + tile];
        for (int round = 0; round < ROUNDS; round++) {
            int64_t first = tile * TILE + (int64_t)round * EBB_CUDA_BLOCK, i = first + EBB_THREAD;
            if (first >= a.n)
                break;
            for (uint32_t w = 0; w < WARPS; w++)
                count[w * DIGITS + EBB_THREAD] = 0;
            ebb_barrier();
            bool there = i < a.n;
            uint32_t key = there ? a.key[i] : 0, digit = key >> a.shift & (DIGITS - 1);
            uint32_t same = peers(digit, there);
            uint32_t before = (uint32_t)ebb_popcount(same & (((uint32_t)1 << lane) - 1));
            if (there && before == 0)
                count[warp * DIGITS + digit] = (uint32_t)ebb_popcount(same);
            ebb_barrier();
            if (there) {
                uint32_t at = next[digit] + before;
                for (uint32_t w = 0; w < warp; w++)
                    at += count[w * DIGITS + digit];
                a.to_key[at] = key;
                a.to_position[at] = a.position != NULL ? a.position[i] : (uint32_t)i;
            }
            ebb_barrier();
            for (uint32_t w = 0; w < WARPS; w++)
                next[EBB_THREAD] += count[w * DIGITS + EBB_THREAD];
        }
    }
}

/* ---- sums ---- */

typedef struct sum_args {
    uint32_t *counts;
    int64_t n;
} sum_args;

enum { SUM_THREADS = 1024 };

/* One block, from front to back. */
EBB_GLOBAL_OF(sum_before, sum_args, SUM_THREADS)
{
    EBB_SHARED(uint32_t, shared);
    uint32_t carry = 0;
    for (int64_t first = 0; first < a.n; first += EBB_THREADS) {
        int64_t i = first + EBB_THREAD;
        uint32_t all, mine = i < a.n ? a.counts[i] : 0;
        uint32_t before = ebb_block_before(mine, shared, &all);
        if (i < a.n)
            a.counts[i] = carry + before;
        carry += all;
    }
    if (EBB_THREAD == 0)
        a.counts[a.n] = carry;
}

ebb_status ebb_cuda_sum_before(const ebb_call *c, uint32_t *counts, int64_t n)
{
    sum_args a = {counts, n};
    ebb_gpu_grid one = {1, 1, 1};
    return EBB_LAUNCH(c, sum_before, one,
                      n > SUM_THREADS ? (uint32_t)SUM_THREADS : (uint32_t)EBB_CUDA_BLOCK,
                      EBB_WARP * sizeof(uint32_t), a);
}

/* ---- the sort ---- */

static int64_t tiles_of(int64_t n)
{
    return (n + TILE - 1) / TILE;
}

/* keys, other keys, positions, other positions: n each; counts. */
size_t ebb_cuda_order_bytes(int64_t n)
{
    return (4 * (size_t)n + (size_t)tiles_of(n) * DIGITS + 1) * sizeof(uint32_t);
}

ebb_status ebb_cuda_order_make(const ebb_call *c, void *scratch, int64_t n, uint32_t greatest,
                               ebb_cuda_order *order)
{
    uint32_t *keys = (uint32_t *)scratch, *positions = keys + 2 * n;
    pass_args a;
    memset(&a, 0, sizeof a);
    a.counts = keys + 4 * n;
    a.n = n;
    a.tiles = tiles_of(n);
    int from = 0;
    for (uint32_t shift = 0; shift == 0 || (shift < 32 && greatest >> shift != 0); shift += 8) {
        a.key = keys + from * n;
        a.position = shift > 0 ? positions + from * n : NULL;
        from = 1 - from;
        a.to_key = keys + from * n;
        a.to_position = positions + from * n;
        a.shift = shift;
        EBB_TRY(EBB_LAUNCH(c, count_digits, ebb_cuda_blocks(a.tiles), EBB_CUDA_BLOCK,
                           DIGITS * sizeof(uint32_t), a));
        EBB_TRY(ebb_cuda_sum_before(c, a.counts, a.tiles * DIGITS));
        EBB_TRY(EBB_LAUNCH(c, move_digits, ebb_cuda_blocks(a.tiles), EBB_CUDA_BLOCK,
                           DIGITS * (WARPS + 1) * sizeof(uint32_t), a));
    }
    order->key = keys + from * n;
    order->position = positions + from * n;
    return NULL;
}
