/* test_model.c: a copied model is the same model, and a separate one. */
#include <stdio.h>

#include "onnx/file/file.h"
#include "tests/owned.h"
#include "tests/status.h"
#include "tests/test.h"

#define MODEL EBB_SOURCE_DIR "/samples/digits/cnn.onnx"

TEST(a_copy_writes_the_same_bytes)
{
    OWNED_MODEL *model = NULL, *copy = NULL;
    void *bytes[2];
    size_t sizes[2];
    good(ebb_model_read(&model, MODEL));
    good(ebb_model_copy(&copy, model));
    good(ebb_model_write_memory(model, &bytes[0], &sizes[0]));
    good(ebb_model_write_memory(copy, &bytes[1], &sizes[1]));
    assert_int_equal(sizes[0], sizes[1]);
    assert_memory_equal(bytes[0], bytes[1], sizes[0]);
    ebb_free(bytes[0]);
    ebb_free(bytes[1]);
}

TEST(changing_a_copy_leaves_the_original_alone)
{
    OWNED_MODEL *model = NULL, *copy = NULL;
    good(ebb_model_read(&model, MODEL));
    good(ebb_model_copy(&copy, model));
    size_t nodes = 0;
    while (ebb_last(copy->graph).i != 0)
        ebb_node_remove(copy->graph, ebb_last(copy->graph));
    EBB_EACH_NODE(model->graph, n)
        nodes++;
    assert_int_equal(nodes, 22);
}

/* The bytes of the file that the model is written as. */
static void *written(const ebb_model *model, size_t *size)
{
    void *bytes;
    good(ebb_model_write_memory(model, &bytes, size));
    return bytes;
}

TEST(a_model_becomes_what_has_become_of_its_copy)
{
    OWNED_MODEL *model = NULL, *again = NULL;
    ebb_model *copy;
    size_t sizes[2];
    good(ebb_model_read(&model, EBB_SOURCE_DIR "/samples/digits/transformer.onnx"));
    good(ebb_model_copy(&copy, model));
    good(ebb_set_dim(copy, "batch", 2));
    good(ebb_rewrite(copy, "flatten,train-mode,fuse,loss:cross-entropy,gradient", NULL, NULL));
    RELEASED void *changed = written(copy, &sizes[0]);
    ebb_graph *graph = model->graph;
    ebb_model_adopt(model, copy);
    RELEASED void *adopted = written(model, &sizes[1]);
    assert_ptr_equal(model->graph, graph);
    assert_ptr_equal(graph->model, model);
    assert_int_equal(sizes[0], sizes[1]);
    assert_memory_equal(changed, adopted, sizes[0]);
    good(ebb_rewrite(model, "optimizer:sgd,alias", NULL, NULL)); // it is changed as any other
    good(ebb_model_copy(&again, model));
}

TEST(bodies_belong_to_the_model_that_adopts_them)
{
    static const char text[] =
        "<ir_version: 10, opset_import: [\"\" : 18]>\n"
        "g (float[4] x, bool c) => (float[4] y)\n"
        "{ h = Relu (x) y = If (c) <then_branch = t () => (float[4] a) { a = Neg (h) },"
        " else_branch = e () => (float[4] b) { b = Identity (h) }> }";
    ebb_model *model, *copy;
    good(ebb_text_parse_model(&model, text));
    good(ebb_model_copy(&copy, model));
    ebb_model_adopt(model, copy);
    int bodies = 0;
    EBB_EACH_NODE(model->graph, n)
        for (uint32_t a = 0; a < ebb_node_of(model->graph, n)->attr_count; a++) {
            const ebb_attr *attr = &ebb_node_of(model->graph, n)->attr[a];
            for (uint32_t k = 0; attr->graphs != NULL && k < attr->count; k++, bodies++) {
                assert_ptr_equal(attr->graphs[k]->model, model);
                assert_ptr_equal(attr->graphs[k]->outer, model->graph);
            }
        }
    assert_int_equal(bodies, 2);
    ebb_model_free(model);
}

/* The value that has the name: the one that took it last, unless it is gone or called otherwise. */
TEST(values_are_found_by_the_names_that_they_have_now)
{
    enum { NAMES = 40, VALUES = 2000 };
    OWNED_MODEL *model = NULL;
    ebb_value owner[NAMES] = {{0}};
    uint32_t random = 1;
    good(ebb_model_new(&model, 20));
    for (int i = 0; i < 50 * VALUES; i++) {
        char name[16];
        ebb_value v;
        random = random * 1664525 + 1013904223;
        const uint32_t k = (random >> 16) % NAMES, to = (random >> 8) % NAMES;
        (void)snprintf(name, sizeof name, "n%u", to);
        if (owner[k].i == 0 && owner[to].i == 0 && i < VALUES) {
            good(ebb_value_add(model->graph, &v, name, NULL));
            owner[to] = v;
        } else if (owner[k].i != 0 && i % 5 == 0) {
            ebb_value_bury(model->graph, owner[k]);
            ebb_value_bury(model->graph, owner[k]); // already gone: nothing happens
            owner[k] = EBB_NO_VALUE;
        } else if (owner[k].i != 0 && owner[to].i == 0) {
            good(ebb_value_rename(model->graph, owner[k], name));
            owner[to] = owner[k];
            owner[k] = EBB_NO_VALUE;
        }
        for (uint32_t at = 0; at < NAMES; at++) {
            (void)snprintf(name, sizeof name, "n%u", at);
            assert_int_equal(ebb_value_find(model->graph, name).i, owner[at].i);
        }
    }
}
