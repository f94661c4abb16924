/* test_tally_merge.c: an evaluation that several processes share counts what one does.
 */
#include <math.h>

#include "tests/processes.h"

#include "api/tally.h"

enum { ROWS = 12, WIDTH = 37, BATCH = 3 }; /* more columns than go at once */

static float scores[ROWS][WIDTH], numbers[ROWS][WIDTH];
static int64_t labels[ROWS];

/* Far from zero, so that a variance made of sums of squares would be lost. */
static void fill(void)
{
    uint64_t draws = 9;
    for (int i = 0; i < ROWS * WIDTH; i++) {
        draws = draws * 6364136223846793005u + 1442695040888963407u;
        (&scores[0][0])[i] = (float)(draws >> 40) / 8388608.0f + 1000;
        draws = draws * 6364136223846793005u + 1442695040888963407u;
        (&numbers[0][0])[i] = (float)(draws >> 40) / 8388608.0f + 1000;
        labels[i % ROWS] = (int64_t)(draws >> 50) % WIDTH;
    }
}

static ebb_status count(ebb_tally *t, int from, int rows)
{
    bool fits = false;
    const bool classes = t->task == EBB_TASK_CLASSES;
    const int64_t dims[] = {rows, WIDTH};
    const ebb_tensor x = {.type = ebb_type_tensor(EBB_F32, 2, dims), .data = scores[from]};
    const ebb_tensor y = {.type = classes ? ebb_type_tensor(EBB_I64, 1, dims)
                                          : ebb_type_tensor(EBB_F32, 2, dims),
                          .data = classes ? (const void *)&labels[from] : numbers[from]};
    ebb_status status = ebb_tally_take(t, &x, &y, NULL, &fits);
    return status == NULL && !fits ? ebb_error(EBB_RUNTIME, "it does not fit") : status;
}

/* Every metric of the task: 1 + which of them differs, or 0. */
static int compare(ebb_tally *shared, ebb_tally *alone)
{
    for (int i = 0; ebb_metric_rows[i].name != NULL; i++) {
        if ((ebb_metric_rows[i].fits & (unsigned)alone->task) == 0)
            continue;
        const double a = ebb_metric_rows[i].value(shared), b = ebb_metric_rows[i].value(alone);
        if (!(fabs(a - b) <= 1e-12 * fabs(b)))
            return 1 + i;
    }
    return shared->counted != alone->counted ? 80 : 0;
}

static int counts_what_one_does(ebb_group *group, ebb_task task)
{
    ebb_tally shared = {.task = task, .axis = 1, .ignore_index = 5, .needs_likelihood = true};
    ebb_tally alone = shared;
    for (int b = 0; b < ROWS / BATCH; b++)
        if (count(&alone, b * BATCH, BATCH) != NULL ||
            (b % group->ranks == group->rank && count(&shared, b * BATCH, BATCH) != NULL))
            return 81;
    if (ebb_tally_merge(&shared, group) != NULL)
        return 82;
    const int differs = compare(&shared, &alone);
    ebb_tally_fini(&shared);
    ebb_tally_fini(&alone);
    return differs;
}

static int classes_are_counted(ebb_group *group)
{
    return counts_what_one_does(group, EBB_TASK_CLASSES);
}

static int numbers_are_counted(ebb_group *group)
{
    return counts_what_one_does(group, EBB_TASK_NUMBERS);
}

TEST(all_count_what_one_does)
{
    fill();
    all_are_right(3, classes_are_counted);
    all_are_right(4, numbers_are_counted);
    all_are_right(3, numbers_are_counted);
}
