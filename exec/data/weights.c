/* weights.c: bytes into a model: read from a file, or taken back from a program. */
#include "exec/data/weights.h"

#include "exec/data/average.h"
#include "exec/data/data.h"
#include "exec/data/ort_checkpoint.h"
#include "exec/data/shards.h"
#include "onnx/graph/infer.h"
#include "onnx/graph/place.h"
#include "exec/data/adapters.h"
#include "exec/run/program.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- into the model ---- */

ebb_status ebb_weights_give(ebb_graph *g, ebb_value v, const void *data, size_t bytes)
{
    void *copy = ebb_arena_alloc(&g->model->arena, bytes + 1);
    EBB_GOT(copy);
    if (bytes != 0)
        memcpy(copy, data, bytes);
    return ebb_value_point(g, v, copy);
}

bool ebb_weights_fit(const ebb_type *type, const ebb_named *named)
{
    bool same = named->dtype == (int)type->dtype && named->rank == type->rank;
    for (int i = 0; same && i < named->rank; i++)
        same = named->dims[i] == type->dims[i];
    return same;
}

/* A weight that pass layout stores with channels last (metadata "ebb.turned") has other dims than
 * what goes by its name elsewhere: [a, c, d, b] here, [a, b, c, d] there. */
static bool is_turned(const ebb_graph *g, ebb_value v, const ebb_type *type, const ebb_named *other)
{
    const char *mark = ebb_props_get(g, &ebb_value_of(g, v)->props, "ebb.turned");
    const int64_t *d = type->dims;
    return mark != NULL && strcmp(mark, "0,2,3,1") == 0 && type->rank == 4 && other->rank == 4 &&
           other->dtype == (int)type->dtype && other->dims[0] == d[0] && other->dims[1] == d[3] &&
           other->dims[2] == d[1] && other->dims[3] == d[2];
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

ebb_status ebb_weights_differ(const char *name, const ebb_type *need, const ebb_named *given)
{
    char have[256], want[256];
    ebb_type type = ebb_type_tensor((ebb_dtype)given->dtype, given->rank, given->dims);
    return ebb_error(EBB_REJECTED, "initializer '%s' is %s in the model, but %s is given for it",
                     name, ebb_type_print(want, sizeof want, need, NULL),
                     ebb_type_print(have, sizeof have, &type, NULL));
}

/* One that holds something: what is empty is a place where an adapter may be given. */
static bool is_initializer(const ebb_graph *g, ebb_value v)
{
    int64_t count;
    return v.i != 0 && (ebb_value_of(g, v)->flags & EBB_IS_INITIALIZER) != 0 &&
           !(ebb_type_elements(ebb_value_of(g, v)->type, &count) && count == 0);
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
    return mean != NULL && ebb_weights_fit(&type, mean) ? mean : named;
}

static ebb_status differs_from_part(ebb_status status, const ebb_graph *g, ebb_value v)
{
    if (!ebb_is_part(g, v))
        return status;
    return ebb_hint(status,
                    "the step has its weights in parts, which whole ones do not fit: give "
                    "them to the model that it is made of, or to what pass gather makes of it");
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
        if (named != NULL && !ebb_weights_fit(info->type, named) &&
            !is_turned(g, v, ebb_value_of(g, v)->type, named))
            return differs_from_part(ebb_weights_differ(ebb_value_name(g, v), info->type, named), g,
                                     v);
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
        void *copy = is_turned(g, v, ebb_value_of(g, v)->type, named)
                         ? turned(ebb_value_of(g, v)->type, named->data, false)
                         : NULL;
        if (copy == NULL && is_turned(g, v, ebb_value_of(g, v)->type, named))
            return ebb_error_memory();
        ebb_status status = ebb_weights_give(g, v, copy != NULL ? copy : named->data, bytes);
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
        if (!ebb_weights_fit(ebb_value_of(g, v)->type, &data->list[i]))
            return ebb_weights_differ(data->list[i].name, ebb_value_of(g, v)->type, &data->list[i]);
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
    EBB_NEED(model);
    EBB_NEED(path);
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

/* Whether b is an adapter's, which `to` has not as it is. */
static bool is_added(const ebb_graph *g, ebb_value b, const ebb_graph *to, ebb_adapter *adapter)
{
    return ebb_adapter_of(g, b, adapter) &&
           !is_initializer(to, ebb_value_find(to, ebb_value_name(g, adapter->b)));
}

/* The weight that takes up the adapter. */
static ebb_status find_weight(const ebb_graph *g, const ebb_adapter *adapter, const ebb_graph *to,
                              ebb_value *v)
{
    const char *name = adapter->weight.i != 0 ? ebb_value_name(g, adapter->weight) : "";
    const ebb_type *type = ebb_value_of(g, adapter->weight)->type;
    const ebb_named named = {name, type->dtype, type->rank, type->dims, NULL};
    *v = ebb_value_find(to, name);
    if (adapter->weight.i == 0 || !is_initializer(to, *v))
        return ebb_hint(ebb_error(EBB_UNSUPPORTED,
                                  "the adapter '%s' cannot be added into a weight: the model has "
                                  "none in floats for it",
                                  ebb_value_name(g, adapter->b)),
                        "save the adapters by themselves instead (--save-adapter), or train them "
                        "with lora:qalora=on, which "
                        "zero points of MatMulNBits take up");
    return ebb_weights_fit(ebb_value_of(to, *v)->type, &named)
               ? NULL
               : ebb_weights_differ(name, ebb_value_of(to, *v)->type, &named);
}

ebb_status ebb_weights_take(const ebb_program *program, const ebb_model *model)
{
    const ebb_graph *g = program->plan.g;
    ebb_adapter adapter;
    ebb_value v;
    for (size_t i = 0; i < g->initializer_count; i++)
        if (is_added(g, g->initializers[i], model->graph, &adapter) && adapter.block == 0)
            EBB_TRY(find_weight(g, &adapter, model->graph, &v));
    return NULL;
}

/* Adapters that `to` lacks, into the weights that it has. stored counts. */
static ebb_status store_adapters(ebb_program *program, ebb_graph *to, size_t *stored)
{
    const ebb_graph *g = program->plan.g;
    ebb_adapter adapter;
    for (size_t i = 0; i < g->initializer_count; i++) {
        if (!is_added(g, g->initializers[i], to, &adapter))
            continue;
        if (adapter.block > 0) {
            EBB_TRY(ebb_adapter_into_zeros(program, &adapter, to));
            ++*stored;
            continue;
        }
        ebb_value v;
        void *merged;
        size_t bytes;
        EBB_TRY(find_weight(g, &adapter, to, &v));
        EBB_TRY(ebb_adapter_merge(program, &adapter, to, &merged));
        ebb_status status = ebb_type_bytes(ebb_value_of(g, adapter.weight)->type, &bytes)
                                ? ebb_weights_give(to, v, merged, bytes)
                                : ebb_error_memory();
        free(merged);
        EBB_TRY(status);
        ++*stored;
    }
    return NULL;
}

typedef enum storing { CHECKED, COPIED, LENT } storing;

/* State `from` of the program into v; or only whether it goes there. What is there in parts all processes put
 * together for this. */
static ebb_status store_state(ebb_program *program, ebb_value from, ebb_graph *to, ebb_value v,
                              storing how, ebb_arena *scratch)
{
    const ebb_graph *g = program->plan.g;
    const ebb_type *into = ebb_value_of(to, v)->type;
    const ebb_named wanted = {ebb_value_name(to, v), into->dtype, into->rank, into->dims, NULL};
    ebb_type whole;
    ebb_named named;
    size_t bytes;
    EBB_TRY(ebb_average_get(program, from, to, &named));
    EBB_TRY(ebb_whole_type(&whole, program, from));
    const ebb_named there = {named.name, whole.dtype, whole.rank, whole.dims, NULL};
    const bool turns = is_turned(g, from, &whole, &wanted) &&
                       ebb_props_get(to, &ebb_value_of(to, v)->props, "ebb.turned") == NULL;
    if (!turns && !ebb_weights_fit(into, &there))
        return ebb_weights_differ(wanted.name, into, &there);
    if (how == CHECKED || !ebb_type_bytes(into, &bytes))
        return NULL;
    if (how == LENT && !turns && !ebb_is_shard(program, from))
        return ebb_value_point(to, v, named.data);
    EBB_TRY(ebb_shards_gather(&named, program, from, true, scratch));
    void *copy = turns ? turned(&whole, named.data, true) : NULL;
    EBB_GOT(!turns || copy);
    ebb_status status = ebb_weights_give(to, v, turns ? copy : named.data, bytes);
    free(copy);
    return status;
}

/* All states that the target has a place for. */
static ebb_status store_states(ebb_program *program, ebb_graph *to, storing how, size_t *stored)
{
    const ebb_graph *g = program->plan.g;
    for (size_t i = 0; i < g->initializer_count; i++) {
        const ebb_value v = ebb_value_find(to, ebb_value_name(g, g->initializers[i]));
        if (!ebb_program_is_state(program, g->initializers[i]) || !is_initializer(to, v))
            continue;
        EBB_LOCAL_ARENA(scratch);
        EBB_TRY(store_state(program, g->initializers[i], to, v, how, scratch));
        ++*stored;
    }
    return NULL;
}

static ebb_status store(ebb_program *program, ebb_model *target, storing how)
{
    size_t stored = 0, checked = 0;
    EBB_TRY(store_states(program, target->graph, CHECKED, &checked)); // before the first is changed
    EBB_TRY(store_states(program, target->graph, how, &stored));
    EBB_TRY(store_adapters(program, target->graph, &stored));
    if (stored == 0)
        return ebb_error(EBB_USAGE, "the model has no initializer with the name of a state");
    return NULL;
}

EBB_API ebb_status ebb_program_store(ebb_program *program, ebb_model *target)
{
    EBB_NEED(program);
    EBB_NEED(target);
    return store(program, target, COPIED);
}

ebb_status ebb_program_lend(ebb_program *program, ebb_model *target)
{
    return store(program, target, LENT);
}
