/* average.h: weights as they are used outside training: the running average w.ema where the step keeps
 * one, else w. */
#pragma once

#include "exec/run/program.h"

/* The state v's name and type, and its bytes, or its average's where `to` has no place for that: what
 * holds averages is a step itself. to NULL: it has none. *named is borrowed until the next step. */
ebb_status ebb_average_get(ebb_program *program, ebb_value v, const ebb_graph *to,
                           ebb_named *named);
