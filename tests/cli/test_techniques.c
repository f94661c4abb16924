/* test_techniques.c: every pass as the command takes it: options that make no sense are refused
 * with one sentence before anything is looked at, and under --strict a pass that applied nowhere is
 * exit code 5.
 */
#include "tests/cli/cli.h"
#include "tests/formatted.h"

#include <jansson.h>

#define GRAD(model) "grad " DIGITS model " --dim batch=8 --loss cross-entropy --dry-run "

static json_t *all_passes(void)
{
    assert_int_equal(stdout_of("help passes --json"), 0);
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
    int code = ebb(formatted(GRAD("mlp.onnx") "--pass '%s'", pass));
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
TEST(every_option_of_every_pass_refuses_nonsense)
{
    size_t i, k, tried = 0;
    json_t *list = all_passes(), *pass, *option;
    json_array_foreach(list, i, pass)
        json_array_foreach(json_object_get(pass, "options"), k, option) {
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

TEST(values_out_of_range_are_refused_and_the_legal_ones_named)
{
    static const struct {
        const char *pass, *words;
    } wrong[] = {
        {"micro-batch", "parts"},
        {"micro-batch:parts=1", "from 2 to 4096"},
        {"micro-batch:parts=0", "from 2 to 4096"},
        {"micro-batch:parts=-2", "from 2 to 4096"},
        {"micro-batch:parts=100000", "from 2 to 4096"},
        {"chunk-loss:rows=-1", "at least 0"},
        {"chunk-loss:rows=1.5", "a whole number"},
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
        {"low-bit-state:least=0", "elements of at least 1"},
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

static bool tidies(const json_t *pass)
{
    return json_is_true(json_object_get(pass, "tidies"));
}

static json_int_t applied(const char *pass)
{
    json_t *o = json_loads(output, 0, NULL), *p;
    size_t i;
    json_int_t count = -1;
    json_array_foreach(json_object_get(o, "passes"), i, p)
        if (strcmp(text_of(p, "name"), pass) == 0)
            count = json_integer_value(json_object_get(p, "applied"));
    json_decref(o);
    return count;
}

/* The exit code under --strict; 2: the pass does not go without an option. */
static int strict_on(const char *command, const char *pass)
{
    char words[1024];
    (void)snprintf(words, sizeof words, "%s--pass %s --json", command, pass);
    int code = stdout_of(words);
    if (code == 2)
        return code;
    if (code != 0)
        fail_msg("%s:\n%s", words, output);
    json_int_t count = applied(pass);
    assert_true(count >= 0);
    (void)snprintf(words, sizeof words, "%s--pass %s --strict", command, pass);
    code = ebb(words);
    if (code != (count > 0 ? 0 : 5))
        fail_msg("%s applied %lld times; %s: exit %d:\n%s", pass, (long long)count, words, code,
                 output);
    if (code == 5 && strstr(output, "found nothing to apply to") == NULL &&
        strstr(output, "applied to none of") == NULL)
        fail_msg("%s does not say that it found nothing:\n%s", pass, output);
    return code;
}

TEST(a_pass_that_applies_nowhere_is_exit_5_under_strict)
{
    size_t i, nowhere = 0, somewhere = 0, incomplete = 0;
    json_t *list = all_passes(), *pass;
    json_array_foreach(list, i, pass) {
        if (tidies(pass) || strcmp(text_of(pass, "exactness"), "makes") == 0)
            continue;
        const char *name = text_of(pass, "name");
        int codes[] = {strict_on(GRAD("cnn.onnx"), name), strict_on(GRAD("mlp.onnx"), name)};
        for (size_t k = 0; k < 2; k++)
            *(codes[k] == 0 ? &somewhere : codes[k] == 5 ? &nowhere : &incomplete) += 1;
    }
    assert_true(nowhere > 5 && somewhere > 5);
    assert_int_equal(incomplete,
                     2 * 4); // micro-batch: parts; data-parallel: ranks; recompute, fit: budget
    json_decref(list);
}

TEST(what_tidies_may_find_nothing_under_strict)
{
    size_t i, nothing = 0;
    json_t *list = all_passes(), *pass;
    says("bench " DIGITS "mlp.onnx --dim batch=1 --calibrate --steps 1 -o costs.json", 0, "");
    json_array_foreach(list, i, pass) {
        char words[512];
        const char *name = text_of(pass, "name");
        if (!tidies(pass))
            continue;
        bool costs = strcmp(name, "cost") == 0; // which goes by a file
        (void)snprintf(words, sizeof words,
                       "rewrite " DIGITS
                       "mlp.onnx --dim batch=8 --pass %s%s --strict --dry-run --json",
                       name, costs ? ":file=costs.json" : "");
        if (stdout_of(words) != 0)
            fail_msg("%s:\n%s", words, output);
        nothing += applied(name) == 0;
    }
    assert_true(nothing > 3);
    json_decref(list);
}

/* ---- where a pass goes ---- */

/* The place of a pass among those of the report in `output`. */
static int place_of(const char *pass)
{
    json_t *o = json_loads(output, 0, NULL), *p;
    size_t i;
    int place = -1;
    json_array_foreach(json_object_get(o, "passes"), i, p)
        if (strcmp(text_of(p, "name"), pass) == 0)
            place = (int)i;
    json_decref(o);
    assert_true(place >= 0);
    return place;
}

TEST(what_changes_the_primal_goes_before_the_gradient_wherever_it_is_named)
{
    static const char *const ways[] = {
        "--pass sign-mask,layout:pad=1,lora:rank=2,alpha=4 --precision bf16",
        "--pass precision:bf16 --pass sign-mask --pass lora:rank=2,alpha=4,layout:pad=1",
        "--pass sign-mask --pass layout:pad=1,precision,lora:rank=2,alpha=4",
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char words[1024];
        (void)snprintf(words, sizeof words, GRAD("cnn.onnx") "--json %s", ways[i]);
        if (stdout_of(words) != 0)
            fail_msg("%s:\n%s", words, output);
        assert_true(place_of("lora") < place_of("layout"));
        assert_true(place_of("lora") < place_of("precision"));
        assert_true(place_of("layout") < place_of("gradient"));
        assert_true(place_of("precision") < place_of("gradient"));
        assert_true(place_of("gradient") < place_of("sign-mask"));
        assert_true(applied("lora") > 0 && applied("layout") > 0 && applied("precision") > 0);
    }
    says("bench " DIGITS "cnn.onnx --dim batch=8 --loss cross-entropy --passes sign-mask,layout "
         "--passes precision --passes lora -o lines.jsonl",
         0, "3 lines added");
    assert_null(strstr(output, "found nothing"));
    assert_null(strstr(output, "failed"));
}

const fixture around_all = {make_folder, remove_folder};
