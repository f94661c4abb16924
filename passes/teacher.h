/* teacher.h: how values of a second model in the graph are called: "teacher/logits". */
#ifndef EBB_PASSES_TEACHER_H
#define EBB_PASSES_TEACHER_H

#define EBB_TEACHER "teacher"

#endif
