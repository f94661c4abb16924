/* fast.h: kernels that are faster than the plain ones: by oneDNN (onednn.h), and by loops of our
 * own, which need nothing of it. Built with -DEBB_ONEDNN=OFF only the latter are there.
 */
#pragma once

#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "kernels/call/geometry.h"

/* Of one operand: static, of at least one element, countable; row-major, if asked. */
const char *ebb_dnnl_declines_shape(const ebb_operand *o, bool plain);
/* Every operand there is: float32, static, of at least one element. */
const char *ebb_dnnl_floats(const ebb_call *call);
/* And row-major. */
const char *ebb_dnnl_plain_floats(const ebb_call *call);
/* The same of another dtype. */
const char *ebb_dnnl_plain_of(const ebb_call *call, ebb_dtype dtype);

static inline bool ebb_dnnl_has(const ebb_call *call, uint32_t i)
{
    return i < call->input_count && call->in[i].type.dtype != EBB_NONE;
}

/* ---- families: each file ends in its array; the first that takes a call has it ---- */

#define EBB_ONEDNN_FIRST(X) X(matmul) X(pool) X(conv_pooled) X(linear_loss) X(sketch)
#define EBB_OWN_LOOPS(X) \
    X(product_tiles)     \
    X(conv_pairs) X(depthwise) X(pool_rows) X(attention) X(recurrent) X(frozen) X(halves)
#define EBB_ONEDNN_LAST(X) X(conv) X(pool_most)
#define EBB_OWN_LAST(X) X(conv_tiles)

#define EBB_DNNL_DECLARE(name)                 \
    extern const ebb_kernel ebb_dnnl_##name[]; \
    extern const size_t ebb_dnnl_##name##_count;
EBB_ONEDNN_FIRST(EBB_DNNL_DECLARE)
EBB_OWN_LOOPS(EBB_DNNL_DECLARE)
EBB_ONEDNN_LAST(EBB_DNNL_DECLARE)
EBB_OWN_LAST(EBB_DNNL_DECLARE)

#define EBB_DNNL_COUNT(name) \
    const size_t ebb_dnnl_##name##_count = sizeof ebb_dnnl_##name / sizeof ebb_dnnl_##name[0];
