/* test_stream.c: operators that take an operand tile by tile against the same operators on the
 * whole. The decoder is an Identity, which shows that rows come from where they should.
 */
#include "call.h"

#include "kernels/nested/stream.h"
#include "onnx/graph/tile.h"

#define DIMS(...) ((int64_t[]){__VA_ARGS__})

typedef struct shape {
    int rank;
    int64_t dims[4];
} shape;

typedef struct sample {
    const char *what;
    ebb_op op;
    shape in[5], out[3]; /* rank 0: absent, after the last */
    uint32_t slot;
    int64_t code_rows; /* rows of the code; its other axes have what is left */
    const char *flag;  /* an attribute of value 1, or NULL */
    bool is_conv;
    bool exact; /* nothing adds up over the rows */
} sample;

// clang-format off
static const sample samples[] = {
    {"a product with the streamed operand on the left", EBB_OP_FUSED_MATMUL,
        {{2, {60, 8}}, {2, {8, 5}}}, {{2, {60, 5}}}, 0, 60, NULL, false, true},
    {"a weight gradient, x streamed", EBB_OP_FUSED_MATMUL,
        {{2, {60, 8}}, {2, {60, 5}}}, {{2, {8, 5}}}, 0, 60, "transA", false, false},
    {"a weight gradient, x streamed, a code row for six rows", EBB_OP_FUSED_MATMUL,
        {{2, {60, 8}}, {2, {60, 5}}}, {{2, {8, 5}}}, 0, 10, "transA", false, false},
    {"a weight gradient, x on the right, three code rows a row", EBB_OP_GEMM,
        {{2, {60, 8}}, {2, {60, 6}}}, {{2, {8, 6}}}, 1, 180, "transA", false, false},
    {"matrices of a batch", EBB_OP_FUSED_MATMUL,
        {{3, {7, 4, 8}}, {3, {7, 5, 8}}}, {{3, {7, 4, 5}}}, 1, 7, "transB", false, true},
    {"a convolution's weight gradient", EBB_OP_CONV_WEIGHT_GRAD,
        {{4, {7, 6, 5, 5}}, {4, {7, 4, 5, 5}}}, {{4, {6, 4, 3, 3}}}, 1, 7, NULL, true, false},
    {"layer norm's backward", EBB_OP_LAYER_NORM_GRAD,
        {{3, {7, 3, 16}}, {3, {7, 3, 16}}, {1, {16}}, {3, {7, 3, 1}}, {3, {7, 3, 1}}},
        {{3, {7, 3, 16}}, {1, {16}}, {1, {16}}}, 1, 21, NULL, false, false},
    {"batch norm's backward", EBB_OP_BATCH_NORM_GRAD,
        {{4, {7, 6, 5, 5}}, {4, {7, 6, 5, 5}}, {1, {6}}, {1, {6}}, {1, {6}}},
        {{4, {7, 6, 5, 5}}, {1, {6}}, {1, {6}}}, 1, 7, NULL, false, false},
    {"batch norm's backward from its output", EBB_OP_BATCH_NORM_GRAD_FROM_OUTPUT,
        {{4, {7, 6, 5, 5}}, {4, {7, 6, 5, 5}}, {1, {6}}, {1, {6}}, {1, {6}}},
        {{4, {7, 6, 5, 5}}, {1, {6}}, {1, {6}}}, 1, 7, NULL, false, false},
    {"batch norm's and ELU's backward", EBB_OP_BATCH_NORM_GRAD_FROM_OUTPUT,
        {{4, {7, 6, 5, 5}}, {4, {7, 6, 5, 5}}, {1, {6}}, {1, {6}}, {1, {6}}},
        {{4, {7, 6, 5, 5}}, {1, {6}}, {1, {6}}}, 1, 7, "elu", false, false},
    {"layer norm's backward from its output", EBB_OP_LAYER_NORM_GRAD_FROM_OUTPUT,
        {{3, {7, 3, 16}}, {3, {7, 3, 16}}, {1, {16}}, {1, {16}}, {3, {7, 3, 1}}},
        {{3, {7, 3, 16}}, {1, {16}}, {1, {16}}}, 1, 21, NULL, false, false},
    {"RMS norm's backward from its output", EBB_OP_RMS_NORM_GRAD_FROM_OUTPUT,
        {{3, {7, 3, 16}}, {3, {7, 3, 16}}, {1, {16}}, {3, {7, 3, 1}}},
        {{3, {7, 3, 16}}, {1, {16}}}, 1, 21, NULL, false, false},
    {"group norm's backward", EBB_OP_GROUP_NORM_GRAD,
        {{3, {7, 6, 8}}, {3, {7, 6, 8}}, {1, {6}}, {2, {7, 3}}, {2, {7, 3}}},
        {{3, {7, 6, 8}}, {1, {6}}, {1, {6}}}, 1, 7, NULL, false, false},
    {"group norm's backward from its output", EBB_OP_GROUP_NORM_GRAD_FROM_OUTPUT,
        {{3, {7, 6, 8}}, {3, {7, 6, 8}}, {1, {6}}, {1, {6}}, {2, {7, 3}}},
        {{3, {7, 6, 8}}, {1, {6}}, {1, {6}}}, 1, 7, NULL, false, false},
    {"an activation's backward", EBB_OP_GELU_GRAD,
        {{2, {60, 8}}, {2, {60, 8}}}, {{2, {60, 8}}}, 1, 20, NULL, false, true},
    {"a product of elements with a row", EBB_OP_MUL,
        {{2, {60, 8}}, {2, {1, 8}}}, {{2, {60, 8}}}, 0, 60, NULL, false, true},
    {"bits applied, of which each row has three bytes", EBB_OP_MASK_GRAD,
        {{2, {60, 24}}, {1, {180}}}, {{2, {60, 24}}}, 0, 20, NULL, false, true},
    {"bits applied, three rows to three bytes", EBB_OP_MASK_GRAD,
        {{2, {60, 8}}, {1, {60}}}, {{2, {60, 8}}}, 0, 20, NULL, false, true},
    {"an activation's backward from its output and bits", EBB_OP_GELU_GRAD_FROM_OUTPUT,
        {{2, {60, 8}}, {2, {60, 8}}, {1, {60}}}, {{2, {60, 8}}}, 1, 20, NULL, false, true},
    {"softmax's backward", EBB_OP_SOFTMAX_GRAD,
        {{3, {7, 4, 8}}, {3, {7, 4, 8}}}, {{3, {7, 4, 8}}}, 1, 7, NULL, false, true},
};
// clang-format on

enum { SAMPLES = sizeof samples / sizeof samples[0] };

static bool is_mask(const sample *s, int i)
{
    return (s->op == EBB_OP_MASK_GRAD && i == 1) ||
           (s->op == EBB_OP_GELU_GRAD_FROM_OUTPUT && i == 2);
}

static void make(testing *t, const sample *s)
{
    begin(t, s->op);
    if (s->flag != NULL && strcmp(s->flag, "elu") == 0)
        put_float(t, s->flag, 1);
    else if (s->flag != NULL)
        put_int(t, s->flag, 1);
    if (s->is_conv) {
        put_ints(t, "kernel_shape", 2, DIMS(3, 3));
        put_ints(t, "pads", 4, DIMS(1, 1, 1, 1));
        put_ints(t, "strides", 2, DIMS(1, 1));
        put_ints(t, "dilations", 2, DIMS(1, 1));
        put_int(t, "group", 1);
    }
    for (int i = 0; i < 5 && s->in[i].rank > 0; i++)
        put_in(t, is_mask(s, i) ? EBB_U8 : EBB_F32, s->in[i].rank, s->in[i].dims);
    for (int i = 0; i < 3 && s->out[i].rank > 0; i++)
        put_out(t, EBB_F32, s->out[i].rank, s->out[i].dims);
}

/* The queue of the GPU's kernels, which are compiled for the host here: see kernels/cuda/host. */
static void *queue_of(const ebb_backend *backend)
{
    static void *opened;
    if (strcmp(backend->name, "cuda") != 0)
        return NULL;
    if (opened == NULL)
        check_status(backend->device->open(&opened), "opening a queue");
    return opened;
}

static void compute(testing *t, const char *backend, const char *what)
{
    const ebb_backend *const *backends;
    check_status(ebb_backends(backend, &backends), what);
    check_status(ebb_pick(&t->call, backends), what);
    t->call.queue = queue_of(backends[0]);
    compute_picked(t, what);
}

/* From now on x comes from a code of so many rows, by tiles. */
static void stream_input(testing *code, ebb_operand *x, int64_t rows, int64_t tile_rows)
{
    begin(code, EBB_OP_IDENTITY);
    make_operand(&code->in[code->call.input_count++], (ebb_dtype)x->type.dtype, 2,
                 DIMS(rows, (int64_t)count_of(x) / rows));
    code->call.output_count = 1;
    code->out[0] = *x;
    x->source = &code->call;
    x->tile_rows = tile_rows;
}

static void compare(const sample *s, const char *backend, int64_t tile_rows)
{
    TESTING(whole);
    TESTING(tiled);
    TESTING(code);
    /* The library's product of a few rows may add up in another order than that of many. */
    const bool ordered = s->op != EBB_OP_FUSED_MATMUL || strcmp(backend, "cpu") != 0;
    make(&whole, s);
    make(&tiled, s);
    compute(&whole, backend, s->what);

    ebb_operand *x = &tiled.in[s->slot];
    stream_input(&code, x, s->code_rows, tile_rows);
    memcpy(code.in[0].data, x->data, x->bytes);
    memset(x->data, 0xFF, x->bytes); // nobody may read the whole
    compute(&tiled, backend, s->what);
    for (uint32_t k = 0; k < whole.call.output_count; k++)
        for (size_t i = 0; i < count_of(&whole.out[k]); i++) {
            double a = value_of(&whole.out[k], i), b = value_of(&tiled.out[k], i);
            if (s->exact && ordered ? a != b : !(fabs(a - b) <= 2e-5 * (1 + fabs(a))))
                fail_msg("%s (%s, tiles of %d rows): output %u[%zu] is %g, whole it is %g", s->what,
                         backend, (int)tile_rows, (unsigned)k, i, b, a);
        }
    code.call.output_count = 0;
}

TEST(tiles_give_what_the_whole_gives)
{
    static const int64_t rows[] = {1, 2, 3, 12, 59, 1000};
    for (size_t i = 0; i < SAMPLES; i++)
        for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
            compare(&samples[i], "plain", rows[k]);
            compare(&samples[i], "cpu", rows[k]);
            compare(&samples[i], "cuda", rows[k]);
        }
}

static void check_refused(const sample *s, ebb_dtype rows, ebb_dtype sums, int64_t tile_rows,
                          const char *why)
{
    TESTING(t);
    TESTING(code);
    const ebb_backend *const *backends;
    make(&t, s);
    t.in[s->slot].type.dtype = (uint8_t)rows;
    for (uint32_t o = 0; o < t.call.output_count; o++)
        t.out[o].type.dtype = (uint8_t)(o == 0 && t.call.output_count > 1 ? rows : sums);
    stream_input(&code, &t.in[s->slot], s->code_rows, tile_rows);
    check_status(ebb_backends("cuda", &backends), s->what);
    ebb_status status = ebb_pick(&t.call, backends);
    if (why == NULL) {
        check_status(status, s->what);
    } else if (status == NULL || strstr(ebb_status_text(status), why) == NULL) {
        fail_msg("%s: expected \"%s\", got %s", s->what, why,
                 status == NULL ? "a kernel" : ebb_status_text(status));
    }
    code.call.output_count = 0;
}

/* Else the run would fail at the second tile, or read one dtype as another. */
TEST(what_a_device_cannot_sum_is_refused_before_the_run)
{
    for (size_t i = 0; i < SAMPLES; i++) {
        const sample *s = &samples[i];
        const bool norm = s->op == EBB_OP_BATCH_NORM_GRAD;
        if (s->op != EBB_OP_FUSED_MATMUL && s->op != EBB_OP_CONV_WEIGHT_GRAD && !norm)
            continue;
        if (!s->exact && !norm) {
            check_refused(s, EBB_F32, EBB_BF16, 3, "sums of tiles are float32");
            check_refused(s, EBB_F32, EBB_F16, 1, "sums of tiles are float32");
            check_refused(s, EBB_F32, EBB_F32, 3, NULL);
        }
        if (norm) {
            check_refused(s, EBB_F32, EBB_BF16, 3, "sums of tiles are float32");
            check_refused(s, EBB_BF16, EBB_F32, 3, "rows are of one dtype");
        }
    }
}

/* Rows that depend on each other, or that the operand does not have. */
TEST(what_needs_all_rows_says_so)
{
    const ebb_type square = ebb_type_tensor(EBB_F32, 2, DIMS(8, 8)),
                   row = ebb_type_tensor(EBB_F32, 1, DIMS(8));
    const ebb_type *two[] = {&square, &square}, *one[] = {&square};
    const ebb_type *rows[] = {&row, &square};
    const ebb_attr along_rows = {.name = "axis", .type = EBB_ATTR_INT, .i = 0};
    const ebb_attrs none = {0}, axis_0 = {.list = &along_rows, .count = 1};
    ebb_tiling t;
    assert_non_null(ebb_tiling_find(&t, EBB_OP_SOFTMAX_GRAD, &axis_0, two, 2, one, 1, 1));
    assert_null(ebb_tiling_find(&t, EBB_OP_SOFTMAX_GRAD, &none, two, 2, one, 1, 1));
    assert_non_null(ebb_tiling_find(&t, EBB_OP_MATMUL, &none, two, 2, one, 1, 1));
    assert_null(ebb_tiling_find(&t, EBB_OP_MATMUL, &none, two, 2, one, 1, 0));
    assert_non_null(ebb_tiling_find(&t, EBB_OP_CUM_SUM, &none, two, 2, one, 1, 0));
    assert_non_null(
        ebb_tiling_find(&t, EBB_OP_ADD, &none, rows, 2, one, 1, 0)); // broadcast: no rows
    assert_non_null(ebb_tiling_find(&t, EBB_OP_ADD, &none, two, 2, one, 1, 2)); // no such input
}

int main(void)
{
    (void)setenv("EBB_CUDA_PLUGIN", EBB_BINARY_DIR "/kernels/cuda/libebb_cuda_host_plugin.so", 0);
    return run_listed();
}
