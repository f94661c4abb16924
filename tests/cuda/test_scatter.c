/* test_scatter.c: what is written by index. Rows that a chunk of updates holds whole are summed in
 * plain's order and have its bits; longer ones are summed chunk by chunk, another order. */
#include "tests/cuda/bits.h"
#include "tests/cuda/halves.h"

static const char *const reductions[] = {"none", "add", "mul", "max", "min"};
static const ebb_dtype numbers[] = {EBB_F32, EBB_F64, EBB_I32, EBB_I64};
static const ebb_dtype sizes[] = {EBB_U8, EBB_BF16, EBB_F32, EBB_F64, EBB_C128};

/* Random numbers; near 1 for products, so that they stay in range. */
static ebb_operand *put_numbers(testing *t, ebb_dtype dtype, int rank, const int64_t *dims)
{
    ebb_operand *o = put_raw(t, dtype, rank, dims);
    for (size_t i = 0; i < count_of(o); i++)
        if (ebb_dtype_is_float((ebb_dtype)dtype))
            set_value(o, i, 1 + 0.1 * draw(t));
    return o;
}

/* ---- GatherGrad ---- */

typedef struct gradient {
    int axis, rank;
    int64_t out[3], indices;
    bool whole; /* no row has updates in two chunks */
} gradient;

static const gradient gradients[] = {
    {0, 2, {50, 7}, 40, true},    {1, 3, {3, 11, 5}, 64, true},   {-1, 2, {20, 9}, 30, true},
    {0, 2, {3, 33}, 500, false},  {1, 3, {2, 2, 40}, 300, false}, {0, 1, {70000}, 5000, false},
    {0, 2, {1, 300}, 200, false}, {0, 2, {5, 4}, 0, true},        {0, 2, {5, 0}, 3, true},
    {0, 2, {300, 513}, 20, true}, {0, 1, {2}, 4500, false},
};

TEST(gradients_of_gathered_rows_are_those_of_plain)
{
    for (size_t i = 0; i < sizeof gradients / sizeof gradients[0]; i++)
        for (int d = 0; d < 4; d++) {
            const gradient *g = &gradients[i];
            int axis = g->axis < 0 ? g->axis + g->rank : g->axis;
            int64_t dy[3] = {g->out[0], g->out[1], g->out[2]};
            dy[axis] = g->indices;
            TESTING(t);
            begin(&t, EBB_OP_GATHER_GRAD);
            put_int(&t, "axis", g->axis);
            put_list(&t, g->rank, g->out);
            put_indices(&t, d % 2 ? EBB_I32 : EBB_I64, 1, &g->indices, g->out[axis]);
            put_numbers(&t, numbers[d], g->rank, dy);
            put_out(&t, numbers[d], g->rank, g->out);
            if (g->whole || d > 1)
                same_bits(&t, "cuda.gather_grad", "plain.gather_grad");
            else
                agrees(&t, "cuda.gather_grad", "plain.gather_grad");
        }
}

/* Sums of halves are float32 until they are stored: of rows that end in their chunk, and of longer
 * ones. */
TEST(halves_are_summed_as_float32_and_rounded_once)
{
    for (int64_t n = 30; n <= 300; n += 270)
        for (int elements = 0; elements < 2; elements++) {
            const int64_t rows = 4, inner = 6;
            TESTING(t);
            begin(&t, elements ? EBB_OP_GATHER_ELEMENTS_GRAD : EBB_OP_GATHER_GRAD);
            if (elements)
                put_in(&t, EBB_F32, 2, DIMS(n, inner));
            put_list(&t, 2, DIMS(rows, inner));
            put_indices(&t, EBB_I64, elements ? 2 : 1, DIMS(n, inner), rows);
            if (!elements)
                put_in(&t, EBB_F32, 2, DIMS(n, inner));
            put_out(&t, EBB_F32, 2, DIMS(rows, inner));
            agrees_in_halves(&t, elements ? "cuda.gather_elements_grad" : "cuda.gather_grad");
        }
}

/* ---- ScatterND ---- */

TEST(rows_are_scattered_with_each_reduction)
{
    static const struct {
        int rank, rank_index, rank_update;
        int64_t data[3], index[3], update[4];
    } cases[] = {
        {2, 2, 2, {40, 6}, {30, 1}, {30, 6}},    {3, 2, 2, {3, 5, 8}, {40, 2}, {40, 8}},
        {3, 3, 2, {4, 6, 5}, {5, 7, 3}, {5, 7}}, {2, 2, 2, {3, 5}, {0, 1}, {0, 5}},
        {2, 2, 3, {3, 5}, {2, 0}, {2, 3, 5}},    {1, 2, 1, {3}, {200, 1}, {200}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int d = 0; d < 4; d++)
            for (int r = 0; r < 5; r++) {
                int64_t least = 4;
                for (int k = 0; k < cases[i].rank; k++)
                    least = cases[i].data[k] < least ? cases[i].data[k] : least;
                TESTING(t);
                begin(&t, EBB_OP_SCATTER_ND);
                put_string(&t, "reduction", reductions[r]);
                put_numbers(&t, numbers[d], cases[i].rank, cases[i].data);
                put_indices(&t, d % 2 ? EBB_I32 : EBB_I64, cases[i].rank_index, cases[i].index,
                            least);
                put_numbers(&t, numbers[d], cases[i].rank_update, cases[i].update);
                put_out(&t, numbers[d], cases[i].rank, cases[i].data);
                if (i < 5 || d > 1 || r == 0 || r > 2)
                    same_bits(&t, "cuda.scatter_nd", "plain.scatter_nd");
                else
                    agrees(&t, "cuda.scatter_nd", "plain.scatter_nd");
            }
}

TEST(rows_of_any_size_are_replaced_by_the_last_update)
{
    for (int s = 0; s < 5; s++)
        for (int64_t inner = 1; inner < 40; inner += 31) {
            TESTING(t);
            begin(&t, EBB_OP_SCATTER_ND);
            put_raw(&t, sizes[s], 2, DIMS(20, inner));
            put_indices(&t, EBB_I32, 2, DIMS(90, 1), 15);
            put_raw(&t, sizes[s], 2, DIMS(90, inner));
            put_out(&t, sizes[s], 2, DIMS(20, inner));
            same_bits(&t, "cuda.scatter_nd", "plain.scatter_nd");
        }
}

/* ---- elements ---- */

TEST(elements_are_scattered_with_each_reduction)
{
    /* Short lines, many lines, and few long ones, which are ordered instead. */
    static const struct {
        int axis;
        int64_t data[3], index[3];
    } cases[] = {
        {1, {4, 5, 6}, {3, 9, 6}},       {1, {4, 5, 6}, {3, 4, 6}},   {-1, {2, 3, 30}, {2, 3, 20}},
        {0, {40, 60, 40}, {50, 60, 40}}, {2, {2, 3, 9}, {2, 2, 150}}, {0, {9, 2, 3}, {150, 1, 3}},
        {1, {4, 5, 6}, {3, 0, 6}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int d = 0; d < 4; d++)
            for (int r = 0; r < 6; r++) { /* 5: the gradient */
                int axis = cases[i].axis < 0 ? cases[i].axis + 3 : cases[i].axis;
                bool rounds = d < 2 && (r == 1 || r == 2 || r == 5);
                TESTING(t);
                begin(&t, r < 5 ? EBB_OP_SCATTER_ELEMENTS : EBB_OP_GATHER_ELEMENTS_GRAD);
                put_int(&t, "axis", cases[i].axis);
                if (r < 5)
                    put_string(&t, "reduction", reductions[r]);
                put_numbers(&t, numbers[d], 3, r < 5 ? cases[i].data : cases[i].index);
                if (r == 5)
                    put_list(&t, 3, cases[i].data);
                put_indices(&t, d % 2 ? EBB_I32 : EBB_I64, 3, cases[i].index, cases[i].data[axis]);
                if (r < 5)
                    put_numbers(&t, numbers[d], 3, cases[i].index);
                put_out(&t, numbers[d], 3, cases[i].data);
                const char *name = r < 5 ? "cuda.scatter_elements" : "cuda.gather_elements_grad";
                const char *plain = r < 5 ? "plain.scatter_elements" : "plain.gather_elements_grad";
                if (!rounds || i < 4)
                    same_bits(&t, name, plain);
                else
                    agrees(&t, name, plain);
                if (r == 0) { /* the operator's older name */
                    t.call.op = EBB_OP_SCATTER;
                    same_bits(&t, "cuda.scatter", "plain.scatter");
                }
                if (d == 0 && i == 0)
                    agrees_in_halves(&t, r == 0 ? "cuda.scatter" : name);
            }
}

TEST(elements_of_any_size_are_replaced_by_the_last_update)
{
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        TESTING(t);
        begin(&t, EBB_OP_SCATTER_ELEMENTS);
        put_raw(&t, sizes[s], 2, DIMS(5, 60));
        put_indices(&t, EBB_I64, 2, DIMS(9, 60), 5);
        put_raw(&t, sizes[s], 2, DIMS(9, 60));
        put_out(&t, sizes[s], 2, DIMS(5, 60));
        same_bits(&t, "cuda.scatter_elements", "plain.scatter_elements");
    }
}

TEST(nan_and_zeros_meet_as_in_plain)
{
    for (int r = 3; r < 5; r++) {
        TESTING(t);
        begin(&t, EBB_OP_SCATTER_ND);
        put_string(&t, "reduction", reductions[r]);
        static const double odd[] = {0.0, -0.0, NAN, INFINITY, -INFINITY};
        ebb_operand *data = put_in(&t, EBB_F32, 1, DIMS(20));
        put_indices(&t, EBB_I64, 2, DIMS(100, 1), 20);
        ebb_operand *update = put_in(&t, EBB_F32, 1, DIMS(100));
        for (size_t i = 0; i < 20; i++)
            set_value(data, i, odd[i % 2]);
        for (size_t i = 0; i < 100; i++)
            set_value(update, i, odd[i < 90 ? i % 2 : (size_t)((draw(&t) + 1) * 2.4)]);
        put_out(&t, EBB_F32, 1, DIMS(20));
        same_bits(&t, "cuda.scatter_nd", "plain.scatter_nd");
    }
}

/* What is scattered over the data itself leaves the rest of it as it was. */
TEST(updates_may_go_into_the_data_itself)
{
    for (int elements = 0; elements < 2; elements++)
        for (int r = 0; r < 2; r++) {
            TESTING(t);
            TESTING(alone);
            testing *both[] = {&t, &alone};
            const char *name = elements ? "cuda.scatter_elements" : "cuda.scatter_nd";
            for (int k = 0; k < 2; k++) {
                begin(both[k], elements ? EBB_OP_SCATTER_ELEMENTS : EBB_OP_SCATTER_ND);
                put_string(both[k], "reduction", reductions[r]);
                put_raw(both[k], EBB_I32, 2, DIMS(30, 4));
                put_indices(both[k], EBB_I64, 2, elements ? DIMS(25, 3) : DIMS(25, 1), 30);
                put_raw(both[k], EBB_I32, 2, elements ? DIMS(25, 3) : DIMS(25, 4));
                put_out(both[k], EBB_I32, 2, DIMS(30, 4));
            }
            run_with(&alone, name);
            ebb_call *c = &t.call;
            const ebb_kernel *kernel = kernel_named(name);
            unguard(t.out[0].data);
            t.out[0].data = t.in[0].data;
            c->queue = more_queue;
            check_status(kernel->workspace(c, &c->workspace_bytes), name);
            c->workspace = guarded(c->workspace_bytes);
            check_run(kernel->run(c), name);
            unguard(c->workspace);
            assert_memory_equal(t.in[0].data, alone.out[0].data, alone.out[0].bytes);
            t.out[0].data = NULL;
        }
}

TEST(an_index_out_of_range_is_a_fault_and_is_not_written)
{
    static const int64_t bad[] = {7, -8, INT64_MAX, INT64_MIN, (int64_t)1 << 32};
    for (int how = 0; how < 5;
         how++) /* GatherGrad, ND set and add, elements by line and by order */
        for (int b = 0; b < 20; b++) {
            static const char *const names[] = {"cuda.gather_grad", "cuda.scatter_nd",
                                                "cuda.scatter_elements"};
            const char *name = names[how == 0 ? 0 : how < 3 ? 1 : 2];
            int64_t n = how == 4 ? 100 : 9;
            const ebb_dtype dtype = numbers[b / 5];
            TESTING(t);
            begin(&t, how == 0  ? EBB_OP_GATHER_GRAD
                      : how < 3 ? EBB_OP_SCATTER_ND
                                : EBB_OP_SCATTER_ELEMENTS);
            put_string(&t, "reduction", how == 2 || b % 2 ? "add" : "none");
            if (how == 0)
                put_list(&t, 2, DIMS(7, 1));
            else
                put_raw(&t, dtype, 2, DIMS(7, 1));
            int64_t *index = put_indices(&t, EBB_I64, 2, DIMS(n, 1), 7)->data;
            put_raw(&t, dtype, 2, DIMS(n, 1));
            put_out(&t, dtype, 2, DIMS(7, 1));
            assert_false(fault_of(&t, name, 3).there);
            index[4] = bad[b % 5];
            check_fault(&t, name, bad[b % 5], 7);
        }
}

/* A step is recorded once and done again with other indices and other updates. */
TEST(a_recorded_gradient_follows_its_operands)
{
    const ebb_device *device = ebb_backend_cuda.device;
    const ebb_kernel *kernel = kernel_named("cuda.gather_grad");
    TESTING(t);
    begin(&t, EBB_OP_GATHER_GRAD);
    put_list(&t, 2, DIMS(12, 33));
    int64_t *index = put_indices(&t, EBB_I64, 1, DIMS(150), 12)->data;
    ebb_operand *dy = put_numbers(&t, EBB_I32, 2, DIMS(150, 33));
    put_out(&t, EBB_I32, 2, DIMS(12, 33));
    ebb_call *c = &t.call;
    void *queue, *mine = t.out[0].data, *other = guarded(t.out[0].bytes);
    size_t bytes;
    check_status(device->open(&queue), "open");
    check_status(kernel->workspace(c, &bytes), "workspace");
    void *workspace = guarded(bytes);
    for (uint64_t step = 0; step < 4; step++) {
        ebb_fault fault;
        bool replays;
        for (size_t i = 0; i < 150; i++)
            index[i] = (int64_t)(draw(&t) * 12);
        for (size_t i = 0; i < 150 * 33; i++)
            ((int32_t *)dy->data)[i] = (int32_t)(draw(&t) * 1000);
        c->queue = queue;
        c->workspace = workspace;
        t.out[0].data = mine;
        memset(workspace, 0xFF, bytes);
        check_status(device->begin(queue, step, &replays), "begin");
        assert_int_equal(replays, step > 1);
        if (!replays)
            check_status(kernel->run(c), "run");
        check_status(device->end(queue, &fault), "end");
        assert_false(fault.there);
        t.out[0].data = other;
        run_with(&t, "plain.gather_grad");
        assert_memory_equal(mine, other, t.out[0].bytes);
    }
    check_guards(workspace, bytes, "workspace");
    device->close(queue);
    unguard(workspace);
    unguard(mine);
}

const fixture around_all = {with_cuda, NULL};
