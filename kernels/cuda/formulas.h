/* formulas.h: the formulas of formulas.def: which operator is which, and what their kernels take.
 *
 *     inputs --(walk)--> x y z w  \
 *     attributes -----------> p q  } value --> out[i]
 *     an input that is not there   /
 *
 * Where the innermost dims allow it a thread takes 16 bytes of each input at a time ("packs"): a
 * row of a multiple of that, each input dense along it or one value for all of it.
 */
#ifndef EBB_KERNELS_CUDA_FORMULAS_H
#define EBB_KERNELS_CUDA_FORMULAS_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ebb_formula {
#define POINTWISE(result, name, arity, value) EBB_FORMULA_##name,
#define UNARY POINTWISE
#define GRADIENT POINTWISE
#include "kernels/cuda/formulas.def"
    EBB_FORMULA_COUNT
} ebb_formula;

typedef struct ebb_formula_row {
    const char *name;
    int arity;
    bool flag; /* the result is a bool */
    const char *value;
} ebb_formula_row;

extern const ebb_formula_row ebb_formula_rows[EBB_FORMULA_COUNT];
extern const char *const ebb_formula_functions; /* the FUNCTIONs, as one text */

typedef struct ebb_formula_use { /* of a formula by an operator with attributes */
    ebb_formula formula;
    double p, q;
    double other[EBB_CUDA_INPUTS]; /* in place of inputs that are absent */
} ebb_formula_use;

/* False: the operator is none of these, or one of an input count that no formula has. */
bool ebb_formula_of(const ebb_call *c, ebb_formula_use *use);

typedef struct ebb_formula_args {
    void *out;
    const void *in[EBB_CUDA_INPUTS]; /* NULL: other */
    double other[EBB_CUDA_INPUTS];
    double p, q;
    int64_t n, packed; /* elements; how many of them in packs, a multiple of a pack */
    ebb_cuda_walk walk;
} ebb_formula_args;

/* Elements of a pack of inputs of `size` bytes, or 1: whether out and the inputs can be taken in
 * packs. An input that is NULL takes part in nothing. */
int64_t ebb_cuda_pack(const ebb_cuda_walk *w, int64_t n, const void *out, const void *const *in,
                      int count, size_t size);

/* The first `count` inputs of the call into its first output, by the formula's kernels (a row for
 * each float dtype). */
ebb_status ebb_formula_run(const ebb_call *c, const ebb_formula_use *use,
                           const ebb_gpu_kernel kernels[4], uint32_t count);

/* ---- integers and bools: integers.cu ---- */

typedef enum ebb_whole {
#define WHOLE(result, name, arity, value) EBB_WHOLE_##name,
#include "kernels/cuda/integers.def"
    EBB_WHOLE_COUNT
} ebb_whole;

/* Inputs 0 .. arity - 1, of one dtype, into output 0. Absent: the type's least (input 1) and
 * greatest (input 2). A divisor of zero is a fault. */
ebb_status ebb_whole_run(const ebb_call *c, ebb_whole what);
/* `out` and `in` in place of the call's. */
ebb_status ebb_whole_run_on(const ebb_call *c, ebb_whole what, const ebb_operand *out,
                            const ebb_operand *const *in, int count);

#ifdef __cplusplus
}
#endif
#endif
