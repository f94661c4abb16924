/* onednn.c: the phases of a call, and its runs; see onednn.h. */
#include "kernels/fast/onednn/plan.h"
#include "kernels/plain/halves.h"

enum { PIECES = EBB_DNNL_PIECES };

/* ---- the phases ---- */

/* What oneDNN gets no memory for is refused by workspace(), not left to a slower kernel: a step is
 * the same whenever it is planned. */
const char *ebb_dnnl_declines(const ebb_call *call, ebb_dnnl_make make)
{
    ebb_dnnl_plans all;
    const char *why = ebb_dnnl_make_plans(&all, call, make);
    ebb_dnnl_drop_plans(&all);
    return why != ebb_dnnl_no_memory ? why : NULL;
}

ebb_status ebb_dnnl_workspace(const ebb_call *call, size_t *bytes, ebb_dnnl_make make)
{
    ebb_dnnl_plans all;
    EBB_MUST_FIT(call, ebb_dnnl_make_plans(&all, call, make));
    ebb_dnnl_drop_plans(&all);
    return ebb_dnnl_bytes_of(bytes, &all)
               ? NULL
               : ebb_call_error(call, "the scratch memory is too large to address");
}

typedef struct move { /* an operand at run time */
    ebb_dnnl_port port;
    dnnl_memory_t outer, inner; /* inner NULL: not copied */
    dnnl_primitive_t reorder;
} move;

typedef struct ready {    /* a plan at run time */
    dnnl_stream_t stream; /* its own: other programs run at the same time */
    dnnl_primitive_t primitive;
    uint32_t count;
    move move[EBB_DNNL_PORTS];
    dnnl_memory_t scratch;
    size_t scratch_offset;
    int64_t repeat, pieces;
} ready;

typedef struct runner {
    uint32_t slots;
    size_t bytes; /* of a slot */
    ready part[][EBB_DNNL_PARTS];
} runner;

static bool make_memory(dnnl_memory_t *memory, ebb_dnnl_descriptor md)
{
    return dnnl_memory_create(memory, md, ebb_dnnl_engine(), DNNL_MEMORY_NONE) == dnnl_success;
}

static const char *make_primitive(dnnl_primitive_t *primitive, const_dnnl_primitive_desc_t of)
{
    dnnl_status_t got =
        ebb_dnnl_has_room() ? dnnl_primitive_create(primitive, of) : dnnl_out_of_memory;
    return got == dnnl_success         ? NULL
           : got == dnnl_out_of_memory ? ebb_dnnl_no_memory
                                       : "oneDNN could not create the primitive";
}

static const char *make_move(move *m, const ebb_dnnl_port *port)
{
    ebb_dnnl_descriptors d;
    m->port = *port;
    ebb_dnnl_hold_all(&d, (const ebb_dnnl_layout *const[]){&port->outer, NULL, NULL, NULL});
    const bool made = d.fine && make_memory(&m->outer, d.of[0]);
    ebb_dnnl_drop_all(&d);
    if (!made)
        return ebb_dnnl_no_memory;
    if (!port->copied)
        return NULL;
    dnnl_primitive_desc_t reorder = NULL;
    EBB_ASK(ebb_dnnl_reorder_of(&reorder, port));
    const char *why = make_memory(&m->inner, port->inner) ? make_primitive(&m->reorder, reorder)
                                                          : ebb_dnnl_no_memory;
    dnnl_primitive_desc_destroy(reorder);
    return why;
}

static const char *make_ready(ready *r, const ebb_dnnl_plan *plan)
{
    const dnnl_dims_t scratch = {(dnnl_dim_t)plan->scratch_bytes};
    r->scratch_offset = plan->scratch_offset;
    r->repeat = plan->repeat > 0 ? plan->repeat : 1;
    r->pieces = plan->pieces;
    if (dnnl_stream_create(&r->stream, ebb_dnnl_engine(), dnnl_stream_default_flags) !=
        dnnl_success)
        return ebb_dnnl_no_memory;
    const char *why = make_primitive(&r->primitive, plan->descriptor);
    while (why == NULL && r->count < plan->count) {
        why = make_move(&r->move[r->count], &plan->port[r->count]);
        r->count++;
    }
    if (why != NULL || plan->scratch_bytes == 0)
        return why;
    ebb_dnnl_held h = {0};
    bool made = ebb_dnnl_hold(&h, 1, scratch, scratch, dnnl_u8, dnnl_a) &&
                make_memory(&r->scratch, ebb_dnnl_look(&h));
    ebb_dnnl_drop(&h);
    return made ? NULL : ebb_dnnl_no_memory;
}

static const char *make_runner(runner *all, const ebb_dnnl_plans *from)
{
    all->slots = from->slots;
    all->bytes = from->bytes;
    for (uint32_t slot = 0; slot < all->slots; slot++)
        for (uint32_t i = 0; i < from->count; i++)
            EBB_ASK(make_ready(&all->part[slot][i], &from->part[i]));
    return NULL;
}

static ebb_status prepare(ebb_call *call, const ebb_dnnl_plans *from)
{
    size_t need, size;
    runner *all = NULL;
    if (!ebb_dnnl_bytes_of(&need, from) || need > call->workspace_bytes)
        return ebb_call_error(call,
                              "needs %zu bytes of workspace and has %zu; was the number of "
                              "threads changed after planning?",
                              need, call->workspace_bytes);
    if (ebb_size_mul(&size, from->slots, sizeof all->part[0]) &&
        ebb_size_add(&size, size, sizeof *all))
        all = ebb_alloc(size);
    EBB_GOT(all);
    memset(all, 0, size);
    call->state = all;
    const ebb_threads_before before = ebb_dnnl_enter(call);
    const char *why = make_runner(all, from);
    ebb_threads_leave(before);
    if (why == NULL)
        return NULL;
    ebb_dnnl_release(call);
    return ebb_call_error(call, "%s", why);
}

ebb_status ebb_dnnl_prepare(ebb_call *call, ebb_dnnl_make make)
{
    ebb_dnnl_plans all;
    EBB_MUST_FIT(call, ebb_dnnl_make_plans(&all, call, make));
    ebb_status status = prepare(call, &all);
    ebb_dnnl_drop_plans(&all);
    return status;
}

static void release(ready *r)
{
    for (uint32_t p = 0; p < r->count; p++) {
        if (r->move[p].outer != NULL)
            dnnl_memory_destroy(r->move[p].outer);
        if (r->move[p].inner != NULL)
            dnnl_memory_destroy(r->move[p].inner);
        if (r->move[p].reorder != NULL)
            dnnl_primitive_destroy(r->move[p].reorder);
    }
    if (r->scratch != NULL)
        dnnl_memory_destroy(r->scratch);
    if (r->primitive != NULL)
        dnnl_primitive_destroy(r->primitive);
    if (r->stream != NULL)
        dnnl_stream_destroy(r->stream);
}

void ebb_dnnl_release(ebb_call *call)
{
    runner *all = call->state;
    for (uint32_t slot = 0; all != NULL && slot < all->slots; slot++)
        for (uint32_t i = 0; i < EBB_DNNL_PARTS; i++)
            release(&all->part[slot][i]);
    ebb_free(all);
    call->state = NULL;
}

static dnnl_status_t reorder(const ready *r, const move *m)
{
    bool back = m->port.output;
    dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, back ? m->inner : m->outer},
                              {DNNL_ARG_TO, back ? m->outer : m->inner},
                              {DNNL_ARG_SCRATCHPAD, r->scratch}};
    return dnnl_primitive_execute(m->reorder, r->stream, r->scratch == NULL ? 2 : 3, args);
}

static const ebb_operand *operand_of(const ebb_call *call, const ebb_dnnl_port *port)
{
    return &(port->output ? call->out : call->in)[port->index];
}

/* Points the handles at memory, once; what moves from run to run is set again by run_once(). */
static dnnl_status_t bind(const ready *r, char *workspace)
{
    dnnl_status_t got = dnnl_success;
    if (r->scratch != NULL)
        got = dnnl_memory_set_data_handle(r->scratch, workspace + r->scratch_offset);
    for (uint32_t p = 0; got == dnnl_success && p < r->count; p++)
        if (r->move[p].inner != NULL)
            got = dnnl_memory_set_data_handle(r->move[p].inner, workspace + r->move[p].port.offset);
    return got;
}

/* Run i of a piece; first: of this slot. */
static dnnl_status_t run_once(const ready *r, const ebb_call *call, char *sum, int64_t piece,
                              int64_t i, bool first)
{
    dnnl_exec_arg_t args[EBB_DNNL_PORTS + 1];
    dnnl_status_t got = dnnl_success;
    int count = 0;
    if (r->scratch != NULL)
        args[count++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, r->scratch};
    for (uint32_t p = 0; got == dnnl_success && p < r->count; p++) {
        const move *m = &r->move[p];
        const ebb_dnnl_port *port = &m->port;
        char *data = port->rounded ? sum : operand_of(call, port)->data;
        args[count++] = (dnnl_exec_arg_t){port->arg, m->inner != NULL ? m->inner : m->outer};
        const bool stays = port->step == 0 && (port->piece == 0 || i > 0);
        if (!first && stays)
            continue;
        data += port->start + (size_t)i * port->step + (size_t)piece * port->piece;
        got = dnnl_memory_set_data_handle(m->outer, data);
        if (got == dnnl_success && m->inner != NULL && !port->output)
            got = reorder(r, m);
    }
    if (got == dnnl_success)
        got = dnnl_primitive_execute(r->primitive, r->stream, count, args);
    for (uint32_t p = 0; got == dnnl_success && p < r->count; p++)
        if (r->move[p].port.output && r->move[p].inner != NULL)
            got = reorder(r, &r->move[p]);
    return got;
}

static char *sum_of(const runner *all, const ebb_call *call)
{
    return (char *)call->workspace + all->slots * all->bytes;
}

/* What falls to a slot of part k: every slots-th piece, with all its runs, or every slots-th run. */
static dnnl_status_t run_slot(const runner *all, const ebb_call *call, uint32_t k, uint32_t slot)
{
    const ready *r = &all->part[slot][k];
    const bool by_piece = r->pieces > 1;
    const int64_t jobs = by_piece ? r->pieces : r->repeat, runs = by_piece ? r->repeat : 1;
    dnnl_status_t got = bind(r, (char *)call->workspace + slot * all->bytes);
    for (int64_t job = slot; got == dnnl_success && job < jobs; job += all->slots)
        for (int64_t i = 0; got == dnnl_success && i < runs; i++)
            got = run_once(r, call, sum_of(all, call), by_piece ? job : 0, by_piece ? i : job,
                           job == slot && i == 0);
    return got == dnnl_success ? dnnl_stream_wait(r->stream) : got;
}

static dnnl_status_t run_part(const runner *all, const ebb_call *call, uint32_t k)
{
    dnnl_status_t got[PIECES] = {dnnl_success};
    if (all->slots == 1) { // oneDNN's own threads, unless it may have one only
        const ebb_threads_before before = ebb_dnnl_enter(call);
        got[0] = run_slot(all, call, k, 0);
        ebb_threads_leave(before);
        return got[0];
    }
    EBB_PARALLEL_FOR(EBB_PARALLEL_WORTH + 1)
    for (uint32_t slot = 0; slot < all->slots; slot++) {
        const ebb_threads_before before = ebb_threads_enter(1);
        got[slot] = run_slot(all, call, k, slot);
        ebb_threads_leave(before);
    }
    for (uint32_t slot = 1; got[0] == dnnl_success && slot < all->slots; slot++)
        got[0] = got[slot];
    return got[0];
}

static void begin_sum(const runner *all, const ebb_call *call, const ebb_dnnl_port *port)
{
    const ebb_operand *sum = operand_of(call, port);
    if (port->rounded)
        memset(sum_of(all, call), 0, (size_t)ebb_elements(&sum->type) * sizeof(float));
    else
        memset(sum->data, 0, sum->bytes);
}

ebb_status ebb_dnnl_run(const ebb_call *call)
{
    const runner *all = call->state;
    const ready *first = &all->part[0][0];
    dnnl_status_t got = ebb_dnnl_has_crumbs() ? dnnl_success : dnnl_out_of_memory;
    for (uint32_t p = 0; p < first->count; p++)
        if (first->move[p].port.adds)
            begin_sum(all, call, &first->move[p].port);
    for (uint32_t k = 0; k < EBB_DNNL_PARTS && all->part[0][k].primitive != NULL; k++)
        if (got == dnnl_success)
            got = run_part(all, call, k);
    for (uint32_t p = 0; got == dnnl_success && p < first->count; p++)
        if (first->move[p].port.rounded) {
            const ebb_operand *to = operand_of(call, &first->move[p].port);
            ebb_narrow(to->data, (const float *)sum_of(all, call), (ebb_dtype)to->type.dtype,
                       ebb_elements(&to->type));
        }
    if (got == dnnl_success)
        return NULL;
    return got == dnnl_out_of_memory
               ? ebb_call_error(call, "%s", ebb_dnnl_no_memory)
               : ebb_call_error(call, "oneDNN failed with status %d", (int)got);
}

/* ---- products in the midst of other loops ---- */

static dnnl_status_t multiply(const ebb_dnnl_matrix *a, const ebb_dnnl_matrix *b, int64_t first,
                              int64_t m, int64_t n, int64_t k, float alpha, float beta, float *c,
                              int64_t row)
{
    return dnnl_sgemm(a->turned ? 'T' : 'N', b->turned ? 'T' : 'N', m, n, k, alpha,
                      a->data + first * (a->turned ? 1 : a->row), a->row, b->data, b->row, beta,
                      c + first * row, row);
}

/* In pieces of some rows, each of which one thread computes. */
static dnnl_status_t multiply_in_pieces(const ebb_dnnl_matrix *a, const ebb_dnnl_matrix *b,
                                        int64_t m, int64_t n, int64_t k, float alpha, float beta,
                                        float *c, int64_t row)
{
    const int64_t rows = (m + PIECES - 1) / PIECES;
    dnnl_status_t got[PIECES] = {dnnl_success};
    EBB_PARALLEL_FOR(m * n)
    for (int64_t first = 0; first < m; first += rows) {
        const ebb_threads_before before = ebb_threads_enter(1);
        got[first / rows] =
            multiply(a, b, first, m - first < rows ? m - first : rows, n, k, alpha, beta, c, row);
        ebb_threads_leave(before);
    }
    for (int i = 1; got[0] == dnnl_success && i < PIECES; i++)
        got[0] = got[i];
    return got[0];
}

/* Its code is made when the first product asks for it. */
ebb_status ebb_dnnl_product(const ebb_call *call, const ebb_dnnl_matrix *a,
                            const ebb_dnnl_matrix *b, int64_t m, int64_t n, int64_t k, float alpha,
                            float beta, float *c, int64_t row)
{
    dnnl_status_t got = !ebb_dnnl_has_room() ? dnnl_out_of_memory
                        : call->deterministic
                            ? multiply_in_pieces(a, b, m, n, k, alpha, beta, c, row)
                            : multiply(a, b, 0, m, n, k, alpha, beta, c, row);
    if (got == dnnl_success)
        return NULL;
    if (got == dnnl_out_of_memory)
        return ebb_call_error(call, "%s", ebb_dnnl_no_memory);
    return ebb_call_error(call, "oneDNN did not multiply [%lld, %lld] by [%lld, %lld]",
                          (long long)m, (long long)k, (long long)k, (long long)n);
}
