/* wordpiece.c: a word is the longest token that it begins with, then the longest that goes on, and so forth; the
 * unknown one where there is none. And words that are tokens whole.
 */
#include "exec/data/text/tokenizer.h"

static ebb_status add_unknown(const ebb_word_model *m, ebb_ids *ids)
{
    const int64_t id = m->unknown != NULL ? ebb_word_id(m, m->unknown, strlen(m->unknown)) : -1;
    return id >= 0 ? ebb_ids_add(ids, id)
                   : ebb_error(EBB_REJECTED, "a word is no token, and its unknown token is none");
}

/* The end of the longest token from `from` on; `from`: there is none. */
static size_t longest(const ebb_word_model *m, const char *word, size_t size, size_t from,
                      ebb_arena *arena, int64_t *id)
{
    for (size_t to = size; to > from; to--) {
        ebb_text t = {.arena = arena};
        if (to < size && ((uint8_t)word[to] & 0xC0) == 0x80) // within a character
            continue;
        if (from > 0)
            ebb_text_add(&t, m->prefix, strlen(m->prefix));
        ebb_text_add(&t, word + from, to - from);
        *id = t.full ? -1 : ebb_word_id(m, t.data, t.size);
        ebb_arena_drop(arena, t.data);
        if (*id >= 0)
            return to;
    }
    return from;
}

static ebb_status encode(const ebb_word_model *m, const char *word, size_t size, ebb_arena *arena,
                         ebb_ids *ids)
{
    const size_t before = ids->count;
    int64_t chars = 0, id;
    for (size_t i = 0; i < size; i++)
        chars += ((uint8_t)word[i] & 0xC0) != 0x80;
    if (chars > m->longest)
        return add_unknown(m, ids);
    for (size_t from = 0, to; from < size; from = to) {
        to = longest(m, word, size, from, arena, &id);
        if (to == from) {
            ids->count = before;
            return add_unknown(m, ids);
        }
        EBB_TRY(ebb_ids_add(ids, id));
    }
    return NULL;
}

static ebb_status encode_whole(const ebb_word_model *m, const char *word, size_t size,
                               ebb_arena *arena, ebb_ids *ids)
{
    const int64_t id = ebb_word_id(m, word, size);
    (void)arena;
    return id >= 0 ? ebb_ids_add(ids, id) : add_unknown(m, ids);
}

ebb_status ebb_wordpiece_read(ebb_word_model *m, const json_t *o)
{
    const json_t *most = json_object_get(o, "max_input_chars_per_word");
    m->encode = strcmp(m->kind, "WordLevel") == 0 ? encode_whole : encode;
    m->unknown = ebb_said_text(o, "unk_token", NULL);
    m->prefix = ebb_said_text(o, "continuing_subword_prefix", "##");
    m->longest = json_is_integer(most) ? (int64_t)json_integer_value(most) : 100;
    return NULL;
}
