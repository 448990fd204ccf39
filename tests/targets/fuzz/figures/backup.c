/*
 * Figure 7 of the PMFuzz paper: a table that is updated in place, with a backup of the previous value. The path
 * of recovery depends on backup.valid, so only a crash image leads to the path that undoes an update; there,
 * the undone value may be lost.
 *
 * Arguments: pool. Commands on standard input, one per line: "set KEY VALUE". Recovery always runs first.
 * -DBUGS_ALL plants the bug.
 */
#include "../kv/planted.h"

#include <libpmem.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS = 8, POOL_BYTES = 4096, LINE_BYTES = 64 };

struct table {
	uint64_t values[KEYS];
	uint64_t checksum;
};

struct pool {
	_Alignas(LINE_BYTES) struct table table;
	_Alignas(LINE_BYTES) struct {
		uint64_t key, value, checksum;
	} backup;
	_Alignas(LINE_BYTES) uint64_t backup_valid;
};

static struct pool *pool;

static uint64_t checksum(void)
{
	uint64_t sum = 0;
	for (uint64_t i = 0; i < KEYS; i++)
		sum += pool->table.values[i] * (i + 1);
	return sum;
}

static void update(uint64_t key, uint64_t value)
{
	pool->backup.key = key;
	pool->backup.value = pool->table.values[key];
	pool->backup.checksum = pool->table.checksum;
	pmem_persist(&pool->backup, sizeof(pool->backup));
	pool->backup_valid = 1;
	pmem_persist(&pool->backup_valid, sizeof(pool->backup_valid));
	pool->table.values[key] = value;
	pool->table.checksum = checksum();
	pmem_persist(&pool->table, sizeof(pool->table));
	pool->backup_valid = 0;
	pmem_persist(&pool->backup_valid, sizeof(pool->backup_valid));
}

static void recover(void)
{
	if (pool->backup_valid) {
		pool->table.values[pool->backup.key % KEYS] = pool->backup.value; // bug 4: PF0101, PF0504 the undo may be lost
		pool->table.checksum = pool->backup.checksum; // bug 4: PF0101, PF0504
		if (!PLANTED(4))
			pmem_persist(&pool->table, sizeof(pool->table));
		pool->backup_valid = 0;
		pmem_persist(&pool->backup_valid, sizeof(pool->backup_valid));
	}
	if (pool->table.checksum != checksum()) {
		fprintf(stderr, "the checksum is wrong\n");
		exit(1);
	}
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	size_t mapped;
	pool = pmem_map_file(argv[1], POOL_BYTES, PMEM_FILE_CREATE, 0600, &mapped, NULL);
	if (!pool || mapped < sizeof(*pool))
		return 2;
	recover();
	char line[64];
	while (fgets(line, sizeof(line), stdin)) {
		uint64_t key, value;
		if (sscanf(line, "set %lu %lu", &key, &value) == 2 && key < KEYS)
			update(key, value);
	}
	pmem_unmap(pool, mapped);
	return 0;
}
