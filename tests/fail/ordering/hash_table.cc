// powerfail: recover = "{bin} {pool} recover"
// powerfail: dump = "{bin} {pool} dump"
// powerfail: ack = "ok (\d+)"
// A hash table in the style of the RECIPE indexes: a mapped file with an allocator of its own, and buckets that refer to
// each other by address. A link leads to a bucket before that is durable.
#include "../../programs/pm.h"

struct Bucket {
	std::uint64_t keys[3];
	std::uint64_t values[3];
	Bucket *next;
	std::uint64_t room;
} PM_LINE;

struct Pool {
	char *unused;
	std::uint64_t room[7];
	Bucket *buckets[4];
} PM_LINE;

static Pool *pool;

static void *allocate(std::size_t len)
{
	char *place = pool->unused ? pool->unused : reinterpret_cast<char *>(pool) + 4096;
	pool->unused = place + (len + 63) / 64 * 64;
	pm_persist(&pool->unused);
	return place;
}

static std::uint64_t value_of(std::uint64_t key) { return key * 0x9e3779b97f4a7c15; }

static void insert(std::uint64_t key)
{
	Bucket **link = &pool->buckets[key % 4];
	for (; *link; link = &(*link)->next) {
		for (int slot = 0; slot < 3; slot++) {
			if ((*link)->keys[slot])
				continue;
			(*link)->values[slot] = value_of(key);
			(*link)->keys[slot] = key;
			pm_persist(*link);
			return;
		}
	}
	auto *bucket = static_cast<Bucket *>(allocate(sizeof(Bucket)));
	bucket->values[0] = value_of(key);
	bucket->keys[0] = key; // expect: PF0201
	*link = bucket;
	pm_persist(link);
}

static void dump()
{
	for (Bucket *bucket : pool->buckets)
		for (; bucket; bucket = bucket->next)
			for (int slot = 0; slot < 3; slot++)
				if (bucket->keys[slot] && bucket->values[slot] == value_of(bucket->keys[slot]))
					std::printf("%lu\n", bucket->keys[slot]);
}

int main(int argc, char **argv)
{
	pool = static_cast<Pool *>(pm_open(argv[1], 1 << 20));
	if (pm_mode(argc, argv, "recover"))
		return 0;
	if (pm_mode(argc, argv, "dump")) {
		dump();
		return 0;
	}
	for (std::uint64_t key = 1; key <= 14; key++) {
		insert(key);
		pm_acknowledge(key);
	}
	return 0;
}
