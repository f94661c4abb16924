/* recorded.h: what PyTorch computes for exported models, as sample.py and newcomer_sample.py write it
 * into recorded.txt, and a step of ebb beside it. */
#pragma once

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ebb.h"
#include "tests/formatted.h"
#include "tests/owned.h"
#include "tests/test.h"

enum { MOST_INPUTS = 4, MOST_GRADIENTS = 512, MOST_TENSORS = 64 };

typedef struct gradient {
    char name[160];
    double length, projection;
} gradient;

typedef struct tensor { /* a floating-point initializer of the file */
    char name[160];
    bool trained; /* else a constant or a buffer */
} tensor;

typedef struct sample {
    char name[80], loss_kind[32];
    int axis;
    double noise, loss;
    ebb_named inputs[MOST_INPUTS];
    char input_names[MOST_INPUTS][64];
    int64_t dims[MOST_INPUTS][8];
    size_t input_count;
    gradient gradients[MOST_GRADIENTS];
    size_t gradient_count;
    tensor tensors[MOST_TENSORS];
    size_t tensor_count;
} sample;

/* ---- what is drawn: as in sample.py ---- */

static uint32_t next_number(uint32_t *seed)
{
    *seed = (*seed * 1103515245u + 12345u) & 0x7fffffffu;
    return *seed;
}

static double next_signed(uint32_t *seed)
{
    return (float)((double)next_number(seed) / 1073741824.0 - 1.0);
}

static void fill(void *data, const char *kind, int64_t less, const int64_t *dims, int rank,
                 uint32_t seed)
{
    int64_t count = 1, length = rank > 0 ? dims[rank - 1] : 1;
    for (int d = 0; d < rank; d++)
        count *= dims[d];
    float *numbers = data;
    int64_t *indices = data;
    for (int64_t i = 0; i < count; i++) {
        if (strcmp(kind, "float") == 0)
            numbers[i] = (float)next_signed(&seed);
        else if (strcmp(kind, "token") == 0)
            indices[i] = 3 + (next_number(&seed) >> 8) % (less - 3);
        else if (strcmp(kind, "target") == 0)
            indices[i] = (next_number(&seed) >> 8) % less;
        else // a mask: the second half of the batch is two shorter
            indices[i] = i / length >= dims[0] / 2 && i % length >= length - 2 ? 0 : 1;
    }
}

static void add_input(sample *s, const char *line)
{
    char kind[16];
    int64_t less;
    int read = 0, rank = 0, used;
    assert_true(s->input_count < MOST_INPUTS);
    size_t at = s->input_count++;
    assert_int_equal(sscanf(line, "input %63s %15s %ld%n", s->input_names[at], kind, &less, &read),
                     3);
    size_t bytes = strcmp(kind, "float") == 0 ? sizeof(float) : sizeof(int64_t);
    while (rank < 8 && sscanf(line + read, " %ld%n", &s->dims[at][rank], &used) == 1) {
        bytes *= (size_t)s->dims[at][rank++];
        read += used;
    }
    void *data = malloc(bytes);
    assert_non_null(data);
    fill(data, kind, less, s->dims[at], rank,
         strcmp(s->input_names[at], "target") == 0 ? 99 : (uint32_t)(at + 1));
    s->inputs[at] = (ebb_named){.name = s->input_names[at],
                                .dtype = strcmp(kind, "float") == 0 ? 1 : 7,
                                .rank = rank,
                                .dims = s->dims[at],
                                .data = data};
}

/* ---- recorded.txt ---- */

/* The lines from one `model` to the next; false at the end. `line` holds the first of them. */
static bool read_sample(FILE *file, char *line, int size, sample *s)
{
    *s = (sample){0};
    if (sscanf(line, "model %79s %31s %d %lf", s->name, s->loss_kind, &s->axis, &s->noise) != 4)
        return false;
    while (fgets(line, size, file) != NULL && strncmp(line, "model ", 6) != 0) {
        gradient *g = &s->gradients[s->gradient_count];
        tensor *t = &s->tensors[s->tensor_count];
        t->trained = strncmp(line, "weight ", 7) == 0;
        if (strncmp(line, "input ", 6) == 0)
            add_input(s, line);
        else if (sscanf(line, "grad %159s %lf %lf", g->name, &g->length, &g->projection) == 3)
            assert_true(++s->gradient_count < MOST_GRADIENTS);
        else if (sscanf(line, t->trained ? "weight %159s" : "constant %159s", t->name) == 1)
            assert_true(++s->tensor_count < MOST_TENSORS);
        else
            assert_int_equal(sscanf(line, "loss %lf", &s->loss), 1);
    }
    return true;
}

/* ---- comparing ---- */

static double worst_gradient(const sample *s, ebb_program *program, const char **name)
{
    double longest = 0, worst = 0;
    for (size_t i = 0; i < s->gradient_count; i++)
        longest = fmax(longest, s->gradients[i].length);
    for (size_t i = 0; i < s->gradient_count; i++) {
        const gradient *want = &s->gradients[i];
        char output[192];
        ebb_named got;
        (void)snprintf(output, sizeof output, "%s_grad", want->name);
        double length = 0, projection = 0, error = INFINITY;
        if (ebb_program_get(program, output, &got) == NULL) {
            uint32_t seed = 7;
            size_t count = 1;
            for (int d = 0; d < got.rank; d++)
                count *= (size_t)got.dims[d];
            for (size_t k = 0; k < count; k++) {
                double x = (double)((const float *)got.data)[k];
                length += x * x;
                projection += x * next_signed(&seed);
            }
            error = fmax(fabs(sqrt(length) - want->length), fabs(projection - want->projection)) /
                    fmax(want->length, longest / 1000);
        } else if (!(want->length > 0)) {
            error = 0;
        }
        if (!(error <= worst)) {
            worst = error;
            *name = want->name;
        }
    }
    return worst;
}

/* drawn: the file has no weights, but says how to draw them. */
static ebb_status program_of(const char *folder, const sample *s, bool drawn, ebb_model **model,
                             ebb_program **program)
{
    char path[256], pipeline[256], axis[32];
    const ebb_rewrite_options options = {.verify_each = true};
    (void)snprintf(path, sizeof path, "%s/%s.onnx", folder, s->name);
    (void)snprintf(axis, sizeof axis, ",axis=%d", s->axis);
    (void)snprintf(pipeline, sizeof pipeline,
                   "normalise,train-mode:dropout=off,fold,fuse,loss:kind=%s%s,gradient,"
                   "optimizer:kind=none,default",
                   s->loss_kind, strcmp(s->loss_kind, "cross-entropy") == 0 ? axis : "");
    ebb_status status = ebb_open(model, path);
    for (size_t i = 0; status == NULL && i + 1 < s->input_count; i++) // the target is the loss's
        status = ebb_set_shape(*model, s->inputs[i].name, s->dims[i], s->inputs[i].rank);
    if (status == NULL && drawn)
        status = ebb_init_weights(*model, 0);
    if (status == NULL)
        status = ebb_rewrite(*model, pipeline, &options, NULL);
    const ebb_compile_options serial = {.threads = 1}; // so small that threads would only wait
    return status == NULL ? ebb_program_compile(program, *model, &serial) : status;
}

/* Whether a step has the recorded loss and gradients: so near, relative. choose, where it is given, says
 * which gradients the program must have. */
static bool agrees(const char *folder, sample *s, bool drawn, double of_loss, double of_gradients,
                   void (*choose)(sample *s, ebb_program *program))
{
    OWNED_MODEL *model = NULL;
    OWNED_PROGRAM *program = NULL;
    const ebb_batch batch = {s->inputs, s->input_count};
    ebb_named loss;
    bool agree = false;
    ebb_status status = program_of(folder, s, drawn, &model, &program);
    if (status == NULL)
        status = ebb_program_step(program, &batch);
    if (status == NULL)
        status = ebb_program_get(program, "loss", &loss);
    if (status != NULL) {
        print_error("%s: %s\n", s->name, ebb_status_text(status));
    } else {
        const char *name = "";
        double off = fabs((double)*(const float *)loss.data / s->loss - 1);
        if (choose != NULL)
            choose(s, program);
        double worst = worst_gradient(s, program, &name);
        agree = off <= of_loss && worst <= of_gradients;
        print_message("%-36s loss %.1e  %3zu gradients %.1e %s%s\n", s->name, off,
                      s->gradient_count, worst, agree ? "" : "FAILED at ", agree ? "" : name);
    }
    return agree;
}

static void free_inputs(sample *s)
{
    for (size_t i = 0; i < s->input_count; i++)
        free((void *)(uintptr_t)s->inputs[i].data);
}

/* Visits each sample of the folder's recorded.txt; how many there are. visit says whether all is well. */
static int visit_samples(const char *folder, bool (*visit)(sample *s))
{
    static sample s;
    char line[512];
    int failures = 0, models = 0;
    FILE *file = fopen(formatted("%s/recorded.txt", folder), "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    while (read_sample(file, line, sizeof line, &s)) {
        models++;
        failures += !visit(&s);
        free_inputs(&s);
    }
    (void)fclose(file);
    assert_int_equal(failures, 0);
    return models;
}
