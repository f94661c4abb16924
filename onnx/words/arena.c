/* arena.c: chunks that double, names in an open hash. */
#include "onnx/words/arena.h"

#include "onnx/words/print.h"

#include <assert.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- raw memory ---- */

static atomic_long allocations;
static atomic_long fail_at; // 0: never

void ebb_alloc_fail_after(long n)
{
    atomic_store(&fail_at, n > 0 ? atomic_load(&allocations) + n : 0);
}

long ebb_alloc_count(void)
{
    return atomic_load(&allocations);
}

static bool refused(void)
{
    long n = atomic_fetch_add(&allocations, 1) + 1;
    long limit = atomic_load(&fail_at);
    return limit != 0 && n >= limit;
}

void *ebb_alloc(size_t bytes)
{
    return refused() ? NULL : malloc(bytes > 0 ? bytes : 1);
}

static void *alloc_zeroed(size_t bytes)
{
    return refused() ? NULL : calloc(1, bytes);
}

void *ebb_realloc(void *old, size_t bytes)
{
    return refused() ? NULL : realloc(old, bytes > 0 ? bytes : 1);
}

void ebb_free(void *memory)
{
    free(memory);
}

void *ebb_alloc_aligned(size_t alignment, size_t bytes)
{
    size_t rounded;
    if (refused() || !ebb_size_align(&rounded, bytes > 0 ? bytes : 1, alignment))
        return NULL;
    return aligned_alloc(alignment, rounded);
}

void ebb_free_aligned(void *memory)
{
    free(memory);
}

/* ---- arenas ---- */

enum { FIRST_CHUNK = 16 * 1024, LARGEST_CHUNK = 4 * 1024 * 1024, GRAIN = 16 };

struct ebb_arena_chunk {
    struct ebb_arena_chunk *older;
    size_t bytes, used;
    bool alone; /* made for one block */
    _Alignas(16) unsigned char data[];
};

void ebb_arena_fini(ebb_arena *arena)
{
    for (struct ebb_arena_chunk *c = arena->chunk, *older; c != NULL; c = older) {
        older = c->older;
        ebb_free(c);
    }
    *arena = (ebb_arena){0};
}

void ebb_arena_take(ebb_arena *arena, ebb_arena *from)
{
    struct ebb_arena_chunk **end = &arena->chunk;
    while (*end != NULL)
        end = &(*end)->older;
    *end = from->chunk;
    arena->used_bytes += from->used_bytes;
    *from = (ebb_arena){0};
}

/* A chunk of this size at least; NULL: out of memory. Blocks that are large beside a chunk get one
 * of their own behind the newest, which goes on being filled. *clean: it is wanted zeroed; and then,
 * whether it is, by a system whose pages cost nothing until they are touched. */
static struct ebb_arena_chunk *add_chunk(ebb_arena *arena, size_t least, bool *clean)
{
    size_t bytes = arena->chunk == NULL ? FIRST_CHUNK : arena->chunk->bytes * 2;
    if (bytes > LARGEST_CHUNK)
        bytes = LARGEST_CHUNK;
    bool alone = least > bytes / 4;
    size_t whole;
    if (alone)
        bytes = least;
    if (!ebb_size_add(&whole, bytes, sizeof(struct ebb_arena_chunk)))
        return NULL;
    *clean = *clean && alone;
    struct ebb_arena_chunk *c = *clean ? alloc_zeroed(whole) : ebb_alloc(whole);
    if (c == NULL)
        return NULL;
    c->bytes = bytes;
    c->used = 0;
    c->alone = alone && arena->chunk != NULL;
    struct ebb_arena_chunk **at =
        alone && arena->chunk != NULL ? &arena->chunk->older : &arena->chunk;
    c->older = *at;
    *at = c;
    return c;
}

static void *take(ebb_arena *arena, size_t bytes, bool zeroed)
{
    size_t rounded;
    if (!ebb_size_align(&rounded, bytes > 0 ? bytes : 1, GRAIN))
        return NULL;
    struct ebb_arena_chunk *c = arena->chunk;
    const bool full = c == NULL || c->bytes - c->used < rounded;
    bool clean = zeroed && full;
    if (full)
        c = add_chunk(arena, rounded, &clean);
    if (c == NULL)
        return NULL;
    void *memory = c->data + c->used;
    c->used += rounded;
    arena->used_bytes += rounded;
    return zeroed && !clean ? memset(memory, 0, bytes) : memory;
}

void *ebb_arena_alloc(ebb_arena *arena, size_t bytes)
{
    return take(arena, bytes, false);
}

void *ebb_arena_zeroed(ebb_arena *arena, size_t count, size_t size)
{
    size_t bytes;
    return ebb_size_mul(&bytes, count, size) ? take(arena, bytes, true) : NULL;
}

char *ebb_arena_strdup(ebb_arena *arena, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = ebb_arena_alloc(arena, bytes);
    return copy == NULL ? NULL : memcpy(copy, text, bytes);
}

char *ebb_arena_printf(ebb_arena *arena, const char *format, ...)
{
    char brief[128]; // as most are: not printed twice
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    const int length = ebb_vsnprintf(brief, sizeof brief, format, args);
    va_end(args);
    char *text = length < 0 ? NULL : ebb_arena_alloc(arena, (size_t)length + 1);
    if (text != NULL && (size_t)length < sizeof brief)
        memcpy(text, brief, (size_t)length + 1);
    else if (text != NULL)
        (void)ebb_vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

/* Whether a block at the end of the newest chunk could be made longer where it is. */
static bool lengthen(ebb_arena *arena, const void *block, size_t had, size_t bytes)
{
    struct ebb_arena_chunk *c = arena->chunk;
    size_t was, is;
    if (had == 0 || c == NULL || !ebb_size_align(&was, had, GRAIN) ||
        !ebb_size_align(&is, bytes, GRAIN) || c->used < was ||
        c->data + (c->used - was) != (const unsigned char *)block || c->bytes - c->used < is - was)
        return false;
    c->used += is - was;
    arena->used_bytes += is - was;
    return true;
}

/* What is new of it is zero. */
void *ebb_arena_extend(ebb_arena *arena, void *block, size_t had, size_t bytes)
{
    if (lengthen(arena, block, had, bytes)) {
        memset((unsigned char *)block + had, 0, bytes - had);
        return block;
    }
    void *copy = ebb_arena_zeroed(arena, bytes, 1);
    return copy == NULL || had == 0 ? copy : memcpy(copy, block, had);
}

void ebb_arena_drop(ebb_arena *arena, const void *block)
{
    struct ebb_arena_chunk **at = &arena->chunk, *c;
    while (*at != NULL && (*at)->data != block)
        at = &(*at)->older;
    c = *at;
    if (c == NULL || !c->alone)
        return;
    *at = c->older;
    arena->used_bytes -= c->used;
    ebb_free(c);
}

bool ebb_arena_grow(ebb_arena *arena, void *array, size_t count, size_t *capacity, size_t size)
{
    if (count < *capacity)
        return true;
    size_t wanted = *capacity > 0 ? *capacity * 2 : 2, bytes;
    while (wanted <= count)
        wanted *= 2;
    if (!ebb_size_mul(&bytes, wanted, size))
        return false;
    void *old;
    memcpy(&old, array, sizeof old); // array is a T **: read it without breaking aliasing
    void *block = ebb_arena_extend(arena, old, *capacity * size, bytes);
    if (block == NULL)
        return false;
    memcpy(array, &block, sizeof block);
    *capacity = wanted;
    return true;
}

/* ---- names ---- */

static uint32_t hash_of(const char *text, size_t length)
{
    uint32_t h = 2166136261u; // FNV-1a
    for (size_t i = 0; i < length; i++)
        h = (h ^ (unsigned char)text[i]) * 16777619u;
    return h;
}

static uint8_t tag_of(uint32_t hash)
{
    return (uint8_t)(hash >> 24 | 1);
}

/* The slot that holds the text, or the free one where it would go. Most others are told by their tags,
 * without a look at their texts. */
static size_t slot_of(const ebb_names *names, uint32_t hash, const char *text, size_t length)
{
    size_t slot = hash & (names->slots - 1);
    for (; names->tag[slot] != 0; slot = (slot + 1) & (names->slots - 1)) {
        if (names->tag[slot] != tag_of(hash))
            continue;
        const char *there = names->text[names->hash[slot]];
        if (strncmp(there, text, length) == 0 && there[length] == '\0')
            break;
    }
    return slot;
}

static void put(ebb_names *names, size_t slot, uint32_t hash, size_t id)
{
    names->hash[slot] = (uint32_t)id;
    names->tag[slot] = tag_of(hash);
}

static bool make_slots(ebb_names *names, size_t slots)
{
    uint32_t *hash = EBB_NEW(names->arena, uint32_t, slots);
    uint8_t *tag = EBB_NEW(names->arena, uint8_t, slots);
    if (hash == NULL || tag == NULL)
        return false;
    ebb_arena_drop(names->arena, names->hash);
    ebb_arena_drop(names->arena, names->tag);
    names->hash = hash;
    names->tag = tag;
    names->slots = slots;
    for (size_t i = 1; i < names->count; i++) { // no two are equal: the first free slot is its own
        const uint32_t h = hash_of(names->text[i], strlen(names->text[i]));
        size_t slot = h & (slots - 1);
        while (tag[slot] != 0)
            slot = (slot + 1) & (slots - 1);
        put(names, slot, h, i);
    }
    return true;
}

bool ebb_names_init(ebb_names *names, ebb_arena *arena)
{
    enum { SLOTS = 256 };
    *names = (ebb_names){.arena = arena};
    if (!make_slots(names, SLOTS) ||
        !ebb_arena_grow(arena, &names->text, 0, &names->capacity, sizeof *names->text))
        return false;
    names->text[0] = "";
    names->count = 1;
    return true;
}

/* Room for a text; texts lie one behind the other, as most are shorter than an arena's grain makes up
 * for. */
static char *room_for(ebb_names *names, size_t bytes)
{
    enum { TOGETHER = 4096 };
    if (bytes > TOGETHER / 8)
        return ebb_arena_alloc(names->arena, bytes);
    if (bytes > names->left) {
        names->room = ebb_arena_alloc(names->arena, TOGETHER);
        names->left = names->room != NULL ? TOGETHER : 0;
    }
    char *room = names->room;
    if (room != NULL) {
        names->room += bytes;
        names->left -= bytes;
    }
    return room;
}

ebb_str ebb_names_intern(ebb_names *names, const char *text, size_t length)
{
    const ebb_str none = {0};
    const uint32_t hash = hash_of(text, length);
    size_t slot = slot_of(names, hash, text, length);
    if (names->hash[slot] != 0)
        return (ebb_str){names->hash[slot]};
    if (names->count * 2 >= names->slots) {
        if (!make_slots(names, names->slots * 2))
            return none;
        slot = slot_of(names, hash, text, length);
    }
    const char **old = names->text;
    if (names->count >= UINT32_MAX || !ebb_arena_grow(names->arena, &names->text, names->count,
                                                      &names->capacity, sizeof *names->text))
        return none;
    if (names->text != old)
        ebb_arena_drop(names->arena, old);
    char *copy = room_for(names, length + 1);
    if (copy == NULL)
        return none;
    memcpy(copy, text, length);
    copy[length] = '\0';
    names->text[names->count] = copy;
    put(names, slot, hash, names->count);
    return (ebb_str){(uint32_t)names->count++};
}

ebb_str ebb_names_find(const ebb_names *names, const char *text)
{
    const size_t length = strlen(text);
    return (ebb_str){names->hash[slot_of(names, hash_of(text, length), text, length)]};
}

const char *ebb_names_text(const ebb_names *names, ebb_str name)
{
    assert(name.i < names->count);
    return names->text[name.i];
}

/* ---- sizes ---- */

bool ebb_size_mul(size_t *out, size_t a, size_t b)
{
    if (b != 0 && a > SIZE_MAX / b)
        return false;
    *out = a * b;
    return true;
}

bool ebb_size_add(size_t *out, size_t a, size_t b)
{
    if (a > SIZE_MAX - b)
        return false;
    *out = a + b;
    return true;
}

bool ebb_size_align(size_t *out, size_t bytes, size_t alignment)
{
    if (bytes > SIZE_MAX - (alignment - 1))
        return false;
    *out = (bytes + alignment - 1) & ~(alignment - 1);
    return true;
}
