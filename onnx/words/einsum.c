/* einsum.c: reads Einsum equations. Letters are numbered 0 to 51, the dims under an ellipsis from
 * 52 on, counted from their end so that they broadcast; then all of them are numbered anew, those
 * of the output first. */
#include "onnx/words/einsum.h"

enum { LETTERS = 52 };

typedef struct term {    /* of one input, or the output */
    int count, ellipsis; /* labels; the place of "..." among them, or -1 */
    int8_t label[EBB_MAX_RANK];
} term;

static int letter(char c)
{
    return c >= 'A' && c <= 'Z' ? c - 'A' : c >= 'a' && c <= 'z' ? 26 + c - 'a' : -1;
}

/* Up to a comma, an arrow or the end. */
static const char *read_term(term *t, const char **text)
{
    *t = (term){.ellipsis = -1};
    for (; **text != '\0' && **text != ',' && strncmp(*text, "->", 2) != 0; ++*text) {
        if (**text == ' ')
            continue;
        if (strncmp(*text, "...", 3) == 0) {
            if (t->ellipsis >= 0)
                return "a term of the equation has two ellipses";
            t->ellipsis = t->count;
            *text += 2;
            continue;
        }
        int label = letter(**text);
        if (label < 0)
            return "the equation has a character that is no letter";
        if (t->count == EBB_MAX_RANK)
            return "a term of the equation has too many letters";
        t->label[t->count++] = (int8_t)label;
    }
    return NULL;
}

/* The labels of every dim of an input whose ellipsis stands for `hidden` dims. */
static void spread(int8_t *to, const term *t, int hidden)
{
    int at = 0;
    for (int i = 0; i <= t->count; i++) {
        for (int k = 0; i == t->ellipsis && k < hidden; k++)
            to[at++] = (int8_t)(LETTERS + hidden - 1 - k);
        if (i < t->count)
            to[at++] = t->label[i];
    }
}

/* The output of an equation without an arrow. */
static void implied(term *out, const int seen[LETTERS], bool ellipsis)
{
    *out = (term){.ellipsis = ellipsis ? 0 : -1};
    for (int l = 0; l < LETTERS && out->count < EBB_MAX_RANK; l++)
        if (seen[l] == 1)
            out->label[out->count++] = (int8_t)l;
}

static const char *meet(int64_t *size, int64_t dim)
{
    if (dim < 0 || dim == *size)
        return NULL;
    if (*size >= 0 && *size != 1 && dim != 1)
        return "dims under one letter differ";
    if (*size < 0 || *size == 1)
        *size = dim;
    return NULL;
}

/* Labels as read into labels of the struct: the output's first. */
static const char *number(ebb_einsum *e, const ebb_type *const *types, const int8_t *out)
{
    int found[EBB_EINSUM_LABELS];
    for (int l = 0; l < EBB_EINSUM_LABELS; l++)
        found[l] = -1;
    for (int d = 0; d < e->out_rank; d++) {
        if (found[out[d]] >= 0)
            return "the output names a letter twice";
        found[out[d]] = e->labels;
        e->size[e->labels++] = -2;
    }
    for (uint32_t i = 0; i < e->inputs; i++)
        for (int d = 0; d < types[i]->rank; d++) {
            int8_t *label = &e->label[i][d];
            if (found[*label] < 0) {
                found[*label] = e->labels;
                e->size[e->labels++] = -2;
            }
            *label = (int8_t)found[*label];
            if (e->size[*label] == -2)
                e->size[*label] = -1;
            const char *wrong = meet(&e->size[*label], types[i]->dims[d]);
            if (wrong != NULL)
                return wrong;
        }
    for (int d = 0; d < e->out_rank; d++)
        if (e->size[d] == -2)
            return "the output names a letter that no input has";
    return NULL;
}

static const char *read_inputs(ebb_einsum *e, const char **at, const ebb_type *const *types,
                               int *hidden, int seen[LETTERS])
{
    for (uint32_t i = 0; i < e->inputs; i++) {
        term t;
        const char *wrong = read_term(&t, at);
        if (wrong != NULL)
            return wrong;
        int under = types[i]->rank - t.count;
        if (under < 0 || (t.ellipsis < 0 && under != 0))
            return "a term of the equation does not have its input's rank";
        for (int k = 0; k < t.count; k++)
            seen[t.label[k]]++;
        *hidden = under > *hidden ? under : *hidden;
        spread(e->label[i], &t, under);
        if (**at == ',')
            ++*at;
        else if (i + 1 < e->inputs)
            return "the equation has fewer terms than there are inputs";
    }
    return NULL;
}

const char *ebb_einsum_read(ebb_einsum *e, const char *equation, uint32_t inputs,
                            const ebb_type *const *types)
{
    const char *at = equation;
    int seen[LETTERS] = {0}, hidden = 0;
    int8_t labels[2 * EBB_MAX_RANK];
    term out;
    *e = (ebb_einsum){.inputs = inputs};
    if (inputs < 1 || inputs > EBB_EINSUM_INPUTS)
        return "it has no input, or too many";
    const char *wrong = read_inputs(e, &at, types, &hidden, seen);
    if (wrong != NULL)
        return wrong;
    bool ellipsis = strstr(equation, "...") != NULL;
    if (strncmp(at, "->", 2) == 0) {
        at += 2;
        wrong = read_term(&out, &at);
        if (wrong == NULL && out.ellipsis < 0)
            hidden = 0;
    } else {
        implied(&out, seen, ellipsis);
    }
    if (wrong != NULL)
        return wrong;
    if (*at != '\0')
        return "the equation has more terms than there are inputs";
    e->out_rank = out.count + (out.ellipsis >= 0 ? hidden : 0);
    if (e->out_rank > EBB_MAX_RANK)
        return "the output has too many dims";
    spread(labels, &out, hidden);
    return number(e, types, labels);
}
