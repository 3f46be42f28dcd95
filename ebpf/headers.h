/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR GPL-2.0
 *
 * Frames as programs see them, and the headers in them.
 * Read first: RFC 791, 8200 (headers); 4291, section 2.5.5.2 (mapped addresses).
 */
#ifndef NICACHE_HEADERS_H
#define NICACHE_HEADERS_H

#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#ifndef bool
#define bool _Bool
#define true 1
#define false 0
#endif

/* IPv4 addresses are mapped (RFC 4291, section 2.5.5.2); all zeros stand for every address of
 * either family.
 */
struct address {
	__u32 words[4];
};

/* A frame as an XDP program or as a program at a socket or at tc sees it; the other pointer is
 * null.
 */
struct frame {
	struct xdp_md *xdp;
	struct __sk_buff *skb;
	bool starts_at_network; /* the Ethernet header is before what the program gets */
};

#define ETHERNET_BYTES 14

#define ETHERTYPE_IPV4 0x0800
#define ETHERTYPE_IPV6 0x86dd
#define ETHERTYPE_VLAN 0x8100
#define ETHERTYPE_SERVICE_VLAN 0x88a8
#define VLAN_TAGS_MAX 2

#define PROTOCOL_ICMP 1
#define PROTOCOL_TCP 6
#define PROTOCOL_ICMPV6 58

/* Flags of TCP. */
#define TCP_SYN 0x02
#define TCP_ACK 0x10

/* Network headers start at even positions, so halves are loaded. */
#define AS_HALVES __attribute__((packed, aligned(2)))

struct ipv4 {
	__u8 version_and_length, service_class;
	__be16 length, identification, fragment;
	__u8 hops, protocol;
	__be16 checksum;
	__u32 from, to;
} AS_HALVES;

struct ipv6 {
	__u16 version_and_more, flow;
	__be16 length;
	__u8 next, hops;
	__u16 from[8], to[8];
} AS_HALVES;

struct ports {
	__be16 from, to;
} AS_HALVES;

/* A value that is known to be within `mask`, said so every verifier sees it: before 6.10 or so
 * they compare one register, and pass on another one that was spilled before.
 */
#define BOUNDED(value, mask)                       \
	({                                         \
		__u32 bounded_ = (value);          \
		asm volatile("" : "+r"(bounded_)); \
		bounded_ &= (mask);                \
		bounded_;                          \
	})

/* Copies an even number of bytes from an even position. */
static __always_inline bool load(struct frame frame, __u32 at, void *to, __u32 bytes)
{
	if (frame.skb && frame.starts_at_network)
		return bpf_skb_load_bytes_relative(frame.skb, at, to, bytes, BPF_HDR_START_MAC) ==
		       0;
	if (frame.skb)
		return bpf_skb_load_bytes(frame.skb, at, to, bytes) == 0;

	__u16 *halves = (void *)(long)frame.xdp->data + at, *out = to;

	if ((void *)halves + bytes > (void *)(long)frame.xdp->data_end)
		return false;
#pragma unroll
	for (__u32 half = 0; half < bytes / 2; half++)
		out[half] = halves[half];
	return true;
}

static __always_inline struct address mapped(__u32 ipv4)
{
	return (struct address){ { 0, 0, bpf_htonl(0xffff), ipv4 } };
}

static __always_inline struct address joined(const __u16 *halves)
{
	struct address address;
	__u16 *out = (void *)&address;

#pragma unroll
	for (int half = 0; half < 8; half++)
		out[half] = halves[half];
	return address;
}

#endif
