/* det.h: determinants, their cofactors and inverses, the same text for all back ends: one matrix, one thread.
 */
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/math/words.h"

/* Gauss's elimination with the largest pivot of each column. */
EBB_BOTH double ebb_determinant(double *m, int64_t n)
{
    double product = 1;
    for (int64_t k = 0; k < n; k++) {
        int64_t best = k;
        for (int64_t i = k + 1; i < n; i++)
            if (fabs(m[i * n + k]) > fabs(m[best * n + k]))
                best = i;
        for (int64_t j = k; best != k && j < n; j++) {
            double swap = m[k * n + j];
            m[k * n + j] = m[best * n + j];
            m[best * n + j] = swap;
        }
        double pivot = m[k * n + k];
        product *= best != k ? -pivot : pivot;
        if (pivot == 0)
            return 0;
        for (int64_t i = k + 1; i < n; i++) {
            double factor = m[i * n + k] / pivot;
            for (int64_t j = k; j < n; j++)
                m[i * n + j] -= factor * m[k * n + j];
        }
    }
    return product;
}

/* Gauss and Jordan's elimination, by the largest pivot of each column: a becomes the inverse of m, and
 * m the unit matrix. Of a singular matrix elements are not finite. */
EBB_BOTH void ebb_inverse(double *a, double *m, int64_t n)
{
    for (int64_t i = 0; i < n * n; i++)
        a[i] = i % (n + 1) == 0;
    for (int64_t k = 0; k < n; k++) {
        int64_t best = k;
        for (int64_t i = k + 1; i < n; i++)
            if (fabs(m[i * n + k]) > fabs(m[best * n + k]))
                best = i;
        const double scale = 1 / m[best * n + k];
        for (int64_t j = 0; j < n; j++) {
            const double left = m[best * n + j], right = a[best * n + j];
            m[best * n + j] = m[k * n + j];
            a[best * n + j] = a[k * n + j];
            m[k * n + j] = left * scale;
            a[k * n + j] = right * scale;
        }
        for (int64_t i = 0; i < n; i++) {
            const double factor = m[i * n + k];
            for (int64_t j = 0; i != k && j < n; j++) {
                m[i * n + j] -= factor * m[k * n + j];
                a[i * n + j] -= factor * a[k * n + j];
            }
        }
    }
}

typedef struct ebb_factors { /* P X Q = L U: X[row[i]][column[j]] = (L U)[i][j] */
    double *m;               /* L below the diagonal, U on and above it */
    int64_t *row, *column, n;
    double sign; /* of both permutations */
} ebb_factors;

EBB_BOTH void ebb_exchange(int64_t *list, int64_t a, int64_t b)
{
    int64_t held = list[a];
    list[a] = list[b];
    list[b] = held;
}

/* Elimination with the largest of all that is left, so that zeros come last. */
EBB_BOTH void ebb_factor(ebb_factors *f)
{
    int64_t n = f->n;
    for (int64_t i = 0; i < n; i++)
        f->row[i] = f->column[i] = i;
    f->sign = 1;
    for (int64_t k = 0; k < n; k++) {
        int64_t r = k, s = k;
        for (int64_t i = k; i < n; i++)
            for (int64_t j = k; j < n; j++)
                if (fabs(f->m[i * n + j]) > fabs(f->m[r * n + s])) {
                    r = i;
                    s = j;
                }
        f->sign *= (r != k) == (s != k) ? 1 : -1;
        ebb_exchange(f->row, k, r);
        ebb_exchange(f->column, k, s);
        for (int64_t j = 0; j < n; j++) {
            double held = f->m[k * n + j];
            f->m[k * n + j] = f->m[r * n + j];
            f->m[r * n + j] = held;
        }
        for (int64_t i = 0; i < n; i++) {
            double held = f->m[i * n + k];
            f->m[i * n + k] = f->m[i * n + s];
            f->m[i * n + s] = held;
        }
        if (f->m[k * n + k] == 0)
            return;
        for (int64_t i = k + 1; i < n; i++) {
            double share = f->m[i * n + k] /= f->m[k * n + k];
            for (int64_t j = k + 1; j < n; j++)
                f->m[i * n + j] -= share * f->m[k * n + j];
        }
    }
}

/* a = the adjugate of U, which has one where its last pivot is zero, and is zero where two are.
 * With p the last pivot, d the product of the others, V the rest and w its last column:
 *     U = [ V w ]     adj U = [ p d V^-1   -d V^-1 w ]
 *         [ 0 p ]             [ 0           d        ] */
EBB_BOTH void ebb_adjugate(const ebb_factors *f, double *a)
{
    int64_t n = f->n, last = n - 1;
    double d = 1;
    for (int64_t k = 0; k < last; k++)
        d *= f->m[k * n + k];
    memset(a, 0, (size_t)(n * n) * sizeof *a);
    if (d == 0)
        return;
    for (int64_t j = 0; j < n; j++) {
        double top = j < last ? f->m[n * n - 1] * d : d;
        a[j * n + j] = j < last ? top / f->m[j * n + j] : d;
        for (int64_t i = j - 1; i >= 0; i--) {
            double sum = 0;
            for (int64_t k = i + 1; k <= j; k++)
                sum += f->m[i * n + k] * a[k * n + j];
            a[i * n + j] = -sum / f->m[i * n + i];
        }
    }
}

/* What X's last factors make of it: a becomes that times L^-1, so that element [row[j], column[i]]
 * of the cofactors is sign a[i, j]. */
EBB_BOTH void ebb_adjugate_whole(const ebb_factors *f, double *a)
{
    int64_t n = f->n;
    ebb_adjugate(f, a);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = n - 1; j >= 0; j--)
            for (int64_t k = j + 1; k < n; k++)
                a[i * n + j] -= a[i * n + k] * f->m[k * n + j];
}
