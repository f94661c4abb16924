/* test_low_bit.c: states in codes: the nearest level by looking at all of them, and draws that are
 * right on average, whatever the map.
 */
#include "tests/kernels/call.h"

enum { COUNT = 999, BLOCK = 256, BLOCKS = 4, DRAWS = 2000 };

static ebb_operand *put_data(testing *t, ebb_dtype dtype, int rank, const int64_t *dims,
                             const void *data)
{
    ebb_operand *o = put_in(t, dtype, rank, dims);
    memcpy(o->data, data, o->bytes);
    return o;
}

static double uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) / 9007199254740992.0;
}

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Levels crowded about zero, some of them equal; with both ends at the largest magnitude. */
static void make_map(float *level, int codes, bool positive, uint64_t seed)
{
    for (int i = 0; i < codes; i++) {
        double x = pow(uniform(&seed), 6);
        level[i] = (float)(!positive && i % 2 == 0 ? -x : x);
    }
    level[3] = level[2];
    level[0] = positive ? 1e-7F : -1;
    level[1] = 1;
    qsort(level, (size_t)codes, sizeof *level, ascending);
}

static int code_at(const ebb_operand *codes, int bits, int i)
{
    const uint8_t *bytes = codes->data;
    return bits == 8 ? bytes[i] : bytes[i / 2] >> (i % 2 * 4) & 15;
}

static float decoded(const ebb_operand *codes, const ebb_operand *scale, const float *map, int bits,
                     int i)
{
    return map[code_at(codes, bits, i)] * ((const float *)scale->data)[i / BLOCK];
}

/* AdamW whose new moments are the gradient and its square: alpha and beta are 0. */
static void begin_adamw(testing *t, int bits, float map[2][256], const int64_t *key)
{
    static const float zeros[COUNT], rate[1] = {0.01F};
    static const uint8_t none[COUNT];
    const int64_t step = 4, codes = 1 << bits, bytes = bits == 8 ? COUNT : (COUNT + 1) / 2;
    begin(t, key != NULL ? EBB_OP_ADAMW_LOW_BIT_STOCHASTIC : EBB_OP_ADAMW_LOW_BIT);
    put_float(t, "alpha", 0);
    put_float(t, "beta", 0);
    put_int(t, "bits", bits);
    put_int(t, "block", BLOCK);
    put_int(t, "stream", 77);
    put_data(t, EBB_F32, 0, NULL, rate);
    put_data(t, EBB_I64, 0, NULL, &step);
    put_in(t, EBB_F32, 1, (int64_t[]){COUNT});
    ebb_operand *g = put_in(t, EBB_F32, 1, (int64_t[]){COUNT});
    uint64_t state = 5;
    for (int i = 0; i < COUNT; i++) // over several decades, as gradients are
        ((float *)g->data)[i] = (float)((uniform(&state) - 0.5) * pow(10, -3 * uniform(&state)));
    for (int k = 0; k < 2; k++) {
        put_data(t, EBB_U8, 1, &bytes, none);
        put_data(t, EBB_F32, 1, (int64_t[]){BLOCKS}, zeros);
    }
    for (int k = 0; k < 2; k++) {
        make_map(map[k], (int)codes, k == 1, 3);
        put_data(t, EBB_F32, 1, &codes, map[k]);
    }
    if (key != NULL)
        put_data(t, EBB_I64, 1, (int64_t[]){2}, key);
    put_out(t, EBB_F32, 1, (int64_t[]){COUNT});
    for (int k = 0; k < 2; k++) {
        put_out(t, EBB_U8, 1, &bytes);
        put_out(t, EBB_F32, 1, (int64_t[]){BLOCKS});
    }
}

static float moment(const testing *t, int k, int i)
{
    float g = ((const float *)t->in[3].data)[i];
    return k == 0 ? g : g * g;
}

TEST(a_code_is_that_of_the_nearest_level)
{
    for (int bits = 4; bits <= 8; bits += 4) {
        TESTING(t);
        float map[2][256];
        begin_adamw(&t, bits, map, NULL);
        run_with(&t, "plain.adamw_low_bit");
        for (int k = 0; k < 2; k++)
            for (int i = 0; i < COUNT; i++) {
                float scale = ((const float *)t.out[2 + 2 * k].data)[i / BLOCK];
                double ratio = (double)(moment(&t, k, i) / scale), best = 4;
                for (int c = 0; c < 1 << bits; c++)
                    best = fmin(best, fabs((double)map[k][c] - ratio));
                double got = fabs((double)map[k][code_at(&t.out[1 + 2 * k], bits, i)] - ratio);
                if (!(got <= best + 1e-7 * fabs(ratio))) // ties, and halves that round
                    fail_msg("%d bits, state %d, element %d: %g away, the nearest is %g", bits, k,
                             i, got, best);
            }
    }
}

/* z-test: of each element the mean over draws, beside its own spread; and of all z together. */
TEST(draws_are_right_on_average)
{
    for (int bits = 4; bits <= 8; bits += 4) {
        TESTING(t);
        float map[2][256];
        static double sum[2][COUNT], square[2][COUNT];
        int64_t key[2] = {123456789, 0};
        memset(sum, 0, sizeof sum);
        memset(square, 0, sizeof square);
        begin_adamw(&t, bits, map, key);
        for (int draw = 0; draw < DRAWS; draw++) {
            ((int64_t *)t.in[10].data)[1] = draw;
            run_with(&t, "plain.adamw_low_bit_stochastic");
            for (int k = 0; k < 2; k++)
                for (int i = 0; i < COUNT; i++) {
                    double d =
                        (double)decoded(&t.out[1 + 2 * k], &t.out[2 + 2 * k], map[k], bits, i) -
                        (double)moment(&t, k, i);
                    sum[k][i] += d;
                    square[k][i] += d * d;
                }
        }
        for (int k = 0; k < 2; k++) {
            double all = 0, most = 0, total = 0;
            int counted = 0;
            for (int i = 0; i < COUNT; i++) {
                double scale = (double)((const float *)t.out[2 + 2 * k].data)[i / BLOCK];
                if ((double)moment(&t, k, i) < scale * (double)map[k][0])
                    continue; // below the least level: rounded up to it
                double mean = sum[k][i] / DRAWS, var = square[k][i] / DRAWS - mean * mean;
                // what floats round, and what a draw of 16 bits cannot say
                double slack = 2e-7 * fabs((double)moment(&t, k, i)) + scale * 0x1p-17;
                if (fabs(mean) <= slack && var < slack * slack)
                    continue; // a level
                double z = mean / sqrt(var / DRAWS + slack * slack);
                all += z * z;
                total += z;
                most = fmax(most, fabs(z));
                counted++;
            }
            print_message(
                "%d bits, state %d: %d elements, largest |z| %.2f, mean z^2 %.3f, sum of z "
                "%.2f of its spread\n",
                bits, k, counted, most, all / counted, total / sqrt(counted));
            assert_true(counted > COUNT / 3);
            assert_true(most < 5);
            assert_true(all / counted < 1.3);
            assert_true(fabs(total) / sqrt(counted) < 4);
        }
    }
}

/* Two steps with one key are the same; with another they differ. */
TEST(draws_depend_on_the_key_alone)
{
    TESTING(t);
    float map[2][256];
    uint8_t first[COUNT];
    int64_t key[2] = {9, 2};
    begin_adamw(&t, 8, map, key);
    run_with(&t, "plain.adamw_low_bit_stochastic");
    memcpy(first, t.out[1].data, COUNT);
    run_with(&t, "plain.adamw_low_bit_stochastic");
    assert_memory_equal(first, t.out[1].data, COUNT);
    ((int64_t *)t.in[10].data)[0] = 10;
    run_with(&t, "plain.adamw_low_bit_stochastic");
    assert_memory_not_equal(first, t.out[1].data, COUNT);
}
