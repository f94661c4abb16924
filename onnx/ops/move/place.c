/* place: where elements go when attributes, lengths or windows say so: their types. */
#include "onnx/ops/ops.h"
#include "onnx/graph/shape.h"

/* (X) {dtype, k} -> a matrix of X's shape, ones on diagonal k. */
ebb_status ebb_infer_eye_like(ebb_infer *c)
{
    if (c->in[0]->rank >= 0 && c->in[0]->rank != 2)
        return ebb_infer_error(c, "the input has rank %d; a matrix is expected",
                               (int)c->in[0]->rank);
    c->out[0] = *c->in[0];
    int64_t dtype = ebb_attr_int(&c->attrs, "dtype", c->in[0]->dtype);
    if (dtype < EBB_NONE || dtype >= EBB_DTYPE_COUNT)
        return ebb_infer_error(c, "dtype is %lld, which is none", (long long)dtype);
    c->out[0].dtype = (uint8_t)dtype;
    return NULL;
}

/* (X, shape) {axes}: X with these axes cut or padded to these sizes, about their middle. */
ebb_status ebb_infer_center_crop_pad(ebb_infer *c)
{
    const ebb_type *x = c->in[0];
    c->out[0] = *x;
    if (x->rank < 0)
        return NULL;
    uint32_t count;
    const int64_t *axes = ebb_attr_ints(&c->attrs, "axes", &count), *dims = NULL;
    int64_t given = 0;
    bool known = ebb_infer_constant_ints(c, 1, &dims, &given);
    if (axes == NULL)
        count = (uint32_t)x->rank;
    if (known && given != (int64_t)count)
        return ebb_infer_error(c, "%lld sizes are given for %u axes", (long long)given, count);
    for (uint32_t i = 0; i < count; i++) {
        int axis = (int)i;
        if (axes != NULL)
            EBB_TRY(ebb_infer_axis(c, axes[i], x->rank, &axis));
        if (known && dims[i] < 0)
            return ebb_infer_error(c, "size %u is %lld", i, (long long)dims[i]);
        ebb_type_set_dim(&c->out[0], axis, known ? dims[i] : -1);
    }
    return NULL;
}

/* (X [N, C prod(block), L], image shape, block shape) -> [N, C, image...]. */
ebb_status ebb_infer_col2im(ebb_infer *c)
{
    const ebb_type *x = c->in[0];
    const int64_t *image, *block;
    int64_t rank, count, size = 1;
    if (x->rank >= 0 && x->rank != 3)
        return ebb_infer_error(c, "the input has rank %d, not 3", (int)x->rank);
    c->out[0] = ebb_type_unranked((ebb_dtype)x->dtype);
    if (!ebb_infer_constant_ints(c, 1, &image, &rank))
        return NULL;
    if (rank < 1 || rank + 2 > EBB_MAX_RANK)
        return ebb_infer_error(c, "an image of %lld axes", (long long)rank);
    ebb_type out = ebb_type_ranked((ebb_dtype)x->dtype, (int)rank + 2);
    for (int i = 0; i < (int)rank; i++) {
        if (image[i] < 0)
            return ebb_infer_error(c, "axis %d of the image is %lld", i, (long long)image[i]);
        ebb_type_set_dim(&out, i + 2, image[i]);
    }
    if (x->rank == 3)
        ebb_type_put_dim(&out, 0, x, 0);
    if (ebb_infer_constant_ints(c, 2, &block, &count) && x->rank == 3 && x->dims[1] >= 0) {
        for (int64_t i = 0; i < count; i++)
            if (block[i] < 1 || __builtin_mul_overflow(size, block[i], &size))
                return ebb_infer_error(c, "the block's shape is out of range");
        if (count != rank || x->dims[1] % size != 0)
            return ebb_infer_error(c, "%lld rows do not divide into blocks of %lld",
                                   (long long)x->dims[1], (long long)size);
        ebb_type_set_dim(&out, 1, x->dims[1] / size);
    }
    c->out[0] = out;
    return NULL;
}

static bool is_small(int64_t x)
{
    return x >= 0 && x <= INT32_MAX;
}

/* (X, indices, output shape?) {kernel_shape, strides, pads}. */
ebb_status ebb_infer_max_unpool(ebb_infer *c)
{
    const ebb_type *x = c->in[0];
    if (c->input_count > 2 && c->in[2] != NULL)
        return ebb_infer_shape_input(c, 2, (ebb_dtype)x->dtype);
    uint32_t count, stride_count, pad_count;
    const int64_t *kernel = ebb_attr_ints(&c->attrs, "kernel_shape", &count);
    const int64_t *stride = ebb_attr_ints(&c->attrs, "strides", &stride_count);
    const int64_t *pad = ebb_attr_ints(&c->attrs, "pads", &pad_count);
    c->out[0] = *x;
    if (x->rank < 0)
        return NULL;
    if ((int)count != x->rank - 2 || (stride != NULL && stride_count != count) ||
        (pad != NULL && pad_count != 2 * count))
        return ebb_infer_error(c, "kernel_shape, strides or pads do not hold one number an axis");
    for (uint32_t i = 0; i < count; i++) {
        int64_t n = x->dims[i + 2], step = stride != NULL ? stride[i] : 1, size = -1;
        int64_t first = pad != NULL ? pad[i] : 0, last = pad != NULL ? pad[count + i] : 0;
        if (!is_small(step) || !is_small(kernel[i]) || !is_small(first) || !is_small(last))
            return ebb_infer_error(c, "kernel_shape, strides or pads are out of range");
        if (n > 0 && (__builtin_mul_overflow(n - 1, step, &size) ||
                      __builtin_add_overflow(size, kernel[i] - first - last, &size) || size < 1))
            return ebb_infer_error(c, "axis %u would have no places", i + 2);
        ebb_type_set_dim(&c->out[0], (int)i + 2, n > 0 ? size : n);
    }
    return NULL;
}
