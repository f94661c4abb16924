/* code_sites.h: the saved tensors that could be kept as codes, and who reads them. */
#pragma once

#include "passes/memory/decode.h"

typedef struct ebb_code_site {
    ebb_value root;
    ebb_node node; /* for reports: its maker, or the first reader */
    const ebb_use *reads;
    uint32_t count;       /* of reads */
    int64_t elements;     /* 0: not known */
    int64_t bytes, masks; /* what it takes; what masks for readers that ask but for a sign take */
    bool exponent;        /* a reader takes exponents of it: few bits would blow up */
    const char *refused;  /* why it must be left as it is, as a clause; or NULL */
} ebb_code_site;

typedef struct ebb_code_sites {
    ebb_reads reads;
    ebb_code_site *list; /* in the order in which they are made */
    size_t count;
} ebb_code_sites;

/* All float tensors that the backward reads, statistics of norms excepted, whose names fit `only`
 * (NULL: all). Into e's scratch. */
ebb_status ebb_code_sites_find(ebb_code_sites *sites, ebb_edit *e, const char *only);

/* Every reader of the site gets what `decode` makes in its shape; those that ask but for a sign, a
 * mask. The site counts as applied. */
ebb_status ebb_code_site_decode(ebb_edit *e, const ebb_code_site *site, ebb_decode_fn decode,
                                void *context);

/* Of an operand, the product of its dims before *axis is its rows: the first that are more than
 * one. False: it has no such dim, or nothing but rows; all of it is one row, *axis 0. */
bool ebb_code_rows(const ebb_type *type, int *axis, int64_t *rows);

/* The root mean square of what stochastic rounding to so many bits does to a normal distribution in
 * groups of 256, whose range is 5.66 sigma on average; in sigmas. */
double ebb_code_error(int bits);

/* Longer step: encoding `bytes` of `elements` once, decoding them for so many readers. */
double ebb_code_ns(const ebb_graph *g, int64_t elements, int64_t bytes, int64_t codes,
                   uint32_t readers);
