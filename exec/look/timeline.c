/* timeline.c: see timeline.h. */
#include "exec/look/timeline.h"

static void set_int(json_t *object, const char *key, uint64_t value)
{
    (void)json_object_set_new(object, key, json_integer((json_int_t)value));
}

/* ---- curve ---- */

json_t *ebb_timeline_curve(const uint64_t *live, uint32_t positions)
{
    json_t *list = json_array();
    uint64_t points = positions < EBB_CURVE_POINTS ? positions : EBB_CURVE_POINTS;
    for (uint64_t i = 0; i < points; i++) {
        uint32_t from = (uint32_t)(i * positions / points);
        uint32_t to = (uint32_t)((i + 1) * positions / points), most = from;
        for (uint32_t p = from; p < to; p++)
            most = live[p] > live[most] ? p : most;
        json_t *point = json_object();
        set_int(point, "position", most);
        set_int(point, "live_bytes", live[most]);
        (void)json_array_append_new(list, point);
    }
    return list;
}

/* ---- phases ---- */

static const char *phase_name(uint8_t phase)
{
    static const char *const names[EBB_PHASE_COUNT] = {"none", "forward", "loss", "backward",
                                                       "update"};
    return phase < EBB_PHASE_COUNT ? names[phase] : names[0];
}

static json_t *phases(const ebb_plan *plan)
{
    struct {
        uint32_t first, last, nodes;
        bool done;
    } seen[EBB_PHASE_COUNT] = {{0}};
    json_t *list = json_array();
    for (uint32_t p = 0; p < plan->count; p++) {
        uint8_t phase = ebb_node_of(plan->g, plan->order[p])->phase;
        phase = phase < EBB_PHASE_COUNT ? phase : 0;
        if (seen[phase].nodes++ == 0)
            seen[phase].first = p;
        seen[phase].last = p;
    }
    for (;;) {
        int next = -1;
        for (int k = 0; k < EBB_PHASE_COUNT; k++)
            if (seen[k].nodes > 0 && !seen[k].done &&
                (next < 0 || seen[k].first < seen[next].first))
                next = k;
        if (next < 0)
            return list;
        seen[next].done = true;
        json_t *phase = json_object();
        (void)json_object_set_new(phase, "phase", json_string(phase_name((uint8_t)next)));
        set_int(phase, "first", seen[next].first);
        set_int(phase, "last", seen[next].last);
        set_int(phase, "nodes", seen[next].nodes);
        (void)json_array_append_new(list, phase);
    }
}

/* ---- the neighbourhood of the peak ---- */

enum { NAMED = 3 };

/* Tensors that are born or die here: their bytes in all, and the largest by name. */
typedef struct event {
    uint64_t bytes;
    const ebb_memory_tensor *largest[NAMED];
} event;

static void add_tensor(event *e, const ebb_memory_tensor *t)
{
    e->bytes += t->bytes;
    for (int i = 0; i < NAMED; i++)
        if (e->largest[i] == NULL || t->bytes > e->largest[i]->bytes) {
            const ebb_memory_tensor *pushed = e->largest[i];
            e->largest[i] = t;
            if (pushed == NULL)
                return;
            t = pushed;
        }
}

static json_t *names_of(const ebb_graph *g, const event *e)
{
    json_t *list = json_array();
    for (int i = 0; i < NAMED && e->largest[i] != NULL; i++) {
        const ebb_memory_tensor *t = e->largest[i];
        json_t *tensor = json_object();
        const char *name = t->value.i != 0 ? ebb_value_name(g, t->value) : "workspace";
        (void)json_object_set_new(tensor, "name", json_string(name));
        set_int(tensor, "bytes", t->bytes);
        (void)json_array_append_new(list, tensor);
    }
    return list;
}

/* What is there throughout is born before the first node and dies after the last. */
static bool is_throughout(const ebb_memory *m, const ebb_memory_tensor *t)
{
    return t->birth == 0 && t->death + 1 >= m->positions;
}

static json_t *neighbourhood(const ebb_plan *plan)
{
    enum { WIDTH = 2 * EBB_NEAR_PEAK + 1 };
    const ebb_memory *m = &plan->memory;
    event born[WIDTH] = {{0}}, dies[WIDTH] = {{0}};
    json_t *list = json_array();
    uint32_t from = m->peak_position > EBB_NEAR_PEAK ? m->peak_position - EBB_NEAR_PEAK : 0;
    for (size_t i = 0; i < m->tensor_count; i++) {
        const ebb_memory_tensor *t = &m->tensors[i];
        if (t->bytes == 0 || is_throughout(m, t))
            continue;
        if (t->birth >= from && t->birth - from < WIDTH)
            add_tensor(&born[t->birth - from], t);
        if (t->death >= from && t->death - from < WIDTH)
            add_tensor(&dies[t->death - from], t);
    }
    for (uint32_t p = from; p <= m->peak_position + EBB_NEAR_PEAK && p < plan->count; p++) {
        json_t *row = json_object();
        ebb_node n = plan->order[p];
        set_int(row, "position", p);
        (void)json_object_set_new(row, "node", json_string(ebb_node_label(plan->g, n)));
        (void)json_object_set_new(row, "phase",
                                  json_string(phase_name(ebb_node_of(plan->g, n)->phase)));
        set_int(row, "live_bytes", m->live[p]);
        set_int(row, "born_bytes", born[p - from].bytes);
        set_int(row, "dies_bytes", dies[p - from].bytes);
        (void)json_object_set_new(row, "born", names_of(plan->g, &born[p - from]));
        (void)json_object_set_new(row, "dies", names_of(plan->g, &dies[p - from]));
        (void)json_array_append_new(list, row);
    }
    return list;
}

/* ---- every tensor, every node ---- */

static void add_life(json_t *list, const char *name, ebb_category category, ebb_place place,
                     uint64_t bytes, uint32_t birth, uint32_t death)
{
    json_t *life = json_object();
    (void)json_object_set_new(life, "name", json_string(name));
    (void)json_object_set_new(life, "category", json_string(ebb_category_name(category)));
    (void)json_object_set_new(life, "place", json_string(ebb_place_name(place)));
    set_int(life, "bytes", bytes);
    set_int(life, "birth", birth);
    set_int(life, "death", death);
    (void)json_array_append_new(list, life);
}

/* What lies elsewhere is a state, or waits there for the backward. */
static ebb_category away_category(const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    return info->role == EBB_ROLE_OPTIMIZER          ? EBB_OPTIMIZER_STATE
           : (info->flags & EBB_IS_INITIALIZER) != 0 ? EBB_PARAMETER
                                                     : EBB_ACTIVATION;
}

static json_t *lives_of(const ebb_graph *g, const ebb_memory *m)
{
    json_t *list = json_array();
    const uint32_t last = m->positions > 0 ? m->positions - 1 : 0;
    for (size_t i = 0; i < m->tensor_count; i++) {
        const ebb_memory_tensor *t = &m->tensors[i];
        add_life(list, t->value.i != 0 ? ebb_value_name(g, t->value) : "workspace", t->category,
                 EBB_PLACE_DEVICE, t->bytes, t->birth, t->death);
    }
    for (size_t i = 0; i < m->away_count; i++) {
        const ebb_memory_away *t = &m->away[i];
        if (t->within == 0)
            add_life(list, ebb_value_name(g, t->value), away_category(g, t->value), t->place,
                     t->bytes, t->birth, t->death);
    }
    for (size_t i = 0; i < m->mapped_count; i++) {
        const ebb_value_info *info = ebb_value_of(g, m->mapped[i]);
        add_life(list, ebb_text(g, info->name), EBB_PARAMETER, EBB_PLACE_MAPPED,
                 info->tensor->bytes, 0, last);
    }
    return list;
}

static json_t *order_of(const ebb_plan *plan)
{
    json_t *order = json_array();
    for (uint32_t p = 0; p < plan->count; p++) {
        json_t *row = json_object();
        ebb_node n = plan->order[p];
        (void)json_object_set_new(row, "node", json_string(ebb_node_label(plan->g, n)));
        (void)json_object_set_new(row, "phase",
                                  json_string(phase_name(ebb_node_of(plan->g, n)->phase)));
        (void)json_array_append_new(order, row);
    }
    return order;
}

ebb_status ebb_timeline_json(json_t *plan_json, const ebb_plan *plan)
{
    const ebb_model *model = plan->g->model;
    int threads;
    uint64_t budget = ebb_budget_of(model, &threads);
    (void)json_object_set_new(plan_json, "curve",
                              ebb_timeline_curve(plan->memory.live, plan->memory.positions));
    (void)json_object_set_new(plan_json, "phases", phases(plan));
    (void)json_object_set_new(plan_json, "neighbourhood", neighbourhood(plan));
    if (budget != 0)
        set_int(plan_json, "budget_bytes", budget);
    if (threads != 0)
        set_int(plan_json, "budget_threads", (uint64_t)threads);
    set_int(plan_json, "threads", (uint64_t)plan->setting.threads);
    return plan_json != NULL ? NULL : ebb_error_memory();
}

void ebb_timeline_lives(json_t *plan_json, const ebb_plan *plan)
{
    if (plan->count > EBB_MOST_LIVES)
        return;
    (void)json_object_set_new(plan_json, "tensors", lives_of(plan->g, &plan->memory));
    (void)json_object_set_new(plan_json, "order", order_of(plan));
}
