// powerfail: needs = "-pthread"
// Two threads put items into a queue. An item is a line, and its mark is stored last. After a crash the same threads go on
// behind the last item, and the power may fail again. The faulty program marks an item that has no sum yet.
#include <pthread.h>

#include "../../programs/pm.h"

enum { SLOTS = 6, ITEMS = 1 };

struct item {
	uint64_t id;
	char text[40];
	uint64_t sum;
	uint64_t valid;
} PM_LINE;

struct queue {
	uint64_t tail;
	struct item items[SLOTS];
};

static struct queue *queue;

static uint64_t sum_of(const struct item *item)
{
	uint64_t sum = item->id * 31 + 7;
	for (size_t i = 0; i < sizeof item->text; i++)
		sum = sum * 131 + (unsigned char)item->text[i];
	return sum;
}

static void *produce(void *me)
{
	for (int i = 0; i < ITEMS; i++) {
		uint64_t number = __atomic_fetch_add(&queue->tail, 1, __ATOMIC_SEQ_CST);
		if (number >= SLOTS)
			return NULL;
		struct item *item = &queue->items[number];
		item->id = number + 1;
		snprintf(item->text, sizeof item->text, "item %d of producer %d", i, (int)(uintptr_t)me);
		__atomic_store_n(&item->valid, 1, __ATOMIC_RELEASE); // expect: PF0401
		pm_persist(item);
		item->sum = sum_of(item);
		pm_persist(item);
	}
	return NULL;
}

static void recover(void)
{
	uint64_t last = 0;
	for (uint64_t i = 0; i < SLOTS; i++) {
		const struct item *item = &queue->items[i];
		if (!__atomic_load_n(&item->valid, __ATOMIC_SEQ_CST))
			continue;
		if (item->id != i + 1 || item->sum != sum_of(item))
			abort();
		last = i + 1;
	}
	__atomic_store_n(&queue->tail, last, __ATOMIC_SEQ_CST);
	pm_persist(&queue->tail);
}

int main(int argc, char **argv)
{
	pthread_t threads[2];
	PM_REQUIRE(argc == 2);
	queue = pm_open(argv[1], sizeof *queue);
	recover();
	for (uintptr_t i = 0; i < 2; i++)
		PM_REQUIRE(pthread_create(&threads[i], NULL, produce, (void *)i) == 0);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
