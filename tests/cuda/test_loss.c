/* test_loss.c: softmax, cross entropy and their gradients on the GPU against the plain kernels,
 * which have exponentials of their own (kernels/plain/vmath.h): a few units of the last place. */
#include "tests/cuda/bits.h"
#include "tests/cuda/in_place.h"
#include "tests/cuda/halves.h"
#include "tests/owned.h"

typedef struct scores {
    int rank;
    int64_t dims[4];
} scores;

static const scores shapes[] = {
    {2, {7, 33}}, {2, {3, 1500}}, {2, {2, 8300}}, {3, {4, 5, 6}}, {4, {2, 10, 7, 9}},
    {2, {70, 2}}, {2, {1, 1}},    {3, {3, 1, 5}}, {2, {0, 4}},    {3, {2, 3, 400}},
};
static const size_t shape_count = sizeof shapes / sizeof shapes[0];

static void put_scores(testing *t, const scores *s, ebb_dtype dtype, double scale)
{
    ebb_operand *x = put_in(t, dtype, s->rank, s->dims);
    for (size_t i = 0; i < count_of(x); i++)
        set_value(x, i, value_of(x, i) * scale);
}

static const struct {
    ebb_op op;
    const char *cuda, *plain;
    bool backward;
} softmaxes[] = {
    {EBB_OP_SOFTMAX, "cuda.softmax", "plain.softmax", false},
    {EBB_OP_LOG_SOFTMAX, "cuda.log_softmax", "plain.log_softmax", false},
    {EBB_OP_SOFTMAX_FLAT, "cuda.softmax_flat", "plain.softmax_flat", false},
    {EBB_OP_LOG_SOFTMAX_FLAT, "cuda.log_softmax_flat", "plain.log_softmax_flat", false},
    {EBB_OP_SOFTMAX_GRAD, "cuda.softmax_grad", "plain.softmax_grad", true},
    {EBB_OP_LOG_SOFTMAX_GRAD, "cuda.log_softmax_grad", "plain.log_softmax_grad", true},
};

static void put_softmax(testing *t, size_t k, const scores *s, int axis, ebb_dtype dtype)
{
    begin(t, softmaxes[k].op);
    put_int(t, "axis", axis);
    put_scores(t, s, dtype, softmaxes[k].backward ? 1 : 20);
    if (softmaxes[k].backward)
        put_scores(t, s, dtype, 1);
    put_out(t, dtype, s->rank, s->dims);
}

TEST(softmax_is_as_plain_along_every_axis)
{
    for (size_t i = 0; i < shape_count; i++)
        for (int axis = 0; axis < shapes[i].rank; axis++)
            for (size_t k = 0; k < sizeof softmaxes / sizeof softmaxes[0]; k++) {
                TESTING(t);
                put_softmax(&t, k, &shapes[i], axis, EBB_F32);
                agrees(&t, softmaxes[k].cuda, softmaxes[k].plain);
                for (uint32_t over = 0; over < t.call.input_count; over++)
                    agrees_in_place(&t, softmaxes[k].cuda, over);
                agrees_mixed(&t, softmaxes[k].cuda, 0);
            }
}

TEST(what_is_impossible_has_probability_zero)
{
    TESTING(t);
    put_softmax(&t, 0, &shapes[0], -1, EBB_F32);
    for (size_t j = 0; j < 32; j++)
        set_value(&t.in[0], j, -(double)INFINITY);
    run_with(&t, "cuda.softmax");
    assert_true(value_of(&t.out[0], 0) == 0 && value_of(&t.out[0], 32) == 1);
}

/* ---- cross entropy ---- */

typedef struct entropy {
    const char *reduction;
    bool weights, ignores, narrow;
} entropy;

static const entropy kinds[] = {
    {"mean", false, false, false}, {"sum", true, false, true},   {"none", true, true, false},
    {"mean", true, true, true},    {"none", false, false, true}, {"sum", false, true, false},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static bool is_none(const entropy *e)
{
    return strcmp(e->reduction, "none") == 0;
}

/* dY is before the others where `op` is the gradient, or both; a loss comes out but of the gradient. */
static void put_entropy(testing *t, ebb_op op, const scores *s, const entropy *e, ebb_dtype dtype)
{
    int64_t labels[4] = {s->dims[0]};
    const int64_t classes = s->dims[1];
    memcpy(labels + 1, s->dims + 2, (size_t)(s->rank - 2) * sizeof *labels);
    begin(t, op);
    put_string(t, "reduction", e->reduction);
    if (e->ignores)
        put_int(t, "ignore_index", -3);
    const bool grad = op == EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS_GRAD;
    if (grad || op == EBB_OP_SCORES_CROSS_ENTROPY)
        put_in(t, dtype, is_none(e) ? s->rank - 1 : 0, labels);
    put_scores(t, s, dtype, grad ? 2 : 15);
    ebb_operand *l = put_indices(t, e->narrow ? EBB_I32 : EBB_I64, s->rank - 1, labels, classes);
    for (size_t i = 0; i < count_of(l); i++) {
        int64_t v = e->narrow ? ((int32_t *)l->data)[i] : ((int64_t *)l->data)[i];
        v = e->ignores && i % 5 == 2 ? -3 : v < 0 ? -v : v;
        if (e->narrow)
            ((int32_t *)l->data)[i] = (int32_t)v;
        else
            ((int64_t *)l->data)[i] = v;
    }
    if (e->weights) {
        put_in(t, dtype, 1, &classes);
        ebb_operand *w = &t->in[t->call.input_count - 1];
        for (size_t i = 0; i < count_of(w); i++)
            set_value(w, i, i == 1 ? 0 : fabs(value_of(w, i)) + 0.5);
    }
    if (!grad)
        put_out(t, dtype, is_none(e) ? s->rank - 1 : 0, labels);
    if (op != EBB_OP_NEGATIVE_LOG_LIKELIHOOD_LOSS)
        put_out(t, dtype, s->rank, s->dims);
}

TEST(losses_are_as_plain)
{
    for (size_t i = 0; i < shape_count; i++)
        for (size_t k = 0; k < KINDS; k++) {
            TESTING(t);
            put_entropy(&t, EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS, &shapes[i], &kinds[k], EBB_F32);
            agrees(&t, "cuda.softmax_cross_entropy_loss", "plain.softmax_cross_entropy_loss");
            t.call.output_count = 1; // without the log-probabilities
            agrees(&t, "cuda.softmax_cross_entropy_loss", "plain.softmax_cross_entropy_loss");
            t.call.output_count = 2;
            agrees_mixed(&t, "cuda.softmax_cross_entropy_loss", 0);
            end(&t);
            put_entropy(&t, EBB_OP_NEGATIVE_LOG_LIKELIHOOD_LOSS, &shapes[i], &kinds[k], EBB_F32);
            agrees(&t, "cuda.negative_log_likelihood_loss", "plain.negative_log_likelihood_loss");
            agrees_mixed(&t, "cuda.negative_log_likelihood_loss", 0);
        }
}

TEST(gradients_are_as_plain)
{
    for (size_t i = 0; i < shape_count; i++)
        for (size_t k = 0; k < KINDS; k++) {
            TESTING(t);
            put_entropy(&t, EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS_GRAD, &shapes[i], &kinds[k], EBB_F32);
            agrees(&t, "cuda.softmax_cross_entropy_loss_grad",
                   "plain.softmax_cross_entropy_loss_grad");
            agrees_in_place(&t, "cuda.softmax_cross_entropy_loss_grad", 1);
            agrees_mixed(&t, "cuda.softmax_cross_entropy_loss_grad", 0);
        }
}

/* Beside scores of 16 bits dY, weights and losses are float32. */
TEST(losses_with_their_gradients_are_as_plain)
{
    enum { BESIDE = 1 | 1 << 3 | 1 << 16 };
    for (size_t i = 0; i < shape_count; i++)
        for (size_t k = 0; k < KINDS; k++) {
            TESTING(t);
            put_entropy(&t, EBB_OP_SCORES_CROSS_ENTROPY, &shapes[i], &kinds[k], EBB_F32);
            agrees(&t, "cuda.scores_cross_entropy", "plain.scores_cross_entropy");
            agrees_mixed(&t, "cuda.scores_cross_entropy", BESIDE);
            agrees_mixed(&t, "plain.scores_cross_entropy", BESIDE);
        }
}

/* log_prob, or the gradient, is the second output and may lie over the scores: the class's score is read
 * before. */
TEST(log_probabilities_may_lie_over_the_scores)
{
    for (size_t i = 0; i < 10; i++) {
        TESTING(t);
        const bool both = i % 2 == 1;
        put_entropy(&t, both ? EBB_OP_SCORES_CROSS_ENTROPY : EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS,
                    &shapes[i / 2], &kinds[4], EBB_F32);
        const ebb_operand loss = t.out[0];
        const char *const kernel =
            both ? "cuda.scores_cross_entropy" : "cuda.softmax_cross_entropy_loss";
        run_with(&t, kernel);
        FREED double *expected = values_of(&loss), *log_prob = values_of(&t.out[1]);
        ebb_operand out[2] = {t.out[0], t.out[1]};
        out[1].data = t.in[both].data;
        t.call.out = out;
        t.call.workspace = guarded(t.call.workspace_bytes);
        memset(loss.data, 0xFF, loss.bytes);
        check_run(kernel_named(kernel)->run(&t.call), "in place");
        unguard(t.call.workspace);
        check_close(&loss, expected, 0, "loss");
        check_close(&out[1], log_prob, 0, "log_prob");
    }
}

/* Labels that lead far outside of all memory are told and not followed. */
TEST(a_label_that_is_no_class_is_a_fault)
{
    static const int64_t bad[] = {33, -1, INT64_MAX, INT64_MIN, (int64_t)1 << 45};
    static const ebb_op ops[] = {EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS,
                                 EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS_GRAD,
                                 EBB_OP_NEGATIVE_LOG_LIKELIHOOD_LOSS, EBB_OP_SCORES_CROSS_ENTROPY};
    static const char *const names[] = {
        "cuda.softmax_cross_entropy_loss", "cuda.softmax_cross_entropy_loss_grad",
        "cuda.negative_log_likelihood_loss", "cuda.scores_cross_entropy"};
    for (size_t k = 0; k < sizeof ops / sizeof *ops; k++)
        for (size_t b = 0; b < 5; b++) {
            TESTING(t);
            put_entropy(&t, ops[k], &shapes[0], &kinds[2], EBB_F32);
            int64_t *labels = t.in[k % 2 == 1 ? 2 : 1].data; // behind dY
            assert_false(fault_of(&t, names[k], 5).there);
            labels[3] = bad[b];
            const ebb_fault fault = fault_of(&t, names[k], 5);
            assert_true(fault.there);
            assert_int_equal(fault.position, 5);
            assert_int_equal(fault.value, bad[b]);
            assert_int_equal(fault.low, 0);
            assert_int_equal(fault.high, 33);
        }
}

TEST(a_mean_over_nothing_is_nan)
{
    TESTING(t);
    put_entropy(&t, EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS, &shapes[8], &kinds[0], EBB_F32);
    run_with(&t, "cuda.softmax_cross_entropy_loss");
    t.call.workspace = guarded(t.call.workspace_bytes);
    set_value(&t.out[0], 0, 0); // not the NaN that a run begins with
    check_run(kernel_named("cuda.softmax_cross_entropy_loss")->run(&t.call), "of nothing");
    unguard(t.call.workspace);
    assert_true(isnan(value_of(&t.out[0], 0)));
}

const fixture around_all = {with_cuda, NULL};
