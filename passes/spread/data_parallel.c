/* data-parallel: compute the step in several processes, each with its own rows of the batch.
 *
 *   before   y = f(x, w)    loss = mean(y)    dw = g(x, y)       w' = update(w, dw)
 *   after    y = f(x, w)    l = mean(y) / 4   d = g(x, y)        x: a quarter of the rows
 *            loss = AllReduce(l)              dw = AllReduce(d)  w' = update(w, dw)
 *
 * The file is the same for all processes, and the order of its nodes is the order in which they exchange
 * sums: none can wait for another that is elsewhere. Which rows a process gets its trainer decides by
 * its rank; where a node needs a part of a constant, node Rank tells.
 *
 * The parts are those of pass micro-batch (batch_rules.h), computed at the same time, and AllReduce adds
 * in the order of ranks: so N processes have the bits that micro-batch:parts=N has in one, but where
 * class weights are counted, whose sum is made of sums. Updates are computed by all of them alike.
 *
 * Labels that do not count, and class weights, are counted over all processes before a loss divides by
 * them; so is any other sum over the batch that rows are computed of, as the statistics of a batch norm
 * (batch-norm=sync). A graph output with a batch axis has this process's rows.
 *
 * Rounding: sums over the batch are made part by part. With order=library MPI or NCCL adds whole tensors, in an order that
 * depends on their size and the machine: of two processes the bits are the same, of more the last ones are others.
 *
 * Dropout draws for a row of the batch what it would draw in one process (kernels/draws.h).
 *
 * Declines, naming the node, what micro-batch declines: batch norm that takes the batch's statistics
 * where sync is not asked for, say; and what draws without a key of the step, which would be the same in all processes.
 */
#include "exec/weigh/estimate.h"
#include "onnx/graph/infer.h"
#include "passes/memory/rounding/batch_split.h"
#include "passes/spread/shard_parts.h"
#include "passes/spread/sync_norm.h"

/* Those that are made already, too, together or beside the step. */
static ebb_status ask_library(ebb_graph *g)
{
    EBB_EACH_NODE(g, n) {
        const ebb_op op = ebb_node_of(g, n)->op;
        if (op == EBB_OP_ALL_REDUCE || op == EBB_OP_START_ALL_REDUCE)
            EBB_TRY(ebb_node_set_int(g, n, "library", 1));
    }
    return NULL;
}

static ebb_status run(ebb_edit *e)
{
    ebb_batch_split s = {.e = e, .g = e->g, .parts = ebb_option_int(e, "ranks"), .spread = true};
    if (!ebb_option_given(e, "ranks"))
        return ebb_error(EBB_USAGE, "data-parallel: say for how many processes: ranks=4");
    const int64_t ranks = ebb_ranks_in(e->g);
    if (ranks > 1 && ranks != s.parts)
        return ebb_hint(
            ebb_error(EBB_USAGE,
                      "data-parallel: ranks=%lld is asked for, and the step is for %lld "
                      "processes already",
                      (long long)s.parts, (long long)ranks),
            "leave the pass out: `ebb launch -n %lld -- ebb train ...` makes the step for %lld",
            (long long)s.parts, (long long)s.parts);
    EBB_TRY(ebb_require_static(e->g));
    if (strcmp(ebb_option_string(e, "batch-norm"), "sync") == 0)
        EBB_TRY(ebb_sync_norms(e));
    if (ebb_option_given(e, "link"))
        EBB_TRY(ebb_link_set_text(e->g, ebb_option_string(e, "link")));
    EBB_TRY(ebb_batch_step(&s));
    return strcmp(ebb_option_string(e, "order"), "library") == 0 ? ask_library(e->g) : NULL;
}

// clang-format off
static const ebb_option options[] = {
    {"ranks",      EBB_OPTION_INT,    NULL,     "[2, 4096]",   "how many processes; the batch must be divisible by it"},
    {"axis",       EBB_OPTION_INT,    "0",      "[0, 11]",     "the batch's in the graph inputs"},
    {"batch-norm", EBB_OPTION_CHOICE, "refuse", "refuse|sync", "sync: its statistics are those of all processes' rows"},
    {"link",       EBB_OPTION_STRING, NULL,     NULL,          "how they reach each other, for planning: 10gbe, or 'MICROSECONDS,GBYTES_PER_SECOND'"},
    {"order",      EBB_OPTION_CHOICE, "ranks",  "ranks|library", "library: of whole tensors as MPI or NCCL adds them, with other last bits from three processes on"},
    {"require",    EBB_OPTION_INT,    "0",      "[0, 1]",      "1: a step that cannot be split is an error"},
    {0},
};
// clang-format on

const ebb_pass ebb_pass_data_parallel = {
    .name = "data-parallel",
    .doc =
        "compute the step in several processes, each with its own rows, and add up the gradients",
    .paper = "Li et al., PyTorch Distributed, VLDB 2020",
    .exactness = EBB_ROUNDING,
    .options = options,
    .run = run,
};
