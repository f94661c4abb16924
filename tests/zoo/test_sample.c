/* test_sample.c: eight architectures of the zoo, as exported, against PyTorch's loss and gradients.
 *
 * The files have no weights: they are drawn by the files' own seeds, and the batch by a formula, as
 * sample.py did when PyTorch computed what recorded.txt holds, which says its own format there. Of
 * each gradient it holds the length and a projection, so that a number decides without its bytes.
 * The whole zoo is run by hand (run.py; docs/zoo.md).
 *
 * Bounds: of the loss 2e-5; of length and projection 2e-4 of the length (or of a thousandth of the
 * longest gradient, where that is more), or 20 times PyTorch's own rounding where that is more.
 */
#include "tests/zoo/recorded.h"

#define SAMPLE EBB_SOURCE_DIR "/tests/zoo/sample"

enum { MODELS = 8 };

static int check(const sample *s)
{
    ebb_model *model = NULL;
    ebb_program *program = NULL;
    const ebb_batch batch = {s->inputs, s->input_count};
    ebb_named loss;
    int failures = 1;
    ebb_status status = program_of(SAMPLE, s, true, &model, &program);
    if (status == NULL)
        status = ebb_program_step(program, &batch);
    if (status == NULL)
        status = ebb_program_get(program, "loss", &loss);
    if (status != NULL) {
        print_error("%s: %s\n", s->name, ebb_status_text(status));
    } else {
        const char *name = "";
        double off = fabs((double)*(const float *)loss.data / s->loss - 1);
        double worst = worst_gradient(s, program, &name);
        failures = !(off <= 2e-5) || !(worst <= fmax(2e-4, 20 * s->noise));
        print_message("%-16s loss %.1e  %3zu gradients %.1e %s%s\n", s->name, off,
                      s->gradient_count, worst, failures ? "FAILED at " : "", failures ? name : "");
    }
    ebb_program_free(program);
    ebb_close(model);
    return failures;
}

static void exported_architectures_agree_with_pytorch(void **state)
{
    (void)state;
    static sample s;
    char line[512];
    int failures = 0, models = 0;
    FILE *file = fopen(SAMPLE "/recorded.txt", "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    while (read_sample(file, line, sizeof line, &s)) {
        models++;
        failures += check(&s);
        free_inputs(&s);
    }
    (void)fclose(file);
    assert_int_equal(models, MODELS);
    assert_int_equal(failures, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exported_architectures_agree_with_pytorch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
