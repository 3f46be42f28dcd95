//! Compiles the programs (`ebpf/forward.bpf.c`); they are embedded in the library.

fn main() {
    nicache_ebpf_build::compile("forward", "forward", &[]);
}
