/* backend.cu: the CUDA back end: its families, its device, the table that libebb asks for. */
#include "kernels/cuda/cuda.h"
#if defined(EBB_CUDA_CUDNN)
#include "kernels/cuda/library/cudnn_plans.h"
#endif
#include "kernels/cuda/fuse/compile.h"
#include "kernels/cuda/library/lt.h"
#include "kernels/cuda/library/find_library.h"
#include "kernels/cuda/library/nccl.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/library/rates.h"
#include "kernels/plugin.h"

#include <stdio.h>

/* ---- the queue ---- */

static void close_queue(void *opened)
{
    ebb_cuda_queue *q = (ebb_cuda_queue *)opened;
    if (q == NULL)
        return;
#if defined(EBB_CUBLASLT)
    ebb_cuda_cublas_close(q->cublas);
#endif
    ebb_gpu_forget(q->record);
    ebb_cuda_beside_close(q);
    for (uint32_t k = 0; k < q->mark_capacity; k++)
        ebb_gpu_unmark(q->marks[k]);
    ebb_free(q->marks);
    if (q->cudnn != NULL)
        q->free_cudnn(q->cudnn);
    for (ebb_cuda_visit *v = q->visits, *next; v != NULL; v = next) {
        next = v->next;
        ebb_free(v);
    }
    if (q->step != NULL)
        ebb_gpu_release(q->step);
    ebb_gpu_close(q->stream);
    ebb_free(q);
}

static ebb_status open_queue(void **opened)
{
    *opened = NULL;
    ebb_cuda_queue *q = (ebb_cuda_queue *)ebb_alloc(sizeof *q);
    EBB_GOT(q);
    memset(q, 0, sizeof *q);
    ebb_status status = ebb_gpu_open(&q->stream);
    void *step = NULL;
    if (status == NULL)
        status = ebb_gpu_allocate(sizeof *q->step, &step);
    q->step = (ebb_cuda_step *)step;
    if (status == NULL)
        status = ebb_gpu_clear(q->stream, step, sizeof *q->step);
    if (status != NULL) {
        close_queue(q);
        return status;
    }
    *opened = q;
    return NULL;
}

static ebb_status allocate(void *opened, size_t bytes, void **block)
{
    ebb_cuda_queue *q = (ebb_cuda_queue *)opened;
    EBB_TRY(ebb_gpu_allocate(bytes, block));
    q->allocated_bytes += bytes;
    return NULL;
}

static void release(void *opened, void *block)
{
    (void)opened;
    ebb_gpu_release(block);
}

static ebb_status write_bytes(void *opened, void *to, const void *from, size_t bytes)
{
    return ebb_gpu_copy(((ebb_cuda_queue *)opened)->stream, to, from, bytes, EBB_TO_DEVICE);
}

static ebb_status read_bytes(void *opened, void *to, const void *from, size_t bytes)
{
    return ebb_gpu_copy(((ebb_cuda_queue *)opened)->stream, to, from, bytes, EBB_TO_HOST);
}

static ebb_status copy(void *opened, void *to, const void *from, size_t bytes)
{
    return ebb_gpu_copy(((ebb_cuda_queue *)opened)->stream, to, from, bytes, EBB_ON_DEVICE);
}

/* ---- a step ---- */

/* The first step runs call by call: modules load, libraries settle. The second is recorded. */
static ebb_status begin(void *opened, uint64_t step, bool *replays)
{
    ebb_cuda_queue *q = (ebb_cuda_queue *)opened;
    const uint64_t head[2] = {step, ~(uint64_t)0};
    *replays = q->record != NULL && !q->profiles;
    q->mark_count = 0;
    q->number = step;
    q->walked = !*replays;
    if (q->nccl != NULL && q->walked)
        ebb_nccl_begin(q->nccl);
    EBB_TRY(ebb_gpu_copy(q->stream, q->step, head, sizeof head, EBB_TO_DEVICE));
    q->records = !*replays && !q->profiles && q->warm && !q->unrecorded && step > 0;
    if (q->records && ebb_gpu_record(q->stream) != NULL) {
        q->records = false;
        q->unrecorded = true;
    }
    return NULL;
}

/* Leaves *fault, which is empty, where none was told. */
static ebb_status read_fault(ebb_cuda_queue *q, ebb_fault *fault)
{
    ebb_cuda_step step;
    EBB_TRY(ebb_gpu_copy(q->stream, &step.fault, &q->step->fault, sizeof step.fault, EBB_TO_HOST));
    if (step.fault == ~(uint64_t)0)
        return NULL;
    EBB_TRY(ebb_gpu_copy(q->stream, &step, q->step, sizeof step, EBB_TO_HOST));
    const uint32_t position = (uint32_t)(step.fault >> 32), at = position % 64;
    const bool divisor = step.low[at] == EBB_CUDA_ZERO_LOW && step.high[at] == EBB_CUDA_ZERO_HIGH;
    const ebb_fault_kind kind = divisor ? EBB_FAULT_DIVISOR : EBB_FAULT_RANGE;
    const ebb_fault told = {true, kind, position, step.value[at], step.low[at], step.high[at]};
    *fault = told;
    return NULL;
}

static ebb_status end(void *opened, ebb_fault *fault)
{
    ebb_cuda_queue *q = (ebb_cuda_queue *)opened;
    memset(fault, 0, sizeof *fault);
    EBB_TRY(ebb_cuda_beside_end(q));
    if (q->records) {
        EBB_TRY(ebb_gpu_recorded(q->stream, &q->record));
        q->records = false;
    }
    if (q->record != NULL && !q->profiles)
        EBB_TRY(ebb_gpu_replay(q->stream, q->record));
    EBB_TRY(q->nccl != NULL ? ebb_nccl_wait(q->nccl, q->stream) : ebb_gpu_wait(q->stream));
    q->warm = true;
    if (q->visit_error != NULL) {
        ebb_status status = q->visit_error;
        q->visit_error = NULL;
        return status;
    }
    return read_fault(q, fault);
}

static bool abandon(void *opened)
{
    ebb_cuda_queue *q = (ebb_cuda_queue *)opened;
    const bool again = q->records;
    for (ebb_cuda_started *s = q->started; s != NULL; s = s->next)
        s->memory = NULL;
    if (again) {
        void *part = NULL;
        (void)ebb_gpu_recorded(q->stream, &part);
        ebb_gpu_forget(part);
        ebb_gpu_forget(q->record);
        q->record = NULL;
        q->records = false;
        q->unrecorded = true;
    } else if (q->nccl != NULL) {
        ebb_nccl_give_up(q->nccl);
    }
    (void)ebb_gpu_wait(q->stream);
    ebb_cuda_beside_abandon(q);
    q->visit_error = NULL;
    return again;
}

static ebb_status mark(void *opened)
{
    ebb_cuda_queue *q = (ebb_cuda_queue *)opened;
    q->profiles = true;
    if (q->mark_count == q->mark_capacity) {
        uint32_t capacity = q->mark_capacity > 0 ? 2 * q->mark_capacity : 256;
        void **more = (void **)ebb_alloc(capacity * sizeof *more);
        EBB_GOT(more);
        memset(more, 0, capacity * sizeof *more);
        if (q->mark_capacity > 0)
            memcpy(more, q->marks, q->mark_capacity * sizeof *more);
        ebb_free(q->marks);
        q->marks = more;
        q->mark_capacity = capacity;
    }
    return ebb_gpu_mark(q->stream, &q->marks[q->mark_count++]);
}

static int64_t between(void *opened, uint32_t k)
{
    const ebb_cuda_queue *q = (const ebb_cuda_queue *)opened;
    return k + 1 < q->mark_count ? ebb_gpu_between(q->marks[k], q->marks[k + 1]) : 0;
}

/* ---- the host in between ---- */

static ebb_status stage(void *opened, size_t bytes, void **memory)
{
    (void)opened;
    return ebb_gpu_stage(bytes, memory);
}

static void unstage(void *opened, void *memory)
{
    (void)opened;
    ebb_gpu_unstage(memory);
}

static void *stream_now(const ebb_cuda_queue *q)
{
    return q->way != NULL ? q->way : q->stream;
}

static ebb_status fetch(void *opened, void *to, const void *from, size_t bytes)
{
    return ebb_gpu_copy_later(stream_now((ebb_cuda_queue *)opened), to, from, bytes, EBB_TO_HOST);
}

static ebb_status put(void *opened, void *to, const void *from, size_t bytes)
{
    return ebb_gpu_copy_later(stream_now((ebb_cuda_queue *)opened), to, from, bytes, EBB_TO_DEVICE);
}

static void go(void *context)
{
    ebb_cuda_visit *v = (ebb_cuda_visit *)context;
    ebb_status *error = &v->queue->visit_error, none = NULL;
    ebb_status status = __atomic_load_n(error, __ATOMIC_ACQUIRE) == NULL
                            ? v->work(v->context, v->queue->number)
                            : NULL;
    if (status != NULL)
        (void)__atomic_compare_exchange_n(error, &none, status, false, __ATOMIC_ACQ_REL,
                                          __ATOMIC_RELAXED);
}

static ebb_status visit(void *opened, ebb_status (*work)(void *, uint64_t), void *context)
{
    ebb_cuda_queue *q = (ebb_cuda_queue *)opened;
    ebb_cuda_visit *v = q->visits; // each is kept for as long as records may be
    while (v != NULL && (v->context != context || v->work != work))
        v = v->next;
    if (v != NULL)
        return ebb_gpu_visit(stream_now(q), go, v);
    v = (ebb_cuda_visit *)ebb_alloc(sizeof *v);
    EBB_GOT(v);
    v->next = q->visits;
    v->queue = q;
    v->work = work;
    v->context = context;
    q->visits = v;
    return ebb_gpu_visit(stream_now(q), go, v);
}

static ebb_status facts(void *opened, ebb_device_facts *f)
{
    memset(f, 0, sizeof *f);
    EBB_TRY(ebb_gpu_facts(f));
    f->allocated_bytes = opened != NULL ? ((ebb_cuda_queue *)opened)->allocated_bytes : 0;
    return NULL;
}

bool ebb_cuda_tf32;

static char planned_for[64]; /* the described device; "": the one that is here */

/* Of the device that is here once it was asked: its name does not change. Without one, or before,
 * those of a device that is not known. */
static const ebb_rates *rates(void)
{
    static char here[256];
    ebb_device_facts f;
    if (planned_for[0] != '\0')
        return ebb_cuda_rates(planned_for, ebb_cuda_tf32);
    if (here[0] == '\0') {
        memset(&f, 0, sizeof f);
        (void)snprintf(here, sizeof here, "%s", ebb_gpu_facts(&f) == NULL ? f.name : "none");
    }
    return ebb_cuda_rates(here, ebb_cuda_tf32);
}

static const ebb_device device = {
    .name = "cuda",
    .align = 256,
    .open = open_queue,
    .close = close_queue,
    .allocate = allocate,
    .release = release,
    .write = write_bytes,
    .read = read_bytes,
    .copy = copy,
    .begin = begin,
    .end = end,
    .abandon = abandon,
    .mark = mark,
    .between = between,
    .stage = stage,
    .unstage = unstage,
    .fetch = fetch,
    .put = put,
    .visit = visit,
    .depart = ebb_cuda_depart,
    .land = ebb_cuda_land,
    .facts = facts,
    .rates = rates,
    .is_host = false,
};

/* ---- operands ---- */

double ebb_cuda_scalar(const ebb_call *c, uint32_t input, double otherwise)
{
    const ebb_tensor *t = ebb_call_has(c, input) ? c->in[input].constant : NULL;
    return t != NULL && t->data != NULL && ebb_elements(&t->type) > 0 ? ebb_tensor_double(t, 0)
                                                                      : otherwise;
}

/* ---- what rows ask ---- */

const char *ebb_cuda_floats(const ebb_call *c)
{
    EBB_ASK(ebb_call_any(c));
    uint8_t dtype = c->input_count > 0 ? c->in[0].type.dtype : (uint8_t)EBB_NONE;
    if (!ebb_dtype_is_float((ebb_dtype)dtype))
        return "computes in float16, bfloat16, float32 and float64 only";
    return ebb_call_one_float(c, dtype);
}

const char *ebb_cuda_numbers(const ebb_call *c)
{
    ebb_dtype dtype = c->input_count > 0 ? (ebb_dtype)c->in[0].type.dtype : EBB_NONE;
    return ebb_dtype_is_integer(dtype) || dtype == EBB_BOOL ? ebb_call_any(c) : ebb_cuda_floats(c);
}

const char *ebb_cuda_constant(const ebb_call *c, uint32_t i)
{
    if (!ebb_call_has(c, i) || (c->in[i].constant != NULL && c->in[i].constant->data != NULL))
        return NULL;
    return "an operand that says how to compute is not known before the run";
}

/* ---- broadcast ---- */

int ebb_cuda_walk_merge(const ebb_type *out, const ebb_type *const *in, int count, int64_t *dims,
                        int64_t (*strides)[EBB_MAX_RANK])
{
    int64_t dense[EBB_CUDA_MERGED];
    int rank = 0;
    for (int k = 0; k < count; k++)
        dense[k] = 1;
    for (int d = out->rank - 1; d >= 0; d--) {
        int64_t n = out->dims[d], step[EBB_CUDA_MERGED];
        bool merges = rank > 0;
        for (int k = 0; k < count; k++) {
            int e = d - (out->rank - in[k]->rank);
            int64_t m = e >= 0 ? in[k]->dims[e] : 1;
            step[k] = m == 1 && n != 1 ? 0 : dense[k];
            dense[k] *= m;
        }
        if (n == 1)
            continue;
        for (int k = 0; merges && k < count; k++) {
            int64_t last = strides[k][rank - 1];
            merges = last == 0 ? step[k] == 0 : step[k] == last * dims[rank - 1];
        }
        if (merges) {
            dims[rank - 1] *= n;
            continue;
        }
        dims[rank] = n;
        for (int k = 0; k < count; k++)
            strides[k][rank] = step[k];
        rank++;
    }
    return rank;
}

void ebb_cuda_walk_make(ebb_cuda_walk *w, const ebb_type *out, const ebb_type *const *in, int count)
{
    memset(w, 0, sizeof *w);
    w->narrow = ebb_elements(out) <= INT32_MAX;
    w->rank = ebb_cuda_walk_merge(out, in, count, w->dims, w->stride);
}

/* ---- libraries ---- */

#if defined(EBB_CUDA_CUDNN)
#define LIBRARY_FAMILIES(X) \
    X(cudnn_conv) X(cudnn_norm) X(cudnn_pool) X(cudnn_attention) X(cudnn_heads)
#define DESCRIBED ebb_cudnn_described_names

EBB_C_BEGIN
LIBRARY_FAMILIES(EBB_CUDA_DECLARE)
EBB_C_END

static ebb_status describe(const char *name)
{
    EBB_TRY(ebb_cuda_cudnn_describe(name));
    (void)snprintf(planned_for, sizeof planned_for, "%s", name != NULL ? name : "");
    return NULL;
}

static void add_cudnn(char *text, size_t size, bool is_here)
{
    ebb_cuda_cudnn_library(text, size, is_here);
}
#else
#define LIBRARY_FAMILIES(X)
#define DESCRIBED none_described

static const char *const none_described[] = {NULL};

static ebb_status describe(const char *name)
{
    if (name == NULL)
        return NULL;
    return ebb_error(EBB_USAGE, "there is no description of a device '%s'", name);
}

static void add_cudnn(char *text, size_t size, bool is_here)
{
    (void)is_here;
    ebb_library_list(text, size, "cuDNN 9", NULL, "this build has no callers of it");
}
#endif

#if defined(EBB_CUBLASLT)
static void add_cublaslt(char *text, size_t size, bool is_here)
{
    ebb_lt_library(text, size, is_here);
}
#else
static void add_cublaslt(char *text, size_t size, bool is_here)
{
    (void)is_here;
    ebb_library_list(text, size, "cuBLASLt 13", NULL, "this build has no callers of it");
}
#endif

static void libraries(char *text, size_t size)
{
    ebb_device_facts f;
    memset(&f, 0, sizeof f);
    const bool is_here = ebb_gpu_facts(&f) == NULL;
    text[0] = '\0';
    add_cudnn(text, size, is_here);
    add_cublaslt(text, size, is_here);
    ebb_nvrtc_library(text, size);
    ebb_nccl_library(text, size);
}

/* ---- the table ---- */

#define FAMILY(name) {ebb_cuda_##name, &ebb_cuda_##name##_count},

/* Those of libraries first: the own ones take what they decline. */
static const ebb_family families[] = {LIBRARY_FAMILIES(FAMILY) EBB_CUDA_LIBRARIES(FAMILY)
                                          EBB_CUDA_FAMILIES(FAMILY){NULL, NULL}};

EBB_C_BEGIN
extern const ebb_backend ebb_backend_cuda;
extern const ebb_plugin ebb_plugin_table;
EBB_C_END

static const ebb_tile_parts parts = {ebb_cuda_add_tile, ebb_cuda_batch_norm_rows};

const ebb_backend ebb_backend_cuda = {
    .name = "cuda",
    .kernels = NULL,
    .count = 0,
    .families = families,
    .device = &device,
    .parts = &parts,
    .group = ebb_cuda_group,
};

static void allow_tf32(bool allow)
{
    ebb_cuda_tf32 = allow;
}

__attribute__((visibility("default"))) const ebb_plugin ebb_plugin_table = {
    .version = EBB_PLUGIN_VERSION,
    .op_count = EBB_OP_COUNT,
    .backend = &ebb_backend_cuda,
    .libraries = libraries,
    .describe = describe,
    .described = DESCRIBED,
    .shared = ebb_gpu_shared,
    .unshare = ebb_gpu_release,
    .allow_tf32 = allow_tf32,
};
