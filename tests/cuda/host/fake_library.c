/* fake_library.c: what can lie where cuDNN, cuBLASLt and NVRTC are looked for: of another version,
 * without a function that is needed (built with EBB_PARTIAL), one that refuses all that it is asked,
 * or a cuBLASLt that begins and has no algorithm. $EBB_FAKE_LIBRARY=old|refuses|idle says which.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN __attribute__((visibility("default")))

static bool is(const char *word)
{
    const char *what = getenv("EBB_FAKE_LIBRARY");
    return what != NULL && strcmp(what, word) == 0;
}

static bool is_old(void)
{
    return is("old");
}

SHOWN size_t cudnnGetVersion(void);
SHOWN size_t cudnnGetVersion(void)
{
    return is_old() ? 8907 : 91900;
}

SHOWN size_t cublasLtGetVersion(void);
SHOWN size_t cublasLtGetVersion(void)
{
    return is_old() ? 120804 : 130101;
}

SHOWN int nvrtcVersion(int *major, int *minor);
SHOWN int nvrtcVersion(int *major, int *minor)
{
    *major = is_old() ? 11 : 13;
    *minor = is_old() ? 8 : 0;
    return 0;
}

#if !defined(EBB_PARTIAL)

#define WORDS(name)                   \
    SHOWN const char *name(int code); \
    SHOWN const char *name(int code)  \
    {                                 \
        (void)code;                   \
        return "it is broken";        \
    }
WORDS(cudnnGetErrorString)
WORDS(cublasLtGetStatusString)

SHOWN void cudnnGetLastErrorString(char *text, size_t size);
SHOWN void cudnnGetLastErrorString(char *text, size_t size)
{
    (void)strncpy(text, "nothing goes", size);
}

/* cuDNN: 1001, not initialized; cuBLASLt: 1, the same; NVRTC: 1, out of memory. */
#define REFUSES(name, code) \
    SHOWN int name(void);   \
    SHOWN int name(void)    \
    {                       \
        return code;        \
    }
REFUSES(cudnnCreate, 1001)
REFUSES(cudnnDestroy, 1001)
REFUSES(cudnnSetStream, 1001)
REFUSES(cudnnBackendCreateDescriptor, 1001)
REFUSES(cudnnBackendDestroyDescriptor, 1001)
REFUSES(cudnnBackendFinalize, 1001)
REFUSES(cudnnBackendSetAttribute, 1001)
REFUSES(cudnnBackendGetAttribute, 1001)
REFUSES(cudnnBackendExecute, 1001)

SHOWN int cublasLtCreate(void **handle);
SHOWN int cublasLtCreate(void **handle)
{
    static int one;
    *handle = &one;
    return is("idle") ? 0 : 1;
}

REFUSES(cublasLtDestroy, is("idle") ? 0 : 1)
REFUSES(cublasLtMatmulDescCreate, is("idle") ? 0 : 1)
REFUSES(cublasLtMatmulDescDestroy, is("idle") ? 0 : 1)
REFUSES(cublasLtMatmulDescSetAttribute, is("idle") ? 0 : 1)
REFUSES(cublasLtMatrixLayoutCreate, is("idle") ? 0 : 1)
REFUSES(cublasLtMatrixLayoutDestroy, is("idle") ? 0 : 1)
REFUSES(cublasLtMatrixLayoutSetAttribute, is("idle") ? 0 : 1)
REFUSES(cublasLtMatmulPreferenceCreate, is("idle") ? 0 : 1)
REFUSES(cublasLtMatmulPreferenceDestroy, is("idle") ? 0 : 1)
REFUSES(cublasLtMatmulPreferenceSetAttribute, is("idle") ? 0 : 1)
REFUSES(cublasLtMatmulAlgoGetHeuristic, is("idle") ? 15 : 1) // not supported
REFUSES(cublasLtMatmul, is("idle") ? 0 : 1)
REFUSES(nvrtcCreateProgram, 1)
REFUSES(nvrtcCompileProgram, 1)
REFUSES(nvrtcGetProgramLogSize, 1)
REFUSES(nvrtcGetProgramLog, 1)
REFUSES(nvrtcGetCUBINSize, 1)
REFUSES(nvrtcGetCUBIN, 1)
REFUSES(nvrtcDestroyProgram, 1)

#endif
