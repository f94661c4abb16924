/* test_plain_norms.c: the plain kernels of norms, softmax and losses, against literals from PyTorch
 * 2.11 (float64); results over inputs, labels outside of the classes.
 */
#include "literals.h"

/* Runs again what run_with has run, with output 0 written over input `input`. Leaves it there. */
static void run_over(testing *t, uint32_t input)
{
    ebb_call *c = &t->call;
    c->workspace = guarded(c->workspace_bytes);
    unguard(t->out[0].data);
    t->out[0].data = t->in[input].data;
    assert_null(c->kernel->run(c));
    unguard(c->workspace);
}

/* ---- norms ---- */

static const double ln_x[] = {0.5, -1.25, 2, 0.75, -0.5, 1.5, 0.25, -2, -0.125, 3};
static const double ln_scale[] = {1, 0.5, -1.5, 2, 0.25}, ln_bias[] = {0.1, -0.2, 0.3, 0, 1};
static const double ln_dy[] = {0.3, -0.7, 1.1, 0.2, -0.4, -1, 0.6, 0.05, 0.9, -0.35};

TEST(layer_norm_and_its_gradient_agree_with_pytorch)
{
    TESTING(t);
    TESTING(back);
    begin(&t, EBB_OP_LAYER_NORMALIZATION);
    put_values(&t, 2, DIMS(2, 5), ln_x);
    put_values(&t, 1, DIMS(5), ln_scale);
    put_values(&t, 1, DIMS(5), ln_bias);
    put_out(&t, EBB_F64, 2, DIMS(2, 5));
    put_out(&t, EBB_F64, 2, DIMS(2, 1));
    put_out(&t, EBB_F64, 2, DIMS(2, 1));
    run_with(&t, "plain.layer_normalization");
    close_to(&t.out[0],
             LIST(0.27996778, -0.897375146, -1.99458919, 0.809855008, 0.82003222, 0.683716186,
                  -0.282318949, 2.56751287, -0.778288247, 1.37043527),
             "y");
    begin(&back, EBB_OP_LAYER_NORM_GRAD);
    put_values(&back, 2, DIMS(2, 5), ln_dy);
    put_values(&back, 2, DIMS(2, 5), ln_x);
    put_values(&back, 1, DIMS(5), ln_scale);
    put_values(&back, 2, DIMS(2, 1), t.out[1].data);
    put_values(&back, 2, DIMS(2, 1), t.out[2].data);
    put_out(&back, EBB_F64, 2, DIMS(2, 5));
    put_out(&back, EBB_F64, 1, DIMS(5));
    put_out(&back, EBB_F64, 1, DIMS(5));
    run_with(&back, "plain.layer_norm_grad");
    const double dx[] = {0.578519449,  -0.501738602, -0.751569745, 0.739269448, -0.064480549,
                         -0.616592805, 0.0407421413, -0.401480026, 0.902481052, 0.0748496378};
    close_to(&back.out[0], dx, "dx");
    close_to(&back.out[1], LIST(-0.529725852, 0.877542466, 1.60711498, -0.26924421, -0.230660933),
             "dscale");
    close_to(&back.out[2], LIST(-0.7, -0.1, 1.15, 1.1, -0.75), "dbias");
    /* The same with dX over X: what the alias column allows. */
    run_over(&back, 1);
    close_to(&back.out[0], dx, "dx over x");
    back.out[0].data = NULL; // it is the input's
}

TEST(batch_norm_in_training_agrees_with_pytorch)
{
    const double x[] = {1, 2, 3, -1, 0.5, 4, 0.25, -3, 2, 1.5, -0.5, 0};
    const double dy[] = {.1, -.2, .3, .4, .5, -.6, -.7, .8, .9, 1, -1.1, .2};
    TESTING(t);
    TESTING(back);
    begin(&t, EBB_OP_BATCH_NORM_TRAINING);
    put_values(&t, 3, DIMS(2, 2, 3), x);
    put_values(&t, 1, DIMS(2), LIST(1.5, -0.5));
    put_values(&t, 1, DIMS(2), LIST(0.25, 1));
    put_values(&t, 1, DIMS(2), LIST(0.5, -1));
    put_values(&t, 1, DIMS(2), LIST(2, 0.75));
    put_out(&t, EBB_F64, 3, DIMS(2, 2, 3));
    for (int i = 0; i < 4; i++)
        put_out(&t, EBB_F64, 1, DIMS(2));
    run_with(&t, "plain.batch_norm_training");
    close_to(&t.out[0],
             LIST(0.346891764, 1.12202587, 1.89715998, 1.52965397, 1.07566485, 0.0163569211,
                  -0.234458819, -2.75364467, 1.12202587, 0.773005443, 1.37832426, 1.22699456),
             "y");
    close_to(&t.out[1], LIST(0.5375, -0.825), "running mean");
    close_to(&t.out[2], LIST(2.249375, 1.0025), "running variance");
    begin(&back, EBB_OP_BATCH_NORM_GRAD);
    put_values(&back, 3, DIMS(2, 2, 3), dy);
    put_values(&back, 3, DIMS(2, 2, 3), x);
    put_values(&back, 1, DIMS(2), LIST(1.5, -0.5));
    put_values(&back, 1, DIMS(2), t.out[3].data);
    put_values(&back, 1, DIMS(2), t.out[4].data);
    put_out(&back, EBB_F64, 3, DIMS(2, 2, 3));
    put_out(&back, EBB_F64, 1, DIMS(2));
    put_out(&back, EBB_F64, 1, DIMS(2));
    run_with(&back, "plain.batch_norm_grad");
    close_to(&back.out[0],
             LIST(-0.0722308699, -0.262510775, 0.167316608, -0.0750103402, -0.127455821, 0.15371727,
                  -0.724033404, 0.301321694, 0.590136746, -0.293571885, 0.371585593, -0.0292648181),
             "dx");
    close_to(&back.out[1], LIST(-0.63302619, -0.484255054), "dscale");
    close_to(&back.out[2], LIST(1.2, 0.4), "dbias");
}

/* [n, c] numbers: as they lie, or as [1, c, n], where a channel is one row. */
static void put_rows(testing *t, int64_t n, int64_t c, bool turned, int64_t step)
{
    ebb_operand *o = put_in(t, EBB_F64, 3, turned ? DIMS(1, c, n) : DIMS(n, c, 1));
    for (int64_t i = 0; i < n * c; i++)
        set_value(o, (size_t)(turned ? i % c * n + i / c : i), (double)(i * step % 1009) / 500 - 1);
}

static double *rows_of(const ebb_operand *o, int64_t n, int64_t c, bool turned)
{
    double *rows = malloc((size_t)(n * c) * sizeof *rows);
    assert_non_null(rows);
    for (int64_t i = 0; i < n * c; i++)
        rows[i] = value_of(o, (size_t)(turned ? i % c * n + i / c : i));
    return rows;
}

enum { Y, DX, DSCALE, DBIAS, RESULTS };

static void norm_of_rows(double *result[RESULTS], int64_t n, int64_t c, bool turned)
{
    const int64_t *dims = turned ? DIMS(1, c, n) : DIMS(n, c, 1);
    TESTING(t);
    TESTING(back);
    begin(&t, EBB_OP_BATCH_NORM_TRAINING);
    put_rows(&t, n, c, turned, 7919);
    for (int i = 0; i < 4; i++)
        put_in(&t, EBB_F64, 1, DIMS(c));
    put_out(&t, EBB_F64, 3, dims);
    for (int i = 0; i < 4; i++)
        put_out(&t, EBB_F64, 1, DIMS(c));
    run_with(&t, "plain.batch_norm_training");
    begin(&back, EBB_OP_BATCH_NORM_GRAD);
    put_rows(&back, n, c, turned, 6007);
    put_rows(&back, n, c, turned, 7919);
    put_in(&back, EBB_F64, 1, DIMS(c));
    put_values(&back, 1, DIMS(c), t.out[3].data);
    put_values(&back, 1, DIMS(c), t.out[4].data);
    put_out(&back, EBB_F64, 3, dims);
    put_out(&back, EBB_F64, 1, DIMS(c));
    put_out(&back, EBB_F64, 1, DIMS(c));
    run_with(&back, "plain.batch_norm_grad");
    result[Y] = rows_of(&t.out[0], n, c, turned);
    result[DX] = rows_of(&back.out[0], n, c, turned);
    result[DSCALE] = values_of(&back.out[1]);
    result[DBIAS] = values_of(&back.out[2]);
}

/* Rows of channels go in parts, which the shape alone makes: one, two, four and as many as there may be. */
TEST(batch_norm_of_rows_is_that_of_channels_by_any_threads)
{
    static const int64_t sizes[][2] = {{37, 5}, {514, 3}, {1301, 20}, {700, 600}, {17000, 2}};
    const ebb_threads_before before = ebb_threads_enter(1);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int64_t n = sizes[i][0], c = sizes[i][1];
        double *want[RESULTS], *first[RESULTS];
        norm_of_rows(want, n, c, true);
        for (int threads = 1; threads <= 3; threads++) {
            double *got[RESULTS];
            (void)ebb_threads_enter(threads);
            norm_of_rows(threads == 1 ? first : got, n, c, false);
            for (int k = 0; k < RESULTS; k++) {
                const size_t count = (size_t)(k < DSCALE ? n * c : c);
                for (size_t e = 0; threads == 1 && e < count; e++)
                    if (!(fabs(first[k][e] - want[k][e]) <= 1e-10 * (1 + fabs(want[k][e]))))
                        fail_msg("%lld x %lld: result %d has %.15g at %zu, not %.15g", (long long)n,
                                 (long long)c, k, first[k][e], e, want[k][e]);
                if (threads == 1)
                    continue;
                assert_memory_equal(got[k], first[k], count * sizeof **got);
                free(got[k]);
            }
        }
        for (int k = 0; k < RESULTS; k++) {
            free(want[k]);
            free(first[k]);
        }
    }
    ebb_threads_leave(before);
}

/* ---- losses ---- */

TEST(softmax_and_its_gradient_agree_with_pytorch)
{
    const double y[] = {0.136848181, 0.023780648,  0.613310996,   0.175716542,  0.0503436323,
                        0.166797243, 0.0477882103, 0.00503684031, 0.0328443246, 0.747533382};
    TESTING(t);
    begin(&t, EBB_OP_SOFTMAX);
    put_values(&t, 2, DIMS(2, 5), ln_x);
    put_out(&t, EBB_F64, 2, DIMS(2, 5));
    run_with(&t, "plain.softmax");
    close_to(&t.out[0], y, "softmax");
    run_over(&t, 0);
    close_to(&t.out[0], y, "softmax over its input");
    t.out[0].data = NULL; // it is the input's
    end(&t);
    begin(&t, EBB_OP_SOFTMAX_GRAD);
    put_values(&t, 2, DIMS(2, 5), ln_dy);
    put_values(&t, 2, DIMS(2, 5), y);
    put_out(&t, EBB_F64, 2, DIMS(2, 5));
    run_with(&t, "plain.softmax_grad");
    close_to(&t.out[0],
             LIST(-0.0566628038, -0.0336271669, 0.236703728, -0.0903281345, -0.0560856232,
                  -0.105090725, 0.0463521395, 0.00211521739, 0.0417106259, 0.0149127426),
             "gradient");
}

TEST(cross_entropy_with_weights_agrees_with_pytorch)
{
    const int64_t labels[] = {2, 4};
    const double weights[] = {1, 2, 0.5, 1, 3};
    TESTING(t);
    TESTING(back);
    begin(&t, EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS);
    put_values(&t, 2, DIMS(2, 5), ln_x);
    put_data(&t, EBB_I64, 1, DIMS(2), labels);
    put_values(&t, 1, DIMS(5), weights);
    put_out(&t, EBB_F64, 0, NULL);
    put_out(&t, EBB_F64, 2, DIMS(2, 5));
    run_with(&t, "plain.softmax_cross_entropy_loss");
    close_to(&t.out[0], LIST(0.31924872), "loss");
    begin(&back, EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS_GRAD);
    put_values(&back, 0, NULL, LIST(1));
    put_values(&back, 2, DIMS(2, 5), t.out[1].data);
    put_data(&back, EBB_I64, 1, DIMS(2), labels);
    put_values(&back, 1, DIMS(5), weights);
    put_out(&back, EBB_F64, 2, DIMS(2, 5));
    run_with(&back, "plain.softmax_cross_entropy_loss_grad");
    close_to(&back.out[0],
             LIST(0.0195497401, 0.00339723543, -0.0552412862, 0.0251023632, 0.00719194747,
                  0.142969066, 0.0409613231, 0.00431729169, 0.0281522782, -0.216399959),
             "gradient");
}

TEST(a_label_outside_the_classes_is_named)
{
    const int64_t labels[] = {0, -100, 9, 17};
    TESTING(t);
    begin(&t, EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS);
    put_int(&t, "ignore_index", -100);
    put_in(&t, EBB_F32, 2, DIMS(4, 10));
    put_data(&t, EBB_I64, 1, DIMS(4), labels);
    put_out(&t, EBB_F32, 0, NULL);
    assert_non_null(strstr(refusal_of(&t, "plain.softmax_cross_entropy_loss"),
                           "label 17 at position 3 is outside 0..9"));
}
