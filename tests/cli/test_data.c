/* test_data.c: what the command does with data: names that do not fit, arrays that nobody asked
 * for, types and layouts that differ from the model's.
 */
#include "cli.h"

#define MLP DIGITS "mlp.onnx"
#define DATA "--data " DIGITS "digits.npz "
#define TRAIN "train " MLP " " DATA "--loss cross-entropy --batch 16 --steps 2 "

static void a_map_of_unknown_names_is_an_error_that_names_both_sides(void **state)
{
    (void)state;
    static const char *const verbs[] = {
        "train " MLP " " DATA "--loss cross-entropy --batch 16 --steps 1 ",
        "bench " MLP " " DATA "--loss cross-entropy --batch 16 --sensitivity -o s.json "};
    char words[1024];
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        (void)snprintf(words, sizeof words, "%s--map lable=target", verbs[i]);
        says(words, 2, "no array 'lable'");
        assert_non_null(strstr(output, "did you mean 'label'"));
        assert_non_null(strstr(output, "'test_label'"));
        assert_non_null(strstr(output, "digits.npz"));
        (void)snprintf(words, sizeof words, "%s--map label=targt", verbs[i]);
        says(words, 2, "no input 'targt'");
        assert_non_null(strstr(output, "did you mean 'target'"));
        assert_non_null(strstr(output, "'label'"));
        (void)snprintf(words, sizeof words, "%s--map label=target --map test_label=target",
                       verbs[i]);
        says(words, 2, "two arrays");
    }
    says("run " MLP " " DATA "--map imag=image", 2, "no array 'imag'");
    says("run " MLP " " DATA "--map test_image=imgae", 2, "no input 'imgae'");
    says(TRAIN, 2, "input 'target'"); // and which arrays there are
    assert_non_null(strstr(output, "'label'"));
}

static void a_run_takes_mapped_arrays_and_leaves_others_out_with_a_note(void **state)
{
    (void)state;
    says("run " MLP " " DATA "--map test_image=image", 0, "float32[360,10]");
    assert_non_null(strstr(output, "'label'"));
    assert_non_null(strstr(output, "feeds no input"));
    assert_null(strstr(output, "'test_image' of")); // that one is taken
    says("run " MLP " " DATA, 0, "float32[1437,10]");
    assert_int_equal(ebb_data_of("run " MLP " " DATA "--json"), 0);
    assert_int_equal(output[0], '{');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_map_of_unknown_names_is_an_error_that_names_both_sides),
        cmocka_unit_test(a_run_takes_mapped_arrays_and_leaves_others_out_with_a_note),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
