/* position.c: where a run stands, as the JSON that a checkpoint keeps for it, and which checkpoints
 * stay; and the results.
 *
 *     c.safetensors                 the last one, always whole
 *     c-000000040.safetensors       those before it, of which `keep` - 1 stay
 *     c-best.safetensors            of the best evaluation
 */
#include "api/trainer/trainer.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/data/checkpoint.h"
#include "exec/data/weights.h"
#include "onnx/words/clock.h"

/* ---- there ---- */

/* For free(). Nothing in it depends on when it was written. */
static char *position(const ebb_trainer *t)
{
    const ebb_trainer_facts *f = &t->facts;
    json_t *o = json_pack("{s:I, s:I, s:I, s:I, s:b}", "steps", (json_int_t)f->steps, "seed",
                          (json_int_t)t->seed, "batch", (json_int_t)t->batch, "rows",
                          (json_int_t)t->o.row_count, "shuffle", (int)!t->o.in_order);
    if (f->steps % t->per_epoch > 0 && isfinite(t->epoch_sum)) // within an epoch
        (void)json_object_set_new(o, "epoch_sum", json_real(t->epoch_sum));
    if (f->evaluated_at > 0) {
        (void)json_object_set_new(o, "evaluated_at", json_integer((json_int_t)f->evaluated_at));
        (void)json_object_set_new(o, "not_better", json_integer((json_int_t)f->not_better));
        (void)json_object_set_new(o, "best_by", json_string(f->best_by));
    }
    if (isfinite(f->best)) {
        (void)json_object_set_new(o, "best", json_real(f->best));
        (void)json_object_set_new(o, "best_at", json_integer((json_int_t)f->best_at));
    }
    char *text = o != NULL ? json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(o);
    return text;
}

/* ---- and back ---- */

typedef enum value_form { WHOLE, TRUTH, REAL, TEXT } value_form;

typedef struct key {
    const char *name;
    value_form form;
    bool needed;
} key;

static const key keys[] = {
    {"steps", WHOLE, true},         {"seed", WHOLE, true},        {"batch", WHOLE, true},
    {"rows", WHOLE, true},          {"shuffle", TRUTH, true},     {"epoch_sum", REAL, false},
    {"evaluated_at", WHOLE, false}, {"not_better", WHOLE, false}, {"best", REAL, false},
    {"best_at", WHOLE, false},      {"best_by", TEXT, false},
};
enum { KEYS = sizeof keys / sizeof *keys };

static bool is_of(const json_t *value, value_form form)
{
    return form == WHOLE   ? json_is_integer(value) && json_integer_value(value) >= 0
           : form == TRUTH ? json_is_boolean(value)
           : form == TEXT  ? json_is_string(value)
                           : json_is_number(value);
}

/* What position() does not write so: a key that is missing, of another type, or one more; NULL. */
static const char *odd_key(json_t *o)
{
    const char *name;
    json_t *value;
    for (size_t k = 0; k < KEYS; k++) {
        value = json_object_get(o, keys[k].name);
        if (value == NULL ? keys[k].needed : !is_of(value, keys[k].form))
            return keys[k].name;
    }
    json_object_foreach(o, name, value) {
        bool known = false;
        for (size_t k = 0; k < KEYS; k++)
            known |= strcmp(name, keys[k].name) == 0;
        if (!known)
            return name;
    }
    return NULL;
}

static int64_t whole_of(const json_t *o, const char *name)
{
    return json_integer_value(json_object_get(o, name));
}

/* Of another metric there is no best yet. */
static void take_best(ebb_trainer_facts *f, const json_t *o)
{
    const json_t *by = json_object_get(o, "best_by"); // older files: the loss
    f->evaluated_at = whole_of(o, "evaluated_at");
    if (strcmp(by != NULL ? json_string_value(by) : "loss", f->best_by) != 0)
        return;
    f->not_better = whole_of(o, "not_better");
    f->best_at = whole_of(o, "best_at");
    if (json_object_get(o, "best") != NULL)
        f->best = json_number_value(json_object_get(o, "best"));
}

static ebb_status take_place(ebb_trainer *t, json_t *o)
{
    const char *path = t->o.resume;
    ebb_trainer_facts *f = &t->facts;
    const char *odd = odd_key(o);
    if (odd != NULL && strcmp(odd, "steps") == 0)
        return ebb_error(EBB_REJECTED, "%s: it does not say how many steps were done", path);
    if (odd != NULL)
        return ebb_error(EBB_REJECTED,
                         "%s: where its run stands it says with '%.100s' missing, of another type "
                         "or unknown",
                         path, odd);
    const int64_t batch = whole_of(o, "batch"), rows = whole_of(o, "rows");
    if (batch != t->batch || rows != t->o.row_count)
        return ebb_hint(
            ebb_error(EBB_USAGE, "%s: made with batch %lld over %lld rows, not %lld over %lld",
                      path, (long long)batch, (long long)rows, (long long)t->batch,
                      (long long)t->o.row_count),
            "give the --batch, the --accumulate and the data that it was made with; to train its "
            "weights on others, write them by --save-model and train that file");
    const uint64_t seed = (uint64_t)whole_of(o, "seed");
    if (t->o.seed_is_given && seed != t->seed)
        return ebb_error(EBB_USAGE, "%s: made with --seed %llu, which goes on: leave --seed out",
                         path, (unsigned long long)seed);
    const bool shuffled = json_is_true(json_object_get(o, "shuffle"));
    if (shuffled && t->o.in_order)
        return ebb_error(EBB_USAGE, "%s: made with shuffled rows, so --no-shuffle has no effect",
                         path);
    t->seed = seed;
    t->o.in_order = !shuffled;
    f->steps = f->resumed_at = whole_of(o, "steps");
    f->epoch_steps = f->steps % t->per_epoch;
    if (f->epoch_steps > 0)
        t->epoch_sum = json_number_value(json_object_get(o, "epoch_sum"));
    take_best(f, o);
    return NULL;
}

ebb_status ebb_trainer_resume(ebb_trainer *t)
{
    char *text = NULL;
    if (t->o.resume == NULL)
        return NULL;
    EBB_TRY(ebb_checkpoint_load(t->program, t->o.resume, &text));
    json_t *o = text != NULL ? json_loads(text, 0, NULL) : NULL;
    ebb_release(text);
    ebb_status status = take_place(t, o);
    json_decref(o);
    return status;
}

/* ---- files ---- */

/* "c-tail.safetensors" for "c.safetensors". False where that is too long. */
static bool beside(char name[4096], const char *path, const char *tail)
{
    const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
    if (dot == NULL || (slash != NULL && dot < slash) || dot == (slash != NULL ? slash + 1 : path))
        dot = path + strlen(path);
    return snprintf(name, 4096, "%.*s-%s%s", (int)(dot - path), path, tail, dot) < 4096;
}

/* The regular file that a name leads to; NULL: there is none. */
static char *file_of(const char *path)
{
    struct stat facts;
    return stat(path, &facts) == 0 && S_ISREG(facts.st_mode) ? realpath(path, NULL) : NULL;
}

/* The steps that a kept checkpoint has in its name, or -1. */
static int64_t steps_in(const char *name, const char *head, const char *tail)
{
    const size_t length = strlen(name), begins = strlen(head), ends = strlen(tail);
    int64_t steps = 0;
    if (length != begins + 9 + ends || strncmp(name, head, begins) != 0 ||
        strcmp(name + begins + 9, tail) != 0)
        return -1;
    for (size_t i = begins; i < begins + 9; i++) {
        if (name[i] < '0' || name[i] > '9')
            return -1;
        steps = steps * 10 + (name[i] - '0');
    }
    return steps;
}

/* The oldest go until `most` are left. A file that cannot be removed stays. */
static void remove_oldest(const char *path, int most)
{
    char pattern[4096], name[4096];
    if (!beside(pattern, path, "\n"))
        return;
    char *base = strrchr(pattern, '/'), *tail = strchr(pattern, '\n') + 1;
    base = base != NULL ? base + 1 : pattern;
    const int folder = (int)(base - pattern);
    char *head = base;
    tail[-1] = '\0';
    for (;;) {
        int64_t least = INT64_MAX;
        int count = 0;
        char oldest[4096] = "";
        (void)snprintf(name, sizeof name, "%.*s", folder, pattern);
        DIR *entries = opendir(folder > 0 ? name : ".");
        const struct dirent *e;
        while (entries != NULL && (e = readdir(entries)) != NULL) {
            const int64_t steps = steps_in(e->d_name, head, tail);
            count += steps >= 0;
            if (steps >= 0 && steps < least &&
                snprintf(oldest, sizeof oldest, "%.*s%s", folder, pattern, e->d_name) < 4096)
                least = steps;
        }
        if (entries != NULL)
            (void)closedir(entries);
        if (count <= most || oldest[0] == '\0' || unlink(oldest) != 0)
            return;
    }
}

/* The file that is there gets a second name before a new one takes its first: at no moment is there
 * none. Where a file can have no second name it is renamed. */
static ebb_status keep_file(const char *path, int64_t steps)
{
    char tail[32], name[4096];
    (void)snprintf(tail, sizeof tail, "%09lld", (long long)steps);
    if (!beside(name, path, tail))
        return ebb_error(EBB_USAGE, "%s: the name is too long", path);
    if (link(path, name) != 0 && errno != EEXIST && rename(path, name) != 0)
        return ebb_error_io(name, "keeping the checkpoint before");
    return NULL;
}

/* Older ones lie beside the file, where the checkpoint's name is a link: that may be another disk. */
static ebb_status keep_last(const ebb_trainer *t)
{
    char *file = t->o.keep < 2 || t->saved_at < 0 || t->saved_at == t->facts.steps
                     ? NULL
                     : file_of(t->o.checkpoint);
    ebb_status status = file != NULL ? keep_file(file, t->saved_at) : NULL;
    free(file);
    return status;
}

static void drop_oldest(const ebb_trainer *t)
{
    char *file = t->o.keep > 1 ? file_of(t->o.checkpoint) : NULL;
    if (file != NULL)
        remove_oldest(file, t->o.keep - 1);
    free(file);
}

static ebb_status save_as(ebb_trainer *t, const char *path)
{
    if (path == NULL)
        return t->gives ? ebb_checkpoint_give(t->program) : NULL;
    char *text = position(t);
    EBB_GOT(text);
    ebb_status status = ebb_checkpoint_save(t->program, path, text);
    free(text);
    return status;
}

ebb_status ebb_trainer_save(ebb_trainer *t)
{
    t->saved_ns = ebb_now_ns();
    if (t->o.checkpoint == NULL)
        return save_as(t, NULL);
    EBB_TRY(keep_last(t));
    EBB_TRY(save_as(t, t->o.checkpoint));
    drop_oldest(t);
    t->saved_at = t->facts.steps;
    return NULL;
}

ebb_status ebb_trainer_save_best(ebb_trainer *t)
{
    char name[4096];
    if (t->o.checkpoint == NULL)
        return save_as(t, NULL);
    if (!beside(name, t->o.checkpoint, "best"))
        return ebb_error(EBB_USAGE, "%s: the name is too long", t->o.checkpoint);
    return save_as(t, name);
}

/* ---- results ---- */

static ebb_status save_model(ebb_trainer *t)
{
    ebb_model *copy = NULL; // only its initializers change
    ebb_status status = ebb_model_copy(&copy, t->o.exported);
    if (status == NULL)
        status = ebb_program_lend(t->program, copy);
    if (status == NULL && t->o.save_model != NULL) // else another process does
        status = ebb_save(copy, t->o.save_model);
    ebb_close(copy);
    return status;
}

/* For ONNX Runtime: the step, with the trained states in it, says what goes where. */
static ebb_status save_ort(ebb_trainer *t)
{
    char *text = position(t);
    ebb_status status =
        text == NULL ? ebb_error_memory() : ebb_program_store(t->program, t->o.step);
    if (status == NULL)
        status = ebb_artifacts_checkpoint(t->o.step, t->o.save_ort, text);
    free(text);
    return status;
}

ebb_status ebb_trainer_write_results(ebb_trainer *t)
{
    if (t->o.save_ort != NULL)
        EBB_TRY(save_ort(t));
    if (t->o.save_adapter != NULL)
        EBB_TRY(ebb_adapters_save(t->program, t->o.save_adapter));
    return t->o.save_model != NULL || t->stores ? save_model(t) : NULL;
}
