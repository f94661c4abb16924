/* walk.h: schedules of a chain of steps over several memories, in numbers alone.
 *
 * A chain has steps 0 .. n-1 and states: state i is what enters step i. One state is at hand (the
 * working state); at the start this is state 0. States are stored at levels: level 0 is memory, the
 * levels behind it are slower. A walk is a list of acts that goes over the chain and back: it
 * reverses each step once, the last first.
 *
 *   FORWARD 0..3   WRITE 3 level 0   FORWARD 3..4   REVERSE 4   READ 3 level 0   REVERSE 3   ...
 *
 * Transfers may be started and waited for, so that they run while steps run. What is being written
 * needs a buffer until the wait, and what is being read from its start on.
 *
 *   walk.c           the list
 *   binomial.c       revolve
 *   disk_revolve.c   disk-revolve and its periodic form: a second level without limit
 *   hrevolve.c       any number of levels
 *   multistage.c     multistage, double-checkpoint: transfers beside the steps
 *   join.c           chains that meet, in memory
 *   pofo.c           stages of any size and time, offloaded or made again: pofo.h
 *
 * Time and memory of planning: revolve, multistage and double-checkpoint by closed forms, as long
 * as the walk; disk-revolve n log n for the states that are read again and n times the length of a
 * segment (bounded by levels and costs) for the rest; hrevolve levels * slots * n^2, and from some
 * length on over blocks of steps; join slots * the product of the lengths * their sum.
 */
#pragma once

#include "onnx/words/arena.h"

enum { EBB_WALK_LEVELS = 8, EBB_WALK_BRANCHES = 8 };
#define EBB_WALK_NO_LIMIT UINT32_MAX

typedef struct ebb_walk_level {
    uint32_t slots;     /* states that it takes; EBB_WALK_NO_LIMIT */
    double write, read; /* time of one state */
} ebb_walk_level;

/* The chain, its levels and times. The first level has at least one slot. */
typedef struct ebb_course {
    uint32_t steps;           /* at least 1 */
    double forward, backward; /* of a step; backward: with the forward inside a reversed step */
    ebb_walk_level level[EBB_WALK_LEVELS];
    uint32_t level_count; /* at least 1 */
    uint32_t buffers;     /* transfers that may be under way at a time */
    /* 0: a chain. Else so many chains of these lengths, which meet at a turn. Their states are
     * numbered one chain behind the other, each with its output at the end: `steps` counts them all.
     * The first state of each lies in level 0 at the start; no state is at hand. The outputs lie in
     * level 0 at the turn; from there on their slots hold gradients, each until its chain is done. */
    uint32_t branch_count, branch[EBB_WALK_BRANCHES];
} ebb_course;

typedef enum ebb_act_kind {
    EBB_ACT_FORWARD, /* from the working state `at` to state `to`, keeping nothing */
    EBB_ACT_REVERSE, /* step `at` forward and back; the working state is `at` and is gone then */
    EBB_ACT_SAVE,    /* step `at` forward, what its backward reads put into a slot of level 0 */
    EBB_ACT_BACK,    /* step `at` back by what was saved, which goes */
    EBB_ACT_WRITE,   /* the working state `at` to a level */
    EBB_ACT_READ,    /* state `at` of a level becomes the working state */
    EBB_ACT_DROP,    /* a level forgets state `at` */
    EBB_ACT_START_WRITE, /* as WRITE and READ, over when waited for */
    EBB_ACT_START_READ,
    EBB_ACT_WAIT,
    EBB_ACT_TURN, /* of chains that meet: from the forward to the backward */
} ebb_act_kind;

typedef struct ebb_act {
    uint8_t kind, level;
    uint32_t at, to;
} ebb_act;

typedef struct ebb_walk {
    ebb_arena *arena;
    ebb_act *acts;
    size_t count, capacity;
} ebb_walk;

/* Adds an act. A FORWARD of no steps is none. */
ebb_status ebb_walk_add(ebb_walk *walk, ebb_act_kind kind, uint32_t level, uint32_t at,
                        uint32_t to);

/* ---- the methods ---- */

/* Each adds its walk and, where it has one, the cost by its own formula. */
ebb_status ebb_walk_revolve(ebb_walk *walk, const ebb_course *course, double *cost);
ebb_status ebb_walk_disk_revolve(ebb_walk *walk, const ebb_course *course, double *cost);
ebb_status ebb_walk_periodic_disk_revolve(ebb_walk *walk, const ebb_course *course, double *cost);
ebb_status ebb_walk_hrevolve(ebb_walk *walk, const ebb_course *course, double *cost);
ebb_status ebb_walk_multistage(ebb_walk *walk, const ebb_course *course, double *cost);
ebb_status ebb_walk_double_checkpoint(ebb_walk *walk, const ebb_course *course, double *cost);
ebb_status ebb_walk_join(ebb_walk *walk, const ebb_course *course, double *cost);

/* Part of several: steps first .. end-1 are reversed, the working state is `first`, and up to
 * `slots` slots of level 0 are free. */
ebb_status ebb_walk_binomial(ebb_walk *walk, uint32_t first, uint32_t end, uint32_t slots);
/* The time of that. */
double ebb_walk_binomial_time(const ebb_course *course, uint32_t steps, uint32_t slots);
