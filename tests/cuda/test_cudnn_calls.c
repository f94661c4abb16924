/* test_cudnn_calls.c: which batch norms, pools and attentions are cuDNN's, what is asked of it for
 * them, and where their tensors lie. Plans are for a described device: nothing of cuDNN runs. */
#include "tests/cuda/cuda.h"

#include "kernels/cuda/cudnn/cache.h"
#include "kernels/cuda/cudnn_call.h"
#include "kernels/cuda/norm.h"

extern const ebb_kernel ebb_cuda_cudnn_norm[], ebb_cuda_cudnn_pool[], ebb_cuda_cudnn_attention[],
    ebb_cuda_cudnn_heads[];
extern const size_t ebb_cuda_cudnn_pool_count;

/* Types only: a plan needs no bytes. */
static ebb_operand *type_in(testing *t, ebb_dtype dtype, int rank, const int64_t *dims)
{
    ebb_operand *o = &t->in[t->call.input_count++];
    o->type = ebb_type_tensor(dtype, rank, dims);
    o->bytes = count_of(o) * ebb_dtype_bits(dtype) / 8;
    return o;
}

static ebb_operand *type_out(testing *t, ebb_dtype dtype, int rank, const int64_t *dims)
{
    ebb_operand *o = &t->out[t->call.output_count++];
    o->type = ebb_type_tensor(dtype, rank, dims);
    o->bytes = count_of(o) * ebb_dtype_bits(dtype) / 8;
    return o;
}

static const char *read_with(ebb_work_reader read, ebb_work *work, const testing *t)
{
    memset(work, 0, sizeof *work);
    return read(work, &t->call);
}

static void taken(const char *why)
{
    if (why != NULL)
        fail_msg("%s", why);
}

static void refused(const char *why, const char *with)
{
    if (why == NULL || strstr(why, with) == NULL)
        fail_msg("'%s' is not said, but '%s'", with, why != NULL ? why : "nothing");
}

/* The place of a role in a part, or -1. */
static int at(const ebb_work_part *part, ebb_cudnn_role role)
{
    for (int i = 0; i < part->count; i++)
        if (part->roles[i] == (int64_t)role)
            return i;
    return -1;
}

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

static void batch_norm_is_asked_for_with_channels_last(void **state)
{
    (void)state;
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
        assert_true(s->channels_last);
        assert_int_equal(s->channels, 64);
        assert_int_equal(s->batch * s->in[0] * s->in[1], 8 * 28 * 28);
        assert_true(s->epsilon == 1e-3F);
    }
}

static void batch_norms_that_are_not_cudnns_say_why(void **state)
{
    (void)state;
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

/* What nobody wants needs a place all the same; what lies over an operand is made beside it. */
static void gradients_in_place_and_unwanted_ones_lie_in_scratch(void **state)
{
    (void)state;
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
static void statistics_follow_from_what_a_library_saves(void **state)
{
    (void)state;
    const int64_t rows[] = {2, 7, 1000};
    for (int r = 0; r < 3; r++)
        for (int form = 0; form < 3; form++) {
            enum { CHANNELS = 300 };
            double expected[2][CHANNELS];
            float mean[CHANNELS], inv_std[CHANNELS];
            testing t;
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
            end(&t);
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

static void pools_of_channels_last_are_seen_as_images(void **state)
{
    (void)state;
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

static void pools_of_channels_first_keep_their_axes(void **state)
{
    (void)state;
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

static void pools_that_are_not_cudnns_say_why(void **state)
{
    (void)state;
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

/* ---- attention ---- */

static const uint8_t yes[1] = {1};
static const uint16_t zero[1] = {0};

static void put_constant(testing *t, ebb_tensor *value, ebb_dtype dtype, const void *data)
{
    ebb_operand *o = type_in(t, dtype, 0, NULL);
    memset(value, 0, sizeof *value);
    value->type = o->type;
    value->bytes = o->bytes;
    value->data = (void *)(uintptr_t)data;
    o->constant = value;
}

static ebb_tensor masks[2];

/* 2 batches of 3 heads; 40 queries of 16 features, 56 keys, values of 24. */
static void put_attention(testing *t, ebb_op op)
{
    const bool back = op == EBB_OP_EBB_ATTENTION_GRAD;
    begin(t, op);
    put_ints(t, "k_perm", 4, D(0, 1, 3, 2));
    put_float(t, "scale", 0.25);
    if (back)
        type_in(t, EBB_BF16, 4, D(2, 3, 40, 24));
    type_in(t, EBB_BF16, 4, D(2, 3, 40, 16));
    type_in(t, EBB_BF16, 4, D(2, 3, 56, 16));
    type_in(t, EBB_BF16, 4, D(2, 3, 56, 24));
    put_constant(t, &masks[0], EBB_BOOL, yes);
    put_constant(t, &masks[1], EBB_BF16, zero);
    for (int k = 0; back && k < 2; k++)
        type_in(t, EBB_F32, 4, D(2, 3, 40, 1));
    type_out(t, EBB_BF16, 4, back ? D(2, 3, 40, 16) : D(2, 3, 40, 24));
    if (back) {
        type_out(t, EBB_BF16, 4, D(2, 3, 56, 16));
        type_out(t, EBB_BF16, 4, D(2, 3, 56, 24));
    } else {
        type_out(t, EBB_F32, 4, D(2, 3, 40, 1));
        type_out(t, EBB_F32, 4, D(2, 3, 40, 1));
    }
}

static void attention_gives_what_the_operator_keeps(void **state)
{
    (void)state;
    ebb_work w;
    testing t;
    put_attention(&t, EBB_OP_EBB_ATTENTION);
    taken(read_with(ebb_cuda_read_cudnn_attention, &w, &t));
    const ebb_cudnn_attention_sizes *s = &w.part[0].ask.of.attention;
    assert_int_equal(w.parts, 1);
    assert_int_equal(w.part[0].ask.with, EBB_CUDNN_WITH_PARTS);
    assert_int_equal(w.part[0].index[at(&w.part[0], EBB_CUDNN_MAX)], 1);
    assert_int_equal(w.part[0].index[at(&w.part[0], EBB_CUDNN_SUM)], 2);
    assert_int_equal(at(&w.part[0], EBB_CUDNN_BIAS), -1);
    assert_int_equal(s->batch * 1000 + s->heads, 2003);
    assert_int_equal(s->queries * 1000 + s->keys, 40056);
    assert_int_equal(s->width * 1000 + s->value_width, 16024);
    assert_true(s->scale == 0.25F && !s->causal && !s->bias && s->dropout == 0);
    t.out[1].type = t.out[2].type = ebb_type_none(); // no training
    taken(read_with(ebb_cuda_read_cudnn_attention, &w, &t));
    assert_int_equal(w.part[0].ask.with, EBB_CUDNN_WITH_STATS); // it has no kernel for neither
    assert_int_equal(w.part[0].place[at(&w.part[0], EBB_CUDNN_STATS)], EBB_WORK_OWN);
}

static void its_gradient_finds_the_output_again(void **state)
{
    (void)state;
    ebb_work w;
    testing t;
    put_attention(&t, EBB_OP_EBB_ATTENTION_GRAD);
    t.out[0].over = 2; // dQ over Q, which both plans read
    taken(read_with(ebb_cuda_read_cudnn_attention, &w, &t));
    const ebb_work_part *again = &w.part[0], *back = &w.part[1];
    assert_int_equal(w.parts, 2);
    assert_int_equal(again->ask.kind, EBB_ASK_ATTENTION);
    assert_int_equal(again->ask.with, EBB_CUDNN_WITH_STATS);
    assert_int_equal(back->ask.kind, EBB_ASK_ATTENTION_BACKWARD);
    assert_true(back->ask.of.attention.deterministic);
    const ebb_cudnn_role passed[] = {EBB_CUDNN_O, EBB_CUDNN_STATS};
    for (int i = 0; i < 2; i++) {
        const int from = at(again, passed[i]), to = at(back, passed[i]);
        assert_int_equal(again->place[from], EBB_WORK_OWN);
        assert_int_equal(back->place[to], EBB_WORK_OWN);
        assert_int_equal(again->index[from], back->index[to]);
    }
    assert_int_equal(w.bytes[again->index[at(again, EBB_CUDNN_O)]], 2 * 3 * 40 * 24 * 2);
    assert_int_equal(w.bytes[again->index[at(again, EBB_CUDNN_STATS)]], 2 * 3 * 40 * 4);
    assert_int_equal(w.bytes[back->index[at(back, EBB_CUDNN_ROW_SUMS)]], 2 * 3 * 40 * 4);
    assert_int_equal(at(back, EBB_CUDNN_DQ_SUMS), -1); // its order would not be one
    assert_int_equal(w.copies, 1);
    assert_int_equal(w.copy_to[0], 0);
    assert_int_equal(back->index[at(back, EBB_CUDNN_DK)], 1);
    assert_int_equal(back->index[at(back, EBB_CUDNN_DV)], 2);
}

static void masks_that_cudnn_has_are_told_it(void **state)
{
    (void)state;
    ebb_work w;
    testing t;
    put_attention(&t, EBB_OP_EBB_ATTENTION);
    put_int(&t, "causal", 1); // its fill is -infinity
    taken(read_with(ebb_cuda_read_cudnn_attention, &w, &t));
    assert_true(w.part[0].ask.of.attention.causal);
    put_float(&t, "fill", -3e38); // as little as nothing, with no bias
    taken(read_with(ebb_cuda_read_cudnn_attention, &w, &t));
    t.attr[3].f = -10000;
    refused(read_with(ebb_cuda_read_cudnn_attention, &w, &t), "future");

    put_attention(&t, EBB_OP_EBB_ATTENTION);
    t.in[4].constant = NULL; // a bias for the keys of each sequence
    t.in[4].type = ebb_type_tensor(EBB_BF16, 4, D(2, 1, 1, 56));
    taken(read_with(ebb_cuda_read_cudnn_attention, &w, &t));
    const ebb_cudnn_attention_sizes *s = &w.part[0].ask.of.attention;
    assert_true(s->bias && !s->causal);
    assert_int_equal(s->bias_batch * 10000 + s->bias_heads * 100 + s->bias_rows, 20101);
    assert_int_equal(w.part[0].place[at(&w.part[0], EBB_CUDNN_BIAS)], EBB_WORK_OWN);
    assert_int_equal(w.bytes[w.part[0].index[at(&w.part[0], EBB_CUDNN_BIAS)]], 2 * 56 * 2);
    t.in[3].constant = NULL; // and keys that are left out, for each head
    t.in[3].type = ebb_type_tensor(EBB_BOOL, 3, D(3, 40, 56));
    taken(read_with(ebb_cuda_read_cudnn_attention, &w, &t));
    assert_int_equal(s->bias_batch * 10000 + s->bias_heads * 100 + s->bias_rows, 20340);
}

/* -infinity is what the library does to the future; another fill is put into the bias. */
static void causality_beside_a_mask_is_the_librarys_where_it_is_exact(void **state)
{
    (void)state;
    ebb_work w;
    testing t;
    put_attention(&t, EBB_OP_EBB_ATTENTION);
    put_int(&t, "causal", 1);
    t.in[3].constant = NULL;
    t.in[3].type = ebb_type_tensor(EBB_BOOL, 4, D(2, 1, 1, 56));
    taken(read_with(ebb_cuda_read_cudnn_attention, &w, &t));
    const ebb_cudnn_attention_sizes *s = &w.part[0].ask.of.attention;
    assert_true(s->causal && s->bias);
    assert_int_equal(s->bias_batch * 10000 + s->bias_heads * 100 + s->bias_rows, 20101);
    put_float(&t, "fill", -3e38);
    taken(read_with(ebb_cuda_read_cudnn_attention, &w, &t));
    assert_true(!s->causal && s->bias);
    assert_int_equal(s->bias_batch * 10000 + s->bias_heads * 100 + s->bias_rows, 20140);
}

/* [d, t] is turned before, and its gradient after: both lie in scratch. */
static void a_turned_key_is_turned_back(void **state)
{
    (void)state;
    ebb_work w;
    testing t;
    put_attention(&t, EBB_OP_EBB_ATTENTION_GRAD);
    t.ints[0][2] = 2;
    t.ints[0][3] = 3;
    t.in[2].type = t.out[1].type = ebb_type_tensor(EBB_BF16, 4, D(2, 3, 16, 56));
    taken(read_with(ebb_cuda_read_cudnn_attention, &w, &t));
    for (int part = 0; part < 2; part++) {
        const int k = at(&w.part[part], EBB_CUDNN_K);
        assert_int_equal(w.part[part].place[k], EBB_WORK_OWN);
        assert_int_equal(w.bytes[w.part[part].index[k]], 2 * 3 * 16 * 56 * 2);
    }
    const int dk = at(&w.part[1], EBB_CUDNN_DK);
    assert_int_equal(w.part[1].place[dk], EBB_WORK_OWN);
    assert_int_equal(w.bytes[w.part[1].index[dk]], 2 * 3 * 16 * 56 * 2);
    assert_int_equal(w.part[1].ask.of.attention.keys, 56);
    assert_int_equal(w.part[1].ask.of.attention.width, 16);
}

static void attentions_that_are_not_cudnns_say_why(void **state)
{
    (void)state;
    ebb_work w;
    testing t;
    put_attention(&t, EBB_OP_EBB_ATTENTION);
    t.in[3].constant = NULL; // a mask that is made in the step
    put_float(&t, "fill", -10000);
    refused(read_with(ebb_cuda_read_cudnn_attention, &w, &t), "probability");
    put_attention(&t, EBB_OP_EBB_ATTENTION);
    t.in[3].constant = NULL;
    for (int i = 0; i < 5; i++)
        if (i != 3)
            t.in[i].type.dtype = EBB_F16;
    t.out[0].type.dtype = EBB_F16;
    refused(read_with(ebb_cuda_read_cudnn_attention, &w, &t), "float16");
    put_attention(&t, EBB_OP_EBB_ATTENTION);
    for (int i = 0; i < 5; i++)
        if (i != 3)
            t.in[i].type.dtype = EBB_F32;
    t.out[0].type.dtype = EBB_F32;
    refused(read_with(ebb_cuda_read_cudnn_attention, &w, &t), "float16 and bfloat16");
    put_attention(&t, EBB_OP_EBB_ATTENTION);
    t.in[0].type.dims[3] = t.in[1].type.dims[3] = 20;
    refused(read_with(ebb_cuda_read_cudnn_attention, &w, &t), "multiples of 8");
    for (size_t i = 0; i < 2; i++) // the draws of a dropout are ours
        assert_true(ebb_cuda_cudnn_attention[i].op == EBB_OP_EBB_ATTENTION ||
                    ebb_cuda_cudnn_attention[i].op == EBB_OP_EBB_ATTENTION_GRAD);
}

/* 2 texts, 4 heads of queries for 2 of keys; 40 queries of 16 features, 56 keys, values of 24. */
static void put_heads(testing *t, bool packed, int64_t past)
{
    begin(t, EBB_OP_ATTENTION);
    t->call.version = 24;
    if (packed) {
        put_int(t, "q_num_heads", 4);
        put_int(t, "kv_num_heads", 2);
        type_in(t, EBB_BF16, 3, D(2, 40, 4 * 16));
        type_in(t, EBB_BF16, 3, D(2, 56 - past, 2 * 16));
        type_in(t, EBB_BF16, 3, D(2, 56 - past, 2 * 24));
    } else {
        type_in(t, EBB_BF16, 4, D(2, 4, 40, 16));
        type_in(t, EBB_BF16, 4, D(2, 2, 56 - past, 16));
        type_in(t, EBB_BF16, 4, D(2, 2, 56 - past, 24));
    }
    t->in[t->call.input_count++].type = ebb_type_none();
    if (past > 0) {
        type_in(t, EBB_BF16, 4, D(2, 2, past, 16));
        type_in(t, EBB_BF16, 4, D(2, 2, past, 24));
    }
    if (packed)
        type_out(t, EBB_BF16, 3, D(2, 40, 4 * 24));
    else
        type_out(t, EBB_BF16, 4, D(2, 4, 40, 24));
}

static void heads_are_read_where_they_lie(void **state)
{
    (void)state;
    ebb_work w;
    testing t;
    put_heads(&t, true, 0);
    put_int(&t, "is_causal", 1);
    put_float(&t, "softcap", 30);
    taken(read_with(ebb_cuda_read_cudnn_heads, &w, &t));
    const ebb_cudnn_attention_sizes *s = &w.part[0].ask.of.attention;
    assert_int_equal(s->batch * 10000 + s->heads * 100 + s->kv_heads, 20402);
    assert_int_equal(s->queries * 1000 + s->keys, 40056);
    assert_int_equal(s->width * 1000 + s->value_width, 16024);
    assert_true(s->causal && !s->bias && s->scale == 0.25F && s->cap == 30);
    assert_int_equal(s->q.row, 4 * 16);
    assert_int_equal(s->k.head, 16);
    assert_int_equal(s->v.row, 2 * 24);
    assert_int_equal(s->o.row, 4 * 24);
    assert_int_equal(w.scratches, 1);                       // of what the library keeps of rows
    t.in[3].type = ebb_type_tensor(EBB_BOOL, 2, D(40, 50)); // the last keys are left out
    taken(read_with(ebb_cuda_read_cudnn_heads, &w, &t));
    assert_true(s->causal && s->bias);
    assert_int_equal(s->bias_batch * 10000 + s->bias_heads * 100 + s->bias_rows, 10140);
}

static void past_tokens_are_put_before_the_new_ones(void **state)
{
    (void)state;
    ebb_work w;
    testing t;
    put_heads(&t, true, 16);
    put_int(&t, "is_causal", 1);
    taken(read_with(ebb_cuda_read_cudnn_heads, &w, &t));
    const ebb_cudnn_attention_sizes *s = &w.part[0].ask.of.attention;
    assert_true(!s->causal && s->bias && s->keys == 56); // the diagonal begins behind the past
    assert_int_equal(s->bias_batch * 10000 + s->bias_heads * 100 + s->bias_rows, 10140);
    assert_int_equal(s->k.head, 56 * 16);
    assert_int_equal(w.part[0].place[at(&w.part[0], EBB_CUDNN_K)], EBB_WORK_OWN);
    assert_int_equal(w.bytes[0], 2 * 2 * 56 * 16 * 2);
    type_out(&t, EBB_BF16, 4, D(2, 2, 56, 16));
    taken(read_with(ebb_cuda_read_cudnn_heads, &w, &t));
    assert_int_equal(w.part[0].place[at(&w.part[0], EBB_CUDNN_K)], EBB_WORK_OUT);
    assert_int_equal(w.part[0].index[at(&w.part[0], EBB_CUDNN_K)], 1);
    assert_int_equal(w.part[0].place[at(&w.part[0], EBB_CUDNN_V)], EBB_WORK_OWN);
    assert_int_equal(w.copies, 0);
}

static void heads_that_are_not_cudnns_say_why(void **state)
{
    (void)state;
    ebb_work w;
    testing t;
    put_heads(&t, false, 0);
    taken(read_with(ebb_cuda_read_cudnn_heads, &w, &t));
    t.out[t.call.output_count++].type = ebb_type_none();
    t.out[t.call.output_count++].type = ebb_type_none();
    type_out(&t, EBB_BF16, 4, D(2, 4, 40, 56));
    refused(read_with(ebb_cuda_read_cudnn_heads, &w, &t), "scores");
    put_heads(&t, false, 0);
    for (int i = 0; i < 3; i++)
        t.in[i].type.dtype = EBB_F16;
    t.out[0].type.dtype = EBB_F16;
    taken(read_with(ebb_cuda_read_cudnn_heads, &w, &t));
    t.in[3].type = ebb_type_tensor(EBB_BOOL, 2, D(40, 56));
    refused(read_with(ebb_cuda_read_cudnn_heads, &w, &t), "float16");
    t.in[0].type.dims[3] = t.in[1].type.dims[3] = 20;
    refused(read_with(ebb_cuda_read_cudnn_heads, &w, &t), "multiples of 8");
}

/* ---- plans ---- */

static const ebb_kernel *kernel_for(const ebb_kernel *family, ebb_op op)
{
    while (family->op != op)
        family++;
    return family;
}

/* Bytes that a described device's first plan needs, made past the kernels, whose rules
 * have a bound and so another place in the cache. */
static size_t library_bytes(const ebb_work *w, const char *device)
{
    size_t most = 0;
    for (int i = 0; i < w->parts; i++) {
        const ebb_cuda_cudnn_ask *ask = &w->part[i].ask;
        ebb_cudnn_device d;
        ebb_cudnn_graph *g = NULL;
        ebb_cudnn_plan *plan = NULL;
        int64_t scratch;
        const ebb_cudnn_target target = {.device = &d};
        const ebb_cudnn_rules rules = EBB_CUDNN_EXACT;
        check_status(ebb_cudnn_device_find(&d, device), device);
        check_status(ask->kind == EBB_ASK_POOL ? ebb_cudnn_pool_forward(&g, &ask->of.pool, false)
                     : ask->kind == EBB_ASK_POOL_GRADIENT
                         ? ebb_cudnn_pool_gradient(&g, &ask->of.pool)
                     : ask->kind == EBB_ASK_BATCH_NORM
                         ? ebb_cudnn_batch_norm_forward(&g, &ask->of.norm, ask->with)
                     : ask->kind == EBB_ASK_BATCH_NORM_BACKWARD
                         ? ebb_cudnn_batch_norm_backward(&g, &ask->of.norm, ask->with)
                     : ask->kind == EBB_ASK_ATTENTION
                         ? ebb_cudnn_attention_forward(&g, &ask->of.attention, ask->with)
                         : ebb_cudnn_attention_backward(&g, &ask->of.attention, &scratch),
                     "graph");
        check_status(ebb_cudnn_plan_cached(&plan, g, &target, &rules, NULL), device);
        const size_t bytes = (size_t)ebb_cudnn_plan_choice(plan)->workspace_bytes;
        most = bytes > most ? bytes : most;
        ebb_cudnn_plan_free(plan);
        ebb_cudnn_graph_free(g);
    }
    return most;
}

/* Scratch is ours and counted by hand, the rest is cuDNN's. */
static void check_workspace(testing *t, const ebb_kernel *family, ebb_work_reader read,
                            size_t scratch)
{
    const ebb_kernel *k = kernel_for(family, t->call.op);
    ebb_work w;
    size_t bytes = SIZE_MAX;
    check_status(ebb_cuda_cudnn_describe("h100"), "h100");
    taken(k->declines(&t->call));
    check_status(k->workspace(&t->call, &bytes), k->name);
    taken(read_with(read, &w, t));
    assert_int_equal(bytes, scratch + library_bytes(&w, "h100"));
}

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
    put_pool(&t, EBB_OP_MAX_POOL, EBB_BF16, D(4, 1, 12, 8, 64), D(4, 1, 6, 4, 64));
    check_workspace(&t, ebb_cuda_cudnn_pool, ebb_cuda_read_cudnn_pool, 0);
    put_pool(&t, EBB_OP_AVERAGE_POOL_GRAD, EBB_F32, D(4, 1, 12, 8, 64), D(4, 1, 6, 4, 64));
    check_workspace(&t, ebb_cuda_cudnn_pool, ebb_cuda_read_cudnn_pool, 0);
}

static void attention_is_planned_with_its_scratch(void **state)
{
    (void)state;
    testing t;
    put_attention(&t, EBB_OP_EBB_ATTENTION);
    check_workspace(&t, ebb_cuda_cudnn_attention, ebb_cuda_read_cudnn_attention, 0);
    put_attention(&t, EBB_OP_EBB_ATTENTION_GRAD); // O, stats and row sums
    check_workspace(&t, ebb_cuda_cudnn_attention, ebb_cuda_read_cudnn_attention,
                    11520 + 1024 + 1024);
    t.in[4].constant = NULL; // a mask for each sequence: its bias, the living rows, and dO of these
    t.in[4].type = ebb_type_tensor(EBB_BOOL, 4, D(2, 1, 1, 56));
    check_workspace(&t, ebb_cuda_cudnn_attention, ebb_cuda_read_cudnn_attention,
                    11520 + 1024 + 1024 + 256 + 256 + 11520);
    put_heads(&t, true, 0);
    put_int(&t, "is_causal", 1);
    put_float(&t, "softcap", 30);
    check_workspace(&t, ebb_cuda_cudnn_heads, ebb_cuda_read_cudnn_heads, 1280);
    put_heads(&t, true, 16); // past and new K and V, the bias, the living rows
    put_int(&t, "is_causal", 1);
    check_workspace(&t, ebb_cuda_cudnn_heads, ebb_cuda_read_cudnn_heads,
                    7168 + 10752 + 4608 + 256 + 1280);
}

int main(void)
{
    const struct CMUnitTest calls[] = {
        cmocka_unit_test(batch_norm_is_asked_for_with_channels_last),
        cmocka_unit_test(batch_norms_that_are_not_cudnns_say_why),
        cmocka_unit_test(gradients_in_place_and_unwanted_ones_lie_in_scratch),
        cmocka_unit_test(statistics_follow_from_what_a_library_saves),
        cmocka_unit_test(pools_of_channels_last_are_seen_as_images),
        cmocka_unit_test(pools_of_channels_first_keep_their_axes),
        cmocka_unit_test(pools_that_are_not_cudnns_say_why),
        cmocka_unit_test(attention_gives_what_the_operator_keeps),
        cmocka_unit_test(its_gradient_finds_the_output_again),
        cmocka_unit_test(masks_that_cudnn_has_are_told_it),
        cmocka_unit_test(causality_beside_a_mask_is_the_librarys_where_it_is_exact),
        cmocka_unit_test(a_turned_key_is_turned_back),
        cmocka_unit_test(attentions_that_are_not_cudnns_say_why),
        cmocka_unit_test(heads_are_read_where_they_lie),
        cmocka_unit_test(past_tokens_are_put_before_the_new_ones),
        cmocka_unit_test(heads_that_are_not_cudnns_say_why),
    };
    const struct CMUnitTest compiled[] = {
        cmocka_unit_test(workspaces_hold_scratch_and_what_cudnn_wants),
        cmocka_unit_test(attention_is_planned_with_its_scratch),
    };
    if (setenv("EBB_CACHE", EBB_BINARY_DIR "/cudnn_cache_of_tests", 1) != 0)
        return 1;
    with_cuda();
    int failed = cmocka_run_group_tests(calls, NULL, NULL);
    ebb_status status = ebb_cudnn_open();
#if defined(__SANITIZE_ADDRESS__) // a compiler's own business, and slow under them
    printf("SKIP: kernels are compiled in the build without sanitizers\n");
    return failed;
#endif
    if (status == NULL && ebb_cudnn_compiles())
        return failed + cmocka_run_group_tests(compiled, NULL, NULL);
    printf("SKIP: no kernel is planned: %s\n",
           status != NULL ? ebb_status_text(status)
                          : "no libcuda.so.1 and no stub of it (EBB_CUDA_STUB)");
    return failed != 0 ? failed : 77;
}
