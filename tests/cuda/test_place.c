/* test_place.c: Col2Im and MaxUnpool against the plain kernels: blocks that overlap, leave gaps and
 * reach into the padding; indices that meet, and one that is nowhere. */
#include "tests/cuda/bits.h"
#include "tests/cuda/halves.h"

TEST(blocks_are_added_as_by_the_plain_kernel)
{
    static const int64_t all[][10] = {/* n, c, image 2, block 2, stride, dilation, pads 2 */
                                      {1, 1, 3, 3, 1, 1, 1, 1, 0, 0},
                                      {2, 3, 7, 6, 3, 2, 1, 2, 1, 0},
                                      {1, 2, 9, 5, 2, 3, 3, 1, 0, 2},
                                      {0, 2, 4, 4, 2, 2, 1, 1, 0, 0}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const int64_t *s = all[i], room = s[8] + s[9] - 1;
        const int64_t rows = (s[2] + room - s[7] * (s[4] - 1)) / s[6] + 1;
        const int64_t columns = (s[3] + room - s[7] * (s[5] - 1)) / s[6] + 1;
        ebb_tensor constant;
        TESTING(t);
        begin(&t, EBB_OP_COL2IM);
        put_ints(&t, "strides", 2, D(s[6], s[6]));
        put_ints(&t, "dilations", 2, D(s[7], s[7]));
        put_ints(&t, "pads", 4, D(s[8], s[8], s[9], s[9]));
        put_in(&t, EBB_F32, 3, D(s[0], s[1] * s[4] * s[5], rows * columns));
        for (int input = 1; input < 3; input++) {
            ebb_operand *list = put_in(&t, EBB_I64, 1, D(2));
            for (size_t e = 0; e < 2; e++)
                set_value(list, e, (double)s[2 * (size_t)input + e]);
        }
        constant = (ebb_tensor){.type = t.in[2].type, .data = t.in[2].data, .bytes = t.in[2].bytes};
        t.in[2].constant = &constant;
        put_out(&t, EBB_F32, 4, D(s[0], s[1], s[2], s[3]));
        agrees(&t, "cuda.col2im", "plain.col2im");
        for (size_t e = 0; e < count_of(&t.in[0]); e += 3) // float16 has them as subnormals
            set_value(&t.in[0], e, 0x1p-16 * value_of(&t.in[0], e));
        agrees_in_halves(&t, "cuda.col2im");
    }
}

/* big: of several blocks. */
static void put_unpool(testing *t, ebb_dtype dtype, bool meet, bool big)
{
    const int64_t rows = big ? 9 : 3, columns = big ? 8 : 2;
    begin(t, EBB_OP_MAX_UNPOOL);
    put_ints(t, "kernel_shape", 2, D(2, 2));
    put_ints(t, "strides", 2, D(2, 2));
    put_raw(t, dtype, 4, D(2, 3, rows, columns));
    ebb_operand *index = put_in(t, EBB_I64, 4, D(2, 3, rows, columns));
    for (size_t i = 0; i < count_of(index); i++)
        set_value(index, i, (double)(meet ? (i * 7) % 11 : (i * 41) % (4 * count_of(index))));
    put_out(t, dtype, 4, D(2, 3, 2 * rows + 1, 2 * columns)); // a row more than the windows give
}

TEST(the_last_of_those_that_meet_stays)
{
    static const ebb_dtype dtypes[] = {EBB_F32, EBB_F64, EBB_I64, EBB_U8, EBB_F16, EBB_C128};
    for (int way = 0; way < 4; way++)
        for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
            TESTING(t);
            put_unpool(&t, dtypes[i], way % 2 != 0, way / 2 != 0);
            same_bits(&t, "cuda.max_unpool", "plain.max_unpool");
        }
}

TEST(what_does_not_fit_is_declined)
{
    TESTING(t);
    put_unpool(&t, EBB_F32, false, false);
    t.in[1].type.dims[2]--;
    assert_string_equal(declined_by(&t, "cuda.max_unpool"), declined_by(&t, "plain.max_unpool"));
    t.in[1].type.dims[2]++;
    t.out[0].type.dims[2] = 5;
    t.call.queue = more_queue;
    for (int cuda = 0; cuda < 2; cuda++) {
        ebb_status status =
            kernel_named(cuda ? "cuda.max_unpool" : "plain.max_unpool")->run(&t.call);
        assert_non_null(status);
        assert_non_null(strstr(ebb_status_text(status), "axis 2 of the windows has 6 places"));
    }
    t.out[0].type.dims[2] = 7;
}

const fixture around_all = {with_cuda, NULL};
