/* execute.c: one warp: which lanes go on, and what an instruction does to each of them. */
#include "tests/cuda/ptx/ptx.h"

#include "tests/cuda/ptx/arithmetic.h"

uint64_t ptx_seed;

typedef int8_t T_s8;
typedef uint8_t T_u8;
typedef int16_t T_s16;
typedef uint16_t T_u16;
typedef int32_t T_s32;
typedef uint32_t T_u32;
typedef int64_t T_s64;
typedef uint64_t T_u64;
typedef float T_f32;
typedef double T_f64;

static const uint32_t ALL = 0xFFFFFFFF;

typedef struct group { /* the lanes that go on together, and where */
    function *f;
    uint32_t lanes, pc, base, bytes, depth;
    uint32_t meets; /* the place at which others of this frame wait */
} group;

#define EACH(l, lanes)                                                                          \
    for (uint32_t l, rest_ = (lanes); rest_ != 0 && (l = (uint32_t)__builtin_ctz(rest_), true); \
         rest_ &= rest_ - 1)

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

static void leave(warp *w, const group *g, uint32_t lanes, uint32_t pc)
{
    EACH(l, lanes)
    w->pc[l] = pc;
    (void)g;
}

/* All lanes that are asked for must come to this place. False: these wait for the rest. */
static bool gather(warp *w, group *g, uint32_t asked)
{
    uint32_t come = g->lanes;
    leave(w, g, g->lanes, g->pc);
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

/* ---- memory ---- */

static void *reach(machine *m, warp *w, const group *g, const instruction *i, uint32_t l,
                   uint32_t where, uint64_t at, bool writes, bool atomic)
{
    const uint32_t bytes = (uint32_t)i->size * i->count;
    if (at % bytes != 0) {
        (void)ptx_fail("accesses what is not aligned to %u bytes, at %#llx", bytes,
                       (unsigned long long)at);
        return NULL;
    }
    if (where == GENERIC) {
        static const uint8_t windows[] = {GLOBAL, SHARED, LOCAL, PARAM};
        if (at >> 56 > 3) {
            (void)ptx_fail("accesses what is no address, %#llx", (unsigned long long)at);
            return NULL;
        }
        where = windows[at >> 56];
        at &= SHARED_BASE - 1;
    }
    if (where == PARAM && (at & FRAME_PARAM) != 0) {
        where = LOCAL;
        at &= ~FRAME_PARAM;
    }
    const seeing who = {w->number * LANES + l, w->round, writes, atomic};
    switch (where) {
    case GLOBAL:
        return ptx_global(&m->block, at, bytes, who);
    case SHARED:
        return ptx_shared(&m->block, at, bytes, who);
    case LOCAL:
        if (at + bytes <= g->bytes + g->f->frame_bytes)
            return w->local + (size_t)l * LOCAL_BYTES + at;
        (void)ptx_fail("goes beyond its local memory, at %#llx", (unsigned long long)at);
        return NULL;
    default:
        if (!writes && at + bytes <= m->block.args_bytes)
            return (uint8_t *)(uintptr_t)m->block.args + at;
        (void)ptx_fail("%s its arguments, at %llu", writes ? "writes" : "goes beyond",
                       (unsigned long long)at);
        return NULL;
    }
}

static const cell *row(const warp *w, const group *g, cell (*frame)[LANES], operand x)
{
    return x >= 0 ? frame[x] : ~x < SPECIALS ? w->special[~x] : g->f->constants[~x - SPECIALS];
}

static void load(cell *to, const uint8_t *from, uint32_t size, bool is_signed)
{
    switch (size) {
    case 1:
        to->u64 = is_signed ? (uint64_t)(int64_t)(int8_t)*from : *from;
        break;
    case 2: {
        uint16_t v;
        memcpy(&v, from, sizeof v);
        to->u64 = is_signed ? (uint64_t)(int64_t)(int16_t)v : v;
        break;
    }
    case 4: {
        uint32_t v;
        memcpy(&v, from, sizeof v);
        to->u64 = is_signed ? (uint64_t)(int64_t)(int32_t)v : v;
        break;
    }
    default:
        memcpy(to, from, sizeof *to);
    }
}

static bool access_memory(machine *m, warp *w, const group *g, const instruction *i, uint32_t lanes)
{
    cell(*const frame)[LANES] = w->cells + g->base;
    const cell *a = row(w, g, frame, i->a);
    const bool writes = i->op == OP_ST;
    EACH(l, lanes)
    {
        const uint64_t at = a[l].u64 + (uint64_t)i->offset + (i->in_frame ? g->bytes : 0);
        uint8_t *p = reach(m, w, g, i, l, i->space, at, writes, false);
        if (p == NULL)
            return explain(m, w, g, i, l);
        for (uint32_t k = 0; k < i->count; k++, p += i->size)
            if (writes)
                memcpy(p, &row(w, g, frame, i->more[k])[l], i->size); // little-endian
            else
                load(&frame[i->more[k]][l], p, i->size, i->kind);
    }
    return true;
}

static bool exchange_atomically(machine *m, warp *w, const group *g, const instruction *i,
                                uint32_t lanes)
{
    cell(*const frame)[LANES] = w->cells + g->base;
    const cell *a = row(w, g, frame, i->a), *b = row(w, g, frame, i->b);
    EACH(l, lanes)
    {
        uint8_t *p = reach(m, w, g, i, l, i->space, a[l].u64 + (uint64_t)i->offset, true, true);
        cell old = {0}, new;
        if (p == NULL)
            return explain(m, w, g, i, l);
        load(&old, p, i->size, false);
        new.u64 = i->kind == '+'       ? old.u64 + b[l].u64
                  : i->kind == '|'     ? old.u64 | b[l].u64
                  : old.u64 < b[l].u64 ? old.u64
                                       : b[l].u64;
        memcpy(p, &new, i->size);
        frame[i->d][l] = old;
    }
    return true;
}

/* ---- between lanes ---- */

static void shuffle(warp *w, const group *g, const instruction *i, uint32_t lanes)
{
    cell(*const frame)[LANES] = w->cells + g->base;
    const cell *a = row(w, g, frame, i->a), *b = row(w, g, frame, i->b),
               *c = row(w, g, frame, i->c);
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
    cell(*const frame)[LANES] = w->cells + g->base;
    const cell *a = row(w, g, frame, i->a);
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

static void pack(cell *d, const instruction *i, const warp *w, const group *g, uint32_t lanes)
{
    cell(*const frame)[LANES] = w->cells + g->base;
    EACH(l, lanes)
    {
        cell whole = {0};
        for (uint32_t k = 0; k < i->count; k++)
            memcpy((uint8_t *)&whole + k * i->size, &row(w, g, frame, i->more[k])[l], i->size);
        d[l] = whole;
    }
}

static void unpack(const instruction *i, const warp *w, const group *g, uint32_t lanes)
{
    cell(*const frame)[LANES] = w->cells + g->base;
    const cell *a = row(w, g, frame, i->a);
    EACH(l, lanes)
    {
        const cell whole = a[l];
        for (uint32_t k = 0; k < i->count; k++)
            load(&frame[i->more[k]][l], (const uint8_t *)&whole + k * i->size, i->size, false);
    }
}

#define IVDEP _Pragma("GCC ivdep")
/* The rest of the register becomes zero: addresses of 32 bits are read as ones of 64. */
#define VALUE(D, A, B, C, value)   \
    {                              \
        const T_##A a = pa[l].A;   \
        const T_##B b = pb[l].B;   \
        const T_##C c = pc[l].C;   \
        cell made = {.u64 = 0};    \
        (void)a, (void)b, (void)c; \
        made.D = (T_##D)(value);   \
        d[l] = made;               \
    }

/* A value of each lane. */
static void compute(warp *w, const group *g, const instruction *i, uint32_t lanes)
{
    cell(*const frame)[LANES] = w->cells + g->base;
    cell *d = frame[i->d];
    const cell *pa = row(w, g, frame, i->a), *pb = row(w, g, frame, i->b),
               *pc = row(w, g, frame, i->c);
    switch (i->op) {
#define ROW(name, count, spellings, D, A, B, C, value)                          \
    case OP_##name:                                                             \
        if (lanes == ALL) {                                                     \
            IVDEP for (uint32_t l = 0; l < LANES; l++) VALUE(D, A, B, C, value) \
        } else {                                                                \
            EACH(l, lanes) VALUE(D, A, B, C, value)                             \
        }                                                                       \
        break;
#include "tests/cuda/ptx/ops.def"
#undef ROW
    default:
        break;
    }
}

/* Lanes that are not kept out by the predicate. */
static uint32_t guarded(const warp *w, const group *g, const instruction *i)
{
    if (i->guard < 0)
        return g->lanes;
    const cell *p = w->cells[g->base + (uint32_t)i->guard];
    uint32_t lanes = 0;
    for (uint32_t l = 0; l < LANES; l++)
        lanes |= (p[l].u32 & 1) << l;
    return (i->negated ? ~lanes : lanes) & g->lanes;
}

static bool stuck(machine *m, const warp *w)
{
    const uint32_t l = (uint32_t)__builtin_ctz(w->waits);
    const group g = {.f = w->in[l], .lanes = w->waits};
    (void)ptx_fail("waits for lanes of its warp that do not come (%08x of %08x are here)", w->waits,
                   w->alive);
    return explain(m, w, &g, &w->in[l]->code[w->pc[l]], l);
}

bool ptx_run(machine *m, warp *w, uint32_t steps)
{
    group g;
    while (steps > 0) {
        if (!choose(w, &g)) {
            if (w->alive != 0)
                return stuck(m, w);
            w->state = DONE;
            return true;
        }
        for (bool goes = true; goes && steps > 0; steps--) {
            const instruction *i = &g.f->code[g.pc];
            const uint32_t lanes = guarded(w, &g, i);
            m->executed += (uint32_t)__builtin_popcount(g.lanes);
            if (lanes == 0) {
                g.pc++;
                goes = g.pc < g.meets;
                continue;
            }
            if (i->op < OP_ROWS) {
                compute(w, &g, i, lanes);
                g.pc++;
                goes = g.pc < g.meets;
                continue;
            }
            cell(*const frame)[LANES] = w->cells + g.base;
            const uint32_t first = (uint32_t)__builtin_ctz(lanes);
            switch (i->op) {
            case OP_BRA:
                if (lanes == g.lanes) {
                    g.pc = (uint32_t)i->offset;
                    goes = g.pc < g.meets;
                    continue;
                }
                leave(w, &g, g.lanes & ~lanes, g.pc + 1);
                leave(w, &g, lanes, (uint32_t)i->offset);
                g.lanes = 0;
                goes = false;
                continue;
            case OP_LD:
            case OP_ST:
                if (!access_memory(m, w, &g, i, lanes))
                    return false;
                break;
            case OP_ATOM:
                if (!exchange_atomically(m, w, &g, i, lanes))
                    return false;
                break;
            case OP_PLACE:
                EACH(l, lanes)
                frame[i->d][l].u64 = g.bytes + (uint64_t)i->offset;
                break;
            case OP_PACK:
                pack(frame[i->d], i, w, &g, lanes);
                break;
            case OP_UNPACK:
                unpack(i, w, &g, lanes);
                break;
            case OP_BFI: {
                const cell *a = row(w, &g, frame, i->a), *b = row(w, &g, frame, i->b),
                           *c = row(w, &g, frame, i->c), *n = row(w, &g, frame, i->more[0]);
                EACH(l, lanes)
                frame[i->d][l].u64 =
                    i->size == 8 ? inserted(a[l].u64, b[l].u64, c[l].u32, n[l].u32, 64)
                                 : (uint32_t)inserted(a[l].u32, b[l].u32, c[l].u32, n[l].u32, 32);
                break;
            }
            case OP_CALL:
                leave(w, &g, g.lanes & ~lanes, g.pc + 1);
                if (!enter(w, &g, i, lanes))
                    return explain(m, w, &g, i, first);
                g.lanes = 0;
                goes = false;
                continue;
            case OP_RET:
            case OP_EXIT:
                leave(w, &g, g.lanes & ~lanes, g.pc + 1);
                if (i->op == OP_EXIT)
                    w->alive &= ~lanes;
                else
                    go_back(w, &g, lanes);
                g.lanes = 0;
                goes = false;
                continue;
            case OP_TRAP:
                (void)ptx_fail("comes to a trap");
                return explain(m, w, &g, i, first);
            case OP_SHFL:
            case OP_VOTE: {
                const uint32_t members =
                    row(w, &g, frame, i->op == OP_SHFL ? i->more[1] : i->b)[first].u32;
                if (lanes != g.lanes || (members & g.lanes) != g.lanes) {
                    (void)ptx_fail("comes to a word of its warp without the lanes that it names");
                    return explain(m, w, &g, i, first);
                }
                if (!gather(w, &g, members)) {
                    g.lanes = 0;
                    goes = false;
                    continue;
                }
                if (i->op == OP_SHFL)
                    shuffle(w, &g, i, g.lanes);
                else
                    vote(w, &g, i, g.lanes, members);
                w->round++;
                break;
            }
            case OP_BAR:
                if (!gather(w, &g, ALL)) {
                    g.lanes = 0;
                    goes = false;
                    continue;
                }
                w->barrier_pc = g.pc;
                w->barrier_in = g.f;
                w->state = AT_BARRIER;
                leave(w, &g, g.lanes, g.pc + 1);
                return true;
            default:
                (void)ptx_fail("an instruction without a meaning");
                return explain(m, w, &g, i, first);
            }
            g.pc++;
            goes = g.pc < g.meets;
        }
        leave(w, &g, g.lanes, g.pc);
    }
    return true;
}

void ptx_start(machine *m, warp *w, function *entry, uint32_t threads)
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
    (void)m;
}
