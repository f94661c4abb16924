/* test_norm_rows.c: LayerNorm and RMS norm on the GPU, against the plain kernels: rows for a warp
 * and for a block, backward in one launch and in two. Sums are in double on both sides. */
#include "tests/cuda/halves.h"
#include "tests/cuda/in_place.h"

typedef struct rows {
    int rank;
    int64_t dims[3], axis;
    int scale_rank; /* the last axes of x */
} rows;

static const rows shapes[] = {
    {2, {7, 33}, -1, 1},     {3, {3, 5, 40}, 1, 2}, {3, {3, 5, 40}, 1, 1}, {2, {2, 1500}, -1, 1},
    {2, {150, 40}, 1, 1},    {2, {3, 4500}, 1, 1},  {2, {1, 1}, -1, 1},    {2, {0, 5}, -1, 1},
    {3, {1, 2, 3000}, 1, 1}, {2, {1030, 2}, 1, 1},  {2, {2, 8200}, -1, 1}, {2, {17, 4100}, 1, 1},
};
static const size_t shape_count = sizeof shapes / sizeof shapes[0];

static int64_t rows_of(const rows *r)
{
    int64_t m = 1;
    for (int64_t d = 0; d < (r->axis < 0 ? r->axis + r->rank : r->axis); d++)
        m *= r->dims[d];
    return m;
}

static void put_scale(testing *t, const rows *r, ebb_dtype dtype)
{
    ebb_operand *o = put_in(t, dtype, r->scale_rank, r->dims + r->rank - r->scale_rank);
    for (size_t i = 0; i < count_of(o); i++)
        set_value(o, i, value_of(o, i) < 0 ? value_of(o, i) - 0.3 : value_of(o, i) + 0.3);
}

static bool is_layer(ebb_op op)
{
    return op == EBB_OP_LAYER_NORMALIZATION || op == EBB_OP_LAYER_NORM_GRAD ||
           op == EBB_OP_LAYER_NORM_GRAD_FROM_OUTPUT;
}

static void put_forward(testing *t, const rows *r, ebb_op op, ebb_dtype dtype, bool bias)
{
    const int64_t m[1] = {rows_of(r)};
    begin(t, op);
    put_int(t, "axis", r->axis);
    ebb_operand *x = put_in(t, dtype, r->rank, r->dims);
    for (size_t i = 0; i < count_of(x); i++)
        set_value(x, i, value_of(x, i) + 2);
    put_scale(t, r, dtype);
    if (bias)
        put_scale(t, r, dtype);
    put_out(t, dtype, r->rank, r->dims);
    put_out(t, EBB_F32, 1, m);
    if (is_layer(op))
        put_out(t, EBB_F32, 1, m);
}

/* kept: what the norm left beside inv_std: nothing, its mean, or its bias. */
static void put_backward(testing *t, const rows *r, ebb_op op, ebb_dtype dtype)
{
    const int64_t m[1] = {rows_of(r)};
    begin(t, op);
    put_int(t, "axis", r->axis);
    put_in(t, dtype, r->rank, r->dims);
    put_in(t, dtype, r->rank, r->dims);
    put_scale(t, r, dtype);
    if (op == EBB_OP_LAYER_NORM_GRAD)
        put_in(t, EBB_F32, 1, m);
    if (op == EBB_OP_LAYER_NORM_GRAD_FROM_OUTPUT)
        put_scale(t, r, dtype);
    put_in(t, EBB_F32, 1, m);
    put_out(t, dtype, r->rank, r->dims);
    put_out(t, dtype, r->scale_rank, r->dims + r->rank - r->scale_rank);
    if (is_layer(op))
        put_out(t, dtype, r->scale_rank, r->dims + r->rank - r->scale_rank);
}

static const struct {
    ebb_op op;
    const char *cuda, *plain;
} forwards[] =
    {
        {EBB_OP_LAYER_NORMALIZATION, "cuda.layer_normalization", "plain.layer_normalization"},
        {EBB_OP_RMS_NORMALIZATION, "cuda.rms_normalization", "plain.rms_normalization"},
        {EBB_OP_RMS_NORM, "cuda.rms_norm", "plain.rms_norm"},
},
  backwards[] = {
      {EBB_OP_LAYER_NORM_GRAD, "cuda.layer_norm_grad", "plain.layer_norm_grad"},
      {EBB_OP_RMS_NORM_GRAD, "cuda.rms_norm_grad", "plain.rms_norm_grad"},
      {EBB_OP_LAYER_NORM_GRAD_FROM_OUTPUT, "cuda.layer_norm_grad_from_output",
       "plain.layer_norm_grad_from_output"},
      {EBB_OP_RMS_NORM_GRAD_FROM_OUTPUT, "cuda.rms_norm_grad_from_output",
       "plain.rms_norm_grad_from_output"},
};

TEST(forward_is_as_plain)
{
    for (size_t i = 0; i < shape_count; i++)
        for (size_t f = 0; f < 3; f++)
            for (int bias = 0; bias < (f == 0 ? 2 : 1); bias++) {
                TESTING(t);
                put_forward(&t, &shapes[i], forwards[f].op, EBB_F32, bias != 0);
                agrees(&t, forwards[f].cuda, forwards[f].plain);
            }
}

TEST(backward_is_as_plain)
{
    for (size_t i = 0; i < shape_count; i++)
        for (size_t f = 0; f < 4; f++) {
            TESTING(t);
            put_backward(&t, &shapes[i], backwards[f].op, EBB_F32);
            agrees(&t, backwards[f].cuda, backwards[f].plain);
        }
}

TEST(rows_are_normalised_in_place)
{
    for (size_t i = 0; i < shape_count; i++) {
        testing t;
        put_forward(&t, &shapes[i], EBB_OP_LAYER_NORMALIZATION, EBB_F32, true);
        agrees_in_place(&t, "cuda.layer_normalization", 0);
        end(&t);
        for (uint32_t over = 0; over < 2; over++) {
            put_backward(&t, &shapes[i], EBB_OP_LAYER_NORM_GRAD, EBB_F32);
            agrees_in_place(&t, "cuda.layer_norm_grad", over);
            end(&t);
        }
    }
}

TEST(outputs_that_nobody_wants_are_left_out)
{
    for (uint32_t left = 1; left < 8; left++)
        for (size_t i = 0; i < 7; i++) {
            TESTING(t);
            put_backward(&t, &shapes[i], EBB_OP_LAYER_NORM_GRAD, EBB_F32);
            for (uint32_t o = 0; o < 3; o++)
                if ((left >> o & 1) != 0) {
                    unguard(t.out[o].data);
                    t.out[o].data = NULL;
                    t.out[o].type = ebb_type_none();
                }
            agrees(&t, "cuda.layer_norm_grad", "plain.layer_norm_grad");
        }
}

TEST(halves_round_once)
{
    for (size_t i = 0; i < shape_count; i++) {
        if (i >= 7 && i < shape_count - 1) // the last: sums of columns by themselves
            continue;
        testing t;
        put_forward(&t, &shapes[i], EBB_OP_LAYER_NORMALIZATION, EBB_F32, true);
        agrees_mixed(&t, "cuda.layer_normalization", 0x60000u);
        agrees_mixed(&t, "cuda.layer_normalization", 0x60006u);
        end(&t);
        for (size_t f = 0; f < 4; f++) {
            const uint32_t statistics = backwards[f].op == EBB_OP_LAYER_NORM_GRAD ? 0x18u
                                        : is_layer(backwards[f].op)               ? 0x10u
                                                                                  : 0x8u;
            put_backward(&t, &shapes[i], backwards[f].op, EBB_F32);
            agrees_mixed(&t, backwards[f].cuda, statistics);
            agrees_mixed(&t, backwards[f].cuda, statistics | 0x60004u);
            end(&t);
        }
    }
}

const fixture around_all = {with_cuda, NULL};
