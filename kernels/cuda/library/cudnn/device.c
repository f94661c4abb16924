/* device.c: described devices by name. */
#include <stdio.h>
#include <strings.h>

#include "kernels/cuda/library/cudnn/device.h"

extern const char *const ebb_cudnn_described_texts[]; /* in the order of the names */

ebb_status ebb_cudnn_device_find(ebb_cudnn_device *device, const char *name)
{
    char known[256] = "";
    int used = 0;
    for (size_t i = 0; ebb_cudnn_described_names[i] != NULL; i++) {
        if (strcasecmp(name, ebb_cudnn_described_names[i]) == 0) {
            *device =
                (ebb_cudnn_device){ebb_cudnn_described_names[i], ebb_cudnn_described_texts[i]};
            return NULL;
        }
        if ((size_t)used < sizeof known)
            used += snprintf(known + used, sizeof known - (size_t)used, "%s%s", i == 0 ? "" : ", ",
                             ebb_cudnn_described_names[i]);
    }
    return ebb_error(EBB_DEVICE, "no device is described as '%s': there are %s", name, known);
}
