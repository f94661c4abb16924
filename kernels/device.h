/* device.h: where the bytes of a program lie and who does its work, as exec sees it.
 *
 * A program opens a queue: work goes in, is done in order, and is waited for once a step. On the
 * host every function does its work at once; on a GPU only read() and end() wait.
 *
 *     open -> allocate -> write ... -> { begin -> run of each call -> end } -> read ... -> close
 *
 * A device that can record runs the calls one by one in a queue's first step, whatever its number:
 * modules load, libraries settle. It records them in the second and replays that record from then
 * on: so a kernel may not keep a value in its arguments that
 * changes from step to step. What changes lies in device memory (ebb_call.step is for the host).
 */
#pragma once

#include "onnx/words/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum ebb_fault_kind {
    EBB_FAULT_RANGE, /* it read `value`, an index or a count, where low <= value < high is right */
    EBB_FAULT_DIVISOR, /* among integers, its divisor at position `value` is zero */
} ebb_fault_kind;

/* What a kernel that cannot return a status says of the call at `position`. The least position wins,
 * so that the report does not depend on the order of threads. */
typedef struct ebb_fault {
    bool there;
    ebb_fault_kind kind;
    uint32_t position;
    int64_t value, low, high;
} ebb_fault;

typedef struct ebb_device_facts {
    char name[256];
    int version;                      /* 900: sm_90; 0 for the host */
    int driver, runtime;              /* as CUDA numbers them: 13000 */
    uint64_t total_bytes, free_bytes; /* of device memory, now */
    uint64_t process_bytes;           /* of it, what this process holds; 0: not known */
    uint64_t allocated_bytes;         /* by this queue */
} ebb_device_facts;

/* To another place and back, beside the step: nanoseconds of a byte. */
typedef struct ebb_way {
    double alone, beside; /* that a move takes while the step stands still, and while it computes */
    double taken;         /* by which it makes the step longer: who moves may be who computes */
} ebb_way;

/* What a machine does at best in a nanosecond, and what each node costs it beside. */
typedef struct ebb_rates {
    double products16, products32; /* operations of products, by the bits of what they multiply */
    double operations;             /* of all other nodes */
    double bytes;                  /* read or written */
    double node_ns;
    ebb_way disk, link; /* link: to the host's memory, of another device */
} ebb_rates;

typedef struct ebb_device {
    const char *name; /* "host", "cuda" */
    uint32_t align;   /* bytes: each tensor of a block, and each workspace, begins so */
    /* EBB_DEVICE: there is none, and why; what to do. */
    ebb_status (*open)(void **queue);
    void (*close)(void *queue); /* NULL is fine */
    /* EBB_RUNTIME: so many bytes cannot be had; says how many are free. */
    ebb_status (*allocate)(void *queue, size_t bytes, void **block);
    void (*release)(void *queue, void *block);
    ebb_status (*write)(void *queue, void *to, const void *from, size_t bytes); /* from the host */
    ebb_status (*read)(void *queue, void *to, const void *from, size_t bytes);  /* to it: waits */
    ebb_status (*copy)(void *queue, void *to, const void *from, size_t bytes);
    /* Before the calls of step number `step`. *replays: a record will do them, do not run them. */
    ebb_status (*begin)(void *queue, uint64_t step, bool *replays);
    ebb_status (*end)(void *queue, ebb_fault *fault); /* after them: waits */
    /* In place of end() where a call failed, or after an end() that did: waits. True: the calls
     * were only being recorded, and that failed. The record is gone, none will be made again, and
     * the step is to begin anew. */
    bool (*abandon)(void *queue);
    /* Profiling: never record; a mark before the first call and after each. between: ns from mark
     * k to mark k + 1, after end(). NULL on the host, where a clock does. */
    ebb_status (*mark)(void *queue);
    int64_t (*between)(void *queue, uint32_t k);
    /* Work for the host in the midst of the device's; NULL where the device is the host. stage:
     * memory of the host that fetch (to it) and put (from it) copy, in order with all other work
     * and without waiting. visit: work(context, number of the step) when all before it is done;
     * what comes after waits. It may not ask the device; its error is end()'s. All but staging may
     * be recorded. */
    ebb_status (*stage)(void *queue, size_t bytes, void **memory);
    void (*unstage)(void *queue, void *memory);
    ebb_status (*fetch)(void *queue, void *to, const void *from, size_t bytes);
    ebb_status (*put)(void *queue, void *to, const void *from, size_t bytes);
    ebb_status (*visit)(void *queue, ebb_status (*work)(void *context, uint64_t step),
                        void *context);
    /* Two ways to the host's memory beside the work, one there and one back, each in order; NULL where the
     * device is the host. depart: what fetch, put and visit are given until land() goes that way, and begins
     * when all is done that the queue was given before; it reads or fills `memory` of the device. A kernel of Wait
     * puts the work behind it. Recorded with the step, in which all is waited for. */
    ebb_status (*depart)(void *queue, bool to_host, const void *memory);
    ebb_status (*land)(void *queue);
    ebb_status (*facts)(void *queue, ebb_device_facts *facts); /* queue NULL: before open */
    const ebb_rates *(*rates)(void);                           /* needs no device; static */
    bool is_host; /* pointers into a block may be read and written directly */
} ebb_device;

extern const ebb_device ebb_device_host; /* device.c */
