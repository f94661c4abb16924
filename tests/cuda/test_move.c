/* test_move.c: the CUDA kernels that move elements and change none, against the plain ones, bit for
 * bit. */
#include "tests/cuda/bits.h"
#include "tests/cuda/halves.h"

#include "kernels/cuda/move.h"

static const ebb_dtype sizes[] = {EBB_U8, EBB_BF16, EBB_F32, EBB_F64, EBB_C128};
enum { SIZES = 5 };

/* ---- places ---- */

/* What no test can afford to move: places beyond 2^32, where indices need all of their bits. */
TEST(places_of_large_tensors_are_not_cut_off)
{
    const int64_t big = 3000000000, dims[3] = {7, big, 5};
    const int64_t to[3] = {1, 7, 7 * big}, from[3] = {5 * big, 5, 1};
    ebb_cuda_path p;
    ebb_cuda_path_make(&p, 3, dims, to, from);
    assert_int_equal(p.rank, 3);
    static const int64_t places[][3] = {
        {0, 0, 4}, {6, 2999999999, 4}, {1, 0, 0}, {0, 858993459, 1}, {3, 1431655765, 2},
    };
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        const int64_t *at = places[i];
        int64_t t, f, step = (at[0] * big + at[1]) * 5 + at[2];
        ebb_cuda_step_of(&p, step, &t, &f);
        assert_int_equal(t, at[0] + 7 * at[1] + 7 * big * at[2]);
        assert_int_equal(f, step);
    }
    assert_int_equal(ebb_cuda_quotient(0xFFFFFFFF, 1), 0xFFFFFFFF);
    assert_int_equal(ebb_cuda_quotient((int64_t)1 << 40, 3), 366503875925);
    assert_int_equal(ebb_cuda_quotient(5, (int64_t)1 << 33), 0);
}

/* ---- Transpose ---- */

typedef struct turned {
    int rank;
    int64_t dims[6], perm[6];
} turned;

static const turned turns[] = {
    {2, {70, 90}, {1, 0}},             /* tiles, cut off at both edges */
    {2, {16, 200}, {1, 0}},            /* the narrowest tile */
    {2, {7, 300}, {1, 0}},             /* too narrow for tiles */
    {2, {3, 5}, {0, 1}},               /* nothing moves */
    {4, {2, 3, 17, 19}, {0, 2, 3, 1}}, /* channels last */
    {4, {2, 33, 5, 40}, {0, 3, 1, 2}}, /* a tile of each of two outer dims */
    {4, {2, 6, 3, 8}, {0, 2, 1, 3}},   /* heads: whole rows move */
    {3, {5, 1, 7}, {2, 1, 0}},
    {6, {2, 3, 2, 3, 2, 5}, {5, 0, 3, 1, 4, 2}},
    {3, {4, 0, 3}, {2, 0, 1}},
    {1, {11}, {0}},
};

TEST(transposes_are_those_of_plain)
{
    for (size_t i = 0; i < sizeof turns / sizeof turns[0]; i++)
        for (int s = 0; s < SIZES; s++) {
            const turned *u = &turns[i];
            int64_t out[6];
            TESTING(t);
            begin(&t, EBB_OP_TRANSPOSE);
            put_ints(&t, "perm", (uint32_t)u->rank, u->perm);
            for (int d = 0; d < u->rank; d++)
                out[d] = u->dims[u->perm[d]];
            put_raw(&t, sizes[s], u->rank, u->dims);
            put_out(&t, sizes[s], u->rank, out);
            same_bits(&t, "cuda.transpose", "plain.transpose");
        }
}

TEST(elements_below_a_byte_are_turned)
{
    static const ebb_dtype dtypes[] = {EBB_I4, EBB_U2, EBB_F4E2M1};
    for (size_t i = 0; i < sizeof turns / sizeof turns[0]; i++)
        for (int d = 0; d < 3; d++) {
            const turned *u = &turns[i];
            int64_t out[6];
            TESTING(t);
            begin(&t, EBB_OP_TRANSPOSE);
            put_ints(&t, "perm", (uint32_t)u->rank, u->perm);
            for (int k = 0; k < u->rank; k++)
                out[k] = u->dims[u->perm[k]];
            put_raw(&t, dtypes[d], u->rank, u->dims);
            put_out(&t, dtypes[d], u->rank, out);
            same_bits(&t, "cuda.transpose", "plain.transpose");
        }
}

TEST(a_transpose_without_perm_reverses_the_dims)
{
    TESTING(t);
    begin(&t, EBB_OP_TRANSPOSE);
    put_raw(&t, EBB_F32, 3, DIMS(18, 3, 40));
    put_out(&t, EBB_F32, 3, DIMS(40, 3, 18));
    same_bits(&t, "cuda.transpose", "plain.transpose");
}

TEST(more_elements_than_threads_are_all_moved)
{
    TESTING(t);
    begin(&t, EBB_OP_TRANSPOSE);
    put_ints(&t, "perm", 3, DIMS(2, 0, 1));
    put_raw(&t, EBB_U8, 3, DIMS(3, 233333, 3));
    put_out(&t, EBB_U8, 3, DIMS(3, 3, 233333));
    same_bits(&t, "cuda.transpose", "plain.transpose");
}

/* ---- Concat and Split ---- */

TEST(parts_are_joined_along_each_axis)
{
    static const int64_t lengths[] = {4, 0, 8, 1};
    for (int axis = -3; axis < 3; axis++)
        for (int s = 0; s < SIZES; s++) {
            TESTING(t);
            begin(&t, EBB_OP_CONCAT);
            put_int(&t, "axis", axis);
            int64_t dims[3] = {2, 3, 4}, at = (axis + 3) % 3, sum = 0;
            for (int i = 0; i < 4; i++) {
                sum += dims[at] = lengths[i];
                put_raw(&t, sizes[s], 3, dims);
            }
            dims[at] = sum;
            put_out(&t, sizes[s], 3, dims);
            same_bits(&t, "cuda.concat", "plain.concat");
        }
}

TEST(parts_are_split_along_each_axis)
{
    static const int64_t lengths[] = {4, 0, 8, 1};
    for (int axis = 0; axis < 3; axis++)
        for (int how = 0; how < 3; how++) { /* sizes as an input, as an attribute, equal */
            TESTING(t);
            begin(&t, EBB_OP_SPLIT);
            put_int(&t, "axis", axis);
            int64_t dims[3] = {2, 3, 4};
            dims[axis] = 13;
            put_raw(&t, EBB_F32, 3, dims);
            if (how == 0)
                put_list(&t, 4, lengths);
            if (how == 1)
                put_ints(&t, "split", 4, lengths);
            for (int i = 0; i < 4; i++) {
                dims[axis] = how < 2 ? lengths[i] : i < 3 ? 4 : 1;
                put_out(&t, EBB_F32, 3, dims);
            }
            same_bits(&t, "cuda.split", "plain.split");
            unguard(t.out[1].data); /* what nobody wants is stepped over */
            t.out[1].data = NULL;
            t.out[1].type = ebb_type_none();
            same_bits(&t, "cuda.split", "plain.split");
        }
}

/* ---- Slice ---- */

typedef struct cut {
    int64_t dims[3], starts[3], ends[3], steps[3], out[3];
} cut;

static const cut cuts[] = {
    {{5, 6, 7}, {1, 0, 2}, {4, 6, 7}, {1, 1, 1}, {3, 6, 5}},
    {{5, 6, 8}, {-4, -100, 0}, {-1, 100, 8}, {2, 3, 1}, {2, 2, 8}},
    {{5, 6, 7}, {4, 5, 6}, {-100, -100, -100}, {-1, -2, -3}, {5, 3, 3}},
    {{5, 6, 7}, {3, 0, 0}, {3, 6, 7}, {1, 1, 1}, {0, 6, 7}},
    {{5, 6, 7}, {0, 0, 0}, {5, 6, 7}, {1, 1, 1}, {5, 6, 7}},
    {{40, 6, 64}, {0, 2, 32}, {40, 4, 64}, {1, 1, 1}, {40, 2, 32}},
};

TEST(slices_and_their_gradients_are_those_of_plain)
{
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++)
        for (int s = 0; s < SIZES; s++)
            for (int back = 0; back < 2; back++) {
                const cut *u = &cuts[i];
                TESTING(t);
                begin(&t, back ? EBB_OP_SLICE_GRAD : EBB_OP_SLICE);
                put_raw(&t, sizes[s], 3, back ? u->out : u->dims);
                if (back)
                    put_list(&t, 3, u->dims);
                put_list(&t, 3, u->starts);
                put_list(&t, 3, u->ends);
                put_list(&t, 3, DIMS(0, -2, 2));
                put_list(&t, 3, u->steps);
                put_out(&t, sizes[s], 3, back ? u->dims : u->out);
                same_bits(&t, back ? "cuda.slice_grad" : "cuda.slice",
                          back ? "plain.slice_grad" : "plain.slice");
            }
}

TEST(a_slice_whose_bounds_are_not_known_is_declined)
{
    TESTING(t);
    begin(&t, EBB_OP_SLICE);
    put_raw(&t, EBB_F32, 1, DIMS(5));
    put_list(&t, 1, DIMS(0));
    put_list(&t, 1, DIMS(3))->constant = NULL;
    put_out(&t, EBB_F32, 1, DIMS(3));
    assert_null(declined_by(&t, "plain.slice"));
    assert_non_null(declined_by(&t, "cuda.slice"));
}

/* ---- Pad ---- */

typedef struct padding {
    int64_t dims[3], pads[6];
} padding;

static const padding paddings[] = {
    {{3, 4, 5}, {1, 2, 0, 0, 1, 3}},   {{3, 4, 5}, {0, 0, 0, 0, 0, 0}},
    {{3, 4, 5}, {2, 0, 0, 1, 0, 0}},   {{3, 4, 5}, {-1, 1, -2, 1, -3, 2}},
    {{1, 2, 5}, {0, 0, 4, 0, 0, 4}},   {{1, 1, 1}, {2, 1, 3, 0, 4, 1}},
    {{3, 4, 5}, {-3, 0, 0, 0, 0, 0}},  {{2, 3, 700}, {0, 1, 0, 0, 1, 0}},
    {{2, 3, 4}, {0, 0, 20, 0, 0, 20}},
};

TEST(paddings_are_those_of_plain_in_each_mode)
{
    static const char *const modes[] = {"constant", "reflect", "edge", "wrap"};
    for (size_t i = 0; i < sizeof paddings / sizeof paddings[0]; i++)
        for (int m = 0; m < 4; m++)
            for (int s = 0; s < SIZES; s++) {
                const padding *p = &paddings[i];
                int64_t out[3];
                for (int d = 0; d < 3; d++)
                    out[d] = p->dims[d] + p->pads[d] + p->pads[3 + d];
                TESTING(t);
                begin(&t, EBB_OP_PAD);
                put_string(&t, "mode", modes[m]);
                put_raw(&t, sizes[s], 3, p->dims);
                put_list(&t, 6, p->pads);
                if (s % 2 == 1)
                    put_raw(&t, sizes[s], 0, NULL);
                put_out(&t, sizes[s], 3, out);
                same_bits(&t, "cuda.pad", "plain.pad");
            }
}

TEST(some_axes_are_padded_and_an_empty_input_too)
{
    TESTING(t);
    begin(&t, EBB_OP_PAD);
    put_raw(&t, EBB_F32, 3, DIMS(2, 3, 4));
    put_list(&t, 4, DIMS(1, 0, 2, 5));
    put_absent(&t);
    put_list(&t, 2, DIMS(-1, 0));
    put_out(&t, EBB_F32, 3, DIMS(7, 3, 7));
    same_bits(&t, "cuda.pad", "plain.pad");
    end(&t);
    begin(&t, EBB_OP_PAD);
    put_raw(&t, EBB_F32, 2, DIMS(0, 4));
    put_list(&t, 4, DIMS(1, 0, 2, 0));
    put_out(&t, EBB_F32, 2, DIMS(3, 4));
    same_bits(&t, "cuda.pad", "plain.pad");
    end(&t);
    begin(&t, EBB_OP_PAD); // eight axes, none of which go together
    put_string(&t, "mode", "wrap");
    put_raw(&t, EBB_F64, 8, DIMS(1, 2, 1, 2, 1, 2, 1, 2));
    put_list(&t, 16, DIMS(1, 0, 1, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0));
    put_out(&t, EBB_F64, 8, DIMS(2, 2, 2, 2, 2, 2, 2, 2));
    same_bits(&t, "cuda.pad", "plain.pad");
}

/* ---- blocks of channels ---- */

TEST(blocks_of_channels_move_as_in_plain)
{
    for (int s = 0; s < SIZES; s++)
        for (int how = 0; how < 3; how++) {
            TESTING(t);
            begin(&t, how < 2 ? EBB_OP_DEPTH_TO_SPACE : EBB_OP_SPACE_TO_DEPTH);
            put_int(&t, "blocksize", 2);
            if (how < 2)
                put_string(&t, "mode", how == 0 ? "DCR" : "CRD");
            const int64_t deep[4] = {2, 12, 3, 5}, flat[4] = {2, 3, 6, 10};
            put_raw(&t, sizes[s], 4, how < 2 ? deep : flat);
            put_out(&t, sizes[s], 4, how < 2 ? flat : deep);
            same_bits(&t, how < 2 ? "cuda.depth_to_space" : "cuda.space_to_depth",
                      how < 2 ? "plain.depth_to_space" : "plain.space_to_depth");
        }
}

/* ---- shapes ---- */

TEST(views_copy_or_lie_where_they_are)
{
    static const ebb_op ops[] = {EBB_OP_IDENTITY, EBB_OP_RESHAPE, EBB_OP_FLATTEN, EBB_OP_SQUEEZE,
                                 EBB_OP_UNSQUEEZE};
    static const char *const names[] = {"identity", "reshape", "flatten", "squeeze", "unsqueeze"};
    for (int i = 0; i < 5; i++) {
        char cuda[32], plain[32];
        (void)snprintf(cuda, sizeof cuda, "cuda.%s", names[i]);
        (void)snprintf(plain, sizeof plain, "plain.%s", names[i]);
        TESTING(t);
        begin(&t, ops[i]);
        put_raw(&t, EBB_BF16, 3, DIMS(3, 1, 7));
        put_out(&t, EBB_BF16, 2, DIMS(3, 7));
        same_bits(&t, cuda, plain);
        /* Over the input: run_with() overwrites the output first, so the input is what it wrote. */
        void *own = t.out[0].data;
        t.out[0].data = t.in[0].data;
        run_with(&t, cuda);
        for (size_t b = 0; b < t.out[0].bytes; b++)
            assert_int_equal(((uint8_t *)t.in[0].data)[b], 0xFF);
        t.out[0].data = own;
    }
}

TEST(bits_are_seen_as_another_dtype)
{
    TESTING(t);
    begin(&t, EBB_OP_BIT_CAST);
    put_raw(&t, EBB_F32, 3, DIMS(3, 1, 7));
    put_out(&t, EBB_U32, 3, DIMS(3, 1, 7));
    same_bits(&t, "cuda.bit_cast", "plain.bit_cast");
    t.out[0].bytes--;
    assert_non_null(declined_by(&t, "cuda.bit_cast"));
}

TEST(an_old_dropout_keeps_everything)
{
    static const ebb_dtype masks[] = {EBB_BOOL, EBB_F32, EBB_F64};
    for (int m = 0; m < 3; m++) {
        TESTING(t);
        begin(&t, EBB_OP_DROPOUT_BEFORE_12);
        put_raw(&t, EBB_F32, 2, DIMS(3, 77));
        put_out(&t, EBB_F32, 2, DIMS(3, 77));
        put_out(&t, masks[m], 2, DIMS(3, 77));
        same_bits(&t, "cuda.old_dropout", "plain.old_dropout");
    }
}

TEST(diagonals_are_ones_of_each_dtype)
{
    static const ebb_dtype dtypes[] = {EBB_F32, EBB_F64, EBB_F16, EBB_BF16, EBB_I64,
                                       EBB_I32, EBB_I8,  EBB_U16, EBB_BOOL, EBB_I16,
                                       EBB_U8,  EBB_U32, EBB_U64};
    for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++)
        for (int64_t k = -8; k < 10; k++)
            for (int64_t rows = 0; rows < 8; rows += 7) {
                TESTING(t);
                begin(&t, EBB_OP_EYE_LIKE);
                put_int(&t, "k", k == 9 ? INT64_MIN : k);
                put_raw(&t, EBB_U8, 2, DIMS(rows, 9));
                put_out(&t, dtypes[d], 2, DIMS(rows, 9));
                same_bits(&t, "cuda.eye_like", "plain.eye_like");
            }
}

TEST(middles_are_cut_out_or_surrounded)
{
    static const int64_t outs[][3] = {{5, 6, 7}, {2, 9, 7}, {8, 1, 10}, {5, 3, 4}, {0, 6, 7}};
    for (size_t i = 0; i < sizeof outs / sizeof outs[0]; i++)
        for (int s = 0; s < SIZES; s++) {
            TESTING(t);
            begin(&t, EBB_OP_CENTER_CROP_PAD);
            put_raw(&t, sizes[s], 3, DIMS(5, 6, 7));
            put_list(&t, 3, outs[i]);
            put_out(&t, sizes[s], 3, outs[i]);
            same_bits(&t, "cuda.center_crop_pad", "plain.center_crop_pad");
        }
}

typedef struct widening {
    int rank_x, rank;
    int64_t x[4], y[4];
} widening;

TEST(tensors_are_expanded_and_tiled)
{
    static const widening expands[] = {
        {0, 2, {0}, {3, 700}},
        {3, 3, {2, 1, 5}, {2, 4, 5}},
        {1, 3, {8}, {3, 5, 8}},
        {2, 3, {5, 1}, {2, 5, 7}},
        {3, 3, {2, 0, 1}, {2, 0, 3}},
        {2, 2, {3, 4}, {3, 4}},
        {4, 4, {1, 3, 1, 2}, {4, 3, 5, 2}},
        {2, 2, {1, 1}, {0, 3}},
    };
    static const widening tiles[] = {
        {2, 2, {3, 4}, {6, 12}}, {4, 4, {1, 3, 2, 2}, {4, 6, 2, 6}},
        {2, 2, {3, 0}, {6, 0}},  {3, 3, {2, 3, 64}, {4, 3, 64}},
        {0, 0, {0}, {0}},
    };
    for (int s = 0; s < SIZES; s++)
        for (size_t i = 0; i < 13; i++) {
            const widening *w = i < 8 ? &expands[i] : &tiles[i - 8];
            TESTING(t);
            begin(&t, i < 8 ? EBB_OP_EXPAND : EBB_OP_TILE);
            put_raw(&t, sizes[s], w->rank_x, w->x);
            put_list(&t, w->rank, w->y);
            put_out(&t, sizes[s], w->rank, w->y);
            same_bits(&t, i < 8 ? "cuda.expand" : "cuda.tile",
                      i < 8 ? "plain.expand" : "plain.tile");
        }
}

TEST(triangles_are_cut_at_each_diagonal)
{
    for (int s = 0; s < SIZES; s++)
        for (int k = -7; k < 9; k++)
            for (int upper = 0; upper < 2; upper++) {
                TESTING(t);
                begin(&t, EBB_OP_TRILU);
                put_int(&t, "upper", upper);
                put_raw(&t, sizes[s], 3, DIMS(2, 5, 6));
                if (k < 8) { /* the diagonal need not be known before the run */
                    int64_t diagonal = k == -7 ? INT64_MIN : k == 7 ? INT64_MAX : k;
                    memcpy(put_raw(&t, EBB_I64, 0, NULL)->data, &diagonal, sizeof diagonal);
                }
                put_out(&t, sizes[s], 3, DIMS(2, 5, 6));
                same_bits(&t, "cuda.trilu", "plain.trilu");
            }
}

TEST(shapes_become_tensors)
{
    TESTING(t);
    begin(&t, EBB_OP_SHAPE);
    put_int(&t, "start", -3);
    put_raw(&t, EBB_F32, 4, DIMS(2, 3, 5, 7));
    put_out(&t, EBB_I64, 1, DIMS(3));
    same_bits(&t, "cuda.shape", "plain.shape");
    assert_true(value_of(&t.out[0], 2) == 7);
    end(&t);
    begin(&t, EBB_OP_SIZE);
    put_raw(&t, EBB_F32, 4, DIMS(2, 3, 5, 7));
    put_out(&t, EBB_I64, 0, NULL);
    same_bits(&t, "cuda.size", "plain.size");
}

TEST(constants_and_fills_are_written)
{
    static uint8_t bytes[9999];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 31 + 7);
    ebb_tensor value = {
        .type = ebb_type_tensor(EBB_U8, 1, DIMS(9999)), .data = bytes, .bytes = sizeof bytes};
    testing t;
    begin(&t, EBB_OP_CONSTANT);
    next_attr(&t, "value", EBB_ATTR_TENSOR)->tensor = &value;
    put_out(&t, EBB_U8, 1, DIMS(9999));
    same_bits(&t, "cuda.constant", "plain.constant");
    end(&t);
    const bool are_skewed = getenv("EBB_TEST_SKEW") != NULL;
    for (int s = 0; s < SIZES; s++)
        for (int zero = 0; zero < 2; zero++) { // others at an odd place
            static const uint8_t zeros[16];
            value = (ebb_tensor){.type = ebb_type_tensor(sizes[s], 1, DIMS(1)),
                                 .data = zero ? (uint8_t *)(uintptr_t)zeros : bytes,
                                 .bytes = ebb_dtype_bits(sizes[s]) / 8};
            begin(&t, EBB_OP_CONSTANT_OF_SHAPE);
            next_attr(&t, "value", EBB_ATTR_TENSOR)->tensor = &value;
            put_list(&t, 2, DIMS(7, 101));
            if (!zero)
                (void)setenv("EBB_TEST_SKEW", "1", 1);
            put_out(&t, sizes[s], 2, DIMS(7, 101));
            if (!are_skewed)
                (void)unsetenv("EBB_TEST_SKEW");
            same_bits(&t, "cuda.constant_of_shape", "plain.constant_of_shape");
            end(&t);
        }
}

TEST(ranges_start_and_step)
{
    static const ebb_dtype dtypes[] = {EBB_F32, EBB_F64, EBB_I16, EBB_I32, EBB_I64};
    for (int i = 0; i < 5; i++)
        for (int64_t n = 0; n < 800; n += 267) {
            TESTING(t);
            begin(&t, EBB_OP_RANGE);
            for (int k = 0; k < 3; k++) {
                ebb_operand *o = put_raw(&t, dtypes[i], 0, NULL);
                if (i < 2)
                    set_value(o, 0, k == 0 ? -2.125 : 0.3);
            }
            put_out(&t, dtypes[i], 1, &n);
            if (i < 2)
                agrees(&t, "cuda.range", "plain.range");
            else
                same_bits(&t, "cuda.range", "plain.range");
            if (i == 0)
                agrees_in_halves(&t, "cuda.range");
        }
}

const fixture around_all = {with_cuda, NULL};
