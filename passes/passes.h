/* passes.h: the descriptors that passes.def lists. */
#ifndef EBB_PASSES_PASSES_H
#define EBB_PASSES_PASSES_H

#include "rewrite/rewrite.h"

#ifdef __cplusplus
extern "C" {
#endif

#define EBB_PASS(name, room, phase, priority) extern const ebb_pass ebb_pass_##name;
#include "passes/passes.def"
#undef EBB_PASS

#ifdef __cplusplus
}
#endif
#endif
