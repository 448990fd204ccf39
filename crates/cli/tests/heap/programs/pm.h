/* Flushes and fences, and the roots of the persistent heap. */
#ifndef PM_H
#define PM_H

#include "../../../../../include/powerfail.h"

static inline void pm_flush(const void *address)
{
	__asm__ volatile("clflushopt (%0)" : : "r"(address) : "memory");
}

static inline void pm_fence(void)
{
	__asm__ volatile("sfence" : : : "memory");
}

static inline void pm_persist(const void *address, size_t length)
{
	uintptr_t line = (uintptr_t)address & ~(uintptr_t)63;
	for (; line < (uintptr_t)address + length; line += 64)
		pm_flush((const void *)line);
	pm_fence();
}

#endif
