/* offload.h: what pass offload has in two files. */
#ifndef EBB_PASSES_BUDGET_OFFLOAD_H
#define EBB_PASSES_BUDGET_OFFLOAD_H

#include "rewrite/rewrite.h"

#ifdef __cplusplus
extern "C" {
#endif

/* offload_state.c: what=state, with the options of the pass. */
ebb_status ebb_offload_states(ebb_edit *e);

#ifdef __cplusplus
}
#endif
#endif
