/* deviation.c: the numbers of two programs side by side.
 *
 * values     every output and state that both have: largest differences, cosine, relative L2. Of a
 *            state of floats the last two are of its change over the step: one step moves a
 *            parameter so little that the parameters themselves always look alike.
 * gradients  the same by parameter. A step with an optimizer keeps no gradient, but the first step
 *            from zeros leaves a multiple of it in Adam's first moment and in momentum; so it is
 *            read from there, and where neither is, from the parameter's change.
 *
 * A gradient whose elements are a thousandth of the largest parameter's is noise where the
 * mathematics says zero (a bias before batch norm): it is counted as negligible and not ranked.
 */
#include "exec/look/deviation.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct deviation {
    double max_abs, max_rel;           /* max_rel: by the largest magnitude in the tensor */
    double before, after, both, apart; /* sums of squares, of products, of squared differences */
    int64_t count;
    bool bit_equal, broken; /* broken: not finite */
} deviation;

static double cosine_of(const deviation *d)
{
    if (d->broken)
        return NAN;
    if (d->before > 0 && d->after > 0)
        return d->both / (sqrt(d->before) * sqrt(d->after));
    return d->before > 0 || d->after > 0 ? 0.0 : 1.0;
}

/* By the length of the one before; infinite where that is zero and the other is not. */
static double relative_l2(const deviation *d)
{
    if (d->broken)
        return NAN;
    return d->apart == 0 ? 0.0 : sqrt(d->apart) / sqrt(d->before);
}

static double rms(const deviation *d)
{
    return d->count > 0 ? sqrt(d->before / (double)d->count) : 0.0;
}

/* origin: what both were before the step; NULL: nothing is taken off. */
static deviation compare(const ebb_named *a, const ebb_named *b, const void *origin)
{
    ebb_type type = ebb_type_tensor((ebb_dtype)a->dtype, a->rank, a->dims);
    deviation d = {.bit_equal = true};
    size_t bytes = 0;
    if (!ebb_type_elements(&type, &d.count) || !ebb_type_bytes(&type, &bytes) || bytes == 0)
        return d;
    ebb_tensor x = {.type = type, .data = a->data, .bytes = bytes};
    ebb_tensor y = {.type = type, .data = b->data, .bytes = bytes};
    ebb_tensor z = {.type = type, .data = origin, .bytes = bytes};
    d.bit_equal = memcmp(a->data, b->data, bytes) == 0;
    double largest = 0;
    for (int64_t i = 0; i < d.count; i++) {
        double u = ebb_tensor_double(&x, i), v = ebb_tensor_double(&y, i);
        if (isnan(u) && isnan(v))
            continue;
        double error = u == v ? 0.0 : fabs(u - v);
        d.broken |= !isfinite(error);
        d.max_abs = error > d.max_abs ? error : d.max_abs;
        largest = fabs(u) > largest ? fabs(u) : largest;
        double from = origin != NULL ? ebb_tensor_double(&z, i) : 0.0;
        d.before += (u - from) * (u - from);
        d.after += (v - from) * (v - from);
        d.both += (u - from) * (v - from);
        d.apart += error * error;
    }
    d.max_rel = d.max_abs == 0 ? 0.0 : d.max_abs / largest;
    if (d.broken)
        d.max_abs = d.max_rel = NAN;
    return d;
}

/* JSON has no NaN and no infinity: null says that the numbers are not finite. */
static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static void set(json_t *o, const char *key, double x)
{
    (void)json_object_set_new(o, key, number(x));
}

static bool same_type(const ebb_named *a, const ebb_named *b)
{
    bool same = a->dtype == b->dtype && a->rank == b->rank;
    for (int i = 0; same && i < a->rank; i++)
        same = a->dims[i] == b->dims[i];
    return same && ebb_dtype_bits((ebb_dtype)a->dtype) >= 8 && a->dtype != EBB_C64 &&
           a->dtype != EBB_C128;
}

/* *both: each has a value of this name, and of one type. That a device cannot be read is an error.
 */
static ebb_status get_both(bool *both, ebb_program *before, ebb_program *after, const char *name,
                           ebb_named *a, ebb_named *b)
{
    ebb_status status = ebb_program_get(before, name, a);
    if (status == NULL)
        status = ebb_program_get(after, name, b);
    *both = status == NULL && same_type(a, b);
    return ebb_status_code(status) == EBB_USAGE ? NULL : status; // there is none of this name
}

/* ---- before the step ---- */

ebb_status ebb_keep_states(ebb_kept_states *kept, ebb_program *program, ebb_arena *arena)
{
    const ebb_graph *g = program->plan.g;
    kept->bytes = (const void **)ebb_arena_zeroed(arena, g->value_count + 1, sizeof *kept->bytes);
    EBB_GOT(kept->bytes);
    for (uint32_t i = 1; i < g->value_count; i++) {
        const ebb_value_info *info = ebb_value_of(g, (ebb_value){i});
        size_t bytes = 0;
        ebb_named now;
        if (info->dead || !(info->flags & EBB_IS_STATE) ||
            !ebb_dtype_is_float((ebb_dtype)info->type->dtype) ||
            !ebb_type_bytes(info->type, &bytes) || bytes == 0)
            continue;
        EBB_TRY(ebb_program_get(program, ebb_value_name(g, (ebb_value){i}), &now));
        void *copy = ebb_arena_alloc(arena, bytes);
        EBB_GOT(copy);
        kept->bytes[i] = memcpy(copy, now.data, bytes);
    }
    return NULL;
}

/* ---- gradients ---- */

/* Where the gradient of parameter w can be seen, best first. */
static const struct {
    const char *suffix, *of;
} traces[] = {{"_grad", "gradients"},
              {".exp_avg", "first moments"},
              {".momentum", "momenta"},
              {"", "updates"}};
enum { TRACES = sizeof traces / sizeof *traces, RANKED = 10 };

typedef struct gradient {
    const char *name; /* of the parameter */
    deviation d;
} gradient;

typedef struct gradients {
    gradient *list;
    size_t count;
} gradients;

static ebb_status collect(gradients *out, size_t trace, ebb_program *before, ebb_program *after,
                          const ebb_kept_states *kept, ebb_arena *scratch)
{
    const ebb_graph *g = before->plan.g;
    out->count = 0;
    out->list = EBB_NEW(scratch, gradient, g->initializer_count + 1);
    EBB_GOT(out->list);
    for (size_t i = 0; i < g->initializer_count; i++) {
        ebb_value w = g->initializers[i];
        const ebb_value_info *info = ebb_value_of(g, w);
        if (info->dead || info->role != EBB_ROLE_PARAMETER)
            continue;
        const char *name = ebb_value_name(g, w);
        const char *there = ebb_arena_printf(scratch, "%s%s", name, traces[trace].suffix);
        EBB_GOT(there);
        ebb_value v = ebb_value_find(g, there);
        ebb_named a, b;
        bool both;
        if (v.i == 0 || !(ebb_value_of(g, v)->flags & (trace == 0 ? EBB_IS_OUTPUT : EBB_IS_STATE)))
            continue;
        EBB_TRY(get_both(&both, before, after, there, &a, &b));
        if (!both)
            continue;
        out->list[out->count++] = (gradient){name, compare(&a, &b, kept->bytes[v.i])};
    }
    return NULL;
}

static int farthest_first(const void *x, const void *y)
{
    const gradient *a = x, *b = y;
    double u = relative_l2(&a->d), v = relative_l2(&b->d);
    if (isnan(u) || isnan(v))
        return isnan(u) == isnan(v) ? 0 : isnan(u) ? -1 : 1;
    return u > v ? -1 : u < v;
}

static json_t *gradient_entry(const gradient *g)
{
    json_t *o = json_object();
    (void)json_object_set_new(o, "name", json_string(g->name));
    set(o, "cosine", cosine_of(&g->d));
    set(o, "relative_l2", relative_l2(&g->d));
    return o;
}

static json_t *gradients_object(const gradients *all, const char *of)
{
    json_t *o = json_object(), *worst = json_array();
    deviation total = {0};
    double largest = 0, least_cosine = 1, most = 0;
    size_t negligible = 0;
    for (size_t i = 0; i < all->count; i++)
        largest = fmax(largest, rms(&all->list[i].d));
    for (size_t i = 0; i < all->count; i++) {
        const deviation *d = &all->list[i].d;
        total.before += d->before;
        total.after += d->after;
        total.both += d->both;
        total.apart += d->apart;
        total.broken |= d->broken;
        if (!d->broken && rms(d) < largest / 1000) {
            negligible++;
            continue;
        }
        double cosine = cosine_of(d), l2 = relative_l2(d);
        least_cosine = cosine < least_cosine || isnan(cosine) ? cosine : least_cosine;
        most = l2 > most || isnan(l2) ? l2 : most;
        if (json_array_size(worst) < RANKED)
            (void)json_array_append_new(worst, gradient_entry(&all->list[i]));
    }
    (void)json_object_set_new(o, "of", json_string(of));
    (void)json_object_set_new(o, "count", json_integer((json_int_t)all->count));
    (void)json_object_set_new(o, "negligible", json_integer((json_int_t)negligible));
    set(o, "cosine", cosine_of(&total));
    set(o, "relative_l2", relative_l2(&total));
    set(o, "least_cosine", least_cosine);
    set(o, "largest_relative_l2", most);
    (void)json_object_set_new(o, "worst", worst);
    return o;
}

/* Of the traces that most parameters left, the best. */
static ebb_status compare_gradients(json_t *root, ebb_program *before, ebb_program *after,
                                    const ebb_kept_states *kept, ebb_arena *scratch)
{
    gradients best = {0};
    const char *of = NULL;
    for (size_t t = 0; t < TRACES; t++) {
        gradients found;
        EBB_TRY(collect(&found, t, before, after, kept, scratch));
        if (found.count > best.count) {
            best = found;
            of = traces[t].of;
        }
    }
    if (best.count == 0)
        return NULL;
    qsort(best.list, best.count, sizeof *best.list, farthest_first);
    (void)json_object_set_new(root, "gradients", gradients_object(&best, of));
    return NULL;
}

/* ---- all ---- */

static json_t *value_entry(const char *name, const char *kind, const deviation *d)
{
    json_t *entry = json_object();
    (void)json_object_set_new(entry, "name", json_string(name));
    (void)json_object_set_new(entry, "kind", json_string(kind));
    set(entry, "max_abs_error", d->max_abs);
    set(entry, "max_rel_error", d->max_rel);
    set(entry, "cosine", cosine_of(d));
    set(entry, "relative_l2", relative_l2(d));
    (void)json_object_set_new(entry, "bit_equal", json_boolean(d->bit_equal));
    return entry;
}

/* The largest relative error, but of what is next to zero beside others of its role: there it is that of
 * noise, which has no bound. */
static double largest_relative(const ebb_graph *g, const ebb_value *list, const deviation *d,
                               size_t count)
{
    double largest[EBB_ROLE_COUNT] = {0}, most = 0;
    for (size_t i = 0; i < count; i++) {
        const uint8_t role = ebb_value_of(g, list[i])->role;
        largest[role] = fmax(largest[role], rms(&d[i]));
    }
    for (size_t i = 0; i < count; i++) {
        if (!d[i].broken && rms(&d[i]) < largest[ebb_value_of(g, list[i])->role] / 1000)
            continue;
        most = d[i].max_rel > most || isnan(d[i].max_rel) ? d[i].max_rel : most;
    }
    return most;
}

ebb_status ebb_deviation_json(json_t *root, ebb_program *before, ebb_program *after,
                              const ebb_kept_states *kept, ebb_arena *scratch)
{
    const ebb_graph *g = before->plan.g;
    double max_abs = 0;
    bool equal = true;
    size_t count = 0;
    json_t *values = json_array(), *cosine = json_object();
    deviation *all = EBB_NEW(scratch, deviation, g->value_count + (size_t)1);
    ebb_value *list = EBB_NEW(scratch, ebb_value, g->value_count + (size_t)1);
    (void)json_object_set_new(root, "values", values);
    (void)json_object_set_new(root, "cosine", cosine);
    EBB_GOT(all && list);
    for (uint32_t i = 1; i < g->value_count; i++) {
        ebb_value v = {i};
        const ebb_value_info *info = ebb_value_of(g, v);
        bool output = (info->flags & EBB_IS_OUTPUT) != 0;
        const char *name = ebb_value_name(g, v);
        ebb_named a, b;
        bool both;
        if (info->dead || !(output || (info->flags & EBB_IS_STATE)))
            continue;
        EBB_TRY(get_both(&both, before, after, name, &a, &b));
        if (!both)
            continue;
        const deviation d = compare(&a, &b, kept->bytes[i]);
        list[count] = v;
        all[count++] = d;
        equal &= d.bit_equal;
        max_abs = d.max_abs > max_abs || isnan(d.max_abs) ? d.max_abs : max_abs;
        (void)json_array_append_new(values, value_entry(name, output ? "output" : "state", &d));
        (void)json_object_set_new(cosine, name, number(cosine_of(&d)));
    }
    set(root, "max_abs_error", max_abs);
    set(root, "max_rel_error", largest_relative(g, list, all, count));
    (void)json_object_set_new(root, "bit_equal", json_boolean(equal));
    return compare_gradients(root, before, after, kept, scratch);
}
