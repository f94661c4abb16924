/* average.h: weights as they are used outside training: the running average w.ema where the step keeps
 * one, else w. */
#pragma once

#include "exec/run/program.h"

/* Name, type and bytes of the state v. The bytes are those of its average, unless the graph `to`, for
 * which they are meant, keeps averages itself (it is a step) and so takes both; NULL: it does not.
 * *named is borrowed until the next step. */
ebb_status ebb_average_get(ebb_program *program, ebb_value v, const ebb_graph *to,
                           ebb_named *named);
