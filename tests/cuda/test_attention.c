/* test_attention.c: attention on the device, which goes by tiles and keeps max and sum as it goes,
 * against the plain one, which goes by rows: masks of every kind, dropout, rows that see no key.
 */
#include "tests/cuda/halves.h"
#include "tests/kernels/attention_problems.h"
#include "tests/owned.h"

/* The rows of these fill several tiles; keys that do not matter are left out. */
// clang-format off
static const problem more[] = {
    {1, 2, 130, 130,   5, 140, false, true, false, OPEN,   -INFINITY,              0, 0, 0},
    {1, 1, 130,  70, 150, 150, true,  true, false, OPEN,   -3.4028234663852886e38, 0, 0, 0.3},
    {2, 1,  70, 130,   8,   8, true,  true, false, PADDED, -INFINITY,              0, 1, 0.1},
    {2, 1,  70, 130,   8,   8, true,  true, true,  EACH,   -3.4028234663852886e38, 1, 0, 0},
};
// clang-format on

static void put_forward(testing *t, const problem *p, ebb_dtype dtype)
{
    const int64_t y[] = {p->b, p->h, p->s, p->e}, row[] = {p->b, p->h, p->s, 1};
    begin(t, p->ratio > 0 ? EBB_OP_EBB_ATTENTION_DROPOUT : EBB_OP_EBB_ATTENTION);
    put_attributes(t, p);
    put_operands(t, p, dtype);
    put_key(t, p);
    put_out(t, dtype, 4, y);
    put_out(t, dtype, 4, row);
    put_out(t, dtype, 4, row);
}

/* With the statistics that the forward has just made; wanted: a bit for each of dQ, dK, dV. */
static void put_backward(testing *t, const problem *p, const testing *forward, uint32_t wanted)
{
    const int64_t y[] = {p->b, p->h, p->s, p->e}, row[] = {p->b, p->h, p->s, 1};
    ebb_dtype dtype = (ebb_dtype)forward->in[0].type.dtype;
    begin(t, p->ratio > 0 ? EBB_OP_EBB_ATTENTION_DROPOUT_GRAD : EBB_OP_EBB_ATTENTION_GRAD);
    put_attributes(t, p);
    put_in(t, dtype, 4, y);
    t->draws = 1; // the operands of the forward
    put_operands(t, p, dtype);
    for (int i = 1; i < 3; i++) {
        ebb_operand *o = put_in(t, dtype, 4, row);
        memcpy(o->data, forward->out[i].data, o->bytes);
    }
    put_key(t, p);
    for (uint32_t i = 0; i < 3; i++) {
        if ((wanted >> i & 1) != 0)
            put_out(t, dtype, 4, t->in[1 + i].type.dims);
        else
            t->out[t->call.output_count++].type = ebb_type_none();
    }
}

typedef enum giving { NOTHING, FIRST, INSIDE, LAST } giving; /* of the output; where its batch is */

static void put_result(testing *t, const problem *p, const testing *forward, giving how)
{
    static const int64_t perms[][4] = {
        [FIRST] = {0, 1, 2, 3}, [INSIDE] = {0, 2, 1, 3}, [LAST] = {1, 2, 0, 3}};
    const int64_t dims[][4] = {[FIRST] = {p->b, p->h, p->s, p->e},
                               [INSIDE] = {p->b, p->s, p->h, p->e},
                               [LAST] = {p->s, p->b, p->h, p->e}};
    const ebb_dtype dtype = (ebb_dtype)forward->in[0].type.dtype;
    const size_t row = (size_t)p->e * ebb_dtype_bits(dtype) / 8;
    if (how == NOTHING)
        return;
    put_ints(t, "y_perm", 4, perms[how]);
    ebb_operand *o = put_in(t, dtype, 4, dims[how]);
    for (int64_t i = 0; i < p->b * p->h * p->s; i++) {
        const int64_t b = i / (p->h * p->s), h = i / p->s % p->h, s = i % p->s;
        const int64_t to = how == FIRST    ? i
                           : how == INSIDE ? (b * p->s + s) * p->h + h
                                           : (s * p->b + b) * p->h + h;
        memcpy((char *)o->data + (size_t)to * row,
               (const char *)forward->out[0].data + (size_t)i * row, row);
    }
}

static const char *named(const testing *t, bool cuda)
{
    switch (t->call.op) {
    case EBB_OP_EBB_ATTENTION:
        return cuda ? "cuda.attention" : "plain.attention";
    case EBB_OP_EBB_ATTENTION_DROPOUT:
        return cuda ? "cuda.attention_dropout" : "plain.attention_dropout";
    case EBB_OP_EBB_ATTENTION_GRAD:
        return cuda ? "cuda.attention_grad" : "plain.attention_grad";
    default:
        return cuda ? "cuda.attention_dropout_grad" : "plain.attention_dropout_grad";
    }
}

/* Nothing equals a NaN: where the plain one has one, the other must have one, and both count as 0
 * then. */
static void agrees_with_nans(testing *t)
{
    double *expected[3] = {NULL};
    run_with(t, named(t, false));
    for (uint32_t o = 0; o < t->call.output_count; o++)
        expected[o] = t->out[o].data == NULL ? NULL : values_of(&t->out[o]);
    run_with(t, named(t, true));
    for (uint32_t o = 0; o < t->call.output_count; o++) {
        for (size_t i = 0; expected[o] != NULL && i < count_of(&t->out[o]); i++)
            if (isnan(expected[o][i]) && isnan(value_of(&t->out[o], i))) {
                expected[o][i] = 0;
                set_value(&t->out[o], i, 0);
            }
        if (expected[o] != NULL)
            check_bound(&t->out[o], expected[o], bound_for(t, named(t, true)), named(t, true));
        free(expected[o]);
    }
}

/* In this dtype alone: what a gradient reads of its forward, it would read in float64 as float32 left it. */
static void agrees_alone(testing *t)
{
    agrees_within(t, named(t, true), named(t, false), bound_for(t, named(t, true)));
}

static void check(const problem *p, ebb_dtype dtype, bool few)
{
    TESTING(t);
    testing g;
    put_forward(&t, p, dtype);
    if (p->guard)
        agrees_with_nans(&t);
    else
        agrees_alone(&t);
    run_with(&t, named(&t, false));
    for (uint32_t wanted = few ? 7 : 1; wanted < 8; wanted++) {
        put_backward(&g, p, &t, wanted);
        put_result(&g, p, &t, (giving)(wanted % 4)); // the plain one has no use for it
        agrees_alone(&g);
        end(&g);
    }
}

static int64_t at_most(int64_t n, int64_t most)
{
    return n < most ? n : most;
}

/* Where each access is watched, which takes fifty times as long: two tiles and the rest of one, of
 * one head or of two small ones, still more features than a block sums at once. */
static problem small_enough(problem p)
{
    const bool large = p.s * p.t > 2000;
    if (getenv("EBB_TEST_SKEW") == NULL)
        return p;
    p.b = large ? 1 : p.b;
    p.h = large ? 1 : p.h;
    p.s = at_most(p.s, p.t > 200 ? 5 : 68);
    p.t = at_most(p.t, p.causal ? 68 : 134);
    p.d = p.d < 100 ? at_most(p.d, 17) : p.d;
    p.e = p.e < 100 ? at_most(p.e, 17) : p.e;
    return p;
}

TEST(tiles_agree_with_rows)
{
    const bool watched = getenv("EBB_TEST_SKEW") != NULL;
    for (size_t i = 0; i < sizeof problems / sizeof problems[0]; i++) {
        problem p = small_enough(problems[i]);
        p.b = p.s > 100 ? 1 : p.b; // threads of the host are slow
        p.t = p.t > 1000 ? p.t / 4 : p.t;
        check(&p, EBB_F32, watched || (i != 1 && i != 6));
        if (!watched || i < 2)
            check(&p, EBB_F64, true);
    }
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) {
        const problem p = small_enough(more[i]);
        check(&p, EBB_F32, true);
        if (!watched)
            check(&p, EBB_F64, true);
    }
}

TEST(halves_are_float32_rounded_once)
{
    for (size_t i = 0; i < sizeof problems / sizeof problems[0]; i++) {
        const problem p = small_enough(problems[i]);
        TESTING(t);
        TESTING(g);
        if (problems[i].s * problems[i].t > 5000)
            continue;
        put_forward(&t, &p, EBB_F32);
        run_with(&t, named(&t, true));
        put_backward(&g, &p, &t, 7);
        put_result(&g, &p, &t, (giving)(i % 4));
        agrees_mixed(&t, named(&t, true), 0x60000); // statistics stay float32
        agrees_mixed(&g, named(&g, true), 0xC0);
    }
}

TEST(a_row_that_sees_no_key_is_no_number)
{
    const problem p = {2, 1, 3, 4, 2, 2, true, false, false, SHUT, -INFINITY, 0, 0, 0};
    TESTING(t);
    put_forward(&t, &p, EBB_F32);
    ((uint8_t *)t.in[3].data)[3] = 1; // the first of the batch sees one key
    run_with(&t, "cuda.attention");
    for (size_t i = 0; i < count_of(&t.out[0]); i++)
        assert_true(isnan(value_of(&t.out[0], i)) == (i >= count_of(&t.out[0]) / 2));
}

/* dQ may lie over dY or over Q, in one chunk of features and in two. */
TEST(a_gradient_may_be_written_over_an_input)
{
    for (uint32_t input = 0; input < 2; input++)
        for (int64_t d = 12; d < 200; d += 140) {
            const problem p = small_enough(
                (problem){1, 2, 70, 66, d, d, true, true, false, OPEN, -1e4, 0, 0, 0.1});
            TESTING(t);
            TESTING(g);
            put_forward(&t, &p, EBB_F32);
            run_with(&t, named(&t, false));
            put_backward(&g, &p, &t, 7);
            run_with(&g, named(&g, true));
            FREED double *expected = values_of(&g.out[0]);
            void *own = g.out[0].data;
            g.out[0].data = g.in[input].data;
            g.call.workspace = guarded(g.call.workspace_bytes);
            check_run(g.call.kernel->run(&g.call), named(&g, true));
            unguard(g.call.workspace);
            check_close(&g.out[0], expected, 0, "over an input");
            g.out[0].data = own;
        }
}

/* Masks that differ along each of three axes of heads. */
static void put_three_axes(testing *t, ebb_op op, ebb_dtype dtype, const testing *forward)
{
    static const int64_t turned[] = {0, 1, 2, 4, 3}, row[] = {2, 2, 2, 3, 1};
    begin(t, op);
    put_ints(t, "k_perm", 5, turned);
    put_float(t, "scale", 0.7);
    put_float(t, "fill", -(double)INFINITY);
    if (forward != NULL)
        put_in(t, dtype, 5, D(2, 2, 2, 3, 6));
    t->draws = 1;
    put_in(t, dtype, 5, D(2, 2, 2, 3, 4));
    put_in(t, dtype, 5, D(2, 2, 2, 5, 4));
    put_in(t, dtype, 5, D(2, 2, 2, 5, 6));
    ebb_operand *keep = &t->in[t->call.input_count++];
    make_operand(keep, EBB_BOOL, 5, D(2, 2, 2, 1, 5));
    for (size_t i = 0; i < count_of(keep); i++)
        ((uint8_t *)keep->data)[i] = i % 5 == 0 || draw(t) > 0;
    put_in(t, dtype, 5, D(2, 2, 2, 3, 1));
    for (int o = 0; o < 3; o++)
        if (forward == NULL)
            put_out(t, dtype, 5, o == 0 ? D(2, 2, 2, 3, 6) : row);
        else
            put_out(t, dtype, 5, t->in[1 + o].type.dims);
    for (int o = 1; o < 3 && forward != NULL; o++) {
        ebb_operand *statistic = put_in(t, dtype, 5, row);
        memcpy(statistic->data, forward->out[o].data, statistic->bytes);
    }
}

TEST(heads_may_lie_along_three_axes)
{
    TESTING(t);
    TESTING(g);
    put_three_axes(&t, EBB_OP_EBB_ATTENTION, EBB_F32, NULL);
    agrees(&t, named(&t, true), named(&t, false));
    put_three_axes(&g, EBB_OP_EBB_ATTENTION_GRAD, EBB_F32, &t);
    agrees(&g, named(&g, true), named(&g, false));
    agrees_mixed(&t, named(&t, true), 0x60000);
    agrees_mixed(&g, named(&g, true), 0xC0);
}

const fixture around_all = {with_cuda, NULL};
