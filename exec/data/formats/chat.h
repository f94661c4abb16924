/* chat.h: messages as a model's chat template writes them, in the few forms that chat.c knows. */
#pragma once

#include "exec/data/text/tokenizer.h"

typedef struct ebb_chat {
    const struct ebb_chat_form *form; /* NULL: none fits */
    const char *system;               /* what stands for a system message; NULL: nothing does */
    const char *omitted; /* what its template writes and this does not; NULL: nothing */
    bool has_template, begins, closes, joins_system;
} ebb_chat;

/* The form of the tokenizer's template; where it has none, the first whose tokens it has. */
ebb_status ebb_chat_find(ebb_chat *chat, const ebb_tokenizer *t, ebb_arena *arena);
const char *ebb_chat_name(const ebb_chat *chat);

/* What the assistant says: bytes [from, to) of the text, its end among them; up to `unit` nothing is said. */
typedef struct ebb_chat_answer {
    size_t from, to, unit;
} ebb_chat_answer;

typedef struct ebb_chat_text {
    ebb_text text;
    ebb_chat_answer *answers;
    size_t count, capacity;
} ebb_chat_text;

/* messages: [{"role": ..., "content": ...}]. `to` is empty; its memory is its text's arena's. */
ebb_status ebb_chat_write(const ebb_chat *chat, const json_t *messages, ebb_chat_text *to);
