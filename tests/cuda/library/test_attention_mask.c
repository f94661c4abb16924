/* test_attention_mask.c: masks of attention as a bias that a library adds. The library is played by
 * a loop that knows no mask but causality; with what is made before and settled after, its results
 * are those of the operator, rows without a key included.
 */
#include "tests/cuda/cuda.h"

#include "kernels/cuda/library/attention_mask.h"
#include "kernels/math/philox.h"
#include "onnx/words/tensor.h"

enum { B = 2, H = 2, S = 5, T = 7, FEATURES = 3, COLUMNS = 4, HEADS = B * H };

typedef struct masked {
    int64_t keep[4], bias[4]; /* shapes */
    double fill;
    int causal, replace, guard;
    bool lacks; /* the bias has -infinity here and there */
} masked;

static const double MINUS = -(double)INFINITY;

static uint16_t bits_of(double v)
{
    return ebb_float_to_bf16((float)v);
}

static uint16_t half_of(double v, ebb_dtype dtype)
{
    return dtype == EBB_F16 ? ebb_float_to_half((float)v) : bits_of(v);
}

static size_t size_of(const int64_t dims[4])
{
    return (size_t)(dims[0] * dims[1] * dims[2] * dims[3]);
}

/* In sequence 0 the first keys are left out, in sequence 1 the last; one row sees none. */
static bool is_kept(const int64_t dims[4], size_t at)
{
    const int64_t j = (int64_t)at % dims[3], i = (int64_t)at / dims[3] % dims[2];
    const int64_t b = (int64_t)at / (dims[3] * dims[2] * dims[1]);
    if (dims[3] == 1)
        return true;
    if (dims[2] > 1 && i == 3 && b == 0)
        return false;
    return b == 0 ? j >= 3 : j < 5;
}

static void put_operands(testing *t, const masked *m)
{
    begin(t, EBB_OP_EBB_ATTENTION);
    put_ints(t, "k_perm", 4, (int64_t[]){0, 1, 3, 2});
    put_float(t, "scale", 0.5);
    put_float(t, "fill", m->fill);
    put_int(t, "causal", m->causal);
    put_int(t, "replace", m->replace);
    put_int(t, "guard", m->guard);
    put_in(t, EBB_F32, 4, (int64_t[]){B, H, S, FEATURES});
    put_in(t, EBB_F32, 4, (int64_t[]){B, H, T, FEATURES});
    put_in(t, EBB_F32, 4, (int64_t[]){B, H, T, COLUMNS});
    make_operand(&t->in[3], EBB_BOOL, 4, m->keep);
    t->call.input_count++;
    for (size_t i = 0; i < size_of(m->keep); i++)
        ((uint8_t *)t->in[3].data)[i] = is_kept(m->keep, i);
    ebb_operand *bias = put_in(t, EBB_F32, 4, m->bias);
    for (size_t i = 0; i < size_of(m->bias); i++) {
        const bool first = i == 0 && !m->causal; // then row 0 sees its future alone
        const bool gone = m->lacks && (first || i % 3 == 1 || i / (size_t)m->bias[3] % 2 == 1);
        set_value(bias, i, gone ? MINUS : (double)ebb_bf16_to_float(bits_of(value_of(bias, i))));
    }
    put_out(t, EBB_F32, 4, (int64_t[]){B, H, S, COLUMNS});
    put_out(t, EBB_F32, 4, (int64_t[]){B, H, S, 1});
    put_out(t, EBB_F32, 4, (int64_t[]){B, H, S, 1});
}

/* What is read of the call when its floats have 16 bits. */
static const char *read_in_halves(ebb_cuda_masking *m, bool *is_masked, const testing *t,
                                  ebb_dtype dtype)
{
    testing half = *t;
    ebb_attention a;
    half.call.in = half.in;
    half.call.out = half.out;
    half.call.attrs.list = half.attr;
    half.attr[0].ints = half.ints[0];
    for (int i = 0; i < 5; i++)
        if (i != 3)
            half.in[i].type.dtype = dtype;
    half.out[0].type.dtype = dtype;
    const char *why = ebb_attention_read(&a, &half.call);
    return why != NULL ? why : ebb_cuda_masking_read(m, is_masked, &a, half.in);
}

typedef struct result {
    uint16_t y[HEADS * S * COLUMNS];
    float max[HEADS * S], sum[HEADS * S];
} result;

static float bias_at(const ebb_cuda_masking *m, const void *bias, int64_t at)
{
    return m->wide ? ((const float *)bias)[at] : ebb_bf16_to_float(((const uint16_t *)bias)[at]);
}

static void play_library(result *r, const ebb_operand *q, const ebb_operand *k,
                         const ebb_operand *v, const ebb_cuda_masking *m, const void *bias)
{
    for (int64_t row = 0; row < HEADS * S; row++) {
        const int64_t i = row % S, head = row / S, h = head % H, b = head / H;
        const int64_t line =
            ((m->bias_dims[0] == 1 ? 0 : b) * m->bias_dims[1] + (m->bias_dims[1] == 1 ? 0 : h)) *
                m->bias_dims[2] +
            (m->bias_dims[2] == 1 ? 0 : i);
        double x[T], most = MINUS, sum = 0, y[COLUMNS] = {0};
        for (int64_t j = 0; j < T; j++) {
            float dot = 0;
            for (int64_t f = 0; f < FEATURES; f++)
                dot += (float)(value_of(q, (size_t)(row * FEATURES + f)) *
                               value_of(k, (size_t)((head * T + j) * FEATURES + f)));
            x[j] = (double)(dot * 0.5F + bias_at(m, bias, line * T + j));
            if (m->causal && j > i)
                x[j] = MINUS;
            most = x[j] > most ? x[j] : most;
        }
        for (int64_t j = 0; j < T; j++)
            sum += exp(x[j] - most);
        for (int64_t j = 0; j < T; j++)
            for (int64_t n = 0; n < COLUMNS; n++)
                y[n] +=
                    exp(x[j] - most) / sum * value_of(v, (size_t)((head * T + j) * COLUMNS + n));
        r->max[row] = (float)most;
        r->sum[row] = (float)sum;
        for (int64_t n = 0; n < COLUMNS; n++)
            r->y[row * COLUMNS + n] = bits_of(y[n]);
    }
}

static void same(double a, double b, double tolerance, const char *what, int at)
{
    if (isnan(a) && isnan(b))
        return;
    if (a == b || fabs(a - b) <= tolerance * (fabs(b) + 1))
        return;
    fail_msg("%s %d: %g beside %g", what, at, a, b);
}

static void compare(const masked *cases, size_t count, int *dead)
{
    for (size_t n = 0; n < 2 * count; n++) {
        const masked *one = &cases[n / 2];
        const ebb_dtype dtype = n % 2 == 0 ? EBB_BF16 : EBB_F16;
        TESTING(t);
        ebb_cuda_masking m;
        bool is_masked = false;
        result *r = guarded(sizeof *r);
        uint8_t *alive = guarded(HEADS * S);
        void *bias = guarded(HEADS * S * T * 4);
        uint16_t *half = guarded(HEADS * S * T * sizeof *half);
        put_operands(&t, one);
        run_with(&t, "plain.attention");
        const char *why = read_in_halves(&m, &is_masked, &t, dtype);
        if (why != NULL)
            fail_msg("case %zu: %s", n, why);
        assert_true(is_masked);
        for (size_t i = 0; i < size_of(one->bias); i++)
            half[i] = half_of(value_of(&t.in[4], i), dtype);
        t.call.queue = more_queue;
        check_status(ebb_cuda_masking_make(&t.call, &m, t.in[3].data, half, NULL, bias, alive),
                     "make");
        check_guards(alive, HEADS * S, "alive");
        check_guards(bias, HEADS * S * T * 4, "bias");
        play_library(r, &t.in[0], &t.in[1], &t.in[2], &m, bias);
        check_status(ebb_cuda_masking_settle(&t.call, &m, alive, r->y, COLUMNS, r->max, r->sum),
                     "settle");
        for (int i = 0; i < HEADS * S; i++) {
            same((double)r->max[i], value_of(&t.out[1], (size_t)i), 1e-6, "max", i);
            same((double)r->sum[i], value_of(&t.out[2], (size_t)i), 1e-5, "sum", i);
            *dead += value_of(&t.out[1], (size_t)i) == MINUS;
        }
        for (int i = 0; i < HEADS * S * COLUMNS; i++)
            same((double)ebb_bf16_to_float(r->y[i]), value_of(&t.out[0], (size_t)i), 1.0 / 256, "y",
                 i);
        unguard(r);
        unguard(half);
        unguard(alive);
        unguard(bias);
    }
}

TEST(a_bias_says_what_a_mask_says)
{
    const masked cases[] = {
        {{B, 1, 1, T}, {1, 1, 1, 1}, -3.3895314e38, 0, 0, 0, false},
        {{B, 1, 1, T}, {1, 1, 1, 1}, -3.3895314e38, 0, 1, 0, false},
        {{B, 1, 1, T}, {1, 1, 1, 1}, -3.3895314e38, 1, 0, 0, false},
        {{1, 1, S, T}, {1, H, 1, T}, -3.3895314e38, 1, 1, 1, false},
        {{B, H, S, T}, {1, 1, 1, 1}, -0x1p126, 0, 0, 1, false},
        {{1, 1, 1, 1}, {B, 1, S, T}, MINUS, 0, 0, 0, false},
    };
    int dead = 0;
    compare(cases, sizeof cases / sizeof cases[0], &dead);
    assert_int_equal(dead, 0);
}

TEST(rows_without_a_key_are_what_the_operator_says)
{
    const masked cases[] = {
        {{B, 1, 1, T}, {1, 1, 1, 1}, MINUS, 1, 0, 1, false},
        {{B, 1, 1, T}, {1, 1, 1, 1}, MINUS, 1, 0, 0, false},
        {{B, 1, S, T}, {1, 1, 1, 1}, MINUS, 0, 0, 1, false},
        {{B, 1, S, T}, {B, H, 1, T}, MINUS, 1, 0, 0, true},
        {{1, 1, 1, 1}, {1, H, S, T}, MINUS, 0, 0, 1, true},
        {{1, 1, 1, 1}, {1, H, S, T}, -3.3895314e38, 1, 0, 0, true},
    };
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        int dead = 0;
        compare(&cases[n], 1, &dead);
        assert_true(dead > 0 || cases[n].fill != MINUS);
    }
}

/* Their gradient passes nothing on; no number passes none. */
TEST(a_gradient_of_such_a_row_is_silenced)
{
    for (int guard = 0; guard < 2; guard++) {
        const masked one = {{B, 1, S, T}, {1, 1, 1, 1}, MINUS, 0, 0, guard, false};
        TESTING(t);
        ebb_cuda_masking m;
        bool is_masked = false;
        uint8_t *alive = guarded(HEADS * S);
        uint16_t *bias = guarded(HEADS * S * T * sizeof *bias), *half = guarded(sizeof *half),
                 *dy = guarded(HEADS * S * COLUMNS * sizeof *dy);
        half[0] = 0;
        put_operands(&t, &one);
        assert_null(read_in_halves(&m, &is_masked, &t, EBB_BF16));
        for (int i = 0; i < HEADS * S * COLUMNS; i++)
            dy[i] = bits_of(i);
        t.call.queue = more_queue;
        check_status(ebb_cuda_masking_make(&t.call, &m, t.in[3].data, half, NULL, bias, alive),
                     "make");
        check_status(ebb_cuda_masking_settle(&t.call, &m, alive, dy, COLUMNS, NULL, NULL),
                     "settle");
        for (int i = 0; i < HEADS * S * COLUMNS; i++) {
            const bool sees = i / COLUMNS % S != 3 || i / (COLUMNS * S * H) != 0;
            const double v = (double)ebb_bf16_to_float(dy[i]);
            same(v,
                 sees    ? (double)ebb_bf16_to_float(bits_of(i))
                 : guard ? 0
                         : (double)NAN,
                 0, "dy", i);
        }
        unguard(alive);
        unguard(bias);
        unguard(half);
        unguard(dy);
    }
}

/* e^(x - it) is what the statistics say; nothing has a share of a row that is guarded and empty. */
TEST(one_number_of_a_row_gives_its_probabilities)
{
    const float drawn[2][4] = {{0.5F, -INFINITY, -3.3895314e38F, 80}, {2, NAN, 7, 1.25F}};
    for (int guard = 0; guard < 2; guard++) {
        TESTING(t);
        float *max = guarded(sizeof drawn[0]), *sum = guarded(sizeof drawn[1]);
        float *to = guarded(sizeof drawn[0]);
        memcpy(max, drawn[0], sizeof drawn[0]);
        memcpy(sum, drawn[1], sizeof drawn[1]);
        begin(&t, EBB_OP_EBB_ATTENTION_GRAD);
        t.call.queue = more_queue;
        check_status(ebb_cuda_masking_log_sums(&t.call, max, sum, guard, to, 4), "log sums");
        check_guards(to, sizeof drawn[0], "log sums");
        same(exp(1.5 - (double)to[0]), exp(1.0) / 2, 1e-6, "share", 0);
        same((double)to[1], guard ? -MINUS : (double)NAN, 0, "empty", guard);
        same((double)to[2], (double)max[2], 1e30, "masked", guard);
        same(exp(80.0 - (double)to[3]), 0.8, 1e-5, "share", 3);
        unguard(max);
        unguard(sum);
        unguard(to);
    }
}

/* What the host draws, whichever heads are asked for, and nothing beside them. */
TEST(the_draws_of_a_dropout_are_the_hosts)
{
    enum { ROWS = 5, KEYS = 7, MOST = 8 * ROWS * KEYS };
    int64_t *key = guarded(2 * sizeof *key);
    key[0] = 77, key[1] = 3;
    const int64_t ranges[][2] = {{0, 8}, {1, 2}, {3, 1}, {4, 4}};
    const ebb_attention a = {
        .heads = 8, .s = ROWS, .t = KEYS, .stream = 5, .threshold = ebb_dropout_threshold(0.3)};
    for (int i = 0; i < 8; i++) {
        const int64_t *range = ranges[i / 2], n = range[1] * ROWS * KEYS;
        const ebb_dtype dtype = i % 2 == 0 ? EBB_BF16 : EBB_F16;
        TESTING(t);
        uint8_t kept[MOST];
        uint16_t *to = guarded((size_t)n * sizeof *to);
        begin(&t, EBB_OP_EBB_ATTENTION_DROPOUT);
        t.call.queue = more_queue;
        ebb_attention_kept(kept, &a, key, range[0] * ROWS * KEYS, n);
        check_status(ebb_cuda_masking_kept(&t.call, &a, key, dtype, range[0], range[1], to),
                     "kept");
        check_guards(to, (size_t)n * sizeof *to, "kept");
        for (int64_t j = 0; j < n; j++)
            assert_int_equal(to[j], kept[j] ? half_of(1, dtype) : 0);
        unguard(to);
    }
    unguard(key);
}

/* ---- ONNX's Attention ---- */

enum { PAST = 2 };

typedef struct heads_case {
    int rank; /* of the mask; 0: none */
    int64_t dims[4];
    bool flags, causal, past, lengths, packed;
} heads_case;

static void put_heads(testing *t, const heads_case *h)
{
    const int64_t past = h->past ? PAST : 0;
    begin(t, EBB_OP_ATTENTION);
    t->call.version = 24;
    put_float(t, "scale", 0.5);
    put_int(t, "is_causal", h->causal);
    put_in(t, EBB_F32, 4, (int64_t[]){B, H, S, FEATURES});
    put_in(t, EBB_F32, 4, (int64_t[]){B, H, T - past, FEATURES});
    put_in(t, EBB_F32, 4, (int64_t[]){B, H, T - past, COLUMNS});
    if (h->rank == 0) {
        put_absent(t);
    } else if (h->flags) {
        ebb_operand *m = &t->in[t->call.input_count++];
        make_operand(m, EBB_BOOL, h->rank, h->dims);
        for (size_t i = 0; i < m->bytes; i++) // a row of the first head sees nothing
            ((uint8_t *)m->data)[i] = i % 3 != 1 && i / (size_t)h->dims[h->rank - 1] != 3;
    } else {
        ebb_operand *m = put_in(t, EBB_F32, h->rank, h->dims);
        for (size_t i = 0; i < count_of(m); i++)
            set_value(m, i,
                      i % 5 == 3 ? MINUS : (double)ebb_bf16_to_float(bits_of(value_of(m, i))));
    }
    if (h->past) {
        put_in(t, EBB_F32, 4, (int64_t[]){B, H, PAST, FEATURES});
        put_in(t, EBB_F32, 4, (int64_t[]){B, H, PAST, COLUMNS});
    } else {
        put_absent(t);
        put_absent(t);
    }
    if (h->lengths) {
        ebb_operand *n = put_in(t, EBB_I64, 1, (int64_t[]){B});
        set_value(n, 0, T - 3);
        set_value(n, 1, 0);
    }
    put_out(t, EBB_F32, 4, (int64_t[]){B, H, S, COLUMNS});
    put_out(t, EBB_F32, 4, (int64_t[]){B, H, T, FEATURES});
    put_out(t, EBB_F32, 4, (int64_t[]){B, H, T, COLUMNS});
}

/* [B, H, S] rows into [B, S, H], or back. */
static void repack(uint16_t *y, bool back)
{
    uint16_t old[HEADS * S * COLUMNS];
    memcpy(old, y, sizeof old);
    for (int row = 0; row < HEADS * S; row++) {
        const int b = row / (S * H), h = row / S % H, i = row % S, packed = (b * S + i) * H + h;
        memcpy(y + (back ? row : packed) * COLUMNS, old + (back ? packed : row) * COLUMNS,
               COLUMNS * sizeof *y);
    }
}

TEST(a_bias_says_what_onnx_says)
{
    static const heads_case cases[] = {
        {0, {0}, false, true, true, false, false},
        {0, {0}, false, false, false, true, false},
        {0, {0}, false, true, false, true, true},
        {2, {S, T}, true, false, false, false, true},
        {3, {H, S, T - 1}, true, true, false, false, false},
        {4, {B, 1, 1, T}, false, false, true, true, false},
        {4, {1, H, S, T - 2}, false, true, true, false, true},
    };
    for (size_t n = 0; n < 2 * sizeof cases / sizeof cases[0]; n++) {
        const heads_case *h = &cases[n / 2];
        const ebb_dtype dtype = n % 2 == 0 ? EBB_BF16 : EBB_F16;
        TESTING(t);
        ebb_cuda_masking m;
        bool is_masked = false;
        result *r = guarded(sizeof *r);
        uint8_t *alive = guarded(HEADS * S);
        void *bias = guarded(HEADS * S * T * 4);
        uint16_t *half = guarded(HEADS * S * T * sizeof *half);
        put_heads(&t, h);
        run_with(&t, "plain.onnx_attention");
        const ebb_heads read = ebb_heads_read(&t.call);
        assert_null(ebb_cuda_masking_of_heads(&m, &is_masked, &read, &t.call, (uint8_t)dtype));
        assert_true(is_masked);
        m.packed = h->packed;
        const bool floats = h->rank > 0 && !h->flags;
        for (size_t i = 0; floats && i < count_of(&t.in[3]); i++)
            half[i] = half_of(value_of(&t.in[3], i), dtype);
        t.call.queue = more_queue;
        check_status(ebb_cuda_masking_make(&t.call, &m, h->flags ? t.in[3].data : NULL,
                                           floats ? half : NULL, read.lengths, bias, alive),
                     "make");
        check_guards(alive, HEADS * S, "alive");
        check_guards(bias, HEADS * S * T * 4, "bias");
        play_library(r, &t.in[0], &t.out[1], &t.out[2], &m, bias);
        if (h->packed)
            repack(r->y, false);
        check_status(ebb_cuda_masking_settle(&t.call, &m, alive, r->y, COLUMNS, NULL, NULL),
                     "settle");
        if (h->packed)
            repack(r->y, true);
        for (int i = 0; i < HEADS * S * COLUMNS; i++)
            same((double)ebb_bf16_to_float(r->y[i]), value_of(&t.out[0], (size_t)i), 1.0 / 256, "y",
                 i);
        unguard(r);
        unguard(half);
        unguard(alive);
        unguard(bias);
    }
}

TEST(without_a_mask_there_is_none)
{
    const masked none = {{1, 1, 1, 1}, {1, 1, 1, 1}, MINUS, 1, 0, 0, false};
    TESTING(t);
    ebb_cuda_masking m;
    bool is_masked = true;
    put_operands(&t, &none);
    uint8_t yes = 1;
    uint16_t zero = 0;
    ebb_tensor keep = {.type = t.in[3].type, .bytes = 1, .data = &yes};
    ebb_tensor bias = {.type = ebb_type_tensor(EBB_BF16, 4, none.bias), .bytes = 2, .data = &zero};
    t.in[3].constant = &keep;
    t.in[4].constant = &bias;
    assert_null(read_in_halves(&m, &is_masked, &t, EBB_BF16));
    assert_false(is_masked);
    yes = 0; // none at all is a mask
    assert_null(read_in_halves(&m, &is_masked, &t, EBB_BF16));
    assert_true(is_masked);
}

const fixture around_all = {with_cuda, NULL};
