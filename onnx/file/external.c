/* external.c: find a model's external weights without being led out of its folder.
 *
 *     "a/w.bin" -- by text: no "..", no "/..." --> openat2(folder, beneath) --> mapped as opened
 *
 * A name is looked up once. The kernel itself refuses to leave the folder on the way (openat2,
 * RESOLVE_BENEATH), so that it does not help to change a link between a check and the opening.
 * Where there is no such call, each part of the name is opened from the one before it, and a link
 * is refused wherever it leads.
 */
#define _GNU_SOURCE // O_PATH

#include "onnx/words/map.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__has_include)
#if __has_include(<linux/openat2.h>) && defined(SYS_openat2)
#include <linux/openat2.h>
#define HAS_OPENAT2
#endif
#endif

/* A pipe must not make us wait. */
enum { READING = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY };

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

/* Part by part, through no link. errno is EXDEV where one stands in the way, else as openat has it.
 */
static int open_through_folders(int folder, const char *location)
{
    int at = dup(folder);
    while (at >= 0) {
        char part[NAME_MAX + 1];
        location += strspn(location, "/");
        size_t length = strcspn(location, "/");
        bool last = location[length] == '\0';
        struct stat facts;
        if (length > NAME_MAX) {
            close(at);
            errno = ENAMETOOLONG;
            return -1;
        }
        (void)snprintf(part, sizeof part, "%.*s", (int)length, location);
        int next = openat(
            at, part, last ? READING | O_NOFOLLOW : O_PATH | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC);
        int why = errno;
        if (next < 0 && fstatat(at, part, &facts, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISLNK(facts.st_mode))
            why = EXDEV;
        close(at);
        errno = why;
        if (last || next < 0)
            return next;
        at = next;
        location += length;
    }
    return -1;
}

/* The file below the folder that has this name now; -1 and errno, which is EXDEV where the name
 * leads out. */
static int open_beneath(int folder, const char *location)
{
#ifdef HAS_OPENAT2
    const struct open_how how = {.flags = (unsigned)READING,
                                 .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    for (int tries = 0; tries < 64; tries++) { // again where a folder was moved meanwhile
        long fd = syscall(SYS_openat2, folder, location, &how, sizeof how);
        if (fd >= 0)
            return (int)fd;
        if (errno == ENOSYS || errno == EPERM) // an old kernel, or a container's filter
            break;
        if (errno != EAGAIN)
            return -1;
    }
#endif
    return open_through_folders(folder, location);
}

static ebb_status add_absent(ebb_mapping **list)
{
    ebb_mapping *m = ebb_alloc(sizeof *m);
    EBB_GOT(m);
    *m = (ebb_mapping){.older = *list, .absent = true};
    *list = m;
    return NULL;
}

/* In front of the list: the file's mapping, or that it is absent. */
static ebb_status map_beneath(ebb_mapping **list, const char *folder, const char *location)
{
    int at = folder == NULL
                 ? -1
                 : open(folder[0] != '\0' ? folder : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (at < 0)
        return add_absent(list);
    int fd = open_beneath(at, location);
    int why = errno;
    close(at);
    if (fd >= 0)
        return ebb_mapping_take(list, fd, location);
    if (why == ENOENT || why == ENOTDIR)
        return add_absent(list);
    errno = why;
    if (why == EXDEV)
        return ebb_error(EBB_REJECTED,
                         "external data location '%.100s' leads out of the model's folder",
                         location);
    return ebb_error_io(location, "resolving external data");
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
    EBB_TRY(map_beneath(list, folder, location));
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
