/* bodies.c: the function bodies of bodies.def, by operator and opset. */
#include "onnx/tables/op.h"

#include <string.h>

/* A compiler need take string literals of 4095 bytes only, and those with ten rounds of Philox are
 * longer; ours take them. */
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Woverlength-strings"
#endif

/* What many bodies have alike is a row of its own: its text begins with a mark, a byte from 1 on, which
 * stands for it in those and that no text has else (but 9, 10, 13: white space, the marks of nothing). */
enum { MARKS = 22 };

#define HEAD "\23"    /* of most of them, */
#define HEAD_MS "\26" /* and of those of others */

static const struct body {
    ebb_op op;
    int64_t before; // serves models whose ai.onnx is below this
    bool narrow;    // and operators some of whose nodes are of 16 bits
    const char *text;
} bodies[] = {
#define EBB_BODY_WHOLE(id, text) {EBB_OP_##id, INT64_MAX, false, text},
#define EBB_BODY(id, text) EBB_BODY_WHOLE(id, HEAD text)
#define EBB_BODY_MS(id, text) EBB_BODY_WHOLE(id, HEAD_MS text)
#define EBB_BODY_BEFORE(id, opset, text) {EBB_OP_##id, opset, false, text},
#define EBB_BODY_NARROW(id, opset, text) {EBB_OP_##id, opset, true, text},
#define EBB_PIECE(mark, text) {EBB_OP_UNKNOWN, 0, false, mark text},
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
#undef EBB_PIECE
};

const char *ebb_op_body_at(ebb_op op, int64_t opset, bool narrow)
{
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++)
        if (bodies[i].op == op && opset < bodies[i].before && (narrow || !bodies[i].narrow))
            return bodies[i].text;
    return NULL;
}

/* ---- pieces ---- */

/* What stands for the mark, or NULL: it is no mark. */
static const char *piece_of(char mark)
{
    if (mark <= 0 || mark > MARKS)
        return NULL;
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++)
        if (bodies[i].op == EBB_OP_UNKNOWN && bodies[i].text[0] == mark)
            return bodies[i].text + 1;
    return NULL;
}

/* Bytes without the end; to: NULL, or so many. */
static size_t copy_whole(char *to, const char *text)
{
    size_t bytes = 0;
    for (; *text != '\0'; text++) {
        const char *piece = piece_of(*text);
        const size_t more = piece != NULL ? strlen(piece) : 1;
        if (to != NULL)
            memcpy(to + bytes, piece != NULL ? piece : text, more);
        bytes += more;
    }
    return bytes;
}

const char *ebb_op_body_whole(const char *text, ebb_arena *arena)
{
    char *whole = EBB_NEW(arena, char, copy_whole(NULL, text) + 1);
    if (whole != NULL)
        whole[copy_whole(whole, text)] = '\0';
    return whole;
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
