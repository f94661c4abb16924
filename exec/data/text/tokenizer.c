/* tokenizer.c: reads a tokenizer.json; tokens that were added to a text are taken out of it as they are, the rest
 * goes through its normalizer, is cut, and becomes ids word by word.
 */
#include "exec/data/text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct added { /* a token that is found in text before anything else */
    const char *text;
    size_t size;
    int64_t id;
    bool normalized, left, right; /* it takes the blanks on its left, on its right */
} added;

struct ebb_tokenizer {
    ebb_arena arena;
    json_t *root, *config; /* config: tokenizer_config.json, or NULL */
    json_t *chat;          /* a text: chat_template.jinja, or NULL */
    ebb_normalizer normalizer;
    ebb_splitter splitter;
    ebb_word_model model;
    added *added;
    size_t added_count;
    ebb_ids before, behind; /* its template's */
};

const char *ebb_said_text(const json_t *o, const char *key, const char *otherwise)
{
    const char *text = json_string_value(json_object_get(o, key));
    return text != NULL ? text : otherwise;
}

bool ebb_said_flag(const json_t *o, const char *key, bool otherwise)
{
    const json_t *flag = json_object_get(o, key);
    return json_is_boolean(flag) ? json_is_true(flag) : otherwise;
}

ebb_status ebb_ids_add(ebb_ids *ids, int64_t id)
{
    EBB_GOT(ebb_arena_grow(ids->arena, &ids->list, ids->count, &ids->capacity, sizeof *ids->list));
    ids->list[ids->count++] = (int32_t)id;
    return NULL;
}

int64_t ebb_word_id(const ebb_word_model *m, const char *token, size_t size)
{
    const json_t *id = json_object_getn(m->vocabulary, token, size);
    const int64_t i = json_is_integer(id) ? (int64_t)json_integer_value(id) : -1;
    return i >= 0 && i <= INT32_MAX ? i : -1;
}

int64_t ebb_byte_id(const ebb_word_model *m, uint8_t byte)
{
    char name[8];
    (void)snprintf(name, sizeof name, "<0x%02X>", (unsigned)byte);
    return ebb_word_id(m, name, strlen(name));
}

bool ebb_has_byte_ids(const ebb_word_model *m, const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (ebb_byte_id(m, (uint8_t)text[i]) < 0)
            return false;
    return true;
}

/* ---- reading ---- */

static ebb_status read_model(ebb_tokenizer *t)
{
    const json_t *o = json_object_get(t->root, "model"), *vocabulary = json_object_get(o, "vocab");
    const bool pairs = json_array_size(json_object_get(o, "merges")) > 0;
    t->model.kind = ebb_said_text(o, "type", pairs ? "BPE" : "none");
    t->model.vocabulary = vocabulary;
    const bool words =
        strcmp(t->model.kind, "WordPiece") == 0 || strcmp(t->model.kind, "WordLevel") == 0;
    if (strcmp(t->model.kind, "Unigram") == 0)
        return ebb_unigram_read(&t->model, o, &t->arena);
    if (strcmp(t->model.kind, "BPE") != 0 && !words)
        return ebb_error(EBB_UNSUPPORTED,
                         "its model is %s; BPE, Unigram, WordPiece and WordLevel are computed here",
                         t->model.kind);
    if (!json_is_object(vocabulary))
        return ebb_error(EBB_REJECTED, "its model has no vocabulary");
    return words ? ebb_wordpiece_read(&t->model, o) : ebb_bpe_read(&t->model, o, &t->arena);
}

static ebb_status read_added(ebb_tokenizer *t)
{
    const json_t *list = json_object_get(t->root, "added_tokens");
    const size_t count = json_array_size(list);
    t->added = EBB_NEW(&t->arena, added, count + 1);
    EBB_GOT(t->added);
    for (size_t i = 0; i < count; i++) {
        const json_t *o = json_array_get(list, i);
        added *a = &t->added[t->added_count];
        *a = (added){.text = ebb_said_text(o, "content", ""),
                     .id = (int64_t)json_integer_value(json_object_get(o, "id")),
                     .normalized = ebb_said_flag(o, "normalized", false),
                     .left = ebb_said_flag(o, "lstrip", false),
                     .right = ebb_said_flag(o, "rstrip", false)};
        a->size = strlen(a->text);
        if (ebb_said_flag(o, "single_word", false))
            return ebb_error(EBB_UNSUPPORTED,
                             "its token '%s' is one for single words, which is not computed here",
                             a->text);
        if (a->id < 0 || a->id > INT32_MAX)
            return ebb_error(EBB_REJECTED, "its token '%s' has no id", a->text);
        if (a->normalized)
            EBB_TRY(ebb_normalize(&t->normalizer, a->text, a->size, &t->arena, &a->text, &a->size));
        t->added_count += a->size > 0;
    }
    return NULL;
}

/* The ids of a special token of the template. */
static ebb_status add_special(ebb_ids *ids, const json_t *root, const char *name)
{
    const json_t *list =
        json_object_get(json_object_get(json_object_get(root, "special_tokens"), name), "ids");
    if (json_array_size(list) == 0)
        return ebb_error(EBB_REJECTED, "its template names the token '%s', which it does not have",
                         name);
    for (size_t i = 0; i < json_array_size(list); i++)
        EBB_TRY(ebb_ids_add(ids, (int64_t)json_integer_value(json_array_get(list, i))));
    return NULL;
}

static ebb_status read_template(ebb_tokenizer *t, const json_t *o)
{
    const json_t *single = json_object_get(o, "single");
    ebb_ids *at = &t->before;
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *part = json_array_get(single, i),
                     *special = json_object_get(part, "SpecialToken");
        if (special == NULL)
            at = &t->behind;
        else
            EBB_TRY(add_special(at, o, ebb_said_text(special, "id", "")));
    }
    return NULL;
}

/* ["[SEP]", 102] */
static ebb_status add_pair(ebb_ids *ids, const json_t *pair)
{
    return ebb_ids_add(ids, (int64_t)json_integer_value(json_array_get(pair, 1)));
}

static ebb_status read_processor(ebb_tokenizer *t, const json_t *o)
{
    const char *kind = ebb_said_text(o, "type", "");
    const json_t *parts = json_object_get(o, "processors");
    if (o == NULL || json_is_null(o) || strcmp(kind, "ByteLevel") == 0)
        return NULL;
    if (strcmp(kind, "TemplateProcessing") == 0)
        return read_template(t, o);
    if (strcmp(kind, "BertProcessing") == 0 || strcmp(kind, "RobertaProcessing") == 0) {
        EBB_TRY(add_pair(&t->before, json_object_get(o, "cls")));
        return add_pair(&t->behind, json_object_get(o, "sep"));
    }
    if (strcmp(kind, "Sequence") != 0)
        return ebb_error(EBB_UNSUPPORTED, "its post-processor %s is none of those computed here",
                         kind);
    for (size_t i = 0; i < json_array_size(parts); i++)
        EBB_TRY(read_processor(t, json_array_get(parts, i)));
    return NULL;
}

static ebb_status read_all(ebb_tokenizer *t)
{
    EBB_TRY(ebb_normalizer_read(&t->normalizer, json_object_get(t->root, "normalizer"), &t->arena));
    EBB_TRY(ebb_splitter_read(&t->splitter, json_object_get(t->root, "pre_tokenizer"), &t->arena));
    EBB_TRY(read_model(t));
    EBB_TRY(read_added(t));
    return read_processor(t, json_object_get(t->root, "post_processor"));
}

/* The file of that name beside it; NULL: there is none. */
static FILE *open_beside(const char *path, const char *name)
{
    char beside[4096];
    const char *slash = strrchr(path, '/');
    const int length = snprintf(beside, sizeof beside, "%.*s%s",
                                slash != NULL ? (int)(slash - path + 1) : 0, path, name);
    return length > 0 && (size_t)length < sizeof beside ? fopen(beside, "rb") : NULL;
}

static json_t *config_beside(const char *path)
{
    FILE *f = open_beside(path, "tokenizer_config.json");
    json_t *o = f != NULL ? json_loadf(f, JSON_ALLOW_NUL, NULL) : NULL;
    if (f != NULL)
        (void)fclose(f);
    return o;
}

/* As a JSON string: NULL where it is no UTF-8. */
static json_t *chat_beside(const char *path)
{
    enum { LONGEST = 1 << 20 };
    FILE *f = open_beside(path, "chat_template.jinja");
    char *text = f != NULL ? malloc(LONGEST) : NULL;
    const size_t size = text != NULL ? fread(text, 1, LONGEST, f) : 0;
    json_t *o = size > 0 && size < LONGEST ? json_stringn(text, size) : NULL;
    free(text);
    if (f != NULL)
        (void)fclose(f);
    return o;
}

ebb_status ebb_tokenizer_open(ebb_tokenizer **t, const char *path)
{
    json_error_t error;
    ebb_regex *probe;
    *t = NULL;
    EBB_TRY(ebb_regex_make(&probe, ".", false)); // whether this build reads text at all
    ebb_regex_free(probe);
    ebb_tokenizer *made = ebb_alloc(sizeof *made);
    EBB_GOT(made);
    *made = (ebb_tokenizer){.root = json_load_file(path, JSON_ALLOW_NUL, &error)};
    made->before.arena = made->behind.arena = &made->arena;
    ebb_status status = NULL;
    if (made->root == NULL)
        status = json_error_code(&error) == json_error_cannot_open_file
                     ? ebb_error_io(path, "cannot be opened")
                     : ebb_error(EBB_REJECTED, "%s: line %d: %s", path, error.line, error.text);
    if (status == NULL)
        status = ebb_at(read_all(made), path);
    if (status != NULL) {
        ebb_tokenizer_close(made);
        return status;
    }
    made->config = config_beside(path);
    made->chat = chat_beside(path);
    *t = made;
    return NULL;
}

void ebb_tokenizer_close(ebb_tokenizer *t)
{
    if (t == NULL)
        return;
    ebb_normalizer_free(&t->normalizer);
    ebb_splitter_free(&t->splitter);
    json_decref(t->model.made);
    json_decref(t->root);
    json_decref(t->config);
    json_decref(t->chat);
    ebb_arena_fini(&t->arena);
    ebb_free(t);
}

/* ---- what it is asked ---- */

int64_t ebb_tokenizer_id(const ebb_tokenizer *t, const char *token)
{
    for (size_t i = 0; i < t->added_count; i++)
        if (strcmp(t->added[i].text, token) == 0)
            return t->added[i].id;
    return ebb_word_id(&t->model, token, strlen(token));
}

int64_t ebb_tokenizer_end(const ebb_tokenizer *t)
{
    const json_t *o = json_object_get(t->config, "eos_token"); // a text, or an object that has one
    const char *text = json_is_object(o) ? ebb_said_text(o, "content", NULL) : json_string_value(o);
    return text != NULL ? ebb_tokenizer_id(t, text) : -1;
}

/* A text, or a list of named ones, of which it is the default. */
const char *ebb_tokenizer_chat(const ebb_tokenizer *t)
{
    const json_t *o = t->chat != NULL ? t->chat : json_object_get(t->config, "chat_template");
    for (size_t i = 0; i < json_array_size(o); i++)
        if (strcmp(ebb_said_text(json_array_get(o, i), "name", ""), "default") == 0)
            return ebb_said_text(json_array_get(o, i), "template", NULL);
    return json_string_value(o);
}

ebb_status ebb_tokenizer_put(const ebb_tokenizer *t, bool before, ebb_ids *ids)
{
    const ebb_ids *from = before ? &t->before : &t->behind;
    for (size_t i = 0; i < from->count; i++)
        EBB_TRY(ebb_ids_add(ids, from->list[i]));
    return NULL;
}

/* ---- encoding ---- */

typedef struct encoding {
    ebb_tokenizer *t;
    ebb_arena *arena;
    ebb_ids *ids;
} encoding;

static ebb_status put_word(void *to, const char *word, size_t size)
{
    encoding *e = to;
    return e->t->model.encode(&e->t->model, word, size, e->arena, e->ids);
}

/* The longest added token, of those that are looked for in this text, that begins at `at`. */
static const added *added_at(const ebb_tokenizer *t, const char *text, size_t size, size_t at,
                             bool normalized)
{
    const added *best = NULL;
    for (size_t i = 0; i < t->added_count; i++) {
        const added *a = &t->added[i];
        if (a->normalized == normalized && a->size <= size - at && a->text[0] == text[at] &&
            memcmp(a->text, text + at, a->size) == 0 && (best == NULL || a->size > best->size))
            best = a;
    }
    return best;
}

typedef ebb_status (*part_fn)(encoding *e, const char *text, size_t size, bool first);

/* Calls `rest` for what lies between added tokens, which become ids. */
static ebb_status take_added(encoding *e, const char *text, size_t size, bool first,
                             bool normalized, part_fn rest)
{
    size_t done = 0;
    for (size_t at = 0; at < size;) {
        const added *a = added_at(e->t, text, size, at, normalized);
        if (a == NULL) {
            at++;
            continue;
        }
        const size_t end = a->left ? ebb_blanks_begin(text, done, at) : at;
        if (end > done)
            EBB_TRY(rest(e, text + done, end - done, first && done == 0));
        EBB_TRY(ebb_ids_add(e->ids, a->id));
        at += a->size;
        done = at = a->right ? ebb_blanks_end(text, at, size) : at;
    }
    return done < size ? rest(e, text + done, size - done, first && done == 0) : NULL;
}

static ebb_status put_normal(encoding *e, const char *text, size_t size, bool first)
{
    return ebb_split(&e->t->splitter, text, size, first, e->arena, put_word, e);
}

static ebb_status put_raw(encoding *e, const char *text, size_t size, bool first)
{
    const char *made;
    size_t made_size;
    EBB_TRY(ebb_normalize(&e->t->normalizer, text, size, e->arena, &made, &made_size));
    return take_added(e, made, made_size, first, true, put_normal);
}

ebb_status ebb_tokenizer_encode(ebb_tokenizer *t, const char *text, size_t size, bool first,
                                ebb_ids *ids)
{
    EBB_LOCAL_ARENA(arena);
    encoding e = {.t = t, .arena = arena, .ids = ids};
    return take_added(&e, text, size, first, false, put_raw);
}
