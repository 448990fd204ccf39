/*
 * A log of records, each on its own cache line, and a count. One fence makes each record durable, so each
 * segment has only a few combinations. Recovery maps the pool and reads the count: almost the minimum that a
 * recovery can do.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RECORDS 1000

struct record {
	uint64_t value, check;
} __attribute__((aligned(64)));

struct pool {
	uint64_t count;
	struct record records[RECORDS];
};

#define flush(at) __asm__ volatile("clflushopt %0" : "+m"(*(volatile char *)(at)) : : "memory")

int main(int argc, char **argv)
{
	int fd = open(argv[1], O_CREAT | O_RDWR, 0600);
	if (argc < 2 || fd < 0 || ftruncate(fd, sizeof(struct pool)) != 0)
		return 2;
	struct pool *pool =
		mmap(NULL, sizeof(struct pool), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (pool == MAP_FAILED)
		return 2;
	if (argc > 2)
		return pool->count > RECORDS;
	for (uint64_t i = 0; i < RECORDS; i++) {
		struct record *record = &pool->records[i];
		record->value = i + 1;
		record->check = ~i;
		flush(record);
		pool->count = i + 1;
		flush(&pool->count);
		__asm__ volatile("sfence" ::: "memory");
	}
	return 0;
}
