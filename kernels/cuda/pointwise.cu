/* pointwise.cu: operators of two and more inputs, broadcast: arithmetic, comparison, logic, bits,
 * Where. Floats by formulas.def, integers and bools by integers.cu. */
#include "kernels/cuda/elements.h"
#include "kernels/cuda/formulas.h"

/* Base and exponent may differ in dtype; the result has the base's. */
typedef struct pow_args {
    void *out;
    const void *base, *exponent;
    int64_t n;
    uint8_t of, by; /* dtypes */
    bool scalar, whole;
    ebb_cuda_walk walk;
} pow_args;

#define KERNELS "kernels/cuda/pointwise_kernels.inc"
#include "kernels/cuda/all_floats.inc"

static const ebb_gpu_kernel kernels[][4] = {
#define POINTWISE(result, name, arity, value) EBB_CUDA_FLOATS(name),
#include "kernels/cuda/formulas.def"
};

static bool is_float(const ebb_operand *o)
{
    return ebb_dtype_is_float((ebb_dtype)o->type.dtype);
}

static ebb_status run_floats(const ebb_call *c)
{
    ebb_formula_use use;
    (void)ebb_formula_of(c, &use);
    return ebb_formula_run(c, &use, kernels[use.formula], c->input_count);
}

/* ---- two inputs ---- */

static ebb_status run_numbers(const ebb_call *c)
{
    if (is_float(&c->in[0]))
        return run_floats(c);
    switch (c->op) {
    case EBB_OP_ADD:
        return ebb_whole_run(c, EBB_WHOLE_add);
    case EBB_OP_SUB:
        return ebb_whole_run(c, EBB_WHOLE_sub);
    case EBB_OP_MUL:
        return ebb_whole_run(c, EBB_WHOLE_mul);
    case EBB_OP_DIV:
        return ebb_whole_run(c, EBB_WHOLE_div);
    case EBB_OP_MOD:
        return ebb_whole_run(c, ebb_attr_int(&c->attrs, "fmod", 0) != 0 ? EBB_WHOLE_fmod
                                                                        : EBB_WHOLE_mod);
    case EBB_OP_EQUAL:
        return ebb_whole_run(c, c->in[0].type.dtype == EBB_BOOL ? EBB_WHOLE_equal_flags
                                                                : EBB_WHOLE_equal);
    case EBB_OP_GREATER:
        return ebb_whole_run(c, EBB_WHOLE_greater);
    case EBB_OP_GREATER_OR_EQUAL:
        return ebb_whole_run(c, EBB_WHOLE_greater_equal);
    case EBB_OP_LESS:
        return ebb_whole_run(c, EBB_WHOLE_less);
    default:
        return ebb_whole_run(c, EBB_WHOLE_less_equal);
    }
}

static ebb_status run_logic(const ebb_call *c)
{
    return ebb_whole_run(c, c->op == EBB_OP_AND  ? EBB_WHOLE_both
                            : c->op == EBB_OP_OR ? EBB_WHOLE_either
                                                 : EBB_WHOLE_one_of_two);
}

static ebb_status run_bits(const ebb_call *c)
{
    bool left = strcmp(ebb_attr_string(&c->attrs, "direction", ""), "LEFT") == 0;
    switch (c->op) {
    case EBB_OP_BITWISE_AND:
        return ebb_whole_run(c, EBB_WHOLE_bit_and);
    case EBB_OP_BITWISE_OR:
        return ebb_whole_run(c, EBB_WHOLE_bit_or);
    case EBB_OP_BITWISE_XOR:
        return ebb_whole_run(c, EBB_WHOLE_bit_xor);
    default:
        return ebb_whole_run(c, left ? EBB_WHOLE_shift_left : EBB_WHOLE_shift_right);
    }
}

/* ---- Pow ---- */

EBB_GPU_INLINE int64_t integer_power(int64_t base, int64_t exponent)
{
    if (exponent < 0)
        return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
    uint64_t result = 1, square = (uint64_t)base;
    for (; exponent > 0; exponent >>= 1, square *= square)
        if ((exponent & 1) != 0)
            result *= square;
    return (int64_t)result;
}

/* Integer to a float power: truncated, and held inside the type. */
EBB_GPU_INLINE int64_t rounded_power(double base, double exponent)
{
    double v = trunc(pow(base, exponent));
    return v != v ? 0 : v >= 9.2e18 ? INT64_MAX : v <= -9.2e18 ? INT64_MIN : (int64_t)v;
}

EBB_GLOBAL(pow_whole, pow_args)
{
    EBB_GRID_LOOP(i, a.n)
    {
        int64_t at = ebb_cuda_at(&a.walk, 1, i);
        int64_t base = ebb_load_whole(a.base, ebb_cuda_at(&a.walk, 0, i), a.of);
        double real = a.of == EBB_U64 ? (double)(uint64_t)base : (double)base;
        int64_t v = a.whole ? integer_power(base, ebb_load_whole(a.exponent, at, a.by))
                            : rounded_power(real, ebb_load_real(a.exponent, at, a.by));
        ebb_store_whole(a.out, i, a.of, v, false);
    }
}

static const ebb_gpu_kernel other_pows[4] = EBB_CUDA_FLOATS(pow_other);

static ebb_status run_pow(const ebb_call *c)
{
    const ebb_type *in[2] = {&c->in[0].type, &c->in[1].type};
    pow_args a;
    memset(&a, 0, sizeof a);
    a.out = c->out[0].data;
    a.base = c->in[0].data;
    a.exponent = c->in[1].data;
    a.n = ebb_elements(&c->out[0].type);
    a.of = in[0]->dtype;
    a.by = in[1]->dtype;
    a.scalar = ebb_elements(in[1]) == 1;
    a.whole = !is_float(&c->in[1]);
    if (is_float(&c->in[0]) && a.of == a.by) {
        ebb_formula_use use;
        (void)ebb_formula_of(c, &use);
        use.p = a.scalar ? 1 : 0;
        return ebb_formula_run(c, &use, kernels[use.formula], 2);
    }
    ebb_cuda_walk_make(&a.walk, &c->out[0].type, in, 2);
    if (is_float(&c->in[0]))
        return EBB_LAUNCH(c, other_pows[ebb_cuda_float_row(a.of)], ebb_cuda_grid(a.n),
                          EBB_CUDA_BLOCK, 0, a);
    return EBB_LAUNCH(c, pow_whole, ebb_cuda_grid(a.n), EBB_CUDA_BLOCK, 0, a);
}

/* ---- any number of inputs ---- */

static ebb_status run_copy(const ebb_call *c)
{
    if (c->out[0].data == c->in[0].data || c->out[0].bytes == 0)
        return NULL;
    return ebb_gpu_copy(ebb_cuda_queue_of(c)->stream, c->out[0].data, c->in[0].data,
                        c->out[0].bytes, EBB_ON_DEVICE);
}

/* `most` inputs into out, then out and `most - 1` more, ...: so out may share memory with input 0
 * or 1. step() runs one such call; the last one may be told by its `rest` of 0. */
static ebb_status in_turns(const ebb_call *c, uint32_t most,
                           ebb_status (*step)(const ebb_call *whole, const ebb_call *part,
                                              uint32_t rest))
{
    ebb_operand in[EBB_CUDA_INPUTS];
    ebb_call part = *c;
    part.in = in;
    for (uint32_t k = 0; k < c->input_count;) {
        uint32_t count = 0;
        if (k > 0)
            in[count++] = c->out[0];
        while (count < most && k < c->input_count)
            in[count++] = c->in[k++];
        part.input_count = count;
        EBB_TRY(step(c, &part, c->input_count - k));
    }
    return NULL;
}

static ebb_status add_step(const ebb_call *c, const ebb_call *part, uint32_t rest)
{
    ebb_formula_use use;
    (void)ebb_formula_of(c, &use);
    if (rest > 0)
        use.p = 1;
    return ebb_formula_run(part, &use, kernels[use.formula], part->input_count);
}

static ebb_status add_wholes(const ebb_call *c, const ebb_call *part, uint32_t rest)
{
    (void)c;
    (void)rest;
    return ebb_whole_run(part, EBB_WHOLE_add);
}

static ebb_status run_sum(const ebb_call *c) // and Mean, of floats alone
{
    if (c->input_count == 1)
        return run_copy(c);
    return is_float(&c->in[0]) ? in_turns(c, 4, add_step) : in_turns(c, 2, add_wholes);
}

static ebb_status choose_step(const ebb_call *c, const ebb_call *part, uint32_t rest)
{
    (void)rest;
    if (is_float(&c->in[0]))
        return run_floats(part);
    return ebb_whole_run(part, c->op == EBB_OP_MAX ? EBB_WHOLE_max : EBB_WHOLE_min);
}

static ebb_status run_choice(const ebb_call *c)
{
    return c->input_count == 1 ? run_copy(c) : in_turns(c, 2, choose_step);
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
    int64_t lanes = ebb_cuda_pack(&a.walk, a.n, a.out, a.in, 3, size);
    a.packed = lanes > 1 ? a.n / lanes * lanes : 0;
    int64_t pieces = a.packed / lanes > a.n - a.packed ? a.packed / lanes : a.n - a.packed;
    ebb_gpu_kernel kernel = size == 1   ? (ebb_gpu_kernel)where_1
                            : size == 2 ? (ebb_gpu_kernel)where_2
                            : size == 4 ? (ebb_gpu_kernel)where_4
                                        : (ebb_gpu_kernel)where_8;
    return EBB_LAUNCH(c, kernel, ebb_cuda_grid(pieces), EBB_CUDA_BLOCK, 0, a);
}

/* ---- declines ---- */

/* All inputs of one dtype, where `floats`, `integers` and `bools` say which. */
static const char *declines_but(const ebb_call *c, bool floats, bool integers, bool bools)
{
    const char *why = ebb_call_any(c);
    ebb_dtype dtype = (ebb_dtype)c->in[0].type.dtype;
    if (why != NULL)
        return why;
    for (uint32_t i = 0; i < c->input_count; i++)
        if (c->in[i].type.dtype != c->in[0].type.dtype)
            return "inputs differ in dtype";
    return (floats && ebb_dtype_is_float(dtype)) || (integers && ebb_dtype_is_integer(dtype)) ||
                   (bools && dtype == EBB_BOOL)
               ? NULL
               : "does not compute in this dtype";
}

static const char *declines_numbers(const ebb_call *c)
{
    return declines_but(c, true, true, false);
}

static const char *declines_equal(const ebb_call *c)
{
    return declines_but(c, true, true, true);
}

static const char *declines_bits(const ebb_call *c)
{
    return declines_but(c, false, true, false);
}

static const char *declines_logic(const ebb_call *c)
{
    return declines_but(c, false, false, true);
}

static const char *declines_pow(const ebb_call *c)
{
    const char *why = ebb_call_any(c);
    for (uint32_t i = 0; i < 2 && why == NULL; i++)
        if (!is_float(&c->in[i]) && !ebb_dtype_is_integer((ebb_dtype)c->in[i].type.dtype))
            why = "computes with floats and integers only";
    return why;
}

static const char *declines_where(const ebb_call *c)
{
    const char *why = ebb_call_any(c);
    return why != NULL                              ? why
           : ebb_element_bytes(&c->out[0].type) > 8 ? "elements are wider than 8 bytes"
                                                    : NULL;
}

#define KERNEL(op, name, declines, run)                             \
    {                                                               \
        "cuda." #name, EBB_OP_##op, declines, NULL, NULL, run, NULL \
    }

// clang-format off
const ebb_kernel ebb_cuda_pointwise[] = {
    KERNEL(ADD,              add,           declines_numbers, run_numbers),
    KERNEL(SUB,              sub,           declines_numbers, run_numbers),
    KERNEL(MUL,              mul,           declines_numbers, run_numbers),
    KERNEL(DIV,              div,           declines_numbers, run_numbers),
    KERNEL(POW,              pow,           declines_pow,     run_pow),
    KERNEL(MOD,              mod,           declines_numbers, run_numbers),
    KERNEL(MAX,              max,           declines_numbers, run_choice),
    KERNEL(MIN,              min,           declines_numbers, run_choice),
    KERNEL(SUM,              sum,           declines_numbers, run_sum),
    KERNEL(MEAN,             mean,          ebb_cuda_floats,  run_sum),
    KERNEL(AND,              and,           declines_logic,   run_logic),
    KERNEL(OR,               or,            declines_logic,   run_logic),
    KERNEL(XOR,              xor,           declines_logic,   run_logic),
    KERNEL(EQUAL,            equal,         declines_equal,   run_numbers),
    KERNEL(GREATER,          greater,       declines_numbers, run_numbers),
    KERNEL(GREATER_OR_EQUAL, greater_equal, declines_numbers, run_numbers),
    KERNEL(LESS,             less,          declines_numbers, run_numbers),
    KERNEL(LESS_OR_EQUAL,    less_equal,    declines_numbers, run_numbers),
    KERNEL(BITWISE_AND,      bit_and,       declines_bits,    run_bits),
    KERNEL(BITWISE_OR,       bit_or,        declines_bits,    run_bits),
    KERNEL(BITWISE_XOR,      bit_xor,       declines_bits,    run_bits),
    KERNEL(BIT_SHIFT,        bit_shift,     declines_bits,    run_bits),
    KERNEL(WHERE,            where,         declines_where,   run_where),
};
// clang-format on
EBB_CUDA_COUNT(pointwise)
