/* test_tempo.c: what the Tempo paper's changes keep less of on BERT-large, byte by byte.
 *
 * B sequences of S tokens, hidden size H, A heads; each of the L layers keeps less, in float32:
 *
 *   the input of its GELU, but for a bit each   4 B S H (4 - 1/8)
 *   the inputs of its two norms and their means 2 (4 B S H + 4 B S)
 *   what a dropout makes of the probabilities   4 A B S^2
 *   the masks of its three dropouts in bits     (A B S^2 + 2 B S H) (1 - 1/8)
 *
 * and the dropouts of the embeddings and of the pooled output once. The last norm's output is read
 * by the pooler alone, and only where a sequence begins: that norm keeps its input.
 */

#include "tests/formatted.h"
#include "tests/models/models.h"
#include "tests/owned.h"
#include "tests/status.h"

enum { L = 24, S = 512, H = 1024, A = 16 };

/* What the pass of this name saved, by the report. */
static int64_t saved_by(json_t *report, const char *pass)
{
    size_t i;
    json_t *p;
    json_array_foreach(json_object_get(report, "passes"), i, p) {
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

/* What the paper's own form saves of a layer and a sequence, with a byte for each mask and the
 * dropouts' masks as they were: 4 B S H (4 - 1) + 2 (4 B S H) + 4 A B S^2. */
static const double published = 4.0 * S * H * 3 + 2 * 4.0 * S * H + 4.0 * A * S * S;

/* softmax-from-output finds nothing to do here; of a preset one pass that does will do. */
static const ebb_rewrite_options strict = {.strict = true, .verify_each = true};

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

static int64_t inputs_of_gelu(int64_t b)
{
    int64_t inner = b * S * 4 * H;
    return L * (4 * inner - inner / 8);
}

static int64_t inputs_of_norms(int64_t b)
{
    return (2 * L - 1) * (4 * b * S * H + 4 * b * S);
}

static const part parts[] = {
    {"invert", inputs_of_gelu},
    {"norm-from-output", inputs_of_norms},
    {"dropout-mask", masks},
    {"dropout-recompute", dropped_probabilities},
};

static void plan(recorded *r, int64_t batch)
{
    RELEASED char *text = NULL;
    json_t *report = NULL;
    OWNED_MODEL *model = NULL;
    MUST(ebb_open(&model, formatted("%s%s/%s", SHARED, r->model, r->file)));
    MUST(ebb_set_dim(model, "batch", batch));
    MUST(ebb_rewrite(model,
                     "inline,fold,train-mode,fold,fuse,loss:cross-entropy,gradient,optimizer,"
                     "tempo,drop-saves,alias",
                     &strict, &text));
    report = json_loads(text, 0, NULL);
    int64_t all = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        int64_t have = saved_by(report, parts[i].pass), want = parts[i].bytes(batch);
        all += have;
        print_message("%s/%s, batch %d: %-18s %9.2f MiB\n", r->model, r->file, (int)batch,
                      parts[i].pass, (double)have / 1048576);
        if (have != want) {
            print_error("%s/%s: %s saves %lld bytes, by arithmetic %lld\n", r->model, r->file,
                        parts[i].pass, (long long)have, (long long)want);
            r->failures++;
        }
    }
    double each = (double)all / (double)(L * batch);
    print_message("%s/%s, batch %d: %.2f MB a layer and sequence\n", r->model, r->file, (int)batch,
                  each / 1e6);
    r->failures += !(each > published);
done:
    json_decref(report);
}

/* In sdpa exports the probabilities are guarded against NaN. The gradient reads the guarded ones alone,
 * and neither the others nor the question of what is NaN, a byte each; and what is dropped of them can be
 * made again. */
static void plan_guarded(recorded *r, const char *file, int64_t batch)
{
    enum { BASE_L = 12, BASE_A = 12 };
    RELEASED char *text = NULL;
    json_t *report = NULL;
    OWNED_MODEL *model = NULL;
    const int64_t scores = BASE_A * batch * S * S;
    MUST(ebb_open(&model, formatted("%s%s/%s", SHARED, r->model, file)));
    MUST(ebb_set_dim(model, "batch", batch));
    MUST(ebb_rewrite(model,
                     "inline,fold,train-mode,fold,fuse,loss:cross-entropy,gradient,optimizer,"
                     "drop-saves,softmax-from-output,dropout-recompute,drop-saves,alias",
                     NULL, &text));
    report = json_loads(text, 0, NULL);
    int64_t asked = saved_by(report, "softmax-from-output");
    int64_t dropped = saved_by(report, "dropout-recompute");
    print_message("%s/%s: %.2f MiB, %.2f MiB\n", r->model, file, (double)asked / 1048576,
                  (double)dropped / 1048576);
    if (asked != 0 || dropped != BASE_L * 4 * scores + stored(4 * batch * 768)) {
        print_error("%s/%s: %lld and %lld bytes, by arithmetic 0 and %lld\n", r->model, file,
                    (long long)asked, (long long)dropped,
                    (long long)(BASE_L * 4 * scores + stored(4 * batch * 768)));
        r->failures++;
    }
done:
    json_decref(report);
}

TEST(guarded_probabilities_are_kept_once)
{
    static const char *const files[] = {"ts_sdpa.onnx", "dynamo_sdpa.onnx"};
    int failures = 0;
    for (size_t f = 0; f < sizeof files / sizeof files[0]; f++) {
        recorded r;
        recorded_need(&r, "bert_base", files[f]);
        plan_guarded(&r, files[f], 2);
        failures += r.failures;
        recorded_close(&r);
    }
    assert_int_equal(failures, 0);
}

TEST(a_preset_that_applies_nowhere_is_an_error_under_strict)
{
    OWNED_MODEL *model = NULL;
    ebb_status status = ebb_open(&model, SHARED "lstm_char/ts.onnx");
    if (status == NULL)
        status = ebb_set_dim(model, "batch", 2);
    assert_null(status);
    status = ebb_rewrite(
        model,
        "inline,fold,train-mode,fold,fuse,loss:cross-entropy,axis=-1,gradient,optimizer,"
        "tempo,drop-saves,alias",
        &strict, NULL);
    assert_non_null(status);
    refused(status, EBB_UNSUPPORTED, "no pass of the preset");
}

TEST(bert_large_keeps_less_by_the_bytes_of_the_arithmetic)
{
    int failures = 0;
    for (size_t e = 0; e < 2; e++) {
        recorded r;
        recorded_need(&r, "bert_large", exporters[e]);
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
    return run_listed();
}
