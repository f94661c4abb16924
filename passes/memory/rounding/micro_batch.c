/* micro-batch: compute the step in parts of the batch, one after another, and add up the gradients.
 *
 *   before   y = f(x, w)  loss = mean(y)  dw = g(x, y)            all activations of the batch
 *   after    x0, x1 = halves of x
 *            y0 = f(x0, w)  l0 = ...  dw0 = g(x0, y0)             those of one half at a time
 *            y1 = f(x1, w)  l1 = ...  dw1 = g(x1, y1)
 *            loss = l0 + l1,  dw = dw0 + dw1                       then the update, as it was
 *
 * Every value of the forward and backward gets a form (batch_rules.h): slices of an axis, sums, or
 * whole. The backward is that of the whole batch, seen part by part, so constants in it (one over
 * the batch size, say) stay what they are, and sums of parts are the very gradients. A loss that
 * divides by what counts (mean, with ignored labels or class weights) becomes a sum, divided by
 * what counts in the whole batch, which the labels alone tell. Sums are added to as soon as a part
 * has its share, so that one sum and one share are alive.
 *
 * What has no floats (labels, masks, positions), what a loss counts of its labels and what does not
 * depend on the batch is computed once, and sliced where a part needs it. Graph outputs with a batch
 * axis are put together again.
 *
 * Dropout draws for a sample what it draws in the whole batch, whatever the parts: their keys say which part
 * it is, and of how many (kernels/draws.h).
 *
 * Batch norm takes its statistics over what it sees, so it is refused; batch-norm=per-part allows
 * the statistics of each part, and the running ones go from part to part. That is another step, as
 * accumulating gradients in a training loop is.
 *
 * Rounding: sums over the batch are made part by part.
 *
 * Declines, naming the node, where an operator mixes samples or no rule tells what it does with
 * parts: run it before passes that pack what is stored.
 */
#include "passes/memory/rounding/batch_split.h"

static ebb_status run(ebb_edit *e)
{
    ebb_batch_split s = {.e = e, .g = e->g, .parts = ebb_option_int(e, "parts")};
    s.norm_per_part = strcmp(ebb_option_string(e, "batch-norm"), "per-part") == 0;
    if (!ebb_option_given(e, "parts"))
        return ebb_error(EBB_USAGE, "micro-batch: say into how many parts: parts=4");
    return ebb_batch_step(&s);
}

// clang-format off
static const ebb_option options[] = {
    {"parts",      EBB_OPTION_INT,    NULL,     "[2, 4096]",       "how many; the batch must be divisible by it"},
    {"axis",       EBB_OPTION_INT,    "0",      "[0, 11]",         "the batch's in the graph inputs"},
    {"batch-norm", EBB_OPTION_CHOICE, "refuse", "refuse|per-part", "per-part: statistics of each part, which is another step"},
    {"require",    EBB_OPTION_INT,    "0",      "[0, 1]",          "1: a step that cannot be split is an error"},
    {0},
};
// clang-format on

const ebb_pass ebb_pass_micro_batch = {
    .name = "micro-batch",
    .doc = "compute the step in parts of the batch and add up the gradients",
    .paper = "Huang et al., GPipe, NeurIPS 2019",
    .exactness = EBB_ROUNDING,
    .options = options,
    .run = run,
};
