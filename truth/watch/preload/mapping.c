/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Files that are mapped shared, and open for writing: each store changes them, and no call tells.
 * The kernel keeps the file open as long as the mapping is there, and the registrar keeps nothing
 * that it is part of; here the beginning and the end are stamped.
 */
#define _GNU_SOURCE
#include "mapping.h"

#include <stdarg.h>
#include <sys/mman.h>

#include "next.h"
#include "report.h"

#define MAPPINGS_MAX 512

struct mapping {
	unsigned long begin; /* 0: free; 1: being filled in */
	unsigned long end;
	__u32 slot;
};

static struct mapping mappings[MAPPINGS_MAX];
/* Entries that were ever used, and whether there were more. */
static int mappings_used;
static bool mappings_overflowed;

static void note(unsigned long begin, unsigned long end, __u32 slot)
{
	int at;

	for (at = 0; at < MAPPINGS_MAX; at++) {
		unsigned long free = 0;
		int used = __atomic_load_n(&mappings_used, __ATOMIC_SEQ_CST);

		if (!__atomic_compare_exchange_n(&mappings[at].begin, &free, 1, false,
						 __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			continue;
		mappings[at].end = end;
		mappings[at].slot = slot;
		__atomic_store_n(&mappings[at].begin, begin, __ATOMIC_SEQ_CST);
		while (used <= at &&
		       !__atomic_compare_exchange_n(&mappings_used, &used, at + 1, false,
						    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			;
		return;
	}
	__atomic_store_n(&mappings_overflowed, true, __ATOMIC_SEQ_CST);
}

/* Stamps what is mapped there, and adds it to what its caller will stamp again. `gone`: what is
 * mapped there alone is forgotten.
 */
static void stamp_range(unsigned long begin, unsigned long end, struct change *again, bool gone)
{
	int at, used = __atomic_load_n(&mappings_used, __ATOMIC_SEQ_CST);

	if (__atomic_load_n(&mappings_overflowed, __ATOMIC_SEQ_CST))
		add_everything(again);
	for (at = 0; at < used; at++) {
		unsigned long from = __atomic_load_n(&mappings[at].begin, __ATOMIC_SEQ_CST),
			      to = mappings[at].end;

		if (from <= 1 || from >= end || to <= begin)
			continue;
		add_slot(again, mappings[at].slot);
		change_slot(mappings[at].slot);
		if (gone && from >= begin && to <= end)
			__atomic_compare_exchange_n(&mappings[at].begin, &from, 0, false,
						    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	}
}

void stamp_mappings(void)
{
	struct change change = {.count = 0};

	stamp_range(0, ~0UL, &change, false);
	stamp(&change);
}

static bool is_shared(int flags)
{
	return !(flags & MAP_ANONYMOUS) &&
	       ((flags & MAP_TYPE) == MAP_SHARED || (flags & MAP_TYPE) == MAP_SHARED_VALIDATE);
}

void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	struct stat stat;
	bool is_writable = role != ROLE_NONE && is_shared(flags) && raw_fstat(fd, &stat) &&
			   S_ISREG(stat.st_mode) && (raw_flags(fd) & O_ACCMODE) == O_RDWR;
	__u32 slot = is_writable ? slot_of(stat.st_dev, stat.st_ino) : 0;
	void *mapped;

	if (is_writable)
		change_slot(slot);
	mapped = NEXT(mmap)(address, bytes, protection, flags, fd, offset);
	if (is_writable && mapped != MAP_FAILED) {
		note((unsigned long)mapped, (unsigned long)mapped + bytes, slot);
		change_slot(slot);
		if (protection & PROT_WRITE)
			report_written(fd, SYS_mmap, 0);
	}
	return mapped;
}
ALSO(mmap, mmap64);

int munmap(void *address, size_t bytes)
{
	struct change change = {.count = 0};
	unsigned long begin = (unsigned long)address;
	int result;

	/* Forgotten before it is gone: afterwards another thread may have mapped something else
	 * there.
	 */
	if (role != ROLE_NONE && __atomic_load_n(&mappings_used, __ATOMIC_SEQ_CST))
		stamp_range(begin, begin + bytes, &change, true);
	result = NEXT(munmap)(address, bytes);
	stamp(&change);
	return result;
}

/* Its stores are done, as far as the caller can tell others. */
int msync(void *address, size_t bytes, int flags)
{
	struct change change = {.count = 0};
	int result = NEXT(msync)(address, bytes, flags);

	if (role != ROLE_NONE && __atomic_load_n(&mappings_used, __ATOMIC_SEQ_CST))
		stamp_range((unsigned long)address, (unsigned long)address + bytes, &change, false);
	return result;
}

void *mremap(void *address, size_t bytes, size_t new_bytes, int flags, ...)
{
	va_list arguments;
	void *wanted, *moved;
	unsigned long begin = (unsigned long)address;
	int at, used = __atomic_load_n(&mappings_used, __ATOMIC_SEQ_CST);

	va_start(arguments, flags);
	wanted = va_arg(arguments, void *);
	va_end(arguments);
	moved = NEXT(mremap)(address, bytes, new_bytes, flags, wanted);
	if (moved == MAP_FAILED || role == ROLE_NONE)
		return moved;
	for (at = 0; at < used; at++)
		if (__atomic_load_n(&mappings[at].begin, __ATOMIC_SEQ_CST) == begin)
			note((unsigned long)moved, (unsigned long)moved + new_bytes,
			     mappings[at].slot);
	return moved;
}
