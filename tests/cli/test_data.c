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

/* 32 images of bytes with the channel last and their labels as int32 [32, 1]: safetensors. */
static void write_images(const char *name)
{
    static const char header[] = "{\"image\":{\"dtype\":\"U8\",\"shape\":[32,8,8,1],"
                                 "\"data_offsets\":[0,2048]},\"label\":{\"dtype\":\"I32\","
                                 "\"shape\":[32,1],\"data_offsets\":[2048,2176]}} ";
    static char bytes[8 + sizeof header - 1 + 2176];
    bytes[0] = (char)(sizeof header - 1);
    memcpy(bytes + 8, header, sizeof header - 1);
    for (int i = 0; i < 32; i++) {
        bytes[8 + sizeof header - 1 + (size_t)i * 64] = (char)i;
        bytes[8 + sizeof header - 1 + 2048 + (size_t)i * 4] = (char)(i % 10);
    }
    FILE *file = fopen(path_of(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, sizeof bytes, file), sizeof bytes);
    assert_int_equal(fclose(file), 0);
}

static void bytes_and_small_labels_train_without_being_saved_anew(void **state)
{
    (void)state;
    write_images("u8.safetensors");
    says("train " MLP " --data u8.safetensors --map label=target --batch 16 --loss cross-entropy "
         "--scale 1/16 --mean 0.3 --std 0.4",
         0, "2 steps");
    assert_null(strstr(output, "0 to 255"));
    says("train " MLP " --data u8.safetensors --map label=target --batch 16 --loss cross-entropy",
         0, "0 to 255");
    says("train " MLP " --data u8.safetensors --data u8.safetensors --map label=target --batch 16 "
         "--loss cross-entropy --scale 1/16 --eval u8.safetensors",
         0, "4 steps");
    says("run " MLP " --data u8.safetensors --scale 1/16", 0, "float32[32,10]");
    says("train " MLP " --data u8.safetensors --map label=target --loss cross-entropy --scale x=2",
         2, "x=2");
    says("train " MLP " --data u8.safetensors --map label=target --loss cross-entropy --scale much",
         2, "much");
    says("train " MLP " --data u8.safetensors --map label=target --loss cross-entropy --layout abc",
         2, "nhwc or nchw");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_map_of_unknown_names_is_an_error_that_names_both_sides),
        cmocka_unit_test(bytes_and_small_labels_train_without_being_saved_anew),
        cmocka_unit_test(a_run_takes_mapped_arrays_and_leaves_others_out_with_a_note),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
