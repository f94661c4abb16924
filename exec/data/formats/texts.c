/* texts.c: files of text become token ids, each row of a .jsonl file a text by itself, a .txt file one.
 *
 *     {"text": "..."}                             all of it is learned
 *     {"prompt": "...", "completion": "..."}      the completion is
 *     {"messages": [{"role": "user", "content": "..."}, ...]}      what the assistant says, and its end
 *
 * Arrays that come out: input_ids, one stream; lengths of its texts; labels, -100 where nothing is to be learned;
 * of which tokens.c makes rows. A text has around it what the tokenizer's template says, and ends in the
 * eos_token of tokenizer_config.json, where that lies beside the tokenizer. Messages are written as one of the
 * templates below, the first whose tokens the tokenizer has; nothing is added that is not in the row.
 */
#include "exec/data/feed/feed.h"
#include "exec/data/formats/formats.h"
#include "exec/data/text/tokenizer.h"

#include <stdio.h>

enum { IGNORED = -100 };

/* ---- chat templates ---- */

typedef struct chat {
    const char *name, *needs[2], *begin;
    const char *head[2]; /* before and behind the role */
    const char *end;     /* learned, where the assistant ends */
    const char *tail;
    const char *assistant; /* what the role is called */
    bool trims, has_system;
} chat;

// clang-format off
static const chat chats[] = {
    {"chatml", {"<|im_start|>", "<|im_end|>"}, NULL, {"<|im_start|>", "\n"}, "<|im_end|>", "\n", "assistant", false, true},
    {"llama3", {"<|start_header_id|>", "<|eot_id|>"}, "<|begin_of_text|>", {"<|start_header_id|>", "<|end_header_id|>\n\n"}, "<|eot_id|>", "", "assistant", true, true},
    {"gemma",  {"<start_of_turn>", "<end_of_turn>"}, "<bos>", {"<start_of_turn>", "\n"}, "<end_of_turn>", "\n", "model", true, false},
    {"phi3",   {"<|assistant|>", "<|end|>"}, NULL, {"<|", "|>\n"}, "<|end|>", "\n", "assistant", false, true},
};
// clang-format on

static const chat *chat_of(const ebb_tokenizer *t)
{
    for (size_t i = 0; i < sizeof chats / sizeof *chats; i++)
        if (ebb_tokenizer_id(t, chats[i].needs[0]) >= 0 &&
            ebb_tokenizer_id(t, chats[i].needs[1]) >= 0)
            return &chats[i];
    return NULL;
}

/* ---- a row ---- */

typedef struct texts {
    ebb_data *data;
    ebb_tokenizer *tokenizer;
    const chat *chat; /* NULL: none fits */
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

static ebb_status put_message(texts *t, const json_t *o)
{
    const chat *c = t->chat;
    const json_t *content = json_object_get(o, "content");
    const char *role = ebb_said_text(o, "role", NULL), *text = json_string_value(content);
    size_t size = json_string_length(content);
    if (role == NULL || text == NULL)
        return ebb_error(EBB_REJECTED, "a message has no role or no content that is text");
    if (!c->has_system && strcmp(role, "system") == 0)
        return ebb_error(EBB_REJECTED, "the template %s has no system message", c->name);
    const bool learned = strcmp(role, "assistant") == 0;
    char head[256];
    const int length = snprintf(head, sizeof head, "%s%s%s", c->head[0],
                                learned ? c->assistant : role, c->head[1]);
    if (length < 0 || (size_t)length >= sizeof head)
        return ebb_error(EBB_REJECTED, "a role is too long");
    if (c->trims)
        trim(&text, &size);
    EBB_TRY(put(t, head, (size_t)length, false, false));
    EBB_TRY(put(t, text, size, false, learned));
    EBB_TRY(put(t, c->end, strlen(c->end), false, learned));
    return put(t, c->tail, strlen(c->tail), false, false);
}

static ebb_status put_messages(texts *t, const json_t *list)
{
    if (t->chat == NULL)
        return ebb_hint(ebb_error(EBB_UNSUPPORTED,
                                  "messages are written as chatml, llama3, gemma or phi3, and "
                                  "the tokenizer has the tokens of none"),
                        "write the rows as {\"prompt\": ..., \"completion\": ...}");
    t->chatted = true;
    if (t->chat->begin != NULL)
        EBB_TRY(put(t, t->chat->begin, strlen(t->chat->begin), true, false));
    for (size_t i = 0; i < json_array_size(list); i++)
        EBB_TRY(put_message(t, json_array_get(list, i)));
    return NULL;
}

static ebb_status put_row(texts *t, const json_t *o)
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
        return ebb_error(EBB_REJECTED,
                         "it has neither text, nor prompt and completion, nor messages");
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
        EBB_TRY(ebb_data_add_note(t->data, "%s: messages are written as %s", path, t->chat->name));
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
    t.chat = chat_of(t.tokenizer);
    ebb_status status = ebb_mapping_open(&mapping, path);
    if (status == NULL)
        status =
            (lines ? put_lines : put_whole)(&t, path, (const char *)mapping->data, mapping->bytes);
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
