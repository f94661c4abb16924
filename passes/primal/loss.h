/* loss.h: the losses that pass loss appends, as others need to know them. */
#ifndef EBB_PASSES_PRIMAL_LOSS_H
#define EBB_PASSES_PRIMAL_LOSS_H

#ifdef __cplusplus
extern "C" {
#endif

/* What predictions and targets are to each other; which metrics fit follows from it. */
typedef enum ebb_task {
    EBB_TASK_OTHER = 0,
    EBB_TASK_CLASSES = 1, /* scores of classes along an axis; the target is a class's number */
    EBB_TASK_LABELS = 2,  /* a score for each element, positive for yes; the target is 0 or 1 */
    EBB_TASK_NUMBERS = 4, /* the target is the number itself */
} ebb_task;

typedef struct ebb_loss_kind {
    const char *name;
    ebb_task task;
} ebb_loss_kind;

const ebb_loss_kind *ebb_loss_kind_find(const char *name); /* NULL: there is none of that name */

#ifdef __cplusplus
}
#endif
#endif
