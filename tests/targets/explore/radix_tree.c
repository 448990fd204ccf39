/*
 * A radix tree whose nodes grow with the number of their children (based on the idea of P-ART).
 *
 * A node represents a byte of the key, and a few bytes before it that all of its keys share. Nodes have room
 * for 4, 16, 48 or 256 children. The link to a child is a word: the address of a node, or of a record with
 * the whole key if its lowest bit is set. Records and nodes are durable before a word points to them, and the
 * store of that word alone commits an insert. In nodes for 4 and 16 children the byte is stored before the
 * word; the node for 48 has an index of bytes, which is stored after the word and commits instead of it. A
 * node that is full, or whose shared bytes must be split, is copied, and one word is replaced. So there is
 * nothing to repair after a crash.
 *
 * Planted bugs:
 *   1  constructor: a record is not flushed
 *   2  a larger node is published with the same fence that makes it durable
 *   3  no fence between the byte and the word in nodes for 16 children
 *   4  no fence between the word and the index of bytes in nodes for 48 children
 *   5  splitting shared bytes: the shortened copy of the node is not flushed
 */
#include "index.h"

/* Half of the keys differ only in their last byte, so that there are nodes of all kinds. */
#define KEY(number) ((number) % 4 == 3 ? mix(number) : 0x6b65790000000001UL + (number))
#define KEY_BYTES 8U

enum kind { NODE4 = 4, NODE16 = 16, NODE48 = 48, NODE256 = 256 };

/* The header of every node. */
struct node {
	uint16_t kind;
	/* How many bytes of the key all children share, starting with this node's first byte. */
	uint8_t shared_len;
	uint8_t shared[KEY_BYTES];
};

struct node4 {
	LINE struct node node;
	uint8_t bytes[4];
	uint64_t words[4];
};

struct node16 {
	LINE struct node node;
	uint8_t bytes[16];
	LINE uint64_t words[16];
};

struct node48 {
	LINE struct node node;
	/* The index of the word of a byte, plus one; zero if there is none. */
	LINE uint8_t numbers[256];
	LINE uint64_t words[48];
};

struct node256 {
	LINE struct node node;
	LINE uint64_t words[256];
};

struct record {
	LINE uint64_t key;
	uint64_t value;
};

struct index {
	LINE uint64_t word;
};

static struct index *index_root;

static uint8_t byte_of(uint64_t key, unsigned at)
{
	return (uint8_t)(key >> 8 * (KEY_BYTES - 1 - at));
}

static bool is_record(uint64_t word)
{
	return word & 1;
}

static struct record *record_of(uint64_t word)
{
	struct record *record = (struct record *)(word - 1);
	INTACT(heap_holds(record, sizeof(*record)));
	return record;
}

static size_t node_bytes(unsigned kind)
{
	switch (kind) {
	case NODE4:
		return sizeof(struct node4);
	case NODE16:
		return sizeof(struct node16);
	case NODE48:
		return sizeof(struct node48);
	case NODE256:
		return sizeof(struct node256);
	}
	INTACT(!"a kind of node");
	return 0;
}

static struct node *node_of(uint64_t word)
{
	struct node *node = (struct node *)word;
	INTACT(heap_holds(node, sizeof(*node)));
	INTACT(heap_holds(node, node_bytes(node->kind)));
	INTACT(node->shared_len < KEY_BYTES);
	return node;
}

/* The address of the word of a byte, or NULL. */
static uint64_t *child_of(struct node *node, uint8_t byte)
{
	uint8_t *bytes = NULL;
	uint64_t *words = NULL;
	switch (node->kind) {
	case NODE4:
		bytes = ((struct node4 *)node)->bytes;
		words = ((struct node4 *)node)->words;
		break;
	case NODE16:
		bytes = ((struct node16 *)node)->bytes;
		words = ((struct node16 *)node)->words;
		break;
	case NODE48: {
		struct node48 *node48 = (struct node48 *)node;
		uint8_t number = node48->numbers[byte];
		INTACT(number <= 48);
		return number ? &node48->words[number - 1] : NULL;
	}
	case NODE256:
		words = &((struct node256 *)node)->words[byte];
		return *words ? words : NULL;
	}
	for (unsigned i = 0; i < node->kind && words[i]; i++)
		if (bytes[i] == byte)
			return &words[i];
	return NULL;
}

static struct node *make_node(enum kind kind, const uint8_t *shared, unsigned shared_len)
{
	struct node *node = heap_allocate(node_bytes(kind));
	memset(node, 0, node_bytes(kind));
	node->kind = kind;
	node->shared_len = (uint8_t)shared_len;
	memcpy(node->shared, shared, shared_len);
	return node;
}

static uint64_t make_record(uint64_t key, uint64_t value)
{
	struct record *record = heap_allocate(sizeof(*record));
	record->key = key;
	record->value = value;
#if BUG != 1
	persist(record, sizeof(*record));
#endif
	return (uint64_t)record + 1;
}

/* Replaces the word that points to a part of the tree. */
static void lead_to(uint64_t *place, uint64_t word)
{
	STORE(*place, word);
	persist(place, sizeof(*place));
}

/* Adds a child to a node that has words and bytes in the same order. Returns false if it is full. */
static bool add_in_order(uint8_t *bytes, uint64_t *words, unsigned kind, uint8_t byte, uint64_t word)
{
	unsigned at = 0;
	while (at < kind && words[at])
		at++;
	if (at == kind)
		return false;
	STORE(bytes[at], byte);
	/* The words of a node for 4 are in the same line as the bytes. */
	if (kind != NODE4) {
#if BUG != 3
		persist(&bytes[at], 1);
#else
		flush(&bytes[at], 1);
#endif
	}
	lead_to(&words[at], word);
	return true;
}

/* Words that the index does not refer to are free, whatever they contain. */
static bool add_by_number(struct node48 *node, uint8_t byte, uint64_t word)
{
	bool taken[48] = {false};
	for (unsigned i = 0; i < 256; i++) {
		INTACT(node->numbers[i] <= 48);
		if (node->numbers[i])
			taken[node->numbers[i] - 1] = true;
	}
	unsigned at = 0;
	while (at < 48 && taken[at])
		at++;
	if (at == 48)
		return false;
	STORE(node->words[at], word);
#if BUG != 4
	persist(&node->words[at], sizeof(word));
#else
	flush(&node->words[at], sizeof(word));
#endif
	STORE(node->numbers[byte], (uint8_t)(at + 1));
	persist(&node->numbers[byte], 1);
	return true;
}

/* Adds a child to a node. Returns false if there is no room. */
static bool add(struct node *node, uint8_t byte, uint64_t word)
{
	switch (node->kind) {
	case NODE4: {
		struct node4 *node4 = (struct node4 *)node;
		return add_in_order(node4->bytes, node4->words, NODE4, byte, word);
	}
	case NODE16: {
		struct node16 *node16 = (struct node16 *)node;
		return add_in_order(node16->bytes, node16->words, NODE16, byte, word);
	}
	case NODE48:
		return add_by_number((struct node48 *)node, byte, word);
	default:
		lead_to(&((struct node256 *)node)->words[byte], word);
		return true;
	}
}

/* Adds a child to a node that is not visible yet. */
static void put(struct node *node, unsigned at, uint8_t byte, uint64_t word)
{
	switch (node->kind) {
	case NODE4:
		((struct node4 *)node)->bytes[at] = byte;
		((struct node4 *)node)->words[at] = word;
		break;
	case NODE16:
		((struct node16 *)node)->bytes[at] = byte;
		((struct node16 *)node)->words[at] = word;
		break;
	case NODE48:
		((struct node48 *)node)->numbers[byte] = (uint8_t)(at + 1);
		((struct node48 *)node)->words[at] = word;
		break;
	default:
		((struct node256 *)node)->words[byte] = word;
	}
}

/* Copies all children of a node to one that is not visible yet; returns how many. */
static unsigned put_all(struct node *to, struct node *from)
{
	unsigned count = 0;
	for (unsigned byte = 0; byte < 256; byte++) {
		uint64_t *word = child_of(from, (uint8_t)byte);
		if (word)
			put(to, count++, (uint8_t)byte, *word);
	}
	return count;
}

/* Replaces a full node with a larger one with one more child. */
static void grow(uint64_t *place, struct node *node, uint8_t byte, uint64_t word)
{
	enum kind kind = node->kind == NODE4 ? NODE16 : node->kind == NODE16 ? NODE48 : NODE256;
	struct node *larger = make_node(kind, node->shared, node->shared_len);
	unsigned count = put_all(larger, node);
	put(larger, count, byte, word);
	flush(larger, node_bytes(kind));
#if BUG != 2
	fence();
#endif
	lead_to(place, (uint64_t)larger);
}

/* Splits the bytes that a node shares, before the one with this number. */
static void divide(uint64_t *place, struct node *node, unsigned at, uint8_t byte, uint64_t word)
{
	struct node *above = make_node(NODE4, node->shared, at);
	unsigned rest = node->shared_len - at - 1;
	struct node *below = make_node(node->kind, &node->shared[at + 1], rest);
	put_all(below, node);
	put(above, 0, node->shared[at], (uint64_t)below);
	put(above, 1, byte, word);
#if BUG != 5
	flush(below, node_bytes(below->kind));
#endif
	flush(above, node_bytes(NODE4));
	fence();
	lead_to(place, (uint64_t)above);
}

/* Puts a node above a record where another key is inserted; the keys share the first `at` bytes. */
static void branch(uint64_t *place, uint64_t old_word, unsigned at, uint64_t key, uint64_t word)
{
	uint64_t old_key = record_of(old_word)->key;
	uint8_t shared[KEY_BYTES];
	unsigned shared_len = 0;
	for (; byte_of(old_key, at) == byte_of(key, at); at++) {
		shared[shared_len++] = byte_of(key, at);
		INTACT(at + 1 < KEY_BYTES);
	}
	struct node *node = make_node(NODE4, shared, shared_len);
	put(node, 0, byte_of(old_key, at), old_word);
	put(node, 1, byte_of(key, at), word);
	persist(node, node_bytes(NODE4));
	lead_to(place, (uint64_t)node);
}

static void make_index(void)
{
	struct index *index = heap_allocate(sizeof(*index));
	index->word = 0;
	persist(index, sizeof(*index));
	STORE(heap->root, index);
	persist(&heap->root, sizeof(heap->root));
}

static void index_open(void)
{
	if (!heap->root)
		make_index();
	index_root = heap->root;
	INTACT(heap_holds(index_root, sizeof(*index_root)));
}

/* How many of the bytes that a node shares match a key. */
static unsigned match(const struct node *node, uint64_t key, unsigned at)
{
	unsigned len = 0;
	while (len < node->shared_len && node->shared[len] == byte_of(key, at + len))
		len++;
	return len;
}

static bool index_find(uint64_t key, uint64_t *value)
{
	uint64_t word = index_root->word;
	for (unsigned at = 0; word && !is_record(word); at++) {
		struct node *node = node_of(word);
		INTACT(at + node->shared_len < KEY_BYTES);
		if (match(node, key, at) < node->shared_len)
			return false;
		at += node->shared_len;
		uint64_t *child = child_of(node, byte_of(key, at));
		word = child ? *child : 0;
	}
	if (!word || record_of(word)->key != key)
		return false;
	*value = record_of(word)->value;
	return true;
}

static void index_insert(uint64_t key, uint64_t value)
{
	uint64_t *place = &index_root->word;
	for (unsigned at = 0;; at++) {
		uint64_t word = *place;
		if (word && is_record(word) && record_of(word)->key == key) {
			STORE(record_of(word)->value, value);
			persist(&record_of(word)->value, sizeof(value));
			return;
		}
		if (!word) {
			lead_to(place, make_record(key, value));
			return;
		}
		if (is_record(word)) {
			branch(place, word, at, key, make_record(key, value));
			return;
		}
		struct node *node = node_of(word);
		unsigned len = match(node, key, at);
		at += len;
		if (len < node->shared_len) {
			divide(place, node, len, byte_of(key, at), make_record(key, value));
			return;
		}
		uint64_t *child = child_of(node, byte_of(key, at));
		if (!child) {
			uint64_t record = make_record(key, value);
			if (!add(node, byte_of(key, at), record))
				grow(place, node, byte_of(key, at), record);
			return;
		}
		place = child;
	}
}

/* Visits everything below a word; all of its keys begin with `at` bytes of `prefix`. */
static void walk(uint64_t word, unsigned at, uint64_t prefix, visitor *visit)
{
	if (is_record(word)) {
		struct record *record = record_of(word);
		for (unsigned i = 0; i < at; i++)
			INTACT(byte_of(record->key, i) == byte_of(prefix, i));
		visit(record->key, record->value);
		return;
	}
	struct node *node = node_of(word);
	INTACT(at + node->shared_len < KEY_BYTES);
	for (unsigned i = 0; i < node->shared_len; i++, at++)
		prefix |= (uint64_t)node->shared[i] << 8 * (KEY_BYTES - 1 - at);
	unsigned count = 0;
	for (unsigned byte = 0; byte < 256; byte++) {
		uint64_t *child = child_of(node, (uint8_t)byte);
		if (!child)
			continue;
		count++;
		uint64_t place = (uint64_t)byte << 8 * (KEY_BYTES - 1 - at);
		walk(*child, at + 1, prefix | place, visit);
	}
	INTACT(count >= 2);
}

static void index_walk(visitor *visit)
{
	if (index_root->word)
		walk(index_root->word, 0, 0, visit);
}

#include "judge.h"
