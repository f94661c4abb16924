/* beside.cu: what goes beside the step: exchanges of processes (together.cu) on one stream, copies to the host's
 * memory and back (kernels/away/beside.c) on one each. A mark says where each began and is over; a Wait puts
 * the step behind it.
 */
#include "kernels/cuda/cuda.h"

#include "kernels/cuda/library/nccl.h"
#include "onnx/words/arena.h"

/* ---- what was started ---- */

ebb_status ebb_cuda_find_started(ebb_cuda_queue *q, const void *memory, ebb_cuda_started **found)
{
    ebb_cuda_started *s = q->started;
    while (s != NULL && s->memory != memory)
        s = s->next;
    *found = s;
    if (s != NULL || memory != NULL)
        return NULL;
    s = (ebb_cuda_started *)ebb_alloc(sizeof *s);
    EBB_GOT(s);
    memset(s, 0, sizeof *s);
    s->next = q->started;
    *found = q->started = s;
    return NULL;
}

static ebb_status wait_for(const ebb_call *c)
{
    ebb_cuda_queue *q = ebb_cuda_queue_of(c);
    ebb_cuda_started *s;
    const ebb_operand *m = &c->in[c->in[0].spot != 0]; // of a Store: what it reads
    EBB_TRY(ebb_cuda_find_started(q, m->data, &s));
    if (s != NULL) {
        s->memory = NULL;
        EBB_TRY(ebb_gpu_follow(q->stream, s->mark));
    }
    return c->out[0].spot != 0 || c->out[0].data == c->in[0].data
               ? NULL
               : ebb_gpu_copy(q->stream, c->out[0].data, c->in[0].data, c->in[0].bytes,
                              EBB_ON_DEVICE);
}

/* ---- the two ways ---- */

ebb_status ebb_cuda_depart(void *opened, bool to_host, const void *memory)
{
    ebb_cuda_queue *q = (ebb_cuda_queue *)opened;
    void **way = &q->ways[to_host];
    if (*way == NULL)
        EBB_TRY(ebb_gpu_open_another(way));
    EBB_TRY(ebb_cuda_find_started(q, NULL, &q->departs));
    EBB_TRY(ebb_gpu_mark(q->stream, &q->from));
    EBB_TRY(ebb_gpu_follow(*way, q->from));
    q->departs->memory = memory;
    q->way = *way;
    return NULL;
}

ebb_status ebb_cuda_land(void *opened)
{
    ebb_cuda_queue *q = (ebb_cuda_queue *)opened;
    void *way = q->way;
    q->way = NULL;
    return ebb_gpu_mark(way, &q->departs->mark);
}

/* ---- ends ---- */

ebb_status ebb_cuda_beside_end(ebb_cuda_queue *q)
{
    if (q->beside == NULL || !q->walked)
        return NULL;
    EBB_TRY(ebb_gpu_mark(q->beside, &q->to));
    return ebb_gpu_follow(q->stream, q->to);
}

void ebb_cuda_beside_abandon(ebb_cuda_queue *q)
{
    q->way = NULL;
    for (int way = 0; way < 2; way++)
        if (q->ways[way] != NULL)
            (void)ebb_gpu_wait(q->ways[way]);
}

void ebb_cuda_beside_close(ebb_cuda_queue *q)
{
    ebb_nccl_close(q->nccl);
    ebb_gpu_unmark(q->from);
    ebb_gpu_unmark(q->to);
    for (ebb_cuda_started *s = q->started, *next; s != NULL; s = next) {
        next = s->next;
        ebb_gpu_unmark(s->mark);
        ebb_free(s);
    }
    ebb_gpu_close(q->beside);
    for (int way = 0; way < 2; way++)
        ebb_gpu_close(q->ways[way]);
}

const ebb_kernel ebb_cuda_beside[] = {
    {.name = "cuda.wait", .op = EBB_OP_WAIT, .dtypes = ebb_call_any_bits, .run = wait_for},
};
EBB_CUDA_COUNT(beside)
