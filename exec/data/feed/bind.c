/* bind.c: which array feeds which input of a model.
 *
 *     array 'label'  ──(map: "label", "target")──>  input 'target'
 *     array 'image'  ──(the same name)──>           input 'image'
 *
 * A loss adds the target to the inputs, so shapes are given before the pipeline runs and names are
 * judged after it: only then it is known what a name on the right of a pair may be.
 */
#include "exec/data/data.h"

#include "exec/data/feed/rows.h"
#include "exec/data/feed/span.h"
#include "onnx/graph/infer.h"

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
    ebb_status status =
        ebb_error(EBB_USAGE, "%s=%s: %s has no array '%s'", pair[0], pair[1], data->path, pair[0]);
    if (ebb_data_find(data, pair[1]) != NULL && ebb_value_find(g, pair[1]).i == 0)
        return ebb_hint(name_both(status, data, g, NULL), "the array comes first: %s=%s", pair[1],
                        pair[0]);
    for (size_t i = 0; near == NULL && i < data->count; i++)
        near = ebb_nearest(pair[0], &data->list[i].name, 1);
    return name_both(status, data, g, near);
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

/* What a decoder can do without needs no array. */
static bool is_wanted(const ebb_graph *g, ebb_value v)
{
    return is_fed(g, v) && !ebb_may_be_left_out(g, v);
}

static ebb_status check_fed(const ebb_data *data, const ebb_graph *g, const char *const *map)
{
    const bool table = strstr(data->path, ".csv") != NULL;
    for (size_t i = 0; i < g->input_count; i++) {
        const char *name = ebb_value_name(g, g->inputs[i]);
        if (is_wanted(g, g->inputs[i]) && array_for(data, map, name) == NULL)
            return name_both(ebb_error(EBB_USAGE,
                                       "no array feeds input '%s': say which with --map "
                                       "ARRAY=%s%s%s%s",
                                       name, name,
                                       table ? ", or which columns with --columns " : "",
                                       table ? name : "", table ? "=NAMES" : ""),
                             data, g, NULL);
    }
    return NULL;
}

/* ---- rows ---- */

/* An array that one file lacks would pair the rows of another file's with those of others. */
static ebb_status count_rows(const ebb_data *data, const ebb_named *array, const ebb_named **first,
                             int64_t *rows)
{
    if (*first == NULL) {
        *first = array;
        *rows = array->dims[0];
    }
    if (array->dims[0] != *rows)
        return ebb_error(EBB_USAGE, "%s: array '%s' has %lld rows and '%s' has %lld", data->path,
                         (*first)->name, (long long)*rows, array->name, (long long)array->dims[0]);
    return NULL;
}

/* In which order the elements go there, only the user knows. */
static ebb_status name_reshape(ebb_status status, const ebb_named *array, const ebb_type *type)
{
    char dims[256] = "-1";
    if (!ebb_rows_hold_as_much(array, type))
        return status;
    for (int i = 1; i < type->rank; i++) {
        const size_t used = strlen(dims);
        (void)snprintf(dims + used, sizeof dims - used, ", %lld", (long long)type->dims[i]);
    }
    return ebb_hint(status,
                    "a row has as many elements: if they lie in this order, save it as "
                    "%s.reshape(%s)",
                    array->name, dims);
}

/* Rows of other sizes than the model was exported with, which it turned out not to take. */
static ebb_status name_shapes(ebb_status status, const ebb_data *data, const ebb_named *array,
                              const char *input, const ebb_type *type, const ebb_graph *g)
{
    char have[256], need[256];
    const ebb_type given = ebb_type_tensor((ebb_dtype)array->dtype, array->rank, array->dims);
    status = name_reshape(status, array, type);
    return ebb_hint(status, "array '%s' of %s is %s, and input '%s' takes %s", array->name,
                    data->path, ebb_type_print(have, sizeof have, &given, NULL), input,
                    ebb_type_print(need, sizeof need, type, &g->model->names));
}

/* For how many processes a step is. */
static int64_t ranks_of(const ebb_graph *g)
{
    int64_t ranks = 1;
    EBB_EACH_NODE(g, n) {
        const ebb_attrs attrs = ebb_node_attrs(g, n);
        if (ebb_op_has(ebb_node_of(g, n)->op, EBB_TOGETHER))
            ranks = ebb_attr_int(&attrs, "ranks", 1);
    }
    return ranks;
}

/* An export without dynamic axes, whose nodes hold the number of rows of its example. */
static ebb_status name_batch(ebb_status status, const char *input, const ebb_type *type,
                             int64_t batch, const ebb_graph *g)
{
    const int64_t own = type->rank > 0 ? type->dims[0] : -1, ranks = ranks_of(g);
    if (own < 1 || own == batch)
        return status;
    if (ranks > 1)
        return ebb_hint(
            ebb_error(EBB_USAGE,
                      "the step is for %lld processes of %lld rows each, and input '%s' is given "
                      "%lld",
                      (long long)ranks, (long long)own, input, (long long)batch),
            "start it by `ebb launch -n %lld -- ebb train ... --batch %lld`; pass gather makes it "
            "a step of one process",
            (long long)ranks, (long long)(own * ranks));
    return ebb_hint(status,
                    "the model was exported for %lld rows at a time, and input '%s' is given %lld: "
                    "--batch %lld, with --accumulate for more, or export with dynamic_shapes "
                    "(dynamic_axes)",
                    (long long)own, input, (long long)batch, (long long)own);
}

EBB_API ebb_status ebb_data_shape(ebb_data *data, ebb_model *model, const char *const *map,
                                  int64_t batch, int64_t *rows)
{
    EBB_NEED(data);
    EBB_NEED(model);
    EBB_NEED(rows);
    EBB_NEED_COUNT(batch);
    ebb_graph *g = model->graph;
    const ebb_named *first = NULL;
    *rows = -1;
    EBB_TRY(check_arrays(data, g, map));
    for (size_t i = 0; i < g->input_count; i++) {
        ebb_value v = g->inputs[i];
        const char *name = ebb_value_name(g, v);
        const ebb_named *array = array_for(data, map, name);
        ebb_feed feed;
        bool forced;
        if (!is_fed(g, v) || array == NULL || array->rank < 1)
            continue;
        EBB_TRY(count_rows(data, array, &first, rows));
        EBB_TRY(ebb_feed_fit(&feed, data, array, name, ebb_value_of(g, v)->type, &forced));
        feed.dims[0] = batch;
        const ebb_type before = *ebb_value_of(g, v)->type;
        ebb_status status = ebb_bind_shape(g, name, feed.dims, feed.rank);
        if (status == NULL)
            status = ebb_infer_graph(g);
        if (status != NULL && forced)
            return name_shapes(status, data, array, name, &before, g);
        if (status != NULL)
            return name_batch(status, name, &before, batch, g);
    }
    return first != NULL ? NULL : check_fed(data, g, map);
}

/* How rows become those of an input in a way that nobody asked for; NULL: not so. */
static const char *way_of(const ebb_feed *feed)
{
    return feed->regrouped                   ? "line by line, as reshape takes them"
           : feed->move == EBB_MOVE_ONE_HOT  ? "as one-hot rows: if they are classes, loss "
                                               "cross-entropy takes their numbers as they are"
           : feed->move == EBB_MOVE_TO_INDEX ? "as the number of the column that has the 1"
                                             : NULL;
}

static ebb_status note_way(ebb_data *data, const ebb_feed *feed)
{
    char have[256], need[256];
    const ebb_named *a = feed->array;
    const char *way = way_of(feed);
    ebb_type from = ebb_type_tensor((ebb_dtype)a->dtype, a->rank, a->dims),
             to = ebb_type_tensor(feed->to, feed->rank, feed->dims);
    from.dims[0] = to.dims[0] = -1;
    return way == NULL
               ? NULL
               : ebb_data_add_note(data, "rows of '%s', %s, go to input '%s', %s, %s", a->name,
                                   ebb_type_print(have, sizeof have, &from, NULL), feed->input,
                                   ebb_type_print(need, sizeof need, &to, NULL), way);
}

/* The feed of an input of a finished model. */
static ebb_status make_feed(ebb_feed *feed, ebb_data *data, const ebb_graph *g, ebb_value v,
                            const ebb_named *array)
{
    const ebb_type *type = ebb_value_of(g, v)->type;
    bool forced;
    EBB_TRY(ebb_feed_fit(feed, data, array, ebb_value_name(g, v), type, &forced));
    if (forced) {
        char have[256], need[256];
        const ebb_type given = ebb_type_tensor((ebb_dtype)array->dtype, array->rank, array->dims);
        return name_reshape(ebb_error(EBB_USAGE,
                                      "array '%s' is %s, and its rows do not make input '%s', %s",
                                      array->name, ebb_type_print(have, sizeof have, &given, NULL),
                                      feed->input, ebb_type_print(need, sizeof need, type, NULL)),
                            array, type);
    }
    EBB_TRY(note_way(data, feed));
    ebb_find_span(&feed->span, g, v);
    ebb_feed_find_geometry(feed, data);
    return ebb_feed_normalise(feed, data);
}

EBB_API ebb_status ebb_data_bind(ebb_data *data, const ebb_model *model, const char *const *map)
{
    EBB_NEED(data);
    EBB_NEED(model);
    const ebb_graph *g = model->graph;
    const ebb_named *first = NULL;
    int64_t rows;
    size_t count = 0;
    EBB_TRY(check_arrays(data, g, map));
    EBB_TRY(check_inputs(data, g, map, false));
    EBB_TRY(check_fed(data, g, map));
    EBB_LOCAL_ARENA(scratch);
    ebb_feed *feeds = EBB_NEW(scratch, ebb_feed, g->input_count + 1);
    EBB_GOT(feeds);
    for (size_t i = 0; i < g->input_count; i++) {
        const ebb_named *array = array_for(data, map, ebb_value_name(g, g->inputs[i]));
        if (!is_fed(g, g->inputs[i]))
            continue;
        EBB_TRY(make_feed(&feeds[count++], data, g, g->inputs[i], array));
        EBB_TRY(count_rows(data, array, &first, &rows));
    }
    EBB_TRY(ebb_feed_check_normal(data, feeds, count));
    EBB_TRY(ebb_feed_check_geometry(data, feeds, count));
    return ebb_reader_bind(data, feeds, count);
}

/* ---- whole arrays ---- */

/* All rows of an array that is not in memory as it stands, or not of the input's type. */
static ebb_status convert_whole(ebb_named *out, ebb_data *data, const ebb_feed *feed)
{
    ebb_scratch scratch = {0};
    size_t bytes;
    const int64_t rows = feed->array->dims[0];
    int64_t *dims = EBB_NEW(&data->arena, int64_t, EBB_MAX_RANK);
    void *memory = dims != NULL && ebb_size_mul(&bytes, feed->bytes, (size_t)rows)
                       ? ebb_arena_alloc(&data->arena, bytes + 1)
                       : NULL;
    EBB_GOT(memory);
    memcpy(dims, feed->dims, sizeof feed->dims);
    dims[0] = rows;
    ebb_status status =
        ebb_feed_rows(feed, data, &(ebb_epoch){0}, 0, (size_t)rows, memory, &scratch);
    ebb_scratch_free(&scratch);
    *out = (ebb_named){feed->input, (int)feed->to, feed->rank, dims, memory};
    return status;
}

static ebb_status take_whole(ebb_named *out, ebb_data *data, const ebb_graph *g, ebb_value v,
                             const ebb_named *array, ebb_feed *feed)
{
    const char *name = ebb_value_name(g, v);
    bool forced;
    *out = *array;
    out->name = name;
    *feed = (ebb_feed){.input = name, .array = array};
    if (array->rank < 1)
        return NULL;
    EBB_TRY(ebb_feed_fit(feed, data, array, name, ebb_value_of(g, v)->type, &forced));
    EBB_TRY(note_way(data, feed));
    EBB_TRY(ebb_feed_normalise(feed, data));
    const bool same = feed->move == EBB_MOVE_NONE && feed->normal == NULL &&
                      (int)feed->to == array->dtype && feed->rank == array->rank &&
                      memcmp(feed->dims, array->dims, (size_t)feed->rank * sizeof *feed->dims) == 0;
    return same && array->data != NULL ? NULL : convert_whole(out, data, feed);
}

EBB_API ebb_status ebb_data_whole(ebb_data *data, const ebb_model *model, const char *const *map,
                                  ebb_batch *batch)
{
    EBB_NEED(data);
    EBB_NEED(model);
    EBB_NEED(batch);
    const ebb_graph *g = model->graph;
    EBB_TRY(check_arrays(data, g, map));
    EBB_TRY(check_inputs(data, g, map, true));
    EBB_TRY(check_fed(data, g, map));
    ebb_named *list = EBB_NEW(&data->arena, ebb_named, g->input_count + 1);
    ebb_feed *feeds = EBB_NEW(&data->arena, ebb_feed, g->input_count + 1);
    bool *taken = EBB_NEW(&data->arena, bool, data->count + 1);
    *batch = (ebb_batch){list, 0};
    EBB_GOT(list && feeds && taken);
    for (size_t i = 0; i < g->input_count; i++) {
        const ebb_named *array = array_for(data, map, ebb_value_name(g, g->inputs[i]));
        if (array == NULL)
            continue;
        EBB_TRY(
            take_whole(&list[batch->count], data, g, g->inputs[i], array, &feeds[batch->count]));
        taken[array - data->list] = true;
        batch->count++;
    }
    for (size_t i = 0; i < data->count; i++)
        if (!taken[i])
            EBB_TRY(ebb_data_add_note(data, "array '%s' of %s feeds no input and is left out",
                                      data->list[i].name, data->path));
    return ebb_feed_check_normal(data, feeds, batch->count);
}
