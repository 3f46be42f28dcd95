//! Frames for tests, and a checker of their checksums that shares no code with what it checks.

use crate::frame::{Checksum, Gso, GsoKind, Offload};

/// What a test frame is made of.
#[derive(Debug, Clone)]
pub(crate) struct Recipe {
    pub ipv6: bool,
    pub udp: bool,
    pub vlan_tags: usize,
    /// 32-bit words of IPv4 options, or 8-byte IPv6 extension headers.
    pub ip_extra: usize,
    /// 32-bit words of TCP options.
    pub tcp_options: usize,
    pub tcp_flags: u8,
    pub seq: u32,
    pub identification: u16,
    pub payload: Vec<u8>,
}

impl Default for Recipe {
    fn default() -> Self {
        Self {
            ipv6: false,
            udp: false,
            vlan_tags: 0,
            ip_extra: 0,
            tcp_options: 3,
            tcp_flags: 0x18,
            seq: 1000,
            identification: 7,
            payload: vec![0x5a; 100],
        }
    }
}

impl Recipe {
    /// Start of the IP header.
    pub(crate) fn network(&self) -> usize {
        14 + 4 * self.vlan_tags
    }

    /// Start of the transport header.
    pub(crate) fn transport(&self) -> usize {
        let ip = if self.ipv6 { 40 + 8 * self.ip_extra } else { 20 + 4 * self.ip_extra };
        self.network() + ip
    }

    pub(crate) fn header_len(&self) -> usize {
        self.transport() + if self.udp { 8 } else { 20 + 4 * self.tcp_options }
    }

    /// The frame with a partial checksum, and its metadata; a super-frame if `gso_size` is given.
    pub(crate) fn build(&self, gso_size: Option<u16>) -> (Vec<u8>, Offload) {
        let mut frame: Vec<u8> = (1..=12).collect();
        for tag in 0..self.vlan_tags {
            frame.extend([
                if tag == 0 { 0x88 } else { 0x81 },
                if tag == 0 { 0xa8 } else { 0 },
                0,
                5,
            ]);
        }
        let transport_len = self.header_len() - self.transport() + self.payload.len();
        let protocol = if self.udp { 17 } else { 6 };
        if self.ipv6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(((8 * self.ip_extra + transport_len) as u16).to_be_bytes());
            frame.extend([if self.ip_extra > 0 { 60 } else { protocol }, 64]);
            frame.extend([0xfd; 16]);
            frame.extend([0xfe; 16]);
            for left in (0..self.ip_extra).rev() {
                // Destination options, padded.
                frame.extend([if left > 0 { 60 } else { protocol }, 0, 1, 4, 0, 0, 0, 0]);
            }
        } else {
            frame.extend([8, 0, 0x45 + self.ip_extra as u8, 0]);
            frame.extend(((20 + 4 * self.ip_extra + transport_len) as u16).to_be_bytes());
            frame.extend(self.identification.to_be_bytes());
            frame.extend([0x40, 0, 64, protocol, 0, 0, 10, 1, 2, 3, 10, 4, 5, 6]);
            frame.extend(vec![1; 4 * self.ip_extra]);
            let (start, end) = (self.network(), self.transport());
            let sum = !naive_sum(&frame[start..end]);
            frame[start + 10..start + 12].copy_from_slice(&sum.to_be_bytes());
        }
        let pseudo =
            naive_sum(&pseudo_header(&frame, self.network(), self.ipv6, protocol, transport_len));
        frame.extend([0x1f, 0x90, 0, 80]);
        if self.udp {
            frame.extend((transport_len as u16).to_be_bytes());
            frame.extend(pseudo.to_be_bytes());
        } else {
            frame.extend(self.seq.to_be_bytes());
            frame.extend([0, 0, 0, 9, (5 + self.tcp_options as u8) << 4, self.tcp_flags, 1, 2]);
            frame.extend(pseudo.to_be_bytes());
            frame.extend([0, 0]);
            frame.extend(vec![1; 4 * self.tcp_options]);
        }
        frame.extend(&self.payload);
        let kind = match (self.udp, self.ipv6) {
            (true, _) => GsoKind::Udp,
            (false, false) => GsoKind::Tcp4,
            (false, true) => GsoKind::Tcp6,
        };
        let checksum = Checksum::Partial {
            start: self.transport() as u16,
            offset: if self.udp { 6 } else { 16 },
        };
        let gso = gso_size.map(|size| Gso {
            kind,
            size,
            header_len: self.header_len() as u16,
            ecn: false,
        });
        (frame, Offload { checksum, gso })
    }

    /// Gives an IPv4 frame made from this recipe other addresses and another destination port; its
    /// checksum stays partial.
    pub(crate) fn readdress(&self, frame: &mut [u8], from: [u8; 4], to: [u8; 4], port: u16) {
        let (network, transport) = (self.network(), self.transport());
        frame[network + 12..network + 16].copy_from_slice(&from);
        frame[network + 16..network + 20].copy_from_slice(&to);
        frame[network + 10..network + 12].fill(0);
        let sum = !naive_sum(&frame[network..transport]);
        frame[network + 10..network + 12].copy_from_slice(&sum.to_be_bytes());
        frame[transport + 2..transport + 4].copy_from_slice(&port.to_be_bytes());
        let (protocol, offset) = if self.udp { (17, 6) } else { (6, 16) };
        let len = self.header_len() - transport + self.payload.len();
        let pseudo = naive_sum(&pseudo_header(frame, network, false, protocol, len));
        frame[transport + offset..transport + offset + 2].copy_from_slice(&pseudo.to_be_bytes());
    }

    /// Whether lengths and checksums of a frame made from this recipe are right.
    pub(crate) fn verify(&self, frame: &[u8]) -> Result<(), String> {
        let (network, transport) = (self.network(), self.transport());
        let field = |at: usize| usize::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
        let ip_len = if self.ipv6 { 40 + field(network + 4) } else { field(network + 2) };
        if network + ip_len != frame.len() {
            return Err(format!("IP length {ip_len} in a frame of {}", frame.len()));
        }
        if !self.ipv6 && naive_sum(&frame[network..transport]) != 0xffff {
            return Err("IPv4 header checksum".into());
        }
        let protocol = if self.udp { 17 } else { 6 };
        let len = frame.len() - transport;
        if self.udp && field(transport + 4) != len {
            return Err("UDP length".into());
        }
        if self.udp && field(transport + 6) == 0 {
            return Err("UDP without checksum".into());
        }
        let mut all = pseudo_header(frame, network, self.ipv6, protocol, len);
        all.extend(&frame[transport..]);
        if naive_sum(&all) != 0xffff {
            return Err("transport checksum".into());
        }
        Ok(())
    }
}

fn pseudo_header(frame: &[u8], network: usize, ipv6: bool, protocol: u8, len: usize) -> Vec<u8> {
    let addresses = if ipv6 { network + 8..network + 40 } else { network + 12..network + 20 };
    let mut bytes = frame[addresses].to_vec();
    bytes.extend((len as u32).to_be_bytes());
    bytes.extend([0, 0, 0, protocol]);
    bytes
}

/// Ones'-complement sum, a word at a time.
fn naive_sum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = 0;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) * 256 + pair.get(1).map_or(0, |low| u32::from(*low));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
