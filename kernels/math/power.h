/* power.h: |x|^p and the p-th root, p a whole number from 1 up: for p-norms. */
#pragma once

#include "kernels/cuda/gpu.h"

EBB_GPU_INLINE double ebb_cuda_power(double x, int64_t p)
{
    return p == 1 ? fabs(x) : p == 2 ? x * x : pow(fabs(x), (double)p);
}

EBB_GPU_INLINE double ebb_cuda_root(double x, int64_t p)
{
    return p == 1 ? x : p == 2 ? sqrt(x) : pow(x, 1.0 / (double)p);
}
