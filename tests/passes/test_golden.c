/* test_golden.c: every tests/passes/NAME.txt: a model, a pipeline, and the model that must come
 * out.
 *
 *     # what is shown
 *     passes: loss:mse,gradient,sign-mask
 *     ---
 *     <ir_version: 10, opset_import: ["" : 20]> g (float[4] x) => (float[4] y) { y = Relu(x) }
 *     ---
 *     the graph as text after the last pass
 *
 * The last pass is then run again and must change nothing. With EBB_GOLDEN=update in the
 * environment the third part is written anew: read the difference before committing it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dirent.h>

#include <cmocka.h>

#include "onnx/file.h"
#include "passes/pipeline.h"

enum { MOST = 256, MOST_BYTES = 1 << 20 };

typedef struct golden {
    char path[1200], passes[512];
    char *text;     /* of the file */
    char *model;    /* within it */
    char *expected; /* within it */
} golden;

static bool load(golden *t)
{
    FILE *file = fopen(t->path, "rb");
    t->text = calloc(1, MOST_BYTES);
    if (file == NULL || t->text == NULL)
        return false;
    size_t n = fread(t->text, 1, MOST_BYTES - 1, file);
    t->text[n] = '\0';
    fclose(file);
    char *line = strstr(t->text, "passes:"), *first = strstr(t->text, "\n---\n");
    char *second = first != NULL ? strstr(first + 5, "\n---\n") : NULL;
    if (line == NULL || second == NULL || sscanf(line, "passes: %511[^\n]", t->passes) != 1)
        return false;
    t->model = first + 5;
    *second = '\0';
    t->expected = second + 5;
    return true;
}

static ebb_status run(ebb_model *model, const char *passes, char **text)
{
    const ebb_rewrite_options options = {.verify_each = true};
    ebb_arena keep = {0};
    ebb_report *reports;
    size_t count;
    ebb_status status = ebb_pipeline_run(model, passes, &options, &keep, &reports, &count);
    ebb_arena_fini(&keep);
    return status != NULL ? status : ebb_text_print(text, model->graph);
}

static void save(const golden *t, const char *text)
{
    FILE *file = fopen(t->path, "wb");
    assert_non_null(file);
    fprintf(file, "%.*s\n---\n%s\n---\n%s", (int)(t->model - t->text - 5), t->text, t->model, text);
    fclose(file);
}

/* The last pass of the line, with its options. */
static const char *last_pass(const char *passes)
{
    const char *last = passes;
    for (const char *c = passes; *c != '\0'; c++) {
        size_t word = strcspn(c + 1, ",");
        const char *equals = memchr(c + 1, '=', word), *colon = memchr(c + 1, ':', word);
        if (*c == ',' && (equals == NULL || (colon != NULL && colon < equals)))
            last = c + 1;
    }
    return last;
}

static void comes_out_as_written(void **state)
{
    golden *t = *state;
    ebb_model *model = NULL;
    char *text = NULL, *again = NULL;
    const char *update = getenv("EBB_GOLDEN");
    if (!load(t))
        fail_msg("%s: a line 'passes: ...' and two lines '---' are needed", t->path);
    ebb_status status = ebb_text_parse_model(&model, t->model);
    if (status == NULL)
        status = run(model, t->passes, &text);
    if (status != NULL)
        fail_msg("%s: %s", t->path, ebb_status_text(status));
    if (update != NULL && strcmp(update, "update") == 0)
        save(t, text);
    else
        assert_string_equal(text, t->expected);
    status = run(model, last_pass(t->passes), &again);
    if (status != NULL)
        fail_msg("%s: again: %s", t->path, ebb_status_text(status));
    assert_string_equal(again, text);
    ebb_free(text);
    ebb_free(again);
    ebb_model_free(model);
    free(t->text);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const golden *)a)->path, ((const golden *)b)->path);
}

int main(void)
{
    static golden goldens[MOST];
    static struct CMUnitTest tests[MOST];
    const char *folder = EBB_SOURCE_DIR "/tests/passes";
    size_t count = 0;
    DIR *dir = opendir(folder);
    if (dir == NULL)
        return 1;
    for (struct dirent *e; (e = readdir(dir)) != NULL && count < MOST;) {
        size_t length = strlen(e->d_name);
        if (length > 4 && strcmp(e->d_name + length - 4, ".txt") == 0)
            (void)snprintf(goldens[count++].path, sizeof goldens[0].path, "%s/%s", folder,
                           e->d_name);
    }
    closedir(dir);
    qsort(goldens, count, sizeof goldens[0], by_name);
    for (size_t i = 0; i < count; i++)
        tests[i] = (struct CMUnitTest){strrchr(goldens[i].path, '/') + 1, comes_out_as_written,
                                       NULL, NULL, &goldens[i]};
    return _cmocka_run_group_tests("golden", tests, count, NULL, NULL);
}
