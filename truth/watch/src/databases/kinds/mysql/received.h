/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR GPL-2.0
 *
 * What the kernel's witness makes of what MariaDB and MySQL receive and send. Included by
 * ebpf/sql.h.
 */
#ifndef NICACHE_MYSQL_RECEIVED_H
#define NICACHE_MYSQL_RECEIVED_H

/* 1: of a connection whose beginning nobody saw, the first bytes seen may lack their header. */
#define MYSQL_READS_HEADERS 1
#define MYSQL_QUIT 0x01

/* A packet of MySQL without its header. */
__noinline int classify_mysql(struct sql_connection *connection, __u64 ino, __u32 len)
{
	__u32 zero = 0;
	struct sql_text *text = bpf_map_lookup_elem(&sql_texts, &zero);
	struct sql_statement statement = {.connection = ino};

	if (!text || !connection || len < 1 || len > SQL_TEXT_BYTES)
		return SQL_ANYTHING;
	switch (text->bytes[0]) {
	case MYSQL_QUIT:
	case 0x02: /* INIT_DB */
	case 0x09: /* STATISTICS */
	case 0x0e: /* PING */
	case 0x19: /* STMT_CLOSE */
	case 0x1a: /* STMT_RESET */
		return SQL_QUESTION;
	case 0x03: /* QUERY */
		return classify(1, len, connection->wrote);
	case 0x16: /* STMT_PREPARE */
		connection->preparing = classify(1, len, 1) == SQL_QUESTION;
		return SQL_QUESTION;
	case 0x17: /* STMT_EXECUTE */
		if (len < 5)
			return SQL_ANYTHING;
		statement.id = text->bytes[1] | (__u32)text->bytes[2] << 8 |
			       (__u32)text->bytes[3] << 16 | (__u32)text->bytes[4] << 24;
		/* What it calls may be another function by now. */
		return bpf_map_lookup_elem(&sql_questions, &statement) && !may_select_write()
			       ? SQL_QUESTION
			       : SQL_ANYTHING;
	}
	return SQL_ANYTHING;
}

/* `len` bytes in sql_texts. The header of a packet is read by itself. */
static __always_inline int mysql_received(struct sql_connection *connection, struct sql_text *text,
					  __u64 ino, __u32 len)
{
	if (len == 4 && !connection->has_header && (text->bytes[3] == 0 || !connection->began) &&
	    (text->bytes[0] || text->bytes[1] || text->bytes[2])) {
		connection->header = text->bytes[0] | (__u32)text->bytes[1] << 8 |
				     (__u32)text->bytes[2] << 16 | (__u32)text->bytes[3] << 24;
		connection->has_header = 1;
		connection->began |= text->bytes[3] == 0;
		return SQL_HEADER;
	}
	if (connection->has_header && connection->began && connection->header == 1 && len == 1 &&
	    text->bytes[0] == MYSQL_QUIT)
		return SQL_END;
	if (connection->has_header && (connection->header & 0xffffff) == len)
		return connection->began ? classify_mysql(connection, ino, len) : SQL_QUESTION;
	return SQL_ANYTHING;
}

/* The first bytes that it sends after it has received something: the answer to a text that was to
 * be prepared names the statement.
 */
static __always_inline void mysql_sent(struct sql_connection *connection, struct transfer *transfer)
{
	struct sql_statement statement = {};
	__u8 head[9], yes = 1;

	if (connection->preparing && transfer->ret >= 9 &&
	    !bpf_probe_read_user(head, 9, (const void *)transfer->bytes) && !head[4]) {
		statement.connection = transfer->ino;
		statement.id = head[5] | (__u32)head[6] << 8 | (__u32)head[7] << 16 |
			       (__u32)head[8] << 24;
		bpf_map_update_elem(&sql_questions, &statement, &yes, BPF_ANY);
	}
	connection->preparing = 0;
}

#endif
