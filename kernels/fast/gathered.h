/* gathered.h: products by the tiles of tile.h, of matrices that are never stored as a whole.
 *
 *   C[m, n] = sum over k of A[m, k] B[k, n]          for each of `batches`
 *
 * The functions below give A and B line by line while they are packed: in a convolution, one of the two
 * holds the windows of an image. C is computed in blocks, each by one thread in its own memory, over one
 * stretch of k after the other; then store() takes its rows. The blocks depend on the sizes alone, so
 * the bits do not depend on the number of threads.
 */
#pragma once

#include "kernels/kernels.h"

enum { EBB_GATHERED_LINE = 256 }; /* most elements in one call of left() or right() */

typedef struct ebb_stretch { /* of a line: elements to .. to + count, and where they are from */
    int32_t place;
    int16_t to, count;
} ebb_stretch;

typedef struct ebb_gathered ebb_gathered;

struct ebb_gathered {
    int64_t batches, m, n, k;
    const void *form; /* what the functions below read */
    /* `count` elements from `first` on along k of A's row `index`. */
    void (*left)(const ebb_gathered *p, float *to, int64_t batch, int64_t index, int64_t first,
                 int64_t count);
    /* Of B's row `index` along n; or, where B goes by columns, of its column along k. */
    void (*right)(const ebb_gathered *p, float *to, int64_t batch, int64_t index, int64_t first,
                  int64_t count, const ebb_stretch *places);
    bool by_columns;
    /* What is the same for all lines of `count` elements: place_rows lists of count + 1 stretches,
     * which right() is then given. NULL: nothing is. */
    void (*places)(const ebb_gathered *p, ebb_stretch *to, int64_t first, int64_t count);
    int64_t place_rows;
    /* `count` elements from column `first` on of C's row. */
    void (*store)(const ebb_gathered *p, const float *from, int64_t batch, int64_t row,
                  int64_t first, int64_t count);
};

/* ---- gathered.c ---- */

ebb_status ebb_gathered_workspace(const ebb_gathered *p, const ebb_call *call, size_t *bytes);
/* No size but k is 0. The workspace is that of the call. */
void ebb_gathered_run(const ebb_gathered *p, const ebb_call *call);
