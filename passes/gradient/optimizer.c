/* optimizer: one update node for each parameter that has a gradient.
 *
 *   before   ... w_grad (an output)
 *   after    ... w_grad,  w_next = Sgd(ebb.lr, w, w_grad)            w is replaced by w_next
 *
 *   sgd        ai.ebb.Sgd: w' = w - lr (g + weight-decay w)
 *   momentum   ai.onnx.preview.training.Momentum: v' = momentum v + g + weight-decay w,
 *              w' = w - lr v'
 *   adamw      ai.ebb.AdamW, which is PyTorch's: decoupled decay, bias correction
 *   none       leaves the gradients as outputs
 *
 * With order=transformers, AdamW as that library once had it: epsilon is added to the uncorrected
 * root, and the decay comes last: ai.onnx.preview.training.Adam, and a product where there is
 * decay.
 *
 * The states (w.momentum; w.exp_avg and w.exp_avg_sq) start at zero; ebb.step counts the steps
 * done; ebb.lr is an initializer, so that it can be set between steps. The gradients stop being
 * outputs.
 *
 * With a state ebb.loss_scale (pass precision, float16), where a gradient is not finite the step
 * does nothing but halve that scale; after 2000 steps without such a one it doubles:
 *
 *   good = sum of the squares of all gradients < infinity
 *   w_next = Where(good, the update, w), and so each state
 */
#include <math.h>

#include "passes/common.h"
#include "passes/passes.h"

typedef struct recipe {
    ebb_edit *e;
    ebb_build *b;
    const char *kind;
    double momentum, beta1, beta2, epsilon, weight_decay;
    ebb_value lr, step; /* step: none for sgd */
    bool transformers;  /* AdamW in that library's order */
    bool correct;       /* AdamW corrects the bias of young moments */
    ebb_value count;    /* steps with this one, for Adam; none: not made yet */
    ebb_value good;     /* whether every gradient is finite; none: nobody asks */
    const void *zeros;  /* what states start with */
    ebb_value *spent;   /* gradients that an update has read: no outputs any more */
    size_t spent_count;
} recipe;

/* The zeros that all states start with: one block, as large as the largest parameter with bytes. */
static ebb_status make_zeros(recipe *r)
{
    const ebb_graph *g = r->e->g;
    size_t most = 0;
    for (size_t i = 0; i < g->initializer_count; i++) {
        const ebb_tensor *t = ebb_value_of(g, g->initializers[i])->tensor;
        if (ebb_value_of(g, g->initializers[i])->role == EBB_ROLE_PARAMETER && t->data != NULL &&
            t->bytes > most)
            most = t->bytes;
    }
    r->zeros = ebb_arena_zeroed(&r->e->g->model->arena, most + 1, 1);
    return r->zeros == NULL ? ebb_error_memory() : NULL;
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

/* All zeros, of w's type. */
static ebb_status zero_state(recipe *r, ebb_value w, const char *suffix, ebb_value *state)
{
    ebb_graph *g = r->e->g;
    ebb_type type = ebb_value_of(g, w)->type;
    bool bare = ebb_value_of(g, w)->tensor->data == NULL;
    type.layout = (ebb_layout){0};
    char *name = ebb_arena_printf(r->e->scratch, "%s.%s", ebb_value_name(g, w), suffix);
    if (name == NULL)
        return ebb_error_memory();
    EBB_TRY(ebb_graph_add_initializer(g, state, name, &type, NULL, EBB_ROLE_OPTIMIZER));
    if (bare)
        return draw_zeros(g->model, name, &type, ebb_value_of(g, *state)->name);
    ebb_value_of(g, *state)->tensor->data = r->zeros;
    return NULL;
}

static void options_of_momentum(recipe *r)
{
    ebb_with_float(r->b, "alpha", r->momentum);
    ebb_with_float(r->b, "beta", 1);
    ebb_with_string(r->b, "mode", "standard");
    ebb_with_float(r->b, "norm_coefficient", r->weight_decay);
}

static void options_of_adamw(recipe *r)
{
    ebb_with_float(r->b, "alpha", r->beta1);
    ebb_with_float(r->b, "beta", r->beta2);
    ebb_with_float(r->b, "epsilon", r->epsilon);
    ebb_with_float(r->b, "weight_decay", r->weight_decay);
}

/* Steps with this one, or 0 where Adam is not to correct its moments. */
static ebb_value counted(recipe *r)
{
    if (r->count.i == 0)
        r->count = r->correct
                       ? ebb_emit(r->b, EBB_OP_ADD, r->step, ebb_const_scalar(r->b, EBB_I64, 1))
                       : ebb_const_scalar(r->b, EBB_I64, 0);
    return r->count;
}

/* w (1 - lr decay) */
static ebb_value decayed(recipe *r, ebb_value w)
{
    if (r->weight_decay == 0)
        return w;
    ebb_value part =
        ebb_emit(r->b, EBB_OP_MUL, r->lr, ebb_const_like(r->b, r->lr, r->weight_decay));
    ebb_value keep = ebb_emit(r->b, EBB_OP_SUB, ebb_const_like(r->b, r->lr, 1), part);
    return ebb_emit(r->b, EBB_OP_MUL, w, keep);
}

/* AdamW otherwise than ai.ebb.AdamW has it: the decay apart, before the step or behind it. */
static void adam_and_decay(recipe *r, ebb_value w, ebb_value grad, const ebb_value state[2],
                           ebb_value out[3])
{
    ebb_value x = r->transformers ? w : decayed(r, w), count = counted(r);
    ebb_with_float(r->b, "alpha", r->beta1);
    ebb_with_float(r->b, "beta", r->beta2);
    ebb_with_float(r->b, "epsilon", r->epsilon);
    ebb_emit_node(r->b, EBB_OP_ADAM, (ebb_value[]){r->lr, count, x, grad, state[0], state[1]}, 6,
                  out, 3, 7);
    if (r->transformers)
        out[0] = decayed(r, out[0]);
}

/* The update's output, or the state as it was where a gradient is not finite; bound to the state.
 */
static ebb_status bind(recipe *r, ebb_value state, ebb_value next)
{
    ebb_graph *g = r->e->g;
    char *name = ebb_arena_printf(r->e->scratch, "%s_next", ebb_value_name(g, state));
    if (name == NULL)
        return ebb_error_memory();
    if (r->good.i != 0) {
        char *tried = ebb_arena_printf(r->e->scratch, "%s_tried", ebb_value_name(g, state));
        if (tried == NULL)
            return ebb_error_memory();
        EBB_TRY(ebb_value_rename(g, next, ebb_text(g, ebb_graph_fresh(g, tried))));
        r->b->name = ebb_value_name(g, state);
        next = ebb_emit(r->b, EBB_OP_WHERE, r->good, next, state);
        EBB_TRY(r->b->status);
    }
    if (ebb_value_find(g, name).i == 0)
        EBB_TRY(ebb_value_rename(g, next, name));
    return ebb_graph_bind(g, state, next);
}

static ebb_status update(recipe *r, ebb_value w, ebb_value grad)
{
    ebb_graph *g = r->e->g;
    ebb_value out[3] = {0}, state[2] = {0};
    uint32_t states = 0;
    const char *name = ebb_value_name(g, w);
    char *next = ebb_arena_printf(r->e->scratch, "%s_next", name);
    if (next == NULL)
        return ebb_error_memory();
    if (strcmp(r->kind, "sgd") == 0) {
        ebb_with_float(r->b, "weight_decay", r->weight_decay);
        r->b->name = name;
        ebb_with_name(r->b, next);
        ebb_emit_node(r->b, EBB_OP_SGD, (ebb_value[]){r->lr, w, grad}, 3, out, 1, 1);
    } else if (strcmp(r->kind, "momentum") == 0) {
        states = 1;
        EBB_TRY(zero_state(r, w, "momentum", &state[0]));
        options_of_momentum(r);
        r->b->name = name;
        ebb_with_name(r->b, next);
        ebb_emit_node(r->b, EBB_OP_MOMENTUM, (ebb_value[]){r->lr, r->step, w, grad, state[0]}, 5,
                      out, 2, 3);
    } else {
        states = 2;
        EBB_TRY(zero_state(r, w, "exp_avg", &state[0]));
        EBB_TRY(zero_state(r, w, "exp_avg_sq", &state[1]));
        r->b->name = name;
        if (r->transformers || !r->correct) {
            adam_and_decay(r, w, grad, state, out);
        } else {
            options_of_adamw(r);
            ebb_with_name(r->b, next);
            ebb_emit_node(r->b, EBB_OP_ADAMW,
                          (ebb_value[]){r->lr, r->step, w, grad, state[0], state[1]}, 6, out, 3, 7);
        }
    }
    EBB_TRY(r->b->status);
    EBB_TRY(bind(r, w, out[0]));
    for (uint32_t i = 0; i < states; i++)
        EBB_TRY(bind(r, state[i], out[i + 1]));
    r->spent[r->spent_count++] = grad;
    ebb_applied(r->e);
    return NULL;
}

static ebb_status add_scalars(recipe *r)
{
    ebb_graph *g = r->e->g;
    double rate = ebb_option_given(r->e, "lr")    ? ebb_option_float(r->e, "lr")
                  : strcmp(r->kind, "adamw") == 0 ? 1e-3
                                                  : 0.1;
    float lr = (float)rate;
    ebb_type type = ebb_type_tensor(EBB_F32, 0, NULL);
    r->lr = ebb_value_find(g, "ebb.lr");
    if (r->lr.i == 0)
        EBB_TRY(ebb_graph_add_initializer(g, &r->lr, "ebb.lr", &type, &lr, EBB_ROLE_OPTIMIZER));
    if (strcmp(r->kind, "sgd") == 0)
        return NULL;
    int64_t zero = 0;
    type = ebb_type_tensor(EBB_I64, 0, NULL);
    r->step = ebb_value_find(g, "ebb.step");
    if (r->step.i == 0)
        EBB_TRY(
            ebb_graph_add_initializer(g, &r->step, "ebb.step", &type, &zero, EBB_ROLE_OPTIMIZER));
    return NULL;
}

static ebb_status count_steps(recipe *r)
{
    if (r->step.i == 0 || ebb_graph_bound(r->e->g, r->step).i != 0)
        return NULL;
    r->b->name = "ebb.step";
    if (r->good.i == 0)
        ebb_with_name(r->b, "ebb.step_next");
    ebb_value one = ebb_const_scalar(r->b, EBB_I64, 1);
    if (r->good.i != 0) {
        ebb_with_int(r->b, "to", EBB_I64);
        one = ebb_emit(r->b, EBB_OP_CAST, r->good);
        ebb_with_name(r->b, "ebb.step_next");
    }
    ebb_value next = ebb_emit(r->b, EBB_OP_ADD, r->step, one);
    EBB_TRY(r->b->status);
    return ebb_graph_bind(r->e->g, r->step, next);
}

/* "w_grad" where that is a value of the graph and w a parameter without an update, else none. */
static ebb_status gradient_of(ebb_edit *e, ebb_value w, ebb_value *grad)
{
    const ebb_graph *g = e->g;
    char *name = ebb_arena_printf(e->scratch, "%s_grad", ebb_value_name(g, w));
    if (name == NULL)
        return ebb_error_memory();
    *grad = ebb_value_find(g, name);
    return NULL;
}

/* ---- a scaled loss ---- */

/* One number of all gradients, which is infinite or NaN where one of theirs is. */
static ebb_status find_good(recipe *r)
{
    ebb_graph *g = r->e->g;
    ebb_value sum = EBB_NO_VALUE;
    r->b->name = "ebb.good";
    for (size_t i = 0; i < g->initializer_count; i++) {
        ebb_value w = g->initializers[i], grad = EBB_NO_VALUE;
        if (ebb_value_of(g, w)->role != EBB_ROLE_PARAMETER || ebb_graph_bound(g, w).i != 0)
            continue;
        EBB_TRY(gradient_of(r->e, w, &grad));
        if (grad.i == 0)
            continue;
        ebb_with_int(r->b, "keepdims", 0);
        ebb_value square = ebb_emit(r->b, EBB_OP_REDUCE_SUM_SQUARE, grad);
        sum = sum.i == 0 ? square : ebb_emit(r->b, EBB_OP_ADD, sum, square);
        EBB_TRY(r->b->status);
    }
    if (sum.i == 0)
        return NULL;
    r->good = ebb_emit(r->b, EBB_OP_LESS, sum, ebb_const_scalar(r->b, EBB_F32, (double)INFINITY));
    return r->b->status;
}

/* Halved after an overflow, doubled after 2000 good steps, within 1 .. 2^24. */
static ebb_status follow_scale(recipe *r)
{
    ebb_graph *g = r->e->g;
    ebb_build *b = r->b;
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

static ebb_status drop_spent(recipe *r)
{
    bool *gone = EBB_SCRATCH(r->e, bool, r->e->g->value_count);
    if (gone == NULL)
        return ebb_error_memory();
    for (size_t i = 0; i < r->spent_count; i++)
        gone[r->spent[i].i] = true;
    ebb_graph_remove_outputs(r->e->g, gone);
    return NULL;
}

static ebb_status run(ebb_edit *e)
{
    ebb_graph *g = e->g;
    ebb_build b = ebb_edit_build(e, EBB_NO_NODE, EBB_UPDATE);
    b.phase = EBB_UPDATE;
    recipe r = {.e = e,
                .b = &b,
                .kind = ebb_option_string(e, "kind"),
                .momentum = ebb_option_float(e, "momentum"),
                .beta1 = ebb_option_float(e, "beta1"),
                .beta2 = ebb_option_float(e, "beta2"),
                .epsilon = ebb_option_float(e, "epsilon"),
                .transformers = strcmp(ebb_option_string(e, "order"), "transformers") == 0,
                .correct = ebb_option_int(e, "correct-bias") != 0};
    r.weight_decay = ebb_option_given(e, "weight-decay") ? ebb_option_float(e, "weight-decay")
                     : strcmp(r.kind, "adamw") == 0      ? 0.01
                                                         : 0;
    size_t count = g->initializer_count, parameters = 0;
    bool none = strcmp(r.kind, "none") == 0;
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
        if (r.lr.i == 0) {
            EBB_TRY(add_scalars(&r));
            EBB_TRY(make_zeros(&r));
            if ((r.spent = EBB_SCRATCH(e, ebb_value, count)) == NULL)
                return ebb_error_memory();
            if (ebb_value_find(g, "ebb.loss_scale").i != 0)
                EBB_TRY(find_good(&r));
        }
        EBB_TRY(update(&r, w, grad));
    }
    if (parameters == 0)
        return ebb_hint(
            ebb_error(EBB_USAGE, "optimizer: the graph has no parameters with gradients"),
            "run the gradient pass first");
    EBB_TRY(drop_spent(&r));
    EBB_TRY(follow_scale(&r));
    return count_steps(&r);
}

// clang-format off
static const ebb_option options[] = {
    {"kind",         EBB_OPTION_CHOICE, "sgd",     "sgd|momentum|adamw|none", "which optimizer"},
    {"lr",           EBB_OPTION_FLOAT,  NULL,      "[0, 1e30]",               "learning rate; default 0.1, for adamw 0.001"},
    {"momentum",     EBB_OPTION_FLOAT,  "0.9",     "[0, 1]",                  "momentum: how much of the last step stays"},
    {"beta1",        EBB_OPTION_FLOAT,  "0.9",     "[0, 1)",                  "adamw: decay of the first moment"},
    {"beta2",        EBB_OPTION_FLOAT,  "0.999",   "[0, 1)",                  "adamw: decay of the second moment"},
    {"epsilon",      EBB_OPTION_FLOAT,  "1e-8",    "[0, 1]",                  "adamw: added to the root of the second moment"},
    {"weight-decay", EBB_OPTION_FLOAT,  NULL,      "[0, 1e30]",               "default 0, for adamw 0.01 (decoupled)"},
    {"order",        EBB_OPTION_CHOICE, "pytorch", "pytorch|transformers",    "adamw: decay first and epsilon beside the corrected root, or last and beside the uncorrected one"},
    {"correct-bias", EBB_OPTION_INT,    "1",       "[0, 1]",                  "adamw: 0: moments are taken as they are in the first steps, too"},
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
