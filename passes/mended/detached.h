/* detached.h: detach() that an exporter dropped, put back where its notes say what was detached. */
#pragma once

#include "onnx/graph/graph.h"

/* Ends the note of such a node, "%detach_3 : restored". */
#define EBB_DETACH_RESTORED " : restored"

/* In files of the dynamo exporter; see detached.c. Values of the graph stay what they are. */
ebb_status ebb_detached_restore(ebb_graph *g, ebb_arena *scratch);

/* What is lost for good: a sentence each, and the first node of which it speaks; text NULL: nothing of the kind. */
enum { EBB_DETACH_LOSSES = 3 };

typedef struct ebb_detach_loss {
    ebb_node first;
    char *text;
} ebb_detach_loss;

ebb_status ebb_detached_tell(ebb_detach_loss told[EBB_DETACH_LOSSES], const ebb_graph *g,
                             ebb_arena *arena);
