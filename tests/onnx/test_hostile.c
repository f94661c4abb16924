/* test_hostile.c: models made to break the reader. Each gives a sentence that names the place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "onnx/file.h"
#include "tests/onnx/bytes.h"

static char folder[] = "/tmp/ebb-hostile-XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    char path[128];
    if (mkdtemp(folder) == NULL)
        return 1;
    (void)snprintf(path, sizeof path, "%s/w.bin", folder);
    FILE *file = fopen(path, "wb");
    uint8_t weights[64] = {0};
    bool written = file != NULL && fwrite(weights, 1, sizeof weights, file) == sizeof weights;
    if (file != NULL)
        (void)fclose(file);
    (void)snprintf(path, sizeof path, "%s/link", folder);
    return written && symlink("/etc/hostname", path) == 0 ? 0 : 1;
}

static int remove_folder(void **state)
{
    (void)state;
    char path[128];
    (void)snprintf(path, sizeof path, "%s/w.bin", folder);
    unlink(path);
    (void)snprintf(path, sizeof path, "%s/link", folder);
    unlink(path);
    return rmdir(folder);
}

static ebb_status read_bytes(const bytes *b)
{
    // A copy of exactly this size, so that a sanitizer sees any read past the end.
    uint8_t *copy = malloc(b->count > 0 ? b->count : 1);
    assert_non_null(copy);
    memcpy(copy, b->data, b->count);
    ebb_model *model = NULL;
    ebb_status status = ebb_model_read_memory(&model, copy, b->count, folder);
    if (status == NULL)
        ebb_model_free(model);
    free(copy);
    return status;
}

/* ---- graphs that cannot be ---- */

static void cycle(bytes *b)
{
    put_node(b, "Relu", "first", NAMES("b"), NAMES("a"));
    put_node(b, "Relu", "second", NAMES("a"), NAMES("b"));
    put_value(b, 12, "b", DIMS(1));
}

static void no_producer(bytes *b)
{
    put_node(b, "Relu", "r", NAMES("nobody"), NAMES("y"));
}

static void no_output(bytes *b)
{
    put_value(b, 12, "y", DIMS(1));
}

static void two_producers(bytes *b)
{
    put_node(b, "Relu", "r1", NAMES("x"), NAMES("y"));
    put_node(b, "Relu", "r2", NAMES("x"), NAMES("y"));
    put_value(b, 11, "x", DIMS(1));
}

static void makes_an_input(bytes *b)
{
    put_node(b, "Relu", "r", NAMES("x"), NAMES("x"));
    put_value(b, 11, "x", DIMS(1));
}

static void input_twice(bytes *b)
{
    put_value(b, 11, "x", DIMS(1));
    put_value(b, 11, "x", DIMS(1));
}

static void initializer_twice(bytes *b)
{
    put_initializer(b, "w", DIMS(2), 8);
    put_initializer(b, "w", DIMS(2), 8);
}

static void negative_dim(bytes *b)
{
    put_initializer(b, "w", DIMS(-2), 8);
}

static void negative_input_dim(bytes *b)
{
    put_value(b, 11, "x", DIMS(-7));
}

static void overflow(bytes *b)
{
    put_initializer(b, "w", DIMS(INT64_C(1) << 32, INT64_C(1) << 32), 8);
}

static void byte_overflow(bytes *b)
{
    put_initializer(b, "w", DIMS(INT64_C(1) << 62), 8);
}

static void rank_13(bytes *b)
{
    put_initializer(b, "w", DIMS(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1), 4);
}

static void rank_13_input(bytes *b)
{
    put_value(b, 11, "x", DIMS(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1));
}

static void raw_too_short(bytes *b)
{
    put_initializer(b, "w", DIMS(3), 8);
}

static void raw_too_long(bytes *b)
{
    put_initializer(b, "w", DIMS(3), 16);
}

static void floats_too_few(bytes *b)
{
    size_t tensor = open_initializer(b, DIMS(3));
    put_blob(b, 4, "\0\0\0\0\0\0\0", 8);
    put_text(b, 8, "w");
    close_message(b, tensor);
}

static void no_data(bytes *b)
{
    size_t tensor = open_initializer(b, DIMS(1000000));
    put_text(b, 8, "w");
    close_message(b, tensor);
}

static void no_operator(bytes *b)
{
    put_node(b, "", "n", NAMES("x"), NAMES("y"));
    put_value(b, 11, "x", DIMS(1));
}

static void nameless_attribute(bytes *b)
{
    size_t node = open_message(b, 1);
    put_text(b, 2, "y");
    put_text(b, 3, "n");
    put_text(b, 4, "Constant");
    size_t attribute = open_message(b, 5);
    put_int(b, 3, 1);
    close_message(b, attribute);
    close_message(b, node);
}

static void attribute_without_tensor(bytes *b)
{
    size_t node = open_message(b, 1);
    put_text(b, 2, "y");
    put_text(b, 3, "n");
    put_text(b, 4, "Constant");
    size_t attribute = open_message(b, 5);
    put_text(b, 1, "value");
    put_int(b, 20, 4);
    close_message(b, attribute);
    close_message(b, node);
}

static void wrong_attribute_tensor(bytes *b)
{
    size_t node = open_message(b, 1);
    put_text(b, 2, "y");
    put_text(b, 3, "c");
    put_text(b, 4, "Constant");
    size_t attribute = open_message(b, 5), tensor;
    put_text(b, 1, "value");
    tensor = open_message(b, 5);
    put_int(b, 1, 5);
    put_int(b, 2, 1);
    put_blob(b, 9, "12345678", 8);
    close_message(b, tensor);
    put_int(b, 20, 4);
    close_message(b, attribute);
    close_message(b, node);
}

/* An If whose branch reads what only a later node makes. */
static void captured_too_early(bytes *b)
{
    size_t node = open_message(b, 1);
    put_text(b, 1, "x");
    put_text(b, 2, "y");
    put_text(b, 3, "branch");
    put_text(b, 4, "If");
    size_t attribute = open_message(b, 5), graph;
    put_text(b, 1, "then_branch");
    graph = open_message(b, 6);
    put_node(b, "Relu", "inner", NAMES("later"), NAMES("z"));
    put_value(b, 12, "z", DIMS(1));
    close_message(b, graph);
    put_int(b, 20, 5);
    close_message(b, attribute);
    close_message(b, node);
    put_node(b, "Relu", "outer", NAMES("x"), NAMES("later"));
    put_value(b, 11, "x", DIMS(1));
}

static void bad_in_place(bytes *b)
{
    size_t node = open_message(b, 1);
    put_text(b, 1, "x");
    put_text(b, 2, "y");
    put_text(b, 3, "n");
    put_text(b, 4, "Relu");
    put_entry(b, 9, "ebb.inplace", "0:9");
    close_message(b, node);
    put_value(b, 11, "x", DIMS(1));
}

/* ---- external data ---- */

static void external_absolute(bytes *b)
{
    put_external(b, "w", 4, "/etc/passwd", "0", "16");
}

static void external_up(bytes *b)
{
    put_external(b, "w", 4, "a/../../w.bin", "0", "16");
}

static void external_link(bytes *b)
{
    put_external(b, "w", 1, "link", "0", "4");
}

static void external_empty(bytes *b)
{
    put_external(b, "w", 4, "", "0", "16");
}

static void external_past_the_end(bytes *b)
{
    put_external(b, "w", 4, "w.bin", "56", "16");
}

static void external_far_away(bytes *b)
{
    put_external(b, "w", 4, "w.bin", "18446744073709551615", "16");
}

static void external_other_length(bytes *b)
{
    put_external(b, "w", 4, "w.bin", "0", "12");
}

static void external_no_number(bytes *b)
{
    put_external(b, "w", 4, "w.bin", "-1", "16");
}

static void external_folder(bytes *b)
{
    put_external(b, "w", 4, ".", "0", "16");
}

static const struct {
    void (*make)(bytes *graph);
    const char *says;
    ebb_code code; /* 0: EBB_REJECTED */
} graphs[] = {
    {cycle, "cycle", 0},
    {no_producer, "Relu 'r' reads 'nobody'", 0},
    {no_output, "output 'y' is made by no node", 0},
    {two_producers, "Relu 'r2' makes 'y', which is a node's output already", 0},
    {makes_an_input, "Relu 'r' makes 'x', which is an input already", 0},
    {input_twice, "input 'x' is there twice", 0},
    {initializer_twice, "initializer 'w' is there twice", 0},
    {negative_dim, "initializer 'w': dim 0 is negative (-2)", 0},
    {negative_input_dim, "input 'x': dim 0 is -7", 0},
    {overflow, "initializer 'w': the product of its dims is too large", 0},
    {byte_overflow, "initializer 'w': the product of its dims is too large", 0},
    {rank_13, "initializer 'w': rank 13", 0},
    {rank_13_input, "input 'x': rank 13", 0},
    {raw_too_short, "initializer 'w': has 8 bytes where its shape wants 12", 0},
    {raw_too_long, "initializer 'w': has 16 bytes where its shape wants 12", 0},
    {floats_too_few, "initializer 'w': has 2 numbers where its shape wants 3", 0},
    {no_data, "initializer 'w': has 0 numbers where its shape wants 1000000", 0},
    {no_operator, "'n' has no operator", 0},
    {nameless_attribute, "Constant 'n': an attribute has no name", 0},
    {attribute_without_tensor, "Constant 'n': attribute 'value': holds no tensor", 0},
    {wrong_attribute_tensor, "Constant 'c': attribute 'value': has 8 bytes", 0},
    {captured_too_early, "If 'branch' reads 'later' in a subgraph before it is made", 0},
    {bad_in_place, "Relu 'n': metadata ebb.inplace", 0},
    {external_absolute, "initializer 'w': external data location '/etc/passwd'", 0},
    {external_up, "initializer 'w': external data location 'a/../../w.bin' leads out", 0},
    {external_link, "initializer 'w': external data location 'link' leads out", 0},
    {external_empty, "initializer 'w': external data location '' is empty", 0},
    {external_past_the_end, "runs past the end of 'w.bin' (64 bytes)", 0},
    {external_far_away, "runs past the end of 'w.bin' (64 bytes)", 0},
    {external_other_length, "external data has 12 bytes where its shape wants 16", 0},
    {external_no_number, "external data offset '-1' is not a number", 0},
    {external_folder, "leads out of the model's folder", 0},
};

static void each_impossible_graph_is_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof graphs / sizeof graphs[0]; i++) {
        bytes b = {.count = 0};
        size_t graph = open_model(&b);
        graphs[i].make(&b);
        close_model(&b, graph);
        ebb_status status = read_bytes(&b);
        if (status == NULL || strstr(ebb_status_text(status), graphs[i].says) == NULL)
            fail_msg("wanted \"%s\", got \"%s\"", graphs[i].says,
                     status != NULL ? ebb_status_text(status) : "success");
        assert_int_equal(ebb_status_code(status),
                         graphs[i].code != 0 ? graphs[i].code : EBB_REJECTED);
    }
}

/* ---- bytes that cannot be ---- */

#define BYTES(...)                    \
    sizeof((uint8_t[]){__VA_ARGS__}), \
    {                                 \
        __VA_ARGS__                   \
    }

static const struct {
    const char *says;
    size_t count;
    uint8_t data[32];
} streams[] = {
    {"no graph", 0, {0}},
    {"byte 1: graph: length runs past", BYTES(0x3a, 0x05, 0x12)},
    {"byte 1: ir_version: a number runs past its parent", BYTES(0x08, 0x80)},
    {"ir_version: a number has more than 64 bits",
     BYTES(0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f)},
    {"byte 0: graph: the wire type", BYTES(0x38, 0x01)},
    {"byte 0: ir_version: the wire type", BYTES(0x0a, 0x00)},
    {"byte 0: ir_version: the wire type", BYTES(0x0d, 0, 0, 0, 0)},
    {"groups", BYTES(0x0b, 0x0c)},
    {"groups", BYTES(0x0c)},
    {"no such wire type", BYTES(0x0f)},
    {"no field has this number", BYTES(0x00, 0x00)},
    {"graph: is given twice", BYTES(0x3a, 0x00, 0x3a, 0x00)},
    {"producer_name: text holds a zero byte", BYTES(0x12, 0x02, 'a', 0x00)},
    {"graph.name: length runs past its parent", BYTES(0x3a, 0x03, 0x12, 0x7f, 'g')},
    {"graph.node[1]: length runs past", BYTES(0x3a, 0x04, 0x0a, 0x00, 0x0a, 0x01)},
    {"dims[0]: a number runs past", BYTES(0x3a, 0x05, 0x2a, 0x03, 0x0a, 0x01, 0x80)},
    {"float_data[0]: a packed list ends inside an element",
     BYTES(0x3a, 0x07, 0x2a, 0x05, 0x22, 0x03, 0, 0, 0)},
    {"(field 99): length runs past", BYTES(0x9a, 0x06, 0x09)},
    {"(field 99): a number runs past", BYTES(0x99, 0x06, 0x09)},
};

static void each_impossible_byte_is_refused_by_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof streams / sizeof streams[0]; i++) {
        bytes b = {.count = streams[i].count};
        memcpy(b.data, streams[i].data, streams[i].count);
        ebb_status status = read_bytes(&b);
        if (status == NULL || strstr(ebb_status_text(status), streams[i].says) == NULL)
            fail_msg("wanted \"%s\", got \"%s\"", streams[i].says,
                     status != NULL ? ebb_status_text(status) : "success");
        assert_int_equal(ebb_status_code(status), EBB_REJECTED);
    }
}

/* A type inside a type inside a type ... */
static void deep_nesting_is_refused(void **state)
{
    (void)state;
    bytes b = {.count = 0};
    size_t open[200], depth = 0;
    size_t graph = open_model(&b), value = open_message(&b, 11);
    put_text(&b, 1, "x");
    open[depth++] = open_message(&b, 2);
    while (depth + 2 < 150) {
        open[depth++] = open_message(&b, 4);
        open[depth++] = open_message(&b, 1);
    }
    while (depth > 0)
        close_message(&b, open[--depth]);
    close_message(&b, value);
    close_model(&b, graph);
    ebb_status status = read_bytes(&b);
    assert_non_null(status);
    assert_non_null(strstr(ebb_status_text(status), "nested too deeply"));
}

/* Two bytes a node, a hundred times as much in memory. */
static void many_empty_messages_do_not_take_all_memory(void **state)
{
    (void)state;
    const size_t count = 8 << 20;
    uint8_t *data = malloc(2 * count + 16);
    assert_non_null(data);
    size_t at = 0;
    data[at++] = 0x3a;
    for (size_t rest = 2 * count; rest > 0; rest >>= 7)
        data[at++] = (uint8_t)((rest & 0x7f) | (rest >= 0x80 ? 0x80 : 0));
    for (size_t i = 0; i < count; i++) {
        data[at++] = 0x0a;
        data[at++] = 0;
    }
    ebb_model *model = NULL;
    ebb_status status = ebb_model_read_memory(&model, data, at, NULL);
    free(data);
    assert_int_equal(ebb_status_code(status), EBB_REJECTED);
    assert_non_null(strstr(ebb_status_text(status), "far more memory"));
}

/* ---- a good model, damaged ---- */

static void good_model(bytes *b)
{
    size_t graph = open_model(b);
    put_node(b, "MatMul", "product", NAMES("x", "w"), NAMES("h"));
    size_t node = open_message(b, 1);
    put_text(b, 1, "h");
    put_text(b, 2, "y");
    put_text(b, 3, "normal");
    put_text(b, 4, "Softmax");
    size_t attribute = open_message(b, 5);
    put_text(b, 1, "axis");
    put_int(b, 3, -1);
    put_int(b, 20, 2);
    close_message(b, attribute);
    put_entry(b, 9, "ebb.phase", "forward");
    close_message(b, node);
    put_text(b, 2, "g");
    put_initializer(b, "w", DIMS(2, 3), 24);
    put_external(b, "u", 4, "w.bin", "16", "16");
    put_value(b, 11, "x", DIMS(5, 2));
    put_value(b, 12, "y", DIMS(5, 3));
    put_value(b, 13, "h", DIMS(5, 3));
    close_model(b, graph);
}

static void the_good_model_is_accepted(void **state)
{
    (void)state;
    bytes b = {.count = 0};
    good_model(&b);
    ebb_status status = read_bytes(&b);
    if (status != NULL)
        fail_msg("%s", ebb_status_text(status));
}

static void a_model_cut_anywhere_is_refused(void **state)
{
    (void)state;
    bytes b = {.count = 0};
    good_model(&b);
    size_t whole = b.count, accepted = 0;
    for (b.count = 0; b.count < whole; b.count++) {
        ebb_status status = read_bytes(&b);
        accepted += status == NULL;
        assert_true(status == NULL || ebb_status_code(status) == EBB_REJECTED);
    }
    assert_int_equal(accepted, 1); // just before the imports: a model, if an odd one
}

static void a_model_with_any_bit_flipped_is_read_or_refused(void **state)
{
    (void)state;
    bytes b = {.count = 0};
    good_model(&b);
    for (size_t i = 0; i < b.count * 8; i++) {
        b.data[i / 8] ^= (uint8_t)(1u << (i % 8));
        ebb_status status = read_bytes(&b);
        assert_true(status == NULL || ebb_status_code(status) == EBB_REJECTED ||
                    ebb_status_code(status) == EBB_IO);
        b.data[i / 8] ^= (uint8_t)(1u << (i % 8));
    }
}

static void a_model_with_any_byte_replaced_is_read_or_refused(void **state)
{
    (void)state;
    static const uint8_t odd[] = {0x00, 0x7f, 0x80, 0xff};
    bytes b = {.count = 0};
    good_model(&b);
    for (size_t i = 0; i < b.count; i++) {
        uint8_t was = b.data[i];
        for (size_t k = 0; k < sizeof odd; k++) {
            b.data[i] = odd[k];
            (void)read_bytes(&b);
        }
        b.data[i] = was;
    }
}

static void reading_survives_each_failed_allocation(void **state)
{
    (void)state;
    bytes b = {.count = 0};
    good_model(&b);
    ebb_model *model = NULL;
    long before = ebb_alloc_count();
    assert_null(ebb_model_read_memory(&model, b.data, b.count, folder));
    long needed = ebb_alloc_count() - before;
    void *out;
    size_t size;
    before = ebb_alloc_count();
    assert_null(ebb_model_write_memory(model, &out, &size));
    long needed_to_write = ebb_alloc_count() - before;
    ebb_free(out);
    for (long n = 1; n <= needed_to_write; n++) {
        ebb_alloc_fail_after(n);
        assert_non_null(ebb_model_write_memory(model, &out, &size));
        ebb_alloc_fail_after(0);
    }
    ebb_model_free(model);
    for (long n = 1; n <= needed; n++) {
        ebb_alloc_fail_after(n);
        assert_non_null(ebb_model_read_memory(&model, b.data, b.count, folder));
        ebb_alloc_fail_after(0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_impossible_graph_is_refused_by_name),
        cmocka_unit_test(each_impossible_byte_is_refused_by_place),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(many_empty_messages_do_not_take_all_memory),
        cmocka_unit_test(the_good_model_is_accepted),
        cmocka_unit_test(a_model_cut_anywhere_is_refused),
        cmocka_unit_test(a_model_with_any_bit_flipped_is_read_or_refused),
        cmocka_unit_test(a_model_with_any_byte_replaced_is_read_or_refused),
        cmocka_unit_test(reading_survives_each_failed_allocation),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
