/* test_hostile.c: a good model damaged anywhere, and memory that fails anywhere, under the reader.
 * Files made to break it are in tests/hostile/corpus.h. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "onnx/file/file.h"
#include "tests/onnx/bytes.h"
#include "tests/owned.h"
#include "tests/status.h"
#include "tests/test.h"

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
    FREED uint8_t *copy = malloc(b->count > 0 ? b->count : 1);
    assert_non_null(copy);
    memcpy(copy, b->data, b->count);
    ebb_model *model = NULL;
    ebb_status status = ebb_model_read_memory(&model, copy, b->count, folder);
    if (status == NULL)
        ebb_model_free(model);
    return status;
}

/* Two bytes a node, a hundred times as much in memory. */
TEST(many_empty_messages_do_not_take_all_memory)
{
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
    refused(status, EBB_REJECTED, "far more memory");
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

TEST(the_good_model_is_accepted)
{
    bytes b = {.count = 0};
    good_model(&b);
    good(read_bytes(&b));
}

TEST(a_model_cut_anywhere_is_refused)
{
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

TEST(a_model_with_any_bit_flipped_is_read_or_refused)
{
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

TEST(a_model_with_any_byte_replaced_is_read_or_refused)
{
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

TEST(reading_survives_each_failed_allocation)
{
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

const fixture around_all = {make_folder, remove_folder};
