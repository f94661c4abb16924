/* frozen_decode.c: a tile of a matrix in few bits as panels of floats.
 *
 * Panels have a column of X^T or of X in each lane. Of X^T (forward) a lane is a row of codes: a word of
 * each of the rows is loaded, and gives as many rows of the panel as it has codes. Of X (backward) lanes
 * are neighbours in a row. Scales and zero points of a tile are floats before it is decoded.
 */
#include "kernels/fast/frozen_tile.h"

#include <string.h>

enum { LANES = EBB_TILE_LANES, PANEL = EBB_TILE_COLUMNS };

/* Beside columns c and their likes; group 0 is that of the tile's first. */
static int64_t group_of(int64_t group, int64_t first, int64_t i)
{
    return group == INT64_MAX ? 0 : (first + i) / group - first / group;
}

/* The first place of group g. */
static int64_t start_of(int64_t group, int64_t first, int64_t g)
{
    return group == INT64_MAX || g == 0 ? first : (first / group + g) * group;
}

/* ---- decoding, element by element ---- */

static void decode_slowly(ebb_frozen_tile *t)
{
    const ebb_frozen_product *p = t->p;
    for (int64_t first = 0; first < t->columns; first += PANEL) {
        float *to = t->panels + first * t->depth;
        for (int64_t i = 0; i < t->depth; i++)
            for (int64_t j = 0; j < PANEL; j++, to++) {
                const int64_t c = t->column + first + j, at = t->from + i;
                *to = first + j >= t->columns ? 0.0f
                      : p->m.of.turned        ? (float)ebb_frozen_at(&p->m, c, at)
                                              : (float)ebb_frozen_at(&p->m, at, c);
            }
    }
}

/* ---- decoding by lanes ---- */

#if defined(__GNUC__)

typedef int32_t lanes_of_codes __attribute__((vector_size(LANES * sizeof(int32_t))));

enum { WORD = 32, LINE = 64 }; /* bits of a word; bytes that come from far away at once */

/* What makes numbers of codes. */
typedef enum lookup {
    DIFFERENCES, /* a table in a vector has each number less the zero point, which all share */
    NUMBERS,     /* a table in a vector */
    LINEAR,      /* they are the codes, flipped */
    LEVELS,      /* a table in memory */
} lookup;

/* The same out of memory that stores might change. */
typedef struct reading {
    lanes_of_codes flips; /* LINEAR: of all codes of a word */
    ebb_lanes table;      /* repeats itself, so that what is above a code need not go */
    const float *level;
} reading;

EBB_TILE_INLINE reading reading_of(const ebb_frozen_tile *t, const int bits, const lookup how)
{
    const ebb_frozen_product *p = t->p;
    const float zero = how == DIFFERENCES ? t->zeros[0] : 0.0f;
    const unsigned mask = (1u << bits) - 1;
    reading r = {.level = p->level};
    uint32_t flips = 0;
    for (int at = 0; how == LINEAR && at < WORD; at += bits)
        flips |= p->m.flip << at;
    r.flips += (int32_t)flips;
    for (unsigned l = 0; how <= NUMBERS && l < LANES; l++) {
        const unsigned code = l & mask;
        r.table[l] = (p->m.linear ? (float)(code ^ p->m.flip) : p->level[code]) - zero;
    }
    return r;
}

/* code: flipped where it is linear; below others where tables are in a vector. */
EBB_TILE_INLINE void put(const reading *r, float *to, lanes_of_codes code, ebb_lanes zero,
                         ebb_lanes scale, const lookup how)
{
    ebb_lanes x;
    if (how <= NUMBERS)
        x = __builtin_shuffle(r->table, code);
    else if (how == LINEAR)
        x = __builtin_convertvector(code, ebb_lanes);
    else
        for (int l = 0; l < LANES; l++)
            x[l] = r->level[code[l]];
    x = (how == DIFFERENCES ? x : x - zero) * scale;
    memcpy(to, &x, sizeof x);
}

/* Scales, or zero points: each lane's own, or one for all. (A number less 0 is that number, and costs nothing.) */
EBB_TILE_INLINE ebb_lanes lanes_at(const float *from, bool own)
{
    ebb_lanes x;
    if (own)
        memcpy(&x, from, sizeof x);
    else
        x = *from - (ebb_lanes){0};
    return x;
}

/* Those of lanes in a group of what is summed over: `at` is where the lanes' first is in a row of the grid. */
EBB_TILE_INLINE ebb_lanes beside(const ebb_frozen_tile *t, const float *grid, int64_t group,
                                 int64_t at)
{
    return lanes_at(grid + group * t->grid_row + at, t->p->column_group == 1);
}

/* Of lanes from column c of the tile on. */
static inline int64_t grid_at(const ebb_frozen_tile *t, int64_t c)
{
    return t->p->column_group == 1 ? c : group_of(t->p->column_group, t->column, c);
}

/* Counts groups of what is summed over without dividing. */
typedef struct counter {
    int64_t group, left, size;
} counter;

static inline counter count_from(const ebb_frozen_product *p, int64_t from)
{
    const int64_t size = p->inner_group;
    return (counter){0, size == INT64_MAX ? size : size - from % size, size};
}

/* Goes `by` on, within a group: whether the next one is in another. */
static inline bool step_by(counter *c, int64_t by)
{
    c->left -= by;
    if (c->left > 0)
        return false;
    c->left = c->size;
    c->group++;
    return true;
}

/* LANES words of each of LANES rows: lane l of word w becomes word l of lane w. */
#if defined(__AVX512F__)

EBB_TILE_INLINE void turn(lanes_of_codes *word)
{
    __m512i a[LANES], b[LANES];
    memcpy(a, word, sizeof a);
    for (int i = 0; i < LANES; i += 2) {
        b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
    }
    for (int i = 0; i < LANES; i += 4)
        for (int k = 0; k < 2; k++) { // a[i + c]: words c, c + 4, .. of lanes i to i + 3
            a[i + 2 * k] = _mm512_unpacklo_epi64(b[i + k], b[i + k + 2]);
            a[i + 2 * k + 1] = _mm512_unpackhi_epi64(b[i + k], b[i + k + 2]);
        }
    for (int i = 0; i < LANES; i += 8)
        for (int c = 0; c < 4; c++) { // b[i + c]: words c and c + 8 of lanes i to i + 7
            b[i + c] = _mm512_shuffle_i32x4(a[i + c], a[i + c + 4], 0x88);
            b[i + c + 4] = _mm512_shuffle_i32x4(a[i + c], a[i + c + 4], 0xDD);
        }
    for (int c = 0; c < 8; c++) {
        word[c] = (lanes_of_codes)_mm512_shuffle_i32x4(b[c], b[c + 8], 0x88);
        word[c + 8] = (lanes_of_codes)_mm512_shuffle_i32x4(b[c], b[c + 8], 0xDD);
    }
}

#else

/* Each step puts what is half of all rows apart side by side. */
EBB_TILE_INLINE void turn(lanes_of_codes *word)
{
    lanes_of_codes low, high;
    for (int l = 0; l < LANES; l++) {
        low[l] = l / 2 + l % 2 * LANES;
        high[l] = low[l] + LANES / 2;
    }
    for (int step = 1; step < LANES; step *= 2) {
        lanes_of_codes next[LANES];
        EBB_TILE_UNROLL
        for (int l = 0; l < LANES / 2; l++) {
            next[2 * l] = __builtin_shuffle(word[l], word[l + LANES / 2], low);
            next[2 * l + 1] = __builtin_shuffle(word[l], word[l + LANES / 2], high);
        }
        memcpy(word, next, sizeof next);
    }
}

#endif

/* The codes of each byte in the order of numbers: those of high_first begin with its high bits. */
EBB_TILE_INLINE lanes_of_codes low_first(lanes_of_codes word, const int bits)
{
    if (bits < 8)
        word = (word >> 4 & 0x0F0F0F0F) | (word & 0x0F0F0F0F) << 4;
    if (bits < 4)
        word = (word >> 2 & 0x33333333) | (word & 0x33333333) << 2;
    return word;
}

/* Code j of each word; below others where that does not matter. */
EBB_TILE_INLINE lanes_of_codes code_of(lanes_of_codes word, int j, const int bits, const lookup how)
{
#if defined(__AVX512BW__)
    const int byte = (int)0x80808000 + j; // of each word, and zeros above it
    if (bits == 8)
        return (lanes_of_codes)_mm512_shuffle_epi8(
            (__m512i)word, _mm512_set4_epi32(byte + 12, byte + 8, byte + 4, byte));
#endif
    return how <= NUMBERS ? word >> j * bits : (word >> j * bits) & ((1 << bits) - 1);
}

/* The next words of all rows, from byte b of so many on. What lies `next` bytes on is asked for, of this tile or, behind
 * its last columns, of the one below: it comes from far away while this is decoded. */
EBB_TILE_INLINE void take_words(lanes_of_codes *words, const uint8_t *const *lane, int64_t b,
                                int64_t bytes, int64_t next)
{
    const size_t all = sizeof *words, left = (size_t)(bytes - b);
    for (int l = 0; l < LANES; l++) {
        __builtin_prefetch(lane[l] + b + next);
        words[l] = (lanes_of_codes){0};
        if (left >= all)
            memcpy(&words[l], lane[l] + b, all);
        else
#if defined(__AVX512BW__)
            words[l] =
                (lanes_of_codes)_mm512_maskz_loadu_epi8(((uint64_t)1 << left) - 1, lane[l] + b);
#else
            memcpy(&words[l], lane[l] + b, left);
#endif
    }
    turn(words);
}

/* Lanes are rows of codes: LANES columns of a panel, from column c of the tile on. Groups are of whole
 * words, or of one code each. */
EBB_TILE_INLINE void decode_across(const ebb_frozen_tile *t, float *to, int64_t c, const int bits,
                                   const lookup how)
{
    const ebb_frozen_product *p = t->p;
    const ebb_frozen *f = &p->m.of;
    const reading r = reading_of(t, bits, how);
    const int64_t row_bytes = f->row * bits / 8, start = t->from * bits / 8;
    const int64_t bytes = (t->depth * bits + 7) / 8, grid = grid_at(t, c), depth = t->depth;
    const int per = WORD / bits;
    const bool alone = p->inner_group == 1, last = c + LANES >= t->columns;
    const int64_t next = last ? bytes - c * row_bytes : LANES * row_bytes;
    const uint8_t *lane[LANES];
    for (int l = 0; l < LANES; l++) {
        const int64_t n = t->column + c + l;
        lane[l] = p->m.codes + (n < f->n ? n : f->n - 1) * row_bytes + start;
    }
    counter at = count_from(p, t->from);
    ebb_lanes zero = beside(t, t->zeros, 0, grid), scale = beside(t, t->scales, 0, grid);
    lanes_of_codes words[LANES];
    for (int64_t i = 0, w = 0; i < depth; w++, i += per) {
        if (w % LANES == 0)
            take_words(words, lane, w * 4, bytes, next);
        const lanes_of_codes as_is = words[w % LANES] ^ r.flips,
                             word = f->high_first ? low_first(as_is, bits) : as_is;
        if (depth - i >= per && !alone) {
            EBB_TILE_UNROLL
            for (int j = 0; j < per; j++, to += PANEL)
                put(&r, to, code_of(word, j, bits, how), zero, scale, how);
        } else
            for (int j = 0; j < per && i + j < depth; j++, to += PANEL) {
                if (alone) {
                    zero = beside(t, t->zeros, i + j, grid);
                    scale = beside(t, t->scales, i + j, grid);
                }
                put(&r, to, code_of(word, j, bits, how), zero, scale, how);
            }
        if (!alone && step_by(&at, per) && i + per < depth) {
            zero = beside(t, t->zeros, at.group, grid);
            scale = beside(t, t->scales, at.group, grid);
        }
    }
}

/* Codes of LANES neighbours lie in so many words. (Bytes are not widened: compilers take them out one by one.) */
#define WORDS(bits) (LANES * (bits) > WORD ? LANES * (bits) / WORD : 1)

/* Where a lane's code lies: in which word, and where in it. */
typedef struct places {
    lanes_of_codes word, shift;
} places;

static inline places places_of(const ebb_frozen *f)
{
    const int bits = (int)f->bits;
    places p;
    for (int l = 0; l < LANES; l++) {
        p.word[l] = l * bits / WORD;
        p.shift[l] = l * bits % WORD ^ (f->high_first ? 8 - bits : 0);
    }
    return p;
}

/* `bytes`: how many there are, at most those of LANES codes. Below others where that does not matter. */
EBB_TILE_INLINE lanes_of_codes codes_of(const uint8_t *row, size_t bytes, const places *at,
                                        const int bits, const lookup how)
{
#if defined(__AVX512F__)
    if (bits == 8 && bytes == LANES)
        return (lanes_of_codes)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)row));
#endif
    int32_t words[4] = {0};
    memcpy(words, row, bytes);
    lanes_of_codes word = (lanes_of_codes){0} + words[0];
    if (WORDS(bits) == 2)
        word = __builtin_shuffle((lanes_of_codes){words[0], words[1]}, at->word);
    if (WORDS(bits) == 4)
        word =
            __builtin_shuffle((lanes_of_codes){words[0], words[1], words[2], words[3]}, at->word);
    return how <= NUMBERS ? word >> at->shift : (word >> at->shift) & ((1 << bits) - 1);
}

/* Lanes are neighbours in a row of codes: LANES columns of a panel, from column c of the tile on. */
EBB_TILE_INLINE void decode_along(const ebb_frozen_tile *t, float *to, int64_t c, const int bits,
                                  const lookup how)
{
    const ebb_frozen_product *p = t->p;
    const ebb_frozen *f = &p->m.of;
    const places at_lane = places_of(f);
    const reading r = reading_of(t, bits, how);
    const lanes_of_codes flip = r.flips & ((1 << bits) - 1);
    const int64_t depth = t->depth;
    const int64_t row_bytes = f->row * bits / 8, start = (t->column + c) * bits / 8;
    const int64_t full = LANES * bits / 8, left = row_bytes - start;
    const uint8_t *row = p->m.codes + t->from * row_bytes + (left > 0 ? start : 0);
    counter at = count_from(p, t->from);
    const int64_t turns = LINE / full, turn = c / LANES % turns;
    const bool last = c + turns * LANES >= t->columns, own = p->column_group == 1;
    const int64_t next = last ? depth * row_bytes - c * bits / 8 : LINE;
    const float *zeros = t->zeros + grid_at(t, c), *scales = t->scales + grid_at(t, c);
    ebb_lanes zero = lanes_at(zeros, own), scale = lanes_at(scales, own);
    for (int64_t i = 0; i < depth; i++, to += PANEL, row += row_bytes) {
        if (i % turns == turn)
            __builtin_prefetch(row + next);
        const lanes_of_codes q =
            left >= full ? codes_of(row, (size_t)full, &at_lane, bits, how)
                         : codes_of(row, left > 0 ? (size_t)left : 0, &at_lane, bits, how);
        put(&r, to, q ^ flip, zero, scale, how);
        if (step_by(&at, 1) && i + 1 < depth) {
            zeros += t->grid_row;
            scales += t->grid_row;
            zero = lanes_at(zeros, own);
            scale = lanes_at(scales, own);
        }
    }
}

EBB_TILE_INLINE void decode_by(const ebb_frozen_tile *t, const int bits, const lookup how)
{
    for (int64_t c = 0; c < ebb_tile_width(t->columns); c += LANES) {
        float *to = t->panels + c / PANEL * PANEL * t->depth + c % PANEL;
        if (t->p->m.of.turned)
            decode_across(t, to, c, bits, how);
        else
            decode_along(t, to, c, bits, how);
    }
}

EBB_TILE_INLINE void decode_codes(const ebb_frozen_tile *t, const int bits)
{
    const ebb_frozen_matrix *m = &t->p->m;
    if (1 << bits <= LANES)
        m->of.zero <= EBB_ZERO_BYTE ? decode_by(t, bits, DIFFERENCES) : decode_by(t, bits, NUMBERS);
    else
        m->linear ? decode_by(t, bits, LINEAR) : decode_by(t, bits, LEVELS);
}

/* ---- scales and zero points as floats ---- */

/* Of LANES rows at a time, where each row has its own, side by side. */
static void turn_scales(ebb_frozen_tile *t, int64_t groups)
{
    const ebb_frozen_product *p = t->p;
    const ebb_frozen *f = &p->m.of;
    const uint8_t *from = (const uint8_t *)p->m.scales + (size_t)(t->from / f->block_k) * 4;
    for (int64_t c = 0; c < t->grid_row; c += LANES) {
        const uint8_t *lane[LANES];
        lanes_of_codes words[LANES];
        for (int l = 0; l < LANES; l++) {
            const int64_t n = t->column + c + l;
            lane[l] = from + (size_t)((n < f->n ? n : f->n - 1) * f->scale_n) * 4;
        }
        for (int64_t g = 0; g < groups; g++) {
            if (g % LANES == 0)
                take_words(words, lane, g * 4, groups * 4, 0);
            memcpy(t->scales + g * t->grid_row + c, &words[g % LANES], sizeof *words);
        }
    }
}

static void expand_scales(ebb_frozen_tile *t)
{
    const ebb_frozen_product *p = t->p;
    const ebb_frozen_matrix *m = &p->m;
    const bool turned = m->of.turned, one = m->of.zero <= EBB_ZERO_BYTE;
    const int64_t inner = group_of(p->inner_group, t->from, t->depth - 1) + 1;
    const int64_t across = group_of(p->column_group, t->column, t->columns - 1) + 1;
    t->grid_row = p->column_group == 1 ? ebb_tile_width(t->columns) : across;
    const bool by_lanes = turned && p->column_group == 1 && m->of.scale_k == 1 &&
                          m->of.block_n == 1 && m->scale_dtype == EBB_F32;
    float *scales = by_lanes ? NULL : t->scales, *zeros = one ? NULL : t->zeros;
    if (by_lanes)
        turn_scales(t, inner);
    if (one) {
        ebb_frozen_blocks(m, t->column < m->of.n ? t->column : 0, 0, 1, NULL, t->zeros, 1);
        for (int64_t i = 1; i < inner * t->grid_row; i++)
            t->zeros[i] = t->zeros[0];
    }
    const int64_t rows = scales == NULL && zeros == NULL ? 0 : turned ? across : inner;
    for (int64_t i = 0; i < rows; i++) {
        const int64_t n =
            turned ? start_of(p->column_group, t->column, i) : start_of(p->inner_group, t->from, i);
        const int64_t at = turned ? i : i * t->grid_row;
        ebb_frozen_blocks(m, n, turned ? t->from : t->column, turned ? inner : across,
                          scales != NULL ? scales + at : NULL, zeros != NULL ? zeros + at : NULL,
                          turned ? t->grid_row : 1);
    }
    for (int64_t g = 0; g < inner; g++)
        for (int64_t h = across; h < t->grid_row; h++) {
            t->scales[g * t->grid_row + h] = 0.0f;
            t->zeros[g * t->grid_row + h] = 0.0f;
        }
}

static void decode_quickly(ebb_frozen_tile *t)
{
    expand_scales(t);
    switch (t->p->m.of.bits) {
    case 2:
        decode_codes(t, 2);
        break;
    case 4:
        decode_codes(t, 4);
        break;
    default:
        decode_codes(t, 8);
    }
}

/* A scale is the same for all lanes or another for each, and rows of codes are whole bytes. */
bool ebb_frozen_lanes_can(const ebb_frozen_product *p)
{
    const ebb_frozen *f = &p->m.of;
    const int64_t in = p->inner_group, across = p->column_group;
    const bool even = across == 1 || across == INT64_MAX || across % LANES == 0;
    const bool whole = !f->turned || in == 1 || in == INT64_MAX || in % (WORD / f->bits) == 0;
    const int64_t grid = (in == INT64_MAX ? 1 : EBB_PANEL_DEPTH / in + 2) *
                         (across == INT64_MAX ? 1 : EBB_PANEL_WIDEST / across + 2);
    return !f->runs_on && f->row * (int64_t)f->bits % 8 == 0 && even && whole &&
           grid <= EBB_PANEL_GRID;
}

#else

static void decode_quickly(ebb_frozen_tile *t)
{
    decode_slowly(t);
}

bool ebb_frozen_lanes_can(const ebb_frozen_product *p)
{
    (void)p;
    return false;
}

#endif

/* Numbers, times alpha. */
static void copy_panels(ebb_frozen_tile *t)
{
    const ebb_frozen *f = &t->p->m.of;
    const int64_t apart = f->turned ? f->k : 1, step = f->turned ? 1 : f->k;
    const float alpha = t->p->alpha;
    for (int64_t first = 0; first < t->columns; first += PANEL) {
        float *to = t->panels + first * t->depth;
        const float *from = t->p->whole + (t->column + first) * apart + t->from * step;
        const int64_t n = t->columns - first < PANEL ? t->columns - first : PANEL;
        for (int64_t i = 0; i < t->depth; i++, to += PANEL)
            for (int64_t j = 0; j < PANEL; j++)
                to[j] = j < n ? alpha * from[j * apart + i * step] : 0.0f;
    }
}

void ebb_frozen_decode(ebb_frozen_tile *t)
{
    if (t->p->whole != NULL)
        copy_panels(t);
    else if (t->p->quick)
        decode_quickly(t);
    else
        decode_slowly(t);
}
