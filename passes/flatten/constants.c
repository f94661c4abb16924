/* constants.c: nodes that compute from constants alone become what they compute. */
#include "passes/flatten/constants.h"

#include "exec/run/eval.h"
#include "onnx/graph/infer.h"
#include "onnx/graph/scan.h"
#include "passes/common.h"
#include "passes/parameters/trainable.h"

enum { RESULT_LIMIT = 64 << 20 }; // bytes; what is larger is better made in each step than stored

/* ---- what may be folded through ---- */

/* A lone number is no weight, unless the file says so, or it was made of one. */
static bool is_number(const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    return info->type->rank == 0 && info->role != EBB_ROLE_FROZEN && !ebb_is_parameter(g, v) &&
           !(info->role == EBB_ROLE_NONE && ebb_is_folded_state(g, v));
}

const ebb_tensor *ebb_constant_foldable(const ebb_graph *g, ebb_value v)
{
    v = ebb_value_meant(&g, v);
    const ebb_tensor *t = v.i != 0 ? ebb_value_constant(g, v) : NULL;
    if (t == NULL || t->data == NULL)
        return NULL;
    const ebb_value_info *info = ebb_value_of(g, v);
    bool weight = (info->flags & EBB_IS_INITIALIZER) != 0 && info->role != EBB_ROLE_CONSTANT &&
                  ebb_dtype_is_float((ebb_dtype)t->type.dtype) && !is_number(g, v) &&
                  !ebb_feeds_sizes_alone(g, v);
    return weight ? NULL : t;
}

/* The node computes from constants alone, and its results are worth keeping. */
static bool all_constant(const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    if (!ebb_op_has(info->op, EBB_FOLDS) || ebb_op_has(info->op, EBB_RANDOM) ||
        info->op == EBB_OP_CONSTANT)
        return false;
    for (uint32_t i = 0; i < info->in_count; i++)
        if (info->in[i].i != 0 && ebb_constant_foldable(g, info->in[i]) == NULL)
            return false;
    return info->in_count > 0;
}

bool ebb_constant_leaves(const ebb_graph *g, ebb_value v)
{
    return (ebb_value_of(g, v)->flags & EBB_IS_OUTPUT) != 0 || ebb_value_is_bound(g, v);
}

static bool makes_what_leaves(const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    for (uint32_t k = 0; k < info->out_count; k++)
        if (info->out[k].i != 0 && ebb_constant_leaves(g, info->out[k]))
            return true;
    return false;
}

/* ---- constants ---- */

/* y, output of n, becomes an initializer of the same name; n is to be removed by the caller. */
static ebb_status hold(ebb_edit *e, ebb_value y, const ebb_tensor *t, ebb_role role,
                       ebb_value *made)
{
    EBB_TRY(ebb_graph_add_initializer(e->g, made, NULL, &t->type, t->data, role));
    return ebb_edit_replace(e, y, *made);
}

/* The node's outputs are these tensors. */
static ebb_status replace_by(ebb_edit *e, ebb_node n, const ebb_tensor *t, uint32_t count,
                             ebb_role role)
{
    ebb_graph *g = e->g;
    ebb_value *made = EBB_SCRATCH(e, ebb_value, count);
    const char **names = EBB_SCRATCH(e, const char *, count);
    EBB_GOT(made && names);
    for (uint32_t k = 0; k < count; k++) {
        ebb_value y = ebb_out(g, n, k);
        if (!ebb_value_is_read(g, y))
            continue;
        names[k] = ebb_value_name(g, y);
        EBB_TRY(hold(e, y, &t[k], role, &made[k]));
    }
    ebb_edit_remove(e, n);
    for (uint32_t k = 0; k < count; k++)
        if (made[k].i != 0)
            EBB_TRY(ebb_value_rename(g, made[k], names[k]));
    ebb_found(e);
    ebb_applied(e);
    return NULL;
}

/* A Constant node's value, whichever attribute holds it. False: strings, sparse, bytes missing. */
static bool constant_value(ebb_edit *e, ebb_node n, ebb_tensor *t)
{
    ebb_attrs attrs = ebb_node_attrs(e->g, n);
    const ebb_attr *a;
    int64_t dims[1];
    *t = (ebb_tensor){0};
    if ((a = ebb_attr_find(&attrs, "value")) != NULL && a->tensor != NULL) {
        *t = *a->tensor;
    } else if ((a = ebb_attr_find(&attrs, "value_int")) != NULL) {
        t->type = ebb_type_tensor(EBB_I64, 0, NULL);
        t->data = &a->i;
    } else if ((a = ebb_attr_find(&attrs, "value_ints")) != NULL) {
        dims[0] = a->count;
        t->type = ebb_type_tensor(EBB_I64, 1, dims);
        t->data = a->count > 0 ? (const void *)a->ints : (const void *)a;
    } else if ((a = ebb_attr_find(&attrs, "value_floats")) != NULL) {
        dims[0] = a->count;
        t->type = ebb_type_tensor(EBB_F32, 1, dims);
        t->data = a->count > 0 ? (const void *)a->floats : (const void *)a;
    } else if ((a = ebb_attr_find(&attrs, "value_float")) != NULL) {
        float *x = EBB_SCRATCH(e, float, 1);
        if (x != NULL)
            *x = (float)a->f;
        t->type = ebb_type_tensor(EBB_F32, 0, NULL);
        t->data = x;
    }
    return t->data != NULL && ebb_type_bytes(&t->type, &t->bytes);
}

ebb_status ebb_constant_fold(ebb_edit *e, ebb_node n, ebb_facts *facts, bool *done)
{
    ebb_graph *g = e->g;
    const ebb_node_info *info = ebb_node_of(g, n);
    ebb_value y = ebb_out(g, n, 0);
    ebb_tensor value;
    *done = false;
    if (y.i == 0 || makes_what_leaves(g, n))
        return NULL;
    if (info->op == EBB_OP_CONSTANT) {
        if (!constant_value(e, n, &value))
            return NULL;
        *done = true;
        return replace_by(e, n, &value, 1, EBB_ROLE_CONSTANT);
    }
    const ebb_tensor *fact = ebb_facts_learned(facts, y);
    if (fact != NULL && info->out_count == 1) {
        *done = true;
        return replace_by(e, n, fact, 1, EBB_ROLE_CONSTANT);
    }
    if (!all_constant(g, n))
        return NULL;
    ebb_tensor *out = EBB_SCRATCH(e, ebb_tensor, info->out_count);
    EBB_GOT(out);
    // Inputs that were folded just now may have said what the inference could not.
    EBB_TRY(ebb_infer_node(g, n));
    for (uint32_t k = 0; k < info->out_count; k++) {
        size_t bytes;
        const ebb_value_info *v = ebb_value_of(g, info->out[k]);
        if (info->out[k].i == 0)
            continue;
        if (!ebb_type_is_static(v->type) || !ebb_type_bytes(v->type, &bytes))
            return ebb_skipped(e, n, "the shape of its result depends on values");
        if (bytes > RESULT_LIMIT)
            return ebb_skipped(e, n, "its result is too large to be stored");
    }
    EBB_LOCAL_ARENA(results); // of this node alone: the graph has copies
    ebb_status status = ebb_eval_node(g, n, out, info->out_count, RESULT_LIMIT, results);
    if (status == NULL) {
        *done = true;
        status = replace_by(e, n, out, info->out_count, EBB_ROLE_CONSTANT);
    }
    if (*done || status == ebb_error_memory())
        return status;
    return ebb_skipped(e, n,
                       ebb_status_code(status) == EBB_REJECTED
                           ? "it takes too long, or too much memory, before the run"
                           : "there is no kernel that computes it");
}

/* ---- weights that are written as constants ---- */

/* A Constant node of several floats; what it holds into *value. */
static bool holds_floats(ebb_edit *e, ebb_node n, ebb_tensor *value)
{
    int64_t elements;
    return ebb_node_of(e->g, n)->op == EBB_OP_CONSTANT && ebb_out(e->g, n, 0).i != 0 &&
           !makes_what_leaves(e->g, n) && constant_value(e, n, value) &&
           ebb_dtype_is_float((ebb_dtype)value->type.dtype) &&
           ebb_type_elements(&value->type, &elements) && elements > 1;
}

static ebb_status has_weights(ebb_edit *e, bool *yes)
{
    ebb_graph *g = e->g;
    ebb_trainable_source source;
    bool *trains = EBB_SCRATCH(e, bool, g->value_count);
    EBB_GOT(trains);
    EBB_TRY(ebb_trainable_find(trains, &source, g));
    *yes = false;
    for (size_t i = 0; i < g->initializer_count; i++)
        *yes = *yes || trains[g->initializers[i].i];
    return NULL;
}

ebb_status ebb_constant_take_weights(ebb_edit *e)
{
    ebb_graph *g = e->g;
    ebb_tensor value;
    bool any = false, there;
    EBB_TRY(has_weights(e, &there));
    for (ebb_node n = ebb_first(g); n.i != 0 && !there && !any; n = ebb_next(g, n))
        any = holds_floats(e, n, &value) && ebb_feeds_weight_slot(g, ebb_out(g, n, 0));
    for (ebb_node n = ebb_first(g), next; n.i != 0 && any; n = next) {
        next = ebb_next(g, n);
        if (holds_floats(e, n, &value) &&
            (ebb_feeds_weight_slot(g, ebb_out(g, n, 0)) ||
             !ebb_name_is_anonymous(ebb_value_name(g, ebb_out(g, n, 0)))))
            EBB_TRY(replace_by(e, n, &value, 1, EBB_ROLE_NONE));
    }
    return NULL;
}
