/* edges.h: numbers at which conversions and comparisons decide, for the suites of all kernels. Their
 * count is odd, so that each comes to each place of a pack. */
#pragma once

#include <math.h>

static const double edges[] = {
    0.0, -0.0, INFINITY, -INFINITY, NAN, -NAN, 1.0, -1.0, 0.5,
    /* of float16: without a leading bit, the last of them, the first with one, the largest */
    0x1p-24, -0x3p-24, 0x1p-20, -0x1.8p-24, 0x1.8p-15, 0x3FFp-24, -0x1p-14, 65504.0, -65504.0,
    /* of bfloat16 and float32 */
    0x1p-133, -0x3p-133, 0x7Fp-133, 0x1p-126, 0x1.8p127, 0x1.FEp127, -0x1.FEp127};
enum { EDGES = sizeof edges / sizeof edges[0] };
