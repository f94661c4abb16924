/* scale.h: models of any number of nodes, as ONNX text, in forms that real ones have. Dimensions are
 * small, so that what a verb needs for one is the graph's and not the weights'.
 *
 * Read by bench/scale.c.
 */
#pragma once

#include <stddef.h>
#include <stdio.h>

/* A form is a unit, repeated. In its texts # is the unit's number, @ the next one's, $ its half and
 * ~ the number counted from the end; in what is written once they are the count's. Unit 0 reads h0,
 * the last one makes what is called h and the count. */
typedef struct scale_form {
    const char *name;
    size_t nodes;        /* of a unit; a call counts as what it calls */
    const char *weights; /* of a unit */
    const char *text[5]; /* once, for each unit, once, for each unit, once; NULL: nothing */
    const char *calls;   /* a function for each second unit; NULL: none */
} scale_form;

#define SCALE_MATRIX(name) \
    ", float[4,4] " name " = {.1,.2,-.1,.3,-.2,.1,.2,.1,.3,-.1,.1,.2,.1,.2,.3,-.3}"
#define SCALE_VECTOR(name) ", float[4] " name " = {.1,.2,-.1,.3}"
#define SCALE_LINEAR SCALE_MATRIX("w#") SCALE_VECTOR("b#") "\n"
#define SCALE_HEADS(x, perm)                                                         \
    x "m# = MatMul(n#, " x "#) " x "a# = Add(" x "m#, " x "b#) " x "r# = Reshape(" x \
      "a#, split) " x "t# = Transpose<perm = " perm ">(" x "r#)\n"

static const scale_form scale_forms[] = {
    {"chain", 2, SCALE_LINEAR, {NULL, "g# = Gemm(h#, w#, b#) h@ = Relu(g#)\n"}, NULL},

    {"residual",
     4,
     SCALE_LINEAR,
     {NULL, "a# = Gemm(h#, w#, b#) r# = Relu(a#) m# = MatMul(r#, w#) h@ = Add(h#, m#)\n"},
     NULL},

    /* branches side by side, added up one after the other */
    {"wide",
     3,
     SCALE_LINEAR,
     {NULL, "m# = Gemm(x, w#, b#) r# = Relu(m#)\n", NULL, "h@ = Add(h#, r#)\n"},
     NULL},

    /* one value that all read, and one node that reads them all */
    {"fan",
     2,
     SCALE_VECTOR("b#") "\n",
     {"s = Relu(h0)\n", "m# = Mul(s, b#) t# = Tanh(m#)\n", "h# = Sum(s", ", t#\n", ")\n"},
     NULL},

    /* down, and up again: what the first unit makes is read by the last */
    {"unet",
     4,
     SCALE_LINEAR,
     {"d0 = Identity(h0)\n", "g# = Gemm(d#, w#, b#) d@ = Relu(g#)\n", "u0 = Tanh(d#)\n",
      "k# = Mul(u#, d~) u@ = Sigmoid(k#)\n", "h# = Neg(u#)\n"},
     NULL},

    /* attention of two heads and an MLP with GELU, as exporters spell them */
    {"transformer",
     33,
     SCALE_MATRIX("q#") SCALE_MATRIX("k#") SCALE_MATRIX("v#") SCALE_MATRIX("o#") SCALE_MATRIX("up#")
         SCALE_MATRIX("down#") SCALE_VECTOR("qb#") SCALE_VECTOR("kb#") SCALE_VECTOR("vb#")
             SCALE_VECTOR("ob#") SCALE_VECTOR("upb#") SCALE_VECTOR("downb#") SCALE_VECTOR("s#")
                 SCALE_VECTOR("z#") SCALE_VECTOR("ls#") SCALE_VECTOR("lz#") "\n",
     {NULL,
      "n# = LayerNormalization<axis = -1>(h#, s#, z#)\n" SCALE_HEADS("q", "[1, 0, 2]")
          SCALE_HEADS("k", "[1, 2, 0]") SCALE_HEADS(
              "v",
              "[1, 0, 2]") "e# = MatMul(qt#, kt#) es# = Mul(e#, scale) p# = Softmax<axis = "
                           "-1>(es#)\n"
                           "c# = MatMul(p#, vt#) ct# = Transpose<perm = [1, 0, 2]>(c#) cr# = "
                           "Reshape(ct#, join)\n"
                           "om# = MatMul(cr#, o#) oa# = Add(om#, ob#) y# = Add(h#, oa#)\n"
                           "l# = LayerNormalization<axis = -1>(y#, ls#, lz#)\n"
                           "um# = MatMul(l#, up#) ua# = Add(um#, upb#)\n"
                           "gd# = Div(ua#, root) ge# = Erf(gd#) gp# = Add(ge#, one) gm# = Mul(ua#, "
                           "gp#)\n"
                           "gh# = Mul(gm#, half) dm# = MatMul(gh#, down#) da# = Add(dm#, downb#)\n"
                           "h@ = Add(y#, da#)\n"},
     NULL},

    /* a shape is taken apart and put together again for each view */
    {"shapes",
     9,
     SCALE_VECTOR("b#") "\n",
     {NULL, "i# = Constant<value = int64 {0}>() z# = Constant<value = int64[1] {0}>()\n"
            "e# = Constant<value = int64[1] {-1}>() s# = Shape(h#) d# = Gather(s#, i#)\n"
            "u# = Unsqueeze(d#, z#) c# = Concat<axis = 0>(u#, e#) r# = Reshape(h#, c#)\n"
            "h@ = Mul(r#, b#)\n"},
     NULL},

    {"calls",
     4,
     SCALE_LINEAR,
     {NULL, "h@ = lib.F$(h#, w#, b#)\n"},
     "<domain: \"lib\", opset_import: [\"\" : 20]> F# (x, w, b) => (y)\n"
     "{ m = MatMul(x, w) a = Add(m, b) t = Tanh(a) y = Add(t, x) }\n"},
};
enum { SCALE_FORMS = sizeof scale_forms / sizeof scale_forms[0] };

static inline void scale_put(FILE *f, const char *text, size_t number, size_t count)
{
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '#' || *c == '@')
            fprintf(f, "%zu", number + (*c == '@'));
        else if (*c == '$' || *c == '~')
            fprintf(f, "%zu", *c == '$' ? number / 2 : count - number);
        else
            fputc(*c, f);
    }
}

/* A forward model of about `nodes` nodes: x in, y out, both [2, 4]. */
static inline void scale_write(FILE *f, const scale_form *form, size_t nodes)
{
    size_t count = nodes / form->nodes;
    fprintf(f, "<ir_version: 10, opset_import: [\"\" : 20, \"lib\" : 1]>\n"
               "g (float[2,4] x) => (float[2,4] y)\n<float scale = {.7}, float root = {1.4}, "
               "float one = {1}, float half = {.5},\n"
               "int64[3] split = {2,2,2}, int64[2] join = {2,4}");
    for (size_t i = 0; i < count; i++)
        scale_put(f, form->weights, i, count);
    fprintf(f, ">\n{\nh0 = Identity(x)\n");
    for (size_t k = 0; k < sizeof form->text / sizeof *form->text; k++)
        for (size_t i = k % 2 == 0 ? count : 0; form->text[k] != NULL && i < count + (k % 2 == 0);
             i++)
            scale_put(f, form->text[k], i, count);
    scale_put(f, "y = Identity(h#)\n}\n", count, count);
    for (size_t i = 0; form->calls != NULL && i < (count + 1) / 2; i++)
        scale_put(f, form->calls, i, count);
}
