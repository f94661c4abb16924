/* draws.c: see draws.h. */
#include "kernels/draws.h"

#include "kernels/math/philox.h"
#include "kernels/parallel.h"

#include <string.h>

bool ebb_is_draws_key(const ebb_operand *key)
{
    const int64_t n = key->type.dtype == EBB_I64 ? ebb_elements(&key->type) : 0;
    return n == 2 || n == 4;
}

int64_t ebb_draws_run(const ebb_call *c, const ebb_operand *key, int64_t n)
{
    const int64_t run = ebb_attr_int(&c->attrs, "run", 0);
    return ebb_elements(&key->type) == 2 ? 0 : run > 0 ? run : n;
}

ebb_draws ebb_draws_of(const ebb_call *c, const ebb_operand *key, int64_t n)
{
    const int64_t *k = key->data;
    ebb_draws d = {.seed = (uint64_t)k[0],
                   .step = (uint64_t)k[1],
                   .stream = (uint32_t)ebb_attr_int(&c->attrs, "stream", 0),
                   .run = ebb_draws_run(c, key, n)};
    if (d.run > 0) {
        d.part = k[2];
        d.parts = k[3];
    }
    return d;
}

/* Of elements that lie together in the whole. */
static void draw_together(uint32_t *to, const ebb_draws *d, uint64_t first, int64_t count)
{
    enum { BLOCKS = 64 };
    const uint64_t seed = d->seed, step = d->step;
    const uint32_t stream = d->stream;
    for (int64_t done = 0, n; done < count; done += n) {
        uint32_t words[BLOCKS * 4];
        const uint64_t at = first + (uint64_t)done, block = at / 4;
        const int64_t skipped = (int64_t)(at % 4), most = BLOCKS * 4 - skipped;
        n = count - done < most ? count - done : most;
        const uint32_t blocks = (uint32_t)(skipped + n + 3) / 4;
        EBB_SIMD
        for (uint32_t b = 0; b < blocks; b++) {
            const ebb_philox p = ebb_philox_block(seed, step, stream, block + b);
            words[b * 4] = p.word[0];
            words[b * 4 + 1] = p.word[1];
            words[b * 4 + 2] = p.word[2];
            words[b * 4 + 3] = p.word[3];
        }
        memcpy(to + done, words + skipped, (size_t)n * sizeof *to);
    }
}

void ebb_draw(uint32_t *words, const ebb_draws *d, int64_t first, int64_t count)
{
    for (int64_t done = 0, n; done < count; done += n) {
        const int64_t i = first + done, left = d->run == 0 ? count : d->run - i % d->run;
        n = count - done < left ? count - done : left;
        draw_together(words + done, d, ebb_philox_place(i, d->part, d->parts, d->run), n);
    }
}
