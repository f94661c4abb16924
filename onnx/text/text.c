/* text.c: tokens into types, tensors, attributes and single nodes.
 *
 * The grammar is that of onnx.parser. What it leaves open is settled so that every name survives:
 * a name that is no identifier, or would read as a type, stands in double quotes.
 */
#include "onnx/text/text.h"

#include "onnx/words/print.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- types ---- */

static bool is_word(const ebb_text_reader *r, const char *word)
{
    return r->token == EBB_TOKEN_NAME && strcmp(r->word, word) == 0;
}

bool ebb_text_is_type_word(const char *word)
{
    static const char *const others[] = {"seq", "optional", "map", "sparse_tensor"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(word, others[i]) == 0)
            return true;
    for (int dtype = 1; dtype < EBB_DTYPE_COUNT; dtype++)
        if (strcmp(word, ebb_dtype_onnx_name((ebb_dtype)dtype)) == 0)
            return true;
    return false;
}

bool ebb_text_at_type(const ebb_text_reader *r)
{
    return r->token == EBB_TOKEN_NAME && ebb_text_is_type_word(r->word);
}

static ebb_status read_int(ebb_text_reader *r, int64_t *value, const char *what)
{
    if (r->token != EBB_TOKEN_INT)
        return ebb_text_expected(r, what);
    bool negative = r->word[0] == '-';
    uint64_t sum = 0, limit = negative ? UINT64_C(1) << 63 : INT64_MAX;
    for (const char *c = r->word + (negative || r->word[0] == '+'); *c != '\0'; c++) {
        uint64_t digit = (uint64_t)(*c - '0');
        if (sum > (limit - digit) / 10)
            return ebb_text_error(r, "%.40s does not fit in 64 bits", r->word);
        sum = sum * 10 + digit;
    }
    *value = negative ? (int64_t)(0 - sum) : (int64_t)sum;
    return ebb_text_next(r);
}

static ebb_status read_dim(ebb_text_reader *r, ebb_type *type, int axis)
{
    type->dims[axis] = -1;
    if (ebb_text_is(r, '?'))
        return ebb_text_next(r);
    if (r->token == EBB_TOKEN_NAME || r->token == EBB_TOKEN_QUOTED) {
        if (r->model != NULL && r->word_bytes > 0) {
            type->symbols[axis] = ebb_names_intern(&r->model->names, r->word, r->word_bytes);
            EBB_GOT(type->symbols[axis].i != 0);
        }
        return ebb_text_next(r);
    }
    if (r->token == EBB_TOKEN_INT && r->word[0] == '-')
        return ebb_text_error(r, "a dimension is negative: %.40s", r->word);
    return read_int(r, &type->dims[axis], "a dimension");
}

/* Dims in brackets, if any: none is a scalar, [] an unknown rank. */
static ebb_status read_dims(ebb_text_reader *r, ebb_type *type)
{
    type->rank = 0;
    if (!ebb_text_is(r, '['))
        return NULL;
    EBB_TRY(ebb_text_next(r));
    if (ebb_text_is(r, ']')) {
        type->rank = -1;
        return ebb_text_next(r);
    }
    for (bool more = true; more;) {
        if (type->rank == EBB_MAX_RANK)
            return ebb_text_error(r, "a tensor has more than %d dimensions", (int)EBB_MAX_RANK);
        EBB_TRY(read_dim(r, type, type->rank));
        type->rank++;
        EBB_TRY(ebb_text_next_in_list(r, ']', "after the dimensions", &more));
    }
    return NULL;
}

ebb_status ebb_text_type_read(ebb_text_reader *r, ebb_type *type)
{
    *type = ebb_type_none();
    bool sequence = is_word(r, "seq");
    if (sequence || is_word(r, "optional")) {
        EBB_TRY(ebb_text_next(r));
        EBB_TRY(ebb_text_expect(r, '(', "before the element type"));
        if (is_word(r, "seq") || is_word(r, "optional") || !ebb_text_at_type(r))
            return ebb_text_expected(r, "the type of a tensor");
        EBB_TRY(ebb_text_type_read(r, type));
        if (type->kind == EBB_KIND_TENSOR)
            type->kind = sequence ? EBB_KIND_SEQUENCE : EBB_KIND_OPTIONAL;
        return ebb_text_expect(r, ')', "after the element type");
    }
    if (is_word(r, "map") || is_word(r, "sparse_tensor"))
        return ebb_text_error(r, "values of type %s are not supported", r->word);
    if (!ebb_text_at_type(r))
        return ebb_text_expected(r, "a type");
    *type = ebb_type_tensor(ebb_dtype_of_name(r->word), 0, NULL);
    EBB_TRY(ebb_text_next(r));
    return read_dims(r, type);
}

/* ---- tensors ---- */

static ebb_status read_double(ebb_text_reader *r, double *value, const char *what)
{
    if (is_word(r, "nan") || is_word(r, "inf"))
        *value = r->word[0] == 'n' ? (double)NAN : (double)INFINITY;
    else if (r->token == EBB_TOKEN_INT || r->token == EBB_TOKEN_FLOAT)
        *value = ebb_strtod(r->word, NULL);
    else
        return ebb_text_expected(r, what);
    return ebb_text_next(r);
}

static bool fits(int64_t value, unsigned bits, bool is_signed)
{
    if (bits >= 64)
        return true;
    int64_t top = INT64_C(1) << (is_signed ? bits - 1 : bits);
    return value < top && value >= (is_signed ? -top : 0);
}

static bool is_signed_dtype(ebb_dtype dtype)
{
    return dtype == EBB_I8 || dtype == EBB_I16 || dtype == EBB_I32 || dtype == EBB_I64 ||
           dtype == EBB_I4 || dtype == EBB_I2;
}

static ebb_status read_u64(ebb_text_reader *r, uint64_t *value)
{
    if (r->token != EBB_TOKEN_INT)
        return ebb_text_expected(r, "an integer");
    const char *c = r->word;
    uint64_t sum = 0;
    for (; *c != '\0'; c++) {
        uint64_t digit = (uint64_t)(*c - '0');
        if (digit > 9 || sum > (UINT64_MAX - digit) / 10)
            return ebb_text_error(r, "%.40s is no element of uint64", r->word);
        sum = sum * 10 + digit;
    }
    *value = sum;
    return ebb_text_next(r);
}

/* One element of the given dtype into data[i]. Half and bfloat16: an integer is the element's bits,
 * as onnx.parser has it; with a point or exponent it is the value. */
static ebb_status read_element(ebb_text_reader *r, ebb_dtype dtype, unsigned char *data, size_t i)
{
    unsigned bits = ebb_dtype_bits(dtype);
    bool half = dtype == EBB_F16 || dtype == EBB_BF16;
    uint64_t word = 0;
    if (dtype == EBB_F32 || dtype == EBB_F64 || (half && r->token == EBB_TOKEN_FLOAT)) {
        double value;
        EBB_TRY(read_double(r, &value, "a number"));
        float narrow = (float)value;
        if (dtype == EBB_F64) {
            memcpy(&word, &value, sizeof value);
        } else if (half) {
            word = dtype == EBB_F16 ? ebb_float_to_half(narrow) : ebb_float_to_bf16(narrow);
        } else {
            memcpy(&word, &narrow, sizeof narrow);
        }
    } else if (dtype == EBB_U64) {
        EBB_TRY(read_u64(r, &word));
    } else {
        int64_t value = 0;
        ebb_text_reader before = *r;
        if (dtype == EBB_BOOL && (is_word(r, "true") || is_word(r, "false"))) {
            value = r->word[0] == 't';
            EBB_TRY(ebb_text_next(r));
        } else {
            EBB_TRY(read_int(r, &value, "an integer"));
        }
        if (!fits(value, dtype == EBB_BOOL ? 1 : bits, is_signed_dtype(dtype)))
            return ebb_text_error(&before, "%s is no element of %s", before.word,
                                  ebb_dtype_onnx_name(dtype));
        word = (uint64_t)value;
    }
    if (bits < 8) { // packed, the first element lowest
        unsigned shift = (unsigned)(i * bits % 8);
        unsigned mask = (1U << bits) - 1;
        data[i * bits / 8] = (unsigned char)(data[i * bits / 8] | ((word & mask) << shift));
    } else { // little-endian
        for (unsigned k = 0; k < bits / 8; k++)
            data[i * (bits / 8) + k] = (unsigned char)(word >> (8 * k));
    }
    return NULL;
}

/* The elements after a type that is already in t: "{1,2,3}". "{}" for a tensor that is not empty is
 * one whose bytes are missing. */
ebb_status ebb_text_tensor_read(ebb_text_reader *r, ebb_tensor *t)
{
    int64_t count;
    ebb_text_reader at = *r;
    unsigned bits = ebb_dtype_bits((ebb_dtype)t->type.dtype);
    EBB_TRY(ebb_text_expect(r, '{', "before the elements of a tensor"));
    if (t->type.kind != EBB_KIND_TENSOR || bits == 0 || bits > 64)
        return ebb_text_error(&at, "a tensor of %s cannot be written as text",
                              ebb_dtype_onnx_name((ebb_dtype)t->type.dtype));
    if (!ebb_type_elements(&t->type, &count) || !ebb_type_bytes(&t->type, &t->bytes))
        return ebb_text_error(&at, "a tensor with elements needs all its dimensions");
    if (ebb_text_is(r, '}') && count > 0)
        return ebb_text_next(r);
    // No more elements can follow than the text has characters, whatever the dims say.
    if ((uint64_t)count > r->bytes)
        return ebb_text_error(&at, "a tensor of %lld elements has fewer", (long long)count);
    unsigned char *data = ebb_arena_zeroed(r->arena, t->bytes > 0 ? t->bytes : 1, 1);
    EBB_GOT(data);
    t->data = data;
    for (int64_t i = 0; i < count; i++) {
        if (i > 0)
            EBB_TRY(ebb_text_expect(r, ',', "between the elements of a tensor"));
        EBB_TRY(read_element(r, (ebb_dtype)t->type.dtype, data, (size_t)i));
    }
    return ebb_text_expect(r, '}', "after the last element of a tensor");
}

/* ---- attributes ---- */

static ebb_attr_type attr_type_of(const char *word)
{
    for (size_t i = EBB_ATTR_FLOAT; i <= EBB_ATTR_GRAPHS; i++)
        if (strcmp(ebb_text_attr_word((ebb_attr_type)i), word) == 0)
            return (ebb_attr_type)i;
    return EBB_ATTR_UNDEFINED;
}

typedef struct values { // a list being read
    size_t count, capacity, strings_capacity, floats_capacity, graphs_capacity;
    int64_t *ints;
    float *floats;
    const char **strings;
    ebb_graph **graphs;
} values;

static ebb_status read_list_item(ebb_text_reader *r, ebb_attr_type *type, values *list)
{
    ebb_arena *a = r->arena;
    size_t i = list->count;
    bool number = r->token == EBB_TOKEN_INT || r->token == EBB_TOKEN_FLOAT || is_word(r, "nan") ||
                  is_word(r, "inf");
    if (*type == EBB_ATTR_UNDEFINED)
        *type = r->token == EBB_TOKEN_INT      ? EBB_ATTR_INTS
                : number                       ? EBB_ATTR_FLOATS
                : r->token == EBB_TOKEN_QUOTED ? EBB_ATTR_STRINGS
                                               : EBB_ATTR_GRAPHS;
    if (*type == EBB_ATTR_INTS) {
        EBB_GOT(ebb_arena_grow(a, &list->ints, i, &list->capacity, sizeof *list->ints));
        return read_int(r, &list->ints[i], "an integer");
    }
    if (*type == EBB_ATTR_FLOATS) {
        double value;
        EBB_TRY(read_double(r, &value, "a number"));
        EBB_GOT(ebb_arena_grow(a, &list->floats, i, &list->floats_capacity, sizeof *list->floats));
        list->floats[i] = (float)value;
        return NULL;
    }
    if (*type == EBB_ATTR_STRINGS) {
        if (r->token != EBB_TOKEN_QUOTED)
            return ebb_text_expected(r, "a string");
        EBB_GOT(
            ebb_arena_grow(a, &list->strings, i, &list->strings_capacity, sizeof *list->strings));
        list->strings[i] = r->word;
        return ebb_text_next(r);
    }
    if (*type == EBB_ATTR_GRAPHS) {
        EBB_GOT(ebb_arena_grow(a, &list->graphs, i, &list->graphs_capacity, sizeof *list->graphs));
        return ebb_text_graph_read(r, &list->graphs[i]);
    }
    return ebb_text_error(r, "lists of this type of attribute are not supported");
}

static ebb_status read_list(ebb_text_reader *r, ebb_attr *attr)
{
    values list = {0};
    ebb_text_reader at = *r;
    EBB_TRY(ebb_text_next(r));
    bool more = !ebb_text_is(r, ']');
    if (!more)
        EBB_TRY(ebb_text_next(r));
    while (more) {
        EBB_TRY(read_list_item(r, &attr->type, &list));
        if (++list.count > UINT32_MAX)
            return ebb_text_error(&at, "a list is too long");
        EBB_TRY(ebb_text_next_in_list(r, ']', "after the items of a list", &more));
    }
    if (attr->type == EBB_ATTR_UNDEFINED)
        return ebb_text_error(&at, "an empty list needs its type, as in '%s: ints = []'",
                              attr->name);
    attr->count = (uint32_t)list.count;
    attr->ints = list.ints;
    attr->floats = list.floats;
    attr->strings = list.strings;
    attr->graphs = list.graphs;
    return NULL;
}

static ebb_status check_wanted(const ebb_text_reader *at, const ebb_attr *attr, ebb_attr_type found)
{
    if (attr->type == EBB_ATTR_UNDEFINED || attr->type == found)
        return NULL;
    return ebb_text_error(at, "the value of attribute '%s' is not of its declared type",
                          attr->name);
}

/* name float[2] {1,2}: an attribute that is a tensor; the name is allowed and means nothing. */
static ebb_status read_tensor_attr(ebb_text_reader *r, ebb_attr *attr)
{
    const char *ignored;
    ebb_tensor *t = EBB_NEW(r->arena, ebb_tensor, 1);
    EBB_GOT(t);
    EBB_TRY(ebb_text_type_read(r, &t->type));
    if (r->token == EBB_TOKEN_NAME || r->token == EBB_TOKEN_QUOTED)
        EBB_TRY(ebb_text_name(r, &ignored, "a name"));
    if (!ebb_text_is(r, '{'))
        return ebb_text_expected(r, "'{' with the elements of the tensor");
    EBB_TRY(ebb_text_tensor_read(r, t));
    attr->tensor = t;
    return NULL;
}

static ebb_status read_graph_attr(ebb_text_reader *r, ebb_attr *attr)
{
    ebb_graph **graphs = EBB_NEW(r->arena, ebb_graph *, 1);
    EBB_GOT(graphs);
    EBB_TRY(ebb_text_graph_read(r, &graphs[0]));
    attr->graphs = graphs;
    attr->count = 1;
    return NULL;
}

static bool is_list_type(ebb_attr_type type)
{
    return type >= EBB_ATTR_FLOATS && type <= EBB_ATTR_GRAPHS;
}

ebb_status ebb_text_attr_read(ebb_text_reader *r, ebb_attr *attr)
{
    ebb_text_reader at = *r;
    if (ebb_text_is(r, '@')) {
        EBB_TRY(ebb_text_next(r));
        return ebb_text_name(r, &attr->ref, "the name of a function's attribute");
    }
    if (ebb_text_is(r, '[')) {
        if (attr->type != EBB_ATTR_UNDEFINED && !is_list_type(attr->type))
            return check_wanted(r, attr, EBB_ATTR_UNDEFINED);
        return read_list(r, attr);
    }
    ebb_attr_type found;
    bool number = r->token == EBB_TOKEN_INT || r->token == EBB_TOKEN_FLOAT || is_word(r, "nan") ||
                  is_word(r, "inf");
    if (number && (attr->type == EBB_ATTR_FLOAT || r->token != EBB_TOKEN_INT)) {
        found = EBB_ATTR_FLOAT;
        EBB_TRY(read_double(r, &attr->f, "a number"));
        attr->f = (double)(float)attr->f;
    } else if (number) {
        found = EBB_ATTR_INT;
        EBB_TRY(read_int(r, &attr->i, "an integer"));
    } else if (ebb_text_at_type(r)) {
        found = EBB_ATTR_TENSOR;
        EBB_TRY(read_tensor_attr(r, attr));
    } else if (r->token == EBB_TOKEN_NAME) {
        found = EBB_ATTR_GRAPH;
        EBB_TRY(read_graph_attr(r, attr));
    } else if (r->token == EBB_TOKEN_QUOTED) {
        // A string, unless it is a quoted graph name: then its inputs follow.
        found = EBB_ATTR_STRING;
        EBB_TRY(ebb_text_next(r));
        if (ebb_text_is(r, '(')) {
            *r = at;
            found = EBB_ATTR_GRAPH;
            EBB_TRY(read_graph_attr(r, attr));
        } else {
            attr->s = at.word;
            attr->s_bytes = at.word_bytes;
        }
    } else {
        return ebb_text_expected(r, "the value of an attribute");
    }
    EBB_TRY(check_wanted(&at, attr, found));
    attr->type = found;
    return NULL;
}

ebb_status ebb_text_one_attr(ebb_text_reader *r, ebb_text_node *node)
{
    ebb_attr attr = {.name = NULL};
    ebb_text_reader at = *r;
    EBB_TRY(ebb_text_name(r, &attr.name, "the name of an attribute"));
    for (size_t i = 0; i < node->attr_count; i++)
        if (strcmp(node->attr[i].name, attr.name) == 0)
            return ebb_text_error(&at, "attribute '%s' is given twice", attr.name);
    if (ebb_text_is(r, ':')) {
        EBB_TRY(ebb_text_next(r));
        attr.type = attr_type_of(r->word);
        if (r->token != EBB_TOKEN_NAME || attr.type == EBB_ATTR_UNDEFINED)
            return ebb_text_expected(r, "the type of an attribute");
        EBB_TRY(ebb_text_next(r));
    }
    EBB_TRY(ebb_text_expect(r, '=', "after the name of an attribute"));
    EBB_TRY(ebb_text_attr_read(r, &attr));
    EBB_GOT(
        ebb_arena_grow(r->arena, &node->attr, node->attr_count, &node->attr_capacity, sizeof attr));
    node->attr[node->attr_count++] = attr;
    return NULL;
}

/* "<name = value, name: type = value>" added to the node's. */
static ebb_status read_attrs(ebb_text_reader *r, ebb_text_node *node)
{
    EBB_TRY(ebb_text_next(r));
    bool more = !ebb_text_is(r, '>');
    if (!more)
        EBB_TRY(ebb_text_next(r));
    while (more) {
        EBB_TRY(ebb_text_one_attr(r, node));
        EBB_TRY(ebb_text_next_in_list(r, '>', "after the attributes", &more));
    }
    return NULL;
}

/* ---- nodes ---- */

static ebb_status put_operand(ebb_text_reader *r, ebb_text_operand **list, size_t *count,
                              size_t *capacity, ebb_text_operand operand)
{
    EBB_GOT(ebb_arena_grow(r->arena, list, *count, capacity, sizeof **list));
    (*list)[(*count)++] = operand;
    return NULL;
}

static ebb_status read_input(ebb_text_reader *r, ebb_text_operand *operand)
{
    *operand = (ebb_text_operand){.name = ""};
    if (ebb_text_is(r, ',') || ebb_text_is(r, ')')) // absent
        return NULL;
    if (r->numbers && (r->token == EBB_TOKEN_INT || r->token == EBB_TOKEN_FLOAT)) {
        operand->name = NULL;
        return read_double(r, &operand->number, "a number");
    }
    return ebb_text_name(r, &operand->name, "the name of an input");
}

/* domain.of.several.parts.Op: the last part is the operator. */
static ebb_status read_op(ebb_text_reader *r, ebb_text_node *node)
{
    node->domain = node->overload = "";
    EBB_TRY(ebb_text_name(r, &node->op_name, "an operator"));
    while (ebb_text_is(r, '.')) {
        EBB_TRY(ebb_text_next(r));
        node->domain = node->domain[0] == '\0'
                           ? node->op_name
                           : ebb_arena_printf(r->arena, "%s.%s", node->domain, node->op_name);
        EBB_GOT(node->domain);
        EBB_TRY(ebb_text_name(r, &node->op_name, "an operator after '.'"));
    }
    if (ebb_text_is(r, ':')) {
        EBB_TRY(ebb_text_next(r));
        EBB_TRY(ebb_text_name(r, &node->overload, "the name of an overload"));
    }
    return NULL;
}

ebb_status ebb_text_node_read(ebb_text_reader *r, ebb_text_node *node)
{
    *node = (ebb_text_node){.name = ""};
    if (ebb_text_is(r, '[')) {
        EBB_TRY(ebb_text_next(r));
        EBB_TRY(ebb_text_name(r, &node->name, "the name of a node"));
        EBB_TRY(ebb_text_expect(r, ']', "after the name of a node"));
    }
    while (!ebb_text_is(r, '=')) {
        ebb_text_operand out = {.name = NULL};
        EBB_TRY(ebb_text_name(r, &out.name, "an output"));
        EBB_TRY(put_operand(r, &node->out, &node->out_count, &node->out_capacity, out));
        if (!ebb_text_is(r, ','))
            break;
        EBB_TRY(ebb_text_next(r));
    }
    EBB_TRY(ebb_text_expect(r, '=', "after the outputs of a node"));
    EBB_TRY(read_op(r, node));
    if (ebb_text_is(r, '<'))
        EBB_TRY(read_attrs(r, node));
    EBB_TRY(ebb_text_expect(r, '(', "before the inputs of a node"));
    bool more = !ebb_text_is(r, ')');
    if (!more)
        EBB_TRY(ebb_text_next(r));
    while (more) {
        ebb_text_operand in;
        EBB_TRY(read_input(r, &in));
        EBB_TRY(put_operand(r, &node->in, &node->in_count, &node->in_capacity, in));
        EBB_TRY(ebb_text_next_in_list(r, ')', "after the inputs of a node", &more));
    }
    return ebb_text_is(r, '<') ? read_attrs(r, node) : NULL;
}
