/*
 * Code that is annotated for XFDetector works with powerfail: put this file in the place of XFDetector's, next to
 * powerfail.h, and link nothing. The names and the order of arguments are XFDetector's; what they mean is said in
 * powerfail.h.
 *
 * Deviations: XFDetector_complete does not end the process; findings and failure points just stop to count.
 */
#ifndef XFDETECTOR_INTERFACE_H
#define XFDETECTOR_INTERFACE_H

#include "powerfail.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Stages; both of them are PRE_FAILURE | POST_FAILURE. */
#ifndef PRE_FAILURE
#define PRE_FAILURE POWERFAIL_BEFORE
#endif
#ifndef POST_FAILURE
#define POST_FAILURE POWERFAIL_AFTER
#endif

POWERFAIL_INLINE_ void XFDetector_RoIBegin(int condition, int stage) {
    powerfail_interest_begin(condition, stage);
}
POWERFAIL_INLINE_ void XFDetector_RoIEnd(int condition, int stage) {
    powerfail_interest_end(condition, stage);
}

POWERFAIL_INLINE_ void XFDetector_complete(int condition, int stage) {
    powerfail_complete(condition, stage);
}

POWERFAIL_INLINE_ void XFDetector_addFailurePoint(int condition) {
    powerfail_failure_point(condition);
}

POWERFAIL_INLINE_ void XFDetector_skipFailureBegin(int condition) {
    powerfail_skip_failure_begin(condition);
}
POWERFAIL_INLINE_ void XFDetector_skipFailureEnd(int condition) {
    powerfail_skip_failure_end(condition);
}

POWERFAIL_INLINE_ void XFDetector_skipDetectionBegin(int condition, int stage) {
    powerfail_skip_detection_begin(condition, stage);
}
POWERFAIL_INLINE_ void XFDetector_skipDetectionEnd(int condition, int stage) {
    powerfail_skip_detection_end(condition, stage);
}

/* The released XFDetector has these two without its name in front. */
POWERFAIL_INLINE_ void skipDetectionBegin(int condition, int stage) {
    powerfail_skip_detection_begin(condition, stage);
}
POWERFAIL_INLINE_ void skipDetectionEnd(int condition, int stage) {
    powerfail_skip_detection_end(condition, stage);
}

POWERFAIL_INLINE_ void XFDetector_addCommitVar(const void *variable, unsigned size) {
    powerfail_commit_variable(variable, size);
}

/* How long the variable is says XFDetector_addCommitVar; here its first byte names it. */
POWERFAIL_INLINE_ void XFDetector_addCommitRange(const void *variable, const void *address,
                                                 size_t size) {
    powerfail_commit_range(variable, 1, address, size);
}

#ifdef __cplusplus
}
#endif

#endif
