/* A library that stores to the memory that it is given, and flushes it. */
#include "pool.h"

void plugin_store(char *at, uint64_t value);
void plugin_add(char *at, uint64_t value);

void plugin_store(char *at, uint64_t value)
{
	store8(at, value);
	flush(at);
	sfence();
}

void plugin_add(char *at, uint64_t value)
{
	__atomic_fetch_add((uint64_t *)at, value, __ATOMIC_SEQ_CST);
	memset(at + 8, (int)value, 24);
}
