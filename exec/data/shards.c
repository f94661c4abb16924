/* shards.c: see shards.h. */
#include "exec/data/shards.h"

#include "onnx/graph/place.h"

#include <string.h>

bool ebb_is_shard(const ebb_program *p, ebb_value v)
{
    return ebb_is_part(p->plan.g, v);
}

bool ebb_has_shards(const ebb_program *p, ebb_role role)
{
    const ebb_graph *g = p->plan.g;
    for (size_t i = 0; i < g->initializer_count; i++)
        if (ebb_program_is_state(p, g->initializers[i]) && ebb_is_shard(p, g->initializers[i]) &&
            (role == EBB_ROLE_NONE || ebb_value_of(g, g->initializers[i])->role == role))
            return true;
    return false;
}

ebb_status ebb_whole_type(ebb_type *type, const ebb_program *p, ebb_value v)
{
    const int ranks = ebb_group_ranks(p->group);
    *type = *ebb_value_of(p->plan.g, v)->type;
    if (!ebb_is_shard(p, v) || ebb_part_whole(type, p->plan.g, v, ranks))
        return NULL;
    return ebb_error(EBB_REJECTED, "'%s' is no part of a tensor for %d processes",
                     ebb_value_name(p->plan.g, v), ranks);
}

/* ---- whole ---- */

/* Part r's elements from `at` on into their places; what is behind the end is not there. */
static void put(char *whole, const char *from, int64_t n, int64_t at, int64_t count, size_t size)
{
    const int64_t here = at >= n ? 0 : n - at < count ? n - at : count;
    if (here > 0)
        memcpy(whole + (size_t)at * size, from, (size_t)here * size);
}

ebb_status ebb_shards_gather(ebb_named *t, ebb_program *p, ebb_value v, bool all,
                             ebb_arena *scratch)
{
    ebb_type *type = EBB_NEW(scratch, ebb_type, 1);
    size_t bytes;
    int64_t n;
    if (!ebb_is_shard(p, v))
        return NULL;
    EBB_GOT(type);
    EBB_TRY(ebb_whole_type(type, p, v));
    const int ranks = ebb_group_ranks(p->group);
    const int64_t part = t->dims[0];
    const size_t size = ebb_dtype_bits((ebb_dtype)t->dtype) / 8;
    const int64_t most = EBB_GROUP_PIECE / ranks / (int64_t)size;
    char *piece = ebb_arena_alloc(scratch, (size_t)most * size * (size_t)ranks), *whole = NULL;
    EBB_GOT(ebb_type_bytes(type, &bytes) && ebb_type_elements(type, &n) && piece);
    if ((all || ebb_group_rank(p->group) == 0) && (whole = ebb_arena_alloc(scratch, bytes)) == NULL)
        return ebb_error_memory();
    for (int64_t at = 0, count; at < part; at += count) {
        count = part - at < most ? part - at : most;
        EBB_TRY(ebb_group_all_gather(p->group, (const char *)t->data + (size_t)at * size, piece,
                                     (size_t)count * size, t->name));
        for (int r = 0; whole != NULL && r < ranks; r++)
            put(whole, piece + (size_t)(r * count) * size, n, r * part + at, count, size);
    }
    *t = (ebb_named){t->name, t->dtype, type->rank, type->dims, whole};
    return NULL;
}

/* ---- and a part again ---- */

ebb_status ebb_shards_set(ebb_program *p, ebb_value v, const ebb_named *t, ebb_arena *scratch)
{
    const ebb_type *part = ebb_value_of(p->plan.g, v)->type;
    ebb_type type;
    size_t bytes, all;
    if (!ebb_is_shard(p, v))
        return ebb_program_set(p, t);
    EBB_TRY(ebb_whole_type(&type, p, v));
    EBB_GOT(ebb_type_bytes(part, &bytes) && ebb_type_bytes(&type, &all));
    const size_t from = bytes * (size_t)ebb_group_rank(p->group);
    char *own = ebb_arena_zeroed(scratch, bytes + 1, 1);
    EBB_GOT(own);
    if (from < all)
        memcpy(own, (const char *)t->data + from, all - from < bytes ? all - from : bytes);
    const ebb_named named = {t->name, part->dtype, 1, part->dims, own};
    return ebb_program_set(p, &named);
}
