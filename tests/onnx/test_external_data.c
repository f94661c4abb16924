/* test_external_data.c: weights beside the model: they stay where they are, go along to another
 * folder, move out when they are large, and stay absent where nobody has them.
 */
#include "tests/onnx/files.h"

#include "onnx/graph/build.h"
#include "tests/owned.h"
#include "tests/status.h"

static void external_model(bytes *b)
{
    size_t graph = open_model(b);
    put_node(b, "Add", "sum", NAMES("x", "w"), NAMES("y"));
    put_external(b, "w", 4, "weights.bin", "4", "16");
    put_value(b, 11, "x", DIMS(4));
    put_value(b, 12, "y", DIMS(4));
    close_model(b, graph);
}

static const ebb_tensor *tensor_of(const ebb_model *model, const char *name)
{
    const ebb_graph *g = model->graph;
    return ebb_value_of(g, ebb_value_find(g, name))->tensor;
}

TEST(a_skeleton_stays_a_skeleton)
{
    bytes b = {.count = 0};
    external_model(&b);
    put_file(path_of("skeleton.onnx"), b.data, b.count);
    OWNED_MODEL *model = NULL;
    OK(ebb_model_read(&model, path_of("skeleton.onnx")));
    const ebb_tensor *t = tensor_of(model, "w");
    assert_null(t->data);
    assert_true(t->external);
    assert_int_equal(t->bytes, 16);
    OK(ebb_model_write(model, path_of("other/out.onnx"), NULL));
    assert_file(path_of("other/out.onnx"), b.data, b.count);
}

TEST(external_weights_stay_in_their_folder_and_are_copied_to_another)
{
    bytes b = {.count = 0};
    float weights[] = {0, 1, 2, 3, 4};
    external_model(&b);
    put_file(path_of("model.onnx"), b.data, b.count);
    put_file(path_of("weights.bin"), weights, sizeof weights);
    OWNED_MODEL *model = NULL, *copy = NULL;
    OK(ebb_model_read(&model, path_of("model.onnx")));
    assert_memory_equal(tensor_of(model, "w")->data, weights + 1, 16);
    OK(ebb_model_write(model, path_of("same.onnx"), NULL));
    assert_file(path_of("same.onnx"), b.data, b.count);
    assert_int_equal(files_like("same.onnx.data"), 0);

    OK(ebb_model_write(model, path_of("other/moved.onnx"), NULL));
    assert_file(path_of("other/moved.onnx.data"), weights + 1, 16);
    OK(ebb_model_read(&copy, path_of("other/moved.onnx")));
    assert_string_equal(tensor_of(copy, "w")->location, "moved.onnx.data");
    assert_memory_equal(tensor_of(copy, "w")->data, weights + 1, 16);
    unlink(path_of("weights.bin"));
}

/* Be it to the folder, or the file, where others lie that the model had before. */
TEST(external_weights_that_changed_are_written_anew)
{
    static const float before[] = {0, 1, 2, 3, 4}, after[] = {5, 6, 7, 8};
    bytes b = {.count = 0};
    external_model(&b);
    put_file(path_of("model.onnx"), b.data, b.count);
    put_file(path_of("weights.bin"), before, sizeof before);
    OWNED_MODEL *model = NULL, *copied = NULL;
    ebb_model *back;
    OK(ebb_model_read(&model, path_of("model.onnx")));
    OK(ebb_model_copy(&copied, model));
    ebb_model *of[] = {model, copied};
    const char *to[] = {"same.onnx", "model.onnx", "other/same.onnx", "other/copied.onnx"};
    for (size_t i = 0; i < 4; i++) {
        ebb_graph *g = of[i % 2]->graph;
        OK(ebb_value_point(g, ebb_value_find(g, "w"), after));
        OK(ebb_model_write(of[i % 2], path_of(to[i]), NULL));
        OK(ebb_model_read(&back, path_of(to[i])));
        assert_memory_equal(tensor_of(back, "w")->data, after, sizeof after);
        assert_true(tensor_of(back, "w")->external);
        ebb_model_free(back);
    }
    assert_file(path_of("weights.bin"), before, sizeof before);
    unlink(path_of("weights.bin"));
}

TEST(large_weights_go_outside_when_asked)
{
    bytes b = {.count = 0};
    size_t graph = open_model(&b);
    put_initializer(&b, "small", DIMS(2), 8);
    put_initializer(&b, "large", DIMS(32), 128);
    put_initializer(&b, "larger", DIMS(64), 256);
    close_model(&b, graph);
    ebb_model *model, *copy;
    OK(ebb_model_read_memory(&model, b.data, b.count, NULL));
    OK(ebb_model_write(model, path_of("big.onnx"),
                       &(ebb_write_options){.external_above_bytes = 100}));
    OK(ebb_model_read(&copy, path_of("big.onnx")));
    assert_false(tensor_of(copy, "small")->external);
    assert_true(tensor_of(copy, "large")->external);
    assert_int_equal(tensor_of(copy, "larger")->offset, 4096);
    assert_non_null(tensor_of(copy, "larger")->data);

    // Written again under its own name, with more moved: what it refers to must not be overwritten.
    OK(ebb_model_write(copy, path_of("big.onnx"), &(ebb_write_options){.external_above_bytes = 1}));
    ebb_model_free(copy);
    OK(ebb_model_read(&copy, path_of("big.onnx")));
    assert_string_equal(tensor_of(copy, "large")->location, "big.onnx.data");
    assert_string_equal(tensor_of(copy, "small")->location, "big.onnx.data.1");
    assert_memory_equal(tensor_of(copy, "larger")->data, tensor_of(model, "larger")->data, 256);
    ebb_model_free(copy);
    ebb_model_free(model);
}

TEST(weights_that_nobody_has_are_written_as_absent)
{
    OWNED_MODEL *model = NULL, *copy = NULL;
    OK(ebb_model_new(&model, 17));
    ebb_type type = ebb_type_tensor(EBB_F32, 1, (const int64_t[]){1000});
    ebb_value w;
    OK(ebb_graph_add_initializer(model->graph, &w, "w", &type, NULL, EBB_ROLE_OPTIMIZER));
    OK(ebb_model_write(model, path_of("new.onnx"), NULL));
    OK(ebb_model_read(&copy, path_of("new.onnx")));
    assert_null(tensor_of(copy, "w")->data);
    assert_int_equal(tensor_of(copy, "w")->bytes, 4000);
    assert_int_equal(ebb_value_of(copy->graph, ebb_value_find(copy->graph, "w"))->role,
                     EBB_ROLE_OPTIMIZER);
}

static const float *weights_at(ebb_model **model, const char *path)
{
    OK(ebb_model_read(model, path_of(path)));
    return tensor_of(*model, "w")->data;
}

/* Where the link leads, under the name that the file has there. */
TEST(data_lie_beside_the_file_that_a_link_names)
{
    static const float weights[] = {0, 1, 2, 3, 4}, others[] = {9, 9, 9, 9};
    bytes b = {.count = 0};
    external_model(&b);
    put_file(path_of("model.onnx"), b.data, b.count);
    put_file(path_of("weights.bin"), weights, sizeof weights);
    assert_int_equal(symlink("other/linked.onnx", path_of("link.onnx")), 0);
    ebb_model *model, *back;
    OK(ebb_model_read(&model, path_of("model.onnx")));
    OK(ebb_model_write(model, path_of("link.onnx"), NULL));
    ebb_model_free(model);
    assert_file(path_of("other/linked.onnx.data"), weights + 1, 16);
    assert_int_equal(files_like("link.onnx.data"), 0);
    put_file(path_of("linked.onnx.data"), others, sizeof others); // beside the link: another's
    static const char *const names[] = {"link.onnx", "other/linked.onnx"};
    for (size_t i = 0; i < 2; i++) {
        assert_memory_equal(weights_at(&back, names[i]), weights + 1, 16);
        ebb_model_free(back);
    }
    // Nothing lies there: then beside the link.
    put_file(path_of("other/lone.onnx"), b.data, b.count);
    assert_int_equal(symlink("other/lone.onnx", path_of("lone.onnx")), 0);
    assert_memory_equal(weights_at(&back, "lone.onnx"), weights + 1, 16);
    ebb_model_free(back);
    unlink(path_of("weights.bin"));
    assert_null(weights_at(&back, "lone.onnx"));
    ebb_model_free(back);
    unlink(path_of("linked.onnx.data"));
}

/* A file made of another names its data, which are written again when that one is saved in place. */
TEST(data_that_were_written_again_are_told_by_who_names_them)
{
    static const float before[] = {0, 1, 2, 3, 4}, after[] = {0, 1, 2, 3, 5};
    bytes b = {.count = 0};
    external_model(&b);
    put_file(path_of("model.onnx"), b.data, b.count);
    put_file(path_of("weights.bin"), before, sizeof before);
    ebb_model *model, *made = NULL;
    OK(ebb_model_read(&model, path_of("model.onnx")));
    model->ir_version = 10; // the first that has metadata of initializers
    ebb_build build = ebb_build_at(model->graph, EBB_NO_NODE, EBB_FORWARD, NULL);
    (void)ebb_emit(&build, EBB_OP_NEG, ebb_value_find(model->graph, "w"));
    OK(build.status);
    OK(ebb_model_write(model, path_of("made.onnx"), NULL));
    ebb_model_free(model);
    assert_memory_equal(weights_at(&model, "made.onnx"), before + 1, 16);
    OK(ebb_model_write(model, path_of("copied.onnx"), NULL)); // unchanged: the same bytes
    OK(ebb_model_write(model, path_of("other/apart.onnx"), NULL));
    ebb_model_free(model);
    put_file(path_of("weights.bin"), after, sizeof after);
    static const char *const names[] = {"made.onnx", "copied.onnx"};
    for (size_t i = 0; i < 2; i++) {
        refused(ebb_model_read(&made, path_of(names[i])), EBB_REJECTED,
                "external data 'weights.bin' has changed");
    }
    assert_memory_equal(weights_at(&made, "other/apart.onnx"), before + 1, 16);
    ebb_model_free(made);
    unlink(path_of("weights.bin"));
    assert_null(weights_at(&made, "made.onnx")); // a skeleton, as ever, which keeps what it says
    OK(ebb_model_write(made, path_of("bare.onnx"), NULL));
    ebb_model_free(made);
    ebb_mapping *file = NULL;
    OK(ebb_mapping_open(&file, path_of("made.onnx")));
    assert_file(path_of("bare.onnx"), file->data, file->bytes);
    assert_file(path_of("copied.onnx"), file->data, file->bytes);
    ebb_mappings_free(file);
}

const fixture around_all = {make_folders, remove_folder};
