/* value.c: instructions that are a value of each lane, of its registers alone. */
#include "tests/cuda/ptx/execute.h"

#include "tests/cuda/ptx/arithmetic.h"

uint64_t ptx_seed;

#define IVDEP _Pragma("GCC ivdep")
/* The rest of the register becomes zero: addresses of 32 bits are read as ones of 64. */
#define VALUE(D, A, B, C, value)              \
    {                                         \
        const __typeof__(pa->A) a = pa[l].A;  \
        const __typeof__(pb->B) b = pb[l].B;  \
        const __typeof__(pc->C) c = pc[l].C;  \
        cell made = {.u64 = 0};               \
        (void)a, (void)b, (void)c;            \
        made.D = (__typeof__(made.D))(value); \
        d[l] = made;                          \
    }

void ptx_compute(warp *w, const instruction *i, uint32_t lanes)
{
    cell *d = w->cells[i->d];
    const cell *pa = row(w, i->a), *pb = row(w, i->b), *pc = row(w, i->c);
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

void ptx_pack(const warp *w, const instruction *i, uint32_t lanes)
{
    cell *d = w->cells[i->d];
    EACH(l, lanes)
    {
        cell whole = {0};
        for (uint32_t k = 0; k < i->count; k++)
            memcpy((uint8_t *)&whole + k * i->size, &row(w, i->more[k])[l], i->size);
        d[l] = whole;
    }
}

void ptx_unpack(const warp *w, const instruction *i, uint32_t lanes)
{
    const cell *a = row(w, i->a);
    EACH(l, lanes)
    {
        const cell whole = a[l];
        for (uint32_t k = 0; k < i->count; k++)
            load(&w->cells[i->more[k]][l], (const uint8_t *)&whole + k * i->size, i->size, false);
    }
}

void ptx_insert(const warp *w, const instruction *i, uint32_t lanes)
{
    cell *d = w->cells[i->d];
    const cell *a = row(w, i->a), *b = row(w, i->b), *c = row(w, i->c), *n = row(w, i->more[0]);
    EACH(l, lanes)
    d[l].u64 = i->size == 8 ? inserted(a[l].u64, b[l].u64, c[l].u32, n[l].u32, 64)
                            : (uint32_t)inserted(a[l].u32, b[l].u32, c[l].u32, n[l].u32, 32);
}
