/* test_optim_random.c: optimizers' steps and draws on the device: the plain kernels' numbers, and
 * for draws their bits. */
#include "tests/cuda/bits.h"
#include "tests/cuda/halves.h"
#include "tests/owned.h"

static const int64_t sizes[] = {0, 1, 7, 8, 9, 257, 5003};
enum { SIZES = sizeof sizes / sizeof sizes[0], RATE = 1 }; // input 0 stays float32

static void put_scalar(testing *t, ebb_dtype dtype, double value)
{
    ebb_operand *o = put_in(t, dtype, 0, NULL);
    set_value(o, 0, value);
}

static void positive(ebb_operand *o)
{
    for (size_t i = 0; i < count_of(o); i++)
        set_value(o, i, fabs(value_of(o, i)));
}

TEST(sgd_steps_as_on_the_cpu)
{
    for (int i = 0; i < SIZES; i++)
        for (int wide = 0; wide < 2; wide++) {
            ebb_dtype dtype = wide ? EBB_F64 : EBB_F32;
            TESTING(t);
            begin(&t, EBB_OP_SGD);
            put_float(&t, "weight_decay", 0.1);
            put_scalar(&t, EBB_F32, 0.25);
            put_in(&t, dtype, 1, &sizes[i]);
            put_in(&t, dtype, 1, &sizes[i]);
            put_out(&t, dtype, 1, &sizes[i]);
            agrees(&t, "cuda.sgd", "plain.sgd");
            if (!wide)
                agrees_mixed(&t, "cuda.sgd", RATE);
        }
}

TEST(momentum_steps_in_every_mode)
{
    for (int i = 0; i < SIZES; i++)
        for (int mode = 0; mode < 4; mode++) {
            ebb_dtype dtype = mode % 2 ? EBB_F64 : EBB_F32;
            const int64_t other = 3;
            TESTING(t);
            begin(&t, EBB_OP_MOMENTUM);
            put_float(&t, "alpha", 0.9);
            put_float(&t, "beta", 0.5);
            put_float(&t, "norm_coefficient", 0.01);
            put_string(&t, "mode", mode < 2 ? "standard" : "nesterov");
            put_scalar(&t, EBB_F32, 0.1);
            put_scalar(&t, EBB_I64, 256.0 * (mode % 3)); // its first byte is 0
            for (int k = 0; k < 3; k++) {
                put_in(&t, dtype, 1, &sizes[i]);
                put_in(&t, dtype, 1, &other);
            }
            for (int k = 0; k < 2; k++) {
                put_out(&t, dtype, 1, &sizes[i]);
                put_out(&t, dtype, 1, &other);
            }
            agrees(&t, "cuda.momentum", "plain.momentum");
            if (dtype == EBB_F32)
                agrees_mixed(&t, "cuda.momentum", RATE);
        }
}

TEST(adamw_corrects_by_the_count_that_it_reads)
{
    for (int i = 0; i < SIZES; i++)
        for (int steps = 0; steps < 3; steps++) {
            ebb_dtype dtype = steps == 1 ? EBB_F64 : EBB_F32;
            TESTING(t);
            begin(&t, EBB_OP_ADAMW);
            put_float(&t, "weight_decay", 0.05);
            put_scalar(&t, EBB_F32, 0.01);
            put_scalar(&t, EBB_I64, 10.0 * steps);
            for (int k = 0; k < 3; k++)
                put_in(&t, dtype, 1, &sizes[i]);
            positive(put_in(&t, dtype, 1, &sizes[i]));
            for (int k = 0; k < 3; k++)
                put_out(&t, dtype, 1, &sizes[i]);
            agrees(&t, "cuda.adamw", "plain.adamw");
            if (dtype == EBB_F32)
                agrees_mixed(&t, "cuda.adamw", RATE);
        }
}

/* Two groups, of which each has states of its own. */
TEST(adam_and_adagrad_step_in_groups)
{
    for (int i = 0; i < SIZES; i++)
        for (int steps = 0; steps < 3; steps++)
            for (int states = 1; states < 3; states++) {
                ebb_dtype dtype = steps == 1 ? EBB_F64 : EBB_F32;
                const bool is_adam = states == 2;
                const int64_t n[2] = {sizes[i], 3};
                TESTING(t);
                begin(&t, is_adam ? EBB_OP_ADAM : EBB_OP_ADAGRAD);
                put_float(&t, "norm_coefficient", 0.05);
                if (is_adam)
                    put_float(&t, "alpha", 0.8); // whose upper half is odd
                put_float(&t, is_adam ? "norm_coefficient_post" : "decay_factor", 0.01);
                put_float(&t, "epsilon", 1e-3);
                put_scalar(&t, EBB_F32, 0.01);
                put_scalar(&t, EBB_I64, 10.0 * steps);
                for (int k = 0; k < 2 + states; k++)
                    for (int g = 0; g < 2; g++)
                        if (k == 1 + states)
                            positive(put_in(&t, dtype, 1, &n[g]));
                        else
                            put_in(&t, dtype, 1, &n[g]);
                for (int k = 0; k < 1 + states; k++)
                    for (int g = 0; g < 2; g++)
                        put_out(&t, dtype, 1, &n[g]);
                agrees(&t, is_adam ? "cuda.adam" : "cuda.adagrad",
                       is_adam ? "plain.adam" : "plain.adagrad");
                if (dtype == EBB_F32)
                    agrees_mixed(&t, is_adam ? "cuda.adam" : "cuda.adagrad", RATE);
            }
}

/* Draws are those of the CPU, bit for bit: tolerance 0, masks and packed masks too. */
TEST(dropout_draws_the_same_bits)
{
    static const struct {
        ebb_op op;
        const char *kernel, *oracle;
        int mask; /* 0: none; 1: bools; 2: bits */
    } forms[] = {
        {EBB_OP_EBB_DROPOUT, "cuda.keyed_dropout", "plain.keyed_dropout", 0},
        {EBB_OP_EBB_DROPOUT, "cuda.keyed_dropout", "plain.keyed_dropout", 1},
        {EBB_OP_EBB_DROPOUT_PACKED, "cuda.dropout_packed", "plain.dropout_packed", 2},
        {EBB_OP_EBB_DROPOUT_SEED_GRAD, "cuda.dropout_seed_grad", "plain.dropout_seed_grad", 0},
    };
    for (int i = 0; i < SIZES; i++)
        for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++)
            for (int wide = 0; wide < 2; wide++) {
                ebb_dtype dtype = wide ? EBB_F64 : EBB_F32;
                const int64_t two = 2, bytes = (sizes[i] + 7) / 8;
                TESTING(t);
                begin(&t, forms[f].op);
                put_float(&t, "ratio", 0.3);
                put_int(&t, "stream", 77);
                put_in(&t, dtype, 1, &sizes[i]);
                ebb_operand *key = put_in(&t, EBB_I64, 1, &two);
                ((int64_t *)key->data)[0] = 123456789012345;
                ((int64_t *)key->data)[1] = 42;
                put_out(&t, dtype, 1, &sizes[i]);
                if (forms[f].mask == 1)
                    put_out(&t, EBB_BOOL, 1, &sizes[i]);
                else if (forms[f].mask == 2)
                    put_out(&t, EBB_U8, 1, &bytes);
                same_bits(&t, forms[f].kernel, forms[f].oracle);
            }
}

/* ONNX's: the ratio and whether it trains are operands; the draw is that of seed, stream and step. */
TEST(dropout_without_a_key_draws_the_same_bits)
{
    static const ebb_dtype dtypes[] = {EBB_F32, EBB_F64, EBB_F16, EBB_BF16};
    static const double ratios[] = {0.3, 0, 1};
    for (int i = 0; i < SIZES; i++)
        for (int d = 0; d < 4; d++)
            for (int r = 0; r < 3; r++)
                for (int way = 0; way < 6; way++) { // trains or not; with its mask, without, back
                    const bool back = way / 2 == 2;
                    TESTING(t);
                    begin(&t, back ? EBB_OP_DROPOUT_GRAD : EBB_OP_DROPOUT);
                    t.call.seed = 5;
                    t.call.stream = 99;
                    put_in(&t, dtypes[d], 1, &sizes[i]);
                    if (back) {
                        ebb_operand *mask = put_raw(&t, EBB_BOOL, 1, &sizes[i]);
                        for (size_t e = 0; e < mask->bytes; e++)
                            ((uint8_t *)mask->data)[e] &= 1;
                    }
                    put_scalar(&t, EBB_F32, ratios[r]);
                    make_constant(&t, &t.in[t.call.input_count - 1]);
                    ebb_operand *trains = put_raw(&t, EBB_BOOL, 0, NULL);
                    *(uint8_t *)trains->data = way % 2 == 0;
                    make_constant(&t, trains);
                    put_out(&t, dtypes[d], 1, &sizes[i]);
                    if (way / 2 == 0)
                        put_out(&t, EBB_BOOL, 1, &sizes[i]);
                    same_bits(&t, back ? "cuda.dropout_grad" : "cuda.dropout",
                              back ? "plain.dropout_grad" : "plain.dropout");
                }
}

/* As many as there are in another, of its dtype. */
TEST(draws_like_another_are_those_of_the_cpu)
{
    static const ebb_dtype dtypes[] = {EBB_F32, EBB_F64, EBB_F16, EBB_BF16};
    for (int i = 0; i < SIZES; i++)
        for (int d = 0; d < 4; d++)
            for (int normal = 0; normal < 2; normal++) {
                TESTING(t);
                begin(&t, normal ? EBB_OP_RANDOM_NORMAL_LIKE : EBB_OP_RANDOM_UNIFORM_LIKE);
                put_int(&t, "seed", 7);
                put_in(&t, dtypes[d], 1, &sizes[i]);
                put_out(&t, dtypes[d], 1, &sizes[i]);
                if (normal && dtypes[d] == EBB_F64) // a logarithm and a cosine of the device
                    agrees(&t, "cuda.random_normal_like", "plain.random_normal_like");
                else
                    same_bits(&t, normal ? "cuda.random_normal_like" : "cuda.random_uniform_like",
                              normal ? "plain.random_normal_like" : "plain.random_uniform_like");
            }
}

/* The step's number is read on the device: another step, another draw; the same step, the same. */
TEST(draws_without_a_key_follow_the_step)
{
    const int64_t n = 1000;
    double sums[3];
    for (int k = 0; k < 3; k++) {
        bool replays;
        ebb_fault fault;
        TESTING(t);
        begin(&t, EBB_OP_RANDOM_NORMAL);
        put_out(&t, EBB_F32, 1, &n);
        t.call.seed = 5;
        t.call.stream = 99;
        t.call.step = (uint64_t)(k % 2);
        if (k % 2 == 1) { // step 1 is recorded: on a queue of its own, which keeps the record
            const ebb_device *device = ebb_backend_cuda.device;
            const ebb_kernel *kernel = kernel_named("cuda.random_normal");
            check_status(device->open(&t.call.queue), "open");
            for (uint64_t step = 0; step < 2; step++) {
                check_status(device->begin(t.call.queue, step, &replays), "begin");
                check_status(kernel->run(&t.call), "run");
                check_status(device->end(t.call.queue, &fault), "end");
            }
            device->close(t.call.queue);
            t.call.queue = NULL;
            FREED double *cuda = values_of(&t.out[0]);
            run_with(&t, "plain.random_normal");
            check_close(&t.out[0], cuda, 0, "cuda.random_normal");
        } else {
            agrees(&t, "cuda.random_normal", "plain.random_normal");
        }
        sums[k] = 0;
        for (size_t i = 0; i < count_of(&t.out[0]); i++)
            sums[k] += value_of(&t.out[0], i);
    }
    assert_true(sums[0] == sums[2]);
    assert_true(sums[0] != sums[1]);
}

TEST(uniform_numbers_are_those_of_the_cpu)
{
    for (int i = 0; i < SIZES; i++) {
        TESTING(t);
        begin(&t, EBB_OP_RANDOM_UNIFORM);
        put_float(&t, "low", -2);
        put_float(&t, "high", 3);
        put_int(&t, "seed", 11);
        put_out(&t, EBB_F64, 1, &sizes[i]);
        agrees(&t, "cuda.random_uniform", "plain.random_uniform");
    }
}

/* Bit for bit, near the ends of ranges too, where a draw must not be rounded to what it is below. */
TEST(uniform_numbers_stay_below_their_end)
{
    static const struct {
        ebb_dtype dtype;
        double low, high;
    } draws[] = {{EBB_F32, 1024, 1025}, {EBB_F16, 0, 1}, {EBB_BF16, 1, 3}, {EBB_F16, -2, 65520}};
    for (size_t k = 0; k < sizeof draws / sizeof draws[0]; k++) {
        TESTING(t);
        begin(&t, EBB_OP_RANDOM_UNIFORM);
        put_float(&t, "low", draws[k].low);
        put_float(&t, "high", draws[k].high);
        put_int(&t, "seed", 5);
        put_out(&t, draws[k].dtype, 1, DIMS(1 << 18));
        same_bits(&t, "cuda.random_uniform", "plain.random_uniform");
        const uint16_t *narrow = t.out[0].data;
        for (int i = 0; i < 1 << 18; i++)
            assert_true((draws[k].dtype == EBB_F32 ? (double)((const float *)t.out[0].data)[i]
                         : draws[k].dtype == EBB_F16
                             ? (double)ebb_half_to_float(narrow[i])
                             : (double)ebb_bf16_to_float(narrow[i])) < draws[k].high);
    }
}

static int settle(void **state)
{
    bool replays;
    ebb_fault fault;
    if (with_cuda(state) != 0)
        return 1;
    check_status(ebb_backend_cuda.device->begin(more_queue, 0, &replays), "begin");
    check_status(ebb_backend_cuda.device->end(more_queue, &fault), "end");
    return 0;
}

const fixture around_all = {settle, NULL};
