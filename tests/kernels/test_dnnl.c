/* test_dnnl.c: every kernel of kernels/fast against the plain one, on shapes that are not round.
 *
 * float32 sums of up to a few thousand terms in another order: 2e-5 of the largest result.
 */
#include "tests/kernels/dnnl_shapes.h"
#include "tests/owned.h"

#include <oneapi/dnnl/dnnl.h>
#include <unistd.h>

static const double TOLERANCE = 2e-5;

static void conv_agrees(bool biased)
{
    for (size_t i = 0; i < SHAPES; i++) {
        const shape *s = &shapes[i];
        dims d = dims_of(s);
        TESTING(t);
        begin(&t, EBB_OP_CONV);
        t.call.node = s->what;
        put_window(&t, s);
        put_int(&t, "group", s->groups);
        put_in(&t, EBB_F32, d.rank, d.x);
        put_in(&t, EBB_F32, d.rank, d.w);
        if (biased)
            put_in(&t, EBB_F32, 1, d.w);
        put_out(&t, EBB_F32, d.rank, d.y);
        check_agree(&t, "dnnl.conv", "plain.conv", TOLERANCE);
    }
}

TEST(conv_agrees_with_the_plain_one)
{
    conv_agrees(false);
}

TEST(conv_with_a_bias_agrees_with_the_plain_one)
{
    conv_agrees(true);
}

TEST(conv_transpose_as_input_gradient_agrees)
{
    for (size_t i = 0; i < SHAPES; i++) {
        const shape *s = &shapes[i];
        dims d = dims_of(s);
        for (int biased = 0; biased < 2; biased++) {
            int64_t extra[3];
            for (int a = 0; a < s->spatial; a++) {
                int64_t reach = (s->kernel[a] - 1) * s->dilation[a] + 1;
                extra[a] =
                    (s->size[a] + s->pads[a] + s->pads[s->spatial + a] - reach) % s->stride[a];
            }
            TESTING(t);
            begin(&t, EBB_OP_CONV_TRANSPOSE);
            t.call.node = s->what;
            put_window(&t, s);
            put_int(&t, "group", s->groups);
            put_ints(&t, "output_padding", (uint32_t)s->spatial, extra);
            put_in(&t, EBB_F32, d.rank, d.y);
            put_in(&t, EBB_F32, d.rank, d.w);
            if (biased)
                put_in(&t, EBB_F32, 1, &d.x[1]);
            put_out(&t, EBB_F32, d.rank, d.x);
            check_agree(&t, "dnnl.conv_transpose", "plain.conv_transpose", TOLERANCE);
        }
    }
}

TEST(conv_weight_grad_agrees_with_the_plain_one)
{
    for (size_t i = 0; i < SHAPES; i++) {
        const shape *s = &shapes[i];
        dims d = dims_of(s);
        TESTING(t);
        begin(&t, EBB_OP_CONV_WEIGHT_GRAD);
        t.call.node = s->what;
        put_window(&t, s);
        put_int(&t, "group", s->groups);
        put_in(&t, EBB_F32, d.rank, d.y);
        put_in(&t, EBB_F32, d.rank, d.x);
        put_out(&t, EBB_F32, d.rank, d.w);
        check_agree(&t, "dnnl.conv_weight_grad", "plain.conv_weight_grad", TOLERANCE);
    }
}

/* Rows of 3x3 filters, one a channel: every border, both strides, all three directions. */
TEST(depthwise_by_rows_agrees_with_the_plain_one)
{
    static const ebb_op ops[] = {EBB_OP_CONV, EBB_OP_CONV_TRANSPOSE, EBB_OP_CONV_WEIGHT_GRAD};
    static const char *const names[][2] = {{"rows.conv", "plain.conv"},
                                           {"rows.conv_transpose", "plain.conv_transpose"},
                                           {"rows.conv_weight_grad", "plain.conv_weight_grad"}};
    size_t taken = 0;
    for (int64_t size = 1; size < 70; size += size < 40 ? 1 : 13)
        for (int64_t mode = 0; mode < 18; mode++) {
            shape s = {"depthwise rows",
                       2,
                       2,
                       3,
                       3,
                       3,
                       {size % 5 + 1, size},
                       {3, 3},
                       {0},
                       {1, 1},
                       {1, mode % 3, 1, mode / 3 % 3}};
            s.stride[0] = s.stride[1] = mode / 9 + 1;
            int64_t rest[2], room = size + s.pads[1] + s.pads[3] - 3;
            if (room < 0)
                continue;
            rest[0] = (s.size[0] - 1) % s.stride[0];
            rest[1] = room % s.stride[1];
            dims d = dims_of(&s);
            for (int o = 0; o < 3; o++) {
                TESTING(t);
                begin(&t, ops[o]);
                put_window(&t, &s);
                put_int(&t, "group", 3);
                put_ints(&t, "output_padding", 2, rest);
                put_in(&t, EBB_F32, 4, o == 0 ? d.x : d.y);
                put_in(&t, EBB_F32, 4, o == 2 ? d.x : d.w);
                if (o < 2 && size % 2 == 0)
                    put_in(&t, EBB_F32, 1, d.w);
                put_out(&t, EBB_F32, 4, o == 0 ? d.y : o == 1 ? d.x : d.w);
                if (declined_by(&t, names[o][0]) == NULL) {
                    check_agree(&t, names[o][0], names[o][1], TOLERANCE);
                    taken++;
                }
            }
        }
    assert_true(taken > 200);
}

/* ---- other layouts: the same numbers elsewhere ---- */

static void to_channels_last(ebb_operand *o)
{
    FREED double *v = values_of(o);
    int64_t channels = o->type.dims[1], volume = 1;
    for (int i = 2; i < o->type.rank; i++)
        volume *= o->type.dims[i];
    for (int64_t n = 0; n < o->type.dims[0]; n++)
        for (int64_t c = 0; c < channels; c++)
            for (int64_t s = 0; s < volume; s++)
                set_value(o, (size_t)((n * volume + s) * channels + c),
                          v[(n * channels + c) * volume + s]);
    o->type.layout.kind = EBB_LAYOUT_CHANNELS_LAST;
}

TEST(conv_takes_channels_last)
{
    for (size_t i = 0; i < SHAPES; i++) {
        const shape *s = &shapes[i];
        dims d = dims_of(s);
        TESTING(t);
        begin(&t, EBB_OP_CONV);
        put_window(&t, s);
        put_int(&t, "group", s->groups);
        put_in(&t, EBB_F32, d.rank, d.x);
        put_in(&t, EBB_F32, d.rank, d.w);
        put_out(&t, EBB_F32, d.rank, d.y);
        run_with(&t, "plain.conv");
        to_channels_last(&t.in[0]);
        to_channels_last(&t.out[0]);
        FREED double *expected = values_of(&t.out[0]);
        run_with(&t, "dnnl.conv");
        check_close(&t.out[0], expected, TOLERANCE, s->what);
    }
}

/* ---- pools ---- */

static int64_t pooled(const shape *s, int i, bool ceiling)
{
    int64_t room =
        s->size[i] + s->pads[i] + s->pads[s->spatial + i] - (s->kernel[i] - 1) * s->dilation[i] - 1;
    int64_t out = (ceiling ? room + s->stride[i] - 1 : room) / s->stride[i] + 1;
    if (ceiling && (out - 1) * s->stride[i] >= s->size[i] + s->pads[i])
        out--;
    return out;
}

static void put_pool(testing *t, const shape *s, ebb_op op, bool ceiling, bool padded, dims *d)
{
    *d = dims_of(s);
    begin(t, op);
    t->call.node = s->what;
    put_window(t, s);
    put_int(t, "ceil_mode", ceiling);
    put_int(t, "count_include_pad", padded);
    d->y[1] = s->c;
    for (int i = 0; i < s->spatial; i++)
        d->y[2 + i] = pooled(s, i, ceiling);
}

static void pools_agree(ebb_op op, const char *kernel, const char *oracle, bool indices)
{
    for (size_t i = 0; i < SHAPES; i++)
        for (int mode = 0; mode < 4; mode++) {
            TESTING(t);
            dims d;
            put_pool(&t, &shapes[i], op, mode & 1, mode & 2, &d);
            bool backward = op == EBB_OP_MAX_POOL_GRAD || op == EBB_OP_AVERAGE_POOL_GRAD;
            put_in(&t, EBB_F32, d.rank, backward ? d.y : d.x);
            if (op == EBB_OP_MAX_POOL_GRAD)
                put_in(&t, EBB_F32, d.rank, d.x);
            put_out(&t, EBB_F32, d.rank, backward ? d.x : d.y);
            if (indices)
                put_out(&t, EBB_I64, d.rank, d.y);
            check_agree(&t, kernel, oracle, op == EBB_OP_MAX_POOL ? 0 : 1e-6);
        }
}

TEST(pools_by_rows_agree_with_the_plain_ones)
{
    pools_agree(EBB_OP_MAX_POOL, "rows.max_pool", "plain.max_pool", false);
    pools_agree(EBB_OP_MAX_POOL, "rows.max_pool", "plain.max_pool", true);
    pools_agree(EBB_OP_AVERAGE_POOL, "rows.average_pool", "plain.average_pool", false);
    pools_agree(EBB_OP_MAX_POOL_GRAD, "rows.max_pool_grad", "plain.max_pool_grad", false);
    pools_agree(EBB_OP_AVERAGE_POOL_GRAD, "rows.average_pool_grad", "plain.average_pool_grad",
                false);
}

TEST(ties_and_nans_go_the_same_way)
{
    for (size_t i = 0; i < SHAPES; i++) {
        TESTING(t);
        dims d;
        put_pool(&t, &shapes[i], EBB_OP_MAX_POOL, false, false, &d);
        ebb_operand *x = put_in(&t, EBB_F32, d.rank, d.x);
        for (size_t e = 0; e < count_of(x); e++)
            set_value(x, e, e % 29 == 3 ? -(double)INFINITY : floor(2 * draw(&t)));
        put_out(&t, EBB_F32, d.rank, d.y);
        put_out(&t, EBB_I64, d.rank, d.y);
        check_agree(&t, "rows.max_pool", "plain.max_pool", 0);
        // NaN values differ from themselves, so compare only where they were found
        for (size_t e = 0; e < count_of(x); e += 7)
            set_value(x, e, (double)NAN);
        run_with(&t, "plain.max_pool");
        FREED double *expected = values_of(&t.out[1]);
        run_with(&t, "rows.max_pool");
        check_close(&t.out[1], expected, 0, "indices beside NaN");
    }
}

TEST(pools_take_channels_last)
{
    static const ebb_op ops[] = {EBB_OP_MAX_POOL, EBB_OP_AVERAGE_POOL};
    static const char *const names[][2] = {{"dnnl.max_pool", "plain.max_pool"},
                                           {"dnnl.average_pool", "plain.average_pool"}};
    size_t taken = 0;
    for (size_t i = 0; i < SHAPES; i++)
        for (int mode = 0; mode < 8; mode++) {
            TESTING(t);
            dims d;
            put_pool(&t, &shapes[i], ops[mode & 1], mode & 2, mode & 4, &d);
            put_in(&t, EBB_F32, d.rank, d.x);
            put_out(&t, EBB_F32, d.rank, d.y);
            run_with(&t, names[mode & 1][1]);
            to_channels_last(&t.in[0]);
            to_channels_last(&t.out[0]);
            if (declined_by(&t, names[mode & 1][0]) == NULL) {
                double *expected = values_of(&t.out[0]);
                run_with(&t, names[mode & 1][0]);
                check_close(&t.out[0], expected, 1e-6, shapes[i].what);
                free(expected);
                taken++;
            }
        }
    assert_true(taken > 4 * SHAPES);
}

/* ---- products ---- */

static void fused(const int64_t *a, int ra, const int64_t *b, int rb, const int64_t *y, int ry,
                  bool left, bool right, double alpha)
{
    TESTING(t);
    begin(&t, EBB_OP_FUSED_MATMUL);
    put_int(&t, "transA", left);
    put_int(&t, "transB", right);
    put_float(&t, "alpha", alpha);
    put_in(&t, EBB_F32, ra, a);
    put_in(&t, EBB_F32, rb, b);
    put_out(&t, EBB_F32, ry, y);
    check_agree(&t, "dnnl.fused_matmul", "plain.fused_matmul", TOLERANCE);
}

/* Where the matrix is known, rows of zeros are passed by; one that ends in a number is none. */
static void beside_rows_of_zeros(int64_t rows, int64_t inner, int64_t columns, bool right, bool all,
                                 double alpha)
{
    static const ebb_tensor known;
    TESTING(t);
    begin(&t, EBB_OP_FUSED_MATMUL);
    put_int(&t, "transB", right);
    put_float(&t, "alpha", alpha);
    put_in(&t, EBB_F32, 2, D(rows, inner));
    put_in(&t, EBB_F32, 2, right ? D(columns, inner) : D(inner, columns));
    put_out(&t, EBB_F32, 2, D(rows, columns));
    t.in[1].constant = &known;
    float *a = t.in[0].data;
    for (int64_t r = 0; r < rows; r++)
        if (all || r % 3 == 1)
            memset(a + r * inner, 0, (size_t)(inner - (!all && r % 6 == 1)) * sizeof *a);
    check_agree(&t, "dnnl.fused_matmul", "plain.fused_matmul", TOLERANCE);
}

TEST(products_pass_rows_of_zeros_by)
{
    for (int turned = 0; turned < 2; turned++) {
        beside_rows_of_zeros(5, 7, 9, turned, false, 1);
        beside_rows_of_zeros(40, 33, 65, turned, false, 0.5);
        beside_rows_of_zeros(40, 33, 65, turned, true, 0.5);
        beside_rows_of_zeros(70, 1100, 530, turned, false, -2);
    }
}

TEST(fused_matmul_agrees_with_the_plain_one)
{
    fused(D(5, 7), 2, D(7, 9), 2, D(5, 9), 2, false, false, 1);
    fused(D(7, 5), 2, D(7, 9), 2, D(5, 9), 2, true, false, 1);
    fused(D(5, 7), 2, D(9, 7), 2, D(5, 9), 2, false, true, 1);
    fused(D(70, 33), 2, D(65, 70), 2, D(33, 65), 2, true, true, 0.125);
    fused(D(1, 1), 2, D(1, 1), 2, D(1, 1), 2, false, true, -2);
    fused(D(2, 3, 16, 8), 4, D(2, 3, 16, 8), 4, D(2, 3, 16, 16), 4, false, true, 0.5);
    fused(D(2, 3, 16, 8), 4, D(2, 3, 16, 8), 4, D(2, 3, 8, 8), 4, true, false, 1);
    fused(D(4, 17, 31), 3, D(31, 19), 2, D(4, 17, 19), 3, false, false, 1);
    fused(D(4, 17, 31), 3, D(19, 31), 2, D(4, 17, 19), 3, false, true, 3);
    fused(D(4, 31, 17), 3, D(31, 19), 2, D(4, 17, 19), 3, true, false, 1);
    fused(D(17, 31), 2, D(4, 31, 19), 3, D(4, 17, 19), 3, false, false, 1);
    fused(D(1, 3, 5, 6), 4, D(2, 1, 6, 7), 4, D(2, 3, 5, 7), 4, false, false, 1);
    fused(D(2, 1, 3, 5, 6), 5, D(4, 1, 6, 7), 4, D(2, 4, 3, 5, 7), 5, false, false, 1);
    fused(D(2, 4, 3, 5, 6), 5, D(4, 1, 7, 6), 4, D(2, 4, 3, 5, 7), 5, false, true, 1);
}

TEST(matmul_takes_vectors_and_batches)
{
    static const struct {
        int ra, rb, ry;
        int64_t a[3], b[3], y[3];
    } cases[] = {
        {1, 1, 0, {9}, {9}, {0}},
        {1, 2, 1, {9}, {9, 4}, {4}},
        {2, 1, 1, {5, 9}, {9}, {5}},
        {3, 1, 2, {2, 5, 9}, {9}, {2, 5}},
        {1, 3, 2, {9}, {2, 9, 4}, {2, 4}},
        {3, 3, 3, {2, 5, 9}, {2, 9, 4}, {2, 5, 4}},
        {2, 2, 2, {1, 64}, {64, 1}, {1, 1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        TESTING(t);
        begin(&t, EBB_OP_MATMUL);
        put_in(&t, EBB_F32, cases[i].ra, cases[i].a);
        put_in(&t, EBB_F32, cases[i].rb, cases[i].b);
        put_out(&t, EBB_F32, cases[i].ry, cases[i].y);
        check_agree(&t, "dnnl.matmul", "plain.matmul", TOLERANCE);
    }
}

/* Dims above INT32_MAX are beyond what oneDNN's products count with. The tensors are too large for a
 * test, so it listens to what oneDNN says of the product that it is asked to make. */
TEST(batches_of_too_many_rows_are_not_folded)
{
    TESTING(t);
    char said[4096];
    begin(&t, EBB_OP_MATMUL);
    put_in(&t, EBB_F32, 3, D(1, 1, 1));
    put_in(&t, EBB_F32, 2, D(1, 1));
    put_out(&t, EBB_F32, 3, D(1, 1, 1));
    t.in[0].type.dims[0] = t.out[0].type.dims[0] = 1 << 16;
    t.in[0].type.dims[1] = t.out[0].type.dims[1] = 1 << 15;
    t.in[0].bytes = t.out[0].bytes = (size_t)1 << 33;
    assert_null(declined_by(&t, "dnnl.matmul"));
    FILE *file = tmpfile();
    assert_non_null(file);
    (void)fflush(stdout);
    int out = dup(1);
    assert_true(out >= 0 && dup2(fileno(file), 1) == 1);
    (void)dnnl_set_verbose(2);
    ebb_status status = kernel_named("dnnl.matmul")->workspace(&t.call, &t.call.workspace_bytes);
    t.call.workspace = guarded(t.call.workspace_bytes);
    if (status == NULL)
        status = kernel_named("dnnl.matmul")->prepare(&t.call);
    (void)dnnl_set_verbose(0);
    (void)fflush(stdout);
    assert_true(dup2(out, 1) == 1);
    (void)close(out);
    check_status(status, "dnnl.matmul");
    kernel_named("dnnl.matmul")->release(&t.call);
    unguard(t.call.workspace);
    rewind(file);
    size_t length = fread(said, 1, sizeof said - 1, file);
    said[length] = '\0';
    (void)fclose(file);
    if (strstr(said, "65536x32768x1") == NULL)
        fail_msg("oneDNN was asked for: %s", said);
    t.in[0].type.dims[0] = t.in[0].type.dims[1] = t.out[0].type.dims[0] = t.out[0].type.dims[1] = 1;
    t.in[0].bytes = t.out[0].bytes = sizeof(float);
}

TEST(gemm_agrees_with_the_plain_one)
{
    static const struct {
        int rank;
        int64_t dims[2];
    } c[] = {{-1, {0}}, {1, {21}}, {2, {1, 21}}, {2, {13, 1}}, {2, {13, 21}}, {0, {0}}, {1, {1}}};
    for (int transposed = 0; transposed < 4; transposed++)
        for (size_t i = 0; i < sizeof c / sizeof c[0]; i++) {
            TESTING(t);
            begin(&t, EBB_OP_GEMM);
            put_int(&t, "transA", transposed & 1);
            put_int(&t, "transB", transposed >> 1);
            put_in(&t, EBB_F32, 2, transposed & 1 ? D(34, 13) : D(13, 34));
            put_in(&t, EBB_F32, 2, transposed & 2 ? D(21, 34) : D(34, 21));
            if (c[i].rank >= 0)
                put_in(&t, EBB_F32, c[i].rank, c[i].dims);
            else
                put_float(&t, "alpha", 0.5);
            put_out(&t, EBB_F32, 2, D(13, 21));
            check_agree(&t, "dnnl.gemm", "plain.gemm", TOLERANCE);
        }
}

/* ---- manners ---- */

TEST(what_oneDNN_cannot_is_declined_with_a_reason)
{
    TESTING(t);
    begin(&t, EBB_OP_MATMUL);
    put_in(&t, EBB_F64, 2, D(2, 3));
    put_in(&t, EBB_F64, 2, D(3, 2));
    put_out(&t, EBB_F64, 2, D(2, 2));
    assert_non_null(declined_by(&t, "dnnl.matmul"));
    end(&t);
    begin(&t, EBB_OP_MATMUL);
    put_in(&t, EBB_F32, 2, D(2, 0));
    put_in(&t, EBB_F32, 2, D(0, 2));
    put_out(&t, EBB_F32, 2, D(2, 2));
    assert_non_null(declined_by(&t, "dnnl.matmul"));
    end(&t);
    begin(&t, EBB_OP_GEMM);
    put_float(&t, "beta", 0.5);
    put_in(&t, EBB_F32, 2, D(2, 3));
    put_in(&t, EBB_F32, 2, D(3, 2));
    put_in(&t, EBB_F32, 2, D(2, 2));
    put_out(&t, EBB_F32, 2, D(2, 2));
    assert_non_null(declined_by(&t, "dnnl.gemm"));
}

TEST(two_runs_give_the_same_bits)
{
    const shape *s = &shapes[3];
    dims d = dims_of(s);
    TESTING(t);
    begin(&t, EBB_OP_CONV_WEIGHT_GRAD);
    put_window(&t, s);
    put_in(&t, EBB_F32, d.rank, d.y);
    put_in(&t, EBB_F32, d.rank, d.x);
    put_out(&t, EBB_F32, d.rank, d.w);
    run_with(&t, "dnnl.conv_weight_grad");
    FREED void *first = malloc(t.out[0].bytes);
    assert_non_null(first);
    memcpy(first, t.out[0].data, t.out[0].bytes);
    for (int i = 0; i < 20; i++) {
        run_with(&t, "dnnl.conv_weight_grad");
        assert_memory_equal(first, t.out[0].data, t.out[0].bytes);
    }
}

/* Copies of whole operands of these would take 45 to 52 MiB: they go through in parts. 11 and 23
 * images leave a rest, 16 do not; 16 channels, so that oneDNN wants a layout of its own. */
// clang-format off
static const shape large[] = {
    {"parts and a rest",        2, 11, 16, 16, 1, {180, 180}, {1, 2},  {1, 1},    {1, 1},    {0, 1, 0, 0}},
    {"parts of groups",         2, 16, 32, 32, 4, {130, 130}, {1, 3},  {1, 2},    {1, 1},    {0, 1, 0, 1}},
    {"dilated parts",           1, 23, 16, 16, 1, {16001},    {2},     {1},       {3},       {0, 0}},
};
// clang-format on

/* Takes less workspace than copies of the operands, computes the same, and the same bits again. */
static void check_in_parts(testing *t, const char *kernel, const char *oracle)
{
    size_t bytes = 0, all = 0;
    for (uint32_t i = 0; i < t->call.input_count; i++)
        all += t->in[i].bytes;
    assert_null(kernel_named(kernel)->workspace(&t->call, &bytes));
    assert_true(bytes > 0);
    assert_true(bytes < (all + t->out[0].bytes) * 3 / 4);
    /* One thread adds up 368,000 products one after the other, two threads half as many each. */
    check_agree(t, kernel, oracle, 3 * TOLERANCE);
    FREED void *first = malloc(t->out[0].bytes);
    assert_non_null(first);
    run_with(t, kernel);
    memcpy(first, t->out[0].data, t->out[0].bytes);
    run_with(t, kernel);
    assert_memory_equal(first, t->out[0].data, t->out[0].bytes);
}

TEST(large_batches_go_through_in_parts)
{
    // with 16, the one block of these weights wants an image for each thread
    (void)ebb_threads_enter(2);
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++) {
        const shape *s = &large[i];
        dims d = dims_of(s);
        static const char *const names[][2] = {
            {"dnnl.conv", "plain.conv"},
            {"dnnl.conv_transpose", "plain.conv_transpose"},
            {"dnnl.conv_weight_grad", "plain.conv_weight_grad"},
        };
        static const ebb_op ops[] = {EBB_OP_CONV, EBB_OP_CONV_TRANSPOSE, EBB_OP_CONV_WEIGHT_GRAD};
        for (int k = 0; k < 3; k++) {
            TESTING(t);
            begin(&t, ops[k]);
            t.call.node = s->what;
            put_window(&t, s);
            put_int(&t, "group", s->groups);
            put_in(&t, EBB_F32, d.rank, k == 0 ? d.x : d.y);
            put_in(&t, EBB_F32, d.rank, k == 2 ? d.x : d.w);
            if (k < 2)
                put_in(&t, EBB_F32, 1, k == 0 ? &d.y[1] : &d.x[1]);
            put_out(&t, EBB_F32, d.rank, k == 0 ? d.y : k == 1 ? d.x : d.w);
            check_in_parts(&t, names[k][0], names[k][1]);
        }
    }
    (void)ebb_threads_enter(0);
}

TEST(too_little_workspace_is_an_error)
{
    const shape *s = &shapes[3];
    dims d = dims_of(s);
    TESTING(t);
    begin(&t, EBB_OP_CONV);
    put_window(&t, s);
    put_in(&t, EBB_F32, d.rank, d.x);
    put_in(&t, EBB_F32, d.rank, d.w);
    put_out(&t, EBB_F32, d.rank, d.y);
    const ebb_kernel *k = kernel_named("dnnl.conv");
    size_t bytes = 0;
    assert_null(k->workspace(&t.call, &bytes));
    assert_true(bytes > 0);
    assert_true(bytes <= 2 * (t.in[0].bytes + t.in[1].bytes + t.out[0].bytes));
    t.call.workspace_bytes = bytes - 1;
    assert_non_null(k->prepare(&t.call));
    assert_null(t.call.state);
    t.call.workspace_bytes = bytes;
    ebb_alloc_fail_after(1);
    ebb_status status = k->prepare(&t.call);
    ebb_alloc_fail_after(0);
    assert_non_null(status);
}

/* The same calls again, by pieces, with more threads than some have pieces. */
TEST(in_pieces_they_agree_as_well)
{
    static void (*const again[])(void **) = {
        conv_agrees_with_the_plain_one,
        conv_with_a_bias_agrees_with_the_plain_one,
        conv_transpose_as_input_gradient_agrees,
        conv_weight_grad_agrees_with_the_plain_one,
        conv_takes_channels_last,
        pools_by_rows_agree_with_the_plain_ones,
        pools_take_channels_last,
        fused_matmul_agrees_with_the_plain_one,
        products_pass_rows_of_zeros_by,
        matmul_takes_vectors_and_batches,
        gemm_agrees_with_the_plain_one,
        large_batches_go_through_in_parts,
    };
    const ebb_threads_before before = ebb_threads_enter(3);
    deterministic = true;
    for (size_t i = 0; i < sizeof again / sizeof again[0]; i++)
        again[i](state);
    deterministic = false;
    ebb_threads_leave(before);
}
