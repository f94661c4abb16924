/* walk.c: a list of acts; see walk.h. */
#include "passes/budget/planners/walk/walk.h"

ebb_status ebb_walk_add(ebb_walk *walk, ebb_act_kind kind, uint32_t level, uint32_t at, uint32_t to)
{
    if (kind == EBB_ACT_FORWARD && at == to)
        return NULL;
    EBB_GOT(
        ebb_arena_grow(walk->arena, &walk->acts, walk->count, &walk->capacity, sizeof *walk->acts));
    walk->acts[walk->count++] = (ebb_act){(uint8_t)kind, (uint8_t)level, at, to};
    return NULL;
}
