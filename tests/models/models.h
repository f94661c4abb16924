/* models.h: what the tests over whole models share: where they lie, and how a step is made of them.
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "ebb.h"
#include "tests/formatted.h"
#include "tests/share.h"
#include "tests/test.h"

#define SHARED EBB_SOURCE_DIR "/../shared/models/"

static const char *const small_models[] = {"mlp_digits",     "cnn_digits",        "resnet20_cifar",
                                           "mobilenet_tiny", "bert_tiny",         "gpt2_tiny",
                                           "lstm_char",      "gelu_block_dropout"};
static const char *const full_models[] = {"resnet18", "resnet50",  "mobilenet_v2", "vgg16_bn",
                                          "vit_b16",  "bert_base", "bert_large",   "gpt2"};
static const char *const exporters[] = {"ts.onnx", "dynamo.onnx"};

/* Is this exporter's file of the model to be asked? Where both would take long, one a model is. */
static inline bool has_turn(size_t model, size_t exporter)
{
    return exporter % share(2) == model % share(2);
}

/* $EBB_TEST_MODELS: the models that are asked, where all would take long. */
static inline bool is_asked(const char *model)
{
    const char *asked = getenv("EBB_TEST_MODELS");
    return asked == NULL || strstr(asked, model) != NULL;
}

enum { MOST_INPUTS = 16 };

typedef struct recorded {
    const char *model, *file;
    json_t *manifest, *facts; /* of this file */
    ebb_data *reference;      /* small models: what PyTorch computed */
    int failures;
} recorded;

/* Does $EBB_TEST_BACKEND name a device that is not here? */
static inline bool device_is_missing(void)
{
    const char *backend = getenv("EBB_TEST_BACKEND");
    char *json = NULL;
    if (backend == NULL || strncmp(backend, "cuda", 4) != 0 || ebb_devices_json(&json) != NULL)
        return false;
    json_t *o = json_loads(json, 0, NULL), *row;
    size_t i;
    bool missing = false;
    ebb_release(json);
    json_array_foreach(json_object_get(o, "devices"), i, row) {
        if (strcmp(json_string_value(json_object_get(row, "backend")), "cuda") != 0 ||
            json_is_true(json_object_get(row, "available")))
            continue;
        printf("SKIP: no GPU: %s\n", json_string_value(json_object_get(row, "reason")));
        missing = true;
    }
    json_decref(o);
    return missing;
}

/* For main(): whether there is nothing to test on. ctest shows exit code 77 as skipped. */
enum { SKIPPED = 77 };
static inline bool models_are_missing(void)
{
    FILE *file = fopen(SHARED "mlp_digits/manifest.json", "r");
    if (file == NULL) {
        printf("SKIP: no recorded models beside the repository\n");
        return true;
    }
    fclose(file);
    return device_is_missing();
}

/* False where the model is not there: the caller skips, saying so. */
static inline bool recorded_open(recorded *r, const char *model, const char *file)
{
    char path[1024];
    *r = (recorded){.model = model, .file = file};
    (void)snprintf(path, sizeof path, "%s%s/manifest.json", SHARED, model);
    r->manifest = json_load_file(path, 0, NULL);
    if (r->manifest == NULL)
        return false;
    r->facts = json_object_get(json_object_get(r->manifest, "files"), file);
    (void)snprintf(path, sizeof path, "%s%s/reference.safetensors", SHARED, model);
    (void)ebb_data_open(&r->reference, path, NULL); /* full-size models have none */
    return true;
}

/* The same, and the test is skipped where it is not there. */
static inline void recorded_need(recorded *r, const char *model, const char *file)
{
    if (recorded_open(r, model, file))
        return;
    print_message("SKIP: no recorded models beside the repository\n");
    skip();
}

static inline void recorded_close(recorded *r)
{
    ebb_data_close(r->reference);
    json_decref(r->manifest);
}

/* The initializer of this file that holds a parameter of the state_dict. */
static inline const char *name_in_file(const recorded *r, const char *parameter)
{
    const char *name;
    json_t *original;
    json_object_foreach(json_object_get(r->facts, "parameters_renamed"), name, original)
        if (strcmp(json_string_value(original), parameter) == 0)
            return name;
    return parameter;
}

/* Is the gradient of this parameter of the state_dict zero in mathematics, and noise in floats? */
static inline bool is_near_zero(const recorded *r, const char *parameter)
{
    size_t i;
    json_t *p,
        *list = json_object_get(json_object_get(r->manifest, "near_zero_grads"), "parameters");
    json_array_foreach(list, i, p)
        if (strcmp(json_string_value(p), parameter) == 0)
            return true;
    return false;
}

/* The step that the reference was recorded from; `memory` are passes to run before drop-saves, but
 * for a first one that is precision: it stands before the gradient. json as ebb_rewrite gives it.
 */
static inline ebb_status recorded_report(const recorded *r, ebb_model *model, const char *dropout,
                                         const char *optimizer, const char *memory, char **json)
{
    char pipeline[2048];
    const json_t *loss = json_object_get(r->manifest, "loss");
    int before = strncmp(memory, "precision", 9) == 0 ? (int)strcspn(memory, ",") : 0;
    const char *after = memory + before + (memory[before] == ',');
    (void)snprintf(pipeline, sizeof pipeline,
                   "inline,fold,train-mode:dropout=%s,fold,fuse,loss:cross-entropy,axis=%d,"
                   "ignore_index=-100%s%.*s,gradient,optimizer:%s%s%s,drop-saves,"
                   "stream:tile=8KiB,alias",
                   dropout, (int)json_integer_value(json_object_get(loss, "class_axis")),
                   before > 0 ? "," : "", before, memory, optimizer, after[0] != '\0' ? "," : "",
                   after);
    const ebb_rewrite_options options = {.verify_each = true};
    return ebb_rewrite(model, pipeline, &options, json);
}

static inline ebb_status recorded_rewrite(const recorded *r, ebb_model *model, const char *dropout,
                                          const char *optimizer, const char *memory)
{
    return recorded_report(r, model, dropout, optimizer, memory, NULL);
}

/* Opens a small model and binds the shapes of the recorded inputs, which it gives with the target. */
static inline ebb_status recorded_model(const recorded *r, ebb_model **model, ebb_named *inputs,
                                        size_t *count)
{
    *count = 0;
    ebb_status status = ebb_open(model, formatted("%s%s/%s", SHARED, r->model, r->file));
    for (size_t i = 0; status == NULL && i < ebb_data_count(r->reference); i++) {
        const ebb_named *t = ebb_data_at(r->reference, i);
        bool input = strncmp(t->name, "input/", 6) == 0;
        if ((!input && strcmp(t->name, "target") != 0) || *count == MOST_INPUTS)
            continue;
        inputs[*count] = *t;
        if (input) {
            inputs[*count].name = t->name + 6;
            status = ebb_set_shape(*model, t->name + 6, t->dims, t->rank);
        }
        ++*count;
    }
    return status;
}

/* The same, made a step and compiled for the back end that the environment names in
 * EBB_TEST_BACKEND. json: the report, or NULL. */
static inline ebb_status recorded_program_report(const recorded *r, const char *dropout,
                                                 const char *optimizer, const char *memory,
                                                 ebb_model **model, ebb_program **program,
                                                 ebb_named *inputs, size_t *count, char **json)
{
    ebb_status status = recorded_model(r, model, inputs, count);
    if (status == NULL)
        status = recorded_report(r, *model, dropout, optimizer, memory, json);
    const ebb_compile_options options = {.backend = getenv("EBB_TEST_BACKEND")};
    if (status == NULL)
        status = ebb_program_compile(program, *model, &options);
    return status;
}

static inline ebb_status recorded_program(const recorded *r, const char *dropout,
                                          const char *optimizer, const char *memory,
                                          ebb_model **model, ebb_program **program,
                                          ebb_named *inputs, size_t *count)
{
    return recorded_program_report(r, dropout, optimizer, memory, model, program, inputs, count,
                                   NULL);
}

static inline size_t elements(const ebb_named *t)
{
    size_t n = 1;
    for (int i = 0; i < t->rank; i++)
        n *= (size_t)t->dims[i];
    return n;
}

#define MUST(call)                                                                 \
    do {                                                                           \
        ebb_status must_ = (call);                                                 \
        if (must_ != NULL) {                                                       \
            print_error("%s/%s: %s\n", r->model, r->file, ebb_status_text(must_)); \
            r->failures++;                                                         \
            goto done;                                                             \
        }                                                                          \
    } while (0)
