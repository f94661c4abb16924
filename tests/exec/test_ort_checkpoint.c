/* test_ort_checkpoint.c: ONNX Runtime's checkpoint. ort_checkpoint.bin is written by the
 * flatbuffers library (ort_checkpoint.py says what is in it); what is wrong with it is made here.
 * So it is with what ebb writes, which tests/models/ort_artifacts.py gives the library to read.
 */

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "exec/data/ort_checkpoint.h"
#include "exec/run/program.h"
#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "tests/owned.h"
#include "tests/status.h"

#define FILE_NAME EBB_SOURCE_DIR "/tests/exec/ort_checkpoint.bin"

static unsigned char *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    unsigned char *bytes = malloc(1 << 16);
    assert_non_null(bytes);
    *size = fread(bytes, 1, 1 << 16, file);
    fclose(file);
    assert_true(*size > 500);
    return bytes;
}

static unsigned char *read_all(size_t *size)
{
    return read_file(FILE_NAME, size);
}

static void numbers_are(const ebb_data *data, const char *name, int rank, size_t count,
                        const float *want)
{
    const ebb_named *t = ebb_data_find(data, name);
    if (t == NULL)
        fail_msg("no array '%s'", name);
    assert_int_equal(t->dtype, EBB_F32);
    assert_int_equal(t->rank, rank);
    for (size_t i = 0; i < count; i++)
        assert_float_equal(((const float *)t->data)[i], want[i], 0);
}

TEST(parameters_and_what_the_optimizer_counted_are_read)
{
    ebb_data data;
    size_t trained = 0;
    good(ebb_data_init(&data, FILE_NAME));
    good(ebb_ort_checkpoint_read(&data, FILE_NAME, &trained));
    assert_int_equal(trained, 2);
    assert_int_equal(ebb_data_count(&data), 7);
    numbers_are(&data, "fc.weight", 2, 6, (const float[]){0, 1, 2, 3, 4, 5});
    numbers_are(&data, "fc.weight.exp_avg", 2, 2, (const float[]){0.125f, 0.125f});
    numbers_are(&data, "fc.weight.exp_avg_sq", 2, 2, (const float[]){0.0625f, 0.0625f});
    numbers_are(&data, "ebb.lr", 0, 1, (const float[]){0.01f});
    const ebb_named *bias = ebb_data_find(&data, "fc.bias");
    const ebb_named *seen = ebb_data_find(&data, "steps_seen");
    const ebb_named *step = ebb_data_find(&data, "ebb.step");
    assert_int_equal(bias->dtype, EBB_F64);
    assert_true(((const double *)bias->data)[1] == -0.25);
    assert_int_equal(*(const int64_t *)seen->data, 41);
    assert_int_equal(*(const int64_t *)step->data, 7);
    ebb_data_fini(&data);
}

TEST(inputs_of_its_names_become_weights)
{
    static const char text[] =
        "<ir_version: 10, opset_import: [\"\" : 20]>\n"
        "g (float[4,3] x, float[2,3] \"fc.weight\", int64 steps_seen) => (float[4,2] y, int64 n) "
        "{\n"
        "   y = Gemm <transB = 1> (x, \"fc.weight\")\n   n = Neg (steps_seen)\n}";
    OWNED_MODEL *m = NULL;
    OWNED_PROGRAM *p = NULL;
    ebb_named y;
    const int64_t dims[2] = {4, 3};
    const float ones[12] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    good(ebb_text_parse_model(&m, text));
    good(ebb_infer_graph(m->graph));
    good(ebb_load_weights(m, FILE_NAME));
    good(ebb_verify(m->graph));
    assert_int_equal(m->graph->input_count, 1);
    ebb_value w = ebb_value_find(m->graph, "fc.weight");
    ebb_value n = ebb_value_find(m->graph, "steps_seen");
    assert_int_equal(ebb_value_of(m->graph, w)->role, EBB_ROLE_PARAMETER);
    assert_int_equal(ebb_value_of(m->graph, n)->role, EBB_ROLE_FROZEN);
    good(ebb_program_compile(&p, m, NULL));
    const ebb_named x = {"x", EBB_F32, 2, dims, ones};
    good(ebb_program_step(p, &(ebb_batch){&x, 1}));
    good(ebb_program_get(p, "y", &y));
    assert_float_equal(((const float *)y.data)[0], 3, 0);
    assert_float_equal(((const float *)y.data)[1], 12, 0);
}

static ebb_status parse(const unsigned char *bytes, size_t size)
{
    ebb_data data;
    good(ebb_data_init(&data, "memory"));
    // exactly as large as said, so that a sanitizer sees a read beyond it
    FREED unsigned char *copy = malloc(size + 1);
    assert_non_null(copy);
    memcpy(copy + 1, bytes, size);
    ebb_status status = ebb_ort_checkpoint_parse(&data, copy + 1, size, NULL, "memory", NULL);
    ebb_data_fini(&data);
    return status;
}

/* How many beginnings are refused. */
static size_t cut_off(const unsigned char *bytes, size_t size)
{
    size_t refused = 0;
    for (size_t n = 0; n < size; n++)
        refused += parse(bytes, n) != NULL;
    assert_null(parse(bytes, size));
    return refused;
}

TEST(a_file_cut_off_anywhere_is_refused_or_whole)
{
    size_t size;
    FREED unsigned char *bytes = read_all(&size);
    assert_in_range(cut_off(bytes, size), size - 3, size); // its last bytes fill up a string
}

/* How many of the files with one byte that is wrong are refused. */
static size_t spoil(unsigned char *bytes, size_t size)
{
    static const unsigned char values[] = {0x00, 0x01, 0x7F, 0x80, 0xFF};
    size_t refused = 0;
    for (size_t at = 0; at < size; at++) {
        unsigned char was = bytes[at];
        for (size_t i = 0; i < sizeof values; i++) {
            bytes[at] = values[i];
            refused += parse(bytes, size) != NULL;
        }
        bytes[at] = was;
    }
    return refused;
}

TEST(no_byte_that_is_wrong_leads_out_of_the_file)
{
    size_t size;
    FREED unsigned char *bytes = read_all(&size);
    assert_true(spoil(bytes, size) > size);
}

TEST(each_refusal_says_what_and_where)
{
    size_t size;
    unsigned char *bytes = read_all(&size);
    uint32_t root = (uint32_t)(bytes[0] | bytes[1] << 8);
    bytes[3] = 0x7F; // the root lies two gigabytes on
    ebb_status status = parse(bytes, size);
    refused(status, EBB_REJECTED, "byte 0: a reference leads out of the file");
    bytes[3] = 0;
    memset(bytes + root, 0xFF, 4);
    bytes[root] = 0xFE; // its table of fields is no table
    assert_int_equal(ebb_status_code(parse(bytes, size)), EBB_REJECTED);
    free(bytes);
    status = parse((const unsigned char *)"\0\0\0\0ABCD", 8);
    assert_non_null(strstr(ebb_status_text(status), "no checkpoint of ONNX Runtime"));
}

/* ---- writing ---- */

static const int64_t dims[2] = {2, 3}, two = 2, none = 0;
static const float weight[6] = {0, 1, 2, 3, 4, 5}, moment[6] = {1, 1, 2, 3, 5, 8};
static const float square[6] = {0.5f, 0.25f, 0.125f, 4, 8, 16};
static const double bias[2] = {0.5, -0.25}, still[2] = {0, 1}, squares[2] = {2, 3};
static const int64_t seen = 41;

/* Two trained arrays of different types, frozen ones without dims and without elements, moments. */
static void write_one(const char *path, uint64_t external_above)
{
    const ebb_named trained[2] = {{"fc.weight", EBB_F32, 2, dims, weight},
                                  {"fc.bias", EBB_F64, 1, &two, bias}};
    const ebb_named frozen[2] = {{"steps_seen", EBB_I64, 0, NULL, &seen},
                                 {"nothing", EBB_F32, 1, &none, NULL}};
    const ebb_named first[2] = {{"", EBB_F32, 2, dims, moment}, {"", EBB_F64, 1, &two, still}};
    const ebb_named second[2] = {{"", EBB_F32, 2, dims, square}, {"", EBB_F64, 1, &two, squares}};
    const ebb_ort_checkpoint c = {
        .trained = trained,
        .trained_count = 2,
        .frozen = frozen,
        .frozen_count = 2,
        .has_optimizer = true,
        .step = (int64_t)7 << 40,
        .rate = 0.01f,
        .moment_count = 2,
        .moments = {first, second},
        .properties = "{\"epoch\": 3, \"best\": 0.5, \"done\": true, \"by\": \"ebb\"}",
        .external_above = external_above};
    good(ebb_ort_checkpoint_write(path, &c));
}

static void holds_what_was_written(const char *path)
{
    ebb_data data;
    size_t trained = 0;
    good(ebb_data_init(&data, path));
    good(ebb_ort_checkpoint_read(&data, path, &trained));
    assert_int_equal(trained, 2);
    assert_int_equal(ebb_data_count(&data), 10);
    numbers_are(&data, "fc.weight", 2, 6, weight);
    numbers_are(&data, "fc.weight.exp_avg", 2, 6, moment);
    numbers_are(&data, "fc.weight.exp_avg_sq", 2, 6, square);
    numbers_are(&data, "ebb.lr", 0, 1, (const float[]){0.01f});
    numbers_are(&data, "nothing", 1, 0, NULL);
    assert_memory_equal(ebb_data_find(&data, "fc.bias")->data, bias, sizeof bias);
    assert_memory_equal(ebb_data_find(&data, "fc.bias.exp_avg_sq")->data, squares, sizeof squares);
    assert_int_equal(*(const int64_t *)ebb_data_find(&data, "steps_seen")->data, 41);
    assert_true(*(const int64_t *)ebb_data_find(&data, "ebb.step")->data == (int64_t)7 << 40);
    ebb_data_fini(&data);
}

typedef struct files { /* in a folder of their own */
    char folder[32], tables[64], data[64];
} files;

static files begin(void)
{
    files f = {.folder = "/tmp/ebb-checkpoint-XXXXXX"};
    assert_non_null(mkdtemp(f.folder));
    (void)snprintf(f.tables, sizeof f.tables, "%s/checkpoint", f.folder);
    (void)snprintf(f.data, sizeof f.data, "%s/checkpoint.data", f.folder);
    return f;
}

static void end(const files *f)
{
    (void)unlink(f->tables);
    (void)unlink(f->data);
    assert_int_equal(rmdir(f->folder), 0); // nothing else was left in it
}

TEST(what_is_written_is_read_again)
{
    files f = begin();
    size_t size;
    write_one(f.tables, 0);
    assert_int_equal(access(f.data, F_OK), -1);
    holds_what_was_written(f.tables);
    FREED unsigned char *bytes = read_file(f.tables, &size);
    assert_memory_equal(bytes + 4, "ODTC", 4);
    assert_int_equal(cut_off(bytes, size), size);
    assert_true(spoil(bytes, size) > size);
    end(&f);
}

static ebb_status read_again(const char *path)
{
    ebb_data data;
    good(ebb_data_init(&data, path));
    ebb_status status = ebb_ort_checkpoint_read(&data, path, NULL);
    ebb_data_fini(&data);
    return status;
}

TEST(large_arrays_lie_in_a_file_beside_it)
{
    files f = begin();
    write_one(f.tables, sizeof bias); // of those arrays all but the number
    holds_what_was_written(f.tables);
    assert_int_equal(truncate(f.data, 24), 0); // and so the last ones are cut off
    ebb_status status = read_again(f.tables);
    refused(status, EBB_REJECTED, "outside of the file beside it");
    assert_int_equal(unlink(f.data), 0);
    status = read_again(f.tables);
    refused(status, EBB_IO, "checkpoint.data");
    end(&f);
}

TEST(places_in_the_file_beside_it_are_checked)
{
    files f = begin();
    size_t size, refused = 0;
    write_one(f.tables, sizeof bias);
    FREED unsigned char *bytes = read_file(f.tables, &size);
    for (size_t at = 0; at < size; at++) { // among them the offsets' high and low bytes
        ebb_data data;
        unsigned char was = bytes[at];
        bytes[at] = 0xFF;
        good(ebb_data_init(&data, f.tables));
        refused +=
            ebb_ort_checkpoint_parse(&data, bytes, size, f.folder, "checkpoint", NULL) != NULL;
        ebb_data_fini(&data);
        bytes[at] = was;
    }
    assert_in_range(refused, size / 4, size - 1);
    end(&f);
}

TEST(an_array_without_bytes_is_not_written)
{
    files f = begin();
    const ebb_named bare = {"w", EBB_F32, 1, &two, NULL}, strings = {"s", EBB_STRING, 0, NULL, ""};
    ebb_ort_checkpoint c = {.trained = &bare, .trained_count = 1};
    refused(ebb_ort_checkpoint_write(f.tables, &c), EBB_USAGE, "'w'");
    c.trained = &strings;
    assert_int_equal(ebb_status_code(ebb_ort_checkpoint_write(f.tables, &c)), EBB_USAGE);
    c.trained_count = 0;
    c.properties = "[1]";
    assert_int_equal(ebb_status_code(ebb_ort_checkpoint_write(f.tables, &c)), EBB_USAGE);
    assert_int_equal(access(f.tables, F_OK), -1);
    end(&f);
}
