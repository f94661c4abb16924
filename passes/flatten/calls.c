/* calls.c: functions by name, and what their calls unfold to. */
#include "passes/flatten/calls.h"

/* ---- which function ---- */

bool ebb_calls_same_domain(const char *a, const char *b)
{
    const char *plain_a = strcmp(a, "ai.onnx") == 0 ? "" : a;
    const char *plain_b = strcmp(b, "ai.onnx") == 0 ? "" : b;
    return strcmp(plain_a, plain_b) == 0;
}

ebb_status ebb_calls_index(ebb_calls *calls, const ebb_model *model, ebb_arena *arena)
{
    *calls = (ebb_calls){.model = model, .name_count = model->names.count};
    calls->first = EBB_NEW(arena, uint32_t, calls->name_count + 1);
    calls->next = EBB_NEW(arena, uint32_t, model->function_count + 1);
    EBB_GOT(calls->first && calls->next);
    for (size_t i = model->function_count; i-- > 0;) { // the first one of a name stands first
        uint32_t *head = &calls->first[model->functions[i].name.i];
        calls->next[i] = *head;
        *head = (uint32_t)i + 1;
    }
    calls->looked_at += model->function_count;
    return NULL;
}

size_t ebb_calls_find(ebb_calls *calls, const ebb_graph *g, const ebb_node_info *node)
{
    size_t i = node->op_name.i < calls->name_count ? calls->first[node->op_name.i] : 0;
    for (calls->looked_at++; i != 0; i = calls->next[i - 1], calls->looked_at++) {
        const ebb_function *f = &calls->model->functions[i - 1];
        if (ebb_calls_same_domain(ebb_text(g, f->domain), ebb_text(g, node->domain)) &&
            strcmp(ebb_text(g, f->overload), ebb_text(g, node->overload)) == 0)
            return i;
    }
    return 0;
}

/* ---- sizes ---- */

enum { UNSEEN = 0, OPEN = UINT32_MAX }; // else: the size

typedef struct walk {
    ebb_calls *calls;
    ebb_arena *scratch;
    uint32_t *sizes; /* by function; OPEN: those that it calls come first */
    uint32_t *waiting;
    size_t count, capacity;
    uint32_t most;
} walk;

static uint32_t sum(const walk *w, uint32_t a, uint32_t b)
{
    return a > w->most || b > w->most - a ? w->most + 1 : a + b;
}

static ebb_status calls_itself(const walk *w, size_t function)
{
    const ebb_model *m = w->calls->model;
    return ebb_error(EBB_REJECTED, "function '%s' calls itself",
                     ebb_names_text(&m->names, m->functions[function - 1].name));
}

/* Functions that a body calls and whose size is not known wait, the last one in front. */
static ebb_status wait_for_calls(walk *w, const ebb_graph *body)
{
    EBB_EACH_NODE(body, n) {
        const ebb_node_info *info = ebb_node_of(body, n);
        size_t to = ebb_calls_find(w->calls, body, info);
        if (to != 0 && w->sizes[to - 1] == OPEN)
            return calls_itself(w, to);
        if (to != 0 && w->sizes[to - 1] == UNSEEN) {
            EBB_GOT(ebb_arena_grow(w->scratch, &w->waiting, w->count, &w->capacity,
                                   sizeof *w->waiting));
            w->waiting[w->count++] = (uint32_t)to;
        }
        EBB_EACH_BODY(info, within)
            EBB_TRY(wait_for_calls(w, *within));
    }
    return NULL;
}

/* Its nodes with those that its calls, whose sizes are known, unfold to. */
static uint32_t unfolded(const walk *w, const ebb_graph *body)
{
    uint32_t size = 1;
    EBB_EACH_NODE(body, n) {
        const ebb_node_info *info = ebb_node_of(body, n);
        size_t to = ebb_calls_find(w->calls, body, info);
        size = sum(w, size, to != 0 ? w->sizes[to - 1] : 1);
        EBB_EACH_BODY(info, within)
            size = sum(w, size, unfolded(w, *within));
    }
    return size;
}

/* Each function is looked at when it comes to the front, and again when those that it calls have
 * gone. */
static ebb_status measure(walk *w, size_t function)
{
    const ebb_model *m = w->calls->model;
    w->count = 0;
    EBB_GOT(ebb_arena_grow(w->scratch, &w->waiting, w->count, &w->capacity, sizeof *w->waiting));
    w->waiting[w->count++] = (uint32_t)function;
    while (w->count > 0) {
        uint32_t now = w->waiting[w->count - 1];
        uint32_t *size = &w->sizes[now - 1];
        if (*size == UNSEEN) {
            *size = OPEN;
            EBB_TRY(wait_for_calls(w, m->functions[now - 1].body));
            continue;
        }
        if (*size == OPEN)
            *size = unfolded(w, m->functions[now - 1].body);
        w->count--;
    }
    return NULL;
}

ebb_status ebb_calls_bound(ebb_calls *calls, uint32_t most, ebb_arena *scratch)
{
    const ebb_model *m = calls->model;
    walk w = {.calls = calls, .scratch = scratch, .most = most};
    w.sizes = EBB_NEW(scratch, uint32_t, m->function_count + 1);
    EBB_GOT(w.sizes);
    for (size_t i = 0; i < m->function_count; i++)
        if (w.sizes[i] == UNSEEN)
            EBB_TRY(measure(&w, i + 1));
    if (unfolded(&w, m->graph) > most)
        return ebb_error(EBB_REJECTED, "the model's functions unfold to more than %lu nodes",
                         (unsigned long)most);
    return NULL;
}
