/* forms.h: models with an If, a Loop or a Scan in every form that a file may give them, right and
 * wrong.
 *
 *     h = Mul (x, w)                          first, what bodies may read
 *     y = If | Loop | Scan <bodies> (...)     alone, or within a body of another
 *     z = Relu (y)                            or what else becomes of y
 *     late = Neg (x)
 *
 * A form is one choice on each axis of a table (forms_axes.h); choice 0 is legal and plain. All forms are:
 * each kind in each place with one other choice, and each kind alone with any two.
 */
#pragma once

#include "tests/hostile/forms_bodies.h"

/* ---- the node ---- */

static inline const char *form_condition(const form *f)
{
    static const char *const names[] = {"t", "off",   "flag",      "flags", "two_flags", "w0",
                                        "",  "asked", "open_flag", "three", "x"};
    return names[f->at[FORM_CONTROL]];
}

static inline const char *form_trips(const form *f)
{
    static const char *const names[] = {"three", "zero",   "minus",      "most", "",       "count",
                                        "w0",    "threes", "two_threes", "many", "counted"};
    return names[f->at[FORM_CONTROL]];
}

static inline void put_scan_attrs(bytes *b, const form *f)
{
    static const int64_t counts[] = {1, 0, -1, 5, INT64_MAX, 1, INT64_MIN, 1, 2, 1, 3};
    unsigned detail = f->at[FORM_DETAIL], control = f->at[FORM_CONTROL];
    if (control == 7)
        put_ints_attr(b, "num_scan_inputs", 1, 1);
    else if (control != 5)
        put_int_attr(b, "num_scan_inputs", counts[control]);
    if (detail >= 1 && detail <= 5)
        put_ints_attr(b, "scan_input_axes", detail == 4 ? 0 : 1,
                      (const int64_t[]){0, 0, -1, 7, 0, INT64_MIN}[detail]);
    if (detail == 6 || detail == 7)
        put_ints_attr(b, "scan_output_axes", 1, detail == 6 ? 1 : -9);
    if (detail == 8 || detail == 9)
        put_ints_attr(b, "scan_input_directions", 1, detail == 8 ? 1 : 2);
}

/* Operands and outputs by the choices of GIVEN and MADE. */
static inline size_t open_control(bytes *b, const form *f, int kind)
{
    static const char *const ops[] = {"If", "Loop", "Scan"};
    const char *in[8] = {NULL}, *out[24] = {NULL};
    size_t n = 0, m = 0;
    if (kind == 0)
        in[n++] = form_condition(f);
    if (kind == 1) {
        static const char *const goes[] = {"t", "", "off", "flag", "w0"};
        in[n++] = form_trips(f);
        in[n++] = f->at[FORM_DETAIL] < 5 ? goes[f->at[FORM_DETAIL]] : "t";
        in[n++] = "h";
    }
    if (kind == 2) {
        if (form_has(f, FORM_OPSET, "8 of IR 3"))
            in[n++] = "";
        in[n++] = "h";
        in[n++] = "h";
    }
    switch (f->at[FORM_GIVEN]) {
    case 1:
        in[n++] = "x";
        break;
    case 2:
        in[--n] = NULL;
        break;
    case 3:
        in[n - 1] = "";
        break;
    case 4:
        memset(in, 0, sizeof in);
        break;
    case 5:
        in[n] = in[n - 1];
        break;
    case 6:
        in[n - 1] = "nowhere";
        break;
    default:
        break;
    }
    if (f->at[FORM_MADE] != 1)
        out[m++] = f->at[FORM_MADE] == 3 ? "" : f->at[FORM_MADE] == 6 ? "x" : "y";
    if (f->at[FORM_MADE] == 2 || f->at[FORM_MADE] == 3)
        out[m++] = "y2";
    if (f->at[FORM_MADE] == 5)
        out[m++] = "y";
    static char many[20][16];
    for (int i = 0; i < 20 && f->at[FORM_MADE] == 4; i++) {
        (void)snprintf(many[i], sizeof many[i], "m%d", i);
        out[m++] = many[i];
    }
    return open_node(b, ops[kind], in, out);
}

static inline void put_plain_control(bytes *b, const form *f, int kind)
{
    form_body y = {.f = f, .kind = kind, .plain = true};
    size_t node = kind == 0   ? open_node(b, "If", NAMES("t"), NAMES("y"))
                  : kind == 1 ? open_node(b, "Loop", NAMES("three", "t", "h"), NAMES("y"))
                              : open_node(b, "Scan", NAMES("h", "h"), NAMES("y"));
    if (kind == 2)
        put_int_attr(b, "num_scan_inputs", 1);
    put_body(b, &y, kind == 0 ? "then_branch" : "body", true);
    y.which = 1;
    if (kind == 0)
        put_body(b, &y, "else_branch", false);
    close_message(b, node);
}

/* around: the node in whose body the form's own stands. */
static inline void put_control(bytes *b, const form *f, bool around)
{
    int kind = (int)f->at[FORM_KIND];
    if (around && f->at[FORM_PLACE] > 0) {
        put_plain_control(b, f, (int)f->at[FORM_PLACE] - 1);
        return;
    }
    form_body y = {.f = f, .kind = kind};
    size_t node = open_control(b, f, kind);
    if (kind == 2)
        put_scan_attrs(b, f);
    if (kind != 0 || f->at[FORM_DETAIL] != 2)
        put_body(b, &y, kind == 0 ? "then_branch" : "body", false);
    y.which = 1;
    if (kind == 0 && f->at[FORM_DETAIL] != 1)
        put_body(b, &y, "else_branch", false);
    close_message(b, node);
}

/* ---- the model ---- */

/* Whatever a form may name, made before it. */
static inline void put_surroundings(bytes *b, const form *f)
{
    const int64_t one[] = {1}, two[] = {2}, image[] = {1, 1, 2, 2};
    size_t node;
    put_data(b, 11, "x", f);
    put_typed(b, 11, "flag", BOOL, 0, NULL);
    put_typed(b, 11, "flags", BOOL, 1, one);
    put_typed(b, 11, "two_flags", BOOL, 1, two);
    if (f->at[FORM_KIND] == 0 && f->at[FORM_CONTROL] == 8)
        put_typed(b, 11, "open_flag", BOOL, NO_RANK, NULL);
    put_typed(b, 11, "count", INT64, 0, NULL);
    put_typed(b, 11, "image", FLOAT, 4, image);
    put_tensor(b, 5, "w", FLOAT, 4, 2);
    put_tensor(b, 5, "w0", FLOAT, 0, 5);
    put_tensor(b, 5, "t", BOOL, 0, 1);
    put_tensor(b, 5, "off", BOOL, 0, 0);
    put_tensor(b, 5, "zero", INT64, 0, 0);
    put_tensor(b, 5, "three", INT64, 0, 3);
    put_tensor(b, 5, "threes", INT64, 1, 3);
    put_tensor(b, 5, "two_threes", INT64, 2, 3);
    put_tensor(b, 5, "minus", INT64, 0, -1);
    put_tensor(b, 5, "most", INT64, 0, INT64_MAX);
    put_tensor(b, 5, "many", INT64, 0, 3000);
    put_plain(b, "Mul", "x", "w", "h");
    if (form_has(f, FORM_READS, "a mask that only it reads")) {
        node = open_node(b, "Dropout", NAMES("h"), NAMES("dropped", "mask"));
        close_message(b, node);
    }
    if (form_has(f, FORM_READS, "a mean that only it reads")) {
        node = open_node(b, "LayerNormalization", NAMES("h", "w"), NAMES("normed", "mean"));
        close_message(b, node);
    }
    if (form_has(f, FORM_READS, "indices that only it reads")) {
        node = open_node(b, "MaxPool", NAMES("image"), NAMES("pooled", "indices"));
        put_ints_attr(b, "kernel_shape", 2, 2);
        close_message(b, node);
    }
    if (f->at[FORM_KIND] == 0 && f->at[FORM_CONTROL] == 7) {
        node = open_node(b, "ReduceSum", NAMES("h"), NAMES("total"));
        put_int_attr(b, "keepdims", 0);
        close_message(b, node);
        put_plain(b, "Less", "total", "w0", "asked");
    }
    if (f->at[FORM_KIND] == 1 && f->at[FORM_CONTROL] == 10) {
        node = open_node(b, "Size", NAMES("x"), NAMES("counted"));
        close_message(b, node);
    }
}

static inline void put_form(bytes *b, const form *f)
{
    static const int64_t opsets[] = {21, 8, 11, 13, 1, 0, 99};
    unsigned opset = f->at[FORM_OPSET];
    put_int(b, 1, opset == 1 || opset == 3 ? 3 : 10);
    size_t graph = open_message(b, 7);
    put_text(b, 2, "g");
    put_surroundings(b, f);
    put_control(b, f, true);
    put_plain(b, "Neg", "x", NULL, "late");
    unsigned fate = f->at[FORM_FATE];
    const char *last = fate == 1 ? "late" : fate == 2 ? "y" : "z";
    if (fate == 3) {
        const form plain = {{0}};
        const form_body y = {.f = &plain, .kind = 0, .plain = true};
        size_t node = open_node(b, "If", NAMES("t"), NAMES("z"));
        for (int i = 0; i < 2; i++) {
            size_t attr = open_message(b, 5);
            put_text(b, 1, i == 0 ? "then_branch" : "else_branch");
            size_t body = open_message(b, 6);
            put_plain(b, "Abs", "y", NULL, "of_y");
            put_output(b, &y, "of_y");
            close_message(b, body);
            put_int(b, 20, 5);
            close_message(b, attr);
        }
        close_message(b, node);
    } else if (fate != 2) {
        put_plain(b, "Relu", fate == 1 ? "late" : "y", NULL, "z");
    }
    put_typed(b, 12, last, 0, 0, NULL);
    close_message(b, graph);
    size_t import = open_message(b, 8);
    put_text(b, 1, "");
    put_int(b, 2, opsets[opset]);
    close_message(b, import);
    if (fate == 4) { // the step replaces w by y
        size_t training = open_message(b, 20);
        put_entry(b, 4, "w", "y");
        close_message(b, training);
    }
}
