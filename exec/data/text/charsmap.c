/* charsmap.c: SentencePiece's compiled normalization, the normalizer Precompiled of a tokenizer.json: base64 of
 *
 *     uint32 bytes of the trie | uint32 units of the trie | texts, each ended by a zero
 *
 * The trie is a double array of Darts-clone (Susumu Yata): from a text it leads to the place of what replaces it. As Hugging Face's tokenizers have it, a whole grapheme below six
 * bytes is replaced by what its shortest known beginning becomes, else its characters are, each by itself.
 */
#include "exec/data/text/tokenizer.h"

struct ebb_charsmap {
    const uint8_t *units, *texts;
    size_t unit_count, text_size;
};

enum { NO_DIGIT = 64 };

static unsigned digit_of(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c != '\0' ? strchr(digits, c) : NULL;
    return at != NULL ? (unsigned)(at - digits) : NO_DIGIT;
}

/* NULL: it is no base64, or out of memory. */
static uint8_t *decoded(const char *base64, size_t *size, ebb_arena *arena)
{
    uint8_t *bytes = EBB_NEW(arena, uint8_t, strlen(base64) + 1);
    uint32_t held = 0;
    unsigned bits = 0;
    *size = 0;
    for (const char *c = base64; bytes != NULL && *c != '\0' && *c != '='; c++) {
        const unsigned digit = digit_of(*c);
        if (digit == NO_DIGIT)
            return NULL;
        held = held << 6 | digit;
        bits += 6;
        if (bits < 8)
            continue;
        bits -= 8;
        bytes[(*size)++] = (uint8_t)(held >> bits);
    }
    return bytes;
}

static uint32_t number_at(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}

ebb_status ebb_charsmap_read(ebb_charsmap **map, const char *base64, ebb_arena *arena)
{
    size_t size;
    const uint8_t *bytes = decoded(base64, &size, arena);
    ebb_charsmap *made = EBB_NEW(arena, ebb_charsmap, 1);
    *map = made;
    EBB_GOT(made);
    *made = (ebb_charsmap){0};
    if (bytes != NULL && size == 0) // it replaces nothing
        return NULL;
    const size_t trie = bytes != NULL && size >= 4 ? number_at(bytes) : 0;
    if (trie == 0 || trie % 4 != 0 || trie > size - 4)
        return ebb_error(EBB_REJECTED, "its precompiled_charsmap is none");
    made->units = bytes + 4;
    made->unit_count = trie / 4;
    made->texts = bytes + 4 + trie;
    made->text_size = size - 4 - trie;
    return NULL;
}

/* ---- the trie ---- */

static uint32_t unit(const ebb_charsmap *map, size_t i)
{
    return i < map->unit_count ? number_at(map->units + 4 * i) : 0;
}

static size_t offset_of(uint32_t u)
{
    return (size_t)(u >> 10) << ((u & 0x200) >> 6);
}

/* What the shortest known beginning of the text becomes; NULL: none is known. */
static const char *replaced(const ebb_charsmap *map, const char *text, size_t size)
{
    size_t at = offset_of(unit(map, 0));
    for (size_t i = 0; i < size && text[i] != '\0'; i++) {
        const uint32_t c = (uint8_t)text[i];
        at ^= c;
        const uint32_t u = unit(map, at);
        if ((u & 0x800000FFu) != c)
            return NULL;
        at ^= offset_of(u);
        if ((u >> 8 & 1) == 0)
            continue;
        const size_t place = unit(map, at) & 0x7FFFFFFFu;
        return place < map->text_size &&
                       memchr(map->texts + place, 0, map->text_size - place) != NULL
                   ? (const char *)map->texts + place
                   : NULL;
    }
    return NULL;
}

static bool replace(const ebb_charsmap *map, ebb_text *to, const char *text, size_t size)
{
    const char *with = replaced(map, text, size);
    if (with != NULL)
        ebb_text_add(to, with, strlen(with));
    return with != NULL;
}

ebb_status ebb_charsmap_apply(const ebb_charsmap *map, ebb_text *to, const char *text, size_t size)
{
    enum { LONGEST = 5 };
    for (size_t at = 0, bytes; at < size; at += bytes) {
        bytes = ebb_grapheme_at(text + at, size - at);
        if (bytes == 0)
            return ebb_error(EBB_REJECTED, "it is not UTF-8");
        if (bytes <= LONGEST && replace(map, to, text + at, bytes))
            continue;
        for (size_t k = 0, one; k < bytes; k += one) {
            int32_t c;
            one = ebb_char_at(text + at + k, bytes - k, &c);
            if (!replace(map, to, text + at + k, one))
                ebb_text_add(to, text + at + k, one);
        }
    }
    return NULL;
}
