/* scan.h: what a Scan says: how often its body runs, and which slice of what each of its values is.
 *
 *   h, all = Scan (h0, x [T, N]) <body = b (h, slice) => (h2, out)>     of opset 9 or newer
 *
 *   step t    reads   h: what step t - 1 made of it, at first h0     slice: x[t], or x[T - 1 - t]
 *             makes   h2, which is h in the next step                out: all[t], or all[T - 1 - t]
 *
 * A Scan is the one form of a loop that is kept: a Loop that can be kept becomes one (passes/flatten). So
 * executor, ruler and gradient know one loop, and the chain of its steps is a node that is easy to find.
 */
#pragma once

#include "onnx/graph/graph.h"

typedef struct ebb_scan {
    ebb_graph *body;
    uint32_t states, inputs, outputs; /* outputs: those that are put together of slices */
    int64_t trips;                    /* how often the body runs */
} ebb_scan;

/* Slice i of a tensor along an axis: `parts` pieces of `bytes` each, `stride` bytes apart, the first
 * i * bytes from the start. */
typedef struct ebb_slices {
    int axis;
    bool backwards; /* step 0 has the last one */
    ebb_type type;  /* of one slice */
    size_t parts, bytes, stride;
} ebb_slices;

/* NULL, or why its steps cannot be told apart before it runs: a clause. */
const char *ebb_scan_read(ebb_scan *s, const ebb_graph *g, ebb_node n);
/* Scanned input or output k; the type of the whole is known. NULL, or why not. */
const char *ebb_scan_slices(ebb_slices *slices, const ebb_graph *g, ebb_node n, bool output,
                            uint32_t k);

/* A list of the Scan, "scan_input_axes", say, that is for `count` operands becomes one for `more` behind them, with
 * this number; one that is not there, and says 0 of all, stays away where that is to say 0. */
ebb_status ebb_scan_lengthen(ebb_graph *g, ebb_node n, const char *name, uint32_t count,
                             uint32_t more, int64_t with);

/* Types of the outside into the body, through it, and out: out[] by output of the node. What is not
 * known yet is left as it is. */
ebb_status ebb_scan_infer(const ebb_graph *g, ebb_node n, ebb_type *out);
/* Operations of all steps. */
double ebb_scan_flops(const ebb_graph *g, ebb_node n);

/* The mark of a loop that is kept, and in the form of passes/flatten/keep.h: metadata "ebb.loop", which is
 * "kept"; "forward" and "backward" once there is a gradient, that of "loop" being "loop_Grad/Scan". */
#define EBB_KEPT_LOOP "ebb.loop"
bool ebb_scan_is_kept(const ebb_graph *g, ebb_node n);

/* Whether the node draws by its name, or one in its bodies does: drawn once more, other numbers come. */
bool ebb_draws_by_name(const ebb_node_info *node);

/* What the Scans of g put together for nobody, from the last output on, goes with what makes it. Their bodies
 * are g's own. */
ebb_status ebb_scans_trim(ebb_graph *g);

/* The values of g that bodies of n read by their names; arena memory, NULL: none left. */
ebb_value *ebb_captures_of(const ebb_graph *g, ebb_node n, ebb_arena *arena, uint32_t *count);

/* The bodies that n shares with the node whose attributes it took become copies of its own. */
ebb_status ebb_bodies_own(ebb_graph *g, ebb_node n);

/* What a body's stand-in stands for: *g becomes the graph where that is. Others are themselves. */
ebb_value ebb_value_meant(const ebb_graph **g, ebb_value v);
