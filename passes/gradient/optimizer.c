/* optimizer: one update for each parameter that has a gradient.
 *
 *   before   ... w_grad (an output)
 *   after    ... w_grad,  w_next = Sgd(ebb.lr, w, w_grad)            w is replaced by w_next
 *
 * Which optimizers there are, and what they compute: optimizers.def and updates.c. `none` leaves the
 * gradients as outputs.
 *
 * Their states (w.momentum; w.exp_avg and w.exp_avg_sq ...) start at zero; ebb.step counts the steps
 * done; ebb.lr is an initializer, so that it can be set between steps. The gradients stop being
 * outputs. Around the updates, where asked for:
 *
 *   schedule    the rate is ebb.lr times a function of ebb.step (schedule.c), and output ebb.rate
 *   clip-norm   w_grad min(1, clip-norm / (norm + 1e-6)); norm, that of all gradients together, is
 *               output ebb.grad_norm
 *   groups      parameters by name with options of their own; a rate of theirs is ebb.lr.1, ...
 *   ema         w.ema starts as w and follows it: w.ema + (1 - ema) (w_next - w.ema)
 *
 * With a state ebb.loss_scale (pass precision, float16), where a gradient is not finite the step
 * does nothing but halve that scale; after 2000 steps without such a one it doubles:
 *
 *   good = sum of the squares of all gradients < infinity
 *   w_next = Where(good, the update, w), and so each state
 */
#include <math.h>
#include <stdlib.h>

#include "passes/common.h"
#include "onnx/words/print.h"
#include "passes/gradient/update.h"

typedef struct maker {
    ebb_update_step all;
    ebb_update_groups groups;
    ebb_value good;   /* whether every gradient is finite; none: nobody asks */
    ebb_value clip;   /* what gradients are multiplied by; none: nothing */
    ebb_value *spent; /* gradients that an update has read: no outputs any more */
    size_t spent_count;
} maker;

/* ---- states ---- */

/* The zeros that all states start with: one block, as large as the largest parameter with bytes, and
 * as its state in float32. */
static ebb_status make_zeros(maker *r)
{
    const ebb_graph *g = r->all.e->g;
    size_t most = 0;
    for (size_t i = 0; i < g->initializer_count; i++) {
        const ebb_tensor *t = ebb_value_of(g, g->initializers[i])->tensor;
        if (ebb_value_of(g, g->initializers[i])->role == EBB_ROLE_PARAMETER && t->data != NULL &&
            t->bytes > most)
            most = t->bytes;
    }
    size_t bytes;
    if (__builtin_mul_overflow(most, sizeof(float), &bytes))
        return ebb_error_memory();
    r->all.zeros = ebb_arena_zeroed(&g->model->arena, bytes + 1, 1);
    return r->all.zeros == NULL ? ebb_error_memory() : NULL;
}

/* A skeleton's states have no bytes either: its initialization graph makes the zeros. */
static ebb_status draw_zeros(ebb_model *m, const char *name, const ebb_type *type, ebb_str state)
{
    if (m->initialization == NULL || type->dtype != EBB_F32) // ConstantOfShape's default is float
        return NULL;
    ebb_build b = ebb_build_at(m->initialization, EBB_NO_NODE, EBB_PHASE_NONE, NULL);
    b.name = name;
    ebb_with_name(&b, name);
    ebb_value shape = ebb_const_ints(&b, type->dims, (uint32_t)type->rank);
    ebb_value zeros = ebb_emit(&b, EBB_OP_CONSTANT_OF_SHAPE, shape);
    EBB_TRY(b.status);
    EBB_TRY(ebb_graph_add_output(m->initialization, zeros));
    return ebb_draw_also(m, state, zeros);
}

static ebb_status add_state(const ebb_update *u, const char *suffix, const ebb_type *like,
                            ebb_value *state)
{
    ebb_graph *g = u->b->g;
    ebb_type type = like != NULL ? *like : *ebb_value_of(g, u->w)->type;
    bool bare = ebb_value_of(g, u->w)->tensor->data == NULL;
    type.layout = (ebb_layout){0};
    char *name = ebb_arena_printf(u->all->e->scratch, "%s.%s", ebb_value_name(g, u->w), suffix);
    EBB_GOT(name);
    EBB_TRY(ebb_graph_add_initializer(g, state, name, &type, NULL, EBB_ROLE_OPTIMIZER));
    if (bare)
        return draw_zeros(g->model, name, &type, ebb_value_of(g, *state)->name);
    return ebb_value_point(g, *state, u->all->zeros);
}

uint32_t ebb_update_state(ebb_update *u, const char *suffix, const ebb_type *type)
{
    const uint32_t k = u->state_count++;
    ebb_status status = add_state(u, suffix, type, &u->states[k].state);
    if (status != NULL)
        ebb_build_fail(u->b, status);
    return k;
}

/* The update's output, or the state as it was where a gradient is not finite; bound to the state.
 */
static ebb_status bind(maker *r, ebb_value state, ebb_value next)
{
    ebb_graph *g = r->all.e->g;
    if (r->good.i != 0) {
        char *tried = ebb_arena_printf(r->all.e->scratch, "%s_tried", ebb_value_name(g, state));
        EBB_TRY(ebb_value_step_aside(g, next, tried));
        r->all.b->name = ebb_value_name(g, state);
        next = ebb_emit(r->all.b, EBB_OP_WHERE, r->good, next, state);
        EBB_TRY(r->all.b->status);
    }
    return ebb_bind_next(g, state, next);
}

/* ---- updates ---- */

static ebb_status update(maker *r, ebb_value w, ebb_value grad)
{
    const size_t k = ebb_update_group_of(&r->groups, w);
    ebb_update u = {.all = &r->all,
                    .b = r->all.b,
                    .group = &r->groups.list[k],
                    .kind = r->groups.list[k].kind,
                    .w = w,
                    .grad = grad};
    r->groups.members[k]++;
    r->all.b->name = ebb_value_name(r->all.e->g, w);
    if (r->clip.i != 0) {
        ebb_value factor = ebb_emit_cast(r->all.b, r->clip,
                                         (ebb_dtype)ebb_value_of(r->all.e->g, grad)->type->dtype);
        u.grad = ebb_emit(r->all.b, EBB_OP_MUL, grad, factor);
    }
    u.kind->update(&u);
    EBB_TRY(r->all.b->status);
    EBB_TRY(bind(r, w, u.next));
    for (uint32_t i = 0; i < u.state_count; i++)
        EBB_TRY(bind(r, u.states[i].state, u.states[i].next));
    if (ebb_option_given(r->all.e, "ema"))
        EBB_TRY(ebb_average_follow(r->all.e, r->all.b, w));
    r->spent[r->spent_count++] = grad;
    ebb_applied(r->all.e);
    return NULL;
}

/* ---- the rate ---- */

static ebb_status add_rate(maker *r, ebb_update_group *group, const char *name)
{
    ebb_graph *g = r->all.e->g;
    const float lr = (float)ebb_strtod(ebb_update_group_text(group, "lr"), NULL);
    const ebb_type type = ebb_type_tensor(EBB_F32, 0, NULL);
    group->lr = ebb_value_find(g, name);
    if (group->lr.i == 0)
        EBB_TRY(ebb_graph_add_initializer(g, &group->lr, name, &type, &lr, EBB_ROLE_OPTIMIZER));
    group->rate = group->lr;
    return NULL;
}

/* A group has a rate of its own where it says one, or where its optimizer does. */
static ebb_status add_rates(maker *r)
{
    EBB_TRY(add_rate(r, &r->groups.list[0], "ebb.lr"));
    for (size_t k = 1; k < r->groups.count; k++) {
        ebb_update_group *group = &r->groups.list[k];
        char *name = ebb_arena_printf(r->all.e->scratch, "ebb.lr.%zu", k);
        bool own = group->base == NULL;
        for (size_t i = 0; i < group->given_count; i++)
            own = own || strcmp(group->given[i].name, "lr") == 0;
        EBB_GOT(name);
        if (own)
            EBB_TRY(add_rate(r, group, name));
        else
            group->lr = group->rate = r->groups.list[0].lr;
    }
    return NULL;
}

static bool counts(const maker *r)
{
    for (size_t k = 0; k < r->groups.count; k++)
        if (r->groups.list[k].kind->update != ebb_update_sgd)
            return true;
    return ebb_schedule_asked(r->all.e);
}

static ebb_status add_scalars(maker *r)
{
    ebb_graph *g = r->all.e->g;
    EBB_TRY(add_rates(r));
    if (!counts(r))
        return NULL;
    const int64_t zero = 0;
    const ebb_type type = ebb_type_tensor(EBB_I64, 0, NULL);
    r->all.step = ebb_value_find(g, "ebb.step");
    if (r->all.step.i == 0)
        EBB_TRY(ebb_graph_add_initializer(g, &r->all.step, "ebb.step", &type, &zero,
                                          EBB_ROLE_OPTIMIZER));
    return NULL;
}

static ebb_status follow_schedule(maker *r)
{
    ebb_graph *g = r->all.e->g;
    ebb_build *b = r->all.b;
    ebb_value factor;
    if (!ebb_schedule_asked(r->all.e))
        return NULL;
    EBB_TRY(ebb_schedule_emit(r->all.e, b, r->all.step, &factor));
    for (size_t k = 0; k < r->groups.count; k++) {
        ebb_update_group *group = &r->groups.list[k];
        if (k > 0 && ebb_same_value(group->lr, r->groups.list[0].lr)) {
            group->rate = r->groups.list[0].rate;
            continue;
        }
        if (k == 0)
            ebb_with_name(b, "ebb.rate");
        group->rate = ebb_emit(b, EBB_OP_MUL, group->lr, factor);
    }
    EBB_TRY(b->status);
    return ebb_graph_add_output(g, r->groups.list[0].rate);
}

static ebb_status count_steps(maker *r)
{
    if (r->all.step.i == 0 || ebb_graph_bound(r->all.e->g, r->all.step).i != 0)
        return NULL;
    r->all.b->name = "ebb.step";
    if (r->good.i == 0)
        ebb_with_name(r->all.b, "ebb.step_next");
    ebb_value one = ebb_const_scalar(r->all.b, EBB_I64, 1);
    if (r->good.i != 0) {
        ebb_with_int(r->all.b, "to", EBB_I64);
        one = ebb_emit(r->all.b, EBB_OP_CAST, r->good);
        ebb_with_name(r->all.b, "ebb.step_next");
    }
    ebb_value next = ebb_emit(r->all.b, EBB_OP_ADD, r->all.step, one);
    EBB_TRY(r->all.b->status);
    return ebb_graph_bind(r->all.e->g, r->all.step, next);
}

/* "w_grad" where that is a value of the graph and w a parameter without an update, else none. */
static ebb_status gradient_of(ebb_edit *e, ebb_value w, ebb_value *grad)
{
    const ebb_graph *g = e->g;
    char *name = ebb_arena_printf(e->scratch, "%s_grad", ebb_value_name(g, w));
    EBB_GOT(name);
    *grad = ebb_value_find(g, name);
    return NULL;
}

/* ---- the size of all gradients ---- */

/* One number of all gradients, which is infinite or NaN where one of theirs is; none: there are
 * none. */
static ebb_status sum_squares(maker *r, ebb_value *sum)
{
    ebb_graph *g = r->all.e->g;
    ebb_build *b = r->all.b;
    *sum = EBB_NO_VALUE;
    for (size_t i = 0; i < g->initializer_count; i++) {
        ebb_value w = g->initializers[i], grad = EBB_NO_VALUE;
        if (ebb_value_of(g, w)->role != EBB_ROLE_PARAMETER || ebb_graph_bound(g, w).i != 0)
            continue;
        EBB_TRY(gradient_of(r->all.e, w, &grad));
        if (grad.i == 0)
            continue;
        grad = ebb_emit_cast(b, grad, EBB_F32);
        ebb_with_int(b, "keepdims", 0);
        ebb_value square = ebb_emit(b, EBB_OP_REDUCE_SUM_SQUARE, grad);
        *sum = sum->i == 0 ? square : ebb_emit(b, EBB_OP_ADD, *sum, square);
        EBB_TRY(b->status);
    }
    return NULL;
}

static ebb_status weigh_gradients(maker *r)
{
    ebb_graph *g = r->all.e->g;
    ebb_build *b = r->all.b;
    const bool scaled = ebb_value_find(g, "ebb.loss_scale").i != 0;
    const bool clips = ebb_option_given(r->all.e, "clip-norm");
    ebb_value sum = EBB_NO_VALUE;
    if (!scaled && !clips)
        return NULL;
    b->name = scaled ? "ebb.good" : "ebb.grad_norm";
    EBB_TRY(sum_squares(r, &sum));
    if (sum.i == 0)
        return NULL;
    if (scaled)
        r->good = ebb_emit(b, EBB_OP_LESS, sum, ebb_const_scalar(b, EBB_F32, (double)INFINITY));
    if (!clips)
        return b->status;
    b->name = "ebb.clip";
    ebb_with_name(b, "ebb.grad_norm");
    ebb_value norm = ebb_emit(b, EBB_OP_SQRT, sum);
    ebb_value most = ebb_const_scalar(b, EBB_F32, ebb_option_float(r->all.e, "clip-norm"));
    ebb_value part = ebb_emit(b, EBB_OP_DIV, most,
                              ebb_emit(b, EBB_OP_ADD, norm, ebb_const_scalar(b, EBB_F32, 1e-6)));
    r->clip = ebb_emit(b, EBB_OP_MIN, part, ebb_const_scalar(b, EBB_F32, 1));
    EBB_TRY(b->status);
    return ebb_graph_add_output(g, norm);
}

/* ---- a scaled loss ---- */

/* Halved after an overflow, doubled after 2000 good steps, within 1 .. 2^24. */
static ebb_status follow_scale(maker *r)
{
    ebb_graph *g = r->all.e->g;
    ebb_build *b = r->all.b;
    ebb_value scale = ebb_value_find(g, "ebb.loss_scale"), steps;
    if (r->good.i == 0)
        return NULL;
    int64_t zero = 0;
    ebb_type type = ebb_type_tensor(EBB_I64, 0, NULL);
    EBB_TRY(
        ebb_graph_add_initializer(g, &steps, "ebb.good_steps", &type, &zero, EBB_ROLE_OPTIMIZER));
    b->name = "ebb.good_steps";
    ebb_value none = ebb_const_scalar(b, EBB_I64, 0);
    ebb_value more = ebb_emit(b, EBB_OP_ADD, steps, ebb_const_scalar(b, EBB_I64, 1));
    ebb_value count = ebb_emit(b, EBB_OP_WHERE, r->good, more, none);
    ebb_value many = ebb_emit(b, EBB_OP_EQUAL, count, ebb_const_scalar(b, EBB_I64, 2000));
    ebb_with_name(b, "ebb.good_steps_next");
    ebb_value next = ebb_emit(b, EBB_OP_WHERE, many, none, count);
    EBB_TRY(b->status);
    EBB_TRY(ebb_graph_bind(g, steps, next));
    b->name = "ebb.loss_scale";
    ebb_value two = ebb_const_scalar(b, EBB_F32, 2), one = ebb_const_scalar(b, EBB_F32, 1);
    ebb_value half = ebb_const_scalar(b, EBB_F32, 0.5);
    ebb_value up = ebb_emit(b, EBB_OP_WHERE, many, two, one);
    ebb_value factor = ebb_emit(b, EBB_OP_WHERE, r->good, up, half);
    ebb_value wanted = ebb_emit(b, EBB_OP_MUL, scale, factor);
    ebb_value least = ebb_emit(b, EBB_OP_MAX, wanted, one);
    ebb_with_name(b, "ebb.loss_scale_next");
    next = ebb_emit(b, EBB_OP_MIN, least, ebb_const_scalar(b, EBB_F32, 0x1p24));
    EBB_TRY(b->status);
    return ebb_graph_bind(g, scale, next);
}

/* ---- the pass ---- */

static ebb_status drop_spent(maker *r)
{
    bool *gone = EBB_SCRATCH(r->all.e, bool, r->all.e->g->value_count);
    EBB_GOT(gone);
    for (size_t i = 0; i < r->spent_count; i++)
        gone[r->spent[i].i] = true;
    ebb_graph_remove_outputs(r->all.e->g, gone);
    return NULL;
}

/* What all updates share, once there is one. */
static ebb_status begin(maker *r)
{
    ebb_edit *e = r->all.e;
    EBB_TRY(add_scalars(r));
    EBB_TRY(make_zeros(r));
    EBB_GOT((r->spent = EBB_SCRATCH(e, ebb_value, e->g->initializer_count)) != NULL);
    EBB_TRY(weigh_gradients(r));
    return follow_schedule(r);
}

static ebb_status tell_muon(const maker *r)
{
    const ebb_graph *g = r->all.e->g;
    size_t matrices = 0, others = 0;
    for (size_t i = 0; i < g->initializer_count; i++) {
        ebb_value w = g->initializers[i];
        if (ebb_value_of(g, w)->role != EBB_ROLE_PARAMETER || ebb_graph_bound(g, w).i == 0 ||
            r->groups.list[ebb_update_group_of(&r->groups, w)].kind->update != ebb_update_muon)
            continue;
        matrices += r->all.is_hidden[w.i];
        others += !r->all.is_hidden[w.i];
    }
    if (matrices + others == 0)
        return NULL;
    return ebb_note(r->all.e,
                    "muon: %zu matri%s within the network; by AdamW: %zu other parameter%s "
                    "(vectors, embeddings, what is next to the loss)",
                    matrices, matrices == 1 ? "x" : "ces", others, others == 1 ? "" : "s");
}

static ebb_status run(ebb_edit *e)
{
    ebb_graph *g = e->g;
    ebb_build b = ebb_edit_build(e, EBB_NO_NODE, EBB_UPDATE);
    b.phase = EBB_UPDATE;
    maker *r = EBB_SCRATCH(e, maker, 1);
    EBB_GOT(r);
    r->all = (ebb_update_step){.e = e, .b = &b};
    EBB_TRY(ebb_update_groups_read(&r->groups, e));
    EBB_TRY(ebb_hidden_find(&r->all.is_hidden, g, e->scratch));
    size_t count = g->initializer_count, parameters = 0;
    bool none = r->groups.list[0].kind == NULL;
    for (size_t i = 0; i < count; i++) {
        ebb_value w = g->initializers[i], grad;
        if (ebb_value_of(g, w)->role != EBB_ROLE_PARAMETER)
            continue;
        parameters++;
        EBB_TRY(gradient_of(e, w, &grad));
        if (ebb_graph_bound(g, w).i != 0) {
            EBB_TRY(ebb_declined(e, EBB_NO_NODE, "the parameter has an update already"));
            continue;
        }
        if (grad.i == 0) {
            EBB_TRY(ebb_declined(e, EBB_NO_NODE, "the parameter has no gradient"));
            continue;
        }
        ebb_found(e);
        if (none) {
            ebb_applied(e);
            continue;
        }
        if (r->groups.list[0].lr.i == 0)
            EBB_TRY(begin(r));
        EBB_TRY(update(r, w, grad));
    }
    if (parameters == 0)
        return ebb_hint(
            ebb_error(EBB_USAGE, "optimizer: the graph has no parameters with gradients"),
            "run the gradient pass first");
    if (r->spent_count > 0)
        EBB_TRY(ebb_update_groups_tell(&r->groups));
    EBB_TRY(tell_muon(r));
    EBB_TRY(drop_spent(r));
    EBB_TRY(follow_scale(r));
    return count_steps(r);
}

// clang-format off
static const ebb_option options[] = {
    {"kind",         EBB_OPTION_CHOICE, "sgd",
#define EBB_OPTIMIZER(name, ...) #name "|"
#include "passes/gradient/optimizers.def"
#undef EBB_OPTIMIZER
     "none", "which optimizer"},
    {"lr",           EBB_OPTION_FLOAT,  NULL,      "[0, 1e30]",               "learning rate; default 0.1, for adamw, adam and muon 0.001, rmsprop, adagrad and adafactor 0.01, lion 0.0001"},
    {"momentum",     EBB_OPTION_FLOAT,  NULL,      "[0, 1]",                  "momentum, nesterov, rmsprop, muon: how much of the last step stays; default 0.9, rmsprop 0, muon 0.95"},
    {"beta1",        EBB_OPTION_FLOAT,  NULL,      "[0, 1)",                  "adamw, adam, lion, muon: decay of the first moment; default 0.9"},
    {"beta2",        EBB_OPTION_FLOAT,  NULL,      "[0, 1)",                  "adamw, adam, lion, muon: decay of the second moment, lion's of the momentum; default 0.999, lion 0.99"},
    {"epsilon",      EBB_OPTION_FLOAT,  NULL,      "[0, 1]",                  "adamw, adam, rmsprop, adagrad, adafactor, muon: added to the root of the second moment; default 1e-8, adagrad 1e-10, adafactor 1.2e-7 (the least that it is)"},
    {"weight-decay", EBB_OPTION_FLOAT,  NULL,      "[0, 1e30]",               "apart from the gradient (adamw, lion, adafactor, muon), else part of it; default 0, adamw 0.01, muon 0.1"},
    {"order",        EBB_OPTION_CHOICE, NULL,      "pytorch|transformers",    "adamw: decay first and epsilon beside the corrected root (default), or last and beside the uncorrected one"},
    {"correct-bias", EBB_OPTION_INT,    NULL,      "[0, 1]",                  "adamw: 0: moments are taken as they are in the first steps, too; default 1"},
    {"alpha",        EBB_OPTION_FLOAT,  NULL,      "[0, 1)",                  "rmsprop: decay of the mean square; default 0.99"},
    {"centered",     EBB_OPTION_INT,    NULL,      "[0, 1]",                  "rmsprop: 1: divide by the deviation instead of the mean square; default 0"},
    {"lr-decay",     EBB_OPTION_FLOAT,  NULL,      "[0, 1e30]",               "adagrad: the rate is divided by 1 + lr-decay times the steps done; default 0"},
    {"beta2-decay",  EBB_OPTION_FLOAT,  NULL,      "[-10, 0]",                "adafactor: the second moment's step t follows by t to this power; default -0.8"},
    {"epsilon2",     EBB_OPTION_FLOAT,  NULL,      "[0, 1]",                  "adafactor: the least size of a weight, by which its step is multiplied; default 0.001"},
    {"threshold",    EBB_OPTION_FLOAT,  NULL,      "(0, 1e30]",               "adafactor: a longer step (root of the mean square) is cut to this; default 1"},
    {"nesterov",     EBB_OPTION_INT,    NULL,      "[0, 1]",                  "muon: 0: the momentum alone; default 1"},
    {"ns-steps",     EBB_OPTION_INT,    NULL,      "[1, 99]",                 "muon: iterations of Newton and Schulz; default 5"},
    {"adjust",       EBB_OPTION_CHOICE, NULL,      "original|match-rms-adamw", "muon: a step times sqrt(max(1, rows / columns)) (default), or as long as one of adamw"},
    {"schedule",     EBB_OPTION_CHOICE, NULL,      "constant|linear|cosine|step|one-cycle", "the rate from step to step; not given: ebb.lr as it is"},
    {"warmup",       EBB_OPTION_INT,    "0",       "steps [0, 1000000000]",   "the rate first rises in so many steps: (t + 1) / (warmup + 1)"},
    {"steps",        EBB_OPTION_INT,    NULL,      "steps [1, 1000000000]",   "linear, cosine, one-cycle: where they end, the warm-up included"},
    {"floor",        EBB_OPTION_FLOAT,  NULL,      "[0, 1]",                  "linear, cosine, one-cycle: what they end with, as a share of lr; default 0, one-cycle 4e-6"},
    {"every",        EBB_OPTION_INT,    NULL,      "steps [1, 1000000000]",   "step: after so many the rate is multiplied by gamma"},
    {"gamma",        EBB_OPTION_FLOAT,  "0.1",     "(0, 1]",                  "step: by what"},
    {"rise",         EBB_OPTION_FLOAT,  "0.3",     "(0, 1)",                  "one-cycle: the share of the steps in which the rate rises"},
    {"start",        EBB_OPTION_FLOAT,  "0.04",    "[0, 1]",                  "one-cycle: what it begins with, as a share of lr"},
    {"clip-norm",    EBB_OPTION_FLOAT,  NULL,      "(0, 1e30]",               "the most that the norm of all gradients together may be; longer ones are shortened"},
    {"ema",          EBB_OPTION_FLOAT,  NULL,      "[0, 1)",                  "keep a running average of each weight, by this decay"},
    {"groups",       EBB_OPTION_STRING, NULL,      NULL,                      "GLOBS:OPTION=VALUE,... of parameters with options of their own, separated by |; the first that matches"},
    {0},
};
// clang-format on

const ebb_pass ebb_pass_optimizer = {
    .name = "optimizer",
    .doc = "append the optimizer's update of each parameter",
    .exactness = EBB_MAKES,
    .options = options,
    .run = run,
};
