/* test_weights.c: weights drawn by a skeleton's own initialization, or read from a file; and inputs
 * from a test_data_set folder. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/run/program.h"
#include "onnx/words/map.h"
#include "tests/owned.h"
#include "tests/status.h"
#include "tests/text.h"

#define HEAD "<ir_version: 10, opset_import: [\"\" : 20]>\n"

static const ebb_tensor *tensor_of(const ebb_model *m, const char *name)
{
    ebb_value v = ebb_value_find(m->graph, name);
    assert_true(v.i != 0);
    return ebb_value_of(m->graph, v)->tensor;
}

/* A model whose w has no bytes, and whose initialization draws it with mean 3 and deviation 2. */
static ebb_model *skeleton(void)
{
    ebb_model *m = model_of(HEAD "g (float[4096] x) => (float[4096] y) { y = Add(x, x) }");
    ebb_value w;
    const int64_t dims[] = {4096};
    ebb_type type = ebb_type_tensor(EBB_F32, 1, dims);
    good(ebb_graph_add_initializer(m->graph, &w, "weight", &type, NULL, EBB_ROLE_PARAMETER));
    ebb_node add = ebb_first(m->graph);
    good(ebb_node_set_input(m->graph, add, 1, w));

    ebb_graph *g = NULL;
    ebb_value drawn;
    ebb_node n;
    good(ebb_graph_new(&g, m, NULL));
    good(ebb_value_add(g, &drawn, "drawn", &type));
    good(ebb_node_add(g, &n, EBB_NO_NODE, "", "RandomNormal", NULL, 0, &drawn, 1));
    good(ebb_node_set_ints(g, n, "shape", dims, 1));
    good(ebb_node_set_float(g, n, "mean", 3));
    good(ebb_node_set_float(g, n, "scale", 2));
    good(ebb_node_set_float(g, n, "seed", 17));
    good(ebb_graph_add_output(g, drawn));
    m->initialization = g;
    m->init_bindings = EBB_NEW(&m->arena, struct ebb_init_binding, 1);
    assert_non_null(m->init_bindings);
    m->init_bindings[0].state = ebb_graph_intern(m->graph, "weight");
    m->init_bindings[0].value = drawn;
    m->init_binding_count = 1;
    return m;
}

TEST(a_skeleton_draws_its_weights_by_seed)
{
    float first[4096];
    OWNED_MODEL *m = skeleton();
    assert_null(tensor_of(m, "weight")->data);
    good(ebb_init_weights(m, 0));
    memcpy(first, tensor_of(m, "weight")->data, sizeof first);
    double sum = 0, square = 0;
    for (int i = 0; i < 4096; i++) {
        sum += first[i];
        square += (first[i] - 3.0) * (first[i] - 3.0);
    }
    assert_true(fabs(sum / 4096 - 3) < 0.15);
    assert_true(fabs(sqrt(square / 4096) - 2) < 0.15);
    good(ebb_init_weights(m, 0));
    assert_memory_equal(tensor_of(m, "weight")->data, first, sizeof first);
    good(ebb_init_weights(m, 1));
    assert_memory_not_equal(tensor_of(m, "weight")->data, first, sizeof first);
    ebb_node n = ebb_first(m->initialization);
    ebb_attrs attrs = ebb_node_attrs(m->initialization, n);
    assert_true(ebb_attr_float(&attrs, "seed", 0) == 17); /* the model's own seed stays */
}

TEST(a_model_without_initialization_says_so)
{
    OWNED_MODEL *m = model_of(HEAD "g (float[4] x) => (float[4] y) { y = Relu(x) }");
    assert_int_equal(ebb_status_code(ebb_init_weights(m, 0)), EBB_USAGE);
}

TEST(weights_come_from_a_file_by_name)
{
    char path[] = "/tmp/ebb_weights_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    static float values[4096];
    for (int i = 0; i < 4096; i++)
        values[i] = (float)i;
    const int64_t dims[] = {4096}, other[] = {64, 64};
    ebb_model *m = skeleton();
    const ebb_named elsewhere = {"bias", EBB_F32, 1, dims, values};
    good(ebb_tensors_save(path, &elsewhere, 1, NULL));
    ebb_status status = ebb_load_weights(m, path);
    refused(status, EBB_REJECTED, "'weight'");
    const ebb_named shaped = {"weight", EBB_F32, 2, other, values};
    good(ebb_tensors_save(path, &shaped, 1, NULL));
    status = ebb_load_weights(m, path);
    assert_non_null(strstr(ebb_status_text(status), "float32[64,64]"));
    assert_null(tensor_of(m, "weight")->data);
    const ebb_named right[] = {{"weight", EBB_F32, 1, dims, values}, elsewhere};
    good(ebb_tensors_save(path, right, 2, NULL));
    good(ebb_load_weights(m, path));
    assert_memory_equal(tensor_of(m, "weight")->data, values, sizeof values);
    ebb_model_free(m);
    assert_int_equal(unlink(path), 0);
}

TEST(a_step_in_parts_says_where_whole_weights_go)
{
    char path[] = "/tmp/ebb_weights_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    static const float values[8];
    const int64_t dims[] = {4, 2};
    const ebb_named whole = {"w", EBB_F32, 2, dims, values};
    good(ebb_tensors_save(path, &whole, 1, NULL));
    ebb_model *m = model_of(HEAD "g (float[4,4] x) => (float[4,2] y) <float[4,2] w> "
                                 "{ y = MatMul(x, w) }");
    good(ebb_rewrite(m, "loss:mse,gradient,optimizer:sgd,data-parallel:2,shard:parameters,least=1",
                     NULL, NULL));
    ebb_status status = ebb_load_weights(m, path);
    refused(status, EBB_REJECTED, "float32[4,2]");
    assert_non_null(strstr(ebb_status_text(status), "pass gather"));
    good(ebb_rewrite(m, "gather", NULL, NULL));
    good(ebb_load_weights(m, path));
    ebb_model_free(m);
    assert_int_equal(unlink(path), 0);
}

/* A convolution whose weight has no bytes. */
static ebb_model *convolution(void)
{
    return model_of(HEAD "g (float[1,3,4,4] x) => (float[1,2,4,3] y) <float[2,3,1,2] w> "
                         "{ y = Conv(x, w) }");
}

/* In a file [M, C, h, w], in the step [M, h, w, C]; and back into a model of the first order. */
TEST(a_weight_stored_with_channels_last_is_turned_on_its_way)
{
    char path[] = "/tmp/ebb_weights_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    static const float first[12] = {0, 1, 10, 11, 20, 21, 100, 101, 110, 111, 120, 121};
    static const float last[12] = {0, 10, 20, 1, 11, 21, 100, 110, 120, 101, 111, 121};
    const int64_t dims[] = {2, 3, 1, 2}, turned[] = {2, 1, 2, 3};
    ebb_model *m = convolution(), *into = convolution();
    const ebb_rewrite_options options = {.verify_each = true};
    good(ebb_rewrite(m, "loss:mse,layout:nhwc,weights=stored,gradient,optimizer:sgd,lr=0", &options,
                     NULL));
    const ebb_named weight = {"w", EBB_F32, 4, dims, first};
    good(ebb_tensors_save(path, &weight, 1, NULL));
    good(ebb_load_weights(m, path));
    assert_memory_equal(tensor_of(m, "w")->data, last, sizeof last);
    const ebb_named own = {"w", EBB_F32, 4, turned, last}; // what such a step saved itself
    good(ebb_tensors_save(path, &own, 1, NULL));
    good(ebb_load_weights(m, path));
    assert_memory_equal(tensor_of(m, "w")->data, last, sizeof last);

    ebb_program *p = NULL;
    const ebb_compile_options how = {.backend = "cpu"};
    good(ebb_program_compile(&p, m, &how));
    static const float image[48], target[24];
    const int64_t x_dims[] = {1, 3, 4, 4}, y_dims[] = {1, 2, 4, 3};
    const ebb_named inputs[] = {{"x", EBB_F32, 4, x_dims, image},
                                {"target", EBB_F32, 4, y_dims, target}};
    const ebb_batch batch = {inputs, 2};
    good(ebb_program_step(p, &batch));
    good(ebb_program_store(p, into));
    assert_memory_equal(tensor_of(into, "w")->data, first, sizeof first);
    good(ebb_program_store(p, m));
    assert_memory_equal(tensor_of(m, "w")->data, last, sizeof last);
    ebb_program_free(p);
    ebb_model_free(m);
    ebb_model_free(into);
    assert_int_equal(unlink(path), 0);
}

TEST(a_skeleton_draws_the_same_weight_in_either_order)
{
    ebb_model *models[2];
    for (int k = 0; k < 2; k++) {
        models[k] = skeleton();
        ebb_model *m = models[k];
        ebb_value w = ebb_value_find(m->graph, "weight"), x, y;
        const int64_t dims[] = {4, 64, 4, 4}, image[] = {1, 64, 8, 8};
        ebb_type type = ebb_type_tensor(EBB_F32, 4, dims);
        ebb_type in = ebb_type_tensor(EBB_F32, 4, image);
        ebb_node n;
        good(ebb_node_set_ints(m->initialization, ebb_first(m->initialization), "shape", dims, 4));
        good(ebb_value_set_type(m->initialization, m->init_bindings[0].value, &type));
        ebb_node_remove(m->graph, ebb_first(m->graph));
        ebb_graph_remove_output(m->graph, m->graph->outputs[0]);
        ebb_graph_remove_initializer(m->graph, w);
        good(ebb_graph_add_initializer(m->graph, &w, "weight", &type, NULL, EBB_ROLE_PARAMETER));
        good(ebb_value_add(m->graph, &x, "image", &in));
        good(ebb_graph_add_input(m->graph, x));
        good(ebb_value_add(m->graph, &y, "out", NULL));
        good(ebb_node_add(m->graph, &n, EBB_NO_NODE, "", "Conv", (const ebb_value[]){x, w}, 2, &y,
                          1));
        good(ebb_graph_add_output(m->graph, y));
        good(ebb_infer_graph(m->graph));
    }
    good(ebb_rewrite(models[1], "layout:nhwc,weights=stored", NULL, NULL));
    for (int k = 0; k < 2; k++)
        good(ebb_init_weights(models[k], 5));
    const float *a = tensor_of(models[0], "weight")->data,
                *b = tensor_of(models[1], "weight")->data;
    for (int m = 0; m < 4; m++)
        for (int c = 0; c < 64; c++)
            for (int i = 0; i < 16; i++)
                assert_true(a[(m * 64 + c) * 16 + i] == b[(m * 16 + i) * 64 + c]);
    ebb_model_free(models[0]);
    ebb_model_free(models[1]);
}

TEST(a_test_data_set_names_its_inputs_by_the_model)
{
    /* TensorProto: dims 2, FLOAT, raw_data 1.0 2.0; no name */
    static const unsigned char tensor[] = {0x08, 2,    0x10, 1, 0x4A, 8, 0,
                                           0,    0x80, 0x3F, 0, 0,    0, 0x40};
    char folder[] = "/tmp/ebb_set_XXXXXX", file[64];
    assert_non_null(mkdtemp(folder));
    for (int k = 0; k < 2; k++) {
        (void)snprintf(file, sizeof file, "%s/input_%d.pb", folder, k);
        FILE *f = fopen(file, "wb");
        assert_non_null(f);
        assert_int_equal(fwrite(tensor, 1, sizeof tensor, f), sizeof tensor);
        assert_int_equal(fclose(f), 0);
    }
    ebb_model *m = model_of(HEAD "g (float[2] w, float[2] a, float[2] b) => (float[2] y) "
                                 "<float[2] w = {1, 2}> { c = Add(a, b) y = Add(c, w) }");
    ebb_data *data = NULL;
    good(ebb_data_open(&data, folder, m));
    assert_int_equal(ebb_data_count(data), 2);
    const float two[] = {1, 2};
    assert_memory_equal(ebb_data_find(data, "a")->data, two, sizeof two);
    assert_memory_equal(ebb_data_find(data, "b")->data, two, sizeof two);
    ebb_data_close(data);
    ebb_model_free(m);
    for (int k = 0; k < 2; k++) {
        (void)snprintf(file, sizeof file, "%s/input_%d.pb", folder, k);
        assert_int_equal(unlink(file), 0);
    }
    assert_int_equal(rmdir(folder), 0);
}

static bool is_mapped(const ebb_model *m, const void *data)
{
    for (const ebb_mapping *file = m->mappings; file != NULL; file = file->older)
        if ((uintptr_t)data - (uintptr_t)file->data < file->bytes)
            return true;
    return false;
}

TEST(what_is_drawn_lies_in_a_file_that_is_mapped_where_one_can_be_made)
{
    const char *folder = getenv("TMPDIR");
    FREED char *before = folder != NULL ? strdup(folder) : NULL;
    OWNED_MODEL *m = skeleton(), *other = skeleton();
    good(ebb_init_weights(m, 0));
    assert_true(is_mapped(m, tensor_of(m, "weight")->data));
    assert_int_equal(setenv("TMPDIR", "/a folder that is not there", 1), 0);
    good(ebb_init_weights(other, 0));
    assert_int_equal(before != NULL ? setenv("TMPDIR", before, 1) : unsetenv("TMPDIR"), 0);
    assert_false(is_mapped(other, tensor_of(other, "weight")->data));
    assert_memory_equal(tensor_of(m, "weight")->data, tensor_of(other, "weight")->data, 16384);
}
