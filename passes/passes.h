/* passes.h: the descriptors that passes.def lists. */
#pragma once

#include "rewrite/rewrite.h"

#define EBB_PASS(name, room, phase, priority) extern const ebb_pass ebb_pass_##name;
#include "passes/passes.def"
#undef EBB_PASS
