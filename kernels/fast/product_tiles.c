/* product_tiles.c: MatMul, Gemm and FusedMatMul by tile.h, where oneDNN does not take them: operands of 16
 * bits on processors that do not multiply these, and everything in builds without it.
 *
 *     B[DEPTH, WIDE]     |    packed into panels of float32 |
 *     A[TOGETHER, DEPTH] |    as float32                    | a job's: in its slot of the workspace
 *     sum[TALL, WIDE]    |    += A B, for each DEPTH        |
 *     Y[TALL, WIDE]      =    alpha sum + beta C, rounded once
 *
 * Where the processor multiplies pairs of bfloat16, and A and B are of these, pairs stand for float32, and
 * DEPTH counts pairs. So no operand is ever whole in float32. A job is a block of Y; jobs are dealt out to
 * slots, each one thread. Sums are in an order that hangs on neither threads nor jobs.
 */
#include "kernels/fast/fast.h"
#include "kernels/fast/product.h"
#include "kernels/fast/tile.h"
#include "kernels/plain/halves.h"

enum {
    PANEL = EBB_TILE_COLUMNS,
    DEPTH = 256, /* rows of a panel */
    WIDE = 256,  /* columns of a job's block of Y: A is widened once for so many */
    TALL = 512,  /* and its rows: B is packed once for so many */
    TOGETHER =
        4 * EBB_TILE_ROWS, /* rows of A that meet all panels while they are in the first cache */
};

/* Blocks of Y, and what a slot has for one: offsets in floats. Small products need little. */
typedef struct jobs {
    int64_t batches, tall, wide, depth, down, across; /* tall x wide: so many down and across */
    int64_t count, slots;
    bool pairs;
    int64_t turned, sum, line, added, floats;
} jobs;

typedef struct side { /* A, B, C or Y of one product: element (i, j) at i * row + j * column */
    const char *data;
    ebb_dtype dtype;
    size_t size;
    int64_t row, column;
} side;

typedef struct block { /* of Y, what a job computes */
    const ebb_product *p;
    const jobs *all;
    side a, b, c;
    char *y;
    int64_t row, rows, column, columns, inner;
    float *panels, *turned, *sum, *line, *added; /* the slot's */
} block;

/* ---- reading ---- */

EBB_TILE_INLINE float number(const char *at, const ebb_dtype dtype)
{
    uint16_t bits;
    float x;
    if (dtype == EBB_F32) {
        memcpy(&x, at, sizeof x);
        return x;
    }
    memcpy(&bits, at, sizeof bits);
    return dtype == EBB_BF16 ? ebb_wide_bf16(bits) : ebb_wide_half(bits);
}

/* Lines of up to `most` numbers, the first of each `apart` from that of the line before, and the others `step`
 * from their neighbour: to[i * most + j] for j < n, 0 beyond. */
EBB_TILE_INLINE void read_lines_of(float *to, const char *from, int64_t apart, int64_t step,
                                   int64_t lines, int64_t n, const int64_t most,
                                   const ebb_dtype dtype)
{
    const size_t size = dtype == EBB_F32 ? 4 : 2;
    if (dtype == EBB_F32 && apart == 1 && step > 1) {
        ebb_tile_turn(to, from, 4 * step, lines, n, most);
        return;
    }
    for (int64_t i = 0; i < lines; i++, to += most, from += (size_t)apart * size) {
        if (step == 1 && n == most) {
            ebb_tile_ask(from + EBB_TILE_AHEAD * apart * (int64_t)size, most * (int64_t)size);
            EBB_SIMD
            for (int64_t j = 0; j < most; j++)
                to[j] = number(from + (size_t)j * size, dtype);
            continue;
        }
        for (int64_t j = 0; j < n; j++)
            to[j] = number(from + (size_t)(j * step) * size, dtype);
        for (int64_t j = n; j < most; j++)
            to[j] = 0.0f;
    }
}

/* Of a side from `at` on, of its dtype. */
static void read_lines(float *to, const side *s, int64_t at, int64_t apart, int64_t step,
                       int64_t lines, int64_t n, const int64_t most)
{
    const char *from = s->data + (size_t)at * s->size;
    if (s->dtype == EBB_F32)
        read_lines_of(to, from, apart, step, lines, n, most, EBB_F32);
    else if (s->dtype == EBB_BF16)
        read_lines_of(to, from, apart, step, lines, n, most, EBB_BF16);
    else
        read_lines_of(to, from, apart, step, lines, n, most, EBB_F16);
}

static const uint16_t *halves_at(const side *s, int64_t at)
{
    return (const uint16_t *)(const void *)s->data + at;
}

static uint32_t *pairs_at(float *at)
{
    return (uint32_t *)(void *)at;
}

/* Columns of B from row `first` on, into panels; `depth` numbers or pairs follow each other in one. */
static void pack(const block *k, int64_t first, int64_t count, int64_t depth)
{
    const side *b = &k->b;
    for (int64_t c = 0; c < k->columns; c += PANEL) {
        const int64_t at = first * b->row + (k->column + c) * b->column;
        const int64_t n = ebb_least(k->columns - c, PANEL);
        if (k->all->pairs)
            ebb_tile_pair_lines(pairs_at(k->panels + c * depth), halves_at(b, at), b->row,
                                b->column, count, n, PANEL);
        else
            read_lines(k->panels + c * depth, b, at, b->row, b->column, depth, n, PANEL);
    }
}

typedef struct rows { /* of A: float32, or pairs */
    const float *data;
    int64_t row, column;
} rows;

static rows read_rows(const block *k, int64_t row, int64_t count, int64_t first, int64_t depth)
{
    const side *a = &k->a;
    const int64_t at = row * a->row + first * a->column;
    if (a->column == 1 && a->dtype == EBB_F32)
        return (rows){(const float *)(const void *)a->data + at, a->row, 1};
    if (a->column == 1) {
        for (int64_t r = 0; r < count; r++)
            ebb_widen_here(k->turned + r * depth, a->data + (size_t)(at + r * a->row) * a->size,
                           a->dtype, depth);
        return (rows){k->turned, depth, 1};
    }
    read_lines(k->turned, a, at, a->column, a->row, depth, count, TOGETHER); // it lies by columns
    return (rows){k->turned, 1, TOGETHER};
}

/* Where they lie as pairs already, they stay. `inner` numbers, which are so many pairs. */
static rows read_pairs(const block *k, int64_t row, int64_t count, int64_t first, int64_t inner,
                       int64_t depth)
{
    const side *a = &k->a;
    const uint16_t *from = halves_at(a, row * a->row + first * a->column);
    if (a->column != 1) {
        ebb_tile_pair_lines(pairs_at(k->turned), from, a->column, a->row, inner, count, TOGETHER);
        return (rows){k->turned, 1, TOGETHER};
    }
    if (inner % 2 == 0 && a->row % 2 == 0 && (uintptr_t)from % sizeof(uint32_t) == 0)
        return (rows){(const float *)(const void *)from, a->row / 2, 1};
    for (int64_t r = 0; r < count; r++) {
        pairs_at(k->turned + r * depth)[depth - 1] = 0;
        memcpy(k->turned + r * depth, from + r * a->row, (size_t)inner * sizeof *from);
    }
    return (rows){k->turned, depth, 1};
}

/* ---- a job ---- */

static void write_row(const block *k, int64_t row, const float *sum)
{
    const ebb_product *p = k->p;
    const ebb_dtype dtype = p->out.dtype;
    char *y = k->y + (size_t)((k->row + row) * p->out.strides[p->rank - 2] + k->column) *
                         ebb_dtype_bits(dtype) / 8;
    float *line = ebb_place_f32(y, dtype, 0, k->line);
    if (p->biased) { // which may be what is written
        const int64_t at = (k->row + row) * k->c.row + k->column * k->c.column;
        read_lines(k->added, &k->c, at, 0, k->c.column, 1, k->columns, k->columns);
    }
    for (int64_t j = 0; j < k->columns; j++)
        line[j] = p->alpha * sum[j];
    for (int64_t j = 0; p->biased && j < k->columns; j++)
        line[j] += p->beta * k->added[j];
    ebb_put_f32(y, dtype, 0, k->columns, line);
}

static void compute(const block *k)
{
    const int64_t wide = k->all->wide, unit = k->all->pairs ? 2 : 1;
    for (int64_t first = 0; first < k->inner; first += unit * DEPTH) {
        const int64_t inner = ebb_least(k->inner - first, unit * DEPTH);
        const int64_t depth = (inner + unit - 1) / unit;
        pack(k, first, inner, depth);
        for (int64_t r = 0; r < k->rows; r += TOGETHER) {
            const int64_t count = ebb_least(k->rows - r, TOGETHER);
            const rows a = k->all->pairs ? read_pairs(k, k->row + r, count, first, inner, depth)
                                         : read_rows(k, k->row + r, count, first, depth);
            float *sum = k->sum + r * wide;
            if (k->all->pairs)
                ebb_tile_multiply_pairs(sum, wide, a.data, a.row, a.column, k->panels, count,
                                        k->columns, depth, depth, first > 0);
            else
                ebb_tile_multiply(sum, wide, a.data, a.row, a.column, k->panels, count, k->columns,
                                  depth, depth, first > 0);
        }
    }
    for (int64_t r = 0; r < k->rows; r++)
        write_row(k, r, k->sum + r * wide);
}

/* ---- all of them ---- */

/* Blocks for all threads, some of them of fewer rows than the most, and then of fewer columns. */
static jobs divide(const ebb_product *p)
{
    const int64_t m = p->out.dims[p->rank - 2], n = p->out.dims[p->rank - 1];
    const int64_t threads = ebb_threads();
    jobs j = {.batches = 1, .tall = ebb_least(m, TALL), .wide = ebb_least(ebb_tile_width(n), WIDE)};
    for (int i = 0; i < p->rank - 2; i++)
        j.batches *= p->out.dims[i];
    for (;;) {
        j.down = (m + j.tall - 1) / j.tall;
        j.across = (n + j.wide - 1) / j.wide;
        if (j.batches * j.down * j.across >= 2 * threads)
            break;
        if (j.tall > 2 * TOGETHER)
            j.tall = (j.tall + 1) / 2;
        else if (j.wide > 2 * PANEL)
            j.wide = ebb_tile_width((j.wide + 1) / 2);
        else
            break;
    }
    j.pairs = EBB_TILE_PAIRS && p->a.dtype == EBB_BF16 && p->b.dtype == EBB_BF16;
    j.depth = ebb_least((p->a.dims[p->rank - 1] + j.pairs) / (1 + j.pairs), DEPTH);
    j.count = j.batches * j.down * j.across;
    j.slots = ebb_least(threads, j.count);
    j.turned = j.depth * j.wide;
    j.sum = j.turned + TOGETHER * j.depth;
    j.line = j.sum + j.tall * j.wide;
    j.added = j.line + j.wide;
    j.floats = (j.added + j.wide + PANEL - 1) / PANEL * PANEL;
    return j;
}

/* The matrix of that number of the batch, in elements: operands that have one for all stay. */
static int64_t matrix_at(const ebb_matrix *m, const ebb_product *p, int64_t batch)
{
    int64_t at = 0;
    for (int i = p->rank - 3; i >= 0; batch /= p->out.dims[i], i--)
        at += m->dims[i] == 1 ? 0 : batch % p->out.dims[i] * m->strides[i];
    return at;
}

/* An operand of so many dims, from element `at` on. */
static side side_of(const ebb_matrix *m, int rank, const void *data, int64_t at)
{
    const size_t size = ebb_dtype_bits(m->dtype) / 8;
    return (side){.data = (const char *)data + (size_t)at * size,
                  .dtype = m->dtype,
                  .size = size,
                  .row = m->dims[rank - 2] == 1 ? 0 : m->strides[rank - 2],
                  .column = m->dims[rank - 1] == 1 ? 0 : m->strides[rank - 1]};
}

typedef struct places {
    const void *a, *b, *c;
    void *y;
} places;

static void compute_job(const places *at, const ebb_product *p, const jobs *all, int64_t job,
                        float *slot)
{
    const int64_t batch = job / (all->down * all->across), in = job % (all->down * all->across);
    const size_t y_at = (size_t)matrix_at(&p->out, p, batch) * ebb_dtype_bits(p->out.dtype) / 8;
    block k = {.p = p,
               .all = all,
               .a = side_of(&p->a, p->rank, at->a, matrix_at(&p->a, p, batch)),
               .b = side_of(&p->b, p->rank, at->b, matrix_at(&p->b, p, batch)),
               .y = (char *)at->y + y_at,
               .row = in / all->across * all->tall,
               .column = in % all->across * all->wide,
               .inner = p->a.dims[p->rank - 1],
               .panels = slot,
               .turned = slot + all->turned,
               .sum = slot + all->sum,
               .line = slot + all->line,
               .added = slot + all->added};
    if (p->biased)
        k.c = side_of(&p->c, 2, at->c, 0);
    k.rows = ebb_least(p->out.dims[p->rank - 2] - k.row, all->tall);
    k.columns = ebb_least(p->out.dims[p->rank - 1] - k.column, all->wide);
    compute(&k);
}

static const char *dtypes(const ebb_call *c)
{
    for (uint32_t i = 0; i <= c->input_count; i++) {
        const ebb_dtype d = (ebb_dtype)(i < c->input_count ? c->in[i] : c->out[0]).type.dtype;
        if (d != EBB_F32 && d != EBB_NONE && !ebb_is_half(d))
            return "multiplies float32 and 16 bits";
    }
    return NULL;
}

static const char *fits(const ebb_call *c)
{
    ebb_product p;
    EBB_ASK(ebb_dnnl_declines_shape(&c->out[0], true));
    for (uint32_t i = 0; i < c->input_count; i++)
        EBB_ASK(ebb_dnnl_declines_shape(&c->in[i], true));
    return ebb_product_read(&p, c);
}

bool ebb_product_tiles_bytes(const ebb_product *p, size_t *bytes)
{
    const jobs all = divide(p);
    return ebb_size_mul(bytes, (size_t)all.floats * sizeof(float), (size_t)all.slots);
}

void ebb_product_tiles_run(const ebb_product *p, const void *a, const void *b, const void *c,
                           void *y, void *workspace)
{
    const jobs all = divide(p);
    const places at = {a, b, c, y};
    int64_t work = p->a.dims[p->rank - 1];
    for (int i = 0; i < p->rank; i++)
        work *= p->out.dims[i];
    EBB_PARALLEL_FOR(work)
    for (int64_t slot = 0; slot < all.slots; slot++)
        for (int64_t job = slot; job < all.count; job += all.slots)
            compute_job(&at, p, &all, job, (float *)workspace + slot * all.floats);
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    ebb_product p;
    EBB_MUST_FIT(c, ebb_product_read(&p, c));
    return ebb_product_tiles_bytes(&p, bytes) ? NULL
                                              : ebb_call_error(c, "there are too many threads");
}

static ebb_status run(const ebb_call *c)
{
    ebb_product p;
    EBB_MUST_FIT(c, ebb_product_read(&p, c));
    ebb_product_tiles_run(&p, c->in[0].data, c->in[1].data, p.biased ? c->in[2].data : NULL,
                          c->out[0].data, c->workspace);
    return NULL;
}

// clang-format off
const ebb_kernel ebb_dnnl_product_tiles[] = {
    {.name = "tiles.matmul",       .op = EBB_OP_MATMUL,       .dtypes = dtypes, .fits = fits, .workspace = workspace, .run = run},
    {.name = "tiles.gemm",         .op = EBB_OP_GEMM,         .dtypes = dtypes, .fits = fits, .workspace = workspace, .run = run},
    {.name = "tiles.fused_matmul", .op = EBB_OP_FUSED_MATMUL, .dtypes = dtypes, .fits = fits, .workspace = workspace, .run = run},
};
// clang-format on
EBB_DNNL_COUNT(product_tiles)
