/* test_mapped.c: weights that no step changes are read where the model's file is mapped: which of them, that
 * the bits are those of a copy, and that nothing of them is in memory of the process's own. */
#include <stdlib.h>
#include <string.h>

#include "ebb.h"
#include "exec/run/program.h"
#include "tests/onnx/files.h"
#include "tests/owned.h"
#include "tests/status.h"
#include "tests/text.h"

#define HEAD "<ir_version: 10, opset_import: [\"\" : 20]>\n"

enum { ROWS = 5, WIDTH = 64 };

static float x_data[ROWS * WIDTH];
static const int64_t x_dims[] = {ROWS, WIDTH};
static const ebb_named x_named = {"x", EBB_F32, 2, x_dims, x_data};
static const ebb_batch batch = {&x_named, 1};

/* All inputs but x become weights, with small numbers. */
static ebb_model *with_weights(const char *text)
{
    ebb_model *m = parsed(text);
    ebb_graph *g = m->graph;
    for (size_t i = g->input_count; i-- > 0;) {
        const ebb_value v = g->inputs[i];
        if (strcmp(ebb_value_name(g, v), "x") == 0)
            continue;
        good(ebb_graph_keep_input(g, v, EBB_ROLE_FROZEN));
        ebb_tensor *t = EBB_NEW(&m->arena, ebb_tensor, 1);
        *t = (ebb_tensor){.type = *ebb_value_of(g, v)->type};
        assert_true(ebb_type_bytes(&t->type, &t->bytes));
        unsigned char *data = ebb_arena_alloc(&m->arena, t->bytes);
        t->data = data;
        for (size_t k = 0; k < t->bytes; k++)
            data[k] = (unsigned char)(t->type.dtype == EBB_U8 ? k * 7 : 0);
        for (size_t k = 0; t->type.dtype == EBB_F32 && k < t->bytes / 4; k++)
            ((float *)(void *)data)[k] = (float)((int)(k * 37 % 101) - 50) / 64;
        ebb_value_of(g, v)->tensor = t;
    }
    good(ebb_infer_graph(g));
    return m;
}

static const char products[] =
    HEAD "g (float[5,64] x, float[64,64] w, float[64,64] v, float[64] b) => (float[5,64] y)\n"
         "{ h = MatMul(x, w)  r = Relu(h)  p = MatMul(r, v)  y = Add(p, b) }";
enum { PRODUCTS = 2 * WIDTH * WIDTH * 4 }; /* b is too small to be worth it */

/* The model in a file: weights in another beside it, or inside. */
static ebb_model *in_file(const char *text, const char *name, bool outside)
{
    ebb_model *made = with_weights(text), *m;
    const ebb_write_options options = {.external_above_bytes = outside ? 1024 : 0};
    good(ebb_model_write(made, path_of(name), &options));
    ebb_model_free(made);
    good(ebb_model_read(&m, path_of(name)));
    good(ebb_infer_graph(m->graph));
    return m;
}

static ebb_program *compiled(ebb_model *m)
{
    ebb_program *p;
    good(ebb_program_compile(&p, m, NULL));
    return p;
}

static void run(ebb_program *p, float y[ROWS * WIDTH])
{
    ebb_named named;
    good(ebb_program_step(p, &batch));
    good(ebb_program_get(p, "y", &named));
    memcpy(y, named.data, sizeof(float[ROWS * WIDTH]));
}

/* What is planned to be read in the file is, and what is planned of the arena is all that is there. */
static void check_bytes(ebb_program *p, uint64_t mapped)
{
    const ebb_program_facts f = ebb_program_measure(p);
    assert_int_equal(f.planned_mapped_bytes, mapped);
    assert_int_equal(f.mapped_bytes, mapped);
    assert_int_equal(f.planned_arena_bytes, f.measured_arena_bytes);
}

static const ebb_operand *second_operand(const ebb_program *p, uint32_t call)
{
    return &p->plan.calls[call].in[1];
}

static int set_up(void **state)
{
    for (int i = 0; i < ROWS * WIDTH; i++)
        x_data[i] = (float)(i % 23 - 11) / 8;
    return make_folders(state);
}

/* ---- which ---- */

TEST(weights_in_an_external_file_are_read_where_it_is_mapped)
{
    float copied[ROWS * WIDTH], mapped[ROWS * WIDTH];
    ebb_model *m = with_weights(products);
    ebb_program *p = compiled(m);
    run(p, copied);
    check_bytes(p, 0);
    const uint64_t arena = ebb_program_measure(p).planned_arena_bytes;
    ebb_program_free(p);
    ebb_model_free(m);

    m = in_file(products, "products.onnx", true);
    p = compiled(m);
    run(p, mapped);
    check_bytes(p, PRODUCTS);
    assert_int_equal(ebb_program_measure(p).planned_arena_bytes, arena - PRODUCTS);
    assert_ptr_equal(second_operand(p, 0)->data, second_operand(p, 0)->constant->data);
    assert_memory_equal(mapped, copied, sizeof copied);
    ebb_program_free(p);
    ebb_model_free(m);
}

TEST(of_a_file_that_aligns_nothing_only_bytes_are_mapped)
{
    static const char codes[] =
        HEAD "g (float[5,64] x, uint8[64,64] c, float s, float[64,64] v) => (float[5,64] y)\n"
             "{ w = DequantizeLinear(c, s)  h = MatMul(x, w)  y = MatMul(h, v) }";
    float inside[ROWS * WIDTH], outside[ROWS * WIDTH];
    ebb_model *m = in_file(codes, "inside.onnx", false);
    ebb_program *p = compiled(m);
    run(p, inside);
    check_bytes(p, WIDTH * WIDTH);
    ebb_program_free(p);
    ebb_model_free(m);
    m = in_file(codes, "outside.onnx", true);
    p = compiled(m);
    run(p, outside);
    check_bytes(p, WIDTH * WIDTH * 5);
    assert_memory_equal(inside, outside, sizeof inside);
    ebb_program_free(p);
    ebb_model_free(m);
}

/* y = x * w + v, where w begins `odd` bytes behind a page and v at one: it ends with the file. */
static ebb_model *with_offset(unsigned odd, char *data, size_t data_bytes)
{
    enum { COUNT = ROWS * WIDTH * 8 };
    char at[16], behind[16];
    bytes b = {.count = 0};
    (void)snprintf(at, sizeof at, "%u", 4096 + odd);
    (void)snprintf(behind, sizeof behind, "%zu", data_bytes - COUNT * 4);
    const size_t graph = open_model(&b);
    put_node(&b, "Mul", "product", NAMES("x", "w"), NAMES("p"));
    put_node(&b, "Add", "sum", NAMES("p", "v"), NAMES("y"));
    put_external(&b, "w", COUNT, "odd.bin", at, "10240");
    put_external(&b, "v", COUNT, "odd.bin", behind, "10240");
    put_value(&b, 11, "x", DIMS(COUNT));
    put_value(&b, 12, "y", DIMS(COUNT));
    close_model(&b, graph);
    for (size_t i = 0; i < COUNT; i++) {
        const float w = (float)i / 8, v = (float)(i % 19);
        memcpy(data + 4096 + odd + i * 4, &w, 4);
        memcpy(data + data_bytes - (COUNT - i) * 4, &v, 4);
    }
    put_file(path_of("odd.onnx"), b.data, b.count);
    put_file(path_of("odd.bin"), data, data_bytes);
    ebb_model *m;
    good(ebb_model_read(&m, path_of("odd.onnx")));
    good(ebb_infer_graph(m->graph));
    return m;
}

TEST(what_lies_at_an_odd_place_is_copied)
{
    enum { COUNT = ROWS * WIDTH * 8, BYTES = 3 * 4096 * 4 };
    static char data[BYTES];
    static float x[COUNT];
    const int64_t dims[] = {COUNT};
    const ebb_named named = {"x", EBB_F32, 1, dims, x};
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)(i % 7);
    for (unsigned odd = 0; odd < 9; odd++) {
        OWNED_MODEL *m = with_offset(odd, data, BYTES);
        OWNED_PROGRAM *p = compiled(m);
        ebb_named y;
        good(ebb_program_step(p, &(ebb_batch){&named, 1}));
        good(ebb_program_get(p, "y", &y));
        for (int i = 0; i < COUNT; i++)
            assert_true(((const float *)y.data)[i] == x[i] * ((float)i / 8) + (float)(i % 19));
        check_bytes(p, odd % 4 == 0 ? 2 * COUNT * 4 : COUNT * 4);
    }
}

TEST(what_a_step_or_a_caller_changes_is_not_mapped)
{
    static const char *const roles[] = {"parameter", "statistic", "optimizer", "input", "output"};
    for (size_t i = 0; i < 5; i++) {
        OWNED_MODEL *m = in_file(products, "changes.onnx", true);
        ebb_graph *g = m->graph;
        const ebb_value w = ebb_value_find(g, "w");
        ebb_value_info *info = ebb_value_of(g, w);
        assert_true(ebb_memory_maps(g, w));
        if (i < 3)
            info->role = i == 0   ? EBB_ROLE_PARAMETER
                         : i == 1 ? EBB_ROLE_STATISTIC
                                  : EBB_ROLE_OPTIMIZER;
        else
            info->flags |= i == 3 ? EBB_IS_INPUT : EBB_IS_OUTPUT;
        if (ebb_memory_maps(g, w))
            fail_msg("%s", roles[i]);
    }
}

TEST(a_skeleton_is_planned_as_if_its_file_were_there)
{
    ebb_model *m = in_file(products, "whole.onnx", true), *bare;
    ebb_program *p = compiled(m), *q;
    const uint64_t arena = ebb_program_measure(p).planned_arena_bytes;
    ebb_program_free(p);
    ebb_model_free(m);
    assert_int_equal(unlink(path_of("whole.onnx.data")), 0);
    good(ebb_model_read(&bare, path_of("whole.onnx")));
    good(ebb_infer_graph(bare->graph));
    q = compiled(bare);
    assert_int_equal(ebb_program_measure(q).planned_mapped_bytes, PRODUCTS);
    assert_int_equal(ebb_program_measure(q).planned_arena_bytes, arena);
    refused(ebb_program_step(q, &batch), EBB_RUNTIME, "2 initializers have no bytes");
    ebb_program_free(q);
    ebb_model_free(bare);
}

/* ---- what else may happen ---- */

TEST(a_file_that_another_takes_the_name_of_is_still_read)
{
    float before[ROWS * WIDTH], after[ROWS * WIDTH];
    OWNED_MODEL *m = in_file(products, "named.onnx", true);
    OWNED_PROGRAM *p = compiled(m);
    run(p, before);
    good(ebb_model_write(m, path_of("named.onnx"), NULL)); // over what it is mapped of
    run(p, after);
    assert_memory_equal(before, after, sizeof before);
    OWNED_MODEL *other = with_weights(products);
    memset((void *)(uintptr_t)ebb_value_of(other->graph, ebb_value_find(other->graph, "w"))
               ->tensor->data,
           0, WIDTH * WIDTH * 4);
    good(ebb_model_write(other, path_of("named.onnx"),
                         &(ebb_write_options){.external_above_bytes = 1024}));
    run(p, after);
    assert_memory_equal(before, after, sizeof before);
}

TEST(a_caller_may_set_a_mapped_weight)
{
    static const float zeros[WIDTH * WIDTH];
    const int64_t dims[] = {WIDTH, WIDTH};
    float first[ROWS * WIDTH], y[ROWS * WIDTH];
    OWNED_MODEL *m = in_file(products, "set.onnx", true);
    OWNED_PROGRAM *p = compiled(m);
    ebb_named w;
    run(p, first);
    good(ebb_program_get(p, "w", &w));
    good(ebb_program_set(p, &(ebb_named){"w", EBB_F32, 2, dims, w.data})); // what it is
    check_bytes(p, PRODUCTS);
    good(ebb_program_set(p, &(ebb_named){"w", EBB_F32, 2, dims, zeros}));
    assert_int_equal(ebb_program_measure(p).mapped_bytes, PRODUCTS / 2);
    run(p, y);
    for (int i = 0; i < ROWS * WIDTH; i++)
        assert_true(y[i] == (float)((i % WIDTH) * 37 % 101 - 50) / 64); // the bias alone
    good(ebb_program_get(p, "w", &w));
    assert_memory_equal(w.data, zeros, sizeof zeros);
}

/* In KiB, of /proc/self/status. */
static long resident(const char *kind)
{
    char line[256];
    long found = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file != NULL && found < 0 && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, kind, strlen(kind)) == 0)
            found = strtol(line + strlen(kind) + 1, NULL, 10);
    if (file != NULL)
        (void)fclose(file);
    return found;
}

TEST(memory_of_the_process_holds_nothing_of_mapped_weights)
{
    enum { SIDE = 2048, MIB = 1 << 20 };
    OWNED_MODEL *m = in_file(HEAD "g (float[5,2048] x, float[2048,2048] w) => (float[5,2048] y)\n"
                                  "{ h = MatMul(x, w)  y = MatMul(h, w) }",
                             "large.onnx", true);
    static float x[ROWS * SIDE];
    const int64_t dims[] = {ROWS, SIDE};
    const ebb_named named = {"x", EBB_F32, 2, dims, x};
    const long before = resident("RssAnon"), files = resident("RssFile");
    OWNED_PROGRAM *p = compiled(m);
    good(ebb_program_step(p, &(ebb_batch){&named, 1}));
    if (before > 0) { // where the system tells
        assert_true(resident("RssFile") - files >= SIDE * SIDE * 4 / 1024);
        if (resident("RssAnon") - before > 8 * 1024)
            fail_msg("%ld KiB more", resident("RssAnon") - before);
    }
    check_bytes(p, SIDE * SIDE * 4);
}

TEST(a_loop_reads_them_by_its_names)
{
    static const char loop[] =
        HEAD "g (float[5,64] x, float[64,64] w, float[64] zero) => (float[64] end, float[5,64] y)\n"
             "{ end, y = Scan <num_scan_inputs = 1, body = b (float[64] s, float[64] t)\n"
             "    => (float[64] n, float[64] o) { r = MatMul(t, w)  n = Add(s, r)  o = Add(n, t) }>"
             " (zero, x) }";
    float copied[ROWS * WIDTH], mapped[ROWS * WIDTH];
    ebb_model *m = with_weights(loop);
    ebb_program *p = compiled(m);
    run(p, copied);
    ebb_program_free(p);
    ebb_model_free(m);
    m = in_file(loop, "loop.onnx", true);
    p = compiled(m);
    run(p, mapped);
    check_bytes(p, WIDTH * WIDTH * 4);
    assert_memory_equal(mapped, copied, sizeof copied);
    ebb_program_free(p);
    ebb_model_free(m);
}

const fixture around_all = {set_up, remove_folder};
