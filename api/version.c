/* version.c: the version of the library that is linked, whatever header it was compiled with. */
#include "ebb.h"

const char *ebb_version(void)
{
    return EBB_VERSION;
}

int ebb_version_number(void)
{
    return EBB_VERSION_NUMBER;
}
