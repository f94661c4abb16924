/* find_library.h: CUDA's libraries, opened by name when they are first asked for: the back end is
 * linked to none of them, so that it opens on machines that have not all.
 *
 *     the file that an own variable names, and no other;  else the name, in
 *         each folder of $EBB_CUDA_LIBS  ->  the loader's places  ->  /usr/local/cuda/lib64
 *         ->  the wheels below $VIRTUAL_ENV
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "onnx/words/status.h"

EBB_C_BEGIN

/* dlopen()'s handle, never to be closed; or NULL and in why the loader's words. variable: as
 * "EBB_CUDNN"; name: as "libcudnn.so.9". */
void *ebb_library_find(const char *variable, const char *name, char *why, size_t size);

/* Puts a function's address into the pointer at place. False, and NULL there: the library has none of
 * that name. */
bool ebb_library_symbol(void *library, const char *name, void *place);

/* Adds an entry of a list, "cuDNN 9.19.0" or "no cuDNN 9 (why)", to text. */
void ebb_library_list(char *text, size_t size, const char *name, const char *version,
                      const char *why);

EBB_C_END
