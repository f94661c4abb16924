/* noted.c: what PyTorch's dynamo exporter notes in a file beside the graph. */
#include "passes/parameters/noted.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "passes/common.h"
#include "passes/parameters/trainable.h"

ebb_noted_kind ebb_noted_kind_of(const ebb_graph *g, ebb_value v)
{
    const char *kind = ebb_props_get(g, &ebb_value_of(g, v)->props, EBB_NOTED_KIND);
    return kind == NULL                        ? EBB_NOTED_NOTHING
           : strstr(kind, "PARAMETER") != NULL ? EBB_NOTED_PARAMETER
                                               : EBB_NOTED_OTHER;
}

bool ebb_is_from_pytorch(const ebb_graph *g)
{
    if (g->model->torchscript)
        return true;
    EBB_EACH_NODE(g, n)
        if (ebb_props_get(g, &ebb_node_of(g, n)->props, EBB_NOTED_CALL) != NULL)
            return true;
    return false;
}

static bool is_named(const ebb_graph *g, ebb_value v, const char *begin)
{
    return v.i != 0 && strncmp(ebb_value_name(g, v), begin, strlen(begin)) == 0;
}

/* "conv.weight_bias", as PyTorch's optimiser names what is left of the norm. */
static bool is_bias_of_norm(const ebb_graph *g, ebb_value weight, ebb_value bias)
{
    return is_named(g, bias, ebb_value_name(g, weight)) &&
           ebb_ends_in(ebb_value_name(g, bias), ".weight_bias");
}

bool ebb_holds_norm(const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    const char *call = ebb_props_get(g, &info->props, EBB_NOTED_CALL), *norm;
    if (ebb_props_get(g, &info->props, EBB_NORM_WITHIN) != NULL)
        return true;
    if (info->op != EBB_OP_CONV && info->op != EBB_OP_CONV_TRANSPOSE && info->op != EBB_OP_GEMM)
        return false;
    if (call != NULL)
        return (norm = strstr(call, "batch_norm")) != NULL && norm < strchr(call, '(');
    ebb_value weight = ebb_in(g, n, 1), bias = ebb_in(g, n, 2);
    return is_named(g, weight, "ConvBnFusion_") || is_bias_of_norm(g, weight, bias) ||
           (g->model->torchscript && is_named(g, weight, "onnx::") && is_named(g, bias, "onnx::"));
}

void ebb_noted_sources(ebb_noted *noted, const ebb_graph *g, ebb_node n, const char *begin)
{
    const char *at = ebb_props_get(g, &ebb_node_of(g, n)->props, EBB_NOTED_CALL);
    noted->count = 0;
    noted->call = at != NULL;
    at = at != NULL ? strstr(at, "args = (") : NULL;
    while (at != NULL && (at = strchr(at, '%')) != NULL && noted->count < EBB_NOTED_SOURCES) {
        size_t length = strspn(++at, "abcdefghijklmnopqrstuvwxyz"
                                     "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
        if (strncmp(at, begin, strlen(begin)) == 0 && length < EBB_NOTED_LONGEST)
            (void)snprintf(noted->name[noted->count++], EBB_NOTED_LONGEST, "%.*s", (int)length, at);
        at += length;
    }
}

static int by_name(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    return strcmp(*x, *y);
}

const char *ebb_noted_call(const ebb_graph *g, ebb_node n, ebb_arena *scratch)
{
    const char *note = ebb_props_get(g, &ebb_node_of(g, n)->props, EBB_NOTED_CALL);
    return note != NULL && note[0] == '%'
               ? ebb_arena_printf(scratch, "%.*s", (int)strcspn(note + 1, " "), note + 1)
               : NULL;
}

ebb_status ebb_noted_calls_find(ebb_noted_calls *calls, const ebb_graph *g, ebb_arena *scratch)
{
    const size_t nodes = ebb_graph_size(g);
    *calls = (ebb_noted_calls){.g = g, .list = EBB_NEW(scratch, const char *, nodes + 1)};
    EBB_GOT(calls->list);
    EBB_EACH_NODE(g, n) {
        const char *call = ebb_noted_call(g, n, scratch);
        if (call != NULL)
            calls->list[calls->count++] = call;
    }
    qsort(calls->list, calls->count, sizeof *calls->list, by_name);
    return NULL;
}

bool ebb_noted_has(const ebb_noted_calls *calls, const char *call)
{
    return ebb_value_find(calls->g, call).i != 0 ||
           bsearch(&call, calls->list, calls->count, sizeof *calls->list, by_name) != NULL;
}

ebb_status ebb_noted_keep(ebb_graph *g, ebb_node made, ebb_node of)
{
    static const char *const keys[] = {EBB_NOTED_CALL, EBB_NOTED_SCOPES};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *value = ebb_props_get(g, &ebb_node_of(g, of)->props, keys[i]);
        if (value != NULL)
            EBB_TRY(ebb_props_set(g, &ebb_node_of(g, made)->props, keys[i], value));
    }
    return NULL;
}

bool ebb_ends_in(const char *name, const char *end)
{
    size_t length = strlen(name), tail = strlen(end);
    return length > tail && strcmp(name + length - tail, end) == 0;
}

/* Whether the file may have had a detach() before n that it does not tell of. */
static bool may_have_lost_detach(const ebb_graph *g, ebb_node n)
{
    const char *call = ebb_props_get(g, &ebb_node_of(g, n)->props, EBB_NOTED_CALL);
    return call != NULL ? strstr(call, "%detach") != NULL : g->model->torchscript;
}

bool ebb_is_straight_through(const ebb_graph *g, ebb_node n)
{
    const ebb_value y = ebb_out(g, n, 0), x = ebb_in(g, n, 1);
    if (ebb_node_of(g, n)->op != EBB_OP_SUB || ebb_value_of(g, y)->use_count != 1)
        return false;
    const ebb_use use = ebb_value_of(g, y)->uses[0];
    const bool trained = ebb_value_constant(g, x) == NULL || ebb_trainable_candidate(g, x);
    return ebb_node_of(g, use.node)->op == EBB_OP_ADD && use.slot < 2 &&
           ebb_in(g, use.node, 1 - use.slot).i == x.i && trained &&
           may_have_lost_detach(g, use.node);
}

bool ebb_is_taken_off(const ebb_graph *g, ebb_node n, bool held)
{
    ebb_value sum = ebb_in(g, n, 0), x = ebb_in(g, n, 1);
    if (ebb_node_of(g, n)->op != EBB_OP_SUB || !g->model->torchscript)
        return false;
    const ebb_node off = ebb_value_of(g, x)->producer, on = ebb_value_of(g, sum)->producer;
    if (held) {
        if (off.i == 0 || !ebb_is_detach(g, off))
            return false;
        x = ebb_in(g, off, 0);
    }
    return on.i != 0 && ebb_node_of(g, on)->op == EBB_OP_ADD && ebb_value_constant(g, x) == NULL &&
           (ebb_in(g, on, 0).i == x.i || ebb_in(g, on, 1).i == x.i);
}

/* ---- what is lost ---- */

static int by_source(const void *a, const void *b)
{
    const ebb_noted_loss *x = a, *y = b;
    return strcmp(x->source, y->source);
}

/* The next "p_fc_weight: PARAMETER target='fc.weight'" from at on; NULL: none. */
static const char *read_parameter(ebb_noted_loss *p, const char *at, ebb_arena *scratch)
{
    static const char kind[] = ": PARAMETER target='";
    const char *found = strstr(at, kind), *begin = found, *name, *end;
    if (found == NULL)
        return NULL;
    while (begin > at && begin[-1] != '\n')
        begin--;
    name = found + sizeof kind - 1;
    end = strchr(name, '\'');
    if (end == NULL)
        return NULL;
    *p = (ebb_noted_loss){.source = ebb_arena_printf(scratch, "%.*s", (int)(found - begin), begin),
                          .name = ebb_arena_printf(scratch, "%.*s", (int)(end - name), name)};
    const char *dot = p->name != NULL ? strrchr(p->name, '.') : NULL;
    p->module = dot != NULL ? (size_t)(dot - p->name) : 0;
    return end;
}

static ebb_status read_parameters(ebb_noted_losses *l, const char *text, ebb_arena *scratch)
{
    size_t capacity = 0;
    ebb_noted_loss p;
    for (const char *at = text; (at = read_parameter(&p, at, scratch)) != NULL;) {
        EBB_GOT(p.source && p.name &&
                ebb_arena_grow(scratch, &l->list, l->count, &capacity, sizeof *l->list));
        l->list[l->count++] = p;
    }
    if (l->count > 0)
        qsort(l->list, l->count, sizeof *l->list, by_source);
    return NULL;
}

/* Before any is struck out. */
static ebb_status keep_all(ebb_noted_losses *l, ebb_arena *scratch)
{
    ebb_noted_loss *all = EBB_NEW(scratch, ebb_noted_loss, l->count);
    l->names = EBB_NEW(scratch, const char *, l->count);
    EBB_GOT(all && l->names);
    for (size_t i = 0; i < l->count; i++) {
        all[i] = l->list[i];
        l->names[i] = all[i].name;
    }
    qsort(l->names, l->count, sizeof *l->names, by_name);
    l->all = all;
    l->all_count = l->count;
    return NULL;
}

static void strike_out(ebb_noted_losses *l, const char *source, bool *there)
{
    const ebb_noted_loss key = {.source = source};
    const ebb_noted_loss *p = bsearch(&key, l->list, l->count, sizeof *l->list, by_source);
    if (p != NULL)
        there[p - l->list] = true;
}

/* The innermost module of a node: "['', 'model', 'model.norm', 'mul_5']" has "model.norm". */
static const char *module_of(size_t *length, const ebb_graph *g, ebb_node n)
{
    const char *scopes = ebb_props_get(g, &ebb_node_of(g, n)->props, EBB_NOTED_SCOPES);
    const char *end = scopes != NULL ? strrchr(scopes, ',') : NULL, *begin;
    if (end == NULL || end == scopes || end[-1] != '\'')
        return NULL;
    for (begin = --end; begin > scopes && begin[-1] != '\'';)
        begin--;
    *length = (size_t)(end - begin);
    return begin;
}

static void mark_run(ebb_noted_losses *l, const ebb_graph *g)
{
    size_t length;
    EBB_EACH_NODE(g, n) {
        const char *module = l->count > 0 ? module_of(&length, g, n) : NULL;
        for (size_t i = 0; module != NULL && i < l->count; i++)
            l->list[i].run |=
                l->list[i].module == length && strncmp(l->list[i].name, module, length) == 0;
    }
}

/* A module that reads "weight" of another one where its own would be: the two are tied, and torch.export notes the
 * one by the other. */
static void mark_tied(const ebb_noted_losses *l, bool *tied, const ebb_graph *g, ebb_noted *noted)
{
    EBB_EACH_NODE(g, n) {
        const ebb_noted_loss *first = ebb_noted_loss_at(l, g, n);
        noted->count = 0;
        if (first != NULL)
            ebb_noted_sources(noted, g, n, "p_");
        for (int k = 0; k < noted->count; k++) {
            const ebb_noted_loss *other = ebb_noted_parameter(l, noted->name[k]);
            for (size_t i = 0; other != NULL && i < l->count; i++) {
                const ebb_noted_loss *p = &l->list[i];
                tied[i] |=
                    p->module == first->module && strncmp(p->name, first->name, p->module) == 0 &&
                    (other->module != p->module || strncmp(p->name, other->name, p->module) != 0) &&
                    strcmp(p->name + p->module, other->name + other->module) == 0;
            }
        }
    }
}

static void leave_out(ebb_noted_losses *l, const bool *out)
{
    size_t left = 0;
    for (size_t i = 0; i < l->count; i++)
        if (!out[i])
            l->list[left++] = l->list[i];
    l->count = left;
}

ebb_status ebb_noted_losses_find(ebb_noted_losses *losses, const ebb_graph *g, ebb_arena *scratch)
{
    const char *text = ebb_props_get(g, &g->props, EBB_NOTED_LIST);
    *losses = (ebb_noted_losses){0};
    if (text == NULL || g->model->torchscript)
        return NULL;
    EBB_TRY(read_parameters(losses, text, scratch));
    if (losses->count == 0)
        return NULL;
    EBB_TRY(keep_all(losses, scratch));
    if (!ebb_is_from_pytorch(g)) {
        losses->count = 0;
        return NULL;
    }
    bool *there = EBB_NEW(scratch, bool, losses->count);
    bool *tied = EBB_NEW(scratch, bool, losses->count);
    ebb_noted *noted = EBB_NEW(scratch, ebb_noted, 1);
    EBB_GOT(there && tied && noted);
    EBB_EACH_NODE(g, n) {
        ebb_noted_sources(noted, g, n, "p_");
        for (int i = 0; i < noted->count; i++)
            strike_out(losses, noted->name[i], there);
    }
    for (size_t i = 0; i < g->initializer_count; i++) {
        const char *own =
            ebb_props_get(g, &ebb_value_of(g, g->initializers[i])->props, EBB_NOTED_NAME);
        if (own != NULL)
            strike_out(losses, own, there);
    }
    for (size_t i = 0; i < losses->count; i++)
        there[i] |= ebb_value_find(g, losses->list[i].name).i != 0;
    leave_out(losses, there);
    mark_tied(losses, tied, g, noted);
    leave_out(losses, tied);
    mark_run(losses, g);
    return NULL;
}

bool ebb_noted_is_parameter(const ebb_noted_losses *losses, const char *name)
{
    return losses->all_count > 0 &&
           bsearch(&name, losses->names, losses->all_count, sizeof *losses->names, by_name) != NULL;
}

bool ebb_noted_lists(const ebb_noted_losses *losses, const char *module)
{
    const size_t length = strlen(module);
    for (size_t i = 0; i < losses->all_count; i++)
        if (losses->all[i].module == length && strncmp(losses->all[i].name, module, length) == 0)
            return true;
    return losses->all_count == 0;
}

const ebb_noted_loss *ebb_noted_parameter(const ebb_noted_losses *losses, const char *source)
{
    const ebb_noted_loss key = {.source = source};
    return losses->all_count == 0
               ? NULL
               : bsearch(&key, losses->all, losses->all_count, sizeof *losses->all, by_source);
}

bool ebb_noted_is_gone(const ebb_noted_losses *losses, const ebb_graph *g, const char *source)
{
    const ebb_noted_loss *p = ebb_noted_parameter(losses, source);
    return p == NULL || ebb_value_find(g, p->name).i == 0;
}

const ebb_noted_loss *ebb_noted_loss_at(const ebb_noted_losses *losses, const ebb_graph *g,
                                        ebb_node n)
{
    size_t length;
    const char *module = losses->count > 0 ? module_of(&length, g, n) : NULL;
    for (size_t i = 0; module != NULL && i < losses->count; i++)
        if (losses->list[i].module == length && strncmp(losses->list[i].name, module, length) == 0)
            return &losses->list[i];
    return NULL;
}

bool ebb_noted_weight_at(const ebb_noted_losses *losses, const ebb_graph *g, ebb_node n)
{
    const ebb_noted_loss *first = ebb_noted_loss_at(losses, g, n);
    for (size_t i = 0; first != NULL && i < losses->count; i++) {
        const ebb_noted_loss *p = &losses->list[i];
        if (p->module == first->module && strncmp(p->name, first->name, p->module) == 0 &&
            strstr(p->name + p->module, "weight") != NULL)
            return true;
    }
    return false;
}

/* Whether the bias beside a weight is lost, too: its source differs in the last part alone. */
static bool has_lost_bias(const ebb_noted_losses *losses, const ebb_noted_loss *weight)
{
    for (size_t i = 0; i < losses->count; i++) {
        const ebb_noted_loss *p = &losses->list[i];
        if (p->module == weight->module && strncmp(p->name, weight->name, p->module) == 0 &&
            strcmp(p->name + p->module, ".bias") == 0)
            return true;
    }
    return false;
}

const ebb_noted_loss *ebb_noted_layer_below(const ebb_noted_losses *losses, const ebb_graph *g,
                                            ebb_node n)
{
    size_t length;
    const char *module = losses->count > 0 ? module_of(&length, g, n) : NULL;
    for (size_t i = 0; module != NULL && i < losses->count; i++) {
        const ebb_noted_loss *p = &losses->list[i];
        bool within =
            p->module > length && strncmp(p->name, module, length) == 0 && p->name[length] == '.';
        if (within && !p->run && strcmp(p->name + p->module, ".weight") == 0 &&
            has_lost_bias(losses, p))
            return p;
    }
    return NULL;
}

/* Of the module that this parameter's module is in, "block." of "block.norm1.weight". */
static size_t outer_length(const char *name)
{
    const char *dot = strrchr(name, '.');
    while (dot != NULL && dot > name && dot[-1] != '.')
        dot--;
    return dot != NULL ? (size_t)(dot - name) : 0;
}

const ebb_noted_loss *ebb_noted_loss_beside(const ebb_noted_losses *losses, const char *name)
{
    const size_t outer = outer_length(name);
    for (size_t i = 0; i < losses->count; i++) {
        const ebb_noted_loss *p = &losses->list[i];
        if (!p->run && outer_length(p->name) == outer && strncmp(p->name, name, outer) == 0 &&
            strcmp(p->name + p->module, ".weight") == 0 && has_lost_bias(losses, p))
            return p;
    }
    return NULL;
}

const char *ebb_noted_name(const ebb_graph *g, ebb_node n, const char *source, ebb_arena *scratch)
{
    size_t length;
    const char *begin = module_of(&length, g, n), *end = begin != NULL ? begin + length : NULL;
    if (begin == NULL)
        return NULL;
    const char *rest = source + 2; // behind "p_"
    for (const char *c = begin; c < end; c++, rest++) {
        char plain = isalnum((unsigned char)*c) ? (char)tolower((unsigned char)*c) : '_';
        if (plain != (char)tolower((unsigned char)*rest))
            return NULL;
    }
    return end > begin && rest[0] == '_'
               ? ebb_arena_printf(scratch, "%.*s.%s", (int)(end - begin), begin, rest + 1)
               : NULL;
}
