/* invert.c: gradients of GELU, SiLU and Mish from their output and one bit an element.
 *
 *     GeluGrad(dY, X)   ->   GeluGradFromOutput(dY, Y, bits)       bit: x lies right of the minimum
 *
 * The derivative is one polynomial out of three, by side and by distance from the minimum, of the
 * square root of that distance; kernels/math/generate/invert.py made and explains the numbers. All three
 * have one degree, so that coefficients are chosen, not branches: the loop is vector code.
 *
 * y may have been rounded to a shorter type: below the minimum counts as the minimum. NaN stays
 * NaN.
 */
#include "kernels/math/invert_fit.h"
#include "kernels/call/misfit.h"
#include "kernels/plain/plain.h"
#include "kernels/plain/vmath.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 512 }; /* elements a job: bits are spread first */

/* Bit i as ones or zeros, as wide as the float that it chooses for. */
#define DEFINE_CHOICE(T, U)                                                                \
    static void spread_##T(U *mask, const uint8_t *bits, int64_t n)                        \
    {                                                                                      \
        for (int64_t b = 0; b < n / 8; b++) {                                              \
            U m = bits[b];                                                                 \
            EBB_SIMD                                                                       \
            for (int j = 0; j < 8; j++)                                                    \
                mask[b * 8 + j] = (U)0 - (m >> j & (U)1);                                  \
        }                                                                                  \
        for (int64_t i = n / 8 * 8; i < n; i++)                                            \
            mask[i] = (U)0 - ((U)(bits[n / 8] >> (i % 8)) & (U)1);                         \
    }                                                                                      \
                                                                                           \
    /* a where the mask has ones, else b: no branch that a compiler could take for one. */ \
    static inline T choose_##T(U mask, T a, T b)                                           \
    {                                                                                      \
        U x, y;                                                                            \
        memcpy(&x, &a, sizeof x);                                                          \
        memcpy(&y, &b, sizeof y);                                                          \
        x = (x & mask) | (y & ~mask);                                                      \
        memcpy(&a, &x, sizeof a);                                                          \
        return a;                                                                          \
    }

#define FMA_float(a, b, c) EBB_FMA(a, b, c)
#define FMA_double(a, b, c) ((a) * (b) + (c))

_Static_assert(EBB_INVERT_DEGREE == 9, "HORNER takes ten coefficients");

/* The polynomial of a piece. Written out: a loop here would keep the one around it from lanes. */
#define STEP(T, i, piece) p = FMA_##T(p, u, (T)k->c[i][piece]);
#define HORNER(T, name, piece)                                        \
    static inline T name##_##T(const ebb_invert_fit *k, T along)      \
    {                                                                 \
        T u = FMA_##T((T)k->scale[piece], along, (T)k->shift[piece]); \
        T p = (T)k->c[9][piece];                                      \
        STEP(T, 8, piece)                                             \
        STEP(T, 7, piece)                                             \
        STEP(T, 6, piece)                                             \
        STEP(T, 5, piece)                                             \
        STEP(T, 4, piece)                                             \
        STEP(T, 3, piece)                                             \
        STEP(T, 2, piece)                                             \
        STEP(T, 1, piece)                                             \
        STEP(T, 0, piece)                                             \
        return p;                                                     \
    }

/* dx may be dy or y. The least and greatest of NaN are NaN as written: x < 0 ? 0 : x. All three
 * polynomials are evaluated, since that is less than choosing among their coefficients. */
#define DEFINE(T, U, SQRT)                                                       \
    HORNER(T, left, 0)                                                           \
    HORNER(T, middle, 1)                                                         \
    HORNER(T, far, 2)                                                            \
                                                                                 \
    static inline T slope_##T(const ebb_invert_fit *k, T y, U right)             \
    {                                                                            \
        const T high = (T)k->y0, low = (T)(k->y0 - (double)high);                \
        const T per_y0 = (T)(1.0 / k->y0), per_root = (T)(1.0 / sqrt(-k->y0));   \
        T t = y - high - low;                                                    \
        t = t < 0 ? 0 : t;                                                       \
        T r = SQRT(t), s = y * per_y0, q = r * per_root, w = 1 - q;              \
        s = s < 0 ? 0 : s;                                                       \
        s = s > 1 ? 1 : s;                                                       \
        w = w < 0 ? 0 : w;                                                       \
        U near = (U)0 - (U)(r < k->r1), beyond = (U)0 - (U)(r >= k->r2);         \
        T p = choose_##T(near, r * middle_##T(k, r), far_##T(k, r));             \
        p = choose_##T(beyond, 1, p);                                            \
        return choose_##T(right, p, s * q * left_##T(k, SQRT(SQRT(w))));         \
    }                                                                            \
                                                                                 \
    static void all_##T(const ebb_invert_fit *k, T *dx, const T *dy, const T *y, \
                        const uint8_t *bits, int64_t n, T alpha)                 \
    {                                                                            \
        EBB_PARALLEL_FOR(n)                                                      \
        for (int64_t first = 0; first < n; first += BLOCK) {                     \
            U mask[BLOCK];                                                       \
            int64_t count = ebb_least(n - first, BLOCK);                         \
            spread_##T(mask, bits + first / 8, count);                           \
            T *to = dx + first;                                                  \
            const T *from = dy + first, *at = y + first;                         \
            EBB_SIMD                                                             \
            for (int64_t i = 0; i < count; i++)                                  \
                to[i] = from[i] * slope_##T(k, alpha * at[i], mask[i]);          \
        }                                                                        \
    }

DEFINE_CHOICE(float, uint32_t)
DEFINE_CHOICE(double, uint64_t)
DEFINE(float, uint32_t, sqrtf)
DEFINE(double, uint64_t, sqrt)

/* (dY, Y, bits) {alpha} -> dX */
static ebb_status run(const ebb_call *c)
{
    double alpha;
    const ebb_invert_fit *k = ebb_invert_fit_of(c, &alpha);
    int64_t n = ebb_elements(&c->out[0].type);
    if (c->in[0].type.dtype == EBB_F64)
        all_double(k, c->out[0].data, c->in[0].data, c->in[1].data, c->in[2].data, n, alpha);
    else
        all_float(k, c->out[0].data, c->in[0].data, c->in[1].data, c->in[2].data, n, (float)alpha);
    return NULL;
}

// clang-format off
#define KERNEL(id, made) {.name = "plain." #made "_grad_from_output", .op = EBB_OP_##id##_GRAD_FROM_OUTPUT, .dtypes = ebb_plain_floats, .fits = ebb_invert_misfit, .run = run}
const ebb_kernel ebb_plain_invert[] = {
    KERNEL(GELU,       gelu),
    KERNEL(FAST_GELU,  fast_gelu),
    KERNEL(QUICK_GELU, quick_gelu),
    KERNEL(MISH,       mish),
};
// clang-format on
EBB_PLAIN_COUNT(invert)
