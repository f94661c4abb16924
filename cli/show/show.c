/* show.c: JSON objects as tables. */
#include "cli/cli.h"

const char *cli_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

double cli_real(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

/* Control characters of names, which JSON writes as \uXXXX, become '?': tables go to a terminal. */
static void disarm(char *json)
{
    char *to = json;
    for (const char *at = json; *at != '\0';) {
        bool control = strncmp(at, "\\u00", 4) == 0 && (at[4] == '0' || at[4] == '1');
        if (control || *at == 0x7f) {
            *to++ = '?';
            at += control ? 6 : 1;
            continue;
        }
        if (*at == '\\' && at[1] != '\0') // an escaped backslash does not begin a \uXXXX
            *to++ = *at++;
        *to++ = *at++;
    }
    *to = '\0';
}

static bool printed;

bool cli_printed_json(void)
{
    return printed;
}

void cli_print_json(const json_t *object, size_t flags)
{
    (void)json_dumpf(object, stdout, flags);
    (void)putchar('\n');
    printed = true;
}

int cli_show(const cli *c, char *json, void (*show)(const json_t *object))
{
    if (cli_has(c, "--json")) {
        puts(json);
        printed = true;
    } else {
        json_error_t error;
        disarm(json);
        json_t *o = json_loads(json, 0, &error);
        if (o != NULL && cli_has(c, "-v"))
            (void)json_object_set_new(o, "verbose", json_true());
        if (o != NULL)
            show(o);
        json_decref(o);
    }
    ebb_release(json);
    return EBB_OK;
}

const char *cli_bytes_of(const json_t *o, const char *key)
{
    static char ring[8][32];
    static unsigned next;
    return cli_bytes(ring[next++ % 8], cli_real(o, key));
}

static const char *time_of(const json_t *o, const char *key)
{
    static char ring[4][32];
    static unsigned next;
    return cli_time(ring[next++ % 4], cli_real(o, key));
}

/* "float[batch,10]" */
static const char *type_of(char text[160], const json_t *v)
{
    size_t d;
    json_t *dim;
    size_t used = (size_t)snprintf(text, 160, "%s[", cli_text(v, "dtype"));
    json_array_foreach(json_object_get(v, "dims"), d, dim) {
        if (used > 120) {
            (void)strcpy(text + used, ",...");
            used += 4;
            break;
        }
        used += (size_t)(json_is_string(dim) ? snprintf(text + used, 30, "%s%.24s",
                                                        d > 0 ? "," : "", json_string_value(dim))
                                             : snprintf(text + used, 30, "%s%lld", d > 0 ? "," : "",
                                                        (long long)json_integer_value(dim)));
    }
    (void)strcpy(text + used, "]");
    return text;
}

static void show_values(const char *title, const json_t *list)
{
    size_t i;
    json_t *v;
    char type[160];
    printf("%s\n", title);
    json_array_foreach((json_t *)(uintptr_t)list, i, v)
        printf("  %-36s %s\n", cli_text(v, "name"), type_of(type, v));
}

static void show_weights(const json_t *o)
{
    enum { SHOWN = 40 };
    const json_t *list = json_object_get(o, "weights");
    const size_t most = json_is_true(json_object_get(o, "verbose")) ? SIZE_MAX : SHOWN;
    size_t i, trained = 0, count = json_array_size(list);
    json_t *w;
    char type[160];
    json_array_foreach((json_t *)(uintptr_t)list, i, w)
        trained += json_is_true(json_object_get(w, "trained"));
    printf("weights\n  %zu initializers, %s, of them %s external, %s missing; %zu %s trained\n",
           count, cli_bytes_of(o, "initializer_bytes"), cli_bytes_of(o, "external_bytes"),
           cli_bytes_of(o, "missing_bytes"), trained,
           json_is_true(json_object_get(o, "is_step")) ? "are" : "would be");
    json_array_foreach((json_t *)(uintptr_t)list, i, w)
        if (i < most)
            printf("  %-40s %-22s %-9s %s%s\n", cli_text(w, "name"), type_of(type, w),
                   cli_text(w, "role"),
                   json_is_true(json_object_get(w, "trained")) ? "" : "not trained: ",
                   cli_text(w, "why"));
    if (count > most)
        printf("  and %zu more (-v shows them)\n", count - most);
}

void cli_show_inspect(const json_t *o)
{
    const char *op;
    json_t *count;
    printf("%s  IR %lld, opset %lld, %lld nodes%s\n", cli_text(o, "path"),
           (long long)cli_real(o, "ir_version"), (long long)cli_real(o, "opset"),
           (long long)cli_real(o, "nodes"),
           json_is_true(json_object_get(o, "is_step")) ? ", a training step" : "");
    show_values("inputs", json_object_get(o, "inputs"));
    show_values("outputs", json_object_get(o, "outputs"));
    show_weights(o);
    printf("operators\n");
    json_object_foreach(json_object_get(o, "operators"), op, count)
        printf("  %6lld  %s\n", (long long)json_integer_value(count), op);
}

static void show_finding(const char *severity, const json_t *f)
{
    const json_t *nodes = json_object_get(f, "nodes");
    size_t named = json_array_size(nodes), count = (size_t)cli_real(f, "count");
    printf("%-8s %s: %s", severity, cli_text(f, "kind"), cli_text(f, "what"));
    if (cli_text(f, "pass")[0] != '\0' && strcmp(severity, "note") == 0)
        printf("; pass %s sees to it", cli_text(f, "pass"));
    printf("\n");
    for (size_t i = 0; i < named && i < 4; i++)
        printf("%s%s", i > 0 ? ", " : "           at ",
               json_string_value(json_array_get(nodes, i)));
    if (named > 0 && count > 4)
        printf(", ... (%zu nodes)", count);
    printf("%s", named > 0 ? "\n" : "");
    if (cli_text(f, "help")[0] != '\0')
        printf("           help: %s\n", cli_text(f, "help"));
}

void cli_show_check(const json_t *o)
{
    static const char *const severities[] = {"problem", "warning", "note"};
    static const char *const lists[] = {"problems", "warnings", "notes"};
    size_t i;
    json_t *f;
    for (int s = 0; s < 3; s++)
        json_array_foreach(json_object_get(o, lists[s]), i, f)
            show_finding(severities[s], f);
    if (json_array_size(json_object_get(o, "problems")) == 0)
        printf("every operator has a kernel and, where one is needed, a gradient\n");
}

void cli_show_ops(const json_t *o)
{
    size_t i;
    json_t *p;
    printf("%-44s %5s  %-8s %s\n", "operator", "since", "gradient", "kernel");
    json_array_foreach(json_object_get(o, "operators"), i, p) {
        char name[128];
        const char *domain = cli_text(p, "domain");
        (void)snprintf(name, sizeof name, "%s%s%s", domain, domain[0] != '\0' ? "." : "",
                       cli_text(p, "op"));
        printf("%-44s %5lld  %-8s %s\n", name, (long long)cli_real(p, "since"),
               cli_text(p, "gradient"), cli_text(p, "kernel"));
    }
}

static void show_descriptor(const json_t *p)
{
    size_t k;
    json_t *s;
    printf("%-14s %-9s %s\n", cli_text(p, "name"), cli_text(p, "exactness"), cli_text(p, "doc"));
    json_array_foreach(json_object_get(p, "options"), k, s)
        printf("    %-18s %-12s %s%s%s\n", cli_text(s, "name"), cli_text(s, "default"),
               cli_text(s, "doc"), cli_text(s, "range")[0] != '\0' ? "; " : "",
               cli_text(s, "range"));
}

static void show_report(const json_t *p)
{
    size_t k;
    json_t *s;
    printf("%-13s found %4lld  applied %4lld", cli_text(p, "name"), (long long)cli_real(p, "found"),
           (long long)cli_real(p, "applied"));
    if (cli_real(p, "peak_before_bytes") > 0)
        printf("  peak %s -> %s  saved %s", cli_bytes_of(p, "peak_before_bytes"),
               cli_bytes_of(p, "peak_after_bytes"), cli_bytes_of(p, "saved_bytes"));
    printf("  (%s)\n", time_of(p, "ns"));
    json_array_foreach(json_object_get(p, "skipped"), k, s) {
        const char *site = json_string_value(json_array_get(json_object_get(s, "nodes"), 0));
        printf("    skipped %lld: %s%s%s%s\n", (long long)cli_real(s, "count"),
               cli_text(s, "reason"), site != NULL ? " (" : "", site != NULL ? site : "",
               site != NULL ? ")" : "");
    }
    json_array_foreach(json_object_get(p, "notes"), k, s)
        printf("    %s\n", json_string_value(s));
}

/* A technique was asked for, and says so too where it found nothing; the others run in every step. */
static bool says_nothing(const json_t *p)
{
    return cli_real(p, "found") == 0 && json_array_size(json_object_get(p, "notes")) == 0 &&
           (json_is_true(json_object_get(p, "tidies")) ||
            strcmp(cli_text(p, "exactness"), "makes") == 0);
}

/* Both the descriptors (help passes) and the reports of a rewrite. */
void cli_show_passes(const json_t *o)
{
    const bool verbose = json_is_true(json_object_get(o, "verbose"));
    size_t i, left_out = 0;
    json_t *p;
    json_array_foreach(json_object_get(o, "passes"), i, p) {
        if (json_object_get(p, "doc") != NULL)
            show_descriptor(p);
        else if (verbose || !says_nothing(p))
            show_report(p);
        else
            left_out++;
    }
    if (left_out > 0)
        printf("%zu passes that run in every step found nothing (-v shows them)\n", left_out);
    json_array_foreach(json_object_get(o, "presets"), i, p)
        printf("%-14s preset    %s\n    %s\n", cli_text(p, "name"), cli_text(p, "doc"),
               cli_text(p, "stands_for"));
}

static void show_categories(const json_t *plan)
{
    const char *name;
    json_t *bytes;
    double peak = cli_real(plan, "peak_bytes");
    json_object_foreach(json_object_get(plan, "categories"), name, bytes) {
        char text[32];
        double b = json_number_value(bytes);
        if (b > 0)
            printf("  %-16s %12s %5.1f %%\n", name, cli_bytes(text, b), 100 * b / peak);
    }
}

/* What the passes had to say, without those that make the step. */
static void show_notes(const json_t *o)
{
    size_t i, k;
    json_t *p, *note;
    json_array_foreach(json_object_get(o, "passes"), i, p) {
        if (strcmp(cli_text(p, "exactness"), "makes") == 0)
            continue;
        json_array_foreach(json_object_get(p, "notes"), k, note)
            printf("%-6s %s\n", cli_text(p, "name"), json_string_value(note));
    }
}

/* What goes over the bus and back, since the device has no kernel for it. */
static void show_host_work(const json_t *o)
{
    const char *op, *before = "the CPU computes what the device has no kernel for: ";
    json_t *count;
    json_object_foreach(json_object_get(o, "on_host"), op, count) {
        printf("%s%s (%lld)", before, op, (long long)json_integer_value(count));
        before = ", ";
    }
    if (json_object_get(o, "on_host") != NULL)
        printf("\n");
}

void cli_show_plan(const json_t *o)
{
    size_t i;
    json_t *t;
    show_notes(o);
    printf("peak   %s at %s\n", cli_bytes_of(o, "peak_bytes"), cli_text(o, "peak_node"));
    printf("arena  %s (%.2f %% above the bound)\n", cli_bytes_of(o, "arena_bytes"),
           100 * (cli_real(o, "arena_bytes") / cli_real(o, "lower_bound_bytes") - 1));
    printf("saved  %s kept by forward for backward\n", cli_bytes_of(o, "saved_bytes"));
    json_array_foreach(json_object_get(o, "places"), i, t)
        if (strcmp(cli_text(t, "place"), "mapped") == 0)
            printf("mapped %s, read in the model's file\n", cli_bytes_of(t, "bytes"));
        else
            printf("%-6s %s, most at %s\n", cli_text(t, "place"), cli_bytes_of(t, "bytes"),
                   cli_text(t, "peak_node"));
    printf("at the peak\n");
    show_categories(o);
    json_array_foreach(json_object_get(o, "peak_tensors"), i, t)
        if (i < 10)
            printf("  %12s  %-10s %s\n", cli_bytes_of(t, "bytes"), cli_text(t, "category"),
                   cli_text(t, "name"));
    cli_show_curve(o);
    cli_show_neighbourhood(o);
    printf("%lld nodes, %.3g GFLOP, planned %s a step\n", (long long)cli_real(o, "nodes"),
           cli_real(o, "flops") / 1e9, time_of(o, "planned_ns"));
    show_host_work(o);
    if (json_object_get(o, "measured_arena_bytes") != NULL)
        printf("measured arena %s, step %s\n", cli_bytes_of(o, "measured_arena_bytes"),
               time_of(o, "step_ns"));
    cli_show_device(cli_real(o, "arena_bytes"), cli_real(o, "device_bytes"),
                    cli_real(o, "process_bytes"));
}

void cli_show_device(double planned, double allocated, double process)
{
    char a[32], b[32], c[32], d[32];
    if (allocated == 0)
        return;
    printf("on the device: planned %s, allocated %s", cli_bytes(a, planned),
           cli_bytes(b, allocated));
    if (process > 0)
        printf(", the process %s, of it unaccounted %s", cli_bytes(c, process),
               cli_bytes(d, process - allocated));
    printf("\n");
}

void cli_show_profile(const json_t *o)
{
    size_t i;
    json_t *p;
    printf("%-34s %6s %12s %9s %9s\n", "operator", "calls", "time", "GFLOP/s", "GB/s");
    json_array_foreach(json_object_get(o, "operators"), i, p)
        printf("%-34s %6lld %12s %9.1f %9.1f\n", cli_text(p, "op"), (long long)cli_real(p, "calls"),
               time_of(p, "ns"), cli_real(p, "gflops_per_s"), cli_real(p, "gb_per_s"));
}

/* The share of the step that the quick times of its nodes add up to shows how quiet it was. */
void cli_show_bench(const json_t *o)
{
    size_t i;
    json_t *p;
    printf("%-40s %6s %6s %12s %10s\n", "step", "nodes", "steps", "time", "in nodes");
    json_array_foreach(json_object_get(o, "steps"), i, p) {
        double step = cli_real(p, "step_ns");
        printf("%-40s %6lld %6lld %12s %8.1f %%\n", cli_text(p, "model"),
               (long long)cli_real(p, "nodes"), (long long)cli_real(p, "steps"),
               time_of(p, "step_ns"), step > 0 ? 100 * cli_real(p, "nodes_ns") / step : 0);
    }
    printf("%-40s %8s %9s %9s %9s %8s\n", "operator", "measured", "fixed us", "GFLOP/s", "GB/s",
           "off by");
    json_array_foreach(json_object_get(o, "rates"), i, p) {
        double flop = cli_real(p, "ns_per_flop"), byte = cli_real(p, "ns_per_byte");
        printf("%-40s %8lld %9.1f %9.1f %9.1f %6.1f %%\n", cli_text(p, "family"),
               (long long)cli_real(p, "entries"), cli_real(p, "fixed_ns") / 1e3,
               flop > 0 ? 1 / flop : 0, byte > 0 ? 1 / byte : 0, 100 * cli_real(p, "error"));
    }
    const json_t *disk = json_object_get(o, "disk");
    static const char *const ways[] = {"store", "fetch"};
    for (i = 0; disk != NULL && i < 2; i++) {
        p = json_object_get(disk, ways[i]);
        printf("disk, %s: %.2f GB/s, beside a step %.2f; a GB keeps a processor busy for %.3f s "
               "and makes "
               "the step longer by %.3f s\n",
               ways[i], 1 / cli_real(p, "alone_ns"), 1 / cli_real(p, "beside_ns"),
               cli_real(p, "processor_ns"), cli_real(p, "taken_ns"));
    }
    printf("%lld signatures, %zu operators, %lld threads: %s\n", (long long)cli_real(o, "entries"),
           json_array_size(json_object_get(o, "rates")), (long long)cli_real(o, "threads"),
           cli_text(o, "path"));
}

void cli_show_pack(const json_t *o)
{
    double height = cli_real(o, "height_bytes"), least = cli_real(o, "least_bytes");
    printf("height %.0f bytes (%s), %lld intervals\n", height, cli_bytes_of(o, "height_bytes"),
           (long long)cli_real(o, "intervals"));
    printf("bound  %.0f bytes alive at once: ratio %.4f\n", cli_real(o, "lower_bound_bytes"),
           cli_real(o, "ratio"));
    if (json_is_true(json_object_get(o, "proven")))
        printf("proven: no packing is lower\n");
    else if (least > cli_real(o, "lower_bound_bytes"))
        printf("not proven to be the lowest: none is below %.0f\n", least);
    else
        printf("not proven to be the lowest\n");
    printf("by     %s, in %s\n", cli_text(o, "method"), time_of(o, "ns"));
}
