/* In each of several processes, two threads map their first pools at the same moment, each with an address in mind. */
#include "pool.h"

#include <pthread.h>
#include <sys/wait.h>

static const char *prefix;
static pthread_barrier_t begin;

/* Stores through a pool at an address that the kernel may or may not grant. */
static void *use_pool(void *number)
{
	static void *const hints[] = { (void *)0x200000000000, (void *)0x300000000000 };
	size_t which = *(size_t *)number;
	char path[4096];
	snprintf(path, sizeof path, "%s-%d-%zu", prefix, (int)getpid(), which);
	int fd = open_pool(path, MIB);
	pthread_barrier_wait(&begin);
	char *pool = mmap(hints[which], MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	REQUIRE(pool != MAP_FAILED);
	for (size_t offset = 0; offset < MIB; offset += 65536) {
		store8(pool + offset, which + 1);
		flush(pool + offset);
	}
	sfence();
	for (size_t offset = 0; offset < MIB; offset += 65536)
		REQUIRE(*(volatile uint64_t *)(pool + offset) == which + 1);
	return NULL;
}

static int map_first_pools(void)
{
	size_t numbers[] = { 0, 1 };
	pthread_t threads[2];
	REQUIRE(pthread_barrier_init(&begin, NULL, 2) == 0);
	for (int each = 0; each < 2; each++)
		REQUIRE(pthread_create(&threads[each], NULL, use_pool, &numbers[each]) == 0);
	for (int each = 0; each < 2; each++)
		REQUIRE(pthread_join(threads[each], NULL) == 0);
	return 0;
}

int main(int argc, char **argv)
{
	REQUIRE(argc == 3);
	prefix = argv[1];
	for (int left = atoi(argv[2]); left > 0; left--) {
		int status;
		pid_t child = fork();
		REQUIRE(child >= 0);
		if (child == 0)
			exit(map_first_pools());
		REQUIRE(waitpid(child, &status, 0) == child && status == 0);
	}
	return 0;
}
