/* trainer.h: what the files of this folder share.
 *
 *   trainer.c    the loop: a batch, a step, what is due after it
 *   together.c   what the processes of a group ask each other
 *   position.c   where it stands, in a checkpoint and back; which checkpoints are kept;
 *                the model, the adapters and the artifacts that were asked for
 *   evaluator.c  trained parameters on other data
 *   tally_merge.c  what several processes counted of an evaluation
 *   feeds.c      which array feeds which input; which rows are held out
 *   log.c        one record a step: JSON lines, CSV; events.c: TensorBoard's files
 */
#pragma once

#include <signal.h>

#include "api/api.h"
#include "api/trainer/log.h"

enum { EBB_USUAL_BATCH = 32, EBB_TIMES = 101 /* of steps, for their median */ };

struct ebb_trainer {
    ebb_trainer_options o;
    ebb_program *program;
    ebb_data *data;
    ebb_group *group; /* of the program; NULL: this process alone */
    bool gives;  /* states are there in parts, which rank 0 writes as a whole: all meet there */
    bool stores; /* weights are, too, and are wanted in a model */
    const char *loss_name;
    volatile sig_atomic_t stop;
    /* the order of rows */
    int64_t batch, per_epoch, *index;
    uint32_t *order; /* NULL: as they stand */
    int64_t ordered; /* of this epoch; -1: of none yet */
    uint64_t seed;
    /* where it stands */
    ebb_trainer_facts facts;
    double epoch_sum; /* of losses */
    bool record_due;  /* the last step is in no log yet */
    int64_t saved_at; /* steps in the last checkpoint; -1: none */
    int64_t saved_ns; /* when */
    bool best_is_saved;
    /* time */
    int64_t times[EBB_TIMES], time_count, began_ns, first, evaluating_ns;
    int64_t tokens_per_row; /* 0: rows are no texts */
    const char *rate_name;  /* a state of the step; NULL: none */
    ebb_logs *logs;
};

/* The caller's options as this version has them. */
ebb_status ebb_trainer_take(ebb_trainer_options *own, const ebb_trainer_options *options);

/* From arrays to inputs, for ebb_data_rows; to ebb_free. Names are the data's and the model's own. */
ebb_status ebb_feeds_of(const char ***feeds, const ebb_model *model, ebb_data *data,
                        const char *const *map);

/* ---- together.c: nothing to do for a process alone ---- */

/* Before the first step, and before anything is written: that all do the same. */
ebb_status ebb_trainer_agree(ebb_trainer *t);
/* The model that is evaluated. */
ebb_status ebb_exported_agree(ebb_group *group, const ebb_graph *g);
/* What data hold, of 16 rows from the first to the last, or a few more. */
typedef struct ebb_some_rows {
    const int64_t *rows; /* NULL: those from 0 on */
    int64_t count, at_once;
} ebb_some_rows;
ebb_status ebb_data_agree(ebb_group *group, ebb_data *data, const char *const *map,
                          const ebb_some_rows *of);
/* *all: whether it is so in all of them. */
ebb_status ebb_trainer_ask_all(bool *all, ebb_trainer *t);
/* *due: what rank 0 decides, where all take part in it. */
ebb_status ebb_trainer_follow(bool *due, ebb_trainer *t);
/* All compute; rank 0 writes for all. EBB_UNSUPPORTED: what is asked for has no way for that. */
ebb_status ebb_trainer_share(ebb_trainer *t);

/* Which rows an evaluation reads, and what they hold. */
ebb_status ebb_evaluator_agree(const ebb_evaluator *e, ebb_group *group);
/* The last evaluation, by this process or another of its group. */
bool ebb_evaluator_was_stopped(const ebb_evaluator *e);

/* Loads the checkpoint of the options, if there is one, and takes its place in the run. */
ebb_status ebb_trainer_resume(ebb_trainer *t);
/* The checkpoint, and away with those that are not to be kept; nothing without a path. */
ebb_status ebb_trainer_save(ebb_trainer *t);
/* Beside it: the same file with "-best" in its name. */
ebb_status ebb_trainer_save_best(ebb_trainer *t);
ebb_status ebb_trainer_write_results(ebb_trainer *t);
