/* absorbed.c: nodes that an exporter made one because their operands were equal, apart again.
 *
 *   before   y = LayerNormalization(x, norm1.weight, norm1.bias)     "%layer_norm : ..."
 *            a = MatMul(y, wa)                                       "args = (%layer_norm, ...)"
 *            b = MatMul(y, wb)                                       "args = (%layer_norm_1, ...)"
 *
 *   after    y = LayerNormalization(x, norm1.weight, norm1.bias)     two fresh norms of one input, as the
 *            z = LayerNormalization(x, norm2.weight, norm2.bias)     parallel branches of a block have them
 *            a = MatMul(y, wa)
 *            b = MatMul(z, wb)
 *
 * Trained as they are, one scale would get the gradients of both. The exporter notes at the readers which
 * call each of them read, and in its list that the other norm had parameters, of which the file has
 * nothing else. Where the two say the same, the node is there twice again. Of other layers, as of two networks of
 * which one was copied of the other, more than a node is gone: their parameters are marked EBB_MAYBE_TIED.
 */
#include "passes/mended/absorbed.h"

#include <ctype.h>
#include <string.h>

#include "onnx/graph/build.h"
#include "passes/mended/merged.h"
#include "passes/parameters/noted.h"
#include "passes/parameters/slots.h"
#include "passes/parameters/weights.h"

enum { PARTS = 2, LONGEST = EBB_NOTED_LONGEST };

typedef struct parting {
    ebb_graph *g;
    ebb_arena *scratch;
    ebb_noted_losses losses;
    bool *taken; /* of losses.list */
    ebb_noted_calls calls;
    ebb_noted noted; /* of the reader that was looked at last */
    bool marks;      /* what could not be parted before */
} parting;

/* ---- which parameter the other norm had ---- */

/* Length of the path of the module that the module of name[0 .. module - 1] is in, with its dot. */
static size_t outer_of(const char *name, size_t module)
{
    while (module > 0 && name[module - 1] != '.')
        module--;
    return module;
}

/* Of another module beside that of `own`, with the same last part, of which nothing is in the file: the
 * first that is not taken. like: of that module, unless it is NULL. */
static ebb_noted_loss *loss_beside(parting *p, const char *own, const ebb_noted_loss *like)
{
    const char *dot = strrchr(own, '.');
    const size_t outer = dot != NULL ? outer_of(own, (size_t)(dot - own)) : 0;
    for (size_t i = 0; dot != NULL && i < p->losses.count; i++) {
        ebb_noted_loss *l = &p->losses.list[i];
        const bool beside =
            !p->taken[i] && !l->run && l->module > 0 && outer_of(l->name, l->module) == outer &&
            strncmp(l->name, own, outer) == 0 && strcmp(l->name + l->module, dot) == 0;
        if (beside && (like == NULL ||
                       (like->module == l->module && strncmp(like->name, l->name, l->module) == 0)))
            return l;
    }
    return NULL;
}

/* Length of the last part of the path name[0 .. module - 1]. */
static size_t last_part_of(const char *name, size_t module)
{
    return module - outer_of(name, module);
}

/* Of a module of the same last name, "head_dist.bn" for "head.bn", within one that the reader is in, too: of
 * "head_dist.linear". */
static ebb_noted_loss *loss_around(parting *p, const char *own, ebb_node reader,
                                   const ebb_noted_loss *like)
{
    const char *dot = strrchr(own, '.'),
               *scopes = ebb_props_get(p->g, &ebb_node_of(p->g, reader)->props, EBB_NOTED_SCOPES);
    const size_t module = dot != NULL ? (size_t)(dot - own) : 0, last = last_part_of(own, module);
    for (size_t i = 0; scopes != NULL && module > 0 && i < p->losses.count; i++) {
        ebb_noted_loss *l = &p->losses.list[i];
        const size_t outer = outer_of(l->name, l->module);
        if (p->taken[i] || l->run || outer < 2 || l->module - outer != last ||
            strncmp(l->name + outer, own + module - last, last) != 0 ||
            strcmp(l->name + l->module, dot) != 0 ||
            (like != NULL &&
             (like->module != l->module || strncmp(like->name, l->name, l->module) != 0)))
            continue;
        const char *around = ebb_arena_printf(p->scratch, "'%.*s'", (int)(outer - 1), l->name);
        if (around != NULL && strstr(scopes, around) != NULL)
            return l;
    }
    return NULL;
}

/* ---- parting ---- */

/* One number over and over, as fresh scales and biases are, and one that the note at n names. */
static bool is_fresh_parameter(const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    const ebb_tensor *t = v.i != 0 ? info->tensor : NULL;
    return t != NULL && (info->flags & EBB_IS_INITIALIZER) != 0 && t->type.rank == 1 &&
           ebb_dtype_is_float((ebb_dtype)t->type.dtype) && ebb_tensor_is_uniform(t);
}

/* Slots of n that hold parameters of a norm: its scale, and its bias. */
static uint32_t parts_of(uint32_t slot[PARTS], const ebb_graph *g, ebb_node n)
{
    uint32_t count = 0;
    if (!ebb_op_has(ebb_node_of(g, n)->op, EBB_NORM) &&
        ebb_node_of(g, n)->op != EBB_OP_MUL) // the scale of a norm in steps
        return 0;
    for (uint32_t i = 0; i < ebb_node_of(g, n)->in_count; i++) {
        if (ebb_slot_of(ebb_node_of(g, n)->op, i) == EBB_SLOT_STATISTIC ||
            !is_fresh_parameter(g, ebb_in(g, n, i)))
            continue;
        if (count == PARTS)
            return 0;
        slot[count++] = i;
    }
    return count;
}

static bool is_read_before(const ebb_graph *g, ebb_use use)
{
    for (uint32_t i = 0; i < use.slot; i++)
        if (ebb_in(g, use.node, i).i == ebb_in(g, use.node, use.slot).i)
            return true;
    return false;
}

/* What was read here by the reader's note, "layer_norm_1": another call of the same kind, which the file has no
 * node of; NULL: it is this one, or nobody knows. */
static const char *other_call(parting *p, ebb_use use, const char *own)
{
    size_t base = strlen(own);
    while (base > 0 && (isdigit((unsigned char)own[base - 1]) || own[base - 1] == '_'))
        base--;
    const char *kind = ebb_arena_printf(p->scratch, "%.*s", (int)base, own), *found = NULL;
    if (kind == NULL)
        return NULL;
    ebb_noted_sources(&p->noted, p->g, use.node, kind);
    for (int i = 0; i < p->noted.count; i++) {
        const char *name = p->noted.name[i], *rest = name + base;
        if (strcmp(name, own) == 0 && !is_read_before(p->g, use))
            return NULL;
        if (rest[strspn(rest, "_0123456789")] != '\0' || ebb_noted_has(&p->calls, name))
            continue;
        if (found != NULL)
            return NULL;
        found = name;
    }
    return found != NULL ? ebb_arena_strdup(p->scratch, found) : NULL;
}

/* What was read here, where the reader's note names neither this call nor its result, but a call that the file has
 * no node of: of another kind, as what was dropped behind the other norm; NULL: none. */
static const char *stranger(parting *p, ebb_use use, const char *own)
{
    const ebb_graph *g = p->g;
    const char *y = ebb_value_name(g, ebb_in(g, use.node, use.slot)), *found = NULL;
    ebb_noted_sources(&p->noted, g, use.node, "");
    for (int i = 0; i < p->noted.count; i++) {
        const char *name = p->noted.name[i];
        if (strcmp(name, own) == 0 || strcmp(name, y) == 0)
            return NULL;
        if (!ebb_noted_has(&p->calls, name) && strncmp(name, "p_", 2) != 0 &&
            strncmp(name, "b_", 2) != 0)
            found = name;
    }
    return found != NULL ? ebb_arena_strdup(p->scratch, found) : NULL;
}

static ebb_status copy_parameter(parting *p, ebb_value *copy, ebb_value v, const ebb_noted_loss *of)
{
    ebb_graph *g = p->g;
    EBB_TRY(ebb_initializer_copy(g, v, of->name, copy));
    ebb_props *props = &ebb_value_of(g, *copy)->props;
    EBB_TRY(ebb_props_set(g, props, EBB_MERGED_WITH, ebb_value_name(g, v)));
    EBB_TRY(ebb_props_set(g, props, EBB_NOTED_NAME, of->source));
    p->taken[of - p->losses.list] = true;
    return NULL;
}

/* *made: the node for that call; none: the file does not tell what it had. reader: around that; none: of a module
 * beside n's own. */
static ebb_status copy_node(parting *p, ebb_value *made, ebb_node n, const uint32_t *slot,
                            uint32_t slots, const char *call, ebb_node reader)
{
    ebb_graph *g = p->g;
    const uint32_t count = ebb_node_of(g, n)->in_count;
    ebb_value *in = EBB_NEW(p->scratch, ebb_value, count);
    ebb_noted_loss *of[PARTS] = {NULL};
    *made = EBB_NO_VALUE;
    EBB_GOT(in);
    for (uint32_t i = 0; i < count; i++)
        in[i] = ebb_in(g, n, i);
    for (uint32_t k = 0; k < slots; k++) {
        const char *own = ebb_value_name(g, in[slot[k]]);
        of[k] = reader.i != 0 ? loss_around(p, own, reader, of[0]) : loss_beside(p, own, of[0]);
        if (of[k] == NULL)
            return NULL;
    }
    for (uint32_t k = 0; k < slots; k++)
        EBB_TRY(copy_parameter(p, &in[slot[k]], in[slot[k]], of[k]));
    ebb_build b = ebb_build_at(g, ebb_next(g, n), EBB_PHASE_NONE, NULL);
    ebb_with_attrs_of(&b, n);
    ebb_with_name(&b, call);
    *made = ebb_emit_list(&b, ebb_node_of(g, n)->op, in, count);
    return b.status;
}

/* Whether the exporter lists a parameter with the last part of that name, of which the file has nothing else. */
static bool has_lost_twin(const parting *p, const char *name)
{
    const char *part = ebb_last_part(name);
    for (size_t i = 0; i < p->losses.count; i++)
        if (!p->taken[i] && !p->losses.list[i].run &&
            strcmp(ebb_last_part(p->losses.list[i].name), part) == 0)
            return true;
    return false;
}

/* The layer n stands for another one, too. */
static ebb_status mark_parameters(parting *p, ebb_node n, const char *call)
{
    ebb_graph *g = p->g;
    for (uint32_t i = 0; i < ebb_node_of(g, n)->in_count; i++) {
        ebb_value v = ebb_in(g, n, i);
        if (ebb_may_be_merged(g, v) && ebb_feeds_weight_slot(g, v) &&
            has_lost_twin(p, ebb_value_name(g, v)))
            EBB_TRY(ebb_props_set(g, &ebb_value_of(g, v)->props, EBB_MAYBE_TIED, call));
    }
    return NULL;
}

/* "identity.weight" of "mixer.identity.weight". */
static const char *last_two(const char *name)
{
    size_t at = (size_t)(ebb_last_part(name) - name);
    at -= at > 0;
    while (at > 0 && name[at - 1] != '.')
        at--;
    return name + at;
}

/* A fresh norm n stands for one of another module, too, of which the file has no more than the list: with the same
 * last name, and of which nothing runs. */
static ebb_status mark_norm(parting *p, ebb_node n, const char *call)
{
    ebb_graph *g = p->g;
    for (uint32_t i = 0; i < ebb_node_of(g, n)->in_count; i++) {
        const ebb_value v = ebb_in(g, n, i);
        bool twin = false;
        for (size_t k = 0; is_fresh_parameter(g, v) && k < p->losses.count && !twin; k++)
            twin = !p->taken[k] && !p->losses.list[k].run &&
                   strcmp(last_two(p->losses.list[k].name), last_two(ebb_value_name(g, v))) == 0;
        if (twin)
            EBB_TRY(ebb_props_set(g, &ebb_value_of(g, v)->props, EBB_MAYBE_TIED, call));
    }
    return NULL;
}

/* "mixer.norm.weight" and "other.norm.weight", "layers.0.weight" and "layers.1.weight". */
static bool are_namesakes(const char *a, const char *b)
{
    a = last_two(a), b = last_two(b);
    if (isdigit((unsigned char)a[0]) && isdigit((unsigned char)b[0]))
        a += strspn(a, "0123456789"), b += strspn(b, "0123456789");
    return strcmp(a, b) == 0;
}

/* What n computes of weights a layer of another module had, too: l, of which the file has no more than the name, and
 * whose other operand was the same. Back from n, its namesakes are those that may be tied to it. */
static ebb_status mark_before(parting *p, ebb_node n, const ebb_noted_loss *l)
{
    enum { MOST = 256 }; // nodes; a projection, and what is done to it
    ebb_graph *g = p->g;
    ebb_node *list = EBB_NEW(p->scratch, ebb_node, MOST);
    size_t count = 1;
    EBB_GOT(list);
    list[0] = n;
    for (size_t k = 0; k < count; k++)
        for (uint32_t i = 0; i < ebb_node_of(g, list[k])->in_count; i++) {
            const ebb_value v = ebb_in(g, list[k], i);
            const ebb_node before = v.i != 0 ? ebb_value_of(g, v)->producer : EBB_NO_NODE;
            bool known = before.i == 0 || count == MOST;
            for (size_t j = 0; j < count && !known; j++)
                known = list[j].i == before.i;
            if (!known)
                list[count++] = before;
            if (v.i != 0 && (ebb_value_of(g, v)->flags & EBB_IS_INITIALIZER) != 0 &&
                are_namesakes(ebb_value_name(g, v), l->name))
                EBB_TRY(ebb_props_set(g, &ebb_value_of(g, v)->props, EBB_MAYBE_TIED, l->name));
        }
    return NULL;
}

/* A reader in the module of l, which runs, that its note says to read what the file has no node of. */
static ebb_status mark_layers(parting *p, ebb_node n, ebb_use use, const char *own)
{
    const ebb_graph *g = p->g;
    const char *scopes = ebb_props_get(g, &ebb_node_of(g, use.node)->props, EBB_NOTED_SCOPES);
    const char *call = ebb_noted_call(g, use.node, p->scratch);
    if (scopes == NULL || call == NULL || strcmp(call, own) == 0 || stranger(p, use, own) == NULL)
        return NULL;
    for (size_t i = 0; i < p->losses.count; i++) {
        const ebb_noted_loss *l = &p->losses.list[i];
        if (!l->run || p->taken[i] || ebb_noted_is_within(g, l->name))
            continue;
        const char *module = ebb_arena_printf(p->scratch, "'%.*s'", (int)l->module, l->name);
        EBB_GOT(module);
        if (strstr(scopes, module) != NULL)
            EBB_TRY(mark_before(p, n, l));
    }
    return NULL;
}

static bool reads_initializer(const ebb_graph *g, ebb_node n)
{
    for (uint32_t i = 0; i < ebb_node_of(g, n)->in_count; i++)
        if ((ebb_value_of(g, ebb_in(g, n, i))->flags & EBB_IS_INITIALIZER) != 0)
            return true;
    return false;
}

/* Where the reader's own module tells which norm it read. */
static ebb_status part_around(parting *p, ebb_node n, const uint32_t *slot, uint32_t slots,
                              ebb_use use, const char *call)
{
    ebb_value made;
    EBB_TRY(copy_node(p, &made, n, slot, slots, call, use.node));
    return made.i != 0 ? ebb_node_set_input(p->g, use.node, use.slot, made) : NULL;
}

/* Each reader that its note gives to another call reads that one's node. */
static ebb_status part(parting *p, ebb_node n)
{
    enum { MOST = 8 }; // calls that became one
    ebb_graph *g = p->g;
    const char *own = ebb_noted_call(g, n, p->scratch), *calls[MOST];
    ebb_value made[MOST], y = ebb_out(g, n, 0);
    uint32_t slot[PARTS], count = 0, slots = own != NULL ? parts_of(slot, g, n) : 0;
    for (size_t i = 0; own != NULL && p->marks && y.i != 0 && i < ebb_value_of(g, y)->use_count;
         i++)
        EBB_TRY(mark_layers(p, n, ebb_value_of(g, y)->uses[i], own));
    if (own == NULL || !reads_initializer(g, n) || y.i == 0 || ebb_node_of(g, n)->out_count != 1)
        return NULL;
    for (size_t i = ebb_value_of(g, y)->use_count; i-- > 0;) {
        const ebb_use use = ebb_value_of(g, y)->uses[i];
        const char *call = other_call(p, use, own);
        const char *other = call == NULL && ebb_op_has(ebb_node_of(g, n)->op, EBB_NORM)
                                ? stranger(p, use, own)
                                : NULL;
        uint32_t k = 0;
        if (other != NULL && p->marks)
            EBB_TRY(mark_norm(p, n, other));
        else if (other != NULL && slots > 0)
            EBB_TRY(part_around(p, n, slot, slots, use, other));
        while (call != NULL && k < count && strcmp(calls[k], call) != 0)
            k++;
        if (call != NULL && slots == 0 && p->marks)
            EBB_TRY(mark_parameters(p, n, call));
        if (call == NULL || slots == 0 || k == MOST)
            continue;
        if (k == count) {
            EBB_TRY(copy_node(p, &made[k], n, slot, slots, call, EBB_NO_NODE));
            calls[count++] = call;
        }
        if (made[k].i != 0)
            EBB_TRY(ebb_node_set_input(g, use.node, use.slot, made[k]));
    }
    return NULL;
}

ebb_status ebb_absorbed_part(ebb_graph *g, ebb_arena *scratch)
{
    parting p = {.g = g, .scratch = scratch};
    EBB_TRY(ebb_noted_losses_find(&p.losses, g, scratch));
    if (p.losses.count == 0)
        return NULL;
    EBB_TRY(ebb_noted_calls_find(&p.calls, g, scratch));
    p.taken = EBB_NEW(scratch, bool, p.losses.count);
    EBB_GOT(p.taken);
    for (int sweep = 0; sweep < 2; sweep++, p.marks = true)
        for (ebb_node n = ebb_first(g), next; n.i != 0; n = next) {
            next = ebb_next(g, n);
            EBB_TRY(part(&p, n));
        }
    return NULL;
}
