/*
 * Plain C without assembly, to be built with many compilers and options: its effects on the pool depend only
 * on the source.
 */
#include "pool.h"

struct account {
	uint64_t number;
	int32_t balance;
	uint16_t flags;
	uint8_t state;
	char owner[33];
	double rate;
	struct account *next;
};

enum { ACCOUNTS = 64, ROUNDS = 40 };

static void credit(struct account *account, int amount)
{
	account->balance += amount;
	account->flags ^= (uint16_t)(1u << (amount & 15));
	account->state++;
	account->rate = account->rate * 1.5 + amount;
	account->number <<= 1;
	account->number |= (unsigned)amount & 1;
}

static void rename_owner(struct account *account, int round)
{
	char name[33];
	int len = 0;
	while (len < round % 32)
		name[len] = (char)('a' + (round + len) % 26), len++;
	name[len] = 0;
	memcpy(account->owner, name, (size_t)len + 1);
}

int main(int argc, char **argv)
{
	REQUIRE(argc == 2);
	struct account *accounts = (struct account *)map_pool(argv[1], MIB);
	for (int at = 0; at < ACCOUNTS; at++) {
		/* The position, not the address, which differs between runs. */
		accounts[at] = (struct account){.number = (uint64_t)at, .next = (void *)(uintptr_t)at};
	}
	for (int round = 0; round < ROUNDS; round++) {
		for (int at = 0; at < ACCOUNTS; at++) {
			credit(&accounts[at], round * at - 7);
			if ((at ^ round) % 5 == 0)
				rename_owner(&accounts[at], round);
			if (at % 16 == 3)
				memmove(&accounts[at + 1], &accounts[at], 2 * sizeof(*accounts));
		}
		flush(&accounts[round]);
		sfence();
	}
	uint64_t sum = 0;
	for (size_t at = 0; at < ACCOUNTS * sizeof(*accounts); at++)
		sum = sum * 31 + ((unsigned char *)accounts)[at];
	printf("%016lx\n", sum);
	return 0;
}
