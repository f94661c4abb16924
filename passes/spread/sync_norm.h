/* sync_norm.h: batch norm whose statistics are those of all processes' rows. */
#pragma once

#include "rewrite/rewrite.h"

/* Batch norms in training, and their gradients, as the sums that they are made of: what reads such a sum
 * and rows is given the group's (batch_split.h). Before the batch is split: the counts are the whole batch's. */
ebb_status ebb_sync_norms(ebb_edit *e);
