/* Opens a library (the second argument) after its pool, repeatedly. */
#include <dlfcn.h>

#include "pool.h"

typedef void operation(char *, uint64_t);

int main(int argc, char **argv)
{
	REQUIRE(argc == 4);
	char *pool = map_pool(argv[1], MIB);
	int rounds = atoi(argv[3]);
	store8(pool + 4096, 1);
	for (int round = 1; round <= rounds; round++) {
		void *library = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
		if (library == NULL) {
			fprintf(stderr, "%s\n", dlerror());
			return 97;
		}
		operation *store, *add;
		*(void **)&store = dlsym(library, "plugin_store");
		*(void **)&add = dlsym(library, "plugin_add");
		REQUIRE(store != NULL && add != NULL);
		for (int again = 0; again < 2; again++) {
			store(pool, (uint64_t)round);
			add(pool + 64, 1);
		}
		REQUIRE(dlclose(library) == 0);
	}
	return 0;
}
