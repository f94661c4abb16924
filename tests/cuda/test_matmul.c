/* test_matmul.c: the products of kernels/cuda against the plain ones, whose sums are in double:
 * matrices that fill no tile, vectors, batches broadcast in every way, long sums cut into parts.
 */
#include "tests/cuda/halves.h"

#include "kernels/cuda/library/lt_map.h"
#include "tests/owned.h"

typedef struct shapes {
    int rank_a, rank_b, rank;
    int64_t a[4], b[4], y[4];
} shapes;

// clang-format off
static const shapes products[] = {
    {2, 2, 2, {1, 1},           {1, 1},          {1, 1}},
    {2, 2, 2, {7, 5},           {5, 3},          {7, 3}},
    {2, 2, 2, {65, 17},         {17, 67},        {65, 67}},
    {2, 2, 2, {130, 33},        {33, 70},        {130, 70}},
    {2, 2, 2, {3, 1100},        {1100, 5},       {3, 5}},
    {3, 3, 3, {2, 3, 2000},     {2, 2000, 4},    {2, 3, 4}},
    {1, 1, 0, {600},            {600},           {0}},
    {1, 2, 1, {5},              {5, 4},          {4}},
    {2, 1, 1, {4, 5},           {5},             {4}},
    {1, 3, 2, {5},              {3, 5, 4},       {3, 4}},
    {4, 1, 3, {2, 3, 4, 5},     {5},             {2, 3, 4}},
    {3, 2, 3, {3, 20, 9},       {9, 11},         {3, 20, 11}},
    {4, 4, 4, {2, 1, 4, 5},     {1, 3, 5, 6},    {2, 3, 4, 6}},
    {4, 3, 4, {2, 3, 4, 5},     {3, 5, 6},       {2, 3, 4, 6}},
    {3, 4, 4, {1, 4, 5},        {2, 3, 5, 6},    {2, 3, 4, 6}},
    {2, 2, 2, {0, 4},           {4, 3},          {0, 3}},
    {2, 2, 2, {3, 0},           {0, 2},          {3, 2}},
    {3, 3, 3, {0, 3, 4},        {1, 4, 2},       {0, 3, 2}},
};
// clang-format on

TEST(products_broadcast_as_the_plain_ones_do)
{
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++) {
        const shapes *s = &products[i];
        TESTING(t);
        begin(&t, EBB_OP_MATMUL);
        put_in(&t, EBB_F32, s->rank_a, s->a);
        put_in(&t, EBB_F32, s->rank_b, s->b);
        put_out(&t, EBB_F32, s->rank, s->y);
        agrees(&t, "cuda.matmul", "plain.matmul");
        agrees_in_halves(&t, "cuda.matmul");
    }
}

TEST(both_sides_may_be_turned)
{
    for (int turn = 0; turn < 4; turn++) {
        const bool left = turn % 2 != 0, right = turn / 2 != 0;
        const int64_t a[] = {2, left ? 21 : 70, left ? 70 : 21};
        const int64_t b[] = {1, right ? 66 : 21, right ? 21 : 66}, y[] = {2, 70, 66};
        TESTING(t);
        begin(&t, EBB_OP_FUSED_MATMUL);
        put_int(&t, "transA", left);
        put_int(&t, "transB", right);
        put_float(&t, "alpha", -0.75);
        put_in(&t, EBB_F32, 3, a);
        put_in(&t, EBB_F32, 3, b);
        put_out(&t, EBB_F32, 3, y);
        agrees(&t, "cuda.fused_matmul", "plain.fused_matmul");
        agrees_in_halves(&t, "cuda.fused_matmul");
    }
}

TEST(gemm_adds_its_third_operand_however_it_broadcasts)
{
    static const struct {
        int rank;
        int64_t dims[2];
    } thirds[] = {{-1, {0}},    {0, {0}},     {1, {1}},      {1, {66}},
                  {2, {1, 66}}, {2, {35, 1}}, {2, {35, 66}}, {2, {1, 1}}};
    for (size_t i = 0; i < sizeof thirds / sizeof thirds[0]; i++)
        for (int turn = 0; turn < 4; turn++) {
            const bool left = turn % 2 != 0, right = turn / 2 != 0;
            const int64_t k = turn == 3 ? 700 : 19; // 700: cut into parts
            const int64_t a[] = {left ? k : 35, left ? 35 : k},
                          b[] = {right ? 66 : k, right ? k : 66};
            const int64_t y[] = {35, 66};
            ebb_dtype dtype = i % 2 == 0 ? EBB_F32 : EBB_F64;
            TESTING(t);
            begin(&t, EBB_OP_GEMM);
            put_int(&t, "transA", left);
            put_int(&t, "transB", right);
            put_float(&t, "alpha", 0.5);
            put_float(&t, "beta", turn == 0 ? 1 : -2);
            put_in(&t, dtype, 2, a);
            put_in(&t, dtype, 2, b);
            if (thirds[i].rank >= 0)
                put_in(&t, dtype, thirds[i].rank, thirds[i].dims);
            put_out(&t, dtype, 2, y);
            agrees(&t, "cuda.gemm", "plain.gemm");
            if (dtype == EBB_F32)
                agrees_in_halves(&t, "cuda.gemm");
        }
}

TEST(only_long_sums_take_workspace)
{
    TESTING(t);
    begin(&t, EBB_OP_MATMUL);
    put_in(&t, EBB_F32, 2, (const int64_t[]){64, 4000});
    put_in(&t, EBB_F32, 2, (const int64_t[]){4000, 64});
    put_out(&t, EBB_F32, 2, (const int64_t[]){64, 64});
    agrees(&t, "cuda.matmul", "plain.matmul");
    assert_int_equal(t.call.workspace_bytes, 15 * 64 * 64 * sizeof(float));
    t.in[0].type.dims[1] = t.in[1].type.dims[0] = 300;
    agrees(&t, "cuda.matmul", "plain.matmul");
    assert_int_equal(t.call.workspace_bytes, 0);
    t.in[0].type.dims[1] = t.in[1].type.dims[0] = 4000;
}

TEST(other_dtypes_and_scalars_are_declined)
{
    TESTING(t);
    begin(&t, EBB_OP_MATMUL);
    put_in(&t, EBB_F32, 2, (const int64_t[]){2, 3});
    put_in(&t, EBB_F32, 2, (const int64_t[]){3, 2});
    put_out(&t, EBB_F32, 2, (const int64_t[]){2, 2});
    assert_null(declined_by(&t, "cuda.matmul"));
    t.in[1].type.dtype = EBB_F64;
    assert_non_null(declined_by(&t, "cuda.matmul"));
    t.in[1].type.dtype = EBB_F32;
    t.in[0].type.rank = 0;
    assert_non_null(declined_by(&t, "cuda.matmul"));
    t.in[0].type.rank = 2;
    t.in[0].type.dtype = t.in[1].type.dtype = t.out[0].type.dtype = EBB_I64;
    assert_non_null(declined_by(&t, "cuda.matmul"));
}

#if !defined(EBB_TEST_ON_DEVICE) // a launcher by itself has no name there

enum { SIDE = 3, APART = 64, ROWS = 0, COLUMNS, BATCHES, WAYS };

static const char *const ways[WAYS] = {"rows", "columns", "batches"};

/* c and, but where it was only filled in, the product of the others. */
static void check_far(const ebb_cuda_product *p, ebb_dtype half, bool filled, int way)
{
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) {
            int sum = p->c != NULL ? 3 + i + j : 0;
            for (int k = 0; k < SIDE && !filled; k++)
                sum += (1 + i + k) * (2 + k + j);
            if (((const uint16_t *)p->y)[i * p->y_row + j] != half_of(half, (float)sum))
                fail_msg("%s: row %d, column %d is another", ways[way], i, j);
        }
}

static void multiply_far(uint16_t *all, int64_t far, ebb_dtype half, int way)
{
    ebb_call c = {.queue = more_queue};
    ebb_cuda_product p;
    ebb_cuda_product_plain(&p, way == BATCHES ? 1 : SIDE, SIDE, SIDE);
    p.a_row = p.b_row = p.c_row = way == COLUMNS ? 1 : far;
    p.a_column = p.b_column = p.c_column = way == COLUMNS ? far : 1;
    p.y_row = far;
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++)
            for (int k = 0; k < 3; k++)
                all[k * APART + i * p.a_row + j * p.a_column] =
                    half_of(half, (float)(1 + k + i + j));
    p.a = all;
    p.b = all + APART;
    p.c = way == BATCHES ? NULL : all + 2 * APART;
    p.y = all + 3 * APART;
    if (way == BATCHES) { // of a row each
        p.batches = SIDE;
        p.a_matrix = far;
        p.walk.rank = 1;
        p.walk.stride[0][0] = 1;
    }
    check_status(ebb_cuda_product_run(&c, &p, half), ways[way]);
    check_far(&p, half, false, way);
    if (p.c != NULL) {
        check_status(ebb_cuda_product_fill(&c, &p, half), ways[way]);
        check_far(&p, half, true, way);
    }
}

/* Of a block of more than 2^32 elements some pages are touched; the others never take memory. */
TEST(operands_may_lie_further_apart_than_32_bits_say)
{
    const int64_t far = INT32_MAX + INT64_C(4096);
    uint16_t *all = more_allocate((size_t)((SIDE - 1) * far + 4 * APART) * 2);
    if (all == NULL)
        skip();
    for (int way = 0; way < WAYS; way++) {
        multiply_far(all, far, EBB_BF16, way);
        multiply_far(all, far, EBB_F16, way);
    }
    more_free(all);
}

#endif

/* ---- in columns ---- */

static double in_columns(const ebb_lt_matrix *m, const double *data, int64_t batch, int64_t i,
                         int64_t j)
{
    int64_t row = m->turned != 0 ? j : i, column = m->turned != 0 ? i : j;
    assert_in_range(row, 0, m->rows - 1);
    assert_in_range(column, 0, m->columns - 1);
    assert_true(m->lead >= m->rows);
    return data[batch * m->next + row + column * m->lead];
}

/* As a library of column-major matrices defines it. */
static void multiply_in_columns(testing *t, const ebb_lt_map *map, double alpha)
{
    double *y = t->out[0].data;
    const ebb_lt_matrix *left = &map->left, *result = &map->result;
    int64_t inner = left->turned != 0 ? left->rows : left->columns;
    assert_int_equal(result->turned, 0);
    for (int64_t batch = 0; batch < map->batches; batch++)
        for (int64_t i = 0; i < result->rows; i++)
            for (int64_t j = 0; j < result->columns; j++) {
                double sum = 0;
                for (int64_t k = 0; k < inner; k++)
                    sum += in_columns(left, t->in[1].data, batch, i, k) *
                           in_columns(&map->right, t->in[0].data, batch, k, j);
                y[batch * result->next + i + j * result->lead] = alpha * sum;
            }
}

TEST(products_in_columns_are_those_in_rows)
{
    size_t mapped = 0;
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++)
        for (int turn = 0; turn < 4; turn++) {
            shapes s = products[i];
            const bool left = turn % 2 != 0 && s.rank_a > 1, right = turn / 2 != 0 && s.rank_b > 1;
            int64_t *a = s.a + s.rank_a - 2, *b = s.b + s.rank_b - 2;
            TESTING(t);
            ebb_cuda_product p;
            ebb_lt_map map;
            if (left)
                a[0] ^= a[1], a[1] ^= a[0], a[0] ^= a[1];
            if (right)
                b[0] ^= b[1], b[1] ^= b[0], b[0] ^= b[1];
            begin(&t, EBB_OP_FUSED_MATMUL);
            put_int(&t, "transA", left);
            put_int(&t, "transB", right);
            put_float(&t, "alpha", 1.5);
            put_in(&t, EBB_F64, s.rank_a, s.a);
            put_in(&t, EBB_F64, s.rank_b, s.b);
            put_out(&t, EBB_F64, s.rank, s.y);
            ebb_cuda_product_read(&p, &t.call);
            if (ebb_lt_map_read(&map, &p) == NULL) {
                mapped++;
                run_with(&t, "plain.fused_matmul");
                FREED double *expected = values_of(&t.out[0]);
                memset(t.out[0].data, 0xFF, t.out[0].bytes);
                multiply_in_columns(&t, &map, 1.5);
                check_close(&t.out[0], expected, bound_of("cuda.fused_matmul").f64, "in columns");
            } else {
                assert_true(p.walk.rank > 1 || p.m * p.n * p.k * p.batches == 0);
            }
        }
    assert_int_equal(mapped, 4 * 13); // but for three empty ones, and two with batches of two axes
}

const fixture around_all = {with_cuda, NULL};
