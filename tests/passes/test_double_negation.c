/* test_double_negation.c: the pass of samples/pass, which docs/write_a_pass.md explains, does what it says. */
#include "samples/pass/double_negation.c"

#include "passes/pipeline.h"
#include "tests/owned.h"
#include "tests/text.h"

#define HEAD "<ir_version: 10, opset_import: [\"\" : 20]> g (float[4] x) => "

static ebb_report once(ebb_model *m)
{
    OWNED_ARENA keep = {0};
    ebb_report report;
    good(ebb_pipeline_one(m->graph, &ebb_pass_double_negation, NULL, NULL, NULL, &keep, &report));
    good(ebb_verify(m->graph));
    if (report.skip_count > 0)
        assert_string_equal(report.skips[0].reason, "the first negation is read elsewhere too");
    return report;
}

/* How many nodes are left. */
static size_t left(ebb_model *m)
{
    RELEASED ebb_model_facts *facts = NULL;
    good(ebb_facts_of(&facts, m));
    const size_t count = facts->node_count;
    return count;
}

TEST(two_negations_go_and_the_bits_stay)
{
    static const uint32_t bits[] = {0x7fc12345, 0x80000000, 0x00000001, 0xc0490fdb};
    OWNED_MODEL *m = model_of(HEAD "(float[4] z) { a = Neg(x) y = Neg(a) z = Sign(y) w = Neg(z) }");
    OWNED_MODEL *id = model_of(HEAD "(float[4] y) { a = Neg(x) y = Neg(a) }");
    OWNED_PROGRAM *p = NULL;
    ebb_named y;
    const int64_t dims[] = {4};
    const ebb_named x = {"x", EBB_F32, 1, dims, bits};
    ebb_report report = once(m);
    assert_true(report.found == 1 && report.applied == 1);
    assert_int_equal(left(m), 1); // what nobody reads goes, too
    assert_int_equal(once(m).found, 0);
    good(ebb_program_compile(&p, id, &(ebb_compile_options){.backend = "plain"}));
    good(ebb_program_step(p, &(ebb_batch){&x, 1}));
    good(ebb_program_get(p, "y", &y));
    assert_memory_equal(y.data, bits, sizeof bits); // what makes it exact
}

TEST(an_output_keeps_its_name)
{
    OWNED_MODEL *m = model_of(HEAD "(float[4] y) { s = Sign(x) a = Neg(s) y = Neg(a) }");
    assert_int_equal(once(m).applied, 1);
    assert_true(ebb_value_find(m->graph, "y").i != 0);
    assert_int_equal(left(m), 1);
}

TEST(a_first_one_that_is_read_elsewhere_stays)
{
    OWNED_MODEL *m =
        model_of(HEAD "(float[4] y, float[4] b) { a = Neg(x) y = Neg(a) b = Sign(a) }");
    const ebb_report report = once(m);
    assert_true(report.found == 1 && report.applied == 0 && report.skip_count == 1);
    assert_int_equal(left(m), 3);
}
