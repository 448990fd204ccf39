/* Code that is generated at run time: before the pool is mapped, after it, again, and while it is
   executable. */
#include "pool.h"

typedef void operation(void *, uint64_t);

/* mov [rdi], rsi; clflush [rdi]; sfence; lock inc qword [rdi]; ret */
static const unsigned char code[] = {0x48, 0x89, 0x37, 0x0f, 0xae, 0x3f, 0x0f, 0xae,
				     0xf8, 0xf0, 0x48, 0xff, 0x07, 0xc3};
/* clflush [rdi]; ret */
static const unsigned char other_code[] = {0x0f, 0xae, 0x3f, 0xc3};

static char *fresh(int protection)
{
	char *page = mmap(NULL, 4096, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(page != MAP_FAILED);
	return page;
}

static operation *as_function(char *page)
{
	return (operation *)(uintptr_t)page;
}

int main(int argc, char **argv)
{
	REQUIRE(argc == 3);
	char *early = fresh(PROT_READ | PROT_WRITE);
	memcpy(early, code, sizeof(code));
	REQUIRE(mprotect(early, 4096, PROT_READ | PROT_EXEC) == 0);
	char *pool = map_pool(argv[2], MIB);
	as_function(early)(pool, 10);
	char *page = fresh(PROT_READ | PROT_WRITE);
	memcpy(page, code, sizeof(code));
	REQUIRE(mprotect(page, 4096, PROT_READ | PROT_EXEC) == 0);
	for (uint64_t round = 1; round <= 3; round++)
		as_function(page)(pool + 64, 10 * round);
	/* The program reads its code back unchanged, and writes other code. */
	REQUIRE(mprotect(page, 4096, PROT_READ | PROT_WRITE) == 0);
	REQUIRE(memcmp(page, code, sizeof(code)) == 0);
	memset(page, 0, 4096);
	memcpy(page, other_code, sizeof(other_code));
	REQUIRE(mprotect(page, 4096, PROT_READ | PROT_EXEC) == 0);
	as_function(page)(pool + 128, 0);
	REQUIRE(munmap(page, 4096) == 0);
	if (strcmp(argv[1], "while_executable") == 0) {
		char *both = fresh(PROT_READ | PROT_WRITE | PROT_EXEC);
		memcpy(both, code, sizeof(code));
		as_function(both)(pool + 192, 7);
	}
	return 0;
}
