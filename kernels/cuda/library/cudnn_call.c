/* cudnn_call.c: the phases of a call by cuDNN, and where its tensors lie. */
#include "kernels/cuda/library/cudnn_call.h"

#include "onnx/words/arena.h"

enum { ALIGN = 256 };

/* ---- for readers ---- */

static void add(ebb_work_part *part, ebb_cudnn_role role, ebb_work_place place, uint32_t index)
{
    part->roles[part->count] = role;
    part->place[part->count] = place;
    part->index[part->count++] = index;
}

uint32_t ebb_work_scratch(ebb_work *work, size_t bytes)
{
    work->bytes[work->scratches] = bytes;
    return (uint32_t)work->scratches++;
}

void ebb_work_own(ebb_work_part *part, ebb_cudnn_role role, uint32_t scratch)
{
    add(part, role, EBB_WORK_OWN, scratch);
}

void ebb_work_in(ebb_work_part *part, ebb_cudnn_role role, uint32_t input)
{
    add(part, role, EBB_WORK_IN, input);
}

void ebb_work_out(ebb_work *work, ebb_work_part *part, ebb_cudnn_role role, const ebb_call *call,
                  uint32_t output, size_t bytes)
{
    const bool wanted = ebb_call_wants(call, output);
    if (wanted && call->out[output].over == 0) {
        add(part, role, EBB_WORK_OUT, output);
        return;
    }
    ebb_work_own(part, role, ebb_work_scratch(work, bytes));
    if (!wanted)
        return;
    work->copy_from[work->copies] = (uint32_t)work->scratches - 1;
    work->copy_to[work->copies++] = output;
}

void ebb_work_mask(ebb_cudnn_attention_sizes *s, const ebb_cuda_masking *mask, bool is_masked,
                   bool causal)
{
    s->causal = is_masked ? mask->causal : causal;
    s->bias = is_masked;
    s->bias_dtype = mask->wide ? EBB_F32 : s->dtype;
    s->bias_batch = mask->bias_dims[0];
    s->bias_heads = mask->bias_dims[1];
    s->bias_rows = mask->bias_dims[2];
}

const char *ebb_work_float32(const ebb_operand *o)
{
    return o->type.dtype == EBB_F32 ? NULL
                                    : "cuDNN takes statistics and parameters in float32 only";
}

bool ebb_work_rows_aligned(const ebb_operand *o)
{
    const int64_t n = o->type.dims[0];
    const int64_t bytes = ebb_elements(&o->type) * (int64_t)ebb_element_bytes(&o->type);
    return n <= 1 || bytes / n % 16 == 0;
}

/* ---- plans ---- */

static const ebb_cudnn_plan *plan_of(const char **why, const ebb_work *work, int part)
{
    return ebb_cuda_cudnn_plan(why, &work->part[part].ask);
}

/* What is read with the fewest slices that have plans. */
static const char *read_planned(ebb_work *work, const ebb_call *c, ebb_work_reader read)
{
    for (int64_t slices = 1;; slices *= 2) {
        memset(work, 0, sizeof *work);
        work->slices = slices;
        const char *why = read(work, c);
        const bool can_cut = work->batch >= 2 * slices && work->batch % (2 * slices) == 0;
        if (why != NULL)
            return why;
        if (can_cut && work->crowded)
            continue;
        for (int i = 0; why == NULL && i < work->parts; i++)
            (void)plan_of(&why, work, i);
        if (why == NULL || !can_cut)
            return why;
    }
}

const char *ebb_work_declines(const ebb_call *c, ebb_work_reader read)
{
    ebb_work work;
    return read_planned(&work, c, read);
}

/* Where each scratch begins, and the library's own behind them. */
static bool lay_out(const ebb_work *work, size_t at[EBB_WORK_SCRATCH + 1])
{
    size_t end = 0;
    for (int i = 0; i < work->scratches; i++)
        if (!ebb_size_room(&at[i], &end, work->bytes[i], ALIGN))
            return false;
    at[EBB_WORK_SCRATCH] = end;
    return true;
}

ebb_status ebb_work_workspace(const ebb_call *c, size_t *bytes, ebb_work_reader read)
{
    ebb_work work;
    size_t at[EBB_WORK_SCRATCH + 1] = {0}, most = 0;
    const char *why = read_planned(&work, c, read);
    for (int i = 0; why == NULL && i < work.parts; i++) {
        const ebb_cudnn_plan *plan = plan_of(&why, &work, i);
        const size_t own = plan != NULL ? (size_t)ebb_cudnn_plan_choice(plan)->workspace_bytes : 0;
        most = own > most ? own : most;
    }
    if (why != NULL)
        return ebb_call_error(c, "%s", why);
    if (!lay_out(&work, at) || !ebb_size_add(bytes, at[EBB_WORK_SCRATCH], most))
        return ebb_call_error(c, "the scratch memory is too large to address");
    return NULL;
}

/* ---- a prepared call ---- */

typedef struct prepared {
    ebb_work work;
    const ebb_cudnn_plan *plan[EBB_WORK_PLANS];
    size_t at[EBB_WORK_SCRATCH + 1];
    bool described; /* the device is: nothing can run */
} prepared;

/* The queue's handle, made when its first call is prepared, before anything is recorded. */
static ebb_status handle_of(ebb_cuda_queue *q)
{
    if (q->cudnn != NULL)
        return NULL;
    q->free_cudnn = ebb_cudnn_handle_free;
    return ebb_cudnn_handle_new(&q->cudnn, q->stream);
}

static void *pointer(const prepared *p, const ebb_call *c, const ebb_work_part *part, int i)
{
    const uint32_t k = part->index[i];
    switch (part->place[i]) {
    case EBB_WORK_IN:
        return c->in[k].data;
    case EBB_WORK_OUT:
        return c->out[k].data;
    default:
        return (char *)c->workspace + p->at[k];
    }
}

static ebb_status run_plan(const prepared *p, const ebb_call *c, int k, int64_t slice)
{
    const ebb_cudnn_plan *plan = p->plan[k];
    const ebb_work_part *part = &p->work.part[k];
    ebb_cuda_queue *q = ebb_cuda_queue_of(c);
    void *pointers[EBB_WORK_TENSORS];
    for (int i = 0; i < part->count; i++) {
        pointers[i] = (char *)pointer(p, c, part, i) + (size_t)slice * part->step[i];
        if ((uintptr_t)pointers[i] % 16 != 0)
            return ebb_call_error(c, "operand %d does not begin at a multiple of 16 bytes", i);
    }
    EBB_TRY(handle_of(q));
    const bool wants = ebb_cudnn_plan_choice(plan)->workspace_bytes > 0;
    return ebb_cudnn_plan_run(plan, q->cudnn, part->count, part->roles, pointers,
                              wants ? (char *)c->workspace + p->at[EBB_WORK_SCRATCH] : NULL);
}

/* ---- the phases ---- */

ebb_status ebb_work_prepare(ebb_call *c, ebb_work_reader read)
{
    size_t bytes = 0;
    const char *why = NULL;
    EBB_TRY(ebb_work_workspace(c, &bytes, read));
    if (bytes > c->workspace_bytes)
        return ebb_call_error(c, "it was planned for another device than the one that is here");
    prepared *p = ebb_alloc(sizeof *p);
    EBB_GOT(p);
    memset(p, 0, sizeof *p);
    c->state = p;
    (void)read_planned(&p->work, c, read);
    (void)lay_out(&p->work, p->at);
    p->described = ebb_cuda_cudnn_described();
    for (int i = 0; i < p->work.parts; i++) {
        p->plan[i] = plan_of(&why, &p->work, i);
        if (p->plan[i] == NULL)
            return ebb_call_error(c, "%s", why);
    }
    return NULL;
}

void *ebb_work_scratch_at(const ebb_call *c, uint32_t i)
{
    return (char *)c->workspace + ((const prepared *)c->state)->at[i];
}

ebb_status ebb_work_run(const ebb_call *c)
{
    const prepared *p = c->state;
    for (int i = 0; i < p->work.parts; i++) {
        if (p->described || !ebb_cudnn_plan_choice(p->plan[i])->runs)
            return ebb_call_error(c, "it was planned for a described device, which cannot run it");
        for (int64_t slice = 0; slice < p->work.slices; slice++) {
            if (p->work.before != NULL && (i == 0 || p->work.slices > 1))
                EBB_TRY(p->work.before(c, p->work.slices, slice));
            EBB_TRY(run_plan(p, c, i, slice));
        }
    }
    for (int i = 0; i < p->work.copies; i++) {
        const ebb_operand *to = &c->out[p->work.copy_to[i]];
        EBB_TRY(ebb_gpu_copy(ebb_cuda_queue_of(c)->stream, to->data,
                             ebb_work_scratch_at(c, p->work.copy_from[i]), to->bytes,
                             EBB_ON_DEVICE));
    }
    return NULL;
}
