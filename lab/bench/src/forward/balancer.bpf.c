/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR GPL-2.0
 *
 * A balancer of one back end, at tc ingress: lab/bench/src/forward/balancer.rs compiles it with OUT
 * (index of the other interface), MACS (destination and source there) and IS_REQUEST. It keeps no
 * connections, and is what others are compared with.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <linux/types.h>

static long (*bpf_skb_store_bytes)(struct __sk_buff *, __u32, const void *, __u32,
				   __u64) = (void *)9;
static long (*bpf_l3_csum_replace)(struct __sk_buff *, __u32, __u64, __u64, __u64) = (void *)10;
static long (*bpf_l4_csum_replace)(struct __sk_buff *, __u32, __u64, __u64, __u64) = (void *)11;
static long (*bpf_redirect)(__u32, __u64) = (void *)23;
static long (*bpf_skb_load_bytes)(const void *, __u32, void *, __u32) = (void *)26;

#define IP(a, b, c, d) __builtin_bswap32((__u32)(a) << 24 | (b) << 16 | (c) << 8 | (d))
#define SERVICE IP(10, 201, 1, 1)
#define CLIENT IP(10, 201, 1, 2)
#define OUTSIDE IP(10, 201, 2, 1)
#define SERVER IP(10, 201, 2, 2)
#define PORT __builtin_bswap16(5001)

char LICENSE[] __attribute__((section("license"), used)) = "Dual MIT/GPL";

__attribute__((section("tc"), used)) int balance(struct __sk_buff *skb)
{
	struct {
		__u8 version, tos;
		__u16 length, id, fragment;
		__u8 hops, protocol;
		__u16 checksum;
		__u32 from, to;
		__u16 from_port, to_port;
	} ip;
	const __u8 macs[12] = { MACS };
	__u32 new_from = IS_REQUEST ? OUTSIDE : SERVICE, new_to = IS_REQUEST ? SERVER : CLIENT;
	__u32 checksum_at;

	if (skb->protocol != __builtin_bswap16(0x0800) ||
	    bpf_skb_load_bytes(skb, 14, &ip, sizeof(ip)) || ip.version != 0x45)
		return TC_ACT_OK;
	if (ip.protocol != 6 && ip.protocol != 17)
		return TC_ACT_OK;
	if (IS_REQUEST ? ip.to != SERVICE || ip.to_port != PORT
		       : ip.from != SERVER || ip.from_port != PORT)
		return TC_ACT_OK;
	checksum_at = 34 + (ip.protocol == 6 ? 16 : 6);
	__u64 kind = BPF_F_PSEUDO_HDR | (ip.protocol == 17 ? BPF_F_MARK_MANGLED_0 : 0);
	if (bpf_l4_csum_replace(skb, checksum_at, ip.from, new_from, kind | 4) ||
	    bpf_l4_csum_replace(skb, checksum_at, ip.to, new_to, kind | 4) ||
	    bpf_l3_csum_replace(skb, 24, ip.from, new_from, 4) ||
	    bpf_l3_csum_replace(skb, 24, ip.to, new_to, 4) ||
	    bpf_skb_store_bytes(skb, 26, &new_from, 4, 0) ||
	    bpf_skb_store_bytes(skb, 30, &new_to, 4, 0) ||
	    bpf_skb_store_bytes(skb, 0, macs, sizeof(macs), 0))
		return TC_ACT_SHOT;
	return bpf_redirect(OUT, 0);
}
