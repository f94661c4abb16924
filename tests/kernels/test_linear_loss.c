/* test_linear_loss.c: LinearCrossEntropy: literals from PyTorch 2.11 (float64), finite differences,
 * the plain kernel against oneDNN's, any blocks, any number of threads, dx over x, bad labels.
 */
#include "tests/kernels/linear_loss_layers.h"
#include "tests/status.h"

#define LIST(...) ((const double[]){__VA_ARGS__})
#define PLAIN "plain.linear_cross_entropy"
#define DNNL "dnnl.linear_cross_entropy"

/* ---- PyTorch ---- */

static void check_pytorch(const char *reduction, bool weighted, double loss, const double *dx,
                          const double *dw, const double *dbias)
{
    static const double w[] = {0.3, -0.2, 0.5, -0.6, 0.1, 0.4, 0.2, 0.9, -0.7, 1.1, -0.3, 0.05};
    for (int64_t block = 0; block < 6; block++) {
        TESTING(t);
        begin(&t, EBB_OP_LINEAR_CROSS_ENTROPY);
        put_int(&t, "transB", 1);
        put_int(&t, "rows", block);
        put_int(&t, "ignore_index", -100);
        put_string(&t, "reduction", reduction);
        put_values(&t, 2, DIMS(5, 3),
                   LIST(0.5, -1, 0.25, 1.5, 0.75, -0.5, -0.25, 2, 1, 0, -0.5, 1.25, 1, 1, -2));
        put_values(&t, 2, DIMS(4, 3), w);
        put_values(&t, 1, DIMS(4), LIST(0.1, -0.2, 0.3, 0));
        ebb_operand *labels = put_in(&t, EBB_I64, 1, DIMS(5));
        memcpy(labels->data, DIMS(3, 1, -100, 0, 2), labels->bytes);
        if (weighted)
            put_values(&t, 1, DIMS(4), LIST(1, 2, 0.5, 1.5));
        put_out(&t, EBB_F64, 0, NULL);
        put_out(&t, EBB_F64, 2, DIMS(5, 3));
        put_out(&t, EBB_F64, 2, DIMS(4, 3));
        put_out(&t, EBB_F64, 1, DIMS(4));
        run_with(&t, PLAIN);
        check_close(&t.out[0], &loss, 1e-9, "loss");
        check_close(&t.out[1], dx, 1e-9, "dx");
        check_close(&t.out[2], dw, 1e-9, "dw");
        check_close(&t.out[3], dbias, 1e-9, "dbias");
    }
}

TEST(loss_and_gradients_agree_with_pytorch)
{
    check_pytorch("mean", true, 1.851706050283315,
                  LIST(-0.1659695661, 0.05879896674, 0.03592587771, 0.4533756501, 0.07902779464,
                       -0.260242148, 0, 0, 0, -0.007830702463, 0.02542714704, -0.04322424887,
                       0.008775383478, -0.01614809508, 0.01199607666),
                  LIST(0.1188403103, -0.01026637354, -0.1407861887, -0.5648986505, -0.3499689825,
                       0.2629570515, 0.2882237578, 0.09385370082, -0.04319852784, 0.1578345824,
                       0.2663816552, -0.07897233498),
                  LIST(0.03597678663, -0.3034023538, 0.2207242301, 0.04670133701));
    check_pytorch("sum", false, 5.350350455929549,
                  LIST(-0.5532318869, 0.1959965558, 0.1197529257, 1.133439125, 0.1975694866,
                       -0.6506053699, 0, 0, 0, -0.03915351232, 0.1271357352, -0.2161212443,
                       0.08775383478, -0.1614809508, 0.1199607666),
                  LIST(0.3569331144, 0.04699065272, -0.7147757251, -1.389090539, -0.9571848932,
                       0.802583943, 0.6273453843, 0.08775552726, 0.1521166347, 0.4048120404,
                       0.8224387132, -0.2399248526),
                  LIST(-0.08695914645, -0.5965555711, 0.5054491415, 0.1780655761));
    check_pytorch("mean", false, 1.3375876139823872,
                  LIST(-0.1383079717, 0.04899913895, 0.02993823142, 0.2833597813, 0.04939237165,
                       -0.1626513425, 0, 0, 0, -0.009788378079, 0.0317839338, -0.05403031109,
                       0.02193845869, -0.04037023771, 0.02999019165),
                  LIST(0.08923327861, 0.01174766318, -0.1786939313, -0.3472726348, -0.2392962233,
                       0.2006459857, 0.1568363461, 0.02193888182, 0.03802915867, 0.1012030101,
                       0.2056096783, -0.05998121315),
                  LIST(-0.02173978661, -0.1491388928, 0.1263622854, 0.04451639401));
}

/* ---- differences ---- */

static double loss_at(testing *t, ebb_operand *o, size_t i, double value)
{
    double before = value_of(o, i);
    set_value(o, i, value);
    run_with(t, PLAIN);
    set_value(o, i, before);
    return value_of(&t->out[0], 0);
}

TEST(gradients_are_the_slopes_of_the_loss)
{
    static const uint32_t input[] = {0, 1, 2};
    const double h = 1e-5;
    for (size_t k = 0; k < 4; k++) {
        TESTING(t);
        layer y = layers[k];
        y.rows = 9;
        make(&t, &y, EBB_F64);
        run_with(&t, PLAIN);
        double *slope[3] = {values_of(&t.out[1]), values_of(&t.out[2]), values_of(&t.out[3])};
        for (size_t g = 0; g < (y.biased ? 3u : 2u); g++) {
            ebb_operand *o = &t.in[input[g]];
            for (size_t i = 0; i < count_of(o); i += 1 + count_of(o) / 40) {
                double x = value_of(o, i);
                double up = loss_at(&t, o, i, x + h), down = loss_at(&t, o, i, x - h);
                double found = (up - down) / (2 * h);
                if (!(fabs(found - slope[g][i]) < 1e-8 * (1 + fabs(found))))
                    fail_msg("layer %zu: d loss / d input %u [%zu] is %.12g, not %.12g", k,
                             input[g], i, found, slope[g][i]);
            }
        }
        for (size_t g = 0; g < 3; g++)
            free(slope[g]);
    }
}

/* ---- kernels and blocks ---- */

TEST(onednn_agrees_with_the_plain_one)
{
    for (size_t k = 0; k < LAYERS; k++) {
        TESTING(t);
        make(&t, &layers[k], EBB_F32);
        check_agree(&t, DNNL, PLAIN, 2e-6);
    }
}

TEST(blocks_change_nothing_but_rounding)
{
    static const char *const kernels[] = {PLAIN, DNNL};
    for (size_t k = 0; k < 2; k++) {
        layer y = {50, 24, 90, 0, true, true, false, true, false, 0};
        testing t;
        make(&t, &y, EBB_F32);
        run_with(&t, kernels[k]);
        size_t whole = t.call.workspace_bytes;
        double *expected[4];
        for (uint32_t o = 0; o < 4; o++)
            expected[o] = values_of(&t.out[o]);
        end(&t);
        for (y.block = 1; y.block < 60; y.block += 7) {
            make(&t, &y, EBB_F32);
            run_with(&t, kernels[k]);
            for (uint32_t o = 0; o < 4; o++)
                check_close(&t.out[o], expected[o], 1e-6, kernels[k]);
            assert_true(y.block >= 50 ? t.call.workspace_bytes == whole
                                      : t.call.workspace_bytes < whole);
            end(&t);
        }
        for (uint32_t o = 0; o < 4; o++)
            free(expected[o]);
    }
}

TEST(outputs_that_nobody_wants_are_left_out)
{
    static const char *const kernels[] = {PLAIN, DNNL};
    for (uint32_t absent = 0; absent < 16; absent++) {
        TESTING(t);
        make(&t, &layers[1], EBB_F32);
        run_with(&t, PLAIN);
        double *expected[4];
        for (uint32_t o = 0; o < 4; o++) {
            expected[o] = values_of(&t.out[o]);
            if ((absent >> o & 1) == 0)
                continue;
            unguard(t.out[o].data);
            t.out[o] = (ebb_operand){.type = ebb_type_none()};
        }
        for (size_t k = 0; k < 2; k++) {
            run_with(&t, kernels[k]);
            for (uint32_t o = 0; o < 4; o++)
                if (t.out[o].data != NULL)
                    check_close(&t.out[o], expected[o], 2e-6, kernels[k]);
        }
        for (uint32_t o = 0; o < 4; o++)
            free(expected[o]);
    }
}

TEST(dx_may_be_written_over_x)
{
    static const char *const kernels[] = {PLAIN, DNNL};
    for (size_t k = 0; k < 2; k++) {
        testing t;
        make(&t, &layers[1], EBB_F32);
        run_with(&t, kernels[k]);
        double *expected[4];
        for (uint32_t o = 0; o < 4; o++)
            expected[o] = values_of(&t.out[o]);
        unguard(t.out[1].data);
        t.out[1].data = t.in[0].data;
        t.call.workspace = guarded(t.call.workspace_bytes);
        assert_null(t.call.kernel->run(&t.call));
        unguard(t.call.workspace);
        for (uint32_t o = 0; o < 4; o++) {
            check_close(&t.out[o], expected[o], 0, kernels[k]);
            free(expected[o]);
        }
        t.out[1].data = NULL; // it is x's
        for (uint32_t o = 0; o < 4; o++)
            if (t.out[o].data != NULL)
                unguard(t.out[o].data);
        for (uint32_t i = 0; i < t.call.input_count; i++)
            unguard(t.in[i].data);
    }
}

TEST(the_plain_one_does_not_depend_on_the_number_of_threads)
{
    const layer y = {130, 96, 513, 48, true, true, true, true, false, 0};
    TESTING(t);
    make(&t, &y, EBB_F32);
    (void)ebb_threads_enter(1);
    run_with(&t, PLAIN);
    double *expected[4];
    for (uint32_t o = 0; o < 4; o++)
        expected[o] = values_of(&t.out[o]);
    for (int threads = 2; threads < 6; threads++) {
        (void)ebb_threads_enter(threads);
        run_with(&t, PLAIN);
        for (uint32_t o = 0; o < 4; o++)
            check_close(&t.out[o], expected[o], 0, "with other threads");
    }
    (void)ebb_threads_enter(0);
    for (uint32_t o = 0; o < 4; o++)
        free(expected[o]);
}

TEST(two_runs_of_onednn_give_the_same_bits)
{
    TESTING(t);
    make(&t, &layers[5], EBB_F32);
    run_with(&t, DNNL);
    double *expected[4];
    for (uint32_t o = 0; o < 4; o++)
        expected[o] = values_of(&t.out[o]);
    for (int i = 0; i < 5; i++) {
        run_with(&t, DNNL);
        for (uint32_t o = 0; o < 4; o++)
            check_close(&t.out[o], expected[o], 0, "again");
    }
    for (uint32_t o = 0; o < 4; o++)
        free(expected[o]);
}

/* ---- labels ---- */

TEST(without_a_label_that_counts_the_mean_is_no_number_and_gradients_are_zero)
{
    static const char *const kernels[] = {PLAIN, DNNL};
    for (size_t k = 0; k < 2; k++) {
        TESTING(t);
        make(&t, &layers[1], EBB_F32);
        for (int64_t i = 0; i < layers[1].rows; i++)
            ((int64_t *)t.in[3].data)[i] = -100;
        run_with(&t, kernels[k]);
        assert_true(isnan(value_of(&t.out[0], 0)));
        for (uint32_t o = 1; o < 4; o++)
            for (size_t i = 0; i < count_of(&t.out[o]); i++)
                assert_true(value_of(&t.out[o], i) == 0);
    }
}

/* What a product with such a row would give is no number, nor is what it would be added to. */
TEST(rows_that_do_not_count_cost_no_product)
{
    for (int64_t block = 0; block < 40; block += 6) {
        layer y = layers[1];
        TESTING(t);
        y.block = block;
        make(&t, &y, EBB_F32);
        run_with(&t, PLAIN);
        double *expected[4];
        for (uint32_t o = 0; o < 4; o++)
            expected[o] = values_of(&t.out[o]);
        for (int64_t i = 0; i < y.rows * y.inner; i++)
            if (label_of(&y, i / y.inner) == -100)
                ((float *)t.in[0].data)[i] = NAN;
        run_with(&t, DNNL);
        for (uint32_t o = 0; o < 4; o++) {
            check_close(&t.out[o], expected[o], 2e-6, "without rows that do not count");
            free(expected[o]);
        }
        for (size_t i = 0; i < count_of(&t.in[1]); i++)
            set_value(&t.in[1], i, NAN);
        run_with(&t, DNNL);
        for (int64_t i = 0; i < y.rows * y.inner; i++) {
            const float dx = ((const float *)t.out[1].data)[i];
            assert_true(label_of(&y, i / y.inner) == -100 ? dx == 0 : isnan(dx));
        }
    }
}

TEST(a_label_outside_the_classes_is_named)
{
    static const char *const kernels[] = {PLAIN, DNNL};
    for (size_t k = 0; k < 2; k++) {
        TESTING(t);
        make(&t, &layers[1], EBB_F32);
        ((int64_t *)t.in[3].data)[20] = 29;
        const ebb_kernel *kernel = kernel_named(kernels[k]);
        refused(kernel->run(&t.call), EBB_RUNTIME, "label 29 at position 20 is outside 0..28");
    }
}

TEST(what_does_not_fit_is_declined)
{
    TESTING(t);
    make(&t, &layers[1], EBB_F32);
    assert_null(declined_by(&t, PLAIN));
    t.in[3].type.dims[0]--;
    assert_string_equal(declined_by(&t, PLAIN), "labels are not one a row");
    t.in[3].type.dims[0]++;
    t.in[2].type.dims[0]--;
    assert_string_equal(declined_by(&t, PLAIN), "the bias is not one a class");
    t.in[2].type.dims[0]++;
    t.in[1].type.dims[1]--;
    assert_string_equal(declined_by(&t, PLAIN), "the shapes of the operands disagree");
    t.in[1].type.dims[1]++;
    t.out[2].type.dims[0]--;
    assert_string_equal(declined_by(&t, PLAIN), "an output has the wrong shape");
    t.out[2].type.dims[0]++;
    assert_null(declined_by(&t, DNNL));
    end(&t);
    make(&t, &layers[1], EBB_F64);
    assert_string_equal(declined_by(&t, DNNL), "oneDNN multiplies float32 only");
}
