/* normal.c: what scale, mean and std say of an input.
 *
 * The words stand in lists: "0.485,0.456,0.406" for images of bytes, "x=0.5" for input x. For bytes all
 * 256 results of each channel are computed once.
 */
#include "exec/data/feed/feed.h"

#include <math.h>
#include <stdio.h>

typedef struct numbers {
    double *list;
    size_t count;
} numbers;

/* "x=1,2": where the numbers begin; *named: whether it names an input. */
static const char *numbers_of(const char *word, const char *input, bool *named, bool *is_it)
{
    const char *equals = strrchr(word, '=');
    *named = equals != NULL;
    *is_it = equals != NULL && strlen(input) == (size_t)(equals - word) &&
             memcmp(input, word, (size_t)(equals - word)) == 0;
    return equals != NULL ? equals + 1 : word;
}

static bool is_image(const ebb_feed *feed)
{
    return feed->array->dtype == EBB_U8 && (feed->array->rank >= 3 || feed->regrouped);
}

static bool takes_normal(const ebb_feed *feed)
{
    return ebb_dtype_is_float(feed->to) && feed->move != EBB_MOVE_TO_INDEX &&
           feed->move != EBB_MOVE_ONE_HOT;
}

/* The word of a list that is of this feed, NULL: none. One with its name goes before one without. */
static const char *word_for(const char *const *list, const ebb_feed *feed)
{
    const char *found = NULL;
    bool found_named = false;
    for (size_t i = 0; list != NULL && list[i] != NULL; i++) {
        bool named, is_it;
        const char *text = numbers_of(list[i], feed->input, &named, &is_it);
        if (is_it || (!named && !found_named && is_image(feed) && takes_normal(feed))) {
            found = text;
            found_named = is_it;
        }
    }
    return found;
}

/* "1/255" */
static ebb_status read_fraction(double *above, double *below, const char *text, const char *what)
{
    char part[64];
    const size_t length = strcspn(text, "/");
    *below = 1;
    if (length >= sizeof part)
        return ebb_error(EBB_USAGE, "%s takes a number or a fraction such as 1/255, not '%s'", what,
                         text);
    (void)snprintf(part, sizeof part, "%.*s", (int)length, text);
    EBB_TRY(ebb_real_parse(above, part, NULL, what));
    return text[length] == '/' ? ebb_real_parse(below, text + length + 1, "(0, inf)", what) : NULL;
}

static ebb_status read_numbers(numbers *out, const char *text, const char *range, const char *what,
                               ebb_arena *arena)
{
    size_t most = 1;
    for (const char *at = text; *at != '\0'; at++)
        most += *at == ',';
    *out = (numbers){EBB_NEW(arena, double, most), 0};
    EBB_GOT(out->list);
    for (const char *at = text;; at++) {
        char part[64];
        const size_t length = strcspn(at, ",");
        (void)snprintf(part, sizeof part, "%.*s", length < 63 ? (int)length : 63, at);
        EBB_TRY(ebb_real_parse(&out->list[out->count++], part, range, what));
        at += length;
        if (*at == '\0')
            return NULL;
    }
}

/* How many elements behind each other are of one channel, where there are `count` channels. */
static bool find_inner(const ebb_feed *feed, size_t count, int64_t *inner)
{
    const int last = feed->rank - 1;
    *inner = (int64_t)feed->count;
    if (count == 1)
        return true;
    if (feed->rank < 2)
        return false;
    *inner = 1;
    if (feed->dims[1] == (int64_t)count) {
        for (int i = 2; i <= last; i++)
            *inner *= feed->dims[i];
        return true;
    }
    return feed->dims[last] == (int64_t)count;
}

static ebb_status fill_table(ebb_normal *n, ebb_arena *arena)
{
    float *table = EBB_NEW(arena, float, (size_t)n->channels * 256);
    EBB_GOT(table);
    for (int64_t c = 0; c < n->channels; c++)
        for (int x = 0; x < 256; x++)
            table[c * 256 + x] = ((float)x * n->scale / n->divisor - n->mean[c]) / n->deviation[c];
    n->table = table;
    return NULL;
}

static ebb_status spread(const float **out, const numbers *from, size_t channels, float otherwise,
                         ebb_arena *arena)
{
    float *list = EBB_NEW(arena, float, channels);
    EBB_GOT(list);
    for (size_t i = 0; i < channels; i++)
        list[i] = from->count == 0 ? otherwise : (float)from->list[from->count == 1 ? 0 : i];
    *out = list;
    return NULL;
}

ebb_status ebb_feed_normalise(ebb_feed *feed, ebb_data *data)
{
    const ebb_fit *fit = data->fit;
    ebb_arena *arena = &data->arena;
    numbers mean = {0}, deviation = {0};
    double above = 1, below = 1;
    feed->normal = NULL;
    if (fit == NULL)
        return NULL;
    const char *s = word_for(fit->scale, feed), *m = word_for(fit->mean, feed);
    const char *d = word_for(fit->std, feed);
    if (s == NULL && m == NULL && d == NULL) {
        if (is_image(feed) && takes_normal(feed) && feed->to != EBB_U8)
            return ebb_data_add_note(
                data,
                "the bytes of '%s' go to input '%s' as 0 to 255: --scale 1/255 "
                "makes 0 to 1 of them",
                feed->array->name, feed->input);
        return NULL;
    }
    if (!takes_normal(feed))
        return ebb_error(EBB_USAGE,
                         "input '%s' takes %s: only floats have a scale, a mean or a deviation",
                         feed->input, ebb_dtype_name(feed->to));
    if (s != NULL)
        EBB_TRY(read_fraction(&above, &below, s, "scale"));
    if (m != NULL)
        EBB_TRY(read_numbers(&mean, m, NULL, "mean", arena));
    if (d != NULL)
        EBB_TRY(read_numbers(&deviation, d, "(0, inf)", "std", arena));
    ebb_normal *n = EBB_NEW(arena, ebb_normal, 1);
    const size_t channels = mean.count > deviation.count ? mean.count : deviation.count;
    EBB_GOT(n);
    *n = (ebb_normal){.scale = (float)above,
                      .divisor = (float)below,
                      .channels = channels > 0 ? (int64_t)channels : 1};
    if ((mean.count > 1 && deviation.count > 1 && mean.count != deviation.count) ||
        !find_inner(feed, (size_t)n->channels, &n->inner)) {
        char text[256];
        const ebb_type type = ebb_type_tensor(feed->to, feed->rank, feed->dims);
        return ebb_error(EBB_USAGE,
                         "mean has %zu numbers and std %zu: input '%s' is %s, so one or one for "
                         "each channel is wanted",
                         mean.count, deviation.count, feed->input,
                         ebb_type_print(text, sizeof text, &type, NULL));
    }
    EBB_TRY(spread(&n->mean, &mean, (size_t)n->channels, 0, arena));
    EBB_TRY(spread(&n->deviation, &deviation, (size_t)n->channels, 1, arena));
    if (feed->array->dtype == EBB_U8)
        EBB_TRY(fill_table(n, arena));
    feed->normal = n;
    return NULL;
}

static ebb_status check_list(const char *const *list, const char *what, const ebb_feed *feeds,
                             size_t count)
{
    for (size_t i = 0; list != NULL && list[i] != NULL; i++) {
        bool used = false, named = false, is_it = false;
        for (size_t k = 0; k < count && !used; k++) {
            (void)numbers_of(list[i], feeds[k].input, &named, &is_it);
            used = feeds[k].normal != NULL && (is_it || (!named && is_image(&feeds[k])));
        }
        if (!used)
            return ebb_error(EBB_USAGE,
                             named ? "--%s %s: no input of floats has this name and an array"
                                   : "--%s %s has no effect: no array of uint8 with 3 dims or more "
                                     "feeds an input of floats; INPUT=NUMBERS is for any other",
                             what, list[i]);
    }
    return NULL;
}

ebb_status ebb_feed_check_normal(const ebb_data *data, const ebb_feed *feeds, size_t count)
{
    const ebb_fit *fit = data->fit;
    if (fit == NULL)
        return NULL;
    EBB_TRY(check_list(fit->scale, "scale", feeds, count));
    EBB_TRY(check_list(fit->mean, "mean", feeds, count));
    return check_list(fit->std, "std", feeds, count);
}
