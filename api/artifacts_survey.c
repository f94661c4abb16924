/* artifacts_survey.c: the updates of a step, read from its nodes. */
#include "api/artifacts_survey.h"

#include "passes/common.h"

static bool by(const ebb_graph *g, ebb_value v, ebb_op op, ebb_node *n)
{
    *n = v.i != 0 ? ebb_value_of(g, v)->producer : EBB_NO_NODE;
    return n->i != 0 && ebb_node_of(g, *n)->op == op;
}

/* keep = 1 - lr decay; in x keep the other factor. */
static bool is_decayed(const ebb_graph *g, ebb_value y, ebb_value lr, ebb_value *x, double *decay)
{
    ebb_node product, rest, part;
    double one;
    if (!by(g, y, EBB_OP_MUL, &product) || !by(g, ebb_in(g, product, 1), EBB_OP_SUB, &rest) ||
        !ebb_scalar_of(g, ebb_in(g, rest, 0), &one) || one != 1 ||
        !by(g, ebb_in(g, rest, 1), EBB_OP_MUL, &part) || !ebb_same_value(ebb_in(g, part, 0), lr) ||
        !ebb_scalar_of(g, ebb_in(g, part, 1), decay))
        return false;
    *x = ebb_in(g, product, 0);
    return true;
}

static void read_factors(const ebb_graph *g, ebb_node n, ebb_survey_recipe *r)
{
    const ebb_attrs a = ebb_node_attrs(g, n);
    r->kind = EBB_SURVEY_ADAMW;
    r->alpha = ebb_attr_float(&a, "alpha", (double)0.9f);
    r->beta = ebb_attr_float(&a, "beta", (double)0.999f);
    r->epsilon = ebb_attr_float(&a, "epsilon", 0);
    r->decay = ebb_attr_float(&a, "weight_decay", 0);
}

/* ai.onnx's Adam with the decay behind it. With the decay before it, which is PyTorch's order with
 * young moments as they are, it is no optimizer that ONNX Runtime has. */
static bool read_adam(const ebb_graph *g, ebb_value w, ebb_value next, ebb_survey_recipe *r,
                      ebb_survey_trained *t)
{
    ebb_node n, count;
    ebb_value x = next;
    double zero = 1, decay = 0;
    if (by(g, next, EBB_OP_MUL, &n) && by(g, ebb_in(g, n, 0), EBB_OP_ADAM, &n)) {
        if (!is_decayed(g, next, ebb_in(g, n, 0), &x, &decay))
            return false;
    }
    if (!by(g, x, EBB_OP_ADAM, &n) || ebb_node_of(g, n)->in_count != 6)
        return false;
    const ebb_attrs a = ebb_node_attrs(g, n);
    read_factors(g, n, r);
    r->lr = ebb_in(g, n, 0);
    r->mode = 1;
    if (!ebb_same_value(ebb_in(g, n, 2), w))
        return false;
    r->decay = decay;
    r->correct = by(g, ebb_in(g, n, 1), EBB_OP_ADD, &count);
    if (r->correct)
        r->step = ebb_in(g, count, 0);
    else if (!ebb_scalar_of(g, ebb_in(g, n, 1), &zero) || zero != 0)
        return false;
    *t = (ebb_survey_trained){w, ebb_in(g, n, 3), ebb_in(g, n, 4), ebb_in(g, n, 5)};
    return r->mode == 1 && ebb_attr_float(&a, "norm_coefficient", 0) == 0 &&
           ebb_attr_float(&a, "norm_coefficient_post", 0) == 0;
}

static bool read_update(const ebb_graph *g, ebb_value w, ebb_value next, ebb_survey_recipe *r,
                        ebb_survey_trained *t)
{
    ebb_node n;
    *r = (ebb_survey_recipe){0};
    if (by(g, next, EBB_OP_ADAMW, &n)) {
        read_factors(g, n, r);
        r->correct = 1;
        r->lr = ebb_in(g, n, 0);
        r->step = ebb_in(g, n, 1);
        *t = (ebb_survey_trained){w, ebb_in(g, n, 3), ebb_in(g, n, 4), ebb_in(g, n, 5)};
        return ebb_same_value(ebb_in(g, n, 2), w);
    }
    if (by(g, next, EBB_OP_SGD, &n)) {
        const ebb_attrs a = ebb_node_attrs(g, n);
        r->kind = EBB_SURVEY_SGD;
        r->lr = ebb_in(g, n, 0);
        *t = (ebb_survey_trained){w, ebb_in(g, n, 2), EBB_NO_VALUE, EBB_NO_VALUE};
        return ebb_same_value(ebb_in(g, n, 1), w) && ebb_attr_float(&a, "weight_decay", 0) == 0;
    }
    return read_adam(g, w, next, r, t);
}

static bool same_recipe(const ebb_survey_recipe *a, const ebb_survey_recipe *b)
{
    return a->kind == b->kind && a->alpha == b->alpha && a->beta == b->beta &&
           a->epsilon == b->epsilon && a->decay == b->decay && a->mode == b->mode &&
           a->correct == b->correct && ebb_same_value(a->lr, b->lr) &&
           ebb_same_value(a->step, b->step);
}

ebb_status ebb_survey_other_optimizer(const ebb_graph *g, ebb_value w)
{
    return ebb_hint(
        ebb_error(EBB_UNSUPPORTED,
                  "'%s' is updated otherwise than by AdamW or by SGD without decay, which are "
                  "what ONNX Runtime trains with",
                  ebb_value_name(g, w)),
        "make the step with --optimizer adamw, adamw:order=transformers (correct-bias=0 with that "
        "order alone) or sgd, and without passes that change its state or scale the loss");
}

/* What a step may do around the update, and the optimizer of ONNX Runtime does not. */
static ebb_status check_around(const ebb_graph *g, const ebb_survey_recipe *r,
                               const ebb_survey_trained *t)
{
    const ebb_node made = ebb_value_of(g, t->grad)->producer;
    const char *name = ebb_value_name(g, t->w);
    if (ebb_value_of(g, r->lr)->producer.i != 0)
        return ebb_hint(ebb_error(EBB_UNSUPPORTED,
                                  "the rate of '%s' follows a schedule, and ONNX "
                                  "Runtime's optimizer takes it as an input",
                                  name),
                        "make the step without --lr-schedule");
    if (made.i != 0 && ebb_node_of(g, made)->phase == EBB_UPDATE)
        return ebb_hint(ebb_error(EBB_UNSUPPORTED,
                                  "the gradient of '%s' is changed before the "
                                  "update, which ONNX Runtime's optimizer does not",
                                  name),
                        "make the step without --clip-norm, and with adamw instead of adam with "
                        "weight-decay");
    if (ebb_value_of(g, ebb_graph_bound(g, t->w))->use_count > 0)
        return ebb_hint(ebb_error(EBB_UNSUPPORTED,
                                  "the step reads what '%s' becomes, for an "
                                  "average of it, which has no place in the files",
                                  name),
                        "make the step without --ema");
    return NULL;
}

static ebb_status survey_parameter(ebb_survey *s, const ebb_graph *g, ebb_value w)
{
    ebb_survey_trained t = {w, {0}, {0}, {0}};
    ebb_survey_recipe r = {0};
    ebb_value next = ebb_graph_bound(g, w);
    if (next.i == 0) { // gradients are outputs: --optimizer none
        char *name = ebb_arena_printf(&s->arena, "%s_grad", ebb_value_name(g, w));
        EBB_GOT(name);
        t.grad = ebb_value_find(g, name);
        if (t.grad.i == 0 || (ebb_value_of(g, t.grad)->flags & EBB_IS_OUTPUT) == 0)
            return NULL;
    } else if (!read_update(g, w, next, &r, &t)) {
        return ebb_survey_other_optimizer(g, w);
    } else {
        EBB_TRY(check_around(g, &r, &t));
    }
    if (s->count > 0 && !same_recipe(&s->recipe, &r))
        return ebb_error(EBB_UNSUPPORTED,
                         "'%s' is updated otherwise than '%s', and ONNX Runtime has one optimizer "
                         "for all parameters",
                         ebb_value_name(g, w), ebb_value_name(g, s->list[0].w));
    s->recipe = r;
    s->list[s->count++] = t;
    return NULL;
}

ebb_status ebb_survey_step(ebb_survey *s, const ebb_graph *g)
{
    s->list = EBB_NEW(&s->arena, ebb_survey_trained, g->initializer_count + 1);
    s->frozen = EBB_NEW(&s->arena, ebb_value, g->initializer_count + 1);
    EBB_GOT(s->list && s->frozen);
    for (size_t i = 0; i < g->initializer_count; i++)
        if (ebb_value_of(g, g->initializers[i])->role == EBB_ROLE_PARAMETER)
            EBB_TRY(survey_parameter(s, g, g->initializers[i]));
    if (s->count == 0 || g->loss.i == 0)
        return ebb_hint(ebb_error(EBB_USAGE, "the model is no training step: it has no %s",
                                  g->loss.i == 0 ? "loss" : "gradients of parameters"),
                        "`ebb grad` makes one");
    return NULL;
}
