/* readers.c: what reads an initializer: slots, the exporter's notes at the nodes, modules of a TorchScript file. */
#include "passes/parameters/readers.h"

#include "passes/common.h"
#include "passes/parameters/slots.h"

/* What v is, moved. */
static const ebb_value_info *moved(const ebb_graph *g, ebb_value v)
{
    for (int steps = 0; steps < 8 && ebb_value_of(g, v)->producer.i != 0; steps++) {
        const ebb_node n = ebb_value_of(g, v)->producer;
        if (ebb_slot_of(ebb_node_of(g, n)->op, 0) != EBB_SLOT_MOVED)
            break;
        v = ebb_in(g, n, 0);
    }
    return ebb_value_of(g, v);
}

static bool is_from_input(const ebb_graph *g, ebb_value v)
{
    return (moved(g, v)->flags & (EBB_IS_INPUT | EBB_IS_INITIALIZER)) == EBB_IS_INPUT;
}

/* Of what is computed in the run; queries that a layer reads are no layer. */
static bool is_product(const ebb_graph *g, ebb_use use)
{
    const ebb_value other = ebb_in(g, use.node, use.slot == 0);
    return ebb_op_has(ebb_node_of(g, use.node)->op, EBB_PRODUCTS) && other.i != 0 &&
           (moved(g, other)->flags & EBB_IS_INITIALIZER) == 0;
}

static bool is_bias(const ebb_graph *g, ebb_use use)
{
    const ebb_op op = ebb_node_of(g, use.node)->op;
    const ebb_value other = ebb_in(g, use.node, use.slot == 0);
    const ebb_node n = other.i != 0 ? ebb_value_of(g, other)->producer : EBB_NO_NODE;
    const ebb_op product = n.i != 0 ? ebb_node_of(g, n)->op : EBB_OP_UNKNOWN;
    return (op == EBB_OP_GEMM && use.slot == 2) ||
           (op == EBB_OP_ADD && (product == EBB_OP_MATMUL || product == EBB_OP_FUSED_MATMUL));
}

bool ebb_use_is_alone(const ebb_graph *g, ebb_use use)
{
    switch (ebb_node_of(g, use.node)->op) {
    case EBB_OP_EXP:
    case EBB_OP_RECIPROCAL:
    case EBB_OP_SIGMOID:
    case EBB_OP_TANH:
    case EBB_OP_SOFTPLUS:
    case EBB_OP_SOFTMAX:
    case EBB_OP_LOG_SOFTMAX:
        return true;
    default:
        return use.slot == 0 && ebb_op_has(ebb_node_of(g, use.node)->op, EBB_NORM);
    }
}

/* What a norm gives, or its product with a scale: a scale and a bias belong there. */
static bool is_normed(const ebb_graph *g, ebb_value v)
{
    for (int steps = 0; steps < 4; steps++) {
        ebb_node n = v.i != 0 ? ebb_value_of(g, v)->producer : EBB_NO_NODE;
        ebb_op op = n.i != 0 ? ebb_node_of(g, n)->op : EBB_OP_UNKNOWN;
        if (n.i == 0)
            return false;
        if (ebb_op_has(op, EBB_NORM))
            return true;
        bool first = op == EBB_OP_MUL && ebb_value_constant(g, ebb_in(g, n, 0)) != NULL;
        if (op != EBB_OP_MUL && ebb_slot_of(op, 0) != EBB_SLOT_MOVED)
            return false;
        v = ebb_in(g, n, first ? 1 : 0);
    }
    return false;
}

/* A bias is no weight's source, and a weight none of a bias. */
static bool fits(const char *source, ebb_op op, uint32_t slot)
{
    bool bias = op == EBB_OP_ADD || op == EBB_OP_SUB || slot == 2;
    return !ebb_ends_in(source, bias ? "_weight" : "_bias");
}

static void take_note(const ebb_judge *j, ebb_readers *r, ebb_use use)
{
    ebb_op op = ebb_node_of(j->g, use.node)->op;
    bool any = false;
    ebb_noted noted;
    ebb_noted_sources(&noted, j->g, use.node, "p_");
    r->noted |= noted.call;
    for (int i = 0; i < noted.count; i++) {
        any = true;
        const bool fitting = fits(noted.name[i], op, use.slot);
        r->parameter |= fitting;
        r->gone |= fitting && ebb_noted_is_gone(&j->losses, j->g, noted.name[i]);
    }
    ebb_noted_sources(&noted, j->g, use.node, "b_");
    r->buffer |= !any && noted.count > 0;
    const bool owner = ebb_noted_loss_at(&j->losses, j->g, use.node) != NULL;
    r->owner |= owner;
    r->rule |= owner && !ebb_noted_weight_at(&j->losses, j->g, use.node);
    r->layer |= ebb_noted_layer_below(&j->losses, j->g, use.node) != NULL;
    r->normed |= ebb_holds_norm(j->g, use.node);
}

/* Without a batch norm, which takes the bias with it, folding leaves these as they are: a weight without a
 * name was computed. */
static bool leaves_names(const ebb_graph *g, ebb_node n)
{
    const ebb_op op = ebb_node_of(g, n)->op;
    const ebb_attrs attrs = ebb_node_attrs(g, n);
    const ebb_value bias = ebb_in(g, n, 2);
    const bool as_it_is = op == EBB_OP_CONV || ebb_attr_int(&attrs, "transB", 0) != 0; // rows
    return as_it_is && (bias.i == 0 || !ebb_is_folded_state(g, bias));
}

/* Places that were chosen by their values. */
static bool is_nearest(const ebb_graph *g, ebb_value v)
{
    const ebb_node n = moved(g, v)->producer;
    const ebb_op op = n.i != 0 ? ebb_node_of(g, n)->op : EBB_OP_UNKNOWN;
    return op == EBB_OP_ARG_MIN || op == EBB_OP_ARG_MAX || op == EBB_OP_TOP_K;
}

/* Concat of nothing but initializers, and of what is moved of them, only moves them. */
static bool joins_activations(const ebb_graph *g, ebb_node n)
{
    if (ebb_node_of(g, n)->op != EBB_OP_CONCAT)
        return false;
    for (uint32_t i = 0; i < ebb_node_of(g, n)->in_count; i++) {
        if ((moved(g, ebb_in(g, n, i))->flags & EBB_IS_INITIALIZER) == 0)
            return true;
    }
    return false;
}

static void look_at_use(ebb_judge *j, ebb_readers *r, ebb_use use)
{
    const ebb_graph *g = j->g;
    ebb_op op = ebb_node_of(g, use.node)->op;
    bool weight = ebb_use_of(g, use) == EBB_SLOT_WEIGHT;
    r->weight |= weight;
    r->other |= weight && op != EBB_OP_GATHER;
    r->whole |= weight && j->unmarked.g == g && ebb_unmarked_is_layer(&j->unmarked, use.node);
    r->made |= weight && leaves_names(g, use.node);
    r->code |= weight && op == EBB_OP_GATHER && is_nearest(g, ebb_in(g, use.node, 1));
    r->matrix |= weight && is_product(g, use);
    r->state |= weight && ebb_op_has(op, EBB_PRODUCTS) && !is_product(g, use);
    r->scale |= (op == EBB_OP_MUL || op == EBB_OP_ADD) && j->unmarked.g == g &&
                ebb_unmarked_is_scale(&j->unmarked, use.node);
    r->added |= op == EBB_OP_ADD || op == EBB_OP_SUM;
    r->bias |= is_bias(g, use);
    r->scales |= op == EBB_OP_MUL && !is_from_input(g, ebb_in(g, use.node, use.slot == 0));
    r->product |= weight && (op == EBB_OP_MATMUL || op == EBB_OP_FUSED_MATMUL);
    r->norm |=
        weight && ebb_op_has(op, EBB_NORM) && op != EBB_OP_RMS_NORM; // that was made of a product
    r->resized |= op == EBB_OP_RESIZE && use.slot == 0;
    r->alone |= ebb_use_is_alone(g, use);
    r->behind |=
        (op == EBB_OP_MUL || op == EBB_OP_ADD) && is_normed(g, ebb_in(g, use.node, use.slot == 0));
    r->arithmetic |= ebb_use_of(g, use) == EBB_SLOT_ARITHMETIC || op == EBB_OP_CONCAT;
    if ((op == EBB_OP_SUB || op == EBB_OP_DIV) && use.slot == 1) {
        r->less = true;
        r->input |= is_from_input(g, ebb_in(g, use.node, 0));
    }
    take_note(j, r, use);
}

static void look_at_readers(ebb_judge *j, ebb_value v, ebb_readers *r)
{
    enum { FAR = 6, MOST = 64 }; // an exported LSTM weight goes Slice, Concat, Unsqueeze
    const ebb_graph *g = j->g;
    ebb_value here[MOST] = {v};
    size_t count = 1, done = 0;
    for (int step = 0; step <= FAR && done < count; step++) {
        for (size_t end = count; done < end; done++) {
            const ebb_value_info *info = ebb_value_of(g, here[done]);
            for (size_t i = 0; i < info->use_count; i++) {
                ebb_use use = info->uses[i];
                bool moves =
                    ebb_use_of(g, use) == EBB_SLOT_MOVED && !joins_activations(g, use.node);
                if (!moves)
                    look_at_use(j, r, use);
                for (uint32_t o = 0; moves && o < ebb_node_of(g, use.node)->out_count; o++)
                    if (count < MOST && ebb_out(g, use.node, o).i != 0)
                        here[count++] = ebb_out(g, use.node, o);
            }
        }
    }
}

/* What the body of a loop reads by its name is read there. */
static void look_at_bodies(ebb_judge *j, ebb_value v, ebb_readers *r)
{
    EBB_EACH_NODE(j->g, n) {
        const ebb_graph *body = ebb_node_body(j->g, n, "body");
        ebb_value inner =
            body != NULL ? ebb_value_named(body, ebb_value_of(j->g, v)->name) : EBB_NO_VALUE;
        if (inner.i == 0 || (ebb_value_of(body, inner)->flags & EBB_IS_OUTER) == 0)
            continue;
        ebb_judge there = *j;
        there.g = body;
        look_at_readers(&there, inner, r);
        look_at_bodies(&there, inner, r);
    }
}

ebb_readers ebb_readers_of(ebb_judge *j, ebb_value v)
{
    ebb_readers r = {0};
    look_at_readers(j, v, &r);
    if ((ebb_value_of(j->g, v)->flags & EBB_IS_CAPTURED) != 0)
        look_at_bodies(j, v, &r);
    return r;
}
