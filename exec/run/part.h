/* part.h: a state of which each process of a group has its part, as it starts. */
#ifndef EBB_EXEC_RUN_PART_H
#define EBB_EXEC_RUN_PART_H

#include "exec/run/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What an initializer starts as, where the model's initialization graph cuts it (node Shard) out of bytes that it
 * has: this process's part, in scratch memory or the model's; *part NULL: it does not. */
ebb_status ebb_part_at_start(const void **part, const ebb_program *program, ebb_value v,
                             ebb_arena *scratch);

#ifdef __cplusplus
}
#endif
#endif
