/* algebra.cu: Einsum of integers, by its definition, and TfIdfVectorizer. A thread an element.
 *
 * TfIdfVectorizer's pool is an attribute: it lies in the host's memory, and each run copies it into
 * the workspace, in order with all other work. There the n-grams stand by the column that counts
 * them, so that no two threads add to one number:
 *
 *     first of column    0   1 1   2     gram   {words from, n, weight} ...     words   2 3 5 4 ..
 */
#include "kernels/cuda/elements.h"
#include "kernels/call/algebra.h"

/* ---- Einsum ---- */

enum { OPERANDS = 4, LABELS = 16 }; // more stay with the host: arguments of a launch are few

typedef struct whole_einsum_args {
    void *y;
    const void *x[OPERANDS];
    int64_t n, terms;
    int64_t size[LABELS], stride[OPERANDS][LABELS];
    int32_t operands, labels, out_rank;
    uint8_t dtype;
} whole_einsum_args;

/* Elements from place 0 of labels first .. end - 1 to place i, the last label fastest. */
EBB_GPU_INLINE void move_to(const whole_einsum_args *a, int64_t *at, int32_t first, int32_t end,
                            int64_t i)
{
    for (int32_t l = end - 1; l >= first; l--) {
        const int64_t next = i / a->size[l], place = i - next * a->size[l];
        for (int32_t k = 0; k < a->operands; k++)
            at[k] += place * a->stride[k][l];
        i = next;
    }
}

/* Sums wrap around in 64 bits; what then does not fit takes the nearest end. */
EBB_GLOBAL(whole_einsum, whole_einsum_args)
{
    EBB_GRID_LOOP(i, a.n)
    {
        int64_t base[OPERANDS] = {0};
        uint64_t sum = 0;
        move_to(&a, base, 0, a.out_rank, i);
        for (int64_t t = 0; t < a.terms; t++) {
            int64_t at[OPERANDS] = {base[0], base[1], base[2], base[3]};
            uint64_t product = 1;
            move_to(&a, at, a.out_rank, a.labels, t);
            for (int32_t k = 0; k < a.operands; k++)
                product *= (uint64_t)ebb_load_whole(a.x[k], at[k], a.dtype);
            sum += product;
        }
        if (a.dtype == EBB_I64 || a.dtype == EBB_U64)
            ((int64_t *)a.y)[i] = (int64_t)sum;
        else
            ebb_store_real(a.y, i, a.dtype, (double)(int64_t)sum);
    }
}

/* Labels of more than one place, those of the output first. False: too many. */
static bool put_labels(whole_einsum_args *a, const ebb_einsum *e, const ebb_call *c)
{
    memset(a, 0, sizeof *a);
    a->operands = (int32_t)e->inputs;
    a->n = a->terms = 1;
    if (e->inputs > OPERANDS)
        return false;
    for (int l = 0; l < e->labels; l++) {
        if (__builtin_mul_overflow(l < e->out_rank ? a->n : a->terms, e->size[l],
                                   l < e->out_rank ? &a->n : &a->terms))
            return false;
        if (e->size[l] == 1)
            continue;
        if (a->labels == LABELS)
            return false;
        for (uint32_t k = 0; k < e->inputs; k++) {
            const ebb_type *t = &c->in[k].type;
            int64_t strides[EBB_MAX_RANK];
            ebb_strides(strides, t->rank, t->dims);
            for (int d = 0; d < t->rank; d++) // a label that stands twice is a diagonal
                if (e->label[k][d] == l && t->dims[d] != 1)
                    a->stride[k][a->labels] += strides[d];
        }
        a->size[a->labels++] = e->size[l];
        a->out_rank += l < e->out_rank;
    }
    return true;
}

static const char *declines_einsum(const ebb_call *c)
{
    ebb_einsum e;
    whole_einsum_args a;
    if (!ebb_dtype_is_integer((ebb_dtype)c->in[0].type.dtype))
        return "works on integers only";
    const char *why = ebb_call_any(c);
    if (why == NULL)
        why = ebb_einsum_call_read(&e, c);
    for (uint32_t k = 0; why == NULL && k < c->input_count; k++)
        if (c->in[k].type.dtype != c->out[0].type.dtype)
            why = "operands differ in dtype";
    return why != NULL             ? why
           : put_labels(&a, &e, c) ? NULL
                                   : "its operands or axes are too many for a kernel";
}

static ebb_status run_einsum(const ebb_call *c)
{
    ebb_einsum e;
    whole_einsum_args a;
    const char *why = ebb_einsum_call_read(&e, c);
    if (why == NULL && !put_labels(&a, &e, c))
        why = "its operands or axes are too many";
    if (why != NULL)
        return ebb_call_error(c, "%s", why);
    for (uint32_t k = 0; k < e.inputs; k++)
        a.x[k] = c->in[k].data;
    a.y = c->out[0].data;
    a.dtype = c->out[0].type.dtype;
    return EBB_LAUNCH(c, whole_einsum, ebb_cuda_grid(a.n), EBB_CUDA_BLOCK, 0, a);
}

/* ---- TfIdfVectorizer ---- */

typedef struct gram { /* n words from `from` on; n 0: it is not counted, but has a weight */
    int64_t from;
    int32_t n;
    float weight;
} gram;

typedef struct gram_args {
    float *y;
    const void *x;
    const int64_t *words;
    const gram *grams;     /* by column */
    const uint32_t *first; /* [width + 1], of a column's */
    int64_t rows, length, width, skip;
    int32_t mode; /* ebb_gram_mode */
    uint8_t dtype;
} gram_args;

/* Whether the words that begin at `at`, `step` apart, are this n-gram. */
EBB_GPU_INLINE bool is_gram(const gram_args *a, const gram *g, int64_t at, int64_t step)
{
    for (int64_t k = 0; k < g->n; k++)
        if (ebb_load_whole(a->x, at + k * step, a->dtype) != a->words[g->from + k])
            return false;
    return true;
}

EBB_GLOBAL(count_grams, gram_args)
{
    EBB_GRID_LOOP(i, a.rows * a.width)
    {
        const int64_t row = i / a.width, column = i - row * a.width;
        float count = 0;
        for (uint32_t k = a.first[column]; k < a.first[column + 1]; k++) {
            const gram *g = &a.grams[k];
            const int64_t skips = g->n == 1 ? 0 : a.skip; // a single word has nothing between
            for (int64_t skip = 0; g->n > 0 && skip <= skips && skip < a.length; skip++)
                for (int64_t at = 0; at + (g->n - 1) * (skip + 1) < a.length; at++)
                    count += is_gram(&a, g, row * a.length + at, skip + 1) ? 1.0f : 0.0f;
        }
        for (uint32_t k = a.first[column]; k < a.first[column + 1]; k++)
            count = a.mode == EBB_GRAM_IDF     ? (count > 0 ? a.grams[k].weight : 0)
                    : a.mode == EBB_GRAM_TFIDF ? count * a.grams[k].weight
                                               : count;
        a.y[i] = count;
    }
}

typedef struct pool_room { /* bytes from the workspace's start: grams lie there first */
    size_t words, first, bytes;
} pool_room;

static bool room_of(pool_room *r, const ebb_gram_pool *p, int64_t width)
{
    size_t words, firsts;
    return ebb_size_mul(&r->words, p->grams, sizeof(gram)) &&
           ebb_size_mul(&words, p->size, sizeof(int64_t)) &&
           ebb_size_add(&r->first, r->words, words) &&
           ebb_size_mul(&firsts, (size_t)width + 1, sizeof(uint32_t)) &&
           ebb_size_add(&r->bytes, r->first, firsts);
}

static int64_t width_of(const ebb_call *c)
{
    return c->out[0].type.dims[c->out[0].type.rank - 1];
}

static ebb_status grams_workspace(const ebb_call *c, size_t *bytes)
{
    ebb_gram_pool p;
    pool_room r;
    const char *why = ebb_gram_pool_read(&p, c);
    if (why == NULL && !room_of(&r, &p, width_of(c)))
        why = "its pool passes what memory can be";
    if (why != NULL)
        return ebb_call_error(c, "%s", why);
    *bytes = r.bytes;
    return NULL;
}

/* N-grams in the order of the pool, behind those of the columns before theirs. */
static void put_pool(char *to, const pool_room *r, const ebb_gram_pool *p, int64_t width)
{
    gram *grams = (gram *)(void *)to;
    uint32_t *first = (uint32_t *)(void *)(to + r->first), n = 0;
    if (p->size > 0)
        memcpy(to + r->words, p->words, p->size * sizeof *p->words);
    memset(first, 0, ((size_t)width + 1) * sizeof *first);
    for (uint32_t g = 0; g < p->grams; g++)
        first[p->index[g] + 1]++;
    for (int64_t k = 0; k < width; k++)
        first[k + 1] += first[k];
    int64_t at = 0;
    for (uint32_t g = 0; g < p->grams; g++) {
        while (n < p->lengths && (n == 0 || at >= ebb_grams_end(p, n)))
            at = p->starts[n++];
        const bool there = n > 0 && at < ebb_grams_end(p, n);
        gram v = {at, 0, p->weights != NULL ? p->weights[g] : 1.0f};
        if (there && (int64_t)n >= p->shortest && (int64_t)n <= p->longest)
            v.n = (int32_t)n;
        at += there ? (int64_t)n : 0;
        grams[first[p->index[g]]++] = v;
    }
    for (int64_t k = width; k > 0; k--) // each is where the next begins now
        first[k] = first[k - 1];
    first[0] = 0;
}

static ebb_status prepare_grams(ebb_call *c)
{
    ebb_gram_pool p;
    pool_room r;
    EBB_MUST_FIT(c, ebb_gram_pool_read(&p, c));
    (void)room_of(&r, &p, width_of(c)); // the workspace has been asked for
    EBB_TRY(ebb_gpu_stage(r.bytes, &c->state));
    put_pool((char *)c->state, &r, &p, width_of(c));
    return NULL;
}

static void release_grams(ebb_call *c)
{
    if (c->state != NULL)
        ebb_gpu_unstage(c->state);
    c->state = NULL;
}

static ebb_status run_grams(const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type;
    ebb_gram_pool p;
    pool_room r;
    gram_args a;
    (void)ebb_gram_pool_read(&p, c); // prepare() has
    memset(&a, 0, sizeof a);
    a.width = width_of(c);
    (void)room_of(&r, &p, a.width);
    EBB_TRY(ebb_gpu_copy_later(ebb_cuda_queue_of(c)->stream, c->workspace, c->state, r.bytes,
                               EBB_TO_DEVICE));
    a.y = (float *)c->out[0].data;
    a.x = c->in[0].data;
    a.grams = (const gram *)c->workspace;
    a.words = (const int64_t *)(void *)((char *)c->workspace + r.words);
    a.first = (const uint32_t *)(void *)((char *)c->workspace + r.first);
    a.rows = x->rank == 2 ? x->dims[0] : 1;
    a.length = x->dims[x->rank - 1];
    a.skip = p.skip;
    a.mode = (int32_t)ebb_gram_mode_of(c);
    a.dtype = x->dtype;
    return EBB_LAUNCH(c, count_grams, ebb_cuda_grid(a.rows * a.width), EBB_CUDA_BLOCK, 0, a);
}

static const char *misfit_grams(const ebb_call *c)
{
    ebb_gram_pool p;
    const char *why = ebb_gram_pool_read(&p, c);
    return why == NULL && c->out[0].type.dtype != EBB_F32 ? "the output is not float32" : why;
}

// clang-format off
const ebb_kernel ebb_cuda_algebra[] = {
    {.name = "cuda.einsum_whole", .op = EBB_OP_EINSUM,            .fits = declines_einsum, .run = run_einsum},
    {.name = "cuda.tf_idf",       .op = EBB_OP_TF_IDF_VECTORIZER, .dtypes = ebb_call_any, .fits = misfit_grams, .workspace = grams_workspace, .prepare = prepare_grams, .run = run_grams, .release = release_grams},
};
// clang-format on
EBB_CUDA_COUNT(algebra)
