/* mover.c: three threads with a bounded queue each, and one file.
 *
 *     step thread     store a   store b   wait a        fetch a   wait a'
 *     writer                [a........][b........]
 *     reader                                            [a......]
 *
 * Bytes are written from where they lie and read to where they will, piece by piece, so that a piece is summed
 * while it is in the cache.
 */
#include "kernels/away/mover.h"

#include "onnx/words/map.h"
#include "onnx/words/amount.h"
#include "onnx/words/clock.h"
#include "onnx/words/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { DEPTH = 64, PIECE = EBB_MOVER_PIECE };

typedef enum direction { WRITER, READER, EXCHANGER, DIRECTIONS } direction;

typedef struct move {
    uint32_t spot;
    void *memory;
    size_t bytes;
    const char *node;
    ebb_status (*run)(const struct ebb_call *); /* of an exchange, with: */
    const struct ebb_call *call;
} move;

typedef struct queue { /* moves first .. next - 1 are under way, move i in list[i % DEPTH] */
    ebb_mover *mover;
    direction way;
    pthread_t thread;
    pthread_cond_t begun;
    bool runs;
    uint64_t first, next;
    move list[DEPTH];
} queue;

struct ebb_mover {
    ebb_spot *spots;
    uint64_t *sums; /* by spot: of what was written */
    char *folder;
    bool unchecked;           /* no sums are made */
    int file;                 /* -1: none */
    char *host;               /* memory; NULL: none */
    const ebb_device *device; /* that pins it, and `rooms`; NULL: it is the host's own */
    void *queue;
    char *rooms;           /* two pieces, for the writer and for the reader; NULL: none */
    XXH64_hash_t read_sum; /* of the pieces of a tensor that a device has read so far */
    void *view;            /* of the file, to be read; NULL: not yet */
    pthread_mutex_t lock;
    pthread_cond_t over; /* a move of any queue */
    bool ends;
    ebb_status failed; /* the first failure */
    queue queues[DIRECTIONS];
    ebb_mover_facts facts;
};

/* ---- one move ---- */

static ebb_status io_error(const ebb_mover *m, const move *v, const char *what)
{
    const int code = errno;
    ebb_status status =
        ebb_error(EBB_IO, "%s: %s %zu bytes in '%s': %s", v->node, what, v->bytes, m->folder,
                  code != 0 ? strerror(code) : "the file ends too early");
    return ebb_hint(status, code == ENOSPC ? "free space there, or name another folder with --spill"
                                           : "name another folder with --spill");
}

static ebb_status lies(const ebb_mover *m, const char *node, size_t bytes)
{
    return ebb_hint(ebb_error(EBB_IO, "%s: the %zu bytes read in '%s' are not those written", node,
                              bytes, m->folder),
                    "the disk is not to be trusted: name another folder with --spill");
}

/* All of the piece. errno 0: the file ended. */
static bool transfer(int file, direction way, char *piece, size_t bytes, uint64_t offset)
{
    for (size_t done = 0; done < bytes;) {
        errno = 0;
        const ssize_t n = way == WRITER
                              ? pwrite(file, piece + done, bytes - done, (off_t)(offset + done))
                              : pread(file, piece + done, bytes - done, (off_t)(offset + done));
        if (n > 0)
            done += (size_t)n;
        else if (n == 0 || errno != EINTR)
            return false;
    }
    return true;
}

static ebb_status move_on_disk(ebb_mover *m, const move *v, direction way)
{
    const uint64_t offset = m->spots[v->spot].offset;
    XXH64_hash_t sum = 0;
    for (size_t at = 0; at < v->bytes; at += PIECE) {
        const size_t n = v->bytes - at < PIECE ? v->bytes - at : PIECE;
        char *piece = (char *)v->memory + at;
        if (!transfer(m->file, way, piece, n, offset + at))
            return io_error(m, v, way == WRITER ? "could not write" : "could not read");
        if (!m->unchecked)
            sum = XXH3_64bits_withSeed(piece, n, sum);
    }
    if (way == WRITER)
        m->sums[v->spot] = sum;
    else if (!m->unchecked && m->sums[v->spot] != sum)
        return lies(m, v->node, v->bytes);
    return NULL;
}

/* Pieces of one tensor come one after another in each way, so one sum each is enough. */
ebb_status ebb_mover_carry(void *context, uint64_t step)
{
    const ebb_mover_piece *p = context;
    ebb_mover *m = p->mover;
    const direction way = p->stores ? WRITER : READER;
    const move v = {.spot = p->spot, .bytes = p->whole, .node = p->node};
    XXH64_hash_t *sum = p->stores ? &m->sums[p->spot] : &m->read_sum;
    char *room = ebb_mover_room(m, p->stores);
    (void)step;
    if (!transfer(m->file, way, room, p->bytes, m->spots[p->spot].offset + p->at))
        return io_error(m, &v, way == WRITER ? "could not write" : "could not read");
    if (m->unchecked)
        return NULL;
    *sum = XXH3_64bits_withSeed(room, p->bytes, p->at == 0 ? 0 : *sum);
    if (!p->stores && p->at + p->bytes == p->whole && *sum != m->sums[p->spot])
        return lies(m, p->node, p->whole);
    return NULL;
}

void *ebb_mover_memory(const ebb_mover *m, uint32_t spot)
{
    return m->spots[spot].on_disk ? NULL : m->host + m->spots[spot].offset;
}

void *ebb_mover_room(const ebb_mover *m, bool stores)
{
    return m->rooms + (stores ? 0 : PIECE);
}

static ebb_status carry_out(ebb_mover *m, const move *v, direction way)
{
    if (way == EXCHANGER)
        return v->run(v->call);
    const ebb_spot *spot = &m->spots[v->spot];
    if (spot->on_disk)
        return move_on_disk(m, v, way);
    char *there = m->host + spot->offset;
    memcpy(way == WRITER ? there : v->memory, way == WRITER ? v->memory : there, v->bytes);
    return NULL;
}

/* ---- the threads ---- */

static void *work(void *context)
{
    queue *q = context;
    ebb_mover *m = q->mover;
    (void)pthread_mutex_lock(&m->lock);
    for (;;) {
        while (q->first == q->next && !m->ends)
            (void)pthread_cond_wait(&q->begun, &m->lock);
        if (q->first == q->next)
            break;
        const move v = q->list[q->first % DEPTH];
        const bool goes = m->failed == NULL; // what follows a failure is not worth the time
        (void)pthread_mutex_unlock(&m->lock);
        ebb_status status = goes ? carry_out(m, &v, q->way) : NULL;
        (void)pthread_mutex_lock(&m->lock);
        if (status != NULL && m->failed == NULL)
            m->failed = status;
        if (q->way != EXCHANGER)
            *(q->way == WRITER ? &m->facts.stored_bytes : &m->facts.fetched_bytes) += v.bytes;
        q->first++;
        (void)pthread_cond_broadcast(&m->over);
    }
    (void)pthread_mutex_unlock(&m->lock);
    return NULL;
}

static ebb_status start_thread(queue *q)
{
    q->runs = ebb_thread_start(&q->thread, work, q);
    return q->runs ? NULL
                   : ebb_error(EBB_RUNTIME, "no thread can be started that works beside the step");
}

static ebb_status start(ebb_mover *m, direction way, const move *v)
{
    queue *q = &m->queues[way];
    (void)pthread_mutex_lock(&m->lock);
    if (q->next - q->first == DEPTH) {
        const int64_t began = ebb_now_ns();
        while (q->next - q->first == DEPTH)
            (void)pthread_cond_wait(&m->over, &m->lock);
        m->facts.waited_ns += ebb_now_ns() - began;
    }
    ebb_status status = m->failed;
    if (status == NULL && (v->bytes > 0 || way == EXCHANGER))
        q->list[q->next++ % DEPTH] = *v;
    (void)pthread_mutex_unlock(&m->lock);
    (void)pthread_cond_signal(&q->begun);
    return status;
}

ebb_status ebb_mover_store(ebb_mover *mover, uint32_t spot, void *memory, size_t bytes,
                           const char *node)
{
    return start(mover, WRITER, &(move){spot, memory, bytes, node, NULL, NULL});
}

ebb_status ebb_mover_fetch(ebb_mover *mover, uint32_t spot, void *memory, size_t bytes,
                           const char *node)
{
    return start(mover, READER, &(move){spot, memory, bytes, node, NULL, NULL});
}

ebb_status ebb_mover_exchange(ebb_mover *mover, ebb_status (*run)(const struct ebb_call *),
                              const struct ebb_call *call, void *memory)
{
    return start(mover, EXCHANGER, &(move){.memory = memory, .run = run, .call = call});
}

ebb_status ebb_mover_quiet(ebb_mover *mover)
{
    const queue *q = &mover->queues[EXCHANGER];
    (void)pthread_mutex_lock(&mover->lock);
    while (q->first != q->next)
        (void)pthread_cond_wait(&mover->over, &mover->lock);
    ebb_status status = mover->failed;
    (void)pthread_mutex_unlock(&mover->lock);
    return status;
}

/* memory NULL: of anything. */
static bool is_under_way(const ebb_mover *m, const void *memory)
{
    for (int way = 0; way < DIRECTIONS; way++)
        for (uint64_t i = m->queues[way].first; i != m->queues[way].next; i++)
            if (memory == NULL || m->queues[way].list[i % DEPTH].memory == memory)
                return true;
    return false;
}

static ebb_status wait_for(ebb_mover *m, const void *memory, bool forgets)
{
    (void)pthread_mutex_lock(&m->lock);
    if (is_under_way(m, memory)) {
        const int64_t began = ebb_now_ns();
        while (is_under_way(m, memory))
            (void)pthread_cond_wait(&m->over, &m->lock);
        m->facts.waited_ns += ebb_now_ns() - began;
    }
    ebb_status status = m->failed;
    if (forgets)
        m->failed = NULL;
    (void)pthread_mutex_unlock(&m->lock);
    return status;
}

ebb_status ebb_mover_wait(ebb_mover *mover, const void *memory)
{
    return wait_for(mover, memory, false);
}

ebb_status ebb_mover_settle(ebb_mover *mover)
{
    return wait_for(mover, NULL, true);
}

/* ---- looking ---- */

static ebb_status map_file(ebb_mover *m)
{
    if (m->view != NULL)
        return NULL;
    void *view = mmap(NULL, (size_t)m->facts.disk_bytes, PROT_READ, MAP_SHARED, m->file, 0);
    if (view == MAP_FAILED)
        return ebb_error_io(m->folder, "mapping the file of values on disk in");
    m->view = view;
    return NULL;
}

ebb_status ebb_mover_look(ebb_mover *m, const void **data, uint32_t spot, size_t bytes,
                          const char *name)
{
    const ebb_spot *s = &m->spots[spot];
    EBB_TRY(ebb_mover_settle(m));
    if (!s->on_disk) {
        *data = m->host + s->offset;
        return NULL;
    }
    EBB_TRY(map_file(m));
    const char *at = (const char *)m->view + s->offset;
    *data = at;
    XXH64_hash_t sum = 0;
    for (size_t k = 0; k < bytes && !m->unchecked; k += PIECE)
        sum = XXH3_64bits_withSeed(at + k, bytes - k < PIECE ? bytes - k : PIECE, sum);
    return m->unchecked || sum == m->sums[spot] ? NULL : lies(m, name, bytes);
}

/* ---- open and close ---- */

static ebb_status open_file(ebb_mover *m, uint64_t bytes)
{
    m->file = ebb_nameless_open(m->folder);
    if (m->file < 0)
        return ebb_hint(ebb_error_io(m->folder, "no file can be made here for values on disk"),
                        "name a folder with --spill");
    const int why = bytes <= INT64_MAX ? posix_fallocate(m->file, 0, (off_t)bytes) : EFBIG;
    if (why != 0)
        return ebb_hint(ebb_error(EBB_IO, "%s: the step keeps %s on disk: %s", m->folder,
                                  ebb_bytes(bytes).text, strerror(why)),
                        "free space there, or name another folder with --spill");
    struct stat made;
    if (fstat(m->file, &made) == 0)
        m->facts.disk_bytes = (uint64_t)made.st_size;
    return NULL;
}

/* Memory of the host; where a device moves, it pins it. */
static ebb_status take_memory(const ebb_mover *m, uint64_t bytes, char **memory)
{
    void *taken = NULL;
    EBB_GOT(bytes <= SIZE_MAX);
    if (m->device != NULL)
        EBB_TRY(m->device->stage(m->queue, (size_t)bytes, &taken));
    else if ((taken = ebb_alloc_aligned(64, (size_t)bytes)) == NULL)
        return ebb_error_memory();
    *memory = taken;
    return NULL;
}

static void give_memory(const ebb_mover *m, char *memory)
{
    if (m->device == NULL)
        ebb_free_aligned(memory);
    else if (memory != NULL)
        m->device->unstage(m->queue, memory);
}

static ebb_status open_all(ebb_mover *m, const ebb_mover_plan *plan)
{
    m->device = plan->device != NULL && !plan->device->is_host ? plan->device : NULL;
    m->queue = plan->queue;
    m->spots = ebb_alloc((plan->spot_count + 1) * sizeof *m->spots);
    m->sums = ebb_alloc((plan->spot_count + 1) * sizeof *m->sums);
    const size_t length = strlen(plan->folder) + 1;
    m->folder = ebb_alloc(length);
    EBB_GOT(m->spots && m->sums && m->folder);
    memcpy(m->folder, plan->folder, length);
    m->unchecked = plan->unchecked;
    if (plan->spot_count > 0)
        memcpy(m->spots, plan->spots, plan->spot_count * sizeof *m->spots);
    if (plan->disk_bytes > 0)
        EBB_TRY(open_file(m, plan->disk_bytes));
    if (plan->host_bytes > 0) {
        EBB_TRY(ebb_while(take_memory(m, plan->host_bytes, &m->host),
                          "making room for the %s that the step keeps on the host",
                          ebb_bytes(plan->host_bytes).text));
        m->facts.host_bytes = plan->host_bytes;
    }
    if (plan->disk_bytes > 0 && m->device != NULL)
        EBB_TRY(take_memory(m, 2 * PIECE, &m->rooms));
    for (int way = 0; way < DIRECTIONS; way++) {
        queue *q = &m->queues[way];
        q->mover = m;
        q->way = (direction)way;
        EBB_TRY(start_thread(q));
    }
    return NULL;
}

ebb_status ebb_mover_open(ebb_mover **mover, const ebb_mover_plan *plan)
{
    *mover = NULL;
    ebb_mover *m = ebb_alloc(sizeof *m);
    EBB_GOT(m);
    *m = (ebb_mover){.file = -1};
    (void)pthread_mutex_init(&m->lock, NULL);
    (void)pthread_cond_init(&m->over, NULL);
    for (int way = 0; way < DIRECTIONS; way++)
        (void)pthread_cond_init(&m->queues[way].begun, NULL);
    ebb_status status = open_all(m, plan);
    if (status != NULL)
        ebb_mover_close(m);
    else
        *mover = m;
    return status;
}

void ebb_mover_close(ebb_mover *mover)
{
    if (mover == NULL)
        return;
    (void)pthread_mutex_lock(&mover->lock);
    mover->ends = true;
    (void)pthread_mutex_unlock(&mover->lock);
    for (int way = 0; way < DIRECTIONS; way++) {
        queue *q = &mover->queues[way];
        (void)pthread_cond_signal(&q->begun);
        if (q->runs)
            (void)pthread_join(q->thread, NULL);
        (void)pthread_cond_destroy(&q->begun);
    }
    if (mover->view != NULL)
        (void)munmap(mover->view, (size_t)mover->facts.disk_bytes);
    if (mover->file >= 0)
        (void)close(mover->file);
    give_memory(mover, mover->host);
    give_memory(mover, mover->rooms);
    ebb_free(mover->folder);
    ebb_free(mover->sums);
    ebb_free(mover->spots);
    (void)pthread_cond_destroy(&mover->over);
    (void)pthread_mutex_destroy(&mover->lock);
    ebb_free(mover);
}

ebb_mover_facts ebb_mover_measure(ebb_mover *mover)
{
    (void)pthread_mutex_lock(&mover->lock);
    const ebb_mover_facts facts = mover->facts;
    (void)pthread_mutex_unlock(&mover->lock);
    return facts;
}
