/* lower_build.c: the list, with what is not kept made again for the backward. The method is in
 * lower_set.c.
 */
#include "passes/budget/planners/lower_set/lower_set.h"

typedef struct frame {
    uint32_t op, next_input;
} frame;

struct ebb_lower_builder {
    const ebb_remat_problem *p;
    uint32_t forward;
    bool *present, *forced; /* by value; forced: it turned out that it cannot be made again */
    bool *wanted;
    uint32_t *ops;
    size_t count;
    frame *frames;
    uint32_t at;
    bool again; /* something was found to be forced: begin again */
};

ebb_status ebb_lower_builder_new(ebb_lower_builder **builder, const ebb_remat_problem *problem,
                                 uint32_t forward, ebb_arena *arena)
{
    ebb_lower_builder *b = *builder = EBB_NEW(arena, ebb_lower_builder, 1);
    EBB_GOT(b);
    size_t values = (size_t)problem->value_count + 1;
    b->p = problem;
    b->forward = forward;
    b->present = EBB_NEW(arena, bool, values);
    b->forced = EBB_NEW(arena, bool, values);
    b->wanted = EBB_NEW(arena, bool, values);
    b->ops = EBB_NEW(arena, uint32_t, (size_t)problem->op_count + forward + 1);
    b->frames = EBB_NEW(arena, frame, (size_t)forward + 1);
    EBB_GOT(b->present && b->forced && b->wanted && b->ops && b->frames);
    return NULL;
}

/* Whether u may be executed again now; if not, its outputs will have to be kept. */
static bool repeats(ebb_lower_builder *b, uint32_t u)
{
    const ebb_remat_op *op = &b->p->ops[u];
    if (!op->once && (op->before == EBB_REMAT_NONE || op->before >= b->at))
        return true;
    for (uint32_t k = 0; k < op->out_count; k++)
        b->forced[op->out[k]] = b->present[op->out[k]] = true;
    b->again = true;
    return false;
}

static void execute(ebb_lower_builder *b, uint32_t u)
{
    b->ops[b->count++] = u;
    for (uint32_t k = 0; k < b->p->ops[u].out_count; k++)
        b->present[b->p->ops[u].out[k]] = true;
}

/* v and what it is made from, as far as absent. Each operator at most once: what it makes is then
 * present to its last read. */
static void make(ebb_lower_builder *b, uint32_t v)
{
    size_t depth = 0;
    if (!repeats(b, b->p->values[v].op))
        return;
    b->frames[depth++] = (frame){b->p->values[v].op, 0};
    while (depth > 0) {
        frame *f = &b->frames[depth - 1];
        const ebb_remat_op *op = &b->p->ops[f->op];
        if (f->next_input == op->in_count) {
            execute(b, f->op);
            depth--;
            continue;
        }
        uint32_t in = op->in[f->next_input++];
        if (!b->present[in] && repeats(b, b->p->values[in].op))
            b->frames[depth++] = (frame){b->p->values[in].op, 0};
    }
}

/* All of the block that the rest of the backward wants. */
static void make_block(ebb_lower_builder *b, const uint32_t *block, uint32_t which)
{
    const ebb_remat_problem *p = b->p;
    for (uint32_t u = b->forward; u-- > 0;) {
        if (block[u] != which)
            continue;
        bool again = false;
        for (uint32_t k = 0; k < p->ops[u].out_count; k++) {
            uint32_t v = p->ops[u].out[k];
            const ebb_remat_value *value = &p->values[v];
            bool read = value->reader_count > 0 && value->readers[value->reader_count - 1] >= b->at;
            again = again || (!b->present[v] && (read || b->wanted[v]));
        }
        for (uint32_t k = 0; k < p->ops[u].in_count && again; k++)
            b->wanted[p->ops[u].in[k]] = true;
        for (uint32_t k = 0; k < p->ops[u].out_count; k++)
            b->wanted[p->ops[u].out[k]] = again;
    }
    for (uint32_t u = 0; u < b->forward; u++) {
        if (block[u] != which)
            continue;
        for (uint32_t k = 0; k < p->ops[u].out_count; k++) {
            uint32_t v = p->ops[u].out[k];
            if (b->wanted[v] && !b->present[v])
                make(b, v);
            b->wanted[v] = false;
        }
    }
}

static void build_once(ebb_lower_builder *b, const bool *kept, const uint32_t *block, bool late)
{
    const ebb_remat_problem *p = b->p;
    b->count = 0;
    b->again = false;
    for (uint32_t v = 0; v < p->value_count; v++)
        b->present[v] = kept[v] || b->forced[v] || p->values[v].op == EBB_REMAT_NONE ||
                        p->values[v].stays || p->values[v].op >= b->forward;
    for (uint32_t u = 0; u < b->forward; u++)
        b->ops[b->count++] = u;
    for (b->at = b->forward; b->at < p->op_count; b->at++) {
        const ebb_remat_op *op = &p->ops[b->at];
        for (uint32_t k = 0; k < op->in_count; k++) {
            uint32_t v = op->in[k];
            if (!b->present[v] && !late)
                make_block(b, block, block[p->values[v].op]);
            if (!b->present[v])
                make(b, v);
        }
        b->ops[b->count++] = b->at;
    }
}

void ebb_lower_build(ebb_lower_builder *b, ebb_remat_schedule *schedule, const bool *kept,
                     const uint32_t *block, bool late)
{
    memset(b->forced, 0, b->p->value_count * sizeof *b->forced);
    memset(b->wanted, 0, b->p->value_count * sizeof *b->wanted);
    do
        build_once(b, kept, block, late);
    while (b->again);
    *schedule = (ebb_remat_schedule){b->ops, b->count};
}
