/* linear.c: the weight gradients of linear layers, by the input that they read. */
#include "passes/memory/linear.h"

#include "exec/weigh/memory.h"
#include "passes/memory/decode.h"

#include <math.h>

static bool is_served(const ebb_graph *g, ebb_value v)
{
    ebb_op op = ebb_producer_op(g, v);
    ebb_node maker = ebb_value_of(g, v)->producer;
    return op == EBB_OP_RANDOM_SKETCH ||
           (op == EBB_OP_GATHER && ebb_producer_op(g, ebb_in(g, maker, 1)) == EBB_OP_SAMPLE_ROWS);
}

/* Whether n is the weight gradient of a linear layer. */
static bool read_site(ebb_linear_site *site, const ebb_graph *g, const ebb_saves *saves, ebb_node n)
{
    ebb_op op = ebb_node_of(g, n)->op;
    ebb_attrs attrs = ebb_node_attrs(g, n);
    bool of_forward[2];
    if ((op != EBB_OP_GEMM && op != EBB_OP_FUSED_MATMUL) || !ebb_is_backward(g, n) ||
        ebb_in(g, n, 2).i != 0 || ebb_attr_int(&attrs, "transA", 0) == 0 ||
        ebb_attr_int(&attrs, "transB", 0) != 0)
        return false;
    for (uint32_t i = 0; i < 2; i++) {
        ebb_value v = ebb_in(g, n, i), root = ebb_saves_root(saves, v);
        if (v.i == 0 || ebb_value_of(g, v)->type->rank != 2 || is_served(g, v))
            return false;
        of_forward[i] = root.i < saves->value_count && saves->forward[root.i];
    }
    *site = (ebb_linear_site){n, of_forward[0] ? 0 : 1};
    return of_forward[0] != of_forward[1];
}

static const char *refused(const ebb_graph *g, const ebb_saves *saves,
                           const ebb_linear_group *group)
{
    const ebb_type *root = ebb_value_of(g, group->root)->type;
    int64_t elements, d;
    if (saves->kept[group->root.i])
        return "its input stays to the end of the step anyway";
    if (saves->reads[group->root.i] > group->count + ebb_letting_go(g, group->root))
        return "the backward reads its input for another reason";
    if (!ebb_type_elements(root, &elements) || group->n < 1 || group->d < 1)
        return "its shapes are not known";
    if (!ebb_dtype_is_float((ebb_dtype)root->dtype))
        return "its input has no floats";
    if (__builtin_mul_overflow(group->n, group->d, &d) || d != elements)
        return "its input is read in part";
    for (size_t i = 0; i < group->count; i++) {
        ebb_linear_site s = group->sites[i];
        const ebb_type *h = ebb_value_of(g, ebb_in(g, s.node, s.slot))->type;
        const ebb_type *other = ebb_value_of(g, ebb_in(g, s.node, 1 - s.slot))->type;
        if (h->dims[0] != group->n || h->dims[1] != group->d)
            return "layers read its input as matrices of different rows";
        if (other->dims[0] != group->n || other->dims[1] < 1 || other->dtype != root->dtype)
            return "its shapes are not known";
    }
    return NULL;
}

/* All groups, in the order of their first sites, in e's scratch memory. Sites that sample-matmul or
 * sparsify has served already are none. */
static ebb_status linear_groups(ebb_edit *e, const ebb_linear_group **groups, size_t *count)
{
    ebb_graph *g = e->g;
    ebb_saves saves;
    EBB_TRY(ebb_saves_find(&saves, g, e->scratch));
    ebb_linear_group *list = EBB_SCRATCH(e, ebb_linear_group, g->node_count);
    ebb_linear_site *sites = EBB_SCRATCH(e, ebb_linear_site, g->node_count);
    size_t *group_of = EBB_SCRATCH(e, size_t, saves.value_count); // by root: + 1
    EBB_GOT(list && sites && group_of);
    *count = 0;
    ebb_linear_site s;
    EBB_EACH_NODE(g, n) { // how many each has
        if (!read_site(&s, g, &saves, n))
            continue;
        ebb_value h = ebb_in(g, n, s.slot), root = ebb_saves_root(&saves, h);
        const ebb_type *t = ebb_value_of(g, h)->type;
        if (group_of[root.i] == 0) {
            group_of[root.i] = ++*count;
            list[*count - 1] = (ebb_linear_group){root, t->dims[0], t->dims[1], NULL, 0, NULL};
        }
        list[group_of[root.i] - 1].count++;
    }
    size_t first = 0;
    for (size_t i = 0; i < *count; i++) {
        list[i].sites = sites + first;
        first += list[i].count;
        list[i].count = 0;
    }
    EBB_EACH_NODE(g, n) {
        if (!read_site(&s, g, &saves, n))
            continue;
        ebb_linear_group *own = &list[group_of[ebb_saves_root(&saves, ebb_in(g, n, s.slot)).i] - 1];
        sites[(size_t)(own->sites - sites) + own->count++] = s;
    }
    for (size_t i = 0; i < *count; i++)
        list[i].refused = refused(g, &saves, &list[i]);
    *groups = list;
    return NULL;
}

/* How many of n rows a ratio leaves: at least one. */
static int64_t linear_rows(int64_t n, double ratio)
{
    int64_t k = (int64_t)floor(ratio * (double)n + 0.5);
    return k < 1 ? 1 : k < n ? k : n;
}

int64_t ebb_linear_bytes(const ebb_graph *g, const ebb_linear_group *group, int64_t rows,
                         int64_t columns)
{
    const ebb_type *root = ebb_value_of(g, group->root)->type;
    const int64_t dims[2] = {rows, columns};
    ebb_type t = ebb_type_tensor((ebb_dtype)root->dtype, 2, dims);
    size_t bytes;
    if (!ebb_type_bytes(&t, &bytes) || bytes > INT64_MAX / 2)
        return INT64_MAX / 4;
    return ((int64_t)bytes + EBB_ALIGN - 1) / EBB_ALIGN * EBB_ALIGN;
}

int64_t ebb_linear_columns(const ebb_graph *g, const ebb_linear_site *site)
{
    return ebb_value_of(g, ebb_in(g, site->node, 1 - site->slot))->type->dims[1];
}

static ebb_status decline(ebb_edit *e, const ebb_linear_group *group, const char *reason)
{
    for (size_t i = 0; i < group->count; i++)
        EBB_TRY(ebb_declined(e, group->sites[i].node, reason));
    return NULL;
}

ebb_status ebb_linear_visit(ebb_edit *e, const ebb_linear_plan *plan)
{
    const ebb_linear_group *groups;
    size_t count;
    EBB_TRY(linear_groups(e, &groups, &count));
    for (size_t i = 0; i < count; i++) {
        const ebb_linear_group *group = &groups[i];
        if (group->refused != NULL) {
            EBB_TRY(decline(e, group, group->refused));
            continue;
        }
        int64_t k = linear_rows(group->n, plan->ratio);
        ebb_offer offer = {
            .value = group->root, .saved_bytes = ebb_stored_bytes(e->g, group->root), .error = 1};
        plan->weigh(&offer, e->g, group, k);
        if (k >= group->n || offer.saved_bytes <= 0) {
            EBB_TRY(
                decline(e, group, "its input is so small that less of it would not be smaller"));
            continue;
        }
        for (size_t s = 0; s < group->count; s++)
            ebb_found(e);
        if (!ebb_offered(e, group->sites[0].node, &offer)) { // which has counted the first
            for (size_t s = 1; s < group->count; s++)
                EBB_TRY(ebb_skipped(e, group->sites[s].node, "the plan does without it"));
            continue;
        }
        EBB_TRY(plan->rewrite(e, group, k));
        EBB_TRY(ebb_let_go(e->g, group->root));
        for (size_t s = 0; s < group->count; s++)
            ebb_applied(e);
    }
    return NULL;
}

ebb_build ebb_linear_after(ebb_edit *e, const ebb_linear_group *group, ebb_value *matrix)
{
    ebb_graph *g = e->g;
    ebb_build b = ebb_encode_after(e, group->root);
    const ebb_type *t = ebb_value_of(g, group->root)->type;
    const int64_t dims[2] = {group->n, group->d};
    *matrix = group->root;
    if (t->rank != 2 || t->dims[0] != group->n)
        *matrix = ebb_emit_reshape(&b, group->root, dims, 2);
    return b;
}

ebb_status ebb_linear_replace(ebb_edit *e, const ebb_linear_site *site, ebb_value h, ebb_value g)
{
    ebb_build b = ebb_edit_build_for(e, site->node);
    ebb_with_attrs_of(&b, site->node);
    ebb_value dw = ebb_emit(&b, ebb_node_of(e->g, site->node)->op, site->slot == 0 ? h : g,
                            site->slot == 0 ? g : h);
    EBB_TRY(b.status);
    return ebb_edit_swap(e, site->node, dw);
}
