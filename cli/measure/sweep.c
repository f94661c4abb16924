/* sweep.c: models times passes: each combination beside the exact step of the same model, in one
 * run, as one line of JSON.
 *
 *   { "models": [{"name": "digits", "model": "cnn.onnx", "loss": "cross-entropy", "dim":
 * "batch=32", "run": true, "data": "digits.npz", "map": ["label=target"], "batch": 32}], "passes":
 * ["sign-mask", "sign-mask,dropout-seed",
 *                {"passes": "pool-index", "budget": "60%", "models": ["digits"]}] }
 *
 * Every other key of a model or of passes is an option of `ebb bench` without its dashes. Paths are
 * relative to the file. A line is written when it is complete, and what has a line is not done
 * again, unless it failed: a sweep that was stopped goes on where it was.
 */
#include "cli/measure/sweep_pair.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef struct sweep {
    const cli *c;
    json_t *plan; /* the sweep file, or one made of the command's words */
    json_t *keep; /* strings that words point to */
    json_t *done; /* key: true */
    const char *path, *folder_of;
    FILE *out;
    int64_t steps;
    int added, skipped, failed;
} sweep;

/* ---- words from JSON ---- */

static const char *kept(sweep *s, const char *text)
{
    json_t *string = json_string(text);
    (void)json_array_append_new(s->keep, string);
    return json_string_value(string);
}

static bool is_path(const char *option)
{
    static const char *const paths[] = {"--data", "--weights", "--costs"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (strcmp(paths[i], option) == 0)
            return true;
    return false;
}

/* Beside the sweep file, unless it says from where. */
static const char *path_of(sweep *s, const char *path)
{
    char text[4096];
    const char *slash = s->folder_of != NULL ? strrchr(s->folder_of, '/') : NULL;
    if (path[0] == '/' || slash == NULL)
        return path;
    (void)snprintf(text, sizeof text, "%.*s/%s", (int)(slash - s->folder_of), s->folder_of, path);
    return kept(s, text);
}

static const cli_option *option_of_bench(const sweep *s, const char *name)
{
    for (int i = 0; s->c->way->options[i] != NULL; i++)
        if (strcmp(s->c->way->options[i], name) == 0)
            return cli_find_option(name);
    return NULL;
}

/* One value of key: a switch, a text or a number. False with a sentence where it is none. */
static bool add_word(sweep *s, cli *to, const char *key, const json_t *value)
{
    char name[64], text[64];
    (void)snprintf(name, sizeof name, "--%.60s", key);
    const cli_option *option = option_of_bench(s, name);
    const char *word = json_string_value(value);
    if (option == NULL)
        return cli_usage("%s: '%s' is no option of `ebb bench`", s->path, key), false;
    if (json_is_false(value) && option->value == NULL)
        return true;
    if (json_is_true(value) && option->value == NULL) {
        word = "";
    } else if (json_is_number(value) && option->value != NULL) {
        (void)snprintf(text, sizeof text, "%.17g", json_number_value(value));
        word = text;
    }
    if (word == NULL || (option->value == NULL && word[0] != '\0'))
        return cli_usage("%s: '%s' takes %s", s->path, key,
                         option->value != NULL ? option->value : "true or false"),
               false;
    if (to->word_count == MOST_WORDS)
        return cli_usage("%s: too many options", s->path), false;
    if (cli_check_value(option, word) != EBB_OK)
        return false;
    to->words[to->word_count++] =
        (cli_word){option, kept(s, is_path(name) ? path_of(s, word) : word)};
    return true;
}

static bool add_pass_word(sweep *s, cli *to, const char *list)
{
    json_t *text = json_string(list);
    bool added = list[0] == '\0' || add_word(s, to, "pass", text);
    json_decref(text);
    return added;
}

/* The options in an entry, but for the keys that the sweep itself reads. */
static bool add_words(sweep *s, cli *to, const json_t *entry)
{
    static const char *const own[] = {"name", "model", "models", "passes"};
    const char *key;
    json_t *value, *one;
    size_t i;
    json_object_foreach((json_t *)(uintptr_t)entry, key, value) {
        bool skip = false;
        for (size_t k = 0; k < sizeof own / sizeof *own; k++)
            skip |= strcmp(own[k], key) == 0;
        if (skip)
            continue;
        if (!json_is_array(value) && !add_word(s, to, key, value))
            return false;
        json_array_foreach(value, i, one)
            if (!add_word(s, to, key, one))
                return false;
    }
    return true;
}

/* ---- where and when ---- */

/* What kind of processor, never whose. */
static json_t *machine(void)
{
    char line[512], text[640];
    const char *model = "unknown processor";
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || colon == NULL)
            continue;
        colon[strcspn(colon, "\n")] = '\0';
        model = colon + 1 + strspn(colon + 1, " ");
        break;
    }
    if (file != NULL)
        fclose(file);
    (void)snprintf(text, sizeof text, "%s, %ld processors", model, sysconf(_SC_NPROCESSORS_ONLN));
    return json_string(text);
}

static json_t *today(void)
{
    char text[32] = "";
    time_t now = time(NULL);
    struct tm t;
    if (gmtime_r(&now, &t) != NULL)
        (void)strftime(text, sizeof text, "%Y-%m-%d", &t);
    return json_string(text);
}

/* ---- the table ---- */

static void show_line(const json_t *line)
{
    char peak[32], saved[32], ratio[32] = "", error[64] = "";
    const json_t *before = json_object_get(line, "exact"), *after = json_object_get(line, "with");
    const char *outcome = cli_text(line, "outcome");
    printf("%-18s %-44s ", cli_text(line, "model"), cli_text(line, "passes"));
    if (before == NULL) {
        printf("%s%s%s\n", outcome, strcmp(outcome, "failed") == 0 ? ": " : "",
               strcmp(outcome, "failed") == 0 ? cli_text(line, "error") : "");
        return;
    }
    if (json_object_get(line, "time_ratio") != NULL)
        (void)snprintf(ratio, sizeof ratio, "%.3fx", cli_real(line, "time_ratio"));
    const json_t *g = json_object_get(line, "gradients");
    if (g != NULL)
        (void)snprintf(error, sizeof error, "%.6f %.2g", cli_real(g, "cosine"),
                       cli_real(g, "relative_l2"));
    printf("%11s %5.1f %%  %11s %5.1f %%  %8s  %s\n",
           cli_bytes(peak, cli_real(after, "peak_bytes")),
           100 * cli_real(after, "peak_bytes") / cli_real(before, "peak_bytes"),
           cli_bytes(saved, cli_real(after, "saved_bytes")),
           100 * cli_real(after, "saved_bytes") / cli_real(before, "saved_bytes"), ratio, error);
}

/* ---- all ---- */

/* Two lines are of one thing where model, passes and all options are the same. */
static char *key_of(const json_t *line)
{
    json_t *key =
        json_pack("{s:O, s:O, s:O}", "model", json_object_get(line, "model"), "passes",
                  json_object_get(line, "passes"), "options", json_object_get(line, "options"));
    char *text = key != NULL ? json_dumps(key, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(key);
    return text;
}

/* The command's own words that decide about a step, then the model's and the passes' own keys. */
static json_t *options_of(const sweep *s, const json_t *model, const json_t *passes)
{
    static const char *const own[] = {"name", "models", "passes"};
    static const char *const others[] = {"-o", "--json", "--passes", "--sweep"};
    json_t *out = json_object();
    for (int i = 0; i < s->c->word_count; i++) {
        const cli_word *w = &s->c->words[i];
        bool skip = false;
        for (size_t k = 0; k < sizeof others / sizeof *others; k++)
            skip |= strcmp(others[k], w->option->name) == 0;
        if (skip)
            continue;
        const char *key = w->option->name + 2;
        if (json_object_get(out, key) == NULL)
            (void)json_object_set_new(out, key, json_array());
        (void)json_array_append_new(json_object_get(out, key), json_string(w->value));
    }
    (void)json_object_update(out, (json_t *)(uintptr_t)model);
    if (json_is_object(passes))
        (void)json_object_update(out, (json_t *)(uintptr_t)passes);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        (void)json_object_del(out, own[i]);
    return out;
}

static bool write_line(sweep *s, json_t *line)
{
    char *text = json_dumps(line, JSON_COMPACT);
    bool written = text != NULL && fprintf(s->out, "%s\n", text) > 0 && fflush(s->out) == 0;
    free(text);
    if (!written)
        return cli_usage("%s: %s", cli_get(s->c, "-o", ""), strerror(errno)), false;
    s->failed += strcmp(cli_text(line, "outcome"), "failed") == 0;
    if (!cli_has(s->c, "--json"))
        show_line(line);
    (void)fflush(stdout);
    s->added++;
    return true;
}

/* Fills the line; an exit code where the sweep itself is wrong. */
static int fill(sweep *s, const json_t *model, const json_t *passes, json_t *line)
{
    cli_pair *p = calloc(1, sizeof *p);
    if (p == NULL)
        return EBB_RUNTIME;
    p->exact = *s->c;
    p->exact.files[0] = path_of(s, cli_text(model, "model"));
    p->exact.file_count = 1;
    bool fine = add_words(s, &p->exact, model);
    p->other = p->exact;
    fine = fine && add_pass_word(s, &p->other, cli_text(line, "passes")) &&
           (!json_is_object(passes) || add_words(s, &p->other, passes)) &&
           cli_read_map(&p->other, "--map", &p->map);
    int code = fine ? cli_check_planning(&p->other) : EBB_USAGE;
    if (code == EBB_OK) {
        (void)json_object_set_new(line, "date", today());
        (void)json_object_set_new(line, "machine", machine());
        cli_pair_measure(p, (int)s->steps, line);
    }
    cli_pair_free(p);
    return code;
}

static int one(sweep *s, const json_t *model, const json_t *passes)
{
    const char *file = json_string_value(json_object_get(model, "model"));
    const char *list = json_is_object(passes) ? json_string_value(json_object_get(passes, "passes"))
                                              : json_string_value(passes);
    const char *name = json_string_value(json_object_get(model, "name"));
    if (file == NULL || list == NULL)
        return cli_usage(
            "%s: a model needs \"model\": FILE, and passes are text, or an object with "
            "\"passes\": text",
            s->path);
    if (name == NULL)
        name = strrchr(file, '/') != NULL ? strrchr(file, '/') + 1 : file;
    json_t *line = json_pack("{s:s, s:s, s:s, s:o}", "schema", "ebb.sweep/1", "model", name,
                             "passes", list, "options", options_of(s, model, passes));
    char *key = key_of(line);
    int code = key == NULL ? EBB_RUNTIME : EBB_OK;
    bool there = key != NULL && json_object_get(s->done, key) != NULL;
    if (there)
        s->skipped++;
    else if (code == EBB_OK)
        code = fill(s, model, passes, line);
    if (code == EBB_OK && !there)
        code = write_line(s, line) ? EBB_OK : EBB_IO;
    if (code == EBB_OK && !there)
        (void)json_object_set_new(s->done, key, json_true());
    free(key);
    json_decref(line);
    return code;
}

static bool wanted(const json_t *model, const json_t *passes)
{
    const json_t *only = json_is_object(passes) ? json_object_get(passes, "models") : NULL;
    const char *name = json_string_value(json_object_get(model, "name"));
    size_t i;
    json_t *text;
    json_array_foreach((json_t *)(uintptr_t)only, i, text)
        if (name != NULL && json_is_string(text) && strcmp(json_string_value(text), name) == 0)
            return true;
    return only == NULL;
}

/* ---- from words and files ---- */

/* The command's own models and --passes; options are in the words already. */
static json_t *plan_of_words(const cli *c)
{
    json_t *models = json_array(), *passes = json_array();
    const char *word;
    for (int i = 0; i < c->file_count; i++)
        (void)json_array_append_new(models, json_pack("{s:s}", "model", c->files[i]));
    for (int at = 0; (word = cli_next(c, "--passes", &at)) != NULL;)
        (void)json_array_append_new(passes, json_string(word));
    return json_pack("{s:o, s:o}", "models", models, "passes", passes);
}

/* Takes the keys of the lines that are there, and into `lines` those that stay: not one that was
 * being written when the sweep stopped, and none that failed, which is tried again. False where
 * this is no file of a sweep. */
static bool read_lines(sweep *s, FILE *file, json_t *lines)
{
    char *text = NULL;
    size_t room = 0;
    bool fine = true;
    for (ssize_t n; fine && (n = getline(&text, &room, file)) > 0;) {
        if (text[n - 1] != '\n') {
            fine = text[0] == '{';
            break;
        }
        json_t *line = json_loads(text, 0, NULL);
        char *key = key_of(line);
        fine = key != NULL;
        if (fine && strcmp(cli_text(line, "outcome"), "failed") != 0) {
            (void)json_object_set_new(s->done, key, json_true());
            (void)json_array_append_new(lines, json_stringn(text, (size_t)n));
        }
        free(key);
        json_decref(line);
    }
    free(text);
    return fine;
}

/* The file with these lines, open at its end; whole or as it was. */
static FILE *write_again(const char *path, const json_t *lines)
{
    char beside[4096];
    size_t i;
    json_t *line;
    if (snprintf(beside, sizeof beside, "%s.part", path) >= (int)sizeof beside)
        return NULL;
    FILE *out = fopen(beside, "w");
    bool written = out != NULL;
    json_array_foreach((json_t *)(uintptr_t)lines, i, line)
        written = written && fputs(json_string_value(line), out) >= 0;
    written = written && fflush(out) == 0 && rename(beside, path) == 0;
    if (!written && out != NULL) {
        int why = errno;
        fclose(out);
        (void)remove(beside);
        errno = why;
    }
    return written ? out : NULL;
}

static int open_lines(sweep *s)
{
    const char *path = cli_get(s->c, "-o", NULL);
    json_t *lines = json_array();
    FILE *file = fopen(path, "r");
    bool fine = file == NULL || read_lines(s, file, lines);
    if (file != NULL)
        fclose(file);
    s->out = fine ? write_again(path, lines) : NULL;
    json_decref(lines);
    if (!fine)
        return cli_usage("%s is there and is no file of a sweep", path);
    return s->out != NULL ? EBB_OK : (cli_usage("%s: %s", path, strerror(errno)), EBB_IO);
}

static int run_all(sweep *s)
{
    size_t i, k;
    json_t *model, *passes;
    json_t *models = json_object_get(s->plan, "models"), *list = json_object_get(s->plan, "passes");
    if (json_array_size(models) == 0 || json_array_size(list) == 0)
        return cli_usage("%s: a sweep needs a list of \"models\" and one of \"passes\"", s->path);
    int code = open_lines(s);
    if (code == EBB_OK && !cli_has(s->c, "--json"))
        printf("%-18s %-44s %11s %7s  %11s %7s  %8s  %s\n", "model", "passes", "peak", "", "saved",
               "", "time", "gradients: cosine, relative L2");
    json_array_foreach(models, i, model)
        json_array_foreach(list, k, passes)
            if (code == EBB_OK && wanted(model, passes))
                code = one(s, model, passes);
    if (s->out != NULL && fclose(s->out) != 0 && code == EBB_OK)
        code = EBB_IO;
    if (code == EBB_OK && cli_has(s->c, "--json")) {
        json_t *o = json_pack("{s:s, s:i, s:i, s:i}", "schema", "ebb.bench/1", "added", s->added,
                              "there", s->skipped, "failed", s->failed);
        cli_print_json(o, 0);
        json_decref(o);
    } else if (code == EBB_OK) {
        cli_note("%d lines added to %s, %d were there", s->added, cli_get(s->c, "-o", ""),
                 s->skipped);
    }
    if (code == EBB_OK && s->failed > 0)
        code = (cli_usage("%d of %d lines say that their step failed", s->failed, s->added),
                EBB_RUNTIME);
    return code;
}

int cli_sweep(const cli *c)
{
    cli base = *c; // without models: each pair has its own
    sweep s = {.c = &base, .path = cli_get(c, "--sweep", "--passes")};
    json_error_t error;
    struct stat facts;
    if (!cli_has(c, "-o"))
        return cli_usage("say where the lines go: -o FILE");
    if (stat(cli_get(c, "-o", ""), &facts) == 0 && !S_ISREG(facts.st_mode))
        return cli_usage("-o: the lines of a sweep go to a file, from which it goes on");
    if (cli_check_planning(c) != EBB_OK)
        return EBB_USAGE;
    s.steps = cli_whole(c, "--steps", 15);
    if (cli_has(c, "--sweep") && (c->file_count > 0 || cli_has(c, "--passes")))
        return cli_usage("a sweep file names models and passes itself");
    int code = EBB_OK;
    if (cli_has(c, "--sweep")) {
        s.folder_of = s.path;
        s.plan = json_load_file(s.path, 0, &error);
        if (s.plan == NULL)
            code = cli_usage("%s: %s (line %d)", s.path, error.text, error.line);
    } else {
        s.plan = plan_of_words(c);
    }
    base.file_count = 0;
    s.keep = json_array();
    s.done = json_object();
    if (code == EBB_OK)
        code = run_all(&s);
    json_decref(s.plan);
    json_decref(s.keep);
    json_decref(s.done);
    return code;
}
