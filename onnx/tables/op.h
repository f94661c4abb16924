/* op.h: the operator table.
 *
 * ops.def holds one row an operator; each layer reads its own columns. The functions that a row
 * names live in ops/FAMILY.c: a missing one fails the build by its name.
 *
 *   infer  output types from input types, attributes and constant inputs
 *   grad   emits the backward (graph.h, build.h); `none`: nothing flows; `missing`: no rule
 *   cost   floating-point operations; the bytes are those of the operands
 *   alias  which output may take over the memory of which input (see EBB_OVER)
 *   sizes  what is known of its elements where they are sizes: a rule of graph/facts.c
 *   tile   how it takes an operand a tile of rows at a time: a rule of graph/tile.c
 *   batch  what becomes of its outputs when the batch is computed in parts: a rule of pass
 *          micro-batch; `unknown`: nobody has said (passes/memory/rounding/batch_node.h)
 *   half   whether it computes in 16 bits: a word of passes/primal/halved.c
 *   layout what it becomes between images with channels last: a rule of passes/primal/layout/rules.c
 *
 * `none`: it has no such rule.
 */
#pragma once

#include "onnx/words/attr.h"

EBB_C_BEGIN

typedef enum ebb_op {
    EBB_OP_UNKNOWN = 0, /* kept, planned by its bytes, never run */
#define EBB_OP(id, ...) EBB_OP_##id,
#include "onnx/tables/ops.def"
#undef EBB_OP
    EBB_OP_COUNT
} ebb_op;

enum {
    EBB_POINTWISE = 1 << 0,  /* output element i needs element i of the (broadcast) inputs alone */
    EBB_COMMUTES = 1 << 1,   /* inputs 0 and 1 may be exchanged, bit for bit */
    EBB_VIEW = 1 << 2,       /* output 0 is the bytes of input 0 under another shape */
    EBB_RANDOM = 1 << 3,     /* draws; run twice it must be given the same key */
    EBB_FOLDS = 1 << 4,      /* worth evaluating when all inputs are constant */
    EBB_SHAPE_OF_0 = 1 << 5, /* reads only the shape of input 0, never its bytes */
    EBB_NORM = 1 << 6,       /* a norm: batch norm, layer norm, their like; no gradient of one */
    EBB_UPDATES = 1 << 7,    /* an optimizer's step: outputs replace state */
    EBB_STATISTICS = 1 << 8, /* carries running statistics (batch norm) */
    EBB_DECODES = 1 << 9,    /* codes in, the whole tensor out; rows of axis 0 one by one */
    EBB_STEPS = 1 << 10,     /* its derivative is 0; its rule is the straight-through one */
    EBB_KEEPS = 1 << 11, /* outputs but the first are kept for its gradient; no rule for theirs */
    EBB_PRODUCTS = 1 << 12, /* nearly all it does is multiply and add, as products of matrices do */
    EBB_KEYED = 1 << 13,    /* draws by an input that is a key: run twice it gives the same bits */
    EBB_STARTS = 1 << 14,   /* begins work that goes on beside the step (graph/place.h) */
    EBB_BODIES = 1 << 15,   /* runs bodies: If, Loop, Scan */
    EBB_TOGETHER =
        1 << 16, /* asks the group of processes that compute the step (kernels/away/group.h) */
    EBB_PARTLY =
        1
        << 17, /* reads as much of input 0 as it makes; or writes as much over it as its last input is */
};

/* Output o may be written over input i, element by element or because the kernel says so.
 * A column holds the OR of such pairs (o, i < 8). Bytes and layout must be equal too. */
#define EBB_OVER(o, i) (UINT64_C(1) << ((o)*8 + (i)))
bool ebb_op_may_alias(ebb_op op, uint32_t output, uint32_t input);

/* The operands column: "TTT|T- -> !o". A letter for each input; inputs of one letter have one dtype, as
 * the specification says ('-': a dtype of its own; of floating point dtypes any go together: a norm of
 * bfloat16 rows may have a float32 scale, and kernels say which mixtures they take). Inputs before '|'
 * must be there; "*": any number more, like the last. A mark for each output:
 *
 *     .   it may be there or not, as the specification has it
 *     o   where nobody reads it, it need not be made: a graph may leave its name out
 *     !   the kernels write it without asking whether it is there
 *     *   any number more
 *
 * Where versions of an operator differ, what any of them allows since the row's own. */
typedef struct ebb_arity {
    uint32_t required, inputs, outputs; /* UINT32_MAX: any number */
} ebb_arity;

ebb_arity ebb_op_arity(ebb_op op); /* of no known operator: none required, any number allowed */
char ebb_op_tie(ebb_op op, uint32_t input);
char ebb_op_output_mark(ebb_op op, uint32_t output);

/* The reads column: what an error in an input becomes, so whether it may be kept as a code. The last
 * letter is that of all inputs behind it.
 *
 *     L   linear: the same share of the result
 *     S   smooth: it passes through a bounded slope
 *     E   exponent: it becomes a factor
 *     G   let go: the operator reads it if it is there, and has another way if not
 *     -   exactly: an index, a key, a statistic
 */
char ebb_op_reads(ebb_op op, uint32_t input);

/* The slots column: what an initializer in an input is for. The last letter is that of all inputs
 * behind it.
 *
 *     W   a weight
 *     O   a weight of this layer alone: its bias or scale
 *     R   a running statistic
 *     Q   a scale that was found by calibration: trained where it is named
 *     B   a bound, a ratio, a number to fill with
 *     S   a size: never trained
 *     A   a bias or a scale as well as a constant
 *     M   what the output is for: it is only moved
 *     -   anything else
 */
char ebb_op_slot(ebb_op op, uint32_t input);

struct ebb_infer;
struct ebb_grad;
struct ebb_build;

typedef ebb_status (*ebb_infer_fn)(struct ebb_infer *);
typedef void (*ebb_grad_fn)(struct ebb_build *, struct ebb_grad *);
typedef double (*ebb_cost_fn)(const struct ebb_infer *); /* floating-point operations */

typedef struct ebb_op_row {
    const char *domain; /* "" is ai.onnx */
    const char *name;
    int since; /* first opset version of the domain for which this row is right */
    const char *operands, *reads, *slots;
    uint32_t traits;
    uint64_t alias;
    ebb_infer_fn infer;
    ebb_grad_fn grad;
    ebb_cost_fn cost;
    const char *id; /* "RELU" */
} ebb_op_row;

/* Never NULL; the row of EBB_OP_UNKNOWN has empty names. */
const ebb_op_row *ebb_op_row_of(ebb_op op);

/* The row for a name at an opset version: the newest `since` that is not above it. "ai.onnx" and ""
 * are the same domain. EBB_OP_UNKNOWN where there is none. */
ebb_op ebb_op_find(const char *domain, const char *name, int64_t version);

static inline bool ebb_op_has(ebb_op op, uint32_t trait)
{
    return (ebb_op_row_of(op)->traits & trait) != 0;
}

/* The convolution that an operator begins with which has a ReLU behind it, else EBB_OP_UNKNOWN. */
ebb_op ebb_op_convolution(ebb_op op);

bool ebb_op_has_grad(ebb_op op); /* a rule, or the knowledge that nothing flows */
/* That knowledge: Shape, Equal ..., and of all EBB_STEPS, which have a rule by option. */
bool ebb_op_stops_grad(ebb_op op);

/* The function body of an operator in ONNX text, or NULL: what other runtimes run, and what our
 * kernel is tested against. All ai.ebb operators have one, and those of others that a runtime for
 * inference lacks. See bodies.def. As the table has it, marks of pieces in it; _at: whole, for a model
 * with ai.onnx at this opset, whose nodes of the operator are of 16 bits or not; arena memory, NULL: none. */
const char *ebb_op_body(ebb_op op);
const char *ebb_op_body_at(ebb_op op, int64_t opset, bool narrow, ebb_arena *arena);
uint32_t ebb_op_body_outputs(ebb_op op); /* how many outputs it declares; 0: no body */

/* The domains that we emit into and the versions that we import. */
#define EBB_DOMAIN_ONNX ""
#define EBB_DOMAIN_MS "com.microsoft"
#define EBB_DOMAIN_EBB "ai.ebb"
#define EBB_DOMAIN_PREVIEW "ai.onnx.preview.training"
#define EBB_DOMAIN_EXPERIMENTS "ai.onnx.preview"

/* ---- what infer and cost see: one node's types, without a graph ---- */

enum { EBB_INFER_MAX = 64 };

typedef struct ebb_infer {
    ebb_op op;
    int64_t version;  /* opset version of the node's domain in the file */
    const char *node; /* for messages: "Conv 'layer3.conv1'" */
    ebb_attrs attrs;
    uint32_t input_count, output_count;
    const ebb_type *const *in;         /* NULL: absent */
    const ebb_tensor *const *constant; /* the input's value where it is known, else NULL */
    ebb_type *out;                     /* to fill; starts as ebb_type_none() */
    bool out_wanted[EBB_INFER_MAX];    /* output has a name in the file */
    ebb_arena *scratch;
} ebb_infer;

/* An error of this node: "Conv 'c1': ..." with code EBB_REJECTED. */
ebb_status ebb_infer_error(const ebb_infer *c, const char *format, ...)
    EBB_PRINTF(2, 3) EBB_NEVER_NULL;

/* Integers given by attribute (old opsets) or by constant input (new ones). *known is false where
 * the input is there but its value is not known; count is 0 where neither is given. Arena memory.
 */
ebb_status ebb_infer_ints(const ebb_infer *c, const char *attr, uint32_t input,
                          const int64_t **list, uint32_t *count, bool *known);

EBB_C_END
