/* place.c: EyeLike, ReverseSequence, CenterCropPad, TensorScatter, Col2Im, MaxUnpool. */
#include "kernels/call/misfit.h"
#include "kernels/call/move/move_index.h"
#include "kernels/call/move/place.h"
#include "kernels/plain/number.h"

static ebb_status run_eye_like(const ebb_call *c)
{
    const ebb_operand *y = &c->out[0];
    int64_t rows = y->type.dims[0], columns = y->type.dims[1];
    int64_t k = ebb_attr_int(&c->attrs, "k", 0);
    for (int64_t i = 0; i < rows * columns; i++)
        ebb_plain_put(y, i, i % columns - i / columns == k ? 1.0 : 0.0);
    return NULL;
}

static const char *misfit_eye_like(const ebb_call *c)
{
    return c->out[0].type.rank != 2 ? "works on matrices only" : NULL;
}

/* ---- ReverseSequence(X, lengths) {batch_axis = 1, time_axis = 0} ---- */

static ebb_status run_reverse(const ebb_call *c)
{
    const ebb_type *t = &c->in[0].type;
    bool batch_first = ebb_attr_int(&c->attrs, "batch_axis", 1) == 0;
    int64_t n = t->dims[0], m = t->dims[1], each = ebb_elements(t);
    size_t size = ebb_element_bytes(t);
    each = n * m > 0 ? each / (n * m) : 0;
    for (int64_t i = 0; i < n * m; i++) {
        int64_t batch = batch_first ? i / m : i % m, time = batch_first ? i % m : i / m;
        int64_t length = ebb_plain_whole(&c->in[1], batch), from = time;
        if (length < 0 || length > (batch_first ? m : n))
            return ebb_call_error(c, "length %lld of sequence %lld is outside 0..%lld",
                                  (long long)length, (long long)batch,
                                  (long long)(batch_first ? m : n));
        if (time < length)
            from = length - 1 - time;
        int64_t at = batch_first ? batch * m + from : from * m + batch;
        memcpy((char *)c->out[0].data + (size_t)(i * each) * size,
               (const char *)c->in[0].data + (size_t)(at * each) * size, (size_t)each * size);
    }
    return NULL;
}

/* ---- CenterCropPad(X, shape): what both have, about the middle; zeros around ---- */

static ebb_status run_center(const ebb_call *c)
{
    const size_t size = ebb_element_bytes(&c->in[0].type);
    ebb_middle m;
    ebb_middle_read(&m, c);
    if (!m.fills)
        memset(c->out[0].data, 0, c->out[0].bytes);
    ebb_plain_copy((char *)c->out[0].data + (size_t)m.skip_to * size, m.to,
                   (const char *)c->in[0].data + (size_t)m.skip_from * size, m.from, m.rank, m.dims,
                   size);
    return NULL;
}

/* ---- TensorScatter(cache, update, write indices?) {axis = -2, mode} ---- */

static ebb_status run_tensor_scatter(const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type;
    int axis = 0;
    EBB_TRY(ebb_call_axis(c, ebb_attr_int(&c->attrs, "axis", -2), x->rank, &axis));
    bool circular = strcmp(ebb_attr_string(&c->attrs, "mode", "linear"), "circular") == 0;
    ebb_span s = ebb_span_of(x, axis);
    int64_t more = c->in[1].type.dims[axis], batch = x->dims[0];
    size_t row = (size_t)s.inner * ebb_element_bytes(x);
    ebb_plain_memcpy(c->out[0].data, c->in[0].data, c->out[0].bytes);
    for (int64_t o = 0; o < s.outer; o++) {
        int64_t first = 0;
        if (ebb_call_has(c, 2))
            first = ebb_plain_int(&c->in[2], o / (s.outer / batch));
        if (first < 0 || (!circular && first > s.n - more))
            return ebb_call_error(c, "%lld rows from row %lld on do not fit %lld", (long long)more,
                                  (long long)first, (long long)s.n);
        for (int64_t i = 0; i < more; i++)
            memcpy((char *)c->out[0].data + (size_t)(o * s.n + (first % s.n + i) % s.n) * row,
                   (const char *)c->in[1].data + (size_t)(o * more + i) * row, row);
    }
    return NULL;
}

/* ---- Col2Im, MaxUnpool: kernels/call/move/place.h ---- */

static ebb_status run_col2im(const ebb_call *c)
{
    ebb_blocks b;
    int64_t block[EBB_MAX_RANK];
    uint32_t count;
    EBB_TRY(ebb_call_ints(c, NULL, 2, block, EBB_MAX_RANK, &count));
    EBB_TRY(ebb_blocks_read(&b, c, block, count));
    EBB_PARALLEL_FOR(b.images * b.area * b.taps)
    for (int64_t i = 0; i < b.images * b.area; i++) {
        double sum = 0;
        for (int64_t k = 0; k < b.taps; k++) {
            int64_t on = ebb_block_on(&b, k, i % b.area);
            if (on >= 0)
                sum += ebb_plain_real(&c->in[0], (i / b.area * b.taps + k) * b.windows + on);
        }
        ebb_plain_put(&c->out[0], i, sum);
    }
    return NULL;
}

static ebb_status run_unpool(const ebb_call *c)
{
    ebb_unpool u;
    size_t size = ebb_element_bytes(&c->in[0].type);
    EBB_TRY(ebb_unpool_read(&u, c));
    memset(c->out[0].data, 0, c->out[0].bytes);
    for (int64_t i = 0; i < u.n; i++) {
        int64_t index = ebb_plain_int(&c->in[1], i);
        if (index < 0 || index >= u.count)
            return ebb_call_error(c, "index %lld is outside 0..%lld", (long long)index,
                                  (long long)u.count - 1);
        memcpy((char *)c->out[0].data + (size_t)ebb_unpool_at(&u, index) * size,
               (const char *)c->in[0].data + (size_t)i * size, size);
    }
    return NULL;
}

// clang-format off
const ebb_kernel ebb_plain_place[] = {
    {.name = "plain.eye_like",         .op = EBB_OP_EYE_LIKE,         .dtypes = ebb_call_any, .fits = misfit_eye_like, .run = run_eye_like},
    {.name = "plain.reverse_sequence", .op = EBB_OP_REVERSE_SEQUENCE, .dtypes = ebb_call_any, .fits = ebb_reverse_sequence_misfit, .run = run_reverse},
    {.name = "plain.center_crop_pad",  .op = EBB_OP_CENTER_CROP_PAD,  .dtypes = ebb_call_any, .fits = ebb_middle_misfit, .run = run_center},
    {.name = "plain.tensor_scatter",   .op = EBB_OP_TENSOR_SCATTER,   .fits = ebb_tensor_scatter_misfit, .run = run_tensor_scatter},
    {.name = "plain.col2im",           .op = EBB_OP_COL2IM,           .dtypes = ebb_plain_floats, .fits = ebb_blocks_misfit, .run = run_col2im},
    {.name = "plain.max_unpool",       .op = EBB_OP_MAX_UNPOOL,       .dtypes = ebb_call_any, .fits = ebb_unpool_misfit, .run = run_unpool},
};
// clang-format on
EBB_PLAIN_COUNT(place)
