/* test_places.c: values that lie in another place: what the ruler says, what the mover does, and every way in
 * which reading and writing a file can fail; and that exchanges go on beside the step. */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "exec/run/program.h"
#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "tests/formatted.h"
#include "tests/owned.h"
#include "tests/status.h"
#include "tests/test.h"
#include "tests/text.h"

#define HEAD "<ir_version: 10, opset_import: [\"\" : 20, \"ai.ebb\" : 1]>\n"

/* ---- a disk that fails: the linker puts these before the C library's ---- */

ssize_t __real_pwrite(int file, const void *bytes, size_t count, off_t offset);
ssize_t __real_pread(int file, void *bytes, size_t count, off_t offset);
int __real_posix_fallocate(int file, off_t offset, off_t count);
ssize_t __wrap_pwrite(int file, const void *bytes, size_t count, off_t offset);
ssize_t __wrap_pread(int file, void *bytes, size_t count, off_t offset);
int __wrap_posix_fallocate(int file, off_t offset, off_t count);

enum { NEVER = -1 };
enum way { FAILS, ENDS, STOPS_SHORT, IS_INTERRUPTED, LIES };
static struct {
    int write_at, read_at; /* calls until the one that goes wrong */
    enum way way;
    int code; /* of FAILS */
    int no_room;
} disk = {NEVER, NEVER, FAILS, 0, 0};

static int goes_wrong(int *at)
{
    if (*at < 0)
        return 0;
    return (*at)-- == 0;
}

ssize_t __wrap_pwrite(int file, const void *bytes, size_t count, off_t offset)
{
    if (!goes_wrong(&disk.write_at))
        return __real_pwrite(file, bytes, count, offset);
    if (disk.way == STOPS_SHORT)
        return __real_pwrite(file, bytes, count / 2, offset);
    errno = disk.way == IS_INTERRUPTED ? EINTR : disk.code;
    return disk.way == ENDS ? 0 : -1;
}

ssize_t __wrap_pread(int file, void *bytes, size_t count, off_t offset)
{
    if (!goes_wrong(&disk.read_at))
        return __real_pread(file, bytes, count, offset);
    if (disk.way == STOPS_SHORT)
        return __real_pread(file, bytes, count / 2, offset);
    if (disk.way == LIES) {
        ssize_t n = __real_pread(file, bytes, count, offset);
        ((unsigned char *)bytes)[5] ^= 1;
        return n;
    }
    errno = disk.way == IS_INTERRUPTED ? EINTR : disk.code;
    return disk.way == ENDS ? 0 : -1;
}

int __wrap_posix_fallocate(int file, off_t offset, off_t count)
{
    return disk.no_room ? ENOSPC : __real_posix_fallocate(file, offset, count);
}

/* ---- models ---- */

/* Two tensors of 300,000 floats go to PLACE and come back; b takes the room of a, which was read by then. */
#define AWAY(place)                                                             \
    HEAD "g (float[300000] x, float two) => (float[300000] y, float[300000] z)" \
         "{\n"                                                                  \
         "  a = Mul(x, two)\n"                                                  \
         "  [\"store a\"] as = ai.ebb.Store <place = \"" place "\"> (a)\n"      \
         "  ak = ai.ebb.Wait(as, a)\n"                                          \
         "  p = Add(x, two)\n"                                                  \
         "  [\"fetch a\"] af = ai.ebb.Fetch(ak)\n"                              \
         "  aw = ai.ebb.Wait(af, ak)\n"                                         \
         "  y = Add(aw, p)\n"                                                   \
         "  b = Mul(p, two)\n"                                                  \
         "  [\"store b\"] bs = ai.ebb.Store <place = \"" place "\"> (b)\n"      \
         "  q = Mul(x, x)\n"                                                    \
         "  bk = ai.ebb.Wait(bs, b)\n"                                          \
         "  [\"fetch b\"] bf = ai.ebb.Fetch(bk)\n"                              \
         "  r = Mul(q, two)\n"                                                  \
         "  bw = ai.ebb.Wait(bf, bk)\n"                                         \
         "  z = Add(bw, r)\n"                                                   \
         "}\n"

enum { N = 300000, TAKEN = (N * 4 + EBB_DISK_ALIGN - 1) / EBB_DISK_ALIGN * EBB_DISK_ALIGN };

static float x_data[N];
static const float two = 2;
static const int64_t x_dims[] = {N};
static const ebb_named inputs[] = {{"x", EBB_F32, 1, x_dims, x_data},
                                   {"two", EBB_F32, 0, NULL, &two}};
static const ebb_batch batch = {inputs, 2};

static ebb_status compile(ebb_program **p, ebb_model *m, const char *folder)
{
    const ebb_compile_options options = {.spill = folder};
    return ebb_program_compile(p, m, &options);
}

static void check_results(ebb_program *p)
{
    ebb_named y, z;
    good(ebb_program_get(p, "y", &y));
    good(ebb_program_get(p, "z", &z));
    for (int i = 0; i < N; i++) {
        const float x = x_data[i];
        if (((const float *)y.data)[i] != x * 2 + (x + 2) ||
            ((const float *)z.data)[i] != (x + 2) * 2 + x * x * 2)
            fail_msg("element %d", i);
    }
}

static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < N; i++)
        x_data[i] = (float)(i % 1000);
    disk.write_at = disk.read_at = NEVER;
    disk.no_room = 0;
    return 0;
}

/* ---- what comes back ---- */

TEST(bytes_come_back_and_the_file_is_as_long_as_planned)
{
    OWNED_MODEL *m = model_of(AWAY("disk"));
    OWNED_PROGRAM *p = NULL;
    good(compile(&p, m, NULL));
    for (int step = 0; step < 3; step++) {
        good(ebb_program_step(p, &batch));
        check_results(p);
    }
    const ebb_program_facts f = ebb_program_measure(p);
    assert_int_equal(f.planned_disk_bytes, TAKEN); // b lies where a was
    assert_int_equal(f.disk_bytes, TAKEN);
    assert_int_equal(f.planned_arena_bytes, f.measured_arena_bytes);
    assert_int_equal(f.planned_host_bytes, 0);
}

TEST(memory_of_the_host_is_a_place_too)
{
    OWNED_MODEL *m = model_of(AWAY("host"));
    OWNED_PROGRAM *p = NULL;
    good(compile(&p, m, "/a folder that is not there")); // and is not asked for
    good(ebb_program_step(p, &batch));
    check_results(p);
    const ebb_program_facts f = ebb_program_measure(p);
    assert_true(f.planned_host_bytes >= N * 4 && f.planned_host_bytes < N * 4 + 64);
    assert_int_equal(f.host_bytes, f.planned_host_bytes);
    assert_int_equal(f.planned_disk_bytes, 0);
}

TEST(the_ruler_weighs_each_place_apart)
{
    OWNED_MODEL *m = model_of(AWAY("disk"));
    OWNED_ARENA arena = {0};
    ebb_memory memory;
    good(ebb_memory_weigh(&memory, &arena, m->graph, &(ebb_memory_terms){.align = EBB_ALIGN}));
    assert_int_equal(memory.away_count, 2);
    assert_int_equal(memory.places[EBB_PLACE_DISK].peak_bytes, TAKEN);
    const ebb_memory_away *a = &memory.away[0];
    assert_int_equal(a->birth, 1); // its Store
    assert_int_equal(a->death, 5); // the Wait of its Fetch
    assert_int_equal(memory.places[EBB_PLACE_DISK].live[6], 0);
    const uint32_t *of = memory.tensor_of;
    const ebb_graph *g = m->graph;
    assert_int_equal(of[ebb_value_find(g, "as").i], 0); // no memory of the device
    assert_int_equal(of[ebb_value_find(g, "ak").i], 0);
    assert_int_equal(of[ebb_value_find(g, "aw").i], of[ebb_value_find(g, "af").i]);
    const ebb_memory_tensor *first = &memory.tensors[of[ebb_value_find(g, "a").i] - 1];
    assert_int_equal(first->death, 2); // where it is waited for
}

TEST(a_move_is_alive_until_it_is_waited_for)
{
    static const struct {
        const char *body, *why;
    } wrong[] = {
        {"s = ai.ebb.Store(x) y = Relu(x)", "must be read by one Wait alone"},
        {"s = ai.ebb.Store(x) y = Relu(s)", "must be read by one Wait alone"},
        {"s = ai.ebb.Store(x) k = ai.ebb.Wait(s, x) j = ai.ebb.Wait(s, x) y = Relu(x)",
         "must be read by one Wait alone"},
        {"a = Neg(x) s = ai.ebb.Store(x) k = ai.ebb.Wait(s, a) y = Relu(x)",
         "second input must be"},
        {"a = Neg(x) k = ai.ebb.Wait(a, x) y = Relu(x)", "first input must be"},
        {"s = ai.ebb.Store(x) k = ai.ebb.Wait(s, x) y = Relu(k)", "lies in another place"},
        {"s = ai.ebb.Store(x) y = ai.ebb.Wait(s, x)", "cannot outlive the step"},
        {"f = ai.ebb.Fetch(x) y = ai.ebb.Wait(f, x)", "was not stored"},
        {"s = ai.ebb.Store <place = \"moon\"> (x) k = ai.ebb.Wait(s, x) y = Relu(x)",
         "\"disk\" or \"host\""},
        {"s = ai.ebb.Store <place = \"device\"> (x) k = ai.ebb.Wait(s, x) y = Relu(x)",
         "\"disk\" or \"host\""},
        {"s = ai.ebb.Store(x) k = ai.ebb.Wait(s, x) t = ai.ebb.Store(k) l = ai.ebb.Wait(t, k) y = "
         "Relu(x)",
         "stored already"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        OWNED_MODEL *m = NULL;
        ebb_status status = ebb_text_parse_model(
            &m, formatted(HEAD "g (float[4] x) => (float[4] y) { %s }", wrong[i].body));
        if (status == NULL)
            status = ebb_infer_graph(m->graph);
        if (status == NULL)
            status = ebb_verify(m->graph);
        if (status == NULL)
            fail_msg("%s", wrong[i].body);
        refused(status, EBB_VERIFY, wrong[i].why);
    }
}

/* ---- what goes wrong ---- */

/* Every call in its turn: the step says it in a sentence with the node, and the next one is right. */
TEST(every_failure_is_said_and_forgotten)
{
    static const struct {
        enum way way;
        int code;
        const char *why;
    } kinds[] = {{FAILS, EIO, "Input/output error"},
                 {FAILS, ENOSPC, "No space left"},
                 {ENDS, 0, "too early"}};
    OWNED_MODEL *m = model_of(AWAY("disk"));
    OWNED_PROGRAM *p = NULL;
    good(compile(&p, m, NULL));
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        for (int reads = 0; reads < 2; reads++)
            for (int call = 0; call < 4; call++) { // two tensors, two pieces each
                disk.way = kinds[k].way;
                disk.code = kinds[k].code;
                *(reads ? &disk.read_at : &disk.write_at) = call;
                ebb_status status = ebb_program_step(p, &batch);
                refused(status, EBB_IO, kinds[k].why);
                refused(status, EBB_IO,
                        formatted("%s %c", reads ? "fetch" : "store", call < 2 ? 'a' : 'b'));
                good(ebb_program_step(p, &batch));
                check_results(p);
            }
}

TEST(short_and_interrupted_calls_go_on)
{
    OWNED_MODEL *m = model_of(AWAY("disk"));
    OWNED_PROGRAM *p = NULL;
    good(compile(&p, m, NULL));
    for (int way = STOPS_SHORT; way <= IS_INTERRUPTED; way++)
        for (int call = 0; call < 4; call++) {
            disk.way = (enum way)way;
            disk.read_at = disk.write_at = call;
            good(ebb_program_step(p, &batch));
            check_results(p);
        }
}

TEST(bytes_that_changed_are_seen)
{
    OWNED_MODEL *m = model_of(AWAY("disk"));
    OWNED_PROGRAM *p = NULL;
    good(compile(&p, m, NULL));
    for (int call = 0; call < 4; call++) {
        disk.way = LIES;
        disk.read_at = call;
        refused(ebb_program_step(p, &batch), EBB_IO, "are not those written");
    }
}

TEST(without_the_checksum_what_a_disk_says_is_taken)
{
    const ebb_compile_options options = {.spill_unchecked = true};
    OWNED_MODEL *m = model_of(AWAY("disk"));
    OWNED_PROGRAM *p = NULL;
    ebb_named y;
    good(ebb_program_compile(&p, m, &options));
    good(ebb_program_step(p, &batch));
    check_results(p);
    disk.way = LIES;
    disk.read_at = 0;
    good(ebb_program_step(p, &batch));
    good(ebb_program_get(p, "y", &y));
    assert_true(((const float *)y.data)[1] != x_data[1] * 2 + (x_data[1] + 2)); // its fifth byte
}

TEST(a_full_disk_is_said_before_the_first_step)
{
    OWNED_MODEL *m = model_of(AWAY("disk"));
    ebb_program *p = NULL;
    disk.no_room = 1;
    refused(compile(&p, m, "/tmp"), EBB_IO, "/tmp: the step keeps 1.14 MiB on disk: No space left");
    disk.no_room = 0;
    refused(compile(&p, m, "/a folder that is not there"), EBB_IO, "No such file");
}

/* ---- exchanges ---- */

static pthread_t exchanger;

/* With another process that has the same numbers, which are one number. */
static ebb_status exchange_with_a_twin(void *context, ebb_group_verb verb, const void *from,
                                       void *to, size_t block, const char *what)
{
    (void)context, (void)verb, (void)what;
    exchanger = pthread_self();
    memcpy(to, from, block);
    memcpy((char *)to + block, from, block);
    return NULL;
}

/* The thread that steps makes an exchange itself only where it is not to go on beside it. */
TEST(what_a_step_starts_goes_on_beside_it)
{
    static const char *const steps[] = {"s = ai.ebb.StartAllReduce <ranks = 2> (a)\n"
                                        "  b = ai.ebb.Wait(s, a)\n",
                                        "b = ai.ebb.AllReduce <ranks = 2> (a)\n"};
    static const ebb_transport twin = {.exchange = exchange_with_a_twin};
    for (int i = 0; i < 2; i++) {
        ebb_group group = {.transport = &twin, .ranks = 2};
        const ebb_compile_options options = {.group = &group};
        OWNED_PROGRAM *p = NULL;
        ebb_named y;
        OWNED_MODEL *m = model_of(formatted(HEAD "g (float[6] x, float two) => (float[6] y)\n"
                                                 "{\n  a = Mul(x, two)\n  %s  y = Add(b, two)\n}\n",
                                            steps[i]));
        good(ebb_program_compile(&p, m, &options));
        const float ones[6] = {1, 1, 1, 1, 1, 1};
        const ebb_named six[] = {{"x", EBB_F32, 1, (const int64_t[]){6}, ones}, inputs[1]};
        good(ebb_program_step(p, &(ebb_batch){six, 2}));
        good(ebb_program_get(p, "y", &y));
        assert_true(((const float *)y.data)[5] == 6);
        assert_int_equal(group.exchanges, 2);
        assert_int_equal(pthread_equal(exchanger, pthread_self()) != 0, i == 1);
    }
}

const fixture around_each = {set_up, NULL};
