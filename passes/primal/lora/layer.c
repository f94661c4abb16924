/* layer.c: the linear layers of a model, and their modules. */
#include "passes/primal/lora/adapters.h"
#include "passes/parameters/noted.h"
#include "passes/primal/module.h"

/* ---- weights ---- */

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

bool ebb_lora_has_weight(const ebb_graph *g, const bool *trains, ebb_node n, ebb_lora_layer *found)
{
    *found = (ebb_lora_layer){.node = n, .behind = n, .weight = ebb_in(g, n, 1), .block = 1};
    ebb_op op = ebb_node_of(g, n)->op;
    found->frozen = op == EBB_OP_MATMUL_CODES || op == EBB_OP_MATMUL_DEQUANTIZED;
    if (!found->frozen && op != EBB_OP_MATMUL && op != EBB_OP_FUSED_MATMUL && op != EBB_OP_GEMM &&
        op != EBB_OP_CONV)
        return false;
    found->stored = stored_of(g, found->weight);
    if (found->stored.i == 0 || found->frozen)
        return found->stored.i != 0;
    uint8_t role = ebb_value_of(g, found->stored)->role;
    return trains[found->stored.i] ||
           (found->stored.i != found->weight.i && role != EBB_ROLE_STATISTIC);
}

/* Adapters beside 16 bits are float32: steps of theirs would be lost in rounding. */
static ebb_dtype adapter_dtype(const ebb_type *type)
{
    return ebb_is_narrow(type) ? EBB_F32 : (ebb_dtype)type->dtype;
}

static const char *measure_frozen(const ebb_graph *g, ebb_lora_layer *found)
{
    const ebb_type *x = ebb_value_of(g, ebb_in(g, found->node, 0))->type;
    const ebb_type *y = ebb_value_of(g, ebb_out(g, found->node, 0))->type;
    if (x->rank < 1 || y->rank < 1 || x->dims[x->rank - 1] <= 0 || y->dims[y->rank - 1] <= 0)
        return "its weight is no matrix of known size";
    found->dtype = adapter_dtype(x);
    found->in = x->dims[x->rank - 1];
    found->out = y->dims[y->rank - 1];
    return NULL;
}

const char *ebb_lora_measure(const ebb_graph *g, ebb_lora_layer *found)
{
    ebb_op op = ebb_node_of(g, found->node)->op;
    const ebb_type *w = ebb_value_of(g, found->weight)->type;
    ebb_attrs attrs = ebb_node_attrs(g, found->node);
    if (op == EBB_OP_CONV)
        return "it is a convolution; adapters go beside linear layers";
    if (found->frozen)
        return measure_frozen(g, found);
    if (w->kind != EBB_KIND_TENSOR || w->rank != 2 || w->dims[0] <= 0 || w->dims[1] <= 0)
        return "its weight is no matrix of known size";
    if (!ebb_dtype_is_float((ebb_dtype)w->dtype))
        return "its weight holds no floats";
    if (ebb_attr_int(&attrs, "transA", 0) != 0 || ebb_attr_int(&attrs, "transBatchA", 0) != 0)
        return "it reads its input transposed";
    found->dtype = adapter_dtype(w);
    found->turned = ebb_attr_int(&attrs, "transB", 0) != 0;
    found->in = w->dims[found->turned];
    found->out = w->dims[!found->turned];
    return NULL;
}

const char *ebb_lora_find_block(const ebb_graph *g, ebb_lora_layer *found)
{
    const ebb_attrs attrs = ebb_node_attrs(g, found->node);
    const ebb_type *scales = ebb_value_of(g, ebb_in(g, found->node, 2))->type;
    if (ebb_node_of(g, found->node)->op != EBB_OP_MATMUL_CODES ||
        found->stored.i != found->weight.i || ebb_attr_int(&attrs, "flat", 0) != 0 ||
        ebb_attr_int(&attrs, "transB", 1) == 0)
        return "qalora: its weight is no MatMulNBits, whose zero points could take an adapter up";
    if (scales->dtype != EBB_F32)
        return "qalora: its scales are not float32, and zero points as coarse as they would round "
               "adapters away";
    if (ebb_attr_int(&attrs, "bits", 4) == 8)
        return "qalora: its codes have 8 bits, beside which ONNX Runtime takes no zero points in "
               "floats";
    found->block = ebb_attr_int(&attrs, "block_size", 0);
    return NULL;
}

int64_t ebb_lora_width(const ebb_lora_layer *layer)
{
    return layer->in / layer->block + (layer->in % layer->block != 0);
}

/* ---- activations that are quantised ---- */

/* What made the codes that x is decoded from; none where it is not. */
static ebb_node quantiser_of(const ebb_graph *g, ebb_value x)
{
    if (ebb_producer_op(g, x) != EBB_OP_DEQUANTIZE_LINEAR)
        return EBB_NO_NODE;
    const ebb_value codes = ebb_in(g, ebb_value_of(g, x)->producer, 0);
    const ebb_op op = ebb_producer_op(g, codes);
    return op == EBB_OP_QUANTIZE_LINEAR || op == EBB_OP_DYNAMIC_QUANTIZE_LINEAR
               ? ebb_value_of(g, codes)->producer
               : EBB_NO_NODE;
}

/* What others read quantised is quantised for the model; what products alone read so is for them. */
static bool is_quantised_for_products(const ebb_graph *g, const bool *trains, ebb_value x)
{
    const ebb_value_info *info = ebb_value_of(g, x);
    ebb_lora_layer reader;
    for (size_t i = 0; i < info->use_count; i++)
        if (info->uses[i].slot != 0 || !ebb_lora_has_weight(g, trains, info->uses[i].node, &reader))
            return false;
    return quantiser_of(g, x).i != 0;
}

void ebb_lora_place_outside(const ebb_graph *g, const bool *trains, ebb_lora_layer *layer)
{
    const ebb_node in = ebb_only_user(g, ebb_out(g, layer->node, 0));
    layer->reads_before = is_quantised_for_products(g, trains, ebb_in(g, layer->node, 0));
    if (in.i == 0 || ebb_node_of(g, in)->op != EBB_OP_QUANTIZE_LINEAR)
        return;
    const ebb_node out = ebb_only_user(g, ebb_out(g, in, 0));
    if (out.i != 0 && ebb_node_of(g, out)->op == EBB_OP_DEQUANTIZE_LINEAR)
        layer->behind = out;
}

ebb_value ebb_lora_input(const ebb_graph *g, const ebb_lora_layer *layer)
{
    const ebb_value x = ebb_in(g, layer->node, 0);
    return layer->reads_before ? ebb_in(g, quantiser_of(g, x), 0) : x;
}

/* ---- modules ---- */

/* Columns [from, to) of x that n takes; false where it takes others. */
static bool slices(const ebb_graph *g, ebb_node n, ebb_arena *scratch, int64_t *from, int64_t *to)
{
    const int64_t *list[4];
    uint32_t count;
    const int rank = ebb_value_of(g, ebb_in(g, n, 0))->type->rank;
    if (ebb_node_of(g, n)->op != EBB_OP_SLICE || rank < 1)
        return false;
    for (uint32_t i = 0; i < 4; i++)
        if (ebb_in(g, n, i + 1).i != 0 &&
            (!ebb_ints_of(g, ebb_in(g, n, i + 1), scratch, &list[i], &count) || count != 1))
            return false;
    const int64_t axis = ebb_in(g, n, 3).i != 0 ? list[2][0] : 0;
    if ((ebb_in(g, n, 4).i != 0 && list[3][0] != 1) || (axis != rank - 1 && axis != -1))
        return false;
    const int64_t width = ebb_value_of(g, ebb_in(g, n, 0))->type->dims[rank - 1];
    *from = list[0][0] < 0 ? list[0][0] + width : list[0][0];
    *to = list[1][0] < 0 ? list[1][0] + width : list[1][0] > width ? width : list[1][0];
    return 0 <= *from && *from < *to && *to <= width;
}

/* Widths of three parts that lie side by side, of all who read y; false where they read it otherwise. */
static bool is_cut(const ebb_graph *g, ebb_value y, ebb_arena *scratch,
                   int64_t widths[EBB_LORA_PARTS])
{
    const ebb_value_info *info = ebb_value_of(g, y);
    int64_t from[EBB_LORA_PARTS], to[EBB_LORA_PARTS];
    if (info->use_count == 1 && ebb_node_of(g, info->uses[0].node)->op == EBB_OP_SPLIT) {
        const ebb_node_info *split = ebb_node_of(g, info->uses[0].node);
        for (uint32_t k = 0; split->out_count == EBB_LORA_PARTS && k < EBB_LORA_PARTS; k++) {
            const ebb_type *t = ebb_value_of(g, split->out[k])->type;
            widths[k] = t->rank > 0 ? t->dims[t->rank - 1] : -1;
        }
        return split->out_count == EBB_LORA_PARTS;
    }
    if (info->use_count != EBB_LORA_PARTS)
        return false;
    for (size_t k = 0; k < EBB_LORA_PARTS; k++)
        if (!slices(g, info->uses[k].node, scratch, &from[k], &to[k]))
            return false;
    int64_t at = 0;
    for (int k = 0; k < EBB_LORA_PARTS; k++) { // in their order, wherever they are read
        int next = 0;
        while (next < EBB_LORA_PARTS && from[next] != at)
            next++;
        if (next == EBB_LORA_PARTS)
            return false;
        widths[k] = to[next] - from[next];
        at = to[next];
    }
    return true;
}

/* Where columns of y go on as they are: through a bias, a view of the rows, a cast. */
static ebb_value along(const ebb_graph *g, ebb_value y)
{
    enum { FAR = 6 };
    for (int step = 0; step < FAR; step++) {
        const ebb_node n = ebb_only_user(g, y);
        const ebb_op op = n.i != 0 ? ebb_node_of(g, n)->op : EBB_OP_UNKNOWN;
        if (op != EBB_OP_ADD && op != EBB_OP_RESHAPE && op != EBB_OP_CAST)
            return y;
        const ebb_value next = ebb_out(g, n, 0);
        const ebb_type *a = ebb_value_of(g, y)->type, *b = ebb_value_of(g, next)->type;
        if (a->rank < 1 || b->rank < 1 || a->dims[a->rank - 1] != b->dims[b->rank - 1])
            return y;
        y = next;
    }
    return y;
}

/* "x.qkv_proj" is x.q_proj, x.k_proj and x.v_proj; what is called otherwise is one module, and so is what the file
 * itself calls self_attn.qkv_proj: it has the framework's names, and there Phi-3's layer is called so. */
static ebb_status name_parts(const ebb_graph *g, ebb_lora_layer *found, ebb_arena *scratch)
{
    static const char packed[] = "qkv_proj", letters[] = "qkv", own[] = "self_attn.qkv_proj";
    const size_t length = strlen(found->whole.module), end = sizeof packed - 1;
    if (ebb_ends_in(found->whole.in_file, own))
        return NULL;
    int64_t widths[EBB_LORA_PARTS];
    if (length < end || strcmp(found->whole.module + length - end, packed) != 0 ||
        !is_cut(g, along(g, ebb_out(g, found->node, 0)), scratch, widths))
        return NULL;
    for (int k = 0; k < EBB_LORA_PARTS; k++) {
        found->part[k].rows = widths[k];
        found->part[k].module = ebb_arena_printf(scratch, "%.*s%c_proj", (int)(length - end),
                                                 found->whole.module, letters[k]);
        found->part[k].in_file = found->part[k].module;
        EBB_GOT(found->part[k].module);
    }
    found->part_count = EBB_LORA_PARTS;
    return NULL;
}

ebb_status ebb_lora_name(const ebb_graph *g, ebb_lora_layer *found, ebb_arena *scratch)
{
    found->whole.module = ebb_module_of(g, found->node, found->stored, scratch);
    found->whole.in_file = ebb_module_in_file(g, found->node, found->stored, scratch);
    EBB_GOT(found->whole.module && found->whole.in_file);
    return name_parts(g, found, scratch);
}

ebb_status ebb_lora_tell_nameless(ebb_edit *e, const ebb_lora_layer *list, size_t count)
{
    ebb_noted_losses losses;
    const char *first = NULL;
    size_t nameless = 0;
    EBB_TRY(ebb_noted_losses_find(&losses, e->g, e->scratch));
    for (size_t i = 0; i < count; i++)
        if (list[i].part_count == 0 && !ebb_noted_lists(&losses, list[i].whole.module)) {
            first = first != NULL ? first : list[i].whole.module;
            nameless++;
        }
    if (nameless == 0)
        return NULL;
    return ebb_note(e,
                    "%zu layers have no name that the framework knows, such as '%s': what "
                    "quantised the file left out "
                    "the metadata of their nodes. PEFT will not find their adapters; "
                    "docs/adapters.md has the lines that "
                    "put it back",
                    nameless, first);
}

static bool loss_reads(const ebb_graph *g, ebb_value y)
{
    const ebb_value_info *info = ebb_value_of(g, y);
    for (size_t i = 0; i < info->use_count; i++)
        if (ebb_node_of(g, info->uses[i].node)->phase == EBB_LOSS)
            return true;
    return false;
}

bool ebb_lora_is_head(const ebb_graph *g, const ebb_lora_layer *layer)
{
    enum { FAR = 12 };
    ebb_value y = ebb_out(g, layer->node, 0);
    const int rank = ebb_value_of(g, y)->type->rank;
    for (int step = 0; step < FAR; step++) {
        const ebb_value_info *info = ebb_value_of(g, y);
        if (loss_reads(g, y))
            return true;
        if ((info->flags & EBB_IS_OUTPUT) != 0) // not a value that is kept for a next call
            return g->loss.i == 0 && info->type->rank == rank;
        const ebb_node n = info->use_count == 1 ? info->uses[0].node : EBB_NO_NODE;
        const ebb_op op = n.i != 0 ? ebb_node_of(g, n)->op : EBB_OP_UNKNOWN;
        if (op != EBB_OP_ADD && op != EBB_OP_RESHAPE && op != EBB_OP_CAST && op != EBB_OP_TANH &&
            op != EBB_OP_MUL && op != EBB_OP_DIV && op != EBB_OP_TRANSPOSE)
            return false;
        y = ebb_out(g, n, 0);
    }
    return false;
}
