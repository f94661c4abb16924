/* adapters.c: low-rank adapters saved by themselves, and merged into the weights that they change.
 *
 * The file is what PEFT calls adapter_model.safetensors: base_model.model.MODULE.lora_A.weight
 * [r, in] and ...lora_B.weight [out, r]. Rank and alpha, which PEFT has in a file of its own, are
 * in the metadata too ("r", "lora_alpha"). What is trained beside the adapters (a head) goes in
 * under its own name.
 */
#include "exec/data/adapters.h"

#include "exec/data/average.h"

#include <stdio.h>
#include <stdlib.h>

static const char *prop(const ebb_graph *g, ebb_value b, const char *key)
{
    return ebb_props_get(g, &ebb_value_of(g, b)->props, key);
}

static bool is_matrix(const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    return v.i != 0 && !info->dead && (info->flags & EBB_IS_INITIALIZER) != 0 &&
           info->type->kind == EBB_KIND_TENSOR && info->type->rank == 2 &&
           (info->type->dtype == EBB_F32 || info->type->dtype == EBB_F64);
}

bool ebb_adapter_of(const ebb_graph *g, ebb_value b, ebb_adapter *adapter)
{
    const char *a = prop(g, b, "ebb.adapter.a"), *scale = prop(g, b, "ebb.adapter.scale");
    const char *weight = prop(g, b, "ebb.adapter.weight"), *order = prop(g, b, "ebb.adapter.order");
    if (a == NULL || scale == NULL)
        return false;
    *adapter = (ebb_adapter){.a = ebb_value_find(g, a),
                             .b = b,
                             .weight = weight != NULL ? ebb_value_find(g, weight) : EBB_NO_VALUE,
                             .turned = order != NULL && strcmp(order, "out,in") == 0,
                             .scale = strtod(scale, NULL)};
    if (!is_matrix(g, adapter->a) || !is_matrix(g, b))
        return false;
    const ebb_type *ta = ebb_value_of(g, adapter->a)->type, *tb = ebb_value_of(g, b)->type;
    if (ta->dims[0] != tb->dims[1] || ta->dtype != tb->dtype)
        return false;
    if (adapter->weight.i == 0)
        return true;
    const ebb_type *w = ebb_value_of(g, adapter->weight)->type;
    return is_matrix(g, adapter->weight) && w->dtype == ta->dtype &&
           w->dims[adapter->turned] == ta->dims[1] && w->dims[!adapter->turned] == tb->dims[0];
}

static double at(const ebb_named *t, int64_t i)
{
    return t->dtype == EBB_F32 ? (double)((const float *)t->data)[i] : ((const double *)t->data)[i];
}

ebb_status ebb_adapter_merge(ebb_program *program, const ebb_adapter *adapter, const ebb_graph *to,
                             void **merged)
{
    const ebb_graph *g = program->plan.g;
    ebb_value list[3] = {adapter->weight, adapter->a, adapter->b};
    void *copy[3] = {NULL};
    ebb_named t[3];
    size_t bytes[3] = {0};
    ebb_status status = NULL;
    *merged = NULL;
    for (int k = 0; k < 3 && status == NULL; k++) { // a later one may lie where the earlier one did
        status = ebb_average_get(program, list[k], to, &t[k]);
        if (status == NULL && ebb_type_bytes(ebb_value_of(g, list[k])->type, &bytes[k]))
            copy[k] = malloc(bytes[k] + 1);
        if (status == NULL && copy[k] == NULL)
            status = ebb_error_memory();
        if (status == NULL)
            t[k].data = memcpy(copy[k], t[k].data, bytes[k]);
    }
    int64_t in = status == NULL ? t[1].dims[1] : 0, out = status == NULL ? t[2].dims[0] : 0;
    for (int64_t o = 0; o < out; o++)
        for (int64_t i = 0; i < in; i++) {
            int64_t place = adapter->turned ? o * in + i : i * out + o;
            double sum = 0;
            for (int64_t r = 0; r < t[1].dims[0]; r++)
                sum += at(&t[2], o * t[1].dims[0] + r) * at(&t[1], r * in + i);
            sum = at(&t[0], place) + adapter->scale * sum;
            if (t[0].dtype == EBB_F32)
                ((float *)copy[0])[place] = (float)sum;
            else
                ((double *)copy[0])[place] = sum;
        }
    free(copy[1]);
    free(copy[2]);
    if (status != NULL)
        free(copy[0]);
    else
        *merged = copy[0];
    return status;
}

/* ---- a file of them ---- */

typedef struct saving {
    ebb_program *program;
    ebb_arena arena;
    ebb_named *list;
    size_t count, adapters;
    double alpha;
    int64_t rank;
} saving;

static ebb_status add(saving *s, ebb_value v, bool prefixed)
{
    const ebb_graph *g = s->program->plan.g;
    ebb_named t;
    size_t bytes;
    EBB_TRY(ebb_average_get(s->program, v, NULL, &t));
    const char *name =
        prefixed ? ebb_arena_printf(&s->arena, "base_model.model.%s", t.name) : t.name;
    void *copy = ebb_type_bytes(ebb_value_of(g, v)->type, &bytes)
                     ? ebb_arena_alloc(&s->arena, bytes + 1)
                     : NULL;
    if (name == NULL || copy == NULL)
        return ebb_error_memory();
    t.data = memcpy(copy, t.data, bytes);
    t.name = name;
    s->list[s->count++] = t;
    return NULL;
}

static ebb_status collect(saving *s)
{
    const ebb_graph *g = s->program->plan.g;
    bool *part = ebb_arena_zeroed(&s->arena, g->value_count + 1, sizeof *part);
    s->list = EBB_NEW(&s->arena, ebb_named, g->initializer_count + 1);
    if (part == NULL || s->list == NULL)
        return ebb_error_memory();
    for (size_t i = 0; i < g->initializer_count; i++) {
        ebb_adapter adapter;
        if (!ebb_adapter_of(g, g->initializers[i], &adapter))
            continue;
        s->adapters++;
        s->rank = ebb_value_of(g, adapter.a)->type->dims[0];
        s->alpha = adapter.scale * (double)s->rank;
        part[adapter.a.i] = part[adapter.b.i] = true;
        EBB_TRY(add(s, adapter.a, true));
        EBB_TRY(add(s, adapter.b, true));
    }
    for (size_t i = 0; i < g->initializer_count; i++) {
        ebb_value v = g->initializers[i];
        if (!part[v.i] && ebb_value_of(g, v)->role == EBB_ROLE_PARAMETER)
            EBB_TRY(add(s, v, false));
    }
    return NULL;
}

EBB_API ebb_status ebb_adapters_save(ebb_program *program, const char *path)
{
    saving s = {.program = program};
    char metadata[160];
    ebb_status status = collect(&s);
    if (status == NULL && s.adapters == 0)
        status = ebb_hint(ebb_error(EBB_USAGE, "%s: the program has no adapters to save", path),
                          "pass lora adds them");
    (void)snprintf(metadata, sizeof metadata,
                   "{\"format\":\"ebb.adapter/1\",\"r\":\"%lld\",\"lora_alpha\":\"%.17g\"}",
                   (long long)s.rank, s.alpha);
    if (status == NULL)
        status = ebb_tensors_save(path, s.list, s.count, metadata);
    ebb_arena_fini(&s.arena);
    return status;
}
