/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Libraries that are loaded. With RTLD_DEEPBIND (PHP loads its extensions so) a library would bind
 * to libc before this library: the flag is taken away. The real functions look at who called them,
 * so they are jumped to (a call in last place, which the compiler makes a jump), and nothing
 * may come after.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "next.h"
#include "report.h"

/* The loader opens the file by itself. A name without a slash is looked for in the system's
 * folders.
 */
static void report_library(const char *path)
{
	struct lookup lookup = {.kind = EVENT_LOOKUP,
				.nr = SYS_openat,
				.dirfd = AT_FDCWD,
				.path = path,
				.opened = true};
	int before = errno;
	long fd;

	if (role != ROLE_SERVER || !path || !strchr(path, '/'))
		return;
	fd = raw(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0) {
		errno = -fd;
		report_lookup(&lookup, -1);
	} else {
		report_lookup(&lookup, fd);
		raw(SYS_close, fd, 0, 0, 0);
	}
	errno = before;
}

void *dlopen(const char *path, int flags)
{
	report_library(path);
	return NEXT(dlopen)(path, role == ROLE_NONE ? flags : flags & ~RTLD_DEEPBIND);
}

/* Another namespace has a libc of its own, which nobody follows. */
void *dlmopen(Lmid_t space, const char *path, int flags)
{
	report_library(path);
	if (space != LM_ID_BASE)
		report_hidden(SYS_openat);
	return NEXT(dlmopen)(space, path, role == ROLE_NONE ? flags : flags & ~RTLD_DEEPBIND);
}
