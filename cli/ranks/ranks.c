/* ranks.c: `ebb plan --ranks N`: what each of N processes needs and gives to the others, for any number of
 * them, none of which is there. Shapes of one are everybody's, so bytes are exact; time is a model
 * (exec/weigh/link.h).
 */
#include "cli/cli.h"

#include <limits.h>
#include <malloc.h>

enum { LARGE = 32 << 20 }; /* bytes: the most that malloc can be told to keep */

/* One process exchanges nothing. */
static json_t *row_of(const json_t *plan, int ranks)
{
    const json_t *g = json_object_get(plan, "group");
    json_t *row = json_pack("{s:i, s:b, s:O}", "ranks", ranks, "fits", 1, "categories",
                            json_object_get(plan, "categories"));
    static const char *const of_plan[] = {"peak_bytes", "arena_bytes"}, *const of_group[] = {
                                                                            "exchanges",
                                                                            "sent_bytes",
                                                                            "exchange_ns",
                                                                            "exposed_ns"};
    for (size_t i = 0; i < 2; i++)
        (void)json_object_set(row, of_plan[i], json_object_get(plan, of_plan[i]));
    for (size_t i = 0; i < 4; i++)
        (void)json_object_set_new(row, of_group[i],
                                  json_integer((json_int_t)cli_real(g, of_group[i])));
    (void)json_object_set(row, "step_ns", json_object_get(plan, "planned_ns"));
    return row;
}

static ebb_status plan_for(const cli *c, const ebb_plan_options *options, int ranks, json_t **plan)
{
    ebb_model *model = NULL;
    char *report = NULL, *json = NULL;
    ebb_status status = cli_open(c, &model);
    if (status == NULL)
        status = cli_step_for(c, model, ranks, &report);
    if (status == NULL)
        status = ebb_plan_json(model, options, &json);
    *plan = json != NULL ? json_loads(json, 0, NULL) : NULL;
    ebb_release(report);
    ebb_release(json);
    ebb_close(model);
    return status;
}

/* Where no plan keeps to the budget, the row says so: more processes may need less each. */
static ebb_status add_row(json_t *table, const cli *c, const ebb_plan_options *options, int ranks)
{
    json_t *plan = NULL;
    ebb_status status = plan_for(c, options, ranks, &plan);
    if (status != NULL && ebb_status_code(status) == EBB_NO_PLAN)
        return json_array_append_new(table, json_pack("{s:i, s:b}", "ranks", ranks, "fits", 0)),
               NULL;
    if (plan != NULL)
        (void)json_array_append_new(table, row_of(plan, ranks));
    json_decref(plan);
    return status;
}

int cli_plan_ranks(const cli *c, const ebb_plan_options *options, json_t *plan)
{
    const int most = (int)cli_whole(c, "--ranks", 1);
    if (most < 2)
        return EBB_OK;
    json_t *table = json_array();
    ebb_status status = NULL;
#ifdef __GLIBC__ // the next plan takes the memory of the one before: half the time is pages that come and go
    (void)mallopt(M_MMAP_THRESHOLD, LARGE);
    (void)mallopt(M_TRIM_THRESHOLD, INT_MAX);
#endif
    for (int ranks = 1; ranks < most && status == NULL; ranks *= 2)
        if (most % ranks == 0)
            status = add_row(table, c, options, ranks);
    (void)json_array_append_new(table, row_of(plan, most));
    (void)json_object_set_new(plan, "table", table);
    return status != NULL ? cli_fail(status) : EBB_OK;
}

void cli_show_ranks(const json_t *plan)
{
    const json_t *table = json_object_get(plan, "table"),
                 *link = json_object_get(json_object_get(plan, "group"), "link");
    double alone = 0; // a whole step's work, by the fewest that fit
    size_t i;
    json_t *row;
    if (table == NULL)
        return;
    printf("\nof N processes each, the batch being that of all, ");
    if (link != NULL)
        printf("by a link of %g us a message and %g GB/s\n", cli_real(link, "us"),
               cli_real(link, "gb"));
    else
        printf("by a link that the costs do not know: `ebb bench --calibrate-comm` measures it\n");
    const double crowd = cli_real(link, "crowd");
    if (crowd > 0 && crowd != 1)
        printf("of the last line each computes %.3g times as long as alone, as measured beside the "
               "others\n",
               crowd);
    printf("%6s  %12s  %12s  %10s  %12s  %12s  %12s  %10s\n", "N", "peak", "sent a step",
           "exchanges", "exchanging", "waited for", "step", "efficiency");
    json_array_foreach(table, i, row) {
        char peak[32], sent[32];
        const double n = cli_real(row, "ranks"), step = cli_real(row, "step_ns");
        if (!json_is_true(json_object_get(row, "fits"))) {
            printf("%6.0f  no plan keeps to the budget\n", n);
            continue;
        }
        alone = alone > 0 ? alone : n * step;
        printf("%6.0f  %12s  %12s  %10.0f  %9.3f ms  %9.3f ms  %9.3f ms  %8.1f %%\n", n,
               cli_bytes(peak, cli_real(row, "peak_bytes")),
               cli_bytes(sent, cli_real(row, "sent_bytes")), cli_real(row, "exchanges"),
               cli_real(row, "exchange_ns") / 1e6, cli_real(row, "exposed_ns") / 1e6, step / 1e6,
               100 * alone / (n * step));
    }
}

static void show_link(const json_t *o)
{
    const json_t *link = json_object_get(o, "link");
    printf("%.0f processes reach each other by a link of %.3g us a message and %.3g GB/s (off by "
           "%.1f %% in the middle of the sizes)\n",
           cli_real(o, "ranks"), cli_real(link, "us"), cli_real(link, "gb"),
           100 * cli_real(o, "error"));
    printf("where all compute at once (%.0f thread%s each) it takes %.3g times as long as where "
           "one does: %.3g and %.3g ms\n",
           cli_real(o, "threads"), cli_real(o, "threads") == 1 ? "" : "s",
           cli_real(o, "together_ns") / cli_real(o, "alone_ns"), cli_real(o, "together_ns") / 1e6,
           cli_real(o, "alone_ns") / 1e6);
    printf("%s has it: plan and train take it by --costs\n", cli_text(o, "path"));
}

int cli_calibrate_link(const cli *c)
{
    char *json = NULL;
    if (!cli_has(c, "-o"))
        return cli_usage("say where the times go: -o FILE");
    ebb_status status = cli_join();
    if (status == NULL && cli_launched() == NULL)
        return cli_usage("one process has no link to measure; start two or more: ebb launch -n 2 "
                         "-- ebb bench --calibrate-comm -o costs.json, or by mpirun");
    if (status == NULL)
        status = ebb_calibrate_link(cli_launched(), cli_get(c, "-o", NULL), &json);
    const int code = status == NULL ? cli_show(c, json, show_link) : cli_fail(status);
    cli_leave();
    return code;
}

/* Each of several would write its own times into one file, and slow the others. */
int cli_check_alone(void)
{
    ebb_status status = cli_join();
    int code = status == NULL ? EBB_OK : cli_fail(status);
    if (ebb_group_ranks(cli_launched()) > 1)
        code = cli_usage("operators are measured by one process, and this is one of several: start "
                         "it without `ebb launch` or mpirun. What several measure is `ebb bench "
                         "--calibrate-comm`, into the same file");
    cli_leave();
    return code;
}
