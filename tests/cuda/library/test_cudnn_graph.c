/* test_cudnn_graph.c: the layer over cuDNN's graphs, on a described device: builder, rules, plans.
 * Nothing runs. Without cuDNN the tests are skipped, and say so. */
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/library/cudnn/internal.h"
#include "kernels/cuda/library/cudnn/shapes.h"
#include "tests/status.h"
#include "tests/test.h"

/* The notes' bits as cuDNN's header numbers them. */
enum { TENSOR_CORE = 1, DOWN_CONVERT = 2, NONDETERMINISTIC = 16, WINOGRAD = 32 | 64 | 128 | 256 };

static ebb_cudnn_device h100;
static const ebb_cudnn_target target = {.device = &h100};

#define OK(call)                                             \
    do {                                                     \
        ebb_status ok_ = (call);                             \
        if (ok_ != NULL)                                     \
            fail_msg("%s: %s", #call, ebb_status_text(ok_)); \
    } while (0)

static ebb_cudnn_conv_sizes convolution(ebb_dtype dtype)
{
    return (ebb_cudnn_conv_sizes){
        .dtype = dtype,
        .channels_last = dtype != EBB_F32,
        .batch = 8,
        .channels = 64,
        .filters = 64,
        .groups = 1,
        .in = {28, 28},
        .kernel = {3, 3},
        .window = {
            .spatial = 2, .stride = {1, 1}, .dilation = {1, 1}, .before = {1, 1}, .after = {1, 1}}};
}

/* ---- devices ---- */

TEST(devices_are_found_by_name_in_either_case)
{
    ebb_cudnn_device d;
    size_t count = 0;
    for (const char *const *name = ebb_cudnn_described_names; *name != NULL; name++, count++)
        OK(ebb_cudnn_device_find(&d, *name));
    assert_true(count >= 4);
    OK(ebb_cudnn_device_find(&d, "RTX4090"));
    assert_string_equal(d.name, "rtx4090");
    assert_non_null(strstr(d.json, "4090"));
    refused(ebb_cudnn_device_find(&d, "h10"), EBB_DEVICE, "a100, h100, l4, rtx4090");
}

/* ---- the builder ---- */

TEST(layouts_have_the_strides_that_the_memory_has)
{
    const int64_t dims[4] = {2, 3, 5, 7};
    const int64_t rows[4] = {105, 35, 7, 1}, last[4] = {105, 1, 21, 3};
    ebb_cudnn_tensor t = ebb_cudnn_rows(EBB_F32, 4, dims);
    assert_memory_equal(t.strides, rows, sizeof rows);
    t = ebb_cudnn_channels_last(EBB_F32, 4, dims);
    assert_memory_equal(t.strides, last, sizeof last);
}

TEST(the_first_error_of_a_graph_stays)
{
    const int64_t good[2] = {4, 4}, bad[2] = {0, 4};
    ebb_cudnn_graph *g, *ended;
    OK(ebb_cudnn_graph_new(&g, "a test"));
    ebb_cudnn_tensor a = ebb_cudnn_rows(EBB_F32, 2, good), b = ebb_cudnn_rows(EBB_F32, 2, bad);
    assert_int_equal(ebb_cudnn_real(g, EBB_CUDNN_X, &a), EBB_CUDNN_X);
    assert_int_equal(ebb_cudnn_real(g, EBB_CUDNN_W, &b), 0);
    assert_int_equal(ebb_cudnn_real(g, EBB_CUDNN_Y, &a), 0); /* nothing after an error */
    ebb_cudnn_point(g, CUDNN_POINTWISE_RELU_FWD, EBB_CUDNN_X, 0, EBB_CUDNN_Y);
    refused(ebb_cudnn_graph_end(&ended, g), EBB_UNSUPPORTED, "a test: dim 0 of tensor W");
    assert_null(ended);
}

TEST(a_tensor_that_is_not_there_is_named)
{
    const int64_t dims[2] = {4, 4};
    ebb_cudnn_tensor a = ebb_cudnn_rows(EBB_F32, 2, dims);
    ebb_cudnn_graph *g, *ended;
    OK(ebb_cudnn_graph_new(&g, "a test"));
    (void)ebb_cudnn_real(g, EBB_CUDNN_X, &a);
    ebb_cudnn_point(g, CUDNN_POINTWISE_RELU_FWD, EBB_CUDNN_X, 0, EBB_CUDNN_Y);
    assert_non_null(strstr(ebb_status_text(ebb_cudnn_graph_end(&ended, g)), "(Y)"));
}

TEST(a_mask_takes_a_bit_an_element)
{
    ebb_cudnn_graph *g;
    ebb_cudnn_conv_sizes sizes = convolution(EBB_BF16);
    const int64_t elements = 8 * 64 * 28 * 28;
    OK(ebb_cudnn_conv_forward(&g, &sizes,
                              EBB_CUDNN_WITH_BIAS | EBB_CUDNN_WITH_RELU | EBB_CUDNN_WITH_MASK));
    assert_int_equal(ebb_cudnn_role_bytes(g, EBB_CUDNN_Y), 2 * elements);
    assert_int_equal(ebb_cudnn_role_bytes(g, EBB_CUDNN_MASK), elements / 8);
    assert_int_equal(ebb_cudnn_role_bytes(g, EBB_CUDNN_BIAS), 2 * 64);
    assert_int_equal(ebb_cudnn_role_bytes(g, EBB_CUDNN_DX), 0);
    ebb_cudnn_graph_free(g);
}

TEST(sizes_that_contradict_each_other_are_refused)
{
    ebb_cudnn_graph *g;
    ebb_cudnn_conv_sizes sizes = convolution(EBB_F32);
    sizes.groups = 3;
    assert_int_equal(ebb_status_code(ebb_cudnn_conv_forward(&g, &sizes, 0)), EBB_REJECTED);
    assert_null(g);
    sizes = convolution(EBB_F32);
    sizes.kernel[0] = INT64_MAX;
    assert_int_equal(ebb_status_code(ebb_cudnn_conv_forward(&g, &sizes, 0)), EBB_REJECTED);
    sizes = convolution(EBB_F32);
    sizes.batch = sizes.channels = sizes.filters = sizes.in[0] = sizes.in[1] = INT32_MAX;
    assert_non_null(ebb_cudnn_conv_forward(&g, &sizes, 0)); /* its bytes fit no 63 bits */
    assert_null(g);
}

TEST(a_convolution_has_the_sizes_that_onnx_says)
{
    int64_t out[EBB_CUDNN_AXES];
    ebb_cudnn_conv_sizes s = convolution(EBB_F32);
    s.in[0] = s.in[1] = 224;
    s.kernel[0] = s.kernel[1] = 7;
    s.window.stride[0] = s.window.stride[1] = 2;
    s.window.before[0] = s.window.before[1] = s.window.after[0] = s.window.after[1] = 3;
    OK(ebb_cudnn_conv_out(&s, out));
    assert_int_equal(out[0], 112); /* ResNet's first layer */
    s.window.dilation[1] = 3;      /* floor((224 + 6 - 18 - 1) / 2) + 1 */
    OK(ebb_cudnn_conv_out(&s, out));
    assert_int_equal(out[1], 106);
}

/* ---- plans ---- */

TEST(float32_stays_float32_unless_tf32_is_allowed)
{
    ebb_cudnn_graph *g;
    ebb_cudnn_plan *plan;
    ebb_cudnn_conv_sizes sizes = convolution(EBB_F32);
    ebb_cudnn_rules rules = EBB_CUDNN_EXACT;
    OK(ebb_cudnn_conv_forward(&g, &sizes, 0));
    OK(ebb_cudnn_plan_make(&plan, g, &target, &rules));
    uint32_t numeric = ebb_cudnn_plan_choice(plan)->numeric;
    assert_int_equal(numeric & (TENSOR_CORE | DOWN_CONVERT | NONDETERMINISTIC | WINOGRAD), 0);
    ebb_cudnn_plan_free(plan);
    rules.tf32 = true;
    OK(ebb_cudnn_conv_forward(&g, &sizes, 0));
    OK(ebb_cudnn_plan_make(&plan, g, &target, &rules));
    numeric = ebb_cudnn_plan_choice(plan)->numeric;
    assert_true((numeric & TENSOR_CORE) != 0); /* or the rule above had nothing to refuse */
    ebb_cudnn_plan_free(plan);
}

TEST(a_bound_on_the_workspace_is_kept)
{
    ebb_cudnn_graph *g;
    ebb_cudnn_plan *plan;
    ebb_cudnn_conv_sizes sizes = convolution(EBB_BF16);
    sizes.channels_last = false; /* which cuDNN transposes in its workspace */
    ebb_cudnn_rules rules = EBB_CUDNN_EXACT;
    OK(ebb_cudnn_conv_forward(&g, &sizes, 0));
    OK(ebb_cudnn_plan_make(&plan, g, &target, &rules));
    int64_t free_choice = ebb_cudnn_plan_choice(plan)->workspace_bytes;
    assert_true(free_choice > 0);
    ebb_cudnn_plan_free(plan);
    rules.workspace_bytes = free_choice - 1;
    OK(ebb_cudnn_conv_forward(&g, &sizes, 0));
    ebb_status status = ebb_cudnn_plan_make(&plan, g, &target, &rules);
    if (status == NULL) {
        assert_true(ebb_cudnn_plan_choice(plan)->workspace_bytes < free_choice);
        ebb_cudnn_plan_free(plan);
    } else {
        assert_non_null(strstr(ebb_status_text(status), "needs more workspace"));
    }
}

TEST(a_plan_for_a_described_device_does_not_run)
{
    ebb_cudnn_graph *g;
    ebb_cudnn_plan *plan;
    ebb_cudnn_conv_sizes sizes = convolution(EBB_BF16);
    const ebb_cudnn_rules rules = EBB_CUDNN_EXACT;
    OK(ebb_cudnn_conv_forward(&g, &sizes, 0));
    OK(ebb_cudnn_plan_make(&plan, g, &target, &rules));
    assert_non_null(ebb_cudnn_plan_run(plan, NULL, 0, NULL, NULL, NULL));
    ebb_cudnn_plan_free(plan);
}

/* ---- memory ---- */

static ebb_status plan_once(void)
{
    ebb_cudnn_graph *g = NULL;
    ebb_cudnn_plan *plan = NULL;
    ebb_cudnn_conv_sizes sizes = convolution(EBB_BF16);
    const ebb_cudnn_rules rules = EBB_CUDNN_EXACT;
    ebb_status status = ebb_cudnn_conv_forward(&g, &sizes, 0);
    if (status == NULL)
        status = ebb_cudnn_plan_make(&plan, g, &target, &rules);
    ebb_cudnn_plan_free(plan);
    return status;
}

TEST(memory_may_end_anywhere)
{
    long before = ebb_alloc_count();
    OK(plan_once());
    long count = ebb_alloc_count() - before;
    int failed = 0;
    assert_true(count > 1);
    for (long n = 1; n <= count; n++) {
        ebb_alloc_fail_after(n);
        ebb_status status = plan_once();
        ebb_alloc_fail_after(0);
        failed += status != NULL;
    }
    assert_int_equal(failed, count); /* none of them was one to do without */
    OK(plan_once());
}

int main(void)
{
    ebb_status status = ebb_cudnn_open();
    if (status != NULL) {
        printf("SKIP: %s\n", ebb_status_text(status));
        return 77;
    }
    if (ebb_cudnn_device_find(&h100, "h100") != NULL)
        return 1;
    return run_listed();
}
