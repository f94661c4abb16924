/* traffic.c: see traffic.h. A test counts in a run what is said here. */
#include "exec/weigh/traffic.h"

#include "exec/weigh/node_time.h"
#include "kernels/away/group.h"

static int64_t up(int64_t n, int64_t by)
{
    return n / by + (n % by != 0);
}

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
    const int64_t part = up(elements, ranks), most = EBB_GROUP_PIECE / ranks / size;
    const int64_t block = part < most ? part : most;
    t->nodes++;
    if (info->op == EBB_OP_ALL_REDUCE || info->op == EBB_OP_START_ALL_REDUCE) {
        const int64_t whole = elements / (block * ranks), rest = elements % (block * ranks);
        t->exchanges += 2 * (uint64_t)(whole + (rest != 0));
        t->sent_bytes += 2 * (uint64_t)(others * size * (whole * block + up(rest, ranks)));
    } else {
        t->exchanges += (uint64_t)up(part, block);
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

static ebb_traffic_event event_of(const ebb_graph *g, ebb_node n, double at_ns)
{
    ebb_traffic t = {.ranks = 1};
    add_node(&t, g, n);
    return (ebb_traffic_event){.at_ns = at_ns,
                               .exchanges = t.exchanges,
                               .sent_bytes = t.sent_bytes,
                               .is_beside = ebb_op_has(ebb_node_of(g, n)->op, EBB_STARTS)};
}

ebb_status ebb_traffic_events(ebb_traffic_event **list, size_t *count, const ebb_graph *g,
                              const struct ebb_rates *rates, ebb_arena *arena)
{
    size_t *event = EBB_NEW(arena, size_t, g->node_count + 1); // by node id, from 1
    double now = 0;
    *list = EBB_NEW(arena, ebb_traffic_event, g->node_count + 1);
    *count = 0;
    if (*list == NULL || event == NULL)
        return ebb_error_memory();
    EBB_EACH_NODE(g, n) {
        const ebb_node_info *info = ebb_node_of(g, n);
        const ebb_node begun =
            info->op == EBB_OP_WAIT ? ebb_value_of(g, ebb_in(g, n, 0))->producer : EBB_NO_NODE;
        if (begun.i != 0 && event[begun.i] != 0)
            (*list)[(*count)++] = (ebb_traffic_event){.at_ns = now, .waits_for = event[begun.i]};
        if (ebb_op_has(info->op, EBB_TOGETHER)) {
            const ebb_traffic_event e = event_of(g, n, now);
            if (e.exchanges > 0) {
                (*list)[(*count)++] = e;
                event[n.i] = *count;
            }
        }
        now += ebb_node_ns_by(rates, g, n);
    }
    return NULL;
}
