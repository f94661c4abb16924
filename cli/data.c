/* data.c: which array of a data file feeds which input, and how many rows there are. */
#include "cli/cli.h"

#include <stdlib.h>

bool cli_read_map(const cli *c, const char *option, cli_map *map)
{
    int at = 0;
    const char *word;
    size_t bytes = 0;
    *map = (cli_map){0};
    while ((word = cli_next(c, option, &at)) != NULL)
        bytes += strlen(word) + 1;
    char *text = map->text = malloc(bytes + 1);
    const int most = (int)(sizeof map->pairs / sizeof map->pairs[0]) - 2;
    for (at = 0; text != NULL && map->count < most && (word = cli_next(c, option, &at)) != NULL;) {
        size_t length = strlen(word) + 1;
        memcpy(text, word, length);
        char *equals = strchr(text, '=');
        if (equals == NULL)
            return cli_usage("%s takes ARRAY=INPUT, not '%s'", option, word), false;
        *equals = '\0';
        map->pairs[map->count++] = text;
        map->pairs[map->count++] = equals + 1;
        text += length;
    }
    return text != NULL;
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

ebb_status cli_bind_rows(ebb_model *model, const ebb_data *data, const cli_map *map, int64_t batch,
                         int64_t *rows)
{
    ebb_model_facts *facts;
    ebb_status status = ebb_facts_of(&facts, model);
    *rows = -1;
    for (size_t i = 0; status == NULL && i < facts->input_count; i++) {
        const char *name = facts->inputs[i].name;
        const ebb_named *array = ebb_data_find(data, array_for(map, name));
        if (array == NULL || array->rank < 1 || array->rank > 12)
            continue;
        int64_t dims[12];
        memcpy(dims, array->dims, (size_t)array->rank * sizeof *dims);
        dims[0] = batch;
        if (*rows < 0 || array->dims[0] < *rows)
            *rows = array->dims[0];
        status = ebb_set_shape(model, name, dims, array->rank);
    }
    ebb_release(facts);
    return status;
}

ebb_status cli_find_feeds(const ebb_model *model, const ebb_data *data, cli_map *map)
{
    ebb_release(map->facts);
    free(map->feeds);
    map->feeds = NULL;
    ebb_status status = ebb_facts_of(&map->facts, model);
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
