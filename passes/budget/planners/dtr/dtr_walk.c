/* dtr_walk.c: one walk through the list under a budget. The method is in dtr.c.
 *
 * A value is resident or absent. The next operator of the list holds its resident inputs, and what
 * is absent is made first, operators waiting for their inputs on a stack. Each execution first
 * makes room: the value of lowest h goes, until it fits.
 *
 * Invariant: what is absent and needed can be made. So the output of an operator that must not
 * repeat stays while something absent and needed is made from it, and what is made from an absent
 * value that cannot be made again is not evicted.
 */
#include <math.h>

#include "passes/budget/planners/dtr/dtr.h"

typedef ebb_dtr_frame frame;
typedef ebb_dtr_walk walk;

/* ---- coming and going ---- */

static void appears(walk *w, uint32_t v)
{
    w->resident[v] = true;
    w->live += w->p->values[v].bytes;
    w->place[v] = w->pool_count;
    w->pool[w->pool_count++] = v;
    w->lost[v] = false;
    if (w->counted[v])
        ebb_dtr_count_need(w, v, false);
}

static void disappears(walk *w, uint32_t v)
{
    uint32_t last = w->pool[--w->pool_count];
    w->pool[w->place[v]] = last;
    w->place[last] = w->place[v];
    w->resident[v] = false;
    w->live -= w->p->values[v].bytes;
}

/* What is absent and made from the lost v is lost too; nobody needs it, or v would have stayed. */
static void lose(walk *w, uint32_t v)
{
    uint32_t head = 0, tail = 0;
    w->lost[v] = true;
    w->queue[tail++] = v;
    while (head < tail) {
        const ebb_remat_value *value = &w->p->values[w->queue[head++]];
        for (uint32_t r = 0; r < value->reader_count; r++) {
            const ebb_remat_op *op = &w->p->ops[value->readers[r]];
            for (uint32_t k = 0; k < op->out_count && w->done[value->readers[r]]; k++) {
                uint32_t out = op->out[k];
                if (w->resident[out] || w->lost[out])
                    continue;
                w->lost[out] = true;
                w->queue[tail++] = out;
            }
        }
    }
}

static void drop(walk *w, uint32_t v)
{
    bool again = ebb_dtr_can_be_made(w, v);
    disappears(w, v);
    if (!again) {
        lose(w, v);
        return;
    }
    ebb_dtr_goes_absent(w, w->p->values[v].op);
    if (ebb_dtr_is_needed(w, v))
        ebb_dtr_count_need(w, v, true);
}

static void evict(walk *w, uint32_t v)
{
    if (w->fresh[v])
        w->evicted[w->interval_base[v] + w->next[v]] = true;
    drop(w, v);
    if (!w->lost[v] && w->how.around == EBB_DTR_COMPONENTS)
        ebb_dtr_join_absent(w, v);
}

/* After a use: goes if nobody reads it again, or if it would be evicted unread anyway. */
static bool goes(walk *w, uint32_t v)
{
    if (!w->resident[v] || w->pins[v] != 0)
        return false;
    if (ebb_dtr_next_use(w, v) != UINT32_MAX)
        return w->fresh[v] && w->doomed[w->interval_base[v] + w->next[v]] &&
               ebb_dtr_can_be_made(w, v);
    return w->need[v] == 0 && (ebb_dtr_can_be_made(w, v) || !ebb_dtr_supports(w, v));
}

/* ---- making room ---- */

/* The values of lowest h, as many as one scan pays for. */
static void scan(walk *w)
{
    uint32_t most = 1 + w->pool_count / 128, count = 0;
    for (uint32_t i = 0; i < w->pool_count; i++) {
        double h = ebb_dtr_price(w, w->pool[i]);
        if (h == (double)INFINITY || (count == most && h >= w->shortlist_h[count - 1]))
            continue;
        uint32_t at = count < most ? count++ : count - 1;
        for (; at > 0 && w->shortlist_h[at - 1] > h; at--) {
            w->shortlist_h[at] = w->shortlist_h[at - 1];
            w->shortlist[at] = w->shortlist[at - 1];
        }
        w->shortlist_h[at] = h;
        w->shortlist[at] = w->pool[i];
    }
    w->shortlist_count = count;
    w->shortlist_left = (count + 1) / 2;
}

static uint32_t victim(walk *w)
{
    for (int attempt = 0; attempt < 2; attempt++) {
        uint32_t best = UINT32_MAX;
        double least = (double)INFINITY;
        for (uint32_t i = 0; i < w->shortlist_count && w->shortlist_left > 0; i++) {
            if (!w->resident[w->shortlist[i]])
                continue;
            double h = ebb_dtr_price(w, w->shortlist[i]);
            if (h < least) {
                least = h;
                best = w->shortlist[i];
            }
        }
        if (best != UINT32_MAX) {
            w->shortlist_left--;
            return best;
        }
        if (attempt == 0)
            scan(w);
    }
    return UINT32_MAX;
}

/* Bytes that op's outputs take over. overwrite: also from inputs that are read again but can be
 * made again; apply: those are marked to be evicted by the execution. */
static uint64_t taken_over(walk *w, const ebb_remat_op *op, bool overwrite, bool apply)
{
    uint64_t bytes = 0;
    for (uint32_t k = 0; k < op->over_count; k++) {
        uint32_t in = op->over[k].in, out = op->over[k].out;
        bool free = w->resident[in] && !w->resident[out] && w->pins[in] == 1;
        for (uint32_t j = 0; j < k && free; j++)
            free = op->over[j].in != in && op->over[j].out != out;
        if (!free)
            continue;
        w->pins[in] = 0;
        bool dies = goes(w, in);
        bool may = !dies && overwrite && ebb_dtr_can_be_made(w, in);
        w->pins[in] = 1;
        if (!dies && !may)
            continue;
        bytes += w->p->values[out].bytes;
        if (may && apply)
            w->pins[in] = UINT32_MAX; // to be evicted by the execution
    }
    return bytes;
}

static void make_room(walk *w, const ebb_remat_op *op)
{
    uint64_t need = op->workspace;
    for (uint32_t k = 0; k < op->out_count; k++)
        need += w->resident[op->out[k]] ? 0 : w->p->values[op->out[k]].bytes;
    if (w->live + need <= w->budget)
        return;
    need -= taken_over(w, op, false, false);
    while (w->live + need > w->budget) {
        uint32_t v = victim(w);
        if (v == UINT32_MAX) {
            uint64_t over = taken_over(w, op, true, true);
            over -= taken_over(w, op, false, false);
            w->failed = w->failed || w->live + need - over > w->budget;
            return;
        }
        evict(w, v);
    }
}

/* ---- the walk ---- */

static void wait_for_inputs(walk *w, uint32_t u)
{
    const ebb_remat_op *op = &w->p->ops[u];
    frame *f = &w->frames[w->frame_count++];
    *f = (frame){.op = u, .held = w->held_count};
    for (uint32_t k = 0; k < op->in_count; k++) {
        w->held[w->held_count++] = w->resident[op->in[k]];
        if (w->resident[op->in[k]])
            w->pins[op->in[k]]++;
    }
}

static void execute(walk *w, uint32_t u, bool by_list)
{
    const ebb_remat_op *op = &w->p->ops[u];
    make_room(w, op);
    w->ops[w->count++] = u;
    w->now += op->cost_ns;
    ebb_dtr_comes_back(w, u);
    w->done[u] = true;
    for (uint32_t k = 0; k < op->in_count; k++) {
        uint32_t v = op->in[k];
        bool overwritten = w->pins[v] == UINT32_MAX;
        w->pins[v] = overwritten ? 0 : w->pins[v] - 1;
        w->used[v] = w->now;
        w->fresh[v] = by_list;
        while (by_list && w->next[v] < w->p->values[v].reader_count &&
               w->p->values[v].readers[w->next[v]] <= u)
            w->next[v]++;
        if (overwritten && ebb_dtr_next_use(w, v) != UINT32_MAX)
            evict(w, v);
    }
    for (uint32_t k = 0; k < op->out_count; k++) {
        uint32_t v = op->out[k];
        w->used[v] = w->now;
        w->fresh[v] = by_list;
        if (!w->resident[v])
            appears(w, v);
    }
}

static void settle(walk *w, uint32_t u)
{
    const ebb_remat_op *op = &w->p->ops[u];
    for (uint32_t k = 0; k < op->in_count + op->out_count; k++) {
        uint32_t v = k < op->in_count ? op->in[k] : op->out[k - op->in_count];
        if (!goes(w, v))
            continue;
        if (ebb_dtr_next_use(w, v) != UINT32_MAX)
            evict(w, v);
        else
            drop(w, v);
    }
}

/* Executes u, and before it whatever it lacks. `by_list`: u is the list's next operator. */
static void run(walk *w, uint32_t u, bool by_list)
{
    wait_for_inputs(w, u);
    while (w->frame_count > 0) {
        if (w->count >= w->limit || w->evaluations > w->allowed) {
            w->failed = true;
            return;
        }
        frame *f = &w->frames[w->frame_count - 1];
        const ebb_remat_op *op = &w->p->ops[f->op];
        if (f->next_input < op->in_count) {
            uint32_t v = op->in[f->next_input];
            if (w->held[f->held + f->next_input]) {
                f->next_input++;
            } else if (w->resident[v]) { // it came with another input
                w->pins[v]++;
                w->held[f->held + f->next_input++] = true;
            } else if (w->lost[v] || w->p->values[v].op == EBB_REMAT_NONE) {
                w->failed = true;
                return;
            } else {
                wait_for_inputs(w, w->p->values[v].op);
            }
            continue;
        }
        uint32_t ready = f->op;
        w->held_count = f->held;
        w->frame_count--;
        execute(w, ready, by_list && w->frame_count == 0);
        if (w->frame_count > 0) { // the one below waits for an output of this: hold it
            frame *below = &w->frames[w->frame_count - 1];
            uint32_t v = w->p->ops[below->op].in[below->next_input];
            w->pins[v]++;
            w->held[below->held + below->next_input++] = true;
        }
        settle(w, ready);
    }
}

/* Each output once, however many operators it came back with. */
static void keep(walk *w, uint32_t v)
{
    if (w->kept[v])
        return;
    w->kept[v] = true;
    w->pins[v]++;
}

/* u overwrites a state: what can be made only from it, and is needed, is made now and kept; the
 * rest that is absent is lost. Lost first, so that what is evicted meanwhile does not come to need
 * it. An execution brings all outputs of its operator, and perhaps those of operators before it:
 * each is kept in its turn, whoever brought it. */
static void before_overwriting(walk *w, uint32_t u)
{
    uint32_t from = w->expiring_base[u], to = w->expiring_base[u + 1];
    for (uint32_t i = from; i < to; i++) {
        const ebb_remat_op *op = &w->p->ops[w->expiring[i]];
        for (uint32_t k = 0; k < op->out_count && w->done[w->expiring[i]]; k++) {
            if (w->resident[op->out[k]])
                keep(w, op->out[k]);
            else if (!ebb_dtr_is_needed(w, op->out[k]))
                lose(w, op->out[k]);
        }
    }
    for (uint32_t i = from; i < to && !w->failed; i++) {
        const ebb_remat_op *op = &w->p->ops[w->expiring[i]];
        for (uint32_t k = 0; k < op->out_count && w->done[w->expiring[i]]; k++) {
            uint32_t v = op->out[k];
            if (!w->resident[v] && !w->lost[v] && ebb_dtr_is_needed(w, v))
                run(w, w->expiring[i], false);
            if (w->resident[v])
                keep(w, v);
            else if (!w->failed && !w->lost[v])
                lose(w, v);
        }
    }
}

static void after_overwriting(walk *w, uint32_t u)
{
    for (uint32_t i = w->expiring_base[u]; i < w->expiring_base[u + 1]; i++) {
        const ebb_remat_op *op = &w->p->ops[w->expiring[i]];
        for (uint32_t k = 0; k < op->out_count && w->done[w->expiring[i]]; k++) {
            uint32_t v = op->out[k];
            if (!w->resident[v] && !w->lost[v])
                lose(w, v);
            if (!w->kept[v])
                continue;
            w->kept[v] = false;
            w->pins[v]--;
            if (goes(w, v))
                drop(w, v);
        }
    }
}

static void walk_the_list(walk *w)
{
    const ebb_remat_problem *p = w->p;
    for (uint32_t v = 0; v < p->value_count; v++)
        if (p->values[v].op == EBB_REMAT_NONE &&
            (p->values[v].reader_count > 0 || p->values[v].stays))
            appears(w, v);
    for (w->at = 0; w->at < p->op_count && !w->failed; w->at++) {
        uint32_t u = w->at;
        bool overwrites = w->expiring_base[u] != w->expiring_base[u + 1];
        if (overwrites)
            before_overwriting(w, u);
        if (!w->failed)
            run(w, u, true);
        if (overwrites && !w->failed)
            after_overwriting(w, u);
    }
    for (uint32_t v = 0; v < p->value_count && !w->failed; v++) {
        if (!p->values[v].stays)
            continue;
        if (!w->resident[v] && p->values[v].op != EBB_REMAT_NONE)
            run(w, p->values[v].op, false);
        w->pins[v]++;
    }
}

/* ---- memory ---- */

static ebb_status number_intervals(walk *w, ebb_arena *arena)
{
    const ebb_remat_problem *p = w->p;
    w->interval_base = EBB_NEW(arena, size_t, (size_t)p->value_count + 1);
    EBB_GOT(w->interval_base);
    for (uint32_t v = 0; v < p->value_count; v++)
        w->interval_base[v + 1] = w->interval_base[v] + p->values[v].reader_count + 1;
    w->doomed = EBB_NEW(arena, bool, w->interval_base[p->value_count] + 1);
    w->evicted = EBB_NEW(arena, bool, w->interval_base[p->value_count] + 1);
    return w->doomed == NULL || w->evicted == NULL ? ebb_error_memory() : NULL;
}

/* expiring[expiring_base[u] ..]: operators that must not run after u. */
static ebb_status list_expiring(walk *w, ebb_arena *arena)
{
    const ebb_remat_problem *p = w->p;
    w->expiring_base = EBB_NEW(arena, uint32_t, (size_t)p->op_count + 2);
    w->expiring = EBB_NEW(arena, uint32_t, (size_t)p->op_count + 1);
    EBB_GOT(w->expiring_base && w->expiring);
    for (uint32_t u = 0; u < p->op_count; u++)
        if (p->ops[u].before != EBB_REMAT_NONE)
            w->expiring_base[p->ops[u].before + 2]++;
    for (uint32_t u = 0; u < p->op_count; u++)
        w->expiring_base[u + 2] += w->expiring_base[u + 1];
    for (uint32_t u = 0; u < p->op_count; u++)
        if (p->ops[u].before != EBB_REMAT_NONE)
            w->expiring[w->expiring_base[p->ops[u].before + 1]++] = u;
    return NULL;
}

ebb_status ebb_dtr_walk_new(ebb_dtr_walk **walk_out, const ebb_remat_problem *p, ebb_arena *arena)
{
    enum { REPEATS = 15 }; // an average operator's; chains in logarithmic memory need fewer
    walk *w = EBB_NEW(arena, walk, 1);
    EBB_GOT(w);
    size_t ops = (size_t)p->op_count + 1, values = (size_t)p->value_count + 1, inputs = 1;
    for (uint32_t u = 0; u < p->op_count; u++)
        inputs += p->ops[u].in_count;
    w->p = p;
    w->limit = ops * (REPEATS + 1);
    if (p->value_count == UINT32_MAX || w->limit + ops >= UINT32_MAX)
        return ebb_error(EBB_REJECTED, "%u operators are too many to plan", p->op_count);
    w->starts = EBB_NEW(arena, double, ops);
    w->resident = EBB_NEW(arena, bool, values);
    w->lost = EBB_NEW(arena, bool, values);
    w->fresh = EBB_NEW(arena, bool, values);
    w->kept = EBB_NEW(arena, bool, values);
    w->pins = EBB_NEW(arena, uint32_t, values);
    w->next = EBB_NEW(arena, uint32_t, values);
    w->used = EBB_NEW(arena, double, values);
    w->pool = EBB_NEW(arena, uint32_t, values);
    w->place = EBB_NEW(arena, uint32_t, values);
    w->done = EBB_NEW(arena, bool, ops);
    w->set_of = EBB_NEW(arena, uint32_t, ops);
    w->parent = EBB_NEW(arena, uint32_t, w->limit + ops);
    w->set_cost = EBB_NEW(arena, double, w->limit + ops);
    w->shortlist = EBB_NEW(arena, uint32_t, values);
    w->shortlist_h = EBB_NEW(arena, double, values);
    w->frames = EBB_NEW(arena, frame, ops);
    w->held = EBB_NEW(arena, bool, inputs);
    w->need = EBB_NEW(arena, uint32_t, values);
    w->counted = EBB_NEW(arena, bool, values);
    w->mark = EBB_NEW(arena, uint32_t, values);
    w->queue = EBB_NEW(arena, uint32_t, values + EBB_DTR_NEAR);
    w->ops = EBB_NEW(arena, uint32_t, w->limit + 1);
    const void *const all[] = {w->need,      w->counted,     w->starts, w->resident, w->lost,
                               w->fresh,     w->pins,        w->next,   w->used,     w->pool,
                               w->place,     w->done,        w->set_of, w->parent,   w->set_cost,
                               w->shortlist, w->shortlist_h, w->frames, w->held,     w->mark,
                               w->queue,     w->ops,         w->kept};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        EBB_GOT(all[i]);
    for (uint32_t u = 0; u < p->op_count; u++)
        w->starts[u + 1] = w->starts[u] + p->ops[u].cost_ns;
    EBB_TRY(number_intervals(w, arena));
    EBB_TRY(list_expiring(w, arena));
    *walk_out = w;
    return NULL;
}

void ebb_dtr_forget(ebb_dtr_walk *w)
{
    memset(w->evicted, 0, w->interval_base[w->p->value_count] * sizeof *w->evicted);
}

bool ebb_dtr_walk_run(ebb_dtr_walk *w, ebb_remat_schedule *schedule, ebb_dtr_variant variant,
                      uint64_t budget, uint64_t allowed, uint64_t *work)
{
    size_t values = w->p->value_count, ops = w->p->op_count;
    memcpy(w->doomed, w->evicted, w->interval_base[values] * sizeof *w->doomed);
    memset(w->resident, 0, values * sizeof *w->resident);
    memset(w->lost, 0, values * sizeof *w->lost);
    memset(w->need, 0, values * sizeof *w->need);
    memset(w->counted, 0, values * sizeof *w->counted);
    memset(w->fresh, 0, values * sizeof *w->fresh);
    memset(w->kept, 0, values * sizeof *w->kept);
    memset(w->pins, 0, values * sizeof *w->pins);
    memset(w->next, 0, values * sizeof *w->next);
    memset(w->used, 0, values * sizeof *w->used);
    memset(w->done, 0, ops * sizeof *w->done);
    memset(w->set_of, 0, ops * sizeof *w->set_of);
    w->pool_count = w->set_count = w->shortlist_count = w->shortlist_left = 0;
    w->frame_count = w->held_count = w->count = 0;
    w->how = variant;
    w->budget = budget;
    w->live = w->p->base_bytes;
    w->now = 0;
    w->failed = false;
    w->evaluations = 0;
    w->allowed =
        allowed > UINT64_MAX / EBB_DTR_EVALUATIONS ? UINT64_MAX : allowed * EBB_DTR_EVALUATIONS;
    walk_the_list(w);
    *schedule = (ebb_remat_schedule){w->ops, w->count};
    *work = w->evaluations / EBB_DTR_EVALUATIONS + w->count / 16 + 1;
    return !w->failed;
}
