/* build.h: emit nodes as formulas.
 *
 *     ebb_value on = ebb_emit(b, EBB_OP_GREATER, x, zero);
 *     ebb_value dx = ebb_emit(b, EBB_OP_WHERE, on, dy, zero);
 *     if (b->status) ...                              // asked once, at the end
 *
 * Errors stick: after the first, every call does nothing and returns "none". Attributes are given
 * before the node that they belong to (ebb_with_*). Each node gets the builder's phase and pass as
 * provenance, goes before `before`, and has its outputs' types inferred at once.
 */
#pragma once

#include "onnx/graph/graph.h"

enum { EBB_BUILD_ATTRS = 16, EBB_BUILD_LIKE = 2, EBB_BUILD_OUTPUTS = 8 };

typedef struct ebb_build {
    ebb_graph *g;
    ebb_node before; /* where nodes go; none: at the end */
    ebb_phase phase;
    const char *pass; /* metadata "ebb.pass"; NULL: none */
    const char
        *name; /* base for names of what is emitted, e.g. "conv1_Grad"; NULL: the op's name */
    ebb_status status;
    ebb_node last; /* the node emitted last */
    ebb_attr pending[EBB_BUILD_ATTRS];
    uint32_t pending_count;
    ebb_node
        like[EBB_BUILD_LIKE]; /* whose attributes come before those: a file's node has any number */
    uint32_t like_count;
    const char *output_name; /* name for output 0 of the next node (ebb_with_name) */
} ebb_build;

ebb_build ebb_build_at(ebb_graph *g, ebb_node before, ebb_phase phase, const char *pass);

void ebb_with_int(ebb_build *b, const char *name, int64_t i);
void ebb_with_float(ebb_build *b, const char *name, double f);
void ebb_with_string(ebb_build *b, const char *name, const char *s);
void ebb_with_ints(ebb_build *b, const char *name, const int64_t *list, uint32_t count);
void ebb_with_floats(ebb_build *b, const char *name, const float *list, uint32_t count);
void ebb_with_strings(ebb_build *b, const char *name, const char *const *list, uint32_t count);
void ebb_with_name(ebb_build *b, const char *output_name); /* fresh if taken */
/* All of that node's, for ConvGrad etc.; those given by themselves win. */
void ebb_with_attrs_of(ebb_build *b, ebb_node n);
void ebb_without_attrs(ebb_build *b); /* forget what was given for a node that is not made */

/* One node with `count` inputs and `out_count` outputs into out[]. Absent inputs are EBB_NO_VALUE;
 * trailing ones are dropped. wanted: bit k set where output k is to exist; beyond 32 all do. */
void ebb_emit_node(ebb_build *b, ebb_op op, const ebb_value *in, uint32_t count, ebb_value *out,
                   uint32_t out_count, uint32_t wanted);

/* One node with one output. */
ebb_value ebb_emit_list(ebb_build *b, ebb_op op, const ebb_value *in, uint32_t count);
#define ebb_emit(b, op, ...)                                   \
    ebb_emit_list((b), (op), (const ebb_value[]){__VA_ARGS__}, \
                  (uint32_t)(sizeof((const ebb_value[]){__VA_ARGS__}) / sizeof(ebb_value)))

/* Constants, as initializers (shared where bytes and type are equal). */
ebb_value ebb_const_scalar(ebb_build *b, ebb_dtype dtype, double x); /* rank 0 */
ebb_value ebb_const_like(ebb_build *b, ebb_value like, double x);    /* rank 0 of like's dtype */
ebb_value ebb_const_ints(ebb_build *b, const int64_t *list, uint32_t count); /* int64[count] */
ebb_value ebb_const_shape(ebb_build *b, ebb_value of); /* its static shape as int64[rank] */
ebb_value ebb_const_tensor(ebb_build *b, const ebb_type *type, const void *data);
/* Numbers as a constant of a float dtype. */
ebb_value ebb_const_floats(ebb_build *b, ebb_dtype dtype, int rank, const int64_t *dims,
                           const double *list);

/* Formulas that rules share. Shapes must be static. */
ebb_value ebb_emit_reshape(ebb_build *b, ebb_value x, const int64_t *dims, int rank);
ebb_value ebb_emit_reshape_like(ebb_build *b, ebb_value x, ebb_value like);
ebb_value ebb_emit_transpose(ebb_build *b, ebb_value x, const int64_t *perm, int rank);
ebb_value ebb_emit_zeros_like(ebb_build *b, ebb_value x);            /* full shape */
ebb_value ebb_emit_cast(ebb_build *b, ebb_value x, ebb_dtype dtype); /* x where it has that dtype */
/* Sums dy over the axes along which `like` was broadcast, so that it gets like's shape. */
ebb_value ebb_emit_unbroadcast(ebb_build *b, ebb_value dy, ebb_value like);
ebb_value ebb_emit_reduce(ebb_build *b, ebb_op op, ebb_value x, const int64_t *axes, uint32_t count,
                          bool keepdims);

/* The gradient of a node of ai.ebb's Attention or AttentionDropout that gives max and sum: dQ, dK and
 * dV into d, those of the bits of `wanted`. y: the value that is its result for others (the node's own,
 * or what that will replace), which decides whether the gradient reads it (ops/attention.c). */
void ebb_emit_attention_grad(ebb_build *b, ebb_node forward, ebb_value dy, ebb_value y,
                             uint32_t wanted, ebb_value *d);

const ebb_type *ebb_build_type(const ebb_build *b, ebb_value v);
void ebb_build_fail(ebb_build *b, ebb_status status); /* keeps the first */
bool ebb_build_got(ebb_build *b, bool memory);        /* as it is; false fails the build */

/* ---- what a gradient rule sees ---- */

typedef struct ebb_grad {
    ebb_node node;
    uint32_t input_count, output_count;
    const ebb_value *x;  /* inputs; none: absent */
    const ebb_value *y;  /* outputs */
    const ebb_value *dy; /* gradient of each output; none where none arrives */
    const bool *wants;   /* whether input i's gradient is needed; a rule may skip the others */
    ebb_value *dx;       /* to fill; none: no gradient (zero) */
    ebb_attrs attrs;
} ebb_grad;

/* Calls the rule of an operator. Refuses, by name, operands and results with so many elements that a
 * few thousand times their number overflows: so rules may multiply sizes as they like. */
void ebb_grad_rule(ebb_build *b, ebb_op op, ebb_grad *c);

/* Makes sure that the forward node has output `slot` (LayerNormalization's mean, say), and returns
 * it. */
ebb_value ebb_grad_need_output(ebb_build *b, ebb_grad *c, uint32_t slot, const char *suffix);
