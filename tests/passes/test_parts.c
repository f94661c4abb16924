/* test_parts.c: passes that compute in parts, on small graphs that run: loss and gradients are
 * those of the step as it was, within rounding.
 *
 * Weights and inputs are drawn; labels are class numbers, some of them -100 where the loss ignores
 * that.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ebb.h"
#include "onnx/file/file.h"
#include "passes/pipeline.h"
#include "tests/formatted.h"
#include "tests/owned.h"
#include "tests/status.h"
#include "tests/test.h"

#define HEAD "<ir_version: 10, opset_import: [\"\" : 20]>\n"

typedef struct part_case {
    const char *what, *graph, *before, *pass;
    int classes;
} part_case;

// clang-format off
static const part_case chunks[] = {
    {"a tied weight, read as it lies", HEAD
     "g (int64[2,3] ids) => (float[2,3,5] logits) <float[5,2] w, float[2,2] v> {"
     " h = Gather (w, ids) r = MatMul (h, v) s = Tanh (r) t = Transpose <perm = [1, 0]> (w) logits = MatMul (s, t) }",
     "fuse,loss:cross-entropy,axis=-1,gradient", "chunk-loss:rows=2", 5},
    {"Gemm with everything", HEAD
     "g (float[7,2] x, int64[7] t) => (float loss) <float[2,3] v, float[4,3] w, float[4] b, float[4] weights = {1, 2, 0.5, 0}> {"
     " h = MatMul (x, v) logits = Gemm <transB = 1, alpha = 0.5> (h, w, b)"
     " loss = SoftmaxCrossEntropyLoss <ignore_index = -100> (logits, t, weights) }",
     "loss:name=loss,gradient", "chunk-loss:rows=3", 4},
    {"sums", HEAD
     "g (float[7,2] x, int64[7] t) => (float loss) <float[2,3] v, float[3,4] w, float[1,4] b> {"
     " h = MatMul (x, v) y = MatMul (h, w) logits = Add (b, y)"
     " loss = SoftmaxCrossEntropyLoss <ignore_index = -100, reduction = \"sum\"> (logits, t) }",
     "loss:name=loss,gradient", "chunk-loss:rows=3", 4},
    {"the last position is sliced away", HEAD
     "g (float[2,4,2] x, int64[6] t) => (float loss) <float[2,3] v, float[3,5] w, float[5] b, int64[1] from = {0}, int64[1] to = {-1}, int64[1] axis = {1}, int64[2] matrix = {-1, 5}> {"
     " h = MatMul (x, v) y = MatMul (h, w) logits = Add (y, b) shifted = Slice (logits, from, to, axis)"
     " rows = Reshape (shifted, matrix) loss = SoftmaxCrossEntropyLoss <ignore_index = -100> (rows, t) }",
     "loss:name=loss,gradient", "chunk-loss:rows=2", 5},
    {"every second position of the later batch", HEAD
     "g (float[3,6,2] x, int64[6] t) => (float loss) <float[2,3] v, float[3,5] w, int64[2] from = {5, 1}, int64[2] to = {-100, 3}, int64[2] axis = {1, 0}, int64[2] step = {-2, 1}, int64[2] matrix = {-1, 5}> {"
     " h = MatMul (x, v) y = MatMul (h, w) shifted = Slice (y, from, to, axis, step)"
     " rows = Reshape (shifted, matrix) loss = SoftmaxCrossEntropyLoss (rows, t) }",
     "loss:name=loss,gradient", "chunk-loss:rows=2", 5},
    {"classes first, then sliced", HEAD
     "g (float[2,4,2] x, int64[2,2] t) => (float loss) <float[2,3] v, float[3,5] w, float[5,1] b, int64[1] from = {1}, int64[1] to = {3}, int64[1] axis = {2}> {"
     " h = MatMul (x, v) y = MatMul (h, w) turned = Transpose <perm = [0, 2, 1]> (y) logits = Add (turned, b)"
     " shifted = Slice (logits, from, to, axis) loss = SoftmaxCrossEntropyLoss (shifted, t) }",
     "loss:name=loss,gradient", "chunk-loss:rows=3", 5},
    {"two losses, scaled", HEAD
     "g (float[5,2] x, int64[5] t, int64[5] t2) => (float loss) <float[2,3] v, float[3,4] w, float[3,4] w2, float k = {0.25}> {"
     " h = MatMul (x, v) y = MatMul (h, w) y2 = MatMul (h, w2) a = SoftmaxCrossEntropyLoss (y, t)"
     " b = SoftmaxCrossEntropyLoss (y2, t2) c = Mul (b, k) d = Mul (a, a) loss = Add (d, c) }",
     "loss:name=loss,gradient", "chunk-loss:rows=2", 4},
    {"as many rows as classes", HEAD
     "g (float[4,2] x, int64[4] t) => (float loss) <float[2,4] v, float[4,4] w, float[4] b> {"
     " h = MatMul (x, v) logits = Gemm (h, w, b) loss = SoftmaxCrossEntropyLoss (logits, t) }",
     "loss:name=loss,gradient", "chunk-loss:rows=2", 4},
};

#define MLP "h = MatMul (x, v) r = Relu (h) y = MatMul (r, w) "

static const part_case micro_batches[] = {
    {"ignored labels, more in one part than in the other", HEAD
     "g (float[8,2] x, int64[8] t) => (float loss) <float[2,3] v, float[3,5] w> {" MLP
     " loss = SoftmaxCrossEntropyLoss <ignore_index = -100> (y, t) }",
     "loss:name=loss,gradient", "micro-batch:4", 5},
    {"class weights and ignored labels", HEAD
     "g (float[8,2] x, int64[8] t) => (float loss) <float[2,3] v, float[3,4] w, float[4] weights = {1, 2, 0.5, 3}> {" MLP
     " loss = SoftmaxCrossEntropyLoss <ignore_index = -100> (y, t, weights) }",
     "loss:name=loss,gradient", "micro-batch:2", 4},
    {"class weights alone, by blocks of rows first", HEAD
     "g (float[8,2] x, int64[8] t) => (float loss) <float[2,3] v, float[3,4] w, float[4] weights = {1, 2, 0.5, 3}> {" MLP
     " loss = SoftmaxCrossEntropyLoss (y, t, weights) }",
     "loss:name=loss,gradient,chunk-loss:rows=2", "micro-batch:2", 4},
    {"ignored labels, and scores of 16 bits that become their gradient", HEAD
     "g (float[8,2] x, int64[8] t) => (float loss) <float[2,3] v, float[3,5] w> {" MLP
     " loss = SoftmaxCrossEntropyLoss <ignore_index = -100> (y, t) }",
     "loss:name=loss,precision:bf16,gradient,loss-in-place", "micro-batch:4", 5},
    {"the same with class weights", HEAD
     "g (float[8,2] x, int64[8] t) => (float loss) <float[2,3] v, float[3,4] w, float[4] weights = {1, 2, 0.5, 3}> {" MLP
     " loss = SoftmaxCrossEntropyLoss <ignore_index = -100> (y, t, weights) }",
     "loss:name=loss,precision:fp16,gradient,loss-in-place", "micro-batch:2", 4},
    {"a mean of squares, whose gradient has the batch size in it", HEAD
     "g (float[6,2] x) => (float[6,3] y) <float[2,3] v, float[3,3] w> {" MLP "}",
     "loss:mse,keep-output=1,gradient", "micro-batch:3", 1},
    {"a sum, scaled, of two losses", HEAD
     "g (float[6,2] x, int64[6] t, float[6,3] u) => (float loss) <float[2,3] v, float[3,3] w, float k = {0.25}> {" MLP
     " a = SoftmaxCrossEntropyLoss <reduction = \"sum\"> (y, t) d = Sub (y, u) q = Mul (d, d) m = ReduceMean <keepdims = 0> (q)"
     " c = Mul (m, k) loss = Add (a, c) }",
     "loss:name=loss,gradient", "micro-batch:2", 3},
    {"an embedding that is the last layer too", HEAD
     "g (int64[4,3] ids) => (float[4,3,5] logits) <float[5,2] w, float[2,2] v> {"
     " h = Gather (w, ids) r = MatMul (h, v) s = Tanh (r) t = Transpose <perm = [1, 0]> (w) logits = MatMul (s, t) }",
     "fuse,loss:cross-entropy,axis=-1,gradient", "micro-batch:2", 5},
    {"blocks of rows within parts", HEAD
     "g (int64[4,3] ids) => (float[4,3,5] logits) <float[5,2] w, float[2,2] v> {"
     " h = Gather (w, ids) r = MatMul (h, v) s = Tanh (r) t = Transpose <perm = [1, 0]> (w) logits = MatMul (s, t) }",
     "fuse,loss:cross-entropy,axis=-1,gradient", "micro-batch:2,chunk-loss:rows=2", 5},
    {"the batch behind the positions", HEAD
     "g (float[4,3,2] x) => (float[4,3,2] y) <float[2,2] v, float[2,2] w, int64[2] flat = {12, 2}, int64[3] deep = {3, 4, 2}> {"
     " turned = Transpose <perm = [1, 0, 2]> (x) rows = Reshape (turned, flat) h = MatMul (rows, v) r = Tanh (h)"
     " k = MatMul (r, w) back = Reshape (k, deep) y = Transpose <perm = [1, 0, 2]> (back) }",
     "loss:mse,keep-output=1,gradient", "micro-batch:2", 1},
    {"a convolution", HEAD
     "g (float[4,2,5,5] x, int64[4] t) => (float loss) <float[3,2,3,3] v, float[3] b, float[3,4] w> {"
     " c = Conv <pads = [1, 1, 1, 1]> (x, v, b) r = Relu (c) p = MaxPool <kernel_shape = [2, 2]> (r)"
     " a = AveragePool <kernel_shape = [2, 2]> (p) m = GlobalAveragePool (a) f = Flatten (m) y = MatMul (f, w)"
     " loss = SoftmaxCrossEntropyLoss (y, t) }",
     "loss:name=loss,gradient", "micro-batch:2", 4},
    {"attention with a mask and positions", HEAD
     "g (float[4,3,4] x, int64[4,3] mask) => (float[4,3,4] y) <float[4,4] q, float[4,4] k, float[4,4] v, float[1,3,4] place, float lowest = {-1000}, float zero = {0}, int64 one = {1}, int64[1] ax = {1}, int64[4] heads = {4, 3, 2, 2}, int64[3] all = {4, 3, 4}> {"
     " h = Add (x, place) qa = MatMul (h, q) ka = MatMul (h, k) va = MatMul (h, v) qb = Reshape (qa, heads) kb = Reshape (ka, heads)"
     " vb = Reshape (va, heads) qc = Transpose <perm = [0, 2, 1, 3]> (qb) kc = Transpose <perm = [0, 2, 3, 1]> (kb)"
     " vc = Transpose <perm = [0, 2, 1, 3]> (vb) s = MatMul (qc, kc) on = Equal (mask, one) wide = Unsqueeze (on, ax)"
     " wider = Unsqueeze (wide, ax) bias = Where (wider, zero, lowest) sb = Add (s, bias) p = Softmax (sb) o = MatMul (p, vc)"
     " ot = Transpose <perm = [0, 2, 1, 3]> (o) y = Reshape (ot, all) }",
     "loss:mse,keep-output=1,gradient", "micro-batch:4", 2},
    {"norms", HEAD
     "g (float[4,3,4] x) => (float[4,3,4] y) <float[4,4] v, float[4] s, float[4] b> {"
     " h = MatMul (x, v) n = LayerNormalization (h, s, b) r = Sigmoid (n) y = Mul (r, h) }",
     "loss:l1,keep-output=1,gradient", "micro-batch:2", 1},
    {"group norms", HEAD
     "g (float[4,6,4] x) => (float[4,6,4] y) <float[4,4] v, float[3] s, float[3] b, float[6] si, float[6] bi> {"
     " h = MatMul (x, v) n = GroupNormalization <num_groups = 3> (h, s, b) r = Sigmoid (n)"
     " i = InstanceNormalization (r, si, bi) y = Mul (i, h) }",
     "loss:l1,keep-output=1,gradient", "micro-batch:2", 1},
    {"norms that read what they made", HEAD
     "g (float[4,6,4] x) => (float[4,6,4] y) <float[4,4] v, float[4,4] w, float[4] sl = {1, -2, 0.5, 1}, float[4] bl = {0, 1, 0.5, -1}, float[3] s = {1, -1, 2}, float[3] b = {0, 0.5, -0.5}> {"
     " h = MatMul (x, v) n = LayerNormalization (h, sl, bl) k = MatMul (n, w)"
     " i = GroupNormalization <num_groups = 3> (k, s, b) r = LeakyRelu (i) y = MatMul (r, v) }",
     "loss:l1,keep-output=1,gradient,norm-from-output,inplace-abn", "micro-batch:2", 1},
    {"tables that all rows look up alike, with more rows and with fewer, and a weight in blocks", HEAD
     "g (float[4,3,2] x) => (float[4,3,2] y) <float[5,2] place, float[2,2] kind, float[2,2] w, int64[1,3] at = {4, 1, 2}, int64[1,3] of = {1, 0, 1}> {"
     " p = Gather (place, at) h = Add (x, p) k = Gather (kind, of) i = Add (h, k) a, b = Split <num_outputs = 2> (w) v = Concat <axis = 0> (b, a)"
     " r = MatMul (i, v) y = Tanh (r) }",
     "loss:mse,keep-output=1,gradient", "micro-batch:2", 2},
    {"indices that count over the whole batch", HEAD
     "g (float[4,3] x, int64[4,3] mask) => (float[4,3] y) <float[3,3] w, int64[1] flat = {-1}, int64[4,3] at = {0, 2, 1, 3, 5, 4, 6, 8, 7, 9, 11, 10}, int64 one = {1}, float big = {2}, float small = {0.5}> {"
     " f = Reshape (mask, flat) m = Gather (f, at) on = Equal (m, one) k = Where (on, big, small) h = MatMul (x, w) y = Mul (h, k) }",
     "loss:mse,keep-output=1,gradient", "micro-batch:2", 2},
};
// clang-format on

typedef struct drawn { /* the same numbers for each program of a case */
    uint64_t state;
} drawn;

static double draw(drawn *d)
{
    d->state = d->state * 6364136223846793005u + 1442695040888963407u;
    return (double)(d->state >> 40) / 8388608.0 - 1.0;
}

/* Initializers that the text leaves without bytes are drawn. */
static void draw_weights(ebb_model *model, drawn *d)
{
    ebb_graph *g = model->graph;
    for (size_t i = 0; i < g->initializer_count; i++) {
        const ebb_tensor *t = ebb_value_of(g, g->initializers[i])->tensor;
        size_t bytes = 0;
        if (t->data != NULL)
            continue;
        assert_int_equal(t->type.dtype, EBB_F32);
        assert_true(ebb_type_bytes(&t->type, &bytes));
        float *data = ebb_arena_zeroed(&model->arena, bytes, 1);
        assert_non_null(data);
        for (size_t k = 0; k < bytes / sizeof *data; k++)
            data[k] = (float)draw(d);
        assert_null(ebb_value_point(g, g->initializers[i], data));
    }
}

enum { MOST = 8, ROOM = 512 };

static size_t draw_inputs(const ebb_model *model, const part_case *c, drawn *d, ebb_named *inputs,
                          double room[MOST][ROOM])
{
    const ebb_graph *g = model->graph;
    bool ignores = strstr(c->graph, "ignore_index") != NULL || strstr(c->before, "cross") != NULL;
    size_t count = 0;
    for (size_t i = 0; i < g->input_count; i++) {
        const ebb_type *t = ebb_value_of(g, g->inputs[i])->type;
        ebb_named *in = &inputs[count];
        int64_t elements;
        if ((ebb_value_of(g, g->inputs[i])->flags & EBB_IS_INITIALIZER) != 0)
            continue;
        assert_true(ebb_type_elements(t, &elements) && elements <= ROOM && count < MOST);
        *in = (ebb_named){.name = ebb_value_name(g, g->inputs[i]),
                          .dtype = t->dtype,
                          .rank = t->rank,
                          .dims = t->dims,
                          .data = room[count++]};
        float *f = (float *)(uintptr_t)in->data;
        int64_t *n = (int64_t *)(uintptr_t)in->data;
        for (int64_t k = 0; k < elements; k++) {
            double x = draw(d);
            if (t->dtype == EBB_F32)
                f[k] = (float)x;
            else
                n[k] = ignores && in->name[0] == 't' && k % 4 == 1
                           ? -100
                           : (int64_t)((x + 1) / 2 * c->classes);
        }
    }
    return count;
}

static ebb_program *run_once(ebb_model **model, const part_case *c, const char *pass,
                             const char *backend)
{
    static double room[MOST][ROOM];
    char pipeline[512];
    drawn d = {7};
    ebb_named inputs[MOST];
    ebb_program *program = NULL;
    (void)snprintf(pipeline, sizeof pipeline, "%s%s%s", c->before, pass != NULL ? "," : "",
                   pass != NULL ? pass : "");
    good_for(ebb_text_parse_model(model, c->graph), c->what);
    draw_weights(*model, &d);
    const ebb_rewrite_options options = {.verify_each = true, .strict = true};
    good_for(ebb_rewrite(*model, pipeline, &options, NULL), c->what);
    const ebb_compile_options compile = {.backend = backend};
    good_for(ebb_program_compile(&program, *model, &compile), c->what);
    const ebb_batch batch = {inputs, draw_inputs(*model, c, &d, inputs, room)};
    good_for(ebb_program_step(program, &batch), c->what);
    return program;
}

static void compare(const part_case *c, ebb_program *whole, ebb_program *parts)
{
    const bool bf16 = strstr(c->before, "bf16") != NULL, fp16 = strstr(c->before, "fp16") != NULL;
    const double within = bf16 ? 0x1p-7 : fp16 ? 0x1p-10 : 2e-6; // two roundings of a gradient
    size_t outputs = ebb_program_output_count(whole);
    assert_true(outputs > 1 && outputs == ebb_program_output_count(parts));
    for (size_t i = 0; i < outputs; i++) {
        const char *name = ebb_program_output_name(whole, i);
        ebb_named x, y;
        good_for(ebb_program_get(whole, name, &x), name);
        good_for(ebb_program_get(parts, name, &y), name);
        assert_int_equal(x.rank, y.rank);
        size_t elements = 1;
        for (int d = 0; d < x.rank; d++) {
            assert_true(x.dims[d] == y.dims[d]);
            elements *= (size_t)x.dims[d];
        }
        const float *a = x.data, *b = y.data;
        double largest = 0;
        for (size_t k = 0; k < elements; k++)
            largest = fmax(largest, fabs((double)a[k]));
        assert_true(largest > 0);
        for (size_t k = 0; k < elements; k++)
            if (!(fabs((double)a[k] - (double)b[k]) <= within * largest))
                fail_msg("%s: element %zu of %s is %.9g, by parts %.9g", c->what, k, name,
                         (double)a[k], (double)b[k]);
    }
}

/* Loss and gradient are one node where the case says so. */
static void holds_in_place(const part_case *c, const ebb_model *model)
{
    const ebb_graph *g = model->graph;
    bool is_there = false;
    for (ebb_node n = ebb_first(g); n.i != 0; n = ebb_node_of(g, n)->next)
        is_there |= ebb_node_of(g, n)->op == EBB_OP_SCORES_CROSS_ENTROPY;
    if (is_there != (strstr(c->before, "loss-in-place") != NULL))
        fail_msg("%s: loss and gradient are %s node", c->what, is_there ? "one" : "no one");
}

static void check(const part_case *c)
{
    static const char *const backends[] = {"plain", "cpu"};
    for (size_t k = 0; k < 2; k++) {
        ebb_model *models[2];
        OWNED_PROGRAM *whole = run_once(&models[0], c, NULL, backends[k]);
        OWNED_PROGRAM *parts = run_once(&models[1], c, c->pass, backends[k]);
        holds_in_place(c, models[0]);
        holds_in_place(c, models[1]);
        compare(c, whole, parts);
        ebb_close(models[0]);
        ebb_close(models[1]);
    }
}

TEST(losses_by_blocks_are_those_of_the_whole)
{
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++)
        check(&chunks[i]);
}

TEST(gradients_of_parts_of_the_batch_add_up_to_those_of_the_whole)
{
    for (size_t i = 0; i < sizeof micro_batches / sizeof micro_batches[0]; i++)
        check(&micro_batches[i]);
}

/* ---- what is left alone, and why ---- */

typedef struct refusal {
    const char *graph, *before, *pass, *reason;
} refusal;

// clang-format off
static const refusal refusals[] = {
    {"g (float[8,2] x) => (float[8,3] y) <float[2,3] w> { y = MatMul (x, w) }",
     "loss:cross-entropy,keep-output=1,gradient", "chunk-loss:rows=2", "its scores are read by something else"},
    {"g (float[8,2] x, int64[8] t) => (float loss, float[8,3] p) <float[2,3] w> { y = MatMul (x, w) loss, p = SoftmaxCrossEntropyLoss (y, t) }",
     "loss:name=loss,gradient", "chunk-loss:rows=2", "its log-probabilities are read by something else"},
    {"g (float[8,2] x, int64[8] t) => (float loss) <float[2,3] w> { y = MatMul (x, w) loss = SoftmaxCrossEntropyLoss (y, t) }",
     "loss:name=loss", "chunk-loss:rows=2", "nothing is trained through it"},
    {"g (float[8,2] x, int64[8] t) => (float loss) <float[2,3] w> { y = MatMul (x, w) z = Neg (y) loss = SoftmaxCrossEntropyLoss (z, t) }",
     "loss:name=loss,gradient", "chunk-loss:rows=2", "its scores are not made by a linear layer"},
    {"g (float[8,2] x, float[8,3] b, int64[8] t) => (float loss) <float[2,3] w> { y = MatMul (x, w) z = Add (y, b) loss = SoftmaxCrossEntropyLoss (z, t) }",
     "loss:name=loss,gradient", "chunk-loss:rows=2", "what is added to its scores is neither one number a class nor an adapter's"},
    {"g (float[8,2] x, int64[8] t) => (float loss) <float[2,5] w, int64[1] from = {1}, int64[1] to = {4}, int64[1] axis = {1}> { y = MatMul (x, w) z = Slice (y, from, to, axis) loss = SoftmaxCrossEntropyLoss (z, t) }",
     "loss:name=loss,gradient", "chunk-loss:rows=2", "some of its classes are sliced away"},
    {"g (float[8,2] x, int64[6] t) => (float loss) <float[2,3] w, int64[2] shape = {6, 4}> { y = MatMul (x, w) z = Reshape (y, shape) loss = SoftmaxCrossEntropyLoss (z, t) }",
     "loss:name=loss,gradient", "chunk-loss:rows=2", "the rows of its scores are rearranged"},
    {"g (float[2,4,2] x, int64[8] t) => (float loss) <float[2,3] w, int64[2] shape = {8, 3}> { y = MatMul (x, w) u = Transpose <perm = [1, 0, 2]> (y) z = Reshape (u, shape) loss = SoftmaxCrossEntropyLoss (z, t) }",
     "loss:name=loss,gradient", "chunk-loss:rows=2", "the rows of its scores are rearranged"},
    {"g (float[8,2] x, int64[8] t) => (float loss) <float[2,3] w> { y = MatMul (x, w) each = SoftmaxCrossEntropyLoss <reduction = \"none\"> (y, t) loss = ReduceSum <keepdims = 0> (each) }",
     "loss:name=loss,gradient", "chunk-loss:rows=2", "its losses are not added up"},
    {"g (float[8,2] x, int64[8] t) => (float loss) <float[2,3] w> { y = MatMul (x, w) loss = SoftmaxCrossEntropyLoss (y, t) }",
     "loss:name=loss,gradient", "chunk-loss:rows=8", "one block would hold all rows"},
    {"g (float[2,8] x, int64[8] t) => (float loss) <float[2,3] w> { y = Gemm <transA = 1> (x, w) loss = SoftmaxCrossEntropyLoss (y, t) }",
     "loss:name=loss,gradient", "chunk-loss:rows=2", "the input of its layer is transposed"},

    {"g (float[6,2] x) => (float[6,3] y) <float[2,3] w> { y = MatMul (x, w) }",
     "loss:mse,gradient", "micro-batch:4", "the batch is not divisible by the number of parts"},
    {"g (float k) => (float y) <float[3] w> { p = Mul (w, k) y = ReduceSum <keepdims = 0> (p) }",
     "loss:name=y,gradient", "micro-batch:2", "no input has a batch axis"},
    {"g (float[4,3,5,5] x) => (float[4,3,5,5] y) <float[3] s, float[3] b, float[3] m, float[3] var = {1, 1, 1}> { y = BatchNormalization (x, s, b, m, var) }",
     "train-mode,loss:mse,gradient", "micro-batch:2",
     "batch norm takes its statistics over the whole batch; batch-norm=per-part allows those of each part"},
    {"g (float[4,3] x) => (float[4,3] y) <float[3,3] w> { h = MatMul (x, w) y = Softmax <axis = 0> (h) }",
     "loss:mse,gradient", "micro-batch:2", "it mixes the samples of the batch"},
    {"g (float[4,3] x) => (float loss) <float[3,3] w> { h = MatMul (x, w) r = Tanh (h) a = ReduceMean <keepdims = 0> (r) loss = Mul (a, a) }",
     "loss:name=loss,gradient", "micro-batch:2", "it needs a result of the whole batch"},
    {"g (float[4,4] x) => (float[4,4] y) <float[4,4] w> { h = MatMul (x, w) t = Transpose <perm = [1, 0]> (h) y = Add (h, t) }",
     "loss:mse,gradient", "micro-batch:2", "its inputs are split along different axes"},
};
// clang-format on

TEST(what_does_not_fit_is_left_with_a_reason)
{
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        const refusal *r = &refusals[i];
        OWNED_MODEL *model = NULL;
        OWNED_ARENA keep = {0};
        ebb_report *reports;
        size_t count;
        char pipeline[256];
        good_for(ebb_text_parse_model(&model, formatted(HEAD "%s", r->graph)), r->reason);
        drawn d = {7};
        draw_weights(model, &d);
        (void)snprintf(pipeline, sizeof pipeline, "%s,%s", r->before, r->pass);
        const ebb_rewrite_options options = {.verify_each = true};
        good_for(ebb_pipeline_run(model, pipeline, &options, &keep, &reports, &count), r->reason);
        const ebb_report *last = &reports[count - 1];
        if (last->applied != 0 || last->skip_count != 1 ||
            strcmp(last->skips[0].reason, r->reason) != 0)
            fail_msg("case %zu: applied %zu, '%s' instead of '%s'", i, last->applied,
                     last->skip_count > 0 ? last->skips[0].reason : "nothing skipped", r->reason);
    }
}
