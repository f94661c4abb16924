/* test_einsum.c: Einsum's kernels against the plain sums: products in tiles and by lanes, any order
 * of axes, diagonals, broadcast dims, several operands, nothing to sum. And of integers; and
 * TfIdfVectorizer. */
#include "tests/cuda/bits.h"
#include "tests/cuda/halves.h"

#include "kernels/nested/on_host.h"
#include "tests/owned.h"

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
    {"iab,baj->ij", {3, 3, 0, 2}, {{13, 8, 80}, {80, 8, 14}, {0}, {13, 14}}}, // a, b in parts
    {"ki,kj->ij", {2, 2, 0, 2}, {{1200, 3}, {1200, 13}, {0}, {3, 13}}},       // parts of two blocks
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

TEST(sums_are_those_of_the_definition)
{
    for (int i = 0; i < EQUATIONS; i++) {
        TESTING(t);
        (void)put_equation(&t, &equations[i], EBB_F32);
        agrees(&t, "cuda.einsum", "plain.einsum");
    }
}

TEST(halves_are_float32_rounded)
{
    for (int i = 0; i < EQUATIONS; i++) {
        TESTING(t);
        if (put_equation(&t, &equations[i], EBB_F32) < 3)
            agrees_in_halves(&t, "cuda.einsum");
    }
    testing t; // whose pairs would be rounded in between
    (void)put_equation(&t, &equations[16], EBB_F32);
    for (uint32_t i = 0; i < 3; i++)
        t.in[i].type.dtype = EBB_F16;
    t.out[0].type.dtype = EBB_F16;
    assert_string_equal(declined_by(&t, "cuda.einsum"), "more than two operands of 16 bits");
    end(&t);
}

/* All phases of what is picked for the call. */
static void run_picked(testing *t, const ebb_backend *const *list)
{
    ebb_call *c = &t->call;
    c->queue = (*list)->device->is_host ? NULL : more_queue;
    check_status(ebb_pick(c, list), c->node);
    assert_false(ebb_is_on_host(c->kernel));
    check_status(c->kernel->workspace(c, &c->workspace_bytes), c->node);
    c->workspace = guarded(c->workspace_bytes);
    check_status(c->kernel->prepare(c), c->node);
    check_run(c->kernel->run(c), c->node);
    c->kernel->release(c);
    check_guards(c->workspace, c->workspace_bytes, "workspace");
    unguard(c->workspace);
}

/* What no kernel of the device takes in 16 bits it computes in float32, by its own Casts. */
TEST(halves_that_are_declined_are_widened_on_the_device)
{
    for (int brain = 0; brain < 2; brain++)
        for (int mixed = 0; mixed < 2; mixed++) {
            const ebb_dtype half = brain ? EBB_BF16 : EBB_F16;
            TESTING(t);
            (void)put_equation(&t, &equations[16], EBB_F32);
            for (uint32_t i = 0; i < 4; i++) {
                ebb_operand *o = i < 3 ? &t.in[i] : &t.out[0];
                const ebb_operand wide = *o;
                if (mixed && i != 1)
                    continue; // one of the factors alone, beside float32
                make_operand(o, half, wide.type.rank, wide.type.dims);
                for (size_t e = 0; e < count_of(o); e++)
                    ((uint16_t *)o->data)[e] = half_of(half, ((const float *)wide.data)[e]);
                unguard(wide.data);
            }
            assert_non_null(declined_by(&t, "cuda.einsum"));
            const ebb_backend *const *plain, *const more[] = {more_backend, NULL};
            assert_null(ebb_backends("plain", &plain));
            run_picked(&t, plain);
            FREED void *expected = malloc(t.out[0].bytes);
            assert_non_null(expected);
            memcpy(expected, t.out[0].data, t.out[0].bytes);
            memset(t.out[0].data, 0xFF, t.out[0].bytes);
            run_picked(&t, more);
            for (size_t e = 0; e < count_of(&t.out[0]); e++) {
                const double a = mixed ? (double)((const float *)t.out[0].data)[e]
                                       : of_half(half, ((const uint16_t *)t.out[0].data)[e]);
                const double b = mixed ? (double)((const float *)expected)[e]
                                       : of_half(half, ((const uint16_t *)expected)[e]);
                if (!(fabs(a - b) <= (mixed ? 1e-6 : brain ? 0x1p-8 : 0x1p-11) * (1 + fabs(b))))
                    fail_msg("element %zu is %g, expected %g", e, a, b);
            }
        }
}

TEST(whole_sums_are_those_of_the_definition)
{
    static const ebb_dtype dtypes[] = {EBB_I64, EBB_I32, EBB_U8,  EBB_U64,
                                       EBB_I16, EBB_I8,  EBB_U16, EBB_U32};
    for (int i = 0; i < 2 * EQUATIONS; i++) // of all bits, which wrap around; of small numbers
        for (int d = 0; d < 8; d++) {
            TESTING(t);
            const size_t size = ebb_dtype_bits(dtypes[d]) / 8;
            if (d > 0 && d != 1 + i / 2 % 7 && i / 2 != 16) // of three, in each dtype
                continue;
            const uint32_t count = put_equation(&t, &equations[i / 2], EBB_F32);
            for (uint32_t k = 0; k <= count; k++) {
                ebb_operand *o = k < count ? &t.in[k] : &t.out[0];
                const int rank = o->type.rank;
                unguard(o->data);
                make_operand(o, dtypes[d], rank, equations[i / 2].dims[k < count ? k : k + 1]);
                for (size_t e = 0; k < count && e < o->bytes; e++)
                    ((uint8_t *)o->data)[e] = i % 2 == 0      ? (uint8_t)(127.0 * draw(&t) + 128.0)
                                              : e % size == 0 ? (uint8_t)(2.0 * draw(&t) + 2.0)
                                                              : 0;
            }
            same_bits(&t, "cuda.einsum_whole", "plain.einsum");
        }
}

/* ---- TfIdfVectorizer ---- */

typedef struct bag {
    int64_t starts[3], words[14], index[8], range[3]; /* range: shortest, longest, skip */
    uint32_t lengths, size, grams;
} bag;

static const bag bags[] = {
    {{0, 4}, {2, 3, 5, 4, 5, 6, 7, 8, 6, 7}, {0, 1, 2, 3, 4, 5, 6}, {1, 2, 0}, 2, 10, 7},
    {{0, 4}, {2, 3, 5, 4, 5, 6, 7, 8, 6, 7}, {6, 5, 4, 3, 2, 1, 0}, {2, 2, 5}, 2, 10, 7},
    {{0, 0, 4}, {2, 3, 3, 2, 5, 2, 3, 4, 3, 2}, {0, 2, 2, 4}, {2, 3, 1}, 3, 10, 4},
    {{0}, {7, 5, 3}, {1, 1, 3, 3}, {1, 1, 3}, 1, 3, 4}, // one column twice, an entry of no word
};

TEST(words_are_counted_as_in_plain)
{
    static const char *const modes[] = {"TF", "IDF", "TFIDF"};
    float weights[8] = {0.5F, 2, 0.25F, 3, 1.5F, 0, -1, 1};
    for (size_t i = 0; i < sizeof bags / sizeof bags[0]; i++)
        for (int way = 0; way < 12; way++) { // modes; without weights; one row or several
            const bag *b = &bags[i];
            const bool rows = way / 6;
            int64_t width = 0;
            TESTING(t);
            begin(&t, EBB_OP_TF_IDF_VECTORIZER);
            put_string(&t, "mode", modes[way % 3]);
            put_int(&t, "min_gram_length", b->range[0]);
            put_int(&t, "max_gram_length", b->range[1]);
            put_int(&t, "max_skip_count", b->range[2]);
            put_ints(&t, "ngram_counts", b->lengths, b->starts);
            put_ints(&t, "ngram_indexes", b->grams, b->index);
            ebb_attr *words = next_attr(&t, "pool_int64s", EBB_ATTR_INTS);
            words->ints = (int64_t *)(uintptr_t)b->words;
            words->count = b->size;
            if (way % 6 < 3) {
                ebb_attr *a = next_attr(&t, "weights", EBB_ATTR_FLOATS);
                a->floats = weights;
                a->count = b->grams;
            }
            for (uint32_t g = 0; g < b->grams; g++)
                width = b->index[g] >= width ? b->index[g] + 1 : width;
            const int64_t x[2] = {rows ? 5 : 33, 33};
            ebb_operand *o = put_in(&t, EBB_I64, rows ? 2 : 1, rows ? x : x + 1);
            for (size_t e = 0; e < count_of(o); e++)
                ((int64_t *)o->data)[e] = (int64_t)(5 + 3 * draw(&t));
            put_out(&t, EBB_F32, rows ? 2 : 1, rows ? D(5, width) : D(width));
            same_bits(&t, "cuda.tf_idf", "plain.tf_idf");
        }
}

TEST(what_does_not_fit_is_declined)
{
    TESTING(t);
    (void)put_equation(&t, &equations[0], EBB_F32);
    t.in[1].type.dims[0]++;
    assert_non_null(declined_by(&t, "cuda.einsum"));
    assert_string_equal(declined_by(&t, "cuda.einsum"), declined_by(&t, "plain.einsum"));
    t.in[1].type.dims[0]--;
    t.out[0].type.dims[0]++;
    assert_string_equal(declined_by(&t, "cuda.einsum"), declined_by(&t, "plain.einsum"));
}

const fixture around_all = {with_cuda, NULL};
