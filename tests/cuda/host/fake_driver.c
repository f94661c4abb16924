/* fake_driver.c: a libcuda.so.1 for the first steps of the real CUDA runtime, which asks for the
 * driver's version and then has it begin. Further it cannot be led: it goes on with a driver that
 * proves to be NVIDIA's alone. What comes later, fake_runtime.c plays.
 *
 *     EBB_FAKE_DRIVER=11000      version; 13000 where it is not set
 *     EBB_FAKE_INIT=803          what cuInit() says; 100, no device, where it is not set
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN __attribute__((visibility("default")))

enum { NOT_FOUND = 500, NO_DEVICE = 100 };

static int number(const char *variable, int otherwise)
{
    const char *text = getenv(variable);
    return text != NULL ? atoi(text) : otherwise;
}

SHOWN int cuInit(unsigned flags);
SHOWN int cuInit(unsigned flags)
{
    (void)flags;
    return number("EBB_FAKE_INIT", NO_DEVICE);
}

SHOWN int cuDriverGetVersion(int *version);
SHOWN int cuDriverGetVersion(int *version)
{
    *version = number("EBB_FAKE_DRIVER", 13000);
    return 0;
}

SHOWN int cuGetExportTable(const void **table, const void *id);
SHOWN int cuGetExportTable(const void **table, const void *id)
{
    (void)id;
    *table = NULL;
    return NOT_FOUND;
}

/* All other functions are there and refuse. */
static int refuse(void)
{
    return number("EBB_FAKE_INIT", NO_DEVICE);
}

SHOWN int cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags,
                              int *status);
SHOWN int cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags,
                              int *status)
{
    static const struct {
        const char *name;
        uintptr_t function;
    } known[] = {{"cuInit", (uintptr_t)cuInit},
                 {"cuDriverGetVersion", (uintptr_t)cuDriverGetVersion},
                 {"cuGetExportTable", (uintptr_t)cuGetExportTable},
                 {"cuGetProcAddress", (uintptr_t)cuGetProcAddress_v2}};
    (void)version, (void)flags;
    uintptr_t function = (uintptr_t)refuse;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i].name, name) == 0)
            function = known[i].function;
    memcpy(found, &function, sizeof function);
    if (status != NULL)
        *status = 0;
    return 0;
}
