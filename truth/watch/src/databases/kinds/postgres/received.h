/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR GPL-2.0
 *
 * What the kernel's witness makes of what PostgreSQL receives. Included by ebpf/sql.h.
 */
#ifndef NICACHE_POSTGRES_RECEIVED_H
#define NICACHE_POSTGRES_RECEIVED_H

/* 1: of a connection whose beginning nobody saw, the first bytes seen may lack their header. */
#define POSTGRES_READS_HEADERS 0
/* The client has ended: nothing but a letter and its own length. */
#define POSTGRES_END 'X'
#define POSTGRES_END_BYTES 5

/* Is it how a connection of PostgreSQL begins: wishes for encryption (1234, 5679 and 5680), then
 * protocol 3 with user and database? Something may run by itself at that, as any function may that
 * there is.
 */
static __always_inline bool is_postgres_beginning(const __u8 *head, __u32 len)
{
	__u32 size = (__u32)head[0] << 24 | (__u32)head[1] << 16 | (__u32)head[2] << 8 | head[3];
	__u32 code = (__u32)head[4] << 24 | (__u32)head[5] << 16 | (__u32)head[6] << 8 | head[7];

	if (size != len || may_select_write())
		return false;
	return code >> 16 == 3 || code == (1234 << 16 | 5679) || code == (1234 << 16 | 5680);
}

/* One message of PostgreSQL: a question by itself, or Parse, Bind, Describe, Execute and Sync of
 * one.
 */
#define POSTGRES_MESSAGES_MAX 8

__noinline int is_postgres_question(struct sql_connection *connection, __u32 len)
{
	__u32 zero = 0, at = 0, parsed = 0, size, i;
	struct sql_text *text = bpf_map_lookup_elem(&sql_texts, &zero);
	__u8 head[8];

	if (!text || !connection || len < 5 || len > SQL_TEXT_BYTES)
		return 0;
	/* Every other message begins with a letter. */
	if (!text->bytes[0]) {
		if (len < 8 || !is_postgres_beginning(text->bytes, len))
			return 0;
		connection->wrote = 0;
		return 1;
	}
	for (i = 0; i < POSTGRES_MESSAGES_MAX; i++) {
		if (at == len)
			return 1;
		if (at + 5 > len || at >= SQL_TEXT_BYTES)
			return 0;
		bpf_probe_read_kernel(head, 7, text->bytes + at);
		size = (__u32)head[1] << 24 | (__u32)head[2] << 16 | (__u32)head[3] << 8 | head[4];
		if (size < 4 || size > len || at + 1 + size > len)
			return 0;
		switch (head[0]) {
		case 'Q':
			if (classify(at + 5, at + size, connection->wrote) != SQL_QUESTION)
				return 0;
			break;
		case 'P':
			/* The unnamed statement. */
			if (head[5] || classify(at + 6, at + 1 + size, 1) != SQL_QUESTION)
				return 0;
			parsed = 1;
			break;
		case 'B':
			/* The unnamed portal and statement: others may be of an earlier Parse,
			 * which was none of these.
			 */
			if (!parsed || head[5] || head[6])
				return 0;
			break;
		case 'E':
			if (!parsed || head[5])
				return 0;
			break;
		case 'D':
		case 'H':
		case 'S':
		case 'X':
		case 'C':
		case 'p': /* who the client is */
			break;
		default:
			return 0;
		}
		at += 1 + size;
	}
	return at == len;
}

/* `len` bytes in sql_texts. */
static __always_inline int postgres_received(struct sql_connection *connection,
					     struct sql_text *text, __u64 ino, __u32 len)
{
	if (!is_postgres_question(connection, len))
		return SQL_ANYTHING;
	return len == POSTGRES_END_BYTES && text->bytes[0] == POSTGRES_END ? SQL_LAST
									   : SQL_QUESTION;
}

/* What it sends is of no use to the kernel. */
static __always_inline void postgres_sent(struct sql_connection *connection,
					  struct transfer *transfer)
{
}

#endif
