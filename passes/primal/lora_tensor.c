/* lora_tensor.c: the initializers of an adapter. */
#include "passes/primal/lora.h"

#include <math.h>
#include <stdio.h>

/* SplitMix64 (Steele, Lea, Flood 2014), between -1 and 1. */
static double draw(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return (double)(z >> 11) / (double)((uint64_t)1 << 52) - 1.0;
}

static void fill(const ebb_adapters *l, const char *name, const ebb_type *type, bool random,
                 void *into)
{
    const int64_t count = type->dims[0] * type->dims[1];
    uint64_t state = (uint64_t)ebb_option_int(l->e, "seed") << 32 | ebb_hash31(name);
    const double bound = 1 / sqrt((double)type->dims[1]);
    for (int64_t i = 0; i < count; i++) {
        const double x = random ? bound * draw(&state) : 0;
        if (type->dtype == EBB_F32)
            ((float *)into)[i] = (float)x;
        else
            ((double *)into)[i] = x;
    }
}

ebb_status ebb_lora_rank(const ebb_adapters *l, const ebb_lora_part *part, int64_t *rank)
{
    *rank = l->rank;
    if (l->file.data == NULL)
        return NULL;
    const ebb_named *t = ebb_lora_file_find(&l->file, part->module, "lora_A", l->e->scratch);
    *rank = t == NULL ? 0 : t->rank == 2 ? t->dims[0] : -1;
    return *rank >= 0 ? NULL
                      : ebb_error(EBB_REJECTED, "lora: in %s '%s.lora_A.weight' is no matrix",
                                  l->file.path, part->module);
}

static ebb_status take(const ebb_adapters *l, const char *module, const char *part,
                       const ebb_type *type, size_t bytes, void *into)
{
    const ebb_named *t = ebb_lora_file_find(&l->file, module, part, l->e->scratch);
    const ebb_dtype dtype = (ebb_dtype)type->dtype;
    int64_t count = type->dims[0] * type->dims[1];
    if (t == NULL || t->rank != 2 || t->data == NULL || t->dims[0] != type->dims[0] ||
        t->dims[1] != type->dims[1] || !ebb_dtype_is_float((ebb_dtype)t->dtype) ||
        ebb_dtype_bits((ebb_dtype)t->dtype) < 16)
        return ebb_error(EBB_REJECTED, "lora: in %s '%s.%s.weight' should be %s [%lld, %lld]",
                         l->file.path, module, part, ebb_dtype_name(dtype),
                         (long long)type->dims[0], (long long)type->dims[1]);
    const ebb_tensor from = {.type = ebb_type_tensor((ebb_dtype)t->dtype, 2, t->dims),
                             .data = t->data};
    if (t->dtype == (int)dtype)
        memcpy(into, t->data, bytes);
    for (int64_t i = 0; t->dtype != (int)dtype && i < count; i++) {
        const double x = ebb_tensor_double(&from, i);
        if (dtype == EBB_F32)
            ((float *)into)[i] = (float)x;
        else
            ((double *)into)[i] = x;
    }
    return NULL;
}

static ebb_status add_tensor(ebb_adapters *l, const ebb_lora_layer *layer, const char *module,
                             const char *part, int64_t rows, int64_t columns, ebb_value *made)
{
    const ebb_type type = ebb_type_tensor(layer->dtype, 2, (int64_t[]){rows, columns});
    size_t bytes;
    char *name = ebb_arena_printf(l->e->scratch, "%s.%s.weight", module, part);
    void *data = ebb_type_bytes(&type, &bytes) ? ebb_arena_alloc(l->e->scratch, bytes + 1) : NULL;
    if (name == NULL || data == NULL)
        return ebb_error_memory();
    if (ebb_value_find(l->g, name).i != 0)
        return ebb_error(EBB_USAGE, "lora: the model has a value '%s' already", name);
    if (l->file.data == NULL)
        fill(l, name, &type, strcmp(part, "lora_A") == 0, data);
    else
        EBB_TRY(take(l, module, part, &type, bytes, data));
    return ebb_graph_add_initializer(l->g, made, name, &type, data, EBB_ROLE_PARAMETER);
}

/* What exec/data/adapters.c saves and merges by. from: the first of its rows in the weight. */
static ebb_status remember(ebb_adapters *l, const ebb_lora_layer *layer, const ebb_lora_made *made,
                           int64_t from)
{
    ebb_props *props = &ebb_value_of(l->g, made->b)->props;
    char *text = ebb_arena_printf(l->e->scratch, "%.17g", made->scale);
    char *at = ebb_arena_printf(l->e->scratch, "%lld", (long long)from);
    if (text == NULL || at == NULL)
        return ebb_error_memory();
    EBB_TRY(ebb_props_set(l->g, props, "ebb.adapter.a", ebb_value_name(l->g, made->a)));
    EBB_TRY(ebb_props_set(l->g, props, "ebb.adapter.scale", text));
    if (l->by_root)
        EBB_TRY(ebb_props_set(l->g, props, "ebb.adapter.rslora", "1"));
    if (layer->block > 1) {
        char *block = ebb_arena_printf(l->e->scratch, "%lld", (long long)layer->block);
        if (block == NULL)
            return ebb_error_memory();
        EBB_TRY(ebb_props_set(l->g, props, "ebb.adapter.block", block));
        EBB_TRY(
            ebb_props_set(l->g, props, "ebb.adapter.codes", ebb_value_name(l->g, layer->stored)));
        EBB_TRY(ebb_props_set(l->g, props, "ebb.adapter.from", at));
    }
    if (layer->frozen || layer->stored.i != layer->weight.i) // takes no sum
        return NULL;
    EBB_TRY(ebb_props_set(l->g, props, "ebb.adapter.weight", ebb_value_name(l->g, layer->weight)));
    if (from > 0)
        EBB_TRY(ebb_props_set(l->g, props, "ebb.adapter.from", at));
    return ebb_props_set(l->g, props, "ebb.adapter.order", layer->turned ? "out,in" : "in,out");
}

ebb_status ebb_lora_make(ebb_adapters *l, const ebb_lora_layer *layer, int part, int64_t rank,
                         ebb_lora_made *made)
{
    const ebb_lora_part *of = part < 0 ? &layer->whole : &layer->part[part];
    const int64_t out = part < 0 ? layer->out : of->rows;
    int64_t from = 0;
    for (size_t i = 0; i < l->made_count; i++)
        if (l->made[i].weight.i == layer->weight.i && l->made[i].part == part) {
            *made = l->made[i];
            return NULL;
        }
    for (int k = 0; k < part; k++)
        from += layer->part[k].rows;
    const double alpha = l->file.config != NULL && !ebb_option_given(l->e, "alpha")
                             ? ebb_lora_file_alpha(&l->file, of->module)
                             : l->alpha;
    *made = (ebb_lora_made){.weight = layer->weight, .part = part};
    made->scale = alpha / (l->by_root ? sqrt((double)rank) : (double)rank);
    made->sums_by = layer->block > 1 ? (double)ebb_lora_width(layer) / (double)layer->block : 1.0;
    EBB_TRY(add_tensor(l, layer, of->module, "lora_A", rank, ebb_lora_width(layer), &made->a));
    EBB_TRY(add_tensor(l, layer, of->module, "lora_B", out, rank, &made->b));
    EBB_TRY(remember(l, layer, made, from));
    l->made[l->made_count++] = *made;
    return NULL;
}
