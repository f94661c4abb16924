/* test_ort_checkpoint.c: ONNX Runtime's checkpoint. ort_checkpoint.bin is written by the
 * flatbuffers library (ort_checkpoint.py says what is in it); what is wrong with it is made here.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "exec/ort_checkpoint.h"
#include "exec/program.h"
#include "onnx/file.h"
#include "onnx/infer.h"

#define FILE_NAME EBB_SOURCE_DIR "/tests/exec/ort_checkpoint.bin"

static void good(ebb_status status)
{
    if (status != NULL)
        fail_msg("%s", ebb_status_text(status));
}

static unsigned char *read_all(size_t *size)
{
    FILE *file = fopen(FILE_NAME, "rb");
    assert_non_null(file);
    unsigned char *bytes = malloc(1 << 16);
    assert_non_null(bytes);
    *size = fread(bytes, 1, 1 << 16, file);
    fclose(file);
    assert_true(*size > 500);
    return bytes;
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

static void parameters_and_what_the_optimizer_counted_are_read(void **state)
{
    (void)state;
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

static void inputs_of_its_names_become_weights(void **state)
{
    (void)state;
    static const char text[] =
        "<ir_version: 10, opset_import: [\"\" : 20]>\n"
        "g (float[4,3] x, float[2,3] \"fc.weight\", int64 steps_seen) => (float[4,2] y, int64 n) "
        "{\n"
        "   y = Gemm <transB = 1> (x, \"fc.weight\")\n   n = Neg (steps_seen)\n}";
    ebb_model *m = NULL;
    ebb_program *p = NULL;
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
    ebb_program_free(p);
    ebb_close(m);
}

static ebb_status parse(const unsigned char *bytes, size_t size)
{
    ebb_data data;
    good(ebb_data_init(&data, "memory"));
    // exactly as large as said, so that a sanitizer sees a read beyond it
    unsigned char *copy = malloc(size + 1);
    assert_non_null(copy);
    memcpy(copy + 1, bytes, size);
    ebb_status status = ebb_ort_checkpoint_parse(&data, copy + 1, size, NULL, "memory", NULL);
    free(copy);
    ebb_data_fini(&data);
    return status;
}

static void a_file_cut_off_anywhere_is_refused_or_whole(void **state)
{
    (void)state;
    size_t size, refused = 0;
    unsigned char *bytes = read_all(&size);
    for (size_t n = 0; n < size; n++)
        refused += parse(bytes, n) != NULL;
    assert_in_range(refused, size - 3, size); // its last bytes fill up a string
    assert_null(parse(bytes, size));
    free(bytes);
}

static void no_byte_that_is_wrong_leads_out_of_the_file(void **state)
{
    (void)state;
    static const unsigned char values[] = {0x00, 0x01, 0x7F, 0x80, 0xFF};
    size_t size, refused = 0;
    unsigned char *bytes = read_all(&size);
    for (size_t at = 0; at < size; at++) {
        unsigned char was = bytes[at];
        for (size_t i = 0; i < sizeof values; i++) {
            bytes[at] = values[i];
            refused += parse(bytes, size) != NULL;
        }
        bytes[at] = was;
    }
    assert_true(refused > size);
    free(bytes);
}

static void each_refusal_says_what_and_where(void **state)
{
    (void)state;
    size_t size;
    unsigned char *bytes = read_all(&size);
    uint32_t root = (uint32_t)(bytes[0] | bytes[1] << 8);
    bytes[3] = 0x7F; // the root lies two gigabytes on
    ebb_status status = parse(bytes, size);
    assert_int_equal(ebb_status_code(status), EBB_REJECTED);
    assert_non_null(strstr(ebb_status_text(status), "byte 0: a reference leads out of the file"));
    bytes[3] = 0;
    memset(bytes + root, 0xFF, 4);
    bytes[root] = 0xFE; // its table of fields is no table
    assert_int_equal(ebb_status_code(parse(bytes, size)), EBB_REJECTED);
    free(bytes);
    status = parse((const unsigned char *)"\0\0\0\0ABCD", 8);
    assert_non_null(strstr(ebb_status_text(status), "no checkpoint of ONNX Runtime"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_and_what_the_optimizer_counted_are_read),
        cmocka_unit_test(inputs_of_its_names_become_weights),
        cmocka_unit_test(a_file_cut_off_anywhere_is_refused_or_whole),
        cmocka_unit_test(no_byte_that_is_wrong_leads_out_of_the_file),
        cmocka_unit_test(each_refusal_says_what_and_where),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
