/* test_threads.c: a program computes with its own number of threads, whichever thread steps it and
 * whatever that has set; several programs run in several threads at once.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pthread.h>

#include "exec/data/sample.h"
#include "exec/run/program.h"
#include "kernels/parallel.h"
#include "onnx/file/file.h"
#include "tests/owned.h"
#include "tests/test.h"

enum { SOME_STEPS = 3 };

/* libgomp's own synchronisation is not seen by TSan: there each program has one thread. */
#if defined(__SANITIZE_THREAD__)
enum { THREADS = 1, ROUNDS = 3 };
#else
enum { THREADS = 2, ROUNDS = 3 };
#endif

static const struct {
    const char *model, *passes;
} steps[] = {
    {"digits/cnn", ""},
    {"digits/mlp", "quantise:bits=8,"},
    {"digits/transformer", "precision:bf16,"},
};
enum { STEPS = sizeof steps / sizeof steps[0] };

/* Of the thread that calls: cmocka's own would end the process from another. */
static void must(ebb_status status)
{
    if (status == NULL)
        return;
    (void)fprintf(stderr, "%s\n", ebb_status_text(status));
    abort();
}

static ebb_model *step_of(size_t i)
{
    char path[1024], pipeline[1024];
    ebb_model *m;
    (void)snprintf(path, sizeof path, "%s/samples/%s.onnx", EBB_SOURCE_DIR, steps[i].model);
    const bool narrow = strncmp(steps[i].passes, "precision", 9) == 0;
    (void)snprintf(pipeline, sizeof pipeline,
                   "flatten,train-mode:dropout=off,fold,fuse,loss:cross-entropy,%sgradient,"
                   "optimizer:sgd,attention,%sdrop-saves,stream,alias",
                   narrow ? steps[i].passes : "", narrow ? "" : steps[i].passes);
    must(ebb_open(&m, path));
    must(ebb_set_dim(m, "batch", 32));
    must(ebb_rewrite(m, pipeline, NULL, NULL));
    return m;
}

typedef struct job {
    ebb_program *program;
    uint64_t hash; /* of the loss and all states */
} job;

static uint64_t add_to_hash(uint64_t hash, const void *bytes, size_t count)
{
    for (const unsigned char *b = bytes; count-- > 0; b++)
        hash = (hash ^ *b) * UINT64_C(0x100000001B3);
    return hash;
}

static uint64_t hash_of(ebb_program *p)
{
    const ebb_graph *g = p->plan.g;
    uint64_t hash = UINT64_C(0xCBF29CE484222325);
    for (ebb_value v = {1}; v.i < g->value_count; v.i++) {
        ebb_named t;
        size_t bytes;
        if (!ebb_program_is_state(p, v) && !ebb_same_value(v, g->loss))
            continue;
        must(ebb_program_get(p, ebb_value_name(g, v), &t));
        if (ebb_type_bytes(ebb_value_of(g, v)->type, &bytes))
            hash = add_to_hash(hash, t.data, bytes);
    }
    return hash;
}

static void take_steps(job *j)
{
    OWNED_ARENA scratch = {0};
    ebb_batch batch;
    for (int k = 0; k < SOME_STEPS; k++) {
        must(ebb_sample_batch(&batch, j->program->plan.g, (uint64_t)k, &scratch));
        must(ebb_program_step(j->program, &batch));
    }
    j->hash = hash_of(j->program);
}

static ebb_program *compile(ebb_model *m, int threads)
{
    const ebb_compile_options options = {.threads = threads};
    ebb_program *p;
    must(ebb_program_compile(&p, m, &options));
    return p;
}

static uint64_t alone(ebb_model *m, int threads)
{
    job j = {compile(m, threads), 0};
    take_steps(&j);
    ebb_program_free(j.program);
    return j.hash;
}

/* A thread that has many threads of its own. */
static void *in_a_thread(void *of)
{
    (void)ebb_threads_enter(8);
    take_steps(of);
    assert_int_equal(ebb_threads(), 8);
    return NULL;
}

static void run_in_a_thread(void *(*work)(void *), void *of)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, work, of), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

TEST(any_thread_may_step_a_program)
{
    for (size_t i = 0; i < STEPS; i++) {
        OWNED_MODEL *m = step_of(i);
        const uint64_t expected = alone(m, 1);
        job j = {compile(m, 1), 0};
        run_in_a_thread(in_a_thread, &j);
        if (j.hash != expected)
            fail_msg("%s: another thread gave other bits", steps[i].model);
        ebb_program_free(j.program);
    }
}

TEST(a_program_compiled_in_between_changes_nothing)
{
    for (size_t i = 0; i < STEPS; i++) {
        OWNED_MODEL *m = step_of(i);
        const uint64_t expected = alone(m, 1);
        job j = {compile(m, 1), 0};
        OWNED_PROGRAM *other = compile(m, 8);
        take_steps(&j);
        if (j.hash != expected)
            fail_msg("%s: a program of 8 threads changed the bits", steps[i].model);
        ebb_program_free(j.program);
    }
}

TEST(the_callers_own_number_of_threads_stays)
{
    OWNED_MODEL *m = step_of(1);
    const ebb_threads_before before = ebb_threads_enter(5);
    (void)alone(m, 2);
    assert_int_equal(ebb_threads(), 5);
    ebb_program *p;
    const ebb_compile_options wrong = {.threads = 1 << 20}, nowhere = {.backend = "nowhere"};
    assert_int_equal(ebb_status_code(ebb_program_compile(&p, m, &wrong)), EBB_USAGE);
    assert_int_equal(ebb_status_code(ebb_set_threads(m, 1 << 20)), EBB_USAGE);
    assert_int_equal(ebb_status_code(ebb_program_compile(&p, m, &nowhere)), EBB_USAGE);
    p = compile(m, 2);
    assert_int_equal(ebb_status_code(ebb_program_step(p, NULL)), EBB_USAGE);
    assert_int_equal(ebb_threads(), 5);
    ebb_program_free(p);
    ebb_threads_leave(before);
}

/* ---- at once ---- */

static void *from_the_file(void *of)
{
    job *jobs = of;
    for (int round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < STEPS; i++) {
            OWNED_MODEL *m = step_of(i);
            jobs[i].hash = alone(m, THREADS);
        }
    return NULL;
}

/* From the file to the numbers: passes, plans and steps. */
TEST(programs_in_two_threads_give_what_each_gives_alone)
{
    job one[STEPS], two[STEPS], expected[STEPS];
    pthread_t first, second;
    (void)from_the_file(expected);
    assert_int_equal(pthread_create(&first, NULL, from_the_file, one), 0);
    assert_int_equal(pthread_create(&second, NULL, from_the_file, two), 0);
    assert_int_equal(pthread_join(first, NULL), 0);
    assert_int_equal(pthread_join(second, NULL), 0);
    for (size_t i = 0; i < STEPS; i++)
        if (one[i].hash != expected[i].hash || two[i].hash != expected[i].hash)
            fail_msg("%s: other bits beside another program", steps[i].model);
}

/* ---- errors ---- */

static void *makes_many_errors(void *of)
{
    ebb_status *last = of;
    for (int i = 0; i < 1000; i++)
        *last = ebb_error(EBB_RUNTIME, "error %d", i);
    return NULL;
}

TEST(errors_of_a_thread_are_its_own)
{
    ebb_status mine = ebb_error(EBB_USAGE, "mine"), theirs;
    run_in_a_thread(makes_many_errors, &theirs);
    assert_string_equal(ebb_status_text(mine), "mine");
    assert_string_equal(ebb_status_text(theirs), "error 999"); // though that thread has ended
    run_in_a_thread(makes_many_errors, &theirs);
    assert_string_equal(ebb_status_text(mine), "mine");
    for (int i = 0; i < 63; i++)
        (void)ebb_error(EBB_USAGE, "later");
    assert_string_equal(ebb_status_text(mine), "mine");
}
