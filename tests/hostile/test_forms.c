/* test_forms.c: every form of If, Loop and Scan (forms.h) through check, grad, plan, run and reduce
 * (verbs.h), each by a process of its own; one in a hundred also by the command.
 *     test_hostile_forms --list            what each number is
 *     test_hostile_forms 123 out.onnx      writes one, and says what each verb says
 * A part of them; EBB_TEST_ALL=1 asks for all.
 */

#include "tests/hostile/verbs.h"
#include "tests/hostile/forms.h"
#include "tests/test.h"

enum { COMMANDS = 100 };

static bool write_form(const char *path, const form *f)
{
    static bytes b;
    b.count = 0;
    put_form(&b, f);
    FILE *file = fopen(path, "wb");
    bool written = file != NULL && fwrite(b.data, 1, b.count, file) == b.count;
    return file != NULL && fclose(file) == 0 && written;
}

TEST(every_form_of_control_flow_ends_with_a_code)
{
    static const char *const verbs[][4] = {{"check"}, {"grad", "--loss", "mse"}, {"plan"}, {"ops"}};
    const unsigned one_in = share(SANITIZED ? 80 : 10);
    char path[] = "/tmp/ebb-form-XXXXXX", what[512];
    watch_tally t = {0};
    form f;
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    (void)setenv("OMP_NUM_THREADS", "1", 1);
    for (unsigned i = 0; form_of(&f, i) && t.failures < 10; i++) {
        if ((i % one_in != 0 && i >= 3) || !share_is_here(i)) // the three plain ones always
            continue;
        size_t at = (size_t)snprintf(what, sizeof what, "form %u (", i);
        form_print(what + at, sizeof what - at - 2, &f);
        (void)strcat(what, ")");
        assert_true(write_form(path, &f));
        watch_one(&t, verbs_on, path, NULL, what);
        if (t.done % COMMANDS != 0)
            continue;
        const char *const *verb = verbs[t.done / COMMANDS % 4];
        char *words[8] = {(char[]){"ebb"}, NULL};
        size_t n = 1;
        for (size_t k = 0; k < 4 && verb[k] != NULL; k++)
            words[n++] = strdup(verb[k]);
        words[n++] = path;
        watch_one(&t, NULL, path, words, what);
        for (size_t k = 1; k + 1 < n; k++)
            free(words[k]);
    }
    (void)unlink(path);
    watch_tell(&t, "forms");
    assert_int_equal(t.failures, 0);
    assert_true(t.codes[0] > 0 && t.codes[6] > 0);
}

static int by_hand(int count, char **words)
{
    char text[512];
    form f;
    if (strcmp(words[1], "--list") == 0) {
        for (unsigned i = 0; form_of(&f, i); i++) {
            form_print(text, sizeof text, &f);
            (void)printf("%u\t%s\n", i, text);
        }
        return 0;
    }
    if (count < 3 || !form_of(&f, (unsigned)strtoul(words[1], NULL, 10)) ||
        !write_form(words[2], &f))
        return 2;
    form_print(text, sizeof text, &f);
    (void)printf("%s\n", text);
    verbs_are_shown = true;
    return verbs_on(words[2]);
}

int main(int count, char **words)
{
    return count > 1 ? by_hand(count, words) : run_listed();
}
