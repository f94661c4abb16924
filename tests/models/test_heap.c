/* test_heap.c: a step takes no memory from the heap: everything it needs was planned. malloc is counted while steps of
 * the small recorded models run, in float32 and in 16 bits. oneDNN takes some hundred bytes for its arguments at
 * each call, and once 45 KiB in mobilenet_tiny in bfloat16, which no interface of it gives to a plan.
 */
#define _GNU_SOURCE

#include <dlfcn.h>

#include "tests/models/models.h"
#include "tests/owned.h"

/* CRUMBS: asked for and given back before each of oneDNN's primitives, see ebb_dnnl_has_crumbs. */
enum { LARGEST_OF_LIBRARIES = 64 << 10, CRUMBS = 32 << 10 };

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define COUNTS 1

static struct counted {
    bool on;
    int own;        /* of ebb */
    size_t largest; /* of libraries */
    const void *at; /* who asked last, of ebb */
    const char *library;
} counted;

static void count(const void *caller, size_t bytes)
{
    Dl_info of, own;
    if (!__atomic_load_n(&counted.on, __ATOMIC_RELAXED))
        return;
    if (dladdr(caller, &of) == 0 || dladdr(&counted, &own) == 0 || of.dli_fbase == own.dli_fbase) {
        if (bytes == CRUMBS)
            return;
        counted.at = caller;
        __atomic_fetch_add(&counted.own, 1, __ATOMIC_RELAXED);
    } else if (bytes > counted.largest) {
        counted.largest = bytes;
        counted.library = of.dli_fname;
    }
}

/* Libraries call them, too. */
#define SEEN __attribute__((visibility("default")))

/* glibc's own, under which these stand. */
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);
extern void *__libc_memalign(size_t align, size_t bytes);

SEEN void *malloc(size_t bytes)
{
    count(__builtin_return_address(0), bytes);
    return __libc_malloc(bytes);
}

SEEN void *calloc(size_t n, size_t bytes)
{
    count(__builtin_return_address(0), n * bytes);
    return __libc_calloc(n, bytes);
}

SEEN void *realloc(void *old, size_t bytes)
{
    count(__builtin_return_address(0), bytes);
    return __libc_realloc(old, bytes);
}

SEEN void *aligned_alloc(size_t align, size_t bytes)
{
    count(__builtin_return_address(0), bytes);
    return __libc_memalign(align, bytes);
}

SEEN int posix_memalign(void **to, size_t align, size_t bytes)
{
    count(__builtin_return_address(0), bytes);
    *to = __libc_memalign(align, bytes);
    return *to == NULL ? 12 : 0;
}
#endif

#if defined(COUNTS)

static void check(recorded *r, const char *passes)
{
    OWNED_MODEL *model = NULL;
    OWNED_PROGRAM *program = NULL;
    ebb_named inputs[MOST_INPUTS];
    size_t n = 0;
    MUST(recorded_program(r, "on", "momentum", passes, &model, &program, inputs, &n));
    const ebb_batch batch = {inputs, n};
    MUST(ebb_program_step(program, &batch)); // oneDNN and OpenMP keep what the first needs
    MUST(ebb_program_step(program, &batch));
    counted = (struct counted){.on = true};
    MUST(ebb_program_step(program, &batch));
    counted.on = false;
    if (counted.own != 0 || counted.largest > LARGEST_OF_LIBRARIES) {
        print_error(
            "%s, passes '%s': %d allocations by ebb, the last from %p; the largest of libraries "
            "has %zu bytes, of %s\n",
            r->model, passes, counted.own, counted.at, counted.largest, counted.library);
        r->failures++;
    }
done:
    counted.on = false;
}

TEST(a_step_takes_no_memory)
{
    static const char *const passes[] = {"", "precision:bf16", "precision:fp16",
                                         "sign-mask,pool-index,dropout-mask,release"};
    enum {
        MODELS = sizeof small_models / sizeof *small_models,
        PASSES = sizeof passes / sizeof *passes
    };
    for (size_t i = 0; i < MODELS; i++)
        for (size_t k = 0; k < PASSES; k++) {
            recorded r;
            if (i % share(PASSES) != k % share(PASSES))
                continue;
            recorded_need(&r, small_models[i], exporters[i % 2]);
            check(&r, passes[k]);
            recorded_close(&r);
            assert_int_equal(r.failures, 0);
        }
}

TEST(one_that_is_taken_is_seen)
{
    counted = (struct counted){.on = true};
    char *volatile word = strdup("a word"); // by a library
    void *volatile mine = malloc(1);
    counted.on = false;
    free(mine);
    free(word);
    assert_int_equal(counted.own, 1);
    assert_true(counted.largest >= 7);
}

int main(void)
{
    if (models_are_missing())
        return SKIPPED;
    return run_listed();
}

#else

int main(void)
{
    printf("SKIP: a sanitizer, or a C library without names for its own malloc\n");
    return SKIPPED;
}

#endif
