/* test_cudnn_failures.c: a plan that could not be made for want of memory is asked for again:
 * only what cuDNN cannot do is remembered. Plans are for a described
 * device; failures are the test's. */
#include "tests/kernels/call.h"

#include "kernels/cuda/library/cudnn/internal.h"
#include "kernels/cuda/library/cudnn_plans.h"

static struct {
    cudnnStatus_t (*finalize)(cudnnBackendDescriptor_t);
    cudnnStatus_t code; /* of those that fail */
    int before, fails;  /* so many succeed first, then so many fail */
} fault;

static cudnnStatus_t finalize(cudnnBackendDescriptor_t descriptor)
{
    if (fault.before > 0 || fault.fails == 0) {
        fault.before -= fault.before > 0;
        return fault.finalize(descriptor);
    }
    fault.fails--;
    return fault.code;
}

/* From now on, of the descriptors that are finalized. */
static void break_down(cudnnStatus_t code, int before, int fails)
{
    fault.code = code;
    fault.before = before;
    fault.fails = fails;
}

enum { ALL = 1 << 20 };

static void put_conv(ebb_cudnn_conv_sizes *s, int64_t channels)
{
    memset(s, 0, sizeof *s);
    s->dtype = EBB_BF16;
    s->channels_last = true;
    s->batch = 8;
    s->channels = s->filters = channels;
    s->groups = 1;
    s->window.spatial = 2;
    for (int i = 0; i < 2; i++) {
        s->in[i] = 14;
        s->kernel[i] = 3;
        s->window.stride[i] = s->window.dilation[i] = 1;
        s->window.before[i] = s->window.after[i] = 1;
    }
}

static const ebb_cudnn_plan *plan_of(const char **why, int64_t channels)
{
    ebb_cuda_cudnn_ask ask;
    memset(&ask, 0, sizeof ask);
    put_conv(&ask.of.conv, channels);
    return ebb_cuda_cudnn_plan(why, &ask);
}

TEST(what_failed_for_want_of_memory_is_made_the_next_time)
{
    const char *why = NULL;
    break_down(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, 0, ALL);
    assert_null(plan_of(&why, 8));
    assert_non_null(strstr(why, "ALLOCATION_FAILED"));
    break_down(CUDNN_STATUS_SUCCESS, 0, 0);
    assert_non_null(plan_of(&why, 8));
    assert_null(why);
}

TEST(what_cudnn_cannot_do_is_asked_for_once)
{
    const char *why = NULL;
    break_down(CUDNN_STATUS_NOT_SUPPORTED_SHAPE, 0, ALL);
    assert_null(plan_of(&why, 16));
    const int asked = ALL - fault.fails;
    assert_true(asked > 0);
    assert_null(plan_of(&why, 16));
    assert_int_equal(ALL - fault.fails, asked);
    break_down(CUDNN_STATUS_SUCCESS, 0, 0);
}

int main(void)
{
    ebb_status status = ebb_cudnn_open();
    if (status == NULL)
        status = ebb_cuda_cudnn_describe("h100");
    if (status != NULL) {
        printf("SKIP: no plan can be made: %s\n", ebb_status_text(status));
        return 77;
    }
    fault.finalize = ebb_cudnn.finalize;
    ebb_cudnn.finalize = finalize;
    return run_listed();
}
