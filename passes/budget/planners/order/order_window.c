/* order_window.c: the best order of a short stretch, by dynamic programming over sets.
 *
 * What is alive depends on which operators have run, not on their order. So of all orders that
 * bring the stretch to the same set, one is enough: that with the lowest peak so far, then the
 * least area. Sets are extended by one operator at a time, all sets of a size together; where there
 * are more than `width`, the most promising go on.
 *
 *     {}  ->  {a} {b}  ->  {a,b} {a,c}  ->  {a,b,c}          c needs a
 *
 * Exact over the stretch as long as no set was left out. Paper: Ahn et al., "Ordering chaos:
 * memory-aware scheduling of irregularly wired neural networks for edge devices", MLSys 2020.
 */
#include <stdlib.h>
#include <string.h>

#include "passes/budget/planners/order/order.h"

typedef struct set {
    uint64_t members; /* bit k: the stretch's k-th operator has run */
    uint64_t live;    /* bytes alive after them */
    uint64_t peak;    /* up to there, at least the floor */
    double area;
    uint32_t from; /* index of the set before, in its size */
    uint32_t op;   /* its last operator */
} set;

typedef struct local_value { /* a value that the stretch makes or reads */
    uint64_t bytes;
    uint64_t readers; /* within the stretch */
    bool outlives;    /* alive after the stretch */
} local_value;

typedef struct stretch {
    ebb_order *o;
    const uint32_t *ops;
    uint32_t from, count, width;
    uint64_t floor;
    local_value *values;
    uint32_t value_count;
    uint64_t needs[EBB_ORDER_WINDOW]; /* who must have run, within the stretch */
    set *levels;                      /* width a size */
    uint32_t level_count[EBB_ORDER_WINDOW + 1];
    set *fresh; /* the next size, before it is cut to width */
    uint32_t fresh_count, fresh_most;
    uint32_t *slots; /* hash of fresh: index + 1 */
    uint32_t slot_mask;
    uint64_t most_peak; /* of the present order */
    double most_area;
    bool exact;
} stretch;

/* ---- the stretch ---- */

static void meet_value(stretch *s, uint32_t v)
{
    ebb_order *o = s->o;
    const ebb_remat_value *value = &o->p->values[v];
    if (o->local[v] != 0)
        return;
    o->local[v] = ++s->value_count;
    local_value *local = &s->values[s->value_count - 1];
    *local = (local_value){
        .bytes = value->bytes,
        .outlives = value->stays || (o->last[v] != UINT32_MAX && o->last[v] >= s->from + s->count)};
    for (uint32_t k = 0; k < value->reader_count; k++) {
        uint32_t at = o->position[value->readers[k]];
        if (at >= s->from && at < s->from + s->count)
            local->readers |= UINT64_C(1) << (at - s->from);
    }
    o->work += value->reader_count + 1;
}

static ebb_status meet(stretch *s, ebb_arena *scratch)
{
    ebb_order *o = s->o;
    size_t values = 0;
    for (uint32_t i = 0; i < s->count; i++)
        values += o->p->ops[s->ops[i]].in_count + (size_t)o->p->ops[s->ops[i]].out_count;
    s->values = EBB_NEW(scratch, local_value, values + 1);
    EBB_GOT(s->values);
    for (uint32_t i = 0; i < s->count; i++) {
        uint32_t u = s->ops[i];
        const ebb_remat_op *op = &o->p->ops[u];
        for (uint32_t k = 0; k < op->in_count; k++)
            meet_value(s, op->in[k]);
        for (uint32_t k = 0; k < op->out_count; k++)
            meet_value(s, op->out[k]);
        s->needs[i] = 0;
        for (uint32_t k = o->pred_from[u]; k < o->pred_from[u + 1]; k++) {
            uint32_t at = o->position[o->pred[k]];
            if (at >= s->from)
                s->needs[i] |= UINT64_C(1) << (at - s->from);
        }
    }
    return NULL;
}

static void forget(stretch *s)
{
    for (uint32_t i = 0; i < s->count; i++) {
        const ebb_remat_op *op = &s->o->p->ops[s->ops[i]];
        for (uint32_t k = 0; k < op->in_count; k++)
            s->o->local[op->in[k]] = 0;
        for (uint32_t k = 0; k < op->out_count; k++)
            s->o->local[op->out[k]] = 0;
    }
}

/* ---- one step ---- */

static bool dies(const stretch *s, uint32_t v, uint64_t members)
{
    const local_value *local = &s->values[s->o->local[v] - 1];
    return !local->outlives && (local->readers & ~members) == 0;
}

static uint64_t taken_over(const stretch *s, const ebb_remat_op *op, uint64_t members)
{
    uint64_t bytes = 0;
    for (uint32_t k = 0; k < op->over_count; k++) {
        if (!dies(s, op->over[k].in, members))
            continue;
        bool taken = false;
        for (uint32_t j = 0; j < k && !taken; j++)
            taken = (op->over[j].out == op->over[k].out || op->over[j].in == op->over[k].in) &&
                    dies(s, op->over[j].in, members);
        if (!taken)
            bytes += s->o->p->values[op->over[k].out].bytes;
    }
    return bytes;
}

/* The set that comes of running the k-th operator after `before`. */
static set run_after(const stretch *s, const set *before, uint32_t k)
{
    const ebb_remat_op *op = &s->o->p->ops[s->ops[k]];
    set after = {.members = before->members | UINT64_C(1) << k, .op = k};
    uint64_t live = before->live, dead = 0;
    for (uint32_t i = 0; i < op->out_count; i++) {
        uint64_t bytes = s->o->p->values[op->out[i]].bytes;
        live += bytes;
        dead += dies(s, op->out[i], after.members) ? bytes : 0;
    }
    for (uint32_t i = 0; i < op->in_count; i++)
        dead += dies(s, op->in[i], after.members) ? s->o->p->values[op->in[i]].bytes : 0;
    uint64_t here = live + op->workspace - taken_over(s, op, after.members);
    after.peak = here > before->peak ? here : before->peak;
    after.area = before->area + (s->o->made[s->ops[k]] > 0 ? (double)here : 0);
    after.live = live - dead;
    s->o->work += 2 * (uint64_t)(op->in_count + op->out_count) + 2;
    return after;
}

static bool better(const set *a, const set *b)
{
    return a->peak != b->peak ? a->peak < b->peak : a->area < b->area;
}

static void add(stretch *s, set next)
{
    uint32_t slot = (uint32_t)((next.members * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & s->slot_mask;
    while (s->slots[slot] != 0) {
        set *there = &s->fresh[s->slots[slot] - 1];
        if (there->members == next.members) {
            if (better(&next, there))
                *there = next;
            return;
        }
        slot = (slot + 1) & s->slot_mask;
    }
    if (s->fresh_count == s->fresh_most) {
        s->exact = false;
        return;
    }
    s->fresh[s->fresh_count++] = next;
    s->slots[slot] = s->fresh_count;
}

static int by_promise(const void *a, const void *b)
{
    const set *x = a, *y = b;
    double p = x->area + (double)x->live, q = y->area + (double)y->live;
    if (x->peak != y->peak)
        return x->peak < y->peak ? -1 : 1;
    if (p != q)
        return p < q ? -1 : 1;
    return x->members < y->members ? -1 : x->members > y->members;
}

/* All sets of the next size. */
static void extend(stretch *s, uint32_t size)
{
    const set *level = s->levels + (size_t)size * s->width;
    memset(s->slots, 0, ((size_t)s->slot_mask + 1) * sizeof *s->slots);
    s->fresh_count = 0;
    for (uint32_t i = 0; i < s->level_count[size]; i++)
        for (uint32_t k = 0; k < s->count; k++) {
            if ((level[i].members >> k & 1) != 0 || (s->needs[k] & ~level[i].members) != 0)
                continue;
            set next = run_after(s, &level[i], k);
            next.from = i;
            if (next.peak <= s->most_peak)
                add(s, next);
        }
    s->o->work += (uint64_t)s->level_count[size] * s->count / 4 + s->slot_mask / 8;
    if (s->fresh_count > s->width) {
        s->exact = false;
        qsort(s->fresh, s->fresh_count, sizeof *s->fresh, by_promise);
        s->o->work += 16 * (uint64_t)s->fresh_count;
        s->fresh_count = s->width;
    }
    memcpy(s->levels + (size_t)(size + 1) * s->width, s->fresh, s->fresh_count * sizeof *s->fresh);
    s->level_count[size + 1] = s->fresh_count;
}

/* ---- the whole ---- */

static set start(const stretch *s)
{
    return (set){.live = s->o->state[s->from], .peak = s->floor};
}

static void follow(stretch *s, uint32_t *seq)
{
    ebb_order *o = s->o;
    uint32_t order[EBB_ORDER_WINDOW];
    uint32_t index = 0;
    for (uint32_t size = s->count; size > 0; size--) {
        const set *last = s->levels + (size_t)size * s->width + index;
        order[size - 1] = s->ops[last->op];
        if (size < s->count)
            o->state[s->from + size] = last->live;
        index = last->from;
    }
    for (uint32_t i = 0; i < s->count; i++) {
        seq[s->from + i] = order[i];
        o->position[order[i]] = s->from + i;
    }
}

static ebb_status search(stretch *s, uint32_t *seq, bool *changed, ebb_arena *scratch)
{
    EBB_TRY(meet(s, scratch));
    set now = start(s);
    for (uint32_t k = 0; k < s->count; k++)
        now = run_after(s, &now, k);
    s->most_peak = now.peak;
    s->most_area = now.area;
    s->levels[0] = start(s);
    s->level_count[0] = 1;
    uint32_t size = 0;
    while (size < s->count && s->level_count[size] > 0 && !ebb_order_spent(s->o))
        extend(s, size++);
    if (size < s->count || s->level_count[size] == 0) {
        s->exact = s->exact && !ebb_order_spent(s->o);
        return NULL;
    }
    const set *end = s->levels + (size_t)s->count * s->width;
    if (end->peak < s->most_peak || end->area < s->most_area) {
        *changed = true;
        follow(s, seq);
    }
    return NULL;
}

ebb_status ebb_order_window(ebb_order *o, uint32_t *seq, uint32_t from, uint32_t count,
                            uint64_t floor, uint32_t width, bool *changed, bool *exact)
{
    *changed = false;
    EBB_LOCAL_ARENA(scratch);
    uint32_t ops[EBB_ORDER_WINDOW] = {0};
    stretch s = {.o = o, .ops = ops, .from = from, .count = count, .width = width, .floor = floor};
    s.exact = true;
    s.fresh_most = width * 8;
    s.slot_mask = 1;
    while (s.slot_mask < 2 * s.fresh_most)
        s.slot_mask = 2 * s.slot_mask + 1;
    memcpy(ops, seq + from, count * sizeof *ops);
    s.levels = ebb_arena_alloc(scratch, sizeof *s.levels * width * ((size_t)count + 1));
    s.fresh = ebb_arena_alloc(scratch, sizeof *s.fresh * s.fresh_most);
    s.slots = EBB_NEW(scratch, uint32_t, (size_t)s.slot_mask + 1);
    ebb_status status = s.levels == NULL || s.fresh == NULL || s.slots == NULL
                            ? ebb_error_memory()
                            : search(&s, seq, changed, scratch);
    forget(&s);
    if (exact != NULL)
        *exact = s.exact;
    return status;
}
