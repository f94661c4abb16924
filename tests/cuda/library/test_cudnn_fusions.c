/* test_cudnn_fusions.c: which operations come in one kernel with their neighbours, on every
 * described device: the passes and the CUDA back end count on this table. A row is true or false on
 * all of them; a false one says where the limit is, so that it is seen when a new cuDNN moves it.
 *
 * Nothing runs. Plans are kept in the build folder. Skipped, visibly, without cuDNN.
 */
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/library/cudnn/plan.h"
#include "kernels/cuda/library/cudnn/shapes.h"
#include "tests/share.h"
#include "tests/test.h"

enum {
    BIAS = EBB_CUDNN_WITH_BIAS,
    ADD = EBB_CUDNN_WITH_ADD,
    RELU = EBB_CUDNN_WITH_RELU,
    MASK = EBB_CUDNN_WITH_MASK,
    DROPOUT = 1 << 16, /* of an attention */
    ADDED = EBB_CUDNN_WITH_ADDED,
    FIRST = 1
};

typedef enum kind { CONV, NORM, NORM_BACK, ATTENTION, ATTENTION_BACK } kind;

/* special: FIRST of a convolution with channels first, C of a batch norm, heads of K and V of an
 * attention; whose RELU is a cap, ADD no statistics. */
static const struct {
    const char *what;
    kind kind;
    ebb_dtype dtype;
    unsigned with;
    int64_t special;
    bool plans;
} fusions[] = {
    {"conv + bias", CONV, EBB_BF16, BIAS, 0, true},
    {"conv + bias + ReLU", CONV, EBB_BF16, BIAS | RELU, 0, true},
    {"conv + bias + add + ReLU", CONV, EBB_BF16, BIAS | ADD | RELU, 0, true},
    {"conv + bias + ReLU + mask", CONV, EBB_BF16, BIAS | RELU | MASK, 0, true},
    {"conv + ReLU", CONV, EBB_BF16, RELU, 0, true},
    {"conv + bias + add + ReLU + mask", CONV, EBB_BF16, BIAS | ADD | RELU | MASK, 0, true},
    {"conv + bias + add + ReLU + mask in float16", CONV, EBB_F16, BIAS | ADD | RELU | MASK, 0,
     true},
    {"conv + bias + ReLU, channels first", CONV, EBB_BF16, BIAS | RELU, FIRST, true},
    {"conv + bias + add + ReLU, channels first", CONV, EBB_BF16, BIAS | ADD | RELU, FIRST, false},
    {"conv + bias + ReLU, channels first, float32", CONV, EBB_F32, BIAS | RELU, FIRST, true},
    {"conv + bias + add + ReLU, channels first, float32", CONV, EBB_F32, BIAS | ADD | RELU, FIRST,
     false},
    {"conv + bias + ReLU in float32", CONV, EBB_F32, BIAS | RELU, 0, true},
    {"conv + bias + ReLU + mask in float32", CONV, EBB_F32, BIAS | RELU | MASK, 0, false},
    {"batch norm + ReLU + mask", NORM, EBB_BF16, RELU | MASK, 64, true},
    {"batch norm + add + ReLU + mask", NORM, EBB_BF16, ADD | RELU | MASK, 64, true},
    {"batch norm + add + ReLU + mask in float32", NORM, EBB_F32, ADD | RELU | MASK, 64, true},
    {"batch norm + ReLU", NORM, EBB_BF16, RELU, 64, true},
    {"batch norm + ReLU + mask in float32", NORM, EBB_F32, RELU | MASK, 64, true},
    {"batch norm of 63 channels", NORM, EBB_BF16, 0, 63, false},
    {"batch norm backward, masked", NORM_BACK, EBB_BF16, MASK, 64, true},
    {"batch norm backward, masked, + dy of the sum", NORM_BACK, EBB_BF16, MASK | ADDED, 64, true},
    {"batch norm backward, masked, in float32", NORM_BACK, EBB_F32, MASK, 64, true},
    {"batch norm backward, masked, + dy of the sum, float32", NORM_BACK, EBB_F32, MASK | ADDED, 64,
     true},
    {"attention", ATTENTION, EBB_BF16, 0, 12, true},
    {"attention of shared K and V", ATTENTION, EBB_BF16, 0, 4, true},
    {"attention with dropout", ATTENTION, EBB_BF16, DROPOUT, 12, true},
    {"attention backward", ATTENTION_BACK, EBB_F16, 0, 12, true},
    {"attention backward with dropout", ATTENTION_BACK, EBB_BF16, DROPOUT, 12, true},
    {"attention in float32", ATTENTION, EBB_F32, 0, 12, false},
    {"attention whose scores are capped", ATTENTION, EBB_BF16, RELU, 4, true},
    {"attention whose scores are capped, then biased", ATTENTION, EBB_BF16, RELU | BIAS, 4, true},
    {"attention in float16, biased in float32", ATTENTION, EBB_F16, BIAS, 12, true},
    {"attention backward in float16, biased in float32", ATTENTION_BACK, EBB_F16, BIAS, 12, true},
    {"attention that keeps nothing of its rows", ATTENTION, EBB_BF16, ADD, 4, false},
};
enum { FUSIONS = sizeof fusions / sizeof fusions[0] };

static ebb_status convolution(ebb_cudnn_graph **g, size_t i)
{
    const ebb_cudnn_conv_sizes s = {
        .dtype = fusions[i].dtype,
        .channels_last = fusions[i].special != FIRST,
        .batch = 32,
        .channels = 64,
        .filters = 64,
        .groups = 1,
        .in = {56, 56},
        .kernel = {3, 3},
        .window = {
            .spatial = 2, .stride = {1, 1}, .dilation = {1, 1}, .before = {1, 1}, .after = {1, 1}}};
    return ebb_cudnn_conv_forward(g, &s, fusions[i].with);
}

static ebb_status normalisation(ebb_cudnn_graph **g, size_t i)
{
    const ebb_cudnn_batch_norm_sizes s = {.dtype = fusions[i].dtype,
                                          .rows = (int64_t)32 * 56 * 56,
                                          .channels = fusions[i].special,
                                          .epsilon = 1e-5F};
    return fusions[i].kind == NORM ? ebb_cudnn_batch_norm_forward(g, &s, fusions[i].with)
                                   : ebb_cudnn_batch_norm_backward(g, &s, fusions[i].with);
}

static ebb_status attention(ebb_cudnn_graph **g, size_t i)
{
    ebb_cudnn_attention_sizes s = {.dtype = fusions[i].dtype,
                                   .batch = 4,
                                   .heads = 12,
                                   .kv_heads = fusions[i].special,
                                   .queries = 384,
                                   .keys = 384,
                                   .width = 64,
                                   .value_width = 64,
                                   .scale = 0.125F,
                                   .causal = true,
                                   .cap = (fusions[i].with & RELU) != 0 ? 30 : 0,
                                   .bias = (fusions[i].with & BIAS) != 0,
                                   .bias_dtype = fusions[i].dtype == EBB_F16 ? EBB_F32 : EBB_BF16,
                                   .bias_batch = 4,
                                   .bias_heads = 1,
                                   .bias_rows = 384,
                                   .dropout = fusions[i].with == DROPOUT ? 0.1 : 0};
    s.q = s.o = s.dout = ebb_cudnn_heads_first(12, 384, 64);
    s.k = s.v = ebb_cudnn_heads_inside(s.kv_heads, 384, 64);
    if (fusions[i].kind == ATTENTION)
        return ebb_cudnn_attention_forward(g, &s,
                                           fusions[i].with == ADD ? 0
                                           : fusions[i].with == DROPOUT
                                               ? (unsigned)EBB_CUDNN_WITH_PARTS
                                               : (unsigned)EBB_CUDNN_WITH_STATS);
    return ebb_cudnn_attention_backward(g, &s);
}

/* Every second row is planned, on one of the devices, in turn. */
static bool in_share(size_t row, const char *device)
{
    const char *const *names = ebb_cudnn_described_names;
    size_t count = 0, index = 0;
    for (; names[count] != NULL; count++)
        if (strcmp(names[count], device) == 0)
            index = count;
    return share(2) == 1 || row % (2 * count) == index;
}

static void the_table_holds_on_a_described_device(void **state)
{
    ebb_cudnn_device device;
    const ebb_cudnn_target target = {.device = &device};
    const ebb_cudnn_rules rules = EBB_CUDNN_EXACT;
    int wrong = 0;
    assert_null(ebb_cudnn_device_find(&device, *state));
    for (size_t i = 0; i < FUSIONS; i++) {
        if (!in_share(i, device.name))
            continue;
        ebb_cudnn_graph *g = NULL;
        ebb_cudnn_plan *plan = NULL;
        ebb_status status = fusions[i].kind == CONV        ? convolution(&g, i)
                            : fusions[i].kind <= NORM_BACK ? normalisation(&g, i)
                                                           : attention(&g, i);
        if (status == NULL)
            status = ebb_cudnn_plan_make(&plan, g, &target, &rules);
        if (status != NULL)
            assert_int_equal(ebb_status_code(status), EBB_UNSUPPORTED);
        if ((status == NULL) != fusions[i].plans) {
            print_error("%s: %s: %s\n", device.name, fusions[i].what,
                        status == NULL ? "plans now" : ebb_status_text(status));
            wrong++;
        }
        ebb_cudnn_plan_free(plan);
    }
    assert_int_equal(wrong, 0);
}

int main(void)
{
    ebb_status status = ebb_cudnn_open();
    if (status != NULL || !ebb_cudnn_compiles()) {
        printf("SKIP: no fusion is planned: %s\n",
               status != NULL ? ebb_status_text(status)
                              : "no libcuda.so.1 and no stub of it (EBB_CUDA_STUB)");
        return 77;
    }
    for (const char *const *name = ebb_cudnn_described_names; *name != NULL; name++)
        list_test(*name, the_table_holds_on_a_described_device, *name);
    return run_listed();
}
