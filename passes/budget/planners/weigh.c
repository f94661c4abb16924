/* weigh.c: the referee. One walk to resolve the reads, one to add up what is alive.
 *
 * Each execution makes a copy of each output of its operator. A read takes the latest copy, so the
 * last read of a copy is known only after the walk: last[] is filled first, by copy.
 */
#include <string.h>

#include "passes/budget/planners/planner.h"

enum { TO_THE_END = UINT32_MAX };

typedef struct referee {
    const ebb_remat_problem *p;
    const ebb_remat_schedule *s;
    uint32_t *latest;    /* value -> its latest copy + 1; 0: none yet */
    uint32_t *copy_base; /* execution -> its first copy: one per output, in order */
    uint32_t *last;      /* copy -> the execution that reads it last; its own where none does */
    uint32_t copies;
    uint32_t *stored, *fetched; /* value -> the copy that is stored, being fetched, + 1; 0: none */
    bool *away;                 /* value -> what was stored has been waited for */
    double *over;               /* value -> when its move is over */
    double line[2];             /* when the last write, the last read is over */
} referee;

static ebb_status mistake(const char *what, uint32_t op, size_t at)
{
    return ebb_error(EBB_VERIFY, "the planner's schedule %s: operator %u at position %zu", what, op,
                     at);
}

/* ---- moves ---- */

static ebb_status resolve_move(referee *r, uint32_t i)
{
    uint32_t move = r->s->ops[i], v = ebb_remat_moves_what(r->p, move), copy = 0;
    if (v >= r->p->value_count)
        return mistake("names what there is not", move, i);
    switch (ebb_remat_moves_how(r->p, move)) {
    case EBB_REMAT_STORE:
        copy = r->stored[v] == 0 || r->away[v] ? r->latest[v] : 0; // the one before is written
        r->stored[v] = copy;
        r->away[v] = false;
        break;
    case EBB_REMAT_AWAY:
        copy = r->stored[v];
        r->away[v] = true;
        break;
    case EBB_REMAT_FETCH:
        if (r->away[v] && r->fetched[v] == 0)
            copy = r->fetched[v] = ++r->copies;
        r->copy_base[i] = r->copies - 1;
        break;
    case EBB_REMAT_BACK:
        copy = r->latest[v] = r->fetched[v];
        r->fetched[v] = 0;
        break;
    }
    if (copy == 0)
        return mistake("moves what is not there", move, i);
    r->last[copy - 1] = i;
    return NULL;
}

/* Its bytes, and the time that the step stands still for it. */
static uint64_t add_up_move(referee *r, ebb_remat_weight *w, uint32_t i)
{
    uint32_t move = r->s->ops[i], v = ebb_remat_moves_what(r->p, move);
    uint64_t bytes = r->p->values[v].bytes;
    ebb_remat_move_kind how = ebb_remat_moves_how(r->p, move);
    if (how == EBB_REMAT_AWAY || how == EBB_REMAT_BACK) {
        w->cost_ns = r->over[v] > w->cost_ns ? r->over[v] : w->cost_ns;
        r->latest[v] = how == EBB_REMAT_BACK ? r->fetched[v] : r->latest[v];
        return 0;
    }
    double *line = &r->line[how == EBB_REMAT_FETCH];
    *line = (*line > w->cost_ns ? *line : w->cost_ns) + (double)bytes * r->p->move_ns;
    r->over[v] = *line;
    w->moved_bytes += bytes;
    if (how == EBB_REMAT_STORE)
        return 0;
    r->fetched[v] = r->copy_base[i] + 1;
    return bytes;
}

static bool allocate_moves(referee *r, ebb_arena *scratch)
{
    size_t values = (size_t)r->p->value_count + 1;
    if (!ebb_remat_has_moves(r->p, r->s))
        return true;
    r->stored = EBB_NEW(scratch, uint32_t, values);
    r->fetched = EBB_NEW(scratch, uint32_t, values);
    r->away = EBB_NEW(scratch, bool, values);
    r->over = EBB_NEW(scratch, double, values);
    return r->stored != NULL && r->fetched != NULL && r->away != NULL && r->over != NULL;
}

bool ebb_remat_has_moves(const ebb_remat_problem *problem, const ebb_remat_schedule *schedule)
{
    for (size_t i = 0; i < schedule->count; i++)
        if (ebb_remat_is_move(problem, schedule->ops[i]))
            return true;
    return false;
}

/* ---- the walks ---- */

/* Fills last[]: inputs of the problem are copies 0 .. value_count - 1, alive from the start. */
static ebb_status resolve(referee *r, ebb_arena *scratch)
{
    const ebb_remat_problem *p = r->p;
    size_t copies = p->value_count;
    for (size_t i = 0; i < r->s->count; i++) {
        bool moves = ebb_remat_is_move(p, r->s->ops[i]);
        copies += moves ? 1 : p->ops[r->s->ops[i]].out_count;
    }
    if (copies >= UINT32_MAX || r->s->count >= UINT32_MAX)
        return ebb_error(EBB_REJECTED, "a schedule of %zu executions is too long", r->s->count);
    r->latest = EBB_NEW(scratch, uint32_t, (size_t)p->value_count + 1);
    r->copy_base = EBB_NEW(scratch, uint32_t, r->s->count + 1);
    r->last = EBB_NEW(scratch, uint32_t, copies + 1);
    bool *done = EBB_NEW(scratch, bool, (size_t)p->op_count + 1);
    EBB_GOT(r->latest && r->copy_base && r->last && done && allocate_moves(r, scratch));
    for (uint32_t v = 0; v < p->value_count; v++)
        if (p->values[v].op == EBB_REMAT_NONE)
            r->latest[v] = v + 1;
    r->copies = p->value_count;
    for (uint32_t i = 0; i < r->s->count; i++) {
        uint32_t u = r->s->ops[i];
        if (ebb_remat_is_move(p, u)) {
            EBB_TRY(resolve_move(r, i));
            continue;
        }
        const ebb_remat_op *op = &p->ops[u];
        if (done[u] && op->once)
            return mistake("repeats what must not be repeated", u, i);
        if (op->before != EBB_REMAT_NONE && done[op->before])
            return mistake("reads a state after it was overwritten", u, i);
        for (uint32_t k = 0; k < op->before_count; k++)
            if (done[op->befores[k]])
                return mistake("reads a state after it was overwritten", u, i);
        done[u] = true;
        for (uint32_t k = 0; k < op->in_count; k++) {
            uint32_t copy = r->latest[op->in[k]];
            if (copy == 0)
                return mistake("reads what is not there yet", u, i);
            r->last[copy - 1] = i;
        }
        r->copy_base[i] = r->copies;
        for (uint32_t k = 0; k < op->out_count; k++) {
            r->last[r->copies] = i;
            r->latest[op->out[k]] = ++r->copies;
        }
    }
    for (uint32_t v = 0; v < p->value_count; v++) {
        if (!p->values[v].stays)
            continue;
        if (r->latest[v] == 0)
            return mistake("lacks a value that stays", p->values[v].op, r->s->count);
        r->last[r->latest[v] - 1] = TO_THE_END;
    }
    return NULL;
}

/* Bytes that outputs take over from inputs that die here. */
static uint64_t taken_over(const referee *r, const uint32_t *latest, uint32_t i)
{
    const ebb_remat_op *op = &r->p->ops[r->s->ops[i]];
    uint64_t bytes = 0, taken = 0; /* taken: pairs that share memory, among the first 64 */
    for (uint32_t k = 0; k < op->over_count && k < 64; k++) {
        const ebb_remat_over *o = &op->over[k];
        bool free = r->last[latest[o->in] - 1] == i;
        for (uint32_t j = 0; j < k && free; j++) /* each once, in order of preference */
            free = (taken >> j & 1) == 0 || (op->over[j].out != o->out && op->over[j].in != o->in);
        if (!free)
            continue;
        taken |= UINT64_C(1) << k;
        bytes += r->p->values[o->out].bytes;
    }
    return bytes;
}

static void add_up(referee *r, ebb_remat_weight *w, uint64_t *live_at, uint64_t *dying)
{
    const ebb_remat_problem *p = r->p;
    uint64_t live = p->base_bytes;
    memset(r->latest, 0, p->value_count * sizeof *r->latest);
    for (uint32_t v = 0; v < p->value_count; v++) {
        const ebb_remat_value *value = &p->values[v];
        if (value->op != EBB_REMAT_NONE)
            continue;
        r->latest[v] = v + 1;
        if (value->reader_count == 0 && !value->stays)
            continue;
        live += value->bytes;
        if (r->last[v] != TO_THE_END)
            dying[r->last[v]] += value->bytes;
    }
    w->peak_bytes = live;
    size_t moves = 0;
    for (uint32_t i = 0; i < r->s->count; i++) {
        if (ebb_remat_is_move(p, r->s->ops[i])) {
            uint64_t fetched = add_up_move(r, w, i);
            live += fetched;
            if (fetched > 0 && r->last[r->copy_base[i]] != TO_THE_END)
                dying[r->last[r->copy_base[i]]] += fetched;
            if (live_at != NULL)
                live_at[i] = live;
            if (live > w->peak_bytes) {
                w->peak_bytes = live;
                w->peak_at = i;
            }
            live -= dying[i];
            moves++;
            continue;
        }
        const ebb_remat_op *op = &p->ops[r->s->ops[i]];
        uint64_t over = taken_over(r, r->latest, i);
        for (uint32_t k = 0; k < op->out_count; k++) {
            uint32_t copy = r->copy_base[i] + k;
            live += p->values[op->out[k]].bytes;
            r->latest[op->out[k]] = copy + 1;
            if (r->last[copy] != TO_THE_END)
                dying[r->last[copy]] += p->values[op->out[k]].bytes;
        }
        uint64_t here = live + op->workspace - over;
        if (live_at != NULL)
            live_at[i] = here;
        if (here > w->peak_bytes) {
            w->peak_bytes = here;
            w->peak_at = i;
        }
        live -= dying[i];
        w->cost_ns += op->cost_ns;
    }
    size_t executed = r->s->count - moves;
    w->repeats = executed > p->op_count ? executed - p->op_count : 0;
}

ebb_status ebb_remat_weigh(ebb_remat_weight *weight, uint64_t *live,
                           const ebb_remat_problem *problem, const ebb_remat_schedule *schedule,
                           ebb_arena *scratch)
{
    referee r = {.p = problem, .s = schedule};
    *weight = (ebb_remat_weight){0};
    EBB_TRY(resolve(&r, scratch));
    uint64_t *dying = EBB_NEW(scratch, uint64_t, schedule->count + 1);
    EBB_GOT(dying);
    add_up(&r, weight, live, dying);
    return NULL;
}

ebb_status ebb_remat_keep_all(ebb_remat_schedule *schedule, const ebb_remat_problem *problem,
                              ebb_arena *arena)
{
    uint32_t *ops = EBB_NEW(arena, uint32_t, (size_t)problem->op_count + 1);
    EBB_GOT(ops);
    for (uint32_t i = 0; i < problem->op_count; i++)
        ops[i] = i;
    *schedule = (ebb_remat_schedule){ops, problem->op_count};
    return NULL;
}

uint64_t ebb_remat_floor(const ebb_remat_problem *problem)
{
    uint64_t stays = 0, widest = 0;
    for (uint32_t v = 0; v < problem->value_count; v++)
        if (problem->values[v].stays)
            stays += problem->values[v].bytes;
    for (uint32_t u = 0; u < problem->op_count; u++) {
        const ebb_remat_op *op = &problem->ops[u];
        uint64_t bytes = op->workspace, over = 0;
        for (uint32_t k = 0; k < op->in_count; k++)
            bytes += problem->values[op->in[k]].bytes;
        for (uint32_t k = 0; k < op->out_count; k++) {
            bytes += problem->values[op->out[k]].bytes;
            bool may = false;
            for (uint32_t j = 0; j < op->over_count; j++)
                may = may || op->over[j].out == op->out[k];
            over += may ? problem->values[op->out[k]].bytes : 0;
        }
        bytes -= over < bytes ? over : bytes;
        widest = bytes > widest ? bytes : widest;
    }
    return problem->base_bytes + (stays > widest ? stays : widest);
}

/* Backwards: bits of moving say who is wanted elsewhere. */
enum { FETCH_WANTED = 1, STORE_WANTED = 2 };

static bool move_is_wanted(const ebb_remat_problem *problem, uint32_t move, bool *wanted,
                           uint8_t *moving)
{
    uint32_t v = ebb_remat_moves_what(problem, move);
    bool needed = false;
    switch (ebb_remat_moves_how(problem, move)) {
    case EBB_REMAT_BACK:
        needed = wanted[v];
        wanted[v] = false;
        moving[v] |= needed ? FETCH_WANTED : 0;
        break;
    case EBB_REMAT_FETCH:
        needed = (moving[v] & FETCH_WANTED) != 0;
        moving[v] = needed ? STORE_WANTED : moving[v];
        break;
    case EBB_REMAT_AWAY:
        needed = (moving[v] & STORE_WANTED) != 0;
        break;
    case EBB_REMAT_STORE:
        needed = (moving[v] & STORE_WANTED) != 0;
        wanted[v] = wanted[v] || needed;
        moving[v] &= (uint8_t)~STORE_WANTED;
        break;
    }
    return needed;
}

/* Backwards: an execution is needed if a copy that it makes is read by a needed one, or stays. */
ebb_status ebb_remat_prune(ebb_remat_schedule *schedule, const ebb_remat_problem *problem,
                           const ebb_remat_schedule *from, ebb_arena *arena)
{
    uint32_t *ops = EBB_NEW(arena, uint32_t, from->count + 1);
    bool *wanted = EBB_NEW(arena, bool, (size_t)problem->value_count + 1);
    bool *needed = EBB_NEW(arena, bool, from->count + 1);
    uint8_t *moving = EBB_NEW(arena, uint8_t, (size_t)problem->value_count + 1);
    EBB_GOT(ops && wanted && needed && moving);
    for (uint32_t v = 0; v < problem->value_count; v++)
        wanted[v] = problem->values[v].stays;
    for (size_t i = from->count; i-- > 0;) {
        if (ebb_remat_is_move(problem, from->ops[i])) {
            needed[i] = move_is_wanted(problem, from->ops[i], wanted, moving);
            continue;
        }
        const ebb_remat_op *op = &problem->ops[from->ops[i]];
        for (uint32_t k = 0; k < op->out_count; k++) {
            needed[i] = needed[i] || wanted[op->out[k]];
            wanted[op->out[k]] = false;
        }
        needed[i] = needed[i] || op->out_count == 0 || op->once;
        for (uint32_t k = 0; needed[i] && k < op->in_count; k++)
            wanted[op->in[k]] = true;
    }
    size_t count = 0;
    for (size_t i = 0; i < from->count; i++)
        if (needed[i])
            ops[count++] = from->ops[i];
    *schedule = (ebb_remat_schedule){ops, count};
    return NULL;
}
