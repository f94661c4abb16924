/* frozen.h: a matrix of weights in few bits, as products read it: where its codes, scales and zero
 * points lie. Nobody trains it and nobody holds it in float: readers decode what they need.
 *
 *     X[n, k] = (level(code of n, k) - zero of its block) * scale of its block
 *
 * One description for all formats:
 *
 *     ai.ebb MatMulCodes          bytes in rows: MatMulNBits, MatMulBnb4
 *     ai.ebb MatMulDequantized    a tensor as DequantizeLinear takes it: QDQ, dynamic int8
 *     ai.ebb ExpertsMatMulCodes   as MatMulCodes, a matrix for each expert: QMoE
 *
 * Codes of a row lie one behind the other, from the low bits of a byte to its high ones (or from high
 * to low). A level is the number itself, or a table's entry (NF4, FP4, floats of 8 bits).
 */
#pragma once

#include "onnx/words/attr.h"

EBB_C_BEGIN

/* Their inputs. */
enum {
    EBB_FROZEN_CODES = 1,
    EBB_FROZEN_SCALES,
    EBB_FROZEN_ZEROS,
    EBB_FROZEN_LEVELS,
    EBB_FROZEN_OF
};

typedef enum ebb_zero_kind {
    EBB_ZERO_NONE,
    EBB_ZERO_BYTE,   /* one byte of codes for all */
    EBB_ZERO_PACKED, /* codes, a row of whole bytes for each row of blocks */
    EBB_ZERO_REAL,   /* floats, placed as the scales are */
    EBB_ZERO_CODE,   /* codes of the matrix's own dtype, placed as the scales are */
} ebb_zero_kind;

typedef struct ebb_frozen {
    int64_t n, k;     /* X is [n, k] */
    int64_t matrices; /* so many of them, one behind the other */
    bool turned;      /* the product is A X^T, else A X */
    unsigned bits;
    bool high_first;
    ebb_dtype dtype;                            /* of the codes; EBB_NONE: levels are an input */
    int64_t row;                                /* codes from one row of X to the next */
    int64_t block_n, block_k, scale_n, scale_k; /* see ebb_frozen_block */
    bool runs_on;                               /* blocks run on from row to row */
    ebb_zero_kind zero;
    int64_t zero_row; /* packed: codes from one row of zero points to the next */
} ebb_frozen;

/* Which scale element (n, k) has. */
static inline int64_t ebb_frozen_block(const ebb_frozen *f, int64_t n, int64_t k)
{
    return f->runs_on ? (n * f->row + k) / f->block_k
                      : n / f->block_n * f->scale_n + k / f->block_k * f->scale_k;
}

/* Columns of what is multiplied with X, and of the product. */
static inline int64_t ebb_frozen_inner(const ebb_frozen *f)
{
    return f->turned ? f->k : f->n;
}

static inline int64_t ebb_frozen_columns(const ebb_frozen *f)
{
    return f->turned ? f->n : f->k;
}

/* Reads attributes and the types of inputs (NULL: absent; dims may be unknown), A first, of a
 * MatMulCodes or ExpertsMatMulCodes (bytes) or MatMulDequantized. NULL, or what is wrong with them: a literal that names the
 * input. Where dims are unknown the description is not complete. */
const char *ebb_frozen_read(ebb_frozen *f, bool bytes, const ebb_attrs *attrs,
                            const ebb_type *const *in, uint32_t count);

/* ---- with its bytes (frozen_matrix.c) ---- */

typedef struct ebb_frozen_matrix {
    ebb_frozen of;
    const uint8_t *codes;
    const void *scales, *zeros; /* zeros: NULL where there are none */
    ebb_dtype scale_dtype, zero_dtype;
    /* What a code stands for: level[code]; and where it is `linear`, (code ^ flip) + least. */
    double level[256];
    bool linear;
    unsigned flip;
    double least;
} ebb_frozen_matrix;

/* in: the operands, A's place first, of which those that the description reads have bytes. They are borrowed. */
void ebb_frozen_fill(ebb_frozen_matrix *m, const ebb_frozen *f, const ebb_tensor *in);

/* One matrix of several, whose blocks do not run on. */
ebb_frozen_matrix ebb_frozen_one(const ebb_frozen_matrix *m, int64_t matrix);

unsigned ebb_frozen_code(const ebb_frozen_matrix *m, int64_t n, int64_t k);
double ebb_frozen_scale(const ebb_frozen_matrix *m, int64_t n, int64_t k);
double ebb_frozen_zero(const ebb_frozen_matrix *m, int64_t n, int64_t k);

/* The scales, and zero points less `least` where codes are linear, of `count` blocks of row n, from that
 * of column k on; each `step` floats behind the last. NULL: not these. Of a matrix whose blocks do not run
 * on. */
void ebb_frozen_blocks(const ebb_frozen_matrix *m, int64_t n, int64_t k, int64_t count,
                       float *scales, float *zeros, int64_t step);

static inline double ebb_frozen_at(const ebb_frozen_matrix *m, int64_t n, int64_t k)
{
    return (m->level[ebb_frozen_code(m, n, k)] - ebb_frozen_zero(m, n, k)) *
           ebb_frozen_scale(m, n, k);
}

/* ---- rows of a table: com.microsoft GatherBlockQuantized(data, indices, scales, zeros?) ---- */

typedef struct ebb_frozen_table {
    ebb_type whole;        /* the table decoded, of no dtype */
    int gather;            /* the axis that indices are of */
    unsigned bits;         /* of a code */
    ebb_dtype dtype;       /* what codes are as numbers: EBB_U8 where they are packed into bytes */
    int64_t along, behind; /* elements of the axis that blocks are of, and of those behind it */
    int64_t block, blocks; /* of an element, and of the axis */
    bool packed;           /* zero points are rows of bytes, of zero_row codes each */
    int64_t zero_row;
} ebb_frozen_table;

const char *ebb_frozen_table_read(ebb_frozen_table *t, const ebb_attrs *attrs,
                                  const ebb_type *const *in, uint32_t count);

EBB_C_END
