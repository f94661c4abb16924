/* update.h: what a row of optimizers.def is, and what its function sees of the parameter that it
 * updates.
 *
 * A function emits nodes that compute the parameter's next value from its gradient, and from states
 * that it asks for by a suffix. A state is best replaced by one node that reads it last,
 * Add(state, change) or Sub(w, step): pass alias then computes it in place. A running mean is
 * therefore m + (1 - b) (x - m), not b m + (1 - b) x.
 */
#pragma once

#include "rewrite/rewrite.h"

enum { EBB_UPDATE_STATES = 3, EBB_UPDATE_OPTIONS = 9 };

typedef struct ebb_update ebb_update;

typedef struct ebb_optimizer {
    const char *name;
    void (*update)(ebb_update *u);
    struct {
        const char *name, *otherwise;
    } options[EBB_UPDATE_OPTIONS]; /* ends with a NULL name where there are fewer */
} ebb_optimizer;

/* Parameters that are updated alike. */
typedef struct ebb_update_group {
    const char *globs; /* NULL: all that no other group has */
    const ebb_optimizer *kind;
    const struct ebb_option_value *given; /* the group's own options ... */
    size_t given_count;
    const struct ebb_update_group *base; /* ... then those of this group; NULL: the row's */
    ebb_value lr;                        /* its rate as a state */
    ebb_value rate;                      /* its rate in this step, float32 */
} ebb_update_group;

enum { EBB_UPDATE_GROUPS = 64 };

typedef struct ebb_update_groups {
    ebb_edit *e;
    ebb_update_group list[EBB_UPDATE_GROUPS + 1]; /* the first: parameters of no other; its kind is
                                                     NULL where nothing is to be updated */
    size_t count, members[EBB_UPDATE_GROUPS + 1]; /* members: parameters, counted by the pass */
} ebb_update_groups;

/* What all parameters share. */
typedef struct ebb_update_step {
    ebb_edit *e;
    ebb_build *b;
    ebb_value step;    /* int64: steps done before this one; none where nothing counts */
    ebb_value count;   /* steps with this one; none: not made yet */
    bool *is_hidden;   /* by value id: a matrix within the network, which Muon is for */
    const void *zeros; /* what states start with */
} ebb_update_step;

struct ebb_update {
    ebb_update_step *all;
    ebb_build *b;
    const ebb_update_group *group;
    const ebb_optimizer *kind;
    ebb_value w, grad;
    ebb_value next; /* to fill: what replaces w */
    struct {
        ebb_value state, next; /* next: to fill */
    } states[EBB_UPDATE_STATES];
    uint32_t state_count;
};

/* groups.c. Reading refuses options that would have no effect. */
ebb_status ebb_update_groups_read(ebb_update_groups *groups, ebb_edit *e);
size_t ebb_update_group_of(const ebb_update_groups *groups, ebb_value w); /* index in the list */
/* What the groups have got, for the user; a group of nothing is a mistake. */
ebb_status ebb_update_groups_tell(const ebb_update_groups *groups);
/* An option of the group, or its default; NULL: its optimizer has none of that name. */
const char *ebb_update_group_text(const ebb_update_group *group, const char *option);
const char *ebb_update_text(const ebb_update *u, const char *option);
double ebb_update_number(const ebb_update *u, const char *option);

/* optimizer.c: a state "w.SUFFIX" of zeros, of the type given or of w's (NULL); its index in u->states. */
uint32_t ebb_update_state(ebb_update *u, const char *suffix, const ebb_type *type);

/* schedule.c: the factor of the rate in this step, a float32 scalar, by the pass's options; none:
 * the rate is constant. */
bool ebb_schedule_asked(const ebb_edit *e);
ebb_status ebb_schedule_emit(ebb_edit *e, ebb_build *b, ebb_value step, ebb_value *factor);

/* average.c: a state "w.ema" that follows w, which is bound already, by the pass's option ema. */
ebb_status ebb_average_follow(ebb_edit *e, ebb_build *b, ebb_value w);

/* hidden.c: marks by value id the matrices within the network: parameters of two dimensions that
 * products read, but for those next to the loss. */
ebb_status ebb_hidden_find(bool **is_hidden, const ebb_graph *g, ebb_arena *scratch);

/* updates.c: one for each row of optimizers.def */
#define EBB_OPTIMIZER(name, ...) void ebb_update_##name(ebb_update *u);
#include "passes/gradient/optimizers.def"
#undef EBB_OPTIMIZER
