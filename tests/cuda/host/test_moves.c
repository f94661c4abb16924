/* test_moves.c: values of a device that lie in the host's memory or on disk: the bits of the step without
 * that, call by call, recorded and replayed, whether copies are done at once or as late as a Wait allows; and
 * disks that fail. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "exec/run/program.h"
#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "tests/models/models.h"
#include "tests/owned.h"
#include "tests/status.h"

/* ---- a disk that fails: the linker puts these before the C library's ---- */

ssize_t __real_pwrite(int file, const void *bytes, size_t count, off_t offset);
ssize_t __real_pread(int file, void *bytes, size_t count, off_t offset);
ssize_t __wrap_pwrite(int file, const void *bytes, size_t count, off_t offset);
ssize_t __wrap_pread(int file, void *bytes, size_t count, off_t offset);

static int write_at = -1, read_at = -1, lie_at = -1; /* the call that goes wrong */
static int written, read_back;

ssize_t __wrap_pwrite(int file, const void *bytes, size_t count, off_t offset)
{
    if (written++ != write_at)
        return __real_pwrite(file, bytes, count, offset);
    errno = ENOSPC;
    return -1;
}

ssize_t __wrap_pread(int file, void *bytes, size_t count, off_t offset)
{
    const int call = read_back++;
    if (call == read_at) {
        errno = EIO;
        return -1;
    }
    const ssize_t n = __real_pread(file, bytes, count, offset);
    if (call == lie_at)
        ((unsigned char *)bytes)[3] ^= 1;
    return n;
}

/* ---- samples ---- */

enum { STEPS = 5, ROWS = 2 }; /* call by call, recorded, replayed */

typedef struct running {
    ebb_model *model;
    ebb_program *program;
    ebb_data *data;
    size_t moves;
} running;

static void start(running *r, const char *model, const char *behind, const char *backend)
{
    char path[1024], passes[1024];
    *r = (running){0};
    (void)snprintf(path, sizeof path, "%s/samples/digits/%s.onnx", EBB_SOURCE_DIR, model);
    good(ebb_open(&r->model, path));
    good(ebb_set_dim(r->model, "batch", ROWS));
    (void)snprintf(path, sizeof path, "%s/samples/digits/digits.npz", EBB_SOURCE_DIR);
    good(ebb_data_open(&r->data, path, NULL));
    (void)snprintf(passes, sizeof passes,
                   "inline,fold,train-mode,fold,fuse,loss:cross-entropy,gradient,optimizer:adamw,"
                   "drop-saves%s,stream,alias",
                   behind);
    good(ebb_rewrite(r->model, passes, NULL, NULL));
    EBB_EACH_NODE(r->model->graph, n)
        r->moves += ebb_op_moves(ebb_node_of(r->model->graph, n)->op);
    good(ebb_program_compile(&r->program, r->model,
                             &(ebb_compile_options){.backend = backend, .seed = 7}));
}

static void stop(running *r)
{
    ebb_program_free(r->program);
    ebb_data_close(r->data);
    ebb_close(r->model);
}

static ebb_status step(running *r, int number)
{
    static const char *const feeds[5] = {"image", "image", "label", "target", NULL};
    const int64_t rows[ROWS] = {2 * number, 2 * number + 1};
    ebb_batch batch;
    good(ebb_data_rows(r->data, rows, ROWS, (const char **)(uintptr_t)feeds, &batch));
    return ebb_program_step(r->program, &batch);
}

static float loss_of(running *r)
{
    ebb_named loss;
    good(ebb_program_get(r->program, ebb_program_loss_name(r->program), &loss));
    return *(const float *)loss.data;
}

static void train(float *losses, const char *model, const char *behind)
{
    running r;
    start(&r, model, behind, "cuda");
    assert_int_equal(r.moves > 0, behind[0] != '\0');
    for (int k = 0; k < STEPS; k++) {
        good(step(&r, k));
        losses[k] = loss_of(&r);
    }
    assert_int_equal(r.program->replayed, STEPS - 2);
    const ebb_program_facts f = ebb_program_measure(r.program);
    assert_int_equal(f.planned_arena_bytes, f.measured_arena_bytes);
    assert_int_equal(f.planned_host_bytes, f.host_bytes);
    assert_int_equal(f.planned_disk_bytes, f.disk_bytes);
    assert_int_equal(f.disk_bytes + f.host_bytes > 0, behind[0] != '\0');
    stop(&r);
}

TEST(what_lies_elsewhere_changes_no_bit)
{
    static const char *const models[] = {"cnn", "mlp", "transformer"};
    static const char *const ways[] = {
        ",offload:place=host,least=1", ",offload:place=disk,least=1",
        ",offload:what=state,place=host,least=1", ",offload:what=state,place=disk,least=1",
        ",offload:place=host,least=1,offload:what=state,place=disk,least=1"};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        float here[STEPS], away[STEPS];
        train(here, models[m], "");
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++)
            for (int late = 0; late < 2; late++) {
                if (late)
                    (void)setenv("EBB_CUDA_ORDER", "reverse", 1);
                train(away, models[m], ways[w]);
                (void)unsetenv("EBB_CUDA_ORDER");
                if (memcmp(here, away, sizeof here) != 0)
                    fail_msg("%s with '%s'%s: %g for %g", models[m], ways[w], late ? ", late" : "",
                             (double)away[STEPS - 1], (double)here[STEPS - 1]);
            }
    }
}

/* ---- large values ---- */

/* Several pieces of a tensor pass through one room; the second lies where the first lay. */
#define LARGE(place)                                                                              \
    "<ir_version: 10, opset_import: [\"\" : 20, \"ai.ebb\" : 1]> g (float[600000] x, float two) " \
    "=> (float[600000] y, float[600000] z) { a = Mul (x, two) [\"store a\"] as = ai.ebb.Store "   \
    "<place = \"" place "\"> (a) p = Add (x, two) ak = ai.ebb.Wait (as, a) [\"fetch a\"] af = "   \
    "ai.ebb.Fetch (ak) b = Mul (p, two) aw = ai.ebb.Wait (af, ak) y = Add (aw, p) [\"store b\"] " \
    "bs = ai.ebb.Store <place = \"" place "\"> (b) q = Mul (x, x) bk = ai.ebb.Wait (bs, b) "      \
    "[\"fetch b\"] bf = ai.ebb.Fetch (bk) r = Mul (q, two) bw = ai.ebb.Wait (bf, bk) z = Add "    \
    "(bw, r) }"

enum { N = 600000, PIECES = 3 };
static float numbers[N];

static ebb_status large_step(ebb_program *p, int number)
{
    static const int64_t dims[] = {N};
    const float two = 2;
    const ebb_named inputs[] = {{"x", EBB_F32, 1, dims, numbers}, {"two", EBB_F32, 0, NULL, &two}};
    for (int i = 0; i < N; i++)
        numbers[i] = (float)((i + number) % 1000);
    return ebb_program_step(p, &(ebb_batch){inputs, 2});
}

static void check_large(ebb_program *p)
{
    ebb_named y, z;
    good(ebb_program_get(p, "y", &y));
    good(ebb_program_get(p, "z", &z));
    for (int i = 0; i < N; i++) {
        const float x = numbers[i];
        if (((const float *)y.data)[i] != x * 2 + (x + 2) ||
            ((const float *)z.data)[i] != (x + 2) * 2 + x * x * 2)
            fail_msg("element %d", i);
    }
}

static void open_large(ebb_model **m, ebb_program **p, const char *text)
{
    good(ebb_text_parse_model(m, text));
    good(ebb_infer_graph((*m)->graph));
    good(ebb_program_compile(p, *m, &(ebb_compile_options){.backend = "cuda"}));
}

TEST(large_values_pass_in_pieces)
{
    for (int late = 0; late < 2; late++) {
        OWNED_MODEL *m = NULL;
        OWNED_PROGRAM *p = NULL;
        if (late)
            (void)setenv("EBB_CUDA_ORDER", "reverse", 1);
        open_large(&m, &p, LARGE("disk"));
        for (int k = 0; k < 4; k++) {
            written = read_back = 0;
            good(large_step(p, k));
            check_large(p);
            assert_int_equal(written, 2 * PIECES);
            assert_int_equal(read_back, 2 * PIECES);
        }
        (void)unsetenv("EBB_CUDA_ORDER");
    }
}

/* In the first step, which runs call by call, in the one that is recorded and in a replay; the next step is
 * right. */
TEST(a_failing_disk_is_said_with_its_node)
{
    static const struct {
        int *at;
        const char *node, *why;
    } faults[] = {{&write_at, "store a", "No space left"},
                  {&read_at, "fetch a", "Input/output error"},
                  {&lie_at, "fetch a", "are not those written"}};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        OWNED_MODEL *m = NULL;
        OWNED_PROGRAM *p = NULL;
        open_large(&m, &p, LARGE("disk"));
        for (int k = 0; k < 4; k++) {
            written = read_back = 0;
            *faults[i].at = 1;
            ebb_status status = large_step(p, k);
            *faults[i].at = -1;
            refused(status, EBB_IO, faults[i].why);
            assert_non_null(strstr(ebb_status_text(status), faults[i].node));
            good(large_step(p, k + 1));
            check_large(p);
        }
    }
}

/* States on disk are read and set from outside, too. */
TEST(states_elsewhere_are_saved_and_loaded)
{
    char path[] = "/tmp/ebb-moves-XXXXXX";
    static const char *const places[] = {",offload:what=state,place=host,least=1",
                                         ",offload:what=state,place=disk,least=1"};
    assert_true(mkstemp(path) >= 0);
    for (size_t i = 0; i < 2; i++) {
        float whole[4], rest[2];
        running r;
        start(&r, "mlp", places[i], "cuda");
        for (int k = 0; k < 4; k++) {
            if (k == 2)
                good(ebb_checkpoint_save(r.program, path, NULL));
            good(step(&r, k));
            whole[k] = loss_of(&r);
        }
        stop(&r);
        start(&r, "mlp", places[i], "cuda");
        good(ebb_checkpoint_load(r.program, path, NULL));
        for (int k = 0; k < 2; k++) {
            good(step(&r, k + 2));
            rest[k] = loss_of(&r);
        }
        stop(&r);
        assert_memory_equal(rest, whole + 2, sizeof rest);
    }
    (void)remove(path);
}

int main(void)
{
    (void)setenv("EBB_CUDA_PLUGIN", EBB_BINARY_DIR "/kernels/cuda/libebb_cuda_host_plugin.so", 0);
    return run_listed();
}
