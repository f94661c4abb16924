/* average.c: which of two values a weight has outside training. */
#include "exec/data/average.h"

#include <stdio.h>

ebb_status ebb_average_get(ebb_program *program, ebb_value v, const ebb_graph *to, ebb_named *named)
{
    const ebb_graph *g = program->plan.g;
    const char *name = ebb_value_name(g, v);
    char average[512];
    ebb_named mean;
    EBB_TRY(ebb_program_get(program, name, named));
    if (ebb_value_of(g, v)->role != EBB_ROLE_PARAMETER ||
        snprintf(average, sizeof average, "%s.ema", name) >= (int)sizeof average)
        return NULL;
    ebb_value a = ebb_value_find(g, average);
    if (a.i == 0 || ebb_value_of(g, a)->role != EBB_ROLE_OPTIMIZER ||
        (to != NULL && ebb_value_find(to, average).i != 0) ||
        ebb_value_of(g, a)->type->dtype != ebb_value_of(g, v)->type->dtype ||
        !ebb_type_same_shape(ebb_value_of(g, a)->type, ebb_value_of(g, v)->type))
        return NULL;
    EBB_TRY(ebb_program_get(program, average, &mean));
    named->data = mean.data;
    return NULL;
}
