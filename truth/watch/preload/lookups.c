/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Paths that are looked up, but not opened.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <stdlib.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "next.h"
#include "report.h"

/* LOOKUP(result, name, (parameters), (arguments), number, dirfd, flags); the path is called `path`.
 */
#define LOOKUP(type, name, parameters, arguments, nr, dirfd, flags) \
	type name parameters                                        \
	{                                                           \
		type result = NEXT(name) arguments;                 \
                                                                    \
		report_path(nr, dirfd, path, flags, result);        \
		return result;                                      \
	}

#define NOFOLLOW(flags) ((flags)&AT_SYMLINK_NOFOLLOW ? FLAG_NOFOLLOW : 0)

LOOKUP(int, stat, (const char *path, struct stat *into), (path, into), SYS_stat, AT_FDCWD, 0)
LOOKUP(int, stat64, (const char *path, struct stat64 *into), (path, into), SYS_stat, AT_FDCWD, 0)
LOOKUP(int, lstat, (const char *path, struct stat *into), (path, into), SYS_lstat, AT_FDCWD,
       FLAG_NOFOLLOW)
LOOKUP(int, lstat64, (const char *path, struct stat64 *into), (path, into), SYS_lstat, AT_FDCWD,
       FLAG_NOFOLLOW)
LOOKUP(int, fstatat, (int dirfd, const char *path, struct stat *into, int flags),
       (dirfd, path, into, flags), SYS_newfstatat, dirfd, NOFOLLOW(flags))
LOOKUP(int, fstatat64, (int dirfd, const char *path, struct stat64 *into, int flags),
       (dirfd, path, into, flags), SYS_newfstatat, dirfd, NOFOLLOW(flags))
LOOKUP(int, statx, (int dirfd, const char *path, int flags, unsigned int mask, struct statx *into),
       (dirfd, path, flags, mask, into), SYS_statx, dirfd, NOFOLLOW(flags))

/* Under these names in programs that were linked before glibc 2.33. */
int __xstat(int version, const char *path, struct stat *into);
int __lxstat(int version, const char *path, struct stat *into);
int __fxstatat(int version, int dirfd, const char *path, struct stat *into, int flags);
LOOKUP(int, __xstat, (int version, const char *path, struct stat *into), (version, path, into),
       SYS_stat, AT_FDCWD, 0)
ALSO(__xstat, __xstat64);
LOOKUP(int, __lxstat, (int version, const char *path, struct stat *into), (version, path, into),
       SYS_lstat, AT_FDCWD, FLAG_NOFOLLOW)
ALSO(__lxstat, __lxstat64);
LOOKUP(int, __fxstatat, (int version, int dirfd, const char *path, struct stat *into, int flags),
       (version, dirfd, path, into, flags), SYS_newfstatat, dirfd, NOFOLLOW(flags))
ALSO(__fxstatat, __fxstatat64);

LOOKUP(int, access, (const char *path, int mode), (path, mode), SYS_access, AT_FDCWD, 0)
LOOKUP(int, eaccess, (const char *path, int mode), (path, mode), SYS_faccessat2, AT_FDCWD, 0)
LOOKUP(int, euidaccess, (const char *path, int mode), (path, mode), SYS_faccessat2, AT_FDCWD, 0)
LOOKUP(int, faccessat, (int dirfd, const char *path, int mode, int flags),
       (dirfd, path, mode, flags), SYS_faccessat2, dirfd, NOFOLLOW(flags))

LOOKUP(ssize_t, readlink, (const char *path, char *text, size_t bytes), (path, text, bytes),
       SYS_readlink, AT_FDCWD, FLAG_NOFOLLOW)
LOOKUP(ssize_t, readlinkat, (int dirfd, const char *path, char *text, size_t bytes),
       (dirfd, path, text, bytes), SYS_readlinkat, dirfd, FLAG_NOFOLLOW)
ssize_t __readlink_chk(const char *path, char *text, size_t bytes, size_t room);
ssize_t __readlinkat_chk(int dirfd, const char *path, char *text, size_t bytes, size_t room);
LOOKUP(ssize_t, __readlink_chk, (const char *path, char *text, size_t bytes, size_t room),
       (path, text, bytes, room), SYS_readlink, AT_FDCWD, FLAG_NOFOLLOW)
LOOKUP(ssize_t, __readlinkat_chk,
       (int dirfd, const char *path, char *text, size_t bytes, size_t room),
       (dirfd, path, text, bytes, room), SYS_readlinkat, dirfd, FLAG_NOFOLLOW)

LOOKUP(int, statfs, (const char *path, struct statfs *into), (path, into), SYS_statfs, AT_FDCWD, 0)
LOOKUP(int, statfs64, (const char *path, struct statfs64 *into), (path, into), SYS_statfs, AT_FDCWD,
       0)
LOOKUP(int, statvfs, (const char *path, struct statvfs *into), (path, into), SYS_statfs, AT_FDCWD,
       0)
LOOKUP(int, statvfs64, (const char *path, struct statvfs64 *into), (path, into), SYS_statfs,
       AT_FDCWD, 0)

LOOKUP(ssize_t, getxattr, (const char *path, const char *name, void *value, size_t bytes),
       (path, name, value, bytes), SYS_getxattr, AT_FDCWD, 0)
LOOKUP(ssize_t, lgetxattr, (const char *path, const char *name, void *value, size_t bytes),
       (path, name, value, bytes), SYS_lgetxattr, AT_FDCWD, FLAG_NOFOLLOW)
LOOKUP(ssize_t, listxattr, (const char *path, char *list, size_t bytes), (path, list, bytes),
       SYS_listxattr, AT_FDCWD, 0)
LOOKUP(ssize_t, llistxattr, (const char *path, char *list, size_t bytes), (path, list, bytes),
       SYS_llistxattr, AT_FDCWD, FLAG_NOFOLLOW)
LOOKUP(int, name_to_handle_at,
       (int dirfd, const char *path, struct file_handle *handle, int *mount, int flags),
       (dirfd, path, handle, mount, flags), SYS_name_to_handle_at, dirfd,
       flags &AT_SYMLINK_FOLLOW ? 0 : FLAG_NOFOLLOW)

/* These look at each link on the way; so does whoever resolves the path again. */
#define RESOLVE(name, parameters, arguments)                                           \
	char *name parameters                                                          \
	{                                                                              \
		char *result = NEXT(name) arguments;                                   \
                                                                                       \
		if (path)                                                              \
			report_path(SYS_readlink, AT_FDCWD, path, 0, result ? 0 : -1); \
		return result;                                                         \
	}

char *__realpath_chk(const char *path, char *into, size_t room);
#pragma GCC diagnostic ignored "-Wnonnull-compare"
RESOLVE(realpath, (const char *path, char *into), (path, into))
RESOLVE(__realpath_chk, (const char *path, char *into, size_t room), (path, into, room))
RESOLVE(canonicalize_file_name, (const char *path), (path))
