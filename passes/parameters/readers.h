/* readers.h: what reads an initializer, through what only moves it, and what the file says of those nodes. */
#pragma once

#include "passes/parameters/weights.h"

typedef struct ebb_readers { /* what reads a tensor, through what only moves it */
    bool weight;             /* an operator takes it as its weight */
    bool product;            /* and such a one may take two activations as well */
    bool norm;               /* or normalises */
    bool other;              /* one that is no table to look up in */
    bool state;              /* a product with another initializer, as of what a cell begins with */
    bool arithmetic;         /* a sum or a product of elements */
    bool added;              /* a sum */
    bool bias;               /* a product of matrices has it added to it */
    bool scales;             /* a product with what is computed */
    bool less;               /* it is subtracted or divided by */
    bool resized;            /* it is interpolated */
    bool input;              /* that, and from what comes in */
    bool noted;              /* the exporter notes what they stand for */
    bool parameter;          /* and that it is a parameter */
    bool gone;               /* which the file does not have under its name */
    bool buffer;             /* or a buffer, and none beside it */
    bool owner;              /* their module has a parameter that the file has lost */
    bool rule;               /* and none that is called a weight: one was computed of others */
    bool layer;              /* or a module within it weight and bias */
    bool alone;              /* they compute a function of it, or normalise it, in the run */
    bool behind;             /* they scale or shift what a norm gives */
    bool normed;             /* they stand for a batch norm */
    ebb_noted_fold fold;     /* and what went into it before */
    /* of a TorchScript file, which has no notes */
    bool whole;  /* one of them is a whole layer */
    bool made;   /* one of them is a layer that would have left its weight the name */
    bool code;   /* one of them looks up what was found to be nearest, as in a codebook */
    bool matrix; /* one of them is a product or a convolution */
    bool scale;  /* one of them is of a module that scales and shifts alone */
} ebb_readers;

/* v: an initializer. j: is not changed. */
ebb_readers ebb_readers_of(ebb_judge *j, ebb_value v);
