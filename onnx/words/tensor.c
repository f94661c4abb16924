/* tensor.c: dtypes, shapes, byte counts. */
#include "onnx/words/tensor.h"

#include <assert.h>
#include <stdio.h>

#include "onnx/words/mix.h"

static const struct dtype_facts {
    const char *name, *onnx_name;
    unsigned bits;
    enum { OTHER, FLOATING, SIGNED, UNSIGNED } sort;
} facts[EBB_DTYPE_COUNT] = {
    [EBB_NONE] = {"?", "undefined", 0, OTHER},
    [EBB_F32] = {"float32", "float", 32, FLOATING},
    [EBB_U8] = {"uint8", "uint8", 8, UNSIGNED},
    [EBB_I8] = {"int8", "int8", 8, SIGNED},
    [EBB_U16] = {"uint16", "uint16", 16, UNSIGNED},
    [EBB_I16] = {"int16", "int16", 16, SIGNED},
    [EBB_I32] = {"int32", "int32", 32, SIGNED},
    [EBB_I64] = {"int64", "int64", 64, SIGNED},
    [EBB_STRING] = {"string", "string", 0, OTHER},
    [EBB_BOOL] = {"bool", "bool", 8, OTHER},
    [EBB_F16] = {"float16", "float16", 16, FLOATING},
    [EBB_F64] = {"float64", "double", 64, FLOATING},
    [EBB_U32] = {"uint32", "uint32", 32, UNSIGNED},
    [EBB_U64] = {"uint64", "uint64", 64, UNSIGNED},
    [EBB_C64] = {"complex64", "complex64", 64, OTHER},
    [EBB_C128] = {"complex128", "complex128", 128, OTHER},
    [EBB_BF16] = {"bfloat16", "bfloat16", 16, FLOATING},
    [EBB_F8E4M3FN] = {"float8e4m3fn", "float8e4m3fn", 8, OTHER},
    [EBB_F8E4M3FNUZ] = {"float8e4m3fnuz", "float8e4m3fnuz", 8, OTHER},
    [EBB_F8E5M2] = {"float8e5m2", "float8e5m2", 8, OTHER},
    [EBB_F8E5M2FNUZ] = {"float8e5m2fnuz", "float8e5m2fnuz", 8, OTHER},
    [EBB_U4] = {"uint4", "uint4", 4, UNSIGNED},
    [EBB_I4] = {"int4", "int4", 4, SIGNED},
    [EBB_F4E2M1] = {"float4e2m1", "float4e2m1", 4, OTHER},
    [EBB_F8E8M0] = {"float8e8m0", "float8e8m0", 8, OTHER},
    [EBB_U2] = {"uint2", "uint2", 2, UNSIGNED},
    [EBB_I2] = {"int2", "int2", 2, SIGNED},
};

static const struct dtype_facts *facts_of(ebb_dtype dtype)
{
    return &facts[(unsigned)dtype < EBB_DTYPE_COUNT ? dtype : EBB_NONE];
}

const char *ebb_dtype_name(ebb_dtype dtype)
{
    return facts_of(dtype)->name;
}

const char *ebb_dtype_onnx_name(ebb_dtype dtype)
{
    return facts_of(dtype)->onnx_name;
}

unsigned ebb_dtype_bits(ebb_dtype dtype)
{
    return facts_of(dtype)->bits;
}

bool ebb_dtype_is_float(ebb_dtype dtype)
{
    return facts_of(dtype)->sort == FLOATING;
}

bool ebb_dtype_is_integer(ebb_dtype dtype)
{
    return facts_of(dtype)->sort == SIGNED || facts_of(dtype)->sort == UNSIGNED;
}

bool ebb_dtype_is_small_float(ebb_dtype dtype)
{
    return (dtype >= EBB_F8E4M3FN && dtype <= EBB_F8E5M2FNUZ) || dtype == EBB_F4E2M1 ||
           dtype == EBB_F8E8M0;
}

ebb_dtype ebb_dtype_of_name(const char *name)
{
    for (int i = 1; i < EBB_DTYPE_COUNT; i++)
        if (strcmp(name, facts[i].name) == 0 || strcmp(name, facts[i].onnx_name) == 0)
            return (ebb_dtype)i;
    return EBB_NONE;
}

/* ---- types ---- */

const ebb_type ebb_type_unknown = {.rank = -1};

ebb_type ebb_type_none(void)
{
    return ebb_type_unknown;
}

ebb_type ebb_type_tensor(ebb_dtype dtype, int rank, const int64_t *dims)
{
    assert(rank <= EBB_MAX_RANK);
    ebb_type t = ebb_type_none();
    t.kind = EBB_KIND_TENSOR;
    t.dtype = (uint8_t)dtype;
    t.rank = (int8_t)rank;
    for (int i = 0; i < rank; i++)
        t.dims[i] = dims[i];
    return t;
}

/* Dims beyond the rank mean nothing. */
static bool same_type(const ebb_type *a, const ebb_type *b)
{
    bool same = a->kind == b->kind && a->dtype == b->dtype && a->rank == b->rank &&
                a->layout.kind == b->layout.kind && a->layout.block == b->layout.block;
    for (int i = 0; same && i < a->rank; i++)
        same = a->dims[i] == b->dims[i] && a->symbols[i].i == b->symbols[i].i;
    return same;
}

static size_t hash_of_type(const ebb_type *t)
{
    uint64_t h = t->kind * 256u + t->dtype;
    for (int i = 0; i < t->rank; i++)
        h = ebb_hash_mix(h, (uint64_t)t->dims[i] ^ (uint64_t)t->symbols[i].i << 32);
    return (size_t)ebb_hash_mix(h, 0);
}

/* The slot of an equal type, or the free one where it would go. */
static size_t slot_of_type(const ebb_types *types, const ebb_type *t)
{
    size_t slot = hash_of_type(t) & (types->slot_count - 1);
    while (types->slots[slot] != NULL && !same_type(types->slots[slot], t))
        slot = (slot + 1) & (types->slot_count - 1);
    return slot;
}

static bool make_type_room(ebb_types *types, ebb_arena *arena)
{
    if (types->count * 2 < types->slot_count)
        return true;
    const ebb_types old = *types;
    size_t wider = old.slot_count > 0 ? old.slot_count * 2 : 16;
    const ebb_type **slots = EBB_NEW(arena, const ebb_type *, wider);
    if (slots == NULL)
        return false;
    *types = (ebb_types){slots, old.count, wider};
    for (size_t i = 0; i < old.slot_count; i++)
        if (old.slots[i] != NULL)
            slots[slot_of_type(types, old.slots[i])] = old.slots[i];
    return true;
}

const ebb_type *ebb_types_share(ebb_types *types, ebb_arena *arena, const ebb_type *type)
{
    if (!make_type_room(types, arena))
        return NULL;
    const ebb_type **slot = &types->slots[slot_of_type(types, type)];
    if (*slot != NULL)
        return *slot;
    ebb_type *copy = ebb_arena_alloc(arena, sizeof *copy);
    if (copy == NULL)
        return NULL;
    *copy = *type;
    types->count++;
    return *slot = copy;
}

bool ebb_type_same_shape(const ebb_type *a, const ebb_type *b)
{
    if (a->rank < 0 || a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] < 0 || a->dims[i] != b->dims[i])
            return false;
    return true;
}

bool ebb_type_is_static(const ebb_type *type)
{
    if (type->kind != EBB_KIND_TENSOR || type->dtype == EBB_NONE || type->rank < 0)
        return false;
    for (int i = 0; i < type->rank; i++)
        if (type->dims[i] < 0)
            return false;
    return true;
}

static bool multiply(int64_t *product, int64_t by)
{
    if (by < 0 || (by != 0 && *product > INT64_MAX / by))
        return false;
    *product *= by;
    return true;
}

bool ebb_type_elements(const ebb_type *type, int64_t *count)
{
    int64_t n = 1;
    bool empty = false;
    if (type->rank < 0)
        return false;
    for (int i = 0; i < type->rank; i++) {
        empty = empty || type->dims[i] == 0;
        if (type->dims[i] != 0 && !multiply(&n, type->dims[i]))
            return false;
    }
    *count = empty ? 0 : n;
    return true;
}

bool ebb_type_bytes(const ebb_type *type, size_t *bytes)
{
    ebb_type laid = *type;
    unsigned bits = ebb_dtype_bits((ebb_dtype)type->dtype), block = type->layout.block;
    if (type->layout.kind == EBB_LAYOUT_BLOCKED && type->rank >= 2 && block > 0 &&
        laid.dims[1] > 0 && laid.dims[1] < INT64_MAX - (int64_t)block)
        laid.dims[1] = (laid.dims[1] + (int64_t)block - 1) / (int64_t)block * (int64_t)block;
    int64_t n;
    if (bits == 0 || !ebb_type_elements(&laid, &n) || n > (INT64_MAX - 7) / (int64_t)bits)
        return false;
    *bytes = (size_t)((n * (int64_t)bits + 7) / 8);
    return true;
}

const char *ebb_type_print(char *text, size_t size, const ebb_type *type, const ebb_names *names)
{
    static const char *const kinds[] = {"unknown", "", "seq ", "optional ", "other"};
    size_t at = 0;
#define PUT(...)                                                                      \
    do {                                                                              \
        int put_ = snprintf(text + at, size - at, __VA_ARGS__);                       \
        at += put_ < 0 ? 0 : (size_t)put_ < size - at ? (size_t)put_ : size - at - 1; \
    } while (0)
    text[0] = '\0';
    PUT("%s%s", kinds[type->kind <= EBB_KIND_OTHER ? type->kind : 0],
        type->dtype != EBB_NONE ? ebb_dtype_name((ebb_dtype)type->dtype) : "");
    if (type->rank >= 0) {
        PUT("[");
        for (int i = 0; i < type->rank; i++) {
            const char *comma = i > 0 ? "," : "";
            if (type->dims[i] >= 0)
                PUT("%s%lld", comma, (long long)type->dims[i]);
            else
                PUT("%s%s", comma,
                    names != NULL && type->symbols[i].i != 0
                        ? ebb_names_text(names, type->symbols[i])
                        : "?");
        }
        PUT("]");
    }
    if (type->layout.kind == EBB_LAYOUT_CHANNELS_LAST)
        PUT(" channels-last");
    if (type->layout.kind == EBB_LAYOUT_BLOCKED)
        PUT(" blocked%u", (unsigned)type->layout.block);
#undef PUT
    return text;
}

void ebb_strides(int64_t *strides, int rank, const int64_t *dims)
{
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= dims[i];
    }
}

/* ---- elements ---- */

#define READ(type)                                                                     \
    do {                                                                               \
        type read_;                                                                    \
        memcpy(&read_, (const unsigned char *)tensor->data + (size_t)i * sizeof read_, \
               sizeof read_);                                                          \
        return read_;                                                                  \
    } while (0)

int64_t ebb_tensor_int(const ebb_tensor *tensor, int64_t i)
{
    assert(tensor->data != NULL && i >= 0);
    switch (tensor->type.dtype) {
    case EBB_I64:
        READ(int64_t);
    case EBB_I32:
        READ(int32_t);
    case EBB_I16:
        READ(int16_t);
    case EBB_I8:
        READ(int8_t);
    case EBB_BOOL:
    case EBB_U8:
        READ(uint8_t);
    case EBB_U16:
        READ(uint16_t);
    case EBB_U32:
        READ(uint32_t);
    case EBB_U64: {
        uint64_t u;
        memcpy(&u, (const unsigned char *)tensor->data + (size_t)i * sizeof u, sizeof u);
        return u > INT64_MAX ? INT64_MAX : (int64_t)u;
    }
    case EBB_U4:
        return ebb_bits_get(tensor->data, i, 4);
    case EBB_U2:
        return ebb_bits_get(tensor->data, i, 2);
    case EBB_I4:
        return ebb_bits_signed(ebb_bits_get(tensor->data, i, 4), 4);
    case EBB_I2:
        return ebb_bits_signed(ebb_bits_get(tensor->data, i, 2), 2);
    default: {
        double d = ebb_tensor_double(tensor, i);
        return d >= 9.2e18 ? INT64_MAX : d <= -9.2e18 ? INT64_MIN : d != d ? 0 : (int64_t)d;
    }
    }
}

static uint16_t half_at(const ebb_tensor *tensor, int64_t i)
{
    READ(uint16_t);
}

bool ebb_tensor_is_uniform(const ebb_tensor *tensor)
{
    const size_t element = ebb_dtype_bits((ebb_dtype)tensor->type.dtype) / 8;
    const unsigned char *bytes = tensor->data;
    return bytes != NULL && element > 0 && tensor->bytes >= element &&
           memcmp(bytes, bytes + element, tensor->bytes - element) == 0;
}

double ebb_tensor_double(const ebb_tensor *tensor, int64_t i)
{
    assert(tensor->data != NULL && i >= 0);
    switch (tensor->type.dtype) {
    case EBB_F32:
        READ(float);
    case EBB_F64:
        READ(double);
    case EBB_C64: // the real part: a file may give complex numbers where a number is read
        i *= 2;
        READ(float);
    case EBB_C128:
        i *= 2;
        READ(double);
    case EBB_F16:
        return (double)ebb_half_to_float(half_at(tensor, i));
    case EBB_BF16:
        return (double)ebb_bf16_to_float(half_at(tensor, i));
    case EBB_F8E4M3FN:
    case EBB_F8E4M3FNUZ:
    case EBB_F8E5M2:
    case EBB_F8E5M2FNUZ:
    case EBB_F8E8M0:
    case EBB_F4E2M1: {
        ebb_dtype dtype = (ebb_dtype)tensor->type.dtype;
        return ebb_small_to_double(dtype, ebb_bits_get(tensor->data, i, ebb_dtype_bits(dtype)));
    }
    default:
        assert(ebb_dtype_is_integer((ebb_dtype)tensor->type.dtype) ||
               tensor->type.dtype == EBB_BOOL);
        return (double)ebb_tensor_int(tensor, i);
    }
}
#undef READ

static float float_of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t bits_of_float(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

float ebb_half_to_float(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, exponent = (half >> 10) & 31u;
    uint32_t mantissa = half & 0x3FFu;
    if (exponent == 31) // infinity, NaN
        return float_of_bits(sign | 0x7F800000u | mantissa << 13);
    if (exponent != 0)
        return float_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
    float tiny = (float)mantissa * 0x1p-24f; // subnormal: exact in float
    return float_of_bits(sign | bits_of_float(tiny));
}

uint16_t ebb_float_to_half(float value)
{
    uint32_t bits = bits_of_float(value), sign = bits >> 16 & 0x8000u, rest = bits & 0x7FFFFFFFu;
    if (rest > 0x7F800000u)
        return (uint16_t)(sign | 0x7E00u);
    if (rest >= 0x477FF000u) // rounds to 65536 or more
        return (uint16_t)(sign | 0x7C00u);
    if (rest < 0x38800000u) { // subnormal half: let the float adder round at 2^-24
        uint32_t rounded = bits_of_float(float_of_bits(rest) + 0.5f) - bits_of_float(0.5f);
        return (uint16_t)(sign | rounded);
    }
    uint32_t odd = rest >> 13 & 1u;
    return (uint16_t)(sign | ((rest - 0x38000000u + 0xFFFu + odd) >> 13));
}

float ebb_bf16_to_float(uint16_t bits)
{
    return float_of_bits((uint32_t)bits << 16);
}

uint16_t ebb_float_to_bf16(float value)
{
    uint32_t bits = bits_of_float(value);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}
