/* test_tokenizer.c: texts become the ids that Hugging Face's tokenizers give them (tokenizers/record.py, tokenizers
 * 0.23), and rows of .jsonl what is to be learned of them; what is not computed is refused by its name.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "exec/data/text/tokenizer.h"
#include "tests/formatted.h"
#include "tests/owned.h"
#include "tests/status.h"

#define FOLDER EBB_SOURCE_DIR "/tests/exec/tokenizers/"

/* A build without the libraries says so; then there is nothing to try here. */
static bool reads_text(void)
{
    ebb_regex *r;
    const bool there = ebb_regex_make(&r, ".", false) == NULL;
    ebb_regex_free(r);
    return there;
}

/* ---- ids ---- */

typedef struct recorded {
    char name[64];
    ebb_tokenizer *tokenizer;
} recorded;

static void use(recorded *r, const char *name)
{
    if (strcmp(r->name, name) == 0)
        return;
    ebb_tokenizer_close(r->tokenizer);
    (void)snprintf(r->name, sizeof r->name, "%s", name);
    good(ebb_tokenizer_open(&r->tokenizer, formatted(FOLDER "%s.json", name)));
}

static void check(const char *name, const json_t *text, const ebb_ids *ids, const json_t *want)
{
    FREED char *shown = json_dumps(text, JSON_ENCODE_ANY);
    const size_t count = json_array_size(want);
    for (size_t i = 0; i < ids->count || i < count; i++) {
        const long long id = (long long)json_integer_value(json_array_get(want, i));
        if (i >= ids->count || i >= count || ids->list[i] != id)
            fail_msg("%s, %s: %zu ids, not %zu; id %zu is %d, not %lld", name, shown, ids->count,
                     count, i, i < ids->count ? (int)ids->list[i] : -1, i < count ? id : -1);
    }
}

static void check_text(recorded *r, const json_t *text, const json_t *plain, const json_t *whole)
{
    OWNED_ARENA arena = {0};
    ebb_ids a = {.arena = &arena}, b = a;
    const char *bytes = json_string_value(text);
    const size_t size = json_string_length(text);
    good(ebb_tokenizer_encode(r->tokenizer, bytes, size, true, &a));
    check(r->name, text, &a, plain);
    good(ebb_tokenizer_put(r->tokenizer, true, &b));
    good(ebb_tokenizer_encode(r->tokenizer, bytes, size, true, &b));
    good(ebb_tokenizer_put(r->tokenizer, false, &b));
    check(r->name, text, &b, whole);
}

/* The next of the recorded cases: name, text or messages, ids, ids with the template; NULL: the last was. */
static json_t *next_case(FILE *f)
{
    static char line[1 << 16];
    return fgets(line, sizeof line, f) != NULL ? json_loads(line, JSON_ALLOW_NUL, NULL) : NULL;
}

TEST(texts_become_the_ids_that_hugging_face_gives_them)
{
    recorded r = {.name = ""};
    json_t *c;
    size_t count = 0;
    if (!reads_text())
        skip();
    FILE *f = fopen(FOLDER "texts.txt", "r");
    assert_non_null(f);
    while ((c = next_case(f)) != NULL) {
        use(&r, json_string_value(json_array_get(c, 0)));
        if (json_is_string(json_array_get(c, 1))) {
            check_text(&r, json_array_get(c, 1), json_array_get(c, 2), json_array_get(c, 3));
            count++;
        }
        json_decref(c);
    }
    assert_true(count > 280);
    ebb_tokenizer_close(r.tokenizer);
    (void)fclose(f);
}

/* ---- rows ---- */

static char rows[] = "/tmp/ebb_rows_XXXXXX.jsonl";

static ebb_status open_rows(ebb_data **data, const char *text, const char *tokenizer,
                            int64_t sequence)
{
    char path[512];
    FILE *f = fopen(rows, "w");
    assert_non_null(f);
    (void)fputs(text, f);
    (void)fclose(f);
    (void)snprintf(path, sizeof path, FOLDER "%s.json", tokenizer);
    return ebb_data_open_files(data, (const char *const[]){rows, path, NULL},
                               &(ebb_data_options){.sequence = sequence});
}

static double number(const ebb_data *data, const char *name, size_t i)
{
    const ebb_named *t = ebb_data_find(data, name);
    assert_non_null(t);
    return ebb_element(t, i);
}

/* Messages are written as the model's own template writes them, and what the assistant says is learned. */
static void check_messages(const char *name, const json_t *messages, const json_t *want, int end)
{
    json_t *row = json_pack("{s:O}", "messages", messages);
    FREED char *text = json_dumps(row, 0);
    const size_t count = json_array_size(want);
    OWNED_DATA *data = NULL;
    good(open_rows(&data, text, name, (int64_t)count));
    size_t learned = 0, ends = 0;
    for (size_t i = 0; i < count; i++) {
        assert_int_equal((int)number(data, "input_ids", i),
                         (int)json_integer_value(json_array_get(want, i)));
        const int target = (int)number(data, "target", i);
        learned += target != -100;
        ends += target == end;
        if (target != -100)
            assert_int_equal(target, (int)json_integer_value(json_array_get(want, i + 1)));
    }
    assert_int_equal(ends, json_array_size(messages) / 2); // of the assistant's turns
    assert_true(learned > 4 * ends && learned < count * 2 / 3);
    json_decref(row);
}

/* The token that ends what the assistant says. */
static int end_of(const ebb_tokenizer *t)
{
    static const char *const ends[] = {"<|eot_id|>", "<|im_end|>", "<end_of_turn>", "<|end|>",
                                       "</s>"};
    int64_t id = -1;
    for (size_t i = 0; i < sizeof ends / sizeof *ends && id < 0; i++)
        id = ebb_tokenizer_id(t, ends[i]);
    return (int)id;
}

TEST(messages_are_written_as_the_template_has_them)
{
    recorded r = {.name = ""};
    json_t *c;
    size_t count = 0;
    if (!reads_text())
        skip();
    FILE *f = fopen(FOLDER "texts.txt", "r");
    assert_non_null(f);
    while ((c = next_case(f)) != NULL) {
        const char *name = json_string_value(json_array_get(c, 0));
        if (json_is_array(json_array_get(c, 1))) {
            use(&r, name);
            check_messages(name, json_array_get(c, 1), json_array_get(c, 2), end_of(r.tokenizer));
            count++;
        }
        json_decref(c);
    }
    assert_int_equal(count, 21);
    ebb_tokenizer_close(r.tokenizer);
    (void)fclose(f);
}

TEST(a_prompt_is_not_learned)
{
    OWNED_DATA *data = NULL;
    recorded r = {.name = ""};
    OWNED_ARENA arena = {0};
    ebb_ids prompt = {.arena = &arena}, all = prompt;
    if (!reads_text())
        skip();
    use(&r, "llama3");
    good(ebb_tokenizer_put(r.tokenizer, true, &prompt));
    good(ebb_tokenizer_encode(r.tokenizer, "Boats?", 6, true, &prompt));
    for (size_t i = 0; i < prompt.count; i++)
        good(ebb_ids_add(&all, prompt.list[i]));
    good(ebb_tokenizer_encode(r.tokenizer, " In the mud.", 12, false, &all));
    good(open_rows(&data, "{\"prompt\": \"Boats?\", \"completion\": \" In the mud.\"}\n", "llama3",
                   (int64_t)all.count));
    for (size_t i = 0; i < all.count; i++) {
        const bool learned = i + 1 >= prompt.count && i + 1 < all.count;
        assert_int_equal((int)number(data, "input_ids", i), all.list[i]);
        assert_int_equal((int)number(data, "target", i), learned ? all.list[i + 1] : -100);
    }
    ebb_tokenizer_close(r.tokenizer);
}

/* ---- what is refused ---- */

static void assert_says(ebb_status status, const char *words)
{
    if (status == NULL || strstr(ebb_status_text(status), words) == NULL)
        fail_msg("%s\nexpected: %s", ebb_status_text(status), words);
}

TEST(what_is_wrong_with_rows_is_said)
{
    static const struct {
        const char *text, *tokenizer, *says;
    } cases[] = {
        {"{\"text\": \"a\"}\n\n{\"texts\": \"b\"}\n", "gpt2",
         "line 3: it has neither text, nor prompt and completion, nor messages, but 'texts'"},
        {"\xEF\xBB\xBF{\"text\": \"a\"}\n{\"question\": \"a\", \"answer\": \"b\"}", "gpt2",
         "line 2: it has neither text, nor prompt and completion, nor messages, but 'question', "
         "'answer'"},
        {"{\"prompt\": 1, \"completion\": \"b\"}", "gpt2", "line 1: its prompt is no text"},
        {"{\"prompt\": [], \"completion\": []}", "gpt2", "(.prompt + .completion)"},
        {"{\"instruction\": \"a\", \"output\": \"b\"}", "gpt2", "jq -c '{prompt: (.instruction +"},
        {"{\"conversations\": []}", "gpt2", "jq -c '{messages: [.conversations[]"},
        {"{\"completion\": \"a\"}", "gpt2", "jq -c '{text: .completion}'"},
        {"{\"a\": \"b\"}", "gpt2", "jq -c '{text: .FIELD}'"},
        {"{\"messages\": \"a\"}", "gpt2", "line 1: its messages are no list"},
        {"[{\"text\": \"a\"}]", "gpt2", "line 1: it is no object"},
        {"{\"text\": \"a\"\n", "gpt2", "line 1: "},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}", "gpt2",
         "the tokenizer has the tokens of none"},
        {"{\"messages\": [{\"role\": \"user\"}]}", "qwen2", "no content that is text"},
        {"{\"messages\": [{\"role\": \"system\", \"content\": \"a\"}]}", "chat/mistral/tokenizer",
         "mistral has no system message"},
        {"{\"messages\": [{\"role\": \"tool\", \"content\": \"a\"}]}", "chat/gemma/tokenizer",
         "gemma takes user and assistant in turns, not 'tool'"},
        {"\n", "gpt2", "it has no text"},
        {"{\"text\": \"a\"}", "none", "No such file"},
    };
    ebb_data *data;
    if (!reads_text())
        skip();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_says(open_rows(&data, cases[i].text, cases[i].tokenizer, 4), cases[i].says);
    assert_says(open_rows(&data, "{\"text\": \"a\"}", "gpt2", 0), "--sequence N");
    assert_says(ebb_data_open_files(&data,
                                    (const char *const[]){FOLDER "gpt2.json", "rows.json", NULL},
                                    &(ebb_data_options){.sequence = 4}),
                "rows.json: a .json is a tokenizer");
}

/* A pattern that is asked at each word looks at that word alone: minutes, if it looked at all of the text. */
TEST(a_long_text_is_read_in_one_go)
{
    enum { WORDS = 400000 };
    static const char word[] = "harbour ", before[] = "{\"text\": \"", behind[] = "\"}";
    const size_t size = sizeof before + sizeof behind + WORDS * (sizeof word - 1);
    FREED char *text = malloc(size);
    OWNED_DATA *data = NULL;
    if (!reads_text())
        skip();
    assert_non_null(text);
    memcpy(text, before, sizeof before - 1);
    for (size_t i = 0; i < WORDS; i++)
        memcpy(text + sizeof before - 1 + i * (sizeof word - 1), word, sizeof word - 1);
    memcpy(text + sizeof before - 1 + WORDS * (sizeof word - 1), behind, sizeof behind);
    const clock_t began = clock();
    good(open_rows(&data, text, "gpt2", 64));
    assert_true((double)(clock() - began) / CLOCKS_PER_SEC < 20);
}

static void write_file(const char *folder, const char *name, const char *text)
{
    FILE *f = fopen(formatted("%s/%s", folder, name), "w");
    assert_non_null(f);
    (void)fputs(text, f);
    (void)fclose(f);
}

/* Templates of no form that is written, of which most have some of another's words. */
TEST(a_template_of_another_form_is_refused)
{
    static const char tokenizer[] =
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": []}, \"added_tokens\": "
        "[{\"id\": 1, \"content\": \"<|im_start|>\"}, {\"id\": 2, \"content\": \"<|im_end|>\"}]}";
    static const char *const templates[] = {
        "{% for m in messages %}### {{ m.role }}:\\n{{ m.content }}{% endfor %}",
        "{{ '<|im_start|>' + m.role + '<|im_sep|>' + m.content + '<|im_end|>' }}",
        "{{ '<|user|>\\n' + m.content + eos_token }}{{ '<|assistant|>\\n' + m.content + eos_token "
        "}}",
        "[gMASK]<sop><|user|>\\n{{ m.content }}<|assistant|>\\n{{ m.content }}",
        "{{ '<|im_start|>' + m.role + m.content }}",
        "",
    };
    char folder[] = "/tmp/ebb_chat_XXXXXX", path[512], text[512];
    ebb_data *data;
    if (!reads_text())
        skip();
    assert_non_null(mkdtemp(folder));
    write_file(folder, "tokenizer.json", tokenizer);
    (void)snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    FILE *f = fopen(rows, "w");
    assert_non_null(f);
    (void)fputs("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}", f);
    (void)fclose(f);
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
        (void)snprintf(text, sizeof text, "{\"chat_template\": \"%s\"}", templates[i]);
        write_file(folder, "tokenizer_config.json", text);
        ebb_status status = ebb_data_open_files(&data, (const char *const[]){rows, path, NULL},
                                                &(ebb_data_options){.sequence = 4});
        assert_says(status, "the tokenizer's chat template is none of these");
        assert_says(status, "write the rows as {\"prompt\": ..., \"completion\": ...}");
    }
    (void)unlink(path);
    (void)snprintf(path, sizeof path, "%s/tokenizer_config.json", folder);
    (void)unlink(path);
    (void)rmdir(folder);
}

TEST(what_is_not_computed_is_refused_by_its_name)
{
    static const char model[] =
        "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": []}";
    static const struct {
        const char *json, *says;
    } cases[] = {
        {"{\"model\": {\"type\": \"Markov\", \"vocab\": [[\"a\", 0.5]]}}", "its model is Markov"},
        {"{\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"a\", -0.5], [\"b\"]]}}",
         "token 1 of its vocabulary is no text with a score"},
        {"{\"model\": {\"type\": \"Unigram\", \"vocab\": []}}", "its model has no vocabulary"},
        {"{\"model\": {\"type\": \"Unigram\", \"unk_id\": 1, \"vocab\": [[\"a\", -0.5]]}}",
         "its unknown token is not in"},
        {"{\"normalizer\": {\"type\": \"Nmt\"}, MODEL}", "its normalizer Nmt"},
        {"{\"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"AP8AAAA=\"}, "
         "MODEL}",
         "its precompiled_charsmap is none"},
        {"{\"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"a b\"}, MODEL}",
         "its precompiled_charsmap is none"},
        {"{\"pre_tokenizer\": {\"type\": \"UnicodeScripts\"}, MODEL}",
         "its pre-tokenizer UnicodeScripts"},
        {"{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"(\"}, \"behavior\": "
         "\"Isolated\"}, "
         "MODEL}",
         "the pattern \"(\" is not taken"},
        {"{\"post_processor\": {\"type\": \"Other\"}, MODEL}", "its post-processor Other"},
        {"{\"added_tokens\": [{\"id\": 1, \"content\": \"b\", \"single_word\": true}], MODEL}",
         "'b' is one for single"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"a b\"]}}",
         "\"a b\", is of no tokens"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [7]}}",
         "merge 0 of its BPE is no pair"},
        {"{\"model\": {\"type\": \"BPE\", \"dropout\": 0.1, \"vocab\": {}, \"merges\": []}}",
         "drops merges"},
        {"{\"model\": {\"type\": \"BPE\"}}", "no vocabulary"},
        {"[", "line 1: "},
    };
    if (!reads_text())
        skip();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *hole = strstr(cases[i].json, "MODEL");
        ebb_tokenizer *t;
        FILE *f = fopen(rows, "w");
        assert_non_null(f);
        if (hole == NULL)
            (void)fputs(cases[i].json, f);
        else
            (void)fprintf(f, "%.*s%s%s", (int)(hole - cases[i].json), cases[i].json, model,
                          hole + 5);
        (void)fclose(f);
        assert_says(ebb_tokenizer_open(&t, rows), cases[i].says);
        assert_null(t);
    }
}

static int make_file(void **state)
{
    (void)state;
    const int fd = mkstemps(rows, 6);
    return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(rows);
}

const fixture around_all = {make_file, remove_file};
