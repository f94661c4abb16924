/* test_stored.c: large entries of .npz files that are stored as they are: read row by row where they lie,
 * and archives that contradict themselves.
 */
#include "data_files.h"

#include "exec/data/formats/formats.h"
#include "tests/owned.h"

/* ---- through a file, as numpy.savez writes it ---- */

enum { ROWS = 5 << 10, COLUMNS = 1 << 10 }; /* 20 MiB of float32: above what is read into memory */

static void write_large(const char *path, bool compressed)
{
    FREED float *x = malloc((size_t)ROWS * COLUMNS * sizeof *x);
    FREED int64_t *label = malloc(ROWS * sizeof *label);
    assert_non_null(x);
    assert_non_null(label);
    for (int64_t i = 0; i < (int64_t)ROWS * COLUMNS; i++)
        x[i] = (float)i;
    for (int64_t i = 0; i < ROWS; i++)
        label[i] = -i;
    const member members[] = {
        {"label", "<i8", "5120", label, ROWS * sizeof *label},
        {"x", "<f4", "5120, 1024", x, (size_t)ROWS * COLUMNS * sizeof *x},
    };
    write_npz(path, members, 2, compressed);
}

TEST(a_large_entry_is_read_row_by_row_where_it_lies)
{
    for (int compressed = 0; compressed < 2; compressed++) {
        OWNED_DATA *data = NULL;
        ebb_batch batch;
        write_large(path_of("large.npz"), compressed != 0);
        assert_null(ebb_data_open(&data, path_of("large.npz"), NULL));
        const ebb_named *x = ebb_data_find(data, "x");
        assert_int_equal(x->dims[0], ROWS);
        assert_int_equal(x->data == NULL, !compressed); // not in memory
        assert_non_null(ebb_data_find(data, "label")->data);
        const int64_t rows[] = {ROWS - 1, 0, 17, 18, 19};
        assert_null(ebb_data_rows(data, rows, 5, NULL, &batch));
        assert_int_equal(batch.count, 2);
        for (size_t t = 0; t < batch.count; t++)
            for (int64_t k = 0; k < 5; k++) {
                if (strcmp(batch.tensors[t].name, "label") == 0)
                    assert_int_equal(((const int64_t *)batch.tensors[t].data)[k], -rows[k]);
                else
                    for (int64_t c = 0; c < COLUMNS; c++)
                        assert_true(((const float *)batch.tensors[t].data)[k * COLUMNS + c] ==
                                    (float)(rows[k] * COLUMNS + c));
            }
    }
}

TEST(a_file_that_is_cut_while_it_is_read_is_an_error)
{
    ebb_data *data = NULL;
    ebb_batch batch;
    const int64_t last[] = {ROWS - 1};
    write_large(path_of("cut.npz"), false);
    assert_null(ebb_data_open(&data, path_of("cut.npz"), NULL));
    assert_int_equal(truncate(path_of("cut.npz"), 1 << 20), 0);
    ebb_status status = ebb_data_rows(data, last, 1, NULL, &batch);
    assert_non_null(status);
    assert_non_null(strstr(ebb_status_text(status), "cut.npz"));
    ebb_data_close(data);
    assert_non_null(ebb_data_open(&data, path_of("cut.npz"), NULL));
}

/* ---- made by hand ---- */

typedef struct maker {
    unsigned char bytes[1024];
    size_t size;
} maker;

static void put(maker *m, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        m->bytes[m->size++] = (unsigned char)(value >> 8 * i);
}

static void put_text(maker *m, const char *text)
{
    memcpy(m->bytes + m->size, text, strlen(text));
    m->size += strlen(text);
}

typedef struct places { /* of what the tests change */
    size_t local, data, record, end64, locator, end;
} places;

static const char content[] = "these are the bytes";
enum { CONTENT = sizeof content - 1 };

/* Local header and record, each with the sizes in the extra field that they have above 4 GiB: numpy.savez
 * writes such a local header always. */
static maker make_zip(places *at, bool wide)
{
    maker m = {.size = 0};
    put_text(&m, "junk before");
    at->local = m.size;
    put(&m, 0x04034b50, 4);
    put(&m, 45, 2); // version, flags, method, time, date, checksum
    put(&m, 0, 2);
    put(&m, 0, 2);
    put(&m, 0, 4);
    put(&m, 0, 4);
    put(&m, UINT32_MAX, 4);
    put(&m, UINT32_MAX, 4);
    put(&m, 5, 2);
    put(&m, 20, 2);
    put_text(&m, "x.npy");
    put(&m, 1, 2);
    put(&m, 16, 2);
    put(&m, CONTENT, 8);
    put(&m, CONTENT, 8);
    at->data = m.size;
    put_text(&m, content);
    at->record = m.size;
    put(&m, 0x02014b50, 4);
    put(&m, 45, 2); // versions, flags, method, time, date, checksum
    put(&m, 45, 2);
    put(&m, 0, 2);
    put(&m, 0, 2);
    put(&m, 0, 4);
    put(&m, 0, 4);
    put(&m, wide ? UINT32_MAX : CONTENT, 4);
    put(&m, wide ? UINT32_MAX : CONTENT, 4);
    put(&m, 5, 2);
    put(&m, wide ? 4 + 2 + 28 : 0, 2);
    put(&m, 0, 2);
    put(&m, 0, 8); // disk, attributes
    put(&m, wide ? UINT32_MAX : at->local, 4);
    put_text(&m, "x.npy");
    if (wide) {
        put(&m, 7, 2); // another extra field before it
        put(&m, 2, 2);
        put(&m, 0, 2);
        put(&m, 1, 2);
        put(&m, 24, 2);
        put(&m, CONTENT, 8);
        put(&m, CONTENT, 8);
        put(&m, at->local, 8);
    }
    const size_t directory = m.size - at->record;
    at->end64 = m.size;
    if (wide) {
        put(&m, 0x06064b50, 4);
        put(&m, 44, 8);
        put(&m, 45, 2);
        put(&m, 45, 2);
        put(&m, 0, 8);
        put(&m, 1, 8);
        put(&m, 1, 8);
        put(&m, directory, 8);
        put(&m, at->record, 8);
        at->locator = m.size;
        put(&m, 0x07064b50, 4);
        put(&m, 0, 4);
        put(&m, at->end64, 8);
        put(&m, 1, 4);
    }
    at->end = m.size;
    put(&m, 0x06054b50, 4);
    put(&m, 0, 4);
    put(&m, wide ? UINT16_MAX : 1, 2);
    put(&m, wide ? UINT16_MAX : 1, 2);
    put(&m, directory, 4);
    put(&m, wide ? UINT32_MAX : at->record, 4);
    put(&m, 7, 2);
    put_text(&m, "comment");
    return m;
}

/* In memory of exactly its size, so that a sanitizer sees what is read beyond. */
static bool is_found(const maker *m, size_t size, const char *entry, uint64_t bytes,
                     uint64_t *offset)
{
    FREED unsigned char *exact = malloc(size + (size == 0));
    assert_non_null(exact);
    memcpy(exact, m->bytes, size);
    const bool found = ebb_npz_stored(exact, size, entry, bytes, offset);
    if (found)
        assert_true(*offset <= size && bytes <= size - *offset);
    return found;
}

TEST(entries_are_found_with_sizes_of_32_and_64_bits)
{
    for (int wide = 0; wide < 2; wide++) {
        places at;
        uint64_t offset = 0;
        const maker m = make_zip(&at, wide != 0);
        assert_true(is_found(&m, m.size, "x.npy", CONTENT, &offset));
        assert_int_equal(offset, at.data);
        assert_false(is_found(&m, m.size, "y.npy", CONTENT, &offset));
        assert_false(is_found(&m, m.size, "x.np", CONTENT, &offset));
        assert_false(is_found(&m, m.size, "x.npy", CONTENT - 1, &offset));
    }
}

TEST(what_does_not_agree_is_left_to_others)
{
    places at;
    uint64_t offset;
    const maker good = make_zip(&at, true);
    const size_t changed[] = {
        at.local,        // no local header there
        at.local + 8,    // another method there
        at.local + 27,   // a name of 261 bytes
        at.local + 30,   // another name
        at.record,       // no record
        at.record + 8,   // encrypted
        at.record + 10,  // compressed
        at.record + 29,  // a long name
        at.record + 46,  // another one
        at.record + 53,  // an extra field that ends behind the record
        at.record + 59,  // sizes that are cut
        at.record + 61,  // another size
        at.record + 69,  // another stored size
        at.record + 80,  // it begins elsewhere
        at.end64,        // no wide end
        at.end64 + 32,   // no record in it
        at.end64 + 55,   // a directory far behind the end
        at.locator + 15, // a wide end far behind the end
        at.end,          // no end
    };
    for (size_t i = 0; i < sizeof changed / sizeof *changed; i++) {
        maker bad = good;
        bad.bytes[changed[i]] ^= 1;
        if (is_found(&bad, bad.size, "x.npy", CONTENT, &offset))
            fail_msg("byte %zu, number %zu of the list", changed[i], i);
    }
    for (size_t size = 0; size + 7 < good.size; size++) // the comment may be cut
        assert_false(is_found(&good, size, "x.npy", CONTENT, &offset));
    for (size_t i = 0; i < good.size; i++) // whatever it says, nothing is read beyond
        for (int bit = 0; bit < 8; bit++) {
            maker bad = good;
            bad.bytes[i] ^= (unsigned char)(1 << bit);
            (void)is_found(&bad, bad.size, "x.npy", CONTENT, &offset);
        }
}

const fixture around_all = {make_folder, remove_folder};
