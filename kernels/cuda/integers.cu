/* integers.cu: the pointwise operators on integers and bools: a kernel for each type. */
#include "kernels/cuda/formulas.h"

enum { INPUTS = 3 };

typedef struct whole_args {
    void *out;
    const void *in[INPUTS]; /* NULL: other */
    int64_t other[INPUTS];
    int64_t n;
    int32_t what; /* ebb_whole */
    bool flag, divides;
    uint32_t position;
    ebb_cuda_step *step;
    ebb_cuda_walk walk;
} whole_args;

/* The one quotient that does not fit wraps around. */
EBB_GPU_INLINE int64_t quotient(int64_t a, int64_t b)
{
    return b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}

EBB_GPU_INLINE int64_t rest(int64_t a, int64_t b)
{
    return b == -1 ? 0 : a % b;
}

EBB_GPU_INLINE int64_t floor_rest(int64_t a, int64_t b)
{
    int64_t r = rest(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

#define T uint8_t
#define U uint32_t
#define SIGNED 0
#define NAMED(x) x##_u8
#include "kernels/cuda/integers_kernels.inc"
#undef T
#undef U
#undef SIGNED
#undef NAMED

#define T int8_t
#define U uint32_t
#define SIGNED 1
#define NAMED(x) x##_i8
#include "kernels/cuda/integers_kernels.inc"
#undef T
#undef U
#undef SIGNED
#undef NAMED

#define T uint16_t
#define U uint32_t
#define SIGNED 0
#define NAMED(x) x##_u16
#include "kernels/cuda/integers_kernels.inc"
#undef T
#undef U
#undef SIGNED
#undef NAMED

#define T int16_t
#define U uint32_t
#define SIGNED 1
#define NAMED(x) x##_i16
#include "kernels/cuda/integers_kernels.inc"
#undef T
#undef U
#undef SIGNED
#undef NAMED

#define T uint32_t
#define U uint32_t
#define SIGNED 0
#define NAMED(x) x##_u32
#include "kernels/cuda/integers_kernels.inc"
#undef T
#undef U
#undef SIGNED
#undef NAMED

#define T int32_t
#define U uint32_t
#define SIGNED 1
#define NAMED(x) x##_i32
#include "kernels/cuda/integers_kernels.inc"
#undef T
#undef U
#undef SIGNED
#undef NAMED

#define T uint64_t
#define U uint64_t
#define SIGNED 0
#define NAMED(x) x##_u64
#include "kernels/cuda/integers_kernels.inc"
#undef T
#undef U
#undef SIGNED
#undef NAMED

#define T int64_t
#define U uint64_t
#define SIGNED 1
#define NAMED(x) x##_i64
#include "kernels/cuda/integers_kernels.inc"
#undef T
#undef U
#undef SIGNED
#undef NAMED

static ebb_gpu_kernel kernel_of(uint8_t dtype)
{
    switch (dtype) {
    case EBB_I8:
        return (ebb_gpu_kernel)whole_i8;
    case EBB_U16:
        return (ebb_gpu_kernel)whole_u16;
    case EBB_I16:
        return (ebb_gpu_kernel)whole_i16;
    case EBB_U32:
        return (ebb_gpu_kernel)whole_u32;
    case EBB_I32:
        return (ebb_gpu_kernel)whole_i32;
    case EBB_U64:
        return (ebb_gpu_kernel)whole_u64;
    case EBB_I64:
        return (ebb_gpu_kernel)whole_i64;
    default: // and bool
        return (ebb_gpu_kernel)whole_u8;
    }
}

static bool is_signed(uint8_t dtype)
{
    return dtype == EBB_I8 || dtype == EBB_I16 || dtype == EBB_I32 || dtype == EBB_I64;
}

#define RESULT_NUMBER false
#define RESULT_FLAG true
static const bool flags[] = {
#define WHOLE(result, name, arity, value) RESULT_##result,
#include "kernels/cuda/integers.def"
};

ebb_status ebb_whole_run_on(const ebb_call *c, ebb_whole what, const ebb_operand *out,
                            const ebb_operand *const *in, int count)
{
    const ebb_type scalar = ebb_type_tensor((ebb_dtype)in[0]->type.dtype, 0, NULL);
    const ebb_type *types[INPUTS] = {&scalar, &scalar, &scalar};
    unsigned bits = ebb_dtype_bits((ebb_dtype)in[0]->type.dtype);
    whole_args a;
    memset(&a, 0, sizeof a);
    for (int k = 0; k < count; k++)
        if (in[k] != NULL) {
            types[k] = &in[k]->type;
            a.in[k] = in[k]->data;
        }
    a.out = out->data;
    a.other[1] = is_signed(in[0]->type.dtype) ? (int64_t)(~(uint64_t)0 << (bits - 1)) : 0;
    a.other[2] = ~a.other[1];
    a.n = ebb_elements(&out->type);
    a.what = (int32_t)what;
    a.flag = flags[what];
    a.divides = what == EBB_WHOLE_div || what == EBB_WHOLE_mod || what == EBB_WHOLE_fmod;
    a.position = c->position;
    a.step = ebb_cuda_queue_of(c)->step;
    ebb_cuda_walk_make(&a.walk, &out->type, types, INPUTS);
    return EBB_LAUNCH(c, kernel_of(in[0]->type.dtype), ebb_cuda_grid(a.n), EBB_CUDA_BLOCK, 0, a);
}

ebb_status ebb_whole_run(const ebb_call *c, ebb_whole what)
{
    const ebb_operand *in[INPUTS] = {NULL, NULL, NULL};
    for (uint32_t k = 0; k < INPUTS; k++)
        if (ebb_call_has(c, k))
            in[k] = &c->in[k];
    return ebb_whole_run_on(c, what, &c->out[0], in, INPUTS);
}
