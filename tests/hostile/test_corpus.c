/* test_corpus.c: every file of the corpus (corpus.h), by the library in this process, so that a
 * sanitizer watches, and by the command as a user would, within ten seconds and 512 MiB. Each must
 * end with the exit code and the sentence that its row names.
 *     test_hostile_corpus --list      the table as text
 */
#include <stdbool.h>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "tests/formatted.h"
#include "tests/hostile/corpus.h"
#include "tests/owned.h"
#include "tests/share.h"
#include "tests/test.h"

static char folder[] = "/tmp/ebb-corpus-XXXXXX";

/* y = x w, to be run and trained with arrays that are hostile, and arrays that are not. */
static int make_folder(void **state)
{
    (void)state;
    const hostile_file ok = {MODEL("float[4,3] input", "float[4,2] y",
                                   "float[3,2] w = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}",
                                   "y = MatMul(input, w)"),
                             .name = "ok.onnx"};
    const float x[4] = {1, 2, 3, 4}, rows[12] = {0}, target[8] = {0};
    const int64_t labels[4] = {0, 1, 7, 1}, tokens[4] = {0, 1, 1000000, 2};
    const int64_t four = 4, by_three[] = {4, 3}, by_two[] = {4, 2};
    const ebb_named arrays[] = {
        {"x", EBB_F32, 1, &four, x},           {"rows", EBB_F32, 2, by_three, rows},
        {"target", EBB_I64, 1, &four, labels}, {"tokens", EBB_I64, 1, &four, tokens},
        {"input", EBB_F32, 2, by_three, rows}, {"target", EBB_F32, 2, by_two, target},
    };
    char path[256];
    void *data;
    size_t size;
    if (mkdtemp(folder) == NULL || !corpus_beside(folder) || !corpus_content(&ok, &data, &size))
        return 1;
    bool written = corpus_write(folder, ok.name, data, size);
    free(data);
    (void)snprintf(path, sizeof path, "%s/x.safetensors", folder);
    written = written && ebb_tensors_save(path, arrays, 1, NULL) == NULL;
    (void)snprintf(path, sizeof path, "%s/rows.safetensors", folder);
    written = written && ebb_tensors_save(path, arrays + 1, 3, NULL) == NULL;
    (void)snprintf(path, sizeof path, "%s/ok.safetensors", folder);
    written = written && ebb_tensors_save(path, arrays + 4, 2, NULL) == NULL;
    (void)snprintf(path, sizeof path, "%s/none.safetensors", folder);
    return written && ebb_tensors_save(path, arrays, 0, NULL) == NULL ? 0 : 1;
}

static int remove_folder(void **state)
{
    (void)state;
    return system(formatted("rm -rf %s", folder));
}

/* ---- by the library ---- */

/* What a program would do with the file that is no model of ours, or with the model. */
static ebb_status use(const hostile_file *f, const char *path)
{
    OWNED_MODEL *model = NULL;
    ebb_data *data = NULL;
    RELEASED char *json = NULL;
    const ebb_plan_options options = {.backend = "cpu"};
    if (strstr(f->name, ".onnx") == NULL && f->command[0] != 'c') {
        ebb_status status = ebb_data_open(&data, path, NULL);
        ebb_data_close(data);
        return status;
    }
    EBB_TRY(ebb_open(&model, path));
    if (strstr(f->command, "--trust") != NULL)
        ebb_trust(model);
    ebb_status status = NULL;
    if (f->command[0] == 'r' && f->command[1] == 'e') {
        status = ebb_rewrite(model, "inline", NULL, NULL);
    } else if (f->command[0] == 'p') {
        status = ebb_plan_json(model, &options, &json);
    } else {
        status = ebb_check_json(model, &json);
    }
    return status;
}

/* ---- by the command ---- */

static char said[8192];

/* Exit code, or minus the signal; what it said is in `said`. */
static int run(const char *command)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit memory = {512u << 20, 512u << 20}, time = {10, 10};
        (void)dup2(ends[1], 1);
        (void)dup2(ends[1], 2);
        (void)close(ends[0]);
        if (!SANITIZED) // a sanitizer reserves terabytes of addresses
            (void)setrlimit(RLIMIT_DATA, &memory);
        (void)setrlimit(RLIMIT_CPU, &time);
        (void)setenv("OMP_NUM_THREADS", "1", 1);
        (void)setenv("ASAN_OPTIONS", "allocator_may_return_null=1", 1);
        if (chdir(folder) == 0)
            (void)execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    (void)close(ends[1]);
    size_t length = 0;
    for (ssize_t n; (n = read(ends[0], said + length, sizeof said - 1 - length)) > 0;)
        length += (size_t)n;
    said[length] = '\0';
    (void)close(ends[0]);
    int status;
    (void)waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static void command_of(const hostile_file *f, char *text, size_t size)
{
    const char *place = strchr(f->command, '%');
    assert_non_null(place);
    (void)snprintf(text, size, "exec %s %.*s%s%s", EBB_BINARY_DIR "/ebb", (int)(place - f->command),
                   f->command, f->name, place + 1);
}

/* ---- the tests ---- */

static bool put_in_folder(const hostile_file *f)
{
    FREED void *data = NULL;
    size_t size;
    if (f->text == NULL && f->make == NULL && f->make_model == NULL && f->json == NULL &&
        f->data == NULL)
        return true; // it is there, or is not to be there
    if (!corpus_content(f, &data, &size))
        return false;
    bool written = corpus_write(folder, f->name, data, size);
    return written;
}

static bool ends_as_it_must(const hostile_file *f)
{
    char command[1024];
    if (!put_in_folder(f))
        return false;
    ebb_status status = use(f, formatted("%s%s%s", f->name[0] == '/' ? "" : folder,
                                         f->name[0] == '/' ? "" : "/", f->name));
    command_of(f, command, sizeof command);
    int code = run(command);
    if (code != f->code || strstr(said, f->says) == NULL) {
        print_error("%s\n  exit %d, expected %d; said:\n%s\n  expected to read: %s\n", command,
                    code, f->code, said, f->says);
        return false;
    }
    // What the library refuses it refuses with the same sentence; some is refused by later verbs.
    if (status != NULL && strstr(ebb_status_text(status), f->says) == NULL &&
        strstr(f->says, "?") == NULL) {
        print_error("%s: the library says \"%s\"\n", f->name, ebb_status_text(status));
        return false;
    }
    if ((status == NULL) != (f->code == EBB_OK) && f->command[0] == 'c') {
        print_error("%s: the library judges it otherwise\n", f->name);
        return false;
    }
    return true;
}

TEST(every_hostile_file_ends_with_its_sentence_and_exit_code)
{
    size_t files = 0, failures = 0;
    for (size_t p = 0; p < CORPUS_PARTS; p++)
        for (size_t i = 0; i < corpus_parts[p].count; i++) {
            files++;
            failures += !ends_as_it_must(&corpus_parts[p].files[i]);
        }
    print_message("%zu files\n", files);
    assert_int_equal(failures, 0);
    assert_true(files >= 60);
}

TEST(no_two_files_have_one_name)
{
    for (size_t p = 0; p < CORPUS_PARTS; p++)
        for (size_t i = 0; i < corpus_parts[p].count; i++)
            for (size_t q = 0; q <= p; q++)
                for (size_t k = 0; k < (q == p ? i : corpus_parts[q].count); k++)
                    if (strcmp(corpus_parts[p].files[i].name, corpus_parts[q].files[k].name) == 0)
                        fail_msg("'%s' is there twice", corpus_parts[p].files[i].name);
}

/* Nothing that a file names was made, and nothing beside it was changed. */
TEST(the_folder_holds_what_was_put_there)
{
    struct stat facts;
    char path[256];
    (void)snprintf(path, sizeof path, "%s/w.bin", folder);
    assert_int_equal(stat(path, &facts), 0);
    assert_int_equal(facts.st_size, 64);
    (void)snprintf(path, sizeof path, "%s/folder", folder);
    assert_int_equal(rmdir(path), 0); // it is still empty
}

static int list(void)
{
    for (size_t p = 0; p < CORPUS_PARTS; p++)
        for (size_t i = 0; i < corpus_parts[p].count; i++) {
            const hostile_file *f = &corpus_parts[p].files[i];
            printf("%-16s %-36s exit %d  %s\n", f->class, f->name, f->code, f->says);
        }
    return 0;
}

const fixture around_all = {make_folder, remove_folder};

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--list") == 0)
        return list();
    return run_listed();
}
