/*
 * Extendible hashing with segments and a directory (based on the idea of CCEH).
 *
 * The first bits of a key's hash select an entry of the directory, which points to a segment. The segment
 * stores how many of these bits all of its keys share, and their values: one word, changed atomically. A key
 * with other bits is ignored, so that a split need not erase the keys that it has moved.
 *
 * A split copies half of the keys to a new segment and makes it durable; then the upper half of the
 * directory's entries is changed to point to it; then, when that is durable, the word of the old segment is
 * changed to one bit more. Until then the old segment still has all keys: recovery finds entries that
 * disagree with the word and resets them. If the directory has only one entry for the segment, a new
 * directory of twice the length is created and one pointer is replaced.
 *
 * Planted bugs:
 *   1  constructor: the first segments are not flushed
 *   2  constructor: the directory is not flushed
 *   3  split: the new segment is made durable last, when all entries point to it
 *   4  split: no fence between the entries of the directory and the word of the old segment
 *   5  doubling: the new directory is published before it is durable
 */
#include "index.h"

#define BUCKETS 2UL
#define SLOTS_IN_BUCKET 4UL
#define SLOTS (BUCKETS * SLOTS_IN_BUCKET)
/* How many slots, starting with the first slot of a bucket, may contain a key. */
#define PROBES (2 * SLOTS_IN_BUCKET)
#define FIRST_DEPTH 1UL
#define DEPTH_MAX 12UL

struct slot {
	uint64_t key;
	uint64_t value;
};

struct segment {
	/* Number of bits in the lowest byte, their values above it. */
	LINE uint64_t prefix;
	LINE struct slot slots[SLOTS];
};

struct directory {
	LINE uint64_t depth;
	LINE struct segment *segments[];
};

struct index {
	LINE struct directory *directory;
};

static struct index *index_root;

static uint64_t prefix(uint64_t depth, uint64_t bits)
{
	return bits << 8 | depth;
}

static uint64_t depth_of(const struct segment *segment)
{
	return segment->prefix & 0xff;
}

static uint64_t first_bits(uint64_t key, uint64_t depth)
{
	return mix(key) >> (64 - depth);
}

/* Whether a key in the segment belongs to it. */
static bool counts(const struct segment *segment, uint64_t key)
{
	uint64_t depth = depth_of(segment);
	return key && segment->prefix == prefix(depth, first_bits(key, depth));
}

static struct slot *slot_of(struct segment *segment, uint64_t key, uint64_t probe)
{
	uint64_t first = mix(key) % BUCKETS * SLOTS_IN_BUCKET;
	return &segment->slots[(first + probe) % SLOTS];
}

static struct segment *segment_of(uint64_t key)
{
	struct directory *directory = index_root->directory;
	return directory->segments[first_bits(key, directory->depth)];
}

static size_t directory_bytes(uint64_t depth)
{
	return sizeof(struct directory) + sizeof(struct segment *) * (1UL << depth);
}

static struct segment *make_segment(uint64_t depth, uint64_t bits)
{
	struct segment *segment = heap_allocate(sizeof(*segment));
	memset(segment, 0, sizeof(*segment));
	segment->prefix = prefix(depth, bits);
	return segment;
}

static struct directory *make_directory(uint64_t depth)
{
	struct directory *directory = heap_allocate(directory_bytes(depth));
	directory->depth = depth;
	return directory;
}

static void make_index(void)
{
	struct index *index = heap_allocate(sizeof(*index));
	struct directory *directory = make_directory(FIRST_DEPTH);
	for (uint64_t i = 0; i < 1UL << FIRST_DEPTH; i++) {
		directory->segments[i] = make_segment(FIRST_DEPTH, i);
#if BUG != 1
		flush(directory->segments[i], sizeof(struct segment));
#endif
	}
#if BUG != 2
	flush(directory, directory_bytes(FIRST_DEPTH));
#endif
	index->directory = directory;
	flush(index, sizeof(*index));
	fence();
	STORE(heap->root, index);
	persist(&heap->root, sizeof(heap->root));
}

static void check_directory(const struct directory *directory)
{
	INTACT(heap_holds(directory, sizeof(*directory)));
	INTACT(directory->depth >= FIRST_DEPTH && directory->depth <= DEPTH_MAX);
	for (uint64_t i = 0; i < 1UL << directory->depth; i++) {
		const struct segment *segment = directory->segments[i];
		INTACT(heap_holds(segment, sizeof(*segment)));
		INTACT(depth_of(segment) >= FIRST_DEPTH && depth_of(segment) <= directory->depth);
	}
}

/* Resets the entries of unfinished splits to the old segment. */
static void repair(struct directory *directory)
{
	uint64_t entries = 1UL << directory->depth;
	bool repaired = false;
	for (uint64_t i = 0; i < entries;) {
		struct segment *segment = directory->segments[i];
		uint64_t end = i + (1UL << (directory->depth - depth_of(segment)));
		for (; i < end; i++) {
			if (directory->segments[i] == segment)
				continue;
			STORE(directory->segments[i], segment);
			flush(&directory->segments[i], sizeof(segment));
			repaired = true;
		}
	}
	if (repaired)
		fence();
}

static void index_open(void)
{
	if (!heap->root)
		make_index();
	index_root = heap->root;
	check_directory(index_root->directory);
	repair(index_root->directory);
}

static bool index_find(uint64_t key, uint64_t *value)
{
	struct segment *segment = segment_of(key);
	for (uint64_t probe = 0; probe < PROBES; probe++) {
		struct slot *slot = slot_of(segment, key, probe);
		if (slot->key == key) {
			*value = slot->value;
			return true;
		}
	}
	return false;
}

/* Changes the entries with the bits of a new segment to point to it, and flushes them. */
static void lead_to(struct directory *directory, struct segment *upper)
{
	uint64_t shift = directory->depth - depth_of(upper);
	uint64_t first = (upper->prefix >> 8) << shift;
	for (uint64_t i = first; i < first + (1UL << shift); i++)
		STORE(directory->segments[i], upper);
	flush(&directory->segments[first], sizeof(upper) << shift);
}

static void double_directory(struct directory *old, struct segment *upper)
{
	REQUIRE(old->depth < DEPTH_MAX);
	struct directory *directory = make_directory(old->depth + 1);
	for (uint64_t i = 0; i < 1UL << directory->depth; i++)
		directory->segments[i] = old->segments[i / 2];
	lead_to(directory, upper);
#if BUG != 5
	persist(directory, directory_bytes(directory->depth));
#endif
	STORE(index_root->directory, directory);
	persist(&index_root->directory, sizeof(index_root->directory));
#if BUG == 5
	persist(directory, directory_bytes(directory->depth));
#endif
}

static void split(struct segment *segment)
{
	struct directory *directory = index_root->directory;
	uint64_t depth = depth_of(segment), bits = segment->prefix >> 8;
	struct segment *upper = make_segment(depth + 1, bits << 1 | 1);
	for (uint64_t i = 0; i < SLOTS; i++)
		if (counts(upper, segment->slots[i].key))
			upper->slots[i] = segment->slots[i];
#if BUG != 3
	persist(upper, sizeof(*upper));
#endif
	if (directory->depth == depth) {
		double_directory(directory, upper);
	} else {
		lead_to(directory, upper);
#if BUG != 4
		fence();
#endif
	}
	STORE(segment->prefix, prefix(depth + 1, bits << 1));
	persist(&segment->prefix, sizeof(segment->prefix));
#if BUG == 3
	persist(upper, sizeof(*upper));
#endif
}

/* An existing key gets the value; otherwise the first slot that is free or contains an ignored key does. */
static bool insert_in_segment(struct segment *segment, uint64_t key, uint64_t value)
{
	struct slot *free = NULL;
	for (uint64_t probe = 0; probe < PROBES; probe++) {
		struct slot *slot = slot_of(segment, key, probe);
		if (slot->key == key) {
			STORE(slot->value, value);
			persist(slot, sizeof(*slot));
			return true;
		}
		if (!free && !counts(segment, slot->key))
			free = slot;
	}
	if (!free)
		return false;
	STORE(free->value, value);
	STORE(free->key, key);
	persist(free, sizeof(*free));
	return true;
}

static void index_insert(uint64_t key, uint64_t value)
{
	while (!insert_in_segment(segment_of(key), key, value))
		split(segment_of(key));
}

static bool is_in_reach(struct segment *segment, uint64_t key, uint64_t at)
{
	for (uint64_t probe = 0; probe < PROBES; probe++)
		if (slot_of(segment, key, probe) == &segment->slots[at])
			return true;
	return false;
}

static void index_walk(visitor *visit)
{
	struct directory *directory = index_root->directory;
	check_directory(directory);
	uint64_t entries = 1UL << directory->depth;
	for (uint64_t i = 0; i < entries; i++) {
		struct segment *segment = directory->segments[i];
		uint64_t depth = depth_of(segment), shift = directory->depth - depth;
		INTACT(segment->prefix == prefix(depth, i >> shift));
		if (i & ((1UL << shift) - 1))
			continue;
		for (uint64_t at = 0; at < SLOTS; at++) {
			uint64_t key = segment->slots[at].key;
			if (!counts(segment, key))
				continue;
			INTACT(is_in_reach(segment, key, at));
			visit(key, segment->slots[at].value);
		}
	}
}

#include "judge.h"
