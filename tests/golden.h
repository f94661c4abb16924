/* golden.h: files of three parts: what is shown, what goes in, and what must come out.
 *
 *     # what is shown
 *     word: what the test reads of the head
 *     ---
 *     what goes in
 *     ---
 *     what must come out
 *
 * With EBB_GOLDEN=update in the environment the third part is written anew: read the difference
 * before committing it.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dirent.h>

#include "tests/test.h"

enum { GOLDEN_MOST = 512, GOLDEN_BYTES = 1 << 20 };

typedef struct golden {
    char path[1200];
    char *head, *in, *out; /* from golden_load on, until golden_free */
} golden;

static inline void golden_load(golden *g)
{
    FILE *file = fopen(g->path, "rb");
    g->head = calloc(1, GOLDEN_BYTES);
    if (file == NULL || g->head == NULL)
        fail_msg("%s cannot be read", g->path);
    g->head[fread(g->head, 1, GOLDEN_BYTES - 1, file)] = '\0';
    fclose(file);
    char *first = strstr(g->head, "\n---\n");
    char *second = first != NULL ? strstr(first + 5, "\n---\n") : NULL;
    if (second == NULL)
        fail_msg("%s: a head and two lines of '---' are needed", g->path);
    *first = *second = '\0';
    g->in = first + 5;
    g->out = second + 5;
}

static inline void golden_free(golden *g)
{
    free(g->head);
}

/* What follows "word: " on a line of the head, into text; false where there is none. */
static inline bool golden_word(const golden *g, const char *word, char text[512])
{
    size_t length = strlen(word);
    for (const char *line = g->head; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, word, length) == 0 && strncmp(line + length, ": ", 2) == 0)
            return snprintf(text, 512, "%.*s", (int)strcspn(line + length + 2, "\n"),
                            line + length + 2) > 0;
    }
    return false;
}

/* Is `text` what must come out? Under EBB_GOLDEN=update the file says so afterwards. */
static inline void golden_compare(const golden *g, const char *text)
{
    const char *mode = getenv("EBB_GOLDEN");
    if (mode == NULL || strcmp(mode, "update") != 0) {
        if (strcmp(text, g->out) != 0)
            fail_msg("%s:\n%s\nexpected:\n%s", g->path, text, g->out);
        return;
    }
    FILE *file = fopen(g->path, "wb");
    assert_non_null(file);
    fprintf(file, "%s\n---\n%s\n---\n%s", g->head, g->in, text);
    fclose(file);
}

static inline int golden_by_name(const void *a, const void *b)
{
    return strcmp(((const golden *)a)->path, ((const golden *)b)->path);
}

/* One test for each .txt of the folder, by name. */
static inline void golden_list(const char *folder, CMUnitTestFunction test)
{
    static golden all[GOLDEN_MOST];
    size_t count = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL && count < GOLDEN_MOST;) {
        const char *dot = strrchr(e->d_name, '.');
        if (dot != NULL && strcmp(dot, ".txt") == 0)
            (void)snprintf(all[count++].path, sizeof all[0].path, "%s/%s", folder, e->d_name);
    }
    if (dir != NULL)
        closedir(dir);
    if (count == 0) {
        fprintf(stderr, "%s has no .txt\n", folder);
        exit(1);
    }
    qsort(all, count, sizeof all[0], golden_by_name);
    for (size_t i = 0; i < count; i++)
        list_test(strrchr(all[i].path, '/') + 1, test, &all[i]);
}
