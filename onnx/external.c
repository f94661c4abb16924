/* external.c: find a model's external weights without being led out of its folder. */
#include "onnx/map.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

/* "" and ".." components, and a leading "/", could lead out; ".." is refused wherever it stands. */
static const char *unsafe_because(const char *location)
{
    if (location[0] == '\0')
        return "is empty";
    if (location[0] == '/')
        return "is an absolute path";
    if (strchr(location, '\\') != NULL)
        return "holds a backslash; folders are separated by '/'";
    for (const char *part = location; part != NULL; part = strchr(part, '/')) {
        part += *part == '/';
        size_t length = strcspn(part, "/");
        if (length == 2 && part[0] == '.' && part[1] == '.')
            return "leads out of the model's folder";
    }
    return strlen(location) >= PATH_MAX ? "is too long" : NULL;
}

static bool lies_inside(const char *file, const char *folder)
{
    size_t length = strlen(folder);
    if (strcmp(folder, "/") == 0)
        return true;
    return strncmp(file, folder, length) == 0 && file[length] == '/';
}

static ebb_status add_absent(ebb_mapping **list)
{
    ebb_mapping *m = ebb_alloc(sizeof *m);
    if (m == NULL)
        return ebb_error_memory();
    *m = (ebb_mapping){.older = *list, .absent = true};
    *list = m;
    return NULL;
}

ebb_status ebb_external_open(ebb_mapping **list, const ebb_mapping **mapping, const char *folder,
                             const char *location)
{
    for (ebb_mapping *m = *list; m != NULL; m = m->older)
        if (m->name != NULL && strcmp(m->name, location) == 0) {
            *mapping = m;
            return NULL;
        }
    const char *why = unsafe_because(location);
    if (why != NULL)
        return ebb_error(EBB_REJECTED, "external data location '%.100s' %s", location, why);

    char inside[PATH_MAX], joined[2 * PATH_MAX], resolved[PATH_MAX];
    bool there = folder != NULL && realpath(folder[0] != '\0' ? folder : ".", inside) != NULL;
    if (there) {
        (void)snprintf(joined, sizeof joined, "%s/%s", inside, location);
        there = realpath(joined, resolved) != NULL;
        if (!there && errno != ENOENT && errno != ENOTDIR)
            return ebb_error_io(location, "resolving external data");
    }
    if (there && !lies_inside(resolved, inside))
        return ebb_error(EBB_REJECTED,
                         "external data location '%.100s' leads out of the model's folder",
                         location);
    EBB_TRY(there ? ebb_mapping_open(list, resolved) : add_absent(list));
    if ((*list)->shared)
        return ebb_hint(ebb_error(EBB_REJECTED,
                                  "external data location '%.100s' is a hard link: the same bytes "
                                  "have a name elsewhere",
                                  location),
                        "a copy (`cp`) has but one name");
    (*list)->name = location;
    *mapping = *list;
    return NULL;
}
