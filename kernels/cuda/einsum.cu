/* einsum.cu: Einsum of floats: one pair of operands after another, each pair by one kernel.
 *
 *     every letter of a pair        in the result            summed over
 *     in both operands              batch                    k
 *     in the left one, or none      m (rows)                 k
 *     in the right one              n (columns)              k
 *
 * So a pair is a product of matrices whose rows, columns and depth are several axes each, walked by
 * strides: diagonals and broadcast dims are strides too, and nothing is transposed. Where there are
 * few rows or columns, threads share the sum of each element instead of tiles (lanes.h). What the
 * pairs before the last make lies in the workspace. Integers: algebra.cu. One pair whose
 * rows, columns and depth are an axis each is a product like MatMul's, and a library's if there is
 * one.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/floats.h"
#include "kernels/cuda/lanes.h"
#include "kernels/cuda/product.h"
#include "kernels/call/algebra.h"

enum { SIDE = 64, DEEP = 16, PITCH = SIDE + 1, PER = 4, WIDE = SIDE / PER, THREADS = WIDE * WIDE };
enum { AXES = 2 * EBB_MAX_RANK, FEW = 12 }; // FEW: rows or columns that fill no tile

typedef struct einsum_walk { /* axes, the innermost first; strides in elements */
    int32_t rank;
    int64_t size;
    int64_t dims[AXES], a[AXES], b[AXES], y[AXES];
} einsum_walk;

typedef struct einsum_args {
    void *y;
    const void *a, *b; /* b NULL: there is but one operand */
    einsum_walk batch, m, n, k;
    int64_t splits, each;  /* tiles: parts that k is cut into */
    void *parts;           /* [splits, y] in the registers' dtype; of lanes in double */
    bool a_along, b_along; /* neighbours along k are neighbours in memory */
} einsum_args;

typedef struct einsum_sums_args {
    void *y, *parts;
    const void *a, *b;
    einsum_walk out, k;
    ebb_lanes lanes;
} einsum_sums_args;

typedef struct einsum_places {
    int64_t a, b, y;
} einsum_places;

EBB_GPU_INLINE einsum_places einsum_at(const einsum_walk *w, int64_t i)
{
    einsum_places p = {0, 0, 0};
    for (int d = 0; d < w->rank; d++) {
        const int64_t next =
            w->size <= INT32_MAX ? (int64_t)((uint32_t)i / (uint32_t)w->dims[d]) : i / w->dims[d];
        const int64_t at = i - next * w->dims[d];
        p.a += at * w->a[d];
        p.b += at * w->b[d];
        p.y += at * w->y[d];
        i = next;
    }
    return p;
}

#define KERNELS "kernels/cuda/einsum_kernels.inc"
#include "kernels/cuda/all_floats.inc"

static const ebb_gpu_kernel tiles[4] = EBB_CUDA_FLOATS(einsum_tiles);
static const ebb_gpu_kernel parts_of_tiles[4] = EBB_CUDA_FLOATS(einsum_add_parts);
static const ebb_gpu_kernel sums[4] = EBB_CUDA_FLOATS(einsum_sums);
static const ebb_gpu_kernel parts_of_sums[4] = EBB_CUDA_FLOATS(einsum_add_sums);

/* ---- pairs ---- */

typedef struct pair { /* strides by label; 0: it has none such, or does not move along it */
    int64_t a[EBB_EINSUM_LABELS], b[EBB_EINSUM_LABELS], y[EBB_EINSUM_LABELS];
    bool kept[EBB_EINSUM_LABELS];
    int64_t elements; /* of the result */
    einsum_walk out;  /* all that is kept */
    einsum_args args;
} pair;

static void strides_of(int64_t *to, const ebb_einsum *e, const ebb_type *t, uint32_t i)
{
    int64_t strides[EBB_MAX_RANK];
    ebb_strides(strides, t->rank, t->dims);
    memset(to, 0, EBB_EINSUM_LABELS * sizeof *to);
    for (int d = 0; d < t->rank; d++)
        if (t->dims[d] != 1) // a label that stands twice is a diagonal
            to[e->label[i][d]] += strides[d];
}

/* An axis outside of those that the walk has; merged with the last where it goes on as that does.
 */
static bool put_axis(einsum_walk *w, int64_t dim, int64_t a, int64_t b, int64_t y)
{
    const int last = w->rank - 1;
    if (__builtin_mul_overflow(w->size, dim, &w->size))
        return false;
    if (dim == 1)
        return true;
    if (last >= 0 && a == w->a[last] * w->dims[last] && b == w->b[last] * w->dims[last] &&
        y == w->y[last] * w->dims[last]) {
        w->dims[last] *= dim;
        return true;
    }
    if (w->rank == AXES)
        return false;
    w->dims[w->rank] = dim;
    w->a[w->rank] = a;
    w->b[w->rank] = b;
    w->y[w->rank++] = y;
    return true;
}

/* Walks of a pair whose strides and kept labels are known. False: too many axes, or elements. */
static bool put_walks(pair *p, const ebb_einsum *e)
{
    einsum_args *s = &p->args;
    bool fits = true;
    p->elements = 1;
    memset(p->y, 0, sizeof p->y);
    memset(s, 0, sizeof *s);
    memset(&p->out, 0, sizeof p->out);
    s->batch.size = s->m.size = s->n.size = s->k.size = p->out.size = 1;
    for (int l = e->labels - 1; l >= 0 && fits; l--) {
        const int64_t a = p->a[l], b = p->b[l], n = e->size[l];
        if (!p->kept[l]) {
            fits = (a == 0 && b == 0) || put_axis(&s->k, n, a, b, 0);
            continue;
        }
        p->y[l] = p->elements;
        fits = !__builtin_mul_overflow(p->elements, n, &p->elements) &&
               put_axis(a != 0 && b != 0 ? &s->batch
                        : b != 0         ? &s->n
                                         : &s->m,
                        n, a, b, p->y[l]) &&
               put_axis(&p->out, n, a, b, p->y[l]);
        p->y[l] = n != 1 ? p->y[l] : 0;
    }
    s->a_along = s->k.rank > 0 && s->k.a[0] == 1;
    s->b_along = s->k.rank > 0 && s->k.b[0] == 1;
    return fits;
}

/* Step `step` of a call: pairs (0, 1), (that, 2) ...; one operand is a pair of its own. Strides of
 * the left operand are those of the last result. NULL, or why not. */
static const char *next_pair(pair *p, const ebb_einsum *e, const ebb_call *c, uint32_t step)
{
    const bool last = step + 2 >= e->inputs;
    if (step == 0)
        strides_of(p->a, e, &c->in[0].type, 0);
    else
        memcpy(p->a, p->y, sizeof p->a);
    memset(p->b, 0, sizeof p->b);
    if (e->inputs > 1)
        strides_of(p->b, e, &c->in[step + 1].type, step + 1);
    for (int l = 0; l < EBB_EINSUM_LABELS; l++) {
        const bool here = p->a[l] != 0 || p->b[l] != 0;
        p->kept[l] = l < e->out_rank && (last || here);
        for (uint32_t i = step + 2; here && i < e->inputs; i++)
            for (int d = 0; d < c->in[i].type.rank; d++)
                p->kept[l] = p->kept[l] || (e->label[i][d] == l && c->in[i].type.dims[d] != 1);
    }
    return put_walks(p, e) ? NULL : "its axes are too many for a walk";
}

static uint32_t steps_of(const ebb_einsum *e)
{
    return e->inputs > 2 ? e->inputs - 1 : 1;
}

/* Also fills *e. */
static const char *misfit(ebb_einsum *e, const ebb_call *c)
{
    pair p;
    const char *why = ebb_cuda_floats(c);
    if (why == NULL)
        why = ebb_einsum_call_read(e, c);
    for (uint32_t step = 0; why == NULL && step < steps_of(e); step++)
        why = next_pair(&p, e, c, step);
    const bool narrow = c->in[0].type.dtype == EBB_F16 || c->in[0].type.dtype == EBB_BF16;
    if (why == NULL && narrow && steps_of(e) > 1) // widened: its pairs are not rounded then
        why = "more than two operands of 16 bits";
    return why;
}

static const char *declines(const ebb_call *c)
{
    ebb_einsum e;
    return misfit(&e, c);
}

/* ---- how a pair is cut ---- */

static size_t real_size(const ebb_call *c)
{
    return c->in[0].type.dtype == EBB_F64 ? sizeof(double) : sizeof(float);
}

static bool is_tiled(const einsum_args *s)
{
    return s->m.size > FEW && s->n.size > FEW;
}

static int64_t tiles_of(const einsum_args *s)
{
    return s->batch.size * ((s->m.size + SIDE - 1) / SIDE) * ((s->n.size + SIDE - 1) / SIDE);
}

/* As ebb_cuda_product_split. */
static void split_tiles(einsum_args *s)
{
    ebb_cuda_product p;
    ebb_cuda_product_plain(&p, s->m.size, s->n.size, s->k.size);
    p.batches = s->batch.size;
    ebb_cuda_product_split(&p);
    s->splits = p.splits;
    s->each = p.each;
}

static ebb_lanes lanes_of(const pair *p)
{
    const einsum_args *s = &p->args;
    return ebb_lanes_of(p->elements, s->k.size, !s->a_along && !s->b_along);
}

/* Bytes of its parts. */
static size_t parts_of(pair *p, const ebb_call *c)
{
    const ebb_lanes l = lanes_of(p);
    split_tiles(&p->args);
    if (!is_tiled(&p->args))
        return l.splits > 1 ? (size_t)(l.splits * p->elements) * sizeof(double) : 0;
    return p->args.splits > 1 ? (size_t)(p->args.splits * p->elements) * real_size(c) : 0;
}

/* | the parts of one pair | result of the first pair | of the second | ... */
static bool lay_out(const ebb_call *c, const ebb_einsum *e, size_t *parts, size_t *bytes)
{
    pair p;
    size_t results = 0;
    *parts = 0;
    for (uint32_t step = 0; step < steps_of(e); step++) {
        if (next_pair(&p, e, c, step) != NULL)
            return false;
        const size_t mine = (parts_of(&p, c) + 255) / 256 * 256;
        size_t result;
        *parts = mine > *parts ? mine : *parts;
        if (step + 1 == steps_of(e))
            break;
        if (!ebb_size_mul(&result, (size_t)p.elements, ebb_element_bytes(&c->in[0].type)) ||
            !ebb_size_align(&result, result, 256) || !ebb_size_add(&results, results, result))
            return false;
    }
    return ebb_size_add(bytes, *parts, results);
}

/* [batch, m, n] = [batch, m, k] x [batch, k, n] by strides, where y is dense in that order. */
const char *ebb_cuda_product_of_einsum(ebb_cuda_product *product, const ebb_call *c)
{
    ebb_einsum e;
    pair p;
    EBB_ASK(misfit(&e, c));
    if (e.inputs != 2 || next_pair(&p, &e, c, 0) != NULL)
        return "it is not of two operands";
    const einsum_args *s = &p.args;
    if (!is_tiled(s) || s->m.rank != 1 || s->n.rank != 1 || s->k.rank != 1 || s->batch.rank > 1 ||
        s->batch.size < 1)
        return "its rows, columns or depth are several axes, or few";
    if (s->n.y[0] != 1 || s->m.y[0] != s->n.size || s->k.a[0] == 0 || s->k.b[0] == 0 ||
        (s->batch.rank == 1 && s->batch.y[0] != s->m.size * s->n.size))
        return "its result does not lie as that of a product";
    ebb_cuda_product_plain(product, s->m.size, s->n.size, s->k.size);
    product->a_row = s->m.a[0];
    product->a_column = s->k.a[0];
    product->b_row = s->k.b[0];
    product->b_column = s->n.b[0];
    product->batches = s->batch.size;
    product->a_matrix = product->b_matrix = 1; // the walk counts elements
    product->walk.narrow = true;               // it has one axis: nothing is divided
    product->walk.rank = s->batch.rank;
    product->walk.dims[0] = s->batch.size;
    product->walk.stride[0][0] = s->batch.rank == 1 ? s->batch.a[0] : 0;
    product->walk.stride[1][0] = s->batch.rank == 1 ? s->batch.b[0] : 0;
    ebb_cuda_product_split(product);
    return NULL;
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    ebb_einsum e;
    size_t parts;
    ebb_cuda_product product;
    if (ebb_cuda_product_of_einsum(&product, c) == NULL) {
        *bytes = ebb_cuda_product_bytes(&product, c->in[0].type.dtype);
        return NULL;
    }
    const char *why = ebb_einsum_call_read(&e, c);
    if (why == NULL && !lay_out(c, &e, &parts, bytes))
        why = "what its operands give in between passes what memory can be";
    return why != NULL ? ebb_call_error(c, "%s", why) : NULL;
}

/* ---- launches ---- */

static ebb_status launch_tiles(const ebb_call *c, const pair *p, int row)
{
    const einsum_args *s = &p->args;
    const uint32_t shared =
        (uint32_t)(2 * DEEP * PITCH * real_size(c) + (2 * SIDE + 2 * DEEP) * sizeof(int64_t));
    EBB_TRY(
        EBB_LAUNCH(c, tiles[row], ebb_cuda_blocks(tiles_of(s) * s->splits), THREADS, shared, *s));
    if (s->splits < 2)
        return NULL;
    return EBB_LAUNCH(c, parts_of_tiles[row], ebb_cuda_grid(p->elements), EBB_CUDA_BLOCK, 0, *s);
}

static ebb_status launch_sums(const ebb_call *c, const pair *p, int row)
{
    einsum_sums_args a;
    memset(&a, 0, sizeof a);
    a.y = p->args.y;
    a.parts = p->args.parts;
    a.a = p->args.a;
    a.b = p->args.b;
    a.out = p->out;
    a.k = p->args.k;
    a.lanes = lanes_of(p);
    EBB_TRY(
        EBB_LAUNCH(c, sums[row], ebb_lanes_grid(&a.lanes), EBB_CUDA_BLOCK, EBB_LANES_SHARED, a));
    if (a.lanes.splits < 2)
        return NULL;
    a.lanes = ebb_lanes_rest(&a.lanes);
    return EBB_LAUNCH(c, parts_of_sums[row], ebb_lanes_grid(&a.lanes), EBB_CUDA_BLOCK,
                      EBB_LANES_SHARED, a);
}

static ebb_status run_pairs(const ebb_call *c)
{
    ebb_einsum e;
    pair p;
    size_t parts, bytes;
    const int row = ebb_cuda_float_row(c->in[0].type.dtype);
    const char *why = ebb_einsum_call_read(&e, c);
    if (why == NULL && !lay_out(c, &e, &parts, &bytes))
        why = "what its operands give in between passes what memory can be";
    if (why != NULL)
        return ebb_call_error(c, "%s", why);
    const void *left = c->in[0].data;
    char *next = (char *)c->workspace + parts;
    for (uint32_t step = 0; step < steps_of(&e); step++) {
        const bool last = step + 1 == steps_of(&e);
        (void)next_pair(&p, &e, c, step);
        (void)parts_of(&p, c);
        p.args.a = left;
        p.args.b = e.inputs > 1 ? c->in[step + 1].data : NULL;
        p.args.y = last ? c->out[0].data : next;
        p.args.parts = c->workspace;
        if (p.elements > 0)
            EBB_TRY(is_tiled(&p.args) ? launch_tiles(c, &p, row) : launch_sums(c, &p, row));
        left = p.args.y;
        next += ((size_t)p.elements * ebb_element_bytes(&c->in[0].type) + 255) / 256 * 256;
    }
    return NULL;
}

static ebb_status run(const ebb_call *c)
{
    ebb_cuda_product product;
    if (ebb_cuda_product_of_einsum(&product, c) != NULL)
        return run_pairs(c);
    product.y = c->out[0].data;
    product.a = c->in[0].data;
    product.b = c->in[1].data;
    product.parts = c->workspace;
    return ebb_cuda_product_run(c, &product, c->in[0].type.dtype);
}

// clang-format off
const ebb_kernel ebb_cuda_einsum[] = {
    {.name = "cuda.einsum", .op = EBB_OP_EINSUM, .fits = declines, .workspace = workspace, .run = run},
};
// clang-format on
EBB_CUDA_COUNT(einsum)
