/* test_conv_tiles.c: convolutions by kernels/fast/gathered.h against the plain ones. */
#include "tests/kernels/dnnl_shapes.h"
#include "tests/owned.h"

static const double TOLERANCE = 2e-5;

typedef enum way { FORWARD, BY_DATA, BY_WEIGHTS } way;

static const ebb_op ops[] = {EBB_OP_CONV, EBB_OP_CONV_TRANSPOSE, EBB_OP_CONV_WEIGHT_GRAD};
static const char *const names[][2] = {{"tiles.conv", "plain.conv"},
                                       {"tiles.conv_transpose", "plain.conv_transpose"},
                                       {"tiles.conv_weight_grad", "plain.conv_weight_grad"}};

static void put_conv(testing *t, const shape *s, way w, bool biased)
{
    dims d = dims_of(s);
    int64_t rest[3];
    for (int a = 0; a < s->spatial; a++) {
        int64_t reach = (s->kernel[a] - 1) * s->dilation[a] + 1;
        rest[a] = (s->size[a] + s->pads[a] + s->pads[s->spatial + a] - reach) % s->stride[a];
    }
    begin(t, ops[w]);
    t->call.node = s->what;
    put_window(t, s);
    put_int(t, "group", s->groups);
    put_ints(t, "output_padding", (uint32_t)s->spatial, rest);
    put_in(t, EBB_F32, d.rank, w == FORWARD ? d.x : d.y);
    put_in(t, EBB_F32, d.rank, w == BY_WEIGHTS ? d.x : d.w);
    if (biased && w != BY_WEIGHTS)
        put_in(t, EBB_F32, 1, w == FORWARD ? d.w : &d.x[1]);
    put_out(t, EBB_F32, d.rank, w == FORWARD ? d.y : w == BY_DATA ? d.x : d.w);
}

static void convolutions_agree(const shape *s, size_t count, size_t expected)
{
    size_t taken = 0;
    for (size_t i = 0; i < count; i++)
        for (int mode = 0; mode < 6; mode++) {
            TESTING(t);
            put_conv(&t, &s[i], (way)(mode % 3), mode > 2);
            if (declined_by(&t, names[mode % 3][0]) == NULL) {
                check_agree(&t, names[mode % 3][0], names[mode % 3][1], TOLERANCE);
                taken++;
            }
        }
    assert_true(taken >= expected);
}

TEST(convolutions_agree_with_the_plain_ones)
{
    convolutions_agree(shapes, SHAPES, 6 * 17);
}

/* More than a block and a stretch in each direction. */
TEST(convolutions_of_several_blocks_agree)
{
    // clang-format off
    static const shape large[] = {
        {"many filters",  2, 3,  40, 210, 1, {9, 10},  {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}},
        {"many channels", 2, 2, 210,  20, 1, {8, 11},  {3, 3}, {2, 2}, {1, 1}, {1, 1, 1, 1}},
        {"many pixels",   2, 2,   5,  12, 1, {33, 41}, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}},
    };
    // clang-format on
    convolutions_agree(large, sizeof large / sizeof *large, 6 * 3);
}

/* Strides, dilations and kernels of which some phases have no tap; rows and images shorter than a line. */
TEST(convolutions_of_any_phase_agree)
{
    // clang-format off
    static const shape odd[] = {
        {"phases without a tap",  2, 2,  5,  6, 1, {11, 14},  {2, 1}, {3, 4}, {1, 1}, {0, 0, 0, 0}},
        {"dilated by the stride", 2, 3,  4,  6, 1, {13, 16},  {3, 3}, {2, 2}, {2, 4}, {2, 3, 1, 4}},
        {"dilated across it",     2, 2,  6,  5, 1, {17, 19},  {3, 4}, {3, 2}, {2, 3}, {1, 4, 2, 0}},
        {"more pad than image",   2, 5,  3,  4, 1, {3, 2},    {5, 5}, {1, 2}, {1, 1}, {3, 4, 4, 3}},
        {"images of one element", 2, 9,  7,  8, 1, {1, 1},    {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}},
        {"joined rows",           2, 3, 12, 16, 2, {7, 5},    {1, 1}, {1, 1}, {1, 1}, {0, 0, 0, 0}},
        {"one tap, padded",       2, 2,  8,  8, 1, {6, 9},    {1, 1}, {1, 1}, {1, 1}, {0, 1, 0, 0}},
        {"one axis",              1, 4,  6,  8, 1, {57},      {5},    {3},    {1},    {2, 1}},
        {"three axes",            3, 2,  4,  6, 1, {5, 6, 7}, {3, 2, 3}, {2, 1, 2}, {1, 2, 1}, {1, 1, 0, 0, 1, 2}},
    };
    // clang-format on
    convolutions_agree(odd, sizeof odd / sizeof *odd, 6 * 9);
}

TEST(a_convolution_that_is_none_is_declined)
{
    shape s = shapes[2];
    TESTING(t);
    put_conv(&t, &s, FORWARD, true);
    t.in[2].type.dims[0]++;
    assert_string_equal(declined_by(&t, "tiles.conv"), "the bias has the wrong shape");
    end(&t);
    put_conv(&t, &s, FORWARD, false);
    t.in[1].type.dims[1]++;
    assert_non_null(declined_by(&t, "tiles.conv"));
}

TEST(bits_are_the_same_for_every_number_of_threads)
{
    FREED float *first = NULL;
    for (int threads = 1; threads < 5; threads++) {
        TESTING(t);
        ebb_threads_before before = ebb_threads_enter(threads);
        put_conv(&t, &shapes[3], BY_WEIGHTS, false);
        run_with(&t, "tiles.conv_weight_grad");
        if (first == NULL) {
            first = malloc(t.out[0].bytes);
            assert_non_null(first);
            memcpy(first, t.out[0].data, t.out[0].bytes);
        }
        assert_memory_equal(first, t.out[0].data, t.out[0].bytes);
        ebb_threads_leave(before);
    }
}
