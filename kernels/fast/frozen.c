/* frozen.c: products with a matrix in few bits. A thread decodes a tile of it, straight into the panels
 * that tile.h multiplies by, and multiplies all rows of A by the tile before it decodes the next:
 *
 *     columns of Y  |====|====|====|==|   each a job: one thread's
 *                     | for each DEPTH of what is summed over
 *     tile          [ | | ]               decoded; the thread's own, in the workspace
 *                     |
 *     Y[rows, tile] += A[rows, DEPTH] tile
 *
 * Sums are in an order that hangs on neither threads nor jobs. Rows of zeros cost no product. Where each row
 * has an expert, neighbours of one expert are a product of their own; a matrix in float32 is copied into panels.
 */
#include "kernels/fast/fast.h"
#include "kernels/fast/frozen_tile.h"
#include "kernels/fast/rows.h"
#include "kernels/spared.h"

enum {
    LANES = EBB_TILE_LANES,
    PANEL = EBB_TILE_COLUMNS,
    TOGETHER = 24, /* rows of A that meet all panels of a tile while they are in the first cache */
    PART = 128,    /* rows of a job, at least: each decodes for itself */
};

/* What a thread has, in floats. */
enum {
    AT_SCALES = EBB_PANEL_WIDEST * EBB_PANEL_DEPTH,
    AT_ZEROS = AT_SCALES + EBB_PANEL_GRID,
    AT_RAGGED = AT_ZEROS + EBB_PANEL_GRID,
    SCRATCH = AT_RAGGED + EBB_TILE_ROWS * PANEL,
};

/* ---- the product ---- */

/* What is added to is far away: it is asked for while the block is computed. */
static inline void ask_for(const float *y, int64_t row)
{
#if defined(__GNUC__)
    for (int r = 0; r < EBB_TILE_ROWS; r++) {
        __builtin_prefetch(y + r * row, 1);
        __builtin_prefetch(y + r * row + LANES, 1);
    }
#endif
    (void)y, (void)row;
}

/* Some rows of A by one panel of the tile, from column c of it on. */
static void multiply_panel(const ebb_frozen_tile *t, const float *a, float *y, int64_t rows,
                           int64_t c)
{
    const ebb_frozen_product *p = t->p;
    const bool adds = t->from > 0, whole = t->columns - c >= PANEL;
    const float *panel = t->panels + c * t->depth;
    int64_t r = 0;
    for (; r + EBB_TILE_ROWS <= rows && whole; r += EBB_TILE_ROWS) {
        ask_for(y + r * p->columns, p->columns);
        ebb_tile_block(y + r * p->columns, p->columns, a + r * p->inner, p->inner, 1, panel,
                       t->depth, EBB_TILE_ROWS, adds);
    }
    if (whole) {
        ebb_tile_multiply(y + r * p->columns, p->columns, a + r * p->inner, p->inner, 1, panel,
                          rows - r, PANEL, t->depth, t->depth, adds);
        return;
    }
    for (; r < rows; r += EBB_TILE_ROWS) {
        const int64_t some = rows - r < EBB_TILE_ROWS ? rows - r : EBB_TILE_ROWS;
        ebb_tile_multiply(t->ragged, PANEL, a + r * p->inner, p->inner, 1, panel, some, PANEL,
                          t->depth, t->depth, false);
        for (int64_t q = 0; q < some; q++)
            for (int64_t j = 0; j < t->columns - c; j++) {
                float *to = y + (r + q) * p->columns + j;
                *to = adds ? *to + t->ragged[q * PANEL + j] : t->ragged[q * PANEL + j];
            }
    }
}

static void multiply(const ebb_frozen_tile *t, int64_t row, int64_t rows)
{
    const ebb_frozen_product *p = t->p;
    for (int64_t c = 0; c < t->columns; c += PANEL)
        multiply_panel(t, p->a + row * p->inner + t->from, p->y + row * p->columns + t->column + c,
                       rows, c);
}

/* Nothing but zeros of a row of A meets the tile: nothing is added. Rows are masked so where nobody asks
 * for the result, and the gradient of padding is so by itself. */
static bool is_zero(const ebb_frozen_tile *t, int64_t row)
{
    const float *a = t->p->a + row * t->p->inner + t->from;
    for (int64_t i = 0; i < t->depth; i++)
        if (a[i] != 0)
            return false;
    return true;
}

/* Rows from `row` on that are as it is, all zeros or not. */
static int64_t alike(const ebb_frozen_tile *t, int64_t row, int64_t end, bool zero)
{
    int64_t next = row + 1;
    while (next < end && is_zero(t, next) == zero)
        next++;
    return next - row;
}

static void pass_by(const ebb_frozen_tile *t, int64_t row, int64_t rows)
{
    (void)__atomic_fetch_add(t->p->spared, rows * t->columns * t->depth, __ATOMIC_RELAXED);
    for (int64_t r = row; r < row + rows && t->from == 0; r++)
        memset(t->p->y + r * t->p->columns + t->column, 0, (size_t)t->columns * sizeof(float));
}

static void multiply_rows(ebb_frozen_tile *t, int64_t first, int64_t end)
{
    bool decoded = false;
    for (int64_t row = first; row < end;) {
        const bool zero = is_zero(t, row);
        const int64_t most = end - row < TOGETHER ? end : row + TOGETHER,
                      rows = alike(t, row, zero ? end : most, zero);
        if (!zero && !decoded)
            ebb_frozen_decode(t);
        decoded = decoded || !zero;
        if (!zero)
            multiply(t, row, rows);
        else
            pass_by(t, row, rows);
        row += rows;
    }
}

static void compute(const ebb_frozen_product *p, float *scratch, int64_t job)
{
    const int64_t part = job % p->parts, first = p->rows * part / p->parts,
                  end = p->rows * (part + 1) / p->parts;
    ebb_frozen_tile t = {.p = p,
                         .panels = scratch,
                         .scales = scratch + AT_SCALES,
                         .zeros = scratch + AT_ZEROS,
                         .ragged = scratch + AT_RAGGED,
                         .column = job / p->parts * p->width};
    t.columns = p->columns - t.column < p->width ? p->columns - t.column : p->width;
    for (t.from = 0; t.from < p->inner; t.from += EBB_PANEL_DEPTH) {
        t.depth = p->inner - t.from < EBB_PANEL_DEPTH ? p->inner - t.from : EBB_PANEL_DEPTH;
        multiply_rows(&t, first, end);
    }
}

/* Jobs for all threads: of fewer columns, and where these are too few of some of the rows. */
static void divide(ebb_frozen_product *p, int64_t threads)
{
    const int64_t panels = ebb_tile_width(p->columns) / PANEL, widest = EBB_PANEL_WIDEST / PANEL;
    int64_t each = (panels + threads - 1) / threads;
    each = each < 1 ? 1 : each > widest ? widest : each;
    p->width = each * PANEL;
    const int64_t jobs = (panels + each - 1) / each, most = p->rows / PART;
    p->parts = jobs >= threads ? 1 : (threads + jobs - 1) / jobs;
    p->parts = p->parts > most ? most : p->parts;
    p->parts = p->parts < 1 ? 1 : p->parts;
}

static const char *dtypes(const ebb_call *c)
{
    const bool floats = c->in[0].type.dtype == EBB_F32 && c->out[0].type.dtype == EBB_F32;
    return floats ? NULL : "multiplies float32 only";
}

static const char *declines(const ebb_call *c)
{
    const char *why = ebb_frozen_misfit(c);
    return why != NULL                         ? why
           : ebb_elements(&c->in[0].type) == 0 ? "there is nothing to compute"
                                               : NULL;
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    if (!ebb_size_mul(bytes, SCRATCH * sizeof(float), (size_t)ebb_threads()))
        return ebb_call_error(c, "there are too many threads");
    return NULL;
}

static void multiply_all(ebb_frozen_product *p, const ebb_call *c)
{
    const int64_t slots = (int64_t)(c->workspace_bytes / (SCRATCH * sizeof(float)));
    int64_t spared = 0;
    p->spared = &spared;
    divide(p, slots);
    const int64_t jobs = (p->columns + p->width - 1) / p->width * p->parts;
    EBB_PARALLEL_FOR(p->rows * p->inner * p->columns)
    for (int64_t slot = 0; slot < slots; slot++)
        for (int64_t job = slot; job < jobs; job += slots)
            compute(p, (float *)c->workspace + slot * SCRATCH, job);
    ebb_spare(2.0 * (double)spared);
}

/* all: codes or numbers of all experts. */
static ebb_status multiply_experts(const ebb_frozen_product *all, const ebb_call *c,
                                   const int64_t *of)
{
    EBB_TRY(ebb_experts_check(c, of, all->rows, all->m.of.matrices));
    for (int64_t r = 0, next; r < all->rows; r = next) {
        ebb_frozen_product p = *all;
        next = ebb_experts_next(of, all->rows, r);
        p.rows = next - r;
        p.a += r * p.inner;
        p.y += r * p.columns;
        if (p.whole != NULL)
            p.whole += of[r] * p.inner * p.columns;
        else
            p.m = ebb_frozen_one(&all->m, of[r]);
        multiply_all(&p, c);
    }
    return NULL;
}

static ebb_status run(const ebb_call *c)
{
    ebb_frozen_product p = {.a = c->in[0].data, .y = c->out[0].data};
    const int64_t *of = ebb_frozen_experts(c);
    ebb_frozen_open(&p.m, c);
    const ebb_frozen *f = &p.m.of;
    for (unsigned i = 0; i < 1u << f->bits; i++)
        p.level[i] = (float)p.m.level[i];
    p.inner = ebb_frozen_inner(f);
    p.columns = ebb_frozen_columns(f);
    p.rows = ebb_elements(&c->in[0].type) / p.inner;
    const int64_t of_n = f->scale_n != 0 ? f->block_n : INT64_MAX,
                  of_k = f->scale_k != 0 ? f->block_k : INT64_MAX;
    p.inner_group = f->turned ? of_k : of_n;
    p.column_group = f->turned ? of_n : of_k;
    p.quick = ebb_frozen_lanes_can(&p);
    if (of != NULL)
        return multiply_experts(&p, c, of);
    multiply_all(&p, c);
    return NULL;
}

/* ---- experts in float32 ---- */

static const char *declines_experts(const ebb_call *c)
{
    ebb_experts e;
    if (c->in[1].type.dtype != EBB_F32 || ebb_elements(&c->in[0].type) == 0)
        return "there is nothing to compute, or the weights are not float32";
    return ebb_experts_read(&e, c);
}

static ebb_status run_experts(const ebb_call *c)
{
    ebb_experts e;
    EBB_MUST_FIT(c, ebb_experts_read(&e, c));
    const ebb_frozen_product p = {
        .a = c->in[0].data,
        .y = c->out[0].data,
        .whole = c->in[1].data,
        .alpha = 1,
        .rows = e.rows,
        .inner = e.turned ? e.k : e.n,
        .columns = e.turned ? e.n : e.k,
        .m.of = {.n = e.n, .k = e.k, .matrices = e.experts, .turned = e.turned}};
    return multiply_experts(&p, c, e.of);
}

/* ---- a matrix in float32, where rows are zeros ---- */

bool ebb_rows_may_be_zero(const ebb_call *c)
{
    return c->op == EBB_OP_FUSED_MATMUL && dtypes(c) == NULL && c->in[1].constant != NULL &&
           c->in[0].type.rank >= 2 && c->in[1].type.rank == 2 &&
           ebb_attr_int(&c->attrs, "transA", 0) == 0;
}

static ebb_frozen_product product_of(const ebb_call *c)
{
    const int64_t *of_b = c->in[1].type.dims, inner = c->in[0].type.dims[c->in[0].type.rank - 1];
    const bool turned = ebb_attr_int(&c->attrs, "transB", 0) != 0;
    return (ebb_frozen_product){
        .a = c->in[0].data,
        .y = c->out[0].data,
        .whole = c->in[1].data,
        .alpha = (float)ebb_attr_float(&c->attrs, "alpha", 1.0),
        .rows = ebb_elements(&c->in[0].type) / inner,
        .inner = inner,
        .columns = of_b[turned ? 0 : 1],
        .m.of = {.n = of_b[0], .k = of_b[1], .matrices = 1, .turned = turned}};
}

ebb_status ebb_rows_workspace(const ebb_call *c, size_t *bytes)
{
    return workspace(c, bytes);
}

bool ebb_rows_have_zeros(const ebb_call *c)
{
    if (c->workspace_bytes < SCRATCH * sizeof(float))
        return false; // the matrix was not known when it was asked for
    const ebb_frozen_product p = product_of(c);
    for (int64_t r = 0, i; r < p.rows; r++) {
        for (i = 0; i < p.inner && p.a[r * p.inner + i] == 0; i++)
            ;
        if (i == p.inner)
            return true;
    }
    return false;
}

void ebb_rows_multiply(const ebb_call *c)
{
    ebb_frozen_product p = product_of(c);
    multiply_all(&p, c);
}

// clang-format off
const ebb_kernel ebb_dnnl_frozen[] = {
    {.name = "tiles.matmul_codes",       .op = EBB_OP_MATMUL_CODES,       .dtypes = dtypes, .fits = declines, .workspace = workspace, .run = run},
    {.name = "tiles.experts_matmul",     .op = EBB_OP_EXPERTS_MATMUL,     .dtypes = dtypes, .fits = declines_experts, .workspace = workspace, .run = run_experts},
    {.name = "tiles.experts_matmul_codes", .op = EBB_OP_EXPERTS_MATMUL_CODES, .dtypes = dtypes, .fits = declines, .workspace = workspace, .run = run},
    {.name = "tiles.matmul_dequantized", .op = EBB_OP_MATMUL_DEQUANTIZED, .dtypes = dtypes, .fits = declines, .workspace = workspace, .run = run},
};
// clang-format on
EBB_DNNL_COUNT(frozen)
