/* bind.c: which array feeds which input of a model.
 *
 *     array 'label'  ──(map: "label", "target")──>  input 'target'
 *     array 'image'  ──(the same name)──>           input 'image'
 *
 * A loss adds the target to the inputs, so shapes are given before the pipeline runs and names are
 * judged after it: only then it is known what a name on the right of a pair may be.
 */
#include "exec/data/data.h"

#include "onnx/graph/infer.h"

#include <stdarg.h>
#include <stdio.h>

/* ---- names ---- */

/* The array of the pair that feeds `input`; else the one of the same name. NULL: there is none. */
static const ebb_named *array_for(const ebb_data *data, const char *const *map, const char *input)
{
    for (size_t i = 0; map != NULL && map[i] != NULL; i += 2)
        if (strcmp(map[i + 1], input) == 0)
            return ebb_data_find(data, map[i]);
    return ebb_data_find(data, input);
}

static bool is_fed(const ebb_graph *g, ebb_value v)
{
    const uint32_t flags = ebb_value_of(g, v)->flags;
    return (flags & EBB_IS_INPUT) != 0 && (flags & EBB_IS_INITIALIZER) == 0;
}

/* "'image', 'label' and 3 more" */
typedef struct listing {
    char text[256];
    size_t used, count, more;
} listing;

static void list_name(listing *l, const char *name)
{
    const size_t room = sizeof l->text - l->used;
    const int wrote =
        l->more > 0 ? -1
                    : snprintf(l->text + l->used, room, "%s'%s'", l->count > 0 ? ", " : "", name);
    if (wrote < 0 || (size_t)wrote + sizeof " and 18446744073709551615 more" > room)
        l->more++;
    else
        l->used += (size_t)wrote;
    l->count++;
    l->text[l->used] = '\0';
}

static const char *list_end(listing *l)
{
    if (l->more > 0)
        (void)snprintf(l->text + l->used, sizeof l->text - l->used, "%s%zu more",
                       l->used > 0 ? " and " : "", l->more);
    return l->count > 0 ? l->text : "none";
}

/* Says what there is on both sides, below the sentence. */
static ebb_status name_both(ebb_status status, const ebb_data *data, const ebb_graph *g,
                            const char *near)
{
    listing arrays = {0}, inputs = {0};
    for (size_t i = 0; i < data->count; i++)
        list_name(&arrays, data->list[i].name);
    for (size_t i = 0; i < g->input_count; i++)
        if (is_fed(g, g->inputs[i]))
            list_name(&inputs, ebb_value_name(g, g->inputs[i]));
    if (near != NULL)
        status = ebb_hint(status, "did you mean '%s'?", near);
    return ebb_hint(status, "%s has %s; the model takes %s", data->path, list_end(&arrays),
                    list_end(&inputs));
}

static ebb_status unknown_array(const ebb_data *data, const ebb_graph *g, const char *const *pair)
{
    const char *near = NULL;
    for (size_t i = 0; near == NULL && i < data->count; i++)
        near = ebb_nearest(pair[0], &data->list[i].name, 1);
    return name_both(
        ebb_error(EBB_USAGE, "%s=%s: %s has no array '%s'", pair[0], pair[1], data->path, pair[0]),
        data, g, near);
}

static ebb_status unknown_input(const ebb_data *data, const ebb_graph *g, const char *const *pair)
{
    const char *near = NULL;
    for (size_t i = 0; near == NULL && i < g->input_count; i++) {
        const char *name = ebb_value_name(g, g->inputs[i]);
        if (is_fed(g, g->inputs[i]))
            near = ebb_nearest(pair[1], &name, 1);
    }
    return name_both(
        ebb_error(EBB_USAGE, "%s=%s: the model has no input '%s'", pair[0], pair[1], pair[1]), data,
        g, near);
}

static ebb_status check_arrays(const ebb_data *data, const ebb_graph *g, const char *const *map)
{
    for (size_t i = 0; map != NULL && map[i] != NULL; i += 2) {
        if (ebb_data_find(data, map[i]) == NULL)
            return unknown_array(data, g, map + i);
        for (size_t k = 0; k < i; k += 2)
            if (strcmp(map[k + 1], map[i + 1]) == 0)
                return name_both(ebb_error(EBB_USAGE, "input '%s' is given two arrays: '%s', '%s'",
                                           map[i + 1], map[k], map[i]),
                                 data, g, NULL);
    }
    return NULL;
}

static bool has_default(const ebb_graph *g, ebb_value v)
{
    const uint32_t both = EBB_IS_INPUT | EBB_IS_INITIALIZER;
    return (ebb_value_of(g, v)->flags & both) == both;
}

static ebb_status check_inputs(const ebb_data *data, const ebb_graph *g, const char *const *map,
                               bool defaults)
{
    for (size_t i = 0; map != NULL && map[i] != NULL; i += 2) {
        ebb_value v = ebb_value_find(g, map[i + 1]);
        if (v.i == 0 || !(is_fed(g, v) || (defaults && has_default(g, v))))
            return unknown_input(data, g, map + i);
    }
    return NULL;
}

static ebb_status check_fed(const ebb_data *data, const ebb_graph *g, const char *const *map)
{
    for (size_t i = 0; i < g->input_count; i++) {
        const char *name = ebb_value_name(g, g->inputs[i]);
        if (is_fed(g, g->inputs[i]) && array_for(data, map, name) == NULL)
            return name_both(ebb_error(EBB_USAGE,
                                       "no array feeds input '%s': say which with --map ARRAY=%s",
                                       name, name),
                             data, g, NULL);
    }
    return NULL;
}

/* ---- rows ---- */

EBB_API ebb_status ebb_data_shape(const ebb_data *data, ebb_model *model, const char *const *map,
                                  int64_t batch, int64_t *rows)
{
    ebb_graph *g = model->graph;
    *rows = -1;
    EBB_TRY(check_arrays(data, g, map));
    for (size_t i = 0; i < g->input_count; i++) {
        int64_t dims[EBB_MAX_RANK];
        const char *name = ebb_value_name(g, g->inputs[i]);
        const ebb_named *array = array_for(data, map, name);
        if (!is_fed(g, g->inputs[i]) || array == NULL || array->rank < 1)
            continue;
        memcpy(dims, array->dims, (size_t)array->rank * sizeof *dims);
        dims[0] = batch;
        if (*rows < 0 || array->dims[0] < *rows)
            *rows = array->dims[0];
        EBB_TRY(ebb_bind_shape(g, name, dims, array->rank));
        EBB_TRY(ebb_infer_graph(g));
    }
    return NULL;
}

EBB_API ebb_status ebb_data_bind(ebb_data *data, const ebb_model *model, const char *const *map)
{
    const ebb_graph *g = model->graph;
    EBB_TRY(check_arrays(data, g, map));
    EBB_TRY(check_inputs(data, g, map, false));
    return check_fed(data, g, map);
}

/* ---- whole arrays ---- */

ebb_status ebb_data_add_note(ebb_data *data, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (size_t i = 0; i < data->note_count; i++)
        if (strcmp(data->notes[i], text) == 0)
            return NULL;
    const char *kept = ebb_arena_strdup(&data->arena, text);
    if (kept == NULL || !ebb_arena_grow(&data->arena, &data->notes, data->note_count,
                                        &data->note_capacity, sizeof *data->notes))
        return ebb_error_memory();
    data->notes[data->note_count++] = kept;
    return NULL;
}

EBB_API const char *ebb_data_note(const ebb_data *data, size_t index)
{
    return index < data->note_count ? data->notes[index] : NULL;
}

static bool is_taken(const ebb_batch *batch, const ebb_named *array)
{
    for (size_t i = 0; i < batch->count; i++)
        if (batch->tensors[i].data == array->data)
            return true;
    return false;
}

EBB_API ebb_status ebb_data_whole(ebb_data *data, const ebb_model *model, const char *const *map,
                                  ebb_batch *batch)
{
    const ebb_graph *g = model->graph;
    EBB_TRY(check_arrays(data, g, map));
    EBB_TRY(check_inputs(data, g, map, true));
    EBB_TRY(check_fed(data, g, map));
    ebb_named *list = EBB_NEW(&data->arena, ebb_named, g->input_count + 1);
    *batch = (ebb_batch){list, 0};
    if (list == NULL)
        return ebb_error_memory();
    for (size_t i = 0; i < g->input_count; i++) {
        const char *name = ebb_value_name(g, g->inputs[i]);
        const ebb_named *array = array_for(data, map, name);
        if (array == NULL)
            continue;
        list[batch->count] = *array;
        list[batch->count++].name = name;
    }
    for (size_t i = 0; i < data->count; i++)
        if (!is_taken(batch, &data->list[i]))
            EBB_TRY(ebb_data_add_note(data, "array '%s' of %s feeds no input and is left out",
                                      data->list[i].name, data->path));
    return NULL;
}
