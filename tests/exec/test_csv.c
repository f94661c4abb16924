/* test_csv.c: tables of text as arrays: names, types, columns side by side, and what is no table. */
#include "data_files.h"

#include <math.h>

#include "onnx/words/arena.h"
#include "tests/owned.h"
#include "tests/status.h"

static const char *write_text(const char *name, const char *text)
{
    const char *path = path_of(name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    return path;
}

#define LIST(...)         \
    (const char *const[]) \
    {                     \
        __VA_ARGS__, NULL \
    }

static ebb_data *open_table(const char *text, const char *const *columns)
{
    ebb_data *data = NULL;
    const ebb_data_options options = {.columns = columns};
    good(ebb_data_open_files(&data, LIST(write_text("t.csv", text)), &options));
    return data;
}

static void is_float(const ebb_data *data, const char *name, int64_t width, const float *expected,
                     int64_t rows)
{
    const ebb_named *a = ebb_data_find(data, name);
    assert_non_null(a);
    assert_int_equal(a->dtype, 1);
    assert_int_equal(a->rank, width > 0 ? 2 : 1);
    assert_int_equal(a->dims[0], rows);
    if (width > 0)
        assert_int_equal(a->dims[1], width);
    assert_memory_equal(a->data, expected, (size_t)(rows * (width > 0 ? width : 1)) * 4);
}

static void is_whole(const ebb_data *data, const char *name, const int64_t *expected, int64_t rows)
{
    const ebb_named *a = ebb_data_find(data, name);
    assert_non_null(a);
    assert_int_equal(a->dtype, 7);
    assert_int_equal(a->rank, 1);
    assert_int_equal(a->dims[0], rows);
    assert_memory_equal(a->data, expected, (size_t)rows * 8);
}

TEST(each_column_is_an_array_of_its_name)
{
    static const char *const tables[] = {
        "age,income,bought\n31,2100.5,True\n44,-1e3,False\n",
        "\xef\xbb\xbf"
        "age;income;bought\r\n31;2100.5;1\r\n\r\n44; -1e3 ;0",
        "\"age\"\t\"income\"\t\"bought\"\n\"31\"\t2100.5\t1\n44\t\"-1000\"\t0\n\n",
    };
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        OWNED_DATA *data = open_table(tables[i], NULL);
        assert_int_equal(ebb_data_count(data), 3);
        is_whole(data, "age", (const int64_t[]){31, 44}, 2);
        is_whole(data, "bought", (const int64_t[]){1, 0}, 2);
        is_float(data, "income", 0, (const float[]){2100.5f, -1000}, 2);
    }
}

TEST(columns_stand_side_by_side_where_they_are_told_to)
{
    OWNED_DATA *data =
        open_table("sepal length,petal,sepal width,kind\n5.1,1,3,0\n4,2,2.5,1\n7,3,1,2\n",
                   LIST("x=sepal*,petal"));
    assert_int_equal(ebb_data_count(data), 2);
    is_float(data, "x", 3, (const float[]){5.1f, 1, 3, 4, 2, 2.5f, 7, 3, 1}, 3);
    is_whole(data, "kind", (const int64_t[]){0, 1, 2}, 3);
    ebb_batch batch;
    const int64_t rows[] = {2, 0};
    assert_null(ebb_data_rows(data, rows, 2, LIST("x", "input"), &batch));
    assert_memory_equal(batch.tensors[0].data, ((const float[]){7, 3, 1, 5.1f, 1, 3}), 24);
}

TEST(a_table_without_names_is_one_array)
{
    OWNED_DATA *data = open_table("1,2\n3,4.5\n5,6\n", NULL);
    assert_int_equal(ebb_data_count(data), 1);
    is_float(data, "t", 2, (const float[]){1, 2, 3, 4.5f, 5, 6}, 3);
}

TEST(what_is_missing_is_not_a_number)
{
    OWNED_DATA *data = open_table("a,b\n1,\nNA,2\n,\n", NULL);
    const ebb_named *a = ebb_data_find(data, "a"), *b = ebb_data_find(data, "b");
    assert_int_equal(a->dims[0], 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(isnan(ebb_element(a, i)), i != 0);
        assert_int_equal(isnan(ebb_element(b, i)), i != 1);
    }
}

TEST(files_are_joined_by_rows)
{
    OWNED_DATA *data = NULL;
    const char *const paths[] = {write_text("p-0.csv", "x,y\n0.5,1\n"),
                                 write_text("p-1.csv", "x,y\n2,3\n4,5\n"), NULL};
    assert_null(ebb_data_open_files(&data, paths, NULL));
    ebb_batch batch;
    const int64_t rows[] = {2, 0, 1};
    assert_null(ebb_data_rows(data, rows, 3, NULL, &batch));
    assert_memory_equal(batch.tensors[0].data, ((const float[]){4, 0.5f, 2}), 12);
    assert_memory_equal(batch.tensors[1].data, ((const int64_t[]){5, 1, 3}), 24);
}

/* Lines longer than what is read at a time, and their ends at every place of it. */
TEST(many_rows_and_long_lines_are_read)
{
    enum { ROWS = 20000, WIDE = 3000 };
    FREED char *text = malloc(WIDE * 80);
    assert_non_null(text);
    size_t used = 0;
    for (int i = 0; i < WIDE; i++)
        used +=
            (size_t)sprintf(text + used, "%sa rather long name of column %d", i > 0 ? "," : "", i);
    for (int k = 0; k < 2; k++) {
        text[used++] = '\n';
        for (int i = 0; i < WIDE; i++)
            used += (size_t)sprintf(text + used, "%s%d", i > 0 ? "," : "", i * (k + 1));
    }
    text[used] = '\0';
    ebb_data *data = open_table(text, LIST("x=*"));
    const ebb_named *x = ebb_data_find(data, "x");
    assert_int_equal(x->dims[1], WIDE);
    for (size_t i = 0; i < 2 * WIDE; i++)
        assert_true(ebb_element(x, i) == (double)(i % WIDE * (i / WIDE + 1)));
    ebb_data_close(data);
    used = (size_t)sprintf(text, "n,m");
    for (int i = 0; i < ROWS; i++)
        used += (size_t)sprintf(text + used, "\n%d,%d", i, -i);
    assert_true(used < WIDE * 80);
    data = open_table(text, NULL);
    for (size_t i = 0; i < ROWS; i++) {
        assert_true(ebb_element(ebb_data_find(data, "n"), i) == (double)i);
        assert_true(ebb_element(ebb_data_find(data, "m"), i) == -(double)i);
    }
    ebb_data_close(data);
}

static void is_refused(const char *text, const char *const *columns, ebb_code code,
                       const char *says)
{
    ebb_data *data = NULL;
    const ebb_data_options options = {.columns = columns};
    ebb_status status = ebb_data_open_files(&data, LIST(write_text("t.csv", text)), &options);
    assert_null(data);
    if (status == NULL || ebb_status_code(status) != code ||
        strstr(ebb_status_text(status), says) == NULL)
        fail_msg("%s\ndoes not say: %s", ebb_status_text(status), says);
}

TEST(what_is_no_table_is_refused_by_its_line)
{
    is_refused("", NULL, EBB_REJECTED, "t.csv: it has no row of numbers");
    is_refused("a,b\n", NULL, EBB_REJECTED, "it has no row of numbers");
    is_refused("a,b\n1,2\n\n3,setosa\n", NULL, EBB_REJECTED,
               "line 4, column 'b': 'setosa' is no number");
    is_refused("a,b\n1,2\n3\n", NULL, EBB_REJECTED, "line 3 has 1 columns, and the first one 2");
    is_refused("a,b\n1,2,3\n", NULL, EBB_REJECTED, "line 2 has 3 columns");
    is_refused("a\n0x10\n", NULL, EBB_REJECTED, "'0x10' is no number");
    is_refused("a;b\n1,5;2\n", NULL, EBB_REJECTED,
               "'1,5' is no number\n  hint: numbers have a point before their decimals");
    is_refused("a,b\n1,\"2\n", NULL, EBB_REJECTED, "the quote has no end in this line");
    is_refused("\xff\xfe"
               "a\n1\n",
               NULL, EBB_REJECTED, "t.csv: it is text in UTF-16: save it as UTF-8");
    is_refused("1,2\n3,4\n", LIST("x=a,b"), EBB_USAGE, "all are one array, called as the file");
    is_refused("a,a\n1,2\n", NULL, EBB_REJECTED, "array 'a' is there twice");
    is_refused("a,b\n1,2\n", LIST("x=c*"), EBB_USAGE, "no .csv file has a column of 'x=c*'");
    is_refused("a,b\n1,2\n", LIST("x=a,c"), EBB_USAGE,
               "t.csv: no column is called 'c', of 'x=a,c'");
    is_refused("a,b\n1,2\n", LIST("a"), EBB_USAGE, "columns are told as ARRAY=NAMES");
}

TEST(where_memory_ends_nothing_leaks)
{
    const char *path = write_text("t.csv", "a,b,c\n1,2,3.5\n4,,6\n");
    bool done = false;
    for (long n = 1; n < 1000 && !done; n++) {
        OWNED_DATA *data = NULL;
        const ebb_data_options options = {.columns = LIST("x=a,c")};
        ebb_alloc_fail_after(n);
        done = ebb_data_open_files(&data, LIST(path), &options) == NULL;
        ebb_alloc_fail_after(0);
    }
    assert_true(done);
}

const fixture around_all = {make_folder, remove_folder};
