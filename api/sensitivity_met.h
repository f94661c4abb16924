/* sensitivity_met.h: which gradients meet a saved tensor in the backward. */
#pragma once

#include "passes/memory/lossy/code_sites.h"

typedef struct ebb_meetings {
    const ebb_graph *g;
    const ebb_saves *saves;
    ebb_arena *arena;
    bool *gradient; /* by value id: gradients, and what the backward makes of them */
} ebb_meetings;

ebb_status ebb_meetings_init(ebb_meetings *s); /* finds the gradients; the rest is given */

typedef struct ebb_met {
    const char *own; /* what the tensor's own gradient is called */
    ebb_value *list;
    size_t count, capacity;
} ebb_met;

/* Of a zeroed one. name: the tensor's. */
ebb_status ebb_met_find(ebb_met *m, ebb_meetings *s, const ebb_code_site *site, const char *name);
