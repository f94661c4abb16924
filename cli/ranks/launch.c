/* launch.c: `ebb launch`: a command in several processes; and what a process of them says: rank 0 speaks
 * for all, and of an error that all have the first to have it.
 */
#include "cli/cli.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

/* ---- starting ---- */

static volatile int caught;

static void pass_on(int number)
{
    caught = number;
}

int cli_launch(const cli *c)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    double us = 0, gb = 0;
    int code = EBB_OK;
    ebb_status status =
        cli_has(c, "--link") ? ebb_link_parse(&us, &gb, cli_get(c, "--link", "")) : NULL;
    if (status != NULL)
        return cli_fail(status);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        struct sigaction now, then = {.sa_handler = pass_on, .sa_flags = SA_RESTART};
        if (sigaction(signals[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            (void)sigaction(signals[i], &then, NULL);
    }
    const ebb_launch_options options = {.size = sizeof options,
                                        .command = (const char *const *)c->command,
                                        .ranks = (int)cli_whole(c, "-n", 1),
                                        .late_s = cli_number(c, "--late", 0),
                                        .signal = &caught,
                                        .link_us = us,
                                        .link_gb = gb};
    status = ebb_launch(&options, &code);
    if (status == NULL)
        return code;
    (void)cli_fail(status);
    return code != EBB_OK ? code : (int)ebb_status_code(status);
}

/* ---- being one of them ---- */

static ebb_group *group;
static int error_stream = -1; /* of another rank than 0: where its errors go */

ebb_status cli_join(void)
{
    ebb_status status = ebb_group_join(&group);
    if (status != NULL || ebb_group_rank(group) == 0)
        return status;
    (void)fflush(stdout);
    const int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
    error_stream = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    (void)setvbuf(stderr, NULL, _IOLBF, BUFSIZ); // a line at once: rank 0 may be speaking
    if (nothing >= 0) {
        (void)dup2(nothing, STDOUT_FILENO);
        (void)dup2(nothing, STDERR_FILENO);
        (void)close(nothing);
    }
    return NULL;
}

ebb_group *cli_launched(void)
{
    return group;
}

void cli_leave(void)
{
    ebb_group_leave(group);
    group = NULL;
}

bool cli_speaks(void)
{
    if (!ebb_group_speaks(group))
        return false;
    if (error_stream >= 0) {
        (void)dup2(error_stream, STDERR_FILENO);
        (void)fprintf(stderr, "rank %d: ", ebb_group_rank(group));
    }
    return true;
}
