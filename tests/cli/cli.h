/* cli.h: the command as its tests run it: in a folder of its own, which goes when they end, and
 * what it said.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/folder.h"
#include "tests/test.h"

#define EBB EBB_BINARY_DIR "/ebb"
#define DIGITS EBB_SOURCE_DIR "/samples/digits/"

static char output[4 << 20];

/* In the folder, where temporary files go as well. Exit code; what was said in `output`. */
static inline int run_command(const char *command)
{
    char line[8192];
    (void)snprintf(line, sizeof line, "cd %s && export TMPDIR=%s && %s", folder, folder, command);
    FILE *pipe = popen(line, "r");
    assert_non_null(pipe);
    size_t length = fread(output, 1, sizeof output - 1, pipe);
    output[length] = '\0';
    int status = pclose(pipe);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* All that it says: stdout and stderr. */
static inline int ebb(const char *arguments)
{
    char command[6144];
    (void)snprintf(command, sizeof command, EBB " %s 2>&1", arguments);
    return run_command(command);
}

/* Its data alone, which go to stdout. */
static inline int stdout_of(const char *arguments)
{
    char command[6144];
    (void)snprintf(command, sizeof command, EBB " %s 2>/dev/null", arguments);
    return run_command(command);
}

static inline void says(const char *arguments, int code, const char *words)
{
    int got = ebb(arguments);
    if (got == code && strstr(output, words) != NULL)
        return;
    fail_msg("ebb %s\nexit %d, expected %d; said:\n%s\nexpected to read: %s\n", arguments, got,
             code, output, words);
}

static inline bool exists(const char *name)
{
    struct stat s;
    return stat(path_of(name), &s) == 0;
}

static inline int lines_of(const char *name)
{
    int count = 0, c;
    FILE *file = fopen(path_of(name), "r");
    assert_non_null(file);
    while ((c = fgetc(file)) != EOF)
        count += c == '\n';
    fclose(file);
    return count;
}
