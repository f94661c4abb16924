/* cudnn_play.h: a stand-in for cuDNN that plays a convolution and what follows it: what its graph
 * says, read from the graph's text, element by element, on the operands of a call.
 *
 *     ebb_work ── roles, places ──> operands ─┐
 *     graph's text ── dims, strides, order of the operations ──> results
 *
 * So it holds what is asked of cuDNN (which operand plays which role, how it lies in memory, what
 * follows what), not cuDNN. float32; numbers of attributes and modes are those of cudnn_graph.h.
 */
#ifndef EBB_TESTS_CUDA_CUDNN_PLAY_H
#define EBB_TESTS_CUDA_CUDNN_PLAY_H

#include "tests/cuda/library/cudnn_reading.h"

enum { PLAY_TENSORS = 64, PLAY_DETAILS = 16, PLAY_LIST = 8, PLAY_BOOLEAN = 11 };
enum { PLAY_ADD = 0, PLAY_RELU = 100, PLAY_GREATER = 302 };

typedef struct play_tensor {
    int64_t dtype, dims[PLAY_LIST], strides[PLAY_LIST];
    float number; /* of one that is given by value */
    float *inner; /* of a virtual one, by its strides */
    const ebb_operand *operand;
} play_tensor;

typedef struct play {
    play_tensor tensor[PLAY_TENSORS];
    int64_t detail[PLAY_DETAILS][8][PLAY_LIST]; /* by attribute: a pointwise's or a window's */
    int tensors, details, kind;                 /* of what is being read; kind 0: no operation */
    int of[4], by;                              /* the operation's tensors and detail */
} play;

static inline float play_read(const play_tensor *t, const int64_t *at)
{
    int64_t offset = 0;
    for (int i = 0; i < 4; i++)
        offset += (t->dims[i] > 1 ? at[i] : 0) * t->strides[i];
    return t->operand != NULL ? (float)value_of(t->operand, (size_t)offset)
           : t->inner != NULL ? t->inner[offset]
                              : t->number;
}

static inline void play_write(const play_tensor *t, const int64_t *at, float value)
{
    int64_t offset = 0;
    for (int i = 0; i < 4; i++)
        offset += at[i] * t->strides[i];
    if (t->dtype == PLAY_BOOLEAN) {
        uint8_t *byte = (uint8_t *)t->operand->data + offset / 8;
        *byte = (uint8_t)((*byte & ~(1 << offset % 8)) | (value != 0) << offset % 8);
    } else if (t->operand != NULL) {
        ((float *)t->operand->data)[offset] = value;
    } else {
        t->inner[offset] = value;
    }
}

static inline float play_point(const play *p, const int64_t *at)
{
    const int64_t mode = p->detail[p->by][0][0];
    const float x = play_read(&p->tensor[p->of[0]], at);
    if (mode == PLAY_RELU)
        return x > 0 ? x : 0;
    const float b = play_read(&p->tensor[p->of[1]], at);
    if (mode != PLAY_ADD && mode != PLAY_GREATER)
        fail_msg("pointwise mode %d is not played", (int)mode);
    return mode == PLAY_ADD ? x + b : (float)(x > b);
}

/* One element of a convolution of two axes: detail 2 dilations, 3 strides, 5 what stands before. */
static inline float play_conv(const play *p, const int64_t *at)
{
    const play_tensor *x = &p->tensor[p->of[0]], *w = &p->tensor[p->of[1]];
    const int64_t filters = w->dims[0] / (x->dims[1] / w->dims[1]); /* of a group */
    const int64_t(*d)[PLAY_LIST] = p->detail[p->by];
    float sum = 0;
    for (int64_t c = 0; c < w->dims[1]; c++)
        for (int64_t i = 0; i < w->dims[2]; i++)
            for (int64_t j = 0; j < w->dims[3]; j++) {
                const int64_t row = at[2] * d[3][0] + i * d[2][0] - d[5][0];
                const int64_t column = at[3] * d[3][1] + j * d[2][1] - d[5][1];
                if (row < 0 || row >= x->dims[2] || column < 0 || column >= x->dims[3])
                    continue;
                sum += play_read(x, D(at[0], at[1] / filters * w->dims[1] + c, row, column)) *
                       play_read(w, D(at[1], c, i, j));
            }
    return sum;
}

static inline void play_operation(play *p)
{
    const play_tensor *y = &p->tensor[p->of[2]];
    int64_t at[4];
    for (at[0] = 0; p->kind != 0 && at[0] < y->dims[0]; at[0]++)
        for (at[1] = 0; at[1] < y->dims[1]; at[1]++)
            for (at[2] = 0; at[2] < y->dims[2]; at[2]++)
                for (at[3] = 0; at[3] < y->dims[3]; at[3]++)
                    play_write(y, at, p->kind == 10 ? play_conv(p, at) : play_point(p, at));
    p->kind = 0;
}

static inline void play_list(int64_t *list, const char *text)
{
    char *end = NULL;
    for (int i = 0; i < PLAY_LIST; i++, text = end) {
        const long long number = strtoll(text, &end, 0);
        if (end == text)
            return;
        list[i] = number;
    }
}

/* "  NAME = ..." of the tensor, window or operation that is being read. */
static inline void play_attribute(play *p, int name, const char *value)
{
    play_tensor *t = &p->tensor[p->tensors];
    int number = 0;
    if (sscanf(value, " tensor %d", &number) == 1)
        p->of[name == 704 || name == 751 ? 0 : name == 703 || name == 752 ? 1 : 2] = number;
    else if (sscanf(value, " detail %d", &number) == 1)
        p->by = number;
    else if (p->kind == 0 && name == 901)
        play_list(&t->dtype, value);
    else if (p->kind == 0 && name == 902)
        play_list(t->dims, value);
    else if (p->kind == 0 && name == 903)
        play_list(t->strides, value);
    else if (p->kind == 0 && name == 907)
        t->inner = calloc(1 << 14, sizeof *t->inner);
    else if (p->kind == 0 && name < 110)
        play_list(p->detail[p->details][name % 100], value);
}

static inline void play_line(play *p, const char *line)
{
    int number, name, skip = 0;
    if (sscanf(line, "  value %a", &p->tensor[p->tensors].number) == 1)
        return;
    if (sscanf(line, "  %d =%n", &name, &skip) == 1 && skip > 0) {
        play_attribute(p, name, line + skip);
        return;
    }
    play_operation(p); /* the one before has all of its attributes */
    if (sscanf(line, "tensor %d", &number) == 1)
        p->tensors = number;
    else if (sscanf(line, "detail %d", &number) == 1)
        p->details = number;
    else if (sscanf(line, "operation %d: kind %d", &number, &p->kind) == 2)
        assert_true(p->kind == 10 || p->kind == 13);
}

/* Plays the convolution of a call as its family's reader asks for it. */
static inline void play_convolution(const testing *t, ebb_work_reader read)
{
    ebb_work work;
    ebb_cudnn_graph *g = NULL;
    char line[512];
    play *p = calloc(1, sizeof *p);
    assert_non_null(p);
    taken(read_with(read, &work, t));
    const ebb_work_part *part = &work.part[0];
    check_status(ebb_cudnn_conv_forward(&g, &part->ask.of.conv, part->ask.with), "graph");
    for (int i = 0; i < part->count; i++) {
        assert_true(part->place[i] != EBB_WORK_OWN);
        p->tensor[part->roles[i]].operand =
            part->place[i] == EBB_WORK_IN ? &t->in[part->index[i]] : &t->out[part->index[i]];
    }
    for (const char *text = ebb_cudnn_graph_text(g); *text != 0;) {
        const int length = (int)strcspn(text, "\n");
        (void)snprintf(line, sizeof line, "%.*s", length, text);
        play_line(p, line);
        text += length + (text[length] != 0);
    }
    play_operation(p);
    ebb_cudnn_graph_free(g);
    for (int i = 0; i < PLAY_TENSORS; i++)
        free(p->tensor[i].inner);
    free(p);
}

#endif
