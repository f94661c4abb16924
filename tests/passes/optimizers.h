/* optimizers.h: the step that tests of optimizers train.
 *
 *   y = X M H + b,  loss = sum y^2:   M is a matrix within the network, H is next to the loss
 */
#pragma once

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ebb.h"
#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "tests/status.h"
#include "tests/test.h"
#include "tests/text.h"

enum { M, H, B, PARAMETERS, STEPS = 6 };

static const char text[] =
    "<ir_version: 10, opset_import: [\"\" : 20]>\n"
    "g () => (float loss) <float[2,3] x = {1.0,-0.5,0.25, 0.75,2.0,-1.0}, "
    "float[3,4] \"first.weight\" = {0.5,-0.25,0.125,1.0, -0.75,0.5,0.25,-1.0, "
    "0.375,-0.5,0.75,0.25}, "
    "float[4,2] \"last.weight\" = {0.5,-1.0, 0.25,0.75, -0.5,0.125, 1.0,-0.375}, "
    "float[2] \"last.bias\" = {0.25,-0.5}> {\n"
    "   h = MatMul (x, \"first.weight\")\n   p = MatMul (h, \"last.weight\")\n   y = Add (p, "
    "\"last.bias\")\n"
    "   square = Mul (y, y)\n   loss = ReduceSum <keepdims = 0> (square)\n}";

static const char *const names[PARAMETERS] = {"first.weight", "last.weight", "last.bias"};
static const int sizes[PARAMETERS] = {12, 8, 2};

typedef struct trial {
    ebb_model *model;
    ebb_program *program;
} trial;

static inline ebb_model *parse(void)
{
    ebb_model *m = model_of(text);
    return m;
}

static inline ebb_status rewrite(trial *t, const char *optimizer)
{
    char pipeline[1024];
    (void)snprintf(pipeline, sizeof pipeline,
                   "loss:name=loss,gradient:train=\"first*;last*\",optimizer:%s,fold,drop-saves,"
                   "stream,alias",
                   optimizer);
    t->model = parse();
    return ebb_rewrite(t->model, pipeline, NULL, NULL);
}

static inline trial make(const char *optimizer)
{
    trial t = {NULL, NULL};
    good(rewrite(&t, optimizer));
    good(ebb_program_compile(&t.program, t.model, NULL));
    return t;
}

static inline void drop(trial *t)
{
    ebb_program_free(t->program);
    ebb_close(t->model);
}

static inline double value_of(ebb_program *p, const char *name, size_t index)
{
    ebb_named named;
    good(ebb_program_get(p, name, &named));
    return ebb_element(&named, index);
}
