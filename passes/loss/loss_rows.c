/* loss_rows.c: what each row of losses.def is built of.
 *
 *   x: the predictions, t: the target, [..] over elements, reduced by mean or sum at the end
 *
 *   cross-entropy  -log softmax(x)[t] w[t], by sum w[t]; smoothed: (1 - e) of that
 *                  + e / C sum_c -log softmax(x)[c] w[c], by sum w[t]
 *   mse, l1        [(x - t)^2], [|x - t|]
 *   huber          [c (d - c / 2)], d = x - t, c = d held within +-delta: d^2 / 2, then linear
 *   smooth-l1      huber / beta
 *   bce-logits     [softplus(x) - x t]; with pos-weight p:
 *                  [(1 - t) x + (1 + (p - 1) t) softplus(-x)]
 *   focal          [a_t m^gamma bce], m = s + t - 2 s t, s = sigmoid(x): how far it misses;
 *                  with `axis` [w[t] m^gamma l], l = -log softmax(x)[t], m = 1 - e^-l, by how many count
 *   dice           [1 - (2 sum p t + smooth) / (sum p + sum t + smooth)]: sums over an image, of p
 *                  sigmoid(x), or softmax(x) along `axis`
 *   cosine         [1 - x t / sqrt((x x + e) (t t + e))]: products along the axis, e = 1e-12
 *   ctc            loss_ctc.c
 *   kl             [T^2 sum p (log p - log q)], q = softmax(x / T), p = softmax(t / T)
 */
#include "passes/loss/loss.h"

#include <stdio.h>

typedef ebb_loss_site site;

/* ---- what several need ---- */

static bool is_sum(const site *s)
{
    return strcmp(ebb_option_string(s->e, "reduction"), "sum") == 0;
}

static ebb_value number(site *s, double x)
{
    return ebb_const_like(s->b, s->x, x);
}

static ebb_value emit_1(site *s, ebb_op op, ebb_value a)
{
    return ebb_emit(s->b, op, a);
}

static ebb_value emit_2(site *s, ebb_op op, ebb_value a, ebb_value b)
{
    return ebb_emit(s->b, op, a, b);
}

static ebb_value scaled(site *s, ebb_value a, double x)
{
    return x == 1 ? a : emit_2(s, EBB_OP_MUL, a, number(s, x));
}

/* The last node of a loss bears its name. */
static void name_last(site *s)
{
    if (s->name != NULL)
        ebb_with_name(s->b, s->name);
}

ebb_status ebb_loss_reduced(site *s, ebb_value each, ebb_value *loss)
{
    ebb_with_int(s->b, "keepdims", 0);
    name_last(s);
    *loss = emit_1(s, is_sum(s) ? EBB_OP_REDUCE_SUM : EBB_OP_REDUCE_MEAN, each);
    return s->b->status;
}

static ebb_value sum_along(site *s, ebb_value x, int axis, bool keep)
{
    const int64_t axes[1] = {axis};
    return ebb_emit_reduce(s->b, EBB_OP_REDUCE_SUM, x, axes, 1, keep);
}

static ebb_value sum_of_all(site *s, ebb_value x)
{
    ebb_with_int(s->b, "keepdims", 0);
    return emit_1(s, EBB_OP_REDUCE_SUM, x);
}

static ebb_value softmax(site *s, ebb_op op, ebb_value x)
{
    ebb_with_int(s->b, "axis", s->axis);
    return emit_1(s, op, x);
}

/* A constant with one number for each place along an axis of x, or one for all. */
static ebb_status numbers_along(site *s, const char *option, int axis, bool vector, ebb_value *made)
{
    const char *text = ebb_option_string(s->e, option);
    const double *list;
    size_t count;
    int64_t dims[EBB_MAX_RANK];
    char what[64];
    *made = EBB_NO_VALUE;
    if (text == NULL)
        return NULL;
    (void)snprintf(what, sizeof what, "loss: %s", option);
    EBB_TRY(ebb_loss_numbers(&list, &count, text, what, s->e->scratch));
    const int64_t size = axis >= 0 && axis < s->type.rank ? s->type.dims[axis] : 1;
    if (count != 1 || vector)
        if ((int64_t)count != size)
            return ebb_error(EBB_USAGE,
                             "loss: %s has %zu numbers, output '%s' has %lld classes on axis %d",
                             option, count, ebb_value_name(s->e->g, s->x), (long long)size, axis);
    const int rank = count == 1 && !vector ? 0 : vector ? 1 : s->type.rank - axis;
    for (int d = 0; d < rank; d++)
        dims[d] = d == 0 ? (int64_t)count : 1;
    *made = ebb_const_floats(s->b, (ebb_dtype)s->type.dtype, rank, dims, list);
    return s->b->status;
}

/* ---- classes ---- */

/* The loss is an operator from opset 12 on. In an older model, which pass opset could not bring along
 * or was not asked to, it is computed all the same, but no runtime reads the file. */
static ebb_status note_opset(ebb_edit *e)
{
    enum { FIRST_OPSET = 12 };
    const int64_t opset = ebb_model_opset(e->g->model, EBB_DOMAIN_ONNX);
    return opset >= FIRST_OPSET
               ? NULL
               : ebb_note(e,
                          "the model is of opset %lld, which has no SoftmaxCrossEntropyLoss: it "
                          "can be trained, but other runtimes cannot read a step that is written; "
                          "put the pass opset before this one, or export it at opset 13 or newer",
                          (long long)opset);
}

/* logits [..., V] -> [N, V], with the classes moved last where they are not. */
static ebb_value as_matrix(site *s)
{
    ebb_value x = s->x;
    int rank = s->type.rank;
    if (s->axis != rank - 1) {
        int64_t perm[EBB_MAX_RANK];
        for (int d = 0, k = 0; d < rank; d++)
            if (d != s->axis)
                perm[k++] = d;
        perm[rank - 1] = s->axis;
        ebb_with_ints(s->b, "perm", perm, (uint32_t)rank);
        x = emit_1(s, EBB_OP_TRANSPOSE, x);
    }
    int64_t shape[2] = {-1, s->type.dims[s->axis]};
    return emit_2(s, EBB_OP_RESHAPE, x, ebb_const_ints(s->b, shape, 2));
}

/* Where a label does not count. */
static ebb_value ignored(site *s, ebb_value label)
{
    return emit_2(s, EBB_OP_EQUAL, label,
                  ebb_const_like(s->b, label, (double)ebb_option_int(s->e, "ignore_index")));
}

/* The weight of each label's class, 0 where it does not count. */
static ebb_value own_weights(site *s, ebb_value label, ebb_value out, ebb_value weights)
{
    ebb_value safe = ebb_emit(s->b, EBB_OP_WHERE, out, ebb_const_like(s->b, label, 0), label);
    ebb_with_int(s->b, "axis", 0);
    ebb_value own = emit_2(s, EBB_OP_GATHER, weights, safe);
    return ebb_emit(s->b, EBB_OP_WHERE, out, number(s, 0), own);
}

/* Labels that count: an integer until it is whole. */
static ebb_value how_many(site *s, ebb_value out)
{
    ebb_value counts = ebb_emit_cast(s->b, emit_1(s, EBB_OP_NOT, out), EBB_I64);
    return ebb_emit_cast(s->b, sum_of_all(s, counts), (ebb_dtype)s->type.dtype);
}

/* The share of the other classes, of log-probabilities with the classes on axis 1. What it is
 * divided by is made of the labels alone, and counted in integers where no class has a weight. */
static ebb_value smoothing(site *s, ebb_value log_prob, ebb_value label, ebb_value weights)
{
    const int rank = ebb_build_type(s->b, log_prob)->rank;
    const int64_t classes = s->type.dims[s->axis];
    ebb_value each = log_prob, zero = number(s, 0);
    if (weights.i != 0) {
        int64_t dims[EBB_MAX_RANK] = {classes, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
        each = emit_2(s, EBB_OP_MUL, each, ebb_emit_reshape(s->b, weights, dims, rank - 1));
    }
    ebb_value out = ignored(s, label);
    each = ebb_emit(s->b, EBB_OP_WHERE, out, zero, sum_along(s, each, 1, false));
    ebb_value sum =
        scaled(s, sum_of_all(s, each),
               -ebb_option_float(s->e, "label-smoothing") / (double)(classes > 0 ? classes : 1));
    if (is_sum(s))
        return sum;
    return emit_2(s, EBB_OP_DIV, sum,
                  weights.i != 0 ? sum_of_all(s, own_weights(s, label, out, weights))
                                 : how_many(s, out));
}

/* As the operator takes them: other axes than 1 by way of a matrix. */
static ebb_status with_classes_first(site *s, ebb_value *x, ebb_value *label)
{
    const int64_t all = -1;
    if (s->axis == 1)
        return NULL;
    if (s->type.dims[s->axis] < 0)
        return ebb_error(EBB_USAGE, "loss: the number of classes of output '%s' is not known",
                         ebb_value_name(s->e->g, s->x));
    *x = as_matrix(s);
    if (s->type.rank != 2)
        *label = emit_2(s, EBB_OP_RESHAPE, *label, ebb_const_ints(s->b, &all, 1));
    return NULL;
}

static ebb_status cross_entropy(site *s, ebb_value *loss)
{
    const double smoothed = ebb_option_float(s->e, "label-smoothing");
    ebb_value logits = s->x, label = s->target, weights;
    EBB_TRY(note_opset(s->e));
    EBB_TRY(numbers_along(s, "class-weights", s->axis, true, &weights));
    if (smoothed > 0 && s->type.dims[s->axis] < 0)
        return ebb_error(EBB_USAGE, "loss: the number of classes of output '%s' is not known",
                         ebb_value_name(s->e->g, s->x));
    EBB_TRY(with_classes_first(s, &logits, &label));
    ebb_with_string(s->b, "reduction", ebb_option_string(s->e, "reduction"));
    ebb_with_int(s->b, "ignore_index", ebb_option_int(s->e, "ignore_index"));
    if (smoothed == 0) {
        name_last(s);
        *loss = ebb_emit(s->b, EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS, logits, label, weights);
        return s->b->status;
    }
    const ebb_value in[3] = {logits, label, weights};
    ebb_value out[2];
    ebb_emit_node(s->b, EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS, in, 3, out, 2, 3);
    ebb_value own = scaled(s, out[0], 1 - smoothed);
    ebb_value others = smoothing(s, out[1], label, weights);
    name_last(s);
    *loss = emit_2(s, EBB_OP_ADD, own, others);
    return s->b->status;
}

/* ---- by element ---- */

static ebb_value difference(site *s)
{
    return emit_2(s, EBB_OP_SUB, s->x, s->target);
}

static ebb_status mse(site *s, ebb_value *loss)
{
    ebb_value d = difference(s);
    return ebb_loss_reduced(s, emit_2(s, EBB_OP_MUL, d, d), loss);
}

static ebb_status l1(site *s, ebb_value *loss)
{
    return ebb_loss_reduced(s, emit_1(s, EBB_OP_ABS, difference(s)), loss);
}

/* Its gradient is c, whichever side of a corner counts. */
static ebb_value bent(site *s, double delta)
{
    ebb_value d = difference(s);
    ebb_value c = ebb_emit(s->b, EBB_OP_CLIP, d, number(s, -delta), number(s, delta));
    return emit_2(s, EBB_OP_MUL, c, emit_2(s, EBB_OP_SUB, d, scaled(s, c, 0.5)));
}

static ebb_status huber(site *s, ebb_value *loss)
{
    return ebb_loss_reduced(s, bent(s, ebb_option_float(s->e, "delta")), loss);
}

static ebb_status smooth_l1(site *s, ebb_value *loss)
{
    const double beta = ebb_option_float(s->e, "beta");
    return ebb_loss_reduced(s, scaled(s, bent(s, beta), 1 / beta), loss);
}

static ebb_value binary(site *s)
{
    ebb_value xt = emit_2(s, EBB_OP_MUL, s->x, s->target);
    return emit_2(s, EBB_OP_SUB, emit_1(s, EBB_OP_SOFTPLUS, s->x), xt);
}

static ebb_status bce_logits(site *s, ebb_value *loss)
{
    ebb_value weight;
    EBB_TRY(numbers_along(s, "pos-weight", s->type.rank > 1 ? 1 : -1, false, &weight));
    if (weight.i == 0)
        return ebb_loss_reduced(s, binary(s), loss);
    ebb_value one = number(s, 1);
    ebb_value more = emit_2(s, EBB_OP_MUL, emit_2(s, EBB_OP_SUB, weight, one), s->target);
    ebb_value soft = emit_1(s, EBB_OP_SOFTPLUS, emit_1(s, EBB_OP_NEG, s->x));
    ebb_value yes = emit_2(s, EBB_OP_MUL, emit_2(s, EBB_OP_ADD, more, one), soft);
    ebb_value no = emit_2(s, EBB_OP_MUL, emit_2(s, EBB_OP_SUB, one, s->target), s->x);
    return ebb_loss_reduced(s, emit_2(s, EBB_OP_ADD, no, yes), loss);
}

/* each * miss^gamma */
static ebb_value focused(site *s, ebb_value each, ebb_value miss)
{
    const double gamma = ebb_option_float(s->e, "gamma");
    ebb_value power = gamma == 1   ? miss
                      : gamma == 2 ? emit_2(s, EBB_OP_MUL, miss, miss)
                                   : emit_2(s, EBB_OP_POW, miss, number(s, gamma));
    return emit_2(s, EBB_OP_MUL, each, power);
}

/* Of the cross-entropy of each label; that of one which does not count is 0, and so it misses nothing. */
static ebb_status focal_of_classes(site *s, ebb_value *loss)
{
    ebb_value label = s->target, x = s->x, weights;
    if (ebb_option_given(s->e, "alpha"))
        return ebb_hint(ebb_error(EBB_USAGE, "loss: focal: alpha is for targets of 0 and 1"),
                        "classes have class-weights, one number each");
    EBB_TRY(numbers_along(s, "class-weights", s->axis, true, &weights));
    EBB_TRY(with_classes_first(s, &x, &label));
    ebb_with_string(s->b, "reduction", "none");
    ebb_with_int(s->b, "ignore_index", ebb_option_int(s->e, "ignore_index"));
    ebb_value each = emit_2(s, EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS, x, label);
    ebb_value hit = emit_1(s, EBB_OP_EXP, emit_1(s, EBB_OP_NEG, each));
    ebb_value out = ignored(s, label);
    each = focused(s, each, emit_2(s, EBB_OP_SUB, number(s, 1), hit));
    if (weights.i != 0)
        each = emit_2(s, EBB_OP_MUL, each, own_weights(s, label, out, weights));
    if (is_sum(s))
        return ebb_loss_reduced(s, each, loss);
    ebb_value sum = sum_of_all(s, each), count = how_many(s, out);
    name_last(s);
    *loss = emit_2(s, EBB_OP_DIV, sum, count);
    return s->b->status;
}

static ebb_status focal(site *s, ebb_value *loss)
{
    const double alpha = ebb_option_float(s->e, "alpha");
    if (s->axis >= 0)
        return focal_of_classes(s, loss);
    if (ebb_option_given(s->e, "class-weights"))
        return ebb_hint(ebb_error(EBB_USAGE, "loss: focal: class-weights are for class numbers"),
                        "axis=1 says that the target is class numbers");
    ebb_value t = s->target, p = emit_1(s, EBB_OP_SIGMOID, s->x), one = number(s, 1);
    ebb_value each = binary(s);
    ebb_value miss = emit_2(
        s, EBB_OP_ADD, emit_2(s, EBB_OP_MUL, p, emit_2(s, EBB_OP_SUB, one, scaled(s, t, 2))), t);
    each = focused(s, each, miss);
    ebb_value least = number(s, 1 - alpha);
    ebb_value share = emit_2(s, EBB_OP_ADD, scaled(s, t, 2 * alpha - 1), least);
    return ebb_loss_reduced(s, emit_2(s, EBB_OP_MUL, each, share), loss);
}

/* ---- masks ---- */

ebb_value ebb_loss_known_labels(ebb_loss_site *s, ebb_value labels, int64_t classes)
{
    ebb_value below = emit_2(s, EBB_OP_LESS, labels, ebb_const_like(s->b, labels, 0));
    return ebb_emit(s->b, EBB_OP_WHERE, below, ebb_const_like(s->b, labels, (double)classes),
                    labels);
}

/* [N, d...] class numbers -> [N, C, d...] of 0 and 1; *counts: [N, 1, d...], 1 where a label counts; no
   values where memory runs out. */
static ebb_value one_hot(site *s, ebb_value *counts)
{
    int64_t own[EBB_MAX_RANK], classes = s->type.dims[s->axis];
    const ebb_dtype dtype = (ebb_dtype)s->type.dtype;
    const int64_t at[1] = {s->axis};
    int64_t *list = EBB_SCRATCH(s->e, int64_t, (size_t)classes);
    double *ones = EBB_SCRATCH(s->e, double, (size_t)classes);
    *counts = EBB_NO_VALUE;
    if (!ebb_build_got(s->b, list != NULL && ones != NULL))
        return EBB_NO_VALUE;
    for (int64_t c = 0; c < classes; c++) {
        list[c] = c;
        ones[c] = 1;
    }
    for (int d = 0; d < s->type.rank - s->axis; d++)
        own[d] = d == 0 ? classes : 1;
    ebb_type type = ebb_type_tensor(EBB_I64, s->type.rank - s->axis, own);
    ebb_value label = emit_2(s, EBB_OP_UNSQUEEZE, s->target, ebb_const_ints(s->b, at, 1));
    ebb_value out = ignored(s, label);
    // A label that is no class is an error, as it is in a cross-entropy.
    ebb_value known = ebb_loss_known_labels(s, label, classes);
    known = ebb_emit(s->b, EBB_OP_WHERE, out, ebb_const_like(s->b, label, 0), known);
    *counts = emit_2(s, EBB_OP_GATHER, ebb_const_floats(s->b, dtype, 1, &classes, ones), known);
    *counts = ebb_emit(s->b, EBB_OP_WHERE, out, number(s, 0), *counts);
    return ebb_emit_cast(s->b, emit_2(s, EBB_OP_EQUAL, label, ebb_const_tensor(s->b, &type, list)),
                         dtype);
}

static ebb_status dice(site *s, ebb_value *loss)
{
    const double smooth = ebb_option_float(s->e, "smooth");
    const bool batch = strcmp(ebb_option_string(s->e, "over"), "batch") == 0;
    ebb_value t = s->target, p, counts;
    if (s->type.rank < 2)
        return ebb_error(EBB_USAGE,
                         "loss: dice needs a batch axis and others, output '%s' has "
                         "rank %d",
                         ebb_value_name(s->e->g, s->x), (int)s->type.rank);
    if (s->axis >= 0) {
        if (s->type.dims[s->axis] < 0)
            return ebb_error(EBB_USAGE, "loss: the number of classes of output '%s' is not known",
                             ebb_value_name(s->e->g, s->x));
        t = one_hot(s, &counts);
        p = emit_2(s, EBB_OP_MUL, softmax(s, EBB_OP_SOFTMAX, s->x), counts);
    } else {
        p = emit_1(s, EBB_OP_SIGMOID, s->x);
    }
    const int kept = s->axis >= 0 ? s->axis : s->type.rank > 2 ? 1 : -1;
    int64_t axes[EBB_MAX_RANK];
    uint32_t count = 0;
    for (int d = 0; d < s->type.rank; d++)
        if (d != kept && (d > 0 || batch))
            axes[count++] = d;
    if (count == 0)
        return ebb_error(EBB_USAGE,
                         "loss: dice has nothing to sum over in output '%s': over=batch sums over "
                         "the batch",
                         ebb_value_name(s->e->g, s->x));
    ebb_value both =
        ebb_emit_reduce(s->b, EBB_OP_REDUCE_SUM, emit_2(s, EBB_OP_MUL, p, t), axes, count, false);
    ebb_value any =
        ebb_emit_reduce(s->b, EBB_OP_REDUCE_SUM, emit_2(s, EBB_OP_ADD, p, t), axes, count, false);
    ebb_value added = number(s, smooth);
    both = emit_2(s, EBB_OP_ADD, scaled(s, both, 2), added);
    any = emit_2(s, EBB_OP_ADD, any, added);
    ebb_value common = emit_2(s, EBB_OP_DIV, both, any);
    return ebb_loss_reduced(s, emit_2(s, EBB_OP_SUB, number(s, 1), common), loss);
}

/* ---- vectors and distributions ---- */

static ebb_status cosine(site *s, ebb_value *loss)
{
    ebb_value x = s->x, t = s->target, epsilon = number(s, (double)1e-12f); // PyTorch's is float32
    ebb_value xt = sum_along(s, emit_2(s, EBB_OP_MUL, x, t), s->axis, false);
    ebb_value xx = sum_along(s, emit_2(s, EBB_OP_MUL, x, x), s->axis, false);
    ebb_value tt = sum_along(s, emit_2(s, EBB_OP_MUL, t, t), s->axis, false);
    ebb_value targets = emit_2(s, EBB_OP_ADD, tt, epsilon);
    ebb_value both = emit_2(s, EBB_OP_MUL, emit_2(s, EBB_OP_ADD, xx, epsilon), targets);
    ebb_value similar = emit_2(s, EBB_OP_DIV, xt, emit_1(s, EBB_OP_SQRT, both));
    return ebb_loss_reduced(s, emit_2(s, EBB_OP_SUB, number(s, 1), similar), loss);
}

static ebb_status kl(site *s, ebb_value *loss)
{
    const double heat = ebb_option_float(s->e, "temperature");
    const char *given = ebb_option_string(s->e, "target-is");
    ebb_value log_q = softmax(s, EBB_OP_LOG_SOFTMAX, scaled(s, s->x, 1 / heat)), log_p, p;
    if (strcmp(given, "logits") != 0 && heat != 1)
        return ebb_hint(ebb_error(EBB_USAGE, "loss: kl: a target of %s has no temperature", given),
                        "give the logits of the other model, with target-is=logits");
    if (strcmp(given, "probabilities") == 0) {
        p = s->target; // 0 log 0 is 0
        ebb_value some = emit_2(s, EBB_OP_GREATER, p, number(s, 0));
        log_p = emit_1(s, EBB_OP_LOG, ebb_emit(s->b, EBB_OP_WHERE, some, p, number(s, 1)));
    } else {
        log_p = strcmp(given, "logits") != 0
                    ? s->target
                    : softmax(s, EBB_OP_LOG_SOFTMAX, scaled(s, s->target, 1 / heat));
        p = emit_1(s, EBB_OP_EXP, log_p);
    }
    ebb_value each = emit_2(s, EBB_OP_MUL, p, emit_2(s, EBB_OP_SUB, log_p, log_q));
    return ebb_loss_reduced(s, scaled(s, sum_along(s, each, s->axis, false), heat * heat), loss);
}

/* ---- the table ---- */

static const ebb_loss_kind rows[] = {
#define EBB_LOSS(build, name, task, target, takes) \
    {name, EBB_TASK_##task, EBB_TARGET_##target, takes, build},
#include "passes/loss/losses.def"
#undef EBB_LOSS
};

const ebb_loss_kind *ebb_loss_kind_find(const char *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    return NULL;
}
