/* test_adapters.c: adapters beside the layers of exported language models, against what PyTorch
 * computed for them in float64: loss and gradients of adapters and of weights, with no past given, and
 * two steps of AdamW against its formula.
 *
 * The models and their numbers are not part of the repository: without ../shared/models_q4 this test
 * skips. Bounds: 8 times PyTorch's own float32 noise, relative to the largest magnitude in the tensor
 * or to a thousandth of the largest gradient, where that is larger. What a file computes in float16 is held to
 * what PyTorch 2.15 is off by in float16 on its weights, adapters in float32: the worst of its gradients (of
 * layer 0's k_proj.bias; the others 9e-3); its loss to what ONNX Runtime's logits are off by, as recorded.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "ebb.h"
#include "onnx/graph/graph.h"
#include "tests/owned.h"
#include "tests/status.h"

#define FOLDER EBB_SOURCE_DIR "/../shared/models_q4/"

enum { MOST_INPUTS = 64, SKIPPED = 77 };

/* Where q, k and v are one product of the file, adapters stand beside each of them, as the framework has
 * it, and in a second round ("onnx") one stands beside the whole. Where activations are quantised,
 * adapters read what the product reads ("inner"), or stand outside (""). */
static const struct kind {
    const char *model, *way;
} models[] = {
    {"qwen2_float", ""},          {"qwen2_q4", ""},
    {"qwen2_q4_asym16", ""},      {"qwen2_q8", ""},
    {"qwen2_q4_gather", ""},      {"llama_bnb4", ""},
    {"llama_qdq_int4", ""},       {"llama_genai_int4", ""},
    {"llama_genai_int4", "onnx"}, {"llama_genai_int4_tied", ""},
    {"qwen2_genai_int4", ""},     {"llama_genai_int4_tied", "onnx"},
    {"qwen2_genai_int4", "onnx"}, {"llama_dynamic_int8", "inner"},
    {"bert_qdq_int8", "inner"},   {"qwen2_q4f16", ""},
    {"llama_dynamic_int8", ""},   {"bert_qdq_int8", ""},
};
static const double gradient_off_in_half = 3.3e-2;

typedef struct recorded {
    char folder[1024];
    char loss[32], grad[32]; /* names of what is recorded */
    const char *adapters;
    json_t *manifest;
    ebb_data *reference;
    ebb_named inputs[MOST_INPUTS];
    size_t input_count;
} recorded;

/* The inputs, but for a past, which is empty where none is given. */
static void open_recorded(recorded *r, const struct kind *kind)
{
    char path[1200];
    *r = (recorded){.adapters = strcmp(kind->way, "onnx") == 0 ? "adapters_onnx" : "adapters"};
    (void)snprintf(r->loss, sizeof r->loss, "%s%sloss", kind->way, kind->way[0] ? "/" : "");
    (void)snprintf(r->grad, sizeof r->grad, "%s%sgrad/", kind->way, kind->way[0] ? "_" : "");
    (void)snprintf(r->folder, sizeof r->folder, "%s%s", FOLDER, kind->model);
    (void)snprintf(path, sizeof path, "%s/manifest.json", r->folder);
    r->manifest = json_load_file(path, 0, NULL);
    assert_non_null(r->manifest);
    (void)snprintf(path, sizeof path, "%s/reference.safetensors", r->folder);
    good(ebb_data_open(&r->reference, path, NULL));
    for (size_t i = 0; i < ebb_data_count(r->reference); i++) {
        ebb_named t = *ebb_data_at(r->reference, i);
        const bool input = strncmp(t.name, "input/", 6) == 0;
        if ((!input || strstr(t.name, "past") != NULL) && strcmp(t.name, "target") != 0)
            continue;
        t.name += input ? 6 : 0;
        assert_true(r->input_count < MOST_INPUTS);
        r->inputs[r->input_count++] = t;
    }
}

static void close_recorded(recorded *r)
{
    ebb_data_close(r->reference);
    json_decref(r->manifest);
}

static double noise_of(const recorded *r, const char *what)
{
    const json_t *noise = json_object_get(r->manifest, "float32_noise");
    return json_number_value(json_object_get(json_object_get(noise, what), "max_rel"));
}

static bool is_in_half(const recorded *r)
{
    const json_t *layer = json_array_get(json_object_get(r->manifest, "quantised_layers"), 0);
    const char *scales = json_string_value(json_object_get(layer, "scales"));
    return scales != NULL && strcmp(scales, "float16") == 0;
}

/* Stock ONNX Runtime with adapters beside the file's layers, by its largest logit. */
static double off_in_half(const recorded *r)
{
    const json_t *there =
        json_object_get(json_object_get(r->manifest, "onnxruntime"), "with_adapters");
    return json_number_value(json_object_get(there, "max_rel"));
}

/* The file's initializers that hold the framework's float parameters, for the option `also`. */
static void list_floats(const recorded *r, char *text, size_t size)
{
    const char *name;
    json_t *places, *place;
    size_t i, used = 0;
    text[0] = '\0';
    json_object_foreach(json_object_get(r->manifest, "float_parameters"), name, places)
        json_array_foreach(places, i, place)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used > 0 ? ";" : "",
                                     json_string_value(json_object_get(place, "initializer")));
    assert_true(used < size);
}

static void make(recorded *r, const char *optimizer, bool floats, ebb_model **model,
                 ebb_program **program)
{
    char path[1200], also[8192] = "", lora[10000], *text;
    const char *passes[] = {lora, NULL};
    const json_t *loss = json_object_get(r->manifest, "loss");
    (void)snprintf(path, sizeof path, "%s/model.onnx", r->folder);
    good(ebb_open(model, path));
    for (size_t i = 0; i < r->input_count; i++)
        if (strcmp(r->inputs[i].name, "target") != 0)
            good(ebb_set_shape(*model, r->inputs[i].name, r->inputs[i].dims, r->inputs[i].rank));
    if (floats)
        list_floats(r, also, sizeof also);
    (void)snprintf(lora, sizeof lora, "lora:file=\"%s/%s.safetensors\",alpha=8%s%s%s%s", r->folder,
                   r->adapters, strcmp(r->loss, "loss") == 0 ? ",place=outside" : "",
                   floats ? ",also=\"" : "", also, floats ? "\"" : "");
    char of_loss[200];
    (void)snprintf(of_loss, sizeof of_loss,
                   "cross-entropy:output=logits,axis=%lld,ignore_index=-100",
                   (long long)json_integer_value(json_object_get(loss, "class_axis")));
    good(ebb_step_pipeline(
        &text,
        &(ebb_step_options){.loss = of_loss,
                            .optimizer = optimizer,
                            .passes = passes,
                            .straight_through = json_is_true(json_object_get(
                                json_object_get(r->manifest, "training"), "straight_through"))}));
    good(ebb_rewrite(*model, text, &(ebb_rewrite_options){.verify_each = true}, NULL));
    ebb_release(text);
    good(ebb_program_compile(program, *model, NULL));
}

static void step(recorded *r, ebb_program *program)
{
    good(ebb_program_step(program, &(ebb_batch){r->inputs, r->input_count}));
    const ebb_program_facts f = ebb_program_measure(program);
    assert_true(f.planned_arena_bytes == f.measured_arena_bytes);
}

static size_t elements(const ebb_named *t)
{
    size_t n = 1;
    for (int d = 0; d < t->rank; d++)
        n *= (size_t)t->dims[d];
    return n;
}

/* ---- gradients ---- */

static bool is_gradient(const recorded *r, const char *name)
{
    return strncmp(name, r->grad, strlen(r->grad)) == 0;
}

static bool is_of_adapter(const recorded *r, const char *name)
{
    return is_gradient(r, name) && strstr(name, ".lora_") != NULL;
}

static double largest_gradient(const recorded *r)
{
    double most = 0;
    for (size_t i = 0; i < ebb_data_count(r->reference); i++) {
        const ebb_named *t = ebb_data_at(r->reference, i);
        for (size_t k = 0; is_gradient(r, t->name) && k < elements(t); k++)
            most = fmax(most, fabs((double)((const float *)t->data)[k]));
    }
    return most;
}

/* want, turned where it lies transposed in the file, against rows of the output `name`. */
static void agree(const recorded *r, ebb_program *program, const char *name, const double *want,
                  const int64_t dims[2], bool turned, int64_t from)
{
    ebb_named got;
    double most = 0, worst = 0;
    const int64_t rows = dims[0], columns = dims[1];
    good(ebb_program_get(program, name, &got));
    const ebb_tensor is = {.type = ebb_type_tensor((ebb_dtype)got.dtype, got.rank, got.dims),
                           .data = got.data};
    const int64_t all = (int64_t)elements(&got) / columns; // rows, of which some are meant
    assert_true(from + rows <= all);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < columns; k++) {
            const int64_t there = turned ? k * all + from + i : (from + i) * columns + k;
            const double x = want[i * columns + k], y = ebb_tensor_double(&is, there);
            most = fmax(most, fabs(x));
            worst = isnan(y) ? INFINITY : fmax(worst, fabs(x - y));
        }
    const double off = is_in_half(r) ? gradient_off_in_half : 8 * noise_of(r, "grad");
    const double bound = off * fmax(most, largest_gradient(r) / 1000);
    if (!(worst <= bound))
        fail_msg("%s: %s is %.3g away, %.3g times its bound", r->folder, name, worst,
                 worst / bound);
}

/* [rows, columns] of what is recorded; a vector has one column. */
static double *taken(const recorded *r, const char *parameter, int64_t dims[2])
{
    char name[512];
    (void)snprintf(name, sizeof name, "%s%s", r->grad, parameter);
    const ebb_named *t = ebb_data_find(r->reference, name);
    if (t == NULL)
        fail_msg("%s: '%s' is not recorded", r->folder, name);
    double *list = calloc(elements(t) + 1, sizeof *list);
    assert_non_null(list);
    for (size_t i = 0; i < elements(t); i++)
        list[i] = (double)((const float *)t->data)[i];
    dims[0] = t->rank > 0 ? t->dims[0] : 1;
    dims[1] = dims[0] > 0 ? (int64_t)elements(t) / dims[0] : 0;
    return list;
}

static size_t compare_adapters(const recorded *r, ebb_program *program)
{
    size_t count = 0;
    for (size_t i = 0; i < ebb_data_count(r->reference); i++) {
        const char *name = ebb_data_at(r->reference, i)->name;
        char output[512];
        int64_t dims[2];
        if (!is_of_adapter(r, name))
            continue;
        name += strlen(r->grad);
        (void)snprintf(output, sizeof output, "%s_grad", name);
        double *want = taken(r, name, dims);
        agree(r, program, output, want, dims, false, 0);
        free(want);
        count++;
    }
    return count;
}

/* The parameter that a weight of the file was found to be a copy of; or the weight itself. */
static const char *kept_as(const ebb_model *model, const char *initializer)
{
    const ebb_graph *g = model->graph;
    for (size_t i = 0; i < g->initializer_count; i++) {
        const char *copy =
            ebb_props_get(g, &ebb_value_of(g, g->initializers[i])->props, "ebb.copied_as");
        if (copy != NULL && strcmp(copy, initializer) == 0)
            return ebb_value_name(g, g->initializers[i]);
    }
    return initializer;
}

/* Gradients of what the file has twice add up: the copy's own is added to its parameter's. */
static void add_copies(const recorded *r, const ebb_model *model, const char *parameter,
                       const char *initializer, double *want)
{
    const char *other;
    json_t *places;
    json_object_foreach(json_object_get(r->manifest, "float_parameters"), other, places) {
        const char *there =
            json_string_value(json_object_get(json_array_get(places, 0), "initializer"));
        int64_t dims[2];
        if (strcmp(other, parameter) == 0 || strcmp(there, initializer) == 0 ||
            strcmp(kept_as(model, there), initializer) != 0)
            continue;
        FREED double *more = taken(r, other, dims);
        for (int64_t i = 0; i < dims[0] * dims[1]; i++)
            want[i] += more[i];
    }
}

/* Gradients that are 0 in mathematics are noise: they are held by its size alone. */
static bool is_noise(const recorded *r, ebb_program *program, const char *parameter,
                     const char *output)
{
    const json_t *zero = json_object_get(r->manifest, "near_zero_grads");
    const json_t *most = json_object_get(json_object_get(zero, "max_abs"), "grad");
    size_t i;
    json_t *p;
    json_array_foreach(json_object_get(zero, "parameters"), i, p) {
        if (strcmp(json_string_value(p), parameter) != 0)
            continue;
        ebb_named got;
        good(ebb_program_get(program, output, &got));
        for (size_t k = 0; k < elements(&got); k++)
            assert_true(fabs((double)((const float *)got.data)[k]) <= 10 * json_number_value(most));
        return true;
    }
    return false;
}

static size_t compare_floats(const recorded *r, const ebb_model *model, ebb_program *program)
{
    const char *parameter;
    json_t *places;
    size_t count = 0;
    json_object_foreach(json_object_get(r->manifest, "float_parameters"), parameter, places) {
        const json_t *place = json_array_get(places, 0);
        const char *there = json_string_value(json_object_get(place, "initializer"));
        char output[512];
        int64_t dims[2];
        if (strcmp(kept_as(model, there), there) != 0)
            continue;
        (void)snprintf(output, sizeof output, "%s_grad", there);
        if (is_noise(r, program, parameter, output))
            continue;
        double *want = taken(r, parameter, dims);
        add_copies(r, model, parameter, there, want);
        agree(r, program, output, want, dims, json_is_true(json_object_get(place, "transposed")),
              json_integer_value(json_array_get(json_object_get(place, "rows_there"), 0)));
        free(want);
        count++;
    }
    return count;
}

TEST(gradients_are_those_recorded)
{
    for (size_t k = 0; k < sizeof models / sizeof *models; k++) {
        recorded r;
        OWNED_MODEL *model = NULL;
        OWNED_PROGRAM *program = NULL;
        ebb_named loss;
        open_recorded(&r, &models[k]);
        make(&r, "none", true, &model, &program);
        step(&r, program);
        good(ebb_program_get(program, "loss", &loss));
        const double want = (double)*(const float *)ebb_data_find(r.reference, r.loss)->data;
        const double noise = is_in_half(&r) ? off_in_half(&r) : 8 * noise_of(&r, "loss");
        assert_true(fabs((double)*(const float *)loss.data - want) <=
                    fabs(want) * fmax(noise, 3e-7));
        const size_t adapters = compare_adapters(&r, program);
        const size_t floats = compare_floats(&r, model, program);
        print_message("%s: %zu adapters, %zu weights\n", models[k].model, adapters, floats);
        assert_true(adapters > 0 && floats > 0);
        close_recorded(&r);
    }
}

/* ---- AdamW ---- */

enum { STEPS = 2 };

typedef struct moments { /* of one adapter, in double */
    double *x, *m, *v;
} moments;

/* Adam's formula with the defaults of ebb, on gradients that the step without an optimizer gives. */
static void update(moments *a, const float *g, size_t count, int t)
{
    const double rate = 1e-3, b1 = 0.9, b2 = 0.999, epsilon = 1e-8, decay = 0.01;
    for (size_t i = 0; i < count; i++) {
        a->m[i] = b1 * a->m[i] + (1 - b1) * (double)g[i];
        a->v[i] = b2 * a->v[i] + (1 - b2) * (double)g[i] * (double)g[i];
        const double m = a->m[i] / (1 - pow(b1, t)), v = a->v[i] / (1 - pow(b2, t));
        a->x[i] -= rate * (m / (sqrt(v) + epsilon) + decay * a->x[i]);
    }
}

TEST(two_steps_of_adamw_follow_its_formula)
{
    for (size_t k = 0; k < sizeof models / sizeof *models; k++) {
        recorded r;
        OWNED_MODEL *model = NULL, *bare = NULL;
        OWNED_PROGRAM *program = NULL, *gradients = NULL;
        open_recorded(&r, &models[k]);
        make(&r, "adamw:lr=1e-3,weight-decay=0.01", false, &model, &program);
        make(&r, "none", false, &bare, &gradients);
        const size_t all = ebb_data_count(r.reference);
        moments *list = calloc(all, sizeof *list);
        for (int t = 1; t <= STEPS; t++) {
            step(&r, program);
            step(&r, gradients);
            for (size_t i = 0; i < all; i++) {
                const ebb_named *t0 = ebb_data_at(r.reference, i);
                char name[512];
                ebb_named now, g;
                if (!is_of_adapter(&r, t0->name))
                    continue;
                const size_t count = elements(t0);
                good(ebb_program_get(gradients, t0->name + strlen(r.grad), &now));
                if (list[i].x == NULL) {
                    list[i].x = calloc(3 * count, sizeof(double));
                    assert_non_null(list[i].x);
                    list[i].m = list[i].x + count;
                    list[i].v = list[i].m + count;
                    for (size_t e = 0; e < count; e++)
                        list[i].x[e] = (double)((const float *)now.data)[e];
                }
                (void)snprintf(name, sizeof name, "%s_grad", t0->name + strlen(r.grad));
                good(ebb_program_get(gradients, name, &g));
                update(&list[i], g.data, count, t);
            }
            for (size_t i = 0; i < all; i++) { // both go on from the same numbers
                ebb_named now;
                if (list[i].x == NULL)
                    continue;
                good(ebb_program_get(program, ebb_data_at(r.reference, i)->name + strlen(r.grad),
                                     &now));
                for (size_t e = 0; e < elements(&now); e++)
                    assert_true(fabs((double)((const float *)now.data)[e] - list[i].x[e]) <= 2e-6);
                good(ebb_program_set(gradients, &now));
            }
        }
        for (size_t i = 0; i < all; i++)
            free(list[i].x);
        free(list);
        close_recorded(&r);
    }
}

/* ---- evaluation ---- */

/* The head is told by the loss, also where keys and values are outputs as well. */
static void all_layers_but_the_head(const ebb_model *exported, const char *const *passes)
{
    OWNED_MODEL *copy = NULL;
    char *text;
    size_t count = 0;
    good(ebb_model_copy(&copy, exported));
    good(ebb_set_dim(copy, "batch_size", 2));
    good(ebb_set_dim(copy, "sequence_length", 20));
    good(ebb_evaluation_pipeline(
        &text,
        &(ebb_step_options){.loss = "cross-entropy:output=logits,axis=-1", .passes = passes}));
    good(ebb_rewrite(copy, text, NULL, NULL));
    ebb_release(text);
    for (size_t i = 0; i < copy->graph->initializer_count; i++)
        count +=
            strstr(ebb_value_name(copy->graph, copy->graph->initializers[i]), ".lora_B.") != NULL;
    assert_int_equal(count, 14);
    assert_int_equal(ebb_value_find(copy->graph, "lm_head.lora_B.weight").i, 0);
}

/* What was trained beside a weight in few bits cannot be added into it: the evaluated model has adapters of
 * its own. Those of a saved folder give the same loss. */
static void evaluate_beside_codes(const struct kind *kind, const char *adapters)
{
    recorded r;
    ebb_model *model, *exported;
    ebb_program *program;
    ebb_data *data;
    ebb_evaluator *trained, *saved;
    char path[1200], folder[] = "/tmp/ebb_adapters_XXXXXX", batch[64];
    const char *losses[] = {"cross-entropy:output=logits,axis=-1", NULL};
    const char *passes[] = {adapters, NULL};
    const char *linear[] = {"lora:rank=4,target=all-linear", NULL};
    open_recorded(&r, kind);
    assert_non_null(mkdtemp(folder));
    (void)snprintf(batch, sizeof batch, "%s/batch.safetensors", folder);
    good(ebb_tensors_save(batch, r.inputs, r.input_count, NULL));
    good(ebb_data_open_files(&data, (const char *const[]){batch, NULL}, NULL));
    make(&r, "adamw:lr=1e-2", false, &model, &program);
    for (int i = 0; i < 3; i++)
        step(&r, program);
    good(ebb_adapters_save(program, folder));
    (void)snprintf(path, sizeof path, "%s/model.onnx", r.folder);
    good(ebb_open(&exported, path));
    good(ebb_evaluator_new(
        &trained, exported, data,
        &(ebb_evaluator_options){.losses = losses, .batch = 2, .passes = passes}));
    good(ebb_evaluator_new(
        &saved, exported, data,
        &(ebb_evaluator_options){.losses = losses, .batch = 2, .adapters = folder}));
    good(ebb_evaluator_run(trained, program, NULL, NULL));
    good(ebb_evaluator_run(saved, NULL, NULL, NULL));
    all_layers_but_the_head(exported, linear);
    const double loss = ebb_evaluator_at(trained, 0).value;
    const double before = (double)*(const float *)ebb_data_find(r.reference, "loss")->data;
    assert_true(loss < before);
    assert_true(fabs(ebb_evaluator_at(saved, 0).value - loss) <= 1e-6 * loss);
    ebb_evaluator_free(trained);
    ebb_evaluator_free(saved);
    ebb_close(exported);
    ebb_data_close(data);
    ebb_program_free(program);
    ebb_close(model);
    static const char *const files[] = {"batch.safetensors", "adapter_config.json",
                                        "adapter_model.safetensors"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        assert_int_equal(remove(path), 0);
    }
    (void)rmdir(folder);
    close_recorded(&r);
}

TEST(adapters_beside_codes_are_evaluated)
{
    evaluate_beside_codes(&models[1], "lora:rank=4,dropout=0.5");
    evaluate_beside_codes(&(struct kind){"llama_dynamic_int8", ""}, "lora:rank=4,place=outside");
}

/* ---- several texts in a row ---- */

enum { LENGTH = 20 };

typedef struct texts { /* one step on a batch of all rows */
    ebb_data *data;
    ebb_model *model;
    ebb_program *program;
} texts;

/* Two texts, filled up or packed; `other` stands where nothing counts. */
static void compute(texts *t, const char *model, bool pack, int64_t other)
{
    static const int64_t lengths[] = {7, 9}, one[] = {16}, two[] = {2}, index[] = {0, 1};
    static const int32_t ids[] = {3, 50, 61, 7, 88, 12, 4, 9, 100, 31, 77, 2, 15, 42, 8, 60};
    const ebb_named tensors[] = {{"tokens", 6, 1, one, ids}, {"lengths", 7, 1, two, lengths}};
    const char *passes[] = {"lora:rank=2", NULL};
    char file[] = "/tmp/ebb_texts_XXXXXX.safetensors", path[1200], *text;
    int64_t rows, order[2 * LENGTH];
    const int handle = mkstemps(file, (int)strlen(".safetensors"));
    assert_true(handle >= 0 && close(handle) == 0);
    good(ebb_tensors_save(file, tensors, 2, NULL));
    good(ebb_data_open_files(&t->data, (const char *const[]){file, NULL},
                             &(ebb_data_options){.sequence = LENGTH, .pack = pack}));
    (void)remove(file);
    (void)snprintf(path, sizeof path, "%s%s/model.onnx", FOLDER, model);
    good(ebb_open(&t->model, path));
    good(ebb_data_shape(t->data, t->model, NULL, pack ? 1 : 2, &rows));
    assert_int_equal(rows, pack ? 1 : 2);
    good(ebb_step_pipeline(
        &text, &(ebb_step_options){.loss = "cross-entropy:output=logits,axis=-1,ignore_index=-100",
                                   .optimizer = "none",
                                   .passes = passes,
                                   .segments = pack}));
    good(ebb_rewrite(t->model, text, &(ebb_rewrite_options){.verify_each = true}, NULL));
    ebb_release(text);
    good(ebb_data_bind(t->data, t->model, NULL));
    good(ebb_program_compile(&t->program, t->model, NULL));
    const ebb_graph *g = t->model->graph; // B is zero at first, and A would have no gradient
    for (size_t i = 0; i < g->initializer_count; i++) {
        const ebb_value v = g->initializers[i];
        if (strstr(ebb_value_name(g, v), ".lora_B.weight") == NULL)
            continue;
        ebb_named b;
        good(ebb_program_get(t->program, ebb_value_name(g, v), &b));
        FREED float *values = calloc(elements(&b), sizeof *values);
        assert_non_null(values);
        for (size_t k = 0; k < elements(&b); k++)
            values[k] = 0.05f * (float)cos(1.0 + (double)(k + elements(&b)));
        b.data = values;
        good(ebb_program_set(t->program, &b));
    }
    ebb_batch batch;
    good(ebb_data_rows(t->data, index, pack ? 1 : 2, NULL, &batch));
    ebb_named list[8];
    assert_true(batch.count <= 8);
    for (size_t i = 0; i < batch.count; i++) {
        list[i] = batch.tensors[i];
        if (strcmp(list[i].name, "input_ids") != 0)
            continue;
        for (size_t k = 0; k < elements(&list[i]); k++)
            order[k] = ((const int64_t *)list[i].data)[k];
        for (int64_t k = 0; !pack && k < 2 * LENGTH; k++)
            order[k] = k % LENGTH < lengths[k / LENGTH] ? order[k] : other;
        list[i].data = order;
    }
    good(ebb_program_step(t->program, &(ebb_batch){list, batch.count}));
}

static void let_go(texts *t)
{
    ebb_program_free(t->program);
    ebb_close(t->model);
    ebb_data_close(t->data);
}

/* The largest difference of a gradient of an adapter, as a share of its largest number. */
static double apart(const texts *a, const texts *b, size_t *count)
{
    double worst = 0;
    *count = 0;
    for (size_t i = 0; i < ebb_program_output_count(a->program); i++) {
        const char *name = ebb_program_output_name(a->program, i);
        ebb_named x, y;
        double most = 0, off = 0;
        good(ebb_program_get(a->program, name, &x));
        good(ebb_program_get(b->program, name, &y));
        assert_int_equal(elements(&x), elements(&y));
        for (size_t k = 0; k < elements(&x); k++) {
            const double p = (double)((const float *)x.data)[k],
                         q = (double)((const float *)y.data)[k];
            most = fmax(most, fabs(p));
            off = fmax(off, fabs(p - q));
        }
        assert_true(most > 0 && isfinite(most));
        worst = fmax(worst, off / most);
        ++*count;
    }
    return worst;
}

TEST(packed_texts_have_the_gradients_of_separate_ones)
{
    static const char *const names[] = {"qwen2_float", "llama_genai_int4"};
    for (size_t k = 0; k < 2; k++) {
        texts separate, packed, others;
        size_t count;
        compute(&separate, names[k], false, 0);
        compute(&packed, names[k], true, 0);
        const double off = apart(&separate, &packed, &count);
        print_message("%s: packed %.2g\n", names[k], off);
        assert_true(count > 20 && off <= 1e-5);
        compute(&others, names[k], false, 77); // what fills a row up has no say at all
        assert_true(apart(&separate, &others, &count) == 0);
        let_go(&others);
        let_go(&packed);
        let_go(&separate);
    }
}

int main(void)
{
    FILE *there = fopen(FOLDER "qwen2_float/manifest.json", "r");
    if (there == NULL) {
        printf("SKIP: no recorded models beside the repository\n");
        return SKIPPED;
    }
    fclose(there);
    return run_listed();
}
