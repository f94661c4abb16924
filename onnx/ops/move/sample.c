/* sample: rows of a matrix chosen, or mixed, at random.
 *
 *   SampleRows(H [n, d], norms [n], key) {k, stream} -> rows int64[k], weights [k, 1]
 *   RandomSketch(X [n, d], key) {rows, stream} -> Y [rows, d]
 */
#include "onnx/ops/common.h"
#include "onnx/graph/shape.h"

static ebb_status need_key(const ebb_infer *c, uint32_t i)
{
    const ebb_type *key = ebb_infer_type(c, i);
    if (key != NULL &&
        ((key->dtype != EBB_NONE && key->dtype != EBB_I64) || (key->rank >= 0 && key->rank != 1) ||
         (key->rank == 1 && key->dims[0] >= 0 && key->dims[0] != 2)))
        return ebb_infer_error(c, "the key is not int64[2]");
    return NULL;
}

/* Input 0 is a matrix; *n: its rows, -1 where they are not known. */
static ebb_status need_matrix(const ebb_infer *c, int64_t *n)
{
    *n = -1;
    if (c->in[0]->rank >= 0 && c->in[0]->rank != 2)
        return ebb_infer_error(c, "the input has rank %d; a matrix is expected",
                               (int)c->in[0]->rank);
    if (c->in[0]->rank == 2)
        *n = c->in[0]->dims[0];
    return NULL;
}

ebb_status ebb_infer_sample_rows(ebb_infer *c)
{
    int64_t k = ebb_attr_int(&c->attrs, "k", 1), n;
    EBB_TRY(need_matrix(c, &n));
    EBB_TRY(ebb_infer_vector(c, 1, n, "norms"));
    EBB_TRY(need_key(c, 2));
    if (k < 1 || (n >= 0 && k > n))
        return ebb_infer_error(c, "k is %lld, which is not between 1 and the number of rows",
                               (long long)k);
    const int64_t dims[2] = {k, 1};
    c->out[0] = ebb_type_tensor(EBB_I64, 1, dims);
    if (c->output_count > 1)
        c->out[1] = ebb_type_tensor((ebb_dtype)c->in[0]->dtype, 2, dims);
    return NULL;
}

ebb_status ebb_infer_random_sketch(ebb_infer *c)
{
    int64_t rows = ebb_attr_int(&c->attrs, "rows", 1), n;
    EBB_TRY(need_matrix(c, &n));
    EBB_TRY(need_key(c, 1));
    if (rows < 1)
        return ebb_infer_error(c, "rows is %lld", (long long)rows);
    c->out[0] = ebb_type_ranked((ebb_dtype)c->in[0]->dtype, 2);
    ebb_type_set_dim(&c->out[0], 0, rows);
    if (n >= 0 || c->in[0]->rank == 2)
        ebb_type_put_dim(&c->out[0], 1, c->in[0], 1);
    return NULL;
}

/* A product of [rows, n] by [n, d]. */
double ebb_cost_random_sketch(const ebb_infer *c)
{
    const ebb_type *x = ebb_infer_type(c, 0);
    return x == NULL ? 0 : 2 * (double)ebb_attr_int(&c->attrs, "rows", 1) * ebb_type_count(x);
}
