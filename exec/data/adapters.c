/* adapters.c: low-rank adapters saved by themselves, and merged into the weights that they change.
 *
 * The file is what PEFT calls adapter_model.safetensors: base_model.model.MODULE.lora_A.weight
 * [r, in] and ...lora_B.weight [out, r], with DoRA ...lora_magnitude_vector [out]. Rank and alpha, which PEFT has in a file of its own
 * (adapters_peft.c), are in the metadata too ("r", "lora_alpha"), and so is what PEFT has no word for ("use_paca", "outside"). What is trained beside the adapters (a
 * head) goes in under its own name; in a folder, as PEFT names it.
 */
#include "exec/data/adapters.h"

#include "exec/data/average.h"
#include "onnx/words/print.h"

#include <math.h>
#include <stdlib.h>

static const char *prop(const ebb_graph *g, ebb_value b, const char *key)
{
    return ebb_props_get(g, &ebb_value_of(g, b)->props, key);
}

static bool is_stored(const ebb_graph *g, ebb_value v, int rank)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    return v.i != 0 && !info->dead && (info->flags & EBB_IS_INITIALIZER) != 0 &&
           info->type->kind == EBB_KIND_TENSOR && info->type->rank == rank &&
           (info->type->dtype == EBB_F32 || info->type->dtype == EBB_F64);
}

bool ebb_adapter_of(const ebb_graph *g, ebb_value b, ebb_adapter *adapter)
{
    const char *a = prop(g, b, "ebb.adapter.a"), *scale = prop(g, b, "ebb.adapter.scale");
    const char *weight = prop(g, b, "ebb.adapter.weight"), *order = prop(g, b, "ebb.adapter.order");
    const char *from = prop(g, b, "ebb.adapter.from"), *block = prop(g, b, "ebb.adapter.block");
    const char *length = prop(g, b, "ebb.adapter.length");
    if (a == NULL || scale == NULL)
        return false;
    *adapter = (ebb_adapter){.a = ebb_value_find(g, a),
                             .b = b,
                             .weight = weight != NULL ? ebb_value_find(g, weight) : EBB_NO_VALUE,
                             .length = length != NULL ? ebb_value_find(g, length) : EBB_NO_VALUE,
                             .turned = order != NULL && strcmp(order, "out,in") == 0,
                             .from = from != NULL ? strtoll(from, NULL, 10) : 0,
                             .by_root = prop(g, b, "ebb.adapter.rslora") != NULL,
                             .picks = prop(g, b, "ebb.adapter.paca") != NULL,
                             .outside = prop(g, b, "ebb.adapter.outside") != NULL,
                             .scale = ebb_strtod(scale, NULL),
                             .block = block != NULL ? strtoll(block, NULL, 10) : 0,
                             .codes = prop(g, b, "ebb.adapter.codes")};
    if (!is_stored(g, adapter->a, 2) || !is_stored(g, b, 2))
        return false;
    const ebb_type *ta = ebb_value_of(g, adapter->a)->type, *tb = ebb_value_of(g, b)->type;
    if (ta->dims[0] != tb->dims[1] || ta->dtype != tb->dtype || adapter->block < 0)
        return false;
    if (length != NULL && (!is_stored(g, adapter->length, 1) ||
                           ebb_value_of(g, adapter->length)->type->dtype != tb->dtype ||
                           ebb_value_of(g, adapter->length)->type->dims[0] != tb->dims[0]))
        return false;
    if (adapter->weight.i == 0)
        return true;
    const ebb_type *w = ebb_value_of(g, adapter->weight)->type;
    return is_stored(g, adapter->weight, 2) && w->dtype == ta->dtype &&
           w->dims[adapter->turned] == ta->dims[1] && adapter->from >= 0 &&
           tb->dims[0] <= w->dims[!adapter->turned] &&
           adapter->from <= w->dims[!adapter->turned] - tb->dims[0];
}

/* Those of a later one may lie where the earlier ones did. */
ebb_status ebb_adapter_copy(ebb_program *program, ebb_value v, const ebb_graph *to, ebb_named *t,
                            void **copy)
{
    size_t bytes;
    *copy = NULL;
    EBB_TRY(ebb_average_get(program, v, to, t));
    if (ebb_type_bytes(ebb_value_of(program->plan.g, v)->type, &bytes))
        *copy = malloc(bytes + 1);
    EBB_GOT(*copy);
    t->data = memcpy(*copy, t->data, bytes);
    return NULL;
}

typedef struct merging {
    const ebb_adapter *adapter;
    const ebb_named *w;
    ebb_named a, b, length;
    void *copy[3]; /* of these */
    void *sum;     /* W, to which s A' B' is added */
} merging;

/* Where column i of row o of the adapter is in the weight. */
static int64_t place_of(const merging *m, int64_t o, int64_t i)
{
    const int64_t row = m->adapter->from + o;
    return m->adapter->turned ? row * m->w->dims[1] + i : i * m->w->dims[1] + row;
}

static void put(const merging *m, int64_t place, double x)
{
    if (m->w->dtype == EBB_F32)
        ((float *)m->sum)[place] = (float)x;
    else
        ((double *)m->sum)[place] = x;
}

/* The row with its adapter's product, in double, and its length. */
static double add_row(const merging *m, int64_t o, double *row)
{
    const int64_t rank = m->a.dims[0], in = m->a.dims[1];
    double square = 0;
    for (int64_t i = 0; i < in; i++) {
        double x = 0;
        for (int64_t r = 0; r < rank; r++)
            x += ebb_adapter_number(&m->b, o * rank + r) * ebb_adapter_number(&m->a, r * in + i);
        row[i] = ebb_adapter_number(m->w, place_of(m, o, i)) + m->adapter->scale * x;
        square += row[i] * row[i];
    }
    return sqrt(square);
}

static void add_product(const merging *m, double *row)
{
    const bool stretches = m->adapter->length.i != 0;
    for (int64_t o = 0; o < m->b.dims[0]; o++) {
        const double long_is = add_row(m, o, row);
        const double by =
            stretches && long_is > 0 ? ebb_adapter_number(&m->length, o) / long_is : 1;
        for (int64_t i = 0; i < m->a.dims[1]; i++)
            put(m, place_of(m, o, i), stretches ? row[i] * by : row[i]);
    }
}

static ebb_status merge_one(ebb_program *program, const ebb_adapter *adapter, const ebb_graph *to,
                            const ebb_named *w, void *sum)
{
    merging m = {.adapter = adapter, .w = w, .sum = sum};
    double *row = malloc((size_t)w->dims[adapter->turned] * sizeof *row);
    ebb_status status = row != NULL ? NULL : ebb_error_memory();
    if (status == NULL)
        status = ebb_adapter_copy(program, adapter->a, to, &m.a, &m.copy[0]);
    if (status == NULL)
        status = ebb_adapter_copy(program, adapter->b, to, &m.b, &m.copy[1]);
    if (status == NULL && adapter->length.i != 0)
        status = ebb_adapter_copy(program, adapter->length, to, &m.length, &m.copy[2]);
    if (status == NULL)
        add_product(&m, row);
    for (int k = 0; k < 3; k++)
        free(m.copy[k]);
    free(row);
    return status;
}

ebb_status ebb_adapter_merge(ebb_program *program, const ebb_adapter *adapter, const ebb_graph *to,
                             void **merged)
{
    const ebb_graph *g = program->plan.g;
    ebb_named w;
    ebb_status status = ebb_adapter_copy(program, adapter->weight, to, &w, merged);
    for (size_t i = 0; status == NULL && i < g->initializer_count; i++) {
        ebb_adapter other;
        if (ebb_adapter_of(g, g->initializers[i], &other) &&
            ebb_same_value(other.weight, adapter->weight))
            status = merge_one(program, &other, to, &w, *merged);
    }
    if (status != NULL) {
        free(*merged);
        *merged = NULL;
    }
    return status;
}

/* ---- a file of them ---- */

typedef struct saving {
    ebb_program *program;
    ebb_arena *arena;
    bool folder;
    ebb_named *list;
    size_t count;
    ebb_adapter_facts *adapters;
    const char **whole; /* modules that are trained as they are */
    size_t adapter_count, whole_count;
} saving;

static ebb_status add(saving *s, ebb_value v, bool prefixed)
{
    const ebb_graph *g = s->program->plan.g;
    ebb_named t;
    size_t bytes;
    EBB_TRY(ebb_average_get(s->program, v, NULL, &t));
    const char *name =
        prefixed ? ebb_arena_printf(s->arena, "base_model.model.%s", t.name) : t.name;
    void *copy = ebb_type_bytes(ebb_value_of(g, v)->type, &bytes)
                     ? ebb_arena_alloc(s->arena, bytes + 1)
                     : NULL;
    EBB_GOT(name && copy);
    t.data = memcpy(copy, t.data, bytes);
    t.name = name;
    s->list[s->count++] = t;
    return NULL;
}

static char *without(ebb_arena *arena, const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    const bool ends = n > m && strcmp(name + n - m, end) == 0;
    return ebb_arena_printf(arena, "%.*s", (int)(ends ? n - m : n), name);
}

static ebb_status add_adapter(saving *s, const ebb_adapter *adapter)
{
    const ebb_graph *g = s->program->plan.g;
    ebb_adapter_facts *facts = &s->adapters[s->adapter_count++];
    const double rank = (double)ebb_value_of(g, adapter->a)->type->dims[0];
    facts->module = without(s->arena, ebb_value_name(g, adapter->b), ".lora_B.weight");
    facts->rank = (int64_t)rank;
    facts->alpha = adapter->scale * (adapter->by_root ? sqrt(rank) : rank);
    facts->block = adapter->block;
    facts->by_root = adapter->by_root;
    facts->has_lengths = adapter->length.i != 0;
    facts->picks = adapter->picks;
    facts->outside = adapter->outside;
    EBB_GOT(facts->module);
    EBB_TRY(add(s, adapter->a, true));
    if (facts->has_lengths)
        EBB_TRY(add(s, adapter->length, true));
    return add(s, adapter->b, true);
}

/* The module of a weight or a bias, once. */
static ebb_status add_whole(saving *s, const char *name)
{
    const char *module = without(s->arena, name, ".weight");
    module = module != NULL ? without(s->arena, module, ".bias") : NULL;
    EBB_GOT(module);
    for (size_t i = 0; i < s->whole_count; i++)
        if (strcmp(s->whole[i], module) == 0)
            return NULL;
    s->whole[s->whole_count++] = module;
    return NULL;
}

static ebb_status collect(saving *s)
{
    const ebb_graph *g = s->program->plan.g;
    const size_t all = g->initializer_count + 1;
    bool *part = ebb_arena_zeroed(s->arena, g->value_count + 1, sizeof *part);
    s->list = EBB_NEW(s->arena, ebb_named, all);
    s->adapters = EBB_NEW(s->arena, ebb_adapter_facts, all);
    s->whole = EBB_NEW(s->arena, const char *, all);
    EBB_GOT(part && s->list && s->adapters && s->whole);
    for (size_t i = 0; i < g->initializer_count; i++) {
        ebb_adapter adapter;
        if (!ebb_adapter_of(g, g->initializers[i], &adapter))
            continue;
        part[adapter.a.i] = part[adapter.b.i] = part[adapter.length.i] = true;
        EBB_TRY(add_adapter(s, &adapter));
    }
    for (size_t i = 0; i < g->initializer_count; i++) {
        ebb_value v = g->initializers[i];
        if (part[v.i] || ebb_value_of(g, v)->role != EBB_ROLE_PARAMETER)
            continue;
        EBB_TRY(add_whole(s, ebb_value_name(g, v)));
        EBB_TRY(add(s, v, s->folder));
    }
    return NULL;
}

/* Facts of adapters, as safetensors holds them. */
static char *metadata_of(saving *s)
{
    const ebb_adapter_facts *f = &s->adapters[s->adapter_count - 1];
    return ebb_arena_printf(
        s->arena, "{\"format\":\"%s\",\"r\":\"%lld\",\"lora_alpha\":\"%.17g\"%s%s%s%s%s}",
        s->folder ? "pt" : "ebb.adapter/1", (long long)f->rank, f->alpha,
        f->by_root ? ",\"use_rslora\":\"true\"" : "",
        f->block > 0 ? ",\"use_qalora\":\"true\"" : "",
        f->has_lengths ? ",\"use_dora\":\"true\"" : "", f->picks ? ",\"use_paca\":\"true\"" : "",
        f->outside ? ",\"outside\":\"true\"" : "");
}

static ebb_status save(saving *s, const char *path)
{
    const char *metadata = metadata_of(s);
    const char *file =
        s->folder ? ebb_arena_printf(s->arena, "%s/adapter_model.safetensors", path) : path;
    EBB_GOT(metadata && file);
    if (s->folder)
        EBB_TRY(ebb_adapters_write_config(path, s->adapters, s->adapter_count, s->whole,
                                          s->whole_count));
    return ebb_tensors_save(file, s->list, s->count, metadata);
}

ebb_status ebb_adapters_exist(const ebb_program *program, const char *path)
{
    const ebb_graph *g = program->plan.g;
    ebb_adapter adapter;
    EBB_TRY(ebb_adapters_known(path));
    for (size_t i = 0; i < g->initializer_count; i++)
        if (ebb_adapter_of(g, g->initializers[i], &adapter))
            return NULL;
    return ebb_hint(ebb_error(EBB_USAGE, "%s: the program has no adapters to save", path),
                    "pass lora adds them");
}

EBB_API ebb_status ebb_adapters_save(ebb_program *program, const char *path)
{
    EBB_NEED(program);
    EBB_NEED(path);
    EBB_TRY(ebb_adapters_exist(program, path));
    if (ebb_adapters_is_ort(path))
        return ebb_adapters_save_ort(program, path);
    EBB_LOCAL_ARENA(arena);
    saving s = {.program = program, .folder = ebb_adapters_is_folder(path), .arena = arena};
    EBB_TRY(collect(&s));
    return save(&s, path);
}
