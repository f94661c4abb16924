/* facts.c: what a program asks of a model, of a loss and of an array, without JSON between. */

#include <math.h>

#include "exec/weigh/plan.h"
#include "onnx/words/options.h"
#include "onnx/words/tensor.h"
#include "passes/pipeline_text.h"
#include "passes/loss/loss.h"

/* ---- a model ---- */

/* One block: facts, lists, dims, names. First it is counted, with block NULL, then filled. */
typedef struct block {
    char *at;
    size_t used;
} block;

static void *take(block *b, size_t bytes)
{
    void *here = b->at != NULL ? b->at + b->used : NULL;
    b->used += (bytes + 7) & ~(size_t)7;
    return here;
}

static const char *take_text(block *b, const char *text)
{
    const size_t size = strlen(text) + 1;
    void *here = take(b, size);
    return here != NULL ? memcpy(here, text, size) : NULL;
}

static const ebb_named *take_values(block *b, const ebb_graph *g, const ebb_value *list,
                                    size_t count)
{
    ebb_named *values = take(b, count * sizeof *values);
    for (size_t i = 0; i < count; i++) {
        const ebb_type *type = ebb_value_of(g, list[i])->type;
        const char *name = take_text(b, ebb_value_name(g, list[i]));
        const int rank = type->rank > 0 ? type->rank : 0;
        int64_t *dims = take(b, (size_t)rank * sizeof *dims);
        for (int d = 0; dims != NULL && d < rank; d++)
            dims[d] = type->dims[d] >= 0 ? type->dims[d] : -1;
        if (values != NULL)
            values[i] = (ebb_named){name, type->dtype, type->rank, dims, NULL};
    }
    return values;
}

static const char *role_name(uint8_t role)
{
    static const char *const names[EBB_ROLE_COUNT] = {
        [EBB_ROLE_NONE] = "none",           [EBB_ROLE_PARAMETER] = "parameter",
        [EBB_ROLE_FROZEN] = "frozen",       [EBB_ROLE_STATISTIC] = "statistic",
        [EBB_ROLE_OPTIMIZER] = "optimizer", [EBB_ROLE_RANDOM] = "random",
        [EBB_ROLE_CONSTANT] = "constant"};
    return names[role];
}

static const ebb_weight_facts *const *take_weights(block *b, const ebb_graph *g)
{
    const ebb_weight_facts **list = take(b, g->initializer_count * sizeof *list);
    for (size_t i = 0; i < g->initializer_count; i++) {
        const ebb_value v = g->initializers[i];
        const ebb_value_info *info = ebb_value_of(g, v);
        ebb_weight_facts *facts = take(b, sizeof *facts);
        const ebb_named *named = take_values(b, g, &v, 1);
        if (facts == NULL)
            continue;
        *facts = (ebb_weight_facts){.value = *named,
                                    .bytes = info->tensor != NULL ? info->tensor->bytes : 0,
                                    .role = role_name(info->role),
                                    .is_replaced = ebb_graph_bound(g, v).i != 0};
        facts->value.data = info->tensor != NULL ? info->tensor->data : NULL;
        list[i] = facts;
    }
    return list;
}

static void take_all(block *b, ebb_model_facts *f, const ebb_graph *g, const ebb_value *inputs)
{
    f->inputs = take_values(b, g, inputs, f->input_count);
    f->outputs = take_values(b, g, g->outputs, f->output_count);
    f->weights = take_weights(b, g);
    f->loss = g->loss.i != 0 ? take_text(b, ebb_value_name(g, g->loss)) : NULL;
}

ebb_status ebb_facts_of(ebb_model_facts **facts, const ebb_model *model)
{
    EBB_NEED(facts);
    EBB_NEED(model);
    EBB_LOCAL_ARENA(scratch);
    *facts = NULL;
    const ebb_graph *g = model->graph;
    ebb_model_facts f = {.output_count = g->output_count,
                         .is_step = g->binding_count > 0,
                         .weight_count = g->initializer_count};
    ebb_value *inputs = EBB_NEW(scratch, ebb_value, g->input_count + 1);
    EBB_GOT(inputs);
    for (size_t i = 0; i < g->input_count; i++)
        if ((ebb_value_of(g, g->inputs[i])->flags & EBB_IS_INITIALIZER) == 0)
            inputs[f.input_count++] = g->inputs[i];
    for (size_t i = 0; i < g->initializer_count; i++)
        f.parameter_count += ebb_value_of(g, g->initializers[i])->role == EBB_ROLE_PARAMETER;
    EBB_EACH_NODE(g, n) {
        f.node_count++;
        f.has_gradient = f.has_gradient || ebb_node_of(g, n)->phase == EBB_BACKWARD;
    }
    for (size_t i = 0; i < g->binding_count; i++) {
        const uint8_t role = ebb_value_of(g, g->bindings[i].state)->role;
        f.trains = f.trains || (role != EBB_ROLE_STATISTIC && role != EBB_ROLE_RANDOM);
    }
    block b = {0};
    (void)take(&b, sizeof f);
    take_all(&b, &f, g, inputs);
    b = (block){.at = ebb_alloc(b.used)};
    EBB_GOT(b.at);
    *facts = take(&b, sizeof f);
    take_all(&b, &f, g, inputs);
    **facts = f;
    return NULL;
}

/* ---- a plan ---- */

static void take_plan(block *b, ebb_plan_facts *f, const ebb_plan *plan, const char *missing)
{
    const ebb_memory *m = &plan->memory;
    *f = (ebb_plan_facts){.peak_bytes = m->peak_bytes,
                          .arena_bytes = plan->packing.height,
                          .saved_bytes = m->saved_bytes,
                          .parameter_bytes = m->at_peak[EBB_PARAMETER],
                          .gradient_bytes = m->at_peak[EBB_GRADIENT],
                          .optimizer_bytes = m->at_peak[EBB_OPTIMIZER_STATE],
                          .input_bytes = m->at_peak[EBB_INPUT],
                          .activation_bytes = m->at_peak[EBB_ACTIVATION],
                          .temporary_bytes = m->at_peak[EBB_TEMPORARY] + m->at_peak[EBB_COMM],
                          .workspace_bytes = m->at_peak[EBB_WORKSPACE],
                          .disk_bytes = plan->places[EBB_PLACE_DISK].height,
                          .host_bytes = plan->places[EBB_PLACE_HOST].height,
                          .mapped_bytes = plan->places[EBB_PLACE_MAPPED].height,
                          .planned_ns = (int64_t)plan->planned_ns};
    if (m->peak_position < plan->count)
        f->peak_node = take_text(b, ebb_node_label(plan->g, plan->order[m->peak_position]));
    if (missing != NULL)
        f->missing = take_text(b, missing);
}

static ebb_status give_plan(ebb_plan_facts **facts, const ebb_plan *plan, const char *missing)
{
    ebb_plan_facts f;
    block b = {0};
    (void)take(&b, sizeof f);
    take_plan(&b, &f, plan, missing);
    b = (block){.at = ebb_alloc(b.used)};
    EBB_GOT(b.at);
    *facts = take(&b, sizeof f);
    take_plan(&b, *facts, plan, missing);
    return NULL;
}

ebb_status ebb_plan_facts_of(ebb_plan_facts **facts, ebb_model *model,
                             const ebb_plan_options *options)
{
    EBB_NEED(facts);
    EBB_NEED(model);
    const char *missing = NULL;
    ebb_plan_options own;
    ebb_setting setting;
    EBB_LOCAL_ARENA(arena);
    ebb_plan plan;
    *facts = NULL;
    EBB_TRY(EBB_OPTIONS_TAKE(ebb_plan_options, &own, lives, options));
    EBB_NEED_COUNT(own.threads);
    EBB_TRY(ebb_setting_read(&setting, model, own.backend, own.seed, own.threads));
    ebb_status status = ebb_plan_estimate(&plan, arena, model->graph, &setting, &missing);
    if (status == NULL) {
        status = give_plan(facts, &plan, missing);
        ebb_plan_release(&plan);
    }
    return status;
}

/* ---- a loss ---- */

/* As given, or the pass's default; NULL: neither. */
static const char *option_of(const ebb_stage *s, const char *name)
{
    for (size_t i = s->option_count; i-- > 0;)
        if (strcmp(s->options[i].name, name) == 0)
            return s->options[i].value;
    for (const ebb_option *o = s->pass->options; o != NULL && o->name != NULL; o++)
        if (strcmp(o->name, name) == 0)
            return o->otherwise;
    return NULL;
}

static void take_loss(block *b, ebb_loss_facts *f, const ebb_stage *s)
{
    const char *kind = option_of(s, "kind"), *output = option_of(s, "output");
    const char *target = option_of(s, "target");
    const char *name = option_of(s, "name"), *lengths = option_of(s, "input-lengths");
    f->lengths = lengths != NULL ? take_text(b, lengths) : NULL;
    f->name = name != NULL ? take_text(b, name) : NULL;
    f->kind = take_text(b, kind != NULL && name == NULL ? kind : "");
    f->output = output != NULL ? take_text(b, output) : NULL;
    f->target = take_text(b, target != NULL ? target : "");
    double *weights = take(b, f->class_weight_count * sizeof *weights);
    if (weights != NULL && f->class_weight_count > 0)
        f->class_weights =
            memcpy(weights, f->class_weights, f->class_weight_count * sizeof *weights);
}

ebb_status ebb_loss_facts_of(ebb_loss_facts **facts, const char *loss)
{
    EBB_NEED(facts);
    EBB_NEED(loss);
    EBB_LOCAL_ARENA(scratch);
    *facts = NULL;
    ebb_stage read, *s = &read;
    ebb_loss_facts f = {.axis = 1};
    EBB_TRY(ebb_stage_read(s, "loss", loss, scratch));
    const char *axis = option_of(s, "axis"), *ignore = option_of(s, "ignore_index");
    const char *reduction = option_of(s, "reduction"), *weights = option_of(s, "class-weights");
    EBB_TRY(ebb_real_parse(&f.weight, option_of(s, "weight"), NULL, "weight"));
    if (weights != NULL)
        EBB_TRY(ebb_loss_numbers(&f.class_weights, &f.class_weight_count, weights,
                                 "loss: class-weights", scratch));
    if (axis != NULL)
        EBB_TRY(ebb_whole_parse(&f.axis, axis, NULL, "axis"));
    EBB_TRY(ebb_whole_parse(&f.time_axis, option_of(s, "time-axis"), NULL, "time-axis"));
    EBB_TRY(ebb_whole_parse(&f.blank, option_of(s, "blank"), NULL, "blank"));
    if (ignore != NULL)
        EBB_TRY(ebb_whole_parse(&f.ignore_index, ignore, NULL, "ignore_index"));
    f.is_sum = reduction != NULL && strcmp(reduction, "sum") == 0;
    block b = {0};
    (void)take(&b, sizeof f);
    take_loss(&b, &f, s);
    b = (block){.at = ebb_alloc(b.used)};
    EBB_GOT(b.at);
    *facts = take(&b, sizeof f);
    take_loss(&b, &f, s);
    **facts = f;
    return NULL;
}

/* ---- an array ---- */

double ebb_element(const ebb_named *named, size_t index)
{
    ebb_tensor t = {.type = ebb_type_tensor((ebb_dtype)named->dtype, named->rank, named->dims),
                    .data = named->data};
    int64_t count;
    if (named->data == NULL || !ebb_type_elements(&t.type, &count) || (int64_t)index >= count ||
        !ebb_type_bytes(&t.type, &t.bytes) || named->dtype == EBB_STRING ||
        named->dtype == EBB_C64 || named->dtype == EBB_C128)
        return NAN;
    return ebb_tensor_double(&t, (int64_t)index);
}

const char *ebb_dtype_text(int dtype)
{
    return ebb_dtype_name((ebb_dtype)dtype);
}
