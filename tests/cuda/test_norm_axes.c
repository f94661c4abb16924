/* test_norm_axes.c: norms without a scale on the GPU's kernels, and tapering windows, against the
 * plain kernels. */
#include "tests/cuda/bits.h"
#include "tests/cuda/in_place.h"
#include "tests/cuda/halves.h"

typedef struct shape {
    int rank;
    int64_t dims[6];
} shape;

static const shape shapes[] = {
    {2, {7, 33}},     {2, {3, 9000}}, {4, {3, 5, 6, 7}}, {4, {1, 2, 60, 70}},     {2, {300, 5}},
    {3, {2, 700, 4}}, {2, {0, 4}},    {1, {1}},          {6, {2, 3, 2, 5, 3, 2}}, {2, {1100, 33}},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

/* A line of zeros among them where there are several; in one an infinite element. */
static void put_lines(testing *t, const shape *s, ebb_dtype dtype)
{
    ebb_operand *x = put_in(t, dtype, s->rank, s->dims);
    for (size_t i = 0; s->rank > 1 && i < count_of(x); i++)
        if (i / (size_t)s->dims[s->rank - 1] == 2 || i % (size_t)s->dims[s->rank - 1] == 1)
            set_value(x, i, 0);
    if (s->rank == 3)
        set_value(x, count_of(x) - 1, -(double)INFINITY);
    put_out(t, dtype, s->rank, s->dims);
}

TEST(lines_are_divided_by_their_norm)
{
    for (size_t i = 0; i < SHAPES; i++)
        for (int axis = -1; axis < shapes[i].rank - 1; axis++)
            for (int p = 1; p < 4; p++) {
                TESTING(t);
                begin(&t, EBB_OP_LP_NORMALIZATION);
                put_int(&t, "axis", axis);
                put_int(&t, "p", p);
                put_lines(&t, &shapes[i], EBB_F32);
                agrees(&t, "cuda.lp_normalization", "plain.lp_normalization");
                agrees_in_place(&t, "cuda.lp_normalization", 0);
                agrees_mixed(&t, "cuda.lp_normalization", 0);
            }
}

TEST(means_are_taken_off_over_any_axes)
{
    static const struct {
        uint32_t count; /* 0: as it is without the attribute */
        int64_t axes[4];
    } over[] = {{0, {0}},     {1, {0}},          {1, {-1}},     {2, {1, 3}},
                {2, {2, -1}}, {4, {0, 1, 2, 3}}, {3, {0, 2, 4}}};
    for (size_t i = 0; i < SHAPES; i++)
        for (size_t k = 0; k < sizeof over / sizeof over[0]; k++) {
            TESTING(t);
            if ((shapes[i].rank < 4 && over[k].count != 1) ||
                (shapes[i].rank < 6 && over[k].count == 3))
                continue;
            begin(&t, EBB_OP_MEAN_VARIANCE_NORMALIZATION);
            if (over[k].count > 0)
                put_ints(&t, "axes", over[k].count, over[k].axes);
            put_in(&t, EBB_F32, shapes[i].rank, shapes[i].dims);
            for (size_t e = 0; e < count_of(&t.in[0]); e++) // far from 0
                set_value(&t.in[0], e, 100 + value_of(&t.in[0], e));
            put_out(&t, EBB_F32, shapes[i].rank, shapes[i].dims);
            agrees(&t, "cuda.mean_variance", "plain.mean_variance");
            agrees_in_place(&t, "cuda.mean_variance", 0);
            agrees_mixed(&t, "cuda.mean_variance", 0);
        }
}

TEST(what_is_all_alike_becomes_zero_and_nan_stays)
{
    TESTING(t);
    begin(&t, EBB_OP_MEAN_VARIANCE_NORMALIZATION);
    put_ints(&t, "axes", 1, (int64_t[]){1});
    put_in(&t, EBB_F32, 2, (int64_t[]){3, 1000});
    put_out(&t, EBB_F32, 2, (int64_t[]){3, 1000});
    for (size_t i = 0; i < 1000; i++)
        set_value(&t.in[0], i, 0.1);
    set_value(&t.in[0], 1007, (double)NAN);
    agrees(&t, "cuda.mean_variance", "plain.mean_variance");
    for (size_t i = 0; i < 1000; i++) {
        assert_true(value_of(&t.out[0], i) == 0);
        assert_true(isnan(value_of(&t.out[0], 1000 + i)));
        assert_true(isfinite(value_of(&t.out[0], 2000 + i)));
    }
}

TEST(channels_are_weakened_by_their_neighbours)
{
    for (size_t i = 0; i < SHAPES; i++)
        for (int64_t size = 1; size < 8; size += 2) {
            TESTING(t);
            if (shapes[i].rank < 2)
                continue;
            begin(&t, EBB_OP_LRN);
            put_int(&t, "size", size == 7 ? INT32_MAX : size + size / 4);
            put_float(&t, "alpha", 0.5);
            put_float(&t, "beta", 0.625);
            put_float(&t, "bias", 1.25);
            put_in(&t, EBB_F32, shapes[i].rank, shapes[i].dims);
            put_out(&t, EBB_F32, shapes[i].rank, shapes[i].dims);
            if (shapes[i].dims[1] < 100 || size < 7)
                agrees(&t, "cuda.lrn", "plain.lrn");
            if (size == 3)
                agrees_mixed(&t, "cuda.lrn", 0);
        }
}

static const struct {
    ebb_op op;
    const char *cuda, *plain;
} tapers[] = {
    {EBB_OP_HANN_WINDOW, "cuda.hann_window", "plain.hann_window"},
    {EBB_OP_HAMMING_WINDOW, "cuda.hamming_window", "plain.hamming_window"},
    {EBB_OP_BLACKMAN_WINDOW, "cuda.blackman_window", "plain.blackman_window"},
};

static void put_taper(testing *t, ebb_op op, ebb_dtype dtype, int64_t n, int64_t given)
{
    begin(t, op);
    ebb_operand *length = put_in(t, EBB_I64, 0, NULL);
    memcpy(length->data, &given, sizeof given);
    put_out(t, dtype, 1, &n);
}

TEST(windows_taper_as_in_plain)
{
    static const int64_t sizes[] = {0, 1, 2, 5, 1000, 240, 301}; // the last: beside a middle
    for (size_t k = 0; k < 3; k++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
            for (int periodic = 0; periodic < 2; periodic++)
                for (int wide = 0; wide < 2; wide++) {
                    TESTING(t);
                    put_taper(&t, tapers[k].op, wide ? EBB_F64 : EBB_F32, sizes[i], sizes[i]);
                    put_int(&t, "periodic", periodic);
                    agrees(&t, tapers[k].cuda, tapers[k].plain);
                    if (!wide)
                        agrees_in_halves(&t, tapers[k].cuda);
                }
}

TEST(another_length_than_the_planned_is_a_fault)
{
    TESTING(t);
    put_taper(&t, EBB_OP_HANN_WINDOW, EBB_F32, 10, 10);
    assert_false(fault_of(&t, "cuda.hann_window", 5).there);
    end(&t);
    put_taper(&t, EBB_OP_HANN_WINDOW, EBB_F32, 10, 11);
    ebb_fault fault = fault_of(&t, "cuda.hann_window", 5);
    assert_true(fault.there);
    assert_int_equal(fault.value, 11);
    assert_int_equal(fault.low, 10);
}

const fixture around_all = {with_cuda, NULL};
