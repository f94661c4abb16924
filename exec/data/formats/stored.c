/* stored.c: where an entry of a zip archive lies that is stored as it is.
 *
 *     [local header, name, extra][bytes] ... [central directory: one record an entry][end record]
 *
 * libzip gives bytes and keeps where they are to itself. Only what is needed for that is read here, and
 * what does not agree is left to libzip. Sizes above 4 GiB stand in the extra field 1 (zip64).
 */
#include "exec/data/formats/formats.h"

typedef struct window {
    const unsigned char *at;
    size_t size;
} window;

static uint64_t number(const unsigned char *at, int bytes)
{
    uint64_t n = 0;
    for (int i = bytes; i-- > 0;)
        n = n << 8 | at[i];
    return n;
}

static bool inside(const window *w, uint64_t offset, uint64_t bytes)
{
    return offset <= w->size && bytes <= w->size - offset;
}

enum {
    LOCAL = 0x04034b50,
    RECORD = 0x02014b50,
    END = 0x06054b50,
    END64 = 0x06064b50,
    LOCATOR = 0x07064b50,
    LOCAL_BYTES = 30,
    RECORD_BYTES = 46,
    END_BYTES = 22,
    END64_BYTES = 56,
    LOCATOR_BYTES = 20,
};

/* Where the central directory begins, and how many records it has. */
static bool find_directory(const window *w, uint64_t *offset, uint64_t *count)
{
    const size_t least = w->size > 65535 + END_BYTES ? w->size - 65535 - END_BYTES : 0;
    if (w->size < END_BYTES)
        return false;
    size_t end = w->size - END_BYTES;
    while (number(w->at + end, 4) != END) // a comment may stand behind it
        if (end-- == least)
            return false;
    *count = number(w->at + end + 10, 2);
    *offset = number(w->at + end + 16, 4);
    if (end < LOCATOR_BYTES || number(w->at + end - LOCATOR_BYTES, 4) != LOCATOR)
        return true;
    const uint64_t end64 = number(w->at + end - LOCATOR_BYTES + 8, 8);
    if (!inside(w, end64, END64_BYTES) || number(w->at + end64, 4) != END64)
        return false;
    *count = number(w->at + end64 + 32, 8);
    *offset = number(w->at + end64 + 48, 8);
    return true;
}

typedef struct record {
    uint64_t bytes, stored_bytes, local;
    unsigned method, flags;
} record;

/* Those of the three that do not fit into 32 bits, in this order. */
static bool take_extra(record *r, const unsigned char *extra, size_t size)
{
    uint64_t *const wide[] = {&r->bytes, &r->stored_bytes, &r->local};
    for (size_t at = 0; at + 4 <= size;) {
        const size_t length = (size_t)number(extra + at + 2, 2);
        if (length > size - at - 4)
            return false;
        size_t used = 0;
        for (int i = 0; number(extra + at, 2) == 1 && i < 3; i++) {
            if (*wide[i] != UINT32_MAX)
                continue;
            if (used + 8 > length)
                return false;
            *wide[i] = number(extra + at + 4 + used, 8);
            used += 8;
        }
        at += 4 + length;
    }
    return true;
}

/* The record of this name; *offset goes from record to record. */
static bool find_record(const window *w, uint64_t offset, uint64_t count, const char *entry,
                        record *r)
{
    const size_t length = strlen(entry);
    for (; count > 0; count--) {
        if (!inside(w, offset, RECORD_BYTES) || number(w->at + offset, 4) != RECORD)
            return false;
        const unsigned char *at = w->at + offset;
        const size_t name = (size_t)number(at + 28, 2), extra = (size_t)number(at + 30, 2);
        const size_t comment = (size_t)number(at + 32, 2);
        if (!inside(w, offset + RECORD_BYTES, (uint64_t)name + extra + comment))
            return false;
        if (name == length && memcmp(at + RECORD_BYTES, entry, length) == 0) {
            *r = (record){.flags = (unsigned)number(at + 8, 2),
                          .method = (unsigned)number(at + 10, 2),
                          .stored_bytes = number(at + 20, 4),
                          .bytes = number(at + 24, 4),
                          .local = number(at + 42, 4)};
            return take_extra(r, at + RECORD_BYTES + name, extra);
        }
        offset += RECORD_BYTES + name + extra + comment;
    }
    return false;
}

bool ebb_npz_stored(const unsigned char *archive, size_t size, const char *entry,
                    uint64_t entry_bytes, uint64_t *offset)
{
    const window w = {archive, size};
    const size_t length = strlen(entry);
    uint64_t directory, count;
    record r;
    if (!find_directory(&w, &directory, &count) || !find_record(&w, directory, count, entry, &r))
        return false;
    if (r.method != 0 || (r.flags & 1) != 0 || r.bytes != entry_bytes || r.stored_bytes != r.bytes)
        return false;
    if (!inside(&w, r.local, LOCAL_BYTES) || number(w.at + r.local, 4) != LOCAL)
        return false;
    const unsigned char *at = w.at + r.local;
    const uint64_t name = number(at + 26, 2), extra = number(at + 28, 2);
    *offset = r.local + LOCAL_BYTES + name + extra;
    return name == length && inside(&w, r.local + LOCAL_BYTES, name) &&
           memcmp(at + LOCAL_BYTES, entry, length) == 0 && number(at + 8, 2) == 0 &&
           inside(&w, *offset, entry_bytes);
}
