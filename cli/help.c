/* help.c: what `ebb help` says: the verbs, the options of one in groups, the passes or one of them. */
#include "cli/cli.h"

/* ---- options ---- */

bool cli_is_among(const char *const *options, const char *name)
{
    for (int i = 0; options[i] != NULL; i++)
        if (strcmp(options[i], name) == 0)
            return true;
    return false;
}

bool cli_takes(const cli_verb *verb, const char *name)
{
    for (int i = 0; i < verb->way_count; i++)
        if (cli_is_among(verb->ways[i].options, name))
            return true;
    return false;
}

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
        all = all && cli_is_among(w->options, option);
        if (again || w->sign == NULL || strcmp(w->sign, option) == 0 ||
            !cli_is_among(w->options, option))
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
        if (!cli_takes(v, o->name))
            continue;
        if (!begun)
            printf("\n%s:\n", title);
        begun = true;
        print_option(o);
        print_ways(v, o->name);
    }
}

void cli_print_verb(const cli_verb *v)
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

const cli_verb *cli_find_verb(const char *name)
{
    for (int i = 0; i < cli_verb_count; i++)
        if (strcmp(cli_verbs[i].name, name) == 0)
            return &cli_verbs[i];
    return NULL;
}

int cli_unknown_verb(const char *word)
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
int cli_help(int count, char **words)
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
    const cli_verb *verb = cli_find_verb(words[0]);
    if (verb != NULL)
        cli_print_verb(verb);
    else if (!print_passes(words[0], as_json, &code))
        return cli_unknown_verb(words[0]);
    return code;
}
