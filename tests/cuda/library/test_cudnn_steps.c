/* test_cudnn_steps.c: whole steps planned for a described device: which nodes cuDNN computes, and
 * that the plan is one for that device: tensors begin at multiples of 256 bytes, a workspace takes
 * what its kernel asks for, and with no device here the same step is our own kernels'.
 *
 * The back end is the one for the host with cuDNN's planning (ebb_cuda_plans_plugin). Nothing runs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ebb.h"
#include "exec/run/program.h"
#include "kernels/cuda/library/cudnn/plan.h"
#include "onnx/file/file.h"
#include "passes/budget/trial.h"
#include "tests/eval_net.h"
#include "tests/formatted.h"
#include "tests/owned.h"
#include "tests/status.h"

typedef struct planned {
    ebb_model *model;
    ebb_arena arena;
    ebb_plan plan;
} planned;

/* sample NULL: the network exported in eval mode. */
static void plan_step(planned *p, const char *sample, const char *backend, const char *memory)
{
    ebb_setting setting;
    char passes[256];
    memset(p, 0, sizeof *p);
    (void)snprintf(passes, sizeof passes,
                   "inline,fold,train-mode:dropout=off,fold,fuse,loss:%s,layout,"
                   "precision:bf16,gradient,optimizer:adamw,attention,%sdrop-saves,alias",
                   sample != NULL ? "cross-entropy" : "mse", memory);
    if (sample == NULL) {
        p->model = eval_net();
    } else {
        good(ebb_open(&p->model, formatted("%s/samples/digits/%s.onnx", EBB_SOURCE_DIR, sample)));
        good(ebb_set_dim(p->model, "batch", 32));
    }
    good(ebb_rewrite(p->model, passes, NULL, NULL));
    good(ebb_setting_read(&setting, p->model, backend, 0, 0));
    good(ebb_plan_make(&p->plan, &p->arena, p->model->graph, &setting));
}

static void close_step(planned *p)
{
    ebb_plan_release(&p->plan);
    ebb_arena_fini(&p->arena);
    ebb_close(p->model);
}

/* Calls of an operator, and how many of them a kernel has whose name begins so. */
static void count_calls(const planned *p, ebb_op op, const char *kernel, int *all, int *its)
{
    *all = *its = 0;
    for (uint32_t k = 0; k < p->plan.count; k++) {
        const ebb_call *c = &p->plan.calls[k];
        *all += c->op == op;
        *its += c->op == op && strncmp(c->kernel->name, kernel, strlen(kernel)) == 0;
    }
}

static void cudnn_has_all(const planned *p, ebb_op op, const char *kernel)
{
    int all, its;
    count_calls(p, op, kernel, &all, &its);
    if (all == 0 || its != all)
        fail_msg("%s: %d of %d", kernel, its, all);
}

static void the_plan_is_the_devices(const planned *p)
{
    const ebb_memory *m = &p->plan.memory;
    int workspaces = 0;
    assert_int_equal(p->plan.align, 256);
    for (size_t i = 0; i < m->tensor_count; i++) {
        assert_int_equal(p->plan.intervals[i].offset % 256, 0);
        assert_int_equal(m->tensors[i].bytes % 256, 0);
    }
    for (uint32_t k = 0; k < p->plan.count; k++) {
        const ebb_call *c = &p->plan.calls[k];
        size_t asked = 0;
        if (c->kernel->workspace == NULL || strstr(c->kernel->name, "cudnn") == NULL)
            continue;
        good(c->kernel->workspace(c, &asked));
        assert_int_equal(c->workspace_bytes, asked);
        const uint32_t tensor = m->workspace_of[p->plan.order[k].i];
        assert_int_equal(tensor != 0 ? m->tensors[tensor - 1].bytes : 0, (asked + 255) / 256 * 256);
        workspaces += tensor != 0;
    }
    assert_true(workspaces > 0);
    assert_true(p->plan.packing.height >= m->peak_bytes); // what is weighed is what is laid out
}

static void a_network_of_images_is_cudnns(void **state)
{
    planned p;
    plan_step(&p, "cnn", *state, "");
    cudnn_has_all(&p, EBB_OP_CONV_NHWC, "cuda.cudnn_conv_nhwc");
    cudnn_has_all(&p, EBB_OP_CONV_TRANSPOSE_NHWC, "cuda.cudnn_conv_transpose_nhwc");
    cudnn_has_all(&p, EBB_OP_CONV_WEIGHT_GRAD_NHWC, "cuda.cudnn_conv_weight_grad_nhwc");
    cudnn_has_all(&p, EBB_OP_BATCH_NORM_TRAINING, "cuda.cudnn_batch_norm_training");
    cudnn_has_all(&p, EBB_OP_BATCH_NORM_GRAD, "cuda.cudnn_batch_norm_grad");
    cudnn_has_all(&p, EBB_OP_MAX_POOL, "cuda.cudnn_max_pool");
    cudnn_has_all(&p, EBB_OP_MAX_POOL_GRAD, "cuda.max_pool_grad"); // the first of equal elements
    the_plan_is_the_devices(&p);
    close_step(&p);
}

static void batch_norm_with_its_relu_is_one_kernel_of_cudnns(void **state)
{
    planned p;
    int all, its;
    plan_step(&p, "cnn", *state, "relu-epilogue,");
    cudnn_has_all(&p, EBB_OP_BATCH_NORM_RELU, "cuda.cudnn_batch_norm_relu");
    cudnn_has_all(&p, EBB_OP_BATCH_NORM_RELU_GRAD, "cuda.cudnn_batch_norm_relu_grad");
    count_calls(&p, EBB_OP_RELU_GRAD, "", &all, &its);
    assert_int_equal(all, 0);
    the_plan_is_the_devices(&p);
    close_step(&p);
}

static void a_convolution_with_its_sum_relu_and_bits_is_one_kernel_of_cudnns(void **state)
{
    planned p;
    int all, its;
    plan_step(&p, NULL, *state, "pool-index,sign-mask,relu-epilogue,");
    cudnn_has_all(&p, EBB_OP_CONV_RELU_NHWC, "cuda.cudnn_conv_relu_nhwc");
    cudnn_has_all(&p, EBB_OP_CONV_ADD_RELU_NHWC, "cuda.cudnn_conv_add_relu_nhwc");
    count_calls(&p, EBB_OP_RELU, "", &all, &its);
    assert_int_equal(all, 0);
    the_plan_is_the_devices(&p);
    close_step(&p);
}

static void attention_is_cudnns(void **state)
{
    planned p;
    plan_step(&p, "transformer", *state, "");
    cudnn_has_all(&p, EBB_OP_EBB_ATTENTION, "cuda.cudnn_attention");
    cudnn_has_all(&p, EBB_OP_EBB_ATTENTION_GRAD, "cuda.cudnn_attention_grad");
    for (uint32_t k = 0; k < p.plan.count; k++) { // no plan makes again what is there
        ebb_call c = p.plan.calls[k];
        size_t bytes = 0;
        if (c.op != EBB_OP_EBB_ATTENTION_GRAD)
            continue;
        assert_true(ebb_call_has(&c, 8));
        c.input_count = 8;
        good(c.kernel->workspace(&c, &bytes));
        assert_true(c.workspace_bytes + c.in[0].bytes <= bytes);
    }
    the_plan_is_the_devices(&p);
    close_step(&p);
}

static void without_a_device_the_step_is_our_own_kernels(void **state)
{
    (void)state;
    planned p;
    plan_step(&p, "cnn", "cuda", "relu-epilogue,");
    cudnn_has_all(&p, EBB_OP_BATCH_NORM_RELU, "compose"); // by its parts' kernels
    cudnn_has_all(&p, EBB_OP_BATCH_NORM_RELU_GRAD, "compose");
    for (uint32_t k = 0; k < p.plan.count; k++)
        assert_null(strstr(p.plan.calls[k].kernel->name, "cudnn"));
    close_step(&p);
    plan_step(&p, NULL, "cuda", "relu-epilogue,");
    cudnn_has_all(&p, EBB_OP_CONV_RELU_NHWC, "compose");
    cudnn_has_all(&p, EBB_OP_CONV_ADD_RELU_NHWC, "compose");
    close_step(&p);
}

/* No back end for GPUs moves anything yet; a plan that moves to the host is held to its budget all the same. */
static void a_plan_for_a_described_device_may_move_to_the_host(void **state)
{
    ebb_model *m[2];
    uint64_t budget = 1;
    char fit[128];
    for (int k = 0; k < 2; k++) {
        good(ebb_open(&m[k], EBB_SOURCE_DIR "/samples/digits/cnn.onnx"));
        good(ebb_set_dim(m[k], "batch", 512));
        good(ebb_rewrite(m[k],
                         "inline,fold,train-mode,fold,fuse,loss:cross-entropy,gradient,"
                         "optimizer:sgd,drop-saves",
                         NULL, NULL));
        (void)snprintf(fit, sizeof fit, "fit:budget=%llu,time=0.1,backend=%s%s",
                       (unsigned long long)budget, (const char *)*state,
                       k == 1 ? ",host=1GiB" : "");
        ebb_status status = ebb_rewrite(m[k], fit, NULL, NULL);
        const char *least = strstr(ebb_status_text(status), "of at least ");
        if (k == 0) {
            unsigned long long bytes;
            assert_int_equal(ebb_status_code(status), EBB_NO_PLAN);
            assert_int_equal(sscanf(least, "of at least %llu", &bytes), 1);
            budget = bytes - 1;
        } else {
            ebb_estimate after;
            OWNED_ARENA arena = {0};
            good(status);
            good(ebb_trial_measure(&after, &arena, m[k]->graph, *state, 0));
            assert_true(after.arena_bytes <= budget);
        }
        ebb_close(m[k]);
    }
}

int main(void)
{
    static char h100[] = "cuda:h100";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_device_the_step_is_our_own_kernels),
        cmocka_unit_test_prestate(a_network_of_images_is_cudnns, h100),
        cmocka_unit_test_prestate(batch_norm_with_its_relu_is_one_kernel_of_cudnns, h100),
        cmocka_unit_test_prestate(a_convolution_with_its_sum_relu_and_bits_is_one_kernel_of_cudnns,
                                  h100),
        cmocka_unit_test_prestate(attention_is_cudnns, h100),
        cmocka_unit_test_prestate(a_plan_for_a_described_device_may_move_to_the_host, h100),
    };
    if (setenv("EBB_CUDA_PLUGIN", EBB_BINARY_DIR "/kernels/cuda/libebb_cuda_plans_plugin.so", 1) !=
        0)
        return 1;
    ebb_status status = ebb_cudnn_open();
    if (status == NULL && ebb_cudnn_compiles())
        return cmocka_run_group_tests(tests, NULL, NULL);
    printf("SKIP: no step is planned: %s\n",
           status != NULL ? ebb_status_text(status)
                          : "no libcuda.so.1 and no stub of it (EBB_CUDA_STUB)");
    return 77;
}
