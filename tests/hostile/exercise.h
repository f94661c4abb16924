/* exercise.h: a drawn graph through everything that ebb would do with it: types, rules, loss and
 * gradient, plan, and the kernels of every node where it is small.
 *
 * Each value has memory of exactly its size, so that a sanitizer sees what a kernel reads or writes
 * beside it; a program's arena would hide that. Any status is a good end but EBB_VERIFY, which says
 * that a pass made an illegal graph.
 */
#pragma once

#include "exec/weigh/call.h"
#include "exec/run/program.h"
#include "onnx/graph/infer.h"
#include "tests/hostile/draw.h"
#include "tests/owned.h"
#include "tests/test.h"

enum { EXERCISE_BYTES = 4 << 20 };

typedef struct exercise_values {
    void **data; /* by value id */
    size_t count, bytes;
} exercise_values;

static inline void exercise_free(exercise_values *values)
{
    for (size_t i = 0; i < values->count; i++)
        free(values->data[i]);
    free(values->data);
}

/* Memory for every value; false where a size is not known or all are too large. */
static inline bool exercise_allocate(exercise_values *values, const ebb_graph *g, draws *d)
{
    values->count = g->value_count;
    values->data = calloc(g->value_count, sizeof *values->data);
    if (values->data == NULL)
        return false;
    EBB_EACH_VALUE(g, v) {
        const ebb_value_info *info = ebb_value_of(g, v);
        size_t bytes;
        if (info->dead)
            continue;
        if (!ebb_type_bytes(info->type, &bytes) || bytes > EXERCISE_BYTES)
            return false;
        values->bytes += bytes;
        if (values->bytes > EXERCISE_BYTES ||
            posix_memalign(&values->data[v.i], EBB_ALIGN, bytes) != 0)
            return false;
        if (info->tensor != NULL && info->tensor->data != NULL)
            memcpy(values->data[v.i], info->tensor->data, bytes);
        else if ((info->flags & (EBB_IS_INPUT | EBB_IS_INITIALIZER)) != 0)
            draw_values(d, (ebb_dtype)info->type->dtype, values->data[v.i], bytes);
        else if (bytes != 0) // what no kernel has written is no number that it may rely on
            memset(values->data[v.i], 0x5A, bytes);
    }
    return true;
}

static inline ebb_status exercise_call(ebb_call *call, const ebb_backend *const *backends)
{
    EBB_TRY(ebb_pick(call, backends));
    ebb_status status = NULL;
    if (call->kernel->workspace != NULL)
        status = call->kernel->workspace(call, &call->workspace_bytes);
    if (status != NULL || call->workspace_bytes > EXERCISE_BYTES)
        return status;
    if (posix_memalign(&call->workspace, EBB_ALIGN, call->workspace_bytes) != 0)
        return ebb_error_memory();
    if (call->kernel->prepare != NULL)
        status = call->kernel->prepare(call);
    if (status == NULL)
        status = call->kernel->run(call);
    if (call->kernel->release != NULL && call->state != NULL)
        call->kernel->release(call);
    free(call->workspace);
    return status;
}

/* One walk over the graph, values side by side. */
static inline ebb_status exercise_run(const ebb_graph *g, draws *d, const char *backend)
{
    const ebb_backend *const *backends;
    exercise_values values = {0};
    OWNED_ARENA arena = {0};
    EBB_TRY(ebb_backends(backend, &backends));
    ebb_status status = NULL;
    double flops = 0;
    EBB_EACH_NODE(g, n)
        flops += ebb_node_flops(g, n);
    if (flops < 1e7 && exercise_allocate(&values, g, d)) {
        EBB_EACH_NODE(g, n) {
            const ebb_node_info *info = ebb_node_of(g, n);
            ebb_call call;
            if (status == NULL)
                status = ebb_call_make(&call, &arena, g, n, 1);
            if (status != NULL)
                break;
            for (uint32_t i = 0; i < info->in_count; i++)
                call.in[i].data = values.data[info->in[i].i];
            for (uint32_t i = 0; i < info->out_count; i++)
                call.out[i].data = values.data[info->out[i].i];
            status = exercise_call(&call, backends);
        }
    }
    exercise_free(&values);
    return status;
}

static inline ebb_status exercise_plan(const ebb_graph *g)
{
    ebb_setting setting;
    OWNED_ARENA arena = {0};
    ebb_plan plan;
    EBB_TRY(ebb_setting_read(&setting, g->model, "cpu", 1, 0));
    ebb_status status = ebb_plan_make(&plan, &arena, g, &setting);
    if (status == NULL)
        ebb_plan_release(&plan);
    return status;
}

/* How far it came: 0 not typed, 1 typed, 2 its step is made, 3 all kernels ran. EBB_VERIFY in
 * *status is a failure of ours. */
static inline int exercise(ebb_model *model, draws *d, ebb_status *status)
{
    static const char *const pipelines[] = {
        "loss:mse,gradient,optimizer:sgd", "inline,fold,fuse,loss:l1,gradient",
        "fold,unroll,train-mode,loss:mse,gradient,optimizer:adamw,drop-saves,alias"};
    const ebb_rewrite_options options = {.verify_each = true};
    int reached = 1;
    *status = ebb_infer_graph(model->graph);
    if (*status != NULL)
        return 0;
    EBB_EACH_NODE(model->graph, n)
        if (ebb_place_refuses(model->graph, n) != NULL) { // a move between places, alone
            *status = exercise_plan(model->graph);
            assert_non_null(*status);
            return 0;
        }
    *status = ebb_verify(model->graph);
    if (*status != NULL)
        return 0;
    if (draw_once_in(d, 2)) {
        const char *pipeline = DRAW_ONE_OF(d, pipelines);
        *status = ebb_rewrite(model, pipeline, &options, NULL);
        if (*status != NULL)
            return 1;
        reached = 2;
    }
    *status = exercise_plan(model->graph);
    if (*status != NULL)
        return reached;
    *status = exercise_run(model->graph, d, draw_once_in(d, 3) ? "cpu" : "plain");
    return *status == NULL ? 3 : reached;
}
