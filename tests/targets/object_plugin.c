/* Loads a library that uses libpmemobj, with local symbols. Arguments: the library, and the pool. */
#include <dlfcn.h>

#include "pool.h"

int main(int argc, char **argv)
{
	REQUIRE(argc == 3);
	void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
	REQUIRE(library);
	int (*calls)(const char *) = (int (*)(const char *))dlsym(library, "calls");
	REQUIRE(calls);
	return calls(argv[2]);
}
