/* plugin.h: back ends in shared objects of their own, opened when they are first asked for.
 *
 * plugin.c has a table of them, one row each: name, file, and the variable that names another file.
 * An object exports one name, ebb_plugin_table, and carries its own copy of what it uses of onnx/.
 * It is looked for beside libebb, unless its variable says where.
 *
 * libebb_cuda.so needs cuDNN, cuBLASLt and NVRTC; libebb needs none of them. It opens on a machine
 * without any of them and looks for them when they are first needed:
 * kernels/cuda/library/find_library.h.
 */
#pragma once

#include "kernels/kernels.h"

EBB_C_BEGIN

/* Raise it when ebb_call, ebb_kernel, ebb_backend or ebb_device change, or ops.def: the object must
 * be built from the same tree. EBB_OP_COUNT is compared too. */
enum { EBB_PLUGIN_VERSION = 10 };

typedef struct ebb_plugin {
    uint32_t version, op_count;
    const ebb_backend *backend;
    /* Libraries found, as "cuDNN 9.19.0, cuBLASLt 13.1.0, NVRTC 13.0", and why those that are
     * missing are: for `ebb devices`. */
    void (*libraries)(char *text, size_t size);
    /* Workspaces and kernels from now on are those of a described device ("h100"), which need not
     * be here: for plans. NULL: of the one that is here. EBB_USAGE lists the known names. */
    ebb_status (*describe)(const char *device);
    const char *const *described; /* their names, ended by NULL */
    /* Memory that host and device both reach, for tests; NULL where there is none. */
    void *(*shared)(size_t bytes);
    void (*unshare)(void *memory);
    void (*allow_tf32)(bool allow); /* float32 by tensor cores, with 10 bits of fraction */
} ebb_plugin;

/* Opens a shared object beside libebb, in the folder that the build puts it in (kernels/FOLDER), or where
 * the variable of the environment says. NULL: why says why not. */
void *ebb_object_open(const char *object, const char *variable, const char *folder, char why[512]);

/* The names of plugin.c's table, one a plug-in; NULL behind the last. */
const char *ebb_plugin_name(size_t i);

/* Opens the i-th once a process; later calls answer the same. EBB_DEVICE says what is missing. */
ebb_status ebb_plugin_open(const ebb_plugin **plugin, size_t i);

/* The back ends that "NAME" or "NAME:WORDS" asks for, a list ended by NULL; *list is NULL where no
 * plug-in has that name. Words are "h100", "tf32" or "h100+tf32", and hold for the whole process
 * until the next call. */
ebb_status ebb_plugin_backends(const ebb_backend *const **list, const char *name);

EBB_C_END
