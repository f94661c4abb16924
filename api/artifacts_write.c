/* artifacts_write.c: one step as the four files that ONNX Runtime trains from.
 *
 *     w (an initializer) ... w_grad,  w_next = AdamW(ebb.lr, ebb.step, w, w_grad, m, v)
 *
 *     ──> training_model.onnx   w (an input) ... w_grad ─> InPlaceAccumulatorV2 ─> flag
 *         eval_model.onnx       w (an input) ... loss, everything at rest
 *         optimizer_model.onnx  AdamWOptimizer(learning_rate, step, params, gradients, moments)
 *         checkpoint            the bytes of each w, its moments, the steps done, the rate
 *
 * The step itself says all that is in them: its update nodes which optimizer it is, its loss what
 * the evaluation is. What changes from step to step and has no place in the four is refused.
 */
#include "api/artifacts.h"

#include <errno.h>
#include <sys/stat.h>

#include "api/artifacts_survey.h"
#include "exec/data/ort_checkpoint.h"
#include "passes/flatten/dialect/out.h"
#include "passes/pipeline.h"

enum {
    IR_MOST = 10,    /* what its last release with training reads */
    IR_OPTIMIZER = 8 /* what one node needs, and what its tools write beside it */
};

/* ---- what all models of the set share ---- */

static void strip_props(const ebb_graph *g, ebb_props *props)
{
    uint32_t kept = 0;
    EBB_EACH_PROP(props, p)
        if (strncmp(ebb_text(g, p->key), "ebb.", 4) != 0)
            props->all->at[kept++] = *p;
    if (props->all != NULL)
        props->all->count = kept;
}

/* ebb's own marks go; the backward is marked as ONNX Runtime does it. */
static ebb_status strip(ebb_model *m)
{
    ebb_graph *g = m->graph;
    ebb_str backward = ebb_graph_intern(g, "Backward pass");
    EBB_GOT(backward.i != 0);
    EBB_EACH_NODE(g, n) {
        ebb_node_info *info = ebb_node_of(g, n);
        if (info->phase == EBB_BACKWARD)
            info->doc = backward;
        info->phase = EBB_PHASE_NONE;
        strip_props(g, &info->props);
    }
    EBB_EACH_VALUE(g, v) {
        ebb_value_of(g, v)->role = EBB_ROLE_NONE;
        strip_props(g, &ebb_value_of(g, v)->props);
    }
    strip_props(g, &g->props);
    strip_props(g, &m->props);
    g->loss = EBB_NO_VALUE;
    m->initialization = NULL;
    m->init_binding_count = 0;
    m->ir_version = m->ir_version > IR_MOST ? IR_MOST : m->ir_version;
    return NULL;
}

/* The loss alone is left of the outputs, and no state is replaced. */
static void keep_loss(ebb_graph *g)
{
    while (g->binding_count > 0)
        ebb_graph_unbind(g, g->bindings[0].state);
    for (size_t i = g->output_count; i-- > 0;)
        if (!ebb_same_value(g->outputs[i], g->loss))
            ebb_graph_remove_output(g, g->outputs[i]);
}

/* Weights that are read become inputs, in their order; what nobody reads goes. count_frozen: the
 * survey takes down those that are not trained. */
static ebb_status ask_for_weights(ebb_graph *g, ebb_survey *s, bool count_frozen)
{
    bool *trains = EBB_NEW(&s->arena, bool, g->value_count);
    ebb_value *list = EBB_NEW(&s->arena, ebb_value, g->initializer_count + 1);
    size_t count = g->initializer_count;
    EBB_GOT(trains && list);
    memcpy(list, g->initializers, count * sizeof *list);
    for (size_t i = 0; i < s->count; i++)
        trains[s->list[i].w.i] = true;
    for (size_t i = 0; i < count; i++) {
        ebb_value v = list[i];
        uint8_t role = ebb_value_of(g, v)->role;
        bool weight = trains[v.i] || role == EBB_ROLE_FROZEN || role == EBB_ROLE_STATISTIC ||
                      role == EBB_ROLE_PARAMETER;
        if (!ebb_value_is_read(g, v))
            ebb_graph_remove_initializer(g, v);
        else if (weight)
            EBB_TRY(ebb_graph_ask_input(g, v));
        if (weight && !trains[v.i] && count_frozen && ebb_value_is_read(g, v))
            s->frozen[s->frozen_count++] = v;
    }
    return NULL;
}

/* ---- training_model.onnx ---- */

static ebb_status add_value(ebb_graph *g, ebb_value *v, const ebb_type *type, const char *name)
{
    if (ebb_value_find(g, name).i != 0)
        return ebb_error(EBB_UNSUPPORTED,
                         "the model has a value '%s', which ONNX Runtime's "
                         "training needs for its own",
                         name);
    return ebb_value_add(g, v, name, type);
}

/* The gradient gets the name that readers look for; what two parameters share becomes two. */
static ebb_status name_gradient(ebb_graph *g, const ebb_survey *s, size_t k, const char *name)
{
    ebb_survey_trained *t = &s->list[k];
    ebb_value other = ebb_value_find(g, name);
    for (size_t i = 0; i < k; i++) {
        if (!ebb_same_value(s->list[i].grad, t->grad))
            continue;
        ebb_build b = ebb_build_at(g, EBB_NO_NODE, EBB_BACKWARD, NULL);
        t->grad = ebb_emit(&b, EBB_OP_IDENTITY, t->grad);
        EBB_TRY(b.status);
    }
    if (ebb_same_value(other, t->grad))
        return NULL;
    if (other.i != 0) // a part of it, say
        EBB_TRY(ebb_value_step_aside(g, other, name));
    return ebb_value_rename(g, t->grad, name);
}

static ebb_status accumulate(ebb_graph *g, ebb_survey *s, size_t k, ebb_value reset)
{
    const ebb_survey_trained *t = &s->list[k];
    const char *w = ebb_value_name(g, t->w);
    char *grad = ebb_arena_printf(&s->arena, "%s_grad", w);
    char *buffer = ebb_arena_printf(&s->arena, "%s_grad.accumulation.buffer", w);
    char *flag = ebb_arena_printf(&s->arena, "%s_grad.accumulation.out", w);
    char *name = ebb_arena_printf(&s->arena, "GradientAccumulator%zu", k + 1);
    ebb_value in[3] = {{0}, {0}, reset}, out[1];
    ebb_type type = *ebb_value_of(g, t->w)->type;
    const ebb_type one = ebb_type_tensor(EBB_BOOL, 1, (const int64_t[]){1});
    ebb_node n;
    EBB_GOT(grad && buffer && flag && name);
    ebb_graph_remove_output(g, t->grad);
    EBB_TRY(name_gradient(g, s, k, grad));
    in[1] = t->grad;
    EBB_TRY(add_value(g, &in[0], &type, buffer));
    EBB_TRY(ebb_graph_add_input(g, in[0]));
    EBB_TRY(add_value(g, &out[0], &one, flag));
    EBB_TRY(ebb_node_add(g, &n, EBB_NO_NODE, EBB_DOMAIN_MS, "InPlaceAccumulatorV2", in, 3, out, 1));
    ebb_node_of(g, n)->name = ebb_graph_intern(g, name);
    return ebb_graph_add_output(g, out[0]);
}

/* A state that the step replaces has a place among the four files. */
static bool has_place(const ebb_survey *s, const ebb_graph *g, const ebb_binding *b)
{
    for (size_t i = 0; i < s->count; i++)
        if (ebb_same_value(b->state, s->list[i].w) || ebb_same_value(b->state, s->list[i].m) ||
            ebb_same_value(b->state, s->list[i].v))
            return true;
    if (ebb_same_value(b->state, s->recipe.step) || !ebb_value_is_read(g, b->state))
        return true;
    const ebb_value_info *next = ebb_value_of(g, b->next);
    return next->producer.i != 0 && next->producer_slot > 0 && next->producer_slot < 3 &&
           strcmp(ebb_text(g, ebb_node_of(g, next->producer)->op_name), "BatchNormInternal") == 0 &&
           ebb_same_value(ebb_in(g, next->producer, 2 + next->producer_slot), b->state);
}

static ebb_status check_states(const ebb_survey *s, const ebb_graph *g, const ebb_binding *list,
                               size_t count)
{
    for (size_t i = 0; i < count; i++) {
        ebb_value state = list[i].state;
        if (has_place(s, g, &list[i]))
            continue;
        ebb_node reader = ebb_value_of(g, state)->use_count > 0
                              ? ebb_value_of(g, state)->uses[0].node
                              : EBB_NO_NODE;
        return ebb_hint(
            ebb_error(EBB_UNSUPPORTED,
                      "%s: '%s' changes with each step, and ONNX Runtime's artifacts have no place "
                      "for it",
                      ebb_node_label(g, reader), ebb_value_name(g, state)),
            "make the step without the pass that needs it; dropout can stand with its mask");
    }
    return NULL;
}

static ebb_status make_training(ebb_model *m, ebb_survey *s)
{
    ebb_graph *g = m->graph;
    size_t count = g->binding_count;
    ebb_binding *bindings = EBB_NEW(&s->arena, ebb_binding, count + 1);
    const ebb_type one = ebb_type_tensor(EBB_BOOL, 1, (const int64_t[]){1});
    ebb_value reset;
    EBB_GOT(bindings);
    if (count > 0)
        memcpy(bindings, g->bindings, count * sizeof *bindings);
    ebb_pipeline_unmark(g);
    keep_loss(g);
    for (size_t i = 0; i < s->count; i++)
        EBB_TRY(ebb_graph_add_output(g, s->list[i].grad));
    (void)ebb_graph_sweep(g);
    EBB_TRY(ebb_out_training(g, &s->narrowed));
    EBB_TRY(check_states(s, g, bindings, count));
    EBB_TRY(ask_for_weights(g, s, true));
    EBB_TRY(add_value(g, &reset, &one, "lazy_reset_grad"));
    for (size_t i = 0; i < s->count; i++)
        EBB_TRY(accumulate(g, s, i, reset));
    EBB_TRY(ebb_graph_add_input(g, reset));
    EBB_TRY(ebb_out_body(m, "InPlaceAccumulatorV2"));
    return strip(m);
}

static ebb_status make_eval(ebb_model *m, ebb_survey *s)
{
    ebb_graph *g = m->graph;
    ebb_pipeline_unmark(g);
    keep_loss(g);
    (void)ebb_graph_sweep(g);
    EBB_TRY(ebb_out_eval(g));
    EBB_TRY(ask_for_weights(g, s, false));
    return strip(m);
}

/* ---- optimizer_model.onnx ---- */

static ebb_status add_list(ebb_graph *g, ebb_value *v, const char *name, uint8_t dtype)
{
    ebb_type type = ebb_type_none();
    type.kind = EBB_KIND_SEQUENCE;
    type.dtype = dtype;
    EBB_TRY(ebb_value_add(g, v, name, &type));
    return ebb_graph_add_input(g, *v);
}

static ebb_status add_adam_attributes(ebb_graph *g, ebb_node n, const ebb_survey_recipe *r)
{
    EBB_TRY(ebb_node_set_float(g, n, "alpha", r->alpha));
    EBB_TRY(ebb_node_set_float(g, n, "beta", r->beta));
    EBB_TRY(ebb_node_set_float(g, n, "epsilon", r->epsilon));
    EBB_TRY(ebb_node_set_float(g, n, "weight_decay", r->decay));
    EBB_TRY(ebb_node_set_int(g, n, "adam_mode", r->mode));
    return ebb_node_set_int(g, n, "correct_bias", r->correct);
}

/* Inputs as the tools have them: a moment stands among those of SGD, too, and is read by nobody. */
static ebb_status make_optimizer(ebb_model *m, const ebb_survey *s, uint8_t dtype)
{
    static const char *const lists[] = {"params", "gradients", "first_order_moments",
                                        "second_order_moments"};
    const bool adam = s->recipe.kind == EBB_SURVEY_ADAMW;
    const ebb_type one = ebb_type_tensor(EBB_BOOL, 1, (const int64_t[]){1});
    ebb_type rate = one, step = one;
    ebb_graph *g = m->graph;
    ebb_value in[6], done;
    ebb_node n;
    rate.dtype = EBB_F32;
    step.dtype = EBB_I64;
    EBB_TRY(ebb_model_import(m, EBB_DOMAIN_MS, 1));
    EBB_TRY(ebb_value_add(g, &in[0], "learning_rate", &rate));
    EBB_TRY(ebb_graph_add_input(g, in[0]));
    EBB_TRY(ebb_value_add(g, &in[1], "step", &step));
    EBB_TRY(ebb_graph_add_input(g, in[1]));
    for (uint32_t k = 0; k < (adam ? 4 : 3); k++)
        EBB_TRY(add_list(g, &in[2 + k], lists[k], dtype));
    EBB_TRY(ebb_value_add(g, &done, "updated_flag", &one));
    if (adam) {
        EBB_TRY(ebb_node_add(g, &n, EBB_NO_NODE, EBB_DOMAIN_MS, "AdamWOptimizer", in, 6, &done, 1));
        EBB_TRY(add_adam_attributes(g, n, &s->recipe));
    } else {
        const ebb_value three[3] = {in[0], in[2], in[3]};
        EBB_TRY(
            ebb_node_add(g, &n, EBB_NO_NODE, EBB_DOMAIN_MS, "SGDOptimizerV2", three, 3, &done, 1));
    }
    g->name = ebb_graph_intern(g, "optimizer");
    return ebb_graph_add_output(g, done);
}

/* ---- checkpoint ---- */

static ebb_status named_of(const ebb_graph *g, ebb_value v, ebb_named *named)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    const ebb_tensor *t = info->tensor;
    *named = (ebb_named){ebb_value_name(g, v), info->type->dtype, info->type->rank,
                         info->type->dims, t != NULL ? t->data : NULL};
    if (t == NULL || (t->data == NULL && t->bytes != 0))
        return ebb_hint(ebb_error(EBB_USAGE, "'%s' has no bytes, which a checkpoint holds",
                                  ebb_value_name(g, v)),
                        "draw weights with --init or give them with --weights");
    return NULL;
}

/* SGD's list of moments has zeros in it, which its users look for. */
static ebb_status list_moments(const ebb_graph *g, ebb_survey *s, ebb_ort_checkpoint *c)
{
    size_t most = 0;
    const void *zeros = NULL;
    c->moment_count = s->recipe.kind == EBB_SURVEY_ADAMW ? 2 : 1;
    for (size_t i = 0; i < s->count; i++) {
        size_t bytes = ebb_value_of(g, s->list[i].w)->tensor->bytes;
        most = bytes > most ? bytes : most;
    }
    if (s->recipe.kind == EBB_SURVEY_SGD &&
        (zeros = ebb_arena_zeroed(&s->arena, most + 1, 1)) == NULL)
        return ebb_error_memory();
    for (unsigned k = 0; k < c->moment_count; k++) {
        ebb_named *list = EBB_NEW(&s->arena, ebb_named, s->count + 1);
        EBB_GOT(list);
        for (size_t i = 0; i < s->count; i++) {
            list[i] = c->trained[i];
            list[i].data = zeros;
            if (s->recipe.kind == EBB_SURVEY_ADAMW)
                EBB_TRY(named_of(g, k == 0 ? s->list[i].m : s->list[i].v, &list[i]));
        }
        c->moments[k] = list;
    }
    return NULL;
}

static ebb_status fill_optimizer(const ebb_graph *g, ebb_survey *s, ebb_ort_checkpoint *c)
{
    ebb_named rate, step = {0};
    EBB_TRY(list_moments(g, s, c));
    EBB_TRY(named_of(g, s->recipe.lr, &rate));
    if (rate.dtype != EBB_F32 || ebb_value_of(g, s->recipe.lr)->tensor->bytes != sizeof c->rate)
        return ebb_survey_other_optimizer(g, s->list[0].w);
    memcpy(&c->rate, rate.data, sizeof c->rate);
    if (s->recipe.step.i != 0)
        EBB_TRY(named_of(g, s->recipe.step, &step));
    if (step.data != NULL && step.dtype == EBB_I64)
        memcpy(&c->step, step.data, sizeof c->step);
    return NULL;
}

static ebb_status fill_checkpoint(const ebb_graph *g, ebb_survey *s, ebb_ort_checkpoint *c)
{
    ebb_named *w = EBB_NEW(&s->arena, ebb_named, s->count + 1);
    ebb_named *frozen = EBB_NEW(&s->arena, ebb_named, s->frozen_count + 1);
    EBB_GOT(w && frozen);
    *c = (ebb_ort_checkpoint){.trained = w,
                              .trained_count = s->count,
                              .frozen = frozen,
                              .frozen_count = s->frozen_count,
                              .has_optimizer = s->recipe.kind != EBB_SURVEY_NONE};
    for (size_t i = 0; i < s->count; i++)
        EBB_TRY(named_of(g, s->list[i].w, &w[i]));
    for (size_t i = 0; i < s->frozen_count; i++)
        EBB_TRY(named_of(g, s->frozen[i], &frozen[i]));
    return c->has_optimizer ? fill_optimizer(g, s, c) : NULL;
}

/* ---- the set ---- */

static const char *const file_names[] = {"training_model.onnx", "eval_model.onnx",
                                         "optimizer_model.onnx", "checkpoint"};
enum { TRAINING, EVAL, OPTIMIZER, MODELS, CHECKPOINT = MODELS, FILES };

static ebb_status derive_training(ebb_model **m, const ebb_model *step, ebb_survey *s)
{
    EBB_TRY(ebb_model_copy(m, step));
    return make_training(*m, s);
}

static ebb_status derive_eval(ebb_model **m, const ebb_model *step, ebb_survey *s)
{
    EBB_TRY(ebb_model_copy(m, step));
    return make_eval(*m, s);
}

static ebb_status derive_optimizer(ebb_model **m, const ebb_model *step, const ebb_survey *s)
{
    const ebb_graph *g = step->graph;
    const uint8_t dtype = ebb_value_of(g, s->list[0].w)->type->dtype;
    if (s->recipe.kind == EBB_SURVEY_NONE)
        return NULL;
    for (size_t i = 1; i < s->count; i++)
        if (ebb_value_of(g, s->list[i].w)->type->dtype != dtype)
            return ebb_error(EBB_UNSUPPORTED,
                             "'%s' and '%s' are of different data types, and ONNX Runtime's "
                             "optimizers take one",
                             ebb_value_name(g, s->list[0].w), ebb_value_name(g, s->list[i].w));
    EBB_TRY(ebb_model_new(m, ebb_model_opset(step, EBB_DOMAIN_ONNX)));
    (*m)->ir_version = IR_OPTIMIZER;
    return make_optimizer(*m, s, dtype);
}

/* All is made, and found to be whole, before a file appears. */
static ebb_status derive(const ebb_model *step, ebb_survey *s, ebb_model *models[MODELS],
                         ebb_ort_checkpoint *c)
{
    EBB_TRY(ebb_survey_step(s, step->graph));
    EBB_TRY(derive_training(&models[TRAINING], step, s));
    EBB_TRY(derive_eval(&models[EVAL], step, s));
    EBB_TRY(derive_optimizer(&models[OPTIMIZER], step, s));
    return fill_checkpoint(step->graph, s, c);
}

static ebb_status write_files(ebb_model *const models[MODELS], const ebb_ort_checkpoint *c,
                              const char *folder, ebb_arena *arena)
{
    const char *path[FILES];
    for (int i = 0; i < FILES; i++)
        EBB_GOT((path[i] = ebb_arena_printf(arena, "%s/%s", folder, file_names[i])) != NULL);
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return ebb_error_io(folder, "making the folder");
    for (int i = 0; i < MODELS; i++)
        if (models[i] != NULL)
            EBB_TRY(ebb_save(models[i], path[i]));
    return ebb_ort_checkpoint_write(path[CHECKPOINT], c);
}

static ebb_status report(const ebb_survey *s, char **json)
{
    static const char *const names[] = {"none", "AdamWOptimizer", "SGDOptimizerV2"};
    json_t *files = json_array(), *notes = json_array();
    for (int i = 0; i < FILES; i++)
        if (i != OPTIMIZER || s->recipe.kind != EBB_SURVEY_NONE)
            json_array_append_new(files, json_string(file_names[i]));
    if (s->narrowed > 0)
        json_array_append_new(
            notes, json_sprintf("%zu running variance%s divided by the number of elements from now "
                                "on, as ONNX Runtime does it, and not by one less",
                                s->narrowed, s->narrowed == 1 ? " is" : "s are"));
    return ebb_json_text(json,
                         json_pack("{s:s, s:o, s:I, s:I, s:s, s:o}", "schema", "ebb.artifacts/1",
                                   "files", files, "trained", (json_int_t)s->count, "frozen",
                                   (json_int_t)s->frozen_count, "optimizer", names[s->recipe.kind],
                                   "notes", notes));
}

EBB_API ebb_status ebb_artifacts_save(const ebb_model *step, const char *folder, char **json)
{
    EBB_NEED(step);
    EBB_NEED(folder);
    ebb_survey s = {0};
    ebb_model *models[MODELS] = {NULL};
    ebb_ort_checkpoint c;
    ebb_status status = derive(step, &s, models, &c);
    if (status == NULL)
        status = write_files(models, &c, folder, &s.arena);
    if (status == NULL && json != NULL)
        status = report(&s, json);
    for (int i = 0; i < MODELS; i++)
        ebb_model_free(models[i]);
    ebb_arena_fini(&s.arena);
    return status;
}

/* The training graph says which weights are read. */
EBB_API ebb_status ebb_artifacts_checkpoint(const ebb_model *step, const char *path,
                                            const char *properties)
{
    EBB_NEED(step);
    EBB_NEED(path);
    ebb_survey s = {0};
    ebb_model *training = NULL;
    ebb_ort_checkpoint c;
    ebb_status status = ebb_survey_step(&s, step->graph);
    if (status == NULL)
        status = derive_training(&training, step, &s);
    if (status == NULL)
        status = fill_checkpoint(step->graph, &s, &c);
    if (status == NULL) {
        c.properties = properties;
        status = ebb_ort_checkpoint_write(path, &c);
    }
    ebb_model_free(training);
    ebb_arena_fini(&s.arena);
    return status;
}
