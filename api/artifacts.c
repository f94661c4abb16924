/* artifacts.c: four files that ONNX Runtime trains from, as one step.
 *
 *     training_model.onnx   w (an input) ... w_grad ─> InPlaceAccumulatorV2 ─> flag (an output)
 *     optimizer_model.onnx  AdamWOptimizer(lr, step, all w, all w_grad, all m, all v)
 *     checkpoint            the bytes of each w, and what the optimizer has counted
 *     eval_model.onnx       the forward alone: not needed here
 *
 *     ──> w (an initializer) ... w_grad,  w_next = AdamW(ebb.lr, ebb.step, w, w_grad, ...)
 *         which replaces w
 *
 * The optimizer takes sequences of tensors, one for all parameters: here it becomes one node for
 * each, by the pass optimizer. The buffers go, since a step's gradients are used in the step; the
 * pass micro-batch adds up over parts of a batch. ONNX Runtime writes new running statistics over
 * the old ones without saying so in the file: here they are bound.
 */
#include "api/artifacts.h"

#include <sys/stat.h>
#include <unistd.h>

#include "onnx/file/file.h"
#include "onnx/words/print.h"

static const char training_name[] = "training_model.onnx";

const char *ebb_artifacts_file(ebb_arena *arena, const char *path)
{
    struct stat facts;
    if (stat(path, &facts) != 0 || !S_ISDIR(facts.st_mode))
        return path;
    return ebb_arena_printf(arena, "%s/%s", path, training_name);
}

/* ---- the training graph ---- */

static bool is(const ebb_graph *g, ebb_node n, const char *name)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    return strcmp(ebb_text(g, info->op_name), name) == 0 &&
           strcmp(ebb_text(g, info->domain), EBB_DOMAIN_MS) == 0;
}

static bool has_flag(const ebb_graph *g, ebb_value v, uint16_t flag)
{
    return v.i != 0 && (ebb_value_of(g, v)->flags & flag) != 0;
}

/* An accumulator whose buffer the caller holds and whose flag the caller gets. */
static bool is_accumulator(const ebb_graph *g, ebb_node n)
{
    return is(g, n, "InPlaceAccumulatorV2") && has_flag(g, ebb_in(g, n, 0), EBB_IS_INPUT) &&
           has_flag(g, ebb_out(g, n, 0), EBB_IS_OUTPUT) && ebb_in(g, n, 1).i != 0;
}

static void drop_input(ebb_graph *g, ebb_value v)
{
    if (has_flag(g, v, EBB_IS_INPUT) && ebb_value_of(g, v)->use_count == 0)
        ebb_graph_remove_input(g, v);
}

/* The accumulator of w's gradient goes: w is trained, and w_grad an output. */
static ebb_status join_gradient(ebb_graph *g, ebb_node n)
{
    static const char suffix[] = "_grad";
    ebb_value grad = ebb_in(g, n, 1), buffer = ebb_in(g, n, 0), signal = ebb_in(g, n, 2);
    const char *name = ebb_value_name(g, grad);
    size_t length = strlen(name), tail = sizeof suffix - 1;
    if (length <= tail || strcmp(name + length - tail, suffix) != 0)
        return ebb_error(EBB_REJECTED,
                         "%s: '%s' is accumulated, which is not NAME_grad of a weight",
                         ebb_node_label(g, n), name);
    char *weight = ebb_arena_printf(&g->model->arena, "%.*s", (int)(length - tail), name);
    EBB_GOT(weight);
    ebb_value w = ebb_value_find(g, weight);
    if (has_flag(g, w, EBB_IS_INPUT) && !has_flag(g, w, EBB_IS_INITIALIZER))
        EBB_TRY(ebb_graph_keep_input(g, w, EBB_ROLE_PARAMETER));
    else if (!has_flag(g, w, EBB_IS_INITIALIZER))
        return ebb_error(EBB_REJECTED, "%s: the graph has no weight '%s' for this gradient",
                         ebb_node_label(g, n), weight);
    ebb_value_of(g, w)->role = EBB_ROLE_PARAMETER;
    for (uint32_t k = 0; k < ebb_node_of(g, n)->out_count; k++)
        if (has_flag(g, ebb_out(g, n, k), EBB_IS_OUTPUT))
            ebb_graph_remove_output(g, ebb_out(g, n, k));
    ebb_node_remove(g, n);
    drop_input(g, buffer);
    drop_input(g, signal);
    return has_flag(g, grad, EBB_IS_OUTPUT) ? NULL : ebb_graph_add_output(g, grad);
}

/* Inputs 3 and 4, the running statistics, are replaced by outputs 1 and 2. */
static ebb_status join_statistics(ebb_graph *g, ebb_node n)
{
    for (uint32_t k = 0; k < 2; k++) {
        ebb_value old = ebb_in(g, n, 3 + k), next = ebb_out(g, n, 1 + k);
        if (has_flag(g, old, EBB_IS_INPUT) && !has_flag(g, old, EBB_IS_INITIALIZER))
            EBB_TRY(ebb_graph_keep_input(g, old, EBB_ROLE_STATISTIC));
        if (!has_flag(g, old, EBB_IS_INITIALIZER) || next.i == 0 || ebb_graph_bound(g, old).i != 0)
            continue;
        ebb_value_of(g, old)->role = EBB_ROLE_STATISTIC;
        EBB_TRY(ebb_graph_bind(g, old, next));
    }
    return NULL;
}

/* The first output that is a single floating-point number. */
static void join_loss(ebb_graph *g)
{
    for (size_t i = 0; i < g->output_count && g->loss.i == 0; i++) {
        const ebb_type *t = ebb_value_of(g, g->outputs[i])->type;
        int64_t elements;
        if (ebb_dtype_is_float((ebb_dtype)t->dtype) && t->rank >= 0 &&
            ebb_type_elements(t, &elements) && elements == 1)
            g->loss = g->outputs[i];
    }
    // Shapes that the backward asks for stand where they are at hand, marked as backward.
    bool forward = g->loss.i != 0;
    EBB_EACH_NODE(g, n) {
        ebb_node_info *info = ebb_node_of(g, n);
        bool makes = forward && ebb_value_of(g, g->loss)->producer.i == n.i;
        if (forward || info->phase == EBB_PHASE_NONE)
            info->phase = makes ? EBB_LOSS : EBB_FORWARD;
        if (info->phase != EBB_BACKWARD)
            info->doc = (ebb_str){0};
        forward = forward && !makes;
    }
}

ebb_status ebb_artifacts_join(ebb_model *model, bool *joined)
{
    ebb_graph *g = model->graph;
    *joined = false;
    EBB_EACH_NODE(g, n)
        *joined = *joined || is_accumulator(g, n);
    if (!*joined)
        return NULL;
    EBB_EACH_NODE(g, n) {
        if (is_accumulator(g, n))
            EBB_TRY(join_gradient(g, n));
        else if (is(g, n, "BatchNormInternal"))
            EBB_TRY(join_statistics(g, n));
    }
    join_loss(g);
    return NULL;
}

/* ---- what lies beside it ---- */

/* The file with `name` instead of training_model.onnx; NULL: there is none, or the model is called
 * otherwise. */
static const char *beside(ebb_arena *arena, const char *file, const char *name)
{
    size_t length = strlen(file), tail = sizeof training_name - 1;
    if (length < tail || strcmp(file + length - tail, training_name) != 0)
        return NULL;
    char *path = ebb_arena_printf(arena, "%.*s%s", (int)(length - tail), file, name);
    return path != NULL && access(path, R_OK) == 0 ? path : NULL;
}

/* The pass that does what the optimizer's node says. */
static ebb_status describe(char *text, size_t size, const ebb_graph *g)
{
    EBB_EACH_NODE(g, n) {
        ebb_attrs a = ebb_node_attrs(g, n);
        if (is(g, n, "SGDOptimizerV2")) {
            (void)snprintf(text, size, "optimizer:kind=sgd,lr=0.001");
            return NULL;
        }
        if (!is(g, n, "AdamWOptimizer"))
            continue;
        (void)ebb_snprintf(text, size,
                           "optimizer:kind=adamw,lr=0.001,beta1=%.9g,beta2=%.9g,epsilon=%.9g,"
                           "weight-decay=%.9g,order=%s,correct-bias=%d",
                           ebb_attr_float(&a, "alpha", (double)0.9f),
                           ebb_attr_float(&a, "beta", (double)0.999f),
                           ebb_attr_float(&a, "epsilon", (double)1e-8f),
                           ebb_attr_float(&a, "weight_decay", (double)1e-2f),
                           ebb_attr_int(&a, "adam_mode", 0) == 0 ? "pytorch" : "transformers",
                           ebb_attr_int(&a, "correct_bias", 1) != 0);
        return NULL;
    }
    return ebb_error(EBB_UNSUPPORTED, "there is no AdamWOptimizer or SGDOptimizerV2 in it");
}

static ebb_status read_optimizer(char *text, size_t size, const char *path)
{
    ebb_model *m = NULL;
    EBB_TRY(ebb_model_read(&m, path));
    ebb_status status = ebb_at(describe(text, size, m->graph), path);
    ebb_model_free(m);
    return status;
}

ebb_status ebb_artifacts_finish(ebb_model *model, const char *file)
{
    ebb_arena *arena = &model->arena;
    char pipeline[512] = "inline", optimizer[384];
    const char *weights = beside(arena, file, "checkpoint");
    const char *updates = beside(arena, file, "optimizer_model.onnx");
    if (weights != NULL)
        EBB_TRY(ebb_load_weights(model, weights));
    if (updates != NULL) {
        EBB_TRY(read_optimizer(optimizer, sizeof optimizer, updates));
        (void)snprintf(pipeline, sizeof pipeline, "inline,%s", optimizer);
    }
    ebb_status status = ebb_rewrite(model, pipeline, NULL, NULL);
    if (updates != NULL && ebb_status_code(status) == EBB_USAGE) // its numbers are the file's
        status = ebb_at(ebb_error(EBB_REJECTED, "%s", ebb_status_text(status)), updates);
    EBB_TRY(status);
    if (weights != NULL && updates != NULL) // what the optimizer has counted so far
        EBB_TRY(ebb_load_weights(model, weights));
    return NULL;
}
