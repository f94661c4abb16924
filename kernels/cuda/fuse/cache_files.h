/* cache_files.h: where what was compiled for a device is kept, so that it is compiled once a
 * machine and not once a process.
 *
 *     $EBB_CACHE, else $XDG_CACHE_HOME/ebb, else $HOME/.cache/ebb
 *
 * A file is written beside its place and renamed into it, so that another process never sees half
 * of one. Whether what a file holds is to be believed, its reader decides.
 */
#pragma once

#include "onnx/words/status.h"

#include <stddef.h>

EBB_C_BEGIN

/* EBB_IO where the environment names no folder, or one with too long a name. */
ebb_status ebb_cache_folder(char *path, size_t size);

/* The whole file with a zero behind it, to be ebb_free()d; NULL where there is none, or one beyond
 * 16 MiB. length may be NULL. */
char *ebb_cache_read(const char *path, size_t *length);

/* Makes the folders above it too. What cannot be written is not there. path is as before after. */
void ebb_cache_write(char *path, const void *data, size_t bytes);

EBB_C_END
