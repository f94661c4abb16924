/* attention.c: shapes, strides and attributes of attention, and which probabilities are dropped. */
#include "kernels/call/attention.h"

#include "kernels/draws.h"
#include "kernels/parallel.h"
#include "kernels/math/philox.h"

#include <math.h>

enum { Q, K, V, KEEP, BIAS };

bool ebb_attention_is_grad(ebb_op op)
{
    return op == EBB_OP_EBB_ATTENTION_GRAD || op == EBB_OP_EBB_ATTENTION_DROPOUT_GRAD;
}

static bool draws(ebb_op op)
{
    return op == EBB_OP_EBB_ATTENTION_DROPOUT || op == EBB_OP_EBB_ATTENTION_DROPOUT_GRAD;
}

/* Row-major strides of a mask, 0 where it has one element for many. */
static bool read_mask(ebb_attention_mask *m, const ebb_attention *a, const ebb_type *type)
{
    int64_t step = 1;
    if (type->rank > a->rank)
        return false;
    m->single = true;
    for (int i = a->rank - 1; i >= 0; i--) {
        int own = i - (a->rank - type->rank);
        int64_t size = own < 0 ? 1 : type->dims[own];
        if (size != 1 && size != a->dims[i])
            return false;
        m->stride[i] = size == 1 ? 0 : step;
        m->single = m->single && size == 1;
        step *= size;
    }
    return true;
}

static bool is_row_major(const ebb_operand *o)
{
    return o->type.dtype == EBB_NONE || o->type.layout.kind == EBB_LAYOUT_PLAIN;
}

static const char *read_shapes(ebb_attention *a, const ebb_call *call, uint32_t first)
{
    const ebb_type *q = &call->in[first + Q].type, *k = &call->in[first + K].type;
    const ebb_type *v = &call->in[first + V].type;
    uint32_t count = 0;
    const int64_t *perm = ebb_attr_ints(&call->attrs, "k_perm", &count);
    int rank = q->rank;
    if (rank < 2 || k->rank != rank || v->rank != rank || perm == NULL || count != (uint32_t)rank)
        return "Q, K, V and k_perm disagree in rank";
    bool turned = perm[rank - 1] == rank - 2; // K is [t, d]
    int keys = turned ? rank - 2 : rank - 1, features = turned ? rank - 1 : rank - 2;
    a->rank = rank;
    a->heads = 1;
    for (int i = 0; i < rank - 2; i++) {
        if (perm[i] != i || k->dims[i] != q->dims[i] || v->dims[i] != q->dims[i])
            return "Q, K and V have other heads";
        a->dims[i] = q->dims[i];
        a->heads *= q->dims[i];
    }
    a->s = a->dims[rank - 2] = q->dims[rank - 2];
    a->t = a->dims[rank - 1] = k->dims[keys];
    a->d = q->dims[rank - 1];
    a->e = v->dims[rank - 1];
    a->key_stride = turned ? a->d : 1;
    a->feature_stride = turned ? 1 : a->t;
    if (a->t < 1 || a->d < 1)
        return "there are no keys or no features";
    if (perm[rank - 2] != features || perm[rank - 1] != keys || k->dims[features] != a->d ||
        v->dims[rank - 2] != a->t)
        return "the shapes of Q, K and V disagree";
    if (!read_mask(&a->keep, a, &call->in[first + KEEP].type) ||
        !read_mask(&a->bias, a, &call->in[first + BIAS].type))
        return "a mask does not broadcast to the scores";
    return NULL;
}

/* Operand i, where it is wanted, has n elements of the dtype. */
static bool fits(const ebb_operand *o, ebb_dtype dtype, int64_t n)
{
    return o->type.dtype == EBB_NONE ||
           (o->type.dtype == dtype && is_row_major(o) && ebb_elements(&o->type) == n);
}

/* Where the rows of the output lie that a gradient may be given, as its input i. */
static const char *read_output(ebb_attention *a, const ebb_call *call, uint32_t i)
{
    const ebb_type *y = &call->in[i].type;
    const int rank = a->rank;
    int64_t stride[EBB_MAX_RANK], step = 1;
    uint32_t count = 0, seen = 0;
    const int64_t *perm = ebb_attr_ints(&call->attrs, "y_perm", &count);
    if (y->rank != rank || !is_row_major(&call->in[i]) || (perm != NULL && count != (uint32_t)rank))
        return "Y has another shape";
    for (int d = rank - 1; d >= 0; d--) {
        stride[d] = step;
        step *= y->dims[d];
    }
    for (int d = 0; d < rank; d++) {
        const int64_t from = perm == NULL ? d : perm[d];
        if (from < 0 || from >= rank || (seen >> from & 1) != 0 || (d == rank - 1 && from != d))
            return "y_perm is no order of the axes with the last one last";
        seen |= UINT32_C(1) << from;
        if (y->dims[from] != (d < rank - 1 ? a->dims[d] : a->e))
            return "Y has another shape";
        a->result.stride[d] = d < rank - 1 ? stride[from] : 0;
    }
    a->y = i;
    return y->dtype == call->in[1 + Q].type.dtype ? NULL : "Y is of another dtype";
}

static const char *check_rest(const ebb_attention *a, const ebb_call *call)
{
    ebb_dtype dtype = (ebb_dtype)call->in[ebb_attention_first(call->op)].type.dtype;
    const ebb_dtype kept = ebb_dtype_bits(dtype) == 16 ? EBB_F32 : dtype; // of the statistics
    const int64_t rows = a->heads * a->s, keys = a->heads * a->t;
    if (!ebb_attention_is_grad(call->op)) {
        if (!fits(&call->out[0], dtype, rows * a->e))
            return "the result has another shape";
        for (uint32_t o = 1; o < call->output_count; o++)
            if (!fits(&call->out[o], kept, rows))
                return "the statistics are not one number a row";
        return NULL;
    }
    if (!fits(&call->in[0], dtype, rows * a->e) || call->in[0].type.dtype == EBB_NONE)
        return "dY has another shape";
    for (uint32_t i = 6; i < 8; i++)
        if (!fits(&call->in[i], kept, rows) || call->in[i].type.dtype == EBB_NONE)
            return "the statistics are not one number a row";
    const int64_t sizes[3] = {rows * a->d, keys * a->d, keys * a->e};
    for (uint32_t o = 0; o < call->output_count && o < 3; o++)
        if (!fits(&call->out[o], dtype, sizes[o]))
            return "a gradient has another shape";
    return NULL;
}

const char *ebb_attention_read(ebb_attention *a, const ebb_call *call)
{
    *a = (ebb_attention){.heads = 0};
    const ebb_attrs *attrs = &call->attrs;
    uint32_t first = ebb_attention_first(call->op);
    bool drops = draws(call->op);
    uint32_t count = first == 1 ? (drops ? 9 : 8) : (drops ? 6 : 5);
    if (call->input_count < count || call->output_count < 1)
        return "operands are missing";
    for (uint32_t i = 0; i < count; i++)
        if (!is_row_major(&call->in[i]))
            return "an operand is not row-major";
    ebb_dtype dtype = (ebb_dtype)call->in[first + Q].type.dtype;
    if (!ebb_dtype_is_float(dtype))
        return "computes in float16, bfloat16, float32 and float64 only";
    if (call->in[first + K].type.dtype != dtype || call->in[first + V].type.dtype != dtype ||
        call->in[first + BIAS].type.dtype != dtype || call->in[first + KEEP].type.dtype != EBB_BOOL)
        return "the dtypes of its operands disagree";
    EBB_ASK(read_shapes(a, call, first));
    a->scale = ebb_attr_float(attrs, "scale", 1.0);
    a->fill = ebb_attr_float(attrs, "fill", -(double)INFINITY);
    a->causal = ebb_attr_int(attrs, "causal", 0) != 0;
    a->replace = ebb_attr_int(attrs, "replace", 0) != 0;
    a->guard = ebb_attr_int(attrs, "guard", 0) != 0;
    if (drops) {
        const ebb_operand *key = &call->in[count - 1];
        a->key = count - 1;
        a->ratio = ebb_attr_float(attrs, "ratio", 0.0);
        if (!(a->ratio >= 0.0 && a->ratio < 1.0))
            return "ratio is outside of [0, 1)";
        if (!ebb_is_draws_key(key))
            return "the key is not int64[2] or int64[4]";
        a->run = ebb_draws_run(call, key, a->heads * a->s * a->t);
        a->threshold = ebb_dropout_threshold(a->ratio);
        a->stream = (uint32_t)ebb_attr_int(attrs, "stream", 0);
        a->drops = a->threshold > 0;
    }
    if (first == 1 && ebb_call_has(call, count))
        EBB_ASK(read_output(a, call, count));
    return check_rest(a, call);
}

int64_t ebb_attention_row(const ebb_attention *a, const ebb_attention_mask *m, int64_t head,
                          int64_t i)
{
    int64_t at = i * m->stride[a->rank - 2];
    for (int axis = a->rank - 3; axis >= 0; axis--) {
        at += head % a->dims[axis] * m->stride[axis];
        head /= a->dims[axis];
    }
    return at;
}

void ebb_attention_kept(uint8_t *kept, const ebb_attention *a, const int64_t *key, int64_t first,
                        int64_t count)
{
    enum { PIECE = 256 };
    const uint32_t threshold = a->threshold;
    const ebb_draws d = {.seed = (uint64_t)key[0],
                         .step = (uint64_t)key[1],
                         .stream = a->stream,
                         .part = a->run > 0 ? key[2] : 0,
                         .parts = a->run > 0 ? key[3] : 1,
                         .run = a->run};
    for (int64_t from = 0, n; from < count; from += n) {
        uint32_t words[PIECE];
        n = count - from < PIECE ? count - from : PIECE;
        ebb_draw(words, &d, first + from, n);
        EBB_SIMD
        for (int64_t i = 0; i < n; i++)
            kept[from + i] = words[i] >= threshold;
    }
}
