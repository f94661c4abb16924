/* test_product_tiles.c: MatMul, Gemm and FusedMatMul by our own tiles against the plain kernels, which sum in
 * double and to which nested/widen.c gives float32: on shapes that are not round and that do not fit one
 * tile, in all mixtures of dtypes, with any number of threads.
 */
#include "kernels/fast/product.h"
#include "tests/kernels/call.h"
#include "tests/owned.h"

/* Of float32 sums in another order; and where both round to 16 bits they may differ by a last digit. */
static const double TOLERANCE = 3e-6;

static double last_digit(ebb_dtype dtype)
{
    return dtype == EBB_BF16 ? 0x1p-7 : dtype == EBB_F16 ? 0x1p-10 : 0;
}

static void check_values(const testing *t, const double *expected, const char *what)
{
    const ebb_operand *y = &t->out[0];
    double largest = 0;
    for (size_t i = 0; i < count_of(y); i++)
        largest = fmax(largest, fabs(expected[i]));
    for (size_t i = 0; i < count_of(y); i++) {
        const double bound =
            TOLERANCE * (1 + largest) + last_digit((ebb_dtype)y->type.dtype) * fabs(expected[i]);
        if (!(fabs(value_of(y, i) - expected[i]) <= bound))
            fail_msg("%s: element %zu is %.9g, expected %.9g", what, i, value_of(y, i),
                     expected[i]);
    }
}

/* By as many threads as there are, the same bits. */
static void agrees(testing *t, const char *tiles)
{
    const ebb_backend *const *plain;
    check_status(ebb_backends("plain", &plain), "plain");
    check_status(ebb_pick(&t->call, plain), "plain");
    compute_picked(t, "plain");
    FREED double *expected = values_of(&t->out[0]);
    FREED void *first = malloc(t->out[0].bytes);
    assert_non_null(first);
    for (int threads = 1; threads <= 5; threads += 2) {
        const ebb_threads_before before = ebb_threads_enter(threads);
        run_with(t, tiles);
        ebb_threads_leave(before);
        check_values(t, expected, tiles);
        if (threads == 1)
            memcpy(first, t->out[0].data, t->out[0].bytes);
        else
            assert_memory_equal(first, t->out[0].data, t->out[0].bytes);
    }
}

/* Below one vector; odd; at tiles' sides; beyond a tile in each direction. */
static const int64_t sizes[][3] = {{1, 1, 1},   {1, 40, 9},    {5, 9, 7},     {33, 65, 70},
                                   {64, 1, 64}, {13, 21, 300}, {300, 40, 77}, {20, 530, 513}};
enum { SIZES = sizeof sizes / sizeof *sizes, DTYPES = 3 };
static const ebb_dtype dtypes[DTYPES] = {EBB_F32, EBB_BF16, EBB_F16};

static void gemm(const int64_t *mnk, int turned, const ebb_dtype *dtype, int form)
{
    const int64_t m = mnk[0], n = mnk[1], k = mnk[2];
    TESTING(t);
    begin(&t, EBB_OP_GEMM);
    put_int(&t, "transA", turned & 1);
    put_int(&t, "transB", turned >> 1);
    put_float(&t, "alpha", form % 2 == 0 ? 1.0 : 0.375);
    put_float(&t, "beta", form % 3 == 0 ? 1.0 : -2.5);
    put_in(&t, dtype[0], 2, turned & 1 ? D(k, m) : D(m, k));
    put_in(&t, dtype[1], 2, turned & 2 ? D(n, k) : D(k, n));
    const int64_t *c[] = {NULL, D(n), D(m, 1), D(m, n), D(1)};
    if (form > 0)
        put_in(&t, dtype[2], form == 1 || form == 4 ? 1 : 2, c[form]);
    put_out(&t, dtype[2], 2, D(m, n));
    agrees(&t, "tiles.gemm");
}

TEST(gemm_in_all_forms)
{
    for (int i = 0; i < SIZES; i++)
        for (int turned = 0; turned < 4; turned++)
            for (int mixture = 0; mixture < DTYPES * DTYPES * DTYPES;
                 mixture += i + turned == 0 ? 1 : 5) {
                const ebb_dtype dtype[] = {dtypes[mixture % 3], dtypes[mixture / 3 % 3],
                                           dtypes[mixture / 9]};
                gemm(sizes[i], turned, dtype, (mixture + turned) % 5);
            }
}

typedef struct batched {
    int ra, rb, ry;
    int64_t a[4], b[4], y[4];
} batched;

/* Rows folded; a batch on both sides; one that either lacks; vectors. */
static const batched forms[] = {
    {3, 2, 3, {3, 7, 20}, {20, 33}, {3, 7, 33}},
    {4, 4, 4, {2, 3, 7, 20}, {2, 3, 20, 33}, {2, 3, 7, 33}},
    {4, 3, 4, {2, 3, 7, 20}, {3, 20, 33}, {2, 3, 7, 33}},
    {4, 4, 4, {2, 1, 7, 20}, {1, 3, 20, 33}, {2, 3, 7, 33}},
    {2, 3, 3, {7, 20}, {5, 20, 33}, {5, 7, 33}},
    {1, 2, 1, {20}, {20, 33}, {33}},
    {3, 1, 2, {5, 7, 20}, {20}, {5, 7}},
};

TEST(matmul_of_batches)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        for (int d = 0; d < DTYPES; d++) {
            const batched *f = &forms[i];
            TESTING(t);
            begin(&t, EBB_OP_MATMUL);
            put_in(&t, dtypes[d], f->ra, f->a);
            put_in(&t, dtypes[d], f->rb, f->b);
            put_out(&t, dtypes[d], f->ry, f->y);
            agrees(&t, "tiles.matmul");
        }
}

TEST(fused_matmul_of_turned_batches)
{
    for (int i = 0; i < SIZES; i++)
        for (int turned = 0; turned < 4; turned++) {
            const int64_t m = sizes[i][0], n = sizes[i][1], k = sizes[i][2];
            TESTING(t);
            begin(&t, EBB_OP_FUSED_MATMUL);
            put_int(&t, "transA", turned & 1);
            put_int(&t, "transB", turned >> 1);
            put_float(&t, "alpha", 0.375);
            put_in(&t, EBB_BF16, 4, turned & 1 ? D(2, 3, k, m) : D(2, 3, m, k));
            put_in(&t, EBB_BF16, 3, turned & 2 ? D(3, n, k) : D(3, k, n));
            put_out(&t, EBB_BF16, 4, D(2, 3, m, n));
            agrees(&t, "tiles.fused_matmul");
        }
}

/* No copy of an operand in float32: what is asked for does not grow with them. */
TEST(workspace_is_a_tile_a_thread)
{
    testing t;
    size_t bytes = 0, more = 0;
    begin(&t, EBB_OP_MATMUL);
    t.call.input_count = 2;
    t.call.output_count = 1;
    t.in[0].type = ebb_type_tensor(EBB_BF16, 2, D(4096, 768));
    t.in[1].type = ebb_type_tensor(EBB_BF16, 2, D(768, 50257));
    t.out[0].type = ebb_type_tensor(EBB_BF16, 2, D(4096, 50257));
    const ebb_kernel *kernel = kernel_named("tiles.matmul");
    assert_null(ebb_kernel_declines(kernel, &t.call));
    for (int threads = 1; threads <= 4; threads *= 4) {
        const ebb_threads_before before = ebb_threads_enter(threads);
        check_status(kernel->workspace(&t.call, threads == 1 ? &bytes : &more), "tiles.matmul");
        ebb_threads_leave(before);
    }
    assert_true(bytes < 1 << 20);
    assert_int_equal(more, 4 * bytes);
}

/* Rows of a folded batch are counted in 32 bits by who multiplies: more stay a batch. */
TEST(a_batch_of_more_rows_than_32_bits_count_stays_a_batch)
{
    static const int64_t rows[] = {INT32_MAX / 3, INT32_MAX / 3 + 1};
    for (int i = 0; i < 2; i++) {
        ebb_product p;
        testing t;
        begin(&t, EBB_OP_MATMUL);
        t.call.input_count = 2;
        t.call.output_count = 1;
        t.in[0].type = ebb_type_tensor(EBB_F32, 3, D(3, rows[i], 2));
        t.in[1].type = ebb_type_tensor(EBB_F32, 2, D(2, 5));
        t.out[0].type = ebb_type_tensor(EBB_F32, 3, D(3, rows[i], 5));
        assert_null(ebb_product_read(&p, &t.call));
        assert_int_equal(p.rank, i == 0 ? 2 : 3);
        assert_int_equal(p.a.dims[0], i == 0 ? 3 * rows[i] : 3);
        assert_int_equal(p.out.dims[p.rank - 2], i == 0 ? 3 * rows[i] : rows[i]);
    }
}
