/* cache.h: plans on disk, so that a kernel is compiled once a machine and not once a process.
 *
 *     $EBB_CACHE, else $XDG_CACHE_HOME/ebb, else $HOME/.cache/ebb
 *         cudnn-91900/h100/5d41402abc4b2a76-0.json     version / device / hash of graph and rules
 *
 * A file holds the graph's text, and is believed only where that is the same. It is written beside
 * its place and renamed into it. What is damaged, of another version, or cannot be written is as if
 * it were not there: a cache never fails a run.
 */
#ifndef EBB_KERNELS_CUDA_LIBRARY_CUDNN_CACHE_H
#define EBB_KERNELS_CUDA_LIBRARY_CUDNN_CACHE_H

#include "kernels/cuda/library/cudnn/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The first plan that the rules admit, from the cache or made and put there. cached may be NULL. */
ebb_status ebb_cudnn_plan_cached(ebb_cudnn_plan **plan, const ebb_cudnn_graph *graph,
                                 const ebb_cudnn_target *target, const ebb_cudnn_rules *rules,
                                 bool *cached);

/* This one is what plan_cached() gives from now on. */
void ebb_cudnn_plan_keep(const ebb_cudnn_plan *plan, const ebb_cudnn_graph *graph,
                         const ebb_cudnn_target *target, const ebb_cudnn_rules *rules);

/* Where it would lie: for tests and for error messages. EBB_IO where the environment names no
 * folder. */
ebb_status ebb_cudnn_cache_path(char *path, size_t size, const ebb_cudnn_graph *graph,
                                const ebb_cudnn_target *target, const ebb_cudnn_rules *rules);

#ifdef __cplusplus
}
#endif
#endif
