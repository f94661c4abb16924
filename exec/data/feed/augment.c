/* augment.c: pictures made, and images turned and cropped, by draws that depend on seed, epoch and row
 * alone: a resumed run sees what one that was never stopped saw, whoever computes it.
 *
 *     picture ──resize, or a drawn part──> ──crop: the middle, or drawn──> ──flip──> row
 *     image of an array                    ──pad, crop──>                  ──flip──> row
 */
#include "exec/data/feed/feed.h"

#include "kernels/math/philox.h"

#include <math.h>
#include <stdio.h>

/* ---- words ---- */

static ebb_status read_size(int64_t *height, int64_t *width, const char *text, const char *what)
{
    char part[32];
    const size_t length = strcspn(text, "x");
    if (text[length] != 'x' || length >= sizeof part)
        return ebb_error(EBB_USAGE, "%s takes HEIGHTxWIDTH, as in 224x224, not '%s'", what, text);
    (void)snprintf(part, sizeof part, "%.*s", (int)length, text);
    EBB_TRY(ebb_whole_parse(height, part, "[1, 65535]", what));
    return ebb_whole_parse(width, text + length + 1, "[1, 65535]", what);
}

static ebb_status read_augment(ebb_fit *fit, const char *word)
{
    static const char *const names[] = {"flip", "flip-vertical", "crop", "resized-crop"};
    const size_t length = strcspn(word, ":");
    const char *rest = word + length;
    fit->augments = true;
    if (strcmp(word, "flip") == 0) {
        fit->flip = true;
        return NULL;
    }
    if (strcmp(word, "flip-vertical") == 0) {
        fit->flip_vertical = true;
        return NULL;
    }
    if (length == strlen("crop") && strncmp(word, "crop", length) == 0) {
        fit->crop = true;
        if (strncmp(rest, ":padding=", 9) == 0)
            return ebb_whole_parse(&fit->padding, rest + 9, "[0, 65535]", "crop: padding");
        if (*rest == '\0')
            return NULL;
    }
    if (length == strlen("resized-crop") && strncmp(word, "resized-crop", length) == 0) {
        fit->resized_crop = true;
        fit->least = 0.08;
        if (strncmp(rest, ":least=", 7) == 0)
            return ebb_real_parse(&fit->least, rest + 7, "(0, 1]", "resized-crop: least");
        if (*rest == '\0')
            return NULL;
    }
    ebb_status status = ebb_error(EBB_USAGE,
                                  "there is no augmentation '%s': there are flip, flip-vertical, "
                                  "crop[:padding=N] and resized-crop[:least=SHARE]",
                                  word);
    const char *near = ebb_nearest(word, names, sizeof names / sizeof names[0]);
    return near != NULL ? ebb_hint(status, "did you mean '%s'?", near) : status;
}

ebb_status ebb_augment_parse(ebb_fit *fit, const char *const *augment, const char *resize,
                             const char *image_size)
{
    for (size_t i = 0; augment != NULL && augment[i] != NULL; i++)
        EBB_TRY(read_augment(fit, augment[i]));
    if (image_size != NULL)
        EBB_TRY(read_size(&fit->image_height, &fit->image_width, image_size, "the image size"));
    if (resize != NULL && strchr(resize, 'x') == NULL)
        EBB_TRY(ebb_whole_parse(&fit->resize_short, resize, "[1, 65535]", "resize"));
    else if (resize != NULL)
        EBB_TRY(read_size(&fit->resize_height, &fit->resize_width, resize, "resize"));
    if (fit->resized_crop && (fit->crop || resize != NULL))
        return ebb_error(EBB_USAGE, "resized-crop takes a part of the picture by itself: crop and "
                                    "resize have no effect beside it");
    return NULL;
}

/* ---- which feeds ---- */

/* Rows of [C, H, W] or [H, W, C]; of [H, W] where they are bytes or classes. */
void ebb_feed_find_geometry(ebb_feed *feed, const ebb_data *data)
{
    const ebb_fit *fit = data->fit;
    const ebb_named *a = feed->array;
    ebb_geometry *s = &feed->shape;
    const bool floats = ebb_dtype_is_float(feed->to);
    if (s->picture || fit == NULL || !fit->augments || feed->move == EBB_MOVE_TO_INDEX ||
        (a->rank != 4 && !(a->rank == 3 && (a->dtype == EBB_U8 || !floats))))
        return;
    const int64_t *d = a->dims;
    const bool last =
        a->rank == 4 && (feed->move == EBB_MOVE_CHANNELS_FIRST || fit->layout == 'L' ||
                         (feed->move == EBB_MOVE_NONE && d[3] <= 4 && d[1] > 4));
    const size_t unit = ebb_dtype_bits((ebb_dtype)a->dtype) / 8;
    s->augments = true;
    s->is_mask = !floats || feed->move == EBB_MOVE_ONE_HOT;
    s->planes = a->rank == 4 && !last ? d[1] : 1;
    s->height = a->rank == 4 && !last ? d[2] : d[1];
    s->width = a->rank == 4 && !last ? d[3] : d[2];
    s->pixel = last ? unit * (size_t)d[3] : unit;
}

ebb_status ebb_feed_check_geometry(const ebb_data *data, ebb_feed *feeds, size_t count)
{
    const ebb_fit *fit = data->fit;
    size_t images = 0, pictures = 0;
    if (fit == NULL)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        const ebb_geometry *s = &feeds[i].shape;
        images += s->augments && !s->is_mask;
        pictures += s->picture;
        if (s->augments && fit->resized_crop && !s->picture)
            return ebb_error(EBB_USAGE, "resized-crop is for folders of pictures: '%s' is an array",
                             feeds[i].array->name);
        if (s->augments && s->is_mask && fit->crop)
            return ebb_error(EBB_USAGE,
                             "crop does not know what the classes of '%s' are at the "
                             "border: only flips move images and their masks",
                             feeds[i].array->name);
    }
    for (size_t i = 0; images == 0 && i < count; i++)
        feeds[i].shape.augments = false; // masks without images
    if (fit->augments && images == 0)
        return ebb_error(EBB_USAGE, "augmentation has no effect: no array of images, [N, C, H, W], "
                                    "[N, H, W, C] or bytes [N, H, W], feeds an input of floats");
    if (pictures == 0 && (fit->resize_short > 0 || fit->resize_height > 0 || fit->image_height > 0))
        return ebb_error(EBB_USAGE,
                         "a size of images is for folders of pictures, and none is read");
    return NULL;
}

/* ---- draws ---- */

typedef struct draws {
    uint64_t seed, epoch, row;
    uint32_t stream; /* of its own for each block */
    ebb_philox block;
    int used;
} draws;

static draws draws_of(const ebb_epoch *epoch, int64_t row)
{
    return (draws){epoch->seed, epoch->number, (uint64_t)row, 0x61756700, {{0}}, 4};
}

/* [0, 1) */
static double draw(draws *d)
{
    if (d->used == 4) {
        d->block = ebb_philox_block(d->seed, d->epoch, d->stream++, d->row);
        d->used = 0;
    }
    return d->block.word[d->used++] / 4294967296.0;
}

static int64_t draw_below(draws *d, int64_t count)
{
    return (int64_t)(draw(d) * (double)count);
}

/* The flips first, so that they are the same for an image and its mask. */
static void draw_flips(draws *d, const ebb_fit *fit, bool *across, bool *down)
{
    const bool a = draw(d) < 0.5, b = draw(d) < 0.5;
    *across = fit->flip && a;
    *down = fit->flip_vertical && b;
}

/* ---- moving pixels ---- */

/* out[y][x] = in[y + top][x + left], 0 outside; then flipped. */
typedef struct window {
    int64_t top, left, in_height, in_width;
    bool across, down;
} window;

static void move_pixels(unsigned char *out, const unsigned char *in, const ebb_geometry *s,
                        const window *w)
{
    for (int64_t p = 0; p < s->planes; p++)
        for (int64_t y = 0; y < s->height; y++) {
            const int64_t from_y = w->top + (w->down ? s->height - 1 - y : y);
            unsigned char *row = out + (size_t)((p * s->height + y) * s->width) * s->pixel;
            const unsigned char *source =
                in + (size_t)(p * w->in_height + from_y) * (size_t)w->in_width * s->pixel;
            for (int64_t x = 0; x < s->width; x++) {
                const int64_t from_x = w->left + (w->across ? s->width - 1 - x : x);
                if (from_y < 0 || from_y >= w->in_height || from_x < 0 || from_x >= w->in_width)
                    memset(row + (size_t)x * s->pixel, 0, s->pixel);
                else
                    memcpy(row + (size_t)x * s->pixel, source + (size_t)from_x * s->pixel,
                           s->pixel);
            }
        }
}

/* ---- pictures ---- */

static int64_t scaled(int64_t side, int64_t by, int64_t of)
{
    const int64_t size = side * by / of;
    return size < 1 ? 1 : size > EBB_PICTURE_SIDE ? EBB_PICTURE_SIDE : size;
}

/* The size that the whole picture gets before it is cropped: as asked for, else so that it just covers
 * the window. */
static void find_size(const ebb_fit *fit, const ebb_geometry *s, const ebb_picture *p,
                      int64_t *height, int64_t *width)
{
    const int64_t h = p->height, w = p->width;
    const int64_t least = fit != NULL ? fit->resize_short : 0;
    if (fit != NULL && fit->resize_height > 0) {
        *height = fit->resize_height;
        *width = fit->resize_width;
    } else if (least > 0) {
        *height = h <= w ? least : scaled(h, least, w);
        *width = h <= w ? scaled(w, least, h) : least;
    } else if (s->height * w >= s->width * h) {
        *height = s->height;
        *width = scaled(w, s->height, h);
    } else {
        *width = s->width;
        *height = scaled(h, s->width, w);
    }
}

/* A part of at least `least` of the area and sides of 3:4 to 4:3; after ten tries the middle. */
static void draw_part(draws *d, const ebb_fit *fit, const ebb_picture *p, int *left, int *top,
                      int *width, int *height)
{
    const double area = (double)p->width * p->height;
    for (int i = 0; i < 10; i++) {
        const double part = area * (fit->least + (1 - fit->least) * draw(d));
        const double ratio = exp(log(0.75) + (log(4.0 / 3) - log(0.75)) * draw(d));
        const double w = rint(sqrt(part * ratio)), h = rint(sqrt(part / ratio));
        if (w < 1 || h < 1 || w > p->width || h > p->height)
            continue;
        *width = (int)w;
        *height = (int)h;
        *top = (int)draw_below(d, p->height - *height + 1);
        *left = (int)draw_below(d, p->width - *width + 1);
        return;
    }
    const double ratio = (double)p->width / p->height;
    *width = ratio > 4.0 / 3 ? (int)rint(p->height * 4.0 / 3) : p->width;
    *height = ratio < 0.75 ? (int)rint(p->width / 0.75) : p->height;
    *top = (p->height - *height) / 2;
    *left = (p->width - *width) / 2;
}

/* As Pillow makes grey of red, green and blue. */
static void make_grey(unsigned char *out, const unsigned char *rgb, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = (unsigned char)((rgb[3 * i] * 19595u + rgb[3 * i + 1] * 38470u +
                                  rgb[3 * i + 2] * 7471u + 0x8000u) >>
                                 16);
}

static ebb_status make_picture(const ebb_feed *feed, const ebb_data *data, const ebb_epoch *epoch,
                               int64_t row, unsigned char *out, ebb_scratch *s)
{
    const ebb_fit *fit = data->fit;
    const ebb_array *array = &data->arrays[feed->array - data->list];
    ebb_geometry shape = feed->shape;
    EBB_TRY(ebb_picture_read(&s->picture, array->pictures[row], &s->file, &s->file_size));
    int left = 0, top = 0, width = s->picture.width, height = s->picture.height;
    int64_t to_height = shape.height, to_width = shape.width;
    static const ebb_fit none = {0};
    draws d = draws_of(epoch, row);
    window w = {0};
    draw_flips(&d, fit != NULL ? fit : &none, &w.across, &w.down);
    if (fit != NULL && fit->resized_crop)
        draw_part(&d, fit, &s->picture, &left, &top, &width, &height);
    else
        find_size(fit, &shape, &s->picture, &to_height, &to_width);
    s->resized.width = (int)to_width;
    s->resized.height = (int)to_height;
    EBB_TRY(ebb_picture_resize(&s->resized, &s->picture, left, top, width, height, &s->between));
    const int64_t padding = fit != NULL && fit->crop ? fit->padding : 0;
    const int64_t more_y = to_height + 2 * padding - shape.height;
    const int64_t more_x = to_width + 2 * padding - shape.width;
    if (more_y < 0 || more_x < 0)
        return ebb_error(EBB_USAGE,
                         "%s: %lldx%lld after resizing, which is smaller than the %lldx%lld that "
                         "input '%s' takes",
                         array->pictures[row], (long long)to_height, (long long)to_width,
                         (long long)shape.height, (long long)shape.width, feed->input);
    const bool drawn = fit != NULL && fit->crop;
    w.in_height = to_height;
    w.in_width = to_width;
    w.top = (drawn ? draw_below(&d, more_y + 1) : (int64_t)rint((double)more_y / 2)) - padding;
    w.left = (drawn ? draw_below(&d, more_x + 1) : (int64_t)rint((double)more_x / 2)) - padding;
    shape.pixel = 3;
    if (shape.channels == 3) {
        move_pixels(out, s->resized.rgb, &shape, &w);
        return NULL;
    }
    const size_t pixels = (size_t)(shape.height * shape.width);
    EBB_TRY(ebb_scratch_grow(&s->turned, &s->turned_size, pixels * 3));
    move_pixels(s->turned, s->resized.rgb, &shape, &w);
    make_grey(out, s->turned, pixels);
    return NULL;
}

ebb_status ebb_augment_row(const ebb_feed *feed, const ebb_data *data, const ebb_epoch *epoch,
                           int64_t row, void *out, const void *in, ebb_scratch *s)
{
    const ebb_geometry *shape = &feed->shape;
    if (shape->picture) {
        char place[512];
        return ebb_while(make_picture(feed, data, epoch, row, out, s), "making %s",
                         ebb_data_place(place, data, feed->array, row));
    }
    const ebb_fit *fit = data->fit;
    draws d = draws_of(epoch, row);
    window w = {.in_height = shape->height, .in_width = shape->width};
    draw_flips(&d, fit, &w.across, &w.down);
    if (fit->crop) {
        w.top = draw_below(&d, 2 * fit->padding + 1) - fit->padding;
        w.left = draw_below(&d, 2 * fit->padding + 1) - fit->padding;
    }
    move_pixels(out, in, shape, &w);
    return NULL;
}
