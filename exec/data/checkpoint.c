/* checkpoint.c: named tensors into a safetensors file, whole or not at all; states there and back.
 *
 * A checkpoint is a safetensors file of the program's states. Its __metadata__ holds the format's
 * name and version, the number of steps done, the caller's own JSON as one string, what the step's
 * file sets (settings.h), and a checksum of all bytes of the file. Version 1 had no checksum, and older
 * files no settings.
 */
#include "exec/data/checkpoint.h"

#include "exec/data/checksum.h"
#include "exec/data/data.h"
#include "exec/data/settings.h"
#include "exec/data/shards.h"
#include "exec/json.h"
#include "exec/run/program.h"
#include "onnx/file/sink.h"

#include <stdio.h>
#include <stdlib.h>

static const char format_name[] = "ebb.checkpoint/2", old_format[] = "ebb.checkpoint/1";

/* ---- writing ---- */

static ebb_status bytes_of(const ebb_named *t, size_t *bytes)
{
    ebb_type type = ebb_type_none();
    if (t->rank >= 0 && t->rank <= EBB_MAX_RANK && t->dtype > 0 && t->dtype < EBB_DTYPE_COUNT)
        type = ebb_type_tensor((ebb_dtype)t->dtype, t->rank, t->dims);
    if (!ebb_type_bytes(&type, bytes) || ebb_safetensors_dtype((ebb_dtype)t->dtype) == NULL ||
        (t->data == NULL && *bytes != 0))
        return ebb_error(EBB_USAGE, "tensor '%s' of type %s cannot be written as safetensors",
                         t->name, ebb_dtype_name((ebb_dtype)t->dtype));
    return NULL;
}

/* Safetensors wants texts as values of its metadata: other values go in as their JSON text. */
static ebb_status add_metadata(json_t *root, const char *metadata_json)
{
    if (metadata_json == NULL)
        return NULL;
    json_error_t error;
    json_t *given = json_loads(metadata_json, 0, &error), *texts = json_object();
    if (!json_is_object(given)) {
        json_decref(given);
        json_decref(texts);
        return ebb_error(EBB_USAGE, "the metadata is no JSON object: %s", error.text);
    }
    int failed = texts == NULL;
    const char *key;
    json_t *value;
    json_object_foreach(given, key, value) {
        if (strcmp(key, EBB_CHECKSUM_KEY) == 0) { // of this file, whatever it was of
            failed |=
                json_object_set_new(texts, key, json_string(EBB_CHECKSUM_KIND EBB_CHECKSUM_ZERO));
            continue;
        }
        if (json_is_string(value)) {
            failed |= json_object_set(texts, key, value);
            continue;
        }
        char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
        failed |= text == NULL || json_object_set_new(texts, key, json_string(text));
        free(text);
    }
    json_decref(given);
    failed |= json_object_set_new(root, "__metadata__", texts);
    return failed ? ebb_error_memory() : NULL;
}

/* The header as text, padded with spaces so that the bytes begin at a multiple of 64. */
static ebb_status make_header(const ebb_named *tensors, size_t count, const char *metadata_json,
                              json_t *root, char **text, size_t *length)
{
    uint64_t offset = 0;
    EBB_TRY(add_metadata(root, metadata_json));
    for (size_t i = 0; i < count; i++) {
        size_t bytes = 0;
        EBB_TRY(bytes_of(&tensors[i], &bytes));
        json_t *shape = json_array();
        for (int d = 0; d < tensors[i].rank; d++)
            (void)json_array_append_new(shape, json_integer(tensors[i].dims[d]));
        json_t *entry = json_pack(
            "{s:s, s:o, s:[I, I]}", "dtype", ebb_safetensors_dtype((ebb_dtype)tensors[i].dtype),
            "shape", shape, "data_offsets", (json_int_t)offset, (json_int_t)(offset + bytes));
        if (json_object_get(root, tensors[i].name) != NULL) {
            json_decref(entry);
            return ebb_error(EBB_USAGE, "tensor '%s' is to be written twice", tensors[i].name);
        }
        if (json_object_set_new(root, tensors[i].name, entry) != 0)
            return ebb_error(EBB_USAGE, "the name '%s' is not UTF-8", tensors[i].name);
        if (__builtin_add_overflow(offset, bytes, &offset) || offset > INT64_MAX)
            return ebb_error(EBB_USAGE, "the tensors together are too large for a file");
    }
    size_t size = json_dumpb(root, NULL, 0, JSON_COMPACT);
    *length = (size + 8 + 63) / 64 * 64 - 8;
    *text = size == 0 ? NULL : ebb_alloc(*length);
    if (*text == NULL || json_dumpb(root, *text, size, JSON_COMPACT) != size)
        return ebb_error_memory();
    memset(*text + size, ' ', *length - size);
    return NULL;
}

typedef struct header { /* of a file to be */
    uint8_t size[8];
    char *json;
    size_t length;
} header;

/* The digits of the checksum, where there is a place for them. */
static void put_checksum(header *h, const ebb_named *tensors, size_t count)
{
    const char *field = ebb_text_find(h->json, h->length, EBB_CHECKSUM_FIELD EBB_CHECKSUM_ZERO);
    char digits[sizeof EBB_CHECKSUM_ZERO];
    ebb_checksum sum;
    if (field == NULL)
        return;
    ebb_checksum_begin(&sum);
    ebb_checksum_add(&sum, h->size, sizeof h->size);
    ebb_checksum_add(&sum, h->json, h->length);
    for (size_t i = 0; i < count; i++) {
        size_t bytes = 0;
        if (bytes_of(&tensors[i], &bytes) == NULL)
            ebb_checksum_add(&sum, tensors[i].data, bytes);
    }
    (void)snprintf(digits, sizeof digits, "%016llx", (unsigned long long)ebb_checksum_end(&sum));
    memcpy(h->json + (field - h->json) + strlen(EBB_CHECKSUM_FIELD), digits, sizeof digits - 1);
}

static ebb_status write_file(const char *path, const header *h, const ebb_named *tensors,
                             size_t count)
{
    ebb_sink sink;
    EBB_TRY(ebb_sink_open(&sink, path));
    ebb_sink_write(&sink, h->size, sizeof h->size);
    ebb_sink_write(&sink, h->json, h->length);
    for (size_t i = 0; i < count; i++) {
        size_t bytes = 0;
        if (bytes_of(&tensors[i], &bytes) == NULL && bytes != 0)
            ebb_sink_write(&sink, tensors[i].data, bytes);
    }
    return ebb_sink_done(&sink, NULL);
}

EBB_API ebb_status ebb_tensors_save(const char *path, const ebb_named *tensors, size_t count,
                                    const char *metadata_json)
{
    EBB_NEED(path);
    json_t *root = json_object();
    header h = {.json = NULL};
    ebb_status status = root == NULL
                            ? ebb_error_memory()
                            : make_header(tensors, count, metadata_json, root, &h.json, &h.length);
    if (status == NULL) {
        for (int i = 0; i < 8; i++)
            h.size[i] = (uint8_t)((uint64_t)h.length >> (8 * i));
        put_checksum(&h, tensors, count);
        status = write_file(path, &h, tensors, count);
    }
    ebb_free(h.json);
    json_decref(root);
    return status;
}

/* ---- states ---- */

static ebb_status list_states(ebb_program *p, ebb_arena *scratch, ebb_named **list, size_t *count)
{
    const ebb_graph *g = p->plan.g;
    *count = 0;
    *list = EBB_NEW(scratch, ebb_named, g->initializer_count + 1);
    EBB_GOT(*list);
    for (size_t i = 0; i < g->initializer_count; i++) {
        const ebb_value v = g->initializers[i];
        if (!ebb_program_is_state(p, v))
            continue;
        ebb_named *state = &(*list)[(*count)++];
        EBB_TRY(ebb_program_get(p, ebb_value_name(g, v), state));
        EBB_TRY(ebb_shards_gather(state, p, v, false, scratch));
    }
    return NULL;
}

ebb_status ebb_checkpoint_give(ebb_program *program)
{
    EBB_LOCAL_ARENA(scratch);
    ebb_named *list = NULL;
    size_t count = 0;
    return list_states(program, scratch, &list, &count);
}

EBB_API ebb_status ebb_checkpoint_save(ebb_program *program, const char *path, const char *extra)
{
    EBB_NEED(program);
    EBB_NEED(path);
    EBB_LOCAL_ARENA(scratch);
    ebb_named *list = NULL;
    size_t count = 0;
    char steps[32];
    (void)snprintf(steps, sizeof steps, "%llu", (unsigned long long)program->steps);
    char *settings = ebb_settings_text(program);
    json_t *metadata =
        json_pack("{s:s, s:s, s:s, s:s, s:s}", "format", format_name, "steps", steps, "extra",
                  extra != NULL ? extra : "{}", "settings", settings != NULL ? settings : "{}",
                  EBB_CHECKSUM_KEY, EBB_CHECKSUM_KIND EBB_CHECKSUM_ZERO);
    free(settings);
    char *text = metadata != NULL ? json_dumps(metadata, JSON_COMPACT) : NULL;
    json_decref(metadata);
    ebb_status status = text == NULL ? ebb_error(EBB_USAGE, "%s: the extra text is not UTF-8", path)
                                     : list_states(program, scratch, &list, &count);
    if (status == NULL)
        status = ebb_tensors_save(path, list, count, text);
    free(text);
    return status;
}

enum { SHOWN = 4 };

typedef struct differences { /* between a file and a program; the first ones are named */
    ebb_arena *scratch;
    const char *text; /* NULL: no memory */
    size_t found;
} differences;

static void add_difference(differences *d, const char *name, const char *what)
{
    if (d->found++ < SHOWN && d->text != NULL)
        d->text = ebb_arena_printf(d->scratch, "%s\n  '%s' %s", d->text, name, what);
}

static void compare_state(differences *d, const ebb_named *there, const ebb_named *wanted)
{
    char have[256], need[256], what[600];
    if (there == NULL) {
        add_difference(d, wanted->name, "is not in the file");
        return;
    }
    bool same = there->dtype == wanted->dtype && there->rank == wanted->rank;
    for (int i = 0; same && i < there->rank; i++)
        same = there->dims[i] == wanted->dims[i];
    if (same)
        return;
    ebb_type a = ebb_type_tensor((ebb_dtype)there->dtype, there->rank, there->dims);
    ebb_type b = ebb_type_tensor((ebb_dtype)wanted->dtype, wanted->rank, wanted->dims);
    (void)snprintf(what, sizeof what, "is %s in the file, %s in the program",
                   ebb_type_print(have, sizeof have, &a, NULL),
                   ebb_type_print(need, sizeof need, &b, NULL));
    add_difference(d, wanted->name, what);
}

/* Every state must be there with its type, and nothing else. Nothing is changed unless all agree. */
static ebb_status compare(const ebb_data *data, const ebb_named *list, size_t count,
                          ebb_arena *scratch)
{
    differences d = {scratch, "", 0};
    bool *known = EBB_NEW(scratch, bool, data->count + 1);
    EBB_GOT(known);
    for (size_t i = 0; i < count; i++) {
        const ebb_named *there = ebb_data_find(data, list[i].name);
        if (there != NULL)
            known[there - data->list] = true;
        compare_state(&d, there, &list[i]);
    }
    for (size_t k = 0; k < data->count; k++)
        if (!known[k])
            add_difference(&d, data->list[k].name, "is not in the program");
    EBB_GOT(d.text);
    if (d.found == 0)
        return NULL;
    return ebb_hint(ebb_error(EBB_REJECTED,
                              "the checkpoint is not of this program: %zu difference%s%s", d.found,
                              d.found == 1 ? "" : "s", d.text),
                    "model, optimizer and what is trained must be those of the run that wrote it; "
                    "its weights alone are taken by --weights");
}

typedef struct notes { /* the metadata of a checkpoint; borrowed from its JSON */
    const char *format, *steps, *extra, *settings, *checksum;
} notes;

static ebb_status read_notes(notes *n, json_t *root)
{
    const struct {
        const char *key, **text;
    } keys[] = {{"format", &n->format},
                {"steps", &n->steps},
                {"extra", &n->extra},
                {"settings", &n->settings},
                {EBB_CHECKSUM_KEY, &n->checksum}};
    enum { KEYS = sizeof keys / sizeof keys[0] };
    for (size_t k = 0; k < KEYS; k++)
        *keys[k].text = json_string_value(json_object_get(root, keys[k].key));
    const bool old = n->format != NULL && strcmp(n->format, old_format) == 0;
    if (n->format == NULL || (!old && strcmp(n->format, format_name) != 0))
        return ebb_error(EBB_REJECTED, "the file is no checkpoint of format %s or %s", old_format,
                         format_name);
    for (size_t k = 0; k < KEYS; k++)
        if (*keys[k].text == NULL && keys[k].text != &n->settings &&
            !(old && keys[k].text == &n->checksum))
            return ebb_error(EBB_REJECTED, "the checkpoint's metadata lack '%s'", keys[k].key);
    const char *key;
    json_t *value;
    json_object_foreach(root, key, value) {
        bool known = false;
        for (size_t k = 0; k < KEYS; k++)
            known |= strcmp(key, keys[k].key) == 0;
        if (!known)
            return ebb_error(EBB_REJECTED, "the checkpoint's metadata have '%.200s' besides", key);
    }
    return NULL;
}

/* Decimal digits alone. */
static bool read_count(const char *text, uint64_t *count)
{
    *count = 0;
    for (const char *p = text; *p != '\0'; p++)
        if (*p < '0' || *p > '9' || __builtin_mul_overflow(*count, 10, count) ||
            __builtin_add_overflow(*count, (uint64_t)(*p - '0'), count))
            return false;
    return *text != '\0';
}

typedef struct told { /* by the metadata; in scratch */
    uint64_t steps;
    char *extra, *settings; /* NULL: not there */
} told;

static char *copied(const char *text, ebb_arena *scratch)
{
    return text != NULL ? ebb_arena_strdup(scratch, text) : NULL;
}

static ebb_status read_metadata(told *t, const ebb_data *data, ebb_arena *scratch)
{
    notes n = {NULL};
    json_t *root = data->metadata == NULL ? NULL : json_loads(data->metadata, 0, NULL);
    ebb_status status = read_notes(&n, root);
    if (status == NULL && !read_count(n.steps, &t->steps))
        status = ebb_error(EBB_REJECTED, "the checkpoint says '%.40s' for the steps done", n.steps);
    if (status == NULL) {
        t->extra = copied(n.extra, scratch);
        t->settings = copied(n.settings, scratch);
        if (t->extra == NULL || (n.settings != NULL && t->settings == NULL))
            status = ebb_error_memory();
    }
    json_decref(root);
    return status;
}

/* Text for the caller, to release. */
static ebb_status give(char **to, const char *text)
{
    if (to == NULL)
        return NULL;
    EBB_GOT((*to = ebb_alloc(strlen(text) + 1)) != NULL);
    (void)strcpy(*to, text);
    return NULL;
}

static ebb_status load(ebb_program *p, ebb_data *data, const char *path, char **extra,
                       ebb_arena *scratch)
{
    const ebb_graph *g = p->plan.g;
    EBB_TRY(ebb_safetensors_read(data, path));
    ebb_named *list = EBB_NEW(scratch, ebb_named, g->initializer_count + 1);
    bool *keeps = EBB_NEW(scratch, bool, g->initializer_count + 1);
    ebb_type *types = EBB_NEW(scratch, ebb_type, g->initializer_count + 1);
    size_t count = 0;
    const char *note;
    told t = {0, NULL, NULL};
    EBB_GOT(list && keeps && types);
    for (size_t i = 0; i < g->initializer_count; i++) {
        const ebb_value v = g->initializers[i];
        if (!ebb_program_is_state(p, v))
            continue;
        ebb_type *type = &types[count];
        EBB_TRY(ebb_at(ebb_whole_type(type, p, v), path));
        list[count++] =
            (ebb_named){ebb_value_name(g, v), type->dtype, type->rank, type->dims, NULL};
    }
    EBB_TRY(ebb_at(compare(data, list, count, scratch), path));
    EBB_TRY(ebb_at(read_metadata(&t, data, scratch), path));
    EBB_TRY(ebb_at(ebb_settings_compare(keeps, &note, p, data, t.settings, scratch), path));
    char *kept = note != NULL ? copied(note, &p->arena) : NULL;
    EBB_GOT(note == NULL || kept);
    EBB_TRY(give(extra, t.extra));
    for (size_t i = 0; i < g->initializer_count; i++) {
        if (!ebb_program_is_state(p, g->initializers[i]) || keeps[i])
            continue;
        const char *name = ebb_value_name(g, g->initializers[i]);
        ebb_status status =
            ebb_shards_set(p, g->initializers[i], ebb_data_find(data, name), scratch);
        if (status != NULL && extra != NULL) {
            ebb_free(*extra);
            *extra = NULL;
        }
        EBB_TRY(status);
    }
    p->steps = t.steps;
    p->unchecked = !data->checked;
    p->changed = kept;
    return NULL;
}

EBB_API ebb_status ebb_checkpoint_load(ebb_program *program, const char *path, char **extra)
{
    EBB_NEED(program);
    EBB_NEED(path);
    if (extra != NULL)
        *extra = NULL;
    EBB_LOCAL_ARENA(scratch);
    ebb_data data;
    ebb_status status = ebb_data_init(&data, path);
    if (status == NULL)
        status = load(program, &data, path, extra, scratch);
    ebb_data_fini(&data);
    return status;
}

EBB_API bool ebb_checkpoint_was_checked(const ebb_program *program)
{
    return !program->unchecked;
}

EBB_API const char *ebb_checkpoint_note(const ebb_program *program)
{
    return program->changed;
}
