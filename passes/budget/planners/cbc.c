/* cbc.c: see cbc.h. */
#include "passes/budget/planners/cbc.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

static ebb_cbc opened;
static bool is_there;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* dlsym() gives a data pointer, which C does not convert to a function: the bytes are copied. */
static bool found(void *library, void *field, const char *name)
{
    void *symbol = dlsym(library, name);
    memcpy(field, &symbol, sizeof symbol);
    return symbol != NULL;
}

static void open_it(void)
{
    void *library = dlopen("libCbcSolver.so.3", RTLD_NOW | RTLD_LOCAL);
    is_there = library != NULL;
#define FIND(result, field, name, parameters) \
    is_there = is_there && found(library, &opened.field, #name);
    EBB_CBC_CALLS(FIND)
#undef FIND
}

ebb_status ebb_cbc_open(const ebb_cbc **cbc)
{
    (void)pthread_once(&once, open_it);
    *cbc = &opened;
    return is_there ? NULL
                    : ebb_hint(ebb_error(EBB_UNSUPPORTED,
                                         "the solver of 'ilp' is not here: no libCbcSolver.so.3"),
                               "install coinor-libcbc3, or use another planner");
}
