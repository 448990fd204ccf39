/*
 * Annotations for powerfail: never needed, sometimes helpful.
 *
 * Include this file; there is nothing to link. The functions are weak: where the program does not run under
 * powerfail they are not there, and each annotation is one test of an address. A program with annotations runs
 * unchanged without powerfail.
 *
 * The workload is the stage before the failure, recovery the one after it. Annotations that make sense in both
 * take the stage in which they are meant; in the other one they do nothing.
 */
#ifndef POWERFAIL_H
#define POWERFAIL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Stages. */
#define POWERFAIL_BEFORE 1 /* the workload, before the failure */
#define POWERFAIL_AFTER 2  /* recovery, after the failure */
#define POWERFAIL_BOTH 3

/* What powerfail defines in the processes that it runs. Codes are those of its trace. */
extern void powerfail_annotation(uint32_t code, uint64_t value, const void *address, size_t length,
                                 const void *second, size_t second_length, int stage)
    __attribute__((weak));
extern void *powerfail_root_slot(uint64_t id) __attribute__((weak));
extern int powerfail_register_range(void *address, size_t length, const char *name)
    __attribute__((weak));

static inline void powerfail_annotate_(uint32_t code, uint64_t value, const void *address,
                                       size_t length, const void *second, size_t second_length,
                                       int stage) {
    if (powerfail_annotation)
        powerfail_annotation(code, value, address, length, second, second_length, stage);
}

/* Region of interest: where there is one, failure points and findings outside of all of them are left out. */
static inline void powerfail_interest_begin(int condition, int stage) {
    if (condition)
        powerfail_annotate_(0x0200, 0, NULL, 0, NULL, 0, stage);
}
static inline void powerfail_interest_end(int condition, int stage) {
    if (condition)
        powerfail_annotate_(0x0201, 0, NULL, 0, NULL, 0, stage);
}

/* Nothing that follows is of interest. */
static inline void powerfail_complete(int condition, int stage) {
    if (condition)
        powerfail_annotate_(0x0202, 0, NULL, 0, NULL, 0, stage);
}

/* No failure points between these two. */
static inline void powerfail_skip_failure_begin(int condition) {
    if (condition)
        powerfail_annotate_(0x0203, 0, NULL, 0, NULL, 0, POWERFAIL_BEFORE);
}
static inline void powerfail_skip_failure_end(int condition) {
    if (condition)
        powerfail_annotate_(0x0204, 0, NULL, 0, NULL, 0, POWERFAIL_BEFORE);
}

/* No findings about what is stored (before) or read (after) between these two. */
static inline void powerfail_skip_detection_begin(int condition, int stage) {
    if (condition)
        powerfail_annotate_(0x0205, 0, NULL, 0, NULL, 0, stage);
}
static inline void powerfail_skip_detection_end(int condition, int stage) {
    if (condition)
        powerfail_annotate_(0x0206, 0, NULL, 0, NULL, 0, stage);
}

/* A failure point here, whatever else is there. */
static inline void powerfail_failure_point(int condition) {
    if (condition)
        powerfail_annotate_(0x0207, 0, NULL, 0, NULL, 0, POWERFAIL_BEFORE);
}

/* A mark with a number and bytes of your own; shown by `powerfail trace show`. */
static inline void powerfail_mark(uint64_t value, const void *payload, size_t length) {
    powerfail_annotate_(0x0208, value, payload, length, NULL, 0, POWERFAIL_BEFORE);
}

/* An operation of the workload: after a crash the content is that after the last complete one or the next. */
static inline void powerfail_operation_begin(uint64_t number) {
    powerfail_annotate_(0x0209, number, NULL, 0, NULL, 0, POWERFAIL_BEFORE);
}
static inline void powerfail_operation_end(uint64_t number) {
    powerfail_annotate_(0x020a, number, NULL, 0, NULL, 0, POWERFAIL_BEFORE);
}

/* A variable that decides whether other data is valid. Reads of it after a failure are no races. With no range,
 * the only commit variable decides about all persistent memory. */
static inline void powerfail_commit_variable(const void *variable, size_t length) {
    powerfail_annotate_(0x8210, 0, variable, length, NULL, 0, POWERFAIL_BOTH);
}

/* Data that a commit variable decides about. Ranges of different variables must not overlap. */
static inline void powerfail_commit_range(const void *variable, size_t variable_length,
                                          const void *address, size_t length) {
    powerfail_annotate_(0x8211, 0, variable, variable_length, address, length, POWERFAIL_BOTH);
}

/* With `--heap`: a word of persistent memory that recovery finds again by its number, below 1024; zero at first.
 * Without powerfail, an ordinary word. */
static inline void **powerfail_root(uint64_t id) {
    static void *words[1024];
    if (powerfail_root_slot)
        return (void **)powerfail_root_slot(id);
    return &words[id % 1024];
}

/* Memory that stands for persistent memory and is no mapped file: from here on it is a pool with this name. Its
 * address and length are multiples of 4096. In recovery the same call brings back what a crash has left, at the
 * same address. Gives 0 where nobody records, 1 if the memory is a pool now, -1 if that was not possible. */
static inline int powerfail_register_pool(void *address, size_t length, const char *name) {
    if (powerfail_register_range)
        return powerfail_register_range(address, length, name);
    return 0;
}

#ifdef __cplusplus
}
#endif

#endif
