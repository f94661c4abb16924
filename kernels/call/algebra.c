/* algebra.c: see algebra.h. */
#include "kernels/call/algebra.h"

#include <math.h>
#include <string.h>

const char *ebb_einsum_call_read(ebb_einsum *e, const ebb_call *c)
{
    const ebb_type *types[EBB_EINSUM_INPUTS], *y = &c->out[0].type;
    if (c->input_count > EBB_EINSUM_INPUTS)
        return "it has too many inputs";
    for (uint32_t i = 0; i < c->input_count; i++)
        types[i] = &c->in[i].type;
    const char *equation = ebb_attr_string(&c->attrs, "equation", "");
    EBB_ASK(ebb_einsum_read(e, equation, c->input_count, types));
    if (e->out_rank != y->rank)
        return "the output has another rank than the equation";
    for (int d = 0; d < e->out_rank; d++)
        if (e->size[d] != y->dims[d])
            return "the output has another shape than the equation";
    return NULL;
}

static const char *read_matrices(int64_t *n, int64_t *count, const ebb_type *x)
{
    *n = *count = 0;
    if (x->rank < 2 || x->dims[x->rank - 1] != x->dims[x->rank - 2])
        return "the input is not of square matrices";
    *n = x->dims[x->rank - 1];
    *count = 1;
    for (int d = 0; d < x->rank - 2; d++)
        *count *= x->dims[d];
    return NULL;
}

const char *ebb_det_read(int64_t *n, int64_t *count, const ebb_call *c)
{
    const ebb_type *each = c->op == EBB_OP_DET ? &c->out[0].type : &c->in[0].type;
    int64_t matrices;
    const char *why = read_matrices(n, &matrices, &c->in[c->op == EBB_OP_DET ? 0 : 1].type);
    *count = ebb_elements(each);
    return why != NULL                     ? why
           : *count == matrices || *n == 0 ? NULL
                                           : "there is not one number for each matrix";
}

const char *ebb_inverse_read(int64_t *n, int64_t *count, const ebb_call *c)
{
    const char *why = read_matrices(n, count, &c->in[0].type);
    return why != NULL ? why
           : ebb_type_same_shape(&c->in[0].type, &c->out[0].type)
               ? NULL
               : "the output has another shape than the input";
}

/* ---- TfIdfVectorizer ---- */

static const char *read_pool(ebb_gram_pool *p, const ebb_call *c)
{
    const ebb_attr *weights = ebb_attr_find(&c->attrs, "weights");
    p->starts = ebb_attr_ints(&c->attrs, "ngram_counts", &p->lengths);
    p->index = ebb_attr_ints(&c->attrs, "ngram_indexes", &p->grams);
    p->words = ebb_attr_ints(&c->attrs, "pool_int64s", &p->size);
    p->weights = weights != NULL ? weights->floats : NULL;
    p->shortest = ebb_attr_int(&c->attrs, "min_gram_length", 1);
    p->longest = ebb_attr_int(&c->attrs, "max_gram_length", 1);
    p->skip = ebb_attr_int(&c->attrs, "max_skip_count", 0);
    if (p->words == NULL)
        return "its pool is of strings; only integers are supported";
    if (p->shortest < 1 || p->longest < p->shortest || p->skip < 0 || p->skip > INT32_MAX ||
        p->longest > (int64_t)p->lengths)
        return "lengths of n-grams are out of range";
    uint64_t grams = 0;
    for (uint32_t n = 1; n <= p->lengths; n++) {
        int64_t from = p->starts[n - 1], to = ebb_grams_end(p, n);
        if (from < 0 || to < from || to > (int64_t)p->size || (to - from) % n != 0)
            return "ngram_counts does not divide the pool";
        grams += (uint64_t)(to - from) / n;
    }
    if (grams > p->grams || (p->weights != NULL && weights->count < p->grams))
        return "the pool has more n-grams than there are indexes or weights";
    return NULL;
}

const char *ebb_gram_pool_read(ebb_gram_pool *p, const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    if (!ebb_dtype_is_integer((ebb_dtype)x->dtype))
        return "works on integers only";
    EBB_ASK(read_pool(p, c));
    if (x->rank < 1 || y->rank != x->rank)
        return "the input is a scalar, or the output of another rank";
    for (uint32_t i = 0; i < p->grams; i++)
        if (p->index[i] < 0 || p->index[i] >= y->dims[y->rank - 1])
            return "an index is outside of the output";
    return NULL;
}

ebb_gram_mode ebb_gram_mode_of(const ebb_call *c)
{
    const char *mode = ebb_attr_string(&c->attrs, "mode", "TF");
    return strcmp(mode, "IDF") == 0     ? EBB_GRAM_IDF
           : strcmp(mode, "TFIDF") == 0 ? EBB_GRAM_TFIDF
                                        : EBB_GRAM_TF;
}

const char *ebb_sketch_read(ebb_sketch *s, const ebb_call *c)
{
    if (c->input_count < 2 || c->in[0].type.rank != 2 || c->out[0].type.rank != 2)
        return "its operands are no matrices";
    if (c->in[1].type.dtype != EBB_I64 || c->in[1].type.rank != 1 || c->in[1].type.dims[0] != 2)
        return "the key is not int64[2]";
    memset(s, 0, sizeof *s);
    s->n = c->in[0].type.dims[0];
    s->d = c->in[0].type.dims[1];
    s->rows = ebb_attr_int(&c->attrs, "rows", 1);
    s->width = (s->n + 31) / 32;
    if (s->rows < 1 || c->out[0].type.dims[0] != s->rows || c->out[0].type.dims[1] != s->d)
        return "the result does not have the rows that it says, or another width than the input";
    if (s->n > INT32_MAX || s->rows > INT32_MAX)
        return "too many rows";
    s->scale = 1.0 / sqrt((double)s->rows);
    s->stream = (uint32_t)ebb_attr_int(&c->attrs, "stream", 0);
    return NULL;
}

const char *ebb_sketch_misfit(const ebb_call *c)
{
    ebb_sketch read;
    return ebb_sketch_read(&read, c);
}
