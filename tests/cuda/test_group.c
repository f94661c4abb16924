/* test_group.c: which pointwise calls become one launch, and that they may. */
#include "tests/cuda/cuda.h"

#include "kernels/cuda/cuda.h"

enum { N = 1000, CALLS = 4 };

typedef struct step { /* calls in order, over buffers of N floats */
    ebb_call calls[CALLS];
    ebb_operand in[CALLS][2], out[CALLS];
    uint32_t count;
    float buffer[6][N + 8];
} step;

/* y = op(a, b); b NULL: of one input. last: position of y's last reader. */
static void put(step *s, ebb_op op, float *y, float *a, float *b, uint32_t last)
{
    const int64_t n = N;
    uint32_t k = s->count++;
    ebb_call *c = &s->calls[k];
    memset(c, 0, sizeof *c);
    const ebb_operand o = {.type = ebb_type_tensor(EBB_F32, 1, &n), .bytes = N * sizeof(float)};
    s->in[k][0] = s->in[k][1] = s->out[k] = o;
    s->in[k][0].data = a;
    s->in[k][1].data = b;
    s->out[k].data = y;
    s->out[k].last_read = last;
    c->op = op;
    c->version = 20;
    c->node = "a call of the test";
    c->input_count = b != NULL ? 2 : 1;
    c->output_count = 1;
    c->in = s->in[k];
    c->out = &s->out[k];
    c->queue = more_queue;
    c->position = k;
    static const ebb_backend *const backends[] = {&ebb_backend_cuda, NULL};
    check_status(ebb_pick(c, backends), "pick");
}

static step *fresh(void)
{
    step *s = calloc(1, sizeof *s);
    assert_non_null(s);
    for (int b = 0; b < 6; b++)
        for (int i = 0; i < N + 8; i++)
            s->buffer[b][i] = (float)((i * 37 + b * 101) % 211) / 100.0f - 1.0f;
    return s;
}

static void run_all(step *s)
{
    for (uint32_t k = 0; k < s->count; k++)
        check_status(s->calls[k].kernel->run(&s->calls[k]), "run");
}

static void finish(step *s)
{
    for (uint32_t k = 0; k < s->count; k++)
        if (s->calls[k].kernel->release != NULL && s->calls[k].state != NULL)
            s->calls[k].kernel->release(&s->calls[k]);
    free(s);
}

static bool is(const step *s, uint32_t k, const char *kernel)
{
    return strcmp(s->calls[k].kernel->name, kernel) == 0;
}

static void group(step *s)
{
    (void)setenv("EBB_CUDA_CHAINS", "1", 1);
    check_status(ebb_backend_cuda.group(s->calls, s->count), "group");
    (void)unsetenv("EBB_CUDA_CHAINS");
}

/* x + b -> s (over x), relu s -> t (over s), t * y -> z: s and t are never stored. */
static void a_chain_is_one_launch_and_stores_what_is_read_later(void **state)
{
    (void)state;
    step *one = fresh(), *all = fresh();
    for (int k = 0; k < 2; k++) {
        step *s = k == 0 ? one : all;
        float *x = s->buffer[0], *b = s->buffer[1], *y = s->buffer[2], *z = s->buffer[3];
        put(s, EBB_OP_ADD, x, x, b, 1);
        put(s, EBB_OP_RELU, x, x, NULL, 2);
        put(s, EBB_OP_MUL, z, x, y, EBB_OUTLIVES);
        if (k == 1)
            group(s);
        run_all(s);
    }
    assert_true(is(all, 0, "cuda.chain") && is(all, 1, "cuda.chained") &&
                is(all, 2, "cuda.chained"));
    assert_memory_equal(one->buffer[3], all->buffer[3], N * sizeof(float));
    step *before = fresh(); // x is as it was: what is read by nobody later is not stored
    assert_memory_equal(all->buffer[0], before->buffer[0], N * sizeof(float));
    free(before);
    finish(one);
    finish(all);
}

static void what_is_read_after_the_chain_is_stored_too(void **state)
{
    (void)state;
    step *one = fresh(), *all = fresh();
    for (int k = 0; k < 2; k++) {
        step *s = k == 0 ? one : all;
        put(s, EBB_OP_ADD, s->buffer[3], s->buffer[0], s->buffer[1], 9);
        put(s, EBB_OP_RELU, s->buffer[4], s->buffer[3], NULL, 2);
        put(s, EBB_OP_MUL, s->buffer[5], s->buffer[4], s->buffer[3], EBB_OUTLIVES);
        if (k == 1)
            group(s);
        run_all(s);
    }
    assert_true(is(all, 0, "cuda.chain"));
    assert_memory_equal(one->buffer[3], all->buffer[3], N * sizeof(float));
    assert_memory_equal(one->buffer[5], all->buffer[5], N * sizeof(float));
    finish(one);
    finish(all);
}

/* Where the place of a stored value is a part of what the chain reads, beside its place: another
 * thread may not have read it yet. */
static void memory_that_is_used_again_elsewhere_ends_a_chain(void **state)
{
    (void)state;
    step *one = fresh(), *all = fresh();
    for (int k = 0; k < 2; k++) {
        step *s = k == 0 ? one : all;
        put(s, EBB_OP_ADD, s->buffer[3], s->buffer[0], s->buffer[1], 1);
        put(s, EBB_OP_RELU, s->buffer[4], s->buffer[3], NULL, 2);
        put(s, EBB_OP_NEG, s->buffer[0] + 8, s->buffer[4], NULL, EBB_OUTLIVES);
        if (k == 1)
            group(s);
        run_all(s);
    }
    assert_false(is(all, 2, "cuda.chained"));
    assert_memory_equal(one->buffer[0], all->buffer[0], (N + 8) * sizeof(float));
    finish(one);
    finish(all);
}

/* A call that is no pointwise one stands between: nothing to join. */
static void one_call_is_no_chain(void **state)
{
    (void)state;
    step *s = fresh();
    put(s, EBB_OP_ADD, s->buffer[3], s->buffer[0], s->buffer[1], EBB_OUTLIVES);
    group(s);
    assert_true(is(s, 0, "cuda.add"));
    finish(s);
}

int main(void)
{
    with_cuda();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_is_one_launch_and_stores_what_is_read_later),
        cmocka_unit_test(what_is_read_after_the_chain_is_stored_too),
        cmocka_unit_test(memory_that_is_used_again_elsewhere_ends_a_chain),
        cmocka_unit_test(one_call_is_no_chain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
