/* linear_codes.cu: ONNX's quantisation with a scale, and products of quantised tensors, as
 * kernels/plain/codes/linear_codes.c has them.
 *
 *     a thread: the codes of a byte     [ e1 | e0 ]
 *     a block:  64 x 64 of a product    32 deep at a time, four codes a word
 *
 * Codes are multiplied as they are, uint8 less 128, and zero points come in afterwards:
 *
 *     sum (l - zl) (r - zr)  =  sum l r  -  zl sum r  -  zr sum l  +  depth zl zr
 *
 * A convolution is such a product, filters by windows; what lies in the padding is the zero point.
 * With few filters a group, whose tiles would be empty, a thread makes one window. Sums are in 32
 * bits for as long as they fit, then in 64.
 */
#include "kernels/cuda/lanes.h"
#include "kernels/cuda/small.h"
#include "kernels/cuda/window.h"
#include "kernels/call/linear_codes.h"

/* ---- QuantizeLinear, DequantizeLinear ---- */

typedef struct linear_args {
    void *y;
    const void *x, *scale, *zero; /* zero NULL: 0 */
    int64_t n;
    ebb_scales scales;
    double least, most; /* of whole codes */
    uint32_t bits;      /* of an element of y */
    uint8_t x_dtype, scale_dtype, zero_dtype, y_dtype;
    bool small, saturate; /* codes are floats */
} linear_args;

EBB_GPU_INLINE int64_t scale_of(const ebb_scales *g, int64_t i)
{
    if (g->kind == EBB_SCALE_ONE)
        return 0;
    const int64_t line = i / g->inner, place = line % g->n;
    if (g->kind == EBB_SCALE_AXIS)
        return place;
    return (line / g->n * g->places + place / g->block) * g->inner + i % g->inner;
}

EBB_GPU_INLINE double zero_of(const linear_args *a, int64_t at)
{
    return a->zero != NULL ? ebb_load_number(a->zero, at, a->zero_dtype) : 0;
}

/* NaN is 0. */
EBB_GPU_INLINE int64_t held(double v, double least, double most)
{
    return v != v ? 0 : (int64_t)(v < least ? least : v > most ? most : v);
}

/* The quotient in the dtype of the scale. */
EBB_GPU_INLINE int64_t code_of(const linear_args *a, int64_t i)
{
    const int64_t at = scale_of(&a->scales, i);
    const double x = ebb_load_number(a->x, i, a->x_dtype);
    const double by = ebb_load_number(a->scale, at, a->scale_dtype), zero = zero_of(a, at);
    const double quotient = a->scale_dtype == EBB_F64 ? x / by : (double)((float)x / (float)by);
    return a->small ? (int64_t)ebb_small_of(a->y_dtype, quotient + zero, a->saturate, EBB_ROUND_UP)
                    : held(nearbyint(quotient) + zero, a->least, a->most);
}

EBB_GLOBAL(quantize, linear_args)
{
    const int64_t each = a.bits < 8 ? 8 / (int64_t)a.bits : 1;
    EBB_GRID_LOOP(g, (a.n + each - 1) / each)
    {
        uint32_t codes = 0;
        if (a.bits > 8) {
            ebb_store_whole(a.y, g, a.y_dtype, code_of(&a, g), false);
            continue;
        }
        for (int64_t i = g * each; i < a.n && i < (g + 1) * each; i++)
            codes |= ((uint32_t)code_of(&a, i) & ((1u << a.bits) - 1))
                     << (uint32_t)(i - g * each) * a.bits;
        ((uint8_t *)a.y)[g] = (uint8_t)codes;
    }
}

EBB_GLOBAL(dequantize, linear_args)
{
    EBB_GRID_LOOP(i, a.n)
    {
        const int64_t at = scale_of(&a.scales, i);
        const double code = ebb_load_number(a.x, i, a.x_dtype) - zero_of(&a, at);
        ebb_store_real(a.y, i, a.y_dtype, code * ebb_load_number(a.scale, at, a.scale_dtype));
    }
}

static bool is_signed(uint8_t dtype)
{
    return dtype == EBB_I2 || dtype == EBB_I4 || dtype == EBB_I8 || dtype == EBB_I16 ||
           dtype == EBB_I32;
}

/* The ends of an integer dtype of up to 32 bits. */
static void range_of(uint8_t dtype, double *least, double *most)
{
    const int bits = (int)ebb_dtype_bits((ebb_dtype)dtype);
    *least = is_signed(dtype) ? -ldexp(1.0, bits - 1) : 0.0;
    *most = ldexp(1.0, bits - (is_signed(dtype) ? 1 : 0)) - 1.0;
}

/* (x, scale, zero?) -> codes; (codes, scale, zero?) -> x. */
static ebb_status run_linear(const ebb_call *c)
{
    const bool forward = c->op == EBB_OP_QUANTIZE_LINEAR;
    linear_args a;
    memset(&a, 0, sizeof a);
    EBB_MUST_FIT(c, ebb_scales_read(&a.scales, c));
    a.y = c->out[0].data;
    a.x = c->in[0].data;
    a.scale = c->in[1].data;
    a.zero = ebb_call_has(c, 2) ? c->in[2].data : NULL;
    a.n = ebb_elements(&c->out[0].type);
    a.x_dtype = c->in[0].type.dtype;
    a.scale_dtype = c->in[1].type.dtype;
    a.zero_dtype = ebb_call_has(c, 2) ? c->in[2].type.dtype : (uint8_t)EBB_NONE;
    a.y_dtype = c->out[0].type.dtype;
    a.bits = ebb_dtype_bits((ebb_dtype)a.y_dtype);
    a.small = ebb_dtype_is_small_float((ebb_dtype)a.y_dtype);
    a.saturate = ebb_attr_int(&c->attrs, "saturate", 1) != 0;
    range_of(a.y_dtype, &a.least, &a.most);
    const int64_t each = forward && a.bits < 8 ? 8 / (int64_t)a.bits : 1;
    return EBB_LAUNCH(c, forward ? (ebb_gpu_kernel)quantize : (ebb_gpu_kernel)dequantize,
                      ebb_cuda_grid((a.n + each - 1) / each), EBB_CUDA_BLOCK, 0, a);
}

static const char *declines_linear(const ebb_call *c)
{
    ebb_scales scales;
    const char *why = ebb_operand_misfit(&c->out[0], true);
    for (uint32_t i = 0; why == NULL && i < c->input_count; i++)
        why = ebb_operand_misfit(&c->in[i], true);
    if (why != NULL)
        return why;
    const uint8_t y = c->out[0].type.dtype, x = c->in[0].type.dtype;
    if (c->op == EBB_OP_DEQUANTIZE_LINEAR) {
        if (!ebb_dtype_is_float((ebb_dtype)y))
            return "decodes to float16, bfloat16, float32 and float64 only";
    } else if (!ebb_dtype_is_float((ebb_dtype)x) && x != EBB_I32) {
        return "encodes float16, bfloat16, float32, float64 and int32 only";
    } else if (y == EBB_F8E8M0 || ebb_dtype_bits((ebb_dtype)y) > 32 ||
               (!ebb_dtype_is_small_float((ebb_dtype)y) && !ebb_dtype_is_integer((ebb_dtype)y))) {
        return "has no codes of this dtype";
    }
    return ebb_scales_read(&scales, c);
}

/* ---- DynamicQuantizeLinear ---- */

typedef struct dynamic_args {
    const float *x;
    uint8_t *y, *zero; /* zero, and scale: NULL where nobody wants it */
    float *scale;
    float *parts; /* [blocks, {least, most}]; first of all {scale, zero point} */
    int64_t n, blocks;
} dynamic_args;

/* Into part `to`, by a block: the least and the most of those, with 0 among them. NaN are passed
 * over. */
EBB_GPU_INLINE void range_of_block(double *shared, float least, float most, float *to)
{
    ebb_team t = ebb_team_of(EBB_THREADS);
    const double up = ebb_team_max(&t, shared, (double)most);
    const double down = -ebb_team_max(&t, shared, -(double)least);
    if (EBB_THREAD == 0) {
        to[0] = (float)down;
        to[1] = (float)up;
    }
}

EBB_GLOBAL(ranges, dynamic_args)
{
    EBB_SHARED(double, shared);
    float least = 0, most = 0;
    EBB_GRID_LOOP(i, a.n)
    {
        least = a.x[i] < least ? a.x[i] : least;
        most = a.x[i] > most ? a.x[i] : most;
    }
    range_of_block(shared, least, most, a.parts + 2 * (EBB_BLOCK + 1));
}

EBB_GLOBAL(choose_scale, dynamic_args)
{
    EBB_SHARED(double, shared);
    float least = 0, most = 0;
    EBB_BLOCK_LOOP(b, a.blocks)
    {
        least = a.parts[2 * b + 2] < least ? a.parts[2 * b + 2] : least;
        most = a.parts[2 * b + 3] > most ? a.parts[2 * b + 3] : most;
    }
    range_of_block(shared, least, most, a.parts);
    if (EBB_THREAD == 0) {
        const float scale = (a.parts[1] - a.parts[0]) / 255.0f;
        const float at_zero = scale > 0 ? nearbyintf(-a.parts[0] / scale) : 0.0f;
        a.parts[0] = scale;
        a.parts[1] = at_zero > 0 ? at_zero > 255 ? 255 : at_zero : 0; // also of NaN
        if (a.scale != NULL)
            *a.scale = scale;
        if (a.zero != NULL)
            *a.zero = (uint8_t)a.parts[1];
    }
}

EBB_GLOBAL(quantize_dynamic, dynamic_args)
{
    const float scale = a.parts[0], zero = a.parts[1];
    EBB_GRID_LOOP(i, a.n)
    {
        const float code = (scale > 0 ? nearbyintf(a.x[i] / scale) : 0.0f) + zero;
        a.y[i] = (uint8_t)(code > 0 ? code > 255 ? 255 : code : 0);
    }
}

static ebb_status dynamic_workspace(const ebb_call *c, size_t *bytes)
{
    const ebb_gpu_grid grid = ebb_cuda_grid(ebb_elements(&c->in[0].type));
    *bytes = 2 * ((size_t)grid.x + 1) * sizeof(float);
    return NULL;
}

/* (x) -> codes, scale, zero: the range of x, widened to hold 0, in 256 steps. */
static ebb_status run_dynamic(const ebb_call *c)
{
    const ebb_gpu_grid one = {1, 1, 1};
    dynamic_args a;
    memset(&a, 0, sizeof a);
    a.x = (const float *)c->in[0].data;
    a.y = (uint8_t *)c->out[0].data;
    a.scale = ebb_call_wants(c, 1) ? (float *)c->out[1].data : NULL;
    a.zero = ebb_call_wants(c, 2) ? (uint8_t *)c->out[2].data : NULL;
    a.parts = (float *)c->workspace;
    a.n = ebb_elements(&c->in[0].type);
    const ebb_gpu_grid grid = ebb_cuda_grid(a.n);
    a.blocks = grid.x;
    EBB_TRY(EBB_LAUNCH(c, ranges, grid, EBB_CUDA_BLOCK, EBB_TEAM_SHARED, a));
    EBB_TRY(EBB_LAUNCH(c, choose_scale, one, EBB_CUDA_BLOCK, EBB_TEAM_SHARED, a));
    return EBB_LAUNCH(c, quantize_dynamic, grid, EBB_CUDA_BLOCK, 0, a);
}

/* ---- products ---- */

typedef struct coded { /* a list of codes' zero points and scales: one for all or one for each */
    const void *data, *zero;
    ebb_numbers scale;
    uint8_t dtype, zero_dtype;
    uint8_t flip; /* makes of a code's bits those of an int8: 0x80 of uint8 */
    bool zero_each, scale_each;
} coded;

typedef struct coded_args {
    coded a, b, y;
    int64_t batches, m, n, k;
    ebb_cuda_walk walk; /* of the batches, in matrices */
    void *out;
    const int32_t *bias;
    double least, most;
    bool scaled;              /* the output is of codes, else the sums as int32 */
    ebb_cuda_window w;        /* of a convolution: */
    int64_t images, channels; /* in: of a group */
    int64_t groups, each;     /* channels out of a group */
} coded_args;

EBB_GPU_INLINE int32_t zero_at(const coded *c, int64_t at)
{
    return c->zero == NULL ? 0
                           : (int32_t)ebb_load_whole(c->zero, c->zero_each ? at : 0, c->zero_dtype);
}

EBB_GPU_INLINE int32_t byte_at(const coded *c, int64_t i)
{
    return c->dtype == EBB_I8 ? ((const int8_t *)c->data)[i] : ((const uint8_t *)c->data)[i];
}

EBB_GPU_INLINE double scale_at(const coded *c, int64_t at)
{
    return ebb_number(&c->scale, c->scale_each ? at : 0);
}

/* The sum as int32, or scaled to a code. */
EBB_GPU_INLINE void put_sum(const coded_args *a, int64_t i, int64_t sum, int64_t row,
                            int64_t column)
{
    if (!a->scaled) {
        ((int32_t *)a->out)[i] = (int32_t)(uint32_t)(uint64_t)sum;
        return;
    }
    const double scale = scale_at(&a->a, row) * scale_at(&a->b, column);
    const double code = (double)(float)((double)sum * scale / scale_at(&a->y, 0));
    ebb_store_whole(a->out, i, a->y.dtype,
                    held(nearbyint(code) + (double)zero_at(&a->y, 0), a->least, a->most), false);
}

enum {
    SIDE = 64,
    WORDS = 8, /* of a line at a time, four codes each */
    PITCH = SIDE + 1,
    PER = 4,
    WIDE = SIDE / PER,
    TILE_THREADS = WIDE * WIDE,
    SAFE = 1 << 16 /* so many products fit 32 bits */
};

typedef struct code_tile { /* what a block makes, and one thread's column on the way in */
    int64_t rows, columns; /* of the tile, at most SIDE */
    int64_t left, right;   /* first code of its first row; of its first column */
    int64_t right_step;    /* from one of a column to the next: of matrices */
    int64_t window;        /* of images: the first channel of the thread's window */
    int32_t at[EBB_AXES];  /* where that begins */
    uint32_t outside;      /* the code of the padding */
} code_tile;

EBB_GPU_INLINE uint32_t code_at(const coded *c, int64_t i)
{
    return (uint32_t)((const uint8_t *)c->data)[i] ^ c->flip;
}

/* The zero point that belongs to codes of code_at. */
EBB_GPU_INLINE int32_t flipped_zero(const coded *c, int64_t at)
{
    return zero_at(c, at) - c->flip;
}

/* Four codes, `step` apart; 0 beyond the first `have`. */
EBB_GPU_INLINE uint32_t word_of_codes(const coded *c, int64_t from, int64_t step, int64_t have)
{
    uint32_t word = 0;
    for (int64_t d = 0; d < 4 && d < have; d++)
        word |= code_at(c, from + d * step) << 8 * d;
    return word;
}

/* Codes k .. k + 3 of the window, channel by channel. */
EBB_GPU_INLINE uint32_t word_of_window(const coded_args *a, const code_tile *t, int64_t k)
{
    uint32_t word = 0;
    for (int d = 0; d < 4 && k + d < a->k; d++) {
        const int32_t channel = (int32_t)(k + d) / a->w.taps;
        int32_t step[EBB_AXES], place = 0;
        bool inside = true;
        ebb_cuda_axes_of(step, a->w.kernel, (int32_t)(k + d) - channel * a->w.taps);
        for (int e = 0; e < EBB_AXES; e++) {
            const int32_t i = t->at[e] + step[e] * a->w.dilation[e];
            inside = inside && i >= 0 && i < a->w.wide[e];
            place = inside ? place * a->w.wide[e] + i : 0;
        }
        const int64_t at = t->window + (int64_t)channel * a->w.wide_volume + place;
        word |= (inside ? code_at(&a->a, at) : t->outside) << 8 * d;
    }
    return word;
}

/* The sums of the thread's PER x PER elements, and of the tile's lines into `line`: rows, then
 * columns. */
EBB_GPU_INLINE void multiply_codes(const coded_args *a, const code_tile *t, bool windows,
                                   uint32_t *shared, int64_t *line, int64_t total[PER][PER])
{
    const coded *left_codes = windows ? &a->b : &a->a, *right_codes = windows ? &a->a : &a->b;
    const uint32_t x = EBB_THREAD % WIDE, y = EBB_THREAD / WIDE, column = EBB_THREAD % SIDE;
    uint32_t *left = shared, *right = shared + WORDS * PITCH;
    int32_t sum[PER][PER] = {{0}};
    int64_t mine = 0; // of line EBB_THREAD
    for (int64_t k = 0; k < a->k; k += 4 * WORDS) {
        for (uint32_t e = EBB_THREAD; e < SIDE * WORDS; e += TILE_THREADS) {
            const uint32_t row = e / WORDS, word = e % WORDS;
            const int64_t at = k + 4 * word, have = (int64_t)row < t->rows ? a->k - at : 0;
            left[word * PITCH + row] =
                word_of_codes(left_codes, t->left + row * a->k + at, 1, have);
        }
        for (uint32_t word = EBB_THREAD / SIDE; word < WORDS; word += TILE_THREADS / SIDE) {
            const int64_t at = k + 4 * word, have = (int64_t)column < t->columns ? a->k - at : 0;
            right[word * PITCH + column] =
                have <= 0 ? 0
                : windows ? word_of_window(a, t, at)
                          : word_of_codes(right_codes, t->right + column + at * t->right_step,
                                          t->right_step, have);
        }
        ebb_barrier();
        for (uint32_t word = 0; word < WORDS; word++)
            for (uint32_t r = 0; r < PER; r++)
                for (uint32_t s = 0; s < PER; s++)
                    sum[r][s] = ebb_dot_i8(left[word * PITCH + y * PER + r],
                                           right[word * PITCH + x + s * WIDE], sum[r][s]);
        for (uint32_t word = 0; EBB_THREAD < 2 * SIDE && word < WORDS; word++)
            mine += ebb_dot_i8((EBB_THREAD < SIDE ? left : right)[word * PITCH + column],
                               0x01010101u, 0);
        ebb_barrier();
        if ((k + 4 * WORDS) % SAFE != 0 && k + 4 * WORDS < a->k)
            continue;
        for (uint32_t e = 0; e < PER * PER; e++) {
            total[e / PER][e % PER] += sum[e / PER][e % PER];
            sum[e / PER][e % PER] = 0;
        }
    }
    if (EBB_THREAD < 2 * SIDE)
        line[EBB_THREAD] = mine;
    ebb_barrier();
}

EBB_GPU_INLINE int64_t with_zeros(int64_t sum, int64_t depth, int64_t row_sum, int64_t column_sum,
                                  int64_t zero_of_row, int64_t zero_of_column)
{
    return sum - zero_of_row * column_sum - zero_of_column * row_sum +
           depth * zero_of_row * zero_of_column;
}

EBB_GLOBAL(coded_product, coded_args)
{
    EBB_SHARED(int64_t, line);
    uint32_t *words = (uint32_t *)(void *)(line + 2 * SIDE);
    const int64_t down = (a.m + SIDE - 1) / SIDE, across = (a.n + SIDE - 1) / SIDE;
    for (int64_t job = EBB_BLOCK; job < a.batches * down * across; job += EBB_BLOCKS) {
        const int64_t batch = job / (down * across), row = job / across % down * SIDE;
        const int64_t column = job % across * SIDE;
        int64_t total[PER][PER] = {{0}};
        code_tile t = {0};
        t.rows = a.m - row;
        t.columns = a.n - column;
        t.left = ebb_cuda_at(&a.walk, 0, batch) * a.m * a.k + row * a.k;
        t.right = ebb_cuda_at(&a.walk, 1, batch) * a.k * a.n + column;
        t.right_step = a.n;
        multiply_codes(&a, &t, false, words, line, total);
        for (uint32_t e = 0; e < PER * PER; e++) {
            const uint32_t r = EBB_THREAD / WIDE * PER + e / PER;
            const uint32_t s = EBB_THREAD % WIDE + e % PER * WIDE;
            if ((int64_t)r >= t.rows || (int64_t)s >= t.columns)
                continue;
            const int64_t sum =
                with_zeros(total[e / PER][e % PER], a.k, line[r], line[SIDE + s],
                           flipped_zero(&a.a, row + r), flipped_zero(&a.b, column + s));
            put_sum(&a, (batch * a.m + row + r) * a.n + column + s, sum, row + r, column + s);
        }
        ebb_barrier(); // the lines are written anew
    }
}

/* Filters of a group by windows of all images. */
EBB_GLOBAL(coded_conv_tiles, coded_args)
{
    EBB_SHARED(int64_t, line);
    uint32_t *words = (uint32_t *)(void *)(line + 2 * SIDE);
    const int64_t volume = a.w.narrow_volume, windows = a.images * volume;
    const int64_t down = (a.each + SIDE - 1) / SIDE, across = (windows + SIDE - 1) / SIDE;
    for (int64_t job = EBB_BLOCK; job < a.groups * down * across; job += EBB_BLOCKS) {
        const int64_t group = job / (down * across), row = job / across % down * SIDE;
        const int64_t column = job % across * SIDE, mine = column + EBB_THREAD % SIDE;
        int64_t total[PER][PER] = {{0}};
        code_tile t = {0};
        t.rows = a.each - row;
        t.columns = windows - column;
        t.left = (group * a.each + row) * a.k;
        const int64_t image = mine < windows ? mine / volume : 0;
        t.window = (image * a.groups + group) * a.channels * a.w.wide_volume;
        t.outside = (uint32_t)flipped_zero(&a.a, 0) & 0xFFu;
        ebb_cuda_axes_of(t.at, a.w.narrow, mine < windows ? (int32_t)(mine - image * volume) : 0);
        for (int e = 0; e < EBB_AXES; e++)
            t.at[e] = t.at[e] * a.w.stride[e] - a.w.before[e];
        multiply_codes(&a, &t, true, words, line, total);
        for (uint32_t e = 0; e < PER * PER; e++) {
            const uint32_t r = EBB_THREAD / WIDE * PER + e / PER;
            const uint32_t s = EBB_THREAD % WIDE + e % PER * WIDE;
            if ((int64_t)r >= t.rows || (int64_t)s >= t.columns)
                continue;
            const int64_t m = group * a.each + row + r, of = (column + s) / volume;
            const int64_t sum = with_zeros(total[e / PER][e % PER], a.k, line[r], line[SIDE + s],
                                           flipped_zero(&a.b, m), flipped_zero(&a.a, 0));
            put_sum(&a, (of * a.groups * a.each + m) * volume + column + s - of * volume,
                    sum + (a.bias != NULL ? a.bias[m] : 0), 0, m);
        }
        ebb_barrier(); // the lines are written anew
    }
}

/* A thread a window. */
EBB_GLOBAL(coded_conv, coded_args)
{
    const int64_t volume = a.w.narrow_volume, out = a.groups * a.each;
    EBB_GRID_LOOP(e, a.images * out * volume)
    {
        const int64_t plane = e / volume, image = plane / out, m = plane - image * out;
        const int64_t first = (image * a.groups + m / a.each) * a.channels;
        const int32_t za = zero_at(&a.a, 0), zb = zero_at(&a.b, m);
        int32_t at[EBB_AXES];
        int64_t sum = a.bias != NULL ? a.bias[m] : 0;
        ebb_cuda_axes_of(at, a.w.narrow, (int32_t)(e - plane * volume));
        for (int32_t tap = 0; tap < a.w.taps; tap++) {
            int32_t step[EBB_AXES], place = 0;
            bool inside = true;
            ebb_cuda_axes_of(step, a.w.kernel, tap);
            for (int d = 0; d < EBB_AXES; d++) {
                const int32_t i = at[d] * a.w.stride[d] - a.w.before[d] + step[d] * a.w.dilation[d];
                inside = inside && i >= 0 && i < a.w.wide[d];
                place = inside ? place * a.w.wide[d] + i : 0;
            }
            for (int64_t j = 0; inside && j < a.channels; j++)
                sum += (byte_at(&a.a, (first + j) * a.w.wide_volume + place) - za) *
                       (byte_at(&a.b, (m * a.channels + j) * a.w.taps + tap) - zb);
        }
        put_sum(&a, e, sum, 0, m);
    }
}

static coded coded_of(const ebb_call *c, int data, int zero, int scale)
{
    coded v;
    memset(&v, 0, sizeof v);
    if (data >= 0) {
        v.data = c->in[data].data;
        v.dtype = c->in[data].type.dtype;
        v.flip = v.dtype == EBB_U8 ? 0x80 : 0;
    }
    if (zero >= 0 && ebb_call_has(c, (uint32_t)zero)) {
        v.zero = c->in[zero].data;
        v.zero_dtype = c->in[zero].type.dtype;
        v.zero_each = ebb_elements(&c->in[zero].type) != 1;
    }
    if (scale >= 0) {
        v.scale = ebb_numbers_in(c, (uint32_t)scale);
        v.scale_each = ebb_elements(&c->in[scale].type) != 1;
    }
    return v;
}

static void read_product(coded_args *a, const ebb_call *c)
{
    const ebb_coded_product p = ebb_coded_product_of(c);
    memset(a, 0, sizeof *a);
    a->a = coded_of(c, p.a, p.a_zero, p.a_scale);
    a->b = coded_of(c, p.b, p.b_zero, p.b_scale);
    a->y = coded_of(c, -1, p.y_zero, p.y_scale);
    a->y.dtype = c->out[0].type.dtype;
    a->scaled = p.y_scale >= 0;
    a->out = c->out[0].data;
    if (p.bias >= 0 && ebb_call_has(c, (uint32_t)p.bias))
        a->bias = (const int32_t *)c->in[p.bias].data;
    range_of(a->y.dtype, &a->least, &a->most);
}

enum { FEW_FILTERS = 8 }; // a group of so many fills no tile

static const uint32_t tile_shared =
    2 * SIDE * (uint32_t)sizeof(int64_t) + 2 * WORDS * PITCH * (uint32_t)sizeof(uint32_t);

static ebb_status run_matmul(const ebb_call *c)
{
    const ebb_coded_product p = ebb_coded_product_of(c);
    ebb_type a = c->in[p.a].type, b = c->in[p.b].type, y = c->out[0].type;
    const ebb_type *in[2] = {&a, &b};
    coded_args v;
    read_product(&v, c);
    v.m = a.rank > 1 ? a.dims[a.rank - 2] : 1;
    v.k = a.dims[a.rank - 1];
    v.n = b.rank > 1 ? b.dims[b.rank - 1] : 1;
    y.rank = (int8_t)(y.rank - (a.rank > 1) - (b.rank > 1));
    a.rank = (int8_t)(a.rank > 2 ? a.rank - 2 : 0);
    b.rank = (int8_t)(b.rank > 2 ? b.rank - 2 : 0);
    v.batches = ebb_elements(&y);
    ebb_cuda_walk_make(&v.walk, &y, in, 2);
    const int64_t tiles = v.batches * ((v.m + SIDE - 1) / SIDE) * ((v.n + SIDE - 1) / SIDE);
    return EBB_LAUNCH(c, coded_product, ebb_cuda_blocks(tiles), TILE_THREADS, tile_shared, v);
}

static ebb_status run_conv(const ebb_call *c)
{
    ebb_geometry g;
    coded_args v;
    read_product(&v, c);
    const char *why = ebb_coded_conv_read(&g, c);
    if (why == NULL)
        why = ebb_cuda_window_make(&v.w, &g);
    if (why != NULL)
        return ebb_call_error(c, "%s", why);
    v.images = g.batch;
    v.groups = g.groups;
    v.channels = g.wide_channels / g.groups;
    v.each = g.narrow_channels / g.groups;
    v.k = v.channels * v.w.taps;
    if (v.each > FEW_FILTERS && v.k <= INT32_MAX) {
        const int64_t tiles = v.groups * ((v.each + SIDE - 1) / SIDE) *
                              ((v.images * v.w.narrow_volume + SIDE - 1) / SIDE);
        return EBB_LAUNCH(c, coded_conv_tiles, ebb_cuda_blocks(tiles), TILE_THREADS, tile_shared,
                          v);
    }
    return EBB_LAUNCH(c, coded_conv,
                      ebb_cuda_grid(v.images * g.narrow_channels * v.w.narrow_volume),
                      EBB_CUDA_BLOCK, 0, v);
}

static const char *declines_product(const ebb_call *c)
{
    const ebb_coded_product p = ebb_coded_product_of(c);
    const int zeros[3] = {p.a_zero, p.b_zero, p.y_zero};
    const int scales[3] = {p.a_scale, p.b_scale, p.y_scale};
    const uint8_t y = c->out[0].type.dtype;
    for (int i = 0; i < 3; i++) {
        if (zeros[i] >= 0 && ebb_call_has(c, (uint32_t)zeros[i]) &&
            c->in[zeros[i]].type.dtype != EBB_U8 && c->in[zeros[i]].type.dtype != EBB_I8)
            return "zero points are neither uint8 nor int8";
        if (scales[i] >= 0 && !ebb_dtype_is_float((ebb_dtype)c->in[scales[i]].type.dtype))
            return "scales are not floats";
    }
    if (p.y_scale >= 0 && y != EBB_U8 && y != EBB_I8)
        return "makes codes in uint8 and int8 only";
    if (p.bias >= 0 && ebb_call_has(c, (uint32_t)p.bias) && c->in[p.bias].type.dtype != EBB_I32)
        return "the bias is not int32";
    return NULL;
}

static const char *misfit_matmul(const ebb_call *c)
{
    EBB_ASK(ebb_coded_matmul_misfit(c));
    return declines_product(c);
}

static const char *misfit_conv(const ebb_call *c)
{
    ebb_geometry g;
    ebb_cuda_window w;
    EBB_ASK(ebb_coded_conv_read(&g, c));
    EBB_ASK(ebb_cuda_window_make(&w, &g));
    return declines_product(c);
}

// clang-format off
const ebb_kernel ebb_cuda_linear_codes[] = {
    {.name = "cuda.quantize_linear",   .op = EBB_OP_QUANTIZE_LINEAR,         .fits = declines_linear, .run = run_linear},
    {.name = "cuda.dequantize_linear", .op = EBB_OP_DEQUANTIZE_LINEAR,       .fits = declines_linear, .run = run_linear},
    {.name = "cuda.dynamic_quantize",  .op = EBB_OP_DYNAMIC_QUANTIZE_LINEAR, .dtypes = ebb_dynamic_quantize_dtypes, .workspace = dynamic_workspace, .run = run_dynamic},
    {.name = "cuda.matmul_integer",    .op = EBB_OP_MATMUL_INTEGER,          .dtypes = ebb_call_any, .fits = misfit_matmul, .run = run_matmul},
    {.name = "cuda.qlinear_matmul",    .op = EBB_OP_QLINEAR_MATMUL,          .dtypes = ebb_call_any, .fits = misfit_matmul, .run = run_matmul},
    {.name = "cuda.conv_integer",      .op = EBB_OP_CONV_INTEGER,            .dtypes = ebb_call_any, .fits = misfit_conv, .run = run_conv},
    {.name = "cuda.qlinear_conv",      .op = EBB_OP_QLINEAR_CONV,            .dtypes = ebb_call_any, .fits = misfit_conv, .run = run_conv},
};
// clang-format on
EBB_CUDA_COUNT(linear_codes)
