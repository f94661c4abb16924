/* attention_mask.cu: attention_mask.h's kernels: a block for each row of a mask, threads along
 * keys; a block for each row of a result, threads along columns.
 */
#include "kernels/cuda/library/attention_mask.h"

#include "kernels/cuda/floats.h"
#include "kernels/math/philox.h"

enum { KEEP = 3, BIAS = 4 };

/* ---- what a mask is ---- */

/* Is it a constant of one element, and which? */
static bool is_single(const ebb_operand *o, const ebb_attention_mask *m, double *value)
{
    if (!m->single || o->constant == NULL || o->constant->data == NULL)
        return false;
    *value = ebb_tensor_double(o->constant, 0);
    return true;
}

/* Strides by batch, head, row, key. */
static void read_strides(int64_t stride[4], const ebb_attention *a, const ebb_attention_mask *m)
{
    for (int i = 0; i < 4; i++) {
        const int axis = i - 4 + a->rank;
        stride[i] = axis >= 0 ? m->stride[axis] : 0;
    }
}

/* Where the library leaves the future out it does so exactly, and a finite fill does not: then all
 * keys of a row without any share its probability. Such a mask has causality in it. */
static const char *read_mask(ebb_cuda_masking *m, const ebb_attention *a, uint8_t dtype,
                             bool all_kept, bool no_bias)
{
    const bool finite = a->fill != -(double)INFINITY;
    m->wide = dtype == EBB_F16;
    if (a->rank > 4)
        return "a mask of so many axes is not cuDNN's";
    if (finite && !(a->fill < -1e30))
        return "masked keys would have a probability";
    read_strides(m->keep_stride, a, &a->keep);
    read_strides(m->bias_stride, a, &a->bias);
    for (int i = 0; i < 3; i++) {
        const int axis = i - 4 + a->rank;
        m->dims[i] = axis >= 0 ? a->dims[axis] : 1;
        m->bias_dims[i] = m->keep_stride[i] != 0 || m->bias_stride[i] != 0 ? m->dims[i] : 1;
    }
    m->folds = a->causal && finite;
    m->causal = a->causal && !finite;
    if (m->folds)
        m->bias_dims[2] = m->dims[2];
    m->rows = m->causal ? m->dims[2] : m->bias_dims[2];
    m->keys = m->given = a->t;
    m->fill = (float)a->fill;
    m->dies = !no_bias || (!finite && !all_kept);
    m->guard = a->guard;
    return NULL;
}

const char *ebb_cuda_masking_read(ebb_cuda_masking *m, bool *is_masked, const ebb_attention *a,
                                  const ebb_operand *operands)
{
    double keep = 0, bias = 1;
    const bool all_kept = is_single(&operands[KEEP], &a->keep, &keep) && keep != 0;
    const bool no_bias = is_single(&operands[BIAS], &a->bias, &bias) && bias == 0;
    memset(m, 0, sizeof *m);
    *is_masked = !all_kept || !no_bias;
    if (*is_masked)
        return read_mask(m, a, operands[0].type.dtype, all_kept, no_bias);
    return !a->causal || a->fill < -1e30 ? NULL : "keys of the future would have a probability";
}

/* Masked keys have no probability at all; a row without any is no number. */
const char *ebb_cuda_masking_of_heads(ebb_cuda_masking *m, bool *is_masked, const ebb_heads *h,
                                      const ebb_call *c, uint8_t dtype)
{
    const bool has_mask = ebb_call_has(c, 3), has_lengths = ebb_call_has(c, 6);
    const bool folds = h->causal && h->k.before > 0;
    memset(m, 0, sizeof *m);
    *is_masked = has_mask || has_lengths || folds;
    m->packed = h->q.packed;
    if (!*is_masked)
        return NULL;
    m->wide = dtype == EBB_F16;
    const int64_t dims[3] = {h->batch, h->q.heads, h->q.length};
    for (int i = 0; i < 3; i++) {
        m->dims[i] = dims[i];
        m->bias_dims[i] = h->mask_stride[i] != 0 ? dims[i] : 1;
    }
    memcpy(h->mask_is_bool ? m->keep_stride : m->bias_stride, h->mask_stride,
           sizeof m->keep_stride);
    if (has_lengths)
        m->bias_dims[0] = m->dims[0];
    if (folds)
        m->bias_dims[2] = m->dims[2];
    m->folds = folds;
    m->causal = h->causal && !folds;
    m->rows = m->causal ? m->dims[2] : m->bias_dims[2];
    m->keys = h->total;
    m->given = has_mask ? h->mask_length : h->total;
    m->before = h->k.before;
    m->fill = -(float)INFINITY;
    m->dies = true;
    return NULL;
}

/* ---- kernels ---- */

typedef struct masking_args {
    ebb_cuda_masking m;
    const uint8_t *keep;
    const void *bias; /* 16 bits */
    const int64_t *lengths;
    void *to;
    uint8_t *alive;
} masking_args;

EBB_GPU_INLINE float lowest(void)
{
    return ebb_f32_of_bits(0xFF7F0000u); // of bfloat16
}

EBB_GPU_INLINE float given_bias(const masking_args *a, int64_t at)
{
    return a->m.wide ? ebb_from_f16(((const ebb_f16 *)a->bias)[at])
                     : ebb_from_bf16(((const ebb_bf16 *)a->bias)[at]);
}

EBB_GLOBAL(make_bias, masking_args)
{
    EBB_SHARED(uint32_t, some);
    const ebb_cuda_masking *m = &a.m;
    const int64_t of = m->rows * m->bias_dims[1];
    for (int64_t r = EBB_BLOCK; r < of * m->bias_dims[0]; r += EBB_BLOCKS) {
        const int64_t b = r / of, h = r / m->rows % m->bias_dims[1], i = r % m->rows;
        const int64_t in_keep =
            b * m->keep_stride[0] + h * m->keep_stride[1] + i * m->keep_stride[2];
        const int64_t in_bias =
            b * m->bias_stride[0] + h * m->bias_stride[1] + i * m->bias_stride[2];
        const bool writes = i < m->bias_dims[2];
        const int64_t out = ((b * m->bias_dims[1] + h) * m->bias_dims[2] + i) * m->keys;
        int64_t end = m->given;
        if (a.lengths != NULL && a.lengths[b] < end)
            end = a.lengths[b];
        uint32_t sees = 0;
        EBB_BLOCK_LOOP(j, m->keys)
        {
            const bool future = j > i + m->before;
            bool on = j < end && !(m->folds && future);
            if (on && a.keep != NULL)
                on = a.keep[in_keep + j * m->keep_stride[3]] != 0;
            float v = 0;
            if (j < m->given && a.bias != NULL)
                v = given_bias(&a, in_bias + j * m->bias_stride[3]);
            if (!on)
                v += m->fill;
            if (v != -INFINITY && !(m->causal && future))
                sees = 1;
            if (v < lowest()) // NaN stays
                v = lowest();
            if (writes && m->wide)
                ((float *)a.to)[out + j] = v;
            else if (writes)
                ((ebb_bf16 *)a.to)[out + j] = ebb_to_bf16(v);
        }
        if (a.alive == NULL)
            continue;
        some[EBB_THREAD] = sees;
        ebb_barrier();
        for (uint32_t half = EBB_THREADS / 2; half > 0; half /= 2) {
            if (EBB_THREAD < half)
                some[EBB_THREAD] |= some[EBB_THREAD + half];
            ebb_barrier();
        }
        if (EBB_THREAD == 0)
            a.alive[r] = (uint8_t)some[0];
    }
}

typedef struct settle_args {
    ebb_cuda_masking m;
    const uint8_t *alive;
    uint16_t *y;
    float *max, *sum;
    int64_t columns;
} settle_args;

EBB_GLOBAL(settle_rows, settle_args)
{
    const ebb_cuda_masking *m = &a.m;
    const int64_t count = m->dims[0] * m->dims[1] * m->dims[2];
    for (int64_t r = EBB_BLOCK; r < count; r += EBB_BLOCKS) {
        const int64_t i = r % m->dims[2], h = r / m->dims[2] % m->dims[1];
        const int64_t b = r / m->dims[2] / m->dims[1];
        const int64_t at =
            ((m->bias_dims[0] == 1 ? 0 : b) * m->bias_dims[1] + (m->bias_dims[1] == 1 ? 0 : h)) *
                m->rows +
            (m->rows == 1 ? 0 : i);
        if (a.alive[at] != 0)
            continue;
        const int64_t row = m->packed ? (b * m->dims[2] + i) * m->dims[1] + h : r;
        const uint16_t value = m->guard ? 0 : 0x7FC0; // no number in both types of 16 bits
        EBB_BLOCK_LOOP(k, a.columns)
        {
            a.y[row * a.columns + k] = value;
        }
        if (EBB_THREAD == 0 && a.max != NULL)
            a.max[r] = -INFINITY;
        if (EBB_THREAD == 0 && a.sum != NULL)
            a.sum[r] = ebb_f32_of_bits(0x7FC00000u);
    }
}

ebb_status ebb_cuda_masking_make(const ebb_call *c, const ebb_cuda_masking *m, const void *keep,
                                 const void *bias, const int64_t *lengths, void *to, void *alive)
{
    masking_args a;
    memset(&a, 0, sizeof a);
    a.m = *m;
    a.keep = (const uint8_t *)keep;
    a.bias = bias;
    a.lengths = lengths;
    a.to = to;
    a.alive = m->dies ? (uint8_t *)alive : NULL;
    return EBB_LAUNCH(c, make_bias, ebb_cuda_blocks(m->bias_dims[0] * m->bias_dims[1] * m->rows),
                      EBB_CUDA_BLOCK, EBB_CUDA_BLOCK * sizeof(uint32_t), a);
}

ebb_status ebb_cuda_masking_settle(const ebb_call *c, const ebb_cuda_masking *m, const void *alive,
                                   void *y, int64_t columns, void *max, void *sum)
{
    settle_args a;
    memset(&a, 0, sizeof a);
    a.m = *m;
    a.alive = (const uint8_t *)alive;
    a.y = (uint16_t *)y;
    a.columns = columns;
    a.max = (float *)max;
    a.sum = (float *)sum;
    return m->dies
               ? EBB_LAUNCH(c, settle_rows, ebb_cuda_blocks(m->dims[0] * m->dims[1] * m->dims[2]),
                            EBB_CUDA_BLOCK, 0, a)
               : NULL;
}

typedef struct log_sums_args {
    const float *max, *sum;
    float *to;
    int64_t rows;
    bool guard;
} log_sums_args;

EBB_GLOBAL(log_sums, log_sums_args)
{
    EBB_GRID_LOOP(i, a.rows)
    {
        const bool empty = a.guard && a.sum[i] != a.sum[i];
        a.to[i] = empty ? INFINITY : a.max[i] + logf(a.sum[i]);
    }
}

ebb_status ebb_cuda_masking_log_sums(const ebb_call *c, const void *max, const void *sum,
                                     bool guard, void *to, int64_t rows)
{
    const log_sums_args a = {(const float *)max, (const float *)sum, (float *)to, rows, guard};
    return EBB_LAUNCH(c, log_sums, ebb_cuda_grid(rows), EBB_CUDA_BLOCK, 0, a);
}

/* ---- dropout ---- */

typedef struct kept_args {
    uint16_t *to; /* 8-byte aligned */
    const int64_t *key;
    int64_t first, n; /* elements of the scores, in the order in which they are drawn */
    int64_t run;      /* kernels/draws.h */
    uint32_t stream, threshold;
    uint16_t one;
} kept_args;

/* Of four elements, which lie together in the whole where the tensor is the whole. */
EBB_GPU_INLINE uint64_t kept_four(const kept_args *a, int64_t first)
{
    const int64_t part = a->run == 0 ? 0 : a->key[2], parts = a->run == 0 ? 1 : a->key[3];
    ebb_philox p = {{0, 0, 0, 0}};
    uint64_t four = 0, last = 0;
    for (int w = 0; w < 4; w++) {
        const uint64_t at = ebb_philox_place(first + w, part, parts, a->run);
        if (w == 0 || at / 4 != last)
            p = ebb_philox_block((uint64_t)a->key[0], (uint64_t)a->key[1], a->stream, at / 4);
        last = at / 4;
        four |= (uint64_t)(p.word[at % 4] >= a->threshold ? a->one : 0) << 16 * w;
    }
    return four;
}

/* A thread four scores. */
EBB_GLOBAL(draw_kept, kept_args)
{
    const int64_t block = a.first / 4, blocks = (a.first + a.n + 3) / 4 - block;
    EBB_GRID_LOOP(i, blocks)
    {
        const int64_t at = (block + i) * 4 - a.first;
        const uint64_t four = kept_four(&a, (block + i) * 4);
        if (at % 4 == 0 && at + 4 <= a.n) {
            *(uint64_t *)(a.to + at) = four;
        } else {
            for (int w = 0; w < 4; w++)
                if (at + w >= 0 && at + w < a.n)
                    a.to[at + w] = (uint16_t)(four >> 16 * w);
        }
    }
}

ebb_status ebb_cuda_masking_kept(const ebb_call *c, const ebb_attention *a, const void *key,
                                 ebb_dtype dtype, int64_t first, int64_t count, void *to)
{
    const int64_t head = a->s * a->t;
    kept_args args = {(uint16_t *)to, (const int64_t *)key,
                      first * head,   count * head,
                      a->run,         a->stream,
                      a->threshold,   (uint16_t)(dtype == EBB_F16 ? 0x3C00 : 0x3F80)};
    if (args.n == 0)
        return NULL;
    return EBB_LAUNCH(c, draw_kept, ebb_cuda_grid(args.n / 4 + 2), EBB_CUDA_BLOCK, 0, args);
}
