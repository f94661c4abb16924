/* sketch.c: RandomSketch as oneDNN's products of tiles of signs, which are made where they are
 * needed and never all of them.
 *
 *     Y[r0 .. r1] (+)= S[r0 .. r1, i0 .. i1] X[i0 .. i1]      a tile of S: 512 KiB
 *
 * What sgemm packs its operands into is its own, not the workspace's.
 */
#include "kernels/fast/onednn/onednn.h"
#include "kernels/call/algebra.h"

enum { TILE_ROWS = 256, TILE_COLUMNS = 512 }; /* columns: whole blocks of Philox, 128 signs */

/* Signs [first, first + count) of row r; first is a multiple of 32. */
static void signs(float *to, const ebb_sketch *s, int64_t r, int64_t first, int64_t count)
{
    ebb_philox block = {{0}};
    uint64_t at = (uint64_t)(r * s->width + first / 32), have = UINT64_MAX;
    for (int64_t i = 0; i < count; i += 32, at++) {
        if (at / 4 != have)
            block = ebb_philox_block(s->seed, s->step, s->stream, at / 4);
        have = at / 4;
        const uint32_t word = block.word[at % 4];
        const int64_t n = ebb_least(32, count - i);
        EBB_SIMD
        for (int64_t j = 0; j < n; j++)
            to[i + j] = (word >> j & 1u) != 0 ? 1.0f : -1.0f;
    }
}

static const char *declines(const ebb_call *c)
{
    ebb_sketch s;
    ebb_call floats = *c;
    floats.input_count = 1;
    EBB_ASK(ebb_dnnl_plain_floats(&floats));
    return ebb_sketch_read(&s, c);
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    int64_t rows = ebb_least(c->out[0].type.dims[0], TILE_ROWS);
    int64_t columns = ebb_least(c->in[0].type.dims[0], TILE_COLUMNS);
    *bytes = (size_t)(rows * columns) * sizeof(float);
    return NULL;
}

static ebb_status run(const ebb_call *c)
{
    ebb_sketch s;
    EBB_MUST_FIT(c, ebb_sketch_read(&s, c));
    ebb_sketch_key(&s, c);
    float *tile = c->workspace, *y = c->out[0].data;
    const float *x = c->in[0].data;
    for (int64_t r = 0; r < s.rows; r += TILE_ROWS) {
        const int64_t rows = ebb_least(TILE_ROWS, s.rows - r);
        for (int64_t i = 0; i < s.n; i += TILE_COLUMNS) {
            const int64_t columns = ebb_least(TILE_COLUMNS, s.n - i);
            EBB_PARALLEL_FOR(rows * columns)
            for (int64_t k = 0; k < rows; k++)
                signs(tile + k * columns, &s, r + k, i, columns);
            const ebb_dnnl_matrix left = {tile, columns, false}, right = {x + i * s.d, s.d, false};
            EBB_TRY(ebb_dnnl_product(c, &left, &right, rows, s.d, columns, (float)s.scale,
                                     i > 0 ? 1.0f : 0.0f, y + r * s.d, s.d));
        }
    }
    return NULL;
}

// clang-format off
const ebb_kernel ebb_dnnl_sketch[] = {
    {.name = "dnnl.random_sketch", .op = EBB_OP_RANDOM_SKETCH, .fits = declines, .workspace = workspace, .run = run},
};
// clang-format on
EBB_DNNL_COUNT(sketch)
