/* tile.h: products of small matrices inside one thread, out of memory that the caller gives.
 *
 *   C[m, n] (+)= A[m, k] B[k, n]     A by strides, so transposed too; B packed; C by rows
 *
 * B is packed into panels of EBB_TILE_COLUMNS columns, one after the other, each k rows long, the
 * last one filled up with zeros: the loads of the innermost loop are consecutive. C is written in
 * whole panels, so its rows have room for them. oneDNN's own small products take memory from the
 * heap, which a plan could not know of.
 *
 * Where EBB_TILE_PAIRS, also of bfloat16: a pair of neighbours along k, the first in the low half,
 * stands in the place of a float, and k counts pairs; an odd one out is beside 0 in A and in B.
 * Sums are float32, rounded to nearest after each product, and what is below 2^-126 counts as 0.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__) || defined(__FMA__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
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

#if defined(__AVX512F__) && defined(__AVX512BF16__) && defined(__GNUC__)
enum { EBB_TILE_PAIRS = 1 };
#define EBB_TILE_DOT(x, y, sum) _mm512_dpbf16_ps((sum), (__m512bh)_mm512_set1_ps(x), (__m512bh)(y))
#else
enum { EBB_TILE_PAIRS = 0 };
#define EBB_TILE_DOT(x, y, sum) ((void)(x), (void)(y), (sum)) /* never asked for */
#endif

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

/* `rows` and `pairs` are known where this is inlined. */
EBB_TILE_INLINE void ebb_tile_block_of(float *c, int64_t c_row, const float *a, int64_t a_row,
                                       int64_t a_column, const float *b, int64_t k, int rows,
                                       bool adds, bool pairs)
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
            float x;
            memcpy(&x, a + r * a_row + i * a_column, sizeof x);
            sum[r][0] = pairs ? (ebb_lanes)EBB_TILE_DOT(x, low, sum[r][0])
                              : (ebb_lanes)EBB_TILE_FMA(x, low, sum[r][0]);
            sum[r][1] = pairs ? (ebb_lanes)EBB_TILE_DOT(x, high, sum[r][1])
                              : (ebb_lanes)EBB_TILE_FMA(x, high, sum[r][1]);
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

EBB_TILE_INLINE void ebb_tile_block_of(float *c, int64_t c_row, const float *a, int64_t a_row,
                                       int64_t a_column, const float *b, int64_t k, int rows,
                                       bool adds, bool pairs)
{
    (void)pairs;
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < EBB_TILE_COLUMNS; j++) {
            float sum = 0;
            for (int64_t i = 0; i < k; i++)
                sum += a[r * a_row + i * a_column] * b[i * EBB_TILE_COLUMNS + j];
            c[r * c_row + j] = adds ? c[r * c_row + j] + sum : sum;
        }
}

#endif

EBB_TILE_INLINE void ebb_tile_block(float *c, int64_t c_row, const float *a, int64_t a_row,
                                    int64_t a_column, const float *b, int64_t k, int rows,
                                    bool adds)
{
    ebb_tile_block_of(c, c_row, a, a_row, a_column, b, k, rows, adds, false);
}

/* n rounded up to whole panels. */
static inline int64_t ebb_tile_width(int64_t n)
{
    return (n + EBB_TILE_COLUMNS - 1) / EBB_TILE_COLUMNS * EBB_TILE_COLUMNS;
}

enum { EBB_TILE_AHEAD = 12 }; /* short lines that are asked for before they are read */

/* For so many bytes, which a processor does not foresee: lines that are short and apart. */
EBB_TILE_INLINE void ebb_tile_ask(const char *at, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(at + i);
}

/* Lines of `most` floats or pairs, line i with element i of each of n columns, 0 beyond: to[i * most + j]. A
 * column lies in one piece, `column` bytes from the one before. A few of each at a time, for columns far
 * apart share places in the cache. */
static inline void ebb_tile_turn(void *to, const void *from, int64_t column, int64_t count,
                                 int64_t n, int64_t most)
{
    for (int64_t i = 0; i < count; i += EBB_TILE_LANES) {
        const int64_t here = count - i < EBB_TILE_LANES ? count - i : EBB_TILE_LANES;
        char *lines = (char *)to + 4 * i * most;
        for (int64_t j = 0; j < n; j++) {
            const char *piece = (const char *)from + j * column + 4 * i;
            ebb_tile_ask(piece + 4 * EBB_TILE_LANES, 1);
            for (int64_t p = 0; p < here; p++)
                memcpy(lines + 4 * (p * most + j), piece + 4 * p, 4);
        }
        for (int64_t p = 0; p < here && n < most; p++)
            memset(lines + 4 * (p * most + n), 0, (size_t)(4 * (most - n)));
    }
}

/* B[k, n], element (i, j) at i * row + j * column, into panels: width(n) * k floats. */
static inline void ebb_tile_pack(float *to, const float *b, int64_t row, int64_t column, int64_t k,
                                 int64_t n)
{
    for (int64_t first = 0; first < n; first += EBB_TILE_COLUMNS) {
        const int64_t here = n - first < EBB_TILE_COLUMNS ? n - first : EBB_TILE_COLUMNS;
        if (row == 1 && column > 1) {
            ebb_tile_turn(to, b + first * column, 4 * column, k, here, EBB_TILE_COLUMNS);
            to += k * EBB_TILE_COLUMNS;
            continue;
        }
        for (int64_t i = 0; i < k; i++, to += EBB_TILE_COLUMNS) {
            ebb_tile_ask((const char *)(b + (i + EBB_TILE_AHEAD) * row + first * column), 4 * here);
            for (int64_t j = 0; j < EBB_TILE_COLUMNS; j++)
                to[j] = first + j < n ? b[i * row + (first + j) * column] : 0.0f;
        }
    }
}

/* Pairs of lines: k lines of n bfloat16s, element (i, j) at i * row + j * column, into (k + 1) / 2 lines
 * of `most` pairs; 0 where there is none. */
EBB_TILE_INLINE void ebb_tile_pair_lines(uint32_t *to, const uint16_t *from, int64_t row,
                                         int64_t column, int64_t k, int64_t n, const int64_t most)
{
    int64_t i = 0;
    if (row == 1 && column > 1) {
        i = k / 2 * 2;
        ebb_tile_turn(to, from, 2 * column, k / 2, n, most);
        to += k / 2 * most;
        from += i;
    }
    for (; i < k; i += 2, to += most, from += 2 * row) {
        const uint32_t second = i + 1 < k ? 0xFFFFu : 0;
        const uint16_t *next = from + (second != 0 ? row : 0);
        if (column == 1 && n == most) {
            for (int64_t j = 0; j < most; j++)
                to[j] = from[j] | (next[j] & second) << 16;
            continue;
        }
        for (int64_t j = 0; j < n; j++)
            to[j] = from[j * column] | (next[j * column] & second) << 16;
        for (int64_t j = n; j < most; j++)
            to[j] = 0;
    }
}

/* As ebb_tile_pack, of bfloat16: width(n) * ((k + 1) / 2) pairs. */
static inline void ebb_tile_pack_pairs(uint32_t *to, const uint16_t *b, int64_t row, int64_t column,
                                       int64_t k, int64_t n)
{
    for (int64_t first = 0; first < n; first += EBB_TILE_COLUMNS) {
        const int64_t here = n - first < EBB_TILE_COLUMNS ? n - first : EBB_TILE_COLUMNS;
        ebb_tile_pair_lines(to, b + first * column, row, column, k, here, EBB_TILE_COLUMNS);
        to += EBB_TILE_COLUMNS * ((k + 1) / 2);
    }
}

EBB_TILE_INLINE void ebb_tile_multiply_of(float *c, int64_t c_row, const float *a, int64_t a_row,
                                          int64_t a_column, const float *panels, int64_t m,
                                          int64_t n, int64_t k, int64_t panel_rows, bool adds,
                                          bool pairs)
{
    for (int64_t first = 0; first < n; first += EBB_TILE_COLUMNS) {
        const float *b = panels + first * panel_rows;
        float *to = c + first;
        int64_t r = 0;
        for (; r + EBB_TILE_ROWS <= m; r += EBB_TILE_ROWS)
            ebb_tile_block_of(to + r * c_row, c_row, a + r * a_row, a_row, a_column, b, k,
                              EBB_TILE_ROWS, adds, pairs);
        for (; r + 4 <= m; r += 4)
            ebb_tile_block_of(to + r * c_row, c_row, a + r * a_row, a_row, a_column, b, k, 4, adds,
                              pairs);
        for (; r < m; r++)
            ebb_tile_block_of(to + r * c_row, c_row, a + r * a_row, a_row, a_column, b, k, 1, adds,
                              pairs);
    }
}

static inline void ebb_tile_multiply(float *c, int64_t c_row, const float *a, int64_t a_row,
                                     int64_t a_column, const float *panels, int64_t m, int64_t n,
                                     int64_t k, int64_t panel_rows, bool adds)
{
    ebb_tile_multiply_of(c, c_row, a, a_row, a_column, panels, m, n, k, panel_rows, adds, false);
}

/* Of pairs, which lie where floats would; only where EBB_TILE_PAIRS. */
static inline void ebb_tile_multiply_pairs(float *c, int64_t c_row, const float *a, int64_t a_row,
                                           int64_t a_column, const float *panels, int64_t m,
                                           int64_t n, int64_t k, int64_t panel_rows, bool adds)
{
    ebb_tile_multiply_of(c, c_row, a, a_row, a_column, panels, m, n, k, panel_rows, adds, true);
}
