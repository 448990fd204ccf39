/* Stores by instructions that are rarely used for stores. Each line of output describes a store: kind,
   offset, length, bytes. */
#include <cpuid.h>

#include "pool.h"

static char *pool;
static _Alignas(64) char buffer[16384];

static void tell(const char *kind, size_t offset, size_t len)
{
	printf("%s %zx %zx ", kind, offset, len);
	for (size_t at = 0; at < len; at++)
		printf("%02x", (unsigned char)pool[offset + at]);
	printf("\n");
}

/* The bytes that any number of stores wrote, until the next fence. */
static void tell_all(const char *kind, size_t offset, size_t len)
{
	sfence();
	tell(kind, offset, len);
	printf("sfence 0 0 \n");
}

/* Areas for the processor state, by length: the written bytes must equal those that the instruction writes to
   other memory. */
static void compare(size_t offset, size_t len)
{
	REQUIRE(memcmp(pool + offset, buffer, len) == 0);
}

static void pops(void)
{
	char *place = pool + 0x100;
	uint64_t value = 0x1122334455667788;
	__asm__ volatile("lea -128(%%rsp), %%rsp; push %0; pop (%1); lea 128(%%rsp), %%rsp"
			 : : "r"(value), "r"(place) : "memory");
	tell("store", 0x100, 8);
	__asm__ volatile("lea -128(%%rsp), %%rsp; push %0; popw 16(%1); add $6, %%rsp; lea 128(%%rsp), %%rsp"
			 : : "r"(value), "r"(place) : "memory", "cc");
	tell("store", 0x110, 2);
	/* The address is computed after the stack pointer has moved. */
	uint64_t kept;
	__asm__ volatile("mov %%rsp, %0; lea -128(%%rsp), %%rsp; push %1; mov %2, %%rsi; sub %%rsp, %%rsi;"
			 "pop -8(%%rsp, %%rsi); mov %0, %%rsp"
			 : "=&r"(kept) : "r"(value + 1), "r"(pool + 0x180) : "rsi", "memory", "cc");
	tell("store", 0x180, 8);
}

static void masks(void)
{
	static const char mask[16] = {-1, 0, 0, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1};
	static const char value[16] = "abcdefghijklmnop";
	__asm__ volatile("movdqu %0, %%xmm1; movdqu %1, %%xmm2; maskmovdqu %%xmm2, %%xmm1"
			 : : "m"(value), "m"(mask), "D"(pool + 0x205) : "xmm1", "xmm2", "memory");
	/* Before the output, in which locks would complete the stores. */
	sfence();
	tell("ntstore", 0x205, 1);
	tell("ntstore", 0x208, 3);
	tell("ntstore", 0x214, 1);
	printf("sfence 0 0 \n");
	__asm__ volatile("movq %0, %%mm1; movq %1, %%mm2; maskmovq %%mm2, %%mm1; emms"
			 : : "m"(value), "m"(mask), "D"(pool + 0x240) : "mm1", "mm2", "memory");
	sfence();
	tell("ntstore", 0x240, 1);
	tell("ntstore", 0x243, 3);
	printf("sfence 0 0 \n");
	/* An empty mask writes nothing. */
	__asm__ volatile("pxor %%xmm2, %%xmm2; maskmovdqu %%xmm2, %%xmm2" : : "D"(pool + 0x260) : "xmm2", "memory");
	sfence();
	printf("sfence 0 0 \n");
}

static void zero_line(void)
{
	unsigned eax, ebx = 0, ecx, edx;
	if (!__get_cpuid(0x80000008, &eax, &ebx, &ecx, &edx) || !(ebx & 1))
		return;
	store8(pool + 0x288, 7);
	tell("store", 0x288, 8);
	__asm__ volatile("clzero" : : "a"(pool + 0x285) : "memory");
	sfence();
	tell("ntstore", 0x280, 64);
	printf("sfence 0 0 \n");
}

static void states(void)
{
	__asm__ volatile("fnstenv (%0); fldenv (%0)" : : "r"(buffer) : "memory");
	__asm__ volatile("fnstenv (%0); fldenv (%1)" : : "r"(pool + 0x300), "r"(buffer) : "memory");
	/* The instruction pointer in it may differ. */
	REQUIRE(memcmp(pool + 0x300, buffer, 12) == 0);
	tell("store", 0x300, 28);
	__asm__ volatile("fldpi; fnsave (%0)" : : "r"(pool + 0x400) : "memory");
	tell("store", 0x400, 108);
	long double pi = 0;
	memcpy(&pi, pool + 0x400 + 28, 10);
	REQUIRE(pi > 3.14L && pi < 3.15L);
	/* The rest of the area belongs to the program and is unchanged. */
	memset(pool + 0x800, 0x5a, 512);
	memset(buffer, 0x5a, 512);
	tell_all("bulk", 0x800, 512);
	/* The content of unused registers depends on the recording mode. */
	__asm__ volatile("pxor %%xmm4, %%xmm4; pxor %%xmm5, %%xmm5; pxor %%xmm6, %%xmm6; pxor %%xmm7, %%xmm7" ::: "xmm4", "xmm5", "xmm6", "xmm7");
	__asm__ volatile("pxor %%xmm0, %%xmm0; pxor %%xmm1, %%xmm1; pxor %%xmm2, %%xmm2; pxor %%xmm3, %%xmm3" ::: "xmm0", "xmm1", "xmm2", "xmm3");
	__asm__ volatile("pxor %%xmm8, %%xmm8; pxor %%xmm9, %%xmm9; pxor %%xmm10, %%xmm10; pxor %%xmm11, %%xmm11" ::: "xmm8", "xmm9", "xmm10", "xmm11");
	__asm__ volatile("pxor %%xmm12, %%xmm12; pxor %%xmm13, %%xmm13; pxor %%xmm14, %%xmm14; pxor %%xmm15, %%xmm15" ::: "xmm12", "xmm13", "xmm14", "xmm15");
	__asm__ volatile("fxsave64 (%0); fxsave64 (%1)" : : "r"(buffer), "r"(pool + 0x800) : "memory");
	compare(0x800, 512);
	tell_all("some", 0x800, 512);
}

static void extended_states(void)
{
	unsigned eax, ebx, ecx, edx;
	if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & bit_OSXSAVE))
		return;
	__cpuid_count(13, 0, eax, ebx, ecx, edx);
	size_t len = ebx;
	char *area = pool + 0x10000;
	REQUIRE(len <= sizeof(buffer));
	memset(buffer, 0, sizeof(buffer));
	memset(buffer + 512, 0xa4, 8);
	memcpy(area, buffer, len);
	tell_all("bulk", 0x10000, len);
	__asm__ volatile("xsave64 (%0); xsave64 (%1)"
			 : : "r"(buffer), "r"(area), "a"(3), "d"(0) : "memory");
	compare(0x10000, len);
	tell_all("some", 0x10000, len);
	__cpuid_count(13, 1, eax, ebx, ecx, edx);
	if (eax & 2) {
		__asm__ volatile("xsavec64 (%0); xsavec64 (%1)"
				 : : "r"(buffer), "r"(area), "a"(7), "d"(0) : "memory");
		compare(0x10000, len);
		tell_all("some", 0x10000, len);
	}
}

int main(int argc, char **argv)
{
	REQUIRE(argc == 2);
	pool = map_pool(argv[1], MIB);
	for (int round = 0; round < 2; round++) {
		pops();
		masks();
		zero_line();
		states();
		extended_states();
	}
	return 0;
}
