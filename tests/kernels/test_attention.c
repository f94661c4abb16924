/* test_attention.c: the kernels of attention that go by tiles against the plain ones, which go by
 * rows: sizes that fill no tile, masks of every kind, several tiles, and rows that see no key.
 */
#include "tests/kernels/attention_problems.h"

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
    double *expected = values_of(sum), *y_expected = values_of(&t->out[0]);
    run_with(t, fast);
    for (size_t i = 0; i < count_of(sum); i++)
        assert_true(isnan(expected[i]) == isnan(value_of(sum, i)));
    check_close(&t->out[0], y_expected, TOLERANCE, fast);
    free(expected);
    free(y_expected);
}

/* The gradient, with the statistics that the forward has just made. */
static void check_backward(const problem *p, const ebb_operand *max, const ebb_operand *sum,
                           uint32_t wanted)
{
    const int64_t y[] = {p->b, p->h, p->s, p->e}, row[] = {p->b, p->h, p->s, 1};
    bool drops = p->ratio > 0;
    testing t;
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
    end(&t);
}

static void tiles_agree_with_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof problems / sizeof problems[0]; i++) {
        testing t;
        check_forward(&t, &problems[i]);
        for (uint32_t wanted = 1; wanted < 8; wanted += i < 3 ? 1 : 6)
            check_backward(&problems[i], &t.out[1], &t.out[2], wanted);
        check_backward(&problems[i], &t.out[1], &t.out[2], 7);
        end(&t);
    }
}

/* A row of NaN stays one where nobody guards. */
static void a_row_that_sees_no_key_is_no_number(void **state)
{
    (void)state;
    static const char *const names[] = {"plain.attention", "dnnl.attention"};
    problem p = {2, 1, 3, 4, 2, 2, true, false, false, SHUT, -INFINITY, 0, 0, 0};
    for (int k = 0; k < 2; k++) {
        testing t;
        const int64_t y[] = {p.b, p.h, p.s, p.e};
        begin(&t, EBB_OP_EBB_ATTENTION);
        put_attributes(&t, &p);
        put_operands(&t, &p, EBB_F32);
        ((uint8_t *)t.in[3].data)[3] = 1; // the first of the batch sees one key
        put_out(&t, EBB_F32, 4, y);
        run_with(&t, names[k]);
        for (size_t i = 0; i < count_of(&t.out[0]); i++)
            assert_true(isnan(value_of(&t.out[0], i)) == (i >= count_of(&t.out[0]) / 2));
        end(&t);
    }
}

/* One head is one thread's work: the bits depend on no number of threads. */
static void any_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    problem p = {2, 3, 70, 70, 16, 16, true, true, false, OPEN, -INFINITY, 0, 0, 0.1};
    unsigned char *first = NULL;
    size_t bytes = 0;
    const ebb_threads_before before = ebb_threads_enter(1);
    for (int threads = 1; threads <= 4; threads++) {
        const int64_t y[] = {p.b, p.h, p.s, p.e}, row[] = {p.b, p.h, p.s, 1};
        testing t;
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
        end(&t);
    }
    free(first);
    ebb_threads_leave(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiles_agree_with_rows),
        cmocka_unit_test(a_row_that_sees_no_key_is_no_number),
        cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
