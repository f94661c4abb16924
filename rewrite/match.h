/* match.h: a rule's pattern compiled, and matched at a node. Only engine.c uses it. */
#pragma once

#include "onnx/text/text.h"
#include "rewrite/rewrite.h"

enum { EBB_PATTERN_NODES = 24, EBB_PATTERN_NAMES = 48 };

typedef struct ebb_pattern {
    ebb_text_node nodes[EBB_PATTERN_NODES]; /* the last one is the root */
    uint32_t node_count;
    const char *names[EBB_PATTERN_NAMES]; /* of values, in order of appearance */
    uint32_t name_count;
    /* By node: index in names of each input and output; EBB_PATTERN_NAMES where absent or a number.
     */
    uint8_t *in[EBB_PATTERN_NODES], *out[EBB_PATTERN_NODES];
} ebb_pattern;

/* Reads a node list. With matching, the last node must depend on all others, each of which stands
 * before its users: EBB_USAGE says what is wrong with the rule. */
ebb_status ebb_pattern_read(ebb_pattern *p, const char *text, ebb_arena *arena);
ebb_status ebb_pattern_check(const ebb_pattern *p);

typedef struct ebb_binding_set { /* what a match has bound so far */
    ebb_value values[EBB_PATTERN_NAMES];
    ebb_node nodes[EBB_PATTERN_NODES];
} ebb_binding_set;

/* Whether the pattern fits with its root at n. Values inside may still be read outside. */
bool ebb_pattern_fits(const ebb_pattern *p, const ebb_graph *g, ebb_node n, ebb_binding_set *found);

/* NULL, or why the matched nodes cannot be taken out. */
const char *ebb_pattern_held(const ebb_pattern *p, const ebb_graph *g,
                             const ebb_binding_set *found);
