/*
 * Annotations for powerfail: never needed, sometimes helpful.
 *
 * Include this file; there is nothing to link. The functions that it needs are weak: where the program does not
 * run under powerfail they are not there, and each annotation is one test of an address. A program with
 * annotations runs unchanged without powerfail.
 *
 * The workload is the stage before the failure, recovery the one after it. Annotations that make sense in both
 * take the stage in which they are meant; in the other one they do nothing. Most take a condition as well: if it
 * is zero, nothing is said.
 *
 * C and C++, any compiler that knows GNU's attributes; with any other one the annotations are empty. docs/guide/annotations.md
 * of powerfail is the guide.
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
typedef void powerfail_annotation_t(uint32_t code, uint64_t value, const void *address, size_t length,
                                    const void *second, size_t second_length, int stage);
typedef void *powerfail_root_slot_t(uint64_t id);
typedef int powerfail_register_range_t(void *address, size_t length, const char *name);

#if !defined(__GNUC__)
#define POWERFAIL_INLINE_ static inline
#define POWERFAIL_SELDOM_(condition) (condition)
#define POWERFAIL_FIND_(function, name) ((function) = 0)
#else
#define POWERFAIL_INLINE_ static __inline__ __attribute__((unused))
#define POWERFAIL_SELDOM_(condition) __builtin_expect((condition), 0)
#if defined(__x86_64__) && defined(__LP64__)
/* Through the global offset table, which the dynamic linker fills. In a program that is not
 * position-independent the compiler would leave the address to the linker, which knows no powerfail. */
#define POWERFAIL_FIND_(function, name) \
    __asm__(".weak " #name "\n\t" \
            "{movq " #name "@GOTPCREL(%%rip), %0|mov %0, QWORD PTR " #name "@GOTPCREL[rip]}" \
            : "=r"(function))
#else
extern powerfail_annotation_t powerfail_annotation __attribute__((weak));
extern powerfail_root_slot_t powerfail_root_slot __attribute__((weak));
extern powerfail_register_range_t powerfail_register_range __attribute__((weak));
#define POWERFAIL_FIND_(function, name) ((function) = (name))
#endif
#endif

POWERFAIL_INLINE_ void powerfail_annotate_(uint32_t code, uint64_t value, const void *address,
                                           size_t length, const void *second, size_t second_length,
                                           int stage) {
    powerfail_annotation_t *function;
    POWERFAIL_FIND_(function, powerfail_annotation);
    if (POWERFAIL_SELDOM_(function != 0))
        function(code, value, address, length, second, second_length, stage);
}

/* Region of interest: where there is one, failure points and findings outside of all of them are left out.
 * Regions may overlap; a region applies to all threads, whichever thread begins it. */
POWERFAIL_INLINE_ void powerfail_interest_begin(int condition, int stage) {
    if (condition)
        powerfail_annotate_(0x0200, 0, NULL, 0, NULL, 0, stage);
}
POWERFAIL_INLINE_ void powerfail_interest_end(int condition, int stage) {
    if (condition)
        powerfail_annotate_(0x0201, 0, NULL, 0, NULL, 0, stage);
}

/* Nothing that follows is of interest. The process keeps running. */
POWERFAIL_INLINE_ void powerfail_complete(int condition, int stage) {
    if (condition)
        powerfail_annotate_(0x0202, 0, NULL, 0, NULL, 0, stage);
}

/* No failure points of this thread between these two. They may nest. */
POWERFAIL_INLINE_ void powerfail_skip_failure_begin(int condition) {
    if (condition)
        powerfail_annotate_(0x0203, 0, NULL, 0, NULL, 0, POWERFAIL_BEFORE);
}
POWERFAIL_INLINE_ void powerfail_skip_failure_end(int condition) {
    if (condition)
        powerfail_annotate_(0x0204, 0, NULL, 0, NULL, 0, POWERFAIL_BEFORE);
}

/* No findings about what this thread stores (before) or reads (after) between these two. They may nest. */
POWERFAIL_INLINE_ void powerfail_skip_detection_begin(int condition, int stage) {
    if (condition)
        powerfail_annotate_(0x0205, 0, NULL, 0, NULL, 0, stage);
}
POWERFAIL_INLINE_ void powerfail_skip_detection_end(int condition, int stage) {
    if (condition)
        powerfail_annotate_(0x0206, 0, NULL, 0, NULL, 0, stage);
}

/* A failure point here, whether or not there would be one; not where failure points are left out. */
POWERFAIL_INLINE_ void powerfail_failure_point(int condition) {
    if (condition)
        powerfail_annotate_(0x0207, 0, NULL, 0, NULL, 0, POWERFAIL_BEFORE);
}

/* A mark with a number and bytes of your own, of which the first 1008 are kept: findings say between which marks
 * they lie. */
POWERFAIL_INLINE_ void powerfail_mark(uint64_t value, const void *payload, size_t length) {
    powerfail_annotate_(0x0208, value, payload, length, NULL, 0, POWERFAIL_BEFORE);
}

/* An operation of the workload. With `--dump`, the content after a crash must be that after the last operation
 * that had ended, or that after the next one. */
POWERFAIL_INLINE_ void powerfail_operation_begin(uint64_t number) {
    powerfail_annotate_(0x0209, number, NULL, 0, NULL, 0, POWERFAIL_BEFORE);
}
POWERFAIL_INLINE_ void powerfail_operation_end(uint64_t number) {
    powerfail_annotate_(0x020a, number, NULL, 0, NULL, 0, POWERFAIL_BEFORE);
}

/* A variable that decides whether other data is valid. Reads of it after a failure are no races. With no range,
 * the only commit variable decides about all persistent memory. */
POWERFAIL_INLINE_ void powerfail_commit_variable(const void *variable, size_t length) {
    powerfail_annotate_(0x8210, 0, variable, length, NULL, 0, POWERFAIL_BOTH);
}

/* Data that a commit variable decides about. Ranges of different variables must not overlap. */
POWERFAIL_INLINE_ void powerfail_commit_range(const void *variable, size_t variable_length,
                                              const void *address, size_t length) {
    powerfail_annotate_(0x8211, 0, variable, variable_length, address, length, POWERFAIL_BOTH);
}

#if defined(__GNUC__)
/* Weak, so that all files of a program have the same. */
__attribute__((weak)) void *powerfail_root_words_[1024];
#else
static void *powerfail_root_words_[1024];
#endif

/* With `--heap`: a word of persistent memory that recovery finds again by its number, below 1024; zero at first.
 * Without powerfail, an ordinary word. */
POWERFAIL_INLINE_ void **powerfail_root(uint64_t id) {
    powerfail_root_slot_t *function;
    POWERFAIL_FIND_(function, powerfail_root_slot);
    if (function)
        return (void **)function(id);
    return &powerfail_root_words_[id % 1024];
}

/* Memory that stands for persistent memory and is no mapped file: from here on it is a pool with this name. Its
 * address and length are multiples of 4096. In recovery the same call brings back what a crash has left, at the
 * same address. Returns 0 if the program does not run under powerfail, 1 if the memory is a pool
 * now, -1 if that failed. */
POWERFAIL_INLINE_ int powerfail_register_pool(void *address, size_t length, const char *name) {
    powerfail_register_range_t *function;
    POWERFAIL_FIND_(function, powerfail_register_range);
    if (function)
        return function(address, length, name);
    return 0;
}

#ifdef __cplusplus
}
#endif

#endif
