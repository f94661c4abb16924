/* progress.c: how far a training is, in one line as wide as the terminal. */
#include "cli/cli.h"

#include <stdlib.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { USUAL_COLUMNS = 80, MOST_COLUMNS = 400, LEAST_BAR = 5, MOST_BAR = 30 };

static bool drawn;

bool cli_is_terminal(void)
{
    const char *term = getenv("TERM");
    return isatty(STDERR_FILENO) == 1 && (term == NULL || strcmp(term, "dumb") != 0);
}

static const char *duration(char text[32], double ns)
{
    const int64_t s = (int64_t)(ns / 1e9 + 0.5);
    if (s >= 3600)
        (void)snprintf(text, 32, "%lld:%02d:%02d", (long long)(s / 3600), (int)(s / 60 % 60),
                       (int)(s % 60));
    else
        (void)snprintf(text, 32, "%d:%02d", (int)(s / 60), (int)(s % 60));
    return text;
}

static int columns(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return USUAL_COLUMNS;
    return size.ws_col < MOST_COLUMNS ? size.ws_col : MOST_COLUMNS;
}

/* What there is to say, the most important first; as much as fits into `room`. */
static int print_parts(char *out, int room, const ebb_trainer_facts *f)
{
    char parts[6][64], time[32];
    int count = 0, used = 0;
    const bool tokens = f->tokens_per_second > 0;
    (void)snprintf(parts[count++], 64, "%lld/%lld", (long long)f->steps, (long long)f->until);
    (void)snprintf(parts[count++], 64, "loss %.4f", f->loss);
    (void)snprintf(parts[count++], 64, "ETA %s", duration(time, (double)f->left_ns));
    (void)cli_rate(parts[count++], tokens ? f->tokens_per_second : f->rows_per_second,
                   tokens ? "tokens" : "rows");
    (void)snprintf(parts[count++], 64, "%s/step", cli_time(time, (double)f->median_ns));
    (void)snprintf(parts[count++], 64, "epoch %lld", (long long)f->epoch);
    for (int i = 0; i < count; i++) {
        const int length = (int)strlen(parts[i]) + (i > 0 ? 2 : 0);
        if (used + length > room)
            break;
        used +=
            snprintf(out + used, (size_t)(room - used) + 1, "%s%s", i > 0 ? "  " : "", parts[i]);
    }
    out[used] = '\0';
    return used;
}

void cli_draw_progress(const ebb_trainer_facts *f)
{
    static double last;
    struct timespec now;
    char line[MOST_COLUMNS + 1], bar[MOST_BAR + 1];
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    const double s = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    if (drawn && s - last < 0.1 && f->steps < f->until)
        return;
    const int room = columns() - 1; // a terminal may wrap behind its last column
    const int used = print_parts(line, room, f);
    int width = room - used - 3; // two brackets and a space
    width = width < MOST_BAR ? width : MOST_BAR;
    last = s;
    drawn = true;
    fputs("\r\033[K", stderr);
    if (width >= LEAST_BAR && f->until > 0) {
        const int full = (int)((double)f->steps * width / (double)f->until);
        for (int i = 0; i < width; i++)
            bar[i] = i < full ? '#' : '.';
        fprintf(stderr, "[%.*s] ", width, bar);
    }
    fputs(line, stderr);
    (void)fflush(stderr);
}

void cli_clear_progress(void)
{
    if (drawn)
        fputs("\r\033[K", stderr);
    drawn = false;
}
