/* json.h: a JSON value as text that ebb_release takes. */
#pragma once

#include <jansson.h>

#include "onnx/words/arena.h"

/* Text in memory of ebb_alloc. root NULL: jansson had no memory. The root stays the caller's. */
ebb_status ebb_json_dump(const json_t *root, char **text);
