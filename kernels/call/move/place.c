/* place.c: see place.h. */
#include "kernels/call/move/place.h"

/* ---- CenterCropPad ---- */

const char *ebb_middle_misfit(const ebb_call *c)
{
    return c->in[0].type.rank != c->out[0].type.rank || c->in[0].type.dtype != c->out[0].type.dtype
               ? "the output does not fit the input"
               : NULL;
}

void ebb_middle_read(ebb_middle *m, const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    memset(m, 0, sizeof *m);
    m->rank = x->rank;
    m->fills = true;
    ebb_strides(m->from, x->rank, x->dims);
    ebb_strides(m->to, y->rank, y->dims);
    for (int d = 0; d < x->rank; d++) {
        const int64_t less = x->dims[d] - y->dims[d];
        m->dims[d] = less > 0 ? y->dims[d] : x->dims[d];
        m->skip_from += less > 0 ? less / 2 * m->from[d] : 0;
        m->skip_to += less < 0 ? -less / 2 * m->to[d] : 0;
        m->fills = m->fills && less >= 0;
    }
}

/* ---- Col2Im ---- */

const char *ebb_blocks_misfit(const ebb_call *c)
{
    bool fits = c->in[0].type.rank == 3 && c->out[0].type.rank >= 3 &&
                c->in[0].type.dims[0] == c->out[0].type.dims[0];
    return fits ? NULL : "input and output do not fit each other";
}

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

ebb_status ebb_blocks_read(ebb_blocks *b, const ebb_call *c, const int64_t *block, uint32_t count)
{
    const ebb_type *y = &c->out[0].type;
    uint32_t rank = (uint32_t)y->rank - 2;
    int64_t pads[2 * EBB_MAX_RANK];
    *b = (ebb_blocks){
        .rank = (int)rank, .area = 1, .taps = 1, .windows = 1, .images = y->dims[0] * y->dims[1]};
    const char *why = count != rank ? "the block has not the image's rank" : NULL;
    if (why == NULL)
        why = attribute(c, "strides", rank, 1, 1, b->stride);
    if (why == NULL)
        why = attribute(c, "dilations", rank, 1, 1, b->dilation);
    if (why == NULL)
        why = attribute(c, "pads", rank, 2, 0, pads);
    for (uint32_t d = 0; why == NULL && d < rank; d++) {
        b->image[d] = y->dims[d + 2];
        b->block[d] = block[d];
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
    int64_t rows = 0;
    if (why == NULL && __builtin_mul_overflow(y->dims[1], b->taps, &rows))
        why = "the blocks are too many";
    if (why == NULL && (x->dims[1] != rows || x->dims[2] != b->windows))
        why = "the input has not the rows and columns that these blocks have";
    return why != NULL ? ebb_call_error(c, "%s", why) : NULL;
}

/* ---- MaxUnpool ---- */

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

ebb_status ebb_unpool_read(ebb_unpool *u, const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    *u = (ebb_unpool){.rank = x->rank, .count = 1, .n = 1};
    if (!unpooled_dims(c, u->dims))
        return ebb_call_error(c, "kernel_shape, strides or pads are out of range");
    for (int d = 0; d < x->rank; d++) {
        u->n *= x->dims[d];
        if (u->dims[d] < 0 || u->dims[d] > y->dims[d] ||
            __builtin_mul_overflow(u->count, u->dims[d], &u->count))
            return ebb_call_error(c, "axis %d of the windows has %lld places, the output %lld", d,
                                  (long long)u->dims[d], (long long)y->dims[d]);
    }
    ebb_strides(u->stride, y->rank, y->dims);
    return NULL;
}

const char *ebb_unpool_misfit(const ebb_call *c)
{
    uint32_t count;
    (void)ebb_attr_ints(&c->attrs, "kernel_shape", &count);
    if (c->in[0].type.rank < 3 || (int)count != c->in[0].type.rank - 2 ||
        c->out[0].type.rank != c->in[0].type.rank || c->in[1].type.dtype != EBB_I64 ||
        !ebb_type_same_shape(&c->in[0].type, &c->in[1].type))
        return "input, indices and windows do not fit each other";
    return NULL;
}
