/* processor.c: see processor.h. The objects' names come from CMakeLists.txt. */
#include "kernels/processor.h"

#include "kernels/nested/split.h"

#include <stdlib.h>
#include <string.h>

static bool always(void)
{
    return true;
}

#if defined(EBB_PROCESSORS)
extern const ebb_backend ebb_backend_plain_avx2, ebb_backend_dnnl_avx2;
extern const ebb_backend ebb_backend_plain_avx512, ebb_backend_dnnl_avx512;
extern const ebb_backend ebb_backend_plain_avx512bf16, ebb_backend_dnnl_avx512bf16;

/* What -march=x86-64-v3 and -v4 let the compiler use, and no processor has in part. */
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}

static bool has_avx512bf16(void)
{
    return has_avx512() && __builtin_cpu_supports("avx512bf16");
}
#endif

bool ebb_processor_has_amx(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("amx-bf16");
#else
    return false;
#endif
}

// clang-format off
#define KIND(name, runs, suffix)                                                            \
    {name, runs,                                                                            \
     {&ebb_backend_dnnl##suffix, &ebb_backend_plain##suffix, NULL},                         \
     {&ebb_backend_bf16x3, &ebb_backend_dnnl##suffix, &ebb_backend_plain##suffix, NULL},    \
     {&ebb_backend_plain##suffix, NULL}}
// clang-format on

/* The best first. */
static const ebb_processor processors[] = {
#if defined(EBB_PROCESSORS)
    KIND("avx512bf16", has_avx512bf16, _avx512bf16),
    KIND("avx512", has_avx512, _avx512),
    KIND("avx2", has_avx2, _avx2),
#endif
#if defined(EBB_NATIVE)
    KIND("native", always, ),
#else
    KIND("baseline", always, ),
#endif
};

enum { PROCESSORS = sizeof processors / sizeof *processors };

ebb_status ebb_processor_choose(const ebb_processor **processor)
{
    const char *asked = getenv("EBB_CPU");
    for (const ebb_processor *p = processors; p < processors + PROCESSORS; p++) {
        if (asked != NULL ? strcmp(asked, p->name) != 0 : !p->runs())
            continue;
        *processor = p;
        if (p->runs())
            return NULL;
        return ebb_error(EBB_DEVICE, "EBB_CPU is '%s', whose kernels this processor cannot run",
                         asked);
    }
    return ebb_hint(
        ebb_error(EBB_USAGE, "EBB_CPU is '%s', and there are no kernels of that name", asked),
        "without it the best of those that this machine can run are used, down to '%s'",
        processors[PROCESSORS - 1].name);
}
