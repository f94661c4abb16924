/* product_tiles.c: MatMul, Gemm and FusedMatMul by tile.h, where oneDNN does not take them: operands of 16
 * bits on processors that do not multiply these, and everything in builds without it.
 *
 *     B[DEPTH, WIDE]     |    packed into panels of float32 |
 *     A[TOGETHER, DEPTH] |    as float32                    | a job's: in its slot of the workspace
 *     sum[TALL, WIDE]    |    += A B, for each DEPTH        |
 *     Y[TALL, WIDE]      =    alpha sum + beta C, rounded once
 *
 * So no operand is ever whole in float32. A job is a block of Y; jobs are dealt out to slots, each one
 * thread. Sums are in an order that hangs on neither threads nor jobs.
 */
#include "kernels/fast/fast.h"
#include "kernels/fast/product.h"
#include "kernels/fast/tile.h"
#include "kernels/halves.h"

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
    int64_t turned, sum, line, floats;
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
    float *panels, *turned, *sum, *line; /* the slot's */
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

/* to[i * PANEL + j] = s(first + i, column + j), 0 beyond `columns`. */
EBB_TILE_INLINE void pack_panel(float *to, const side *s, int64_t first, int64_t depth,
                                int64_t column, int64_t columns, const ebb_dtype dtype)
{
    const size_t size = dtype == EBB_F32 ? 4 : 2;
    const int64_t width = columns < PANEL ? columns : PANEL;
    const char *from = s->data + (size_t)(first * s->row + column * s->column) * size;
    for (int64_t i = 0; i < depth; i++, to += PANEL, from += (size_t)s->row * size) {
        if (s->column == 1 && width == PANEL) {
            EBB_SIMD
            for (int64_t j = 0; j < PANEL; j++)
                to[j] = number(from + (size_t)j * size, dtype);
            continue;
        }
        for (int64_t j = 0; j < width; j++)
            to[j] = number(from + (size_t)(j * s->column) * size, dtype);
        for (int64_t j = width; j < PANEL; j++)
            to[j] = 0.0f;
    }
}

static void pack(const block *k, int64_t first, int64_t depth)
{
    const side *b = &k->b;
    for (int64_t c = 0; c < k->columns; c += PANEL) {
        float *to = k->panels + c * depth;
        if (b->dtype == EBB_F32)
            pack_panel(to, b, first, depth, k->column + c, k->columns - c, EBB_F32);
        else if (b->dtype == EBB_BF16)
            pack_panel(to, b, first, depth, k->column + c, k->columns - c, EBB_BF16);
        else
            pack_panel(to, b, first, depth, k->column + c, k->columns - c, EBB_F16);
    }
}

typedef struct rows { /* of A as float32 */
    const float *data;
    int64_t row, column;
} rows;

/* to[i * TOGETHER + r] = a(row + r, first + i): where A lies by columns. */
EBB_TILE_INLINE void turn_rows(float *to, const side *a, int64_t row, int64_t count, int64_t first,
                               int64_t depth, const ebb_dtype dtype)
{
    const size_t size = dtype == EBB_F32 ? 4 : 2;
    const char *from = a->data + (size_t)(row * a->row + first * a->column) * size;
    for (int64_t i = 0; i < depth; i++, to += TOGETHER, from += (size_t)a->column * size) {
        if (a->row == 1 && count == TOGETHER) {
            EBB_SIMD
            for (int64_t r = 0; r < TOGETHER; r++)
                to[r] = number(from + (size_t)r * size, dtype);
            continue;
        }
        for (int64_t r = 0; r < count; r++)
            to[r] = number(from + (size_t)(r * a->row) * size, dtype);
    }
}

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
    if (a->dtype == EBB_F32)
        turn_rows(k->turned, a, row, count, first, depth, EBB_F32);
    else if (a->dtype == EBB_BF16)
        turn_rows(k->turned, a, row, count, first, depth, EBB_BF16);
    else
        turn_rows(k->turned, a, row, count, first, depth, EBB_F16);
    return (rows){k->turned, 1, TOGETHER};
}

/* ---- a job ---- */

static float added(const side *c, int64_t row, int64_t column)
{
    const char *at = c->data + (size_t)(row * c->row + column * c->column) * c->size;
    return c->dtype == EBB_F32    ? number(at, EBB_F32)
           : c->dtype == EBB_BF16 ? number(at, EBB_BF16)
                                  : number(at, EBB_F16);
}

static void write_row(const block *k, int64_t row, const float *sum)
{
    const ebb_product *p = k->p;
    const ebb_dtype dtype = p->out.dtype;
    char *y = k->y + (size_t)((k->row + row) * p->out.strides[p->rank - 2] + k->column) *
                         ebb_dtype_bits(dtype) / 8;
    float *line = ebb_place_f32(y, dtype, 0, k->line);
    for (int64_t j = 0; j < k->columns; j++)
        line[j] = p->alpha * sum[j];
    for (int64_t j = 0; p->biased && j < k->columns; j++)
        line[j] += p->beta * added(&k->c, k->row + row, k->column + j);
    ebb_put_f32(y, dtype, 0, k->columns, line);
}

static void compute(const block *k)
{
    const int64_t wide = k->all->wide;
    for (int64_t first = 0; first < k->inner; first += DEPTH) {
        const int64_t depth = k->inner - first < DEPTH ? k->inner - first : DEPTH;
        pack(k, first, depth);
        for (int64_t r = 0; r < k->rows; r += TOGETHER) {
            const int64_t count = k->rows - r < TOGETHER ? k->rows - r : TOGETHER;
            const rows a = read_rows(k, k->row + r, count, first, depth);
            ebb_tile_multiply(k->sum + r * wide, wide, a.data, a.row, a.column, k->panels, count,
                              k->columns, depth, depth, first > 0);
        }
    }
    for (int64_t r = 0; r < k->rows; r++)
        write_row(k, r, k->sum + r * wide);
}

/* ---- all of them ---- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Blocks for all threads, some of them of fewer rows than the most, and then of fewer columns. */
static jobs divide(const ebb_product *p)
{
    const int64_t m = p->out.dims[p->rank - 2], n = p->out.dims[p->rank - 1];
    const int64_t threads = ebb_threads();
    jobs j = {.batches = 1, .tall = least(m, TALL), .wide = least(ebb_tile_width(n), WIDE)};
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
    j.depth = least(p->a.dims[p->rank - 1], DEPTH);
    j.count = j.batches * j.down * j.across;
    j.slots = least(threads, j.count);
    j.turned = j.depth * j.wide;
    j.sum = j.turned + TOGETHER * j.depth;
    j.line = j.sum + j.tall * j.wide;
    j.floats = (j.line + j.wide + PANEL - 1) / PANEL * PANEL;
    return j;
}

static side side_of(const ebb_matrix *m, int rank, const void *data)
{
    return (side){.data = data,
                  .dtype = m->dtype,
                  .size = ebb_dtype_bits(m->dtype) / 8,
                  .row = m->dims[rank - 2] == 1 ? 0 : m->strides[rank - 2],
                  .column = m->dims[rank - 1] == 1 ? 0 : m->strides[rank - 1]};
}

/* To the product of that number: operands of one batch, or none, stay. */
static void go_to(side *s, const ebb_product *p, const ebb_matrix *m, int64_t batch)
{
    int64_t at = 0;
    for (int i = p->rank - 3; i >= 0; batch /= p->out.dims[i], i--)
        at += m->dims[i] == 1 ? 0 : batch % p->out.dims[i] * m->strides[i];
    s->data += (size_t)at * s->size;
}

static void compute_job(const ebb_call *c, const ebb_product *p, const jobs *all, int64_t job,
                        float *slot)
{
    const int64_t batch = job / (all->down * all->across), in = job % (all->down * all->across);
    const int64_t m = p->out.dims[p->rank - 2], n = p->out.dims[p->rank - 1];
    side y = side_of(&p->out, p->rank, NULL);
    block k = {.p = p,
               .all = all,
               .a = side_of(&p->a, p->rank, c->in[0].data),
               .b = side_of(&p->b, p->rank, c->in[1].data),
               .row = in / all->across * all->tall,
               .column = in % all->across * all->wide,
               .inner = p->a.dims[p->rank - 1],
               .panels = slot,
               .turned = slot + all->turned,
               .sum = slot + all->sum,
               .line = slot + all->line};
    if (p->biased)
        k.c = side_of(&p->c, 2, c->in[2].data);
    k.rows = m - k.row < all->tall ? m - k.row : all->tall;
    k.columns = n - k.column < all->wide ? n - k.column : all->wide;
    y.data = c->out[0].data;
    go_to(&k.a, p, &p->a, batch);
    go_to(&k.b, p, &p->b, batch);
    go_to(&y, p, &p->out, batch);
    k.y = (char *)c->out[0].data + (y.data - (const char *)c->out[0].data);
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
    const char *why = ebb_dnnl_declines_shape(&c->out[0], true);
    for (uint32_t i = 0; why == NULL && i < c->input_count; i++)
        why = ebb_dnnl_declines_shape(&c->in[i], true);
    return why != NULL ? why : ebb_product_read(&p, c);
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    ebb_product p;
    const char *why = ebb_product_read(&p, c);
    if (why != NULL)
        return ebb_call_error(c, "%s", why);
    const jobs all = divide(&p);
    if (!ebb_size_mul(bytes, (size_t)all.floats * sizeof(float), (size_t)all.slots))
        return ebb_call_error(c, "there are too many threads");
    return NULL;
}

static ebb_status run(const ebb_call *c)
{
    ebb_product p;
    const char *why = ebb_product_read(&p, c);
    if (why != NULL)
        return ebb_call_error(c, "%s", why);
    const jobs all = divide(&p);
    EBB_PARALLEL_FOR(ebb_elements(&c->out[0].type) * p.a.dims[p.rank - 1])
    for (int64_t slot = 0; slot < all.slots; slot++)
        for (int64_t job = slot; job < all.count; job += all.slots)
            compute_job(c, &p, &all, job, (float *)c->workspace + slot * all.floats);
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
