/* nested.h: a call inside a call, as widen, stream, compose and on_host have them.
 *
 *     workspace(outer)   make each, room for each                     as the plan asks
 *     prepare(outer)     the same again, fits, prepare each           must need no more than that
 *     run(outer)         point each, run each
 *     release(outer)     release each
 */
#pragma once

#include "kernels/kernels.h"

/* The same call without what belongs to that one alone: kernel, state, workspace. Its operands are
 * still those of `from`; with an arena: copies. */
ebb_call ebb_nested_make(const ebb_call *from);
ebb_status ebb_nested_copy(ebb_call *call, const ebb_call *from, ebb_arena *arena);

/* Picks its kernel and asks what that needs; *room is the most that such a call has needed. */
ebb_status ebb_nested_room(ebb_call *call, const ebb_backend *const *backends, size_t *room);

/* EBB_RUNTIME, naming the node: the calls inside need more than was planned for the outer one. */
ebb_status ebb_nested_fits(const ebb_call *outer, size_t bytes);

/* What the outer call has of this run; its calls' scratch lies `at` bytes into its workspace. */
void ebb_nested_point(ebb_call *call, const ebb_call *outer, size_t at);

/* Both: nothing where it has no kernel. A call whose prepare failed is still to be released. */
ebb_status ebb_nested_prepare(ebb_call *call);
void ebb_nested_release(ebb_call *call);
