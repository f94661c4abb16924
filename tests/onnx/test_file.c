/* test_file.c: files in and out. An unchanged file comes back byte for byte; a changed one keeps
 * what we do not know, and reads back as what was written. */
#include "tests/onnx/files.h"
#include "tests/owned.h"
#include "tests/status.h"
#include "tests/text.h"

#include <signal.h>
#include <sys/resource.h>

/* Reads the bytes, writes them to memory, and says whether they are the same. */
static void assert_round_trip(const bytes *b)
{
    OWNED_MODEL *model = NULL;
    RELEASED void *out = NULL;
    size_t size;
    OK(ebb_model_read_memory(&model, b->data, b->count, NULL));
    OK(ebb_model_write_memory(model, &out, &size));
    assert_int_equal(size, b->count);
    assert_memory_equal(out, b->data, size);
}

/* ---- models of others ---- */

static size_t round_trip_all(const char *pattern)
{
    glob_t found;
    if (glob(pattern, 0, NULL, &found) != 0)
        return 0;
    size_t count = found.gl_pathc;
    for (size_t i = 0; i < count; i++) {
        const char *path = found.gl_pathv[i];
        OWNED_MODEL *model = NULL;
        OK(ebb_model_read(&model, path));
        OK(ebb_model_write(model, path_of("out.onnx"), NULL));
        ebb_mapping *file = NULL;
        OK(ebb_mapping_open(&file, path));
        // Weights that are beside the model would go into a data file: these models' are absent or
        // inside.
        assert_file(path_of("out.onnx"), file->data, file->bytes);
        ebb_mappings_free(file);
    }
    globfree(&found);
    return count;
}

TEST(exported_models_come_back_byte_for_byte)
{
    if (round_trip_all(EBB_SOURCE_DIR "/../shared/models/*/*.onnx") == 0) {
        print_message("SKIP: no sample models in ../shared/models\n");
        skip();
    }
}

TEST(training_artifacts_come_back_byte_for_byte)
{
    if (round_trip_all(EBB_SOURCE_DIR "/../shared/models_ort/*/*.onnx") == 0) {
        print_message("SKIP: no training artifacts in ../shared/models_ort\n");
        skip();
    }
}

/* ---- models by hand ---- */

static void put_constant(bytes *b, const char *output)
{
    size_t node = open_message(b, 1);
    put_text(b, 2, output);
    put_text(b, 4, "Constant");
    size_t attribute = open_message(b, 5), tensor;
    put_text(b, 1, "value");
    tensor = open_message(b, 5);
    put_int(b, 1, 2);
    put_int(b, 2, 1);
    put_blob(b, 9, "\0\0\x80\x3f\0\0\0\x40", 8); // 1, 2
    close_message(b, tensor);
    put_int(b, 20, 4);
    close_message(b, attribute);
    close_message(b, node);
}

TEST(what_we_do_not_know_comes_back)
{
    bytes b = {.count = 0};
    put_int(&b, 1, 13);
    put_text(&b, 2, "");
    size_t graph = open_message(&b, 7);
    size_t node = open_message(&b, 1);
    put_text(&b, 1, "x");
    put_text(&b, 1, "");
    put_text(&b, 2, "y");
    put_text(&b, 3, "");
    put_text(&b, 4, "Strange");
    size_t attribute = open_message(&b, 5);
    put_text(&b, 1, "odd");
    put_blob(&b, 4, "a\0b", 3);
    put_text(&b, 13, "doc of an attribute");
    put_int(&b, 20, 3);
    put_text(&b, 777, "new field of an attribute");
    close_message(&b, attribute);
    const char *said[] = {NULL, "doc of a number"}; // the first says no more than its number
    for (int i = 0; i < 2; i++) {
        attribute = open_message(&b, 5);
        put_text(&b, 1, i == 0 ? "plain" : "told");
        put_int(&b, 3, 7);
        if (said[i] != NULL)
            put_text(&b, 13, said[i]);
        put_int(&b, 20, 2);
        close_message(&b, attribute);
    }
    put_text(&b, 6, "doc");
    put_text(&b, 7, "my.domain");
    put_text(&b, 8, "overload");
    put_entry(&b, 9, "key", "value");
    put_entry(&b, 9, "key", "again");
    put_entry(&b, 9, "ebb.phase", "someday");
    put_int(&b, 555, 5);
    close_message(&b, node);
    put_text(&b, 2, "g");
    put_value(&b, 11, "x", DIMS(2));
    put_value(&b, 12, "y", DIMS(2));
    put_value(&b, 13, "nobody", DIMS(2));
    put_entry(&b, 16, "graph", "metadata");
    put_text(&b, 99, "new field of a graph");
    close_message(&b, graph);
    size_t import = open_message(&b, 8);
    put_text(&b, 1, "ai.onnx");
    put_int(&b, 2, 99);
    close_message(&b, import);
    put_entry(&b, 14, "model", "metadata");
    put_blob(&b, 1000, "\xff\xfe", 2);
    assert_round_trip(&b);
}

TEST(old_models_list_initializers_as_inputs)
{
    bytes b = {.count = 0};
    size_t graph = open_model(&b);
    put_node(&b, "Add", "sum", NAMES("x", "w"), NAMES("y"));
    put_initializer(&b, "w", DIMS(3), 12);
    put_value(&b, 11, "x", DIMS(3));
    put_value(&b, 11, "w", DIMS(3));
    put_value(&b, 12, "y", DIMS(3));
    close_model(&b, graph);
    assert_round_trip(&b);
    OWNED_MODEL *model = NULL;
    OK(ebb_model_read_memory(&model, b.data, b.count, NULL));
    const ebb_graph *g = model->graph;
    uint16_t flags = ebb_value_of(g, ebb_value_find(g, "w"))->flags;
    assert_int_equal(flags, EBB_IS_INPUT | EBB_IS_INITIALIZER);
}

TEST(typed_lists_are_read_as_bytes)
{
    static const struct {
        int dtype;
        unsigned field; // of varints
        size_t bytes;
        uint8_t want[8];
    } cases[] = {
        {EBB_I8, 5, 2, {1, 0xfe}},
        {EBB_BOOL, 5, 2, {1, 0xfe}},
        {EBB_I16, 5, 4, {1, 0, 0xfe, 0xff}},
        {EBB_F16, 5, 4, {1, 0, 0xfe, 0xff}},
        {EBB_I32, 5, 8, {1, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff}},
        {EBB_U32, 11, 8, {1, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int packed = 0; packed < 2; packed++) {
            bytes b = {.count = 0};
            size_t graph = open_model(&b), tensor = open_message(&b, 5);
            put_int(&b, 1, 2);
            put_int(&b, 2, cases[i].dtype);
            if (cases[i].field > 8)
                put_text(&b, 8, "w");
            if (packed) {
                size_t list = open_message(&b, cases[i].field);
                put_varint(&b, 1);
                put_varint(&b, (uint64_t)-2);
                close_message(&b, list);
            } else {
                put_int(&b, cases[i].field, 1);
                put_int(&b, cases[i].field, -2);
            }
            if (cases[i].field < 8)
                put_text(&b, 8, "w");
            close_message(&b, tensor);
            close_model(&b, graph);
            ebb_model *model;
            OK(ebb_model_read_memory(&model, b.data, b.count, NULL));
            const ebb_graph *g = model->graph;
            const ebb_tensor *t = ebb_value_of(g, ebb_value_find(g, "w"))->tensor;
            assert_int_equal(t->bytes, cases[i].bytes);
            assert_memory_equal(t->data, cases[i].want, cases[i].bytes);
            ebb_model_free(model);
            if (packed)
                assert_round_trip(&b);
        }
}

/* self.mean of a module, in what PyTorch writes with optimize=False. */
TEST(a_buffer_with_the_name_of_a_call_is_told_to_be_renamed)
{
    bytes b = {.count = 0};
    size_t graph = open_model(&b);
    put_node(&b, "ReduceMean", "node_mean", NAMES("x"), NAMES("mean"));
    put_node(&b, "Sub", "sub", NAMES("x", "mean"), NAMES("y"));
    put_initializer(&b, "mean", DIMS(3), 12);
    put_value(&b, 11, "x", DIMS(3));
    put_value(&b, 12, "y", DIMS(3));
    close_model(&b, graph);
    ebb_model *model;
    ebb_status status = ebb_model_read_memory(&model, b.data, b.count, NULL);
    refused(status, EBB_REJECTED, "'node_mean' makes 'mean', which is an ");
    assert_non_null(strstr(ebb_status_text(status), "rename it and export again"));
}

TEST(nodes_in_any_order_without_a_cycle_are_sorted)
{
    bytes b = {.count = 0};
    size_t graph = open_model(&b);
    put_node(&b, "Relu", "second", NAMES("h"), NAMES("y"));
    put_node(&b, "Exp", "first", NAMES("x"), NAMES("h"));
    put_value(&b, 11, "x", DIMS(3));
    put_value(&b, 12, "y", DIMS(3));
    close_model(&b, graph);
    OWNED_MODEL *model = NULL;
    OK(ebb_model_read_memory(&model, b.data, b.count, NULL));
    const ebb_graph *g = model->graph;
    assert_string_equal(ebb_text(g, ebb_node_of(g, ebb_first(g))->name), "first");
    assert_string_equal(ebb_text(g, ebb_node_of(g, ebb_last(g))->name), "second");
}

static void branch_model(bytes *b)
{
    size_t graph = open_model(b);
    put_node(b, "Exp", "before", NAMES("x"), NAMES("h"));
    size_t node = open_message(b, 1);
    put_text(b, 1, "c");
    put_text(b, 2, "y");
    put_text(b, 4, "If");
    for (int i = 0; i < 2; i++) {
        size_t attribute = open_message(b, 5), inner;
        put_text(b, 1, i == 0 ? "then_branch" : "else_branch");
        inner = open_message(b, 6);
        put_node(b, "Relu", "", NAMES("h"), i == 0 ? NAMES("a") : NAMES("b"));
        put_text(b, 2, "branch");
        put_value(b, 12, i == 0 ? "a" : "b", DIMS(3));
        close_message(b, inner);
        put_int(b, 20, 5);
        close_message(b, attribute);
    }
    close_message(b, node);
    put_value(b, 11, "c", 0, NULL);
    put_value(b, 11, "x", DIMS(3));
    put_value(b, 12, "y", DIMS(3));
    close_model(b, graph);
}

TEST(a_branch_sees_the_values_outside)
{
    bytes b = {.count = 0};
    branch_model(&b);
    assert_round_trip(&b);
    OWNED_MODEL *model = NULL;
    OK(ebb_model_read_memory(&model, b.data, b.count, NULL));
    const ebb_graph *g = model->graph;
    const ebb_node_info *branch = ebb_node_of(g, ebb_last(g));
    assert_int_equal(branch->attr_count, 2);
    const ebb_graph *inner = branch->attr[0].graphs[0];
    assert_ptr_equal(inner->outer, g);
    ebb_value h = ebb_value_find(inner, "h");
    assert_int_equal(ebb_value_of(inner, h)->flags, EBB_IS_OUTER);
}

TEST(a_function_body_follows_its_own_imports)
{
    bytes b = {.count = 0};
    size_t graph = open_model(&b), function, import;
    put_node(&b, "Twice", "t", NAMES("x"), NAMES("y"));
    put_value(&b, 11, "x", DIMS(3));
    put_value(&b, 12, "y", DIMS(3));
    close_model(&b, graph);
    function = open_message(&b, 25);
    put_text(&b, 1, "Twice");
    put_text(&b, 4, "a");
    put_text(&b, 5, "b");
    put_text(&b, 6, "unused");
    size_t node = open_message(&b, 7);
    put_text(&b, 1, "a");
    put_text(&b, 1, "a");
    put_text(&b, 2, "b");
    put_text(&b, 4, "Add");
    close_message(&b, node);
    import = open_message(&b, 9);
    put_text(&b, 1, "");
    put_int(&b, 2, 18);
    close_message(&b, import);
    put_text(&b, 10, "mine");
    close_message(&b, function);
    assert_round_trip(&b);
    OWNED_MODEL *model = NULL;
    OK(ebb_model_read_memory(&model, b.data, b.count, NULL));
    assert_int_equal(model->function_count, 1);
    assert_int_equal(model->functions[0].imports[0].version, 18);
    ebb_graph *body = model->functions[0].body;
    assert_int_equal(ebb_node_of(body, ebb_first(body))->op, EBB_OP_ADD);
}

/* ---- training information ---- */

static void training_model(bytes *b)
{
    size_t graph = open_model(b), info, inner;
    put_node(b, "Sub", "step", NAMES("w", "g"), NAMES("w_next"));
    put_initializer(b, "w", DIMS(2), 8);
    put_value(b, 11, "g", DIMS(2));
    put_value(b, 12, "w_next", DIMS(2));
    close_model(b, graph);
    info = open_message(b, 20);
    inner = open_message(b, 1);
    put_constant(b, "drawn");
    put_text(b, 2, "draw");
    put_value(b, 12, "drawn", DIMS(2));
    close_message(b, inner);
    put_entry(b, 3, "w", "drawn");
    put_entry(b, 4, "w", "w_next");
    close_message(b, info);
}

TEST(bindings_and_initialization_are_read)
{
    bytes b = {.count = 0};
    training_model(&b);
    assert_round_trip(&b);
    OWNED_MODEL *model = NULL;
    OK(ebb_model_read_memory(&model, b.data, b.count, NULL));
    const ebb_graph *g = model->graph;
    assert_int_equal(g->binding_count, 1);
    ebb_value w = ebb_value_find(g, "w");
    assert_string_equal(ebb_value_name(g, ebb_graph_bound(g, w)), "w_next");
    assert_int_equal(ebb_value_of(g, w)->flags, EBB_IS_INITIALIZER | EBB_IS_STATE);
    assert_non_null(model->initialization);
    assert_int_equal(model->init_binding_count, 1);
    assert_string_equal(ebb_value_name(model->initialization, model->init_bindings[0].value),
                        "drawn");
}

/* ---- what ebb adds ---- */

static void small_model(bytes *b)
{
    size_t graph = open_model(b);
    put_node(b, "Relu", "r", NAMES("x"), NAMES("y"));
    put_initializer(b, "w", DIMS(2), 8);
    put_value(b, 11, "x", DIMS(2));
    put_value(b, 12, "y", DIMS(2));
    close_model(b, graph);
    b->data[1] = 8; // IR version: too old for metadata on nodes
}

TEST(phases_roles_loss_and_places_are_written)
{
    bytes b = {.count = 0};
    small_model(&b);
    assert_round_trip(&b);
    OWNED_MODEL *model = NULL, *copy = NULL;
    OK(ebb_model_read_memory(&model, b.data, b.count, NULL));
    ebb_graph *g = model->graph;
    ebb_value y = ebb_value_find(g, "y"), dx, w = ebb_value_find(g, "w");
    ebb_type type = *ebb_value_of(g, y)->type;
    ebb_node n;
    OK(ebb_value_add(g, &dx, "x_grad", &type));
    OK(ebb_node_add(g, &n, EBB_NO_NODE, EBB_DOMAIN_MS, "ReluGrad", (const ebb_value[]){y, y}, 2,
                    &dx, 1));
    ebb_node_of(g, n)->phase = EBB_BACKWARD;
    ebb_node_set_over(g, n, 0, 1);
    OK(ebb_node_set_int(g, n, "count", -3));
    OK(ebb_node_set_float(g, n, "rate", 0.5));
    OK(ebb_node_set_string(g, n, "mode", "fast"));
    OK(ebb_node_set_ints(g, n, "axes", (const int64_t[]){-1, 4}, 2));
    OK(ebb_props_set(g, &ebb_node_of(g, n)->props, "ebb.pass", "gradient"));
    ebb_value_of(g, w)->role = EBB_ROLE_PARAMETER;
    OK(ebb_graph_bind(g, w, dx));
    g->loss = y;

    RELEASED void *memory = NULL;
    copy = again(model, &memory);
    assert_int_equal(copy->ir_version, 10);
    assert_int_equal(ebb_model_opset(copy, EBB_DOMAIN_MS), 1);
    const ebb_graph *h = copy->graph;
    const ebb_node_info *info = ebb_node_of(h, ebb_last(h));
    assert_int_equal(info->phase, EBB_BACKWARD);
    assert_string_equal(ebb_text(h, info->doc), "Backward pass");
    assert_string_equal(ebb_text(h, info->domain), EBB_DOMAIN_MS);
    assert_int_equal(ebb_node_over(h, ebb_last(h), 0), 2);
    assert_string_equal(ebb_props_get(h, &info->props, "ebb.pass"), "gradient");
    ebb_attrs attrs = ebb_node_attrs(h, ebb_last(h));
    uint32_t count;
    assert_int_equal(ebb_attr_int(&attrs, "count", 0), -3);
    assert_true(ebb_attr_float(&attrs, "rate", 0) == 0.5);
    assert_string_equal(ebb_attr_string(&attrs, "mode", ""), "fast");
    assert_int_equal(ebb_attr_ints(&attrs, "axes", &count)[0], -1);
    assert_int_equal(count, 2);
    assert_int_equal(ebb_value_of(h, ebb_value_find(h, "w"))->role, EBB_ROLE_PARAMETER);
    assert_string_equal(ebb_value_name(h, h->loss), "y");
    assert_int_equal(h->binding_count, 1);
    assert_int_equal(ebb_value_of(h, ebb_value_find(h, "x_grad"))->type->rank, 1);

    // What has been written once is written the same again.
    RELEASED void *twice = NULL;
    OWNED_MODEL *third = again(copy, &twice);
    size_t size;
    RELEASED void *bytes_of_third = NULL;
    OK(ebb_model_write_memory(third, &bytes_of_third, &size));
    assert_memory_equal(bytes_of_third, memory, size);
}

TEST(metadata_that_a_pass_changes_stays_in_its_place)
{
    bytes b = {.count = 0};
    size_t graph = open_model(&b), node = open_message(&b, 1);
    put_text(&b, 1, "x");
    put_text(&b, 2, "y");
    put_text(&b, 4, "Relu");
    put_entry(&b, 9, "first", "1");
    put_entry(&b, 9, "ebb.phase", "forward");
    put_entry(&b, 9, "last", "3");
    close_message(&b, node);
    put_value(&b, 11, "x", DIMS(2));
    put_value(&b, 12, "y", DIMS(2));
    close_model(&b, graph);
    assert_round_trip(&b);
    OWNED_MODEL *model = NULL;
    OK(ebb_model_read_memory(&model, b.data, b.count, NULL));
    ebb_node_info *info = ebb_node_of(model->graph, ebb_first(model->graph));
    assert_int_equal(info->phase, EBB_FORWARD);
    OK(ebb_props_set(model->graph, &info->props, "last", "4"));
    RELEASED void *memory = NULL;
    OWNED_MODEL *copy = again(model, &memory);
    info = ebb_node_of(copy->graph, ebb_first(copy->graph));
    assert_int_equal(ebb_props_count(&info->props), 2);
    assert_string_equal(ebb_props_get(copy->graph, &info->props, "first"), "1");
    assert_string_equal(ebb_props_get(copy->graph, &info->props, "last"), "4");
}

static bool has_body(const ebb_model *model, const char *name)
{
    for (size_t i = 0; i < model->function_count; i++)
        if (strcmp(ebb_names_text(&model->names, model->functions[i].name), name) == 0)
            return true;
    return false;
}

TEST(an_operator_of_ours_brings_its_body)
{
    ebb_model *model;
    OK(ebb_model_new(&model, 18));
    ebb_graph *g = model->graph;
    ebb_type type = ebb_type_tensor(EBB_F32, 1, (const int64_t[]){8});
    ebb_type mask = ebb_type_tensor(EBB_U8, 1, (const int64_t[]){1});
    ebb_value x, y;
    ebb_node n;
    OK(ebb_value_add(g, &x, "x", &type));
    OK(ebb_value_add(g, &y, "y", &mask));
    OK(ebb_graph_add_input(g, x));
    OK(ebb_node_add(g, &n, EBB_NO_NODE, EBB_DOMAIN_EBB, "PackSign", &x, 1, &y, 1));
    OK(ebb_graph_add_output(g, y));
    if (ebb_op_body(ebb_node_of(g, n)->op) == NULL) {
        print_message("SKIP: PackSign has no body\n");
        ebb_model_free(model);
        skip();
    }
    RELEASED void *memory = NULL;
    OWNED_MODEL *copy = again(model, &memory);
    assert_int_equal(ebb_model_opset(copy, EBB_DOMAIN_EBB), 1);
    assert_true(has_body(copy, "PackSign"));
    ebb_model_free(model);
}

/* As a weight in parts is cut there (pass shard). */
TEST(an_operator_of_the_initialization_graph_brings_its_body)
{
    static const float data[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    const ebb_type whole = ebb_type_tensor(EBB_F32, 1, (const int64_t[]){8});
    const ebb_type part = ebb_type_tensor(EBB_F32, 1, (const int64_t[]){4});
    ebb_value w, s;
    ebb_node n;
    OWNED_MODEL *model = parsed("<ir_version: 10, opset_import: [\"\" : 18, \"ai.ebb\" : 1]>\n"
                                "g (float[4] x) => (float[4] y) { y = Neg (x) }");
    OK(ebb_graph_new(&model->initialization, model, NULL));
    OK(ebb_graph_add_initializer(model->initialization, &w, "w", &whole, data, EBB_ROLE_NONE));
    OK(ebb_value_add(model->initialization, &s, "s", &part));
    OK(ebb_node_add(model->initialization, &n, EBB_NO_NODE, EBB_DOMAIN_EBB, "Shard", &w, 1, &s, 1));
    OK(ebb_node_set_int(model->initialization, n, "ranks", 2));
    OK(ebb_graph_add_output(model->initialization, s));
    RELEASED void *memory = NULL;
    OWNED_MODEL *copy = again(model, &memory);
    assert_true(has_body(copy, "Shard"));
}

TEST(equal_attributes_of_a_file_lie_in_memory_once)
{
    OWNED_MODEL *model = parsed("<ir_version: 8, opset_import: [\"\" : 17]>\n"
                                "g (float[4,8] x) => (float[4,8] y) {\n"
                                "  a = Transpose<perm = [1,0]> (x)\n"
                                "  y = Transpose<perm = [1,0]> (a)\n}");
    RELEASED void *memory = NULL;
    OWNED_MODEL *copy = again(model, &memory);
    const ebb_node first = ebb_first(copy->graph);
    assert_ptr_equal(ebb_node_of(copy->graph, first)->attr,
                     ebb_node_of(copy->graph, ebb_next(copy->graph, first))->attr);
}

/* ONNX Runtime wants it; and what is written once is written so again. */
TEST(a_call_of_an_operator_with_a_body_names_all_outputs)
{
    OWNED_MODEL *model = NULL, *copy = NULL;
    OK(ebb_text_parse_model(
        &model, "<ir_version: 8, opset_import: [\"\" : 17, \"ai.ebb\" : 1]>\n"
                "g (float[4,8] x, float[8] s) => (float[4,8] y) { y = ai.ebb.RmsNorm (x, s) }"));
    RELEASED void *first = NULL, *second = NULL;
    size_t first_size, second_size;
    OK(ebb_model_write_memory(model, &first, &first_size));
    OK(ebb_model_read_memory(&copy, first, first_size, NULL));
    const ebb_node_info *call = ebb_node_of(copy->graph, ebb_first(copy->graph));
    assert_int_equal(call->out_count, 2);
    assert_int_equal(call->out[1].i, 0);
    assert_null(ebb_verify(copy->graph));
    // a function's opset is the model's
    assert_int_equal(copy->functions[0].imports[0].version, 17);
    OK(ebb_model_write_memory(copy, &second, &second_size));
    assert_int_equal(first_size, second_size);
    assert_memory_equal(first, second, first_size);
}

/* ---- failure ---- */

TEST(nothing_is_left_where_writing_fails)
{
    bytes b = {.count = 0};
    small_model(&b);
    OWNED_MODEL *model = NULL;
    OK(ebb_model_read_memory(&model, b.data, b.count, NULL));
    ebb_status status = ebb_model_write(model, path_of("nowhere/out.onnx"), NULL);
    assert_int_equal(ebb_status_code(status), EBB_IO);

    put_file(path_of("kept.onnx"), "before", 6);
    struct rlimit was, tiny;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    tiny = (struct rlimit){16, was.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tiny), 0);
    status = ebb_model_write(model, path_of("kept.onnx"), NULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    (void)signal(SIGXFSZ, handler);
    assert_int_equal(ebb_status_code(status), EBB_IO);
    assert_file(path_of("kept.onnx"), "before", 6);
    assert_int_equal(files_like("kept.onnx*"), 1);
}

TEST(a_missing_file_is_an_io_error)
{
    ebb_model *model;
    refused(ebb_model_read(&model, path_of("missing.onnx")), EBB_IO, "missing.onnx");
    assert_int_equal(ebb_status_code(ebb_model_read(&model, folder)), EBB_IO);
}

TEST(a_tensor_file_is_read)
{
    bytes b = {.count = 0};
    put_int(&b, 1, 2);
    put_int(&b, 2, EBB_I64);
    put_text(&b, 8, "x");
    put_blob(&b, 9, "\1\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", 16);
    put_file(path_of("input_0.pb"), b.data, b.count);
    OWNED_ARENA arena = {0};
    ebb_tensor t;
    const char *name;
    OK(ebb_tensor_read_pb(&t, &name, &arena, path_of("input_0.pb")));
    assert_string_equal(name, "x");
    assert_int_equal(t.type.dims[0], 2);
    assert_int_equal(ebb_tensor_int(&t, 1), -1);
}

const fixture around_all = {make_folders, remove_folder};
