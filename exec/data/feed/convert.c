/* convert.c: a row as its input wants it. Each thread brings its own scratch memory. */
#include "exec/data/feed/feed.h"

#include "onnx/words/print.h"

#include <stdio.h>

ebb_status ebb_scratch_grow(void **memory, size_t *size, size_t need)
{
    if (*memory != NULL && *size >= need)
        return NULL;
    void *more = ebb_alloc(need);
    EBB_GOT(more);
    ebb_free(*memory);
    *memory = more;
    *size = need;
    return NULL;
}

void ebb_scratch_free(ebb_scratch *scratch)
{
    ebb_free(scratch->raw);
    ebb_free(scratch->moved);
    ebb_free(scratch->wide);
    ebb_free(scratch->turned);
    ebb_free(scratch->file);
    ebb_picture_free(&scratch->picture);
    ebb_picture_free(&scratch->resized);
    ebb_picture_free(&scratch->between);
    *scratch = (ebb_scratch){0};
}

/* ---- rows that must not be ---- */

static void print_element(char text[64], ebb_dtype dtype, const void *data, size_t at)
{
    const ebb_tensor t = {.type = ebb_type_tensor(dtype, 1, (const int64_t[]){(int64_t)at + 1}),
                          .data = data,
                          .bytes = (at + 1) * (ebb_dtype_bits(dtype) / 8)};
    if (ebb_dtype_is_float(dtype))
        (void)ebb_snprintf(text, 64, "%.17g", ebb_tensor_double(&t, (int64_t)at));
    else
        (void)snprintf(text, 64, "%lld", (long long)ebb_tensor_int(&t, (int64_t)at));
}

static ebb_status does_not_fit(const ebb_feed *feed, const ebb_data *data, int64_t row,
                               const void *raw, size_t at)
{
    char place[512], number[64];
    const ebb_dtype from = (ebb_dtype)feed->array->dtype;
    print_element(number, from, raw, at);
    ebb_status status = ebb_error(EBB_USAGE, "%s: %s is no %s, which input '%s' takes",
                                  ebb_data_place(place, data, feed->array, row), number,
                                  ebb_dtype_name(feed->to), feed->input);
    return ebb_dtype_is_float(from) && ebb_dtype_is_float(feed->to)
               ? ebb_hint(status, "save the array as %s, or let it be rounded with --round",
                          ebb_dtype_name(feed->to))
               : status;
}

static ebb_status check_row(const ebb_feed *feed, const ebb_data *data, int64_t row,
                            const void *out)
{
    char place[512], number[64];
    size_t at = feed->allow_nan ? feed->count : ebb_find_nan(feed->to, out, feed->count);
    if (at < feed->count)
        return ebb_hint(ebb_error(EBB_RUNTIME, "%s: element %zu is not a number",
                                  ebb_data_place(place, data, feed->array, row), at),
                        "mend the row or leave it out (an empty cell of a .csv is one, too); "
                        "`train --on-nan warn` trains on it");
    at = ebb_find_outside(feed->to, out, feed->count, &feed->span);
    if (at == feed->count)
        return NULL;
    print_element(number, feed->to, out, at);
    ebb_status status = ebb_error(EBB_RUNTIME, "%s: %s %s is outside %lld..%lld",
                                  ebb_data_place(place, data, feed->array, row), feed->span.what,
                                  number, (long long)feed->span.low, (long long)feed->span.high);
    if (strcmp(feed->array->name, "input_ids") == 0)
        return ebb_hint(status,
                        "the model has %lld tokens: these are of another tokenizer than its own",
                        (long long)feed->span.high + 1);
    return strcmp(feed->span.what, "label") != 0
               ? status
               : ebb_hint(status, "classes are counted from 0; --head classes=N is for more");
}

/* ---- moves ---- */

#define PERMUTE(type)                         \
    for (int64_t a = 0; a < rows; a++)        \
        for (int64_t b = 0; b < columns; b++) \
    ((type *)out)[b * rows + a] = ((const type *)in)[a * columns + b]

/* [rows, columns] to [columns, rows]. */
static void transpose(void *out, const void *in, int64_t rows, int64_t columns, size_t unit)
{
    switch (unit) {
    case 1:
        PERMUTE(uint8_t);
        break;
    case 2:
        PERMUTE(uint16_t);
        break;
    case 4:
        PERMUTE(uint32_t);
        break;
    default:
        PERMUTE(uint64_t);
        break;
    }
}

/* Classes as places of the single 1; in: float64. */
static ebb_status find_ones(const ebb_feed *feed, const ebb_data *data, int64_t row, int64_t *out,
                            const double *in)
{
    for (int64_t o = 0; o < feed->outer; o++)
        for (int64_t i = 0; i < feed->inner; i++) {
            int64_t found = -1;
            bool good = true;
            for (int64_t c = 0; c < feed->channels; c++) {
                const double x = in[(o * feed->channels + c) * feed->inner + i];
                good = good && (x == 0 || (x == 1 && found < 0));
                found = x == 1 ? c : found;
            }
            if (!good || found < 0) {
                char place[512];
                return ebb_error(EBB_USAGE,
                                 "%s: it is not one-hot, a single 1 among 0s, and input '%s' takes "
                                 "the number of the class",
                                 ebb_data_place(place, data, feed->array, row), feed->input);
            }
            out[o * feed->inner + i] = found;
        }
    return NULL;
}

static ebb_status set_ones(const ebb_feed *feed, const ebb_data *data, int64_t row, uint8_t *out,
                           const int64_t *in)
{
    memset(out, 0, feed->count);
    for (int64_t o = 0; o < feed->outer; o++)
        for (int64_t i = 0; i < feed->inner; i++) {
            const int64_t c = in[o * feed->inner + i];
            if (c < 0 || c >= feed->channels) {
                char place[512];
                return ebb_error(EBB_RUNTIME, "%s: label %lld is outside 0..%lld",
                                 ebb_data_place(place, data, feed->array, row), (long long)c,
                                 (long long)feed->channels - 1);
            }
            out[(o * feed->channels + c) * feed->inner + i] = 1;
        }
    return NULL;
}

/* By numbers of 8 bytes, and those cast to what is wanted. */
static ebb_status recode(const ebb_feed *feed, const ebb_data *data, int64_t row, void *out,
                         const void *raw, ebb_scratch *s)
{
    const ebb_dtype from = (ebb_dtype)feed->array->dtype;
    const bool index = feed->move == EBB_MOVE_TO_INDEX;
    const size_t in_bytes = feed->raw_count * 8;
    EBB_TRY(ebb_scratch_grow(&s->moved, &s->moved_size, in_bytes + feed->count * 8));
    void *made = (char *)s->moved + in_bytes;
    const size_t at =
        ebb_cast(index ? EBB_F64 : EBB_I64, s->moved, from, raw, feed->raw_count, false);
    if (at < feed->raw_count)
        return does_not_fit(feed, data, row, raw, at);
    if (index)
        EBB_TRY(find_ones(feed, data, row, made, s->moved));
    else
        EBB_TRY(set_ones(feed, data, row, made, s->moved));
    if (ebb_cast(feed->to, out, index ? EBB_I64 : EBB_U8, made, feed->count, false) < feed->count)
        return ebb_error(EBB_USAGE, "input '%s' takes %s, which has no room for %lld classes",
                         feed->input, ebb_dtype_name(feed->to), (long long)feed->channels);
    return NULL;
}

/* ---- scale, mean and deviation ---- */

static void normalise_bytes(const ebb_feed *feed, float *out, const uint8_t *in)
{
    const ebb_normal *n = feed->normal;
    for (size_t at = 0; at < feed->count;)
        for (int64_t c = 0; c < n->channels; c++) {
            const float *table = n->table + c * 256;
            for (int64_t i = 0; i < n->inner; i++, at++)
                out[at] = table[in[at]];
        }
}

static void normalise_floats(const ebb_feed *feed, float *x)
{
    const ebb_normal *n = feed->normal;
    for (size_t at = 0; at < feed->count;)
        for (int64_t c = 0; c < n->channels; c++)
            for (int64_t i = 0; i < n->inner; i++, at++)
                x[at] = (x[at] * n->scale / n->divisor - n->mean[c]) / n->deviation[c];
}

/* in: moved already. Rounding to float32 and to the input's type is what was asked for. */
static ebb_status normalise(const ebb_feed *feed, void *out, const void *in, ebb_scratch *s)
{
    const ebb_dtype from = (ebb_dtype)feed->array->dtype;
    float *to = out;
    if (feed->to != EBB_F32) { // `in` may be `moved`, so the result needs another place
        EBB_TRY(ebb_scratch_grow(&s->wide, &s->wide_size, feed->count * sizeof *to));
        to = s->wide;
    }
    if (from == EBB_U8) {
        normalise_bytes(feed, to, in);
    } else {
        (void)ebb_cast(EBB_F32, to, from, in, feed->count, true);
        normalise_floats(feed, to);
    }
    if (to != out)
        (void)ebb_cast(feed->to, out, EBB_F32, to, feed->count, true);
    return NULL;
}

/* ---- a row ---- */

static ebb_status convert(const ebb_feed *feed, const ebb_data *data, int64_t row, void *out,
                          const void *raw, ebb_scratch *s)
{
    const ebb_dtype from = (ebb_dtype)feed->array->dtype;
    const size_t unit = ebb_dtype_bits(from) / 8;
    const void *in = raw;
    if (feed->move == EBB_MOVE_TO_INDEX || feed->move == EBB_MOVE_ONE_HOT)
        return recode(feed, data, row, out, raw, s);
    if (feed->move != EBB_MOVE_NONE) {
        const bool first = feed->move == EBB_MOVE_CHANNELS_FIRST;
        EBB_TRY(ebb_scratch_grow(&s->moved, &s->moved_size, feed->raw_count * unit + 1));
        transpose(s->moved, raw, first ? feed->inner : feed->channels,
                  first ? feed->channels : feed->inner, unit);
        in = s->moved;
    }
    if (feed->normal != NULL)
        return normalise(feed, out, in, s);
    const size_t at = ebb_cast(feed->to, out, from, in, feed->count, feed->round);
    return at == feed->count ? NULL : does_not_fit(feed, data, row, in, at);
}

/* The row as the array has it, or as augmentation makes it. */
static ebb_status read_raw(const ebb_feed *feed, const ebb_data *data, const ebb_epoch *epoch,
                           int64_t row, const void **raw, ebb_scratch *s)
{
    const ebb_array *array = &data->arrays[feed->array - data->list];
    const size_t bytes =
        feed->shape.picture ? feed->raw_count : array->row_bytes; // pictures are bytes
    EBB_TRY(ebb_scratch_grow(&s->raw, &s->raw_size, bytes + 1));
    *raw = s->raw;
    if (feed->shape.picture)
        return ebb_augment_row(feed, data, epoch, row, s->raw, NULL, s);
    EBB_TRY(ebb_data_read(data, feed->array, row, 1, s->raw));
    if (!feed->shape.augments)
        return NULL;
    EBB_TRY(ebb_scratch_grow(&s->turned, &s->turned_size, bytes + 1));
    *raw = s->turned;
    return ebb_augment_row(feed, data, epoch, row, s->turned, s->raw, s);
}

ebb_status ebb_feed_rows(const ebb_feed *feed, const ebb_data *data, const ebb_epoch *epoch,
                         int64_t from, size_t count, void *out, ebb_scratch *s)
{
    const bool same = feed->move == EBB_MOVE_NONE && feed->normal == NULL &&
                      (int)feed->to == feed->array->dtype && !feed->shape.augments &&
                      !feed->shape.picture;
    if (same)
        EBB_TRY(ebb_data_read(data, feed->array, from, count, out));
    for (size_t i = 0; i < count; i++) {
        const int64_t row = from + (int64_t)i;
        const void *raw = NULL;
        void *to = (char *)out + i * feed->bytes;
        if (!same) {
            EBB_TRY(read_raw(feed, data, epoch, row, &raw, s));
            EBB_TRY(convert(feed, data, row, to, raw, s));
        }
        EBB_TRY(check_row(feed, data, row, to));
    }
    return NULL;
}
