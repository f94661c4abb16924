/* test_amount.c: amounts of memory: what is taken, to the byte, and what is refused. */
#include <string.h>

#include "onnx/words/status.h"
#include "tests/test.h"

static void is_bytes(const char *text, uint64_t bytes)
{
    ebb_amount amount;
    ebb_status status = ebb_amount_parse(&amount, text);
    if (status != NULL)
        fail_msg("%s", ebb_status_text(status));
    if (amount.bytes != bytes || amount.percent != 0.0)
        fail_msg("'%s' is read as %llu bytes, not %llu", text, (unsigned long long)amount.bytes,
                 (unsigned long long)bytes);
    assert_int_equal(ebb_amount_of(&amount, 7), bytes);
}

TEST(units_count_to_the_byte)
{
    is_bytes("1000", 1000);
    is_bytes("1000B", 1000);
    is_bytes("6GiB", 6442450944u);
    is_bytes("6gib", 6442450944u);
    is_bytes("6G", 6442450944u);
    is_bytes("6 GiB", 6442450944u);
    is_bytes("512MB", 512000000u);
    is_bytes("512MiB", 536870912u);
    is_bytes("1.5G", 1610612736u);
    is_bytes(".5KiB", 512);
    is_bytes("1.5", 1);
    is_bytes("9007199254740993", UINT64_C(9007199254740993)); // beyond a double's integers
    is_bytes("8388607TiB", UINT64_C(8388607) << 40);
}

TEST(a_share_is_of_what_it_is_asked_of)
{
    ebb_amount amount;
    assert_null(ebb_amount_parse(&amount, "80%"));
    assert_int_equal(amount.bytes, 0);
    assert_int_equal(ebb_amount_of(&amount, 1000), 800);
    assert_null(ebb_amount_parse(&amount, "12.5 %"));
    assert_int_equal(ebb_amount_of(&amount, 1000), 125);
    assert_null(ebb_amount_parse(&amount, "100%"));
    assert_int_equal(ebb_amount_of(&amount, UINT64_C(9007199254740993)),
                     UINT64_C(9007199254740993));
    assert_null(ebb_amount_parse(&amount, "101%")); // above what exists: for the plan to say
    assert_int_equal(ebb_amount_of(&amount, 1000), 1010);
    assert_null(ebb_amount_parse(&amount, "1000000000000%"));
    assert_int_equal(ebb_amount_of(&amount, INT64_MAX), INT64_MAX);
}

TEST(what_is_no_amount_is_refused_with_the_forms_that_are)
{
    static const char *const wrong[][2] = {
        {"", "no number"},
        {"abc", "no number"},
        {"GiB", "no number"},
        {".", "no number"},
        {"%", "no number"},
        {"none", "no number"},
        {"inf", "no number"},
        {"nan", "no number"},
        {" 6GiB", "no number"},
        {"+6GiB", "no number"},
        {"-1", "below zero"},
        {"-6GiB", "below zero"},
        {"0", "more than zero"},
        {"0%", "more than zero"},
        {"0.0GiB", "more than zero"},
        {"0.5", "less than one byte"},
        {"6XB", "unit"},
        {"6GiBs", "unit"},
        {"6GiB80%", "unit"},
        {"80%%", "unit"},
        {"0x10", "unit"},
        {"1e9", "unit"},
        {"1,5G", "unit"},
        {"6 G B", "unit"},
        {"18446744073709551616", "too large"},
        {"18446744073709551615TiB", "too large"},
        {"8388608TiB", "too large"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ebb_amount amount;
        ebb_status status = ebb_amount_parse(&amount, wrong[i][0]);
        if (status == NULL)
            fail_msg("'%s' is taken as %llu bytes", wrong[i][0], (unsigned long long)amount.bytes);
        assert_int_equal(ebb_status_code(status), EBB_USAGE);
        if (strstr(ebb_status_text(status), wrong[i][1]) == NULL)
            fail_msg("'%s': '%s' does not say '%s'", wrong[i][0], ebb_status_text(status),
                     wrong[i][1]);
        assert_non_null(strstr(ebb_status_text(status), "6GiB, 1.5G, 512MB, 1000 (bytes) or 80%"));
        assert_int_equal(ebb_amount_of(&amount, 1000), 0);
    }
}
