/* train.c: the loop over data.
 *
 * Everything that decides the numbers is in the step file (random key, step counter, state) or
 * follows from (seed, epoch): the order of rows. So a checkpoint needs the states and the count of
 * steps, and N + M steps equal N, stop, M, byte for byte.
 */
#include "cli/cli.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

typedef struct loop {
    int64_t rows, batch, per_epoch, steps, done, every;
    uint64_t seed;
    bool shuffle, ordered, repeat, warn_on_nan, tty;
    cli_map map;
    int64_t *order;
    double last_loss, epoch_sum;
    json_t *times; /* ns of each step, under --json */
    json_t *eval;  /* what --eval gave, or NULL */
} loop;

static double now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* ---- data ---- */

static ebb_status next_batch(ebb_data *data, loop *l, ebb_batch *batch)
{
    int64_t epoch = l->done / l->per_epoch, at = l->repeat ? 0 : l->done % l->per_epoch;
    if (at == 0 || !l->ordered) { // a resumed run starts in the middle of an epoch
        l->ordered = true;
        for (int64_t i = 0; i < l->rows; i++)
            l->order[i] = i;
        if (l->shuffle)
            ebb_shuffle(l->order, l->rows, l->seed, l->repeat ? 0 : (uint64_t)epoch);
    }
    const int64_t *rows = l->order + at * l->batch;
    ebb_data_epoch(data, (uint64_t)epoch);
    ebb_status status = ebb_data_rows(data, rows, (size_t)l->batch, l->map.feeds, batch);
    if (status == NULL && !l->repeat && at + 1 < l->per_epoch) // they are read during this step
        status = ebb_data_ahead(data, rows + l->batch, (size_t)l->batch, l->map.feeds);
    return status;
}

/* ---- telling ---- */

static void show_progress(const loop *l, int64_t until, double ns, uint64_t arena)
{
    enum { WIDTH = 24 };
    char bar[WIDTH + 1], time[32], bytes[32];
    int full = until > 0 ? (int)(l->done * WIDTH / until) : 0;
    for (int i = 0; i < WIDTH; i++)
        bar[i] = i < full ? '#' : '.';
    bar[WIDTH] = '\0';
    fprintf(stderr, "\r[%s] %lld/%lld  loss %.4f  %s/step  arena %s   ", bar, (long long)l->done,
            (long long)until, l->last_loss, cli_time(time, ns), cli_bytes(bytes, (double)arena));
    if (l->done == until)
        fputc('\n', stderr);
}

static void show_epoch(const loop *l, int64_t steps)
{
    cli_note("epoch %lld: mean loss %.5f", (long long)((l->done + l->per_epoch - 1) / l->per_epoch),
             l->epoch_sum / (double)steps);
}

ebb_status cli_loss(ebb_program *program, const char *name, double *loss)
{
    ebb_named t;
    *loss = 0;
    ebb_status status = name != NULL ? ebb_program_get(program, name, &t) : NULL;
    if (status == NULL && name != NULL)
        *loss = ebb_element(&t, 0);
    return status;
}

/* ---- checkpoints ---- */

/* Where the loop stands, for free(). */
static char *position(const loop *l)
{
    json_t *o = json_pack("{s:I, s:I, s:I, s:I, s:b}", "steps", (json_int_t)l->done, "seed",
                          (json_int_t)l->seed, "batch", (json_int_t)l->batch, "rows",
                          (json_int_t)l->rows, "shuffle", (int)l->shuffle);
    char *text = json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(o);
    return text;
}

static ebb_status save_checkpoint(const cli *c, ebb_program *program, const loop *l)
{
    const char *path = cli_get(c, "--checkpoint", NULL);
    if (path == NULL)
        return NULL;
    char *text = position(l);
    ebb_status status = ebb_checkpoint_save(program, path, text);
    free(text);
    return status;
}

/* The same for ONNX Runtime: the step, with the trained states in it, says what goes where. */
static ebb_status save_ort_checkpoint(const cli *c, ebb_program *program, ebb_model *step,
                                      const loop *l)
{
    const char *path = cli_get(c, "--save-checkpoint", NULL);
    if (path == NULL)
        return NULL;
    char *text = position(l);
    ebb_status status = ebb_program_store(program, step);
    if (status == NULL)
        status = ebb_artifacts_checkpoint(step, path, text);
    free(text);
    return status;
}

/* What position() did not write so: a key that is missing, of another type, or one more; NULL. */
static const char *odd_key(json_t *o)
{
    static const char *const numbers[] = {"steps", "seed", "batch", "rows"};
    for (size_t k = 0; k < 4; k++)
        if (!json_is_integer(json_object_get(o, numbers[k])))
            return numbers[k];
    if (!json_is_boolean(json_object_get(o, "shuffle")))
        return "shuffle";
    const char *key;
    json_t *value;
    json_object_foreach(o, key, value) {
        bool known = strcmp(key, "shuffle") == 0;
        for (size_t k = 0; k < 4; k++)
            known |= strcmp(key, numbers[k]) == 0;
        if (!known)
            return key;
    }
    return NULL;
}

/* Goes on where the checkpoint stopped; -1 and a sentence where it belongs to another run. */
static int resume(const cli *c, ebb_program *program, loop *l)
{
    const char *path = cli_get(c, "--resume", NULL);
    char *text = NULL;
    if (path == NULL)
        return EBB_OK;
    ebb_status status = ebb_checkpoint_load(program, path, &text);
    if (status != NULL)
        return cli_fail(status);
    if (!ebb_checkpoint_was_checked(program))
        cli_note("%s: it is of before checkpoints had a checksum, so damage to it is not seen",
                 path);
    if (ebb_checkpoint_note(program) != NULL)
        cli_note("%s: %s", path, ebb_checkpoint_note(program));
    json_t *o = text != NULL ? json_loads(text, 0, NULL) : NULL;
    ebb_release(text);
    const char *odd = odd_key(o);
    int64_t batch = json_integer_value(json_object_get(o, "batch"));
    int64_t rows = json_integer_value(json_object_get(o, "rows"));
    int64_t steps = json_integer_value(json_object_get(o, "steps"));
    int code = EBB_OK;
    if (!json_is_integer(json_object_get(o, "steps")) || steps < 0)
        code = (cli_usage("%s: it does not say how many steps were done", path), EBB_REJECTED);
    else if (odd != NULL)
        code = (cli_usage("%s: where its run stands it says with '%s' missing, of another type or "
                          "unknown",
                          path, odd),
                EBB_REJECTED);
    else if (batch != l->batch || rows != l->rows)
        code =
            cli_usage("%s: made with batch %lld over %lld rows, not %lld over %lld", path,
                      (long long)batch, (long long)rows, (long long)l->batch, (long long)l->rows);
    uint64_t seed = (uint64_t)json_integer_value(json_object_get(o, "seed"));
    bool shuffle = json_is_true(json_object_get(o, "shuffle"));
    if (code == EBB_OK && cli_has(c, "--seed") && seed != l->seed)
        code =
            cli_usage("%s: made with --seed %llu, which goes on", path, (unsigned long long)seed);
    if (code == EBB_OK && shuffle && !l->shuffle)
        code = cli_usage("%s: made with shuffled rows, so --no-shuffle has no effect", path);
    l->done = steps;
    l->seed = seed;
    l->shuffle = shuffle;
    json_decref(o);
    return code;
}

/* ---- the loop ---- */

static int train_steps(const cli *c, ebb_program *program, ebb_data *data, loop *l)
{
    const char *loss_name = ebb_program_loss_name(program);
    int64_t in_epoch = 0, until = l->steps;
    double began = now_ns();
    for (int64_t first = l->done; l->done < until;) {
        ebb_batch batch;
        ebb_status status = next_batch(data, l, &batch);
        if (status == NULL)
            status = ebb_program_step(program, &batch);
        if (status == NULL)
            status = cli_loss(program, loss_name, &l->last_loss);
        if (status != NULL)
            return cli_fail(status);
        l->done++;
        in_epoch++;
        json_array_append_new(l->times,
                              json_integer((json_int_t)ebb_program_measure(program).step_ns));
        l->epoch_sum += l->last_loss;
        if (loss_name != NULL && !isfinite(l->last_loss)) {
            if (!l->warn_on_nan)
                return cli_usage("step %lld: the loss '%s' is %f; nothing was saved after it "
                                 "(--on-nan warn goes on)",
                                 (long long)l->done, loss_name, l->last_loss),
                       EBB_RUNTIME;
            cli_note("step %lld: the loss is %f", (long long)l->done, l->last_loss);
        }
        if (l->tty)
            show_progress(l, until, (now_ns() - began) / (double)(l->done - first),
                          ebb_program_measure(program).arena_bytes);
        else if (l->repeat)
            cli_note("step %lld: loss %.6f", (long long)l->done, l->last_loss);
        if (l->done % l->per_epoch == 0 || l->done == until) {
            if (!l->tty && !l->repeat)
                show_epoch(l, in_epoch);
            l->epoch_sum = 0;
            in_epoch = 0;
        }
        if (l->every > 0 && l->done % l->every == 0 && (status = save_checkpoint(c, program, l)))
            return cli_fail(status);
    }
    return EBB_OK;
}

static ebb_status save_results(const cli *c, ebb_program *program, ebb_model *step, const loop *l)
{
    ebb_status status = save_checkpoint(c, program, l);
    if (status == NULL)
        status = save_ort_checkpoint(c, program, step, l);
    const char *path = cli_get(c, "--save-adapter", NULL);
    if (status == NULL && path != NULL)
        status = ebb_adapters_save(program, path);
    path = cli_get(c, "--save-model", NULL);
    if (status != NULL || path == NULL)
        return status;
    ebb_model *original = NULL; // the user's own file, fresh: only its initializers change
    status = ebb_open(&original, c->files[0]);
    if (status == NULL)
        status = ebb_program_store(program, original);
    if (status == NULL)
        status = ebb_save(original, path);
    ebb_close(original);
    return status;
}

static void report(const cli *c, ebb_program *program, const loop *l)
{
    ebb_program_facts f = ebb_program_measure(program);
    char arena[32], time[32];
    if (cli_has(c, "--json")) {
        json_t *loss = isfinite(l->last_loss) ? json_real(l->last_loss) : json_null();
        json_t *o = json_pack("{s:s, s:I, s:o, s:I, s:I, s:I, s:O}", "schema", "ebb.train/1",
                              "steps", (json_int_t)l->done, "loss", loss, "arena_bytes",
                              (json_int_t)f.planned_arena_bytes, "measured_arena_bytes",
                              (json_int_t)f.measured_arena_bytes, "peak_bytes",
                              (json_int_t)f.peak_bytes, "step_ns", l->times);
        if (f.device_bytes != 0) {
            (void)json_object_set_new(o, "device_bytes", json_integer((json_int_t)f.device_bytes));
            (void)json_object_set_new(o, "process_bytes",
                                      json_integer((json_int_t)f.process_bytes));
        }
        if (l->eval != NULL)
            (void)json_object_set(o, "eval", l->eval);
        cli_print_json(o, JSON_COMPACT);
        json_decref(o);
        return;
    }
    printf("%lld steps, loss %.6f, arena %s (planned and measured %s), last step %s\n",
           (long long)l->done, l->last_loss, cli_bytes(arena, (double)f.arena_bytes),
           f.planned_arena_bytes == f.measured_arena_bytes ? "equal" : "DIFFER",
           cli_time(time, (double)f.step_ns));
    cli_show_device((double)f.planned_arena_bytes, (double)f.device_bytes, (double)f.process_bytes);
    if (l->eval == NULL)
        return;
    printf("%s: loss %.6f", cli_get(c, "--eval", ""), cli_real(l->eval, "loss"));
    const char *name;
    json_t *value;
    json_object_foreach(l->eval, name, value) {
        if (strcmp(name, "accuracy") == 0)
            printf(", accuracy %.2f %% of %.0f", 100 * cli_real(l->eval, name),
                   cli_real(l->eval, "counted"));
        else if (json_is_real(value) && strcmp(name, "loss") != 0)
            printf(", %s %.6g", name, json_real_value(value));
    }
    putchar('\n');
}

static int train_program(const cli *c, ebb_model *model, ebb_data *data, loop *l)
{
    ebb_program *program = NULL;
    const ebb_compile_options options = {
        .backend = cli_backend(c),
        .seed = l->seed,
        .threads = cli_threads(c),
        .profile = cli_has(c, "--profile"),
    };
    ebb_status status = ebb_program_compile(&program, model, &options);
    if (status == NULL && ebb_program_note(program) != NULL)
        cli_note("ebb: %s", ebb_program_note(program));
    int code = status != NULL ? cli_fail(status) : resume(c, program, l);
    if (code == EBB_OK && ebb_program_loss_name(program) == NULL)
        code = cli_usage("%s has no loss: say which, e.g. --loss cross-entropy", c->files[0]);
    if (code == EBB_OK)
        code = train_steps(c, program, data, l);
    if (code == EBB_OK && (status = save_results(c, program, model, l)) != NULL)
        code = cli_fail(status);
    if (code == EBB_OK)
        code = cli_evaluate(c, program, l->batch, &l->eval);
    if (code == EBB_OK)
        report(c, program, l);
    char *profile = NULL;
    if (code == EBB_OK && options.profile &&
        (status = ebb_program_profile_json(program, &profile)) == NULL)
        code = cli_show(c, profile, cli_show_profile);
    ebb_program_free(program);
    return code;
}

/* How far the run goes. An exit code. */
static int count_steps(const cli *c, loop *l)
{
    if (l->rows < l->batch)
        return l->rows < 0 ? cli_usage("%s has no array for any input of %s: name them with --map",
                                       cli_get(c, "--data", ""), c->files[0])
                           : cli_usage("%lld rows are fewer than one batch of %lld",
                                       (long long)l->rows, (long long)l->batch);
    l->per_epoch = l->rows / l->batch;
    const int64_t epochs = cli_whole(c, "--epochs", 1);
    if (l->steps == 0 && epochs > INT64_MAX / l->per_epoch)
        return cli_usage("%lld epochs are too many", (long long)epochs);
    if (l->steps == 0)
        l->steps = epochs * l->per_epoch;
    return EBB_OK;
}

/* An exit code. */
static int prepare(const cli *c, ebb_model **model, ebb_data **data, loop *l)
{
    bool step = false;
    int code = EBB_OK;
    ebb_status status = cli_open(c, model);
    if (status == NULL)
        status = cli_weights(c, *model);
    if (status == NULL)
        status = cli_has_step(*model, &step);
    if (status == NULL && (code = cli_check_step(c, 0, step)) != EBB_OK)
        return code;
    if (status == NULL)
        status = cli_open_data(c, "--data", *model, data);
    if (status == NULL)
        status = cli_bind_rows(*model, *data, &l->map, l->batch, &l->rows);
    if (status == NULL && (code = count_steps(c, l)) != EBB_OK)
        return code;
    if (status == NULL)
        status =
            step ? cli_rewrite(c, *model, false, NULL, NULL) : cli_make_step(c, *model, l->steps);
    if (status == NULL)
        status = cli_find_feeds(*model, *data, &l->map);
    cli_notes(*data);
    return status == NULL ? EBB_OK : cli_fail(status);
}

static bool read_options(const cli *c, loop *l)
{
    const int64_t batch = cli_whole(c, "--batch", 32), parts = cli_whole(c, "--accumulate", 1);
    if (parts > INT32_MAX / batch)
        return cli_usage("%lld batches of %lld rows are too many", (long long)parts,
                         (long long)batch),
               false;
    l->batch = batch * parts;
    l->steps = cli_whole(c, "--steps", 0);
    l->every = cli_whole(c, "--every", 0);
    l->seed = cli_seed(c);
    l->repeat = cli_has(c, "--repeat-batch");
    l->shuffle = !cli_has(c, "--no-shuffle");
    l->tty = isatty(STDERR_FILENO) == 1;
    const char *on_nan = cli_get(c, "--on-nan", "stop");
    l->warn_on_nan = strcmp(on_nan, "warn") == 0;
    if (!l->warn_on_nan && strcmp(on_nan, "stop") != 0)
        return cli_usage("--on-nan takes stop or warn, not '%s'", on_nan), false;
    return cli_read_map(c, "--map", &l->map);
}

int cli_train(const cli *c)
{
    loop l = {0};
    ebb_model *model = NULL;
    ebb_data *data = NULL;
    int code = EBB_USAGE;
    if (!cli_has(c, "--data"))
        return cli_usage("say what to train on: --data FILE");
    if (cli_check_planning(c) != EBB_OK)
        return EBB_USAGE;
    if (cli_has(c, "--eval") && !cli_has(c, "--loss"))
        return cli_usage("--eval runs the exported model forward: give that, and its --loss");
    if (cli_check_metrics(c) != EBB_OK)
        return EBB_USAGE;
    l.times = json_array();
    if (!read_options(c, &l))
        goto done;
    code = prepare(c, &model, &data, &l);
    if (code != EBB_OK)
        goto done;
    l.order = calloc((size_t)l.rows, sizeof *l.order);
    code = l.order == NULL ? EBB_RUNTIME : train_program(c, model, data, &l);
done:
    json_decref(l.times);
    json_decref(l.eval);
    cli_free_map(&l.map);
    free(l.order);
    ebb_data_close(data);
    ebb_close(model);
    return code;
}
