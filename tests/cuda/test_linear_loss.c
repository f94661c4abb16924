/* test_linear_loss.c: LinearCrossEntropy on the device against the plain one: any blocks of rows,
 * any outputs, labels that do not count and labels that are no class.
 */
#include "tests/cuda/halves.h"
#include "tests/cuda/numbers.h"
#include "tests/kernels/linear_loss_layers.h"

#define CUDA "cuda.linear_cross_entropy"
#define PLAIN "plain.linear_cross_entropy"

TEST(losses_and_gradients_agree_with_the_plain_ones)
{
    for (size_t k = 0; k < LAYERS; k++) {
        TESTING(t);
        make(&t, &layers[k], EBB_F32);
        agrees(&t, CUDA, PLAIN);
    }
}

/* In between, scores and their gradient are rounded to the half. Bias, weights, loss, dw and dbias
 * are float32. */
TEST(halves_agree_with_float32)
{
    for (size_t k = 0; k < LAYERS; k++) {
        TESTING(t);
        make(&t, &layers[k], EBB_F32);
        compare_halves(&t, CUDA, 1u << 2 | 1u << 4 | 1u << 16 | 1u << 18 | 1u << 19,
                       bound_of(CUDA).half);
    }
}

/* Beside 16 bits are float32: bias, weights, and what is summed over rows. */
static void widen_sums(testing *t)
{
    ebb_operand *const wide[] = {&t->in[2], &t->in[4], &t->out[0], &t->out[2], &t->out[3]};
    for (size_t k = 0; k < sizeof wide / sizeof *wide; k++)
        widen_operand(wide[k]);
}

/* Of the exponents the biggest is 0, in every dtype. */
TEST(scores_that_are_far_apart_overflow_nothing)
{
    static const ebb_dtype dtypes[] = {EBB_F32, EBB_F64, EBB_F16, EBB_BF16};
    const layer y = {20, 24, 700, 0, true, false, false, false, false, 0};
    for (int d = 0; d < 4; d++) {
        TESTING(t);
        make(&t, &y, dtypes[d]);
        widen_sums(&t);
        for (size_t i = 0; i < count_of(&t.in[0]); i++)
            set_value(&t.in[0], i, 100 * value_of(&t.in[0], i));
        if (d < 2)
            agrees(&t, CUDA, PLAIN);
        run_with(&t, CUDA);
        for (uint32_t o = 0; o < t.call.output_count; o++)
            for (size_t i = 0; i < count_of(&t.out[o]); i++)
                assert_true(isfinite(value_of(&t.out[o], i)));
    }
}

TEST(any_block_of_rows_gives_the_same_but_for_rounding)
{
    layer y = {50, 24, 90, 0, true, true, false, true, false, 0};
    for (; y.block < 60; y.block += 9) {
        TESTING(t);
        make(&t, &y, EBB_F32);
        agrees(&t, CUDA, PLAIN);
    }
}

TEST(outputs_that_nobody_wants_are_left_out)
{
    for (uint32_t absent = 1; absent < 16; absent++) {
        TESTING(t);
        make(&t, &layers[1], EBB_F32);
        for (uint32_t o = 0; o < 4; o++) {
            if ((absent >> o & 1) == 0)
                continue;
            unguard(t.out[o].data);
            t.out[o] = (ebb_operand){.type = ebb_type_none()};
        }
        agrees(&t, CUDA, PLAIN);
    }
}

TEST(dx_may_be_written_over_x)
{
    TESTING(t);
    make(&t, &layers[1], EBB_F32);
    run_with(&t, CUDA);
    double *expected[4];
    for (uint32_t o = 0; o < 4; o++)
        expected[o] = values_of(&t.out[o]);
    void *own = t.out[1].data;
    t.out[1].data = t.in[0].data;
    t.call.workspace = guarded(t.call.workspace_bytes);
    if (t.call.kernel->prepare != NULL)
        check_status(t.call.kernel->prepare(&t.call), CUDA);
    check_run(t.call.kernel->run(&t.call), CUDA);
    if (t.call.kernel->release != NULL)
        t.call.kernel->release(&t.call);
    unguard(t.call.workspace);
    for (uint32_t o = 0; o < 4; o++) {
        check_close(&t.out[o], expected[o], 0, CUDA);
        free(expected[o]);
    }
    t.out[1].data = own;
}

TEST(without_a_label_that_counts_the_mean_is_no_number_and_gradients_are_zero)
{
    TESTING(t);
    make(&t, &layers[1], EBB_F32);
    for (int64_t i = 0; i < layers[1].rows; i++)
        ((int64_t *)t.in[3].data)[i] = -100;
    run_with(&t, CUDA);
    assert_true(isnan(value_of(&t.out[0], 0)));
    for (uint32_t o = 1; o < 4; o++)
        for (size_t i = 0; i < count_of(&t.out[o]); i++)
            assert_true(value_of(&t.out[o], i) == 0);
}

TEST(without_rows_gradients_are_zero)
{
    const layer y = {0, 3, 5, 0, true, true, false, false, true, 0};
    TESTING(t);
    make(&t, &y, EBB_F32);
    agrees_within(&t, CUDA, PLAIN, 0);
    assert_true(value_of(&t.out[0], 0) == 0);
}

/* The fault names the first position of the program that met one; nothing is read for such a label.
 */
TEST(a_label_outside_the_classes_is_a_fault)
{
    static const int64_t bad[] = {29, -1, 4611686018427387904};
    static const ebb_dtype dtypes[] = {EBB_F32, EBB_F64, EBB_F16, EBB_BF16};
    for (size_t k = 0; k < 3; k++)
        for (int way = 0; way < 8; way++) {
            const bool narrow = way % 2;
            TESTING(t);
            bool replays;
            ebb_fault fault;
            make(&t, &layers[1], dtypes[way / 2]);
            widen_sums(&t);
            t.call.position = 7;
            ((int64_t *)t.in[3].data)[20] = narrow ? bad[k] % 1000 : bad[k];
            if (narrow) {
                for (int64_t i = 0; i < layers[1].rows; i++)
                    ((int32_t *)t.in[3].data)[i] = (int32_t)((int64_t *)t.in[3].data)[i];
                t.in[3].type.dtype = EBB_I32;
            }
            check_status(ebb_backend_cuda.device->begin(more_queue, 0, &replays), "begin");
            run_with(&t, CUDA);
            check_status(ebb_backend_cuda.device->end(more_queue, &fault), "end");
            assert_true(fault.there);
            assert_int_equal(fault.position, 7);
            assert_true(fault.value == (narrow ? bad[k] % 1000 : bad[k]));
            assert_int_equal(fault.low, 0);
            assert_int_equal(fault.high, 29);
        }
}

TEST(what_does_not_fit_is_declined)
{
    TESTING(t);
    make(&t, &layers[1], EBB_F32);
    assert_null(declined_by(&t, CUDA));
    t.in[3].type.dims[0]--;
    assert_string_equal(declined_by(&t, CUDA), "labels are not one a row");
    t.in[3].type.dims[0]++;
    t.in[2].type.dims[0]--;
    assert_string_equal(declined_by(&t, CUDA), "the bias is not one a class");
    t.in[2].type.dims[0]++;
    t.in[1].type.dims[1]--;
    assert_string_equal(declined_by(&t, CUDA), "the shapes of the operands disagree");
    t.in[1].type.dims[1]++;
    t.out[2].type.dims[0]--;
    assert_string_equal(declined_by(&t, CUDA), "an output has the wrong shape");
    t.out[2].type.dims[0]++;
}

const fixture around_all = {with_cuda, NULL};
