/* test_pack.c: CSV files of intervals in, offsets out: what is kept, what is refused, and the
 * public instances that are known to be hard. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/stat.h>
#include <unistd.h>

#include "ebb.h"
#include "tests/status.h"
#include "tests/test.h"

#define INSTANCES EBB_SOURCE_DIR "/../shared/bench/packing/minimalloc"

static char folder[] = "/tmp/ebb-pack-XXXXXX";
static char in[64], out[64];

static void write_in(const char *text, size_t size)
{
    FILE *file = fopen(in, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, size, file), size);
    fclose(file);
}

static void gives(const char *text, const ebb_pack_csv_options *options, const char *expected)
{
    char bytes[4096];
    write_in(text, strlen(text));
    good(ebb_pack_csv(in, out, options, NULL));
    FILE *file = fopen(out, "rb");
    assert_non_null(file);
    bytes[fread(bytes, 1, sizeof bytes - 1, file)] = '\0';
    fclose(file);
    assert_string_equal(bytes, expected);
    assert_int_equal(unlink(out), 0);
}

TEST(offsets_are_added_and_all_else_is_kept)
{
    gives("id,lower,upper,size\na,0,4,100\nb,2,6,50\nc,4,6,100\n", NULL,
          "id,lower,upper,size,offset\na,0,4,100,0\nb,2,6,50,100\nc,4,6,100,0\n");
    /* columns in any order, some of them not ours, blanks, quotes, CR LF, no end of line, a mark */
    gives("\xEF\xBB\xBFsize, upper ,note,lower,id\r\n100,4,\"x, \"\"y\"\"\",0,\"a,b\"\r\n\r\n 50 "
          ",6,,2,c",
          NULL,
          "size, upper ,note,lower,id,offset\r\n100,4,\"x, \"\"y\"\"\",0,\"a,b\",0\r\n 50 "
          ",6,,2,c,100\r\n");
    /* the id over two lines; positions beyond 32 bits; nothing alive */
    gives("id,lower,upper,size\n\"a\nb\",0,9000000000000000000,8\nc,8999999999999999999,"
          "9000000000000000000,8\nd,5,5,7\ne,1,2,0\n",
          NULL,
          "id,lower,upper,size,offset\n\"a\nb\",0,9000000000000000000,8,0\nc,8999999999999999999,"
          "9000000000000000000,8,8\nd,5,5,7,0\ne,1,2,0,0\n");
}

TEST(given_offsets_stay_and_alignment_holds)
{
    gives("offset,id,lower,upper,size\n,a,0,4,10\n64,b,0,4,10\n,c,2,6,70\n  ,d,5,7,1\n",
          &(ebb_pack_csv_options){.alignment = 64},
          "offset,id,lower,upper,size\n0,a,0,4,10\n64,b,0,4,10\n128,c,2,6,70\n0,d,5,7,1\n");
    gives("id,lower,upper,size,offset\na,0,4,10,20\nb,0,4,20,\n", NULL,
          "id,lower,upper,size,offset\na,0,4,10,20\nb,0,4,20,0\n");
}

static void refuses(const char *text, const char *words)
{
    write_in(text, strlen(text));
    char *json = NULL;
    ebb_status status = ebb_pack_csv(in, out, NULL, &json);
    if (ebb_status_code(status) != EBB_REJECTED || strstr(ebb_status_text(status), words) == NULL)
        fail_msg("%s\ngives: %s\nexpected: %s", text,
                 status != NULL ? ebb_status_text(status) : "no error", words);
    assert_null(strchr(ebb_status_text(status), '\n'));
    assert_null(json);
    assert_int_not_equal(access(out, F_OK), 0);
}

#define HEADER "id,lower,upper,size\na,0,4,10\n"
#define FIXED "id,lower,upper,size,offset\na,0,4,10,0\n"

TEST(mistakes_are_said_with_their_line)
{
    refuses("", "the file is empty");
    refuses(" \n\r\n", "the file is empty");
    refuses("id,lower,upper,size\n", "no intervals");
    refuses("id,lower,size\na,0,4\n", "line 1: there is no column 'upper'");
    refuses("a,0,4,10\n", "line 1: there is no column 'id'");
    refuses("id,lower,lower,upper,size\n", "line 1: there are two columns 'lower'");
    refuses(HEADER "b,-1,4,10\n", "line 3: lower -1 is negative");
    refuses(HEADER "b,1,4,-10\n", "line 3: size -10 is negative");
    refuses(HEADER "b,5,4,10\n", "line 3: the interval is reversed: lower 5, upper 4");
    refuses(HEADER "\n\na,1,4,10\n", "line 5: the id 'a' is that of line 2");
    refuses(HEADER "b,1,4,ten\n", "line 3: size 'ten' is no whole number");
    refuses(HEADER "b,1,4,1.5\n", "line 3: size '1.5' is no whole number");
    refuses(HEADER "b,1,4,0x10\n", "line 3: size '0x10' is no whole number");
    refuses(HEADER "b,1,4,-\n", "line 3: size '-' is no whole number");
    refuses(HEADER "b,1,,10\n", "line 3: upper is missing");
    refuses(HEADER "b,1,4\n", "line 3: there are 3 fields where the first line names 4");
    refuses(HEADER "b,1,4,10,\n", "line 3: there are 5 fields");
    refuses(HEADER "b,1,4,9223372036854775808\n", "line 3: size 9223372036854775808 is too large");
    refuses(HEADER "b,1,99999999999999999999999999999999999999999999999,10\n", "is too large");
    refuses(HEADER "b,1,4,2000000000000000000\nc,1,4,2000000000000000000\n",
            "line 4: the sizes together overflow");
    refuses(HEADER "\"b,1,4,10\n", "line 3: a quote is opened and not closed");
    refuses(HEADER "\"b\"x,1,4,10\n", "line 3: there is text behind a closing quote");
    refuses(FIXED "b,1,4,10,x\n", "line 3: offset 'x' is no whole number");
    refuses(FIXED "b,1,4,10,-8\n", "line 3: offset -8 is negative");
    refuses(FIXED "b,1,4,10,9\n", "line 3: its fixed offset overlaps that of line 2");
    refuses(FIXED "b,1,4,10,9000000000000000000\n", "line 3: its fixed offset is too large");
}

TEST(damaged_files_are_refused_or_packed)
{
    static const char whole[] =
        "id,lower,upper,size,offset\r\n\"a,\"\"1\",0,4,10,0\r\nb,2,6,5,\r\n";
    uint64_t random = 1;
    for (int round = 0; round < 3000; round++) {
        char text[sizeof whole];
        memcpy(text, whole, sizeof whole);
        for (int k = 0; k < 1 + round % 3; k++) {
            random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            text[(random >> 33) % (sizeof whole - 1)] = "\",\n\r -09a\0"[(random >> 20) % 10];
        }
        write_in(text, (size_t)(random >> 40) % sizeof whole);
        ebb_code code = ebb_status_code(ebb_pack_csv(in, out, NULL, NULL));
        assert_true(code == EBB_OK || code == EBB_REJECTED);
    }
    (void)unlink(out);
}

TEST(a_capacity_that_cannot_be_met_writes_nothing)
{
    static const char text[] = "id,lower,upper,size\na,0,4,10\nb,2,6,5\n";
    write_in(text, strlen(text));
    ebb_status status = ebb_pack_csv(in, out, &(ebb_pack_csv_options){.capacity = 14}, NULL);
    refused(status, EBB_NO_PLAN, "the lowest found takes 15");
    assert_non_null(
        strstr(ebb_status_text(status), "15 bytes are alive at once, so there is none"));
    assert_null(ebb_pack_csv(in, NULL, NULL, NULL));
    assert_int_not_equal(access(out, F_OK), 0);
    status = ebb_pack_csv("/nonexistent/in.csv", out, NULL, NULL);
    assert_int_equal(ebb_status_code(status), EBB_IO);
    write_in(text, strlen(text));
    status = ebb_pack_csv(in, "/nonexistent/out.csv", NULL, NULL);
    assert_int_equal(ebb_status_code(status), EBB_IO);
}

/* ---- the public instances ---- */

typedef struct line {
    long long lower, upper, size, offset;
} line;

static void check_instance(const char *path, long long capacity)
{
    static line lines[1000];
    int count = 0, id;
    char header[64];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(header, sizeof header, file));
    assert_string_equal(header, "id,lower,upper,size,offset\n");
    for (line *l = lines; count < 1000 && fscanf(file, "%d,%lld,%lld,%lld,%lld", &id, &l->lower,
                                                 &l->upper, &l->size, &l->offset) == 5;
         l++, count++) {
        assert_true(l->offset >= 0 && l->offset + l->size <= capacity);
        for (line *m = lines; m < l; m++)
            assert_true(l->lower >= m->upper || m->lower >= l->upper ||
                        l->offset >= m->offset + m->size || m->offset >= l->offset + l->size);
    }
    assert_true(feof(file) && count > 100);
    fclose(file);
}

TEST(the_public_instances_fit_their_capacity)
{
    struct stat s;
    if (stat(INSTANCES, &s) != 0) {
        print_message("SKIP: the public instances are not here\n");
        skip();
    }
    for (char name = 'A'; name <= 'K'; name++) {
        char path[1024];
        (void)snprintf(path, sizeof path, INSTANCES "/%c.1048576.csv", name);
        ebb_pack_csv_options options = {.capacity = 1048576, .time_ns = INT64_C(60000000000)};
        good(ebb_pack_csv(path, out, &options, NULL));
        check_instance(out, 1048576);
    }
    (void)unlink(out);
}

static int make_folder(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL)
        return 1;
    (void)snprintf(in, sizeof in, "%s/in.csv", folder);
    (void)snprintf(out, sizeof out, "%s/out.csv", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    (void)unlink(in);
    return rmdir(folder); /* fails where a temporary file was left */
}

const fixture around_all = {make_folder, remove_folder};
