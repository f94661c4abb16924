/* api.h: where the two wings meet. Implements the part of ebb.h that needs both: opening and
 * saving, rewriting with its report, and the questions that are answered as JSON.
 */
#ifndef EBB_API_API_H
#define EBB_API_API_H

#include <jansson.h>

#include "rewrite/rewrite.h"

/* Text of a JSON object for the caller to ebb_release; the object is released. */
ebb_status ebb_json_text(char **text, json_t *object);

json_t *ebb_report_to_json(const ebb_report *report);

#endif
