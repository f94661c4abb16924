/* processor.h: the kernels of the host are compiled for several kinds of processors, and chosen here.
 *
 * A build for this machine alone (EBB_NATIVE) has one kind. Else the same sources are compiled once
 * for the least processor that the build is for, and on x86-64 once more for AVX2
 * and for AVX-512 (CMakeLists.txt). One process uses one kind throughout: sums go by vectors, whose
 * length differs, so the bits of two kinds are not the same.
 */
#pragma once

#include "kernels/kernels.h"

typedef struct ebb_processor {
    const char *name;   /* "avx512bf16", "avx512", "avx2", "baseline"; "native" */
    bool (*runs)(void); /* can this machine run them? */
    const ebb_backend *cpu[3], *split[4], *plain[2]; /* lists as ebb_backends gives them */
} ebb_processor;

/* What the variable EBB_CPU names, else the best that this machine can run. EBB_USAGE: there is
 * none of that name. EBB_DEVICE: not on this machine. */
ebb_status ebb_processor_choose(const ebb_processor **processor);

/* Whether oneDNN multiplies bfloat16 by AMX here: nothing of our own is as fast. */
bool ebb_processor_has_amx(void);
