/* plugin.h: a back end in a shared object of its own, opened when it is first asked for.
 *
 * libebb_cuda.so needs cuDNN, cuBLASLt and NVRTC; libebb needs none of them. The object carries its
 * own copy of what it uses of onnx/ and exports one name, ebb_plugin_table. Where it is looked for:
 * $EBB_CUDA_PLUGIN (a file), else beside libebb. It opens on a machine without any of its
 * libraries, which it looks for when they are first needed: kernels/cuda/library/find_library.h.
 */
#ifndef EBB_KERNELS_PLUGIN_H
#define EBB_KERNELS_PLUGIN_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Raise it when ebb_call, ebb_kernel, ebb_backend or ebb_device change, or ops.def: the object must
 * be built from the same tree. EBB_OP_COUNT is compared too. */
enum { EBB_PLUGIN_VERSION = 7 };

/* An answer of the device to a question of a library's results; why: not; NULL: they have the bits
 * of the own kernels. */
typedef void (*ebb_plugin_tell)(void *to, const char *what, const char *why);

typedef struct ebb_plugin {
    uint32_t version, op_count;
    const ebb_backend *backend;
    /* Libraries found, as "cuDNN 9.19.0, cuBLASLt 13.1.0, NVRTC 13.0", and why those that are
     * missing are: for `ebb devices`. */
    void (*libraries)(char *text, size_t size);
    /* What a library may do in place of own kernels if the device that is here shows that the bits
     * are the same: each question, asked now. Uses the device; nothing where there is none. */
    void (*probes)(ebb_plugin_tell tell, void *to);
    /* Workspaces and kernels from now on are those of a described device ("h100"), which need not
     * be here: for plans. NULL: of the one that is here. EBB_USAGE lists the known names. */
    ebb_status (*describe)(const char *device);
    const char *const *described; /* their names, ended by NULL */
    /* Memory that host and device both reach, for tests; NULL where there is none. */
    void *(*shared)(size_t bytes);
    void (*unshare)(void *memory);
    void (*allow_tf32)(bool allow); /* float32 by tensor cores, with 10 bits of fraction */
} ebb_plugin;

/* The back end that "cuda", "cuda:h100", "cuda:tf32" or "cuda:h100+tf32" asks for; words: what
 * stands behind the colon, or NULL. The words hold for the whole process until the next call. */
ebb_status ebb_plugin_backend(const ebb_backend **backend, const char *words);

/* Opens it once a process; later calls answer the same. EBB_DEVICE says what is missing. */
ebb_status ebb_plugin_cuda(const ebb_plugin **plugin);

#ifdef __cplusplus
}
#endif
#endif
