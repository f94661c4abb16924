/* test_house.c: includes run one way, public names are ours, the tree keeps its form. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <dirent.h>
#include <sys/stat.h>

#include <cmocka.h>

/* folder: what it may include; "ebb.h" is include/. Files named whole are single exceptions. */
static const struct {
    const char *folder;
    const char *may[10];
} arrows[] = {
    {"onnx", {"onnx/", "ebb.h"}},
    {"kernels",
     {"kernels/", "onnx/tables/op.h", "onnx/graph/tile.h", "onnx/words/attr.h",
      "onnx/words/tensor.h", "onnx/words/arena.h", "onnx/words/einsum.h", "onnx/words/resize.h",
      "onnx/words/status.h", "ebb.h"}},
    {"rewrite", {"rewrite/", "onnx/", "ebb.h"}},
    {"exec", {"exec/", "kernels/", "onnx/", "ebb.h"}},
    {"passes",
     {"passes/", "rewrite/", "onnx/", "exec/weigh/memory.h", "exec/weigh/pack.h", "exec/run/eval.h",
      "exec/weigh/estimate.h", "exec/weigh/costs.h", "ebb.h"}},
    {"api", {"api/", "passes/", "rewrite/", "exec/", "kernels/", "onnx/", "ebb.h"}},
    {"cli", {"cli/", "ebb.h"}},
};
enum { ARROWS = sizeof arrows / sizeof arrows[0] };

static int broken;

static int allowed(size_t row, const char *name)
{
    if (strchr(name, '/') == NULL && strcmp(name, "ebb.h") != 0)
        return 1; /* beside the file, or generated */
    for (int i = 0; i < 10 && arrows[row].may[i] != NULL; i++) {
        const char *may = arrows[row].may[i];
        size_t length = strlen(may);
        if (may[length - 1] == '/' ? strncmp(name, may, length) == 0 : strcmp(name, may) == 0)
            return 1;
    }
    return 0;
}

static void read_file(size_t row, const char *path)
{
    FILE *file = fopen(path, "r");
    char line[1024], name[1024];
    assert_non_null(file);
    for (int number = 1; fgets(line, sizeof line, file) != NULL; number++) {
        if (sscanf(line, "#include \"%1000[^\"]\"", name) != 1 || allowed(row, name))
            continue;
        print_error("%s:%d: %s may not include \"%s\"\n", path, number, arrows[row].folder, name);
        broken++;
    }
    fclose(file);
}

static void walk(size_t row, const char *path)
{
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (struct dirent *e; (e = readdir(folder)) != NULL;) {
        char below[2048];
        struct stat s;
        const char *dot = strrchr(e->d_name, '.');
        if (e->d_name[0] == '.')
            continue;
        (void)snprintf(below, sizeof below, "%s/%s", path, e->d_name);
        if (stat(below, &s) != 0)
            continue;
        if (S_ISDIR(s.st_mode))
            walk(row, below);
        else if (dot != NULL && (strcmp(dot, ".c") == 0 || strcmp(dot, ".h") == 0))
            read_file(row, below);
    }
    closedir(folder);
}

static void includes_run_down_and_never_up(void **state)
{
    (void)state;
    broken = 0;
    for (size_t row = 0; row < ARROWS; row++) {
        char path[1024];
        (void)snprintf(path, sizeof path, "%s/%s", EBB_SOURCE_DIR, arrows[row].folder);
        walk(row, path);
    }
    assert_int_equal(broken, 0);
}

/* passes speak to each other through the graph alone. */
static void a_pass_includes_no_other_pass(void **state)
{
    (void)state;
    char path[1024], line[1024], name[1024];
    (void)snprintf(path, sizeof path, "%s/passes", EBB_SOURCE_DIR);
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (struct dirent *e; (e = readdir(folder)) != NULL;) {
        if (strstr(e->d_name, ".c") == NULL)
            continue;
        (void)snprintf(path, sizeof path, "%s/passes/%s", EBB_SOURCE_DIR, e->d_name);
        FILE *file = fopen(path, "r");
        assert_non_null(file);
        while (fgets(line, sizeof line, file) != NULL)
            if (sscanf(line, "#include \"%1000[^\"]\"", name) == 1)
                assert_null(strstr(name, ".c"));
        fclose(file);
    }
    closedir(folder);
}

static void libebb_exports_only_its_own_names(void **state)
{
    (void)state;
    char command[2048], line[1024];
    (void)snprintf(command, sizeof command, "nm -D --defined-only %s/libebb.so 2>/dev/null",
                   EBB_BINARY_DIR);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    int names = 0;
    while (fgets(line, sizeof line, pipe) != NULL) {
        char kind, name[512];
        if (sscanf(line, "%*s %c %500s", &kind, name) != 2 || (kind != 'T' && kind != 'D'))
            continue;
        names++;
        if (strncmp(name, "ebb_", 4) != 0) {
            print_error("libebb exports %s\n", name);
            fail();
        }
    }
    pclose(pipe);
    if (names == 0)
        skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(includes_run_down_and_never_up),
        cmocka_unit_test(a_pass_includes_no_other_pass),
        cmocka_unit_test(libebb_exports_only_its_own_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
