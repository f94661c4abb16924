/* test_signal.c: DFT, STFT, MelWeightMatrix, Det and DetGrad against the plain kernels: real and
 * complex, one side and both, cut and lengthened, every axis; matrices of any rank. */
#include "tests/cuda/bits.h"
#include "tests/cuda/halves.h"

typedef struct constants {
    ebb_tensor first, second;
} constants;

static void put_constant(testing *t, ebb_tensor *to, int64_t value)
{
    ebb_operand *o = put_in(t, EBB_I64, 0, NULL);
    set_value(o, 0, (double)value);
    *to = (ebb_tensor){.type = o->type, .data = o->data, .bytes = o->bytes};
    o->constant = to;
}

/* length 0: as it is. */
static void put_dft(testing *t, constants *k, ebb_dtype dtype, int64_t axis, int64_t length,
                    int parts, bool inverse, bool half)
{
    int64_t x[4] = {3, 7, 4, parts}, y[4] = {3, 7, 4, 2};
    begin(t, EBB_OP_DFT);
    put_int(t, "inverse", inverse);
    put_int(t, "onesided", half);
    int64_t n = length > 0 ? length : half && inverse ? 2 * (x[axis] - 1) : x[axis];
    y[axis] = half && !inverse ? n / 2 + 1 : n;
    y[3] = half && inverse ? 1 : 2;
    put_in(t, dtype, 4, x);
    if (length > 0)
        put_constant(t, &k->first, length);
    else
        put_absent(t);
    put_constant(t, &k->second, axis - 4);
    put_out(t, dtype, 4, y);
}

TEST(transforms_are_those_of_the_plain_kernel)
{
    static const int64_t lengths[] = {0, 5, 12};
    for (int64_t axis = 0; axis < 3; axis++)
        for (int i = 0; i < 3; i++)
            for (int way = 0; way < 8; way++) {
                const int parts = way & 4 ? 2 : 1;
                const bool inverse = way & 1, half = way & 2;
                TESTING(t);
                constants k;
                put_dft(&t, &k, EBB_F32, axis, lengths[i], parts, inverse, half);
                agrees(&t, "cuda.dft", "plain.dft");
                if (i == 0)
                    agrees_in_halves(&t, "cuda.dft");
            }
}

TEST(frames_are_those_of_the_plain_kernel)
{
    for (int way = 0; way < 16; way++) {
        const int parts = way & 1 ? 2 : 1;
        const bool half = way & 2, window = way & 4;
        const ebb_dtype dtype = way & 8 ? EBB_F64 : EBB_F32;
        const int64_t step = 3, n = 6;
        TESTING(t);
        constants k;
        begin(&t, EBB_OP_STFT);
        put_int(&t, "onesided", half);
        put_in(&t, dtype, 3, D(2, 20, parts));
        put_constant(&t, &k.first, step);
        if (window)
            put_in(&t, dtype, 1, D(n));
        else
            put_absent(&t);
        put_constant(&t, &k.second, n);
        put_out(&t, dtype, 4, D(2, 1 + (20 - n) / step, half ? n / 2 + 1 : n, 2));
        agrees(&t, "cuda.stft", "plain.stft");
        t.out[0].type.dims[1]--;
        assert_non_null(kernel_named("cuda.stft")->run(&t.call));
        t.out[0].type.dims[1]++;
        t.in[1].constant = NULL;
        assert_non_null(declined_by(&t, "cuda.stft"));
    }
}

TEST(determinants_are_those_of_the_plain_kernel)
{
    static const int64_t sizes[][3] = {{1, 1, 1},  {2, 3, 3}, {5, 1, 4},
                                       {1, 70, 2}, {2, 2, 0}, {1, 2, 9}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int rank = 0; rank < 4; rank++) { // lost: so many rows are sums of others
            const int64_t b = sizes[i][0], m = sizes[i][1], n = sizes[i][2];
            TESTING(t);
            begin(&t, EBB_OP_DET);
            ebb_operand *x = put_in(&t, EBB_F32, 4, D(b, m, n, n));
            for (int64_t e = 0; e < b * m * n * n; e++)
                if (e / n % n < rank && n > 0)
                    set_value(x, (size_t)e, e / n % n == 0 ? 0 : (double)(e % n));
            put_out(&t, EBB_F32, 2, D(b, m));
            agrees(&t, "cuda.det", "plain.det");
            agrees_in_halves(&t, "cuda.det");
            end(&t);
            begin(&t, EBB_OP_DET_GRAD);
            put_in(&t, EBB_F32, 2, D(b, m));
            x = put_in(&t, EBB_F32, 4, D(b, m, n, n));
            for (int64_t e = 0; e < b * m * n * n; e++)
                if (e / n % n < rank && n > 0)
                    set_value(x, (size_t)e, e / n % n == 0 ? 0 : (double)(e % n));
            put_out(&t, EBB_F32, 4, D(b, m, n, n));
            agrees(&t, "cuda.det_grad", "plain.det_grad");
            agrees_in_halves(&t, "cuda.det_grad");
            end(&t);
            begin(&t, EBB_OP_INVERSE);
            put_in(&t, EBB_F32, 4, D(b, m, n, n));
            put_out(&t, EBB_F32, 4, D(b, m, n, n));
            agrees(&t, "cuda.inverse", "plain.inverse");
            agrees_in_halves(&t, "cuda.inverse");
        }
}

static void put_mel(testing *t, int64_t bins, int64_t length, ebb_dtype dtype)
{
    static const double limits[3] = {8000, 60, 3800};
    begin(t, EBB_OP_MEL_WEIGHT_MATRIX);
    set_value(put_in(t, EBB_I64, 0, NULL), 0, (double)bins);
    *(int32_t *)put_raw(t, EBB_I32, 0, NULL)->data = (int32_t)length;
    set_value(put_in(t, EBB_I64, 0, NULL), 0, limits[0]);
    set_value(put_in(t, EBB_F32, 0, NULL), 0, limits[1]);
    set_value(put_in(t, EBB_F64, 0, NULL), 0, limits[2]);
    put_out(t, dtype, 2, D(length / 2 + 1, bins));
}

TEST(mel_weights_are_those_of_the_plain_kernel)
{
    static const ebb_dtype dtypes[] = {EBB_F32, EBB_F64, EBB_F16, EBB_BF16, EBB_I8,  EBB_I16,
                                       EBB_I32, EBB_I64, EBB_U8,  EBB_U16,  EBB_U32, EBB_U64};
    for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++)
        for (int64_t bins = 1; bins < 40; bins += 13) {
            TESTING(t);
            put_mel(&t, bins, 64 * bins, dtypes[d]);
            same_bits(&t, "cuda.mel_weights", "plain.mel_weights");
            assert_false(fault_of(&t, "cuda.mel_weights", 3).there);
        }
    TESTING(t);
    put_mel(&t, 8, 100, EBB_F32);
    set_value(&t.in[0], 0, 9);
    const ebb_fault fault = fault_of(&t, "cuda.mel_weights", 9);
    assert_true(fault.there);
    assert_int_equal(fault.value, 9);
    assert_int_equal(fault.low, 8);
}

/* Of no such range can edges be made. */
TEST(mel_weights_of_no_numbers_are_refused)
{
    static const double wrong[][3] = {
        // rate, lowest, highest
        {INFINITY, 0, 8000},     {NAN, 0, 8000},     {0, 0, 8000},      {-16000, 0, 8000},
        {16000, INFINITY, 8000}, {16000, NAN, 8000}, {16000, -1, 8000}, {16000, 0, INFINITY},
        {16000, 0, -INFINITY},   {16000, 0, -1e6},   {16000, 0, NAN},   {1e-30, 0, 8000},
        {16000, 1e13, 8000}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        TESTING(t);
        begin(&t, EBB_OP_MEL_WEIGHT_MATRIX);
        set_value(put_in(&t, EBB_I64, 0, NULL), 0, 8);
        set_value(put_in(&t, EBB_I64, 0, NULL), 0, 512);
        for (int k = 0; k < 3; k++)
            set_value(put_in(&t, EBB_F64, 0, NULL), 0, wrong[i][k]);
        put_out(&t, EBB_F32, 2, D(257, 8));
        if (kernel_named("plain.mel_weights")->run(&t.call) == NULL)
            fail_msg("plain.mel_weights takes %g, %g, %g", wrong[i][0], wrong[i][1], wrong[i][2]);
        assert_true(fault_of(&t, "cuda.mel_weights", 3).there);
    }
}

const fixture around_all = {with_cuda, NULL};
