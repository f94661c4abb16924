/* picture.c: live bytes over the step as SVG, for a document as it stands, and for page.html, whose script
 * zooms by the view box of each plot.
 *
 *     before: peak 3.75 MiB at ...                 one panel for each plan and place
 *     3 MiB |      ___####___                      categories, piled; dashed: the other plan
 *           |__####################___
 *           |=====================####             phases
 *
 * Colours are those of Okabe and Ito, which are told apart by every kind of eye.
 */
#include "cli/look/lives.h"

#include <stdlib.h>

enum {
    WIDTH = 960,
    LEFT = 84,
    PLOT = 860,
    HIGH = 190,
    LOW = 60,
    STRIP = 8,
    TITLE = 26,
    LEGEND = 24
};
enum { MOST_COLUMNS = 4000 }; // of a longer step neighbours share one, and the fullest counts

static const char *const colors[CLI_CATEGORIES] = {"#0072b2", "#56b4e9", "#999999", "#009e73",
                                                   "#e69f00", "#f0e442", "#cc79a7", "#d55e00"};
static const struct {
    const char *name, *color;
} phases[] = {{"forward", "#cccccc"},
              {"loss", "#000000"},
              {"backward", "#888888"},
              {"update", "#444444"},
              {"none", "#eeeeee"}};
enum { PHASES = sizeof phases / sizeof *phases };

typedef struct picture {
    FILE *out;
    const cli_lives *sides;
    int count;
    double y; /* of what comes next */
} picture;

typedef struct panel {
    const cli_lives *side;
    int place;
    double *live;        /* of one category or of all, by position */
    double *pile;        /* of this category and those below it, by column */
    uint32_t *from, *at; /* a column: its first position, and the one with most bytes */
    uint32_t columns;
    double top, height; /* bytes, and what they are high */
} panel;

void cli_print_xml(FILE *out, const char *text)
{
    for (; *text != '\0'; text++)
        if (*text == '<')
            fputs("&lt;", out);
        else if (*text == '&')
            fputs("&amp;", out);
        else if (*text == '"')
            fputs("&quot;", out);
        else
            fputc((unsigned char)*text < ' ' ? '?' : *text, out);
}

/* ---- curves ---- */

static double x_at(const picture *p, const panel *a, double position)
{
    return PLOT * cli_moment(p->sides, p->count, a->side, position);
}

static double y_at(const panel *a, double bytes)
{
    return a->height * (1 - bytes / a->top);
}

static void find_columns(panel *a)
{
    const uint32_t all = a->side->positions;
    a->columns = all < MOST_COLUMNS ? all : MOST_COLUMNS;
    cli_live_bytes(a->live, a->side, a->place, CLI_ANY);
    for (uint32_t i = 0; i <= a->columns; i++)
        a->from[i] = (uint32_t)((uint64_t)i * all / a->columns);
    for (uint32_t i = 0; i < a->columns; i++) {
        a->at[i] = a->from[i];
        for (uint32_t k = a->from[i]; k < a->from[i + 1]; k++)
            if (a->live[k] > a->live[a->at[i]])
                a->at[i] = k;
    }
}

/* Steps along the columns. */
static void print_steps(const picture *p, const panel *a, const double *bytes)
{
    double last = -1;
    for (uint32_t i = 0; i < a->columns; i++) {
        const double y = y_at(a, bytes[i]);
        if (last >= 0 && y == last)
            continue;
        if (last < 0)
            fprintf(p->out, "M0 %.5g", y);
        else
            fprintf(p->out, "H%.6gV%.5g", x_at(p, a, a->from[i]), y);
        last = y;
    }
    fprintf(p->out, "H%d", PLOT);
}

/* Each pile reaches down to zero, and those of fewer categories are painted over it. */
static void print_piles(const picture *p, panel *a)
{
    for (int top = CLI_CATEGORIES; top-- > 0;) {
        bool any = false;
        for (uint32_t i = 0; i < a->columns; i++)
            a->pile[i] = 0;
        for (int c = 0; c <= top; c++) {
            cli_live_bytes(a->live, a->side, a->place, c);
            for (uint32_t i = 0; i < a->columns; i++) {
                any |= c == top && a->live[a->at[i]] > 0;
                a->pile[i] += a->live[a->at[i]];
            }
        }
        if (!any)
            continue;
        fprintf(p->out, "<path fill=\"%s\" d=\"", colors[top]);
        print_steps(p, a, a->pile);
        fprintf(p->out, "V%gH0Z\"/>\n", a->height);
    }
}

static void print_line(const picture *p, panel *a)
{
    cli_live_bytes(a->live, a->side, a->place, CLI_ANY);
    for (uint32_t i = 0; i < a->columns; i++)
        a->pile[i] = a->live[a->at[i]];
    fprintf(p->out, "<path fill=\"none\" stroke=\"#000\" stroke-width=\"1.2\" "
                    "stroke-dasharray=\"5 3\" vector-effect=\"non-scaling-stroke\" d=\"");
    print_steps(p, a, a->pile);
    fprintf(p->out, "\"/>\n");
}

static const char *phase_at(const cli_lives *side, uint32_t position)
{
    return cli_text(json_array_get(json_object_get(side->plan, "order"), position), "phase");
}

static void print_phases(const picture *p, const panel *a)
{
    for (uint32_t i = 0, next; i < a->columns; i = next) {
        const char *name = phase_at(a->side, a->from[i]);
        int k = 0;
        for (next = i + 1;
             next < a->columns && strcmp(phase_at(a->side, a->from[next]), name) == 0;)
            next++;
        while (k < PHASES - 1 && strcmp(phases[k].name, name) != 0)
            k++;
        const double x = x_at(p, a, a->from[i]);
        fprintf(p->out, "<rect x=\"%.6g\" y=\"%g\" width=\"%.6g\" height=\"%d\" fill=\"%s\"/>\n", x,
                a->height + 2, x_at(p, a, a->from[next]) - x, STRIP - 2, phases[k].color);
    }
}

/* ---- around them ---- */

/* The largest of 1, 2, 5, 10 ... times a power of 1024 that is at most a third of `top`. */
static double tick_of(double top)
{
    static const double factors[] = {2, 2.5, 2};
    double unit = 1, tick;
    while (top / unit >= 1024)
        unit *= 1024;
    tick = unit / 1000;
    for (int i = 0; tick * factors[i % 3] * 3 <= top; i++)
        tick *= factors[i % 3];
    return tick;
}

static void print_ticks(const picture *p, const panel *a)
{
    const double tick = tick_of(a->top);
    for (double bytes = 0; bytes <= a->top; bytes += tick) {
        char text[32];
        fprintf(p->out,
                "<path stroke=\"#ddd\" d=\"M%d %.5gh%d\"/><text x=\"%d\" y=\"%.5g\" "
                "text-anchor=\"end\" fill=\"#555\">%s</text>\n",
                LEFT, p->y + y_at(a, bytes), PLOT, LEFT - 6, p->y + y_at(a, bytes) + 4,
                cli_bytes(text, bytes));
    }
}

static void print_title(const picture *p, const panel *a)
{
    const json_t *plan = a->side->plan;
    double peak = 0, other = p->count > 1 ? cli_real(p->sides[0].plan, "peak_bytes") : 0;
    char text[32];
    cli_live_bytes(a->live, a->side, a->place, CLI_ANY);
    for (uint32_t i = 0; i < a->side->positions; i++)
        peak = a->live[i] > peak ? a->live[i] : peak;
    fprintf(p->out, "<text x=\"%d\" y=\"%g\"><tspan font-weight=\"bold\">%s%s", LEFT, p->y - 8,
            a->side->title, a->side->title[0] != '\0' ? ": " : "");
    if (a->place > 0)
        fprintf(p->out, "on %s, ", cli_places[a->place]);
    fprintf(p->out, "peak %s", cli_bytes(text, peak));
    if (a->place == 0 && a->side != p->sides && other > 0)
        fprintf(p->out, " (%+.1f %%)", 100 * (peak / other - 1));
    fprintf(p->out, "</tspan>");
    if (a->place == 0) {
        fprintf(p->out, " at ");
        cli_print_xml(p->out, cli_text(plan, "peak_node"));
    }
    fprintf(p->out, "</text>\n");
}

static void print_budget(const picture *p, const panel *a)
{
    const double budget = cli_real(a->side->plan, "budget_bytes");
    if (a->place == 0 && budget > 0 && budget <= a->top)
        fprintf(p->out,
                "<path stroke=\"#d55e00\" stroke-dasharray=\"2 2\" d=\"M%d %.5gh%d\"/>"
                "<text x=\"%d\" y=\"%.5g\" text-anchor=\"end\" fill=\"#d55e00\">budget</text>\n",
                LEFT, p->y + y_at(a, budget), PLOT, WIDTH - 20, p->y + y_at(a, budget) - 3);
}

static void print_panel(picture *p, panel *a, panel *other)
{
    p->y += TITLE;
    fprintf(p->out,
            "<g class=\"panel\" data-side=\"%s\" data-nodes=\"%u\" data-first=\"%u\" "
            "data-turn=\"%.9g\">\n",
            a->side->title, a->side->positions, a->side->turn, cli_turn(p->sides, p->count));
    print_title(p, a);
    print_ticks(p, a);
    fprintf(p->out,
            "<rect class=\"field\" x=\"%d\" y=\"%g\" width=\"%d\" height=\"%g\" fill=\"#fff\" "
            "fill-opacity=\"0\"/>\n<svg class=\"plot\" x=\"%d\" y=\"%g\" width=\"%d\" "
            "height=\"%g\" viewBox=\"0 0 %d %g\" preserveAspectRatio=\"none\">\n",
            LEFT, p->y, PLOT, a->height + STRIP, LEFT, p->y, PLOT, a->height + STRIP, PLOT,
            a->height + STRIP);
    print_piles(p, a);
    if (other != NULL)
        print_line(p, other);
    print_phases(p, a);
    fprintf(p->out, "</svg>\n");
    print_budget(p, a);
    fprintf(p->out, "</g>\n");
    p->y += a->height + STRIP;
}

/* ---- all of it ---- */

static double most_of(const cli_lives sides[2], int count, int place)
{
    double most = 0;
    for (int i = 0; i < count; i++) {
        size_t k;
        json_t *entry;
        const double budget = cli_real(sides[i].plan, "budget_bytes"),
                     peak = cli_real(sides[i].plan, "peak_bytes");
        if (place == 0) {
            most = peak > most ? peak : most;
            most = budget > most && budget < 2 * peak ? budget : most;
        }
        json_array_foreach(json_object_get(sides[i].plan, "places"), k, entry)
            if (strcmp(cli_text(entry, "place"), cli_places[place]) == 0 &&
                cli_real(entry, "peak_bytes") > most)
                most = cli_real(entry, "peak_bytes");
    }
    return most;
}

/* A row of samples of what occurs: categories, phases, the dashed line. */
static void print_legend(picture *p)
{
    double x = LEFT;
    p->y += LEGEND;
    for (int c = 0; c < CLI_CATEGORIES; c++) {
        bool any = false;
        for (int s = 0; s < p->count; s++)
            for (size_t i = 0; i < p->sides[s].count; i++)
                any |= p->sides[s].list[i].category == c && p->sides[s].list[i].place < 3;
        if (!any)
            continue;
        fprintf(p->out,
                "<rect x=\"%g\" y=\"%g\" width=\"10\" height=\"10\" fill=\"%s\"/>"
                "<text x=\"%g\" y=\"%g\">%s</text>\n",
                x, p->y - 10, colors[c], x + 14, p->y - 1, cli_categories[c]);
        x += 30 + 8.2 * (double)strlen(cli_categories[c]);
    }
    x = LEFT;
    p->y += 18;
    for (int k = 0; k < PHASES - 1; k++) {
        fprintf(p->out,
                "<rect x=\"%g\" y=\"%g\" width=\"10\" height=\"5\" fill=\"%s\"/>"
                "<text x=\"%g\" y=\"%g\">%s</text>\n",
                x, p->y - 7, phases[k].color, x + 14, p->y - 1, phases[k].name);
        x += 30 + 7 * (double)strlen(phases[k].name);
    }
    if (p->count > 1)
        fprintf(p->out,
                "<path stroke=\"#000\" stroke-dasharray=\"5 3\" d=\"M%g %gh24\"/>"
                "<text x=\"%g\" y=\"%g\">the other</text>\n",
                x, p->y - 5, x + 30, p->y - 1);
}

static bool start_panel(panel *a, const cli_lives *side, int place, double top)
{
    const size_t size = side->positions + (size_t)2;
    *a = (panel){.side = side, .place = place, .top = top, .height = place == 0 ? HIGH : LOW};
    a->live = calloc(size, sizeof *a->live);
    a->pile = calloc(size, sizeof *a->pile);
    a->from = calloc(size, sizeof *a->from);
    a->at = calloc(size, sizeof *a->at);
    const bool good = a->live != NULL && a->pile != NULL && a->from != NULL && a->at != NULL;
    if (good && side->positions > 0)
        find_columns(a);
    return good;
}

static void end_panel(panel *a)
{
    free(a->live);
    free(a->pile);
    free(a->from);
    free(a->at);
}

/* What is read in the model's file is there throughout, and has no panel. */
static void print_panels(picture *p)
{
    for (int place = 0; place < CLI_PLACES - 1; place++) {
        const double top = most_of(p->sides, p->count, place);
        panel panels[2] = {{0}};
        bool good = top > 0;
        for (int s = 0; s < p->count && good; s++)
            good = start_panel(&panels[s], &p->sides[s], place, top);
        for (int s = 0; s < p->count && good; s++)
            print_panel(p, &panels[s], p->count > 1 ? &panels[1 - s] : NULL);
        for (int s = 0; s < 2; s++)
            end_panel(&panels[s]);
    }
}

void cli_print_picture(FILE *out, const cli_lives sides[2], int count)
{
    picture p = {.out = out, .sides = sides, .count = count};
    char *text = NULL;
    size_t size = 0;
    /* How high it is stands before it. */
    if ((p.out = open_memstream(&text, &size)) == NULL)
        return;
    print_panels(&p);
    print_legend(&p);
    (void)fclose(p.out);
    fprintf(out,
            "<svg id=\"picture\" xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%g\" "
            "viewBox=\"0 0 %d %g\" font-family=\"sans-serif\" font-size=\"12\">\n"
            "<rect width=\"%d\" height=\"%g\" fill=\"#fff\"/>\n%s</svg>\n",
            WIDTH, p.y + 8, WIDTH, p.y + 8, WIDTH, p.y + 8, text);
    free(text);
}
