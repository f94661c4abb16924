/* test_chain.c: random chains, compiled as one kernel, against their operators one by one.
 *
 * By the kernels of the GPU, whose formulas they share: the same bits. By the plain kernels, in
 * float64: within rounding. And NVRTC takes the same sources for two kinds of device.
 */
#include "tests/cuda/numbers.h"

#include "kernels/cuda/fuse/cache_files.h"
#include "kernels/cuda/fuse/chain.h"
#include "kernels/cuda/fuse/compile.h"
#include "onnx/words/arena.h"
#include "tests/owned.h"

enum { CHAINS = 20, VALUES = EBB_CHAIN_INPUTS + EBB_CHAIN_STEPS };

typedef struct kind {
    ebb_op op;
    const char *name;
    int inputs;
    char takes; /* r: reals; l: bools; w: a bool and two reals; c: a Cast */
    bool flag;
    bool alpha;
} kind;

static const kind kinds[] = {
    {EBB_OP_ADD, "add", 2, 'r', false, false},
    {EBB_OP_SUB, "sub", 2, 'r', false, false},
    {EBB_OP_MUL, "mul", 2, 'r', false, false},
    {EBB_OP_DIV, "div", 2, 'r', false, false},
    {EBB_OP_MAX, "max", 2, 'r', false, false},
    {EBB_OP_MIN, "min", 2, 'r', false, false},
    {EBB_OP_SUM, "sum", 3, 'r', false, false},
    {EBB_OP_MEAN, "mean", 4, 'r', false, false},
    {EBB_OP_GREATER, "greater", 2, 'r', true, false},
    {EBB_OP_LESS_OR_EQUAL, "less_equal", 2, 'r', true, false},
    {EBB_OP_IS_NAN, "is_nan", 1, 'r', true, false},
    {EBB_OP_NEG, "neg", 1, 'r', false, false},
    {EBB_OP_RELU, "relu", 1, 'r', false, false},
    {EBB_OP_LEAKY_RELU, "leaky_relu", 1, 'r', false, true},
    {EBB_OP_CLIP, "clip", 3, 'r', false, false},
    {EBB_OP_CLIP, "clip", 1, 'r', false, false},
    {EBB_OP_PRELU, "prelu", 2, 'r', false, false},
    {EBB_OP_SQRT, "sqrt", 1, 'r', false, false},
    {EBB_OP_ERF, "erf", 1, 'r', false, false},
    {EBB_OP_ASINH, "asinh", 1, 'r', false, false},
    {EBB_OP_SELU, "selu", 1, 'r', false, true},
    {EBB_OP_SHRINK, "shrink", 1, 'r', false, false},
    {EBB_OP_SIGMOID, "sigmoid", 1, 'r', false, false},
    {EBB_OP_TANH, "tanh", 1, 'r', false, false},
    {EBB_OP_HARD_SIGMOID, "hard_sigmoid", 1, 'r', false, true},
    {EBB_OP_SOFTPLUS, "softplus", 1, 'r', false, false},
    {EBB_OP_GELU, "gelu", 1, 'r', false, false},
    {EBB_OP_MISH, "mish", 1, 'r', false, false},
    {EBB_OP_MS_QUICK_GELU, "quick_gelu", 1, 'r', false, true},
    {EBB_OP_RELU_GRAD, "relu_grad", 2, 'r', false, false},
    {EBB_OP_TANH_GRAD, "tanh_grad", 2, 'r', false, false},
    {EBB_OP_GELU_GRAD, "gelu_grad", 2, 'r', false, false},
    {EBB_OP_MISH_GRAD, "mish_grad", 2, 'r', false, false},
    {EBB_OP_CLIP_GRAD, "clip_grad", 2, 'r', false, false},
    {EBB_OP_AND, "and", 2, 'l', true, false},
    {EBB_OP_XOR, "xor", 2, 'l', true, false},
    {EBB_OP_EQUAL, "equal", 2, 'l', true, false},
    {EBB_OP_NOT, "not", 1, 'l', true, false},
    {EBB_OP_WHERE, "where", 3, 'w', false, false},
    {EBB_OP_CAST, "cast", 1, 'c', false, false},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static const int64_t shapes[][4] = {{1, 1, 1, 1031}, {2, 3, 5, 16}, {3, 1, 7, 9}, {4, 8, 1, 64},
                                    {1, 1, 1, 1},    {2, 3, 0, 8},  {2, 5, 3, 3}};

typedef struct made { /* a chain, its operands, and what its operators give */
    ebb_chain chain;
    testing t; /* for draws */
    ebb_operand in[EBB_CHAIN_INPUTS];
    const kind *kind[EBB_CHAIN_STEPS];
    const char *prefix;
    ebb_operand value[VALUES]; /* whole; 16 bits as float32 */
} made;

static uint32_t pick(testing *t, uint32_t n)
{
    return (uint32_t)((draw(t) + 1) / 2 * n) % n;
}

static ebb_dtype wide_of(uint8_t dtype)
{
    return dtype == EBB_F16 || dtype == EBB_BF16 ? EBB_F32 : (ebb_dtype)dtype;
}

/* The whole of an input: index by index, as broadcasting is defined. */
static void expand(const made *m, const ebb_operand *from, ebb_operand *to)
{
    const ebb_type *shape = &m->chain.shape;
    make_operand(to, wide_of(from->type.dtype), shape->rank, shape->dims);
    size_t size = ebb_dtype_bits((ebb_dtype)to->type.dtype) / 8;
    for (size_t i = 0; i < count_of(to); i++) {
        size_t rest = i, at = 0, step = 1;
        for (int d = shape->rank - 1; d >= 0; d--) {
            size_t index = rest % (size_t)shape->dims[d];
            int e = d - (shape->rank - from->type.rank);
            rest /= (size_t)shape->dims[d];
            if (e < 0)
                continue;
            at += from->type.dims[e] == 1 ? 0 : index * step;
            step *= (size_t)from->type.dims[e];
        }
        if (is_narrow(from))
            put_real(to, i, real_at(from, at));
        else
            memcpy((char *)to->data + i * size, (const char *)from->data + at * size, size);
    }
}

static void add_input(made *m, ebb_dtype dtype)
{
    const ebb_type *shape = &m->chain.shape;
    int64_t dims[4];
    int rank = pick(&m->t, 3) > 0 ? shape->rank : (int)pick(&m->t, (uint32_t)shape->rank + 1);
    bool some = rank > 0 && pick(&m->t, 3) == 0;
    for (int d = 0; d < rank; d++) {
        dims[d] = shape->dims[shape->rank - rank + d];
        dims[d] = some && pick(&m->t, 2) == 0 ? 1 : dims[d];
    }
    testing source;
    begin(&source, EBB_OP_ADD);
    source.draws = m->t.draws + 17;
    int value = -1;
    ebb_operand *o = put_numbers(&source, dtype, rank, dims, -3, 3);
    assert_null(ebb_chain_input(&m->chain, &o->type, &value));
    m->in[value] = *o;
    expand(m, o, &m->value[value]);
}

/* A value of this dtype, or -1. `like` 0: of any float. */
static int find_value(made *m, uint8_t like)
{
    int found[VALUES], count = 0;
    for (int v = 0; v < VALUES; v++) {
        bool there = v < EBB_CHAIN_INPUTS ? v < m->chain.input_count
                                          : v - EBB_CHAIN_INPUTS < m->chain.step_count;
        if (!there)
            continue;
        uint8_t dtype = v < EBB_CHAIN_INPUTS ? m->chain.input[v].dtype
                                             : m->chain.step[v - EBB_CHAIN_INPUTS].dtype;
        if (dtype == like || (like == 0 && dtype != EBB_BOOL))
            found[count++] = v;
    }
    return count == 0 ? -1 : found[pick(&m->t, (uint32_t)count)];
}

static uint8_t dtype_of(const made *m, int v)
{
    return v < EBB_CHAIN_INPUTS ? m->chain.input[v].dtype
                                : m->chain.step[v - EBB_CHAIN_INPUTS].dtype;
}

/* The operator alone, on whole values. */
static void run_alone(made *m, const kind *k, testing *call, const int *operands, int value)
{
    char name[40];
    for (int i = 0; i < k->inputs; i++)
        call->in[i] = m->value[operands[i]];
    ebb_operand *out = &call->out[0];
    uint8_t dtype = out->type.dtype;
    make_operand(out, wide_of(dtype), m->chain.shape.rank, m->chain.shape.dims);
    (void)snprintf(name, sizeof name, "%s.%s", m->prefix, k->name);
    run_with(call, name);
    if (dtype != out->type.dtype) // rounded to 16 bits, as if it had been stored
        for (size_t i = 0; i < count_of(out); i++) {
            uint16_t narrow;
            float *v = (float *)out->data + i;
            ebb_narrow(&narrow, v, (ebb_dtype)dtype, 1);
            ebb_widen(v, &narrow, (ebb_dtype)dtype, 1);
        }
    m->value[value] = *out;
}

static void add_step(made *m, const kind *k, ebb_dtype to)
{
    int operands[4], value = -1;
    int first = find_value(m, k->takes == 'l' || k->takes == 'w' ? (uint8_t)EBB_BOOL : 0);
    int second = k->takes == 'w' ? find_value(m, 0) : first;
    if (first < 0 || second < 0)
        return;
    testing call;
    begin(&call, k->op);
    operands[0] = first;
    for (int i = 1; i < k->inputs; i++)
        operands[i] = i == 1 && k->takes == 'w' ? second : find_value(m, dtype_of(m, second));
    if (k->alpha)
        put_float(&call, "alpha", 0.3125);
    call.call.input_count = (uint32_t)k->inputs;
    call.call.output_count = 1;
    for (int i = 0; i < k->inputs; i++)
        call.in[i].type = ebb_type_tensor((ebb_dtype)dtype_of(m, operands[i]), m->chain.shape.rank,
                                          m->chain.shape.dims);
    ebb_dtype dtype = k->flag ? EBB_BOOL : k->takes == 'c' ? to : (ebb_dtype)dtype_of(m, second);
    call.out[0].type = ebb_type_tensor(dtype, m->chain.shape.rank, m->chain.shape.dims);
    if (k->op == EBB_OP_CLIP && k->inputs == 3) { // bounds of all elements: the plain one has none
        call.call.input_count = 1;
        put_float(&call, "min", -0.75);
        put_float(&call, "max", 0.5);
    }
    assert_null(ebb_chain_step(&m->chain, &call.call, operands, &value));
    m->kind[value - EBB_CHAIN_INPUTS] = k;
    run_alone(m, k, &call, operands, value);
}

static const ebb_dtype all[] = {EBB_F32, EBB_BF16, EBB_F16, EBB_F32, EBB_F64};

/* dtypes: of inputs; the first is sure to be there. */
static void make(made *m, uint64_t seed, const ebb_dtype *dtypes, uint32_t count,
                 const char *prefix)
{
    memset(m, 0, sizeof *m);
    m->t.draws = seed * 7919 + 1;
    m->prefix = prefix;
    for (int i = 0; i < 8; i++)
        (void)draw(&m->t);
    const int64_t *dims = shapes[pick(&m->t, sizeof shapes / sizeof shapes[0])];
    int rank = 1 + (int)pick(&m->t, 4);
    ebb_type shape = ebb_type_tensor(EBB_F32, rank, dims + 4 - rank);
    ebb_chain_begin(&m->chain, &shape);
    add_input(m, dtypes[0]);
    for (uint32_t i = pick(&m->t, 5); i > 0; i--)
        add_input(m, pick(&m->t, 4) == 0 ? EBB_BOOL : dtypes[pick(&m->t, count)]);
    for (uint32_t i = 1 + pick(&m->t, 14); i > 0; i--) {
        bool mixes = m->prefix[0] == 'c'; // the plain kernels alone have no 16 bits
        const kind *k = &kinds[pick(&m->t, 8) == 0 && mixes ? KINDS - 1 : pick(&m->t, KINDS)];
        add_step(m, k, mixes ? all[pick(&m->t, 5)] : dtypes[pick(&m->t, count)]);
    }
    for (uint32_t i = 1 + pick(&m->t, 3); i > 0; i--) {
        bool step = m->chain.step_count > 0;
        int v = step ? EBB_CHAIN_INPUTS + (int)pick(&m->t, (uint32_t)m->chain.step_count) : 0;
        assert_null(ebb_chain_store(
            &m->chain, i == 1 && step ? EBB_CHAIN_INPUTS - 1 + m->chain.step_count : v));
    }
}

static void drop(made *m)
{
    for (int v = 0; v < VALUES; v++)
        unguard(m->value[v].data);
    for (int k = 0; k < m->chain.input_count; k++)
        unguard(m->in[k].data);
}

/* places 0: the same bits, but for NaN. */
static void check(made *m, double places, uint64_t seed)
{
    const void *in[EBB_CHAIN_INPUTS];
    void *out[EBB_CHAIN_OUTPUTS];
    ebb_operand got[EBB_CHAIN_OUTPUTS];
    ebb_chain_kernel kernel;
    char what[64];
    check_status(ebb_chain_open(&m->chain, 900, &kernel), "ebb_chain_open");
    for (int k = 0; k < m->chain.input_count; k++)
        in[k] = m->in[k].data;
    for (int reverse = 0; reverse < 2; reverse++) {
        (void)setenv("EBB_CUDA_ORDER", reverse ? "reverse" : "forward", 1);
        for (int k = 0; k < m->chain.output_count; k++) {
            make_operand(&got[k], (ebb_dtype)dtype_of(m, m->chain.output[k]), m->chain.shape.rank,
                         m->chain.shape.dims);
            out[k] = got[k].data;
        }
        void *stream = NULL;
        check_status(ebb_gpu_open(&stream), "open");
        check_status(ebb_chain_run(&m->chain, &kernel, stream, in, out), "ebb_chain_run");
        check_status(ebb_gpu_wait(stream), "wait");
        ebb_gpu_close(stream);
        for (int k = 0; k < m->chain.output_count; k++) {
            const ebb_operand *whole = &m->value[m->chain.output[k]];
            (void)snprintf(what, sizeof what, "chain %llu, output %d", (unsigned long long)seed, k);
            check_guards(got[k].data, got[k].bytes, what);
            FREED void *expected = bytes_of(whole);
            if (is_narrow(&got[k]))
                ebb_narrow(expected, whole->data, (ebb_dtype)got[k].type.dtype,
                           (int64_t)count_of(whole));
            check_near(&got[k], expected, places, 1, what);
            unguard(got[k].data);
        }
    }
    (void)unsetenv("EBB_CUDA_ORDER");
    ebb_chain_close(&kernel);
}

TEST(chains_give_the_bits_of_their_operators_kernels)
{
    for (uint64_t seed = 0; seed < CHAINS; seed++) {
        made m;
        make(&m, seed, all + seed % 4, 1 + (uint32_t)(seed % 2), "cuda");
        check(&m, 0, seed);
        drop(&m);
    }
}

TEST(chains_in_float64_are_near_their_plain_operators)
{
    static const ebb_dtype wide[] = {EBB_F64};
    for (uint64_t seed = 100; seed < 100 + CHAINS / 2; seed++) {
        made m;
        make(&m, seed, wide, 1, "plain");
        check(&m, 1e6, seed); // 2e-10 of each: fourteen steps, some of which take differences
        drop(&m);
    }
}

/* Cast to 16 bits and back: by plain.cast. */
TEST(a_cast_to_16_bits_rounds)
{
    static const ebb_dtype narrow[] = {EBB_F16, EBB_BF16};
    for (int k = 0; k < 2; k++) {
        made m;
        memset(&m, 0, sizeof m);
        m.t.draws = 5;
        m.prefix = "plain";
        ebb_type shape = ebb_type_tensor(EBB_F32, 2, (int64_t[]){9, 13});
        ebb_chain_begin(&m.chain, &shape);
        add_input(&m, EBB_F32);
        int from = 0;
        for (int step = 0; step < 2; step++) {
            testing call;
            int value = -1;
            begin(&call, EBB_OP_CAST);
            call.call.input_count = 1;
            call.in[0] = m.value[from];
            put_out(&call, step == 0 ? narrow[k] : EBB_F32, 2, shape.dims);
            assert_null(ebb_chain_step(&m.chain, &call.call, &from, &value));
            run_with(&call, "plain.cast");
            m.value[value] = call.out[0];
            from = value;
        }
        assert_null(ebb_chain_store(&m.chain, from));
        check(&m, 0, 0);
        drop(&m);
    }
}

TEST(nvrtc_takes_the_same_sources)
{
    if (ebb_nvrtc_version() == 0) {
        print_message("SKIPPED: there is no libnvrtc.so.13 here\n");
        skip();
    }
    (void)setenv("EBB_CACHE", "/dev/null/ebb", 1);
    for (uint64_t seed = 0; seed < 30; seed++)
        for (int version = 800; version <= 900; version += 100) {
            made m;
            void *image = NULL;
            char *source = NULL;
            size_t bytes = 0;
            make(&m, seed, all + seed % 4, 1 + (uint32_t)(seed % 2), "cuda");
            check_status(ebb_chain_source(&m.chain, &source), "source");
            check_status(ebb_nvrtc_compile(source, version, &image, &bytes, NULL), source);
            assert_true(bytes > 1000);
            assert_memory_equal(image,
                                "\x7f"
                                "ELF",
                                4);
            ebb_free(image);
            ebb_free(source);
            drop(&m);
        }
    (void)unsetenv("EBB_CACHE");
}

TEST(what_was_compiled_is_kept_and_damage_is_seen)
{
    if (ebb_nvrtc_version() == 0) {
        print_message("SKIPPED: there is no libnvrtc.so.13 here\n");
        skip();
    }
    char folder[] = "/tmp/ebb-cache-XXXXXX", path[4096], command[128];
    assert_non_null(mkdtemp(folder));
    (void)setenv("EBB_CACHE", folder, 1);
    made m;
    void *image[4] = {NULL};
    char *source = NULL;
    size_t bytes[4] = {0}, length = 0;
    bool cached[4];
    make(&m, 3, all, 1, "cuda");
    check_status(ebb_chain_source(&m.chain, &source), "source");
    check_status(ebb_nvrtc_cache_path(source, 900, path, sizeof path), "path");
    for (int k = 0; k < 4; k++) {
        if (k == 2) { // a bit of the code
            RELEASED char *file = ebb_cache_read(path, &length);
            assert_non_null(file);
            file[length - 7] ^= 4;
            ebb_cache_write(path, file, length);
        }
        if (k == 3) { // its end
            RELEASED char *file = ebb_cache_read(path, &length);
            assert_non_null(file);
            ebb_cache_write(path, file, length / 2);
        }
        check_status(ebb_nvrtc_compile(source, 900, &image[k], &bytes[k], &cached[k]), "compile");
        assert_int_equal(cached[k], k == 1);
        assert_int_equal(bytes[k], bytes[0]);
        assert_memory_equal(image[k], image[0], bytes[0]);
    }
    for (int k = 0; k < 4; k++)
        ebb_free(image[k]);
    ebb_free(source);
    drop(&m);
    (void)unsetenv("EBB_CACHE");
    (void)snprintf(command, sizeof command, "rm -r '%s'", folder);
    assert_int_equal(system(command), 0);
}

TEST(what_a_chain_cannot_hold_is_declined)
{
    ebb_chain chain;
    testing t;
    int x = -1, v = -1;
    const int64_t dims[] = {4, 5};
    ebb_type shape = ebb_type_tensor(EBB_F32, 2, dims);
    ebb_type four = ebb_type_tensor(EBB_F32, 1, dims), whole = ebb_type_tensor(EBB_I64, 0, NULL);
    ebb_chain_begin(&chain, &shape);
    assert_non_null(ebb_chain_input(&chain, &four, &x));
    assert_non_null(ebb_chain_input(&chain, &whole, &x));
    assert_null(ebb_chain_input(&chain, &shape, &x));
    assert_non_null(ebb_chain_store(&chain, EBB_CHAIN_INPUTS));
    begin(&t, EBB_OP_MATMUL);
    t.call.input_count = 2;
    t.call.output_count = 1;
    t.out[0].type = shape;
    assert_non_null(ebb_chain_step(&chain, &t.call, (int[]){x, x}, &v));
    t.call.op = EBB_OP_ADD;
    assert_non_null(ebb_chain_step(&chain, &t.call, (int[]){x, 7}, &v));
    t.out[0].type.dtype = EBB_F64;
    assert_non_null(ebb_chain_step(&chain, &t.call, (int[]){x, x}, &v));
    t.out[0].type.dtype = EBB_F32;
    assert_null(ebb_chain_step(&chain, &t.call, (int[]){x, x}, &v));
    assert_null(ebb_chain_store(&chain, v));
    assert_int_equal(chain.input_count, 1);
    assert_int_equal(chain.step_count, 1);
}

const fixture around_all = {with_cuda, NULL};
