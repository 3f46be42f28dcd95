//! Where the forwarder's interfaces are.

use nicache_router::demo::Stage;

/// In which network namespace the forwarder's interfaces are.
#[derive(Debug)]
pub(super) enum Place {
    /// In the namespace that nicache was started in.
    Here,
    /// In the middle of the demo's.
    Demo(Box<Stage>),
}

impl Place {
    /// Runs `job` there, on a thread that lives as long as this.
    pub(super) fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        match self {
            Self::Here => job(),
            Self::Demo(stage) => stage.middle.run(job),
        }
    }

    /// The demo, if it is one.
    pub(super) fn stage(&self) -> Option<&Stage> {
        match self {
            Self::Here => None,
            Self::Demo(stage) => Some(stage),
        }
    }
}
