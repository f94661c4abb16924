/* test_lora.c: adapters beside frozen weights: their gradients held against those of the weights,
 * merged and saved adapters against the model that was trained with them. */
#include "tests/api/lora_net.h"
#include "tests/formatted.h"
#include "tests/owned.h"
#include "tests/text.h"

/* With dW the gradient of a whole weight [in, out]: dB = s dW' A', dA = s B' dW'. */
static void gradients_follow(const char *first)
{
    const double scale = 3.0 / RANK;
    float a[RANK * IN], b[MID * RANK], whole[IN * MID];
    draw(a, RANK * IN, 5);
    draw(b, MID * RANK, 6);
    OWNED_MODEL *adapted = step(formatted("%slora:rank=2,alpha=3,target=up,", first), "none");
    OWNED_PROGRAM *p = compile(adapted);
    static const int64_t of_a[2] = {RANK, IN}, of_b[2] = {MID, RANK};
    good(ebb_program_set(p, &(ebb_named){"up.lora_A.weight", 1, 2, of_a, a}));
    good(ebb_program_set(p, &(ebb_named){"up.lora_B.weight", 1, 2, of_b, b}));
    run(p);
    /* The same function with one weight, W + s A' B', and its gradient. */
    OWNED_MODEL *plain = step(first, "none");
    OWNED_PROGRAM *q = compile(plain);
    float merged[IN * MID];
    for (int i = 0; i < IN; i++)
        for (int o = 0; o < MID; o++) {
            double sum = weights[i * MID + o];
            for (int r = 0; r < RANK; r++)
                sum += scale * (double)a[r * IN + i] * (double)b[o * RANK + r];
            merged[i * MID + o] = (float)sum;
        }
    static const int64_t of_w[2] = {IN, MID};
    good(ebb_program_set(q, &(ebb_named){"up.weight", 1, 2, of_w, merged}));
    run(q);
    close_to((double)loss_of(p), (double)loss_of(q), 1e-6, "loss");
    memcpy(whole, get(q, "up.weight_grad"), sizeof whole);
    const float *da = get(p, "up.lora_A.weight_grad");
    for (int r = 0; r < RANK; r++)
        for (int i = 0; i < IN; i++) {
            double sum = 0;
            for (int o = 0; o < MID; o++)
                sum += scale * (double)b[o * RANK + r] * (double)whole[i * MID + o];
            close_to((double)da[r * IN + i], sum, 1e-5, "dA");
        }
    const float *db = get(p, "up.lora_B.weight_grad");
    for (int o = 0; o < MID; o++)
        for (int r = 0; r < RANK; r++) {
            double sum = 0;
            for (int i = 0; i < IN; i++)
                sum += scale * (double)whole[i * MID + o] * (double)a[r * IN + i];
            close_to((double)db[o * RANK + r], sum, 1e-5, "dB");
        }
}

TEST(gradients_follow_from_those_of_the_weight)
{
    gradients_follow("");
}

/* An adapter is multiplied as its layer is. */
TEST(gradients_of_a_scaled_layer_do_too)
{
    net_text = SCALED;
    gradients_follow("fuse,");
    net_text = SOURCE;
}

TEST(the_first_step_computes_what_the_model_did)
{
    OWNED_MODEL *adapted = step("lora:rank=2,", "none"), *plain = step("", "none");
    OWNED_PROGRAM *p = compile(adapted), *q = compile(plain);
    run(p);
    run(q);
    float loss = loss_of(q);
    assert_memory_equal(&loss, &(float){loss_of(p)}, sizeof loss);
}

TEST(frozen_weights_have_no_gradient_and_what_is_named_is_trained_whole)
{
    OWNED_MODEL *m = step("lora:rank=2,target=up,also=*.bias,", "none");
    ebb_graph *g = m->graph;
    assert_int_equal(ebb_value_find(g, "up.weight_grad").i, 0);
    assert_int_equal(ebb_value_find(g, "down.weight_grad").i, 0);
    assert_int_not_equal(ebb_value_find(g, "down.bias_grad").i, 0);
    assert_int_not_equal(ebb_value_find(g, "up.lora_A.weight_grad").i, 0);
    assert_int_equal(ebb_value_of(g, ebb_value_find(g, "up.weight"))->role, EBB_ROLE_FROZEN);
}

static float train(ebb_program *p, int steps)
{
    for (int i = 0; i < steps; i++)
        run(p);
    return loss_of(p);
}

/* What the model `m` makes of the inputs, as the loss of a step of it. */
static double loss_with(ebb_model *m, const char *first)
{
    good(ebb_rewrite(m, formatted(BEFORE "%s" AFTER, first), NULL, NULL));
    OWNED_PROGRAM *p = compile(m);
    run(p);
    double loss = (double)loss_of(p);
    ebb_close(m);
    return loss;
}

TEST(trained_adapters_are_saved_loaded_and_merged)
{
    char path[] = "/tmp/ebb_lora_XXXXXX.safetensors", passes[128];
    int fd = mkstemps(path, 12);
    assert_true(fd >= 0);
    OWNED_MODEL *adapted = step("lora:rank=2,alpha=4,", "adamw,lr=0.05");
    OWNED_PROGRAM *p = compile(adapted);
    run(p);
    double first = (double)loss_of(p);
    (void)train(p, 40);
    assert_memory_equal(get(p, "up.weight"), weights, sizeof(float) * IN * MID);
    good(ebb_adapters_save(p, path));
    ebb_model *merged = source();
    good(ebb_program_store(p, merged));
    run(p);
    double last = (double)loss_of(p);
    assert_true(last < 0.7 * first);
    close_to(loss_with(merged, ""), last, 1e-5, "the merged model's loss");
    (void)snprintf(passes, sizeof passes, "lora:file=%s,", path);
    close_to(loss_with(source(), passes), last, 0, "the loss with adapters from the file");
    ebb_data *data;
    good(ebb_data_open(&data, path, NULL));
    assert_int_equal(ebb_data_count(data), 4);
    assert_non_null(ebb_data_find(data, "base_model.model.down.lora_A.weight"));
    assert_non_null(strstr(ebb_data_metadata(data), "\"lora_alpha\":\"4\""));
    ebb_data_close(data);
    ebb_model *wrapped = NULL; // into a module of its own, to be exported
    good(ebb_text_parse_model(&wrapped, WRAPPED));
    (void)snprintf(passes, sizeof passes, "lora:file=%s,target=up", path);
    good(ebb_rewrite(wrapped, passes, NULL, NULL));
    assert_int_not_equal(ebb_value_find(wrapped->graph, "up.lora_A.weight").i, 0);
    assert_int_equal(ebb_value_find(wrapped->graph, "down.lora_A.weight").i, 0);
    ebb_close(wrapped);
    (void)remove(path);
}

TEST(what_matches_nothing_or_fits_nowhere_is_said)
{
    static const struct {
        const char *passes, *says;
    } cases[] = {
        {"lora:target=q_proj", "no layer's name matches target=q_proj"},
        {"lora:rank=0", "rank takes a whole number from 1 to 65536"},
        {"lora:alpha=-1", "alpha takes a number above 0"},
        {"lora:rank=2,also=nothing", "no weight's name matches also=nothing"},
        {"lora:rank=4,target=down", "none of the 1 layers"},
        {"lora:target=up,down", "a value with commas stands in quotes: lora:target=\"up,down\""},
        {"lora:rank=2,lora:rank=2", "--adapter PATH is pass lora:file=PATH"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        OWNED_MODEL *m = source();
        ebb_status status = ebb_rewrite(m, cases[i].passes, NULL, NULL);
        if (status == NULL || strstr(ebb_status_text(status), cases[i].says) == NULL)
            fail_msg("%s: %s", cases[i].passes,
                     status != NULL ? ebb_status_text(status) : "no error");
    }
    ebb_model *made = source(); // in one pipeline lora's place would be mended
    good(ebb_rewrite(made, "loss:mse,gradient", NULL, NULL));
    ebb_status late = ebb_rewrite(made, "lora", NULL, NULL);
    assert_true(late != NULL && strstr(ebb_status_text(late), "has a backward already") != NULL);
    ebb_close(made);
    OWNED_MODEL *plain = step("", "none");
    OWNED_PROGRAM *p = compile(plain);
    ebb_status status = ebb_adapters_save(p, "/dev/null/adapters");
    assert_int_equal(ebb_status_code(status), EBB_USAGE);
}

/* The path of a node is not the framework's where a module was called directly, and its bias kept the name, behind what is rounded to
 * codes, too; the dynamo exporter's note at a node names the module; without it somebody is told. */
TEST(modules_are_named_by_what_the_file_still_tells)
{
    static const char head[] =
        "<ir_version: 10, opset_import: [\"\" : 20]>"
        "g (float[2,4] x) => (float[2,3] y) <float[4,3] val_7_Q4 = {1,2,3,4,5,6,7,8,9,10,11,12}, "
        "float[3] \"m.fc.q.bias\" = {1,2,3}, float s = {0.1}, uint8 z = {128}> ";
    static const struct {
        const char *body, *scopes, *module;
        bool told;
    } cases[] = {
        {"{ [\"/fc/q/MatMul\"] p = MatMul (x, val_7_Q4) [\"/fc/q/Add\"] y = Add (\"m.fc.q.bias\", "
         "p) }",
         NULL, "m.fc.q", false},
        {"{ [\"/fc/q/MatMul\"] p = MatMul (x, val_7_Q4) c = QuantizeLinear (p, s, z) d = "
         "DequantizeLinear (c, s, z) "
         "y = Add (d, \"m.fc.q.bias\") }",
         NULL, "m.fc.q", false},
        {"{ [node_linear_Q4] y = MatMul (x, val_7_Q4) }", "['', 'm', 'm.fc', 'm.fc.k', 'linear']",
         "m.fc.k", false},
        {"{ [node_linear_Q4] y = MatMul (x, val_7_Q4) }", NULL, "node_linear_Q4", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[64];
        RELEASED char *report = NULL;
        OWNED_MODEL *m = parsed(formatted("%s%s", head, cases[i].body));
        ebb_graph *g = m->graph;
        const ebb_node n =
            ebb_value_of(g, ebb_value_find(g, i == 2 || i == 3 ? "y" : "p"))->producer;
        good(ebb_props_set(g, &g->props, "pkg.torch.export.ExportedProgram.graph_signature",
                           "\np_m_fc_q_weight: PARAMETER target='m.fc.q.weight'\n"
                           "p_m_fc_k_weight: PARAMETER target='m.fc.k.weight'\n"));
        if (cases[i].scopes != NULL) {
            good(ebb_props_set(g, &ebb_node_of(g, n)->props, "pkg.torch.onnx.fx_node",
                               "%linear : call_function[target=torch.ops.aten.linear.default](args "
                               "= (%x, %p_m_fc_k_weight))"));
            good(ebb_props_set(g, &ebb_node_of(g, n)->props, "pkg.torch.onnx.name_scopes",
                               cases[i].scopes));
        }
        good(ebb_rewrite(m, "fuse,lora:rank=2,target=*", NULL, &report));
        (void)snprintf(name, sizeof name, "%s.lora_A.weight", cases[i].module);
        if (ebb_value_find(g, name).i == 0)
            fail_msg("case %zu: no %s: %s", i, name, report);
        assert_int_equal(strstr(report, "PEFT will not find their adapters") != NULL,
                         cases[i].told);
    }
}

/* PEFT gives a layer of one output (a gate) the rank of all; what was saved so is read, though we would add none. */
TEST(a_file_may_have_more_rank_than_a_weight_has_rows)
{
    enum { MORE = OUT + 1 };
    char path[] = "/tmp/ebb_lora_XXXXXX.safetensors", passes[128];
    float a[MORE * MID] = {0}, b[OUT * MORE] = {0}, few_b[OUT * RANK];
    const int fd = mkstemps(path, 12);
    assert_true(fd >= 0);
    draw(a, RANK * MID, 5);
    draw(few_b, OUT * RANK, 6);
    for (int o = 0; o < OUT; o++)
        memcpy(b + o * MORE, few_b + o * RANK, RANK * sizeof *b);
    const int64_t of_a[2] = {MORE, MID}, of_b[2] = {OUT, MORE};
    const int64_t of_few_a[2] = {RANK, MID}, of_few_b[2] = {OUT, RANK};
    const ebb_named more[] = {{"base_model.model.down.lora_A.weight", EBB_F32, 2, of_a, a},
                              {"base_model.model.down.lora_B.weight", EBB_F32, 2, of_b, b}},
                    few[] = {{"base_model.model.down.lora_A.weight", EBB_F32, 2, of_few_a, a},
                             {"base_model.model.down.lora_B.weight", EBB_F32, 2, of_few_b, few_b}};
    good(ebb_tensors_save(path, few, 2, NULL));
    (void)snprintf(passes, sizeof passes, "lora:file=%s,alpha=%d,", path, RANK);
    const double same = loss_with(source(), passes);
    good(ebb_tensors_save(path, more, 2, NULL));
    (void)snprintf(passes, sizeof passes, "lora:file=%s,alpha=%d,", path, MORE);
    close_to(loss_with(source(), passes), same, 1e-6, "the loss with rows of zeros more");
    assert_true(fabs(same - loss_with(source(), "")) > 1e-3);
    (void)remove(path);
}

/* A folder as PEFT has it is written and read again; its alpha and its scaling come along. */
TEST(a_folder_of_adapters_goes_out_and_in)
{
    char folder[] = "/tmp/ebb_lora_XXXXXX", path[64], passes[128];
    assert_non_null(mkdtemp(folder));
    ebb_model *adapted = step("lora:rank=2,alpha=4,rslora=on,also=down.bias,", "adamw,lr=0.05");
    ebb_program *p = compile(adapted);
    for (int i = 0; i < 4; i++)
        run(p);
    good(ebb_adapters_check(folder));
    good(ebb_adapters_save(p, folder));
    (void)snprintf(path, sizeof path, "%s/adapter_config.json", folder);
    json_t *config = json_load_file(path, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(config, "peft_type")), "LORA");
    assert_int_equal(json_integer_value(json_object_get(config, "r")), 2);
    assert_int_equal(json_integer_value(json_object_get(config, "lora_alpha")), 4);
    assert_true(json_is_true(json_object_get(config, "use_rslora")));
    assert_int_equal(json_array_size(json_object_get(config, "target_modules")), 2);
    assert_int_equal(json_array_size(json_object_get(config, "modules_to_save")), 1);
    json_decref(config);
    const float b = get(p, "up.lora_B.weight")[3], bias = get(p, "down.bias")[1];
    (void)snprintf(passes, sizeof passes, "lora:file=%s,", folder);
    ebb_model *again = step(passes, "none"), *scaled;
    ebb_program *q = compile(again);
    run(q);
    assert_true(get(q, "up.lora_B.weight")[3] == b && b != 0);
    assert_true(get(q, "down.bias")[1] == bias && bias != weights[IN * MID + OUT * MID + 1]);
    const ebb_graph *here = again->graph;
    const char *root =
        ebb_props_get(here, &ebb_value_of(here, ebb_value_find(here, "up.lora_B.weight"))->props,
                      "ebb.adapter.scale");
    assert_true(fabs(strtod(root, NULL) - 4 / sqrt(2)) < 1e-12);
    (void)snprintf(passes, sizeof passes, "lora:file=%s,rslora=off,", folder);
    scaled = step(passes, "none");
    const ebb_graph *g = scaled->graph;
    const char *scale = ebb_props_get(
        g, &ebb_value_of(g, ebb_value_find(g, "up.lora_B.weight"))->props, "ebb.adapter.scale");
    assert_string_equal(scale, "2");
    ebb_close(scaled);
    ebb_program_free(q);
    ebb_close(again);
    ebb_program_free(p);
    ebb_close(adapted);
    (void)remove(path);
    (void)snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    (void)remove(path);
    (void)rmdir(folder);
}

#define PACKED                                                                                    \
    "<ir_version: 10, opset_import: [\"\" : 20]>"                                                 \
    "g (float[6,5] x) => (float[6,1] y) <float[5,7] \"onnx::MatMul_1\", int64[1] a = {0}, "       \
    "int64[1] b = {3}, "                                                                          \
    "int64[1] c = {5}, int64[1] d = {7}, int64[1] last = {1}> "                                   \
    "{ [\"/attn/qkv_proj/MatMul\"] h = MatMul (x, \"onnx::MatMul_1\") q = Slice (h, a, b, last) " \
    "k = Slice (h, b, c, last) v = Slice (h, c, d, last) t = ReduceSum (q, last) "                \
    "u = ReduceProd (k) z = ReduceSum (v, last) m = Add (t, u) y = Add (m, z) }"

/* q, k and v of one product have an adapter each, of their own rows; what is merged is their sum. */
static void try_packed(const char *passes)
{
    OWNED_MODEL *m = NULL, *to = NULL;
    good(ebb_text_parse_model(&m, PACKED));
    good(ebb_text_parse_model(&to, PACKED));
    for (int k = 0; k < 2; k++) {
        ebb_graph *g = (k == 0 ? m : to)->graph;
        good(ebb_value_point(g, ebb_value_find(g, "onnx::MatMul_1"), weights));
    }
    good(ebb_rewrite(m, passes, NULL, NULL));
    assert_int_equal(ebb_value_find(m->graph, "attn.q_proj.lora_B.weight").i, 0);
    OWNED_PROGRAM *p = compile(m), *merged = NULL;
    static const int64_t of_x[2] = {ROWS, IN}, of_y[2] = {ROWS, 1};
    const ebb_named tensors[2] = {{"x", 1, 2, of_x, inputs}, {"target", 1, 2, of_y, targets}};
    for (int i = 0; i < 3; i++)
        good(ebb_program_step(p, &(ebb_batch){tensors, 2}));
    good(ebb_program_store(p, to));
    good(ebb_program_step(p, &(ebb_batch){tensors, 2}));
    const float loss = loss_of(p);
    good(ebb_rewrite(to, "loss:mse", NULL, NULL));
    merged = compile(to);
    good(ebb_program_step(merged, &(ebb_batch){tensors, 2}));
    close_to((double)loss_of(merged), (double)loss, 1e-5, "loss of the merged");
    const ebb_tensor *w =
        ebb_value_of(to->graph, ebb_value_find(to->graph, "onnx::MatMul_1"))->tensor;
    for (int i = 0; i < IN; i++)
        for (int k = 0; k < MID; k++) // q has none
            assert_true((k < 3) == (((const float *)w->data)[i * MID + k] == weights[i * MID + k]));
}

/* Slices may end beyond the axis; and what the framework itself calls qkv_proj is one module. */
TEST(parts_end_where_the_rows_do)
{
    static const char *const names[2] = {"/attn/qkv_proj/MatMul",
                                         "/layers.0/self_attn/qkv_proj/MatMul"};
    for (int own = 0; own < 2; own++) {
        OWNED_MODEL *m = parsed(
            formatted("<ir_version: 10, opset_import: [\"\" : 20]>"
                      "g (float[6,5] x) => (float[6,1] y) <float[5,9] \"onnx::MatMul_1\", "
                      "int64[1] a = {0}, int64[1] b = {3}, int64[1] c = {-3}, "
                      "int64[1] d = {9223372036854775807}, int64[1] last = {1}> "
                      "{ [\"%s\"] h = MatMul (x, \"onnx::MatMul_1\") q = Slice (h, a, b, last) "
                      "k = Slice (h, b, c, last) v = Slice (h, c, d, last) t = Add (q, k) "
                      "u = Add (t, v) y = ReduceSum (u, last) }",
                      names[own]));
        good(ebb_value_point(m->graph, ebb_value_find(m->graph, "onnx::MatMul_1"), weights));
        good(ebb_rewrite(m, "loss:mse,lora:rank=2", NULL, NULL));
        assert_int_equal(ebb_value_find(m->graph, "attn.v_proj.lora_B.weight").i != 0, own == 0);
        assert_int_equal(
            ebb_value_find(m->graph, "layers.0.self_attn.qkv_proj.lora_B.weight").i != 0, own == 1);
    }
}

TEST(packed_rows_have_adapters_of_their_own)
{
#define ADAMW ",target=*k_proj;*v_proj,gradient,optimizer:adamw,lr=0.1"
    try_packed("loss:mse,lora:rank=2,alpha=3" ADAMW);
    try_packed("loss:mse,lora:rank=2,alpha=3,form=dora" ADAMW);
}

/* LoRA-FA: the input of a layer is not kept where only B is trained. */
TEST(a_frozen_a_keeps_a_narrow_product)
{
    OWNED_MODEL *m = step("lora:rank=2,target=up,train=b,", "none");
    const ebb_graph *g = m->graph;
    assert_int_equal(ebb_value_find(g, "up.lora_A.weight_grad").i, 0);
    assert_int_not_equal(ebb_value_find(g, "up.lora_B.weight_grad").i, 0);
    const ebb_value_info *x = ebb_value_of(g, ebb_value_find(g, "x"));
    for (size_t i = 0; i < x->use_count; i++)
        assert_int_not_equal(ebb_node_of(g, x->uses[i].node)->phase, EBB_BACKWARD);
}

/* With nearly all of its input dropped an adapter says little; what the layer itself reads stays. */
TEST(dropout_is_of_the_adapter_alone)
{
    OWNED_MODEL *m = step("lora:rank=2,target=up,dropout=0.5,", "none"), *plain = step("", "none");
    OWNED_PROGRAM *p = compile(m), *q = compile(plain);
    run(p);
    run(q);
    assert_true(loss_of(p) == loss_of(q)); // B is zero
    const ebb_graph *g = m->graph;
    assert_int_not_equal(ebb_value_find(g, "ebb.key").i, 0);
}

int main(void)
{
    draw_net();
    return run_listed();
}
