/* few_bit_table.c: the best levels for a derivative, by a dynamic programme.
 *
 *     best(k, j) = least over i of best(k - 1, i) + cost(i, j)
 *
 * is the least error of k pieces that end at grid point j, and cost(i, j) = I2 - I1^2 / I0, with
 * I0, I1 and I2 the integrals of w, f' w and f'^2 w from i to j, is that of one piece whose level
 * is the mean of f' there. Integrals of whole cells are added up once, so a cost is a few
 * operations. The grid's optimum is then made the line's: at a border f' is the mean of the levels
 * beside it, and levels are means of f', turn by turn, until nothing moves.
 *
 * The optimum of an infinite line (flat): the first and last level are the limits of f', and the
 * first and last piece have the cost of that level.
 */
#include "passes/memory/lossy/few_bit_table.h"

#include <math.h>
#include <string.h>

#include <jansson.h>

enum { CELLS = 1200, TURNS = 4000 };

static const double two_over_root_pi = 1.1283791670955126;

/* ---- derivatives ---- */

static double sigmoid(double u)
{
    return u > 0 ? 1 / (1 + exp(-u)) : exp(u) / (1 + exp(u));
}

static double gelu(double x, double alpha)
{
    (void)alpha;
    return 0.5 * erfc(-x * sqrt(0.5)) + x * exp(-x * x / 2) * 0.39894228040143268;
}

static double gelu_tanh(double x, double alpha)
{
    const double k = 1.5957691216057308;
    double u = k * (x + 0.044715 * x * x * x), s = sigmoid(u);
    (void)alpha;
    return s + x * s * sigmoid(-u) * k * (1 + 0.134145 * x * x);
}

static double silu(double x, double alpha)
{
    double u = alpha * x, s = sigmoid(u);
    return s + u * s * sigmoid(-u);
}

static double mish(double x, double alpha)
{
    double near = x > 20 ? 20 : x, e = exp(near), n = e * (e + 2), per = 1 / (n + 2);
    (void)alpha;
    return (n + near * (4 * e * (e + 1) * per)) * per;
}

static double hard_swish(double x, double alpha)
{
    (void)alpha;
    return x <= -3 ? 0 : x >= 3 ? 1 : x / 3 + 0.5;
}

static double softplus(double x, double alpha)
{
    (void)alpha;
    return sigmoid(x);
}

static double softsign(double x, double alpha)
{
    (void)alpha;
    return 1 / ((1 + fabs(x)) * (1 + fabs(x)));
}

static double error_function(double x, double alpha)
{
    (void)alpha;
    return two_over_root_pi * exp(-x * x);
}

static double arctangent(double x, double alpha)
{
    (void)alpha;
    return 1 / (1 + x * x);
}

static double elu(double x, double alpha)
{
    return x > 0 ? 1 : alpha * exp(x);
}

static double tangent(double x, double alpha)
{
    double t = tanh(x);
    (void)alpha;
    return 1 - t * t;
}

static double logistic(double x, double alpha)
{
    (void)alpha;
    return sigmoid(x) * sigmoid(-x);
}

/* left, right: the limits; reach: beyond it f' is at them; kink: where f' or its slope jumps. */
typedef struct function {
    const char *name;
    double (*slope)(double x, double alpha);
    double left, right, reach, kink;
    bool scales; /* f'(x) depends on alpha x alone */
} function;

// clang-format off
static const function functions[] = {
    {"gelu",      gelu,           0, 1,  9,    0, false},
    {"gelu-tanh", gelu_tanh,      0, 1,  9,    0, false},
    {"silu",      silu,           0, 1, 45,    0, true},
    {"mish",      mish,           0, 1, 45,    0, false},
    {"hardswish", hard_swish,     0, 1,  4,    3, false},
    {"softplus",  softplus,       0, 1, 45,    0, false},
    {"softsign",  softsign,       0, 0, 1e4,   0, false},
    {"erf",       error_function, 0, 0,  7,    0, false},
    {"atan",      arctangent,     0, 0, 1e4,   0, false},
    {"elu",       elu,            0, 1, 45,    0, false},
    {"tanh",      tangent,        0, 0, 25,    0, false},
    {"sigmoid",   logistic,       0, 0, 45,    0, false},
};
// clang-format on
enum { FUNCTIONS = sizeof functions / sizeof functions[0] };

static const function *find(const char *name)
{
    for (size_t i = 0; i < FUNCTIONS; i++)
        if (strcmp(functions[i].name, name) == 0)
            return &functions[i];
    return NULL;
}

/* Functions that there are tables for: "gelu, gelu-tanh, silu, ..." */
static const char *few_bit_functions(void)
{
    return "gelu, gelu-tanh, silu, mish, hardswish, softplus, softsign, erf, atan, elu, tanh, "
           "sigmoid";
}

/* ---- integrals ---- */

/* Of w, f' w, f'^2 w, and of the squared distance from either limit. */
enum { I0, I1, I2, FROM_LEFT, FROM_RIGHT, KINDS };

typedef struct line {
    const function *f;
    double alpha;
    bool normal;
    double *at;              /* CELLS + 1 points */
    double (*before)[KINDS]; /* integrals up to each */
} line;

static void add_integrand(const line *l, double x, double weight, double sum[KINDS])
{
    double d = l->f->slope(x, l->alpha);
    double w = weight * (l->normal ? exp(-x * x / 2) * 0.39894228040143268 : 1);
    sum[I0] += w;
    sum[I1] += d * w;
    sum[I2] += d * d * w;
    sum[FROM_LEFT] += (d - l->f->left) * (d - l->f->left) * w;
    sum[FROM_RIGHT] += (d - l->f->right) * (d - l->f->right) * w;
}

/* Gauss' rule of five points. */
static void add_stretch(const line *l, double a, double b, double sum[KINDS])
{
    static const double place[3] = {0, 0.5384693101056831, 0.9061798459386640};
    static const double share[3] = {0.5688888888888889, 0.4786286704993665, 0.2369268850561891};
    double middle = (a + b) / 2, half = (b - a) / 2;
    for (int i = 0; i < 3; i++) {
        add_integrand(l, middle + half * place[i], half * share[i], sum);
        if (i > 0)
            add_integrand(l, middle - half * place[i], half * share[i], sum);
    }
}

/* Cells: narrow about 0, wide towards the ends; borders of cells on kinks. */
static ebb_status lay(line *l, ebb_arena *scratch)
{
    double reach = l->normal ? 9 : l->f->reach / (l->f->scales ? l->alpha : 1);
    double bend = log(1 + reach) + 2, whole = sinh(bend);
    l->at = EBB_NEW(scratch, double, CELLS + 1);
    l->before = (double(*)[KINDS])ebb_arena_zeroed(scratch, CELLS + 1, sizeof *l->before);
    EBB_GOT(l->at && l->before);
    for (int i = 0; i <= CELLS; i++) {
        l->at[i] = reach * sinh(bend * (2.0 * i / CELLS - 1)) / whole;
        if (i > 0 && l->f->kink != 0 && l->at[i] > l->f->kink && l->at[i - 1] < l->f->kink)
            l->at[i - 1] = l->f->kink;
        if (i > 0 && l->f->kink != 0 && l->at[i] > -l->f->kink && l->at[i - 1] < -l->f->kink)
            l->at[i - 1] = -l->f->kink;
    }
    for (int i = 0; i < CELLS; i++) {
        memcpy(l->before[i + 1], l->before[i], sizeof l->before[i]);
        add_stretch(l, l->at[i], l->at[i + 1], l->before[i + 1]);
    }
    return NULL;
}

/* Everything left of x. */
static void integrals(const line *l, double x, double sum[KINDS])
{
    int low = 0, high = CELLS;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (l->at[middle] <= x)
            low = middle;
        else
            high = middle;
    }
    memcpy(sum, l->before[low], sizeof l->before[low]);
    add_stretch(l, l->at[low], x, sum);
}

static bool pinned(const line *l, unsigned levels, unsigned piece)
{
    return !l->normal && (piece == 0 || piece + 1 == levels);
}

/* ---- the programme ---- */

static double cost(const line *l, unsigned levels, unsigned piece, int i, int j)
{
    const double *a = l->before[i], *b = l->before[j];
    if (pinned(l, levels, piece)) {
        int kind = piece == 0 ? FROM_LEFT : FROM_RIGHT;
        return b[kind] - a[kind];
    }
    double w = b[I0] - a[I0], d = b[I1] - a[I1];
    return w > 0 ? b[I2] - a[I2] - d * d / w : 0;
}

static ebb_status programme(const line *l, unsigned levels, double *borders, ebb_arena *scratch)
{
    enum { POINTS = CELLS + 1 };
    double *best = EBB_NEW(scratch, double, POINTS), *next = EBB_NEW(scratch, double, POINTS);
    uint16_t *from = EBB_NEW(scratch, uint16_t, (size_t)POINTS * levels);
    EBB_GOT(best && next && from);
    for (int j = 0; j < POINTS; j++)
        best[j] = cost(l, levels, 0, 0, j);
    for (unsigned k = 1; k < levels; k++) {
        for (int j = 0; j < POINTS; j++) {
            next[j] = HUGE_VAL;
            for (int i = 0; i <= j; i++) {
                double sum = best[i] + cost(l, levels, k, i, j);
                if (sum < next[j]) {
                    next[j] = sum;
                    from[(size_t)k * POINTS + (size_t)j] = (uint16_t)i;
                }
            }
        }
        memcpy(best, next, POINTS * sizeof *best);
    }
    int j = CELLS;
    for (unsigned k = levels - 1; k > 0; k--) {
        j = from[(size_t)k * POINTS + (size_t)j];
        borders[k - 1] = l->at[j];
    }
    return NULL;
}

/* ---- from the grid to the line ---- */

static void means(const line *l, ebb_few_bit_table *t)
{
    unsigned levels = 1u << t->bits;
    double a[KINDS] = {0}, b[KINDS];
    for (unsigned k = 0; k < levels; k++) {
        if (k + 1 < levels)
            integrals(l, t->borders[k], b);
        else
            memcpy(b, l->before[CELLS], sizeof b);
        if (pinned(l, levels, k))
            t->levels[k] = k == 0 ? l->f->left : l->f->right;
        else if (b[I0] > a[I0])
            t->levels[k] = (b[I1] - a[I1]) / (b[I0] - a[I0]);
        memcpy(a, b, sizeof a);
    }
}

/* One Newton step of f'(s) = mean of the levels beside s, no further than half way to the next. */
static double moved(const line *l, const ebb_few_bit_table *t, unsigned k)
{
    unsigned last = (1u << t->bits) - 2;
    double s = t->borders[k], wanted = (t->levels[k] + t->levels[k + 1]) / 2, h = 1e-5;
    double bend = (l->f->slope(s + h, l->alpha) - l->f->slope(s - h, l->alpha)) / (2 * h);
    double room = fmin(k > 0 ? s - t->borders[k - 1] : 1, k < last ? t->borders[k + 1] - s : 1) / 2;
    double step = bend != 0 ? (wanted - l->f->slope(s, l->alpha)) / bend : 0;
    return s + fmax(-room, fmin(room, fmax(-0.05, fmin(0.05, step))));
}

/* Borders across which f' jumps (elu at 0) or is flat do not follow Newton: they stay. */
static void settle(const line *l, ebb_few_bit_table *t)
{
    unsigned count = (1u << t->bits) - 1;
    for (int turn = 0; turn < TURNS; turn++) {
        double change = 0;
        for (unsigned k = 0; k < count; k++) {
            double s = t->borders[k], to = moved(l, t, k);
            double jump = fabs(l->f->slope(s + 1e-9, l->alpha) - l->f->slope(s - 1e-9, l->alpha));
            if (jump > 1e-4)
                continue;
            t->borders[k] = fabs(to) < 1e-9 ? 0 : to; // a symmetric function's, but for rounding
            change = fmax(change, fabs(to - s));
        }
        means(l, t);
        if (change < 1e-12)
            break;
    }
}

/* ---- judging ---- */

static void judge(const line *l, ebb_few_bit_table *t)
{
    unsigned levels = 1u << t->bits, k = 0;
    double rms = 0, size = 0, weight = 0;
    t->squared = t->most = 0;
    for (unsigned piece = 0; piece < levels; piece++) {
        double a[KINDS] = {0}, b[KINDS];
        if (piece > 0)
            integrals(l, t->borders[piece - 1], a);
        if (piece + 1 < levels)
            integrals(l, t->borders[piece], b);
        else
            memcpy(b, l->before[CELLS], sizeof b);
        double q = t->levels[piece];
        double plain = b[I2] - a[I2] - 2 * q * (b[I1] - a[I1]) + q * q * (b[I0] - a[I0]);
        bool left = q == l->f->left && piece == 0, right = q == l->f->right && piece + 1 == levels;
        t->squared += left    ? b[FROM_LEFT] - a[FROM_LEFT]
                      : right ? b[FROM_RIGHT] - a[FROM_RIGHT]
                              : plain;
    }
    for (int i = 0; i <= 400000; i++) { // a grid for the largest, and for the normal mean
        double x = (i - 200000) * 1e-4, d = l->f->slope(x, l->alpha), w = exp(-x * x / 2);
        while (k + 1 < levels && t->borders[k] < x)
            k++;
        double off = d - t->levels[k];
        t->most = fmax(t->most, fabs(off));
        rms += off * off * w;
        size += d * d * w;
        weight += w;
    }
    t->rms = sqrt(rms / weight);
    t->relative = sqrt(rms / size);
}

static ebb_status begin(line *l, const char *name, double alpha, unsigned bits, bool normal,
                        ebb_arena *scratch)
{
    const function *f = find(name);
    if (f == NULL)
        return ebb_error(EBB_USAGE, "few-bit: there is no table for '%s'; there are for %s", name,
                         few_bit_functions());
    if (bits < 1 || bits > EBB_FEW_BIT_MOST)
        return ebb_error(EBB_USAGE, "few-bit: bits=%u is not 1, 2, 3 or 4", bits);
    if (!(alpha > 0) || !isfinite(alpha))
        return ebb_error(EBB_USAGE, "few-bit: alpha=%g is not a positive number", alpha);
    *l = (line){.f = f, .alpha = alpha, .normal = normal};
    return lay(l, scratch);
}

ebb_status ebb_few_bit_best(ebb_few_bit_table *t, const char *name, double alpha, unsigned bits,
                            bool normal, ebb_arena *scratch)
{
    line l;
    EBB_TRY(begin(&l, name, alpha, bits, normal, scratch));
    *t = (ebb_few_bit_table){.function = l.f->name, .bits = bits};
    EBB_TRY(programme(&l, 1u << bits, t->borders, scratch));
    means(&l, t);
    settle(&l, t);
    judge(&l, t);
    return NULL;
}

ebb_status ebb_few_bit_judge(ebb_few_bit_table *t, double alpha, bool normal, ebb_arena *scratch)
{
    line l;
    EBB_TRY(begin(&l, t->function, alpha, t->bits, normal, scratch));
    judge(&l, t);
    return NULL;
}

bool ebb_few_bit_published(ebb_few_bit_table *t, const char *name, double alpha, ebb_arena *scratch)
{
    static const ebb_few_bit_table regelu2 = {.function = "gelu",
                                              .bits = 2,
                                              .borders = {-3.18588, -0.0011788, 3.19083},
                                              .levels = {0, -0.049223, 1.048741, 1}};
    static const ebb_few_bit_table resilu2 = {.function = "silu",
                                              .bits = 2,
                                              .borders = {-6.30505, -0.00086849, 6.32582},
                                              .levels = {0, -0.040604, 1.040322, 1}};
    if (strcmp(name, "gelu") == 0 || strcmp(name, "gelu-tanh") == 0)
        *t = regelu2;
    else if (strcmp(name, "silu") == 0)
        *t = resilu2;
    else
        return false;
    for (int i = 0; i < 3 && strcmp(name, "silu") == 0; i++)
        t->borders[i] /= alpha;
    return ebb_few_bit_judge(t, alpha, false, scratch) == NULL;
}

/* ---- tables from files ---- */

static bool read_list(const json_t *list, double *to, size_t count)
{
    if (json_array_size(list) != count)
        return false;
    for (size_t i = 0; i < count; i++) {
        const json_t *x = json_array_get(list, i);
        to[i] = json_number_value(x);
        if (!json_is_number(x) || !isfinite((float)to[i]))
            return false;
    }
    return true;
}

static bool read_table(const json_t *o, ebb_few_bit_table *t)
{
    size_t levels = (size_t)1 << t->bits;
    if (!read_list(json_object_get(o, "borders"), t->borders, levels - 1) ||
        !read_list(json_object_get(o, "levels"), t->levels, levels))
        return false;
    for (size_t i = 1; i + 1 < levels; i++)
        if (!(t->borders[i] > t->borders[i - 1]))
            return false;
    return true;
}

ebb_status ebb_few_bit_read(ebb_few_bit_table *t, const char *path, const char *name, unsigned bits)
{
    json_error_t error;
    const function *f = find(name);
    *t = (ebb_few_bit_table){.function = f != NULL ? f->name : name, .bits = bits};
    json_t *file = json_load_file(path, 0, &error);
    if (file == NULL)
        return ebb_error(EBB_REJECTED, "%s: %s (line %d)", path, error.text, error.line);
    size_t count = json_is_array(file) ? json_array_size(file) : 1;
    for (size_t i = 0; i < count; i++) {
        const json_t *o = json_is_array(file) ? json_array_get(file, i) : file;
        const char *text = json_string_value(json_object_get(o, "function"));
        if (text == NULL || strcmp(text, name) != 0 ||
            json_integer_value(json_object_get(o, "bits")) != (json_int_t)bits)
            continue;
        bool good = read_table(o, t);
        json_decref(file);
        return good ? NULL
                    : ebb_error(EBB_REJECTED,
                                "%s: the table of %s needs %u rising borders and %u levels", path,
                                name, (1u << bits) - 1, 1u << bits);
    }
    json_decref(file);
    return ebb_error(EBB_USAGE, "%s: there is no table of %u bits for %s", path, bits, name);
}
