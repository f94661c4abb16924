/* bodies.c: the function bodies of bodies.def, by operator. */
#include "onnx/op.h"

/* A compiler need take string literals of 4095 bytes only, and those with ten rounds of Philox are
 * longer; ours take them. */
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Woverlength-strings"
#endif

const char *ebb_op_body(ebb_op op)
{
    switch (op) {
#define EBB_BODY(id, text)                                                                         \
    case EBB_OP_##id:                                                                              \
        return text;
#include "onnx/bodies.def"
#undef EBB_BODY
    default:
        return NULL;
    }
}
