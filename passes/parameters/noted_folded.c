/* noted_folded.c: what the dynamo exporter's optimiser notes at an initializer that it made. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "passes/parameters/noted.h"
#include "passes/parameters/trainable.h"

static const char *note_of(const ebb_graph *g, ebb_value v)
{
    return ebb_props_get(g, &ebb_value_of(g, v)->props, EBB_NOTED_FOLDED);
}

/* The next of "['tok', 'val_1']" from *at on. */
static bool next_name(char name[EBB_NOTED_LONGEST], const char **at)
{
    const char *begin = *at != NULL ? strchr(*at, '\'') : NULL;
    const char *end = begin != NULL ? strchr(begin + 1, '\'') : NULL;
    if (end == NULL)
        return false;
    (void)snprintf(name, EBB_NOTED_LONGEST, "%.*s", (int)(end - begin - 1), begin + 1);
    *at = end + 1;
    return true;
}

bool ebb_noted_is_folded(const ebb_graph *g, ebb_value v)
{
    return note_of(g, v) != NULL;
}

bool ebb_noted_is_made(const ebb_graph *g, ebb_value v)
{
    const char *at = note_of(g, v), *list = ebb_props_get(g, &g->props, EBB_NOTED_LIST);
    char name[EBB_NOTED_LONGEST], entry[EBB_NOTED_LONGEST + 32];
    while (list != NULL && next_name(name, &at)) {
        (void)snprintf(entry, sizeof entry, "PARAMETER target='%s'", name);
        if (strstr(list, entry) != NULL)
            return true;
    }
    return false;
}

ebb_noted_fold ebb_noted_fold_of(const ebb_noted_losses *losses, const ebb_graph *g, ebb_value v)
{
    const char *at = note_of(g, v);
    char name[EBB_NOTED_LONGEST];
    size_t count = 0;
    if (at == NULL || losses->all_count == 0)
        return EBB_FOLD_UNTOLD;
    while (next_name(name, &at))
        count += ebb_noted_is_parameter(losses, name);
    return count == 0   ? EBB_FOLD_OF_CONSTANTS
           : count == 1 ? EBB_FOLD_OF_PARAMETERS
                        : EBB_FOLD_OF_SEVERAL;
}

bool ebb_noted_is_beside(const ebb_noted_losses *losses, const ebb_graph *g, ebb_value v)
{
    const char *at = note_of(g, v);
    char name[EBB_NOTED_LONGEST];
    while (next_name(name, &at)) {
        const ebb_value of = ebb_noted_is_parameter(losses, name) ? ebb_value_find(g, name) : v;
        if (of.i != 0 && of.i != v.i && (ebb_value_of(g, of)->flags & EBB_IS_INITIALIZER) != 0 &&
            ebb_value_is_read(g, of))
            return true;
    }
    return false;
}

/* ---- calls on its way ---- */

static bool is_resized(const char *name)
{
    return strncmp(name, "upsample_", 9) == 0 || strncmp(name, "_upsample_", 10) == 0;
}

static bool is_repeat(const char *name)
{
    return ebb_name_is_after(name, "expand repeat tile");
}

/* Whether one of them, or the last, which it is named after, is such a one. */
static bool has_call(const ebb_graph *g, ebb_value v, bool (*is)(const char *))
{
    const char *at = note_of(g, v);
    char name[EBB_NOTED_LONGEST];
    bool has = at != NULL && is(ebb_value_name(g, v));
    while (!has && next_name(name, &at))
        has = is(name);
    return has;
}

bool ebb_noted_is_resized(const ebb_graph *g, ebb_value v)
{
    return has_call(g, v, is_resized);
}

bool ebb_noted_is_expanded(const ebb_graph *g, ebb_value v)
{
    return has_call(g, v, is_repeat);
}

static bool is_sum(const char *name)
{
    return ebb_name_is_after(name, "add");
}

/* "abs_1": a name that is none of a parameter nor made up, and of no call that moves, repeats or joins. */
static bool is_of_other_call(const char *name)
{
    static const char moves[] =
        "view _unsafe_view reshape permute transpose t unsqueeze squeeze broadcast_in_dim flip "
        "roll rot90 movedim flatten unflatten alias clone detach contiguous _to_copy split chunk "
        "split_with_sizes getitem unbind cat stack unfold repeat_interleave diagonal tensor_split "
        "lift_fresh_copy";
    const bool is =
        (isalpha((unsigned char)name[0]) != 0 || name[0] == '_') && !ebb_name_is_after(name, moves);
    return is && strchr(name, '.') == NULL && !ebb_name_is_anonymous(name) && !is_sum(name) &&
           !is_repeat(name) && !is_resized(name) && !ebb_name_is_of_part(name);
}

/* addcmul(b, w, x) is written as b + (1 * w) * x, and 1 * w is named "tmp" where it was folded: w as it is. */
static bool is_times_one(const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    if (!ebb_name_is_after(ebb_value_name(g, v), "tmp") || info->use_count != 1)
        return false;
    const ebb_node n = info->uses[0].node;
    const char *call = ebb_props_get(g, &ebb_node_of(g, n)->props, EBB_NOTED_CALL);
    return ebb_node_of(g, n)->op == EBB_OP_MUL && call != NULL &&
           strstr(call, "aten.addcmul.default](") != NULL && strstr(call, "kwargs = {}") != NULL;
}

bool ebb_noted_is_computed(const ebb_graph *g, ebb_value v)
{
    return has_call(g, v, ebb_name_is_of_arithmetic) ||
           (note_of(g, v) != NULL && is_of_other_call(ebb_value_name(g, v)) && !is_times_one(g, v));
}

static bool is_product(const char *name)
{
    return ebb_name_is_after(name, "matmul mm bmm einsum linear addmm");
}

bool ebb_noted_is_product(const ebb_graph *g, ebb_value v)
{
    return has_call(g, v, is_product);
}

bool ebb_noted_is_sum(const ebb_graph *g, ebb_value v)
{
    return has_call(g, v, is_sum);
}

const char *ebb_noted_repeated(const ebb_noted_losses *losses, const ebb_graph *g, ebb_value v,
                               ebb_arena *scratch)
{
    const char *at = note_of(g, v), *found = NULL;
    char name[EBB_NOTED_LONGEST];
    if (at == NULL || !is_repeat(ebb_value_name(g, v)))
        return NULL;
    while (next_name(name, &at)) {
        const bool is = ebb_noted_is_parameter(losses, name);
        if (is ? found != NULL : !ebb_name_is_after(name, "val_") && !is_repeat(name))
            return NULL;
        found = is ? ebb_arena_strdup(scratch, name) : found;
    }
    return found;
}

bool ebb_noted_is_within(const ebb_graph *g, const char *name)
{
    const size_t length = strlen(name);
    for (size_t i = 0; i < g->initializer_count; i++) {
        const char *text = note_of(g, g->initializers[i]), *at = text;
        while (at != NULL && (at = strstr(at, name)) != NULL) {
            if (at > text && at[-1] == '\'' && at[length] == '\'')
                return true;
            at += length;
        }
    }
    return false;
}
