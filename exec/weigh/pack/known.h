/* known.h: packings that this process has found before.
 *
 * A step is packed for an estimate, for the plan that is shown, and when it is compiled; `fit` comes to
 * the same step from several sides. A packing depends on the intervals and options alone, so the
 * search is made once. A few megabytes at most are kept, the oldest go first.
 */
#ifndef EBB_EXEC_WEIGH_PACK_KNOWN_H
#define EBB_EXEC_WEIGH_PACK_KNOWN_H

#include "exec/weigh/pack.h"

/* May the packing of these be kept? Not where places are fixed, the clock decides, or it is large. */
bool ebb_known_may(size_t count, const ebb_pack_options *options);

/* Fills packing and offsets from a packing of equal intervals under equal options; false: none. */
bool ebb_known_find(ebb_packing *packing, ebb_interval *intervals, size_t count,
                    const ebb_pack_options *options);

/* Keeps one that was found. Where memory is short it is not kept. */
void ebb_known_keep(const ebb_packing *packing, const ebb_interval *intervals, size_t count,
                    const ebb_pack_options *options);

#endif
