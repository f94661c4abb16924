/* heads_grad.c: the gradient of LinearAttention: its recurrence, run again and then back.
 *
 *   S' = e^g S    u = beta (v - S'^T k)    S = S' + k u^T    y = S^T q
 *
 * States are kept at the start of every span of tokens and made again inside of it: with spans of
 * sqrt(length) both take about as many states.
 *
 *   kept   | S0 |         | S8 |         | S16 |            one a span
 *   inside                | S8  S9 ... S16 |                those of the span that is run back
 */
#include "kernels/plain/number.h"

#include <math.h>

enum { DY, DSTATE, QUERY, KEY, VALUE, STATE, DECAY, BETA };
enum { DQUERY, DKEY, DVALUE, DSTATE_0, DDECAY, DBETA };
enum { SLOTS = 16 }; /* heads at a time */

typedef struct recurrence {
    const ebb_call *c;
    int64_t batch, length, q_heads, heads, key, value, span, spans;
    bool delta;
} recurrence;

typedef struct head { /* with its place in the workspace */
    int64_t b, h;
    double *kept, *inside;    /* states: spans of them, span + 1 of them */
    double *decayed, *dstate; /* S', dS */
    double *error, *derror;   /* v - S'^T k, and its gradient: [value] */
} head;

static recurrence read_recurrence(const ebb_call *c)
{
    const ebb_type *q = &c->in[QUERY].type;
    recurrence r = {.c = c, .batch = q->dims[0], .length = q->dims[1]};
    r.q_heads = ebb_attr_int(&c->attrs, "q_num_heads", 1);
    r.heads = ebb_attr_int(&c->attrs, "kv_num_heads", 1);
    r.key = q->dims[2] / r.q_heads;
    r.value = c->in[VALUE].type.dims[2] / r.heads;
    r.delta = ebb_attr_int(&c->attrs, "delta", 0) != 0;
    r.span = 1 + (int64_t)sqrt((double)r.length);
    r.spans = (r.length + r.span - 1) / r.span;
    return r;
}

static double number(const recurrence *r, uint32_t i, int64_t at)
{
    return ebb_plain_real(&r->c->in[i], at);
}

static void put(const recurrence *r, uint32_t o, int64_t at, double value)
{
    if (ebb_plain_wants(r->c, o))
        ebb_plain_put(&r->c->out[o], at, value);
}

/* Token t of one head, among those of all. */
static int64_t token(const recurrence *r, const head *p, int64_t t)
{
    return (p->b * r->length + t) * r->heads + p->h;
}

/* One token forward: S', the error, and the state behind it. */
static void forward(const recurrence *r, const head *p, int64_t t, const double *from, double *to)
{
    int64_t at = token(r, p, t);
    double beta = number(r, BETA, at);
    for (int64_t i = 0; i < r->key; i++) {
        double keep = exp(number(r, DECAY, at * r->key + i));
        for (int64_t j = 0; j < r->value; j++)
            p->decayed[i * r->value + j] = from[i * r->value + j] * keep;
    }
    for (int64_t j = 0; j < r->value; j++)
        p->error[j] = number(r, VALUE, at * r->value + j);
    for (int64_t i = 0; r->delta && i < r->key; i++) {
        double k = number(r, KEY, at * r->key + i);
        for (int64_t j = 0; j < r->value; j++)
            p->error[j] -= p->decayed[i * r->value + j] * k;
    }
    for (int64_t i = 0; i < r->key; i++) {
        double k = number(r, KEY, at * r->key + i) * beta;
        for (int64_t j = 0; j < r->value; j++)
            to[i * r->value + j] = p->decayed[i * r->value + j] + k * p->error[j];
    }
}

/* The queries that look at the state behind token t. */
static void back_queries(const recurrence *r, const head *p, int64_t t, const double *state)
{
    int64_t share = r->q_heads / r->heads;
    for (int64_t g = p->h * share; g < (p->h + 1) * share; g++) {
        int64_t at = (p->b * r->length + t) * r->q_heads + g;
        for (int64_t i = 0; i < r->key; i++) {
            double q = number(r, QUERY, at * r->key + i), sum = 0;
            for (int64_t j = 0; j < r->value; j++) {
                double dy = number(r, DY, at * r->value + j);
                sum += state[i * r->value + j] * dy;
                p->dstate[i * r->value + j] += q * dy;
            }
            put(r, DQUERY, at * r->key + i, sum);
        }
    }
}

/* One token back, after forward() has made its S' and its error again. */
static void back(const recurrence *r, const head *p, int64_t t)
{
    int64_t at = token(r, p, t);
    double beta = number(r, BETA, at), dbeta = 0;
    for (int64_t j = 0; j < r->value; j++) {
        double du = 0;
        for (int64_t i = 0; i < r->key; i++)
            du += number(r, KEY, at * r->key + i) * p->dstate[i * r->value + j];
        dbeta += du * p->error[j];
        p->derror[j] = beta * du;
        put(r, DVALUE, at * r->value + j, p->derror[j]);
    }
    put(r, DBETA, at, dbeta);
    for (int64_t i = 0; i < r->key; i++) {
        double *ds = p->dstate + i * r->value, *decayed = p->decayed + i * r->value;
        double k = number(r, KEY, at * r->key + i), dk = 0, ddecay = 0;
        double keep = exp(number(r, DECAY, at * r->key + i));
        for (int64_t j = 0; j < r->value; j++) {
            dk += beta * p->error[j] * ds[j];
            if (r->delta) {
                dk -= decayed[j] * p->derror[j];
                ds[j] -= k * p->derror[j];
            }
            ddecay += ds[j] * decayed[j];
            ds[j] *= keep;
        }
        put(r, DKEY, at * r->key + i, dk);
        put(r, DDECAY, at * r->key + i, ddecay);
    }
}

static int64_t last_of(const recurrence *r, int64_t n)
{
    return (n + 1) * r->span < r->length ? (n + 1) * r->span : r->length;
}

static void run_head(const recurrence *r, const head *p)
{
    int64_t size = r->key * r->value, first = (p->b * r->heads + p->h) * size;
    for (int64_t k = 0; k < size; k++) {
        p->kept[k] = number(r, STATE, first + k);
        p->dstate[k] = number(r, DSTATE, first + k);
    }
    for (int64_t n = 0; n + 1 < r->spans; n++) {
        double *state = p->kept + (n + 1) * size;
        memcpy(state, p->kept + n * size, (size_t)size * sizeof *state);
        for (int64_t t = n * r->span; t < last_of(r, n); t++)
            forward(r, p, t, state, state);
    }
    for (int64_t n = r->spans; n-- > 0;) {
        int64_t start = n * r->span;
        memcpy(p->inside, p->kept + n * size, (size_t)size * sizeof *p->inside);
        for (int64_t t = start; t < last_of(r, n); t++)
            forward(r, p, t, p->inside + (t - start) * size, p->inside + (t - start + 1) * size);
        for (int64_t t = last_of(r, n); t-- > start;) {
            double *before = p->inside + (t - start) * size;
            forward(r, p, t, before, before + size);
            back_queries(r, p, t, before + size);
            back(r, p, t);
        }
    }
    for (int64_t k = 0; k < size; k++)
        put(r, DSTATE_0, first + k, p->dstate[k]);
}

/* Doubles that a slot has in the workspace; 0: too many. */
static size_t slot_size(const recurrence *r)
{
    size_t states, size;
    return ebb_size_mul(&states, (size_t)r->key, (size_t)r->value) &&
                   ebb_size_mul(&states, states, (size_t)(r->spans + r->span + 3)) &&
                   ebb_size_mul(&size, states + 2 * (size_t)r->value, sizeof(double)) &&
                   ebb_size_mul(&size, size, SLOTS)
               ? states + 2 * (size_t)r->value
               : 0;
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    recurrence r = read_recurrence(c);
    *bytes = slot_size(&r) * sizeof(double) * SLOTS;
    return *bytes > 0 || r.value == 0 ? NULL : ebb_call_error(c, "its states are too large");
}

static ebb_status run(const ebb_call *c)
{
    recurrence r = read_recurrence(c);
    int64_t heads = r.batch * r.heads, size = r.key * r.value;
    EBB_PARALLEL_FOR(heads * r.length * size)
    for (int64_t slot = 0; slot < SLOTS; slot++) {
        head p = {.kept = (double *)c->workspace + (size_t)slot * slot_size(&r)};
        p.inside = p.kept + r.spans * size;
        p.decayed = p.inside + (r.span + 1) * size;
        p.dstate = p.decayed + size;
        p.error = p.dstate + size;
        p.derror = p.error + r.value;
        for (int64_t s = slot; s < heads; s += SLOTS) {
            p.b = s / r.heads;
            p.h = s % r.heads;
            run_head(&r, &p);
        }
    }
    return NULL;
}

static bool is_shaped(const ebb_call *c, uint32_t i, int64_t rows, int64_t columns)
{
    const ebb_type *t = &c->in[i].type, *q = &c->in[QUERY].type;
    int64_t n = rows * columns;
    return t->rank == 3 && t->dims[0] == q->dims[0] && t->dims[1] == q->dims[1] && t->dims[2] == n;
}

static const char *declines(const ebb_call *c)
{
    const char *why = ebb_plain_floats(c);
    for (uint32_t i = 0; why == NULL && i < 8; i++)
        if (!ebb_plain_has(c, i))
            why = "an input is absent";
    if (why != NULL)
        return why;
    if (c->in[QUERY].type.rank != 3 || c->in[VALUE].type.rank != 3 ||
        ebb_attr_int(&c->attrs, "q_num_heads", 0) < 1 ||
        ebb_attr_int(&c->attrs, "kv_num_heads", 0) < 1)
        return "query and value have not rank 3, or no heads";
    recurrence r = read_recurrence(c);
    if (r.q_heads % r.heads != 0 || !is_shaped(c, QUERY, r.q_heads, r.key) ||
        !is_shaped(c, KEY, r.heads, r.key) || !is_shaped(c, VALUE, r.heads, r.value) ||
        !is_shaped(c, DY, r.q_heads, r.value) || !is_shaped(c, DECAY, r.heads, r.key) ||
        !is_shaped(c, BETA, r.heads, 1))
        return "its inputs do not fit each other";
    for (uint32_t i = DSTATE; i <= STATE; i += STATE - DSTATE) {
        const ebb_type *s = &c->in[i].type;
        if (s->rank != 4 || s->dims[0] != r.batch || s->dims[1] != r.heads || s->dims[2] != r.key ||
            s->dims[3] != r.value)
            return "a state does not fit";
    }
    return NULL;
}

// clang-format off
const ebb_kernel ebb_plain_heads_grad[] = {
    {.name = "plain.linear_attention_grad", .op = EBB_OP_LINEAR_ATTENTION_GRAD, .declines = declines, .workspace = workspace, .run = run},
};
// clang-format on
EBB_PLAIN_COUNT(heads_grad)
