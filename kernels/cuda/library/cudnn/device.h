/* device.h: devices by name, for planning on a machine that has none.
 *
 * cuDNN plans for a device that it is told about in 23 numbers (JSON). Those of a few devices lie
 * in devices/NAME.json and are built into the library, so that a plan needs no file beside the
 * binary.
 *
 *     devices/h100.json ──cmake/embed──> one string ──> ebb_cudnn_device_find("h100")
 *
 * Nothing here needs cuDNN. Read next: plan.h.
 */
#ifndef EBB_KERNELS_CUDA_LIBRARY_CUDNN_DEVICE_H
#define EBB_KERNELS_CUDA_LIBRARY_CUDNN_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include "onnx/words/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ebb_cudnn_device {
    const char *name;     /* "h100": the word that users give */
    const char *json;     /* what cuDNN reads */
    char product[96];     /* "NVIDIA H100 80GB HBM3" */
    int capability;       /* 90: compute capability 9.0 */
    int multiprocessors;  /* how many */
    int64_t memory_bytes; /* of the whole device, before the driver takes its share */
    int64_t shared_bytes; /* shared memory that one block may ask for */
    int64_t clock_khz;    /* highest, of the multiprocessors */
    int64_t memory_khz;   /* highest, of the memory */
    int64_t l2_bytes;
} ebb_cudnn_device;

/* The described devices; names end with NULL. */
const char *const *ebb_cudnn_device_names(void);

/* Fills *device from the described device of that name; upper and lower case are one. An unknown
 * name is EBB_DEVICE, with the names that there are. */
ebb_status ebb_cudnn_device_find(ebb_cudnn_device *device, const char *name);

/* The same from text. text must stay: the device
 * keeps the pointer, and name. EBB_DEVICE where a field is absent or no number. */
ebb_status ebb_cudnn_device_read(ebb_cudnn_device *device, const char *name, const char *text);

#ifdef __cplusplus
}
#endif
#endif
