/* habit.c: see habit.h. */
#include "passes/primal/habit.h"

#include "onnx/graph/infer.h"
#include "onnx/graph/scan.h"

#include "passes/common.h"
#include "passes/flatten/dialect/dialect.h"

/* ---- every node ---- */

enum { DEEPEST = 64 }; // bodies within bodies; the reader allows no more

static ebb_status visit_graph(const ebb_graph *g, ebb_visits each, void *context, int depth)
{
    EBB_EACH_NODE(g, n) {
        EBB_TRY(each(context, g, n));
        if (depth < DEEPEST)
            EBB_EACH_BODY(ebb_node_of(g, n), body)
                EBB_TRY(visit_graph(*body, each, context, depth + 1));
    }
    return NULL;
}

static bool is_our_operator(const ebb_model *m, const ebb_function *f)
{
    ebb_op op =
        ebb_op_find(ebb_names_text(&m->names, f->domain), ebb_names_text(&m->names, f->name), 1);
    return op != EBB_OP_UNKNOWN && ebb_op_body(op) != NULL;
}

ebb_status ebb_visit_nodes(const ebb_model *model, ebb_visits each, void *context)
{
    EBB_TRY(visit_graph(model->graph, each, context, 0));
    for (size_t i = 0; i < model->function_count; i++)
        if (!is_our_operator(model, &model->functions[i]))
            EBB_TRY(visit_graph(model->functions[i].body, each, context, 0));
    return NULL;
}

bool ebb_calls_function(const ebb_graph *g, ebb_node n)
{
    const ebb_model *m = g->model;
    const ebb_node_info *info = ebb_node_of(g, n);
    for (size_t i = 0; i < m->function_count; i++)
        if (ebb_same_str(m->functions[i].name, info->op_name) &&
            ebb_same_str(m->functions[i].domain, info->domain))
            return !is_our_operator(m, &m->functions[i]);
    return false;
}

/* ---- the patterns ---- */

static bool frozen_norm(const ebb_graph *g, ebb_node n)
{
    ebb_attrs attrs = ebb_node_attrs(g, n);
    return ebb_node_of(g, n)->op == EBB_OP_BATCH_NORMALIZATION &&
           ebb_attr_int(&attrs, "training_mode", 0) == 0;
}

/* By ONNX's rules a Dropout without its third input does nothing. */
static bool idle_dropout(const ebb_graph *g, ebb_node n)
{
    ebb_value flag = ebb_in(g, n, 2);
    const ebb_tensor *t = flag.i != 0 ? ebb_value_constant(g, flag) : NULL;
    return ebb_node_of(g, n)->op == EBB_OP_DROPOUT &&
           (flag.i == 0 ||
            (t != NULL && t->data != NULL && t->bytes > 0 &&
             ebb_dtype_bits((ebb_dtype)t->type.dtype) >= 8 && ebb_tensor_int(t, 0) == 0));
}

static bool shape_arithmetic(const ebb_graph *g, ebb_node n)
{
    ebb_op op = ebb_node_of(g, n)->op;
    return op == EBB_OP_SHAPE || op == EBB_OP_SIZE;
}

static bool is_bool(const ebb_graph *g, ebb_value v)
{
    return v.i != 0 && ebb_value_of(g, v)->type->dtype == EBB_BOOL;
}

/* A lone constant as masks have it: -inf, the least float, -10000. */
static bool is_far_below(const ebb_graph *g, ebb_value v)
{
    const ebb_tensor *t = v.i != 0 ? ebb_value_constant(g, v) : NULL;
    int64_t count;
    return t != NULL && t->data != NULL && ebb_dtype_is_float((ebb_dtype)t->type.dtype) &&
           ebb_type_elements(&t->type, &count) && count == 1 && ebb_tensor_double(t, 0) <= -1e4;
}

static bool expanded_mask(const ebb_graph *g, ebb_node n)
{
    ebb_op op = ebb_node_of(g, n)->op;
    if (op == EBB_OP_TRILU)
        return true;
    if (op == EBB_OP_EXPAND || op == EBB_OP_TILE)
        return is_bool(g, ebb_out(g, n, 0));
    return op == EBB_OP_WHERE &&
           (is_far_below(g, ebb_in(g, n, 1)) || is_far_below(g, ebb_in(g, n, 2)));
}

static bool cast_chain(const ebb_graph *g, ebb_node n)
{
    ebb_value x = ebb_in(g, n, 0), y = ebb_out(g, n, 0);
    if (ebb_node_of(g, n)->op != EBB_OP_CAST || x.i == 0 || y.i == 0)
        return false;
    const ebb_type *from = ebb_value_of(g, x)->type, *to = ebb_value_of(g, y)->type;
    return ebb_producer_op(g, x) == EBB_OP_CAST ||
           (from->dtype != EBB_NONE && from->dtype == to->dtype);
}

static bool branch(const ebb_graph *g, ebb_node n)
{
    return ebb_node_of(g, n)->op == EBB_OP_IF;
}

static bool loop(const ebb_graph *g, ebb_node n)
{
    const ebb_op op = ebb_node_of(g, n)->op;
    return op == EBB_OP_LOOP || (op == EBB_OP_SCAN && !ebb_scan_is_kept(g, n));
}

static bool sequence(const ebb_graph *g, ebb_node n)
{
    return strstr(ebb_text(g, ebb_node_of(g, n)->op_name), "Sequence") != NULL;
}

static bool turned_weight(const ebb_graph *g, ebb_node n)
{
    ebb_value w = ebb_in(g, n, 0), y = ebb_out(g, n, 0);
    if (ebb_node_of(g, n)->op != EBB_OP_TRANSPOSE || w.i == 0 || y.i == 0 ||
        (ebb_value_of(g, w)->flags & EBB_IS_INITIALIZER) == 0)
        return false;
    const ebb_value_info *info = ebb_value_of(g, y);
    for (size_t i = 0; i < info->use_count; i++)
        if (ebb_node_of(g, info->uses[i].node)->op == EBB_OP_MATMUL)
            return true;
    return false;
}

/* Not what quantisation-aware training has: weights in floats, and what is computed, go through codes there. */
static bool quantised(const ebb_graph *g, ebb_node n)
{
    const char *name = ebb_text(g, ebb_node_of(g, n)->op_name);
    return strcmp(name, "DynamicQuantizeLinear") == 0 ||
           (strcmp(name, "DequantizeLinear") == 0 &&
            ebb_value_constant(g, ebb_in(g, n, 0)) != NULL);
}

static bool foreign(const ebb_graph *g, ebb_node n)
{
    return ebb_node_of(g, n)->op == EBB_OP_UNKNOWN && ebb_dialect_knows(g, n);
}

/* ---- made for generating alone ---- */

static bool is_called(const ebb_graph *g, ebb_node n, const char *name)
{
    return strcmp(ebb_text(g, ebb_node_of(g, n)->op_name), name) == 0;
}

/* Of a language model's states, [batch, tokens, size], those of the last token. */
static bool last_token(const ebb_graph *g, ebb_node n)
{
    ebb_attrs attrs = ebb_node_attrs(g, n);
    ebb_value x = ebb_in(g, n, 0), at = ebb_in(g, n, 1);
    double index;
    if (ebb_node_of(g, n)->op != EBB_OP_GATHER || ebb_attr_int(&attrs, "axis", 0) != 1 ||
        ebb_value_find(g, "input_ids").i == 0 || !ebb_scalar_of(g, at, &index) || index != -1)
        return false;
    const ebb_type *t = ebb_value_of(g, x)->type;
    return t->rank < 0 || (t->rank == 3 && ebb_dtype_is_float((ebb_dtype)t->dtype));
}

/* What a head would read is what a decoder gives out. */
static bool headless(const ebb_graph *g, ebb_node n)
{
    const ebb_value y = ebb_out(g, n, 0);
    if (y.i == 0 || (ebb_value_of(g, y)->flags & EBB_IS_OUTPUT) == 0 ||
        strcmp(ebb_value_name(g, y), "hidden_states") != 0 || ebb_value_find(g, "logits").i != 0)
        return false;
    for (size_t i = 0; i < g->input_count; i++)
        if (ebb_past_axis(g, g->inputs[i]) >= 0)
            return true;
    return false;
}

static bool paged(const ebb_graph *g, ebb_node n)
{
    return is_called(g, n, "PagedAttention");
}

static bool coded_cache(const ebb_graph *g, ebb_node n)
{
    ebb_attrs attrs = ebb_node_attrs(g, n);
    const char *keys = ebb_attr_string(&attrs, "k_quant_type", "NONE");
    return is_called(g, n, "GroupQueryAttention") && strcmp(keys, "NONE") != 0;
}

static bool packed_for_device(const ebb_graph *g, ebb_node n)
{
    ebb_attrs attrs = ebb_node_attrs(g, n);
    return ebb_attr_int(&attrs, "weight_prepacked", 0) != 0 ||
           ebb_attr_int(&attrs, "weights_prepacked", 0) != 0;
}

static bool compiled(const ebb_graph *g, ebb_node n)
{
    return is_called(g, n, "EPContext");
}

// clang-format off
static const ebb_habit table[] = {
    {"frozen-batch-norm", "batch norm that uses its running statistics, as in inference", "train-mode",
     "it stays frozen in training: its statistics must be initializers, read by it alone", false, frozen_norm},
    {"idle-dropout", "dropout that does nothing, as in inference", "train-mode",
     "it stays idle in training: its ratio must be constant, and its mask unread", false, idle_dropout},
    {"function", "calls of the model's own functions", "inline",
     "give the function's operators the opset of the model", false, ebb_calls_function},
    {"foreign", "operators of other runtimes", "inline",
     "what is said of them must be otherwise: give open dims their sizes with --dim, build the file without that option, or take it from before it was optimised", false, foreign},
    {"if", "branches (If)", "unroll",
     "where it hangs on a length (two rotary tables, say) give that with --dim; both branches run where they are alike; "
     "else export with the condition as a constant", false, branch},
    {"loop", "loops (Loop, Scan)", "unroll",
     "export with a constant trip count and values of one size in all steps, or unrolled: what is trained cannot lie before such a loop", false, loop},
    {"sequence", "lists of tensors", "fold",
     "let the list have a length that the file tells", false, sequence},
    {"shape-arithmetic", "sizes that are asked of tensors in the run (Shape, Size)", "fold",
     "give open dims their sizes with --dim; then it becomes constant", true, shape_arithmetic},
    {"cast-chain", "casts of casts, and to the dtype that is there", "fold",
     "a cast that rounds in between stays", true, cast_chain},
    {"expanded-mask", "masks made by Expand, Trilu or a fill with -inf", "fold",
     "what depends on an input is made in each step; --pass attention takes it as it is", true, expanded_mask},
    {"transposed-weight", "weights that are transposed before a product", "fuse",
     "the transposed copy is made in each step", true, turned_weight},
    {"quantised", "weights in integers, or of products with integers (DequantizeLinear, DynamicQuantizeLinear)", NULL,
     "they are constants and are not trained: to train them export the model in floating point, "
     "before it is quantised, or with QuantizeLinear on the floating-point weights", false, quantised},
    {"last-token", "states of the last token alone, before the head: no other token is predicted", NULL,
     "build the file without prune_lm_head, or export logits of all tokens", false, last_token},
    {"no-head", "hidden states come out, and no logits: the head was left out", NULL,
     "build the file without exclude_lm_head", false, headless},
    {"paged-attention", "attention over pages of a cache, as servers generate", NULL,
     "build the file without use_paged_attention", false, paged},
    {"coded-cache", "keys and values in few bits", NULL, "build the file without a quantised cache", false, coded_cache},
    {"packed-weight", "weights that are laid out for one kind of device", NULL,
     "build the file with matmulnbits_weights_prepacked=0 and qmoe_weights_prepacked=0", false, packed_for_device},
    {"compiled", "parts that are compiled for one device (EPContext)", NULL,
     "take the file from before they were compiled", false, compiled},
};
// clang-format on

const ebb_habit *ebb_habits(size_t *count)
{
    *count = sizeof table / sizeof table[0];
    return table;
}
