/* ranks.c: `ebb plan --ranks N`: what each of N processes needs and gives to the others, for any number of
 * them, none of which is there. Shapes of one are everybody's, so bytes are exact; time is a model: a message
 * takes the link's delay and its bytes by the link's rate, and the step stands still where it waits for one.
 */
#include "cli/cli.h"

#include <math.h>

/* What is usual, from data sheets and published measurements. */
static const cli_link links[] = {
    {"1gbe", 50, 0.117}, {"10gbe", 30, 1.17},   {"100gbe", 5, 11.5},
    {"ndr400", 5, 47},   {"nvlink4", 3.4, 360},
};

int cli_read_link(cli_link *l, const char *text)
{
    char end;
    for (size_t i = 0; i < sizeof links / sizeof *links; i++)
        if (strcmp(links[i].name, text) == 0)
            return *l = links[i], EBB_OK;
    *l = (cli_link){.name = text};
    if (sscanf(text, "%lf,%lf%c", &l->us, &l->gb, &end) == 2 && l->us >= 0 && l->gb > 0 &&
        isfinite(l->us) && isfinite(l->gb))
        return EBB_OK;
    return cli_usage("--link %s: it is none of 1gbe, 10gbe, 100gbe, ndr400, nvlink4, nor "
                     "MICROSECONDS,GBYTES_PER_SECOND",
                     text);
}

/* Each exchange has a message to every other process, one after another. */
static double ns_of(const json_t *what, double ranks, const cli_link *l)
{
    return cli_real(what, "exchanges") * (ranks - 1) * l->us * 1e3 +
           cli_real(what, "sent_bytes") / l->gb;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* For how long the step stands still. Exchanges go by the link one behind another; one that was begun is
 * waited for later, and in between the step goes on. */
static double stands_for(const json_t *group, const cli_link *l)
{
    json_t *events = json_object_get(group, "events"), *e;
    const double ranks = cli_real(group, "ranks");
    double stood = 0, link_free = 0;
    size_t i;
    json_array_foreach(events, i, e) {
        const double now = cli_real(e, "at_ns") + stood, of = cli_real(e, "waits_for");
        if (of > 0) {
            stood += larger(cli_real(json_array_get(events, (size_t)of - 1), "over_ns") - now, 0);
            continue;
        }
        link_free = larger(link_free, now) + ns_of(e, ranks, l);
        (void)json_object_set_new(e, "over_ns", json_real(link_free));
        if (!json_is_true(json_object_get(e, "beside")))
            stood += link_free - now;
    }
    return stood;
}

static json_t *row_of(const json_t *plan, int ranks, const cli_link *l)
{
    const json_t *g = json_object_get(plan, "group");
    const json_t *categories = json_object_get(plan, "categories");
    const double stood = stands_for(g, l);
    return json_pack("{s:i, s:b, s:I, s:I, s:O, s:I, s:I, s:I, s:I, s:I}", "ranks", ranks, "fits",
                     1, "peak_bytes", (json_int_t)cli_real(plan, "peak_bytes"), "arena_bytes",
                     (json_int_t)cli_real(plan, "arena_bytes"), "categories", categories,
                     "exchanges", (json_int_t)cli_real(g, "exchanges"), "sent_bytes",
                     (json_int_t)cli_real(g, "sent_bytes"), "exchange_ns",
                     (json_int_t)ns_of(g, ranks, l), "exposed_ns", (json_int_t)stood, "step_ns",
                     (json_int_t)(cli_real(plan, "planned_ns") + stood));
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
static ebb_status add_row(json_t *table, const cli *c, const ebb_plan_options *options, int ranks,
                          const cli_link *l)
{
    json_t *plan = NULL;
    ebb_status status = plan_for(c, options, ranks, &plan);
    if (status != NULL && ebb_status_code(status) == EBB_NO_PLAN)
        return json_array_append_new(table, json_pack("{s:i, s:b}", "ranks", ranks, "fits", 0)),
               NULL;
    if (plan != NULL)
        (void)json_array_append_new(table, row_of(plan, ranks, l));
    json_decref(plan);
    return status;
}

int cli_plan_ranks(const cli *c, const ebb_plan_options *options, json_t *plan)
{
    const char *text = cli_get(c, "--link", "10gbe");
    const int most = (int)cli_whole(c, "--ranks", 1);
    cli_link l;
    if (most < 2)
        return EBB_OK;
    const int code = cli_read_link(&l, text);
    if (code != EBB_OK)
        return code;
    json_t *table = json_array();
    ebb_status status = NULL;
    for (int ranks = 1; ranks < most && status == NULL; ranks *= 2)
        if (most % ranks == 0)
            status = add_row(table, c, options, ranks, &l);
    (void)json_array_append_new(table, row_of(plan, most, &l));
    (void)json_object_set_new(plan, "table", table);
    (void)json_object_set_new(plan, "link",
                              json_pack("{s:s, s:f, s:f}", "name", l.name, "us", l.us, "gb", l.gb));
    return status != NULL ? cli_fail(status) : EBB_OK;
}

void cli_show_ranks(const json_t *plan)
{
    const json_t *table = json_object_get(plan, "table"), *by = json_object_get(plan, "link");
    double alone = 0; // a whole step's work, by the fewest that fit
    size_t i;
    json_t *row;
    if (table == NULL)
        return;
    printf("\nof N processes each, by link %s (%g us, %g GB/s); the batch is that of all\n",
           cli_text(by, "name"), cli_real(by, "us"), cli_real(by, "gb"));
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
