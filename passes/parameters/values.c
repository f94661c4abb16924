/* values.c: what the numbers of a tensor look like.
 *
 * Weights that were drawn and trained do not come again, and do not follow from their neighbours.
 * Three tests tell what does:
 *
 *   numbers     of a sample that is in order: how many differ, are whole, are beyond what trains
 *   along axes  x[k+1] + x[k-1] = c x[k] holds for sines and cosines (c = 2 cos w), equal steps (2)
 *               and powers (q + 1/q), of any line along an axis; and so for the steps between its
 *               elements where a constant was added
 *   across      x[k+1] = x[k] everywhere along an axis
 *   ratios      x[k+1] = q x[k] to the last bits: of few numbers, of which nothing else is said
 *   windows     x[k] = x[n-k] or x[n-1-k], up to the middle and down again: Hann's, Blackman's, Kaiser's
 *
 * Numbers of 16 bits come again by themselves, so that nothing is said of tensors that hold only such.
 */
#include "passes/parameters/values.h"

#include <math.h>
#include <string.h>

enum {
    SAMPLE = 1 << 14, /* elements; of more, one of each share of them */
    FEWEST = 12,      /* elements of which anything is said */
    LINES = 48,       /* that are followed along an axis */
    LONGEST = 96,     /* elements of a line */
    SHORTEST = 6,
};

/* How far from its rule, in parts of the largest, or of itself. */
static const double CLOSE = 1e-3, SINE_CLOSE = 3e-5, POWER_CLOSE = 1e-6, WINDOW_CLOSE = 1e-5;

const char *ebb_look_words(ebb_look look)
{
    static const char *const words[EBB_LOOK_COUNT] = {
        [EBB_LOOK_DRAWN] = "",
        [EBB_LOOK_EQUAL] = "all of its values are equal",
        [EBB_LOOK_MASK] = "its values are those of a mask",
        [EBB_LOOK_WHOLE] = "its values are whole numbers",
        [EBB_LOOK_COMPUTED] = "its values are computed, as sines, steps or powers are",
        [EBB_LOOK_EXPANDED] = "its values are the same along an axis, along which a smaller one "
                              "was repeated",
        [EBB_LOOK_LOOKED_UP] = "its values come again, as those that were looked up in a smaller "
                               "table",
        [EBB_LOOK_ONE_SIGN] =
            "its values have one sign, as those of exponentials that were computed "
            "from a weight",
        [EBB_LOOK_PADDED] = "a part of it is zero, which was put beside a weight",
    };
    return words[look];
}

/* ---- a sample of the numbers ---- */

typedef struct sample { /* NaN counts as infinity */
    double least, most;
    size_t count, distinct, zeros;
    bool whole, huge, short_floats; /* all whole; one at least; all have 11 bits of fraction */
} sample;

/* Puts them in order, a byte at a time, the lowest first: in time that no file decides. A few by
 * insertion. */
static void sort_bits(uint64_t *keys, uint64_t *spare, size_t count)
{
    enum { FEW = 32 };
    for (size_t i = 1; i < count && count <= FEW; i++) {
        const uint64_t key = keys[i];
        size_t at = i;
        for (; at > 0 && keys[at - 1] > key; at--)
            keys[at] = keys[at - 1];
        keys[at] = key;
    }
    if (count <= FEW)
        return;
    for (int shift = 0; shift < 64; shift += 8) {
        size_t start[257] = {0};
        for (size_t i = 0; i < count; i++)
            start[(keys[i] >> shift & 255) + 1]++;
        if (start[(keys[0] >> shift & 255) + 1] == count)
            continue; // it is the same in all
        for (int k = 0; k < 256; k++)
            start[k + 1] += start[k];
        for (size_t i = 0; i < count; i++)
            spare[start[keys[i] >> shift & 255]++] = keys[i];
        memcpy(keys, spare, count * sizeof *keys);
    }
}

static bool has_11_bits(double x)
{
    int exponent;
    double scaled = ldexp(frexp(x, &exponent), 11);
    return scaled == trunc(scaled);
}

/* One of each share, at another place in each: an equal stride would meet a period. */
static int64_t place_of(int64_t i, int64_t count)
{
    if (count <= SAMPLE)
        return i;
    int64_t share = count / SAMPLE;
    return i * share + (int64_t)((uint64_t)i * UINT64_C(2654435761) % (uint64_t)share);
}

static bool take_sample(sample *s, const ebb_tensor *t, int64_t count, ebb_arena *scratch)
{
    *s = (sample){.count = (size_t)(count < SAMPLE ? count : SAMPLE), .whole = true};
    uint64_t *keys = EBB_NEW(scratch, uint64_t, 2 * s->count);
    if (keys == NULL)
        return false;
    s->short_floats = true;
    s->least = INFINITY;
    s->most = -INFINITY;
    for (size_t i = 0; i < s->count; i++) {
        double x = ebb_tensor_double(t, place_of((int64_t)i, count));
        s->huge |= !(fabs(x) < 1e4);
        s->whole &= x == trunc(x);
        s->short_floats = s->short_floats && has_11_bits(x);
        s->zeros += x == 0;
        x = isnan(x) ? INFINITY : x + 0.0; // one zero
        memcpy(&keys[i], &x, sizeof x);
        s->least = fmin(s->least, x);
        s->most = fmax(s->most, x);
    }
    sort_bits(keys, keys + s->count, s->count);
    for (size_t i = 0; i < s->count; i++)
        s->distinct += i == 0 || keys[i] != keys[i - 1];
    return true;
}

/* ---- lines along an axis ---- */

typedef struct axis {
    int64_t length, stride, outer, inner;
} axis;

static axis axis_of(const ebb_type *type, int k)
{
    axis a = {.length = type->dims[k], .outer = 1, .inner = 1};
    for (int i = 0; i < type->rank; i++)
        *(i < k ? &a.outer : &a.inner) *= i == k ? 1 : type->dims[i];
    a.stride = a.inner;
    return a;
}

/* Whether the elements, of which one at least differs, go on by one rule. c: of it, if not NULL. */
static bool goes_on(const double *x, int count, double within, double *c)
{
    double above = 0, below = 0, most = 0, worst = 0;
    for (int i = 1; i + 1 < count; i++) {
        above += x[i] * (x[i - 1] + x[i + 1]);
        below += x[i] * x[i];
    }
    for (int i = 0; i < count; i++)
        most = fmax(most, fabs(x[i]));
    if (below <= 0)
        return false;
    for (int i = 1; i + 1 < count; i++)
        worst = fmax(worst, fabs(x[i - 1] + x[i + 1] - above / below * x[i]));
    if (c != NULL)
        *c = above / below;
    return worst <= within * most;
}

static bool steps_go_on(double *x, int count)
{
    for (int i = 0; i + 1 < count; i++)
        x[i] = x[i + 1] - x[i];
    bool equal = true;
    for (int i = 1; i + 1 < count; i++)
        equal &= x[i] == x[0];
    return equal || goes_on(x, count - 1, CLOSE, NULL);
}

static bool is_sine(const double *x, int count, bool *turns)
{
    double c;
    for (int k = 0; k < count; k++)
        if (!(fabs(x[k]) <= 1 + SINE_CLOSE))
            return false;
    if (!goes_on(x, count, SINE_CLOSE, &c) || !(fabs(c) <= 2 + SINE_CLOSE))
        return false;
    *turns |= fabs(c) < 1.9;
    return true;
}

/* All lines that are looked at and are not of one number go on by a rule, and one is there. sines: by
 * that of sines, some of which turn within a few elements. */
static bool is_computed_along(const ebb_tensor *t, axis a, bool sines)
{
    int64_t lines = a.outer * a.inner, looked = lines < LINES ? lines : LINES;
    int count = (int)(a.length < LONGEST ? a.length : LONGEST);
    bool any = false, turns = false;
    for (int64_t i = 0; i < looked; i++) {
        int64_t line = lines <= LINES ? i : i * (lines / LINES) + i % (lines / LINES);
        int64_t from = line / a.inner * a.length * a.inner + line % a.inner;
        double x[LONGEST];
        bool equal = true;
        for (int k = 0; k < count; k++) {
            x[k] = ebb_tensor_double(t, from + k * a.stride);
            equal &= x[k] == x[0];
        }
        if (equal)
            continue;
        if (sines ? !is_sine(x, count, &turns)
                  : !goes_on(x, count, CLOSE, NULL) && !steps_go_on(x, count))
            return false;
        any = true;
    }
    return any && (turns || !sines);
}

/* One or two runs of powers, four at least in each: slopes of heads. */
static bool is_powers(const ebb_tensor *t, int64_t count)
{
    enum { LEAST = 4, RUNS = 2 };
    int64_t at = 0;
    for (int run = 0; run < RUNS && at < count; run++) {
        int64_t from = at++;
        double q = at < count ? ebb_tensor_double(t, at) / ebb_tensor_double(t, from) : NAN;
        for (; at < count; at++) {
            double x = ebb_tensor_double(t, at);
            if (!(fabs(x - q * ebb_tensor_double(t, at - 1)) <= POWER_CLOSE * fabs(x)) || q == 1)
                break;
        }
        if (at - from < LEAST)
            return false;
    }
    return at == count;
}

/* From `first` on it is the same from both ends, and nowhere less towards the middle. */
static bool is_window_from(const ebb_tensor *t, int64_t first, int64_t count)
{
    const double most = ebb_tensor_double(t, (first + count - 1) / 2);
    for (int64_t i = first, k = count - 1; i <= k; i++, k--) {
        const double x = ebb_tensor_double(t, i);
        if (!(fabs(x - ebb_tensor_double(t, k)) <= WINDOW_CLOSE * most) ||
            (i > 0 && !(x >= ebb_tensor_double(t, i - 1) - WINDOW_CLOSE * most)))
            return false;
    }
    return most > 0;
}

static bool is_equal_along(const ebb_tensor *t, axis a)
{
    const int64_t pairs = a.outer * a.inner * (a.length - 1);
    const int64_t looked = pairs < SAMPLE ? pairs : SAMPLE;
    for (int64_t i = 0; i < looked; i++) {
        int64_t pair = place_of(i, pairs), line = pair / (a.length - 1);
        int64_t from = line / a.inner * a.length * a.inner + line % a.inner;
        int64_t k = 1 + pair % (a.length - 1);
        if (ebb_tensor_double(t, from + k * a.stride) != ebb_tensor_double(t, from))
            return false;
    }
    return true;
}

/* ---- the whole ---- */

int ebb_long_axes(const ebb_type *type)
{
    int count = 0;
    for (int k = 0; k < type->rank; k++)
        count += type->dims[k] > 1;
    return count;
}

static ebb_look look_along(const ebb_tensor *t, int64_t *different)
{
    for (int k = 0; k < t->type.rank; k++)
        if (t->type.dims[k] >= SHORTEST && is_computed_along(t, axis_of(&t->type, k), false))
            return EBB_LOOK_COMPUTED;
    for (int k = 0; k < t->type.rank && ebb_long_axes(&t->type) > 1; k++)
        if (t->type.dims[k] > 1 && is_equal_along(t, axis_of(&t->type, k))) {
            *different = *different < SAMPLE ? *different : *different / t->type.dims[k];
            return EBB_LOOK_EXPANDED;
        }
    return EBB_LOOK_DRAWN;
}

/* Of few places: pairs of columns, beside each other or half a row apart, that are sine and cosine of one angle. */
static bool is_of_circles(const ebb_tensor *t, int64_t count)
{
    enum { FEWEST_COLUMNS = 8 };
    const int64_t columns = t->type.dims[t->type.rank - 1], pairs = columns / 2;
    bool beside = columns >= FEWEST_COLUMNS && columns % 2 == 0, apart = beside, whole = true;
    for (int64_t i = 0; i < count / 2 && (beside || apart); i++) {
        const double a = ebb_tensor_double(t, 2 * i), b = ebb_tensor_double(t, 2 * i + 1);
        const int64_t at = i / pairs * columns + i % pairs;
        const double c = ebb_tensor_double(t, at), d = ebb_tensor_double(t, at + pairs);
        beside = beside && fabs(a * a + b * b - 1) <= SINE_CLOSE;
        apart = apart && fabs(c * c + d * d - 1) <= SINE_CLOSE;
        whole = whole && a == trunc(a);
    }
    return (beside || apart) && !whole;
}

bool ebb_is_table_of_sines(const ebb_tensor *t)
{
    int64_t count;
    int k = 0;
    if (t->data == NULL || !ebb_dtype_is_float((ebb_dtype)t->type.dtype) ||
        !ebb_type_elements(&t->type, &count) || count == 0 || ebb_long_axes(&t->type) != 2)
        return false;
    while (t->type.dims[k] == 1)
        k++;
    return t->type.dims[k] >= SHORTEST ? is_computed_along(t, axis_of(&t->type, k), true)
                                       : is_of_circles(t, count);
}

/* Zeros count once: what was pruned has many. */
static bool comes_again(const sample *s)
{
    size_t others = s->count - s->zeros, different = s->distinct - (s->zeros > 0);
    return !s->short_floats && others >= FEWEST && (double)different < 0.95 * (double)others;
}

static ebb_look look_of_numbers(const ebb_tensor *t, const sample *s)
{
    enum { ENOUGH = 32 }; // of both signs at random, but for once in billions
    const int axes = ebb_long_axes(&t->type);
    if (s->whole)
        return EBB_LOOK_WHOLE;
    if (comes_again(s))
        return EBB_LOOK_LOOKED_UP;
    if (axes > 1 && s->count >= ENOUGH && (s->least > 0 || s->most < 0))
        return EBB_LOOK_ONE_SIGN;
    return axes == 1 && s->zeros * 8 >= s->count ? EBB_LOOK_PADDED : EBB_LOOK_DRAWN;
}

ebb_status ebb_values_look(ebb_look *look, int64_t *different, const ebb_tensor *t,
                           ebb_arena *scratch)
{
    int64_t count, unread;
    sample s;
    different = different != NULL ? different : &unread;
    *look = EBB_LOOK_DRAWN;
    *different = 0;
    if (t->data == NULL || !ebb_dtype_is_float((ebb_dtype)t->type.dtype) ||
        !ebb_type_elements(&t->type, &count) || count < 2)
        return NULL;
    EBB_GOT(take_sample(&s, t, count, scratch));
    *different = count <= SAMPLE ? (int64_t)s.distinct : count;
    if (s.distinct == 1)
        *look = EBB_LOOK_EQUAL;
    else if (s.huge)
        *look = EBB_LOOK_MASK;
    else if (ebb_long_axes(&t->type) == 1 && count <= SAMPLE && is_powers(t, count))
        *look = EBB_LOOK_COMPUTED;
    else if (count < FEWEST)
        *look = EBB_LOOK_DRAWN;
    else if (s.distinct <= 3)
        *look = EBB_LOOK_MASK;
    else if (ebb_long_axes(&t->type) == 1 &&
             (is_window_from(t, 0, count) || is_window_from(t, 1, count)))
        *look = EBB_LOOK_COMPUTED;
    else if ((*look = look_along(t, different)) == EBB_LOOK_DRAWN)
        *look = look_of_numbers(t, &s);
    return NULL;
}

/* ---- two tensors ---- */

bool ebb_is_begun(const ebb_tensor *x, const ebb_tensor *y)
{
    enum { FEW = 16 }; // bytes say nothing
    const ebb_tensor *less = x->bytes < y->bytes ? x : y;
    return x->bytes != y->bytes && x->type.rank == y->type.rank && x->data != NULL &&
           y->data != NULL && less->bytes >= FEW && memcmp(x->data, y->data, less->bytes) == 0 &&
           !ebb_tensor_is_uniform(less);
}

ebb_extremes ebb_extremes_of(const ebb_tensor *t)
{
    enum { FEW = 4 };
    int64_t count;
    if (t == NULL || t->data == NULL || !ebb_type_elements(&t->type, &count) || count < FEW)
        count = 0;
    return (ebb_extremes){.tensor = t, .count = count};
}

static void find_extremes(ebb_extremes *s)
{
    const ebb_tensor *t = s->tensor;
    if (s->known)
        return;
    s->known = true;
    for (int64_t i = 0; i < s->count; i++) {
        const double x = ebb_tensor_double(t, i);
        s->least = x < ebb_tensor_double(t, s->least) ? i : s->least;
        s->most = x > ebb_tensor_double(t, s->most) ? i : s->most;
        s->size = fmax(s->size, fabs(x));
    }
    s->first = ebb_tensor_double(t, 0);
    s->from = ebb_tensor_double(t, s->least);
    s->range = ebb_tensor_double(t, s->most) - s->from;
}

bool ebb_is_affine(ebb_extremes *x, ebb_extremes *y)
{
    static const double NEAR = 1e-6;
    if (x->count != y->count || x->count == 0)
        return false;
    find_extremes(x);
    find_extremes(y);
    const double at = ebb_tensor_double(y->tensor, x->least);
    const double top = ebb_tensor_double(y->tensor, x->most);
    const double slope = x->range > 0 ? (top - at) / x->range : 0;
    const double close = NEAR * (y->size + fabs(slope) * x->range);
    bool is = fabs(slope) > NEAR &&
              (fabs(slope - 1) > NEAR || fabs(at - x->from) > NEAR * y->size) &&
              fabs(at + slope * (x->first - x->from) - y->first) <= close; // most are told by it
    for (int64_t i = 1; is && i < x->count; i++)
        is = fabs(at + slope * (ebb_tensor_double(x->tensor, i) - x->from) -
                  ebb_tensor_double(y->tensor, i)) <= close;
    return is;
}
