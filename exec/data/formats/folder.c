/* folder.c: folders as data: shards, which are files of arrays to be joined by rows, and pictures, in a
 * sub-folder for each class.
 *
 *     photos/cat/1.jpg            image: uint8[N, height, width, 3], made of the files row by row
 *     photos/cat/2.png    ──>     label: int64[N], the place of the sub-folder among all, by name;
 *     photos/dog/1.jpg                   of one sub-folder alone there are none
 */
#include "exec/data/formats/formats.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>

#include <jansson.h>

typedef struct names {
    ebb_arena *arena;
    const char **list;
    size_t count, capacity;
} names;

static int by_name(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    return strcmp(*x, *y);
}

/* What of a folder is wanted, sorted, so that the order is the same everywhere. */
static ebb_status list_folder(names *n, const char *path, bool (*wanted)(const char *name))
{
    DIR *folder = opendir(path);
    ebb_status status = folder == NULL ? ebb_error_io(path, "opening") : NULL;
    for (const struct dirent *e; status == NULL && (e = readdir(folder)) != NULL;) {
        if (e->d_name[0] == '.' || !wanted(e->d_name))
            continue;
        const char *name = ebb_arena_strdup(n->arena, e->d_name);
        if (name == NULL ||
            !ebb_arena_grow(n->arena, &n->list, n->count, &n->capacity, sizeof *n->list))
            status = ebb_error_memory();
        else
            n->list[n->count++] = name;
    }
    if (folder != NULL)
        (void)closedir(folder);
    if (n->count > 1)
        qsort(n->list, n->count, sizeof *n->list, by_name);
    return status;
}

static bool has_ending(const char *name, const char *const *endings)
{
    const size_t length = strlen(name);
    for (; *endings != NULL; endings++)
        if (length > strlen(*endings) &&
            strcasecmp(name + length - strlen(*endings), *endings) == 0)
            return true;
    return false;
}

static bool any_name(const char *name)
{
    (void)name;
    return true;
}

static bool is_shard(const char *name)
{
    return has_ending(name, (const char *const[]){".npz", ".npy", ".safetensors", ".csv", NULL});
}

static bool is_picture(const char *name)
{
    return has_ending(name, (const char *const[]){".jpg", ".jpeg", ".png", NULL});
}

static bool holds_any(const char *path, bool (*wanted)(const char *name))
{
    EBB_LOCAL_ARENA(scratch);
    names n = {.arena = scratch};
    const bool found = list_folder(&n, path, wanted) == NULL && n.count > 0;
    return found;
}

static bool is_folder(const char *path)
{
    struct stat facts;
    return stat(path, &facts) == 0 && S_ISDIR(facts.st_mode);
}

/* ---- shards ---- */

bool ebb_shards_are(const char *path)
{
    return holds_any(path, is_shard);
}

ebb_status ebb_shards_list(const char *const **paths, const char *path, ebb_arena *arena)
{
    names n = {.arena = arena};
    EBB_TRY(list_folder(&n, path, is_shard));
    const char **list = EBB_NEW(arena, const char *, n.count + 1);
    EBB_GOT(list);
    for (size_t i = 0; i < n.count; i++)
        EBB_GOT((list[i] = ebb_arena_printf(arena, "%s/%s", path, n.list[i])) != NULL);
    *paths = list;
    return NULL;
}

/* ---- pictures ---- */

bool ebb_pictures_are(const char *path)
{
    EBB_LOCAL_ARENA(scratch);
    names n = {.arena = scratch};
    bool found = false;
    if (list_folder(&n, path, any_name) == NULL)
        for (size_t i = 0; i < n.count && !found; i++) {
            const char *below = ebb_arena_printf(scratch, "%s/%s", path, n.list[i]);
            found = below != NULL && is_folder(below) && holds_any(below, is_picture);
        }
    return found;
}

typedef struct album {
    names files; /* whole paths */
    int64_t *labels;
    size_t label_capacity;
    json_t *classes;
} album;

static ebb_status add_class(album *a, const char *path)
{
    ebb_arena *arena = a->files.arena;
    names n = {.arena = arena};
    EBB_TRY(list_folder(&n, path, is_picture));
    for (size_t i = 0; i < n.count; i++) {
        const char *file = ebb_arena_printf(arena, "%s/%s", path, n.list[i]);
        const size_t at = a->files.count;
        EBB_GOT(
            file &&
            ebb_arena_grow(arena, &a->files.list, at, &a->files.capacity, sizeof *a->files.list) &&
            ebb_arena_grow(arena, &a->labels, at, &a->label_capacity, sizeof *a->labels));
        a->files.list[at] = file;
        a->labels[at] = (int64_t)json_array_size(a->classes) - 1;
        a->files.count++;
    }
    return n.count > 0 ? NULL : ebb_error(EBB_REJECTED, "%s: a class without a picture", path);
}

static ebb_status read_classes(album *a, const char *path)
{
    names n = {.arena = a->files.arena};
    EBB_TRY(list_folder(&n, path, any_name));
    for (size_t i = 0; i < n.count; i++) {
        const char *below = ebb_arena_printf(n.arena, "%s/%s", path, n.list[i]);
        EBB_GOT(below);
        if (!is_folder(below))
            continue;
        if (json_array_append_new(a->classes, json_string(n.list[i])) != 0)
            return ebb_error(EBB_REJECTED, "%s: its name is not UTF-8", below);
        EBB_TRY(add_class(a, below));
    }
    return NULL;
}

static ebb_status keep_classes(ebb_data *data, json_t *classes)
{
    json_t *o = json_pack("{s:O}", "classes", classes);
    char *text = json_dumps(o, JSON_COMPACT);
    json_decref(o);
    data->metadata = text != NULL ? ebb_arena_strdup(&data->arena, text) : NULL;
    free(text);
    return data->metadata != NULL ? NULL : ebb_error_memory();
}

/* "0 'cat', 1 'dog' and 3 more" */
static ebb_status note_labels(ebb_data *data, const json_t *classes, const char *path)
{
    char text[384] = "";
    const size_t count = json_array_size(classes);
    size_t used = 0, i = 0;
    for (; i < count; i++) {
        const char *name = json_string_value(json_array_get(classes, i));
        if (used + strlen(name) + sizeof ", 18446744073709551615 ''" > sizeof text)
            break;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%zu '%s'", i > 0 ? ", " : "",
                                 i, name);
    }
    if (i < count)
        return ebb_data_add_note(data, "labels of %s are %s and %zu more", path, text, count - i);
    return ebb_data_add_note(data, "labels of %s are %s", path, text);
}

/* Pictures that lie in no class. */
static ebb_status note_strays(ebb_data *data, const char *path)
{
    EBB_LOCAL_ARENA(scratch);
    names n = {.arena = scratch};
    size_t count = 0;
    EBB_TRY(list_folder(&n, path, is_picture));
    for (size_t i = 0; i < n.count; i++) {
        const char *below = ebb_arena_printf(scratch, "%s/%s", path, n.list[i]);
        count += below != NULL && !is_folder(below);
    }
    return count == 0
               ? NULL
               : ebb_data_add_note(data,
                                   "pictures of %s that lie in no sub-folder have no class and are "
                                   "left out: %zu",
                                   path, count);
}

static ebb_status add_labels(ebb_data *data, const album *a, const char *path)
{
    const int64_t dims[] = {(int64_t)a->files.count};
    if (json_array_size(a->classes) == 1)
        return ebb_data_add_note(data, "%s has one sub-folder of pictures alone, so no labels",
                                 path);
    EBB_TRY(ebb_data_add(data, "label", strlen("label"), EBB_I64, 1, dims, a->labels,
                         a->files.count * sizeof *a->labels));
    return note_labels(data, a->classes, path);
}

ebb_status ebb_pictures_read(ebb_data *data, const char *path, const ebb_model *model)
{
    (void)model;
    album a = {.files = {.arena = &data->arena}, .classes = json_array()};
    ebb_status status = a.classes == NULL ? ebb_error_memory() : read_classes(&a, path);
    if (status == NULL)
        status = ebb_data_add_pictures(data, "image", a.files.list, a.files.count);
    if (status == NULL)
        status = add_labels(data, &a, path);
    if (status == NULL)
        status = note_strays(data, path);
    if (status == NULL)
        status = keep_classes(data, a.classes);
    json_decref(a.classes);
    return ebb_at(status, path);
}
