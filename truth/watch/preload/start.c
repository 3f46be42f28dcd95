/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * nicache's second witness: a library that is loaded before libc into the server and the programs
 * beside it (LD_PRELOAD), and tells the watcher what they look at and every card what they change,
 * without any privilege.
 *
 * Read first: memory.h (what is shared), report.h (what is told), docs/dynamic.md "Two watchers"
 * (what it cannot promise).
 *
 *   memory.c       the revision table and the ring, shared with the watcher
 *   report.c       events and stamps
 *   opening.c lookups.c directories.c names.c writing.c mapping.c streams.c   files
 *   resolver.c     names of hosts and users
 *   processes.c programs.c   processes that begin and end, and programs that cannot be followed
 *   loading.c      dlopen
 *   calls.c        syscall
 *   next.c         the functions behind all these
 *
 * Everywhere: no lock, no allocation, errno as the real call leaves it. A function does what it
 * does before the real call, and after it.
 */
#include "memory.h"
#include "next.h"
#include "programs.h"

__attribute__((constructor(101))) static void start(void)
{
	find_all_next();
	map_memory();
	remember_variables();
	start_process();
}

__attribute__((destructor(101))) static void finish(void)
{
	end_process();
}
