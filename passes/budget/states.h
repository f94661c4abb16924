/* states.h: what a step replaces, moved to another place: for passes offload and fit. */
#pragma once

#include "onnx/graph/place.h"
#include "rewrite/rewrite.h"

/* While it is in the arena: a Fetch and its Wait; a Store and its Wait, if it is replaced then. */
typedef struct ebb_away_stay {
    uint64_t bytes;
    ebb_node fetch, store, written;
} ebb_away_stay;

/* Which states lie in another place from step to step, and what they are. */
typedef struct ebb_away_states {
    ebb_place place;
    bool weights;         /* trained weights, too */
    uint64_t least, room; /* bytes: smaller ones stay; what there is in that place */
    const char *names;    /* only these (globs); NULL: all */
    const char *backend;
    uint64_t most; /* bytes: updates whose own tensors take more are cut (states_cut.h); 0: none */
    size_t count;  /* found */
    uint64_t bytes, pages;
    size_t cut_count;     /* updates */
    uint64_t largest;     /* bytes of an update that may be cut */
    ebb_away_stay *stays; /* in the order of their first readers */
    size_t stay_count;
} ebb_away_states;

/* states.c. Each is fetched right before its first reader and has gone right behind its last: moved.h places these
 * moves. Marks of shared memory must be off. */
ebb_status ebb_states_move(ebb_edit *e, ebb_away_states *wish);
/* "12 states, 8192 bytes, lie on the disk from step to step"; NULL: no memory. */
const char *ebb_states_text(const ebb_edit *e, const ebb_away_states *away);
/* what=state, what=weights, with the options of the pass. */
ebb_status ebb_offload_states(ebb_edit *e);
