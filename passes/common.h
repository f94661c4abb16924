/* common.h: what several passes ask of a graph. */
#pragma once

#include "passes/passes.h"

/* How values of a second model in the graph are called: "teacher/logits". */
#define EBB_TEACHER "teacher"

/* Who reads what in the backward, with views seen through: a Reshape of y is y. All by value id. */
typedef struct ebb_saves {
    size_t value_count; /* values when this was made: later ones are not in it */
    ebb_value *root;    /* the value whose bytes this one shows */
    uint32_t *reads;    /* by root: operands of backward and update nodes that read its bytes */
    bool *kept;         /* by root: alive to the end whoever reads it: initializers, outputs */
    bool *forward;      /* by root: an input, or made by the forward or the loss */
} ebb_saves;

ebb_status ebb_saves_find(ebb_saves *saves, const ebb_graph *g, ebb_arena *scratch);

static inline ebb_value ebb_saves_root(const ebb_saves *saves, ebb_value v)
{
    return v.i < saves->value_count ? saves->root[v.i] : v;
}

bool ebb_is_backward(const ebb_graph *g, ebb_node n); /* of the backward or the update */

uint32_t ebb_letting_go(const ebb_graph *g, ebb_value v); /* how many */
ebb_status ebb_let_go(ebb_graph *g, ebb_value v);

/* The other side of the activation whose gradient n reads one side, x for y or y for x, where both
 * answer its question alike (ReluGrad, ClipGrad, LeakyReluGrad); else none. */
ebb_value ebb_sign_twin(const ebb_graph *g, ebb_node n);

/* What v takes in the arena; 0 where its size is not known. _bits: what n codes of so many bits
 * take. */
int64_t ebb_stored_bytes(const ebb_graph *g, ebb_value v);
int64_t ebb_stored_bits(int64_t n, unsigned bits);

/* A site that was found and is left alone, for this reason. */
static inline ebb_status ebb_declined(ebb_edit *e, ebb_node n, const char *reason)
{
    ebb_found(e);
    return ebb_skipped(e, n, reason);
}

/* The model's initialization graph draws initializer `state` by its value `drawn`, too. */
ebb_status ebb_draw_also(ebb_model *model, ebb_str state, ebb_value drawn);

/* The first node of the update phase, or none: where the backward ends. */
ebb_node ebb_first_update(const ebb_graph *g);

/* Whether the file tells that v, a lone number too, is a parameter of a module: by metadata, or by
 * its name where the TorchScript exporter wrote it, whose other constants are nodes. */
bool ebb_is_parameter(const ebb_graph *g, ebb_value v);
/* "layer1.0.bn1.weight": letters, digits, "_", "." and "-", as the state of a module is named. */
bool ebb_is_name_of_state(const char *name);

/* Whether n is what an exporter made of detach(): an Identity that passes no gradient. Only PyTorch's
 * dynamo exporter says so, by the last entry of its metadata, and its optimiser drops the node. Or one that a pass
 * made (metadata "ebb.detach"). */
bool ebb_is_detach(const ebb_graph *g, ebb_node n);
ebb_value ebb_emit_detached(ebb_build *b, ebb_value x);
/* Whether no gradient passes n: by its operator, or because it is a detach. */
bool ebb_stops_gradient(const ebb_graph *g, ebb_node n);

/* A run ends with `next` in `state`; it is called STATE_next where nothing is. */
ebb_status ebb_bind_next(ebb_graph *g, ebb_value state, ebb_value next);

/* Output i of the graph is `made` from now on, under its name; what it was is called NAME.SUFFIX. */
ebb_status ebb_output_becomes(ebb_graph *g, size_t i, ebb_value made, const char *suffix);

/* What a view shows, seen through views. */
ebb_value ebb_unviewed(const ebb_graph *g, ebb_value v);

typedef struct ebb_product { /* alpha a b, either one turned */
    ebb_value a, b, out;
    bool turn_a, turn_b;
    double alpha;
} ebb_product;

/* Whether n is one: MatMul, FusedMatMul whose batch is where it belongs, or Gemm without a bias. */
bool ebb_read_product(ebb_product *p, const ebb_graph *g, ebb_node n);

/* The one element of a constant, as a double; false where v is no constant of one element. */
bool ebb_scalar_of(const ebb_graph *g, ebb_value v, double *x);
/* The elements of an integer constant of rank at most 1, into scratch; false where it is none. */
bool ebb_ints_of(const ebb_graph *g, ebb_value v, ebb_arena *scratch, const int64_t **list,
                 uint32_t *count);

/* The axes of a reduction, an attribute or an input; none where neither is there. False where they are
 * not known. */
bool ebb_axes_of(const ebb_graph *g, ebb_node n, ebb_arena *scratch, const int64_t **axes,
                 uint32_t *count);
/* The node that made v by reducing one axis of a value, *axis, and keeping it as an axis of 1; or none. */
ebb_node ebb_reduced_by(const ebb_graph *g, ebb_value v, ebb_op op, int64_t *axis,
                        ebb_arena *scratch);

/* The node that alone reads v, where v is neither an output nor bound nor read by a subgraph; else
 * none. */
ebb_node ebb_only_user(const ebb_graph *g, ebb_value v);

/* The gradient of a SoftmaxCrossEntropyLoss whose losses are added up, where it alone reads the
 * log-probabilities. NULL; or why there is none, a full clause. */
const char *ebb_loss_gradient(const ebb_graph *g, ebb_node loss, ebb_node *grad);

/* Gives the new node the name of the one that it stands for, where that has one. */
void ebb_keep_name(ebb_graph *g, ebb_node made, ebb_node of);

/* What the step was made to fit, and for how many threads: model metadata "ebb.budget_bytes",
 * "ebb.budget_threads". It is not compiled to more. */
ebb_status ebb_remember_budget(ebb_edit *e, uint64_t bytes, int threads);

/* The model's random key "ebb.key", int64[2] {seed, step}, which the step counts on; made where
 * there is none, with the pass's option `seed` (1 where it has no such option). */
ebb_status ebb_random_key(ebb_edit *e, ebb_value *key);
/* A stream of random numbers that no node of the graph draws from yet: the hash of name, or the
 * next one that is free. */
int64_t ebb_random_stream(const ebb_graph *g, const char *name);

/* The next node draws as dropout n does, by the same key. */
void ebb_with_draw(ebb_build *b, ebb_node n);
/* Whether dropouts, or what draws their masks again, draw the same for the same key. */
bool ebb_same_draw(const ebb_graph *g, ebb_node a, ebb_node b);

/* What one word of Philox4x32-10 takes in operations of the roofline's machine: 2.5 ns on one core,
 * measured; its multiplications are of integers. */
enum { EBB_FLOPS_PER_DRAW = 125 };

/* A positive 31-bit number from text, the same everywhere (FNV-1a). */
uint32_t ebb_hash31(const char *text);
