/* pointwise.cu: the operators of kernels/math/pointwise.def: a kernel for each formula and float type,
 * one kernel for all integers and bools, since it waits for memory whatever it computes.
 *
 *     inputs --(walk)--> x y z w  \
 *     attributes -----------> p q  } value --> out[i]
 *     an input that is not there   /
 *
 * Where the innermost dims allow it a thread takes 16 bytes of each input at a time ("packs"): a
 * row of a multiple of that, each input dense along it or one value for all of it.
 */
#include "kernels/call/pointwise.h"
#include "kernels/cuda/elements.h"
#include "kernels/math/whole.h"

typedef struct pointwise_args {
    void *out;
    const void *in[EBB_CUDA_INPUTS]; /* NULL: absent */
    double absent[EBB_CUDA_INPUTS];
    double p, q;
    int64_t n, packed; /* elements; how many of them in packs, a multiple of a pack */
    ebb_cuda_walk walk;
} pointwise_args;

/* Base and exponent may differ in dtype; the result has the base's. */
typedef struct power_args {
    void *out;
    const void *base, *exponent;
    int64_t n;
    uint8_t of, by; /* dtypes */
    bool scalar, whole;
    ebb_cuda_walk walk;
} power_args;

#define KERNELS "kernels/cuda/pointwise_kernels.inc"
#include "kernels/cuda/all_floats.inc"

static ebb_gpu_kernel kernel_of(ebb_formula formula, uint8_t dtype)
{
    switch (formula) {
#define CASE(op)                                                   \
    case EBB_FORMULA_##op: {                                       \
        static const ebb_gpu_kernel each[4] = EBB_CUDA_FLOATS(op); \
        return each[ebb_cuda_float_row(dtype)];                    \
    }
#define POINTWISE(op, name, kind, inputs, dtypes, ...) EBB_REALS_OF_##dtypes(CASE, op)
#include "kernels/math/pointwise.def"
#undef CASE
    default:
        return NULL;
    }
}

/* ---- floats ---- */

/* Elements of a pack of inputs of `size` bytes, or 1: whether out and the inputs can be taken in
 * packs. An input that is NULL takes part in nothing. */
static int64_t pack_of(const ebb_cuda_walk *w, int64_t n, const void *out, const void *const *in,
                       int count, size_t size)
{
    int64_t lanes = (int64_t)(16 / size);
    if (w->rank < 1 || (w->rank > 1 && w->dims[0] % lanes != 0) || n < lanes ||
        (uintptr_t)out % 16 != 0)
        return 1;
    for (int k = 0; k < count; k++) {
        if (in[k] == NULL || w->stride[k][0] == 0)
            continue;
        if (w->stride[k][0] != 1 || (uintptr_t)in[k] % 16 != 0)
            return 1;
        for (int d = 1; d < w->rank; d++)
            if (w->stride[k][d] % lanes != 0)
                return 1;
    }
    return lanes;
}

/* The types of the inputs, of which those that are absent are scalars, and where they lie. */
static void find_inputs(const ebb_call *c, const ebb_type *scalar, int count,
                        const ebb_type **types, const void **data)
{
    for (int k = 0; k < count; k++) {
        bool there = ebb_call_has(c, k);
        types[k] = there ? &c->in[k].type : scalar;
        data[k] = there ? c->in[k].data : NULL;
    }
}

static ebb_status run_floats(const ebb_call *c, const ebb_formula_use *use)
{
    const ebb_type *in[EBB_CUDA_INPUTS], *out = &c->out[0].type;
    const ebb_type scalar = ebb_type_tensor((ebb_dtype)c->in[0].type.dtype, 0, NULL);
    const int count = (int)ebb_formula_rows[use->formula].inputs;
    pointwise_args a;
    memset(&a, 0, sizeof a);
    a.out = c->out[0].data;
    a.p = use->p;
    a.q = use->q;
    a.n = ebb_elements(out);
    memcpy(a.absent, use->absent, sizeof a.absent);
    find_inputs(c, &scalar, count, in, a.in);
    ebb_cuda_walk_make(&a.walk, out, in, count);
    int64_t lanes = pack_of(&a.walk, a.n, a.out, a.in, count, ebb_element_bytes(&scalar));
    a.packed = lanes > 1 ? a.n / lanes * lanes : 0;
    int64_t pieces = a.packed / lanes > a.n - a.packed ? a.packed / lanes : a.n - a.packed;
    return EBB_LAUNCH(c, kernel_of(use->formula, scalar.dtype), ebb_cuda_grid(pieces),
                      EBB_CUDA_BLOCK, 0, a);
}

/* ---- integers and bools ---- */

typedef struct whole_args {
    void *out;
    const void *in[EBB_CUDA_INPUTS]; /* NULL: absent */
    int64_t absent[EBB_CUDA_INPUTS];
    int64_t n;
    int32_t formula;
    uint8_t dtype[EBB_CUDA_INPUTS]; /* the result's, if it is no flag, is the first */
    uint32_t bits;
    bool p, flag, has_sign, divides;
    uint32_t position;
    ebb_cuda_step *step;
    ebb_cuda_walk walk;
} whole_args;

#define T int64_t
#define U uint64_t
#define SIGNED 1
#define NAMED(x) x##_signed
#include "kernels/cuda/pointwise_wholes.inc"
#undef T
#undef SIGNED
#undef NAMED
#define T uint64_t
#define SIGNED 0
#define NAMED(x) x##_unsigned
#include "kernels/cuda/pointwise_wholes.inc"
#undef T
#undef U
#undef SIGNED
#undef NAMED

EBB_GPU_INLINE int64_t take(const whole_args *a, int k, int64_t i)
{
    if (a->in[k] == NULL)
        return a->absent[k];
    int64_t v = ebb_load_whole(a->in[k], ebb_cuda_at(&a->walk, k, i), a->dtype[k]);
    return a->dtype[k] == EBB_BOOL ? v != 0 : v;
}

EBB_GLOBAL(whole, whole_args)
{
    EBB_GRID_LOOP(i, a.n)
    {
        int64_t x = take(&a, 0, i), y = take(&a, 1, i), z = take(&a, 2, i), w = take(&a, 3, i);
        if (a.divides && y == 0) {
            (void)ebb_cuda_inside(a.step, a.position, ebb_cuda_at(&a.walk, 1, i), EBB_CUDA_ZERO_LOW,
                                  EBB_CUDA_ZERO_HIGH);
            continue;
        }
        int64_t v = a.has_sign ? value_signed(&a, x, y, z, w)
                               : (int64_t)value_unsigned(&a, (uint64_t)x, (uint64_t)y, (uint64_t)z,
                                                         (uint64_t)w);
        if (a.flag)
            ((uint8_t *)a.out)[i] = (uint8_t)v;
        else
            ebb_store_whole(a.out, i, a.dtype[0], v, false);
    }
}

static ebb_status run_wholes(const ebb_call *c, const ebb_formula_use *use)
{
    const ebb_formula_row *row = &ebb_formula_rows[use->formula];
    const ebb_type *in[EBB_CUDA_INPUTS];
    const ebb_dtype dtype = (ebb_dtype)c->in[0].type.dtype;
    const ebb_type scalar = ebb_type_tensor(dtype, 0, NULL);
    whole_args a;
    memset(&a, 0, sizeof a);
    a.out = c->out[0].data;
    a.n = ebb_elements(&c->out[0].type);
    a.formula = (int32_t)use->formula;
    a.bits = ebb_dtype_bits(dtype);
    a.p = use->p != 0;
    a.flag = row->flag;
    a.has_sign = dtype == EBB_I8 || dtype == EBB_I16 || dtype == EBB_I32 || dtype == EBB_I64;
    a.divides = c->op == EBB_OP_DIV || c->op == EBB_OP_MOD;
    a.position = c->position;
    a.step = ebb_cuda_queue_of(c)->step;
    if (row->kind == EBB_FORMULA_ONE) { // the bounds of Clip
        a.absent[1] = a.has_sign ? INT64_MIN : 0;
        a.absent[2] = ~a.absent[1];
    }
    find_inputs(c, &scalar, EBB_CUDA_INPUTS, in, a.in);
    for (int k = 0; k < EBB_CUDA_INPUTS; k++)
        a.dtype[k] = in[k]->dtype;
    ebb_cuda_walk_make(&a.walk, &c->out[0].type, in, EBB_CUDA_INPUTS);
    return EBB_LAUNCH(c, whole, ebb_cuda_grid(a.n), EBB_CUDA_BLOCK, 0, a);
}

static ebb_status run_formula(const ebb_call *c, const ebb_formula_use *use)
{
    return ebb_dtype_is_float((ebb_dtype)c->in[0].type.dtype) ? run_floats(c, use)
                                                              : run_wholes(c, use);
}

/* ---- Pow ---- */

EBB_GLOBAL(pow_whole, power_args)
{
    EBB_GRID_LOOP(i, a.n)
    {
        int64_t base = ebb_load_whole(a.base, ebb_cuda_at(&a.walk, 0, i), a.of);
        double x = a.of == EBB_U64 ? (double)(uint64_t)base : (double)base;
        double y = ebb_load_real(a.exponent, ebb_cuda_at(&a.walk, 1, i), a.by);
        ebb_store_whole(a.out, i, a.of, ebb_whole_real_power(x, y), false);
    }
}

static const ebb_gpu_kernel other_pows[4] = EBB_CUDA_FLOATS(pow_other);

static ebb_status run_power(const ebb_call *c, ebb_formula_use *use)
{
    const ebb_type *in[2] = {&c->in[0].type, &c->in[1].type};
    const bool of_floats = ebb_dtype_is_float((ebb_dtype)in[0]->dtype);
    power_args a;
    memset(&a, 0, sizeof a);
    a.out = c->out[0].data;
    a.base = c->in[0].data;
    a.exponent = c->in[1].data;
    a.n = ebb_elements(&c->out[0].type);
    a.of = in[0]->dtype;
    a.by = in[1]->dtype;
    a.scalar = ebb_elements(in[1]) == 1;
    a.whole = !ebb_dtype_is_float((ebb_dtype)a.by);
    use->p = a.scalar ? 1 : 0;
    if (of_floats ? a.of == a.by : a.whole)
        return run_formula(c, use);
    ebb_cuda_walk_make(&a.walk, &c->out[0].type, in, 2);
    return EBB_LAUNCH(c,
                      of_floats ? other_pows[ebb_cuda_float_row(a.of)] : (ebb_gpu_kernel)pow_whole,
                      ebb_cuda_grid(a.n), EBB_CUDA_BLOCK, 0, a);
}

/* ---- any number of inputs ---- */

/* As many as the formula takes into out, then out and some more, ...: so out may share memory with
 * input 0 or 1. What is divided by p is so in the last turn. */
static ebb_status run_many(const ebb_call *c, const ebb_formula_use *use)
{
    const uint32_t most = ebb_formula_rows[use->formula].inputs;
    ebb_operand in[EBB_CUDA_INPUTS];
    ebb_formula_use turn = *use;
    ebb_call part = *c;
    part.in = in;
    if (c->input_count == 1)
        return c->out[0].data == c->in[0].data || c->out[0].bytes == 0
                   ? NULL
                   : ebb_gpu_copy(ebb_cuda_queue_of(c)->stream, c->out[0].data, c->in[0].data,
                                  c->out[0].bytes, EBB_ON_DEVICE);
    for (uint32_t k = 0; k < c->input_count;) {
        uint32_t count = 0;
        if (k > 0)
            in[count++] = c->out[0];
        while (count < most && k < c->input_count)
            in[count++] = c->in[k++];
        part.input_count = count;
        turn.p = k < c->input_count ? 1 : use->p;
        EBB_TRY(run_formula(&part, &turn));
    }
    return NULL;
}

/* ---- Where ---- */

typedef struct where_args {
    void *out;
    const void *in[3];
    int64_t n, packed;
    ebb_cuda_walk walk;
} where_args;

#define WHERE(T, size)                                                                         \
    typedef struct pack_##size {                                                               \
        T v[16 / size];                                                                        \
    } EBB_ALIGN(16) pack_##size;                                                               \
    typedef struct flags_##size {                                                              \
        uint8_t v[16 / size];                                                                  \
    } EBB_ALIGN(16 / size) flags_##size;                                                       \
    EBB_GPU_INLINE pack_##size take_##size(const where_args *a, int k, int64_t i)              \
    {                                                                                          \
        const T *from = (const T *)a->in[k] + ebb_cuda_at(&a->walk, k, i);                     \
        pack_##size pack;                                                                      \
        if (a->walk.stride[k][0] != 0)                                                         \
            return *(const pack_##size *)(const void *)from;                                   \
        for (int l = 0; l < 16 / size; l++)                                                    \
            pack.v[l] = *from;                                                                 \
        return pack;                                                                           \
    }                                                                                          \
    EBB_GLOBAL(where_##size, where_args)                                                       \
    {                                                                                          \
        const uint8_t *condition = (const uint8_t *)a.in[0];                                   \
        T *out = (T *)a.out;                                                                   \
        EBB_GRID_LOOP(g, a.packed / (16 / size))                                               \
        {                                                                                      \
            int64_t i = g * (16 / size);                                                       \
            const uint8_t *p = condition + ebb_cuda_at(&a.walk, 0, i);                         \
            flags_##size f;                                                                    \
            pack_##size x = take_##size(&a, 1, i), y = take_##size(&a, 2, i);                  \
            if (a.walk.stride[0][0] != 0)                                                      \
                f = *(const flags_##size *)(const void *)p;                                    \
            else                                                                               \
                for (int l = 0; l < 16 / size; l++)                                            \
                    f.v[l] = *p;                                                               \
            EBB_UNROLL                                                                         \
            for (int l = 0; l < 16 / size; l++)                                                \
                x.v[l] = f.v[l] != 0 ? x.v[l] : y.v[l];                                        \
            *(pack_##size *)(void *)(out + i) = x;                                             \
        }                                                                                      \
        EBB_GRID_LOOP(j, a.n - a.packed)                                                       \
        {                                                                                      \
            int64_t i = a.packed + j;                                                          \
            bool first = condition[ebb_cuda_at(&a.walk, 0, i)] != 0;                           \
            out[i] = ((const T *)a.in[first ? 1 : 2])[ebb_cuda_at(&a.walk, first ? 1 : 2, i)]; \
        }                                                                                      \
    }
WHERE(uint8_t, 1)
WHERE(uint16_t, 2)
WHERE(uint32_t, 4)
WHERE(uint64_t, 8)

static ebb_status run_where(const ebb_call *c)
{
    const ebb_type *in[3] = {&c->in[0].type, &c->in[1].type, &c->in[2].type};
    size_t size = ebb_element_bytes(&c->out[0].type);
    where_args a;
    memset(&a, 0, sizeof a);
    a.out = c->out[0].data;
    for (int k = 0; k < 3; k++)
        a.in[k] = c->in[k].data;
    a.n = ebb_elements(&c->out[0].type);
    ebb_cuda_walk_make(&a.walk, &c->out[0].type, in, 3);
    int64_t lanes = pack_of(&a.walk, a.n, a.out, a.in, 3, size);
    a.packed = lanes > 1 ? a.n / lanes * lanes : 0;
    int64_t pieces = a.packed / lanes > a.n - a.packed ? a.packed / lanes : a.n - a.packed;
    ebb_gpu_kernel kernel = size == 1   ? (ebb_gpu_kernel)where_1
                            : size == 2 ? (ebb_gpu_kernel)where_2
                            : size == 4 ? (ebb_gpu_kernel)where_4
                                        : (ebb_gpu_kernel)where_8;
    return EBB_LAUNCH(c, kernel, ebb_cuda_grid(pieces), EBB_CUDA_BLOCK, 0, a);
}

/* ---- the table ---- */

static ebb_status run(const ebb_call *c)
{
    ebb_formula_use use;
    (void)ebb_formula_of(c, &use);
    switch (ebb_formula_rows[use.formula].kind) {
    case EBB_FORMULA_CHOICE:
        return run_where(c);
    case EBB_FORMULA_MANY:
        return run_many(c, &use);
    case EBB_FORMULA_POWER:
        return run_power(c, &use);
    default:
        EBB_TRY(ebb_formula_check(c, use.formula));
        return run_formula(c, &use);
    }
}

static const char *declines(const ebb_call *c)
{
    return ebb_formula_misfit(c, true);
}

// clang-format off
const ebb_kernel ebb_cuda_pointwise[] = {
#define POINTWISE(id, word, ...) {.name = "cuda." #word, .op = EBB_OP_##id, .fits = declines, .run = run},
#include "kernels/math/pointwise.def"
};
// clang-format on
EBB_CUDA_COUNT(pointwise)
