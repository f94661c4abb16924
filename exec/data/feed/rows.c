/* rows.c: gathers rows into a batch, by threads of its own where the caller announced them.
 *
 *     caller       ahead(k+1)  rows(k) -> step k         ahead(k+2)  rows(k+1) -> step k+1
 *     threads            └── read, cast k+1 ──┘                └── ...
 *
 * The work is cut into blocks of rows. Whoever takes part takes the next block, so what comes out does
 * not depend on who did it. Rows are read in the order of their places: the system finds the pages of a
 * large file in half the time that it takes for the same rows as they were drawn.
 */
#include "exec/data/feed/rows.h"
#include "onnx/words/thread.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST_THREADS = 8, BLOCK_ROWS = 64 };

typedef struct buffer {
    void *memory;
    size_t capacity;
    int64_t dims[EBB_MAX_RANK];
} buffer;

typedef struct place {
    int64_t row; /* of the arrays */
    size_t at;   /* in the batch */
} place;

typedef struct room {
    ebb_feed *feeds;
    buffer *buffers;
    ebb_named *batch;
    size_t count, capacity; /* of the three */
    int64_t *index;
    place *places; /* the same rows, sorted by who begins the work */
    size_t rows, index_capacity;
    ebb_epoch epoch;
    /* the work on it; below under the lock */
    size_t next, blocks, busy;
    size_t failed_at; /* the first block that failed */
    ebb_status status;
} room;

struct ebb_reader {
    const ebb_data *data;
    ebb_feed *bound;
    size_t bound_count;
    room rooms[2];
    int now;      /* the room of the caller */
    bool pending; /* the other one is being filled, or is full */
    ebb_epoch epoch;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    bool locks, stop;
    room *job; /* of the threads; NULL: none */
    pthread_t threads[MOST_THREADS];
    int thread_count;
    ebb_scratch scratch[MOST_THREADS + 1]; /* the last: of the caller */
};

/* ---- blocks ---- */

static size_t block_rows(const ebb_feed *feed)
{
    return feed->shape.picture ? 1 : feed->bytes > 1 << 16 ? 4 : BLOCK_ROWS;
}

static size_t block_count(const room *r, const ebb_feed *feed)
{
    const size_t rows = block_rows(feed);
    return (r->rows + rows - 1) / rows;
}

static int by_row(const void *a, const void *b)
{
    const place *x = a, *y = b;
    return x->row != y->row ? (x->row < y->row ? -1 : 1) : x->at < y->at ? -1 : x->at > y->at;
}

static void sort_places(room *r)
{
    for (size_t i = 0; i < r->rows; i++)
        r->places[i] = (place){r->index[i], i};
    qsort(r->places, r->rows, sizeof *r->places, by_row);
}

/* Rows that follow each other in the file and in the batch are read at once. */
static ebb_status fill_block(const struct ebb_reader *reader, room *r, size_t block, ebb_scratch *s)
{
    size_t k = 0;
    for (; block >= block_count(r, &r->feeds[k]); k++)
        block -= block_count(r, &r->feeds[k]);
    const ebb_feed *feed = &r->feeds[k];
    const size_t from = block * block_rows(feed), last = from + block_rows(feed);
    const size_t to = last < r->rows ? last : r->rows;
    for (size_t i = from, run; i < to; i += run) {
        const place *p = r->places + i;
        for (run = 1;
             i + run < to && p[run].row == p->row + (int64_t)run && p[run].at == p->at + run;)
            run++;
        EBB_TRY(ebb_feed_rows(feed, reader->data, &r->epoch, p->row, run,
                              (char *)r->buffers[k].memory + p->at * feed->bytes, s));
    }
    return NULL;
}

/* With the lock held. */
static void fill(struct ebb_reader *reader, room *r, ebb_scratch *s)
{
    r->busy++;
    if (r->next == 0)
        sort_places(r);
    while (r->next < r->blocks && r->status == NULL) {
        const size_t block = r->next++;
        (void)pthread_mutex_unlock(&reader->lock);
        ebb_status status = fill_block(reader, r, block, s);
        (void)pthread_mutex_lock(&reader->lock);
        if (status != NULL && block <= r->failed_at) {
            r->status = status;
            r->failed_at = block;
        }
    }
    r->busy--;
}

static bool is_done(const room *r)
{
    return r->busy == 0 && (r->next == r->blocks || r->status != NULL);
}

typedef struct start {
    struct ebb_reader *reader;
    int number;
} start;

static void *fill_for_ever(void *argument)
{
    start *s = argument;
    struct ebb_reader *reader = s->reader;
    ebb_scratch *scratch = &reader->scratch[s->number];
    ebb_free(s);
    (void)pthread_mutex_lock(&reader->lock);
    while (!reader->stop) {
        room *r = reader->job;
        if (r == NULL || r->next == r->blocks || r->status != NULL) {
            (void)pthread_cond_wait(&reader->work, &reader->lock);
            continue;
        }
        fill(reader, r, scratch);
        if (is_done(r))
            (void)pthread_cond_broadcast(&reader->done);
    }
    (void)pthread_mutex_unlock(&reader->lock);
    return NULL;
}

/* As many threads as that, or fewer where the system has no more. */
static void start_threads(struct ebb_reader *reader, int count)
{
    while (reader->thread_count < count) {
        start *s = ebb_alloc(sizeof *s);
        if (s == NULL)
            break;
        *s = (start){reader, reader->thread_count};
        if (!ebb_thread_start(&reader->threads[reader->thread_count], fill_for_ever, s)) {
            ebb_free(s);
            break;
        }
        reader->thread_count++;
    }
}

/* What no thread has begun the caller does itself, rather than wait for it. */
static void finish(struct ebb_reader *reader, room *r)
{
    (void)pthread_mutex_lock(&reader->lock);
    fill(reader, r, &reader->scratch[MOST_THREADS]);
    while (!is_done(r))
        (void)pthread_cond_wait(&reader->done, &reader->lock);
    if (reader->job == r)
        reader->job = NULL;
    (void)pthread_mutex_unlock(&reader->lock);
}

/* ---- rooms ---- */

static ebb_status make_reader(ebb_data *data)
{
    if (data->reader != NULL)
        return NULL;
    struct ebb_reader *reader = ebb_alloc(sizeof *reader);
    EBB_GOT(reader);
    memset(reader, 0, sizeof *reader);
    reader->data = data;
    data->reader = reader;
    reader->locks = pthread_mutex_init(&reader->lock, NULL) == 0 &&
                    pthread_cond_init(&reader->work, NULL) == 0 &&
                    pthread_cond_init(&reader->done, NULL) == 0;
    return reader->locks ? NULL : ebb_error(EBB_RUNTIME, "the system has no locks left");
}

static void free_room(room *r)
{
    for (size_t i = 0; i < r->capacity; i++)
        ebb_free(r->buffers[i].memory);
    ebb_free(r->feeds);
    ebb_free(r->buffers);
    ebb_free(r->batch);
    ebb_free(r->index);
    ebb_free(r->places);
}

void ebb_reader_free(struct ebb_reader *reader)
{
    if (reader == NULL)
        return;
    if (reader->locks) {
        (void)pthread_mutex_lock(&reader->lock);
        reader->stop = true;
        (void)pthread_cond_broadcast(&reader->work);
        (void)pthread_mutex_unlock(&reader->lock);
    }
    for (int i = 0; i < reader->thread_count; i++)
        (void)pthread_join(reader->threads[i], NULL);
    for (int i = 0; i <= MOST_THREADS; i++)
        ebb_scratch_free(&reader->scratch[i]);
    for (int i = 0; i < 2; i++)
        free_room(&reader->rooms[i]);
    if (reader->locks) {
        (void)pthread_cond_destroy(&reader->done);
        (void)pthread_cond_destroy(&reader->work);
        (void)pthread_mutex_destroy(&reader->lock);
    }
    ebb_free(reader->bound);
    ebb_free(reader);
}

static ebb_status widen(room *r, size_t count)
{
    if (count <= r->capacity)
        return NULL;
    ebb_feed *feeds = ebb_realloc(r->feeds, count * sizeof *feeds);
    r->feeds = feeds != NULL ? feeds : r->feeds;
    ebb_named *batch = ebb_realloc(r->batch, count * sizeof *batch);
    r->batch = batch != NULL ? batch : r->batch;
    buffer *buffers = ebb_realloc(r->buffers, count * sizeof *buffers);
    r->buffers = buffers != NULL ? buffers : r->buffers;
    EBB_GOT(feeds && batch && buffers);
    memset(buffers + r->capacity, 0, (count - r->capacity) * sizeof *buffers);
    r->capacity = count;
    return NULL;
}

static ebb_status ask_feed(room *r, const ebb_feed *feed)
{
    EBB_TRY(widen(r, r->count + 1));
    r->feeds[r->count++] = *feed;
    return NULL;
}

/* The feed of this pair: as it was bound, or the array as it is. */
static ebb_status ask_pair(const struct ebb_reader *reader, room *r, const ebb_named *array,
                           const char *input)
{
    for (size_t i = 0; i < reader->bound_count; i++)
        if (reader->bound[i].array == array && strcmp(reader->bound[i].input, input) == 0)
            return ask_feed(r, &reader->bound[i]);
    ebb_feed plain;
    EBB_TRY(ebb_feed_plain(&plain, reader->data, array, input));
    return ask_feed(r, &plain);
}

static ebb_status ask_feeds(const struct ebb_reader *reader, room *r, const char *const *map)
{
    const ebb_data *data = reader->data;
    r->count = 0;
    for (size_t i = 0; map != NULL && map[i] != NULL; i += 2) {
        const ebb_named *array = ebb_data_find(data, map[i]);
        if (array == NULL)
            return ebb_error(EBB_USAGE, "%s: there is no array '%s'", data->path, map[i]);
        EBB_TRY(ask_pair(reader, r, array, map[i + 1]));
    }
    for (size_t i = 0; map == NULL && i < reader->bound_count; i++)
        EBB_TRY(ask_feed(r, &reader->bound[i]));
    for (size_t i = 0; map == NULL && reader->bound_count == 0 && i < data->count; i++)
        EBB_TRY(ask_pair(reader, r, &data->list[i], data->list[i].name));
    return NULL;
}

static ebb_status ask_rows(const struct ebb_reader *reader, room *r, const int64_t *index,
                           size_t count)
{
    if (count > r->index_capacity || r->index == NULL) {
        const bool fits = count < SIZE_MAX / 32;
        int64_t *more = fits ? ebb_realloc(r->index, count * sizeof *more + 1) : NULL;
        r->index = more != NULL ? more : r->index;
        place *places = fits ? ebb_realloc(r->places, count * sizeof *places + 1) : NULL;
        r->places = places != NULL ? places : r->places;
        EBB_GOT(more && places);
        r->index_capacity = count;
    }
    for (size_t k = 0; k < r->count; k++) {
        const ebb_named *array = r->feeds[k].array;
        for (size_t i = 0; i < count; i++)
            if (index[i] < 0 || index[i] >= array->dims[0])
                return ebb_error(EBB_USAGE, "array '%s' has %lld rows: there is no row %lld",
                                 array->name, (long long)array->dims[0], (long long)index[i]);
    }
    if (count > 0)
        memcpy(r->index, index, count * sizeof *index);
    r->rows = count;
    r->epoch = reader->epoch;
    return NULL;
}

/* Room for the batch, and the work on it made ready. */
static ebb_status prepare(room *r)
{
    r->next = r->blocks = r->busy = 0;
    r->failed_at = SIZE_MAX;
    r->status = NULL;
    for (size_t k = 0; k < r->count; k++) {
        const ebb_feed *feed = &r->feeds[k];
        buffer *b = &r->buffers[k];
        size_t bytes;
        if (!ebb_size_mul(&bytes, feed->bytes, r->rows) || r->rows > INT64_MAX)
            return ebb_error(EBB_USAGE, "array '%s': %zu rows of it cannot be gathered",
                             feed->array->name, r->rows);
        if (bytes > b->capacity || b->memory == NULL) {
            void *memory = ebb_alloc(bytes);
            EBB_GOT(memory);
            ebb_free(b->memory);
            b->memory = memory;
            b->capacity = bytes;
        }
        memcpy(b->dims, feed->dims, sizeof b->dims);
        b->dims[0] = (int64_t)r->rows;
        r->batch[k] = (ebb_named){feed->input, (int)feed->to, feed->rank, b->dims, b->memory};
        r->blocks += block_count(r, feed);
    }
    return NULL;
}

static ebb_status ask(struct ebb_reader *reader, room *r, const int64_t *index, size_t count,
                      const char *const *map)
{
    EBB_TRY(ask_feeds(reader, r, map));
    EBB_TRY(ask_rows(reader, r, index, count));
    return prepare(r);
}

static bool is_asked(const struct ebb_reader *reader, const room *r, const int64_t *index,
                     size_t count, const char *const *map)
{
    size_t pairs = 0;
    if (r->rows != count || r->epoch.seed != reader->epoch.seed ||
        r->epoch.number != reader->epoch.number ||
        (count > 0 && memcmp(r->index, index, count * sizeof *index) != 0))
        return false;
    for (; map != NULL && map[2 * pairs] != NULL; pairs++)
        if (pairs >= r->count || strcmp(r->feeds[pairs].array->name, map[2 * pairs]) != 0 ||
            strcmp(r->feeds[pairs].input, map[2 * pairs + 1]) != 0)
            return false;
    return map == NULL || pairs == r->count;
}

static bool is_in_files(const struct ebb_reader *reader, const ebb_feed *feed)
{
    const ebb_array *array = &reader->data->arrays[feed->array - reader->data->list];
    for (size_t i = 0; i < array->part_count; i++)
        if (array->parts[i].bytes == NULL)
            return true;
    return false;
}

/* Pictures are decoded by all. Each row of a file is a call of the system, and a step that shares its
 * processors with the reading waits for it: two halve that. */
static int threads_for(const struct ebb_reader *reader, const room *r)
{
    const long there = sysconf(_SC_NPROCESSORS_ONLN);
    int threads = 1;
    for (size_t i = 0; i < r->count; i++) {
        const int more = r->feeds[i].shape.picture           ? MOST_THREADS
                         : is_in_files(reader, &r->feeds[i]) ? 2
                                                             : 1;
        threads = more > threads ? more : threads;
    }
    return there < threads ? (there < 1 ? 1 : (int)there) : threads;
}

/* Hands the room to the threads. False: there are none. */
static bool hand_over(struct ebb_reader *reader, room *r, int threads)
{
    start_threads(reader, threads);
    if (reader->thread_count == 0)
        return false;
    (void)pthread_mutex_lock(&reader->lock);
    reader->job = r;
    (void)pthread_cond_broadcast(&reader->work);
    (void)pthread_mutex_unlock(&reader->lock);
    return true;
}

/* ---- the calls ---- */

static void settle_pending(struct ebb_reader *reader)
{
    if (reader->pending)
        finish(reader, &reader->rooms[1 - reader->now]);
    reader->pending = false;
}

ebb_status ebb_reader_bind(ebb_data *data, const ebb_feed *feeds, size_t count)
{
    EBB_TRY(make_reader(data));
    struct ebb_reader *reader = data->reader;
    settle_pending(reader);
    ebb_feed *copy = ebb_alloc((count + 1) * sizeof *copy);
    EBB_GOT(copy);
    if (count > 0)
        memcpy(copy, feeds, count * sizeof *copy);
    ebb_free(reader->bound);
    reader->bound = copy;
    reader->bound_count = count;
    return NULL;
}

EBB_API ebb_status ebb_data_rows(ebb_data *data, const int64_t *index, size_t count,
                                 const char *const *map, ebb_batch *batch)
{
    EBB_NEED(data);
    EBB_NEED(batch);
    EBB_TRY(make_reader(data));
    struct ebb_reader *reader = data->reader;
    const bool ready = reader->pending;
    settle_pending(reader);
    room *other = &reader->rooms[1 - reader->now];
    if (ready && other->status == NULL && is_asked(reader, other, index, count, map)) {
        reader->now = 1 - reader->now;
    } else {
        room *r = &reader->rooms[reader->now];
        EBB_TRY(ask(reader, r, index, count, map));
        const int threads = threads_for(reader, r);
        if (threads > 1)
            (void)hand_over(reader, r, threads);
        finish(reader, r);
        EBB_TRY(r->status);
    }
    const room *r = &reader->rooms[reader->now];
    *batch = (ebb_batch){r->batch, r->count};
    return NULL;
}

EBB_API ebb_status ebb_data_ahead(ebb_data *data, const int64_t *index, size_t count,
                                  const char *const *map)
{
    EBB_NEED(data);
    EBB_TRY(make_reader(data));
    struct ebb_reader *reader = data->reader;
    settle_pending(reader);
    room *r = &reader->rooms[1 - reader->now];
    EBB_TRY(ask(reader, r, index, count, map));
    // without threads they are read when they are asked for
    reader->pending = hand_over(reader, r, threads_for(reader, r));
    return NULL;
}

EBB_API void ebb_data_epoch(ebb_data *data, uint64_t seed, uint64_t epoch)
{
    if (make_reader(data) == NULL)
        data->reader->epoch = (ebb_epoch){seed, epoch};
}
