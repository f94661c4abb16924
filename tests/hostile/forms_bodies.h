/* forms_bodies.h: the bodies of a form (forms.h), and the pieces of which it is written.
 */
#pragma once

#include "tests/hostile/forms_axes.h"
#include "tests/onnx/bytes.h"

/* ---- pieces ---- */

enum {
    FLOAT = 1,
    INT64 = 7,
    STRING = 8,
    BOOL = 9,
    HALF = 10,
    DOUBLE = 11,
    NO_RANK = -1,
    OPEN = -2
};

/* field: 11 input, 12 output. dtype 0: no type. rank NO_RANK: no shape; OPEN: [n]. */
static inline void put_typed(bytes *b, unsigned field, const char *name, int dtype, int rank,
                             const int64_t *dims)
{
    size_t value = open_message(b, field);
    put_text(b, 1, name);
    if (dtype != 0) {
        size_t type = open_message(b, 2), tensor = open_message(b, 1);
        put_int(b, 1, dtype);
        if (rank != NO_RANK) {
            size_t shape = open_message(b, 2);
            for (int i = 0; i < (rank == OPEN ? 1 : rank); i++) {
                size_t dim = open_message(b, 1);
                if (rank == OPEN)
                    put_text(b, 2, "n");
                else
                    put_int(b, 1, dims[i]);
                close_message(b, dim);
            }
            close_message(b, shape);
        }
        close_message(b, tensor);
        close_message(b, type);
    }
    close_message(b, value);
}

/* The type of x and of what is carried. */
static inline void put_data(bytes *b, unsigned field, const char *name, const form *f)
{
    static const struct {
        int dtype, rank;
        int64_t dims[2];
    } types[] = {{FLOAT, 1, {4}},       {FLOAT, 0, {0}},
                 {FLOAT, 1, {0}},       {FLOAT, OPEN, {0}},
                 {FLOAT, NO_RANK, {0}}, {HALF, 1, {4}},
                 {DOUBLE, 1, {4}},      {INT64, 1, {4}},
                 {FLOAT, 2, {2, 3}},    {FLOAT, 1, {INT64_C(1) << 40}},
                 {STRING, 1, {4}},      {BOOL, 1, {4}}};
    unsigned at = f->at[FORM_DATA];
    put_typed(b, field, name, types[at].dtype, types[at].rank, types[at].dims);
}

/* One number, or `count` equal ones; rank 0 or 1. field 5: an initializer. */
static inline void put_tensor(bytes *b, unsigned field, const char *name, int dtype, int count,
                              int64_t x)
{
    size_t tensor = open_message(b, field);
    if (count > 0)
        put_int(b, 1, count);
    put_int(b, 2, dtype);
    for (int i = 0; i < (count > 0 ? count : 1); i++) {
        float real = (float)x;
        if (dtype == FLOAT)
            put_tag(b, 4, 5);
        if (dtype == FLOAT)
            for (int k = 0; k < 4; k++)
                put_byte(b, ((const uint8_t *)&real)[k]);
        else
            put_int(b, dtype == INT64 ? 7 : 5, x);
    }
    put_text(b, 8, name);
    close_message(b, tensor);
}

static inline void put_int_attr(bytes *b, const char *name, int64_t x)
{
    size_t attr = open_message(b, 5);
    put_text(b, 1, name);
    put_int(b, 3, x);
    put_int(b, 20, 2);
    close_message(b, attr);
}

static inline void put_ints_attr(bytes *b, const char *name, int count, int64_t x)
{
    size_t attr = open_message(b, 5);
    put_text(b, 1, name);
    for (int i = 0; i < count; i++)
        put_int(b, 8, x);
    put_int(b, 20, 7);
    close_message(b, attr);
}

/* A node that stays open for its attributes. */
static inline size_t open_node(bytes *b, const char *op, const char *const *in,
                               const char *const *out)
{
    size_t node = open_message(b, 1);
    for (; *in != NULL; in++)
        put_text(b, 1, *in);
    for (; *out != NULL; out++)
        put_text(b, 2, *out);
    put_text(b, 4, op);
    return node;
}

static inline void put_plain(bytes *b, const char *op, const char *in, const char *other,
                             const char *out)
{
    size_t node = open_node(b, op, NAMES(in, other), NAMES(out));
    close_message(b, node);
}

/* ---- bodies ---- */

typedef struct form_body {
    const form *f;
    int kind, which; /* If, Loop, Scan; which: 1 the second branch */
    bool plain;      /* of the form around: legal whatever the choices are */
    const char *result;
} form_body;

static inline const char *form_reads(const form_body *y)
{
    static const char *const names[] = {"h", "x",       "w",    "own",  "late",
                                        "y", "nowhere", "mask", "mean", "indices"};
    return y->plain ? "h" : names[y->f->at[FORM_READS]];
}

static inline const char *form_name(const form_body *y, const char *plain)
{
    static char text[400];
    switch (y->plain ? 0 : y->f->at[FORM_NAMES]) {
    case 1:
        return "h";
    case 2:
        return "y";
    case 3:
        return plain;
    case 4:
        return "";
    case 5:
        memset(text, 'n', 300);
        text[300] = '\0';
        return text;
    case 6:
        return y->which == 1 ? "y/else/p" : "y/then/p";
    default:
        (void)snprintf(text, sizeof text, "%s%d", plain, y->which);
        return text;
    }
}

static inline void put_body_inputs(bytes *b, const form_body *y)
{
    const form *f = y->f;
    unsigned choice = y->plain ? 0 : f->at[FORM_INPUTS];
    int right = y->kind == 0 ? 0 : y->kind == 1 ? 3 : 2, count = right;
    count += choice == 1 || choice == 4;
    count -= choice == 2 && count > 0;
    count = choice == 3 ? 0 : choice == 5 || choice == 6 ? (count > 0 ? count : 1) : count;
    for (int i = 0; i < count; i++) {
        char name[8] = {'u', (char)('0' + i), '\0'};
        bool last = i + 1 == count;
        const char *called = choice == 5 ? "u0" : choice == 6 && last ? "h" : name;
        if (choice == 7)
            put_typed(b, 11, called, 0, 0, NULL);
        else if (choice == 8)
            put_typed(b, 11, called, HALF, 0, NULL);
        else if (y->kind == 1 && i < 2)
            put_typed(b, 11, called, i == 0 ? INT64 : BOOL, 0, NULL);
        else if (y->kind == 2 && i == 1)
            put_typed(b, 11, called, FLOAT, 0, NULL);
        else
            put_data(b, 11, called, f);
        if (choice == 4 && last)
            put_tensor(b, 5, called, FLOAT, 4, 2);
    }
}

/* What is computed: result = something of what is read outside and what is given. */
static inline void put_body_nodes(bytes *b, const form_body *y, const char *p)
{
    const form *f = y->f;
    const char *read = form_reads(y), *given = y->kind == 0 ? read : y->kind == 1 ? "u2" : "u0";
    size_t node;
    if (strcmp(read, "own") == 0)
        put_tensor(b, 5, "own", FLOAT, 4, 3);
    switch (y->plain ? 0 : f->at[FORM_NODES]) {
    case 0:
        put_plain(b, "Add", given, read, p);
        break;
    case 1:
        break;
    case 2:
        put_plain(b, "Nonsense", given, read, p);
        break;
    case 3:
        put_plain(b, "Add", given, NULL, p);
        break;
    case 4:
        put_tensor(b, 5, "weight", FLOAT, 4, 2);
        put_plain(b, "Mul", given, "weight", "product");
        put_plain(b, "Add", "product", read, p);
        break;
    case 5:
        put_plain(b, "Dropout", given, NULL, p);
        break;
    case 6:
        put_plain(b, "Neg", "before", NULL, p);
        put_plain(b, "Add", given, read, "before");
        break;
    case 7:
        put_plain(b, "Add", given, "round", p);
        put_plain(b, "Add", p, read, "round");
        break;
    case 8:
        node = open_node(b, "Concat", NAMES(given, read), NAMES(p));
        put_int_attr(b, "axis", 0);
        close_message(b, node);
        break;
    case 9:
        node = open_node(b, "Cast", NAMES(read), NAMES(p));
        put_int_attr(b, "to", INT64);
        close_message(b, node);
        break;
    case 10:
        put_plain(b, "If", "t", NULL, p);
        break;
    case 11:
        node = open_node(b, "Constant", (const char *const[]){NULL}, NAMES(p));
        put_int_attr(b, "value_int", 7);
        close_message(b, node);
        break;
    case 12:
        node = open_node(b, "Div", NAMES("three", "zero"), NAMES(p));
        close_message(b, node);
        break;
    case 13:
        node = open_node(b, "Softmax", NAMES(given), NAMES(p));
        put_ints_attr(b, "axis", 2, 0);
        close_message(b, node);
        break;
    default:
        node = open_node(b, "Split", NAMES(given), NAMES(p, "rest"));
        put_int_attr(b, "axis", 0);
        close_message(b, node);
        break;
    }
}

/* Whether the loop goes on. */
static inline const char *put_body_condition(bytes *b, const form_body *y)
{
    size_t node;
    switch (y->plain ? 0 : y->f->at[FORM_DETAIL]) {
    case 5:
        return "off";
    case 6:
        node = open_node(b, "ReduceSum", NAMES("u2"), NAMES("sum"));
        put_int_attr(b, "keepdims", 0);
        close_message(b, node);
        put_plain(b, "Less", "sum", "w0", "go");
        return "go";
    case 7:
        return "w0";
    case 8:
        return "two_flags";
    default:
        put_plain(b, "Identity", "u1", NULL, "go");
        return "go";
    }
}

static inline void put_output(bytes *b, const form_body *y, const char *name)
{
    unsigned choice = y->plain ? 0 : y->f->at[FORM_OUTPUTS];
    const int64_t dims[] = {4};
    if (choice == 8)
        put_typed(b, 12, name, 0, 0, NULL);
    else if (choice == 9)
        put_typed(b, 12, name, INT64, 1, dims);
    else
        put_typed(b, 12, name, FLOAT, NO_RANK, NULL);
}

/* last: made by the body, or what stands for it. */
static inline void put_body_outputs(bytes *b, const form_body *y, const char *condition,
                                    const char *last)
{
    unsigned choice = y->plain ? 0 : y->f->at[FORM_OUTPUTS];
    static const char *const instead[] = {
        [4] = "h", [6] = "kept", [7] = "unmade", [10] = "x", [11] = ""};
    if (choice < sizeof instead / sizeof instead[0] && instead[choice] != NULL)
        last = instead[choice];
    if (choice == 6)
        put_tensor(b, 5, "kept", FLOAT, 4, 1);
    if (choice == 3)
        return;
    if (condition != NULL)
        put_typed(b, 12, condition, BOOL, 0, NULL);
    int count = (y->kind == 2 ? 2 : 1) + (choice == 2 || choice == 5) - (choice == 1);
    for (int i = 0; i < count; i++)
        put_output(b, y, i == 1 && y->kind == 2 && choice != 5 ? "u1" : last);
}

static inline void put_control(bytes *b, const form *f, bool around);

/* An attribute that holds a graph. field: 6, or 11 in a list. */
static inline void put_body(bytes *b, const form_body *y, const char *name, bool around)
{
    const form *f = y->f;
    bool list = !y->plain && y->kind == 0 && f->at[FORM_DETAIL] == 7 && y->which == 1;
    size_t attr = open_message(b, 5);
    put_text(b, 1, name);
    if (!y->plain && y->kind == 0 && f->at[FORM_DETAIL] == 6 && y->which == 1) {
        put_int(b, 3, 1);
        put_int(b, 20, 2);
        close_message(b, attr);
        return;
    }
    if (!y->plain && y->kind == 0 && f->at[FORM_DETAIL] == 8 && y->which == 1) {
        put_text(b, 21, "some_attribute");
        put_int(b, 20, 5);
        close_message(b, attr);
        return;
    }
    size_t graph = open_message(b, list ? 11 : 6);
    char p[400];
    (void)snprintf(p, sizeof p, "%s", form_name(y, "p"));
    const char *last = p;
    if (around) { // what this form is about stands within
        put_control(b, f, false);
        last = "y";
    } else {
        put_body_nodes(b, y, p);
    }
    if (!y->plain && y->which == 1 && f->at[FORM_DETAIL] >= 3 && f->at[FORM_DETAIL] <= 5) {
        size_t node; // the other branch makes something of another dtype, shape, or rank
        node = open_node(b, f->at[FORM_DETAIL] == 3 ? "Shape" : "ReduceSum", NAMES("x"),
                         NAMES("other"));
        if (f->at[FORM_DETAIL] == 5)
            put_int_attr(b, "keepdims", 0);
        close_message(b, node);
        last = "other";
    }
    const char *condition = y->kind == 1 ? put_body_condition(b, y) : NULL;
    put_text(b, 2, "body");
    put_body_inputs(b, y);
    put_body_outputs(b, y, condition, last);
    close_message(b, graph);
    put_int(b, 20, list ? 10 : 5);
    close_message(b, attr);
}
