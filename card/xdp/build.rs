//! Compiles the programs (`ebpf/steer.bpf.c`, `ebpf/sieve.bpf.c`, `ebpf/l0.bpf.c`); they are
//! embedded in the library.

fn main() {
    nicache_ebpf_build::compile("steer", "steer", &[]);
    nicache_ebpf_build::compile("sieve", "sieve", &[]);
    nicache_ebpf_build::compile("l0", "l0", &[]);
    nicache_ebpf_build::compile("l0", "l0_driver", &["-DAT_DRIVER"]);
}
