/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * System calls of this library's own: they go past libc, so they change no errno, are not
 * cancellation points, and never come back here.
 */
#ifndef NICACHE_PRELOAD_RAW_H
#define NICACHE_PRELOAD_RAW_H

#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#ifndef __x86_64__
#error "the system calls here are those of x86-64"
#endif

static inline long raw6(long nr, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
}

#define raw(nr, a, b, c, d) raw6((nr), (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)

static inline bool raw_fstat(int fd, struct stat *stat)
{
	return raw(SYS_fstat, fd, stat, 0, 0) == 0;
}

/* 0 or -errno. */
static inline long raw_fstatat(int dirfd, const char *path, struct stat *stat, int flags)
{
	return raw(SYS_newfstatat, dirfd, path, stat, flags);
}

static inline int raw_flags(int fd)
{
	return (int)raw(SYS_fcntl, fd, F_GETFL, 0, 0);
}

#endif
