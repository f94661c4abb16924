/* manual.c: what a package installs beside the command, printed from the tables of verbs and options:
 *
 *     ebb help man     ebb.1                 man pages, in the macros of man(7)
 *     ebb help bash    completions/ebb       and those of zsh and fish
 *
 * A value is completed by what its descriptor says of it: choices ("bf16|fp16"), names of passes, or files.
 */
#include <ctype.h>

#include "cli/cli.h"

/* ---- what is known of an option ---- */

typedef enum value_kind { NO_VALUE, CHOICES, PASSES, FILES, WORDS } value_kind;

static bool is_word(char c)
{
    return islower((unsigned char)c) || isdigit((unsigned char)c) || c == '-';
}

static value_kind kind_of(const cli_option *o)
{
    const char *v = o->value;
    if (v == NULL)
        return NO_VALUE;
    if (strcmp(o->name, "--pass") == 0)
        return PASSES;
    if (strcmp(v, "FILE") == 0 || strcmp(v, "DIR") == 0 || strcmp(v, "MODEL") == 0)
        return FILES;
    for (; is_word(*v) || *v == '|'; v++)
        ;
    return *v == '\0' && strchr(o->value, '|') != NULL ? CHOICES : WORDS;
}

/* The options of all ways of a verb, each once. */
static int options_of(const cli_verb *v, const cli_option *list[MOST_WORDS])
{
    int count = 0;
    for (const cli_way *w = v->ways; w < v->ways + v->way_count; w++)
        for (int i = 0; w->options[i] != NULL && count < MOST_WORDS; i++) {
            const cli_option *o = cli_find_option(w->options[i]);
            int k = 0;
            for (; k < count && list[k] != o; k++)
                ;
            if (k == count)
                list[count++] = o;
        }
    return count;
}

/* The words that a value may be, with spaces between. */
static void print_words(const cli_option *o, const char *passes)
{
    if (kind_of(o) == PASSES)
        printf("%s", passes);
    else
        for (const char *c = o->value; *c != '\0'; c++)
            putchar(*c == '|' ? ' ' : *c);
}

/* Text with a backslash before each of these characters. */
static void print_escaped(const char *text, const char *special)
{
    for (; *text != '\0'; text++) {
        if (strchr(special, *text) != NULL)
            putchar('\\');
        putchar(*text);
    }
}

/* Text that stands in single quotes of a shell. */
static void print_quoted(const char *text, const char *special)
{
    for (; *text != '\0'; text++) {
        if (strchr(special, *text) != NULL)
            putchar('\\');
        if (*text == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*text);
    }
}

/* ---- man ---- */

static void print_roff(const char *text)
{
    if (*text == '.' || *text == '\'')
        printf("\\&");
    print_escaped(text, "\\-");
}

/* An option, under its group's title where it is the first. */
static void print_option(const cli_option *o)
{
    const char *range = o->whole != NULL ? o->whole : o->real;
    for (const cli_group *g = cli_groups; g->title != NULL; g++)
        if (strcmp(g->first, o->name) == 0)
            printf(".SS %c%s\n", toupper((unsigned char)g->title[0]), g->title + 1);
    printf(".TP\n.B ");
    print_roff(o->name);
    if (o->value != NULL) {
        printf(" \\fI");
        print_roff(o->value);
        printf("\\fR");
    }
    putchar('\n');
    print_roff(o->doc);
    printf("%s%s%s\n", o->repeats ? " (repeatable)" : "", range != NULL ? "; " : "",
           range != NULL ? range : "");
}

static void print_man(const char *passes)
{
    (void)passes;
    printf(".TH EBB 1 \"\" \"ebb %s\" \"User Commands\"\n.SH NAME\n"
           "ebb \\- train an exported ONNX model in less memory\n.SH SYNOPSIS\n"
           ".B ebb\nVERB [ARGUMENTS] [OPTIONS]\n.SH VERBS\n",
           ebb_version());
    for (int i = 0; i < cli_verb_count; i++) {
        const cli_verb *v = &cli_verbs[i];
        printf(".SS %s\n", v->name);
        print_roff(v->doc);
        putchar('\n');
        for (const cli_way *w = v->ways; w < v->ways + v->way_count; w++) {
            printf(".P\n.B ebb %s\n", v->name);
            print_roff(w->arguments);
            printf("\n.RS\n");
            for (int k = 0; w->options[k] != NULL; k++) {
                print_roff(k == 0 ? "" : ", ");
                print_roff(w->options[k]);
            }
            printf("\n.RE\n");
        }
    }
    printf(".SH OPTIONS\n");
    for (int i = 0; i < cli_option_count; i++)
        print_option(&cli_options[i]);
    printf(".SH EXIT STATUS\n");
    print_roff(cli_exit_codes);
    printf("\n.SH SEE ALSO\n.B ebb help passes\nlists the passes and their options.\n");
}

/* ---- bash ---- */

static void print_bash(const char *passes)
{
    const cli_option *list[MOST_WORDS];
    printf("# bash completion for ebb\n_ebb() {\n"
           "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} "
           "options=\n"
           "    COMPREPLY=()\n"
           "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        COMPREPLY=($(compgen -W \"help");
    for (int i = 0; i < cli_verb_count; i++)
        printf(" %s", cli_verbs[i].name);
    printf("\" -- \"$word\"))\n        return\n    fi\n    case $before in\n");
    for (int i = 0; i < cli_option_count; i++) {
        const cli_option *o = &cli_options[i];
        const value_kind kind = kind_of(o);
        if (kind == NO_VALUE || kind == FILES)
            continue;
        printf("    %s) ", o->name);
        if (kind == CHOICES || kind == PASSES) {
            printf("COMPREPLY=($(compgen -W \"");
            print_words(o, passes);
            printf("\" -- \"$word\")); ");
        }
        printf("return ;;\n");
    }
    printf("    esac\n    case ${COMP_WORDS[1]} in\n    help) options='passes man bash zsh fish");
    for (int i = 0; i < cli_verb_count; i++)
        printf(" %s", cli_verbs[i].name);
    printf("' ;;\n");
    for (int i = 0; i < cli_verb_count; i++) {
        const int count = options_of(&cli_verbs[i], list);
        printf("    %s) options='", cli_verbs[i].name);
        for (int k = 0; k < count; k++)
            printf("%s%s", k == 0 ? "" : " ", list[k]->name);
        printf("' ;;\n");
    }
    printf(
        "    esac\n    if [ \"${word#-}\" != \"$word\" ] || [ \"${COMP_WORDS[1]}\" = help ]; then\n"
        "        COMPREPLY=($(compgen -W \"$options\" -- \"$word\"))\n    fi\n}\n"
        "complete -o default -F _ebb ebb\n");
}

/* ---- zsh ---- */

static void print_zsh(const char *passes)
{
    const cli_option *list[MOST_WORDS];
    printf("#compdef ebb\n_ebb() {\n  local -a verbs\n  verbs=(\n    'help:what verbs and passes "
           "there are'\n");
    for (int i = 0; i < cli_verb_count; i++) {
        printf("    '%s:", cli_verbs[i].name);
        print_quoted(cli_verbs[i].doc, "");
        printf("'\n");
    }
    printf("  )\n  if (( CURRENT == 2 )); then\n    _describe verb verbs\n    return\n  fi\n"
           "  shift words\n  (( CURRENT-- ))\n  case $words[1] in\n"
           "  help) _describe verb verbs; compadd passes man bash zsh fish ;;\n");
    for (int i = 0; i < cli_verb_count; i++) {
        const int count = options_of(&cli_verbs[i], list);
        printf("  %s) _arguments '*:file:_files'", cli_verbs[i].name);
        for (int k = 0; k < count; k++) {
            const cli_option *o = list[k];
            const value_kind kind = kind_of(o);
            printf(" \\\n    '%s%s[", o->repeats ? "*" : "", o->name);
            print_quoted(o->doc, "[]:\\");
            printf("]%s", kind == NO_VALUE ? "'" : kind == FILES ? ":file:_files'" : ":value:");
            if (kind == CHOICES || kind == PASSES) {
                printf("(");
                print_words(o, passes);
                printf(")'");
            } else if (kind == WORDS)
                printf(" '");
        }
        printf(" ;;\n");
    }
    printf("  esac\n}\n_ebb \"$@\"\n");
}

/* ---- fish ---- */

static void print_fish(const char *passes)
{
    const cli_option *list[MOST_WORDS];
    for (int i = 0; i < cli_verb_count; i++) {
        const cli_verb *v = &cli_verbs[i];
        const int count = options_of(v, list);
        printf("complete -c ebb -n __fish_use_subcommand -f -a %s -d '", v->name);
        print_escaped(v->doc, "'\\");
        printf("'\n");
        for (int k = 0; k < count; k++) {
            const cli_option *o = list[k];
            const value_kind kind = kind_of(o);
            printf("complete -c ebb -n '__fish_seen_subcommand_from %s' -%c %s", v->name,
                   o->name[1] == '-' ? 'l' : 's', o->name + (o->name[1] == '-' ? 2 : 1));
            if (kind != NO_VALUE)
                printf(kind == FILES ? " -r" : " -x");
            if (kind == CHOICES || kind == PASSES) {
                printf(" -a '");
                print_words(o, passes);
                printf("'");
            }
            printf(" -d '");
            print_escaped(o->doc, "'\\");
            printf("'\n");
        }
    }
}

/* ---- all of them ---- */

static const struct page {
    const char *name;
    void (*print)(const char *passes);
} pages[] = {{"man", print_man}, {"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};

bool cli_has_page(const char *name)
{
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++)
        if (strcmp(pages[i].name, name) == 0)
            return true;
    return false;
}

int cli_print_page(const char *name)
{
    char *text = NULL, passes[4096] = "";
    size_t i, used = 0;
    json_t *pass;
    ebb_status status = ebb_passes_json(&text);
    if (status != NULL)
        return cli_fail(status);
    json_t *o = json_loads(text, 0, NULL);
    ebb_release(text);
    json_array_foreach(json_object_get(o, "passes"), i, pass)
        used += (size_t)snprintf(passes + used, used < sizeof passes ? sizeof passes - used : 0,
                                 "%s%s", i == 0 ? "" : " ", cli_text(pass, "name"));
    json_decref(o);
    for (i = 0; i < sizeof pages / sizeof pages[0]; i++)
        if (strcmp(pages[i].name, name) == 0)
            pages[i].print(passes);
    return EBB_OK;
}
