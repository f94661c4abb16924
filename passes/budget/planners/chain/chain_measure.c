/* chain_measure.c: what a stage weighs, by the referee's rules, and which stage the backward is at.
 *
 * An operator of the backward belongs to the stage whose forward read or made what it reads. Most
 * of the list says so plainly and falls from the last stage to the first; what does not fit in (a
 * mask of the first stage read everywhere, the update) is outweighed by its neighbours: the stages
 * are the falling sequence nearest to what the operators say, by bytes (pool adjacent violators).
 */
#include "passes/budget/planners/chain/chain_measure.h"

typedef struct measure {
    ebb_chain *c;
    const ebb_remat_problem *p;
    ebb_arena *scratch;
    uint32_t *stage_at; /* by position in forward[] */
    uint32_t *stage;    /* by index into backward[] */
    uint32_t *last;     /* by value: index into backward[] of its last reader, + 1 */
    uint32_t *turn;
    uint64_t *in, *saved, *drop, *fill, *back, *grad;
    double *ns, *redo_ns;
    uint64_t *redo;
    uint64_t *rest; /* by stage: what it saved that is still to be read */
    bool *needed;   /* by position in forward[]: runs again just before its stage's backward */
    bool *wanted;   /* by value: read by such a one */
} measure;

/* ---- the stage of each operator of the backward ---- */

typedef struct pool {
    double sum, weight;
    uint32_t first; /* index into backward[] */
} pool;

/* What an operator says of its stage, and by how many bytes; 0 bytes: nothing. */
static double says(const measure *m, const ebb_remat_op *op, uint32_t *stage)
{
    uint32_t which = EBB_REMAT_NONE;
    for (uint32_t k = 0; k < op->in_count; k++) {
        uint32_t v = op->in[k];
        if (m->c->stage_of[v] == EBB_REMAT_NONE || m->c->always[v])
            continue;
        if (which == EBB_REMAT_NONE || m->c->stage_of[v] > m->c->stage_of[which])
            which = v;
    }
    if (which == EBB_REMAT_NONE)
        return 0;
    uint32_t made = m->c->stage_of[which], read = m->stage_at[m->c->reach[which]];
    *stage = read;
    return read - made <= 1 ? (double)m->p->values[which].bytes + 1
                            : 0; // a long skip is read twice
}

static ebb_status find_stages(measure *m)
{
    ebb_chain *c = m->c;
    pool *pools = EBB_NEW(m->scratch, pool, (size_t)c->backward_count + 1);
    EBB_GOT(pools);
    size_t count = 0;
    for (uint32_t i = 0; i < c->backward_count; i++) {
        uint32_t stage = 0;
        double weight = says(m, &m->p->ops[c->backward[i]], &stage);
        if (weight <= 0)
            continue;
        pools[count++] = (pool){stage * weight, weight, i};
        while (count > 1 && pools[count - 1].sum * pools[count - 2].weight >
                                pools[count - 2].sum * pools[count - 1].weight) {
            pools[count - 2].sum += pools[count - 1].sum;
            pools[count - 2].weight += pools[count - 1].weight;
            count--;
        }
    }
    uint32_t now = c->stages - 1;
    size_t next = 0;
    for (uint32_t i = 0; i < c->backward_count; i++) {
        if (next < count && pools[next].first == i) {
            uint32_t stage = (uint32_t)(pools[next].sum / pools[next].weight + 0.5);
            now = stage < now ? stage : now;
            next++;
        }
        m->stage[i] = now;
        m->turn[now]++;
    }
    for (uint32_t s = c->stages; s-- > 0;)
        m->turn[s] += m->turn[s + 1];
    return NULL;
}

/* ---- bytes ---- */

/* Bytes that outputs of op take over from inputs that die there and were counted. */
static uint64_t taken_over(const measure *m, const ebb_remat_op *op, const bool *dies)
{
    uint64_t bytes = 0;
    for (uint32_t k = 0; k < op->over_count; k++) {
        bool taken = !dies[op->over[k].in];
        for (uint32_t j = 0; j < k && !taken; j++)
            taken = dies[op->over[j].in] &&
                    (op->over[j].out == op->over[k].out || op->over[j].in == op->over[k].in);
        if (!taken)
            bytes += m->p->values[op->over[k].out].bytes;
    }
    return bytes;
}

/* Stage s's own part of the backward reads v. */
static bool read_in_own(const measure *m, uint32_t v)
{
    return m->last[v] > m->turn[m->c->stage_of[v] + 1];
}

typedef enum run {
    DROP, /* what leaves the stage stays to its end */
    FILL, /* and what the backward reads */
    REDO, /* what its own part of the backward reads; what nobody needs does not run */
} run;

static bool lasts(const measure *m, uint32_t s, uint32_t v, run how)
{
    bool leaves = m->c->reach[v] >= m->c->cut[s + 1];
    return how == REDO ? read_in_own(m, v) : leaves || (how == FILL && m->c->read_back[v]);
}

/* One run of a stage: what it holds at most, and at its end. */
static uint64_t run_stage(const measure *m, uint32_t s, run how, bool *dies, uint64_t *end)
{
    const ebb_chain *c = m->c;
    uint64_t live = 0, peak = 0;
    for (uint32_t i = c->cut[s]; i < c->cut[s + 1]; i++) {
        const ebb_remat_op *op = &m->p->ops[c->forward[i]];
        uint64_t dying = 0;
        if (how == REDO && !m->needed[i])
            continue;
        for (uint32_t k = 0; k < op->in_count; k++) {
            uint32_t v = op->in[k];
            dies[v] =
                c->stage_of[v] == s && !c->always[v] && c->reach[v] == i && !lasts(m, s, v, how);
            dying += dies[v] ? m->p->values[v].bytes : 0;
        }
        for (uint32_t k = 0; k < op->out_count; k++) {
            uint32_t v = op->out[k];
            live += c->always[v] ? 0 : m->p->values[v].bytes;
            if ((how == REDO ? !m->wanted[v] : c->reach[v] == i) && !c->always[v] &&
                !lasts(m, s, v, how))
                dying += m->p->values[v].bytes;
        }
        uint64_t over = taken_over(m, op, dies), here = live + op->workspace;
        here -= over < here ? over : here;
        peak = here > peak ? here : peak;
        live -= dying;
        for (uint32_t k = 0; k < op->in_count; k++)
            dies[op->in[k]] = false;
    }
    *end = live;
    return peak;
}

/* Marks what dies at an operator of the backward and is counted there: gradients and what its own
 * stage saved; returns the bytes of either. What other stages saved is gone from rest at once. */
static uint64_t dying_in_backward(measure *m, uint32_t at, bool *dies, uint64_t *saved)
{
    const ebb_remat_op *op = &m->p->ops[m->c->backward[at]];
    uint64_t bytes = 0;
    *saved = 0;
    for (uint32_t k = 0; k < op->in_count; k++) {
        uint32_t v = op->in[k], s = m->c->stage_of[v];
        const ebb_remat_value *value = &m->p->values[v];
        bool made_back = s == EBB_REMAT_NONE && value->op != EBB_REMAT_NONE;
        if (value->stays || m->c->always[v] || m->last[v] != at + 1)
            continue;
        dies[v] = made_back || s == m->stage[at];
        if (made_back)
            bytes += value->bytes;
        else if (s == m->stage[at])
            *saved += value->bytes;
        else if (s != EBB_REMAT_NONE)
            m->rest[s] -= value->bytes;
    }
    return bytes;
}

/* The backward as it is when nothing is made again. */
static void run_backward(measure *m, bool *dies)
{
    const ebb_chain *c = m->c;
    uint64_t grad = 0;
    uint32_t next = c->stages; // the stage whose backward begins next, + 1
    for (uint32_t i = 0; i < c->backward_count; i++) {
        const ebb_remat_op *op = &m->p->ops[c->backward[i]];
        uint32_t s = m->stage[i];
        uint64_t saved_dying, grad_dying;
        for (; next > s; next--)
            m->grad[next - 1] = grad;
        grad_dying = dying_in_backward(m, i, dies, &saved_dying);
        for (uint32_t k = 0; k < op->out_count; k++) {
            grad += m->p->values[op->out[k]].bytes;
            if (m->last[op->out[k]] == 0 && !m->p->values[op->out[k]].stays)
                grad_dying += m->p->values[op->out[k]].bytes;
        }
        uint64_t here = grad + op->workspace + m->rest[s], over = taken_over(m, op, dies);
        here -= over < here ? over : here;
        m->back[s] = here > m->back[s] ? here : m->back[s];
        grad -= grad_dying;
        m->rest[s] -= saved_dying;
        for (uint32_t k = 0; k < op->in_count; k++)
            dies[op->in[k]] = false;
    }
    for (; next > 0; next--)
        m->grad[next - 1] = grad;
}

/* Which operators of stage s run again just before its backward: those that it needs. */
static void find_needed(measure *m, uint32_t s)
{
    const ebb_chain *c = m->c;
    for (uint32_t i = c->cut[s + 1]; i-- > c->cut[s];) {
        const ebb_remat_op *op = &m->p->ops[c->forward[i]];
        m->needed[i] = s + 1 == c->stages;
        for (uint32_t k = 0; k < op->out_count; k++)
            m->needed[i] = m->needed[i] || m->wanted[op->out[k]] || read_in_own(m, op->out[k]);
        m->needed[i] = m->needed[i] && !(op->once && s + 1 < c->stages);
        for (uint32_t k = 0; k < op->in_count && m->needed[i]; k++)
            m->wanted[op->in[k]] = true;
        m->redo_ns[s] += m->needed[i] && !op->once ? op->cost_ns : 0;
    }
}

static ebb_status weigh_stages(measure *m)
{
    ebb_chain *c = m->c;
    const ebb_remat_problem *p = m->p;
    bool *dies = EBB_NEW(m->scratch, bool, (size_t)p->value_count + 1);
    EBB_GOT(dies);
    c->base = p->base_bytes;
    for (uint32_t v = 0; v < p->value_count; v++) {
        const ebb_remat_value *value = &p->values[v];
        if (c->always[v] || (value->op == EBB_REMAT_NONE && value->reader_count > 0))
            c->base += value->bytes;
        else if (c->stage_of[v] != EBB_REMAT_NONE && c->read_back[v])
            m->rest[c->stage_of[v]] += value->bytes;
    }
    for (uint32_t s = 0; s < c->stages; s++) {
        uint64_t leaves;
        find_needed(m, s);
        m->drop[s] = run_stage(m, s, DROP, dies, &leaves);
        m->fill[s] = run_stage(m, s, FILL, dies, &m->saved[s]);
        m->redo[s] = run_stage(m, s, REDO, dies, &leaves);
        for (uint32_t i = c->cut[s]; i < c->cut[s + 1]; i++)
            if (!p->ops[c->forward[i]].once)
                m->ns[s] += p->ops[c->forward[i]].cost_ns;
    }
    run_backward(m, dies);
    return NULL;
}

static ebb_status allocate(measure *m, ebb_arena *arena)
{
    size_t stages = (size_t)m->c->stages + 2;
    m->c->turn = m->turn = EBB_NEW(arena, uint32_t, stages);
    m->c->in = m->in = EBB_NEW(arena, uint64_t, stages);
    m->c->saved = m->saved = EBB_NEW(arena, uint64_t, stages);
    m->c->drop = m->drop = EBB_NEW(arena, uint64_t, stages);
    m->c->fill = m->fill = EBB_NEW(arena, uint64_t, stages);
    m->c->back = m->back = EBB_NEW(arena, uint64_t, stages);
    m->c->grad = m->grad = EBB_NEW(arena, uint64_t, stages);
    m->c->ns = m->ns = EBB_NEW(arena, double, stages);
    m->c->redo = m->redo = EBB_NEW(arena, uint64_t, stages);
    m->c->redo_ns = m->redo_ns = EBB_NEW(arena, double, stages);
    m->rest = EBB_NEW(m->scratch, uint64_t, stages);
    m->needed = EBB_NEW(m->scratch, bool, (size_t)m->c->forward_count + 1);
    m->wanted = EBB_NEW(m->scratch, bool, (size_t)m->p->value_count + 1);
    m->stage_at = EBB_NEW(m->scratch, uint32_t, (size_t)m->c->forward_count + 1);
    m->stage = EBB_NEW(m->scratch, uint32_t, (size_t)m->c->backward_count + 1);
    m->last = EBB_NEW(m->scratch, uint32_t, (size_t)m->p->value_count + 1);
    EBB_GOT(m->turn && m->in && m->saved && m->drop && m->fill && m->back && m->grad && m->ns &&
            m->redo && m->redo_ns && m->rest && m->needed && m->wanted && m->stage_at && m->stage &&
            m->last);
    return NULL;
}

ebb_status ebb_chain_measure(ebb_chain *chain, const uint64_t *crossing, ebb_arena *arena,
                             ebb_arena *scratch)
{
    measure m = {.c = chain, .p = chain->problem, .scratch = scratch};
    EBB_TRY(allocate(&m, arena));
    if (chain->stages == 0)
        return NULL;
    for (uint32_t s = 0; s < chain->stages; s++) {
        m.in[s] = s > 0 ? crossing[chain->cut[s]] : 0;
        for (uint32_t i = chain->cut[s]; i < chain->cut[s + 1]; i++)
            m.stage_at[i] = s;
    }
    for (uint32_t i = 0; i < chain->backward_count; i++)
        for (uint32_t k = 0; k < m.p->ops[chain->backward[i]].in_count; k++)
            m.last[m.p->ops[chain->backward[i]].in[k]] = i + 1;
    EBB_TRY(find_stages(&m));
    return weigh_stages(&m);
}

uint64_t ebb_chain_all_kept(const ebb_chain *c)
{
    uint64_t sum = 0, most = 1;
    for (uint32_t s = 0; s < c->stages; s++) {
        uint64_t fills = c->fill[s] + c->grad[s];
        uint64_t here = sum + (c->back[s] > fills ? c->back[s] : fills);
        most = here > most ? here : most;
        sum += c->saved[s];
    }
    return most;
}
