/* test_data.c: arrays in and out of .npy, .npz and .safetensors, and files that lie. */

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>

#include "exec/data/formats/formats.h"
#include "tests/exec/data_files.h"
#include "tests/owned.h"

static const float six[6] = {1, 2, 3, 4, 5, 6};
static const int64_t three[3] = {7, 8, 9};

/* One compressed and one as it is. */
static void write_two(const char *path)
{
    static unsigned char a[512], b[512];
    size_t na =
        put_npy(a, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }", six, sizeof six);
    size_t nb = put_npy(b, "{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }", three,
                        sizeof three);
    zip_t *zip = zip_open(path, ZIP_CREATE | ZIP_TRUNCATE, NULL);
    assert_non_null(zip);
    zip_int64_t i = zip_file_add(zip, "x.npy", zip_source_buffer(zip, a, na, 0), 0);
    assert_int_equal(zip_set_file_compression(zip, (zip_uint64_t)i, ZIP_CM_DEFLATE, 9), 0);
    i = zip_file_add(zip, "label.npy", zip_source_buffer(zip, b, nb, 0), 0);
    assert_int_equal(zip_set_file_compression(zip, (zip_uint64_t)i, ZIP_CM_STORE, 0), 0);
    assert_int_equal(zip_close(zip), 0);
}

TEST(npz_arrays_come_in_by_name)
{
    OWNED_DATA *data = NULL;
    write_two(path_of("a.npz"));
    assert_null(ebb_data_open(&data, path_of("a.npz"), NULL));
    assert_int_equal(ebb_data_count(data), 2);
    const ebb_named *x = ebb_data_find(data, "x"), *label = ebb_data_find(data, "label");
    assert_non_null(x);
    assert_non_null(label);
    assert_int_equal(x->dtype, EBB_F32);
    assert_int_equal(x->rank, 2);
    assert_int_equal(x->dims[0], 3);
    assert_memory_equal(x->data, six, sizeof six);
    assert_memory_equal(label->data, three, sizeof three);
    assert_null(ebb_data_find(data, "y"));
}

TEST(rows_are_gathered_under_the_inputs_names)
{
    OWNED_DATA *data = NULL;
    ebb_batch batch;
    write_two(path_of("a.npz"));
    assert_null(ebb_data_open(&data, path_of("a.npz"), NULL));
    const int64_t rows[] = {2, 0};
    const char *const map[] = {"x", "image", NULL, NULL};
    assert_null(ebb_data_rows(data, rows, 2, map, &batch));
    assert_int_equal(batch.count, 1);
    assert_string_equal(batch.tensors[0].name, "image");
    assert_int_equal(batch.tensors[0].dims[0], 2);
    const float expect[] = {5, 6, 1, 2};
    assert_memory_equal(batch.tensors[0].data, expect, sizeof expect);
    assert_null(ebb_data_rows(data, rows, 1, NULL, &batch));
    assert_int_equal(batch.count, 2);
    const int64_t outside[] = {3};
    assert_int_equal(ebb_status_code(ebb_data_rows(data, outside, 1, NULL, &batch)), EBB_USAGE);
}

static int64_t row_of(ebb_data *data, const char *name, int64_t row)
{
    int64_t number = -1;
    ebb_batch batch;
    const char *const map[] = {name, name, NULL, NULL};
    ebb_status status = ebb_data_rows(data, &row, 1, map, &batch);
    if (status != NULL)
        print_error("%s\n", ebb_status_text(status));
    assert_null(status);
    memcpy(&number, batch.tensors[0].data, sizeof number);
    return number;
}

TEST(large_arrays_are_read_from_their_own_file_or_from_memory)
{
    enum { LABELS = 2200000, WIDTH = 4, ROWS = LABELS / WIDTH }; // 17 MB: more than stays mapped
    int64_t *numbers = malloc(LABELS * sizeof *numbers);
    char packed[512], plain[512];
    OWNED_DATA *data = NULL;
    assert_non_null(numbers);
    memset(numbers, 0, LABELS * sizeof *numbers); // which are packed in no time
    numbers[LABELS - WIDTH] = 7;
    (void)snprintf(packed, sizeof packed, "%s", path_of("packed.npz"));
    (void)snprintf(plain, sizeof plain, "%s", path_of("y.npy"));
    const size_t bytes = LABELS * sizeof *numbers;
    write_npz(packed, &(member){"x", "<i8", "550000, 4", numbers, bytes}, 1, true);
    for (int64_t i = 0; i < LABELS; i++)
        numbers[i] = -i;
    write_npy(plain, &(member){"y", "<i8", "2200000,", numbers, bytes});
    free(numbers);
    const char *const paths[] = {packed, plain, NULL};
    assert_null(ebb_data_open_files(&data, paths, NULL));
    assert_int_equal(row_of(data, "x", ROWS - 1), 7);
    // labels are in memory, whatever becomes of the file
    assert_int_equal(truncate(plain, 1000), 0);
    assert_int_equal(row_of(data, "y", LABELS - 1), 1 - LABELS);
}

TEST(an_npy_is_named_after_its_file)
{
    static unsigned char a[512];
    OWNED_DATA *data = NULL;
    size_t n = put_npy(a, "{'descr': '<f4', 'fortran_order': False, 'shape': (), }", six, 4);
    put_file(path_of("x.npy"), a, n);
    assert_null(ebb_data_open(&data, path_of("x.npy"), NULL));
    assert_string_equal(ebb_data_at(data, 0)->name, "x");
    assert_int_equal(ebb_data_at(data, 0)->rank, 0);
}

TEST(headers_of_npy_that_lie_are_refused)
{
    static const char *const headers[] = {
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 3), }",
        "{'descr': '<f4', 'fortran_order': True, 'shape': (3, 2), }",
        "{'descr': '>f4', 'fortran_order': False, 'shape': (3, 2), }",
        "{'descr': '|O', 'fortran_order': False, 'shape': (3, 2), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 6), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-3, 2), }",
        "{'descr': '<f4', 'shape': (3, 2), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2",
        "{'descr': '<f4",
        "{'shape': (3, 2), 'shape': (3, 2), 'descr': '<f4', 'fortran_order': False}",
        "(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)",
    };
    static unsigned char a[1024];
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        ebb_data data;
        assert_null(ebb_data_init(&data, "test"));
        size_t n = put_npy(a, headers[i], six, sizeof six);
        ebb_status status = ebb_npy_parse(&data, "x", 1, a, n);
        if (ebb_status_code(status) != EBB_REJECTED)
            fail_msg("taken: %s", headers[i]);
        ebb_data_fini(&data);
    }
    size_t n =
        put_npy(a, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }", six, sizeof six);
    for (size_t cut = 0; cut < n; cut++) {
        ebb_data data;
        assert_null(ebb_data_init(&data, "test"));
        unsigned char *exact = malloc(cut + 1); /* so that a sanitizer sees a read beyond */
        assert_non_null(exact);
        memcpy(exact, a, cut);
        assert_non_null(ebb_npy_parse(&data, "x", 1, exact, cut));
        free(exact);
        ebb_data_fini(&data);
    }
}

TEST(a_damaged_archive_is_refused)
{
    static unsigned char bytes[4096];
    write_two(path_of("a.npz"));
    FILE *f = fopen(path_of("a.npz"), "rb");
    assert_non_null(f);
    size_t size = fread(bytes, 1, sizeof bytes, f);
    assert_int_equal(fclose(f), 0);
    for (size_t i = 0; i < size; i++) { /* each byte in turn: never a crash, never other numbers */
        bytes[i] ^= 0x5A;
        put_file(path_of("bad.npz"), bytes, size);
        ebb_data *data = NULL;
        if (ebb_data_open(&data, path_of("bad.npz"), NULL) == NULL) {
            const ebb_named *x = ebb_data_find(data, "x");
            if (x != NULL && x->dtype == EBB_F32)
                assert_memory_equal(x->data, six, sizeof six);
        }
        ebb_data_close(data);
        bytes[i] ^= 0x5A;
    }
}

TEST(safetensors_come_back_as_they_went)
{
    const int64_t dims[] = {3, 2}, one[] = {3}, none[] = {0, 4};
    const uint16_t half[3] = {0x3C00, 0x4000, 0x4200};
    const ebb_named list[] = {{"w", EBB_F32, 2, dims, six},
                              {"idx", EBB_I64, 1, one, three},
                              {"h", EBB_BF16, 1, one, half},
                              {"scalar", EBB_F32, 0, NULL, six},
                              {"empty", EBB_F32, 2, none, NULL}};
    assert_null(ebb_tensors_save(path_of("a.safetensors"), list, 5, "{\"n\": 3, \"s\": \"t\"}"));
    OWNED_DATA *data = NULL;
    assert_null(ebb_data_open(&data, path_of("a.safetensors"), NULL));
    assert_int_equal(ebb_data_count(data), 5);
    assert_memory_equal(ebb_data_find(data, "w")->data, six, sizeof six);
    assert_memory_equal(ebb_data_find(data, "idx")->data, three, sizeof three);
    assert_memory_equal(ebb_data_find(data, "h")->data, half, sizeof half);
    assert_int_equal(ebb_data_find(data, "scalar")->rank, 0);
    assert_int_equal(ebb_data_find(data, "empty")->dims[1], 4);
    assert_non_null(strstr(data->metadata, "\"n\":\"3\""));
}

TEST(nothing_is_left_where_writing_fails)
{
    const int64_t dims[] = {3, 2};
    const ebb_named list[] = {{"w", EBB_F32, 2, dims, six}};
    ebb_status status = ebb_tensors_save(path_of("none/a.safetensors"), list, 1, NULL);
    assert_int_equal(ebb_status_code(status), EBB_IO);
    const ebb_named twice[] = {list[0], list[0]};
    status = ebb_tensors_save(path_of("twice.safetensors"), twice, 2, NULL);
    assert_int_equal(ebb_status_code(status), EBB_USAGE);
    assert_int_not_equal(access(path_of("twice.safetensors"), F_OK), 0);
}

/* A limit on file sizes fails a write half way, as a full disk does. */
TEST(a_full_disk_leaves_nothing_behind)
{
    static float many[1 << 16];
    const int64_t dims[] = {1 << 16};
    const ebb_named list[] = {{"w", EBB_F32, 1, dims, many}};
    struct rlimit before, small = {4096, 4096};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    ebb_status status = ebb_tensors_save(path_of("full.safetensors"), list, 1, NULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(ebb_status_code(status), EBB_IO);
    DIR *files = opendir(folder);
    assert_non_null(files);
    for (const struct dirent *f; (f = readdir(files)) != NULL;)
        assert_null(strstr(f->d_name, "full"));
    assert_int_equal(closedir(files), 0);
}

TEST(running_out_of_memory_is_a_status)
{
    const int64_t dims[] = {3, 2};
    const ebb_named list[] = {{"w", EBB_F32, 2, dims, six}};
    for (long n = 1;; n++) {
        ebb_data *data = NULL, *zipped = NULL;
        ebb_alloc_fail_after(n);
        ebb_status status = ebb_tensors_save(path_of("a.safetensors"), list, 1, NULL);
        if (status == NULL)
            status = ebb_data_open(&data, path_of("a.safetensors"), NULL);
        if (status == NULL)
            status = ebb_data_open(&zipped, path_of("a.npz"), NULL);
        ebb_alloc_fail_after(0);
        ebb_data_close(data);
        ebb_data_close(zipped);
        if (status == NULL)
            break;
        assert_int_equal(ebb_status_code(status), EBB_RUNTIME);
        assert_true(n < 200);
    }
}

TEST(headers_of_safetensors_that_lie_are_refused)
{
    static const char *const headers[] = {
        "",
        "[]",
        "{",
        "nul",
        "{\"w\": 3}",
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0,25]}}",
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[24,0]}}",
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[-8,16]}}",
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[5],\"data_offsets\":[0,24]}}",
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[-6],\"data_offsets\":[0,24]}}",
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,4294967296,6],"
        "\"data_offsets\":[0,24]}}",
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,6],"
        "\"data_offsets\":[0,24]}}",
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0,9223372036854775807]}}",
        "{\"w\":{\"dtype\":\"Q9\",\"shape\":[6],\"data_offsets\":[0,24]}}",
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0,24]},"
        "\"w\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0,24]}}",
    };
    static unsigned char file[1024];
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        size_t length = strlen(headers[i]);
        memset(file, 0, 8);
        file[0] = (unsigned char)length;
        file[1] = (unsigned char)(length >> 8);
        memcpy(file + 8, headers[i], length);
        memcpy(file + 8 + length, six, sizeof six);
        ebb_data data;
        assert_null(ebb_data_init(&data, "test"));
        ebb_status status = ebb_safetensors_parse(&data, file, 8 + length + sizeof six);
        if (ebb_status_code(status) != EBB_REJECTED)
            fail_msg("taken: %s", headers[i]);
        ebb_data_fini(&data);
    }
    memset(file, 0xFF, 16); /* a header of 2^64 - 1 bytes */
    ebb_data data;
    assert_null(ebb_data_init(&data, "test"));
    assert_non_null(ebb_safetensors_parse(&data, file, 16));
    assert_non_null(ebb_safetensors_parse(&data, file, 3));
    ebb_data_fini(&data);
}

TEST(a_shuffle_is_a_permutation_and_repeatable)
{
    int64_t a[257], b[257], seen[257] = {0};
    ebb_shuffle(a, 257, 1, 0);
    ebb_shuffle(b, 257, 1, 0);
    assert_memory_equal(a, b, sizeof a);
    for (int i = 0; i < 257; i++)
        seen[a[i]]++;
    for (int i = 0; i < 257; i++)
        assert_int_equal(seen[i], 1);
    uint32_t c[257];
    ebb_shuffle_32(c, 257, 1, 0);
    for (int i = 0; i < 257; i++)
        assert_int_equal(c[i], a[i]);
    ebb_shuffle(b, 257, 1, 1);
    assert_memory_not_equal(a, b, sizeof a);
    ebb_shuffle(b, 0, 1, 1);
}

const fixture around_all = {make_folder, remove_folder};
