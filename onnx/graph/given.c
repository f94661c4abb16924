/* given.c: what is given from outside: sizes of open dims, and which inputs may be left out. */
#include "onnx/graph/infer.h"

#include <stdio.h>

/* ---- sizes ---- */

/* A dim named "past_sequence_length + sequence_length": terms of `symbol` become the number, and the sum
 * of the numbers stands last; a sum without names is a size. */
static ebb_status put_in_sum(ebb_graph *g, ebb_type *type, int dim, const char *symbol,
                             int64_t size, bool *found)
{
    enum { MOST = 256 };
    static const char plus[] = " + ";
    const char *text = ebb_text(g, type->symbols[dim]);
    char left[MOST] = "";
    int64_t sum = 0, number;
    size_t used = 0;
    *found = false;
    if (strlen(text) + 24 > MOST)
        return NULL;
    for (const char *term = text, *end; term != NULL; term = end != NULL ? end + 3 : NULL) {
        char word[MOST];
        end = strstr(term, plus);
        (void)snprintf(word, sizeof word, "%.*s", end != NULL ? (int)(end - term) : MOST, term);
        const bool same = strcmp(word, symbol) == 0;
        const bool known = same || ebb_whole_parse(&number, word, "[0, 4294967296]", "") == NULL;
        *found = *found || same;
        if (known && __builtin_add_overflow(sum, same ? size : number, &sum))
            return ebb_error(EBB_USAGE, "dim '%s' is too large", text);
        if (!known)
            used += (size_t)snprintf(left + used, sizeof left - used, "%s%s", used > 0 ? plus : "",
                                     word);
    }
    if (!*found)
        return NULL;
    if (used > 0 && sum > 0)
        (void)snprintf(left + used, sizeof left - used, "%s%lld", plus, (long long)sum);
    type->dims[dim] = used > 0 ? -1 : sum;
    type->symbols[dim] = used > 0 ? ebb_graph_intern(g, left) : (ebb_str){0};
    return used == 0 || type->symbols[dim].i != 0 ? NULL : ebb_error_memory();
}

ebb_status ebb_bind_dim(ebb_graph *g, const char *symbol, int64_t size, size_t *bound)
{
    *bound = 0;
    if (size < 0)
        return ebb_error(EBB_USAGE, "dim '%s' cannot have size %lld", symbol, (long long)size);
    EBB_EACH_VALUE(g, v) {
        ebb_value_info *info = ebb_value_of(g, v);
        ebb_type type = *info->type;
        bool changed = false;
        for (int i = 0; i < type.rank; i++)
            if (type.dims[i] < 0 && type.symbols[i].i != 0) {
                bool here = false;
                EBB_TRY(put_in_sum(g, &type, i, symbol, size, &here));
                changed = changed || here;
            }
        if (changed)
            EBB_TRY(ebb_value_set_type(g, v, &type));
        if (changed && (info->flags & EBB_IS_INPUT) != 0)
            ++*bound;
    }
    return NULL;
}

/* What was said of inner values held for the old shape: only their rank still does. */
static ebb_status forget_dims(ebb_graph *g)
{
    EBB_EACH_VALUE(g, v) {
        ebb_value_info *info = ebb_value_of(g, v);
        if (info->producer.i == 0 || ebb_node_of(g, info->producer)->op == EBB_OP_UNKNOWN)
            continue;
        ebb_type type = *info->type;
        for (int i = 0; i < type.rank; i++) {
            type.dims[i] = -1;
            type.symbols[i] = (ebb_str){0};
        }
        EBB_TRY(ebb_value_set_type(g, v, &type));
    }
    return NULL;
}

ebb_status ebb_meant(ebb_status status, const ebb_graph *g, const ebb_value *values, size_t count,
                     const char *name)
{
    enum { MOST = 256 };
    const char *names[MOST];
    size_t known = 0;
    for (; known < count && known < MOST; known++)
        names[known] = ebb_value_name(g, values[known]);
    const char *near = ebb_nearest(name, names, known);
    return near != NULL ? ebb_hint(status, "did you mean '%s'?", near) : status;
}

ebb_status ebb_bind_shape(ebb_graph *g, const char *input, const int64_t *dims, int rank)
{
    ebb_value v = ebb_value_find(g, input);
    if (v.i == 0 || (ebb_value_of(g, v)->flags & EBB_IS_INPUT) == 0)
        return ebb_meant(ebb_error(EBB_USAGE, "there is no input '%s'", input), g, g->inputs,
                         g->input_count, input);
    ebb_type type = *ebb_value_of(g, v)->type;
    if (rank < 0 || rank > EBB_MAX_RANK || (type.rank >= 0 && type.rank != rank))
        return ebb_error(EBB_USAGE, "input '%s' has rank %d, not %d", input, (int)type.rank, rank);
    bool replaced = type.rank < 0;
    for (int i = 0; i < rank; i++) {
        if (dims[i] < 0)
            return ebb_error(EBB_USAGE, "input '%s': dim %d cannot have size %lld", input, i,
                             (long long)dims[i]);
        // A symbol stands for one size everywhere: the other inputs get it too.
        if (type.rank >= 0 && type.dims[i] < 0 && type.symbols[i].i != 0) {
            size_t bound;
            EBB_TRY(ebb_bind_dim(g, ebb_text(g, type.symbols[i]), dims[i], &bound));
        }
        replaced = replaced || (type.dims[i] >= 0 && type.dims[i] != dims[i]);
        type.dims[i] = dims[i];
        type.symbols[i] = (ebb_str){0};
    }
    type.rank = (int8_t)rank;
    EBB_TRY(ebb_value_set_type(g, v, &type));
    return replaced ? forget_dims(g) : NULL;
}

/* ---- inputs of decoders that may be left out ---- */

static bool is_symbol_of_others(const ebb_graph *g, ebb_str symbol)
{
    for (size_t i = 0; i < g->input_count; i++) {
        const ebb_type *type = ebb_value_of(g, g->inputs[i])->type;
        for (int d = 0; strstr(ebb_value_name(g, g->inputs[i]), "past") == NULL && d < type->rank;
             d++)
            if (type->dims[d] < 0 && ebb_same_str(type->symbols[d], symbol))
                return true;
    }
    return false;
}

int ebb_past_axis(const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    const ebb_type *type = info->type;
    int axis = -1;
    if ((info->flags & EBB_IS_INPUT) == 0 || (info->flags & EBB_IS_INITIALIZER) != 0 ||
        type->kind != EBB_KIND_TENSOR || type->rank < 3 ||
        !ebb_dtype_is_float((ebb_dtype)type->dtype) || strstr(ebb_value_name(g, v), "past") == NULL)
        return -1;
    for (int d = 0; d < type->rank; d++)
        if (type->dims[d] == 0 ||
            (type->dims[d] < 0 && strstr(ebb_text(g, type->symbols[d]), "past") != NULL))
            return d;
    for (int d = 1; d < type->rank; d++)
        if (axis < 0 && type->dims[d] < 0 && !is_symbol_of_others(g, type->symbols[d]))
            axis = d;
    return axis;
}

bool ebb_is_switch(const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    const char *name = ebb_text(g, info->name);
    int64_t count;
    if ((info->flags & EBB_IS_INPUT) == 0 || (info->flags & EBB_IS_INITIALIZER) != 0 ||
        !ebb_type_elements(info->type, &count) || count != 1)
        return false;
    return (strcmp(name, "use_cache_branch") == 0 && info->type->dtype == EBB_BOOL) ||
           (strcmp(name, "num_logits_to_keep") == 0 &&
            ebb_dtype_is_integer((ebb_dtype)info->type->dtype));
}

bool ebb_is_past_state(const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    bool is = (info->flags & EBB_IS_INPUT) != 0 && (info->flags & EBB_IS_INITIALIZER) == 0 &&
              strstr(ebb_text(g, info->name), "past") != NULL && info->use_count > 0;
    for (size_t i = 0; is && i < info->use_count; i++)
        is = info->uses[i].slot == 3 &&
             strcmp(ebb_text(g, ebb_node_of(g, info->uses[i].node)->op_name),
                    "CausalConvWithState") == 0;
    return is;
}

bool ebb_may_be_left_out(const ebb_graph *g, ebb_value v)
{
    return ebb_past_axis(g, v) >= 0 || ebb_is_past_state(g, v) || ebb_is_switch(g, v);
}
