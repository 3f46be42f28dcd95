//! Whether programs at functions are called at all.
//!
//! They hang on the kernel's function tracer, which root can turn off and on at any time. What is
//! attached then stays attached and sees nothing.

/// See sysctl(8); absent where the tracer cannot be turned off.
const SWITCH: &str = "/proc/sys/kernel/ftrace_enabled";

/// Are programs at functions called (sysctl kernel.ftrace_enabled)?
pub fn calls_programs_at_functions() -> bool {
    !std::fs::read(SWITCH).is_ok_and(|value| value.starts_with(b"0"))
}

/// Does the kernel have events that a program can be attached to? Whether tracefs is mounted is
/// another question.
pub(crate) fn has_tracefs() -> bool {
    std::fs::read_to_string("/proc/filesystems")
        .is_ok_and(|known| known.lines().any(|line| line.ends_with("\ttracefs")))
}
