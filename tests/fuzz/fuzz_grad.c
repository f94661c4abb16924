/* fuzz_grad.c: the gradient builder, and behind it plan and kernels: the bytes draw a graph of up
 * to three operators (tests/hostile/draw.h).
 */
#include "tests/fuzz/fuzz.h"

#include "tests/hostile/exercise.h"
#include "tests/owned.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    draws d = {.bytes = data, .count = size};
    OWNED_MODEL *model = NULL;
    ebb_op op = (ebb_op)(1 + draw(&d, EBB_OP_COUNT - 1));
    if (draw_graph(&d, op, 1 + (uint32_t)draw(&d, 3), &model) != NULL)
        return 0;
    ebb_status status;
    (void)exercise(model, &d, &status);
    // that a gradient does not fit its value the walk backwards says by name
    if (ebb_status_code(status) == EBB_VERIFY &&
        strstr(ebb_status_text(status), "and its gradient") == NULL)
        fuzz_must(status, "a pass made an illegal graph");
    return 0;
}
