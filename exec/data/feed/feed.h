/* feed.h: how rows of an array become rows of an input.
 *
 *     raw row ──(augment)──> ──move──> ──scale, mean, std──> ──cast──> row of the input
 *
 * fit.c chooses when an array is bound to an input; convert.c does it, row by row, in any thread. What a
 * row becomes depends on the row, the seed and the epoch alone.
 */
#pragma once

#include "exec/data/data.h"
#include "exec/data/picture/picture.h"

/* Between the axes of a raw row and those of the input's: a row is outer x channels x inner elements on
 * one side, and with `channels` elsewhere, or gone, on the other. */
typedef enum ebb_move {
    EBB_MOVE_NONE,           /* the same elements in the same order; dims of 1 may come or go */
    EBB_MOVE_CHANNELS_FIRST, /* [H, W, C] to [C, H, W] */
    EBB_MOVE_CHANNELS_LAST,  /* [C, H, W] to [H, W, C] */
    EBB_MOVE_TO_INDEX,       /* [outer, C, inner] with a single 1 to [outer, inner] */
    EBB_MOVE_ONE_HOT,        /* and back */
} ebb_move;

/* (x * scale / divisor - mean) / deviation, in float32 as PyTorch computes it. */
typedef struct ebb_normal {
    float scale, divisor;
    const float *mean, *deviation; /* one for each channel */
    int64_t channels, inner;       /* elements behind each other that are of one channel */
    const float *table;            /* [channels][256] for bytes, or NULL */
} ebb_normal;

/* What integers may be, where the model says. */
typedef struct ebb_span {
    bool known, ignores;
    int64_t low, high, ignored;
    const char *what; /* "label", "index" */
} ebb_span;

/* A row as an image: planes x height x width pixels of so many bytes. */
typedef struct ebb_geometry {
    bool augments, is_mask; /* of class numbers: their pixels are moved, never made */
    bool picture;           /* from a file, as [height, width, channels] */
    int channels;           /* of a picture: 3, or 1 for grey */
    int64_t planes, height, width;
    size_t pixel;
} ebb_geometry;

typedef struct ebb_feed {
    const char *input;
    const ebb_named *array;
    ebb_dtype to;
    int rank;
    int64_t dims[EBB_MAX_RANK]; /* of the input; dims[0] is the batch's */
    ebb_move move;
    bool regrouped; /* [784] are [28, 28], or back */
    int64_t outer, channels, inner;
    size_t raw_count, count; /* elements of a row, before and after */
    size_t bytes;            /* of a row, after */
    const ebb_normal *normal;
    ebb_span span;
    ebb_geometry shape;
    bool round, allow_nan;
} ebb_feed;

/* What the options of opening say of all this. */
typedef struct ebb_fit {
    const char *const *scale, *const *mean, *const *std; /* "INPUT=V,V", or "V,V" */
    bool round, allow_nan;
    int layout; /* 0: as it fits; 'F', 'L': channels are first or last in the array */
    bool augments, flip, flip_vertical, crop, resized_crop;
    int64_t padding;                                   /* of crop: pixels of 0 on each side */
    double least;                                      /* of resized-crop: share of the picture */
    int64_t resize_short, resize_height, resize_width; /* of pictures; 0: as the size wants */
    const char *tokenizer;             /* of .jsonl and .txt: its tokenizer.json; or NULL */
    const char *const *columns;        /* of .csv: "x=a,b*"; or NULL */
    int64_t image_height, image_width; /* where the model leaves them open; or 0 */
} ebb_fit;

/* Chooses. type: of the input, perhaps with open dims; EBB_USAGE where no way leads there. `forced`:
 * the array's own dims, where nothing fits. */
ebb_status ebb_feed_fit(ebb_feed *feed, const ebb_data *data, const ebb_named *array,
                        const char *input, const ebb_type *type, bool *forced);
/* Whether a row has as many elements as one of this type, of which no dim is open. */
bool ebb_rows_hold_as_much(const ebb_named *array, const ebb_type *type);
/* As the array is. */
ebb_status ebb_feed_plain(ebb_feed *feed, const ebb_data *data, const ebb_named *array,
                          const char *input);
/* augment.c: the words of the options; which feeds they are for, EBB_USAGE where for none. */
ebb_status ebb_augment_parse(ebb_fit *fit, const char *const *augment, const char *resize,
                             const char *image_size);
void ebb_feed_find_geometry(ebb_feed *feed, const ebb_data *data);
ebb_status ebb_feed_check_geometry(const ebb_data *data, ebb_feed *feeds, size_t count);
/* normal.c: what --scale, --mean and --std say of this feed; in the memory of data. */
ebb_status ebb_feed_normalise(ebb_feed *feed, ebb_data *data);
/* Whether they name an input that there is, or without a name, found one. */
ebb_status ebb_feed_check_normal(const ebb_data *data, const ebb_feed *feeds, size_t count);

/* What draws depend on, beside the row. */
typedef struct ebb_epoch {
    uint64_t seed, number;
} ebb_epoch;

/* convert.c: rows from .. from + count of the array, to out. */
typedef struct ebb_scratch {
    void *raw, *moved, *wide, *turned, *file;
    size_t raw_size, moved_size, wide_size, turned_size, file_size;
    ebb_picture picture, resized, between;
} ebb_scratch;

ebb_status ebb_feed_rows(const ebb_feed *feed, const ebb_data *data, const ebb_epoch *epoch,
                         int64_t from, size_t count, void *out, ebb_scratch *scratch);
/* Room for so many bytes in one of its memories; what was there is lost. */
ebb_status ebb_scratch_grow(void **memory, size_t *size, size_t need);
void ebb_scratch_free(ebb_scratch *scratch);

/* augment.c: the raw row, moved about as seed, epoch and row say, to out; in: the row, or for pictures
 * nothing. */
ebb_status ebb_augment_row(const ebb_feed *feed, const ebb_data *data, const ebb_epoch *epoch,
                           int64_t row, void *out, const void *in, ebb_scratch *scratch);

/* cast.c: the first of `count` elements that would not be the same number after it; count: none. With
 * round, floats are rounded. */
size_t ebb_cast(ebb_dtype to, void *out, ebb_dtype from, const void *in, size_t count, bool round);
bool ebb_cast_is(ebb_dtype to, ebb_dtype from); /* whether there is one */
/* The first NaN, or integer outside of the span; count: none. */
size_t ebb_find_nan(ebb_dtype dtype, const void *data, size_t count);
size_t ebb_find_outside(ebb_dtype dtype, const void *data, size_t count, const ebb_span *span);
