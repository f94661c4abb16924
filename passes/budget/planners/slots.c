/* slots.c: sets of executions, their live bytes by slot, and the walk inside a slot. */
#include "passes/budget/planners/slots.h"

#include <assert.h>

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void add_range(ebb_slots *s, uint32_t first, uint32_t last, int64_t bytes)
{
    if (bytes == 0 || first > last)
        return;
    s->work += 2;
    ebb_heights_add(&s->live, first, last, bytes);
}

int64_t ebb_slots_most(const ebb_slots *s, uint32_t first, uint32_t last)
{
    assert(first <= last && last < s->slot_count);
    return ebb_heights_most(&s->live, first, last) + (int64_t)s->p->base_bytes;
}

int64_t ebb_slots_peak(const ebb_slots *s)
{
    return s->live.most[1] + (int64_t)s->p->base_bytes;
}

uint32_t ebb_slots_peak_slot(const ebb_slots *s)
{
    return ebb_heights_highest(&s->live);
}

void ebb_slots_profile(const ebb_slots *s, int64_t *peaks)
{
    ebb_heights_read(&s->live, peaks, s->slot_count, (int64_t)s->p->base_bytes);
}

/* ---- copies ---- */

uint32_t ebb_slots_run_at(const ebb_slots *s, uint32_t op, uint32_t slot)
{
    const ebb_slots_runs *r = &s->runs[op];
    uint32_t low = 0, high = r->count; // the answer is in low .. high - 1
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (r->slot[middle] > slot)
            high = middle;
        else
            low = middle;
    }
    return low;
}

static uint32_t end_of_run(const ebb_slots *s, uint32_t op, uint32_t run)
{
    const ebb_slots_runs *r = &s->runs[op];
    return run + 1 < r->count ? r->slot[run + 1] : UINT32_MAX;
}

/* The last slot before `end` and not before `from` in which a reader of v runs; `from` if none. */
static uint32_t last_reader(const ebb_slots *s, uint32_t v, uint32_t from, uint32_t end)
{
    const ebb_remat_value *value = &s->p->values[v];
    uint32_t last = from;
    for (uint32_t i = 0; i < value->reader_count; i++) {
        const ebb_slots_runs *r = &s->runs[value->readers[i]];
        for (uint32_t k = r->count; k-- > 0 && r->slot[k] > last;)
            if (r->slot[k] < end) {
                last = r->slot[k];
                break;
            }
    }
    return last;
}

static uint32_t last_read(const ebb_slots *s, uint32_t v, uint32_t from, uint32_t end)
{
    return s->p->values[v].stays && end == UINT32_MAX ? s->slot_count - 1
                                                      : last_reader(s, v, from, end);
}

uint32_t ebb_slots_next_read(const ebb_slots *s, uint32_t v, uint32_t run, uint32_t after)
{
    const ebb_remat_value *value = &s->p->values[v];
    uint32_t end = value->op == EBB_REMAT_NONE ? UINT32_MAX : end_of_run(s, value->op, run);
    uint32_t next = value->stays && end == UINT32_MAX ? s->slot_count - 1 : UINT32_MAX;
    for (uint32_t i = 0; i < value->reader_count; i++) {
        const ebb_slots_runs *r = &s->runs[value->readers[i]];
        for (uint32_t k = 0; k < r->count && r->slot[k] < end && r->slot[k] < next; k++)
            if (r->slot[k] > after) {
                next = r->slot[k];
                break;
            }
    }
    return next;
}

uint32_t ebb_slots_last_read(const ebb_slots *s, uint32_t v, uint32_t run, uint32_t before)
{
    const uint32_t op = s->p->values[v].op, end = end_of_run(s, op, run);
    return last_reader(s, v, s->runs[op].slot[run], before < end ? before : end);
}

static void soil(ebb_slots *s, uint32_t slot)
{
    if (s->is_dirty[slot])
        return;
    s->is_dirty[slot] = true;
    s->dirty[s->dirty_count++] = slot;
}

/* Output k of this run of op: its bytes in the tree, put in (sign 1) or taken out (-1). */
static void count_copy(ebb_slots *s, uint32_t op, uint32_t run, uint32_t k, int sign)
{
    const ebb_remat_op *o = &s->p->ops[op];
    ebb_slots_runs *r = &s->runs[op];
    uint32_t born = r->slot[run], *death = &r->death[(size_t)run * o->out_count + k];
    if (sign > 0)
        *death = last_read(s, o->out[k], born, end_of_run(s, op, run));
    if (*death > born)
        add_range(s, born + 1, *death, sign * (int64_t)s->p->values[o->out[k]].bytes);
    soil(s, born);
    soil(s, *death);
}

static void count_input(ebb_slots *s, uint32_t v, int sign)
{
    if (s->p->values[v].reader_count == 0 && !s->p->values[v].stays)
        return;
    if (sign > 0)
        s->input_death[v] = last_read(s, v, 0, UINT32_MAX);
    add_range(s, 0, s->input_death[v], sign * (int64_t)s->p->values[v].bytes);
    soil(s, s->input_death[v]);
}

/* The copy of v that a reader in this slot reads. */
static void count_read(ebb_slots *s, uint32_t v, uint32_t slot, int sign)
{
    uint32_t op = s->p->values[v].op, k = 0;
    if (op == EBB_REMAT_NONE) {
        count_input(s, v, sign);
        return;
    }
    while (s->p->ops[op].out[k] != v)
        k++;
    count_copy(s, op, ebb_slots_run_at(s, op, slot), k, sign);
}

uint32_t ebb_slots_death(const ebb_slots *s, uint32_t v, uint32_t slot)
{
    uint32_t op = s->p->values[v].op, k = 0;
    if (op == EBB_REMAT_NONE)
        return s->input_death[v];
    while (s->p->ops[op].out[k] != v)
        k++;
    return s->runs[op].death[(size_t)ebb_slots_run_at(s, op, slot) * s->p->ops[op].out_count + k];
}

/* ---- the inside of a slot ---- */

/* Fills read_last for the values read in this list. */
static void find_last_reads(ebb_slots *s, const ebb_slots_list *list)
{
    s->stamp++;
    for (uint32_t i = 0; i < list->count; i++) {
        const ebb_remat_op *o = &s->p->ops[list->op[i]];
        s->work += 1 + o->in_count + o->out_count;
        for (uint32_t k = 0; k < o->in_count; k++) {
            s->read_stamp[o->in[k]] = s->stamp;
            s->read_last[o->in[k]] = i;
        }
    }
}

/* Does v's copy die in this slot, with nothing after position i of the list that reads it? */
static bool dies_at(const ebb_slots *s, uint32_t v, uint32_t slot, uint32_t i)
{
    if (s->read_stamp[v] == s->stamp && s->read_last[v] > i)
        return false;
    return ebb_slots_death(s, v, slot) == slot &&
           !(s->p->values[v].stays && slot + 1 == s->slot_count);
}

static int64_t taken_over(const ebb_slots *s, uint32_t slot, const ebb_slots_list *list, uint32_t i)
{
    const ebb_remat_op *o = &s->p->ops[list->op[i]];
    int64_t bytes = 0;
    uint64_t taken = 0; /* pairs that share memory, among the first 64 */
    for (uint32_t k = 0; k < o->over_count && k < 64; k++) {
        bool free = true;
        for (uint32_t j = 0; j < k; j++)
            if ((taken >> j & 1) != 0 &&
                (o->over[j].out == o->over[k].out || o->over[j].in == o->over[k].in))
                free = false;
        if (!free || !dies_at(s, o->over[k].in, slot, i))
            continue;
        taken |= UINT64_C(1) << k;
        bytes += (int64_t)s->p->values[o->over[k].out].bytes;
    }
    return bytes;
}

static int64_t walk(ebb_slots *s, uint32_t slot)
{
    const ebb_slots_list *list = &s->lists[slot];
    int64_t now = 0, most = 0;
    find_last_reads(s, list);
    for (uint32_t i = 0; i < list->count; i++) {
        const ebb_remat_op *o = &s->p->ops[list->op[i]];
        for (uint32_t k = 0; k < o->out_count; k++)
            now += (int64_t)s->p->values[o->out[k]].bytes;
        most = larger(most, now + (int64_t)o->workspace - taken_over(s, slot, list, i));
        for (uint32_t k = 0; k < o->in_count; k++)
            if (dies_at(s, o->in[k], slot, i))
                now -= (int64_t)s->p->values[o->in[k]].bytes;
        for (uint32_t k = 0; k < o->out_count; k++)
            if (dies_at(s, o->out[k], slot, i))
                now -= (int64_t)s->p->values[o->out[k]].bytes;
    }
    return most;
}

static void clean(ebb_slots *s)
{
    while (s->dirty_count > 0 && !s->held) {
        uint32_t slot = s->dirty[--s->dirty_count];
        int64_t inside = walk(s, slot);
        s->is_dirty[slot] = false;
        add_range(s, slot, slot, inside - s->inside[slot]);
        s->inside[slot] = inside;
    }
}

/* ---- changes ---- */

static bool insert(ebb_slots *s, uint32_t op, uint32_t slot)
{
    ebb_slots_runs *r = &s->runs[op];
    ebb_slots_list *list = &s->lists[slot];
    uint32_t outs = s->p->ops[op].out_count;
    if (r->count == r->capacity) {
        uint32_t more = r->capacity * 2;
        uint32_t *slots = EBB_NEW(s->arena, uint32_t, more);
        uint32_t *deaths = EBB_NEW(s->arena, uint32_t, (size_t)more * outs + 1);
        if (slots == NULL || deaths == NULL)
            return false;
        memcpy(slots, r->slot, r->count * sizeof *slots);
        memcpy(deaths, r->death, (size_t)r->count * outs * sizeof *deaths);
        *r = (ebb_slots_runs){slots, deaths, r->count, more};
    }
    if (list->count == list->capacity) {
        uint32_t more = list->capacity * 2;
        uint32_t *ops = EBB_NEW(s->arena, uint32_t, more);
        if (ops == NULL)
            return false;
        memcpy(ops, list->op, list->count * sizeof *ops);
        *list = (ebb_slots_list){ops, list->count, more};
    }
    uint32_t at = r->count;
    for (; at > 0 && r->slot[at - 1] > slot; at--)
        r->slot[at] = r->slot[at - 1];
    r->slot[at] = slot;
    memmove(&r->death[(size_t)(at + 1) * outs], &r->death[(size_t)at * outs],
            (size_t)(r->count - at) * outs * sizeof *r->death);
    r->count++;
    at = list->count++;
    for (; at > 0 && list->op[at - 1] > op; at--)
        list->op[at] = list->op[at - 1];
    list->op[at] = op;
    return true;
}

static void erase(ebb_slots *s, uint32_t op, uint32_t slot)
{
    ebb_slots_runs *r = &s->runs[op];
    ebb_slots_list *list = &s->lists[slot];
    uint32_t outs = s->p->ops[op].out_count, at = ebb_slots_run_at(s, op, slot);
    assert(at > 0 && r->slot[at] == slot);
    r->count--;
    memmove(&r->slot[at], &r->slot[at + 1], (r->count - at) * sizeof *r->slot);
    memmove(&r->death[(size_t)at * outs], &r->death[(size_t)(at + 1) * outs],
            (size_t)(r->count - at) * outs * sizeof *r->death);
    for (at = 0; list->op[at] != op; at++)
        ;
    list->count--;
    memmove(&list->op[at], &list->op[at + 1], (list->count - at) * sizeof *list->op);
}

static void note(ebb_slots *s, uint32_t op, uint32_t slot, bool added)
{
    if (!ebb_arena_grow(s->arena, &s->log, s->log_count, &s->log_capacity, sizeof *s->log)) {
        s->failed = true;
        return;
    }
    s->log[s->log_count++] = (ebb_slots_change){op, slot, added};
}

static void do_add(ebb_slots *s, uint32_t op, uint32_t slot)
{
    const ebb_remat_op *o = &s->p->ops[op];
    uint32_t run = ebb_slots_run_at(s, op, slot);
    assert(s->runs[op].slot[run] < slot);
    if (s->failed)
        return;
    for (uint32_t k = 0; k < o->out_count; k++)
        count_copy(s, op, run, k, -1);
    for (uint32_t k = 0; k < o->in_count; k++)
        count_read(s, o->in[k], slot, -1);
    if (!insert(s, op, slot)) {
        s->failed = true;
        return;
    }
    for (uint32_t k = 0; k < o->out_count; k++) {
        count_copy(s, op, run, k, 1);
        count_copy(s, op, run + 1, k, 1);
    }
    for (uint32_t k = 0; k < o->in_count; k++)
        count_read(s, o->in[k], slot, 1);
    soil(s, slot);
    s->cost_ns += o->cost_ns;
    s->repeats++;
    s->work += 4 + o->in_count + o->out_count;
    clean(s);
}

static void do_drop(ebb_slots *s, uint32_t op, uint32_t slot)
{
    const ebb_remat_op *o = &s->p->ops[op];
    uint32_t run = ebb_slots_run_at(s, op, slot);
    if (s->failed)
        return;
    for (uint32_t k = 0; k < o->out_count; k++) {
        count_copy(s, op, run - 1, k, -1);
        count_copy(s, op, run, k, -1);
    }
    for (uint32_t k = 0; k < o->in_count; k++)
        count_read(s, o->in[k], slot, -1);
    erase(s, op, slot);
    for (uint32_t k = 0; k < o->out_count; k++)
        count_copy(s, op, run - 1, k, 1);
    for (uint32_t k = 0; k < o->in_count; k++)
        count_read(s, o->in[k], slot, 1);
    soil(s, slot);
    s->cost_ns -= o->cost_ns;
    s->repeats--;
    s->work += 4 + o->in_count + o->out_count;
    clean(s);
}

void ebb_slots_add(ebb_slots *s, uint32_t op, uint32_t slot)
{
    do_add(s, op, slot);
    note(s, op, slot, true);
}

void ebb_slots_drop(ebb_slots *s, uint32_t op, uint32_t slot)
{
    do_drop(s, op, slot);
    note(s, op, slot, false);
}

void ebb_slots_hold(ebb_slots *s)
{
    s->held = true;
}

void ebb_slots_settle(ebb_slots *s)
{
    s->held = false;
    clean(s);
}

void ebb_slots_undo(ebb_slots *s, size_t log_count)
{
    ebb_slots_hold(s);
    while (s->log_count > log_count && !s->failed) {
        ebb_slots_change c = s->log[--s->log_count];
        if (c.added)
            do_drop(s, c.op, c.slot);
        else
            do_add(s, c.op, c.slot);
    }
    ebb_slots_settle(s);
}

bool ebb_slots_may(const ebb_slots *s, uint32_t op, uint32_t slot)
{
    const ebb_remat_op *o = &s->p->ops[op];
    return !o->once && slot > op && (o->before == EBB_REMAT_NONE || slot <= o->before);
}

/* Bytes of inputs that may no longer be there before this slot, if op does not run in it. */
static int64_t let_go(const ebb_slots *s, uint32_t op, uint32_t slot)
{
    const ebb_remat_op *o = &s->p->ops[op];
    int64_t bytes = 0;
    for (uint32_t k = 0; k < o->in_count; k++) {
        const ebb_remat_value *v = &s->p->values[o->in[k]];
        if (ebb_slots_death(s, o->in[k], slot) == slot &&
            (v->op == EBB_REMAT_NONE ||
             s->runs[v->op].slot[ebb_slots_run_at(s, v->op, slot)] != slot))
            bytes += (int64_t)v->bytes;
    }
    return bytes;
}

bool ebb_slots_misses(const ebb_slots *s, uint32_t op, uint32_t slot, int64_t budget)
{
    const ebb_remat_op *o = &s->p->ops[op];
    const ebb_slots_runs *r = &s->runs[op];
    const uint32_t run = ebb_slots_run_at(s, op, slot);
    budget += let_go(s, op, slot);
    for (uint32_t k = 0; k < o->out_count; k++) {
        const uint32_t *death = &r->death[(size_t)run * o->out_count + k];
        const uint32_t before = *(death - o->out_count);
        if (before + 1 < slot &&
            ebb_slots_most(s, before + 1, slot - 1) + (int64_t)s->p->values[o->out[k]].bytes >
                budget &&
            (*death > slot || ebb_slots_next_read(s, o->out[k], run, slot - 1) != UINT32_MAX))
            return true;
    }
    return false;
}

/* ---- making and reading ---- */

ebb_status ebb_slots_make(ebb_slots *s, const ebb_remat_problem *problem, ebb_arena *arena)
{
    uint32_t ops = problem->op_count, values = problem->value_count;
    *s = (ebb_slots){.p = problem, .arena = arena, .slot_count = ops + 1};
    s->runs = EBB_NEW(arena, ebb_slots_runs, (size_t)ops + 1);
    s->lists = EBB_NEW(arena, ebb_slots_list, (size_t)ops + 1);
    s->input_death = EBB_NEW(arena, uint32_t, (size_t)values + 1);
    s->inside = EBB_NEW(arena, int64_t, s->slot_count);
    EBB_TRY(ebb_heights_make(&s->live, NULL, s->slot_count, arena));
    s->dirty = EBB_NEW(arena, uint32_t, s->slot_count);
    s->is_dirty = EBB_NEW(arena, bool, s->slot_count);
    s->read_last = EBB_NEW(arena, uint32_t, (size_t)values + 1);
    s->read_stamp = EBB_NEW(arena, uint32_t, (size_t)values + 1);
    EBB_GOT(s->runs && s->lists && s->input_death && s->inside && s->dirty && s->is_dirty &&
            s->read_last && s->read_stamp);
    for (uint32_t u = 0; u <= ops; u++) {
        uint32_t outs = u < ops ? problem->ops[u].out_count : 0;
        s->lists[u] = (ebb_slots_list){EBB_NEW(arena, uint32_t, 2), 0, 2};
        EBB_GOT(s->lists[u].op);
        if (u == ops)
            break;
        s->runs[u] = (ebb_slots_runs){EBB_NEW(arena, uint32_t, 2),
                                      EBB_NEW(arena, uint32_t, 2 * (size_t)outs + 1), 1, 2};
        EBB_GOT(s->runs[u].slot && s->runs[u].death);
        s->runs[u].slot[0] = u;
        s->lists[u].op[s->lists[u].count++] = u;
        s->cost_ns += problem->ops[u].cost_ns;
    }
    for (uint32_t v = 0; v < values; v++)
        if (problem->values[v].op == EBB_REMAT_NONE)
            count_input(s, v, 1);
    for (uint32_t u = 0; u < ops; u++)
        for (uint32_t k = 0; k < problem->ops[u].out_count; k++)
            count_copy(s, u, 0, k, 1);
    for (uint32_t u = 0; u <= ops; u++)
        soil(s, u);
    clean(s);
    return NULL;
}

size_t ebb_slots_prune(ebb_slots *s)
{
    size_t gone = 0;
    ebb_slots_hold(s);
    for (uint32_t u = s->p->op_count; u-- > 0;) { /* readers come after what they read */
        const ebb_remat_op *o = &s->p->ops[u];
        for (uint32_t run = s->runs[u].count; run-- > 1;) {
            const ebb_slots_runs *r = &s->runs[u];
            bool read = false;
            for (uint32_t k = 0; k < o->out_count && !read; k++)
                read = r->death[(size_t)run * o->out_count + k] > r->slot[run] ||
                       ebb_slots_next_read(s, o->out[k], run, r->slot[run] - 1) != UINT32_MAX;
            if (read)
                continue;
            ebb_slots_drop(s, u, r->slot[run]);
            gone++;
        }
    }
    ebb_slots_settle(s);
    return gone;
}

ebb_status ebb_slots_schedule(const ebb_slots *s, ebb_remat_schedule *schedule, ebb_arena *arena)
{
    uint32_t *ops = EBB_NEW(arena, uint32_t, s->p->op_count + s->repeats + 1);
    size_t count = 0;
    EBB_GOT(ops && !s->failed);
    for (uint32_t t = 0; t < s->slot_count; t++)
        for (uint32_t i = 0; i < s->lists[t].count; i++)
            ops[count++] = s->lists[t].op[i];
    *schedule = (ebb_remat_schedule){ops, count};
    return NULL;
}

bool ebb_slots_load(ebb_slots *s, const ebb_remat_schedule *schedule)
{
    uint32_t next = 0;
    ebb_slots_hold(s);
    for (size_t i = 0; i < schedule->count && schedule->ops[i] <= next; i++) {
        uint32_t u = schedule->ops[i];
        if (u == next)
            next++;
        else if (s->runs[u].slot[ebb_slots_run_at(s, u, next)] != next && ebb_slots_may(s, u, next))
            ebb_slots_add(s, u, next);
    }
    ebb_slots_settle(s);
    return next == s->p->op_count;
}
