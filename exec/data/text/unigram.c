/* unigram.c: a word is cut into the tokens whose scores have the largest sum, by the best way to each place (Viterbi). A
 * character that no token begins with alone counts as the unknown one, 10 below the least score; several of them in a
 * row are one, which becomes the tokens of its bytes where the file says so.
 *
 * Kudo, "Subword regularization: improving neural network translation models with multiple subword candidates", 2018;
 * ties, sums in double and what is fused are as Hugging Face's tokenizers 0.23 has them.
 */
#include "exec/data/text/tokenizer.h"

#include <stdlib.h>

static const double unknown_is_less = 10.0;

typedef struct ebb_piece {
    const char *text;
    size_t size;
    double score;
    int64_t id;
} ebb_piece;

/* ---- reading ---- */

/* By their bytes, of equal ones by their ids: prefixes of a text lie in a row. */
static int by_text(const void *a, const void *b)
{
    const ebb_piece *x = a, *y = b;
    const size_t size = x->size < y->size ? x->size : y->size;
    const int order = size > 0 ? memcmp(x->text, y->text, size) : 0;
    if (order != 0)
        return order;
    if (x->size != y->size)
        return x->size < y->size ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* ["token", score] */
static ebb_status read_piece(ebb_word_model *m, const json_t *o, size_t i, ebb_piece *piece)
{
    const json_t *text = json_array_get(o, 0), *score = json_array_get(o, 1);
    if (!json_is_string(text) || !json_is_number(score) || i > INT32_MAX)
        return ebb_error(EBB_REJECTED, "token %zu of its vocabulary is no text with a score", i);
    *piece = (ebb_piece){json_string_value(text), json_string_length(text),
                         json_number_value(score), (int64_t)i};
    m->least = i == 0 || piece->score < m->least ? piece->score : m->least;
    return json_object_setn_new_nocheck(m->made, piece->text, piece->size,
                                        json_integer((json_int_t)i)) == 0
               ? NULL
               : ebb_error_memory();
}

static ebb_status encode(const ebb_word_model *m, const char *word, size_t size, ebb_arena *arena,
                         ebb_ids *ids);

ebb_status ebb_unigram_read(ebb_word_model *m, const json_t *o, ebb_arena *arena)
{
    const json_t *list = json_object_get(o, "vocab"), *unknown = json_object_get(o, "unk_id");
    const size_t count = json_array_size(list);
    ebb_piece *pieces = EBB_NEW(arena, ebb_piece, count + 1);
    m->made = json_object();
    m->vocabulary = m->made;
    m->encode = encode;
    m->byte_fallback = ebb_said_flag(o, "byte_fallback", false);
    m->unknown_id = json_is_integer(unknown) ? (int64_t)json_integer_value(unknown) : -1;
    EBB_GOT(pieces && m->made);
    if (count == 0)
        return ebb_error(EBB_REJECTED, "its model has no vocabulary");
    if (m->unknown_id >= (int64_t)count)
        return ebb_error(EBB_REJECTED, "its unknown token is not in its vocabulary");
    for (size_t i = 0; i < count; i++)
        EBB_TRY(read_piece(m, json_array_get(list, i), i, &pieces[i]));
    qsort(pieces, count, sizeof *pieces, by_text);
    m->pieces = pieces;
    m->piece_count = count;
    return NULL;
}

/* ---- the best way ---- */

typedef struct place { /* the end of a token on the best way to it */
    double score;
    size_t from;
    int64_t id; /* -1: there is no way yet */
} place;

typedef struct way {
    const ebb_word_model *m;
    const char *word;
    size_t size;
    place *list; /* [size + 1] */
} way;

static void offer(way *w, size_t from, size_t to, double score, int64_t id)
{
    place *p = &w->list[to];
    if (p->id < 0 || score > p->score)
        *p = (place){score, from, id};
}

/* The first piece of [low, high) whose byte `at` is c or more; those shorter come first. */
static size_t first_from(const ebb_piece *list, size_t low, size_t high, size_t at, unsigned c)
{
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (list[middle].size <= at || (uint8_t)list[middle].text[at] < c)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* All tokens that begin at `from`; whether one is its first character alone, of `char_size` bytes. */
static bool offer_tokens(way *w, size_t from, size_t char_size)
{
    const ebb_piece *list = w->m->pieces;
    const double before = w->list[from].score;
    size_t low = 0, high = w->m->piece_count;
    bool single = false;
    for (size_t at = 0; from + at < w->size && low < high; at++) {
        const unsigned c = (uint8_t)w->word[from + at];
        low = first_from(list, low, high, at, c);
        high = first_from(list, low, high, at, c + 1);
        const ebb_piece *last = NULL; // of several of one text the last one
        for (size_t i = low; i < high && list[i].size == at + 1; i++)
            last = &list[i];
        if (last == NULL)
            continue;
        offer(w, from, from + at + 1, last->score + before, last->id);
        single = single || at + 1 == char_size;
    }
    return single;
}

static ebb_status find_way(way *w)
{
    const double unknown = w->m->least - unknown_is_less;
    for (size_t i = 0; i <= w->size; i++)
        w->list[i] = (place){.id = -1};
    for (size_t at = 0, bytes; at < w->size; at += bytes) {
        int32_t c;
        bytes = ebb_char_at(w->word + at, w->size - at, &c);
        if (bytes == 0)
            return ebb_error(EBB_REJECTED, "it is not UTF-8");
        if (offer_tokens(w, at, bytes))
            continue;
        if (w->m->unknown_id < 0)
            return ebb_error(EBB_REJECTED, "a character is no token, and there is no unknown one");
        offer(w, at, at + bytes, unknown + w->list[at].score, w->m->unknown_id);
    }
    return NULL;
}

/* The ids of a token, or of what is none. */
static ebb_status put(const ebb_word_model *m, const char *text, size_t size, ebb_ids *ids)
{
    const int64_t id = ebb_word_id(m, text, size);
    if (id >= 0 || !m->byte_fallback || !ebb_has_byte_ids(m, text, size))
        return ebb_ids_add(ids, id >= 0 ? id : m->unknown_id);
    for (size_t i = 0; i < size; i++)
        EBB_TRY(ebb_ids_add(ids, ebb_byte_id(m, (uint8_t)text[i])));
    return NULL;
}

static ebb_status encode(const ebb_word_model *m, const char *word, size_t size, ebb_arena *arena,
                         ebb_ids *ids)
{
    way w = {m, word, size, EBB_NEW(arena, place, size + 1)};
    size_t *ends = EBB_NEW(arena, size_t, size + 1); // last first
    size_t count = 0;
    EBB_GOT(w.list && ends);
    EBB_TRY(find_way(&w));
    for (size_t end = size; end > 0; end = w.list[end].from) {
        const bool unknown = w.list[end].id == m->unknown_id;
        const bool follows = count > 0 && w.list[ends[count - 1]].id == m->unknown_id;
        if (!(unknown && follows)) // else it is one with the unknown one behind it
            ends[count++] = end;
    }
    for (size_t from = 0; count-- > 0; from = ends[count])
        EBB_TRY(put(m, word + from, ends[count] - from, ids));
    return NULL;
}
