/* part.h: a state of which each process of a group has its part, as it starts. */
#pragma once

#include "exec/run/program.h"

/* What an initializer starts as, where the model's initialization graph cuts it (node Shard) out of bytes that it
 * has: this process's part, in scratch memory or the model's; *part NULL: it does not. */
ebb_status ebb_part_at_start(const void **part, const ebb_program *program, ebb_value v,
                             ebb_arena *scratch);
