/* text.h: models from ONNX text. */
#pragma once

#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "tests/status.h"

/* As it stands. */
static inline ebb_model *parsed(const char *text)
{
    ebb_model *m = NULL;
    good(ebb_text_parse_model(&m, text));
    return m;
}

/* With the types of all values. */
static inline ebb_model *model_of(const char *text)
{
    ebb_model *m = parsed(text);
    good(ebb_infer_graph(m->graph));
    return m;
}
