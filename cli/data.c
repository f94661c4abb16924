/* data.c: which array of a data file feeds which input, and how many rows there are. */
#include "cli/cli.h"

#include <stdlib.h>

/* Cuts the first pair off: text is "ARRAY=INPUT", and what follows a comma is the next pair where it has a '=',
 * too. NULL: that was the last. */
static char *cut_pair(char *text)
{
    char *end = text;
    while ((end = strchr(end, ',')) != NULL) {
        const size_t length = strcspn(++end, ",");
        if (memchr(end, '=', length) != NULL) {
            end[-1] = '\0';
            return end;
        }
    }
    return NULL;
}

static bool add_pair(cli_map *map, const char *option, char *text)
{
    char *equals = strchr(text, '=');
    if (equals == NULL)
        return cli_usage("%s takes ARRAY=INPUT, not '%s'", option, text), false;
    if ((size_t)map->count + 2 >= sizeof map->pairs / sizeof *map->pairs)
        return cli_usage("%s: at most %d pairs", option, map->count / 2), false;
    *equals = '\0';
    map->pairs[map->count++] = text;
    map->pairs[map->count++] = equals + 1;
    return true;
}

bool cli_read_map(const cli *c, const char *option, cli_map *map)
{
    int at = 0;
    const char *word;
    size_t bytes = 0;
    *map = (cli_map){0};
    while ((word = cli_next(c, option, &at)) != NULL)
        bytes += strlen(word) + 1;
    char *text = map->text = malloc(bytes + 1);
    for (at = 0; text != NULL && (word = cli_next(c, option, &at)) != NULL;) {
        size_t length = strlen(word) + 1;
        memcpy(text, word, length);
        for (char *pair = text, *next; pair != NULL; pair = next) {
            next = cut_pair(pair);
            if (!add_pair(map, option, pair))
                return false;
        }
        text += length;
    }
    return text != NULL;
}

/* A part that is drawn has no resize before it; what is evaluated has. */
static const char *resize_of(const cli *c, bool trains)
{
    const char *word;
    for (int at = 0; trains && (word = cli_next(c, "--augment", &at)) != NULL;)
        if (strncmp(word, "resized-crop", strlen("resized-crop")) == 0)
            return NULL;
    return cli_get(c, "--resize", NULL);
}

/* Lists of words for the options, which last as long as this does. */
typedef struct lists {
    const char *paths[MOST_WORDS + 2], *scale[MOST_WORDS + 1], *mean[MOST_WORDS + 1];
    const char *std[MOST_WORDS + 1], *columns[MOST_WORDS + 1], *augment[MOST_WORDS + 1];
} lists;

static ebb_data_options options_of(const cli *c, bool trains, lists *l)
{
    cli_list(c, "--scale", l->scale);
    cli_list(c, "--mean", l->mean);
    cli_list(c, "--std", l->std);
    cli_list(c, "--augment", l->augment);
    cli_list(c, "--columns", l->columns);
    return (ebb_data_options){.scale = l->scale,
                              .mean = l->mean,
                              .std = l->std,
                              .layout = cli_get(c, "--layout", NULL),
                              .round = cli_has(c, "--round"),
                              .augment = trains ? l->augment : NULL,
                              .resize = resize_of(c, trains),
                              .image_size = cli_get(c, "--image-size", NULL),
                              .columns = l->columns,
                              .sequence = cli_whole(c, "--sequence", 0),
                              .pack = cli_has(c, "--pack"),
                              .allow_nan = strcmp(cli_get(c, "--on-nan", "stop"), "warn") == 0};
}

ebb_status cli_open_data(const cli *c, const char *option, bool trains, const ebb_model *model,
                         ebb_data **data)
{
    lists l;
    ebb_data_options options = options_of(c, trains, &l);
    options.model = model;
    cli_list(c, option, l.paths);
    size_t count = 0;
    while (l.paths[count] != NULL)
        count++;
    l.paths[count] = cli_get(c, "--tokenizer", NULL); // a file of the data, too
    l.paths[count + 1] = NULL;
    return ebb_data_open_files(data, l.paths, &options);
}

ebb_status cli_data_again(const cli *c, const ebb_data *of, ebb_data **data)
{
    lists l;
    const ebb_data_options options = options_of(c, false, &l);
    return ebb_data_again(data, of, &options);
}

void cli_free_map(cli_map *map)
{
    free(map->text);
    free(map->feeds);
    ebb_release(map->facts);
    *map = (cli_map){0};
}

static const char *array_for(const cli_map *map, const char *input)
{
    for (int i = 0; i < map->count; i += 2)
        if (strcmp(map->pairs[i + 1], input) == 0)
            return map->pairs[i];
    return input;
}

ebb_status cli_bind_rows(ebb_model *model, ebb_data *data, const cli_map *map, int64_t batch,
                         int64_t *rows)
{
    return ebb_data_shape(data, model, map->pairs, batch, rows);
}

ebb_status cli_find_feeds(const ebb_model *model, ebb_data *data, cli_map *map)
{
    ebb_release(map->facts);
    free(map->feeds);
    map->feeds = NULL;
    map->facts = NULL;
    ebb_status status = ebb_data_bind(data, model, map->pairs);
    if (status == NULL)
        status = ebb_facts_of(&map->facts, model);
    if (status != NULL)
        return status;
    const ebb_model_facts *f = map->facts;
    size_t count = 0;
    map->feeds = calloc(2 * f->input_count + 1, sizeof *map->feeds);
    for (size_t i = 0; map->feeds != NULL && i < f->input_count; i++) {
        const char *array = array_for(map, f->inputs[i].name);
        if (ebb_data_find(data, array) == NULL)
            continue;
        map->feeds[count++] = array;
        map->feeds[count++] = f->inputs[i].name;
    }
    return NULL;
}

static json_t *classes_of(const ebb_data *data)
{
    const char *text = ebb_data_metadata(data);
    json_t *o = text != NULL ? json_loads(text, 0, NULL) : NULL;
    json_t *classes = json_incref(json_object_get(o, "classes"));
    json_decref(o);
    return classes;
}

int cli_check_classes(const ebb_data *data, const ebb_data *others, const char *path)
{
    json_t *a = classes_of(data), *b = classes_of(others);
    const bool same = a == NULL || b == NULL || json_equal(a, b);
    json_decref(a);
    json_decref(b);
    return same ? EBB_OK
                : cli_usage("%s: its sub-folders are not those of the pictures to train on, so its "
                            "labels would be of other classes",
                            path);
}

static bool has_note(const ebb_data *data, const char *text)
{
    const char *note;
    for (size_t i = 0; data != NULL && (note = ebb_data_note(data, i)) != NULL; i++)
        if (strcmp(note, text) == 0)
            return true;
    return false;
}

void cli_notes(const ebb_data *data, const ebb_data *before)
{
    const char *note;
    for (size_t i = 0; data != NULL && (note = ebb_data_note(data, i)) != NULL; i++)
        if (!has_note(before, note))
            cli_note("note: %s", note);
}
