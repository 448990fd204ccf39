/* A library that is opened with RTLD_LOCAL, and needs another one: names of that one are not for everyone. Built three
 * times: the library with the name, the plugin that needs it, and the program. */
#include <stddef.h>

#if defined(PROVIDER)
#include <string.h>
void uuid_generate_random(unsigned char out[16]) { memset(out, 7, 16); }
#elif defined(PLUGIN)
void uuid_generate_random(unsigned char out[16]);
void fill(unsigned char *at) { uuid_generate_random(at); }
#else
#include <dlfcn.h>

#include "pool.h"

int main(int argc, char **argv)
{
	REQUIRE(argc == 3);
	unsigned char *pool = (unsigned char *)map_pool(argv[1], MIB);
	for (int round = 0; round < 2; round++) {
		void *library = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
		if (!library)
			fprintf(stderr, "%s\n", dlerror());
		REQUIRE(library);
		void (*fill)(unsigned char *) = (void (*)(unsigned char *))dlsym(library, "fill");
		REQUIRE(fill);
		fill(pool + 64 * round);
		REQUIRE(pool[64 * round] == 7 && pool[64 * round + 15] == 7);
		REQUIRE(dlclose(library) == 0);
	}
	return 0;
}
#endif
