/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR GPL-2.0
 *
 * What kernel and user space agree on. The Rust side is truth/coherence/src/{source,table}.rs for
 * the table and truth/watch/src/witnesses/event.rs for the events; tests compare the two by
 * changing real files.
 */
#ifndef NICACHE_SHARED_H
#define NICACHE_SHARED_H

#define CONTROL_BYTES 4096
#define SLOT_BITS 20
#define SOURCE_SLOTS (1 << SLOT_BITS)
#define SLOT_EVERYTHING 0
#define SLOT_DYNAMIC 1
#define SLOT_DATABASES 2
#define SLOT_WORKING_DIRECTORY 3
#define SLOT_ACCESS_LISTS 4
#define SLOT_MOUNTS 5
/* Of database servers, by their first processes. */
#define SLOT_FIRST_DATABASE 6
#define DATABASE_SLOTS 64
#define SLOTS_RESERVED (SLOT_FIRST_DATABASE + DATABASE_SLOTS)
#define WATCHED (1ULL << 63)
#define TRACKED (1ULL << 62)
#define STAMP_MASK (TRACKED - 1)

/* u64 words of the control page, one per 64-byte line. */
#define CONTROL_EPOCH 0
#define CONTROL_CLOCK 8
#define CONTROL_LOST 16
#define CONTROL_SERVER_NETNS 32
#define CONTROL_SERVICE_PORTS 40 /* up to four, 16 bits each */
/* bit n: a process of a database server may have number n modulo 64 */
#define CONTROL_DATABASES 48
#define CONTROL_STRICT_SQL 56    /* 1: a SELECT may change something, by a function that it calls */
#define CONTROL_DEFINITIONS_TOLD 64  /* statements that may have made such a function */
#define CONTROL_DEFINITIONS_KNOWN 72 /* how many of them are in CONTROL_STRICT_SQL */
/* bit n: a program outside the server's network that is the server's may have number n modulo 64 */
#define CONTROL_MEMBERS 80
/* witnesses that are stopped now (gaps.h); what changed up to this clock may be unseen; and how
 * many gaps there were: three words of one line
 */
#define CONTROL_GAPS 88
#define CONTROL_GAPS_STAMP 89
#define CONTROL_GAPS_BEGUN 90
/* when a TCP socket last began to listen (CLOCK_MONOTONIC); 0, LISTENED_UNTOLD: nobody tells */
#define CONTROL_LISTENED_NS 104
#define LISTENED_UNTOLD ~0ULL

/* By what a program is a member (members.h). */
#define MEMBER_COMMAND 1
#define MEMBER_UNIT 2

/* Beside the number of a kind of database server: the process may be changing something. */
#define DATABASE_AT_WORK 256

/* Whose writing functions are seen. */
#define WRITES_EXT4 1
#define WRITES_XFS 2
#define WRITES_BTRFS 4
#define WRITES_TMPFS 8
#define WRITES_OVERLAY 16
#define WRITES_FUSE 32
#define WRITES_NFS 64

#define RING_BYTES (8 << 20)
#define PATH_BYTES 256

/* What an event is about. */
#define EVENT_LOOKUP 1   /* a path was looked up: open, stat, access, readlink, ... */
#define EVENT_READDIR 2  /* a directory was listed; inode set */
/* ret bytes of a file were sent; dirfd is the file's descriptor, inode set */
#define EVENT_SENDFILE 3
#define EVENT_HIDDEN 4   /* the server can now look things up where nobody sees it */
/* the server changed something; inode set if it is the content of a file */
#define EVENT_WROTE 5
#define EVENT_REMOVED 6  /* the server removed a name; path as of a look-up */
/* a process of the server has another working directory; path as of a look-up, none if unknown */
#define EVENT_MOVED 8
/* the server sent to a peer: dev = address family, dir_dev = local port, dir_ino = inode of the
 * socket, ino = see below
 */
#define EVENT_SENT 7

/* Of a connection of a database server: ino = inode of its socket there, dev = kind of server,
 * open_flags = the server's first process if it has one for each connection
 */
/* bytes in the place of the path; dir_dev = process of the client, 0 if unknown */
#define EVENT_SQL_RECEIVED 9
#define EVENT_SQL_SENT 10    /* the first bytes of a reply */
#define EVENT_SQL_IDLE 11    /* what it received before, and may have changed something, is done */
#define EVENT_SQL_CLOSED 12
#define EVENT_DATABASE_GONE 13 /* ret = the process; dev = the server's first, if it crashed */
#define EVENT_DATABASE_STARTED 14 /* the same; dev = kind of server */

/* Of a process of the server that takes requests: ino = inode of the connection's socket, dev = one
 * of REQUEST_*
 */
#define EVENT_REQUEST 15
#define REQUEST_CONNECTION 1 /* it has another connection than before */
/* it has read ret bytes of a FastCGI connection; bytes in the place of the path */
#define REQUEST_FASTCGI 2
/* it has read from a client of the web server; dir_ino = address << 16 | port, 0 if of no other
 * machine
 */
#define REQUEST_HTTP 3
#define REQUEST_GONE 4       /* it has ended */
/* it has started the process ino, at the behest of the process dir_ino, which takes requests (0: of
 * none)
 */
#define REQUEST_STARTED 5

/* The program does what is not seen (io_uring, 32-bit calls), and so may do what it likes until it
 * ends; dev = nobody is answered by it. Each one that does is told.
 */
#define EVENT_HIDES 16

/* event.flags */
#define FLAG_INODE 1      /* dev, ino, mode are those of the opened file */
#define FLAG_DIRECTORY 2  /* dir_dev, dir_ino are those of dirfd */
#define FLAG_INCOMPLETE 4 /* the path is longer than PATH_BYTES - 1, or could not be read */
#define FLAG_NOFOLLOW 8   /* a symbolic link at the end of the path is not followed */
#define FLAG_CERTAIN 32   /* received bytes that are certain to change nothing */
/* the process has threads, or several connections at once: it is no longer followed */
#define FLAG_CONCURRENT 64
#define FLAG_REQUEST_END 128 /* what was sent ends a FastCGI request */
#define FLAG_OWN_ROOT 16  /* openat2 with RESOLVE_IN_ROOT or RESOLVE_BENEATH */
#define FLAG_OVERLAY 512 /* the opened file is on an overlay */
/* The thread has root, working directory and descriptors in common with the first of its process,
 * the server's as well.
 */
#define FLAG_OF_PROCESS 256
#define FLAG_NETWORK 1024 /* received from a client of a network: who that is is not known */

struct event_head {
	__u64 time_ns; /* CLOCK_MONOTONIC, after the look-up */
	__u64 clock;   /* the table's, after the look-up */
	__s64 ret;
	/* of EVENT_SENT: process of the peer (AF_UNIX), or address << 16 | port (AF_INET) */
	__u64 ino;
	__u64 dir_ino;
	/* bytes of the opened file */
	__u64 size;
	/* its change time, since 1970, with CHANGED_* of files.h; 0 if this kernel does not tell */
	__u64 changed_ns;
	__u32 dev;     /* kernel encoding: major << 20 | minor */
	__u32 dir_dev;
	__u32 tgid;
	__u32 tid;
	__s32 dirfd;
	__u32 nr;      /* x86-64 number of the system call */
	__u16 kind;
	__u16 flags;
	__u16 mode;
	__u16 path_len; /* without the final 0 */
	__u32 open_flags;
	__u32 reserved;
	__u32 uid;     /* owner of the opened file */
	__u32 gid;
};

struct lookup_event {
	struct event_head head;
	char path[PATH_BYTES];
};

#endif
