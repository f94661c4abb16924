/* halves.c: pointwise operators that read and write float16 and bfloat16 themselves, in one pass over memory, where
 * widen.c has three. Computed in float32 and rounded once, so the bits are those of widen.c.
 */
#include "kernels/call/pointwise.h"
#include "kernels/fast/fast.h"
#include "kernels/plain/halves.h"
#include "kernels/plain/plain.h"

static const char *fits(const ebb_call *c)
{
    ebb_formula_use use;
    if (c->input_count == 0 || !ebb_is_half((ebb_dtype)c->in[0].type.dtype) ||
        !ebb_formula_of(c, &use))
        return "computes in 16 bits only";
    const ebb_formula_kind kind = ebb_formula_rows[use.formula].kind;
    if (kind == EBB_FORMULA_POWER || kind == EBB_FORMULA_CHOICE)
        return "has no formula of one dtype";
    if (kind == EBB_FORMULA_MANY && c->input_count > 2)
        return "would round after each input";
    return ebb_formula_misfit(c, true);
}

// clang-format off
const ebb_kernel ebb_dnnl_halves[] = {
#define POINTWISE(id, word, ...) {.name = "halves." #word, .op = EBB_OP_##id, .fits = fits, .run = ebb_plain_formula},
#include "kernels/math/pointwise.def"
};
// clang-format on
EBB_DNNL_COUNT(halves)
