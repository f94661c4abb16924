/* test_techniques.c: every pass as the command takes it: options that make no sense are refused
 * with one sentence before anything is looked at, and under --strict a pass that applied nowhere is
 * exit code 5.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/wait.h>

#include <cmocka.h>
#include <jansson.h>

#define DIGITS EBB_SOURCE_DIR "/samples/digits/"
#define GRAD(model) "grad " DIGITS model " --dim batch=8 --loss cross-entropy --dry-run "

static char output[1 << 20];

/* Exit code; stdout and perhaps stderr in `output`. */
static int ebb(const char *arguments, const char *more, bool errors)
{
    char command[4096];
    (void)snprintf(command, sizeof command, "%s/ebb %s%s%s", EBB_BINARY_DIR, arguments, more,
                   errors ? " 2>&1" : " 2>/dev/null");
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t length = fread(output, 1, sizeof output - 1, pipe);
    output[length] = '\0';
    int status = pclose(pipe);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static json_t *all_passes(void)
{
    assert_int_equal(ebb("help passes --json", "", false), 0);
    json_t *o = json_loads(output, 0, NULL), *list = json_incref(json_object_get(o, "passes"));
    json_decref(o);
    assert_true(json_array_size(list) > 20);
    return list;
}

static const char *text_of(const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));
    assert_non_null(text);
    return text;
}

static void refuses(const char *pass, const char *words)
{
    char more[512];
    (void)snprintf(more, sizeof more, "--pass '%s'", pass);
    int code = ebb(GRAD("mlp.onnx"), more, true);
    int lines = 0;
    for (const char *c = output; *c != '\0'; c++)
        lines += *c == '\n';
    if (code == 2 && strstr(output, words) != NULL && lines <= 3) // the sentence, hint and trail
        return;
    print_error("--pass %s\nexit %d, expected 2; said:\n%s\nexpected to read: %s\n", pass, code,
                output, words);
    fail();
}

/* Whatever is no text must be a number, a choice or an amount. */
static void every_option_of_every_pass_refuses_nonsense(void **state)
{
    (void)state;
    size_t i, k, tried = 0;
    json_t *list = all_passes(), *pass, *option;
    json_array_foreach(list, i, pass)
        json_array_foreach(json_object_get(pass, "options"), k, option)
    {
        char text[256];
        if (strcmp(text_of(option, "kind"), "text") == 0)
            continue;
        (void)snprintf(text, sizeof text, "%s:%s=nonsense", text_of(pass, "name"),
                       text_of(option, "name"));
        refuses(text, text_of(option, "name"));
        if (strcmp(text_of(option, "kind"), "choice") == 0 &&
            strstr(output, text_of(option, "choices")) == NULL)
            fail_msg("%s: the choices are not named in:\n%s", text, output);
        tried++;
    }
    assert_true(tried > 20);
    json_decref(list);
}

static void values_out_of_range_are_refused_and_the_legal_ones_named(void **state)
{
    (void)state;
    static const struct {
        const char *pass, *words;
    } wrong[] = {
        {"micro-batch", "parts"},
        {"micro-batch:parts=1", "between 2 and 4096"},
        {"micro-batch:parts=0", "between 2 and 4096"},
        {"micro-batch:parts=-2", "between 2 and 4096"},
        {"micro-batch:parts=100000", "between 2 and 4096"},
        {"chunk-loss:rows=-1", "0 or more"},
        {"chunk-loss:rows=1.5", "an integer"},
        {"stream:tile=0", "6GiB, 1.5G, 512MB"},
        {"stream:tile=-1", "6GiB, 1.5G, 512MB"},
        {"quantise:bits=3", "1|2|4|8|mixed"},
        {"quantise:bits=0", "1|2|4|8|mixed"},
        {"quantise:bits=16", "1|2|4|8|mixed"},
        {"quantise:group=0", "a multiple of 8 from 8"},
        {"quantise:group=7", "a multiple of 8 from 8"},
        {"quantise:group=-8", "a multiple of 8 from 8"},
        {"quantise:bits=mixed,average=0", "from 1 to 32"},
        {"quantise:average=3", "are for bits=mixed"},
        {"quantise:scheme=mesa,bits=4", "mesa keeps bits=8"},
        {"pool-input:p=0", "2|4"},
        {"pool-input:p=3", "2|4"},
        {"sample-matmul:ratio=0", "above 0 and below 1"},
        {"sample-matmul:ratio=1.5", "above 0 and below 1"},
        {"sparsify:ratio=1", "above 0 and below 1"},
        {"sparsify:ratio=-0.2", "above 0 and below 1"},
        {"norm-from-output:amplify=0", "at least 1"},
        {"inplace-abn:amplify=0.5", "at least 1"},
        {"low-bit-state:block=0", "a multiple of 32 from 32 to 4096"},
        {"low-bit-state:block=33", "a multiple of 32 from 32 to 4096"},
        {"low-bit-state:least=0", "at least 1 element"},
        {"few-bit:bits=5", "1|2|3|4"},
        {"few-bit:table=regelu2,bits=3", "regelu2 has 2 bits"},
        {"split-frequency:block=0", "from 2 to 64"},
        {"split-frequency:block=65", "from 2 to 64"},
        {"split-frequency:bits=3", "1|2|4|8"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        refuses(wrong[i].pass, wrong[i].words);
}

/* ---- --strict ---- */

/* Makes a step or tidies one, or needs an option that no one has asked for. */
static bool is_technique(const json_t *pass)
{
    static const char *const others[] = {"inline",        "fold",   "fuse",       "cost",
                                         "differentiate", "unroll", "drop-saves", "alias",
                                         "micro-batch",   "stream", "recompute",  "fit"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(others[i], text_of(pass, "name")) == 0)
            return false;
    return strcmp(text_of(pass, "exactness"), "makes") != 0;
}

static json_int_t applied(const char *pass)
{
    json_t *o = json_loads(output, 0, NULL), *p;
    size_t i;
    json_int_t count = -1;
    json_array_foreach(json_object_get(o, "passes"), i,
                       p) if (strcmp(text_of(p, "name"), pass) == 0) count =
        json_integer_value(json_object_get(p, "applied"));
    json_decref(o);
    return count;
}

static int strict_on(const char *command, const char *pass)
{
    char more[512];
    (void)snprintf(more, sizeof more, "--pass %s --json", pass);
    if (ebb(command, more, false) != 0)
        fail_msg("%s%s:\n%s", command, more, output);
    json_int_t count = applied(pass);
    assert_true(count >= 0);
    (void)snprintf(more, sizeof more, "--pass %s --strict", pass);
    int code = ebb(command, more, true);
    if (code != (count > 0 ? 0 : 5))
        fail_msg("%s applied %lld times; %s: exit %d:\n%s", pass, (long long)count, more, code,
                 output);
    if (code == 5 && strstr(output, "found nothing to apply to") == NULL &&
        strstr(output, "applied to none of") == NULL)
        fail_msg("%s does not say that it found nothing:\n%s", pass, output);
    return code;
}

static void a_pass_that_applies_nowhere_is_exit_5_under_strict(void **state)
{
    (void)state;
    size_t i, nowhere = 0, somewhere = 0;
    json_t *list = all_passes(), *pass;
    json_array_foreach(list, i, pass)
    {
        if (!is_technique(pass))
            continue;
        const char *name = text_of(pass, "name");
        int codes[] = {strict_on(GRAD("cnn.onnx"), name), strict_on(GRAD("mlp.onnx"), name)};
        for (size_t k = 0; k < 2; k++)
            *(codes[k] == 0 ? &somewhere : &nowhere) += 1;
    }
    assert_true(nowhere > 5 && somewhere > 5);
    json_decref(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_option_of_every_pass_refuses_nonsense),
        cmocka_unit_test(values_out_of_range_are_refused_and_the_legal_ones_named),
        cmocka_unit_test(a_pass_that_applies_nowhere_is_exit_5_under_strict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
