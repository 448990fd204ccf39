/*
 * One of each kind of instruction that stores to, flushes or orders a pool. Each is written into a
 * log with the bytes that it must have stored; the log is printed at the end.
 *
 * A line of the log: kind, offset, length, bytes. The kind "bulk" stands for any number of plain
 * stores that together write these bytes and nothing else.
 */
#include <cpuid.h>

#include "pool.h"

static char *pool;
static char log_text[1 << 20];
static size_t log_len;

static void put_text(const char *text)
{
	while (*text)
		log_text[log_len++] = *text++;
}

static void put_hex(uint64_t value, int digits)
{
	for (int at = digits - 1; at >= 0; at--)
		log_text[log_len++] = "0123456789abcdef"[value >> (4 * at) & 15];
}

/* An event of this kind has just happened to these bytes. */
static void did(const char *kind, const volatile void *at, size_t len)
{
	put_text(kind);
	put_text(" ");
	put_hex((uint64_t)((const char *)at - pool), 8);
	put_text(" ");
	put_hex(len, 4);
	put_text(" ");
	for (size_t i = 0; i < len; i++)
		put_hex(((const unsigned char *)at)[i], 2);
	put_text("\n");
}

static void fence(void)
{
	sfence();
	put_text("sfence 0 0 \n");
}

#define V(type, at) (*(volatile type *)(at))
#define DID(kind, at, len, text, ...) \
	do { \
		__asm__ volatile(text : "+m"(*(char(*)[len])(at)) : __VA_ARGS__ : "cc", "memory"); \
		did(kind, at, len); \
	} while (0)

static void plain(char *at)
{
	DID("store", at, 1, "movb %1, %0", "q"((char)0x11));
	DID("store", at + 2, 2, "movw %1, %0", "r"((short)0x2221));
	DID("store", at + 4, 4, "movl %1, %0", "r"(0x44434241));
	DID("store", at + 8, 8, "movq %1, %0", "r"(0x8887868584838281));
	DID("store", at + 16, 1, "movb $0x7f, %0", "r"(0));
	DID("store", at + 18, 2, "movw $0x7ffe, %0", "r"(0));
	DID("store", at + 20, 4, "movl $0x7ffefdfc, %0", "r"(0));
	DID("store", at + 24, 8, "movq $-2, %0", "r"(0));
	/* Not aligned, then across a line and across a page. */
	DID("store", at + 33, 4, "movl %1, %0", "r"(0x1a2b3c4d));
	DID("store", at + 41, 8, "movq %1, %0", "r"(0x1122334455667788));
	DID("store", at + 63, 2, "movw %1, %0", "r"((short)0x5a5b));
	DID("store", at + 125, 8, "movq %1, %0", "r"(0xa1a2a3a4a5a6a7a8));
	DID("store", at + 4096 - 3, 8, "movq %1, %0", "r"(0xb1b2b3b4b5b6b7b8));
	/* The high byte registers, and a register that needs a prefix. */
	__asm__ volatile("movl $0xabcd, %%ebx\n\tmovb %%bh, %0" : "+m"(at[200]) : : "rbx");
	did("store", at + 200, 1);
	__asm__ volatile("movl $0x77, %%r13d\n\tmovb %%r13b, %0" : "+m"(at[201]) : : "r13");
	did("store", at + 201, 1);
	__asm__ volatile("movl $0x01020304, %%eax\n\tmovbel %%eax, %0"
			 : "+m"(V(int, at + 204))
			 :
			 : "rax");
	did("store", at + 204, 4);
}

static void vector(char *at)
{
	static const unsigned char bytes[32] = "0123456789abcdefghijklmnopqrstu";
	__asm__ volatile("movdqu %1, %%xmm3\n\tmovdqa %%xmm3, %0"
			 : "+m"(*(char(*)[16])at)
			 : "m"(bytes)
			 : "xmm3");
	did("store", at, 16);
	__asm__ volatile("movdqu %1, %%xmm9\n\tmovups %%xmm9, %0"
			 : "+m"(*(char(*)[16])(at + 57))
			 : "m"(bytes)
			 : "xmm9");
	did("store", at + 57, 16);
	__asm__ volatile("movdqu %1, %%xmm1\n\tmovq %%xmm1, %0"
			 : "+m"(V(long, at + 96))
			 : "m"(bytes)
			 : "xmm1");
	did("store", at + 96, 8);
	__asm__ volatile("movdqu %1, %%xmm1\n\tmovss %%xmm1, %0"
			 : "+m"(V(int, at + 104))
			 : "m"(bytes)
			 : "xmm1");
	did("store", at + 104, 4);
	__asm__ volatile("movdqu %1, %%xmm1\n\tmovhps %%xmm1, %0"
			 : "+m"(V(long, at + 112))
			 : "m"(bytes)
			 : "xmm1");
	did("store", at + 112, 8);
	if (__builtin_cpu_supports("avx")) {
		__asm__ volatile("vmovdqu %1, %%ymm2\n\tvmovdqu %%ymm2, %0\n\tvzeroupper"
				 : "+m"(*(char(*)[32])(at + 128))
				 : "m"(bytes)
				 : "xmm2");
		did("store", at + 128, 32);
		__asm__ volatile("vmovdqu %1, %%ymm12\n\tvmovups %%ymm12, %0\n\tvzeroupper"
				 : "+m"(*(char(*)[32])(at + 179))
				 : "m"(bytes)
				 : "xmm12");
		did("store", at + 179, 32);
	}
}

static void modify(char *at)
{
	DID("store", at, 4, "addl %1, %0", "r"(5));
	DID("store", at, 4, "addl $7, %0", "r"(0));
	DID("store", at, 8, "subq %1, %0", "r"(3L));
	DID("store", at, 1, "incb %0", "r"(0));
	DID("store", at, 8, "decq %0", "r"(0));
	DID("store", at + 8, 8, "orq %1, %0", "r"(0x0f0f0f0f0f0f0f0f));
	DID("store", at + 8, 4, "xorl $0x55555555, %0", "r"(0));
	DID("store", at + 8, 2, "andw $0x7ff0, %0", "r"(0));
	DID("store", at + 8, 8, "shlq $3, %0", "r"(0));
	DID("store", at + 8, 4, "shrl %%cl, %0", "c"(2));
	DID("store", at + 8, 2, "rolw $4, %0", "r"(0));
	DID("store", at + 8, 1, "notb %0", "r"(0));
	DID("store", at + 61, 8, "negq %0", "r"(0));
	DID("store", at + 61, 8, "addq %1, %0", "r"(0x0102030405060708));
	DID("store", at + 16, 8, "stc\n\tadcq %1, %0", "r"(1L));
	DID("store", at + 16, 8, "stc\n\tsbbq %1, %0", "r"(9L));
	DID("store", at + 24, 4, "btsl $9, %0", "r"(0));
	DID("store", at + 24, 4, "btcl $3, %0", "r"(0));
	DID("store", at + 32, 8, "shldq $8, %1, %0", "r"(0xffeeddccbbaa9988));
	/* Flags and results that the program uses afterwards must be correct. */
	unsigned char carry, zero;
	unsigned long old = 40;
	V(uint64_t, at + 40) = ~0UL;
	did("store", at + 40, 8);
	__asm__ volatile("addq $1, %0\n\tsetc %1\n\tsetz %2"
			 : "+m"(V(uint64_t, at + 40)), "=r"(carry), "=r"(zero)
			 :
			 : "cc");
	did("store", at + 40, 8);
	REQUIRE(carry == 1 && zero == 1);
	__asm__ volatile("xaddq %1, %0" : "+m"(V(uint64_t, at + 40)), "+r"(old) : : "cc");
	did("store", at + 40, 8);
	REQUIRE(old == 0 && V(uint64_t, at + 40) == 40);
}

static void set_on_condition(char *at)
{
	__asm__ volatile("cmpl %1, %1\n\tsete %0" : "+m"(at[0]) : "r"(4) : "cc");
	did("store", at, 1);
	__asm__ volatile("cmpl %1, %1\n\tsetne %0" : "+m"(at[1]) : "r"(4) : "cc");
	did("store", at + 1, 1);
	__asm__ volatile("stc\n\tsetb %0" : "+m"(at[2]) : : "cc");
	did("store", at + 2, 1);
}

static void non_temporal(char *at)
{
	static const unsigned char bytes[32] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ.,:;-";
	DID("ntstore", at, 4, "movntil %1, %0", "r"(0x3a3b3c3d));
	DID("ntstore", at + 8, 8, "movntiq %1, %0", "r"(0x4a4b4c4d4e4f5051));
	__asm__ volatile("movdqu %1, %%xmm4\n\tmovntdq %%xmm4, %0"
			 : "+m"(*(char(*)[16])(at + 16))
			 : "m"(bytes)
			 : "xmm4");
	did("ntstore", at + 16, 16);
	__asm__ volatile("movdqu %1, %%xmm4\n\tmovntps %%xmm4, %0"
			 : "+m"(*(char(*)[16])(at + 32))
			 : "m"(bytes)
			 : "xmm4");
	did("ntstore", at + 32, 16);
	if (__builtin_cpu_supports("avx")) {
		__asm__ volatile("vmovdqu %1, %%ymm5\n\tvmovntdq %%ymm5, %0\n\tvzeroupper"
				 : "+m"(*(char(*)[32])(at + 64))
				 : "m"(bytes)
				 : "xmm5");
		did("ntstore", at + 64, 32);
	}
	fence();
}

static void locked(char *at)
{
	uint64_t old = 0, expected;
	V(uint64_t, at) = 10;
	did("store", at, 8);
	old = __atomic_fetch_add((uint64_t *)at, 5, __ATOMIC_SEQ_CST);
	did("locked-store", at, 8);
	REQUIRE(old == 10);
	__asm__ volatile("lock incl %0" : "+m"(V(int, at)) : : "cc");
	did("locked-store", at, 4);
	__asm__ volatile("lock orb $0x80, %0" : "+m"(V(char, at)) : : "cc");
	did("locked-store", at, 1);
	__asm__ volatile("lock xorw %1, %0" : "+m"(V(short, at)) : "r"((short)0x7171) : "cc");
	did("locked-store", at, 2);
	__asm__ volatile("lock btsq $40, %0" : "+m"(V(long, at)) : : "cc");
	did("locked-store", at, 8);
	/* An exchange is locked with or without the prefix. */
	old = __atomic_exchange_n((uint64_t *)at, 1234, __ATOMIC_SEQ_CST);
	did("locked-store", at, 8);
	expected = 1234;
	REQUIRE(__atomic_compare_exchange_n((uint64_t *)at, &expected, 4321, 0, __ATOMIC_SEQ_CST,
					    __ATOMIC_SEQ_CST));
	did("locked-store", at, 8);
	expected = 1234;
	REQUIRE(!__atomic_compare_exchange_n((uint64_t *)at, &expected, 1, 0, __ATOMIC_SEQ_CST,
					     __ATOMIC_SEQ_CST));
	REQUIRE(expected == 4321);
	/* The comparison fails: a fence, and nothing is stored. */
	put_text("locked-fence 0 0 \n");
	uint64_t low = 0, high = 0;
	__asm__ volatile("lock cmpxchg16b %0"
			 : "+m"(*(char(*)[16])(at + 16)), "+a"(low), "+d"(high)
			 : "b"(0x1111111111111111), "c"(0x2222222222222222)
			 : "cc");
	did("locked-store", at + 16, 16);
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

static void flushes(char *at)
{
	__asm__ volatile("clflush %0" : "+m"(at[0]));
	did("clflush", at, 0);
	/* Any address in the line is possible; the given address is recorded. */
	__asm__ volatile("clflush %0" : "+m"(at[64 + 63]));
	did("clflush", at + 64 + 63, 0);
	if (has_clflushopt) {
		__asm__ volatile("clflushopt %0" : "+m"(at[128]));
		did("clflushopt", at + 128, 0);
	}
	if (has_clwb) {
		__asm__ volatile("clwb %0" : "+m"(at[192 + 7]));
		did("clwb", at + 192 + 7, 0);
	}
	sfence();
	put_text("sfence 0 0 \n");
	__asm__ volatile("clflush %0" : "+m"(at[0]));
	did("clflush", at, 0);
	__asm__ volatile("mfence" ::: "memory");
	put_text("mfence 0 0 \n");
}

static const size_t sizes[] = {1,  2,  3,  4,   7,   8,   9,   15,  16,  17,  31,   32,  33,
			       48, 63, 64, 65,  96,  127, 128, 129, 200, 255, 256,  257, 384,
			       511, 512, 513, 1000, 1023, 1024, 1025, 2047, 2048, 4096, 5000};

static void bulk(char *at)
{
	static char source[8192];
	for (size_t i = 0; i < sizeof(source); i++)
		source[i] = (char)(i * 7 + i / 256);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		size_t len = sizes[i];
		char *volatile to = at + i * 3;
		void *(*volatile set)(void *, int, size_t) = memset;
		void *(*volatile copy)(void *, const void *, size_t) = memcpy;
		void *(*volatile move)(void *, const void *, size_t) = memmove;
		set(to, (int)i + 1, len);
		did("bulk", to, len);
		fence();
		copy(to, source + i, len);
		did("bulk", to, len);
		fence();
		/* Forwards and backwards, overlapping. */
		move(to + 5, to, len);
		did("bulk", to + 5, len);
		fence();
		move(to, to + 9, len);
		did("bulk", to, len);
		fence();
	}
}

static void strings(char *at)
{
	static char source[4096];
	for (size_t i = 0; i < sizeof(source); i++)
		source[i] = (char)(i * 5 + 1);
	static const size_t counts[] = {0, 1, 2, 7, 64, 100, 1024, 1500};
	for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
		size_t count = counts[i];
		char *to = at + i;
		const char *from = source + i;
		void *end = to;
		const void *from_end = from;
		size_t left = count;
		__asm__ volatile("rep movsb" : "+D"(end), "+S"(from_end), "+c"(left) : : "memory");
		REQUIRE(left == 0 && (char *)end == to + count && (char *)from_end == from + count);
		did("bulk", to, count);
		fence();
		end = to, left = count / 8;
		__asm__ volatile("rep stosq" : "+D"(end), "+c"(left) : "a"(0x6162636465666768) : "memory");
		REQUIRE(left == 0);
		did("bulk", to, count / 8 * 8);
		fence();
		end = to, from_end = from, left = count / 4;
		__asm__ volatile("rep movsl" : "+D"(end), "+S"(from_end), "+c"(left) : : "memory");
		did("bulk", to, count / 4 * 4);
		fence();
	}
	void *end = at;
	__asm__ volatile("stosb\n\tstosw" : "+D"(end) : "a"(0x7372) : "memory");
	did("bulk", at, 3);
	fence();
	/* Downwards. */
	end = at + 100;
	size_t left = 10;
	__asm__ volatile("std\n\trep stosb\n\tcld" : "+D"(end), "+c"(left) : "a"('d') : "memory");
	REQUIRE((char *)end == at + 90);
	did("bulk", at + 91, 10);
	fence();
}

int main(int argc, char **argv)
{
	REQUIRE(argc == 2);
	pool = map_pool(argv[1], MIB);
	look_at_cpu();
	plain(pool);
	vector(pool + 8192);
	modify(pool + 16384);
	set_on_condition(pool + 20480);
	non_temporal(pool + 24576);
	locked(pool + 28672);
	flushes(pool + 32768);
	bulk(pool + 65536);
	strings(pool + 131072);
	/* The same instructions again, when they are already known. */
	plain(pool + 262144);
	vector(pool + 270336);
	modify(pool + 278528);
	set_on_condition(pool + 282624);
	non_temporal(pool + 286720);
	locked(pool + 290816);
	flushes(pool + 294912);
	for (size_t at = 0; at < log_len;) {
		ssize_t done = write(1, log_text + at, log_len - at);
		REQUIRE(done > 0);
		at += (size_t)done;
	}
	return 0;
}
