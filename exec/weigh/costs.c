/* costs.c: measured costs, kept by signature; as a file; by node. */
#include "exec/weigh/costs.h"

#include "exec/weigh/node_time.h"
#include "exec/json.h"
#include "onnx/graph/infer.h"
#include "onnx/words/map.h"
#include "onnx/file/sink.h"
#include "onnx/words/print.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

static const char schema[] = "ebb.costs/1";

/* ---- signatures ---- */

/* Text that may be cut: then its end is a hash of the whole. */
typedef struct text {
    char *at;
    size_t length;
    uint64_t hash;
} text;

static void put(text *t, const char *word)
{
    for (; *word != '\0'; word++) {
        unsigned char c = (unsigned char)*word;
        t->hash = (t->hash ^ c) * UINT64_C(0x100000001B3);
        if (t->length < EBB_SIGNATURE_BYTES - 1)
            t->at[t->length] = (char)(c >= 32 && c < 127 ? c : '?');
        t->length++;
    }
}

static text begin(char *at)
{
    return (text){.at = at, .hash = UINT64_C(0xCBF29CE484222325)};
}

static const char *end(text *t)
{
    size_t last = EBB_SIGNATURE_BYTES - 1;
    if (t->length > last)
        (void)snprintf(t->at + last - 17, 18, "#%016llx", (unsigned long long)t->hash);
    t->at[t->length < last ? t->length : last] = '\0';
    return t->at;
}

static void put_name(text *t, const ebb_graph *g, const ebb_node_info *node)
{
    const char *domain = ebb_text(g, node->domain);
    if (domain[0] != '\0' && strcmp(domain, "ai.onnx") != 0) {
        put(t, domain);
        put(t, ".");
    }
    put(t, ebb_text(g, node->op_name));
}

static void put_value(text *t, const ebb_graph *g, ebb_value v)
{
    enum { MOST = 16 };
    char word[256];
    if (v.i == 0) {
        put(t, "_");
        return;
    }
    const ebb_type *type = ebb_value_of(g, v)->type;
    put(t, ebb_type_print(word, sizeof word, type, NULL));
    const ebb_tensor *constant = type->dtype == EBB_I64 ? ebb_value_constant(g, v) : NULL;
    int64_t count = 0;
    if (constant == NULL || constant->data == NULL || !ebb_type_elements(&constant->type, &count) ||
        count > MOST || constant->bytes != (size_t)count * sizeof count)
        return;
    put(t, "=");
    for (int64_t i = 0; i < count; i++) {
        (void)snprintf(word, sizeof word, "%s%lld", i > 0 ? "," : "",
                       (long long)ebb_tensor_int(constant, i));
        put(t, word);
    }
}

static void put_values(text *t, const ebb_graph *g, const ebb_value *list, uint32_t count)
{
    put(t, "(");
    for (uint32_t i = 0; i < count; i++) {
        put(t, i > 0 ? "," : "");
        put_value(t, g, list[i]);
    }
    put(t, ")");
}

static void put_attr(text *t, const ebb_attr *a)
{
    char word[64];
    put(t, a->name);
    put(t, "=");
    if (a->type == EBB_ATTR_INT)
        (void)snprintf(word, sizeof word, "%lld", (long long)a->i);
    else if (a->type == EBB_ATTR_FLOAT)
        (void)ebb_snprintf(word, sizeof word, "%.9g", a->f);
    else
        (void)snprintf(word, sizeof word, "%s",
                       a->type == EBB_ATTR_STRING || a->type == EBB_ATTR_INTS ? "" : "...");
    put(t, word);
    if (a->type == EBB_ATTR_STRING && a->s != NULL)
        put(t, a->s);
    for (uint32_t i = 0; a->type == EBB_ATTR_INTS && i < a->count; i++) {
        (void)snprintf(word, sizeof word, "%s%lld", i > 0 ? "," : "", (long long)a->ints[i]);
        put(t, word);
    }
}

/* The attribute with the least name above `above`, without those that only choose random numbers.
 */
static const ebb_attr *next_attr(const ebb_node_info *node, const char *above)
{
    const ebb_attr *next = NULL;
    for (uint32_t i = 0; i < node->attr_count; i++) {
        const ebb_attr *a = &node->attr[i];
        if (strcmp(a->name, above) > 0 && (next == NULL || strcmp(a->name, next->name) < 0) &&
            strcmp(a->name, "seed") != 0 && strcmp(a->name, "stream") != 0)
            next = a;
    }
    return next;
}

const char *ebb_cost_signature(char at[EBB_SIGNATURE_BYTES], const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *node = ebb_node_of(g, n);
    text t = begin(at);
    put_name(&t, g, node);
    put_values(&t, g, node->in, node->in_count);
    put(&t, "->");
    put_values(&t, g, node->out, node->out_count);
    put(&t, "{");
    const ebb_attr *first = next_attr(node, "");
    for (const ebb_attr *a = first; a != NULL; a = next_attr(node, a->name)) {
        put(&t, a != first ? "," : "");
        put_attr(&t, a);
    }
    put(&t, "}");
    return end(&t);
}

static const char *cost_family(char at[EBB_SIGNATURE_BYTES], const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *node = ebb_node_of(g, n);
    ebb_dtype dtype = EBB_NONE;
    for (uint32_t i = 0; i < node->out_count && !ebb_dtype_is_float(dtype); i++)
        if (node->out[i].i != 0)
            dtype = (ebb_dtype)ebb_value_of(g, node->out[i])->type->dtype;
    text t = begin(at);
    put_name(&t, g, node);
    put(&t, " ");
    put(&t, ebb_dtype_name(dtype));
    return end(&t);
}

/* ---- the machine ---- */

const char *ebb_processor_name(char at[128])
{
    char line[256];
    (void)snprintf(at, 128, "unknown");
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || colon == NULL)
            continue;
        colon += 1 + strspn(colon + 1, " \t");
        size_t length = strcspn(colon, "\n"), i = 0;
        for (; i < length && i < 127; i++)
            at[i] = (char)(colon[i] >= 32 && colon[i] < 127 ? colon[i] : '?');
        at[i] = '\0';
        break;
    }
    if (file != NULL)
        (void)fclose(file);
    return at;
}

/* ---- entries ---- */

static ebb_status make(ebb_costs **costs)
{
    ebb_costs *c = *costs = ebb_alloc(sizeof *c);
    EBB_GOT(c);
    *c = (ebb_costs){.processor = "unknown", .backend = "cpu"};
    EBB_GOT(ebb_names_init(&c->signatures, &c->arena) && ebb_names_init(&c->families, &c->arena));
    return NULL;
}

void ebb_costs_free(ebb_costs *costs)
{
    if (costs == NULL)
        return;
    ebb_arena_fini(&costs->arena);
    ebb_free(costs);
}

static ebb_status keep_or_free(ebb_costs **costs, ebb_status status)
{
    if (status != NULL) {
        ebb_costs_free(*costs);
        *costs = NULL;
    }
    return status;
}

static ebb_status fill_machine(ebb_costs *c, const char *backend, int threads)
{
    char name[128];
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    c->processors = processors > 0 && processors < 1 << 20 ? (int)processors : 1;
    c->threads = threads > 0 ? threads : c->processors;
    c->processor = ebb_arena_strdup(&c->arena, ebb_processor_name(name));
    c->backend = ebb_arena_strdup(&c->arena, backend);
    return c->processor != NULL && c->backend != NULL ? NULL : ebb_error_memory();
}

ebb_status ebb_costs_new(ebb_costs **costs, const char *backend, int threads)
{
    ebb_status status = make(costs);
    if (status == NULL)
        status = fill_machine(*costs, backend, threads);
    return keep_or_free(costs, status);
}

static ebb_cost_entry *find_entry(const ebb_costs *c, const char *signature)
{
    ebb_str id = ebb_names_find(&c->signatures, signature);
    return id.i != 0 ? &c->entries[id.i - 1] : NULL;
}

static ebb_status add_entry(ebb_costs *c, const ebb_cost_entry *e)
{
    EBB_GOT(ebb_arena_grow(&c->arena, &c->entries, c->entry_count, &c->entry_capacity,
                           sizeof *c->entries));
    ebb_cost_entry *to = &c->entries[c->entry_count];
    *to = *e;
    to->signature = ebb_arena_strdup(&c->arena, e->signature);
    to->family = ebb_arena_strdup(&c->arena, e->family);
    EBB_GOT(to->signature && to->family);
    ebb_str id = ebb_names_intern(&c->signatures, e->signature, strlen(e->signature));
    EBB_GOT(id.i != 0);
    c->entry_count++;
    return NULL;
}

ebb_status ebb_costs_add(ebb_costs *costs, const ebb_graph *g, ebb_node n, double ns)
{
    char signature[EBB_SIGNATURE_BYTES], family[EBB_SIGNATURE_BYTES];
    ebb_cost_entry *known = find_entry(costs, ebb_cost_signature(signature, g, n));
    if (known != NULL) {
        known->ns += (ns - known->ns) / (double)++known->nodes;
        return NULL;
    }
    const ebb_cost_entry e = {
        signature, cost_family(family, g, n), ns, ebb_node_flops(g, n), ebb_node_bytes(g, n), 1};
    return add_entry(costs, &e);
}

static ebb_status fit_family(ebb_costs *c, ebb_str family, ebb_cost_sample *samples)
{
    ebb_cost_rate *rate = &c->rates[family.i - 1];
    rate->family = ebb_names_text(&c->families, family);
    size_t count = 0;
    for (size_t i = 0; i < c->entry_count; i++) {
        const ebb_cost_entry *e = &c->entries[i];
        if (strcmp(e->family, rate->family) == 0 && e->ns > 0)
            samples[count++] = (ebb_cost_sample){e->ns, e->flops, e->bytes};
    }
    return count == 0 || ebb_rate_fit(rate, samples, count) ? NULL : ebb_error_memory();
}

ebb_status ebb_costs_fit(ebb_costs *costs)
{
    ebb_costs *c = costs;
    EBB_LOCAL_ARENA(scratch);
    ebb_cost_sample *samples = EBB_NEW(scratch, ebb_cost_sample, c->entry_count + 1);
    uint32_t last = 0;
    EBB_GOT(samples && ebb_names_init(&c->families, &c->arena));
    for (size_t i = 0; i < c->entry_count; i++) {
        const char *family = c->entries[i].family;
        ebb_str id = ebb_names_intern(&c->families, family, strlen(family));
        last = id.i > last ? id.i : last;
        EBB_GOT(id.i != 0);
    }
    c->rate_count = last;
    c->rates = EBB_NEW(&c->arena, ebb_cost_rate, last + (size_t)1);
    EBB_GOT(c->rates);
    for (uint32_t f = 1; f <= last; f++)
        EBB_TRY(fit_family(c, (ebb_str){f}, samples));
    return NULL;
}

ebb_cost_source ebb_costs_of(const ebb_costs *costs, const ebb_graph *g, ebb_node n, double *ns)
{
    char word[EBB_SIGNATURE_BYTES];
    const ebb_cost_entry *e = find_entry(costs, ebb_cost_signature(word, g, n));
    if (e != NULL) {
        *ns = e->ns;
        return EBB_COST_MEASURED;
    }
    ebb_str family = ebb_names_find(&costs->families, cost_family(word, g, n));
    if (family.i == 0 || costs->rates[family.i - 1].entries == 0)
        return EBB_COST_UNKNOWN;
    *ns = ebb_rate_ns(&costs->rates[family.i - 1], ebb_node_flops(g, n), ebb_node_bytes(g, n));
    return EBB_COST_RATE;
}

/* ---- the file ---- */

/* A finite number from 0 to 1e18, whatever the file says. */
static ebb_status read_number(const json_t *o, const char *key, const char *what, size_t index,
                              double *out)
{
    const json_t *value = json_object_get(o, key);
    *out = json_number_value(value);
    if (json_is_number(value) && *out >= 0 && *out <= 1e18)
        return NULL;
    return ebb_error(EBB_REJECTED, "%s %zu: '%s' should be a number from 0 to 1e18", what, index,
                     key);
}

static ebb_status read_text(const json_t *o, const char *key, const char *what, size_t index,
                            const char **out)
{
    *out = json_string_value(json_object_get(o, key));
    if (*out != NULL && (*out)[0] != '\0' && strlen(*out) < EBB_SIGNATURE_BYTES)
        return NULL;
    return ebb_error(EBB_REJECTED, "%s %zu: '%s' should be a text of 1 to %d bytes", what, index,
                     key, EBB_SIGNATURE_BYTES - 1);
}

static ebb_status read_entry(ebb_costs *c, const json_t *o, size_t i)
{
    ebb_cost_entry e = {0};
    double nodes = 0;
    EBB_TRY(read_text(o, "signature", "entry", i, &e.signature));
    EBB_TRY(read_text(o, "family", "entry", i, &e.family));
    EBB_TRY(read_number(o, "ns", "entry", i, &e.ns));
    EBB_TRY(read_number(o, "flops", "entry", i, &e.flops));
    EBB_TRY(read_number(o, "bytes", "entry", i, &e.bytes));
    EBB_TRY(read_number(o, "nodes", "entry", i, &nodes));
    e.nodes = (uint64_t)nodes;
    if (find_entry(c, e.signature) != NULL)
        return ebb_error(EBB_REJECTED, "entry %zu: the signature '%.80s' is there twice", i,
                         e.signature);
    return add_entry(c, &e);
}

static ebb_status read_rate(ebb_costs *c, const json_t *o, size_t i)
{
    ebb_cost_rate r = {0};
    double entries = 0;
    EBB_TRY(read_text(o, "family", "rate", i, &r.family));
    EBB_TRY(read_number(o, "fixed_ns", "rate", i, &r.fixed_ns));
    EBB_TRY(read_number(o, "ns_per_flop", "rate", i, &r.ns_per_flop));
    EBB_TRY(read_number(o, "ns_per_byte", "rate", i, &r.ns_per_byte));
    EBB_TRY(read_number(o, "entries", "rate", i, &entries));
    EBB_TRY(read_number(o, "error", "rate", i, &r.error));
    r.entries = (uint64_t)entries;
    if (ebb_names_find(&c->families, r.family).i != 0)
        return ebb_error(EBB_REJECTED, "rate %zu: '%.80s' is there twice", i, r.family);
    ebb_str id = ebb_names_intern(&c->families, r.family, strlen(r.family));
    EBB_GOT(id.i != 0);
    r.family = ebb_names_text(&c->families, id);
    c->rates[c->rate_count++] = r;
    return NULL;
}

static ebb_status read_machine(ebb_costs *c, const json_t *root)
{
    double processors = 0, threads = 0;
    const char *processor, *backend;
    EBB_TRY(read_text(root, "processor", "machine", 0, &processor));
    EBB_TRY(read_text(root, "backend", "machine", 0, &backend));
    EBB_TRY(read_number(root, "processors", "machine", 0, &processors));
    EBB_TRY(read_number(root, "threads", "machine", 0, &threads));
    c->processors = processors < 1 << 20 ? (int)processors : 0;
    c->threads = threads < 1 << 20 ? (int)threads : 0;
    c->processor = ebb_arena_strdup(&c->arena, processor);
    c->backend = ebb_arena_strdup(&c->arena, backend);
    return c->processor != NULL && c->backend != NULL ? NULL : ebb_error_memory();
}

static ebb_status read_root(ebb_costs *c, const json_t *root)
{
    const char *name = json_string_value(json_object_get(root, "schema"));
    const json_t *entries = json_object_get(root, "entries"),
                 *rates = json_object_get(root, "rates");
    if (name == NULL || strcmp(name, schema) != 0)
        return ebb_hint(
            ebb_error(EBB_REJECTED, "it is no file of costs: 'schema' should be '%s'", schema),
            "`ebb bench --calibrate -o costs.json` makes one");
    if (!json_is_array(entries) || !json_is_array(rates))
        return ebb_error(EBB_REJECTED, "'entries' and 'rates' should be lists");
    EBB_TRY(ebb_costs_ways_read(c, root));
    if (json_array_size(entries) == 0 && json_array_size(rates) == 0 && !c->linked)
        return ebb_error(EBB_REJECTED, "it holds no measurement");
    EBB_TRY(read_machine(c, root));
    for (size_t i = 0; i < json_array_size(entries); i++)
        EBB_TRY(read_entry(c, json_array_get(entries, i), i));
    c->rates = EBB_NEW(&c->arena, ebb_cost_rate, json_array_size(rates) + 1);
    EBB_GOT(c->rates);
    for (size_t i = 0; i < json_array_size(rates); i++)
        EBB_TRY(read_rate(c, json_array_get(rates, i), i));
    return NULL;
}

ebb_status ebb_costs_read(ebb_costs **costs, const char *path)
{
    ebb_mapping *file = NULL;
    json_error_t error = {0};
    json_t *root = NULL;
    *costs = NULL;
    ebb_status status = ebb_mapping_open(&file, path);
    if (status == NULL && file->bytes > 0)
        root = json_loadb((const char *)file->data, file->bytes, JSON_REJECT_DUPLICATES, &error);
    if (status == NULL && root == NULL)
        status = ebb_error(EBB_REJECTED, "%s: it is not JSON: %s in line %d", path,
                           file->bytes > 0 ? error.text : "it is empty",
                           file->bytes > 0 ? error.line : 1);
    ebb_mappings_free(file);
    if (status != NULL)
        return status;
    status = make(costs);
    if (status == NULL)
        status = ebb_at(read_root(*costs, root), path);
    json_decref(root);
    return keep_or_free(costs, status);
}

static json_t *entries_json(const ebb_costs *c)
{
    json_t *list = json_array();
    for (size_t i = 0; i < c->entry_count; i++) {
        const ebb_cost_entry *e = &c->entries[i];
        (void)json_array_append_new(list, json_pack("{s:s, s:s, s:f, s:f, s:f, s:I}", "signature",
                                                    e->signature, "family", e->family, "ns", e->ns,
                                                    "flops", e->flops, "bytes", e->bytes, "nodes",
                                                    (json_int_t)e->nodes));
    }
    return list;
}

static json_t *rates_json(const ebb_costs *c)
{
    json_t *list = json_array();
    for (size_t i = 0; i < c->rate_count; i++) {
        const ebb_cost_rate *r = &c->rates[i];
        (void)json_array_append_new(
            list, json_pack("{s:s, s:f, s:f, s:f, s:I, s:f}", "family", r->family, "fixed_ns",
                            r->fixed_ns, "ns_per_flop", r->ns_per_flop, "ns_per_byte",
                            r->ns_per_byte, "entries", (json_int_t)r->entries, "error", r->error));
    }
    return list;
}

ebb_status ebb_costs_write(const ebb_costs *costs, const char *path)
{
    json_t *root = json_pack("{s:s, s:s, s:i, s:i, s:s, s:o, s:o}", "schema", schema, "processor",
                             costs->processor, "processors", costs->processors, "threads",
                             costs->threads, "backend", costs->backend, "entries",
                             entries_json(costs), "rates", rates_json(costs));
    ebb_costs_ways_write(root, costs);
    char *all = NULL;
    ebb_status status = ebb_json_dump(root, &all);
    json_decref(root);
    if (status == NULL)
        status = ebb_sink_text(path, all);
    ebb_free(all);
    return status;
}
