/* test_mutants.c: broken models. Each of 2,000 mutants (1,000 under a sanitizer) is checked and
 * planned by a process of its own, one in fifty of them by the command: it must end by itself, with
 * an exit code of ours, within ten seconds and 512 MiB. Mutants come from a fixed seed, so a
 * failure repeats; the file that failed is kept and named.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "ebb.h"
#include "tests/sanitized.h"

enum { MUTANTS = SANITIZED ? 1000 : 2000, COMMANDS = 50 };

static const char *const originals[] = {
    EBB_SOURCE_DIR "/samples/digits/cnn.onnx",
    EBB_SOURCE_DIR "/../shared/models/lstm_char/dynamo.onnx",
    EBB_SOURCE_DIR "/../shared/models/gelu_block_dropout/ts.onnx",
    EBB_SOURCE_DIR "/../shared/models/resnet18/dynamo.onnx",
    EBB_SOURCE_DIR "/../shared/bench/graphs/small/small_05.onnx",
};
enum { ORIGINALS = sizeof originals / sizeof originals[0] };

static uint64_t state_of_draws = 20261121;

static uint64_t draw(uint64_t below) /* splitmix64 */
{
    uint64_t z = (state_of_draws += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (z ^ (z >> 31)) % below;
}

typedef struct bytes {
    unsigned char *data;
    size_t size;
} bytes;

static bytes read_whole(const char *path)
{
    bytes b = {NULL, 0};
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return b;
    fseek(file, 0, SEEK_END);
    b.size = (size_t)ftell(file);
    rewind(file);
    b.data = malloc(b.size + 1);
    assert_non_null(b.data);
    assert_int_equal(fread(b.data, 1, b.size, file), b.size);
    fclose(file);
    return b;
}

/* Structure is dense at both ends and between weights: half of the strikes go to the first 4 KiB.
 */
static size_t somewhere(const bytes *b)
{
    size_t near = b->size < 4096 ? b->size : 4096;
    switch (draw(4)) {
    case 0:
        return draw(b->size);
    case 1:
        return b->size - 1 - draw(near);
    default:
        return draw(near);
    }
}

static void mutate(bytes *b)
{
    static const unsigned char extremes[] = {0x00, 0xFF, 0x7F, 0x80, 0x01};
    for (uint64_t strikes = 1 + draw(4); strikes > 0 && b->size > 8; strikes--) {
        size_t at = somewhere(b), length = 1 + draw(16);
        if (length > b->size - at)
            length = b->size - at;
        switch (draw(6)) {
        case 0: // a bit
            b->data[at] ^= (unsigned char)(1u << draw(8));
            break;
        case 1: // an extreme byte
            b->data[at] = extremes[draw(sizeof extremes)];
            break;
        case 2: // a huge varint
            memset(b->data + at, 0xFF, length);
            break;
        case 3: // cut off
            b->size = draw(8) == 0 ? at + 1 : b->size;
            break;
        case 4: // a piece gone
            memmove(b->data + at, b->data + at + length, b->size - at - length);
            b->size -= length;
            break;
        default: // a piece twice
            memmove(b->data + at + length, b->data + at, b->size - at);
            b->size += length;
            break;
        }
    }
}

/* ---- what is done with one ---- */

/* As `ebb check` and then `ebb plan --dim batch=2` do; the exit code. */
static int judge(const char *path)
{
    ebb_model *model = NULL;
    const ebb_plan_options options = {.backend = "cpu"};
    char *checked = NULL, *planned = NULL;
    ebb_status status = ebb_open(&model, path);
    if (status == NULL)
        status = ebb_check_json(model, &checked);
    if (status == NULL)
        (void)ebb_set_dim(model, "batch", 2); // it may have none
    if (status == NULL)
        status = ebb_plan_json(model, &options, &planned);
    ebb_release(checked);
    ebb_release(planned);
    ebb_close(model);
    return (int)ebb_status_code(status);
}

/* In a process of its own, by the library or as the command. */
static bool run(bool command, const char *path, int *how)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit memory = {512u << 20, 512u << 20}, time = {10, 10};
        static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
        int nothing = open("/dev/null", O_WRONLY);
        (void)dup2(nothing, 1);
        (void)dup2(nothing, 2);
        if (!SANITIZED) // a sanitizer reserves terabytes of addresses
            (void)setrlimit(RLIMIT_DATA, &memory);
        (void)setrlimit(RLIMIT_CPU, &time);
        for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
            (void)signal(signals[i], SIG_DFL); // cmocka would catch them
        if (command)
            (void)execl(EBB_BINARY_DIR "/ebb", "ebb", "plan", path, "--dim", "batch=2",
                        (char *)NULL);
        _exit(command ? 127 : judge(path));
    }
    int status;
    (void)waitpid(child, &status, 0);
    *how = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
    return WIFEXITED(status) && WEXITSTATUS(status) <= 8;
}

static void no_mutant_crashes_hangs_or_swallows_memory(void **state)
{
    (void)state;
    char path[] = "/tmp/ebb-mutant-XXXXXX";
    int file = mkstemp(path), codes[9] = {0}, failures = 0, how;
    bytes models[ORIGINALS];
    assert_true(file >= 0);
    close(file);
    (void)setenv("OMP_NUM_THREADS", "1", 1);
    for (size_t i = 0; i < ORIGINALS; i++)
        models[i] = read_whole(originals[i]);
    for (int i = 0; i < MUTANTS && failures < 5; i++) {
        size_t which = draw(ORIGINALS);
        const bytes *from = &models[models[which].data != NULL ? which : 0];
        bytes b = {malloc(from->size * 2 + 16), from->size};
        assert_non_null(b.data);
        memcpy(b.data, from->data, from->size);
        mutate(&b);
        FILE *out = fopen(path, "wb");
        assert_non_null(out);
        assert_int_equal(fwrite(b.data, 1, b.size, out), b.size);
        fclose(out);
        free(b.data);
        if (run(i % COMMANDS == 0, path, &how)) {
            codes[how]++;
            continue;
        }
        char kept[64];
        (void)snprintf(kept, sizeof kept, "/tmp/ebb-broken-by-%d.onnx", i);
        (void)rename(path, kept);
        print_error("ebb plan %s --dim batch=2 ended with %d (mutant of %s)\n", kept, how,
                    originals[which]);
        failures++;
    }
    (void)unlink(path);
    for (size_t i = 0; i < ORIGINALS; i++)
        free(models[i].data);
    print_message("%d mutants: %d accepted, %d usage, %d unsupported, %d rejected\n", MUTANTS,
                  codes[0], codes[2], codes[5], codes[6]);
    assert_int_equal(failures, 0);
    assert_true(codes[6] > MUTANTS / 10); // else the mutants do not reach the reader
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_mutant_crashes_hangs_or_swallows_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
