/* weights.c: bytes into a model: drawn by its initialization graph, read from a file, or taken back
 * from a program.
 */
#include "exec/data/average.h"
#include "exec/data/data.h"
#include "exec/data/ort_checkpoint.h"
#include "onnx/graph/infer.h"
#include "exec/data/adapters.h"
#include "exec/run/program.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- into the model ---- */

/* The initializer gets its own copy of the bytes. What the file said of its form (data type,
 * external or not) stays, so that a save changes the numbers alone. */
static ebb_status give_bytes(ebb_graph *g, ebb_value v, const void *data, size_t bytes)
{
    ebb_value_info *info = ebb_value_of(g, v);
    ebb_tensor *tensor = EBB_NEW(&g->model->arena, ebb_tensor, 1);
    void *copy = ebb_arena_alloc(&g->model->arena, bytes + 1);
    if (tensor == NULL || copy == NULL)
        return ebb_error_memory();
    if (bytes != 0)
        memcpy(copy, data, bytes);
    if (info->tensor != NULL)
        *tensor = *info->tensor;
    tensor->type = *info->type;
    tensor->data = copy;
    tensor->bytes = bytes;
    info->tensor = tensor;
    return NULL;
}

static bool same_type(const ebb_type *type, const ebb_named *named)
{
    bool same = named->dtype == (int)type->dtype && named->rank == type->rank;
    for (int i = 0; same && i < named->rank; i++)
        same = named->dims[i] == type->dims[i];
    return same;
}

/* A weight that pass layout stores with channels last (metadata "ebb.turned") has other dims than
 * what goes by its name elsewhere: [a, c, d, b] here, [a, b, c, d] there. */
static bool is_turned(const ebb_graph *g, ebb_value v, const ebb_named *other)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    const char *mark = ebb_props_get(g, &info->props, "ebb.turned");
    const int64_t *d = info->type->dims;
    return mark != NULL && strcmp(mark, "0,2,3,1") == 0 && info->type->rank == 4 &&
           other->rank == 4 && other->dtype == (int)info->type->dtype && other->dims[0] == d[0] &&
           other->dims[1] == d[3] && other->dims[2] == d[1] && other->dims[3] == d[2];
}

/* Elements of `first`, [a, b, c, d], into those of `last`, [a, c, d, b], or back; a new array. */
static void *turned(const ebb_type *last, const void *from, bool back)
{
    size_t bytes, size = ebb_dtype_bits((ebb_dtype)last->dtype) / 8;
    if (size == 0 || !ebb_type_bytes(last, &bytes))
        return NULL;
    unsigned char *to = malloc(bytes + 1);
    int64_t plane = last->dims[1] * last->dims[2], channels = last->dims[3];
    for (int64_t a = 0; to != NULL && a < last->dims[0]; a++)
        for (int64_t i = 0; i < plane; i++)
            for (int64_t c = 0; c < channels; c++) {
                size_t first_at = (size_t)((a * channels + c) * plane + i) * size;
                size_t last_at = (size_t)((a * plane + i) * channels + c) * size;
                memcpy(to + (back ? first_at : last_at),
                       (const unsigned char *)from + (back ? last_at : first_at), size);
            }
    return to;
}

static ebb_status differs(const char *name, const ebb_type *need, const ebb_named *given)
{
    char have[256], want[256];
    ebb_type type = ebb_type_tensor((ebb_dtype)given->dtype, given->rank, given->dims);
    return ebb_error(EBB_REJECTED, "initializer '%s' is %s in the model, but %s is given for it",
                     name, ebb_type_print(want, sizeof want, need, NULL),
                     ebb_type_print(have, sizeof have, &type, NULL));
}

static bool is_initializer(const ebb_graph *g, ebb_value v)
{
    return v.i != 0 && (ebb_value_of(g, v)->flags & EBB_IS_INITIALIZER);
}

/* ---- drawn ---- */

/* Another seed for every node of the initialization graph: its own seed (a float that holds an
 * integer) XOR the given one, within the 24 bits that a float holds exactly. */
static ebb_status reseed(ebb_program *p, uint64_t seed)
{
    for (uint32_t k = 0; k < p->plan.count; k++) {
        ebb_call *call = &p->plan.calls[k];
        if (ebb_attr_find(&call->attrs, "seed") == NULL)
            continue;
        ebb_attr *list = EBB_NEW(&p->arena, ebb_attr, call->attrs.count);
        if (list == NULL)
            return ebb_error_memory();
        memcpy(list, call->attrs.list, call->attrs.count * sizeof *list);
        for (uint32_t a = 0; a < call->attrs.count; a++) {
            if (strcmp(list[a].name, "seed") != 0)
                continue;
            uint64_t own = list[a].f > 0 && list[a].f < 1e18 ? (uint64_t)list[a].f : 0;
            uint64_t mixed = own ^ seed ^ (seed >> 24) ^ (seed >> 48);
            list[a].f = (double)(mixed & 0xFFFFFF);
        }
        call->attrs.list = list;
    }
    return NULL;
}

static ebb_status keep_drawn(ebb_model *model, const ebb_program *p)
{
    for (size_t i = 0; i < model->init_binding_count; i++) {
        const struct ebb_init_binding *b = &model->init_bindings[i];
        const char *name = ebb_names_text(&model->names, b->state);
        ebb_value v = ebb_value_find(model->graph, name);
        if (!is_initializer(model->graph, v))
            continue; /* a rewrite removed it */
        const ebb_type *need = ebb_value_of(model->graph, v)->type;
        const ebb_type *drawn = ebb_value_of(p->plan.g, b->value)->type;
        ebb_named named = {name, drawn->dtype, drawn->rank, drawn->dims, NULL};
        if (!same_type(need, &named))
            return differs(name, need, &named);
        size_t bytes = 0;
        if (ebb_type_bytes(need, &bytes))
            EBB_TRY(give_bytes(model->graph, v, ebb_program_pointer(p, b->value), bytes));
    }
    return NULL;
}

EBB_API ebb_status ebb_init_weights(ebb_model *model, uint64_t seed)
{
    if (model->initialization == NULL)
        return ebb_hint(
            ebb_error(EBB_USAGE, "the model says nothing about how to draw its weights"),
            "give them with --weights FILE.safetensors");
    ebb_compile_options options = {.backend = "cpu", .seed = seed};
    ebb_program *p = NULL;
    ebb_status status = ebb_infer_graph(model->initialization);
    if (status == NULL)
        status = ebb_program_compile_graph(&p, model, model->initialization, &options);
    if (status == NULL && seed != 0)
        status = reseed(p, seed);
    if (status == NULL)
        status = ebb_program_step(p, NULL);
    if (status == NULL)
        status = keep_drawn(model, p);
    ebb_program_free(p);
    return ebb_while(status, "drawing weights by the model's initialization graph");
}

/* ---- from a file ---- */

/* What the file gives to v: of a checkpoint the running average, where the model has no place for that
 * (average.h). NULL: nothing. */
static const ebb_named *given_to(const ebb_graph *g, ebb_value v, const ebb_data *data)
{
    const char *name = ebb_value_name(g, v);
    const ebb_named *named = ebb_data_find(data, name);
    char average[512];
    if (named == NULL || data->metadata == NULL ||
        strstr(data->metadata, "\"ebb.checkpoint/") == NULL ||
        snprintf(average, sizeof average, "%s.ema", name) >= (int)sizeof average ||
        ebb_value_find(g, average).i != 0)
        return named;
    const ebb_named *mean = ebb_data_find(data, average);
    const ebb_type type = ebb_type_tensor((ebb_dtype)named->dtype, named->rank, named->dims);
    return mean != NULL && same_type(&type, mean) ? mean : named;
}

static ebb_status take_weights(ebb_graph *g, const ebb_data *data)
{
    enum { SHOWN = 3 };
    const char *missing[SHOWN] = {"", "", ""};
    size_t missing_count = 0;
    for (size_t i = 0; i < g->initializer_count; i++) {
        ebb_value v = g->initializers[i];
        const ebb_value_info *info = ebb_value_of(g, v);
        const ebb_named *named = given_to(g, v, data);
        size_t bytes = 0;
        if (info->dead)
            continue;
        if (named != NULL && !same_type(info->type, named) && !is_turned(g, v, named))
            return differs(ebb_value_name(g, v), info->type, named);
        bool absent = named == NULL && (info->tensor == NULL || info->tensor->data == NULL) &&
                      ebb_type_bytes(info->type, &bytes) && bytes != 0;
        if (absent && missing_count < SHOWN)
            missing[missing_count] = ebb_value_name(g, v);
        missing_count += absent;
    }
    if (missing_count != 0)
        return ebb_error(EBB_REJECTED, "%zu initializer%s no bytes in model or file: '%s'%s%s%s",
                         missing_count, missing_count == 1 ? " has" : "s have", missing[0],
                         missing_count > 1 ? ", " : "", missing[1],
                         missing_count > 2 ? " and others" : "");
    for (size_t i = 0; i < g->initializer_count; i++) {
        ebb_value v = g->initializers[i];
        const ebb_named *named = given_to(g, v, data);
        size_t bytes = 0;
        if (named == NULL || ebb_value_of(g, v)->dead ||
            !ebb_type_bytes(ebb_value_of(g, v)->type, &bytes))
            continue;
        void *copy =
            is_turned(g, v, named) ? turned(ebb_value_of(g, v)->type, named->data, false) : NULL;
        if (copy == NULL && is_turned(g, v, named))
            return ebb_error_memory();
        ebb_status status = give_bytes(g, v, copy != NULL ? copy : named->data, bytes);
        free(copy);
        EBB_TRY(status);
    }
    return NULL;
}

/* ONNX Runtime's artifacts take weights as graph inputs: they become initializers. */
static ebb_status keep_inputs(ebb_graph *g, const ebb_data *data, size_t trained)
{
    for (size_t i = 0; i < data->count; i++) {
        ebb_value v = ebb_value_find(g, data->list[i].name);
        if (v.i == 0 || (ebb_value_of(g, v)->flags & EBB_IS_INPUT) == 0 || is_initializer(g, v))
            continue;
        if (!same_type(ebb_value_of(g, v)->type, &data->list[i]))
            return differs(data->list[i].name, ebb_value_of(g, v)->type, &data->list[i]);
        EBB_TRY(ebb_graph_keep_input(g, v, i < trained ? EBB_ROLE_PARAMETER : EBB_ROLE_FROZEN));
    }
    return NULL;
}

/* A safetensors file, or ONNX Runtime's checkpoint: its fourth byte on tells. */
static ebb_status read_weights(ebb_data *data, ebb_graph *g, const char *path)
{
    size_t trained;
    EBB_TRY(ebb_mapping_open(&data->mappings, path));
    if (!ebb_ort_checkpoint_is(data->mappings->data, data->mappings->bytes))
        return ebb_safetensors_read(data, path);
    EBB_TRY(ebb_ort_checkpoint_read(data, path, &trained));
    return ebb_at(keep_inputs(g, data, trained), path);
}

EBB_API ebb_status ebb_load_weights(ebb_model *model, const char *path)
{
    ebb_data data;
    ebb_status status = ebb_data_init(&data, path);
    if (status == NULL)
        status = read_weights(&data, model->graph, path);
    if (status == NULL)
        status = ebb_at(take_weights(model->graph, &data), path);
    ebb_data_fini(&data);
    return status;
}

/* ---- back from a program ---- */

/* Adapters that `to` lacks, into the weights that it has. stored counts. */
static ebb_status store_adapters(ebb_program *program, ebb_graph *to, size_t *stored)
{
    const ebb_graph *g = program->plan.g;
    ebb_adapter adapter;
    for (size_t i = 0; i < g->initializer_count; i++) {
        if (!ebb_adapter_of(g, g->initializers[i], &adapter) ||
            is_initializer(to, ebb_value_find(to, ebb_value_name(g, adapter.b))))
            continue;
        const char *name = adapter.weight.i != 0 ? ebb_value_name(g, adapter.weight) : "";
        ebb_value v = ebb_value_find(to, name);
        const ebb_type *type = ebb_value_of(g, adapter.weight)->type;
        const ebb_named named = {name, type->dtype, type->rank, type->dims, NULL};
        void *merged;
        size_t bytes;
        if (adapter.weight.i == 0 || !is_initializer(to, v))
            return ebb_hint(
                ebb_error(EBB_UNSUPPORTED,
                          "the adapter '%s' cannot be added into a weight: the model has "
                          "none in floats for it",
                          ebb_value_name(g, adapter.b)),
                "save the adapters by themselves instead");
        if (!same_type(ebb_value_of(to, v)->type, &named))
            return differs(name, ebb_value_of(to, v)->type, &named);
        EBB_TRY(ebb_adapter_merge(program, &adapter, to, &merged));
        ebb_status status =
            ebb_type_bytes(type, &bytes) ? give_bytes(to, v, merged, bytes) : ebb_error_memory();
        free(merged);
        EBB_TRY(status);
        ++*stored;
    }
    return NULL;
}

EBB_API ebb_status ebb_program_store(ebb_program *program, ebb_model *target)
{
    const ebb_graph *g = program->plan.g;
    ebb_graph *to = target->graph;
    size_t stored = 0;
    for (size_t pass = 0; pass < 2; pass++) { /* all are checked before the first is changed */
        for (size_t i = 0; i < g->initializer_count; i++) {
            if (!ebb_program_is_state(program, g->initializers[i]))
                continue;
            const char *name = ebb_value_name(g, g->initializers[i]);
            ebb_value v = ebb_value_find(to, name);
            if (!is_initializer(to, v))
                continue;
            ebb_named named;
            size_t bytes = 0;
            EBB_TRY(ebb_average_get(program, g->initializers[i], to, &named));
            const ebb_type *into = ebb_value_of(to, v)->type;
            const ebb_named wanted = {name, into->dtype, into->rank, into->dims, NULL};
            bool turns = is_turned(g, g->initializers[i], &wanted) &&
                         ebb_props_get(to, &ebb_value_of(to, v)->props, "ebb.turned") == NULL;
            if (!turns && !same_type(into, &named))
                return differs(name, into, &named);
            if (pass == 0 || !ebb_type_bytes(into, &bytes))
                continue;
            void *copy =
                turns ? turned(ebb_value_of(g, g->initializers[i])->type, named.data, true) : NULL;
            if (turns && copy == NULL)
                return ebb_error_memory();
            ebb_status status = give_bytes(to, v, turns ? copy : named.data, bytes);
            free(copy);
            EBB_TRY(status);
            stored++;
        }
    }
    EBB_TRY(store_adapters(program, to, &stored));
    if (stored == 0)
        return ebb_error(EBB_USAGE, "the model has no initializer with the name of a state");
    return NULL;
}
