/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * `syscall`: system calls by their numbers. Those that libc has a function for go that way; of the
 * others, what looks at or changes files and is not known here makes the group one that cannot be
 * followed.
 */
#define _GNU_SOURCE
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "next.h"
#include "report.h"

/* Newer than some libc's headers. */
#define NR_setxattrat 463
#define NR_removexattrat 466
#define NR_open_tree_attr 467

/* Does it look at files, or change them or what paths mean, in a way that is not followed here? */
static bool is_blind(long nr)
{
	switch (nr) {
	case SYS_creat:
	case SYS_getdents:
	case SYS_mknod:
	case SYS_mknodat:
	case SYS_rmdir:
	case SYS_link:
	case SYS_linkat:
	case SYS_symlink:
	case SYS_symlinkat:
	case SYS_truncate:
	case SYS_chmod:
	case SYS_fchmod:
	case SYS_fchmodat:
	case SYS_chown:
	case SYS_utimensat:
	case SYS_chdir:
	case SYS_fchdir:
	case SYS_chroot:
	case SYS_unshare:
	case SYS_setns:
	case SYS_mount:
	case SYS_umount2:
	case SYS_pivot_root:
	case SYS_move_mount:
	case SYS_fsconfig:
	case SYS_fsmount:
	case SYS_mount_setattr:
	case SYS_setxattr:
	case SYS_lsetxattr:
	case SYS_fsetxattr:
	case SYS_removexattr:
	case SYS_lremovexattr:
	case SYS_fremovexattr:
	case SYS_statfs:
	case SYS_getxattr:
	case SYS_lgetxattr:
	case SYS_pwritev:
	case SYS_pwritev2:
	case SYS_sendfile:
	case SYS_splice:
	case SYS_sendmmsg:
	case SYS_execveat:
	case SYS_open_by_handle_at:
	case SYS_io_submit:
	case SYS_io_uring_setup:
	case NR_setxattrat:
	case NR_removexattrat:
	case NR_open_tree_attr:
		return true;
	}
	return false;
}

long syscall(long nr, ...)
{
	long a, b, c, d, e, f, result;
	struct change change = {.count = 0};
	va_list arguments;

	va_start(arguments, nr);
	a = va_arg(arguments, long);
	b = va_arg(arguments, long);
	c = va_arg(arguments, long);
	d = va_arg(arguments, long);
	e = va_arg(arguments, long);
	f = va_arg(arguments, long);
	va_end(arguments);
	if (role == ROLE_NONE)
		return NEXT(syscall)(nr, a, b, c, d, e, f);
	switch (nr) {
	case SYS_write:
		return write(a, (void *)b, c);
	case SYS_pwrite64:
		return pwrite(a, (void *)b, c, d);
	case SYS_writev:
		return writev(a, (void *)b, c);
	case SYS_copy_file_range:
		return copy_file_range(a, (void *)b, c, (void *)d, e, f);
	case SYS_sendto:
		return sendto(a, (void *)b, c, d, (struct sockaddr *)e, f);
	case SYS_sendmsg:
		return sendmsg(a, (void *)b, c);
	case SYS_open:
		return open((char *)a, b, (mode_t)c);
	case SYS_openat:
		return openat(a, (char *)b, c, (mode_t)d);
	case SYS_stat:
		return stat((char *)a, (struct stat *)b);
	case SYS_lstat:
		return lstat((char *)a, (struct stat *)b);
	case SYS_newfstatat:
		return fstatat(a, (char *)b, (struct stat *)c, d);
	case SYS_statx:
		return statx(a, (char *)b, c, d, (struct statx *)e);
	case SYS_access:
		return access((char *)a, b);
	case SYS_readlink:
		return readlink((char *)a, (char *)b, c);
	case SYS_readlinkat:
		return readlinkat(a, (char *)b, (char *)c, d);
	case SYS_faccessat:
	case SYS_faccessat2:
		/* The system call without flags takes none. */
		result = NEXT(syscall)(nr, a, b, c, d, e, f);
		report_path(nr, a, (char *)b,
			    nr == SYS_faccessat2 && d & AT_SYMLINK_NOFOLLOW ? FLAG_NOFOLLOW : 0,
			    result);
		return result;
	case SYS_rename:
		return rename((char *)a, (char *)b);
	case SYS_renameat:
		return renameat(a, (char *)b, c, (char *)d);
	case SYS_renameat2:
		return renameat2(a, (char *)b, c, (char *)d, e);
	case SYS_unlink:
		return unlink((char *)a);
	case SYS_unlinkat:
		return unlinkat(a, (char *)b, c);
	case SYS_mkdir:
		return mkdir((char *)a, b);
	case SYS_mkdirat:
		return mkdirat(a, (char *)b, c);
	case SYS_ftruncate:
		return ftruncate(a, b);
	case SYS_fallocate:
		return fallocate(a, b, c, d);
	case SYS_getdents64:
		result = NEXT(syscall)(nr, a, b, c, d, e, f);
		report_descriptor(EVENT_READDIR, nr, result, a);
		return result;
	case SYS_openat2: {
		const struct open_how *how = (void *)c;
		struct lookup lookup = {.kind = EVENT_LOOKUP,
					.nr = nr,
					.dirfd = a,
					.path = (char *)b,
					.opened = true};

		result = NEXT(syscall)(nr, a, b, c, d, e, f);
		if (result == -1 && errno == EFAULT)
			return result;
		lookup.open_flags = how->flags;
		if (how->resolve & (RESOLVE_IN_ROOT | RESOLVE_BENEATH))
			lookup.flags |= FLAG_OWN_ROOT;
		if (how->flags & O_NOFOLLOW)
			lookup.flags |= FLAG_NOFOLLOW;
		if (result >= 0 && how->flags & (O_ACCMODE | O_TRUNC | O_CREAT)) {
			add_descriptor(&change, result);
			add_name(&change, a, (char *)b);
			stamp(&change);
		}
		report_lookup(&lookup, result);
		return result;
	}
	case SYS_fork:
	case SYS_vfork:
	case SYS_clone:
	case SYS_clone3:
		if (role == ROLE_SERVER)
			change_slot(SLOT_EVERYTHING);
		break;
	case SYS_execve:
		return execve((char *)a, (char **)b, (char **)c);
	default:
		/* From here on anything may be looked up, or changed, unseen. */
		if (is_blind(nr)) {
			change_slot(SLOT_EVERYTHING);
			result = NEXT(syscall)(nr, a, b, c, d, e, f);
			change_slot(SLOT_EVERYTHING);
			report_hidden(nr);
			return result;
		}
	}
	return NEXT(syscall)(nr, a, b, c, d, e, f);
}
