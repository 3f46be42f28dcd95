/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR GPL-2.0
 *
 * Events with bytes of a program's memory in the place of the path, in a record of about their
 * length. Bytes that were read before and not told of may come in front of them, so the header
 * of a message needs no event of its own. Reporting returns 1 if there is no room. Included by
 * witness.bpf.c.
 */
#ifndef NICACHE_BYTES_H
#define NICACHE_BYTES_H

#define PREFIX_BYTES 16

struct bytes_report {
	__u64 prefix[PREFIX_BYTES / 8];
	__u32 prefix_len;
	__u64 kind;
	__u64 ino;
	const void *bytes;
	bool copied; /* bytes are the kernel's copy */
	__u32 len;
	__u32 dev;
	__u32 dir_dev;
	__u32 parent;
	__s64 ret;
	__u32 flags;
};

#define BYTES_EVENT(name, size)                                                              \
	struct name {                                                                        \
		struct event_head head;                                                      \
		__u64 prefix[PREFIX_BYTES / 8];                                              \
		__u8 more[size];                                                             \
	};                                                                                   \
	__noinline int report_##name(struct bytes_report *report)                            \
	{                                                                                    \
		struct name *event;                                                          \
		__u32 len, flags, prefix_len;                                                \
                                                                                             \
		if (!report)                                                                 \
			return 0;                                                            \
		event = bpf_ringbuf_reserve(&lookups, sizeof(*event), 0);                    \
		if (!event) {                                                                \
			count_lost();                                                        \
			return 1;                                                            \
		}                                                                            \
		len = report->len;                                                           \
		flags = report->flags;                                                       \
		prefix_len = report->prefix_len;                                             \
		if (prefix_len > PREFIX_BYTES)                                               \
			prefix_len = PREFIX_BYTES;                                           \
		if (len > size)                                                              \
			len = size;                                                          \
		fill_head(&event->head, report->kind, 0, report->ret, -1);                   \
		event->head.ino = report->ino;                                               \
		event->head.dev = report->dev;                                               \
		event->head.dir_dev = report->dir_dev;                                       \
		event->head.open_flags = report->parent;                                     \
		event->head.path_len = prefix_len + len;                                     \
		event->prefix[0] = report->prefix[0];                                        \
		event->prefix[1] = report->prefix[1];                                        \
		if (len && report->copied)                                                   \
			bpf_probe_read_kernel((__u8 *)event->prefix + prefix_len, len,       \
					      report->bytes);                                \
		else if (len && bpf_probe_read_user((__u8 *)event->prefix + prefix_len, len, \
						    report->bytes))                          \
			flags |= FLAG_INCOMPLETE;                                            \
		event->head.flags = flags;                                                   \
		bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);                                 \
		return 0;                                                                    \
	}

BYTES_EVENT(bytes_tiny, 64)
BYTES_EVENT(bytes_small, 512)
BYTES_EVENT(bytes_medium, 4096)
BYTES_EVENT(bytes_page, 8192) /* what PostgreSQL reads at once */
BYTES_EVENT(bytes_large, 32768)

#endif
