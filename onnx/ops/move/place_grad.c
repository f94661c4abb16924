/* place, gradients: what was laid somewhere is picked up there.
 *
 * All three forward operators put each element of x at one place of y or at none, so dx is dy at
 * these places: a Gather. Places are known from shapes and attributes, but for MaxUnpool's.
 */
#include "onnx/ops/common.h"

/* y = CenterCropPad(x).  It keeps the middle, and cuts or pads both ends alike: so does the way
 * back. Needs x's shape alone. */
void ebb_grad_center_crop_pad(ebb_build *b, ebb_grad *c)
{
    ebb_type x;
    if (ebb_grad_shape(b, c, c->x[0], &x))
        c->dx[0] = ebb_emit(b, EBB_OP_CENTER_CROP_PAD, c->dy[0], ebb_const_shape(b, c->x[0]));
}

/* ---- Col2Im ---- */

typedef struct blocks {
    int rank;
    int64_t image[EBB_MAX_RANK], block[2 * EBB_MAX_RANK], stride[EBB_MAX_RANK];
    int64_t dilation[EBB_MAX_RANK], pad[EBB_MAX_RANK], count[EBB_MAX_RANK];
    int64_t area, taps, windows;
} blocks;

static int64_t entry_of(const ebb_grad *c, const char *name, int i, int64_t otherwise)
{
    uint32_t count;
    const int64_t *list = ebb_attr_ints(&c->attrs, name, &count);
    return list != NULL && i < (int)count ? list[i] : otherwise;
}

/* A sentence where attributes and shapes contradict each other. */
static const char *read_blocks(blocks *p, const ebb_build *b, const ebb_grad *c, const ebb_type *x,
                               const ebb_type *y)
{
    const int64_t limit = INT32_MAX;
    int given;
    *p = (blocks){.rank = y->rank - 2, .area = 1, .taps = 1, .windows = 1};
    if (!ebb_grad_ints(b, c, 2, p->block, &given) || given != p->rank)
        return "the block's shape is not known";
    for (int d = 0; d < p->rank; d++) {
        int64_t last = entry_of(c, "pads", p->rank + d, 0);
        p->image[d] = y->dims[d + 2];
        p->stride[d] = entry_of(c, "strides", d, 1);
        p->dilation[d] = entry_of(c, "dilations", d, 1);
        p->pad[d] = entry_of(c, "pads", d, 0);
        if (p->block[d] < 1 || p->block[d] > limit || p->image[d] > limit || p->stride[d] < 1 ||
            p->stride[d] > limit || p->dilation[d] < 1 || p->dilation[d] > limit || p->pad[d] < 0 ||
            p->pad[d] > limit || last < 0 || last > limit)
            return "blocks, strides, dilations or pads are out of range";
        int64_t room = p->image[d] + p->pad[d] + last - p->dilation[d] * (p->block[d] - 1) - 1;
        p->count[d] = room < 0 ? 0 : room / p->stride[d] + 1;
        if (__builtin_mul_overflow(p->windows, p->count[d], &p->windows) ||
            __builtin_mul_overflow(p->taps, p->block[d], &p->taps))
            return "the blocks are too many";
        p->area *= p->image[d];
    }
    int64_t rows;
    if (__builtin_mul_overflow(p->taps, y->dims[1], &rows) || x->rank != 3 || x->dims[1] != rows ||
        x->dims[2] != p->windows)
        return "the input has not the rows and columns that these blocks have";
    return NULL;
}

/* Where tap k of block l lies in an image; `area`, one past its end, in the padding. */
static int64_t place_of(const blocks *p, int64_t k, int64_t l)
{
    int64_t place = 0, step = 1;
    for (int d = p->rank - 1; d >= 0; d--) {
        int64_t i = l % p->count[d] * p->stride[d] + k % p->block[d] * p->dilation[d] - p->pad[d];
        if (i < 0 || i >= p->image[d])
            return p->area;
        place += i * step;
        step *= p->image[d];
        l /= p->count[d];
        k /= p->block[d];
    }
    return place;
}

/* y = Col2Im(x).  dx: the blocks of dy, one zero standing for all of the padding. */
void ebb_grad_col2im(ebb_build *b, ebb_grad *c)
{
    ebb_type x, y;
    blocks p;
    if (!ebb_grad_shape(b, c, c->x[0], &x) || !ebb_grad_shape(b, c, c->y[0], &y))
        return;
    const char *wrong = read_blocks(&p, b, c, &x, &y);
    if (wrong != NULL) {
        ebb_grad_fail(b, c, wrong);
        return;
    }
    int64_t total = p.taps * p.windows, images = y.dims[0] * y.dims[1];
    int64_t *table = total <= UINT32_MAX ? ebb_alloc((size_t)total * sizeof *table) : NULL;
    if (!ebb_build_got(b, table))
        return;
    for (int64_t i = 0; i < total; i++)
        table[i] = place_of(&p, i / p.windows, i % p.windows);
    const int64_t flat[2] = {images, p.area}, column[2] = {images, 1};
    ebb_value dy = ebb_emit_reshape(b, c->dy[0], flat, 2);
    ebb_value zeros =
        ebb_emit(b, EBB_OP_EXPAND, ebb_const_like(b, c->dy[0], 0.0), ebb_const_ints(b, column, 2));
    ebb_with_int(b, "axis", 1);
    ebb_value padded = ebb_emit(b, EBB_OP_CONCAT, dy, zeros);
    ebb_value taken = ebb_emit_picked(b, padded, 1, table, (uint32_t)total);
    c->dx[0] = ebb_emit_reshape_like(b, taken, c->x[0]);
    ebb_free(table);
}

/* ---- MaxUnpool ---- */

/* y = MaxUnpool(x, indices).  dx = dy at the indices, which count in the shape that the windows
 * give: the first corner of y, where another shape is asked for. Where two elements of x went to
 * one place both get its gradient, as in PyTorch. */
void ebb_grad_max_unpool(ebb_build *b, ebb_grad *c)
{
    ebb_type x, y;
    uint32_t count;
    const int64_t *kernel = ebb_attr_ints(&c->attrs, "kernel_shape", &count), all = -1;
    if (!ebb_grad_shape(b, c, c->x[0], &x) || !ebb_grad_shape(b, c, c->y[0], &y))
        return;
    ebb_value dy = c->dy[0];
    if (y.rank != x.rank || (int)count != x.rank - 2) {
        ebb_grad_fail(b, c, "its windows do not fit its input");
        return;
    }
    for (int d = 0; d < (int)count; d++) {
        int64_t size;
        if (__builtin_mul_overflow(x.dims[d + 2] - 1, entry_of(c, "strides", d, 1), &size) ||
            __builtin_add_overflow(size, kernel[d], &size) ||
            __builtin_sub_overflow(size, entry_of(c, "pads", d, 0), &size) ||
            __builtin_sub_overflow(size, entry_of(c, "pads", (int)count + d, 0), &size) ||
            size < 0 || size > y.dims[d + 2]) {
            ebb_grad_fail(b, c, "its windows do not fit its output");
            return;
        }
        if (size < y.dims[d + 2])
            dy = ebb_emit_part(b, dy, d + 2, 0, size);
    }
    ebb_value flat = ebb_emit_reshape(b, dy, &all, 1);
    ebb_with_int(b, "axis", 0);
    c->dx[0] = ebb_emit(b, EBB_OP_GATHER, flat, c->x[1]);
}
