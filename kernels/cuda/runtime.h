/* runtime.h: what the back end asks of the CUDA runtime: runtime.cu; and what answers in its place
 * where the kernels are compiled for the host: host/runtime.c.
 *
 * A stream does work in order. Between record() and recorded() launches and copies on the device
 * are noted, not done; replay() does them with the arguments of then. Errors name CUDA's own.
 */
#pragma once

#include "kernels/device.h"

EBB_C_BEGIN

typedef enum ebb_gpu_way { EBB_TO_DEVICE, EBB_TO_HOST, EBB_ON_DEVICE } ebb_gpu_way;

typedef struct ebb_gpu_grid { /* blocks */
    uint32_t x, y, z;
} ebb_gpu_grid;

/* EBB_DEVICE: no device, no driver, driver too old: what CUDA says and what would help. */
ebb_status ebb_gpu_open(void **stream);
ebb_status ebb_gpu_open_another(void **stream); /* beside one that is open */
void ebb_gpu_close(void *stream);
ebb_status ebb_gpu_allocate(size_t bytes, void **memory); /* EBB_RUNTIME: how many are free */
void ebb_gpu_release(void *memory);
void *ebb_gpu_shared(size_t bytes); /* the host reaches it too; NULL: none */
/* TO_HOST waits for the bytes; TO_DEVICE until `from` may be changed again. Of no bytes: nothing.
 */
ebb_status ebb_gpu_copy(void *stream, void *to, const void *from, size_t bytes, ebb_gpu_way way);
ebb_status ebb_gpu_clear(void *stream, void *to, size_t bytes); /* zeros */
ebb_status ebb_gpu_wait(void *stream);
ebb_status ebb_gpu_done(void *stream, bool *is_done); /* does not wait */

/* Memory of the host, and copies to and from it that nobody waits for. */
ebb_status ebb_gpu_stage(size_t bytes, void **memory);
void ebb_gpu_unstage(void *memory);
ebb_status ebb_gpu_copy_later(void *stream, void *to, const void *from, size_t bytes,
                              ebb_gpu_way way);
/* work(context) on the host, in order. */
ebb_status ebb_gpu_visit(void *stream, void (*work)(void *), void *context);

/* kernel: an EBB_GLOBAL; args: its struct, copied. threads: a multiple of 32, at most 1024. */
typedef void (*ebb_gpu_kernel)(void);
ebb_status ebb_gpu_launch(void *stream, ebb_gpu_kernel kernel, ebb_gpu_grid blocks,
                          uint32_t threads, uint32_t shared_bytes, const void *args, size_t bytes);

/* The source of a chain (chain.h) compiled for a device of this version, to be ebb_free()d. */
ebb_status ebb_gpu_compile(const char *source, int version, void **image, size_t *bytes);
/* The kernel `name` of a compiled image, a CUBIN; for the host, a shared object. *module is
 * unloaded when no launch of the kernel is under way or recorded any more. */
ebb_status ebb_gpu_load(const void *image, size_t bytes, const char *name, void **module,
                        ebb_gpu_kernel *kernel);
void ebb_gpu_unload(void *module);

ebb_status ebb_gpu_record(void *stream);
ebb_status ebb_gpu_recorded(void *stream, void **record);
ebb_status ebb_gpu_replay(void *stream, void *record);
void ebb_gpu_forget(void *record);

ebb_status ebb_gpu_mark(void *stream, void **mark); /* *mark NULL: makes one; else used again */
int64_t ebb_gpu_between(void *mark, void *later);   /* ns; after wait */
void ebb_gpu_unmark(void *mark);
/* What the stream is given from now on waits for all that was given to the mark's before it was made. Where that one
 * records, so does this one from then on, into the same record; until that follows it in turn. */
ebb_status ebb_gpu_follow(void *stream, void *mark);

ebb_status ebb_gpu_facts(ebb_device_facts *facts); /* allocated_bytes is left alone */

EBB_C_END
