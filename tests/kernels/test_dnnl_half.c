/* test_dnnl_half.c: what oneDNN multiplies in 16 bits against the plain kernels, which nested/widen.c
 * gives float32, on shapes that are not round.
 *
 * Both sum in float32, in another order, and round once. So they differ by at most a last digit
 * beside what test_dnnl.c allows.
 */
#include "tests/kernels/dnnl_shapes.h"

#include "kernels/fast/onednn/version.h"

static const double TOLERANCE = 2e-5;
static const double LAST_DIGIT = 0x1p-7;

static void compute_plainly(testing *t)
{
    const ebb_backend *const *plain;
    check_status(ebb_backends("plain", &plain), "plain");
    check_status(ebb_pick(&t->call, plain), "plain");
    compute_picked(t, "plain");
}

/* Output 0. What the kernel declines is left to widening. */
static bool agrees(testing *t, const char *kernel)
{
    if (declined_by(t, kernel) != NULL)
        return false;
    compute_plainly(t);
    double *expected = values_of(&t->out[0]), largest = 0;
    run_with(t, kernel);
    for (size_t i = 0; i < count_of(&t->out[0]); i++)
        largest = fmax(largest, fabs(expected[i]));
    for (size_t i = 0; i < count_of(&t->out[0]); i++) {
        const double got = value_of(&t->out[0], i);
        const double bound = TOLERANCE * (1 + largest) + LAST_DIGIT * fabs(expected[i]);
        if (!(fabs(got - expected[i]) <= bound))
            fail_msg("%s, %s: element %zu is %.9g, expected %.9g", kernel, t->call.node, i, got,
                     expected[i]);
    }
    free(expected);
    return true;
}

enum { KINDS = 3 };
static const ebb_op ops[KINDS] = {EBB_OP_CONV, EBB_OP_CONV_TRANSPOSE, EBB_OP_CONV_WEIGHT_GRAD};
static const char *const names[KINDS] = {"dnnl.conv", "dnnl.conv_transpose",
                                         "dnnl.conv_weight_grad"};

/* result: the dtype of what is written. */
static void make_conv(testing *t, const shape *s, int kind, bool biased, ebb_dtype result)
{
    const dims d = dims_of(s);
    int64_t extra[3] = {0};
    for (int a = 0; a < s->spatial; a++)
        extra[a] = (s->size[a] + s->pads[a] + s->pads[s->spatial + a] -
                    (s->kernel[a] - 1) * s->dilation[a] - 1) %
                   s->stride[a];
    begin(t, ops[kind]);
    t->call.node = s->what;
    put_window(t, s);
    put_int(t, "group", s->groups);
    put_ints(t, "output_padding", (uint32_t)s->spatial, extra);
    put_in(t, EBB_BF16, d.rank, kind == 0 ? d.x : d.y);
    put_in(t, EBB_BF16, d.rank, kind == 2 ? d.x : d.w);
    if (biased)
        put_in(t, EBB_BF16, 1, d.w);
    put_out(t, result, d.rank, kind == 0 ? d.y : kind == 1 ? d.x : d.w);
}

TEST(convolutions_agree_with_the_plain_ones)
{
    size_t taken = 0;
    for (size_t i = 0; i < SHAPES; i++)
        for (int mode = 0; mode < 5; mode++) {
            TESTING(t);
            make_conv(&t, &shapes[i], mode < 4 ? mode % 3 : 2, mode == 3,
                      mode == 4 ? EBB_F32 : EBB_BF16);
            taken += agrees(&t, names[mode < 4 ? mode % 3 : 2]);
        }
    assert_true(taken > 3 * SHAPES);
}

/* 64 MiB of copies and more: dW is the sum of several parts, in float32. */
TEST(large_batches_go_through_in_parts)
{
    static const shape large = {"parts and a rest", 2,      19,     64,     2,           1,
                                {180, 180},         {1, 2}, {1, 1}, {1, 1}, {0, 1, 0, 0}};
    const ebb_threads_before before = ebb_threads_enter(2);
    for (int kind = 0; kind < KINDS; kind++) {
        TESTING(t);
        size_t bytes = 0;
        make_conv(&t, &large, kind, false, EBB_BF16);
        check_status(kernel_named(names[kind])->workspace(&t.call, &bytes), names[kind]);
        assert_true(bytes < t.in[0].bytes + t.in[1].bytes + t.out[0].bytes);
        assert_true(agrees(&t, names[kind]));
    }
    ebb_threads_leave(before);
}

static void check_product(ebb_op op, const char *kernel, const int64_t *a, int ra, const int64_t *b,
                          int rb, const int64_t *y, int ry, int turned, ebb_dtype result)
{
    TESTING(t);
    begin(&t, op);
    if (op != EBB_OP_MATMUL) {
        put_int(&t, "transA", turned & 1);
        put_int(&t, "transB", turned >> 1);
    }
    put_float(&t, "alpha", op == EBB_OP_FUSED_MATMUL ? 0.375 : 1.0);
    put_in(&t, EBB_BF16, ra, a);
    put_in(&t, EBB_BF16, rb, b);
    if (op == EBB_OP_GEMM)
        put_in(&t, EBB_BF16, 1, &y[ry - 1]);
    put_out(&t, result, ry, y);
    assert_true(agrees(&t, kernel));
}

TEST(products_agree_with_the_plain_ones)
{
    static const int64_t sizes[][3] = {{1, 1, 1},    {5, 9, 7},     {33, 65, 70},
                                       {64, 64, 64}, {13, 21, 300}, {128, 3, 77}};
    static const ebb_dtype results[] = {EBB_BF16, EBB_F32};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int turned = 0; turned < 4; turned++)
            for (int r = 0; r < 2; r++) {
                const int64_t m = sizes[i][0], n = sizes[i][1], k = sizes[i][2];
                const int64_t *a = turned & 1 ? D(k, m) : D(m, k);
                const int64_t *b = turned & 2 ? D(n, k) : D(k, n);
                check_product(EBB_OP_GEMM, "dnnl.gemm", a, 2, b, 2, D(m, n), 2, turned, results[r]);
                check_product(EBB_OP_FUSED_MATMUL, "dnnl.fused_matmul",
                              turned & 1 ? D(2, 3, k, m) : D(2, 3, m, k), 4,
                              turned & 2 ? D(2, 3, n, k) : D(2, 3, k, n), 4, D(2, 3, m, n), 4,
                              turned, results[r]);
                if (turned == 0)
                    check_product(EBB_OP_MATMUL, "dnnl.matmul", D(3, m, k), 3, D(k, n), 2,
                                  D(3, m, n), 3, 0, results[r]);
            }
}

TEST(pools_agree_with_the_plain_ones)
{
    size_t taken = 0;
    for (size_t i = 0; i < SHAPES; i++) {
        const shape *s = &shapes[i];
        dims d = dims_of(s);
        TESTING(t);
        begin(&t, EBB_OP_AVERAGE_POOL);
        t.call.node = s->what;
        put_window(&t, s);
        put_in(&t, EBB_BF16, d.rank, d.x);
        d.y[1] = s->c;
        put_out(&t, EBB_BF16, d.rank, d.y);
        taken += agrees(&t, "dnnl.average_pool");
    }
    assert_true(taken > SHAPES / 2);
}

TEST(in_pieces_they_agree_as_well)
{
    const ebb_threads_before before = ebb_threads_enter(3);
    deterministic = true;
    convolutions_agree_with_the_plain_ones(state);
    products_agree_with_the_plain_ones(state);
    large_batches_go_through_in_parts(state);
    deterministic = false;
    ebb_threads_leave(before);
}

int main(void)
{
    if (!ebb_dnnl_multiplies(EBB_BF16)) {
        print_message("this processor multiplies no bfloat16: nothing to compare\n");
        return 0;
    }
    return run_listed();
}
