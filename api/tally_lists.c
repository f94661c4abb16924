/* tally_lists.c: lists that stand along time, as ctc has them.
 *
 *   scores   argmax at each step    0 2 2 0 2 1      0: blank
 *   decoded  what changes, no blank     2   2 1      beside the labels  2 1: one insertion
 */
#include "api/tally.h"

#include "onnx/words/arena.h"

typedef struct reading { /* one row */
    const ebb_tensor *scores;
    int64_t at, step; /* first score; from step to step */
    int64_t classes, steps, blank;
} reading;

static int64_t best_class(const reading *r, int64_t t)
{
    int64_t best = 0;
    double most = ebb_tensor_double(r->scores, r->at + t * r->step);
    for (int64_t c = 1; c < r->classes; c++) {
        const double x = ebb_tensor_double(r->scores, r->at + t * r->step + c);
        best = x > most ? c : best;
        most = x > most ? x : most;
    }
    return best;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Levenshtein's: insertions, deletions and substitutions count 1. costs: of the labels so far, count + 1
 * entries. What is decoded comes one by one. */
static int64_t errors_of(const reading *r, const int64_t *labels, int64_t count, int64_t *costs)
{
    int64_t last = r->blank;
    for (int64_t k = 0; k <= count; k++)
        costs[k] = k;
    for (int64_t t = 0; t < r->steps; t++) {
        const int64_t c = best_class(r, t);
        const bool is_new = c != last && c != r->blank;
        last = c;
        if (!is_new)
            continue;
        int64_t corner = costs[0]++;
        for (int64_t k = 1; k <= count; k++) {
            const int64_t other = corner + (labels[k - 1] != c);
            corner = costs[k];
            costs[k] = least(other, least(corner, costs[k - 1]) + 1);
        }
    }
    return costs[count];
}

static int64_t steps_of(const ebb_tensor *lengths, int64_t row, int64_t all)
{
    const int64_t own = lengths != NULL ? ebb_tensor_int(lengths, row) : all;
    return own < 0 ? 0 : least(own, all);
}

ebb_status ebb_tally_lists(ebb_tally *t, const ebb_tensor *scores, const ebb_tensor *target,
                           const ebb_tensor *lengths, bool *fits)
{
    const ebb_type *s = &scores->type, *l = &target->type;
    const int time = (int)t->axis, rows = 1 - time;
    int64_t all = 0;
    *fits = s->rank == 3 && l->rank == 2 && l->dims[0] == s->dims[rows] &&
            ebb_dtype_is_integer((ebb_dtype)l->dtype) &&
            (lengths == NULL ||
             (ebb_dtype_is_integer((ebb_dtype)lengths->type.dtype) && lengths->data != NULL &&
              ebb_type_elements(&lengths->type, &all) && all == s->dims[rows]));
    if (!*fits)
        return NULL;
    const int64_t most = l->dims[1];
    int64_t *labels =
        most < INT64_MAX / 32 ? ebb_alloc((2 * (size_t)most + 1) * sizeof *labels) : NULL;
    EBB_GOT(labels);
    for (int64_t n = 0; n < s->dims[rows]; n++) {
        const reading r = {.scores = scores,
                           .at = n * (rows == 0 ? s->dims[1] * s->dims[2] : s->dims[2]),
                           .step = time == 0 ? s->dims[1] * s->dims[2] : s->dims[2],
                           .classes = s->dims[2],
                           .steps = steps_of(lengths, n, s->dims[time]),
                           .blank = t->blank};
        int64_t count = 0;
        for (int64_t k = 0; k < most; k++) {
            const int64_t label = ebb_tensor_int(target, n * most + k);
            if (label != t->ignore_index)
                labels[count++] = label;
        }
        t->errors += errors_of(&r, labels, count, labels + most);
        t->counted += count;
    }
    t->rank = 3;
    ebb_free(labels);
    return NULL;
}
