/* test_norm_group.c: group and instance norm on the GPU, against the plain kernels. Sums are in
 * double on both sides, in other orders. */
#include "tests/cuda/halves.h"

typedef struct grouped {
    int rank;
    int64_t dims[4], groups;
    bool by_channel; /* scales, else one a group */
} grouped;

static const grouped images[] = {
    {4, {2, 6, 5, 3}, 3, true},  {4, {2, 6, 5, 3}, 3, false}, {3, {3, 4, 700}, 2, true},
    {3, {1, 2, 9000}, 1, true},  {2, {5, 48}, 4, true},       {2, {7, 48}, 8, false},
    {3, {1, 1, 1}, 1, true},     {3, {0, 4, 3}, 2, true},     {4, {40, 3, 2, 2}, 3, true},
    {3, {2, 300, 20}, 10, true}, {3, {2, 4, 0}, 2, true},     {2, {3, 2050}, 2, true},
    {2, {18, 40}, 4, true},
};
static const size_t image_count = sizeof images / sizeof images[0];

static void put_forward(testing *t, const grouped *m, ebb_op op, ebb_dtype dtype)
{
    const int64_t scales[1] = {m->by_channel ? m->dims[1] : m->groups};
    const int64_t statistics[2] = {m->dims[0], m->groups};
    begin(t, op);
    put_int(t, "num_groups", m->groups);
    ebb_operand *x = put_in(t, dtype, m->rank, m->dims);
    for (size_t i = 0; i < count_of(x); i++)
        set_value(x, i, value_of(x, i) - 5);
    put_in(t, dtype, 1, scales);
    put_in(t, dtype, 1, scales);
    put_out(t, dtype, m->rank, m->dims);
    if (op == EBB_OP_GROUP_NORM) {
        put_out(t, dtype, 2, statistics);
        put_out(t, dtype, 2, statistics);
    }
}

static void put_backward(testing *t, const grouped *m, bool from_output, ebb_dtype dtype)
{
    const int64_t scales[1] = {m->by_channel ? m->dims[1] : m->groups};
    const int64_t statistics[2] = {m->dims[0], m->groups};
    begin(t, from_output ? EBB_OP_GROUP_NORM_GRAD_FROM_OUTPUT : EBB_OP_GROUP_NORM_GRAD);
    put_in(t, dtype, m->rank, m->dims);
    put_in(t, dtype, m->rank, m->dims);
    ebb_operand *scale = put_in(t, dtype, 1, scales);
    for (size_t i = 0; i < count_of(scale); i++)
        set_value(scale, i,
                  value_of(scale, i) < 0 ? value_of(scale, i) - 0.3 : value_of(scale, i) + 0.3);
    if (from_output)
        put_in(t, dtype, 1, scales);
    else
        put_in(t, dtype, 2, statistics);
    put_in(t, dtype, 2, statistics);
    put_out(t, dtype, m->rank, m->dims);
    put_out(t, dtype, 1, scales);
    put_out(t, dtype, 1, scales);
}

TEST(forward_is_as_plain)
{
    for (size_t i = 0; i < image_count; i++) {
        TESTING(t);
        if (images[i].dims[images[i].rank - 1] == 0) // its statistics are left as they were
            continue;
        put_forward(&t, &images[i], EBB_OP_GROUP_NORM, EBB_F32);
        agrees(&t, "cuda.group_norm", "plain.group_norm");
        end(&t);
        put_forward(&t, &images[i], EBB_OP_GROUP_NORMALIZATION, EBB_F32);
        agrees(&t, "cuda.group_normalization", "plain.group_normalization");
        end(&t);
        if (!images[i].by_channel)
            continue;
        put_forward(&t, &images[i], EBB_OP_INSTANCE_NORMALIZATION, EBB_F32);
        agrees(&t, "cuda.instance_normalization", "plain.instance_normalization");
    }
}

TEST(backward_is_as_plain)
{
    for (size_t i = 0; i < image_count; i++) {
        TESTING(t);
        put_backward(&t, &images[i], false, EBB_F32);
        agrees(&t, "cuda.group_norm_grad", "plain.group_norm_grad");
    }
}

TEST(backward_from_what_is_kept_is_as_plain)
{
    for (size_t i = 0; i < image_count; i++)
        for (int kept = 0; kept < 3; kept++) {
            TESTING(t);
            put_backward(&t, &images[i], true, EBB_F32);
            if (kept == 1)
                put_float(&t, "slope", 0.25);
            if (kept == 2)
                put_float(&t, "elu", 1.5);
            agrees(&t, "cuda.group_norm_grad_from_output", "plain.group_norm_grad_from_output");
        }
}

TEST(groups_that_do_not_fit_are_declined)
{
    const grouped odd = {3, {2, 6, 4}, 4, true};
    TESTING(t);
    put_forward(&t, &odd, EBB_OP_GROUP_NORM, EBB_F32);
    assert_non_null(declined_by(&t, "cuda.group_norm"));
}

TEST(halves_round_once)
{
    for (size_t i = 0; i < 5; i++)
        for (int mixed = 0; mixed < 2; mixed++) {
            TESTING(t);
            put_forward(&t, &images[i], EBB_OP_GROUP_NORM, EBB_F32);
            agrees_mixed(&t, "cuda.group_norm", mixed ? 0x60006u : 0);
            end(&t);
            put_backward(&t, &images[i], false, EBB_F32);
            agrees_mixed(&t, "cuda.group_norm_grad", mixed ? 0x6001Cu : 0);
            end(&t);
            put_backward(&t, &images[i], true, EBB_F32);
            put_float(&t, "slope", 0.5);
            agrees_mixed(&t, "cuda.group_norm_grad_from_output", mixed ? 0x6001Cu : 0);
        }
}

const fixture around_all = {with_cuda, NULL};
