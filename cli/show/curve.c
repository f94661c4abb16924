/* curve.c: live bytes over a step as a picture, and the table of the peak's neighbourhood.
 *
 *     3.75 MiB |              #                  <- peak
 *              |            ###++
 *     2.00 MiB |- - - - - -########- - - - - -   <- budget
 *              |    ##############
 *            0 +--------------------------------
 *               forward       loss backward  update
 */
#include "cli/cli.h"

enum { COLUMNS = 60, ROWS = 10 };

static json_t *find(const json_t *o, const char *key)
{
    return json_object_get(o, key);
}

/* Most bytes alive in each column; the position at which a column begins is column * nodes /
 * COLUMNS.
 */
static void fill_columns(const json_t *plan, double nodes, double most[COLUMNS])
{
    size_t i;
    json_t *point;
    bool given[COLUMNS] = {false};
    json_array_foreach(find(plan, "curve"), i, point) {
        int column = (int)(cli_real(point, "position") * COLUMNS / nodes);
        double bytes = cli_real(point, "live_bytes");
        if (column < 0 || column >= COLUMNS)
            continue;
        most[column] = !given[column] || bytes > most[column] ? bytes : most[column];
        given[column] = true;
    }
    for (int c = 1; c < COLUMNS; c++) /* fewer nodes than columns */
        if (!given[c])
            most[c] = most[c - 1];
}

static void show_row(const double most[COLUMNS], double top, int row, double budget)
{
    char label[32] = "", mark[64] = "", bytes[32];
    double low = top * (ROWS - row - 1) / ROWS, high = top * (ROWS - row) / ROWS;
    bool line = budget > low && budget <= high;
    char picture[COLUMNS + 1];
    if (row == 0)
        (void)cli_bytes(label, top);
    if (line)
        (void)snprintf(mark, sizeof mark, "  budget %s", cli_bytes(bytes, budget));
    /* A column reaches a row where it fills half of it. */
    for (int c = 0; c < COLUMNS; c++)
        picture[c] = most[c] > (low + high) / 2 ? '#' : line && c % 2 == 0 ? '-' : ' ';
    picture[COLUMNS] = '\0';
    printf("%12s |%s|%s\n", label, picture, mark);
}

/* The name of each phase below where it begins, as far as there is room; ^ below the peak. */
static void show_axis(const json_t *plan, double nodes)
{
    char axis[COLUMNS + 1], names[COLUMNS + 16];
    size_t i, end = 0;
    json_t *phase;
    int peak = (int)(cli_real(plan, "peak_position") * COLUMNS / nodes);
    memset(axis, '-', COLUMNS);
    memset(names, ' ', sizeof names);
    json_array_foreach(find(plan, "phases"), i, phase) {
        const char *name = cli_text(phase, "phase");
        size_t at = (size_t)(cli_real(phase, "first") * COLUMNS / nodes), length = strlen(name);
        if (at < COLUMNS)
            axis[at] = '|';
        at = at < end ? end : at;
        if (at + length >= sizeof names)
            continue;
        memcpy(names + at, name, length);
        end = at + length + 1;
    }
    if (peak >= 0 && peak < COLUMNS)
        axis[peak] = '^';
    axis[COLUMNS] = '\0';
    names[end < sizeof names ? end : sizeof names - 1] = '\0';
    printf("%12s +%s+\n%14s%s\n", "0", axis, "", names);
}

void cli_show_curve(const json_t *plan)
{
    double most[COLUMNS] = {0}, nodes = cli_real(plan, "nodes"),
           peak = cli_real(plan, "peak_bytes");
    double budget = cli_real(plan, "budget_bytes");
    if (json_array_size(find(plan, "curve")) == 0 || nodes < 1 || peak <= 0)
        return;
    double top = budget > peak && budget < 2 * peak ? budget : peak;
    fill_columns(plan, nodes, most);
    printf("live bytes over the step (^ the peak)\n");
    for (int row = 0; row < ROWS; row++)
        show_row(most, top, row, budget);
    show_axis(plan, nodes);
}

static void show_tensors(const char *sign, const json_t *list, double bytes)
{
    size_t i;
    json_t *t;
    char text[32];
    if (json_array_size(list) == 0)
        return;
    printf("%48s%s %s:", "", sign, cli_bytes(text, bytes));
    json_array_foreach((json_t *)(uintptr_t)list, i, t) {
        if (cli_real(t, "bytes") * 20 >= bytes) /* not the small change beside it */
            printf("%s %s", i > 0 ? "," : "", cli_text(t, "name"));
    }
    printf("\n");
}

void cli_show_neighbourhood(const json_t *plan)
{
    size_t i;
    json_t *row;
    printf("around the peak\n  %8s %-8s %14s  %s\n", "position", "phase", "live", "node");
    json_array_foreach(find(plan, "neighbourhood"), i, row) {
        char text[32];
        bool peak = cli_real(row, "position") == cli_real(plan, "peak_position");
        printf("%c %8lld %-8s %14s  %s\n", peak ? '>' : ' ', (long long)cli_real(row, "position"),
               cli_text(row, "phase"), cli_bytes(text, cli_real(row, "live_bytes")),
               cli_text(row, "node"));
        show_tensors("+", find(row, "born"), cli_real(row, "born_bytes"));
        show_tensors("-", find(row, "dies"), cli_real(row, "dies_bytes"));
    }
}
