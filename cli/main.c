/* main.c: finds the verb, checks the words against its descriptor, runs it. */
#include "cli/cli.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- words ---- */

const char *cli_next(const cli *c, const char *option, int *at)
{
    for (; *at < c->word_count; (*at)++)
        if (strcmp(c->words[*at].option->name, option) == 0)
            return c->words[(*at)++].value;
    return NULL;
}

const char *cli_get(const cli *c, const char *option, const char *otherwise)
{
    for (int i = c->word_count; i-- > 0;)
        if (strcmp(c->words[i].option->name, option) == 0)
            return c->words[i].value;
    return otherwise;
}

bool cli_has(const cli *c, const char *option)
{
    return cli_get(c, option, NULL) != NULL;
}

int cli_check_value(const cli_option *option, const char *value)
{
    ebb_status status = NULL;
    if (option->whole != NULL)
        status = ebb_whole_parse(&(int64_t){0}, value, option->whole, option->name);
    else if (option->real != NULL)
        status = ebb_real_parse(&(double){0}, value, option->real, option->name);
    return status != NULL ? cli_fail(status) : EBB_OK;
}

int64_t cli_whole(const cli *c, const char *option, int64_t otherwise)
{
    const char *text = cli_get(c, option, NULL);
    int64_t n = otherwise;
    if (text != NULL)
        (void)ebb_whole_parse(&n, text, NULL, option);
    return n;
}

double cli_number(const cli *c, const char *option, double otherwise)
{
    const char *text = cli_get(c, option, NULL);
    double x = otherwise;
    if (text != NULL)
        (void)ebb_real_parse(&x, text, NULL, option);
    return x;
}

uint64_t cli_seed(const cli *c)
{
    return (uint64_t)cli_whole(c, "--seed", 0);
}

int cli_threads(const cli *c)
{
    return (int)cli_whole(c, "--threads", 0);
}

/* ---- saying ---- */

bool cli_color(FILE *stream)
{
    const char *no_color = getenv("NO_COLOR");
    return (no_color == NULL || no_color[0] == '\0') && isatty(fileno(stream));
}

/* Names come from files: what would steer the terminal is shown as '?'. */
static char last_said[2048];

const char *cli_last_said(void)
{
    return last_said;
}

static void say(const char *label, const char *text)
{
    bool color = cli_color(stderr);
    (void)snprintf(last_said, sizeof last_said, "%.*s", (int)strcspn(text, "\n"), text);
    if (!cli_speaks())
        return;
    fprintf(stderr, "%s%s%s", color ? "\033[1;31m" : "", label, color ? "\033[0m" : "");
    for (; *text != '\0'; text++)
        fputc(*text != '\n' && iscntrl((unsigned char)*text) ? '?' : *text, stderr);
    fputc('\n', stderr);
}

int cli_fail(ebb_status status)
{
    say("ebb: ", ebb_status_text(status));
    return (int)ebb_status_code(status);
}

int cli_usage(const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    say("ebb: ", text);
    return EBB_USAGE;
}

void cli_note(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}

const char *cli_bytes(char text[32], double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    for (; (bytes >= 1024.0 || bytes <= -1024.0) && unit < 4; unit++)
        bytes /= 1024.0;
    (void)snprintf(text, 32, unit == 0 ? "%.0f %s" : "%.2f %s", bytes, units[unit]);
    return text;
}

const char *cli_time(char text[32], double ns)
{
    if (ns >= 1e9)
        (void)snprintf(text, 32, "%.2f s", ns / 1e9);
    else if (ns >= 1e6)
        (void)snprintf(text, 32, "%.1f ms", ns / 1e6);
    else
        (void)snprintf(text, 32, "%.1f us", ns / 1e3);
    return text;
}

/* ---- tables ---- */

const cli_option *cli_find_option(const char *name)
{
    for (int i = 0; i < cli_option_count; i++)
        if (strcmp(cli_options[i].name, name) == 0)
            return &cli_options[i];
    return NULL;
}

static bool is_among(const char *const *options, const char *name)
{
    for (int i = 0; options[i] != NULL; i++)
        if (strcmp(options[i], name) == 0)
            return true;
    return false;
}

static bool takes(const cli_verb *verb, const char *name)
{
    for (int i = 0; i < verb->way_count; i++)
        if (is_among(verb->ways[i].options, name))
            return true;
    return false;
}

/* ---- help ---- */

static void print_option(const cli_option *o)
{
    char left[64];
    (void)snprintf(left, sizeof left, "%s%s%s", o->name, o->value != NULL ? " " : "",
                   o->value != NULL ? o->value : "");
    const char *range = o->whole != NULL ? o->whole : o->real;
    printf("  %-26s %s%s%s%s", left, o->doc, o->repeats ? " (repeatable)" : "",
           range != NULL ? "; " : "", range != NULL ? range : "");
}

/* Which ways take it, where it is one or two of several. */
static void print_ways(const cli_verb *v, const char *option)
{
    const char *signs[2] = {NULL};
    int count = 0;
    bool all = true;
    for (const cli_way *w = v->ways; w < v->ways + v->way_count; w++) {
        const bool again = w > v->ways && w->sign != NULL && w[-1].sign != NULL &&
                           strcmp(w->sign, w[-1].sign) == 0;
        all = all && is_among(w->options, option);
        if (again || w->sign == NULL || strcmp(w->sign, option) == 0 ||
            !is_among(w->options, option))
            continue;
        signs[count % 2] = w->sign;
        count++;
    }
    if (all || count == 0 || count > 2)
        printf("\n");
    else
        printf("  [with %s%s%s]\n", signs[0], count > 1 ? ", " : "", count > 1 ? signs[1] : "");
}

static void print_group(const cli_verb *v, const cli_option *from, const cli_option *to,
                        const char *title)
{
    bool begun = false;
    for (const cli_option *o = from; o < to; o++) {
        if (!takes(v, o->name))
            continue;
        if (!begun)
            printf("\n%s:\n", title);
        begun = true;
        print_option(o);
        print_ways(v, o->name);
    }
}

static void print_verb(const cli_verb *v)
{
    printf("%s\n\n", v->doc);
    for (const cli_way *w = v->ways; w < v->ways + v->way_count; w++)
        printf("  ebb %s %s\n", v->name, w->arguments);
    for (const cli_group *g = cli_groups; g->title != NULL; g++)
        print_group(v, cli_find_option(g->first),
                    g[1].title != NULL ? cli_find_option(g[1].first)
                                       : cli_options + cli_option_count,
                    g->title);
    printf("\nexamples:\n");
    for (const char *const *e = v->examples; *e != NULL; e++)
        printf("  ebb %s %s\n", v->name, *e);
}

const char cli_exit_codes[] =
    "0 ok, 1 a run failed, 2 usage, 3 no plan fits, 4 verification failed,\n"
    "5 operator or gradient not supported, or a pass found nothing under --strict, 6 model "
    "rejected, 7 no such device, 8 I/O;\n130, 143: a training was stopped by Ctrl-C or SIGTERM, "
    "and has saved.";

static void print_overview(void)
{
    puts("ebb: train an exported ONNX model in less memory\n\nusage: ebb VERB [ARGUMENTS] "
         "[OPTIONS]\n");
    for (int i = 0; i < cli_verb_count; i++)
        printf("  %-9s %s\n", cli_verbs[i].name, cli_verbs[i].doc);
    printf(
        "\n`ebb help VERB` lists a verb's options; `ebb help passes` lists the passes; `ebb help "
        "man|bash|zsh|fish` is\na manual page, or completion for a shell.\nExit codes: %s\n",
        cli_exit_codes);
}

static const cli_verb *find_verb(const char *name)
{
    for (int i = 0; i < cli_verb_count; i++)
        if (strcmp(cli_verbs[i].name, name) == 0)
            return &cli_verbs[i];
    return NULL;
}

enum { MOST_NAMES = 128 };

static int unknown_verb(const char *word)
{
    const char *names[MOST_NAMES];
    int count = 0;
    for (; count < cli_verb_count && count < MOST_NAMES - 1; count++)
        names[count] = cli_verbs[count].name;
    names[count++] = "passes"; // of help
    const char *near = ebb_nearest(word, names, (size_t)count);
    return near != NULL ? cli_usage("unknown verb '%s': did you mean '%s'?", word, near)
                        : cli_usage("unknown verb '%s': see `ebb help`", word);
}

/* Is what the hint begins with an option of the verb? */
static bool helps(const cli_verb *verb, const char *hint)
{
    char name[64];
    (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(hint, " "), hint);
    return takes(verb, name);
}

/* What other tools, or other verbs, call otherwise than this verb; NULL: nothing that is known. */
static const char *called_here(const cli_verb *verb, const char *word)
{
    for (int i = 0; cli_elsewhere[i][0] != NULL; i++)
        if (strcmp(cli_elsewhere[i][0], word) == 0 && helps(verb, cli_elsewhere[i][1]))
            return cli_elsewhere[i][1];
    return NULL;
}

/* Only what this verb takes is named: another hint would end in the next error. */
static int unknown_option(const cli_verb *verb, const char *word)
{
    const char *names[MOST_NAMES];
    int count = 0;
    const char *here = called_here(verb, word);
    if (here != NULL)
        return cli_usage("unknown option '%s': here it is %s", word, here);
    for (int i = 0; i < cli_option_count && count < MOST_NAMES; i++)
        if (takes(verb, cli_options[i].name))
            names[count++] = cli_options[i].name;
    const char *near = ebb_nearest(word, names, (size_t)count);
    return near != NULL ? cli_usage("unknown option '%s': did you mean '%s'?", word, near)
                        : cli_usage("unknown option '%s': see `ebb help %s`", word, verb->name);
}

/* Leaves the pass or preset of this name alone in a list; whether there is one. */
static bool keep(json_t *list, const char *name)
{
    for (size_t i = json_array_size(list); i-- > 0;)
        if (strcmp(cli_text(json_array_get(list, i), "name"), name) != 0)
            (void)json_array_remove(list, i);
    return json_array_size(list) > 0;
}

/* All passes, or the one of this name; false: there is none. */
static bool print_passes(const char *name, bool as_json, int *code)
{
    char *json = NULL;
    ebb_status status = ebb_passes_json(&json);
    json_t *o = status == NULL ? json_loads(json, 0, NULL) : NULL;
    ebb_release(json);
    const bool pass = name == NULL || keep(json_object_get(o, "passes"), name);
    const bool preset = name == NULL || keep(json_object_get(o, "presets"), name);
    *code = status != NULL ? cli_fail(status) : EBB_OK;
    if (status == NULL && (pass || preset) && as_json)
        cli_print_json(o, JSON_INDENT(1));
    else if (status == NULL && (pass || preset))
        cli_show_passes(o);
    json_decref(o);
    return status != NULL || pass || preset;
}

/* What help is asked of: a verb, passes (all, or one by its name), a page. */
static int help(int count, char **words)
{
    int code = EBB_OK;
    const bool as_json = count > 1 && strcmp(words[count - 1], "--json") == 0;
    if (count == 0) {
        print_overview();
        return EBB_OK;
    }
    if (strcmp(words[0], "passes") == 0) {
        const char *name = count > 1 + as_json ? words[1] : NULL;
        return print_passes(name, as_json, &code)
                   ? code
                   : cli_usage("there is no pass '%s': `ebb help passes` lists all", name);
    }
    if (cli_has_page(words[0]))
        return cli_print_page(words[0]);
    const cli_verb *verb = find_verb(words[0]);
    if (verb != NULL)
        print_verb(verb);
    else if (!print_passes(words[0], as_json, &code))
        return unknown_verb(words[0]);
    return code;
}

/* ---- parsing ---- */

static int takes_none(const cli *c, const char *name)
{
    const char *here = called_here(c->verb, name);
    if (here != NULL)
        return cli_usage("`ebb %s` takes no option %s: here it is %s", c->verb->name, name, here);
    const char *sign = c->way != NULL ? c->way->sign : NULL, *value = NULL;
    if (sign != NULL && c->way->value != NULL)
        value = cli_get(c, sign, "");
    return cli_usage("`ebb %s%s%s%s%s` takes no option %s: see `ebb help %s`", c->verb->name,
                     sign != NULL ? " " : "", sign != NULL ? sign : "", value != NULL ? " " : "",
                     value != NULL ? value : "", name, c->verb->name);
}

static int add_word(cli *c, const cli_option *option, const char *value)
{
    if (c->word_count == MOST_WORDS)
        return cli_usage("too many options");
    if (!option->repeats && cli_has(c, option->name))
        return cli_usage("%s is given twice, and only one of them could count", option->name);
    if (cli_check_value(option, value) != EBB_OK)
        return EBB_USAGE;
    c->words[c->word_count++] = (cli_word){option, value};
    return EBB_OK;
}

/* "--name value" and "--name=value". */
static int parse_option(cli *c, int count, char **words, int *at)
{
    char name[64];
    const char *word = words[*at], *equals = strchr(word, '='), *value = "";
    size_t length = equals != NULL ? (size_t)(equals - word) : strlen(word);
    (void)snprintf(name, sizeof name, "%.*s", (int)(length < 63 ? length : 63), word);
    const cli_option *option = cli_find_option(name);
    if (option == NULL)
        return unknown_option(c->verb, name);
    if (!takes(c->verb, name))
        return takes_none(c, name);
    if (option->value == NULL && equals != NULL)
        return cli_usage("%s takes no value", name);
    if (option->value != NULL && equals != NULL)
        value = equals + 1;
    else if (option->value != NULL && *at + 1 < count && cli_find_option(words[*at + 1]) == NULL)
        value = words[++*at]; // an option that follows is no value; --name=--other means it
    else if (option->value != NULL)
        return cli_usage("%s needs a value: %s %s", name, name, option->value);
    return add_word(c, option, value);
}

/* ---- which way ---- */

static bool is_one_of(const char *choices, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = choices; at != NULL; at = strchr(at, '|')) {
        at += *at == '|';
        if (strncmp(at, word, length) == 0 && (at[length] == '|' || at[length] == '\0'))
            return true;
    }
    return false;
}

/* The first way whose sign was given, if there is one among those for as many files. */
static const cli_way *find_way(const cli *c)
{
    const cli_way *found = NULL;
    for (const cli_way *w = c->verb->ways; w < c->verb->ways + c->verb->way_count; w++) {
        const char *given = w->sign != NULL ? cli_get(c, w->sign, NULL) : "";
        if (given == NULL || (w->value != NULL && !is_one_of(w->value, given)) ||
            (found != NULL && (w->sign == NULL || strcmp(w->sign, found->sign) != 0)))
            continue;
        found = w;
        if (c->file_count >= w->file_least && c->file_count <= w->file_most)
            break;
    }
    return found;
}

static int check_words(const cli *c)
{
    const cli_way *w = c->way;
    for (int i = 0; i < c->word_count; i++) {
        const char *name = c->words[i].option->name;
        if (!is_among(w->options, name))
            return takes_none(c, name);
        for (int k = 0; w->beside != NULL && w->beside[k] != NULL; k += 2) {
            const char *other = w->beside[k + 1];
            if (strcmp(w->beside[k], name) != 0)
                continue;
            if (other[0] == '!' && cli_has(c, other + 1))
                return cli_usage("%s has no effect beside %s", name, other + 1);
            if (other[0] != '!' && !cli_has(c, other))
                return cli_usage("%s needs a %s: it has no effect without", name, other);
        }
    }
    if (c->file_count > w->file_most)
        return cli_usage("`ebb %s %s`: one argument too many: '%s'", c->verb->name, w->arguments,
                         c->files[w->file_most]);
    if (c->file_count < w->file_least)
        return cli_usage("usage: ebb %s %s (`ebb help %s` has examples)", c->verb->name,
                         w->arguments, c->verb->name);
    return EBB_OK;
}

static int parse(cli *c, int count, char **words)
{
    for (int i = 0; i < count; i++) {
        int code = EBB_OK;
        if (strcmp(words[i], "--") == 0 && takes(c->verb, "--")) {
            c->command = words + i + 1;
            c->command_count = count - i - 1;
            if (c->command_count > 0)
                code = add_word(c, cli_find_option("--"), "");
            i = count;
        } else if (words[i][0] == '-' && words[i][1] != '\0') {
            code = parse_option(c, count, words, &i);
        } else if (c->file_count == (int)(sizeof c->files / sizeof c->files[0])) {
            code = cli_usage("`ebb %s`: one argument too many: '%s'", c->verb->name, words[i]);
        } else {
            c->files[c->file_count++] = words[i];
        }
        if (code != EBB_OK)
            return code;
    }
    c->way = find_way(c);
    return c->way != NULL ? check_words(c) : cli_usage("%s", c->verb->ask);
}

/* ---- what goes to stdout ---- */

static bool is_there(const char *word, int count, char **words)
{
    for (int i = 0; i < count && strcmp(words[i], "--") != 0; i++)
        if (strcmp(words[i], word) == 0)
            return true;
    return false;
}

/* For a verb that ended before it could say anything else. */
static void print_error(const char *verb, int code)
{
    json_t *o = json_pack("{s:s, s:s, s:i, s:s}", "schema", "ebb.error/1", "verb", verb, "code",
                          code, "error", last_said);
    if (o != NULL)
        cli_print_json(o, 0);
    json_decref(o);
}

int main(int count, char **words)
{
    if (count < 2) {
        print_overview();
        return EBB_USAGE;
    }
    if (is_there("--help", 1, words + 1) || is_there("-h", 1, words + 1) ||
        is_there("help", 1, words + 1))
        return help(count - 2, words + 2);
    const char *name = strcmp(words[1], "--version") == 0 ? "version" : words[1];
    cli c = {.verb = find_verb(name)};
    if (c.verb == NULL)
        return unknown_verb(name);
    if (is_there("--help", count - 2, words + 2) || is_there("-h", count - 2, words + 2)) {
        print_verb(c.verb);
        return EBB_OK;
    }
    int code = parse(&c, count - 2, words + 2);
    if (code == EBB_OK)
        code = cli_begin(&c, words);
    if (code == EBB_OK)
        code = c.way->run(&c);
    if (code != EBB_OK && !cli_printed_json() && is_there("--json", count - 2, words + 2))
        print_error(c.verb->name, code);
    if (fflush(stdout) != 0 || ferror(stdout))
        return code != EBB_OK ? code : EBB_IO;
    return code;
}
