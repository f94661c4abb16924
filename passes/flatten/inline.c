/* inline: calls of the model's own functions become their bodies, and operators of other runtimes
 * what they stand for (passes/dialect).
 *
 *   before   y = local.Block <alpha = 0.1> (x)
 *            local.Block (a) => (b) { t = LeakyRelu <alpha: float = @alpha> (a) ... }
 *   after    y/t = LeakyRelu <alpha = 0.1> (x) ...               the function is gone
 *
 * Functions may call functions: what a body brings is looked at in turn. A body's attribute that
 * stands for one of the function's gets the call's value, else the function's default, else it is
 * left out, so that the operator's own default holds. Functions of domain ai.ebb that the operator
 * table knows stay calls: they are our operators, and their bodies are for other runtimes.
 *
 * Exact: the same operators on the same operands.
 *
 * Bodies of If, Loop and Scan come over with it, and read by new names what they read outside.
 * Calls within such bodies are seen to as well.
 *
 * Declines where such a body asks for the function's attributes, and where the function's opset
 * gives one of its operators another meaning than the model's does.
 *
 * What is known of another runtime's operator may hang on shapes that only what stands before it
 * tells, so that types are inferred on the way, and it is tried again while anything changes.
 */
#include "passes/flatten/functions.h"
#include "passes/passes.h"

const ebb_pass ebb_pass_inline = {
    .name = "inline",
    .doc =
        "put in the bodies of the model's functions, and what other runtimes' operators stand for",
    .exactness = EBB_EXACT,
    .run = ebb_inline_all,
};
