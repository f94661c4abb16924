/* codes.cu: Quantize, SplitFrequency and their inverses: the bits of the plain kernels.
 *
 * Eight codes fill whole bytes and take one block of Philox, so a lane owns eight elements in a
 * row:
 *
 *     group   |........|........|........|........|....|       a team of 1, 2, 4 .. 32 lanes
 *              lane 0   lane 1   lane 2   lane 3   lane 4      ranges by shuffles, codes by lanes
 *
 * Long groups, and classes of running ranges, are cut among blocks: their ends go to the workspace,
 * a second launch settles the ranges, a third encodes. Ends are found by comparing, so no order of
 * threads shows. Decoders take an element a thread.
 */
#include "kernels/math/codes.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/floats.h"
#include "kernels/cuda/lots.h"
#include "kernels/math/philox.h"
#include "kernels/call/codes.h"

enum {
    SHORT = 4096,      /* a longer group is cut among blocks */
    RUN_PIECE = 1024,  /* elements that a warp compares at a time, of one group */
    TILE = 2048,       /* elements that a block decodes at a time, of one row */
    MOST_PARTS = 1024, /* blocks of all classes, if there are fewer classes */
    ENDS_BYTES = 1024, /* shared: two numbers for each warp of a block */
};

typedef struct coded { /* where draws come from and codes go */
    uint8_t *codes;
    const int64_t *key; /* {seed, step} */
    uint32_t stream, bits;
} coded;

typedef struct quantize_args {
    coded to;
    uint16_t *range;
    const void *x;
    ebb_groups cut;
    uint32_t team;     /* lanes of a group */
    bool dense;        /* lots begin at multiples of 16 bytes, codes at multiples of theirs */
    const float *next; /* not NULL: group g takes the running range of class g % classes */
    int64_t classes;
} quantize_args;

/* Class k has the groups k, k + classes, ... of each row; or each group of each row is one. */
typedef struct ends_args {
    void *ends; /* [classes, parts, {low, high}] */
    const void *x;
    ebb_groups cut;
    int64_t classes, runs; /* of one class: how many groups */
    int64_t per_row;       /* of one class */
    int64_t span;          /* classes that one row knows */
    int64_t pieces, parts; /* of a run; of a class */
    float rate;
    uint16_t *range; /* [classes, 2], or: */
    const float *state;
    float *next;
} ends_args;

typedef struct split_args {
    coded to;
    uint16_t *low, *range;
    const void *x;
    ebb_planes p;
} split_args;

typedef struct decode_args {
    void *y;
    const uint8_t *codes;
    const uint16_t *range, *means; /* means: NULL, or of the blocks of each row's image */
    ebb_groups cut;
    int32_t shift; /* group = 1 << shift; or -1 */
    uint32_t width, block, low_width;
    int64_t low_size;
} decode_args;

EBB_GPU_INLINE uint16_t bf16_bits(float x)
{
    return ebb_to_bf16(x).bits;
}

EBB_GPU_INLINE float bf16_value(uint16_t bits)
{
    ebb_bf16 v;
    v.bits = bits;
    return ebb_from_bf16(v);
}

EBB_GPU_INLINE ebb_philox draw(const coded *to, int64_t block)
{
    return ebb_philox_block((uint64_t)to->key[0], (uint64_t)to->key[1], to->stream,
                            (uint64_t)block);
}

EBB_GPU_INLINE uint16_t half_of(const ebb_philox *drawn, int i)
{
    return (uint16_t)(drawn->word[i / 2] >> (i % 2 * 16));
}

EBB_GPU_INLINE float bf16_mean(const decode_args *a, int64_t row, int64_t at)
{
    uint32_t i = (uint32_t)at / a->width, j = (uint32_t)at - i * a->width;
    return bf16_value(a->means[row * a->low_size + i / a->block * a->low_width + j / a->block]);
}

#define FORMULA EBB_GPU_INLINE
#define TO_BF16(x) bf16_bits(x)
#define OF_BF16(bits) bf16_value(bits)
#define KERNELS "kernels/cuda/codes_kernels.inc"
#include "kernels/cuda/all_floats.inc"

static const ebb_gpu_kernel quantizes[] = EBB_CUDA_FLOATS(quantize);
static const ebb_gpu_kernel encodes[] = EBB_CUDA_FLOATS(encode);
static const ebb_gpu_kernel ends_of[] = EBB_CUDA_FLOATS(ends);
static const ebb_gpu_kernel settles[] = EBB_CUDA_FLOATS(settle);
static const ebb_gpu_kernel splits[] = EBB_CUDA_FLOATS(split);
static const ebb_gpu_kernel decodes[] = EBB_CUDA_FLOATS(decode);

/* ---- ranges of classes ---- */

static size_t real_bytes(const ebb_operand *x)
{
    return x->type.dtype == EBB_F64 ? sizeof(double) : sizeof(float);
}

/* Running: so many classes. Else 0: each group is one. */
static void cut_classes(ends_args *a, const ebb_groups *cut, int64_t running)
{
    memset(a, 0, sizeof *a);
    a->cut = *cut;
    a->span = running > 0 ? running : cut->groups;
    a->classes = running > 0 ? running : cut->rows * cut->groups;
    a->per_row = running > 0 ? cut->groups / running : 1;
    a->runs = running > 0 ? cut->rows * a->per_row : 1;
    a->pieces = (cut->group + RUN_PIECE - 1) / RUN_PIECE;
    const int64_t block = EBB_CUDA_BLOCK, warps = block / EBB_WARP;
    int64_t enough = (a->runs * a->pieces + warps - 1) / warps;
    a->parts = a->classes > 0 ? MOST_PARTS / a->classes : 1;
    a->parts = a->parts > enough ? enough : a->parts;
    a->parts = a->parts < 1 ? 1 : a->parts;
}

static ebb_status range_classes(const ebb_call *c, ends_args *a)
{
    const int row = ebb_cuda_float_row(c->in[0].type.dtype);
    a->ends = c->workspace;
    a->x = c->in[0].data;
    const int64_t blocks = a->classes * a->parts;
    EBB_TRY(EBB_LAUNCH(c, ends_of[row], ebb_cuda_blocks(blocks), EBB_CUDA_BLOCK, ENDS_BYTES, *a));
    return EBB_LAUNCH(c, settles[row], ebb_cuda_grid(a->classes * EBB_WARP), EBB_CUDA_BLOCK, 0, *a);
}

/* ---- Quantize ---- */

static quantize_args quantize_of(const ebb_call *c, const ebb_groups *cut)
{
    quantize_args a;
    memset(&a, 0, sizeof a);
    a.to.codes = (uint8_t *)c->out[0].data;
    a.to.key = (const int64_t *)c->in[1].data;
    a.to.stream = (uint32_t)ebb_attr_int(&c->attrs, "stream", 0);
    a.to.bits = cut->bits;
    a.range = (uint16_t *)c->out[1].data;
    a.x = c->in[0].data;
    a.cut = *cut;
    a.team = ebb_lot_team(cut->group);
    a.dense = (uintptr_t)a.x % 16 == 0 && (uintptr_t)a.to.codes % 8 == 0 &&
              cut->inner % EBB_LOT == 0 && cut->group % EBB_LOT == 0;
    return a;
}

static ebb_status encode_all(const ebb_call *c, quantize_args *a)
{
    const int64_t lots = a->cut.rows * a->cut.groups * ((a->cut.group + EBB_LOT - 1) / EBB_LOT);
    return EBB_LAUNCH(c, encodes[ebb_cuda_float_row(c->in[0].type.dtype)], ebb_cuda_grid(lots),
                      EBB_CUDA_BLOCK, 0, *a);
}

static ebb_status workspace_quantize(const ebb_call *c, size_t *bytes)
{
    ends_args e;
    const ebb_groups cut = ebb_quantize_groups(c);
    const bool running = c->op == EBB_OP_QUANTIZE_RUNNING;
    *bytes = 0;
    if (!running && cut.group <= SHORT)
        return NULL;
    cut_classes(&e, &cut, running ? c->in[2].type.dims[0] : 0);
    if (!ebb_size_mul(bytes, (size_t)(e.classes * e.parts), 2 * real_bytes(&c->in[0])))
        return ebb_call_error(c, "its ranges pass what memory can be");
    return NULL;
}

/* (X, key) {bits, group, axis, stream} -> codes, range. */
static ebb_status run_quantize(const ebb_call *c)
{
    const ebb_groups cut = ebb_quantize_groups(c);
    quantize_args a = quantize_of(c, &cut);
    const int64_t jobs = cut.rows * cut.groups;
    if (cut.group <= SHORT)
        return EBB_LAUNCH(c, quantizes[ebb_cuda_float_row(c->in[0].type.dtype)],
                          ebb_cuda_grid(jobs * a.team), EBB_CUDA_BLOCK, 0, a);
    ends_args e;
    cut_classes(&e, &cut, 0);
    e.range = a.range;
    EBB_TRY(range_classes(c, &e));
    return encode_all(c, &a);
}

/* (X, key, state) {bits, group, axis, decay, stream} -> codes, range, next. next may be state. */
static ebb_status run_running(const ebb_call *c)
{
    const ebb_groups cut = ebb_quantize_groups(c);
    quantize_args a = quantize_of(c, &cut);
    ends_args e;
    if (cut.rows == 0 || cut.groups == 0)
        return c->out[2].data == c->in[2].data
                   ? NULL
                   : ebb_gpu_copy(ebb_cuda_queue_of(c)->stream, c->out[2].data, c->in[2].data,
                                  c->in[2].bytes, EBB_ON_DEVICE);
    a.classes = c->in[2].type.dims[0];
    a.next = (const float *)c->out[2].data;
    cut_classes(&e, &cut, a.classes);
    e.state = (const float *)c->in[2].data;
    e.next = (float *)c->out[2].data;
    e.rate = 1.0f - (float)ebb_attr_float(&c->attrs, "decay", 0.9);
    EBB_TRY(range_classes(c, &e));
    return encode_all(c, &a);
}

/* ---- SplitFrequency ---- */

static uint32_t threads_of(int64_t lanes)
{
    const uint32_t most = EBB_CUDA_BLOCK, least = EBB_WARP;
    return lanes >= most    ? most
           : lanes <= least ? least
                            : (uint32_t)(lanes + EBB_WARP - 1) / EBB_WARP * EBB_WARP;
}

/* (X, key) {block, bits, stream} -> low, codes, range. */
static ebb_status run_split(const ebb_call *c)
{
    split_args a;
    memset(&a, 0, sizeof a);
    a.p = ebb_split_planes(c, &c->in[0].type);
    a.low = (uint16_t *)c->out[0].data;
    a.to.codes = (uint8_t *)c->out[1].data;
    a.to.key = (const int64_t *)c->in[1].data;
    a.to.stream = (uint32_t)ebb_attr_int(&c->attrs, "stream", 0);
    a.to.bits = a.p.bits;
    a.range = (uint16_t *)c->out[2].data;
    a.x = c->in[0].data;
    const int64_t n = a.p.height * a.p.width;
    if (a.p.count * n == 0)
        return NULL;
    return EBB_LAUNCH(c, splits[ebb_cuda_float_row(c->in[0].type.dtype)],
                      ebb_cuda_blocks(a.p.count), threads_of((n + EBB_LOT - 1) / EBB_LOT),
                      ENDS_BYTES, a);
}

/* ---- decoders ---- */

static ebb_status decode_all(const ebb_call *c, decode_args *a)
{
    const int64_t chunks = (a->cut.inner + TILE - 1) / TILE;
    a->y = c->out[0].data;
    a->shift = -1;
    for (int32_t s = 0; s < 31; s++)
        if (a->cut.group == (int64_t)1 << s)
            a->shift = s;
    return EBB_LAUNCH(c, decodes[ebb_cuda_float_row(c->out[0].type.dtype)],
                      ebb_cuda_blocks(a->cut.rows * chunks), threads_of(a->cut.inner), 0, *a);
}

/* (codes, range) {bits, group} -> Y. */
static ebb_status run_dequantize(const ebb_call *c)
{
    decode_args a;
    memset(&a, 0, sizeof a);
    a.cut = ebb_dequantize_groups(c);
    a.codes = (const uint8_t *)c->in[0].data;
    a.range = (const uint16_t *)c->in[1].data;
    return decode_all(c, &a);
}

/* (low, codes, range) {block, bits} -> Y: each plane is a row of one group. */
static ebb_status run_split_decode(const ebb_call *c)
{
    const ebb_planes p = ebb_split_planes(c, &c->out[0].type);
    decode_args a;
    memset(&a, 0, sizeof a);
    a.cut.rows = p.count;
    a.cut.inner = a.cut.group = p.height * p.width;
    if (a.cut.rows * a.cut.inner == 0)
        return NULL;
    a.cut.groups = 1;
    a.cut.row_bytes = p.bytes;
    a.cut.bits = p.bits;
    a.means = (const uint16_t *)c->in[0].data;
    a.codes = (const uint8_t *)c->in[1].data;
    a.range = (const uint16_t *)c->in[2].data;
    a.width = (uint32_t)p.width;
    a.block = (uint32_t)p.block;
    a.low_width = (uint32_t)p.low_width;
    a.low_size = p.low_height * p.low_width;
    return decode_all(c, &a);
}

/* ---- what rows ask ---- */

static const char *large_planes(const ebb_call *c, const ebb_type *x)
{
    const ebb_planes p = ebb_split_planes(c, x);
    return p.width > 0 && p.height > INT32_MAX / p.width ? "an image has more than 2^31 pixels"
                                                         : NULL;
}

static const char *misfit_split(const ebb_call *c)
{
    EBB_ASK(ebb_split_frequency_misfit(c));
    return large_planes(c, &c->in[0].type);
}

static const char *misfit_split_decode(const ebb_call *c)
{
    EBB_ASK(ebb_split_frequency_decode_misfit(c));
    return large_planes(c, &c->out[0].type);
}

// clang-format off
const ebb_kernel ebb_cuda_codes[] = {
    {.name = "cuda.quantize",               .op = EBB_OP_QUANTIZE,               .dtypes = ebb_call_any, .fits = ebb_quantize_misfit,         .workspace = workspace_quantize, .run = run_quantize},
    {.name = "cuda.quantize_running",       .op = EBB_OP_QUANTIZE_RUNNING,       .dtypes = ebb_call_any, .fits = ebb_quantize_running_misfit, .workspace = workspace_quantize, .run = run_running},
    {.name = "cuda.dequantize",             .op = EBB_OP_DEQUANTIZE,             .dtypes = ebb_call_any, .fits = ebb_dequantize_misfit,       .run = run_dequantize},
    {.name = "cuda.split_frequency",        .op = EBB_OP_SPLIT_FREQUENCY,        .dtypes = ebb_call_any, .fits = misfit_split,               .run = run_split},
    {.name = "cuda.split_frequency_decode", .op = EBB_OP_SPLIT_FREQUENCY_DECODE, .dtypes = ebb_call_any, .fits = misfit_split_decode,        .run = run_split_decode},
};
// clang-format on
EBB_CUDA_COUNT(codes)
