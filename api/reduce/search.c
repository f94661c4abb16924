/* search.c: what is tried, in which order. */
#include "api/reduce/reduce.h"

#include "onnx/graph/infer.h"

/* ---- one change ---- */

static ebb_status keep(ebb_reducer *r, ebb_model *model)
{
    if (!ebb_arena_grow(&r->arena, &r->kept, r->count, &r->capacity, sizeof(ebb_model *))) {
        ebb_model_free(model);
        return ebb_error_memory();
    }
    r->kept[r->count++] = model;
    return NULL;
}

ebb_status ebb_reduce_test(ebb_reducer *r, const ebb_model *model, bool *still)
{
    const ebb_reduce_options *o = r->options;
    ebb_model *copy;
    ebb_failure failure;
    *still = false;
    r->tests++;
    EBB_TRY(ebb_model_copy(&copy, model));
    ebb_status status;
    if (o->fails != NULL) {
        EBB_LOCAL_ARENA(arena);
        status = ebb_failure_find(&failure, o, copy, arena);
        *still = status == NULL && ebb_failure_same(&r->failure, &failure);
    } else {
        status = o->test(o->context, copy, still);
    }
    ebb_model_free(copy);
    return status;
}

/* Rejected is an answer; other errors are not. */
static ebb_status is_legal(ebb_model *model, bool *legal)
{
    ebb_status status = ebb_infer_graph(model->graph);
    if (status == NULL)
        status = ebb_verify(model->graph);
    *legal = status == NULL;
    return ebb_status_code(status) == EBB_RUNTIME ? status : NULL;
}

static ebb_status change_and_tie(ebb_reducer *r, ebb_model *copy, ebb_change change, size_t at,
                                 size_t size, bool *worth)
{
    ebb_graph *g = copy->graph;
    size_t count = g->value_count;
    bool *had_readers = EBB_NEW(&copy->arena, bool, count);
    EBB_GOT(had_readers);
    EBB_EACH_VALUE(g, v)
        had_readers[v.i] = ebb_value_of(g, v)->use_count > 0;
    EBB_TRY(change(copy, at, size, worth));
    if (!*worth)
        return NULL;
    bool outputs = change == ebb_less_outputs; // what they kept alive is to go, too
    EBB_TRY(ebb_reduce_tie(g, had_readers, outputs ? 0 : count, worth));
    return r->typed && *worth ? is_legal(copy, worth) : NULL;
}

/* Takes the change where the model still fails after it. */
static ebb_status reduce_try(ebb_reducer *r, ebb_change change, size_t at, size_t size, bool *took)
{
    ebb_model *copy;
    bool worth = false;
    *took = false;
    if (r->limit != 0 && r->tests >= r->limit)
        return NULL;
    EBB_TRY(ebb_model_copy(&copy, ebb_reduce_best(r)));
    ebb_status status = change_and_tie(r, copy, change, at, size, &worth);
    if (status == NULL && worth)
        status = ebb_reduce_test(r, copy, took);
    if (status == NULL && *took)
        status = keep(r, copy);
    else
        ebb_model_free(copy);
    if (status == NULL && *took && r->options->progress != NULL) {
        size_t nodes = 0;
        EBB_EACH_NODE(ebb_reduce_best(r)->graph, n)
            nodes++;
        r->options->progress(r->options->context, r->stage, nodes, r->tests);
    }
    return status;
}

/* ---- stages ---- */

static size_t output_count(const ebb_graph *g)
{
    return g->output_count;
}

static size_t binding_count(const ebb_graph *g)
{
    return g->binding_count;
}

static size_t initializer_count(const ebb_graph *g)
{
    return g->initializer_count;
}

/* Pieces of half of them, then of a quarter ... the last ones first, since nobody reads those. */
static ebb_status halve(ebb_reducer *r, ebb_change change, size_t (*count_of)(const ebb_graph *),
                        bool *any)
{
    size_t size = (count_of(ebb_reduce_best(r)->graph) + 1) / 2;
    while (size > 0) {
        size_t at = count_of(ebb_reduce_best(r)->graph);
        bool progress = false;
        while (at > 0) {
            size_t piece = at < size ? at : size;
            bool took;
            at -= piece;
            EBB_TRY(reduce_try(r, change, at, piece, &took));
            progress = progress || took;
        }
        *any = *any || progress;
        if (size == 1 && !progress)
            break;
        size = size > 1 ? size / 2 : 1;
    }
    return NULL;
}

/* Each thing of each node, by number. */
static ebb_status each_of_nodes(ebb_reducer *r, ebb_change change,
                                uint32_t (*count_of)(const ebb_node_info *), bool *any)
{
    for (size_t at = ebb_graph_size(ebb_reduce_best(r)->graph); at-- > 0;) {
        ebb_node n = ebb_first(ebb_reduce_best(r)->graph);
        for (size_t k = 0; k < at && n.i != 0; k++)
            n = ebb_next(ebb_reduce_best(r)->graph, n);
        if (n.i == 0)
            continue;
        uint32_t things = count_of(ebb_node_of(ebb_reduce_best(r)->graph, n));
        for (size_t k = 0; k < things; k++) {
            bool took;
            EBB_TRY(reduce_try(r, change, at, k, &took));
            *any = *any || took;
            if (took && change == ebb_less_between)
                break; // the node is gone
            if (took && change == ebb_less_attributes) {
                k--; // the next one has its number
                things--;
            }
        }
    }
    return NULL;
}

static uint32_t operands_of(const ebb_node_info *info)
{
    return info->in_count;
}

static uint32_t attributes_of(const ebb_node_info *info)
{
    return info->attr_count;
}

/* 1, 2, 3, 4, 8, 16 ... as far as numbers go. */
static int64_t larger(int64_t size)
{
    return size < 4 ? size + 1 : size <= INT64_MAX / 2 ? 2 * size : INT64_MAX;
}

/* The smallest of them that does. */
static ebb_status shrink_sizes(ebb_reducer *r, bool *any)
{
    for (int64_t size = INT64_MAX;
         (size = ebb_reduce_next_size(ebb_reduce_best(r)->graph, size)) > 0;) {
        bool took = false;
        for (int64_t to = 1; to < size && !took; to = larger(to))
            EBB_TRY(reduce_try(r, ebb_less_size, (size_t)size, (size_t)to, &took));
        *any = *any || took;
    }
    return NULL;
}

/* A pass over all, as a change: `at` says which. */
static const char *const tidying[] = {"inline", "fold", "unroll"};

static ebb_status tidied(ebb_model *copy, size_t at, size_t size, bool *applies)
{
    size_t before = ebb_graph_size(copy->graph), functions = copy->function_count;
    (void)size;
    ebb_status status = ebb_rewrite(copy, tidying[at], NULL, NULL);
    if (ebb_status_code(status) == EBB_RUNTIME)
        return status;
    bool fewer = at == 0 ? copy->function_count < functions : ebb_graph_size(copy->graph) < before;
    *applies = status == NULL && fewer;
    return NULL;
}

static ebb_status tidy(ebb_reducer *r, bool *any)
{
    for (size_t i = 0; i < sizeof tidying / sizeof tidying[0]; i++) {
        bool took = false;
        if (i > 0 || ebb_reduce_best(r)->function_count > 0)
            EBB_TRY(reduce_try(r, tidied, i, 0, &took));
        *any = *any || (took && i > 0);
    }
    return NULL;
}

static ebb_status say_less(ebb_reducer *r, bool *any)
{
    bool took;
    EBB_TRY(reduce_try(r, ebb_less_functions, 0, 0, &took));
    *any = *any || took;
    for (size_t i = 0; i < 3; i++)
        EBB_TRY(reduce_try(r, ebb_less_said, i, 0, &took));
    return NULL;
}

static ebb_status round_of_stages(ebb_reducer *r, bool *any)
{
    r->stage = "outputs";
    EBB_TRY(halve(r, ebb_less_outputs, output_count, any));
    EBB_TRY(halve(r, ebb_less_steps, binding_count, any));
    r->stage = "nodes";
    EBB_TRY(halve(r, ebb_less_nodes, ebb_graph_size, any));
    EBB_TRY(halve(r, ebb_less_before_weights, ebb_graph_size, any));
    EBB_TRY(halve(r, ebb_less_outputs, output_count, any));
    EBB_TRY(each_of_nodes(r, ebb_less_between, operands_of, any));
    r->stage = "operands";
    EBB_TRY(each_of_nodes(r, ebb_less_operands, operands_of, any));
    r->stage = "attributes";
    EBB_TRY(each_of_nodes(r, ebb_less_attributes, attributes_of, any));
    r->stage = "weights";
    EBB_TRY(halve(r, ebb_less_initializers, initializer_count, any));
    r->stage = "sizes";
    EBB_TRY(shrink_sizes(r, any));
    r->stage = "metadata";
    return say_less(r, any);
}

ebb_status ebb_reduce_search(ebb_reducer *r)
{
    enum { ROUNDS = 16 }; // three have been seen
    bool any = true;
    r->stage = "passes";
    EBB_TRY(tidy(r, &any));
    for (int round = 0; round < ROUNDS && any; round++) {
        any = false;
        EBB_TRY(round_of_stages(r, &any));
    }
    return NULL;
}
