/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR GPL-2.0
 *
 * Which frames are of a service flow: TCP from or to a service, and the ICMP errors about it,
 * behind at most two VLAN tags; also with IPv4 options, IPv6 options and in fragments, of which the
 * first comes first. Read first: RFC 791, 8200 (headers), 792 and 4443 (what an error quotes).
 * Included by steer.bpf.c.
 *
 * Deliberately absent: other extension headers of IPv6. A card does not treat those, so they are
 * none of its frames.
 */
#ifndef NICACHE_SERVICE_H
#define NICACHE_SERVICE_H

#include "headers.h"

#define SERVICES_MAX 1024

struct service {
	struct address address;
	__be16 port;
	__u16 zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SERVICES_MAX);
	__type(key, struct service);
	__type(value, __u32);
} services SEC(".maps");

/* A connection, the same for both directions. */
struct flow {
	struct address client, server;
	__be16 client_port, server_port;
};

/* A TCP segment of a service. */
struct segment {
	struct flow flow;
	__u32 at; /* where its header begins */
};

/* A datagram in fragments of which the first is of a service flow: the others do not say so. */
struct datagram {
	struct address from, to;
	__u32 id;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct datagram);
	__type(value, __u32);
} datagrams SEC(".maps");

/* From which side a frame comes decides which of its ends is the service. */
enum side { WIRE = 0, HOST = 1 };

static __always_inline bool is_service(const struct address *address, __be16 port)
{
	struct service service = { .port = port };

	if (bpf_map_lookup_elem(&services, &service))
		return true;
	service.address = *address;
	return bpf_map_lookup_elem(&services, &service);
}

/* Whether the sender, or the receiver, of a TCP segment whose ports are at `at` is a service; tells
 * which flow's.
 */
static __always_inline bool is_of_flow(struct frame frame, __u32 at, struct address from,
				       struct address to, bool from_service,
				       struct segment *segment)
{
	struct flow *flow = &segment->flow;
	struct ports ports;

	if (!load(frame, at, &ports, sizeof(ports)))
		return false;
	flow->server = from_service ? from : to;
	flow->client = from_service ? to : from;
	flow->server_port = from_service ? ports.from : ports.to;
	flow->client_port = from_service ? ports.to : ports.from;
	segment->at = at;
	return is_service(&flow->server, flow->server_port);
}

/* What an IP packet says about itself. A part of a segment names no flow: it may come by another
 * queue.
 */
enum verdict { OTHER, SERVICE, ERROR, PART };

/* A fragment; its segment begins at `at` if it is the first. */
static __always_inline enum verdict part_verdict(struct frame frame, __u32 at,
						 const struct datagram *datagram, bool is_first,
						 bool from_service, struct segment *segment)
{
	__u32 zero = 0;

	if (!is_first)
		return bpf_map_lookup_elem(&datagrams, datagram) ? PART : OTHER;
	if (!is_of_flow(frame, at, datagram->from, datagram->to, from_service, segment))
		return OTHER;
	bpf_map_update_elem(&datagrams, datagram, &zero, BPF_ANY);
	return PART;
}

/* The IPv4 packet at `at`. Of a packet that an error quotes, the first fragment counts, too. */
static __always_inline enum verdict ipv4_verdict(struct frame frame, __u32 at, bool from_service,
						 bool quoted, struct segment *segment)
{
	struct datagram datagram = {};
	struct ipv4 ip;
	__u8 type[2];

	if (!load(frame, at, &ip, sizeof(ip)))
		return OTHER;
	if (ip.version_and_length != 0x45 &&
	    (quoted || ip.protocol != PROTOCOL_TCP || ip.version_and_length >> 4 != 4 ||
	     ip.version_and_length < 0x45))
		return OTHER;
	if (ip.fragment & bpf_htons(quoted ? 0x1fff : 0x3fff) &&
	    (quoted || ip.protocol != PROTOCOL_TCP))
		return OTHER;
	at += BOUNDED(ip.version_and_length, 0xf) * 4;
	if (!quoted && ip.fragment & bpf_htons(0x3fff)) {
		datagram.from = mapped(ip.from);
		datagram.to = mapped(ip.to);
		datagram.id = ip.identification;
		return part_verdict(frame, at, &datagram, !(ip.fragment & bpf_htons(0x1fff)),
				    from_service, segment);
	}
	if (ip.protocol == PROTOCOL_TCP)
		return is_of_flow(frame, at, mapped(ip.from), mapped(ip.to), from_service, segment)
			       ? SERVICE
			       : OTHER;
	if (quoted || ip.protocol != PROTOCOL_ICMP || !load(frame, at, type, sizeof(type)))
		return OTHER;
	/* Destination unreachable (too big among them), time exceeded, parameter problem. */
	return type[0] == 3 || type[0] == 11 || type[0] == 12 ? ERROR : OTHER;
}

#define PROTOCOL_HOP_BY_HOP 0
#define PROTOCOL_FRAGMENT 44
#define PROTOCOL_DESTINATION_OPTIONS 60

#define EXTENSIONS_MAX 3
/* Of one header of options, in units of 8 bytes, less one. */
#define OPTIONS_MAX 7

/* What is behind headers of options and that of a fragment. */
static __always_inline enum verdict extended_verdict(struct frame frame, __u32 at,
						     const struct ipv6 *ip, bool from_service,
						     struct segment *segment)
{
	struct datagram datagram = { .from = joined(ip->from), .to = joined(ip->to) };
	bool is_part = false, is_first = true;
	__u8 next = ip->next;
	struct {
		__u8 next, length;
		__be16 place;
		__u16 id[2];
	} AS_HALVES header;

#pragma unroll
	for (int count = 0; count < EXTENSIONS_MAX; count++) {
		if (next == PROTOCOL_TCP)
			break;
		if (!load(frame, at, &header, sizeof(header)))
			return OTHER;
		if (next == PROTOCOL_FRAGMENT) {
			/* Of one that is all of its datagram both are 0. */
			is_part = header.place & bpf_htons(0xfff9);
			is_first = !(header.place & bpf_htons(0xfff8));
			datagram.id = (__u32)header.id[1] << 16 | header.id[0];
			at += 8;
		} else if (next == PROTOCOL_HOP_BY_HOP || next == PROTOCOL_DESTINATION_OPTIONS) {
			if (header.length > OPTIONS_MAX)
				return OTHER;
			at += (BOUNDED(header.length, OPTIONS_MAX) + 1) * 8;
		} else {
			return OTHER;
		}
		next = header.next;
	}
	if (next != PROTOCOL_TCP)
		return OTHER;
	if (is_part)
		return part_verdict(frame, at, &datagram, is_first, from_service, segment);
	return is_of_flow(frame, at, datagram.from, datagram.to, from_service, segment) ? SERVICE
											: OTHER;
}

static __always_inline enum verdict ipv6_verdict(struct frame frame, __u32 at, bool from_service,
						 bool quoted, struct segment *segment)
{
	struct ipv6 ip;
	__u8 type[2];

	if (!load(frame, at, &ip, sizeof(ip)) ||
	    (ip.version_and_more & bpf_htons(0xf000)) != bpf_htons(0x6000))
		return OTHER;
	at += sizeof(ip);
	if (ip.next == PROTOCOL_TCP)
		return is_of_flow(frame, at, joined(ip.from), joined(ip.to), from_service, segment)
			       ? SERVICE
			       : OTHER;
	if (!quoted && ip.next != PROTOCOL_ICMPV6)
		return extended_verdict(frame, at, &ip, from_service, segment);
	if (quoted || !load(frame, at, type, sizeof(type)))
		return OTHER;
	/* Unreachable, too big, time exceeded, parameter problem. */
	return type[0] >= 1 && type[0] <= 4 ? ERROR : OTHER;
}

/* Is this frame, which comes from `side`, of a service flow, or an error about one? Tells the
 * segment, or what the error quotes of it.
 */
static __always_inline enum verdict verdict_of(struct frame frame, enum side side,
					       struct segment *segment)
{
	__u32 at = 12, tags = frame.skb && frame.skb->vlan_present ? 1 : 0;
	bool from_service = side == HOST;
	__u16 type;

#pragma unroll
	for (int turn = 0; turn <= VLAN_TAGS_MAX; turn++) {
		if (!load(frame, at, &type, sizeof(type)))
			return OTHER;
		type = bpf_ntohs(type);
		if (type != ETHERTYPE_VLAN && type != ETHERTYPE_SERVICE_VLAN)
			break;
		if (tags == VLAN_TAGS_MAX)
			return OTHER;
		tags++;
		at += 4;
	}
	at += 2;
	/* An error goes to the sender of what it quotes, behind its header of 8 bytes. */
	if (type == ETHERTYPE_IPV4) {
		enum verdict verdict = ipv4_verdict(frame, at, from_service, false, segment);

		if (verdict != ERROR)
			return verdict;
		at += sizeof(struct ipv4) + 8;
		return ipv4_verdict(frame, at, !from_service, true, segment) == SERVICE ? ERROR
											: OTHER;
	}
	if (type == ETHERTYPE_IPV6) {
		enum verdict verdict = ipv6_verdict(frame, at, from_service, false, segment);

		if (verdict != ERROR)
			return verdict;
		at += sizeof(struct ipv6) + 8;
		return ipv6_verdict(frame, at, !from_service, true, segment) == SERVICE ? ERROR
											: OTHER;
	}
	return OTHER;
}

static __always_inline bool is_of_service(struct frame frame, enum side side)
{
	struct segment segment;

	return verdict_of(frame, side, &segment) != OTHER;
}

#endif
