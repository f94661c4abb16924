/* few_bit.c: a table of levels as JSON. */
#include "api/api.h"
#include "passes/memory/lossy/few_bit_table.h"

static json_t *list_of(const double *list, size_t count)
{
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(array, json_real(list[i]));
    return array;
}

ebb_status ebb_few_bit_json(const char *function, double alpha, unsigned bits, bool normal,
                            char **json)
{
    EBB_NEED(function);
    EBB_NEED(json);
    EBB_LOCAL_ARENA(arena);
    ebb_few_bit_table table;
    *json = NULL;
    EBB_TRY(ebb_few_bit_best(&table, function, alpha, bits, normal, arena));
    size_t levels = (size_t)1 << bits;
    json_t *o = json_object();
    json_object_set_new(o, "schema", json_string("ebb.few-bit/1"));
    json_object_set_new(o, "function", json_string(table.function));
    json_object_set_new(o, "alpha", json_real(alpha));
    json_object_set_new(o, "bits", json_integer((json_int_t)bits));
    json_object_set_new(o, "weight", json_string(normal ? "normal" : "flat"));
    json_object_set_new(o, "borders", list_of(table.borders, levels - 1));
    json_object_set_new(o, "levels", list_of(table.levels, levels));
    json_object_set_new(o, "squared_error", json_real(table.squared));
    json_object_set_new(o, "largest_error", json_real(table.most));
    json_object_set_new(o, "rms_normal", json_real(table.rms));
    return ebb_json_text(json, o);
}
