/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR GPL-2.0
 *
 * The processes of PostgreSQL, for the kernel's witness and the preloaded one. The number and the
 * names are those of mod.rs.
 */
#ifndef NICACHE_POSTGRES_PROCESSES_H
#define NICACHE_POSTGRES_PROCESSES_H

#define POSTGRES_NUMBER 2
#define POSTGRES_NAMES(NAME) NAME("postgres")
/* 1: each connection has a process of its own. */
#define POSTGRES_HAS_PROCESS_EACH 1

#endif
