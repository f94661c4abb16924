/* trace.c: the step as a trace that ui.perfetto.dev and chrome://tracing open (the Trace Event Format):
 *
 *   before: step            a slice for each node, by phase; the counter of live bytes
 *   before: ACTIVATION      a slice for each tensor, from birth to death, in lanes that nothing
 *                           overlaps in; one such group for each category and place
 *
 * A node is a microsecond long: the axis is the order of the step, not time.
 */
#include "cli/look/lives.h"

#include <stdlib.h>

typedef struct trace {
    FILE *out;
    const cli_lives *side;
    int first; /* process of its step; those of its tensors follow */
    bool begun;
} trace;

static void print_text(FILE *out, const char *text)
{
    json_t *string = json_string(text);
    (void)json_dumpf(string, out, JSON_ENCODE_ANY);
    json_decref(string);
}

static void begin_event(trace *t, const char *kind, int process, int lane, const char *name)
{
    fprintf(t->out, "%s\n{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d,\"name\":", t->begun ? "," : "", kind,
            process, lane);
    print_text(t->out, name);
    t->begun = true;
}

static void name_process(trace *t, int process, const char *name, const char *place)
{
    char text[128];
    (void)snprintf(text, sizeof text, "%s%s%s%s%s", t->side->title,
                   t->side->title[0] != '\0' ? ": " : "", name, place[0] != '\0' ? " on " : "",
                   place);
    begin_event(t, "M", process, 0, "process_name");
    fprintf(t->out, ",\"args\":{\"name\":\"%s\"}}", text);
    begin_event(t, "M", process, 0, "process_sort_index");
    fprintf(t->out, ",\"args\":{\"sort_index\":%d}}", process);
}

/* ---- the step ---- */

static void print_nodes(trace *t)
{
    static const char *const phases[] = {"forward", "loss", "backward", "update", "none"};
    size_t p;
    json_t *node;
    for (int k = 0; k < 5; k++) {
        begin_event(t, "M", t->first, k, "thread_name");
        fprintf(t->out, ",\"args\":{\"name\":\"%s\"}}", phases[k]);
    }
    json_array_foreach(json_object_get(t->side->plan, "order"), p, node) {
        int k = 0;
        while (k < 4 && strcmp(phases[k], cli_text(node, "phase")) != 0)
            k++;
        begin_event(t, "X", t->first, k, cli_text(node, "node"));
        fprintf(t->out, ",\"ts\":%zu,\"dur\":1}", p);
    }
}

static void print_counters(trace *t, double *live)
{
    for (int place = 0; place < CLI_PLACES; place++) {
        char name[64];
        double last = 0;
        (void)snprintf(name, sizeof name, "live bytes%s%s", place > 0 ? " on " : "",
                       place > 0 ? cli_places[place] : "");
        cli_live_bytes(live, t->side, place, CLI_ANY);
        for (uint32_t p = 0; p < t->side->positions; p++) {
            if (live[p] == last)
                continue;
            begin_event(t, "C", t->first, 0, name);
            fprintf(t->out, ",\"ts\":%u,\"args\":{\"bytes\":%.0f}}", p, live[p]);
            last = live[p];
        }
    }
}

/* ---- tensors ---- */

static int by_birth(const void *a, const void *b)
{
    const cli_life *x = *(const cli_life *const *)a, *y = *(const cli_life *const *)b;
    return x->birth != y->birth ? (x->birth < y->birth ? -1 : 1) : x < y ? -1 : x > y;
}

/* The first lane whose last slice is over. */
static int lane_for(uint32_t *ends, int *lanes, const cli_life *life)
{
    int lane = 0;
    while (lane < *lanes && ends[lane] > life->birth)
        lane++;
    *lanes += lane == *lanes;
    ends[lane] = life->death + 1;
    return lane;
}

static void print_group(trace *t, int process, const cli_life *const *list, size_t count,
                        uint32_t *ends)
{
    int lanes = 0;
    name_process(t, process, cli_categories[list[0]->category],
                 list[0]->place > 0 ? cli_places[list[0]->place] : "");
    for (size_t i = 0; i < count; i++) {
        const cli_life *life = list[i];
        begin_event(t, "X", process, lane_for(ends, &lanes, life), life->name);
        fprintf(t->out, ",\"ts\":%u,\"dur\":%u,\"args\":{\"bytes\":%.0f}}", life->birth,
                life->death - life->birth + 1, life->bytes);
    }
}

static void print_side(trace *t)
{
    const cli_lives *side = t->side;
    const cli_life **list = calloc(side->count + 1, sizeof *list);
    uint32_t *ends = calloc(side->count + 1, sizeof *ends);
    double *live = calloc(side->positions + (size_t)2, sizeof *live);
    name_process(t, t->first, "step", "");
    print_nodes(t);
    if (live != NULL)
        print_counters(t, live);
    for (int group = 0; group < CLI_PLACES * CLI_CATEGORIES; group++) {
        size_t count = 0;
        for (size_t i = 0; list != NULL && i < side->count; i++)
            if (side->list[i].place * CLI_CATEGORIES + side->list[i].category == group)
                list[count++] = &side->list[i];
        if (count == 0 || ends == NULL)
            continue;
        qsort(list, count, sizeof *list, by_birth);
        print_group(t, t->first + 1 + group, list, count, ends);
    }
    free(list);
    free(ends);
    free(live);
}

void cli_print_trace(FILE *out, const cli_lives sides[2], int count)
{
    trace t = {.out = out};
    fprintf(out, "{\"traceEvents\":[");
    for (int s = 0; s < count; s++) {
        t.side = &sides[s];
        t.first = 1 + s * 64;
        print_side(&t);
    }
    fprintf(out, "\n]}\n");
}
