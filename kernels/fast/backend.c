/* backend.c: the kernels that oneDNN or a loop beside it does faster than the plain ones. */
#include "kernels/fast/onednn.h"

#define FAMILY(name) {ebb_dnnl_##name, &ebb_dnnl_##name##_count},

static const ebb_family families[] = {EBB_DNNL_FAMILIES(FAMILY){NULL, NULL}};

const ebb_backend ebb_backend_dnnl = {
    .name = "dnnl", .families = families, .device = &ebb_device_host};
