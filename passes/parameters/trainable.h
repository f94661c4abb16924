/* trainable.h: which initializers are parameters. */
#pragma once

#include "rewrite/rewrite.h"

/* How the set was found, for the report. */
typedef enum ebb_trainable_source {
    EBB_TRAINABLE_ROLES,    /* a pass has chosen them: lora */
    EBB_TRAINABLE_BINDINGS, /* keys of the file's update bindings */
    EBB_TRAINABLE_METADATA, /* InputSpec.kind of the dynamo exporter */
    EBB_TRAINABLE_SLOTS,    /* float initializers where operators expect weights */
} ebb_trainable_source;
const char *ebb_trainable_words(ebb_trainable_source source); /* "marked PARAMETER by ..." */

typedef enum ebb_weight_kind {
    EBB_NO_WEIGHT = 0,   /* a constant, a statistic, a size */
    EBB_DOUBTFUL_WEIGHT, /* made of weights, it seems: not trained unless it is named */
    EBB_SURE_WEIGHT,
} ebb_weight_kind;

typedef struct ebb_weight {
    uint8_t kind;     /* ebb_weight_kind */
    bool lost;        /* sure, though it has neither mark nor name of a parameter */
    bool made;        /* doubtful, and surely made of one: no more than another export has it */
    bool untold;      /* doubtful: a parameter or a buffer, of which the file does not tell */
    int64_t elements; /* doubtful: of how many numbers it seems to be made; 0: of all */
    /* Doubtful: why; sure: what it is instead of the parameter; a clause, or NULL. */
    const char *why;
} ebb_weight;

/* Metadata of a graph, from pass loss to pass gradient: the weights of outputs that no loss reads, each a line of the
 * number of its elements and its name. */
#define EBB_UNREACHED "ebb.unreached"

/* From reading the file to pass gradient, as many lines: parameters that the exporter dropped with their nodes. */
#define EBB_GONE "ebb.gone"

/* list: by value id, zeroed. */
ebb_status ebb_weights_judge(ebb_weight *list, ebb_trainable_source *source, const ebb_graph *g,
                             ebb_arena *scratch);

/* Whether patterns ("fc*;lost") choose a weight: by its name, or by a word. `lost`: those that are lost;
 * `weights`: all that are sure. */
bool ebb_weight_matches(const char *patterns, const char *name, const ebb_weight *weight);

/* Those that are sure. trains: by value id. Running statistics and constants are never in the set,
 * nor scalars that only feed arithmetic, unless PyTorch wrote the file: it makes initializers of a module's state alone.
 * Nothing is changed. */
ebb_status ebb_trainable_find(bool *trains, ebb_trainable_source *source, const ebb_graph *g);

/* Whether v is a float initializer that training might change: not a statistic, constant or state,
 * nor what only sizes are made of. */
bool ebb_trainable_candidate(const ebb_graph *g, ebb_value v);

/* A name that an exporter made up, or a quantiser made of one: "val_12", "val_12_Q4", "onnx::MatMul_7",
 * "/fc/Constant_output_0". */
bool ebb_name_is_anonymous(const char *name);

/* "exp_1" after "log exp": dynamo names what it folded after the call that made it, one of these. */
bool ebb_name_is_after(const char *name, const char *calls);

/* "mul_3", "sub_1": after a call that computes. */
bool ebb_name_is_of_arithmetic(const char *name);
/* "embedding_1", "slice_2": after a call that takes a part of a tensor. */
bool ebb_name_is_of_part(const char *name);

/* "inv_freq" of "attn.inv_freq", and whether modules give that name to a buffer, or to a statistic. */
const char *ebb_last_part(const char *name);
bool ebb_name_is_of_buffer(const char *part);
bool ebb_name_is_of_statistic(const char *part);

/* Whether that is one of the two vectors of a spectral norm, buffers which PyTorch iterates under no_grad():
 * "a.weight_u" beside "a.weight_orig", "a.parametrizations.weight.0._v" beside "a.parametrizations.weight.original". */
bool ebb_is_of_spectral_norm(const ebb_graph *g, const char *name);

/* TorchScript folds constants alone into nodes, and states into initializers that it names after their
 * reader. */
bool ebb_is_folded_state(const ebb_graph *g, ebb_value v);

/* Whether an operator takes v as its weight, directly or through Transpose, Slice, Concat and the
 * like; Add, Mul and other arithmetic do not count. */
bool ebb_feeds_weight_slot(const ebb_graph *g, ebb_value v);

/* The first graph input that has a parameter's name ("fc.weight") and stands where a weight does, or none:
 * PyTorch's export_params=False leaves the weights themselves out of the file. */
ebb_value ebb_input_as_weight(const ebb_graph *g);
/* What to do then. */
#define EBB_INPUT_AS_WEIGHT_HELP \
    "export with the weights in the file (in PyTorch: export_params=True)"

/* Whether v goes into scales and sizes alone (of Resize, Upsample, Range), directly or through
 * arithmetic: it is a constant then, whatever its name. */
bool ebb_feeds_sizes_alone(const ebb_graph *g, ebb_value v);
