/* compile.cu: chains by NVRTC, and what it made on disk. */
#include "kernels/cuda/fuse/compile.h"

#include "kernels/cuda/fuse/cache_files.h"
#include "kernels/cuda/fuse/chain.h"
#include "kernels/cuda/library/find_library.h"
#include "onnx/words/arena.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- NVRTC ---- */

typedef int (*version_fn)(int *major, int *minor);
typedef int (*create_fn)(void **program, const char *source, const char *name, int headers,
                         const char *const *texts, const char *const *names);
typedef int (*compile_fn)(void *program, int options, const char *const *option);
typedef int (*size_fn)(void *program, size_t *bytes);
typedef int (*text_fn)(void *program, char *bytes);
typedef int (*destroy_fn)(void **program);

static struct {
    version_fn version;
    create_fn create;
    compile_fn compile;
    size_fn log_size, code_size;
    text_fn log, code;
    destroy_fn destroy;
    void *library;
    int opened; /* version, 0: not there */
} nvrtc;

static char trouble[400]; // why it could not be opened
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void look_up(void *library, const char *name, void *place)
{
    if (!ebb_library_symbol(library, name, place) && trouble[0] == 0)
        (void)snprintf(trouble, sizeof trouble, "the NVRTC that was opened has no %s", name);
}

static void open_library(void)
{
    int major = 0, minor = 0;
    char why[400] = "";
    void *library = ebb_library_find("EBB_NVRTC", "libnvrtc.so.13", why, sizeof why);
    if (library == NULL) {
        (void)snprintf(trouble, sizeof trouble, "%s", why);
        library = ebb_library_find("EBB_NVRTC", "libnvrtc.so.12", why, sizeof why);
    }
    if (library == NULL)
        return;
    trouble[0] = 0;
    nvrtc.library = library;
    look_up(library, "nvrtcVersion", &nvrtc.version);
    look_up(library, "nvrtcCreateProgram", &nvrtc.create);
    look_up(library, "nvrtcCompileProgram", &nvrtc.compile);
    look_up(library, "nvrtcGetProgramLogSize", &nvrtc.log_size);
    look_up(library, "nvrtcGetProgramLog", &nvrtc.log);
    look_up(library, "nvrtcGetCUBINSize", &nvrtc.code_size);
    look_up(library, "nvrtcGetCUBIN", &nvrtc.code);
    look_up(library, "nvrtcDestroyProgram", &nvrtc.destroy);
    if (trouble[0] != 0)
        return;
    if (nvrtc.version(&major, &minor) != 0 || major < 12 || major > 13)
        (void)snprintf(trouble, sizeof trouble,
                       "the NVRTC that was opened is version %d.%d, and 12 or 13 is needed", major,
                       minor);
    else
        nvrtc.opened = major * 1000 + minor * 10;
}

int ebb_nvrtc_version(void)
{
    (void)pthread_once(&once, open_library);
    return nvrtc.opened;
}

void ebb_nvrtc_library(char *text, size_t size)
{
    char version[32];
    const int v = ebb_nvrtc_version();
    (void)snprintf(version, sizeof version, "%d.%d", v / 1000, v % 1000 / 10);
    ebb_library_list(text, size, v > 0 ? "NVRTC" : "NVRTC 13", v > 0 ? version : NULL, trouble);
}

/* What the compiler says, its first lines. */
static ebb_status complaint(void *program, int version)
{
    char log[600] = "";
    size_t bytes = 0;
    char *whole = NULL;
    if (nvrtc.log_size(program, &bytes) == 0 && bytes > 0)
        whole = (char *)ebb_alloc(bytes + 1);
    if (whole != NULL && nvrtc.log(program, whole) == 0) {
        whole[bytes] = 0;
        (void)snprintf(log, sizeof log, "%s", whole);
    }
    ebb_free(whole);
    for (char *p = log; *p != 0; p++)
        if ((unsigned char)*p < ' ')
            *p = ' ';
    return ebb_error(EBB_RUNTIME, "NVRTC %d does not compile a chain for sm_%d: %s", nvrtc.opened,
                     version / 10, log);
}

static ebb_status compile(const char *source, int version, bool as_ptx, void **image, size_t *bytes)
{
    char arch[64];
    const char *options[] = {arch, "--std=c++17", "--fmad=false", "--generate-line-info"};
    size_fn size = nvrtc.code_size;
    text_fn code = nvrtc.code;
    void *program = NULL;
    trouble[0] = 0;
    if (as_ptx) {
        look_up(nvrtc.library, "nvrtcGetPTXSize", &size);
        look_up(nvrtc.library, "nvrtcGetPTX", &code);
    }
    if (trouble[0] != 0)
        return ebb_error(EBB_DEVICE, "%s", trouble);
    (void)snprintf(arch, sizeof arch, "--gpu-architecture=%s_%d", as_ptx ? "compute" : "sm",
                   version / 10);
    if (nvrtc.create(&program, source, "chain.cu", EBB_CHAIN_HEADERS, ebb_chain_header_texts,
                     ebb_chain_header_names) != 0)
        return ebb_error(EBB_RUNTIME, "NVRTC does not take the source of a chain");
    ebb_status status = NULL;
    if (nvrtc.compile(program, as_ptx ? 4 : 3, options) != 0)
        status = complaint(program, version);
    if (status == NULL && (size(program, bytes) != 0 || *bytes == 0))
        status = ebb_error(EBB_RUNTIME, "NVRTC made no code of a chain");
    if (status == NULL && (*image = ebb_alloc(*bytes)) == NULL)
        status = ebb_error_memory();
    if (status == NULL && code(program, (char *)*image) != 0) {
        ebb_free(*image);
        *image = NULL;
        status = ebb_error(EBB_RUNTIME, "NVRTC made no code of a chain");
    }
    (void)nvrtc.destroy(&program);
    return status;
}

/* ---- on disk ---- */

typedef struct head { /* then the source, then the code */
    char kind[8];
    uint64_t source_bytes, code_bytes, sum;
} head;

static const char kind[8] = {'e', 'b', 'b', 'c', 'h', 'a', 'i', '1'};

static uint64_t sum_of(const void *data, size_t bytes) /* FNV-1a */
{
    const unsigned char *p = (const unsigned char *)data;
    uint64_t h = 14695981039346656037ULL;
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ p[i]) * 1099511628211ULL;
    return h;
}

ebb_status ebb_nvrtc_cache_path(const char *source, int version, char *path, size_t size)
{
    uint64_t hash = sum_of(source, strlen(source));
    for (int k = 0; k < EBB_CHAIN_HEADERS; k++) // and what it includes
        hash = hash * 31 + sum_of(ebb_chain_header_texts[k], strlen(ebb_chain_header_texts[k]));
    EBB_TRY(ebb_cache_folder(path, size));
    size_t used = strlen(path);
    int length = snprintf(path + used, size - used, "/chains-%d/sm_%d/%016llx.bin",
                          ebb_nvrtc_version(), version / 10, (unsigned long long)hash);
    return length > 0 && (size_t)length < size - used
               ? NULL
               : ebb_error(EBB_IO, "the cache's folder has too long a name");
}

static bool read_cached(const char *path, const char *source, void **image, size_t *bytes)
{
    size_t length = 0, source_bytes = strlen(source);
    head h;
    char *file = ebb_cache_read(path, &length);
    bool good = file != NULL && length >= sizeof h;
    if (good) {
        memcpy(&h, file, sizeof h);
        good = memcmp(h.kind, kind, sizeof kind) == 0 && h.source_bytes == source_bytes &&
               source_bytes <= length - sizeof h && h.code_bytes > 0 &&
               h.code_bytes == length - sizeof h - source_bytes &&
               memcmp(file + sizeof h, source, source_bytes) == 0 &&
               h.sum == sum_of(file + sizeof h + source_bytes, (size_t)h.code_bytes);
    }
    if (good)
        *image = ebb_alloc((size_t)h.code_bytes);
    good = good && *image != NULL;
    if (good) {
        *bytes = (size_t)h.code_bytes;
        memcpy(*image, file + sizeof h + source_bytes, *bytes);
    }
    ebb_free(file);
    return good;
}

static void keep(char *path, const char *source, const void *image, size_t bytes)
{
    head h;
    size_t source_bytes = strlen(source);
    char *file = (char *)ebb_alloc(sizeof h + source_bytes + bytes);
    if (file == NULL)
        return;
    memset(&h, 0, sizeof h);
    memcpy(h.kind, kind, sizeof kind);
    h.source_bytes = source_bytes;
    h.code_bytes = bytes;
    h.sum = sum_of(image, bytes);
    memcpy(file, &h, sizeof h);
    memcpy(file + sizeof h, source, source_bytes);
    memcpy(file + sizeof h + source_bytes, image, bytes);
    ebb_cache_write(path, file, sizeof h + source_bytes + bytes);
    ebb_free(file);
}

static ebb_status is_there(void)
{
    if (ebb_nvrtc_version() != 0)
        return NULL;
    return ebb_hint(ebb_error(EBB_DEVICE, "NVRTC cannot be opened, so chains of operators "
                                          "cannot be compiled"),
                    "install it (the wheel nvidia-cuda-nvrtc or NVIDIA's package), and name "
                    "its folder in EBB_CUDA_LIBS or the file libnvrtc.so.13 in EBB_NVRTC");
}

ebb_status ebb_nvrtc_ptx(const char *source, int version, void **text, size_t *bytes)
{
    *text = NULL;
    *bytes = 0;
    EBB_TRY(is_there());
    return compile(source, version, true, text, bytes);
}

ebb_status ebb_nvrtc_compile(const char *source, int version, void **image, size_t *bytes,
                             bool *cached)
{
    char path[4096] = "";
    *image = NULL;
    *bytes = 0;
    if (cached != NULL)
        *cached = false;
    EBB_TRY(is_there());
    bool keeps = ebb_nvrtc_cache_path(source, version, path, sizeof path) == NULL;
    if (keeps && read_cached(path, source, image, bytes)) {
        if (cached != NULL)
            *cached = true;
        return NULL;
    }
    EBB_TRY(compile(source, version, false, image, bytes));
    if (keeps)
        keep(path, source, *image, *bytes);
    return NULL;
}
