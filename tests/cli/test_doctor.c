/* test_doctor.c: `ebb check` and `ebb reduce` as a user meets them: words, exit codes, files. */
#include "tests/cli/cli.h"

#include <dirent.h>

#include <jansson.h>

#include "onnx/file/file.h"
#include "tests/owned.h"
#include "tests/text.h"

static void write_model(const char *name, const char *text)
{
    OWNED_MODEL *model = parsed(text);
    assert_null(ebb_save(model, path_of(name)));
}

#define HEAD "<ir_version: 10, opset_import: [\"\" : 20, \"my.ops\" : 1]>\n"

TEST(every_problem_is_said_and_the_worst_is_the_exit_code)
{
    write_model("fine.onnx", HEAD "g (float[n,2] x) => (float[n,2] y) <float[2] w = {1,2}>"
                                  "{ y = Mul (x, w) }");
    write_model("unknown.onnx", HEAD "g (float[2] x) => (float[2] y, float[2] z)"
                                     "{ [one] y = my.ops.Wobble (x) [two] z = my.ops.Wibble (x) }");
    write_model("wrong.onnx",
                HEAD "g (float[2,3] x, float[4,5] w, float[6,7] v) => (float[2,5] y, float[2,7] z)"
                     "{ [one] y = MatMul (x, w) [two] z = MatMul (x, v) }");
    says("check fine.onnx", 0, "every operator has a kernel");
    says("check fine.onnx", 0, "give it with --dim n=N");
    says("check fine.onnx --dim n=4", 0, "1 initializers would be trained");
    says("check fine.onnx --dim m=4", 2, "no input has a dimension 'm'");
    says("check unknown.onnx", 5, "Wobble of domain my.ops");
    assert_non_null(strstr(output, "Wibble of domain my.ops"));
    assert_null(strstr(output, "every operator has a kernel"));
    says("check wrong.onnx", 6, "input 1 has 4 rows");
    assert_non_null(strstr(output, "input 1 has 6 rows"));
    says("inspect wrong.onnx", 0, "2  MatMul"); // so that one can look at it
}

TEST(sizes_that_do_not_fit_are_findings)
{
    write_model("open.onnx", HEAD "g (float[n,m] x) => (float[n,1] y) <float[4,1] w = {1,2,3,4}>"
                                  "{ [planted] y = MatMul (x, w) }");
    says("check open.onnx --dim n=2 --dim m=3", 6, "MatMul 'planted': input 0 has 3 columns");
    says("check open.onnx --dim n=2 --dim m=4", 0, "");
}

TEST(findings_are_one_object)
{
    assert_int_equal(ebb("check unknown.onnx --json"), 5);
    json_t *report = json_loads(output, 0, NULL);
    assert_non_null(report);
    assert_string_equal(json_string_value(json_object_get(report, "schema")), "ebb.check/2");
    assert_int_equal(json_integer_value(json_object_get(report, "code")), 5);
    const json_t *problems = json_object_get(report, "problems");
    assert_int_equal(json_array_size(problems), 2);
    const json_t *first = json_array_get(problems, 0);
    const struct {
        const char *key, *value;
    } expected[] = {{"kind", "operator"},
                    {"node", "Wobble 'one'"},
                    {"op", "Wobble"},
                    {"domain", "my.ops"},
                    {"pass", ""}};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        assert_string_equal(json_string_value(json_object_get(first, expected[i].key)),
                            expected[i].value);
    assert_int_equal(json_integer_value(json_object_get(first, "opset")), 1);
    assert_int_equal(json_integer_value(json_object_get(first, "count")), 1);
    json_decref(report);
}

/* ---- reduce ---- */

static void write_chain(void)
{
    write_model("chain.onnx",
                HEAD "g (float[8,2] x) => (float[8,2] y, float[8,2] b, float[8,2] c)\n"
                     "<float[2,2] w = {1,2,3,4}>\n"
                     "{\n"
                     "   a = MatMul (x, w)\n"
                     "   b = Tanh (a)\n"
                     "   [planted] c = my.ops.Wobble <alpha = 0.5> (b)\n"
                     "   y = Relu (c)\n"
                     "}\n");
}

/* The model in small.onnx has this one node. */
static void leaves(const char *node)
{
    says("inspect small.onnx --text", 0, node);
    size_t equals = 0;
    for (const char *c = strchr(output, '{'); *c != '\0'; c++)
        equals += *c == '=';
    if (equals != 1)
        fail_msg("not one node is left:\n%s", output);
}

TEST(a_criterion_of_ebb_reduces_to_the_node_it_names)
{
    write_chain();
    says("reduce chain.onnx -o small.onnx --fails check", 0, "nodes                 4 -> 1");
    leaves("c = my.ops.Wobble (b)");
    says("reduce chain.onnx -o small.onnx --fails grad --loss mse", 0, "no gradient for 1 node");
    leaves("my.ops.Wobble");
    assert_int_equal(ebb("reduce chain.onnx -o small.onnx --fails plan --json"), 0);
    json_t *report = json_loads(output, 0, NULL);
    assert_non_null(report);
    assert_int_equal(json_integer_value(json_object_get(report, "code")), 5);
    assert_true(json_is_true(json_object_get(report, "verified")));
    json_decref(report);
}

/* Sizes are tried that double: up to the largest number, and not beyond. */
TEST(a_size_of_exabytes_is_made_less_or_left)
{
    write_model("wide.onnx", HEAD "g (float[6917529027641081855] x) => (float[n] y)"
                                  "{ y = Concat <axis = 0> (x, x) }");
    says("reduce wide.onnx -o small.onnx --fails types", 0, "the sum along axis 0 is too large");
}

TEST(a_command_that_exits_with_zero_says_what_is_of_interest)
{
    write_chain();
    says("reduce chain.onnx -o small.onnx -- grep -q Tanh", 0, "was read back and tested");
    leaves("b = Tanh (a)");
    says("reduce chain.onnx -o small.onnx -- sh -c 'test -s {} && grep -q Relu {}'", 0, "");
    leaves("y = Relu (c)");
    says("reduce chain.onnx -o small.onnx --exit 5 --match my.ops -- " EBB " check {}", 0, "");
    leaves("my.ops.Wobble");
    says("reduce chain.onnx -o small.onnx --exit crash -- sh -c 'grep -q MatMul {} && kill -SEGV "
         "$$ || exit 0'",
         0, "");
    leaves("a = MatMul (x, w)");
}

TEST(a_command_that_takes_too_long_is_ended)
{
    write_chain();
    says("reduce chain.onnx -o small.onnx --tests 1 --timeout 1 --exit timeout -- sh -c 'sleep 60 "
         "& wait' {}",
         0, "2 tests");
    says("reduce chain.onnx -o small.onnx --timeout 1 -- sh -c 'sleep 60'", 2, "no end in time");
}

TEST(mistakes_get_one_sentence_and_nothing_is_left)
{
    write_chain();
    (void)ebb("version; rm -f small.onnx");
    says("reduce chain.onnx -o small.onnx", 2, "say what failing is");
    says("reduce chain.onnx --fails run", 2, "-o FILE");
    says("reduce chain.onnx -o small.onnx --fails run -- true", 2, "takes no option --fails");
    says("reduce chain.onnx -o small.onnx --fails run --exit 1", 2, "takes no option --exit");
    says("reduce chain.onnx -o small.onnx --fails check --loss mse", 2,
         "`ebb reduce --fails check` takes no option --loss");
    says("reduce chain.onnx -o small.onnx --fails walk", 2, "there is no criterion 'walk'");
    says("reduce chain.onnx -o small.onnx -- false", 2, "the command ended with 1");
    says("reduce chain.onnx -o small.onnx -- /nowhere/program", 2, "the command ended with 127");
    says("reduce chain.onnx -o small.onnx --exit maybe -- true", 2, "--exit");
    says("reduce chain.onnx -o small.onnx --fails grad", 2, "--loss");
    says("reduce chain.onnx -o nowhere/small.onnx --fails check", 8, "nowhere/small.onnx");
    says("plan chain.onnx -- true", 2, "");
    DIR *directory = opendir(folder);
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        if (strstr(entry->d_name, "reduce") != NULL || strstr(entry->d_name, "small") != NULL)
            fail_msg("left behind: %s", entry->d_name);
    closedir(directory);
}

const fixture around_all = {make_folder, remove_folder};
