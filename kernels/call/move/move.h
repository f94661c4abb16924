/* move.h: operators that are strided copies: what their calls say, read and checked once for all back ends.
 *
 * A back end says how it copies (ebb_mover), and has the operator:
 *
 *     static const ebb_mover mover = {copy, clear};
 *     EBB_MOVE(concat) // run_concat, for a row
 *
 * ebb_x_misfit is for the rows of kernels: NULL, or why none of these takes the call.
 */
#pragma once

#include "kernels/math/pad.h"
#include "kernels/operand.h"

EBB_C_BEGIN

typedef struct ebb_mover {
    /* For every index of dims: to[index . to_stride] = from[index . from_stride], elements of
     * `size` bytes; strides in elements and of any sign, from 0 too. The two do not overlap. */
    ebb_status (*copy)(const ebb_call *c, void *to, const int64_t *to_stride, const void *from,
                       const int64_t *from_stride, int rank, const int64_t *dims, size_t size);
    ebb_status (*clear)(const ebb_call *c, void *to, size_t bytes); /* to zeros */
} ebb_mover;

#define EBB_MOVE(name)                              \
    static ebb_status run_##name(const ebb_call *c) \
    {                                               \
        return ebb_move_##name(c, &mover);          \
    }

ebb_status ebb_move_concat(const ebb_call *c, const ebb_mover *by);
ebb_status ebb_move_split(const ebb_call *c, const ebb_mover *by);
ebb_status ebb_move_slice(const ebb_call *c, const ebb_mover *by);      /* (X, starts, ...) -> Y */
ebb_status ebb_move_slice_grad(const ebb_call *c, const ebb_mover *by); /* (dY, shape, ...) -> dX */
ebb_status ebb_move_depth_to_space(const ebb_call *c, const ebb_mover *by);
ebb_status ebb_move_space_to_depth(const ebb_call *c, const ebb_mover *by);
ebb_status ebb_move_expand(const ebb_call *c, const ebb_mover *by);
ebb_status ebb_move_tile(const ebb_call *c, const ebb_mover *by);

const char *ebb_transpose_misfit(const ebb_call *c);
const char *ebb_concat_misfit(const ebb_call *c);
const char *ebb_split_misfit(const ebb_call *c);
const char *ebb_same_dtype_misfit(const ebb_call *c); /* output 0 has input 0's */
const char *ebb_depth_misfit(const ebb_call *c);      /* DepthToSpace, SpaceToDepth */
const char *ebb_expand_misfit(const ebb_call *c);
const char *ebb_tile_misfit(const ebb_call *c);
int ebb_tile_rank(const ebb_call *c); /* of the copy that Tile is */

ebb_pad_mode ebb_pad_mode_of(const ebb_call *c);
const char *ebb_pad_misfit(const ebb_call *c);
/* What stands before each axis of a Pad, negative where elements go; or the pads do not make the
 * output. */
ebb_status ebb_pads_read(const ebb_call *c, int64_t begin[EBB_MAX_RANK]);

EBB_C_END
