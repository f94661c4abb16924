/* names.c: which value has a name: a table of the graph's own, with open addressing. */
#include "onnx/graph/change.h"

#include <stdio.h>

static size_t first_slot(const ebb_graph *g, ebb_str name)
{
    return (size_t)((name.i * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (g->name_slots - 1);
}

/* The slot of the value of this name, or the free one where it would go. */
static size_t slot_of(const ebb_graph *g, ebb_str name)
{
    size_t slot = first_slot(g, name);
    while (g->by_name[slot].i != 0 && ebb_value_of(g, g->by_name[slot])->name.i != name.i)
        slot = (slot + 1) & (g->name_slots - 1);
    return slot;
}

ebb_value ebb_value_named(const ebb_graph *g, ebb_str name)
{
    return name.i == 0 || g->name_slots == 0 ? EBB_NO_VALUE : g->by_name[slot_of(g, name)];
}

ebb_value ebb_value_find(const ebb_graph *g, const char *name)
{
    return ebb_value_named(g, ebb_names_find(&g->model->names, name));
}

ebb_str ebb_graph_intern(ebb_graph *g, const char *text)
{
    return ebb_names_intern(&g->model->names, text, strlen(text));
}

/* At most half full. */
bool ebb_name_make_room(ebb_graph *g)
{
    if (g->name_count * 2 < g->name_slots)
        return true;
    ebb_value *old = g->by_name;
    size_t old_slots = g->name_slots, slots = old_slots > 0 ? old_slots * 2 : 16;
    ebb_value *longer = EBB_NEW(&g->model->arena, ebb_value, slots);
    if (longer == NULL)
        return false;
    g->by_name = longer;
    g->name_slots = slots;
    for (size_t i = 0; i < old_slots; i++) { // no two have one name: the first free slot is its own
        if (old[i].i == 0)
            continue;
        size_t slot = first_slot(g, ebb_value_of(g, old[i])->name);
        while (longer[slot].i != 0)
            slot = (slot + 1) & (slots - 1);
        longer[slot] = old[i];
    }
    ebb_arena_drop(&g->model->arena, old);
    return true;
}

void ebb_name_take(ebb_graph *g, ebb_value v, ebb_str name)
{
    ebb_value_of(g, v)->name = name;
    g->by_name[slot_of(g, name)] = v;
    g->name_count++;
}

/* Slots behind it that could stand nearer to their first do so, as a search ends at
 * the first free one. */
void ebb_name_free(ebb_graph *g, ebb_value v)
{
    size_t mask = g->name_slots - 1, hole = slot_of(g, ebb_value_of(g, v)->name);
    if (!ebb_same_value(g->by_name[hole], v)) // freed before: another's, by now, or nobody's
        return;
    for (size_t i = (hole + 1) & mask; g->by_name[i].i != 0; i = (i + 1) & mask) {
        size_t first = first_slot(g, ebb_value_of(g, g->by_name[i])->name);
        if (((i - first) & mask) < ((i - hole) & mask))
            continue;
        g->by_name[hole] = g->by_name[i];
        hole = i;
    }
    g->by_name[hole] = EBB_NO_VALUE;
    g->name_count--;
}

ebb_str ebb_graph_fresh(ebb_graph *g, const char *base)
{
    ebb_str name = ebb_graph_intern(g, base);
    enum { COUNTED_NAMES = 100 };
    char text[512];
    for (unsigned i = 1; ebb_value_named(g, name).i != 0; i++) {
        // ids are not used twice: a file of a million equal names is not counted through each time
        (void)snprintf(text, sizeof text, "%.490s_%u", base,
                       i < COUNTED_NAMES ? i : i + (unsigned)g->value_count);
        name = ebb_graph_intern(g, text);
    }
    return name;
}

ebb_status ebb_value_rename(ebb_graph *g, ebb_value v, const char *name)
{
    ebb_str s = ebb_graph_intern(g, name);
    EBB_GOT(s.i != 0);
    ebb_value taken = ebb_value_named(g, s);
    if (taken.i != 0 && !ebb_same_value(taken, v))
        return ebb_error(EBB_REJECTED, "value name '%s' is taken", name);
    EBB_GOT(ebb_name_make_room(g));
    ebb_str old = ebb_value_of(g, v)->name;
    ebb_name_free(g, v);
    ebb_name_take(g, v, s);
    return old.i == s.i ? NULL : ebb_captures_rename(g, v, ebb_text(g, old));
}

ebb_status ebb_value_step_aside(ebb_graph *g, ebb_value v, const char *base)
{
    ebb_str fresh = base != NULL ? ebb_graph_fresh(g, base) : (ebb_str){0};
    EBB_GOT(fresh.i != 0);
    return ebb_value_rename(g, v, ebb_text(g, fresh));
}

ebb_status ebb_value_take_name(ebb_graph *g, ebb_value with, ebb_value old)
{
    char before[512];
    const char *name = ebb_value_name(g, old);
    (void)snprintf(before, sizeof before, "%.480s_before", name);
    EBB_TRY(ebb_value_step_aside(g, old, before));
    return ebb_value_rename(g, with, name);
}
