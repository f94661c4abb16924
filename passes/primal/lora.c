/* lora: train small adapters beside the weights of linear layers, and nothing else.
 *
 *   before   y = MatMul(x, W)                        W [in, out] is trained
 *   after    y = MatMul(x, W) + s (x A') B'          W is frozen; A [r, in], B [out, r] are trained
 *
 * s = alpha / r. A is uniform within 1 / sqrt(in), B zero, so that the first step computes what the
 * model did. A frozen weight has no gradient, and what only its gradient would read is not kept.
 * Layers that share a weight share the adapter. The pass goes before `gradient`, which finds the
 * roles that it gives: trained are the adapters, and what the option `also` names.
 *
 * A layer is targeted by the name of its weight, of its node ("/h.0/attn/q_proj/MatMul") or of its
 * module, which follows from either ("h.0.attn.q_proj"). The adapter's tensors are named after the
 * module, as PEFT does it: MODULE.lora_A.weight, MODULE.lora_B.weight. B remembers what it belongs
 * to in metadata ("ebb.adapter.*"), by which exec/data/adapters.c saves and merges it.
 *
 * Paper: Hu et al., "LoRA: low-rank adaptation of large language models", 2021.
 */
#include <math.h>
#include <stdio.h>

#include <jansson.h>

#include "ebb.h"
#include "passes/common.h"
#include "passes/passes.h"
#include "passes/primal/module.h"
#include "passes/trainable.h"

typedef struct layer {
    ebb_node node;
    ebb_value weight; /* the operand */
    ebb_value stored; /* the initializer behind it; through Cast, DequantizeLinear, Transpose */
    char *module;
    bool turned;     /* the weight lies [out, in] */
    bool frozen;     /* it is kept in few bits */
    ebb_dtype dtype; /* of the adapter */
    int64_t in, out;
} layer;

typedef struct adapters {
    ebb_edit *e;
    ebb_graph *g;
    const ebb_data *file; /* the adapters' values, or NULL: drawn */
    const bool *trains;   /* by value id, as without this pass */
    double alpha;
    int64_t rank;
    struct {
        ebb_value weight, a, b;
    } * made;
    size_t made_count;
} adapters;

/* ---- names ---- */

static bool is_targeted(const adapters *l, ebb_node n, ebb_value stored, const char *module)
{
    const char *target = ebb_option_string(l->e, "target");
    const char *node = ebb_text(l->g, ebb_node_of(l->g, n)->name);
    return ebb_glob(target, module) || (node[0] != '\0' && ebb_glob(target, node)) ||
           ebb_glob(target, ebb_value_name(l->g, stored));
}

/* ---- layers ---- */

/* The initializer that v is made of alone; none where it is made of more, or of none. */
static ebb_value stored_of(const ebb_graph *g, ebb_value v)
{
    enum { FAR = 4 };
    for (int step = 0; step < FAR && v.i != 0; step++) {
        if ((ebb_value_of(g, v)->flags & EBB_IS_INITIALIZER) != 0)
            return v;
        ebb_op op = ebb_producer_op(g, v);
        if (op != EBB_OP_CAST && op != EBB_OP_DEQUANTIZE_LINEAR && op != EBB_OP_TRANSPOSE &&
            op != EBB_OP_IDENTITY)
            return EBB_NO_VALUE;
        v = ebb_in(g, ebb_value_of(g, v)->producer, 0);
    }
    return EBB_NO_VALUE;
}

/* Whether n reads a weight in slot 1, whatever it does with it. */
static bool has_weight(const adapters *l, ebb_node n, layer *found)
{
    *found = (layer){.node = n, .weight = ebb_in(l->g, n, 1)};
    ebb_op op = ebb_node_of(l->g, n)->op;
    found->frozen = op == EBB_OP_MATMUL_CODES || op == EBB_OP_MATMUL_DEQUANTIZED;
    if (!found->frozen && op != EBB_OP_MATMUL && op != EBB_OP_FUSED_MATMUL && op != EBB_OP_GEMM &&
        op != EBB_OP_CONV)
        return false;
    found->stored = stored_of(l->g, found->weight);
    if (found->stored.i == 0 || found->frozen)
        return found->stored.i != 0;
    uint8_t role = ebb_value_of(l->g, found->stored)->role;
    return l->trains[found->stored.i] ||
           (found->stored.i != found->weight.i && role != EBB_ROLE_STATISTIC);
}

/* Adapters beside 16 bits are float32: steps of theirs would be lost in rounding. */
static ebb_dtype adapter_dtype(const ebb_type *type)
{
    return ebb_is_narrow(type) ? EBB_F32 : (ebb_dtype)type->dtype;
}

static const char *measure_frozen(const adapters *l, layer *found)
{
    const ebb_graph *g = l->g;
    const ebb_type *x = ebb_value_of(g, ebb_in(g, found->node, 0))->type;
    const ebb_type *y = ebb_value_of(g, ebb_out(g, found->node, 0))->type;
    if (x->rank < 1 || y->rank < 1 || x->dims[x->rank - 1] <= 0 || y->dims[y->rank - 1] <= 0)
        return "its weight is no matrix of known size";
    found->dtype = adapter_dtype(x);
    found->in = x->dims[x->rank - 1];
    found->out = y->dims[y->rank - 1];
    return NULL;
}

/* NULL, or why it can have no adapter. */
static const char *measure(const adapters *l, layer *found)
{
    const ebb_graph *g = l->g;
    ebb_op op = ebb_node_of(g, found->node)->op;
    const ebb_type *w = ebb_value_of(g, found->weight)->type;
    ebb_attrs attrs = ebb_node_attrs(g, found->node);
    if (op == EBB_OP_CONV)
        return "it is a convolution; adapters go beside linear layers";
    if (found->frozen)
        return measure_frozen(l, found);
    if (w->kind != EBB_KIND_TENSOR || w->rank != 2 || w->dims[0] <= 0 || w->dims[1] <= 0)
        return "its weight is no matrix of known size";
    if (!ebb_dtype_is_float((ebb_dtype)w->dtype))
        return "its weight holds no floats";
    found->dtype = adapter_dtype(w);
    if (ebb_attr_int(&attrs, "transA", 0) != 0 || ebb_attr_int(&attrs, "transBatchA", 0) != 0)
        return "it reads its input transposed";
    found->turned = ebb_attr_int(&attrs, "transB", 0) != 0;
    found->in = w->dims[found->turned];
    found->out = w->dims[!found->turned];
    return NULL;
}

/* ---- values ---- */

/* SplitMix64 (Steele, Lea, Flood 2014), between -1 and 1. */
static double draw(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return (double)(z >> 11) / (double)((uint64_t)1 << 52) - 1.0;
}

static ebb_status fill(adapters *l, const layer *found, const char *name, const ebb_type *type,
                       bool random, void *into)
{
    int64_t count = type->dims[0] * type->dims[1];
    uint64_t state = (uint64_t)ebb_option_int(l->e, "seed") << 32 | ebb_hash31(name);
    double bound = 1 / sqrt((double)found->in);
    for (int64_t i = 0; i < count; i++) {
        double x = random ? bound * draw(&state) : 0;
        if (type->dtype == EBB_F32)
            ((float *)into)[i] = (float)x;
        else
            ((double *)into)[i] = x;
    }
    return NULL;
}

static const ebb_named *saved(const adapters *l, const char *name)
{
    char *prefixed = ebb_arena_printf(l->e->scratch, "base_model.model.%s", name);
    const ebb_named *t = prefixed != NULL ? ebb_data_find(l->file, prefixed) : NULL;
    return t != NULL ? t : ebb_data_find(l->file, name);
}

/* The file's rank: that of the layer's A in it. */
static ebb_status rank_of(const adapters *l, const layer *found, int64_t *rank)
{
    *rank = l->rank;
    if (l->file == NULL)
        return NULL;
    char *name = ebb_arena_printf(l->e->scratch, "%s.lora_A.weight", found->module);
    const ebb_named *t = name != NULL ? saved(l, name) : NULL;
    if (name == NULL)
        return ebb_error_memory();
    if (t == NULL)
        return ebb_error(EBB_REJECTED, "lora: %s has no adapter '%s' for %s",
                         ebb_option_string(l->e, "file"), name, ebb_node_label(l->g, found->node));
    *rank = t->rank == 2 ? t->dims[0] : 0;
    return NULL;
}

static ebb_status add_tensor(adapters *l, const layer *found, const char *part, int64_t rows,
                             int64_t columns, ebb_value *made)
{
    const ebb_dtype dtype = found->dtype;
    ebb_type type = ebb_type_tensor(dtype, 2, (int64_t[]){rows, columns});
    size_t bytes;
    char *name = ebb_arena_printf(l->e->scratch, "%s.lora_%s.weight", found->module, part);
    void *data = ebb_type_bytes(&type, &bytes) ? ebb_arena_alloc(l->e->scratch, bytes + 1) : NULL;
    if (name == NULL || data == NULL)
        return ebb_error_memory();
    if (ebb_value_find(l->g, name).i != 0)
        return ebb_error(EBB_USAGE, "lora: the model has a value '%s' already", name);
    if (l->file == NULL)
        EBB_TRY(fill(l, found, name, &type, part[0] == 'A', data));
    else {
        const ebb_named *t = saved(l, name);
        if (t == NULL || t->dtype != (int)dtype || t->rank != 2 || t->dims[0] != rows ||
            t->dims[1] != columns)
            return ebb_error(EBB_REJECTED, "lora: in %s '%s' should be %s [%lld, %lld]",
                             ebb_option_string(l->e, "file"), name, ebb_dtype_name(dtype),
                             (long long)rows, (long long)columns);
        memcpy(data, t->data, bytes);
    }
    return ebb_graph_add_initializer(l->g, made, name, &type, data, EBB_ROLE_PARAMETER);
}

static ebb_status remember(adapters *l, const layer *found, ebb_value a, ebb_value b, double scale)
{
    ebb_props *props = &ebb_value_of(l->g, b)->props;
    char *text = ebb_arena_printf(l->e->scratch, "%.17g", scale);
    if (text == NULL)
        return ebb_error_memory();
    EBB_TRY(ebb_props_set(l->g, props, "ebb.adapter.a", ebb_value_name(l->g, a)));
    EBB_TRY(ebb_props_set(l->g, props, "ebb.adapter.scale", text));
    if (found->frozen || found->stored.i != found->weight.i) // takes no sum
        return NULL;
    EBB_TRY(ebb_props_set(l->g, props, "ebb.adapter.weight", ebb_value_name(l->g, found->weight)));
    return ebb_props_set(l->g, props, "ebb.adapter.order", found->turned ? "out,in" : "in,out");
}

static ebb_status tensors_of(adapters *l, const layer *found, int64_t rank, ebb_value *a,
                             ebb_value *b)
{
    for (size_t i = 0; i < l->made_count; i++)
        if (l->made[i].weight.i == found->weight.i) {
            *a = l->made[i].a;
            *b = l->made[i].b;
            return NULL;
        }
    EBB_TRY(add_tensor(l, found, "A", rank, found->in, a));
    EBB_TRY(add_tensor(l, found, "B", found->out, rank, b));
    EBB_TRY(remember(l, found, *a, *b, l->alpha / (double)rank));
    l->made[l->made_count].weight = found->weight;
    l->made[l->made_count].a = *a;
    l->made[l->made_count++].b = *b;
    return NULL;
}

/* ---- the rewrite ---- */

static ebb_status adapt(adapters *l, const layer *found)
{
    ebb_graph *g = l->g;
    ebb_value x = ebb_in(g, found->node, 0), a, b;
    int64_t rank;
    EBB_TRY(rank_of(l, found, &rank));
    if (rank < 1 || rank > found->in || rank > found->out)
        return ebb_skipped(l->e, found->node, "the rank is larger than a side of its weight");
    EBB_TRY(tensors_of(l, found, rank, &a, &b));
    ebb_build at = ebb_edit_build(l->e, found->node, EBB_PHASE_NONE);
    at.name = found->module;
    const ebb_dtype dtype = (ebb_dtype)ebb_value_of(g, x)->type->dtype;
    x = ebb_emit_cast(&at, x, found->dtype);
    ebb_with_int(&at, "transB", 1);
    ebb_value narrow = ebb_emit(&at, EBB_OP_FUSED_MATMUL, x, a);
    ebb_with_int(&at, "transB", 1);
    ebb_with_float(&at, "alpha", l->alpha / (double)rank);
    ebb_value wide = ebb_emit(&at, EBB_OP_FUSED_MATMUL, narrow, b);
    wide = ebb_emit_cast(&at, wide, dtype);
    const ebb_node_info *info = ebb_node_of(g, found->node);
    ebb_with_attrs_of(&at, found->node);
    ebb_value base = ebb_emit_list(&at, info->op, info->in, info->in_count);
    EBB_TRY(at.status);
    ebb_keep_name(g, at.last, found->node);
    ebb_value sum = ebb_emit(&at, EBB_OP_ADD, base, wide);
    EBB_TRY(at.status);
    EBB_TRY(ebb_edit_replace(l->e, ebb_out(g, found->node, 0), sum));
    ebb_edit_remove(l->e, found->node);
    ebb_applied(l->e);
    return NULL;
}

static ebb_status adapt_all(adapters *l)
{
    ebb_graph *g = l->g;
    size_t nodes = 0, targeted = 0;
    EBB_EACH_NODE(g, n)
        nodes++;
    layer *list = EBB_SCRATCH(l->e, layer, nodes + 1);
    l->made = ebb_arena_zeroed(l->e->scratch, nodes + 1, sizeof *l->made);
    if (list == NULL || l->made == NULL)
        return ebb_error_memory();
    nodes = 0;
    EBB_EACH_NODE(g, n)
        if (has_weight(l, n, &list[nodes]))
            nodes++;
    for (size_t i = 0; i < nodes; i++) {
        list[i].module = ebb_module_of(g, list[i].node, list[i].stored, l->e->scratch);
        if (list[i].module == NULL)
            return ebb_error_memory();
        if (!is_targeted(l, list[i].node, list[i].stored, list[i].module))
            continue;
        targeted++;
        ebb_found(l->e);
        const char *why = measure(l, &list[i]);
        EBB_TRY(why != NULL ? ebb_skipped(l->e, list[i].node, why) : adapt(l, &list[i]));
    }
    if (targeted == 0)
        return ebb_hint(ebb_error(EBB_USAGE, "lora: no layer's name matches target=%s",
                                  ebb_option_string(l->e, "target")),
                        nodes == 0 ? "the model has no layers with weights%s%s"
                                   : "layers are called like '%s' and '%s'",
                        nodes > 0 ? list[0].module : "", nodes > 0 ? list[nodes - 1].module : "");
    if (l->made_count == 0)
        return ebb_error(EBB_UNSUPPORTED,
                         "lora: none of the %zu layers that match target=%s can have an adapter",
                         targeted, ebb_option_string(l->e, "target"));
    return NULL;
}

/* What was trained is frozen, except what `also` names and the adapters, which stand behind the
 * first `count` initializers. */
static ebb_status freeze(adapters *l, size_t count)
{
    ebb_graph *g = l->g;
    const char *also = ebb_option_string(l->e, "also");
    size_t frozen = 0, kept = 0;
    for (size_t i = 0; i < count; i++) {
        ebb_value v = g->initializers[i];
        ebb_value_info *info = ebb_value_of(g, v);
        if (!l->trains[v.i])
            continue;
        bool trained = also != NULL && ebb_glob(also, ebb_value_name(g, v));
        info->role = (uint8_t)(trained ? EBB_ROLE_PARAMETER : EBB_ROLE_FROZEN);
        frozen += !trained;
        kept += trained;
    }
    if (also != NULL && kept == 0)
        return ebb_error(EBB_USAGE, "lora: no weight's name matches also=%s", also);
    return ebb_note(l->e, "%zu adapters are trained, and %zu weights beside them; %zu are frozen",
                    l->made_count, kept, frozen);
}

/* alpha as given, or as the file's metadata has it ("lora_alpha"), or the rank: a scale of 1. */
static ebb_status find_alpha(adapters *l)
{
    l->alpha = ebb_option_float(l->e, "alpha");
    if (l->file != NULL && !ebb_option_given(l->e, "alpha")) {
        const char *text = ebb_data_metadata(l->file);
        json_t *o = text != NULL ? json_loads(text, 0, NULL) : NULL;
        const char *alpha = json_string_value(json_object_get(o, "lora_alpha"));
        const bool there =
            alpha != NULL && ebb_real_parse(&l->alpha, alpha, "(0, 1e6]", "lora_alpha") == NULL;
        json_decref(o);
        if (!there)
            return ebb_error(EBB_USAGE, "lora: %s does not say its alpha: give alpha=",
                             ebb_option_string(l->e, "file"));
    }
    return NULL;
}

static ebb_status run_with(adapters *l)
{
    ebb_graph *g = l->g;
    ebb_trainable_source source;
    bool *trains = ebb_arena_zeroed(l->e->scratch, g->value_count + 1, sizeof *trains);
    if (trains == NULL)
        return ebb_error_memory();
    l->rank = ebb_option_int(l->e, "rank");
    EBB_EACH_NODE(g, n)
        if (ebb_node_of(g, n)->phase == EBB_BACKWARD)
            return ebb_error(EBB_USAGE,
                             "lora: the graph has a backward already; adapters go in before it");
    for (size_t i = 0; i < g->initializer_count; i++)
        if (ebb_props_get(g, &ebb_value_of(g, g->initializers[i])->props, "ebb.adapter.a") != NULL)
            return ebb_error(EBB_USAGE, "lora: adapters were added before: '%s'",
                             ebb_value_name(g, g->initializers[i]));
    EBB_TRY(find_alpha(l));
    EBB_TRY(ebb_trainable_find(trains, &source, g));
    l->trains = trains;
    size_t before = g->initializer_count;
    EBB_TRY(adapt_all(l));
    return freeze(l, before);
}

static ebb_status run(ebb_edit *e)
{
    adapters l = {.e = e, .g = e->g};
    ebb_data *file = NULL;
    const char *path = ebb_option_string(e, "file");
    if (path != NULL)
        EBB_TRY(ebb_data_open(&file, path, NULL));
    l.file = file;
    ebb_status status = run_with(&l);
    ebb_data_close(file);
    return status;
}

// clang-format off
static const ebb_option options[] = {
    {"rank", EBB_OPTION_INT, "8",  "[1, 65536]", "columns of an adapter"},
    {"target", EBB_OPTION_STRING, "*",  NULL,         "patterns of the layers, separated by ; or space: names of weights, nodes or modules"},
    {"alpha", EBB_OPTION_FLOAT, "8",  "(0, 1e6]",   "an adapter adds alpha / rank times its product"},
    {"also", EBB_OPTION_STRING, NULL, NULL,         "patterns of weights that are trained whole, a new head's"},
    {"file", EBB_OPTION_STRING, NULL, NULL,         "safetensors with the adapters to start from, and their rank and alpha"},
    {"seed", EBB_OPTION_INT, "0",  "[0, inf)",   "of what the adapters start with"},
    {0},
};
// clang-format on

const ebb_pass ebb_pass_lora = {
    .name = "lora",
    .doc = "freeze the weights, and train low-rank adapters beside those of linear layers",
    .paper = "Hu et al., LoRA: low-rank adaptation of large language models, 2021",
    .exactness = EBB_MAKES,
    .options = options,
    .run = run,
};
