/* settings.h: what a step's file sets and no step changes, though it counts as a state: the learning
 * rates ebb.lr, ebb.lr.1 ..., which a program may set between steps; and the schedule that they follow.
 *
 * A checkpoint says what they were in its step's file, {"ebb.lr":0.001,"schedule":"..."}. Where the file
 * of the program that loads it says another rate, somebody has changed it there: that one counts. Else
 * the checkpoint's own, which a program may have set, goes on.
 */
#pragma once

#include "exec/data/data.h"
#include "exec/run/program.h"

/* As JSON text, for free(). NULL: no memory. */
char *ebb_settings_text(const ebb_program *program);

/* Which of the program's states keep the value that they have: keeps, by initializer. note: a sentence
 * in scratch about what is not as the checkpoint has it, or NULL. said NULL: the checkpoint does not
 * tell; then a rate that differs is refused (EBB_USAGE). */
ebb_status ebb_settings_compare(bool *keeps, const char **note, const ebb_program *program,
                                const ebb_data *there, const char *said, ebb_arena *scratch);
