//! What the head of a request that was parsed before names.

/// The request target, for logs.
pub fn target_of(head: &[u8]) -> &[u8] {
    let mut words = head.split(|&byte| byte == b' ');
    words.next();
    words.next().unwrap_or_default()
}

/// The host that the request names, as spelled; empty if none.
pub fn host_of(head: &[u8]) -> &[u8] {
    head.split(|&byte| byte == b'\n')
        .find_map(|line| {
            let (name, value) = line.split_at_checked(5)?;
            name.eq_ignore_ascii_case(b"host:").then(|| value.trim_ascii())
        })
        .unwrap_or_default()
}
