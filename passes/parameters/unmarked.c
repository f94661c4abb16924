/* unmarked.c: parameter or buffer, in a file of PyTorch's TorchScript exporter, which marks neither. */
#include "passes/parameters/unmarked.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "passes/parameters/slots.h"
#include "passes/parameters/trainable.h"

/* ---- names ---- */

static bool is_of_layer(const char *part)
{
    return strstr(part, "weight") != NULL || strstr(part, "bias") != NULL;
}

/* ---- the order of a module's state ---- */

enum { MOST = 64 }; // neighbours; modules have few of their own

/* Whether v is of the module whose path is the first bytes of name. */
static bool is_beside(const ebb_graph *g, ebb_value v, const char *name, size_t path)
{
    const char *other = ebb_value_name(g, v), *part = ebb_last_part(other);
    return (size_t)(part - other) == path && strncmp(name, other, path) == 0 &&
           !ebb_name_is_anonymous(other);
}

static ebb_unmarked by_order(const ebb_unmarked_file *file, ebb_value v)
{
    const ebb_graph *g = file->g;
    const char *name = ebb_value_name(g, v);
    const size_t path = (size_t)(ebb_last_part(name) - name), here = file->place[v.i];
    for (size_t i = here + 1; i < g->initializer_count && i <= here + MOST &&
                              is_beside(g, g->initializers[i], name, path);
         i++)
        if (is_of_layer(ebb_last_part(ebb_value_name(g, g->initializers[i]))))
            return EBB_UNMARKED_PARAMETER;
    for (size_t i = here; i-- > 0 && i + MOST >= here;) {
        const ebb_value other = g->initializers[i];
        if (!is_beside(g, other, name, path))
            break;
        if (!ebb_dtype_is_float((ebb_dtype)ebb_value_of(g, other)->type->dtype) ||
            ebb_name_is_of_statistic(ebb_last_part(ebb_value_name(g, other))))
            return EBB_UNMARKED_BUFFER;
    }
    return EBB_UNMARKED_UNKNOWN;
}

/* A frozen batch norm has scale, bias and statistics as buffers, and does arithmetic with them. */
static bool is_of_frozen_norm(const ebb_graph *g, const char *name, const char *part)
{
    char statistic[512];
    const int path = (int)(part - name);
    const bool fits = (size_t)path + sizeof "running_var" <= sizeof statistic;
    if (!fits || (strcmp(part, "weight") != 0 && strcmp(part, "bias") != 0))
        return false;
    (void)snprintf(statistic, sizeof statistic, "%.*srunning_var", path, name);
    const ebb_value v = ebb_value_find(g, statistic);
    if (v.i == 0 || (ebb_value_of(g, v)->flags & EBB_IS_INITIALIZER) == 0 ||
        ebb_value_of(g, v)->role == EBB_ROLE_STATISTIC)
        return false;
    for (size_t i = 0; i < ebb_value_of(g, v)->use_count; i++)
        if (ebb_use_of(g, ebb_value_of(g, v)->uses[i]) == EBB_SLOT_STATISTIC)
            return false;
    return ebb_value_is_read(g, v);
}

ebb_unmarked ebb_unmarked_of(const ebb_unmarked_file *file, ebb_value v)
{
    const char *name = ebb_value_name(file->g, v), *part = ebb_last_part(name);
    // "fc.parametrizations.weight.original0": what torch.nn.utils.parametrize computes a weight of
    const bool original =
        strncmp(part, "original", 8) == 0 && strstr(name, "parametrizations.") != NULL;
    if (is_of_frozen_norm(file->g, name, part))
        return EBB_UNMARKED_FROZEN;
    return original || is_of_layer(part) ? EBB_UNMARKED_PARAMETER : by_order(file, v);
}

/* ---- what a module computes ---- */

static int by_name(const void *a, const void *b)
{
    const struct ebb_unmarked_node *x = a, *y = b;
    return strcmp(x->name, y->name);
}

ebb_status ebb_unmarked_find(ebb_unmarked_file *file, const ebb_graph *g, ebb_arena *scratch)
{
    const size_t nodes = ebb_graph_size(g);
    *file = (ebb_unmarked_file){.g = g};
    file->place = EBB_NEW(scratch, uint32_t, g->value_count);
    file->nodes = EBB_NEW(scratch, struct ebb_unmarked_node, nodes + 1);
    EBB_GOT(file->place && file->nodes);
    for (size_t i = 0; i < g->initializer_count; i++)
        file->place[g->initializers[i].i] = (uint32_t)i;
    EBB_EACH_NODE(g, n)
        file->nodes[file->node_count++] =
            (struct ebb_unmarked_node){ebb_text(g, ebb_node_of(g, n)->name), n};
    qsort(file->nodes, file->node_count, sizeof *file->nodes, by_name);
    return NULL;
}

/* A sum, or what only moves: a layer has these beside its product. */
static bool is_beside_product(const ebb_graph *g, ebb_node n)
{
    const ebb_op op = ebb_node_of(g, n)->op;
    return op == EBB_OP_ADD || op == EBB_OP_PAD || op == EBB_OP_CONSTANT || op == EBB_OP_SHAPE ||
           ebb_slot_of(op, 0) == EBB_SLOT_MOVED;
}

static bool has_named_bias(const ebb_graph *g, ebb_node n)
{
    const ebb_value y = ebb_out(g, n, 0), own = ebb_in(g, n, 2);
    const char *name = own.i != 0 ? ebb_value_name(g, own) : "";
    for (size_t i = 0; y.i != 0 && name[0] == '\0' && i < ebb_value_of(g, y)->use_count; i++) {
        const ebb_use use = ebb_value_of(g, y)->uses[i];
        if (ebb_node_of(g, use.node)->op == EBB_OP_ADD)
            name = ebb_value_name(g, ebb_in(g, use.node, use.slot == 0));
    }
    return !ebb_name_is_anonymous(name) && strstr(ebb_last_part(name), "bias") != NULL;
}

/* Nodes of the module that n is computed in, its path included: from *low on. The length of its path; 0: none. */
static size_t module_of(const ebb_unmarked_file *file, ebb_node n, size_t *low)
{
    const char *name = ebb_text(file->g, ebb_node_of(file->g, n)->name), *end = strrchr(name, '/');
    const size_t path = end != NULL ? (size_t)(end - name) + 1 : 0;
    size_t high = file->node_count; // the first whose name begins with the path
    *low = 0;
    while (*low < high) {
        const size_t middle = *low + (high - *low) / 2;
        if (strncmp(file->nodes[middle].name, name, path) < 0)
            *low = middle + 1;
        else
            high = middle;
    }
    return path;
}

static bool is_within(const ebb_unmarked_file *file, size_t i, ebb_node n, size_t path)
{
    const char *name = ebb_text(file->g, ebb_node_of(file->g, n)->name);
    return i < file->node_count && strncmp(file->nodes[i].name, name, path) == 0;
}

bool ebb_unmarked_is_layer(const ebb_unmarked_file *file, ebb_node n)
{
    const ebb_graph *g = file->g;
    const ebb_op op = ebb_node_of(g, n)->op;
    size_t low;
    const size_t path = module_of(file, n, &low);
    if (path == 0 || ebb_op_is_recurrent(op) || has_named_bias(g, n))
        return true;
    for (; is_within(file, low, n, path); low++) {
        const ebb_node other = file->nodes[low].n;
        const bool within = strchr(file->nodes[low].name + path, '/') != NULL;
        if (within || (ebb_node_of(g, other)->op != op && !is_beside_product(g, other)))
            return false;
    }
    return true;
}

/* But as a layer's weight, which nothing beside the layer is computed of. */
static bool reads_like(const ebb_graph *g, ebb_node n, const ebb_type *type)
{
    for (uint32_t i = 0; i < ebb_node_of(g, n)->in_count; i++) {
        const ebb_value v = ebb_in(g, n, i);
        if (v.i != 0 && (ebb_value_of(g, v)->flags & EBB_IS_INITIALIZER) != 0 &&
            ebb_slot_of(ebb_node_of(g, n)->op, i) != EBB_SLOT_WEIGHT &&
            !ebb_name_is_anonymous(ebb_value_name(g, v)) &&
            ebb_type_same_shape(ebb_value_of(g, v)->type, type))
            return true;
    }
    return false;
}

bool ebb_unmarked_keeps_twin(const ebb_unmarked_file *file, ebb_value v, bool alike)
{
    const ebb_graph *g = file->g;
    const ebb_value_info *info = ebb_value_of(g, v);
    size_t low;
    if (info->use_count == 0)
        return false;
    const ebb_node n = info->uses[0].node;
    const size_t path = module_of(file, n, &low);
    for (; path > 0 && is_within(file, low, n, path); low++) {
        const ebb_node other = file->nodes[low].n;
        const bool within = strchr(file->nodes[low].name + path, '/') != NULL;
        if (!within && (!alike || ebb_node_of(g, other)->op == ebb_node_of(g, n)->op) &&
            reads_like(g, other, info->type))
            return true;
    }
    return false;
}

/* Both operands of a product or a sum: one is computed, one was folded. */
static bool has_folded_operand(const ebb_graph *g, ebb_node n)
{
    return ebb_node_of(g, n)->in_count == 2 &&
           ebb_is_folded_state(g, ebb_in(g, n, 0)) != ebb_is_folded_state(g, ebb_in(g, n, 1));
}

bool ebb_unmarked_is_scale(const ebb_unmarked_file *file, ebb_node n)
{
    const ebb_graph *g = file->g;
    size_t low, products = 0, sums = 0;
    const size_t path = module_of(file, n, &low);
    for (; path > 0 && is_within(file, low, n, path); low++) {
        const ebb_node other = file->nodes[low].n;
        const ebb_op op = ebb_node_of(g, other)->op;
        const bool within = strchr(file->nodes[low].name + path, '/') != NULL;
        if (within || ((op == EBB_OP_MUL || op == EBB_OP_ADD) && !has_folded_operand(g, other)) ||
            (op != EBB_OP_MUL && !is_beside_product(g, other)))
            return false;
        products += op == EBB_OP_MUL;
        sums += op == EBB_OP_ADD;
    }
    return products == 1 && sums == 1;
}
