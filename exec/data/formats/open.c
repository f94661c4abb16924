/* open.c: the formats, and how several files become one set of arrays. */
#include "exec/data/feed/rows.h"
#include "exec/data/formats/formats.h"
#include "exec/data/ort_checkpoint.h"
#include "onnx/words/options.h"

#include <glob.h>
#include <stdio.h>
#include <sys/stat.h>

/* ---- formats ---- */

static bool ends_with(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

static bool holds(const char *folder, const char *name)
{
    char path[4096];
    struct stat facts;
    const int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    return length > 0 && (size_t)length < sizeof path && stat(path, &facts) == 0;
}

static bool is_test_data(const char *path)
{
    return holds(path, "input_0.pb");
}

static ebb_status open_path(ebb_data *data, const char *path, const ebb_model *model);

static ebb_status open_shards(ebb_data *data, const char *path, const ebb_model *model)
{
    const char *const *paths;
    EBB_TRY(ebb_shards_list(&paths, path, &data->arena));
    for (size_t i = 0; paths[i] != NULL; i++)
        EBB_TRY(open_path(data, paths[i], model));
    return NULL;
}

/* A file is read by how its name ends; */
static const struct {
    const char *end;
    ebb_status (*read)(ebb_data *data, const char *path);
} files[] = {
    {".npz", ebb_npz_read},
    {".npy", ebb_npy_read},
    {".safetensors", ebb_safetensors_read},
    {".onnx_adapter", ebb_ort_adapter_read},
    {".csv", ebb_csv_read},
    {".jsonl", ebb_jsonl_read},
    {".txt", ebb_txt_read},
};
enum { FILES = sizeof files / sizeof files[0] };

/* a folder, by the first that knows it. */
static const struct {
    const char *name;
    bool (*knows)(const char *path);
    ebb_status (*open)(ebb_data *data, const char *path, const ebb_model *model);
} folders[] = {
    {"a test_data_set folder", is_test_data, ebb_test_data_read},
    {"a folder of such files", ebb_shards_are, open_shards},
    {"a folder with pictures (.jpg, .png) in a sub-folder for each class", ebb_pictures_are,
     ebb_pictures_read},
};
enum { FOLDERS = sizeof folders / sizeof folders[0] };

static ebb_status unknown_format(const char *path, bool folder)
{
    char list[384];
    size_t used = 0;
    for (size_t i = 0; i < FILES + FOLDERS && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s",
                                 i == 0                     ? ""
                                 : i + 1 == FILES + FOLDERS ? " or "
                                                            : ", ",
                                 i < FILES ? files[i].end : folders[i - FILES].name);
    return ebb_hint(
        ebb_error(EBB_USAGE, "%s: data is read from %s%s", path, list,
                  folder ? "; this folder is none" : ""),
        folder ? "train/ and val/ are given one by one; pictures without classes stand in one "
                 "sub-folder"
               : "numpy.savez('data.npz', x=x, y=y) writes one of arrays or of tensors on the CPU");
}

static ebb_status open_path(ebb_data *data, const char *path, const ebb_model *model)
{
    struct stat facts;
    if (stat(path, &facts) != 0)
        return ebb_error_io(path, "cannot be opened");
    const bool folder = S_ISDIR(facts.st_mode);
    data->opened++;
    data->from = ebb_arena_strdup(&data->arena, path);
    EBB_GOT(data->from);
    for (size_t i = 0; !folder && i < FILES; i++)
        if (ends_with(path, files[i].end))
            return files[i].read(data, path);
    for (size_t i = 0; folder && i < FOLDERS; i++)
        if (folders[i].knows(path))
            return folders[i].open(data, path, model);
    return unknown_format(path, folder);
}

/* A path that is there is taken as it is; another may be a pattern. */
static ebb_status open_pattern(ebb_data *data, const char *path, const ebb_model *model)
{
    struct stat facts;
    glob_t found = {0};
    if (stat(path, &facts) == 0 || strpbrk(path, "*?[") == NULL)
        return open_path(data, path, model);
    const int code = glob(path, GLOB_ERR, NULL, &found); // sorted by name
    ebb_status status = NULL;
    if (code == GLOB_NOMATCH)
        status = ebb_error(EBB_IO, "%s: no file has such a name", path);
    else if (code != 0)
        status =
            code == GLOB_NOSPACE ? ebb_error_memory() : ebb_error_io(path, "looking for files");
    for (size_t i = 0; status == NULL && i < found.gl_pathc; i++)
        status = open_path(data, found.gl_pathv[i], model);
    globfree(&found);
    return status;
}

/* ---- options ---- */

static ebb_status copy_list(const char *const **copy, const char *const *list, ebb_arena *arena)
{
    size_t count = 0;
    while (list != NULL && list[count] != NULL)
        count++;
    const char **made = EBB_NEW(arena, const char *, count + 1);
    EBB_GOT(made);
    for (size_t i = 0; i < count; i++)
        EBB_GOT((made[i] = ebb_arena_strdup(arena, list[i])) != NULL);
    *copy = made;
    return NULL;
}

/* "x=a,b*" */
static ebb_status check_columns(const char *const *words)
{
    for (size_t i = 0; words != NULL && words[i] != NULL; i++)
        if (strchr(words[i], '=') == NULL || words[i][0] == '=')
            return ebb_error(EBB_USAGE, "columns are told as ARRAY=NAMES, x=a,b*; not '%s'",
                             words[i]);
    return NULL;
}

/* Arrays of columns that no file has would be missed late, or never. */
static ebb_status find_columns(const ebb_data *data, const char *const *words)
{
    char name[256];
    for (size_t i = 0; words != NULL && words[i] != NULL; i++) {
        (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(words[i], "="), words[i]);
        if (ebb_data_find(data, name) == NULL)
            return ebb_hint(
                ebb_error(EBB_USAGE, "%s: no .csv file has a column of '%s'", data->path, words[i]),
                "columns are called as the first line says; where that has numbers, "
                "all are one array, called as the file");
    }
    return NULL;
}

/* A .json among the files is what text becomes tokens by. */
static bool is_tokenizer(const char *path)
{
    return ends_with(path, ".json");
}

static ebb_status no_text(const char *path, const char *beside)
{
    return ebb_hint(
        ebb_error(EBB_USAGE, "%s: a .json is a tokenizer; beside it there is %s", path, beside),
        "rows of text are read from .jsonl, one object a line: jq -c '.[]' rows.json > "
        "rows.jsonl");
}

static ebb_status keep_tokenizer(ebb_data *data, ebb_fit *fit, const char *const *paths,
                                 const ebb_data_options *o)
{
    size_t others = 0;
    for (size_t i = 0; paths != NULL && paths[i] != NULL; i++) {
        if (!is_tokenizer(paths[i])) {
            others++;
            continue;
        }
        if (fit->tokenizer != NULL)
            return no_text(paths[i], fit->tokenizer);
        EBB_GOT((fit->tokenizer = ebb_arena_strdup(&data->arena, paths[i])) != NULL);
    }
    if (fit->tokenizer != NULL && others == 0)
        return no_text(fit->tokenizer, "no text");
    if (fit->tokenizer != NULL && o->sequence <= 0)
        return ebb_error(EBB_USAGE, "%s: tokens become rows of --sequence N of them: give N",
                         fit->tokenizer);
    return NULL;
}

static ebb_status keep_options(ebb_data *data, const char *const *paths, const ebb_data_options *o)
{
    ebb_fit *fit = EBB_NEW(&data->arena, ebb_fit, 1);
    EBB_GOT(fit);
    *fit = (ebb_fit){.round = o->round, .allow_nan = o->allow_nan};
    EBB_TRY(ebb_augment_parse(fit, o->augment, o->resize, o->image_size));
    if (o->layout != NULL && strcmp(o->layout, "nhwc") != 0 && strcmp(o->layout, "nchw") != 0)
        return ebb_error(EBB_USAGE, "a layout is nhwc or nchw, not '%s'", o->layout);
    if (o->layout != NULL)
        fit->layout = o->layout[1] == 'h' ? 'L' : 'F';
    EBB_TRY(keep_tokenizer(data, fit, paths, o));
    EBB_TRY(check_columns(o->columns));
    EBB_TRY(copy_list(&fit->columns, o->columns, &data->arena));
    EBB_TRY(copy_list(&fit->scale, o->scale, &data->arena));
    EBB_TRY(copy_list(&fit->mean, o->mean, &data->arena));
    EBB_TRY(copy_list(&fit->std, o->std, &data->arena));
    data->fit = fit;
    return NULL;
}

static ebb_status open_all(ebb_data **data, const char *const *paths, const ebb_data_options *o)
{
    *data = NULL;
    if (paths == NULL || paths[0] == NULL)
        return ebb_error(EBB_USAGE, "no file of data is named");
    ebb_data *d = ebb_alloc(sizeof *d);
    EBB_GOT(d);
    ebb_status status = ebb_data_init(d, paths[0]);
    if (status == NULL)
        status = keep_options(d, paths, o);
    for (size_t i = 0; status == NULL && paths[i] != NULL; i++)
        if (!is_tokenizer(paths[i]))
            status = open_pattern(d, paths[i], o->model);
    if (status == NULL)
        status = find_columns(d, o->columns);
    if (status == NULL)
        status = ebb_data_settle(d);
    if (status != NULL) {
        ebb_data_close(d);
        return status;
    }
    *data = d;
    return NULL;
}

/* What is in files is as their authors had it; what a model is given are rows of tokens. */
static ebb_status make_rows(ebb_data **rows, const ebb_data *texts, const ebb_data_options *o)
{
    ebb_data *d = ebb_alloc(sizeof *d);
    *rows = NULL;
    EBB_GOT(d);
    ebb_status status = ebb_data_init(d, texts->path);
    if (status == NULL)
        status = keep_options(d, NULL, o);
    if (status == NULL)
        status = ebb_tokens_read(d, texts, o->sequence, o->pack);
    if (status == NULL)
        status = ebb_data_settle(d);
    if (status != NULL) {
        ebb_data_close(d);
        return status;
    }
    *rows = d;
    return NULL;
}

/* Of texts, rows of tokens. */
static ebb_status rows_of(ebb_data **data, const ebb_data_options *o)
{
    ebb_data *texts = *data;
    if (o->sequence == 0)
        return NULL;
    ebb_status status = make_rows(data, texts, o);
    ebb_data_close(texts);
    return status;
}

static ebb_status take_options(ebb_data_options *own, const ebb_data_options *options)
{
    EBB_TRY(EBB_OPTIONS_TAKE(ebb_data_options, own, pack, options));
    EBB_OPTIONS_COUNT(ebb_data_options, own, sequence);
    return NULL;
}

EBB_API ebb_status ebb_data_open_files(ebb_data **data, const char *const *paths,
                                       const ebb_data_options *options)
{
    EBB_NEED(data);
    ebb_data_options own;
    *data = NULL;
    EBB_TRY(take_options(&own, options));
    EBB_TRY(open_all(data, paths, &own));
    return rows_of(data, &own);
}

/* Its name, dims or bytes are not there, or its rank is below zero. */
static ebb_status lacks(const char *what, long long value)
{
    return ebb_error_argument("ebb_data_of", what, value);
}

static ebb_status add_arrays(ebb_data *data, const ebb_named *arrays, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const ebb_named *a = &arrays[i];
        size_t bytes = 0;
        if (a->name == NULL)
            return lacks("name", 0);
        if (a->rank < 0)
            return lacks("rank", a->rank);
        if (a->rank > EBB_MAX_RANK)
            return ebb_error(EBB_USAGE, "array '%.200s' has %d dims: at most %d are taken", a->name,
                             a->rank, EBB_MAX_RANK);
        if (a->rank > 0 && a->dims == NULL)
            return lacks("dims", 0);
        const ebb_type type = ebb_type_tensor((ebb_dtype)a->dtype, a->rank, a->dims);
        if (!ebb_type_bytes(&type, &bytes))
            return ebb_error(EBB_USAGE, "array '%.200s' is of no type and size that there is",
                             a->name);
        if (bytes > 0 && a->data == NULL)
            return lacks("data", 0);
        EBB_TRY(ebb_data_add(data, a->name, strlen(a->name), (ebb_dtype)a->dtype, a->rank, a->dims,
                             a->data, bytes));
    }
    return NULL;
}

EBB_API ebb_status ebb_data_of(ebb_data **data, const ebb_named *arrays, size_t count,
                               const ebb_data_options *options)
{
    EBB_NEED(data);
    ebb_data_options own;
    *data = NULL;
    if (count > 0)
        EBB_NEED(arrays);
    EBB_TRY(take_options(&own, options));
    ebb_data *d = ebb_alloc(sizeof *d);
    EBB_GOT(d);
    ebb_status status = ebb_data_init(d, "memory");
    if (status == NULL)
        status = keep_options(d, NULL, &own);
    d->opened = 1;
    if (status == NULL)
        status = add_arrays(d, arrays, count);
    if (status != NULL) {
        ebb_data_close(d);
        return status;
    }
    *data = d;
    return rows_of(data, &own);
}

/* The same arrays, with a reader and notes of their own; NULL: out of memory. */
static ebb_data *borrow(const ebb_data *data)
{
    ebb_data *d = ebb_alloc(sizeof *d);
    if (d == NULL)
        return NULL;
    *d = *data;
    d->arena = (ebb_arena){0};
    d->borrows = true;
    d->reader = NULL;
    d->notes = NULL;
    d->note_count = d->note_capacity = 0;
    return d;
}

ebb_status ebb_data_beside(ebb_data **beside, const ebb_data *data)
{
    ebb_data *d = *beside = borrow(data);
    ebb_fit *fit = d != NULL ? EBB_NEW(&d->arena, ebb_fit, 1) : NULL;
    EBB_GOT(fit);
    if (data->fit != NULL)
        *fit = *data->fit;
    fit->augments = fit->flip = fit->flip_vertical = fit->crop = fit->resized_crop = false;
    d->fit = fit;
    return NULL;
}

EBB_API ebb_status ebb_data_again(ebb_data **again, const ebb_data *data,
                                  const ebb_data_options *options)
{
    EBB_NEED(again);
    EBB_NEED(data);
    ebb_data_options own;
    *again = NULL;
    EBB_TRY(take_options(&own, options));
    ebb_data *d = borrow(data);
    EBB_GOT(d);
    ebb_status status = keep_options(d, NULL, &own);
    if (status == NULL)
        *again = d;
    else
        ebb_data_close(d);
    return status;
}

EBB_API void ebb_data_close(ebb_data *data)
{
    if (data == NULL)
        return;
    ebb_reader_free(data->reader);
    ebb_data_fini(data);
    ebb_free(data);
}

EBB_API ebb_status ebb_data_open(ebb_data **data, const char *path, const ebb_model *model)
{
    EBB_NEED(data);
    EBB_NEED(path);
    const char *const paths[] = {path, NULL};
    return ebb_data_open_files(data, paths, &(ebb_data_options){.model = model});
}
