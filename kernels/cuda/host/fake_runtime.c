/* fake_runtime.c: see fake_runtime.h. What a call does when it does not fail is host/runtime.c's.
 */
#include "kernels/cuda/host/renamed.h"

#include "kernels/cuda/host/fake_runtime.h"
#include "kernels/cuda/runtime.h"

#include "onnx/words/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

__attribute__((visibility("default")))
ebb_fake_runtime ebb_fake = {.capability = 90, .free_bytes = 1u << 30};

/* ---- faults ---- */

static void read_environment(void)
{
    static bool done;
    const char *fault = getenv("EBB_FAKE_FAULT"), *capability = getenv("EBB_FAKE_CAPABILITY");
    const char *bytes = getenv("EBB_FAKE_BYTES");
    unsigned long long at = 0;
    char word[8] = "";
    if (done)
        return;
    done = true;
    if (fault != NULL &&
        sscanf(fault, "%39[^:]:%llu:%d:%7s", ebb_fake.name, &at, &ebb_fake.error, word) >= 3) {
        ebb_fake.at = at;
        ebb_fake.stays = strcmp(word, "stays") == 0;
    }
    if (capability != NULL)
        ebb_fake.capability = atoi(capability);
    if (bytes != NULL)
        ebb_fake.free_bytes = strtoull(bytes, NULL, 10);
}

static bool holds(const char *text, const char *word)
{
    const size_t length = strlen(word);
    for (; *text != '\0'; text++)
        if (strncasecmp(text, word, length) == 0)
            return true;
    return false;
}

/* What the call `name` has to say before it does anything. */
static cudaError_t fault(const char *name)
{
    read_environment();
    if (ebb_fake.failed != NULL && ebb_fake.stays)
        return (cudaError_t)ebb_fake.error;
    if (!holds(name, ebb_fake.name) || ++ebb_fake.calls != ebb_fake.at)
        return cudaSuccess;
    ebb_fake.failed = name;
    return (cudaError_t)ebb_fake.error;
}

#define FAULT()                                     \
    do {                                            \
        const cudaError_t fault_ = fault(__func__); \
        if (fault_ != cudaSuccess)                  \
            return fault_;                          \
    } while (0)

/* What the host cannot do would be a mistake of the launcher: its sentence is shown. */
static cudaError_t said(ebb_status status)
{
    if (status == NULL)
        return cudaSuccess;
    (void)fprintf(stderr, "fake CUDA runtime: %s\n", ebb_status_text(status));
    return cudaErrorInvalidValue;
}

static cudaError_t made(ebb_status status)
{
    ebb_fake.live += status == NULL;
    return status == NULL ? cudaSuccess : cudaErrorMemoryAllocation;
}

static void *stream_of(cudaStream_t stream)
{
    return (void *)stream;
}

// clang-format off
#define ERRORS(X) X(MemoryAllocation, 2) X(InitializationError, 3) X(DevicesUnavailable, 46) \
    X(InsufficientDriver, 35) X(NoDevice, 100) X(InvalidKernelImage, 200)                    \
    X(ECCUncorrectable, 214) X(IllegalAddress, 700) X(LaunchTimeout, 702)                    \
    X(LaunchFailure, 719) X(NotPermitted, 800) X(SystemNotReady, 802)                        \
    X(SystemDriverMismatch, 803) X(MpsConnectionFailed, 805)
// clang-format on

const char *cudaGetErrorName(cudaError_t error)
{
    switch ((int)error) {
#define NAME(name, number) \
    case number:           \
        return "cudaError" #name;
        ERRORS(NAME)
    default:
        return "cudaErrorUnknown";
    }
}

const char *cudaGetErrorString(cudaError_t error)
{
    switch ((int)error) {
#define WORDS(name, number) \
    case number:            \
        return "the words for " #name;
        ERRORS(WORDS)
    default:
        return "unknown error";
    }
}

cudaError_t cudaGetLastError(void)
{
    return ebb_fake.failed != NULL && ebb_fake.stays ? (cudaError_t)ebb_fake.error : cudaSuccess;
}

/* ---- devices ---- */

cudaError_t cudaDriverGetVersion(int *version)
{
    FAULT();
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    FAULT();
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    FAULT();
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    FAULT();
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr what, int device)
{
    FAULT();
    (void)device;
    *value = what == cudaDevAttrComputeCapabilityMajor ? ebb_fake.capability / 10
                                                       : ebb_fake.capability % 10;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    FAULT();
    (void)device;
    memset(p, 0, sizeof *p);
    (void)snprintf(p->name, sizeof p->name, "a device of the tests");
    p->major = ebb_fake.capability / 10;
    p->minor = ebb_fake.capability % 10;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *bus, int size, int device)
{
    FAULT();
    (void)device;
    (void)snprintf(bus, (size_t)size, "0000:00:00.0");
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *unused, size_t *total)
{
    FAULT();
    *unused = (size_t)ebb_fake.free_bytes;
    *total = (size_t)1 << 30;
    return cudaSuccess;
}

/* ---- memory ---- */

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    FAULT();
    return bytes <= ebb_fake.free_bytes ? made(ebb_host_allocate(bytes, memory))
                                        : cudaErrorMemoryAllocation;
}

cudaError_t cudaMallocManaged(void **memory, size_t bytes, unsigned flags)
{
    FAULT();
    (void)flags;
    return made(ebb_host_allocate(bytes, memory));
}

cudaError_t cudaMallocHost(void **memory, size_t bytes)
{
    FAULT();
    return made(ebb_host_stage(bytes, memory));
}

/* What fails to go is gone with the process. */
static cudaError_t gone(const void *what, const char *name)
{
    ebb_fake.live -= what != NULL;
    return fault(name);
}

cudaError_t cudaFree(void *memory)
{
    ebb_host_release(memory);
    return gone(memory, __func__);
}

cudaError_t cudaFreeHost(void *memory)
{
    ebb_host_unstage(memory);
    return gone(memory, __func__);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    FAULT();
    (void)kind;
    return said(ebb_host_copy_later(stream_of(stream), to, from, bytes, EBB_ON_DEVICE));
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    FAULT();
    (void)value;
    return said(ebb_host_clear(stream_of(stream), to, bytes));
}

/* ---- streams and launches ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    void *made_stream = NULL;
    FAULT();
    (void)flags;
    const cudaError_t error = made(ebb_host_open(&made_stream));
    *stream = made_stream;
    return error;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    ebb_host_close(stream_of(stream));
    return gone(stream, __func__);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    FAULT();
    return said(ebb_host_wait(stream_of(stream)));
}

/* ebb_fake.stuck: something on the device never ends. */
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    bool is_done;
    FAULT();
    return ebb_fake.stuck ? cudaErrorNotReady : said(ebb_host_done(stream_of(stream), &is_done));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    FAULT();
    (void)flags;
    return said(ebb_host_follow(stream_of(stream), (void *)event));
}

/* What lies in place of NCCL looks it up. */
__attribute__((visibility("default"))) cudaError_t
cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t work, void *context)
{
    FAULT();
    return said(ebb_host_visit(stream_of(stream), work, context));
}

/* The kernel that was allowed more than 48 KiB of shared memory last, and how much. */
static struct {
    const void *kernel;
    size_t bytes;
} opted;

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute what, int value)
{
    FAULT();
    if (what != cudaFuncAttributeMaxDynamicSharedMemorySize)
        return cudaErrorInvalidValue;
    opted.kernel = kernel;
    opted.bytes = (size_t)value;
    return cudaSuccess;
}

cudaError_t ebb_fake_launch(const void *kernel, struct dim3 grid, struct dim3 block, void **list,
                            size_t bytes, size_t shared, cudaStream_t stream)
{
    const ebb_gpu_grid blocks = {grid.x, grid.y, grid.z};
    const cudaError_t error = fault("cudaLaunchKernel");
    if (error != cudaSuccess)
        return error;
    if (shared > 48 * 1024 && (opted.kernel != kernel || opted.bytes < shared))
        return cudaErrorInvalidValue;
    return said(ebb_host_launch(stream_of(stream), (ebb_gpu_kernel)(uintptr_t)kernel, blocks,
                                block.x, (uint32_t)shared, list[0], bytes));
}

/* The host runs no code for devices. */
cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *code,
                                enum cudaJitOption *options, void **values, unsigned count,
                                enum cudaLibraryOption *more, void **more_values,
                                unsigned more_count)
{
    FAULT();
    (void)code, (void)options, (void)values, (void)count;
    (void)more, (void)more_values, (void)more_count;
    *library = NULL;
    return cudaErrorInvalidKernelImage;
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library, const char *name)
{
    (void)library, (void)name;
    *kernel = NULL;
    return cudaErrorInvalidKernelImage;
}

cudaError_t cudaLibraryUnload(cudaLibrary_t library)
{
    (void)library;
    return cudaSuccess;
}

/* ---- records ---- */

typedef struct graph { /* and a graph that can be run: its record goes over */
    void *record;
} graph;

static cudaError_t hold(graph **made_graph, void *record)
{
    *made_graph = ebb_alloc(sizeof **made_graph);
    if (*made_graph == NULL)
        return cudaErrorMemoryAllocation;
    (*made_graph)->record = record;
    ebb_fake.live++;
    return cudaSuccess;
}

static void drop(graph *g)
{
    if (g != NULL)
        ebb_host_forget(g->record);
    ebb_free(g);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    FAULT();
    (void)mode;
    return said(ebb_host_record(stream_of(stream)));
}

/* It ends, whether it fails or not. */
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *captured)
{
    void *record = NULL;
    graph *g = NULL;
    const ebb_status status = ebb_host_recorded(stream_of(stream), &record);
    cudaError_t error = fault(__func__);
    if (error == cudaSuccess)
        error = said(status);
    if (error == cudaSuccess)
        error = hold(&g, record);
    if (error != cudaSuccess)
        ebb_host_forget(record);
    *captured = (cudaGraph_t)(void *)g;
    return error;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t captured,
                                 unsigned long long flags)
{
    graph *from = (void *)captured, *g = NULL;
    FAULT();
    (void)flags;
    const cudaError_t error = hold(&g, from->record);
    if (error == cudaSuccess)
        from->record = NULL;
    *exec = (cudaGraphExec_t)(void *)g;
    return error;
}

cudaError_t cudaGraphDestroy(cudaGraph_t captured)
{
    drop((void *)captured);
    return gone(captured, __func__);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    drop((void *)exec);
    return gone(exec, __func__);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream)
{
    FAULT();
    (void)exec, (void)stream;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    FAULT();
    return said(ebb_host_replay(stream_of(stream), ((graph *)(void *)exec)->record));
}

/* ---- times ---- */

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    void *mark = NULL;
    FAULT();
    const cudaError_t error = made(ebb_host_mark(NULL, &mark));
    *event = mark;
    return error;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    void *mark = (void *)event;
    FAULT();
    return said(ebb_host_mark(stream_of(stream), &mark));
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    FAULT();
    *ms = (float)((double)ebb_host_between((void *)from, (void *)to) / 1e6);
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    ebb_host_unmark((void *)event);
    return gone(event, __func__);
}
