/* test_group.c: which pointwise calls, and which optimizers' steps, become one launch, and that
 * they may.
 */
#include "tests/cuda/cuda.h"

static int launches;

/* Linked in place of ebb_gpu_launch(): see tests/CMakeLists.txt. */
ebb_status __real_ebb_gpu_launch(void *stream, ebb_gpu_kernel kernel, ebb_gpu_grid blocks,
                                 uint32_t threads, uint32_t shared_bytes, const void *args,
                                 size_t bytes);
ebb_status __wrap_ebb_gpu_launch(void *stream, ebb_gpu_kernel kernel, ebb_gpu_grid blocks,
                                 uint32_t threads, uint32_t shared_bytes, const void *args,
                                 size_t bytes);

ebb_status __wrap_ebb_gpu_launch(void *stream, ebb_gpu_kernel kernel, ebb_gpu_grid blocks,
                                 uint32_t threads, uint32_t shared_bytes, const void *args,
                                 size_t bytes)
{
    launches++;
    return __real_ebb_gpu_launch(stream, kernel, blocks, threads, shared_bytes, args, bytes);
}

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

/* Memory that kernels may reach. */
static void *zeroed(size_t bytes)
{
    void *p = more_allocate(bytes);
    assert_non_null(p);
    memset(p, 0, bytes);
    return p;
}

static step *fresh(void)
{
    step *s = zeroed(sizeof *s);
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
    more_free(s);
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
TEST(a_chain_is_one_launch_and_stores_what_is_read_later)
{
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
    assert_true(is(all, 0, "cuda.chain") && is(all, 1, "cuda.joined") && is(all, 2, "cuda.joined"));
    assert_memory_equal(one->buffer[3], all->buffer[3], N * sizeof(float));
    step *before = fresh(); // x is as it was: what is read by nobody later is not stored
    assert_memory_equal(all->buffer[0], before->buffer[0], N * sizeof(float));
    more_free(before);
    finish(one);
    finish(all);
}

TEST(what_is_read_after_the_chain_is_stored_too)
{
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
TEST(memory_that_is_used_again_elsewhere_ends_a_chain)
{
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
    assert_false(is(all, 2, "cuda.joined"));
    assert_memory_equal(one->buffer[0], all->buffer[0], (N + 8) * sizeof(float));
    finish(one);
    finish(all);
}

/* A call that is no pointwise one stands between: nothing to join. */
TEST(one_call_is_no_chain)
{
    step *s = fresh();
    put(s, EBB_OP_ADD, s->buffer[3], s->buffer[0], s->buffer[1], EBB_OUTLIVES);
    group(s);
    assert_true(is(s, 0, "cuda.add"));
    finish(s);
}

/* ---- optimizers ---- */

enum { STEPS = 80, MOST_PLACES = 4, ROOM = 700 };

typedef struct updates {   /* operands: rate, count?, W, G, states */
    ebb_call calls[STEPS]; /* in a row, as a program has them */
    ebb_operand in[STEPS][6], out[STEPS][3];
    float rates[2];
    int64_t count;
    float memory[STEPS][MOST_PLACES][ROOM];
} updates;

static ebb_operand operand(void *data, ebb_dtype dtype, int rank, int64_t n)
{
    const ebb_operand o = {.type = ebb_type_tensor(dtype, (int8_t)rank, &n),
                           .bytes = (size_t)n * (dtype == EBB_I64 ? 8 : 4),
                           .data = data};
    return o;
}

/* Update k of 80 tensors of 1 to 700 elements. beside: the new weight lies where the gradient of
 * the update before was read. */
static void put_update(updates *u, uint32_t k, ebb_op op, int states, bool beside)
{
    const int64_t n = k % 10 == 9 ? 0 : k % 3 == 0 ? ROOM : 1 + k;
    const bool counts = op != EBB_OP_SGD;
    ebb_call *c = &u->calls[k];
    uint32_t i = 0;
    memset(c, 0, sizeof *c);
    u->in[k][i++] = operand(&u->rates[k >= 70], EBB_F32, 0, 1);
    if (counts)
        u->in[k][i++] = operand(&u->count, EBB_I64, 0, 1);
    for (int p = 0; p < 2 + states; p++)
        u->in[k][i++] = operand(u->memory[k][p], EBB_F32, 1, n);
    for (int p = 0; p < 1 + states; p++)
        u->out[k][p] = operand(u->memory[k][p == 0 ? 0 : 1 + p], EBB_F32, 1, n);
    if (beside && k > 0)
        u->out[k][0].data = u->memory[k - 1][1];
    c->op = op;
    c->version = 1;
    c->node = "an update of the test";
    c->in = u->in[k];
    c->out = u->out[k];
    c->input_count = i;
    c->output_count = 1 + (uint32_t)states;
    c->queue = more_queue;
    c->position = k;
    static const ebb_backend *const backends[] = {&ebb_backend_cuda, NULL};
    check_status(ebb_pick(c, backends), "pick");
}

static updates *updates_of(ebb_op op, int states, bool beside)
{
    updates *u = zeroed(sizeof *u);
    u->rates[0] = 0.25f;
    u->rates[1] = 0.125f;
    u->count = 3;
    float *all = &u->memory[0][0][0];
    for (int i = 0; i < STEPS * MOST_PLACES * ROOM; i++)
        all[i] = (float)(i * 37 % 211 + 1) / 100.0f;
    for (uint32_t k = 0; k < STEPS; k++)
        put_update(u, k, op, states, beside);
    return u;
}

/* How many launches all updates took. */
static int run_updates(updates *u)
{
    launches = 0;
    for (uint32_t k = 0; k < STEPS; k++)
        check_status(u->calls[k].kernel->run(&u->calls[k]), "run");
    return launches;
}

TEST(steps_of_optimizers_share_launches_and_keep_their_bits)
{
    static const struct {
        ebb_op op;
        int states;
    } ops[] = {{EBB_OP_SGD, 0},
               {EBB_OP_MOMENTUM, 1},
               {EBB_OP_ADAM, 2},
               {EBB_OP_ADAGRAD, 1},
               {EBB_OP_ADAMW, 2}};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        for (int beside = 0; beside < 2; beside++) {
            updates *one = updates_of(ops[i].op, ops[i].states, beside);
            updates *all = updates_of(ops[i].op, ops[i].states, beside);
            assert_int_equal(run_updates(one), 72); // eight have no elements
            check_status(ebb_backend_cuda.group(all->calls, STEPS), "group");
            assert_string_equal(all->calls[0].kernel->name, "cuda.optimizers");
            assert_string_equal(all->calls[STEPS - 1].kernel->name, "cuda.joined");
            (void)setenv("EBB_CUDA_ORDER", "reverse", 1);
            const int few = run_updates(all);
            (void)unsetenv("EBB_CUDA_ORDER");
            // 56 and 7 of one rate, 9 of the other; or each alone but six behind an empty one
            assert_int_equal(few, beside ? 72 - 6 : 3);
            assert_memory_equal(one->memory, all->memory, sizeof one->memory);
            all->calls[0].kernel->release(&all->calls[0]);
            more_free(one);
            more_free(all);
        }
}

/* What another operator computes between two steps keeps its place. */
TEST(a_call_between_two_steps_parts_them)
{
    updates *u = updates_of(EBB_OP_SGD, 0, false);
    step *s = fresh();
    put(s, EBB_OP_ADD, s->buffer[3], s->buffer[0], s->buffer[1], EBB_OUTLIVES);
    u->calls[1] = s->calls[0];
    check_status(ebb_backend_cuda.group(u->calls, 3), "group");
    assert_string_equal(u->calls[0].kernel->name, "cuda.sgd");
    assert_string_equal(u->calls[1].kernel->name, "cuda.add");
    assert_string_equal(u->calls[2].kernel->name, "cuda.sgd");
    finish(s);
    more_free(u);
}

const fixture around_all = {with_cuda, NULL};
