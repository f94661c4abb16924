/* json.h: a JSON value as text that ebb_release takes. */
#ifndef EBB_EXEC_JSON_H
#define EBB_EXEC_JSON_H

#include <jansson.h>

#include "onnx/words/arena.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Text in memory of ebb_alloc. root NULL: jansson had no memory. The root stays the caller's. */
ebb_status ebb_json_dump(const json_t *root, char **text);

#ifdef __cplusplus
}
#endif
#endif
