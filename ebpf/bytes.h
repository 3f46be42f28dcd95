/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR GPL-2.0
 *
 * Events with bytes of a program's memory in the place of the path, in a record of about their length. Included by witness.bpf.c.
 */
#ifndef NICACHE_BYTES_H
#define NICACHE_BYTES_H

struct bytes_report {
	__u64 kind;
	__u64 ino;
	const void *bytes;
	__u32 len;
	__u32 dev;
	__u32 dir_dev;
	__s64 ret;
	__u32 flags;
};

#define BYTES_EVENT(name, size)                                                                  \
	struct name {                                                                          \
		struct event_head head;                                                        \
		__u8 bytes[size];                                                              \
	};                                                                                     \
	static __noinline int report_##name(struct bytes_report *report)                         \
	{                                                                                      \
		struct name *event;                                                            \
		__u32 len, flags;                                                              \
                                                                                               \
		if (!report)                                                                   \
			return 0;                                                              \
		event = bpf_ringbuf_reserve(&lookups, sizeof(*event), 0);                      \
		if (!event) {                                                                  \
			count_lost();                                                          \
			return 0;                                                              \
		}                                                                              \
		len = report->len;                                                             \
		flags = report->flags;                                                         \
		if (len > size)                                                                \
			len = size;                                                            \
		fill_head(&event->head, report->kind, 0, report->ret, -1);                               \
		event->head.ino = report->ino;                                                 \
		event->head.dev = report->dev;                                            \
		event->head.dir_dev = report->dir_dev;                                            \
		event->head.path_len = len;                                                    \
		if (bpf_probe_read_user(event->bytes, len, report->bytes))                     \
			flags |= FLAG_INCOMPLETE;                                              \
		event->head.flags = flags;                                                     \
		bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);                                   \
		return 0;                                                                      \
	}

BYTES_EVENT(bytes_tiny, 64)
BYTES_EVENT(bytes_small, 512)
BYTES_EVENT(bytes_medium, 4096)
BYTES_EVENT(bytes_large, 32768)

#endif
