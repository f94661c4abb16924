/* test_external.c: external weights are read from below the model's folder, whatever someone does
 * to its links meanwhile, with the system's own check of that and without it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "onnx/words/map.h"
#include "tests/folder.h"

static void put(const char *name, const char *text)
{
    FILE *file = fopen(path_of(name), "wb");
    assert_non_null(file);
    (void)fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static int make_folders(void **state)
{
    if (make_folder(state) || mkdir(path_of("model"), 0700) != 0 ||
        mkdir(path_of("model/parts"), 0700) != 0)
        return -1;
    put("secret", "secret");
    put("model/w", "weight");
    put("model/parts/w", "weight");
    return symlink("parts/w", path_of("model/inner")) ||
           symlink("../secret", path_of("model/outer")) ||
           symlink(path_of("secret"), path_of("model/absolute")) ||
           symlink("parts", path_of("model/inner_parts")) ||
           symlink("..", path_of("model/outer_parts")) ||
           symlink("circle", path_of("model/circle"));
}

/* The code, with what was read in `text` where there was something. */
static ebb_code opened(const char *location, char text[16])
{
    ebb_mapping *list = NULL;
    const ebb_mapping *m = NULL;
    ebb_status status = ebb_external_open(&list, &m, path_of("model"), location);
    text[0] = '\0';
    if (status == NULL)
        (void)snprintf(text, 16, "%.*s", m->absent ? 6 : (int)m->bytes,
                       m->absent ? "absent" : (const char *)m->data);
    ebb_mappings_free(list);
    return ebb_status_code(status);
}

static void gives(const char *location, ebb_code code, const char *words)
{
    char text[16];
    ebb_code got = opened(location, text);
    if (got != code || strcmp(text, words) != 0)
        fail_msg("%s: code %d, '%s'; expected %d, '%s'", location, (int)got, text, (int)code,
                 words);
}

/* Where links go through the kernel's check; without it every one is refused. */
static void look_at_each(bool follows)
{
    ebb_code link = follows ? EBB_OK : EBB_REJECTED;
    const char *linked = follows ? "weight" : "";
    gives("w", EBB_OK, "weight");
    gives("./parts/w", EBB_OK, "weight");
    gives("parts//w", EBB_OK, "weight");
    gives("nowhere", EBB_OK, "absent");
    gives("w/below", EBB_OK, "absent");
    gives("inner", link, linked);
    gives("inner_parts/w", link, linked);
    gives("outer", EBB_REJECTED, "");
    gives("absolute", EBB_REJECTED, "");
    gives("outer_parts/secret", EBB_REJECTED, "");
    gives("circle", follows ? EBB_IO : EBB_REJECTED, "");
    gives("parts", EBB_IO, "");
}

TEST(links_may_lead_to_what_is_below_the_folder_alone)
{
    // An emulator or an old system may not know the call, which wants a structure of some size.
    const bool known = syscall(SYS_openat2, AT_FDCWD, "", NULL, 0) != -1 || errno != ENOSYS;
    if (!known)
        print_message("there is no openat2 here: links are refused\n");
    look_at_each(known);
}

/* From here on this process has no openat2. */
static bool forbid(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

enum { IN_CHILD_OK = 0, CANNOT_FORBID = 77 };

/* Each check in a process of its own, without the system call. */
static void without_openat2(void (*check)(void))
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (!forbid())
            _exit(CANNOT_FORBID);
        check();
        _exit(IN_CHILD_OK);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == CANNOT_FORBID) {
        print_message("SKIP: no system call can be forbidden here\n");
        skip();
    }
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == IN_CHILD_OK);
}

static void look_without(void)
{
    look_at_each(false);
}

TEST(without_the_systems_check_no_link_is_followed)
{
    without_openat2(look_without);
}

/* ---- while someone changes what the names mean ---- */

static atomic_bool enough;

/* "w" is by turns a file of the folder and a link out of it, and "swapped" a folder and a link. */
static void *swap(void *arg)
{
    (void)arg;
    while (!atomic_load(&enough)) {
        (void)symlink("../secret", path_of("model/next"));
        (void)rename(path_of("model/next"), path_of("model/w"));
        (void)symlink("..", path_of("model/next_folder"));
        (void)rename(path_of("model/swapped"), path_of("model/aside"));
        (void)rename(path_of("model/next_folder"), path_of("model/swapped"));
        put("model/next", "weight");
        (void)rename(path_of("model/next"), path_of("model/w"));
        (void)unlink(path_of("model/swapped"));
        (void)rename(path_of("model/aside"), path_of("model/swapped"));
    }
    return NULL;
}

/* Nothing but weights, nothing, or a refusal is ever seen. */
static void open_while_it_changes(void)
{
    pthread_t thread;
    char text[16];
    size_t seen = 0, refused = 0;
    (void)mkdir(path_of("model/swapped"), 0700);
    put("model/swapped/secret", "weight");
    atomic_store(&enough, false);
    assert_int_equal(pthread_create(&thread, NULL, swap, NULL), 0);
    for (int i = 0; (i < 4000 || seen == 0 || refused == 0) && i < 400000; i++) {
        ebb_code code = opened(i % 2 == 0 ? "w" : "swapped/secret", text);
        if (strcmp(text, "secret") == 0)
            fail_msg("opening %d gave bytes from outside of the folder", i);
        seen += strcmp(text, "weight") == 0;
        refused += code == EBB_REJECTED;
    }
    atomic_store(&enough, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(seen > 0 && refused > 0);
}

TEST(a_link_that_changes_meanwhile_does_not_lead_out)
{
    open_while_it_changes();
}

TEST(nor_without_the_systems_check)
{
    without_openat2(open_while_it_changes);
}

const fixture around_all = {make_folders, remove_folder};
