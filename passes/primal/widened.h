/* widened.h: a graph in 16 bits computes in float32, on the numbers that it holds. */
#pragma once

#include "rewrite/rewrite.h"

/* Reports what is found and applied: nodes that compute in 16 bits. */
ebb_status ebb_widened(ebb_edit *e);
