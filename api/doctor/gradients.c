/* gradients.c: what has no gradient, and lies between a parameter and the loss.
 *
 * The gradient itself is made, in the tidied copy, by the reverse mode that `ebb grad` uses; so rules that
 * decline an attribute are heard, too, and none but those. A file without a loss is differentiated
 * by the sum of its floating-point outputs: every way to the loss that a user can name goes through
 * one of them.
 */
#include "api/doctor/doctor.h"

#include "onnx/graph/infer.h"
#include "passes/gradient/reverse.h"
#include "passes/parameters/trainable.h"

static bool is_float_output(const ebb_graph *g, ebb_value v)
{
    const ebb_type *t = ebb_value_of(g, v)->type;
    return t->kind == EBB_KIND_TENSOR && ebb_dtype_is_float((ebb_dtype)t->dtype);
}

/* The sum of all elements of all outputs, or none. */
static ebb_value sum_of_outputs(ebb_build *b)
{
    ebb_graph *g = b->g;
    ebb_value sum = EBB_NO_VALUE;
    for (size_t i = 0; i < g->output_count; i++) {
        if (!is_float_output(g, g->outputs[i]))
            continue;
        ebb_with_int(b, "keepdims", 0);
        ebb_value one = ebb_emit(b, EBB_OP_REDUCE_SUM, g->outputs[i]);
        if (ebb_value_of(g, one)->type->dtype != EBB_F32) {
            ebb_with_int(b, "to", EBB_F32);
            one = ebb_emit(b, EBB_OP_CAST, one);
        }
        sum = sum.i == 0 ? one : ebb_emit(b, EBB_OP_ADD, sum, one);
    }
    return sum;
}

static ebb_status tell(ebb_doctor *d, const ebb_graph *g, const ebb_no_gradient *gap)
{
    ebb_finding *f = ebb_doctor_about(d, EBB_PROBLEM, "gradient", g, gap->node);
    EBB_GOT(f);
    if (f->count == 0) {
        bool row = ebb_op_has_grad(ebb_node_of(g, gap->node)->op);
        f->code = EBB_UNSUPPORTED;
        f->what =
            row ? ebb_arena_printf(&d->arena, "%.*s; what is trained lies before it",
                                   (int)strcspn(gap->sentence, "\n"), gap->sentence)
                : ebb_arena_printf(&d->arena,
                                   "%s has no gradient, and what is trained lies before it", f->op);
        f->help = "train only what lies behind it: --train 'PATTERN' or --freeze 'PATTERN'; or "
                  "name a loss that does not depend on it";
        EBB_GOT(f->what);
    }
    return ebb_doctor_node(d, f, g, gap->node);
}

static bool is_among(const ebb_no_gradient *list, size_t count, ebb_node n)
{
    for (size_t i = 0; i < count; i++)
        if (ebb_same_node(list[i].node, n))
            return true;
    return false;
}

/* Makes the gradient where sizes are known and no node contradicts what it reads, which rules take for
 * granted. What has no rule at all is told first: behind it no rule may be asked. nodes: those of the model;
 * others were put here. */
static ebb_status differentiate(ebb_doctor *d, ebb_reverse *r, size_t nodes)
{
    EBB_TRY(ebb_reverse_find_unsupported(r));
    ebb_no_gradient *found = r->unsupported;
    size_t count = r->unsupported_count;
    for (size_t i = 0; i < count; i++)
        EBB_TRY(tell(d, r->g, &found[i]));
    if (ebb_require_static(r->g) != NULL || ebb_doctor_found(d, "types"))
        return NULL;
    const ebb_type *type = ebb_value_of(r->g, r->y)->type;
    r->unsupported = NULL;
    r->unsupported_count = r->unsupported_capacity = 0;
    r->grad[r->y.i] = ebb_const_like(&r->b, r->y, 1.0);
    if (type->rank > 0)
        r->grad[r->y.i] = ebb_emit_reshape(&r->b, r->grad[r->y.i], type->dims, type->rank);
    ebb_status status = r->b.status != NULL ? r->b.status : ebb_reverse_run(r);
    for (size_t i = 0; i < r->unsupported_count; i++) {
        ebb_node n = r->unsupported[i].node;
        if (n.i < nodes && !is_among(found, count, n))
            EBB_TRY(tell(d, r->g, &r->unsupported[i]));
    }
    bool unsized = ebb_status_code(status) == EBB_UNSUPPORTED && r->unsupported_count == 0;
    if (unsized && !ebb_doctor_found(d, "sizes")) {
        ebb_finding *f = ebb_doctor_add(d, EBB_PROBLEM, "sizes");
        EBB_GOT(f);
        f->code = EBB_UNSUPPORTED;
        f->what = ebb_doctor_sentence(d, status);
        f->help = ebb_help_of_sizes(r->g, EBB_NO_NODE);
        return f->what != NULL ? NULL : ebb_error_memory();
    }
    return ebb_status_code(status) == EBB_RUNTIME ? status : NULL;
}

/* What is trained before a step learns nothing through it, unless that is asked for. */
static ebb_status find_steps(ebb_doctor *d, const ebb_reverse *r)
{
    for (size_t k = 0; k < r->node_count; k++) {
        const ebb_node_info *info = ebb_node_of(r->g, r->order[k]);
        if (!ebb_op_has(info->op, EBB_STEPS) || info->in_count == 0 || !r->wants[info->in[0].i])
            continue;
        ebb_finding *f = ebb_doctor_about(d, EBB_WARNING, "step", r->g, r->order[k]);
        EBB_GOT(f);
        f->what = "its derivative is 0, so that what is trained before it learns nothing by it";
        f->help = "--straight-through lets the gradient pass";
        EBB_TRY(ebb_doctor_node(d, f, r->g, r->order[k]));
    }
    return NULL;
}

static ebb_status look(ebb_doctor *d, ebb_model *copy, ebb_arena *scratch)
{
    ebb_graph *g = copy->graph;
    ebb_report report = {0};
    ebb_edit e = {.g = g,
                  .pass = ebb_pass_find("gradient"),
                  .scratch = scratch,
                  .keep = scratch,
                  .report = &report};
    ebb_reverse r = {.e = &e, .g = g, .nameless = true};
    ebb_trainable_source source;
    for (ebb_node n = ebb_first(g); n.i != 0; n = ebb_next(g, n))
        if (ebb_node_of(g, n)->phase == EBB_BACKWARD)
            return NULL; // a step: it has its gradient
    size_t nodes = g->node_count;
    r.b = ebb_edit_build(&e, EBB_NO_NODE, EBB_FORWARD);
    r.y = g->loss.i != 0 ? g->loss : sum_of_outputs(&r.b);
    if (r.b.status != NULL || r.y.i == 0)
        return ebb_status_code(r.b.status) == EBB_RUNTIME ? r.b.status : NULL;
    const ebb_reverse empty = r;
    const char *loss = ebb_value_name(g, r.y);
    for (bool again = true; again;) {
        r = empty;
        EBB_TRY(ebb_reverse_open(&r, EBB_NO_NODE));
        EBB_TRY(ebb_trainable_find(r.trains, &source, g));
        r.y = ebb_value_find(g, loss);
        ebb_reverse_mark(&r);
        EBB_TRY(ebb_reverse_expand(&r, &again));
    }
    ebb_value y = r.y;
    EBB_TRY(find_steps(d, &r));
    r.b = ebb_edit_build(&e, EBB_NO_NODE, EBB_BACKWARD);
    return r.counts[y.i] ? differentiate(d, &r, nodes) : NULL;
}

ebb_status ebb_doctor_gradients(ebb_doctor *d)
{
    EBB_LOCAL_ARENA(scratch);
    return look(d, d->tidy != NULL ? d->tidy : d->raw, scratch);
}
