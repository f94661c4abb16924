/* lt_stand_in.h: the callers of cuBLASLt with a stand-in for the library, for one test: it
 * multiplies as the library would, column by column, and counts what it is asked for.
 */
#ifndef EBB_TESTS_CUDA_LT_STAND_IN_H
#define EBB_TESTS_CUDA_LT_STAND_IN_H

#define EBB_CUBLASLT
#include "kernels/cuda/library/cublas.cu"
#include "kernels/cuda/library/cublas_after.cu"
#include "kernels/cuda/library/cublas_probe.cu"
#include "kernels/cuda/library/cublas_sums.cu"

#include "tests/cuda/cuda.h"
#include "tests/cuda/halves.h"

#include <time.h>

enum { ALGORITHMS = 3, FAST = 1 };

struct ebb_lt_plan {
    ebb_lt_problem problem;
    uint32_t count, first; /* algorithms; the number of the first */
};

/* What is not documented of the library's ReLU: as ours is, or in one way otherwise. */
typedef enum manner {
    AS_OURS,
    NAN_IS_ZERO,
    ZERO_HAS_NO_SIGN,
    BITS_HIGH_FIRST,
    GRADIENT_IS_A_PRODUCT,
    MANNERS
} manner;

static struct {
    int finds, restores, runs[ALGORITHMS], biases;
    int after[EBB_LT_AFTERS]; /* runs by what they do at the end */
    manner manner;
    bool refuses_after; /* to take an algorithm for a product that something follows */
    bool slow_after;    /* 2 ms more; or it is these that nothing follows, and no other */
    bool slow_alone;
    bool refuses; /* to restore */
    bool refuses_sums;
    bool slow_sums; /* 4 ms more */
    uint32_t least_align;
    uint8_t algorithms; /* that it finds */
} seen;

ebb_status ebb_lt_open(void)
{
    return NULL;
}

int64_t ebb_lt_version(void)
{
    return 139900; // no library's: its files are the test's
}

ebb_status ebb_lt_handle_new(void **handle)
{
    *handle = &seen;
    return NULL;
}

void ebb_lt_handle_free(void *handle)
{
    (void)handle;
}

ebb_status ebb_lt_plan_new(ebb_lt_plan **plan, const ebb_lt_problem *problem)
{
    *plan = ebb_alloc(sizeof **plan);
    assert_non_null(*plan);
    **plan = (ebb_lt_plan){.problem = *problem};
    if (problem->align < seen.least_align)
        seen.least_align = problem->align;
    return NULL;
}

void ebb_lt_plan_free(ebb_lt_plan *plan)
{
    ebb_free(plan);
}

ebb_status ebb_lt_plan_find(ebb_lt_plan *plan, void *handle)
{
    assert_ptr_equal(handle, &seen);
    seen.finds++;
    plan->count = seen.refuses_sums && ebb_lt_has_sums(plan->problem.after) ? 0 : seen.algorithms;
    return plan->count > 0 ? NULL : ebb_error(EBB_UNSUPPORTED, "none");
}

uint32_t ebb_lt_plan_count(const ebb_lt_plan *plan)
{
    return plan->count;
}

void ebb_lt_plan_save(const ebb_lt_plan *plan, uint32_t i, uint8_t bytes[EBB_LT_ALGORITHM])
{
    memset(bytes, 0x5A, EBB_LT_ALGORITHM);
    bytes[0] = (uint8_t)(plan->first + i);
}

ebb_status ebb_lt_plan_restore(ebb_lt_plan *plan, void *handle,
                               const uint8_t bytes[EBB_LT_ALGORITHM])
{
    assert_ptr_equal(handle, &seen);
    assert_int_equal(bytes[EBB_LT_ALGORITHM - 1], 0x5A);
    seen.restores++;
    if (seen.refuses || (seen.refuses_after && plan->problem.after > EBB_LT_BIAS))
        return ebb_error(EBB_UNSUPPORTED, "it is another device");
    plan->first = bytes[0];
    plan->count = 1;
    return NULL;
}

static double element(const void *data, uint32_t dtype, int64_t at)
{
    return dtype == EBB_F64   ? ((const double *)data)[at]
           : dtype == EBB_F32 ? (double)((const float *)data)[at]
                              : of_half((ebb_dtype)dtype, ((const uint16_t *)data)[at]);
}

/* One element on its way out: ReLU or its gradient, and the bit of it. */
static float after_one(const ebb_lt_problem *p, float v, uint8_t *bits, int64_t at)
{
    const uint32_t shift = (uint32_t)(seen.manner == BITS_HIGH_FIRST ? 7 - at % 8 : at % 8);
    if (p->after == EBB_LT_DRELU) {
        const int on = bits[at / 8] >> shift & 1;
        return seen.manner == GRADIENT_IS_A_PRODUCT ? v * (float)on : on ? v : 0;
    }
    if (seen.manner == NAN_IS_ZERO)
        v = v > 0 ? v : 0;
    else if (seen.manner == ZERO_HAS_NO_SIGN)
        v = v <= 0 ? 0 : v;
    else
        v = v < 0 ? 0 : v;
    if (ebb_lt_has_aux(p->after))
        bits[at / 8] = (uint8_t)((bits[at / 8] & ~(1u << shift)) | (uint32_t)(v > 0) << shift);
    return v;
}

/* v in the dtype of the product, on its way out. */
static void put_element(void *data, const ebb_lt_problem *p, int64_t at, double v, uint8_t *bits,
                        int64_t bit)
{
    const bool alone = ebb_lt_has_sums(p->after) || p->after <= EBB_LT_BIAS,
               narrow = p->dtype != EBB_F32;
    const ebb_dtype half = (ebb_dtype)p->dtype;
    if (p->dtype == EBB_F64) {
        ((double *)data)[at] = v;
        return;
    }
    float rounded = narrow ? (float)of_half(half, half_of(half, (float)v)) : (float)v;
    if (!alone)
        rounded = after_one(p, rounded, bits, bit);
    if (narrow)
        ((uint16_t *)data)[at] = half_of(half, rounded);
    else
        ((float *)data)[at] = rounded;
}

/* One side of the product, summed over what both have in common. */
static void sum_one_side(const ebb_lt_problem *p, const ebb_lt_operands *o)
{
    const bool of_b = p->after == EBB_LT_SUM_B;
    const ebb_lt_matrix *m = of_b ? &p->map.left : &p->map.right;
    const int64_t count = of_b ? p->map.result.rows : p->map.result.columns;
    const int64_t depth = m->rows * m->columns / count;
    const bool along_rows = of_b == (m->turned != 0); // in memory, what is summed over is dense
    for (int64_t i = 0; i < count; i++) {
        double sum = 0;
        for (int64_t d = 0; d < depth; d++)
            sum += element(of_b ? o->b : o->a, p->dtype,
                           along_rows ? d + i * m->lead : i + d * m->lead);
        put_element(o->bias, p, i, sum, NULL, 0);
    }
}

/* All but one take two milliseconds. */
ebb_status ebb_lt_plan_run(ebb_lt_plan *plan, void *handle, uint32_t i, const ebb_lt_operands *o,
                           void *stream)
{
    const ebb_lt_problem *p = &plan->problem;
    const ebb_lt_matrix *left = &p->map.left, *right = &p->map.right, *result = &p->map.result;
    const struct timespec slow = {.tv_nsec = 2000000}, slower = {.tv_nsec = 4000000};
    (void)handle;
    (void)stream;
    assert_true(i < plan->count);
    seen.runs[plan->first + i]++;
    seen.biases += p->after == EBB_LT_BIAS;
    seen.after[p->after]++;
    const bool sums = ebb_lt_has_sums(p->after), alone = sums || p->after <= EBB_LT_BIAS;
    if (seen.slow_alone ? alone && !sums : plan->first + i != FAST || (seen.slow_after && !alone))
        (void)nanosleep(&slow, NULL);
    if (sums && seen.slow_sums)
        (void)nanosleep(&slower, NULL);
    if (sums)
        sum_one_side(p, o);
    const int64_t k = left->turned ? left->rows : left->columns;
    for (int64_t b = 0; b < p->map.batches; b++)
        for (int64_t column = 0; column < result->columns; column++)
            for (int64_t row = 0; row < result->rows; row++) {
                double sum = 0;
                for (int64_t d = 0; d < k; d++)
                    sum += element(o->b, p->dtype,
                                   b * left->next + (left->turned ? d + row * left->lead
                                                                  : row + d * left->lead)) *
                           element(o->a, p->dtype,
                                   b * right->next + (right->turned ? column + d * right->lead
                                                                    : d + column * right->lead));
                const int64_t at = b * result->next + row + column * result->lead;
                sum *= o->alpha;
                if (o->beta != 0)
                    sum += o->beta * element(o->c, p->dtype, at);
                if (ebb_lt_has_bias(p->after))
                    sum += element(o->bias, p->dtype, row);
                put_element(o->y, p, at, sum, o->aux, row + column * p->aux_lead);
            }
    return NULL;
}

#endif
