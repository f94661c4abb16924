/* functions.h: bodies of functions in the place of calls of them. */
#pragma once

#include "rewrite/rewrite.h"

/* Puts the body of function f, which need not be among the model's but has its names, in the place
 * of a call of it. Outputs keep their names; types are not inferred. */
ebb_status ebb_inline_call(ebb_edit *e, const ebb_function *f, ebb_node call);

/* Puts in the bodies of all functions, and what other runtimes' operators stand for. */
ebb_status ebb_inline_all(ebb_edit *e);
