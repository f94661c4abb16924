/* loop_key: see loop_key.h.
 *
 *   before   y = Scan (h, x) <body = ... Dropout (t) ...>
 *   after    y = Scan (h, x, keys) <body = ... k = Add (ebb.key, keys[t])  ai.ebb.Dropout (t, k) ...>
 *
 * keys[t] = {(t + 1) * odd, 0} is added to {seed, step}: no two steps have one seed, and none that of the
 * nodes outside. In a loop within a loop of T steps it is (t + 1) * (T + 1) * odd, and so on inwards: the steps
 * are digits of one number.
 */
#include "passes/primal/loop_key.h"

#include "onnx/graph/scan.h"
#include "passes/common.h"

/* Names within a loop are none of those around it. */
static const char *name_at(ebb_edit *e, const char *name, const ebb_loop_place *at)
{
    int depth = 1;
    for (; at->outer != NULL; at = at->outer)
        depth++;
    return depth == 1 ? name : ebb_arena_printf(e->scratch, "%s.%d", name, depth);
}

/* What the steps of a loop there count by. */
static uint64_t unit(const ebb_loop_place *outer)
{
    uint64_t x = UINT64_C(0x9E3779B97F4A7C15);
    ebb_scan s;
    for (; outer != NULL; outer = outer->outer)
        if (ebb_scan_read(&s, outer->around, outer->loop) == NULL)
            x *= (uint64_t)s.trips + 1;
    return x;
}

static ebb_status add_steps(ebb_edit *e, const ebb_loop_place *at, const ebb_scan *s,
                            ebb_value *step)
{
    ebb_graph *around = at->around;
    const ebb_node n = at->loop;
    const int64_t dims[2] = {s->trips, 2};
    const ebb_type whole = ebb_type_tensor(EBB_I64, 2, dims),
                   slice = ebb_type_tensor(EBB_I64, 1, dims + 1);
    int64_t *list = EBB_SCRATCH(e, int64_t, (size_t)s->trips * 2);
    const char *name = name_at(e, "ebb.key.steps", at), *step_name = name_at(e, "ebb.key.step", at);
    const uint64_t by = unit(at->outer);
    ebb_value keys;
    EBB_GOT(list && name && step_name);
    for (int64_t t = 0; t < s->trips; t++)
        list[2 * t] = (int64_t)((uint64_t)(t + 1) * by);
    EBB_TRY(ebb_graph_add_initializer(around, &keys, name, &whole, list, EBB_ROLE_CONSTANT));
    EBB_TRY(ebb_node_set_input(around, n, s->states + s->inputs, keys));
    EBB_TRY(ebb_node_set_int(around, n, "num_scan_inputs", s->inputs + (int64_t)1));
    EBB_TRY(ebb_scan_lengthen(around, n, "scan_input_axes", s->inputs, 1, 0));
    EBB_TRY(ebb_scan_lengthen(around, n, "scan_input_directions", s->inputs, 1, 0));
    EBB_TRY(ebb_value_add(s->body, step, step_name, &slice));
    return ebb_graph_add_input(s->body, *step);
}

ebb_status ebb_loop_key(ebb_edit *e, const ebb_loop_place *at, ebb_value *key)
{
    ebb_scan s;
    ebb_value outside, step, key_in;
    ebb_edit out = *e;
    if (at == NULL)
        return ebb_random_key(e, key);
    const char *name = name_at(e, "ebb.key.of_step", at);
    EBB_GOT(name);
    *key = ebb_value_find(e->g, name);
    if (key->i != 0)
        return NULL;
    ebb_graph *around = at->around;
    const char *why = ebb_scan_read(&s, around, at->loop);
    if (why != NULL)
        return ebb_error(EBB_UNSUPPORTED, "%s: %s", ebb_node_label(around, at->loop), why);
    out.g = around;
    EBB_TRY(ebb_loop_key(&out, at->outer, &outside));
    EBB_TRY(add_steps(e, at, &s, &step));
    EBB_TRY(ebb_value_add(e->g, &key_in, ebb_value_name(around, outside),
                          ebb_value_of(around, outside)->type));
    ebb_value_of(e->g, key_in)->flags |= EBB_IS_OUTER;
    ebb_value_of(around, outside)->flags |= EBB_IS_CAPTURED;
    ebb_build b = ebb_edit_build(e, ebb_first(e->g), EBB_FORWARD);
    b.name = name;
    ebb_with_name(&b, name);
    *key = ebb_emit(&b, EBB_OP_ADD, key_in, step);
    return b.status;
}
