/* test_model.c: a copied model is the same model, and a separate one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "onnx/file/file.h"

#define MODEL EBB_SOURCE_DIR "/samples/digits/cnn.onnx"

static void must(ebb_status status)
{
    if (status != NULL)
        fail_msg("%s", ebb_status_text(status));
}

static void a_copy_writes_the_same_bytes(void **state)
{
    (void)state;
    ebb_model *model, *copy;
    void *bytes[2];
    size_t sizes[2];
    must(ebb_model_read(&model, MODEL));
    must(ebb_model_copy(&copy, model));
    must(ebb_model_write_memory(model, &bytes[0], &sizes[0]));
    must(ebb_model_write_memory(copy, &bytes[1], &sizes[1]));
    assert_int_equal(sizes[0], sizes[1]);
    assert_memory_equal(bytes[0], bytes[1], sizes[0]);
    ebb_free(bytes[0]);
    ebb_free(bytes[1]);
    ebb_model_free(copy);
    ebb_model_free(model);
}

static void changing_a_copy_leaves_the_original_alone(void **state)
{
    (void)state;
    ebb_model *model, *copy;
    must(ebb_model_read(&model, MODEL));
    must(ebb_model_copy(&copy, model));
    size_t nodes = 0;
    while (ebb_last(copy->graph).i != 0)
        ebb_node_remove(copy->graph, ebb_last(copy->graph));
    EBB_EACH_NODE(model->graph, n)
    nodes++;
    assert_int_equal(nodes, 22);
    ebb_model_free(copy);
    ebb_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_writes_the_same_bytes),
        cmocka_unit_test(changing_a_copy_leaves_the_original_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
