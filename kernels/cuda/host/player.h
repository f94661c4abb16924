/* player.h: who executes launches in place of runtime.c's fibers, where a test names one: the file
 * in $EBB_CUDA_PLAYER, a shared object that holds an ebb_host_player of this name. Sentences are
 * what is wrong, NULL: nothing; they last until the next call.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ebb_host_player {
    const char *(*launch)(void (*kernel)(void), const uint32_t blocks[3], uint32_t threads,
                          uint32_t shared_bytes, const void *args, size_t bytes);
    /* A kernel of a text that was compiled at run time. */
    const char *(*load)(const char *text, size_t bytes, const char *name, void **module,
                        void (**kernel)(void));
    void (*unload)(void *module);
    int (*target)(void); /* the device's version: 900 */
    /* What is written is told where kernels do not write it; of shared memory all is. */
    void (*allocated)(const void *memory, size_t bytes, bool is_written);
    void (*released)(const void *memory);
    void (*written)(const void *memory, size_t bytes);
} ebb_host_player;

#define EBB_HOST_PLAYER "ebb_player"

const ebb_host_player *ebb_host_player_named(void); /* NULL: fibers */
