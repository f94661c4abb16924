/* execute.c: one warp: which lanes go on, and where to. */
#include "tests/cuda/ptx/execute.h"

/* ---- groups ---- */

/* False: none can go on. */
static bool choose(const warp *w, group *g)
{
    const uint32_t free = w->alive & ~w->waits;
    *g = (group){.pc = UINT32_MAX, .meets = UINT32_MAX};
    EACH(l, free)
    if (w->pc[l] < g->pc)
        g->pc = w->pc[l];
    EACH(l, free)
    if (w->pc[l] == g->pc)
        g->lanes |= 1u << l;
    else if (w->pc[l] < g->meets)
        g->meets = w->pc[l];
    return free != 0;
}

static void leave(warp *w, uint32_t lanes, uint32_t pc)
{
    EACH(l, lanes)
    w->pc[l] = pc;
}

/* All lanes that are asked for must come to this place. False: these wait for the rest. */
static bool gather(warp *w, group *g, uint32_t asked)
{
    uint32_t come = g->lanes;
    leave(w, g->lanes, g->pc);
    EACH(l, w->waits)
    if (w->pc[l] == g->pc)
        come |= 1u << l;
    if ((asked & ~come) != 0) {
        w->waits |= g->lanes;
        return false;
    }
    w->waits &= ~come;
    g->lanes = come;
    return true;
}

/* ---- errors ---- */

static bool explain(const machine *m, const warp *w, uint32_t pc, uint32_t lane)
{
    char what[512], place[256];
    (void)memcpy(what, ptx_error, sizeof what - 1);
    what[sizeof what - 1] = '\0';
    ptx_error[0] = '\0';
    return ptx_fail("%s: %.*s: thread %u of block %u %s",
                    ptx_source(w->f->module, w->f->code[pc].place, place, sizeof place),
                    (int)w->f->name_length, w->f->name, w->number * LANES + lane, m->block.number,
                    what);
}

static bool stuck(const machine *m, const warp *w)
{
    const uint32_t l = (uint32_t)__builtin_ctz(w->waits);
    (void)ptx_fail("waits for lanes of its warp that do not come (%08x of %08x are here)", w->waits,
                   w->alive);
    return explain(m, w, w->pc[l], l);
}

/* ---- between lanes ---- */

static void shuffle(warp *w, const instruction *i, uint32_t lanes)
{
    const cell *a = row(w, i->a), *b = row(w, i->b), *c = row(w, i->c);
    uint32_t got[LANES], inside[LANES];
    EACH(l, lanes)
    {
        const uint32_t by = b[l].u32 & 31, clamp = c[l].u32 & 31, segment = c[l].u32 >> 8 & 31;
        const uint32_t most = (l & segment) | (clamp & ~segment);
        const uint32_t from = i->kind == 'b' ? l ^ by : (l & segment) | (by & ~segment);
        inside[l] = from <= most;
        got[l] = a[inside[l] ? from : l].u32;
    }
    EACH(l, lanes)
    {
        w->cells[i->d][l].u64 = got[l];
        w->cells[i->more[0]][l].u32 = inside[l];
    }
}

static void vote(warp *w, const instruction *i, uint32_t lanes)
{
    const cell *a = row(w, i->a);
    uint32_t bits = 0;
    EACH(l, lanes)
    bits |= (a[l].u32 & 1) << l;
    EACH(l, lanes)
    w->cells[i->d][l].u64 = bits;
}

/* ---- one after another ---- */

typedef enum going { /* the group, after an instruction */
                     ON,
                     THERE, /* it is where it goes on already */
                     APART, /* its lanes are left where they go on, or wait */
                     HELD,  /* at a barrier */
                     WRONG
} going;

static going branch(warp *w, group *g, const instruction *i, uint32_t lanes)
{
    if (lanes == g->lanes) {
        g->pc = (uint32_t)i->offset;
        return THERE;
    }
    leave(w, g->lanes & ~lanes, g->pc + 1);
    leave(w, lanes, (uint32_t)i->offset);
    return APART;
}

static going speak(const machine *m, warp *w, group *g, const instruction *i, uint32_t lanes)
{
    const uint32_t first = (uint32_t)__builtin_ctz(lanes);
    const uint32_t members = row(w, i->op == OP_SHFL ? i->more[1] : i->b)[first].u32;
    if (lanes != g->lanes || (members & g->lanes) != g->lanes) {
        (void)ptx_fail("comes to a word of its warp without the lanes that it names");
        (void)explain(m, w, g->pc, first);
        return WRONG;
    }
    if (!gather(w, g, members))
        return APART;
    (i->op == OP_SHFL ? shuffle : vote)(w, i, g->lanes);
    w->round++;
    return ON;
}

static going halt(warp *w, group *g)
{
    if (!gather(w, g, ALL))
        return APART;
    w->barrier = g->pc;
    w->state = AT_BARRIER;
    leave(w, g->lanes, g->pc + 1);
    return HELD;
}

static going carry_out(const machine *m, warp *w, group *g, const instruction *i, uint32_t lanes)
{
    uint32_t lane = (uint32_t)__builtin_ctz(lanes);
    switch (i->op) {
    case OP_BRA:
        return branch(w, g, i, lanes);
    case OP_LD:
    case OP_ST:
        if (ptx_access(m, w, i, lanes, &lane))
            return ON;
        break;
    case OP_ATOM:
        if (ptx_exchange(m, w, i, lanes, &lane))
            return ON;
        break;
    case OP_PACK:
        ptx_pack(w, i, lanes);
        return ON;
    case OP_UNPACK:
        ptx_unpack(w, i, lanes);
        return ON;
    case OP_BFI:
        ptx_insert(w, i, lanes);
        return ON;
    case OP_RET:
        leave(w, g->lanes & ~lanes, g->pc + 1);
        w->alive &= ~lanes;
        return APART;
    case OP_SHFL:
    case OP_VOTE:
        return speak(m, w, g, i, lanes);
    case OP_BAR:
        return halt(w, g);
    default:
        (void)ptx_fail("comes to a trap");
    }
    (void)explain(m, w, g->pc, lane);
    return WRONG;
}

/* Lanes that are not kept out by the predicate. */
static uint32_t guarded(const warp *w, const group *g, const instruction *i)
{
    if (i->guard < 0)
        return g->lanes;
    const cell *p = w->cells[i->guard];
    uint32_t lanes = 0;
    for (uint32_t l = 0; l < LANES; l++)
        lanes |= (p[l].u32 & 1) << l;
    return (i->negated ? ~lanes : lanes) & g->lanes;
}

/* The group goes on until its lanes part or meet others. */
static going follow(machine *m, warp *w, group *g, uint32_t *steps)
{
    for (; *steps > 0; --*steps) {
        instruction *i = &w->f->code[g->pc];
        const uint32_t lanes = guarded(w, g, i);
        going next = ON;
        m->executed += (uint32_t)__builtin_popcount(g->lanes);
        i->has_run = true;
        if (i->op < OP_ROWS && lanes != 0)
            ptx_compute(w, i, lanes);
        else if (lanes != 0)
            next = carry_out(m, w, g, i, lanes);
        if (next > THERE)
            return next;
        g->pc += next == ON;
        if (g->pc >= g->meets)
            break;
    }
    leave(w, g->lanes, g->pc);
    return APART;
}

bool ptx_run(machine *m, warp *w, uint32_t steps)
{
    group g;
    if (m->executed > m->end)
        return ptx_fail("a launch does not end");
    while (steps > 0) {
        if (!choose(w, &g)) {
            if (w->alive != 0)
                return stuck(m, w);
            w->state = DONE;
            return true;
        }
        const going next = follow(m, w, &g, &steps);
        if (next >= HELD)
            return next == HELD;
    }
    return true;
}

void ptx_start(warp *w, function *entry, uint32_t threads)
{
    const uint32_t first = w->number * LANES;
    w->f = entry;
    w->alive = threads - first >= LANES ? ALL : (1u << (threads - first)) - 1;
    w->waits = w->round = 0;
    w->state = READY;
    for (uint32_t l = 0; l < LANES; l++) {
        w->pc[l] = 0;
        w->special[TID_X][l].u64 = first + l;
        w->special[NTID_X][l].u64 = threads;
        w->special[ZERO][l].u64 = 0;
    }
}
