/* test_house.c: includes run one way, from room to room; a pass knows no other;
 * files and folders stay small; public names are ours. */
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <dirent.h>
#include <sys/stat.h>

#include "tests/formatted.h"
#include "tests/test.h"

#define WORDS "onnx/words/", "onnx/tables/op.h", "onnx/graph/tile.h"
#define RULER                                                                                  \
    "exec/weigh/memory.h", "exec/weigh/pack.h", "exec/weigh/estimate.h", "exec/weigh/costs.h", \
        "exec/run/eval.h"

/* One row a room: what its files may include besides their own room. "FOLDER/" is the folder and all
 * rooms in it, "FOLDER/." the files at its top alone; a whole name is a single exception. The longest
 * room that a file lies in is its row. ebb.h is include/. */
static const struct {
    const char *room;
    const char *may[14];
} rooms[] = {
    {"include", {NULL}},
    /* what a graph is */
    {"onnx/words", {"ebb.h"}},
    {"onnx/tables", {"onnx/words/", "onnx/ops/ops.h"}}, /* the table names each row's functions */
    {"onnx/graph", {"onnx/words/", "onnx/tables/"}},
    {"onnx/ops", {"onnx/words/", "onnx/tables/", "onnx/graph/", "onnx/ops/."}},
    {"onnx/file", {"onnx/words/", "onnx/tables/", "onnx/graph/", "ebb.h"}},
    {"onnx/text", {"onnx/words/", "onnx/tables/", "onnx/graph/", "onnx/file/file.h"}},
    /* the arithmetic: of graphs it knows words, operators and what a tile is */
    {"kernels",
     {"kernels/nested/", "kernels/away/beside.h", "kernels/math/philox.h", WORDS, "ebb.h"}},
    {"kernels/math", {NULL}},
    {"kernels/call", {"kernels/.", "kernels/math/", WORDS}},
    {"kernels/call/move", {"kernels/.", "kernels/call/.", "kernels/math/", WORDS}},
    {"kernels/away", {"kernels/.", WORDS}},
    {"kernels/nested",
     {"kernels/plain/plain.h", "kernels/plain/halves.h", "kernels/.", "kernels/call/", WORDS}},
    {"kernels/plain",
     {"kernels/.", "kernels/math/", "kernels/call/", "kernels/away/", "kernels/plain/.", WORDS}},
    {"kernels/fast", {"kernels/.", "kernels/math/", "kernels/call/", "kernels/plain/", WORDS}},
    {"kernels/fast/onednn",
     {"kernels/.", "kernels/math/", "kernels/call/", "kernels/plain/", "kernels/fast/.", WORDS}},
    {"kernels/away/mpi", {"kernels/away/."}},
    {"kernels/cuda",
     {"kernels/.", "kernels/math/", "kernels/call/", "kernels/away/group.h",
      "kernels/away/pieces.h", "kernels/cuda/", WORDS}},
    /* how a graph is changed */
    {"rewrite", {"onnx/", "ebb.h"}},
    /* what it weighs, and the step */
    {"exec", {"onnx/words/"}},
    {"exec/weigh", {"exec/.", "kernels/.", "kernels/away/", "onnx/", "ebb.h"}},
    {"exec/run", {"exec/.", "exec/weigh/", "kernels/.", "kernels/away/", "onnx/", "ebb.h"}},
    {"exec/data",
     {"exec/.", "exec/weigh/", "exec/run/", "kernels/math/philox.h", "onnx/", "ebb.h"}},
    {"exec/data/picture", {"onnx/words/", "ebb.h"}},
    {"exec/data/text", {"onnx/words/", "ebb.h"}},
    {"exec/data/feed",
     {"exec/data/.", "exec/data/picture/", "kernels/math/philox.h", "onnx/", "ebb.h"}},
    {"exec/data/formats",
     {"exec/data/.", "exec/data/feed/", "exec/data/picture/", "exec/data/text/", "onnx/", "ebb.h"}},
    {"exec/look",
     {"exec/.", "exec/weigh/", "exec/run/", "exec/data/", "kernels/.", "kernels/away/",
      "kernels/nested/on_host.h", "kernels/math/philox.h", "onnx/", "ebb.h"}},
    /* what a graph becomes: a room of the pipeline may ask those before it, and the top */
    {"passes", {"passes/budget/", "passes/parameters/noted.h", "rewrite/", "onnx/", RULER}},
    {"passes/parameters", {"passes/.", "rewrite/", "onnx/", RULER}},
    {"passes/flatten", {"passes/.", "passes/parameters/", "rewrite/", "onnx/", RULER}},
    {"passes/mended", {"passes/.", "passes/parameters/", "passes/mended/.", "onnx/"}},
    {"passes/primal",
     {"passes/.", "passes/parameters/", "passes/flatten/", "passes/mended/", "rewrite/", "onnx/",
      RULER, "ebb.h"}},
    {"passes/loss",
     {"passes/.", "passes/parameters/", "passes/flatten/", "rewrite/", "onnx/", RULER, "ebb.h"}},
    {"passes/exported",
     {"passes/.", "passes/parameters/noted.h", "rewrite/", "kernels/math/philox.h", "onnx/",
      RULER}},
    {"passes/gradient",
     {"passes/.", "passes/parameters/", "passes/flatten/", "rewrite/", "onnx/", RULER}},
    {"passes/speed", {"passes/.", "rewrite/", "onnx/", RULER}},
    {"passes/memory", {"passes/.", "passes/memory/.", "rewrite/", "onnx/", RULER}},
    {"passes/spread",
     {"passes/.", "passes/memory/rounding/batch_split.h", "rewrite/", "onnx/", RULER}},
    {"passes/budget", {"passes/budget/planners/", "passes/.", "rewrite/", "onnx/", RULER}},
    {"passes/budget/planners", {"rewrite/rewrite.h", "passes/budget/planners/.", "onnx/", RULER}},
    {"passes/tidy", {"passes/.", "rewrite/", "onnx/", RULER}},
    {"api", {"passes/", "rewrite/", "exec/", "kernels/", "onnx/", "ebb.h"}},
    {"cli", {"ebb.h"}},
    {"cli/train", {"cli/.", "ebb.h"}},
    {"cli/show", {"cli/.", "ebb.h"}},
    {"cli/look", {"cli/.", "ebb.h"}},
    {"cli/ranks", {"cli/.", "ebb.h"}},
    {"cli/measure", {"cli/.", "ebb.h"}},
};
enum { ROOMS = sizeof rooms / sizeof rooms[0], MAY = sizeof rooms[0].may / sizeof *rooms[0].may };

enum { MOST_FILES = 30, MOST_LINES = 500, MOST_LINES_OF_A_SUITE = 700 };

static int broken;

static void complain(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vprint_error(format, arguments);
    va_end(arguments);
    broken++;
}

/* Does `name` lie in the folder of the first `length` characters of `folder`? */
static bool lies_in(const char *name, const char *folder, size_t length)
{
    return strncmp(name, folder, length) == 0 && name[length] == '/';
}

static size_t room_of(const char *file)
{
    size_t best = ROOMS, longest = 0;
    for (size_t i = 0; i < ROOMS; i++) {
        size_t length = strlen(rooms[i].room);
        if (length > longest && lies_in(file, rooms[i].room, length)) {
            longest = length;
            best = i;
        }
    }
    return best;
}

static bool matches(const char *may, const char *name)
{
    size_t length = strlen(may);
    if (length > 2 && strcmp(may + length - 2, "/.") == 0)
        return strncmp(may, name, length - 1) == 0 && strchr(name + length - 1, '/') == NULL;
    return may[length - 1] == '/' ? strncmp(name, may, length) == 0 : strcmp(name, may) == 0;
}

static bool may_include(size_t room, const char *name)
{
    if (strchr(name, '/') == NULL && strcmp(name, "ebb.h") != 0)
        return true; // generated
    if (lies_in(name, rooms[room].room, strlen(rooms[room].room)) && room_of(name) == room)
        return true;
    for (size_t i = 0; i < MAY && rooms[room].may[i] != NULL; i++)
        if (matches(rooms[room].may[i], name))
            return true;
    return false;
}

/* ---- the files of the tree ---- */

typedef void each_file(const char *file, FILE *text);

static bool is_source(const char *name)
{
    static const char *const endings[] = {".c", ".h", ".cu", ".inc", ".def"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot != NULL && i < sizeof endings / sizeof *endings; i++)
        if (strcmp(dot, endings[i]) == 0)
            return true;
    return false;
}

/* Visits the sources of a folder and of all below; complains of a folder with too many. */
static void walk(const char *folder, each_file *visit)
{
    char path[2048], below[1024];
    int count = 0;
    (void)snprintf(path, sizeof path, "%s/%s", EBB_SOURCE_DIR, folder);
    DIR *entries = opendir(path);
    assert_non_null(entries);
    for (struct dirent *e; (e = readdir(entries)) != NULL;) {
        struct stat s;
        if (e->d_name[0] == '.')
            continue;
        assert_true(snprintf(below, sizeof below, "%s/%s", folder, e->d_name) < (int)sizeof below);
        (void)snprintf(path, sizeof path, "%s/%s", EBB_SOURCE_DIR, below);
        if (stat(path, &s) != 0)
            continue;
        if (S_ISDIR(s.st_mode)) {
            walk(below, visit);
        } else if (is_source(e->d_name)) {
            FILE *text = fopen(path, "r");
            assert_non_null(text);
            count++;
            visit(below, text);
            fclose(text);
        }
    }
    closedir(entries);
    /* A kernel of the GPU is two files, a launch and its text; there is one for each family. A suite is a
     * file, and a room has as many as it needs. */
    if (count > MOST_FILES && strcmp(folder, "kernels/cuda") != 0 &&
        strncmp(folder, "tests", 5) != 0)
        complain("%s holds %d sources: which second idea has moved in?\n", folder, count);
}

static void walk_all(each_file *visit)
{
    static const char *const folders[] = {"include", "onnx",   "kernels", "rewrite",
                                          "exec",    "passes", "api",     "cli"};
    broken = 0;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        walk(folders[i], visit);
}

static bool next_include(FILE *text, char name[1001])
{
    char line[1024];
    while (fgets(line, sizeof line, text) != NULL)
        if (sscanf(line, "#include \"%1000[^\"]\"", name) == 1)
            return true;
    return false;
}

static void check_arrows(const char *file, FILE *text)
{
    char name[1001];
    size_t room = room_of(file);
    if (room == ROOMS) {
        complain("%s lies in no room: give it a row\n", file);
        return;
    }
    while (next_include(text, name))
        if (!may_include(room, name))
            complain("%s: %s may not include \"%s\"\n", file, rooms[room].room, name);
}

TEST(includes_run_down_and_no_folder_is_a_pile)
{
    walk_all(check_arrows);
    assert_int_equal(broken, 0);
}

/* ---- long files have a reason ---- */

static struct long_file {
    const char *file, *reason; /* what holds it together */
    bool found;
} long_files[] = {
    {"include/ebb.h", "the whole interface, read from top to bottom as a manual", false},
    {"kernels/cuda/recurrent_products.cu", "one text for three errands: measure, prepare, run",
     false},
    {"onnx/file/write_graph.c", "a function for each message of the format", false},
    {"kernels/cuda/linear_codes.cu", "codes and products of them share how codes lie in bytes",
     false},
    {"onnx/ops/move/move.c", "types of thirty operators, some lines each", false},
    {"exec/weigh/pack/exact.c", "one search and its bounds", false},
    {"onnx/tables/bodies_recurrent.def", "five bodies in ONNX text", false},
    {"onnx/text/text.c", "a function for each form of the syntax", false},
    {"onnx/text/text_print.c", "a function for each form of the syntax", false},
    {"passes/memory/rounding/piece.c", "four steps of one search", false},
    {"passes/budget/planners/slots.c", "one data structure and its invariants", false},
    {"kernels/cuda/host/runtime.c", "a device on the host, function by function of its runtime",
     false},
};
enum { LONG_FILES = sizeof long_files / sizeof *long_files };

static int lines_of(FILE *text)
{
    int lines = 0;
    for (int c; (c = getc(text)) != EOF;)
        lines += c == '\n';
    return lines;
}

static void check_length(const char *file, FILE *text)
{
    const int lines = lines_of(text);
    size_t row = 0;
    while (row < LONG_FILES && strcmp(long_files[row].file, file) != 0)
        row++;
    if (lines > MOST_LINES && row == LONG_FILES)
        complain("%s has %d lines: which second idea has moved in? Else give a reason\n", file,
                 lines);
    if (row < LONG_FILES)
        long_files[row].found = lines > MOST_LINES;
}

static void check_suite(const char *file, FILE *text)
{
    const int lines = lines_of(text);
    if (lines > MOST_LINES_OF_A_SUITE)
        complain("%s has %d lines: which of its tests are of another suite?\n", file, lines);
}

TEST(a_long_file_has_a_reason)
{
    walk_all(check_length);
    walk("samples", check_length);
    walk("bench", check_length);
    walk("tests", check_suite);
    for (size_t row = 0; row < LONG_FILES; row++)
        if (!long_files[row].found)
            complain("%s is not long, and needs no reason\n", long_files[row].file);
    assert_int_equal(broken, 0);
}

/* ---- facts about operators are columns of ops.def ---- */

enum { MOST_CASES = 10 };

static struct long_switch {
    const char *file, *reason; /* why this is no fact about operators */
    bool found;
} long_switches[] = {
    {"passes/flatten/simplify.c", "each operator has its own way to do nothing", false},
    {"passes/parameters/trainable.c", "what exporters write between a number and a size", false},
};
enum { LONG_SWITCHES = sizeof long_switches / sizeof *long_switches };

static bool may_switch(const char *file)
{
    size_t row = 0;
    while (row < LONG_SWITCHES && strcmp(long_switches[row].file, file) != 0)
        row++;
    if (row < LONG_SWITCHES)
        long_switches[row].found = true;
    return row < LONG_SWITCHES;
}

/* Operators in the cases of one function. */
static void check_switches(const char *file, FILE *text)
{
    char line[1024];
    int cases = 0;
    bool at_home = strncmp(file, "kernels/", 8) == 0 || strncmp(file, "onnx/ops/", 9) == 0;
    while (!at_home && fgets(line, sizeof line, text) != NULL) {
        cases = line[0] == '}' ? 0 : cases + (strstr(line, "case EBB_OP_") != NULL);
        if (cases == MOST_CASES + 1 && !may_switch(file))
            complain("%s has a long switch over operators: is it a column of ops.def?\n", file);
    }
}

TEST(a_fact_about_operators_is_a_column_of_their_table)
{
    walk_all(check_switches);
    for (size_t row = 0; row < LONG_SWITCHES; row++)
        if (!long_switches[row].found)
            complain("%s has no long switch, and needs no reason\n", long_switches[row].file);
    assert_int_equal(broken, 0);
}

/* ---- the library's numbers have a point, whatever locale its caller has ---- */

static bool has_a_real(const char *line)
{
    const char *at = line;
    while ((at = strchr(at, '%')) != NULL) {
        at += 1 + strspn(at + 1, "-+0123456789.*l");
        if (*at == 'e' || *at == 'f' || *at == 'g')
            return true;
    }
    return false;
}

static void check_numbers(const char *file, FILE *text)
{
    static const char *const words[] = {"strtod(", "strtof(", "sscanf(", "vsnprintf(", "snprintf("};
    char line[1024];
    const bool at_home = strncmp(file, "cli/", 4) == 0 || strcmp(file, "onnx/words/print.c") == 0 ||
                         strncmp(file, "kernels/cuda/host/", 18) == 0;
    while (!at_home && fgets(line, sizeof line, text) != NULL)
        for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
            const char *at = strstr(line, words[i]);
            const bool is_whole =
                at != NULL && (at == line || !(isalnum((unsigned char)at[-1]) || at[-1] == '_'));
            if (is_whole && (strcmp(words[i], "snprintf(") != 0 || has_a_real(at)))
                complain("%s: %s) heeds the locale: take ebb_%s) of onnx/words/print.h\n", file,
                         words[i], words[i]);
        }
}

TEST(numbers_are_written_alike_in_every_locale)
{
    walk_all(check_numbers);
    assert_int_equal(broken, 0);
}

/* ---- passes speak to each other through the graph alone ---- */

static const char *const passes[] = {
#define EBB_PASS(name, room, phase, priority) "ebb_pass_" #name,
#include "passes/passes.def"
#undef EBB_PASS
};

/* The pass that the .c beside this header ends in, or NULL: as "ebb_pass_fold". */
static const char *pass_behind(const char *header)
{
    char line[1024], name[128];
    const char *found = NULL, *dot = strrchr(header, '.');
    if (dot == NULL || strcmp(dot, ".h") != 0)
        return NULL;
    FILE *text = fopen(formatted("%s/%.*s.c", EBB_SOURCE_DIR, (int)(dot - header), header), "r");
    while (text != NULL && found == NULL && fgets(line, sizeof line, text) != NULL)
        if (sscanf(line, "const ebb_pass %127[a-z_0-9]", name) == 1)
            for (size_t i = 0; i < sizeof passes / sizeof *passes; i++)
                found = strcmp(passes[i], name) == 0 ? passes[i] : found;
    if (text != NULL)
        fclose(text);
    return found;
}

/* Files of a pass are NAME.c, and NAME_*.c in the same room. */
static bool is_of(const char *file, const char *pass)
{
    const char *base = strrchr(file, '/') + 1;
    size_t length = strlen(pass + strlen("ebb_pass_"));
    return strncmp(base, pass + strlen("ebb_pass_"), length) == 0 &&
           (base[length] == '.' || base[length] == '_');
}

/* Where the name stands in the line as a whole word, or NULL. */
static const char *word_in(const char *line, const char *name)
{
    const char *at = line;
    for (size_t length = strlen(name); (at = strstr(at, name)) != NULL; at += length)
        if (strspn(at + length, "abcdefghijklmnopqrstuvwxyz_0123456789") == 0)
            return at;
    return NULL;
}

static void check_passes(const char *file, FILE *text)
{
    char line[1024], name[1001];
    if (strncmp(file, "passes/", 7) != 0 || strcmp(file, "passes/pipeline.c") == 0)
        return;
    while (fgets(line, sizeof line, text) != NULL) {
        const char *other =
            sscanf(line, "#include \"%1000[^\"]\"", name) == 1 ? pass_behind(name) : NULL;
        if (other != NULL && !is_of(file, other))
            complain("%s includes %s, which is the own header of %s\n", file, name, other);
        if (strstr(line, ".run(") != NULL || strstr(line, "->run(") != NULL)
            complain("%s runs another pass: %s", file, line);
        for (size_t i = 0; i < sizeof passes / sizeof *passes; i++)
            if (word_in(line, passes[i]) != NULL && !is_of(file, passes[i]))
                complain("%s names another pass: %s", file, line);
    }
}

/* passes/pipeline.c alone runs them: what two of them do is a function that they share. */
TEST(a_pass_knows_no_other_pass)
{
    walk_all(check_passes);
    assert_int_equal(broken, 0);
}

/* The text of a step has one author. */
static void check_recipes(const char *file, FILE *text)
{
    char line[1024];
    bool may = strcmp(file, "api/recipe.c") == 0 ||
               (strncmp(file, "api/", 4) != 0 && strncmp(file, "cli/", 4) != 0);
    while (!may && fgets(line, sizeof line, text) != NULL)
        if (strstr(line, "train-mode,") != NULL || strstr(line, "train-mode:") != NULL ||
            strstr(line, "drop-saves,") != NULL)
            complain("%s writes a recipe of its own: %s", file, line);
}

TEST(one_file_writes_the_recipe_of_a_step)
{
    walk_all(check_recipes);
    assert_int_equal(broken, 0);
}

TEST(libebb_exports_only_its_own_names)
{
    char line[1024];
    FILE *pipe =
        popen(formatted("nm -D --defined-only %s/libebb.so 2>/dev/null", EBB_BINARY_DIR), "r");
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
