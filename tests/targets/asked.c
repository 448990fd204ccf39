/*
 * Prints the answers that a library got in its constructor: `asked POOL linked` if the program is linked with
 * it, or `asked POOL LIBRARY`, which is opened after the pool is mapped; with a third argument, before.
 */
#include "pool.h"

#include <dlfcn.h>

#ifdef LINKED
unsigned answers(void);
#endif

int main(int count, char **arguments)
{
	unsigned (*ask)(void) = NULL;
	char *pool = count > 3 ? NULL : map_pool(arguments[1], 4096);

#ifdef LINKED
	ask = answers;
#else
	void *library = dlopen(arguments[2], RTLD_NOW | RTLD_LOCAL);

	REQUIRE(library != NULL);
	*(void **)&ask = dlsym(library, "answers");
#endif
	if (pool == NULL)
		pool = map_pool(arguments[1], 4096);
	pool[0] = 1;
	printf("%u\n", ask());
	return 0;
}
