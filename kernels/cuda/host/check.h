/* check.h: what runtime.c tells check.c of a launch, where kernels are compiled to be watched
 * (EBB_HOST_CHECKED); nothing of it elsewhere.
 */
#pragma once

#include "onnx/words/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ebb_check_launch {
    const void *args;
    size_t args_bytes;
    const unsigned char *shared;
    uint32_t shared_bytes, shared_room;
    bool atomic; /* what is accessed now is so at once */
} ebb_check_launch;

#if defined(EBB_HOST_CHECKED)
void ebb_check_begin(const ebb_check_launch *launch);
void ebb_check_block(uint64_t number, uint64_t count); /* one of so many begins */
void ebb_check_barrier(void);                          /* all threads of the block have come */
void ebb_check_warp(uint32_t warp);                    /* all lanes have */
void ebb_check_thread(const void *stack, size_t room); /* one runs, on this stack */
ebb_status ebb_check_end(void);                        /* what was found first */
void ebb_check_allocated(const void *memory, size_t bytes);
void ebb_check_released(const void *memory);
#else
#define ebb_check_begin(launch) ((void)(launch))
#define ebb_check_block(number, count) ((void)(number), (void)(count))
#define ebb_check_barrier() ((void)0)
#define ebb_check_warp(warp) ((void)(warp))
#define ebb_check_thread(stack, room) ((void)(stack))
#define ebb_check_end() NULL
#define ebb_check_allocated(memory, bytes) ((void)(memory))
#define ebb_check_released(memory) ((void)(memory))
#endif
