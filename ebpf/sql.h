/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR GPL-2.0
 *
 * What database servers receive. Included by witness.bpf.c.
 *
 * Read first: truth/watch/src/statements/databases/mod.rs (what is made of it),
 * truth/sql/src/coarse.rs (which statements are certain to change nothing). What differs from one
 * kind of server to another is in the folders of truth/watch/src/databases/kinds; the build script
 * of truth/watch writes databases/processes.h and databases/received.h, which include these and
 * name them all: DATABASES.
 *
 * A statement changes something between the moment that the server receives it and the moment that
 * it asks its connection for more. Both moments stamp the slot of the server (database_slot): the
 * first before anything is visible to anybody, the second so a reply that was made in between from
 * the state before is not kept. Statements that are certain to be mere questions stamp nothing.
 * Which tables are meant is for the watcher to find out, who gets the bytes.
 */
#ifndef NICACHE_SQL_H
#define NICACHE_SQL_H

#include "databases/processes.h"

/* A statement as far as the kernel looks at it; a longer one is not certain. */
#define SQL_TEXT_BYTES 4096
/* The first word is behind at most so many bytes of blanks and comments. */
#define SQL_BLANKS_MAX 256
/* A longer one that changes rows is not looked through. */
#define SQL_ROWS_BYTES 1024
#define SQL_SENT_BYTES 64

struct sql_connection {
	__u32 header;    /* was received by itself: the next bytes belong to it */
	__u8 has_header; /* and the watcher has not been told of it */
	__u8 began;     /* a command has come; before, it is about who the client is */
	__u8 busy;      /* received what may change something, and has not asked for more since */
	__u8 wrote;     /* ever did: the end of a transaction may make it visible */
	/* the next reply names a prepared statement that is certain to change nothing */
	__u8 preparing;
	__u8 replied;   /* sent something since it received something */
	__u8 untold;    /* there was no room to tell something of it */
	__u8 changing;  /* that is under way and may change something */
	__u32 receiver; /* the thread that received last */
	/* Whose end of it this is: a process, as long as it is the same program, and which kind of
	 * server that is.
	 */
	__u32 tgid;
	__u32 kind;
	__u64 program;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u32);
} databases SEC(".maps");

/* A connection that is forgotten while it is busy never tells that it is done: the watcher goes on
 * to take it for busy.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct sql_connection);
} sql_connections SEC(".maps");

struct sql_statement {
	__u64 connection;
	__u64 id;
};

/* Prepared statements that are certain to change nothing. What is forgotten is not certain. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct sql_statement);
	__type(value, __u8);
} sql_questions SEC(".maps");

/* Where a look at a text has got to. In a map, because what is on the stack would have the verifier
 * follow every byte.
 */
struct sql_scan {
	__u32 at;
	__u32 end;
	__u32 state;
	__u64 words[2];
};

struct sql_text {
	__u8 bytes[SQL_TEXT_BYTES + 16];
	struct sql_scan scan;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sql_text);
} sql_texts SEC(".maps");

/* All others are not. */
static __always_inline bool may_be_database(__u32 tgid)
{
	__u64 *present = control_word(CONTROL_DATABASES);

	return present && *present >> (tgid & 63) & 1;
}

static __always_inline __u32 database_kind(__u32 tgid)
{
	__u32 *kind;

	if (!may_be_database(tgid))
		return 0;
	kind = bpf_map_lookup_elem(&databases, &tgid);
	return kind ? *kind & ~DATABASE_AT_WORK : 0;
}

/* The same for the calling process, which has this connection, if it is known. */
static __always_inline __u32 kind_by_connection(struct task_struct *task,
						struct sql_connection *connection)
{
	if (connection && connection->tgid == (__u32)task->tgid &&
	    connection->program == task->self_exec_id)
		return connection->kind;
	return database_kind(task->tgid);
}

static __always_inline void note_owner(struct sql_connection *connection, __u32 kind)
{
	struct task_struct *task = bpf_get_current_task_btf();

	connection->tgid = task->tgid;
	connection->program = task->self_exec_id;
	connection->kind = kind;
}

/* Has each connection to a server of this kind a process of its own? */
static __always_inline bool has_process_each(__u32 kind)
{
#define HAS_PROCESS_EACH(name, NAME) || (kind == NAME##_NUMBER && NAME##_HAS_PROCESS_EACH)
	return false DATABASES(HAS_PROCESS_EACH);
}

/* The process serves one connection, and has received on it what may change something, or is done
 * with that. One whose end nobody sees, because the connection is forgotten, stays at work.
 */
static __always_inline void note_work(__u32 kind, bool at_work)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	__u32 *known = has_process_each(kind) ? bpf_map_lookup_elem(&databases, &tgid) : 0;

	if (known)
		*known = at_work ? kind | DATABASE_AT_WORK : kind;
}

/* May the end of the process undo something that it has begun, or be the end of it? */
static __always_inline bool is_at_work(__u32 tgid)
{
	__u32 *known = bpf_map_lookup_elem(&databases, &tgid);

	return known && !has_process_each(*known);
}

/* ---- is it certain to change nothing? ---- */

#define SCAN_COMMENT 1
#define SCAN_WRITES 2
#define SCAN_SEVERAL 4

/* What a statement may do. */
#define SQL_ANYTHING 0
#define SQL_QUESTION 1 /* change nothing */
#define SQL_ROWS 2     /* change rows, but bring in no function that a question could call */
/* What else may be received. */
#define SQL_HEADER 3   /* only the header of it: nothing is begun before the rest has come */
#define SQL_LAST 4     /* a question, and the client has ended the connection with it */
#define SQL_END 5      /* the client has ended the connection */

/* One byte of the blanks and comments in front of a statement. Stops at the first other byte. */
static long skip_blank(__u32 index, void *unused)
{
	__u32 zero = 0, at;
	struct sql_text *text = bpf_map_lookup_elem(&sql_texts, &zero);
	struct sql_scan *scan;
	__u8 byte, next, third;

	if (!text)
		return 1;
	scan = &text->scan;
	at = scan->at;
	if (at >= SQL_TEXT_BYTES || at + 2 >= scan->end)
		return 1;
	byte = text->bytes[at];
	next = text->bytes[at + 1];
	third = text->bytes[at + 2];
	if (scan->state & SCAN_COMMENT) {
		if (byte == '/' && next == '*')
			/* PostgreSQL nests comments, MySQL does not: as the state says */
			return 1;
		if (byte == '*' && next == '/') {
			scan->state &= ~SCAN_COMMENT;
			scan->at++;
		}
	} else if (byte == '/' && next == '*') {
		if (third == '!' || third == 'M')
			return 1; /* not a comment to every server, and not a word */
		scan->state |= SCAN_COMMENT;
		scan->at++;
	} else if (byte != ' ' && byte != '\t' && byte != '\r' && byte != '\n' && byte != '(') {
		return 1;
	}
	scan->at++;
	return 0;
}

#define WORD4(a, b, c, d) ((__u64)(d) << 24 | (__u64)(c) << 16 | (__u64)(b) << 8 | (a))
#define EACH_BYTE(byte) ((byte) * 0x0101010101010101ULL)
#define LOWER_CASE EACH_BYTE(0x20)
#define SCAN_BYTES 8

/* Some bytes of the rest: is there a second statement, or the name of something to write to, or of
 * what changes a sequence? What lies behind the end is of an earlier text.
 */
static long scan_bytes(__u32 index, void *unused)
{
	__u32 zero = 0, at, left;
	struct sql_text *text = bpf_map_lookup_elem(&sql_texts, &zero);
	struct sql_scan *scan;
	__u64 words[2], others;
	__u32 word;

	if (!text)
		return 1;
	scan = &text->scan;
	at = scan->at;
	if (at >= SQL_TEXT_BYTES || at >= scan->end)
		return 1;
	left = scan->end - at;
	words[0] = *(__u64 *)(text->bytes + at);
	words[1] = *(__u64 *)(text->bytes + at + 8);
	if (left < 8) {
		words[0] &= (1ULL << (8 * left)) - 1;
		words[1] = 0;
	} else if (left < 16) {
		words[1] &= (1ULL << (8 * (left - 8))) - 1;
	}
	/* A byte that is 0 after this is a semicolon. */
	others = words[0] ^ EACH_BYTE(';');
	if ((others - EACH_BYTE(1)) & ~others & EACH_BYTE(0x80)) {
		scan->state |= SCAN_SEVERAL;
		return 1;
	}
	scan->words[0] = words[0] | LOWER_CASE;
	scan->words[1] = words[1] | LOWER_CASE;
	/* INTO; nextval, setval; NEXT VALUE. */
#pragma unroll
	for (int i = 0; i < SCAN_BYTES; i++) {
		word = *(__u32 *)((__u8 *)scan->words + i);
		if (word == WORD4('i', 'n', 't', 'o') || word == WORD4('t', 'v', 'a', 'l') ||
		    word == WORD4('n', 'e', 'x', 't'))
			scan->state |= SCAN_WRITES;
	}
	scan->at = at + SCAN_BYTES;
	return 0;
}

#define BYTE(words, at) ((__u8)((words)[(at) / 8] >> (8 * ((at) % 8))))

static __always_inline bool ends_word(__u8 byte)
{
	return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n' || byte == '*' ||
	       byte == '(' || byte == '@' || byte == '/' || byte == '\'' || byte == 0;
}

/* Is there a function that changes something, or may there be one that the watcher has not been
 * told of yet? It first says what there is, and then up to when.
 */
static __always_inline bool may_select_write(void)
{
	__u64 *strict = control_word(CONTROL_STRICT_SQL),
	      *told = control_word(CONTROL_DEFINITIONS_TOLD);
	__u64 *known = control_word(CONTROL_DEFINITIONS_KNOWN);

	if (!strict || !told || !known || *(volatile __u64 *)known != *(volatile __u64 *)told)
		return true;
	return *(volatile __u64 *)strict;
}

/* A statement that may have made such a function has been told, or there was no room to. */
static __always_inline void count_definition(void)
{
	__u64 *told = control_word(CONTROL_DEFINITIONS_TOLD);

	if (told)
		__sync_fetch_and_add(told, 1);
}

/* What the statement at text[from..end) of the scratch text may do. Not static, and so the next
 * ones: the verifier looks at such functions once, and not at each call.
 */
__noinline int classify(__u32 from, __u32 end, __u32 wrote)
{
	__u32 zero = 0, at, left;
	struct sql_text *text = bpf_map_lookup_elem(&sql_texts, &zero);
	struct sql_scan *scan;
	__u64 words[2], word;
	int kind = SQL_QUESTION;

	if (!text || end > SQL_TEXT_BYTES || from >= end)
		return SQL_ANYTHING;
	scan = &text->scan;
	scan->at = from;
	scan->end = end;
	scan->state = 0;
	bpf_loop(SQL_BLANKS_MAX, skip_blank, 0, 0);
	at = scan->at;
	if (scan->state & SCAN_COMMENT || at >= SQL_TEXT_BYTES)
		return SQL_ANYTHING;
	if (at >= end)
		return SQL_ANYTHING;
	/* What lies behind the end is of an earlier text, and must not complete a word. A branch
	 * for each byte would have old verifiers go through every combination.
	 */
	bpf_probe_read_kernel(words, sizeof(words), text->bytes + at);
	left = end - at;
	if (left < 8) {
		words[0] &= (1ULL << (8 * left)) - 1;
		words[1] = 0;
	} else if (left < 16) {
		words[1] &= (1ULL << (8 * (left - 8))) - 1;
	}
	word = words[0] | 0x2020202020202020;
	if ((word & 0xffffffffffff) ==
	    (WORD4('s', 'e', 'l', 'e') | (__u64)'c' << 32 | (__u64)'t' << 40)) {
		if (!ends_word(BYTE(words, 6)) || may_select_write())
			return SQL_ANYTHING;
	} else if ((word & 0xffffffff) == WORD4('s', 'h', 'o', 'w')) {
		if (!ends_word(BYTE(words, 4)))
			return SQL_ANYTHING;
	} else if (word == (WORD4('d', 'e', 's', 'c') | WORD4('r', 'i', 'b', 'e') << 32)) {
		if (!ends_word(BYTE(words, 8)))
			return SQL_ANYTHING;
	} else if (word == (WORD4('s', 'e', 't', ' ') | WORD4('n', 'a', 'm', 'e') << 32)) {
		/* It may set more than that, and so end a transaction. */
		if (wrote || (BYTE(words, 8) | 0x20) != 's' || !ends_word(BYTE(words, 9)))
			return SQL_ANYTHING;
	} else if (word == (WORD4('s', 'e', 't', ' ') | WORD4('s', 'e', 's', 's') << 32)) {
		/* It may begin or end a transaction. */
		if (wrote)
			return SQL_ANYTHING;
	} else if (word == (WORD4('r', 'o', 'l', 'l') | WORD4('b', 'a', 'c', 'k') << 32)) {
		if (!ends_word(BYTE(words, 8)) && BYTE(words, 8))
			return SQL_ANYTHING;
	} else if ((word & 0xffffffffff) == (WORD4('b', 'e', 'g', 'i') | (__u64)'n' << 32)) {
		if (wrote || !ends_word(BYTE(words, 5)))
			return SQL_ANYTHING;
	} else if ((word & 0xffffffffff) == (WORD4('s', 't', 'a', 'r') | (__u64)'t' << 32)) {
		if (wrote || !ends_word(BYTE(words, 5)))
			return SQL_ANYTHING;
	} else if ((word & 0xffffffffffff) ==
		   (WORD4('c', 'o', 'm', 'm') | (__u64)'i' << 32 | (__u64)'t' << 40)) {
		if (wrote || !ends_word(BYTE(words, 6)))
			return SQL_ANYTHING;
	} else if ((word & 0xffffffffffff) ==
			   (WORD4('i', 'n', 's', 'e') | (__u64)'r' << 32 | (__u64)'t' << 40) ||
		   (word & 0xffffffffffff) ==
			   (WORD4('u', 'p', 'd', 'a') | (__u64)'t' << 32 | (__u64)'e' << 40) ||
		   (word & 0xffffffffffff) ==
			   (WORD4('d', 'e', 'l', 'e') | (__u64)'t' << 32 | (__u64)'e' << 40)) {
		kind = SQL_ROWS;
	} else {
		return SQL_ANYTHING;
	}
	/* Not worth the time to read it all. */
	if (kind == SQL_ROWS && end - from > SQL_ROWS_BYTES)
		return SQL_ANYTHING;
	bpf_loop(SQL_TEXT_BYTES / SCAN_BYTES, scan_bytes, 0, 0);
	if (scan->state & SCAN_SEVERAL || (kind == SQL_QUESTION && scan->state & SCAN_WRITES))
		return SQL_ANYTHING;
	return kind;
}

/* ---- what it receives and sends ---- */

#include "databases/received.h"

/* What the kind makes of `len` bytes in sql_texts: SQL_*. */
static __always_inline int kind_received(__u32 kind, struct sql_connection *connection,
					 struct sql_text *text, __u64 ino, __u32 len)
{
#define RECEIVED(name, NAME)                                                                       \
	case NAME##_NUMBER:                                                                        \
		return name##_received(connection, text, ino, len);
	switch (kind) {
		DATABASES(RECEIVED)
	}
	return SQL_ANYTHING;
}

/* The kind looks at the first bytes that are sent after something was received. */
static __always_inline void kind_sent(__u32 kind, struct sql_connection *connection,
				      struct transfer *transfer)
{
#define SENT(name, NAME)                                                                           \
	case NAME##_NUMBER:                                                                        \
		return name##_sent(connection, transfer);
	switch (kind) {
		DATABASES(SENT)
	}
}

/* May the first bytes that are seen of a connection lack their header? */
static __always_inline bool reads_headers(__u32 kind)
{
#define READS_HEADERS(name, NAME) || (kind == NAME##_NUMBER && NAME##_READS_HEADERS)
	return false DATABASES(READS_HEADERS);
}

__noinline int report_sql(__u64 kind, __u64 ino, __u32 database, __u32 peer, __u32 flags)
{
	struct event_head *head = bpf_ringbuf_reserve(&lookups, sizeof(*head), 0);

	if (!head) {
		count_lost();
		return 0;
	}
	fill_head(head, kind, 0, 0, -1);
	head->ino = ino;
	head->dev = database;
	head->dir_dev = peer;
	head->flags = flags;
	bpf_ringbuf_submit(head, BPF_RB_NO_WAKEUP);
	return 0;
}

/* The process of a connection may be gone when the watcher looks; the one that has started it
 * stays.
 */
static __always_inline __u32 server_of(__u32 kind)
{
	struct task_struct *task = bpf_get_current_task_btf();

	return has_process_each(kind) ? FIELD(struct task_struct, task->real_parent, tgid) : 0;
}

/* What a statement stamps that the calling process receives: what its server has. Pages that ask
 * any database depend on SLOT_DATABASES, too; what is not known to belong to one server, because
 * that has ended before its processes, concerns all of them.
 */
static __always_inline __u32 database_slot(__u32 kind)
{
	__u32 first = server_of(kind);

	if (first && database_kind(first) != kind)
		return SLOT_DATABASES;
	if (!first)
		first = bpf_get_current_pid_tgid() >> 32;
	return SLOT_FIRST_DATABASE + first % DATABASE_SLOTS;
}

/* Can a client of a database be at the other end? The kernel itself (netlink) is not one. */
static __always_inline bool is_client_family(struct transfer *transfer)
{
	return transfer->family == AF_UNIX || is_inet(transfer);
}

/* What was under way is done. If the watcher does not know what that was, it may concern every
 * page.
 */
static __always_inline void end_work(struct sql_connection *connection, __u64 ino, __u32 kind)
{
	connection->busy = 0;
	note_work(kind, false);
	change_slot(connection->changing ? SLOT_EVERYTHING : database_slot(kind));
	connection->changing = 0;
	report_sql(EVENT_SQL_IDLE, ino, kind, 0, 0);
}

/* A client whose connection is new, or of which nobody saw what it did before. A function, so those
 * that observe need no room for it.
 */
__noinline int note_client(__u64 ino, __u32 kind, __u32 wrote)
{
	struct sql_connection fresh = {.wrote = wrote};

	note_owner(&fresh, kind);
	return bpf_map_update_elem(&sql_connections, &ino, &fresh, BPF_ANY);
}

/* Receiving, or asking for more in vain. `connection`: what is known of it, if anything is. */
__noinline int observe_received(struct transfer *transfer, struct sql_connection *connection,
				__u32 kind)
{
	__u64 ino;
	__u32 zero = 0, flags = 0;
	__u64 nr, len;
	__s64 ret;
	struct sql_text *text = bpf_map_lookup_elem(&sql_texts, &zero);
	const void *bytes;
	struct bytes_report report = {
		.kind = EVENT_SQL_RECEIVED, .dev = kind, .parent = server_of(kind)};
	int may = SQL_ANYTHING, lost;
	bool ends = false;

	if (!transfer)
		return 0;
	nr = transfer->nr;
	ret = transfer->ret;
	bytes = (const void *)transfer->bytes;
	ino = transfer->ino;
	if (!text || !is_client_family(transfer))
		return 0;
	if (nr == NR_recvfrom && transfer->flags & MSG_PEEK)
		return 0;
	if (connection && connection->busy)
		end_work(connection, ino, kind);
	if (ret <= 0) {
		if (ret == 0 && connection) {
			bpf_map_delete_elem(&sql_connections, &ino);
			report_sql(EVENT_SQL_CLOSED, ino, kind, 0, 0);
		}
		return 0;
	}
	if (!connection) {
		/* Nobody saw what it did before: it may have begun a transaction that is to be
		 * committed; and a header may be missing.
		 */
		if (reads_headers(kind))
			flags |= FLAG_INCOMPLETE;
		note_client(ino, kind, 1);
		connection = bpf_map_lookup_elem(&sql_connections, &ino);
	}
	if (is_inet(transfer))
		flags |= FLAG_NETWORK;
	len = ret;
	if ((nr != NR_recvfrom && nr != NR_read) || len > 32768 ||
	    (connection && connection->untold))
		flags |= FLAG_INCOMPLETE;
	if (connection && !(flags & FLAG_INCOMPLETE) && len <= SQL_TEXT_BYTES) {
		if (bpf_probe_read_user(text->bytes, len, bytes))
			len = 0;
		bytes = text->bytes;
		report.copied = true;
		may = kind_received(kind, connection, text, ino, len);
		if (may == SQL_HEADER) {
			connection->receiver = (__u32)bpf_get_current_pid_tgid();
			connection->replied = 0;
			return 0;
		}
		if (may == SQL_END) {
			bpf_map_delete_elem(&sql_connections, &ino);
			return report_sql(EVENT_SQL_CLOSED, ino, kind, 0, 0);
		}
		ends = may == SQL_LAST;
		if (ends)
			may = SQL_QUESTION;
	}
	if (connection)
		connection->receiver = (__u32)bpf_get_current_pid_tgid();
	if (may != SQL_QUESTION) {
		/* Without room for the connection its end is not seen: then nothing may be kept
		 * that any database is read for.
		 */
		if (!connection)
			raise_stamp_for_good(SLOT_DATABASES);
		else
			connection->busy = connection->wrote = 1;
		note_work(kind, true);
	}
	if (connection)
		connection->replied = 0;
	report.ino = ino;
	report.dir_dev = is_inet(transfer) ? peer_port(transfer) : peer_process(transfer);
	if (connection && connection->has_header) {
		report.prefix[0] = connection->header;
		report.prefix_len = 4;
		connection->has_header = 0;
		if (flags & FLAG_INCOMPLETE) {
			/* What is known of it before what is not. */
			report.flags = FLAG_CERTAIN | (flags & FLAG_NETWORK);
			report_bytes_tiny(&report);
			report.prefix_len = 0;
		}
	}
	/* Of one that is longer than what is told nobody uses the beginning. */
	if (len > 32768)
		len = 0;
	report.bytes = bytes;
	report.len = len;
	report.flags = flags | (may == SQL_QUESTION ? FLAG_CERTAIN : 0);
	if (len <= 64)
		lost = report_bytes_tiny(&report);
	else if (len <= 512)
		lost = report_bytes_small(&report);
	else if (len <= 4096)
		lost = report_bytes_medium(&report);
	else if (len <= 8192)
		lost = report_bytes_page(&report);
	else
		lost = report_bytes_large(&report);
	if (connection) {
		connection->untold = lost;
		connection->changing = lost && may != SQL_QUESTION;
	}
	/* After the event: who finds no stamp finds the event. The other way round, somebody who
	 * looked between the two would vouch for a page from after the stamp on, and not know of
	 * the statement.
	 */
	if (may != SQL_QUESTION)
		change_slot(database_slot(kind));
	if (lost && may != SQL_QUESTION)
		change_slot(SLOT_EVERYTHING);
	if (may == SQL_ANYTHING)
		count_definition();
	/* Its process receives nothing any longer, and its place is another's. */
	if (ends)
		bpf_map_delete_elem(&sql_connections, &ino);
	return 0;
}

__noinline int observe_sent(struct transfer *transfer, struct sql_connection *connection,
			    __u32 kind)
{
	__u64 ino;
	struct bytes_report report = {
		.kind = EVENT_SQL_SENT, .dev = kind, .parent = server_of(kind)};
	__u64 nr;
	__s64 ret;

	if (!transfer)
		return 0;
	nr = transfer->nr;
	ret = transfer->ret;
	ino = transfer->ino;
	if (ret <= 0 || !is_client_family(transfer))
		return 0;
	if (!connection) {
		/* The greeting. */
		note_client(ino, kind, 0);
		connection = bpf_map_lookup_elem(&sql_connections, &ino);
		if (!connection)
			return 0;
	}
	if (connection->replied)
		return 0;
	connection->replied = 1;
	if (nr != NR_sendto && nr != NR_write)
		return 0;
	kind_sent(kind, connection, transfer);
	report.ino = ino;
	report.bytes = (const void *)transfer->bytes;
	report.len = ret > 64 ? 64 : ret;
	report.ret = ret;
	connection->untold |= report_bytes_tiny(&report);
	return 0;
}

/* The server ends a connection: whoever received its last statement is done with it. Another thread
 * does so to a statement that it interrupts.
 */
__noinline int observe_shutdown(struct call *call, __u32 kind)
{
	__u64 ino;
	struct sql_connection *connection;

	ino = call ? socket_inode(file_of(bpf_get_current_task_btf(), call->args[0])) : 0;
	if (!ino)
		return 0;
	connection = bpf_map_lookup_elem(&sql_connections, &ino);
	if (!connection || connection->receiver != (__u32)bpf_get_current_pid_tgid())
		return 0;
	if (connection->busy)
		end_work(connection, ino, kind);
	bpf_map_delete_elem(&sql_connections, &ino);
	report_sql(EVENT_SQL_CLOSED, ino, kind, 0, 0);
	return 0;
}

/* A function, so the server's way needs no room for it: all functions of a program share 512
 * bytes, and on kernels before 6.8 each takes a multiple of 32.
 */
__noinline int observe_database(struct call *call, __u32 kind)
{
	struct transfer transfer = {};

	if (!call)
		return 0;
	switch (call->nr) {
	case NR_read:
	case NR_readv:
	case NR_recvfrom:
	case NR_recvmsg:
		if (!is_transfer(call, call->args[0], &transfer))
			return 0;
		return observe_received(&transfer,
					bpf_map_lookup_elem(&sql_connections, &transfer.ino), kind);
	case NR_write:
	case NR_writev:
	case NR_sendto:
	case NR_sendmsg:
		if (!is_transfer(call, call->args[0], &transfer))
			return 0;
		return observe_sent(&transfer, bpf_map_lookup_elem(&sql_connections, &transfer.ino),
				    kind);
	case NR_shutdown:
		return observe_shutdown(call, kind);
	}
	return 0;
}

/* ---- which programs are database servers ---- */

/* Eight letters of a name from there on, as they are in memory; zeros behind its end. */
#define NAME_BYTE(name, at) ((at) < sizeof(name) ? (__u64)(name)[(at) % sizeof(name)] : 0)
#define NAME_WORD(name, at)                                                                        \
	(NAME_BYTE(name, at) | NAME_BYTE(name, at + 1) << 8 | NAME_BYTE(name, at + 2) << 16 |      \
	 NAME_BYTE(name, at + 3) << 24 | NAME_BYTE(name, at + 4) << 32 |                           \
	 NAME_BYTE(name, at + 5) << 40 | NAME_BYTE(name, at + 6) << 48 |                           \
	 NAME_BYTE(name, at + 7) << 56)

static __always_inline __u32 kind_of_name(struct task_struct *task)
{
	__u64 own[2] = {};

	bpf_probe_read_kernel(own, sizeof(own), task->comm);
#define IS_CALLED(name)                                                                            \
	|| (own[0] == NAME_WORD(name, 0) && (sizeof(name) <= 8 || own[1] == NAME_WORD(name, 8)))
#define NUMBER_IF_CALLED(name, NAME)                                                               \
	if (false NAME##_NAMES(IS_CALLED))                                                         \
		return NAME##_NUMBER;
	DATABASES(NUMBER_IF_CALLED)
	return 0;
}

__noinline int report_database(__u64 kind, __u32 tgid, __u32 database)
{
	struct event_head *head = bpf_ringbuf_reserve(&lookups, sizeof(*head), 0);

	if (!head) {
		count_lost();
		return 0;
	}
	fill_head(head, kind, 0, tgid, -1);
	head->dev = database;
	bpf_ringbuf_submit(head, BPF_RB_NO_WAKEUP);
	return 0;
}

/* The first process of a database server, of which this one is a process as well. One whose first
 * process has ended is its own: that end was told before.
 */
static __always_inline __u32 first_process_of(__u32 tgid, __u32 kind)
{
	__u32 first = server_of(kind);

	return first && database_kind(first) == kind ? first : tgid;
}

/* What a 32-bit server receives is not seen: it is a stranger. And what was asked of it when that
 * was not known yet, nobody knows.
 */
static __always_inline void forget_compat_database(__u32 tgid)
{
	__u32 kind = may_be_database(tgid) ? database_kind(tgid) : 0;

	if (!kind || bpf_map_delete_elem(&databases, &tgid))
		return;
	change_slot(SLOT_DATABASES);
	/* What it does from now on nobody sees: to its pages, it is one that has crashed. */
	report_database(EVENT_DATABASE_GONE, tgid, first_process_of(tgid, kind));
}

static __always_inline void add_database(__u32 tgid, __u32 kind)
{
	__u64 *present = control_word(CONTROL_DATABASES);

	/* Without room for it, its connections go unseen: whoever talks to it talks to a program
	 * that is not watched.
	 */
	if (!bpf_map_update_elem(&databases, &tgid, &kind, BPF_ANY) && present)
		__sync_fetch_and_or(present, 1ULL << (tgid & 63));
}

#endif
