/* cublas_probe.cu: does what cuBLASLt does behind a product give the bits of the own kernels?
 *
 *     a b + bias -> plain -> Relu, PackSign -> ours      by kernels of this folder
 *                 \--------------------------> theirs    on the way out, by the same algorithm
 *
 * Nobody documents what its ReLU makes of NaN and of -0, nor the order of its bits. So the device is
 * asked, by a small product whose results are all of them, infinities and what rounds to zero; once
 * a queue, dtype and way out, when the first product wants it or `ebb devices` does.
 */
#include "kernels/cuda/library/cublas.h"

#if defined(EBB_CUBLASLT)

#include "kernels/cuda/product.h"
#include "onnx/words/arena.h"
#include "onnx/words/tensor.h"

#include <stdio.h>

enum { PROBE_M = 16, PROBE_N = 2 * EBB_CUBLAS_LINE, PROBE_K = 16, MOST_BYTES = 4 };

/* In device memory; 16 bits use half of each. All parts begin at multiples of 256 bytes. */
typedef struct trial_memory {
    unsigned char a[PROBE_M * PROBE_K * MOST_BYTES], b[PROBE_K * PROBE_N * MOST_BYTES],
        bias[PROBE_N * MOST_BYTES];
    unsigned char plain[PROBE_M * PROBE_N * MOST_BYTES]; /* the product alone */
    unsigned char ours[PROBE_M * PROBE_N * MOST_BYTES], theirs[PROBE_M * PROBE_N * MOST_BYTES];
    unsigned char our_bits[PROBE_M * PROBE_N / 8], their_bits[PROBE_M * PROBE_N / 8];
} trial_memory;

/* One number in three dtypes. */
typedef struct special {
    uint32_t f32;
    uint16_t f16, bf16;
} special;

static const special specials[PROBE_M] = {
    {0x3F800000, 0x3C00, 0x3F80}, /* 1 */
    {0xBF800000, 0xBC00, 0xBF80},
    {0x00000000, 0x0000, 0x0000},
    {0x80000000, 0x8000, 0x8000}, /* -0 */
    {0x7F800000, 0x7C00, 0x7F80},
    {0xFF800000, 0xFC00, 0xFF80}, /* -inf */
    {0x7FC00000, 0x7E00, 0x7FC0},
    {0xFFC12345, 0xFE55, 0xFFD5}, /* NaNs */
    {0x00800000, 0x0400, 0x0080},
    {0x80800000, 0x8400, 0x8080}, /* the least normal ones: their products round to 0 */
    {0x00000123, 0x0003, 0x0003}, /* subnormal */
    {0x7F7FFFFF, 0x7BFF, 0x7F7F}, /* the largest */
    {0x3FD9999A, 0x3ECD, 0x3FDA}, /* 1.7 */
    {0xBE99999A, 0xB4CD, 0xBE9A}, /* -0.3 */
    {0x3B800000, 0x1C00, 0x3B80}, /* 2^-8 */
    {0xBB800000, 0x9C00, 0xBB80},
};

static void put_special(unsigned char *array, uint8_t dtype, uint32_t at, uint32_t which)
{
    const special *v = &specials[which % PROBE_M];
    if (dtype == EBB_F32)
        memcpy(array + 4 * at, &v->f32, 4);
    else
        memcpy(array + 2 * at, dtype == EBB_F16 ? &v->f16 : &v->bf16, 2);
}

/* y[i, j] is one special number times another, plus a third: column 0 of a, row 0 of b. */
static void fill_trial(trial_memory *t, uint8_t dtype)
{
    uint32_t draw = 1;
    memset(t, 0, sizeof *t);
    for (uint32_t i = 0; i < PROBE_M; i++)
        put_special(t->a, dtype, i * PROBE_K, i);
    for (uint32_t j = 0; j < PROBE_N; j++) {
        draw = draw * 1664525u + 1013904223u;
        put_special(t->b, dtype, j, draw >> 20);
        put_special(t->bias, dtype, j, draw >> 26);
    }
    for (uint32_t k = 0; k < PROBE_M * PROBE_N / 8;
         k++) { // what a gradient reads; else written over
        draw = draw * 1664525u + 1013904223u;
        t->our_bits[k] = t->their_bits[k] = (unsigned char)(draw >> 24);
    }
    memset(t->theirs, 0xA5, sizeof t->theirs);
}

static ebb_operand operand_of(void *data, uint8_t dtype, int64_t n)
{
    ebb_operand o;
    memset(&o, 0, sizeof o);
    o.type = ebb_type_tensor((ebb_dtype)dtype, 1, &n);
    o.bytes = (size_t)n * ebb_dtype_bits((ebb_dtype)dtype) / 8;
    o.data = data;
    return o;
}

typedef struct probe {
    ebb_cuda_queue *queue;
    uint32_t after;
    uint8_t dtype;
    ebb_lt_plan *alone, *with;
    uint32_t algorithm; /* of alone; with has it too, as its only one */
    trial_memory *device;
} probe;

static const ebb_kernel *kernel_of(const ebb_kernel *kernels, size_t count, ebb_op op)
{
    for (size_t k = 0; k < count; k++)
        if (kernels[k].op == op)
            return &kernels[k];
    return NULL;
}

/* An own kernel, its attributes absent. */
static ebb_status run_ours(const probe *b, ebb_op op, ebb_operand x, ebb_operand mask,
                           ebb_operand y)
{
    ebb_operand in[2] = {x, mask};
    ebb_call one;
    memset(&one, 0, sizeof one);
    one.op = op;
    one.version = 1;
    one.node = "the probe of cuBLASLt's ReLU";
    one.in = in;
    one.out = &y;
    one.input_count = op == EBB_OP_MASK_GRAD ? 2 : 1;
    one.output_count = 1;
    one.queue = b->queue;
    one.kernel = op == EBB_OP_RELU ? kernel_of(ebb_cuda_pointwise, ebb_cuda_pointwise_count, op)
                                   : kernel_of(ebb_cuda_packed, ebb_cuda_packed_count, op);
    return one.kernel->run(&one);
}

static void *handle_of(const probe *b)
{
    return ((const ebb_cublas *)b->queue->cublas)->handle;
}

static ebb_status run_both(const probe *b, double alpha)
{
    trial_memory *d = b->device;
    ebb_lt_operands o;
    memset(&o, 0, sizeof o);
    o.a = d->a;
    o.b = d->b;
    o.bias = d->bias;
    o.alpha = alpha;
    o.y = d->plain;
    EBB_TRY(ebb_lt_plan_run(b->alone, handle_of(b), b->algorithm, &o, b->queue->stream));
    o.y = d->theirs;
    o.aux = d->their_bits;
    EBB_TRY(ebb_lt_plan_run(b->with, handle_of(b), 0, &o, b->queue->stream));
    const ebb_operand plain = operand_of(d->plain, b->dtype, PROBE_M * PROBE_N);
    const ebb_operand ours = operand_of(d->ours, b->dtype, PROBE_M * PROBE_N);
    const ebb_operand bits = operand_of(d->our_bits, EBB_U8, PROBE_M * PROBE_N / 8);
    EBB_TRY(
        run_ours(b, b->after == EBB_LT_DRELU ? EBB_OP_MASK_GRAD : EBB_OP_RELU, plain, bits, ours));
    return b->after == EBB_LT_RELU_AUX || b->after == EBB_LT_RELU_AUX_BIAS
               ? run_ours(b, EBB_OP_PACK_SIGN, ours, ours, bits)
               : NULL;
}

/* ---- what is found ---- */

static uint32_t bits_at(const unsigned char *array, uint8_t dtype, uint32_t at)
{
    uint16_t half;
    uint32_t word;
    if (dtype == EBB_F32) {
        memcpy(&word, array + 4 * at, 4);
        return word;
    }
    memcpy(&half, array + 2 * at, 2);
    return half;
}

static double number_of(uint32_t bits, uint8_t dtype)
{
    float v;
    memcpy(&v, &bits, sizeof v);
    return dtype == EBB_F32   ? (double)v
           : dtype == EBB_F16 ? (double)ebb_half_to_float((uint16_t)bits)
                              : (double)ebb_bf16_to_float((uint16_t)bits);
}

/* What differs in host: a sentence; or an empty one. */
static void tell_difference(const trial_memory *host, uint8_t dtype, char *why, size_t size)
{
    uint32_t numbers = 0, first = 0, at = 0;
    for (uint32_t i = PROBE_M * PROBE_N; i-- > 0;)
        if (bits_at(host->ours, dtype, i) != bits_at(host->theirs, dtype, i)) {
            numbers++;
            first = i;
        }
    const uint32_t x = bits_at(host->plain, dtype, first), y = bits_at(host->theirs, dtype, first),
                   z = bits_at(host->ours, dtype, first);
    if (numbers > 0) {
        (void)snprintf(why, size,
                       "of %g (0x%X) it makes %g (0x%X), the own kernel %g (0x%X); "
                       "%u of %d numbers differ",
                       number_of(x, dtype), x, number_of(y, dtype), y, number_of(z, dtype), z,
                       numbers, PROBE_M * PROBE_N);
        return;
    }
    while (at < sizeof host->our_bits && host->our_bits[at] == host->their_bits[at])
        at++;
    if (at < sizeof host->our_bits)
        (void)snprintf(why, size,
                       "its bits of numbers %u to %u are 0x%02X, the own kernel's 0x%02X", 8 * at,
                       8 * at + 7, host->their_bits[at], host->our_bits[at]);
}

static ebb_status compare(const probe *b, trial_memory *host, char *why, size_t size)
{
    for (int sign = 1; sign >= -1 && why[0] == '\0'; sign -= 2) { // -1 times a sum of +0 is -0
        fill_trial(host, b->dtype);
        EBB_TRY(ebb_gpu_copy(b->queue->stream, b->device, host, sizeof *host, EBB_TO_DEVICE));
        EBB_TRY(run_both(b, sign));
        EBB_TRY(ebb_gpu_copy(b->queue->stream, host, b->device, sizeof *host, EBB_TO_HOST));
        tell_difference(host, b->dtype, why, size);
    }
    return NULL;
}

/* The plans of the probe, both by one algorithm. EBB_UNSUPPORTED where there is none for both. */
static ebb_status make_plans(probe *b)
{
    void *handle = handle_of(b);
    ebb_cuda_product p;
    ebb_lt_problem problem;
    memset(&problem, 0, sizeof problem);
    ebb_cuda_product_plain(&p, PROBE_M, PROBE_N, PROBE_K);
    p.a_row = PROBE_K;
    p.b_row = PROBE_N;
    p.a_column = p.b_column = 1;
    (void)ebb_lt_map_read(&problem.map, &p);
    problem.dtype = b->dtype;
    problem.tf32 = ebb_cuda_tf32 && b->dtype == EBB_F32;
    problem.after = ebb_lt_has_bias(b->after) ? EBB_LT_BIAS : EBB_LT_NOTHING;
    EBB_TRY(ebb_lt_plan_new(&b->alone, &problem));
    EBB_TRY(ebb_lt_plan_find(b->alone, handle));
    problem.after = b->after;
    problem.aux_lead = ebb_lt_has_aux(b->after) ? ebb_lt_aux_lead(PROBE_N) : 0;
    EBB_TRY(ebb_lt_plan_new(&b->with, &problem));
    for (; b->algorithm < ebb_lt_plan_count(b->alone); b->algorithm++) {
        uint8_t bytes[EBB_LT_ALGORITHM];
        ebb_lt_plan_save(b->alone, b->algorithm, bytes);
        if (ebb_lt_plan_restore(b->with, handle, bytes) == NULL)
            return NULL;
    }
    return ebb_error(EBB_UNSUPPORTED, "cuBLASLt has no algorithm with and without what follows");
}

static void try_out(probe *b, char *why, size_t size)
{
    void *memory = NULL;
    trial_memory *host = (trial_memory *)ebb_alloc(sizeof *host);
    ebb_status status = host == NULL ? ebb_error_memory() : make_plans(b);
    if (status == NULL)
        status = ebb_gpu_allocate(sizeof *b->device, &memory);
    b->device = (trial_memory *)memory;
    if (status == NULL)
        status = compare(b, host, why, size);
    if (status != NULL) {
        const char *text = ebb_status_text(status);
        (void)snprintf(why, size, "%.*s", (int)strcspn(text, "\n"), text);
    }
    if (memory != NULL)
        ebb_gpu_release(memory);
    ebb_lt_plan_free(b->alone);
    ebb_lt_plan_free(b->with);
    ebb_free(host);
}

const char *ebb_cublas_differs(ebb_cuda_queue *queue, uint8_t dtype, uint32_t after)
{
    ebb_cublas *l = (ebb_cublas *)queue->cublas;
    ebb_cublas_answer *answer = &l->answers[ebb_cuda_float_row(dtype)][after];
    if (!answer->asked) {
        probe b;
        memset(&b, 0, sizeof b);
        b.queue = queue;
        b.after = after;
        b.dtype = dtype;
        answer->asked = true;
        try_out(&b, answer->why, sizeof answer->why);
    }
    return answer->why[0] == '\0' ? NULL : answer->why;
}

void ebb_cublas_probes(ebb_cuda_queue *queue, ebb_plugin_tell tell, void *to)
{
    static const struct {
        uint32_t after;
        const char *name;
    } ways[] = {{EBB_LT_RELU, "ReLU"},
                {EBB_LT_RELU_BIAS, "ReLU of the sum with a bias"},
                {EBB_LT_RELU_AUX, "ReLU and its bits"},
                {EBB_LT_RELU_AUX_BIAS, "ReLU of the sum with a bias, and its bits"},
                {EBB_LT_DRELU, "gradient of ReLU from its bits"}};
    static const uint8_t dtypes[] = {EBB_F32, EBB_F16, EBB_BF16};
    char what[96];
    if (ebb_cublas_open(queue) != NULL || ((const ebb_cublas *)queue->cublas)->handle == NULL)
        return;
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++)
        for (size_t d = 0; d < sizeof dtypes; d++) {
            (void)snprintf(what, sizeof what, "cuBLASLt's %s in %s", ways[w].name,
                           ebb_dtype_name((ebb_dtype)dtypes[d]));
            tell(to, what, ebb_cublas_differs(queue, dtypes[d], ways[w].after));
        }
}

#endif
