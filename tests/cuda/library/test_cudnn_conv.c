/* test_cudnn_conv.c: calls of convolutions as cuDNN's layer is asked for them, and the plans that
 * described devices have for them. Nothing runs. */
#include "tests/cuda/library/cudnn_play.h"

#include <sys/wait.h>
#include <unistd.h>

extern const ebb_kernel ebb_cuda_cudnn_conv[];

/* The notes' bits as cuDNN's header numbers them. */
enum { TENSOR_CORE = 1, DOWN_CONVERT = 2, NONDETERMINISTIC = 16 };

static const ebb_kernel *kernel_of(ebb_op op)
{
    const ebb_kernel *k = ebb_cuda_cudnn_conv;
    while (k->op != op)
        k++;
    return k;
}

/* What is asked of cuDNN for a call; the reader clears nothing, as its callers do. */
static const char *ask_of(ebb_cuda_cudnn_ask *ask, const ebb_call *c)
{
    ebb_work work;
    memset(&work, 0, sizeof work);
    const char *why = ebb_cuda_read_cudnn_conv(&work, c);
    *ask = work.part[0].ask;
    return why;
}

/* [8, 28, 28, 64] by 128 filters of 3 x 3, stride 2: one of a residual network. */
static void put_layer(testing *t, ebb_op op, ebb_dtype dtype)
{
    const int64_t *x = D(8, 28, 28, 64), *w = D(128, 3, 3, 64), *y = D(8, 14, 14, 128);
    const bool forward = op == EBB_OP_CONV_NHWC, weight = op == EBB_OP_CONV_WEIGHT_GRAD_NHWC;
    begin(t, op);
    put_ints(t, "strides", 2, D(2, 2));
    put_ints(t, "pads", 4, D(1, 1, 1, 1));
    put_ints(t, "output_padding", 2, D(1, 1));
    type_in(t, dtype, 4, forward ? x : y);
    type_in(t, dtype, 4, weight ? x : w);
    type_out(t, dtype, 4, forward ? y : weight ? w : x);
}

static const ebb_op layers[] = {EBB_OP_CONV_NHWC, EBB_OP_CONV_TRANSPOSE_NHWC,
                                EBB_OP_CONV_WEIGHT_GRAD_NHWC};

/* ---- what is asked ---- */

TEST(three_ways_of_one_layer_have_the_same_sizes)
{
    static const ebb_cuda_cudnn_kind ways[] = {EBB_ASK_CONV, EBB_ASK_CONV_DATA,
                                               EBB_ASK_CONV_FILTER};
    for (int i = 0; i < 3; i++) {
        ebb_cuda_cudnn_ask ask;
        const ebb_cudnn_conv_sizes *s = &ask.of.conv;
        testing t;
        put_layer(&t, layers[i], EBB_BF16);
        assert_null(ask_of(&ask, &t.call));
        assert_int_equal(ask.kind, ways[i]);
        assert_int_equal(ask.with, 0);
        assert_int_equal(s->dtype, EBB_BF16);
        assert_true(s->channels_last);
        assert_int_equal(s->batch, 8);
        assert_int_equal(s->channels, 64);
        assert_int_equal(s->filters, 128);
        assert_int_equal(s->groups, 1);
        assert_int_equal(s->window.spatial, 2);
        for (int axis = 0; axis < 2; axis++) {
            assert_int_equal(s->in[axis], 28);
            assert_int_equal(s->kernel[axis], 3);
            assert_int_equal(s->window.stride[axis], 2);
            assert_int_equal(s->window.dilation[axis], 1);
            assert_int_equal(s->window.before[axis], 1);
            assert_int_equal(s->window.after[axis], 1);
        }
    }
}

TEST(one_and_three_axes_begin_at_the_first_entry)
{
    ebb_cuda_cudnn_ask ask;
    testing t;
    begin(&t, EBB_OP_CONV);
    put_ints(&t, "strides", 1, D(3));
    put_ints(&t, "dilations", 1, D(2));
    put_ints(&t, "pads", 2, D(4, 5));
    put_int(&t, "group", 2);
    type_in(&t, EBB_F32, 3, D(1, 6, 41)); // one image: it need not end anywhere
    type_in(&t, EBB_F32, 3, D(10, 3, 5));
    type_in(&t, EBB_F32, 1, D(10));
    type_out(&t, EBB_F32, 3, D(1, 10, 14));
    assert_null(ask_of(&ask, &t.call));
    assert_int_equal(ask.with, EBB_CUDNN_WITH_BIAS);
    assert_false(ask.of.conv.channels_last);
    assert_int_equal(ask.of.conv.groups, 2);
    assert_int_equal(ask.of.conv.window.spatial, 1);
    assert_int_equal(ask.of.conv.in[0], 41);
    assert_int_equal(ask.of.conv.kernel[0], 5);
    assert_int_equal(ask.of.conv.window.stride[0], 3);
    assert_int_equal(ask.of.conv.window.dilation[0], 2);
    assert_int_equal(ask.of.conv.window.before[0], 4);
    assert_int_equal(ask.of.conv.window.after[0], 5);
    begin(&t, EBB_OP_CONV);
    put_ints(&t, "strides", 3, D(1, 2, 3));
    type_in(&t, EBB_F16, 5, D(2, 6, 7, 8, 9));
    type_in(&t, EBB_F16, 5, D(4, 6, 1, 2, 3));
    type_out(&t, EBB_F16, 5, D(2, 4, 7, 4, 3));
    assert_null(ask_of(&ask, &t.call));
    for (int axis = 0; axis < 3; axis++) {
        assert_int_equal(ask.of.conv.in[axis], 7 + axis);
        assert_int_equal(ask.of.conv.kernel[axis], 1 + axis);
        assert_int_equal(ask.of.conv.window.stride[axis], 1 + axis);
    }
}

/* Equal calls must be equal bytes, whatever was in the struct: it is a key. */
TEST(equal_calls_ask_for_equal_bytes)
{
    ebb_cuda_cudnn_ask a, b;
    testing t;
    memset(&a, 0xFF, sizeof a);
    memset(&b, 0x11, sizeof b);
    put_layer(&t, EBB_OP_CONV_NHWC, EBB_BF16);
    assert_null(ask_of(&a, &t.call));
    assert_null(ask_of(&b, &t.call));
    assert_memory_equal(&a, &b, sizeof a);
    put_layer(&t, EBB_OP_CONV_NHWC, EBB_F16);
    assert_null(ask_of(&b, &t.call));
    assert_memory_not_equal(&a, &b, sizeof a);
}

TEST(what_cudnn_has_not_is_left_to_the_own_kernels)
{
    ebb_cuda_cudnn_ask ask;
    testing t;
    put_layer(&t, EBB_OP_CONV_NHWC, EBB_F64);
    assert_non_null(ask_of(&ask, &t.call));
    put_layer(&t, EBB_OP_CONV_NHWC, EBB_F32);
    t.in[0].type.dims[0] = t.out[0].type.dims[0] = 0; // no images
    assert_non_null(ask_of(&ask, &t.call));
    put_layer(&t, EBB_OP_CONV_TRANSPOSE_NHWC, EBB_F32);
    type_in(&t, EBB_F32, 1, D(64)); // its bias
    assert_non_null(ask_of(&ask, &t.call));
    put_layer(&t, EBB_OP_CONV_TRANSPOSE_NHWC, EBB_F32);
    t.out[0].type.dims[1] = 31; // more output_padding than a stride: a window would be lost
    assert_non_null(ask_of(&ask, &t.call));
    put_layer(&t, EBB_OP_CONV_NHWC, EBB_F32);
    type_in(&t, EBB_F32, 1, D(127));
    assert_non_null(ask_of(&ask, &t.call));
    t.in[2].type.dims[0] = 128;
    assert_null(ask_of(&ask, &t.call));
}

/* ---- with a ReLU behind it ---- */

/* The layer above with all that can follow it. */
static void put_joined(testing *t, ebb_op op, ebb_dtype dtype)
{
    put_layer(t, EBB_OP_CONV_NHWC, dtype);
    t->call.op = op;
    type_in(t, dtype, 1, D(128));
    if (op == EBB_OP_CONV_ADD_RELU_NHWC)
        type_in(t, dtype, 4, D(8, 14, 14, 128));
    type_out(t, EBB_U8, 1, D(8 * 14 * 14 * 128 / 8));
}

TEST(what_follows_a_convolution_is_asked_for_with_it)
{
    const unsigned bias = EBB_CUDNN_WITH_BIAS, relu = EBB_CUDNN_WITH_RELU;
    ebb_cuda_cudnn_ask ask, alone;
    ebb_work w;
    testing t;
    put_layer(&t, EBB_OP_CONV_NHWC, EBB_BF16);
    assert_null(ask_of(&alone, &t.call));
    put_joined(&t, EBB_OP_CONV_ADD_RELU_NHWC, EBB_BF16);
    assert_null(ask_of(&ask, &t.call));
    assert_int_equal(ask.kind, EBB_ASK_CONV);
    assert_int_equal(ask.with, bias | EBB_CUDNN_WITH_ADD | relu | EBB_CUDNN_WITH_MASK);
    assert_memory_equal(&ask.of, &alone.of, sizeof ask.of);
    taken(read_with(ebb_cuda_read_cudnn_conv, &w, &t));
    assert_int_equal(w.part[0].index[at(&w.part[0], EBB_CUDNN_ADDED)], 3);
    assert_int_equal(w.part[0].index[at(&w.part[0], EBB_CUDNN_MASK)], 1);
    t.in[2].type = t.out[1].type = ebb_type_none();
    assert_null(ask_of(&ask, &t.call));
    assert_int_equal(ask.with, EBB_CUDNN_WITH_ADD | relu);
    t.call.input_count = 3;
    refused(ask_of(&ask, &t.call), "missing");
    put_joined(&t, EBB_OP_CONV_RELU_NHWC, EBB_F32);
    t.call.output_count = 1;
    assert_null(ask_of(&ask, &t.call));
    assert_int_equal(ask.with, bias | relu);
    put_joined(&t, EBB_OP_CONV_RELU_NHWC, EBB_F16);
    t.in[1].type.dims[0] = t.in[2].type.dims[0] = t.out[0].type.dims[3] = 124;
    refused(ask_of(&ask, &t.call), "multiple of 8");
    put_joined(&t, EBB_OP_CONV_RELU_NHWC, EBB_F16);
    t.out[1].type.dtype = EBB_I32;
    refused(ask_of(&ask, &t.call), "not packed");
}

/* Small whole numbers: every order of a sum has the same bits. */
static void put_small(testing *t, int rank, const int64_t *dims)
{
    ebb_operand *o = put_in(t, EBB_F32, rank, dims);
    for (size_t i = 0; i < count_of(o); i++)
        set_value(o, i, round(4 * value_of(o, i)));
}

static void put_played(testing *t, ebb_op op, bool last, bool add, bool bits)
{
    begin(t, op);
    put_ints(t, "strides", 2, D(2, 1));
    put_ints(t, "dilations", 2, D(1, 2));
    put_ints(t, "pads", 4, D(1, 2, 0, 1));
    put_int(t, "group", 2);
    put_small(t, 4, last ? D(2, 7, 6, 4) : D(2, 4, 7, 6));
    put_small(t, 4, last ? D(16, 3, 3, 2) : D(16, 2, 3, 3));
    put_small(t, 1, D(16));
    if (add)
        put_small(t, 4, D(2, 3, 5, 16));
    put_out(t, EBB_F32, 4, last ? D(2, 3, 5, 16) : D(2, 16, 3, 5));
    if (bits)
        put_out(t, EBB_U8, 1, D(2 * 3 * 5 * 16 / 8));
}

/* The convolution by a plain kernel, the rest by hand. */
static void has_played_well(const testing *t, ebb_op conv, const char *oracle)
{
    testing alone = *t;
    ebb_operand *y = &alone.out[0];
    int positive = 0;
    alone.call.op = conv;
    alone.call.in = alone.in;
    alone.call.out = alone.out;
    alone.call.attrs.list = alone.attr;
    alone.call.input_count = 3;
    alone.call.output_count = 1;
    make_operand(y, EBB_F32, 4, t->out[0].type.dims);
    run_with(&alone, oracle);
    for (size_t i = 0; i < count_of(y); i++) {
        const double sum = value_of(y, i) + (t->call.input_count > 3 ? value_of(&t->in[3], i) : 0);
        const double z = conv == t->call.op || sum > 0 ? sum : 0;
        assert_true(value_of(&t->out[0], i) == z);
        positive += z > 0;
        if (t->call.output_count > 1)
            assert_int_equal(((const uint8_t *)t->out[1].data)[i / 8] >> i % 8 & 1, z > 0);
    }
    assert_in_range(positive, count_of(y) / 8, count_of(y) * 7 / 8);
    unguard(y->data);
}

static void what_is_asked_for_computes_what_the_operators_say(void **state)
{
    (void)state;
    static const struct {
        ebb_op op;
        bool last, add, bits;
    } rows[] = {
        {EBB_OP_CONV, false, false, false},
        {EBB_OP_CONV_NHWC, true, false, false},
        {EBB_OP_CONV_RELU, false, false, false},
        {EBB_OP_CONV_RELU_NHWC, true, false, true},
        {EBB_OP_CONV_ADD_RELU_NHWC, true, true, false},
        {EBB_OP_CONV_ADD_RELU_NHWC, true, true, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        TESTING(t);
        put_played(&t, rows[i].op, rows[i].last, rows[i].add, rows[i].bits);
        play_convolution(&t, ebb_cuda_read_cudnn_conv);
        has_played_well(&t, rows[i].last ? EBB_OP_CONV_NHWC : EBB_OP_CONV,
                        rows[i].last ? "plain.conv_nhwc" : "plain.conv");
    }
}

/* ---- plans ---- */

TEST(a_described_device_is_found_or_the_known_ones_are_named)
{
    ebb_status status = ebb_cuda_cudnn_describe("h10");
    assert_int_equal(ebb_status_code(status), EBB_USAGE);
    assert_non_null(strstr(ebb_status_text(status), "h100"));
    check_status(ebb_cuda_cudnn_describe("H100"), "describe");
    check_status(ebb_cuda_cudnn_describe(NULL), "describe");
}

/* The workspace is that of a plan which is made here once more, past the kernels. */
static void workspaces_are_those_of_the_described_device(void **state)
{
    (void)state;
    const ebb_dtype dtypes[] = {EBB_BF16, EBB_F32};
    for (int d = 0; d < 2; d++)
        for (int i = 0; i < 3; i++) {
            ebb_cuda_cudnn_ask ask;
            const char *why;
            size_t bytes = SIZE_MAX;
            testing t;
            put_layer(&t, layers[i], dtypes[d]);
            check_status(ebb_cuda_cudnn_describe("h100"), "describe");
            why = ebb_kernel_declines(kernel_of(layers[i]), &t.call);
            if (why != NULL)
                fail_msg("%s", why);
            check_status(kernel_of(layers[i])->workspace(&t.call, &bytes), "workspace");
            assert_null(ask_of(&ask, &t.call));

            ebb_cudnn_device h100;
            ebb_cudnn_graph *graph = NULL;
            ebb_cudnn_plan *plan = NULL;
            const ebb_cudnn_target target = {.device = &h100};
            const ebb_cudnn_rules rules = EBB_CUDNN_EXACT;
            check_status(ebb_cudnn_device_find(&h100, "h100"), "device");
            check_status(i == 0   ? ebb_cudnn_conv_forward(&graph, &ask.of.conv, 0)
                         : i == 1 ? ebb_cudnn_conv_backward_data(&graph, &ask.of.conv)
                                  : ebb_cudnn_conv_backward_filter(&graph, &ask.of.conv),
                         "graph");
            check_status(ebb_cudnn_plan_make(&plan, graph, &target, &rules), "plan");
            const ebb_cudnn_choice *c = ebb_cudnn_plan_choice(plan);
            assert_int_equal(bytes, c->workspace_bytes); // nothing is added for an alignment
            assert_int_equal(c->numeric & NONDETERMINISTIC, 0);
            assert_true(d == 0 || (c->numeric & (TENSOR_CORE | DOWN_CONVERT)) == 0);
            ebb_cudnn_plan_free(plan);
        }
}

/* Nothing in their place: neither scratch memory nor, with channels last, cuDNN's own. */
static void what_is_joined_takes_the_workspace_of_its_plan(void **state)
{
    (void)state;
    static const struct {
        ebb_op op;
        ebb_dtype dtype;
        bool bits;
    } rows[] = {{EBB_OP_CONV_RELU_NHWC, EBB_BF16, false},
                {EBB_OP_CONV_ADD_RELU_NHWC, EBB_BF16, true},
                {EBB_OP_CONV_RELU_NHWC, EBB_F32, false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        testing t;
        put_joined(&t, rows[i].op, rows[i].dtype);
        t.call.output_count = rows[i].bits ? 2 : 1;
        check_workspace(&t, ebb_cuda_cudnn_conv, ebb_cuda_read_cudnn_conv, 0);
        t.out[0].over = 1; // made beside what it lies over
        check_workspace(&t, ebb_cuda_cudnn_conv, ebb_cuda_read_cudnn_conv, t.out[0].bytes);
    }
    testing t;
    put_joined(&t, EBB_OP_CONV_RELU_NHWC, EBB_F32);
    const char *why = ebb_kernel_declines(kernel_of(EBB_OP_CONV_RELU_NHWC), &t.call);
    refused(why, "cuDNN"); // no bits of float32: its parts' kernels compute it
}

/* A tile of a batch would begin between two multiples of 16 bytes. */
static void images_of_odd_sizes_are_left_to_the_own_kernels(void **state)
{
    (void)state;
    testing t;
    check_status(ebb_cuda_cudnn_describe("h100"), "describe");
    begin(&t, EBB_OP_CONV);
    type_in(&t, EBB_F32, 4, D(2, 3, 5, 5));
    type_in(&t, EBB_F32, 4, D(4, 3, 1, 1));
    type_out(&t, EBB_F32, 4, D(2, 4, 5, 5));
    const char *why = ebb_kernel_declines(kernel_of(EBB_OP_CONV), &t.call);
    assert_true(why != NULL && strstr(why, "16 bytes") != NULL);
    t.in[0].type.dims[1] = t.in[1].type.dims[1] = 4; // the weight's rows may be of any size
    t.in[1].type.dims[0] = t.out[0].type.dims[1] = 8;
    why = ebb_kernel_declines(kernel_of(EBB_OP_CONV), &t.call);
    if (why != NULL)
        fail_msg("%s", why);
}

static void tf32_is_used_where_it_is_allowed_only(void **state)
{
    (void)state;
    const char *why;
    ebb_cuda_cudnn_ask ask;
    testing t;
    put_layer(&t, EBB_OP_CONV_NHWC, EBB_F32);
    check_status(ebb_cuda_cudnn_describe("h100"), "describe");
    assert_null(ask_of(&ask, &t.call));
    const ebb_cudnn_plan *exact = ebb_cuda_cudnn_plan(&why, &ask);
    ebb_cuda_tf32 = true;
    const ebb_cudnn_plan *fast = ebb_cuda_cudnn_plan(&why, &ask);
    ebb_cuda_tf32 = false;
    assert_non_null(exact);
    assert_non_null(fast);
    assert_ptr_equal(ebb_cuda_cudnn_plan(&why, &ask), exact); // made once
    assert_int_equal(ebb_cudnn_plan_choice(exact)->numeric & TENSOR_CORE, 0);
    assert_int_not_equal(ebb_cudnn_plan_choice(fast)->numeric & TENSOR_CORE, 0);
}

/* Its first two phases are a plan's; the others need the device. */
static void a_plan_for_a_described_device_does_not_run(void **state)
{
    (void)state;
    const ebb_kernel *k = kernel_of(EBB_OP_CONV_NHWC);
    ebb_cuda_queue queue;
    testing t;
    put_layer(&t, EBB_OP_CONV_NHWC, EBB_BF16);
    memset(&queue, 0, sizeof queue);
    t.call.queue = &queue;
    check_status(ebb_cuda_cudnn_describe("h100"), "describe");
    check_status(k->workspace(&t.call, &t.call.workspace_bytes), "workspace");
    check_status(k->prepare(&t.call), "prepare");
    ebb_status status = k->run(&t.call);
    assert_non_null(strstr(ebb_status_text(status), "planned for a described device"));
    k->release(&t.call);
    assert_null(t.call.state);
}

/* In a process of its own, since a library is opened once. */
static int in_a_child(bool (*question)(void))
{
    int code = 0;
    (void)fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(question() ? 0 : 1);
    assert_int_equal(waitpid(child, &code, 0), child);
    return code;
}

static bool declines_without_cudnn(void)
{
    testing t;
    char text[400] = "";
    put_layer(&t, EBB_OP_CONV_NHWC, EBB_BF16);
    (void)setenv("EBB_CUDNN", "/nowhere/libcudnn.so.9", 1);
    const char *here = ebb_kernel_declines(kernel_of(EBB_OP_CONV_NHWC), &t.call);
    if (ebb_cuda_cudnn_describe("h100") != NULL)
        return false;
    const char *described = ebb_kernel_declines(kernel_of(EBB_OP_CONV_NHWC), &t.call);
    ebb_cuda_cudnn_library(text, sizeof text, false);
    return here != NULL && strstr(here, "cuDNN 9 cannot be opened") != NULL && described != NULL &&
           strstr(described, "cuDNN 9 cannot be opened") != NULL &&
           strstr(text, "no cuDNN 9 (cuDNN 9 cannot be opened: /nowhere") == text;
}

static bool declines_without_a_device(void)
{
    testing t;
    put_layer(&t, EBB_OP_CONV_NHWC, EBB_BF16);
    (void)setenv("EBB_CUDA_ABSENT", "1", 1);
    const char *why = ebb_kernel_declines(kernel_of(EBB_OP_CONV_NHWC), &t.call);
    return why != NULL && strstr(why, "no CUDA device") != NULL;
}

TEST(without_cudnn_the_kernels_say_so)
{
    assert_int_equal(in_a_child(declines_without_cudnn), 0);
}

static void without_a_device_the_kernels_say_so(void **state)
{
    (void)state;
    assert_int_equal(in_a_child(declines_without_a_device), 0);
}

int main(void)
{
    const struct CMUnitTest plans[] = {
        cmocka_unit_test(without_a_device_the_kernels_say_so),
        cmocka_unit_test(workspaces_are_those_of_the_described_device),
        cmocka_unit_test(what_is_asked_for_computes_what_the_operators_say),
        cmocka_unit_test(images_of_odd_sizes_are_left_to_the_own_kernels),
        cmocka_unit_test(tf32_is_used_where_it_is_allowed_only),
        cmocka_unit_test(a_plan_for_a_described_device_does_not_run),
    };
    const struct CMUnitTest compiled[] = {
        cmocka_unit_test(what_is_joined_takes_the_workspace_of_its_plan),
    };
    int failed = run_listed();
    ebb_status status = ebb_cudnn_open();
    if (status == NULL)
        failed += cmocka_run_group_tests(plans, NULL, NULL);
    if (status == NULL && nothing_plans() == NULL)
        failed += cmocka_run_group_tests(compiled, NULL, NULL);
    if (status == NULL)
        return failed;
    printf("SKIP: %zu tests of plans: %s\n", sizeof plans / sizeof plans[0],
           ebb_status_text(status));
    return failed != 0 ? failed : 77;
}
