/* tensor.c: the initializers of an adapter. */
#include "passes/primal/lora/adapters.h"

#include <math.h>
#include <stdio.h>

#include "onnx/words/mix.h"

/* Between -1 and 1. */
static double draw(uint64_t *state)
{
    return (double)(ebb_draw(state) >> 11) / (double)((uint64_t)1 << 52) - 1.0;
}

static void put(ebb_dtype dtype, void *into, int64_t i, double x)
{
    if (dtype == EBB_F32)
        ((float *)into)[i] = (float)x;
    else
        ((double *)into)[i] = x;
}

/* ---- what an adapter starts with ---- */

static void draw_all(const ebb_adapters *l, const char *name, const ebb_type *type, void *into)
{
    uint64_t state = (uint64_t)ebb_option_int(l->e, "seed") << 32 | ebb_hash31(name);
    const double bound = 1 / sqrt((double)type->dims[1]);
    for (int64_t i = 0; i < type->dims[0] * type->dims[1]; i++)
        put((ebb_dtype)type->dtype, into, i, bound * draw(&state));
}

/* Each row picks a column that no other does: selection sampling (Knuth, TAOCP 2, 3.4.2, S). into is zero. */
static void pick_columns(const ebb_adapters *l, const char *name, const ebb_type *type, void *into)
{
    uint64_t state = (uint64_t)ebb_option_int(l->e, "seed") << 32 | ebb_hash31(name);
    const int64_t columns = type->dims[1];
    for (int64_t row = 0, k = 0; row < type->dims[0] && k < columns; k++)
        if ((double)(columns - k) * (draw(&state) + 1) / 2 < (double)(type->dims[0] - row))
            put((ebb_dtype)type->dtype, into, row++ * columns + k, 1);
}

/* Rows are as long as they are in the layer. */
static void take_lengths(const ebb_type *type, const double *squares, void *into)
{
    for (int64_t i = 0; i < type->dims[0]; i++)
        put((ebb_dtype)type->dtype, into, i, // of the number that the graph takes the root of
            type->dtype == EBB_F32 ? (double)sqrtf((float)squares[i]) : sqrt(squares[i]));
}

/* ---- or what a file has ---- */

ebb_status ebb_lora_rank(const ebb_adapters *l, const ebb_lora_part *part, int64_t *rank)
{
    *rank = l->rank;
    if (l->file.data == NULL)
        return NULL;
    const ebb_named *t = ebb_lora_file_find(&l->file, part->module, "lora_A.weight", l->e->scratch);
    *rank = t == NULL ? 0 : t->rank == 2 ? t->dims[l->file.is_ort] : -1;
    return *rank >= 0 ? NULL
                      : ebb_error(EBB_REJECTED, "lora: in %s '%s.lora_A.weight' is no matrix",
                                  l->file.path, part->module);
}

static ebb_status take(const ebb_adapters *l, const char *module, const char *tensor,
                       const ebb_type *type, void *into)
{
    char want[128];
    int64_t count;
    const ebb_named *t = ebb_lora_file_find(&l->file, module, tensor, l->e->scratch);
    const ebb_type is = t != NULL ? ebb_type_tensor((ebb_dtype)t->dtype, t->rank, t->dims) : *type;
    const bool turned = l->file.is_ort && type->rank == 2;
    const ebb_type wanted = turned ? ebb_type_tensor((ebb_dtype)type->dtype, 2,
                                                     (int64_t[]){type->dims[1], type->dims[0]})
                                   : *type;
    if (t == NULL || t->data == NULL || !ebb_type_same_shape(&is, &wanted) ||
        !ebb_dtype_is_float((ebb_dtype)is.dtype) || ebb_dtype_bits((ebb_dtype)is.dtype) < 16 ||
        !ebb_type_elements(type, &count))
        return ebb_error(EBB_REJECTED, "lora: in %s '%s.%s' should be %s", l->file.path, module,
                         tensor, ebb_type_print(want, sizeof want, &wanted, NULL));
    const ebb_tensor from = {.type = is, .data = t->data};
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = turned ? i % type->dims[1] * type->dims[0] + i / type->dims[1] : i;
        put((ebb_dtype)type->dtype, into, i, ebb_tensor_double(&from, at));
    }
    return NULL;
}

/* What every B starts with: one block for all of them, as large as the largest so far. */
static ebb_status add_zeros(ebb_adapters *l, const char *name, const ebb_type *type, size_t bytes,
                            ebb_value *made)
{
    if (l->zeros == NULL || bytes > l->zero_bytes) {
        l->zeros = ebb_arena_zeroed(&l->g->model->arena, bytes + 1, 1);
        l->zero_bytes = bytes;
    }
    EBB_GOT(l->zeros);
    EBB_TRY(ebb_graph_add_initializer(l->g, made, name, type, NULL, EBB_ROLE_PARAMETER));
    return ebb_value_point(l->g, *made, l->zeros);
}

/* squares: of the rows whose length it holds; NULL: it is a matrix. */
static ebb_status add_tensor(ebb_adapters *l, const char *module, const char *tensor,
                             const ebb_type *type, const double *squares, ebb_value *made)
{
    size_t bytes;
    char *name = ebb_arena_printf(l->e->scratch, "%s.%s", module, tensor);
    EBB_GOT(name && ebb_type_bytes(type, &bytes));
    if (ebb_value_find(l->g, name).i != 0)
        return ebb_hint(ebb_error(EBB_USAGE, "lora: the model has a value '%s' already", name),
                        "--train '*.lora_*' trains adapters that are part of the model, without "
                        "this pass");
    const bool drawn = strcmp(tensor, "lora_A.weight") == 0;
    if (l->file.data == NULL && squares == NULL && !drawn)
        return add_zeros(l, name, type, bytes, made);
    void *data = ebb_arena_zeroed(l->e->scratch, bytes + 1, 1);
    EBB_GOT(data);
    if (l->file.data != NULL)
        EBB_TRY(take(l, module, tensor, type, data));
    else if (squares != NULL)
        take_lengths(type, squares, data);
    else
        (l->form == EBB_LORA_PACA ? pick_columns : draw_all)(l, name, type, data);
    return ebb_graph_add_initializer(l->g, made, name, type, data, EBB_ROLE_PARAMETER);
}

static ebb_status add_matrix(ebb_adapters *l, const ebb_lora_layer *layer, const char *module,
                             const char *tensor, int64_t rows, int64_t columns, ebb_value *made)
{
    const ebb_type type = ebb_type_tensor(layer->dtype, 2, (int64_t[]){rows, columns});
    return add_tensor(l, module, tensor, &type, NULL, made);
}

/* DoRA: the length of each row, and what W has of it. */
static ebb_status add_lengths(ebb_adapters *l, const ebb_lora_layer *layer, const char *module,
                              int64_t from, int64_t rows, ebb_lora_made *made)
{
    const ebb_type type = ebb_type_tensor(layer->dtype, 1, &rows);
    ebb_build b = ebb_edit_build(l->e, layer->node, EBB_PHASE_NONE);
    made->squares = ebb_const_floats(&b, layer->dtype, 1, &rows, layer->squares + from);
    EBB_TRY(b.status);
    return add_tensor(l, module, "lora_magnitude_vector", &type, layer->squares + from,
                      &made->length);
}

/* What exec/data/adapters.c saves and merges by. from: the first of its rows in the weight. */
static ebb_status remember(ebb_adapters *l, const ebb_lora_layer *layer, const ebb_lora_made *made,
                           int64_t from)
{
    ebb_props *props = &ebb_value_of(l->g, made->b)->props;
    char *text = ebb_arena_printf(l->e->scratch, "%.17g", made->scale);
    char *at = ebb_arena_printf(l->e->scratch, "%lld", (long long)from);
    EBB_GOT(text && at);
    EBB_TRY(ebb_props_set(l->g, props, "ebb.adapter.a", ebb_value_name(l->g, made->a)));
    EBB_TRY(ebb_props_set(l->g, props, "ebb.adapter.scale", text));
    if (l->by_root)
        EBB_TRY(ebb_props_set(l->g, props, "ebb.adapter.rslora", "1"));
    if (l->form == EBB_LORA_PACA)
        EBB_TRY(ebb_props_set(l->g, props, "ebb.adapter.paca", "1"));
    if (l->outside)
        EBB_TRY(ebb_props_set(l->g, props, "ebb.adapter.outside", "1"));
    if (made->length.i != 0)
        EBB_TRY(
            ebb_props_set(l->g, props, "ebb.adapter.length", ebb_value_name(l->g, made->length)));
    if (layer->block > 1) {
        char *block = ebb_arena_printf(l->e->scratch, "%lld", (long long)layer->block);
        EBB_GOT(block);
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

int64_t ebb_lora_first(const ebb_lora_layer *layer, int part)
{
    int64_t from = 0;
    for (int k = 0; k < part; k++)
        from += layer->part[k].rows;
    return from;
}

int64_t ebb_lora_rows(const ebb_lora_layer *layer, int part)
{
    return part < 0 ? layer->out : layer->part[part].rows;
}

/* What its product is multiplied by. Columns that are picked are added to as they are. */
static double scale_of(const ebb_adapters *l, const char *module, int64_t rank)
{
    const double alpha = l->file.config != NULL && !ebb_option_given(l->e, "alpha")
                             ? ebb_lora_file_alpha(&l->file, module)
                             : l->alpha;
    if (l->form == EBB_LORA_PACA || l->file.is_ort)
        return 1;
    return alpha / (l->by_root ? sqrt((double)rank) : (double)rank);
}

ebb_status ebb_lora_make(ebb_adapters *l, const ebb_lora_layer *layer, int part, int64_t rank,
                         ebb_lora_made *made)
{
    const ebb_lora_part *of = part < 0 ? &layer->whole : &layer->part[part];
    const int64_t from = ebb_lora_first(layer, part), out = ebb_lora_rows(layer, part);
    for (size_t i = 0; i < l->made_count; i++)
        if (ebb_same_value(l->made[i].shared, layer->shared) && l->made[i].part == part) {
            *made = l->made[i];
            return NULL;
        }
    *made = (ebb_lora_made){.shared = layer->shared, .part = part};
    made->scale = scale_of(l, of->module, rank);
    made->sums_by = layer->block > 1 ? (double)ebb_lora_width(layer) / (double)layer->block : 1.0;
    EBB_TRY(
        add_matrix(l, layer, of->module, "lora_A.weight", rank, ebb_lora_width(layer), &made->a));
    EBB_TRY(add_matrix(l, layer, of->module, "lora_B.weight", out, rank, &made->b));
    if (l->form == EBB_LORA_DORA)
        EBB_TRY(add_lengths(l, layer, of->module, from, out, made));
    EBB_TRY(remember(l, layer, made, from));
    l->made[l->made_count++] = *made;
    return NULL;
}
