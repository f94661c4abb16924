/* schema.c: nodes against arity.def, attrs.def and tied.def. */
#include "onnx/graph/schema.h"

enum { MANY = INT32_MAX, ATTRS_MOST = 64 }; // no operator has half as many attributes

enum {
    STATED = 0
#define EBB_ARITY(id, required, inputs, outputs) +1
#include "onnx/tables/arity.def"
#undef EBB_ARITY
};
_Static_assert(STATED == EBB_OP_COUNT - 1, "every row of ops.def has one in arity.def");

ebb_arity ebb_op_arity(ebb_op op)
{
    static const struct {
        bool stated;
        uint32_t required, inputs, outputs;
    } rows[EBB_OP_COUNT] = {
#define EBB_ARITY(id, required, inputs, outputs) [EBB_OP_##id] = {true, required, inputs, outputs},
#include "onnx/tables/arity.def"
#undef EBB_ARITY
    };
    if ((unsigned)op >= EBB_OP_COUNT || !rows[op].stated)
        return (ebb_arity){0, UINT32_MAX, UINT32_MAX};
    return (ebb_arity){rows[op].required, rows[op].inputs == MANY ? UINT32_MAX : rows[op].inputs,
                       rows[op].outputs == MANY ? UINT32_MAX : rows[op].outputs};
}

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
        if (strcmp(known[i].name, a->name) != 0)
            continue;
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

/* A letter for each input; NULL: nothing is said. */
static const char *ties_of(ebb_op op)
{
    static const char *const rows[EBB_OP_COUNT] = {
#define EBB_TIED(id, letters) [EBB_OP_##id] = letters,
#include "onnx/tables/tied.def"
#undef EBB_TIED
    };
    return (unsigned)op < EBB_OP_COUNT ? rows[op] : NULL;
}

static ebb_status dtypes_fit(const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    const char *letters = ties_of(info->op);
    uint32_t first[26] = {0}; // 1 + the first input of each letter
    for (uint32_t i = 0; letters != NULL && i < info->in_count; i++) {
        letters += i > 0 && letters[1] != '\0';
        if (*letters == '-' || info->in[i].i == 0)
            continue;
        ebb_dtype dtype = (ebb_dtype)ebb_value_of(g, info->in[i])->type.dtype;
        uint32_t *other = &first[*letters - 'A'];
        if (dtype == EBB_NONE)
            continue;
        if (*other == 0)
            *other = i + 1;
        ebb_dtype tied = (ebb_dtype)ebb_value_of(g, info->in[*other - 1])->type.dtype;
        if (dtype != tied && !(ebb_dtype_is_float(dtype) && ebb_dtype_is_float(tied)))
            return ebb_error(EBB_REJECTED, "%s: input %u is %s, input %u is %s; they must agree",
                             ebb_node_label(g, n), (unsigned)(*other - 1), ebb_dtype_name(tied),
                             (unsigned)i, ebb_dtype_name(dtype));
    }
    return NULL;
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
    return dtypes_fit(g, n);
}
