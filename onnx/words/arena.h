/* arena.h: memory, in the three lifetimes that there are.
 *
 * Everything that lives as long as a graph, a pass or a program is bump-allocated from an arena and
 * goes with it; nothing is freed one by one, so an early return leaks nothing. All allocation of
 * the library goes through ebb_alloc(), where tests make the n-th one fail.
 *
 * Also here, because everyone needs them: growing arrays, interned names, checked size arithmetic.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "onnx/words/status.h"

EBB_C_BEGIN

/* ---- raw memory: the only callers of malloc ---- */

void *ebb_alloc(size_t bytes);              /* NULL when there is none; zero bytes give a pointer */
void *ebb_realloc(void *old, size_t bytes); /* contents kept; old stays valid on failure */
void ebb_free(void *memory);
void *ebb_alloc_aligned(size_t alignment, size_t bytes); /* power of two; ebb_free_aligned() */
void ebb_free_aligned(void *memory);

/* For tests: the n-th allocation from now (1 = next) fails, and all after it; 0 switches it off. */
void ebb_alloc_fail_after(long n);
long ebb_alloc_count(void); /* allocations so far, to know how large n may be */

/* ---- arenas ---- */

typedef struct ebb_arena {
    struct ebb_arena_chunk *chunk; /* newest first */
    size_t used_bytes;             /* over all chunks, for reports */
} ebb_arena;

void ebb_arena_fini(ebb_arena *arena);
/* What lies in `from` lies in `arena` from now on, at the same addresses; `from` is empty. */
void ebb_arena_take(ebb_arena *arena, ebb_arena *from);

/* Aligned to 16 and not cleared / cleared. NULL when out of memory or when count * size overflows.
 */
void *ebb_arena_alloc(ebb_arena *arena, size_t bytes);
void *ebb_arena_zeroed(ebb_arena *arena, size_t count, size_t size);
char *ebb_arena_strdup(ebb_arena *arena, const char *text);
char *ebb_arena_printf(ebb_arena *arena, const char *format, ...) EBB_PRINTF(2, 3);

/* count elements of type, zeroed; NULL when out of memory. */
#define EBB_NEW(arena, type, count) ((type *)ebb_arena_zeroed((arena), (count), sizeof(type)))

/* The block of `had` bytes as one of `bytes`, more than that and not cleared: where it is when it
 * came last, else a copy. NULL: out of memory, and the old one is good. */
void *ebb_arena_extend(ebb_arena *arena, void *block, size_t had, size_t bytes);

/* The block is not needed any more; where it has a chunk of its own, as a large one has, that goes. */
void ebb_arena_drop(ebb_arena *arena, const void *block);

/* Grows *array (arena memory, element size given) so that index *count fits, doubling *capacity.
 * It grows where it is when it came last; else the old block stays behind in the arena, which is the
 * price of pointers that never dangle. */
EBB_MUST_USE bool ebb_arena_grow(ebb_arena *arena, void *array, size_t count, size_t *capacity,
                                 size_t size);

/* ---- names ---- */

/* An interned string; 0 means "absent", which differs from "". Compare by id. */
typedef struct {
    uint32_t i;
} ebb_str;

typedef struct ebb_names {
    ebb_arena *arena;
    const char **text; /* by id; text[0] is "" */
    uint32_t *hash;    /* open addressing: id or 0 */
    uint8_t *tag;      /* by slot: eight bits of its text's hash; 0: free */
    size_t count, capacity, slots;
    char *room; /* for the next texts */
    size_t left;
} ebb_names;

EBB_MUST_USE bool ebb_names_init(ebb_names *names, ebb_arena *arena);
ebb_str ebb_names_intern(ebb_names *names, const char *text, size_t length); /* 0: out of memory */
ebb_str ebb_names_find(const ebb_names *names, const char *text);            /* 0: not there */
const char *ebb_names_text(const ebb_names *names, ebb_str name);            /* "" for 0 */

/* ---- checked sizes: false on overflow, and *out is then untouched ---- */

EBB_MUST_USE bool ebb_size_mul(size_t *out, size_t a, size_t b);
EBB_MUST_USE bool ebb_size_add(size_t *out, size_t a, size_t b);

/* Rounds up to a power of two; false on overflow. */
EBB_MUST_USE bool ebb_size_align(size_t *out, size_t bytes, size_t alignment);

/* Room for `more` bytes at the end of a block of *bytes so far: *at is where they go, and *bytes
 * grows to the next multiple of alignment. False on overflow. */
static inline bool ebb_size_room(size_t *at, size_t *bytes, size_t more, size_t alignment)
{
    *at = *bytes;
    return ebb_size_add(bytes, *bytes, more) && ebb_size_align(bytes, *bytes, alignment);
}

EBB_C_END

/* name: an arena for the block that declares it. It goes when the block is left, whichever way. */
#define EBB_LOCAL_ARENA(name)                                             \
    __attribute__((cleanup(ebb_arena_fini))) ebb_arena name##_own_ = {0}; \
    ebb_arena *const name = &name##_own_
