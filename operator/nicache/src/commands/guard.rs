//! `nicache guard`: waits for the end of the supervisor, and ends what is left of the server then.

use std::process::ExitCode;

use anyhow::Result;

use crate::setup::{GuardSetup, child_start, receive_message, send_message};
use crate::supervisor::guard::end_all_in;

/// Waits. See [`crate::supervisor::guard`].
pub(super) fn execute() -> Result<ExitCode> {
    let (setup, _network, supervisor) = child_start::<GuardSetup>(c"server-guard")?;
    rustix::process::set_parent_process_death_signal(None)?;
    send_message(&supervisor, &setup, &[])?;
    // Nothing more is said: this returns when the supervisor has ended.
    let _ = receive_message::<GuardSetup>(&supervisor);
    end_all_in(setup.server_netns);
    Ok(ExitCode::SUCCESS)
}
