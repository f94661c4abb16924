/* batch_split.c: one node of one part: slices of what is whole, shares of sums and means. */
#include <stdio.h>

#include "onnx/graph/infer.h"
#include "onnx/graph/place.h"
#include "passes/memory/rounding/batch_split.h"

typedef ebb_batch_form form;
typedef ebb_batch_split splitting;

/* ---- names ---- */

/* `with` stands for `old` from now on, under its name. */
static ebb_status put(splitting *s, ebb_value old, ebb_value with)
{
    if ((ebb_value_of(s->g, old)->flags & EBB_IS_OUTPUT) == 0)
        EBB_TRY(ebb_value_take_name(s->g, with, old));
    return ebb_edit_replace(s->e, old, with);
}

/* Of part i. A process names its own without a number: the file is the same for all. */
static void name_part(char text[560], const splitting *s, const char *name, int64_t i)
{
    if (s->spread)
        (void)snprintf(text, 560, "%.500s/part", name);
    else
        (void)snprintf(text, 560, "%.500s/part_%lld", name, (long long)i);
}

/* ---- parts of whole values ---- */

static ebb_type part_type(const splitting *s, ebb_value v, int axis)
{
    ebb_type t = *ebb_value_of(s->g, v)->type;
    t.dims[axis] /= s->parts;
    t.symbols[axis] = (ebb_str){0};
    return t;
}

/* An axis that counts other things before the batch, as two; and one again. */
static ebb_value open_axis(splitting *s, ebb_value v, form f)
{
    const ebb_type *t = ebb_value_of(s->g, v)->type;
    int64_t dims[EBB_MAX_RANK + 1];
    for (int d = 0; d <= t->rank; d++)
        dims[d] = d < f.axis ? t->dims[d] : t->dims[d - (d > f.axis)];
    dims[f.axis] = f.outer;
    dims[f.axis + 1] /= f.outer;
    return ebb_emit_reshape(&s->b, v, dims, t->rank + 1);
}

static ebb_value rank_of(splitting *s)
{
    if (s->rank.i == 0) {
        ebb_with_int(&s->b, "ranks", s->parts);
        s->rank = ebb_emit_list(&s->b, EBB_OP_RANK, NULL, 0);
    }
    return s->rank;
}

/* Elements rank * size .. of an axis: which rank it is the run alone knows. */
static ebb_value own_slice(splitting *s, ebb_value v, int64_t along, int64_t size)
{
    ebb_build *b = &s->b;
    const ebb_type t = ebb_type_tensor(EBB_I64, 1, &size);
    int64_t *each = EBB_SCRATCH(s->e, int64_t, (size_t)size);
    if (!ebb_build_got(b, each))
        return EBB_NO_VALUE;
    for (int64_t i = 0; i < size; i++)
        each[i] = i;
    ebb_value first =
        ebb_emit(b, EBB_OP_MUL, rank_of(s), ebb_const_scalar(b, EBB_I64, (double)size));
    ebb_value rows = ebb_emit(b, EBB_OP_ADD, first, ebb_const_tensor(b, &t, each));
    ebb_with_int(b, "axis", along);
    return ebb_emit(b, EBB_OP_GATHER, v, rows);
}

/* Part i of a whole value: made small where it is made by repetition, else a slice. */
static ebb_value slice_of(splitting *s, ebb_value v, form f, int64_t i)
{
    const ebb_type t = part_type(s, v, f.axis);
    ebb_node maker = ebb_value_of(s->g, v)->producer;
    ebb_op op = ebb_producer_op(s->g, v);
    ebb_build *b = &s->b;
    b->name = ebb_value_name(s->g, v);
    if (op == EBB_OP_EXPAND) {
        ebb_value x = ebb_in(s->g, maker, 0);
        const ebb_type *from = ebb_value_of(s->g, x)->type;
        int at = f.axis - (t.rank - from->rank);
        if (at < 0 || from->dims[at] == 1)
            return ebb_emit(b, op, x, ebb_const_ints(b, t.dims, (uint32_t)t.rank));
    }
    if (op == EBB_OP_CONSTANT_OF_SHAPE) {
        ebb_with_attrs_of(b, maker);
        return ebb_emit(b, op, ebb_const_ints(b, t.dims, (uint32_t)t.rank));
    }
    int64_t size = t.dims[f.axis] / f.outer, from = i * size, to = from + size, along = f.axis;
    if (f.outer > 1) {
        v = open_axis(s, v, f);
        along++;
    }
    if (s->spread)
        return ebb_emit_reshape(b, own_slice(s, v, along, size), t.dims, t.rank);
    v = ebb_emit(b, EBB_OP_SLICE, v, ebb_const_ints(b, &from, 1), ebb_const_ints(b, &to, 1),
                 ebb_const_ints(b, &along, 1));
    return ebb_emit_reshape(b, v, t.dims, t.rank);
}

/* *slice: the whole of v, then its slice. */
static ebb_status get_slice(splitting *s, ebb_value v, form f, int64_t i, ebb_value *slice)
{
    ebb_batch_slices *c = &s->slices[v.i];
    if (c->form.axis != f.axis || c->form.outer != f.outer) { // the last way asked for is kept
        c->form = f;
        c->part = EBB_SCRATCH(s->e, ebb_value, (size_t)s->parts);
        EBB_GOT(c->part);
    }
    if (c->part[i].i == 0)
        c->part[i] = slice_of(s, *slice, f, i);
    *slice = c->part[i];
    return s->b.status;
}

static ebb_status get_input(splitting *s, ebb_value v, form f, int64_t i, ebb_value *in)
{
    *in = v;
    if (v.i != 0 && s->early[v.i])
        *in = s->sum[v.i];
    else if (v.i != 0 && !s->spread && s->whole[v.i].i != 0)
        *in = s->whole[v.i];
    if (v.i == 0 || f.where == EBB_BATCH_WHOLE)
        return NULL;
    const form own = s->form[v.i];
    const bool otherwise =
        own.where == EBB_BATCH_PARTS && (own.axis != f.axis || own.outer != f.outer);
    if (own.where == EBB_BATCH_WHOLE || otherwise || s->part[v.i][i].i == 0)
        return get_slice(s, v, f, i, in);
    *in = s->part[v.i][i];
    return NULL;
}

static ebb_value sum_of_group(splitting *s, ebb_value v)
{
    ebb_with_int(&s->b, "ranks", s->parts);
    return ebb_emit(&s->b, EBB_OP_ALL_REDUCE, v);
}

/* ---- what the labels of a loss count ---- */

static ebb_value count_labels(splitting *s, ebb_value labels, ebb_value weights, bool ignores,
                              int64_t ignored, ebb_dtype dtype)
{
    ebb_build *b = &s->b;
    const ebb_type t = *ebb_value_of(s->g, labels)->type;
    int64_t elements, axes[EBB_MAX_RANK];
    if (!ignores && weights.i == 0 && ebb_type_elements(&t, &elements))
        return ebb_const_scalar(b, dtype, (double)elements * (s->spread ? (double)s->parts : 1));
    ebb_value out = EBB_NO_VALUE, one = ebb_const_scalar(b, dtype, 1), each = one;
    if (ignores)
        out = ebb_emit(b, EBB_OP_EQUAL, labels, ebb_const_like(b, labels, (double)ignored));
    if (weights.i != 0) {
        ebb_value safe = labels;
        if (ignores)
            safe = ebb_emit(b, EBB_OP_WHERE, out, ebb_const_like(b, labels, 0), labels);
        each = ebb_emit(b, EBB_OP_GATHER, weights, safe);
    }
    if (ignores)
        each = ebb_emit(b, EBB_OP_WHERE, out, ebb_const_scalar(b, dtype, 0), each);
    for (int d = 0; d < t.rank; d++)
        axes[d] = d;
    ebb_value count = ebb_emit_reduce(b, EBB_OP_REDUCE_SUM, each, axes, (uint32_t)t.rank, false);
    return s->spread ? sum_of_group(s, count) : count;
}

/* What it makes for dY is shared out with dY. */
static bool takes_dy(ebb_op op)
{
    return op == EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS_GRAD || op == EBB_OP_SCORES_CROSS_ENTROPY;
}

uint32_t ebb_batch_labels(ebb_op op)
{
    return op == EBB_OP_LINEAR_CROSS_ENTROPY ? 3 : takes_dy(op) ? 2 : 1;
}

/* Once for a loss and its gradient. */
static ebb_status get_total(splitting *s, ebb_node n, uint32_t labels_at, ebb_value *value)
{
    ebb_attrs attrs = ebb_node_attrs(s->g, n);
    ebb_value labels = ebb_in(s->g, n, labels_at), weights = ebb_in(s->g, n, labels_at + 1);
    bool ignores = ebb_attr_find(&attrs, "ignore_index") != NULL;
    int64_t ignored = ebb_attr_int(&attrs, "ignore_index", 0);
    for (size_t i = 0; i < s->total_count; i++) {
        const ebb_batch_count *t = &s->totals[i];
        *value = t->value;
        if (ebb_same_value(t->labels, labels) && ebb_same_value(t->weights, weights) &&
            t->ignores == ignores && t->ignored == ignored)
            return NULL;
    }
    ebb_dtype dtype = (ebb_dtype)ebb_value_of(s->g, ebb_in(s->g, n, labels_at - 1))->type->dtype;
    if (ebb_is_narrow(ebb_value_of(s->g, ebb_in(s->g, n, labels_at - 1))->type) ||
        ebb_node_of(s->g, n)->op == EBB_OP_LINEAR_CROSS_ENTROPY)
        dtype = (ebb_dtype)ebb_value_of(s->g, ebb_out(s->g, n, 0))->type->dtype;
    s->b.name = ebb_value_name(s->g, labels);
    const ebb_value here = s->spread ? s->part[labels.i][0] : labels;
    *value = count_labels(s, here, weights, ignores, ignored, dtype);
    s->totals[s->total_count++] = (ebb_batch_count){labels, weights, *value, ignored, ignores};
    return s->b.status;
}

/* ---- one node of one part ---- */

/* {seed, step, part, parts} of part i, or of the process (kernels/draws.h): what it draws is what its rows
 * draw in the whole. A key that is of a part already is of a part of that. Forward and backward share it. */
static ebb_status get_key(splitting *s, ebb_value key, int64_t i, ebb_value *own)
{
    ebb_build *b = &s->b;
    if (s->key.i != 0 && s->key_part == i && ebb_same_value(s->key_of, key))
        return *own = s->key, NULL;
    ebb_value part = ebb_const_ints(b, &i, 1);
    b->name = ebb_value_name(s->g, key);
    if (s->spread)
        part = ebb_emit_reshape(b, rank_of(s), (int64_t[]){1}, 1);
    ebb_with_int(b, "axis", 0);
    if (ebb_build_type(b, key)->dims[0] == 4) {
        const ebb_value none = ebb_const_ints(b, (int64_t[]){0, 0}, 2);
        const ebb_value zero = ebb_const_ints(b, (int64_t[]){0}, 1);
        const ebb_value more = ebb_emit(b, EBB_OP_CONCAT, none, part, zero);
        const ebb_value times = ebb_const_ints(b, (int64_t[]){1, 1, s->parts, s->parts}, 4);
        s->key = ebb_emit(b, EBB_OP_ADD, ebb_emit(b, EBB_OP_MUL, key, times), more);
    } else {
        s->key = ebb_emit(b, EBB_OP_CONCAT, key, part, ebb_const_ints(b, &s->parts, 1));
    }
    *own = s->key;
    s->key_part = i;
    s->key_of = key;
    return b->status;
}

/* Elements of a part that lie together in the whole: `run` of what draws for it; 0: all of them do. */
static int64_t run_of(const splitting *s, ebb_node n)
{
    const form f = s->rule[n.i]->out[0];
    const ebb_value v = ebb_out(s->g, n, 0);
    const ebb_type t = part_type(s, v, f.axis);
    int64_t run = t.dims[f.axis] / f.outer, all = 0;
    for (int d = f.axis + 1; d < t.rank; d++)
        run *= t.dims[d];
    return ebb_type_elements(&t, &all) && run == all ? 0 : run;
}

/* The stream of part i: that of the node for part 0, so that few names change. */
static int64_t stream_of(int64_t stream, int64_t part)
{
    char text[64];
    if (part == 0)
        return stream;
    (void)snprintf(text, sizeof text, "%lld/part_%lld", (long long)stream, (long long)part);
    return ebb_hash31(text);
}

/* Attributes that are not the same in each part. */
static ebb_status fit_attributes(splitting *s, ebb_node n, ebb_node made, int64_t i)
{
    ebb_graph *g = s->g;
    const ebb_batch_node *b = s->rule[n.i];
    ebb_attrs attrs = ebb_node_attrs(g, n);
    switch (ebb_node_of(g, n)->op) {
    case EBB_OP_EBB_DROPOUT:
    case EBB_OP_EBB_DROPOUT_SEED_GRAD:
        return run_of(s, n) != 0 || ebb_attr_find(&attrs, "run") != NULL
                   ? ebb_node_set_int(g, made, "run", run_of(s, n))
                   : NULL;
    case EBB_OP_DROPOUT:
    case EBB_OP_RANDOM_NORMAL_LIKE:
    case EBB_OP_RANDOM_UNIFORM_LIKE:
        if (ebb_attr_find(&attrs, "seed") == NULL || i == 0)
            return NULL;
        if (ebb_node_of(g, n)->op == EBB_OP_DROPOUT)
            return ebb_node_set_int(g, made, "seed", stream_of(ebb_attr_int(&attrs, "seed", 0), i));
        return ebb_node_set_float(
            g, made, "seed",
            (double)stream_of((int64_t)(ebb_attr_float(&attrs, "seed", 0) * 1024), i));
    case EBB_OP_AVERAGE_POOL_GRAD:
    case EBB_OP_CONV_WEIGHT_GRAD_POOLED: {
        uint32_t count;
        const int64_t *shape = ebb_attr_ints(&attrs, "input_shape", &count);
        if (shape == NULL || count == 0 || count > EBB_MAX_RANK)
            return NULL;
        int64_t own[EBB_MAX_RANK];
        memcpy(own, shape, count * sizeof *own);
        own[0] /= s->parts;
        return ebb_node_set_ints(g, made, "input_shape", own, count);
    }
    default:
        return b->weighs ? ebb_node_set_string(g, made, "reduction", "sum") : NULL;
    }
}

/* Names, phase and provenance of a copy. */
static ebb_status mark(splitting *s, ebb_node n, ebb_node made, int64_t i)
{
    ebb_graph *g = s->g;
    char text[560];
    const char *name = ebb_text(g, ebb_node_of(g, n)->name);
    if (name[0] == '\0')
        name = ebb_value_name(g, ebb_out(g, n, 0));
    ebb_props *props = &ebb_node_of(g, made)->props;
    EBB_TRY(ebb_props_set_all(g, props, g, &ebb_node_of(g, n)->props));
    ebb_props_drop(g, props, "ebb.cost_ns"); // measured with the whole batch
    (void)snprintf(text, sizeof text, "%.500s", name);
    EBB_TRY(ebb_props_set(g, &ebb_node_of(g, made)->props, "ebb.part_of", text));
    EBB_TRY(ebb_props_set(g, &ebb_node_of(g, made)->props, "ebb.pass", s->e->pass->name));
    name_part(text, s, name, i);
    if (s->again) // a part may be made again more than once; values' names tell apart
        (void)snprintf(text, sizeof text, "%.500s/again", ebb_value_name(g, ebb_out(g, made, 0)));
    ebb_str own = ebb_graph_intern(g, text);
    EBB_GOT(own.i != 0);
    ebb_node_info *info = ebb_node_of(g, made);
    info->name = own;
    info->overload = ebb_node_of(g, n)->overload;
    info->doc = ebb_node_of(g, n)->doc;
    info->phase = s->again ? EBB_BACKWARD : ebb_node_of(g, n)->phase;
    return NULL;
}

static ebb_status copy_node(splitting *s, ebb_node n, int64_t i, const ebb_value *in,
                            ebb_node *made)
{
    ebb_graph *g = s->g;
    const ebb_batch_node *b = s->rule[n.i];
    uint32_t ins = ebb_node_of(g, n)->in_count, outs = ebb_node_of(g, n)->out_count;
    ebb_value out[EBB_BATCH_OPERANDS] = {{0}};
    for (uint32_t k = 0; k < outs; k++) {
        ebb_value old = ebb_out(g, n, k);
        if (old.i == 0)
            continue;
        bool sliced = b->out[k].where == EBB_BATCH_PARTS;
        ebb_type type = sliced ? part_type(s, old, b->out[k].axis) : *ebb_value_of(g, old)->type;
        char text[560];
        name_part(text, s, ebb_value_name(g, old), i);
        EBB_TRY(ebb_value_add(g, &out[k], text, &type));
        s->part[old.i][i] = out[k];
    }
    const char *domain = ebb_text(g, ebb_node_of(g, n)->domain);
    const char *op_name = ebb_text(g, ebb_node_of(g, n)->op_name);
    EBB_TRY(ebb_node_add(g, made, s->end, domain, op_name, in, ins, out, outs));
    for (uint32_t k = 0; k < ebb_node_of(g, n)->attr_count; k++) {
        ebb_attr attr = ebb_node_of(g, n)->attr[k];
        EBB_TRY(ebb_node_set_attr(g, *made, &attr));
    }
    EBB_TRY(fit_attributes(s, n, *made, i));
    EBB_TRY(mark(s, n, *made, i));
    return ebb_while(ebb_infer_node(g, *made), "computing %s in parts", ebb_node_label(g, n));
}

/* This part's share of output k becomes `value`. */
/* In the factor's dtype: a count of labels is more than 16 bits hold. */
static ebb_status change_share(splitting *s, ebb_node n, uint32_t k, int64_t i, ebb_op op,
                               ebb_value factor)
{
    ebb_value old = ebb_out(s->g, n, k);
    if (old.i == 0)
        return s->b.status;
    ebb_value whole = s->part[old.i][i];
    if (s->b.status != NULL)
        return s->b.status;
    ebb_dtype dtype = (ebb_dtype)ebb_build_type(&s->b, whole)->dtype;
    s->b.name = ebb_value_name(s->g, whole);
    whole = ebb_emit_cast(&s->b, whole, (ebb_dtype)ebb_build_type(&s->b, factor)->dtype);
    s->part[old.i][i] = ebb_emit_cast(&s->b, ebb_emit(&s->b, op, whole, factor), dtype);
    return s->b.status;
}

/* Means: what a part has is its share of the mean over the batch. */
static ebb_status share_means(splitting *s, ebb_node n, int64_t i)
{
    const ebb_batch_node *b = s->rule[n.i];
    ebb_op op = ebb_node_of(s->g, n)->op;
    if (b->mean)
        return change_share(s, n, 0, i, EBB_OP_MUL,
                            ebb_const_like(&s->b, ebb_out(s->g, n, 0), 1.0 / (double)s->parts));
    if (!b->weighs || op == EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS_GRAD)
        return NULL;
    ebb_value count;
    uint32_t outs = op == EBB_OP_LINEAR_CROSS_ENTROPY ? ebb_node_of(s->g, n)->out_count : 1;
    EBB_TRY(get_total(s, n, ebb_batch_labels(op), &count));
    for (uint32_t k = 0; k < outs; k++)
        EBB_TRY(change_share(s, n, k, i, EBB_OP_DIV, count));
    return NULL;
}

/* Sums whose total someone needs are added to at once. */
static ebb_status add_shares(splitting *s, ebb_node n, int64_t i)
{
    uint32_t outs = ebb_node_of(s->g, n)->out_count;
    for (uint32_t k = 0; k < outs; k++) {
        ebb_value v = ebb_out(s->g, n, k);
        if (v.i == 0 || !s->needed[v.i] || (s->form[v.i].where != EBB_BATCH_SUM && !s->early[v.i]))
            continue;
        s->b.name = ebb_value_name(s->g, v);
        s->sum[v.i] = i > 0       ? ebb_emit(&s->b, EBB_OP_ADD, s->sum[v.i], s->part[v.i][i])
                      : s->spread ? sum_of_group(s, s->part[v.i][0])
                                  : s->part[v.i][0];
        EBB_TRY(s->b.status);
    }
    return NULL;
}

ebb_status ebb_batch_compute(splitting *s, ebb_node n, int64_t i)
{
    ebb_graph *g = s->g;
    const ebb_batch_node *b = s->rule[n.i];
    ebb_op op = ebb_node_of(g, n)->op;
    ebb_value in[EBB_BATCH_OPERANDS];
    ebb_node made;
    s->b.phase = s->again ? EBB_BACKWARD : (ebb_phase)ebb_node_of(g, n)->phase;
    for (uint32_t k = 0; k < ebb_node_of(g, n)->in_count; k++)
        EBB_TRY(get_input(s, ebb_in(g, n, k), b->in[k], i, &in[k]));
    if (b->shape_input >= 0) {
        ebb_value y = ebb_out(g, n, 0);
        ebb_type t = b->out[0].where == EBB_BATCH_PARTS ? part_type(s, y, b->out[0].axis)
                                                        : *ebb_value_of(g, y)->type;
        in[b->shape_input] = ebb_const_ints(&s->b, t.dims, (uint32_t)t.rank);
    }
    if (op == EBB_OP_EBB_DROPOUT || op == EBB_OP_EBB_DROPOUT_SEED_GRAD)
        EBB_TRY(get_key(s, ebb_in(g, n, 1), i, &in[1]));
    if (op == EBB_OP_BATCH_NORM_TRAINING && i > 0)
        for (uint32_t k = 1; k < 3; k++) // running statistics go on from the part before
            if (ebb_out(g, n, k).i != 0)
                in[k + 2] = s->part[ebb_out(g, n, k).i][i - 1];
    if (b->weighs && takes_dy(op)) {
        ebb_value count;
        EBB_TRY(get_total(s, n, ebb_batch_labels(op), &count));
        s->b.name = ebb_value_name(g, ebb_out(g, n, 0));
        in[0] = ebb_emit(&s->b, EBB_OP_DIV, in[0], count);
    }
    EBB_TRY(s->b.status);
    EBB_TRY(copy_node(s, n, i, in, &made));
    EBB_TRY(share_means(s, n, i));
    return add_shares(s, n, i);
}

/* ---- outside of the parts ---- */

ebb_status ebb_batch_whole(splitting *s, ebb_value v, ebb_value *whole)
{
    const form f = s->form[v.i];
    const ebb_type t = *ebb_value_of(s->g, v)->type;
    ebb_value *parts = s->part[v.i];
    *whole = s->whole[v.i];
    if (whole->i != 0)
        return NULL;
    s->b.name = ebb_value_name(s->g, v);
    if (f.outer > 1) {
        parts = EBB_SCRATCH(s->e, ebb_value, (size_t)s->parts);
        for (int64_t i = 0; parts != NULL && i < s->parts; i++)
            parts[i] = open_axis(s, s->part[v.i][i], f);
    }
    EBB_GOT(parts);
    ebb_with_int(&s->b, "axis", f.outer > 1 ? f.axis + 1 : f.axis);
    *whole = ebb_emit_list(&s->b, EBB_OP_CONCAT, parts, (uint32_t)s->parts);
    *whole = s->whole[v.i] = ebb_emit_reshape(&s->b, *whole, t.dims, t.rank);
    return s->b.status;
}

ebb_status ebb_batch_put_together(splitting *s, ebb_value v)
{
    form f = s->form[v.i];
    const bool is_sum = f.where == EBB_BATCH_SUM || s->early[v.i];
    ebb_value with = is_sum ? s->sum[v.i] : s->part[v.i][s->spread ? 0 : s->parts - 1];
    if (f.where == EBB_BATCH_PARTS && s->spread)
        EBB_TRY(ebb_rows_mark(s->g, with, f.outer > 1 ? -1 : f.axis));
    if (f.where == EBB_BATCH_PARTS && !s->spread)
        EBB_TRY(ebb_batch_whole(s, v, &with));
    return put(s, v, with);
}
