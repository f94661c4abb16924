/* sample.c: see sample.h. */
#include "exec/data/sample.h"

#include "kernels/math/philox.h"

#include <math.h>

static uint32_t stream_of(const char *name)
{
    uint32_t hash = 2166136261u;
    for (; *name != '\0'; name++)
        hash = (hash ^ (unsigned char)*name) * 16777619u;
    return hash;
}

/* Box-Muller on two words. */
static double normal(const ebb_philox *draw)
{
    double u = ((double)draw->word[0] + 1.0) / 4294967296.0;
    double v = (double)draw->word[1] / 4294967296.0;
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

/* Element i at `at`. Integers are little-endian, so that the lowest byte is the first. */
static void draw_element(unsigned char *at, ebb_dtype dtype, const ebb_philox *draw)
{
    double x = normal(draw);
    float f = (float)x;
    uint16_t half = 0;
    switch (dtype) {
    case EBB_F32:
        memcpy(at, &f, sizeof f);
        break;
    case EBB_F64:
        memcpy(at, &x, sizeof x);
        break;
    case EBB_F16:
        half = ebb_float_to_half(f);
        memcpy(at, &half, sizeof half);
        break;
    case EBB_BF16:
        half = ebb_float_to_bf16(f);
        memcpy(at, &half, sizeof half);
        break;
    default:
        if (ebb_dtype_is_integer(dtype) || dtype == EBB_BOOL)
            at[0] = draw->word[0] & 1;
        break;
    }
}

ebb_status ebb_sample_batch(ebb_batch *batch, const ebb_graph *g, uint64_t seed, ebb_arena *arena)
{
    *batch = (ebb_batch){0};
    ebb_named *list = EBB_NEW(arena, ebb_named, g->input_count + 1);
    EBB_GOT(list);
    size_t count = 0;
    for (size_t i = 0; i < g->input_count; i++) {
        const ebb_value_info *info = ebb_value_of(g, g->inputs[i]);
        if (info->flags & EBB_IS_INITIALIZER)
            continue;
        const char *name = ebb_value_name(g, g->inputs[i]);
        ebb_dtype dtype = (ebb_dtype)info->type->dtype;
        size_t bytes = 0, unit = ebb_dtype_bits(dtype) / 8;
        int64_t elements = 0;
        if (!ebb_type_bytes(info->type, &bytes) || !ebb_type_elements(info->type, &elements))
            return ebb_error(EBB_REJECTED, "input '%s' has no known size", name);
        unsigned char *data = ebb_arena_zeroed(arena, bytes + 1, 1);
        EBB_GOT(data);
        for (int64_t k = 0; unit != 0 && k < elements; k++) {
            ebb_philox draw = ebb_philox_block(seed, 0, stream_of(name), (uint64_t)k);
            draw_element(data + (size_t)k * unit, dtype, &draw);
        }
        list[count++] = (ebb_named){name, (int)dtype, info->type->rank, info->type->dims, data};
    }
    *batch = (ebb_batch){list, count};
    return NULL;
}

static bool lacks_bytes(const ebb_model *model)
{
    const ebb_graph *g = model->graph;
    for (size_t i = 0; i < g->initializer_count; i++) {
        const ebb_value_info *info = ebb_value_of(g, g->initializers[i]);
        size_t bytes = 0;
        if (!info->dead && (info->tensor == NULL || info->tensor->data == NULL) &&
            ebb_type_bytes(info->type, &bytes) && bytes != 0)
            return true;
    }
    return false;
}

ebb_status ebb_sample_weights(ebb_model *model, uint64_t seed)
{
    return lacks_bytes(model) && model->initialization != NULL ? ebb_init_weights(model, seed)
                                                               : NULL;
}
