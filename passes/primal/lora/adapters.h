/* adapters.h: what the files of pass lora share: the layers of a model, and the adapters beside them.
 *
 *   layer.c   which nodes are linear layers with a weight, how large, and what their modules are
 *   shared.c  layers that are one module, called more than once
 *   file.c    adapters that are there already: a safetensors file, or a folder of PEFT
 *   tensor.c  initializers for an adapter: drawn, or from that file; what is to be remembered
 *   dora.c    rows that have a length of their own: what W's are long, and nodes that stretch them
 *   ../lora.c nodes beside a layer, what is frozen, and the pass
 */
#pragma once

#include <jansson.h>

#include "ebb.h"
#include "passes/common.h"

enum { EBB_LORA_PARTS = 3 };

typedef enum ebb_lora_form { /* in the order of the option's words */
                             EBB_LORA_PLAIN,
                             EBB_LORA_DORA, /* rows of W + s B A have a trained length */
                             EBB_LORA_PACA, /* A picks columns, which B is added to: A is not trained */
} ebb_lora_form;

/* Rows of a layer's output that are a module of their own: q, k and v of one product. */
typedef struct ebb_lora_part {
    char *module;  /* what its adapter is called */
    char *in_file; /* what the model's file calls it; often the same */
    int64_t rows;
} ebb_lora_part;

typedef struct ebb_lora_layer {
    ebb_node node;
    ebb_value weight; /* the operand */
    ebb_value stored; /* the initializer behind it; through Cast, DequantizeLinear, Transpose */
    ebb_value shared; /* the operand of the first layer that is the same module */
    ebb_lora_part whole;
    ebb_lora_part part[EBB_LORA_PARTS];
    int part_count;    /* 0: it is one module */
    bool turned;       /* the weight lies [out, in] */
    bool frozen;       /* it is kept in few bits */
    bool reads_before; /* what its input was before it was quantised */
    ebb_node behind;   /* what is added to: the node, or what decodes its result */
    ebb_dtype dtype;   /* of the adapter */
    int64_t in, out;
    int64_t
        block; /* input columns that its adapter takes the sum of; 1: it takes them as they are */
    double *squares; /* DoRA: |row of W|^2, [out] */
} ebb_lora_layer;

/* ---- layer.c ---- */

/* Whether n reads a weight in slot 1, whatever it does with it. trains: by value id. */
bool ebb_lora_has_weight(const ebb_graph *g, const bool *trains, ebb_node n, ebb_lora_layer *found);
/* Its modules. */
ebb_status ebb_lora_name(const ebb_graph *g, ebb_lora_layer *found, ebb_arena *scratch);
/* A note where layers have names that the framework does not know. */
ebb_status ebb_lora_tell_nameless(ebb_edit *e, const ebb_lora_layer *list, size_t count);
/* Its sizes; NULL, or why it can have no adapter. */
const char *ebb_lora_measure(const ebb_graph *g, ebb_lora_layer *found);
/* Puts its adapter outside of what quantises its input and its result. */
void ebb_lora_place_outside(const ebb_graph *g, const bool *trains, ebb_lora_layer *layer);
/* What its adapter reads. */
ebb_value ebb_lora_input(const ebb_graph *g, const ebb_lora_layer *layer);
/* The block of codes that one zero point serves; NULL, or why zero points cannot take an adapter up. */
const char *ebb_lora_find_block(const ebb_graph *g, ebb_lora_layer *found);
/* Numbers of a row that its adapter reads. */
int64_t ebb_lora_width(const ebb_lora_layer *layer);
/* Whether nothing but views and pointwise nodes stand between it and the loss: a head. */
bool ebb_lora_is_head(const ebb_graph *g, const ebb_lora_layer *layer);

/* ---- shared.c ---- */

/* Names `layer` after the first of the `count` before it that is the same module, whose adapter it shares. */
void ebb_lora_share(const ebb_graph *g, const ebb_lora_layer *before, size_t count,
                    ebb_lora_layer *layer);

/* ---- file.c ---- */

typedef struct ebb_lora_file {
    const char *path; /* as it was given; NULL: there is none */
    ebb_data *data;
    json_t *config; /* of a folder of PEFT; NULL: the file says all */
    double alpha;
    bool has_alpha, by_root, by_blocks;
    bool outside;
    bool is_ort; /* of ONNX Runtime: A [in, r], B [r, out], which is multiplied by s already */
    ebb_lora_form form;
} ebb_lora_file;

ebb_status ebb_lora_file_open(ebb_lora_file *file, const char *path, ebb_arena *scratch);
void ebb_lora_file_close(ebb_lora_file *file);
/* "lora_A.weight" of a module; NULL: it is not in the file. */
const ebb_named *ebb_lora_file_find(const ebb_lora_file *file, const char *module,
                                    const char *tensor, ebb_arena *scratch);
/* That of the module that a tensor of the file belongs to; NULL: it is of none. */
const char *ebb_lora_file_module(const char *name, ebb_arena *scratch);
/* A module put around the model, to be exported, is in the names of all layers and in none of the file: there
 * they lose it. */
void ebb_lora_file_unwrap(const ebb_lora_file *file, ebb_lora_layer *list, size_t count,
                          ebb_arena *scratch);
/* alpha of a module: the file may have others for some. */
double ebb_lora_file_alpha(const ebb_lora_file *file, const char *module);
/* What was trained whole beside adapters is in their file, too: the model's weights become it. */
ebb_status ebb_lora_file_take_wholes(const ebb_lora_file *file, ebb_graph *g);

/* ---- tensor.c ---- */

typedef struct ebb_lora_made { /* an adapter */
    ebb_value shared;
    int part;
    ebb_value a, b;
    ebb_value length, squares; /* DoRA: [out], trained; and |row of W|^2, a constant */
    double scale, sums_by;     /* sums_by: what sums over blocks are multiplied by */
} ebb_lora_made;

typedef struct ebb_adapters {
    ebb_edit *e;
    ebb_graph *g;
    ebb_lora_file file;
    const bool *trains; /* by value id, as without this pass */
    double alpha;
    int64_t rank;
    bool by_root;   /* alpha / sqrt(rank) */
    bool by_blocks; /* QA-LoRA */
    bool outside;   /* of what quantises activations */
    ebb_lora_form form;
    ebb_lora_made *made;
    size_t made_count;
    void *zeros; /* what each B starts with, of zero_bytes; NULL: none yet */
    size_t zero_bytes;
    const char *why; /* the last layer that can have none has none; or NULL */
} ebb_adapters;

/* The first row of a part (-1: the whole) in the layer, and how many it has. */
int64_t ebb_lora_first(const ebb_lora_layer *layer, int part);
int64_t ebb_lora_rows(const ebb_lora_layer *layer, int part);
/* The rank of an adapter of these rows; 0: the file has none for the module. */
ebb_status ebb_lora_rank(const ebb_adapters *l, const ebb_lora_part *part, int64_t *rank);
/* That of a part of the layer (-1: the whole), which others of the same module share. */
ebb_status ebb_lora_make(ebb_adapters *l, const ebb_lora_layer *layer, int part, int64_t rank,
                         ebb_lora_made *made);

/* ---- dora.c ---- */

/* NULL, or why the layer's rows can have no length of their own. */
const char *ebb_lora_check_rows(const ebb_graph *g, const ebb_lora_layer *layer);
/* Fills its squares. */
ebb_status ebb_lora_find_squares(const ebb_graph *g, ebb_lora_layer *layer, ebb_arena *scratch);
/* (x W + wide) m / n + bias, of a layer's node, which stays; wide: s (x A') B'. made: of the whole, or of its parts,
 * those without an adapter having no length. */
ebb_value ebb_lora_stretch(ebb_build *b, const ebb_lora_layer *layer, const ebb_lora_made *made,
                           ebb_value wide);
