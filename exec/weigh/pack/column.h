/* column.h: the pieces that are alive at one position, by offset, in runs that know their widest gap.
 *
 * So the lowest free place at that position is found with a look at each run, however many small gaps
 * lie below it.
 */
#pragma once

#include "onnx/words/arena.h"

typedef struct ebb_column ebb_column;

/* Empty. NULL: out of memory. */
ebb_column *ebb_column_new(ebb_arena *scratch);

/* A piece lies there from now on; it meets no other. False: out of memory. */
bool ebb_column_add(ebb_column *column, uint64_t offset, uint64_t size);

/* The piece at this offset, which is there, lies there no more. */
void ebb_column_remove(ebb_column *column, uint64_t offset);

/* The lowest offset, at or above this one, from which `size` bytes are free. */
uint64_t ebb_column_first(const ebb_column *column, uint64_t offset, uint64_t size);
