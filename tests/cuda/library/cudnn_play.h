/* cudnn_play.h: a stand-in for cuDNN that plays a convolution and what follows it: what its graph
 * says, as the library is told it, element by element, on the operands of a call.
 *
 *     ebb_work ── roles, places ──> operands ─┐
 *     attributes that are set ── dims, strides, order of the operations ──> results
 *
 * So it holds what is asked of cuDNN (which operand plays which role, how it lies in memory, what
 * follows what), not cuDNN. float32.
 */
#pragma once

#include "kernels/cuda/library/cudnn/internal.h"
#undef __global__ /* which the kernels for the host name themselves */
#undef __device__
#undef __host__
#undef __shared__
#include "tests/cuda/library/cudnn_reading.h"

enum { PLAY_MADE = 64, PLAY_LIST = 8, PLAY_SLOTS = 16 };

typedef struct play_made { /* a descriptor */
    cudnnBackendDescriptor_t self;
    cudnnBackendDescriptorType_t kind;
    int64_t set[PLAY_SLOTS][PLAY_LIST]; /* by attribute, whose numbers begin at multiples of 50 */
    float number;                       /* of a tensor that is given by value */
    float *inner;                       /* of a virtual one, by its strides */
    const ebb_operand *operand;
} play_made;

static play_made play_all[PLAY_MADE];
static int play_count;
static ebb_cudnn_library play_library; /* as it was opened */

static inline play_made *play_find(cudnnBackendDescriptor_t self)
{
    for (int i = 0; i < play_count; i++)
        if (play_all[i].self == self)
            return &play_all[i];
    fail_msg("a descriptor that was not made");
    return NULL;
}

static inline const int64_t *play_get(const play_made *m, cudnnBackendAttributeName_t name)
{
    return m->set[name % 50];
}

static inline play_made *play_referred(const play_made *m, cudnnBackendAttributeName_t name)
{
    return play_find((cudnnBackendDescriptor_t)(intptr_t)play_get(m, name)[0]);
}

static cudnnStatus_t play_make(cudnnBackendDescriptorType_t kind, cudnnBackendDescriptor_t *made)
{
    const cudnnStatus_t code = play_library.make(kind, made);
    assert_true(play_count < PLAY_MADE);
    play_all[play_count++] = (play_made){.self = *made, .kind = kind};
    return code;
}

static cudnnStatus_t play_set(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                              cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    int64_t *list = play_find(of)->set[name % 50];
    const bool wide = type == CUDNN_TYPE_INT64 || type == CUDNN_TYPE_BACKEND_DESCRIPTOR;
    for (int64_t i = 0; i < count && i < PLAY_LIST; i++)
        if (wide)
            list[i] = ((const int64_t *)values)[i];
        else
            list[i] = type == CUDNN_TYPE_BOOLEAN ? *(const bool *)values : *(const int *)values;
    return play_library.set(of, name, type, count, values);
}

static inline int64_t play_offset(const play_made *t, const int64_t *at)
{
    const int64_t *dims = play_get(t, CUDNN_ATTR_TENSOR_DIMENSIONS);
    const int64_t *strides = play_get(t, CUDNN_ATTR_TENSOR_STRIDES);
    int64_t offset = 0;
    for (int i = 0; i < 4; i++)
        offset += (dims[i] > 1 ? at[i] : 0) * strides[i];
    return offset;
}

static inline float play_read(const play_made *t, const int64_t *at)
{
    const int64_t offset = play_offset(t, at);
    return t->operand != NULL ? (float)value_of(t->operand, (size_t)offset)
           : t->inner != NULL ? t->inner[offset]
                              : t->number;
}

static inline void play_write(const play_made *t, const int64_t *at, float value)
{
    const int64_t offset = play_offset(t, at);
    if (play_get(t, CUDNN_ATTR_TENSOR_DATA_TYPE)[0] == CUDNN_DATA_BOOLEAN) {
        uint8_t *byte = (uint8_t *)t->operand->data + offset / 8;
        *byte = (uint8_t)((*byte & ~(1 << offset % 8)) | (value != 0) << offset % 8);
    } else if (t->operand != NULL) {
        ((float *)t->operand->data)[offset] = value;
    } else {
        t->inner[offset] = value;
    }
}

static inline float play_point(const play_made *op, const int64_t *at)
{
    const play_made *how = play_referred(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const int64_t mode = play_get(how, CUDNN_ATTR_POINTWISE_MODE)[0];
    const float x = play_read(play_referred(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC), at);
    if (mode == CUDNN_POINTWISE_RELU_FWD)
        return x > 0 ? x : 0;
    const float b = play_read(play_referred(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC), at);
    if (mode != CUDNN_POINTWISE_ADD && mode != CUDNN_POINTWISE_CMP_GT)
        fail_msg("pointwise mode %d is not played", (int)mode);
    return mode == CUDNN_POINTWISE_ADD ? x + b : (float)(x > b);
}

/* One element of a convolution of two axes. */
static inline float play_conv(const play_made *op, const int64_t *at)
{
    const play_made *x = play_referred(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X);
    const play_made *w = play_referred(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W);
    const play_made *slide = play_referred(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC);
    const int64_t *wide = play_get(x, CUDNN_ATTR_TENSOR_DIMENSIONS);
    const int64_t *filter = play_get(w, CUDNN_ATTR_TENSOR_DIMENSIONS);
    const int64_t *stride = play_get(slide, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
    const int64_t *dilation = play_get(slide, CUDNN_ATTR_CONVOLUTION_DILATIONS);
    const int64_t *before = play_get(slide, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
    const int64_t filters = filter[0] / (wide[1] / filter[1]); /* of a group */
    float sum = 0;
    for (int64_t c = 0; c < filter[1]; c++)
        for (int64_t i = 0; i < filter[2]; i++)
            for (int64_t j = 0; j < filter[3]; j++) {
                const int64_t row = at[2] * stride[0] + i * dilation[0] - before[0];
                const int64_t column = at[3] * stride[1] + j * dilation[1] - before[1];
                if (row < 0 || row >= wide[2] || column < 0 || column >= wide[3])
                    continue;
                sum += play_read(x, D(at[0], at[1] / filters * filter[1] + c, row, column)) *
                       play_read(w, D(at[1], c, i, j));
            }
    return sum;
}

static inline void play_operation(const play_made *op, cudnnBackendAttributeName_t result,
                                  float (*element)(const play_made *, const int64_t *))
{
    const play_made *y = play_referred(op, result);
    const int64_t *dims = play_get(y, CUDNN_ATTR_TENSOR_DIMENSIONS);
    int64_t at[4];
    for (at[0] = 0; at[0] < dims[0]; at[0]++)
        for (at[1] = 0; at[1] < dims[1]; at[1]++)
            for (at[2] = 0; at[2] < dims[2]; at[2]++)
                for (at[3] = 0; at[3] < dims[3]; at[3]++)
                    play_write(y, at, element(op, at));
}

/* Where a tensor's numbers are. */
static inline void play_place(play_made *m, const ebb_cudnn_graph *g, const ebb_work_part *part,
                              const testing *t)
{
    const int64_t uid = play_get(m, CUDNN_ATTR_TENSOR_UNIQUE_ID)[0];
    if (play_get(m, CUDNN_ATTR_TENSOR_IS_VIRTUAL)[0] != 0)
        m->inner = calloc(1 << 14, sizeof *m->inner);
    for (int i = 0; i < g->numbers; i++)
        if (g->number_of[i] == uid)
            m->number = g->number[i];
    for (int i = 0; i < part->count; i++) {
        assert_true(part->place[i] != EBB_WORK_OWN);
        if (part->roles[i] == uid)
            m->operand =
                part->place[i] == EBB_WORK_IN ? &t->in[part->index[i]] : &t->out[part->index[i]];
    }
}

/* Plays the convolution of a call as its family's reader asks for it. */
static inline void play_convolution(const testing *t, ebb_work_reader read)
{
    ebb_work work;
    ebb_cudnn_graph *g = NULL;
    taken(read_with(read, &work, t));
    const ebb_work_part *part = &work.part[0];
    play_library = ebb_cudnn;
    play_count = 0;
    ebb_cudnn.make = play_make;
    ebb_cudnn.set = play_set;
    ebb_status status = ebb_cudnn_conv_forward(&g, &part->ask.of.conv, part->ask.with);
    ebb_cudnn = play_library;
    check_status(status, "graph");
    for (play_made *m = play_all; m < play_all + play_count; m++)
        if (m->kind == CUDNN_BACKEND_TENSOR_DESCRIPTOR)
            play_place(m, g, part, t);
    for (const play_made *m = play_all; m < play_all + play_count; m++)
        if (m->kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)
            play_operation(m, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, play_conv);
        else if (m->kind == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
            play_operation(m, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, play_point);
    ebb_cudnn_graph_free(g);
    for (int i = 0; i < play_count; i++)
        free(play_all[i].inner);
}
