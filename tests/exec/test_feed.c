/* test_feed.c: arrays as a model wants them: numbers of another type, channels elsewhere, one-hot, scaled;
 * and what would lose something is refused by row and file.
 */
#include <math.h>

#include "tests/exec/taken.h"
#include "tests/owned.h"

/* Rows 0 .. count - 1. */
static ebb_status take(const char *path, const char *inputs, const char *body,
                       const ebb_data_options *options, size_t count)
{
    return take_rows(path, inputs, body, options, 0, in_order, count);
}

static const ebb_named *only(void)
{
    assert_int_equal(batch.count, 1);
    return &batch.tensors[0];
}

#define IDENTITY IDENTITY_OF("x")

static const int64_t whole[4] = {3, 0, 1, 2};
static const uint8_t bytes[4] = {3, 0, 1, 2};
static const int16_t shorts[4] = {3, 0, 1, 2};
static const int32_t ints[4] = {3, 0, 1, 2};
static const double reals[4] = {3, 0, 1, 2};
static const float floats[4] = {3, 0, 1, 2};

TEST(numbers_go_to_the_models_type_where_they_stay_the_same)
{
    const member from[] = {MEMBER("x", "<i8", "4,", whole),  MEMBER("x", "|u1", "4,", bytes),
                           MEMBER("x", "<i2", "4,", shorts), MEMBER("x", "<i4", "4,", ints),
                           MEMBER("x", "<f8", "4,", reals),  MEMBER("x", "<f4", "4,", floats)};
    static const struct {
        const char *type;
        const void *data;
        size_t unit;
    } to[] = {{"int64[4] x", whole, 8}, {"uint8[4] x", bytes, 1},  {"int16[4] x", shorts, 2},
              {"int32[4] x", ints, 4},  {"double[4] x", reals, 8}, {"float[4] x", floats, 4}};
    for (size_t i = 0; i < 6; i++)
        for (size_t k = 0; k < 6; k++) {
            write_npz(path_of("a.npz"), &from[i], 1, false);
            good(take(path_of("a.npz"), to[k].type, IDENTITY, NULL, 4));
            assert_memory_equal(only()->data, to[k].data, 4 * to[k].unit);
        }
}

TEST(truth_values_are_numbers_and_back)
{
    const uint8_t yes[3] = {1, 0, 1};
    const float as_float[3] = {1, 0, 1};
    write_npz(path_of("a.npz"), (const member[]){MEMBER("x", "|b1", "3,", yes)}, 1, true);
    good(take(path_of("a.npz"), "float[3] x", IDENTITY, NULL, 3));
    assert_memory_equal(only()->data, as_float, sizeof as_float);
    write_npz(path_of("a.npz"), (const member[]){MEMBER("x", "<f4", "3,", as_float)}, 1, true);
    good(take(path_of("a.npz"), "bool[3] x", IDENTITY, NULL, 3));
    assert_memory_equal(only()->data, yes, sizeof yes);
}

TEST(a_number_that_would_change_is_refused_by_row_and_file)
{
    static const int64_t large[3] = {1, 2, INT64_C(3000000000)};
    static const double fraction[3] = {1, 0.1, 2};
    static const float half[3] = {1, 2, 0.5f};
    static const int64_t odd[2] = {1, (INT64_C(1) << 53) + 1};
    static const uint64_t most[2] = {1, UINT64_MAX};
    static const struct {
        member m;
        const char *to, *words;
    } cases[] = {
        {MEMBER("x", "<i8", "3,", large), "int32[3] x", "row 2 of 'x'"},
        {MEMBER("x", "<f8", "3,", fraction), "float[3] x", "row 1 of 'x'"},
        {MEMBER("x", "<f4", "3,", half), "int64[3] x", "0.5 is no int64"},
        {MEMBER("x", "<i8", "2,", odd), "double[2] x", "9007199254740993"},
        {MEMBER("x", "<u8", "2,", most), "int64[2] x", "row 1 of 'x'"},
        {MEMBER("x", "<i8", "3,", large), "bool[3] x", "2 is no bool"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_npz(path_of("a.npz"), &cases[i].m, 1, false);
        ebb_status status =
            take(path_of("a.npz"), cases[i].to, IDENTITY, NULL, i == 3 || i == 4 ? 2 : 3);
        refused(status, EBB_USAGE, cases[i].words);
        assert_non_null(strstr(ebb_status_text(status), "a.npz"));
    }
    write_npz(path_of("a.npz"), &cases[1].m, 1, false);
    good(take(path_of("a.npz"), "float[3] x", IDENTITY, &(ebb_data_options){.round = true}, 3));
    assert_true(((const float *)only()->data)[1] == 0.1f);
}

TEST(channels_are_moved_to_where_the_model_has_them)
{
    uint8_t image[2 * 2 * 2 * 3];
    for (size_t i = 0; i < sizeof image; i++)
        image[i] = (uint8_t)i;
    write_npz(path_of("a.npz"), (const member[]){MEMBER("x", "|u1", "2, 2, 2, 3", image)}, 1,
              false);
    good(take(path_of("a.npz"), "float[b,3,h,w] x", IDENTITY, NULL, 2));
    assert_int_equal(only()->dims[1], 3);
    const float *x = only()->data;
    for (int n = 0; n < 2; n++)
        for (int c = 0; c < 3; c++)
            for (int p = 0; p < 4; p++)
                assert_true(x[n * 12 + c * 4 + p] == (float)image[n * 12 + p * 3 + c]);
    write_npz(path_of("a.npz"), (const member[]){MEMBER("x", "|u1", "2, 3, 2, 2", image)}, 1,
              false);
    good(take(path_of("a.npz"), "float[2,2,2,3] x", IDENTITY, NULL, 2));
    x = only()->data;
    for (int p = 0; p < 4; p++)
        assert_true(x[p * 3 + 1] == (float)image[4 + p]);
    // where both would fit, as they are; or as was said
    static const uint8_t cube[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    write_npz(path_of("a.npz"), (const member[]){MEMBER("x", "|u1", "1, 2, 2, 2", cube)}, 1, false);
    good(take(path_of("a.npz"), "uint8[1,2,2,2] x", IDENTITY, NULL, 1));
    assert_int_equal(((const uint8_t *)only()->data)[1], 1);
    good(take(path_of("a.npz"), "uint8[1,2,2,2] x", IDENTITY, &(ebb_data_options){.layout = "nhwc"},
              1));
    assert_int_equal(((const uint8_t *)only()->data)[1], 2);
    refused(take(path_of("a.npz"), "uint8[1,2,2,2] x", IDENTITY,
                 &(ebb_data_options){.layout = "hwc"}, 1),
            EBB_USAGE, "nhwc or nchw");
}

TEST(dims_of_one_come_and_go)
{
    write_npz(path_of("a.npz"), (const member[]){MEMBER("x", "<f4", "4,", floats)}, 1, false);
    good(take(path_of("a.npz"), "float[b,1] x", IDENTITY, NULL, 4));
    assert_int_equal(only()->rank, 2);
    assert_memory_equal(only()->data, floats, sizeof floats);
    write_npz(path_of("a.npz"), (const member[]){MEMBER("x", "<f4", "4, 1", floats)}, 1, false);
    good(take(path_of("a.npz"), "float[4] x", IDENTITY, NULL, 4));
    assert_int_equal(only()->rank, 1);
    write_npz(path_of("a.npz"), (const member[]){MEMBER("x", "<f4", "1, 2, 2", floats)}, 1, false);
    good(take(path_of("a.npz"), "float[1,1,2,2] x", IDENTITY, NULL, 1));
    assert_int_equal(only()->dims[3], 2);
    refused(take(path_of("a.npz"), "float[1,5] x", IDENTITY, NULL, 1), EBB_USAGE, "rank 2, not 3");
}

TEST(lines_of_a_picture_come_behind_each_other_or_below)
{
    static const uint8_t lines[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 255};
    const ebb_data_options scaled = {.scale = (const char *const[]){"1/255", NULL}};
    write_npz(path_of("a.npz"), (const member[]){MEMBER("x", "|u1", "2, 6", lines)}, 1, false);
    good(take(path_of("a.npz"), "float[b,1,3,2] x", IDENTITY, &scaled, 2));
    assert_int_equal(only()->rank, 4);
    assert_int_equal(only()->dims[2], 3);
    for (size_t i = 0; i < 12; i++)
        assert_true(((const float *)only()->data)[i] == (float)lines[i] / 255.0f);
    assert_non_null(strstr(ebb_data_note(data, 0), "line by line"));
    write_npz(path_of("a.npz"), (const member[]){MEMBER("x", "|u1", "2, 3, 2", lines)}, 1, false);
    good(take(path_of("a.npz"), "float[b,6] x", IDENTITY, NULL, 2));
    assert_int_equal(only()->rank, 2);
    assert_true(((const float *)only()->data)[7] == 7);
    // an order that the shape does not say, or numbers that are no picture's
#define TURNED "y = Transpose <perm = [0, 3, 2, 1]> (x)"
    write_npz(path_of("a.npz"), (const member[]){MEMBER("x", "|u1", "1, 12", lines)}, 1, false);
    refused(take(path_of("a.npz"), "float[b,3,2,2] x", TURNED, NULL, 1), EBB_USAGE,
            "x.reshape(-1, 3, 2, 2)");
    refused(take(path_of("a.npz"), "int32[b,1,3,4] x", TURNED, NULL, 1), EBB_USAGE, "reshape");
    ebb_status status = take(path_of("a.npz"), "float[b,1,3,5] x", TURNED, NULL, 1);
    assert_null(strstr(ebb_status_text(status), "reshape"));
    refused(status, EBB_USAGE, "12");
}

TEST(one_hot_becomes_class_numbers_and_back)
{
    static const float hot[3][4] = {{0, 0, 1, 0}, {1, 0, 0, 0}, {0, 0, 0, 1}};
    static const int64_t classes[3] = {2, 0, 3};
    static const float soft[3][4] = {{0, 0, 1, 0}, {0.5f, 0.5f, 0, 0}, {0, 0, 0, 1}};
    write_npz(path_of("a.npz"), (const member[]){MEMBER("x", "<f4", "3, 4", hot)}, 1, false);
    good(take(path_of("a.npz"), "int64[3] x", IDENTITY, NULL, 3));
    assert_memory_equal(only()->data, classes, sizeof classes);
    write_npz(path_of("a.npz"), (const member[]){MEMBER("x", "<i8", "3,", classes)}, 1, false);
    good(take(path_of("a.npz"), "float[3,4] x", IDENTITY, NULL, 3));
    assert_memory_equal(only()->data, hot, sizeof hot);
    refused(take(path_of("a.npz"), "float[3,3] x", IDENTITY, NULL, 3), EBB_RUNTIME,
            "label 3 is outside 0..2");
    write_npz(path_of("a.npz"), (const member[]){MEMBER("x", "<f4", "3, 4", soft)}, 1, false);
    refused(take(path_of("a.npz"), "int64[3] x", IDENTITY, NULL, 3), EBB_USAGE, "row 1 of 'x'");
    // a mask of classes for each place, and the classes in dim 1
    static const uint8_t mask[4] = {1, 0, 2, 1};
    write_npz(path_of("a.npz"), (const member[]){MEMBER("x", "|u1", "1, 2, 2", mask)}, 1, false);
    good(take(path_of("a.npz"), "float[1,3,2,2] x", IDENTITY, NULL, 1));
    static const float planes[12] = {0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0};
    assert_memory_equal(only()->data, planes, sizeof planes);
}

TEST(tokens_of_another_tokenizer_are_told)
{
    static const int64_t tokens[3] = {2, 0, 7};
    static const char looked_up[] = "w = Constant <value = float[4,1] {1, 2, 3, 4}> () "
                                    "y = Gather (w, input_ids)";
    write_npz(path_of("a.npz"), (const member[]){MEMBER("input_ids", "<i8", "3,", tokens)}, 1,
              false);
    refused(take(path_of("a.npz"), "int64[3] input_ids", looked_up, NULL, 3), EBB_RUNTIME,
            "the model has 4 tokens");
}

TEST(bytes_are_scaled_as_pytorch_does)
{
    static const uint8_t image[6] = {0, 128, 255, 1, 2, 3}; // [1, 1, 2, 3]
    const char *const scale[] = {"1/255", NULL}, *const mean[] = {"0.485,0.456,0.406", NULL};
    const char *const std[] = {"0.229,0.224,0.225", NULL};
    write_npz(path_of("a.npz"), (const member[]){MEMBER("x", "|u1", "1, 1, 2, 3", image)}, 1,
              false);
    good(take(path_of("a.npz"), "float[b,3,h,w] x", IDENTITY,
              &(ebb_data_options){.scale = scale, .mean = mean, .std = std}, 1));
    static const float m[3] = {0.485f, 0.456f, 0.406f}, d[3] = {0.229f, 0.224f, 0.225f};
    for (int c = 0; c < 3; c++)
        for (int p = 0; p < 2; p++)
            assert_true(((const float *)only()->data)[c * 2 + p] ==
                        ((float)image[p * 3 + c] / 255.0f - m[c]) / d[c]);
    assert_null(ebb_data_note(data, 0));
    good(take(path_of("a.npz"), "float[b,3,h,w] x", IDENTITY, NULL, 1));
    assert_non_null(strstr(ebb_data_note(data, 0), "0 to 255"));
    const char *const two[] = {"0.1,0.2,0.3,0.4", NULL};
    refused(
        take(path_of("a.npz"), "float[b,3,h,w] x", IDENTITY, &(ebb_data_options){.mean = two}, 1),
        EBB_USAGE, "one for each channel");
    // what has no effect is said
    write_npz(path_of("a.npz"), (const member[]){MEMBER("x", "<f4", "4,", floats)}, 1, false);
    refused(take(path_of("a.npz"), "float[4] x", IDENTITY, &(ebb_data_options){.scale = scale}, 4),
            EBB_USAGE, "no effect");
    const char *const named[] = {"x=2", NULL}, *const wrong[] = {"z=2", NULL};
    good(take(path_of("a.npz"), "float[4] x", IDENTITY, &(ebb_data_options){.scale = named}, 4));
    assert_true(((const float *)only()->data)[0] == 6);
    refused(take(path_of("a.npz"), "float[4] x", IDENTITY, &(ebb_data_options){.scale = wrong}, 4),
            EBB_USAGE, "z=2");
}

TEST(bad_rows_are_named_by_row_and_file)
{
    float x[4] = {0, 1, (float)NAN, 3};
    write_npz(path_of("a.npz"), (const member[]){MEMBER("x", "<f4", "4,", x)}, 1, false);
    ebb_status status = take(path_of("a.npz"), "float[4] x", IDENTITY, NULL, 4);
    refused(status, EBB_RUNTIME, "row 2 of 'x'");
    assert_non_null(strstr(ebb_status_text(status), "a.npz"));
    good(take(path_of("a.npz"), "float[4] x", IDENTITY, &(ebb_data_options){.allow_nan = true}, 4));
    // labels of a loss, tokens of a table
    static const int64_t labels[3] = {0, -100, 5};
    const float score[6] = {0};
    write_npz(path_of("a.npz"),
              (const member[]){MEMBER("t", "<i8", "3,", labels), MEMBER("x", "<f4", "3, 2", score)},
              2, false);
    refused(take(path_of("a.npz"), "float[b,2] x, int64[b] t",
                 "y = SoftmaxCrossEntropyLoss <ignore_index = -100> (x, t)", NULL, 3),
            EBB_RUNTIME, "label 5 is outside 0..1\n  hint: classes are counted from 0");
    good(take(path_of("a.npz"), "float[b,2] x, int64[b] t",
              "y = SoftmaxCrossEntropyLoss <ignore_index = -100> (x, t)", NULL, 2));
    static const int32_t tokens[3] = {0, 2, 3};
    write_npz(path_of("a.npz"), (const member[]){MEMBER("t", "<i4", "3,", tokens)}, 1, false);
    refused(take(path_of("a.npz"), "int64[3] t",
                 "w = Constant <value = float[3,2] {1, 2, 3, 4, 5, 6}> () y = Gather (w, t)", NULL,
                 3),
            EBB_RUNTIME, "row 2 of 't'");
}

TEST(a_bad_row_of_a_second_file_is_named_by_that_file)
{
    const float x[4] = {0, 1, (float)NAN, 3};
    const char *const both[] = {path_of("good.npz"), path_of("bad.npz"), NULL};
    static const int64_t index[] = {6};
    int64_t rows;
    for (int compressed = 0; compressed < 2; compressed++) {
        write_npz(both[0], (const member[]){MEMBER("x", "<f4", "4,", floats)}, 1, compressed);
        write_npz(both[1], (const member[]){MEMBER("x", "<f4", "4,", x)}, 1, compressed);
        closed();
        OWNED_MODEL *model = model_with("float[1] x", IDENTITY);
        good(ebb_data_open_files(&data, both, NULL));
        good(ebb_data_shape(data, model, NULL, 1, &rows));
        good(ebb_data_bind(data, model, NULL));
        ebb_status status = ebb_data_rows(data, index, 1, NULL, &batch);
        refused(status, EBB_RUNTIME, "row 2 of 'x'");
        assert_non_null(strstr(ebb_status_text(status), "bad.npz"));
    }
}

TEST(files_are_joined_by_rows_and_stand_side_by_side)
{
    ebb_data *d = NULL;
    static const int64_t more[2] = {8, 9}, index[] = {5, 3, 4};
    write_npz(path_of("part-a.npz"), (const member[]){MEMBER("x", "<i8", "4,", whole)}, 1, false);
    write_npz(path_of("part-b.npz"), (const member[]){MEMBER("x", "<i8", "2,", more)}, 1, true);
    write_npy(path_of("t.npy"), &(const member)MEMBER("t", "<f4", "4,", floats));
    const char *const both[] = {path_of("part-a.npz"), path_of("part-b.npz"), NULL};
    good(ebb_data_open_files(&d, both, NULL));
    assert_int_equal(ebb_data_find(d, "x")->dims[0], 6);
    good(ebb_data_rows(d, index, 3, NULL, &batch));
    static const int64_t expected[3] = {9, 2, 8};
    assert_memory_equal(batch.tensors[0].data, expected, sizeof expected);
    ebb_data_close(d);
    const char *const pattern[] = {path_of("part-*.npz"), NULL};
    good(ebb_data_open_files(&d, pattern, NULL));
    assert_int_equal(ebb_data_find(d, "x")->dims[0], 6);
    ebb_data_close(d);
    const char *const none[] = {path_of("nothing-*.npz"), NULL};
    refused(ebb_data_open_files(&d, none, NULL), EBB_IO, "no file");
    const char *const beside[] = {path_of("part-a.npz"), path_of("t.npy"), NULL};
    good(ebb_data_open_files(&d, beside, NULL));
    assert_int_equal(ebb_data_count(d), 2);
    ebb_data_close(d);
    // other dims, and rows that would be paired wrongly
    write_npz(path_of("part-b.npz"), (const member[]){MEMBER("x", "<i8", "1, 2", more)}, 1, true);
    refused(ebb_data_open_files(&d, both, NULL), EBB_REJECTED, "cannot be joined");
    write_npz(path_of("a.npz"),
              (const member[]){MEMBER("x", "<f4", "4,", floats), MEMBER("z", "<f4", "2,", floats)},
              1, false);
    const float two[2] = {1, 2};
    write_npz(path_of("a.npz"),
              (const member[]){MEMBER("x", "<f4", "4,", floats), MEMBER("z", "<f4", "2,", two)}, 2,
              false);
    refused(take(path_of("a.npz"), "float[n] x, float[m] z", "y = Add (x, z)", NULL, 2), EBB_USAGE,
            "'x' has 4 rows and 'z' has 2");
}

TEST(rows_read_ahead_are_those_that_were_asked_for)
{
    static int32_t many[1000];
    for (int i = 0; i < 1000; i++)
        many[i] = i;
    write_npz(path_of("a.npz"), (const member[]){MEMBER("x", "<i4", "1000,", many)}, 1, false);
    good(take(path_of("a.npz"), "int64[b] x", IDENTITY, NULL, 8));
    int64_t order[1000];
    ebb_shuffle(order, 1000, 3, 1);
    for (int at = 0; at + 100 <= 1000; at += 100) {
        const bool wrong = at == 300; // announced, and then others are asked for
        good(ebb_data_rows(data, order + (wrong ? 0 : at), 100, NULL, &batch));
        if (at + 200 <= 1000)
            good(ebb_data_ahead(data, order + at + 100, 100, NULL));
        for (int i = 0; i < 100; i++)
            assert_int_equal(((const int64_t *)only()->data)[i], order[(wrong ? 0 : at) + i]);
    }
    good(ebb_data_ahead(data, order, 50, NULL)); // and nobody comes for them
}

/* Blocks of a batch are read by several threads: the first bad row is named, whoever was faster. */
TEST(the_first_bad_row_of_a_large_file_is_named)
{
    enum { ROWS = 70000, BATCH = 2048 }; // 18 MB: more than stays mapped
    float *x = calloc(ROWS, 64 * sizeof *x);
    int64_t order[BATCH], good_rows[BATCH];
    char path[512];
    assert_non_null(x);
    (void)snprintf(path, sizeof path, "%s", path_of("large.npy"));
    for (int i = 0; i < BATCH; i++) {
        order[i] = BATCH - 1 - i;
        good_rows[i] = ROWS - 1 - i;
        x[64 * (ROWS - 1 - i)] = (float)i;
    }
    x[64 * 70 + 3] = x[64 * 130 + 1] = x[64 * 2000] = (float)NAN;
    write_npy(path, &(member){"large", "<f4", "70000, 64", x, (size_t)ROWS * 64 * sizeof *x});
    free(x);
    good(take(path, "float[b,64] large", "y = Identity (large)", NULL, 8));
    for (int turn = 0; turn < 20; turn++) {
        good(ebb_data_ahead(data, order, BATCH, NULL));
        refused(ebb_data_rows(data, order, BATCH, NULL, &batch), EBB_RUNTIME, "row 70 of 'large'");
        good(ebb_data_ahead(data, good_rows, BATCH, NULL));
        good(ebb_data_rows(data, good_rows, BATCH, NULL, &batch));
        for (int i = 0; i < BATCH; i++)
            assert_true(((const float *)only()->data)[64 * i] == (float)i);
    }
    assert_int_equal(truncate(path, 1 << 20), 0);
    good(ebb_data_ahead(data, good_rows, BATCH, NULL));
    refused(ebb_data_rows(data, good_rows, BATCH, NULL, &batch), EBB_IO, "large.npy");
    assert_int_equal(unlink(path), 0);
}

/* Two readers of the same bytes, each with its own rows ahead. */
TEST(the_same_arrays_are_taken_in_another_way)
{
    ebb_data *once = NULL, *again = NULL;
    ebb_batch one, two;
    uint8_t x[4 * 3];
    for (int i = 0; i < 12; i++)
        x[i] = (uint8_t)i;
    const member m = MEMBER("x", "|u1", "4, 3", x);
    write_npz(path_of("again.npz"), &m, 1, true);
    assert_null(ebb_data_open(&once, path_of("again.npz"), NULL));
    const ebb_data_options bad = {.layout = "sideways"};
    assert_int_equal(ebb_status_code(ebb_data_again(&again, once, &bad)), EBB_USAGE);
    assert_null(again);
    assert_null(ebb_data_again(&again, once, NULL));
    assert_ptr_equal(ebb_data_find(again, "x"), ebb_data_find(once, "x"));
    const int64_t first[] = {0, 1}, last[] = {3, 2};
    assert_null(ebb_data_ahead(once, last, 2, NULL));
    assert_null(ebb_data_rows(again, first, 2, NULL, &two));
    assert_null(ebb_data_rows(once, last, 2, NULL, &one));
    assert_memory_equal(one.tensors[0].data, ((const uint8_t[]){9, 10, 11, 6, 7, 8}), 6);
    assert_memory_equal(two.tensors[0].data, ((const uint8_t[]){0, 1, 2, 3, 4, 5}), 6);
    // rows that are neighbours in the file, in the batch, in both, and twice the same
    const int64_t mixed[] = {2, 3, 1, 1, 2, 0, 1};
    assert_null(ebb_data_rows(again, mixed, 7, NULL, &two));
    for (int i = 0; i < 21; i++)
        assert_int_equal(((const uint8_t *)two.tensors[0].data)[i], 3 * mixed[i / 3] + i % 3);
    ebb_data_close(again);
    assert_null(ebb_data_rows(once, first, 2, NULL, &one));
    assert_memory_equal(one.tensors[0].data, ((const uint8_t[]){0, 1, 2, 3, 4, 5}), 6);
    ebb_data_close(once);
}

const fixture around_all = {make_folder, remove_folder};

int main(void)
{
    int failed = run_listed();
    ebb_data_close(data);
    return failed;
}
