/* test_check.c: every tests/api/check/NAME.txt: a model, and all that the doctor says of it.
 *
 *     # what is shown
 *     dims: batch=4
 *     ---
 *     <ir_version: 10, opset_import: ["" : 20]> g (float[4] x) => (float[4] y) { y = Relu(x) }
 *     ---
 *     problem operator my.ops.Wobble 2: what
 *       at Wobble 'mine', Wobble 'again'
 *       help: what would help
 *       pass: that sees to it
 *
 * With EBB_GOLDEN=update in the environment the third part is written anew: read the difference
 * before committing it.
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
#include <jansson.h>

#include "onnx/file.h"
#include "onnx/infer.h"

enum { MOST = 256, MOST_BYTES = 1 << 18 };

typedef struct example {
    char path[1200], dim[64];
    long long size; /* of `dim`; 0: none is given */
    char *text, *model, *expected;
} example;

static bool load(example *t)
{
    FILE *file = fopen(t->path, "rb");
    t->text = calloc(1, MOST_BYTES);
    if (file == NULL || t->text == NULL)
        return false;
    size_t n = fread(t->text, 1, MOST_BYTES - 1, file);
    t->text[n] = '\0';
    fclose(file);
    char *first = strstr(t->text, "\n---\n");
    char *second = first != NULL ? strstr(first + 5, "\n---\n") : NULL;
    if (second == NULL)
        return false;
    char *dims = strstr(t->text, "\ndims: ");
    if (dims != NULL && dims < first && sscanf(dims, "\ndims: %63[^=]=%lld", t->dim, &t->size) != 2)
        return false;
    t->model = first + 5;
    *second = '\0';
    t->expected = second + 5;
    return true;
}

static const char *text_of(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

static void print_list(FILE *out, const json_t *report, const char *list, const char *severity)
{
    size_t i, k;
    json_t *f, *node;
    json_array_foreach(json_object_get(report, list), i, f)
    {
        const char *domain = text_of(f, "domain"), *op = text_of(f, "op");
        fprintf(out, "%s %s %s%s%s%s%lld: %s\n", severity, text_of(f, "kind"), domain,
                domain[0] != '\0' ? "." : "", op, op[0] != '\0' ? " " : "",
                (long long)json_integer_value(json_object_get(f, "count")), text_of(f, "what"));
        json_array_foreach(json_object_get(f, "nodes"), k, node)
            fprintf(out, "%s%s", k > 0 ? ", " : "  at ", json_string_value(node));
        fprintf(out, "%s", k > 0 ? "\n" : "");
        if (text_of(f, "help")[0] != '\0')
            fprintf(out, "  help: %s\n", text_of(f, "help"));
        if (text_of(f, "pass")[0] != '\0')
            fprintf(out, "  pass: %s\n", text_of(f, "pass"));
    }
}

/* All findings, and how training would end. From malloc. */
static char *examined(ebb_model *model)
{
    char *json, *text = NULL;
    size_t size;
    ebb_status status = ebb_check_json(model, &json);
    if (status != NULL)
        fail_msg("%s", ebb_status_text(status));
    json_t *report = json_loads(json, 0, NULL);
    ebb_release(json);
    assert_non_null(report);
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    print_list(out, report, "problems", "problem");
    print_list(out, report, "warnings", "warning");
    print_list(out, report, "notes", "note");
    fprintf(out, "code %lld\n", (long long)json_integer_value(json_object_get(report, "code")));
    fclose(out);
    json_decref(report);
    return text;
}

static void update(const example *t, const char *printed)
{
    FILE *file = fopen(t->path, "wb");
    assert_non_null(file);
    fprintf(file, "%s\n---\n%s", t->text, printed);
    fclose(file);
}

static void says_what_is_written(void **state)
{
    example *t = *state;
    ebb_model *model = NULL;
    const char *mode = getenv("EBB_GOLDEN");
    if (!load(t))
        fail_msg("%s: a head and two lines of '---' are needed", t->path);
    ebb_status status = ebb_text_parse_model(&model, t->model);
    if (status == NULL && t->size > 0) {
        ebb_status bound = ebb_set_dim(model, t->dim, t->size);
        status = ebb_status_code(bound) == EBB_REJECTED ? NULL : bound;
    }
    if (status != NULL)
        fail_msg("%s: %s", t->path, ebb_status_text(status));
    char *printed = examined(model);
    if (mode != NULL && strcmp(mode, "update") == 0)
        update(t, printed);
    else if (strcmp(printed, t->expected) != 0)
        fail_msg("%s:\n%s\nexpected:\n%s", t->path, printed, t->expected);
    free(printed);
    ebb_model_free(model);
    free(t->text);
}

/* ---- what no text can hold ---- */

static void weights_in_a_file_above_two_gibibytes_are_no_problem_unless_it_is_missing(void **state)
{
    (void)state;
    ebb_model *model = NULL;
    assert_null(ebb_text_parse_model(&model, "<ir_version: 10, opset_import: [\"\" : 20]>\n"
                                             "g (float[1,40000] x) => (float[1,40000] y)\n"
                                             "<float[40000,40000] w> { y = MatMul (x, w) }"));
    ebb_tensor *t = ebb_value_of(model->graph, model->graph->initializers[0])->tensor;
    t->external = true;
    t->location = "model.onnx.data";
    char *text = examined(model);
    assert_non_null(strstr(text, "note large-file 0: 6.40 GB"));
    assert_non_null(strstr(text, "problem external-data 1: 1 weights (6400 MB) have no values, "
                                 "for their file 'model.onnx.data' is not beside the model"));
    assert_non_null(strstr(text, "code 8\n"));
    free(text);
    ebb_model_free(model);
}

static void a_model_that_is_looked_at_stays_as_it_is(void **state)
{
    (void)state;
    char *before, *after;
    ebb_model *model = NULL;
    assert_null(ebb_open(&model, EBB_SOURCE_DIR "/samples/digits/transformer.onnx"));
    assert_null(ebb_text_print(&before, model->graph));
    free(examined(model));
    assert_null(ebb_text_print(&after, model->graph));
    assert_string_equal(before, after);
    ebb_free(before);
    ebb_free(after);
    ebb_model_free(model);
}

/* ---- all files ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static size_t list_files(example *all, struct CMUnitTest *tests, size_t count, const char *folder)
{
    DIR *directory = opendir(folder);
    char *names[MOST];
    size_t found = 0;
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL && count + found < MOST - 8;) {
        const char *dot = strrchr(entry->d_name, '.');
        if (dot != NULL && strcmp(dot, ".txt") == 0)
            names[found++] = strdup(entry->d_name);
    }
    closedir(directory);
    qsort(names, found, sizeof *names, by_name);
    for (size_t i = 0; i < found; i++) {
        example *t = &all[count + i];
        (void)snprintf(t->path, sizeof t->path, "%s/%s", folder, names[i]);
        tests[count + i] = (struct CMUnitTest){names[i], says_what_is_written, NULL, NULL, t};
    }
    return count + found;
}

int main(void)
{
    static example all[MOST];
    static struct CMUnitTest tests[MOST];
    size_t count = list_files(all, tests, 0, EBB_SOURCE_DIR "/tests/api/check");
    const struct CMUnitTest others[] = {
        cmocka_unit_test(weights_in_a_file_above_two_gibibytes_are_no_problem_unless_it_is_missing),
        cmocka_unit_test(a_model_that_is_looked_at_stays_as_it_is),
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        tests[count++] = others[i];
    return _cmocka_run_group_tests("check", tests, count, NULL, NULL);
}
