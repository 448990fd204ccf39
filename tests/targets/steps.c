/*
 * Small programs for a comparison with a single-stepped run: each stores to, flushes and orders a pool with
 * one family of instructions. The first argument selects it. Every family runs a few times, since the first
 * execution of an instruction is recorded differently from later ones.
 *
 * Nothing is checked here, and all sources of data are static: the behaviour must not depend on the address
 * of the stack.
 */
#include <cpuid.h>

#include "pool.h"

enum { ROUNDS = 3, ROUND_LEN = 64 << 10 };

static _Alignas(64) unsigned char source[8192];
static uint64_t word, wide[2];

#define AT(type, place) (*(volatile type *)(place))
#define BYTES(len, place) (*(char(*)[len])(place))

/* One instruction with a memory operand, and nothing or one value in a register. */
#define ON(len, place, text) \
	__asm__ volatile(text : "+m"(BYTES(len, place)) : : "cc", "memory")
#define WITH(len, place, text, how, value) \
	__asm__ volatile(text : "+m"(BYTES(len, place)) : how(value) : "cc", "memory")

static void plain(char *at)
{
	WITH(1, at, "movb %1, %0", "q", (char)0x11);
	WITH(2, at + 2, "movw %1, %0", "r", (short)0x2221);
	WITH(4, at + 4, "movl %1, %0", "r", 0x44434241);
	WITH(8, at + 8, "movq %1, %0", "r", 0x8887868584838281);
	ON(1, at + 16, "movb $0x7f, %0");
	ON(2, at + 18, "movw $0x7ffe, %0");
	ON(4, at + 20, "movl $0x7ffefdfc, %0");
	ON(8, at + 24, "movq $-2, %0");
	/* Not aligned, across lines and across pages. */
	WITH(2, at + 33, "movw %1, %0", "r", (short)0x1a2b);
	WITH(4, at + 37, "movl %1, %0", "r", 0x1a2b3c4d);
	WITH(8, at + 43, "movq %1, %0", "r", 0x1122334455667788);
	WITH(2, at + 63, "movw %1, %0", "r", (short)0x5a5b);
	WITH(4, at + 126, "movl %1, %0", "r", 0x5a5b5c5d);
	WITH(8, at + 189, "movq %1, %0", "r", 0xa1a2a3a4a5a6a7a8);
	WITH(8, at + 4096 - 3, "movq %1, %0", "r", 0xb1b2b3b4b5b6b7b8);
	/* The same bytes again are a store again. */
	WITH(8, at + 8, "movq %1, %0", "r", 0x8887868584838281);
	/* High byte registers, those that need a prefix, and swapped bytes. */
	__asm__ volatile("movl $0xabcd, %%ebx\n\tmovb %%bh, %0" : "+m"(at[300]) : : "rbx");
	__asm__ volatile("movl $0x77, %%r13d\n\tmovb %%r13b, %0" : "+m"(at[301]) : : "r13");
	WITH(2, at + 302, "movbew %1, %0", "r", (short)0x0102);
	WITH(4, at + 304, "movbel %1, %0", "r", 0x01020304);
	WITH(8, at + 312, "movbeq %1, %0", "r", 0x0102030405060708);
}

/* All ways to write an address. */
static void addresses(char *at)
{
	uint64_t index = 5;
	__asm__ volatile("movl $1, (%0,%1,1)" ::"r"(at), "r"(index) : "memory");
	__asm__ volatile("movl $2, 64(%0,%1,2)" ::"r"(at), "r"(index) : "memory");
	__asm__ volatile("movl $3, 1024(%0,%1,4)" ::"r"(at), "r"(index) : "memory");
	__asm__ volatile("movl $4, -8(%0,%1,8)" ::"r"(at), "r"(index) : "memory");
	/* Relative to the stack pointer and to the thread pointer: the operand is far from either. */
	__asm__ volatile("subq %%rsp, %%rcx\n\tmovl $5, 128(%%rsp,%%rcx)\n\tmovl $6, (%%rsp,%%rcx)" ::"c"(at)
			 : "memory", "cc");
	uint64_t thread;
	__asm__("movq %%fs:0, %0" : "=r"(thread));
	__asm__ volatile("movl $7, %%fs:256(%0)" ::"r"((uint64_t)at - thread) : "memory");
	__asm__ volatile("addl $8, %%fs:256(%0)" ::"r"((uint64_t)at - thread) : "memory", "cc");
	/* Through every register. */
#define THROUGH(register) \
	__asm__ volatile("movq %0, %%" register "\n\tmovl $9, 512(%%" register ")\n\t" \
			 "addl $1, 516(%%" register ")" \
			 : \
			 : "m"(word) \
			 : register, "cc", "memory")
	word = (uint64_t)at;
	THROUGH("rax");
	THROUGH("rbx");
	THROUGH("rcx");
	THROUGH("rdx");
	THROUGH("rsi");
	THROUGH("rdi");
	THROUGH("r8");
	THROUGH("r9");
	THROUGH("r10");
	THROUGH("r11");
	THROUGH("r12");
	THROUGH("r13");
	THROUGH("r14");
	THROUGH("r15");
}

static void sse(char *at)
{
#define VECTOR(len, place, text) \
	__asm__ volatile("movdqu %1, %%xmm3\n\tmovdqu %1, %%xmm11\n\t" text \
			 : "+m"(BYTES(len, place)) \
			 : "m"(BYTES(16, source + 1)) \
			 : "xmm3", "xmm11")
	VECTOR(16, at, "movdqa %%xmm3, %0");
	VECTOR(16, at + 17, "movdqu %%xmm11, %0");
	VECTOR(16, at + 48, "movaps %%xmm3, %0");
	VECTOR(16, at + 57, "movups %%xmm11, %0");
	VECTOR(16, at + 80, "movapd %%xmm3, %0");
	VECTOR(16, at + 121, "movupd %%xmm3, %0");
	VECTOR(4, at + 144, "movd %%xmm3, %0");
	VECTOR(8, at + 152, "movq %%xmm3, %0");
	VECTOR(4, at + 160, "movss %%xmm3, %0");
	VECTOR(8, at + 168, "movsd %%xmm11, %0");
	VECTOR(8, at + 176, "movhps %%xmm3, %0");
	VECTOR(8, at + 189, "movlps %%xmm3, %0");
	VECTOR(8, at + 200, "movhpd %%xmm3, %0");
	VECTOR(8, at + 208, "movlpd %%xmm3, %0");
	VECTOR(1, at + 216, "pextrb $5, %%xmm3, %0");
	VECTOR(2, at + 218, "pextrw $3, %%xmm3, %0");
	VECTOR(4, at + 220, "pextrd $2, %%xmm3, %0");
	VECTOR(8, at + 224, "pextrq $1, %%xmm3, %0");
	VECTOR(4, at + 232, "extractps $3, %%xmm3, %0");
	VECTOR(16, at + 4096 - 7, "movups %%xmm3, %0");
}

static void avx(char *at)
{
	if (!__builtin_cpu_supports("avx2"))
		return;
#define WIDE(len, place, text) \
	__asm__ volatile("vmovdqu %1, %%ymm3\n\tvmovdqu %1, %%ymm11\n\t" text "\n\tvzeroupper" \
			 : "+m"(BYTES(len, place)) \
			 : "m"(BYTES(32, source + 3)) \
			 : "xmm3", "xmm11")
	WIDE(32, at, "vmovdqa %%ymm3, %0");
	WIDE(32, at + 33, "vmovdqu %%ymm11, %0");
	WIDE(32, at + 96, "vmovaps %%ymm3, %0");
	WIDE(32, at + 180, "vmovups %%ymm11, %0");
	WIDE(16, at + 224, "vmovdqu %%xmm3, %0");
	WIDE(4, at + 240, "vmovd %%xmm3, %0");
	WIDE(8, at + 248, "vmovq %%xmm11, %0");
	WIDE(4, at + 256, "vmovss %%xmm3, %0");
	WIDE(8, at + 264, "vmovsd %%xmm3, %0");
	WIDE(8, at + 272, "vmovhps %%xmm3, %0");
	WIDE(8, at + 280, "vmovlps %%xmm3, %0");
	WIDE(16, at + 288, "vextractf128 $1, %%ymm3, %0");
	WIDE(16, at + 304, "vextracti128 $1, %%ymm11, %0");
	WIDE(1, at + 320, "vpextrb $9, %%xmm3, %0");
	WIDE(32, at + 4096 - 9, "vmovdqu %%ymm3, %0");
	if (__builtin_cpu_supports("f16c"))
		WIDE(16, at + 336, "vcvtps2ph $0, %%ymm3, %0");
}

static void masked(char *at)
{
	static const uint64_t masks[][4] = {
		{0, 0, 0, 0},
		{~0UL, ~0UL, ~0UL, ~0UL},
		{1UL << 63, 0, 1UL << 31, 1UL << 63},
		{1UL << 31, 1UL << 63, 1UL << 63 | 1UL << 31, 0},
		{0x7fffffff7fffffff, 0, 0, 1UL << 63},
	};
	if (!__builtin_cpu_supports("avx2"))
		return;
	for (size_t which = 0; which < sizeof(masks) / sizeof(*masks); which++, at += 512) {
#define MASKED(len, place, text) \
	__asm__ volatile("vmovdqu %1, %%ymm4\n\tvmovdqu %2, %%ymm12\n\t" text "\n\tvzeroupper" \
			 : "+m"(BYTES(len, place)) \
			 : "m"(BYTES(32, source + 9)), "m"(BYTES(32, masks[which])) \
			 : "xmm4", "xmm12")
		MASKED(16, at, "vmaskmovps %%xmm4, %%xmm12, %0");
		MASKED(32, at + 32, "vmaskmovps %%ymm4, %%ymm12, %0");
		MASKED(16, at + 71, "vmaskmovpd %%xmm4, %%xmm12, %0");
		MASKED(32, at + 113, "vmaskmovpd %%ymm4, %%ymm12, %0");
		MASKED(16, at + 160, "vpmaskmovd %%xmm4, %%xmm12, %0");
		MASKED(32, at + 192, "vpmaskmovd %%ymm4, %%ymm12, %0");
		MASKED(16, at + 256, "vpmaskmovq %%xmm4, %%xmm12, %0");
		MASKED(32, at + 299, "vpmaskmovq %%ymm4, %%ymm12, %0");
	}
}

static void non_temporal(char *at)
{
	WITH(4, at, "movntil %1, %0", "r", 0x3a3b3c3d);
	WITH(8, at + 8, "movntiq %1, %0", "r", 0x4a4b4c4d4e4f5051);
	WITH(8, at + 61, "movntiq %1, %0", "r", 0x4a4b4c4d4e4f5051);
	VECTOR(16, at + 80, "movntdq %%xmm3, %0");
	VECTOR(16, at + 96, "movntps %%xmm11, %0");
	VECTOR(16, at + 112, "movntpd %%xmm3, %0");
	sfence();
	if (__builtin_cpu_supports("avx2")) {
		WIDE(32, at + 128, "vmovntdq %%ymm3, %0");
		WIDE(32, at + 160, "vmovntps %%ymm11, %0");
		WIDE(32, at + 192, "vmovntpd %%ymm3, %0");
		WIDE(16, at + 224, "vmovntdq %%xmm3, %0");
	}
	__asm__ volatile("mfence" ::: "memory");
}

static void strings(char *at)
{
	static const size_t counts[] = {0, 1, 2, 7, 64, 100, 1023, 1024, 1025, 1500, 3000};
#define STRING(text, to, from, count) \
	do { \
		void *end = to; \
		const void *from_end = from; \
		size_t left = count; \
		__asm__ volatile(text \
				 : "+D"(end), "+S"(from_end), "+c"(left) \
				 : "a"(0x6162636465666768) \
				 : "memory"); \
	} while (0)
	for (size_t which = 0; which < sizeof(counts) / sizeof(*counts); which++) {
		size_t count = counts[which];
		STRING("rep movsb", at + which, source + which, count);
		STRING("rep movsw", at + which, source, count / 2);
		STRING("rep movsl", at + which, source + 1, count / 4);
		STRING("rep movsq", at + which, source + 2, count / 8);
		STRING("rep stosb", at + which, source, count);
		STRING("rep stosw", at + which, source, count / 2);
		STRING("rep stosl", at + which, source, count / 4);
		STRING("rep stosq", at + which, source, count / 8);
	}
	STRING("movsb", at + 5000, source, 0);
	STRING("movsw", at + 5001, source, 0);
	STRING("movsl", at + 5063, source, 0);
	STRING("movsq", at + 5080, source, 0);
	STRING("stosb", at + 5100, source, 0);
	STRING("stosw", at + 5102, source, 0);
	STRING("stosl", at + 5104, source, 0);
	STRING("stosq", at + 5119, source, 0);
	/* Downwards. */
	STRING("std\n\trep stosb\n\tcld", at + 5300, source, 150);
	STRING("std\n\trep movsb\n\tcld", at + 7000, source + 1400, 1400);
	STRING("std\n\trep movsq\n\tcld", at + 8992, source + 1400, 150);
	/* Overlapping: a pattern spreads. Then from the pool to other memory, which is not recorded. */
	STRING("rep movsb", at + 6001, at + 6000, 1300);
	STRING("rep movsb", at + 6003, at + 6000, 700);
	STRING("rep movsb", source + 4096, at, 200);
}

#define ALL_SIZES(operation, place) \
	do { \
		WITH(1, place, operation "b %1, %0", "q", (char)0x35); \
		WITH(2, (place) + 2, operation "w %1, %0", "r", (short)0x3536); \
		WITH(4, (place) + 4, operation "l %1, %0", "r", 0x35363738); \
		WITH(8, (place) + 61, operation "q %1, %0", "r", 0x3536373839404142); \
		ON(1, place, operation "b $0x1d, %0"); \
		ON(2, (place) + 2, operation "w $0x1d2d, %0"); \
		ON(4, (place) + 4, operation "l $0x1d2d3d4d, %0"); \
		ON(8, (place) + 61, operation "q $-3, %0"); \
	} while (0)
#define ALL_SIZES_BY(operation, operand, place) \
	do { \
		ON(1, place, operation "b " operand "%0"); \
		ON(2, (place) + 2, operation "w " operand "%0"); \
		ON(4, (place) + 4, operation "l " operand "%0"); \
		ON(8, (place) + 61, operation "q " operand "%0"); \
	} while (0)

static void modify(char *at)
{
	ALL_SIZES("add", at);
	ALL_SIZES("sub", at);
	ALL_SIZES("or", at);
	ALL_SIZES("and", at);
	ALL_SIZES("xor", at);
	ALL_SIZES("stc\n\tadc", at);
	ALL_SIZES("stc\n\tsbb", at);
	ALL_SIZES("clc\n\tsbb", at);
	ALL_SIZES_BY("inc", "", at);
	ALL_SIZES_BY("dec", "", at);
	ALL_SIZES_BY("neg", "", at);
	ALL_SIZES_BY("not", "", at);
	/* Only a comparison: no store. */
	ON(8, at, "cmpq $1, %0");
	ON(8, at, "testq $1, %0");
	ON(8, at, "btq $1, %0");
	/* Two in a row, and flags that are passed from one to the next. */
	ON(16, at + 128, "addq $-1, %0\n\tadcq $0, 8+%0");
	ON(16, at + 128, "addq $1, %0\n\tadcq $0, 8+%0");
}

static void shifts(char *at)
{
	WITH(8, at, "movq %1, %0", "r", 0x8192a3b4c5d6e7f8);
	WITH(8, at + 61, "movq %1, %0", "r", 0x8192a3b4c5d6e7f8);
	ALL_SIZES_BY("shl", "$3, ", at);
	ALL_SIZES_BY("shr", "$1, ", at);
	ALL_SIZES_BY("sar", "$2, ", at);
	ALL_SIZES_BY("rol", "$5, ", at);
	ALL_SIZES_BY("ror", "$4, ", at);
	ALL_SIZES_BY("stc\n\trcl", "$1, ", at);
	ALL_SIZES_BY("stc\n\trcr", "$1, ", at);
	WITH(8, at, "shlq %%cl, %0", "c", 7);
	WITH(4, at, "sarl %%cl, %0", "c", 3);
	WITH(8, at + 61, "rorq %%cl, %0", "c", 11);
	WITH(8, at, "shldq $8, %1, %0", "r", 0xffeeddccbbaa9988);
	WITH(4, at, "shrdl $9, %1, %0", "r", 0xffeeddcc);
	__asm__ volatile("shldw %%cl, %1, %0" : "+m"(BYTES(2, at + 8)) : "r"((short)0x7172), "c"(5) : "cc");
}

static void bits(char *at)
{
	at += 1024;
	ON(2, at, "btsw $9, %0");
	ON(4, at, "btcl $3, %0");
	ON(8, at, "btrq $9, %0");
	/* The bit number may be far beyond the operand, in both directions. */
	WITH(2, at, "btsw %1, %0", "r", (short)21);
	WITH(4, at, "btsl %1, %0", "r", 5);
	WITH(4, at, "btsl %1, %0", "r", 999);
	WITH(4, at, "btcl %1, %0", "r", -1);
	WITH(8, at, "btsq %1, %0", "r", -64L);
	WITH(8, at, "btcq %1, %0", "r", -4001L);
	WITH(8, at, "btrq %1, %0", "r", 4001L);
	WITH(8, at, "lock btsq %1, %0", "r", 777L);
	WITH(8, at, "lock btrq %1, %0", "r", -65L);
}

#define SET(condition, place) \
	__asm__ volatile("cmpl %1, %2\n\tset" condition " %0" \
			 : "+m"(BYTES(1, place)) \
			 : "r"(7), "r"(AT(int, source) & 15) \
			 : "cc")

static void conditions(char *at)
{
	SET("a", at);
	SET("ae", at + 1);
	SET("b", at + 2);
	SET("be", at + 3);
	SET("e", at + 4);
	SET("g", at + 5);
	SET("ge", at + 6);
	SET("l", at + 7);
	SET("le", at + 8);
	SET("ne", at + 9);
	SET("no", at + 10);
	SET("np", at + 11);
	SET("ns", at + 12);
	SET("o", at + 13);
	SET("p", at + 14);
	SET("s", at + 15);
}

static void x87(char *at)
{
	__asm__ volatile("fldpi\n\tfsts %0\n\tfstl %1\n\tfstps %2"
			 : "+m"(BYTES(4, at)), "+m"(BYTES(8, at + 8)), "+m"(BYTES(4, at + 4)));
	__asm__ volatile("fldl2e\n\tfstpl %0" : "+m"(BYTES(8, at + 61)));
	__asm__ volatile("fldln2\n\tfstpt %0" : "+m"(BYTES(10, at + 80)));
	__asm__ volatile("fldpi\n\tfists %0\n\tfistl %1\n\tfistpll %2"
			 : "+m"(BYTES(2, at + 96)), "+m"(BYTES(4, at + 100)), "+m"(BYTES(8, at + 104)));
	__asm__ volatile("fldl2t\n\tfistps %0" : "+m"(BYTES(2, at + 112)));
	__asm__ volatile("fldpi\n\tfisttpl %0" : "+m"(BYTES(4, at + 116)));
	__asm__ volatile("fldpi\n\tfisttpll %0" : "+m"(BYTES(8, at + 120)));
	__asm__ volatile("fld1\n\tfbstp %0" : "+m"(BYTES(10, at + 130)));
	__asm__ volatile("fnstcw %0" : "+m"(BYTES(2, at + 144)));
	__asm__ volatile("fnstsw %0" : "+m"(BYTES(2, at + 146)));
	__asm__ volatile("stmxcsr %0" : "+m"(BYTES(4, at + 148)));
}

#define EXCHANGE(type, name, at, expected_value, new_value) \
	do { \
		type seen = (type)(expected_value); \
		__asm__ volatile(name " %2, %0" \
				 : "+m"(AT(type, at)), "+a"(seen) \
				 : "q"((type)(new_value)) \
				 : "cc", "memory"); \
	} while (0)

static void compare_pair(char *at, const char *how, uint64_t low, uint64_t high)
{
	uint64_t a = low, d = high;
	if (*how == 'l')
		__asm__ volatile("lock cmpxchg16b %0"
				 : "+m"(BYTES(16, at)), "+a"(a), "+d"(d)
				 : "b"(0x1111111111111111), "c"(0x2222222222222222)
				 : "cc");
	else
		__asm__ volatile("cmpxchg16b %0"
				 : "+m"(BYTES(16, at)), "+a"(a), "+d"(d)
				 : "b"(0x3333333333333333), "c"(0x4444444444444444)
				 : "cc");
}

static void compare_half_pair(char *at, const char *how, uint32_t low, uint32_t high)
{
	uint32_t a = low, d = high;
	if (*how == 'l')
		__asm__ volatile("lock cmpxchg8b %0"
				 : "+m"(BYTES(8, at)), "+a"(a), "+d"(d)
				 : "b"(0x55555555), "c"(0x66666666)
				 : "cc");
	else
		__asm__ volatile("cmpxchg8b %0"
				 : "+m"(BYTES(8, at)), "+a"(a), "+d"(d)
				 : "b"(0x77777777), "c"(0x78787878)
				 : "cc");
}

/* Each succeeds once and fails once. */
static void compare(char *at)
{
	EXCHANGE(uint8_t, "lock cmpxchgb", at, at[0], 0x12);
	EXCHANGE(uint8_t, "lock cmpxchgb", at, at[0] + 1, 0x13);
	EXCHANGE(uint16_t, "lock cmpxchgw", at + 2, AT(uint16_t, at + 2), 0x1234);
	EXCHANGE(uint16_t, "lock cmpxchgw", at + 2, AT(uint16_t, at + 2) + 1, 0x1235);
	EXCHANGE(uint32_t, "lock cmpxchgl", at + 4, AT(uint32_t, at + 4), 0x12345678);
	EXCHANGE(uint32_t, "lock cmpxchgl", at + 4, AT(uint32_t, at + 4) + 1, 0x12345679);
	EXCHANGE(uint64_t, "lock cmpxchgq", at + 8, AT(uint64_t, at + 8), 0x123456789);
	EXCHANGE(uint64_t, "lock cmpxchgq", at + 8, AT(uint64_t, at + 8) + 1, 0x12345678a);
	/* Without the prefix, success and failure both write. */
	EXCHANGE(uint32_t, "cmpxchgl", at + 16, AT(uint32_t, at + 16), 0x51525354);
	EXCHANGE(uint32_t, "cmpxchgl", at + 16, AT(uint32_t, at + 16) + 1, 0x61626364);
	EXCHANGE(uint64_t, "cmpxchgq", at + 24, AT(uint64_t, at + 24), 0x51525354);
	EXCHANGE(uint64_t, "cmpxchgq", at + 24, AT(uint64_t, at + 24) + 1, 0x61626364);
	compare_pair(at + 32, "locked", AT(uint64_t, at + 32), AT(uint64_t, at + 40));
	compare_pair(at + 32, "locked", 1, 2);
	compare_pair(at + 32, "plain", AT(uint64_t, at + 32), AT(uint64_t, at + 40));
	compare_pair(at + 32, "plain", 1, 2);
	compare_half_pair(at + 48, "locked", AT(uint32_t, at + 48), AT(uint32_t, at + 52));
	compare_half_pair(at + 48, "locked", 1, 2);
	compare_half_pair(at + 48, "plain", AT(uint32_t, at + 48), AT(uint32_t, at + 52));
	compare_half_pair(at + 48, "plain", 1, 2);
}

static void locked(char *at)
{
	uint64_t value = 9;
	ALL_SIZES("lock add", at);
	ALL_SIZES("lock sub", at);
	ALL_SIZES("lock or", at);
	ALL_SIZES("lock and", at);
	ALL_SIZES("lock xor", at);
	ALL_SIZES("stc\n\tlock adc", at);
	ALL_SIZES("stc\n\tlock sbb", at);
	ALL_SIZES_BY("lock inc", "", at);
	ALL_SIZES_BY("lock dec", "", at);
	ALL_SIZES_BY("lock neg", "", at);
	ALL_SIZES_BY("lock not", "", at);
	ON(8, at, "lock btsq $40, %0");
	/* An exchange is locked with or without the prefix. */
	__asm__ volatile("xchgb %b1, %0" : "+m"(BYTES(1, at)), "+q"(value));
	__asm__ volatile("xchgw %w1, %0" : "+m"(BYTES(2, at + 2)), "+r"(value));
	__asm__ volatile("xchgl %k1, %0" : "+m"(BYTES(4, at + 4)), "+r"(value));
	__asm__ volatile("xchgq %1, %0" : "+m"(BYTES(8, at + 8)), "+r"(value));
	__asm__ volatile("lock xchgq %1, %0" : "+m"(BYTES(8, at + 8)), "+r"(value));
	__asm__ volatile("lock xaddq %1, %0" : "+m"(BYTES(8, at + 16)), "+r"(value) : : "cc");
	__asm__ volatile("lock xaddb %b1, %0" : "+m"(BYTES(1, at + 16)), "+q"(value) : : "cc");
	__asm__ volatile("xaddl %k1, %0" : "+m"(BYTES(4, at + 16)), "+r"(value) : : "cc");
	/* The returned value is stored in the pool. */
	AT(uint64_t, at + 24) = value;
}

static int has_clflushopt, has_clwb;

static void look_at_cpu(void)
{
	unsigned a, b = 0, c, d;
	if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
		has_clflushopt = b >> 23 & 1;
		has_clwb = b >> 24 & 1;
	}
}

/* Locked operations outside of the pool, which are fences if there is something to complete. */
static void lock_outside(void)
{
	uint64_t seen = 0, value = 1;
	__asm__ volatile("lock addq $1, %0" : "+m"(word) : : "cc", "memory");
	__asm__ volatile("lock addq $1, %0" : "+m"(word) : : "cc", "memory");
	__asm__ volatile("lock orq $0, (%%rsp)" ::: "cc", "memory");
	__asm__ volatile("lock addl $0, (%%rsp)" ::: "cc", "memory");
	__asm__ volatile("lock andb $-1, %0" : "+m"(word) : : "cc", "memory");
	__asm__ volatile("lock andb $0x7f, %0" : "+m"(word) : : "cc", "memory");
	__asm__ volatile("xchgq %1, %0" : "+m"(word), "+r"(value) : : "memory");
	__asm__ volatile("lock cmpxchgq %2, %0" : "+m"(word), "+a"(seen) : "r"(value) : "cc", "memory");
	__asm__ volatile("lock cmpxchg16b %0"
			 : "+m"(wide), "+a"(seen), "+d"(value)
			 : "b"(1UL), "c"(2UL)
			 : "cc", "memory");
}

static void order(char *at)
{
	lock_outside();
	ON(1, at + 70, "clflush %0");
	/* A clflush needs no fence. */
	lock_outside();
	if (has_clflushopt) {
		ON(1, at + 128, "clflushopt %0");
		lock_outside();
	}
	if (has_clwb) {
		ON(1, at + 199, "clwb %0");
		lock_outside();
		ON(1, at + 192, "clwb %0");
		sfence();
		lock_outside();
		ON(1, at + 192, "clwb %0");
		__asm__ volatile("mfence" ::: "memory");
		lock_outside();
		/* Completed by a locked store to the pool, and by an exchange there that fails. */
		ON(1, at + 256, "clwb %0");
		ON(8, at + 320, "lock incq %0");
		lock_outside();
		ON(1, at + 256, "clwb %0");
		EXCHANGE(uint64_t, "lock cmpxchgq", at + 320, AT(uint64_t, at + 320) + 1, 0);
		lock_outside();
		/* Not a pool: no event, and nothing is pending. */
		ON(1, &word, "clwb %0");
		lock_outside();
	}
	WITH(8, at, "movntiq %1, %0", "r", 5L);
	lock_outside();
	WITH(8, at, "movntiq %1, %0", "r", 6L);
	WITH(8, &word, "movntiq %1, %0", "r", 7L);
	sfence();
	WITH(8, &word, "movntiq %1, %0", "r", 8L);
	lock_outside();
	sfence();
	sfence();
	__asm__ volatile("lfence" ::: "memory");
	__asm__ volatile("mfence" ::: "memory");
}

/* The C library's implementation of these depends on the processor, and so do the lengths. */
static void library(char *at)
{
	static const size_t lengths[] = {0,   1,   2,   3,   4,	  7,   8,   9,	  15,	16,   17,   31,	  32,	33,
					 47,  48,  63,	64,  65,  96,  127, 128,  129,	200,  255,  256,  257,	384,
					 511, 512, 513, 800, 1000, 1024, 1025, 2047, 2048, 3000, 4096, 5000};
	void *(*volatile set)(void *, int, size_t) = memset;
	void *(*volatile copy)(void *, const void *, size_t) = memcpy;
	void *(*volatile move)(void *, const void *, size_t) = memmove;
	char *(*volatile copy_text)(char *, const char *) = strcpy;
	char *(*volatile copy_text_part)(char *, const char *, size_t) = strncpy;
	for (size_t which = 0; which < sizeof(lengths) / sizeof(*lengths); which++) {
		size_t len = lengths[which];
		char *to = at + which * 3;
		set(to, (int)which + 1, len);
		copy(to, source + which, len);
		move(to + 5, to, len);
		move(to, to + 9, len);
		move(to + 70, to, len);
	}
	copy_text(at + 20000, "a text");
	copy_text(at + 20100, "a text that is longer than any register of this processor, so that it takes two");
	copy_text_part(at + 20300, "cut", 2);
	copy_text_part(at + 20400, "filled up with zeros", 100);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(char *);
	} all[] = {
		{"plain", plain},	{"addresses", addresses}, {"sse", sse},		{"avx", avx},
		{"masked", masked},	{"strings", strings},	  {"modify", modify},	{"shifts", shifts},
		{"bits", bits},		{"x87", x87},		  {"compare", compare}, {"locked", locked},
		{"order", order},	{"library", library},	  {"conditions", conditions},
		{"non_temporal", non_temporal},
	};
	REQUIRE(argc == 3);
	for (size_t at = 0; at < sizeof(source); at++)
		source[at] = (unsigned char)(at * 7 + at / 256 + 1);
	look_at_cpu();
	char *pool = map_pool(argv[2], MIB);
	for (size_t which = 0; which < sizeof(all) / sizeof(*all); which++) {
		if (strcmp(argv[1], all[which].name) != 0)
			continue;
		for (int round = 0; round < ROUNDS; round++)
			all[which].run(pool + round * ROUND_LEN);
		return 0;
	}
	return 98;
}
