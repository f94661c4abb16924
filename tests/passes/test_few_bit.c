/* test_few_bit.c: the tables of few-bit against published optima and a search of our own; codes
 * against their definition; tables from files; options.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "onnx/file/file.h"
#include "passes/memory/lossy/few_bit_table.h"
#include "passes/pipeline.h"
#include "tests/owned.h"
#include "tests/test.h"

static ebb_few_bit_table best(const char *function, double alpha, unsigned bits, bool normal)
{
    OWNED_ARENA arena = {0};
    ebb_few_bit_table t;
    ebb_status status = ebb_few_bit_best(&t, function, alpha, bits, normal, &arena);
    if (status != NULL)
        fail_msg("%s", ebb_status_text(status));
    return t;
}

/* Errors of the best tables that there are, found by others: for a domain without end; rms of the
 * best for N(0, 1). */
TEST(errors_are_those_of_the_optimum)
{
    static const struct {
        const char *function;
        unsigned bits;
        double squared, most, rms, normal;
    } known[] = {
        {"gelu", 1, 0.14105, 0.500, 0.216, 0.196},
        {"gelu", 2, 0.04519, 0.174, 0.0952, 0.0894},
        {"gelu", 3, 0.01200, 0.128, 0.0582, 0.0437},
        {"gelu", 4, 0.00316, 0.062, 0.0283, 0.0243},
        {"silu", 1, 0.2150, 0.5, 0, 0.179},
        {"silu", 2, 0.06057, 0.177, 0.0911, 0.0889},
        {"silu", 3, 0.01778, 0.125, 0.0632, 0.0440},
        {"silu", 4, 0.00472, 0.060, 0.0304, 0.0218},
        {"tanh", 4, 0.00656, 0, 0, 0},
        {"sigmoid", 4, 0.00082, 0, 0, 0},
        {"elu", 3, 0.00537, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        ebb_few_bit_table t = best(known[i].function, 1, known[i].bits, false);
        assert_true(fabs(t.squared - known[i].squared) <= 1.1e-5 + 1e-3 * known[i].squared);
        if (known[i].most != 0)
            assert_true(fabs(t.most - known[i].most) <= 6e-4);
        if (known[i].rms != 0)
            assert_true(fabs(t.rms - known[i].rms) <= 6e-4);
        t = best(known[i].function, 1, known[i].bits, true);
        if (known[i].normal != 0)
            assert_true(fabs(t.rms - known[i].normal) <= 6e-4);
    }
    assert_true(best("hardswish", 1, 4, false).squared < 0.0112);
}

static void check_list(const double *list, const double *expected, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!(fabs(list[i] - expected[i]) <= 2e-6))
            fail_msg("number %zu is %.7f, not %.7f", i, list[i], expected[i]);
}

TEST(tables_are_the_known_ones)
{
    const double gelu_3[] = {-2.416946, -0.710046, -0.325919, 0, 0.325919, 0.710046, 2.416946};
    const double gelu_4[] = {0,        0.154960, 0.315115, 0.487260,
                             0.683078, 0.931218, 2.059210, 2.707240};
    const double levels_4[] = {0.561574, 0.683738, 0.802835, 0.916350,
                               1.020702, 1.109159, 1.048546, 1};
    const double silu_3[] = {0, 0.509398, 1.130142, 4.713717};
    ebb_few_bit_table t = best("gelu", 1, 3, false);
    check_list(t.borders, gelu_3, 7);
    t = best("gelu", 1, 4, false);
    check_list(t.borders + 7, gelu_4, 8);
    check_list(t.levels + 8, levels_4, 8);
    t = best("silu", 1, 3, false);
    check_list(t.borders + 3, silu_3, 4);
    for (int i = 0; i < 8; i++) // f'(x) + f'(-x) = 1
        assert_true(fabs(t.levels[i] + t.levels[7 - i] - 1) < 1e-8);
    /* published from a grid of 1/256 */
    t = best("gelu", 1, 3, true);
    const double normal[] = {0.222656, 0.46875, 0.779297};
    for (int i = 0; i < 3; i++)
        assert_true(fabs(t.borders[4 + i] - normal[i]) < 2e-3);
    /* 2 of 4 levels are the limits 0, and one of an even function lies within the other */
    t = best("erf", 1, 2, false);
    assert_true(t.levels[0] == 0 && t.levels[3] == 0 && t.levels[1] != t.levels[2]);
}

TEST(quick_gelu_is_silu_on_a_shorter_line)
{
    ebb_few_bit_table one = best("silu", 1, 3, false), quick = best("silu", 1.702, 3, false);
    for (int i = 0; i < 7; i++)
        assert_true(fabs(quick.borders[i] * 1.702 - one.borders[i]) < 1e-6);
    for (int i = 0; i < 8; i++)
        assert_true(fabs(quick.levels[i] - one.levels[i]) < 1e-6);
    assert_true(fabs(quick.squared * 1.702 - one.squared) < 1e-7);
    assert_true(fabs(quick.most - one.most) < 1e-3);
}

/* No neighbour of a border is better: the derivative of GELU by differences of GELU itself, error
 * by sums over a fine grid, nothing of the code under test. */
static double summed(const double *borders, const double *levels, int count)
{
    double sum = 0, h = 1e-3;
    for (int i = -12000; i < 12000; i++) {
        double x = (i + 0.5) * h, a = x - 1e-5, b = x + 1e-5;
        double d = (b * erfc(-b * sqrt(0.5)) - a * erfc(-a * sqrt(0.5))) / 4e-5;
        int k = 0;
        while (k < count && borders[k] < x)
            k++;
        sum += (d - levels[k]) * (d - levels[k]) * h;
    }
    return sum;
}

TEST(nothing_beside_a_table_is_better)
{
    ebb_few_bit_table t = best("gelu", 1, 3, false);
    double least = summed(t.borders, t.levels, 7);
    assert_true(fabs(least - t.squared) < 1e-5);
    for (int i = 0; i < 7; i++)
        for (int sign = -1; sign <= 1; sign += 2) {
            ebb_few_bit_table other = t;
            other.borders[i] += sign * 0.05;
            assert_true(summed(other.borders, other.levels, 7) > least);
            other = t;
            other.levels[i] += sign * 0.01;
            assert_true(i == 0 || summed(other.borders, other.levels, 7) > least);
        }
}

TEST(the_published_relu_tables_are_worse_than_one_bit)
{
    OWNED_ARENA arena = {0};
    ebb_few_bit_table t;
    assert_true(ebb_few_bit_published(&t, "gelu", 1, &arena));
    assert_true(fabs(t.squared - 0.157) < 1e-3 && fabs(t.rms - 0.241) < 1e-3);
    assert_true(ebb_few_bit_published(&t, "silu", 1, &arena));
    assert_true(fabs(t.squared - 0.238) < 1e-3);
    assert_false(ebb_few_bit_published(&t, "softplus", 1, &arena));
}

TEST(what_no_table_is_made_for_is_said)
{
    OWNED_ARENA arena = {0};
    ebb_few_bit_table t;
    ebb_status s = ebb_few_bit_best(&t, "relu", 1, 2, false, &arena);
    assert_non_null(s);
    assert_non_null(strstr(ebb_status_text(s), "there are for gelu"));
    assert_non_null(ebb_few_bit_best(&t, "gelu", 1, 0, false, &arena));
    assert_non_null(ebb_few_bit_best(&t, "gelu", 1, 5, false, &arena));
    assert_non_null(ebb_few_bit_best(&t, "silu", -1, 2, false, &arena));
    assert_non_null(ebb_few_bit_best(&t, "silu", (double)NAN, 2, false, &arena));
}

/* ---- the pass ---- */

static ebb_status step(const char *pass, char **text)
{
    const ebb_rewrite_options options = {.verify_each = true};
    ebb_arena keep = {0};
    ebb_report *reports;
    size_t count;
    OWNED_MODEL *model = NULL;
    char passes[512];
    (void)snprintf(passes, sizeof passes, "loss:mse,gradient,%s", pass);
    ebb_status status = ebb_text_parse_model(
        &model, "<ir_version: 10, opset_import: [\"\" : 20]> g (float[64,2] x) => (float[64,2] y)"
                " <float[2] w = {1, 2}> { h = Mul (x, w) y = Gelu (h) }");
    assert_null(status);
    status = ebb_pipeline_run(model, passes, &options, &keep, &reports, &count);
    ebb_arena_fini(&keep);
    if (status == NULL)
        status = ebb_text_print(text, model->graph);
    return status;
}

static void refused(const char *pass, const char *because)
{
    char *text = NULL;
    ebb_status status = step(pass, &text);
    if (status == NULL)
        fail_msg("%s is taken", pass);
    if (strstr(ebb_status_text(status), because) == NULL)
        fail_msg("%s: %s", pass, ebb_status_text(status));
}

static const char *put_file(const char *text)
{
    static const char path[] = EBB_BINARY_DIR "/few_bit_table.json";
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    return path;
}

TEST(tables_come_from_files)
{
    char pass[512], *text = NULL;
    const char *path =
        put_file("[{\"function\": \"silu\", \"bits\": 1, \"borders\": [7], \"levels\": [0, 1]},"
                 " {\"function\": \"gelu\", \"bits\": 1, \"borders\": [0.125], \"levels\": [0.25, "
                 "0.75]}]");
    (void)snprintf(pass, sizeof pass, "few-bit:bits=1,tables=%s", path);
    assert_null(step(pass, &text));
    assert_non_null(strstr(text, "{0.125}"));
    assert_non_null(strstr(text, "{0.25,0.75}"));
    ebb_free(text);
    (void)snprintf(pass, sizeof pass, "few-bit:bits=2,tables=%s", path);
    refused(pass, "no table of 2 bits for gelu");
    (void)snprintf(pass, sizeof pass, "few-bit:bits=2,tables=%s",
                   put_file("{\"function\": \"gelu\", \"bits\": 2, \"borders\": [1, 1, 2], "
                            "\"levels\": [0, 1, 2, 3]}"));
    refused(pass, "3 rising borders and 4 levels");
    (void)snprintf(pass, sizeof pass, "few-bit:bits=1,tables=%s",
                   put_file("{\"function\": \"gelu\", \"bits\": 1, \"borders\": [\"a\"], "
                            "\"levels\": [0, 1e99]}"));
    refused(pass, "rising borders");
    (void)put_file("{");
    refused(pass, "few_bit_table.json");
}

TEST(bad_options_are_refused_with_the_good_ones)
{
    refused("few-bit:bits=5", "1|2|3|4");
    refused("few-bit:bits=0", "1|2|3|4");
    refused("few-bit:weight=heavy", "flat|normal");
    refused("few-bit:table=mine", "own|regelu2");
    refused("few-bit:table=regelu2,bits=3", "has 2 bits");
    refused("few-bit:table=regelu2,tables=x.json", "without tables");
    refused("few-bit:bits=1,tables=/nowhere/x.json", "/nowhere/x.json");
}
