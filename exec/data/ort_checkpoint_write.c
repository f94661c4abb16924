/* ort_checkpoint_write.c: the FlatBuffer that ort_checkpoint.c reads, front to back.
 *
 *     root │ module │ lists │ tensors: name, dims, ─┐ ... │ groups, properties │ bytes │ bytes ...
 *                                                   └──────────────────────────^
 *
 * References lead forward only, so that a table is written with places for them, which are filled
 * in when what they mean has its place. Tables come first, in memory; the bytes of tensors behind
 * them go from where they lie to the file. What would pass 2 GiB, where references end, has its
 * tensors in a second file, `.data`.
 */
#include "exec/data/ort_checkpoint.h"

#include <limits.h>
#include <stdlib.h>

#include "exec/json.h"
#include "onnx/file/sink.h"

enum { VERSION = 2, FIELDS_MOST = 7, BYTES_ALIGNED = 16, SMALL = 1024 };

typedef struct blob { /* the bytes of a tensor, referred to from `from` */
    size_t from;
    const void *data;
    size_t bytes;
} blob;

typedef struct out {
    unsigned char *head;
    size_t used, capacity;
    ebb_arena scratch;
    blob *inside, *outside; /* behind the tables; in the second file */
    size_t inside_count, inside_capacity, outside_count, outside_capacity;
    uint64_t outside_end;
    uint64_t outside_from; /* tensors of so many bytes or more lie there; 0: none does */
    bool failed;           /* no memory: asked once, at the end */
} out;

/* ---- growing ---- */

/* So many bytes more, zero, where the end is a multiple of `unit` and `off`: where they begin. */
static size_t extend(out *o, size_t count, size_t unit, size_t off)
{
    size_t at = (o->used + unit - off - 1) / unit * unit + off;
    if (o->failed || count > INT32_MAX || at > INT32_MAX) {
        o->failed = true;
        return 0;
    }
    if (at + count > o->capacity) {
        size_t capacity = 2 * (at + count) + 4096;
        unsigned char *more = ebb_alloc(capacity);
        o->failed = more == NULL;
        if (o->failed)
            return 0;
        memset(more, 0, capacity);
        if (o->used > 0)
            memcpy(more, o->head, o->used);
        ebb_free(o->head);
        o->head = more;
        o->capacity = capacity;
    }
    o->used = at + count;
    return at;
}

static void set(out *o, size_t at, uint64_t x, unsigned bytes)
{
    for (unsigned i = 0; i < bytes && !o->failed; i++)
        o->head[at + i] = (unsigned char)(x >> (8 * i));
}

/* The reference at `from` means what is at `to`. */
static void refer(out *o, size_t from, size_t to)
{
    set(o, from, to - from, 4);
}

/* A table with fields of so many bytes each, 0: it has none. at[k]: where field k is. */
static size_t add_table(out *o, const unsigned *sizes, unsigned count, size_t *at)
{
    unsigned end = 4, offset[FIELDS_MOST] = {0};
    for (unsigned size = 8; size > 0; size /= 2)
        for (unsigned k = 0; k < count; k++)
            if (sizes[k] == size) {
                end = (end + size - 1) / size * size;
                offset[k] = end;
                end += size;
            }
    unsigned names = 4 + 2 * count;
    size_t vtable = extend(o, names, 8, (8 - names % 8) % 8); // the table behind it is aligned
    size_t table = extend(o, end, 8, 0);
    set(o, vtable, names, 2);
    set(o, vtable + 2, end, 2);
    set(o, table, names, 4);
    for (unsigned k = 0; k < count; k++) {
        set(o, vtable + 4 + 2 * k, offset[k], 2);
        at[k] = table + offset[k];
    }
    return table;
}

static void add_string(out *o, size_t from, const char *text)
{
    size_t length = strlen(text), at = extend(o, 4 + length + 1, 4, 0);
    set(o, at, length, 4);
    if (!o->failed)
        memcpy(o->head + at + 4, text, length);
    refer(o, from, at);
}

/* A list of `count` references; where the first is. */
static size_t add_list(out *o, size_t from, size_t count)
{
    o->failed |= count > INT32_MAX / 4;
    size_t at = extend(o, o->failed ? 0 : 4 + 4 * count, 4, 0);
    set(o, at, count, 4);
    refer(o, from, at);
    return at + 4;
}

/* ---- tensors ---- */

static void keep(out *o, blob **list, size_t *count, size_t *capacity, blob b)
{
    o->failed |= !ebb_arena_grow(&o->scratch, list, *count, capacity, sizeof **list);
    if (!o->failed)
        (*list)[(*count)++] = b;
}

static void add_dims(out *o, size_t from, const ebb_named *t)
{
    size_t dims = extend(o, 4 + 8 * (size_t)t->rank, 8, 4);
    set(o, dims, (uint64_t)t->rank, 4);
    for (int i = 0; i < t->rank; i++)
        set(o, dims + 4 + 8 * (size_t)i, (uint64_t)t->dims[i], 8);
    refer(o, from, dims);
}

/* name: another than its own, or NULL. */
static void add_tensor(out *o, size_t from, const ebb_named *t, const char *name)
{
    enum { NAME, DOC, DIMS, TYPE, RAW, STRINGS, OUTLYING };
    const ebb_type type = ebb_type_tensor((ebb_dtype)t->dtype, t->rank, t->dims);
    size_t bytes = 0, at[FIELDS_MOST];
    o->failed |= !ebb_type_bytes(&type, &bytes); // sizes() has asked
    bool outside = o->outside_from != 0 && bytes >= o->outside_from;
    const unsigned sizes[FIELDS_MOST] = {4, 0, 4, 4, outside ? 0 : 4, 0, outside ? 8 : 0};
    refer(o, from, add_table(o, sizes, FIELDS_MOST, at));
    set(o, at[TYPE], (uint64_t)t->dtype, 4);
    add_string(o, at[NAME], name != NULL ? name : t->name);
    add_dims(o, at[DIMS], t);
    if (!outside) {
        keep(o, &o->inside, &o->inside_count, &o->inside_capacity, (blob){at[RAW], t->data, bytes});
        return;
    }
    uint64_t offset = (o->outside_end + BYTES_ALIGNED - 1) / BYTES_ALIGNED * BYTES_ALIGNED;
    set(o, at[OUTLYING], offset, 8);
    keep(o, &o->outside, &o->outside_count, &o->outside_capacity,
         (blob){(size_t)offset, t->data, bytes});
    o->outside_end = offset + bytes;
}

static void add_tensors(out *o, size_t from, const ebb_named *list, size_t count)
{
    size_t at = add_list(o, from, count);
    for (size_t i = 0; i < count; i++)
        add_tensor(o, at + 4 * i, &list[i], NULL);
}

static void add_module(out *o, size_t from, const ebb_ort_checkpoint *c)
{
    enum { TRAINED, FROZEN, NOMINAL, OUTLYING, COUNT };
    const unsigned sizes[COUNT] = {4, 4, 0, o->outside_from != 0 ? 1 : 0};
    size_t at[COUNT];
    refer(o, from, add_table(o, sizes, COUNT, at));
    if (o->outside_from != 0)
        set(o, at[OUTLYING], 1, 1);
    add_tensors(o, at[TRAINED], c->trained, c->trained_count);
    add_tensors(o, at[FROZEN], c->frozen, c->frozen_count);
}

/* ---- the optimizer ---- */

static void add_group(out *o, size_t from, const ebb_ort_checkpoint *c)
{
    enum { NAME, STEP, RATE, STATES, COUNT };
    static const char *const names[EBB_ORT_MOMENTS] = {"momentum0", "momentum1"};
    size_t at[COUNT], state[2], one = add_list(o, from, 1);
    refer(o, one, add_table(o, (const unsigned[COUNT]){4, 8, 4, 4}, COUNT, at));
    uint32_t rate;
    memcpy(&rate, &c->rate, sizeof rate);
    set(o, at[STEP], (uint64_t)c->step, 8);
    set(o, at[RATE], rate, 4);
    add_string(o, at[NAME], "group0");
    size_t states = add_list(o, at[STATES], c->trained_count);
    for (size_t i = 0; i < c->trained_count; i++) {
        refer(o, states + 4 * i, add_table(o, (const unsigned[2]){4, 4}, 2, state));
        add_string(o, state[0], c->trained[i].name);
        size_t moments = add_list(o, state[1], c->moment_count);
        for (unsigned k = 0; k < c->moment_count; k++)
            add_tensor(o, moments + 4 * k, &c->moments[k][i], names[k]);
    }
}

/* ---- properties ---- */

typedef enum kind { INTEGERS, NUMBERS, TEXTS, KINDS } kind;

/* Truths are 1 and 0; what is no number at all is text: its JSON. */
static kind kind_of(const json_t *value)
{
    bool whole = json_is_integer(value) || json_is_boolean(value);
    return whole ? INTEGERS : json_is_real(value) ? NUMBERS : TEXTS;
}

static void add_property(out *o, size_t from, const char *name, const json_t *value)
{
    kind of = kind_of(value);
    size_t at[2];
    refer(o, from, add_table(o, (const unsigned[2]){4, of == INTEGERS ? 8 : 4}, 2, at));
    add_string(o, at[0], name);
    if (of == INTEGERS)
        set(o, at[1],
            json_is_boolean(value) ? json_is_true(value) : (uint64_t)json_integer_value(value), 8);
    float number = (float)json_real_value(value);
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    if (of == NUMBERS)
        set(o, at[1], bits, 4);
    if (of != TEXTS)
        return;
    char *text = json_is_string(value) ? NULL : json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    o->failed |= text == NULL && !json_is_string(value);
    if (!o->failed)
        add_string(o, at[1], text != NULL ? text : json_string_value(value));
    free(text);
}

static void add_properties(out *o, size_t from, json_t *given)
{
    size_t at[KINDS], count[KINDS] = {0}, lists[KINDS] = {0};
    const char *name;
    json_t *value;
    json_object_foreach(given, name, value)
        count[kind_of(value)]++;
    const unsigned sizes[KINDS] = {count[0] > 0 ? 4 : 0, count[1] > 0 ? 4 : 0,
                                   count[2] > 0 ? 4 : 0};
    refer(o, from, add_table(o, sizes, KINDS, at));
    for (int k = 0; k < KINDS; k++)
        if (count[k] > 0)
            lists[k] = add_list(o, at[k], count[k]);
    json_object_foreach(given, name, value) {
        add_property(o, lists[kind_of(value)], name, value);
        lists[kind_of(value)] += 4;
    }
}

/* ---- the file ---- */

static ebb_status size_of(const ebb_named *list, size_t count, uint64_t *total)
{
    for (size_t i = 0; i < count; i++) {
        const ebb_named *t = &list[i];
        ebb_type type = ebb_type_none();
        size_t bytes;
        if (t->rank >= 0 && t->rank <= EBB_MAX_RANK && t->dtype > 0 && t->dtype < EBB_DTYPE_COUNT)
            type = ebb_type_tensor((ebb_dtype)t->dtype, t->rank, t->dims);
        if (!ebb_type_bytes(&type, &bytes) || ebb_dtype_bits((ebb_dtype)type.dtype) < 8 ||
            (t->data == NULL && bytes != 0))
            return ebb_error(EBB_USAGE,
                             "'%s' of type %s cannot stand in a checkpoint of ONNX Runtime",
                             t->name, ebb_dtype_name((ebb_dtype)t->dtype));
        if (__builtin_add_overflow(*total, bytes + SMALL, total))
            return ebb_error(EBB_USAGE, "the tensors together are too large for a file");
    }
    return NULL;
}

/* Each tensor behind the tables gets its place, which is where the file ends. */
static void place_inside(out *o)
{
    uint64_t end = o->used;
    for (size_t i = 0; i < o->inside_count && !o->failed; i++) {
        uint64_t bytes = (end + 4 + BYTES_ALIGNED - 1) / BYTES_ALIGNED * BYTES_ALIGNED;
        refer(o, o->inside[i].from, (size_t)bytes - 4);
        end = bytes + o->inside[i].bytes;
    }
    o->failed |= end > INT32_MAX;
}

static void lay_out(out *o, const ebb_ort_checkpoint *c, json_t *properties)
{
    enum { ROOT_VERSION, ROOT_MODULE, ROOT_GROUPS, ROOT_PROPERTIES, COUNT };
    bool some = json_object_size(properties) > 0;
    size_t at[COUNT], start = extend(o, 8, 8, 0);
    const unsigned sizes[COUNT] = {4, 4, c->has_optimizer ? 4 : 0, some ? 4 : 0};
    refer(o, start, add_table(o, sizes, COUNT, at));
    if (!o->failed)
        memcpy(o->head + start + 4, "ODTC", 4);
    set(o, at[ROOT_VERSION], VERSION, 4);
    add_module(o, at[ROOT_MODULE], c);
    if (c->has_optimizer)
        add_group(o, at[ROOT_GROUPS], c);
    if (some)
        add_properties(o, at[ROOT_PROPERTIES], properties);
    place_inside(o);
}

static void write_inside(const out *o, ebb_sink *sink)
{
    ebb_sink_write(sink, o->head, o->used);
    for (size_t i = 0; i < o->inside_count; i++) {
        const blob *b = &o->inside[i];
        unsigned char count[4];
        for (unsigned k = 0; k < 4; k++)
            count[k] = (unsigned char)(b->bytes >> (8 * k));
        uint64_t bytes = (sink->written + 4 + BYTES_ALIGNED - 1) / BYTES_ALIGNED * BYTES_ALIGNED;
        ebb_sink_zeros(sink, bytes - 4);
        ebb_sink_write(sink, count, sizeof count);
        ebb_sink_write(sink, b->data, b->bytes);
    }
}

static void write_outside(const out *o, ebb_sink *sink)
{
    for (size_t i = 0; i < o->outside_count; i++) {
        ebb_sink_zeros(sink, o->outside[i].from);
        ebb_sink_write(sink, o->outside[i].data, o->outside[i].bytes);
    }
}

/* Both are complete before either appears; the data first, since the tables refer to it. */
static ebb_status write_files(const out *o, const char *path, const char *data_path)
{
    ebb_sink tables, data = {.fd = -1};
    ebb_status status = NULL;
    EBB_TRY(ebb_sink_open(&tables, path));
    if (o->outside_count > 0)
        status = ebb_sink_open(&data, data_path);
    if (status == NULL && o->outside_count > 0) {
        write_outside(o, &data);
        status = ebb_sink_finish(&data);
    }
    write_inside(o, &tables);
    if (status == NULL)
        status = ebb_sink_finish(&tables);
    if (status == NULL && o->outside_count > 0)
        status = ebb_sink_rename(&data);
    if (status == NULL)
        status = ebb_sink_rename(&tables);
    if (o->outside_count > 0)
        ebb_sink_close(&data);
    ebb_sink_close(&tables);
    return status;
}

static ebb_status write_checkpoint(out *o, const char *path, const ebb_ort_checkpoint *c,
                                   json_t *properties)
{
    char *data_path = ebb_arena_printf(&o->scratch, "%s.data", path);
    lay_out(o, c, properties);
    return o->failed || data_path == NULL ? ebb_error_memory() : write_files(o, path, data_path);
}

ebb_status ebb_ort_checkpoint_write(const char *path, const ebb_ort_checkpoint *c)
{
    out o = {.outside_from = c->external_above};
    uint64_t total = 0;
    json_error_t error;
    json_t *properties = NULL;
    EBB_TRY(size_of(c->trained, c->trained_count, &total));
    EBB_TRY(size_of(c->frozen, c->frozen_count, &total));
    for (unsigned k = 0; k < c->moment_count && c->has_optimizer; k++)
        EBB_TRY(size_of(c->moments[k], c->trained_count, &total));
    if (o.outside_from == 0 && total > INT32_MAX)
        o.outside_from = SMALL;
    if (c->properties != NULL) {
        properties = json_loads(c->properties, 0, &error);
        if (!json_is_object(properties)) {
            json_decref(properties);
            return ebb_error(EBB_USAGE, "the properties are no JSON object: %s", error.text);
        }
    }
    ebb_status status = write_checkpoint(&o, path, c, properties);
    json_decref(properties);
    ebb_arena_fini(&o.scratch);
    ebb_free(o.head);
    return status;
}

/* ---- adapters ---- */

static void lay_out_adapter(out *o, const ebb_named *list, size_t count)
{
    enum { FORMAT, ADAPTER, MODEL, PARAMETERS, COUNT };
    enum { NAME, DIMS, TYPE, RAW, FIELDS };
    static const unsigned sizes[] = {4, 4, 4, 4};
    size_t root[COUNT], at[FIELDS], start = extend(o, 8, 8, 0);
    refer(o, start, add_table(o, sizes, COUNT, root));
    if (!o->failed)
        memcpy(o->head + start + 4, EBB_ORT_ADAPTER_MARK, 4);
    for (int k = FORMAT; k <= MODEL; k++)
        set(o, root[k], EBB_ORT_ADAPTER_VERSION, 4);
    const size_t first = add_list(o, root[PARAMETERS], count);
    for (size_t i = 0; i < count && !o->failed; i++) {
        const ebb_named *t = &list[i];
        const ebb_type type = ebb_type_tensor((ebb_dtype)t->dtype, t->rank, t->dims);
        size_t bytes = 0;
        o->failed |= !ebb_type_bytes(&type, &bytes);
        refer(o, first + 4 * i, add_table(o, sizes, FIELDS, at));
        set(o, at[TYPE], (uint64_t)t->dtype, 4);
        add_string(o, at[NAME], t->name);
        add_dims(o, at[DIMS], t);
        keep(o, &o->inside, &o->inside_count, &o->inside_capacity, (blob){at[RAW], t->data, bytes});
    }
    place_inside(o);
}

ebb_status ebb_ort_adapter_write(const char *path, const ebb_named *list, size_t count)
{
    out o = {0};
    uint64_t total = 0;
    EBB_TRY(size_of(list, count, &total));
    if (total > INT32_MAX)
        return ebb_error(EBB_USAGE, "the tensors together are too large for a file");
    lay_out_adapter(&o, list, count);
    ebb_status status = o.failed ? ebb_error_memory() : write_files(&o, path, NULL);
    ebb_arena_fini(&o.scratch);
    ebb_free(o.head);
    return status;
}
