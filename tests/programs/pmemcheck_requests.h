/*
 * Client requests to pmemcheck, a tool of Valgrind: written for our tests, with the instruction sequence and
 * the numbers that every such program uses.
 */
#ifndef PMEMCHECK_REQUESTS_H
#define PMEMCHECK_REQUESTS_H

#include <stdint.h>

/*
 * Makes a request; natively its result is the default. A macro, so that the request belongs to the line that
 * uses it.
 */
#define request(fallback, number, first, second, third, fourth)                                         \
	__extension__({                                                                                 \
		volatile uint64_t request_words[6] = {(number), (first),  (second),                     \
						      (third),  (fourth), 0};                           \
		uint64_t request_result = (fallback);                                                   \
		__asm__ volatile("rolq $3, %%rdi\n\t"                                                   \
				 "rolq $13, %%rdi\n\t"                                                  \
				 "rolq $61, %%rdi\n\t"                                                  \
				 "rolq $51, %%rdi\n\t"                                                  \
				 "xchgq %%rbx, %%rbx"                                                   \
				 : "+d"(request_result)                                                 \
				 : "a"(&request_words[0])                                               \
				 : "cc", "memory");                                                     \
		request_result;                                                                         \
	})

#define PMEMCHECK (UINT64_C(0x50430000))
#define ADDRESS(pointer) ((uint64_t)(uintptr_t)(pointer))
#define PLAIN(number) request(0, PMEMCHECK + (number), 0, 0, 0, 0)
#define RANGE(number, pointer, length) request(0, PMEMCHECK + (number), ADDRESS(pointer), (length), 0, 0)

#define RUNNING_ON_VALGRIND() request(0, 0x1001, 0, 0, 0, 0)
#define REGISTER_MAPPING(pointer, length) RANGE(0x00, pointer, length)
#define REGISTER_FILE(file, pointer, length, offset)                                                    \
	request(0, PMEMCHECK + 0x01, (uint64_t)(file), ADDRESS(pointer), (length), (offset))
#define REMOVE_MAPPING(pointer, length) RANGE(0x02, pointer, length)
#define CHECK_MAPPING(pointer, length) RANGE(0x03, pointer, length)
#define PRINT_MAPPINGS() PLAIN(0x04)
#define DO_FLUSH(pointer, length) RANGE(0x05, pointer, length)
#define DO_FENCE() PLAIN(0x06)
#define WRITE_STATS() PLAIN(0x08)
#define SET_CLEAN(pointer, length) RANGE(0x11, pointer, length)
#define START_TX() PLAIN(0x12)
#define START_TX_N(number) request(0, PMEMCHECK + 0x13, (number), 0, 0, 0)
#define END_TX() PLAIN(0x14)
#define END_TX_N(number) request(0, PMEMCHECK + 0x15, (number), 0, 0, 0)
#define ADD_TO_TX(pointer, length) RANGE(0x16, pointer, length)
#define ADD_TO_TX_N(number, pointer, length)                                                            \
	request(0, PMEMCHECK + 0x17, (number), ADDRESS(pointer), (length), 0)
#define REMOVE_FROM_TX(pointer, length) RANGE(0x18, pointer, length)
#define REMOVE_FROM_TX_N(number, pointer, length)                                                       \
	request(0, PMEMCHECK + 0x19, (number), ADDRESS(pointer), (length), 0)
#define ADD_THREAD_TX_N(number) request(0, PMEMCHECK + 0x1a, (number), 0, 0, 0)
#define REMOVE_THREAD_FROM_TX_N(number) request(0, PMEMCHECK + 0x1b, (number), 0, 0, 0)
#define ADD_TO_GLOBAL_TX_IGNORE(pointer, length) RANGE(0x1c, pointer, length)
#define EMIT_LOG(text) request(0, PMEMCHECK + 0x1e, ADDRESS(text), 0, 0, 0)

#endif
