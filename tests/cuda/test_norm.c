/* test_norm.c: batch norm on the GPU: channels first and last, few and many, split among blocks.
 *
 * Sums are in double on both sides, in other orders: float32 differs by roundings of the elements
 * (a fused multiply-add here and there), float64 by the order of sums.
 */
#include "tests/cuda/halves.h"
#include "tests/owned.h"

typedef struct image {
    int rank;
    int64_t dims[4]; /* [N, C, ...] */
} image;

static const image images[] = {
    {4, {2, 3, 5, 7}},   {4, {3, 40, 1, 2}}, {2, {130, 5}},  {2, {9, 70}}, {3, {2, 2, 3000}},
    {2, {5000, 3}},      {3, {1, 1, 1}},     {3, {0, 4, 3}}, {1, {17}},    {2, {4, 0}},
    {4, {1, 300, 4, 4}}, {2, {1100, 33}}, // so many parts that each warp adds some up
};
static const size_t image_count = sizeof images / sizeof images[0];

static int64_t channels_of(const image *m)
{
    return m->rank > 1 ? m->dims[1] : 1;
}

static void make_positive(ebb_operand *o)
{
    for (size_t i = 0; i < count_of(o); i++)
        set_value(o, i, fabs(value_of(o, i)) + 0.25);
}

static void put_forward(testing *t, const image *m, ebb_dtype dtype, bool training)
{
    const int64_t channels[1] = {channels_of(m)};
    begin(t, training ? EBB_OP_BATCH_NORM_TRAINING : EBB_OP_BATCH_NORMALIZATION);
    put_float(t, "momentum", 0.75);
    ebb_operand *x = put_in(t, dtype, m->rank, m->dims);
    for (size_t i = 0; i < count_of(x); i++)
        set_value(x, i, value_of(x, i) + 3); // a mean far from 0
    for (int k = 0; k < 4; k++)
        put_in(t, dtype, 1, channels);
    make_positive(&t->in[4]);
    put_out(t, dtype, m->rank, m->dims);
    for (int k = 0; training && k < 4; k++)
        put_out(t, dtype, 1, channels);
}

static void put_backward(testing *t, const image *m, ebb_dtype dtype, bool from_output)
{
    const int64_t channels[1] = {channels_of(m)};
    begin(t, from_output ? EBB_OP_BATCH_NORM_GRAD_FROM_OUTPUT : EBB_OP_BATCH_NORM_GRAD);
    put_in(t, dtype, m->rank, m->dims);
    put_in(t, dtype, m->rank, m->dims);
    for (int k = 0; k < 3; k++)
        put_in(t, dtype, 1, channels);
    make_positive(&t->in[2]);
    make_positive(&t->in[4]);
    put_out(t, dtype, m->rank, m->dims);
    put_out(t, dtype, 1, channels);
    put_out(t, dtype, 1, channels);
}

TEST(forward_is_as_plain)
{
    for (size_t i = 0; i < image_count; i++) {
        TESTING(t);
        put_forward(&t, &images[i], EBB_F32, true);
        agrees(&t, "cuda.batch_norm_training", "plain.batch_norm_training");
        end(&t);
        put_forward(&t, &images[i], EBB_F32, false);
        agrees(&t, "cuda.batch_norm", "plain.batch_norm");
        end(&t);
        put_forward(&t, &images[i], EBB_F32, true);
        t.call.op = EBB_OP_BATCH_NORMALIZATION;
        put_int(&t, "training_mode", 1);
        agrees(&t, "cuda.batch_norm", "plain.batch_norm");
    }
}

TEST(backward_is_as_plain)
{
    for (size_t i = 0; i < image_count; i++) {
        TESTING(t);
        put_backward(&t, &images[i], EBB_F32, false);
        agrees(&t, "cuda.batch_norm_grad", "plain.batch_norm_grad");
    }
}

TEST(backward_from_what_is_kept_is_as_plain)
{
    for (size_t i = 0; i < image_count; i++)
        for (int kept = 0; kept < 3; kept++) {
            TESTING(t);
            put_backward(&t, &images[i], EBB_F32, true);
            if (kept == 1)
                put_float(&t, "slope", 0.25);
            if (kept == 2)
                put_float(&t, "elu", 1.5);
            agrees(&t, "cuda.batch_norm_grad_from_output", "plain.batch_norm_grad_from_output");
        }
}

TEST(outputs_that_nobody_wants_are_left_out)
{
    for (uint32_t left = 0; left < 3; left++) {
        TESTING(t);
        put_backward(&t, &images[0], EBB_F32, false);
        unguard(t.out[left].data);
        t.out[left].data = NULL;
        t.out[left].type = ebb_type_none();
        agrees(&t, "cuda.batch_norm_grad", "plain.batch_norm_grad");
    }
}

TEST(statistics_that_nobody_wants_are_left_out)
{
    for (uint32_t left = 0; left < 16; left++) {
        TESTING(t);
        put_forward(&t, &images[left % 2 ? 0 : 5], left / 2 % 2 ? EBB_F64 : EBB_F32, true);
        for (uint32_t o = 1; o < 5; o++)
            if ((left >> (o - 1) & 1) != 0) {
                unguard(t.out[o].data);
                t.out[o] = (ebb_operand){.type = ebb_type_none()};
            }
        agrees(&t, "cuda.batch_norm_training", "plain.batch_norm_training");
    }
}

/* Half the images, then the other half, by the sums over all. */
TEST(rows_of_a_tile_are_rows_of_the_whole)
{
    for (int wide = 0; wide < 2; wide++)
        for (int last = 0; last < 2; last++) {
            const image m = {3, {6, 5, last ? 1 : 7}};
            const ebb_dtype dtype = wide ? EBB_F64 : EBB_F32;
            TESTING(t);
            put_backward(&t, &m, dtype, true);
            put_float(&t, "slope", 0.5);
            run_with(&t, "plain.batch_norm_grad_from_output");
            FREED double *expected = values_of(&t.out[0]);
            memset(t.out[0].data, 0xFF, t.out[0].bytes);
            for (int half = 0; half < 2; half++) {
                ebb_call tile = t.call;
                ebb_operand in[5];
                memcpy(in, t.in, sizeof in);
                for (int k = 0; k < 2; k++) {
                    in[k].type.dims[0] = 3;
                    in[k].bytes /= 2;
                    in[k].data = (char *)in[k].data + (size_t)half * in[k].bytes;
                }
                tile.in = in;
                tile.queue = more_queue;
                check_status(
                    ebb_backend_cuda.parts->batch_norm_rows(
                        &tile, &t.call, (char *)t.out[0].data + (size_t)half * t.out[0].bytes / 2),
                    "batch_norm_rows");
            }
            check_guards(t.out[0].data, t.out[0].bytes, "dx");
            check_close(&t.out[0], expected, bound_for(&t, "cuda.batch_norm_grad_from_output"),
                        "batch_norm_rows");
        }
}

TEST(tiles_are_added_up)
{
    for (int wide = 0; wide < 2; wide++) {
        const int64_t dims[1] = {777};
        const ebb_dtype dtype = wide ? EBB_F64 : EBB_F32;
        TESTING(t);
        begin(&t, EBB_OP_ADD);
        put_in(&t, dtype, 1, dims);
        put_in(&t, dtype, 1, dims);
        FREED double *expected = values_of(&t.in[0]);
        for (size_t i = 0; i < 777; i++) {
            expected[i] += value_of(&t.in[1], i);
            expected[i] = wide ? expected[i] : (double)(float)expected[i];
        }
        t.call.queue = more_queue;
        check_status(ebb_backend_cuda.parts->add(&t.call, dtype, 777, t.in[0].data, t.in[1].data),
                     "add");
        check_guards(t.in[0].data, t.in[0].bytes, "the sum");
        check_close(&t.in[0], expected, 0, "add");
    }
}

/* As ONNX allows: the image in a half, what belongs to a channel in float32. */
TEST(halves_round_once)
{
    for (size_t i = 0; i < image_count; i += i == 5 ? image_count - 6 : 1) // and the last
        for (int mixed = 0; mixed < 2; mixed++) {
            TESTING(t);
            put_forward(&t, &images[i], EBB_F32, true);
            agrees_mixed(&t, "cuda.batch_norm_training", mixed ? 0x1E001Eu : 0);
            end(&t);
            put_forward(&t, &images[i], EBB_F32, false);
            agrees_mixed(&t, "cuda.batch_norm", mixed ? 0x1Eu : 0);
            end(&t);
            put_backward(&t, &images[i], EBB_F32, false);
            agrees_mixed(&t, "cuda.batch_norm_grad", mixed ? 0x6001Cu : 0);
            end(&t);
            put_backward(&t, &images[i], EBB_F32, true);
            put_float(&t, "elu", 1.5);
            agrees_mixed(&t, "cuda.batch_norm_grad_from_output", mixed ? 0x6001Cu : 0);
        }
}

const fixture around_all = {with_cuda, NULL};
