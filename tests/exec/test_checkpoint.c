/* test_checkpoint.c: a checkpoint is loaded as it was written or not at all: no bit of it may have
 * changed, nothing may be missing, and nothing be there besides. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <unistd.h>

#include "ebb.h"
#include "exec/data/checksum.h"
#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "tests/formatted.h"
#include "tests/owned.h"
#include "tests/share.h"
#include "tests/status.h"

static const char step_text[] = "<ir_version: 10, opset_import: [\"\" : 18]>\n"
                                "g (float[2,3] x) => (float[2,4] y)\n"
                                "<float[3,4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12},\n"
                                " float[4] b = {1, 2, 3, 4}>\n"
                                "{ h = MatMul(x, w)\n  y = Add(h, b) }\n";

static char path[] = "/tmp/ebb-checkpoint-XXXXXX.safetensors";
static ebb_model *model;
static ebb_program *trained;
static unsigned char file[1 << 16];
static size_t size;

static ebb_program *compiled(void)
{
    ebb_program *p = NULL;
    good(ebb_program_compile(&p, model, NULL));
    return p;
}

static void put_file(const void *bytes, size_t count)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, count, f), count);
    assert_int_equal(fclose(f), 0);
}

/* A model with its optimizer after a step, and its checkpoint in `file`. */
static int make_checkpoint(void **state)
{
    (void)state;
    static const float ones[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    const ebb_named inputs[] = {{"x", 1, 2, (const int64_t[]){2, 3}, ones},
                                {"target", 1, 2, (const int64_t[]){2, 4}, ones}};
    const ebb_batch batch = {inputs, 2};
    const int made = mkstemps(path, (int)strlen(".safetensors"));
    assert_true(made >= 0);
    assert_int_equal(close(made), 0);
    good(ebb_text_parse_model(&model, step_text));
    good(ebb_infer_graph(model->graph));
    good(ebb_rewrite(model, "loss:mse,gradient,optimizer:adamw", NULL, NULL));
    trained = compiled();
    good(ebb_program_step(trained, &batch));
    good(ebb_checkpoint_save(trained, path, "{\"epoch\": 3}"));
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size = fread(file, 1, sizeof file, f);
    assert_true(size > 200 && size < sizeof file);
    return fclose(f);
}

static int drop_checkpoint(void **state)
{
    (void)state;
    ebb_program_free(trained);
    ebb_model_free(model);
    return unlink(path);
}

static const float *weights_of(ebb_program *p)
{
    ebb_named w;
    good(ebb_program_get(p, "w", &w));
    return w.data;
}

/* What the library says to `bytes`; it must leave the program as it was. */
static void is_refused(ebb_program *p, const void *bytes, size_t count, const char *words)
{
    float before[12];
    memcpy(before, weights_of(p), sizeof before);
    put_file(bytes, count);
    ebb_status status = ebb_checkpoint_load(p, path, NULL);
    if (status == NULL)
        fail_msg("a damaged checkpoint was loaded (expected: %s)", words);
    refused(status, EBB_REJECTED, words);
    assert_memory_equal(before, weights_of(p), sizeof before);
    assert_int_equal(ebb_program_measure(p).steps, 0);
}

TEST(no_bit_of_the_file_may_change)
{
    OWNED_PROGRAM *p = compiled();
    const size_t step =
        size * 8 / (SANITIZED ? 200 : 1000) | 1; // odd: all bits of a byte take turns
    for (size_t bit = 0; bit < size * 8; bit += step) {
        file[bit / 8] ^= (unsigned char)(1u << bit % 8);
        is_refused(p, file, size, "");
        file[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    put_file(file, size);
    good(ebb_checkpoint_load(p, path, NULL));
    assert_true(ebb_checkpoint_was_checked(p));
    assert_memory_equal(weights_of(p), weights_of(trained), 12 * sizeof(float));
    assert_int_equal(ebb_program_measure(p).steps, 1);
}

TEST(no_byte_may_be_missing_or_too_much)
{
    OWNED_PROGRAM *p = compiled();
    for (size_t count = 0; count < size; count += 37)
        is_refused(p, file, count, "");
    is_refused(p, file, size - 1, "");
    file[size] = 0;
    is_refused(p, file, size + 1, "");
    unsigned char kept = file[size - 9];
    file[size - 9] = (unsigned char)~kept;
    is_refused(p, file, size, "the file is damaged");
    file[size - 9] = kept;
}

/* The states, but for one and with another, as they are saved by hand. */
static void save_states(const char *without, const ebb_named *more, const char *metadata)
{
    ebb_data *data = NULL;
    ebb_named list[64];
    size_t count = 0;
    char beside[sizeof path + 2];
    (void)snprintf(beside, sizeof beside, "%s.2", path);
    put_file(file, size);
    good(ebb_data_open(&data, path, NULL));
    for (size_t i = 0; i < ebb_data_count(data); i++) {
        const ebb_named *t = ebb_data_at(data, i);
        if (without == NULL || strcmp(t->name, without) != 0)
            list[count++] = *t;
    }
    if (more != NULL)
        list[count++] = *more;
    good(ebb_tensors_save(beside, list, count,
                          metadata != NULL ? metadata : ebb_data_metadata(data)));
    ebb_data_close(data);
    assert_int_equal(rename(beside, path), 0);
}

static void says(const char *words)
{
    OWNED_PROGRAM *p = compiled();
    char *extra = NULL;
    ebb_status status = ebb_checkpoint_load(p, path, &extra);
    assert_null(extra);
    if (status == NULL || strstr(ebb_status_text(status), words) == NULL)
        fail_msg("expected \"%s\", got \"%s\"", words,
                 status == NULL ? "success" : ebb_status_text(status));
    assert_int_equal(ebb_status_code(status), EBB_REJECTED);
}

TEST(a_state_that_is_missing_or_too_much_is_named)
{
    const float number = 1;
    const ebb_named more = {"stray", 1, 0, NULL, &number};
    save_states("b", NULL, NULL);
    says("'b' is not in the file");
    save_states(NULL, &more, NULL);
    says("'stray' is not in the program");
    save_states("b", &more, NULL);
    says("'b' is not in the file");
    says("'stray' is not in the program");
}

TEST(what_the_metadata_lack_or_have_besides_is_named)
{
    save_states(NULL, NULL, "{\"format\":\"ebb.checkpoint/1\",\"extra\":\"{}\"}");
    says("lack 'steps'");
    save_states(NULL, NULL, "{\"format\":\"ebb.checkpoint/1\",\"steps\":\"1\"}");
    says("lack 'extra'");
    save_states(NULL, NULL, "{\"steps\":\"1\",\"extra\":\"{}\"}");
    says("no checkpoint of format");
    save_states(NULL, NULL, "{\"format\":\"ebb.checkpoint/2\",\"steps\":\"1\",\"extra\":\"{}\"}");
    says("lack 'ebb.checksum'");
    save_states(NULL, NULL,
                "{\"format\":\"ebb.checkpoint/1\",\"steps\":\"1\",\"extra\":\"{}\",\"a\":\"b\"}");
    says("have 'a' besides");
    static const char *const counts[] = {"", "-1", "1x", "99999999999999999999"};
    for (int i = 0; i < 4; i++) {
        save_states(NULL, NULL,
                    formatted("{\"format\":\"ebb.checkpoint/1\",\"steps\":\"%s\",\"extra\":\"{}\"}",
                              counts[i]));
        says("for the steps done");
    }
}

TEST(a_checkpoint_of_before_checksums_is_loaded_and_said_to_be)
{
    OWNED_PROGRAM *p = compiled();
    char *extra = NULL;
    save_states(NULL, NULL, "{\"format\":\"ebb.checkpoint/1\",\"steps\":\"7\",\"extra\":\"{}\"}");
    good(ebb_checkpoint_load(p, path, &extra));
    assert_string_equal(extra, "{}");
    ebb_release(extra);
    assert_false(ebb_checkpoint_was_checked(p));
    assert_int_equal(ebb_program_measure(p).steps, 7);
    assert_memory_equal(weights_of(p), weights_of(trained), 12 * sizeof(float));
}

/* Saved once more, arrays and metadata as they were read: with a checksum of its own. */
TEST(what_is_saved_anew_has_its_own_checksum)
{
    OWNED_PROGRAM *p = compiled();
    save_states(NULL, NULL, NULL);
    good(ebb_checkpoint_load(p, path, NULL));
    assert_true(ebb_checkpoint_was_checked(p));
}

TEST(the_checksum_is_crc_64_xz)
{
    const char digits[] = "123456789";
    ebb_checksum c;
    for (size_t cut = 0; cut <= 9; cut++) {
        ebb_checksum_begin(&c);
        ebb_checksum_add(&c, digits, cut);
        ebb_checksum_add(&c, digits + cut, 9 - cut);
        assert_true(ebb_checksum_end(&c) == 0x995DC9BBDF1939FA);
    }
}

const fixture around_all = {make_checkpoint, drop_checkpoint};
