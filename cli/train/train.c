/* train.c: `ebb train`: from words to a step, its data and the options of a trainer; what it says
 * meanwhile, and at the end.
 */
#include "cli/cli.h"

#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

typedef struct job {
    const cli *c;
    ebb_model *model;    /* the step */
    ebb_model *exported; /* the user's own file, as it is */
    ebb_data *data;
    ebb_program *program;
    ebb_trainer *trainer;
    cli_map map;
    cli_sizes sizes;
    cli_evaluation eval;
    int64_t *order; /* rows to train on, then those held out; NULL: none is */
    const char *logs[MOST_WORDS + 1];
    ebb_trainer_options o;
    bool is_terminal, says_each_step;
    json_t *times, *epochs, *evaluations; /* ns of each step; what is said of each */
    json_t *last;                         /* evaluation; or NULL */
    json_t *made;                         /* what was said of the step; NULL: it was one */
} job;

/* ---- signals ---- */

static const struct {
    int number;
    const char *name;
} signals[] = {{SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}};
enum { SIGNALS = sizeof signals / sizeof *signals };

static ebb_trainer *running;
static bool saves; /* something is written at the end */
static volatile sig_atomic_t caught;

/* The second one has its usual effect, at once. */
static void stop_soon(int number)
{
    static const char saved[] =
        "\nebb: this step is finished and saved; once more ends it at once\n";
    static const char lost[] = "\nebb: this step is finished; once more ends it at once\n";
    caught = number;
    ebb_trainer_stop(running);
    for (size_t i = 0; i < SIGNALS; i++)
        (void)signal(signals[i].number, SIG_DFL);
    (void)!write(STDERR_FILENO, saves ? saved : lost, saves ? sizeof saved - 1 : sizeof lost - 1);
}

/* What was ignored stays so: nohup, and commands in the background of a script. A pipe that nobody
 * reads any more is an error of writing, behind which the checkpoint is still there. */
static void catch_signals(ebb_trainer *trainer)
{
    running = trainer;
    (void)signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < SIGNALS; i++) {
        struct sigaction now, soon = {.sa_handler = stop_soon, .sa_flags = SA_RESTART};
        if (sigaction(signals[i].number, NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            (void)sigaction(signals[i].number, &soon, NULL);
    }
}

static void let_signals_go(void)
{
    for (size_t i = 0; i < SIGNALS; i++) {
        struct sigaction now;
        if (sigaction(signals[i].number, NULL, &now) == 0 && now.sa_handler == stop_soon)
            (void)signal(signals[i].number, SIG_DFL);
    }
}

static const char *signal_name(void)
{
    for (size_t i = 0; i < SIGNALS; i++)
        if (signals[i].number == caught)
            return signals[i].name;
    return NULL;
}

/* ---- meanwhile ---- */

static json_t *number_or_null(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static const char *evaluated_on(const cli *c)
{
    return cli_get(c, "--eval", "held out");
}

static void say_evaluation(const job *j, const ebb_trainer_facts *f)
{
    fprintf(stderr, "evaluated: ");
    cli_print_metrics(stderr, j->last);
    if (f->best_at != f->steps && f->best_at > 0)
        cli_note("  not better than at step %lld", (long long)f->best_at);
}

/* At the end of an epoch it is said in that line. */
static void evaluated(job *j, const ebb_trainer_facts *f)
{
    const bool ends = f->epoch_steps == f->per_epoch || f->steps == f->until;
    json_decref(j->last);
    j->last = cli_metrics(j->eval.evaluator);
    json_t *o = json_pack("{s:I}", "step", (json_int_t)f->steps);
    (void)json_object_update(o, j->last);
    (void)json_array_append_new(j->evaluations, o);
    if (ends && f->steps > f->resumed_at)
        return;
    cli_clear_progress();
    fprintf(stderr, "step %lld: ", (long long)f->steps);
    say_evaluation(j, f);
}

static void end_epoch(job *j, const ebb_trainer_facts *f)
{
    json_t *o = json_pack("{s:I, s:I, s:o}", "epoch", (json_int_t)f->epoch, "step",
                          (json_int_t)f->steps, "loss", number_or_null(f->epoch_loss));
    (void)json_array_append_new(j->epochs, o);
    if (j->says_each_step)
        return;
    cli_clear_progress();
    fprintf(stderr, "epoch %lld: mean loss %.5f", (long long)f->epoch, f->epoch_loss);
    if (f->evaluated_at == f->steps && j->last != NULL) {
        fputs("; ", stderr);
        say_evaluation(j, f);
    } else {
        fputc('\n', stderr);
    }
}

static void tell(void *context, ebb_trainer *trainer, ebb_trainer_event event)
{
    job *j = context;
    const ebb_trainer_facts f = ebb_trainer_measure(trainer);
    if (event == EBB_TRAINER_STEP) {
        if (cli_has(j->c, "--json"))
            (void)json_array_append_new(j->times, json_integer((json_int_t)f.step_ns));
        if (!isfinite(f.loss))
            cli_note("step %lld: the loss is %f", (long long)f.steps, f.loss);
        if (j->is_terminal)
            cli_draw_progress(&f);
        else if (j->says_each_step)
            cli_note("step %lld: loss %.6f", (long long)f.steps, f.loss);
    } else if (event == EBB_TRAINER_EPOCH) {
        end_epoch(j, &f);
    } else if (event == EBB_TRAINER_EVALUATED) {
        evaluated(j, &f);
    }
}

/* ---- at the end ---- */

/* What getrusage says starts at what the process held before it became this program: that of its parent,
 * where it is a fork. */
static double resident_bytes(void)
{
    char line[256];
    double kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status != NULL && kib == 0 && fgets(line, sizeof line, status) != NULL)
        if (strncmp(line, "VmHWM:", strlen("VmHWM:")) == 0)
            kib = strtod(line + strlen("VmHWM:"), NULL);
    if (status != NULL)
        (void)fclose(status);
    struct rusage usage;
    if (kib > 0)
        return kib * 1024;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (double)usage.ru_maxrss * 1024 : 0; // of Linux
}

static void set_number(json_t *o, const char *key, double x)
{
    (void)json_object_set_new(o, key, number_or_null(x));
}

static void set_whole(json_t *o, const char *key, int64_t n)
{
    (void)json_object_set_new(o, key, json_integer((json_int_t)n));
}

static void print_object(const job *j, const ebb_trainer_facts *f, int code)
{
    const ebb_program_facts p = ebb_program_measure(j->program);
    json_t *o =
        json_pack("{s:s, s:I, s:o, s:I, s:I, s:I, s:O, s:O, s:O}", "schema", "ebb.train/1", "steps",
                  (json_int_t)f->steps, "loss", number_or_null(f->loss), "arena_bytes",
                  (json_int_t)p.planned_arena_bytes, "measured_arena_bytes",
                  (json_int_t)p.measured_arena_bytes, "peak_bytes", (json_int_t)p.peak_bytes,
                  "step_ns", j->times, "epochs", j->epochs, "evaluations", j->evaluations);
    if (p.device_bytes != 0) {
        set_whole(o, "device_bytes", (int64_t)p.device_bytes);
        set_whole(o, "process_bytes", (int64_t)p.process_bytes);
    }
    if (p.planned_disk_bytes != 0) {
        set_whole(o, "disk_bytes", (int64_t)p.planned_disk_bytes);
        set_whole(o, "measured_disk_bytes", (int64_t)p.disk_bytes);
        set_whole(o, "waited_ns", p.waited_ns);
    }
    if (p.planned_mapped_bytes != 0) {
        set_whole(o, "mapped_bytes", (int64_t)p.planned_mapped_bytes);
        set_whole(o, "measured_mapped_bytes", (int64_t)p.mapped_bytes);
    }
    if (cli_launched() != NULL) {
        set_whole(o, "ranks", ebb_group_ranks(cli_launched()));
        set_whole(o, "exchanges", (int64_t)p.exchanges);
        set_whole(o, "sent_bytes", (int64_t)p.sent_bytes);
    }
    if (j->last != NULL)
        (void)json_object_set(o, "eval", j->last);
    static const char *const of_making[] = {"training", "warnings"};
    for (size_t i = 0; i < 2; i++)
        if (json_object_get(j->made, of_making[i]) != NULL)
            (void)json_object_set(o, of_making[i], json_object_get(j->made, of_making[i]));
    if (isfinite(f->best))
        (void)json_object_set_new(
            o, "best",
            json_pack("{s:I, s:f}", "step", (json_int_t)f->best_at, f->best_by, f->best));
    if (isfinite(f->rate))
        set_number(o, "rate", f->rate);
    set_whole(o, "median_step_ns", f->median_ns);
    set_number(o, "rows_per_s", f->rows_per_second);
    if (f->tokens_per_second > 0)
        set_number(o, "tokens_per_s", f->tokens_per_second);
    set_number(o, "resident_bytes", resident_bytes());
    set_whole(o, "left_out_rows", f->left_out);
    set_whole(o, "resumed_at", f->resumed_at);
    (void)json_object_set_new(o, "stopped_early", json_boolean(f->stopped_early));
    if (caught != 0)
        (void)json_object_set_new(o, "interrupted", json_string(signal_name()));
    if (code != EBB_OK && caught == 0) {
        set_whole(o, "code", code);
        (void)json_object_set_new(o, "error", json_string(cli_last_said()));
    }
    cli_print_json(o, JSON_COMPACT);
    json_decref(o);
}

static void print_lines(const job *j, const ebb_trainer_facts *f)
{
    const ebb_program_facts p = ebb_program_measure(j->program);
    char arena[32], time[32], resident[32], rate[32];
    printf("%lld steps", (long long)f->steps);
    if (!f->was_over)
        printf(", loss %.6f", f->loss);
    printf(", arena %s (planned and measured %s)", cli_bytes(arena, (double)p.arena_bytes),
           p.planned_arena_bytes == p.measured_arena_bytes ? "equal" : "DIFFER");
    if (!f->was_over) // else no step was computed
        printf(", median step %s", cli_time(time, (double)f->median_ns));
    putchar('\n');
    cli_show_device((double)p.planned_arena_bytes, (double)p.device_bytes, (double)p.process_bytes);
    if (f->rows_per_second > 0)
        printf("%s, ", cli_rate(rate, f->rows_per_second, "rows"));
    if (f->tokens_per_second > 0)
        printf("%s, ", cli_rate(rate, f->tokens_per_second, "tokens"));
    printf("at most %s resident", cli_bytes(resident, resident_bytes()));
    if (f->left_out > 0 && j->o.repeat_batch == false)
        printf("; %lld of %lld rows left out of each epoch: they fill no batch of %lld",
               (long long)f->left_out, (long long)j->o.row_count, (long long)j->o.batch);
    putchar('\n');
    if (j->last == NULL)
        return;
    printf("%s: ", evaluated_on(j->c));
    cli_print_metrics(stdout, j->last);
    if (j->o.keep_best && f->best_at > 0)
        printf("best: step %lld, %s %.6f, which is what was saved\n", (long long)f->best_at,
               f->best_by, f->best);
}

static void say_why_it_ended(const job *j, const ebb_trainer_facts *f)
{
    if (f->was_over)
        cli_note(
            "%s: %lld steps are done, and none is left to do of %lld: --steps or --epochs says "
            "how far it goes",
            j->o.resume != NULL ? j->o.resume : j->c->files[0], (long long)f->steps,
            (long long)f->until);
    else if (f->stopped_early)
        cli_note("stopped after step %lld: %lld evaluations in a row were not better than at step "
                 "%lld",
                 (long long)f->steps, (long long)f->not_better, (long long)f->best_at);
    else if (f->was_stopped)
        cli_note("stopped by %s after step %lld of %lld%s%s", signal_name(), (long long)f->steps,
                 (long long)f->until, j->o.checkpoint != NULL ? "; go on with --resume " : "",
                 j->o.checkpoint != NULL ? j->o.checkpoint : "");
}

/* An exit code. */
static int run(job *j)
{
    saves = j->o.checkpoint != NULL || j->o.save_model != NULL || j->o.save_adapter != NULL ||
            j->o.save_ort != NULL;
    if (!saves && !j->o.repeat_batch)
        cli_note("note: nothing of this training is saved: --save-model FILE or --checkpoint FILE");
    catch_signals(j->trainer);
    cli_give_back();
    ebb_status status = ebb_trainer_run(j->trainer);
    let_signals_go();
    cli_clear_progress();
    const ebb_trainer_facts f = ebb_trainer_measure(j->trainer);
    const int code = status != NULL ? cli_fail(status) : EBB_OK;
    if (status == NULL)
        say_why_it_ended(j, &f);
    if (cli_has(j->c, "--json"))
        print_object(j, &f, code);
    else if (code == EBB_OK)
        print_lines(j, &f);
    return code == EBB_OK && caught != 0 ? 128 + caught : code;
}

/* ---- before ---- */

static bool read_options(job *j)
{
    cli_list(j->c, "--log", j->logs);
    j->o.logs = j->logs;
    j->o.tell = tell;
    j->o.context = j;
    j->is_terminal = cli_is_terminal();
    j->says_each_step = cli_has(j->c, "--repeat-batch") && !j->is_terminal;
    return cli_trainer_options(j->c, &j->o) && cli_read_map(j->c, "--map", &j->map);
}

/* Which rows are trained on, and how often. */
static ebb_status count_rows(job *j, int64_t rows, int64_t *steps)
{
    const cli *c = j->c;
    j->o.row_count = rows;
    if (cli_has(c, "--eval-split")) {
        j->order = calloc((size_t)rows, sizeof *j->order);
        if (j->order == NULL)
            return ebb_rows_split(NULL, 0, 0, &rows);
        ebb_status status =
            ebb_rows_split(j->order, rows, cli_number(c, "--eval-split", 0), &j->eval.row_count);
        if (status != NULL)
            return status;
        j->o.row_count = rows - j->eval.row_count;
        j->o.rows = j->order;
        j->eval.rows = j->order + j->o.row_count;
    }
    return ebb_trainer_steps(steps, &j->o);
}

/* The step, and the data bound to it. An exit code. */
static int prepare(job *j)
{
    const cli *c = j->c;
    bool step = false;
    int64_t rows = -1, steps = 0;
    char *made = NULL;
    int code = EBB_OK;
    ebb_status status = cli_open_sizes(c, &j->model, &j->sizes);
    if (status == NULL && (code = cli_take_rows(c, &j->o.batch, j->sizes.rows)) != EBB_OK)
        return code;
    if (status == NULL)
        status = cli_weights(c, j->model);
    if (status == NULL)
        status = cli_has_step(j->model, &step);
    if (status == NULL && (code = cli_check_step(c, 0, step)) != EBB_OK)
        return code;
    if (status == NULL)
        status = cli_open_data(c, "--data", true, j->model, &j->data);
    const int64_t batch = j->o.batch / (step ? ebb_group_ranks(cli_launched()) : 1); // of the file
    if (status == NULL)
        status = cli_bind_rows(j->model, j->data, &j->map, batch, &rows);
    if (status == NULL && (code = cli_check_sizes(&j->sizes, j->model)) != EBB_OK)
        return code;
    if (status == NULL)
        status = count_rows(j, rows, &steps);
    if (status == NULL)
        status = step ? cli_rewrite(c, j->model, false, NULL, NULL)
                      : cli_make_step(c, j->model, steps, &made);
    j->made = made != NULL ? json_loads(made, 0, NULL) : NULL;
    ebb_release(made);
    if (cli_has(c, "--group"))
        cli_note_pass(j->made, "optimizer");
    if (status == NULL)
        status = cli_find_feeds(j->model, j->data, &j->map);
    cli_notes(j->data, NULL);
    j->o.map = j->map.feeds;
    j->o.step = j->model;
    return status == NULL ? EBB_OK : cli_fail(status);
}

/* The user's own file, and what it is evaluated on. An exit code. */
static int prepare_evaluation(job *j)
{
    const cli *c = j->c;
    const bool splits = cli_has(c, "--eval-split");
    if (!splits && !cli_has(c, "--eval") && j->o.save_model == NULL)
        return EBB_OK;
    ebb_status status = ebb_open(&j->exported, c->files[0]);
    if (status == NULL)
        status = cli_set_threads(c, j->exported);
    if (status == NULL)
        status = cli_head(c, j->exported, true);
    if (status != NULL)
        return cli_fail(status);
    j->o.exported = j->eval.model = j->exported;
    j->eval.batch = j->o.batch;
    if (!splits && !cli_has(c, "--eval"))
        return EBB_OK;
    j->eval.of = splits ? j->data : NULL;
    int code = cli_open_evaluation(c, &j->eval, splits ? "--data" : "--eval",
                                   cli_has(c, "--eval-map") ? "--eval-map" : "--map");
    j->o.evaluator = j->eval.evaluator;
    if (code == EBB_OK && !splits)
        code = cli_check_classes(j->data, j->eval.data, cli_get(c, "--eval", ""));
    return code;
}

/* The folder that a file lies in; NULL: none is named, or its name is too long. */
static const char *folder_of(const char *path, char folder[PATH_MAX])
{
    const size_t length = path != NULL ? strlen(path) : PATH_MAX;
    return length < PATH_MAX ? dirname(memcpy(folder, path, length + 1)) : NULL;
}

/* An exit code. */
static int make_trainer(job *j)
{
    char beside[PATH_MAX];
    const ebb_compile_options options = {
        .backend = cli_backend(j->c),
        .seed = j->o.seed,
        .threads = cli_threads(j->c),
        .profile = cli_has(j->c, "--profile"),
        .spill = cli_get(j->c, "--spill", folder_of(j->o.checkpoint, beside)),
        .spill_unchecked = cli_has(j->c, "--spill-unchecked"),
        .group = cli_launched(),
    };
    ebb_status status = ebb_program_compile(&j->program, j->model, &options);
    if (status == NULL)
        cli_tell_compiled(j->c, j->program);
    if (status == NULL && ebb_program_loss_name(j->program) == NULL)
        return cli_usage("%s has no loss: say which, e.g. --loss cross-entropy, or of a language "
                         "model --loss cross-entropy:axis=-1",
                         j->c->files[0]);
    if (status == NULL)
        status = ebb_trainer_new(&j->trainer, j->program, j->data, &j->o);
    if (status == NULL && j->o.resume != NULL && !ebb_checkpoint_was_checked(j->program))
        cli_note("%s: it is of before checkpoints had a checksum, so damage to it is not seen",
                 j->o.resume);
    if (status == NULL && j->o.resume != NULL && ebb_checkpoint_note(j->program) != NULL)
        cli_note("%s: %s", j->o.resume, ebb_checkpoint_note(j->program));
    return status == NULL ? EBB_OK : cli_fail(status);
}

static int show_profile(const job *j)
{
    char *profile = NULL;
    ebb_status status = ebb_program_profile_json(j->program, &profile);
    return status != NULL ? cli_fail(status) : cli_show(j->c, profile, cli_show_profile);
}

int cli_train(const cli *c)
{
    job j = {.c = c, .times = json_array(), .epochs = json_array(), .evaluations = json_array()};
    int code = EBB_USAGE;
    ebb_status status = cli_join();
    if (status != NULL)
        code = cli_fail(status);
    else if (!cli_has(c, "--data"))
        code = cli_usage("say what to train on: --data FILE");
    else if (cli_check_planning(c) == EBB_OK && read_options(&j))
        code = prepare(&j);
    if (code == EBB_OK)
        code = prepare_evaluation(&j);
    if (code == EBB_OK)
        code = make_trainer(&j);
    if (code == EBB_OK)
        code = run(&j);
    if (code == EBB_OK && cli_has(c, "--profile"))
        code = show_profile(&j);
    ebb_trainer_free(j.trainer);
    ebb_program_free(j.program);
    cli_leave();
    cli_close_evaluation(&j.eval);
    json_decref(j.times);
    json_decref(j.epochs);
    json_decref(j.evaluations);
    json_decref(j.last);
    json_decref(j.made);
    cli_free_map(&j.map);
    cli_free_sizes(&j.sizes);
    free(j.order);
    ebb_data_close(j.data);
    ebb_close(j.exported);
    ebb_close(j.model);
    return code;
}
