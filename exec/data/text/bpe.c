/* bpe.c: byte pair encoding. A word is its characters; of all pairs that the file knows how to join, the one that
 * was learned first is joined, the leftmost of several, until there is none. A character that is no token becomes
 * the tokens of its bytes, where the file says so, or the unknown one.
 *
 * Sennrich et al., "Neural machine translation of rare words with subword units", 2016.
 */
#include "exec/data/text/tokenizer.h"

#include <stdlib.h>

typedef struct ebb_merge {
    int32_t left, right, rank, id; /* id: what they become */
} ebb_merge;

/* ---- reading ---- */

static int by_pair(const void *a, const void *b)
{
    const ebb_merge *x = a, *y = b;
    if (x->left != y->left)
        return x->left < y->left ? -1 : 1;
    if (x->right != y->right)
        return x->right < y->right ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* "a b", or ["a", "b"]. */
static bool read_pair(const json_t *o, const char *text[2], size_t size[2])
{
    if (json_is_array(o) && json_array_size(o) == 2) {
        for (size_t k = 0; k < 2; k++) {
            text[k] = json_string_value(json_array_get(o, k));
            size[k] = json_string_length(json_array_get(o, k));
        }
        return text[0] != NULL && text[1] != NULL;
    }
    const char *all = json_string_value(o), *space = all != NULL ? strchr(all, ' ') : NULL;
    if (space == NULL)
        return false;
    text[0] = all;
    size[0] = (size_t)(space - all);
    text[1] = space + 1;
    size[1] = json_string_length(o) - size[0] - 1;
    return true;
}

static ebb_status read_merge(const ebb_word_model *m, const json_t *o, size_t rank,
                             ebb_merge *merge, ebb_arena *arena)
{
    const char *text[2];
    size_t size[2];
    if (!read_pair(o, text, size))
        return ebb_error(EBB_REJECTED, "merge %zu of its BPE is no pair", rank);
    const size_t skip = m->prefix != NULL ? strlen(m->prefix) : 0;
    ebb_text both = {.arena = arena};
    ebb_text_add(&both, text[0], size[0]);
    if (size[1] >= skip)
        ebb_text_add(&both, text[1] + skip, size[1] - skip);
    EBB_GOT(!both.full);
    const int64_t a = ebb_word_id(m, text[0], size[0]), b = ebb_word_id(m, text[1], size[1]),
                  made = ebb_word_id(m, both.data, both.size);
    ebb_arena_drop(arena, both.data);
    if (a < 0 || b < 0 || made < 0)
        return ebb_error(EBB_REJECTED, "merge %zu of its BPE, \"%.*s %.*s\", is of no tokens", rank,
                         (int)size[0], text[0], (int)size[1], text[1]);
    *merge = (ebb_merge){(int32_t)a, (int32_t)b, (int32_t)rank, (int32_t)made};
    return NULL;
}

static ebb_status encode(const ebb_word_model *m, const char *word, size_t size, ebb_arena *arena,
                         ebb_ids *ids);

ebb_status ebb_bpe_read(ebb_word_model *m, const json_t *o, ebb_arena *arena)
{
    const json_t *list = json_object_get(o, "merges");
    const size_t count = json_array_size(list);
    EBB_LOCAL_ARENA(scratch);
    m->encode = encode;
    m->unknown = ebb_said_text(o, "unk_token", NULL);
    m->prefix = ebb_said_text(o, "continuing_subword_prefix", NULL);
    m->suffix = ebb_said_text(o, "end_of_word_suffix", NULL);
    m->fuses_unknown = ebb_said_flag(o, "fuse_unk", false);
    m->byte_fallback = ebb_said_flag(o, "byte_fallback", false);
    m->whole_words = ebb_said_flag(o, "ignore_merges", false);
    if (json_number_value(json_object_get(o, "dropout")) > 0)
        return ebb_error(EBB_UNSUPPORTED,
                         "its BPE drops merges at random, which is not computed here");
    ebb_merge *merges = EBB_NEW(arena, ebb_merge, count + 1);
    EBB_GOT(merges);
    for (size_t i = 0; i < count && count < INT32_MAX; i++)
        EBB_TRY(read_merge(m, json_array_get(list, i), i, &merges[i], scratch));
    qsort(merges, count, sizeof *merges, by_pair);
    m->merges = merges;
    m->merge_count = count;
    return NULL;
}

/* NULL: these two are not joined. */
static const ebb_merge *merge_of(const ebb_word_model *m, int32_t left, int32_t right)
{
    size_t low = 0, high = m->merge_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const ebb_merge *x = &m->merges[middle];
        if (x->left < left || (x->left == left && x->right < right))
            low = middle + 1;
        else
            high = middle;
    }
    const ebb_merge *x = &m->merges[low];
    return low < m->merge_count && x->left == left && x->right == right ? x : NULL;
}

/* ---- characters ---- */

typedef struct symbol { /* of a word; joined ones are of no token */
    int32_t id, before, behind;
} symbol;

typedef struct word {
    const ebb_word_model *m;
    ebb_arena *arena;
    symbol *list;
    size_t count, capacity;
    bool unknown; /* the last one is the unknown token */
} word;

static ebb_status add(word *w, int64_t id)
{
    EBB_GOT(ebb_arena_grow(w->arena, &w->list, w->count, &w->capacity, sizeof *w->list));
    const int32_t at = (int32_t)w->count;
    w->list[w->count++] = (symbol){(int32_t)id, at - 1, at + 1};
    return NULL;
}

/* The token of a character, with the marks of its place in the word. */
static int64_t id_of(const word *w, const char *text, size_t size, bool first, bool last)
{
    ebb_text t = {.arena = w->arena};
    if ((first || w->m->prefix == NULL) && (!last || w->m->suffix == NULL))
        return ebb_word_id(w->m, text, size);
    if (!first && w->m->prefix != NULL)
        ebb_text_add(&t, w->m->prefix, strlen(w->m->prefix));
    ebb_text_add(&t, text, size);
    if (last && w->m->suffix != NULL)
        ebb_text_add(&t, w->m->suffix, strlen(w->m->suffix));
    return t.full ? -1 : ebb_word_id(w->m, t.data, t.size);
}

static ebb_status add_char(word *w, const char *text, size_t size, bool first, bool last)
{
    const int64_t id = id_of(w, text, size, first, last);
    const bool follows = w->unknown;
    w->unknown = false;
    if (id >= 0)
        return add(w, id);
    const bool bytes = w->m->byte_fallback && ebb_has_byte_ids(w->m, text, size);
    for (size_t i = 0; bytes && i < size; i++)
        EBB_TRY(add(w, ebb_byte_id(w->m, (uint8_t)text[i])));
    if (bytes || w->m->unknown == NULL)
        return NULL;
    const int64_t unknown = ebb_word_id(w->m, w->m->unknown, strlen(w->m->unknown));
    if (unknown < 0)
        return ebb_error(EBB_REJECTED, "its unknown token '%s' is none", w->m->unknown);
    w->unknown = true;
    return follows && w->m->fuses_unknown ? NULL : add(w, unknown);
}

/* ---- joining ---- */

typedef struct queued { /* a pair that may be joined */
    int32_t rank, at, id, right;
} queued;

typedef struct queue { /* a heap: the least rank, then the leftmost, is on top */
    ebb_arena *arena;
    queued *list;
    size_t count, capacity;
} queue;

static bool is_before(const queued *a, const queued *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static ebb_status push(queue *q, const queued *x)
{
    EBB_GOT(ebb_arena_grow(q->arena, &q->list, q->count, &q->capacity, sizeof *q->list));
    size_t i = q->count++;
    for (; i > 0 && is_before(x, &q->list[(i - 1) / 2]); i = (i - 1) / 2)
        q->list[i] = q->list[(i - 1) / 2];
    q->list[i] = *x;
    return NULL;
}

static queued pop(queue *q)
{
    const queued top = q->list[0], last = q->list[--q->count];
    size_t i = 0;
    for (size_t next; (next = 2 * i + 1) < q->count; i = next) {
        if (next + 1 < q->count && is_before(&q->list[next + 1], &q->list[next]))
            next++;
        if (!is_before(&q->list[next], &last))
            break;
        q->list[i] = q->list[next];
    }
    q->list[i] = last;
    return top;
}

static ebb_status consider(queue *q, const word *w, int32_t at)
{
    const int32_t behind = at >= 0 ? w->list[at].behind : -1;
    if (at < 0 || behind >= (int32_t)w->count)
        return NULL;
    const ebb_merge *x = merge_of(w->m, w->list[at].id, w->list[behind].id);
    return x != NULL ? push(q, &(queued){x->rank, at, x->id, behind}) : NULL;
}

static ebb_status join_all(word *w)
{
    queue q = {.arena = w->arena};
    for (size_t i = 0; i < w->count; i++)
        EBB_TRY(consider(&q, w, (int32_t)i));
    while (q.count > 0) {
        const queued x = pop(&q);
        symbol *left = &w->list[x.at], *right = &w->list[x.right];
        const ebb_merge *still =
            left->id >= 0 && left->behind == x.right ? merge_of(w->m, left->id, right->id) : NULL;
        if (still == NULL || still->id != x.id) // one of the two was joined meanwhile
            continue;
        left->id = x.id;
        left->behind = right->behind;
        right->id = -1;
        if (left->behind < (int32_t)w->count)
            w->list[left->behind].before = x.at;
        EBB_TRY(consider(&q, w, left->before));
        EBB_TRY(consider(&q, w, x.at));
    }
    return NULL;
}

static ebb_status encode(const ebb_word_model *m, const char *text, size_t size, ebb_arena *arena,
                         ebb_ids *ids)
{
    word w = {.m = m, .arena = arena};
    const int64_t whole = m->whole_words ? ebb_word_id(m, text, size) : -1;
    if (whole >= 0)
        return ebb_ids_add(ids, whole);
    for (size_t at = 0, bytes; at < size; at += bytes) {
        int32_t c;
        bytes = ebb_char_at(text + at, size - at, &c);
        if (bytes == 0)
            return ebb_error(EBB_REJECTED, "it is not UTF-8");
        EBB_TRY(add_char(&w, text + at, bytes, at == 0, at + bytes == size));
    }
    EBB_TRY(join_all(&w));
    for (size_t i = 0; i < w.count; i++)
        if (w.list[i].id >= 0)
            EBB_TRY(ebb_ids_add(ids, w.list[i].id));
    return NULL;
}
