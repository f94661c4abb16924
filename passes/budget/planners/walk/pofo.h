/* pofo.h: for each stage of a chain keep all or make it again, and for each kept value: keep it in
 * memory, or offload it beside the steps and prefetch it.
 *
 * A plan is a list of units. A unit is one stage of which all is kept that its backward reads, or
 * some stages of which only the state before them is kept: these are reversed by rotor, in so much
 * memory. What is kept for a unit (the state that enters it, and what came with that from a stage of
 * which all is kept) stays in memory, or is offloaded.
 *
 *   forward    F0 F1 F2 F3 F4 F5            units: [0] [1 2 3] [4 5]
 *   link         write ..   write           a write may take as long as it takes: what is not yet
 *   backward   B5 B4 | again 1 2 3, B3 ..   written takes memory, and where that lacks, steps wait
 *   link         read ...
 *
 * Writes drain evenly at the rate of the link while steps run; the backward is the same seen from the
 * end: what is not yet read back. At the turn the link does first what is left of the writes.
 *
 * Memory is counted in slots, so that all states of a plan can be listed: those of a unit's begin
 * are what stays, what is to be written, what is to be read. Exact up to these: what is left of a
 * write is rounded up to a slot.
 *
 * Paper: Beaumont, Eyraud-Dubois, Shilova, "Efficient combination of rematerialization and offloading
 * for training DNNs", NeurIPS 2021.
 */
#pragma once

#include "onnx/words/arena.h"

typedef struct ebb_pofo_stage {
    double forward, backward;
    uint32_t in;    /* enters it; 0 for the first */
    uint32_t saved; /* made in it and kept where all is kept; with what leaves it */
    uint32_t drop;  /* highest while it runs and keeps only what leaves it; without in */
    uint32_t fill;  /* highest while it runs and keeps all; without in */
    uint32_t back;  /* highest in its backward, with what it saved; without in */
    uint32_t grad;  /* gradients that wait when its backward begins */
} ebb_pofo_stage;

typedef struct ebb_pofo {
    const ebb_pofo_stage *stage;
    uint32_t stages, slots; /* of both at least 1 */
    double rate;            /* slots in a unit of time, each way; 0: nothing is offloaded */
} ebb_pofo;

typedef struct ebb_pofo_unit {
    uint32_t first, end; /* stages */
    bool all;            /* one stage of which all is kept */
    bool away;           /* what was kept for it is offloaded */
    uint32_t slots;      /* else, or at the end: rotor's */
} ebb_pofo_unit;

typedef struct ebb_pofo_plan {
    double time; /* HUGE_VAL: there is no plan in so few slots */
    const ebb_pofo_unit *units;
    uint32_t count;
} ebb_pofo_plan;

/* rotor: the least time of stages i .. j from the state before them (which is not counted), forward
 * and back, in m slots: at ((j (j + 1) / 2 + i) (slots + 1) + m). HUGE_VAL: not so few. */
double *ebb_pofo_rotor(const ebb_pofo *chain, ebb_arena *arena);

/* How stages i .. j (at least two) are reversed in m slots, by that table: 0, keep all of stage i;
 * else run on to the stage returned, whose state is kept. */
uint32_t ebb_pofo_split(const ebb_pofo *chain, const double *rotor, uint32_t i, uint32_t j,
                        uint32_t m);

ebb_status ebb_pofo_make(ebb_pofo_plan *plan, const ebb_pofo *chain, const double *rotor,
                         ebb_arena *arena);
