/* test_low_bit.c: optimizers' steps with states in codes on the device: codes and scales are those
 * of plain bit for bit, weights within rounding (the powers of the corrections are the device's).
 */
#include "tests/cuda/bits.h"

#include "kernels/nested/widen.h"
#include "tests/owned.h"

typedef struct shape {
    int64_t n, block;
    int bits;
} shape;

static const shape shapes[] = {
    {999, 256, 8},   {999, 256, 4},  {1, 32, 8},       {33, 32, 4},
    {0, 256, 8},     {5003, 96, 4},  {4096, 64, 8},    {9000, 4096, 4},
    {9000, 4096, 8}, {2311, 288, 8}, {20000, 2048, 4},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

typedef enum kind { ADAMW, ADAMW_DRAWN, MOMENTUM, MOMENTUM_DRAWN, KINDS } kind;

static const char *const cuda_names[KINDS] = {"cuda.adamw_low_bit", "cuda.adamw_low_bit_stochastic",
                                              "cuda.momentum_low_bit",
                                              "cuda.momentum_low_bit_stochastic"};
static const char *const plain_names[KINDS] = {
    "plain.adamw_low_bit", "plain.adamw_low_bit_stochastic", "plain.momentum_low_bit",
    "plain.momentum_low_bit_stochastic"};
static const ebb_op ops[KINDS] = {EBB_OP_ADAMW_LOW_BIT, EBB_OP_ADAMW_LOW_BIT_STOCHASTIC,
                                  EBB_OP_MOMENTUM_LOW_BIT, EBB_OP_MOMENTUM_LOW_BIT_STOCHASTIC};

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Levels crowded about zero, some of them equal; with both ends at the largest magnitude. */
static void fill_map(testing *t, ebb_operand *map, bool positive)
{
    double level[256] = {0};
    size_t count = count_of(map);
    for (size_t i = 0; i < count; i++) {
        double x = pow((draw(t) + 1) / 2, 4);
        level[i] = !positive && i % 2 == 0 ? -x : x;
    }
    level[3] = level[2];
    level[0] = positive ? 1e-5 : -1;
    level[1] = 1;
    qsort(level, count, sizeof *level, ascending);
    for (size_t i = 0; i < count; i++)
        set_value(map, i, level[i]);
}

static void put_scalar(testing *t, ebb_dtype dtype, double value)
{
    ebb_operand *o = put_in(t, dtype, 0, NULL);
    set_value(o, 0, value);
}

static void put_step(testing *t, kind k, const shape *s, ebb_dtype dtype)
{
    const bool moments = k == ADAMW || k == ADAMW_DRAWN;
    const int64_t blocks = (s->n + s->block - 1) / s->block, codes = (int64_t)1 << s->bits;
    const int64_t bytes = s->bits == 8 ? s->n : (s->n + 1) / 2;
    const uint32_t states = moments ? 2 : 1;
    begin(t, ops[k]);
    put_int(t, "bits", s->bits);
    put_int(t, "block", s->block);
    put_int(t, "stream", 77);
    put_float(t, "alpha", 0.8);
    put_float(t, "beta", moments ? 0.97 : 0.7);
    put_float(t, moments ? "weight_decay" : "norm_coefficient", 0.05);
    put_scalar(t, EBB_F32, 0.01);
    put_scalar(t, EBB_I64, 4);
    put_in(t, dtype, 1, &s->n);
    ebb_operand *g = put_in(t, dtype, 1, &s->n);
    for (size_t i = 0; i < count_of(g); i++) // over several decades, as gradients are
        set_value(g, i, draw(t) * pow(10, -3 * fabs(draw(t))));
    for (uint32_t i = 0; i < states; i++) {
        put_raw(t, EBB_U8, 1, &bytes);
        ebb_operand *scale = put_in(t, dtype, 1, &blocks);
        for (size_t b = 0; b < count_of(scale); b++)
            set_value(scale, b, b % 4 == 2 ? 0 : fabs(draw(t))); // not of an end in a part of a lot
    }
    for (uint32_t i = 0; i < states; i++)
        fill_map(t, put_in(t, dtype, 1, &codes), moments && i == 1);
    if (k == ADAMW_DRAWN || k == MOMENTUM_DRAWN) {
        ebb_operand *key = put_in(t, EBB_I64, 1, DIMS(2));
        ((int64_t *)key->data)[0] = 81985529216486895;
        ((int64_t *)key->data)[1] = 9;
    }
    put_out(t, dtype, 1, &s->n);
    for (uint32_t i = 0; i < states; i++) {
        put_out(t, EBB_U8, 1, &bytes);
        put_out(t, dtype, 1, &blocks);
    }
}

/* Outputs but the first, and the first to within a share of 1. */
static void check_step(const testing *t, void *const expected[8], double stated, const char *name)
{
    FREED double *weights = malloc((count_of(&t->out[0]) + 1) * sizeof *weights);
    assert_non_null(weights);
    ebb_operand first = t->out[0];
    first.data = expected[0];
    for (size_t i = 0; i < count_of(&first); i++)
        weights[i] = value_of(&first, i);
    check_bound(&t->out[0], weights, stated, name);
    for (uint32_t o = 1; o < t->call.output_count; o++)
        if (memcmp(t->out[o].data, expected[o], t->out[o].bytes) != 0)
            fail_msg("%s: output %u is not that of plain", name, o);
}

static void keep_outputs(const testing *t, void *kept[8])
{
    for (uint32_t o = 0; o < t->call.output_count; o++) {
        kept[o] = malloc(t->out[o].bytes + 1);
        assert_non_null(kept[o]);
        memcpy(kept[o], t->out[o].data, t->out[o].bytes);
    }
}

static void free_outputs(const testing *t, void *kept[8])
{
    for (uint32_t o = 0; o < t->call.output_count; o++)
        free(kept[o]);
}

TEST(codes_and_scales_are_those_of_plain)
{
    for (int k = 0; k < KINDS; k++)
        for (int n = 0; n < SHAPES; n++)
            for (int wide = 0; wide < 2; wide++) {
                TESTING(t);
                void *expected[8];
                put_step(&t, (kind)k, &shapes[n], wide ? EBB_F64 : EBB_F32);
                run_with(&t, plain_names[k]);
                keep_outputs(&t, expected);
                same_bits(&t, cuda_names[k], cuda_names[k]); // in both orders of threads
                check_step(&t, expected, bound_for(&t, cuda_names[k]), cuda_names[k]);
                free_outputs(&t, expected);
            }
}

/* As the CPU computes them: in float32, each output rounded once. */
TEST(halves_are_those_of_float32_rounded)
{
    for (int k = 0; k < KINDS; k++)
        for (int way = 0; way < 4; way++) {
            const ebb_dtype half = way % 2 ? EBB_BF16 : EBB_F16;
            TESTING(t);
            ebb_operand narrow[16], wide_out[8];
            put_step(&t, (kind)k, &shapes[way / 2], EBB_F32); // of eight bits, of four
            for (uint32_t i = 2; i < t.call.input_count; i++) {
                ebb_operand *x = &t.in[i];
                if (x->type.dtype != EBB_F32)
                    continue;
                make_operand(&narrow[i], half, x->type.rank, x->type.dims);
                ebb_narrow(narrow[i].data, x->data, half, (int64_t)count_of(x));
                ebb_widen(x->data, narrow[i].data, half, (int64_t)count_of(x));
            }
            run_with(&t, plain_names[k]);
            for (uint32_t i = 2; i < t.call.input_count; i++)
                if (t.in[i].type.dtype == EBB_F32) {
                    unguard(t.in[i].data);
                    t.in[i] = narrow[i];
                }
            for (uint32_t o = 0; o < t.call.output_count; o++) {
                wide_out[o] = t.out[o];
                ebb_dtype dtype = (ebb_dtype)t.out[o].type.dtype;
                make_operand(&t.out[o], dtype == EBB_F32 ? half : dtype, 1, t.out[o].type.dims);
            }
            same_bits(&t, cuda_names[k], cuda_names[k]);
            for (uint32_t o = 0; o < t.call.output_count; o++) {
                FREED uint16_t *rounded = malloc(wide_out[o].bytes + 1);
                assert_non_null(rounded);
                if (wide_out[o].type.dtype == EBB_F32)
                    ebb_narrow(rounded, wide_out[o].data, half, (int64_t)count_of(&wide_out[o]));
                else
                    memcpy(rounded, wide_out[o].data, wide_out[o].bytes);
                assert_memory_equal(t.out[o].data, rounded, t.out[o].bytes);
                unguard(wide_out[o].data);
            }
        }
}

/* As the plan lays them: W' over W, codes over codes, scales over scales. */
TEST(outputs_may_lie_over_inputs)
{
    for (int k = 0; k < KINDS; k++)
        for (int n = 0; n < SHAPES; n++) {
            TESTING(t);
            testing over;
            void *expected[8];
            put_step(&t, (kind)k, &shapes[n], EBB_F32);
            run_with(&t, cuda_names[k]);
            keep_outputs(&t, expected);
            over = t;
            over.call.in = over.in;
            over.call.out = over.out;
            over.call.attrs.list = over.attr;
            over.out[0].data = over.in[2].data;
            for (uint32_t o = 1; o < t.call.output_count; o++)
                over.out[o].data = over.in[3 + o].data;
            check_run(kernel_named(cuda_names[k])->run(&over.call), cuda_names[k]);
            check_step(&over, expected, 0, cuda_names[k]);
            free_outputs(&t, expected);
        }
}

/* Rate, count and key lie on the device: a recorded step takes those of its day. */
TEST(a_replayed_step_takes_rate_and_key_of_its_day)
{
    const ebb_device *d = ebb_backend_cuda.device;
    for (int k = 0; k < KINDS; k++) {
        TESTING(t);
        TESTING(other);
        ebb_fault fault;
        bool replays = false;
        void *queue, *expected[8];
        const bool draws = k == ADAMW_DRAWN || k == MOMENTUM_DRAWN;
        put_step(&t, (kind)k, &shapes[0], EBB_F32);
        put_step(&other, (kind)k, &shapes[0], EBB_F32);
        run_with(&t, cuda_names[k]);
        check_status(d->open(&queue), "opening");
        t.call.queue = queue;
        for (int64_t step = 0; step < 4; step++) {
            for (int b = 0; b < 2; b++) {
                testing *of = b == 0 ? &t : &other;
                set_value(&of->in[0], 0, 0.1 / (double)(step + 1));
                set_value(&of->in[1], 0, (double)step);
                if (draws)
                    ((int64_t *)of->in[of->call.input_count - 1].data)[1] = step;
            }
            run_with(&other, plain_names[k]);
            keep_outputs(&other, expected);
            check_status(d->begin(queue, (uint64_t)step, &replays), "beginning");
            assert_int_equal(replays, step >= 2);
            if (!replays)
                check_status(kernel_named(cuda_names[k])->run(&t.call), cuda_names[k]);
            check_status(d->end(queue, &fault), "ending");
            check_step(&t, expected, bound_for(&t, cuda_names[k]), cuda_names[k]);
            free_outputs(&other, expected);
        }
        d->close(queue);
    }
}

TEST(operands_that_do_not_fit_are_declined)
{
    for (int wrong = 0; wrong < 5; wrong++) {
        TESTING(t);
        put_step(&t, ADAMW_DRAWN, &shapes[0], EBB_F32);
        assert_null(declined_by(&t, "cuda.adamw_low_bit_stochastic"));
        if (wrong == 0)
            t.in[4].type.dims[0]--;
        else if (wrong == 1)
            t.out[2].type.dims[0]++;
        else if (wrong == 2)
            t.in[8].type.dims[0] = 16;
        else if (wrong == 3)
            t.attr[1].i = 48;
        else
            t.call.input_count--;
        assert_non_null(declined_by(&t, "cuda.adamw_low_bit_stochastic"));
        t.call.input_count = 11;
    }
}

/* Of tensors of other sizes, blocks and bits, each with its own map. */
TEST(calls_in_a_row_share_launches_and_keep_their_bits)
{
    enum { ROW = 2 * SHAPES };
    const ebb_backend *const here[] = {&ebb_backend_cuda, NULL};
    for (int k = 0; k < KINDS; k++) {
        FREED testing *t = calloc(ROW, sizeof *t);
        ebb_call calls[ROW];
        void *expected[ROW][8];
        assert_non_null(t);
        for (int i = 0; i < ROW; i++) {
            put_step(&t[i], (kind)k, &shapes[i % SHAPES], i == ROW - 1 ? EBB_F64 : EBB_F32);
            run_with(&t[i], cuda_names[k]);
            keep_outputs(&t[i], expected[i]);
            for (uint32_t o = 0; o < t[i].call.output_count; o++)
                memset(t[i].out[o].data, 0x77, t[i].out[o].bytes);
            calls[i] = t[i].call;
            calls[i].queue = more_queue;
            check_status(ebb_pick(&calls[i], here), "pick");
        }
        check_status(ebb_backend_cuda.group(calls, ROW), "group");
        assert_string_equal(calls[0].kernel->name, "cuda.optimizers");
        for (int i = 0; i < ROW; i++)
            check_status(calls[i].kernel->run(&calls[i]), "run");
        if (more_wait != NULL)
            more_wait();
        for (int i = 0; i < ROW; i++) {
            for (uint32_t o = 0; o < t[i].call.output_count; o++)
                assert_memory_equal(t[i].out[o].data, expected[i][o], t[i].out[o].bytes);
            free_outputs(&t[i], expected[i]);
            end(&t[i]);
        }
        calls[0].kernel->release(&calls[0]);
    }
}

const fixture around_all = {with_cuda, NULL};
