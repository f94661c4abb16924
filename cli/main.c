/* main.c: finds the verb, checks the words against its descriptor, runs it. */
#include "cli/cli.h"

#include <ctype.h>
#include <signal.h>
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

static bool has_color(FILE *stream)
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
    bool color = has_color(stderr);
    (void)snprintf(last_said, sizeof last_said, "%.*s", (int)strcspn(text, "\n"), text);
    if (!cli_speaks())
        return;
    char *all = NULL; // said at once: others may be saying the same
    size_t bytes;
    FILE *line = open_memstream(&all, &bytes);
    FILE *to = line != NULL ? line : stderr;
    fprintf(to, "%s%s%s", color ? "\033[1;31m" : "", label, color ? "\033[0m" : "");
    for (; *text != '\0'; text++)
        fputc(*text != '\n' && iscntrl((unsigned char)*text) ? '?' : *text, to);
    fputc('\n', to);
    if (line != NULL && fclose(line) == 0)
        (void)fwrite(all, 1, bytes, stderr);
    free(all);
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

const char *cli_rate(char text[32], double number, const char *of)
{
    (void)snprintf(text, 32, number < 1000 ? "%.4g %s/s" : "%.0f %s/s", number, of);
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

/* ---- options that are not there ---- */

/* Is what the hint begins with an option of the verb? */
static bool helps(const cli_verb *verb, const char *hint)
{
    char name[64];
    (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(hint, " "), hint);
    return cli_takes(verb, name);
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
        if (cli_takes(verb, cli_options[i].name))
            names[count++] = cli_options[i].name;
    const char *near = ebb_nearest(word, names, (size_t)count);
    return near != NULL ? cli_usage("unknown option '%s': did you mean '%s'?", word, near)
                        : cli_usage("unknown option '%s': see `ebb help %s`", word, verb->name);
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
    if (!cli_takes(c->verb, name))
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
        if (!cli_is_among(w->options, name))
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
        if (strcmp(words[i], "--") == 0 && cli_takes(c->verb, "--")) {
            c->command = words + i + 1;
            c->command_count = count - i - 1;
            if (c->command_count > 0)
                code = add_word(c, cli_find_option("--"), "");
            i = count;
        } else if (words[i][0] == '-' && words[i][1] != '\0') {
            code = parse_option(c, count, words, &i);
        } else if (c->verb->ways[0].file_most == 0 && cli_takes(c->verb, "--")) {
            code = cli_usage("put -- before '%s': ebb %s %s", words[i], c->verb->name,
                             c->verb->ways[0].arguments);
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
    (void)signal(SIGXFSZ, SIG_IGN); // a file that may not grow is an error of writing
    if (count < 2) {
        (void)cli_help(0, NULL);
        return EBB_USAGE;
    }
    if (is_there("--help", 1, words + 1) || is_there("-h", 1, words + 1) ||
        is_there("help", 1, words + 1))
        return cli_help(count - 2, words + 2);
    const char *name = strcmp(words[1], "--version") == 0 ? "version" : words[1];
    cli c = {.verb = cli_find_verb(name)};
    if (c.verb == NULL)
        return cli_unknown_verb(name);
    if (is_there("--help", count - 2, words + 2) || is_there("-h", count - 2, words + 2)) {
        cli_print_verb(c.verb);
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
