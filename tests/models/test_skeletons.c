/* test_skeletons.c: full-size models without their weights: a step is made and planned; the
 * categories add up to the peak, and the packed arena lies within 3 % of the most bytes ever alive.
 */

#include "onnx/graph/graph.h"
#include "tests/formatted.h"
#include "tests/models/models.h"
#include "tests/owned.h"
#include "tests/status.h"

static double real(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static void check_plan(recorded *r, const char *text)
{
    json_t *o = json_loads(text, 0, NULL), *bytes;
    const char *name;
    double sum = 0;
    json_object_foreach(json_object_get(o, "categories"), name, bytes)
        sum += json_number_value(bytes);
    double peak = real(o, "peak_bytes"), bound = real(o, "lower_bound_bytes");
    double ratio = real(o, "arena_bytes") / bound;
    bool right = sum == peak && peak == bound && ratio < 1.03;
    print_message("%-13s %-12s peak %8.1f MiB  arena %8.1f MiB  %.4f  %s\n", r->model, r->file,
                  peak / 1048576, real(o, "arena_bytes") / 1048576, ratio, right ? "ok" : "FAILED");
    r->failures += !right;
    json_decref(o);
}

static void plan(recorded *r)
{
    char path[1024];
    RELEASED char *text = NULL;
    OWNED_MODEL *model = NULL;
    (void)snprintf(path, sizeof path, "%s%s/%s", SHARED, r->model, r->file);
    bool cnn = strstr(r->model, "bert") == NULL && strstr(r->model, "gpt") == NULL;
    MUST(ebb_open(&model, path));
    MUST(ebb_set_dim(model, "batch", cnn ? 8 : 1));
    MUST(recorded_rewrite(r, model, "on", cnn ? "momentum" : "adamw", ""));
    MUST(ebb_plan_json(model, NULL, &text));
    check_plan(r, text);
done:
    return;
}

TEST(every_skeleton_can_be_planned)
{
    int failures = 0;
    for (size_t m = 0; m < sizeof full_models / sizeof full_models[0]; m++)
        for (size_t e = 0; e < 2; e++) {
            recorded r;
            recorded_need(&r, full_models[m], exporters[e]);
            plan(&r);
            failures += r.failures;
            recorded_close(&r);
        }
    assert_int_equal(failures, 0);
}

/* ---- adapters beside layers in few bits ---- */

/* Qwen2.5-0.5B in 4 bits, adapters of rank 8 beside all its layers, AdamW, 256 tokens: docs/adapters.md. */
TEST(adapters_of_half_a_billion_weights_are_trained_in_136_mebibytes)
{
    static const char path[] = SHARED "../models_q4/skeletons/qwen25_05b_q4/model.onnx";
    static const char *const passes[] = {"lora:rank=8,target=all-linear",
                                         "attention",
                                         "chunk-loss:rows=32",
                                         "release",
                                         "recompute:planner=lower-set,budget=136MiB",
                                         NULL};
    const ebb_step_options options = {.loss =
                                          "cross-entropy:output=logits,axis=-1,ignore_index=-100",
                                      .optimizer = "adamw",
                                      .passes = passes};
    OWNED_MODEL *model = NULL;
    char *text;
    FILE *there = fopen(path, "r");
    if (there == NULL) {
        print_message("SKIP: no recorded models beside the repository\n");
        skip();
    }
    fclose(there);
    good(ebb_open(&model, path));
    good(ebb_set_dim(model, "batch_size", 1));
    good(ebb_set_dim(model, "sequence_length", 256));
    good(ebb_step_pipeline(&text, &options));
    good(ebb_rewrite(model, text, NULL, NULL));
    ebb_release(text);
    good(ebb_plan_json(model, NULL, &text));
    json_t *plan = json_loads(text, 0, NULL);
    assert_true(real(plan, "arena_bytes") <= 136 * 1048576.0);
    json_decref(plan);
    ebb_release(text);
}

/* ---- attention in one node ---- */

/* A float matrix of at least 197 queries by as many keys, for each head or for all. */
static bool is_scores(const ebb_value_info *info)
{
    const ebb_type *t = info->type;
    return !info->dead && info->producer.i != 0 && ebb_dtype_is_float((ebb_dtype)t->dtype) &&
           t->rank == 4 && t->dims[2] == t->dims[3] && t->dims[2] >= 197;
}

static void no_scores_survive(recorded *r, const char *file)
{
    OWNED_MODEL *model = NULL;
    if (ebb_open(&model, formatted("%s%s/%s", SHARED, r->model, file)) !=
        NULL) // not every model has every form
        return;
    MUST(ebb_set_dim(model, "batch", 2));
    MUST(recorded_rewrite(r, model, "on", "adamw", "attention"));
    EBB_EACH_VALUE(model->graph, v)
        if (is_scores(ebb_value_of(model->graph, v))) {
            print_error("%s/%s: '%s' holds a number for each query and key\n", r->model, file,
                        ebb_value_name(model->graph, v));
            r->failures++;
        }
    print_message("%-13s %s\n", r->model, file);
done:
    return;
}

TEST(attention_in_one_node_leaves_no_scores_behind)
{
    static const char *const models[] = {"bert_base", "bert_large", "gpt2", "vit_b16"};
    static const char *const files[] = {"ts.onnx", "dynamo.onnx", "ts_sdpa.onnx",
                                        "dynamo_sdpa.onnx"};
    int failures = 0;
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        recorded r;
        recorded_need(&r, models[m], exporters[0]);
        for (size_t f = 0; f < sizeof files / sizeof files[0]; f++)
            no_scores_survive(&r, files[f]);
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
