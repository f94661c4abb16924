/* fit.c: chooses how the rows of an array become those of an input, by their shapes and types.
 *
 * In this order, dim 0 aside: the dims as they are; channels moved, for images and what has more dims;
 * dims of 1 that only one side has; one-hot rows to class numbers and back; the elements of a picture of one
 * channel behind each other, and back. An open dim of the input takes any size.
 */
#include "exec/data/feed/feed.h"

static bool dim_fits(const ebb_type *type, int at, int64_t size)
{
    return type->dims[at] < 0 || type->dims[at] == size;
}

static bool fits(const ebb_type *type, int rank, const int64_t *dims)
{
    if (type->rank != rank)
        return false;
    for (int i = 1; i < rank; i++)
        if (!dim_fits(type, i, dims[i]))
            return false;
    return true;
}

static void take_dims(ebb_feed *feed, int rank, const int64_t *dims)
{
    feed->rank = rank;
    memcpy(feed->dims, dims, (size_t)rank * sizeof *dims);
}

static int64_t product(const int64_t *dims, int from, int to)
{
    int64_t count = 1;
    for (int i = from; i < to; i++)
        count *= dims[i]; // the bytes of the whole array were counted without overflow
    return count;
}

static bool try_channels(ebb_feed *feed, const ebb_type *type, bool first)
{
    const ebb_named *a = feed->array;
    const int last = a->rank - 1;
    int64_t dims[EBB_MAX_RANK];
    if (a->rank < 4)
        return false;
    dims[0] = a->dims[0];
    for (int i = 1; i <= last; i++)
        dims[i] = first ? a->dims[i == 1 ? last : i - 1] : a->dims[i == last ? 1 : i + 1];
    if (!fits(type, a->rank, dims))
        return false;
    take_dims(feed, a->rank, dims);
    feed->move = first ? EBB_MOVE_CHANNELS_FIRST : EBB_MOVE_CHANNELS_LAST;
    feed->outer = 1;
    feed->channels = dims[first ? 1 : last];
    feed->inner = product(dims, 1, a->rank) / (feed->channels > 0 ? feed->channels : 1);
    return true;
}

/* The same dims but for those of 1. */
static bool try_ones(ebb_feed *feed, const ebb_type *type)
{
    const ebb_named *a = feed->array;
    int64_t dims[EBB_MAX_RANK] = {a->dims[0]};
    int at = 1;
    if (type->rank < 1)
        return false;
    for (int i = 1; i < type->rank; i++) {
        while (at < a->rank && a->dims[at] == 1 && type->dims[i] != 1)
            at++;
        if (type->dims[i] == 1 && !(at < a->rank && a->dims[at] == 1)) {
            dims[i] = 1;
            continue;
        }
        if (at == a->rank || !dim_fits(type, i, a->dims[at]))
            return false;
        dims[i] = a->dims[at++];
    }
    while (at < a->rank && a->dims[at] == 1)
        at++;
    if (at < a->rank)
        return false;
    take_dims(feed, type->rank, dims);
    return true;
}

static bool try_index(ebb_feed *feed, const ebb_type *type)
{
    const ebb_named *a = feed->array;
    if (ebb_dtype_is_float((ebb_dtype)type->dtype) || type->dtype == EBB_BOOL || a->rank < 2)
        return false;
    const int axes[] = {a->rank - 1, 1};
    for (int k = 0; k < 2; k++) {
        const int axis = axes[k];
        int64_t dims[EBB_MAX_RANK];
        for (int i = 0, n = 0; i < a->rank; i++)
            if (i != axis)
                dims[n++] = a->dims[i];
        if (a->dims[axis] < 2 || !fits(type, a->rank - 1, dims))
            continue;
        take_dims(feed, a->rank - 1, dims);
        feed->move = EBB_MOVE_TO_INDEX;
        feed->outer = product(a->dims, 1, axis);
        feed->channels = a->dims[axis];
        feed->inner = product(a->dims, axis + 1, a->rank);
        return true;
    }
    return false;
}

static bool try_one_hot(ebb_feed *feed, const ebb_type *type)
{
    const ebb_named *a = feed->array;
    int rank = a->rank;
    if (ebb_dtype_is_float((ebb_dtype)a->dtype) || type->rank < 2)
        return false;
    if (rank == type->rank && a->dims[rank - 1] == 1)
        rank--; // [N, 1] of numbers
    const int axes[] = {type->rank - 1, 1};
    for (int k = 0; k < 2; k++) {
        const int axis = axes[k];
        int64_t dims[EBB_MAX_RANK];
        bool same = type->rank == rank + 1 && type->dims[axis] > 1;
        for (int i = 0, n = 0; same && i < type->rank; i++) {
            dims[i] = i == axis ? type->dims[axis] : a->dims[n++];
            same = i == 0 || dim_fits(type, i, dims[i]);
        }
        if (!same)
            continue;
        take_dims(feed, type->rank, dims);
        feed->move = EBB_MOVE_ONE_HOT;
        feed->outer = product(dims, 1, axis);
        feed->channels = dims[axis];
        feed->inner = product(dims, axis + 1, type->rank);
        return true;
    }
    return false;
}

static int long_dims(const ebb_type *type)
{
    int count = 0;
    for (int i = 1; i < type->rank; i++)
        count += type->dims[i] != 1;
    return count;
}

bool ebb_rows_hold_as_much(const ebb_named *array, const ebb_type *type)
{
    int64_t need;
    ebb_type row = *type;
    row.dims[0] = 1;
    return type->rank > 0 && ebb_type_elements(&row, &need) && need > 0 &&
           need == product(array->dims, 1, array->rank);
}

/* All elements of a row in one dim on one side, and in lines on the other. With channels there would be two
 * orders, and a shape alone does not say which. */
static bool try_lines(ebb_feed *feed, const ebb_type *type)
{
    const ebb_named *a = feed->array;
    const ebb_type given = ebb_type_tensor((ebb_dtype)a->dtype, a->rank, a->dims);
    const int from = long_dims(&given), to = long_dims(type);
    if (!((from == 1 && to == 2) || (from == 2 && to == 1)) ||
        !ebb_dtype_is_float((ebb_dtype)type->dtype) || !ebb_rows_hold_as_much(a, type))
        return false;
    take_dims(feed, type->rank, type->dims);
    feed->dims[0] = a->dims[0];
    feed->regrouped = true;
    return true;
}

static bool choose(ebb_feed *feed, const ebb_type *type, int layout)
{
    const ebb_named *a = feed->array;
    const bool moves = layout != 0 && a->rank >= 4;
    if (moves && layout == 'L' && try_channels(feed, type, true))
        return true;
    if (type->rank < 0 || fits(type, a->rank, a->dims)) {
        take_dims(feed, a->rank, a->dims);
        return true;
    }
    return (!moves && (try_channels(feed, type, true) || try_channels(feed, type, false))) ||
           try_ones(feed, type) || try_index(feed, type) || try_one_hot(feed, type) ||
           try_lines(feed, type);
}

/* Pictures have the size that the input says, or the options where it leaves that open. */
static ebb_status fit_pictures(ebb_feed *feed, const ebb_data *data, const ebb_type *type)
{
    const ebb_fit *fit = data->fit;
    const int64_t *d = type->dims;
    const bool last = type->rank == 4 && d[1] != 1 && d[1] != 3 && (d[3] == 1 || d[3] == 3);
    const int64_t channels = type->rank != 4 ? 0 : d[last ? 3 : 1] < 0 ? 3 : d[last ? 3 : 1];
    char text[256];
    if (channels != 1 && channels != 3)
        return ebb_error(EBB_USAGE,
                         "pictures have 1 or 3 channels, in dim 1 or the last of 4, and input '%s' "
                         "takes %s",
                         feed->input, ebb_type_print(text, sizeof text, type, NULL));
    int64_t height = d[last ? 1 : 2], width = d[last ? 2 : 3];
    if (fit != NULL && fit->image_height > 0 &&
        ((height >= 0 && height != fit->image_height) || (width >= 0 && width != fit->image_width)))
        return ebb_hint(ebb_error(EBB_USAGE,
                                  "an image size of %lldx%lld, where input '%s' takes %lldx%lld",
                                  (long long)fit->image_height, (long long)fit->image_width,
                                  feed->input, (long long)height, (long long)width),
                        "leave --image-size out, or export with these sizes open");
    if (fit != NULL && height < 0)
        height = fit->image_height;
    if (fit != NULL && width < 0)
        width = fit->image_width;
    if (height < 1 || width < 1 || height > EBB_PICTURE_SIDE || width > EBB_PICTURE_SIDE)
        return ebb_hint(ebb_error(EBB_USAGE, "which size pictures have is left open by input '%s'",
                                  feed->input),
                        "say it: --image-size 224x224");
    const int64_t first[] = {feed->array->dims[0], channels, height, width};
    const int64_t after[] = {feed->array->dims[0], height, width, channels};
    take_dims(feed, 4, last ? after : first);
    feed->move = last ? EBB_MOVE_NONE : EBB_MOVE_CHANNELS_FIRST;
    feed->channels = channels;
    feed->inner = height * width;
    feed->shape = (ebb_geometry){.augments = fit != NULL && fit->augments,
                                 .picture = true,
                                 .channels = (int)channels,
                                 .planes = 1,
                                 .height = height,
                                 .width = width,
                                 .pixel = (size_t)channels};
    return NULL;
}

/* Elements and bytes of a row on both sides. */
static ebb_status count_row(ebb_feed *feed)
{
    const ebb_named *a = feed->array;
    int64_t dims[EBB_MAX_RANK] = {1};
    size_t bytes = 0;
    feed->count = (size_t)product(feed->dims, 1, feed->rank);
    feed->raw_count = feed->shape.picture ? feed->count : (size_t)product(a->dims, 1, a->rank);
    for (int i = 1; i < feed->rank; i++)
        dims[i] = feed->dims[i];
    const ebb_type row = ebb_type_tensor(feed->to, feed->rank, dims);
    if (ebb_dtype_bits(feed->to) % 8 != 0 || !ebb_type_bytes(&row, &bytes))
        return ebb_error(EBB_USAGE, "array '%s': rows of it cannot be gathered", a->name);
    feed->bytes = bytes;
    return NULL;
}

ebb_status ebb_feed_plain(ebb_feed *feed, const ebb_data *data, const ebb_named *array,
                          const char *input)
{
    if (array->rank < 1)
        return ebb_error(EBB_USAGE, "array '%s' is a scalar: it has no rows", array->name);
    *feed = (ebb_feed){
        .input = input, .array = array, .to = (ebb_dtype)array->dtype, .allow_nan = true};
    if (data->arrays[array - data->list].pictures != NULL)
        return ebb_error(EBB_USAGE, "the pictures of '%s' have no size before a model takes them",
                         data->path);
    take_dims(feed, array->rank, array->dims);
    return count_row(feed);
}

ebb_status ebb_feed_fit(ebb_feed *feed, const ebb_data *data, const ebb_named *array,
                        const char *input, const ebb_type *type, bool *forced)
{
    const ebb_fit *fit = data->fit;
    char have[256], need[256];
    const bool pictures = data->arrays[array - data->list].pictures != NULL;
    *feed = (ebb_feed){.input = input, .array = array, .to = (ebb_dtype)array->dtype};
    if (pictures)
        EBB_TRY(fit_pictures(feed, data, type));
    else
        EBB_TRY(ebb_feed_plain(feed, data, array, input));
    feed->to = type->kind == EBB_KIND_TENSOR ? (ebb_dtype)type->dtype : feed->to;
    feed->allow_nan = fit != NULL && fit->allow_nan;
    feed->round = fit != NULL && fit->round;
    *forced = !pictures && !choose(feed, type, fit != NULL ? fit->layout : 0);
    if ((int)feed->to != array->dtype && !ebb_cast_is(feed->to, (ebb_dtype)array->dtype)) {
        const ebb_type given = ebb_type_tensor((ebb_dtype)array->dtype, array->rank, array->dims);
        return ebb_error(EBB_USAGE, "array '%s' is %s, and input '%s' takes %s", array->name,
                         ebb_type_print(have, sizeof have, &given, NULL), input,
                         ebb_type_print(need, sizeof need, type, NULL));
    }
    return count_row(feed);
}
