/* npz.c: NumPy's .npy and .npz. C order and little-endian only; what else there is, is refused by
 * name.
 *
 * An .npy: "\x93NUMPY", major, minor, header length (2 bytes, from version 2 on 4), header: a
 * Python dict literal {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }, then the bytes.
 */
#include "exec/data/formats/formats.h"

#include <zip.h>

/* ---- the header: one dict of three keys ---- */

typedef struct cursor {
    const char *at, *end;
} cursor;

static void skip_space(cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\t'))
        c->at++;
}

static bool take(cursor *c, const char *word)
{
    skip_space(c);
    size_t length = strlen(word);
    if ((size_t)(c->end - c->at) < length || memcmp(c->at, word, length) != 0)
        return false;
    c->at += length;
    return true;
}

/* 'text' or "text", into out. */
static bool take_string(cursor *c, char *out, size_t size)
{
    skip_space(c);
    if (c->at >= c->end || (*c->at != '\'' && *c->at != '"'))
        return false;
    char quote = *c->at++;
    size_t length = 0;
    while (c->at < c->end && *c->at != quote && length + 1 < size)
        out[length++] = *c->at++;
    out[length] = '\0';
    return c->at < c->end && *c->at++ == quote;
}

static bool take_int(cursor *c, int64_t *value)
{
    skip_space(c);
    const char *begin = c->at;
    *value = 0;
    while (c->at < c->end && *c->at >= '0' && *c->at <= '9')
        if (__builtin_mul_overflow(*value, 10, value) ||
            __builtin_add_overflow(*value, *c->at++ - '0', value))
            return false;
    return c->at > begin;
}

typedef struct header {
    char descr[16];
    bool fortran, has_descr, has_order, has_shape;
    int rank;
    int64_t dims[EBB_MAX_RANK];
} header;

static bool take_shape(cursor *c, header *h)
{
    if (!take(c, "("))
        return false;
    while (!take(c, ")")) {
        if (h->rank == EBB_MAX_RANK || !take_int(c, &h->dims[h->rank]))
            return false;
        h->rank++;
        if (!take(c, ",") && !take(c, ")"))
            return false;
        if (c->at[-1] == ')')
            break;
    }
    return true;
}

static bool take_header(cursor *c, header *h)
{
    if (!take(c, "{"))
        return false;
    while (!take(c, "}")) {
        char key[24];
        if (!take_string(c, key, sizeof key) || !take(c, ":"))
            return false;
        if (strcmp(key, "descr") == 0 && !h->has_descr) {
            h->has_descr = true;
            if (!take_string(c, h->descr, sizeof h->descr))
                return false;
        } else if (strcmp(key, "fortran_order") == 0 && !h->has_order) {
            h->has_order = true;
            h->fortran = take(c, "True");
            if (!h->fortran && !take(c, "False"))
                return false;
        } else if (strcmp(key, "shape") == 0 && !h->has_shape) {
            h->has_shape = true;
            if (!take_shape(c, h))
                return false;
        } else {
            return false;
        }
        (void)take(c, ",");
    }
    return h->has_descr && h->has_order && h->has_shape;
}

static ebb_dtype dtype_of_descr(const char *descr)
{
    static const struct {
        const char *descr;
        ebb_dtype dtype;
    } table[] = {
        {"?", EBB_BOOL}, {"b1", EBB_BOOL}, {"i1", EBB_I8},  {"u1", EBB_U8},  {"i2", EBB_I16},
        {"u2", EBB_U16}, {"i4", EBB_I32},  {"u4", EBB_U32}, {"i8", EBB_I64}, {"u8", EBB_U64},
        {"f2", EBB_F16}, {"f4", EBB_F32},  {"f8", EBB_F64},
    };
    if (descr[0] == '<' || descr[0] == '|' || descr[0] == '=')
        descr++;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strcmp(descr, table[i].descr) == 0)
            return table[i].dtype;
    return EBB_NONE;
}

ebb_status ebb_npy_parse(ebb_data *data, const char *name, size_t name_length,
                         const unsigned char *bytes, size_t size)
{
    int shown = name_length < 200 ? (int)name_length : 200;
    if (size < 12 || memcmp(bytes, "\x93NUMPY", 6) != 0)
        return ebb_error(EBB_REJECTED, "'%.*s' is not a NumPy array", shown, name);
    size_t begin = bytes[6] == 1 ? 10 : 12, length = bytes[8] | (size_t)bytes[9] << 8;
    if (bytes[6] > 1)
        length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
    if (bytes[6] < 1 || bytes[6] > 3 || length > size - begin)
        return ebb_error(EBB_REJECTED,
                         "array '%.*s': the header of %zu bytes (version %u) does not "
                         "fit into %zu",
                         shown, name, length, (unsigned)bytes[6], size);
    const char *text = (const char *)bytes + begin;
    cursor c = {text, text + length};
    header h = {0};
    if (!take_header(&c, &h))
        return ebb_hint(ebb_error(EBB_REJECTED,
                                  "array '%.*s': the header is not a NumPy dict of descr, "
                                  "fortran_order and shape",
                                  shown, name),
                        "records of several fields are saved as an array of each field");
    if (h.fortran && h.rank > 1)
        return ebb_error(EBB_REJECTED,
                         "array '%.*s' is in Fortran order; save it with "
                         "numpy.ascontiguousarray",
                         shown, name);
    ebb_dtype dtype = dtype_of_descr(h.descr);
    if (dtype == EBB_NONE)
        return ebb_hint(
            ebb_error(EBB_REJECTED, "array '%.*s' has the data type '%s', which is not supported",
                      shown, name, h.descr),
            "%s",
            h.descr[0] == '>' ? "a.astype(a.dtype.newbyteorder('<')) is what is read here"
            : strchr(h.descr, 'O') != NULL
                ? "it holds objects of Python: numpy.stack(list(a)) makes numbers of rows that "
                  "have one shape"
            : strpbrk(h.descr, "US") == NULL
                ? "numpy's astype makes another of it"
                : "save it as numbers: classes by numpy.unique(a, return_inverse=True)[1]");
    return ebb_data_add(data, name, name_length, dtype, h.rank, h.dims, bytes + begin + length,
                        size - begin - length);
}

ebb_status ebb_npy_read(ebb_data *data, const char *path)
{
    const ebb_mapping *m;
    EBB_TRY(ebb_data_map(data, path, &m));
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    return ebb_at(ebb_npy_parse(data, name, strlen(name) - strlen(".npy"), m->data, m->bytes),
                  path);
}

/* ---- the archive ---- */

/* Deflate makes at most 1032 bytes of one: a claim above that is a lie that we need not allocate.
 */
static bool plausible(const zip_stat_t *facts)
{
    uint64_t most;
    if (__builtin_mul_overflow(facts->comp_size, UINT64_C(1040), &most) ||
        __builtin_add_overflow(most, UINT64_C(1024), &most))
        return false;
    return facts->size <= most && facts->size < SIZE_MAX;
}

/* An entry from here on is read row by row where it lies, so its checksum is not looked at: that would
 * be to read all of it first. */
static const uint64_t LARGE_ENTRY = UINT64_C(16) << 20;

/* m: the archive, mapped as soon as an entry is worth it. */
static ebb_status map_entry(ebb_data *data, const char *path, const ebb_mapping **m,
                            const zip_stat_t *facts, const unsigned char **bytes)
{
    uint64_t offset;
    *bytes = NULL;
    if (facts->comp_size != facts->size || facts->size < LARGE_ENTRY)
        return NULL;
    if (*m == NULL)
        EBB_TRY(ebb_data_map(data, path, m));
    if (ebb_npz_stored((*m)->data, (*m)->bytes, facts->name, facts->size, &offset))
        *bytes = (*m)->data + offset;
    return NULL;
}

static ebb_status read_entry(ebb_data *data, zip_t *zip, uint64_t index, const char *path,
                             const ebb_mapping **m)
{
    zip_stat_t facts;
    if (zip_stat_index(zip, index, 0, &facts) != 0 || !(facts.valid & ZIP_STAT_NAME) ||
        !(facts.valid & ZIP_STAT_SIZE) || !(facts.valid & ZIP_STAT_COMP_SIZE))
        return ebb_error(EBB_REJECTED, "entry %llu of the archive cannot be read",
                         (unsigned long long)index);
    size_t length = strlen(facts.name);
    if (length <= 4 || strcmp(facts.name + length - 4, ".npy") != 0)
        return NULL;
    if (!plausible(&facts))
        return ebb_error(EBB_REJECTED, "entry '%.200s' claims %llu bytes from %llu compressed ones",
                         facts.name, (unsigned long long)facts.size,
                         (unsigned long long)facts.comp_size);
    const unsigned char *mapped;
    EBB_TRY(map_entry(data, path, m, &facts, &mapped));
    if (mapped != NULL)
        return ebb_npy_parse(data, facts.name, length - 4, mapped, (size_t)facts.size);
    unsigned char *bytes = ebb_arena_alloc(&data->arena, (size_t)facts.size + 1);
    EBB_GOT(bytes);
    zip_file_t *file = zip_fopen_index(zip, index, 0);
    if (file == NULL)
        return ebb_error(EBB_REJECTED, "entry '%.200s': %s", facts.name, zip_strerror(zip));
    uint64_t got = 0;
    zip_int64_t n = 1;
    while (got < facts.size && n > 0) {
        n = zip_fread(file, bytes + got, facts.size - got);
        got += n > 0 ? (uint64_t)n : 0;
    }
    /* One byte more, so that the checksum is looked at. */
    bool whole = got == facts.size && zip_fread(file, bytes + got, 1) == 0;
    (void)zip_fclose(file);
    if (!whole)
        return ebb_error(EBB_REJECTED, "entry '%.200s' is damaged", facts.name);
    return ebb_npy_parse(data, facts.name, length - 4, bytes, (size_t)facts.size);
}

ebb_status ebb_npz_read(ebb_data *data, const char *path)
{
    int code = 0;
    zip_t *zip = zip_open(path, ZIP_RDONLY, &code);
    if (zip == NULL) {
        zip_error_t error;
        zip_error_init_with_code(&error, code);
        ebb_status status = ebb_error(
            code == ZIP_ER_NOENT || code == ZIP_ER_OPEN || code == ZIP_ER_READ ? EBB_IO
                                                                               : EBB_REJECTED,
            "%s: not a readable .npz: %s", path, zip_error_strerror(&error));
        zip_error_fini(&error);
        return status;
    }
    zip_int64_t count = zip_get_num_entries(zip, 0);
    const ebb_mapping *m = NULL;
    ebb_status status = NULL;
    for (zip_int64_t i = 0; status == NULL && i < count; i++)
        status = ebb_at(read_entry(data, zip, (uint64_t)i, path, &m), path);
    zip_discard(zip);
    return status;
}
