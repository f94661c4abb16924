/* test_pointwise.c: the pointwise CUDA kernels on shapes that broadcast in every way. */
#include "tests/cuda/bits.h"
#include "tests/cuda/numbers.h"

typedef struct shapes {
    int rank_a, rank_b, rank;
    int64_t a[7], b[7], out[7];
} shapes;

static const shapes broadcasts[] = {
    {1, 1, 1, {5}, {5}, {5}},
    {1, 1, 1, {1031}, {1031}, {1031}}, // packs and a rest
    {0, 3, 3, {0}, {2, 3, 700}, {2, 3, 700}},
    {3, 3, 3, {7, 1, 5}, {1, 4, 5}, {7, 4, 5}},
    {4, 1, 4, {2, 3, 4, 33}, {33}, {2, 3, 4, 33}}, // rows that are no whole packs
    {4, 1, 4, {2, 3, 4, 64}, {64}, {2, 3, 4, 64}},
    {4, 3, 4, {2, 3, 4, 8}, {3, 1, 1}, {2, 3, 4, 8}},
    {3, 3, 3, {5, 1, 16}, {5, 3, 1}, {5, 3, 16}},
    {2, 2, 2, {1, 1}, {1, 1}, {1, 1}},
    {2, 2, 2, {0, 3}, {1, 3}, {0, 3}},
    {5, 5, 5, {2, 1, 3, 1, 4}, {1, 3, 1, 2, 1}, {2, 3, 3, 2, 4}}, // none that go together
    {5, 5, 5, {2, 1, 2, 1, 3}, {1, 2, 1, 2, 1}, {2, 2, 2, 2, 3}}, // and no whole packs
    {6, 5, 6, {2, 1, 3, 1, 2, 1}, {3, 1, 2, 1, 3}, {2, 3, 3, 2, 2, 3}},
    {7, 7, 7, {2, 1, 2, 1, 2, 1, 2}, {1, 2, 1, 2, 1, 2, 1}, {2, 2, 2, 2, 2, 2, 2}},
};
enum { BROADCASTS = sizeof broadcasts / sizeof broadcasts[0] };

typedef struct operator_ {
    ebb_op op;
    const char *name;
    double low, high; /* of the second input */
    bool flag;        /* the result is bool */
} operator_;

static const operator_ numbers[] = {
    {EBB_OP_ADD, "add", -9, 9, false},
    {EBB_OP_SUB, "sub", -9, 9, false},
    {EBB_OP_MUL, "mul", -9, 9, false},
    {EBB_OP_DIV, "div", 1, 9, false},
    {EBB_OP_MOD, "mod", 1, 9, false},
    {EBB_OP_POW, "pow", 0, 4, false},
    {EBB_OP_MAX, "max", -9, 9, false},
    {EBB_OP_MIN, "min", -9, 9, false},
    {EBB_OP_EQUAL, "equal", -9, 9, true},
    {EBB_OP_GREATER, "greater", -9, 9, true},
    {EBB_OP_GREATER_OR_EQUAL, "greater_equal", -9, 9, true},
    {EBB_OP_LESS, "less", -9, 9, true},
    {EBB_OP_LESS_OR_EQUAL, "less_equal", -9, 9, true},
};

static void make(testing *t, const operator_ *op, const shapes *s, ebb_dtype dtype)
{
    begin(t, op->op);
    put_numbers(t, dtype, s->rank_a, s->a, -9, 9);
    put_numbers(t, dtype, s->rank_b, s->b, op->low, op->high);
    put_out(t, op->flag ? EBB_BOOL : dtype, s->rank, s->out);
}

static void each_number(ebb_dtype dtype)
{
    for (size_t k = 0; k < sizeof numbers / sizeof numbers[0]; k++)
        for (size_t i = 0; i < BROADCASTS; i++) {
            const operator_ *op = &numbers[k];
            char name[2][40];
            TESTING(t);
            (void)snprintf(name[0], sizeof name[0], "cuda.%s", op->name);
            (void)snprintf(name[1], sizeof name[1], "plain.%s", op->name);
            make(&t, op, &broadcasts[i], dtype);
            if (is_narrow(&t.in[0]))
                same_as_float32(&t, name[0]);
            else
                same_as(&t, name[0], name[1]);
        }
}

TEST(floats_broadcast_as_the_plain_ones_do)
{
    each_number(EBB_F32);
    each_number(EBB_F64);
}

TEST(floats_of_16_bits_are_those_of_32_rounded)
{
    each_number(EBB_F16);
    each_number(EBB_BF16);
    for (size_t k = 0; k < sizeof numbers / sizeof numbers[0]; k++)
        for (int brain = 0; brain < 2; brain++) {
            const ebb_dtype half = brain ? EBB_BF16 : EBB_F16;
            char name[40];
            TESTING(t);
            (void)snprintf(name, sizeof name, "cuda.%s", numbers[k].name);
            begin(&t, numbers[k].op);
            put_edges(&t, half, ALL_PAIRS, 1);
            put_edges(&t, half, ALL_PAIRS, EDGES);
            put_out(&t, numbers[k].flag ? EBB_BOOL : half, 1, DIMS(ALL_PAIRS));
            same_as_float32(&t, name);
        }
}

static const ebb_dtype integers[] = {EBB_I8, EBB_I16, EBB_I32, EBB_I64,
                                     EBB_U8, EBB_U16, EBB_U32, EBB_U64};

TEST(integers_are_those_of_the_plain_kernels)
{
    for (size_t k = 0; k < sizeof integers / sizeof integers[0]; k++)
        each_number(integers[k]);
}

TEST(integers_of_all_bits_wrap_around)
{
    static const operator_ more[] = {
        {EBB_OP_ADD, "add", 0, 0, false},
        {EBB_OP_MUL, "mul", 0, 0, false},
        {EBB_OP_DIV, "div", 0, 0, false},
        {EBB_OP_MOD, "mod", 0, 0, false},
        {EBB_OP_BITWISE_AND, "bit_and", 0, 0, false},
        {EBB_OP_BITWISE_OR, "bit_or", 0, 0, false},
        {EBB_OP_BITWISE_XOR, "bit_xor", 0, 0, false},
        {EBB_OP_BIT_SHIFT, "bit_shift", 0, 0, false},
    };
    for (size_t d = 0; d < sizeof integers / sizeof integers[0]; d++)
        for (size_t k = 0; k < sizeof more / sizeof more[0]; k++)
            for (int other = 0; other < 2; other++) {
                const operator_ *op = &more[k];
                char name[2][40];
                TESTING(t);
                (void)snprintf(name[0], sizeof name[0], "cuda.%s", op->name);
                (void)snprintf(name[1], sizeof name[1], "plain.%s", op->name);
                make(&t, op, &broadcasts[3], integers[d]);
                put_bits(&t, &t.in[0]);
                put_bits(&t, &t.in[1]);
                size_t size = ebb_dtype_bits(integers[d]) / 8;
                if (op->op == EBB_OP_DIV || op->op == EBB_OP_MOD || op->op == EBB_OP_BIT_SHIFT)
                    for (size_t i = 0; i < count_of(&t.in[1]); i++) { // not 0; -1 too; 0 to 127
                        int64_t v = (int64_t)(draw(&t) * 12);
                        v = op->op == EBB_OP_BIT_SHIFT ? v * v : v == 0 ? -1 : v;
                        memcpy((char *)t.in[1].data + i * size, &v, size);
                    }
                if (op->op == EBB_OP_BIT_SHIFT)
                    put_string(&t, "direction", other ? "LEFT" : "RIGHT");
                if (op->op == EBB_OP_MOD)
                    put_int(&t, "fmod", other);
                same_as(&t, name[0], name[1]);
            }
}

TEST(bools_are_those_of_the_plain_kernels)
{
    static const operator_ logic[] = {
        {EBB_OP_AND, "and", 0, 0, true},
        {EBB_OP_OR, "or", 0, 0, true},
        {EBB_OP_XOR, "xor", 0, 0, true},
        {EBB_OP_EQUAL, "equal", 0, 0, true},
    };
    for (size_t k = 0; k < 4; k++) {
        char name[2][40];
        TESTING(t);
        (void)snprintf(name[0], sizeof name[0], "cuda.%s", logic[k].name);
        (void)snprintf(name[1], sizeof name[1], "plain.%s", logic[k].name);
        make(&t, &logic[k], &broadcasts[6], EBB_BOOL);
        same_as(&t, name[0], name[1]);
    }
}

TEST(a_divisor_of_zero_is_a_fault_of_its_own_kind)
{
    ebb_fault fault;
    bool replays;
    for (int zero = 0; zero < 2; zero++) {
        TESTING(t);
        begin(&t, EBB_OP_DIV);
        put_numbers(&t, EBB_I32, 1, (int64_t[]){300}, 3, 9);
        put_numbers(&t, EBB_I32, 1, (int64_t[]){300}, 3, 9);
        put_out(&t, EBB_I32, 1, (int64_t[]){300});
        if (zero)
            ((int32_t *)t.in[1].data)[271] = 0;
        t.call.position = 7;
        check_status(ebb_backend_cuda.device->begin(more_queue, 0, &replays), "begin");
        run_with(&t, "cuda.div");
        check_status(ebb_backend_cuda.device->end(more_queue, &fault), "end");
        assert_int_equal(fault.there, zero);
        if (zero) {
            assert_int_equal(fault.position, 7);
            assert_int_equal(fault.value, 271);
            assert_int_equal(fault.kind, EBB_FAULT_DIVISOR);
        }
    }
}

TEST(exponents_may_be_of_another_type)
{
    static const struct {
        ebb_dtype of, by;
    } pairs[] = {{EBB_F32, EBB_I64}, {EBB_F32, EBB_F64}, {EBB_F64, EBB_I32}, {EBB_F64, EBB_F32},
                 {EBB_I32, EBB_F32}, {EBB_I64, EBB_I8},  {EBB_U8, EBB_F64},  {EBB_I16, EBB_I64},
                 {EBB_F16, EBB_I64}, {EBB_BF16, EBB_F64}};
    for (size_t k = 0; k < sizeof pairs / sizeof pairs[0]; k++)
        for (size_t i = 0; i < BROADCASTS; i++) {
            const shapes *s = &broadcasts[i];
            TESTING(t);
            begin(&t, EBB_OP_POW);
            put_numbers(&t, pairs[k].of, s->rank_a, s->a, -4, 4);
            ebb_operand *e = put_numbers(&t, pairs[k].by, s->rank_b, s->b, -1, 4);
            if (!ebb_dtype_is_float(pairs[k].of) && is_real(e)) // not what no integer can hold
                for (size_t j = 0; j < count_of(e); j++)
                    put_real(e, j, (double)(j % 4));
            put_out(&t, pairs[k].of, s->rank, s->out);
            if (is_narrow(&t.in[0]))
                same_as_float32(&t, "cuda.pow");
            else
                same_as(&t, "cuda.pow", "plain.pow");
        }
}

TEST(small_powers_are_products)
{
    static const double exponents[] = {2, 3, 1, -1, 0.5, 0};
    for (int wide = 0; wide < 2; wide++)
        for (size_t k = 0; k < 6; k++) {
            ebb_dtype dtype = wide ? EBB_F64 : EBB_F32;
            TESTING(t);
            begin(&t, EBB_OP_POW);
            put_numbers(&t, dtype, 1, (int64_t[]){37}, -4, 4);
            put_real(put_numbers(&t, dtype, 0, NULL, 0, 0), 0, exponents[k]);
            put_out(&t, dtype, 1, (int64_t[]){37});
            same_bits_but(&t, "cuda.pow", "plain.pow", true);
        }
}

TEST(many_inputs_are_combined)
{
    static const operator_ many[] = {
        {EBB_OP_SUM, "sum", 0, 0, false},
        {EBB_OP_MEAN, "mean", 0, 0, false},
        {EBB_OP_MAX, "max", 0, 0, false},
        {EBB_OP_MIN, "min", 0, 0, false},
    };
    static const ebb_dtype dtypes[] = {EBB_F32, EBB_F64, EBB_I32, EBB_F16, EBB_BF16};
    static const int64_t dims[3][2] = {{6, 8}, {1, 8}, {6, 1}};
    for (size_t k = 0; k < 4; k++)
        for (size_t d = 0; d < 5; d++)
            for (int count = 1; count <= 9; count++) {
                char name[2][40];
                TESTING(t);
                bool narrow = dtypes[d] == EBB_F16 || dtypes[d] == EBB_BF16;
                if ((many[k].op == EBB_OP_MEAN && dtypes[d] == EBB_I32) || (narrow && count > 4))
                    continue; // more than four 16-bit inputs are rounded between
                (void)snprintf(name[0], sizeof name[0], "cuda.%s", many[k].name);
                (void)snprintf(name[1], sizeof name[1], "plain.%s", many[k].name);
                begin(&t, many[k].op);
                for (int i = 0; i < count; i++)
                    put_numbers(&t, dtypes[d], 2, dims[i % 3], -5, 5);
                put_out(&t, dtypes[d], 2, dims[0]);
                if (narrow)
                    same_as_float32(&t, name[0]);
                else
                    same_as(&t, name[0], name[1]);
            }
}

TEST(where_takes_elements_of_every_size)
{
    static const ebb_dtype dtypes[] = {EBB_U8, EBB_F16, EBB_F32, EBB_F64, EBB_BOOL, EBB_I64};
    for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++)
        for (size_t i = 0; i < BROADCASTS; i++)
            for (int turn = 0; turn < 3; turn++) { // which of the three is the smallest
                const shapes *s = &broadcasts[i];
                int64_t one[1] = {1};
                TESTING(t);
                begin(&t, EBB_OP_WHERE);
                for (int k = 0; k < 3; k++) {
                    ebb_dtype dtype = k == 0 ? EBB_BOOL : dtypes[d];
                    if (k == turn)
                        put_numbers(&t, dtype, 1, one, 0, 100);
                    else if (k == (turn + 1) % 3)
                        put_numbers(&t, dtype, s->rank_a, s->a, 0, 100);
                    else
                        put_numbers(&t, dtype, s->rank_b, s->b, 0, 100);
                }
                put_out(&t, dtypes[d], s->rank, s->out);
                same_as(&t, "cuda.where", "plain.where");
            }
}

/* Storage that begins at any element: no packs then, and the same result. */
TEST(unaligned_operands_are_taken_one_by_one)
{
    for (int which = 0; which < 3; which++) {
        TESTING(t);
        begin(&t, EBB_OP_ADD);
        put_numbers(&t, EBB_F32, 1, (int64_t[]){77}, -9, 9);
        put_numbers(&t, EBB_F32, 1, (int64_t[]){77}, -9, 9);
        put_out(&t, EBB_F32, 1, (int64_t[]){77});
        ebb_operand *o = which == 2 ? &t.out[0] : &t.in[which];
        float *whole = o->data;
        o->type.dims[0] = t.in[0].type.dims[0] = t.in[1].type.dims[0] = t.out[0].type.dims[0] = 76;
        const ebb_kernel *k = kernel_named("cuda.add");
        t.call.queue = more_queue;
        o->data = whole + 1;
        check_run(k->run(&t.call), "cuda.add");
        for (size_t i = 0; i < 76; i++) {
            float sum = ((float *)t.in[0].data)[i] + ((float *)t.in[1].data)[i];
            float got = ((float *)t.out[0].data)[i];
            assert_true(got == sum || (isnan(got) && isnan(sum)));
        }
        o->data = whole;
    }
}

TEST(other_types_are_declined)
{
    TESTING(t);
    make(&t, &numbers[0], &broadcasts[0], EBB_BOOL);
    assert_string_equal(declined_by(&t, "cuda.add"), "does not compute in this dtype");
    t.in[0].type.dtype = EBB_F32;
    assert_string_equal(declined_by(&t, "cuda.add"), "inputs differ in dtype");
    t.in[1].type.dtype = EBB_F32;
    t.call.op = EBB_OP_AND;
    assert_string_equal(declined_by(&t, "cuda.and"), "does not compute in this dtype");
    t.call.op = EBB_OP_BITWISE_OR;
    assert_string_equal(declined_by(&t, "cuda.bit_or"), "does not compute in this dtype");
}

const fixture around_all = {with_cuda, NULL};
