/* shards.h: states of which each process of a group has its part (pass shard): whole in a checkpoint.
 * What a part is: onnx/graph/place.h.
 */
#pragma once

#include "exec/run/program.h"

/* Whether an initializer is a part. */
bool ebb_is_shard(const ebb_program *program, ebb_value v);
/* Whether a state of the program is there in parts; of this role, or of any (NONE). */
bool ebb_has_shards(const ebb_program *program, ebb_role role);

/* What a checkpoint has of the initializer: its type; or, where it is a part, that of the whole.
 * EBB_REJECTED: the metadata does not go with the part. */
ebb_status ebb_whole_type(ebb_type *type, const ebb_program *program, ebb_value v);

/* Of all processes at once: t, a part, becomes the whole in scratch memory of rank 0, or of all; others get no
 * data. Nothing happens to what is no part. */
ebb_status ebb_shards_gather(ebb_named *t, ebb_program *program, ebb_value v, bool all,
                             ebb_arena *scratch);

/* ebb_program_set with this process's part of t. */
ebb_status ebb_shards_set(ebb_program *program, ebb_value v, const ebb_named *t,
                          ebb_arena *scratch);
