/* roll.c: passes by name, and what their rows in passes.def say of them. */
#include "passes/passes.h"

static const ebb_pass *const roll[] = {
#define EBB_PASS(name, room, phase, priority) &ebb_pass_##name,
#include "passes/passes.def"
#undef EBB_PASS
};

enum { ROLL = sizeof roll / sizeof *roll };

static const struct {
    const char *room;
    ebb_pass_phase phase;
    int priority;
} columns[ROLL] = {
#define EBB_PASS(name, room, phase, priority) {room, EBB_PHASE_##phase, priority},
#include "passes/passes.def"
#undef EBB_PASS
};

const ebb_pass *const *ebb_passes(size_t *count)
{
    *count = ROLL;
    return roll;
}

const ebb_pass *ebb_pass_find(const char *name)
{
    for (size_t i = 0; i < ROLL; i++)
        if (strcmp(roll[i]->name, name) == 0)
            return roll[i];
    return NULL;
}

static size_t row_of(const ebb_pass *pass)
{
    size_t i = 0;
    while (i + 1 < ROLL && roll[i] != pass)
        i++;
    return i;
}

ebb_pass_phase ebb_pass_phase_of(const ebb_pass *pass)
{
    return columns[row_of(pass)].phase;
}

const char *ebb_pass_room(const ebb_pass *pass)
{
    return columns[row_of(pass)].room;
}

const ebb_pass *ebb_pass_offering(int priority)
{
    for (size_t i = 0; i < ROLL; i++)
        if (priority > 0 && columns[i].priority == priority)
            return roll[i];
    return NULL;
}

bool ebb_pass_moves(const ebb_pass *pass)
{
    ebb_pass_phase phase = ebb_pass_phase_of(pass);
    return phase == EBB_PHASE_PARAMETERS || phase == EBB_PHASE_COMPUTATION;
}

bool ebb_pass_offers(const ebb_pass *pass)
{
    return columns[row_of(pass)].priority > 0;
}

bool ebb_pass_tidies(const ebb_pass *pass)
{
    ebb_pass_phase phase = ebb_pass_phase_of(pass);
    return phase == EBB_PHASE_FLATTEN || phase == EBB_PHASE_TIDY;
}
