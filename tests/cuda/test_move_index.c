/* test_move_index.c: what moves by index, on the GPU's kernels against the plain ones, bit for bit;
 * and what an index out of range is answered with. */
#include "tests/cuda/bits.h"
#include "tests/cuda/numbers.h"

#include "kernels/cuda/floats.h"

static const ebb_dtype sizes[] = {EBB_U8, EBB_BF16, EBB_F32, EBB_F64, EBB_C128};
enum { SIZES = 5 };

/* ---- Gather ---- */

typedef struct gathered {
    int axis, rank, rank_index, rank_out;
    int64_t data[3], index[2], out[4];
} gathered;

static const gathered gathers[] = {
    {0, 2, 2, 3, {7, 5}, {3, 4}, {3, 4, 5}},       {1, 3, 1, 3, {2, 6, 8}, {9}, {2, 9, 8}},
    {-1, 2, 1, 2, {300, 4}, {3}, {300, 3}},        {0, 1, 0, 0, {5}, {0}, {0}},
    {0, 2, 1, 2, {4, 640}, {3}, {3, 640}},         {0, 2, 1, 2, {4, 3}, {0}, {0, 3}},
    {1, 3, 2, 4, {3, 5, 7}, {2, 2}, {3, 2, 2, 7}}, {0, 2, 1, 2, {9, 2}, {4500}, {4500, 2}},
};

TEST(rows_are_gathered_as_in_plain)
{
    for (size_t i = 0; i < sizeof gathers / sizeof gathers[0]; i++)
        for (int s = 0; s < SIZES; s++) {
            const gathered *g = &gathers[i];
            int axis = g->axis < 0 ? g->axis + g->rank : g->axis;
            TESTING(t);
            begin(&t, EBB_OP_GATHER);
            put_int(&t, "axis", g->axis);
            put_raw(&t, sizes[s], g->rank, g->data);
            put_indices(&t, s % 2 ? EBB_I32 : EBB_I64, g->rank_index, g->index, g->data[axis]);
            put_out(&t, sizes[s], g->rank_out, g->out);
            same_bits(&t, "cuda.gather", "plain.gather");
        }
}

TEST(elements_are_gathered_as_in_plain)
{
    for (int axis = -3; axis < 3; axis++)
        for (int s = 0; s < SIZES; s++)
            for (int64_t n = 0; n < 12; n += 11) {
                int64_t data[3] = {4, 5, 6}, index[3] = {3, 5, 4};
                int at = (axis + 3) % 3;
                index[at] = n;
                TESTING(t);
                begin(&t, EBB_OP_GATHER_ELEMENTS);
                put_int(&t, "axis", axis);
                put_raw(&t, sizes[s], 3, data);
                put_indices(&t, s % 2 ? EBB_I32 : EBB_I64, 3, index, data[at]);
                put_out(&t, sizes[s], 3, index);
                same_bits(&t, "cuda.gather_elements", "plain.gather_elements");
            }
}

TEST(cells_are_gathered_as_in_plain)
{
    static const struct {
        int batch, rank, rank_index, rank_out;
        int64_t data[4], index[3], out[4];
    } cases[] = {
        {0, 3, 2, 2, {3, 3, 8}, {5, 2}, {5, 8}},
        {1, 3, 3, 3, {2, 4, 6}, {2, 5, 1}, {2, 5, 6}},
        {2, 4, 3, 3, {2, 3, 4, 5}, {2, 3, 1}, {2, 3, 5}},
        {0, 2, 2, 1, {4, 4}, {700, 2}, {700}},
        {0, 2, 2, 3, {3, 4}, {2, 0}, {2, 3, 4}},
        {0, 2, 2, 2, {3, 4}, {0, 1}, {0, 4}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int s = 0; s < SIZES; s++) {
            int64_t least = 4;
            for (int d = 0; d < cases[i].rank; d++)
                least = cases[i].data[d] < least ? cases[i].data[d] : least;
            TESTING(t);
            begin(&t, EBB_OP_GATHER_ND);
            put_int(&t, "batch_dims", cases[i].batch);
            put_raw(&t, sizes[s], cases[i].rank, cases[i].data);
            put_indices(&t, EBB_I64, cases[i].rank_index, cases[i].index, least);
            put_out(&t, sizes[s], cases[i].rank_out, cases[i].out);
            same_bits(&t, "cuda.gather_nd", "plain.gather_nd");
        }
}

/* Indices that lead far outside of all memory are not followed. */
TEST(an_index_out_of_range_is_a_fault_and_is_not_read)
{
    static const ebb_op ops[] = {EBB_OP_GATHER, EBB_OP_GATHER_ELEMENTS, EBB_OP_GATHER_ND};
    static const char *const names[] = {"cuda.gather", "cuda.gather_elements", "cuda.gather_nd"};
    static const int64_t bad[] = {7, -8, INT64_MAX, INT64_MIN, (int64_t)1 << 45};
    for (int i = 0; i < 3; i++)
        for (int b = 0; b < 5; b++) {
            TESTING(t);
            begin(&t, ops[i]);
            put_raw(&t, EBB_F32, 2, DIMS(7, 1));
            int64_t *index = put_indices(&t, EBB_I64, 2, DIMS(9, 1), 7)->data;
            if (i == 1)
                put_out(&t, EBB_F32, 2, DIMS(9, 1));
            else
                put_out(&t, EBB_F32, i == 0 ? 3 : 2, DIMS(9, 1, 1));
            assert_false(fault_of(&t, names[i], 3).there);
            index[4] = bad[b];
            check_fault(&t, names[i], bad[b], 7);
        }
}

/* ---- OneHot, NonZero ---- */

TEST(classes_become_vectors_of_one)
{
    static const ebb_dtype kinds[] = {EBB_I64, EBB_I32, EBB_F32, EBB_F64, EBB_U8,
                                      EBB_I8,  EBB_U64, EBB_I16, EBB_U16, EBB_U32};
    for (int k = 0; k < 10; k++)
        for (int axis = -3; axis < 3; axis++)
            for (int s = 0; s < SIZES; s++) {
                int64_t out[3] = {3, 4, 0}, at = (axis + 3) % 3;
                out[2] = at == 2 ? 5 : 4;
                out[1] = at == 2 ? 4 : at == 1 ? 5 : 3;
                out[0] = at == 0 ? 5 : 3;
                TESTING(t);
                begin(&t, EBB_OP_ONE_HOT);
                put_int(&t, "axis", axis);
                ebb_operand *index = put_raw(&t, kinds[k], 2, DIMS(3, 4));
                for (size_t i = 0; i < 12; i++) { /* -7 .. 6: some outside */
                    double v = floor(draw(&t) * 7);
                    if (kinds[k] == EBB_I32 || kinds[k] == EBB_U32)
                        ((int32_t *)index->data)[i] = (int32_t)v;
                    else if (kinds[k] == EBB_I16 || kinds[k] == EBB_U16)
                        ((int16_t *)index->data)[i] = (int16_t)v;
                    else if (kinds[k] == EBB_I8 || kinds[k] == EBB_U8)
                        ((int8_t *)index->data)[i] = (int8_t)v;
                    else
                        set_value(index, i, v);
                }
                put_raw(&t, EBB_I64, 0, NULL);
                put_raw(&t, sizes[s], 1, DIMS(2));
                put_out(&t, sizes[s], 3, out);
                same_bits(&t, "cuda.one_hot", "plain.one_hot");
            }
}

static size_t sparse(testing *t, ebb_operand *x)
{
    size_t size = x->bytes / (count_of(x) > 0 ? count_of(x) : 1), set = 0;
    memset(x->data, 0, x->bytes);
    for (size_t i = 0; i < count_of(x); i++) {
        double d = draw(t);
        if (d > 0.5)
            ((uint8_t *)x->data)[i * size + (i % size == size - 1 ? 0 : i % size)] = 1;
        else if (d < -0.9 && ebb_dtype_is_float((ebb_dtype)x->type.dtype))
            ((uint8_t *)x->data)[i * size + size - 1] = 0x80; /* -0 */
        set += d > 0.5;
    }
    return set;
}

TEST(what_is_not_zero_is_listed_in_order)
{
    static const int64_t shapes[][3] = {{3, 5, 7}, {1, 1, 1}, {3, 41, 50}, {2, 0, 3}, {1, 2048, 1}};
    for (int i = 0; i < 5; i++)
        for (int s = 0; s < SIZES; s++) {
            TESTING(t);
            begin(&t, EBB_OP_NON_ZERO);
            int64_t found = (int64_t)sparse(&t, put_raw(&t, sizes[s], 3, shapes[i]));
            put_out(&t, EBB_I64, 2, DIMS(3, found));
            same_bits(&t, "cuda.non_zero", "plain.non_zero");
            assert_false(fault_of(&t, "cuda.non_zero", 3).there);
        }
}

TEST(another_count_than_the_planned_is_a_fault)
{
    for (int64_t planned = 2; planned < 5; planned++) {
        TESTING(t);
        begin(&t, EBB_OP_NON_ZERO);
        int32_t *x = put_raw(&t, EBB_I32, 1, DIMS(6))->data;
        for (int i = 0; i < 6; i++)
            x[i] = i % 2;
        put_out(&t, EBB_I64, 2, DIMS(1, planned));
        ebb_fault fault = fault_of(&t, "cuda.non_zero", 9);
        assert_int_equal(fault.there, planned != 3);
        if (fault.there) {
            assert_int_equal(fault.value, 3);
            assert_int_equal(fault.low, planned);
        }
    }
}

/* ---- Compress, ReverseSequence, TensorScatter ---- */

TEST(flagged_slices_stay)
{
    static const struct {
        int axis; /* 9: none, the whole of it flat */
        int64_t data[3], flags;
    } cases[] = {
        {0, {30, 4, 5}, 30}, {1, {3, 17, 5}, 11}, {-1, {3, 2, 5000}, 5000}, {9, {3, 5, 7}, 105},
        {9, {3, 5, 7}, 200}, {1, {3, 0, 5}, 4},   {0, {6, 0, 5}, 6},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int s = 0; s < SIZES; s++)
            for (int all = 0; all < 3; all++) { /* none, some, all of them */
                int64_t out[3], n = cases[i].data[0] * cases[i].data[1] * cases[i].data[2];
                int64_t kept = 0;
                int axis = cases[i].axis < 0 ? cases[i].axis + 3 : cases[i].axis;
                TESTING(t);
                begin(&t, EBB_OP_COMPRESS);
                if (axis < 9) {
                    put_int(&t, "axis", cases[i].axis);
                    n = cases[i].data[axis];
                }
                put_raw(&t, sizes[s], 3, cases[i].data);
                uint8_t *flag = put_raw(&t, EBB_BOOL, 1, &cases[i].flags)->data;
                for (int64_t k = 0; k < cases[i].flags; k++) {
                    flag[k] = all == 2 || (all == 1 && draw(&t) > 0.3);
                    kept += k < n && flag[k];
                }
                memcpy(out, cases[i].data, sizeof out);
                out[axis < 9 ? axis : 0] = kept;
                put_out(&t, sizes[s], axis < 9 ? 3 : 1, out);
                same_bits(&t, "cuda.compress", "plain.compress");
                assert_false(fault_of(&t, "cuda.compress", 3).there);
            }
}

TEST(another_count_of_flags_is_a_fault)
{
    for (int64_t planned = 0; planned < 6; planned++) {
        TESTING(t);
        begin(&t, EBB_OP_COMPRESS);
        put_int(&t, "axis", 0);
        put_raw(&t, EBB_F32, 2, DIMS(6, 5));
        uint8_t *flag = put_raw(&t, EBB_BOOL, 1, DIMS(6))->data;
        for (int i = 0; i < 6; i++)
            flag[i] = (uint8_t)(i % 2);
        put_out(&t, EBB_F32, 2, DIMS(planned, 5));
        ebb_fault fault = fault_of(&t, "cuda.compress", 9);
        assert_int_equal(fault.there, planned != 3);
        if (fault.there) {
            assert_int_equal(fault.value, 3);
            assert_int_equal(fault.low, planned);
        }
    }
}

TEST(sequences_are_turned_as_far_as_they_go)
{
    static const int64_t shapes[][3] = {{7, 5, 3}, {4, 9, 64}, {1, 300, 1}, {5, 0, 3}};
    for (int i = 0; i < 4; i++)
        for (int s = 0; s < SIZES; s++)
            for (int batch = 0; batch < 2; batch++) {
                const int64_t most = shapes[i][1 - batch];
                TESTING(t);
                begin(&t, EBB_OP_REVERSE_SEQUENCE);
                put_int(&t, "batch_axis", batch);
                put_int(&t, "time_axis", 1 - batch);
                put_raw(&t, sizes[s], 3, shapes[i]);
                int64_t *length = put_raw(&t, EBB_I64, 1, &shapes[i][batch])->data;
                for (int64_t k = 0; k < shapes[i][batch]; k++)
                    length[k] = (int64_t)((draw(&t) + 1) / 2 * (double)(most + 1));
                put_out(&t, sizes[s], 3, shapes[i]);
                same_bits(&t, "cuda.reverse_sequence", "plain.reverse_sequence");
            }
}

TEST(rows_are_written_into_a_cache)
{
    static const struct {
        int axis;
        int64_t data[4], more;
    } cases[] = {
        {-2, {3, 2, 9, 4}, 4}, {1, {3, 40, 2, 64}, 1}, {3, {2, 3, 2, 300}, 7},
        {-2, {3, 2, 9, 4}, 9}, {2, {3, 2, 9, 4}, 0},   {-2, {0, 2, 9, 4}, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int s = 0; s < SIZES; s++)
            for (int way = 0; way < 3; way++) { /* no indices; linear; around the end */
                int axis = cases[i].axis < 0 ? cases[i].axis + 4 : cases[i].axis;
                const int64_t n = cases[i].data[axis], room = way == 2 ? 3 * n : n - cases[i].more;
                int64_t update[4];
                TESTING(t);
                memcpy(update, cases[i].data, sizeof update);
                update[axis] = cases[i].more;
                begin(&t, EBB_OP_TENSOR_SCATTER);
                put_int(&t, "axis", cases[i].axis);
                put_string(&t, "mode", way == 2 ? "circular" : "linear");
                put_raw(&t, sizes[s], 4, cases[i].data);
                put_raw(&t, sizes[s], 4, update);
                if (way > 0) {
                    int64_t *first = put_raw(&t, EBB_I64, 1, cases[i].data)->data;
                    for (int64_t k = 0; k < cases[i].data[0]; k++)
                        first[k] = (int64_t)((draw(&t) + 1) / 2 * (double)(room + 1));
                }
                put_out(&t, sizes[s], 4, cases[i].data);
                same_bits(&t, "cuda.tensor_scatter", "plain.tensor_scatter");
            }
}

TEST(lengths_and_rows_beyond_the_end_are_faults)
{
    for (int kind = 0; kind < 2; kind++)
        for (int bad = 0; bad < 2; bad++) {
            const int64_t beyond = bad ? -1 : kind ? 4 : 7;
            TESTING(t);
            begin(&t, kind ? EBB_OP_TENSOR_SCATTER : EBB_OP_REVERSE_SEQUENCE);
            put_raw(&t, EBB_F32, 3, DIMS(6, 3, 5));
            if (kind) {
                put_int(&t, "axis", 2);
                put_raw(&t, EBB_F32, 3, DIMS(6, 3, 2));
            }
            const int64_t many = kind ? 6 : 3;
            int64_t *index = put_raw(&t, EBB_I64, 1, &many)->data;
            for (int64_t k = 0; k < many; k++)
                index[k] = k == 1 ? beyond : 3;
            put_out(&t, EBB_F32, 3, DIMS(6, 3, 5));
            const char *name = kind ? "cuda.tensor_scatter" : "cuda.reverse_sequence";
            ebb_fault fault = fault_of(&t, name, 9);
            assert_true(fault.there);
            assert_int_equal(fault.value, beyond);
            assert_int_equal(fault.low, 0);
            assert_int_equal(fault.high, kind ? 4 : 7);
        }
}

/* ---- TopK ---- */

/* Many equals, both zeros, infinities and NaN. */
static void put_varied(testing *t, ebb_dtype dtype, const int64_t *dims, bool coarse)
{
    ebb_operand *x = put_raw(t, dtype, 3, dims);
    for (size_t i = 0; i < count_of(x); i++) {
        static const double odd[] = {0.0, -0.0, NAN, INFINITY, -INFINITY};
        double v = coarse ? floor(draw(t) * 4) : draw(t) * 1000;
        if (ebb_dtype_is_float((ebb_dtype)dtype) && draw(t) > 0.7)
            v = odd[(size_t)((draw(t) + 1) * 2.4)];
        if (dtype == EBB_I32)
            ((int32_t *)x->data)[i] = (int32_t)v;
        else
            set_value(x, i, v);
    }
}

TEST(the_first_k_are_those_of_plain)
{
    static const struct {
        int axis;
        int64_t dims[3], k;
    } cases[] = {
        {2, {2, 3, 40}, 5},   {1, {2, 70, 3}, 70}, {0, {9, 1, 2}, 1},
        {2, {1, 1, 900}, 33}, {2, {2, 2, 5}, 0},   {2, {0, 2, 5}, 3},
        {2, {1, 1, 70}, 5},   {2, {1, 1, 70}, 8},  {2, {1, 1, 70}, 32}, // here all alike
    };
    enum { CASES = sizeof cases / sizeof cases[0], ALIKE = 6 };
    static const ebb_dtype dtypes[] = {EBB_F32, EBB_F64, EBB_I32, EBB_I64, EBB_U64,
                                       EBB_U32, EBB_I16, EBB_U16, EBB_I8,  EBB_U8};
    for (int i = 0; i < CASES; i++)
        for (int d = 0; d < 10; d++)
            for (int how = 0; how < 4; how++) {
                int64_t out[3] = {cases[i].dims[0], cases[i].dims[1], cases[i].dims[2]};
                out[cases[i].axis] = cases[i].k;
                TESTING(t);
                begin(&t, EBB_OP_TOP_K);
                put_int(&t, "axis", cases[i].axis);
                put_int(&t, "largest", how % 2);
                if (d < 4)
                    put_varied(&t, dtypes[d], cases[i].dims, how / 2 == 0);
                else {
                    const size_t size = ebb_dtype_bits(dtypes[d]) / 8;
                    ebb_operand *x = put_raw(&t, dtypes[d], 3, cases[i].dims);
                    for (size_t e = 0; how / 2 == 0 && e < x->bytes; e++) // 0 to 3: many alike
                        ((uint8_t *)x->data)[e] &= e % size == 0 ? 3 : 0;
                }
                if (i >= ALIKE)
                    memset(t.in[0].data, how / 2 ? 0xA7 : 0x27, t.in[0].bytes);
                put_list(&t, 1, &cases[i].k);
                put_out(&t, dtypes[d], 3, out);
                put_out(&t, EBB_I64, 3, out);
                same_bits(&t, "cuda.top_k", "plain.top_k");
            }
}

/* Every half is a float32, in the same order: the largest or smallest, of all bits or many alike, few
 * or most of them, so that the last one is above 0 or below. */
TEST(the_first_k_halves_are_those_of_float32)
{
    for (int way = 0; way < 16; way++) {
        const bool brain = way % 2;
        const int64_t k = way / 8 ? 280 : 20;
        TESTING(t);
        TESTING(wide);
        begin(&t, EBB_OP_TOP_K);
        begin(&wide, EBB_OP_TOP_K);
        put_int(&t, "largest", way / 2 % 2);
        put_int(&wide, "largest", way / 2 % 2);
        uint16_t *x = put_raw(&t, brain ? EBB_BF16 : EBB_F16, 2, DIMS(3, 300))->data;
        float *v = put_raw(&wide, EBB_F32, 2, DIMS(3, 300))->data;
        for (int i = 0; way / 4 % 2 && i < 900; i++)
            x[i] &= 0xB000;
        for (int i = 0; i < 900; i++)
            v[i] = brain ? ebb_from_bf16((ebb_bf16){x[i]}) : ebb_from_f16((ebb_f16){x[i]});
        put_list(&t, 1, DIMS(k));
        put_list(&wide, 1, DIMS(k));
        put_out(&t, brain ? EBB_BF16 : EBB_F16, 2, DIMS(3, k));
        put_out(&wide, EBB_F32, 2, DIMS(3, k));
        put_out(&t, EBB_I64, 2, DIMS(3, k));
        put_out(&wide, EBB_I64, 2, DIMS(3, k));
        run_with(&wide, "plain.top_k");
        run_with(&t, "cuda.top_k");
        const int64_t *at = t.out[1].data;
        assert_memory_equal(at, wide.out[1].data, t.out[1].bytes);
        for (int64_t i = 0; i < 3 * k; i++)
            assert_int_equal(((uint16_t *)t.out[0].data)[i], x[i / k * 300 + at[i]]);
    }
}

/* ---- Unique ---- */

static bool are_same(const ebb_operand *x, size_t i, size_t j)
{
    const size_t size = x->bytes / count_of(x);
    const char *data = x->data;
    if (!is_real(x))
        return memcmp(data + i * size, data + j * size, size) == 0;
    const double a = real_at(x, i), b = real_at(x, j);
    return a == b || (isnan(a) && isnan(b));
}

/* Slices that are like none before them; x is [outer, n, inner]. */
static int64_t count_unique(const ebb_operand *x, const int64_t *dims)
{
    const size_t n = (size_t)dims[1], inner = (size_t)dims[2];
    int64_t found = 0;
    for (size_t i = 0; i < n; i++) {
        bool new = true;
        for (size_t j = 0; j < i && new; j++) {
            bool same = true;
            for (size_t e = 0; e < (size_t)dims[0] * inner && same; e++)
                same = are_same(x, (e / inner * n + i) * inner + e % inner,
                                (e / inner * n + j) * inner + e % inner);
            new = !same;
        }
        found += new;
    }
    return found;
}

/* flat: [1, n, 1] without an axis. more: rows that are planned beyond those that there are. */
static int64_t put_unique(testing *t, ebb_dtype dtype, const int64_t *dims, bool flat, bool sorted,
                          int64_t more)
{
    begin(t, EBB_OP_UNIQUE);
    put_int(t, "sorted", sorted);
    if (!flat)
        put_int(t, "axis", 1);
    t->draws += (uint64_t)dims[1];
    const int64_t rows = count_unique(put_numbers(t, dtype, 3, dims, -2.9, 2.9), dims);
    const int64_t planned = rows + more;
    if (flat)
        put_out(t, dtype, 1, &planned);
    else
        put_out(t, dtype, 3, DIMS(dims[0], planned, dims[2]));
    put_out(t, EBB_I64, 1, &planned);
    put_out(t, EBB_I64, 1, &dims[1]);
    put_out(t, EBB_I64, 1, &planned);
    return rows;
}

TEST(each_slice_stays_once)
{
    static const int64_t dims[][3] = {{1, 700, 1}, {1, 1, 1}, {2, 33, 1},  {1, 100, 2},
                                      {2, 5, 3},   {1, 0, 1}, {1, 512, 1}, {1, 60, 2}};
    static const ebb_dtype dtypes[] = {EBB_F32, EBB_I64,  EBB_U64, EBB_F16,
                                       EBB_F64, EBB_BOOL, EBB_I8,  EBB_I8};
    for (int i = 0; i < 8; i++)
        for (int d = 0; d < 8; d++)
            for (int how = 0; how < 4; how++) {
                const bool flat = how / 2;
                TESTING(t);
                if ((flat && dims[i][0] * dims[i][2] > 1) || (d > 2 && d != i))
                    continue;
                put_unique(&t, dtypes[d], dims[i], flat, how % 2, 0);
                same_bits(&t, "cuda.unique", "plain.unique");
                assert_false(fault_of(&t, "cuda.unique", 3).there);
            }
}

TEST(another_count_of_slices_is_a_fault)
{
    for (int more = -1; more < 2; more += 2) {
        TESTING(t);
        const int64_t rows = put_unique(&t, EBB_F32, DIMS(1, 60, 1), true, more > 0, more);
        const ebb_fault fault = fault_of(&t, "cuda.unique", 9);
        assert_true(fault.there);
        assert_int_equal(fault.value, rows);
        assert_int_equal(fault.low, rows + more);
    }
}

/* ---- NonMaxSuppression ---- */

typedef struct detector {
    int64_t images, classes, boxes, most;
    bool centered;
    double close, least;
} detector;

/* Boxes of 2 x 2 to 6 x 6 in a field of 16 x 16, a few scores alike, one of them no number. */
static void put_detector(testing *t, const detector *d, ebb_dtype dtype, int64_t rows)
{
    begin(t, EBB_OP_NON_MAX_SUPPRESSION);
    put_int(t, "center_point_box", d->centered);
    ebb_operand *boxes = put_numbers(t, dtype, 3, DIMS(d->images, d->boxes, 4), 0, 1);
    for (size_t i = 0; i < count_of(boxes) / 4; i++) {
        const double y = 16 * draw(t), x = 16 * draw(t), h = 4 + 2 * draw(t), w = 4 + 2 * draw(t);
        const double corners[4] = {y, x + w, y + h, x}, center[4] = {x, y, w, h};
        for (size_t k = 0; k < 4; k++)
            put_real(boxes, 4 * i + k, d->centered ? center[k] : corners[k]);
    }
    ebb_operand *scores = put_numbers(t, dtype, 3, DIMS(d->images, d->classes, d->boxes), 0, 1);
    for (size_t i = 0; i < count_of(scores); i++)
        put_real(scores, i, i == 2 ? (double)NAN : floor(20 * draw(t)) / 20);
    *(int64_t *)put_in(t, EBB_I64, 1, DIMS(1))->data = d->most;
    set_value(put_in(t, EBB_F32, 1, DIMS(1)), 0, d->close);
    if (d->least > -1)
        set_value(put_in(t, EBB_F32, 0, NULL), 0, d->least);
    put_out(t, EBB_I64, 2, DIMS(rows, 3));
}

/* By trying: the plain kernel refuses each other count. */
static int64_t count_boxes(const detector *d, ebb_dtype dtype)
{
    for (int64_t rows = 0; rows <= d->images * d->classes * d->boxes; rows++) {
        TESTING(t);
        put_detector(&t, d, dtype, rows);
        const ebb_kernel *plain = kernel_named("plain.non_max_suppression");
        check_status(plain->workspace(&t.call, &t.call.workspace_bytes), "plain");
        t.call.workspace = guarded(t.call.workspace_bytes);
        const bool right = plain->run(&t.call) == NULL;
        unguard(t.call.workspace);
        if (right)
            return rows;
    }
    fail_msg("no count of boxes is right");
    return 0;
}

TEST(boxes_that_overlap_less_stay)
{
    static const detector detectors[] = {
        {1, 1, 40, 9, false, 0.3, -2},   {2, 3, 37, 5, true, 0.2, 0.1},
        {1, 2, 300, 300, false, 0.5, 0}, {3, 1, 1, 4, false, 0.5, -2},
        {1, 2, 9, 0, true, 0.5, -2},     {2, 2, 0, 4, false, 0.5, 0},
    };
    for (size_t i = 0; i < sizeof detectors / sizeof detectors[0]; i++)
        for (int narrow = 0; narrow < 2; narrow++) {
            const ebb_dtype dtype = narrow ? EBB_F16 : EBB_F32;
            const int64_t rows = count_boxes(&detectors[i], dtype);
            TESTING(t);
            put_detector(&t, &detectors[i], dtype, rows);
            same_bits(&t, "cuda.non_max_suppression", "plain.non_max_suppression");
            assert_false(fault_of(&t, "cuda.non_max_suppression", 3).there);
            end(&t);
            put_detector(&t, &detectors[i], dtype, rows + 1);
            ebb_fault fault = fault_of(&t, "cuda.non_max_suppression", 9);
            assert_true(fault.there);
            assert_int_equal(fault.value, rows);
            assert_int_equal(fault.low, rows + 1);
        }
}

const fixture around_all = {with_cuda, NULL};
