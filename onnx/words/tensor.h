/* tensor.h: dtypes, shapes, layouts, byte counts; and a constant tensor.
 *
 * A type is a plain value: copy it, compare it, keep it on the stack. Dims are int64 and -1 where
 * unknown; an unknown dim may carry the symbol that the file gives it ("batch").
 */
#pragma once

#include "onnx/words/arena.h"

EBB_C_BEGIN

enum { EBB_MAX_RANK = 12 }; /* oneDNN's limit; no exported model seen goes beyond 6 */

#define EBB_DTYPE_COUNT (EBB_I2 + 1) /* of ebb_dtype */

const char *ebb_dtype_name(ebb_dtype dtype);      /* "float32"; "?" when out of range */
const char *ebb_dtype_onnx_name(ebb_dtype dtype); /* "float", as the ONNX text syntax spells it */
unsigned ebb_dtype_bits(ebb_dtype dtype);         /* 0 for STRING and NONE */
bool ebb_dtype_is_float(ebb_dtype dtype); /* f64 f32 f16 bf16: what gradients flow through */
bool ebb_dtype_is_small_float(
    ebb_dtype dtype);                       /* floats of 8 and 4 bits: storage, never computed in */
bool ebb_dtype_is_integer(ebb_dtype dtype); /* signed and unsigned, not bool */
ebb_dtype ebb_dtype_of_name(const char *name); /* either spelling; EBB_NONE when unknown */

/* How elements lie in memory. PLAIN is row-major over dims. The dims of a type are always the
 * logical ones (N, C, spatial...); a layout only says where element (n, c, ...) is. */
typedef enum ebb_layout_kind {
    EBB_LAYOUT_PLAIN = 0,
    EBB_LAYOUT_CHANNELS_LAST, /* dim 1 innermost: NHWC */
    EBB_LAYOUT_BLOCKED,       /* dim 1 in blocks of `block`, innermost, padded up: nChw16c */
} ebb_layout_kind;

typedef struct ebb_layout {
    uint8_t kind;  /* ebb_layout_kind */
    uint8_t block; /* elements, for BLOCKED */
} ebb_layout;

typedef enum ebb_kind { /* what a value is */
                        EBB_KIND_UNKNOWN = 0,
                        EBB_KIND_TENSOR,
                        EBB_KIND_SEQUENCE, /* of tensors of this dtype (dims: of the elements, where
                                              they agree) */
                        EBB_KIND_OPTIONAL,
                        EBB_KIND_OTHER, /* maps, sparse tensors, opaque: kept as the file has them
                                         */
} ebb_kind;

typedef struct ebb_type {
    uint8_t kind;  /* ebb_kind */
    uint8_t dtype; /* ebb_dtype */
    int8_t rank;   /* -1: unknown */
    ebb_layout layout;
    int64_t dims[EBB_MAX_RANK];    /* -1: unknown */
    ebb_str symbols[EBB_MAX_RANK]; /* name of an unknown dim, where it has one */
} ebb_type;

extern const ebb_type ebb_type_unknown; /* nothing is known of it */
ebb_type ebb_type_none(void);           /* the same, to be filled */
ebb_type ebb_type_tensor(ebb_dtype dtype, int rank, const int64_t *dims); /* PLAIN */
bool ebb_type_same_shape(const ebb_type *a, const ebb_type *b);           /* both known and equal */
bool ebb_type_is_static(const ebb_type *type); /* tensor, all dims known */

/* Types that many values share: equal ones lie in one place, which does not change. */
typedef struct ebb_types {
    const ebb_type **slots; /* open addressing; NULL: free */
    size_t count, slot_count;
} ebb_types;

/* The type in the table that is equal, or a copy of it there; NULL: out of memory. */
const ebb_type *ebb_types_share(ebb_types *types, ebb_arena *arena, const ebb_type *type);

static inline bool ebb_is_narrow(const ebb_type *type) /* a float of 16 bits */
{
    return type->dtype == EBB_F16 || type->dtype == EBB_BF16;
}

/* Product of the dims; false when one is unknown, or that of those but 0 overflows int64. */
EBB_MUST_USE bool ebb_type_elements(const ebb_type *type, int64_t *count);

/* Bytes in memory under the type's layout (sub-byte dtypes packed, blocked layouts padded).
 * False when a dim is unknown, the dtype has no size, or the product overflows. */
EBB_MUST_USE bool ebb_type_bytes(const ebb_type *type, size_t *bytes);

/* "float32[2,3,batch]" into text (always terminated); returns text. names may be NULL. */
const char *ebb_type_print(char *text, size_t size, const ebb_type *type, const ebb_names *names);

/* n / by, rounded up. */
static inline int64_t ebb_up(int64_t n, int64_t by)
{
    return n / by + (n % by != 0);
}

/* Row-major strides in elements. */
void ebb_strides(int64_t *strides, int rank, const int64_t *dims);

/* A constant: an initializer, a Constant node's value, an attribute. Bytes are row-major
 * little-endian, exactly as raw_data; they are borrowed from the mapped file or from an arena. */
typedef struct ebb_tensor {
    ebb_type type;
    const void *data;        /* NULL: the bytes are missing (a skeleton's weights) or strings */
    size_t bytes;            /* by type, also when data is NULL */
    bool external;           /* the file keeps it in an external file */
    bool given;              /* its bytes came since: they are not those of the file */
    bool summed;             /* external: the file has a sum of the bytes */
    const char *location;    /* external: file name relative to the model's folder */
    uint64_t offset, length; /* external: where in that file; length 0 = to its end */
    const void *origin;      /* the bytes of its TensorProto, for the writer; NULL when made here */
} ebb_tensor;

/* Reads element i of any integer, bool or float tensor. Index and dtype must be right (asserted).
 */
int64_t ebb_tensor_int(const ebb_tensor *tensor, int64_t i);
double ebb_tensor_double(const ebb_tensor *tensor, int64_t i);
/* Whether it has elements of whole bytes, all of them one number, as scales and biases of fresh layers. */
bool ebb_tensor_is_uniform(const ebb_tensor *tensor);

/* IEEE half and bfloat16, round to nearest even. */
float ebb_half_to_float(uint16_t half);
uint16_t ebb_float_to_half(float value);
float ebb_bf16_to_float(uint16_t bits);
uint16_t ebb_float_to_bf16(float value);

/* ---- dtypes below 16 bits (small.c) ----
 *
 * Floats of 8 and 4 bits as numbers, and elements of 4 and 2 bits in their bytes:
 *
 *     byte 0           byte 1
 *     [ e1  |  e0 ]    [ e3  |  e2 ]      4 bits: the first element in the low half
 *     [e3|e2|e1|e0]                       2 bits: the first in the lowest quarter
 */

/* What float8e8m0, which has powers of two only, does with what lies between two. */
typedef enum ebb_rounding { EBB_ROUND_UP, EBB_ROUND_DOWN, EBB_ROUND_NEAREST } ebb_rounding;

double ebb_small_to_double(ebb_dtype dtype, unsigned bits);

/* To nearest, ties to even (float8e8m0: as `rounding` says, and of the magnitude). What is too
 * large: the largest number, or where `saturate` is false infinity, or NaN in dtypes without one.
 * float4e2m1 has neither and always takes the largest; its NaN becomes -0. */
unsigned ebb_small_of_double(ebb_dtype dtype, double value, bool saturate, ebb_rounding rounding);

/* Element i of elements of 2, 4 or 8 bits; put wants the byte's other elements to be there, since
 * it keeps them. */
unsigned ebb_bits_get(const void *data, int64_t i, unsigned bits);
void ebb_bits_put(void *data, int64_t i, unsigned bits, unsigned value);

/* The number that `bits` low bits of a signed integer stand for. */
int64_t ebb_bits_signed(unsigned value, unsigned bits);

EBB_C_END
