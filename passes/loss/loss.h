/* loss.h: the losses that pass loss can append, one row of losses.def each, and what a row is given.
 *
 * A loss is built of standard ONNX operators, so that its gradient comes from their rules, micro-batch
 * splits it as it splits a model, and other runtimes compute the same. It is what PyTorch defines
 * under that name, in the form that does not overflow.
 */
#pragma once

#include "rewrite/rewrite.h"

/* What predictions and targets are to each other; which metrics fit follows from it. */
typedef enum ebb_task {
    EBB_TASK_OTHER = 0,
    EBB_TASK_CLASSES = 1, /* scores of classes along an axis; the target is a class's number */
    EBB_TASK_LABELS = 2,  /* a score for each element, positive for yes; the target is 0 or 1 */
    EBB_TASK_NUMBERS = 4, /* the target is the number itself */
    EBB_TASK_LISTS = 8,   /* scores of classes at each step of time; the target is a list of them */
    EBB_TASK_CLASSES_OR_LABELS = 3, /* the target tells: ebb_tally_take */
    EBB_TASK_CLASSES_OR_NUMBERS = 5,
} ebb_task;

/* The type of a target, from that of the predictions. */
typedef enum ebb_loss_target {
    EBB_TARGET_LIKE,    /* the same; there is no axis of classes */
    EBB_TARGET_ALONG,   /* the same; the loss works along an axis */
    EBB_TARGET_CLASSES, /* int64, without the axis of the classes */
    EBB_TARGET_EITHER,  /* CLASSES where an axis is given, else LIKE */
    EBB_TARGET_LISTS,   /* int64[N, labels], for each row of [T, N, C] or [N, T, C] */
} ebb_loss_target;

typedef struct ebb_loss_site {
    ebb_edit *e;
    ebb_build *b;
    ebb_value x, target;
    ebb_type type;    /* of x */
    int axis;         /* of the classes; -1: none */
    bool is_new;      /* the target's input was made for it */
    const char *name; /* for the loss; NULL: a weight comes behind it */
} ebb_loss_site;

typedef struct ebb_loss_kind {
    const char *name;
    ebb_task task;
    ebb_loss_target target;
    const char *takes; /* options beside those that all have, "axis ignore_index" */
    ebb_status (*build)(ebb_loss_site *s, ebb_value *loss);
} ebb_loss_kind;

/* ---- loss_rows.c ---- */

const ebb_loss_kind *ebb_loss_kind_find(const char *name); /* NULL: there is none of that name */

/* The mean or the sum of `each` by its option, under the loss's name. */
ebb_status ebb_loss_reduced(ebb_loss_site *s, ebb_value each, ebb_value *loss);

/* Labels where none is below 0, for that is read as a class counted from the end: it becomes `classes`,
 * which the operator that reads it refuses. */
ebb_value ebb_loss_known_labels(ebb_loss_site *s, ebb_value labels, int64_t classes);

/* ---- loss_ctc.c ---- */

ebb_status ebb_loss_ctc(ebb_loss_site *s, ebb_value *loss);

/* ---- loss_numbers.c ---- */

/* Numbers for an option: "1,2.5" (also with ; or spaces), or a file: .npy, .npz or .safetensors with
 * one array, or text. In arena memory. EBB_USAGE names `what`. */
ebb_status ebb_loss_numbers(const double **list, size_t *count, const char *text, const char *what,
                            ebb_arena *arena);
