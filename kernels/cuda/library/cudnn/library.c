/* library.c: opens cuDNN at run time, and says in words what it answers. */
#include <ctype.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/library/cudnn/internal.h"
#include "kernels/cuda/library/find_library.h"

ebb_cudnn_library ebb_cudnn;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char trouble[512]; /* why it could not be opened; "" where it could */
static int64_t opened_version;

/* The graphs here were planned with 9.19; what attention needs came with 9.10, whose first two
 * releases computed it wrongly. */
enum { OLDEST = 91002 };

static void open_library(void)
{
    char why[400] = "";
    const char *missing = NULL;
    void *library = ebb_library_find("EBB_CUDNN", "libcudnn.so.9", why, sizeof why);
    if (library == NULL) {
        (void)snprintf(trouble, sizeof trouble, "cuDNN 9 cannot be opened: %s", why);
        return;
    }
#define LOOK_UP(name, function)                                                              \
    if (!ebb_library_symbol(library, "cudnn" #function, &ebb_cudnn.name) && missing == NULL) \
        missing = "cudnn" #function;
    EBB_CUDNN_FUNCTIONS(LOOK_UP)
    if (missing != NULL) {
        (void)snprintf(trouble, sizeof trouble,
                       "the cuDNN that was opened has no %s: it is older than 9.10", missing);
        return;
    }
    opened_version = (int64_t)ebb_cudnn.version();
    const int major = (int)(opened_version / (opened_version < 90000 ? 1000 : 10000));
    if (opened_version < OLDEST || opened_version >= 100000)
        (void)snprintf(trouble, sizeof trouble,
                       "the cuDNN that was opened is version %d.%d, and 9.10.2 to 9.x is needed",
                       major, (int)(opened_version % (major < 9 ? 1000 : 10000) / 100));
    /* Never closed: its own threads and caches live until the process ends. */
}

ebb_status ebb_cudnn_open(void)
{
    (void)pthread_once(&once, open_library);
    if (trouble[0] == 0)
        return NULL;
    return ebb_hint(ebb_error(EBB_DEVICE, "%s", trouble),
                    "install cuDNN 9 (the wheel nvidia-cudnn-cu13 or NVIDIA's package), and name "
                    "its folder in EBB_CUDA_LIBS or the file libcudnn.so.9 in EBB_CUDNN");
}

int64_t ebb_cudnn_version(void)
{
    return ebb_cudnn_open() == NULL ? opened_version : 0;
}

/* ---- a stand-in for the driver ---- */

static pthread_once_t driver_once = PTHREAD_ONCE_INIT;
static bool compiles;

static void open_driver(void)
{
    char beside[512] = "";
    const char *home = getenv("CUDA_HOME");
    if (home != NULL)
        (void)snprintf(beside, sizeof beside, "%s/lib64/stubs/libcuda.so", home);
    const char *places[] = {"libcuda.so.1", getenv("EBB_CUDA_STUB"), beside,
                            "/usr/local/cuda/lib64/stubs/libcuda.so"};
    for (size_t i = 0; i < sizeof places / sizeof places[0] && !compiles; i++)
        compiles = places[i] != NULL && places[i][0] != 0 &&
                   dlopen(places[i], RTLD_NOW | RTLD_GLOBAL) != NULL;
}

bool ebb_cudnn_compiles(void)
{
    (void)pthread_once(&driver_once, open_driver);
    return compiles;
}

ebb_status ebb_cudnn_check(cudnnStatus_t code, const char *label, const char *what)
{
    char words[256] = "";
    if (code == CUDNN_STATUS_SUCCESS)
        return NULL;
    ebb_cudnn.last_error(words, sizeof words);
    words[sizeof words - 1] = 0;
    for (char *p = words; *p != 0; p++) /* one line, whatever it holds */
        if (!isprint((unsigned char)*p))
            *p = ' ';
    return ebb_error(CUDNN_STATUS_CATEGORY(code) == CUDNN_STATUS_NOT_SUPPORTED ? EBB_UNSUPPORTED
                                                                               : EBB_RUNTIME,
                     "%s: %s: %s%s%s", label, what, ebb_cudnn.error_string(code),
                     words[0] != 0 ? ": " : "", words);
}

bool ebb_cudnn_may_pass(cudnnStatus_t code)
{
    return code == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
           code == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED ||
           CUDNN_STATUS_CATEGORY(code) == CUDNN_STATUS_EXECUTION_FAILED;
}

ebb_status ebb_cudnn_handle_new(void **handle, void *stream)
{
    cudnnHandle_t made = NULL;
    *handle = NULL;
    EBB_TRY(ebb_cudnn_open());
    cudnnStatus_t code = ebb_cudnn.create(&made);
    if (code == CUDNN_STATUS_SUCCESS)
        code = ebb_cudnn.set_stream(made, (cudaStream_t)stream);
    if (code == CUDNN_STATUS_SUCCESS) {
        *handle = made;
        return NULL;
    }
    ebb_cudnn_handle_free(made);
    return ebb_hint(
        ebb_error(EBB_DEVICE, "cuDNN cannot use the device: %s", ebb_cudnn.error_string(code)),
        "with EBB_CUDNN=none own kernels compute what is cuDNN's");
}

void ebb_cudnn_handle_free(void *handle)
{
    if (handle != NULL)
        (void)ebb_cudnn.destroy((cudnnHandle_t)handle);
}
