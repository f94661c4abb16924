/* known.c: a ring of packings under one lock. */
#include "exec/weigh/pack/known.h"

#include "onnx/words/arena.h"

#include <pthread.h>
#include <string.h>

enum { KEPT = 256, MOST_INTERVALS = 1 << 14, MOST_BYTES = 8 << 20 };

typedef struct known {
    size_t count;
    uint64_t alignment, capacity;
    ebb_packing packing;
    ebb_interval intervals[]; /* with their offsets */
} known;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static known *ring[KEPT]; /* from `oldest` on, `kept` of them */
static size_t oldest, kept, bytes;

static size_t bytes_of(size_t count)
{
    return sizeof(known) + count * sizeof(ebb_interval);
}

static bool may_keep(size_t count, const ebb_pack_options *o)
{
    return o->fixed == NULL && o->time_ns == 0 && count > 0 && count <= MOST_INTERVALS;
}

static bool is_of(const known *k, const ebb_interval *v, size_t count, const ebb_pack_options *o)
{
    if (k->count != count || k->alignment != o->alignment || k->capacity != o->capacity)
        return false;
    for (size_t i = 0; i < count; i++)
        if (k->intervals[i].size != v[i].size || k->intervals[i].lower != v[i].lower ||
            k->intervals[i].upper != v[i].upper)
            return false;
    return true;
}

/* The newest first: a plan is asked for again soon. */
static const known *find(const ebb_interval *v, size_t count, const ebb_pack_options *o)
{
    for (size_t i = kept; i > 0; i--) {
        const known *k = ring[(oldest + i - 1) % KEPT];
        if (is_of(k, v, count, o))
            return k;
    }
    return NULL;
}

bool ebb_known_find(ebb_packing *packing, ebb_interval *intervals, size_t count,
                    const ebb_pack_options *options)
{
    if (!may_keep(count, options))
        return false;
    (void)pthread_mutex_lock(&lock);
    const known *k = find(intervals, count, options);
    if (k != NULL) {
        *packing = k->packing;
        memcpy(intervals, k->intervals, count * sizeof *intervals);
    }
    (void)pthread_mutex_unlock(&lock);
    return k != NULL;
}

static void forget_oldest(void)
{
    bytes -= bytes_of(ring[oldest]->count);
    ebb_free(ring[oldest]);
    oldest = (oldest + 1) % KEPT;
    kept--;
}

void ebb_known_keep(const ebb_packing *packing, const ebb_interval *intervals, size_t count,
                    const ebb_pack_options *options)
{
    known *k = may_keep(count, options) ? ebb_alloc(bytes_of(count)) : NULL;
    if (k == NULL)
        return;
    *k = (known){count, options->alignment, options->capacity, *packing};
    memcpy(k->intervals, intervals, count * sizeof *intervals);
    (void)pthread_mutex_lock(&lock);
    bytes += bytes_of(count);
    while (kept == KEPT || (kept > 0 && bytes > MOST_BYTES))
        forget_oldest();
    ring[(oldest + kept++) % KEPT] = k;
    (void)pthread_mutex_unlock(&lock);
}
