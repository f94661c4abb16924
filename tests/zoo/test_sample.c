/* test_sample.c: eight architectures of the zoo, as exported, against PyTorch's loss and gradients.
 *
 * The files have no weights: they are drawn by the files' own seeds, and the batch by a formula, as
 * sample.py did when PyTorch computed what recorded.txt holds, which says its own format there. Of
 * each gradient it holds the length and a projection, so that a number decides without its bytes.
 * The whole zoo is run by hand (run.py; docs/zoo.md).
 *
 * Bounds: of the loss 2e-5; of length and projection 2e-4 of the length (or of a thousandth of the
 * longest gradient, where that is more), or 20 times PyTorch's own rounding where that is more.
 */
#include "tests/zoo/recorded.h"

#define SAMPLE EBB_SOURCE_DIR "/tests/zoo/sample"

enum { MODELS = 8 };

static bool is_as_recorded(sample *s)
{
    return agrees(SAMPLE, s, true, 2e-5, fmax(2e-4, 20 * s->noise), NULL);
}

TEST(exported_architectures_agree_with_pytorch)
{
    assert_int_equal(visit_samples(SAMPLE, is_as_recorded), MODELS);
}
