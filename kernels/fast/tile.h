/* tile.h: products of small matrices inside one thread, out of memory that the caller gives.
 *
 *   C[m, n] (+)= A[m, k] B[k, n]     A by strides, so transposed too; B packed; C by rows
 *
 * B is packed into panels of EBB_TILE_COLUMNS columns, one after the other, each k rows long, the
 * last one filled up with zeros: the loads of the innermost loop are consecutive. C is written in
 * whole panels, so its rows have room for them. oneDNN's own small products take memory from the
 * heap, which a plan could not know of.
 */
#ifndef EBB_KERNELS_FAST_TILE_H
#define EBB_KERNELS_FAST_TILE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__) || defined(__FMA__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Two vectors a row of the block, and as many rows as leave registers for B and an element of A. */
#if defined(__AVX512F__)
enum { EBB_TILE_LANES = 16, EBB_TILE_ROWS = 8 };
#elif defined(__AVX__)
enum { EBB_TILE_LANES = 8, EBB_TILE_ROWS = 6 };
#elif defined(__aarch64__)
enum { EBB_TILE_LANES = 4, EBB_TILE_ROWS = 8 };
#else
enum { EBB_TILE_LANES = 4, EBB_TILE_ROWS = 4 };
#endif
enum { EBB_TILE_COLUMNS = 2 * EBB_TILE_LANES };

#if defined(__GNUC__)

/* ISO C does not let the compiler make one fused operation of a product and a sum. */
typedef float ebb_lanes __attribute__((vector_size(EBB_TILE_LANES * sizeof(float))));
#if defined(__AVX512F__)
#define EBB_TILE_FMA(x, y, sum) _mm512_fmadd_ps(_mm512_set1_ps(x), (y), (sum))
#elif defined(__FMA__)
#define EBB_TILE_FMA(x, y, sum) _mm256_fmadd_ps(_mm256_set1_ps(x), (y), (sum))
#elif defined(__ARM_NEON)
#define EBB_TILE_FMA(x, y, sum) vfmaq_n_f32((sum), (y), (x))
#else
#define EBB_TILE_FMA(x, y, sum) ((sum) + (x) * (y))
#endif
#define EBB_TILE_INLINE static inline __attribute__((always_inline))
#define EBB_TILE_UNROLL _Pragma("GCC unroll 8")

/* `rows` is a number known where this is inlined. */
EBB_TILE_INLINE void ebb_tile_block(float *c, int64_t c_row, const float *a, int64_t a_row,
                                    int64_t a_column, const float *b, int64_t k, int rows,
                                    bool adds)
{
    ebb_lanes sum[EBB_TILE_ROWS][2];
    EBB_TILE_UNROLL
    for (int r = 0; r < rows; r++)
        sum[r][0] = sum[r][1] = (ebb_lanes){0};
    for (int64_t i = 0; i < k; i++) {
        ebb_lanes low, high;
        memcpy(&low, b + i * EBB_TILE_COLUMNS, sizeof low);
        memcpy(&high, b + i * EBB_TILE_COLUMNS + EBB_TILE_LANES, sizeof high);
        EBB_TILE_UNROLL
        for (int r = 0; r < rows; r++) {
            float x = a[r * a_row + i * a_column];
            sum[r][0] = EBB_TILE_FMA(x, low, sum[r][0]);
            sum[r][1] = EBB_TILE_FMA(x, high, sum[r][1]);
        }
    }
    EBB_TILE_UNROLL
    for (int r = 0; r < rows; r++) {
        for (int half = 0; half < 2; half++) {
            float *to = c + r * c_row + half * EBB_TILE_LANES;
            ebb_lanes old;
            memcpy(&old, to, sizeof old);
            old = adds ? old + sum[r][half] : sum[r][half];
            memcpy(to, &old, sizeof old);
        }
    }
}

#else /* the same, element by element */

#define EBB_TILE_INLINE static inline

EBB_TILE_INLINE void ebb_tile_block(float *c, int64_t c_row, const float *a, int64_t a_row,
                                    int64_t a_column, const float *b, int64_t k, int rows,
                                    bool adds)
{
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < EBB_TILE_COLUMNS; j++) {
            float sum = 0;
            for (int64_t i = 0; i < k; i++)
                sum += a[r * a_row + i * a_column] * b[i * EBB_TILE_COLUMNS + j];
            c[r * c_row + j] = adds ? c[r * c_row + j] + sum : sum;
        }
}

#endif

/* n rounded up to whole panels. */
static inline int64_t ebb_tile_width(int64_t n)
{
    return (n + EBB_TILE_COLUMNS - 1) / EBB_TILE_COLUMNS * EBB_TILE_COLUMNS;
}

/* B[k, n], element (i, j) at i * row + j * column, into panels: width(n) * k floats. */
static inline void ebb_tile_pack(float *to, const float *b, int64_t row, int64_t column, int64_t k,
                                 int64_t n)
{
    for (int64_t first = 0; first < n; first += EBB_TILE_COLUMNS)
        for (int64_t i = 0; i < k; i++, to += EBB_TILE_COLUMNS)
            for (int64_t j = 0; j < EBB_TILE_COLUMNS; j++)
                to[j] = first + j < n ? b[i * row + (first + j) * column] : 0.0f;
}

static inline void ebb_tile_multiply(float *c, int64_t c_row, const float *a, int64_t a_row,
                                     int64_t a_column, const float *panels, int64_t m, int64_t n,
                                     int64_t k, int64_t panel_rows, bool adds)
{
    for (int64_t first = 0; first < n; first += EBB_TILE_COLUMNS) {
        const float *b = panels + first * panel_rows;
        float *to = c + first;
        int64_t r = 0;
        for (; r + EBB_TILE_ROWS <= m; r += EBB_TILE_ROWS)
            ebb_tile_block(to + r * c_row, c_row, a + r * a_row, a_row, a_column, b, k,
                           EBB_TILE_ROWS, adds);
        for (; r + 4 <= m; r += 4)
            ebb_tile_block(to + r * c_row, c_row, a + r * a_row, a_row, a_column, b, k, 4, adds);
        for (; r < m; r++)
            ebb_tile_block(to + r * c_row, c_row, a + r * a_row, a_row, a_column, b, k, 1, adds);
    }
}

#ifdef __cplusplus
}
#endif
#endif
