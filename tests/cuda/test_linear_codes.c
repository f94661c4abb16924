/* test_linear_codes.c: quantisation with a scale on the GPU's kernels, and products of what was
 * quantised, against the plain kernels: the same codes, bit for bit. */
#include "tests/cuda/bits.h"
#include "tests/cuda/numbers.h"

static const ebb_dtype codes[] = {
    EBB_I8, EBB_U8,       EBB_I16,        EBB_U16,    EBB_I4,         EBB_U4,    EBB_I2,
    EBB_U2, EBB_F8E4M3FN, EBB_F8E4M3FNUZ, EBB_F8E5M2, EBB_F8E5M2FNUZ, EBB_F4E2M1};
enum { CODES = sizeof codes / sizeof codes[0] };

typedef struct grid {
    int rank, scale_rank, axis;
    int64_t x[3], scale[3], block;
} grid;

static const grid grids[] = {
    {3, 0, 1, {3, 5, 7}, {0}, 0},        {3, 1, 1, {3, 5, 7}, {5}, 0},
    {3, 1, -1, {3, 5, 7}, {7}, 0},       {2, 2, 0, {9, 70}, {3, 70}, 3},
    {3, 3, 1, {2, 10, 3}, {2, 3, 3}, 4}, {3, 3, -1, {2, 3, 10}, {2, 3, 5}, 0},
    {1, 0, 0, {1031}, {0}, 0},           {2, 1, 1, {0, 3}, {3}, 0},
};
enum { GRIDS = sizeof grids / sizeof grids[0] };

static bool is_small(ebb_dtype dtype)
{
    return ebb_dtype_is_small_float(dtype);
}

/* Some of them small, some so that codes pass their range. */
static void put_scales(testing *t, const grid *g, ebb_dtype dtype)
{
    ebb_operand *scale = put_numbers(t, dtype, g->scale_rank, g->scale, 0, 0);
    for (size_t i = 0; i < count_of(scale); i++)
        put_real(scale, i, 0.01 + 0.1 * (draw(t) + 1));
}

static void put_linear(testing *t, const grid *g, ebb_dtype real, ebb_dtype code, bool encodes,
                       bool zero)
{
    begin(t, encodes ? EBB_OP_QUANTIZE_LINEAR : EBB_OP_DEQUANTIZE_LINEAR);
    put_int(t, "axis", g->axis);
    put_int(t, "block_size", g->block);
    if (encodes)
        put_numbers(t, real, g->rank, g->x, -9, 9);
    else
        put_raw(t, code, g->rank, g->x);
    put_scales(t, g, real);
    if (zero) {
        put_raw(t, code, g->scale_rank, g->scale);
        if (is_small(code)) // whose zero points are 0
            memset(t->in[2].data, 0, t->in[2].bytes);
    }
    put_out(t, encodes ? code : real, g->rank, g->x);
}

/* Bytes whose last elements are not there are 0 in both. */
TEST(codes_are_those_of_plain)
{
    for (size_t g = 0; g < GRIDS; g++)
        for (size_t k = 0; k < CODES; k++)
            for (int way = 0; way < 8; way++) {
                TESTING(t);
                put_linear(&t, &grids[g], way % 2 ? EBB_F64 : EBB_F32, codes[k], true,
                           way / 2 % 2 != 0);
                put_int(&t, "saturate", way / 4);
                same_bits(&t, "cuda.quantize_linear", "plain.quantize_linear");
            }
}

TEST(numbers_are_those_of_plain)
{
    for (size_t g = 0; g < GRIDS; g++)
        for (size_t k = 0; k < CODES; k++)
            for (int way = 0; way < 4; way++) {
                TESTING(t);
                put_linear(&t, &grids[g], way % 2 ? EBB_F64 : EBB_F32, codes[k], false, way / 2);
                same_as(&t, "cuda.dequantize_linear", "plain.dequantize_linear");
            }
}

TEST(halves_are_encoded_as_the_same_float32)
{
    static const ebb_dtype halves[] = {EBB_F16, EBB_BF16};
    for (size_t k = 0; k < CODES; k++)
        for (int h = 0; h < 2; h++) {
            TESTING(t);
            put_linear(&t, &grids[2], halves[h], codes[k], true, false);
            if (ebb_dtype_bits(codes[k]) >= 8)
                same_as_float32(&t, "cuda.quantize_linear");
            end(&t);
            put_linear(&t, &grids[2], halves[h], codes[k], false, false);
            same_as_float32(&t, "cuda.dequantize_linear");
        }
}

TEST(scales_that_do_not_fit_are_declined)
{
    TESTING(t);
    put_linear(&t, &grids[1], EBB_F32, EBB_I8, true, true);
    assert_null(declined_by(&t, "cuda.quantize_linear"));
    t.in[2].type.dims[0]--;
    assert_non_null(declined_by(&t, "cuda.quantize_linear"));
    t.in[1].type.dims[0]--;
    assert_non_null(declined_by(&t, "cuda.quantize_linear"));
}

TEST(the_range_becomes_the_scale)
{
    // the last: a thread of 2,048 blocks has four elements, as a loop by fours takes them, or three
    static const int64_t sizes[] = {0, 1, 31, 3000, 70001, 3 * 2048 * 256 + 1};
    for (size_t i = 0; i < 6; i++) // both signs; one; zeros; NaN or infinities among them
        for (int way = 0; way < (i < 5 ? 5 : 1); way++) {
            TESTING(t);
            begin(&t, EBB_OP_DYNAMIC_QUANTIZE_LINEAR);
            float *x = put_in(&t, EBB_F32, 1, &sizes[i])->data;
            for (int64_t k = 0; k < sizes[i]; k++)
                x[k] = way == 1 ? x[k] - 3 : way == 2 ? 0 : way == 3 && k % 7 == 2 ? NAN : x[k] * 5;
            for (int64_t k = 3; way == 4 && k < sizes[i]; k += 8)
                x[k] = k % 16 == 3 ? INFINITY : -INFINITY;
            put_out(&t, EBB_U8, 1, &sizes[i]);
            put_out(&t, EBB_F32, 0, NULL);
            put_out(&t, EBB_U8, 0, NULL);
            same_bits(&t, "cuda.dynamic_quantize", "plain.dynamic_quantize");
        }
}

/* ---- products ---- */

static void put_code_list(testing *t, ebb_dtype dtype, int64_t count)
{
    if (count == 0)
        put_absent(t);
    else
        put_raw(t, dtype, count == 1 ? 0 : 1, &count);
}

static void put_scale_list(testing *t, int64_t count)
{
    ebb_operand *o = put_in(t, EBB_F32, count == 1 ? 0 : 1, &count);
    for (size_t i = 0; i < count_of(o); i++)
        set_value(o, i, 0.02 + 0.01 * value_of(o, i));
}

typedef struct matrices {
    int a_rank, b_rank, y_rank;
    int64_t a[4], b[4], y[4];
} matrices;

static const matrices products[] = {
    {2, 2, 2, {5, 7}, {7, 3}, {5, 3}},
    {2, 2, 2, {33, 100}, {100, 17}, {33, 17}},
    {3, 2, 3, {3, 4, 21}, {21, 6}, {3, 4, 6}},
    {4, 3, 4, {2, 1, 3, 5}, {4, 5, 6}, {2, 4, 3, 6}},
    {1, 2, 1, {9}, {9, 4}, {4}},
    {2, 1, 1, {5, 9}, {9}, {5}},
    {2, 2, 2, {3, 0}, {0, 4}, {3, 4}},
    {2, 2, 2, {0, 3}, {3, 4}, {0, 4}},
    {3, 3, 3, {2, 70, 37}, {2, 37, 133}, {2, 70, 133}},
};

TEST(matrices_of_codes_are_multiplied)
{
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++)
        for (int way = 0; way < 12; way++) { // signs; zero points: none, one, one each
            const matrices *m = &products[i];
            const ebb_dtype a = way % 2 ? EBB_I8 : EBB_U8, b = way / 2 % 2 ? EBB_I8 : EBB_U8;
            const int64_t rows = m->a_rank > 1 ? m->a[m->a_rank - 2] : 1;
            const int64_t columns = m->b_rank > 1 ? m->b[m->b_rank - 1] : 1;
            const int many = way / 4;
            TESTING(t);
            if (many == 2 && rows == 0)
                continue;
            begin(&t, EBB_OP_MATMUL_INTEGER);
            put_raw(&t, a, m->a_rank, m->a);
            put_raw(&t, b, m->b_rank, m->b);
            put_code_list(&t, a, many == 2 ? rows : many);
            put_code_list(&t, b, many == 2 ? columns : many);
            put_out(&t, EBB_I32, m->y_rank, m->y);
            same_bits(&t, "cuda.matmul_integer", "plain.matmul_integer");
            end(&t);
            begin(&t, EBB_OP_QLINEAR_MATMUL);
            put_raw(&t, a, m->a_rank, m->a);
            put_scale_list(&t, many == 2 ? rows : 1);
            put_code_list(&t, a, many == 2 ? rows : 1);
            put_raw(&t, b, m->b_rank, m->b);
            put_scale_list(&t, many == 2 ? columns : 1);
            put_code_list(&t, b, many == 2 ? columns : 1);
            put_scale_list(&t, 1);
            put_code_list(&t, a, 1);
            put_out(&t, a, m->y_rank, m->y);
            same_bits(&t, "cuda.qlinear_matmul", "plain.qlinear_matmul");
        }
}

/* Sums beyond 32 bits wrap around, as those of plain do. */
TEST(deep_sums_are_those_of_plain)
{
    TESTING(t);
    begin(&t, EBB_OP_MATMUL_INTEGER);
    memset(put_raw(&t, EBB_U8, 2, D(1, 70001))->data, 255, 70001);
    memset(put_raw(&t, EBB_U8, 2, D(70001, 2))->data, 255, 140002);
    put_out(&t, EBB_I32, 2, D(1, 2));
    same_bits(&t, "cuda.matmul_integer", "plain.matmul_integer");
}

typedef struct layer {
    int spatial;
    int64_t n, channels, size[3], out, group, kernel[3], stride[3], dilation[3], pads[6];
} layer;

static const layer layers[] = {
    {2, 2, 3, {7, 9}, 4, 1, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}},
    {2, 1, 4, {8, 8}, 6, 2, {3, 2}, {2, 1}, {1, 2}, {0, 1, 2, 0}},
    {1, 3, 5, {40}, 5, 5, {4}, {3}, {2}, {3, 3}},
    {3, 1, 2, {5, 4, 6}, 3, 1, {2, 2, 3}, {1, 2, 1}, {1, 1, 1}, {0, 1, 0, 0, 0, 1}},
    {2, 3, 5, {6, 7}, 67, 1, {3, 3}, {1, 2}, {2, 1}, {2, 1, 1, 1}}, // from here on in tiles
    {1, 2, 6, {50}, 26, 2, {5}, {2}, {1}, {2, 0}},
    {3, 1, 3, {3, 4, 5}, 9, 1, {2, 1, 3}, {1, 1, 2}, {1, 2, 1}, {1, 0, 1, 0, 0, 2}},
};

static void put_layer(testing *t, const layer *l, int64_t x[5], int64_t w[5], int64_t y[5])
{
    put_ints(t, "kernel_shape", (uint32_t)l->spatial, l->kernel);
    put_ints(t, "strides", (uint32_t)l->spatial, l->stride);
    put_ints(t, "dilations", (uint32_t)l->spatial, l->dilation);
    put_ints(t, "pads", 2 * (uint32_t)l->spatial, l->pads);
    put_int(t, "group", l->group);
    x[0] = y[0] = l->n;
    x[1] = l->channels;
    y[1] = w[0] = l->out;
    w[1] = l->channels / l->group;
    for (int i = 0; i < l->spatial; i++) {
        int64_t room = l->size[i] + l->pads[i] + l->pads[l->spatial + i] -
                       (l->kernel[i] - 1) * l->dilation[i] - 1;
        x[2 + i] = l->size[i];
        w[2 + i] = l->kernel[i];
        y[2 + i] = room / l->stride[i] + 1;
    }
}

TEST(images_of_codes_are_convolved)
{
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++)
        for (int way = 0; way < 8; way++) { // signs; one zero point for the weight, or one each
            const ebb_dtype a = way % 2 ? EBB_I8 : EBB_U8, b = way / 2 % 2 ? EBB_I8 : EBB_U8;
            const int rank = 2 + layers[i].spatial;
            const int64_t each = way / 4 ? layers[i].out : 1;
            int64_t x[5], w[5], y[5];
            TESTING(t);
            begin(&t, EBB_OP_CONV_INTEGER);
            put_layer(&t, &layers[i], x, w, y);
            put_raw(&t, a, rank, x);
            put_raw(&t, b, rank, w);
            put_code_list(&t, a, way / 4);
            put_code_list(&t, b, each);
            put_out(&t, EBB_I32, rank, y);
            same_bits(&t, "cuda.conv_integer", "plain.conv_integer");
            end(&t);
            begin(&t, EBB_OP_QLINEAR_CONV);
            put_layer(&t, &layers[i], x, w, y);
            put_raw(&t, a, rank, x);
            put_scale_list(&t, 1);
            put_code_list(&t, a, 1);
            put_raw(&t, b, rank, w);
            put_scale_list(&t, each);
            put_code_list(&t, b, each);
            put_scale_list(&t, 1);
            put_code_list(&t, b, 1);
            if (way / 4) {
                int32_t *bias = put_raw(&t, EBB_I32, 1, &layers[i].out)->data;
                for (int64_t k = 0; k < layers[i].out; k++)
                    bias[k] /= 1 << 14;
            }
            put_out(&t, b, rank, y);
            same_bits(&t, "cuda.qlinear_conv", "plain.qlinear_conv");
        }
}

const fixture around_all = {with_cuda, NULL};
