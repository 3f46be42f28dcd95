//! Whether the kernel stops in the middle of its own work to run another task.
//!
//! A program at a function is passed over if the same program has been stopped on that processor:
//! the kernel guards every such program against itself. Where tasks are not stopped in there
//! (`preempt=none` or `voluntary`, which Debian 12 and 13 have), that cannot be.

use libbpf_rs::{ObjectBuilder, PrintLevel, ProgramInput};

/// libelf wants its memory aligned.
#[repr(align(16))]
struct Aligned<T: ?Sized>(T);

static OBJECT: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/preemption.bpf.o")));

/// Is it certain that it does not? Without the right to load a program, or to see the kernel's
/// addresses (CAP_SYSLOG), it is not.
pub(crate) fn is_unpreempted() -> bool {
    // libbpf would say why not; the answer is what counts here.
    fn keep_silent(_: PrintLevel, _: String) {}
    let before = libbpf_rs::set_print(Some((PrintLevel::Warn, keep_silent)));
    let answer = ask();
    libbpf_rs::set_print(before);
    answer == Some(1)
}

fn ask() -> Option<u32> {
    let object = ObjectBuilder::default().open_memory(&OBJECT.0).ok()?.load().ok()?;
    let program = object.progs_mut().next()?;
    Some(program.test_run(ProgramInput::default()).ok()?.return_value)
}
