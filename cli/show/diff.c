/* diff.c: two plans side by side: bytes, categories, curves, who saved what, who pins the peaks. */
#include "cli/cli.h"

static void show_totals(const json_t *before, const json_t *after)
{
    static const struct {
        const char *label, *key;
    } rows[] = {{"peak", "peak_bytes"}, {"arena", "arena_bytes"}, {"saved", "saved_bytes"}};
    printf("%-18s %12s %12s %12s\n", "", "before", "after", "change");
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        char change[32];
        double b = cli_real(before, rows[r].key), a = cli_real(after, rows[r].key);
        printf("%-18s %12s %12s %12s  %+6.1f %%\n", rows[r].label,
               cli_bytes_of(before, rows[r].key), cli_bytes_of(after, rows[r].key),
               cli_bytes(change, a - b), b > 0 ? (a / b - 1) * 100 : 0);
    }
}

static double in_place(const json_t *plan, const char *place)
{
    size_t i;
    json_t *entry;
    json_array_foreach(json_object_get(plan, "places"), i, entry)
        if (strcmp(cli_text(entry, "place"), place) == 0)
            return cli_real(entry, "bytes");
    return 0;
}

/* What lies in other places, where either has any. */
static void show_places(const json_t *before, const json_t *after)
{
    static const char *const places[] = {"host", "disk", "mapped"};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char b[32], a[32], change[32];
        const double was = in_place(before, places[i]), is = in_place(after, places[i]);
        if (was > 0 || is > 0)
            printf("%-18s %12s %12s %12s\n", places[i], cli_bytes(b, was), cli_bytes(a, is),
                   cli_bytes(change, is - was));
    }
}

static void show_categories(const json_t *before, const json_t *after)
{
    const char *name;
    json_t *bytes;
    const json_t *b = json_object_get(before, "categories"),
                 *a = json_object_get(after, "categories");
    json_object_foreach((json_t *)(uintptr_t)b, name, bytes) {
        char change[32];
        if (cli_real(a, name) > 0 || cli_real(b, name) > 0)
            printf("  %-16s %12s %12s %12s\n", name, cli_bytes_of(b, name), cli_bytes_of(a, name),
                   cli_bytes(change, cli_real(a, name) - cli_real(b, name)));
    }
}

static const char *bytes_or_dash(const json_t *o, const char *key)
{
    return json_is_integer(json_object_get(o, key)) ? cli_bytes_of(o, key) : "-";
}

/* Passes that moved no byte at the peak are left out, unless there is a reason not to know. */
static void show_passes(const json_t *list)
{
    static const char *const keys[] = {"in_order_bytes", "alone_bytes", "last_in_bytes"};
    size_t i;
    json_t *p;
    bool begun = false;
    json_array_foreach((json_t *)(uintptr_t)list, i, p) {
        bool moved = false;
        for (int k = 0; k < 3; k++)
            moved |= cli_real(p, keys[k]) != 0;
        if (!moved)
            continue;
        if (!begun)
            printf("%-18s %12s %12s %12s\n", "peak saved by", "in order", "alone", "last in");
        begun = true;
        printf("  %-16s %12s %12s %12s\n", cli_text(p, "name"), bytes_or_dash(p, keys[0]),
               bytes_or_dash(p, keys[1]), bytes_or_dash(p, keys[2]));
        if (json_object_get(p, "reason") != NULL)
            printf("    %s\n", cli_text(p, "reason"));
    }
}

static void show_peak_tensors(const char *title, const json_t *plan)
{
    enum { SHOWN = 8 };
    size_t i;
    json_t *t;
    printf("peak %s at %s\n", title, cli_text(plan, "peak_node"));
    json_array_foreach(json_object_get(plan, "peak_tensors"), i, t) {
        if (i < SHOWN)
            printf("  %12s  %-10s %s\n", cli_bytes_of(t, "bytes"), cli_text(t, "category"),
                   cli_text(t, "name"));
    }
}

/* "-" where a number is not finite. */
static const char *real_or_dash(char text[32], const char *format, const json_t *o, const char *key)
{
    (void)snprintf(text, 32, "-");
    if (json_is_number(json_object_get(o, key))) {
        if (strcmp(format, "e") == 0)
            (void)snprintf(text, 32, "%.3g", cli_real(o, key));
        else
            (void)snprintf(text, 32, "%.7f", cli_real(o, key));
    }
    return text;
}

/* Of all parameters together, and of those that are farthest. */
static void show_gradients(const json_t *g)
{
    size_t i;
    json_t *p;
    char cosine[32], l2[32];
    if (g == NULL)
        return;
    printf("%-44s %10s  %10s\n", cli_text(g, "of"), "cosine", "relative L2");
    printf("  %-42s %10s  %10s\n", "all", real_or_dash(cosine, "f", g, "cosine"),
           real_or_dash(l2, "e", g, "relative_l2"));
    json_array_foreach(json_object_get(g, "worst"), i, p)
        if (cli_real(p, "relative_l2") != 0 || cli_real(p, "cosine") != 1)
            printf("  %-42s %10s  %10s\n", cli_text(p, "name"),
                   real_or_dash(cosine, "f", p, "cosine"), real_or_dash(l2, "e", p, "relative_l2"));
    if (cli_real(g, "negligible") > 0)
        printf("  of %.0f parameters, %.0f that are next to zero are not ranked\n",
               cli_real(g, "count"), cli_real(g, "negligible"));
}

void cli_show_diff(const json_t *o)
{
    const json_t *before = json_object_get(o, "before"), *after = json_object_get(o, "after");
    show_totals(before, after);
    show_places(before, after);
    show_categories(before, after);
    printf("%-18s %12lld %12lld\n", "nodes", (long long)cli_real(before, "nodes"),
           (long long)cli_real(after, "nodes"));
    show_passes(json_object_get(o, "by_pass"));
    show_peak_tensors("before", before);
    show_peak_tensors("after", after);
    printf("before: ");
    cli_show_curve(before);
    printf("after: ");
    cli_show_curve(after);
    if (json_object_get(o, "bit_equal") == NULL)
        return;
    show_gradients(json_object_get(o, "gradients"));
    if (json_object_get(o, "time_ratio") != NULL) {
        char first[32], second[32];
        printf("step: %s before, %s after, ratio %.3f (lower quartiles of %.0f, in turns)\n",
               cli_time(first, cli_real(before, "step_ns")),
               cli_time(second, cli_real(after, "step_ns")), cli_real(o, "time_ratio"),
               cli_real(o, "timed_steps"));
    }
    printf("run: %s, largest difference %.3g (relative %.3g)\n",
           json_is_true(json_object_get(o, "bit_equal")) ? "bit-equal" : "not bit-equal",
           cli_real(o, "max_abs_error"), cli_real(o, "max_rel_error"));
}
