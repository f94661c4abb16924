/* halved.c: which nodes compute in 16 bits: by their operator (column half of ops.def), by what they
 * read, and by who reads them. The table stands in precision.c.
 */
#include "passes/primal/halved.h"

#include "passes/common.h"
#include "passes/parameters/trainable.h"

/* The words of column half of ops.def. */
typedef enum treatment {
    KEPT,    /* in float32 */
    COMPUTE, /* in 16 bits, but for what it keeps of a row or channel and running statistics */
    CELLS,   /* in 16 bits, every output */
    ARITHMETIC,
    RESIDUAL, /* as ARITHMETIC, but where it runs along the layers */
    ROWS,     /* as COMPUTE, but of float32 rows */
    DROPS,    /* likewise, on the way to such a norm */
    MOVE,     /* as its data */
} treatment;

/* ---- what operators are ---- */

static treatment kind_of(ebb_op op)
{
    static const uint8_t kinds[EBB_OP_COUNT] = {
        [EBB_OP_UNKNOWN] = KEPT,
#define EBB_OP(id, domain, name, since, operands, reads, slots, traits, alias, infer, grad, cost, \
               sizes, tile, batch, half, ...)                                                     \
    [EBB_OP_##id] = half,
#include "onnx/tables/ops.def"
#undef EBB_OP
    };
    return (treatment)kinds[op];
}

bool ebb_is_f32(const ebb_graph *g, ebb_value v)
{
    const ebb_type *t = ebb_value_of(g, v)->type;
    return v.i != 0 && t->kind == EBB_KIND_TENSOR && t->dtype == EBB_F32;
}

/* Running statistics, scale and shift of batch norm have dtypes of their own. */
bool ebb_halved_takes_float32(ebb_op op, uint32_t slot)
{
    bool batch_norm = op == EBB_OP_BATCH_NORMALIZATION || op == EBB_OP_BATCH_NORM_TRAINING;
    return (batch_norm && slot >= 1) || (op == EBB_OP_DROPOUT && slot == 1);
}

static bool computes(ebb_op op)
{
    treatment kind = kind_of(op);
    return kind == COMPUTE || kind == CELLS || kind == ROWS || kind == DROPS;
}

static bool is_arithmetic(ebb_op op)
{
    return kind_of(op) == ARITHMETIC || kind_of(op) == RESIDUAL;
}

bool ebb_halved_gives_float32(ebb_op op, uint32_t slot)
{
    return slot >= 1 && computes(op) && kind_of(op) != CELLS;
}

static bool is_gather(ebb_op op)
{
    return op == EBB_OP_GATHER || op == EBB_OP_GATHER_ELEMENTS || op == EBB_OP_GATHER_ND;
}

bool ebb_halved_moves(ebb_op op)
{
    return kind_of(op) == MOVE;
}

bool ebb_halved_counts(ebb_op op)
{
    return computes(op) || is_arithmetic(op);
}

/* ---- what stays as it is ---- */

static bool is_named(const ebb_halved *h, ebb_node n)
{
    const char *keep = ebb_option_string(h->e, "keep");
    const ebb_node_info *info = ebb_node_of(h->g, n);
    return keep != NULL && (ebb_glob(keep, ebb_text(h->g, info->name)) ||
                            ebb_glob(keep, ebb_text(h->g, info->op_name)));
}

static bool is_shared_with_subgraph(const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    for (uint32_t o = 0; o < info->out_count; o++)
        if ((ebb_value_of(g, info->out[o])->flags & EBB_IS_CAPTURED) != 0)
            return true;
    return false;
}

/* What pass loss made, and from the loss back to what a model computes its predictions with: so many
 * nodes at most, for a chain of sums may lead far into a model. */
static ebb_status find_loss(ebb_halved *h)
{
    enum { FAR = 8 };
    ebb_graph *g = h->g;
    uint8_t *distance = EBB_SCRATCH(h->e, uint8_t, h->node_count);
    EBB_GOT(distance);
    ebb_node last = g->loss.i != 0 ? ebb_value_of(g, g->loss)->producer : EBB_NO_NODE;
    if (last.i != 0)
        distance[last.i] = 1;
    for (size_t k = h->count; k-- > 0;) {
        ebb_node n = h->order[k];
        const ebb_node_info *info = ebb_node_of(g, n);
        bool reached = distance[n.i] > 0 && distance[n.i] <= FAR;
        h->of_loss[n.i] = info->phase == EBB_LOSS && kind_of(info->op) != MOVE;
        if (!reached || (computes(info->op) && info->op != EBB_OP_SOFTMAX))
            continue;
        bool reads_weight = false;
        for (uint32_t i = 0; i < info->in_count; i++)
            reads_weight = reads_weight || (info->in[i].i != 0 && h->trains[info->in[i].i]);
        if (reads_weight)
            continue;
        h->of_loss[n.i] = kind_of(info->op) != MOVE;
        for (uint32_t i = 0; i < info->in_count; i++) {
            ebb_node maker = ebb_value_of(g, info->in[i])->producer;
            if (info->in[i].i != 0 && maker.i != 0 && distance[maker.i] == 0)
                distance[maker.i] = (uint8_t)(distance[n.i] + 1);
        }
    }
    return NULL;
}

/* ---- what computes in 16 bits ---- */

static bool reads_activation(const ebb_halved *h, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(h->g, n);
    for (uint32_t i = 0; i < info->in_count; i++)
        if (ebb_is_f32(h->g, info->in[i]) && h->activation[info->in[i].i])
            return true;
    return false;
}

/* First those that have an activation, in order. */
static ebb_status find_activations(ebb_halved *h)
{
    ebb_graph *g = h->g;
    for (size_t i = 0; i < g->input_count; i++)
        h->activation[g->inputs[i].i] =
            ebb_is_f32(g, g->inputs[i]) &&
            (ebb_value_of(g, g->inputs[i])->flags & EBB_IS_INITIALIZER) == 0;
    for (size_t k = 0; k < h->count; k++) {
        ebb_node n = h->order[k];
        const ebb_node_info *info = ebb_node_of(g, n);
        treatment kind = kind_of(info->op);
        bool active = reads_activation(h, n);
        bool table = is_gather(info->op) && info->in[0].i != 0 && h->trains[info->in[0].i];
        if (computes(info->op) && ebb_is_f32(g, info->in[0]))
            active = true;
        h->active[n.i] = active;
        for (uint32_t o = 0; o < info->out_count; o++)
            if (info->out[o].i != 0)
                h->activation[info->out[o].i] = active || table;
        if (!active || !ebb_is_f32(g, info->out[0]))
            continue;
        h->low[n.i] = kind != KEPT;
        if (kind == KEPT || kind == MOVE)
            continue;
        const char *why = h->of_loss[n.i]                 ? "it makes the loss"
                          : is_named(h, n)                ? "keep= names it"
                          : is_shared_with_subgraph(g, n) ? "a subgraph reads it"
                                                          : NULL;
        ebb_found(h->e);
        if (why != NULL) {
            h->low[n.i] = false;
            EBB_TRY(ebb_skipped(h->e, n, why));
        }
    }
    return NULL;
}

static bool from_integers(const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    uint8_t from = ebb_value_of(g, info->in[0])->type->dtype;
    return info->op == EBB_OP_CAST && (from == EBB_BOOL || ebb_dtype_is_integer((ebb_dtype)from));
}

/* Then what is made of constants, weights and integers alone: with its readers. */
static void find_sources(ebb_halved *h)
{
    ebb_graph *g = h->g;
    for (size_t k = h->count; k-- > 0;) {
        ebb_node n = h->order[k];
        const ebb_node_info *info = ebb_node_of(g, n);
        treatment kind = kind_of(info->op);
        bool fits = is_arithmetic(info->op) || (kind == MOVE && !is_gather(info->op)) ||
                    from_integers(g, n);
        if (!fits || info->out_count != 1 || !ebb_is_f32(g, info->out[0]) || h->active[n.i])
            continue;
        const ebb_value_info *y = ebb_value_of(g, info->out[0]);
        bool all = y->use_count > 0 && !ebb_value_is_held(g, info->out[0]) && !h->of_loss[n.i] &&
                   !is_named(h, n);
        for (size_t i = 0; i < y->use_count && all; i++) {
            ebb_node user = y->uses[i].node;
            all = h->low[user.i] &&
                  !ebb_halved_takes_float32(ebb_node_of(g, user)->op, y->uses[i].slot);
        }
        h->low[n.i] = all;
    }
}

/* ---- what runs along the layers ---- */

static bool sums_activations(const ebb_halved *h, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(h->g, n);
    const ebb_type *y = ebb_value_of(h->g, info->out[0])->type;
    uint32_t count = 0;
    for (uint32_t i = 0; i < info->in_count; i++)
        count += info->in[i].i != 0 && h->activation[info->in[i].i] &&
                 ebb_type_same_shape(ebb_value_of(h->g, info->in[i])->type, y);
    return count >= 2;
}

static ebb_status stays(ebb_halved *h, ebb_node n, const char *why)
{
    h->low[n.i] = false;
    return ebb_skipped(h->e, n, why);
}

/* Last first: sums of activations that come to a norm of rows, by themselves or by further sums. */
static ebb_status keep_sums(ebb_halved *h, bool *normed)
{
    for (size_t k = h->count; k-- > 0;) {
        ebb_node n = h->order[k];
        const ebb_node_info *info = ebb_node_of(h->g, n);
        treatment kind = kind_of(info->op);
        bool sum =
            kind == RESIDUAL && h->low[n.i] && normed[info->out[0].i] && sums_activations(h, n);
        if (sum)
            EBB_TRY(stays(h, n, "it runs along the layers to a norm of rows"));
        bool all = sum || (kind == MOVE && normed[info->out[0].i]);
        bool first = kind == ROWS || (kind == DROPS && normed[info->out[0].i]);
        for (uint32_t i = 0; i < info->in_count && (all || (first && i == 0)); i++)
            normed[info->in[i].i] = true;
    }
    return NULL;
}

/* Then, first those that have float32 rows: norms, and dropout between them. */
static ebb_status keep_norms(ebb_halved *h, const bool *normed)
{
    bool *narrow = EBB_SCRATCH(h->e, bool, h->value_count);
    EBB_GOT(narrow);
    for (size_t k = 0; k < h->count; k++) {
        ebb_node n = h->order[k];
        const ebb_node_info *info = ebb_node_of(h->g, n);
        treatment kind = kind_of(info->op);
        ebb_value y = info->out[0];
        bool any = false;
        for (uint32_t i = 0; i < info->in_count; i++)
            any = any || narrow[info->in[i].i];
        bool row = kind == ROWS || (kind == DROPS && normed[y.i]);
        if (row && h->low[n.i] && !narrow[info->in[0].i])
            EBB_TRY(stays(h, n, "its rows are float32"));
        narrow[y.i] = h->low[n.i] && (kind != MOVE || any);
    }
    return NULL;
}

static ebb_status keep_residuals(ebb_halved *h)
{
    bool *normed = EBB_SCRATCH(h->e, bool, h->value_count); // read by a norm of rows, in the end
    EBB_GOT(normed);
    EBB_TRY(keep_sums(h, normed));
    return keep_norms(h, normed);
}

/* ---- all ---- */

static ebb_status prepare(ebb_halved *h, ebb_edit *e)
{
    ebb_graph *g = e->g;
    ebb_trainable_source source;
    *h = (ebb_halved){.e = e, .g = g, .value_count = g->value_count, .node_count = g->node_count};
    h->trains = EBB_SCRATCH(e, bool, g->value_count);
    h->activation = EBB_SCRATCH(e, bool, g->value_count);
    h->active = EBB_SCRATCH(e, bool, g->node_count);
    h->low = EBB_SCRATCH(e, bool, g->node_count);
    h->of_loss = EBB_SCRATCH(e, bool, g->node_count);
    h->order = EBB_SCRATCH(e, ebb_node, g->node_count);
    EBB_GOT(h->trains && h->activation && h->active && h->low && h->of_loss && h->order);
    EBB_EACH_NODE(g, n)
        if (ebb_node_of(g, n)->phase != EBB_UPDATE) // the count of a random key
            h->order[h->count++] = n;
    return ebb_trainable_find(h->trains, &source, g);
}

ebb_status ebb_halved_choose(ebb_halved *h, ebb_edit *e)
{
    EBB_TRY(prepare(h, e));
    EBB_TRY(find_loss(h));
    EBB_TRY(find_activations(h));
    EBB_TRY(keep_residuals(h));
    find_sources(h);
    return NULL;
}
