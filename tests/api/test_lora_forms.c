/* test_lora_forms.c: the forms of adapters: DoRA held against what PEFT computed (dora.py, dora.json), PaCA against the
 * weight itself, trained in those columns alone. */
#include "exec/data/ort_checkpoint.h"
#include "tests/api/lora_net.h"
#include "tests/formatted.h"
#include "tests/owned.h"

static json_t *recorded;

static double number(const char *kind, const char *name, size_t i)
{
    const json_t *list = json_object_get(json_object_get(recorded, kind), name);
    const json_t *row = json_array_get(list, 0);
    if (!json_is_array(row))
        return json_real_value(json_array_get(list, i));
    const size_t columns = json_array_size(row);
    return json_real_value(json_array_get(json_array_get(list, i / columns), i % columns));
}

static void agree(const float *got, size_t count, const char *kind, const char *name)
{
    double most = 0, off = 0;
    for (size_t i = 0; i < count; i++) {
        most = fmax(most, fabs(number(kind, name, i)));
        off = fmax(off, fabs((double)got[i] - number(kind, name, i)));
    }
    if (!(most > 0 && off <= 2e-6 * most))
        fail_msg("%s of %s: %.3g of %.3g off", kind, name, off, most);
}

static size_t elements_of(const ebb_named *t)
{
    size_t count = 1;
    for (int d = 0; d < t->rank; d++)
        count *= (size_t)t->dims[d];
    return count;
}

/* Adapters of the numbers that PEFT had. */
static void give_recorded(ebb_program *p)
{
    const char *name;
    json_t *list;
    json_object_foreach(json_object_get(recorded, "given"), name, list) {
        ebb_named t;
        float values[MID * MID];
        good(ebb_program_get(p, name, &t));
        for (size_t i = 0; i < elements_of(&t); i++)
            values[i] = (float)number("given", name, i);
        t.data = values;
        good(ebb_program_set(p, &t));
    }
}

TEST(dora_has_the_gradients_that_peft_gives_it)
{
    OWNED_MODEL *m = step("lora:rank=2,alpha=3,form=dora,", "none");
    OWNED_PROGRAM *p = compile(m);
    const char *name;
    json_t *list;
    agree(get(p, "up.lora_magnitude_vector"), MID, "starts", "up.lora_magnitude_vector");
    agree(get(p, "down.lora_magnitude_vector"), OUT, "starts", "down.lora_magnitude_vector");
    give_recorded(p);
    run(p);
    close_to((double)loss_of(p), json_real_value(json_object_get(recorded, "loss")), 1e-6, "loss");
    json_object_foreach(json_object_get(recorded, "grads"), name, list) {
        ebb_named t;
        good(ebb_program_get(p, formatted("%s_grad", name), &t));
        agree(t.data, elements_of(&t), "grads", name);
    }
}

TEST(dora_is_merged_as_peft_merges_it)
{
    OWNED_MODEL *m = step("lora:rank=2,alpha=3,form=dora,", "none"), *merged = source();
    OWNED_PROGRAM *p = compile(m);
    give_recorded(p);
    good(ebb_program_store(p, merged));
    static const char *const names[] = {"up.weight", "down.weight"};
    for (int k = 0; k < 2; k++) {
        const ebb_value v = ebb_value_find(merged->graph, names[k]);
        const ebb_tensor *t = ebb_value_of(merged->graph, v)->tensor;
        agree(t->data, t->bytes / sizeof(float), "merged", names[k]);
    }
}

TEST(the_first_step_computes_what_the_model_did)
{
    static const char *const forms[] = {"lora:rank=2,form=dora,", "lora:rank=2,form=paca,"};
    for (int k = 0; k < 2; k++) {
        OWNED_MODEL *adapted = step(forms[k], "none"), *plain = step("", "none");
        OWNED_PROGRAM *p = compile(adapted), *q = compile(plain);
        run(p);
        run(q);
        assert_true(loss_of(p) == loss_of(q));
    }
}

/* ---- a folder of PEFT ---- */

static void remove_folder(const char *folder)
{
    static const char *const files[] = {"adapter_config.json", "adapter_model.safetensors"};
    for (int k = 0; k < 2; k++) {
        assert_int_equal(remove(formatted("%s/%s", folder, files[k])), 0);
    }
    (void)rmdir(folder);
}

/* Steps, a folder, and the loss with adapters from that folder. */
static void goes_out_and_in(const char *passes, const char *other, bool dora)
{
    char folder[] = "/tmp/ebb_forms_XXXXXX", path[128], again[128];
    assert_non_null(mkdtemp(folder));
    ebb_model *adapted = step(passes, "adamw,lr=0.05"), *read;
    ebb_program *p = compile(adapted), *q;
    for (int i = 0; i < 4; i++)
        run(p);
    good(ebb_adapters_save(p, folder));
    run(p); // the loss before it is trained once more
    (void)snprintf(path, sizeof path, "%s/adapter_config.json", folder);
    json_t *config = json_load_file(path, 0, NULL);
    assert_true(json_is_true(json_object_get(config, "use_dora")) == dora);
    json_decref(config);
    (void)snprintf(again, sizeof again, "lora:file=%s,", folder);
    read = step(again, "adamw,lr=0.05");
    q = compile(read);
    run(q);
    assert_true(loss_of(p) == loss_of(q));
    run(p);
    run(q);
    assert_true(ebb_value_find(read->graph, "up.lora_A.weight_grad").i != 0 || !dora);
    ebb_model *wrong = source();
    (void)snprintf(again, sizeof again, "lora:file=%s,form=%s", folder, other);
    ebb_status status = ebb_rewrite(wrong, again, NULL, NULL);
    assert_true(status != NULL && strstr(ebb_status_text(status), "has adapters of form=") != NULL);
    ebb_close(wrong);
    ebb_program_free(p);
    ebb_program_free(q);
    ebb_close(adapted);
    ebb_close(read);
    remove_folder(folder);
}

TEST(a_folder_keeps_the_form)
{
    goes_out_and_in("lora:rank=2,alpha=3,form=dora,", "lora", true);
    goes_out_and_in("lora:rank=2,form=paca,", "dora", false);
}

/* ---- a file of ONNX Runtime ---- */

static ebb_status save_as_adapter(const char *passes, const char *path, float *loss)
{
    OWNED_MODEL *adapted = step(passes, "adamw,lr=0.05");
    OWNED_PROGRAM *p = compile(adapted);
    for (int i = 0; i < 4; i++)
        run(p);
    ebb_status status = ebb_adapters_save(p, path);
    run(p);
    *loss = loss_of(p);
    return status;
}

TEST(a_file_of_onnx_runtime_goes_out_and_in)
{
    char path[] = "/tmp/ebb_forms_XXXXXX.onnx_adapter", again[128];
    float loss;
    const int fd = mkstemps(path, 13);
    assert_true(fd >= 0 && close(fd) == 0);
    good(save_as_adapter("lora:rank=2,alpha=3,", path, &loss));
    ebb_data *data;
    good(ebb_data_open(&data, path, NULL));
    assert_int_equal(ebb_data_count(data), 4);
    const ebb_named *a = ebb_data_find(data, "up.lora_A.weight");
    assert_true(a != NULL && a->rank == 2 && a->dims[0] == IN && a->dims[1] == RANK);
    ebb_data_close(data);
    (void)snprintf(again, sizeof again, "lora:file=%s,", path);
    ebb_model *read = step(again, "none");
    ebb_program *q = compile(read);
    run(q);
    close_to((double)loss_of(q), (double)loss, 1e-6, "loss"); // B is rounded with its scale
    ebb_program_free(q);
    ebb_close(read);
    ebb_status status = save_as_adapter("lora:rank=2,form=dora,", path, &loss);
    assert_true(status != NULL && strstr(ebb_status_text(status), "lengths of rows") != NULL);
    status = save_as_adapter("lora:rank=2,also=down.bias,", path, &loss);
    assert_true(status != NULL && strstr(ebb_status_text(status), "trained whole") != NULL);
    (void)remove(path);
}

/* Every cut of the file, and every byte changed, is read or refused. */
TEST(a_broken_file_of_onnx_runtime_is_refused)
{
    char path[] = "/tmp/ebb_forms_XXXXXX.onnx_adapter";
    unsigned char bytes[4096];
    float loss;
    const int fd = mkstemps(path, 13);
    assert_true(fd >= 0 && close(fd) == 0);
    good(save_as_adapter("lora:rank=2,alpha=3,", path, &loss));
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    const size_t size = fread(bytes, 1, sizeof bytes, f);
    (void)fclose(f);
    assert_true(size > 300 && size < sizeof bytes);
    size_t refused = 0;
    for (size_t i = 0; i < 2 * size; i++) {
        ebb_data data;
        FREED unsigned char *copy = malloc(size);
        assert_non_null(copy);
        memcpy(copy, bytes, size);
        if (i < size)
            copy[i] ^= 0xFF;
        good(ebb_data_init(&data, "broken"));
        refused += ebb_ort_adapter_parse(&data, copy, i < size ? size : i - size) != NULL;
        ebb_data_fini(&data);
    }
    assert_true(refused > size);
    (void)remove(path);
}

/* ---- PaCA ---- */

/* Which column each row of A picks; no two the same one. */
static void columns_of(const float *a, int rank, int columns, int *picked)
{
    for (int r = 0; r < rank; r++) {
        double sum = 0;
        for (int i = 0; i < columns; i++) {
            const float x = a[r * columns + i];
            assert_true(x == 0.0f || x == 1.0f);
            sum += (double)x;
            picked[r] = x == 1.0f ? i : picked[r];
        }
        assert_true(sum == 1 && (r == 0 || picked[r] != picked[r - 1]));
    }
}

/* B has the gradient of the weight's columns, and the step keeps these of the input alone. */
TEST(paca_trains_columns_of_the_weight)
{
    int picked[RANK] = {0};
    OWNED_MODEL *m = step("lora:rank=2,form=paca,target=up,", "none"), *plain = step("", "none");
    OWNED_PROGRAM *p = compile(m), *q = compile(plain);
    const ebb_graph *g = m->graph;
    float b[MID * RANK], moved[IN * MID];
    draw(b, MID * RANK, 9);
    columns_of(get(p, "up.lora_A.weight"), RANK, IN, picked);
    memcpy(moved, weights, sizeof moved);
    for (int o = 0; o < MID; o++)
        for (int r = 0; r < RANK; r++)
            moved[picked[r] * MID + o] += b[o * RANK + r];
    static const int64_t of_b[2] = {MID, RANK}, of_w[2] = {IN, MID};
    good(ebb_program_set(p, &(ebb_named){"up.lora_B.weight", 1, 2, of_b, b}));
    good(ebb_program_set(q, &(ebb_named){"up.weight", 1, 2, of_w, moved}));
    run(p);
    run(q);
    close_to((double)loss_of(p), (double)loss_of(q), 1e-6, "loss");
    const float *whole = get(q, "up.weight_grad"), *some = get(p, "up.lora_B.weight_grad");
    for (int o = 0; o < MID; o++)
        for (int r = 0; r < RANK; r++)
            close_to((double)some[o * RANK + r], (double)whole[picked[r] * MID + o], 1e-6, "dB");
    assert_int_equal(ebb_value_find(g, "up.lora_A.weight_grad").i, 0);
    const ebb_value_info *x = ebb_value_of(g, ebb_value_find(g, "x"));
    for (size_t i = 0; i < x->use_count; i++)
        assert_int_not_equal(ebb_node_of(g, x->uses[i].node)->phase, EBB_BACKWARD);
}

TEST(merged_columns_are_the_weight)
{
    int picked[RANK] = {0};
    OWNED_MODEL *m = step("lora:rank=2,form=paca,target=up,seed=3,", "adamw,lr=0.05"),
                *to = source();
    OWNED_PROGRAM *p = compile(m);
    for (int i = 0; i < 3; i++)
        run(p);
    columns_of(get(p, "up.lora_A.weight"), RANK, IN, picked);
    good(ebb_program_store(p, to));
    const ebb_tensor *t = ebb_value_of(to->graph, ebb_value_find(to->graph, "up.weight"))->tensor;
    for (int i = 0; i < IN; i++)
        for (int o = 0; o < MID; o++)
            assert_true((((const float *)t->data)[i * MID + o] != weights[i * MID + o]) ==
                        (i == picked[0] || i == picked[1]));
}

TEST(what_does_not_go_together_is_said)
{
    static const struct {
        const char *passes, *says;
    } cases[] = {
        {"lora:form=dora,dropout=0.1", "form=dora takes no dropout"},
        {"lora:form=paca,alpha=3", "form=paca takes neither alpha nor rslora"},
        {"lora:form=dora,qalora=on", "qalora=on takes form=lora alone, not dora"},
        {"lora:form=other", "form"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        OWNED_MODEL *m = source();
        ebb_status status = ebb_rewrite(m, cases[i].passes, NULL, NULL);
        if (status == NULL || strstr(ebb_status_text(status), cases[i].says) == NULL)
            fail_msg("%s: %s", cases[i].passes, status != NULL ? ebb_status_text(status) : "none");
    }
    OWNED_MODEL *bare = NULL;
    good(ebb_text_parse_model(&bare, SOURCE)); // without bytes
    ebb_status status = ebb_rewrite(bare, "lora:rank=2,form=dora", NULL, NULL);
    assert_true(status != NULL && strstr(ebb_status_text(status), "bytes are there") != NULL);
}

int main(void)
{
    draw_net();
    recorded = json_load_file(EBB_SOURCE_DIR "/tests/api/dora.json", 0, NULL);
    const int failed = run_listed();
    json_decref(recorded);
    return failed;
}
