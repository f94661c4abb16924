/* algebra_grad: gradients of Einsum, of determinants and of inverses.
 *
 * A sum of products is linear in each of its inputs, so that an input's gradient is a sum of
 * products too, of dy and the other inputs:
 *
 *   y = "ij,jk->ik"(a, b)        da = "ik,jk->ij"(dy, b)        db = "ik,ij->jk"(dy, a)
 *
 * What the equation cannot say is said by nodes: letters that only this input has are spread, those
 * along which it was broadcast are summed, and a letter that it has twice keeps the diagonal.
 */
#include "onnx/words/einsum.h"
#include "onnx/ops/common.h"

enum { LETTERS = 52, EQUATION = 2 * EBB_MAX_RANK * EBB_EINSUM_INPUTS };

typedef struct terms { /* of the equation of one input's gradient */
    char text[EQUATION];
    size_t length;
    ebb_value in[EBB_EINSUM_INPUTS + 1];
    uint32_t count;
    bool has[EBB_EINSUM_LABELS];     /* the label is in one of the terms */
    int64_t size[EBB_EINSUM_LABELS]; /* and is this long there */
    ebb_value factor;                /* a scalar that is multiplied in; none: 1 */
} terms;

static void put(terms *t, char letter)
{
    if (t->length + 1 < EQUATION)
        t->text[t->length++] = letter;
}

static char letter_of(int label)
{
    return (char)(label < 26 ? 'a' + label : 'A' + label - 26);
}

/* One input of the new equation; scalars are factors, for not every runtime knows an empty term. */
static void add_term(ebb_build *b, terms *t, ebb_value v, const int8_t *label, const ebb_type *type)
{
    if (type->rank == 0) {
        t->factor = t->factor.i == 0 ? v : ebb_emit(b, EBB_OP_MUL, t->factor, v);
        return;
    }
    if (t->count > 0)
        put(t, ',');
    for (int d = 0; d < type->rank; d++) {
        int l = label[d];
        put(t, letter_of(l));
        if (!t->has[l] || type->dims[d] > t->size[l])
            t->size[l] = type->dims[d];
        t->has[l] = true;
    }
    t->in[t->count++] = v;
}

/* An earlier dim of the same letter and size, whose diagonal was taken with this one; else -1. */
static int earlier(const int8_t *label, const ebb_type *x, int d)
{
    for (int k = 0; k < d; k++)
        if (label[k] == label[d] && x->dims[k] == x->dims[d])
            return k;
    return -1;
}

/* The sum over all letters but those that the terms share with the input, in the input's order; its
 * shape is then [size or 1 for each dim of the input]. */
static ebb_value contract(ebb_build *b, terms *t, const int8_t *label, const ebb_type *x)
{
    int64_t dims[EBB_MAX_RANK];
    bool placed[EBB_EINSUM_LABELS] = {false};
    ebb_value g = EBB_NO_VALUE;
    put(t, '-');
    put(t, '>');
    for (int d = 0; d < x->rank; d++) {
        int l = label[d];
        bool kept = t->has[l] && !placed[l] && (x->dims[d] != 1 || t->size[l] == 1);
        dims[d] = kept ? t->size[l] : 1;
        placed[l] = placed[l] || kept;
        if (kept)
            put(t, letter_of(l));
    }
    t->text[t->length] = '\0';
    if (t->count > 0) {
        ebb_with_string(b, "equation", t->text);
        g = ebb_emit_list(b, EBB_OP_EINSUM, t->in, t->count);
        if (t->factor.i != 0)
            g = ebb_emit(b, EBB_OP_MUL, g, t->factor);
    } else {
        g = t->factor;
    }
    return ebb_emit_reshape(b, g, dims, x->rank);
}

static void give(ebb_build *b, ebb_grad *c, const ebb_einsum *e, uint32_t i)
{
    const int8_t *label = e->label[i];
    ebb_type x = *ebb_build_type(b, c->x[i]);
    int8_t out[EBB_MAX_RANK];
    terms t = {.length = 0};
    for (int d = 0; d < e->out_rank; d++)
        out[d] = (int8_t)d;
    add_term(b, &t, c->dy[0], out, ebb_build_type(b, c->dy[0]));
    for (uint32_t k = 0; k < e->inputs && b->status == NULL; k++)
        if (k != i)
            add_term(b, &t, c->x[k], e->label[k], ebb_build_type(b, c->x[k]));
    if (b->status != NULL)
        return;
    ebb_value g = ebb_emit_expand_like(b, contract(b, &t, label, &x), c->x[i]);
    for (int d = 0; d < x.rank; d++) {
        int first = earlier(label, &x, d);
        if (first < 0)
            continue;
        ebb_value row = ebb_emit_counted(b, x.dims[first], 1, first, x.rank),
                  column = ebb_emit_counted(b, x.dims[d], 1, d, x.rank);
        ebb_value same = ebb_emit(b, EBB_OP_EQUAL, row, column);
        g = ebb_emit(b, EBB_OP_WHERE, same, g, ebb_const_like(b, c->x[i], 0.0));
    }
    c->dx[i] = g;
}

void ebb_grad_einsum(ebb_build *b, ebb_grad *c)
{
    const ebb_type *types[EBB_EINSUM_INPUTS];
    ebb_einsum e;
    for (uint32_t i = 0; i < c->input_count && i < EBB_EINSUM_INPUTS; i++) {
        ebb_type type;
        types[i] = ebb_build_type(b, c->x[i]);
        if (!ebb_grad_shape(b, c, c->x[i], &type))
            return;
    }
    const char *wrong =
        ebb_einsum_read(&e, ebb_attr_string(&c->attrs, "equation", ""), c->input_count, types);
    if (wrong == NULL && e.labels > LETTERS)
        wrong = "its equation has more letters than the alphabet";
    if (wrong != NULL) {
        ebb_grad_fail(b, c, wrong);
        return;
    }
    for (uint32_t i = 0; i < c->input_count; i++)
        if (ebb_grad_wants(c, i))
            give(b, c, &e, i);
}

/* y = det X.  dX = dy times the cofactors of X. */
void ebb_grad_det(ebb_build *b, ebb_grad *c)
{
    c->dx[0] = ebb_emit(b, EBB_OP_DET_GRAD, c->dy[0], c->x[0]);
}

/* Y = X^-1.  dX = -Y^T dY Y^T.  Needs Y only. */
void ebb_grad_inverse(ebb_build *b, ebb_grad *c)
{
    ebb_type y;
    int64_t perm[EBB_MAX_RANK];
    if (!ebb_grad_shape(b, c, c->y[0], &y))
        return;
    for (int d = 0; d < y.rank; d++)
        perm[d] = d < y.rank - 2 ? d : 2 * y.rank - 3 - d;
    ebb_value turned = ebb_emit_transpose(b, c->y[0], perm, y.rank);
    ebb_value left = ebb_emit(b, EBB_OP_MATMUL, turned, c->dy[0]);
    c->dx[0] = ebb_emit(b, EBB_OP_NEG, ebb_emit(b, EBB_OP_MATMUL, left, turned));
}
