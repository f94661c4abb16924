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
    int64_t from;           /* where its rows begin in the weight: q, k and v lie in one */
    bool by_root;           /* scale is alpha / sqrt(r), not alpha / r */
    double scale;
} ebb_adapter;

/* The adapter whose B this initializer is; false: it is none. */
bool ebb_adapter_of(const ebb_graph *g, ebb_value b, ebb_adapter *adapter);

/* W + s A' B' for all adapters of its weight, of the program's values, as `to` gets them (average.h), in new memory (free) of W's type,
 * float32 or float64. */
ebb_status ebb_adapter_merge(ebb_program *program, const ebb_adapter *adapter, const ebb_graph *to,
                             void **merged);

/* ---- adapters_peft.c ---- */

/* Whether adapters saved to `path` are a folder as PEFT has it: one that is there, or a name without an
 * ending. */
bool ebb_adapters_is_folder(const char *path);

typedef struct ebb_adapter_facts { /* of one that is saved */
    const char *module;
    int64_t rank;
    double alpha;
} ebb_adapter_facts;

/* adapter_config.json, beside the tensors. whole: modules that are trained as they are. */
ebb_status ebb_adapters_write_config(const char *folder, const ebb_adapter_facts *list,
                                     size_t count, bool by_root, const char *const *whole,
                                     size_t whole_count);

#ifdef __cplusplus
}
#endif
#endif
