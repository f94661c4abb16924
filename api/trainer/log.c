/* log.c: records into files: a kind of file is a row of `kinds`, told by the end of its name.
 *
 * A record is written at once and as a whole: what of it a full disk took is cut off again. So a file
 * of lines never ends in half a line, unless the machine itself stopped.
 */
#include "api/trainer/trainer.h"

#include "onnx/file/sink.h"
#include "onnx/words/print.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef struct log log_file;

typedef struct log_kind {
    const char *ending;
    /* The step of a line that is kept by a resumed run; -1: it stays, -2: it goes. NULL: no lines. */
    int64_t (*step_of)(const char *line);
    ebb_status (*begin)(log_file *l, const ebb_evaluator *evaluator, int64_t resumed_at);
    ebb_status (*add)(log_file *l, const ebb_record *r);
} log_kind;

struct log {
    const log_kind *kind;
    const char *path;
    char name[4096]; /* of the file: path, or one in that folder */
    int fd;
    bool is_regular, was_empty;
    const ebb_evaluator *evaluator; /* NULL: none */
};

struct ebb_logs {
    log_file *list;
    size_t count;
};

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static ebb_status append(log_file *l, const void *bytes, size_t count)
{
    const off_t before = l->is_regular ? lseek(l->fd, 0, SEEK_END) : 0;
    const char *at = bytes;
    while (count > 0) {
        const ssize_t n = write(l->fd, at, count);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            ebb_status status = ebb_error_io(l->name, "writing");
            if (l->is_regular && ftruncate(l->fd, before) != 0)
                return ebb_error_io(l->name, "cutting off half a record");
            return status;
        }
        at += n;
        count -= (size_t)n;
    }
    return NULL;
}

/* ---- JSON lines ---- */

static void set_number(json_t *o, const char *key, double x)
{
    if (isfinite(x))
        (void)json_object_set_new(o, key, json_real(x));
}

static json_t *number_or_null(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static ebb_status add_json(log_file *l, const ebb_record *r)
{
    json_t *o = json_pack("{s:I, s:I, s:o}", "step", (json_int_t)r->step, "epoch",
                          (json_int_t)r->epoch, "loss", number_or_null(r->loss));
    set_number(o, "rate", r->rate);
    (void)json_object_set_new(o, "step_ns", json_integer((json_int_t)r->step_ns));
    set_number(o, "rows_per_s", r->rows_per_second);
    set_number(o, "epoch_loss", r->epoch_loss);
    if (r->evaluator != NULL) {
        json_t *eval = json_object();
        for (size_t i = 0; i < ebb_evaluator_count(r->evaluator); i++) {
            const ebb_metric m = ebb_evaluator_at(r->evaluator, i);
            (void)json_object_set_new(eval, m.name, number_or_null(m.value));
        }
        (void)json_object_set_new(o, "eval", eval);
    }
    set_number(o, "time", now());
    char *text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(15));
    json_decref(o);
    EBB_GOT(text);
    const size_t length = strlen(text);
    text[length] = '\n'; // in the place of its end
    ebb_status status = append(l, text, length + 1);
    free(text);
    return status;
}

static int64_t step_of_json(const char *line)
{
    json_t *o = json_loads(line, 0, NULL);
    const json_t *step = json_object_get(o, "step");
    const int64_t n = json_is_integer(step) ? json_integer_value(step) : -2;
    json_decref(o);
    return n;
}

/* ---- CSV ---- */

typedef struct text {
    char at[4096];
    size_t used;
    bool cut; /* it did not fit */
} text;

__attribute__((format(printf, 2, 3))) static void print(text *t, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int n = ebb_vsnprintf(t->at + t->used, sizeof t->at - t->used, format, arguments);
    va_end(arguments);
    t->cut = t->cut || n < 0 || (size_t)n >= sizeof t->at - t->used;
    t->used = t->cut ? t->used : t->used + (size_t)n;
}

static void print_cell(text *t, double x)
{
    if (isfinite(x))
        print(t, ",%.9g", x);
    else
        print(t, isnan(x) ? "," : x > 0 ? ",inf" : ",-inf");
}

static ebb_status append_text(log_file *l, const text *t)
{
    return t->cut ? ebb_error(EBB_USAGE, "%s: too many metrics for a line", l->path)
                  : append(l, t->at, t->used);
}

static ebb_status begin_csv(log_file *l, const ebb_evaluator *evaluator, int64_t resumed_at)
{
    (void)resumed_at;
    text t = {.used = 0};
    print(&t, "step,epoch,time,loss,rate,step_ns,rows_per_s,epoch_loss");
    for (size_t i = 0; evaluator != NULL && i < ebb_evaluator_count(evaluator); i++)
        print(&t, ",eval_%s", ebb_evaluator_at(evaluator, i).name);
    print(&t, "\n");
    return l->was_empty ? append_text(l, &t) : NULL;
}

static ebb_status add_csv(log_file *l, const ebb_record *r)
{
    text t = {.used = 0};
    print(&t, "%lld,%lld,%.3f", (long long)r->step, (long long)r->epoch, now());
    print_cell(&t, r->loss);
    print_cell(&t, r->rate);
    print(&t, ",%lld", (long long)r->step_ns);
    print_cell(&t, r->rows_per_second);
    print_cell(&t, r->epoch_loss);
    for (size_t i = 0; l->evaluator != NULL && i < ebb_evaluator_count(l->evaluator); i++)
        print_cell(&t,
                   r->evaluator != NULL ? ebb_evaluator_at(r->evaluator, i).value : (double)NAN);
    print(&t, "\n");
    return append_text(l, &t);
}

static int64_t step_of_csv(const char *line)
{
    char *end;
    if (strncmp(line, "step,", 5) == 0)
        return -1;
    const long long n = strtoll(line, &end, 10);
    return end != line && *end == ',' ? n : -2;
}

/* ---- TensorBoard ---- */

static ebb_status append_event(log_file *l, int64_t step, const ebb_tag *tags, size_t count)
{
    uint8_t *bytes;
    size_t size;
    EBB_TRY(ebb_event_make(&bytes, &size, now(), step, tags, count));
    ebb_status status = append(l, bytes, size);
    ebb_free(bytes);
    return status;
}

static ebb_status begin_events(log_file *l, const ebb_evaluator *evaluator, int64_t resumed_at)
{
    (void)evaluator;
    EBB_TRY(append_event(l, 0, NULL, 0));
    return resumed_at > 0 ? append_event(l, resumed_at + 1, NULL, 0) : NULL;
}

static ebb_status add_events(log_file *l, const ebb_record *r)
{
    enum { MOST = 64, NAME = 128 };
    ebb_tag tags[MOST];
    char names[MOST][NAME];
    size_t count = 0;
    const ebb_tag fixed[] = {{"train/loss", r->loss},
                             {"train/epoch_loss", r->epoch_loss},
                             {"train/rate", r->rate},
                             {"train/rows_per_s", r->rows_per_second}};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        if (!isnan(fixed[i].value))
            tags[count++] = fixed[i];
    const size_t metrics = r->evaluator != NULL ? ebb_evaluator_count(r->evaluator) : 0;
    for (size_t i = 0; i < metrics && count < MOST; i++, count++) {
        const ebb_metric m = ebb_evaluator_at(r->evaluator, i);
        (void)snprintf(names[i], NAME, "eval/%.100s", m.name);
        tags[count] = (ebb_tag){names[i], m.value};
    }
    return append_event(l, r->step, tags, count);
}

/* ---- all ---- */

static const log_kind kinds[] = {
    {".jsonl", step_of_json, NULL, add_json},
    {".csv", step_of_csv, begin_csv, add_csv},
    {"/", NULL, begin_events, add_events},
};

static bool ends_with(const char *word, const char *ending)
{
    const size_t a = strlen(word), b = strlen(ending);
    return a >= b && strcmp(word + a - b, ending) == 0;
}

/* Lines, where the name says nothing and there is something that is no folder: a pipe, a device, and
 * an open descriptor, whatever it leads to. */
static const log_kind *kind_of(const char *path)
{
    struct stat facts;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (ends_with(path, kinds[i].ending))
            return &kinds[i];
    if (ebb_sink_descriptor(path) >= 0)
        return &kinds[0];
    if (stat(path, &facts) != 0 || S_ISREG(facts.st_mode))
        return NULL;
    return S_ISDIR(facts.st_mode) ? &kinds[2] : &kinds[0];
}

/* The folders of a path that ends in '/', those that are not there. */
static ebb_status make_folders(const char *path)
{
    char part[4096];
    if (strlen(path) >= sizeof part)
        return ebb_error(EBB_USAGE, "%.60s...: the name is too long", path);
    for (size_t i = 0; path[i] != '\0'; i++) {
        part[i] = path[i];
        part[i + 1] = '\0';
        if (path[i] == '/' && mkdir(part, 0777) != 0 && errno != EEXIST)
            return ebb_error_io(part, "making the folder");
    }
    return NULL;
}

/* Only whole lines of steps that are done stay, and the file is whole at each moment. */
static ebb_status keep_lines(const log_file *l, int64_t resumed_at)
{
    char *line = NULL;
    size_t room = 0;
    ebb_sink sink;
    FILE *file = fopen(l->name, "r");
    if (file == NULL)
        return errno == ENOENT ? NULL : ebb_error_io(l->name, "reading");
    ebb_status status = ebb_sink_open(&sink, l->name);
    for (ssize_t n; status == NULL && (n = getline(&line, &room, file)) > 0;)
        if (line[n - 1] == '\n') {
            const int64_t step = l->kind->step_of(line);
            if (step != -2 && step <= resumed_at)
                ebb_sink_write(&sink, line, (size_t)n);
        }
    free(line);
    (void)fclose(file);
    return ebb_sink_done(&sink, status);
}

/* Of all before any is opened, which would end what it held. */
static ebb_status check_log(log_file *l)
{
    l->kind = kind_of(l->path);
    if (l->kind == NULL)
        return ebb_error(
            EBB_USAGE,
            "%s: a log ends in .jsonl or .csv, or in '/' where TensorBoard is to read it", l->path);
    return l->kind->step_of != NULL ? ebb_output_check(l->path) : NULL;
}

static ebb_status open_log(log_file *l, int64_t resumed_at)
{
    struct stat facts;
    const bool is_folder = l->kind->step_of == NULL;
    if (is_folder && !ends_with(l->path, "/"))
        (void)snprintf(l->name, sizeof l->name, "%s/", l->path);
    else
        (void)snprintf(l->name, sizeof l->name, "%s", l->path);
    if (is_folder) {
        EBB_TRY(make_folders(l->name));
        const size_t used = strlen(l->name);
        (void)ebb_snprintf(l->name + used, sizeof l->name - used,
                           "events.out.tfevents.%.0f.ebb.%ld", now(), (long)getpid());
    }
    const int open_already = ebb_sink_descriptor(l->name);
    const bool there = stat(l->name, &facts) == 0;
    l->is_regular = open_already < 0 && (!there || S_ISREG(facts.st_mode));
    if (l->is_regular && resumed_at >= 0 && !is_folder)
        EBB_TRY(keep_lines(l, resumed_at));
    const int begins = l->is_regular && resumed_at < 0 ? O_TRUNC : 0;
    l->fd =
        open_already >= 0
            ? fcntl(open_already, F_DUPFD_CLOEXEC, 0)
            : open(l->name,
                   O_WRONLY | O_CLOEXEC | (l->is_regular ? O_CREAT | O_APPEND : 0) | begins, 0666);
    if (l->fd < 0)
        return ebb_error_io(l->name, "writing");
    l->was_empty = !l->is_regular || lseek(l->fd, 0, SEEK_END) == 0;
    return NULL;
}

ebb_status ebb_logs_open(ebb_logs **logs, const char *const *paths, const ebb_evaluator *evaluator,
                         int64_t resumed_at)
{
    size_t count = 0;
    ebb_status status = NULL;
    while (paths != NULL && paths[count] != NULL)
        count++;
    *logs = ebb_alloc(sizeof **logs);
    EBB_GOT(*logs);
    **logs = (ebb_logs){ebb_alloc(count * sizeof *(*logs)->list), 0};
    if ((*logs)->list == NULL)
        status = ebb_error_memory();
    for (size_t i = 0; status == NULL && i < count; i++) {
        log_file *l = &(*logs)->list[(*logs)->count++];
        *l = (log_file){.path = paths[i], .evaluator = evaluator, .fd = -1};
        status = check_log(l);
    }
    for (size_t i = 0; status == NULL && i < count; i++) {
        log_file *l = &(*logs)->list[i];
        status = open_log(l, resumed_at);
        if (status == NULL && l->kind->begin != NULL)
            status = l->kind->begin(l, evaluator, resumed_at);
    }
    if (status != NULL) {
        ebb_logs_close(*logs);
        *logs = NULL;
    }
    return status;
}

ebb_status ebb_logs_add(ebb_logs *logs, const ebb_record *record)
{
    for (size_t i = 0; i < logs->count; i++)
        EBB_TRY(logs->list[i].kind->add(&logs->list[i], record));
    return NULL;
}

void ebb_logs_close(ebb_logs *logs)
{
    if (logs == NULL)
        return;
    for (size_t i = 0; i < logs->count; i++)
        if (logs->list[i].fd >= 0)
            (void)close(logs->list[i].fd);
    ebb_free(logs->list);
    ebb_free(logs);
}
