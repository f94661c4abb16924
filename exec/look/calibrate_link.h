/* calibrate_link.h: measures the link between the processes of a group, and how they slow each other. */
#pragma once

#include "ebb.h"
#include "exec/weigh/costs.h"

/* All processes of a group of two or more call it. *error: median of |fitted / measured - 1|. */
ebb_status ebb_link_time(ebb_link *link, double *error, ebb_group *group, ebb_arena *scratch);
/* calibrate_crowd.c: all of them, behind the link, with steps that exchange nothing and as many threads as a step of theirs
 * has. In rank 0 the times of one and of all; in others those of waiting, and of all. */
ebb_status ebb_crowd_time(ebb_crowd *crowd, ebb_group *group, ebb_model *const *models,
                          size_t count, ebb_arena *scratch);
