/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Names that come, go and move; modes, owners, times and attributes.
 */
#define _GNU_SOURCE
#include <sys/mount.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <stdio.h>
#include <unistd.h>
#include <utime.h>

#include "next.h"
#include "report.h"

/* A call that changes what `add` names. After it the names are looked up once more: another process
 * may have moved the directory.
 */
#define CHANGE(name, parameters, arguments, nr, add)               \
	int name parameters                                        \
	{                                                          \
		struct change change = {.count = 0};               \
		int result;                                        \
                                                                   \
		add;                                               \
		stamp(&change);                                    \
		result = NEXT(name) arguments;                     \
		if (result == 0) {                                 \
			add;                                       \
			stamp(&change);                            \
			report_descriptor(EVENT_WROTE, nr, 0, -1); \
		}                                                  \
		return result;                                     \
	}

#define NAME(dirfd, path) add_name(&change, dirfd, path)
#define INODE(dirfd, path, flags) add_inode(&change, dirfd, path, flags)

CHANGE(rename, (const char *from, const char *to), (from, to), SYS_rename, NAME(AT_FDCWD, from);
       NAME(AT_FDCWD, to))
CHANGE(renameat, (int from_fd, const char *from, int to_fd, const char *to),
       (from_fd, from, to_fd, to), SYS_renameat, NAME(from_fd, from);
       NAME(to_fd, to))
CHANGE(renameat2, (int from_fd, const char *from, int to_fd, const char *to, unsigned int flags),
       (from_fd, from, to_fd, to, flags), SYS_renameat2, NAME(from_fd, from);
       NAME(to_fd, to))
CHANGE(mkdir, (const char *path, mode_t mode), (path, mode), SYS_mkdir, NAME(AT_FDCWD, path))
CHANGE(mkdirat, (int dirfd, const char *path, mode_t mode), (dirfd, path, mode), SYS_mkdirat,
       NAME(dirfd, path))
CHANGE(rmdir, (const char *path), (path), SYS_rmdir, NAME(AT_FDCWD, path))
CHANGE(link, (const char *from, const char *to), (from, to), SYS_link,
       INODE(AT_FDCWD, from, AT_SYMLINK_NOFOLLOW);
       NAME(AT_FDCWD, to))
CHANGE(linkat, (int from_fd, const char *from, int to_fd, const char *to, int flags),
       (from_fd, from, to_fd, to, flags), SYS_linkat,
       INODE(from_fd, from,
	     (flags & AT_EMPTY_PATH) | (flags & AT_SYMLINK_FOLLOW ? 0 : AT_SYMLINK_NOFOLLOW));
       NAME(to_fd, to))
CHANGE(symlink, (const char *target, const char *path), (target, path), SYS_symlink,
       NAME(AT_FDCWD, path))
CHANGE(symlinkat, (const char *target, int dirfd, const char *path), (target, dirfd, path),
       SYS_symlinkat, NAME(dirfd, path))
CHANGE(mknod, (const char *path, mode_t mode, dev_t device), (path, mode, device), SYS_mknod,
       NAME(AT_FDCWD, path))
CHANGE(mknodat, (int dirfd, const char *path, mode_t mode, dev_t device),
       (dirfd, path, mode, device), SYS_mknodat, NAME(dirfd, path))
CHANGE(mkfifo, (const char *path, mode_t mode), (path, mode), SYS_mknod, NAME(AT_FDCWD, path))
CHANGE(mkfifoat, (int dirfd, const char *path, mode_t mode), (dirfd, path, mode), SYS_mknodat,
       NAME(dirfd, path))

CHANGE(chmod, (const char *path, mode_t mode), (path, mode), SYS_chmod, INODE(AT_FDCWD, path, 0))
CHANGE(lchmod, (const char *path, mode_t mode), (path, mode), SYS_chmod,
       INODE(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW))
CHANGE(fchmodat, (int dirfd, const char *path, mode_t mode, int flags), (dirfd, path, mode, flags),
       SYS_fchmodat, INODE(dirfd, path, flags &AT_SYMLINK_NOFOLLOW))
CHANGE(chown, (const char *path, uid_t user, gid_t group), (path, user, group), SYS_chmod,
       INODE(AT_FDCWD, path, 0))
CHANGE(lchown, (const char *path, uid_t user, gid_t group), (path, user, group), SYS_chmod,
       INODE(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW))
CHANGE(fchownat, (int dirfd, const char *path, uid_t user, gid_t group, int flags),
       (dirfd, path, user, group, flags), SYS_fchmodat,
       INODE(dirfd, path, flags &(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH)))
CHANGE(utime, (const char *path, const struct utimbuf *times), (path, times), SYS_utimensat,
       INODE(AT_FDCWD, path, 0))
CHANGE(utimes, (const char *path, const struct timeval times[2]), (path, times), SYS_utimensat,
       INODE(AT_FDCWD, path, 0))
CHANGE(lutimes, (const char *path, const struct timeval times[2]), (path, times), SYS_utimensat,
       INODE(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW))
CHANGE(truncate, (const char *path, off_t length), (path, length), SYS_truncate,
       INODE(AT_FDCWD, path, 0))
ALSO(truncate, truncate64);

/* A removed name of its own making does not make a request one that changes something: the watcher
 * decides by the path.
 */
static int end_removal(struct change *change, int dirfd, const char *path, __u32 nr, int result)
{
	struct lookup lookup = {.kind = EVENT_REMOVED,
				.nr = nr,
				.dirfd = dirfd,
				.path = path,
				.flags = FLAG_NOFOLLOW};

	if (result == 0) {
		add_name(change, dirfd, path);
		stamp(change);
		report_lookup(&lookup, 0);
	}
	return result;
}

int unlink(const char *path)
{
	struct change change = {.count = 0};

	NAME(AT_FDCWD, path);
	stamp(&change);
	return end_removal(&change, AT_FDCWD, path, SYS_unlink, NEXT(unlink)(path));
}

int unlinkat(int dirfd, const char *path, int flags)
{
	struct change change = {.count = 0};

	NAME(dirfd, path);
	stamp(&change);
	return end_removal(&change, dirfd, path, SYS_unlinkat, NEXT(unlinkat)(dirfd, path, flags));
}

int remove(const char *path)
{
	struct change change = {.count = 0};

	NAME(AT_FDCWD, path);
	stamp(&change);
	return end_removal(&change, AT_FDCWD, path, SYS_unlink, NEXT(remove)(path));
}

/* ---- by descriptor ---- */

#define CHANGE_FD(name, parameters, arguments, nr, good) \
	int name parameters                              \
	{                                                \
		struct change change = {.count = 0};     \
		int result;                              \
                                                         \
		add_descriptor(&change, fd);             \
		stamp(&change);                          \
		result = NEXT(name) arguments;           \
		if (result == good) {                    \
			stamp(&change);                  \
			report_written(fd, nr, 0);       \
		}                                        \
		return result;                           \
	}
CHANGE_FD(fchmod, (int fd, mode_t mode), (fd, mode), SYS_fchmod, 0)
CHANGE_FD(fchown, (int fd, uid_t user, gid_t group), (fd, user, group), SYS_fchmod, 0)
CHANGE_FD(futimes, (int fd, const struct timeval times[2]), (fd, times), SYS_utimensat, 0)
CHANGE_FD(futimens, (int fd, const struct timespec times[2]), (fd, times), SYS_utimensat, 0)
CHANGE_FD(ftruncate, (int fd, off_t length), (fd, length), SYS_ftruncate, 0)
ALSO(ftruncate, ftruncate64);
CHANGE_FD(fallocate, (int fd, int mode, off_t offset, off_t length), (fd, mode, offset, length),
	  SYS_fallocate, 0)
ALSO(fallocate, fallocate64);
CHANGE_FD(posix_fallocate, (int fd, off_t offset, off_t length), (fd, offset, length),
	  SYS_fallocate, 0)
ALSO(posix_fallocate, posix_fallocate64);

/* Without a path they are about the descriptor. */
#pragma GCC diagnostic ignored "-Wnonnull-compare"
#define TIMES_AT(name, parameters, arguments, flags)                                  \
	int name parameters                                                           \
	{                                                                             \
		struct change change = {.count = 0};                                  \
		int result;                                                           \
                                                                                      \
		if (path)                                                             \
			add_inode(&change, dirfd, path, flags);                       \
		else                                                                  \
			add_descriptor(&change, dirfd);                               \
		stamp(&change);                                                       \
		result = NEXT(name) arguments;                                        \
		if (result == 0) {                                                    \
			stamp(&change);                                               \
			if (path)                                                     \
				report_descriptor(EVENT_WROTE, SYS_utimensat, 0, -1); \
			else                                                          \
				report_written(dirfd, SYS_utimensat, 0);              \
		}                                                                     \
		return result;                                                        \
	}
TIMES_AT(utimensat, (int dirfd, const char *path, const struct timespec times[2], int flags),
	 (dirfd, path, times, flags), flags &(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH))
TIMES_AT(futimesat, (int dirfd, const char *path, const struct timeval times[2]),
	 (dirfd, path, times), 0)

/* ---- what cannot be named more narrowly: access control lists, mounts ---- */

#define CHANGE_ALL(name, parameters, arguments, nr) \
	CHANGE(name, parameters, arguments, nr, if (role != ROLE_NONE) add_everything(&change))
CHANGE_ALL(setxattr,
	   (const char *path, const char *name, const void *value, size_t bytes, int flags),
	   (path, name, value, bytes, flags), SYS_setxattr)
CHANGE_ALL(lsetxattr,
	   (const char *path, const char *name, const void *value, size_t bytes, int flags),
	   (path, name, value, bytes, flags), SYS_lsetxattr)
CHANGE_ALL(fsetxattr, (int fd, const char *name, const void *value, size_t bytes, int flags),
	   (fd, name, value, bytes, flags), SYS_fsetxattr)
CHANGE_ALL(removexattr, (const char *path, const char *name), (path, name), SYS_removexattr)
CHANGE_ALL(lremovexattr, (const char *path, const char *name), (path, name), SYS_lremovexattr)
CHANGE_ALL(fremovexattr, (int fd, const char *name), (fd, name), SYS_fremovexattr)
CHANGE_ALL(mount,
	   (const char *what, const char *where, const char *kind, unsigned long flags,
	    const void *data),
	   (what, where, kind, flags, data), SYS_mount)
CHANGE_ALL(umount, (const char *where), (where), SYS_umount2)
CHANGE_ALL(umount2, (const char *where, int flags), (where, flags), SYS_umount2)
