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
#pragma once

#include "onnx/words/status.h"

EBB_C_BEGIN

typedef struct ebb_cudnn_device {
    const char *name; /* "h100": the word that users give */
    const char *json; /* what cuDNN reads */
} ebb_cudnn_device;

/* The names of the described devices in alphabetical order, made by embed.cmake; ended by NULL. */
extern const char *const ebb_cudnn_described_names[];

/* Fills *device from the described device of that name; upper and lower case are one. An unknown
 * name is EBB_DEVICE, with the names that there are. */
ebb_status ebb_cudnn_device_find(ebb_cudnn_device *device, const char *name);

EBB_C_END
