/* bits.c: bits for each tensor by the greedy rule of ActNN and GACT, and what was measured of them.
 */
#include "passes/memory/lossy/bits.h"

#include <math.h>
#include <string.h>

#include <jansson.h>

static int fewer(int bits)
{
    return bits == EBB_BITS_LEAVE ? 8 : bits / 2;
}

static double variance(const ebb_bits_item *item, int bits)
{
    double top = ldexp(1.0, bits) - 1.0;
    return item->cost / (top * top);
}

/* What the next step down costs, for each bit that it frees. */
static double price(const ebb_bits_item *item)
{
    int next = fewer(item->bits);
    return (variance(item, next) - variance(item, item->bits)) /
           (item->weight * (double)(item->bits - next));
}

void ebb_bits_share(ebb_bits_item *const *items, size_t count, int most, double average)
{
    double used = 0, budget = 0;
    for (size_t i = 0; i < count; i++) {
        items[i]->bits = most;
        used += items[i]->weight * most;
        budget += items[i]->weight * average;
    }
    while (used > budget) {
        ebb_bits_item *cheapest = NULL;
        double lowest = 0;
        for (size_t i = 0; i < count; i++) {
            if (fewer(items[i]->bits) < items[i]->least || items[i]->bits == 1)
                continue;
            double now = price(items[i]);
            if (cheapest == NULL || now < lowest) {
                cheapest = items[i];
                lowest = now;
            }
        }
        if (cheapest == NULL)
            return;
        used -= cheapest->weight * (double)(cheapest->bits - fewer(cheapest->bits));
        cheapest->bits = fewer(cheapest->bits);
    }
}

/* ---- measurements ---- */

static ebb_status not_such_a_file(const char *path, const char *what)
{
    return ebb_error(EBB_REJECTED, "%s is no file of sensitivities (ebb.sensitivity/1): %s", path,
                     what);
}

/* A number that is finite and not negative; false where there is none. */
static bool number(const json_t *object, const char *key, double *x)
{
    const json_t *value = json_object_get(object, key);
    *x = json_number_value(value);
    return json_is_number(value) && isfinite(*x) && *x >= 0;
}

/* Each name's factor, in an object of reals. */
static ebb_status read_factors(json_t *factors, const json_t *file, const char *path,
                               bool by_gradient)
{
    const char *schema = json_string_value(json_object_get(file, "schema"));
    const json_t *tensors = json_object_get(file, "tensors");
    if (schema == NULL || strcmp(schema, "ebb.sensitivity/1") != 0)
        return not_such_a_file(path, "its schema is another");
    if (!json_is_array(tensors))
        return not_such_a_file(path, "it has no list of tensors");
    for (size_t i = 0; i < json_array_size(tensors); i++) {
        const json_t *t = json_array_get(tensors, i);
        const char *name = json_string_value(json_object_get(t, "name"));
        double a = 0, b = 1;
        if (name == NULL)
            return not_such_a_file(path, "a tensor has no name");
        if (by_gradient ? !number(t, "sensitivity", &a)
                        : !number(t, "range2", &a) || !number(t, "grad2", &b))
            return not_such_a_file(path, by_gradient ? "a tensor has no sensitivity"
                                                     : "a tensor has no range2 and grad2");
        if (json_object_set_new(factors, name, json_real(fmin(a * b, 1e300))) != 0)
            return not_such_a_file(path, "a name is not UTF-8");
    }
    return NULL;
}

static void apply(ebb_bits_item *const *items, size_t count, const json_t *factors, size_t *missing)
{
    double sum = 0;
    *missing = 0;
    for (size_t i = 0; i < count; i++) {
        const json_t *factor = json_object_get(factors, items[i]->name);
        *missing += factor == NULL;
        sum += json_number_value(factor);
    }
    double mean = *missing < count ? sum / (double)(count - *missing) : 1;
    for (size_t i = 0; i < count; i++) {
        const json_t *factor = json_object_get(factors, items[i]->name);
        items[i]->cost *= factor != NULL ? json_number_value(factor) : mean;
    }
}

ebb_status ebb_bits_measured(ebb_bits_item *const *items, size_t count, const char *path,
                             bool by_gradient, size_t *missing)
{
    json_error_t error;
    json_t *file = json_load_file(path, 0, &error), *factors = json_object();
    ebb_status status = NULL;
    if (factors == NULL)
        status = ebb_error_memory();
    else if (file == NULL)
        status = json_error_code(&error) == json_error_cannot_open_file
                     ? ebb_error(EBB_IO, "%s cannot be read", path)
                     : ebb_error(EBB_REJECTED, "%s line %d: %s", path, error.line, error.text);
    else
        status = read_factors(factors, file, path, by_gradient);
    if (status == NULL)
        apply(items, count, factors, missing);
    json_decref(file);
    json_decref(factors);
    return status;
}
