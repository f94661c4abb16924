/* lt_map.h: a row-major product in the words of a library of column-major ones.
 *
 *     y [m, n] = a [m, k] b [k, n]   in rows    is    y' [n, m] = b' [n, k] a' [k, m]   in columns
 *
 * What lies in rows is its own transposition when read in columns: so the two sides change places,
 * nothing is moved, and a side that is to be turned in rows is to be turned in columns. Plain
 * arithmetic without a library, so that it can be tested without one.
 */
#pragma once

#include "kernels/cuda/product.h"

typedef struct ebb_lt_matrix { /* as it lies, in columns: element [i, j] is at i + j lead */
    int64_t rows, columns, lead;
    int64_t next; /* elements from one batch to the next; 0: the same for all */
    int64_t turned;
} ebb_lt_matrix;

typedef struct ebb_lt_map {
    ebb_lt_matrix left, right, result; /* left is b, right is a */
    int64_t batches;
} ebb_lt_map;

static inline int64_t ebb_lt_most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* [rows, columns] in rows, by its strides, of which one is 1. */
static inline ebb_lt_matrix ebb_lt_read(int64_t rows, int64_t columns, int64_t row, int64_t column)
{
    ebb_lt_matrix m = {columns, rows, ebb_lt_most(row, columns), 0, 0};
    if (column != 1) {
        m.rows = rows;
        m.columns = columns;
        m.lead = ebb_lt_most(column, rows);
        m.turned = 1;
    }
    return m;
}

/* NULL: done; else why the library cannot be told this product in one call. */
static inline const char *ebb_lt_map_read(ebb_lt_map *map, const ebb_cuda_product *p)
{
    memset(map, 0, sizeof *map);
    if (p->m < 1 || p->n < 1 || p->k < 1 || p->batches < 1)
        return "there is nothing to multiply";
    if (p->walk.rank > 1)
        return "batches are broadcast along some of several axes";
    if (p->batches > INT32_MAX || (p->batches > 1 && p->y_row != p->n) ||
        (p->a_row != 1 && p->a_column != 1) || (p->b_row != 1 && p->b_column != 1))
        return "its operands lie in no way that the library knows";
    map->batches = p->batches;
    map->left = ebb_lt_read(p->k, p->n, p->b_row, p->b_column);
    map->right = ebb_lt_read(p->m, p->k, p->a_row, p->a_column);
    map->result = ebb_lt_read(p->m, p->n, p->y_row, 1);
    if (p->walk.rank == 1) {
        map->left.next = p->walk.stride[1][0] * p->b_matrix;
        map->right.next = p->walk.stride[0][0] * p->a_matrix;
    }
    map->result.next = p->m * p->n;
    return NULL;
}
