/* test_frozen.c: products with a matrix in few bits: the tiles' kernel beside the plain one, in all forms,
 * and with any number of threads. What the plain one means is held by function bodies (test_bodies.c) and
 * by ONNX Runtime's kernels (tests/dialect).
 */
#include "tests/kernels/frozen.h"
#include "tests/owned.h"

static void put_form(testing *t, const form *f)
{
    put_forms(t, f, EBB_OP_MATMUL_CODES, EBB_F32, 1);
}

static void both_agree(testing *t, const char *plain, const char *tiles, const char *what)
{
    run_with(t, plain);
    FREED double *expected = values_of(&t->out[0]);
    for (int threads = 1; threads <= 3; threads++) {
        const ebb_threads_before before = ebb_threads_enter(threads);
        run_with(t, tiles);
        check_close(&t->out[0], expected, 3e-6, what);
        ebb_threads_leave(before);
    }
}

TEST(tiles_are_what_the_plain_kernel_computes)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        TESTING(t);
        char what[64];
        (void)snprintf(what, sizeof what, "form %zu", i);
        put_form(&t, &forms[i]);
        both_agree(&t, "plain.matmul_codes", "tiles.matmul_codes", what);
    }
}

/* ---- tensors as DequantizeLinear takes them ---- */

TEST(tiles_of_tensors_are_too)
{
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        TESTING(t);
        char what[64];
        (void)snprintf(what, sizeof what, "tensor %zu", i);
        put_tensor(&t, &tensors[i]);
        both_agree(&t, "plain.matmul_dequantized", "tiles.matmul_dequantized", what);
    }
}

/* ---- a matrix for each expert ---- */

TEST(tiles_of_experts_are_too)
{
    enum { EXPERTS = 4 };
    const size_t some[] = {1, 2, 4, 5, 7, 9, 12, 18};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        const form *f = &forms[some[i]];
        char what[64];
        TESTING(t);
        (void)snprintf(what, sizeof what, "experts of form %zu", some[i]);
        put_forms(&t, f, EBB_OP_EXPERTS_MATMUL_CODES, EBB_F32, EXPERTS);
        put_experts(&t, f->rows);
        both_agree(&t, "plain.experts_matmul_codes", "tiles.experts_matmul_codes", what);
        end(&t);
        begin(&t, EBB_OP_EXPERTS_MATMUL);
        put_int(&t, "transB", f->turned);
        put_in(&t, EBB_F32, 2, D(f->rows, f->turned ? f->k : f->n));
        put_in(&t, EBB_F32, 3, D(EXPERTS, f->n, f->k));
        put_experts(&t, f->rows);
        put_out(&t, EBB_F32, 2, D(f->rows, f->turned ? f->n : f->k));
        both_agree(&t, "plain.experts_matmul", "tiles.experts_matmul", what);
    }
}

/* An expert that is none is named, and nothing is read beyond the weights. */
TEST(an_expert_that_is_none_is_refused)
{
    static const char *const kernels[] = {"plain.experts_matmul", "tiles.experts_matmul"};
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        for (int64_t wrong = -1; wrong <= 2; wrong += 3) {
            TESTING(t);
            begin(&t, EBB_OP_EXPERTS_MATMUL);
            put_in(&t, EBB_F32, 2, D(3, 4));
            put_in(&t, EBB_F32, 3, D(2, 5, 4));
            ((int64_t *)put_in(&t, EBB_I64, 1, D(3))->data)[1] = wrong;
            put_out(&t, EBB_F32, 2, D(3, 5));
            assert_null(declined_by(&t, kernels[i]));
            t.call.kernel = kernel_named(kernels[i]);
            ebb_status status = t.call.kernel->run(&t.call);
            assert_non_null(status);
            assert_non_null(strstr(ebb_status_text(status), "row 1 is of expert"));
        }
}

TEST(threads_change_no_bit)
{
    TESTING(t);
    put_form(&t, &forms[5]);
    FREED float *one = NULL;
    const size_t bytes = t.out[0].bytes;
    for (int threads = 1; threads <= 7; threads += 2) {
        const ebb_threads_before before = ebb_threads_enter(threads);
        run_with(&t, "tiles.matmul_codes");
        ebb_threads_leave(before);
        if (one == NULL) {
            one = malloc(bytes);
            assert_non_null(one);
            memcpy(one, t.out[0].data, bytes);
        }
        assert_memory_equal(one, t.out[0].data, bytes);
    }
}

/* Every product with a scale that is no number would be none either: so those that were made are counted.
 * Rows of zeros lie alone, side by side, first and last. */
TEST(rows_of_zeros_cost_no_product)
{
    const size_t some[] = {2, 5, 6}; // forward and back, one job and several
    for (size_t k = 0; k < sizeof some / sizeof *some; k++) {
        const form *f = &forms[some[k]];
        const int64_t inner = f->turned ? f->k : f->n, columns = f->turned ? f->n : f->k;
        TESTING(t);
        put_form(&t, f);
        for (int64_t i = 0; i < f->rows * inner; i++)
            if (i / inner % 5 < 2 || i / inner > 200 || i / inner == 3)
                ((float *)t.in[0].data)[i] = 0;
        both_agree(&t, "plain.matmul_codes", "tiles.matmul_codes", "rows of zeros");
        for (size_t i = 0; i < count_of(&t.in[2]); i++)
            set_value(&t.in[2], i, NAN);
        run_with(&t, "tiles.matmul_codes");
        for (int64_t i = 0; i < f->rows * columns; i++) {
            const int64_t r = i / columns;
            const float y = ((const float *)t.out[0].data)[i];
            assert_true(r % 5 < 2 || r > 200 || r == 3 ? y == 0 : isnan(y));
        }
    }
}
