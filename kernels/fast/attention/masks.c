/* masks.c: which keys the rows of attention.c see. See head.h. */
#include "kernels/fast/attention/head.h"

int64_t ebb_attention_keys(const ebb_attention_head *h, int64_t first, int64_t end)
{
    const ebb_attention *a = h->a;
    int64_t most = 0, step = a->keep.stride[a->rank - 1];
    if (!h->may_skip || (h->all_kept && !a->causal))
        return a->t;
    for (int64_t i = first; i < end; i++) {
        const uint8_t *keep = h->keep + ebb_attention_row(a, &a->keep, h->index, i);
        int64_t n = a->causal && i + 1 < a->t ? i + 1 : a->t;
        while (n > 0 && keep[(n - 1) * step] == 0)
            n--;
        if (n == 0)
            return a->t;
        most = n > most ? n : most;
    }
    return most;
}

/* How many keys of the first n row i may see without being asked one by one: those not after it. */
static int64_t seen_by(const ebb_attention_head *h, int64_t i, int64_t n)
{
    return h->a->causal && i + 1 < n ? i + 1 : n;
}

void ebb_attention_mask_row(const ebb_attention_head *h, float *x, int64_t i, int64_t n)
{
    const ebb_attention *a = h->a;
    const float fill = (float)a->fill;
    const bool replace = a->replace;
    const uint8_t *keep = h->keep + ebb_attention_row(a, &a->keep, h->index, i);
    const int64_t step = a->keep.stride[a->rank - 1], seen = seen_by(h, i, n);
    if (step == 1) {
        EBB_SIMD
        for (int64_t j = 0; j < seen; j++)
            x[j] = keep[j] != 0 ? x[j] : replace ? fill : x[j] + fill;
    } else if (keep[0] == 0) {
        for (int64_t j = 0; j < seen; j++)
            x[j] = replace ? fill : x[j] + fill;
    }
    for (int64_t j = seen; j < n; j++)
        x[j] = replace ? fill : x[j] + fill;
    if (!h->biased)
        return;
    const int64_t bias_step = a->bias.stride[a->rank - 1]; // 0 or 1
    const float *bias = ebb_attention_look(h, h->bias, ebb_attention_row(a, &a->bias, h->index, i),
                                           bias_step == 0 ? 1 : n, h->l->bias);
    for (int64_t j = 0; j < n; j++)
        x[j] += bias[j * bias_step];
}

void ebb_attention_cut_row(const ebb_attention_head *h, float *ds, int64_t i, int64_t n)
{
    const ebb_attention *a = h->a;
    const uint8_t *keep = h->keep + ebb_attention_row(a, &a->keep, h->index, i);
    const int64_t step = a->keep.stride[a->rank - 1], seen = seen_by(h, i, n);
    for (int64_t j = 0; j < n; j++)
        ds[j] = j < seen && keep[j * step] != 0 ? ds[j] : 0.0f;
}

const uint8_t *ebb_attention_draw_row(const ebb_attention_head *h, int64_t i, int64_t n)
{
    uint8_t *kept = (uint8_t *)(h->memory + h->l->kept);
    ebb_attention_kept(kept, h->a, h->key, (h->index * h->a->s + i) * h->a->t, n);
    return kept;
}
