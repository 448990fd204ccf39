/* The guarantees of the allocation functions, and where their memory is. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pm.h"

#define MUST(what) \
	do { \
		if (!(what)) { \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what); \
			exit(1); \
		} \
	} while (0)

static uintptr_t base;
/* More than is available; the compiler must not know the size. */
static volatile size_t huge = (size_t)1 << 60;

static int persistent(const void *address)
{
	uintptr_t at = (uintptr_t)address;
	return at > base && at - base < (1ul << 36);
}

static int aligned(const void *address, uintptr_t alignment)
{
	return (uintptr_t)address % alignment == 0;
}

int main(void)
{
	base = (uintptr_t)powerfail_root(0) & ~(uintptr_t)0xfffff;

	/* Freed memory is reused with its old content. */
	char *one = malloc(100);
	MUST(persistent(one) && aligned(one, 16) && malloc_usable_size(one) >= 100);
	strcpy(one, "held");
	free(one);
	char *two = malloc(110);
	MUST(two == one && !strcmp(two, "held"));
	MUST(malloc(100) != two);

	/* But not by calloc. */
	free(two);
	char *zeros = calloc(10, 11);
	MUST(zeros == two);
	for (int i = 0; i < 110; i++)
		MUST(zeros[i] == 0);
	MUST(calloc(huge, 64) == NULL && errno == ENOMEM);

	/* Resized memory keeps its content. */
	char *text = malloc(10);
	strcpy(text, "resized");
	for (size_t length = 10; length < 300000; length = length * 3 / 2) {
		text = realloc(text, length);
		MUST(persistent(text) && !strcmp(text, "resized"));
		MUST(malloc_usable_size(text) >= length);
	}
	text = realloc(text, 8);
	MUST(!strcmp(text, "resized"));
	errno = 0;
	MUST(reallocarray(text, huge, huge) == NULL && errno == ENOMEM);
	MUST(realloc(text, 0) == NULL);
	MUST(persistent(realloc(NULL, 5)));

	/* Alignment. */
	for (size_t alignment = 8; alignment <= 1 << 20; alignment *= 2) {
		void *place = NULL;
		MUST(posix_memalign(&place, alignment, 24) == 0);
		MUST(persistent(place) && aligned(place, alignment));
		memset(place, 1, 24);
		MUST(aligned(aligned_alloc(alignment, alignment), alignment));
		MUST(aligned(memalign(alignment, 100), alignment));
		free(place);
	}
	void *none;
	MUST(posix_memalign(&none, 24, 24) == EINVAL);
	MUST(aligned(valloc(1), 4096) && aligned(pvalloc(1), 4096));

	/* Copies that the C library makes for the program. */
	char *copy = strdup("copy"), *part = strndup("copy", 2);
	MUST(persistent(copy) && persistent(part));
	MUST(!strcmp(copy, "copy") && !strcmp(part, "co"));

	/* Large objects are reused as well, and objects do not share a line. */
	char *large = malloc(200000);
	large[199999] = 1;
	free(large);
	MUST(malloc(199000) == (void *)large);
	char *small = malloc(1), *next = malloc(1);
	MUST(((uintptr_t)small ^ (uintptr_t)next) >= 64);
	MUST(malloc(0) != malloc(0));
	free(NULL);

	/* Requests that must fail. */
	errno = 0;
	MUST(malloc(huge) == NULL && errno == ENOMEM);
	return 0;
}
