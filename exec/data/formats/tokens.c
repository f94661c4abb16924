/* tokens.c: texts that are token ids already become rows of one length, with the next token as target.
 *
 *     stream   t t t t t t t t t t           cut every N tokens; a target may lie in the next row
 *     texts    a a a | b b b b b | c c       by `lengths`, or rows that are filled up on the right
 *     padded   a a a . .   b b b b b   c c . . .        one text a row, a longer one in several
 *     packed   a a a c c   b b b b b         and segment_ids 1 1 1 2 2, so that none sees another
 *
 * Arrays that come out: input_ids, target, attention_mask, position_ids (from 0 in each text), and
 * segment_ids where texts are packed (from 1; 0 is filling). A target is the label of the next token of the
 * same text: -100 where `labels` say so, where `loss_mask` is 0, and behind the last.
 */
#include "exec/data/data.h"
#include "exec/data/formats/formats.h"

#include <string.h>

#include "ebb.h"

enum { IGNORED = -100, OPEN_ROWS = 256, LONGEST = 1 << 24 };

typedef struct text {
    int64_t from, length; /* tokens of the whole */
} text;

typedef struct piece {
    int64_t from, length, end; /* of tokens; where its text ends */
    int64_t row, at;
} piece;

typedef struct corpus {
    const ebb_data *data;
    ebb_arena *arena;
    int64_t count, width; /* tokens; of a row of a matrix, or 0 */
    int32_t *ids, *labels;
    text *texts;
    piece *pieces;
    size_t text_count, piece_count;
    int64_t rows, sequence;
} corpus;

/* ---- what the files have ---- */

static ebb_status wrong(const corpus *c, const ebb_named *t, const char *what)
{
    return ebb_error(EBB_USAGE, "%s: array '%s' %s", c->data->path, t->name, what);
}

/* All elements of an array of whole numbers. */
static ebb_status numbers(corpus *c, const ebb_named *t, int64_t **list, int64_t *count)
{
    const ebb_type type = ebb_type_tensor((ebb_dtype)t->dtype, t->rank, t->dims);
    size_t bytes;
    int64_t all;
    if (!ebb_dtype_is_integer((ebb_dtype)t->dtype) && t->dtype != EBB_BOOL)
        return wrong(c, t, "should hold whole numbers");
    if (ebb_dtype_bits((ebb_dtype)t->dtype) < 8 || t->rank < 1 || !ebb_type_bytes(&type, &bytes) ||
        !ebb_type_elements(&type, &all))
        return wrong(c, t, "has no rows");
    void *raw = ebb_arena_alloc(c->arena, bytes + 1);
    *list = EBB_NEW(c->arena, int64_t, (size_t)all + 1);
    EBB_GOT(raw && *list);
    EBB_TRY(ebb_data_read(c->data, t, 0, (size_t)t->dims[0], raw));
    const ebb_tensor tensor = {.type = type, .data = raw, .bytes = bytes};
    for (int64_t i = 0; i < all; i++)
        (*list)[i] = ebb_tensor_int(&tensor, i);
    *count = all;
    return NULL;
}

static const ebb_named *tokens_of(const ebb_data *data)
{
    static const char *const names[] = {"input_ids", "tokens", "ids"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (ebb_data_find(data, names[i]) != NULL)
            return ebb_data_find(data, names[i]);
    return data->count == 1 ? &data->list[0] : NULL;
}

static bool is_shaped_as(const ebb_named *a, const ebb_named *b)
{
    bool same = a->rank == b->rank;
    for (int d = 0; same && d < a->rank; d++)
        same = a->dims[d] == b->dims[d];
    return same;
}

/* What each token is to be learned as: itself, or what labels or a mask say. */
static ebb_status read_labels(corpus *c, const ebb_named *tokens)
{
    const ebb_named *given = ebb_data_find(c->data, "labels"),
                    *mask = ebb_data_find(c->data, "loss_mask"), *t = given != NULL ? given : mask;
    int64_t *list = NULL, count;
    if (t != NULL && !is_shaped_as(t, tokens))
        return wrong(c, t, "should have a number for each token");
    if (t != NULL)
        EBB_TRY(numbers(c, t, &list, &count));
    c->labels = EBB_NEW(c->arena, int32_t, (size_t)c->count + 1);
    EBB_GOT(c->labels);
    for (int64_t i = 0; i < c->count; i++) {
        const int64_t x = given != NULL  ? list[i]
                          : mask == NULL ? c->ids[i]
                          : list[i] != 0 ? c->ids[i]
                                         : IGNORED;
        if (x != IGNORED && (x < 0 || x > INT32_MAX))
            return wrong(c, t, "has a label that is no token");
        c->labels[i] = (int32_t)x;
    }
    return NULL;
}

static ebb_status read_tokens(corpus *c)
{
    const ebb_named *t = tokens_of(c->data);
    int64_t *list;
    if (t == NULL)
        return ebb_error(EBB_USAGE, "%s: which array holds tokens? Call it input_ids or tokens",
                         c->data->path);
    if (t->rank != 1 && t->rank != 2)
        return wrong(c, t, "should be one stream of tokens, or have a text in each row");
    EBB_TRY(numbers(c, t, &list, &c->count));
    c->width = t->rank == 2 ? t->dims[1] : 0;
    c->ids = EBB_NEW(c->arena, int32_t, (size_t)c->count + 1);
    EBB_GOT(c->ids);
    for (int64_t i = 0; i < c->count; i++) {
        if (list[i] < 0 || list[i] > INT32_MAX)
            return ebb_error(EBB_USAGE, "%s: array '%s' has %lld at %lld, which is no token",
                             c->data->path, t->name, (long long)list[i], (long long)i);
        c->ids[i] = (int32_t)list[i];
    }
    return read_labels(c, t);
}

/* ---- texts ---- */

/* A mask of ones and then zeros is a length. */
static ebb_status length_of(const corpus *c, const ebb_named *mask, const int64_t *row,
                            int64_t *length)
{
    *length = 0;
    while (*length < c->width && row[*length] != 0)
        ++*length;
    for (int64_t i = *length; i < c->width; i++)
        if (row[i] != 0)
            return wrong(c, mask, "has a row that is not filled up on the right");
    return NULL;
}

static ebb_status find_texts(corpus *c)
{
    const ebb_named *lengths = ebb_data_find(c->data, "lengths"),
                    *mask = ebb_data_find(c->data, "attention_mask");
    int64_t *list = NULL, count = 0, at = 0;
    if (lengths != NULL)
        EBB_TRY(numbers(c, lengths, &list, &count));
    else if (mask != NULL && c->width > 0)
        EBB_TRY(numbers(c, mask, &list, &count));
    const int64_t rows = c->width > 0 ? c->count / c->width : 0;
    if (lengths != NULL && c->width > 0 && count != rows)
        return wrong(c, lengths, "should have a length for each row");
    if (lengths == NULL && list != NULL && count != c->count)
        return wrong(c, mask, "should have a number for each token");
    const int64_t all = c->width > 0 ? rows : list != NULL ? count : 1;
    c->texts = EBB_NEW(c->arena, text, (size_t)all + 1);
    EBB_GOT(c->texts);
    for (int64_t i = 0; i < all; i++) {
        text *t = &c->texts[c->text_count];
        const int64_t room = c->width > 0 ? c->width : c->count - at;
        *t = (text){c->width > 0 ? i * c->width : at, room};
        if (lengths != NULL)
            t->length = list[i];
        else if (list != NULL)
            EBB_TRY(length_of(c, mask, list + i * c->width, &t->length));
        if (t->length < 0 || t->length > room)
            return wrong(c, lengths, "has a length that the tokens do not have");
        at += t->length;
        c->text_count += t->length > 0;
    }
    return NULL;
}

/* ---- rows ---- */

static bool has_target(const corpus *c, const piece *p)
{
    for (int64_t i = p->from; i < p->from + p->length; i++)
        if (i + 1 < p->end && c->labels[i + 1] != IGNORED)
            return true;
    return false;
}

/* Pieces of which nothing is learned take no row. */
static ebb_status cut(corpus *c)
{
    size_t most = c->text_count + (size_t)(c->count / c->sequence) + 1;
    c->pieces = EBB_NEW(c->arena, piece, most);
    EBB_GOT(c->pieces);
    for (size_t i = 0; i < c->text_count; i++) {
        const int64_t end = c->texts[i].from + c->texts[i].length;
        for (int64_t from = c->texts[i].from; from < end; from += c->sequence) {
            const int64_t length = end - from < c->sequence ? end - from : c->sequence;
            const piece p = {.from = from, .length = length, .end = end};
            if (has_target(c, &p))
                c->pieces[c->piece_count++] = p;
        }
    }
    return NULL;
}

/* The first of the last rows that has room; in the order of the texts, so that it is always the same. */
static ebb_status place(corpus *c, bool pack)
{
    int64_t *filled = EBB_NEW(c->arena, int64_t, c->piece_count + 1);
    EBB_GOT(filled);
    for (size_t i = 0; i < c->piece_count; i++) {
        piece *p = &c->pieces[i];
        int64_t row = !pack ? c->rows : c->rows > OPEN_ROWS ? c->rows - OPEN_ROWS : 0;
        while (row < c->rows && filled[row] + p->length > c->sequence)
            row++;
        if (row == c->rows)
            filled[c->rows++] = 0;
        p->row = row;
        p->at = filled[row];
        filled[row] += p->length;
    }
    return NULL;
}

enum { IDS, TARGET, MASK, POSITION, SEGMENT, ARRAYS };

static ebb_status fill(const corpus *c, int32_t *const array[ARRAYS])
{
    const int64_t all = c->rows * c->sequence;
    int32_t *segments = array[SEGMENT];
    for (int k = 0; k < ARRAYS; k++)
        for (int64_t i = 0; array[k] != NULL && i < all; i++)
            array[k][i] = k == TARGET ? IGNORED : 0;
    for (size_t i = 0; i < c->piece_count; i++) {
        const piece *p = &c->pieces[i];
        const int64_t to = p->row * c->sequence + p->at;
        const int32_t segment = segments == NULL || p->at == 0 ? 1 : segments[to - 1] + 1;
        for (int64_t k = 0; k < p->length; k++) {
            const int64_t from = p->from + k;
            array[IDS][to + k] = c->ids[from];
            array[TARGET][to + k] = from + 1 < p->end ? c->labels[from + 1] : IGNORED;
            array[MASK][to + k] = 1;
            array[POSITION][to + k] = (int32_t)k;
            if (segments != NULL)
                segments[to + k] = segment;
        }
    }
    return NULL;
}

/* Of several texts: one stream is cut because it is one. */
static ebb_status tell_longer(ebb_data *to, const corpus *c)
{
    int64_t longest = 0;
    size_t longer = 0;
    for (size_t i = 0; i < c->text_count && c->text_count > 1; i++) {
        const int64_t length = c->texts[i].length;
        longer += length > c->sequence;
        longest = length > longest ? length : longest;
    }
    if (longer == 0)
        return NULL;
    return ebb_data_add_note(
        to,
        "%s: %zu of %zu texts are longer than a row and go on in another, where "
        "what is before is not seen; --sequence %lld takes the longest",
        to->path, longer, c->text_count, (long long)longest);
}

static ebb_status put(ebb_data *to, const corpus *c, bool pack)
{
    static const char *const names[ARRAYS] = {"input_ids", "target", "attention_mask",
                                              "position_ids", "segment_ids"};
    const int64_t dims[2] = {c->rows, c->sequence};
    int32_t *array[ARRAYS] = {NULL};
    size_t count, bytes;
    EBB_GOT(ebb_size_mul(&count, (size_t)c->rows, (size_t)c->sequence) &&
            ebb_size_mul(&bytes, count, sizeof(int32_t)));
    for (int k = 0; k < ARRAYS - !pack; k++)
        EBB_GOT((array[k] = ebb_arena_alloc(&to->arena, bytes + 1)) != NULL);
    EBB_TRY(fill(c, array));
    for (int k = 0; k < ARRAYS; k++)
        if (array[k] != NULL)
            EBB_TRY(
                ebb_data_add(to, names[k], strlen(names[k]), EBB_I32, 2, dims, array[k], bytes));
    EBB_TRY(tell_longer(to, c));
    int64_t used = 0, learned = 0;
    for (size_t i = 0; i < count; i++) {
        used += array[MASK][i];
        learned += array[TARGET][i] != IGNORED;
    }
    return ebb_data_add_note(to,
                             "%s: %zu texts in %lld rows of %lld tokens, %.1f %% filled; %lld "
                             "tokens are to be predicted",
                             to->path, c->text_count, (long long)c->rows, (long long)c->sequence,
                             100.0 * (double)used / (double)count, (long long)learned);
}

static ebb_status make(ebb_data *to, corpus *c, bool pack)
{
    EBB_TRY(read_tokens(c));
    EBB_TRY(find_texts(c));
    EBB_TRY(cut(c));
    if (c->piece_count == 0)
        return ebb_hint(
            ebb_error(EBB_USAGE, "%s: no token of it is to be predicted", c->data->path),
            "completions, what assistants say, and tokens whose label is not -100 are; and no "
            "text's "
            "first one");
    EBB_TRY(place(c, pack));
    return put(to, c, pack);
}

ebb_status ebb_tokens_read(ebb_data *to, const ebb_data *from, int64_t sequence, bool pack)
{
    EBB_LOCAL_ARENA(arena);
    corpus c = {.data = from, .sequence = sequence, .arena = arena};
    if (sequence > LONGEST)
        return ebb_error(EBB_USAGE, "a row of %lld tokens is too long", (long long)sequence);
    return make(to, &c, pack);
}
