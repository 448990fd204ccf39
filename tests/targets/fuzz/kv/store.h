/*
 * The pool: what lies in its root, and how objects in it refer to each other.
 */
#ifndef STORE_H
#define STORE_H

#include <libpmemobj.h>
#include <stddef.h>
#include <stdint.h>

/* Where an object lies in the pool; 0 is no object. */
typedef uint64_t offset;

/* What each structure may hold at most: the pool never gets full. */
enum { CAPACITY = 1000 };

struct root {
	PMEMoid btree;
	PMEMoid hash;
	PMEMoid radix;
	PMEMoid skip;
};

extern PMEMobjpool *pool;
extern struct root *root;

/* Opens a pool, or makes one. */
void store_open(const char *path);
void store_close(void);

/* The end of a program that finds something wrong with its data. */
_Noreturn void store_broken(const char *what);

static inline void require(int condition, const char *what)
{
	if (!condition)
		store_broken(what);
}

static inline void *at(offset object)
{
	return (char *)pool + object;
}

static inline offset link_to(const void *object)
{
	return (offset)((const char *)object - (const char *)pool);
}

/* For checks: whether an object of this size can lie there. */
int link_is_possible(offset object, size_t size);

/* So that findings have the line that makes something durable: no function in between. */
#define persist(address, size) pmemobj_persist(pool, (address), (size))

#endif
