// A program as the linker of Go makes one: some code has no unwind table, but an entry in a table of functions with
// Go's layout. That code maps the pool with a system call of its own and stores to it. LAYOUT is the number of the
// layout: 0xf0 (Go 1.18 and 1.19) or 0xf1 (1.20 and later).
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

long map_pool(long address, long length, long protection, long flags, long fd, long offset);
void put(uint64_t *at, uint64_t value);

__asm__(".pushsection .note.go.buildid, \"a\", @note\n"
	".long 4, 4, 4\n"
	".ascii \"Go\\0\\0none\"\n"
	".popsection\n"

	".text\n"
	".balign 32\n"
	"go_text:\n"
	"map_pool:\n"
	"	mov $9, %eax\n"
	"	mov %rcx, %r10\n"
	"	syscall\n"
	"	ret\n"
	"put:\n"
	"	sub $24, %rsp\n"
	"in_put:\n"
	"	call store\n"
	"	add $24, %rsp\n"
	"end_of_put:\n"
	"	ret\n"
	"store:\n"
	"	mov %rsi, (%rdi)\n"
	"	ret\n"
	"go_text_end:\n"
	".globl map_pool, put\n"

	".pushsection .go_table, \"a\"\n"
	".balign 32\n"
	"table:\n"
	"	.byte " TEXT(LAYOUT) ", 0xff, 0xff, 0xff, 0, 0, 1, 8\n"
	"	.quad 3, 0, go_text, 0, 0, 0\n"
	"	.quad numbers - table, functions - table\n"
	"functions:\n"
	"	.long map_pool - go_text, of_map_pool - functions\n"
	"	.long put - go_text, of_put - functions\n"
	"	.long store - go_text, of_store - functions\n"
	"	.long go_text_end - go_text\n"
	// Since Go 1.20 the flags are one word later.
	".macro description of, depths\n"
	"	.long \\of - go_text, 0, 0, 0, \\depths - numbers, 0, 0, 0, 0\n"
	"	.if " TEXT(LAYOUT) " == 0xf1\n"
	"	.long 0\n"
	"	.endif\n"
	"	.long 0\n"
	".endm\n"
	"of_map_pool: description map_pool, no_frame\n"
	"of_put: description put, frame\n"
	"of_store: description store, no_frame\n"
	"numbers:\n"
	"	.byte 0\n"
	// Changes of the depth, from -1 on, with the sign in the lowest bit, each with the length of the code.
	"no_frame: .byte 2, 32, 0\n"
	"frame: .byte 2, in_put - put, 48, end_of_put - in_put, 47, 1, 0\n"
	".popsection\n");

int main(int argc, char **argv)
{
	(void)argc;
	int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
	if (fd < 0 || ftruncate(fd, 4096) != 0)
		return 1;
	uint64_t *pool = (uint64_t *)map_pool(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if ((long)pool < 0)
		return 1;
	put(pool, 1);
	put(pool + 1, 2);
	return 0;
}
