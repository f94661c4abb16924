/* lora: train small adapters beside the weights of linear layers, and nothing else.
 *
 *   before   y = MatMul(x, W)                        W [in, out] is trained
 *   after    y = MatMul(x, W) + s (x A') B'          W is frozen; A [r, in], B [out, r] are trained
 *
 * s = alpha / r, or alpha / sqrt(r) (rslora). A is uniform within 1 / sqrt(in), B zero, so that the first
 * step computes what the model did. A frozen weight has no gradient, and what only its gradient would read
 * is not kept. Layers that are one module share the adapter. The pass goes before `gradient`, which finds
 * the roles that it gives: trained are the adapters, and what the option `also` names.
 *
 * A layer is targeted by the name of its weight, of its node ("/h.0/attn/q_proj/MatMul") or of its
 * module, which follows from either (module.h). The adapter's tensors are named after the module, as PEFT
 * does it: MODULE.lora_A.weight, MODULE.lora_B.weight. Where one product makes q, k and v, each of them has
 * an adapter, whose results stand side by side, as they are in the framework. B remembers what it belongs
 * to in metadata ("ebb.adapter.*"), by which exec/data/adapters.c saves and merges it.
 *
 * Papers: Hu et al., "LoRA: low-rank adaptation of large language models", 2021; Kalajdzievski, "A rank
 * stabilization scaling factor for fine-tuning with LoRA", 2023 (rslora); Zhang et al., "LoRA-FA", 2023
 * (train=b: A stays as drawn, and r numbers a row are kept instead of the whole input); Xu et al., "QA-LoRA:
 * quantization-aware low-rank adaptation of large language models", 2023 (qalora: A reads sums over the blocks of
 * codes, [r, blocks], so that what an adapter adds is one number in a block, which its zero point can take up.
 * The sums are multiplied by blocks / block_size, as PEFT does it); Liu et al., "DoRA: weight-decomposed low-rank
 * adaptation", 2024 (form=dora, see dora.c); Woo et al., "PaCA: partial connection adaptation for efficient
 * fine-tuning", 2025 (form=paca: columns of W are trained, and of the input these alone are kept. A picks them, one
 * in a row, s is 1, and B begins with zeros: what is added to them, so that W may be in few bits, and PEFT reads the
 * file as a plain adapter. The optimizer's decay is of what was added).
 */
#include "onnx/ops/common.h"
#include "passes/primal/lora/adapters.h"
#include "passes/parameters/trainable.h"

/* ---- the rewrite ---- */

/* Sums over blocks of the last axis, the last of which may be short. */
static ebb_value block_sums(ebb_build *b, ebb_value x, const ebb_lora_layer *layer)
{
    const int64_t short_by = ebb_lora_width(layer) * layer->block - layer->in;
    const int rank = ebb_build_type(b, x)->rank;
    int64_t dims[EBB_MAX_RANK + 1] = {0}, pads[2 * EBB_MAX_RANK] = {0};
    if (layer->block == 1)
        return x;
    pads[2 * rank - 1] = short_by;
    if (short_by > 0)
        x = ebb_emit(b, EBB_OP_PAD, x, ebb_const_ints(b, pads, 2 * (uint32_t)rank));
    for (int d = 0; d < rank - 1; d++)
        dims[d] = 0; // as it is
    dims[rank - 1] = ebb_lora_width(layer);
    dims[rank] = layer->block;
    x = ebb_emit_reshape(b, x, dims, rank + 1);
    ebb_with_int(b, "keepdims", 0);
    return ebb_emit(b, EBB_OP_REDUCE_SUM, x, ebb_const_ints(b, &(int64_t){-1}, 1));
}

/* s (x A') B', as wide as the adapter. */
static ebb_value beside(ebb_build *b, ebb_value x, const ebb_lora_made *made)
{
    ebb_with_int(b, "transB", 1);
    ebb_value narrow = ebb_emit(b, EBB_OP_FUSED_MATMUL, x, made->a);
    ebb_with_int(b, "transB", 1);
    ebb_with_float(b, "alpha", made->scale * made->sums_by);
    return ebb_emit(b, EBB_OP_FUSED_MATMUL, narrow, made->b);
}

/* What an adapter reads of the layer's input: some of it, where a share is dropped. */
static ebb_status drop(ebb_adapters *l, ebb_build *b, const char *module, ebb_value *x)
{
    const double ratio = ebb_option_float(l->e, "dropout");
    ebb_value key;
    if (ratio == 0)
        return NULL;
    EBB_TRY(ebb_random_key(l->e, &key));
    ebb_with_float(b, "ratio", ratio);
    ebb_with_int(b, "stream", ebb_random_stream(l->g, module));
    *x = ebb_emit(b, EBB_OP_EBB_DROPOUT, *x, key);
    return b->status;
}

/* Columns [from, from + rows) of y that have no adapter. */
static ebb_value nothing_beside(ebb_build *b, ebb_value like, int64_t rows)
{
    int64_t dims[EBB_MAX_RANK];
    const ebb_type type = *ebb_build_type(b, like);
    for (int d = 0; d < type.rank; d++)
        dims[d] = d + 1 < type.rank ? type.dims[d] : rows;
    return ebb_emit(b, EBB_OP_EXPAND, ebb_const_like(b, like, 0),
                    ebb_const_ints(b, dims, (uint32_t)type.rank));
}

static ebb_status beside_part(ebb_adapters *l, ebb_build *b, ebb_value x,
                              const ebb_lora_layer *layer, int part, int64_t rank,
                              ebb_lora_made *made, ebb_value *wide)
{
    EBB_TRY(ebb_lora_make(l, layer, part, rank, made));
    EBB_TRY(drop(l, b, (part < 0 ? &layer->whole : &layer->part[part])->module, &x));
    *wide = beside(b, x, made);
    return b->status;
}

/* The adapters of parts side by side. ranks: 0 where a part has none. */
static ebb_status beside_parts(ebb_adapters *l, ebb_build *b, ebb_value x,
                               const ebb_lora_layer *layer, const int64_t *ranks,
                               ebb_lora_made *made, ebb_value *wide)
{
    ebb_value part[EBB_LORA_PARTS];
    if (layer->part_count == 0)
        return beside_part(l, b, x, layer, -1, ranks[0], made, wide);
    for (int k = 0; k < layer->part_count; k++)
        if (ranks[k] > 0)
            EBB_TRY(beside_part(l, b, x, layer, k, ranks[k], &made[k], &part[k]));
        else
            part[k] = nothing_beside(b, x, layer->part[k].rows);
    ebb_with_int(b, "axis", -1);
    *wide = ebb_emit_list(b, EBB_OP_CONCAT, part, (uint32_t)layer->part_count);
    return b->status;
}

/* What the layer gives instead. */
static ebb_value together(const ebb_adapters *l, ebb_build *b, const ebb_lora_layer *layer,
                          const ebb_lora_made *made, ebb_value wide)
{
    const ebb_node_info *info = ebb_node_of(l->g, layer->behind);
    const ebb_attrs attrs = ebb_node_attrs(l->g, layer->node);
    const double alpha = ebb_attr_float(&attrs, "alpha", 1);
    if (alpha != 1) // the layer's result is multiplied by it, as a model scales its scores
        wide = ebb_emit_scaled(b, wide, alpha);
    if (l->form == EBB_LORA_DORA)
        return ebb_lora_stretch(b, layer, made, wide);
    const ebb_dtype dtype = (ebb_dtype)ebb_build_type(b, info->out[0])->dtype;
    wide = ebb_emit_cast(b, wide, dtype);
    ebb_with_attrs_of(b, layer->behind);
    ebb_value base = ebb_emit_list(b, info->op, info->in, info->in_count);
    if (b->status == NULL)
        ebb_keep_name(b->g, b->last, layer->behind);
    return ebb_emit(b, EBB_OP_ADD, base, wide);
}

static ebb_status adapt(ebb_adapters *l, const ebb_lora_layer *layer, const int64_t *ranks)
{
    ebb_lora_made made[EBB_LORA_PARTS] = {0};
    ebb_value x = ebb_lora_input(l->g, layer), wide = EBB_NO_VALUE;
    ebb_build at = ebb_edit_build(l->e, layer->behind, EBB_PHASE_NONE);
    at.name = layer->whole.module;
    x = block_sums(&at, ebb_emit_cast(&at, x, layer->dtype), layer);
    EBB_TRY(beside_parts(l, &at, x, layer, ranks, made, &wide));
    ebb_value sum = together(l, &at, layer, made, wide);
    EBB_TRY(at.status);
    ebb_applied(l->e);
    return ebb_edit_swap(l->e, layer->behind, sum);
}

/* ---- which layers ---- */

static bool is_targeted(const ebb_adapters *l, const ebb_lora_layer *layer)
{
    const char *target = ebb_option_string(l->e, "target");
    const char *node = ebb_text(l->g, ebb_node_of(l->g, layer->node)->name);
    bool parts = false;
    if (strcmp(target, "all-linear") == 0)
        return !ebb_lora_is_head(l->g, layer);
    for (int k = 0; k < layer->part_count; k++)
        parts = parts || ebb_glob_part(target, layer->part[k].module);
    return parts || ebb_glob_part(target, layer->whole.module) ||
           ebb_glob_part(target, layer->whole.in_file) ||
           (node[0] != '\0' && ebb_glob(target, node)) ||
           ebb_glob(target, ebb_value_name(l->g, layer->stored));
}

/* Of parts those that are named: all where the pattern fits the layer as a whole. */
static bool part_is_targeted(const ebb_adapters *l, const ebb_lora_layer *layer, int part)
{
    const char *target = ebb_option_string(l->e, "target");
    bool any = false;
    for (int k = 0; k < layer->part_count; k++)
        any = any || ebb_glob_part(target, layer->part[k].module);
    return !any || ebb_glob_part(target, layer->part[part].module);
}

/* A file tells which modules there are: the whole layer, by either of its names, or its parts. */
static void choose_names(const ebb_adapters *l, ebb_lora_layer *layer)
{
    ebb_arena *scratch = l->e->scratch;
    if (strcmp(ebb_option_string(l->e, "packed"), "whole") == 0)
        layer->part_count = 0;
    if (l->file.data == NULL)
        return;
    const bool whole =
        ebb_lora_file_find(&l->file, layer->whole.module, "lora_A.weight", scratch) != NULL;
    const bool other =
        ebb_lora_file_find(&l->file, layer->whole.in_file, "lora_A.weight", scratch) != NULL;
    if (!whole && other)
        layer->whole.module = layer->whole.in_file;
    if (whole || other)
        layer->part_count = 0;
}

/* NULL, or why the layer has none; ranks of the whole, or of its parts. *there: that a file has any. */
static ebb_status find_ranks(const ebb_adapters *l, const ebb_lora_layer *layer, int64_t *ranks,
                             bool *there, const char **why)
{
    const int count = layer->part_count > 0 ? layer->part_count : 1;
    *there = false;
    *why = NULL;
    for (int k = 0; k < count; k++) {
        const ebb_lora_part *part = layer->part_count > 0 ? &layer->part[k] : &layer->whole;
        const int64_t out = layer->part_count > 0 ? part->rows : layer->out;
        EBB_TRY(ebb_lora_rank(l, part, &ranks[k]));
        if (layer->part_count > 0 && !part_is_targeted(l, layer, k))
            ranks[k] = 0;
        *there = *there || ranks[k] > 0;
        if ((l->file.data == NULL || l->form == EBB_LORA_PACA) &&
            (ranks[k] > layer->in || ranks[k] > out))
            *why = "the rank is larger than a side of its weight";
    }
    if (!*there && ebb_option_given(l->e, "target"))
        return ebb_error(EBB_REJECTED, "lora: %s has no adapter '%s.lora_A.weight' for %s",
                         l->file.path, layer->whole.module, ebb_node_label(l->g, layer->node));
    return NULL;
}

static ebb_status visit(ebb_adapters *l, ebb_lora_layer *layer)
{
    int64_t ranks[EBB_LORA_PARTS] = {0};
    bool there;
    const char *why = ebb_lora_measure(l->g, layer);
    if (why == NULL) {
        choose_names(l, layer);
        EBB_TRY(find_ranks(l, layer, ranks, &there, &why));
        if (!there)
            return NULL;
    }
    if (why == NULL && l->by_blocks)
        why = ebb_lora_find_block(l->g, layer);
    if (why == NULL && l->form == EBB_LORA_DORA)
        why = ebb_lora_check_rows(l->g, layer);
    if (why == NULL && l->form == EBB_LORA_DORA)
        EBB_TRY(ebb_lora_find_squares(l->g, layer, l->e->scratch));
    l->why = why != NULL ? why : l->why;
    ebb_found(l->e);
    return why != NULL ? ebb_skipped(l->e, layer->node, why) : adapt(l, layer, ranks);
}

/* Each adapter of the file stands beside a layer, or the file is for another model. */
static ebb_status check_all_taken(const ebb_adapters *l)
{
    if (l->file.data == NULL || ebb_option_given(l->e, "target"))
        return NULL;
    for (size_t i = 0; i < ebb_data_count(l->file.data); i++) {
        const char *name = ebb_data_at(l->file.data, i)->name;
        const char *module = ebb_lora_file_module(name, l->e->scratch);
        const char *b =
            module != NULL ? ebb_arena_printf(l->e->scratch, "%s.lora_B.weight", module) : NULL;
        EBB_GOT(module == NULL || b);
        if (b != NULL && ebb_value_find(l->g, b).i == 0)
            return ebb_hint(
                ebb_error(EBB_REJECTED, "lora: %s has '%s', and the model has no such layer",
                          l->file.path, name),
                "ebb inspect shows the nodes; target=PATTERN takes some of the adapters");
    }
    return NULL;
}

/* Products whose rows go to several weights have no adapters, and those that are meant are named. */
static ebb_status skip_experts(ebb_adapters *l, size_t *targeted)
{
    static const char why[] = "its weights are experts', a token's by its router: adapters stand "
                              "beside weights that all tokens share";
    const char *target = ebb_option_string(l->e, "target");
    EBB_EACH_NODE(l->g, n) {
        const ebb_op op = ebb_node_of(l->g, n)->op;
        if ((op != EBB_OP_EXPERTS_MATMUL && op != EBB_OP_EXPERTS_MATMUL_CODES) ||
            (strcmp(target, "all-linear") != 0 &&
             !ebb_glob(target, ebb_text(l->g, ebb_node_of(l->g, n)->name))))
            continue;
        (*targeted)++;
        l->why = why;
        ebb_found(l->e);
        EBB_TRY(ebb_skipped(l->e, n, why));
    }
    return NULL;
}

static ebb_status adapt_all(ebb_adapters *l)
{
    ebb_graph *g = l->g;
    size_t nodes = ebb_graph_size(g), targeted = 0;
    ebb_lora_layer *list = EBB_SCRATCH(l->e, ebb_lora_layer, nodes + 1);
    l->made = ebb_arena_zeroed(l->e->scratch, EBB_LORA_PARTS * nodes + 1, sizeof *l->made);
    EBB_GOT(list && l->made);
    nodes = 0;
    EBB_EACH_NODE(g, n)
        if (ebb_lora_has_weight(g, l->trains, n, &list[nodes]))
            nodes++;
    for (size_t i = 0; i < nodes; i++) {
        EBB_TRY(ebb_lora_name(g, &list[i], l->e->scratch));
        ebb_lora_share(g, list, i, &list[i]);
        if (l->outside)
            ebb_lora_place_outside(g, l->trains, &list[i]);
    }
    if (l->file.data != NULL)
        ebb_lora_file_unwrap(&l->file, list, nodes, l->e->scratch);
    for (size_t i = 0; i < nodes; i++) {
        if (!is_targeted(l, &list[i]))
            continue;
        targeted++;
        EBB_TRY(visit(l, &list[i]));
    }
    EBB_TRY(skip_experts(l, &targeted));
    EBB_TRY(ebb_lora_tell_nameless(l->e, list, nodes));
    if (targeted == 0)
        return ebb_hint(
            ebb_error(EBB_USAGE, "lora: no layer's name matches target=%s",
                      ebb_option_string(l->e, "target")),
            nodes == 0 ? "the model has no layers with weights as they are stored; those that a "
                         "QuantizeLinear rounds in the run are trained themselves%s%s"
                       : "layers are called like '%s' and '%s'",
            nodes > 0 ? list[0].whole.module : "", nodes > 0 ? list[nodes - 1].whole.module : "");
    EBB_TRY(check_all_taken(l));
    EBB_TRY(ebb_lora_file_take_wholes(&l->file, g));
    if (l->made_count == 0)
        return ebb_hint(
            ebb_error(EBB_UNSUPPORTED,
                      "lora: none of the %zu layers that match target=%s can have an adapter",
                      targeted, ebb_option_string(l->e, "target")),
            "of the last: %s", l->why != NULL ? l->why : "it has none in the file");
    return NULL;
}

/* ---- what is trained ---- */

/* What was trained is frozen, except what `also` names and the adapters, which stand behind the
 * first `count` initializers. */
static ebb_status freeze(ebb_adapters *l, size_t count)
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
    const bool still =
        l->form == EBB_LORA_PACA || strcmp(ebb_option_string(l->e, "train"), "b") == 0;
    for (size_t i = 0; i < l->made_count && still; i++)
        ebb_value_of(g, l->made[i].a)->role = EBB_ROLE_FROZEN;
    if (also != NULL && kept == 0)
        return ebb_error(EBB_USAGE, "lora: no weight's name matches also=%s", also);
    return ebb_note(l->e, "%zu adapters are trained, and %zu weights beside them; %zu are frozen",
                    l->made_count, kept, frozen);
}

/* The form as given, or as the file has it, and what does not go with it. */
static ebb_status find_form(ebb_adapters *l)
{
    static const char *const words[] = {"lora", "dora", "paca"};
    const char *given = ebb_option_string(l->e, "form");
    l->form = l->file.form;
    for (int k = 0; k < 3 && (l->file.data == NULL || ebb_option_given(l->e, "form")); k++)
        if (strcmp(given, words[k]) == 0)
            l->form = (ebb_lora_form)k;
    const char *form = words[l->form];
    if (l->file.data != NULL && l->form != l->file.form)
        return ebb_error(EBB_USAGE, "lora: %s has adapters of form=%s, not %s", l->file.path,
                         words[l->file.form], form);
    if (l->form == EBB_LORA_PLAIN)
        return NULL;
    if (l->by_blocks)
        return ebb_error(EBB_USAGE, "lora: qalora=on takes form=lora alone, not %s", form);
    if (l->form == EBB_LORA_DORA && ebb_option_float(l->e, "dropout") != 0)
        return ebb_error(EBB_USAGE, "lora: form=dora takes no dropout: the lengths of rows are "
                                    "trained with all that the layer reads");
    if (l->form == EBB_LORA_DORA && l->outside)
        return ebb_error(EBB_USAGE,
                         "lora: form=dora takes no place=outside: the lengths of rows are of "
                         "the product itself");
    if (l->form == EBB_LORA_PACA &&
        (ebb_option_given(l->e, "alpha") || ebb_option_given(l->e, "rslora")))
        return ebb_error(EBB_USAGE, "lora: form=paca takes neither alpha nor rslora: columns are "
                                    "trained as they are");
    return NULL;
}

/* alpha as given, or as the file has it, or the rank: a scale of 1. */
static ebb_status find_scale(ebb_adapters *l)
{
    const bool given = ebb_option_given(l->e, "alpha");
    l->rank = ebb_option_int(l->e, "rank");
    l->alpha = ebb_option_float(l->e, "alpha");
    l->by_root = strcmp(ebb_option_string(l->e, "rslora"), "on") == 0;
    l->by_blocks = strcmp(ebb_option_string(l->e, "qalora"), "on") == 0 || l->file.by_blocks;
    l->outside = ebb_option_given(l->e, "place")
                     ? strcmp(ebb_option_string(l->e, "place"), "outside") == 0
                     : l->file.outside;
    EBB_TRY(find_form(l));
    if (l->file.data == NULL)
        return NULL;
    if (!given && !l->file.has_alpha)
        return ebb_error(EBB_USAGE, "lora: %s does not say its alpha: give alpha=", l->file.path);
    l->alpha = given ? l->alpha : l->file.alpha;
    l->by_root = ebb_option_given(l->e, "rslora") ? l->by_root : l->file.by_root;
    return NULL;
}

/* Places for adapters that the model has, inputs which are empty unless they are given: ours have their names. */
static void clear_places(ebb_graph *g)
{
    int64_t count;
    for (size_t i = g->initializer_count; i-- > 0;) {
        const ebb_value v = g->initializers[i];
        const ebb_value_info *info = ebb_value_of(g, v);
        if (!ebb_value_is_read(g, v) && info->tensor != NULL && (info->flags & EBB_IS_INPUT) == 0 &&
            ebb_type_elements(&info->tensor->type, &count) && count == 0)
            ebb_graph_remove_initializer(g, v);
    }
}

static ebb_status run_with(ebb_adapters *l)
{
    ebb_graph *g = l->g;
    ebb_trainable_source source;
    bool *trains = ebb_arena_zeroed(l->e->scratch, g->value_count + 1, sizeof *trains);
    EBB_GOT(trains);
    EBB_EACH_NODE(g, n)
        if (ebb_node_of(g, n)->phase == EBB_BACKWARD)
            return ebb_error(EBB_USAGE,
                             "lora: the graph has a backward already; adapters go in before it");
    for (size_t i = 0; i < g->initializer_count; i++)
        if (ebb_props_get(g, &ebb_value_of(g, g->initializers[i])->props, "ebb.adapter.a") != NULL)
            return ebb_hint(
                ebb_error(EBB_USAGE, "lora: adapters were added before: '%s'",
                          ebb_value_name(g, g->initializers[i])),
                "name the pass once: --adapter PATH is pass lora:file=PATH, which takes "
                "the other options, too");
    clear_places(g);
    EBB_TRY(find_scale(l));
    EBB_TRY(ebb_trainable_find(trains, &source, g));
    l->trains = trains;
    size_t before = g->initializer_count;
    EBB_TRY(adapt_all(l));
    return freeze(l, before);
}

static ebb_status run(ebb_edit *e)
{
    ebb_adapters l = {.e = e, .g = e->g};
    ebb_status status = ebb_lora_file_open(&l.file, ebb_option_string(e, "file"), e->scratch);
    if (status == NULL)
        status = run_with(&l);
    ebb_lora_file_close(&l.file);
    return status;
}

// clang-format off
static const ebb_option options[] = {
    {"rank", EBB_OPTION_INT, "8",  "[1, 65536]", "columns of an adapter"},
    {"target", EBB_OPTION_STRING, "*",  NULL,         "patterns of the layers, separated by ; or space: names of weights, nodes or modules; all-linear: all but the head"},
    {"alpha", EBB_OPTION_FLOAT, "8",  "(0, 1e6]",   "an adapter adds alpha / rank times its product"},
    {"also", EBB_OPTION_STRING, NULL, NULL,         "patterns of weights that are trained whole, a new head's"},
    {"file", EBB_OPTION_STRING, NULL, NULL,         "safetensors with the adapters to start from, and their rank and alpha; a folder of PEFT; an .onnx_adapter"},
    {"seed", EBB_OPTION_INT, "0",  "[0, inf)",   "of what the adapters start with"},
    {"rslora", EBB_OPTION_CHOICE, "off", "off|on",  "an adapter adds alpha / sqrt(rank) times its product"},
    {"dropout", EBB_OPTION_FLOAT, "0", "[0, 1)",    "share of a layer's input that its adapter does not see in a step"},
    {"train", EBB_OPTION_CHOICE, "both", "both|b",  "b: A stays as it is drawn (LoRA-FA), and inputs of layers are not kept"},
    {"qalora", EBB_OPTION_CHOICE, "off", "off|on", "A reads sums over blocks of codes (QA-LoRA), so that --save-model adds adapters into zero points"},
    {"form", EBB_OPTION_CHOICE, "lora", "lora|dora|paca", "dora: rows have a trained length (PEFT's use_dora); paca: `rank` columns of the weight are trained, drawn by seed"},
    {"place", EBB_OPTION_CHOICE, "inside", "inside|outside", "where activations are quantised: inside, an adapter reads and gives what the product does; outside, it reads what was before, and is added behind"},
    {"packed", EBB_OPTION_CHOICE, "parts", "parts|whole", "one product for q, k and v has an adapter for each, or one"},
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
