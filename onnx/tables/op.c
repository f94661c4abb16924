/* op.c: the operator table, made from ops.def. */
#include "onnx/tables/op.h"

#include "onnx/ops/ops.h"

/* The names that the rows use. */
enum {
    POINTWISE = EBB_POINTWISE,
    COMMUTES = EBB_COMMUTES,
    VIEW = EBB_VIEW,
    RANDOM = EBB_RANDOM,
    FOLDS = EBB_FOLDS,
    SHAPE_OF_0 = EBB_SHAPE_OF_0,
    NORM = EBB_NORM,
    BODIES = EBB_BODIES,
    UPDATES = EBB_UPDATES,
    STATISTICS = EBB_STATISTICS,
    DECODES = EBB_DECODES,
    STEPS = EBB_STEPS,
    KEEPS = EBB_KEEPS,
    PRODUCTS = EBB_PRODUCTS,
    KEYED = EBB_KEYED,
    STARTS = EBB_STARTS,
    TOGETHER = EBB_TOGETHER,
    PARTLY = EBB_PARTLY,
};
#define OVER(o, i) EBB_OVER(o, i)
#define DOMAIN_ONNX EBB_DOMAIN_ONNX
#define DOMAIN_MS EBB_DOMAIN_MS
#define DOMAIN_EBB EBB_DOMAIN_EBB
#define DOMAIN_PREVIEW EBB_DOMAIN_PREVIEW
#define DOMAIN_EXPERIMENTS EBB_DOMAIN_EXPERIMENTS

static const ebb_op_row rows[EBB_OP_COUNT] = {
    [EBB_OP_UNKNOWN] = {"", "", 0, "", "-", "-", 0, 0, NULL, NULL, NULL, "UNKNOWN"},
#define EBB_OP(id, domain, name, since, operands, reads, slots, traits, alias, infer, grad, cost, \
               ...)                                                                               \
    [EBB_OP_##id] = {DOMAIN_##domain,                                                             \
                     name,                                                                        \
                     since,                                                                       \
                     operands,                                                                    \
                     reads,                                                                       \
                     slots,                                                                       \
                     (uint32_t)(traits),                                                          \
                     (uint64_t)(alias),                                                           \
                     ebb_infer_##infer,                                                           \
                     ebb_grad_##grad,                                                             \
                     ebb_cost_##cost,                                                             \
                     #id},
#include "onnx/tables/ops.def"
#undef EBB_OP
};

const ebb_op_row *ebb_op_row_of(ebb_op op)
{
    return &rows[(unsigned)op < EBB_OP_COUNT ? op : EBB_OP_UNKNOWN];
}

static const char *canonical(const char *domain)
{
    return strcmp(domain, "ai.onnx") == 0 ? "" : domain;
}

ebb_op ebb_op_find(const char *domain, const char *name, int64_t version)
{
    domain = canonical(domain);
    ebb_op best = EBB_OP_UNKNOWN;
    for (int op = 1; op < EBB_OP_COUNT; op++) {
        const ebb_op_row *row = &rows[op];
        if (row->name[0] != name[0] || strcmp(row->name, name) != 0 ||
            strcmp(row->domain, domain) != 0)
            continue;
        if (row->since <= version && row->since >= rows[best].since)
            best = (ebb_op)op;
    }
    return best;
}

/* ---- the operands column ---- */

ebb_arity ebb_op_arity(ebb_op op)
{
    const char *at = ebb_op_row_of(op)->operands;
    ebb_arity a = {0, 0, 0};
    bool optional = false;
    if (*at == '\0')
        return (ebb_arity){0, UINT32_MAX, UINT32_MAX};
    for (; *at != ' '; at++) {
        optional = optional || *at == '|';
        if (*at == '*') {
            a.inputs = UINT32_MAX;
        } else if (*at != '|') {
            a.required += !optional;
            a.inputs++;
        }
    }
    for (at += strlen(" -> "); *at != '\0'; at++)
        a.outputs = *at == '*' ? UINT32_MAX : a.outputs + 1;
    return a;
}

char ebb_op_tie(ebb_op op, uint32_t input)
{
    char last = '-';
    for (const char *at = ebb_op_row_of(op)->operands; *at != ' ' && *at != '\0'; at++) {
        if (*at == '|' || *at == '*')
            continue;
        last = *at;
        if (input-- == 0)
            break;
    }
    return last;
}

char ebb_op_output_mark(ebb_op op, uint32_t output)
{
    const char *arrow = strstr(ebb_op_row_of(op)->operands, " -> ");
    if (arrow == NULL || output >= strlen(arrow + strlen(" -> ")))
        return '.';
    return arrow[strlen(" -> ") + output];
}

static char letter(const char *letters, uint32_t input)
{
    size_t last = strlen(letters) - 1;
    return letters[input < last ? input : last];
}

char ebb_op_reads(ebb_op op, uint32_t input)
{
    return letter(ebb_op_row_of(op)->reads, input);
}

char ebb_op_slot(ebb_op op, uint32_t input)
{
    return letter(ebb_op_row_of(op)->slots, input);
}

bool ebb_op_may_alias(ebb_op op, uint32_t output, uint32_t input)
{
    if (output >= 8 || input >= 8)
        return false;
    return (ebb_op_row_of(op)->alias & EBB_OVER(output, input)) != 0;
}

ebb_op ebb_op_convolution(ebb_op op)
{
    switch ((int)op) {
    case EBB_OP_CONV_RELU:
        return EBB_OP_CONV;
    case EBB_OP_CONV_RELU_NHWC:
    case EBB_OP_CONV_ADD_RELU_NHWC:
        return EBB_OP_CONV_NHWC;
    default:
        return EBB_OP_UNKNOWN;
    }
}

bool ebb_op_stops_grad(ebb_op op)
{
    return ebb_op_row_of(op)->grad == ebb_grad_none || ebb_op_has(op, EBB_STEPS);
}

bool ebb_op_has_grad(ebb_op op)
{
    ebb_grad_fn grad = ebb_op_row_of(op)->grad;
    return grad != NULL && grad != ebb_grad_missing;
}
