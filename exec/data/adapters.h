/* adapters.h: low-rank adapters of a program: y = x W + s (x A') B', W frozen; with a length for each row of the sum
 * where there are any (DoRA). */
#pragma once

#include "exec/run/program.h"

/* One of them, as pass lora left it in the metadata of B. */
typedef struct ebb_adapter {
    ebb_value a, b, weight; /* [r, in], [out, r]; weight none: it is quantised or cast */
    ebb_value length; /* [out], of the rows of W + s B A; none: they are as long as they are */
    bool turned;      /* the weight lies [out, in], not [in, out] */
    int64_t from;     /* where its rows begin in the weight: q, k and v lie in one */
    bool by_root;     /* scale is alpha / sqrt(r), not alpha / r */
    bool picks;       /* A picks columns, and is not trained (PaCA) */
    bool outside;     /* of what quantises the layer's activations */
    double scale;
    int64_t block; /* of codes, over which A reads sums (QA-LoRA); 0: it reads inputs as they are */
    const char *codes; /* then: what the model calls them */
} ebb_adapter;

/* The adapter whose B this initializer is; false: it is none. */
bool ebb_adapter_of(const ebb_graph *g, ebb_value b, ebb_adapter *adapter);

/* An error where the program has none that could be saved to `path`. */
ebb_status ebb_adapters_exist(const ebb_program *program, const char *path);

/* W + s A' B', its rows stretched, for all adapters of its weight, of the program's values, as `to` gets them (average.h), in new memory (free) of W's type,
 * float32 or float64. */
ebb_status ebb_adapter_merge(ebb_program *program, const ebb_adapter *adapter, const ebb_graph *to,
                             void **merged);

/* The bytes of v, as `to` gets them, in memory of their own (free), which t->data is. */
ebb_status ebb_adapter_copy(ebb_program *program, ebb_value v, const ebb_graph *to, ebb_named *t,
                            void **copy);

static inline double ebb_adapter_number(const ebb_named *t, int64_t i)
{
    return t->dtype == EBB_F32 ? (double)((const float *)t->data)[i] : ((const double *)t->data)[i];
}

/* ---- adapters_ort.c ---- */

/* All adapters of the program into an .onnx_adapter of ONNX Runtime: MODULE.lora_A.weight [in, r],
 * MODULE.lora_B.weight [r, out], by which a model's inputs of these names are given. EBB_UNSUPPORTED for what else is
 * trained, or of another form. */
bool ebb_adapters_is_ort(const char *path);
ebb_status ebb_adapters_save_ort(ebb_program *program, const char *path);

/* ---- adapters_zeros.c ---- */

/* Adds one with blocks to the zero points of every MatMulNBits of `to` that reads its codes: what was
 * packed, or not there, becomes floats. */
ebb_status ebb_adapter_into_zeros(ebb_program *program, const ebb_adapter *adapter, ebb_graph *to);

/* ---- adapters_peft.c ---- */

/* Whether adapters saved to `path` are a folder as PEFT has it: one that is there, or a name without an
 * ending. */
bool ebb_adapters_is_folder(const char *path);
/* An error where the name's ending is of no format that adapters are saved in. */
ebb_status ebb_adapters_known(const char *path);

typedef struct ebb_adapter_facts { /* of one that is saved */
    const char *module;
    int64_t rank;
    double alpha;
    int64_t block; /* 0: none */
    bool by_root, has_lengths, picks, outside;
} ebb_adapter_facts;

/* adapter_config.json, beside the tensors. whole: modules that are trained as they are. */
ebb_status ebb_adapters_write_config(const char *folder, const ebb_adapter_facts *list,
                                     size_t count, const char *const *whole, size_t whole_count);
