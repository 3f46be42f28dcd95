/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR GPL-2.0
 *
 * The processes of MariaDB and MySQL, for the kernel's witness and the preloaded one. The number
 * and the names are those of mod.rs.
 */
#ifndef NICACHE_MYSQL_PROCESSES_H
#define NICACHE_MYSQL_PROCESSES_H

#define MYSQL_NUMBER 1
#define MYSQL_NAMES(NAME) NAME("mariadbd") NAME("mysqld")
/* 1: each connection has a process of its own. */
#define MYSQL_HAS_PROCESS_EACH 0

#endif
