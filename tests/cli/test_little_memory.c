/* test_little_memory.c: a training with less address space than it needs says so, whatever it is
 * that finds none; it is never ended by a signal. */
#include "tests/cli/cli.h"
#include "tests/share.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

enum { LIMITS = 100, MIB = 1 << 20, MOST = 512 * MIB };

static const char *const version[] = {EBB, "version", NULL};

/* What wait() says of the command in so much address space; its words are in the file `said`. */
static int ended_within(const char *const *arguments, size_t bytes)
{
    int status = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit space = {bytes, bytes}, no_core = {0, 0};
        int said = open(path_of("said"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
        (void)dup2(said, 1);
        (void)dup2(said, 2);
        (void)setrlimit(RLIMIT_CORE, &no_core);
        (void)setrlimit(RLIMIT_AS, &space);
        (void)execv(EBB, (char *const *)(uintptr_t)arguments);
        _exit(126);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

/* About the least that is enough. */
static size_t enough_for(const char *const *arguments)
{
    size_t least = 0, enough = MOST;
    assert_int_equal(ended_within(arguments, enough), 0);
    while (enough - least > MIB / 8) {
        size_t middle = least + (enough - least) / 2;
        if (ended_within(arguments, middle) == 0)
            enough = middle;
        else
            least = middle;
    }
    return enough;
}

static bool said_something(void)
{
    struct stat s;
    return stat(path_of("said"), &s) == 0 && s.st_size > 0;
}

/* From where the command can be loaded at all up to where the training has enough. */
static void ends_with_a_sentence(const char *model)
{
    const char *const training[] = {EBB,
                                    "train",
                                    model,
                                    "--data",
                                    DIGITS "digits.npz",
                                    "--map",
                                    "image=image",
                                    "--map",
                                    "label=target",
                                    "--batch",
                                    "16",
                                    "--steps",
                                    "2",
                                    "--loss",
                                    "cross-entropy",
                                    "--optimizer",
                                    "sgd",
                                    "--threads",
                                    "2",
                                    NULL};
    size_t least = enough_for(version), enough = enough_for(training), one = 0;
    int killed = 0, silent = 0, trained = 0;
    for (size_t k = 0; k < LIMITS; k++) {
        size_t limit = least + (enough - least) / LIMITS * k;
        int status = ended_within(training, limit);
        if (WIFSIGNALED(status)) {
            killed++;
            one = limit;
        } else {
            trained += status == 0;
            silent += status != 0 && !said_something();
        }
    }
    if (killed + silent > 0)
        fail_msg("%s: of %d limits from %zu to %zu bytes, %d end in a signal (one: %zu), %d "
                 "without a word",
                 model, (int)LIMITS, least, enough, killed, one, silent);
    assert_true(trained < LIMITS / 2); // else the limits said nothing
}

TEST(a_convolutional_network_that_gets_too_little_memory_says_so)
{
    ends_with_a_sentence(DIGITS "cnn.onnx");
}

TEST(a_transformer_that_gets_too_little_memory_says_so)
{
    ends_with_a_sentence(DIGITS "transformer.onnx");
}

const fixture around_all = {make_folder, remove_folder};

int main(void)
{
    if (SANITIZED) {
        puts("SKIP: sanitizers reserve address space by the terabyte");
        return 77;
    }
    return run_listed();
}
