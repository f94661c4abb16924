/* few_bit_table.h: a derivative in a few levels: where one level ends and the next begins.
 *
 *      f'(x)  ~  levels[i]      where i of the borders are below x
 *
 * Our own tables minimise the sum over the pieces of the integral of (f'(x) - level)^2 w(x).
 *   flat    w = 1 on the whole line: the outer levels are the limits of f', or the error had no end
 *   normal  w is the density of N(0, 1)
 */
#pragma once

#include "onnx/words/arena.h"
#include "onnx/words/status.h"

enum { EBB_FEW_BIT_MOST = 4, EBB_FEW_BIT_LEVELS = 1 << EBB_FEW_BIT_MOST };

typedef struct ebb_few_bit_table {
    const char *function; /* one of ebb_few_bit_functions */
    unsigned bits;        /* 1 to 4: 2^bits levels, one border fewer, rising */
    double borders[EBB_FEW_BIT_LEVELS - 1], levels[EBB_FEW_BIT_LEVELS];
    double squared;  /* the integral that is minimised */
    double most;     /* largest |f' - level| */
    double rms;      /* of f' - level where x is N(0, 1) */
    double relative; /* that by the rms of f' */
} ebb_few_bit_table;

/* function: silu is x sigmoid(alpha x), elu has the slope alpha on the left; others take no alpha.
 * scratch: some hundred kilobytes. EBB_USAGE where the function is not known, bits is not 1 to 4 or
 * alpha not positive. */
ebb_status ebb_few_bit_best(ebb_few_bit_table *table, const char *function, double alpha,
                            unsigned bits, bool normal, ebb_arena *scratch);

/* The published tables of ReGELU2 and ReSiLU2, 2 bits; false for other functions. */
bool ebb_few_bit_published(ebb_few_bit_table *table, const char *function, double alpha,
                           ebb_arena *scratch);

/* A table given from outside: fills in squared, most, rms. Borders must rise. */
ebb_status ebb_few_bit_judge(ebb_few_bit_table *table, double alpha, bool normal,
                             ebb_arena *scratch);

/* The table of a function from a file: {"function", "bits", "borders", "levels", ...} as `ebb
 * few-bit --json` prints it, or a list of such. EBB_USAGE where the file has none of so many bits.
 */
ebb_status ebb_few_bit_read(ebb_few_bit_table *table, const char *path, const char *function,
                            unsigned bits);
