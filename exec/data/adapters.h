/* adapters.h: low-rank adapters of a program: y = x W + s (x A') B', W frozen. */
#ifndef EBB_EXEC_DATA_ADAPTERS_H
#define EBB_EXEC_DATA_ADAPTERS_H

#include "exec/run/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One of them, as pass lora left it in the metadata of B. */
typedef struct ebb_adapter {
    ebb_value a, b, weight; /* [r, in], [out, r]; weight none: it is quantised or cast */
    bool turned;            /* the weight lies [out, in], not [in, out] */
    double scale;
} ebb_adapter;

/* The adapter whose B this initializer is; false: it is none. */
bool ebb_adapter_of(const ebb_graph *g, ebb_value b, ebb_adapter *adapter);

/* W + s A' B' of the program's values, as `to` gets them (average.h), in new memory (free) of W's type,
 * float32 or float64. */
ebb_status ebb_adapter_merge(ebb_program *program, const ebb_adapter *adapter, const ebb_graph *to,
                             void **merged);

#ifdef __cplusplus
}
#endif
#endif
