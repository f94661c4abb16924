/* bucket: exchange several small gradients at once.
 *
 *   before   a' = AllReduce(a)   b' = AllReduce(b)    c = f(...)                                   w' = update(w, a')
 *   after    p = AllReduce(Concat(a, b))              c = f(...)   a' = Slice(p)   b' = Slice(p)   w' = update(w, a')
 *
 * An exchange takes the link's delay however few bytes it has, and a network has more norms and biases than
 * large weights. Each element is added as it was, in the order of ranks: so any size of bucket has the same bits.
 *
 * Sums of one dtype follow each other into a bucket until it is full or somebody reads one of them; it is
 * exchanged where the last of them was, and cut where one of them is first read: so pass overlap can begin it and
 * go on. The tensors laid end to end are in memory once more while they are laid, and while they are cut.
 *
 * Declines what is not small, what is read before another sum comes, and gradients in parts (ReduceScatter of
 * pass shard), which leaves small ones whole.
 */
#include "onnx/graph/infer.h"
#include "passes/common.h"
#include "passes/spread/shard_parts.h"

typedef struct bucket {
    ebb_edit *e;
    ebb_graph *g;
    ebb_node *members;         /* in their order */
    size_t count, value_count; /* values: of before */
    uint64_t bytes;
    bool *waits; /* by value id: it is made by a member */
    ebb_value *list;
    const uint32_t *positions; /* of before */
} bucket;

static int64_t elements_of(const ebb_graph *g, ebb_value v)
{
    int64_t n;
    return ebb_type_elements(ebb_value_of(g, v)->type, &n) ? n : 0;
}

/* The first node that reads one of the sums; none: the step ends before. */
static ebb_node first_read(const bucket *k)
{
    ebb_node first = EBB_NO_NODE;
    for (size_t i = 0; i < k->count; i++)
        first = ebb_earlier(first,
                            ebb_first_reader(k->g, ebb_out(k->g, k->members[i], 0), k->positions),
                            k->positions);
    return first;
}

/* The sums of the bucket, by one exchange. */
static ebb_status exchange(bucket *k)
{
    static const int64_t flat = -1;
    ebb_graph *g = k->g;
    const ebb_node last = k->members[k->count - 1], first = first_read(k);
    ebb_build b = ebb_edit_build(k->e, last, (ebb_phase)ebb_node_of(g, last)->phase);
    b.name = ebb_value_name(g, ebb_out(g, last, 0));
    for (size_t i = 0; i < k->count; i++)
        k->list[i] = ebb_emit_reshape(&b, ebb_in(g, k->members[i], 0), &flat, 1);
    ebb_with_int(&b, "axis", 0);
    ebb_value all = ebb_emit_list(&b, EBB_OP_CONCAT, k->list, (uint32_t)k->count);
    ebb_with_exchange_of(&b, last);
    all = ebb_emit(&b, EBB_OP_ALL_REDUCE, all);
    EBB_TRY(b.status);
    b.before = first;
    int64_t at = 0;
    for (size_t i = 0; i < k->count; i++) {
        const ebb_value old = ebb_out(g, k->members[i], 0);
        const int64_t from = at, axis = 0;
        at += elements_of(g, old);
        b.name = ebb_value_name(g, old);
        ebb_value own = ebb_emit(&b, EBB_OP_SLICE, all, ebb_const_ints(&b, &from, 1),
                                 ebb_const_ints(&b, &at, 1), ebb_const_ints(&b, &axis, 1));
        own = ebb_emit_reshape_like(&b, own, old);
        EBB_TRY(b.status);
        EBB_TRY(ebb_edit_swap(k->e, k->members[i], own));
        ebb_applied(k->e);
    }
    return NULL;
}

static ebb_status close_bucket(bucket *k)
{
    ebb_status status = NULL;
    for (size_t i = 0; i < k->count; i++)
        k->waits[ebb_out(k->g, k->members[i], 0).i] = false;
    if (k->count == 1)
        status = ebb_skipped(k->e, k->members[0], "no other small sum can go with it");
    else if (k->count > 1)
        status = exchange(k);
    k->count = 0;
    k->bytes = 0;
    return status;
}

static bool reads_a_member(const bucket *k, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(k->g, n);
    for (uint32_t i = 0; i < info->in_count; i++)
        if (info->in[i].i < k->value_count && k->waits[info->in[i].i])
            return true;
    return false;
}

static bool goes_with(const bucket *k, ebb_node n)
{
    const ebb_graph *g = k->g;
    return k->count == 0 || (ebb_ranks_of(g, n) == ebb_ranks_of(g, k->members[0]) &&
                             ebb_value_of(g, ebb_out(g, n, 0))->type->dtype ==
                                 ebb_value_of(g, ebb_out(g, k->members[0], 0))->type->dtype);
}

static ebb_status put_in(bucket *k, ebb_node n, uint64_t most)
{
    size_t bytes = 0;
    const ebb_value v = ebb_out(k->g, n, 0);
    ebb_found(k->e);
    if (!ebb_type_bytes(ebb_value_of(k->g, v)->type, &bytes) || bytes == 0 || bytes > most)
        return ebb_skipped(k->e, n, "it is not small");
    if ((ebb_value_of(k->g, v)->flags & EBB_IS_CAPTURED) != 0)
        return ebb_skipped(k->e, n, "a subgraph reads it");
    if (!goes_with(k, n) || bytes > most - k->bytes)
        EBB_TRY(close_bucket(k));
    k->members[k->count++] = n;
    k->bytes += bytes;
    k->waits[v.i] = true;
    return NULL;
}

static ebb_status run(ebb_edit *e)
{
    ebb_graph *g = e->g;
    bucket k = {.e = e, .g = g, .value_count = g->value_count};
    const size_t node_count = g->node_count;
    EBB_TRY(ebb_require_static(g));
    k.members = EBB_SCRATCH(e, ebb_node, g->node_count);
    k.list = EBB_SCRATCH(e, ebb_value, g->node_count);
    k.waits = EBB_SCRATCH(e, bool, g->value_count);
    k.positions = ebb_graph_positions(g, e->scratch);
    EBB_GOT(k.members && k.list && k.waits && k.positions);
    const uint64_t most = (uint64_t)ebb_option_int(e, "bytes");
    EBB_EACH_NODE(g, n) {
        if (n.i >= node_count) // made by this pass
            continue;
        if (reads_a_member(&k, n))
            EBB_TRY(close_bucket(&k));
        if (ebb_node_of(g, n)->op == EBB_OP_ALL_REDUCE && ebb_ranks_of(g, n) > 1)
            EBB_TRY(put_in(&k, n, most));
    }
    return close_bucket(&k);
}

// clang-format off
static const ebb_option options[] = {
    {"bytes", EBB_OPTION_INT, "262144", "[1, inf)", "of one bucket, at most; a larger gradient is exchanged by itself"},
    {0},
};
// clang-format on

const ebb_pass ebb_pass_bucket = {
    .name = "bucket",
    .doc = "exchange small gradients of several processes together",
    .paper = "Li et al., PyTorch Distributed, VLDB 2020",
    .exactness = EBB_EXACT,
    .options = options,
    .run = run,
};
