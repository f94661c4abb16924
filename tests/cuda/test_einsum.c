/* test_einsum.c: Einsum's kernels against the plain sums: products in tiles and by lanes, any order
 * of axes, diagonals, broadcast dims, several operands, nothing to sum. */
#include "tests/cuda/halves.h"

typedef struct equation {
    const char *text;
    int ranks[5]; /* of the operands, ended by 0; then the output's */
    int64_t dims[5][5];
} equation;

static const equation equations[] = {
    {"ij,jk->ik", {2, 2, 0, 2}, {{70, 130}, {130, 67}, {0}, {70, 67}}},
    {"ij,jk->ik", {2, 2, 0, 2}, {{16, 4099}, {4099, 13}, {0}, {16, 13}}}, // k in parts
    {"ij,jk->ki", {2, 2, 0, 2}, {{13, 5}, {5, 65}, {0}, {65, 13}}},
    {"bhid,bhjd->bhij", {4, 4, 0, 4}, {{2, 3, 17, 5}, {2, 3, 19, 5}, {0}, {2, 3, 17, 19}}},
    {"ibnd,jbnd->bnij", {4, 4, 0, 4}, {{14, 2, 3, 6}, {15, 2, 3, 6}, {0}, {2, 3, 14, 15}}},
    {"bijk,lk->bilj", {4, 2, 0, 4}, {{2, 3, 5, 4}, {17, 4}, {0}, {2, 3, 17, 5}}},
    {"ab,cd->dbca", {2, 2, 0, 4}, {{3, 5}, {4, 7}, {0}, {7, 5, 4, 3}}},
    {"bi,bi->b", {2, 2, 0, 1}, {{5, 1030}, {5, 1030}, {0}, {5}}},
    {"i,i->", {1, 1, 0, 0}, {{100003}, {100003}, {0}, {0}}},
    {"i,j->ij", {1, 1, 0, 2}, {{33}, {70}, {0}, {33, 70}}},
    {"ii->i", {2, 0, 1}, {{7, 7}, {0}, {7}}},
    {"iij,jk->ik", {3, 2, 0, 2}, {{13, 13, 3}, {3, 40}, {0}, {13, 40}}},
    {"ijk->", {3, 0, 0}, {{3, 50, 7}, {0}, {0}}},
    {"ijk->kj", {3, 0, 2}, {{300, 5, 7}, {0}, {7, 5}}},
    {"...ij,...jk->...ik", {4, 3, 0, 4}, {{2, 3, 4, 5}, {1, 5, 6}, {0}, {2, 3, 4, 6}}},
    {"...ij,...jk->...ik", {3, 3, 0, 3}, {{1, 14, 5}, {4, 5, 16}, {0}, {4, 14, 16}}},
    {"bi,ijk,bk->bj", {2, 3, 2, 0, 2}, {{6, 4}, {4, 20, 5}, {6, 5}, {0}, {6, 20}}},
    {"ab,bc,cd->ad", {2, 2, 2, 0, 2}, {{14, 3}, {3, 18}, {18, 15}, {0}, {14, 15}}},
    {"ij,jk->ik", {2, 2, 0, 2}, {{3, 0}, {0, 4}, {0}, {3, 4}}},
    {"ij,jk->ik", {2, 2, 0, 2}, {{20, 0}, {0, 40}, {0}, {20, 40}}},
    {"ij,jk->ik", {2, 2, 0, 2}, {{0, 4}, {4, 5}, {0}, {0, 5}}},
    {"ij,jk,kl->il", {2, 2, 2, 0, 2}, {{3, 0}, {0, 4}, {4, 5}, {0}, {3, 5}}},
};

enum { EQUATIONS = sizeof equations / sizeof equations[0] };

static uint32_t put_equation(testing *t, const equation *e, ebb_dtype dtype)
{
    uint32_t i = 0;
    begin(t, EBB_OP_EINSUM);
    t->call.node = e->text;
    put_string(t, "equation", e->text);
    for (; e->ranks[i] > 0; i++)
        put_in(t, dtype, e->ranks[i], e->dims[i]);
    put_out(t, dtype, e->ranks[i + 1], e->dims[i + 1]);
    return i;
}

static void sums_are_those_of_the_definition(void **state)
{
    (void)state;
    for (int i = 0; i < EQUATIONS; i++)
        for (int wide = 0; wide < 2; wide++) {
            testing t;
            (void)put_equation(&t, &equations[i], wide ? EBB_F64 : EBB_F32);
            agrees(&t, "cuda.einsum", "plain.einsum", wide ? 1e-13 : 2e-6);
            end(&t);
        }
}

static void halves_are_float32_rounded(void **state)
{
    (void)state;
    for (int i = 0; i < EQUATIONS; i++) {
        testing t;
        if (put_equation(&t, &equations[i], EBB_F32) < 3)
            agrees_in_halves(&t, "cuda.einsum", 0);
        end(&t);
    }
    testing t; // whose pairs would be rounded in between
    (void)put_equation(&t, &equations[16], EBB_F32);
    for (uint32_t i = 0; i < 3; i++)
        t.in[i].type.dtype = EBB_F16;
    t.out[0].type.dtype = EBB_F16;
    assert_string_equal(declined_by(&t, "cuda.einsum"), "more than two operands of 16 bits");
    end(&t);
}

static void what_does_not_fit_is_declined(void **state)
{
    (void)state;
    testing t;
    (void)put_equation(&t, &equations[0], EBB_F32);
    t.in[1].type.dims[0]++;
    assert_non_null(declined_by(&t, "cuda.einsum"));
    assert_string_equal(declined_by(&t, "cuda.einsum"), declined_by(&t, "plain.einsum"));
    t.in[1].type.dims[0]--;
    t.out[0].type.dims[0]++;
    assert_string_equal(declined_by(&t, "cuda.einsum"), declined_by(&t, "plain.einsum"));
    end(&t);
}

int main(void)
{
    with_cuda();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_those_of_the_definition),
        cmocka_unit_test(halves_are_float32_rounded),
        cmocka_unit_test(what_does_not_fit_is_declined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
