/* timeline.h: live bytes over a step, as JSON: a curve, the phases, and the peak's neighbourhood.
 */
#pragma once

#include "exec/json.h"
#include "exec/run/program.h"

enum { EBB_CURVE_POINTS = 512, EBB_NEAR_PEAK = 5, EBB_MOST_LIVES = 20000 };

/* Sets in `plan_json`:
 *   curve          [{position, live_bytes}], ascending, at most EBB_CURVE_POINTS: of each stretch
 *                  of positions the one with most bytes, so that the peak is among them
 *   phases         [{phase, first, last, nodes}] by first position
 *   neighbourhood  EBB_NEAR_PEAK positions to either side of the peak: [{position, node, phase,
 *                  live_bytes, born_bytes, dies_bytes, born, dies}]; the last two list the largest
 *                  tensors [{name, bytes}]
 *   budget_bytes   where the model says what it was made to fit ("ebb.budget_bytes") */
ebb_status ebb_timeline_json(json_t *plan_json, const ebb_plan *plan);

/* And, of at most EBB_MOST_LIVES nodes:
 *   tensors        [{name, category, place, bytes, birth, death}]: all, alive from the node at
 *                  position birth to the one at death
 *   order          [{node, phase}], by position */
void ebb_timeline_lives(json_t *plan_json, const ebb_plan *plan);

/* That curve, of any place. */
json_t *ebb_timeline_curve(const uint64_t *live, uint32_t positions);
