/* test_sink.c: a file is there under its name when it is whole and on disk, whatever the name leads
 * to and whatever runs before left beside it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dirent.h>
#include <fcntl.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "onnx/file/sink.h"
#include "tests/folder.h"
#include "tests/status.h"

static int files_synced, folders_synced;

/* In the place of the C library's: what is asked to be on disk is counted. */
int fsync(int file)
{
    struct stat facts;
    if (fstat(file, &facts) == 0)
        *(S_ISDIR(facts.st_mode) ? &folders_synced : &files_synced) += 1;
    return (int)syscall(SYS_fsync, file);
}

static ebb_status write_text(const char *path, const char *text)
{
    ebb_sink s;
    EBB_TRY(ebb_sink_open(&s, path));
    ebb_sink_write(&s, text, strlen(text));
    return ebb_sink_done(&s, NULL);
}

static void assert_text(const char *path, const char *text)
{
    char there[64] = "";
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    there[fread(there, 1, sizeof there - 1, file)] = '\0';
    assert_int_equal(fclose(file), 0);
    assert_string_equal(there, text);
}

static int files_in(const char *path)
{
    DIR *entries = opendir(path);
    int count = 0;
    assert_non_null(entries);
    for (const struct dirent *e; (e = readdir(entries)) != NULL;)
        count += e->d_name[0] != '.';
    assert_int_equal(closedir(entries), 0);
    return count;
}

static bool is_link(const char *path)
{
    struct stat facts;
    return lstat(path, &facts) == 0 && S_ISLNK(facts.st_mode);
}

TEST(a_file_and_its_folder_are_on_disk)
{
    files_synced = folders_synced = 0;
    good(write_text(path_of("synced"), "all"));
    assert_text(path_of("synced"), "all");
    assert_int_equal(files_synced, 1);
    assert_int_equal(folders_synced, 1);
    assert_int_equal(unlink(path_of("synced")), 0);
}

TEST(a_link_stays_and_what_it_names_is_replaced)
{
    assert_int_equal(mkdir(path_of("store"), 0700), 0);
    good(write_text(path_of("store/real"), "before"));
    assert_int_equal(chmod(path_of("store/real"), 0640), 0);
    assert_int_equal(symlink("store/real", path_of("first")), 0);
    assert_int_equal(symlink(path_of("first"), path_of("second")), 0);
    assert_int_equal(symlink("store/fresh", path_of("dangling")), 0);
    good(write_text(path_of("second"), "after"));
    good(write_text(path_of("dangling"), "fresh"));
    assert_true(is_link(path_of("first")) && is_link(path_of("second")));
    assert_true(is_link(path_of("dangling")));
    assert_false(is_link(path_of("store/real")));
    assert_text(path_of("store/real"), "after");
    assert_text(path_of("store/fresh"), "fresh");
    struct stat facts;
    assert_int_equal(stat(path_of("store/real"), &facts), 0);
    assert_int_equal(facts.st_mode & 0777, 0640);
    assert_int_equal(files_in(path_of("store")), 2); // and nothing beside them
    assert_int_equal(files_in(folder), 4);
}

TEST(a_circle_of_links_and_a_folder_are_refused)
{
    assert_int_equal(symlink("circle", path_of("circle")), 0);
    ebb_status status = write_text(path_of("circle"), "never");
    assert_non_null(status);
    assert_int_equal(ebb_status_code(status), EBB_IO);
    status = write_text(folder, "never");
    assert_non_null(status);
    assert_non_null(strstr(ebb_status_text(status), "it is a folder"));
    assert_int_equal(files_in(folder), 1 + 4);
    assert_int_equal(unlink(path_of("circle")), 0);
}

TEST(what_is_no_regular_file_is_written_into)
{
    char there[16] = "";
    struct stat facts;
    assert_int_equal(mkfifo(path_of("pipe"), 0600), 0);
    assert_int_equal(symlink("pipe", path_of("to_pipe")), 0);
    good(ebb_sink_check(path_of("pipe"))); // which does not wait for a reader
    int reader = open(path_of("pipe"), O_RDONLY | O_NONBLOCK);
    assert_true(reader >= 0);
    good(write_text(path_of("pipe"), "one"));
    good(write_text(path_of("to_pipe"), "two"));
    assert_int_equal(read(reader, there, sizeof there - 1), 6);
    assert_string_equal(there, "onetwo");
    assert_int_equal(close(reader), 0);
    assert_int_equal(stat(path_of("pipe"), &facts), 0);
    assert_true(S_ISFIFO(facts.st_mode));
    assert_int_equal(unlink(path_of("pipe")) | unlink(path_of("to_pipe")), 0);
    good(ebb_sink_check("/dev/null"));
    good(write_text("/dev/null", "gone"));
    assert_int_equal(stat("/dev/null", &facts), 0);
    assert_true(S_ISCHR(facts.st_mode));
}

/* Behind what was written there before, where a file of that name would begin anew. */
TEST(an_open_descriptor_is_written_on)
{
    char path[32];
    int file = open(path_of("open"), O_WRONLY | O_CREAT, 0600);
    assert_true(file >= 0);
    assert_int_equal(write(file, "one", 3), 3);
    (void)snprintf(path, sizeof path, "/dev/fd/%d", file);
    good(ebb_sink_check(path));
    good(write_text(path, "two"));
    assert_int_equal(write(file, "three", 5), 5);
    assert_int_equal(close(file), 0);
    assert_text(path_of("open"), "onetwothree");
    assert_int_equal(unlink(path_of("open")), 0);
    assert_non_null(ebb_sink_check(path));
}

TEST(where_nothing_can_be_written_is_known_before)
{
    const int before = files_in(folder);
    good(ebb_sink_check(path_of("new")));
    assert_non_null(ebb_sink_check(path_of("nowhere/new")));
    assert_non_null(ebb_sink_check(folder));
    assert_int_equal(files_in(folder), before);
}

/* A process that is killed while it writes. */
static void leave_half(const char *path)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        ebb_sink s;
        if (ebb_sink_open(&s, path) == NULL)
            (void)kill(getpid(), SIGKILL);
        _exit(1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

TEST(what_a_killed_run_left_goes_with_the_next)
{
    assert_int_equal(mkdir(path_of("runs"), 0700), 0);
    char path[256];
    (void)snprintf(path, sizeof path, "%s", path_of("runs/out"));
    leave_half(path);
    assert_int_equal(files_in(path_of("runs")), 1);
    good(write_text(path, "whole"));
    assert_int_equal(files_in(path_of("runs")), 1);
    assert_text(path, "whole");
    leave_half(path);
    leave_half(path); // which removed the other
    assert_int_equal(files_in(path_of("runs")), 2);
    good(write_text(path, "whole again"));
    assert_int_equal(files_in(path_of("runs")), 1);
}

TEST(what_another_still_writes_stays)
{
    ebb_sink slow;
    char path[256];
    (void)snprintf(path, sizeof path, "%s", path_of("runs/out"));
    const char *others[] = {"runs/out.backup", "runs/out.ebb-tmp-1234567",
                            "runs/other.ebb-tmp-123456", "runs/out.ebb-tmp-"};
    for (int i = 0; i < 4; i++)
        good(write_text(path_of(others[i]), "mine"));
    good(ebb_sink_open(&slow, path));
    good(write_text(path, "quick"));
    ebb_sink_write(&slow, "slow", 4);
    good(ebb_sink_finish(&slow));
    good(write_text(path, "quicker"));
    good(ebb_sink_rename(&slow));
    ebb_sink_close(&slow);
    assert_text(path, "slow");
    for (int i = 0; i < 4; i++)
        assert_text(path_of(others[i]), "mine");
    assert_int_equal(files_in(path_of("runs")), 5);
}

const fixture around_all = {make_folder, remove_folder};
