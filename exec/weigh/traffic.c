/* traffic.c: see traffic.h. A test counts in a run what is said here. */
#include "exec/weigh/traffic.h"

#include "exec/weigh/link.h"
#include "kernels/away/group.h"

/* The tensor that parts are of: what is cut, or what is put together. */
static const ebb_type *whole_of(const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    const bool joins = info->op == EBB_OP_ALL_GATHER || info->op == EBB_OP_UNSHARD ||
                       info->op == EBB_OP_START_UNSHARD;
    return ebb_value_of(g, joins ? info->out[0] : info->in[0])->type;
}

static void add_node(ebb_traffic *t, const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    const ebb_attrs attrs = ebb_node_attrs(g, n);
    const int64_t ranks = ebb_attr_int(&attrs, "ranks", 1), others = ranks - 1;
    int64_t elements;
    t->ranks = ranks;
    if (ranks < 2 || info->op == EBB_OP_RANK || info->op == EBB_OP_SHARD)
        return;
    const ebb_type *type = whole_of(g, n);
    const int64_t size = ebb_dtype_bits((ebb_dtype)type->dtype) / 8;
    if (size == 0 || !ebb_type_elements(type, &elements) || elements == 0)
        return;
    const int64_t part = ebb_up(elements, ranks), most = EBB_GROUP_PIECE / ranks / size;
    const int64_t block = part < most ? part : most;
    t->nodes++;
    if (info->op == EBB_OP_ALL_REDUCE || info->op == EBB_OP_START_ALL_REDUCE) {
        const int64_t whole = elements / (block * ranks), rest = elements % (block * ranks);
        t->exchanges += 2 * (uint64_t)(whole + (rest != 0));
        t->sent_bytes += 2 * (uint64_t)(others * size * (whole * block + ebb_up(rest, ranks)));
    } else {
        t->exchanges += (uint64_t)ebb_up(part, block);
        t->sent_bytes += (uint64_t)(others * size * part);
    }
}

ebb_traffic ebb_traffic_of(const ebb_graph *g)
{
    ebb_traffic t = {.ranks = 1};
    EBB_EACH_NODE(g, n)
        if (ebb_op_has(ebb_node_of(g, n)->op, EBB_TOGETHER))
            add_node(&t, g, n);
    return t;
}

/* Of one node; 0 of one that exchanges nothing. */
static ebb_traffic traffic_at(const ebb_graph *g, ebb_node n)
{
    ebb_traffic t = {.ranks = 1};
    if (ebb_op_has(ebb_node_of(g, n)->op, EBB_TOGETHER))
        add_node(&t, g, n);
    return t;
}

double ebb_exchange_ns(const ebb_graph *g, ebb_node n)
{
    ebb_link link;
    if (!ebb_op_has(ebb_node_of(g, n)->op, EBB_TOGETHER) || !ebb_link_of(&link, g))
        return 0;
    const ebb_traffic t = traffic_at(g, n);
    return (double)t.exchanges * (double)(t.ranks - 1) * link.message_ns +
           (double)t.sent_bytes * link.byte_ns;
}
