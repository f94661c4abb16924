/* told.c: what is said of a step when it is made: what the doctor warns of in its model, and which
 * weights it trains; and of a program. */
#include "cli/cli.h"

enum { MOST_NODES = 20000 }; // of a model that is looked at without being asked for: `ebb check`

json_t *cli_warnings(const ebb_model *model)
{
    ebb_model_facts *facts = NULL;
    char *text = NULL;
    ebb_code code;
    ebb_status status = ebb_facts_of(&facts, model);
    if (status == NULL && facts->node_count <= MOST_NODES)
        status = ebb_check(model, &code, &text);
    json_t *report = status == NULL && text != NULL ? json_loads(text, 0, NULL) : NULL;
    json_t *warnings = json_incref(json_object_get(report, "warnings"));
    json_decref(report);
    ebb_release(text);
    ebb_release(facts);
    return warnings != NULL ? warnings
                            : json_array(); // what cannot be looked at fails where it is made
}

static void tell_warnings(const json_t *warnings)
{
    size_t i;
    json_t *w;
    json_array_foreach(warnings, i, w) {
        const char *help = cli_text(w, "help");
        cli_note("warning: %s%s%s%s", cli_text(w, "what"), help[0] != '\0' ? " (" : "", help,
                 help[0] != '\0' ? ")" : "");
    }
}

void cli_tell_made(char **json, json_t *warnings)
{
    json_t *o = *json != NULL ? json_loads(*json, 0, NULL) : NULL;
    const char *said = cli_text(json_object_get(o, "training"), "said");
    char *text = NULL;
    tell_warnings(warnings);
    if (said[0] != '\0')
        cli_note("%s", said);
    if (o != NULL && json_object_set(o, "warnings", warnings) == 0)
        text = json_dumps(o, JSON_INDENT(1));
    json_decref(o);
    if (text == NULL)
        return;
    ebb_release(*json);
    *json = text;
}

void cli_tell_compiled(const cli *c, const ebb_program *program)
{
    if (ebb_program_note(program) != NULL)
        cli_note("ebb: %s", ebb_program_note(program));
    if (cli_has(c, "--spill") && ebb_program_measure(program).planned_disk_bytes == 0)
        cli_note(
            "note: nothing waits on disk, so --spill has no effect: --budget AMOUNT,disk=AMOUNT "
            "may put tensors there");
}
