/* micro-batch: compute the step in parts of the batch, one after another, and add up the gradients.
 *
 *   before   y = f(x, w)  loss = mean(y)  dw = g(x, y)            all activations of the batch
 *   after    x0, x1 = halves of x
 *            y0 = f(x0, w)  l0 = ...  dw0 = g(x0, y0)             those of one half at a time
 *            y1 = f(x1, w)  l1 = ...  dw1 = g(x1, y1)
 *            loss = l0 + l1,  dw = dw0 + dw1                       then the update, as it was
 *
 * Every value of the forward and backward gets a form (batch_rules.h): slices of an axis, sums, or
 * whole. The backward is that of the whole batch, seen part by part, so constants in it (one over
 * the batch size, say) stay what they are, and sums of parts are the very gradients. A loss that
 * divides by what counts (mean, with ignored labels or class weights) becomes a sum, divided by
 * what counts in the whole batch, which the labels alone tell. Sums are added to as soon as a part
 * has its share, so that one sum and one share are alive.
 *
 * What has no floats (labels, masks, positions), what a loss counts of its labels and what does not
 * depend on the batch is computed once, and sliced where a part needs it. Graph outputs with a batch
 * axis are put together again.
 *
 * Dropout: the parts are different samples and draw different bits. Part 0 keeps the stream of the
 * node, part i draws from a stream made of it and i; forward and backward agree. So with dropout on
 * the step is one of the same distribution, not of the same bits.
 *
 * Batch norm takes its statistics over what it sees, so it is refused; batch-norm=per-part allows
 * the statistics of each part, and the running ones go from part to part. That is another step, as
 * accumulating gradients in a training loop is.
 *
 * Rounding: sums over the batch are made part by part.
 *
 * Declines, naming the node, where an operator mixes samples or no rule tells what it does with
 * parts: run it before passes that pack what is stored.
 */
#include "onnx/graph/infer.h"
#include "passes/memory/rounding/batch_split.h"
#include "passes/passes.h"

typedef ebb_batch_form form;
typedef ebb_batch_split splitting;

/* ---- analysis: which form each value has ---- */

static bool is_float(const ebb_graph *g, ebb_value v)
{
    return ebb_dtype_is_float((ebb_dtype)ebb_value_of(g, v)->type->dtype);
}

static bool has_floats(const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    for (uint32_t k = 0; k < info->out_count; k++)
        if (info->out[k].i != 0 && is_float(g, info->out[k]))
            return true;
    return false;
}

typedef struct seen { /* what a node's inputs are */
    bool parts, later, depends, known_axis, floats;
} seen;

static seen look(const splitting *s, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(s->g, n);
    seen all = {false};
    for (uint32_t i = 0; i < info->in_count; i++) {
        if (info->in[i].i == 0)
            continue;
        form f = s->form[info->in[i].i];
        all.parts = all.parts || f.where == EBB_BATCH_PARTS || f.where == EBB_BATCH_OWN;
        all.later = all.later || f.where == EBB_BATCH_SUM || f.where == EBB_BATCH_LATER ||
                    f.where == EBB_BATCH_CHAIN;
        all.depends = all.depends || s->depends[info->in[i].i];
        all.floats = all.floats || (s->depends[info->in[i].i] && !s->labels[info->in[i].i]);
        all.known_axis = all.known_axis || (f.where == EBB_BATCH_WHOLE && f.axis >= 0);
    }
    return all;
}

/* The node as the rules see it; `split`: whole inputs whose batch axis is known come in parts. */
static ebb_batch_node *describe(const splitting *s, ebb_node n, bool split)
{
    ebb_batch_node *b = EBB_SCRATCH(s->e, ebb_batch_node, 1);
    const ebb_node_info *info = ebb_node_of(s->g, n);
    if (b == NULL)
        return NULL;
    *b = (ebb_batch_node){.g = s->g, .n = n, .scratch = s->e->scratch, .parts = s->parts};
    b->norm_per_part = strcmp(ebb_option_string(s->e, "batch-norm"), "per-part") == 0;
    for (uint32_t i = 0; i < info->in_count && i < EBB_BATCH_OPERANDS; i++) {
        if (info->in[i].i == 0)
            continue;
        b->in[i] = s->form[info->in[i].i];
        if (split && b->in[i].where == EBB_BATCH_WHOLE && b->in[i].axis >= 0)
            b->in[i].where = EBB_BATCH_PARTS;
    }
    return b;
}

static void take_forms(splitting *s, ebb_node n, const ebb_batch_node *b, bool whole, bool depends)
{
    const ebb_node_info *info = ebb_node_of(s->g, n);
    for (uint32_t k = 0; k < info->out_count; k++) {
        if (info->out[k].i == 0)
            continue;
        form f = b != NULL ? b->out[k] : (form){.axis = -1};
        if (whole)
            f = (form){EBB_BATCH_WHOLE, f.where == EBB_BATCH_PARTS ? f.axis : -1, f.outer};
        s->form[info->out[k].i] = f;
        s->depends[info->out[k].i] = depends;
    }
}

static ebb_status compute_later(splitting *s, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(s->g, n);
    s->later[n.i] = true;
    for (uint32_t i = 0; i < info->in_count; i++)
        s->needed[info->in[i].i] = true;
    for (uint32_t k = 0; k < info->out_count; k++)
        s->form[info->out[k].i] = (form){.where = EBB_BATCH_LATER};
    return NULL;
}

/* What a loss makes of its labels alone, and is no larger than they are, tells what a mean is divided
 * by: how many count, or their weights. */
static bool counts_labels(const splitting *s, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(s->g, n);
    int64_t most = 0, made = 0, count;
    if (info->phase != EBB_LOSS)
        return false;
    for (uint32_t i = 0; i < info->in_count; i++)
        if (s->labels[info->in[i].i] &&
            ebb_type_elements(ebb_value_of(s->g, info->in[i])->type, &count))
            most = count > most ? count : most;
    for (uint32_t k = 0; k < info->out_count; k++)
        if (info->out[k].i != 0 &&
            ebb_type_elements(ebb_value_of(s->g, info->out[k])->type, &count))
            made += count;
    return made <= most;
}

/* One node in its place. *why: why the step cannot be split, a literal. */
static ebb_status classify(splitting *s, ebb_node n, const char **why)
{
    const ebb_node_info *info = ebb_node_of(s->g, n);
    seen all = look(s, n);
    if (info->in_count > EBB_BATCH_OPERANDS || info->out_count > EBB_BATCH_OPERANDS) {
        *why = "it has too many operands";
        return NULL;
    }
    if (info->phase == EBB_UPDATE) {
        *why = all.parts ? "the update reads a value of the batch" : NULL;
        return compute_later(s, n);
    }
    if (!all.parts && !all.later) {
        bool splits = all.known_axis && all.depends;
        ebb_batch_node *b = splits ? describe(s, n, true) : NULL;
        if (splits && b == NULL)
            return ebb_error_memory();
        const char *reason = splits ? ebb_batch_rule(b) : NULL;
        bool known = splits && reason == NULL;
        if (ebb_op_has(info->op, EBB_STATISTICS))
            *why = reason; // its gradient needs the parts
        bool whole = !known || !has_floats(s->g, n) || (!all.floats && counts_labels(s, n));
        for (uint32_t k = 0; k < info->out_count; k++)
            s->labels[info->out[k].i] = whole && all.depends && !all.floats;
        take_forms(s, n, known ? b : NULL, whole, all.depends);
        s->clones[n.i] = !whole;
        s->rule[n.i] = whole ? NULL : b;
        return NULL;
    }
    ebb_batch_node *b = describe(s, n, false);
    if (b == NULL)
        return ebb_error_memory();
    const char *reason = ebb_batch_rule(b);
    if (reason != NULL && !all.parts)
        return compute_later(s, n);
    *why = reason;
    if (reason != NULL)
        return NULL;
    if (b->weighs &&
        s->form[ebb_in(s->g, n, ebb_batch_labels(info->op)).i].where != EBB_BATCH_WHOLE) {
        *why = "its labels are computed in parts";
        return NULL;
    }
    take_forms(s, n, b, false, true);
    s->clones[n.i] = true;
    s->rule[n.i] = b;
    return NULL;
}

/* Graph inputs with as many samples as the first are the batch. */
static int64_t find_batch(splitting *s)
{
    const ebb_graph *g = s->g;
    int64_t size = -1;
    for (size_t i = 0; i < g->input_count; i++) {
        const ebb_value_info *info = ebb_value_of(g, g->inputs[i]);
        if ((info->flags & EBB_IS_INITIALIZER) != 0 || info->type->rank <= s->axis)
            continue;
        size = size < 0 ? info->type->dims[s->axis] : size;
        if (info->type->dims[s->axis] != size)
            continue;
        s->form[g->inputs[i].i] = (form){EBB_BATCH_WHOLE, s->axis, 1};
        s->depends[g->inputs[i].i] = true;
        s->labels[g->inputs[i].i] = !is_float(g, g->inputs[i]);
    }
    return size;
}

static const char *check_ends(splitting *s)
{
    const ebb_graph *g = s->g;
    EBB_EACH_VALUE(g, v)
        if ((ebb_value_of(g, v)->flags & EBB_IS_CAPTURED) != 0 &&
            s->form[v.i].where != EBB_BATCH_WHOLE)
            return "a subgraph reads a value of the batch";
    for (size_t i = 0; i < g->binding_count; i++) {
        ebb_batch_where where = s->form[g->bindings[i].next.i].where;
        s->needed[g->bindings[i].next.i] = true;
        if (where == EBB_BATCH_PARTS || where == EBB_BATCH_OWN)
            return "a state is replaced by a value of the batch";
    }
    for (size_t i = 0; i < g->output_count; i++) {
        s->needed[g->outputs[i].i] = true;
        if (s->form[g->outputs[i].i].where == EBB_BATCH_OWN)
            return "an output is a statistic of the whole batch";
    }
    return NULL;
}

/* ---- the whole step ---- */

static ebb_status allocate(splitting *s)
{
    const ebb_graph *g = s->g;
    ebb_arena *scratch = s->e->scratch;
    s->value_count = g->value_count;
    s->node_count = g->node_count;
    s->form = EBB_NEW(scratch, form, g->value_count);
    s->depends = EBB_NEW(scratch, bool, g->value_count);
    s->labels = EBB_NEW(scratch, bool, g->value_count);
    s->needed = EBB_NEW(scratch, bool, g->value_count);
    s->clones = EBB_NEW(scratch, bool, g->node_count);
    s->later = EBB_NEW(scratch, bool, g->node_count);
    s->rule = EBB_NEW(scratch, ebb_batch_node *, g->node_count);
    s->part = EBB_NEW(scratch, ebb_value *, g->value_count);
    s->sum = EBB_NEW(scratch, ebb_value, g->value_count);
    s->slices = EBB_NEW(scratch, ebb_batch_slices, g->value_count);
    s->totals = EBB_NEW(scratch, ebb_batch_count, g->node_count);
    if (s->form == NULL || s->depends == NULL || s->labels == NULL || s->needed == NULL ||
        s->clones == NULL || s->later == NULL || s->rule == NULL || s->part == NULL ||
        s->sum == NULL || s->slices == NULL || s->totals == NULL)
        return ebb_error_memory();
    for (size_t v = 0; v < g->value_count; v++)
        s->form[v].axis = -1;
    return NULL;
}

/* The list of nodes as it was; ends with none. */
static ebb_status list_nodes(const splitting *s, ebb_node **list)
{
    size_t count = 0;
    *list = EBB_SCRATCH(s->e, ebb_node, s->node_count + 1);
    if (*list == NULL)
        return ebb_error_memory();
    EBB_EACH_NODE(s->g, n)
        (*list)[count++] = n;
    return NULL;
}

static ebb_status make_room(splitting *s, const ebb_node *list)
{
    for (const ebb_node *n = list; n->i != 0; n++) {
        if (s->later[n->i]) {
            s->end = s->end.i == 0 ? *n : s->end;
            ebb_node_move(s->g, *n, EBB_NO_NODE);
        }
        for (uint32_t k = 0; s->clones[n->i] && k < ebb_node_of(s->g, *n)->out_count; k++) {
            ebb_value v = ebb_out(s->g, *n, k);
            s->part[v.i] = EBB_SCRATCH(s->e, ebb_value, (size_t)s->parts);
            if (s->part[v.i] == NULL)
                return ebb_error_memory();
        }
    }
    return NULL;
}

static bool is_output(const splitting *s, ebb_value v)
{
    return (ebb_value_of(s->g, v)->flags & EBB_IS_OUTPUT) != 0;
}

static ebb_status rewrite(splitting *s)
{
    ebb_graph *g = s->g;
    ebb_node *list;
    EBB_TRY(list_nodes(s, &list));
    EBB_TRY(make_room(s, list));
    s->b = ebb_build_at(g, s->end, EBB_FORWARD, s->e->pass->name);
    for (int64_t i = 0; i < s->parts; i++) {
        for (const ebb_node *n = list; n->i != 0; n++) {
            if (s->clones[n->i])
                EBB_TRY(ebb_batch_compute(s, *n, i));
            else if (i == 0 && !s->later[n->i])
                ebb_node_move(g, *n, s->end);
        }
    }
    for (const ebb_node *n = list; n->i != 0; n++) {
        uint32_t outs = s->clones[n->i] ? ebb_node_of(g, *n)->out_count : 0;
        for (uint32_t k = 0; k < outs; k++) {
            ebb_value v = ebb_out(g, *n, k);
            if (v.i != 0 && s->needed[v.i] &&
                (s->form[v.i].where != EBB_BATCH_PARTS || is_output(s, v)))
                EBB_TRY(ebb_batch_put_together(s, v));
        }
    }
    size_t count = 0;
    while (list[count].i != 0)
        count++;
    while (count-- > 0)
        if (s->clones[list[count].i])
            ebb_edit_remove(s->e, list[count]);
    ebb_applied(s->e);
    return NULL;
}

static bool is_split(const ebb_edit *e)
{
    EBB_EACH_NODE(e->g, n) {
        const char *pass = ebb_props_get(e->g, &ebb_node_of(e->g, n)->props, "ebb.pass");
        if (pass != NULL && strcmp(pass, e->pass->name) == 0)
            return true;
    }
    return false;
}

static bool is_known(const ebb_graph *g, ebb_value v)
{
    const ebb_type *t = ebb_value_of(g, v)->type;
    int64_t elements;
    return v.i == 0 || (ebb_type_is_static(t) && ebb_type_elements(t, &elements));
}

/* Why the step cannot be split, and at which node. */
static ebb_status analyse(splitting *s, const char **why, ebb_node *at)
{
    int64_t size = find_batch(s);
    *at = EBB_NO_NODE;
    if (size < 1)
        *why = "no input has a batch axis";
    else if (size % s->parts != 0)
        *why = "the batch is not divisible by the number of parts";
    if (*why != NULL)
        return NULL;
    bool any = false;
    EBB_EACH_NODE(s->g, n) {
        for (uint32_t k = 0; k < ebb_node_of(s->g, n)->out_count; k++)
            if (!is_known(s->g, ebb_out(s->g, n, k)))
                *why = "the shape of its output is not known";
        if (*why == NULL)
            EBB_TRY(classify(s, n, why));
        *at = n;
        if (*why != NULL)
            return NULL;
        any = any || s->clones[n.i];
    }
    *at = EBB_NO_NODE;
    *why = any ? check_ends(s) : "nothing depends on the batch";
    return NULL;
}

static ebb_status refuse(const splitting *s, ebb_node at, const char *why)
{
    if (at.i == 0)
        return ebb_error(EBB_UNSUPPORTED,
                         "micro-batch: the step cannot be split into %lld parts: %s",
                         (long long)s->parts, why);
    return ebb_error(EBB_UNSUPPORTED,
                     "micro-batch: the step cannot be split into %lld parts: %s: %s",
                     (long long)s->parts, ebb_node_label(s->g, at), why);
}

static ebb_status run(ebb_edit *e)
{
    splitting s = {.e = e, .g = e->g, .parts = ebb_option_int(e, "parts")};
    const char *why = NULL;
    ebb_node at;
    s.axis = (int)ebb_option_int(e, "axis");
    if (!ebb_option_given(e, "parts"))
        return ebb_error(EBB_USAGE, "micro-batch: say into how many parts: parts=4");
    if (is_split(e))
        return ebb_declined(e, EBB_NO_NODE, "the batch is split already");
    EBB_TRY(ebb_require_static(e->g));
    EBB_TRY(allocate(&s));
    EBB_TRY(analyse(&s, &why, &at));
    if (why != NULL && ebb_option_int(e, "require") != 0)
        return refuse(&s, at, why);
    if (why != NULL)
        return ebb_declined(e, at, why);
    ebb_found(e);
    return rewrite(&s);
}

// clang-format off
static const ebb_option options[] = {
    {"parts",      EBB_OPTION_INT,    NULL,     "[2, 4096]",       "how many; the batch must be divisible by it"},
    {"axis",       EBB_OPTION_INT,    "0",      "[0, 11]",         "the batch's in the graph inputs"},
    {"batch-norm", EBB_OPTION_CHOICE, "refuse", "refuse|per-part", "per-part: statistics of each part, which is another step"},
    {"require",    EBB_OPTION_INT,    "0",      "[0, 1]",          "1: a step that cannot be split is an error"},
    {0},
};
// clang-format on

const ebb_pass ebb_pass_micro_batch = {
    .name = "micro-batch",
    .doc = "compute the step in parts of the batch and add up the gradients",
    .paper = "Huang et al., GPipe, NeurIPS 2019",
    .exactness = EBB_ROUNDING,
    .options = options,
    .run = run,
};
