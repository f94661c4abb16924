/* test_invert.c: derivatives from the output, against those from the input in double, over the real
 * line: y as float, and as it would be kept in the two short types.
 */
#include "tests/kernels/call.h"
#include "tests/owned.h"

#define DIMS(...) ((const int64_t[]){__VA_ARGS__})

enum { GRID = 400001 };

typedef struct function {
    const char *name, *forward, *grad, *inverted;
    ebb_op op, grad_op, inverted_op;
    double alpha, x0, y0, bend; /* the minimum, and the second derivative there */
} function;

// clang-format off
static const function functions[] = {
    {"GELU", "plain.gelu", "plain.gelu_grad", "plain.gelu_grad_from_output", EBB_OP_MS_GELU, EBB_OP_GELU_GRAD, EBB_OP_GELU_GRAD_FROM_OUTPUT, 1, -0.75179152469356446, -0.16997120747990366, 0.431493992},
    {"GELU by tanh", "plain.fast_gelu", "plain.fast_gelu_grad", "plain.fast_gelu_grad_from_output", EBB_OP_MS_FAST_GELU, EBB_OP_FAST_GELU_GRAD, EBB_OP_FAST_GELU_GRAD_FROM_OUTPUT, 1, -0.75246142207101626, -0.17004075057125405, 0.430400091},
    {"SiLU", "plain.quick_gelu", "plain.quick_gelu_grad", "plain.quick_gelu_grad_from_output", EBB_OP_MS_QUICK_GELU, EBB_OP_QUICK_GELU_GRAD, EBB_OP_QUICK_GELU_GRAD_FROM_OUTPUT, 1, -1.27846454276107380, -0.27846454276107380, 0.217811706},
    {"quick-GELU", "plain.quick_gelu", "plain.quick_gelu_grad", "plain.quick_gelu_grad_from_output", EBB_OP_MS_QUICK_GELU, EBB_OP_QUICK_GELU_GRAD, EBB_OP_QUICK_GELU_GRAD_FROM_OUTPUT, 1.702, -0.75115425544128895, -0.16361018963635358, 0.217811706 * 1.702},
    {"Mish", "plain.mish", "plain.mish_grad", "plain.mish_grad_from_output", EBB_OP_MISH, EBB_OP_MISH_GRAD, EBB_OP_MISH_GRAD_FROM_OUTPUT, 1, -1.19243121451549521, -0.30884341301725041, 0.266947914},
};
// clang-format on
enum { FUNCTIONS = sizeof functions / sizeof *functions };

/* Dense about the minimum, out to where every tail has ended. */
static double grid_at(const function *f, int i)
{
    double u = (i - GRID / 2) / (GRID / 2.0);
    return f->x0 + 40 * u * fabs(u) * fabs(u);
}

/* f or f' of the grid by the kernel; points rounded to float first in both types. */
static void evaluate(const function *f, bool grad, ebb_dtype dtype, double *to)
{
    TESTING(t);
    begin(&t, grad ? f->grad_op : f->op);
    put_float(&t, "alpha", f->alpha);
    if (grad) {
        ebb_operand *dy = put_in(&t, dtype, 1, DIMS(GRID));
        for (size_t i = 0; i < GRID; i++)
            set_value(dy, i, 1);
    }
    ebb_operand *x = put_in(&t, dtype, 1, DIMS(GRID));
    for (int i = 0; i < GRID; i++)
        set_value(x, (size_t)i, (double)(float)grid_at(f, i));
    put_out(&t, dtype, 1, DIMS(GRID));
    run_with(&t, grad ? f->grad : f->forward);
    for (size_t i = 0; i < GRID; i++)
        to[i] = value_of(&t.out[0], i);
}

/* f' of n outputs and their sides. */
static void invert(const function *f, ebb_dtype dtype, int64_t n, const double *y,
                   const bool *right, double *to)
{
    TESTING(t);
    begin(&t, f->inverted_op);
    put_float(&t, "alpha", f->alpha);
    ebb_operand *dy = put_in(&t, dtype, 1, DIMS(n)), *kept = put_in(&t, dtype, 1, DIMS(n));
    ebb_operand *bits = put_in(&t, EBB_U8, 1, DIMS((n + 7) / 8));
    memset(bits->data, 0, bits->bytes);
    for (int64_t i = 0; i < n; i++) {
        set_value(dy, (size_t)i, 1);
        set_value(kept, (size_t)i, y[i]);
        ((uint8_t *)bits->data)[i / 8] |= (uint8_t)(right[i] << (i % 8));
    }
    put_out(&t, dtype, 1, DIMS(n));
    run_with(&t, f->inverted);
    for (int64_t i = 0; i < n; i++)
        to[i] = value_of(&t.out[0], (size_t)i);
}

/* To nearest with `digits` binary digits of fraction; least: the smallest exponent. */
static double rounded(double y, int digits, int least)
{
    int exponent;
    if (y == 0 || !isfinite(y))
        return y;
    (void)frexp(y, &exponent);
    int place = (exponent - 1 < least ? least : exponent - 1) - digits;
    return ldexp(nearbyint(ldexp(y, -place)), place);
}

typedef struct store {
    const char *name;
    int digits, least;
} store;
static const store stores[] = {{"float", 23, -126}, {"fp16", 10, -14}, {"bf16", 7, -126}};

/* The best that anyone could do who is given y so rounded: f' there is sqrt(2 f'' (y - y0)). */
static double floor_of(const function *f, const store *s)
{
    int exponent;
    (void)frexp(f->y0, &exponent);
    return sqrt(f->bend * ldexp(1, exponent - 1 - s->digits));
}

TEST(derivatives_are_near_on_the_whole_line)
{
    FREED double *y = calloc(GRID, sizeof *y), *d = calloc(GRID, sizeof *d);
    FREED double *got = calloc(GRID, sizeof *got), *kept = calloc(GRID, sizeof *kept);
    FREED bool *right = calloc(GRID, sizeof *right);
    assert_true(y != NULL && d != NULL && got != NULL && kept != NULL && right != NULL);
    for (const function *f = functions; f < functions + FUNCTIONS; f++) {
        evaluate(f, false, EBB_F32, y);
        evaluate(f, true, EBB_F64, d);
        for (int i = 0; i < GRID; i++)
            right[i] = (float)grid_at(f, i) > (float)f->x0;
        for (const store *s = stores; s < stores + 3; s++) {
            double worst = 0, where = 0, least = floor_of(f, s);
            for (int i = 0; i < GRID; i++)
                kept[i] = rounded(y[i], s->digits, s->least);
            invert(f, EBB_F32, GRID, kept, right, got);
            for (int i = 0; i < GRID; i++) {
                double off = fabs(got[i] - d[i]);
                if (!(off <= worst)) {
                    worst = off;
                    where = grid_at(f, i);
                }
            }
            print_message("%s, y as %s: %.1e at %.4f; rounding alone costs up to %.1e\n", f->name,
                          s->name, worst, where, least);
            /* y itself is computed in float, to a unit or two */
            assert_true(s == stores ? worst <= 2e-4 : worst <= least + 2e-4);
        }
        evaluate(f, false, EBB_F64, y);
        invert(f, EBB_F64, GRID, y, right, got);
        double worst = 0;
        for (int i = 0; i < GRID; i++)
            worst = fmax(worst, fabs(got[i] - d[i]));
        print_message("%s, all in double: %.1e\n", f->name, worst);
        assert_true(worst < 6e-6);
    }
}

TEST(tails_end_and_nothing_below_the_minimum_is_nan)
{
    for (const function *f = functions; f < functions + FUNCTIONS; f++) {
        const double y[] = {-0.0,     -1e-30,      -1e-12,       f->y0 - 1e-3, f->y0 - 0.5, 1e9,
                            INFINITY, f->y0 - 0.5, f->y0 - 1e-3, 17,           NAN,         NAN,
                            -1e-45,   300,         f->y0 - 2e-8, f->y0};
        const bool right[] = {0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 1, 0, 1, 1, 1};
        enum { N = 16 };
        for (int twice = 0; twice < 2; twice++) {
            double d[N];
            invert(f, twice != 0 ? EBB_F64 : EBB_F32, N, y, right, d);
            assert_true(d[0] == 0 && fabs(d[1]) < 1e-28 && fabs(d[2]) < 1e-10 && d[2] < 0);
            assert_true(d[3] == 0 && d[4] == 0 && d[7] == 0 && d[8] == 0 && d[14] == 0);
            assert_true(d[5] == 1 && d[6] == 1 && d[9] == 1 && d[13] == 1);
            assert_true(isnan(d[10]) && isnan(d[11]));
            assert_true(fabs(d[12]) < 1e-40 && fabs(d[15]) < 1e-4);
        }
    }
}

TEST(bits_of_the_wrong_length_are_declined)
{
    TESTING(t);
    begin(&t, EBB_OP_GELU_GRAD_FROM_OUTPUT);
    put_in(&t, EBB_F32, 1, DIMS(17));
    put_in(&t, EBB_F32, 1, DIMS(17));
    put_in(&t, EBB_U8, 1, DIMS(2));
    put_out(&t, EBB_F32, 1, DIMS(17));
    assert_string_equal(declined_by(&t, "plain.gelu_grad_from_output"),
                        "the bits have the wrong length");
    end(&t);
    begin(&t, EBB_OP_GELU_GRAD_FROM_OUTPUT);
    put_in(&t, EBB_F32, 1, DIMS(16));
    put_in(&t, EBB_F32, 2, DIMS(2, 8));
    put_in(&t, EBB_U8, 1, DIMS(2));
    put_out(&t, EBB_F32, 1, DIMS(16));
    assert_string_equal(declined_by(&t, "plain.gelu_grad_from_output"),
                        "the inputs differ in shape");
}
