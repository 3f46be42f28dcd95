//! Links libiscsi (Debian: libiscsi-dev).

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-lib=iscsi");
}
