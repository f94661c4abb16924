/* reduce.c: `ebb reduce`: a failing model becomes the smallest that still fails.
 *
 *   --fails WHAT         a failure of ebb's own, asked of the library in this process
 *   -- COMMAND... {}     any program, as with C-Reduce: it gets a candidate's file for {} (or as
 *                        its last argument), and exits with 0 where the candidate still shows what
 *                        is looked for. --exit and --match take other signs of it.
 */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_CRASH = 1000, EXIT_TIMEOUT };

typedef struct trial {
    const cli *c;
    char folder[64];       /* of candidates */
    char path[PATH_MAX];   /* of the candidate */
    char output[PATH_MAX]; /* what the command says */
    int expected;          /* exit code, EXIT_CRASH or EXIT_TIMEOUT */
    int64_t timeout_s;
    const char *match;
    int ended; /* how the last one did */
} trial;

/* ---- one command ---- */

/* Each "{}" in a word becomes the path. From malloc; NULL: no memory. */
static char *fill_in(const char *word, const char *path)
{
    char *filled = NULL;
    size_t size;
    FILE *out = open_memstream(&filled, &size);
    if (out == NULL)
        return NULL;
    for (const char *at; (at = strstr(word, "{}")) != NULL; word = at + 2)
        (void)fprintf(out, "%.*s%s", (int)(at - word), word, path);
    (void)fputs(word, out);
    return fclose(out) == 0 ? filled : NULL;
}

/* In the child: never returns. What it says goes to a file, so that a pipe cannot fill up. */
static void become(const trial *t)
{
    const cli *c = t->c;
    char **words = calloc((size_t)c->command_count + 2, sizeof *words);
    bool named = false;
    int out = open(t->output, O_WRONLY | O_CREAT | O_TRUNC, 0600),
        null = open("/dev/null", O_RDONLY);
    if (words == NULL || out < 0 || null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 ||
        dup2(out, 2) < 0 || setpgid(0, 0) != 0)
        _exit(127);
    for (int i = 0; i < c->command_count; i++) {
        words[i] = fill_in(c->command[i], t->path);
        named = named || strstr(c->command[i], "{}") != NULL;
        if (words[i] == NULL)
            _exit(127);
    }
    if (!named)
        words[c->command_count] = fill_in("{}", t->path);
    (void)execvp(words[0], words);
    fprintf(stderr, "%s: %s\n", words[0], strerror(errno));
    _exit(127);
}

static double seconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Waits, and ends the command with all that it started when its time is over. */
static int wait_for(pid_t child, int64_t timeout_s)
{
    double end = seconds() + (double)timeout_s;
    int status = 0;
    bool late = false;
    for (long pause_ns = 200000; waitpid(child, &status, WNOHANG) == 0;) {
        if (seconds() > end) {
            late = true;
            (void)kill(-child, SIGKILL);
            (void)kill(child, SIGKILL);
            (void)waitpid(child, &status, 0);
            break;
        }
        (void)nanosleep(&(struct timespec){0, pause_ns}, NULL);
        pause_ns = pause_ns < 20000000 ? pause_ns * 2 : pause_ns;
    }
    if (late)
        return EXIT_TIMEOUT;
    return WIFSIGNALED(status) ? EXIT_CRASH : WEXITSTATUS(status);
}

static bool says(const char *path, const char *words)
{
    FILE *file = fopen(path, "rb");
    size_t length = strlen(words), kept = 0;
    char block[8192];
    bool found = false;
    while (file != NULL && !found) {
        size_t n = fread(block + kept, 1, sizeof block - kept, file);
        if (n == 0)
            break;
        kept += n;
        for (size_t i = 0; i + length <= kept && !found; i++)
            found = memcmp(block + i, words, length) == 0;
        size_t tail = kept < length ? kept : length - (length > 0);
        memmove(block, block + kept - tail, tail);
        kept = tail;
    }
    if (file != NULL)
        (void)fclose(file);
    return found;
}

static ebb_status still_fails(void *context, ebb_model *model, bool *still)
{
    trial *t = context;
    ebb_status status = ebb_save(model, t->path);
    if (status != NULL)
        return status;
    (void)fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        become(t);
    t->ended = child > 0 ? wait_for(child, t->timeout_s) : 127;
    // A shell ends with 128 + n where what it ran was ended by a signal.
    bool crashed = t->ended == EXIT_CRASH || (t->ended > 128 && t->ended < 160);
    bool as_expected = t->expected == EXIT_CRASH ? crashed : t->ended == t->expected;
    *still = as_expected && (t->match == NULL || says(t->output, t->match));
    return NULL;
}

/* ---- the verb ---- */

static void progress(void *context, const char *stage, size_t nodes, size_t tests)
{
    (void)context;
    if (isatty(fileno(stderr)))
        fprintf(stderr, "\r%s: %zu nodes left after %zu tests   ", stage, nodes, tests);
}

static int read_exit(const cli *c, int *expected)
{
    const char *text = cli_get(c, "--exit", "0");
    int64_t code = 0;
    ebb_status status = NULL;
    if (strcmp(text, "crash") == 0)
        *expected = EXIT_CRASH;
    else if (strcmp(text, "timeout") == 0)
        *expected = EXIT_TIMEOUT;
    else if ((status = ebb_whole_parse(&code, text, "[0, 255]", "--exit")) == NULL)
        *expected = (int)code;
    if (status != NULL) {
        (void)cli_fail(status);
        cli_note("  or crash, or timeout");
    }
    return status == NULL ? EBB_OK : EBB_USAGE;
}

static int check_words(const cli *c, trial *t)
{
    if (!cli_has(c, "-o"))
        return cli_usage("say where the smallest model goes: -o FILE");
    t->timeout_s = cli_whole(c, "--timeout", 60);
    return read_exit(c, &t->expected);
}

static int make_folder(trial *t)
{
    const char *base = getenv("TMPDIR");
    if (base == NULL || base[0] == '\0' || strlen(base) > 30)
        base = "/tmp";
    (void)snprintf(t->folder, sizeof t->folder, "%s/ebb-reduce-XXXXXX", base);
    if (mkdtemp(t->folder) == NULL) {
        (void)cli_usage("no folder can be made in %s for candidates", base);
        return EBB_IO;
    }
    (void)snprintf(t->path, sizeof t->path, "%s/candidate.onnx", t->folder);
    (void)snprintf(t->output, sizeof t->output, "%s/output.txt", t->folder);
    return EBB_OK;
}

static void remove_folder(const trial *t)
{
    char data[PATH_MAX + 8];
    (void)snprintf(data, sizeof data, "%s.data", t->path);
    (void)unlink(data);
    (void)unlink(t->path);
    (void)unlink(t->output);
    (void)rmdir(t->folder);
}

static void show_reduce(const json_t *o)
{
    static const char *const keys[] = {"nodes", "inputs", "outputs", "initializers", "functions"};
    const json_t *before = json_object_get(o, "before"), *after = json_object_get(o, "after");
    char a[32], b[32];
    if (cli_text(o, "sentence")[0] != '\0')
        printf("fails with %d: %s\n", (int)cli_real(o, "code"), cli_text(o, "sentence"));
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        printf("%-14s %8.0f -> %.0f\n", keys[i], cli_real(before, keys[i]),
               cli_real(after, keys[i]));
    printf("%-14s %8s -> %s\n", "weights", cli_bytes(a, cli_real(before, "initializer_bytes")),
           cli_bytes(b, cli_real(after, "initializer_bytes")));
    printf("%.0f tests; the file is %s, and was read back and tested\n", cli_real(o, "tests"),
           cli_bytes(a, cli_real(o, "file_bytes")));
}

static int run(const cli *c, trial *t)
{
    ebb_model *model = NULL;
    char *json = NULL, *pipeline = NULL;
    const char *fails = cli_get(c, "--fails", NULL);
    bool step = fails != NULL && (strcmp(fails, "grad") == 0 || cli_step_option(c) != NULL);
    ebb_status status = ebb_open_as_is(&model, c->files[0]);
    if (status == NULL)
        status = cli_bind(c, model);
    if (model != NULL && ebb_status_code(status) == EBB_REJECTED)
        status = NULL; // contradictions may be what is looked for
    if (status == NULL)
        status = cli_weights(c, model);
    if (status == NULL)
        status = cli_pipeline(c, model, step, &pipeline);
    const ebb_reduce_options options = {
        .fails = fails != NULL && strcmp(fails, "grad") == 0 ? "rewrite" : fails,
        .pipeline = pipeline != NULL && pipeline[0] != '\0' ? pipeline : NULL,
        .match = fails != NULL ? t->match : NULL,
        .test = still_fails,
        .progress = progress,
        .context = t,
        .most_tests = (size_t)cli_whole(c, "--tests", 0),
        .backend = cli_backend(c),
        .seed = cli_seed(c),
        .threads = cli_threads(c)};
    if (status == NULL)
        status = ebb_reduce(model, cli_get(c, "-o", NULL), &options, &json);
    if (isatty(fileno(stderr)))
        fputs("\r\033[K", stderr);
    ebb_release(pipeline);
    ebb_close(model);
    if (status == NULL)
        return cli_show(c, json, show_reduce);
    int code = cli_fail(status);
    if (fails == NULL && code == EBB_USAGE)
        cli_note("  the command ended with %s%d, and %s was looked for",
                 t->ended == EXIT_CRASH     ? "a crash: "
                 : t->ended == EXIT_TIMEOUT ? "no end in time: "
                                            : "",
                 t->ended, cli_get(c, "--exit", "0"));
    return code;
}

int cli_reduce(const cli *c)
{
    trial t = {.c = c, .match = cli_get(c, "--match", NULL)};
    int code = check_words(c, &t);
    if (code == EBB_OK)
        code = cli_check_planning(c);
    if (code == EBB_OK)
        code = make_folder(&t);
    if (code != EBB_OK)
        return code;
    code = run(c, &t);
    remove_folder(&t);
    return code;
}
