/* text_print.c: graphs, functions and models as ONNX text.
 *
 * What this writes, onnx.parser and our reader read. What the syntax has no place for stands in
 * comments: types of values inside the graph, phases, passes, update bindings. The bytes of tensors
 * with more than 64 elements are left out, and such a text reads back as a skeleton.
 */
#include "onnx/file/file.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "onnx/text/text.h"
#include "onnx/words/print.h"

enum { ELEMENTS_SHOWN = 64 };

typedef struct writer {
    char *text;
    size_t count, capacity;
    bool failed; // out of memory: asked once, at the end
    const ebb_model *model;
} writer;

static void put_bytes(writer *w, const char *bytes, size_t count)
{
    if (w->failed)
        return;
    if (w->capacity - w->count <= count) {
        size_t wanted = (w->count + count + 1) * 2;
        char *longer = ebb_realloc(w->text, wanted);
        if (longer == NULL) {
            w->failed = true;
            return;
        }
        w->text = longer;
        w->capacity = wanted;
    }
    memcpy(w->text + w->count, bytes, count);
    w->count += count;
    w->text[w->count] = '\0';
}

static void put(writer *w, const char *text)
{
    put_bytes(w, text, strlen(text));
}

static void putf(writer *w, const char *format, ...) EBB_PRINTF(2, 3);
static void putf(writer *w, const char *format, ...)
{
    char text[128];
    va_list list;
    va_start(list, format);
    ebb_vsnprintf(text, sizeof text, format, list);
    va_end(list);
    put(w, text);
}

static void indent(writer *w, int depth)
{
    for (int i = 0; i < depth; i++)
        put(w, "   ");
}

/* ---- words ---- */

static void put_quoted(writer *w, const char *text, size_t bytes)
{
    put(w, "\"");
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '"' || text[i] == '\\')
            put(w, "\\");
        if (text[i] == '\0')
            put(w, "\\0");
        else
            put_bytes(w, text + i, 1);
    }
    put(w, "\"");
}

static bool is_identifier(const char *text)
{
    const char *letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
    size_t more = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
    return text[0] != '\0' && strchr(letters, text[0]) != NULL && text[more] == '\0';
}

/* A name so that it reads back as itself. */
static void put_name(writer *w, const char *name)
{
    bool plain = is_identifier(name) && !ebb_text_is_type_word(name) && strcmp(name, "inf") != 0 &&
                 strcmp(name, "nan") != 0;
    if (plain)
        put(w, name);
    else
        put_quoted(w, name, strlen(name));
}

static void put_str(writer *w, ebb_str s)
{
    put_name(w, ebb_names_text(&w->model->names, s));
}

/* ai.ebb.PackSign: the domain stays as it is where its parts are identifiers. */
static void put_op(writer *w, ebb_str domain, ebb_str op_name, ebb_str overload)
{
    const char *text = ebb_names_text(&w->model->names, domain);
    bool start = true, plain = true;
    for (const char *c = text; *c != '\0'; c++) {
        bool digit = *c >= '0' && *c <= '9';
        char one[2] = {*c, '\0'};
        if (*c == '.')
            plain = plain && !start;
        else
            plain = plain && (is_identifier(one) || (digit && !start));
        start = *c == '.';
    }
    if (text[0] != '\0') {
        if (plain && !start)
            put(w, text);
        else
            put_quoted(w, text, strlen(text));
        put(w, ".");
    }
    put_str(w, op_name);
    if (overload.i != 0) {
        put(w, ":");
        put_str(w, overload);
    }
}

/* ---- numbers: the shortest text that reads back as the same number ---- */

static void put_number(writer *w, double x, bool is_double, bool point)
{
    char text[48];
    if (isnan(x) || isinf(x)) {
        put(w, isnan(x) ? "nan" : x < 0 ? "-inf" : "inf");
        return;
    }
    int most = is_double ? 17 : 9;
    for (int digits = is_double ? 15 : 6; digits <= most; digits++) {
        ebb_snprintf(text, sizeof text, "%.*g", digits, x);
        double back = ebb_strtod(text, NULL);
        if (is_double ? back >= x && back <= x : (float)back >= (float)x && (float)back <= (float)x)
            break;
    }
    put(w, text);
    if (point && strpbrk(text, ".e") == NULL)
        put(w, ".0");
}

static uint64_t word_at(const unsigned char *data, unsigned bits, int64_t i)
{
    uint64_t word = 0;
    if (bits < 8) {
        size_t bit = (size_t)i * bits;
        return (uint64_t)(data[bit / 8] >> (bit % 8)) & ((1U << bits) - 1);
    }
    for (unsigned k = 0; k < bits / 8; k++)
        word |= (uint64_t)data[(size_t)i * (bits / 8) + k] << (8 * k);
    return word;
}

static void put_element(writer *w, const ebb_tensor *t, int64_t i)
{
    ebb_dtype dtype = (ebb_dtype)t->type.dtype;
    unsigned bits = ebb_dtype_bits(dtype);
    bool is_signed = dtype == EBB_I8 || dtype == EBB_I16 || dtype == EBB_I32 || dtype == EBB_I64 ||
                     dtype == EBB_I4 || dtype == EBB_I2;
    uint64_t word = word_at(t->data, bits, i);
    if (dtype == EBB_F32 || dtype == EBB_F64) {
        put_number(w, ebb_tensor_double(t, i), dtype == EBB_F64, false);
    } else if (is_signed) {
        uint64_t sign = UINT64_C(1) << (bits - 1);
        bool negative = (word & sign) != 0;
        uint64_t size = negative ? (~word & (sign - 1)) + 1 : word;
        putf(w, "%s%" PRIu64, negative ? "-" : "", size);
    } else { // unsigned, bool, and the bits of halves, as onnx.parser takes them
        putf(w, "%" PRIu64, word);
    }
}

/* ---- types and tensors ---- */

static void put_type(writer *w, const ebb_type *type)
{
    const char *around = type->kind == EBB_KIND_SEQUENCE   ? "seq("
                         : type->kind == EBB_KIND_OPTIONAL ? "optional("
                                                           : "";
    put(w, around);
    put(w, ebb_dtype_onnx_name((ebb_dtype)type->dtype));
    if (type->rank < 0)
        put(w, "[]");
    for (int i = 0; i < type->rank; i++) {
        const char *symbol = ebb_names_text(&w->model->names, type->symbols[i]);
        put(w, i == 0 ? "[" : ",");
        if (type->dims[i] >= 0)
            putf(w, "%" PRId64, type->dims[i]);
        else if (symbol[0] == '\0')
            put(w, "?");
        else if (is_identifier(symbol))
            put(w, symbol);
        else
            put_quoted(w, symbol, strlen(symbol));
    }
    if (type->rank > 0)
        put(w, "]");
    if (around[0] != '\0')
        put(w, ")");
}

static bool type_has_text(const ebb_type *type)
{
    return type->kind != EBB_KIND_UNKNOWN && type->kind != EBB_KIND_OTHER &&
           type->dtype != EBB_NONE && type->dtype < EBB_DTYPE_COUNT;
}

static bool is_shown(const ebb_tensor *t)
{
    int64_t count;
    unsigned bits = ebb_dtype_bits((ebb_dtype)t->type.dtype);
    return t->data != NULL && bits > 0 && bits <= 64 && ebb_type_elements(&t->type, &count) &&
           count <= ELEMENTS_SHOWN;
}

/* {1,2,3}, or {} where the elements are not shown. */
static void put_elements(writer *w, const ebb_tensor *t)
{
    int64_t count = 0;
    put(w, "{");
    if (is_shown(t) && ebb_type_elements(&t->type, &count))
        for (int64_t i = 0; i < count; i++) {
            put(w, i == 0 ? "" : ",");
            put_element(w, t, i);
        }
    put(w, "}");
}

/* "float[3] x", or "x" where there is no type to write. */
static void put_value(writer *w, const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    if (type_has_text(info->type)) {
        put_type(w, info->type);
        put(w, " ");
    }
    put_str(w, info->name);
}

/* ---- attributes ---- */

static void put_graph(writer *w, const ebb_graph *g, int depth);

const char *ebb_text_attr_word(ebb_attr_type type)
{
    static const char *const names[] = {"undefined", "float",   "int",    "string",
                                        "tensor",    "graph",   "floats", "ints",
                                        "strings",   "tensors", "graphs"};
    return (size_t)type < sizeof names / sizeof *names ? names[type] : NULL;
}

/* Whether the syntax can say it, and the reader reads it. */
static bool attr_has_text(const ebb_attr *a)
{
    if (a->ref != NULL)
        return ebb_text_attr_word(a->type) != NULL;
    return a->type > EBB_ATTR_UNDEFINED && a->type <= EBB_ATTR_GRAPHS &&
           a->type != EBB_ATTR_TENSORS && (a->type != EBB_ATTR_TENSOR || a->tensor != NULL);
}

static void put_attr_list(writer *w, const ebb_attr *a, int depth)
{
    put(w, "[");
    for (uint32_t i = 0; i < a->count; i++) {
        put(w, i == 0 ? "" : ", ");
        if (a->type == EBB_ATTR_FLOATS)
            put_number(w, (double)a->floats[i], false, true);
        else if (a->type == EBB_ATTR_INTS)
            putf(w, "%" PRId64, a->ints[i]);
        else if (a->type == EBB_ATTR_STRINGS)
            put_quoted(w, a->strings[i], strlen(a->strings[i]));
        else
            put_graph(w, a->graphs[i], depth);
    }
    put(w, "]");
}

static void put_attr_value(writer *w, const ebb_attr *a, int depth)
{
    switch (a->type) {
    case EBB_ATTR_FLOAT:
        put_number(w, a->f, false, true);
        break;
    case EBB_ATTR_INT:
        putf(w, "%" PRId64, a->i);
        break;
    case EBB_ATTR_STRING:
        put_quoted(w, a->s, a->s_bytes);
        break;
    case EBB_ATTR_TENSOR:
        put_type(w, &a->tensor->type);
        put(w, " ");
        put_elements(w, a->tensor);
        break;
    case EBB_ATTR_GRAPH:
        put_graph(w, a->graphs[0], depth);
        break;
    default:
        put_attr_list(w, a, depth);
        break;
    }
}

static void put_attr(writer *w, const ebb_attr *a, int depth)
{
    bool empty = a->type >= EBB_ATTR_FLOATS && a->count == 0;
    put_name(w, a->name);
    if ((a->ref != NULL && a->type != EBB_ATTR_UNDEFINED) || empty)
        putf(w, ": %s", ebb_text_attr_word(a->type)); // nothing in the value tells the type
    put(w, " = ");
    if (a->ref != NULL) {
        put(w, "@");
        put_name(w, a->ref);
        return;
    }
    put_attr_value(w, a, depth);
}

/* ---- nodes ---- */

static void put_operands(writer *w, const ebb_graph *g, const ebb_value *list, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        put(w, i == 0 ? "" : ", ");
        put_str(w, ebb_value_of(g, list[i])->name);
    }
}

/* A comment's text must not end the line that it stands on. */
static void put_comment_word(writer *w, const char *before, const char *word)
{
    put(w, before);
    for (; *word != '\0'; word++)
        put_bytes(w, *word == '\n' || *word == '\r' ? " " : word, 1);
}

/* "# float[2,3]; backward; sign-mask; over input 0" */
static void put_node_comment(writer *w, const ebb_graph *g, const ebb_node_info *n)
{
    static const char *const phases[] = {NULL, "forward", "loss", "backward", "update"};
    const char *comma = "  # ", *pass = ebb_props_get(g, &n->props, "ebb.pass");
    for (uint32_t i = 0; i < n->out_count; i++) {
        const ebb_value_info *out = ebb_value_of(g, n->out[i]);
        if (n->out[i].i == 0 || !type_has_text(out->type) || (out->flags & EBB_IS_OUTPUT) != 0)
            continue;
        writer type = {.model = w->model};
        put_type(&type, out->type);
        w->failed |= type.failed;
        put_comment_word(w, comma, type.text != NULL ? type.text : "");
        ebb_free(type.text);
        comma = ", ";
    }
    if (comma[0] == ',')
        comma = "; ";
    if (n->phase > 0 && n->phase < sizeof phases / sizeof *phases) {
        put_comment_word(w, comma, phases[n->phase]);
        comma = "; ";
    }
    if (pass != NULL) {
        put_comment_word(w, comma, pass);
        comma = "; ";
    }
    for (uint32_t i = 0; i < n->out_count; i++) {
        const uint32_t over = ebb_value_of(g, n->out[i])->over;
        if (over != 0) {
            putf(w, "%soutput %" PRIu32 " over input %" PRIu32, comma, i, over - 1);
            comma = "; ";
        }
    }
    if (n->tile_rows != 0) {
        putf(w, "%sread by %lld rows", comma, (long long)n->tile_rows);
        comma = "; ";
    }
    for (uint32_t i = 0; i < n->attr_count; i++) {
        const ebb_attr *a = &n->attr[i];
        if (!attr_has_text(a)) {
            put_comment_word(w, comma, "attribute not shown: ");
            put_comment_word(w, "", a->name);
        } else if (a->type == EBB_ATTR_TENSOR && a->ref == NULL && !is_shown(a->tensor)) {
            put_comment_word(w, comma, "");
            putf(w, "%zu bytes not shown", a->tensor->bytes);
        } else {
            continue;
        }
        comma = "; ";
    }
}

static void put_node(writer *w, const ebb_graph *g, const ebb_node_info *n, int depth)
{
    indent(w, depth);
    if (n->name.i != 0) {
        put(w, "[");
        put_str(w, n->name);
        put(w, "] ");
    }
    put_operands(w, g, n->out, n->out_count);
    put(w, n->out_count > 0 ? " = " : "= ");
    put_op(w, n->domain, n->op_name, n->overload);
    const char *before = " <";
    for (uint32_t i = 0; i < n->attr_count; i++) {
        if (!attr_has_text(&n->attr[i]))
            continue;
        put(w, before);
        put_attr(w, &n->attr[i], depth);
        before = ", ";
    }
    put(w, before[0] == ',' ? "> (" : " (");
    put_operands(w, g, n->in, n->in_count);
    put(w, ")");
    put_node_comment(w, g, n);
    put(w, "\n");
}

/* ---- graphs ---- */

static void put_list(writer *w, const ebb_graph *g, const ebb_value *list, size_t count)
{
    put(w, "(");
    for (size_t i = 0; i < count; i++) {
        put(w, i == 0 ? "" : ", ");
        put_value(w, g, list[i]);
    }
    put(w, ")");
}

static void put_initializers(writer *w, const ebb_graph *g, int depth)
{
    if (g->initializer_count == 0)
        return;
    indent(w, depth);
    put(w, "<\n");
    for (size_t i = 0; i < g->initializer_count; i++) {
        const ebb_value_info *info = ebb_value_of(g, g->initializers[i]);
        const ebb_tensor *t = info->tensor;
        indent(w, depth + 1);
        put_type(w, &t->type);
        put(w, " ");
        put_str(w, info->name);
        bool bare = !is_shown(t);
        if (!bare || (info->flags & (EBB_IS_INPUT | EBB_IS_OUTPUT)) != 0) {
            put(w, " = ");
            put_elements(w, t);
        }
        put(w, i + 1 < g->initializer_count ? "," : "");
        if (bare)
            putf(w, "  # %zu bytes%s", t->bytes, t->data == NULL ? ", missing" : "");
        put(w, "\n");
    }
    indent(w, depth);
    put(w, ">\n");
}

/* "{ nodes }" */
static void put_nodes(writer *w, const ebb_graph *g, int depth)
{
    put(w, "{\n");
    EBB_EACH_NODE(g, n)
        put_node(w, g, ebb_node_of(g, n), depth + 1);
    for (size_t i = 0; i < g->binding_count; i++) {
        indent(w, depth + 1);
        put_comment_word(w, "# the step: ", ebb_value_name(g, g->bindings[i].state));
        put_comment_word(w, " <- ", ebb_value_name(g, g->bindings[i].next));
        put(w, "\n");
    }
    indent(w, depth);
    put(w, "}");
}

static void put_graph(writer *w, const ebb_graph *g, int depth)
{
    put_str(w, g->name);
    put(w, " ");
    put_list(w, g, g->inputs, g->input_count);
    put(w, " => ");
    put_list(w, g, g->outputs, g->output_count);
    put(w, g->initializer_count > 0 ? "\n" : " ");
    put_initializers(w, g, depth);
    if (g->initializer_count > 0)
        indent(w, depth);
    put_nodes(w, g, depth);
}

/* ---- functions and models ---- */

static void put_imports(writer *w, const ebb_import *imports, size_t count)
{
    put(w, "opset_import: [");
    for (size_t i = 0; i < count; i++) {
        const char *domain = ebb_names_text(&w->model->names, imports[i].domain);
        put(w, i == 0 ? "" : ", ");
        put_quoted(w, domain, strlen(domain));
        putf(w, " : %" PRId64, imports[i].version);
    }
    put(w, "]");
}

static void put_name_list(writer *w, const ebb_graph *g, const ebb_value *list, size_t count)
{
    put(w, "(");
    put_operands(w, g, list, (uint32_t)count);
    put(w, ")");
}

static void put_function(writer *w, const ebb_function *f)
{
    const char *domain = ebb_names_text(&w->model->names, f->domain);
    put(w, "<\n   domain: ");
    put_quoted(w, domain, strlen(domain));
    put(w, ",\n   ");
    put_imports(w, f->imports, f->import_count);
    if (f->overload.i != 0) {
        const char *overload = ebb_names_text(&w->model->names, f->overload);
        put(w, ",\n   overload: ");
        put_quoted(w, overload, strlen(overload));
    }
    put(w, "\n>\n");
    put_str(w, f->name);
    put(w, " ");
    const char *before = "<";
    for (size_t i = 0; i < f->attr_count; i++, before = ", ") {
        put(w, before);
        put_str(w, f->attrs[i]);
    }
    for (size_t i = 0; i < f->default_count; i++) {
        const ebb_attr *a = &f->defaults[i];
        if (!attr_has_text(a))
            continue;
        put(w, before);
        put_name(w, a->name);
        putf(w, ": %s = ", ebb_text_attr_word(a->type)); // onnx.parser asks for the type here
        put_attr_value(w, a, 0);
        before = ", ";
    }
    put(w, before[0] == ',' ? "> " : "");
    put_name_list(w, f->body, f->body->inputs, f->body->input_count);
    put(w, " => ");
    put_name_list(w, f->body, f->body->outputs, f->body->output_count);
    put(w, "\n");
    put_initializers(w, f->body, 0);
    put_nodes(w, f->body, 0);
    put(w, "\n");
}

static ebb_status hand_over(writer *w, char **text)
{
    if (w->failed) {
        ebb_free(w->text);
        return ebb_error_memory();
    }
    *text = w->text;
    return NULL;
}

ebb_status ebb_text_print(char **text, const ebb_graph *g)
{
    writer w = {.model = g->model};
    put_graph(&w, g, 0);
    put(&w, "\n");
    return hand_over(&w, text);
}

ebb_status ebb_text_print_model(char **text, const ebb_model *model)
{
    writer w = {.model = model};
    putf(&w, "<\n   ir_version: %" PRId64 ",\n   ", model->ir_version);
    put_imports(&w, model->imports, model->import_count);
    const char *before = ",\n   metadata_props: [";
    EBB_EACH_PROP(&model->props, p) {
        const char *key = ebb_names_text(&model->names, p->key);
        const char *value = ebb_names_text(&model->names, p->value);
        put(&w, before);
        before = ", ";
        put_quoted(&w, key, strlen(key));
        put(&w, ": ");
        put_quoted(&w, value, strlen(value));
    }
    put(&w, ebb_props_count(&model->props) > 0 ? "]\n>\n" : "\n>\n");
    put_graph(&w, model->graph, 0);
    put(&w, "\n");
    for (size_t i = 0; i < model->function_count; i++)
        put_function(&w, &model->functions[i]);
    return hand_over(&w, text);
}
