/* fold: what is constant is computed now; what does nothing goes.
 *
 *   before   s = Shape(x)  b = Gather(s, 0)  t = Concat(b, -1)  y = Reshape(x, t)
 *   after    y = Reshape(x, t)                                   t is an initializer
 *
 * Exporters write shapes as arithmetic: four fifths of a transformer's nodes. Once the batch is
 * bound all of it is constant, and even before, whatever does not depend on it.
 *
 * Never through a weight: a float initializer may be trained, so Transpose(weight) stays a node.
 * What folds is made of integers, of lone numbers, and of what the file computes from them.
 *
 * Also here, because they are exact and every later pass is simpler for them:
 *   Identity, Cast to the same dtype, Dropout of 0; Reshape, Expand, Slice, Transpose, Pad, Tile
 *   and Concat that change nothing
 *   x * 1, x / 1, x - 0; And(x, true), Or(x, false); Where by a constant condition
 *   CastLike(x, t) -> Cast(x); Cast(Cast(x)) -> Cast(x) where the first rounds nothing
 *   Conv with a bias of constant zeros (dynamo writes one) -> Conv without
 *   sequences -> their tensors (sequences.c)
 */
#include "passes/flatten/simplify.h"
#include "passes/passes.h"

const ebb_pass ebb_pass_fold = {
    .name = "fold",
    .doc = "compute what is constant, drop what does nothing",
    .exactness = EBB_EXACT,
    .run = ebb_fold_all,
};
