/* looked_up.h: tables that constant folding looked up in, taken back to what they were. */
#pragma once

#include "passes/parameters/weights.h"

/* In files from PyTorch; see looked_up.c. Values of the graph stay what they are. */
ebb_status ebb_looked_up_restore(ebb_graph *g);
