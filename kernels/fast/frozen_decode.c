/* frozen_decode.c: a tile of a matrix in few bits as panels of floats.
 *
 * Panels have a column of X^T or of X in each lane. Of X^T (forward) a lane is a row of codes: a word of
 * each of the rows is loaded, and gives as many rows of the panel as it has codes. Of X (backward) lanes
 * are neighbours in a row. Scales and zero points of a tile are floats before it is decoded.
 */
#include "kernels/fast/frozen_tile.h"

#include <string.h>

enum { LANES = EBB_TILE_LANES, PANEL = EBB_TILE_COLUMNS };

/* ---- scales and zero points ---- */

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

static void expand_scales(ebb_frozen_tile *t)
{
    const ebb_frozen_product *p = t->p;
    const ebb_frozen_matrix *m = &p->m;
    const int64_t inner = group_of(p->inner_group, t->from, t->depth - 1) + 1;
    const int64_t across = group_of(p->column_group, t->column, t->columns - 1) + 1;
    t->grid_row = p->column_group == 1 ? ebb_tile_width(t->columns) : across;
    if (m->of.turned) {
        for (int64_t h = 0; h < across; h++)
            ebb_frozen_blocks(m, start_of(p->column_group, t->column, h), t->from, inner,
                              t->scales + h, t->zeros + h, t->grid_row);
    } else {
        for (int64_t g = 0; g < inner; g++)
            ebb_frozen_blocks(m, start_of(p->inner_group, t->from, g), t->column, across,
                              t->scales + g * t->grid_row, t->zeros + g * t->grid_row, 1);
    }
    for (int64_t g = 0; g < inner; g++)
        for (int64_t h = across; h < t->grid_row; h++)
            t->scales[g * t->grid_row + h] = t->zeros[g * t->grid_row + h] = 0.0f;
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
typedef uint8_t lanes_of_bytes __attribute__((vector_size(LANES)));

/* What turns codes into numbers, out of memory that stores might change. */
typedef struct reading {
    lanes_of_codes flip;
    ebb_lanes table; /* of up to LANES levels */
    const float *level;
    bool linear, small;
} reading;

static inline reading reading_of(const ebb_frozen_product *p)
{
    reading r = {.flip = (lanes_of_codes){0} + (int32_t)p->m.flip,
                 .level = p->level,
                 .linear = p->m.linear,
                 .small = 1 << p->m.of.bits <= LANES};
    memcpy(&r.table, p->level, sizeof r.table);
    return r;
}

EBB_TILE_INLINE ebb_lanes levels_of(const reading *r, lanes_of_codes q)
{
    if (r->linear)
        return __builtin_convertvector(q ^ r->flip, ebb_lanes);
    if (r->small)
        return __builtin_shuffle(r->table, q);
    ebb_lanes x;
    for (int l = 0; l < LANES; l++)
        x[l] = r->level[q[l]];
    return x;
}

/* The scales, or zero points, of lanes in a group of what is summed over: `at` is where the lanes' first is
 * in a row of the grid. */
EBB_TILE_INLINE ebb_lanes beside(const ebb_frozen_tile *t, const float *grid, int64_t group,
                                 int64_t at)
{
    ebb_lanes x;
    const float *from = grid + group * t->grid_row + at;
    if (t->p->column_group == 1)
        memcpy(&x, from, sizeof x);
    else
        x = (ebb_lanes){0} + *from;
    return x;
}

/* Of lanes from column c of the tile on. */
static inline int64_t grid_at(const ebb_frozen_tile *t, int64_t c)
{
    return t->p->column_group == 1 ? c : group_of(t->p->column_group, t->column, c);
}

EBB_TILE_INLINE void put(const reading *r, float *to, lanes_of_codes q, ebb_lanes zero,
                         ebb_lanes scale)
{
    const ebb_lanes x = (levels_of(r, q) - zero) * scale;
    memcpy(to, &x, sizeof x);
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

enum { WORD = 32 };

EBB_TILE_INLINE int32_t word_at(const uint8_t *at, size_t bytes)
{
    int32_t word = 0;
    memcpy(&word, at, bytes);
    return word;
}

/* Lanes are rows of codes: LANES columns of a panel, from column c of the tile on. Groups are of whole
 * words, or of one code each. */
EBB_TILE_INLINE void decode_across(const ebb_frozen_tile *t, float *to, int64_t c, const int bits)
{
    const ebb_frozen_product *p = t->p;
    const ebb_frozen *f = &p->m.of;
    const reading r = reading_of(p);
    const int64_t row_bytes = f->row * bits / 8, start = t->from * bits / 8;
    const int64_t bytes = (t->depth * bits + 7) / 8, grid = grid_at(t, c), depth = t->depth;
    const int turned_round = f->high_first ? 8 - bits : 0;
    const bool alone = p->inner_group == 1;
    const uint8_t *lane[LANES];
    for (int l = 0; l < LANES; l++) {
        const int64_t n = t->column + c + l;
        lane[l] = p->m.codes + (n < f->n ? n : f->n - 1) * row_bytes + start;
    }
    counter at = count_from(p, t->from);
    ebb_lanes zero = beside(t, t->zeros, 0, grid), scale = beside(t, t->scales, 0, grid);
    for (int64_t i = 0, b = 0; i < depth; b += 4) {
        lanes_of_codes word = {0};
        if (bytes - b >= 4)
            for (int l = 0; l < LANES; l++)
                word[l] = word_at(lane[l] + b, 4);
        else
            for (int l = 0; l < LANES; l++)
                word[l] = word_at(lane[l] + b, (size_t)(bytes - b));
        const int64_t count = depth - i < WORD / bits ? depth - i : WORD / bits;
        for (int j = 0; j < count; j++) {
            put(&r, to + j * PANEL, (word >> (j * bits ^ turned_round)) & ((1 << bits) - 1), zero,
                scale);
            if (alone && i + j + 1 < depth) {
                zero = beside(t, t->zeros, i + j + 1, grid);
                scale = beside(t, t->scales, i + j + 1, grid);
            }
        }
        i += count;
        to += count * PANEL;
        if (!alone && step_by(&at, count) && i < depth) {
            zero = beside(t, t->zeros, at.group, grid);
            scale = beside(t, t->scales, at.group, grid);
        }
    }
}

/* Codes of LANES neighbours, of 2 or 4 bits, lie in so many words: */
#define WORDS(bits) (LANES * (bits) > WORD ? LANES * (bits) / WORD : 1)

/* Where a lane's code lies in its word; all bits of `second`: that is the second. */
typedef struct places {
    lanes_of_codes second, shift;
} places;

static inline places places_of(const ebb_frozen *f)
{
    const int bits = (int)f->bits;
    places p;
    for (int l = 0; l < LANES; l++) {
        p.second[l] = l * bits < WORD ? 0 : -1;
        p.shift[l] = l * bits % WORD ^ (f->high_first ? 8 - bits : 0);
    }
    return p;
}

/* `bytes`: how many there are, at most those of LANES codes. */
EBB_TILE_INLINE lanes_of_codes codes_of(const uint8_t *row, size_t bytes, const places *at,
                                        const int bits)
{
    if (bits == 8) {
        lanes_of_bytes raw = {0};
        memcpy(&raw, row, bytes);
        return __builtin_convertvector(raw, lanes_of_codes);
    }
    uint32_t words[2] = {0};
    memcpy(words, row, bytes);
    lanes_of_codes word = (lanes_of_codes){0} + (int32_t)words[0];
    if (WORDS(bits) > 1)
        word = (word & ~at->second) | (((lanes_of_codes){0} + (int32_t)words[1]) & at->second);
    return (word >> at->shift) & ((1 << bits) - 1);
}

/* Lanes are neighbours in a row of codes: LANES columns of a panel, from column c of the tile on. */
EBB_TILE_INLINE void decode_along(const ebb_frozen_tile *t, float *to, int64_t c, const int bits)
{
    const ebb_frozen_product *p = t->p;
    const ebb_frozen *f = &p->m.of;
    const places at_lane = places_of(f);
    const reading r = reading_of(p);
    const int64_t depth = t->depth;
    const int64_t row_bytes = f->row * bits / 8, start = (t->column + c) * bits / 8;
    const int64_t full = LANES * bits / 8, left = row_bytes - start;
    const uint8_t *row = p->m.codes + t->from * row_bytes + (left > 0 ? start : 0);
    counter at = count_from(p, t->from);
    const int64_t grid = grid_at(t, c);
    ebb_lanes zero = beside(t, t->zeros, 0, grid), scale = beside(t, t->scales, 0, grid);
    for (int64_t i = 0; i < depth; i++, to += PANEL, row += row_bytes) {
        const lanes_of_codes q = left >= full
                                     ? codes_of(row, (size_t)full, &at_lane, bits)
                                     : codes_of(row, left > 0 ? (size_t)left : 0, &at_lane, bits);
        put(&r, to, q, zero, scale);
        if (step_by(&at, 1) && i + 1 < depth) {
            zero = beside(t, t->zeros, at.group, grid);
            scale = beside(t, t->scales, at.group, grid);
        }
    }
}

EBB_TILE_INLINE void decode_by(const ebb_frozen_tile *t, const int bits)
{
    for (int64_t c = 0; c < ebb_tile_width(t->columns); c += LANES) {
        float *to = t->panels + c / PANEL * PANEL * t->depth + c % PANEL;
        if (t->p->m.of.turned)
            decode_across(t, to, c, bits);
        else
            decode_along(t, to, c, bits);
    }
}

static void decode_quickly(ebb_frozen_tile *t)
{
    expand_scales(t);
    if (t->p->m.of.bits == 2)
        decode_by(t, 2);
    else if (t->p->m.of.bits == 4)
        decode_by(t, 4);
    else
        decode_by(t, 8);
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

/* Numbers as they are. */
static void copy_panels(ebb_frozen_tile *t)
{
    const ebb_frozen *f = &t->p->m.of;
    const int64_t apart = f->turned ? f->k : 1, step = f->turned ? 1 : f->k;
    for (int64_t first = 0; first < t->columns; first += PANEL) {
        float *to = t->panels + first * t->depth;
        const float *from = t->p->whole + (t->column + first) * apart + t->from * step;
        const int64_t n = t->columns - first < PANEL ? t->columns - first : PANEL;
        for (int64_t i = 0; i < t->depth; i++, to += PANEL)
            for (int64_t j = 0; j < PANEL; j++)
                to[j] = j < n ? from[j * apart + i * step] : 0.0f;
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
