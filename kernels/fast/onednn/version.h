/* version.h: oneDNN as the rest of this folder sees it: 2.6, 2.7 or 3, which name things
 * differently, one engine, and what its calls do not say of memory.
 */
#pragma once

#include <oneapi/dnnl/dnnl.h>

#include "kernels/fast/fast.h"

/* ---- memory ---- */

extern const char ebb_dnnl_no_memory[]; /* the sentence where it gets none */

/* Asked before a call of oneDNN that makes something, and before one that runs something. */
bool ebb_dnnl_has_room(void);
bool ebb_dnnl_has_crumbs(void);

dnnl_engine_t ebb_dnnl_engine(void); /* NULL: oneDNN could not start */

/* NULL, or a sentence. */
const char *ebb_dnnl_why_not(dnnl_status_t got);

/* Whether the processor has instructions that multiply bfloat16 (AVX512-BF16, AMX) or float16: twice as
 * fast as float32 or more. What oneDNN has beside that computes in others, and is slower. */
bool ebb_dnnl_multiplies(ebb_dtype dtype);

/* ---- descriptors ---- */

#if DNNL_VERSION_MAJOR == 2
typedef const dnnl_memory_desc_t *ebb_dnnl_descriptor;
#else
typedef const_dnnl_memory_desc_t ebb_dnnl_descriptor;
#endif

typedef struct ebb_dnnl_layout { /* of a tensor, as plain numbers */
    ebb_dtype dtype;
    int rank;
    dnnl_dims_t dims, strides;
    dnnl_format_tag_t tag; /* 0: by its strides; any: the primitive chooses; or of blocks */
} ebb_dnnl_layout;

/* A descriptor of ours: a value in version 2, a thing to be given back in 3. */
typedef dnnl_memory_desc_t ebb_dnnl_held;

ebb_dnnl_descriptor ebb_dnnl_look(const ebb_dnnl_held *h);
bool ebb_dnnl_hold(ebb_dnnl_held *h, int rank, const dnnl_dims_t dims, const dnnl_dims_t strides,
                   dnnl_data_type_t dtype, dnnl_format_tag_t tag);
void ebb_dnnl_drop(ebb_dnnl_held *h);

/* Up to four layouts as descriptors; one that is NULL has none. */
typedef struct ebb_dnnl_descriptors {
    ebb_dnnl_held held[4];
    ebb_dnnl_descriptor of[4];
    bool fine;
    ebb_dtype dtype; /* float32, or the 16 bits that one has */
} ebb_dnnl_descriptors;

void ebb_dnnl_hold_all(ebb_dnnl_descriptors *d, const ebb_dnnl_layout *const *layouts);
void ebb_dnnl_drop_all(ebb_dnnl_descriptors *d);

/* ---- primitives ---- */

typedef struct ebb_dnnl_windows { /* spatial axes only, dilation from 0 */
    dnnl_dims_t stride, kernel, dilation, begin, end;
} ebb_dnnl_windows;

/* Scratch memory is the user's; the result is scaled, or added to what is there. NULL: no memory. */
dnnl_primitive_attr_t ebb_dnnl_attributes(float scale, bool adds);

/* Of the descriptors of (a, b, bias, out); of (wide, weight, bias, narrow); of (from, -, -, to). */
dnnl_status_t ebb_dnnl_create_product(dnnl_primitive_desc_t *made, const ebb_dnnl_descriptors *d,
                                      const_dnnl_primitive_attr_t attr);
dnnl_status_t ebb_dnnl_create_forward(dnnl_primitive_desc_t *made, const ebb_dnnl_descriptors *d,
                                      const ebb_dnnl_windows *w, const_dnnl_primitive_attr_t attr);
dnnl_status_t ebb_dnnl_create_backward(dnnl_primitive_desc_t *made, bool by_data,
                                       const ebb_dnnl_descriptors *d, const ebb_dnnl_windows *w,
                                       const_dnnl_primitive_attr_t attr,
                                       const_dnnl_primitive_desc_t hint);
dnnl_status_t ebb_dnnl_create_pool(dnnl_primitive_desc_t *made, dnnl_alg_kind_t kind,
                                   const ebb_dnnl_descriptors *d, const ebb_dnnl_windows *w,
                                   const_dnnl_primitive_attr_t attr);
