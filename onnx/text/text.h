/* text.h: the pieces of the ONNX text reader that others build on: tokens, and one node as written.
 *
 * Whole models and functions are in file.h. Rules (rewrite/match.c) read their patterns with this.
 */
#pragma once

#include "onnx/graph/graph.h"

typedef enum ebb_token {
    EBB_TOKEN_END = 0,
    EBB_TOKEN_NAME,   /* letters, digits, underscores; not quoted */
    EBB_TOKEN_QUOTED, /* "..." with \" and \\ */
    EBB_TOKEN_INT,
    EBB_TOKEN_FLOAT,
    EBB_TOKEN_ARROW, /* => */
    EBB_TOKEN_SIGN,  /* one character: text[0] */
} ebb_token;

typedef struct ebb_text_reader {
    const char *start, *at; /* the text, and where the next token starts */
    size_t bytes;           /* of the whole text */
    ebb_token token;        /* the present token */
    const char *word;       /* its text, unescaped; arena memory */
    size_t word_bytes;
    size_t line, column; /* where it starts, from 1 */
    size_t next_line;
    const char *line_start;
    ebb_arena *arena;          /* for words and attributes */
    ebb_model *model;          /* for symbols and subgraphs; NULL: there are none */
    ebb_graph *graph;          /* the graph being read, the outer one of subgraphs */
    const ebb_import *imports; /* of the function being read; NULL: the model's */
    size_t import_count;
    int depth;    /* of graphs in attributes */
    bool numbers; /* numbers may stand as inputs of nodes, as patterns have them */
} ebb_text_reader;

typedef struct ebb_text_operand { /* an input or output as written */
    const char *name;             /* "": absent; NULL: a number */
    double number;
} ebb_text_operand;

typedef struct ebb_text_node {
    const char *name, *domain, *op_name, *overload; /* "" where not given */
    ebb_text_operand *in, *out;
    size_t in_count, in_capacity, out_count, out_capacity;
    ebb_attr *attr;
    size_t attr_count, attr_capacity;
} ebb_text_node;

/* "floats": of an attribute; NULL: the text has no word for it. */
const char *ebb_text_attr_word(ebb_attr_type type);

/* Starts at the first token. */
ebb_status ebb_text_start(ebb_text_reader *r, const char *text, ebb_arena *arena);
ebb_status ebb_text_next(ebb_text_reader *r);

/* An error at the present token: "line 3:14: expected WHAT, found 'x'". */
ebb_status ebb_text_expected(const ebb_text_reader *r, const char *what);
ebb_status ebb_text_error(const ebb_text_reader *r, const char *format, ...) EBB_PRINTF(2, 3);

bool ebb_text_is(const ebb_text_reader *r, char sign);
ebb_status ebb_text_expect(ebb_text_reader *r, char sign, const char *where);
/* A name, quoted or not, into *name. */
ebb_status ebb_text_name(ebb_text_reader *r, const char **name, const char *what);

/* Goes on at ',' and stops at `close`, both taken. */
ebb_status ebb_text_next_in_list(ebb_text_reader *r, char close, const char *where, bool *more);

/* One node: "[name] y, z = domain.Op <attributes> (a, b)". */
ebb_status ebb_text_node_read(ebb_text_reader *r, ebb_text_node *node);

/* One "name: type = value" added to the node's. */
ebb_status ebb_text_one_attr(ebb_text_reader *r, ebb_text_node *node);

/* An attribute's value after '='; attr->type says which is wanted, UNDEFINED: whichever is there.
 * In text_parse.c: graphs. */
ebb_status ebb_text_attr_read(ebb_text_reader *r, ebb_attr *attr);
ebb_status ebb_text_type_read(ebb_text_reader *r, ebb_type *type);  /* at its first word */
ebb_status ebb_text_tensor_read(ebb_text_reader *r, ebb_tensor *t); /* data after its type: {...} */
bool ebb_text_at_type(const ebb_text_reader *r);                    /* float, seq ... */
ebb_status ebb_text_graph_read(ebb_text_reader *r,
                               ebb_graph **graph); /* name (...) => (...) {...} */

/* Whether a word would be read as a type, and so must be quoted as a name. */
bool ebb_text_is_type_word(const char *word);
