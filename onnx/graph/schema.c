/* schema.c: nodes against the operands column of ops.def and attrs.def. */
#include "onnx/graph/schema.h"

enum { ATTRS_MOST = 64 }; // no operator has half as many attributes

static const struct {
    const char *name;
    ebb_attr_type type;
} known[] = {
#define EBB_ATTR(name, type) {#name, EBB_ATTR_##type},
#include "onnx/tables/attrs.def"
#undef EBB_ATTR
};

const char *ebb_attr_known(size_t index, ebb_attr_type *type)
{
    if (index >= sizeof known / sizeof known[0])
        return NULL;
    *type = known[index].type;
    return known[index].name;
}

static const char *kind_name(ebb_attr_type type)
{
    static const char *const names[] = {
        "of no kind",
        "a float",
        "an integer",
        "a string",
        "a tensor",
        "a graph",
        "a list of floats",
        "a list of integers",
        "a list of strings",
        "a list of tensors",
        "a list of graphs",
        "a sparse tensor",
        "a list of sparse tensors",
        "a type",
        "a list of types",
    };
    return (unsigned)type < sizeof names / sizeof names[0] ? names[type] : names[0];
}

/* A reference takes the kind of what it stands for, which is asked when it is put there. */
static ebb_status kind_fits(const ebb_graph *g, ebb_node n, const ebb_attr *a)
{
    const char *wanted = NULL;
    if (a->ref != NULL)
        return NULL;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (known[i].name[0] != a->name[0] || strcmp(known[i].name, a->name) != 0)
            continue; // mostly by the first letter: all nodes are asked after each pass
        if (known[i].type == a->type)
            return NULL;
        wanted = kind_name(known[i].type);
    }
    return wanted == NULL ? NULL
                          : ebb_error(EBB_REJECTED, "%s: attribute '%s' is %s, and must be %s",
                                      ebb_node_label(g, n), a->name, kind_name(a->type), wanted);
}

static ebb_status operands_fit(const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    const ebb_arity arity = ebb_op_arity(info->op);
    for (uint32_t i = 0; i < arity.required; i++)
        if (ebb_in(g, n, i).i == 0)
            return ebb_error(EBB_REJECTED, "%s: input %u is required and absent",
                             ebb_node_label(g, n), (unsigned)i);
    if (info->in_count > arity.inputs)
        return ebb_error(EBB_REJECTED, "%s: has %u inputs; %s takes at most %u",
                         ebb_node_label(g, n), (unsigned)info->in_count,
                         ebb_op_row_of(info->op)->name, (unsigned)arity.inputs);
    if (arity.outputs == 1 && ebb_out(g, n, 0).i == 0)
        return ebb_error(EBB_REJECTED, "%s: its output has no name", ebb_node_label(g, n));
    if (info->out_count > arity.outputs)
        return ebb_error(EBB_REJECTED, "%s: has %u outputs; %s makes at most %u",
                         ebb_node_label(g, n), (unsigned)info->out_count,
                         ebb_op_row_of(info->op)->name, (unsigned)arity.outputs);
    return NULL;
}

static ebb_status dtypes_fit(const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    uint32_t first[26] = {0}; // 1 + the first input of each letter
    for (uint32_t i = 0; i < info->in_count; i++) {
        const char letter = ebb_op_tie(info->op, i);
        if (letter == '-' || info->in[i].i == 0)
            continue;
        ebb_dtype dtype = (ebb_dtype)ebb_value_of(g, info->in[i])->type->dtype;
        uint32_t *other = &first[letter - 'A'];
        if (dtype == EBB_NONE)
            continue;
        if (*other == 0)
            *other = i + 1;
        ebb_dtype tied = (ebb_dtype)ebb_value_of(g, info->in[*other - 1])->type->dtype;
        if (dtype != tied && !(ebb_dtype_is_float(dtype) && ebb_dtype_is_float(tied)))
            return ebb_error(EBB_REJECTED, "%s: input %u is %s, input %u is %s; they must agree",
                             ebb_node_label(g, n), (unsigned)(*other - 1), ebb_dtype_name(tied),
                             (unsigned)i, ebb_dtype_name(dtype));
    }
    return NULL;
}

/* A body takes what the node gives it, operands of the node and what a loop counts, and makes what
 * the node hands on. Inputs beyond what is given have initializers, as old files list them. */
static ebb_status body_fits(const ebb_graph *g, ebb_node n, const char *name, size_t given,
                            size_t wanted)
{
    const ebb_graph *body = ebb_node_body(g, n, name);
    if (body == NULL)
        return ebb_error(EBB_REJECTED, "%s: it has no %s", ebb_node_label(g, n), name);
    bool fits = body->input_count >= given;
    for (size_t i = given; i < body->input_count; i++)
        fits = fits && ebb_value_of(body, body->inputs[i])->tensor != NULL;
    if (!fits)
        return ebb_error(EBB_REJECTED, "%s: its %s takes %zu inputs, and is given %zu",
                         ebb_node_label(g, n), name, body->input_count, given);
    if (body->output_count < wanted)
        return ebb_error(EBB_REJECTED, "%s: its %s makes %zu outputs, and must make %zu",
                         ebb_node_label(g, n), name, body->output_count, wanted);
    return NULL;
}

static ebb_status operands_are_there(const ebb_graph *g, ebb_node n, uint32_t from)
{
    for (uint32_t i = from; i < ebb_node_of(g, n)->in_count; i++)
        if (ebb_in(g, n, i).i == 0)
            return ebb_error(EBB_REJECTED, "%s: input %u is missing", ebb_node_label(g, n),
                             (unsigned)i);
    return NULL;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Loop: trip count, condition and what it carries; its body takes number, condition, carried, and
 * makes condition, carried, and what is put together. */
static ebb_status loop_fits(const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    size_t carried = info->in_count > 2 ? info->in_count - 2u : 0;
    EBB_TRY(operands_are_there(g, n, 2));
    return body_fits(g, n, "body", 2 + carried, 1 + larger(carried, info->out_count));
}

/* Scan: states, then what it walks through; opset 8 has lengths before. Its body takes as many, and
 * makes states, and what is put together. */
static ebb_status scan_fits(const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    const ebb_attrs attrs = ebb_node_attrs(g, n);
    const int64_t walked = ebb_attr_int(&attrs, "num_scan_inputs", 0);
    const uint32_t first = ebb_model_opset(g->model, EBB_DOMAIN_ONNX) < 9 ? 1 : 0;
    const size_t given = info->in_count > first ? info->in_count - first : 0;
    EBB_TRY(operands_are_there(g, n, first));
    if (walked < 1 || (uint64_t)walked > given)
        return ebb_error(EBB_REJECTED, "%s: num_scan_inputs is %lld, and it has %zu inputs",
                         ebb_node_label(g, n), (long long)walked, given);
    return body_fits(g, n, "body", given, larger(given - (size_t)walked, info->out_count));
}

static ebb_status bodies_fit(const ebb_graph *g, ebb_node n)
{
    switch (ebb_node_of(g, n)->op) {
    case EBB_OP_IF:
        EBB_TRY(body_fits(g, n, "then_branch", 0, ebb_node_of(g, n)->out_count));
        return body_fits(g, n, "else_branch", 0, ebb_node_of(g, n)->out_count);
    case EBB_OP_LOOP:
        return loop_fits(g, n);
    case EBB_OP_SCAN:
        return scan_fits(g, n);
    default:
        return NULL;
    }
}

ebb_status ebb_schema_check(const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    if (info->op == EBB_OP_UNKNOWN)
        return NULL;
    if (info->attr_count > ATTRS_MOST)
        return ebb_error(EBB_REJECTED, "%s: has %u attributes; no operator takes more than %d",
                         ebb_node_label(g, n), (unsigned)info->attr_count, (int)ATTRS_MOST);
    for (uint32_t i = 0; i < info->attr_count; i++)
        EBB_TRY(kind_fits(g, n, &info->attr[i]));
    EBB_TRY(operands_fit(g, n));
    EBB_TRY(dtypes_fit(g, n));
    return bodies_fit(g, n);
}
