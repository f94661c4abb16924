/* dialect.h: operators of other runtimes, made of standard ones and of ours.
 *
 *     y = com.microsoft.SkipLayerNormalization(x, skip, scale)
 *     ──> sum = Add(x, skip),  y = LayerNormalization(sum, scale)
 *
 * What optimisers for inference fuse, and what ONNX Runtime's training writes, becomes nodes that
 * have kernels and gradients, and that the memory passes know. dialect.def lists the operators; a
 * rule (ebb_dialect_NAME, in dialect/FAMILY.c) emits the nodes for one call. The pass inline
 * applies them.
 */
#pragma once

#include "onnx/ops/common.h"
#include "rewrite/rewrite.h"

#define EBB_DOMAIN_ML "ai.onnx.ml" /* read, never emitted */

enum { EBB_DIALECT_INPUTS = 24, EBB_DIALECT_OUTPUTS = EBB_BUILD_OUTPUTS };

typedef struct ebb_foreign { /* what a rule sees of a call */
    ebb_node node;
    uint32_t input_count, output_count;
    ebb_value x[EBB_DIALECT_INPUTS];  /* inputs; none: absent */
    bool wants[EBB_DIALECT_OUTPUTS];  /* whether output k is read */
    ebb_value y[EBB_DIALECT_OUTPUTS]; /* to fill where it is */
    ebb_attrs attrs;
    ebb_arena *scratch;
    ebb_edit *edit;       /* for bodies that a rule puts in */
    const char *declines; /* to set: why the call stays as it is, a full clause */
    bool native;          /* to set: this call is one that ebb runs as it is */
} ebb_foreign;

typedef void (*ebb_dialect_fn)(ebb_build *b, ebb_foreign *f);

/* Whether a rule is there for the node. */
bool ebb_dialect_knows(const ebb_graph *g, ebb_node n);

/* Puts in what the node stands for; *done is false where it stays, with *why for the report (NULL:
 * it need not go). Types of its inputs must be inferred; those of what is put in are. */
ebb_status ebb_dialect_apply(ebb_edit *e, ebb_node n, bool *done, const char **why);

#define EBB_DIALECT(domain, name, rule) void ebb_dialect_##rule(ebb_build *b, ebb_foreign *f);
#define EBB_DIALECT_ALSO(domain, name, rule) EBB_DIALECT(domain, name, rule)
#include "passes/flatten/dialect/dialect.def"
#undef EBB_DIALECT
#undef EBB_DIALECT_ALSO

/* ---- what rules share: dialect.c ---- */

/* x's type; where its rank is not known the call is declined and the answer is false. */
bool ebb_foreign_ranked(const ebb_build *b, ebb_foreign *f, uint32_t input, ebb_type *type);

/* Whether the call is declined: where `so`, because of `why`. */
bool ebb_foreign_declines(ebb_foreign *f, bool so, const char *why);

/* What ends the walk: without the layer nothing of the model can be trained. */
void ebb_foreign_refuse(ebb_build *b, const ebb_foreign *f, ebb_code code, const char *why);

/* A bit for each output that is read. */
uint32_t ebb_foreign_wanted(const ebb_foreign *f);

/* A constant number in input i, `otherwise` where it is absent; not constant: declined, false. */
bool ebb_foreign_scalar(const ebb_build *b, ebb_foreign *f, uint32_t input, double otherwise,
                        double *x);

/* The gradient rule of `op`, as if the call were made for it: inputs x, output y (none: the rule
 * does not read it) and its gradient dy; what input k gets becomes output k. `forward`: the node of
 * that operator, or the call itself where that has its attributes. */
void ebb_foreign_grad(ebb_build *b, ebb_foreign *f, ebb_op op, ebb_node forward, const ebb_value *x,
                      uint32_t count, ebb_value y, ebb_value dy);

/* The node emitted last has the call's own name, and what is noted at it: by these adapters know the layer. */
void ebb_foreign_name(ebb_build *b, const ebb_foreign *f);

/* The call's attributes of these names, where they are there, for the next node. */
#define ebb_with_foreign(b, f, ...) \
    ebb_with_foreign_list(b, f, (const char *const[]){__VA_ARGS__, NULL})
void ebb_with_foreign_list(ebb_build *b, const ebb_foreign *f, const char *const *names);

/* x[.., from .. to - 1, ..] along an axis. */
ebb_value ebb_emit_between(ebb_build *b, ebb_value x, int64_t axis, int64_t from, int64_t to);

/* Reshape to a list with 0 (as it is) and -1 (the rest). */
ebb_value ebb_emit_shaped(ebb_build *b, ebb_value x, const int64_t *dims, uint32_t count);

/* [first, second] along an axis. */
ebb_value ebb_emit_joined(ebb_build *b, ebb_value first, ebb_value second, int64_t axis);

/* 0 .. count - 1, of no more than EBB_DIALECT_COUNTED. */
enum { EBB_DIALECT_COUNTED = 1 << 20 };
ebb_value ebb_emit_counting(ebb_build *b, ebb_foreign *f, int64_t count);

/* Of products with codes of some bits: what each stands for, of the scales' dtype (list NULL: itself), and the zero
 * point of every block, as a byte of codes. */
ebb_value ebb_emit_levels(ebb_build *b, ebb_value scales, int64_t bits, const double *list);
ebb_value ebb_emit_code(ebb_build *b, uint8_t byte);
ebb_value ebb_emit_middle(ebb_build *b, int64_t bits);

/* x + y, or x where y is none. */
ebb_value ebb_emit_plus(ebb_build *b, ebb_value x, ebb_value y);
