/* Threads that open, use and close a library at the same time: pool, library, threads, rounds. */
#include <dlfcn.h>
#include <pthread.h>

#include "pool.h"

typedef void operation(char *, uint64_t);

static char *pool;
static const char *path;
static int rounds;

static void *open_and_close(void *number)
{
	for (int round = 1; round <= rounds; round++) {
		void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
		if (library == NULL) {
			fprintf(stderr, "%s\n", dlerror());
			exit(97);
		}
		operation *store;
		*(void **)&store = dlsym(library, "plugin_store");
		REQUIRE(store != NULL);
		store(pool + 64 * (long)number, (uint64_t)round);
		REQUIRE(dlclose(library) == 0);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[16];
	REQUIRE(argc == 5);
	pool = map_pool(argv[1], MIB);
	path = argv[2];
	long count = atoi(argv[3]);
	rounds = atoi(argv[4]);
	for (long at = 0; at < count; at++)
		REQUIRE(pthread_create(&threads[at], NULL, open_and_close, (void *)at) == 0);
	for (long at = 0; at < count; at++)
		REQUIRE(pthread_join(threads[at], NULL) == 0);
	return 0;
}
