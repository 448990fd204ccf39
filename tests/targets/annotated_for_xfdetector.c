/* A program that was annotated for XFDetector. */
#include "../../include/xfdetector_interface.h"
#include "pool.h"

int main(int argc, char **argv)
{
	REQUIRE(argc == 2);
	char *pool = map_pool(argv[1], MIB);
	XFDetector_RoIBegin(1, PRE_FAILURE | POST_FAILURE);
	XFDetector_RoIBegin(1, POST_FAILURE);
	XFDetector_addCommitVar(pool, 8);
	XFDetector_addCommitRange(pool, pool + 64, 128);
	XFDetector_skipFailureBegin(1);
	store8(pool + 64, 1);
	XFDetector_skipFailureEnd(1);
	XFDetector_addFailurePoint(1);
	XFDetector_skipDetectionBegin(1, PRE_FAILURE);
	XFDetector_skipDetectionEnd(1, PRE_FAILURE);
	skipDetectionBegin(1, PRE_FAILURE);
	skipDetectionEnd(1, PRE_FAILURE);
	XFDetector_RoIEnd(1, PRE_FAILURE | POST_FAILURE);
	XFDetector_complete(1, PRE_FAILURE);
	printf("%d\n", (int)*(volatile uint64_t *)(pool + 64));
	return 0;
}
