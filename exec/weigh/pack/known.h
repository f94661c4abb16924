/* known.h: packings that this process has found before.
 *
 * A step is packed for an estimate, for the plan that is shown, and when it is compiled; `fit` comes to
 * the same step from several sides. A packing depends on the intervals and options alone, so the
 * search is made once. A few megabytes at most are kept, the oldest go first.
 */
#pragma once

#include "exec/weigh/pack.h"

/* Fills packing and offsets from a packing of equal intervals under equal options; false: none. */
bool ebb_known_find(ebb_packing *packing, ebb_interval *intervals, size_t count,
                    const ebb_pack_options *options);

/* Keeps one that was found; not where places are fixed, the clock decides, it is large, or memory is short. */
void ebb_known_keep(const ebb_packing *packing, const ebb_interval *intervals, size_t count,
                    const ebb_pack_options *options);
