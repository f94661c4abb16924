/* compile.h: the source of a chain to code for one kind of device, by NVRTC, which needs none.
 *
 * NVRTC is opened when it is first needed: $EBB_NVRTC, or libnvrtc.so.13 where the loader and
 * CUDA's own folder have it. What it made is kept on disk, see cache_files.h:
 *
 *     chains-13000/sm_90/5d41402abc4b2a76.bin     NVRTC's version / device / hash of the source
 *
 * A file holds the whole source, and is believed only where that and the sum over the code agree.
 */
#pragma once

#include "onnx/words/status.h"

#include <stdbool.h>
#include <stddef.h>

EBB_C_BEGIN

/* 13000; 0 where NVRTC cannot be opened. */
int ebb_nvrtc_version(void);
/* Adds "NVRTC 13.0", or that there is none and why, to the list in text. */
void ebb_nvrtc_library(char *text, size_t size);

/* version: of the device, 900 for sm_90. *image: a CUBIN, to be ebb_free()d. cached may be NULL.
 * EBB_DEVICE: there is no NVRTC, or it does not know the device. EBB_RUNTIME: what it says of the
 * source. */
ebb_status ebb_nvrtc_compile(const char *source, int version, void **image, size_t *bytes,
                             bool *cached);

/* The same as PTX, which ends in a zero byte, and is kept nowhere. */
ebb_status ebb_nvrtc_ptx(const char *source, int version, void **text, size_t *bytes);

/* Where it would be kept. EBB_IO where the environment names no folder. */
ebb_status ebb_nvrtc_cache_path(const char *source, int version, char *path, size_t size);

EBB_C_END
