/* forms_axes.h: which forms of If, Loop and Scan there are (forms.h): a form is one choice on each axis.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

// clang-format off
#define FORM_AXES(AXIS) \
    AXIS(KIND,    "If", "Loop", "Scan") \
    AXIS(PLACE,   "alone", "in an If", "in a Loop", "in a Scan") \
    AXIS(INPUTS,  "right", "one more", "one less", "none", "one more with an initializer", "two of one name", \
                  "one called h", "without a type", "of float16") \
    AXIS(OUTPUTS, "right", "one less", "one more", "none", "an outer value", "one value twice", "an initializer", \
                  "made by nothing", "without a type", "declared int64", "a graph input", "without a name") \
    AXIS(READS,   "h", "x", "w", "nothing outside", "what is made later", "what the node makes", "nothing there is", \
                  "a mask that only it reads", "a mean that only it reads", "indices that only it reads") \
    AXIS(NAMES,   "own", "h again", "those of the node's outputs", "one for both bodies", "empty", "long", \
                  "those that unrolling gives") \
    AXIS(NODES,   "a sum", "none", "an unknown operator", "too few operands", "a product with a weight", "a dropout", \
                  "out of order", "in a circle", "a larger shape", "another dtype", "an If without bodies", "a constant", \
                  "a division by zero", "an attribute of another kind", "a split") \
    AXIS(CONTROL, "plain", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh") \
    AXIS(DETAIL,  "plain", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth") \
    AXIS(GIVEN,   "right", "one more", "one less", "an absent one", "none", "one twice", "one that nothing makes") \
    AXIS(MADE,    "right", "none", "one more", "an absent one", "many", "one name twice", "the name of an input") \
    AXIS(FATE,    "read", "unread", "an output", "read by a body", "a state's next value") \
    AXIS(DATA,    "float[4]", "float", "float[0]", "float[n]", "float of unknown rank", "float16[4]", "double[4]", \
                  "int64[4]", "float[2,3]", "float[2^40]", "string[4]", "bool[4]") \
    AXIS(OPSET,   "21 of IR 10", "8 of IR 3", "11", "13 of IR 3", "1", "0", "99")

enum form_axis {
#define AXIS(name, ...) FORM_##name,
    FORM_AXES(AXIS)
#undef AXIS
    FORM_AXIS_COUNT
};

static const struct form_choices {
    const char *axis;
    const char *const *names;
    unsigned count;
} form_choices[] = {
#define AXIS(name, ...) {#name, (const char *const[]){__VA_ARGS__}, sizeof (const char *const[]){__VA_ARGS__} / sizeof(const char *)},
    FORM_AXES(AXIS)
#undef AXIS
};
// clang-format on

typedef struct form {
    unsigned at[FORM_AXIS_COUNT];
} form;

/* ---- which there are ---- */

enum { FORM_FREE = FORM_INPUTS }; /* the axes from here on are varied */

static inline bool form_next_pair(unsigned *a, unsigned *i, unsigned *b, unsigned *j)
{
    if (++*j < form_choices[*b].count)
        return true;
    *j = 1;
    if (++*b < FORM_AXIS_COUNT)
        return true;
    if (++*i >= form_choices[*a].count) {
        *i = 1;
        ++*a;
    }
    *b = *a + 1;
    return *b < FORM_AXIS_COUNT;
}

/* Form `number` into *f; false: there are fewer. */
static inline bool form_of(form *f, unsigned number)
{
    unsigned singles = 1;
    *f = (form){{0}};
    for (unsigned a = FORM_FREE; a < FORM_AXIS_COUNT; a++)
        singles += form_choices[a].count - 1;
    f->at[FORM_KIND] = number % 3;
    number /= 3;
    if (number < singles * 4) {
        f->at[FORM_PLACE] = number % 4;
        number /= 4;
        for (unsigned a = FORM_FREE; number > 0; a++) {
            unsigned more = form_choices[a].count - 1;
            f->at[a] = number <= more ? number : 0;
            number -= number <= more ? number : more;
        }
        return true;
    }
    number -= singles * 4;
    unsigned a = FORM_FREE, i = 1, b = FORM_FREE + 1, j = 1;
    for (; number > 0; number--)
        if (!form_next_pair(&a, &i, &b, &j))
            return false;
    f->at[a] = i;
    f->at[b] = j;
    return true;
}

static inline void form_print(char *text, size_t size, const form *f)
{
    size_t at = 0;
    for (unsigned a = 0; a < FORM_AXIS_COUNT && at < size; a++)
        if (a == 0 || f->at[a] != 0)
            at += (size_t)snprintf(text + at, size - at, "%s%s %s", a > 0 ? ", " : "",
                                   form_choices[a].axis, form_choices[a].names[f->at[a]]);
}

static inline bool form_has(const form *f, enum form_axis axis, const char *choice)
{
    return strcmp(form_choices[axis].names[f->at[axis]], choice) == 0;
}
