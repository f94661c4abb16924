/* link.h: how the processes of a step reach each other: what a message takes, and a byte; and how they slow each other.
 *
 *     an exchange with n others takes   n * message_ns + bytes sent * byte_ns
 *     what each computes takes          crowd times as long as it does alone
 *
 * A model bears it in the metadata "ebb.link", as `ebb_link_parse` reads numbers: pass data-parallel writes what it is told, pass
 * `cost` what was measured, where none is there. Without it an exchange costs what a copy does. Only a link that was
 * measured has a third number, the crowd, which is in the times that nodes bear ("ebb.cost_ns") and in estimates of others'
 * (node_time.h): processes behind a link that was told are on machines of their own.
 */
#pragma once

#include "onnx/graph/graph.h"

#include <jansson.h>

typedef struct ebb_link {
    double message_ns, byte_ns;
    double crowd; /* 0: of a link that was told */
} ebb_link;

/* What steps took one process, and each of so many that computed at once. */
typedef struct ebb_crowd {
    double alone_ns, together_ns; /* 0: not measured */
    int threads;                  /* of each */
} ebb_crowd;

/* The link that the graph's model bears; false: none. */
bool ebb_link_of(ebb_link *link, const ebb_graph *g);
ebb_status ebb_link_set(ebb_graph *g, const ebb_link *link);
/* Of the link that the model bears; 1 where none is known. */
double ebb_link_crowd(const ebb_graph *g);
/* From text, as ebb_link_parse has it. */
ebb_status ebb_link_set_text(ebb_graph *g, const char *text);

/* {"us": 30, "gb": 1.17}, and "crowd" where it is known; read: false where numbers of a link are not there. */
json_t *ebb_link_json(const ebb_link *link);
bool ebb_link_read(ebb_link *link, const json_t *json);
