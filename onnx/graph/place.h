/* place.h: where the bytes of a value lie.
 *
 * Most lie in the memory of the device that runs the step. A node with the trait EBB_STARTS begins a move to
 * another place, or back, or an exchange with other processes (kernels/away/group.h), that goes on beside the step.
 * One Wait alone reads what it makes: there the work must be over, and until then the Wait holds what is read.
 *
 *     s = Store <place = "disk"> (x)    starts to write x
 *     k = Wait (s, x)                   it is written: x may go
 *     f = Fetch (k)                     starts to read it back
 *     y = Wait (f, k)                   the bytes of x again: k may go
 *
 * So the order of nodes alone says when a move begins, when it must be over and what it holds. What a Wait
 * makes has the memory of what it waits for. To other runtimes all three are Identity.
 *
 * A state that the step replaces by what lies elsewhere lies there itself, from step to step:
 *
 *     f = Fetch (m)   n = Wait (f, m)              m is read ...
 *     m_new = F (n)   s = Store (m_new)   k = Wait (s, m_new)    ... and written where it was; m <- k
 *
 * It may come and go in parts of its rows, which lie one behind the other: all but the last fill pages.
 *
 *     m0, m1 = Split (m)      each is read and written as above      m <- Concat (k0, k1)
 *
 * Weights that no step changes need not be brought anywhere: kernels read them where the model's file is
 * mapped (exec/weigh/memory.h).
 */
#pragma once

#include "onnx/graph/graph.h"

typedef enum ebb_place {
    EBB_PLACE_DEVICE,
    EBB_PLACE_HOST, /* memory of the host, where the device is another */
    EBB_PLACE_DISK,
    EBB_PLACE_MAPPED, /* the model's own file, which is only read */
    EBB_PLACE_COUNT
} ebb_place;

enum { EBB_DISK_ALIGN = 4096 }; /* bytes: a page of the file */

const char *ebb_place_name(ebb_place place); /* "disk" */
/* EBB_PLACE_COUNT: no such place. */
ebb_place ebb_place_find(const char *name);

/* Where the nodes of the file put v. */
ebb_place ebb_value_place(const ebb_graph *g, ebb_value v);

/* It starts a move, or waits for one. */
bool ebb_op_moves(ebb_op op);

/* It takes apart, or puts together, what lies in another place and stays there. */
bool ebb_node_rests(const ebb_graph *g, ebb_node n);
/* The Split that takes apart a state that lies in another place; none: it is whole. */
ebb_node ebb_state_split(const ebb_graph *g, ebb_value state);

/* v lies in another place, is on its way, or is read by a move: nothing but moves may be made of it. */
bool ebb_value_is_moved(const ebb_graph *g, ebb_value v);

/* ---- parts, of which each process has one (pass shard) ---- */

/* Initializer v is a part of a tensor of type `whole`: metadata "ebb.shard" has its dims ("64x32"). A part is
 * ceil(n / ranks) of its n elements in one row; the last is filled up with zeros. NULL: it is whole again. */
ebb_status ebb_part_mark(ebb_graph *g, ebb_value v, const ebb_type *whole);
bool ebb_is_part(const ebb_graph *g, ebb_value v);
/* The type of what v is a part of, for so many processes; false: the metadata does not go with the part. */
bool ebb_part_whole(ebb_type *whole, const ebb_graph *g, ebb_value v, int64_t ranks);

/* An input or output of a step for several processes has this process's rows, along this axis: metadata
 * "ebb.rows". -1: all have the same. */
ebb_status ebb_rows_mark(ebb_graph *g, ebb_value v, int axis);
int ebb_rows_axis(const ebb_graph *g, ebb_value v);

/* NULL, or why n may not stand where it does, as far as places go: a full clause. */
const char *ebb_place_refuses(const ebb_graph *g, ebb_node n);
