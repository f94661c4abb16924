/* draws.h: the random words of a tensor's elements, for dropout and the operators that draw.
 *
 * Element i of the whole batch takes word i % 4 of block i / 4 (kernels/math/philox.h). A key {seed, step}
 * is of a tensor that is whole. A key {seed, step, part, parts} is of one that has a part of the batch, and
 * draws what its elements would draw in the whole:
 *
 *   whole     r r r r r r r r     parts 2: of each stretch of 2 * run elements part 0 has the first run,
 *   part 1    . . r r . . r r     part 1 the second; run: attribute `run`, or all of the part's elements,
 *                                 as where the batch is the first axis
 */
#pragma once

#include "kernels/kernels.h"

EBB_C_BEGIN

typedef struct ebb_draws {
    uint64_t seed, step;
    uint32_t stream;
    int64_t part, parts, run; /* run 0: the tensor is whole */
} ebb_draws;

/* Is this operand a key? */
bool ebb_is_draws_key(const ebb_operand *key);

/* Attribute `run` of a call, or n; 0 where the key is of what is whole. */
int64_t ebb_draws_run(const ebb_call *c, const ebb_operand *key, int64_t n);

/* Of n elements; reads the key's bytes. */
ebb_draws ebb_draws_of(const ebb_call *c, const ebb_operand *key, int64_t n);

/* The words of elements first .. first + count - 1. */
void ebb_draw(uint32_t *words, const ebb_draws *d, int64_t first, int64_t count);

EBB_C_END
