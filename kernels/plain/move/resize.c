/* resize.c: Resize and Upsample, in every mode.
 *
 * For each axis a table says for every place of the output where its neighbours begin and how much
 * each weighs (onnx/words/resize.h). Then each element is a sum over the product of the axes' neighbours.
 */
#include "kernels/plain/number.h"
#include "kernels/call/move/resizing.h"

typedef struct line { /* one axis */
    int64_t stride;
    int64_t *begin, *count; /* of each place of the output */
    double *weight;         /* [out, taps] */
} line;

typedef struct resizing {
    ebb_resize what;
    line axis[EBB_MAX_RANK];
} resizing;

/* What needs no values: sizes and places in the workspace. Returns its bytes, 0 when too large. */
static size_t lay_out(resizing *r, const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type;
    int64_t strides[EBB_MAX_RANK];
    size_t at = 64;
    ebb_resizing_read(&r->what, c);
    ebb_strides(strides, x->rank, x->dims);
    for (int d = 0; d < x->rank; d++) {
        const ebb_resize_axis *a = &r->what.axis[d];
        line *l = &r->axis[d];
        size_t size;
        char *base = c->workspace;
        l->stride = strides[d];
        l->begin = base != NULL ? (int64_t *)(void *)(base + at) : NULL;
        l->count = base != NULL ? l->begin + a->out : NULL;
        l->weight = base != NULL ? (double *)(void *)(l->count + a->out) : NULL;
        if (!ebb_size_mul(&size, (size_t)a->out, (size_t)a->taps + 2) ||
            !ebb_size_mul(&size, size, 8) || !ebb_size_add(&at, at, size))
            return 0;
    }
    return at;
}

static ebb_status fill_tables(resizing *r, const ebb_call *c)
{
    for (int d = 0; d < r->what.rank; d++) {
        const ebb_resize_axis *a = &r->what.axis[d];
        line *l = &r->axis[d];
        for (int64_t o = 0; o < a->out; o++) {
            l->count[o] = ebb_resize_place(&r->what, d, o, &l->begin[o], l->weight + o * a->taps);
            if (l->count[o] == EBB_RESIZE_WRONG)
                return ebb_call_error(c,
                                      "the scale of axis %d, %g, does not fit %lld elements of "
                                      "%lld",
                                      d, a->scale, (long long)a->out, (long long)a->in);
        }
    }
    return NULL;
}

/* ---- sums ---- */

static double sum_axes(const resizing *r, const ebb_operand *x, const int64_t *place, int d,
                       int64_t at)
{
    if (d == r->what.rank)
        return ebb_plain_real(x, at);
    const ebb_resize_axis *a = &r->what.axis[d];
    const line *l = &r->axis[d];
    int64_t o = place[d];
    const double *w = l->weight + o * a->taps;
    double sum = 0;
    for (int64_t k = 0; k < l->count[o]; k++) {
        int64_t i = ebb_resize_at(a, l->begin[o] + k);
        if (l->count[o] == 1)
            return sum_axes(r, x, place, d + 1, at + i * l->stride);
        if (w[k] != 0)
            sum += w[k] * sum_axes(r, x, place, d + 1, at + i * l->stride);
    }
    return sum;
}

static void put_element(const resizing *r, const ebb_call *c, int64_t index)
{
    int64_t place[EBB_MAX_RANK], rest = index;
    bool outside = false;
    for (int d = r->what.rank - 1; d >= 0; d--) {
        place[d] = rest % r->what.axis[d].out;
        rest /= r->what.axis[d].out;
        outside = outside || r->axis[d].count[place[d]] == EBB_RESIZE_OUTSIDE;
    }
    ebb_plain_put(&c->out[0], index,
                  outside ? r->what.extrapolation : sum_axes(r, &c->in[0], place, 0, 0));
}

static ebb_status run_resize(const ebb_call *c)
{
    resizing r;
    int64_t n = ebb_elements(&c->out[0].type);
    if (n == 0)
        return NULL;
    if (ebb_elements(&c->in[0].type) == 0)
        return ebb_call_error(c, "nothing cannot be resized to something");
    if (lay_out(&r, c) == 0)
        return ebb_call_error(c, "its tables pass what memory can be");
    EBB_TRY(ebb_resizing_scale(&r.what, c, ebb_plain_real));
    EBB_TRY(fill_tables(&r, c));
    EBB_PARALLEL_FOR(n)
    for (int64_t i = 0; i < n; i++)
        put_element(&r, c, i);
    return NULL;
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    resizing r;
    ebb_call peek = *c;
    peek.workspace = NULL;
    *bytes = lay_out(&r, &peek);
    return *bytes > 0 ? NULL : ebb_call_error(c, "its tables pass what memory can be");
}

// clang-format off
const ebb_kernel ebb_plain_resize[] = {
    {.name = "plain.resize",   .op = EBB_OP_RESIZE,   .dtypes = ebb_call_any, .fits = ebb_resizing_misfit, .workspace = workspace, .run = run_resize},
    {.name = "plain.upsample", .op = EBB_OP_UPSAMPLE, .dtypes = ebb_call_any, .fits = ebb_resizing_misfit, .workspace = workspace, .run = run_resize},
};
// clang-format on
EBB_PLAIN_COUNT(resize)
