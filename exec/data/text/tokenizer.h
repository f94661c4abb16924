/* tokenizer.h: text to token ids, as a Hugging Face tokenizer.json says.
 *
 *     text ──added tokens──> pieces ──normal.c──> ──split.c──> words ──bpe.c, unigram.c, wordpiece.c──> ids ──> template
 *
 * What such a file may say and is not computed here is refused by its name when the file is opened.
 */
#pragma once

#include <jansson.h>

#include "exec/data/text/unicode.h"

typedef struct ebb_tokenizer ebb_tokenizer;

/* Ids that grow; the memory is the arena's. */
typedef struct ebb_ids {
    ebb_arena *arena;
    int32_t *list;
    size_t count, capacity;
} ebb_ids;

ebb_status ebb_ids_add(ebb_ids *ids, int64_t id);

/* A tokenizer.json; beside it may lie tokenizer_config.json, which says what ends a text. */
ebb_status ebb_tokenizer_open(ebb_tokenizer **t, const char *path);
void ebb_tokenizer_close(ebb_tokenizer *t);

/* The ids of a text that follow those there already. `first`: it begins a whole text. */
ebb_status ebb_tokenizer_encode(ebb_tokenizer *t, const char *text, size_t size, bool first,
                                ebb_ids *ids);

/* What its template puts before a text (EBB_BEFORE) and behind it. */
ebb_status ebb_tokenizer_put(const ebb_tokenizer *t, bool before, ebb_ids *ids);

/* The id of a token, as it is written in the file; -1: there is none. */
int64_t ebb_tokenizer_id(const ebb_tokenizer *t, const char *token);
/* Of the token that ends a text; -1: nobody says. */
int64_t ebb_tokenizer_end(const ebb_tokenizer *t);
/* Its chat template, of tokenizer_config.json or chat_template.jinja beside it; NULL: there is none. */
const char *ebb_tokenizer_chat(const ebb_tokenizer *t);

/* ---- its parts ---- */

/* normal.c */
typedef struct ebb_normal_step {
    const char *kind, *text; /* Prepend's, or what Replace puts */
    ebb_regex *pattern;
    bool clean, chinese, accents, lower, left, right;
    struct ebb_charsmap *map; /* of a Precompiled */
} ebb_normal_step;

typedef struct ebb_normalizer {
    ebb_normal_step *list;
    size_t count;
} ebb_normalizer;

ebb_status ebb_normalizer_read(ebb_normalizer *n, const json_t *o, ebb_arena *arena);
void ebb_normalizer_free(ebb_normalizer *n);
/* *out is in arena memory, or the text itself. */
ebb_status ebb_normalize(const ebb_normalizer *n, const char *text, size_t size, ebb_arena *arena,
                         const char **out, size_t *out_size);

/* charsmap.c: a table of replacements as SentencePiece compiles it, in base64. Memory is the arena's. */
typedef struct ebb_charsmap ebb_charsmap;

ebb_status ebb_charsmap_read(ebb_charsmap **map, const char *base64, ebb_arena *arena);
ebb_status ebb_charsmap_apply(const ebb_charsmap *map, ebb_text *to, const char *text, size_t size);

/* split.c */
typedef ebb_status (*ebb_word_fn)(void *to, const char *word, size_t size);

typedef struct ebb_split_step {
    const char *kind, *behavior;
    ebb_regex *pattern;
    bool invert, prefix, splits;
    const char *scheme, *replacement; /* of a Metaspace */
} ebb_split_step;

typedef struct ebb_splitter {
    ebb_split_step *list;
    size_t count;
} ebb_splitter;

ebb_status ebb_splitter_read(ebb_splitter *s, const json_t *o, ebb_arena *arena);
void ebb_splitter_free(ebb_splitter *s);
/* Calls fn for each word, in their order. */
ebb_status ebb_split(const ebb_splitter *s, const char *text, size_t size, bool first,
                     ebb_arena *arena, ebb_word_fn fn, void *to);

/* bpe.c, unigram.c, wordpiece.c: a word to ids. */
typedef struct ebb_word_model ebb_word_model;

struct ebb_word_model {
    const char *kind;
    const json_t *vocabulary; /* token: id */
    json_t *made;             /* it, where the file has a list instead; or NULL */
    ebb_status (*encode)(const ebb_word_model *m, const char *word, size_t size, ebb_arena *arena,
                         ebb_ids *ids);
    const struct ebb_merge *merges; /* sorted by pair */
    size_t merge_count;
    const struct ebb_piece *pieces; /* of a Unigram, sorted by their bytes */
    size_t piece_count;
    double least;                          /* score */
    int64_t unknown_id;                    /* of a Unigram; -1: none */
    const char *unknown, *prefix, *suffix; /* NULL: none */
    bool fuses_unknown, byte_fallback, whole_words;
    int64_t longest; /* characters of a word */
};

ebb_status ebb_bpe_read(ebb_word_model *m, const json_t *o, ebb_arena *arena);
ebb_status ebb_unigram_read(ebb_word_model *m, const json_t *o, ebb_arena *arena);
ebb_status ebb_wordpiece_read(ebb_word_model *m, const json_t *o);
/* Of the tokens <0x00> to <0xFF>, which stand for bytes; -1: there is none. */
int64_t ebb_byte_id(const ebb_word_model *m, uint8_t byte);
bool ebb_has_byte_ids(const ebb_word_model *m, const char *text, size_t size);
/* -1: there is none. */
int64_t ebb_word_id(const ebb_word_model *m, const char *token, size_t size);

/* What a file says, or its default: strings of the file's own memory. */
const char *ebb_said_text(const json_t *o, const char *key, const char *otherwise);
bool ebb_said_flag(const json_t *o, const char *key, bool otherwise);
