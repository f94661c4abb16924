/* overlap: exchange gradients while the step goes on.
 *
 *   before   a' = AllReduce(a)        b = f(...)                              w' = update(w, a')
 *   after    s = StartAllReduce(a)    b = f(...)    a' = Wait(s, a)           w' = update(w, a')
 *
 * An exchange is started where it was made, and waited for where its sum is first read, or before that where
 * more than `depth` would be under way. The order in which exchanges are started is the order of nodes, as
 * before, so none can wait for another that is elsewhere; a Wait only says how long its own may take. The sum
 * needs memory of its own, and what it is made of stays until the Wait: depth bounds both, and small ones are
 * not counted: else the biases and norms behind a large weight would end its exchange. Updates go behind what can be
 * computed meanwhile (overlap_updates.c). Of the gradient of a table that is looked up in and multiplied by, what the
 * product gives is exchanged early, and the rows that were looked up again (overlap_rows.c).
 *
 * A weight that is there in parts (pass shard) is begun to be put together behind the one before it, and waited for
 * where it stood: two of them are whole at once, then, or more (ahead).
 *
 *   before   V = Unshard(v)   y = f(x, V)   W = Unshard(w)   z = g(y, W)
 *   after    V = Unshard(v)   s = StartUnshard(w)   y = f(x, V)   W = Wait(s, w)   z = g(y, W)
 *
 * The time of the link is then hidden behind the computation, where processors are idle meanwhile: between
 * machines, not between processes that share all cores of one.
 *
 * Declines what is read by the very next node.
 */
#include "passes/common.h"
#include "passes/spread/overlap_rows.h"
#include "passes/spread/overlap_updates.h"
#include "passes/spread/shard_parts.h"

enum {
    LARGE = 65536
}; /* bytes: less is not counted against the depth, as it takes no memory to speak of */

static ebb_op started(ebb_op op)
{
    return op == EBB_OP_ALL_REDUCE       ? EBB_OP_START_ALL_REDUCE
           : op == EBB_OP_REDUCE_SCATTER ? EBB_OP_START_REDUCE_SCATTER
           : op == EBB_OP_UNSHARD        ? EBB_OP_START_UNSHARD
                                         : EBB_OP_UNKNOWN;
}

/* Exchange n is begun before node `begin` and ends before node `end`: by *wait. */
static ebb_status part(ebb_edit *e, ebb_node n, ebb_node begin, ebb_node end, ebb_node *wait)
{
    ebb_graph *g = e->g;
    const ebb_value x = ebb_in(g, n, 0), old = ebb_out(g, n, 0);
    ebb_build b = ebb_edit_build(e, begin, (ebb_phase)ebb_node_of(g, n)->phase);
    b.name = ebb_value_name(g, old);
    ebb_with_attrs_of(&b, n);
    const ebb_value begun = ebb_emit(&b, started(ebb_node_of(g, n)->op), x);
    b.before = end;
    const ebb_value sum = ebb_emit(&b, EBB_OP_WAIT, begun, x);
    EBB_TRY(b.status);
    *wait = b.last;
    ebb_applied(e);
    return ebb_edit_swap(e, n, sum);
}

static bool is_begun(ebb_op op)
{
    return op == EBB_OP_START_ALL_REDUCE || op == EBB_OP_START_REDUCE_SCATTER ||
           op == EBB_OP_START_UNSHARD;
}

static bool is_site(const ebb_graph *g, ebb_node n)
{
    return started(ebb_node_of(g, n)->op) != EBB_OP_UNKNOWN && ebb_ranks_of(g, n) > 1 &&
           (ebb_value_of(g, ebb_out(g, n, 0))->flags & EBB_IS_CAPTURED) == 0;
}

/* A weight is put together while what reads those before it is computed. before: where `ahead` of them were, the
 * oldest first; none: there were fewer. */
static ebb_status fetch(ebb_edit *e, ebb_node n, ebb_node *before, int64_t ahead)
{
    int64_t oldest = 0;
    while (oldest < ahead && before[oldest].i == 0)
        oldest++;
    ebb_node begin = oldest < ahead ? ebb_next(e->g, before[oldest]) : n, wait = n;
    while (ebb_node_of(e->g, begin)->op == EBB_OP_START_UNSHARD) // of one before it
        begin = ebb_next(e->g, begin);
    if (oldest == ahead)
        EBB_TRY(ebb_skipped(e, n, "no weight is put together before it"));
    else if (ebb_value_of(e->g, ebb_in(e->g, n, 0))->producer.i != 0)
        EBB_TRY(ebb_skipped(e, n, "its part is made in the step"));
    else if (ebb_same_node(begin, n))
        EBB_TRY(ebb_skipped(e, n, "nothing is computed since the weight before it"));
    else
        EBB_TRY(part(e, n, begin, n, &wait));
    memmove(before, before + 1, (size_t)(ahead - 1) * sizeof *before);
    before[ahead - 1] = wait;
    return NULL;
}

static bool is_large(const ebb_graph *g, ebb_node n)
{
    size_t in = 0, out = 0;
    return (ebb_type_bytes(ebb_value_of(g, ebb_in(g, n, 0))->type, &in) && in >= LARGE) ||
           (ebb_type_bytes(ebb_value_of(g, ebb_out(g, n, 0))->type, &out) && out >= LARGE);
}

/* Exchanges in their order, begun or not, and of each the number of that before which it is over: none where that is
 * their count. */
static ebb_status look(ebb_edit *e, ebb_node **exchanges, size_t **until, size_t *count)
{
    const ebb_graph *g = e->g;
    const size_t depth = (size_t)ebb_option_int(e, "depth");
    size_t *large = EBB_SCRATCH(e, size_t, g->node_count), large_count = 0, before = 0;
    *exchanges = EBB_SCRATCH(e, ebb_node, g->node_count);
    *until = EBB_SCRATCH(e, size_t, g->node_count);
    *count = 0;
    EBB_GOT(large && *exchanges && *until);
    EBB_EACH_NODE(g, n) {
        if (!is_site(g, n) && !is_begun(ebb_node_of(g, n)->op))
            continue;
        if (is_large(g, n))
            large[large_count++] = *count;
        (*exchanges)[(*count)++] = n;
    }
    for (size_t i = 0; i < *count; i++) {
        before += before < large_count && large[before] == i;
        (*until)[i] = depth <= large_count - before ? large[before + depth - 1] : *count;
    }
    return NULL;
}

static ebb_status run(ebb_edit *e)
{
    ebb_graph *g = e->g;
    const int64_t ahead = ebb_option_int(e, "ahead");
    ebb_node *exchanges, *before = EBB_SCRATCH(e, ebb_node, (size_t)ahead), wait;
    size_t *until, count, sites = 0;
    EBB_GOT(before);
    EBB_TRY(ebb_overlap_rows(e));
    EBB_TRY(look(e, &exchanges, &until, &count));
    for (size_t i = 0; i < count; i++)
        sites += is_site(g, exchanges[i]);
    if (sites > 0)
        EBB_TRY(ebb_overlap_updates(e, exchanges, until, count));
    const uint32_t *positions = ebb_graph_positions(g, e->scratch);
    EBB_GOT(positions);
    for (size_t i = 0; i < count; i++) {
        const ebb_node n = exchanges[i];
        if (!is_site(g, n))
            continue;
        const ebb_node reader = ebb_first_reader(g, ebb_out(g, n, 0), positions);
        ebb_found(e);
        if (ebb_node_of(g, n)->op == EBB_OP_UNSHARD) {
            EBB_TRY(fetch(e, n, before, ahead));
            continue;
        }
        if (reader.i != 0 && positions[reader.i] == positions[n.i] + 1) {
            EBB_TRY(ebb_skipped(e, n, "the next node reads it"));
            continue;
        }
        const ebb_node most = until[i] < count ? exchanges[until[i]] : EBB_NO_NODE;
        EBB_TRY(part(e, n, n, ebb_earlier(reader, most, positions), &wait));
    }
    return NULL;
}

static const ebb_option options[] = {
    {"depth", EBB_OPTION_INT, "4", "[1, inf)",
     "how many exchanges are under way at once, at most, besides those of less than 64 KiB"},
    {"ahead", EBB_OPTION_INT, "4", "[1, 64]",
     "how many weights in parts are put together before they are read"},
    {0},
};

const ebb_pass ebb_pass_overlap = {
    .name = "overlap",
    .doc = "exchange gradients of several processes, and weights in parts, while the step goes on",
    .paper = "Li et al., PyTorch Distributed, VLDB 2020",
    .exactness = EBB_EXACT,
    .options = options,
    .run = run,
};
