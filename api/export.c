/* export.c: gives libebb a translation unit of its own; its functions come from the folders. */
#include "ebb.h"

const char *ebb_version(void)
{
    return EBB_VERSION;
}
