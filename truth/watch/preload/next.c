/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#define _GNU_SOURCE
#include "next.h"

#include <dlfcn.h>
#include <errno.h>

extern __attribute__((visibility("hidden"))) struct next __start_nicache_next[],
	__stop_nicache_next[];

void *find_next(struct next *next)
{
	int before = errno;
	void *found = dlsym(RTLD_NEXT, next->name);

	/* Kept by libc for older programs only. */
	if (!found)
		found = dlvsym(RTLD_NEXT, next->name, "GLIBC_2.2.5");
	if (!found)
		found = dlvsym(RTLD_NEXT, next->name, "GLIBC_2.4");
	__atomic_store_n(&next->function, found, __ATOMIC_RELAXED);
	errno = before;
	return found;
}

void find_all_next(void)
{
	struct next *next;

	for (next = __start_nicache_next; next < __stop_nicache_next; next++)
		find_next(next);
}
