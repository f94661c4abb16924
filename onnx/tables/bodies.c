/* bodies.c: the function bodies of bodies.def, by operator and opset. */
#include "onnx/tables/op.h"

#include <string.h>

/* A compiler need take string literals of 4095 bytes only, and those with ten rounds of Philox are
 * longer; ours take them. */
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Woverlength-strings"
#endif

/* What many bodies have alike is a row of its own, a piece: its text begins with a mark, a byte from 128 on that
 * no text has else, and which stands for it in bodies and in other pieces. */
#define CONV_WEIGHT_GRAD_OF_X "\200"
#define CONV_NHWC_STEPS "\201"
#define DECLARED_DILATIONS "\202"
#define USED_DILATIONS "\203"
#define BYTES_BEGIN "\204"
#define BYTES_SUMS "\205"
#define DIGITS_BEGIN "\206"
#define DIGITS_FLAT "\207"
#define PHILOX_DRAWN "\210"
#define PHILOX_THRESHOLD "\211"
#define PHILOX_OF_BLOCKS "\212"
#define PHILOX_BEGIN "\213"
#define PHILOX_TO_WORDS "\214"
#define ATTENTION_OPERANDS "\215"
#define ATTENTION_OPERANDS_AS_SUM "\216"
#define ATTENTION_TO_SCORES "\217"
#define ATTENTION_MAX "\220"
#define ATTENTION_PROBABILITIES "\221"
#define BATCH_NORM_STEPS "\222"
#define BATCH_NORM_GRAD_BEGIN "\223"
#define BATCH_NORM_GRAD_END "\224"
#define Q_EXTREMES "\225"
#define R_EXTREMES "\226"
#define GROUPS_OF "\227"
#define CODE_CONSTANTS "\230"
#define CODES_TO_RESHAPE "\231"
#define BLOCKS "\232"
#define INVERT_SIDES "\233"
#define INVERT_ROOT "\234"
#define INVERT_LEFT "\235"
#define INVERT_PIECE "\236"
#define INVERT_END "\237"
#define LOW_BIT_SIZES "\240"
#define ROWS_AS_ATTRIBUTE "\241"
#define ROWS_AS_INPUT "\242"
#define M_RATIO "\243"
#define V_RATIO "\244"
#define M_BELOW "\245"
#define V_BELOW "\246"
#define M_BELOW_OR_AT "\247"
#define V_BELOW_OR_AT "\250"
#define LOW_BIT_DRAWS "\251"
#define ADAMW_LOW_BIT_STEP "\252"
#define ROI_NUMBERS "\253"
#define ROI_START "\254"
#define ROI_ROWS "\255"
#define ROI_COLUMNS "\256"
#define ROI_TAPS "\257"
#define ROI_WHERE "\260"
#define ROI_ADD "\261"
#define LOSS_SLOPE "\262"
#define FROZEN_ROWS "\263"
#define BLOCK_SIZE "\264"
#define GROUP_SHAPES "\265"
#define SAFE_SCALE "\266"
#define BACK_TO_Y "\267"
#define COFACTORS "\270"
#define SIZES "\271"
#define SIZES_OF_STEPS "\272"
#define NUMBERS "\273"
#define INPUT_GRADS "\274"
#define SHARD_OF_X "\275"
#define UNSHARD_STEPS "\276"

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
#define EBB_PIECE(mark, text) {EBB_OP_COUNT, INT64_MAX, false, mark text},
#define EBB_PIECE_BEFORE(mark, opset, text) {EBB_OP_COUNT, opset, false, mark text},
#define EBB_PIECE_NARROW(mark, text) {EBB_OP_COUNT, INT64_MAX, true, mark text},
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

/* The text of an operator; of EBB_OP_COUNT, the piece's with this mark. */
static const char *text_of(ebb_op op, char mark, wanted w)
{
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        const struct body *b = &bodies[i];
        if (b->op == op && (op != EBB_OP_COUNT || b->text[0] == mark) && w.opset < b->before &&
            (w.narrow || !b->narrow))
            return b->text;
    }
    return NULL;
}

/* Bytes without the end, pieces for their marks; to: NULL, or so many. */
static size_t copy_whole(char *to, const char *text, wanted w)
{
    size_t bytes = 0;
    for (; *text != '\0'; text++) {
        if ((*text & 0x80) != 0) {
            const char *piece = text_of(EBB_OP_COUNT, *text, w) + 1;
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
    const char *text = text_of(op, 0, w);
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
    return text_of(op, 0, (wanted){INT64_MAX - 1, false});
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
