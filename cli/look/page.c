/* page.c: page.html, which cmake puts into the program, with its {{words}} filled in. */
#include "cli/look/lives.h"

#include <stdlib.h>

#include "page.h"

/* JSON that may stand in an element <script>: no text of it can end that. */
static void print_data(FILE *out, const json_t *o)
{
    char *text = json_dumps(o, JSON_COMPACT);
    for (const char *at = text; at != NULL && *at != '\0'; at++)
        if (*at == '<')
            fputs("\\u003c", out);
        else
            fputc(*at, out);
    free(text);
}

void cli_print_html(FILE *out, const char *title, const json_t *o, const cli_lives sides[2],
                    int count)
{
    for (const char *at = page_html, *word; *at != '\0';) {
        if ((word = strstr(at, "{{")) == NULL)
            word = at + strlen(at);
        (void)fwrite(at, 1, (size_t)(word - at), out);
        at = word;
        if (strncmp(at, "{{title}}", 9) == 0)
            cli_print_xml(out, title);
        else if (strncmp(at, "{{picture}}", 11) == 0)
            cli_print_picture(out, sides, count);
        else if (strncmp(at, "{{data}}", 8) == 0)
            print_data(out, o);
        if (*at != '\0')
            at = strstr(at, "}}") + 2;
    }
}
