/* cudnn_reading.h: calls without bytes, for tests of what cuDNN is asked for. */
#pragma once

#include "tests/cuda/cuda.h"

#include "kernels/cuda/library/cudnn/plan.h"
#include "kernels/cuda/library/cudnn_call.h"

/* Types only: a plan needs no bytes. */
static inline ebb_operand *type_in(testing *t, ebb_dtype dtype, int rank, const int64_t *dims)
{
    ebb_operand *o = &t->in[t->call.input_count++];
    o->type = ebb_type_tensor(dtype, rank, dims);
    o->bytes = count_of(o) * ebb_dtype_bits(dtype) / 8;
    return o;
}

static inline ebb_operand *type_out(testing *t, ebb_dtype dtype, int rank, const int64_t *dims)
{
    ebb_operand *o = &t->out[t->call.output_count++];
    o->type = ebb_type_tensor(dtype, rank, dims);
    o->bytes = count_of(o) * ebb_dtype_bits(dtype) / 8;
    return o;
}

static inline const char *read_with(ebb_work_reader read, ebb_work *work, const testing *t)
{
    memset(work, 0, sizeof *work);
    return read(work, &t->call);
}

static inline void taken(const char *why)
{
    if (why != NULL)
        fail_msg("%s", why);
}

static inline void refused(const char *why, const char *with)
{
    if (why == NULL || strstr(why, with) == NULL)
        fail_msg("'%s' is not said, but '%s'", with, why != NULL ? why : "nothing");
}

/* The place of a role in a part, or -1. */
static inline int at(const ebb_work_part *part, ebb_cudnn_role role)
{
    for (int i = 0; i < part->count; i++)
        if (part->roles[i] == (int64_t)role)
            return i;
    return -1;
}

/* ---- plans ---- */

static inline const ebb_kernel *kernel_for(const ebb_kernel *family, ebb_op op)
{
    while (family->op != op)
        family++;
    return family;
}

/* Bytes that a described device's first plan needs, made past the kernels. */
static inline size_t library_bytes(const ebb_work *w, const char *device)
{
    size_t most = 0;
    for (int i = 0; i < w->parts; i++) {
        const ebb_cuda_cudnn_ask *ask = &w->part[i].ask;
        ebb_cudnn_device d;
        ebb_cudnn_graph *g = NULL;
        ebb_cudnn_plan *plan = NULL;
        const ebb_cudnn_target target = {.device = &d};
        const ebb_cudnn_rules rules = EBB_CUDNN_EXACT;
        check_status(ebb_cudnn_device_find(&d, device), device);
        check_status(
            ask->kind == EBB_ASK_CONV   ? ebb_cudnn_conv_forward(&g, &ask->of.conv, ask->with)
            : ask->kind == EBB_ASK_POOL ? ebb_cudnn_pooling(&g, &ask->of.pool, false)
            : ask->kind == EBB_ASK_POOL_GRADIENT ? ebb_cudnn_pooling(&g, &ask->of.pool, true)
            : ask->kind == EBB_ASK_BATCH_NORM
                ? ebb_cudnn_batch_norm_forward(&g, &ask->of.norm, ask->with)
            : ask->kind == EBB_ASK_BATCH_NORM_BACKWARD
                ? ebb_cudnn_batch_norm_backward(&g, &ask->of.norm, ask->with)
            : ask->kind == EBB_ASK_ATTENTION
                ? ebb_cudnn_attention_forward(&g, &ask->of.attention, ask->with)
                : ebb_cudnn_attention_backward(&g, &ask->of.attention),
            "graph");
        check_status(ebb_cudnn_plan_make(&plan, g, &target, &rules), device);
        const size_t bytes = (size_t)ebb_cudnn_plan_choice(plan)->workspace_bytes;
        most = bytes > most ? bytes : most;
        ebb_cudnn_plan_free(plan);
    }
    return most;
}

/* Scratch is ours and counted by hand, the rest is cuDNN's. */
static inline void check_workspace(testing *t, const ebb_kernel *family, ebb_work_reader read,
                                   size_t scratch)
{
    const ebb_kernel *k = kernel_for(family, t->call.op);
    ebb_work w;
    size_t bytes = SIZE_MAX;
    check_status(ebb_cuda_cudnn_describe("h100"), "h100");
    taken(ebb_kernel_declines(k, &t->call));
    check_status(k->workspace(&t->call, &bytes), k->name);
    taken(read_with(read, &w, t));
    assert_int_equal(bytes, scratch + library_bytes(&w, "h100"));
}

/* Why there are no plans to look at, or NULL; and what a test ends with then, that has read calls.
 */
#if defined(__SANITIZE_ADDRESS__) // a compiler's own business, and slow under them
enum { UNPLANNED = 0 };

static inline const char *nothing_plans(void)
{
    return "kernels are compiled in the build without sanitizers";
}
#else
enum { UNPLANNED = 77 };

static inline const char *nothing_plans(void)
{
    ebb_status status = ebb_cudnn_open();
    if (status != NULL)
        return ebb_status_text(status);
    return ebb_cudnn_compiles() ? NULL : "no libcuda.so.1 and no stub of it (EBB_CUDA_STUB)";
}
#endif

/* A suite: what is read of calls, each a TEST, then what is planned for a described device, where it
 * can be. Returns what the program ends with. */
static inline int read_then_plan(const struct CMUnitTest *plans, size_t plan_count)
{
    if (with_cuda(NULL) != 0)
        return 1;
    const int failed = run_listed();
    const char *why = nothing_plans();
    if (why == NULL)
        return failed + _cmocka_run_group_tests("plans", plans, plan_count, NULL, NULL);
    printf("SKIP: no kernel is planned: %s\n", why);
    return failed != 0 ? failed : UNPLANNED;
}
