#define _GNU_SOURCE
// A list whose nodes refer to each other by address, in a pool that is mapped in one of many ways: `places HOW POOL
// [recover]`. With -DBUG, a node is published before it is durable.
#include "../../../../../tests/programs/pm.h"

#define LEN (64 << 20)
struct node {
	uint64_t value;
	struct node *next;
	uint64_t unused[6];
};
struct pool {
	struct node *head;
	uint64_t unused[7];
	struct node nodes[8];
};

static void *map_at(const char *path, uint64_t address, int flags, size_t len, size_t offset)
{
	struct stat status;
	int fd = open(path, O_CREAT | O_RDWR, 0600);
	PM_REQUIRE(fd >= 0 && fstat(fd, &status) == 0);
	if ((size_t)status.st_size < offset + len)
		PM_REQUIRE(ftruncate(fd, (off_t)(offset + len)) == 0);
	void *place = mmap((void *)address, len, PROT_READ | PROT_WRITE, MAP_SHARED | flags, fd, (off_t)offset);
	PM_REQUIRE(place != MAP_FAILED);
	close(fd);
	return place;
}

int main(int argc, char **argv)
{
	PM_REQUIRE(argc >= 3);
	const char *how = argv[1], *path = argv[2];
	int recovers = argc > 3;
	struct pool *pool;
	struct node *nodes;
	const char *colon = strchr(how, ':');
	uint64_t address = colon ? strtoull(colon + 1, NULL, 16) : 0;
	if (colon) {
		int flags = how[0] == 'f' ? MAP_FIXED : how[0] == 'n' ? MAP_FIXED_NOREPLACE : 0;
		pool = map_at(path, address, flags, LEN, 0);
		nodes = pool->nodes;
		PM_REQUIRE((uint64_t)pool == address);
	} else if (!strcmp(how, "grow")) {
		pool = map_at(path, 0, 0, 4096, 0);
		PM_REQUIRE(truncate(path, LEN) == 0);
		pool = mremap(pool, 4096, LEN, MREMAP_MAYMOVE);
		PM_REQUIRE(pool != MAP_FAILED);
		nodes = (struct node *)((char *)pool + 65536);
	} else if (!strcmp(how, "again")) {
		pool = map_at(path, 0, 0, 4096, 0);
		char other[4096];
		snprintf(other, sizeof(other), "%s.other", path);
		PM_REQUIRE(map_at(other, 0, 0, LEN, 0) != NULL);
		PM_REQUIRE(munmap(pool, 4096) == 0);
		pool = map_at(path, 0, 0, LEN, 0);
		nodes = (struct node *)((char *)pool + 65536);
	} else if (!strcmp(how, "two")) {
		char other[4096];
		snprintf(other, sizeof(other), "%s.nodes", path);
		/* Recovery maps them in the other order. */
		if (recovers)
			nodes = map_at(other, 0, 0, LEN, 0);
		pool = map_at(path, 0, 0, LEN, 0);
		if (!recovers)
			nodes = map_at(other, 0, 0, LEN, 0);
	} else if (!strcmp(how, "parts")) {
		if (recovers)
			nodes = map_at(path, 0, 0, 65536, 65536);
		pool = map_at(path, 0, 0, 4096, 0);
		if (!recovers)
			nodes = map_at(path, 0, 0, 65536, 65536);
	} else {
		return 2;
	}
	if (recovers) {
		uint64_t expected = pool->head ? pool->head->value : 0;
		for (struct node *node = pool->head; node; node = node->next)
			if (node->value != expected-- || node->value == 0)
				return 1;
		return expected != 0;
	}
	for (uint64_t value = 1; value <= 5; value++) {
		struct node *node = &nodes[value];
		node->value = value;
		node->next = pool->head;
#ifndef BUG
		pm_persist(node);
#endif
		pool->head = node;
		pm_persist(&pool->head);
	}
	return 0;
}
