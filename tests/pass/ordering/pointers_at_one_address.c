// powerfail: recover = "{bin} {pool} recover"
// The pool is always mapped at the same address, and contains plain pointers. The record is made durable
// before the pointer to the newest record is stored.
#define _GNU_SOURCE
#include "../../programs/pm.h"

struct record {
	uint64_t number;
	uint64_t twice;
} PM_LINE;

struct pool {
	struct pool *address;
	struct record *newest;
	struct record records[8];
};

static struct pool *open_at_its_address(const char *path)
{
	struct pool *address = NULL;
	int fd = open(path, O_CREAT | O_RDWR, 0600);
	PM_REQUIRE(fd >= 0);
	PM_REQUIRE(ftruncate(fd, 4096) == 0);
	PM_REQUIRE(pread(fd, &address, sizeof(address), 0) == sizeof(address));
	int flags = MAP_SHARED | (address ? MAP_FIXED_NOREPLACE : 0);
	struct pool *pool = mmap(address, 4096, PROT_READ | PROT_WRITE, flags, fd, 0);
	PM_REQUIRE(pool != MAP_FAILED);
	close(fd);
	return pool;
}

int main(int argc, char **argv)
{
	struct pool *pool = open_at_its_address(argv[1]);
	if (pm_mode(argc, argv, "recover")) {
		struct record *newest = pool->newest;
		return newest && (newest->number == 0 || newest->twice != 2 * newest->number);
	}
	pool->address = pool;
	pm_persist(&pool->address);
	for (uint64_t i = 0; i < 3; i++) {
		struct record *record = &pool->records[i];
		record->number = i + 1;
		record->twice = 2 * (i + 1);
		pm_persist(record);
		pool->newest = record;
		pm_persist(&pool->newest);
	}
	return 0;
}
