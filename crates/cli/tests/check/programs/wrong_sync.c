// A value in an ordinary mapped file, at 0x2040, and a flag that says that the value is there. With -DBUG, msync covers
// the page before the value; with -DASYNC, it only asks for the write. With -DMIX, the program also flushes.
#include "../../../../../tests/programs/pm.h"

#ifdef ASYNC
#define FLAGS MS_ASYNC
#else
#define FLAGS MS_SYNC
#endif

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	char *pool = pm_open(argv[1], 0x3000);
	volatile uint64_t *value = (uint64_t *)(pool + 0x2040), *flag = (uint64_t *)pool;
	if (argc > 2)
		return *flag && *value != 7;
	*value = 7; /* the value */
#ifdef BUG
	msync(pool + 0x1000, 0x1000, FLAGS); /* the wrong page */
#else
	msync(pool + 0x2000, 0x1000, FLAGS); /* the right page */
#endif
	*flag = 1;
#ifdef MIX
	pm_flush(pool);
#endif
#ifdef ONLY_ASYNC
	msync(pool, 0x1000, FLAGS);
#else
	msync(pool, 0x1000, MS_SYNC);
#endif
	return 0;
}
