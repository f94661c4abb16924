/* detached.c: detach(), whose node the dynamo exporter's optimiser drops.
 *
 *   before   y = Mul(h, t)                       "aten.mul.Tensor](args = (%tanh, %detach), ...)"
 *   after    d = Identity(t)   y = Mul(h, d)     no gradient passes d
 *
 * The call at the node still says that it read what detach() gave, and which of its operands that was: the only
 * one that is computed, or the one in the same place. Where that does not tell, `ebb check` warns. In files of the
 * TorchScript exporter, which has no notes, the second x of q + x - x was detached: else nobody would write it.
 */
#include "passes/mended/detached.h"

#include "onnx/graph/build.h"

#include "passes/common.h"
#include "passes/parameters/noted.h"

/* "detach_3" */
static bool is_of_detach(const char *source)
{
    return strncmp(source, "detach", 6) == 0 &&
           strspn(source + 6, "_0123456789") == strlen(source + 6);
}

static bool is_state(const char *source)
{
    return strncmp(source, "p_", 2) == 0 || strncmp(source, "b_", 2) == 0 ||
           strncmp(source, "c_", 2) == 0;
}

typedef struct call { /* what the call of a node reads, but for the module's state */
    ebb_noted sources;
    int place,
        computed; /* of the detached one among so many; place -1: there is none, or several */
} call;

static void read_call(call *c, const ebb_graph *g, ebb_node n)
{
    int detached = 0;
    ebb_noted_sources(&c->sources, g, n, "");
    c->place = -1;
    c->computed = 0;
    for (int i = 0; i < c->sources.count; i++) {
        if (is_state(c->sources.name[i]))
            continue;
        if (is_of_detach(c->sources.name[i]) && detached++ == 0)
            c->place = c->computed;
        c->computed++;
    }
    if (detached > 1)
        c->place = -1;
}

/* It comes from a node that stands for another call, which did not keep the detach. */
static bool is_from_outside(const ebb_graph *g, ebb_node n, ebb_value v)
{
    const ebb_node by = v.i != 0 ? ebb_value_of(g, v)->producer : EBB_NO_NODE;
    if (v.i == 0 || ebb_value_constant(g, v) != NULL)
        return false;
    if (by.i == 0)
        return (ebb_value_of(g, v)->flags & EBB_IS_INITIALIZER) == 0;
    const char *own = ebb_props_get(g, &ebb_node_of(g, n)->props, EBB_NOTED_CALL),
               *other = ebb_props_get(g, &ebb_node_of(g, by)->props, EBB_NOTED_CALL);
    return !ebb_is_detach(g, by) && other != NULL && strcmp(own, other) != 0;
}

static ebb_status detach(ebb_graph *g, ebb_node n, uint32_t slot, const char *name,
                         ebb_arena *scratch)
{
    ebb_build b = ebb_build_at(g, n, EBB_PHASE_NONE, NULL);
    const ebb_value y = ebb_emit_detached(&b, ebb_in(g, n, slot));
    EBB_TRY(b.status);
    const char *note = ebb_arena_printf(scratch, "%%%s" EBB_DETACH_RESTORED, name);
    EBB_GOT(note);
    EBB_TRY(ebb_props_set(g, &ebb_node_of(g, b.last)->props, EBB_NOTED_CALL, note));
    return ebb_node_set_input(g, n, slot, y);
}

static ebb_status restore_at(ebb_graph *g, ebb_node n, call *c, ebb_arena *scratch)
{
    const char *name = NULL;
    read_call(c, g, n);
    for (int i = 0; c->place >= 0 && i < c->sources.count; i++)
        if (is_of_detach(c->sources.name[i]))
            name = c->sources.name[i];
    const uint32_t count = ebb_node_of(g, n)->in_count;
    const bool both = c->computed == 2 && count == 2 && is_from_outside(g, n, ebb_in(g, n, 0)) &&
                      is_from_outside(g, n, ebb_in(g, n, 1));
    for (uint32_t slot = 0; name != NULL && slot < count; slot++)
        if (both ? slot == (uint32_t)c->place
                 : c->computed == 1 && is_from_outside(g, n, ebb_in(g, n, slot)))
            EBB_TRY(detach(g, n, slot, name, scratch));
    return NULL;
}

ebb_status ebb_detached_restore(ebb_graph *g, ebb_arena *scratch)
{
    call *c = EBB_NEW(scratch, call, 1);
    EBB_GOT(c);
    EBB_EACH_NODE(g, n) {
        const char *note = ebb_props_get(g, &ebb_node_of(g, n)->props, EBB_NOTED_CALL);
        if (note != NULL && strstr(note, "%detach") != NULL && !ebb_is_detach(g, n))
            EBB_TRY(restore_at(g, n, c, scratch));
        if (ebb_is_taken_off(g, n, false))
            EBB_TRY(detach(g, n, 1, "detach", scratch));
    }
    return NULL;
}
