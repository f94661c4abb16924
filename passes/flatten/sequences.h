/* sequences.h: sequences whose lengths are known, as their tensors. */
#ifndef EBB_PASSES_FLATTEN_SEQUENCES_H
#define EBB_PASSES_FLATTEN_SEQUENCES_H

#include "rewrite/rewrite.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What reads a sequence that is put together from tensors at known places reads those tensors
 * instead. Counts what it replaced, and reports the readers that it cannot serve. */
ebb_status ebb_sequences_resolve(ebb_edit *e);

#ifdef __cplusplus
}
#endif
#endif
