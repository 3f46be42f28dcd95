//! Links libiscsi (Debian: libiscsi-dev) statically: the program then starts on machines without
//! it, and without the RDMA libraries that its shared form asks for.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let architecture = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    for folder in [
        format!("/usr/lib/{architecture}-linux-gnu"),
        "/usr/lib64".to_owned(),
        "/usr/lib".to_owned(),
    ] {
        if std::path::Path::new(&folder).join("libiscsi.a").exists() {
            println!("cargo:rustc-link-search=native={folder}");
            println!("cargo:rustc-link-lib=static=iscsi");
            return;
        }
    }
    println!("cargo:rustc-link-lib=iscsi");
}
