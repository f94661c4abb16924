/* stream.h: kernels for operands that are decoded one tile at a time (onnx/graph/tile.h). */
#pragma once

#include "kernels/kernels.h"

extern const ebb_kernel ebb_kernel_decoder; /* does nothing: its reader asks for its tiles */
extern const ebb_kernel ebb_kernel_stream;  /* the reader: decodes and computes tile by tile */

static inline bool ebb_reads_stream(const ebb_call *call)
{
    for (uint32_t i = 0; i < call->input_count; i++)
        if (call->in[i].source != NULL)
            return true;
    return false;
}
