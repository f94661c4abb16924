/* cudnn_call.h: calls that plans of cuDNN compute: what a family says of a call, and the phases
 * that all families share.
 *
 *     declines, workspace, prepare:   call -- read --> work: the plans in turn, and for each where
 *                                                      its tensors lie
 *     run:   plan 0, plan 1 -> results that lie over an operand are copied there
 *
 *     workspace   | scratch 0 | scratch 1 | ... | cuDNN's own, of the plan that needs most |
 *
 * Whether cuDNN may write over what it reads nobody says, so such a result is made in scratch
 * memory: and a step has the same bits whether results are in place or not.
 *
 * Where a plan wants more workspace than it may have, or what it reads must be made first and would
 * be large, a family can let the batch be cut: its plans are then for a part of it, and run once for
 * each, in turn, in the same workspace. How many parts is the least that fits, and so the device's
 * and the call's business alone.
 */
#pragma once

#include "kernels/cuda/library/attention_mask.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/library/cudnn_plans.h"

enum { EBB_WORK_PLANS = 2, EBB_WORK_TENSORS = 14, EBB_WORK_SCRATCH = 12 };

typedef enum ebb_work_place { EBB_WORK_IN, EBB_WORK_OUT, EBB_WORK_OWN } ebb_work_place;

typedef struct ebb_work_part { /* one plan */
    ebb_cuda_cudnn_ask ask;
    int count;
    int64_t roles[EBB_WORK_TENSORS];
    ebb_work_place place[EBB_WORK_TENSORS];
    uint32_t index[EBB_WORK_TENSORS]; /* of the call's input, output, or scratch */
    size_t step[EBB_WORK_TENSORS];    /* bytes from one slice of the batch to the next */
} ebb_work_part;

typedef struct ebb_work {
    ebb_work_part part[EBB_WORK_PLANS];
    int parts, scratches, copies;
    int64_t slices; /* asked of the reader: into how many the batch is cut; 0 is 1 */
    int64_t batch;  /* told by the reader: what can be cut; 0: nothing */
    bool crowded;   /* told by the reader: it is to be cut further where it can be */
    /* Told by the reader, or NULL: makes what the plans read of a slice, before they run. */
    ebb_status (*before)(const ebb_call *call, int64_t slices, int64_t slice);
    size_t bytes[EBB_WORK_SCRATCH];                                  /* of scratch memory */
    uint32_t copy_from[EBB_WORK_SCRATCH], copy_to[EBB_WORK_SCRATCH]; /* scratch to output */
} ebb_work;

/* Fills *work, which is clear but for the slices; or says why cuDNN has nothing for the call
 * whatever the device. A pure function of types, attributes and slices. */
typedef const char *(*ebb_work_reader)(ebb_work *work, const ebb_call *call);

/* For readers. scratch: its number. */
uint32_t ebb_work_scratch(ebb_work *work, size_t bytes);
void ebb_work_own(ebb_work_part *part, ebb_cudnn_role role, uint32_t scratch);
void ebb_work_in(ebb_work_part *part, ebb_cudnn_role role, uint32_t input);
/* Scratch of so many bytes where nobody wants the output, or where it lies over an input. */
void ebb_work_out(ebb_work *work, ebb_work_part *part, ebb_cudnn_role role, const ebb_call *call,
                  uint32_t output, size_t bytes);
/* An attention's mask as a bias, with what it leaves of causality; or causality alone. */
void ebb_work_mask(ebb_cudnn_attention_sizes *s, const ebb_cuda_masking *mask, bool is_masked,
                   bool causal);
/* Why an operand is no float32 or is absent; NULL: it is. */
const char *ebb_work_float32(const ebb_operand *o);
/* Tiles of a batch begin where a row of axis 0 does (kernels/nested/stream.c), and cuDNN's tensors at
 * multiples of 16 bytes: do the rows? */
bool ebb_work_rows_aligned(const ebb_operand *o);

/* The phases of a kernel, by its family's reader. */
const char *ebb_work_declines(const ebb_call *call, ebb_work_reader read);
ebb_status ebb_work_workspace(const ebb_call *call, size_t *bytes, ebb_work_reader read);
ebb_status ebb_work_prepare(ebb_call *call, ebb_work_reader read);
ebb_status ebb_work_run(const ebb_call *call);
/* Where scratch number i lies, of a prepared call. */
void *ebb_work_scratch_at(const ebb_call *call, uint32_t i);

/* The first three of a family, whose reader is ebb_cuda_read_FAMILY; and a row of its kernels. */
#define EBB_WORK_PHASES(family)                                      \
    static const char *declines(const ebb_call *c)                   \
    {                                                                \
        return ebb_work_declines(c, ebb_cuda_read_##family);         \
    }                                                                \
    static ebb_status workspace(const ebb_call *c, size_t *bytes)    \
    {                                                                \
        return ebb_work_workspace(c, bytes, ebb_cuda_read_##family); \
    }                                                                \
    static ebb_status prepare(ebb_call *c)                           \
    {                                                                \
        return ebb_work_prepare(c, ebb_cuda_read_##family);          \
    }
#define EBB_WORK_ROW(name, op, run)                                        \
    {                                                                      \
        name, op, NULL, declines, workspace, prepare, run, ebb_call_forget \
    }

/* The readers. */
const char *ebb_cuda_read_cudnn_conv(ebb_work *work, const ebb_call *call);
const char *ebb_cuda_read_cudnn_norm(ebb_work *work, const ebb_call *call);
const char *ebb_cuda_read_cudnn_pool(ebb_work *work, const ebb_call *call);
const char *ebb_cuda_read_cudnn_attention(ebb_work *work, const ebb_call *call);
const char *ebb_cuda_read_cudnn_heads(ebb_work *work, const ebb_call *call);
