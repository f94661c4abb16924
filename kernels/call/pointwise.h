/* pointwise.h: what a call of a pointwise operator says, by its row of kernels/math/pointwise.def. */
#pragma once

#include "kernels/kernels.h"

EBB_C_BEGIN

typedef enum ebb_formula {
#define POINTWISE(op, ...) EBB_FORMULA_##op,
#include "kernels/math/pointwise.def"
    EBB_FORMULA_COUNT
} ebb_formula;

typedef enum ebb_formula_kind {
    EBB_FORMULA_ONE,
    EBB_FORMULA_PAIR,
    EBB_FORMULA_TWO,
    EBB_FORMULA_MANY,
    EBB_FORMULA_POWER,
    EBB_FORMULA_CHOICE
} ebb_formula_kind;

enum { EBB_ANY, EBB_REALS, EBB_WHOLES, EBB_NUMBERS, EBB_FLAGS, EBB_ALL = 7 };
enum { EBB_FORMULA_INPUTS = 4 }; /* at most, of a formula */

/* X(...) where a row's dtypes have floats, integers or bools among them, else nothing. */
#define EBB_REALS_OF_REALS(X, ...) X(__VA_ARGS__)
#define EBB_REALS_OF_NUMBERS(X, ...) X(__VA_ARGS__)
#define EBB_REALS_OF_ALL(X, ...) X(__VA_ARGS__)
#define EBB_REALS_OF_WHOLES(X, ...)
#define EBB_REALS_OF_FLAGS(X, ...)
#define EBB_REALS_OF_ANY(X, ...)
#define EBB_WHOLES_OF_WHOLES(X, ...) X(__VA_ARGS__)
#define EBB_WHOLES_OF_NUMBERS(X, ...) X(__VA_ARGS__)
#define EBB_WHOLES_OF_ALL(X, ...) X(__VA_ARGS__)
#define EBB_WHOLES_OF_REALS(X, ...)
#define EBB_WHOLES_OF_FLAGS(X, ...)
#define EBB_WHOLES_OF_ANY(X, ...)
#define EBB_FLAGS_OF_FLAGS(X, ...) X(__VA_ARGS__)
#define EBB_FLAGS_OF_ALL(X, ...) X(__VA_ARGS__)
#define EBB_FLAGS_OF_REALS(X, ...)
#define EBB_FLAGS_OF_WHOLES(X, ...)
#define EBB_FLAGS_OF_NUMBERS(X, ...)
#define EBB_FLAGS_OF_ANY(X, ...)

typedef struct ebb_formula_row {
    ebb_formula_kind kind;
    uint32_t inputs;
    unsigned dtypes; /* EBB_REALS | ... */
    bool flag;       /* the result is a bool */
} ebb_formula_row;

extern const ebb_formula_row ebb_formula_rows[EBB_FORMULA_COUNT];

typedef struct ebb_formula_use { /* of a formula by a call */
    ebb_formula formula;
    double p, q;
    double absent[EBB_FORMULA_INPUTS]; /* floats in place of inputs that are not there */
} ebb_formula_use;

/* False: the operator is none of the rows. */
bool ebb_formula_of(const ebb_call *c, ebb_formula_use *use);

/* Why no kernel of these takes the call, or NULL. halves: float16 and bfloat16 are taken. */
const char *ebb_formula_misfit(const ebb_call *c, bool halves);

/* Are the scalars behind the tensors of a ONE or a PAIR scalars? */
ebb_status ebb_formula_check(const ebb_call *c, ebb_formula formula);

EBB_C_END
