/* Threads that each keep a log of their own in one pool: records of a line, flushed and fenced. */
#include <fcntl.h>
#include <immintrin.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define RECORDS 16384
#define THREADS_MAX 8

struct record {
	unsigned long field[8];
};

static struct record *pool;
static long operations;

/* Some work that is not for the pool, as programs have between their stores. */
static unsigned long mixed(unsigned long value)
{
	for (int i = 0; i < 24; i++)
		value = (value ^ value >> 29) * 0xbf58476d1ce4e5b9ul;
	return value;
}

static void *work(void *number)
{
	struct record *log = pool + (long)number * RECORDS;
	for (long i = 0; i < operations; i++) {
		volatile struct record *record = &log[i % RECORDS];
		unsigned long value = mixed((unsigned long)i);
		for (int field = 0; field < 8; field++)
			record->field[field] = value + (unsigned long)field;
		_mm_clwb((void *)record);
		_mm_sfence();
	}
	return NULL;
}

int main(int argc, char **argv)
{
	long threads = argc > 2 ? atol(argv[2]) : 1;
	operations = (argc > 3 ? atol(argv[3]) : 1000) / threads;
	size_t len = THREADS_MAX * RECORDS * sizeof(struct record);
	int fd = open(argv[1], O_RDWR | O_CREAT, 0644);
	if (fd < 0 || threads > THREADS_MAX || ftruncate(fd, (off_t)len) != 0) {
		perror(argv[1]);
		return 1;
	}
	pool = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (threads == 1) {
		work(NULL);
		return 0;
	}
	pthread_t thread[THREADS_MAX];
	for (long i = 0; i < threads; i++)
		pthread_create(&thread[i], NULL, work, (void *)i);
	for (long i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	return 0;
}
