/* link.h: how the processes of a step reach each other: what a message takes, and a byte.
 *
 *     an exchange with n others takes   n * message_ns + bytes sent * byte_ns
 *
 * A model bears it in the metadata "ebb.link", as `ebb_link_parse` reads numbers: pass data-parallel writes what it is told, pass
 * `cost` what was measured, where none is there. Without it an exchange costs what a copy does.
 */
#pragma once

#include "onnx/graph/graph.h"

#include <jansson.h>

typedef struct ebb_link {
    double message_ns, byte_ns;
} ebb_link;

/* The link that the graph's model bears; false: none. */
bool ebb_link_of(ebb_link *link, const ebb_graph *g);
ebb_status ebb_link_set(ebb_graph *g, const ebb_link *link);
/* From text, as ebb_link_parse has it. */
ebb_status ebb_link_set_text(ebb_graph *g, const char *text);

/* {"us": 30, "gb": 1.17}; read: false where numbers of a link are not there. */
json_t *ebb_link_json(const ebb_link *link);
bool ebb_link_read(ebb_link *link, const json_t *json);
