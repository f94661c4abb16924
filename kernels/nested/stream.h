/* stream.h: kernels for operands that are decoded one tile at a time (onnx/graph/tile.h). */
#ifndef EBB_KERNELS_NESTED_STREAM_H
#define EBB_KERNELS_NESTED_STREAM_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const ebb_kernel ebb_kernel_decoder; /* does nothing: its reader asks for its tiles */
extern const ebb_kernel ebb_kernel_stream;  /* the reader: decodes and computes tile by tile */

static inline bool ebb_reads_stream(const ebb_call *call)
{
    for (uint32_t i = 0; i < call->input_count; i++)
        if (call->in[i].source != NULL)
            return true;
    return false;
}

#ifdef __cplusplus
}
#endif
#endif
