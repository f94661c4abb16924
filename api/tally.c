/* tally.c: counting, and the table of metrics. */
#include "api/tally.h"

#include <math.h>

/* ---- counting ---- */

static double element(const ebb_tensor *t, int64_t i)
{
    return t->type.dtype == EBB_F32 ? (double)((const float *)t->data)[i] : ebb_tensor_double(t, i);
}

/* Entries for `width` classes or columns, where there are none yet. */
static ebb_status widen(ebb_tally *t, int64_t width, int rank)
{
    const bool numbers = t->task == EBB_TASK_NUMBERS;
    const size_t size = numbers ? sizeof *t->columns : sizeof *t->classes;
    if (t->rank != 0 && t->width != width)
        return ebb_error(EBB_USAGE,
                         "metrics: a batch has %lld classes or columns, one before it had %lld",
                         (long long)width, (long long)t->width);
    if (t->rank != 0)
        return NULL;
    EBB_GOT((uint64_t)width <= SIZE_MAX / size);
    void *entries = ebb_alloc((size_t)width * size + 1);
    EBB_GOT(entries);
    memset(entries, 0, (size_t)width * size);
    t->columns = numbers ? entries : NULL;
    t->classes = numbers ? NULL : entries;
    t->width = width;
    t->rank = rank;
    return NULL;
}

/* The scores of one target stand `step` apart. */
static void take_class(ebb_tally *t, const ebb_tensor *scores, int64_t at, int64_t step,
                       int64_t wanted)
{
    const bool known = wanted >= 0 && wanted < t->width;
    int64_t best = 0, above = 0;
    double most = element(scores, at), sum = 0;
    const double own = known ? element(scores, at + wanted * step) : (double)NAN;
    for (int64_t c = 0; c < t->width; c++) {
        const double x = element(scores, at + c * step);
        best = x > most ? c : best;
        most = x > most ? x : most;
        above += x > own || (x == own && c < wanted);
    }
    for (int64_t c = 0; t->needs_likelihood && c < t->width; c++)
        sum += (double)expf((float)(element(scores, at + c * step) - most));
    t->counted++;
    t->correct += best == wanted;
    t->near += above < 5 && !isnan(own);
    t->nll += t->needs_likelihood ? most + log(sum) - own : 0;
    t->classes[best].predicted++;
    if (known) {
        t->classes[wanted].wanted++;
        t->classes[wanted].hits += best == wanted;
    }
}

static ebb_status take_classes(ebb_tally *t, const ebb_tensor *scores, const ebb_tensor *target,
                               int64_t targets, bool *fits)
{
    const ebb_type *type = &scores->type;
    int64_t outer = 1, inner = 1;
    const int64_t axis = t->axis + (t->axis < 0 ? type->rank : 0);
    *fits = axis >= 0 && axis < type->rank && ebb_dtype_is_integer((ebb_dtype)target->type.dtype);
    if (!*fits)
        return NULL;
    for (int d = 0; d < type->rank; d++)
        *(d < axis ? &outer : &inner) *= d == axis ? 1 : type->dims[d];
    const int64_t classes = type->dims[axis];
    *fits = targets == outer * inner && classes > 0;
    if (!*fits)
        return NULL;
    EBB_TRY(widen(t, classes, type->rank));
    for (int64_t i = 0; i < targets; i++) {
        const int64_t wanted = ebb_tensor_int(target, i);
        if (wanted != t->ignore_index)
            take_class(t, scores, i / inner * classes * inner + i % inner, inner, wanted);
    }
    return NULL;
}

/* The columns of labels are axis 1, as channels are. */
static ebb_status take_labels(ebb_tally *t, const ebb_tensor *scores, const ebb_tensor *target,
                              int64_t targets)
{
    const ebb_type *type = &scores->type;
    int64_t inner = 1;
    EBB_TRY(widen(t, type->rank > 1 ? type->dims[1] : 1, type->rank));
    for (int d = 2; d < type->rank; d++)
        inner *= type->dims[d];
    for (int64_t i = 0; i < targets; i++) {
        const bool yes = element(scores, i) > 0, wanted = element(target, i) > 0.5;
        ebb_tally_class *column = &t->classes[i / inner % t->width];
        column->predicted += yes;
        column->wanted += wanted;
        column->hits += yes && wanted;
        t->correct += yes == wanted;
        t->counted++;
    }
    return NULL;
}

static ebb_status take_numbers(ebb_tally *t, const ebb_tensor *scores, const ebb_tensor *target,
                               int64_t targets)
{
    const ebb_type *type = &scores->type;
    const int64_t rows = type->rank > 0 ? type->dims[0] : 1;
    if (targets == 0)
        return NULL;
    EBB_TRY(widen(t, targets / rows, type->rank > 0 ? type->rank : 1));
    for (int64_t i = 0; i < targets; i++) {
        ebb_tally_column *column = &t->columns[i % t->width];
        const double y = element(target, i), off = y - element(scores, i), from = y - column->mean;
        column->mean += from / (double)(t->rows + i / t->width + 1);
        column->spread += from * (y - column->mean);
        column->error += off * off;
        t->squared += off * off;
        t->absolute += fabs(off);
    }
    t->rows += rows;
    t->counted += targets;
    return NULL;
}

static bool is_number(const ebb_tensor *t)
{
    const ebb_dtype dtype = (ebb_dtype)t->type.dtype;
    return t->data != NULL &&
           (dtype == EBB_BOOL || ebb_dtype_is_float(dtype) || ebb_dtype_is_integer(dtype));
}

/* Of two tasks, the one that the target is of. */
static void choose_task(ebb_tally *t, const ebb_tensor *target, int64_t scores, int64_t targets)
{
    const unsigned task = (unsigned)t->task, others = task & ~(unsigned)EBB_TASK_CLASSES;
    if (others == 0 || others == task)
        return;
    const bool numbers = ebb_dtype_is_integer((ebb_dtype)target->type.dtype);
    t->task = numbers && targets < scores ? EBB_TASK_CLASSES : (ebb_task)others;
}

ebb_status ebb_tally_take(ebb_tally *t, const ebb_tensor *scores, const ebb_tensor *target,
                          const ebb_tensor *lengths, bool *fits)
{
    int64_t count, targets;
    *fits = is_number(scores) && is_number(target) && ebb_type_elements(&scores->type, &count) &&
            ebb_type_elements(&target->type, &targets) &&
            ebb_dtype_is_float((ebb_dtype)scores->type.dtype);
    if (!*fits)
        return NULL;
    if (t->task == EBB_TASK_LISTS)
        return ebb_tally_lists(t, scores, target, lengths, fits);
    choose_task(t, target, count, targets);
    if (t->task == EBB_TASK_CLASSES)
        return take_classes(t, scores, target, targets, fits);
    *fits = t->task != EBB_TASK_OTHER && count == targets;
    if (!*fits)
        return NULL;
    return t->task == EBB_TASK_LABELS ? take_labels(t, scores, target, targets)
                                      : take_numbers(t, scores, target, targets);
}

void ebb_tally_fini(ebb_tally *t)
{
    ebb_release(t->classes);
    ebb_release(t->columns);
    *t = (ebb_tally){0};
}

/* ---- formulas ---- */

static double share(double part, double whole)
{
    return whole > 0 ? part / whole : (double)NAN;
}

static double accuracy(const ebb_tally *t)
{
    return share((double)t->correct, (double)t->counted);
}

static double top_5(const ebb_tally *t)
{
    return share((double)t->near, (double)t->counted);
}

/* scikit-learn's f1_score(average="macro") and the mean of torchmetrics' JaccardIndex: over the
 * classes that occur, be it among targets or predictions. */
static double macro(const ebb_tally *t, double (*of)(const ebb_tally_class *))
{
    double sum = 0, occur = 0;
    for (int64_t c = 0; c < t->width; c++)
        if (t->classes[c].predicted + t->classes[c].wanted > 0) {
            sum += of(&t->classes[c]);
            occur++;
        }
    return share(sum, occur);
}

static double f1_of(const ebb_tally_class *c)
{
    const int64_t both = c->predicted + c->wanted;
    return both > 0 ? 2 * (double)c->hits / (double)both : 0;
}

static double iou_of(const ebb_tally_class *c)
{
    const int64_t any = c->predicted + c->wanted - c->hits;
    return any > 0 ? (double)c->hits / (double)any : 0;
}

static double f1_macro(const ebb_tally *t)
{
    return t->counted > 0 ? macro(t, f1_of) : (double)NAN;
}

static double f1(const ebb_tally *t)
{
    const bool yes_or_no = t->width == (t->task == EBB_TASK_CLASSES ? 2 : 1);
    if (!yes_or_no || t->counted == 0)
        return f1_macro(t);
    return f1_of(&t->classes[t->width - 1]);
}

static double miou(const ebb_tally *t)
{
    return t->counted > 0 ? macro(t, iou_of) : (double)NAN;
}

static double perplexity(const ebb_tally *t)
{
    return exp(share(t->nll, (double)t->counted));
}

/* scikit-learn's r2_score(multioutput="uniform_average"): where targets do not vary, 1 for
 * predictions without error, else 0. */
static double r2(const ebb_tally *t)
{
    double sum = 0;
    for (int64_t c = 0; c < t->width; c++) {
        const ebb_tally_column *k = &t->columns[c];
        sum += k->spread > 0 ? 1 - k->error / k->spread : k->error == 0;
    }
    return t->rows > 1 ? share(sum, (double)t->width) : (double)NAN;
}

static double mae(const ebb_tally *t)
{
    return share(t->absolute, (double)t->counted);
}

/* The mean of the rows' distances, each weighted with its labels: as the word error rate is computed. */
static double token_error_rate(const ebb_tally *t)
{
    return share((double)t->errors, (double)t->counted);
}

static double rmse(const ebb_tally *t)
{
    return sqrt(share(t->squared, (double)t->counted));
}

/* ---- what is usual ---- */

static bool always(const ebb_tally *t)
{
    return t->rank != 0;
}

static bool of_many_classes(const ebb_tally *t)
{
    return t->rank == 2 && t->width >= 100;
}

static bool of_texts(const ebb_tally *t)
{
    return t->rank == 3;
}

static bool of_images(const ebb_tally *t)
{
    return t->rank >= 4;
}

static bool of_labels(const ebb_tally *t)
{
    return t->task == EBB_TASK_LABELS;
}

enum { C = EBB_TASK_CLASSES, L = EBB_TASK_LABELS, N = EBB_TASK_NUMBERS, S = EBB_TASK_LISTS };

// clang-format off
const ebb_metric_row ebb_metric_rows[] = {
    /* name        fits   lower  exp    usual            value */
    {"accuracy",   C | L, false, false, always,          accuracy,   "share of the targets that the highest score meets; of labels, those on their side of 0"},
    {"top-5",      C,     false, false, of_many_classes, top_5,      "share of the targets among the five highest scores"},
    {"f1",         C | L, false, false, of_labels,       f1,         "F1 of class 1 of two, or of one label; else the mean over classes or labels that occur"},
    {"f1-macro",   C | L, false, false, NULL,            f1_macro,   "mean F1 over the classes or labels that occur"},
    {"miou",       C | L, false, false, of_images,       miou,       "mean intersection over union, over the classes or labels that occur"},
    {"perplexity", C,     true,  true,  of_texts,        perplexity, "e to the mean cross-entropy of the targets that count"},
    {"r2",         N,     false, false, always,          r2,         "coefficient of determination, mean over columns"},
    {"mae",        N,     true,  false, NULL,            mae,        "mean absolute error"},
    {"rmse",       N,     true,  false, NULL,            rmse,       "root of the mean squared error"},
    {"token-error-rate", S, true, false, always,     token_error_rate, "labels to put in, leave out or replace in what is decoded greedily, by the number of labels"},
    {NULL,         0,     false, false, NULL,            NULL,       NULL},
};
// clang-format on
