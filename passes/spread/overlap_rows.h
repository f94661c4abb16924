/* overlap_rows.h: pass overlap exchanges early what is there early of a table's gradient. */
#pragma once

#include "rewrite/rewrite.h"

/* Of a table that is looked up in and multiplied by. No bit changes. */
ebb_status ebb_overlap_rows(ebb_edit *e);
