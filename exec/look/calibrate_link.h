/* calibrate_link.h: measures the link between the processes of a group. */
#pragma once

#include "ebb.h"
#include "exec/weigh/costs.h"

/* All processes of a group of two or more call it. *error: median of |fitted / measured - 1|. */
ebb_status ebb_link_time(ebb_link *link, double *error, ebb_group *group, ebb_arena *scratch);
