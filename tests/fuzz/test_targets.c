/* test_targets.c: what the targets of libFuzzer are given, without libFuzzer: the hostile corpus,
 * what was found before (tests/fuzz/found/TARGET), and some draws. So targets stay built, and what
 * was mended stays so, on machines without clang.
 */
#include <stdbool.h>

#include <dirent.h>

#include "tests/test.h"

int fuzz_read(const uint8_t *data, size_t size);
int fuzz_text(const uint8_t *data, size_t size);
int fuzz_infer(const uint8_t *data, size_t size);
int fuzz_checkpoint(const uint8_t *data, size_t size);
int fuzz_grad(const uint8_t *data, size_t size);
int fuzz_files(const uint8_t *data, size_t size);
int fuzz_change(const uint8_t *data, size_t size);

#define LLVMFuzzerTestOneInput fuzz_read
#include "tests/fuzz/fuzz_read.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_text
#include "tests/fuzz/fuzz_text.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_infer
#include "tests/fuzz/fuzz_infer.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_checkpoint
#include "tests/fuzz/fuzz_checkpoint.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_grad
#include "tests/fuzz/fuzz_grad.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_files
#include "tests/fuzz/fuzz_files.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_change
#include "tests/fuzz/fuzz_change.c"
#undef LLVMFuzzerTestOneInput

#include "tests/hostile/corpus.h"

static const struct {
    const char *name;
    int (*target)(const uint8_t *data, size_t size);
} targets[] = {
    {"read", fuzz_read},     {"text", fuzz_text},
    {"infer", fuzz_infer},   {"checkpoint", fuzz_checkpoint},
    {"grad", fuzz_grad},     {"files", fuzz_files},
    {"change", fuzz_change},
};
enum { TARGETS = sizeof targets / sizeof targets[0] };

TEST(every_target_takes_the_hostile_corpus)
{
    for (size_t p = 0; p < CORPUS_PARTS; p++)
        for (size_t i = 0; i < corpus_parts[p].count; i++) {
            const hostile_file *f = &corpus_parts[p].files[i];
            void *data;
            size_t size;
            if (!corpus_content(f, &data, &size))
                continue; // a link, say
            for (size_t t = 0; t < TARGETS; t++)
                assert_int_equal(targets[t].target(data, size), 0);
            free(data);
            if (f->text != NULL)
                assert_int_equal(fuzz_text((const uint8_t *)f->text, strlen(f->text)), 0);
        }
}

static void replay(int (*target)(const uint8_t *data, size_t size), const char *path)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    uint8_t *data = malloc(1 << 20);
    assert_non_null(data);
    size_t size = fread(data, 1, 1 << 20, file);
    fclose(file);
    assert_int_equal(target(data, size), 0);
    free(data);
}

TEST(what_was_found_is_found_no_more)
{
    size_t files = 0;
    for (size_t t = 0; t < TARGETS; t++) {
        char path[1024];
        (void)snprintf(path, sizeof path, EBB_SOURCE_DIR "/tests/fuzz/found/%s", targets[t].name);
        DIR *folder = opendir(path);
        if (folder == NULL)
            continue;
        for (struct dirent *e; (e = readdir(folder)) != NULL;) {
            if (e->d_name[0] == '.')
                continue;
            (void)snprintf(path, sizeof path, EBB_SOURCE_DIR "/tests/fuzz/found/%s/%s",
                           targets[t].name, e->d_name);
            replay(targets[t].target, path);
            files++;
        }
        closedir(folder);
    }
    print_message("%zu files\n", files);
    assert_true(files > 0);
}

/* Bytes as libFuzzer would begin with them. */
TEST(graphs_drawn_from_any_bytes_are_survived)
{
    draws d = {.state = 7};
    uint8_t data[512];
    for (int i = 0; i < 300; i++) {
        for (size_t k = 0; k < sizeof data; k++)
            data[k] = (uint8_t)draw(&d, 256);
        assert_int_equal(fuzz_grad(data, sizeof data), 0);
    }
}

int main(void)
{
    (void)setenv("OMP_NUM_THREADS", "1", 1);
    return run_listed();
}
