/* roll.c: the planners by name. */
#include <string.h>

#include "passes/budget/planners/planner.h"

#define EBB_PLANNER(name) extern const ebb_planner ebb_planner_##name;
#include "passes/budget/planners/planners.def"
#undef EBB_PLANNER

static const ebb_planner *const roll[] = {
#define EBB_PLANNER(name) &ebb_planner_##name,
#include "passes/budget/planners/planners.def"
#undef EBB_PLANNER
    NULL,
};

const ebb_planner *const *ebb_planners(size_t *count)
{
    *count = sizeof roll / sizeof *roll - 1;
    return roll;
}

const ebb_planner *ebb_planner_find(const char *name)
{
    for (size_t i = 0; roll[i] != NULL; i++)
        if (strcmp(roll[i]->name, name) == 0)
            return roll[i];
    return NULL;
}
