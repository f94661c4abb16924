/* onednn.h: what stands between a call and oneDNN: descriptors, plans, their memory.
 *
 * A kernel of this folder is one function that makes a plan: the primitive's descriptor, and for
 * each operand the layout that the tensor has (outer) and the one that the primitive likes (inner).
 * Where they differ, a copy in the inner layout lives in the call's workspace and a reorder fills
 * or empties it; scratch memory of the primitives lives there too, so that the planned bytes are
 * the true ones.
 *
 *     workspace() = make the plan, say its bytes, drop it      no code is generated
 *     prepare()   = make the plan, create primitives and memory handles, drop the plan
 *     run()       = point the handles at this run's memory, execute, wait
 *
 *     workspace:  | copy of X | copy of W | copy of Y | scratch |    each aligned to 64
 *
 * Tensors of 16 bits are multiplied as they are, sums are float32, and what is written is rounded
 * once: what nested/widen.c means, in another order of the sum. Numbers below 2^-126 count as 0.
 *
 * Where the copies of whole operands would be large, the batch goes through in parts of a few
 * images, and the copies are those of one part; operands without images (weights) are copied once.
 * A result without images (dW) is the sum of the parts', added in their order:
 *
 *     X [32, ...] -> 10 parts of 3 images with one primitive, 1 part of 2 images with another
 *
 * The parts follow from shapes and the number of threads alone, so a node that is run again gives
 * the same bits. Where these may not depend on the number of threads either, see plan.h.
 */
#pragma once

#include "kernels/fast/onednn/version.h"

enum { EBB_DNNL_PORTS = 4, EBB_DNNL_PARTS = 2, EBB_DNNL_PIECES = 16 };

typedef struct ebb_dnnl_port { /* one operand of the primitive */
    int arg;                   /* DNNL_ARG_... */
    bool output;
    uint32_t index; /* of the call's in or out */
    ebb_dnnl_layout outer;
    ebb_dnnl_descriptor inner; /* the plan's descriptor's */
    size_t inner_bytes;
    bool images;  /* dim 0 counts images that do not know of each other */
    bool adds;    /* an output that starts as 0, and each run adds to it */
    bool rounded; /* it is added up as float32 behind the workspace's slots, and has 16 bits */
    bool copied;
    size_t offset;      /* of the copy in the workspace */
    size_t start, step; /* of a repeated primitive: byte of the first run, bytes to the next */
    size_t piece;       /* bytes from a piece of the plan to the next */
} ebb_dnnl_port;

typedef struct ebb_dnnl_plan {
    dnnl_primitive_desc_t descriptor;
    uint32_t count;
    ebb_dnnl_port port[EBB_DNNL_PORTS];
    size_t scratch_offset, scratch_bytes;
    size_t bytes;         /* all of the workspace */
    int64_t repeat;       /* how often it runs; 0 is once */
    int64_t pieces;       /* it computes one of so many parts of the result; 0: all of it */
    int64_t least_images; /* of one run: fewer would leave threads idle */
} ebb_dnnl_plan;

/* As ebb_dnnl_floats and ebb_dnnl_plain_floats (fast.h), or in 16 bits where the processor
 * multiplies these. */
const char *ebb_dnnl_numbers(const ebb_call *call);
const char *ebb_dnnl_plain_numbers(const ebb_call *call);

/* Makes a plan of a call, or returns why it cannot; *plan is zeroed before. */
typedef const char *(*ebb_dnnl_make)(ebb_dnnl_plan *plan, const ebb_call *call);

/* The four phases for any plan. declines() gives the plan's own reason. */
const char *ebb_dnnl_declines(const ebb_call *call, ebb_dnnl_make make);
ebb_status ebb_dnnl_workspace(const ebb_call *call, size_t *bytes, ebb_dnnl_make make);
ebb_status ebb_dnnl_prepare(ebb_call *call, ebb_dnnl_make make);
ebb_status ebb_dnnl_run(const ebb_call *call);
void ebb_dnnl_release(ebb_call *call);

/* Row-major c[m, n] = alpha a b + beta c, where a and b may lie the other way round; `row`: elements
 * from one row to the next, as they lie. What it packs them into is its own, not the workspace's. */
typedef struct ebb_dnnl_matrix {
    const float *data;
    int64_t row;
    bool turned;
} ebb_dnnl_matrix;

ebb_status ebb_dnnl_product(const ebb_call *call, const ebb_dnnl_matrix *a,
                            const ebb_dnnl_matrix *b, int64_t m, int64_t n, int64_t k, float alpha,
                            float beta, float *c, int64_t row);

/* ---- for make functions ---- */

typedef enum ebb_dnnl_conv_kind {
    EBB_DNNL_FORWARD,
    EBB_DNNL_BY_DATA,
    EBB_DNNL_BY_WEIGHTS
} ebb_dnnl_conv_kind;

/* Set plan->descriptor. A product: out = alpha (a b + bias), or added to what is there; bias may be
 * NULL. A convolution by the names of conv.c. A pool: the largest, or an average, of the padding
 * too if padded. */
const char *ebb_dnnl_describe_product(ebb_dnnl_plan *plan, const ebb_dnnl_layout *a,
                                      const ebb_dnnl_layout *b, const ebb_dnnl_layout *bias,
                                      const ebb_dnnl_layout *out, float alpha, bool adds);
const char *ebb_dnnl_describe_conv(ebb_dnnl_plan *plan, ebb_dnnl_conv_kind kind,
                                   const ebb_dnnl_layout *wide, const ebb_dnnl_layout *weight,
                                   const ebb_dnnl_layout *bias, const ebb_dnnl_layout *narrow,
                                   const ebb_dnnl_windows *windows);
const char *ebb_dnnl_describe_pool(ebb_dnnl_plan *plan, bool most, bool padded,
                                   const ebb_dnnl_layout *from, const ebb_dnnl_layout *to,
                                   const ebb_dnnl_windows *windows);

/* Whether oneDNN has nothing but its reference loops for it, which are slower than any copy. */
bool ebb_dnnl_is_slow(const ebb_dnnl_plan *plan);

/* Into how many pieces `count` things are divided, each a multiple of `least`: 1 where the call need
 * not give the same bits for every number of threads. */
int64_t ebb_dnnl_pieces(const ebb_call *call, int64_t count, int64_t least);

/* Adds an operand, whose inner layout is what the primitive answers for arg. The second is for one
 * that has images along dim 0: where there are such, make may be asked again for fewer of them. */
const char *ebb_dnnl_add(ebb_dnnl_plan *plan, int arg, bool output, uint32_t index,
                         const ebb_dnnl_layout *outer);
const char *ebb_dnnl_add_images(ebb_dnnl_plan *plan, int arg, bool output, uint32_t index,
                                const ebb_dnnl_layout *outer);

/* Layouts of a tensor: as its layout says; row-major with other dims of the same count;
 * with strides; and leaving the layout to the primitive. */
const char *ebb_dnnl_of_type(ebb_dnnl_layout *md, const ebb_type *type);
void ebb_dnnl_plain(ebb_dnnl_layout *md, ebb_dtype dtype, int rank, const int64_t *dims);
void ebb_dnnl_strided(ebb_dnnl_layout *md, ebb_dtype dtype, int rank, const int64_t *dims,
                      const int64_t *strides);
void ebb_dnnl_any(ebb_dnnl_layout *md, ebb_dtype dtype, int rank, const int64_t *dims);
size_t ebb_dnnl_size(const ebb_dnnl_layout *md); /* of an element */

/* The phases of a file whose make function is `make`. */
#define EBB_DNNL_PHASES(make)                                        \
    static const char *declines(const ebb_call *call)                \
    {                                                                \
        return ebb_dnnl_declines(call, make);                        \
    }                                                                \
    static ebb_status workspace(const ebb_call *call, size_t *bytes) \
    {                                                                \
        return ebb_dnnl_workspace(call, bytes, make);                \
    }                                                                \
    static ebb_status prepare(ebb_call *call)                        \
    {                                                                \
        return ebb_dnnl_prepare(call, make);                         \
    }
