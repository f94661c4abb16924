/* infer.h, verify.h in one: types over a graph, and every rule of a legal graph. */
#pragma once

#include "onnx/graph/graph.h"

/* Types of one node's outputs, from the types of its inputs. An op without a row keeps what the
 * file says (value_info). A conflict with a known type of the file is EBB_REJECTED. */
ebb_status ebb_infer_node(ebb_graph *g, ebb_node n);

/* Over the whole graph, in execution order. */
ebb_status ebb_infer_graph(ebb_graph *g);

/* The same, but a node that contradicts what it reads ends nothing: it is told of, keeps what the
 * file says of its outputs, and the next one is looked at. Other errors are returned. */
typedef ebb_status (*ebb_contradicted)(void *context, ebb_node n, ebb_status why);
ebb_status ebb_infer_through(ebb_graph *g, ebb_contradicted told, void *context);

/* given.c: gives symbolic dim `symbol` its size everywhere, also within a sum ("past + sequence"; run
 * ebb_infer_graph afterwards). *bound counts the inputs changed. */
ebb_status ebb_bind_dim(ebb_graph *g, const char *symbol, int64_t size, size_t *bound);
ebb_status ebb_bind_shape(ebb_graph *g, const char *input, const int64_t *dims, int rank);
/* "did you mean", where one of these values is called nearly so. */
ebb_status ebb_meant(ebb_status status, const ebb_graph *g, const ebb_value *values, size_t count,
                     const char *name);

/* Of an input that is a decoder's past of keys or values ("past_key_values.0.key"), the axis of its
 * length, which is open or 0; else -1. */
int ebb_past_axis(const ebb_graph *g, ebb_value v);
/* An input that is what a decoder's convolution read last ("past.0.conv"): zeros before the first token. */
bool ebb_is_past_state(const ebb_graph *g, ebb_value v);
/* An input that says how a decoder is used: use_cache_branch, num_logits_to_keep. */
bool ebb_is_switch(const ebb_graph *g, ebb_value v);
/* One of these: pass decoder takes an empty past, and the whole of the text, where nothing is given. */
bool ebb_may_be_left_out(const ebb_graph *g, ebb_value v);

/* Whether all that the node reads has a size, and something that it gives has none: NonZero and the like. */
bool ebb_node_gives_no_size(const ebb_graph *g, ebb_node n);

/* What to do about such a node; EBB_NO_NODE: one that is not known. */
const char *ebb_help_of_sizes(const ebb_graph *g, ebb_node n);

/* The first such node that is computed of nothing open, as an error: no --dim gives its sizes. NULL: none. */
ebb_status ebb_refuse_sizes_of_values(const ebb_graph *g);

/* The first input dim that is not known, as an error that names it and shows --dim; or, where a node
 * finds sizes in values while all that it is computed of has its own, that node; NULL when all are
 * known. */
ebb_status ebb_require_static(const ebb_graph *g);

/* Floating-point operations of a node; 0 where unknown. */
double ebb_node_flops(const ebb_graph *g, ebb_node n);

/* Every rule of a legal graph: one producer a value, producers before uses, names unique, inputs of
 * nodes exist, uses lists true, arity, bindings of equal types. The first that is broken, as an
 * error. */
ebb_status ebb_verify(const ebb_graph *g);
