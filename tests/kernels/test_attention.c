/* test_attention.c: the kernels of attention that go by tiles against the plain ones, which go by
 * rows: sizes that fill no tile, masks of every kind, several tiles, and rows that see no key.
 */
#include "tests/kernels/attention_problems.h"
#include "tests/owned.h"

static const double TOLERANCE = 2e-5;

static void check_forward(testing *t, const problem *p)
{
    const int64_t y[] = {p->b, p->h, p->s, p->e}, row[] = {p->b, p->h, p->s, 1};
    bool drops = p->ratio > 0;
    begin(t, drops ? EBB_OP_EBB_ATTENTION_DROPOUT : EBB_OP_EBB_ATTENTION);
    put_attributes(t, p);
    put_operands(t, p, EBB_F32);
    put_key(t, p);
    put_out(t, EBB_F32, 4, y);
    put_out(t, EBB_F32, 4, row);
    ebb_operand *sum = put_out(t, EBB_F32, 4, row);
    const char *fast = drops ? "dnnl.attention_dropout" : "dnnl.attention";
    const char *plain = drops ? "plain.attention_dropout" : "plain.attention";
    if (!p->guard) {
        check_agree(t, fast, plain, TOLERANCE);
        return;
    }
    // Rows without a key have no sum: compared by hand, since nothing equals a NaN.
    run_with(t, plain);
    FREED double *expected = values_of(sum), *y_expected = values_of(&t->out[0]);
    run_with(t, fast);
    for (size_t i = 0; i < count_of(sum); i++)
        assert_true(isnan(expected[i]) == isnan(value_of(sum, i)));
    check_close(&t->out[0], y_expected, TOLERANCE, fast);
}

/* The gradient, with the statistics that the forward has just made. */
static void check_backward(const problem *p, const ebb_operand *max, const ebb_operand *sum,
                           uint32_t wanted)
{
    const int64_t y[] = {p->b, p->h, p->s, p->e}, row[] = {p->b, p->h, p->s, 1};
    bool drops = p->ratio > 0;
    TESTING(t);
    begin(&t, drops ? EBB_OP_EBB_ATTENTION_DROPOUT_GRAD : EBB_OP_EBB_ATTENTION_GRAD);
    put_attributes(&t, p);
    put_in(&t, EBB_F32, 4, y);
    t.draws = 1; // the operands of the forward
    put_operands(&t, p, EBB_F32);
    for (int i = 0; i < 2; i++) {
        ebb_operand *o = put_in(&t, EBB_F32, 4, row);
        memcpy(o->data, (i == 0 ? max : sum)->data, o->bytes);
    }
    put_key(&t, p);
    for (uint32_t i = 0; i < 3; i++) {
        if ((wanted >> i & 1) != 0)
            put_out(&t, EBB_F32, 4, t.in[1 + i].type.dims);
        else
            t.out[t.call.output_count++].type = ebb_type_none();
    }
    check_agree(&t, drops ? "dnnl.attention_dropout_grad" : "dnnl.attention_grad",
                drops ? "plain.attention_dropout_grad" : "plain.attention_grad", TOLERANCE);
}

TEST(tiles_agree_with_rows)
{
    for (size_t i = 0; i < sizeof problems / sizeof problems[0]; i++) {
        TESTING(t);
        check_forward(&t, &problems[i]);
        for (uint32_t wanted = 1; wanted < 8; wanted += i < 3 ? 1 : 6)
            check_backward(&problems[i], &t.out[1], &t.out[2], wanted);
        check_backward(&problems[i], &t.out[1], &t.out[2], 7);
    }
}

/* ---- operands of 16 bits ---- */

/* A gradient's statistics are any numbers: its bits are asked for, not what they mean. */
static void make_narrow(testing *t, const problem *p, ebb_dtype dtype, bool grad)
{
    const int64_t y[] = {p->b, p->h, p->s, p->e}, row[] = {p->b, p->h, p->s, 1};
    const bool drops = p->ratio > 0;
    const ebb_op forward = drops ? EBB_OP_EBB_ATTENTION_DROPOUT : EBB_OP_EBB_ATTENTION;
    const ebb_op backward = drops ? EBB_OP_EBB_ATTENTION_DROPOUT_GRAD : EBB_OP_EBB_ATTENTION_GRAD;
    begin(t, grad ? backward : forward);
    put_attributes(t, p);
    if (grad)
        put_in(t, dtype, 4, y);
    put_operands(t, p, dtype);
    for (int i = 0; grad && i < 2; i++) {
        ebb_operand *o = put_in(t, EBB_F32, 4, row);
        for (size_t k = 0; k < count_of(o); k++)
            set_value(o, k, i == 0 ? 3 : (double)p->t);
    }
    put_key(t, p);
    put_out(t, dtype, 4, grad ? t->in[1].type.dims : y);
    for (int i = 1; i < 3; i++)
        put_out(t, grad ? dtype : EBB_F32, 4, grad ? t->in[1 + i].type.dims : row);
}

/* What is drawn, as 16 bits hold it. */
static void round_inputs(testing *wide, const testing *narrow)
{
    for (uint32_t i = 0; i < wide->call.input_count; i++)
        for (size_t k = 0; wide->in[i].type.dtype == EBB_F32 && k < count_of(&wide->in[i]); k++)
            set_value(&wide->in[i], k, value_of(&narrow->in[i], k));
}

static double rounded(double x, ebb_dtype dtype)
{
    return dtype == EBB_BF16  ? (double)ebb_bf16_to_float(ebb_float_to_bf16((float)x))
           : dtype == EBB_F16 ? (double)ebb_half_to_float(ebb_float_to_half((float)x))
                              : x;
}

/* Where products are of bfloat16, P and dS are rounded for them, by up to 2^-9 of each: of what is summed
 * from them, such a share of its largest, and a last digit where that differs. */
static const double P_ROUNDED = 0x1p-7;

static double largest(const ebb_operand *o)
{
    double most = 0;
    for (size_t k = 0; k < count_of(o); k++)
        if (isfinite(value_of(o, k)))
            most = fmax(most, fabs(value_of(o, k)));
    return most;
}

static void check_narrow(const problem *p, ebb_dtype dtype, bool grad)
{
    const bool drops = p->ratio > 0;
    const char *kernel = drops && grad ? "dnnl.attention_dropout_grad"
                         : drops       ? "dnnl.attention_dropout"
                         : grad        ? "dnnl.attention_grad"
                                       : "dnnl.attention";
    TESTING(wide);
    TESTING(narrow);
    make_narrow(&narrow, p, dtype, grad);
    make_narrow(&wide, p, EBB_F32, grad);
    round_inputs(&wide, &narrow);
    run_with(&wide, kernel);
    run_with(&narrow, kernel);
    for (uint32_t o = 0; o < 3; o++) {
        const double share = dtype == EBB_BF16 ? P_ROUNDED * largest(&wide.out[o]) : 0;
        for (size_t k = 0; k < count_of(&wide.out[o]); k++) {
            const double got = value_of(&narrow.out[o], k);
            const double expected =
                rounded(value_of(&wide.out[o], k), (ebb_dtype)narrow.out[o].type.dtype);
            if (got != expected && !(fabs(got - expected) <= share) &&
                !(isnan(got) && isnan(expected)))
                fail_msg("%s, %s: output %u[%zu] is %.9g, expected %.9g", kernel,
                         ebb_dtype_name(dtype), (unsigned)o, k, got, expected);
        }
    }
}

/* Widening the operands and rounding the results around the same kernel would give these bits of float16,
 * and of bfloat16 where products are of float32. */
TEST(of_16_bits_it_is_that_of_float32_rounded)
{
    for (size_t i = 0; i < sizeof problems / sizeof problems[0]; i++)
        for (int k = 0; k < 4; k++)
            check_narrow(&problems[i], k < 2 ? EBB_BF16 : EBB_F16, k % 2 == 1);
}

/* No copy of the operands: what grows with the number of heads is not in the workspace. */
TEST(of_16_bits_it_takes_no_copy_of_all_heads)
{
    problem p = {4, 16, 64, 64, 64, 64, true, false, false, OPEN, -INFINITY, 0, 0, 0};
    size_t few = 0, many = 0, wide = 0;
    const ebb_threads_before before = ebb_threads_enter(2);
    for (int k = 0; k < 3; k++) {
        TESTING(t);
        p.b = k == 0 ? 1 : 4;
        make_narrow(&t, &p, k == 2 ? EBB_F32 : EBB_BF16, true);
        check_status(kernel_named("dnnl.attention_grad")
                         ->workspace(&t.call, k == 0   ? &few
                                              : k == 1 ? &many
                                                       : &wide),
                     "workspace");
    }
    ebb_threads_leave(before);
    assert_int_equal(few, many);
    assert_true(many < wide + wide / 4);
}

/* A row of NaN stays one where nobody guards. */
TEST(a_row_that_sees_no_key_is_no_number)
{
    static const char *const names[] = {"plain.attention", "dnnl.attention"};
    problem p = {2, 1, 3, 4, 2, 2, true, false, false, SHUT, -INFINITY, 0, 0, 0};
    for (int k = 0; k < 2; k++) {
        TESTING(t);
        const int64_t y[] = {p.b, p.h, p.s, p.e};
        begin(&t, EBB_OP_EBB_ATTENTION);
        put_attributes(&t, &p);
        put_operands(&t, &p, EBB_F32);
        ((uint8_t *)t.in[3].data)[3] = 1; // the first of the batch sees one key
        put_out(&t, EBB_F32, 4, y);
        run_with(&t, names[k]);
        for (size_t i = 0; i < count_of(&t.out[0]); i++)
            assert_true(isnan(value_of(&t.out[0], i)) == (i >= count_of(&t.out[0]) / 2));
    }
}

/* One head is one thread's work: the bits depend on no number of threads. */
TEST(any_number_of_threads_gives_the_same_bits)
{
    problem p = {2, 3, 70, 70, 16, 16, true, true, false, OPEN, -INFINITY, 0, 0, 0.1};
    unsigned char *first = NULL;
    size_t bytes = 0;
    const ebb_threads_before before = ebb_threads_enter(1);
    for (int threads = 1; threads <= 4; threads++) {
        const int64_t y[] = {p.b, p.h, p.s, p.e}, row[] = {p.b, p.h, p.s, 1};
        TESTING(t);
        (void)ebb_threads_enter(threads);
        begin(&t, EBB_OP_EBB_ATTENTION_DROPOUT_GRAD);
        put_attributes(&t, &p);
        put_in(&t, EBB_F32, 4, y);
        put_operands(&t, &p, EBB_F32);
        put_in(&t, EBB_F32, 4, row);
        ebb_operand *sum = put_in(&t, EBB_F32, 4, row);
        for (size_t i = 0; i < count_of(sum); i++)
            set_value(sum, i, 70);
        put_key(&t, &p);
        put_out(&t, EBB_F32, 4, t.in[1].type.dims);
        ebb_operand *dk = put_out(&t, EBB_F32, 4, t.in[2].type.dims);
        run_with(&t, "dnnl.attention_dropout_grad");
        if (first == NULL) {
            bytes = dk->bytes;
            first = malloc(bytes);
            assert_non_null(first);
            memcpy(first, dk->data, bytes);
        }
        assert_memory_equal(first, dk->data, bytes);
    }
    free(first);
    ebb_threads_leave(before);
}
