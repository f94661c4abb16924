/* runtime.cu: runtime.h by the CUDA runtime. Compiled as C too, where host/fake_runtime.c answers
 * in the CUDA runtime's place and fails when a test says so.
 *
 * An error belongs to one of three: the device cannot be used at all (EBB_DEVICE), a call was
 * refused, or a kernel failed. The last is told late, by whichever call comes next, and from then
 * on by every call: such a sentence may not blame the call that was told.
 */
#include "kernels/cuda/runtime.h"

#include "kernels/cuda/fuse/compile.h"
#include "kernels/cuda/library/find_library.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Does every call say this once a kernel, or the device under it, has failed? */
static bool is_lasting(cudaError_t error)
{
    switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorDevicesUnavailable:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
        return true;
    default:
        return false;
    }
}

/* What would help against a lasting error. */
static const char *help_for(cudaError_t error)
{
    switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorDevicesUnavailable:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
        return "the device failed, not the model: see `nvidia-smi`, then begin again from the last "
               "checkpoint";
    case cudaErrorLaunchTimeout:
        return "the driver ends kernels that take seconds where the device also shows a screen: "
               "use another device, or a smaller batch";
    default:
        return "CUDA_LAUNCH_BLOCKING=1 with --profile names the node; --backend cpu computes the "
               "same";
    }
}

static ebb_status failed(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return NULL;
    (void)cudaGetLastError(); // else the next to ask for it, a library, takes it for its own
    if (is_lasting(error))
        return ebb_hint(ebb_error(EBB_RUNTIME,
                                  "CUDA: %s: a kernel of this step or the device failed: %s (%s)",
                                  what, cudaGetErrorString(error), cudaGetErrorName(error)),
                        "%s", help_for(error));
    const ebb_status status = ebb_error(EBB_RUNTIME, "CUDA: %s: %s (%s)", what,
                                        cudaGetErrorString(error), cudaGetErrorName(error));
    if (error != cudaErrorMemoryAllocation)
        return status;
    return ebb_hint(status, "others hold the device's memory: `nvidia-smi` lists them");
}

/* ---- open and close ---- */

static ebb_status no_driver(void)
{
    return ebb_hint(ebb_error(EBB_DEVICE, "there is no NVIDIA driver on this machine"),
                    "install one, or start the container with its devices (--gpus all); "
                    "--backend cpu needs none");
}

static ebb_status nothing_there(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    ebb_status status = ebb_error(EBB_DEVICE, "there is no CUDA device on this machine");
    if (visible != NULL)
        return ebb_hint(status,
                        "CUDA_VISIBLE_DEVICES is '%.64s', which may hide it, and of several "
                        "processes each needs one to itself; --backend cpu needs none",
                        visible);
    return ebb_hint(status, "`nvidia-smi -L` lists what the driver sees; --backend cpu needs none");
}

static const char *help_to_open(cudaError_t error)
{
    switch (error) {
    case cudaErrorMemoryAllocation:
        return "others hold its memory: `nvidia-smi` lists them; --backend cpu needs none of it";
    case cudaErrorDevicesUnavailable:
    case cudaErrorNotPermitted:
        return "another process has it for itself, or may alone use it: `nvidia-smi -q -d COMPUTE` "
               "tells; or use --backend cpu";
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
        return "libcuda.so.1 is of another version than the driver that runs: restart the machine "
               "after an update, or leave CUDA's compat folder out of LD_LIBRARY_PATH; or use "
               "--backend cpu";
    case cudaErrorSystemNotReady:
        return "its services do not run yet (nvidia-fabricmanager); or use --backend cpu";
    case cudaErrorMpsConnectionFailed:
    case cudaErrorMpsRpcFailure:
    case cudaErrorMpsServerNotReady:
    case cudaErrorMpsMaxClientsReached:
    case cudaErrorMpsMaxConnectionsReached:
        return "MPS shares it out: restart nvidia-cuda-mps-control, or use --backend cpu";
    default:
        return "`nvidia-smi` tells whether the driver can use it; --backend cpu needs none";
    }
}

static ebb_status no_device(cudaError_t error, int count)
{
    if (error == cudaSuccess && count > 0)
        return NULL;
    (void)cudaGetLastError();
    if (error == cudaErrorStubLibrary)
        return no_driver();
    if (error == cudaErrorInsufficientDriver) {
        int driver = 0, runtime = 0;
        (void)cudaDriverGetVersion(&driver);
        (void)cudaRuntimeGetVersion(&runtime);
        if (driver == 0)
            return no_driver();
        if (driver / 1000 < runtime / 1000)
            return ebb_hint(
                ebb_error(EBB_DEVICE, "the NVIDIA driver is for CUDA %d.%d, this needs %d.%d",
                          driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10),
                "install a newer driver, or use --backend cpu");
    }
    if (error == cudaErrorNoDevice || error == cudaSuccess)
        return nothing_there();
    return ebb_hint(ebb_error(EBB_DEVICE, "the CUDA device cannot be used: %s (%s)",
                              cudaGetErrorString(error), cudaGetErrorName(error)),
                    "%s", help_to_open(error));
}

/* Kernels are compiled for these devices and later ones; see CUDA_ARCHITECTURES. */
enum { OLDEST = 80 };

static ebb_status too_old(void)
{
    int device = 0, major = 0, minor = 0;
    EBB_TRY(no_device(cudaGetDevice(&device), 1));
    EBB_TRY(
        no_device(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), 1));
    EBB_TRY(
        no_device(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), 1));
    if (10 * major + minor >= OLDEST)
        return NULL;
    return ebb_hint(ebb_error(EBB_DEVICE,
                              "the CUDA device has compute capability %d.%d, this needs %d.%d",
                              major, minor, OLDEST / 10, OLDEST % 10),
                    "CUDA_VISIBLE_DEVICES chooses among several; --backend cpu needs none");
}

ebb_status ebb_gpu_open(void **stream)
{
    int count = 0;
    cudaStream_t made;
    *stream = NULL;
    const cudaError_t error = cudaGetDeviceCount(&count); // before count is read
    EBB_TRY(no_device(error, count));
    EBB_TRY(too_old());
    EBB_TRY(no_device(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), 1));
    *stream = made;
    return NULL;
}

ebb_status ebb_gpu_open_another(void **stream)
{
    cudaStream_t made = NULL;
    EBB_TRY(failed(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "making a stream"));
    *stream = made;
    return NULL;
}

void ebb_gpu_close(void *stream)
{
    if (stream != NULL)
        (void)cudaStreamDestroy((cudaStream_t)stream);
}

/* ---- memory ---- */

ebb_status ebb_gpu_allocate(size_t bytes, void **memory)
{
    cudaError_t error = cudaMalloc(memory, bytes);
    size_t unused = 0, total = 0;
    if (error != cudaSuccess)
        *memory = NULL;
    if (error != cudaErrorMemoryAllocation)
        return failed(error, "allocating device memory");
    (void)cudaGetLastError();
    ebb_status status =
        cudaMemGetInfo(&unused, &total) == cudaSuccess
            ? ebb_error(EBB_RUNTIME,
                        "%zu bytes of device memory cannot be had: %zu of %zu are free", bytes,
                        unused, total)
            : ebb_error(EBB_RUNTIME, "%zu bytes of device memory cannot be had", bytes);
    return ebb_hint(status, "plan with a smaller --budget, or see what else is on the device "
                            "(`nvidia-smi` lists it)");
}

void *ebb_gpu_shared(size_t bytes)
{
    void *memory = NULL;
    return failed(cudaMallocManaged(&memory, bytes, cudaMemAttachGlobal), "") == NULL ? memory
                                                                                      : NULL;
}

void ebb_gpu_release(void *memory)
{
    (void)cudaFree(memory);
}

/* From pageable memory the copy is staged before the call returns, so `from` is free at once. */
ebb_status ebb_gpu_copy(void *stream, void *to, const void *from, size_t bytes, ebb_gpu_way way)
{
    static const enum cudaMemcpyKind kinds[] = {cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost,
                                                cudaMemcpyDeviceToDevice};
    if (bytes > 0) // a record takes no copy of nothing
        EBB_TRY(
            failed(cudaMemcpyAsync(to, from, bytes, kinds[way], (cudaStream_t)stream), "copying"));
    return way == EBB_ON_DEVICE ? NULL : ebb_gpu_wait(stream);
}

/* Pinned: a record may hold only such copies. */
ebb_status ebb_gpu_stage(size_t bytes, void **memory)
{
    return failed(cudaMallocHost(memory, bytes), "allocating pinned memory of the host");
}

void ebb_gpu_unstage(void *memory)
{
    (void)cudaFreeHost(memory);
}

ebb_status ebb_gpu_copy_later(void *stream, void *to, const void *from, size_t bytes,
                              ebb_gpu_way way)
{
    enum cudaMemcpyKind kind = way == EBB_TO_HOST ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice;
    if (bytes == 0)
        return NULL;
    return failed(cudaMemcpyAsync(to, from, bytes, kind, (cudaStream_t)stream), "copying");
}

ebb_status ebb_gpu_visit(void *stream, void (*work)(void *), void *context)
{
    return failed(cudaLaunchHostFunc((cudaStream_t)stream, work, context),
                  "giving work to the host");
}

ebb_status ebb_gpu_clear(void *stream, void *to, size_t bytes)
{
    return bytes == 0
               ? NULL
               : failed(cudaMemsetAsync(to, 0, bytes, (cudaStream_t)stream), "clearing memory");
}

ebb_status ebb_gpu_wait(void *stream)
{
    return failed(cudaStreamSynchronize((cudaStream_t)stream), "waiting for the device");
}

ebb_status ebb_gpu_done(void *stream, bool *is_done)
{
    const cudaError_t error = cudaStreamQuery((cudaStream_t)stream);
    *is_done = error != cudaErrorNotReady;
    return *is_done ? failed(error, "asking the device") : NULL;
}

/* ---- launches ---- */

ebb_status ebb_gpu_launch(void *stream, ebb_gpu_kernel kernel, ebb_gpu_grid blocks,
                          uint32_t threads, uint32_t shared_bytes, const void *args, size_t bytes)
{
    (void)bytes;
    if (blocks.x == 0 || blocks.y == 0 || blocks.z == 0)
        return NULL;
    void *list[1] = {(void *)(uintptr_t)args};
    const struct dim3 grid = {blocks.x, blocks.y, blocks.z}, block = {threads, 1, 1};
    if (shared_bytes > 48 * 1024)
        EBB_TRY(failed(cudaFuncSetAttribute((const void *)(uintptr_t)kernel,
                                            cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            (int)shared_bytes),
                       "asking for shared memory"));
    return failed(cudaLaunchKernel((const void *)(uintptr_t)kernel, grid, block, list, shared_bytes,
                                   (cudaStream_t)stream),
                  "launching a kernel");
}

ebb_status ebb_gpu_compile(const char *source, int version, void **image, size_t *bytes)
{
    return ebb_nvrtc_compile(source, version, image, bytes, NULL);
}

ebb_status ebb_gpu_load(const void *image, size_t bytes, const char *name, void **module,
                        ebb_gpu_kernel *kernel)
{
    cudaLibrary_t library = NULL;
    cudaKernel_t found = NULL;
    (void)bytes; // a CUBIN knows how long it is
    *module = NULL;
    *kernel = NULL;
    EBB_TRY(failed(cudaLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0),
                   "loading a compiled chain"));
    cudaError_t error = cudaLibraryGetKernel(&found, library, name);
    if (error != cudaSuccess)
        (void)cudaLibraryUnload(library);
    EBB_TRY(failed(error, "finding the kernel of a compiled chain"));
    *module = library;
    *kernel = (ebb_gpu_kernel)(uintptr_t)found; // cudaLaunchKernel takes it as it takes a function
    return NULL;
}

void ebb_gpu_unload(void *module)
{
    if (module != NULL)
        (void)cudaLibraryUnload((cudaLibrary_t)module);
}

/* ---- records ---- */

/* Relaxed: libraries may load a kernel or allocate in the midst; nothing of ours waits there. */
ebb_status ebb_gpu_record(void *stream)
{
    return failed(cudaStreamBeginCapture((cudaStream_t)stream, cudaStreamCaptureModeRelaxed),
                  "recording the step");
}

ebb_status ebb_gpu_recorded(void *stream, void **record)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    *record = NULL;
    EBB_TRY(failed(cudaStreamEndCapture((cudaStream_t)stream, &graph), "recording the step"));
    cudaError_t error = cudaGraphInstantiate(&exec, graph, 0);
    (void)cudaGraphDestroy(graph);
    EBB_TRY(failed(error, "preparing the recorded step"));
    *record = exec;
    return failed(cudaGraphUpload(exec, (cudaStream_t)stream), "preparing the recorded step");
}

ebb_status ebb_gpu_replay(void *stream, void *record)
{
    return failed(cudaGraphLaunch((cudaGraphExec_t)record, (cudaStream_t)stream),
                  "running the recorded step");
}

void ebb_gpu_forget(void *record)
{
    if (record != NULL)
        (void)cudaGraphExecDestroy((cudaGraphExec_t)record);
}

/* ---- times ---- */

ebb_status ebb_gpu_mark(void *stream, void **mark)
{
    if (*mark == NULL) {
        cudaEvent_t event;
        EBB_TRY(failed(cudaEventCreate(&event), "making an event"));
        *mark = event;
    }
    return failed(cudaEventRecord((cudaEvent_t)*mark, (cudaStream_t)stream), "recording an event");
}

int64_t ebb_gpu_between(void *mark, void *later)
{
    float ms = 0;
    (void)cudaEventElapsedTime(&ms, (cudaEvent_t)mark, (cudaEvent_t)later);
    return (int64_t)((double)ms * 1e6);
}

void ebb_gpu_unmark(void *mark)
{
    if (mark != NULL)
        (void)cudaEventDestroy((cudaEvent_t)mark);
}

ebb_status ebb_gpu_follow(void *stream, void *mark)
{
    return failed(cudaStreamWaitEvent((cudaStream_t)stream, (cudaEvent_t)mark, 0),
                  "putting work behind other work");
}

/* ---- facts ---- */

/* What the driver's own library says that this process holds, context and modules included; 0 where
 * it is not there or does not know. Declared here: its header is not in every toolkit. */
static uint64_t process_bytes(int device)
{
    typedef struct process {
        unsigned pid;
        unsigned long long used;
        unsigned gpu_instance, compute_instance;
    } process;
    enum { MOST = 256 };
    int (*init)(void) = NULL, (*shutdown)(void) = NULL;
    int (*handle_of)(const char *, void **) = NULL;
    int (*list)(void *, unsigned *, process *) = NULL;
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL), *handle = NULL;
    if (library == NULL)
        return 0;
    uint64_t bytes = 0;
    char bus[32];
    unsigned count = MOST;
    process *all = (process *)calloc(MOST, sizeof *all);
    if (all != NULL && ebb_library_symbol(library, "nvmlInit_v2", &init) &&
        ebb_library_symbol(library, "nvmlShutdown", &shutdown) &&
        ebb_library_symbol(library, "nvmlDeviceGetHandleByPciBusId_v2", &handle_of) &&
        ebb_library_symbol(library, "nvmlDeviceGetComputeRunningProcesses_v3", &list) &&
        cudaDeviceGetPCIBusId(bus, sizeof bus, device) == cudaSuccess && init() == 0) {
        if (handle_of(bus, &handle) == 0 && list(handle, &count, all) == 0)
            for (unsigned i = 0; i < count && i < MOST; i++)
                if (all[i].pid == (unsigned)getpid() && all[i].used != ~0ull)
                    bytes = all[i].used;
        (void)shutdown();
    }
    free(all);
    (void)dlclose(library);
    return bytes;
}

ebb_status ebb_gpu_facts(ebb_device_facts *facts)
{
    int count = 0, device = 0;
    struct cudaDeviceProp p;
    size_t unused = 0, total = 0;
    (void)cudaDriverGetVersion(&facts->driver);
    (void)cudaRuntimeGetVersion(&facts->runtime);
    const cudaError_t error = cudaGetDeviceCount(&count); // before count is read
    EBB_TRY(no_device(error, count));
    EBB_TRY(too_old());
    EBB_TRY(no_device(cudaGetDevice(&device), 1));
    EBB_TRY(no_device(cudaGetDeviceProperties(&p, device), 1));
    EBB_TRY(no_device(cudaMemGetInfo(&unused, &total), 1));
    (void)snprintf(facts->name, sizeof facts->name, "%s", p.name);
    facts->version = p.major * 100 + p.minor * 10;
    facts->total_bytes = total;
    facts->free_bytes = unused;
    facts->process_bytes = process_bytes(device);
    return NULL;
}
