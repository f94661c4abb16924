/* lives.c: see lives.h; and where the results of --html, --svg and --perfetto go. */
#include "cli/look/lives.h"

#include <stdlib.h>

const char *const cli_categories[CLI_CATEGORIES] = {
    "PARAMETER", "OPTIMIZER_STATE", "INPUT",     "ACTIVATION",
    "GRADIENT",  "TEMPORARY",       "WORKSPACE", "COMM"};
const char *const cli_places[CLI_PLACES] = {"device", "host", "disk", "mapped"};

/* ---- reading ---- */

static int index_of(const char *const *names, int count, const char *name)
{
    int i = 0;
    while (i < count - 1 && strcmp(names[i], name) != 0)
        i++;
    return i;
}

static uint32_t position_of(const json_t *o, const char *key, uint32_t positions)
{
    const double p = cli_real(o, key);
    return p < 0 ? 0 : p >= positions ? positions - 1 : (uint32_t)p;
}

static uint32_t find_turn(const json_t *plan)
{
    size_t i;
    json_t *phase;
    json_array_foreach(json_object_get(plan, "phases"), i, phase)
        if (strcmp(cli_text(phase, "phase"), "backward") == 0)
            return (uint32_t)cli_real(phase, "first");
    return 0;
}

static bool read_side(cli_lives *side, const char *title, const json_t *plan)
{
    const json_t *tensors = json_object_get(plan, "tensors");
    size_t i;
    json_t *t;
    *side = (cli_lives){.title = title, .plan = plan, .turn = find_turn(plan)};
    side->positions = (uint32_t)json_array_size(json_object_get(plan, "order"));
    side->list = calloc(json_array_size(tensors) + 1, sizeof *side->list);
    json_array_foreach(tensors, i, t) {
        if (side->list == NULL || side->positions == 0)
            break;
        side->list[side->count++] = (cli_life){
            .name = cli_text(t, "name"),
            .bytes = cli_real(t, "bytes"),
            .category = index_of(cli_categories, CLI_CATEGORIES, cli_text(t, "category")),
            .place = index_of(cli_places, CLI_PLACES, cli_text(t, "place")),
            .birth = position_of(t, "birth", side->positions),
            .death = position_of(t, "death", side->positions)};
    }
    return side->list != NULL && side->positions > 0;
}

/* Of {"tensors", "order", ...}, or of {"before": that, "after": that}. How many; 0: they are not there. */
static int read_lives(cli_lives sides[2], const json_t *o)
{
    const json_t *before = json_object_get(o, "before");
    memset(sides, 0, 2 * sizeof *sides);
    if (before == NULL)
        return read_side(&sides[0], "", o) ? 1 : 0;
    return read_side(&sides[0], "before", before) &&
                   read_side(&sides[1], "after", json_object_get(o, "after"))
               ? 2
               : 0;
}

static void free_lives(cli_lives sides[2])
{
    for (int i = 0; i < 2; i++)
        free(sides[i].list);
}

void cli_live_bytes(double *live, const cli_lives *side, int place, int category)
{
    memset(live, 0, (side->positions + (size_t)1) * sizeof *live);
    for (size_t i = 0; i < side->count; i++) {
        const cli_life *t = &side->list[i];
        if (t->place != place || (category != CLI_ANY && t->category != category))
            continue;
        live[t->birth] += t->bytes;
        live[t->death + 1] -= t->bytes;
    }
    for (uint32_t p = 1; p < side->positions; p++)
        live[p] += live[p - 1];
}

/* ---- two steps of unlike length, side by side ---- */

double cli_turn(const cli_lives sides[2], int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++) {
        if (sides[i].turn == 0)
            return 0;
        sum += (double)sides[i].turn / sides[i].positions;
    }
    return sum / count;
}

double cli_moment(const cli_lives sides[2], int count, const cli_lives *side, double position)
{
    const double turn = cli_turn(sides, count), first = side->turn, all = side->positions;
    if (turn == 0)
        return position / all;
    return position < first ? position / first * turn
                            : turn + (position - first) / (all - first) * (1 - turn);
}

/* ---- results ---- */

static void write_form(FILE *out, const cli *c, const char *option, const json_t *o,
                       const cli_lives sides[2], int count)
{
    char title[512];
    (void)snprintf(title, sizeof title, "%s%s%s", c->files[0], c->file_count > 1 ? " and " : "",
                   c->file_count > 1 ? c->files[1] : "");
    if (strcmp(option, "--svg") == 0)
        cli_print_picture(out, sides, count);
    else if (strcmp(option, "--perfetto") == 0)
        cli_print_trace(out, sides, count);
    else
        cli_print_html(out, title, o, sides, count);
}

/* In memory first, so that no half of a file is left where something fails. */
static int save_form(const cli *c, const char *option, const json_t *o, const cli_lives sides[2],
                     int count)
{
    const char *path = cli_get(c, option, NULL);
    char *text = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&text, &size), *file = NULL;
    if (memory == NULL)
        return cli_usage("%s: out of memory", option), EBB_RUNTIME;
    write_form(memory, c, option, o, sides, count);
    bool failed = fclose(memory) != 0 || (file = fopen(path, "w")) == NULL;
    failed = failed || fwrite(text, 1, size, file) != size;
    failed = (file != NULL && fclose(file) != 0) || failed;
    free(text);
    return failed ? (cli_usage("%s cannot be written", path), EBB_IO) : EBB_OK;
}

static const char *const forms[] = {"--html", "--svg", "--perfetto"};
enum { FORMS = sizeof forms / sizeof *forms };

bool cli_wants_lives(const cli *c)
{
    bool wants = false;
    for (int i = 0; i < FORMS; i++)
        wants = wants || cli_has(c, forms[i]);
    return wants;
}

int cli_save_lives(const cli *c, const json_t *o)
{
    cli_lives sides[2];
    int code = EBB_OK;
    if (!cli_wants_lives(c))
        return EBB_OK;
    const int count = read_lives(sides, o);
    if (count == 0)
        code = (cli_usage("it has too many nodes for a page"), EBB_UNSUPPORTED);
    for (int i = 0; i < FORMS && code == EBB_OK; i++)
        if (cli_has(c, forms[i]))
            code = save_form(c, forms[i], o, sides, count);
    free_lives(sides);
    return code;
}
