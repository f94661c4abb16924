/* test_group.c: processes of a group that share memory: sums in the order of ranks, and what is said where
 * one of them does something else, comes late, ends, or was never one.
 */
#include "call.h"

#include <time.h>

#include "kernels/away/mover.h"
#include "tests/processes.h"

/* ---- sums ---- */

/* What rank r has: magnitudes far apart, so that another order of adding gives other bits. */
static void fill(ebb_operand *o, int rank)
{
    uint64_t draws = 77 + (uint64_t)rank;
    for (size_t i = 0; i < count_of(o); i++) {
        draws = draws * 6364136223846793005u + 1442695040888963407u;
        const double x = (double)(draws >> 40) / 8388608.0 - 1.0;
        if (o->type.dtype == EBB_I32)
            ((int32_t *)o->data)[i] = (int32_t)(x * 2e9);
        else
            set_value(o, i,
                      o->type.dtype == EBB_I64 ? x * 1e15 : ldexp(x, (int)(draws >> 33 & 15)));
    }
}

static void put_filled(testing *t, ebb_dtype dtype, int64_t n, int rank)
{
    ebb_operand *o = &t->in[t->call.input_count++];
    make_operand(o, dtype, 1, D(n));
    fill(o, rank);
}

/* Operator Add, one rank after another. */
static void add_all(testing *t, int ranks, ebb_dtype dtype, int64_t n)
{
    begin(t, EBB_OP_ADD);
    put_filled(t, dtype, n, 0);
    put_filled(t, dtype, n, 0);
    put_out(t, dtype, 1, D(n));
    const ebb_backend *const *plain;
    check_status(ebb_backends("plain", &plain), "plain");
    check_status(ebb_pick(&t->call, plain), "Add");
    for (int r = 1; r < ranks; r++) {
        fill(&t->in[1], r);
        compute_picked(t, "Add");
        memcpy(t->in[0].data, t->out[0].data, t->out[0].bytes);
    }
}

static int sum_is_right(ebb_group *group, ebb_dtype dtype, int64_t n)
{
    TESTING(sum);
    TESTING(expected);
    begin(&sum, EBB_OP_ALL_REDUCE);
    put_int(&sum, "ranks", group->ranks);
    put_filled(&sum, dtype, n, group->rank);
    put_out(&sum, dtype, 1, D(n));
    sum.call.group = group;
    run_with(&sum, "plain.all_reduce");
    add_all(&expected, group->ranks, dtype, n);
    const int differs = memcmp(sum.out[0].data, expected.in[0].data, sum.out[0].bytes);
    return differs != 0;
}

static int sums_are_right(ebb_group *group)
{
    static const ebb_dtype dtypes[] = {EBB_F32, EBB_F64, EBB_F16, EBB_BF16, EBB_I32, EBB_I64};
    static const int64_t sizes[] = {1, 2, 3, 1000, 4099};
    int check = 1;
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++, check++)
            if (sum_is_right(group, dtypes[d], sizes[s]))
                return check;
    return sum_is_right(group, EBB_F32, 3 * EBB_GROUP_PIECE / 4 + 5) ? check : 0; // in pieces
}

TEST(sums_have_the_bits_of_adding_one_rank_after_another)
{
    all_are_right(1, sums_are_right);
    all_are_right(2, sums_are_right);
    all_are_right(3, sums_are_right);
    all_are_right(7, sums_are_right);
}

/* ---- parts ---- */

static void put_ranks(testing *t, ebb_op op, int64_t ranks)
{
    begin(t, op);
    put_int(t, "ranks", ranks);
}

/* A rank's part of the sum of all is what it has of it in an AllReduce, zeros behind its end. */
static int part_is_right(ebb_group *group, int64_t n)
{
    TESTING(whole);
    TESTING(part);
    const int64_t ranks = group->ranks, length = (n + ranks - 1) / ranks;
    put_ranks(&whole, EBB_OP_ALL_REDUCE, ranks);
    put_filled(&whole, EBB_F32, n, group->rank);
    put_out(&whole, EBB_F32, 1, D(n));
    whole.call.group = group;
    run_with(&whole, "plain.all_reduce");
    put_ranks(&part, EBB_OP_REDUCE_SCATTER, ranks);
    put_filled(&part, EBB_F32, n, group->rank);
    put_out(&part, EBB_F32, 1, D(length));
    part.call.group = group;
    run_with(&part, "plain.reduce_scatter");
    const float *sum = whole.out[0].data, *own = part.out[0].data;
    int differs = 0;
    for (int64_t i = 0, at = group->rank * length; i < length; i++)
        differs |= own[i] != (at + i < n ? sum[at + i] : 0);
    return differs;
}

/* What was cut is put together again: over what all have, or in a place of its own. */
static int whole_is_right(ebb_group *group, ebb_op op, ebb_dtype dtype, int64_t n)
{
    TESTING(cut);
    TESTING(all);
    const int64_t ranks = group->ranks, length = (n + ranks - 1) / ranks;
    put_ranks(&cut, EBB_OP_SHARD, ranks);
    put_filled(&cut, dtype, n, 5);
    put_out(&cut, dtype, 1, D(length));
    cut.call.group = group;
    run_with(&cut, "plain.shard");
    put_ranks(&all, op, ranks);
    put_filled(&all, dtype, length, 0);
    memcpy(all.in[0].data, cut.out[0].data, cut.out[0].bytes);
    if (op == EBB_OP_ALL_GATHER)
        put_filled(&all, dtype, n, group->rank);
    put_out(&all, dtype, 1, D(n));
    all.call.group = group;
    run_with(&all, op == EBB_OP_ALL_GATHER ? "plain.all_gather" : "plain.unshard");
    const int differs = memcmp(all.out[0].data, cut.in[0].data, cut.in[0].bytes);
    return differs != 0;
}

static int parts_are_right(ebb_group *group)
{
    static const int64_t sizes[] = {1, 2, 3, 1000, 4099, 3 * EBB_GROUP_PIECE / 4 + 5};
    int check = 1;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++, check += 3)
        if (part_is_right(group, sizes[s]) ||
            whole_is_right(group, EBB_OP_ALL_GATHER, EBB_F32, sizes[s]) ||
            whole_is_right(group, EBB_OP_UNSHARD, EBB_F32, sizes[s]) ||
            whole_is_right(group, EBB_OP_UNSHARD, EBB_BF16, sizes[s]))
            return check;
    return 0;
}

TEST(parts_have_the_bits_of_the_whole)
{
    all_are_right(1, parts_are_right);
    all_are_right(2, parts_are_right);
    all_are_right(7, parts_are_right);
}

/* What a ring sends: twice all blocks but one's own. */
static int traffic_is_as_said(ebb_group *group)
{
    (void)sum_is_right(group, EBB_F32, 1000);
    const uint64_t ranks = (uint64_t)group->ranks, block = (1000 + ranks - 1) / ranks;
    return group->exchanges != 2 || group->sent_bytes != 2 * (ranks - 1) * block * 4;
}

TEST(traffic_is_counted_to_the_byte)
{
    all_are_right(2, traffic_is_as_said);
    all_are_right(3, traffic_is_as_said);
}

/* ---- beside the step ---- */

static bool is_said(ebb_status status, const char *words)
{
    if (status != NULL && strstr(ebb_status_text(status), words) != NULL)
        return true;
    fprintf(stderr, "said: %s\nexpected: %s\n",
            status != NULL ? ebb_status_text(status) : "nothing", words);
    return false;
}

static int64_t now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* A call as a program has it: its workspace stays. */
static ebb_status begin_sum(testing *t, const char *kernel, ebb_group *group, ebb_mover *mover,
                            int64_t n)
{
    begin(t, strcmp(kernel, "plain.all_reduce") == 0 ? EBB_OP_ALL_REDUCE : EBB_OP_START_ALL_REDUCE);
    put_int(t, "ranks", group->ranks);
    put_filled(t, EBB_F32, n, group->rank);
    put_out(t, EBB_F32, 1, D(n));
    t->call.group = group;
    t->call.mover = mover;
    t->call.node = "a sum";
    t->call.kernel = kernel_named(kernel);
    EBB_TRY(t->call.kernel->workspace(&t->call, &t->call.workspace_bytes));
    t->call.workspace = malloc(t->call.workspace_bytes);
    return t->call.kernel->run(&t->call);
}

static bool is_sum(testing *t, int ranks)
{
    TESTING(expected);
    add_all(&expected, ranks, EBB_F32, (int64_t)count_of(&t->out[0]));
    const bool is = memcmp(t->out[0].data, expected.in[0].data, t->out[0].bytes) == 0;
    return is;
}

/* Rank 1 comes late: the others go on, and stand still where a sum is wanted, or another is made at once. */
static int the_step_goes_on(ebb_group *group)
{
    static const int64_t sizes[3] = {1000, 70001, 3};
    const ebb_mover_plan plan = {.folder = "."};
    testing sums[3];
    ebb_mover *mover;
    if (ebb_mover_open(&mover, &plan) != NULL)
        return 1;
    if (group->rank == 1)
        (void)usleep(400000);
    const int64_t began = now_ms();
    for (int i = 0; i < 2; i++)
        if (begin_sum(&sums[i], "plain.start_all_reduce", group, mover, sizes[i]) != NULL)
            return 2;
    if (group->rank != 1 && now_ms() - began > 200)
        return 3;
    if (begin_sum(&sums[2], "plain.all_reduce", group, mover, sizes[2]) != NULL)
        return 4;
    if (group->rank != 1 && now_ms() - began < 200)
        return 5;
    for (int i = 0; i < 3; i++) {
        if (ebb_mover_wait(mover, sums[i].out[0].data) != NULL || !is_sum(&sums[i], group->ranks))
            return 6 + i;
        free(sums[i].call.workspace);
        sums[i].call.workspace = NULL;
        end(&sums[i]);
    }
    ebb_mover_close(mover);
    return 0;
}

TEST(sums_are_made_beside_the_step_in_its_order)
{
    all_are_right(2, the_step_goes_on);
    all_are_right(3, the_step_goes_on);
}

/* What is started fails where it is waited for. */
static int what_is_started_fails(ebb_group *group)
{
    const ebb_mover_plan plan = {.folder = "."};
    TESTING(sum);
    ebb_mover *mover;
    if (ebb_mover_open(&mover, &plan) != NULL ||
        begin_sum(&sum, "plain.start_all_reduce", group, mover, 9) != NULL)
        return 1;
    ebb_status status = ebb_mover_wait(mover, sum.out[0].data);
    const bool is = is_said(status, "a sum: rank 1 has ended");
    ebb_mover_close(mover);
    free(sum.call.workspace);
    sum.call.workspace = NULL;
    return is ? 0 : 2;
}

TEST(a_sum_that_fails_is_said_where_it_is_waited_for)
{
    int ends[2] = {0};
    run_all(2, 60000, 2, what_is_started_fails, ends);
    assert_int_equal(ends[0], 0);
}

/* ---- what goes wrong ---- */

static int each_is_elsewhere(ebb_group *group)
{
    int64_t own = 1, all[4];
    const char *const what = group->rank == 1 ? "Add 'b'" : "Add 'a'";
    ebb_status status = ebb_group_all_gather(group, &own, all, sizeof own, what);
    return !is_said(status, group->rank == 1 ? "rank 1 is at Add 'b'" : "rank 1 at Add 'b'");
}

TEST(two_at_different_nodes_are_told)
{
    all_are_right(2, each_is_elsewhere);
}

static int numbers_differ(ebb_group *group)
{
    if (ebb_group_agree(group, "the seed", 5) != NULL)
        return 1;
    ebb_status status = ebb_group_agree(group, "the seed", group->rank == 2 ? 6 : 5);
    return is_said(status, "the seed differs between processes: rank 0 has 5, rank 2 has 6") ? 0
                                                                                             : 2;
}

TEST(a_number_that_differs_is_told_to_all)
{
    all_are_right(3, numbers_differ);
}

static int one_stays_away(ebb_group *group)
{
    int64_t own = 1, all[4];
    if (group->rank == 1)
        return usleep(1500000), 0;
    ebb_status status = ebb_group_all_gather(group, &own, all, sizeof own, "Conv 'late'");
    return !is_said(status, "Conv 'late': rank 1 did not come within 0.2 s");
}

TEST(one_that_does_not_come_is_named)
{
    int ends[3] = {0};
    run_all(3, 200, 0, one_stays_away, ends);
    assert_true(ends[0] == 0 && ends[1] == 0 && ends[2] == 0);
}

static int waits_for_all(ebb_group *group)
{
    int64_t own = 1, all[4];
    return !is_said(ebb_group_all_gather(group, &own, all, sizeof own, "Conv 'c'"),
                    "Conv 'c': rank 1 has ended");
}

TEST(nobody_waits_for_one_that_has_ended)
{
    int ends[3] = {0};
    run_all(3, 60000, 2, waits_for_all, ends);
    assert_true(ends[0] == 0 && ends[2] == 0);
}

static int one_speaks(ebb_group *group)
{
    int64_t speaks = ebb_group_speaks(group) ? 1 : 0, all[4] = {0}, sum = 0;
    if (ebb_group_all_gather(group, &speaks, all, sizeof speaks, "who speaks") != NULL)
        return 1;
    for (int r = 0; r < group->ranks; r++)
        sum += all[r];
    return sum == 1 ? 0 : 2;
}

TEST(one_alone_speaks)
{
    all_are_right(4, one_speaks);
}

/* ---- what is no group ---- */

static void not_joined(const char *where, const char *words)
{
    ebb_group *group;
    (void)setenv(EBB_SHARED_VARIABLE, where, 1);
    ebb_status status = ebb_group_join(&group);
    if (status == NULL || ebb_status_code(status) != EBB_USAGE || group != NULL)
        fail_msg("%s was joined", where);
    assert_true(is_said(status, words));
}

TEST(what_is_no_group_is_not_joined)
{
    char where[64];
    ebb_shared *shared;
    int descriptor;
    FILE *file = tmpfile();
    assert_non_null(file);
    not_joined("", "is not DESCRIPTOR:RANK");
    not_joined("x:1", "is not DESCRIPTOR:RANK");
    not_joined("3", "is not DESCRIPTOR:RANK");
    not_joined("3:", "is not DESCRIPTOR:RANK");
    not_joined("99999999999999999999:0", "is not DESCRIPTOR:RANK");
    not_joined("987:0", "names no group");
    (void)snprintf(where, sizeof where, "%d:0", fileno(file));
    not_joined(where, "names no group"); // a file that others could shorten
    check_status(ebb_shared_make(&shared, &descriptor, 2, &(ebb_shared_terms){.late_ms = 1000}),
                 "making the memory");
    const int other = dup(descriptor);
    (void)snprintf(where, sizeof where, "%d:2", descriptor);
    not_joined(where, "there is no rank 2 among 2");
    (void)snprintf(where, sizeof where, "%d:0", descriptor);
    (void)setenv(EBB_SHARED_VARIABLE, where, 1);
    ebb_group *group;
    check_status(ebb_group_join(&group), "joining");
    (void)snprintf(where, sizeof where, "%d:0", other);
    not_joined(where, "rank 0 has begun already");
    ebb_group_leave(group);
    ebb_shared_drop(shared, other, 2);
    fclose(file);
}

TEST(a_process_alone_is_a_group_of_one)
{
    ebb_group *group;
    uint64_t own = 7, all = 0;
    (void)unsetenv(EBB_SHARED_VARIABLE);
    check_status(ebb_group_join(&group), "joining");
    assert_null(group);
    assert_int_equal(ebb_group_ranks(group), 1);
    assert_int_equal(ebb_group_rank(group), 0);
    assert_true(ebb_group_speaks(group));
    check_status(ebb_group_all_gather(group, &own, &all, sizeof own, "alone"), "alone");
    assert_int_equal(all, 7);
}
