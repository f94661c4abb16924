/* bodies.c: the function bodies of bodies.def, by operator and opset. */
#include "onnx/tables/op.h"

#include <string.h>

/* A compiler need take string literals of 4095 bytes only, and those with ten rounds of Philox are
 * longer; ours take them. */
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Woverlength-strings"
#endif

static const struct body {
    ebb_op op;
    int64_t before; // serves models whose ai.onnx is below this
    bool narrow;    // and operators some of whose nodes are of 16 bits
    const char *text;
} bodies[] = {
#define EBB_BODY_WHOLE(id, text) {EBB_OP_##id, INT64_MAX, false, text},
#define EBB_BODY(id, text) \
    EBB_BODY_WHOLE(id, "<domain: \"ai.ebb\", opset_import: [\"\" : 17]>\n" text)
#define EBB_BODY_MS(id, text) \
    EBB_BODY_WHOLE(id, "<domain: \"com.microsoft\", opset_import: [\"\" : 17]>\n" text)
#define EBB_BODY_BEFORE(id, opset, text) {EBB_OP_##id, opset, false, text},
#define EBB_BODY_NARROW(id, opset, text) {EBB_OP_##id, opset, true, text},
#include "onnx/tables/bodies.def"
#include "onnx/tables/bodies_bits.def"
#include "onnx/tables/bodies_image.def"
#include "onnx/tables/bodies_ms.def"
#include "onnx/tables/bodies_norm.def"
#include "onnx/tables/bodies_algebra.def"
#include "onnx/tables/bodies_recurrent.def"
#include "onnx/tables/bodies_places.def"
#include "onnx/tables/bodies_group.def"
#undef EBB_BODY
#undef EBB_BODY_MS
#undef EBB_BODY_WHOLE
#undef EBB_BODY_BEFORE
#undef EBB_BODY_NARROW
};

const char *ebb_op_body_at(ebb_op op, int64_t opset, bool narrow)
{
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++)
        if (bodies[i].op == op && opset < bodies[i].before && (narrow || !bodies[i].narrow))
            return bodies[i].text;
    return NULL;
}

const char *ebb_op_body(ebb_op op)
{
    return ebb_op_body_at(op, INT64_MAX - 1, false);
}

/* The names between "=> (" and ")" in the body's first lines. */
uint32_t ebb_op_body_outputs(ebb_op op)
{
    const char *text = ebb_op_body(op);
    const char *at = text != NULL ? strstr(text, "=> (") : NULL;
    if (at == NULL)
        return 0;
    uint32_t count = 1;
    for (; *at != ')'; at++)
        count += *at == ',';
    return count;
}
