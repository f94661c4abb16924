/* pofo.c: rotor's table, and above it a table over what is on its way; see pofo.h. */
#include "passes/budget/planners/walk/pofo.h"

#include <math.h>

/* ---- rotor ---- */

/* Of stages i .. j: the first of slots + 1 entries. */
static size_t cell(const ebb_pofo *c, uint32_t i, uint32_t j)
{
    return ((size_t)j * (j + 1) / 2 + i) * ((size_t)c->slots + 1);
}

/* One way to reverse stages i .. j: from so many slots on, so many of them held, and its time before
 * what follows. */
typedef struct way {
    uint32_t least, held;
    double time;
    size_t after, inner; /* cells; inner: SIZE_MAX, none */
} way;

static way keep_stage(const ebb_pofo *c, uint32_t i, uint32_t j)
{
    const ebb_pofo_stage *s = &c->stage[i];
    uint32_t fill = s->fill + c->stage[j].grad, most = fill > s->back ? fill : s->back;
    return (way){.least = most > s->saved ? most : s->saved,
                 .held = s->saved,
                 .time = s->forward + s->backward,
                 .after = i < j ? cell(c, i + 1, j) : SIZE_MAX,
                 .inner = SIZE_MAX};
}

/* highest: while stages i .. k-1 run and are dropped. */
static way keep_state(const ebb_pofo *c, uint32_t i, uint32_t k, uint32_t j, uint32_t highest,
                      double run)
{
    uint32_t most = highest + c->stage[j].grad, held = c->stage[k].in;
    return (way){.least = most > held ? most : held,
                 .held = held,
                 .time = run,
                 .after = cell(c, k, j),
                 .inner = cell(c, i, k - 1)};
}

static double time_of(const way *w, const double *table, uint32_t m)
{
    if (m < w->least)
        return HUGE_VAL;
    return w->time + (w->after != SIZE_MAX ? table[w->after + m - w->held] : 0) +
           (w->inner != SIZE_MAX ? table[w->inner + m] : 0);
}

static uint32_t dropping(const ebb_pofo *c, uint32_t i, uint32_t s, uint32_t highest)
{
    uint32_t here = c->stage[s].drop + (s > i ? c->stage[s].in : 0);
    return here > highest ? here : highest;
}

static void fill_pair(const ebb_pofo *c, double *table, uint32_t i, uint32_t j)
{
    double *row = &table[cell(c, i, j)], run = 0;
    uint32_t highest = 0;
    way all = keep_stage(c, i, j);
    for (uint32_t m = 0; m <= c->slots; m++)
        row[m] = time_of(&all, table, m);
    for (uint32_t k = i + 1; k <= j; k++) {
        highest = dropping(c, i, k - 1, highest);
        run += c->stage[k - 1].forward;
        way state = keep_state(c, i, k, j, highest, run);
        for (uint32_t m = state.least; m <= c->slots; m++) {
            double time = time_of(&state, table, m);
            row[m] = time < row[m] ? time : row[m];
        }
    }
}

uint32_t ebb_pofo_split(const ebb_pofo *chain, const double *rotor, uint32_t i, uint32_t j,
                        uint32_t m)
{
    way all = keep_stage(chain, i, j);
    double best = time_of(&all, rotor, m), run = 0;
    uint32_t at = 0, highest = 0;
    for (uint32_t k = i + 1; k <= j; k++) {
        highest = dropping(chain, i, k - 1, highest);
        run += chain->stage[k - 1].forward;
        way state = keep_state(chain, i, k, j, highest, run);
        double time = time_of(&state, rotor, m);
        at = time < best ? k : at;
        best = time < best ? time : best;
    }
    return at;
}

double *ebb_pofo_rotor(const ebb_pofo *chain, ebb_arena *arena)
{
    size_t pairs = (size_t)chain->stages * (chain->stages + (size_t)1) / 2;
    double *table = EBB_NEW(arena, double, pairs *((size_t)chain->slots + 1));
    for (uint32_t j = 0; table != NULL && j < chain->stages; j++)
        for (uint32_t i = j + 1; i-- > 0;)
            fill_pair(chain, table, i, j);
    return table;
}

/* ---- units ---- */

/* Where a plan stands before the unit that begins with stage `at`. */
typedef struct place {
    uint32_t at, stays, writes, reads; /* slots that stay; that are to be written, to be read */
    bool with_saved;                   /* the unit before keeps all: that is kept for this one */
} place;

typedef struct maker {
    const ebb_pofo *c;
    const double *rotor;
    float *known; /* by place: least time to the end; negative: not yet asked */
} maker;

static size_t index_of(const maker *m, const place *p)
{
    size_t width = (size_t)m->c->slots + 1;
    return ((((size_t)p->at * width + p->stays) * width + p->writes) * width + p->reads) * 2 +
           p->with_saved;
}

static uint32_t held_at(const maker *m, const place *p)
{
    if (p->at == 0)
        return 0;
    return p->with_saved ? m->c->stage[p->at - 1].saved : m->c->stage[p->at].in;
}

/* What is left of a move after that time, when first so much of it must be over that it and `others`
 * have room; *time grows by the wait. UINT32_MAX: there is no room. */
static uint32_t drain(const ebb_pofo *c, uint32_t moves, uint32_t others, double busy, double *time)
{
    if (others > c->slots)
        return UINT32_MAX;
    uint32_t room = c->slots - others, late = moves > room ? moves - room : 0;
    if (late > 0)
        *time += late / c->rate;
    double left = moves - late - busy * c->rate;
    return left > 0 ? (uint32_t)ceil(left - 1e-9) : 0;
}

static double least(maker *m, const place *p, ebb_pofo_unit *unit);

/* After this unit: what was kept for it stays, or goes. */
static double after(maker *m, place next, uint32_t held, ebb_pofo_unit unit, double time,
                    double best, ebb_pofo_unit *chosen)
{
    for (int away = 0; away <= (m->c->rate > 0 && held > 0); away++) {
        place p = next;
        p.stays += away ? 0 : held;
        p.writes += away ? held : 0;
        p.reads += away ? held : 0;
        unit.away = away;
        if (p.stays > m->c->slots || p.writes > m->c->slots || p.reads > m->c->slots)
            continue;
        double sum = time + least(m, &p, NULL);
        if (sum < best && chosen != NULL)
            *chosen = unit;
        best = sum < best ? sum : best;
    }
    return best;
}

static double keep_all(maker *m, const place *p, double best, ebb_pofo_unit *chosen)
{
    const ebb_pofo_stage *s = &m->c->stage[p->at];
    uint32_t held = held_at(m, p), others = held + p->stays;
    double time = s->forward + s->backward;
    place next = {.at = p->at + 1, .stays = p->stays, .with_saved = true};
    next.writes = drain(m->c, p->writes, others + s->fill, s->forward, &time);
    next.reads = drain(m->c, p->reads, others + s->back, s->backward, &time);
    if (next.writes == UINT32_MAX || next.reads == UINT32_MAX)
        return best;
    ebb_pofo_unit unit = {.first = p->at, .end = p->at + 1, .all = true};
    return after(m, next, held, unit, time, best, chosen);
}

/* Stages p->at .. end-1 are dropped, and reversed by rotor. */
static double drop_to(maker *m, const place *p, uint32_t end, double run, uint32_t highest,
                      double best, ebb_pofo_unit *chosen)
{
    const ebb_pofo *c = m->c;
    uint32_t held = held_at(m, p), others = held + p->stays;
    const double *times = &m->rotor[cell(c, p->at, end - 1)];
    for (uint32_t slots = 0; slots <= c->slots; slots++) {
        if (isinf(times[slots]) || (slots > 0 && times[slots] >= times[slots - 1]))
            continue;
        double time = run + times[slots];
        place next = {.at = end, .stays = p->stays};
        next.writes = drain(c, p->writes, others + highest, run, &time);
        next.reads = drain(c, p->reads, others + slots, times[slots], &time);
        if (next.writes == UINT32_MAX || next.reads == UINT32_MAX)
            continue;
        ebb_pofo_unit unit = {.first = p->at, .end = end, .slots = slots};
        best = after(m, next, held, unit, time, best, chosen);
    }
    return best;
}

/* The last unit: forward and back at once, while the link does what is left. */
static double finish(maker *m, const place *p, double best, ebb_pofo_unit *chosen)
{
    const ebb_pofo *c = m->c;
    uint32_t others = held_at(m, p) + p->stays;
    const double *times = &m->rotor[cell(c, p->at, c->stages - 1)];
    for (uint32_t slots = 0; slots <= c->slots; slots++) {
        if (isinf(times[slots]) || (slots > 0 && times[slots] >= times[slots - 1]))
            continue;
        double waits = 0;
        uint32_t writes = drain(c, p->writes, others + slots, 0, &waits);
        uint32_t reads = drain(c, p->reads, others + slots, 0, &waits);
        if (writes == UINT32_MAX || reads == UINT32_MAX)
            continue;
        double link = writes + reads > 0 ? (writes + reads) / c->rate : 0;
        double time = waits + (link > times[slots] ? link : times[slots]);
        if (time < best && chosen != NULL)
            *chosen = (ebb_pofo_unit){.first = p->at, .end = c->stages, .slots = slots};
        best = time < best ? time : best;
    }
    return best;
}

static double choose(maker *m, const place *p, ebb_pofo_unit *chosen)
{
    const ebb_pofo *c = m->c;
    double best = finish(m, p, HUGE_VAL, chosen), run = 0;
    uint32_t highest = 0;
    if (p->at + 1 < c->stages)
        best = keep_all(m, p, best, chosen);
    for (uint32_t end = p->at + 1; end < c->stages; end++) {
        highest = dropping(c, p->at, end - 1, highest);
        run += c->stage[end - 1].forward;
        best = drop_to(m, p, end, run, highest, best, chosen);
    }
    return best;
}

/* Depth: at most the stages. */
static double least(maker *m, const place *p, ebb_pofo_unit *unit)
{
    float *known = &m->known[index_of(m, p)];
    if (unit != NULL || *known < 0) {
        double time = choose(m, p, unit);
        *known = isinf(time) ? INFINITY : (float)time;
    }
    return *known;
}

static place behind(const maker *m, const place *p, const ebb_pofo_unit *u)
{
    const ebb_pofo *c = m->c;
    uint32_t held = held_at(m, p), others = held + p->stays, highest = 0;
    double run = 0, time = 0;
    for (uint32_t s = u->first; s < u->end; s++) {
        highest = dropping(c, u->first, s, highest);
        run += c->stage[s].forward;
    }
    const ebb_pofo_stage *s = &c->stage[u->first];
    double back = u->all ? s->backward : m->rotor[cell(c, u->first, u->end - 1) + u->slots];
    place next = {.at = u->end, .stays = p->stays, .with_saved = u->all};
    next.writes = drain(c, p->writes, others + (u->all ? s->fill : highest), run, &time);
    next.reads = drain(c, p->reads, others + (u->all ? s->back : u->slots), back, &time);
    next.stays += u->away ? 0 : held;
    next.writes += u->away ? held : 0;
    next.reads += u->away ? held : 0;
    return next;
}

static ebb_status make(ebb_pofo_plan *plan, maker *m, ebb_arena *arena)
{
    place p = {.at = 0};
    plan->time = least(m, &p, NULL);
    plan->count = 0;
    if (isinf(plan->time))
        return NULL;
    ebb_pofo_unit *units = EBB_NEW(arena, ebb_pofo_unit, m->c->stages);
    EBB_GOT(units);
    for (uint32_t end = 0; end < m->c->stages; end = units[plan->count++].end) {
        (void)least(m, &p, &units[plan->count]);
        p = behind(m, &p, &units[plan->count]);
    }
    plan->units = units;
    return NULL;
}

ebb_status ebb_pofo_make(ebb_pofo_plan *plan, const ebb_pofo *chain, const double *rotor,
                         ebb_arena *arena)
{
    size_t width = (size_t)chain->slots + 1, count;
    EBB_LOCAL_ARENA(scratch);
    maker m = {.c = chain, .rotor = rotor};
    *plan = (ebb_pofo_plan){.time = HUGE_VAL};
    EBB_GOT(ebb_size_mul(&count, width * width, width * 2) &&
            ebb_size_mul(&count, count, (size_t)chain->stages + 1));
    m.known = EBB_NEW(scratch, float, count);
    EBB_GOT(m.known);
    for (size_t i = 0; i < count; i++)
        m.known[i] = -1;
    return make(plan, &m, arena);
}
