/* group_chains.cu: pointwise calls that follow each other become one launch (chain.h).
 *
 *     before   k      add    x, b  -> s        three launches; s and t go to memory and back
 *              k + 1  relu   s     -> t
 *              k + 2  mul    t, y  -> z
 *     after    k      chain  x, b, y -> z      s and t are read by nobody else: never stored
 *              k + 1, k + 2  nothing
 *
 * Memory is planned as before: what is saved is bandwidth and launches. A call joins while
 *   - its output has the shape of the others, and chain.h has its operator;
 *   - what it reads comes from memory as it was before the chain, or from the chain itself: by
 *     pointer, the latest writer counts;
 *   - no stored value lies over a part of what the chain reads, unless element over element:
 *     another thread might read there after it was written.
 */
#include "kernels/cuda/fuse/chain.h"
#include "kernels/cuda/fuse/group.h"

#include <stdlib.h>

/* $EBB_CUDA_CHAINS=0 or 1 says otherwise: on the host a compiler must run for each chain. */
#if defined(__CUDACC__)
enum { BY_DEFAULT = 1 };
#else
enum { BY_DEFAULT = 0 };
#endif
enum { MOST = EBB_CHAIN_STEPS };

typedef struct member { /* of the chain being built */
    ebb_call *call;
    int value;
    bool stored;
} member;

typedef struct building {
    ebb_chain chain;
    member members[MOST];
    int count;
    const ebb_operand *inputs[EBB_CHAIN_INPUTS];
} building;

typedef struct grouped { /* what the first call keeps as its state */
    ebb_chain chain;
    ebb_chain_kernel kernel;
    const void *in[EBB_CHAIN_INPUTS];
    void *out[EBB_CHAIN_OUTPUTS];
} grouped;

/* ---- the kernels that take the calls' places ---- */

static ebb_status run_chain(const ebb_call *c)
{
    const grouped *g = (const grouped *)c->state;
    return ebb_chain_run(&g->chain, &g->kernel, ebb_cuda_queue_of(c)->stream, g->in, g->out);
}

static void release_chain(ebb_call *c)
{
    grouped *g = (grouped *)c->state;
    if (g == NULL)
        return;
    ebb_chain_close(&g->kernel);
    ebb_free(g);
    c->state = NULL;
}

static const ebb_kernel chain_kernel = {
    .name = "cuda.chain", .op = EBB_OP_UNKNOWN, .run = run_chain, .release = release_chain};
/* ---- who may join ---- */

/* The chain's value that lies where o does; -1: o is what memory held before the chain; -2: neither
 * (a part of it was written meanwhile). */
static int value_at(const building *b, const ebb_operand *o)
{
    for (int m = b->count - 1; m >= 0; m--) {
        const ebb_operand *made = &b->members[m].call->out[0];
        if (!ebb_cuda_overlap(o, made))
            continue;
        return ebb_cuda_exactly_over(o, made) && o->type.dtype == made->type.dtype
                   ? b->members[m].value
                   : -2;
    }
    return -1;
}

static bool add_input(building *b, const ebb_operand *o, int *value)
{
    for (int k = 0; k < b->chain.input_count; k++)
        if (b->inputs[k]->data == o->data && ebb_type_same_shape(&b->inputs[k]->type, &o->type) &&
            b->inputs[k]->type.dtype == o->type.dtype) {
            *value = k;
            return true;
        }
    if (ebb_chain_input(&b->chain, &o->type, value) != NULL)
        return false;
    b->inputs[*value] = o;
    return true;
}

static bool eligible(const ebb_call *c)
{
    if (!ebb_op_has(c->op, EBB_POINTWISE) || c->streamed || c->output_count != 1 ||
        c->out[0].type.dtype == EBB_NONE || c->input_count > EBB_CUDA_INPUTS || c->state != NULL)
        return false;
    for (uint32_t i = 0; i < c->input_count; i++)
        if (c->in[i].source != NULL)
            return false;
    return c->out[0].bytes > 0;
}

/* Members that someone reads after the last of them are stored. Is what they would write free of
 * what the chain reads? */
static bool stores_are_safe(building *b)
{
    uint32_t end = b->members[b->count - 1].call->position;
    int stored = 0;
    for (int m = 0; m < b->count; m++) {
        member *one = &b->members[m];
        const ebb_operand *out = &one->call->out[0];
        one->stored = out->last_read > end;
        if (!one->stored)
            continue;
        stored++;
        for (int k = 0; k < b->chain.input_count; k++)
            if (ebb_cuda_overlap(out, b->inputs[k]) && !ebb_cuda_exactly_over(out, b->inputs[k]))
                return false;
        for (int k = m + 1; k < b->count; k++) // a later value in the same place, both wanted
            if (b->members[k].call->out[0].last_read > end &&
                ebb_cuda_overlap(out, &b->members[k].call->out[0]))
                return false;
    }
    return stored > 0 && stored <= EBB_CHAIN_OUTPUTS;
}

/* b with one call more; or false, and b is as before. */
static bool join(building *b, ebb_call *c)
{
    building *saved = (building *)ebb_alloc(sizeof *saved);
    int operands[EBB_CUDA_INPUTS], value = 0;
    bool fits = saved != NULL && b->count < MOST && eligible(c);
    if (saved != NULL)
        *saved = *b;
    if (fits && b->count == 0)
        ebb_chain_begin(&b->chain, &c->out[0].type);
    fits = fits && ebb_type_same_shape(&b->chain.shape, &c->out[0].type);
    for (uint32_t i = 0; fits && i < c->input_count; i++) {
        operands[i] = -1;
        if (c->in[i].type.dtype == EBB_NONE)
            continue;
        operands[i] = value_at(b, &c->in[i]);
        if (operands[i] == -2 || (operands[i] == -1 && !add_input(b, &c->in[i], &operands[i])))
            fits = false;
    }
    fits = fits && ebb_chain_step(&b->chain, c, operands, &value) == NULL;
    if (fits) {
        b->members[b->count].call = c;
        b->members[b->count++].value = value;
    } else if (saved != NULL) {
        *b = *saved;
    }
    ebb_free(saved);
    return fits;
}

/* ---- one chain ---- */

/* The calls stay as they are where their chain cannot be compiled: they compute the same. */
static ebb_status settle(const building *b, int version, uint32_t *taken)
{
    grouped *g = (grouped *)ebb_alloc(sizeof *g);
    EBB_GOT(g);
    memset(g, 0, sizeof *g);
    g->chain = b->chain;
    for (int m = 0; m < b->count; m++)
        if (b->members[m].stored) {
            g->out[g->chain.output_count] = b->members[m].call->out[0].data;
            (void)ebb_chain_store(&g->chain, b->members[m].value);
        }
    for (int k = 0; k < g->chain.input_count; k++)
        g->in[k] = b->inputs[k]->data;
    if (ebb_chain_open(&g->chain, version, &g->kernel) != NULL) {
        ebb_free(g);
        return NULL;
    }
    for (int m = 0; m < b->count; m++)
        b->members[m].call->kernel = m == 0 ? &chain_kernel : &ebb_cuda_joined;
    b->members[0].call->state = g;
    *taken = (uint32_t)b->count;
    return NULL;
}

static bool is_wanted(void)
{
    const char *wanted = getenv("EBB_CUDA_CHAINS");
    if (wanted == NULL)
        return BY_DEFAULT != 0;
    return strcmp(wanted, "0") != 0;
}

ebb_status ebb_cuda_group_chain(ebb_call *calls, uint32_t count, int version, uint32_t *taken)
{
    *taken = 0;
    if (count < 2 || !eligible(&calls[0]) || !eligible(&calls[1]) || !is_wanted())
        return NULL;
    building *b = (building *)ebb_alloc(2 * sizeof *b), *safe = b + 1;
    EBB_GOT(b);
    memset(b, 0, 2 * sizeof *b);
    for (uint32_t next = 0; next < count && join(b, &calls[next]); next++)
        if (stores_are_safe(b))
            *safe = *b; // the longest that is
    ebb_status status = safe->count < 2 ? NULL : settle(safe, version, taken);
    ebb_free(b);
    return status;
}
