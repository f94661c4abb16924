/* value.c: instructions that are a value of each lane, of its registers alone. */
#include "tests/cuda/ptx/execute.h"

#include "tests/cuda/ptx/arithmetic.h"

uint64_t ptx_seed;

typedef int8_t T_s8;
typedef uint8_t T_u8;
typedef int16_t T_s16;
typedef uint16_t T_u16;
typedef int32_t T_s32;
typedef uint32_t T_u32;
typedef int64_t T_s64;
typedef uint64_t T_u64;
typedef float T_f32;
typedef double T_f64;

#define IVDEP _Pragma("GCC ivdep")
/* The rest of the register becomes zero: addresses of 32 bits are read as ones of 64. */
#define VALUE(D, A, B, C, value)   \
    {                              \
        const T_##A a = pa[l].A;   \
        const T_##B b = pb[l].B;   \
        const T_##C c = pc[l].C;   \
        cell made = {.u64 = 0};    \
        (void)a, (void)b, (void)c; \
        made.D = (T_##D)(value);   \
        d[l] = made;               \
    }

void ptx_compute(warp *w, const group *g, const instruction *i, uint32_t lanes)
{
    cell *d = frame_of(w, g)[i->d];
    const cell *pa = row(w, g, i->a), *pb = row(w, g, i->b), *pc = row(w, g, i->c);
    switch (i->op) {
#define ROW(name, count, spellings, D, A, B, C, value)                          \
    case OP_##name:                                                             \
        if (lanes == ALL) {                                                     \
            IVDEP for (uint32_t l = 0; l < LANES; l++) VALUE(D, A, B, C, value) \
        } else {                                                                \
            EACH(l, lanes) VALUE(D, A, B, C, value)                             \
        }                                                                       \
        break;
#include "tests/cuda/ptx/ops.def"
#undef ROW
    default:
        break;
    }
}

/* ---- parts ---- */

void ptx_pack(const warp *w, const group *g, const instruction *i, uint32_t lanes)
{
    cell *d = frame_of(w, g)[i->d];
    EACH(l, lanes)
    {
        cell whole = {0};
        for (uint32_t k = 0; k < i->count; k++)
            memcpy((uint8_t *)&whole + k * i->size, &row(w, g, i->more[k])[l], i->size);
        d[l] = whole;
    }
}

void ptx_unpack(const warp *w, const group *g, const instruction *i, uint32_t lanes)
{
    cell(*const frame)[LANES] = frame_of(w, g);
    const cell *a = row(w, g, i->a);
    EACH(l, lanes)
    {
        const cell whole = a[l];
        for (uint32_t k = 0; k < i->count; k++)
            load(&frame[i->more[k]][l], (const uint8_t *)&whole + k * i->size, i->size, false);
    }
}

void ptx_insert(const warp *w, const group *g, const instruction *i, uint32_t lanes)
{
    cell *d = frame_of(w, g)[i->d];
    const cell *a = row(w, g, i->a), *b = row(w, g, i->b), *c = row(w, g, i->c),
               *n = row(w, g, i->more[0]);
    EACH(l, lanes)
    d[l].u64 = i->size == 8 ? inserted(a[l].u64, b[l].u64, c[l].u32, n[l].u32, 64)
                            : (uint32_t)inserted(a[l].u32, b[l].u32, c[l].u32, n[l].u32, 32);
}
