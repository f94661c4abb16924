/* pointwise.c: what a call of a pointwise operator says; see pointwise.h. */
#include "kernels/call/pointwise.h"

#include <math.h>

#include "kernels/operand.h"

#define RESULT_NUMBER false
#define RESULT_FLAG true
const ebb_formula_row ebb_formula_rows[EBB_FORMULA_COUNT] = {
#define POINTWISE(op, name, kind, inputs, dtypes, result, ...) \
    {EBB_FORMULA_##kind, inputs, EBB_##dtypes, RESULT_##result},
#include "kernels/math/pointwise.def"
};

typedef struct attribute { /* p or q */
    ebb_attr_type type;
    const char *name;
    double otherwise;
    const char *word; /* a string's: 1 where it is this one */
} attribute;

#define NONE                              \
    {                                     \
        EBB_ATTR_UNDEFINED, NULL, 0, NULL \
    }
#define FIXED(number)                          \
    {                                          \
        EBB_ATTR_UNDEFINED, NULL, number, NULL \
    }
#define FLOAT(name, otherwise)                \
    {                                         \
        EBB_ATTR_FLOAT, name, otherwise, NULL \
    }
#define INT(name, otherwise)                \
    {                                       \
        EBB_ATTR_INT, name, otherwise, NULL \
    }
#define WORD(name, word)               \
    {                                  \
        EBB_ATTR_STRING, name, 0, word \
    }
static const attribute attributes[EBB_FORMULA_COUNT][2] = {
#define POINTWISE(op, name, kind, inputs, dtypes, result, p, q, ...) {p, q},
#include "kernels/math/pointwise.def"
};

/* 1 + the formula of an operator; 0: none. */
static const uint8_t formulas[EBB_OP_COUNT] = {
#define POINTWISE(op, ...) [EBB_OP_##op] = 1 + EBB_FORMULA_##op,
#include "kernels/math/pointwise.def"
};

static double value_of(const ebb_call *c, const attribute *a)
{
    switch (a->type) {
    case EBB_ATTR_FLOAT:
        return ebb_attr_float(&c->attrs, a->name, a->otherwise);
    case EBB_ATTR_INT:
        return (double)ebb_attr_int(&c->attrs, a->name, (int64_t)a->otherwise);
    case EBB_ATTR_STRING:
        return strcmp(ebb_attr_string(&c->attrs, a->name, ""), a->word) == 0;
    default:
        return a->otherwise;
    }
}

/* Tensors that a formula of this kind reads; behind them it has scalars. */
static uint32_t tensors_of(ebb_formula_kind kind)
{
    return kind == EBB_FORMULA_ONE ? 1 : 2;
}

bool ebb_formula_of(const ebb_call *c, ebb_formula_use *use)
{
    memset(use, 0, sizeof *use);
    if (formulas[c->op] == 0)
        return false;
    use->formula = (ebb_formula)(formulas[c->op] - 1);
    if (c->op == EBB_OP_GELU &&
        strcmp(ebb_attr_string(&c->attrs, "approximate", "none"), "tanh") == 0)
        use->formula = EBB_FORMULA_MS_FAST_GELU;
    const ebb_formula_row *row = &ebb_formula_rows[use->formula];
    use->p = value_of(c, &attributes[use->formula][0]);
    use->q = value_of(c, &attributes[use->formula][1]);
    if (c->op == EBB_OP_MEAN)
        use->p = (double)c->input_count;
    uint32_t tensors = tensors_of(row->kind);
    for (uint32_t k = tensors; k < row->inputs; k++)
        use->absent[k] = row->kind == EBB_FORMULA_MANY ? -0.0 : k == tensors ? use->p : use->q;
    return true;
}

static bool computes_in(const ebb_formula_row *row, ebb_dtype dtype, bool halves)
{
    if (ebb_dtype_is_float(dtype))
        return (row->dtypes & EBB_REALS) != 0 && (halves || dtype == EBB_F32 || dtype == EBB_F64);
    return (row->dtypes & (ebb_dtype_is_integer(dtype) ? EBB_WHOLES : EBB_FLAGS)) != 0 &&
           (ebb_dtype_is_integer(dtype) || dtype == EBB_BOOL);
}

const char *ebb_formula_misfit(const ebb_call *c, bool halves)
{
    const ebb_formula_row *row = &ebb_formula_rows[formulas[c->op] - 1];
    const ebb_dtype dtype = c->input_count > 0 ? (ebb_dtype)c->in[0].type.dtype : EBB_NONE;
    EBB_ASK(ebb_call_any(c));
    if (row->kind == EBB_FORMULA_CHOICE)
        return ebb_element_bytes(&c->out[0].type) > 8 ? "elements are wider than 8 bytes" : NULL;
    for (uint32_t i = 1; i < c->input_count; i++) {
        const ebb_dtype other = (ebb_dtype)c->in[i].type.dtype;
        if (other == EBB_NONE)
            continue;
        if (i >= row->inputs && row->kind != EBB_FORMULA_MANY)
            return "takes no bias";
        if (row->kind != EBB_FORMULA_POWER && other != dtype)
            return "inputs differ in dtype";
        if (!computes_in(row, other, halves))
            return "does not compute in this dtype";
    }
    if (!computes_in(row, dtype, halves))
        return "does not compute in this dtype";
    if (row->kind == EBB_FORMULA_PAIR && !ebb_type_same_shape(&c->in[0].type, &c->in[1].type))
        return "the inputs differ in shape";
    return c->out[0].type.dtype == (row->flag ? EBB_BOOL : dtype)
               ? NULL
               : "the result is of another dtype";
}

ebb_status ebb_formula_check(const ebb_call *c, ebb_formula formula)
{
    const ebb_formula_row *row = &ebb_formula_rows[formula];
    uint32_t tensors = tensors_of(row->kind);
    for (uint32_t k = tensors; row->kind <= EBB_FORMULA_PAIR && k < row->inputs; k++)
        if (ebb_call_has(c, k) && ebb_elements(&c->in[k].type) != 1)
            return ebb_call_error(c, "%s is not a scalar", k == tensors ? "min" : "max");
    return NULL;
}
