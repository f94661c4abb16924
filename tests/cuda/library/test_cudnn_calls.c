/* test_cudnn_calls.c: which batch norms and pools are cuDNN's, what is asked of it for them, and
 * where their tensors lie. Plans are for a described device: nothing of cuDNN runs. */
#include "tests/cuda/library/cudnn_reading.h"

#include "kernels/cuda/norm.h"

extern const ebb_kernel ebb_cuda_cudnn_norm[], ebb_cuda_cudnn_pool[];
extern const size_t ebb_cuda_cudnn_pool_count;

/* ---- batch norm ---- */

static void put_norm(testing *t, ebb_op op, ebb_dtype dtype, int64_t rows, int64_t channels)
{
    const bool back = op == EBB_OP_BATCH_NORM_GRAD;
    begin(t, op);
    put_float(t, "epsilon", 1e-3);
    if (op == EBB_OP_BATCH_NORMALIZATION)
        put_int(t, "training_mode", 1);
    type_in(t, dtype, 2, D(rows, channels));
    if (back)
        type_in(t, dtype, 2, D(rows, channels));
    for (int k = 0; k < (back ? 3 : 4); k++)
        type_in(t, EBB_F32, 1, D(channels));
    type_out(t, dtype, 2, D(rows, channels));
    for (int k = 0; k < (back ? 2 : 4); k++)
        type_out(t, EBB_F32, 1, D(channels));
}

TEST(batch_norm_is_asked_for_with_channels_last)
{
    const ebb_op ops[] = {EBB_OP_BATCH_NORMALIZATION, EBB_OP_BATCH_NORM_TRAINING,
                          EBB_OP_BATCH_NORM_GRAD};
    for (int i = 0; i < 3; i++) {
        ebb_work w;
        testing t;
        put_norm(&t, ops[i], EBB_BF16, 8 * 28 * 28, 64);
        taken(read_with(ebb_cuda_read_cudnn_norm, &w, &t));
        const ebb_cudnn_batch_norm_sizes *s = &w.part[0].ask.of.norm;
        assert_int_equal(w.parts, 1);
        assert_int_equal(w.part[0].ask.kind,
                         i < 2 ? EBB_ASK_BATCH_NORM : EBB_ASK_BATCH_NORM_BACKWARD);
        assert_int_equal(w.part[0].ask.with, 0); // no running statistics of cuDNN's
        assert_int_equal(s->dtype, EBB_BF16);
        assert_int_equal(s->channels, 64);
        assert_int_equal(s->rows, 8 * 28 * 28);
        assert_true(s->epsilon == 1e-3F);
    }
}

TEST(batch_norms_that_are_not_cudnns_say_why)
{
    ebb_work w;
    testing t;
    put_norm(&t, EBB_OP_BATCH_NORM_TRAINING, EBB_F64, 64, 8);
    refused(read_with(ebb_cuda_read_cudnn_norm, &w, &t), "float32");
    put_norm(&t, EBB_OP_BATCH_NORM_TRAINING, EBB_BF16, 64, 8);
    t.in[1].type.dtype = EBB_BF16; // a scale
    refused(read_with(ebb_cuda_read_cudnn_norm, &w, &t), "float32 only");
    put_norm(&t, EBB_OP_BATCH_NORM_GRAD, EBB_BF16, 64, 8);
    t.out[2].type.dtype = EBB_BF16; // and its gradient
    refused(read_with(ebb_cuda_read_cudnn_norm, &w, &t), "float32 only");
    put_norm(&t, EBB_OP_BATCH_NORMALIZATION, EBB_BF16, 64, 8);
    t.attr[1].i = 0;
    refused(read_with(ebb_cuda_read_cudnn_norm, &w, &t), "running statistics");
    put_norm(&t, EBB_OP_BATCH_NORM_GRAD, EBB_BF16, 64, 8);
    t.out[0].type = ebb_type_none(); // by tiles, its sums come first (stream.c)
    refused(read_with(ebb_cuda_read_cudnn_norm, &w, &t), "sums");
    put_norm(&t, EBB_OP_BATCH_NORM_TRAINING, EBB_BF16, 64, 63);
    refused(read_with(ebb_cuda_read_cudnn_norm, &w, &t), "16 bytes");
    put_norm(&t, EBB_OP_BATCH_NORM_TRAINING, EBB_BF16, 1, 8);
    refused(read_with(ebb_cuda_read_cudnn_norm, &w, &t), "too little");
    begin(&t, EBB_OP_BATCH_NORM_TRAINING); // channels first
    type_in(&t, EBB_F32, 4, D(2, 8, 5, 5));
    for (int k = 0; k < 4; k++)
        type_in(&t, EBB_F32, 1, D(8));
    type_out(&t, EBB_F32, 4, D(2, 8, 5, 5));
    refused(read_with(ebb_cuda_read_cudnn_norm, &w, &t), "last");
}

/* With a ReLU behind it, what is added before that, and the bits. */
static void put_norm_relu(testing *t, ebb_op op, ebb_dtype dtype, int64_t rows, int64_t channels)
{
    const bool back = op == EBB_OP_BATCH_NORM_RELU_GRAD;
    put_norm(t, back ? EBB_OP_BATCH_NORM_GRAD : EBB_OP_BATCH_NORM_TRAINING, dtype, rows, channels);
    t->call.op = op;
    if (op == EBB_OP_BATCH_NORM_ADD_RELU)
        type_in(t, dtype, 2, D(rows, channels));
    if (back)
        type_in(t, EBB_U8, 1, D((rows * channels + 7) / 8));
    else
        type_out(t, EBB_U8, 1, D((rows * channels + 7) / 8));
    if (back)
        type_out(t, dtype, 2, D(rows, channels));
}

static void reads(const testing *t, unsigned with, size_t tensors)
{
    ebb_work w;
    taken(read_with(ebb_cuda_read_cudnn_norm, &w, t));
    assert_int_equal(w.part[0].ask.with, with);
    assert_int_equal(w.part[0].count, tensors);
    const int mask = at(&w.part[0], EBB_CUDNN_MASK);
    assert_int_equal(mask >= 0, (with & EBB_CUDNN_WITH_MASK) != 0);
    if (mask >= 0)
        assert_int_equal(w.part[0].index[mask], 5); // the operator's bits
}

TEST(what_follows_a_batch_norm_is_asked_for_with_it)
{
    ebb_work w;
    testing t;
    const unsigned relu = EBB_CUDNN_WITH_RELU, mask = EBB_CUDNN_WITH_MASK;
    put_norm_relu(&t, EBB_OP_BATCH_NORM_RELU, EBB_BF16, 64, 16);
    reads(&t, relu | mask, 7);
    t.out[5].type = ebb_type_none();
    reads(&t, relu, 6);
    put_norm_relu(&t, EBB_OP_BATCH_NORM_ADD_RELU, EBB_F32, 64, 16);
    reads(&t, EBB_CUDNN_WITH_ADD | relu | mask, 8);
    put_norm_relu(&t, EBB_OP_BATCH_NORM_RELU_GRAD, EBB_BF16, 64, 16);
    reads(&t, mask | EBB_CUDNN_WITH_ADDED, 10);
    t.out[3].type = ebb_type_none();
    reads(&t, mask, 9);
    put_norm_relu(&t, EBB_OP_BATCH_NORM_RELU, EBB_BF16, 64, 12); // bits of a row end in a byte
    refused(read_with(ebb_cuda_read_cudnn_norm, &w, &t), "16 bytes");
    put_norm_relu(&t, EBB_OP_BATCH_NORM_RELU, EBB_F32, 64, 12);
    refused(read_with(ebb_cuda_read_cudnn_norm, &w, &t), "multiple of 8");
    put_norm_relu(&t, EBB_OP_BATCH_NORM_RELU_GRAD, EBB_F32, 64, 12);
    refused(read_with(ebb_cuda_read_cudnn_norm, &w, &t), "multiple of 8");
    put_norm_relu(&t, EBB_OP_BATCH_NORM_ADD_RELU, EBB_BF16, 64, 16);
    t.in[5].type.dtype = EBB_F32;
    refused(read_with(ebb_cuda_read_cudnn_norm, &w, &t), "added");
}

/* What nobody wants needs a place all the same; what lies over an operand is made beside it. */
TEST(gradients_in_place_and_unwanted_ones_lie_in_scratch)
{
    ebb_work w;
    testing t;
    put_norm(&t, EBB_OP_BATCH_NORM_GRAD, EBB_BF16, 64, 8);
    taken(read_with(ebb_cuda_read_cudnn_norm, &w, &t));
    assert_int_equal(w.scratches, 0);
    assert_int_equal(w.part[0].place[at(&w.part[0], EBB_CUDNN_DX)], EBB_WORK_OUT);
    t.out[0].over = 2; // X
    t.out[1].type = ebb_type_none();
    taken(read_with(ebb_cuda_read_cudnn_norm, &w, &t));
    const int dx = at(&w.part[0], EBB_CUDNN_DX), dscale = at(&w.part[0], EBB_CUDNN_DSCALE);
    assert_int_equal(w.scratches, 2);
    assert_int_equal(w.part[0].place[dx], EBB_WORK_OWN);
    assert_int_equal(w.bytes[w.part[0].index[dx]], 64 * 8 * 2);
    assert_int_equal(w.part[0].place[dscale], EBB_WORK_OWN);
    assert_int_equal(w.bytes[w.part[0].index[dscale]], 8 * sizeof(float));
    assert_int_equal(w.copies, 1);
    assert_int_equal(w.copy_from[0], w.part[0].index[dx]);
    assert_int_equal(w.copy_to[0], 0);
}

/* The last step is ours: by what a plain batch norm saves, it finds what that one writes. */
TEST(statistics_follow_from_what_a_library_saves)
{
    const int64_t rows[] = {2, 7, 1000};
    for (int r = 0; r < 3; r++)
        for (int form = 0; form < 3; form++) {
            enum { CHANNELS = 300 };
            double expected[2][CHANNELS];
            float *mean = guarded(CHANNELS * sizeof *mean);
            float *inv_std = guarded(CHANNELS * sizeof *inv_std);
            TESTING(t);
            begin(&t, form == 0 ? EBB_OP_BATCH_NORMALIZATION : EBB_OP_BATCH_NORM_TRAINING);
            put_float(&t, "momentum", 0.75);
            put_float(&t, "epsilon", 1e-5);
            put_int(&t, form == 0 ? "training_mode" : "unbiased", form != 2);
            ebb_operand *x = put_in(&t, EBB_F32, 2, D(rows[r], CHANNELS));
            for (size_t i = 0; i < count_of(x); i++) // deviations of 0.001 to 100
                set_value(x, i, 3 + value_of(x, i) * pow(10, (double)(i % CHANNELS) / 60 - 3));
            for (int k = 0; k < 4; k++)
                put_in(&t, EBB_F32, 1, D(CHANNELS));
            for (size_t k = 0; k < CHANNELS; k++)
                set_value(&t.in[4], k, fabs(value_of(&t.in[4], k)));
            put_out(&t, EBB_F32, 2, D(rows[r], CHANNELS));
            for (int k = 0; k < 4; k++)
                put_out(&t, EBB_F32, 1, D(CHANNELS));
            run_with(&t, form == 0 ? "plain.batch_norm" : "plain.batch_norm_training");
            for (int k = 0; k < CHANNELS; k++) {
                mean[k] = (float)value_of(&t.out[3], (size_t)k);
                inv_std[k] = (float)value_of(&t.out[4], (size_t)k);
                for (int o = 0; o < 2; o++)
                    expected[o][k] = value_of(&t.out[1 + o], (size_t)k);
            }
            for (int o = 1; o < 5; o++)
                memset(t.out[o].data, 0xFF, t.out[o].bytes);
            t.out[1].data = t.in[3].data; // in place, as the operator allows
            t.call.queue = more_queue;
            check_status(ebb_cuda_batch_norm_finish(&t.call, mean, inv_std), "finish");
            for (size_t k = 0; k < CHANNELS; k++) {
                assert_true(value_of(&t.out[3], k) == (double)mean[k]);
                assert_true(value_of(&t.out[4], k) == (double)inv_std[k]);
                assert_true(fabs(value_of(&t.out[1], k) - expected[0][k]) < 1e-6);
                const double error = fabs(value_of(&t.out[2], k) - expected[1][k]);
                if (!(error < 4e-7 * (expected[1][k] + 1e-5)))
                    fail_msg("variance of channel %zu of %d rows: %g beside %g", k, (int)rows[r],
                             value_of(&t.out[2], k), expected[1][k]);
            }
            t.out[1].data = NULL; // the input's
            unguard(mean);
            unguard(inv_std);
        }
}

/* ---- pools ---- */

static void put_pool(testing *t, ebb_op op, ebb_dtype dtype, const int64_t *wide,
                     const int64_t *narrow)
{
    const bool back = op == EBB_OP_AVERAGE_POOL_GRAD;
    begin(t, op);
    put_ints(t, "kernel_shape", 3, D(3, 3, 1));
    put_ints(t, "strides", 3, D(2, 2, 1));
    put_ints(t, "pads", 6, D(1, 1, 0, 1, 1, 0));
    type_in(t, dtype, 5, back ? narrow : wide);
    type_out(t, dtype, 5, back ? wide : narrow);
}

TEST(pools_of_channels_last_are_seen_as_images)
{
    const ebb_op ops[] = {EBB_OP_MAX_POOL, EBB_OP_AVERAGE_POOL, EBB_OP_AVERAGE_POOL_GRAD};
    const ebb_cudnn_pool_kind kinds[] = {EBB_CUDNN_MAX_POOL, EBB_CUDNN_AVERAGE_POOL_INSIDE,
                                         EBB_CUDNN_AVERAGE_POOL_INSIDE};
    for (int i = 0; i < 3; i++) {
        ebb_work w;
        testing t;
        put_pool(&t, ops[i], EBB_BF16, D(4, 1, 12, 8, 64), D(4, 1, 6, 4, 64));
        taken(read_with(ebb_cuda_read_cudnn_pool, &w, &t));
        const ebb_cudnn_pool_sizes *s = &w.part[0].ask.of.pool;
        assert_int_equal(s->kind, kinds[i]);
        assert_true(s->channels_last);
        assert_int_equal(s->batch, 4);
        assert_int_equal(s->channels, 64);
        assert_int_equal(s->window.spatial, 2);
        for (int axis = 0; axis < 2; axis++) {
            assert_int_equal(s->in[axis], axis == 0 ? 12 : 8);
            assert_int_equal(s->out[axis], axis == 0 ? 6 : 4);
            assert_int_equal(s->window.size[axis], 3);
            assert_int_equal(s->window.stride[axis], 2);
            assert_int_equal(s->window.before[axis], 1);
            assert_int_equal(s->window.after[axis], 0); // no window needs the other
        }
    }
}

TEST(pools_of_channels_first_keep_their_axes)
{
    ebb_work w;
    testing t;
    begin(&t, EBB_OP_MAX_POOL);
    put_ints(&t, "kernel_shape", 1, D(3));
    put_ints(&t, "strides", 1, D(2));
    put_int(&t, "ceil_mode", 1);
    type_in(&t, EBB_F32, 3, D(2, 4, 8));
    type_out(&t, EBB_F32, 3, D(2, 4, 4));
    taken(read_with(ebb_cuda_read_cudnn_pool, &w, &t));
    const ebb_cudnn_pool_sizes *s = &w.part[0].ask.of.pool;
    assert_false(s->channels_last);
    assert_int_equal(s->channels, 4);
    assert_int_equal(s->in[0], 1);
    assert_int_equal(s->in[1], 8);
    assert_int_equal(s->window.size[0], 1);
    assert_int_equal(s->window.size[1], 3);
    assert_int_equal(s->window.after[1], 1); // the last window reaches one past the end
}

TEST(pools_that_are_not_cudnns_say_why)
{
    ebb_work w;
    testing t;
    put_pool(&t, EBB_OP_MAX_POOL, EBB_BF16, D(4, 1, 12, 8, 64), D(4, 1, 6, 4, 64));
    type_out(&t, EBB_I64, 5, D(4, 1, 6, 4, 64));
    refused(read_with(ebb_cuda_read_cudnn_pool, &w, &t), "Indices");
    put_pool(&t, EBB_OP_MAX_POOL, EBB_BF16, D(4, 1, 14, 10, 64), D(4, 1, 6, 4, 64));
    put_ints(&t, "dilations", 3, D(2, 2, 1));
    refused(read_with(ebb_cuda_read_cudnn_pool, &w, &t), "dilation");
    put_pool(&t, EBB_OP_AVERAGE_POOL, EBB_F64, D(4, 1, 12, 8, 64), D(4, 1, 6, 4, 64));
    refused(read_with(ebb_cuda_read_cudnn_pool, &w, &t), "float32");
    put_pool(&t, EBB_OP_AVERAGE_POOL, EBB_F32, D(4, 1, 12, 12, 64), D(4, 1, 7, 7, 64));
    put_int(&t, "ceil_mode", 1);
    taken(read_with(ebb_cuda_read_cudnn_pool, &w, &t));
    put_int(&t, "count_include_pad", 1);
    refused(read_with(ebb_cuda_read_cudnn_pool, &w, &t), "past the padding");
    // the gradient of a maximum, and its taps, must be of the first of equal elements
    for (size_t i = 0; i < ebb_cuda_cudnn_pool_count; i++) {
        const ebb_op op = ebb_cuda_cudnn_pool[i].op;
        assert_true(op != EBB_OP_MAX_POOL_GRAD && op != EBB_OP_MAX_POOL_PACKED &&
                    op != EBB_OP_MAX_POOL_PACKED_GRAD);
    }
}

/* ---- plans ---- */

static void workspaces_hold_scratch_and_what_cudnn_wants(void **state)
{
    (void)state;
    testing t;
    put_norm(&t, EBB_OP_BATCH_NORM_TRAINING, EBB_BF16, 8 * 28 * 28, 64);
    check_workspace(&t, ebb_cuda_cudnn_norm, ebb_cuda_read_cudnn_norm, 2 * 256);
    put_norm(&t, EBB_OP_BATCH_NORM_GRAD, EBB_F32, 8 * 28 * 28, 64);
    check_workspace(&t, ebb_cuda_cudnn_norm, ebb_cuda_read_cudnn_norm, 0);
    t.out[0].over = 1;
    check_workspace(&t, ebb_cuda_cudnn_norm, ebb_cuda_read_cudnn_norm, 8 * 28 * 28 * 64 * 4);
    put_norm_relu(&t, EBB_OP_BATCH_NORM_ADD_RELU, EBB_BF16, 8 * 28 * 28, 64);
    check_workspace(&t, ebb_cuda_cudnn_norm, ebb_cuda_read_cudnn_norm, 2 * 256);
    put_norm_relu(&t, EBB_OP_BATCH_NORM_RELU_GRAD, EBB_BF16, 8 * 28 * 28, 64);
    check_workspace(&t, ebb_cuda_cudnn_norm, ebb_cuda_read_cudnn_norm, 0);
    put_pool(&t, EBB_OP_MAX_POOL, EBB_BF16, D(4, 1, 12, 8, 64), D(4, 1, 6, 4, 64));
    check_workspace(&t, ebb_cuda_cudnn_pool, ebb_cuda_read_cudnn_pool, 0);
    put_pool(&t, EBB_OP_AVERAGE_POOL_GRAD, EBB_F32, D(4, 1, 12, 8, 64), D(4, 1, 6, 4, 64));
    check_workspace(&t, ebb_cuda_cudnn_pool, ebb_cuda_read_cudnn_pool, 0);
}

int main(void)
{
    const struct CMUnitTest plans[] = {
        cmocka_unit_test(workspaces_hold_scratch_and_what_cudnn_wants),
    };
    return read_then_plan(plans, sizeof plans / sizeof plans[0]);
}
