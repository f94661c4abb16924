/* place.c: EyeLike, ReverseSequence, CenterCropPad, TensorScatter, Col2Im, MaxUnpool. */
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

static const char *declines_eye_like(const ebb_call *c)
{
    const char *why = ebb_plain_any(c);
    return why != NULL ? why : c->out[0].type.rank != 2 ? "works on matrices only" : NULL;
}

/* ---- ReverseSequence(X, lengths) {batch_axis = 1, time_axis = 0} ---- */

static ebb_status run_reverse(const ebb_call *c)
{
    const ebb_type *t = &c->in[0].type;
    bool batch_first = ebb_attr_int(&c->attrs, "batch_axis", 1) == 0;
    int64_t n = t->dims[0], m = t->dims[1], each = ebb_plain_elements(t);
    size_t size = ebb_plain_size(t);
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

static const char *declines_reverse(const ebb_call *c)
{
    const char *why = ebb_plain_any(c);
    if (why != NULL)
        return why;
    int64_t batch = ebb_attr_int(&c->attrs, "batch_axis", 1);
    if (c->in[0].type.rank < 2 || (batch != 0 && batch != 1) ||
        ebb_attr_int(&c->attrs, "time_axis", 0) != 1 - batch)
        return "batch_axis and time_axis are not 0 and 1";
    if (ebb_plain_elements(&c->in[1].type) != c->in[0].type.dims[batch] ||
        !ebb_dtype_is_integer((ebb_dtype)c->in[1].type.dtype))
        return "there is not one length for each sequence";
    return NULL;
}

/* ---- CenterCropPad(X, shape): what both have, about the middle; zeros around ---- */

static ebb_status run_center(const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    size_t size = ebb_plain_size(x);
    int64_t from[EBB_MAX_RANK], to[EBB_MAX_RANK], dims[EBB_MAX_RANK], skip_x = 0, skip_y = 0;
    ebb_strides(from, x->rank, x->dims);
    ebb_strides(to, y->rank, y->dims);
    for (int d = 0; d < x->rank; d++) {
        int64_t less = x->dims[d] - y->dims[d];
        dims[d] = less > 0 ? y->dims[d] : x->dims[d];
        skip_x += less > 0 ? less / 2 * from[d] : 0;
        skip_y += less < 0 ? -less / 2 * to[d] : 0;
    }
    memset(c->out[0].data, 0, c->out[0].bytes);
    ebb_plain_copy((char *)c->out[0].data + (size_t)skip_y * size, to,
                   (const char *)c->in[0].data + (size_t)skip_x * size, from, x->rank, dims, size);
    return NULL;
}

static const char *declines_center(const ebb_call *c)
{
    const char *why = ebb_plain_any(c);
    if (why == NULL && c->in[0].type.rank != c->out[0].type.rank)
        return "the output differs in rank";
    return why;
}

/* ---- TensorScatter(cache, update, write indices?) {axis = -2, mode} ---- */

static ebb_status run_tensor_scatter(const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type;
    int axis = 0;
    EBB_TRY(ebb_plain_axis(c, ebb_attr_int(&c->attrs, "axis", -2), x->rank, &axis));
    bool circular = strcmp(ebb_attr_string(&c->attrs, "mode", "linear"), "circular") == 0;
    ebb_span s = ebb_plain_span(x, axis);
    int64_t more = c->in[1].type.dims[axis], batch = x->dims[0];
    size_t row = (size_t)s.inner * ebb_plain_size(x);
    ebb_plain_memcpy(c->out[0].data, c->in[0].data, c->out[0].bytes);
    for (int64_t o = 0; o < s.outer; o++) {
        int64_t first = 0;
        if (ebb_plain_has(c, 2))
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

static const char *declines_tensor_scatter(const ebb_call *c)
{
    const char *why = ebb_plain_any(c);
    if (why != NULL)
        return why;
    const ebb_type *x = &c->in[0].type, *u = &c->in[1].type;
    int64_t axis = ebb_attr_int(&c->attrs, "axis", -2);
    axis = axis < 0 ? axis + x->rank : axis;
    if (axis < 1 || axis >= x->rank || u->rank != x->rank || u->dtype != x->dtype)
        return "cache, update and axis do not fit each other";
    for (int d = 0; d < x->rank; d++)
        if (d == axis ? u->dims[d] > x->dims[d] : u->dims[d] != x->dims[d])
            return "the update does not fit the cache";
    if (ebb_plain_has(c, 2) &&
        (c->in[2].type.dtype != EBB_I64 || ebb_plain_elements(&c->in[2].type) != x->dims[0]))
        return "there is not one write index for each of the batch";
    return NULL;
}

/* ---- Col2Im: blocks laid back where they were, added where they overlap ---- */

typedef struct blocks {
    int rank;
    int64_t image[EBB_MAX_RANK], block[EBB_MAX_RANK], stride[EBB_MAX_RANK];
    int64_t dilation[EBB_MAX_RANK], pad[EBB_MAX_RANK], count[EBB_MAX_RANK];
    int64_t area, taps, windows; /* of an image, of a block, blocks of an image */
} blocks;

static const char *attribute(const ebb_call *c, const char *name, uint32_t rank, uint32_t times,
                             int64_t otherwise, int64_t *to)
{
    uint32_t count;
    const int64_t *list = ebb_attr_ints(&c->attrs, name, &count);
    if (list != NULL && count != rank * times)
        return "strides, dilations or pads do not hold one number an axis";
    for (uint32_t i = 0; i < rank * times; i++) {
        to[i] = list != NULL ? list[i] : otherwise;
        if (to[i] < otherwise || to[i] > INT32_MAX)
            return "strides, dilations or pads are out of range";
    }
    return NULL;
}

static ebb_status read_blocks(blocks *b, const ebb_call *c)
{
    uint32_t rank = (uint32_t)c->out[0].type.rank - 2, count;
    int64_t pads[2 * EBB_MAX_RANK];
    *b = (blocks){.rank = (int)rank, .area = 1, .taps = 1, .windows = 1};
    EBB_TRY(ebb_plain_ints(c, NULL, 2, b->block, EBB_MAX_RANK, &count));
    const char *why = count != rank ? "the block has not the image's rank" : NULL;
    if (why == NULL)
        why = attribute(c, "strides", rank, 1, 1, b->stride);
    if (why == NULL)
        why = attribute(c, "dilations", rank, 1, 1, b->dilation);
    if (why == NULL)
        why = attribute(c, "pads", rank, 2, 0, pads);
    for (uint32_t d = 0; why == NULL && d < rank; d++) {
        b->image[d] = c->out[0].type.dims[d + 2];
        b->pad[d] = pads[d];
        if (b->block[d] < 1 || b->block[d] > INT32_MAX || b->image[d] > INT32_MAX)
            return ebb_call_error(c, "the block's shape is out of range");
        int64_t room =
            b->image[d] + pads[d] + pads[rank + d] - b->dilation[d] * (b->block[d] - 1) - 1;
        b->count[d] = room < 0 ? 0 : room / b->stride[d] + 1;
        if (__builtin_mul_overflow(b->windows, b->count[d], &b->windows) ||
            __builtin_mul_overflow(b->taps, b->block[d], &b->taps))
            why = "the blocks are too many";
        b->area *= b->image[d];
    }
    const ebb_type *x = &c->in[0].type;
    if (why == NULL && (x->dims[1] != c->out[0].type.dims[1] * b->taps || x->dims[2] != b->windows))
        why = "the input has not the rows and columns that these blocks have";
    return why != NULL ? ebb_call_error(c, "%s", why) : NULL;
}

/* Where tap k of block l lies in an image; -1 in the padding. */
static int64_t place_in(const blocks *b, int64_t k, int64_t l)
{
    int64_t place = 0, step = 1;
    for (int d = b->rank - 1; d >= 0; d--) {
        int64_t i = l % b->count[d] * b->stride[d] + k % b->block[d] * b->dilation[d] - b->pad[d];
        if (i < 0 || i >= b->image[d])
            return -1;
        place += i * step;
        step *= b->image[d];
        l /= b->count[d];
        k /= b->block[d];
    }
    return place;
}

static ebb_status run_col2im(const ebb_call *c)
{
    blocks b;
    EBB_TRY(read_blocks(&b, c));
    const ebb_operand *y = &c->out[0];
    int64_t images = y->type.dims[0] * y->type.dims[1];
    memset(y->data, 0, y->bytes);
    EBB_PARALLEL_FOR(images * b.taps * b.windows)
    for (int64_t image = 0; image < images; image++)
        for (int64_t k = 0; k < b.taps; k++)
            for (int64_t l = 0; l < b.windows; l++) {
                int64_t place = place_in(&b, k, l), at = image * b.area + place;
                int64_t from = (image * b.taps + k) * b.windows + l;
                if (place >= 0)
                    ebb_plain_put(y, at, ebb_plain_real(y, at) + ebb_plain_real(&c->in[0], from));
            }
    return NULL;
}

static const char *declines_col2im(const ebb_call *c)
{
    const char *why = ebb_plain_floats(c);
    if (why != NULL)
        return why;
    bool fits = c->in[0].type.rank == 3 && c->out[0].type.rank >= 3 &&
                c->in[0].type.dims[0] == c->out[0].type.dims[0];
    return fits ? NULL : "input and output do not fit each other";
}

/* ---- MaxUnpool(X, indices, output shape?): X where the indices say, zeros elsewhere ---- */

/* The indices count in the shape that the windows give; where another is asked for, that one lies
 * in its first corner. */
static bool unpooled_dims(const ebb_call *c, int64_t dims[EBB_MAX_RANK])
{
    const ebb_type *x = &c->in[0].type;
    uint32_t count, stride_count, pad_count;
    const int64_t *kernel = ebb_attr_ints(&c->attrs, "kernel_shape", &count);
    const int64_t *stride = ebb_attr_ints(&c->attrs, "strides", &stride_count);
    const int64_t *pad = ebb_attr_ints(&c->attrs, "pads", &pad_count);
    dims[0] = x->dims[0];
    dims[1] = x->dims[1];
    for (int d = 2; d < x->rank; d++) {
        uint32_t i = (uint32_t)d - 2;
        int64_t step = stride_count == count ? stride[i] : 1, *n = &dims[d];
        bool padded = pad_count == 2 * count;
        if (__builtin_mul_overflow(x->dims[d] - 1, step, n) ||
            __builtin_add_overflow(*n, kernel[i], n) ||
            (padded && (__builtin_sub_overflow(*n, pad[i], n) ||
                        __builtin_sub_overflow(*n, pad[count + i], n))))
            return false;
    }
    return true;
}

static ebb_status run_unpool(const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    int64_t dims[EBB_MAX_RANK], stride[EBB_MAX_RANK], count = 1;
    size_t size = ebb_plain_size(x);
    if (!unpooled_dims(c, dims))
        return ebb_call_error(c, "kernel_shape, strides or pads are out of range");
    for (int d = 0; d < x->rank; d++)
        if (dims[d] < 0 || dims[d] > y->dims[d] || __builtin_mul_overflow(count, dims[d], &count))
            return ebb_call_error(c, "axis %d of the windows has %lld places, the output %lld", d,
                                  (long long)dims[d], (long long)y->dims[d]);
    ebb_strides(stride, y->rank, y->dims);
    memset(c->out[0].data, 0, c->out[0].bytes);
    for (int64_t i = 0, n = ebb_plain_elements(x); i < n; i++) {
        int64_t index = ebb_plain_int(&c->in[1], i), at = 0;
        if (index < 0 || index >= count)
            return ebb_call_error(c, "index %lld is outside 0..%lld", (long long)index,
                                  (long long)count - 1);
        for (int d = x->rank - 1; d >= 0; d--) {
            at += index % dims[d] * stride[d];
            index /= dims[d];
        }
        memcpy((char *)c->out[0].data + (size_t)at * size,
               (const char *)c->in[0].data + (size_t)i * size, size);
    }
    return NULL;
}

static const char *declines_unpool(const ebb_call *c)
{
    const char *why = ebb_plain_any(c);
    if (why != NULL)
        return why;
    uint32_t count;
    (void)ebb_attr_ints(&c->attrs, "kernel_shape", &count);
    if (c->in[0].type.rank < 3 || (int)count != c->in[0].type.rank - 2 ||
        c->out[0].type.rank != c->in[0].type.rank || c->in[1].type.dtype != EBB_I64 ||
        !ebb_type_same_shape(&c->in[0].type, &c->in[1].type))
        return "input, indices and windows do not fit each other";
    return NULL;
}

// clang-format off
const ebb_kernel ebb_plain_place[] = {
    {.name = "plain.eye_like",         .op = EBB_OP_EYE_LIKE,         .declines = declines_eye_like,       .run = run_eye_like},
    {.name = "plain.reverse_sequence", .op = EBB_OP_REVERSE_SEQUENCE, .declines = declines_reverse,        .run = run_reverse},
    {.name = "plain.center_crop_pad",  .op = EBB_OP_CENTER_CROP_PAD,  .declines = declines_center,         .run = run_center},
    {.name = "plain.tensor_scatter",   .op = EBB_OP_TENSOR_SCATTER,   .declines = declines_tensor_scatter, .run = run_tensor_scatter},
    {.name = "plain.col2im",           .op = EBB_OP_COL2IM,           .declines = declines_col2im,         .run = run_col2im},
    {.name = "plain.max_unpool",       .op = EBB_OP_MAX_UNPOOL,       .declines = declines_unpool,         .run = run_unpool},
};
// clang-format on
EBB_PLAIN_COUNT(place)
