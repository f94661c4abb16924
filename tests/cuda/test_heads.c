/* test_heads.c: ONNX's Attention, LinearAttention, CausalConvWithState and RotaryEmbedding against
 * the plain kernels: heads in their own axis or packed, pasts, masks, states, odd sizes. */
#include "tests/cuda/halves.h"

/* ---- Attention ---- */

typedef struct shape {
    int64_t b, q_heads, heads, s, t, past, d, e;
} shape;

static const shape shapes[] = {
    {1, 1, 1, 1, 1, 0, 1, 1},
    {2, 4, 2, 3, 5, 0, 7, 9},
    {1, 2, 2, 2, 33, 4, 8, 257},
    {2, 2, 1, 9, 3, 2, 5, 3},
    {1, 2, 2, 3, 0, 0, 4, 5},
    {0, 2, 2, 3, 4, 0, 4, 5},
    /* tiles: beyond one of queries and of keys; beyond a chunk of V; no keys */
    {2, 2, 1, 66, 67, 3, 17, 5},
    {1, 1, 1, 16, 5, 0, 3, 130},
    {1, 2, 1, 17, 0, 0, 4, 5},
    /* heads that end within each of the eight elements of a lane */
    {1, 1, 1, 1, 3, 0, 40, 230},
    {1, 1, 1, 1, 3, 0, 70, 200},
    {1, 1, 1, 1, 3, 0, 100, 170},
    {1, 1, 1, 1, 3, 0, 170, 100},
    {1, 1, 1, 1, 3, 0, 200, 70},
    {1, 1, 1, 1, 3, 0, 230, 40},
};

enum { SHAPES = sizeof shapes / sizeof shapes[0] };

typedef enum masks { NONE, FLOATS, BOOLS, SHORT, LENGTHS } masks;

static void put_attention(testing *t, const shape *s, ebb_dtype dtype, bool packed, masks mask,
                          int64_t mode)
{
    const int64_t all = s->past + s->t;
    begin(t, EBB_OP_ATTENTION);
    t->call.version = 24;
    put_int(t, "q_num_heads", s->q_heads);
    put_int(t, "kv_num_heads", s->heads);
    put_int(t, "is_causal", mode % 2);
    put_float(t, "softcap", mode > 1 ? 0.7 : 0.0);
    put_int(t, "qk_matmul_output_mode", mode);
    if (packed) {
        put_in(t, dtype, 3, D(s->b, s->s, s->q_heads * s->d));
        put_in(t, dtype, 3, D(s->b, s->t, s->heads * s->d));
        put_in(t, dtype, 3, D(s->b, s->t, s->heads * s->e));
    } else {
        put_in(t, dtype, 4, D(s->b, s->q_heads, s->s, s->d));
        put_in(t, dtype, 4, D(s->b, s->heads, s->t, s->d));
        put_in(t, dtype, 4, D(s->b, s->heads, s->t, s->e));
    }
    if (mask == FLOATS)
        put_in(t, dtype, 4, D(s->b, 1, s->s, all));
    else if (mask == SHORT)
        put_in(t, dtype, 2, D(s->s, all > 1 ? all - 1 : all));
    else if (mask == BOOLS) {
        ebb_operand *m = &t->in[t->call.input_count++];
        make_operand(m, EBB_BOOL, 3, D(s->q_heads, s->s, all));
        for (size_t i = 0; i < m->bytes; i++) // one row of each head sees nothing
            ((uint8_t *)m->data)[i] =
                draw(t) > -0.5 && (int64_t)i / (all > 0 ? all : 1) % s->s != 1;
    } else
        put_absent(t);
    if (s->past > 0) {
        put_in(t, dtype, 4, D(s->b, s->heads, s->past, s->d));
        put_in(t, dtype, 4, D(s->b, s->heads, s->past, s->e));
    } else {
        put_absent(t);
        put_absent(t);
    }
    if (mask == LENGTHS) {
        ebb_operand *n = put_in(t, EBB_I64, 1, D(s->b));
        for (size_t i = 0; i < count_of(n); i++)
            set_value(n, i, (double)(all - (int64_t)i));
    }
    if (packed)
        put_out(t, dtype, 3, D(s->b, s->s, s->q_heads * s->e));
    else
        put_out(t, dtype, 4, D(s->b, s->q_heads, s->s, s->e));
    put_out(t, dtype, 4, D(s->b, s->heads, all, s->d));
    put_out(t, dtype, 4, D(s->b, s->heads, all, s->e));
    put_out(t, dtype, 4, D(s->b, s->q_heads, s->s, all));
}

TEST(attention_is_that_of_the_plain_kernel)
{
    for (int i = 0; i < SHAPES; i++)
        for (masks mask = NONE; mask <= LENGTHS; mask++)
            for (int64_t mode = 0; mode < 4; mode++) {
                TESTING(t);
                put_attention(&t, &shapes[i], EBB_F32, (mode + mask) % 2 != 0, mask, mode);
                agrees(&t, "cuda.onnx_attention", "plain.onnx_attention");
            }
}

TEST(flexible_attention_without_graphs_is_that_of_the_plain_kernel)
{
    for (int i = 0; i < SHAPES; i++) {
        const shape *s = &shapes[i];
        TESTING(t);
        begin(&t, EBB_OP_FLEX_ATTENTION);
        put_float(&t, "scale", 0.3);
        put_in(&t, EBB_F32, 4, D(s->b, s->q_heads, s->s, s->d));
        put_in(&t, EBB_F32, 4, D(s->b, s->heads, s->t, s->d));
        put_in(&t, EBB_F32, 4, D(s->b, s->heads, s->t, s->e));
        put_out(&t, EBB_F32, 4, D(s->b, s->q_heads, s->s, s->e));
        agrees(&t, "cuda.flex_attention", "plain.flex_attention");
    }
}

TEST(attention_in_halves_is_float32_rounded)
{
    for (int i = 0; i < SHAPES; i++)
        for (int64_t mode = 0; mode < 4; mode++) {
            TESTING(t);
            put_attention(&t, &shapes[i], EBB_F32, false, FLOATS, mode);
            agrees_in_halves(&t, "cuda.onnx_attention");
        }
}

TEST(outputs_need_not_be_wanted)
{
    for (int tiles = 0; tiles < 2; tiles++)
        for (uint32_t o = 0; o < 4; o++) {
            TESTING(t);
            put_attention(&t, &shapes[tiles ? 6 : 3], EBB_F32, false, FLOATS, 1);
            for (uint32_t other = 0; other < 4; other++)
                if (other != o) {
                    unguard(t.out[other].data);
                    t.out[other] = (ebb_operand){.type = ebb_type_none()};
                }
            agrees(&t, "cuda.onnx_attention", "plain.onnx_attention");
        }
}

/* ---- LinearAttention ---- */

TEST(linear_attention_is_that_of_the_plain_kernel)
{
    static const char *const rules[] = {"linear", "gated", "delta", "gated_delta"};
    static const int64_t sizes[][6] = {/* b, t, q heads, heads, key, value */
                                       {1, 1, 1, 1, 1, 1}, {2, 5, 4, 2, 3, 7}, {1, 3, 2, 2, 2, 131},
                                       {1, 3, 2, 1, 4, 3}, {1, 3, 1, 1, 3, 4}, {3, 0, 2, 1, 2, 2}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int rule = 0; rule < 4; rule++)
            for (int way = 0; way < 4; way++) {
                const int64_t *s = sizes[i], heads = s[3];
                const ebb_dtype dtype = way % 2 ? EBB_F64 : EBB_F32;
                TESTING(t);
                begin(&t, EBB_OP_LINEAR_ATTENTION);
                put_int(&t, "q_num_heads", s[2]);
                put_int(&t, "kv_num_heads", heads);
                put_string(&t, "update_rule", rules[rule]);
                put_in(&t, dtype, 3, D(s[0], s[1], s[2] * s[4]));
                put_in(&t, dtype, 3, D(s[0], s[1], heads * s[4]));
                put_in(&t, dtype, 3, D(s[0], s[1], heads * s[5]));
                if (way / 2)
                    put_in(&t, dtype, 4, D(s[0], heads, s[4], s[5]));
                else
                    put_absent(&t);
                if (rule % 2)
                    put_in(&t, dtype, 3, D(s[0], s[1], heads * (way / 2 ? s[4] : 1)));
                else
                    put_absent(&t);
                if (rule > 1)
                    put_in(&t, dtype, 3, D(s[0], s[1], way / 2 ? heads : 1));
                put_out(&t, dtype, 3, D(s[0], s[1], s[2] * s[5]));
                if (way != 1)
                    put_out(&t, dtype, 4, D(s[0], heads, s[4], s[5]));
                agrees(&t, "cuda.linear_attention", "plain.linear_attention");
                if (way == 2)
                    agrees_in_halves(&t, "cuda.linear_attention");
            }
}

/* Sizes of several spans, of values and keys beyond a block; outputs that nobody wants. */
TEST(gradients_of_linear_attention_are_those_of_the_plain_kernel)
{
    static const int64_t sizes[][6] = {
        /* b, t, q heads, heads, key, value */
        {1, 1, 1, 1, 1, 1}, {2, 6, 4, 2, 3, 5}, {1, 2, 1, 1, 2, 130}, {1, 2, 1, 1, 131, 2},
        {1, 3, 2, 1, 4, 3}, {1, 7, 1, 1, 3, 4}, {2, 0, 1, 1, 2, 2}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int way = 0; way < 4; way++) {
            const int64_t *s = sizes[i], b = s[0], l = s[1], heads = s[3];
            const ebb_dtype dtype = way % 2 ? EBB_F64 : EBB_F32;
            TESTING(t);
            begin(&t, EBB_OP_LINEAR_ATTENTION_GRAD);
            put_int(&t, "q_num_heads", s[2]);
            put_int(&t, "kv_num_heads", heads);
            put_int(&t, "delta", way / 2);
            put_in(&t, dtype, 3, D(b, l, s[2] * s[5]));
            put_in(&t, dtype, 4, D(b, heads, s[4], s[5]));
            put_in(&t, dtype, 3, D(b, l, s[2] * s[4]));
            put_in(&t, dtype, 3, D(b, l, heads * s[4]));
            put_in(&t, dtype, 3, D(b, l, heads * s[5]));
            put_in(&t, dtype, 4, D(b, heads, s[4], s[5]));
            put_in(&t, dtype, 3, D(b, l, heads * s[4]));
            put_in(&t, dtype, 3, D(b, l, heads));
            for (size_t e = 0; e < count_of(&t.in[3]);
                 e++) // keys of a length that keeps states small
                set_value(&t.in[3], e, value_of(&t.in[3], e) / sqrt((double)s[4]));
            /* Once nothing fades: sums are exact then, and some lie in the middle between two halves. */
            for (size_t e = 0; way == 0 && e < count_of(&t.in[6]); e++)
                set_value(&t.in[6], e, 0);
            for (uint32_t o = 0; o < 6; o++) {
                const ebb_type *like = &t.in[o + 2].type;
                if (way == 3 && o % 2 == 0)
                    t.out[t.call.output_count++].type = ebb_type_none();
                else
                    put_out(&t, dtype, like->rank, like->dims);
            }
            agrees(&t, "cuda.linear_attention_grad", "plain.linear_attention_grad");
            if (way % 2 == 0)
                agrees_in_halves(&t, "cuda.linear_attention_grad");
        }
}

/* ---- CausalConvWithState, RotaryEmbedding ---- */

TEST(causal_convolution_goes_on_from_its_past)
{
    static const int64_t sizes[][4] = {/* b, channels, t, taps */
                                       {2, 3, 7, 4},
                                       {1, 5, 2, 6},
                                       {1, 1, 1, 1},
                                       {2, 2, 0, 3}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int way = 0; way < 4; way++) {
            const int64_t *s = sizes[i];
            const ebb_dtype dtype = way % 2 ? EBB_F64 : EBB_F32;
            TESTING(t);
            begin(&t, EBB_OP_CAUSAL_CONV_WITH_STATE);
            put_string(&t, "activation", way / 2 ? "silu" : "none");
            put_in(&t, dtype, 3, D(s[0], s[1], s[2]));
            put_in(&t, dtype, 3, D(s[1], 1, s[3]));
            if (way != 2)
                put_in(&t, dtype, 1, D(s[1]));
            else
                put_absent(&t);
            if (way != 0)
                put_in(&t, dtype, 3, D(s[0], s[1], s[3] - 1));
            put_out(&t, dtype, 3, D(s[0], s[1], s[2]));
            put_out(&t, dtype, 3, D(s[0], s[1], s[3] - 1));
            agrees(&t, "cuda.causal_conv", "plain.causal_conv");
            if (way % 2 == 0)
                agrees_in_halves(&t, "cuda.causal_conv");
        }
}

static void put_rotary(testing *t, ebb_dtype dtype, bool packed, bool interleaved, bool positions)
{
    const int64_t b = 2, heads = 3, length = 5, size = 10, turned = 6, rows = 11;
    begin(t, EBB_OP_ROTARY_EMBEDDING);
    put_int(t, "num_heads", heads);
    put_int(t, "rotary_embedding_dim", turned);
    put_int(t, "interleaved", interleaved);
    if (packed)
        put_in(t, dtype, 3, D(b, length, heads * size));
    else
        put_in(t, dtype, 4, D(b, heads, length, size));
    for (int i = 0; i < 2; i++)
        if (positions)
            put_in(t, dtype, 2, D(rows, turned / 2));
        else
            put_in(t, dtype, 3, D(b, length, turned / 2));
    if (positions) {
        ebb_operand *p = put_in(t, EBB_I64, 2, D(b, length));
        for (size_t i = 0; i < count_of(p); i++)
            set_value(p, i, (double)(i * 7 % 11));
    }
    put_out(t, dtype, packed ? 3 : 4, t->in[0].type.dims);
}

TEST(heads_turn_as_in_the_plain_kernel)
{
    for (int way = 0; way < 16; way++) {
        TESTING(t);
        put_rotary(&t, way / 8 ? EBB_F64 : EBB_F32, way & 1, way & 2, way & 4);
        agrees(&t, "cuda.rotary_embedding", "plain.rotary_embedding");
        if (way < 8)
            agrees_in_halves(&t, "cuda.rotary_embedding");
    }
}

const fixture around_all = {with_cuda, NULL};
