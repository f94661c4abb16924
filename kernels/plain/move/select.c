/* select.c: Compress, Unique, NonMaxSuppression. How many rows they choose is known after the run;
 * a count other than the planned one is an error that names both (onnx/ops/move/select.c says why). */
#include "kernels/plain/number.h"

static ebb_status wrong_count(const ebb_call *c, int64_t found, int64_t planned)
{
    return ebb_call_error(c, "%lld are chosen, the shape was planned for %lld", (long long)found,
                          (long long)planned);
}

/* X cut into `n` slices along the axis; the whole of it flat where there is none. */
static ebb_status slices_of(const ebb_call *c, ebb_span *s)
{
    const ebb_type *x = &c->in[0].type;
    int axis = 0;
    *s = (ebb_span){1, ebb_elements(x), 1};
    if (ebb_attr_find(&c->attrs, "axis") == NULL)
        return NULL;
    EBB_TRY(ebb_call_axis(c, ebb_attr_int(&c->attrs, "axis", 0), x->rank, &axis));
    *s = ebb_span_of(x, axis);
    return NULL;
}

/* Slice `to` of Y, which has `rows` of them, becomes slice `from` of X. */
static void copy_slice(const ebb_call *c, const ebb_span *s, int64_t rows, int64_t to, int64_t from)
{
    size_t size = (size_t)s->inner * ebb_element_bytes(&c->in[0].type);
    for (int64_t o = 0; o < s->outer; o++)
        memcpy((char *)c->out[0].data + (size_t)(o * rows + to) * size,
               (const char *)c->in[0].data + (size_t)(o * s->n + from) * size, size);
}

/* ---- Compress(X, condition) ---- */

static ebb_status run_compress(const ebb_call *c)
{
    ebb_span s;
    EBB_TRY(slices_of(c, &s));
    const unsigned char *chosen = c->in[1].data;
    int64_t given = ebb_elements(&c->in[1].type), found = 0;
    int64_t per_row = s.outer * s.inner;
    int64_t rows = per_row > 0 ? ebb_elements(&c->out[0].type) / per_row : 0;
    if (per_row == 0)
        return NULL;
    for (int64_t i = 0; i < s.n && i < given; i++)
        if (chosen[i] != 0) {
            if (found < rows)
                copy_slice(c, &s, rows, found, i);
            found++;
        }
    return found == rows ? NULL : wrong_count(c, found, rows);
}

static const char *misfit_compress(const ebb_call *c)
{
    return c->in[1].type.dtype != EBB_BOOL ? "the condition is not bool" : NULL;
}

/* ---- Unique ---- */

/* -1, 0, 1 as slice i is before, like or after slice j; NaN is like NaN, and last. */
static int compare(const ebb_operand *x, const ebb_span *s, int64_t i, int64_t j)
{
    bool whole = ebb_dtype_is_integer((ebb_dtype)x->type.dtype);
    for (int64_t k = 0; k < s->outer * s->inner; k++) {
        int64_t base = k / s->inner * s->n * s->inner + k % s->inner;
        int64_t at_i = base + i * s->inner, at_j = base + j * s->inner;
        if (whole) {
            uint64_t a = ebb_plain_word(x, at_i), b = ebb_plain_word(x, at_j);
            bool less = x->type.dtype == EBB_U64 ? a < b : (int64_t)a < (int64_t)b;
            if (a != b)
                return less ? -1 : 1;
            continue;
        }
        double a = ebb_plain_real(x, at_i), b = ebb_plain_real(x, at_j);
        if ((a != a) != (b != b))
            return a != a ? 1 : -1;
        if (a < b || a > b)
            return a < b ? -1 : 1;
    }
    return 0;
}

/* Equal slices in the order of their places, so that the first of a group is the first in X. */
static bool after(const ebb_operand *x, const ebb_span *s, int64_t i, int64_t j)
{
    int order = compare(x, s, i, j);
    return order != 0 ? order > 0 : i > j;
}

static void sink(const ebb_operand *x, const ebb_span *s, int64_t *heap, int64_t count, int64_t at)
{
    for (int64_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count && after(x, s, heap[child + 1], heap[child]))
            child++;
        if (!after(x, s, heap[child], heap[at]))
            return;
        int64_t swap = heap[at];
        heap[at] = heap[child];
        heap[child] = swap;
        at = child;
    }
}

static void sort(const ebb_operand *x, const ebb_span *s, int64_t *order)
{
    for (int64_t i = 0; i < s->n; i++)
        order[i] = i;
    for (int64_t i = s->n / 2 - 1; i >= 0; i--)
        sink(x, s, order, s->n, i);
    for (int64_t i = s->n - 1; i > 0; i--) {
        int64_t swap = order[0];
        order[0] = order[i];
        order[i] = swap;
        sink(x, s, order, i, 0);
    }
}

/* first[i]: the first slice like slice i; place[first]: which row of Y it is. Returns the rows. */
static int64_t group(const ebb_call *c, const ebb_span *s, const int64_t *order, int64_t *first,
                     int64_t *place)
{
    bool sorted = ebb_attr_int(&c->attrs, "sorted", 1) != 0;
    int64_t rows = 0;
    for (int64_t k = 0; k < s->n; k++) {
        bool new = k == 0 || compare(&c->in[0], s, order[k - 1], order[k]) != 0;
        first[order[k]] = new ? order[k] : first[order[k - 1]];
        if (new &&sorted)
            place[order[k]] = rows++;
    }
    for (int64_t i = 0; i < s->n && !sorted; i++)
        if (first[i] == i)
            place[i] = rows++;
    return rows;
}

static ebb_status run_unique(const ebb_call *c)
{
    ebb_span s;
    EBB_TRY(slices_of(c, &s));
    int64_t *order = c->workspace, *first = order + s.n, *place = first + s.n;
    sort(&c->in[0], &s, order);
    int64_t rows = group(c, &s, order, first, place), per_row = s.outer * s.inner;
    int64_t planned = per_row > 0 ? ebb_elements(&c->out[0].type) / per_row : rows;
    if (rows != planned)
        return wrong_count(c, rows, planned);
    for (uint32_t k = 1; k < 4; k += 2)
        if (ebb_call_wants(c, k) && ebb_elements(&c->out[k].type) != rows)
            return wrong_count(c, rows, ebb_elements(&c->out[k].type));
    if (ebb_call_wants(c, 3))
        memset(c->out[3].data, 0, c->out[3].bytes);
    for (int64_t i = 0; i < s.n; i++) {
        int64_t row = place[first[i]];
        if (first[i] == i && ebb_call_wants(c, 0))
            copy_slice(c, &s, rows, row, i);
        if (first[i] == i && ebb_call_wants(c, 1))
            ((int64_t *)c->out[1].data)[row] = i;
        if (ebb_call_wants(c, 2))
            ((int64_t *)c->out[2].data)[i] = row;
        if (ebb_call_wants(c, 3))
            ((int64_t *)c->out[3].data)[row]++;
    }
    return NULL;
}

static ebb_status unique_workspace(const ebb_call *c, size_t *bytes)
{
    ebb_span s;
    EBB_TRY(slices_of(c, &s));
    return ebb_size_mul(bytes, (size_t)s.n, 3 * sizeof(int64_t))
               ? NULL
               : ebb_call_error(c, "it is too large");
}

static const char *misfit_unique(const ebb_call *c)
{
    ebb_dtype x = (ebb_dtype)c->in[0].type.dtype;
    if (!ebb_dtype_is_float(x) && !ebb_dtype_is_integer(x) && x != EBB_BOOL)
        return "works on numbers only";
    if (ebb_call_wants(c, 2)) {
        ebb_span s;
        if (slices_of(c, &s) != NULL || ebb_elements(&c->out[2].type) != s.n)
            return "the inverse has not one entry for each slice";
    }
    return ebb_call_wants(c, 0) ? NULL : "its first output is not wanted";
}

/* ---- NonMaxSuppression ---- */

typedef struct box {
    double top, left, bottom, right;
} box;

static box box_at(const ebb_call *c, int64_t i)
{
    double p[4];
    for (int k = 0; k < 4; k++)
        p[k] = ebb_plain_real(&c->in[0], i * 4 + k);
    if (ebb_attr_int(&c->attrs, "center_point_box", 0) != 0) // x, y, width, height
        return (box){p[1] - p[3] / 2, p[0] - p[2] / 2, p[1] + p[3] / 2, p[0] + p[2] / 2};
    bool down = p[0] <= p[2], right = p[1] <= p[3]; // any two opposite corners
    return (box){p[down ? 0 : 2], p[right ? 1 : 3], p[down ? 2 : 0], p[right ? 3 : 1]};
}

static double overlap(box a, box b)
{
    double height = (a.bottom < b.bottom ? a.bottom : b.bottom) - (a.top > b.top ? a.top : b.top);
    double width = (a.right < b.right ? a.right : b.right) - (a.left > b.left ? a.left : b.left);
    if (height <= 0 || width <= 0)
        return 0;
    double both = height * width, area_a = (a.bottom - a.top) * (a.right - a.left);
    return both / (area_a + (b.bottom - b.top) * (b.right - b.left) - both);
}

static double threshold(const ebb_call *c, uint32_t input, double otherwise)
{
    return ebb_call_has(c, input) ? ebb_plain_real(&c->in[input], 0) : otherwise;
}

/* The boxes of one class of one image, best first, none much over one chosen before. Their numbers
 * go to chosen. A score that is no number is of no box. */
static int64_t choose(const ebb_call *c, int64_t image, int64_t class, int64_t *chosen, char *gone)
{
    int64_t boxes = c->in[0].type.dims[1], classes = c->in[1].type.dims[1], count = 0;
    int64_t most = ebb_call_has(c, 2) ? ebb_plain_whole(&c->in[2], 0) : 0;
    double close = threshold(c, 3, 0.0), least = threshold(c, 4, -1e300);
    int64_t scores = (image * classes + class) * boxes;
    for (int64_t i = 0; i < boxes; i++)
        gone[i] = (char)!(ebb_plain_real(&c->in[1], scores + i) > least);
    while (count < most) {
        int64_t best = -1;
        for (int64_t i = 0; i < boxes; i++)
            if (!gone[i] && (best < 0 || ebb_plain_real(&c->in[1], scores + i) >
                                             ebb_plain_real(&c->in[1], scores + best)))
                best = i;
        if (best < 0)
            break;
        gone[best] = 1;
        bool covered = false;
        for (int64_t k = 0; k < count && !covered; k++)
            covered = overlap(box_at(c, image * boxes + best),
                              box_at(c, image * boxes + chosen[k])) > close;
        if (!covered)
            chosen[count++] = best;
    }
    return count;
}

/* (boxes, scores, most of a class?, overlap?, score?) -> rows of image, class, box. */
static ebb_status run_suppress(const ebb_call *c)
{
    int64_t images = c->in[0].type.dims[0], boxes = c->in[0].type.dims[1];
    int64_t classes = c->in[1].type.dims[1], rows = c->out[0].type.dims[0], found = 0;
    int64_t *chosen = c->workspace, *y = c->out[0].data;
    for (int64_t k = 0; k < images * classes; k++) {
        int64_t count = choose(c, k / classes, k % classes, chosen, (char *)(chosen + boxes));
        for (int64_t i = 0; i < count; i++, found++) {
            if (found >= rows)
                continue;
            y[found * 3] = k / classes;
            y[found * 3 + 1] = k % classes;
            y[found * 3 + 2] = chosen[i];
        }
    }
    return found == rows ? NULL : wrong_count(c, found, rows);
}

static ebb_status suppress_workspace(const ebb_call *c, size_t *bytes)
{
    return ebb_size_mul(bytes, (size_t)c->in[0].type.dims[1], sizeof(int64_t) + 1)
               ? NULL
               : ebb_call_error(c, "it is too large");
}

static const char *misfit_suppress(const ebb_call *c)
{
    const ebb_type *boxes = &c->in[0].type, *scores = &c->in[1].type;
    if (boxes->rank != 3 || scores->rank != 3 || boxes->dims[2] != 4 ||
        boxes->dims[0] != scores->dims[0] || boxes->dims[1] != scores->dims[2])
        return "boxes and scores do not fit each other";
    for (uint32_t i = 2; i < 5; i++)
        if (ebb_call_has(c, i) && ebb_elements(&c->in[i].type) != 1)
            return "a limit is not a single number";
    return NULL;
}

// clang-format off
const ebb_kernel ebb_plain_select[] = {
    {.name = "plain.compress",            .op = EBB_OP_COMPRESS,            .dtypes = ebb_call_any, .fits = misfit_compress, .run = run_compress},
    {.name = "plain.unique",              .op = EBB_OP_UNIQUE,              .dtypes = ebb_call_any, .fits = misfit_unique,   .workspace = unique_workspace, .run = run_unique},
    {.name = "plain.non_max_suppression", .op = EBB_OP_NON_MAX_SUPPRESSION, .dtypes = ebb_call_any, .fits = misfit_suppress, .workspace = suppress_workspace, .run = run_suppress},
};
// clang-format on
EBB_PLAIN_COUNT(select)
