/* lora_net.h: two layers, their steps with adapters, and what comes of them: for the tests of pass lora. */
#pragma once

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "ebb.h"
#include "onnx/file/file.h"
#include "tests/formatted.h"
#include "tests/status.h"
#include "tests/test.h"
#include "tests/text.h"

enum { ROWS = 6, IN = 5, MID = 7, OUT = 3, RANK = 2 };

#define SOURCE                                                                                   \
    "<ir_version: 10, opset_import: [\"\" : 20]>"                                                \
    "g (float[6,5] x) => (float[6,3] y) <float[5,7] \"up.weight\", float[3,7] \"down.weight\", " \
    "float[3] \"down.bias\"> { [up] h = MatMul (x, \"up.weight\") [act] a = Tanh (h) "           \
    "[down] y = Gemm <transB = 1> (a, \"down.weight\", \"down.bias\") }"
/* The same with what the first layer gives multiplied, as models scale their scores: pass fuse makes it part of the
 * product. */
#define SCALED                                                                                   \
    "<ir_version: 10, opset_import: [\"\" : 20]>"                                                \
    "g (float[6,5] x) => (float[6,3] y) <float[5,7] \"up.weight\", float[3,7] \"down.weight\", " \
    "float[3] \"down.bias\", float s = {0.25}> { [up] m = MatMul (x, \"up.weight\") "            \
    "h = Mul (m, s) [act] a = Tanh (h) "                                                         \
    "[down] y = Gemm <transB = 1> (a, \"down.weight\", \"down.bias\") }"
/* The same within another module. */
#define WRAPPED                                                                   \
    "<ir_version: 10, opset_import: [\"\" : 20]>"                                 \
    "g (float[6,5] x) => (float[6,3] y) <float[5,7] \"m.up.weight\", float[3,7] " \
    "\"m.down.weight\"> { h = MatMul (x, \"m.up.weight\") a = Tanh (h) "          \
    "y = Gemm <transB = 1> (a, \"m.down.weight\") }"
#define BEFORE "loss:mse,"
#define AFTER "gradient,optimizer:none,drop-saves,alias"

static float weights[IN * MID + OUT * MID + OUT], inputs[ROWS * IN], targets[ROWS * OUT];

static inline void draw(float *to, size_t count, unsigned seed)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        to[i] = (float)((double)seed / 4294967296.0 * 2 - 1);
    }
}

static const char *net_text = SOURCE;

static inline ebb_model *source(void)
{
    ebb_model *m = parsed(net_text);
    static const char *const names[3] = {"up.weight", "down.weight", "down.bias"};
    const float *from = weights;
    for (int k = 0; k < 3; k++) {
        const ebb_value v = ebb_value_find(m->graph, names[k]);
        good(ebb_value_point(m->graph, v, from));
        from += ebb_value_of(m->graph, v)->tensor->bytes / sizeof *from;
    }
    return m;
}

static inline ebb_model *step(const char *first, const char *optimizer)
{
    ebb_model *m = source();
    good(ebb_rewrite(m,
                     formatted(BEFORE "%sgradient,optimizer:%s,drop-saves,alias", first, optimizer),
                     NULL, NULL));
    return m;
}

static inline ebb_program *compile(ebb_model *m)
{
    ebb_program *p;
    const ebb_compile_options options = {.backend = "plain"};
    good(ebb_program_compile(&p, m, &options));
    return p;
}

static inline void run(ebb_program *p)
{
    static const int64_t x[2] = {ROWS, IN}, y[2] = {ROWS, OUT};
    const ebb_named tensors[2] = {{"x", 1, 2, x, inputs}, {"target", 1, 2, y, targets}};
    const ebb_batch batch = {tensors, 2};
    good(ebb_program_step(p, &batch));
}

static inline const float *get(ebb_program *p, const char *name)
{
    ebb_named t;
    good(ebb_program_get(p, name, &t));
    return t.data;
}

static inline float loss_of(ebb_program *p)
{
    return *get(p, ebb_program_loss_name(p));
}

static inline void close_to(double a, double b, double tolerance, const char *what)
{
    if (!(fabs(a - b) <= tolerance * (1 + fabs(b))))
        fail_msg("%s: %.9g is not %.9g", what, a, b);
}

/* Before the first test. */
static inline void draw_net(void)
{
    draw(weights, sizeof weights / sizeof *weights, 1);
    draw(inputs, ROWS * IN, 2);
    draw(targets, ROWS * OUT, 3);
}
