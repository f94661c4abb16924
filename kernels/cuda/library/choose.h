/* choose.h: the fastest of some candidates that compute the same thing. It knows no clock and no
 * device: whoever asks has both, and tests have neither.
 *
 *     round 0   a b c d    not counted: kernels are loaded
 *     round 1   a b c d    each candidate's time is the least of these; what else the device does
 *     ...                  in one round slows all of them
 *     choice               the first that is within a twentieth of the least
 */
#ifndef EBB_KERNELS_CUDA_LIBRARY_CHOOSE_H
#define EBB_KERNELS_CUDA_LIBRARY_CHOOSE_H

#include "onnx/words/status.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { EBB_CHOOSE_MOST = 8, EBB_CHOOSE_ROUNDS = 4 };

/* Runs a candidate once; *ns: how long it took. An error: it is out of the race, not the race over.
 */
typedef ebb_status (*ebb_choose_trial)(void *context, int candidate, int64_t *ns);

/* 0 <= the choice < count <= EBB_CHOOSE_MOST. Candidates stand in the order of someone's guess, the
 * best first, so that noise alone changes no choice. -1 where none could be run. */
int ebb_choose(int count, ebb_choose_trial trial, void *context);

#ifdef __cplusplus
}
#endif
#endif
