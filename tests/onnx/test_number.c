/* test_number.c: numbers of options: what is taken, and that a refusal states the range. */

#include "onnx/words/status.h"
#include "tests/status.h"
#include "tests/test.h"

TEST(numbers_within_the_range_are_taken)
{
    static const struct {
        const char *text, *range;
        double is;
    } whole[] = {{"0", "[0, 4096]", 0},
                 {"4096", "[0, 4096]", 4096},
                 {"-12", "[-12, 11]", -12},
                 {"007", "[0, inf)", 7},
                 {"3", NULL, 3},
                 {"-3", "(-inf, 0]", -3},
                 {"2", "seconds (1, 3)", 2},
                 {"96", "[32, 4096] by 32", 96}},
      real[] = {{"0", "[0, 1)", 0},          {"0.999", "[0, 1)", 0.999},
                {"1e-8", "(0, 1]", 1e-8},    {".5", NULL, 0.5},
                {"1e30", "[0, 1e30]", 1e30}, {"-2.5", "(-inf, inf)", -2.5},
                {"5", "seconds (0, 1e6]", 5}};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        int64_t n = -99;
        assert_null(ebb_whole_parse(&n, whole[i].text, whole[i].range, "x"));
        assert_true((double)n == whole[i].is);
    }
    for (size_t i = 0; i < sizeof real / sizeof *real; i++) {
        double x = -99;
        assert_null(ebb_real_parse(&x, real[i].text, real[i].range, "x"));
        assert_true(x == real[i].is);
    }
    int64_t most = 0;
    assert_null(ebb_whole_parse(&most, "9223372036854775807", "[0, inf)", "x"));
    assert_true(most == INT64_MAX);
}

TEST(a_refusal_names_the_option_the_value_and_the_range)
{
    static const struct {
        const char *text, *range, *says;
    } whole[] =
        {
            {"abc", "[0, 4096]", "--n takes a whole number from 0 to 4096, not 'abc'"},
            {"4097", "[0, 4096]", "--n takes a whole number from 0 to 4096, not '4097'"},
            {"4294967297", "[0, 4096]", "from 0 to 4096, not '4294967297'"},
            {"-1", "[0, inf)", "--n takes a whole number of at least 0, not '-1'"},
            {"9223372036854775808", NULL, "--n takes a whole number, not '9223372036854775808'"},
            {"1.5", NULL, "not '1.5'"},
            {"1e3", NULL, "not '1e3'"},
            {" 1", NULL, "not ' 1'"},
            {"+1", NULL, "not '+1'"},
            {"", NULL, "not ''"},
            {"-", NULL, "not '-'"},
            {"1", "(1, 3)", "--n takes a whole number above 1 and below 3, not '1'"},
            {"3", "(1, 3)", "not '3'"},
            {"33", "[32, 4096] by 32", "--n takes a multiple of 32 from 32 to 4096, not '33'"},
            {"0", "elements [1, inf)",
             "--n takes a whole number of elements of at least 1, not '0'"},
        },
      real[] = {
          {"nan", "[0, 1)", "--n takes a number of at least 0 and below 1, not 'nan'"},
          {"inf", NULL, "--n takes a number, not 'inf'"},
          {"1e999", NULL, "not '1e999'"},
          {"0x1", NULL, "not '0x1'"},
          {"1", "[0, 1)", "not '1'"},
          {"-0.1", "[0, 1)", "not '-0.1'"},
          {"0", "seconds (0, 1e6]",
           "--n takes a number of seconds above 0 and at most 1e6, not '0'"},
          {"2e6", "seconds (0, 1e6]", "not '2e6'"},
          {"1", "(-inf, 0)", "--n takes a number below 0, not '1'"},
          {"", NULL, "not ''"},
          {"1 ", NULL, "not '1 '"},
      };
    for (size_t i = 0; i < sizeof whole / sizeof *whole + sizeof real / sizeof *real; i++) {
        const size_t wholes = sizeof whole / sizeof *whole;
        const bool is_whole = i < wholes;
        const char *text = is_whole ? whole[i].text : real[i - wholes].text;
        const char *range = is_whole ? whole[i].range : real[i - wholes].range;
        const char *says = is_whole ? whole[i].says : real[i - wholes].says;
        int64_t n;
        double x;
        ebb_status status = is_whole ? ebb_whole_parse(&n, text, range, "--n")
                                     : ebb_real_parse(&x, text, range, "--n");
        if (status == NULL)
            fail_msg("'%s' is taken", text);
        refused(status, EBB_USAGE, says);
    }
}
