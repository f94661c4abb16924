/* execute.c: one warp: which lanes go on, and where to. */
#include "tests/cuda/ptx/execute.h"

/* ---- groups ---- */

static bool same_frame(const warp *w, uint32_t l, uint32_t k)
{
    return w->in[l] == w->in[k] && w->base[l] == w->base[k] && w->bytes[l] == w->bytes[k] &&
           w->depth[l] == w->depth[k];
}

static bool is_before(const warp *w, uint32_t l, uint32_t k)
{
    if (w->depth[l] != w->depth[k])
        return w->depth[l] > w->depth[k];
    if (w->in[l] != w->in[k])
        return w->in[l] < w->in[k];
    return w->pc[l] < w->pc[k];
}

/* False: none can go on. */
static bool choose(const warp *w, group *g)
{
    const uint32_t free = w->alive & ~w->waits;
    uint32_t first = LANES;
    EACH(l, free)
    if (first == LANES || is_before(w, l, first))
        first = l;
    if (first == LANES)
        return false;
    *g = (group){w->in[first],    0,         w->pc[first], w->base[first], w->bytes[first],
                 w->depth[first], UINT32_MAX};
    EACH(l, free)
    if (same_frame(w, l, first)) {
        if (w->pc[l] == g->pc)
            g->lanes |= 1u << l;
        else if (w->pc[l] < g->meets)
            g->meets = w->pc[l];
    }
    return true;
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
    if (w->in[l] == g->f && w->pc[l] == g->pc)
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

static bool explain(const machine *m, const warp *w, const group *g, const instruction *i,
                    uint32_t lane)
{
    char what[512], place[256];
    (void)memcpy(what, ptx_error, sizeof what - 1);
    what[sizeof what - 1] = '\0';
    ptx_error[0] = '\0';
    return ptx_fail("%s: %.*s: thread %u of block %u %s",
                    ptx_source(g->f->module, i->place, place, sizeof place), (int)g->f->name_length,
                    g->f->name, w->number * LANES + lane, m->block.number, what);
}

static bool stuck(machine *m, const warp *w)
{
    const uint32_t l = (uint32_t)__builtin_ctz(w->waits);
    const group g = {.f = w->in[l], .lanes = w->waits};
    (void)ptx_fail("waits for lanes of its warp that do not come (%08x of %08x are here)", w->waits,
                   w->alive);
    return explain(m, w, &g, &w->in[l]->code[w->pc[l]], l);
}

/* ---- between lanes ---- */

static void shuffle(warp *w, const group *g, const instruction *i, uint32_t lanes)
{
    cell(*const frame)[LANES] = frame_of(w, g);
    const cell *a = row(w, g, i->a), *b = row(w, g, i->b), *c = row(w, g, i->c);
    uint32_t got[LANES], inside[LANES];
    EACH(l, lanes)
    {
        const uint32_t by = b[l].u32 & 31, clamp = c[l].u32 & 31, segment = c[l].u32 >> 8 & 31;
        const uint32_t most = (l & segment) | (clamp & ~segment), least_lane = l & segment;
        uint32_t from = l;
        switch (i->kind) {
        case 'b':
            from = l ^ by;
            inside[l] = from <= most;
            break;
        case 'i':
            from = least_lane | (by & ~segment);
            inside[l] = from <= most;
            break;
        case 'd':
            from = l + by;
            inside[l] = from <= most;
            break;
        default:
            inside[l] = (int)(l - by) >= (int)most;
            from = l - by;
        }
        got[l] = a[inside[l] ? from : l].u32;
    }
    EACH(l, lanes)
    {
        frame[i->d][l].u64 = got[l];
        if (i->more[0] >= 0)
            frame[i->more[0]][l].u32 = inside[l];
    }
}

static void vote(warp *w, const group *g, const instruction *i, uint32_t lanes, uint32_t members)
{
    cell(*const frame)[LANES] = frame_of(w, g);
    const cell *a = row(w, g, i->a);
    uint32_t bits = 0;
    EACH(l, lanes)
    bits |= ((a[l].u32 & 1) ^ i->negated) << l;
    EACH(l, lanes)
    frame[i->d][l].u64 = i->kind == 'b' ? bits : i->kind == 'o' ? bits != 0 : bits == members;
}

/* ---- calls ---- */

static bool enter(warp *w, group *g, const instruction *i, uint32_t lanes)
{
    const function *f = g->f;
    const call *c = &f->calls[i->offset];
    const uint32_t base = g->base + f->registers, bytes = g->bytes + f->frame_bytes;
    if (g->depth + 1 >= MAX_DEPTH || base + c->callee->registers > FRAME_CELLS ||
        bytes + c->callee->frame_bytes > LOCAL_BYTES)
        return ptx_fail("calls too deep");
    EACH(l, lanes)
    {
        uint8_t *local = w->local + (size_t)l * LOCAL_BYTES;
        for (uint32_t k = 0; k < c->count; k++)
            memcpy(local + bytes + c->callee->params[k].offset,
                   local + g->bytes + c->from[k].offset, c->from[k].bytes);
        w->backs[g->depth][l] = (back){g->pc + 1, g->base, g->bytes, g->f};
        w->in[l] = c->callee;
        w->depth[l] = g->depth + 1;
        w->base[l] = base;
        w->bytes[l] = bytes;
        w->pc[l] = 0;
    }
    return true;
}

static void go_back(warp *w, const group *g, uint32_t lanes)
{
    EACH(l, lanes)
    {
        if (g->depth == 0) {
            w->alive &= ~(1u << l);
            continue;
        }
        const back *to = &w->backs[g->depth - 1][l];
        const call *c = &to->f->calls[to->f->code[to->pc - 1].offset];
        uint8_t *local = w->local + (size_t)l * LOCAL_BYTES;
        if (c->has_result)
            memcpy(local + to->bytes + c->to.offset, local + g->bytes + g->f->result.offset,
                   c->to.bytes);
        w->in[l] = to->f;
        w->depth[l] = g->depth - 1;
        w->base[l] = to->cells;
        w->bytes[l] = to->bytes;
        w->pc[l] = to->pc;
    }
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

static going return_or_exit(warp *w, const group *g, const instruction *i, uint32_t lanes)
{
    leave(w, g->lanes & ~lanes, g->pc + 1);
    if (i->op == OP_EXIT)
        w->alive &= ~lanes;
    else
        go_back(w, g, lanes);
    return APART;
}

static going speak(machine *m, warp *w, group *g, const instruction *i, uint32_t lanes)
{
    const uint32_t first = (uint32_t)__builtin_ctz(lanes);
    const uint32_t members = row(w, g, i->op == OP_SHFL ? i->more[1] : i->b)[first].u32;
    if (lanes != g->lanes || (members & g->lanes) != g->lanes) {
        (void)ptx_fail("comes to a word of its warp without the lanes that it names");
        (void)explain(m, w, g, i, first);
        return WRONG;
    }
    if (!gather(w, g, members))
        return APART;
    if (i->op == OP_SHFL)
        shuffle(w, g, i, g->lanes);
    else
        vote(w, g, i, g->lanes, members);
    w->round++;
    return ON;
}

static going halt(warp *w, group *g)
{
    if (!gather(w, g, ALL))
        return APART;
    w->barrier_pc = g->pc;
    w->barrier_in = g->f;
    w->state = AT_BARRIER;
    leave(w, g->lanes, g->pc + 1);
    return HELD;
}

static going carry_out(machine *m, warp *w, group *g, const instruction *i, uint32_t lanes)
{
    uint32_t lane = (uint32_t)__builtin_ctz(lanes);
    switch (i->op) {
    case OP_BRA:
        return branch(w, g, i, lanes);
    case OP_LD:
    case OP_ST:
        if (ptx_access(m, w, g, i, lanes, &lane))
            return ON;
        break;
    case OP_ATOM:
        if (ptx_exchange(m, w, g, i, lanes, &lane))
            return ON;
        break;
    case OP_PLACE:
        EACH(l, lanes)
        frame_of(w, g)[i->d][l].u64 = g->bytes + (uint64_t)i->offset;
        return ON;
    case OP_PACK:
        ptx_pack(w, g, i, lanes);
        return ON;
    case OP_UNPACK:
        ptx_unpack(w, g, i, lanes);
        return ON;
    case OP_BFI:
        ptx_insert(w, g, i, lanes);
        return ON;
    case OP_CALL:
        leave(w, g->lanes & ~lanes, g->pc + 1);
        if (enter(w, g, i, lanes))
            return APART;
        break;
    case OP_RET:
    case OP_EXIT:
        return return_or_exit(w, g, i, lanes);
    case OP_SHFL:
    case OP_VOTE:
        return speak(m, w, g, i, lanes);
    case OP_BAR:
        return halt(w, g);
    case OP_TRAP:
        (void)ptx_fail("comes to a trap");
        break;
    default:
        (void)ptx_fail("an instruction without a meaning");
    }
    (void)explain(m, w, g, i, lane);
    return WRONG;
}

/* Lanes that are not kept out by the predicate. */
static uint32_t guarded(const warp *w, const group *g, const instruction *i)
{
    if (i->guard < 0)
        return g->lanes;
    const cell *p = frame_of(w, g)[i->guard];
    uint32_t lanes = 0;
    for (uint32_t l = 0; l < LANES; l++)
        lanes |= (p[l].u32 & 1) << l;
    return (i->negated ? ~lanes : lanes) & g->lanes;
}

/* The group goes on until its lanes part or meet others. */
static going follow(machine *m, warp *w, group *g, uint32_t *steps)
{
    for (; *steps > 0; --*steps) {
        instruction *i = &g->f->code[g->pc];
        const uint32_t lanes = guarded(w, g, i);
        going next = ON;
        m->executed += (uint32_t)__builtin_popcount(g->lanes);
        i->has_run = true;
        if (i->op < OP_ROWS && lanes != 0)
            ptx_compute(w, g, i, lanes);
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
    w->alive = threads - first >= LANES ? ALL : (1u << (threads - first)) - 1;
    w->waits = w->round = 0;
    w->state = READY;
    for (uint32_t l = 0; l < LANES; l++) {
        w->in[l] = entry;
        w->pc[l] = w->depth[l] = w->base[l] = w->bytes[l] = 0;
        w->special[TID_X][l].u64 = first + l;
        w->special[NTID_X][l].u64 = threads;
        w->special[LANEID][l].u64 = l;
        w->special[WARPID][l].u64 = w->number;
        w->special[ZERO][l].u64 = 0;
    }
}
