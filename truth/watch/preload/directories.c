/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Directories that are listed, and processes that go to another one.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fts.h>
#include <ftw.h>
#include <glob.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>
#include <wordexp.h>

#include "next.h"
#include "report.h"

/* A listing of thousands of names is one event in so many nanoseconds. */
#define LISTED_AGAIN_NS 1000000

static __thread DIR *last_listed __attribute__((tls_model("initial-exec")));
static __thread __u64 last_listed_ns __attribute__((tls_model("initial-exec")));

static void report_listing(DIR *directory)
{
	struct timespec now;
	__u64 now_ns;

	if (role != ROLE_SERVER || !directory)
		return;
	clock_gettime(CLOCK_MONOTONIC, &now);
	now_ns = (__u64)now.tv_sec * 1000000000ULL + now.tv_nsec;
	if (directory == last_listed && now_ns - last_listed_ns < LISTED_AGAIN_NS)
		return;
	last_listed = directory;
	last_listed_ns = now_ns;
	report_descriptor(EVENT_READDIR, SYS_getdents64, 0, dirfd(directory));
}

DIR *opendir(const char *path)
{
	DIR *directory = NEXT(opendir)(path);
	struct lookup lookup = {.kind = EVENT_LOOKUP,
				.nr = SYS_openat,
				.dirfd = AT_FDCWD,
				.path = path,
				.open_flags = O_DIRECTORY,
				.opened = true};

	report_lookup(&lookup, directory ? dirfd(directory) : -1);
	last_listed = 0;
	return directory;
}

/* Before and after: the names are fetched many at a time, and nobody sees at which call. */
#define LIST(name, type)                             \
	type *name(DIR *directory)                   \
	{                                            \
		type *entry = NEXT(name)(directory); \
                                                     \
		report_listing(directory);           \
		return entry;                        \
	}
LIST(readdir, struct dirent)
LIST(readdir64, struct dirent64)

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
int readdir_r(DIR *directory, struct dirent *entry, struct dirent **result)
{
	int error = NEXT(readdir_r)(directory, entry, result);

	report_listing(directory);
	return error;
}

int readdir64_r(DIR *directory, struct dirent64 *entry, struct dirent64 **result)
{
	int error = NEXT(readdir64_r)(directory, entry, result);

	report_listing(directory);
	return error;
}
#pragma GCC diagnostic pop

ssize_t getdents64(int fd, void *buffer, size_t bytes)
{
	ssize_t result = NEXT(getdents64)(fd, buffer, bytes);

	report_descriptor(EVENT_READDIR, SYS_getdents64, result, fd);
	return result;
}

/* libc opens and reads the directory by itself. */
static void report_scan(int at, const char *path, int result)
{
	struct lookup lookup = {.kind = EVENT_LOOKUP,
				.nr = SYS_openat,
				.dirfd = at,
				.path = path,
				.open_flags = O_DIRECTORY,
				.opened = true};
	long fd;
	int before = errno;

	if (role != ROLE_SERVER)
		return;
	if (result < 0) {
		report_lookup(&lookup, -1);
		return;
	}
	fd = raw(SYS_openat, at, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	if (fd < 0) {
		report_unseen(SYS_getdents64);
		return;
	}
	errno = before;
	report_lookup(&lookup, fd);
	report_descriptor(EVENT_READDIR, SYS_getdents64, 0, fd);
	raw(SYS_close, fd, 0, 0, 0);
	errno = before;
}

#define SCAN(name, at, type, parameters, arguments) \
	int name parameters                         \
	{                                           \
		int result = NEXT(name) arguments;  \
                                                    \
		report_scan(at, path, result);      \
		return result;                      \
	}
SCAN(scandir, AT_FDCWD, struct dirent,
     (const char *path, struct dirent ***list, int (*choose)(const struct dirent *),
      int (*compare)(const struct dirent **, const struct dirent **)),
     (path, list, choose, compare))
SCAN(scandir64, AT_FDCWD, struct dirent64,
     (const char *path, struct dirent64 ***list, int (*choose)(const struct dirent64 *),
      int (*compare)(const struct dirent64 **, const struct dirent64 **)),
     (path, list, choose, compare))
SCAN(scandirat, at, struct dirent,
     (int at, const char *path, struct dirent ***list, int (*choose)(const struct dirent *),
      int (*compare)(const struct dirent **, const struct dirent **)),
     (at, path, list, choose, compare))
SCAN(scandirat64, at, struct dirent64,
     (int at, const char *path, struct dirent64 ***list, int (*choose)(const struct dirent64 *),
      int (*compare)(const struct dirent64 **, const struct dirent64 **)),
     (at, path, list, choose, compare))

/* glob takes its directory functions from the caller if it is told to: these, then. */
static void *glob_opendir(const char *path)
{
	return opendir(path);
}

static void *glob_readdir(void *directory)
{
	return readdir(directory);
}

static void glob_closedir(void *directory)
{
	closedir(directory);
}

static int glob_lstat(const char *path, void *into)
{
	return lstat(path, into);
}

static int glob_stat(const char *path, void *into)
{
	return stat(path, into);
}

int glob(const char *pattern, int flags, int (*failed)(const char *, int), glob_t *found)
{
	glob_t before;
	int result;

	if (role != ROLE_SERVER || !found || flags & GLOB_ALTDIRFUNC)
		return NEXT(glob)(pattern, flags, failed, found);
	before = *found;
	found->gl_opendir = glob_opendir;
	found->gl_readdir = (struct dirent * (*)(void *))(void *)glob_readdir;
	found->gl_closedir = glob_closedir;
	found->gl_lstat = (int (*)(const char *restrict, struct stat *restrict))(void *)glob_lstat;
	found->gl_stat = (int (*)(const char *restrict, struct stat *restrict))(void *)glob_stat;
	result = NEXT(glob)(pattern, flags | GLOB_ALTDIRFUNC, failed, found);
	found->gl_opendir = before.gl_opendir;
	found->gl_readdir = before.gl_readdir;
	found->gl_closedir = before.gl_closedir;
	found->gl_lstat = before.gl_lstat;
	found->gl_stat = before.gl_stat;
	found->gl_flags &= ~GLOB_ALTDIRFUNC;
	return result;
}
/* The same structures by other names. */
int glob64(const char *pattern, int flags, int (*failed)(const char *, int), glob64_t *found)
{
	return glob(pattern, flags, failed, (glob_t *)(void *)found);
}

/* Whole trees, by functions of libc's own: nobody sees what they look at. */
#define UNSEEN(type, name, parameters, arguments)   \
	type name parameters                        \
	{                                           \
		type result = NEXT(name) arguments; \
                                                    \
		report_unseen(SYS_getdents64);      \
		return result;                      \
	}
UNSEEN(int, ftw, (const char *path, __ftw_func_t look, int fds), (path, look, fds))
UNSEEN(int, ftw64, (const char *path, __ftw64_func_t look, int fds), (path, look, fds))
UNSEEN(int, nftw, (const char *path, __nftw_func_t look, int fds, int flags),
       (path, look, fds, flags))
UNSEEN(int, nftw64, (const char *path, __nftw64_func_t look, int fds, int flags),
       (path, look, fds, flags))
UNSEEN(FTSENT *, fts_read, (FTS * tree), (tree))
UNSEEN(FTSENT *, fts_children, (FTS * tree, int what), (tree, what))
UNSEEN(FTSENT64 *, fts64_read, (FTS64 * tree), (tree))
UNSEEN(FTSENT64 *, fts64_children, (FTS64 * tree, int what), (tree, what))
UNSEEN(int, wordexp, (const char *words, wordexp_t *into, int flags), (words, into, flags))

/* ---- where relative paths start ---- */

int chdir(const char *path)
{
	int result = NEXT(chdir)(path);
	struct lookup lookup = {
		.kind = EVENT_MOVED, .nr = SYS_chdir, .dirfd = AT_FDCWD, .path = path};

	if (result == 0 && role == ROLE_SERVER) {
		change_slot(SLOT_WORKING_DIRECTORY);
		report_lookup(&lookup, 0);
	}
	return result;
}

int fchdir(int fd)
{
	int result = NEXT(fchdir)(fd);

	if (result == 0 && role == ROLE_SERVER) {
		change_slot(SLOT_WORKING_DIRECTORY);
		report_descriptor(EVENT_MOVED, SYS_fchdir, 0, -1);
	}
	return result;
}

/* Paths mean something else now, maybe for one thread alone, which the watcher does not tell from
 * the others.
 */
#define ELSEWHERE(name, parameters, arguments, hidden)      \
	int name parameters                                 \
	{                                                   \
		int result = NEXT(name) arguments;          \
                                                            \
		if (result == 0 && role == ROLE_SERVER) {   \
			change_slot(SLOT_EVERYTHING);       \
			if (hidden)                         \
				report_hidden(SYS_unshare); \
		}                                           \
		return result;                              \
	}
ELSEWHERE(chroot, (const char *path), (path), false)
ELSEWHERE(setns, (int fd, int kind), (fd, kind), true)
ELSEWHERE(unshare, (int flags), (flags),
	  (flags & (CLONE_FS | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET)) != 0)
