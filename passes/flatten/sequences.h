/* sequences.h: sequences whose lengths are known, as their tensors. */
#pragma once

#include "rewrite/rewrite.h"

/* What reads a sequence that is put together from tensors at known places reads those tensors
 * instead. Counts what it replaced, and reports the readers that it cannot serve. */
ebb_status ebb_sequences_resolve(ebb_edit *e);
