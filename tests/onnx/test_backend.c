/* test_backend.c: the ONNX project's own tests, on our kernels: single nodes, small models, what
 * PyTorch exported long ago, and large networks with constant weights ("light").
 *
 * Each folder holds a model and data sets: inputs and the outputs to expect. Inputs become
 * constants, so that inference sees what it would fold; then node by node: types, kernel, run. A
 * test counts as
 *   passed         every output agrees
 *   failed         an output differs, or something broke on the way though a kernel took the node
 *   not supported  an operator without a row, a kernel that declines, a type that is no tensor
 *   random         draws by our own generator, so there is nothing to compare
 *
 * Those that do not pass stand in not_passed.txt with their reasons, which docs/operators.md shows;
 * EBB_GOLDEN=update writes it anew.
 *
 * The folder: $EBB_ONNX_TESTS, or .oracles/onnx-1.22.0/onnx/backend/test/data (tests/run.sh).
 * $EBB_ONNX_SHOW=1 prints the reason of each test that is not supported; =NAME runs that one only.
 */

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/weigh/call.h"
#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "ebb.h"
#include "tests/formatted.h"
#include "tests/test.h"

#define DEFAULT_FOLDER EBB_SOURCE_DIR "/.oracles/onnx-1.22.0/onnx/backend/test/data"

#define NOT_PASSED EBB_SOURCE_DIR "/tests/onnx/not_passed.txt"

/* Of the folder above, so that none is lost unseen. */
enum { PASS_IN_1_22 = 1797, PASS_ON_CUDA = 1797, LIGHT_IN_1_22 = 9 };

typedef enum verdict { PASSED, FAILED, NOT_SUPPORTED, RANDOM, VERDICTS } verdict;

typedef struct trial { /* one data set of one model */
    ebb_model *model;
    const char *folder;
    bool light; /* the outputs lie beside the model; inputs count from 0 up to 1 */
    char why[1024];
} trial;

/* The first operator that the table lacks, in words; NULL: it has all. */
static const char *without_row(const ebb_graph *g)
{
    static char text[256];
    EBB_EACH_NODE(g, n)
        if (ebb_node_of(g, n)->op == EBB_OP_UNKNOWN) {
            const char *domain = ebb_text(g, ebb_node_of(g, n)->domain);
            (void)snprintf(text, sizeof text, "%s%s%s of opset %lld has no row in the table",
                           domain, *domain != '\0' ? "." : "",
                           ebb_text(g, ebb_node_of(g, n)->op_name),
                           (long long)ebb_model_opset(g->model, domain));
            return text;
        }
    return NULL;
}

static verdict say(trial *t, verdict v, const char *text)
{
    (void)snprintf(t->why, sizeof t->why, "%s", text);
    for (char *p = t->why; *p != '\0'; p++)
        if (*p == '\n')
            *p = ' ';
    return v;
}

static verdict of_status(trial *t, ebb_status status)
{
    return say(t, ebb_status_code(status) == EBB_UNSUPPORTED ? NOT_SUPPORTED : FAILED,
               ebb_status_text(status));
}

static const char *data_path(char *path, size_t size, const trial *t, const char *kind, size_t i)
{
    (void)snprintf(path, size, t->light ? "%s_%s_%zu.pb" : "%s/%s_%zu.pb", t->folder, kind, i);
    return path;
}

/* The value holds this tensor from now on. */
static ebb_status hold(ebb_model *m, ebb_value v, const ebb_tensor *tensor)
{
    ebb_tensor *own = ebb_arena_alloc(&m->arena, sizeof *own);
    if (own == NULL)
        return ebb_error_memory();
    *own = *tensor;
    ebb_value_info *info = ebb_value_of(m->graph, v);
    info->tensor = own;
    info->flags = (uint8_t)((info->flags & ~EBB_IS_INPUT) | EBB_IS_INITIALIZER);
    return ebb_value_set_type(m->graph, v, &own->type);
}

static bool is_plain(const ebb_type *type)
{
    return ebb_dtype_bits((ebb_dtype)type->dtype) > 0;
}

/* As ONNX's own runner makes them. */
static ebb_status count_up(trial *t, ebb_value v)
{
    ebb_tensor tensor = {.type = *ebb_value_of(t->model->graph, v)->type};
    int64_t count;
    if (tensor.type.dtype != EBB_F32 || !ebb_type_elements(&tensor.type, &count))
        return ebb_error(EBB_UNSUPPORTED, "an input has no size or is not float32");
    float *data = ebb_arena_alloc(&t->model->arena, ((size_t)count + 1) * sizeof *data);
    if (data == NULL)
        return ebb_error_memory();
    for (int64_t i = 0; i < count; i++)
        data[i] = (float)((double)i / (double)count);
    tensor.data = data;
    tensor.bytes = (size_t)count * sizeof *data;
    return hold(t->model, v, &tensor);
}

static verdict give_inputs(trial *t)
{
    ebb_graph *g = t->model->graph;
    for (size_t i = 0; i < g->input_count; i++) {
        char path[2200];
        ebb_tensor tensor;
        const char *name = NULL;
        const ebb_type *type = ebb_value_of(g, g->inputs[i])->type;
        if (type->kind != EBB_KIND_TENSOR || !is_plain(type))
            return say(t, NOT_SUPPORTED, "an input is no plain tensor");
        ebb_status status = NULL;
        if (t->light) {
            ebb_value_info *info = ebb_value_of(g, g->inputs[i]);
            if ((info->flags & EBB_IS_INITIALIZER) == 0)
                status = count_up(t, g->inputs[i]);
            info->flags &= (uint8_t)~EBB_IS_INPUT;
            if (status != NULL)
                return of_status(t, status);
            continue;
        }
        if (access(data_path(path, sizeof path, t, "input", i), R_OK) != 0)
            continue;
        status = ebb_tensor_read_pb(&tensor, &name, &t->model->arena, path);
        if (status == NULL && tensor.data == NULL && tensor.bytes != 0)
            return say(t, NOT_SUPPORTED, "an input is no plain tensor");
        if (status == NULL)
            status = hold(t->model, g->inputs[i], &tensor);
        if (status != NULL)
            return of_status(t, status);
    }
    return PASSED;
}

/* As exec runs a step of one call. The device's memory is the host's here: see kernels/cuda/host.
 */
static ebb_status run_on(const ebb_device *device, ebb_call *c)
{
    ebb_fault fault = {0};
    bool replays;
    EBB_TRY(device->begin(c->queue, 0, &replays));
    ebb_status status = c->kernel->run(c);
    EBB_TRY(device->end(c->queue, &fault));
    if (status == NULL && fault.there)
        return ebb_call_error(c, "index %lld is outside %lld..%lld", (long long)fault.value,
                              (long long)fault.low, (long long)fault.high - 1);
    return status;
}

/* Operands get memory of exactly their size, so that a sanitizer sees the first byte too far; or
 * of the device, where cuda/ptx looks at that. */
static void *take(const ebb_call *c, size_t align, size_t bytes)
{
    void *p = NULL;
    bytes += bytes == 0;
    if (getenv("EBB_TEST_BACKEND") != NULL)
        assert_null(c->backends[0]->device->allocate(c->queue, bytes, &p));
    else
        assert_int_equal(posix_memalign(&p, align, bytes), 0);
    return p;
}

static void give_back(const ebb_call *c, void *p)
{
    if (getenv("EBB_TEST_BACKEND") == NULL)
        free(p);
    else
        c->backends[0]->device->release(c->queue, p);
}

static ebb_status compute(ebb_call *c)
{
    if (c->kernel->workspace != NULL)
        EBB_TRY(c->kernel->workspace(c, &c->workspace_bytes));
    c->workspace = take(c, 64, c->workspace_bytes);
    ebb_status status = c->kernel->prepare != NULL ? c->kernel->prepare(c) : NULL;
    if (status == NULL)
        status = run_on(c->backends[0]->device, c);
    if (c->kernel->release != NULL && c->state != NULL)
        c->kernel->release(c);
    give_back(c, c->workspace);
    return status;
}

static ebb_status run_node(trial *t, ebb_node n, const char *backend)
{
    ebb_model *m = t->model;
    const ebb_graph *g = m->graph;
    ebb_call c;
    EBB_TRY(ebb_call_make(&c, &m->arena, g, n, 0));
    const ebb_backend *const *backends;
    EBB_TRY(ebb_backends(backend, &backends));
    EBB_TRY(ebb_pick(&c, backends));
    const ebb_device *device = c.backends[0]->device;
    EBB_TRY(device->open(&c.queue));
    ebb_status status = NULL;
    for (uint32_t i = 0; i < c.input_count; i++) {
        if (c.in[i].type.dtype == EBB_NONE)
            continue;
        const ebb_tensor *tensor = ebb_value_of(g, ebb_in(g, n, i))->tensor;
        c.in[i].data = take(&c, 16, c.in[i].bytes);
        if (tensor == NULL || tensor->bytes != c.in[i].bytes)
            status = ebb_call_error(&c, "input %u has no value", i);
        else if (tensor->bytes != 0)
            status = device->write(c.queue, c.in[i].data, tensor->data, tensor->bytes);
    }
    for (uint32_t o = 0; o < c.output_count; o++) {
        if (c.out[o].type.dtype == EBB_NONE)
            continue;
        c.out[o].data = take(&c, 16, c.out[o].bytes);
        memset(c.out[o].data, 0xFF, c.out[o].bytes);
    }
    if (status == NULL)
        status = compute(&c);
    for (uint32_t o = 0; o < c.output_count; o++) {
        if (c.out[o].type.dtype == EBB_NONE)
            continue;
        void *keep = ebb_arena_alloc(&m->arena, c.out[o].bytes + 1);
        assert_non_null(keep);
        memcpy(keep, c.out[o].data, c.out[o].bytes);
        ebb_tensor made = {.type = c.out[o].type, .data = keep, .bytes = c.out[o].bytes};
        if (status == NULL)
            status = hold(m, ebb_out(g, n, o), &made);
        give_back(&c, c.out[o].data);
    }
    for (uint32_t i = 0; i < c.input_count; i++)
        if (c.in[i].data != NULL)
            give_back(&c, c.in[i].data);
    device->close(c.queue);
    return status;
}

/* The size of the largest element, at least 1: what was computed in float32 beside it is noise
 * below its last place, and ONNX's files have such noise where the true value is 0. */
static double scale_of(const ebb_tensor *t, int64_t count)
{
    double most = 1;
    for (int64_t i = 0; i < count; i++) {
        double size = fabs(ebb_tensor_double(t, i));
        most = isfinite(size) && size > most ? size : most;
    }
    return most;
}

/* The tolerance of ONNX's own runner: 1e-3 relative, 1e-7 absolute, this one of the largest
 * element; 16-bit floats 1e-2. */
static verdict compare(trial *t, const ebb_tensor *got, const ebb_tensor *expected, size_t output)
{
    char text[256], a[100], b[100];
    if (got == NULL || got->type.dtype != expected->type.dtype ||
        !ebb_type_same_shape(&got->type, &expected->type)) {
        (void)snprintf(text, sizeof text, "output %zu is %s, expected %s", output,
                       got == NULL ? "missing" : ebb_type_print(a, sizeof a, &got->type, NULL),
                       ebb_type_print(b, sizeof b, &expected->type, NULL));
        return say(t, FAILED, text);
    }
    bool real = ebb_dtype_is_float((ebb_dtype)expected->type.dtype) ||
                ebb_dtype_is_small_float((ebb_dtype)expected->type.dtype);
    double relative = ebb_dtype_bits((ebb_dtype)expected->type.dtype) == 16 ? 1e-2 : 1e-3;
    int64_t count = 0;
    if (!ebb_type_elements(&expected->type, &count))
        return say(t, FAILED, "an expected output has no size");
    double absolute = real ? 1e-7 * scale_of(expected, count) : 0;
    for (int64_t i = 0; i < count; i++) {
        double x = real ? ebb_tensor_double(got, i) : (double)ebb_tensor_int(got, i);
        double y = real ? ebb_tensor_double(expected, i) : (double)ebb_tensor_int(expected, i);
        bool same = x == y || (isnan(x) && isnan(y)) ||
                    (real && fabs(x - y) <= absolute + relative * fabs(y));
        if (same)
            continue;
        (void)snprintf(text, sizeof text, "output %zu, element %lld is %.9g, expected %.9g", output,
                       (long long)i, x, y);
        return say(t, FAILED, text);
    }
    return PASSED;
}

static bool has_any_of(const ebb_graph *g, const char *const *names)
{
    EBB_EACH_NODE(g, n)
        for (size_t i = 0; names[i] != NULL; i++)
            if (strcmp(ebb_text(g, ebb_node_of(g, n)->op_name), names[i]) == 0)
                return true;
    return false;
}

/* What no kernel computes and a pass makes nodes of. */
static bool needs_a_pass(const ebb_graph *g)
{
    static const char *const names[] = {
        "If", "Loop", "Scan", "Gradient", "SplitToSequence", "SequenceConstruct", "SequenceEmpty",
        NULL};
    return has_any_of(g, names);
}

/* What stands for other operators, which every verb of ebb puts in first. */
static ebb_status put_in(ebb_model *m)
{
    static const char *const names[] = {"FlexAttention",      "Bernoulli",          "Optional",
                                        "OptionalGetElement", "OptionalHasElement", NULL};
    return has_any_of(m->graph, names) ? ebb_rewrite(m, "inline", NULL, NULL) : NULL;
}

/* The inputs that have values are initializers in earnest, which a pass may ask for. */
static ebb_status list_inputs_as_initializers(ebb_graph *g)
{
    size_t count = g->initializer_count, kept = 0;
    ebb_value *list = EBB_NEW(&g->model->arena, ebb_value, count + g->input_count + 1);
    if (list == NULL)
        return ebb_error_memory();
    if (count > 0)
        memcpy(list, g->initializers, count * sizeof *list);
    for (size_t i = 0; i < g->input_count; i++) {
        if ((ebb_value_of(g, g->inputs[i])->flags & EBB_IS_INPUT) != 0)
            g->inputs[kept++] = g->inputs[i];
        else
            list[count++] = g->inputs[i];
    }
    g->input_count = kept;
    g->initializers = list;
    g->initializer_count = g->initializer_capacity = count;
    return NULL;
}

static verdict run_trial(trial *t, const char *backend)
{
    ebb_graph *g = t->model->graph;
    bool random = false;
    ebb_status inlined = put_in(t->model);
    if (inlined != NULL)
        return of_status(t, inlined);
    if (without_row(g) != NULL)
        return say(t, NOT_SUPPORTED, without_row(g));
    for (size_t i = 0; i < g->output_count; i++)
        if (ebb_value_of(g, g->outputs[i])->type->kind != EBB_KIND_TENSOR ||
            !is_plain(ebb_value_of(g, g->outputs[i])->type))
            return say(t, NOT_SUPPORTED, "an output is no plain tensor");
    verdict v = give_inputs(t);
    if (v != PASSED)
        return v;
    if (needs_a_pass(g)) {
        ebb_status status = list_inputs_as_initializers(g);
        if (status == NULL)
            status = ebb_rewrite(t->model, "differentiate,unroll,fold", NULL, NULL);
        if (status != NULL)
            return of_status(t, status);
    }
    EBB_EACH_NODE(g, n) {
        if (ebb_op_has(ebb_node_of(g, n)->op, EBB_RANDOM))
            random = random || strstr(t->folder, "training") != NULL ||
                     ebb_node_of(g, n)->op != EBB_OP_DROPOUT;
        ebb_status status = ebb_infer_node(g, n);
        if (status == NULL)
            status = run_node(t, n, backend);
        if (status != NULL)
            return of_status(t, status);
    }
    for (size_t i = 0; i < g->output_count; i++) {
        char path[2200];
        ebb_tensor expected;
        const char *name = NULL;
        ebb_status status = ebb_tensor_read_pb(&expected, &name, &t->model->arena,
                                               data_path(path, sizeof path, t, "output", i));
        if (status != NULL)
            return of_status(t, status);
        v = random ? RANDOM : compare(t, ebb_value_of(g, g->outputs[i])->tensor, &expected, i);
        if (v != PASSED)
            return v;
    }
    return PASSED;
}

/* Each data set of the folder, with a fresh model; the worst verdict. */
static verdict run_folder(const char *folder, const char *backend, char *why, size_t size)
{
    char path[2048], data[2048];
    (void)snprintf(path, sizeof path, "%s/model.onnx", folder);
    for (int set = 0;; set++) {
        (void)snprintf(data, sizeof data, "%s/test_data_set_%d", folder, set);
        if (access(data, R_OK) != 0)
            return set > 0 ? PASSED : NOT_SUPPORTED;
        trial t = {.folder = data};
        ebb_status status = ebb_model_read(&t.model, path);
        verdict v = status != NULL ? of_status(&t, status) : run_trial(&t, backend);
        (void)snprintf(why, size, "%s", t.why);
        ebb_model_free(t.model);
        if (v != PASSED)
            return v;
    }
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_test(const struct dirent *entry)
{
    return strncmp(entry->d_name, "test_", 5) == 0;
}

/* Notes what did not pass where `seen` is there. */
static int run_all(const char *folder, const char *backend, int counts[VERDICTS], FILE *seen)
{
    struct dirent **list = NULL;
    const char *show = getenv("EBB_ONNX_SHOW");
    int count = scandir(folder, &list, is_test, by_name);
    for (int i = 0; i < count; i++) {
        char path[2000], why[1024] = "";
        const char *name = list[i]->d_name;
        (void)snprintf(path, sizeof path, "%s/%s", folder, name);
        if (show == NULL || strcmp(show, "1") == 0 || strcmp(show, name) == 0) {
            verdict v = run_folder(path, backend, why, sizeof why);
            counts[v]++;
            if (v != PASSED && seen != NULL)
                (void)fprintf(seen, "%s/%s: %s\n", strrchr(folder, '/') + 1, name,
                              v == RANDOM ? "draws, so there is nothing to compare" : why);
            if (v == FAILED)
                print_message("FAILED %s (%s): %s\n", name, backend, why);
            else if (v == NOT_SUPPORTED && show != NULL)
                print_message("not supported: %s: %s\n", name, why);
        }
        free(list[i]);
    }
    free(list);
    return count;
}

static const char *tests_folder(void)
{
    const char *given = getenv("EBB_ONNX_TESTS");
    return given != NULL ? given : DEFAULT_FOLDER;
}

/* The file of those that did not pass says what was seen. */
static void check_list(FILE *seen)
{
    const char *golden = getenv("EBB_GOLDEN");
    bool update = golden != NULL && strcmp(golden, "update") == 0, same = true;
    FILE *kept = fopen(NOT_PASSED, update ? "w" : "r");
    char now[1400], then[1400];
    assert_non_null(kept);
    rewind(seen);
    while (fgets(now, sizeof now, seen) != NULL) {
        if (update)
            (void)fputs(now, kept);
        else if (same && (fgets(then, sizeof then, kept) == NULL || strcmp(now, then) != 0)) {
            print_error("%s does not say: %s", NOT_PASSED, now);
            same = false;
        }
    }
    same = same && (update || fgets(then, sizeof then, kept) == NULL);
    assert_int_equal(fclose(kept), 0);
    assert_true(same);
}

static void check_backend(const char *backend, int least, bool listed)
{
    static const char *const kinds[] = {"node", "simple", "pytorch-converted", "pytorch-operator"};
    int counts[VERDICTS] = {0}, found = 0;
    bool all = getenv("EBB_ONNX_TESTS") == NULL && getenv("EBB_ONNX_SHOW") == NULL;
    FILE *seen = listed ? tmpfile() : NULL;
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        int n = run_all(formatted("%s/%s", tests_folder(), kinds[k]), backend, counts, seen);
        found += n > 0 ? n : 0;
    }
    print_message("%s: %d passed, %d failed, %d not supported, %d random\n", backend,
                  counts[PASSED], counts[FAILED], counts[NOT_SUPPORTED], counts[RANDOM]);
    assert_true(found > 0);
    assert_int_equal(counts[FAILED], 0);
    if (all)
        assert_true(counts[PASSED] >= least);
    if (all && seen != NULL)
        check_list(seen);
    if (seen != NULL)
        assert_int_equal(fclose(seen), 0);
}

static int is_light(const struct dirent *entry)
{
    const char *end = strstr(entry->d_name, ".onnx");
    return strncmp(entry->d_name, "light_", 6) == 0 && end != NULL && end[5] == '\0';
}

/* Large networks, by the fast kernels alone. */
static void onnx_light_models_agree_with_the_fast_kernels(void **state)
{
    (void)state;
    char folder[1500];
    struct dirent **list = NULL;
    int passed = 0;
    (void)snprintf(folder, sizeof folder, "%s/light", tests_folder());
    int count = scandir(folder, &list, is_light, by_name);
    for (int i = 0; i < count; i++) {
        char path[2000], prefix[2000];
        (void)snprintf(path, sizeof path, "%s/%s", folder, list[i]->d_name);
        (void)snprintf(prefix, sizeof prefix, "%.*s", (int)(strlen(path) - 5), path);
        trial t = {.folder = prefix, .light = true};
        ebb_status status = ebb_model_read(&t.model, path);
        verdict v = status != NULL ? of_status(&t, status) : run_trial(&t, "cpu");
        print_message("%s: %s\n", list[i]->d_name, v == PASSED ? "passed" : t.why);
        ebb_model_free(t.model);
        passed += v == PASSED;
        assert_int_not_equal(v, FAILED);
        free(list[i]);
    }
    free(list);
    print_message("light: %d of %d passed\n", passed, count > 0 ? count : 0);
    if (getenv("EBB_ONNX_TESTS") == NULL)
        assert_true(passed >= LIGHT_IN_1_22);
}

static void onnx_node_tests_agree_with_the_plain_kernels(void **state)
{
    (void)state;
    check_backend("plain", PASS_IN_1_22, true);
}

static void onnx_node_tests_agree_with_the_fast_kernels(void **state)
{
    (void)state;
    check_backend("cpu", PASS_IN_1_22, false);
}

/* Those kernels, compiled for the host. */
static void onnx_node_tests_agree_with_the_kernels_of_the_gpu(void **state)
{
    (void)state;
    check_backend("cuda", PASS_ON_CUDA, false);
}

int main(void)
{
    (void)setenv("EBB_CUDA_PLUGIN", EBB_BINARY_DIR "/kernels/cuda/libebb_cuda_host_plugin.so", 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(onnx_node_tests_agree_with_the_plain_kernels),
        cmocka_unit_test(onnx_node_tests_agree_with_the_fast_kernels),
        cmocka_unit_test(onnx_node_tests_agree_with_the_kernels_of_the_gpu),
        cmocka_unit_test(onnx_light_models_agree_with_the_fast_kernels),
    };
    const struct CMUnitTest of_the_gpu[] = {tests[2]};
    if (access(tests_folder(), R_OK) != 0) {
        printf("SKIP: no ONNX node tests at %s\n", tests_folder());
        return 77;
    }
    if (getenv("EBB_TEST_BACKEND") != NULL) // again, on what nvcc emits: cuda/ptx
        return cmocka_run_group_tests(of_the_gpu, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
