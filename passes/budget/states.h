/* states.h: what a step replaces, moved to another place: for passes offload and fit. */
#pragma once

#include "onnx/graph/place.h"
#include "rewrite/rewrite.h"

/* Which states lie in another place from step to step, and what they are. */
typedef struct ebb_away_states {
    ebb_place place;
    bool weights;         /* trained weights, too */
    uint64_t least, room; /* bytes: smaller ones stay; what there is in that place */
    const char *names;    /* only these (globs); NULL: all */
    const char *backend;
    size_t count; /* found */
    uint64_t bytes, pages;
} ebb_away_states;

/* states.c. Marks of shared memory must be off. */
ebb_status ebb_states_move(ebb_edit *e, ebb_away_states *wish);
/* "12 states, 8192 bytes, lie on the disk from step to step"; NULL: no memory. */
const char *ebb_states_text(const ebb_edit *e, const ebb_away_states *away);
/* what=state, what=weights, with the options of the pass. */
ebb_status ebb_offload_states(ebb_edit *e);
