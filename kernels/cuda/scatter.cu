/* scatter.cu: ScatterElements, ScatterND, and the gradients of Gather and GatherElements.
 *
 * Where several updates meet in one element, they are combined in the order of their positions, by
 * one thread, without atomics:
 *
 *     keys      each update's row; updates that lead nowhere: behind all rows
 *     order     (order.h) updates of a row side by side, in the order of their positions
 *     parts     what a chunk of that list begins with, where the row began in a chunk before
 *     rows      the first of a row combines its chunk's, then the parts after it
 *
 * So a row that all updates go to is the work of many threads too. Where each index is of one
 * element and there are lines enough along the axis, a thread walks along each line instead.
 */
#include "kernels/cuda/floats.h"
#include "kernels/cuda/move.h"
#include "kernels/cuda/order.h"
#include "kernels/call/move/scatter.h"

typedef struct key_args {
    uint32_t *key;
    ebb_cuda_indices index;
    int64_t n, rows;
    int32_t depth, elements;    /* elements: one element an index, along a path and an axis */
    int64_t dims[EBB_MAX_RANK]; /* of the coordinates; [0]: of the axis */
    int64_t stride;             /* of the axis */
    ebb_cuda_path path;
} key_args;

typedef struct meet_args {
    void *y;
    const void *update;
    const uint32_t *key, *position; /* n of them */
    void *part;
    int64_t n, parts, outer, rows, inner; /* y: outer tables of rows of inner elements */
    int32_t lanes, chunk;                 /* 2^chunk updates */
    int32_t how, zero;                    /* zero: y holds nothing yet */
} meet_args;

typedef struct lines_args {
    void *y;
    const void *update;
    ebb_cuda_indices index;
    int64_t lines, n, step; /* n updates a line, `step` apart */
    int64_t axis, stride;   /* of y */
    int32_t how;
    ebb_cuda_path path; /* to: y, from: updates and indices */
} lines_args;

EBB_GPU_INLINE int64_t chunk_end(const meet_args *a, int64_t first)
{
    int64_t end = ((first >> a->chunk) + 1) << a->chunk;
    return end < a->n ? end : a->n;
}

/* How far key[first] goes on, at most to limit. */
EBB_GPU_INLINE int64_t run_end(const uint32_t *key, int64_t first, int64_t limit)
{
    uint32_t row = key[first];
    int64_t low = first + 1, high = limit; /* all before low are the row's, none from high on */
    if (low < high && key[low] != row)
        return low;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (key[middle] == row)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

EBB_GLOBAL(make_keys, key_args)
{
    EBB_GRID_LOOP(i, a.n)
    {
        int64_t row = 0, to, from;
        bool inside = true;
        for (int k = 0; k < a.depth; k++) {
            int64_t at = ebb_cuda_index(&a.index, i * a.depth + k, a.dims[k]);
            inside = inside && at >= 0;
            row = row * a.dims[k] + at;
        }
        if (a.elements) {
            ebb_cuda_step_of(&a.path, i, &to, &from);
            row = to + row * a.stride;
        }
        a.key[i] = (uint32_t)(inside ? row : a.rows);
    }
}

#define KERNELS "kernels/cuda/scatter_set_kernels.inc"
#include "kernels/cuda/all_sizes.inc"

#define WRAPS REAL
#define IS_NAN(v) ((v) != (v))
#define KERNELS "kernels/cuda/scatter_kernels.inc"
#include "kernels/cuda/all_floats.inc"
#undef WRAPS
#undef IS_NAN

#define IS_NAN(v) false
#define LOAD(p, i) ((REAL)(p)[i])
#define STORE(p, i, v) ((p)[i] = (v))
#define STORED int32_t
#define REAL int32_t
#define WRAPS uint32_t
#define NAMED(x) x##_i32
#include "kernels/cuda/scatter_kernels.inc"
#undef STORED
#undef REAL
#undef WRAPS
#undef NAMED
#define STORED int64_t
#define REAL int64_t
#define WRAPS uint64_t
#define NAMED(x) x##_i64
#include "kernels/cuda/scatter_kernels.inc"
#undef STORED
#undef REAL
#undef WRAPS
#undef NAMED
#undef LOAD
#undef STORE
#undef IS_NAN

typedef struct combiner {
    ebb_gpu_kernel rows, parts, lines;
    size_t real; /* bytes of a partial result */
} combiner;

#define COMBINER(suffix, real)                                                    \
    {                                                                             \
        (ebb_gpu_kernel) meet_rows_##suffix, (ebb_gpu_kernel)meet_parts_##suffix, \
            (ebb_gpu_kernel)meet_lines_##suffix, real                             \
    }

/* rows is NULL where there is none. */
static combiner combiner_of(const ebb_type *t, ebb_combine how)
{
    static const ebb_gpu_kernel rows[] = EBB_CUDA_SIZES(set_rows);
    static const ebb_gpu_kernel lines[] = EBB_CUDA_SIZES(set_lines);
    static const combiner f32 = COMBINER(f32, 4), f64 = COMBINER(f64, 8), f16 = COMBINER(f16, 4);
    static const combiner bf16 = COMBINER(bf16, 4), i32 = COMBINER(i32, 4), i64 = COMBINER(i64, 8);
    combiner none = {NULL, NULL, NULL, 0};
    if (how == EBB_COMBINE_UNKNOWN)
        return none;
    if (how == EBB_COMBINE_SET) {
        int row = ebb_cuda_size_row(ebb_element_bytes(t));
        none.rows = rows[row];
        none.lines = lines[row];
        return none;
    }
    switch (t->dtype) {
    case EBB_F32:
        return f32;
    case EBB_F64:
        return f64;
    case EBB_F16:
        return f16;
    case EBB_BF16:
        return bf16;
    case EBB_I32:
        return i32;
    case EBB_I64:
        return i64;
    default:
        return none;
    }
}

/* ---- what there is to do, by the types alone ---- */

typedef struct job {
    meet_args meet;
    key_args keys;
    lines_args lines;
    bool by_lines;
    uint32_t index; /* input */
    size_t order_bytes, part_bytes;
} job;

enum { CHUNK = 6, MANY_LINES = 2048, SHORT_LINE = 32 };

/* Chunks are as long as there are many of them, so that neither is a long walk. */
static void finish_rows(job *j, size_t real)
{
    meet_args *m = &j->meet;
    for (m->chunk = CHUNK; (int64_t)1 << 2 * m->chunk < m->n;)
        m->chunk++;
    m->parts = (m->n + ((int64_t)1 << m->chunk) - 1) >> m->chunk;
    m->lanes = ebb_cuda_lanes(0, m->inner); // a block a row: each column walks the list anew
    j->keys.n = m->n;
    j->keys.rows = m->rows;
    j->order_bytes = (ebb_cuda_order_bytes(m->n) + 63) / 64 * 64;
    j->part_bytes = (size_t)(m->parts * m->outer * m->inner) * real;
}

/* GatherGrad (shape, indices, dY) {axis} and ScatterND (data, indices, updates). */
static ebb_status plan_rows(const ebb_call *c, job *j)
{
    const ebb_type *out = &c->out[0].type, *index = &c->in[1].type;
    memset(j, 0, sizeof *j);
    j->index = 1;
    meet_args *m = &j->meet;
    if (c->op == EBB_OP_GATHER_GRAD) {
        int axis;
        EBB_TRY(ebb_call_axis(c, ebb_attr_int(&c->attrs, "axis", 0), out->rank, &axis));
        ebb_span s = ebb_span_of(out, axis);
        m->n = ebb_elements(index);
        m->outer = s.outer;
        m->rows = j->keys.dims[0] = s.n;
        m->inner = s.inner;
        j->keys.depth = 1;
    } else {
        m->n = m->outer = m->rows = m->inner = 1;
        j->keys.depth = (int32_t)index->dims[index->rank - 1];
        for (int d = 0; d < index->rank - 1; d++)
            m->n *= index->dims[d];
        for (int d = 0; d < out->rank; d++) {
            j->keys.dims[d] = out->dims[d];
            *(d < j->keys.depth ? &m->rows : &m->inner) *= out->dims[d];
        }
    }
    finish_rows(j, combiner_of(out, ebb_combine_of(c)).real);
    return NULL;
}

/* ScatterElements (data, indices, updates) and GatherElementsGrad (dY, shape, indices), {axis}:
 * out[.., index[.., k, ..], ..] meets update[.., k, ..]. */
static ebb_status plan_elements(const ebb_call *c, job *j)
{
    memset(j, 0, sizeof *j);
    j->index = c->op == EBB_OP_GATHER_ELEMENTS_GRAD ? 2 : 1;
    const ebb_type *big = &c->out[0].type, *small = &c->in[j->index].type;
    int64_t to[EBB_MAX_RANK] = {0}, from[EBB_MAX_RANK] = {0}, dims[EBB_MAX_RANK] = {0};
    ebb_combine how = ebb_combine_of(c);
    int axis;
    EBB_TRY(ebb_call_axis(c, ebb_attr_int(&c->attrs, "axis", 0), big->rank, &axis));
    ebb_span s = ebb_span_of(small, axis);
    ebb_strides(to, big->rank, big->dims);
    ebb_strides(from, small->rank, small->dims);
    int64_t stride = to[axis], lines = s.outer * s.inner;
    for (int d = 0; d < small->rank; d++)
        dims[d] = small->dims[d];
    to[axis] = 0;
    bool rounds = (how == EBB_COMBINE_ADD || how == EBB_COMBINE_MUL) && ebb_element_bytes(big) == 2;
    j->by_lines = s.n <= (rounds ? 1 : SHORT_LINE) || (lines >= MANY_LINES && !rounds);
    if (j->by_lines) {
        lines_args *l = &j->lines;
        dims[axis] = 1;
        l->lines = lines;
        l->n = s.n;
        l->step = from[axis];
        l->axis = big->dims[axis];
        l->stride = stride;
        ebb_cuda_path_make(&l->path, small->rank, dims, to, from);
        return NULL;
    }
    j->keys.elements = 1;
    j->keys.depth = 1;
    j->keys.dims[0] = big->dims[axis];
    j->keys.stride = stride;
    ebb_cuda_path_make(&j->keys.path, small->rank, dims, to, from);
    j->meet.n = ebb_elements(small);
    j->meet.rows = ebb_elements(big);
    j->meet.outer = j->meet.inner = 1;
    finish_rows(j, combiner_of(big, how).real);
    return NULL;
}

static ebb_status plan(const ebb_call *c, job *j)
{
    bool by_rows = c->op == EBB_OP_GATHER_GRAD || c->op == EBB_OP_SCATTER_ND;
    return by_rows ? plan_rows(c, j) : plan_elements(c, j);
}

static ebb_status scatter_workspace(const ebb_call *c, size_t *bytes)
{
    job j;
    EBB_TRY(plan(c, &j));
    *bytes = j.order_bytes + j.part_bytes;
    return NULL;
}

/* ---- doing it ---- */

static ebb_status run_lines(const ebb_call *c, job *j, const combiner *by)
{
    j->lines.y = c->out[0].data;
    j->lines.update = j->meet.update;
    j->lines.index = ebb_cuda_indices_of(c, j->index);
    j->lines.how = j->meet.how;
    return EBB_LAUNCH(c, by->lines, ebb_cuda_grid(j->lines.n > 0 ? j->lines.lines : 0),
                      EBB_CUDA_BLOCK, 0, j->lines);
}

static ebb_status run_rows(const ebb_call *c, job *j, combiner *by)
{
    meet_args *m = &j->meet;
    size_t size = ebb_element_bytes(&c->out[0].type);
    ebb_cuda_order order;
    if (m->n == 0 || m->outer == 0 || m->inner == 0)
        return NULL;
    j->keys.key = (uint32_t *)c->workspace;
    j->keys.index = ebb_cuda_indices_of(c, j->index);
    EBB_TRY(EBB_LAUNCH(c, make_keys, ebb_cuda_grid(m->n), EBB_CUDA_BLOCK, 0, j->keys));
    EBB_TRY(ebb_cuda_order_make(c, c->workspace, m->n, (uint32_t)m->rows, &order));
    m->key = order.key;
    m->position = order.position;
    m->part = (char *)c->workspace + j->order_bytes;
    if (m->how == EBB_COMBINE_SET) {
        int64_t bytes = m->inner * (int64_t)size;
        size_t wide = ebb_cuda_widest(m->y, m->update, size, bytes);
        m->inner = bytes / (int64_t)wide;
        m->lanes = ebb_cuda_lanes(m->n, m->inner);
        const ebb_gpu_kernel rows[] = EBB_CUDA_SIZES(set_rows);
        by->rows = rows[ebb_cuda_size_row(wide)];
    } else if (m->parts > 1) {
        EBB_TRY(EBB_LAUNCH(c, by->parts, ebb_cuda_grid((m->parts * m->outer) << m->lanes),
                           EBB_CUDA_BLOCK, 0, *m));
    }
    return EBB_LAUNCH(c, by->rows, ebb_cuda_grid((m->n * m->outer) << m->lanes), EBB_CUDA_BLOCK, 0,
                      *m);
}

/* Y is the data, and may lie over it; a gradient begins as zeros. */
static ebb_status run_scatter(const ebb_call *c)
{
    bool grad = c->op == EBB_OP_GATHER_GRAD || c->op == EBB_OP_GATHER_ELEMENTS_GRAD;
    const ebb_operand *y = &c->out[0];
    job j;
    EBB_TRY(plan(c, &j));
    combiner by = combiner_of(&y->type, ebb_combine_of(c));
    j.meet.y = y->data;
    j.meet.update = c->in[c->op == EBB_OP_GATHER_ELEMENTS_GRAD ? 0 : 2].data;
    j.meet.how = (int32_t)ebb_combine_of(c);
    j.meet.zero = grad;
    if (!grad)
        EBB_TRY(ebb_cuda_copy(c, y->data, c->in[0].data, y->bytes));
    else if (y->bytes > 0)
        EBB_TRY(ebb_gpu_clear(ebb_cuda_queue_of(c)->stream, y->data, y->bytes));
    return j.by_lines ? run_lines(c, &j, &by) : run_rows(c, &j, &by);
}

/* ---- what rows ask ---- */

static const char *declines_size(const ebb_type *out, const ebb_type *index)
{
    if (ebb_elements(out) >= (int64_t)0xFFFFFFFF || ebb_elements(index) > 0x7FFFFFFF)
        return "more than 2^32 elements, or 2^31 indices";
    return NULL;
}

static const char *declines_elements(const ebb_call *c)
{
    EBB_ASK(ebb_scatter_elements_misfit(c, combiner_of(&c->out[0].type, ebb_combine_of(c)).rows !=
                                               NULL));
    const uint32_t index = c->op == EBB_OP_GATHER_ELEMENTS_GRAD ? 2 : 1;
    return declines_size(&c->out[0].type, &c->in[index].type);
}

static const char *declines_gather_grad(const ebb_call *c)
{
    EBB_ASK(ebb_gather_grad_misfit(c, combiner_of(&c->out[0].type, EBB_COMBINE_ADD).rows != NULL));
    const int64_t axis = ebb_axis_of(c, "axis", 0, c->out[0].type.rank);
    const bool wide =
        axis >= 0 && axis < c->out[0].type.rank && c->out[0].type.dims[axis] >= (int64_t)0xFFFFFFFF;
    return wide || ebb_elements(&c->in[1].type) > 0x7FFFFFFF
               ? "more than 2^32 rows, or 2^31 indices"
               : NULL;
}

static const char *declines_scatter_nd(const ebb_call *c)
{
    const char *why =
        ebb_scatter_nd_misfit(c, combiner_of(&c->in[0].type, ebb_combine_of(c)).rows != NULL);
    return why != NULL ? why : declines_size(&c->in[0].type, &c->in[1].type);
}

// clang-format off
const ebb_kernel ebb_cuda_scatter[] = {
    {.name = "cuda.scatter_elements",     .op = EBB_OP_SCATTER_ELEMENTS,     .fits = declines_elements, .workspace = scatter_workspace, .run = run_scatter},
    {.name = "cuda.scatter",              .op = EBB_OP_SCATTER,              .fits = declines_elements, .workspace = scatter_workspace, .run = run_scatter},
    {.name = "cuda.scatter_nd",           .op = EBB_OP_SCATTER_ND,           .fits = declines_scatter_nd, .workspace = scatter_workspace, .run = run_scatter},
    {.name = "cuda.gather_grad",          .op = EBB_OP_GATHER_GRAD,          .fits = declines_gather_grad, .workspace = scatter_workspace, .run = run_scatter},
    {.name = "cuda.gather_elements_grad", .op = EBB_OP_GATHER_ELEMENTS_GRAD, .fits = declines_elements, .workspace = scatter_workspace, .run = run_scatter},
};
// clang-format on
EBB_CUDA_COUNT(scatter)
