/* walk.c: see walk.h. */
#include "kernels/fast/recurrent/walk.h"

enum { TOGETHER = 256 /* rows of X at once */ };

static ebb_matrix matrix(ebb_dtype dtype, int64_t rows, int64_t columns, int64_t row,
                         int64_t column)
{
    return (ebb_matrix){dtype, {rows, columns}, {row, column}};
}

static ebb_product product(ebb_dtype dtype, ebb_matrix a, ebb_matrix b, int64_t row)
{
    return (ebb_product){.a = a,
                         .b = b,
                         .out = matrix(dtype, a.dims[0], b.dims[1], row, 1),
                         .rank = 2,
                         .alpha = 1,
                         .beta = 1};
}

ebb_product ebb_walk_product_of_x(const ebb_walk *w, int64_t steps)
{
    const int64_t G = w->s.gates * w->s.hidden, I = w->s.inputs;
    const ebb_dtype type = ebb_walk_dtype(w);
    ebb_product p = product(EBB_F32, matrix(type, steps * w->s.batch, I, I, 1),
                            matrix(type, I, G, 1, I), w->wide);
    p.biased = true;
    p.c = matrix(EBB_F32, 1, G, 0, 1);
    return p;
}

ebb_product ebb_walk_product_of_h(const ebb_walk *w, const ebb_walk_run *r, int64_t steps)
{
    const int64_t H = w->s.hidden, rows = steps * w->s.batch;
    const ebb_dtype type = ebb_walk_dtype(w);
    ebb_product p =
        product(EBB_F32, matrix(type, rows, H, H, 1), matrix(type, H, r->count * H, 1, H), w->wide);
    const bool behind = r->part >= w->s.gates; // no product with X was there before
    p.biased = true;
    p.c = behind ? matrix(EBB_F32, 1, r->count * H, 0, 1)
                 : matrix(EBB_F32, rows, r->count * H, w->wide, 1);
    return p;
}

/* dX, which a second direction adds to, and dW. */
static void make_products(ebb_walk *w)
{
    const int64_t G = w->s.gates * w->s.hidden, I = w->s.inputs, all = w->s.times * w->s.batch;
    const ebb_dtype type = ebb_walk_dtype(w);
    const ebb_matrix x = matrix(type, all, I, I, 1);
    w->dx = product(type, matrix(type, all, G, w->wide, 1), matrix(type, G, I, I, 1), I);
    w->dx.biased = w->d > 0;
    w->dx.c = x;
    w->dw = product(type, matrix(type, G, all, 1, w->wide), x, I);
}

ebb_product ebb_walk_product_of_dr(const ebb_walk *w, const ebb_walk_run *r)
{
    const int64_t H = w->s.hidden, all = w->s.times * w->s.batch;
    return product(ebb_walk_dtype(w), matrix(ebb_walk_dtype(w), r->count * H, all, 1, w->wide),
                   matrix(ebb_walk_dtype(w), all, H, H, 1), H);
}

static bool take(ebb_walk *w, size_t *at, int64_t rows, int64_t columns, size_t size)
{
    size_t bytes;
    *at = w->bytes;
    return ebb_size_mul(&bytes, (size_t)rows, (size_t)columns) &&
           ebb_size_mul(&bytes, bytes, size) && ebb_size_add(&w->bytes, w->bytes, bytes) &&
           ebb_size_align(&w->bytes, w->bytes, 64);
}

static bool most_bytes(size_t *most, const ebb_product p)
{
    size_t bytes;
    if (!ebb_product_tiles_bytes(&p, &bytes))
        return false;
    *most = bytes > *most ? bytes : *most;
    return true;
}

/* Of the sums of so many steps; fewer of them may be divided into larger blocks. */
static bool most_of_sums(const ebb_walk *w, size_t *most, int64_t steps)
{
    bool fine = steps == 0 || most_bytes(most, ebb_walk_product_of_x(w, steps));
    for (ebb_walk_run r = {0}; steps > 0 && w->s.backward && ebb_walk_next_run(w, &r);)
        fine = fine && most_bytes(most, ebb_walk_product_of_h(w, &r, steps));
    return fine;
}

static bool take_products(ebb_walk *w)
{
    size_t most = 0;
    bool fine = true;
    if (!w->s.backward || w->cell->again)
        fine = most_of_sums(w, &most, w->steps) && most_of_sums(w, &most, w->s.times % w->steps);
    if (w->s.backward)
        fine = fine && most_bytes(&most, w->dx) && most_bytes(&most, w->dw);
    for (ebb_walk_run r = {0}; w->s.backward && ebb_walk_next_run(w, &r);)
        fine = fine && most_bytes(&most, ebb_walk_product_of_dr(w, &r));
    w->products = w->bytes;
    return fine && ebb_size_add(&w->bytes, w->bytes, most);
}

static bool lay_out(ebb_walk *w)
{
    const int64_t B = w->s.batch, H = w->s.hidden, all = w->s.times * B, G = w->s.gates;
    const bool back = w->s.backward, sums = !back || w->cell->again;
    const size_t size = ebb_walk_size(w);
    return take(w, &w->sums, sums ? w->steps * B : 0, w->wide, sizeof(float)) &&
           take(w, &w->bias, 1, w->wide, sizeof(float)) &&
           take(w, &w->h, back ? 0 : 2 * B, H, size) && take(w, &w->state, B, H, sizeof(float)) &&
           take(w, &w->dh, back ? B : 0, H, sizeof(float)) &&
           take(w, &w->da, back ? all : 0, w->wide, size) &&
           take(w, &w->before, back ? all : 0, H, size) &&
           take(w, &w->weights, G * w->panels * EBB_TILE_COLUMNS, H, size) && take_products(w);
}

static const char *misfit(ebb_walk *w)
{
    const ebb_call *call = w->call;
    w->half = call->in[0].type.dtype == EBB_BF16;
    if (w->half && !EBB_TILE_PAIRS)
        return "the processor does not multiply pairs of bfloat16";
    EBB_ASK(ebb_dnnl_plain_of(call, ebb_walk_dtype(w)));
    EBB_ASK(ebb_recurrent_read(&w->s, call));
    EBB_ASK(ebb_usual_cell_misfit(&w->s, call));
    if (w->s.at.peepholes >= 0 && ebb_dnnl_has(call, (uint32_t)w->s.at.peepholes))
        return "no peepholes";
    if (w->s.cell == EBB_CELL_GRU && !w->s.linear_before_reset)
        return "a GRU must have linear_before_reset";
    if (w->s.cell == EBB_CELL_LSTM && w->s.backward && !w->s.kept)
        return "wants the forward's gates";
    if (w->half && w->s.hidden % 2 != 0)
        return "in 16 bits hidden_size must be even";
    return NULL;
}

const char *ebb_walk_read(ebb_walk *w, const ebb_call *call)
{
    *w = (ebb_walk){.call = call};
    EBB_ASK(misfit(w));
    const int64_t together = (TOGETHER + w->s.batch - 1) / w->s.batch;
    w->cell = &ebb_cell_formulas_of[w->s.cell];
    w->steps = together < w->s.times ? together : w->s.times;
    w->wide = w->cell->parts * w->s.hidden;
    w->panels = ebb_tile_width(w->s.hidden) / EBB_TILE_COLUMNS;
    make_products(w);
    return lay_out(w) ? NULL : "the scratch memory is too large to address";
}
