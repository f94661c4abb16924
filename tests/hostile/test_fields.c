/* test_fields.c: mutants that are protobuf to the last byte but no model: of sample models, of the
 * small models of tests/passes, and of forms of control flow, 3,000 mutants with fields dropped,
 * doubled, of another type, with extreme numbers, exchanged names and messages, lengths that lie
 * (wire.h). Each goes through check, grad, plan, run and reduce (verbs.h) in a process of its own.
 *     test_hostile_fields 17 out.onnx      writes one, and says what each verb says
 *     test_hostile_fields FILE             only says
 * A part of them; EBB_TEST_ALL=1 asks for all.
 */

#include <glob.h>

#include "onnx/file/file.h"
#include "tests/hostile/verbs.h"
#include "tests/hostile/wire.h"
#include "tests/hostile/forms.h"
#include "tests/owned.h"
#include "tests/test.h"

enum { MUTANTS = 3000, COMMANDS = 50 };

static const char *const samples[] = {
    EBB_SOURCE_DIR "/samples/digits/mlp.onnx",
    EBB_SOURCE_DIR "/samples/digits/cnn.onnx",
    EBB_SOURCE_DIR "/samples/digits/transformer.onnx",
    EBB_SOURCE_DIR "/samples/text/char.onnx",
    EBB_SOURCE_DIR "/../shared/models/mlp_digits/ts.onnx",
    EBB_SOURCE_DIR "/../shared/models/lstm_char/dynamo.onnx",
    EBB_SOURCE_DIR "/../shared/models/gelu_block_dropout/ts.onnx",
    EBB_SOURCE_DIR "/../shared/bench/graphs/small/small_05.onnx",
};
enum { SAMPLES = sizeof samples / sizeof samples[0], OWN = 4 };

typedef struct original {
    const uint8_t *data;
    size_t size;
} original;

/* NULL data: it is not there. In memory of the arena. */
static original read_file(const char *path, ebb_arena *arena)
{
    original o = {NULL, 0};
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return o;
    (void)fseek(file, 0, SEEK_END);
    o.size = (size_t)ftell(file);
    rewind(file);
    uint8_t *data = ebb_arena_zeroed(arena, o.size + 1, 1);
    if (data != NULL && fread(data, 1, o.size, file) == o.size)
        o.data = data;
    (void)fclose(file);
    return o;
}

/* The model that a golden file of the passes begins with. */
static original read_golden(const char *path, ebb_arena *arena)
{
    original o = read_file(path, arena);
    char *text = (char *)(uintptr_t)o.data, *end;
    OWNED_MODEL *model = NULL;
    RELEASED void *written = NULL;
    size_t size = 0;
    o.data = NULL;
    if (text == NULL || (text = strstr(text, "---\n")) == NULL ||
        (end = strstr(text + 4, "---\n")) == NULL)
        return o;
    *end = '\0';
    ebb_status status = ebb_text_parse_model(&model, text + 4);
    if (status == NULL)
        status = ebb_model_write_memory(model, &written, &size);
    uint8_t *data = status == NULL ? ebb_arena_alloc(arena, size) : NULL;
    if (data != NULL)
        memcpy(data, written, size);
    o = (original){data, size};
    return o;
}

static original any_form(draws *d, ebb_arena *arena)
{
    form f;
    bytes *b = EBB_NEW(arena, bytes, 1);
    (void)form_of(&f, (unsigned)draw(d, 1000));
    if (b == NULL)
        return (original){NULL, 0};
    put_form(b, &f);
    return (original){b->data, b->count};
}

/* Mutant `number` into the file; false: its original is not there. what: its name. */
static bool write_mutant(const char *path, unsigned number, const glob_t *goldens, char *what,
                         size_t size)
{
    draws d = {.state = 20261122 + (uint64_t)number * UINT64_C(0xD1B54A32D192ED03)};
    OWNED_ARENA arena = {0};
    original from;
    size_t which;
    switch (draw(&d, 5)) {
    case 0:
    case 1:
        which = draw(&d, SAMPLES);
        from = read_file(samples[which], &arena);
        if (from.data == NULL) // those beside the tree
            from = read_file(samples[which %= OWN], &arena);
        (void)snprintf(what, size, "mutant %u of %s", number, samples[which]);
        break;
    case 2:
        from = any_form(&d, &arena);
        (void)snprintf(what, size, "mutant %u of a form", number);
        break;
    default:
        which = draw(&d, goldens->gl_pathc);
        from = read_golden(goldens->gl_pathv[which], &arena);
        (void)snprintf(what, size, "mutant %u of %s", number, goldens->gl_pathv[which]);
    }
    wire_message *root =
        from.data != NULL ? wire_read(&onnx__model_proto__descriptor, from.data, from.size, &arena)
                          : NULL;
    bool written = false;
    if (root != NULL) {
        for (uint64_t strikes = 1 + draw(&d, 2); strikes > 0; strikes--)
            wire_strike(&d, root, &arena);
        size_t bytes_count = wire_size(root);
        uint8_t *data = ebb_arena_alloc(&arena, bytes_count + 1);
        FILE *file = data != NULL ? fopen(path, "wb") : NULL;
        if (file != NULL) {
            (void)wire_write(data, root);
            written = fwrite(data, 1, bytes_count, file) == bytes_count;
            written = fclose(file) == 0 && written;
        }
    }
    return written;
}

TEST(no_mutant_crashes_hangs_or_swallows_memory)
{
    const unsigned one_in = share(SANITIZED ? 10 : 3);
    char path[] = "/tmp/ebb-fields-XXXXXX", what[512];
    watch_tally t = {0};
    glob_t goldens;
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    (void)setenv("OMP_NUM_THREADS", "1", 1);
    assert_int_equal(glob(EBB_SOURCE_DIR "/tests/passes/*.txt", 0, NULL, &goldens), 0);
    for (unsigned i = 0; i < MUTANTS && t.failures < 10; i += one_in) {
        if (!share_is_here(i) || !write_mutant(path, i, &goldens, what, sizeof what))
            continue;
        watch_one(&t, verbs_on, path, NULL, what);
        if (t.done % COMMANDS == 0)
            watch_one(&t, NULL, path,
                      (char *[]){(char[]){"ebb"}, (char[]){"plan"}, path, (char[]){"--dim"},
                                 (char[]){"batch=2"}, NULL},
                      what);
    }
    globfree(&goldens);
    (void)unlink(path);
    watch_tell(&t, "mutants");
    assert_int_equal(t.failures, 0);
    assert_true(t.codes[0] >= t.done / 20 && t.codes[6] >= t.done / 20);
}

static int by_hand(int count, char **words)
{
    char what[512] = "";
    glob_t goldens;
    if (count > 2) {
        if (glob(EBB_SOURCE_DIR "/tests/passes/*.txt", 0, NULL, &goldens) != 0 ||
            !write_mutant(words[2], (unsigned)strtoul(words[1], NULL, 10), &goldens, what,
                          sizeof what))
            return 2;
        globfree(&goldens);
    }
    (void)printf("%s\n", what);
    verbs_are_shown = true;
    return verbs_on(words[count > 2 ? 2 : 1]);
}

int main(int count, char **words)
{
    return count > 1 ? by_hand(count, words) : run_listed();
}
