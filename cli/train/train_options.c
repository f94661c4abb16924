/* train_options.c: the words of `ebb train` as the options of a trainer. */
#include "cli/cli.h"

/* "200": steps; "90s", "10min", "2h": time. */
static bool read_every(const cli *c, ebb_trainer_options *o)
{
    static const struct {
        const char *unit;
        double ns;
    } units[] = {{"min", 60e9}, {"s", 1e9}, {"h", 3600e9}};
    const char *text = cli_get(c, "--every", NULL);
    char number[64];
    double n;
    if (text == NULL)
        return true;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        const size_t length = strlen(text), unit = strlen(units[i].unit);
        if (length <= unit || length - unit >= sizeof number ||
            strcmp(text + length - unit, units[i].unit) != 0)
            continue;
        (void)snprintf(number, sizeof number, "%.*s", (int)(length - unit), text);
        ebb_status status = ebb_real_parse(&n, number, "(0, 1e6]", "--every");
        o->every_ns = status == NULL ? (int64_t)(n * units[i].ns) : 0;
        return status == NULL || (cli_fail(status), false);
    }
    ebb_status status = ebb_whole_parse(&o->every, text, "[1, inf)", "--every");
    if (status == NULL)
        return true;
    (void)cli_fail(status);
    cli_note("  steps, or a time: 90s, 10min, 2h");
    return false;
}

/* "best" or "best:accuracy", and whatever stands behind its comma. */
static const char *read_best(ebb_trainer_options *o, const char *text)
{
    static char metric[256];
    o->keep_best = strncmp(text, "best", 4) == 0 && strchr(":,", text[4]) != NULL;
    if (!o->keep_best)
        return text;
    text += 4;
    if (*text == ':') {
        const size_t length = strcspn(++text, ",");
        (void)snprintf(metric, sizeof metric, "%.*s", (int)length, text);
        o->best_by = metric;
        text += length;
    }
    return text + (*text == ',');
}

/* "best", "last", or how many checkpoints; also "best,3". */
static bool read_keep(const cli *c, ebb_trainer_options *o)
{
    const char *text = read_best(o, cli_get(c, "--keep", "last"));
    int64_t count = 1;
    if (text[0] == '\0' ? !o->keep_best : strcmp(text, "last") != 0) {
        ebb_status status = ebb_whole_parse(&count, text, "[1, 1000]", "--keep");
        if (status != NULL) {
            (void)cli_fail(status);
            cli_note("  or best, best:accuracy, last, or both as in best,3");
            return false;
        }
    }
    o->keep = (int)count;
    if (count > 1 && o->checkpoint == NULL)
        return cli_usage("--keep %s: of which --checkpoint?", text), false;
    if (o->keep_best && !cli_has(c, "--eval") && !cli_has(c, "--eval-split"))
        return cli_usage("--keep best: --eval or --eval-split decides which is the best"), false;
    if (o->keep_best && o->checkpoint == NULL && o->save_model == NULL && o->save_adapter == NULL &&
        o->save_ort == NULL)
        return cli_usage("--keep best: say what is to be kept, e.g. --save-model FILE"), false;
    return true;
}

int cli_take_rows(const cli *c, int64_t *batch, int64_t rows)
{
    const int64_t own = cli_whole(c, "--batch", 32), parts = *batch / own;
    if (rows == 0 || rows == own)
        return EBB_OK;
    if (cli_has(c, "--batch"))
        return cli_usage(
            "--batch is %lld, and --dim or --shape gives a step %lld rows: leave one out",
            (long long)own, (long long)rows);
    if (parts > INT32_MAX / rows)
        return cli_usage("%lld batches of %lld rows are too many", (long long)parts,
                         (long long)rows);
    *batch = rows * parts;
    return EBB_OK;
}

bool cli_trainer_options(const cli *c, ebb_trainer_options *o)
{
    const int64_t batch = cli_whole(c, "--batch", 32), parts = cli_whole(c, "--accumulate", 1);
    const char *on_nan = cli_get(c, "--on-nan", "stop");
    if (parts > INT32_MAX / batch)
        return cli_usage("%lld batches of %lld rows are too many", (long long)parts,
                         (long long)batch),
               false;
    o->batch = batch * parts;
    o->steps = cli_whole(c, "--steps", 0);
    o->epochs = cli_whole(c, "--epochs", 1);
    o->seed = cli_seed(c);
    o->seed_is_given = cli_has(c, "--seed");
    o->in_order = cli_has(c, "--no-shuffle");
    o->repeat_batch = cli_has(c, "--repeat-batch");
    o->goes_on_after_nan = strcmp(on_nan, "warn") == 0;
    o->eval_every = cli_whole(c, "--eval-every", 0);
    o->patience = cli_whole(c, "--patience", 0);
    o->resume = cli_get(c, "--resume", NULL);
    o->checkpoint = cli_get(c, "--checkpoint", NULL);
    o->log_every = cli_whole(c, "--log-every", 0);
    o->save_model = cli_get(c, "--save-model", NULL);
    o->save_adapter = cli_get(c, "--save-adapter", NULL);
    o->save_ort = cli_get(c, "--save-checkpoint", NULL);
    if (!o->goes_on_after_nan && strcmp(on_nan, "stop") != 0)
        return cli_usage("--on-nan takes stop or warn, not '%s'", on_nan), false;
    const bool evaluates = cli_has(c, "--eval") || cli_has(c, "--eval-split");
    static const char *const others[] = {"--eval-every", "--patience", "--metric"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (cli_has(c, others[i]) && !evaluates)
            return cli_usage("%s needs a --eval or a --eval-split: it has no effect without",
                             others[i]),
                   false;
    if (evaluates && !cli_has(c, "--loss"))
        return cli_usage("--eval runs the exported model forward: give that, and its --loss"),
               false;
    return read_every(c, o) && read_keep(c, o) && cli_check_metrics(c) == EBB_OK;
}
