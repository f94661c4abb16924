/* batch_forms.c: which form each value of a step has that is computed in parts of its batch, or why it
 * cannot be. See batch_rules.h. */
#include "passes/memory/rounding/batch_split.h"

typedef ebb_batch_form form;
typedef ebb_batch_split splitting;

/* ---- a node ---- */

static bool is_float(const ebb_graph *g, ebb_value v)
{
    return ebb_dtype_is_float((ebb_dtype)ebb_value_of(g, v)->type->dtype);
}

bool ebb_batch_has_floats(const ebb_graph *g, ebb_node n)
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

/* What is looked up in a table of tokens is no label any more; class weights are a row. */
static bool is_weight(const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    return is_float(g, v) && (info->role == EBB_ROLE_PARAMETER ||
                              (info->role == EBB_ROLE_FROZEN && info->type->rank > 1));
}

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
        all.floats = all.floats || (s->depends[info->in[i].i] && !s->labels[info->in[i].i]) ||
                     (s->spread && is_weight(s->g, info->in[i]));
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
    b->spread = s->spread;
    b->norm_per_part = s->norm_per_part;
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

/* Whether rows are computed of v, or of what is made of it: a statistic of the batch. */
static bool rows_need(splitting *s, ebb_value v)
{
    const ebb_graph *g = s->g;
    const uint32_t now = ++s->looks;
    size_t count = 1;
    s->look[0] = v;
    while (count > 0) {
        const ebb_value_info *info = ebb_value_of(g, s->look[--count]);
        for (uint32_t u = 0; u < info->use_count; u++) {
            const ebb_node n = info->uses[u].node;
            if (s->looked[n.i] == now || ebb_node_of(g, n)->phase == EBB_UPDATE)
                continue;
            s->looked[n.i] = now;
            if (look(s, n).parts)
                return true;
            for (uint32_t k = 0; k < ebb_node_of(g, n)->out_count; k++)
                if (ebb_out(g, n, k).i != 0)
                    s->look[count++] = ebb_out(g, n, k);
        }
    }
    return false;
}

/* Sums that are wanted of all parts before any of them goes on: what labels alone tell, part by part,
 * and what rows need. */
static void take_early_sums(splitting *s, ebb_node n, bool all)
{
    const ebb_node_info *info = ebb_node_of(s->g, n);
    for (uint32_t k = 0; k < info->out_count; k++) {
        const ebb_value v = info->out[k];
        if (v.i == 0 || s->form[v.i].where != EBB_BATCH_SUM || (!all && !rows_need(s, v)))
            continue;
        s->early[v.i] = s->needed[v.i] = true;
        s->form[v.i] = (form){EBB_BATCH_WHOLE, -1, 0};
    }
}

/* Whether what it reads in parts is rows that lie behind one another in the whole. */
static bool can_join(const splitting *s, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(s->g, n);
    for (uint32_t i = 0; i < info->in_count; i++) {
        const form f = s->form[info->in[i].i];
        if (info->in[i].i != 0 && f.where != EBB_BATCH_WHOLE &&
            (f.where != EBB_BATCH_PARTS || f.axis != 0 || f.outer != 1))
            return false;
    }
    return s->spread;
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
        EBB_GOT(!splits || b);
        const char *reason = splits ? ebb_batch_rule(b) : NULL;
        bool known = splits && reason == NULL;
        if (ebb_op_has(info->op, EBB_STATISTICS))
            *why = reason; // its gradient needs the parts
        bool whole =
            !known || !ebb_batch_has_floats(s->g, n) || (!all.floats && counts_labels(s, n));
        for (uint32_t k = 0; k < info->out_count; k++)
            s->labels[info->out[k].i] = whole && all.depends && !all.floats;
        take_forms(s, n, known ? b : NULL, whole, all.depends);
        s->clones[n.i] = !whole;
        s->rule[n.i] = whole ? NULL : b;
        return NULL;
    }
    ebb_batch_node *b = describe(s, n, false);
    EBB_GOT(b);
    const char *reason = ebb_batch_rule(b);
    if (reason != NULL && !all.parts)
        return compute_later(s, n);
    if (reason != NULL && !all.floats && !all.later && can_join(s, n)) {
        s->joins[n.i] = true;
        for (uint32_t k = 0; k < info->out_count; k++)
            s->labels[info->out[k].i] = true;
        take_forms(s, n, NULL, true, true);
        return NULL;
    }
    *why = reason;
    if (reason != NULL)
        return NULL;
    if (b->weighs && !s->spread &&
        s->form[ebb_in(s->g, n, ebb_batch_labels(info->op)).i].where != EBB_BATCH_WHOLE) {
        *why = "its labels are computed in parts";
        return NULL;
    }
    if (s->spread && ebb_op_has(info->op, EBB_RANDOM) && info->op != EBB_OP_EBB_DROPOUT) {
        *why = "each process would draw the same numbers, since no key of the step tells them";
        return NULL;
    }
    take_forms(s, n, b, false, true);
    for (uint32_t k = 0; k < info->out_count; k++)
        s->labels[info->out[k].i] = s->spread && !all.floats;
    if (s->spread)
        take_early_sums(s, n, !all.floats);
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
        s->form[g->inputs[i].i] = (form){s->spread ? EBB_BATCH_PARTS : EBB_BATCH_WHOLE, s->axis, 1};
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
    s->early = EBB_NEW(scratch, bool, g->value_count);
    s->look = EBB_NEW(scratch, ebb_value, g->value_count + 1);
    s->looked = EBB_NEW(scratch, uint32_t, g->node_count);
    s->needed = EBB_NEW(scratch, bool, g->value_count);
    s->clones = EBB_NEW(scratch, bool, g->node_count);
    s->later = EBB_NEW(scratch, bool, g->node_count);
    s->joins = EBB_NEW(scratch, bool, g->node_count);
    s->whole = EBB_NEW(scratch, ebb_value, g->value_count);
    s->rule = EBB_NEW(scratch, ebb_batch_node *, g->node_count);
    s->part = EBB_NEW(scratch, ebb_value *, g->value_count);
    s->sum = EBB_NEW(scratch, ebb_value, g->value_count);
    s->slices = EBB_NEW(scratch, ebb_batch_slices, g->value_count);
    s->totals = EBB_NEW(scratch, ebb_batch_count, g->node_count);
    EBB_GOT(s->form && s->early && s->depends && s->labels && s->needed && s->clones && s->later &&
            s->rule && s->joins && s->whole && s->look && s->looked && s->part && s->sum &&
            s->slices && s->totals);
    for (size_t v = 0; v < g->value_count; v++)
        s->form[v].axis = -1;
    return NULL;
}

static bool is_known(const ebb_graph *g, ebb_value v)
{
    const ebb_type *t = ebb_value_of(g, v)->type;
    int64_t elements;
    return v.i == 0 || (ebb_type_is_static(t) && ebb_type_elements(t, &elements));
}

ebb_status ebb_batch_begin(splitting *s, const char **why)
{
    EBB_TRY(allocate(s));
    s->rows = find_batch(s);
    if (s->rows < 1)
        *why = "no input has a batch axis";
    else if (s->rows % s->parts != 0)
        *why = "the batch is not divisible by the number of parts";
    return NULL;
}

ebb_status ebb_batch_analyse(splitting *s, const char **why, ebb_node *at)
{
    *at = EBB_NO_NODE;
    EBB_TRY(ebb_batch_begin(s, why));
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
