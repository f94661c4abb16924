/* alike.h: steps of the samples, run twice, compared bit for bit. */
#pragma once

#include <stdio.h>
#include <string.h>

#include "ebb.h"
#include "onnx/file/file.h"
#include "tests/owned.h"
#include "tests/share.h"
#include "tests/status.h"
#include "tests/test.h"

enum { STEPS = 2, MOST_INPUTS = 16 };

/* The samples of the repository. */
static const struct {
    const char *model, *loss, *optimizer;
    int64_t batch;
} samples[] = {
    {"digits/mlp.onnx", "cross-entropy", "adamw", 16},
    {"digits/cnn.onnx", "cross-entropy", "sgd", 16},
    {"digits/transformer.onnx", "cross-entropy", "adamw", 16},
    {"text/char.onnx", "cross-entropy:axis=-1", "adamw", 2},
};
enum { SAMPLES = sizeof samples / sizeof samples[0] };

static inline uint64_t draw(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

typedef struct run {
    ebb_model *model;
    ebb_program *program;
} run;

static inline void run_close(run *r)
{
    ebb_program_free(r->program);
    ebb_close(r->model);
    *r = (run){NULL, NULL};
}

/* Two steps; inputs are zeros and small numbers. */
static inline void run_start(run *r)
{
    good(ebb_program_compile(&r->program, r->model, NULL));
    const ebb_graph *g = r->model->graph;
    ebb_named inputs[MOST_INPUTS];
    size_t count = 0;
    OWNED_ARENA arena = {0};
    for (size_t i = 0; i < g->input_count; i++) {
        const ebb_value_info *info = ebb_value_of(g, g->inputs[i]);
        size_t bytes = 0;
        if ((info->flags & EBB_IS_INITIALIZER) != 0)
            continue;
        assert_true(count < MOST_INPUTS && ebb_type_bytes(info->type, &bytes));
        unsigned char *data = ebb_arena_zeroed(&arena, bytes + 1, 1);
        uint64_t state = i;
        if (info->type->dtype == EBB_F32)
            for (size_t k = 0; k < bytes / sizeof(float); k++)
                ((float *)(void *)data)[k] = (float)(draw(&state) % 1000) / 1000;
        else
            for (size_t k = 0; k < bytes / sizeof(int64_t); k++)
                ((int64_t *)(void *)data)[k] = (int64_t)(draw(&state) % 10);
        inputs[count++] = (ebb_named){ebb_value_name(g, g->inputs[i]), info->type->dtype,
                                      info->type->rank, info->type->dims, data};
    }
    const ebb_batch batch = {inputs, count};
    for (int step = 0; step < STEPS; step++)
        good(ebb_program_step(r->program, &batch));
}

/* The same of the saved step, with this pass. */
static inline void run_open(run *r, const char *path, const char *pass)
{
    good(ebb_open(&r->model, path));
    if (pass != NULL)
        good(ebb_rewrite(r->model, pass, NULL, NULL));
    run_start(r);
}

/* Outputs and states, bit for bit. */
static inline void compare(const run *a, const run *b, const char *what)
{
    const ebb_graph *g = a->model->graph;
    for (size_t i = 0; i < g->output_count + g->initializer_count; i++) {
        const ebb_value v =
            i < g->output_count ? g->outputs[i] : g->initializers[i - g->output_count];
        ebb_named x, y;
        size_t bytes;
        if (ebb_value_of(g, v)->dead || (i >= g->output_count && !ebb_value_is_state(g, v)))
            continue;
        good(ebb_program_get(a->program, ebb_value_name(g, v), &x));
        good(ebb_program_get(b->program, ebb_value_name(g, v), &y));
        assert_true(ebb_type_bytes(ebb_value_of(g, v)->type, &bytes));
        if (memcmp(x.data, y.data, bytes) != 0)
            fail_msg("%s: '%s' differs", what, ebb_value_name(g, v));
    }
}

/* A step of sample i; the file is the caller's to remove. */
static inline void write_step(char *step, size_t size, const char *name, size_t i)
{
    char path[1024], *pipeline = NULL;
    OWNED_MODEL *m = NULL;
    (void)snprintf(path, sizeof path, EBB_SOURCE_DIR "/samples/%s", samples[i].model);
    (void)snprintf(step, size, EBB_BINARY_DIR "/%s_%zu.onnx", name, i);
    good(ebb_open(&m, path));
    good(ebb_set_dim(m, "batch", samples[i].batch));
    good(ebb_step_pipeline(&pipeline, &(ebb_step_options){.loss = samples[i].loss,
                                                          .optimizer = samples[i].optimizer}));
    good(ebb_rewrite(m, pipeline, NULL, NULL));
    good(ebb_save(m, step));
    ebb_release(pipeline);
}
