#[test]
fn g() {
    use nicache_ncache::*;
    let k = Keyring::from_secrets(b"tag of 16 bytes!and 32 bytes of a MAC's key.....");
    let mut b = k.seal(Sequence(7), 4096).to_vec();
    std::fs::write("fuzz/corpus/block/key", &b).unwrap();
    b[30] = 1;
    std::fs::write("fuzz/corpus/block/key_and_reserved", &b).unwrap();
    std::fs::write("fuzz/corpus/block/tail_key", &k.seal(Sequence(u64::MAX), 48)).unwrap();
}
