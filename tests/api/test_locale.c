/* test_locale.c: a program whose locale writes one half as "0,5" gets the files of one that writes "0.5". */
#include <locale.h>
#include <stdbool.h>

#include "ebb.h"
#include "tests/folder.h"
#include "tests/formatted.h"
#include "tests/owned.h"
#include "tests/status.h"

#define DIGITS EBB_SOURCE_DIR "/samples/digits/"

/* A locale of one line; glibc's own are on few machines. */
static bool use_a_comma(void)
{
    FILE *f = fopen(path_of("comma"), "w");
    assert_non_null(f);
    (void)fputs(
        "LC_NUMERIC\ndecimal_point \",\"\nthousands_sep \"\"\ngrouping -1\nEND LC_NUMERIC\n", f);
    assert_int_equal(fclose(f), 0);
    (void)!system(formatted("localedef -c -i %s %s >/dev/null 2>&1", path_of("comma"),
                            path_of("with_comma")));
    return setenv("LOCPATH", folder, 1) == 0 && setlocale(LC_NUMERIC, "with_comma") != NULL;
}

static const char *const map[] = {"label", "target", NULL};
static const char *const losses[] = {"cross-entropy:label-smoothing=0.125", NULL};
static const char *const groups[] = {"*bias:weight-decay=0.5,lr=0.25", NULL};
static const char *const passes[] = {"quantise:bits=4", NULL};

/* What is written by numbers that have halves, as one text. */
static void write_all(const char *step, const char *log, char **text, char **plan)
{
    const ebb_step_options options = {.losses = losses,
                                      .optimizer = "adamw:lr=0.0015,beta2=0.95",
                                      .schedule = "cosine:warmup=1,steps=3,floor=0.25",
                                      .clip_norm = 0.5,
                                      .ema = 0.875,
                                      .dropout = "0.25",
                                      .groups = groups,
                                      .passes = passes,
                                      .link = "2.5,0.5"};
    const char *const logs[] = {log, NULL};
    OWNED_MODEL *m = NULL;
    OWNED_DATA *data = NULL;
    OWNED_PROGRAM *p = NULL;
    ebb_trainer *t;
    int64_t rows;
    char *pipeline;
    good(ebb_open(&m, DIGITS "cnn.onnx"));
    good(ebb_data_open(&data, DIGITS "digits.npz", m));
    good(ebb_data_shape(data, m, map, 32, &rows));
    good(ebb_step_pipeline(&pipeline, &options));
    good(ebb_rewrite(m, pipeline, NULL, NULL));
    ebb_release(pipeline);
    good(ebb_save(m, step));
    good(ebb_inspect_text(m, text));
    good(ebb_plan_json(m, NULL, plan));
    good(ebb_data_bind(data, m, map));
    good(ebb_program_compile(&p, m, &(ebb_compile_options){.threads = 1}));
    good(ebb_trainer_new(&t, p, data,
                         &(ebb_trainer_options){
                             .row_count = rows, .batch = 32, .steps = 3, .seed = 7, .logs = logs}));
    good(ebb_trainer_run(t));
    ebb_trainer_free(t);
}

static void bytes_of(const char *path, char bytes[1 << 20], size_t *count)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    *count = fread(bytes, 1, 1 << 20, f);
    assert_int_equal(fclose(f), 0);
    assert_in_range(*count, 1, (1 << 20) - 1);
}

TEST(the_same_files_are_written)
{
    static char bytes[2][1 << 20];
    size_t count[2];
    char *text[2], *plan[2];
    write_all(path_of("point.onnx"), path_of("point.csv"), &text[0], &plan[0]);
    if (!use_a_comma())
        skip();
    write_all(path_of("comma.onnx"), path_of("comma.csv"), &text[1], &plan[1]);
    (void)setlocale(LC_NUMERIC, "C");
    assert_string_equal(text[1], text[0]);
    assert_string_equal(plan[1], plan[0]);
    for (int i = 0; i < 2; i++) {
        ebb_release(text[i]);
        ebb_release(plan[i]);
        bytes_of(path_of(i == 0 ? "point.onnx" : "comma.onnx"), bytes[i], &count[i]);
    }
    assert_int_equal(count[1], count[0]);
    assert_memory_equal(bytes[1], bytes[0], count[0]);
    // What a step took differs; how many columns there are does not.
    bytes_of(path_of("comma.csv"), bytes[0], &count[0]);
    int commas = 0, of_the_head = 0, lines = 0;
    for (size_t i = 0; i < count[0]; i++) {
        commas += bytes[0][i] == ',';
        if (bytes[0][i] != '\n')
            continue;
        of_the_head = lines++ == 0 ? commas : of_the_head;
        assert_int_equal(commas, of_the_head);
        commas = 0;
    }
    assert_int_equal(lines, 4);
}

TEST(the_same_numbers_are_read)
{
    const char *const paths[] = {path_of("t.csv"), NULL};
    FILE *f = fopen(paths[0], "w");
    double x, us, gb;
    ebb_data *data;
    assert_non_null(f);
    (void)fputs("a\n0.5\n-2.5e-1\n", f);
    assert_int_equal(fclose(f), 0);
    if (!use_a_comma())
        skip();
    good(ebb_real_parse(&x, "0.5", "(0, 1.5]", "--rate"));
    assert_true(x == 0.5);
    refused(ebb_real_parse(&x, "0,5", "(0, 1.5]", "--rate"), EBB_USAGE, "0,5");
    good(ebb_link_parse(&us, &gb, "2.5,0.125"));
    assert_true(us == 2.5 && gb == 0.125);
    good(ebb_data_open_files(&data, paths, NULL));
    const float *const column = ebb_data_at(data, 0)->data;
    assert_true(column[0] == 0.5f && column[1] == -0.25f);
    ebb_data_close(data);
    (void)setlocale(LC_NUMERIC, "C");
}

const fixture around_all = {make_folder, remove_folder};
