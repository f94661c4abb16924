/* test_tempo.c: what the Tempo paper's changes keep less of on BERT-large, byte by byte.
 *
 * B sequences of S tokens, hidden size H, A heads; each of the L layers keeps less, in float32:
 *
 *   what a dropout makes of the probabilities   4 A B S^2
 *   the masks of its three dropouts in bits     (A B S^2 + 2 B S H) (1 - 1/8)
 *
 * and the dropouts of the embeddings and of the pooled output once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/models/models.h"

enum { L = 24, S = 512, H = 1024, A = 16 };

/* What the pass of this name saved, by the report. */
static int64_t saved_by(json_t *report, const char *pass)
{
    size_t i;
    json_t *p;
    json_array_foreach(json_object_get(report, "passes"), i, p)
    {
        if (strcmp(json_string_value(json_object_get(p, "name")), pass) == 0)
            return json_integer_value(json_object_get(p, "saved_bytes"));
    }
    return 0;
}

/* A value takes whole units of the arena. */
static int64_t stored(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

typedef struct part {
    const char *pass;
    int64_t (*bytes)(int64_t batch);
} part;

static int64_t dropped_probabilities(int64_t b)
{
    return L * 4 * A * b * S * S + stored(4 * b * H);
}

static int64_t masks(int64_t b)
{
    int64_t scores = A * b * S * S, hidden = b * S * H, pooled = b * H;
    return L * (scores - scores / 8) + (2 * L + 1) * (hidden - hidden / 8) + stored(pooled) -
           stored(pooled / 8);
}

static const part parts[] = {
    {"dropout-mask", masks},
    {"dropout-recompute", dropped_probabilities},
};

static void plan(recorded *r, int64_t batch)
{
    char path[1024];
    char *text = NULL;
    json_t *report = NULL;
    ebb_model *model = NULL;
    (void)snprintf(path, sizeof path, "%s%s/%s", SHARED, r->model, r->file);
    MUST(ebb_open(&model, path));
    MUST(ebb_set_dim(model, "batch", batch));
    MUST(ebb_rewrite(model,
                     "inline,fold,train-mode,fold,fuse,loss:cross-entropy,gradient,optimizer,"
                     "dropout-mask,dropout-recompute,drop-saves,alias",
                     NULL, &text));
    report = json_loads(text, 0, NULL);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        int64_t have = saved_by(report, parts[i].pass), want = parts[i].bytes(batch);
        print_message("%s/%s, batch %d: %-18s %9.2f MiB\n", r->model, r->file, (int)batch,
                      parts[i].pass, (double)have / 1048576);
        if (have != want) {
            print_error("%s/%s: %s saves %lld bytes, by arithmetic %lld\n", r->model, r->file,
                        parts[i].pass, (long long)have, (long long)want);
            r->failures++;
        }
    }
done:
    json_decref(report);
    ebb_release(text);
    ebb_close(model);
}

static void bert_large_keeps_less_by_the_bytes_of_the_arithmetic(void **state)
{
    (void)state;
    int failures = 0;
    for (size_t e = 0; e < 2; e++) {
        recorded r;
        if (!recorded_open(&r, "bert_large", exporters[e])) {
            print_message("SKIP: no recorded models beside the repository\n");
            skip();
        }
        plan(&r, 1);
        plan(&r, 4);
        failures += r.failures;
        recorded_close(&r);
    }
    assert_int_equal(failures, 0);
}

int main(void)
{
    if (models_are_missing())
        return SKIPPED;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bert_large_keeps_less_by_the_bytes_of_the_arithmetic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
