/* A stand-in for powerfail: prints the annotations that arrive. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

void powerfail_annotation(uint32_t code, uint64_t value, const void *address, size_t length,
			  const void *second, size_t second_length, int stage)
{
	(void)address;
	(void)second;
	fprintf(stderr, "%#x %lu %zu %zu %d\n", code, (unsigned long)value, length, second_length,
		stage);
}
