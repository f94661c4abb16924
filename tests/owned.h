/* owned.h: what a test holds, and what goes with the block that declares it, whichever way it is left.
 *
 *     OWNED_MODEL *m = model_of(text);
 *     OWNED_PROGRAM *p = NULL;
 *     FREED double *expected = values_of(o);  goes by free()
 *     RELEASED char *report = NULL;           by ebb_release()
 *
 * Each needs a value from the first, NULL or {0} where there is none yet. The last goes first.
 */
#pragma once

#include <stdlib.h>

#include "ebb.h"
#include "onnx/words/arena.h"

#define OWNED_MODEL __attribute__((cleanup(drop_model))) ebb_model
#define OWNED_PROGRAM __attribute__((cleanup(drop_program))) ebb_program
#define OWNED_DATA __attribute__((cleanup(drop_data))) ebb_data
#define OWNED_ARENA __attribute__((cleanup(ebb_arena_fini))) ebb_arena
#define FREED __attribute__((cleanup(drop_memory)))
#define RELEASED __attribute__((cleanup(drop_released)))

static inline void drop_model(ebb_model **model)
{
    ebb_close(*model);
}

static inline void drop_program(ebb_program **program)
{
    ebb_program_free(*program);
}

static inline void drop_data(ebb_data **data)
{
    ebb_data_close(*data);
}

static inline void drop_memory(void *pointer)
{
    free(*(void **)pointer);
}

static inline void drop_released(void *pointer)
{
    ebb_release(*(void **)pointer);
}
