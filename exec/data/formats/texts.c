/* texts.c: files of text become token ids, each row of a .jsonl file a text by itself, a .txt file one.
 *
 *     {"text": "..."}                             all of it is learned
 *     {"prompt": "...", "completion": "..."}      the completion is
 *     {"messages": [{"role": "user", "content": "..."}, ...]}      what the assistant says, and its end
 *
 * Arrays that come out: input_ids, one stream; lengths of its texts; labels, -100 where nothing is to be learned;
 * of which tokens.c makes rows. A text has around it what the tokenizer's template says, and ends in the
 * eos_token of tokenizer_config.json, where that lies beside the tokenizer. Messages are written by chat.c.
 */
#include "exec/data/feed/feed.h"
#include "exec/data/formats/chat.h"
#include "exec/data/formats/formats.h"
#include "exec/data/text/tokenizer.h"

#include <stdio.h>

enum { IGNORED = -100 };

/* ---- a row ---- */

typedef struct texts {
    ebb_data *data;
    ebb_tokenizer *tokenizer;
    ebb_chat chat;
    ebb_ids ids, labels, lengths;
    bool chatted;
} texts;

/* The labels of what came since the last time. */
static ebb_status learn(texts *t, bool learned)
{
    while (t->labels.count < t->ids.count)
        EBB_TRY(ebb_ids_add(&t->labels, learned ? t->ids.list[t->labels.count] : IGNORED));
    return NULL;
}

static ebb_status put(texts *t, const char *text, size_t size, bool first, bool learned)
{
    EBB_TRY(ebb_tokenizer_encode(t->tokenizer, text, size, first, &t->ids));
    return learn(t, learned);
}

static ebb_status end_text(texts *t, size_t from)
{
    const int64_t end = ebb_tokenizer_end(t->tokenizer);
    EBB_TRY(ebb_tokenizer_put(t->tokenizer, false, &t->ids));
    if (end >= 0 && (t->ids.count == from || t->ids.list[t->ids.count - 1] != end))
        EBB_TRY(ebb_ids_add(&t->ids, end));
    return learn(t, true);
}

static ebb_status put_text(texts *t, const char *prompt, size_t prompt_size, const char *text,
                           size_t size)
{
    const size_t from = t->ids.count;
    EBB_TRY(ebb_tokenizer_put(t->tokenizer, true, &t->ids));
    EBB_TRY(learn(t, prompt == NULL));
    if (prompt != NULL)
        EBB_TRY(put(t, prompt, prompt_size, true, false));
    EBB_TRY(put(t, text, size, prompt == NULL || prompt_size == 0, true));
    return end_text(t, from);
}

/* Without the blanks around it. */
static void trim(const char **text, size_t *size)
{
    static const char blanks[] = " \t\r\n\f\v";
    while (*size > 0 && strchr(blanks, **text) != NULL) {
        ++*text;
        --*size;
    }
    while (*size > 0 && strchr(blanks, (*text)[*size - 1]) != NULL)
        --*size;
}

/* Tokens of the text that are those of a longer one's beginning, which `all` holds from `from` on; SIZE_MAX: they are
 * others. */
static ebb_status count_prefix(texts *t, const char *text, size_t size, bool first, size_t from,
                               size_t *count)
{
    EBB_LOCAL_ARENA(arena);
    ebb_ids ids = {.arena = arena};
    ebb_status status = ebb_tokenizer_encode(t->tokenizer, text, size, first, &ids);
    *count = from + ids.count;
    for (size_t i = 0; i < ids.count; i++)
        if (from + i >= t->ids.count || t->ids.list[from + i] != ids.list[i])
            *count = SIZE_MAX;
    return status;
}

/* Text up to an answer, the answer, and what follows it, cut into tokens as one; where a token would be of both, apart. */
static ebb_status put_answer(texts *t, const char *text, bool first, size_t answer, size_t end,
                             size_t size)
{
    const size_t from = t->ids.count;
    size_t before, behind;
    EBB_TRY(ebb_tokenizer_encode(t->tokenizer, text, size, first, &t->ids));
    EBB_TRY(count_prefix(t, text, answer, first, from, &before));
    EBB_TRY(count_prefix(t, text, end, first, from, &behind));
    if (before == SIZE_MAX || behind == SIZE_MAX || behind < before) {
        t->ids.count = from;
        EBB_TRY(put(t, text, answer, first, false));
        EBB_TRY(put(t, text + answer, end - answer, false, true));
        return put(t, text + end, size - end, false, false);
    }
    while (t->labels.count < t->ids.count) {
        const size_t i = t->labels.count;
        EBB_TRY(ebb_ids_add(&t->labels, i >= before && i < behind ? t->ids.list[i] : IGNORED));
    }
    return NULL;
}

static ebb_status put_written(texts *t, const ebb_chat_text *chat)
{
    size_t done = 0;
    const char *text = chat->text.data;
    for (size_t i = 0; i < chat->count; i++) {
        const ebb_chat_answer *a = &chat->answers[i];
        EBB_TRY(
            put_answer(t, text + done, done == 0, a->from - done, a->to - done, a->unit - done));
        done = a->unit;
    }
    return put(t, text + done, chat->text.size - done, done == 0, false);
}

static ebb_status put_messages(texts *t, const json_t *list)
{
    EBB_LOCAL_ARENA(arena);
    ebb_chat_text chat = {.text.arena = arena};
    if (t->chat.form == NULL)
        return ebb_hint(
            ebb_error(EBB_UNSUPPORTED,
                      "messages are written as chatml, llama3, gemma, phi3 or mistral, and %s",
                      t->chat.has_template ? "the tokenizer's chat template is none of these"
                                           : "the tokenizer has the tokens of none"),
            "write the rows as {\"prompt\": ..., \"completion\": ...}");
    t->chatted = true;
    ebb_text_add(&chat.text, "", 0);
    EBB_TRY(ebb_chat_write(&t->chat, list, &chat));
    return put_written(t, &chat);
}

/* Fields of rows as others have them, and what makes ours of these. */
static const struct habit {
    const char *field, *filter;
} habits[] = {
    {"conversations",
     "{messages: [.conversations[] | {role: ({human: \"user\", gpt: \"assistant\"}[.from] // "
     ".from), content: .value}]}"},
    {"conversation", "{messages: .conversation}"},
    {"instruction", "{prompt: (.instruction + \"\\n\" + (.input // \"\") + \"\\n\"), "
                    "completion: (.output // .response)}"},
    {"question", "{prompt: .question, completion: .answer}"},
    {"completion", "{text: .completion}"},
    {"content", "{text: .content}"},
};

/* What a row has instead of what is read, by name. */
static ebb_status not_read(json_t *o)
{
    static const char *const known[] = {"prompt", "completion", "text"};
    char has[200] = "nothing";
    size_t used = 0;
    if (!json_is_object(o))
        return ebb_hint(
            ebb_error(EBB_REJECTED, "it is no object"),
            "each line is one: jq -c '.[]' rows.json > rows.jsonl makes lines of a list");
    if (json_object_get(o, "messages") != NULL)
        return ebb_error(EBB_REJECTED, "its messages are no list");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const json_t *field = json_object_get(o, known[i]);
        if (field == NULL || json_is_string(field))
            continue;
        ebb_status status = ebb_error(EBB_REJECTED, "its %s is no text", known[i]);
        return !json_is_array(field)
                   ? status
                   : ebb_hint(status,
                              "jq -c '{messages: (.prompt + .completion)}' makes one list of two");
    }
    for (void *at = json_object_iter(o); at != NULL && used < sizeof has;
         at = json_object_iter_next(o, at))
        used += (size_t)snprintf(has + used, sizeof has - used, "%s'%s'", used > 0 ? ", " : "",
                                 json_object_iter_key(at));
    ebb_status status = ebb_error(
        EBB_REJECTED, "it has neither text, nor prompt and completion, nor messages, but %s", has);
    for (size_t i = 0; i < sizeof habits / sizeof *habits; i++)
        if (json_object_get(o, habits[i].field) != NULL)
            return ebb_hint(status, "jq -c '%s' makes rows of it that are read", habits[i].filter);
    return ebb_hint(status, "give its fields these names, as jq -c '{prompt: .FIELD, completion: "
                            ".OTHER}' or jq -c '{text: .FIELD}' does");
}

static ebb_status put_row(texts *t, json_t *o)
{
    const json_t *text = json_object_get(o, "text"), *prompt = json_object_get(o, "prompt"),
                 *completion = json_object_get(o, "completion"),
                 *messages = json_object_get(o, "messages");
    const size_t from = t->ids.count;
    if (json_is_array(messages))
        EBB_TRY(put_messages(t, messages));
    else if (json_is_string(prompt) && json_is_string(completion))
        EBB_TRY(put_text(t, json_string_value(prompt), json_string_length(prompt),
                         json_string_value(completion), json_string_length(completion)));
    else if (json_is_string(text))
        EBB_TRY(put_text(t, NULL, 0, json_string_value(text), json_string_length(text)));
    else
        return not_read(o);
    if (t->ids.count - from > INT32_MAX)
        return ebb_error(EBB_REJECTED, "it is too long");
    return ebb_ids_add(&t->lengths, (int64_t)(t->ids.count - from));
}

/* ---- files ---- */

static ebb_status put_lines(texts *t, const char *path, const char *bytes, size_t size)
{
    size_t line = 0;
    for (size_t at = 0, end; at < size; at = end + 1) {
        const char *stop = memchr(bytes + at, '\n', size - at);
        end = stop != NULL ? (size_t)(stop - bytes) : size;
        const char *text = bytes + at;
        size_t length = end - at;
        json_error_t error;
        line++;
        trim(&text, &length);
        if (length == 0)
            continue;
        json_t *o = json_loadb(text, length, JSON_ALLOW_NUL, &error);
        ebb_status status = o != NULL ? put_row(t, o) : ebb_error(EBB_REJECTED, "%s", error.text);
        json_decref(o);
        if (status != NULL) {
            char place[512];
            (void)snprintf(place, sizeof place, "%.400s: line %zu", path, line);
            return ebb_at(status, place);
        }
    }
    return NULL;
}

static ebb_status put_whole(texts *t, const char *path, const char *bytes, size_t size)
{
    const size_t from = t->ids.count;
    EBB_TRY(ebb_at(put_text(t, NULL, 0, bytes, size), path));
    return ebb_ids_add(&t->lengths, (int64_t)(t->ids.count - from));
}

static ebb_status put_arrays(texts *t, const char *path)
{
    const struct {
        const char *name;
        const ebb_ids *ids;
    } arrays[] = {{"input_ids", &t->ids}, {"labels", &t->labels}, {"lengths", &t->lengths}};
    if (t->ids.count == 0)
        return ebb_error(EBB_REJECTED, "%s: it has no text", path);
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        const int64_t count = (int64_t)arrays[i].ids->count;
        EBB_TRY(ebb_data_add(t->data, arrays[i].name, strlen(arrays[i].name), EBB_I32, 1, &count,
                             arrays[i].ids->list, (size_t)count * sizeof(int32_t)));
    }
    if (t->chatted)
        EBB_TRY(ebb_data_add_note(
            t->data, "%s: messages are written as %s%s%s", path, ebb_chat_name(&t->chat),
            t->chat.omitted != NULL ? ", without what its template adds: " : "",
            t->chat.omitted != NULL ? t->chat.omitted : ""));
    return NULL;
}

static ebb_status read_file(ebb_data *data, const char *path, bool lines)
{
    texts t = {.data = data,
               .ids.arena = &data->arena,
               .labels.arena = &data->arena,
               .lengths.arena = &data->arena};
    ebb_mapping *mapping = NULL;
    if (data->fit == NULL || data->fit->tokenizer == NULL)
        return ebb_error(EBB_USAGE,
                         "%s: text needs the model's tokenizer: --tokenizer tokenizer.json", path);
    EBB_TRY(ebb_tokenizer_open(&t.tokenizer, data->fit->tokenizer));
    ebb_status status = ebb_chat_find(&t.chat, t.tokenizer, &data->arena);
    if (status == NULL)
        status = ebb_mapping_open(&mapping, path);
    if (status == NULL) {
        static const char mark[] =
            "\xEF\xBB\xBF"; // some editors write it before the first character
        const char *text = (const char *)mapping->data;
        const bool marked = mapping->bytes >= 3 && memcmp(text, mark, 3) == 0;
        status = (lines ? put_lines : put_whole)(&t, path, text + 3 * marked,
                                                 mapping->bytes - 3 * marked);
    }
    if (status == NULL)
        status = put_arrays(&t, path);
    ebb_mappings_free(mapping);
    ebb_tokenizer_close(t.tokenizer);
    return status;
}

ebb_status ebb_jsonl_read(ebb_data *data, const char *path)
{
    return read_file(data, path, true);
}

ebb_status ebb_txt_read(ebb_data *data, const char *path)
{
    return read_file(data, path, false);
}
