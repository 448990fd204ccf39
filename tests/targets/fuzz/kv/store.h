/*
 * The pool: its root, and how objects in it refer to each other.
 */
#ifndef STORE_H
#define STORE_H

#include <libpmemobj.h>
#include <stddef.h>
#include <stdint.h>

/* Offset of an object in the pool; 0 is no object. */
typedef uint64_t offset;

/* The maximum number of keys of each structure: the pool never becomes full. */
enum { CAPACITY = 1000 };

struct root {
	PMEMoid btree;
	PMEMoid hash;
	PMEMoid radix;
	PMEMoid skip;
};

extern PMEMobjpool *pool;
extern struct root *root;

/* Opens a pool, or creates one. */
void store_open(const char *path);
void store_close(void);

/* Ends a program that finds its data corrupted. */
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

/* For checks: whether there can be an object of this size at this offset. */
int link_is_possible(offset object, size_t size);

/* Macros, so that findings point to the line that makes something durable. */
#define persist(address, size) pmemobj_persist(pool, (address), (size))

#endif
