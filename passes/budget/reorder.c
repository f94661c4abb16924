/* reorder: another list order of the same nodes, where that lowers the peak.
 *
 *   before   a = F(x)  b = G(x)  c = H(b)  d = K(a, c)       a is there while b and c are made
 *   after    b = G(x)  c = H(b)  a = F(x)  d = K(a, c)
 *
 * The search is on numbers (planners/order.c). Views move with what they show. An order is taken
 * only if the arena gets smaller, packing included; else the list stays as it is. Among equal peaks
 * the order with less alive wins, which puts makers close to their readers.
 *
 * Exact: nodes move, and each still reads what it read; what draws random numbers draws by its name
 * or key, not by its place.
 *
 * Declines where no lower order is found, or where it packs no better.
 */
#include "passes/common.h"
#include "passes/budget/trial.h"
#include "onnx/words/amount.h"

static const uint64_t work = 3u * 1000 * 1000; // about three seconds at most

/* Marks the operators of a longest run that kept its order: all others have moved. */
static ebb_status mark_kept(bool *kept, const ebb_remat_schedule *order, ebb_arena *scratch)
{
    size_t n = order->count, longest = 0;
    uint32_t *end = EBB_NEW(scratch, uint32_t, n + 1);    // of the best run of each length
    uint32_t *before = EBB_NEW(scratch, uint32_t, n + 1); // operator + 1 in its run
    EBB_GOT(end && before);
    for (size_t i = 0; i < n; i++) {
        uint32_t u = order->ops[i];
        size_t low = 0, high = longest;
        while (low < high) {
            size_t middle = (low + high) / 2;
            if (end[middle] < u)
                low = middle + 1;
            else
                high = middle;
        }
        end[low] = u;
        before[u] = low > 0 ? end[low - 1] + 1 : 0;
        longest = low == longest ? longest + 1 : longest;
    }
    for (uint32_t u = longest > 0 ? end[longest - 1] + 1 : 0; u != 0; u = before[u - 1])
        kept[u - 1] = true;
    return NULL;
}

static ebb_status apply(ebb_edit *e, const ebb_trial *before, const ebb_remat_schedule *order,
                        uint64_t bytes)
{
    size_t copies, moved = 0;
    bool *kept = EBB_SCRATCH(e, bool, order->count + 1);
    EBB_GOT(kept);
    EBB_TRY(mark_kept(kept, order, e->scratch));
    EBB_TRY(ebb_remat_apply(e, &before->source, order, &copies));
    for (size_t u = 0; u < order->count; u++)
        if (!kept[u]) {
            moved++;
            ebb_found(e);
            ebb_applied(e);
        }
    return ebb_note(e, "%zu nodes moved; %s -> %s", moved, ebb_bytes(before->bytes).text,
                    ebb_bytes(bytes).text);
}

static ebb_status run(ebb_edit *e)
{
    const char *backend = ebb_option_string(e, "backend");
    ebb_trial before;
    ebb_remat_schedule order, list;
    ebb_remat_weight now, then;
    uint64_t bytes;
    double ns;
    EBB_TRY(ebb_trial_weigh(&before, e->scratch, e->g, backend));
    const ebb_remat_problem *p = &before.source.problem;
    EBB_TRY(ebb_remat_keep_all(&list, p, e->scratch));
    EBB_TRY(ebb_remat_order(&order, p, work, e->scratch));
    EBB_TRY(ebb_remat_weigh(&now, NULL, p, &list, e->scratch));
    EBB_TRY(ebb_remat_weigh(&then, NULL, p, &order, e->scratch));
    if (then.peak_bytes >= now.peak_bytes)
        return NULL;
    EBB_TRY(ebb_trial_schedule(&bytes, &ns, &before, e->g, &order, backend));
    if (bytes >= before.bytes)
        return ebb_declined(e, EBB_NO_NODE, "a lower peak would pack into no fewer bytes");
    return apply(e, &before, &order, bytes);
}

static const ebb_option options[] = {
    {"backend", EBB_OPTION_STRING, "cpu", NULL,
     "whose kernels' scratch counts: cpu, plain, cuda, cuda:h100"},
    {NULL, EBB_OPTION_INT, NULL, NULL, NULL},
};

const ebb_pass ebb_pass_reorder = {
    .name = "reorder",
    .doc = "run the same nodes in an order that needs less memory",
    .paper = "Ahn et al., \"Ordering chaos: memory-aware scheduling of irregularly wired neural "
             "networks for edge devices\", MLSys 2020",
    .exactness = EBB_EXACT,
    .options = options,
    .run = run,
};
