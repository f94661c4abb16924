/* cbc.h: COIN-OR's CBC, a solver of mixed integer programs, by its C interface. It is opened when it is
 * first asked for: who never asks needs neither it nor the linear algebra that comes with it.
 */
#pragma once

#include "onnx/words/status.h"

typedef struct ebb_cbc_model ebb_cbc_model; /* its own */

/* Cbc_C_Interface.h of version 2.10: what each is called there stands beside it. Indices are ints, as
 * it is built by default. */
#define EBB_CBC_CALLS(X)                                                                   \
    X(ebb_cbc_model *, create, Cbc_newModel, (void))                                       \
    X(void, release, Cbc_deleteModel, (ebb_cbc_model *))                                   \
    X(void, set_log_level, Cbc_setLogLevel, (ebb_cbc_model *, int))                        \
    X(void, set_gap, Cbc_setAllowableGap, (ebb_cbc_model *, double))                       \
    X(void, set_most_nodes, Cbc_setMaximumNodes, (ebb_cbc_model *, int))                   \
    X(void, set_integer, Cbc_setInteger, (ebb_cbc_model *, int))                           \
    X(void, load, Cbc_loadProblem,                                                         \
      (ebb_cbc_model *, int columns, int rows, const int *start, const int *row,           \
       const double *factor, const double *lower, const double *upper, const double *cost, \
       const double *row_lower, const double *row_upper))                                  \
    X(int, solve, Cbc_solve, (ebb_cbc_model *))                                            \
    X(int, is_infeasible, Cbc_isProvenInfeasible, (ebb_cbc_model *))                       \
    X(const double *, solution, Cbc_bestSolution, (ebb_cbc_model *))

#define EBB_CBC_FIELD(result, field, name, parameters) result(*field) parameters;
typedef struct ebb_cbc {
    EBB_CBC_CALLS(EBB_CBC_FIELD)
} ebb_cbc;
#undef EBB_CBC_FIELD

/* EBB_UNSUPPORTED: it is not on this machine. */
ebb_status ebb_cbc_open(const ebb_cbc **cbc);
