/* bodies.c: the function bodies of bodies.def, by operator and opset. */
#include "onnx/tables/op.h"

#include <string.h>

/* A compiler need take string literals of 4095 bytes only, and those with ten rounds of Philox are
 * longer; ours take them. */
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Woverlength-strings"
#endif

/* What many bodies have alike is a row of its own, a piece: bodies and other pieces name it, and no text has a $ else. */
#define PIECE(name) "$" #name ";"

/* Constants of bodies: integers, one or several, given or an attribute's; and a float of
 * x's type, by way of y_32 or y_64. */
#define CONSTANT(y, value) y " = Constant <" value "> ()\n"
#define INT(y, n) CONSTANT(y, "value_int = " n)
#define INTS(y, list) CONSTANT(y, "value_ints = [" list "]")
#define INT_ATTR(y, name) CONSTANT(y, "value_int: int = @" name)
#define INTS_ATTR(y, name) CONSTANT(y, "value_ints: ints = @" name)
#define LIKE(y, n, x) CONSTANT(y "_32", "value_float = " n) y " = CastLike (" y "_32, " x ")\n"
#define LIKE_64(y, n, x) \
    CONSTANT(y "_64", "value = double {" n "}") y " = CastLike (" y "_64, " x ")\n"
#define LIKE_ATTR(y, name, x) \
    CONSTANT(y "_32", "value_float: float = @" name) y " = CastLike (" y "_32, " x ")\n"

/* Rows of operators, and of pieces under EBB_OP_COUNT. */
static const struct body {
    ebb_op op;
    int64_t before; // serves models whose ai.onnx is below this
    bool narrow;    // and operators some of whose nodes are of 16 bits
    const char *text;
} bodies[] = {
#define EBB_BODY(id, signature, steps) \
    {EBB_OP_##id, INT64_MAX, false, signature " {\n" steps "}\n"},
#define EBB_PIECE(name, text) {EBB_OP_COUNT, INT64_MAX, false, #name ";" text},
#define EBB_PIECE_BEFORE(name, opset, text) {EBB_OP_COUNT, opset, false, #name ";" text},
#define EBB_PIECE_NARROW(name, text) {EBB_OP_COUNT, INT64_MAX, true, #name ";" text},
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
#undef EBB_PIECE
#undef EBB_PIECE_BEFORE
#undef EBB_PIECE_NARROW
};

enum { OLDEST = 17 }; /* opset that a body is written in */

typedef struct wanted {
    int64_t opset;
    bool narrow;
} wanted;

/* The text of an operator; of EBB_OP_COUNT, that behind the name of so many bytes. */
static const char *text_of(ebb_op op, const char *name, size_t length, wanted w)
{
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        const struct body *b = &bodies[i];
        if (b->op == op && strncmp(b->text, name, length) == 0 && w.opset < b->before &&
            (w.narrow || !b->narrow))
            return b->text + length;
    }
    return NULL;
}

/* Bytes without the end, pieces for their names; to: NULL, or so many. */
static size_t copy_whole(char *to, const char *text, wanted w)
{
    size_t bytes = 0;
    for (; *text != '\0'; text++) {
        if (*text == '$') {
            const char *name = text + 1;
            text = strchr(name, ';');
            const char *piece = text_of(EBB_OP_COUNT, name, (size_t)(text - name) + 1, w);
            bytes += copy_whole(to != NULL ? to + bytes : NULL, piece, w);
            continue;
        }
        if (to != NULL)
            to[bytes] = *text;
        bytes++;
    }
    return bytes;
}

const char *ebb_op_body_at(ebb_op op, int64_t opset, bool narrow, ebb_arena *arena)
{
    const wanted w = {opset > OLDEST ? opset : OLDEST, narrow};
    const ebb_op_row *row = ebb_op_row_of(op);
    const char *text = text_of(op, "", 0, w);
    char *head = ebb_arena_printf(arena, "<domain: \"%s\", opset_import: [\"\" : %lld]>\n%s ",
                                  row->domain, (long long)w.opset, row->name);
    char *whole = EBB_NEW(arena, char, copy_whole(NULL, text, w) + 1);
    if (head == NULL || whole == NULL)
        return NULL;
    whole[copy_whole(whole, text, w)] = '\0';
    return ebb_arena_printf(arena, "%s%s", head, whole);
}

const char *ebb_op_body(ebb_op op)
{
    return text_of(op, "", 0, (wanted){INT64_MAX - 1, false});
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
