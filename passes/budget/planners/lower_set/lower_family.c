/* lower_family.c: which lower sets there are to choose from, what steps between them cost, and the
 * schedule that comes of what is kept. The method is in lower_set.c.
 */
#include "passes/budget/planners/lower_set/lower_set.h"

enum {
    MOST_SETS = 256,                 // of the family, the empty and the whole one included
    FEWEST_SETS = 64,                // ... however long the list
    MOST_VISITS = 150 * 1000 * 1000, // of operators, to weigh the steps between sets
    MOST_CLOSURES = 2048             // operators whose ancestors are looked at
};

typedef struct family {
    ebb_lower_sets *s;
    const ebb_remat_problem *p;
    uint32_t n; /* operators of the forward */
    uint64_t *members;
    ebb_lower_step *steps;
    double *backward_live,
        *gradients; /* by forward operator: the most of backward_live at a reader */
    uint32_t *mark, stamp, *queue;
    ebb_arena *arena;
} family;

typedef struct candidate {
    double crossing, inside; /* bytes: read by operators outside; that the backward reads */
    uint32_t op, size;       /* prefix: size = op + 1 */
    bool prefix;
} candidate;

static bool backward_reads(const family *f, uint32_t v)
{
    const ebb_remat_value *value = &f->p->values[v];
    return value->stays ||
           (value->reader_count > 0 && value->readers[value->reader_count - 1] >= f->n);
}

static bool has(const uint64_t *set, uint32_t i)
{
    return (set[i / 64] >> (i % 64) & 1) != 0;
}

/* ---- what is alive in the backward whatever is kept ---- */

static ebb_status weigh_backward(family *f)
{
    const ebb_remat_problem *p = f->p;
    double *change = EBB_NEW(f->arena, double, (size_t)p->op_count + 1);
    f->backward_live = EBB_NEW(f->arena, double, (size_t)p->op_count + 1);
    f->gradients = EBB_NEW(f->arena, double, (size_t)f->n + 1);
    EBB_GOT(change && f->backward_live && f->gradients);
    double live = (double)p->base_bytes;
    for (uint32_t v = 0; v < p->value_count; v++) {
        const ebb_remat_value *value = &p->values[v];
        bool given = value->op == EBB_REMAT_NONE;
        if (!given && value->op < f->n)
            continue;
        uint32_t first = given ? 0 : value->op, last = first;
        if (value->reader_count > 0)
            last = value->readers[value->reader_count - 1];
        change[first] += (double)value->bytes;
        if (!value->stays)
            change[last + 1] -= (double)value->bytes;
    }
    for (uint32_t t = 0; t < p->op_count; t++) {
        live += change[t];
        f->backward_live[t] = live + (double)p->ops[t].workspace;
    }
    for (uint32_t u = 0; u < f->n; u++) {
        for (uint32_t k = 0; k < p->ops[u].out_count; k++) {
            const ebb_remat_value *value = &p->values[p->ops[u].out[k]];
            for (uint32_t r = value->reader_count; r-- > 0 && value->readers[r] >= f->n;)
                if (f->backward_live[value->readers[r]] > f->gradients[u])
                    f->gradients[u] = f->backward_live[value->readers[r]];
        }
    }
    return NULL;
}

/* ---- candidates ---- */

/* The ancestors of u, itself included, are marked with the new stamp. */
static candidate closure_of(family *f, uint32_t u)
{
    const ebb_remat_problem *p = f->p;
    candidate c = {.op = u};
    uint32_t head = 0, tail = 0;
    f->stamp++;
    f->mark[u] = f->stamp;
    f->queue[tail++] = u;
    while (head < tail) {
        const ebb_remat_op *op = &p->ops[f->queue[head++]];
        for (uint32_t k = 0; k < op->in_count; k++) {
            uint32_t from = p->values[op->in[k]].op;
            if (from == EBB_REMAT_NONE || f->mark[from] == f->stamp)
                continue;
            f->mark[from] = f->stamp;
            f->queue[tail++] = from;
        }
    }
    c.size = tail;
    return c;
}

/* Bytes inside and crossing of the marked set. */
static void weigh_marked(const family *f, candidate *c)
{
    const ebb_remat_problem *p = f->p;
    for (uint32_t i = 0; i < c->size; i++) {
        const ebb_remat_op *op = &p->ops[f->queue[i]];
        for (uint32_t k = 0; k < op->out_count; k++) {
            const ebb_remat_value *value = &p->values[op->out[k]];
            c->inside += backward_reads(f, op->out[k]) ? (double)value->bytes : 0;
            bool crosses = false;
            for (uint32_t r = 0; r < value->reader_count && !crosses; r++)
                crosses = value->readers[r] < f->n && f->mark[value->readers[r]] != f->stamp;
            c->crossing += crosses ? (double)value->bytes : 0;
        }
    }
}

static ebb_status list_prefixes(const family *f, candidate *list)
{
    const ebb_remat_problem *p = f->p;
    double *change = EBB_NEW(f->arena, double, (size_t)f->n + 2);
    EBB_GOT(change);
    double inside = 0, crossing = 0;
    for (uint32_t u = 0; u < f->n; u++) {
        for (uint32_t k = 0; k < p->ops[u].out_count; k++) {
            const ebb_remat_value *value = &p->values[p->ops[u].out[k]];
            inside += backward_reads(f, p->ops[u].out[k]) ? (double)value->bytes : 0;
            uint32_t last = u;
            for (uint32_t r = 0; r < value->reader_count && value->readers[r] < f->n; r++)
                last = value->readers[r];
            if (last == u)
                continue;
            change[u] += (double)value->bytes; // crosses prefixes that end in [u, last)
            change[last] -= (double)value->bytes;
        }
        crossing += change[u];
        list[u] = (candidate){
            .prefix = true, .op = u, .size = u + 1, .inside = inside, .crossing = crossing};
    }
    return NULL;
}

/* Spread over the bytes inside, and in each stretch the least crossing. */
static uint32_t choose(candidate *to, const candidate *from, uint32_t count, uint32_t most)
{
    double all = 0;
    for (uint32_t i = 0; i < count; i++)
        all = from[i].inside > all ? from[i].inside : all;
    for (uint32_t i = 0; i < most; i++)
        to[i] = (candidate){.size = 0};
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = count <= most ? i
                      : all > 0     ? (uint32_t)(from[i].inside / all * (most - 1))
                                    : i % most;
        if (to[at].size == 0 || from[i].crossing < to[at].crossing)
            to[at] = from[i];
    }
    uint32_t left = 0;
    for (uint32_t i = 0; i < most; i++)
        if (to[i].size > 0)
            to[left++] = to[i];
    return left;
}

static void put_members(family *f, uint64_t *set, const candidate *c)
{
    if (c->prefix) {
        for (uint32_t i = 0; i < c->size; i++)
            set[i / 64] |= UINT64_C(1) << (i % 64);
        return;
    }
    candidate again = closure_of(f, c->op);
    for (uint32_t i = 0; i < again.size; i++)
        set[f->queue[i] / 64] |= UINT64_C(1) << (f->queue[i] % 64);
}

static ebb_status choose_sets(family *f)
{
    uint32_t stride = f->n / MOST_CLOSURES + 1, closures = 0, most = MOST_SETS;
    while (most > FEWEST_SETS && (uint64_t)most * most / 6 * f->n > MOST_VISITS)
        most -= 2;
    uint32_t half = (most - 2) / 2;
    candidate *prefixes = EBB_NEW(f->arena, candidate, (size_t)f->n + 1);
    candidate *others = EBB_NEW(f->arena, candidate, (size_t)f->n / stride + 2);
    candidate chosen[MOST_SETS];
    EBB_GOT(prefixes && others);
    EBB_TRY(list_prefixes(f, prefixes));
    for (uint32_t u = 0; u < f->n; u += stride) {
        others[closures] = closure_of(f, u);
        weigh_marked(f, &others[closures++]);
    }
    uint32_t count = choose(chosen, prefixes, f->n - 1, half);
    count += choose(chosen + count, others, closures, half);
    for (uint32_t i = 1; i < count; i++) { // by size
        candidate c = chosen[i];
        uint32_t at = i;
        for (; at > 0 && chosen[at - 1].size > c.size; at--)
            chosen[at] = chosen[at - 1];
        chosen[at] = c;
    }
    size_t words = f->s->words;
    f->members = EBB_NEW(f->arena, uint64_t, (count + 2) * words);
    EBB_GOT(f->members);
    uint32_t sets = 1; // the empty one
    for (uint32_t i = 0; i < count; i++) {
        uint64_t *set = f->members + sets * words;
        if (chosen[i].size == f->n)
            break;
        put_members(f, set, &chosen[i]);
        bool known = false;
        for (uint32_t j = sets; j-- > 1 && !known;)
            known = memcmp(set, f->members + j * words, words * sizeof *set) == 0;
        if (known)
            memset(set, 0, words * sizeof *set);
        else
            sets++;
    }
    put_members(f, f->members + sets * words, &(candidate){.prefix = true, .size = f->n});
    f->s->count = sets + 1;
    f->s->members = f->members;
    return NULL;
}

/* ---- steps ---- */

static bool crosses(const ebb_lower_sets *s, const uint64_t *set, uint32_t v)
{
    const ebb_remat_value *value = &s->problem->values[v];
    for (uint32_t r = 0; r < value->reader_count && value->readers[r] < s->forward; r++)
        if (!has(set, value->readers[r]))
            return true;
    return false;
}

static ebb_lower_step step_between(family *f, const uint64_t *from, const uint64_t *to,
                                   const bool *crossing, bool last)
{
    const ebb_remat_problem *p = f->p;
    ebb_lower_step step = {.legal = true};
    double held = 0, again = 0, most = 0;
    double highest = 0; // relative to held, over the block's backward
    for (size_t w = 0; w < f->s->words && step.legal; w++)
        step.legal = (from[w] & ~to[w]) == 0;
    if (!step.legal)
        return step;
    f->stamp++;
    for (size_t w = f->s->words; w-- > 0;) {
        for (uint64_t bits = to[w] & ~from[w]; bits != 0;) {
            uint32_t bit = 63;
            while ((bits >> bit & 1) == 0)
                bit--;
            bits &= ~(UINT64_C(1) << bit);
            uint32_t u = (uint32_t)(w * 64) + bit;
            const ebb_remat_op *op = &p->ops[u];
            bool repeats = false;
            most = f->gradients[u] > most ? f->gradients[u] : most;
            // The backward comes by here when what was made after u is gone.
            highest = f->gradients[u] - held > highest ? f->gradients[u] - held : highest;
            for (uint32_t k = 0; k < op->out_count; k++) {
                uint32_t v = op->out[k];
                double bytes = (double)p->values[v].bytes;
                bool read = backward_reads(f, v), wanted = f->mark[v] == f->stamp;
                held += read ? bytes : 0;
                again += read && !crossing[v] ? bytes : 0;
                if (crossing[v] || (op->once && (read || wanted)))
                    step.kept += bytes;
                else
                    repeats = repeats || read || wanted;
            }
            if (!repeats || last)
                continue;
            step.cost += op->cost_ns;
            for (uint32_t k = 0; k < op->in_count; k++)
                f->mark[op->in[k]] = f->stamp;
        }
    }
    step.peak[EBB_LOWER_LOW] = held + highest;
    step.peak[EBB_LOWER_HIGH] = step.kept + again + most;
    return step;
}

static ebb_status weigh_steps(family *f)
{
    ebb_lower_sets *s = f->s;
    bool *crossing = EBB_NEW(f->arena, bool, (size_t)f->p->value_count + 1);
    f->steps = EBB_NEW(f->arena, ebb_lower_step, (size_t)s->count * (s->count - 1) / 2 + 1);
    EBB_GOT(crossing && f->steps);
    for (uint32_t to = 1; to < s->count; to++) {
        const uint64_t *set = f->members + to * s->words;
        for (uint32_t v = 0; v < f->p->value_count; v++)
            crossing[v] = f->p->values[v].op < f->n && crosses(s, set, v);
        for (uint32_t from = 0; from < to; from++)
            f->steps[(size_t)to * (to - 1) / 2 + from] =
                step_between(f, f->members + from * s->words, set, crossing, to == s->count - 1);
    }
    s->steps = f->steps;
    s->work = (uint64_t)s->count * s->count / 6 * f->n / 100;
    s->least = (double)f->p->base_bytes;
    s->most = f->steps[(size_t)(s->count - 1) * (s->count - 2) / 2].peak[EBB_LOWER_HIGH];
    return NULL;
}

/* The forward ends where the backward begins; where nothing is marked, at the peak. */
static ebb_status find_forward(family *f)
{
    const ebb_remat_problem *p = f->p;
    while (f->n < p->op_count && !p->ops[f->n].backward)
        f->n++;
    if (f->n < p->op_count)
        return NULL;
    ebb_remat_schedule all;
    ebb_remat_weight weight;
    EBB_TRY(ebb_remat_keep_all(&all, p, f->arena));
    EBB_TRY(ebb_remat_weigh(&weight, NULL, p, &all, f->arena));
    f->n = (uint32_t)weight.peak_at;
    return NULL;
}

ebb_status ebb_lower_sets_make(ebb_lower_sets **sets, const ebb_remat_problem *problem,
                               ebb_arena *arena)
{
    family f = {.p = problem, .arena = arena};
    f.s = *sets = EBB_NEW(arena, ebb_lower_sets, 1);
    EBB_GOT(f.s);
    EBB_TRY(find_forward(&f));
    *f.s = (ebb_lower_sets){.problem = problem, .forward = f.n, .words = ((size_t)f.n + 63) / 64};
    if (f.n == 0)
        return NULL;
    size_t most =
        problem->value_count > problem->op_count ? problem->value_count : problem->op_count;
    f.mark = EBB_NEW(arena, uint32_t, most + 1);
    f.queue = EBB_NEW(arena, uint32_t, most + 1);
    EBB_GOT(f.mark && f.queue);
    EBB_TRY(weigh_backward(&f));
    EBB_TRY(choose_sets(&f));
    memset(f.mark, 0, most * sizeof *f.mark); // stamps of operators, now of values
    f.stamp = 0;
    return weigh_steps(&f);
}

/* ---- what a block keeps ---- */

void ebb_lower_mark_block(const ebb_lower_sets *s, uint32_t from, uint32_t to, bool *kept,
                          uint32_t *block)
{
    const ebb_remat_problem *p = s->problem;
    const uint64_t *inner = s->members + from * s->words, *outer = s->members + to * s->words;
    for (uint32_t u = 0; u < s->forward; u++) {
        if (has(inner, u) || !has(outer, u))
            continue;
        block[u] = to;
        for (uint32_t k = 0; k < p->ops[u].out_count; k++)
            kept[p->ops[u].out[k]] |= to == s->count - 1 || crosses(s, outer, p->ops[u].out[k]);
    }
}
