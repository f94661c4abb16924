/* noted.h: what PyTorch's dynamo exporter notes in a file beside the graph.
 *
 * An initializer is marked as a parameter or a buffer, where it kept its name. A node says which call
 * it stands for and what that reads of the module's state, also where folding left another tensor:
 *
 *     "%linear : [num_users=1] = call_function[target=torch.ops.aten.linear.default]
 *          (args = (%x, %p_fc_weight, %p_fc_bias), kwargs = {})"       p_: parameter, b_: buffer
 *
 * That is EBB_NOTED_CALL (onnx/graph/graph.h).
 */
#pragma once

#include "onnx/graph/graph.h"

#define EBB_NOTED_LIST "pkg.torch.export.ExportedProgram.graph_signature"
#define EBB_NOTED_KIND "pkg.torch.export.graph_signature.InputSpec.kind"
#define EBB_NOTED_SCOPES "pkg.torch.onnx.name_scopes"
#define EBB_NOTED_NAME "pkg.torch.onnx.original_node_name"

/* Whether one of PyTorch's exporters wrote it: they tell by names or notes what they folded and merged. */
bool ebb_is_from_pytorch(const ebb_graph *g);

/* Whether the file tells that a batch norm was folded into this convolution:
 *   dynamo        it stands for the call of the batch norm
 *   TorchScript   weight and bias both have lost their names, "onnx::Conv_25"
 *   ONNX Runtime  its optimiser names them "ConvBnFusion_W_..."
 *   ebb           pass fold-norm marks the node EBB_NORM_WITHIN */
#define EBB_NORM_WITHIN "ebb.norm_within"
bool ebb_holds_norm(const ebb_graph *g, ebb_node n);

typedef enum ebb_noted_kind {
    EBB_NOTED_NOTHING = 0, /* no mark */
    EBB_NOTED_PARAMETER,
    EBB_NOTED_OTHER, /* a buffer or a constant */
} ebb_noted_kind;

ebb_noted_kind ebb_noted_kind_of(const ebb_graph *g, ebb_value v);

enum { EBB_NOTED_SOURCES = 16, EBB_NOTED_LONGEST = 400 };

typedef struct ebb_noted { /* "p_fc_weight", ...: what a call reads of the module's state */
    char name[EBB_NOTED_SOURCES][EBB_NOTED_LONGEST];
    int count;
    bool call; /* the node has such a note */
} ebb_noted;

/* Those that begin with `begin`: "p_", "b_". */
void ebb_noted_sources(ebb_noted *noted, const ebb_graph *g, ebb_node n, const char *begin);

/* "layer_norm_1" of "%layer_norm_1 : [num_users=1] = ..."; NULL: no note, or no memory. */
const char *ebb_noted_call(const ebb_graph *g, ebb_node n, ebb_arena *scratch);

typedef struct ebb_noted_calls { /* that nodes stand for */
    const ebb_graph *g;
    const char **list; /* in order */
    size_t count;
} ebb_noted_calls;

ebb_status ebb_noted_calls_find(ebb_noted_calls *calls, const ebb_graph *g, ebb_arena *scratch);
/* Whether a node stands for the call, or what folding made of it has its name. */
bool ebb_noted_has(const ebb_noted_calls *calls, const char *call);

/* Gives the new node what is noted at the one whose call it computes now. */
ebb_status ebb_noted_keep(ebb_graph *g, ebb_node made, ebb_node of);

/* Whether n is the q - x of x + (q - x), in a file that may have lost a detach() there: without one nobody
 * would write it, and with one the gradient goes to x as though it had not been rounded, or looked up. */
bool ebb_is_straight_through(const ebb_graph *g, ebb_node n);
/* Whether n is the - x of q + x - x, in such a file: q with the gradient of x. held: whether that x is detached. */
bool ebb_is_taken_off(const ebb_graph *g, ebb_node n, bool held);
bool ebb_ends_in(const char *name, const char *end);

/* A parameter of the module that was exported, by the list that the exporter leaves at the graph, of
 * which the file has no more than that: no initializer of its name, and no call that reads it, nor one of its
 * module that reads what it is tied to. Folding made something of it. Nothing is said of files without notes of calls. */
typedef struct ebb_noted_loss {
    const char *source, *name; /* "p_fc_weight", "fc.weight" */
    size_t module;             /* length of "fc" */
    bool run;                  /* the file has nodes of that module */
} ebb_noted_loss;

typedef struct ebb_noted_losses {
    ebb_noted_loss *list; /* in the order of their sources */
    size_t count;
    const ebb_noted_loss *all; /* lost or not, in the order of their sources */
    const char **names;        /* of those, in order */
    size_t all_count;
} ebb_noted_losses;

ebb_status ebb_noted_losses_find(ebb_noted_losses *losses, const ebb_graph *g, ebb_arena *scratch);

/* What the exporter's optimiser notes at an initializer that it made:
 *
 *     pkg.onnxscript.optimizer.folded_from    "['l.bias_hh', 'val_2', 'zeros']"
 *
 * Names of all that went into it, however far back. */
#define EBB_NOTED_FOLDED "pkg.onnxscript.optimizer.folded_from"

bool ebb_noted_is_folded(const ebb_graph *g, ebb_value v);
/* Whether a parameter of the exporter's list is among them. */
bool ebb_noted_is_made(const ebb_graph *g, ebb_value v);

typedef enum ebb_noted_fold {
    EBB_FOLD_UNTOLD = 0,    /* no such note, or no list of parameters to compare it with */
    EBB_FOLD_OF_CONSTANTS,  /* no parameter went into it */
    EBB_FOLD_OF_PARAMETERS, /* one did, or, behind this, */
    EBB_FOLD_OF_SEVERAL,
} ebb_noted_fold;

/* Whether it was interpolated on its way, as tables of positions are for another size of image. */
bool ebb_noted_is_resized(const ebb_graph *g, ebb_value v);
/* Whether it was expanded or repeated on its way. */
bool ebb_noted_is_expanded(const ebb_graph *g, ebb_value v);
/* Whether a call that computes is among those, as of a table whose rows are normalised, or of a scaled matrix; a
 * sum, as of 1 + w; or a product of matrices. */
bool ebb_noted_is_computed(const ebb_graph *g, ebb_value v);
bool ebb_noted_is_sum(const ebb_graph *g, ebb_value v);
bool ebb_noted_is_product(const ebb_graph *g, ebb_value v);
/* Whether a parameter that went into it is in the file by itself as well. */
bool ebb_noted_is_beside(const ebb_noted_losses *losses, const ebb_graph *g, ebb_value v);
/* "tok" of ['tok', 'val_1', 'val_2'] where that was expanded and nothing else was done; NULL: it is not so. */
const char *ebb_noted_repeated(const ebb_noted_losses *losses, const ebb_graph *g, ebb_value v,
                               ebb_arena *scratch);

ebb_noted_fold ebb_noted_fold_of(const ebb_noted_losses *losses, const ebb_graph *g, ebb_value v);
/* Whether that note stands at one of the initializers, and has this name. */
bool ebb_noted_is_within(const ebb_graph *g, const char *name);
/* The parameter of this source, "p_fc_weight", lost or not; NULL: there is none. */
const ebb_noted_loss *ebb_noted_parameter(const ebb_noted_losses *losses, const char *source);
/* Whether the exporter lists a parameter of this name, "fc.weight". */
bool ebb_noted_is_parameter(const ebb_noted_losses *losses, const char *name);
/* Whether the file has no initializer of the name that this source, "p_fc_weight", had in the module. */
bool ebb_noted_is_gone(const ebb_noted_losses *losses, const ebb_graph *g, const char *source);

/* Whether the exporter lists a weight of this module; where it left no list, nobody can tell: true. */
bool ebb_noted_lists(const ebb_noted_losses *losses, const char *module);

/* Of the module that the node was made in, the first; NULL: it has none. */
const ebb_noted_loss *ebb_noted_loss_at(const ebb_noted_losses *losses, const ebb_graph *g,
                                        ebb_node n);
/* Whether one of those is called a weight, which may have been normalised or scaled. */
bool ebb_noted_weight_at(const ebb_noted_losses *losses, const ebb_graph *g, ebb_node n);
/* A weight of a module within that one, whose bias is lost as well, and all of its nodes: a layer that was
 * computed before the run. */
const ebb_noted_loss *ebb_noted_layer_below(const ebb_noted_losses *losses, const ebb_graph *g,
                                            ebb_node n);

/* The weight of another module beside that of this parameter, "block.norm1.weight" beside "block.norm2.weight",
 * which is lost with its bias and all of its nodes: the first. */
const ebb_noted_loss *ebb_noted_loss_beside(const ebb_noted_losses *losses, const char *name);

/* "b2.weight" of "p_b2_weight" where the node's innermost module is "b2"; else NULL. */
const char *ebb_noted_name(const ebb_graph *g, ebb_node n, const char *source, ebb_arena *scratch);
