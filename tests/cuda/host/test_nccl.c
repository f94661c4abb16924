/* test_nccl.c: processes whose GPUs exchange by NCCL: libebb_cuda_fake_plugin.so, which records its steps, over a
 * NCCL between processes of this machine (fake_nccl.c), which fails where two are at different exchanges. Their
 * bits are those of one process that computes as many parts, whatever is together, beside the step or in parts;
 * with the work beside done at once, and as late as a device may.
 */
#include "onnx/file/file.h"
#include "tests/cli/together.h"
#include "tests/formatted.h"
#include "tests/owned.h"
#include "tests/processes.h"
#include "tests/share.h"

static const char *const absent[] = {"EBB_CUDNN", "EBB_CUBLASLT", "EBB_NVRTC"};
#define MLP DIGITS "mlp.onnx --dropout off " CLASSES
#define TRANSFORMER DIGITS "transformer.onnx " CLASSES

static void run_says(const char *command, int code, const char *words)
{
    const int got = run_command(command);
    if (got != code || strstr(output, words) == NULL)
        fail_msg("%s\nexit %d, expected %d; said:\n%s\nexpected to read: %s\n", command, got, code,
                 output, words);
}

static void train_parts(const char *words, int ranks)
{
    run_says(formatted(EBB " train %s --backend cuda --batch 32 --steps 4 --pass "
                           "micro-batch:parts=%d,require=1 --checkpoint one.st 2>&1",
                       words, ranks),
             0, "planned and measured equal");
}

/* With the work beside done at once or late, by turns. */
static void same_so(const char *words, int ranks, const char *passes)
{
    static int turn;
    char command[2048];
    (void)snprintf(command, sizeof command,
                   "%s" EBB " launch -n %d -- " EBB
                   " train %s --backend cuda --batch 32 --steps 4 --checkpoint all.st %s 2>&1",
                   turn++ % 2 == 0 ? "" : "EBB_CUDA_ORDER=reverse ", ranks, words, passes);
    run_says(command, 0, "planned and measured equal");
    same_bytes("one.st", "all.st", command);
}

TEST(processes_on_devices_have_the_bits_of_parts)
{
    static const char *const passes[] = {
        "",
        "--pass shard:least=1",
        "--pass shard:parameters,least=1",
        "--pass bucket:bytes=700",
        "--pass bucket:bytes=1000000 --pass overlap:depth=1",
        "--pass overlap:depth=9",
        "--pass shard:parameters,least=1 --pass bucket --pass overlap:depth=3",
    };
    enum { ALL = sizeof passes / sizeof *passes };
    train_parts(MLP, 2);
    for (size_t i = SANITIZED ? ALL - 1 : 0; i < ALL; i++)
        same_so(MLP, 2, passes[i]);
    if (SANITIZED)
        return;
    train_parts(TRANSFORMER, 4);
    same_so(TRANSFORMER, 4, passes[ALL - 1]);
}

/* ---- single calls ---- */

/* All of them, now and beside the step, over a tensor that goes in several pieces. */
static ebb_status make_calls(ebb_model **model, const char *dtype, int64_t n, int ranks)
{
    char text[1024];
    (void)snprintf(
        text, sizeof text,
        "<ir_version: 10, opset_import: [\"\" : 20, \"ai.ebb\" : 1]> g (%s[%lld] x) => (%s[%lld] "
        "all, %s[%lld] theirs, "
        "%s[%lld] later, %s[%lld] whole, %s[%lld] again, int64 rank) { begun = "
        "ai.ebb.StartAllReduce "
        "<ranks = %d> (x) parts = ai.ebb.StartReduceScatter <ranks = %d> (x) all = "
        "ai.ebb.AllReduce "
        "<ranks = %d> (x) theirs = ai.ebb.AllReduce <library = 1, ranks = %d> (x) later = "
        "ai.ebb.Wait (begun, x) s = ai.ebb.Wait (parts, x) t = "
        "ai.ebb.ReduceScatter <ranks = %d> (x) whole = ai.ebb.Unshard <ranks = %d, shape = [%lld]> "
        "(s) "
        "other = ai.ebb.Shard <ranks = %d> (x) joined = ai.ebb.StartUnshard <ranks = %d, shape = "
        "[%lld]> (other) again = ai.ebb.Wait (joined, other) rank = ai.ebb.Rank <ranks = %d> () }",
        dtype, (long long)n, dtype, (long long)n, dtype, (long long)n, dtype, (long long)n, dtype,
        (long long)n, dtype, (long long)n, ranks, ranks, ranks, ranks, ranks, ranks, (long long)n,
        ranks, ranks, (long long)n, ranks);
    EBB_TRY(ebb_text_parse_model(model, text));
    return ebb_rewrite(*model, "alias", NULL, NULL); // which knows all types
}

/* Numbers below 2 in size, or any integers, of this rank and step. */
static void draw(unsigned char *bytes, size_t count, size_t size, bool is_float, int rank, int step)
{
    uint64_t draws = 77 + (uint64_t)rank * 1000 + (uint64_t)step;
    for (size_t i = 0; i < count * size; i++) {
        draws = draws * 6364136223846793005u + 1442695040888963407u;
        bytes[i] = (unsigned char)(draws >> 40);
        if (is_float && i % size == size - 1)
            bytes[i] &= 0xBF;
    }
}

static bool is_same(ebb_program *const *programs, const char *name, size_t bytes)
{
    ebb_named a, b;
    return ebb_program_get(programs[0], name, &a) == NULL &&
           ebb_program_get(programs[1], name, &b) == NULL && memcmp(a.data, b.data, bytes) == 0;
}

static int same_as_on_the_host(ebb_group *group, const char *dtype, int number, size_t size,
                               int64_t n)
{
    static const char *const names[] = {"all", "later", "whole", "again"},
                             *backends[] = {"cuda", "cpu"};
    enum { STEPS = 4 };
    const bool is_real = strstr(dtype, "int") == NULL;
    FREED unsigned char *x = malloc((size_t)n * size);
    OWNED_MODEL *model = NULL;
    ebb_program *programs[2] = {NULL};
    int wrong = x == NULL || make_calls(&model, dtype, n, group->ranks) != NULL;
    for (int i = 0; i < 2 && wrong == 0; i++) {
        const ebb_compile_options options = {
            .size = sizeof options, .backend = backends[i], .group = group};
        ebb_status status = ebb_program_compile(&programs[i], model, &options);
        if (status != NULL)
            (void)fprintf(stderr, "%s\n", ebb_status_text(status));
        wrong = status != NULL ? 2 : 0;
    }
    for (int step = 0; step < STEPS && wrong == 0; step++) {
        const ebb_named named = {"x", number, 1, &n, x};
        draw(x, (size_t)n, size, is_real, group->rank, step);
        for (int i = 0; i < 2 && wrong == 0; i++) {
            ebb_status status = ebb_program_step(programs[i], &(ebb_batch){&named, 1});
            if (status != NULL)
                (void)fprintf(stderr, "%s\n", ebb_status_text(status));
            wrong = status != NULL ? 3 : 0;
        }
        for (size_t k = 0; k < sizeof names / sizeof *names && wrong == 0; k++)
            wrong = is_same(programs, names[k], (size_t)n * size) ? 0 : 4;
        if (wrong == 0)
            wrong = is_same(programs, "rank", sizeof(int64_t)) ? 0 : 5;
        const bool is_own =
            is_real && size >= 4 && group->ranks > 2; // the host's group has no library
        if (wrong == 0)
            wrong = is_same(programs, "theirs", (size_t)n * size) != is_own ? 0 : 6;
    }
    for (int i = 0; i < 2; i++)
        ebb_program_free(programs[i]);
    return wrong;
}

static int all_dtypes_are_right(ebb_group *group)
{
    static const struct {
        const char *name;
        int number;
        size_t size;
        int64_t n;
    } dtypes[] = {
        {"float", 1, 4, 3 * EBB_GROUP_PIECE / 4 + 5},
        {"double", 11, 8, 4099},
        {"float16", 10, 2, 4099},
        {"bfloat16", 16, 2, 1},
        {"bfloat16", 16, 2, 4099},
        {"int32", 6, 4, 1000},
        {"int64", 7, 8, 1001},
    };
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        const int wrong = same_as_on_the_host(group, dtypes[i].name, dtypes[i].number,
                                              dtypes[i].size, dtypes[i].n);
        if (wrong != 0)
            return 10 * ((int)i + 1) + wrong;
    }
    return 0;
}

TEST(a_device_has_the_bits_of_the_host)
{
    all_are_right(1, all_dtypes_are_right);
    all_are_right(3, all_dtypes_are_right);
    assert_int_equal(setenv("EBB_CUDA_ORDER", "reverse", 1), 0);
    all_are_right(3, all_dtypes_are_right);
    assert_int_equal(unsetenv("EBB_CUDA_ORDER"), 0);
}

/* ---- what is sent, and what goes wrong ---- */

static long long number_of(const char *command, const char *key)
{
    run_says(command, 0, key);
    return number_after(key);
}

/* A replay exchanges what was recorded: one more step what the plan says, and what asks who goes on. */
TEST(a_replay_sends_what_its_plan_says)
{
    static const char plan[] =
        EBB " plan " DIGITS "mlp.onnx --loss cross-entropy --dropout off --dim "
            "batch=32 --ranks 2 --backend cuda --json";
    long long made[2], sent[2];
    const long long exchanges = number_of(plan, "\"exchanges\":"),
                    bytes = number_after("\"sent_bytes\":");
    for (int k = 0; k < 2; k++) {
        made[k] = number_of(formatted(EBB " launch -n 2 -- " EBB " train " MLP
                                          "--backend cuda --batch 32 --json --steps %d 2>&1",
                                      k + 3),
                            "\"exchanges\":");
        sent[k] = number_after("\"sent_bytes\":");
    }
    assert_int_equal(made[1] - made[0], exchanges + 1);
    assert_int_equal(sent[1] - sent[0], bytes + 8);
}

TEST(what_goes_wrong_is_a_sentence)
{
    static const struct {
        const char *what;
        int ranks, code;
        const char *words;
    } cases[] = {
        {"EBB_NCCL=/nowhere", 1, 0, "5 steps, loss"},
        {"EBB_NCCL=/nowhere", 2, 7,
         "processes with a GPU each exchange by NCCL: NCCL 2 cannot be opened"},
        {"EBB_FAKE_NCCL=old", 2, 7, "and version 2, from 2.9 on, is needed"},
        {"EBB_FAKE_NCCL=refuses", 2, 1, "NCCL: joining the other processes: it is broken"},
        {"EBB_FAKE_NCCL=differs:1:3", 2, 1,
         "exchanging with the other processes: remote process error"},
        {"EBB_FAKE_NCCL=differs:0:80", 2, 1,
         "exchanging with the other processes: remote process error"},
        {"EBB_FAKE_NCCL=stuck:1:3", 2, 1, "the other processes did not come within 1 s (--late"},
        {"EBB_FAKE_NCCL=stuck:0:80", 2, 1, "the other processes did not come within 1 s (--late"},
        /* The fourth step is a replay. */
        {"EBB_FAKE_FAULT=GraphLaunch:3:700:stays", 2, 1, "running the recorded step"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run_says(formatted("%s timeout 60 " EBB " launch -n %d --late 1 -- " EBB " train " MLP
                           "--backend cuda --batch 32 --steps 5 2>&1",
                           cases[i].what, cases[i].ranks),
                 cases[i].code, cases[i].words);
    }
}

/* Two exchanges, now or beside the step, which rank 1 makes in another order; before them one, by which they join. */
static const char *const orders[2][2] = {
    {"[sum] a = ai.ebb.AllReduce <ranks = 2> (x) [all] b = ai.ebb.Unshard <ranks = 2, shape = "
     "[16]> (x)",
     "[all] b = ai.ebb.Unshard <ranks = 2, shape = [16]> (x) [sum] a = ai.ebb.AllReduce <ranks = "
     "2> (x)"},
    {"[sum] s = ai.ebb.StartAllReduce <ranks = 2> (x) [all] t = ai.ebb.StartUnshard <ranks = 2, "
     "shape = [16]> (x) a = ai.ebb.Wait (s, x) b = ai.ebb.Wait (t, x)",
     "[all] t = ai.ebb.StartUnshard <ranks = 2, shape = [16]> (x) [sum] s = ai.ebb.StartAllReduce "
     "<ranks = 2> (x) a = ai.ebb.Wait (s, x) b = ai.ebb.Wait (t, x)"},
};
static const struct {
    const char *backend, *words;
} by[] = {{"cuda", "exchanging with the other processes: remote process error"},
          {"cpu", "must be started with the same files and options"}};
static int exchanges, backend;

static int order_differs(ebb_group *group)
{
    char text[1024];
    OWNED_MODEL *model = NULL;
    OWNED_PROGRAM *program = NULL;
    const float x[8] = {0};
    const int64_t n = 8;
    const ebb_named named = {"x", 1, 1, &n, x};
    const ebb_compile_options options = {
        .size = sizeof options, .backend = by[backend].backend, .group = group};
    (void)snprintf(
        text, sizeof text,
        "<ir_version: 10, opset_import: [\"\" : 20, \"ai.ebb\" : 1]> g (float[8] x) => (float[8] "
        "a, float[16] b, float[8] c) { c = ai.ebb.AllReduce <ranks = 2> (x) %s }",
        orders[exchanges][group->rank]);
    if (ebb_text_parse_model(&model, text) != NULL ||
        ebb_rewrite(model, "alias", NULL, NULL) != NULL ||
        ebb_program_compile(&program, model, &options) != NULL)
        return 1;
    ebb_status status = ebb_program_step(program, &(ebb_batch){&named, 1});
    ebb_named a;
    if (status == NULL) // what was begun may fail where its result is taken
        status = ebb_program_get(program, "a", &a);
    const bool is = status != NULL && strstr(ebb_status_text(status), by[backend].words) != NULL;
    if (!is)
        (void)fprintf(stderr, "said: %s\n", status != NULL ? ebb_status_text(status) : "nothing");
    return is ? 0 : 2;
}

TEST(an_order_that_differs_is_told_to_both)
{
    for (exchanges = 0; exchanges < 2; exchanges++)
        for (backend = 0; backend < 2; backend++)
            all_are_right(2, order_differs);
}

/* A GPU to each process, of those that it may see; who has left it one alone is not contradicted. */
static int has_own_device(ebb_group *group)
{
    static const char *const due[] = {"5", "GPU-abc", "7"};
    return strcmp(getenv("CUDA_VISIBLE_DEVICES"), due[group->rank]) == 0 ? 0 : 1;
}

static int has_device_of_its_rank(ebb_group *group)
{
    return atoi(getenv("CUDA_VISIBLE_DEVICES")) == group->rank ? 0 : 1;
}

static int has_the_one_device(ebb_group *group)
{
    (void)group;
    return strcmp(getenv("CUDA_VISIBLE_DEVICES"), "3") == 0 ? 0 : 1;
}

TEST(each_process_has_a_device_of_its_own)
{
    (void)unsetenv("CUDA_VISIBLE_DEVICES");
    all_are_right(3, has_device_of_its_rank);
    (void)setenv("CUDA_VISIBLE_DEVICES", "5,GPU-abc,7", 1);
    all_are_right(3, has_own_device);
    (void)setenv("CUDA_VISIBLE_DEVICES", "3", 1);
    all_are_right(2, has_the_one_device);
    (void)unsetenv("CUDA_VISIBLE_DEVICES");
}

const fixture around_all = {make_folder, remove_folder};

int main(void)
{
    (void)setenv("EBB_CUDA_PLUGIN", EBB_BINARY_DIR "/kernels/cuda/libebb_cuda_fake_plugin.so", 1);
    (void)setenv("EBB_NCCL", EBB_FAKE_NCCL, 1);
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        (void)setenv(absent[i], "/nowhere", 1);
    return run_listed();
}
