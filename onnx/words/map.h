/* map.h: files mapped read-only, in a list that the model owns; and where external weights lie.
 *
 * A mapping stays until ebb_mappings_free. Renaming a new file over a mapped one is safe: the
 * mapping keeps the old bytes.
 */
#pragma once

#include "onnx/words/arena.h"

typedef struct ebb_mapping {
    struct ebb_mapping *older;
    const char *name;          /* external: location as the file spells it; else NULL */
    const unsigned char *data; /* NULL for an empty or an absent file */
    size_t bytes;
    bool absent;
    bool shared; /* other names lead to the same bytes: hard links */
} ebb_mapping;

/* map.c: maps a regular file and puts it in front of the list. EBB_IO when it cannot be opened. */
ebb_status ebb_mapping_open(ebb_mapping **list, const char *path);
/* The same of a file that is open, which it closes; `name` is for messages. */
ebb_status ebb_mapping_take(ebb_mapping **list, int fd, const char *name);
void ebb_mappings_free(ebb_mapping *list); /* NULL is fine */
/* The files' bytes take no memory of the process until they are read again. */
void ebb_mappings_rest(const ebb_mapping *list);

/* A file that has no name, or no longer, and goes with its descriptor; -1 and errno. */
int ebb_nameless_open(const char *folder);
/* Maps such a file of so many bytes, which the caller writes through *file and closes it. */
ebb_status ebb_mapping_make(ebb_mapping **list, int *file, const char *folder, size_t bytes);

/* external.c: the file `location` beside the model, mapped once and kept in the list. A name that
 * leads out of the folder, by text or by a link of either kind, is EBB_REJECTED, and so is a link
 * to an absolute path. A file that is not there gives a mapping with `absent` set. */
ebb_status ebb_external_open(ebb_mapping **list, const ebb_mapping **mapping, const char *folder,
                             const char *location);
