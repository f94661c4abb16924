/* tally.h: what is counted of predictions and targets, batch after batch, and the metrics that are
 * computed from the counts at the end.
 *
 *     ebb_tally_take(&t, &scores, &target);    for each batch
 *     ebb_metric_rows[i].value(&t);            at the end
 *
 * One walk over a batch counts for all metrics, so a metric is one row and a formula of counts. The
 * formulas are those of scikit-learn and torchmetrics; each row says which.
 */
#pragma once

#include "kernels/away/group.h"
#include "onnx/words/status.h"
#include "onnx/words/tensor.h"
#include "passes/loss/loss.h"

typedef struct ebb_tally_class { /* a class, or a column of labels */
    int64_t hits, predicted, wanted;
} ebb_tally_class;

typedef struct ebb_tally_column { /* of numbers */
    double mean, spread, error;   /* of the targets: mean, sum of (y - mean)^2; sum of (y - p)^2 */
} ebb_tally_column;

typedef struct ebb_tally {
    /* What the loss says of them. */
    ebb_task task;
    int64_t axis, ignore_index; /* axis: of classes; of lists that of time */
    int64_t blank;              /* of lists: the class that stands for no label */
    bool needs_likelihood;      /* for `nll`, which takes an exponential for each score */
    /* Counted so far. */
    int64_t counted; /* targets that count */
    int64_t rows;
    int64_t errors;           /* in lists: labels to put in, leave out or replace */
    int64_t correct, near;    /* targets met by the highest score; by one of the five highest */
    double nll;               /* sum of -log softmax(scores)[target] */
    double squared, absolute; /* sums of errors of numbers */
    int rank;                 /* of the scores; 0: nothing was counted yet */
    int64_t width;            /* classes or columns: the entries of one of these two */
    ebb_tally_class *classes;
    ebb_tally_column *columns;
} ebb_tally;

/* Adds a batch. lengths: of lists, how many steps each row has; or NULL. *fits: false where shapes or types
 * of scores and target do not match; then nothing is counted. EBB_USAGE: the number of classes or
 * columns is not that of the batches before. */
ebb_status ebb_tally_take(ebb_tally *t, const ebb_tensor *scores, const ebb_tensor *target,
                          const ebb_tensor *lengths, bool *fits);
/* tally_lists.c: the same for lists. */
ebb_status ebb_tally_lists(ebb_tally *t, const ebb_tensor *scores, const ebb_tensor *target,
                           const ebb_tensor *lengths, bool *fits);
/* trainer/tally_merge.c: adds up the counts of all processes, of which each has counted at least one batch of
 * its own. Each process gets the sums. */
ebb_status ebb_tally_merge(ebb_tally *t, ebb_group *group);
void ebb_tally_fini(ebb_tally *t);

typedef struct ebb_metric_row {
    const char *name;
    unsigned fits; /* a set of ebb_task */
    bool lower_is_better, needs_likelihood;
    bool (*is_usual)(const ebb_tally *t); /* computed where none is named; NULL: never */
    double (*value)(const ebb_tally *t);  /* NaN: there is none */
    const char *doc;
} ebb_metric_row;

extern const ebb_metric_row ebb_metric_rows[]; /* ends with a NULL name */
