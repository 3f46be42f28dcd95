//! Compiles the program that asks the kernel for its preemption (`ebpf/preemption.bpf.c`); it is
//! embedded in the library.

fn main() {
    nicache_ebpf_build::compile("preemption", "preemption", &[]);
}
