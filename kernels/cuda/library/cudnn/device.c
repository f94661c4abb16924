/* device.c: described devices by name; the numbers of their JSON. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "kernels/cuda/library/cudnn/device.h"

/* devices/NAME.json in alphabetical order, made by embed.cmake; both end with NULL. */
extern const char *const ebb_cudnn_described_names[];
extern const char *const ebb_cudnn_described_texts[];

const char *const *ebb_cudnn_device_names(void)
{
    return ebb_cudnn_described_names;
}

static ebb_status number(const json_t *root, const char *name, const char *field, int64_t *value)
{
    const json_t *found = json_object_get(root, field);
    if (!json_is_integer(found) || json_integer_value(found) <= 0)
        return ebb_error(EBB_DEVICE, "device '%s': '%s' is no positive whole number", name, field);
    *value = json_integer_value(found);
    return NULL;
}

static ebb_status read_root(ebb_cudnn_device *device, const json_t *root)
{
    int64_t version = 0, count = 0;
    const char *product = json_string_value(json_object_get(root, "deviceName"));
    if (product == NULL)
        return ebb_error(EBB_DEVICE, "device '%s': 'deviceName' is no text", device->name);
    (void)snprintf(device->product, sizeof device->product, "%s", product);
    EBB_TRY(number(root, device->name, "deviceVer", &version));
    EBB_TRY(number(root, device->name, "multiProcessorCount", &count));
    EBB_TRY(number(root, device->name, "totalGlobalMem", &device->memory_bytes));
    EBB_TRY(number(root, device->name, "maxSharedMemoryPerBlockOptin", &device->shared_bytes));
    EBB_TRY(number(root, device->name, "smClockRateKHz", &device->clock_khz));
    EBB_TRY(number(root, device->name, "memClockRateKHz", &device->memory_khz));
    EBB_TRY(number(root, device->name, "l2CacheSize", &device->l2_bytes));
    if (version > 10000 || count > 10000)
        return ebb_error(EBB_DEVICE, "device '%s': no device has such numbers", device->name);
    device->capability = (int)(version / 10);
    device->multiprocessors = (int)count;
    return NULL;
}

ebb_status ebb_cudnn_device_read(ebb_cudnn_device *device, const char *name, const char *text)
{
    json_error_t error;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    memset(device, 0, sizeof *device);
    device->name = name;
    device->json = text;
    if (root == NULL)
        return ebb_error(EBB_DEVICE, "device '%s': line %d: %s", name, error.line, error.text);
    ebb_status status = read_root(device, root);
    json_decref(root);
    return status;
}

ebb_status ebb_cudnn_device_find(ebb_cudnn_device *device, const char *name)
{
    char known[256] = "";
    size_t used = 0;
    for (size_t i = 0; ebb_cudnn_described_names[i] != NULL; i++) {
        const char *a = ebb_cudnn_described_names[i], *b = name;
        while (*a != 0 && *a == tolower((unsigned char)*b)) {
            a++;
            b++;
        }
        if (*a == 0 && *b == 0)
            return ebb_cudnn_device_read(device, ebb_cudnn_described_names[i],
                                         ebb_cudnn_described_texts[i]);
        int more = snprintf(known + used, sizeof known - used, "%s%s", i == 0 ? "" : ", ",
                            ebb_cudnn_described_names[i]);
        if (more > 0 && (size_t)more < sizeof known - used)
            used += (size_t)more;
    }
    return ebb_error(EBB_DEVICE, "no device is described as '%s': there are %s", name, known);
}
