/* test_nested.c: calls inside a call: they need what was planned, also where preparing them fails
 * half way, and where the thread that prepares has more threads than the one that planned.
 */
#include "call.h"

#include "onnx/words/arena.h"

/* Zeros: what is computed does not matter here. */
static void put_zeros(testing *t, ebb_dtype dtype, int rank, const int64_t *dims)
{
    ebb_operand *o = &t->in[t->call.input_count++];
    make_operand(o, dtype, rank, dims);
    memset(o->data, 0, o->bytes);
}

static testing *decoder; // of the streamed one

/* bfloat16: widened, piece by piece: a slot for each thread. */
static void make_softmax(testing *t)
{
    begin(t, EBB_OP_SOFTMAX);
    put_zeros(t, EBB_BF16, 3, D(64, 40, 24));
    put_out(t, EBB_BF16, 3, D(64, 40, 24));
}

static void put_convolution(testing *t)
{
    put_ints(t, "kernel_shape", 2, D(3, 3));
    put_ints(t, "pads", 4, D(1, 1, 1, 1));
}

/* Streamed: its second operand is decoded by an Identity, three rows at a time. */
static void make_weight_grad(testing *t)
{
    begin(t, EBB_OP_CONV_WEIGHT_GRAD);
    put_convolution(t);
    put_zeros(t, EBB_F32, 4, D(7, 6, 5, 5));
    put_zeros(t, EBB_F32, 4, D(7, 4, 5, 5));
    put_out(t, EBB_F32, 4, D(6, 4, 3, 3));
    begin(decoder, EBB_OP_IDENTITY);
    put_zeros(decoder, EBB_F32, 2, D(7, 100));
    put_out(decoder, EBB_F32, 4, D(7, 4, 5, 5));
    t->in[1].source = &decoder->call;
    t->in[1].tile_rows = 3;
}

/* Composed. */
static void make_conv_relu(testing *t)
{
    begin(t, EBB_OP_CONV_RELU);
    put_convolution(t);
    put_zeros(t, EBB_F32, 4, D(2, 3, 5, 5));
    put_zeros(t, EBB_F32, 4, D(4, 3, 3, 3));
    put_out(t, EBB_F32, 4, D(2, 4, 5, 5));
    put_out(t, EBB_U8, 1, D(25));
}

static const struct {
    const char *what, *kernel;
    void (*make)(testing *t);
} calls[] = {
    {"softmax in bfloat16", "widen", make_softmax},
    {"a weight gradient that reads tiles", "stream", make_weight_grad},
    {"a convolution with its ReLU", "compose", make_conv_relu},
};
enum { CALLS = sizeof calls / sizeof calls[0] };

/* Makes and picks; the workspace that it is planned with. */
static size_t plan(testing *t, size_t i)
{
    const ebb_backend *const *cpu;
    size_t bytes = 0;
    calls[i].make(t);
    check_status(ebb_backends("cpu", &cpu), calls[i].what);
    check_status(ebb_pick(&t->call, cpu), calls[i].what);
    assert_string_equal(t->call.kernel->name, calls[i].kernel);
    check_status(t->call.kernel->workspace(&t->call, &bytes), calls[i].what);
    t->call.workspace_bytes = bytes;
    t->call.workspace = guarded(bytes);
    return bytes;
}

/* As a program does it. */
static ebb_status prepare(testing *t)
{
    ebb_status status = t->call.kernel->prepare(&t->call);
    if (status != NULL && t->call.state != NULL)
        t->call.kernel->release(&t->call);
    return status;
}

static void run_and_release(testing *t, size_t i)
{
    check_status(t->call.kernel->run(&t->call), calls[i].what);
    t->call.kernel->release(&t->call);
}

static void finish(testing *t, size_t bytes)
{
    check_guards(t->call.workspace, bytes, "workspace");
    unguard(t->call.workspace);
    if (t->call.op == EBB_OP_CONV_WEIGHT_GRAD)
        end(decoder);
    end(t);
}

static void refuses(testing *t, size_t i)
{
    ebb_status status = prepare(t);
    if (ebb_status_code(status) != EBB_RUNTIME ||
        strstr(ebb_status_text(status), "the test's node: needs ") == NULL)
        fail_msg("%s: %s", calls[i].what,
                 status == NULL ? "prepared with too little" : ebb_status_text(status));
}

TEST(less_workspace_than_is_needed_is_refused)
{
    for (size_t i = 0; i < CALLS; i++) {
        testing t, code;
        decoder = &code;
        size_t bytes = plan(&t, i);
        assert_true(bytes > 0);
        t.call.workspace_bytes = bytes - 1;
        refuses(&t, i);
        t.call.workspace_bytes = bytes;
        check_status(prepare(&t), calls[i].what);
        run_and_release(&t, i);
        finish(&t, bytes);
    }
}

TEST(more_threads_than_were_planned_for_are_refused)
{
    const ebb_threads_before before = ebb_threads_enter(1);
    for (size_t i = 0; i < CALLS; i++) {
        testing t, code;
        size_t bytes, wanted;
        decoder = &code;
        (void)ebb_threads_enter(1);
        bytes = plan(&t, i);
        (void)ebb_threads_enter(8);
        check_status(t.call.kernel->workspace(&t.call, &wanted), calls[i].what);
        assert_true(i != 0 || wanted > bytes);
        if (wanted > bytes) {
            refuses(&t, i);
        } else {
            check_status(prepare(&t), calls[i].what);
            run_and_release(&t, i);
        }
        finish(&t, bytes);
    }
    ebb_threads_leave(before);
}

/* What was prepared before the failure is released, what was not is left alone. */
TEST(running_out_of_memory_while_preparing_is_a_status)
{
    for (size_t i = 0; i < CALLS; i++) {
        testing t, code;
        decoder = &code;
        size_t bytes = plan(&t, i);
        ebb_status status;
        for (long n = 1;; n++) {
            ebb_alloc_fail_after(n);
            status = prepare(&t);
            ebb_alloc_fail_after(0);
            if (status == NULL)
                break;
            assert_int_equal(ebb_status_code(status), EBB_RUNTIME);
            assert_true(n < 1000);
        }
        run_and_release(&t, i);
        finish(&t, bytes);
    }
}
