/* renamed.h: the names of runtime.h under which host/runtime.c stands below fake_runtime.c, where
 * runtime.cu has the names themselves.
 *
 *     kernels -> ebb_gpu_launch   runtime.cu
 *             -> cudaLaunchKernel fake_runtime.c   fails here when a test says so
 *             -> ebb_host_launch  runtime.c
 */
#pragma once

#define ebb_gpu_open ebb_host_open
#define ebb_gpu_open_another ebb_host_open_another
#define ebb_gpu_close ebb_host_close
#define ebb_gpu_allocate ebb_host_allocate
#define ebb_gpu_release ebb_host_release
#define ebb_gpu_shared ebb_host_both
#define ebb_gpu_copy ebb_host_copy
#define ebb_gpu_clear ebb_host_clear
#define ebb_gpu_wait ebb_host_wait
#define ebb_gpu_done ebb_host_done
#define ebb_gpu_stage ebb_host_stage
#define ebb_gpu_unstage ebb_host_unstage
#define ebb_gpu_copy_later ebb_host_copy_later
#define ebb_gpu_visit ebb_host_visit
#define ebb_gpu_launch ebb_host_launch
#define ebb_gpu_record ebb_host_record
#define ebb_gpu_recorded ebb_host_recorded
#define ebb_gpu_replay ebb_host_replay
#define ebb_gpu_forget ebb_host_forget
#define ebb_gpu_mark ebb_host_mark
#define ebb_gpu_between ebb_host_between
#define ebb_gpu_unmark ebb_host_unmark
#define ebb_gpu_follow ebb_host_follow
#define ebb_gpu_facts ebb_host_facts
