/* fit.h: what the files of pass fit share: its variants, their points, and who is chosen. */
#pragma once

#include <math.h>

#include "passes/budget/planners/search.h"
#include "passes/budget/trial.h"

enum { EBB_FIT_VARIANTS = 9 };

typedef struct wish {  /* how a variant is made */
    int parts, tokens; /* into how many the batch is cut, and the sequence */
    double most_ns_per_byte, most_error;
    size_t heard, taken;
    ebb_exactness exactness; /* of the least exact that was taken */
} wish;

typedef struct variant {
    wish wish;
    ebb_model *model;
    ebb_trial trial;
    ebb_remat_point whole; /* every operator once */
    bool searched;         /* its frontiers are found, and among the choices */
    ebb_remat_frontier frontier;
    ebb_remat_frontier optima; /* where the variant is small enough */
    bool proven;               /* no plan is below the last of them */
} variant;

typedef struct choice {
    variant *v; /* NULL: the step is left as it is */
    const ebb_remat_point *point;
    bool tried;
    uint64_t bytes; /* of the arena; before it is tried, what it cannot be below */
    double ns;
} choice;

typedef struct joint {
    ebb_edit *e;
    const char *backend;
    ebb_exactness allowed;
    double most_error;
    const char *costs; /* measured times, for nodes that the offers make; NULL: none */
    uint64_t steps;
    ebb_trial before; /* the step as it is */
    ebb_remat_point as_it_is;
    variant variants[EBB_FIT_VARIANTS];
    size_t variant_count;
    choice *choices;
    size_t choice_count, choice_capacity;
} joint;

/* How much longer the chosen step takes than the step as it is. */
double ebb_fit_slower(const joint *j, double ns);

/* fit_away.c: a step with some values made again and others moved to another place. */
typedef struct ebb_fit_away {
    const choice
        *chosen; /* its variant's model is the step; NULL: none is faster than what was chosen */
    uint64_t bytes, least; /* least: that was tried; UINT64_MAX: none was */
    double ns;
    size_t copies; /* nodes run again */
    const char *note;
    const char *pins; /* of the least, if nothing is chosen (ebb_fit_pins) */
} ebb_fit_away;

/* Of some points that are cheaper than `chosen` (NULL: of all) the one that, with what is too much moved to
 * the places that the options name, keeps to the budget in the least time. */
ebb_status ebb_fit_move(joint *j, uint64_t budget, const choice *chosen, ebb_fit_away *best);

/* ---- fit_refuse.c ---- */

/* The error for a budget that nothing keeps to. least: the lowest point, or NULL; its model is used up. */
ebb_status ebb_fit_refuse(const joint *j, uint64_t budget, const choice *least,
                          const ebb_fit_away *away);
/* Where g is fullest, and the largest tensors that are there: "; it is fullest at ...". */
ebb_status ebb_fit_pins(const char **text, const joint *j, ebb_graph *g,
                        const ebb_estimate *estimate);
