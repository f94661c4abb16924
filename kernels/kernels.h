/* kernels.h: backend, kernel, call.
 *
 * A kernel answers questions at different times: does it take this call (dtypes, fits), what scratch
 * does it need (workspace), get ready (prepare), compute (run). Kernels know operators, dtypes,
 * shapes and attributes; never graphs, names or plans. `plain` is the meaning of every operator and
 * the oracle in tests; faster back ends stand before it in the list of pick.c.
 *
 * Contracts
 *   - An absent optional operand has dtype EBB_NONE; an output nobody wants too.
 *   - Outputs may share memory with an input exactly where ops.def's alias column allows it, and
 *     then are equal in bytes and layout. Else operands do not overlap.
 *   - workspace() may use shapes and attributes only. run() allocates nothing, keeps nothing.
 *   - Values read as indices are checked in run(): out of range is a status naming value and bound.
 *   - Results do not depend on earlier calls, nor on the number of threads: but for oneDNN's, which
 *     divide sums by it, unless the call is `deterministic`. Nothing is kept from call to call
 *     outside of `state`: other threads may run other calls of the same kernel.
 */
#pragma once

#include "kernels/device.h"
#include "onnx/tables/op.h"

EBB_C_BEGIN

typedef struct ebb_operand {
    ebb_type type; /* all dims known */
    size_t bytes;
    void *data;                 /* NULL until run, but for constants; in a run never */
    const ebb_tensor *constant; /* its value where it is known before the run, else NULL */
    const struct ebb_call
        *source;        /* not NULL: it is never whole, this call decodes its tiles ... */
    int64_t tile_rows;  /* ... of so many rows of axis 0; see onnx/graph/tile.h */
    uint32_t spot;      /* 1 + where the mover keeps it: it lies in another place; 0: at data */
    uint32_t over;      /* of an output: 1 + the input whose memory it takes over; 0: its own */
    uint32_t last_read; /* of an output: position of the last call that reads it; EBB_OUTLIVES
                           where it is wanted after the step's calls. Set when data is */
} ebb_operand;

#define EBB_OUTLIVES UINT32_MAX

typedef struct ebb_call {
    ebb_op op;
    int64_t version;  /* opset version of the node's domain */
    const char *node; /* label for errors: "Conv 'layer3.conv1'" */
    ebb_attrs attrs;
    uint32_t input_count, output_count;
    ebb_operand *in, *out;
    const struct ebb_kernel *kernel; /* chosen by ebb_pick, among these: */
    const struct ebb_backend *const *backends;
    bool deterministic; /* its bits may not depend on the number of threads */
    bool streamed;      /* it decodes, and its reader asks for its tiles: nothing runs here */
    void *workspace;    /* never NULL in a run; workspace_bytes long, aligned as device.h says */
    size_t workspace_bytes;
    void *state;             /* what prepare made; release() frees it */
    uint64_t seed, step;     /* for operators that draw without a key of their own */
    uint64_t stream;         /* distinct per node: hash of its name */
    void *queue;             /* of the device (device.h) */
    struct ebb_mover *mover; /* of the program (mover.h); NULL: nothing lies in another place */
    struct ebb_group *group; /* of the program (group.h); NULL: this process alone */
    uint32_t position;       /* in the program: names the call in a fault */
} ebb_call;

/* Is this input there? -1 is none. */
static inline bool ebb_call_has(const ebb_call *call, int64_t input)
{
    return input >= 0 && input < call->input_count && call->in[input].type.dtype != EBB_NONE;
}

static inline bool ebb_call_wants(const ebb_call *call, uint32_t output)
{
    return output < call->output_count && call->out[output].type.dtype != EBB_NONE;
}

/* Of an operand's type: the plan has proved that the product does not overflow. */
static inline int64_t ebb_elements(const ebb_type *type)
{
    int64_t n = 1;
    for (int d = 0; d < type->rank; d++)
        n *= type->dims[d];
    return n;
}

static inline int64_t ebb_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* For kernels whose state is one block of ebb_alloc(). */
void ebb_call_forget(ebb_call *call);

typedef struct ebb_kernel {
    const char *name; /* "dnnl.matmul" */
    ebb_op op;
    /* Two questions, the second only where the first has no objection: are the operands' dtypes
     * and layouts mine? Does the call fit? The result says why not, NULL: yes. NULL: nothing to
     * ask. */
    const char *(*dtypes)(const ebb_call *);
    const char *(*fits)(const ebb_call *);
    ebb_status (*workspace)(const ebb_call *,
                            size_t *bytes); /* NULL: none. Cheap: no code generation */
    /* NULL: nothing. Once, before the first run. May write its workspace, and its outputs where
     * these lie over no input. */
    ebb_status (*prepare)(ebb_call *);
    ebb_status (*run)(const ebb_call *);
    void (*release)(ebb_call *); /* NULL: nothing */
} ebb_kernel;

/* Returns the reason, where there is one: EBB_TRY of a function that says why not. */
#define EBB_ASK(reason)               \
    do {                              \
        const char *asked = (reason); \
        if (asked != NULL)            \
            return asked;             \
    } while (0)
/* The same as an error of a call that was accepted. */
#define EBB_MUST_FIT(call, reason)                      \
    do {                                                \
        const char *asked = (reason);                   \
        if (asked != NULL)                              \
            return ebb_call_error((call), "%s", asked); \
    } while (0)

/* Why this kernel does not take the call, or NULL. */
static inline const char *ebb_kernel_declines(const ebb_kernel *kernel, const ebb_call *call)
{
    const char *why = kernel->dtypes != NULL ? kernel->dtypes(call) : NULL;
    return why == NULL && kernel->fits != NULL ? kernel->fits(call) : why;
}

typedef struct ebb_family { /* the kernels of one file */
    const ebb_kernel *kernels;
    const size_t *count;
} ebb_family;

/* What stream.c needs of a back end beside its kernels. */
typedef struct ebb_tile_parts {
    /* to += from over n elements of float32 or float64. */
    ebb_status (*add)(const ebb_call *call, ebb_dtype dtype, int64_t n, void *to, const void *from);
    /* Of a BatchNormalizationGrad or BatchNormGradFromOutput: dx of the tile's rows, when the sums
     * of the whole are in its outputs 1 and 2. */
    ebb_status (*batch_norm_rows)(const ebb_call *tile, const ebb_call *whole, void *dx);
} ebb_tile_parts;

typedef struct ebb_backend {
    const char *name; /* "plain", "dnnl", "cuda" */
    const ebb_kernel *kernels;
    size_t count;
    const ebb_family *families;  /* more kernels, ended by a NULL row; NULL: none */
    const ebb_device *device;    /* where its operands lie */
    const ebb_tile_parts *parts; /* NULL: the next back end's in the list */
    /* May let one call do the work of several that follow each other, once all have their
     * pointers: what is computed and kept for later calls must stay the same, bit for bit. Called
     * once, before prepare; NULL: nothing of the kind. */
    ebb_status (*group)(ebb_call *calls, uint32_t count);
} ebb_backend;

extern const ebb_backend ebb_backend_plain; /* kernels/plain/backend.c */
extern const ebb_backend ebb_backend_dnnl;  /* kernels/fast/backend.c */

/* Backends by the name that users give: NULL or "cpu" = dnnl then plain; "cpu:bf16x3", with
 * nested/split.h before them; "plain"; "cuda", or with words as plugin.h has them. A NULL-terminated list, all on one device. EBB_USAGE for an
 * unknown name, EBB_DEVICE where its shared object cannot be opened; that there is a GPU is first
 * asked when its queue is opened. */
ebb_status ebb_backends(const char *name, const ebb_backend *const **list);

/* The back end's first kernel for an operator, or NULL: whether it has one at all. What means
 * several others has compose.c's everywhere. */
const ebb_kernel *ebb_backend_find(const ebb_backend *backend, ebb_op op);

/* The first kernel that accepts the call; sets call->kernel. EBB_UNSUPPORTED with everyone's reason
 * when none does. A call that reads a source gets stream.c's kernel, which picks among the back
 * ends for the tiles; one that means several others gets compose.c's, which picks for each; one
 * with float16 or bfloat16 operands that none takes gets widen.c's, which picks for the same call
 * on float32; one that a device has no kernel for gets on_host.c's. */
ebb_status ebb_pick(ebb_call *call, const ebb_backend *const *backends);

/* An error of this call: "Gather 'embed': ..." with code EBB_RUNTIME. */
ebb_status ebb_call_error(const ebb_call *call, const char *format, ...)
    EBB_PRINTF(2, 3) EBB_NEVER_NULL;

EBB_C_END
