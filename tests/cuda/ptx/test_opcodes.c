/* test_opcodes.c: single opcodes against vectors.txt, which vectors.py computed by fractions; and
 * what the interpreter refuses. */

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/host/player.h"
#include "tests/test.h"

enum { MOST = 6, LINE = 400 };

typedef struct probe_args {
    uint64_t *out;
    uint64_t in[MOST];
} probe_args;

static const ebb_host_player *player;
static uint64_t *result;

typedef struct shape { /* of a launch */
    uint32_t blocks, threads, shared_bytes, args_bytes;
} shape;

static const shape one_warp = {1, 32, 64, sizeof(probe_args)},
                   two_warps = {1, 64, 64, sizeof(probe_args)},
                   two_blocks = {2, 32, 64, sizeof(probe_args)};

/* room: 64 bytes of shared memory. %x0: 256 bytes of the device, %x1 ..: in, %x9: the thread. Where
 * the body ends, thread 0 stores %x7. */
static const char *run_shaped(const char *body, const uint64_t *in, const shape *s)
{
    char text[4096];
    void *module = NULL;
    void (*kernel)(void) = NULL;
    const uint32_t grid[3] = {s->blocks, 1, 1};
    probe_args args = {.out = result};
    (void)snprintf(
        text, sizeof text,
        ".version 9.0\n.target sm_90\n.address_size 64\n"
        ".extern .shared .align 16 .b8 room[];\n"
        ".visible .entry probe(.param .align 8 .b8 p[56])\n.maxntid 64, 1, 1\n{\n"
        ".reg .b64 %%x<12>;\n.reg .pred %%p<4>;\n"
        "ld.param.u64 %%x0, [p];\nld.param.u64 %%x1, [p+8];\nld.param.u64 %%x2, [p+16];\n"
        "ld.param.u64 %%x3, [p+24];\nld.param.u64 %%x4, [p+32];\n"
        "ld.param.u64 %%x5, [p+40];\nmov.u64 %%x7, 0;\n"
        "mov.u32 %%x9, %%tid.x;\nsetp.ne.u32 %%p1, %%x9, 0;\n"
        "%s\n@%%p1 bra $end;\nst.global.u64 [%%x0], %%x7;\n$end:\nret;\n}\n",
        body);
    if (in != NULL)
        memcpy(args.in, in, sizeof args.in);
    const char *wrong = player->load(text, strlen(text), "probe", &module, &kernel);
    if (wrong == NULL)
        wrong = player->launch(kernel, grid, s->threads, s->shared_bytes, &args, s->args_bytes);
    static char kept[1024];
    if (wrong != NULL)
        (void)snprintf(kept, sizeof kept, "%s", wrong);
    if (module != NULL)
        player->unload(module);
    return wrong != NULL ? kept : NULL;
}

static const char *run_text(const char *body, const uint64_t *in)
{
    return run_shaped(body, in, &one_warp);
}

static int open_player(void **state)
{
    (void)state;
    void *library = dlopen(EBB_PTX_FILE, RTLD_NOW);
    player = library != NULL ? dlsym(library, EBB_HOST_PLAYER) : NULL;
    result = aligned_alloc(256, 256);
    if (player == NULL || result == NULL)
        return 1;
    player->allocated(result, 256, true);
    return 0;
}

static int close_player(void **state)
{
    (void)state;
    player->released(result);
    free(result);
    return 0;
}

/* ---- vectors ---- */

typedef struct vector {
    char name[2][40];
    int first, count; /* inputs of the first of two opcodes; of all */
    uint64_t in[MOST], low, high;
} vector;

static bool read_vector(char *line, vector *v)
{
    char *save = NULL, *word = strtok_r(line, " \n", &save);
    memset(v, 0, sizeof *v);
    if (word == NULL)
        return false;
    char *plus = strchr(word, '+');
    if (plus != NULL)
        *plus = '\0';
    (void)snprintf(v->name[0], sizeof v->name[0], "%s", word);
    (void)snprintf(v->name[1], sizeof v->name[1], "%s", plus != NULL ? plus + 1 : "");
    while ((word = strtok_r(NULL, " \n", &save)) != NULL && strcmp(word, "=") != 0)
        v->in[v->count++] = strtoull(word, NULL, 16);
    v->first = plus != NULL ? 2 : v->count;
    word = strtok_r(NULL, " \n", &save);
    if (word == NULL)
        return false;
    const char *dots = strstr(word, "..");
    v->low = strtoull(word, NULL, 16);
    v->high = dots != NULL ? strtoull(dots + 2, NULL, 16) : v->low;
    return true;
}

static void write_body(const vector *v, char *body, size_t size)
{
    size_t used = 0;
    for (int part = 0, k = 0; part < 2 && v->name[part][0] != '\0'; part++) {
        const int end = part == 0 ? v->first : v->count;
        used += (size_t)snprintf(body + used, size - used, "%s %%x7", v->name[part]);
        for (; k < end; k++)
            used += (size_t)snprintf(body + used, size - used, ", %%x%d", k + 1);
        used += (size_t)snprintf(body + used, size - used, ";\n");
    }
}

TEST(each_opcode_gives_what_fractions_give)
{
    char line[LINE], body[LINE];
    int count = 0, wrong = 0;
    FILE *file = fopen(EBB_SOURCE_DIR "/tests/cuda/ptx/vectors.txt", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        vector v;
        if (!read_vector(line, &v))
            continue;
        write_body(&v, body, sizeof body);
        *result = 0xDEADDEADDEADDEAD;
        const char *error = run_text(body, v.in);
        count++;
        if (error == NULL && *result >= v.low && *result <= v.high)
            continue;
        if (wrong++ < 20)
            print_error("%s of %llx %llx %llx is %llx, not %llx..%llx %s\n", body,
                        (unsigned long long)v.in[0], (unsigned long long)v.in[1],
                        (unsigned long long)v.in[2], (unsigned long long)*result,
                        (unsigned long long)v.low, (unsigned long long)v.high,
                        error != NULL ? error : "");
    }
    (void)fclose(file);
    assert_int_equal(wrong, 0);
    assert_true(count > 2000);
}

static const char *const rows[] = {
#define ROW(name, count, spellings, D, A, B, C, value) spellings,
#include "tests/cuda/ptx/ops.def"
#undef ROW
};

static bool is_spelled(const char *spellings, const char *name)
{
    const char *at = spellings;
    const size_t length = strlen(name);
    while (length > 0 && (at = strstr(at, name)) != NULL) {
        if ((at == spellings || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
        at++;
    }
    return false;
}

TEST(no_opcode_is_without_a_vector)
{
    enum { ROWS = sizeof rows / sizeof rows[0] };
    bool seen[ROWS] = {false};
    char line[LINE];
    int missing = 0;
    FILE *file = fopen(EBB_SOURCE_DIR "/tests/cuda/ptx/vectors.txt", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        vector v;
        if (!read_vector(line, &v))
            continue;
        for (size_t k = 0; k < ROWS; k++)
            seen[k] = seen[k] || is_spelled(rows[k], v.name[v.name[1][0] != '\0']);
    }
    (void)fclose(file);
    for (size_t k = 0; k < ROWS; k++)
        if (!seen[k] && missing++ < 20)
            print_error("no vector: %s\n", rows[k]);
    assert_int_equal(missing, 0);
}

/* ---- what is refused, with a word that says why ---- */

typedef struct refused {
    const char *body, *says;
    shape at;
} refused;

static void refuse_each(const refused *all, size_t count)
{
    for (size_t k = 0; k < count; k++) {
        const char *body = all[k].body;
        const char *error = run_shaped(body, NULL, &all[k].at);
        if (error == NULL || strstr(error, all[k].says) == NULL)
            fail_msg("%s: \"%s\", where \"%s\" is expected", body,
                     error != NULL ? error : "nothing", all[k].says);
    }
}
#define REFUSE(...)                             \
    static const refused all[] = {__VA_ARGS__}; \
    refuse_each(all, sizeof all / sizeof all[0])

#define ONE_WARP                      \
    {                                 \
        1, 32, 64, sizeof(probe_args) \
    }
#define TWO_WARPS                     \
    {                                 \
        1, 64, 64, sizeof(probe_args) \
    }
#define TWO_BLOCKS                    \
    {                                 \
        2, 32, 64, sizeof(probe_args) \
    }

TEST(what_is_unknown_is_refused)
{
    REFUSE({"lop3.b32 %x7, %x1, %x2, %x3, 0x80;", "unknown opcode 'lop3.b32'", ONE_WARP},
           {"add.sat.s32 %x7, %x1, %x2;", "unknown opcode 'add.sat.s32'", ONE_WARP},
           {"add.s32 %x7, %x1, %x2, %x3;", "more operands", ONE_WARP},
           {"add.s32 %x7, %x1, %y2;", "unknown register '%y2'", ONE_WARP},
           {"add.s32 %x7, %x1, %x12;", "unknown register '%x12'", ONE_WARP},
           {"ld.weak.global.u64 %x7, [%x0];", "unknown opcode 'ld.weak.global.u64'", ONE_WARP},
           {"ld.global.v3.u32 %x7, [%x0];", "unknown opcode 'ld.global.v3.u32'", ONE_WARP},
           {"mov.u64 %x7, elsewhere;", "unknown operand 'elsewhere'", ONE_WARP},
           {"bra $nowhere;", "unknown label '$nowhere'", ONE_WARP},
           {"call.uni nobody, ();", "a function that is not there", ONE_WARP},
           {".tex .u64 t;", "unknown directive '.tex'", ONE_WARP},
           {"ld.u64 %x7, [%x0];", "unknown opcode 'ld.u64'", ONE_WARP},
           {"add.s32 5, %x1, %x2;", "a register is expected, not '5'", ONE_WARP},
           {"ld.global.u64 5, [%x0];", "a register is expected, not '5'", ONE_WARP},
           {"ld.global.v2.u32 %x7, [%x0];", "a vector is expected", ONE_WARP},
           {"bar.sync 1;", "unexpected '1'", ONE_WARP}, {"trap;", "comes to a trap", ONE_WARP});
}

TEST(what_is_out_of_bounds_or_alignment_is_refused)
{
    REFUSE({"ld.global.u64 %x7, [%x0+1];", "not aligned to 8 bytes", ONE_WARP},
           {"ld.global.v2.u64 {%x7, %x8}, [%x0+8];", "not aligned to 16 bytes", ONE_WARP},
           {"st.shared.u16 [room+1], %x1;", "not aligned to 2 bytes", ONE_WARP},
           {"atom.global.add.u32 %x7, [%x0+2], 0;", "not aligned to 4 bytes", ONE_WARP},
           {"ld.global.u64 %x7, [%x0+256];", "reads memory that is not the device's", ONE_WARP},
           {"st.global.u8 [%x0+-1], %x1;", "writes memory that is not the device's", ONE_WARP},
           {"ld.global.u64 %x7, [%x7];", "memory that is not the device's", ONE_WARP},
           {"ld.param.u64 %x7, [p+56];", "goes beyond its arguments", ONE_WARP},
           {"st.param.u64 [p], %x1;", "writes its arguments", ONE_WARP},
           {"st.shared.u32 [room+64], %x1;", "shared memory that was asked for", ONE_WARP},
           {"ld.local.u64 %x7, [%x7];", "beyond its local memory", ONE_WARP},
           {".local .align 8 .b8 own[16];\nld.local.u64 %x7, [own+16];", "beyond its local memory",
            ONE_WARP},
           {"", "96 threads a block of a kernel compiled for 64", {1, 96, 64, sizeof(probe_args)}},
           {"", "so much shared memory is not there", {1, 32, 1 << 20, sizeof(probe_args)}},
           {"", "takes 56 bytes of arguments, and is given 48", {1, 32, 64, 48}});
}

/* Each thread's place in room, of two bytes. */
#define OWN "mul.lo.u32 %x8, %x9, 2;\n"
#define NEXT "add.u32 %x10, %x8, 2;\nand.b32 %x10, %x10, 63;\n"
#define LAST_ALONE "setp.ne.u32 %p2, %x9, 33;\n"

TEST(memory_may_end_within_a_word)
{
    player->released(result);
    player->allocated(result, 252, true);
    const char *error = run_text("ld.global.u64 %x7, [%x0+248];", NULL);
    assert_non_null(error);
    assert_non_null(strstr(error, "reads memory that is not the device's"));
    assert_null(run_text("ld.global.u32 %x7, [%x0+248];", NULL));
    player->released(result);
    player->allocated(result, 256, true);
}

TEST(races_are_refused)
{
    REFUSE(
        {"st.shared.u32 [room], %x9;", "writes, as another thread may, byte 0 of shared", ONE_WARP},
        {OWN NEXT "st.shared.u16 [%x8], %x1;\nld.shared.u16 %x7, [%x10];",
         "reads what another thread may be writing", ONE_WARP},
        {OWN NEXT "st.shared.u16 [%x8], %x1;\nbar.sync 0;\nld.shared.u16 %x7, [%x10];\n"
                  "st.shared.u16 [%x8], %x7;",
         "writes what another thread may be reading", ONE_WARP},
        // what a warp says to itself orders nothing in another
        {LAST_ALONE "@!%p1 st.shared.u32 [room], %x9;\n"
                    "shfl.sync.idx.b32 %x7|%p3, %x1, 0, 31, -1;\n@!%p2 st.shared.u32 [room], %x9;",
         "writes, as another thread may, byte 0 of shared", TWO_WARPS},
        {"st.global.u64 [%x0+8], %x9;", "writes, as another thread may, byte 8 of memory of",
         ONE_WARP},
        {"@!%p1 st.global.u64 [%x0+8], %x9;\nbar.sync 0;",
         "writes, as another thread may, byte 8 of memory of", TWO_BLOCKS},
        {"mov.u32 %x8, %ctaid.x;\nsetp.ne.u32 %p2, %x8, 0;\n@%p1 bra $end;\n@%p2 bra $reads;\n"
         "st.global.u64 [%x0+16], %x9;\nbra $end;\n$reads:\nld.global.u64 %x7, [%x0+16];\n"
         "bra $end;",
         "another thread may be", TWO_BLOCKS},
        {"mov.u32 %x8, %ctaid.x;\nsetp.ne.u32 %p2, %x8, 0;\n@%p1 bra $end;\n@%p2 bra $adds;\n"
         "st.global.u32 [%x0+16], %x9;\nbra $end;\n$adds:\natom.global.add.u32 %x7, [%x0+16], 1;\n"
         "bra $end;",
         "as another thread may", TWO_BLOCKS});
}

TEST(what_is_in_order_is_no_race)
{
    assert_null(run_shaped(OWN NEXT "and.b32 %x8, %x8, 63;\nshr.u32 %x11, %x9, 5;\n"
                                    "setp.eq.u32 %p2, %x11, 0;\n@%p2 st.shared.u16 [%x8], %x9;\n"
                                    "bar.sync 0;\nld.shared.u16 %x7, [%x10];\nbar.sync 0;\n"
                                    "@!%p2 st.shared.u16 [%x8], %x7;",
                           NULL, &two_warps));
    assert_int_equal(*result, 1);
    assert_null(run_text("@!%p1 st.shared.u32 [room], 5;\n"
                         "shfl.sync.idx.b32 %x8|%p3, %x1, 0, 31, -1;\nld.shared.u32 %x7, [room];",
                         NULL));
    assert_int_equal(*result, 5);
    result[2] = 0;
    assert_null(run_shaped("atom.global.add.u32 %x7, [%x0+16], 1;\nbra $end;", NULL, &two_blocks));
    assert_int_equal(result[2], 64);
}

TEST(what_nobody_wrote_is_not_read)
{
    REFUSE({"ld.shared.u32 %x7, [room];", "no thread of its block wrote", ONE_WARP},
           {"@%p1 bra $end;\nst.shared.u16 [room], %x1;\nld.shared.u32 %x7, [room];",
            "no thread of its block wrote", ONE_WARP},
           {"mov.u32 %x8, %ctaid.x;\nsetp.ne.u32 %p2, %x8, 0;\n@%p1 bra $end;\n@%p2 bra $reads;\n"
            "st.shared.u32 [room], %x9;\nbra $end;\n$reads:\nld.shared.u32 %x7, [room];\nbra $end;",
            "no thread of its block wrote", TWO_BLOCKS});
    static const char *const read_it = "@%p1 bra $end;\nld.global.u32 %x7, [%x0+12];";
    player->released(result);
    player->allocated(result, 256, false);
    player->written(result, 15);
    const char *error = run_text(read_it, NULL);
    assert_non_null(error);
    assert_non_null(strstr(error, "reads what nobody wrote, byte 12 of memory of the device"));
    assert_null(run_text(
        "@%p1 bra $end;\nst.global.u8 [%x0+15], %x1;\nld.global.u32 %x7, [%x0+12];", NULL));
    assert_null(run_text(read_it, NULL));
    player->released(result);
    player->allocated(result, 256, true);
}

TEST(barriers_are_for_all)
{
    REFUSE(
        {"@%p1 bra $skip;\nbar.sync 0;\n$skip:", "lanes of its warp that do not come", ONE_WARP},
        {"@%p1 bra $skip;\nshfl.sync.idx.b32 %x7|%p2, %x1, 0, 31, -1;\n$skip:", "of its warp",
         ONE_WARP},
        {"@%p1 shfl.sync.idx.b32 %x7|%p2, %x1, 0, 31, -1;", "without the lanes that it names",
         ONE_WARP},
        {"shfl.sync.idx.b32 %x7|%p2, %x1, 0, 31, 1;", "without the lanes that it names", ONE_WARP},
        {"setp.ge.u32 %p2, %x9, 32;\n@%p2 bra $skip;\nbar.sync 0;\n$skip:",
         "to which some warps of block 0 do not come", TWO_WARPS},
        {"setp.ge.u32 %p2, %x9, 32;\n@%p2 bra $other;\nbar.sync 0;\nbra $join;\n$other:\n"
         "bar.sync 0;\n$join:",
         "wait at two barriers", TWO_WARPS});
}

/* Of eight blocks; those that do not ask how many they are all run. */
TEST(loops_over_blocks_are_given_fewer_at_times)
{
    const shape eight = {8, 32, 64, sizeof(probe_args)};
    for (int asks = 0; asks < 2; asks++) {
        bool fewer = false;
        for (int k = 0; k < 20; k++) {
            result[1] = 0;
            assert_null(run_shaped(asks ? "mov.u32 %x8, %nctaid.x;\n@%p1 bra $end;\n"
                                          "atom.global.add.u32 %x7, [%x0+8], 1;\nbra $end;"
                                        : "@%p1 bra $end;\n"
                                          "atom.global.add.u32 %x7, [%x0+8], 1;\nbra $end;",
                                   NULL, &eight));
            assert_in_range(result[1], 1, 8);
            fewer = fewer || result[1] < 8;
        }
        assert_int_equal(fewer, asks);
    }
}

TEST(a_launch_that_does_not_end_is_given_up)
{
    (void)setenv("EBB_PTX_MOST", "100000", 1);
    const char *error = run_text("$again:\nbra $again;", NULL);
    (void)unsetenv("EBB_PTX_MOST");
    assert_non_null(error);
    assert_non_null(strstr(error, "does not end"));
}

TEST(lanes_meet_again_where_branches_join)
{
    /* Lanes below 16 go one way; then all add up what they have. */
    assert_null(run_text("mov.u32 %x8, %tid.x;\nsetp.lt.u32 %p2, %x8, 16;\nmov.u32 %x10, 1;\n"
                         "@%p2 bra $low;\nmov.u32 %x10, 100;\nbra.uni $join;\n"
                         "$low:\nadd.u32 %x10, %x10, 1;\n$join:\n"
                         "shfl.sync.bfly.b32 %x11|%p3, %x10, 16, 31, -1;\n"
                         "add.u32 %x7, %x10, %x11;",
                         NULL));
    assert_int_equal(*result, 102);
    assert_null(run_text("setp.eq.u32 %p2, %x9, 3;\nvote.sync.ballot.b32 %x7, %p2, -1;", NULL));
    assert_int_equal(*result, 8);
    assert_null(run_text("atom.global.add.u32 %x7, [%x0+8], 0;", NULL));
}

const fixture around_all = {open_player, close_player};
