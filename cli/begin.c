/* begin.c: what is seen to before a verb begins: how threads wait, and where results go; and before the steps
 * of a training do: that what was planned with is given back. */
#include "cli/cli.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- memory ---- */

/* A block as large as a chunk of an arena has pages of its own, which go when it is freed. glibc would
 * learn from the first that is freed to keep them, and where its heap cannot grow, tens of MB twice. What planning frees
 * and takes again thousands of times, smaller blocks, is kept until cli_give_back. */
static void return_blocks(void)
{
#if defined(__GLIBC__)
    (void)mallopt(M_MMAP_THRESHOLD, 4 * 1024 * 1024);
    (void)mallopt(M_TRIM_THRESHOLD, 64 * 1024 * 1024);
#endif
}

/* glibc would keep what planning freed, 40 MiB of a model of 24 layers, for as long as the steps go on. */
void cli_give_back(void)
{
#if defined(__GLIBC__)
    (void)malloc_trim(0);
#endif
}

/* ---- threads ---- */

static bool computes(const cli *c)
{
    for (int i = 0; c->way->options[i] != NULL; i++)
        if (strcmp(c->way->options[i], "--threads") == 0)
            return true;
    return false;
}

/* The threads of OpenMP spin for milliseconds while they wait, which a machine that has other work
 * pays for several times over. How long can be said in the environment alone, before the program
 * begins: so a verb that computes begins once more, unless its user has said it. What it starts
 * itself does not see that. */
static void wait_asleep(const cli *c, char **words)
{
    static const char again[] = "EBB_BEGUN_AGAIN", spin[] = "GOMP_SPINCOUNT";
    if (getenv(again) == NULL) {
        if (getenv("OMP_WAIT_POLICY") != NULL || getenv(spin) != NULL || !computes(c))
            return;
        if (setenv(again, "1", 1) == 0 && setenv(spin, "1000", 1) == 0)
            (void)execv("/proc/self/exe", words);
    }
    (void)unsetenv(again);
    (void)unsetenv(spin);
}

/* ---- where results go ---- */

static bool is_one_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && S_ISREG(x.st_mode) && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

/* What the verb reads and nobody means to replace: data, another model, and the model itself but by a model. */
static const char *read_and_written(const cli *c, const cli_word *out)
{
    static const char *const reads[] = {"--data", "--eval", "--teacher", "--tokenizer", "--costs"};
    const char *name = out->option->name;
    const bool model = strcmp(name, "-o") == 0 || strcmp(name, "--save-model") == 0;
    for (int i = 0; i < c->word_count; i++)
        for (size_t k = 0; k < sizeof reads / sizeof *reads; k++)
            if (strcmp(c->words[i].option->name, reads[k]) == 0 &&
                is_one_file(c->words[i].value, out->value))
                return reads[k];
    for (int i = 0; i < c->file_count && !model; i++)
        if (is_one_file(c->files[i], out->value))
            return c->files[i];
    return NULL;
}

/* Before anything is done: hours of work should not end at a name that nothing can be written to, nor
 * one result in the place of another. Logs are opened by what writes them. */
static int check_outputs(const cli *c)
{
    const bool writes = !cli_has(c, "--dry-run");
    for (int i = 0; writes && i < c->word_count; i++) {
        const cli_word *w = &c->words[i];
        if (!w->option->is_output)
            continue;
        for (int k = 0; k < i; k++)
            if (c->words[k].option->is_output && strcmp(c->words[k].value, w->value) == 0 &&
                strncmp(w->value, "/dev/", 5) != 0)
                return cli_usage("%s and %s would both be written to %s", c->words[k].option->name,
                                 w->option->name, w->value);
        const char *read = read_and_written(c, w);
        if (read != NULL)
            return cli_usage("%s would replace %s, which %s reads: name another file",
                             w->option->name, w->value, read[0] == '-' ? read : c->verb->name);
        if (w->option->repeats || (cli_is_ort(c) && strcmp(w->option->name, "-o") == 0))
            continue;                                                         // a log, a folder
        const bool adapters = strcmp(w->option->name, "--save-adapter") == 0; // a file or a folder
        ebb_status status = adapters ? ebb_adapters_check(w->value) : ebb_output_check(w->value);
        if (status != NULL)
            return cli_fail(status);
    }
    return EBB_OK;
}

/* By its name alone it is told from the data. */
static int check_tokenizer(const cli *c)
{
    static const char end[] = ".json";
    const char *path = cli_get(c, "--tokenizer", end);
    const size_t length = strlen(path), tail = sizeof end - 1;
    if (length >= tail && strcmp(path + length - tail, end) == 0)
        return EBB_OK;
    return cli_usage("--tokenizer takes the model's tokenizer.json, not %s", path);
}

/* Where a result is to go to stdout, all that is said goes to stderr instead, and the library gets
 * the descriptor that stdout had as a file's name. */
static int give_stdout(cli *c)
{
    static char path[32];
    for (int i = 0; i < c->word_count; i++) {
        cli_word *w = &c->words[i];
        if (!w->option->is_output || strcmp(w->value, "-") != 0)
            continue;
        if (path[0] != '\0')
            return cli_usage("%s: one result alone can go to stdout", w->option->name);
        if (cli_has(c, "--json"))
            return cli_usage("%s - and --json both want stdout", w->option->name);
        const int out = dup(STDOUT_FILENO);
        if (out < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
            return cli_usage("%s -: there is no stdout", w->option->name), EBB_IO;
        (void)snprintf(path, sizeof path, "/dev/fd/%d", out);
        w->value = path;
    }
    return EBB_OK;
}

int cli_begin(cli *c, char **words)
{
    wait_asleep(c, words);
    return_blocks();
    int code = give_stdout(c);
    code = code == EBB_OK ? check_tokenizer(c) : code;
    return code == EBB_OK ? check_outputs(c) : code;
}
