/*
 * The code of the pages about findings, docs/reference/findings, for persistent memory: each piece is a function of its own,
 * named after its page. A test writes the pieces to files, records this program once and lints the trace.
 */
#include <fcntl.h>
#include <immintrin.h>
#include <libpmem.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define AREA_BYTES 8192
#define LINE __attribute__((aligned(64)))
#define CASE static __attribute__((noinline)) void

struct node {
	LINE uint64_t value;
	uint64_t version;
	struct node *next;
};

struct list {
	LINE struct node *head;
	LINE uint64_t count;
};

struct anchor {
	LINE uint64_t entries;
	struct node *last;
};

enum { IDLE, STARTED, DONE };

struct job {
	LINE uint64_t state;
};

struct table {
	LINE uint64_t resizing;
	LINE uint64_t slots[32];
};

struct log_entry {
	LINE uint64_t entry;
	LINE uint64_t valid;
};

struct backup {
	LINE uint64_t value;
	LINE uint64_t valid;
};

/* What each piece works on. */
struct area {
	struct node node;
	struct list list;
	struct anchor root;
	struct job job;
	struct table table;
	struct log_entry log;
	struct backup backup;
	uint64_t array[8];
};

static void run(struct job *job)
{
	(void)job;
}

static void copy_slot(struct table *table, size_t i)
{
	table->slots[i]++;
	pmem_persist(&table->slots[i], sizeof table->slots[i]);
}

/* The names that the pieces use. */
#define NAMES                                                                                                          \
	struct node *node = &area->node;                                                                               \
	struct list *list = &area->list;                                                                               \
	struct anchor *root = &area->root;                                                                             \
	struct job *job = &area->job;                                                                                  \
	struct table *table = &area->table;                                                                            \
	struct log_entry *log = &area->log;                                                                            \
	struct backup *backup = &area->backup;                                                                         \
	uint64_t *array = area->array, value = 7;                                                                      \
	size_t i = 0, count = 20;                                                                                      \
	(void)node, (void)list, (void)root, (void)job, (void)table, (void)log, (void)backup, (void)array, (void)value; \
	(void)i, (void)count

#define wrong(code) CASE wrong_##code(struct area *area)
#define right(code) CASE right_##code(struct area *area)

wrong(PF0101)
{
	NAMES;
#include "PF0101-wrong.inc"
}
right(PF0101)
{
	NAMES;
#include "PF0101-right.inc"
}
wrong(PF0102)
{
	NAMES;
#include "PF0102-wrong.inc"
}
right(PF0102)
{
	NAMES;
#include "PF0102-right.inc"
}
wrong(PF0201)
{
	NAMES;
#include "PF0201-wrong.inc"
}
right(PF0201)
{
	NAMES;
#include "PF0201-right.inc"
}
wrong(PF0501)
{
	NAMES;
	node->value = 1;
#include "PF0501-wrong.inc"
}
right(PF0501)
{
	NAMES;
	node->value = 1;
#include "PF0501-right.inc"
}
wrong(PF0502)
{
	NAMES;
	node->value = 1;
#include "PF0502-wrong.inc"
}
right(PF0502)
{
	NAMES;
	node->value = 1;
#include "PF0502-right.inc"
}
wrong(PF0503)
{
	NAMES;
#include "PF0503-wrong.inc"
	free(copy);
}
right(PF0503)
{
	NAMES;
#include "PF0503-right.inc"
}
/* The page shows a structure; what it is used for is here. */
#define root root_with_statistic
#include "PF0504-wrong.inc"
#undef root
#define root root_without_statistic
#include "PF0504-right.inc"
#undef root
wrong(PF0504)
{
	struct root_with_statistic *root = (void *)((char *)area + AREA_BYTES / 2);
	for (int i = 0; i < 8; i++)
		root->lookups++;
}
right(PF0504)
{
	struct root_without_statistic *root = (void *)((char *)area + AREA_BYTES / 2);
	root->entries = 1;
	pmem_persist(&root->entries, sizeof root->entries);
	for (int i = 0; i < 8; i++)
		lookups++;
}
wrong(PF0505)
{
	NAMES;
#include "PF0505-wrong.inc"
}
right(PF0505)
{
	NAMES;
#include "PF0505-right.inc"
}
wrong(PF0601)
{
	NAMES;
#include "PF0601-wrong.inc"
}
right(PF0601)
{
	NAMES;
#include "PF0601-right.inc"
}
wrong(PF0602)
{
	NAMES;
	node->value = 1;
	list->head = node;
#include "PF0602-wrong.inc"
}
right(PF0602)
{
	NAMES;
	node->value = 1;
	list->head = node;
#include "PF0602-right.inc"
}
/* Whether recovery reads too much is not seen in the workload alone: PF0603, PF0701 and PF0702 are only compiled and run. */
wrong(PF0603)
{
	NAMES;
#include "PF0603-wrong.inc"
}
right(PF0603)
{
	NAMES;
#include "PF0603-right.inc"
}
wrong(PF0604)
{
	NAMES;
#include "PF0604-wrong.inc"
}
right(PF0604)
{
	NAMES;
#include "PF0604-right.inc"
}
wrong(PF0605)
{
	NAMES;
#include "PF0605-wrong.inc"
}
right(PF0605)
{
	NAMES;
#include "PF0605-right.inc"
}
wrong(PF0701)
{
	NAMES;
#include "PF0701-wrong.inc"
}
right(PF0701)
{
	NAMES;
#include "PF0701-right.inc"
}
wrong(PF0702)
{
	NAMES;
#include "PF0702-wrong.inc"
}

int main(int argc, char **argv)
{
	static void (*const cases[])(struct area *) = {
		wrong_PF0101, right_PF0101, right_PF0102, wrong_PF0201, right_PF0201, wrong_PF0501, right_PF0501,
		wrong_PF0502, right_PF0502, wrong_PF0503, right_PF0503, wrong_PF0504, right_PF0504, wrong_PF0505,
		right_PF0505, wrong_PF0601, right_PF0601, wrong_PF0602, right_PF0602, wrong_PF0603, right_PF0603,
		wrong_PF0604, right_PF0604, wrong_PF0605, right_PF0605, wrong_PF0701, right_PF0701, wrong_PF0702,
		/* The last one: a later fence would wait for its flush. */
		wrong_PF0102,
	};
	size_t count = sizeof cases / sizeof cases[0];
	int fd = argc == 2 ? open(argv[1], O_RDWR | O_CREAT, 0644) : -1;
	if (fd < 0 || ftruncate(fd, count * AREA_BYTES) != 0) {
		perror("pool");
		return 1;
	}
	char *pool = mmap(NULL, count * AREA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (pool == MAP_FAILED)
		return 1;
	/* The pieces change what exists, and is durable. Behind an area is memory that was never flushed. */
	for (size_t i = 0; i < count; i++) {
		for (size_t line = 0; line < sizeof(struct area); line += 64)
			pool[i * AREA_BYTES + line + 56] = 1;
		pmem_persist(pool + i * AREA_BYTES, sizeof(struct area));
	}
	for (size_t i = 0; i < count; i++)
		cases[i]((struct area *)(pool + i * AREA_BYTES));
	_exit(0);
}
