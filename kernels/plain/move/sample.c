/* sample.c: rows chosen (SampleRows) and rows mixed (RandomSketch) at random, in float64 inside.
 *
 * SampleRows sorts the rows by their share q and adds q up from the smallest on, so that what is
 * left after the c largest, R_c, loses no digits:
 *
 *     q        5  4  3  1  1          c = 2, k = 4: two are sure, two are drawn from the rest
 *     R       14  9  5  2  1  0       R_0 / 4 = 3.5, R_1 / 3 = 3, R_2 / 2 = 2.5, R_3 / 1 = 2
 */
#include "kernels/math/philox.h"
#include "kernels/plain/plain.h"
#include "kernels/call/algebra.h"

#include <math.h>

enum { COLUMNS = 64 };

#define LOOPS "kernels/plain/move/sample_loops.inc"
#include "kernels/plain/both_floats.inc"

/* ---- SampleRows ---- */

typedef struct sampling {
    int64_t n, d, k;
    double *q, *rest; /* by place in the order; rest has one more: 0 */
    double *share;    /* by row */
    int64_t *order;   /* rows, the largest share first; of equal ones the first */
} sampling;

static const char *read_sampling(sampling *s, const ebb_call *c)
{
    const ebb_type *h = &c->in[0].type;
    if (c->input_count < 3 || c->output_count < 1 || h->rank != 2)
        return "the input is no matrix";
    *s = (sampling){.n = h->dims[0], .d = h->dims[1], .k = ebb_attr_int(&c->attrs, "k", 1)};
    if (h->dtype != EBB_F32 && h->dtype != EBB_F64)
        return "computes in float32 and float64 only";
    if (c->in[1].type.dtype != h->dtype || ebb_elements(&c->in[1].type) != s->n)
        return "there is not one norm a row, of the input's dtype";
    if (c->in[2].type.dtype != EBB_I64 || ebb_elements(&c->in[2].type) != 2)
        return "the key is not int64[2]";
    if (s->k < 1 || s->k > s->n || s->n > INT32_MAX)
        return "k is not between 1 and the number of rows";
    if (c->out[0].type.dtype != EBB_I64 || ebb_elements(&c->out[0].type) != s->k)
        return "the rows are not k int64";
    if (ebb_call_wants(c, 1) &&
        (c->out[1].type.dtype != h->dtype || ebb_elements(&c->out[1].type) != s->k))
        return "the weights are not k numbers of the input's dtype";
    return NULL;
}

static const char *misfit_sampling(const ebb_call *c)
{
    sampling s;
    return read_sampling(&s, c);
}

static ebb_status workspace_sampling(const ebb_call *c, size_t *bytes)
{
    *bytes = (size_t)(c->in[0].type.dims[0] + 1) * (3 * sizeof(double) + sizeof(int64_t));
    return NULL;
}

static double real_at(const ebb_operand *o, int64_t i)
{
    return o->type.dtype == EBB_F64 ? ((const double *)o->data)[i]
                                    : (double)((const float *)o->data)[i];
}

static void set_real(const ebb_operand *o, int64_t i, double x)
{
    if (o->type.dtype == EBB_F64)
        ((double *)o->data)[i] = x;
    else
        ((float *)o->data)[i] = (float)x;
}

/* share_i = |H_i| max(norm_i, mean / 8). A NaN counts as nothing, so that the order is one. */
static void find_shares(const sampling *s, const ebb_call *c)
{
    double total = 0;
    EBB_BY_FLOAT(c->in[0], lengths, s->share, c->in[0].data, s->n, s->d);
    for (int64_t i = 0; i < s->n; i++)
        total += real_at(&c->in[1], i);
    double floor = total / (double)s->n / 8;
    for (int64_t i = 0; i < s->n; i++) {
        double norm = real_at(&c->in[1], i);
        if (floor > 0)
            s->share[i] *= norm > floor ? norm : floor;
        if (!(s->share[i] >= 0))
            s->share[i] = 0;
    }
}

static bool comes_first(const double *share, int64_t a, int64_t b)
{
    return share[a] > share[b] || (share[a] == share[b] && a < b);
}

/* order[0 .. n - 1] is a heap but for its top; the last to come is on top. */
static void sift(int64_t *order, int64_t at, int64_t n, const double *share)
{
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && comes_first(share, order[child], order[child + 1]))
            child++;
        if (!comes_first(share, order[at], order[child]))
            return;
        int64_t keep = order[at];
        order[at] = order[child];
        order[child] = keep;
    }
}

static void sort(int64_t *order, int64_t n, const double *share)
{
    for (int64_t i = 0; i < n; i++)
        order[i] = i;
    for (int64_t i = n / 2; i-- > 0;)
        sift(order, i, n, share);
    for (int64_t end = n - 1; end > 0; end--) {
        int64_t keep = order[0];
        order[0] = order[end];
        order[end] = keep;
        sift(order, 0, end, share);
    }
}

/* The last place from c on of which more than `target` is left. */
static int64_t place_of(const sampling *s, int64_t c, double target)
{
    int64_t lo = c, hi = s->n; // rest[lo] is the first that may be, rest[hi] is not
    while (hi - lo > 1) {
        int64_t middle = lo + (hi - lo) / 2;
        if (s->rest[middle] > target)
            lo = middle;
        else
            hi = middle;
    }
    return lo;
}

static void draw_rows(const sampling *s, const ebb_call *call)
{
    int64_t *rows = call->out[0].data, c = 0;
    const int64_t *key = call->in[2].data;
    uint32_t stream = (uint32_t)ebb_attr_int(&call->attrs, "stream", 0);
    for (int64_t i = 1; i < s->k; i++)
        if (s->rest[i] / (double)(s->k - i) < s->rest[c] / (double)(s->k - c))
            c = i;
    double mass = s->rest[c];
    for (int64_t j = 0; j < s->k; j++) {
        ebb_philox p =
            ebb_philox_block((uint64_t)key[0], (uint64_t)key[1], stream, (uint64_t)j / 4);
        double uniform = (double)p.word[j % 4] / 4294967296.0;
        int64_t at = j < c ? j : place_of(s, c, uniform * mass);
        rows[j] = s->order[at];
        double weight = mass > 0 ? mass / ((double)(s->k - c) * s->q[at]) : 0;
        if (ebb_call_wants(call, 1))
            set_real(&call->out[1], j, j < c ? 1 : weight);
    }
}

static ebb_status run_sampling(const ebb_call *c)
{
    sampling s;
    EBB_MUST_FIT(c, read_sampling(&s, c));
    s.share = c->workspace;
    s.q = s.share + s.n + 1;
    s.rest = s.q + s.n + 1;
    s.order = (int64_t *)(void *)(s.rest + s.n + 1);
    find_shares(&s, c);
    sort(s.order, s.n, s.share);
    s.rest[s.n] = 0;
    for (int64_t i = s.n - 1; i >= 0; i--) {
        s.q[i] = s.share[s.order[i]];
        s.rest[i] = s.rest[i + 1] + s.q[i];
    }
    draw_rows(&s, c);
    return NULL;
}

/* ---- RandomSketch ---- */

static ebb_status run_sketch(const ebb_call *c)
{
    ebb_sketch s;
    EBB_MUST_FIT(c, ebb_sketch_read(&s, c));
    ebb_sketch_key(&s, c);
    EBB_BY_FLOAT(c->in[0], sketch, c->out[0].data, c->in[0].data, &s);
    return NULL;
}

// clang-format off
const ebb_kernel ebb_plain_sample[] = {
    {.name = "plain.sample_rows",   .op = EBB_OP_SAMPLE_ROWS,   .dtypes = ebb_call_any,     .fits = misfit_sampling, .workspace = workspace_sampling, .run = run_sampling},
    {.name = "plain.random_sketch", .op = EBB_OP_RANDOM_SKETCH, .dtypes = ebb_plain_floats, .fits = ebb_sketch_misfit,   .run = run_sketch},
};
// clang-format on
EBB_PLAIN_COUNT(sample)
