/* shard_join.c: see shard_parts.h. */
#include "passes/spread/shard_parts.h"

enum { DEEPEST = 64 }; /* nodes, one behind another, that are made anew */

typedef struct joining {
    const ebb_shard_weights *w;
    ebb_graph *g;
    uint8_t *depth;   /* by value id, from 1: it is made of weights alone, by so many nodes */
    ebb_value *made;  /* by value id: the one that is there now ... */
    uint32_t *run_of; /* ... in this run of nodes of one phase */
    uint32_t run;
    ebb_build b;
} joining;

static bool is_part(const joining *j, ebb_value v)
{
    return v.i < j->w->value_count && j->w->whole[v.i] != NULL;
}

static bool is_of_weights(const joining *j, ebb_value v)
{
    return v.i != 0 && v.i < j->w->value_count && (is_part(j, v) || j->depth[v.i] > 0);
}

static bool reads_weights(const joining *j, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(j->g, n);
    for (uint32_t i = 0; i < info->in_count; i++)
        if (is_of_weights(j, info->in[i]))
            return true;
    return false;
}

/* How deep the result of n is, which reads weights; 0: it reads something else, or is wanted for itself. */
static uint8_t depth_of(const joining *j, ebb_node n)
{
    enum { NEVER = EBB_RANDOM | EBB_UPDATES | EBB_TOGETHER | EBB_STARTS | EBB_BODIES };
    const ebb_node_info *info = ebb_node_of(j->g, n);
    uint8_t depth = 0;
    if (info->op == EBB_OP_UNKNOWN || ebb_op_has(info->op, NEVER) || info->out_count != 1 ||
        ebb_value_is_held(j->g, info->out[0]))
        return 0;
    for (uint32_t i = 0; i < info->in_count; i++) {
        const ebb_value v = info->in[i];
        if (is_of_weights(j, v))
            depth = j->depth[v.i] > depth ? j->depth[v.i] : depth;
        else if (v.i != 0 && ebb_value_constant(j->g, v) == NULL)
            return 0;
    }
    return depth < DEEPEST ? (uint8_t)(depth + 1) : 0;
}

static ebb_value put_together(joining *j, ebb_value v)
{
    const ebb_type *whole = j->w->whole[v.i];
    j->b.name = ebb_value_name(j->g, v);
    ebb_with_int(&j->b, "ranks", j->w->ranks);
    ebb_with_ints(&j->b, "shape", whole->dims, (uint32_t)whole->rank);
    return ebb_emit(&j->b, EBB_OP_UNSHARD, v);
}

static ebb_value instance(joining *j, ebb_value v);

static ebb_value make_anew(joining *j, ebb_value v)
{
    const ebb_node n = ebb_value_of(j->g, v)->producer;
    const uint32_t count = ebb_node_of(j->g, n)->in_count;
    ebb_value *in = EBB_SCRATCH(j->w->e, ebb_value, count + (size_t)1);
    if (!ebb_build_got(&j->b, in))
        return EBB_NO_VALUE;
    for (uint32_t i = 0; i < count; i++)
        in[i] = instance(j, ebb_in(j->g, n, i));
    j->b.name = ebb_value_name(j->g, v);
    ebb_with_attrs_of(&j->b, n);
    return ebb_emit_list(&j->b, ebb_node_of(j->g, n)->op, in, count);
}

/* What stands for v in this run. */
static ebb_value instance(joining *j, ebb_value v)
{
    if (!is_of_weights(j, v))
        return v;
    if (j->run_of[v.i] != j->run) {
        j->made[v.i] = is_part(j, v) ? put_together(j, v) : make_anew(j, v);
        j->run_of[v.i] = j->run;
    }
    return j->made[v.i];
}

static ebb_status read_whole(joining *j, ebb_node n)
{
    j->b.before = n;
    j->b.phase = (ebb_phase)ebb_node_of(j->g, n)->phase;
    for (uint32_t i = 0; i < ebb_node_of(j->g, n)->in_count; i++) {
        const ebb_value v = instance(j, ebb_in(j->g, n, i));
        EBB_TRY(j->b.status);
        EBB_TRY(ebb_node_set_input(j->g, n, i, v));
    }
    return NULL;
}

static ebb_status join(joining *j)
{
    bool was_forward = false;
    EBB_EACH_NODE(j->g, n) {
        if (n.i >= j->w->node_count || j->w->reached[n.i] != 0 || !reads_weights(j, n))
            continue;
        const uint8_t depth = depth_of(j, n);
        if (depth > 0) {
            j->depth[ebb_out(j->g, n, 0).i] = depth;
            continue;
        }
        const uint8_t phase = ebb_node_of(j->g, n)->phase;
        const bool is_forward = phase != EBB_BACKWARD && phase != EBB_UPDATE;
        if (j->run == 0 || (!j->w->once && is_forward != was_forward))
            j->run++;
        was_forward = is_forward;
        EBB_TRY(read_whole(j, n));
    }
    return NULL;
}

ebb_status ebb_shard_join(const ebb_shard_weights *weights)
{
    joining j = {.w = weights, .g = weights->e->g};
    j.b = ebb_edit_build(weights->e, EBB_NO_NODE, EBB_FORWARD);
    j.depth = EBB_SCRATCH(weights->e, uint8_t, weights->value_count);
    j.made = EBB_SCRATCH(weights->e, ebb_value, weights->value_count);
    j.run_of = EBB_SCRATCH(weights->e, uint32_t, weights->value_count);
    EBB_GOT(j.depth && j.made && j.run_of);
    return join(&j);
}
