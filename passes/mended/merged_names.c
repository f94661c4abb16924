/* merged_names.c: parameters of which the TorchScript exporter left no more than a name.
 *
 *   before   b2.weight = Identity(b1.weight)                they were equal, as in fresh layers
 *            onnx::MatMul_14 = Identity(onnx::MatMul_13)    and so was what folding made of them
 *   after    initializers of their own
 *
 * Parameters that are tied on purpose have one name, and no Identity stands between them; but folding makes a
 * tensor for each reader of such a one, and where those were merged their names say nothing. What they are
 * is seen by what else the two layers have: of layers that were copied all is equal, and tied ones
 * have another bias, or read the same.
 */
#include "passes/mended/merged_names.h"

#include <stdio.h>
#include <string.h>

#include "passes/common.h"
#include "passes/mended/merged.h"
#include "passes/parameters/trainable.h"
#include "passes/parameters/weights.h"

/* ---- layers, by the paths that nodes are named after ---- */

/* "/net/bend/PRelu" and "/net/bend_1/PRelu": a module that is called again. */
static bool is_called_again(const char *first, const char *again)
{
    while (*first != '\0' && *first == *again)
        first++, again++;
    const size_t digits = *again == '_' ? strspn(again + 1, "0123456789") : 0;
    return *first == '/' && digits > 0 && strcmp(first, again + 1 + digits) == 0;
}

static const char *path_of_reader(const ebb_graph *g, ebb_use use)
{
    return ebb_text(g, ebb_node_of(g, use.node)->name);
}

/* Whether an Identity stands between what folding made, for two calls of one module, of its parameter. */
static bool is_one_parameter(const ebb_graph *g, ebb_value x, ebb_value y)
{
    const ebb_value_info *a = ebb_value_of(g, x), *b = ebb_value_of(g, y);
    for (size_t i = 0; i < a->use_count; i++)
        for (size_t k = 0; k < b->use_count; k++)
            if (is_called_again(path_of_reader(g, a->uses[i]), path_of_reader(g, b->uses[k])))
                return ebb_name_is_anonymous(ebb_value_name(g, x));
    return false;
}

/* "layers.0.fc." and "layers.1.fc.", the outermost modules in which two readers differ: as paths begin, and as names do. */
typedef struct layers {
    char path[2][256], name[2][256];
} layers;

/* False: they lie in no two modules. */
static bool find_layers(layers *l, const char *first, const char *second)
{
    size_t at = 0, begin = 0;
    const char *both[] = {first, second};
    for (; first[at] != '\0' && first[at] == second[at]; at++)
        begin = first[at] == '/' ? at + 1 : begin;
    for (int i = 0; i < 2; i++) {
        const char *end = strchr(both[i] + begin, '/');
        const size_t length = end != NULL ? (size_t)(end + 1 - both[i]) : 0;
        if (both[i][0] != '/' || length == 0 || length >= sizeof l->path[i])
            return false;
        memcpy(l->path[i], both[i], length);
        l->path[i][length] = '\0';
        for (size_t k = 1; k < length; k++)
            l->name[i][k - 1] = both[i][k] == '/' ? '.' : both[i][k];
        l->name[i][length - 1] = '\0';
    }
    return true;
}

static bool begins(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

typedef enum relation { UNTOLD = 0, COPIED, TIED } relation;

/* What a state of one of the layers, with numbers of its own, says of them; `of`: which. */
static relation relation_by(const ebb_graph *g, ebb_value v, const layers *l, int of)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    const char *rest = ebb_value_name(g, v) + strlen(l->name[of]);
    const char *with = ebb_props_get(g, &info->props, EBB_MERGED_WITH);
    const size_t other = strlen(l->name[!of]);
    if (with != NULL && begins(with, l->name[!of]) && strcmp(with + other, rest) == 0)
        return COPIED;
    for (size_t i = 0; i < info->use_count; i++)
        if (begins(path_of_reader(g, info->uses[i]), l->path[!of]))
            return TIED;
    char name[512];
    const int length = snprintf(name, sizeof name, "%s%s", l->name[!of], rest);
    const ebb_value twin = length < (int)sizeof name ? ebb_value_find(g, name) : EBB_NO_VALUE;
    const bool apart = twin.i != 0 && ebb_may_be_merged(g, twin) &&
                       !ebb_tensor_is_uniform(ebb_value_of(g, twin)->tensor);
    return apart ? TIED : UNTOLD;
}

/* Of the layers of two readers. */
static relation relation_of(const ebb_graph *g, const char *first, const char *second)
{
    layers l;
    if (!find_layers(&l, first, second))
        return TIED; // one function reads it twice
    relation told = UNTOLD;
    for (size_t i = 0; told != COPIED && i < g->initializer_count; i++) {
        ebb_value v = g->initializers[i];
        for (int of = 0; of < 2; of++) {
            if (!ebb_may_be_merged(g, v) || ebb_tensor_is_uniform(ebb_value_of(g, v)->tensor) ||
                !begins(ebb_value_name(g, v), l.name[of]))
                continue;
            const relation r = relation_by(g, v, &l, of);
            told = r != UNTOLD ? r : told;
        }
    }
    return told;
}

/* ---- Identity nodes ---- */

/* y = Identity(x) of two that were equal. */
static bool is_merged(const ebb_graph *g, ebb_node n)
{
    ebb_value x = ebb_in(g, n, 0), y = ebb_out(g, n, 0);
    return ebb_node_of(g, n)->op == EBB_OP_IDENTITY && y.i != 0 && ebb_may_be_merged(g, x) &&
           !ebb_value_is_held(g, y) && !is_one_parameter(g, x, y);
}

/* "b2.weight"; equal buffers may stay one. */
static bool has_name(const ebb_graph *g, ebb_node n)
{
    const char *name = ebb_value_name(g, ebb_out(g, n, 0));
    return ebb_is_name_of_state(name) &&
           (ebb_tensor_is_uniform(ebb_value_of(g, ebb_in(g, n, 0))->tensor) ||
            !ebb_name_is_of_buffer(ebb_last_part(name)));
}

static bool was_folded(const ebb_graph *g, ebb_node n)
{
    return begins(ebb_value_name(g, ebb_out(g, n, 0)), "onnx::");
}

static ebb_status part(ebb_graph *g, ebb_node n)
{
    ebb_value x = ebb_in(g, n, 0), y = ebb_out(g, n, 0), copy;
    const char *name = ebb_value_name(g, y);
    EBB_TRY(ebb_initializer_copy(g, x, "merged", &copy));
    EBB_TRY(ebb_value_replace(g, y, copy));
    ebb_node_remove(g, n);
    EBB_TRY(ebb_value_rename(g, copy, name));
    return ebb_props_set(g, &ebb_value_of(g, copy)->props, EBB_MERGED_WITH, ebb_value_name(g, x));
}

/* The path of the first that reads v itself; NULL: none does. */
static const char *path_of(const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    for (size_t i = 0; i < info->use_count; i++)
        if (ebb_node_of(g, info->uses[i].node)->op != EBB_OP_IDENTITY)
            return path_of_reader(g, info->uses[i]);
    return NULL;
}

/* asked: of so many all states were gone over; what more there is stays untold. */
static ebb_status part_folded(ebb_graph *g, ebb_node n, size_t *asked)
{
    enum { MOST = 1024 };
    ebb_value x = ebb_in(g, n, 0), y = ebb_out(g, n, 0);
    const char *first = path_of(g, x), *second = path_of(g, y);
    const bool uniform = ebb_tensor_is_uniform(ebb_value_of(g, x)->tensor);
    if (!uniform && (first == NULL || second == NULL))
        return NULL;
    const relation told = uniform              ? COPIED
                          : (*asked)++ >= MOST ? UNTOLD
                                               : relation_of(g, first, second);
    if (told == COPIED)
        return part(g, n);
    return told == TIED
               ? NULL
               : ebb_props_set(g, &ebb_value_of(g, x)->props, EBB_MAYBE_TIED, ebb_value_name(g, y));
}

ebb_status ebb_merged_names_part(ebb_graph *g)
{
    size_t asked = 0;
    for (int folded = 0; g->model->torchscript && folded < 2;
         folded++) // these look at the others' marks
        for (ebb_node n = ebb_first(g), next; n.i != 0; n = next) {
            next = ebb_next(g, n);
            if (!is_merged(g, n))
                continue;
            if (!folded && has_name(g, n))
                EBB_TRY(part(g, n));
            else if (folded && was_folded(g, n))
                EBB_TRY(part_folded(g, n, &asked));
        }
    return NULL;
}
