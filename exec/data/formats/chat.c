/* chat.c: the forms of chat templates. A template is a program (Jinja), which is not run: it is known by a text that is
 * in it and in those of other forms is not, and by the tokens that it writes, and read for what begins a text, closes it,
 * and stands for a system message that is missing.
 */
#include "exec/data/formats/chat.h"

typedef struct ebb_chat_form {
    const char *name;
    const char *has; /* what its templates have */
    /* And tokens that they have all of, by which alone it is known where there is no template; NULL: it is not. */
    const char *needs[2];
    const char *lacks; /* what they have not; NULL: nothing */
    const char *begin, *close;
    const char *head[2]; /* before and behind the role */
    const char *end, *tail;
    const char *assistant;             /* what the role is called */
    const char *user[2], *answer;      /* instead of heads, where roles have no names */
    bool trims, trims_answers, system; /* system: it has messages of the system */
    bool in_turns;                     /* of user and assistant */
    bool begins;                       /* also without a template */
} ebb_chat_form;

// clang-format off
static const ebb_chat_form forms[] = {
    {.name = "chatml", .has = "<|im_start|>", .needs = {"<|im_start|>", "<|im_end|>"},
     .lacks = "<|im_sep|>", // phi-4's
     .head = {"<|im_start|>", "\n"}, .end = "<|im_end|>", .tail = "\n", .assistant = "assistant", .system = true},
    {.name = "llama3", .has = "<|start_header_id|>", .needs = {"<|start_header_id|>", "<|eot_id|>"},
     .begin = "<|begin_of_text|>", .begins = true, .head = {"<|start_header_id|>", "<|end_header_id|>\n\n"},
     .end = "<|eot_id|>", .tail = "", .assistant = "assistant", .trims = true, .system = true},
    {.name = "gemma", .has = "<start_of_turn>", .needs = {"<start_of_turn>", "<end_of_turn>"},
     .begin = "<bos>", .begins = true, .head = {"<start_of_turn>", "\n"}, .end = "<end_of_turn>", .tail = "\n",
     .assistant = "model", .trims = true, .in_turns = true},
    {.name = "phi3", .has = "<|user|>\n", .needs = {"<|assistant|>", "<|end|>"},
     .begin = "<s>", .close = "<|endoftext|>", .head = {"<|", "|>\n"}, .end = "<|end|>", .tail = "\n",
     .assistant = "assistant", .system = true},
    {.name = "mistral", .has = "\"[INST] \" + message[\"content\"] + \"[/INST]\"", .needs = {"[INST]", "[/INST]"},
     .begin = "<s>", .begins = true, .user = {"[INST] ", "[/INST]"}, .answer = " ", .end = "</s>", .tail = "",
     .assistant = "assistant", .trims_answers = true, .in_turns = true},
    {.name = "mistral-v1", .has = "'[INST] ' + message['content'] + ' [/INST]'",
     .begin = "<s>", .user = {"[INST] ", " [/INST]"}, .answer = "", .end = "</s>", .tail = "",
     .assistant = "assistant", .in_turns = true},
};
// clang-format on

/* ---- which form ---- */

/* The template with its line ends as such, and texts that are added to each other as one. */
static ebb_status plain_template(const char *source, ebb_arena *arena, const char **plain)
{
    ebb_text t = {.arena = arena};
    ebb_text_add(&t, "", 0);
    for (const char *c = source; *c != '\0';) {
        const bool line = c[0] == '\\' && c[1] == 'n', sum = strncmp(c, "' + '", 5) == 0;
        if (!sum)
            ebb_text_add(&t, line ? "\n" : c, 1);
        c += line ? 2 : sum ? 5 : 1;
    }
    *plain = t.data;
    return t.full ? ebb_error_memory() : NULL;
}

static bool writes(const char *plain, const ebb_chat_form *f)
{
    for (size_t i = 0; i < 2; i++)
        if (f->needs[i] != NULL && strstr(plain, f->needs[i]) == NULL)
            return false;
    return strstr(plain, f->has) != NULL && (f->lacks == NULL || strstr(plain, f->lacks) == NULL);
}

static bool has_tokens(const ebb_tokenizer *t, const ebb_chat_form *f)
{
    return f->needs[0] != NULL && ebb_tokenizer_id(t, f->needs[0]) >= 0 &&
           ebb_tokenizer_id(t, f->needs[1]) >= 0;
}

/* '<|im_start|>system\nYou are helpful.<|im_end|>\n', in quotes and whole: what is written where there is no system
 * message. */
static ebb_status find_system(ebb_chat *chat, const char *plain, ebb_arena *arena)
{
    static const char head[] = "<|im_start|>system\n", end[] = "<|im_end|>";
    for (const char *at = strstr(plain, head); at != NULL; at = strstr(at + 1, head)) {
        const char *text = at + sizeof head - 1, *stop = strstr(text, end);
        const char quote = at > plain ? at[-1] : ' ';
        const char *closing = strchr(text, quote);
        while (closing != NULL && closing > text && closing[-1] == '\\')
            closing = strchr(closing + 1, quote);
        if ((quote != '\'' && quote != '"') || stop == NULL || closing == NULL || closing < stop)
            continue;
        ebb_text t = {.arena = arena};
        for (const char *c = text; c < stop; c++)
            if (c[0] != '\\' || (c > text && c[-1] == '\\'))
                ebb_text_add(&t, c, 1);
        chat->system = t.data;
        return t.full ? ebb_error_memory() : NULL;
    }
    return NULL;
}

ebb_status ebb_chat_find(ebb_chat *chat, const ebb_tokenizer *t, ebb_arena *arena)
{
    const char *source = ebb_tokenizer_chat(t), *plain = "";
    *chat = (ebb_chat){.has_template = source != NULL};
    if (source != NULL)
        EBB_TRY(plain_template(source, arena, &plain));
    for (size_t i = 0; i < sizeof forms / sizeof *forms && chat->form == NULL; i++)
        if (source != NULL ? writes(plain, &forms[i]) : has_tokens(t, &forms[i]))
            chat->form = &forms[i];
    if (chat->form == NULL)
        return NULL;
    chat->begins = chat->form->begin != NULL &&
                   (source != NULL ? strstr(plain, "bos_token") != NULL : chat->form->begins);
    chat->closes = chat->form->close != NULL && strstr(plain, "eos_token") != NULL;
    chat->joins_system = strstr(plain, "first_user_prefix") != NULL;
    chat->omitted = strstr(plain, "date_string") != NULL         ? "a date"
                    : strstr(plain, "reasoning_content") != NULL ? "what a model thinks"
                                                                 : NULL;
    return find_system(chat, plain, arena);
}

const char *ebb_chat_name(const ebb_chat *chat)
{
    return chat->form->name;
}

/* ---- messages ---- */

static void add(ebb_chat_text *to, const char *text)
{
    ebb_text_add(&to->text, text, strlen(text));
}

typedef struct message {
    const char *role, *text;
    size_t size;
} message;

/* Without the blanks around it, as Jinja's trim has them in ASCII. */
static void trim(message *m)
{
    static const char blanks[] = " \t\r\n\f\v";
    while (m->size > 0 && m->text[0] != '\0' && strchr(blanks, m->text[0]) != NULL) {
        m->text++;
        m->size--;
    }
    while (m->size > 0 && m->text[m->size - 1] != '\0' &&
           strchr(blanks, m->text[m->size - 1]) != NULL)
        m->size--;
}

static ebb_status read_message(const ebb_chat_form *f, const json_t *o, message *m)
{
    const json_t *content = json_object_get(o, "content");
    *m = (message){ebb_said_text(o, "role", NULL), json_string_value(content),
                   json_string_length(content)};
    if (m->role == NULL || m->text == NULL)
        return ebb_hint(
            ebb_error(EBB_REJECTED, "a message has no role or no content that is text"),
            "each is {\"role\": \"user\", \"content\": \"...\"}, or of system or assistant");
    if (f->trims)
        trim(m);
    return NULL;
}

static void add_head(const ebb_chat_form *f, const message *m, bool answer, ebb_chat_text *to)
{
    if (f->user[0] != NULL) {
        add(to, answer ? f->answer : f->user[0]);
        return;
    }
    add(to, f->head[0]);
    add(to, answer ? f->assistant : m->role);
    add(to, f->head[1]);
}

static ebb_status add_answer(const ebb_chat_form *f, const message *m, ebb_chat_text *to)
{
    EBB_GOT(ebb_arena_grow(to->text.arena, &to->answers, to->count, &to->capacity,
                           sizeof *to->answers));
    ebb_chat_answer *a = &to->answers[to->count++];
    a->from = to->text.size;
    ebb_text_add(&to->text, m->text, m->size);
    add(to, f->end);
    a->to = to->text.size;
    add(to, f->tail);
    a->unit = to->text.size;
    return NULL;
}

static ebb_status add_message(const ebb_chat_form *f, message *m, const message *joined,
                              ebb_chat_text *to)
{
    const bool answer = strcmp(m->role, "assistant") == 0;
    if (answer && f->trims_answers)
        trim(m);
    add_head(f, m, answer, to);
    if (answer)
        return add_answer(f, m, to);
    if (joined != NULL) {
        ebb_text_add(&to->text, joined->text, joined->size);
        add(to, "\n\n");
    }
    ebb_text_add(&to->text, m->text, m->size);
    if (f->user[0] != NULL) {
        add(to, f->user[1]);
        return NULL;
    }
    add(to, f->end);
    add(to, f->tail);
    return NULL;
}

static ebb_status check_turn(const ebb_chat_form *f, const message *m, size_t turn)
{
    if (!f->in_turns || strcmp(m->role, turn % 2 == 0 ? "user" : "assistant") == 0)
        return NULL;
    return ebb_error(EBB_REJECTED, "the template %s takes user and assistant in turns, not '%s'",
                     f->name, m->role);
}

/* A system message that the form has no place for goes before what the user says first, where the template does so. */
static ebb_status take_system(const ebb_chat *c, const json_t *messages, message *joined,
                              size_t *from)
{
    const json_t *first = json_array_get(messages, 0);
    *from = 0;
    if (c->form->system || strcmp(ebb_said_text(first, "role", ""), "system") != 0)
        return NULL;
    if (!c->joins_system)
        return ebb_error(EBB_REJECTED, "the template %s has no system message", c->form->name);
    *from = 1;
    EBB_TRY(read_message(c->form, first, joined));
    joined->text = json_string_value(json_object_get(first, "content")); // as it is
    joined->size = json_string_length(json_object_get(first, "content"));
    return NULL;
}

ebb_status ebb_chat_write(const ebb_chat *c, const json_t *messages, ebb_chat_text *to)
{
    const ebb_chat_form *f = c->form;
    const char *role = ebb_said_text(json_array_get(messages, 0), "role", "");
    message joined = {0}, m;
    size_t from;
    EBB_TRY(take_system(c, messages, &joined, &from));
    if (c->begins)
        add(to, f->begin);
    if (c->system != NULL && strcmp(role, "system") != 0)
        EBB_TRY(add_message(f, &(message){"system", c->system, strlen(c->system)}, NULL, to));
    for (size_t i = from; i < json_array_size(messages); i++) {
        EBB_TRY(read_message(f, json_array_get(messages, i), &m));
        EBB_TRY(check_turn(f, &m, i - from));
        EBB_TRY(add_message(f, &m, i == from && joined.text != NULL ? &joined : NULL, to));
    }
    if (c->closes)
        add(to, f->close);
    return to->text.full ? ebb_error_memory() : NULL;
}
