/* drop_path: where an exporter wrote dropout as arithmetic.
 *
 *   u = RandomUniformLike(..)  k = Less(u, keep)  b = Cast(k)  d = Div(b, keep)  y = Mul(x, d)
 *   u = RandomUniformLike(..)  a = Add(u, keep)  b = Floor(a)  s = Div(x, keep)  y = Mul(s, b)
 *
 * b is 1 with probability `keep`, else 0. Where u has one number for each sample this is stochastic
 * depth (Huang et al. 2016): a whole path is dropped. Where it has one for each element it is
 * dropout in place, which one exporter takes apart. Left like that it would draw from the operator,
 * whose numbers no key determines, and nothing could switch it off.
 */
#include "passes/primal/drop_path.h"

#include "passes/common.h"

static ebb_node producer(const ebb_graph *g, ebb_value v, ebb_op op)
{
    ebb_node n = v.i != 0 ? ebb_value_of(g, v)->producer : EBB_NO_NODE;
    return n.i != 0 && ebb_node_of(g, n)->op == op ? n : EBB_NO_NODE;
}

static bool read_by_one(const ebb_graph *g, ebb_value v)
{
    return ebb_only_user(g, v).i != 0;
}

static bool is_uniform(const ebb_graph *g, ebb_value v)
{
    ebb_node n = producer(g, v, EBB_OP_RANDOM_UNIFORM_LIKE);
    if (n.i == 0)
        n = producer(g, v, EBB_OP_RANDOM_UNIFORM);
    if (n.i == 0 || !read_by_one(g, v))
        return false;
    ebb_attrs attrs = ebb_node_attrs(g, n);
    return !(ebb_attr_float(&attrs, "low", 0) != 0) && !(ebb_attr_float(&attrs, "high", 1) != 1);
}

/* v is 1 with probability keep, else 0, by the uniform numbers `drawn`. */
static bool is_bernoulli(const ebb_graph *g, ebb_value v, ebb_value *drawn, double *keep)
{
    ebb_node n = EBB_NO_NODE;
    if (!read_by_one(g, v))
        return false;
    if ((n = producer(g, v, EBB_OP_FLOOR)).i != 0) {
        ebb_value sum = ebb_in(g, n, 0);
        if ((n = producer(g, sum, EBB_OP_ADD)).i == 0 || !read_by_one(g, sum))
            return false;
        uint32_t side = is_uniform(g, ebb_in(g, n, 0)) ? 0 : 1;
        *drawn = ebb_in(g, n, side);
        return is_uniform(g, *drawn) && ebb_scalar_of(g, ebb_in(g, n, 1 - side), keep);
    }
    if ((n = producer(g, v, EBB_OP_CAST)).i == 0 && (n = producer(g, v, EBB_OP_CAST_LIKE)).i == 0)
        return false;
    ebb_value kept = ebb_in(g, n, 0);
    if ((n = producer(g, kept, EBB_OP_LESS)).i == 0 || !read_by_one(g, kept))
        return false;
    *drawn = ebb_in(g, n, 0);
    return is_uniform(g, *drawn) && ebb_scalar_of(g, ebb_in(g, n, 1), keep);
}

/* v = Div(of, keep), read by one node: `of`, or none. */
static ebb_value divided(const ebb_graph *g, ebb_value v, double *by)
{
    ebb_node n = producer(g, v, EBB_OP_DIV);
    if (n.i == 0 || !read_by_one(g, v) || !ebb_scalar_of(g, ebb_in(g, n, 1), by))
        return EBB_NO_VALUE;
    return ebb_in(g, n, 0);
}

static bool same_dims(const ebb_type *a, const ebb_type *b)
{
    int64_t count;
    if (a->rank != b->rank || !ebb_type_elements(a, &count) || !ebb_type_elements(b, &count))
        return false;
    for (int d = 0; d < a->rank; d++)
        if (a->dims[d] != b->dims[d])
            return false;
    return true;
}

bool ebb_drop_path_at(const ebb_graph *g, ebb_node n, ebb_drop_path *found)
{
    if (ebb_node_of(g, n)->op != EBB_OP_MUL)
        return false;
    for (uint32_t side = 0; side < 2; side++) {
        ebb_value left = ebb_in(g, n, side), right = ebb_in(g, n, 1 - side);
        double by = 0;
        ebb_value of = divided(g, right, &by);
        bool drops = false;
        if (of.i != 0 && is_bernoulli(g, of, &found->drawn, &found->keep)) {
            found->x = left;
            drops = true;
        } else if (of.i != 0 && is_bernoulli(g, left, &found->drawn, &found->keep)) {
            found->x = of;
            drops = true;
        }
        double off = by - found->keep;
        if (!drops || !(found->keep > 0 && found->keep <= 1) || off > 1e-6 || off < -1e-6)
            continue;
        found->elements =
            same_dims(ebb_value_of(g, found->x)->type, ebb_value_of(g, found->drawn)->type);
        return true;
    }
    return false;
}
