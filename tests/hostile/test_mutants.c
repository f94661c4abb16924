/* test_mutants.c: broken models. Each of 2,000 mutants (1,000 under a sanitizer) is checked and
 * planned by a process of its own, one in fifty of them by the command (watch.h). Mutants come from a
 * fixed seed, so a failure repeats; the file that failed is kept and named. Those of test_fields.c
 * are protobuf to the last byte; these need not be.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ebb.h"
#include "onnx/words/mix.h"
#include "tests/hostile/watch.h"
#include "tests/owned.h"
#include "tests/test.h"

enum { MUTANTS = SANITIZED ? 500 : 2000, COMMANDS = 50 };

static const char *const originals[] = {
    EBB_SOURCE_DIR "/samples/digits/cnn.onnx",
    EBB_SOURCE_DIR "/../shared/models/lstm_char/dynamo.onnx",
    EBB_SOURCE_DIR "/../shared/models/gelu_block_dropout/ts.onnx",
    EBB_SOURCE_DIR "/../shared/models/resnet18/dynamo.onnx",
    EBB_SOURCE_DIR "/../shared/bench/graphs/small/small_05.onnx",
};
enum { ORIGINALS = sizeof originals / sizeof originals[0] };

static uint64_t state_of_draws = 20261121;

static uint64_t draw(uint64_t below)
{
    return ebb_draw(&state_of_draws) % below;
}

typedef struct bytes {
    unsigned char *data;
    size_t size;
} bytes;

static bytes read_whole(const char *path)
{
    bytes b = {NULL, 0};
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return b;
    fseek(file, 0, SEEK_END);
    b.size = (size_t)ftell(file);
    rewind(file);
    b.data = malloc(b.size + 1);
    assert_non_null(b.data);
    assert_int_equal(fread(b.data, 1, b.size, file), b.size);
    fclose(file);
    return b;
}

/* Structure is dense at both ends and between weights: half of the strikes go to the first 4 KiB.
 */
static size_t somewhere(const bytes *b)
{
    size_t near = b->size < 4096 ? b->size : 4096;
    switch (draw(4)) {
    case 0:
        return draw(b->size);
    case 1:
        return b->size - 1 - draw(near);
    default:
        return draw(near);
    }
}

static void mutate(bytes *b)
{
    static const unsigned char extremes[] = {0x00, 0xFF, 0x7F, 0x80, 0x01};
    for (uint64_t strikes = 1 + draw(4); strikes > 0 && b->size > 8; strikes--) {
        size_t at = somewhere(b), length = 1 + draw(16);
        if (length > b->size - at)
            length = b->size - at;
        switch (draw(6)) {
        case 0: // a bit
            b->data[at] ^= (unsigned char)(1u << draw(8));
            break;
        case 1: // an extreme byte
            b->data[at] = extremes[draw(sizeof extremes)];
            break;
        case 2: // a huge varint
            memset(b->data + at, 0xFF, length);
            break;
        case 3: // cut off
            b->size = draw(8) == 0 ? at + 1 : b->size;
            break;
        case 4: // a piece gone
            memmove(b->data + at, b->data + at + length, b->size - at - length);
            b->size -= length;
            break;
        default: // a piece twice
            memmove(b->data + at + length, b->data + at, b->size - at);
            b->size += length;
            break;
        }
    }
}

/* ---- what is done with one ---- */

/* As `ebb check` and then `ebb plan --dim batch=2` do; the exit code. */
static int judge(const char *path)
{
    OWNED_MODEL *model = NULL;
    const ebb_plan_options options = {.backend = "cpu"};
    RELEASED char *checked = NULL, *planned = NULL;
    ebb_status status = ebb_open(&model, path);
    if (status == NULL)
        status = ebb_check_json(model, &checked);
    if (status == NULL)
        (void)ebb_set_dim(model, "batch", 2); // it may have none
    if (status == NULL)
        status = ebb_plan_json(model, &options, &planned);
    return (int)ebb_status_code(status);
}

TEST(no_mutant_crashes_hangs_or_swallows_memory)
{
    char path[] = "/tmp/ebb-mutant-XXXXXX";
    int file = mkstemp(path);
    char what[512];
    watch_tally t = {0};
    bytes models[ORIGINALS];
    assert_true(file >= 0);
    close(file);
    (void)setenv("OMP_NUM_THREADS", "1", 1);
    for (size_t i = 0; i < ORIGINALS; i++)
        models[i] = read_whole(originals[i]);
    for (int i = 0; i < MUTANTS && t.failures < 5; i++) {
        size_t which = draw(ORIGINALS);
        const bytes *from = &models[models[which].data != NULL ? which : 0];
        bytes b = {malloc(from->size * 2 + 16), from->size};
        assert_non_null(b.data);
        memcpy(b.data, from->data, from->size);
        mutate(&b);
        FILE *out = fopen(path, "wb");
        assert_non_null(out);
        assert_int_equal(fwrite(b.data, 1, b.size, out), b.size);
        fclose(out);
        free(b.data);
        (void)snprintf(what, sizeof what, "mutant %d of %s", i, originals[which]);
        char *const words[] = {(char[]){"ebb"},   (char[]){"plan"},    path,
                               (char[]){"--dim"}, (char[]){"batch=2"}, NULL};
        watch_one(&t, judge, path, i % COMMANDS == 0 ? words : NULL, what);
    }
    (void)unlink(path);
    for (size_t i = 0; i < ORIGINALS; i++)
        free(models[i].data);
    print_message("%d mutants: %u accepted, %u usage, %u unsupported, %u rejected\n", MUTANTS,
                  t.codes[0], t.codes[2], t.codes[5], t.codes[6]);
    assert_int_equal(t.failures, 0);
    assert_true(t.codes[6] > MUTANTS / 10); // else the mutants do not reach the reader
}
