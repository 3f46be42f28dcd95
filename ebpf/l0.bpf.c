/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR GPL-2.0
 *
 * L0: requests whose whole reply is one segment, answered where their frame leaves or enters the
 * machine's stack, before the card hears of them. To a client whose socket is on this very machine,
 * a segment may be as long as what may be sent at once.
 *
 *   clients' stack ─▶ tc egress of a TAP ─▶ the card        network ─▶ XDP of the wire ─▶ steer.bpf.c ─▶ the card
 *         ▲                  │ L0                               ▲            │ L0 (AT_DRIVER)
 *         └──────────────────┘                                  └────────────┘
 *
 * This file is compiled twice, without and with AT_DRIVER.
 *
 * The card lends a connection (`places`), as long as nothing but hits happens to it, and publishes
 * replies (`objects`). A segment that is not the next request of a connection on loan, byte for
 * byte one that has a reply here, gives the connection back: it and all that follows go to the
 * card.
 *
 * A reply is valid under the card's own rule: the epoch of the revision table is that at which the
 * card last compared the reply's sources, and the watcher's lease holds. Beyond that, the card
 * withdraws all replies by one word (`generation`), and each ends by itself soon.
 *
 * Read first: RFC 9293 section 3.10.7.4, RFC 7323 section 5. The Rust side is card/xdp/src/l0;
 * layouts are in both.
 *
 * Deliberately absent: VLAN tags, ECN, TCP options but timestamps, more than one request in a
 * segment or under way. The card does those.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "headers.h"
#include "shared.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define PLACES_BITS 13
#define PLACES (1 << PLACES_BITS)
#define OBJECTS_BITS 9
#define OBJECTS (1 << OBJECTS_BITS)
#define HEAD_BYTES 384
#define HEAD_WORDS (HEAD_BYTES / 8)
#define REPLY_BYTES 12288

/* The kernel's revision table (table.h), which the card has. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, CONTROL_BYTES);
} control SEC(".maps");

#define CONTROL_LEASE_UNTIL_NS 24

/* Of each shard of the card, which has its own replies and connections. */
struct desk {
	__u64 generation; /* of the replies that are valid */
	__u64 seed; /* keeps clients from choosing places; that of the first desk is everybody's */
	__u64 growth_max; /* by so many bytes a frame can grow here, as far as is known */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct desk);
} desk SEC(".maps");

/* A connection on loan. Whoever has set `state` from LENT owns the rest. */
struct place {
	__u64 state;
	struct address client, server;
	__be16 client_port, server_port;
	__u32 rcv_nxt; /* of the client */
	__u32 snd_una, snd_nxt;
	__u32 edge;             /* right edge of the client's window */
	__u32 recent;           /* TS.Recent */
	__u32 stamp, stamp_sent; /* our TSval at 0 ms, and the last one */
	__be16 window;          /* what we announce */
	__u16 segment_bytes;    /* payload of a segment at most */
	__u8 client_scale;
	__u8 has_timestamps;
	/* payload at most that may be sent at once, if the client is on this machine */
	__u16 burst_bytes;
	__u64 used_ns;
	/* The reply that may be unacknowledged: what the card calls it, and its date. */
	__u64 tag, date;
	__u64 shard; /* whose it is */
	__u64 unused[2];
};

#define FREE 0
#define LENT 1
#define BUSY 2
#define RETURNED 3

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, PLACES);
	__type(key, __u32);
	__type(value, struct place);
} places SEC(".maps");

/* A reply. `version` is odd while the card writes, and moves with each change. */
struct object {
	__u64 version;
	__u64 generation, epoch, until_ns;
	__u64 tag, date;
	__u64 served;
	__u32 head_len, reply_len;
	__u64 sum; /* of the reply, in ones' complement, as bpf_csum_diff gives it */
	__u64 unused[3];
	__u64 head[HEAD_WORDS]; /* the request, zeros behind it */
	__u8 reply[REPLY_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, OBJECTS); /* for each shard */
	__type(key, __u32);
	__type(value, struct object);
} objects SEC(".maps");

/* The request, zeros behind it. There is room for any length within the mask, as the verifier knows
 * no narrower bound.
 */
#define SCRATCH_MASK 511

struct scratch {
	__u64 words[(SCRATCH_MASK + 1) / 8];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratch SEC(".maps");

struct tcp {
	__be16 from, to;
	__be32 seq, ack;
	__u8 offset, flags;
	__be16 window, checksum, urgent;
	/* NOP NOP timestamps (RFC 7323, appendix A) */
	__be32 option, value, echo;
} AS_HALVES;

#define TCP_BYTES 20
#define TCP_STAMPED_BYTES 32
#define TIMESTAMPS_OPTION 0x0101080a
#define HOPS 64
#define ACK 0x10
#define PSH 0x08

struct pseudo4 {
	__u32 from, to;
	__u8 zero, protocol;
	__be16 length;
};

struct pseudo6 {
	__u16 from[8], to[8];
	__be32 length, protocol;
};

#define MULTIPLIER 0x9e3779b97f4a7c15ULL

static __always_inline __u64 mixed(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * MULTIPLIER;
	return hash ^ hash >> 32;
}

static __always_inline __u64 doubled(__u32 high, __u32 low)
{
	return (__u64)high << 32 | low;
}

static __always_inline __u16 folded(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

struct ethernet {
	__u8 to[6], from[6];
	__be16 type;
} AS_HALVES;

/* A segment as it came. */
struct segment {
	bool is_v4;
	struct ethernet ethernet;
	struct ipv4 ip4;
	struct ipv6 ip6;
	struct tcp tcp;
	__u32 tcp_at, payload_at, payload_len;
	__u32 tcp_bytes;
};

#ifdef AT_DRIVER
/* What is behind L0: nothing, or the rest of steering. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} next SEC(".maps");

typedef struct xdp_md context;

/* What the driver has in front of a frame at least, less what the kernel keeps there. */
#define HEADROOM 192
/* The sums of what is sent must be whole; on a veth they may be pending in what comes. */
#define SUMS_STAY_PENDING false

static __always_inline bool read_bytes(context *frame, __u32 at, void *to, __u32 bytes)
{
	return bpf_xdp_load_bytes(frame, at, to, bytes) == 0;
}

static __always_inline bool write_bytes(context *frame, __u32 at, const void *from, __u32 bytes)
{
	return bpf_xdp_store_bytes(frame, at, (void *)from, bytes) == 0;
}

static __always_inline __u32 length_of(context *frame)
{
	return bpf_xdp_get_buff_len(frame);
}

/* Frames that become longer get the room behind them, or before and behind them. All bytes are
 * written anew afterwards. If there is no room, nothing has changed.
 */
static __always_inline bool resize(context *frame, __u32 bytes)
{
	int more = (int)bytes - (int)length_of(frame), before;

	if (bpf_xdp_adjust_tail(frame, more) == 0)
		return true;
	if (more <= 0)
		return false;
	before = more < HEADROOM ? more : HEADROOM;
	if (bpf_xdp_adjust_head(frame, -before) != 0)
		return false;
	if (more == before || bpf_xdp_adjust_tail(frame, more - before) == 0)
		return true;
	bpf_xdp_adjust_head(frame, before);
	return false;
}

/* A tag that the network card took out is not to be seen here, nor by the card. */
static __always_inline bool has_hidden_tag(context *frame)
{
	return false;
}

static __always_inline bool is_own_clients(context *frame)
{
	return false;
}
#else
typedef struct __sk_buff context;

/* The other end is the machine's own stack. */
#define SUMS_STAY_PENDING true

static __always_inline bool read_bytes(context *frame, __u32 at, void *to, __u32 bytes)
{
	return bpf_skb_load_bytes(frame, at, to, bytes) == 0;
}

static __always_inline bool write_bytes(context *frame, __u32 at, const void *from, __u32 bytes)
{
	return bpf_skb_store_bytes(frame, at, from, bytes, 0) == 0;
}

static __always_inline __u32 length_of(context *frame)
{
	return frame->len;
}

static __always_inline bool resize(context *frame, __u32 bytes)
{
	return bpf_skb_change_tail(frame, bytes, 0) == 0;
}

static __always_inline bool has_hidden_tag(context *frame)
{
	return frame->vlan_present;
}

/* Has a TCP socket of this machine sent the frame? It takes segments of any length, and nobody on
 * the way has to cut them.
 */
static __always_inline bool is_own_clients(context *frame)
{
	struct bpf_sock *sender = frame->sk;

	if (frame->ingress_ifindex != 0 || !sender)
		return false;
	sender = bpf_sk_fullsock(sender);
	return sender && sender->protocol == PROTOCOL_TCP;
}
#endif

/* Is it TCP without anything that the card would have to look at? */
static __always_inline bool read_segment(context *frame, struct segment *segment)
{
	struct ethernet *ethernet = &segment->ethernet;
	__u32 ip_len;

	if (has_hidden_tag(frame) || !read_bytes(frame, 0, ethernet, sizeof(*ethernet)))
		return false;
	if (ethernet->type == bpf_htons(ETHERTYPE_IPV4)) {
		struct ipv4 *ip = &segment->ip4;

		if (!read_bytes(frame, ETHERNET_BYTES, ip, sizeof(*ip)) ||
		    ip->version_and_length != 0x45 || ip->fragment & bpf_htons(0x3fff) ||
		    ip->protocol != PROTOCOL_TCP || ip->service_class & 3)
			return false;
		segment->is_v4 = true;
		segment->tcp_at = ETHERNET_BYTES + sizeof(*ip);
		ip_len = bpf_ntohs(ip->length);
	} else if (ethernet->type == bpf_htons(ETHERTYPE_IPV6)) {
		struct ipv6 *ip = &segment->ip6;

		if (!read_bytes(frame, ETHERNET_BYTES, ip, sizeof(*ip)) ||
		    ip->next != PROTOCOL_TCP ||
		    (ip->version_and_more & bpf_htons(0xf000)) != bpf_htons(0x6000) ||
		    ip->version_and_more & bpf_htons(0x0030))
			return false;
		segment->is_v4 = false;
		segment->tcp_at = ETHERNET_BYTES + sizeof(*ip);
		ip_len = bpf_ntohs(ip->length) + sizeof(*ip);
	} else {
		return false;
	}
	if (!read_bytes(frame, segment->tcp_at, &segment->tcp, TCP_BYTES))
		return false;
	if (segment->tcp.offset == TCP_STAMPED_BYTES / 4 << 4) {
		if (!read_bytes(frame, segment->tcp_at + TCP_BYTES, &segment->tcp.option,
				TCP_STAMPED_BYTES - TCP_BYTES))
			return false;
		segment->tcp_bytes = TCP_STAMPED_BYTES;
	} else if (segment->tcp.offset == TCP_BYTES / 4 << 4) {
		segment->tcp_bytes = TCP_BYTES;
	} else {
		return false;
	}
	segment->payload_at = segment->tcp_at + segment->tcp_bytes;
	if (ip_len + ETHERNET_BYTES != length_of(frame) ||
	    ip_len + ETHERNET_BYTES < segment->payload_at)
		return false;
	segment->payload_len = ip_len + ETHERNET_BYTES - segment->payload_at;
	return true;
}

static __always_inline bool is_equal(const struct address *one, const struct address *other)
{
	return one->words[0] == other->words[0] && one->words[1] == other->words[1] &&
	       one->words[2] == other->words[2] && one->words[3] == other->words[3];
}

/* Which of 2^bits places; all bits of the hash have a say. */
static __always_inline __u32 index_of(__u64 hash, __u32 bits)
{
	return hash * MULTIPLIER >> (64 - bits);
}

static __always_inline struct address client_of(const struct segment *segment)
{
	return segment->is_v4 ? mapped(segment->ip4.from) : joined(segment->ip6.from);
}

static __always_inline struct address server_of(const struct segment *segment)
{
	return segment->is_v4 ? mapped(segment->ip4.to) : joined(segment->ip6.to);
}

static __always_inline bool is_place_of(const struct place *place, const struct segment *segment,
					const struct address *client, const struct address *server)
{
	return place->client_port == segment->tcp.from && place->server_port == segment->tcp.to &&
	       is_equal(&place->client, client) && is_equal(&place->server, server);
}

static __always_inline struct place *place_of(const struct segment *segment, __u64 seed,
					      const struct address *client,
					      const struct address *server)
{
	__u64 hash = mixed(seed, doubled(client->words[0], client->words[1]));
	struct place *place;
	__u32 index;

	hash = mixed(hash, doubled(client->words[2], client->words[3]));
	hash = mixed(hash, doubled(segment->tcp.from, segment->tcp.to));
	index = index_of(hash, PLACES_BITS);
	/* A connection can have that place or its neighbour. */
	for (__u32 tries = 0; tries < 2; tries++, index ^= 1) {
		place = bpf_map_lookup_elem(&places, &index);
		if (place && is_place_of(place, segment, client, server))
			return place;
	}
	return NULL;
}

/* The shard's reply to the request in `scratch`, if there is one that is valid. */
static __always_inline struct object *object_of(const __u64 *words, __u32 len, __u32 shard,
						const struct desk *desk, const __u64 *table,
						__u64 *version)
{
	__u64 hash = mixed(desk->seed, len), now = bpf_ktime_get_boot_ns();
	struct object *object;
	__u32 index;

	for (__u32 word = 0; word < HEAD_WORDS; word++) {
		if (word * 8 >= len)
			break;
		hash = mixed(hash, words[word]);
	}
	index = shard * OBJECTS + index_of(hash, OBJECTS_BITS);
	object = bpf_map_lookup_elem(&objects, &index);
	if (!object)
		return NULL;
	*version = *(volatile __u64 *)&object->version;
	if (*version & 1 || object->head_len != len)
		return NULL;
	for (__u32 word = 0; word < HEAD_WORDS; word++) {
		if (word * 8 >= len)
			break;
		if (object->head[word] != words[word])
			return NULL;
	}
	/* The request is in: whatever a writer completed before is in the epoch that is read now
	 * (I1).
	 */
	if (object->epoch != *(volatile __u64 *)&table[CONTROL_EPOCH] ||
	    now > *(volatile __u64 *)&table[CONTROL_LEASE_UNTIL_NS] || now >= object->until_ns ||
	    object->generation != *(volatile __u64 *)&desk->generation)
		return NULL;
	return object;
}

/* The pseudo-header's sum for so many bytes of TCP (RFC 9293, section 3.1). It is the same in both
 * directions.
 */
static __always_inline __u64 pseudo_sum(const struct segment *segment, __u32 tcp_len)
{
	if (segment->is_v4) {
		struct pseudo4 pseudo = {segment->ip4.from, segment->ip4.to, 0, PROTOCOL_TCP,
					 bpf_htons(tcp_len)};

		return (__u32)bpf_csum_diff(NULL, 0, (void *)&pseudo, sizeof(pseudo), 0);
	}
	struct pseudo6 pseudo = {.length = bpf_htonl(tcp_len), .protocol = bpf_htonl(PROTOCOL_TCP)};

	__builtin_memcpy(pseudo.from, segment->ip6.from, 16);
	__builtin_memcpy(pseudo.to, segment->ip6.to, 16);
	return (__u32)bpf_csum_diff(NULL, 0, (void *)&pseudo, sizeof(pseudo), 0);
}

/* What the checksum of a segment says. */
enum sum { WRONG, RIGHT, PENDING };

/* PENDING: the sender's own stack has left it to the device, so the field has the pseudo-header's
 * sum.
 */
static __always_inline enum sum check_sum(const struct segment *segment, __u64 *words)
{
	__u64 sum = pseudo_sum(segment, segment->tcp_bytes + segment->payload_len);
	__u32 padded = (segment->payload_len + 3) & ~3;

	if (segment->tcp.checksum == folded(sum))
		return PENDING;
	if (segment->tcp_bytes == TCP_STAMPED_BYTES)
		sum += (__u32)bpf_csum_diff(NULL, 0, (void *)&segment->tcp, TCP_STAMPED_BYTES, 0);
	else
		sum += (__u32)bpf_csum_diff(NULL, 0, (void *)&segment->tcp, TCP_BYTES, 0);
	if (padded && padded <= HEAD_BYTES)
		sum += (__u32)bpf_csum_diff(NULL, 0, (void *)words, BOUNDED(padded, SCRATCH_MASK),
					    0);
	return folded(sum) == 0xffff ? RIGHT : WRONG;
}

static __always_inline bool write_reply(context *frame, __u32 at, const struct object *object,
					__u32 bytes)
{
	/* For the verifier, as BOUNDED is; from one comparison it learns that there is at least one
	 * byte.
	 */
	bytes--;
	asm volatile("" : "+r"(bytes));
	if (bytes >= REPLY_BYTES)
		return false;
	return write_bytes(frame, at, object->reply, bytes + 1);
}

/* Writes the headers of the reply where those of the request were. */
static __always_inline bool write_headers(context *frame, struct segment *segment,
					  struct place *place, const struct object *object,
					  __u32 reply_len, bool is_pending)
{
	__u32 tcp_len = segment->tcp_bytes + reply_len, now_ms = bpf_ktime_get_ns() / 1000000;
	struct tcp *tcp = &segment->tcp;
	struct ethernet ethernet = segment->ethernet;
	__be16 port = tcp->from;
	__u64 sum;
	__u16 half;

	__builtin_memcpy(ethernet.to, segment->ethernet.from, 6);
	__builtin_memcpy(ethernet.from, segment->ethernet.to, 6);
	if (!write_bytes(frame, 0, &ethernet, sizeof(ethernet)))
		return false;

	tcp->from = tcp->to;
	tcp->to = port;
	tcp->seq = bpf_htonl(place->snd_nxt);
	tcp->ack = bpf_htonl(place->rcv_nxt + segment->payload_len);
	tcp->flags = ACK | PSH;
	tcp->window = place->window;
	tcp->urgent = 0;
	if (place->has_timestamps) {
		__u32 stamp = now_ms + place->stamp;

		if ((__s32)(stamp - place->stamp_sent) > 0)
			place->stamp_sent = stamp;
		tcp->echo = tcp->value;
		tcp->value = bpf_htonl(place->stamp_sent);
	}
	sum = pseudo_sum(segment, tcp_len);
	half = folded(sum);
	if (is_pending) {
		tcp->checksum = half;
	} else {
		tcp->checksum = 0;
		if (segment->tcp_bytes == TCP_STAMPED_BYTES)
			sum += (__u32)bpf_csum_diff(NULL, 0, (void *)tcp, TCP_STAMPED_BYTES, 0);
		else
			sum += (__u32)bpf_csum_diff(NULL, 0, (void *)tcp, TCP_BYTES, 0);
		tcp->checksum = ~folded(sum + object->sum);
	}

	if (segment->is_v4) {
		struct ipv4 ip = segment->ip4;

		ip.length = bpf_htons(sizeof(ip) + tcp_len);
		ip.fragment = bpf_htons(0x4000);
		ip.hops = HOPS;
		ip.from = segment->ip4.to;
		ip.to = segment->ip4.from;
		ip.checksum = 0;
		ip.checksum = ~folded((__u32)bpf_csum_diff(NULL, 0, (void *)&ip, sizeof(ip), 0));
		if (!write_bytes(frame, ETHERNET_BYTES, &ip, sizeof(ip)))
			return false;
	} else {
		struct ipv6 ip = segment->ip6;

		ip.length = bpf_htons(tcp_len);
		ip.hops = HOPS;
		__builtin_memcpy(ip.from, segment->ip6.to, 16);
		__builtin_memcpy(ip.to, segment->ip6.from, 16);
		if (!write_bytes(frame, ETHERNET_BYTES, &ip, sizeof(ip)))
			return false;
	}
	if (segment->tcp_bytes == TCP_STAMPED_BYTES)
		return write_bytes(frame, segment->tcp_at, tcp, TCP_STAMPED_BYTES);
	return write_bytes(frame, segment->tcp_at, tcp, TCP_BYTES);
}

/* What becomes of a frame. */
enum outcome { TO_CARD, CONSUMED, ANSWERED };

/* The place is BUSY, so ours. With TO_CARD nothing of the frame has been changed. */
static __always_inline enum outcome answer(context *frame, struct segment *segment,
					   struct place *place, const __u64 *table, __u64 *words)
{
	struct tcp *tcp = &segment->tcp;
	__u32 ack = bpf_ntohl(tcp->ack), len = segment->payload_len, reply_len, value = 0;
	__u32 window = (__u32)bpf_ntohs(tcp->window) << (place->client_scale & 15);
	__u32 shard = place->shard;
	struct object *object;
	__u64 version, date, tag;
	struct desk *own;
	enum sum sum;

	if ((tcp->flags & ~PSH) != ACK || bpf_ntohl(tcp->seq) != place->rcv_nxt ||
	    ack != place->snd_nxt)
		return TO_CARD;
	if (place->has_timestamps) {
		if (segment->tcp_bytes != TCP_STAMPED_BYTES ||
		    tcp->option != bpf_htonl(TIMESTAMPS_OPTION))
			return TO_CARD;
		value = bpf_ntohl(tcp->value);
		if ((__s32)(value - place->recent) < 0)
			return TO_CARD;
	} else if (segment->tcp_bytes != TCP_BYTES) {
		return TO_CARD;
	}
	if (len > HEAD_BYTES)
		return TO_CARD;
	/* Zeros behind the request, in the word in which it ends and in what a sum takes. */
	words[BOUNDED(len, SCRATCH_MASK) / 8] = 0;
	if (len > 0 &&
	    !read_bytes(frame, segment->payload_at, words, BOUNDED(len - 1, SCRATCH_MASK) + 1))
		return TO_CARD;
	sum = check_sum(segment, words);
	if (sum == WRONG)
		return TO_CARD;
	if (len == 0) {
		place->snd_una = ack;
		place->edge = ack + window;
		place->recent = value;
		place->used_ns = bpf_ktime_get_ns();
		return CONSUMED;
	}
	own = bpf_map_lookup_elem(&desk, &shard);
	if (!own)
		return TO_CARD;
	object = object_of(words, len, shard, own, table, &version);
	if (!object)
		return TO_CARD;
	reply_len = object->reply_len;
	if (reply_len == 0 || reply_len > REPLY_BYTES || reply_len > window)
		return TO_CARD;
	if (reply_len > place->segment_bytes) {
		if (reply_len > place->burst_bytes)
			return TO_CARD;
		if (!is_own_clients(frame)) {
			/* The card need not try that again. */
			place->burst_bytes = 0;
			return TO_CARD;
		}
	}
	date = object->date;
	tag = object->tag;
	if (!resize(frame, segment->payload_at + reply_len)) {
		if (reply_len > len && reply_len - len <= own->growth_max)
			own->growth_max = reply_len - len - 1;
		return TO_CARD;
	}
	/* From here on there is no way back: what goes wrong is a frame that was lost. */
	if (!write_reply(frame, segment->payload_at, object, reply_len) ||
	    !write_headers(frame, segment, place, object, reply_len,
			   SUMS_STAY_PENDING && sum == PENDING))
		return CONSUMED;
	if (*(volatile __u64 *)&object->version != version)
		return CONSUMED;
	place->snd_una = ack;
	place->snd_nxt = ack + reply_len;
	place->rcv_nxt += len;
	place->edge = ack + window;
	place->recent = value;
	place->used_ns = bpf_ktime_get_ns();
	place->tag = tag;
	place->date = date;
	__sync_fetch_and_add(&object->served, 1);
	return ANSWERED;
}

static __always_inline enum outcome handle(context *frame)
{
	struct segment segment = {};
	struct address client, server;
	struct scratch *request;
	enum outcome outcome;
	struct place *place;
	struct desk *known;
	__u32 zero = 0;
	__u64 *table;

	if (!read_segment(frame, &segment))
		return TO_CARD;
	known = bpf_map_lookup_elem(&desk, &zero);
	table = bpf_map_lookup_elem(&control, &zero);
	request = bpf_map_lookup_elem(&scratch, &zero);
	if (!known || !table || !request)
		return TO_CARD;
	client = client_of(&segment);
	server = server_of(&segment);
	place = place_of(&segment, known->seed, &client, &server);
	if (!place || __sync_val_compare_and_swap(&place->state, LENT, BUSY) != LENT)
		return TO_CARD;
	/* The place may have become another connection's meanwhile. */
	if (!is_place_of(place, &segment, &client, &server)) {
		__sync_lock_test_and_set(&place->state, LENT);
		return TO_CARD;
	}
	outcome = answer(frame, &segment, place, table, request->words);
	__sync_lock_test_and_set(&place->state, outcome == TO_CARD ? RETURNED : LENT);
	return outcome;
}

#ifdef AT_DRIVER
static __always_inline int at_driver(context *frame, bool by_redirect)
{
	switch (handle(frame)) {
	case ANSWERED:
		return by_redirect ? bpf_redirect(frame->ingress_ifindex, 0) : XDP_TX;
	case CONSUMED:
		return XDP_DROP;
	default:
		bpf_tail_call(frame, &next, 0);
		return XDP_PASS;
	}
}

/* What comes from the network goes back there. */
SEC("xdp.frags")
int l0(context *frame)
{
	return at_driver(frame, false);
}

/* On a veth XDP_TX does not wake the other end unless that has an XDP program, too; a redirect
 * does.
 */
SEC("xdp.frags")
int l0_veth(context *frame)
{
	return at_driver(frame, true);
}
#else
/* What leaves the machine's stack comes back into it. */
SEC("tc")
int l0(context *frame)
{
	switch (handle(frame)) {
	case ANSWERED:
		return bpf_redirect(frame->ifindex, BPF_F_INGRESS);
	case CONSUMED:
		return TC_ACT_SHOT;
	default:
		return TC_ACT_UNSPEC;
	}
}
#endif
